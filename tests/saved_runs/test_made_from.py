"""Licences and images from elsewhere bind whatever learns from them, and so do doubts about a run."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from podium.basics.disk import write_json
from podium.saved_runs.known_images import folds_seen_before
from podium.saved_runs.run_folder import Run
from podium_annex import soup
from second_round import first_of
from templates import copied
from tiny import FAST, Podium, done, podium_at, run_of, write_competition

TRAIN = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--lr", "3e-3", "--epochs", "1")
ART = {"folder": "data/extra/art", "images": 9, "weight": 1.0, "licence": "CC BY-NC 4.0", "url": ""}
LICENCE = "cc-by-nc-4.0"


def with_two_runs(root: Path) -> None:
    write_competition(root, per_class=12)
    podium_at(root, "folds", "-c", "tiny", "--k", "3")
    podium_at(root, *TRAIN, "--name", "a")
    podium_at(root, *TRAIN, "--name", "b", "--seed", "1")


runs = copied(with_two_runs)


def record(run: Run, **facts: Any) -> None:
    """Changes what a run has recorded of itself."""
    write_json(run.path / "recipe.json", {**run.recipe, **facts})


def recorded(root: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((run_of(root, name).path / "recipe.json").read_text()))


@pytest.fixture(autouse=True)
def of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a soup take both runs."""
    monkeypatch.setattr(soup, "_choose", lambda soups, judges: soup.Mixture((1, 1), soups.size))


def words_of(flag: str) -> tuple[str, ...]:
    """Returns the command of a run that learns from b in this way."""
    mixed = ("soup", "a", "b", "-c", "tiny")
    return (*(mixed if flag == "soup" else (*TRAIN, flag, "b")), "--name", "new")


@pytest.mark.parametrize("flag", first_of(["--teacher"], ["--teacher", "soup"]))
def test_what_learns_from_a_run_names_its_licence_and_images(runs: Path, podium: Podium, flag: str) -> None:
    record(run_of(runs, "b"), weights_source="test_vit.x from hub", weights_licence=LICENCE, extra=[ART])
    fold = ("--folds", "0") if flag != "soup" else ()
    _, err = done(podium(*words_of(flag), *fold))
    if flag != "soup":
        assert f"the weights test_vit.x from hub of tiny/b are licensed {LICENCE}" in err
        assert "tiny/b has learned from 9 images of data/extra/art (CC BY-NC 4.0)" in err
    entry = recorded(runs, "new")["made_from"][-1]
    assert (entry["run"], entry["weights_licence"], entry["extra"]) == ("tiny/b", LICENCE, [ART])
    done(podium(*TRAIN, "--name", "newest", "--from", "new", "--folds", "0"))
    assert [entry["run"] for entry in recorded(runs, "newest")["made_from"]][-2:] == ["tiny/b", "tiny/new"]
    out, _ = done(podium("submit", "-c", "tiny", "--anyway", "--runs", "newest"))
    assert json.loads(Path(out.strip()).with_suffix(".json").read_text())["extra"] == [ART]
    described = podium("lineage", out.strip())[1]
    assert "elsewhere    9 images of data/extra/art (CC BY-NC 4.0)" in described
    assert f"licences     test_vit.x from hub ({LICENCE})" in described
    out, _ = done(podium("export", "newest", "-c", "tiny", "--torch", "--folds", "0"))
    card = Path(f"{out.strip()}.md").read_text()
    assert "Learned from the runs" in card
    assert "tiny/b, tiny/new." in card
    assert f"test_vit.x from hub ({LICENCE})" in card
    assert "9 images of data/extra/art (CC BY-NC 4.0)" in card


def test_a_run_of_another_competition_brings_its_licence(runs: Path, podium: Podium) -> None:
    record(run_of(runs, "b"), weights_source="test_vit.x from hub", weights_licence=LICENCE, extra=[ART])
    shutil.copytree(runs / "data" / "raw" / "tiny", runs / "data" / "raw" / "other")
    podium_at(runs, "folds", "-c", "other", "--k", "3")
    words = [word if word != "tiny" else "other" for word in TRAIN]
    _, err = done(podium(*words, "--weights", "tiny/b", "--name", "new", "--folds", "0"))
    assert f"are licensed {LICENCE}" in err
    recipe = json.loads((runs / "runs" / "other" / "new" / "recipe.json").read_text())
    assert recipe["made_from"][0]["data_sha256"] == run_of(runs, "b").recipe["data_sha256"]


@pytest.mark.parametrize("flag", ["--from", "soup"])
def test_what_learns_from_a_doubted_run_is_doubted(runs: Path, podium: Podium, flag: str) -> None:
    record(run_of(runs, "b"), weights_have_seen={"run": "x", "unseen_folds": [1]}, weights_licence=LICENCE, extra=[ART])
    _, err = done(podium(*words_of(flag)))
    entry = recorded(runs, "new")["made_from"][-1]
    assert (entry["run"], entry["weights_licence"], entry["extra"]) == ("tiny/b", LICENCE, [ART])
    assert "warning: b knew held-out images." in err
    assert recorded(runs, "new")["weights_have_seen"] == {"run": "b", "unseen_folds": [1]}
    assert folds_seen_before(run_of(runs, "new")) == [0, 2]


def test_a_soup_without_a_doubted_run_is_not_doubted(
    runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(run_of(runs, "b"), weights_have_seen={"run": "x", "unseen_folds": [1]}, weights_licence=LICENCE)
    monkeypatch.setattr(soup, "_choose", lambda soups, judges: soup.Mixture((1, 0), soups.size))
    done(podium(*words_of("soup")))
    assert "weights_have_seen" not in recorded(runs, "new")
    assert [entry["run"] for entry in recorded(runs, "new")["made_from"]] == ["tiny/a"]


def test_honest_runs_say_nothing(runs: Path, podium: Podium) -> None:
    _, err = done(podium(*TRAIN, "--name", "new", "--from", "a"))
    assert "knew held-out images" not in err
    assert "weights_have_seen" not in recorded(runs, "new")
    assert recorded(runs, "a").get("made_from") is None
