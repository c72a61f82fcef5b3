"""Labels that are probably wrong are left out or softened, by heads that have not seen them, nor held-out images."""

import csv
from pathlib import Path

import numpy as np
import pytest

from podium.training import clean_labels
from podium.training.clean_labels import Judge, clean_labels_of_fold
from podium.training.learner import Learner
from second_round import first_of
from templates import copied
from tiny import Podium, assert_same_fold, done, podium_at, run_of, stop_in_step, write_competition
from training.learners import context_of

TRAIN = (
    *("train", "-c", "tiny", "--weights", "none", "--image-size", "32", "--workers", "0", "--device", "cpu"),
    *("--model", "test_vit", "--folds", "0", "--batch-size", "8", "--epochs", "2", "--head-first"),
)
WRONG = ("003", "011", "017", "028", "036", "041", "050", "058")  # of the images, by their ids


def with_wrong_labels(root: Path) -> None:
    """Makes a project of sixty plain colours, of which eight have the label of another one."""
    folder = write_competition(root, per_class=20)
    following = {"red": "green", "green": "blue", "blue": "red"}
    with (folder / "train.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    rows = [[name, following[label] if name in WRONG else label] for name, label in rows if label != "lonely"]
    with (folder / "train.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    podium_at(root, "folds", "-c", "tiny", "--k", "5")


noisy = copied(with_wrong_labels)


@pytest.fixture
def gaining(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain colours are too easy for wrong labels to harm a head; here it gains by cleaning a fifth."""
    monkeypatch.setattr(Judge, "choose_strength", lambda judge, how: (0.2 if how == "drop" else 0.6, 0.01))


@pytest.mark.usefixtures("gaining")
def test_wrong_labels_are_left_out(noisy: Path) -> None:
    with context_of(noisy, "clean", model="test_vit", clean="drop") as context:
        cleaned = clean_labels_of_fold(context, 0)
        ids = context.competition.train["id"].to_numpy()
        before, after = context.images.training_rows(0), cleaned.images.training_rows(0)
        left_out = set(ids[np.setdiff1d(before, after)])
        held_out = set(ids[context.images.held_out_rows(0)])
        assert set(ids[cleaned.images.held_out_rows(0)]) == held_out  # they are judged by nobody
        wrong = set(WRONG) - held_out
        assert len(left_out & wrong) >= len(wrong) / 2
        assert len(left_out - wrong) <= len(left_out) / 2
        learner = Learner(cleaned, 0)
        assert sorted(learner.lessons.rows) == sorted(after)
    lines = (run_of(noisy, "clean").fold_folder(0) / "labels.csv").read_text().splitlines()
    assert lines[0] == "id,label,suggested,probability,learned"
    assert {line.split(",")[0] for line in lines[1:] if line.endswith("no")} == left_out
    assert not {line.split(",")[0] for line in lines[1:]} & held_out


@pytest.mark.usefixtures("gaining")
def test_softened_labels_believe_heads_in_part(noisy: Path) -> None:
    with context_of(noisy, "clean", model="test_vit", clean="soften") as context:
        cleaned = clean_labels_of_fold(context, 0)
        learner = Learner(cleaned, 0)
        rows = learner.lessons.rows
        assert np.array_equal(np.sort(rows), np.sort(context.images.training_rows(0)))
        taught = learner.lessons.targets[np.arange(len(rows))]
        labels = context.images.targets.values[rows]
    assert np.allclose(taught.sum(1), 1, atol=1e-5)
    share = 1 - taught[np.arange(len(rows)), labels].min()
    assert 0 < share < 1
    ids = context.competition.train["id"].to_numpy()[rows]
    doubt = 1 - taught[np.arange(len(rows)), labels]
    assert doubt[np.isin(ids, WRONG)].mean() > 2 * doubt[~np.isin(ids, WRONG)].mean()


def test_no_head_is_fitted_to_what_it_judges_or_to_held_out_images(
    noisy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs: list[tuple[set[int], set[int]]] = []
    original = Judge.answers

    def answers(judge: Judge, learned: object, judged: object, *rest: object) -> object:
        pairs.append((set(learned.tolist()), set(judged.tolist())))  # type: ignore[attr-defined]
        return original(judge, learned, judged, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Judge, "answers", answers)
    with context_of(noisy, "clean", model="test_vit", clean="drop") as context:
        clean_labels_of_fold(context, 0)
        held_out = set(context.images.held_out_rows(0).tolist())
        training = set(context.images.training_rows(0).tolist())
    for learned, judged in pairs:
        assert not learned & judged
        assert not (learned | judged) & held_out
    # The images that choose the strength are no part of what the heads of that choice have learned.
    judging = pairs[len(np.unique(context.images.folds.of_image)) - 2][1]
    assert all(not learned & judging for learned, judged in pairs if judged == judging)
    assert set.union(*(judged for _, judged in pairs[-4:])) == training


def test_a_class_of_one_part_is_not_doubted_by_heads_that_have_never_seen_it(noisy: Path) -> None:
    folder = noisy / "data" / "raw" / "tiny"
    text = (folder / "train.csv").read_text().replace("\n000,red", "\n000,rare", 1)
    assert "000,rare" in text
    (folder / "train.csv").write_text(text)
    podium_at(noisy, "folds", "-c", "tiny", "--k", "5", "--force")
    with context_of(noisy, "clean", model="test_vit", clean="drop") as context:
        rare = int(np.flatnonzero(context.competition.train["target"] == "rare")[0])
        fold = next(fold for fold in range(5) if rare in context.images.training_rows(fold))
        judge = clean_labels._open_judge(context, fold)
        judged = judge.judge(np.ones(len(judge.rows), bool))
        assert judge.doubts(judged)[judged.rows.tolist().index(rare)] < 0


@pytest.mark.parametrize("how", first_of(["drop"], ["drop", "soften"]))
def test_right_labels_stay(tmp_path: Path, podium: Podium, how: str) -> None:
    write_competition(tmp_path, per_class=20)
    podium_at(tmp_path, "folds", "-c", "tiny", "--k", "5")
    _, err = done(podium("--root", tmp_path, *TRAIN, "--clean", how, "--name", how))
    assert "nothing, because heads gain no more than chance" in err
    podium_at(tmp_path, *TRAIN, "--name", "plain")
    assert_same_fold(run_of(tmp_path, "plain"), run_of(tmp_path, how))


def test_too_few_folds_make_parts_of_their_own(noisy: Path) -> None:
    podium_at(noisy, "folds", "-c", "tiny", "--k", "2", "--force")
    with context_of(noisy, "clean", model="test_vit", clean="drop") as context:
        rows = context.images.training_rows(0)
        assert len(np.unique(clean_labels._parts_of(context.images, rows))) == clean_labels.PARTS


@pytest.mark.annex
@pytest.mark.usefixtures("gaining")
def test_a_fold_that_has_begun_keeps_what_it_learns_from(noisy: Path, podium: Podium) -> None:
    command = (*TRAIN, "--clean", "drop", "--name", "run")
    stop_in_step(podium, 5, *command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judge, "choose_strength", lambda judge, how: (0.3, 0.01))
        status, _, err = podium(*command)
    assert status == 0, err
    assert "leaves out" not in err
    out, _ = done(podium("verify", "run", "-c", "tiny", "--device", "cpu", "--workers", "0"))
    assert "the same to the bit" in out
