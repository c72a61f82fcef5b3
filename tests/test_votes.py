"""Votes of experts on parts of recordings, from spectrograms to a submission with a row for each part."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import podium as library
from podium.competition.load import load
from podium.tasks.metrics import evaluate
from templates import copied
from tiny import Podium, assert_rebuilt, compared_scores, done, one_line, podium_at

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

SLUG = "waves"
VOTES = ["seizure_vote", "lpd_vote", "other_vote"]
FAST = ("-c", SLUG, "--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")
TRAIN = (
    *("train", *FAST, "--model", "test_resnet", "--lr", "1e-2", "--epochs", "8", "--crop", "1", "--fit", "squash"),
    *("--mirror", "0", "--views", "none", "--mix", "0"),
)
TRAINED, TESTED = 48, 9


def write_spectrogram(path: Path, shares: np.ndarray, seed: int) -> None:
    """Writes powers of 66 frequencies: each class has a band, the louder, the larger its share."""
    logs = np.random.default_rng(seed).normal(0, 0.5, (66, 40)) - 3
    for band, share in enumerate(shares):
        logs[22 * band : 22 * band + 22] += 10 * share
    names = [f"LL_{0.59 + 0.2 * number:.2f}" for number in range(66)]
    columns = {"time": np.arange(40), **dict(zip(names, np.exp(logs).astype(np.float32), strict=True))}
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)


def write_waves(root: Path) -> None:
    """Writes spectrograms of which each has two rows, judged by several experts, and is one of a patient's two."""
    folder, rng = root / "data" / "raw" / SLUG, np.random.default_rng(0)
    rows: dict[str, list[dict[str, object]]] = {"train": [], "test": []}
    for number in range(TRAINED + TESTED):
        role = "train" if number < TRAINED else "test"
        shares = rng.dirichlet([0.4] * len(VOTES))
        write_spectrogram(folder / f"{role}_spectrograms" / f"{number + 500}.parquet", shares, number)
        for part in range(2):
            votes = dict(zip(VOTES, rng.multinomial(12, shares).tolist(), strict=True))
            ids = {"eeg_id": number + 9000, "eeg_sub_id": part, "spectrogram_id": number + 500}
            offset = {"spectrogram_label_offset_seconds": 6.0 * part, "patient_id": number // 2}
            rows[role].append({**ids, **offset, **votes})
    train, test = pd.DataFrame(rows["train"]), pd.DataFrame(rows["test"])
    train.to_csv(folder / "train.csv", index=False)
    test[["spectrogram_id", "eeg_id", "patient_id"]].to_csv(folder / "test.csv", index=False)
    test[["eeg_id"]].assign(**dict.fromkeys(VOTES, 1 / 3)).to_csv(folder / "sample_submission.csv", index=False)
    test[["eeg_id", *VOTES]].to_csv(root / "solution.csv", index=False)


def two_runs(root: Path) -> None:
    write_waves(root)
    podium_at(root, "folds", "-c", SLUG, "--k", "2")
    podium_at(root, *TRAIN, "--name", "a")
    podium_at(root, "train", *FAST, "--model", "test_resnet", "--linear", "--name", "head")


trained = copied(two_runs)  # The competition with the runs a and head.


@pytest.mark.annex
def test_each_part_of_a_recording_gets_its_row(trained: Path, podium: Podium) -> None:
    out, _ = done(podium("submit", "-c", SLUG, "--runs", "a", "head"))
    written, sample = Path(out.strip()), pd.read_csv(trained / "data" / "raw" / SLUG / "sample_submission.csv")
    submission = pd.read_csv(written)
    assert submission["eeg_id"].tolist() == sample["eeg_id"].tolist()
    assert len(submission) == 2 * TESTED
    assert (submission.groupby("eeg_id")[VOTES].nunique() == 1).all(axis=None)
    assert np.allclose(submission[VOTES].sum(axis=1), 1, atol=1e-5)
    scored = json.loads(podium("score", written, "-c", SLUG, "--solution", trained / "solution.csv")[1])
    assert scored == json.loads(
        podium("score", written, "--metric", "kl_divergence", "--solution", trained / "solution.csv")[1]
    )
    assert scored["metric"] == "kl_divergence"
    truth = pd.read_csv(trained / "solution.csv")[VOTES].to_numpy() / 12
    logs = np.log(np.where(truth > 0, truth, 1)) - np.log(submission[VOTES].to_numpy())
    assert scored["score"] == pytest.approx((truth * logs).sum(axis=1).mean(), rel=1e-3)
    assert scored["score"] < 0.5
    assert_rebuilt(podium, written)


def test_the_shares_are_learned_recorded_and_scored(trained: Path, podium: Podium) -> None:
    competition = load(SLUG, trained)
    votes = competition.targets.votes
    assert votes is not None
    assert votes.shape == (TRAINED, len(VOTES))
    assert np.allclose(votes.sum(axis=1), 1)
    assert (votes.max(axis=1) < 1).any()
    scores = compared_scores(podium, SLUG)
    mean = np.broadcast_to(votes.mean(axis=0), votes.shape)
    assert scores["a"] < evaluate("kl_divergence", competition.targets, mean)
    run = library.Run(trained / "runs" / SLUG / "a")
    with np.load(trained / "runs" / SLUG / "a" / "fold0" / "oof.npz") as kept:
        places = [competition.train["id"].tolist().index(name) for name in kept["id"]]
        assert np.array_equal(kept["votes"], votes[places])
    assert set(run.held_out()["target"]) <= set(VOTES)
    assert competition.recipe["smoothing"] == 0


def test_patients_and_recordings_stay_in_one_fold(trained: Path) -> None:
    folds = pd.read_csv(trained / "data" / "prepared" / SLUG / "folds.csv", dtype=str)
    patient = (folds["id"].astype(int) % 100).floordiv(2)
    assert (folds.groupby(patient)["fold"].nunique() == 1).all()


def test_a_corrected_label_has_all_votes(trained: Path, podium: Podium) -> None:
    competition = load(SLUG, trained)
    image_id, label = competition.train[["id", "target"]].iloc[0]
    other = next(name for name in VOTES if name != label)
    (trained / "mine.csv").write_text(f"id,label\n{image_id},{other}\n")
    corrected = load(SLUG, trained, trained / "mine.csv").targets.taught
    assert corrected[0].tolist() == [float(name == other) for name in VOTES]
    assert np.array_equal(corrected[1:], competition.targets.taught[1:])


@pytest.mark.annex
def test_what_needs_one_label_is_refused_or_uses_the_largest_share(trained: Path, podium: Podium) -> None:
    for flag, value in (("--clean", "drop"), ("--head", "arcface")):
        one_line(podium(*TRAIN, "--name", "no", "--folds", "0", flag, value), flag, "votes")
    short = ("--folds", "0", "--epochs", "1")
    for name, options in {"mixed": ("--mix", "0.5", "--smoothing", "0.1"), "even": ("--adjust", "1")}.items():
        done(podium(*TRAIN, *short, "--name", name, *options))
    for options in (("--class-weights", "balanced"), ("--loss", "focal"), ("--teacher", "a"), ("--pseudo", "a")):
        done(podium(*TRAIN, *short, "--name", options[0].strip("-"), *options))
    done(podium("audit", "-c", SLUG, "--suspects"))
    done(podium("report", "-c", SLUG))
    assert "cost" in one_line(podium("submit", "-c", SLUG, "--runs", "a", "--cost", trained / "none.csv"))


def test_every_blend_is_fitted_to_the_shares(trained: Path, podium: Podium) -> None:
    for strategy in ("convex-calibrated", "greedy", "geometric", "stacked-linear"):
        done(podium("submit", "-c", SLUG, "--runs", "a", "head", "--blend", strategy, "--name", strategy))


def test_an_id_that_repeats_without_a_reason_is_refused(tmp_path: Path, podium: Podium) -> None:
    write_waves(tmp_path)
    folder = tmp_path / "data" / "raw" / SLUG
    for name in ("train.csv", "test.csv"):
        pd.read_csv(folder / name).drop_duplicates("eeg_id").to_csv(folder / name, index=False)
    assert "appears twice" in one_line(podium("data", "-c", SLUG))
