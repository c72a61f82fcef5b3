"""The command that writes the pages, and what stands in them."""

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from podium.basics.errors import PodiumError
from podium.comparing.compare import compare_runs
from podium.comparing.pair_tests import compare_pairs
from podium.competition.load import load
from podium.models.cpu_threads import Threads
from podium.saved_runs.epoch_record import EpochRecord
from podium.saved_runs.run_folder import Run
from podium_annex.explain.choose_explainer import choose_explainer
from podium_annex.report import competition_page, heat, run_page
from podium_annex.report.charts import Line, line_chart
from podium_annex.report.gallery import ImageCard, add_thumbnails, shrink_to
from podium_annex.report.numbers import HeldOutImages
from podium_annex.report.page import as_script
from podium_annex.report.sections import costs_section, html_table
from second_round import first_of
from tiny import Podium, assert_says, done, one_line, write_file, write_image


class Page(HTMLParser):
    """Collects the addresses that a page would load, and its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.feed(text)
        match = re.search(r'<script id="page-data" type="application/json">(.*?)</script>', text, re.DOTALL)
        assert match
        self.data: dict[str, Any] = json.loads(match[1])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [str(value) for name, value in attrs if name == "src" or (tag == "link" and name == "href")]


def page_of(root: Path, run: str) -> tuple[str, Page]:
    text = (root / "runs" / "tiny" / run / "report.html").read_text(encoding="utf-8")
    return text, Page(text)


def test_the_pages_hold_everything_and_load_nothing(two_runs: Path, podium: Podium) -> None:
    out, _ = done(podium("report", "-c", "tiny"))
    assert Path(out.strip()) == two_runs / "runs" / "tiny" / "report.html"
    text, page = page_of(two_runs, "idle")
    assert page.loaded == []
    for title in ("Learning curves", "Confusion matrix", "Classes", "Calibration", "Time and memory", "Recipe"):
        assert f"<h2>{title}</h2>" in text
    assert page.data["classes"] == ["blue", "green", "lonely", "red"]
    mistakes = [card for card in page.data["cards"] if card.get("predicted") and card["predicted"] != card["label"]]
    assert mistakes
    thumbnail = np.frombuffer(base64.b64decode(mistakes[0]["thumbnail"]), np.uint8)
    assert cv2.imdecode(thumbnail, cv2.IMREAD_COLOR) is not None
    image = (two_runs / "runs" / "tiny" / "idle" / page.data["folder"] / mistakes[0]["image"]).resolve()
    assert image.is_file()
    assert_says(Path(out.strip()).read_text(encoding="utf-8"), 'href="idle/report.html"', 'href="good/report.html"')


def test_mistakes_show_where_the_model_looks(two_runs: Path, podium: Podium) -> None:
    done(podium("report", "-c", "tiny", "--runs", "idle"))
    text, page = page_of(two_runs, "idle")
    assert "Grad-CAM" in text
    heat = [card for card in page.data["cards"] if "heat" in card]
    assert heat
    assert all(card["label"] != card["predicted"] for card in heat)
    assert len({card["heat"] for card in heat}) > 1


def test_where_the_model_looks_is_computed_by_as_many_threads_as_cores_are_free(
    two_runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, taken = torch.get_num_threads(), []

    def choose(model: Any, size: Any) -> Any:
        taken.append(torch.get_num_threads())
        return choose_explainer(model, size)

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(Threads, "free", lambda self: 3)
    monkeypatch.setattr(heat, "choose_explainer", choose)
    try:
        done(podium("report", "-c", "tiny", "--runs", "idle"))
    finally:
        torch.set_num_threads(before)
    assert set(taken) == {3}


def test_a_model_without_maps_has_a_report_without_them(
    two_runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(model: object, images: object) -> None:
        raise PodiumError("it has no map")

    monkeypatch.setattr("podium_annex.explain.choose_explainer.grad_cam", refuse)
    _, err = done(podium("report", "-c", "tiny", "--runs", "idle"))
    assert "the report shows no attention: it has no map" in err
    assert "not computed" in page_of(two_runs, "idle")[0]


def test_a_label_that_is_probably_wrong_comes_first_until_somebody_has_judged_it(
    two_runs: Path, podium: Podium
) -> None:
    table = two_runs / "data" / "raw" / "tiny" / "train.csv"
    table.write_text(table.read_text().replace("000,red", "000,green"))
    done(podium("report", "-c", "tiny", "--runs", "good"))
    page = page_of(two_runs, "good")[1]
    suspects = [card for card in page.data["cards"] if "suspect" in card]
    assert [(card["id"], card["label"], card["suggested"], card["suspect"]) for card in suspects] == [
        ("000", "green", "red", 1)
    ]
    assert page.data["cards"][0] == suspects[0]
    corrections = two_runs / "data" / "competitions" / "tiny.corrections.csv"
    write_file(corrections, "id,label,why\n000,red,looked\n")
    done(podium("report", "-c", "tiny", "--runs", "good"))
    cards = page_of(two_runs, "good")[1].data["cards"]
    assert not [card for card in cards if "suspect" in card]
    assert {card["label"] for card in cards if card["id"] == "000"} <= {"red"}


def test_a_submission_that_uses_the_run_stands_in_its_page(two_runs: Path, podium: Podium) -> None:
    done(podium("submit", "-c", "tiny", "--runs", "good", "--device", "cpu"))
    done(podium("report", "-c", "tiny"))
    assert "good.csv" in page_of(two_runs, "good")[0]
    assert "No submission uses this run yet" in page_of(two_runs, "idle")[0]


def test_pairs_are_tested_with_the_labels_of_today_and_all_runs_are_shown(two_runs: Path, podium: Podium) -> None:
    corrections = two_runs / "data" / "competitions" / "tiny.corrections.csv"
    write_file(corrections, "id,label\n000,green\n001,green\n")  # for `good`, two correct answers become wrong
    labels = load("tiny", two_runs).label_of
    before, today = (compare_pairs("tiny", two_runs, ["good", "idle"], labels=used).iloc[0] for used in (None, labels))
    assert before["only_run"] != today["only_run"]
    out, _ = done(podium("report", "-c", "tiny", "--runs", "good"))
    overview = Path(out.strip()).read_text(encoding="utf-8")
    pairs = overview[overview.index('id="pairs"') :]
    assert [int(number) for number in re.findall(r'data-value="(\d+)"', pairs)[:2]] == [
        today["only_run"],
        today["only_other"],
    ]


def test_a_run_is_linked_where_it_is_named_and_not_where_a_model_has_its_name(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = compare_runs(load("tiny", two_runs))
    runs.loc[runs["run"] == "good", "model"] = "idle"  # the first row
    folder = two_runs / "runs" / "tiny"
    for name in ("good", "idle"):
        (folder / name / "report.html").write_text("")
    rows = competition_page._runs_section(runs, folder, ()).split("<tr>")[2:]
    assert [row.index("<a href") for row in rows] == [row.index("<td") + len('<td class="text">') for row in rows]
    assert [re.findall('<a href="([^"]*)">', row) for row in rows] == [["good/report.html"], ["idle/report.html"]]
    monkeypatch.setattr(competition_page, "FEW_PAIRS", 0)
    pairs = competition_page._pairs_section(load("tiny", two_runs), runs)
    assert "<details><summary>1 pair</summary>" in pairs


def test_only_the_named_runs_get_a_page(two_runs: Path, podium: Podium) -> None:
    done(podium("report", "-c", "tiny", "--runs", "good"))
    assert not (two_runs / "runs" / "tiny" / "idle" / "report.html").exists()
    assert "no run 'goood'" in one_line(podium("report", "-c", "tiny", "--runs", "goood"))


def test_an_image_that_has_gone_has_a_card_without_a_picture(two_runs: Path, podium: Podium) -> None:
    done(podium("report", "-c", "tiny", "--runs", "idle"))
    card = page_of(two_runs, "idle")[1].data["cards"][0]
    (two_runs / "data" / "raw" / "tiny" / card["image"]).write_bytes(b"no image")
    done(podium("report", "-c", "tiny", "--runs", "idle"))
    again = next(other for other in page_of(two_runs, "idle")[1].data["cards"] if other["id"] == card["id"])
    assert "thumbnail" not in again


def test_a_name_with_a_tag_in_it_stays_text() -> None:
    text = as_script({"name": "</script><b>\u2028"})
    assert "<" not in text
    assert json.loads(text) == {"name": "</script><b>\u2028"}
    assert "<b>" not in html_table(["<b>"], [["<b>x"]])


@pytest.mark.parametrize("value", [None, float("nan")])
def test_what_is_unknown_is_an_empty_cell(value: float | None) -> None:
    assert html_table(["a", "b"], [["x", value]]).count('<td data-value=""></td>') == 1


def test_thumbnails_stop_at_the_limit(tmp_path: Path) -> None:
    for number in range(6):
        write_image(tmp_path / f"{number}.png", (9, 99, 200), number, (300, 200))
    cards = [ImageCard(id=str(number), image=f"{number}.png", label="a") for number in range(6)]
    size = len(json.dumps(add_thumbnails(cards, tmp_path, 10**9).cards[0].as_json()))
    limited = add_thumbnails(cards, tmp_path, round(size * 3.5))
    assert [card.id for card in limited.cards] == ["0", "1", "2"]
    assert limited.left_out == 3


@pytest.mark.parametrize(("shape", "expected"), [((400, 200), (112, 56)), ((1, 1000), (1, 112)), ((20, 10), (20, 10))])
def test_thumbnails_keep_the_shape_of_the_image(shape: tuple[int, int], expected: tuple[int, int]) -> None:
    assert shrink_to(np.zeros((*shape, 3), np.uint8), 112).shape[:2] == expected


@pytest.mark.parametrize("count", first_of([2000], [2000, 6000]))
def test_a_page_of_thousands_of_classes_shows_those_that_matter(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The order of confusions does not end for thousands of classes, and a table of all would fill the page."""
    images = 2 * count
    rng = np.random.default_rng(0)
    names = tuple(f"class {number}" for number in range(count))
    targets = rng.integers(count, size=images)
    probs = np.zeros((images, count))
    probs[np.arange(images), np.where(rng.random(images) < 0.3, rng.integers(count, size=images), targets)] = 1
    held_out = HeldOutImages(np.arange(images).astype(str), np.arange(images) % 2, targets, probs, names)
    competition, run = load("tiny", two_runs), Run(two_runs / "runs" / "tiny" / "good")
    monkeypatch.setattr(run_page, "read_held_out", lambda *_: held_out)
    monkeypatch.setattr(run_page, "_headline", lambda *_: [])
    text = run_page.run_page(competition, run)
    assert len(text.encode()) < min(8_000_000, 4_000_000 + 700 * count)
    assert f"150 of {count:,} classes with the most mistakes" in text
    assert f"1,000 of {count:,} classes with the most mistakes" in text
    assert text.count('<th scope="row">') == 150
    assert len(Page(text).data["classes"]) == count


