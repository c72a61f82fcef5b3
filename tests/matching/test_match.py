"""From files to similarities of pairs: what is estimated, chosen, written, rebuilt and refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score, roc_auc_score

from jaguars import SLUG, ask_for_clusters, individual_of_test, write_jaguar_card, write_jaguars
from matching.test_similarities import planted
from podium.competition.find.csv_files import read_table
from podium_annex.matching.choose_way import GUESS, choose_way
from podium_annex.matching.galleries import Galleries, Gallery
from podium_annex.matching.similarities import PLAIN
from templates import copied
from tiny import Podium, assert_says, done, one_line, podium_at, tiny_with_folds

pytestmark = pytest.mark.annex

TRAIN = ("train", "-c", SLUG, "--model", "test_resnet", "--weights", "none", "--image-size", "32", "--workers", "0")
CARD = 'unknown = "new_individual"\nunknown_share = 0.5\n'


def trained_jaguars(root: Path) -> None:
    """Makes a project with a run of a frozen backbone and one of trained ones, whose folds hold individuals out."""
    write_jaguars(root)
    write_jaguar_card(root, CARD)
    podium_at(root, "folds", "-c", SLUG, "--k", "3")
    podium_at(root, *TRAIN, "--linear", "--name", "head")
    podium_at(root, *TRAIN, "--epochs", "1", "--name", "fine")


jaguars = copied(trained_jaguars)
tiny_project = copied(tiny_with_folds)


def matched(podium: Podium, *words: object) -> tuple[Path, dict[str, object], str]:
    """Returns the CSV, its lineage, and what was said."""
    out, err = done(podium("match", "-c", SLUG, "--workers", "0", *words))
    path = Path(out.strip())
    return path, json.loads(path.with_suffix(".json").read_text()), err


def area_under_curve(root: Path, csv: Path) -> float:
    truth, answers = (read_table(path)["similarity"].astype(float) for path in (root / "solution.csv", csv))
    return float(roc_auc_score(truth, answers))


@pytest.mark.slow
def test_the_csv_has_the_rows_of_the_sample_and_tells_individuals_apart(jaguars: Path, podium: Podium) -> None:
    path, lineage, err = matched(podium, "--runs", "head", "fine")
    sample = read_table(jaguars / "data/raw" / SLUG / "sample_submission.csv")
    written = read_table(path)
    assert list(written["row_id"]) == list(sample["row_id"])
    assert list(written.columns) == ["row_id", "similarity"]
    assert written["similarity"].astype(float).between(0, 1).all()
    assert path.name == "match-head+fine.csv"
    assert area_under_curve(jaguars, path) > 0.9
    assert [run["run"] for run in lineage["runs"]] == ["head", "fine"]  # type: ignore[attr-defined]
    assert_says(err, "mean average precision", "balanced accuracy of pairs", "that the models have not learned")


@pytest.mark.slow
def test_the_pair_gets_the_similarity_whichever_image_comes_first(jaguars: Path, podium: Podium) -> None:
    path, _, _ = matched(podium, "--runs", "head")
    rows = read_table(jaguars / "data/raw" / SLUG / "test.csv").set_index("row_id")
    answers = read_table(path).set_index("row_id")["similarity"]
    by_pair = {(row.query_image, row.gallery_image): answers[name] for name, row in rows.iterrows()}
    assert all(value == by_pair[second, first] for (first, second), value in by_pair.items())
    assert len(set(by_pair.values())) > len(by_pair) / 4


@pytest.mark.slow
def test_it_is_rebuilt_to_the_byte_and_refuses_what_has_changed(jaguars: Path, podium: Podium) -> None:
    path, lineage, _ = matched(podium, "--runs", "fine", "--name", "mine")
    content, record = path.read_bytes(), path.with_suffix(".json")
    path.unlink()
    again = ("match", "--workers", "0", "--from", record)
    _, err = done(podium(*again))
    assert path.read_bytes() == content
    assert "byte for byte" in err
    record.write_text(json.dumps(lineage | {"threshold": float(str(lineage["threshold"])) - 0.1}))
    one_line(podium(*again), "give another CSV", "restore")
    record.write_text(json.dumps(lineage | {"rows_sha256": "0" * 64}))
    one_line(podium(*again), "mine.json", "rows data", "restore")
    record.write_text(json.dumps(lineage | {"made_by": "somebody"}))
    one_line(podium(*again), "mine.json", "podium match", "restore")
    one_line(podium(*again, "--runs", "fine"), "--from", "leave out --runs")
    one_line(podium("match", "--from", jaguars / "none.json"), "none.json", "podium match writes it")


@pytest.mark.slow
def test_the_estimate_says_whether_the_individuals_were_learned(jaguars: Path, podium: Podium) -> None:
    _, lineage, err = matched(podium, "--runs", "fine")
    estimate = lineage["estimate"]
    assert estimate["are_new"] is True  # type: ignore[index]
    assert estimate["queries"] == 48  # type: ignore[index]  # half of 96 images are of individuals held out whole
    assert "fewer than 20 individuals" in err
    write_jaguar_card(jaguars, "")
    done(podium("folds", "-c", SLUG, "--k", "2", "--force"))
    done(podium(*TRAIN, "--epochs", "1", "--name", "other"))
    _, lineage, err = matched(podium, "--runs", "other")
    assert lineage["estimate"]["are_new"] is False  # type: ignore[index]
    assert lineage["estimate"]["individuals"] == 24  # type: ignore[index]
    assert_says(err, "learned from other images", "hold out individuals whole")


@pytest.mark.slow
def test_what_cannot_be_matched_is_refused(jaguars: Path, tiny_project: Path, podium: Podium) -> None:
    one_line(podium("submit", "-c", SLUG), "pair of images, query_image and gallery_image", "match")
    assert "next: " in done(podium("compare", "-c", SLUG))[1]
    one_line(podium("match", "-c", SLUG, "--clusters"), "pair of images", "leave out --clusters", "pairs = []")
    one_line(podium("match", "-c", "tiny"), "no row of the test table is a pair", 'pairs = ["QUERY", "GALLERY"]')
    one_line(podium("match", "-c", SLUG, "--runs", "nobody"), "no run 'nobody'")


@pytest.mark.slow
def test_clusters_are_individuals_and_known_ones_have_their_names(jaguars: Path, podium: Podium) -> None:
    ask_for_clusters(jaguars)
    one_line(podium("match", "-c", SLUG), "no row of the test table is a pair", "--clusters")
    path, lineage, err = matched(podium, "--runs", "head", "--clusters")
    written, truth = read_table(path), individual_of_test()
    assert list(written.columns) == ["filename", "ground_truth"]
    assert list(written["filename"]) == [f"test_{number:03d}.png" for number in range(len(truth))]
    assert adjusted_rand_score(truth, written["ground_truth"]) > 0.3  # features of random weights
    is_named = ~written["ground_truth"].str.startswith("cluster_")
    assert (written["ground_truth"] == truth)[is_named].mean() > 0.5
    assert lineage["clusters"] is True
    assert lineage["estimate"]["adjusted_rand"] > 0.5  # type: ignore[index]
    assert "adjusted Rand index" in err
    content = path.read_bytes()
    path.unlink()
    done(podium("match", "--workers", "0", "--from", path.with_suffix(".json")))
    assert path.read_bytes() == content


# --- the choice --------------------------------------------------------------------------------------


def galleries_of(noise: float, individuals: int = 40, each: int = 6) -> Galleries:
    features, identity = planted(individuals, each, noise)
    return Galleries([Gallery(features, identity, np.ones(len(identity), bool))], True)


def test_re_ranking_is_taken_where_it_helps_and_nothing_where_all_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    helped = choose_way(galleries_of(1.4))
    assert helped.way != PLAIN
    assert helped.estimate is not None
    assert helped.estimate["gain"]["between"][0] > 0
    assert ": taken" in capsys.readouterr().err
    clear = choose_way(galleries_of(0.1))
    assert clear.way == PLAIN
    assert clear.estimate is not None
    assert clear.estimate["mean_average_precision"] == 1
    assert ": not taken" in capsys.readouterr().err


def test_with_few_individuals_nothing_is_chosen() -> None:
    choice = choose_way(galleries_of(1.4, individuals=12))
    assert choice.way == PLAIN
    assert choice.estimate is not None
    assert "gain" not in choice.estimate


def test_without_a_second_image_nothing_is_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    choice = choose_way(Galleries([], True))
    assert (choice.way, choice.threshold, choice.estimate) == (PLAIN, GUESS, None)
    assert "no individual has two held-out images" in capsys.readouterr().err


def test_noise_gains_nothing_by_choosing() -> None:
    rng = np.random.default_rng(0)
    features, identity = planted(40, 4, 0.0)
    features = rng.permutation(features)  # the labels say nothing
    choice = choose_way(Galleries([Gallery(features, identity, np.ones(len(identity), bool))], True))
    assert choice.estimate is not None
    assert choice.estimate["pair_accuracy"] == pytest.approx(0.5, abs=0.05)
    assert pd.notna(choice.threshold)
