"""Labels that are probably wrong: planted errors are found among noise whose truth is known."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from podium.comparing.label_suspects import find_suspects
from podium.competition.build.corrections import corrections_path
from podium.competition.load import load
from podium.saved_runs.prediction_files import Predictions
from tiny import Podium, done, one_line, run_of, write_file

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
SHARES = np.array([0.43, 0.2, 0.12, 0.1, 0.06, 0.04, 0.02, 0.015, 0.01, 0.005])


def simulate(planted: float, seed: int, count: int = 4000, confidence: float = 1.0) -> tuple[Ints, Ints, Floats]:
    """Returns true labels, given labels, and what a model of about 90 % accuracy predicts.

    The classes are as uneven as in practice. Errors are exchanged at random: a wrong label is that of another image.
    `confidence` above 1 makes the model too sure, below 1 too cautious.
    """
    rng = np.random.default_rng(seed)
    truth = rng.choice(len(SHARES), count, p=SHARES)
    given = truth.copy()
    for number in rng.choice(count, round(planted * count), replace=False):
        while given[number] == truth[number]:
            given[number] = truth[rng.integers(count)]
    signal = 2.7
    logits = signal * (rng.normal(size=(count, len(SHARES))) + signal * np.eye(len(SHARES))[truth]) + np.log(SHARES)
    powers = np.exp(confidence * (logits - logits.max(1, keepdims=True)))
    return truth, given, powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize("confidence", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("planted", [0.05, 0.15])
def test_planted_errors_are_found_with_their_class(planted: float, confidence: float) -> None:
    truth, given, probs = simulate(planted, seed=1, confidence=confidence)
    suspects = find_suspects(given, probs)
    is_wrong = given != truth
    first = suspects.order[: is_wrong.sum()]
    assert is_wrong[first].mean() >= 0.8  # both precision and recall
    found = suspects.order[suspects.is_suspect]
    assert is_wrong[found].mean() >= 0.65
    assert is_wrong[found].sum() >= 0.75 * is_wrong.sum()
    suggested = suspects.suggested[: is_wrong.sum()]
    assert (suggested == truth[first])[is_wrong[first]].mean() >= 0.85


def test_how_sure_the_model_is_changes_no_suspect() -> None:
    found = []
    for confidence in (0.5, 1.0, 2.0):
        _, given, probs = simulate(0.15, seed=3, confidence=confidence)
        suspects = find_suspects(given, probs)
        found.append(set(suspects.order[suspects.is_suspect].tolist()))
    assert len(found[0] & found[1] & found[2]) > 0.98 * max(map(len, found))


def test_correct_labels_of_a_good_model_are_hardly_suspected() -> None:
    _, given, probs = simulate(0.0, seed=2)
    assert find_suspects(given, probs).is_suspect.mean() < 0.05


def test_a_rare_class_is_not_suspected_as_a_whole() -> None:
    """The model gives the rare class a tenth of the probability on its five images: much, compared with the others."""
    given = np.array([0] * 95 + [1] * 5)
    probs = np.where(given[:, None] == 1, [[0.9, 0.1]], [[0.999, 0.001]])
    assert not find_suspects(given, probs).is_suspect.any()


def test_a_class_without_a_label_is_never_suggested_and_order_is_by_odds() -> None:
    given = np.array([0] * 20 + [1] * 20)
    probs = np.where(given[:, None] == 0, [[0.5, 0.1, 0.4]], [[0.1, 0.5, 0.4]])
    probs[3], probs[30] = [0.02, 0.88, 0.1], [0.88, 0.04, 0.08]
    suspects = find_suspects(given, probs)
    assert suspects.order[:2].tolist() == [3, 30]
    assert suspects.suggested[:2].tolist() == [1, 0]
    assert suspects.is_suspect.tolist() == [True, True] + [False] * 38
    assert set(suspects.suggested.tolist()) <= {0, 1}
    assert sorted(suspects.order.tolist()) == list(range(40))
    assert (np.diff(suspects.odds) <= 0).all()


# --- the command -------------------------------------------------------------------------------------


def plant_in_predictions(root: Path, image_id: str, label: str) -> None:
    """Lets the run `good` be sure of this label for an image, and of the given labels for all others."""
    for path in run_of(root, "good").path.glob("fold*/oof.npz"):
        oof = Predictions.load(path, "")
        probs = np.full_like(oof.probs, 0.02)
        for row, name in enumerate(oof.id):
            probs[row, oof.classes.index(label) if name == image_id else oof.target.values[row]] = 0.94
        Predictions(oof.id, probs, oof.target, oof.classes, oof.key).save(path)


def test_suspects_are_listed_and_corrected(two_runs: Path, podium: Podium) -> None:
    plant_in_predictions(two_runs, "005", "blue")
    out, err = done(podium("audit", "-c", "tiny", "--suspects"))
    assert "idle (score may be chance)" in err
    title, caution, _, row, *_ = out.splitlines()
    assert "right with 97.2% of the labels" in caution
    assert title.startswith("1 label of 36 images")
    assert "1 training image that no fold validated" in title
    assert row.split() == ["005", "red", "blue", "0.020", "0.940"]
    csv, err = done(podium("audit", "-c", "tiny", "--suspects", "good", "--csv"))
    assert csv == "id,label,why\n005,blue,good gives blue 0.940 and red 0.020\n"
    (two_runs / "suspects.csv").write_text(csv)
    _, err = done(podium("folds", "-c", "tiny", "--verify", "--corrections", two_runs / "suspects.csv"))
    assert "1 line, 1 new" in err
    assert load("tiny", two_runs).train.set_index("id")["target"]["005"] == "blue"
    _, out, _ = podium("audit", "-c", "tiny", "--suspects")
    assert out.startswith("0 labels of 36 images")


def test_a_confirmed_label_is_no_suspect(two_runs: Path, podium: Podium) -> None:
    plant_in_predictions(two_runs, "005", "blue")
    write_file(corrections_path("tiny", two_runs), "id,label\n005,red\n")
    assert podium("audit", "-c", "tiny", "--suspects", "--csv")[1] == "id,label,why\n"


def test_mistakes_are_refused(two_runs: Path, podium: Podium) -> None:
    assert "give --suspects too" in one_line(podium("audit", "-c", "tiny", "--csv"))
    assert "did you mean good?" in one_line(podium("audit", "-c", "tiny", "--suspects", "goood"))