def test_the_page_says_which_labels_it_shows(two_runs: Path, podium: Podium) -> None:
    done(podium("report", "-c", "tiny"))
    assert "labels of" not in page_of(two_runs, "good")[0].split("<nav")[0]
    corrections = two_runs / "data" / "competitions" / "tiny.corrections.csv"
    write_file(corrections, "id,label\n000,green\n")
    done(podium("report", "-c", "tiny"))
    head = page_of(two_runs, "good")[0].split("<nav")[0]
    assert_says(head, "labels of today: 1 label changed", "trained with others")


def test_what_training_started_from_is_no_epoch() -> None:
    start = EpochRecord(0, 0, 0.1, 1.0, {"log_loss": 1.0}, "none", 10.0, 1.5, 0.5)
    records = [replace(start, epoch=epoch) for epoch in (0, 1, 2)]
    html = costs_section({0: records}, {"parameters": 1.0, "multiply_adds": 1.0})
    assert '<td class="text">0</td><td data-value="2">2</td>' in html  # fold 0, two epochs


def test_epochs_are_whole_numbers() -> None:
    chart = line_chart("loss", "epoch", [Line("fold 0", [1, 2, 3], [0.5, 0.4, 0.35])])
    numbers = re.findall(r'text-anchor="middle">([^<]*)<', chart)
    assert numbers == ["1", "2", "3", "epoch"]
