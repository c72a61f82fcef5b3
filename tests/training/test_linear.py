"""A head on frozen features: as good as what is saved, never fitted to what it is judged by, and not computed twice."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.csv_files import read_table
from podium.competition.load import load
from podium.disk import sha256
from podium.images.store import open_store, stored_side
from podium.models.normalise import Normaliser
from podium.models.build import build_model
from podium.models.model_file import load_model
from podium.models.device import DTYPES
from podium.models.predict import predict_proba
from podium.training import linear
from podium.training.augment import TestView
from podium.training.context import Context
from podium.training.loader import ImageDataset, batches_in_order, load_batches
from podium.training.loop import Fold
from podium.training.run_folder import Run
from tiny import Podium, recipe_of, write_competition

FAST = ("-c", "tiny", "--weights", "none", "--image-size", "32", "--batch-size", "4", "--workers", "0")


@pytest.fixture
def tiny(tmp_path: Path, podium: Podium) -> Path:
    write_competition(tmp_path)
    assert podium("folds", "-c", "tiny", "--k", "3")[0] == 0
    return tmp_path


class Passes:
    """Counts the images that go through the backbone; the pass of number `stop` is one that Ctrl-C interrupts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop: int = 0) -> None:
        self.images = self.calls = 0
        compute = linear._features

        def counting(model: Any, images: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            if self.calls == stop:
                raise KeyboardInterrupt
            self.images += len(images)
            return compute(model, images)

        monkeypatch.setattr(linear, "_features", counting)


def run_of(root: Path, name: str) -> Run:
    return Run(root / "runs" / "tiny" / name)


def weights(root: Path, run: str, fold: int = 0) -> str:
    return sha256(run_of(root, run).fold(fold) / "model.safetensors")


@pytest.mark.parametrize("model", ["test_vit", "test_convnext"])
def test_it_goes_all_the_way_to_a_submission(tiny: Path, podium: Podium, model: str) -> None:
    status, out, err = podium("train", *FAST, "--model", model, "--linear")
    assert status == 0, err
    assert "over 3 of 3 folds" in out
    assert err.count("these features are those of random weights") == 1
    run = run_of(tiny, model)
    names = ["metrics.jsonl", "model.safetensors", "oof.npz"]
    assert [sorted(path.name for path in run.fold(fold).iterdir()) for fold in range(3)] == [names] * 3
    assert [path.name for path in (run.path / "features").iterdir()] == ["0.npz"]
    (entry,) = run.history(0)
    assert {"epoch", "step", "lr", "loss", "log_loss", "accuracy", "views", "images_per_s", "seconds"} <= set(entry)
    assert (entry["epoch"], entry["views"]) == (1, "mirror")
    status, out, err = podium("submit", "-c", "tiny", "--workers", "0")
    assert status == 0, err
    scored = json.loads(podium("score", out.strip(), "--solution", tiny / "solution.csv")[1].splitlines()[-1])
    assert scored["score"] >= 0.8  # three plain colours, which random features tell apart


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("mirror", ["0.5", "0"])
def test_the_saved_model_answers_as_its_out_of_fold_predictions(
    tiny: Path, podium: Podium, precision: str, mirror: str
) -> None:
    words = ("--model", "test_convnext", "--linear", "--folds", "1", "--precision", precision, "--mirror", mirror)
    assert podium("train", *FAST, *words)[0] == 0
    run, competition = run_of(tiny, "test_convnext"), load("tiny", tiny)
    model, spec = load_model(run.fold(1) / "model.safetensors")
    folds = read_table(tiny / "data" / "prepared" / "tiny" / "folds.csv")["fold"].to_numpy()
    rows = np.flatnonzero(folds == "1")
    store = open_store(competition, tiny, stored_side(32))
    positions = store.positions(competition.train["image"].iloc[rows])
    unseen = ImageDataset(store.reader(positions), np.zeros(len(rows), np.int64), TestView(spec), rows)
    in_turn = load_batches(unseen, batches_in_order(len(rows), 4), 0)
    normalise = Normaliser(spec, torch.device("cpu"))
    model.to(memory_format=normalise.layout)
    probs = predict_proba(model, in_turn, normalise, DTYPES[precision], "mirror" if mirror != "0" else "none")
    kept = run.out_of_fold(1).probs
    assert np.abs(probs - kept).max() < 1e-3
    assert (probs.argmax(1) == kept.argmax(1)).all()


def test_a_killed_command_goes_on_at_the_block_it_was_in_and_later_folds_compute_nothing(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "BLOCK", 10)
    command = ("train", *FAST, "--model", "test_vit", "--linear", "--mirror", "0", "--folds", "0")
    assert podium(*command, "--name", "whole")[0] == 0
    with monkeypatch.context() as patch:
        Passes(patch, stop=7)  # one shows that the head is linear; then three batches a block of 10, 10 and 5
        status, _, err = podium(*command)
    assert status == 75
    assert "run the same command again to go on" in err
    features = run_of(tiny, "test_vit").path / "features"
    assert [path.name for path in features.iterdir()] == ["0.npz"]
    with monkeypatch.context() as patch:
        passes = Passes(patch)
        assert podium(*command)[0] == 0
    assert passes.images == 2 + 10 + 5
    assert weights(tiny, "test_vit") == weights(tiny, "whole")
    with monkeypatch.context() as patch:
        passes = Passes(patch)
        assert podium(*command[:-1], "1,2")[0] == 0
    assert passes.images == 2 + 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "of another run"])
def test_a_damaged_block_is_computed_again(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(linear, "BLOCK", 10)
    command = ("train", *FAST, "--model", "test_vit", "--linear", "--mirror", "0", "--folds", "0")
    assert podium(*command, "--name", "whole")[0] == 0
    assert podium(*command, "--name", "other", "--seed", "1")[0] == 0
    assert podium(*command)[0] == 0
    run = run_of(tiny, "test_vit")
    path = run.path / "features" / "1.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    other = run_of(tiny, "other").path / "features" / "1.npz"
    path.write_bytes(
        {"cut": bytes(content[:-40]), "flipped": bytes(content), "of another run": other.read_bytes()}[damage]
    )
    (run.fold(0) / "oof.npz").unlink()
    passes = Passes(monkeypatch)
    status, _, err = podium(*command)
    assert status == 0, err
    assert passes.images == 2 + 10
    assert ("features/1.npz: cannot be read" in err) == (damage != "of another run")
    assert weights(tiny, "test_vit") == weights(tiny, "whole")


def test_a_model_with_more_than_one_linear_head_is_refused_in_one_line(tiny: Path, podium: Podium) -> None:
    for knob in ("--linear", "--head-first"):
        words = ("--model", "deit_tiny_distilled_patch16_224", "--epochs", "1", "--folds", "0")
        status, out, err = podium("train", *FAST, *words, knob, "--name", knob[2:])
        assert (status, out) == (1, "")
        (line,) = [line for line in err.splitlines() if line.startswith("podium: error: ")]
        assert "deit_tiny_distilled_patch16_224 is not one linear layer" in line
        assert "leave out --linear" in line


@pytest.mark.parametrize(
    "name", ["test_resnet", "test_efficientnet", "test_vit3", "test_mambaout", "convnextv2_atto", "repvit_m0_9"]
)
def test_a_model_is_taken_only_if_its_answer_is_linear_in_its_features(name: str) -> None:
    model, spec = build_model(recipe_of(name, "none", 64), ("a", "b", "c"))
    normalise = Normaliser(spec, torch.device("cpu"))
    images = torch.randint(0, 256, (3, 64, 64, 3), dtype=torch.uint8)
    if name == "repvit_m0_9":  # two heads
        with pytest.raises(PodiumError, match="not one linear layer"):
            linear.classifier_of(model, spec, normalise)
        return
    classifier = linear.classifier_of(model, spec, normalise)
    with torch.inference_mode():
        inputs = normalise(images)
        assert torch.allclose(classifier(linear._features(model, inputs)), model(inputs), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("k", [2, 3])
def test_the_fold_that_is_reported_is_never_seen_by_its_head(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    write_competition(tmp_path)
    assert podium("folds", "-c", "tiny", "--k", k)[0] == 0
    folds = read_table(tmp_path / "data" / "prepared" / "tiny" / "folds.csv")["fold"].to_numpy().astype(int)
    fit, looked_at = linear.fit_head, []

    def blind(setting: Context, fold: int, features: NDArray[np.float32]) -> Any:
        """The held-out images' features and labels are gone: what would look at them could not go on."""
        hidden, targets = features.copy(), setting.targets.copy()
        hidden[:, folds == fold] = np.nan
        targets[folds == fold] = 10**6
        chooses = linear._chooses(setting, fold, setting.training(fold))
        looked_at.append(set(folds[setting.training(fold)[chooses]].tolist()))
        assert chooses.any()
        assert not chooses.all()
        return fit(replace(setting, targets=targets), fold, hidden)

    command = ("train", *FAST, "--model", "test_vit", "--linear", "--name")
    assert podium(*command, "seeing")[0] == 0
    monkeypatch.setattr(linear, "fit_head", blind)
    assert podium(*command, "blind")[0] == 0
    assert [weights(tmp_path, "blind", fold) for fold in range(k)] == [
        weights(tmp_path, "seeing", fold) for fold in range(k)
    ]
    assert looked_at == ([{1}, {2}, {0}] if k == 3 else [{1}, {0}])


def test_neither_another_time_nor_workers_change_a_bit(tiny: Path, podium: Podium) -> None:
    for name, workers in (("first", 0), ("again", 0), ("two", 2)):
        words = ("--model", "test_convnext", "--linear", "--folds", "0", "--name", name)
        status, _, err = podium("train", *FAST[:-1], workers, *words)
        assert status == 0, err
    assert weights(tiny, "first") == weights(tiny, "again") == weights(tiny, "two")
    first, two = (run_of(tiny, name).out_of_fold(0).probs for name in ("first", "two"))
    assert np.array_equal(first, two)


def test_images_that_cannot_be_read_are_left_out(tiny: Path, podium: Podium) -> None:
    (tiny / "data" / "raw" / "tiny" / "train_image" / "004.jpg").write_bytes(b"<html>")
    status, out, err = podium("train", *FAST, "--model", "test_vit", "--linear", "--skip-bad")
    assert status == 0, err
    assert "over 3 of 3 folds" in out
    assert all("004" not in run_of(tiny, "test_vit").out_of_fold(fold).id for fold in range(3))


def test_the_head_is_the_least_of_its_objective() -> None:
    from sklearn.linear_model import LogisticRegression

    draws = np.random.default_rng(0)
    seen = draws.normal(size=(300, 5)) * [3, 1, 1, 0.1, 0.01]
    targets = (seen[:, :3] + draws.normal(size=(300, 3))).argmax(1)
    begin = linear.Head(torch.zeros(3, 5), torch.zeros(3))
    for l2 in (1.0, 1e-3):
        variances = torch.from_numpy(seen.var(0)).float()
        found = linear._fit(torch.from_numpy(seen).float(), torch.from_numpy(targets), l2, variances, begin)
        wanted = LogisticRegression(C=1 / l2 / 300, tol=1e-8, max_iter=10_000).fit(seen, targets)
        probs = (torch.from_numpy(seen).float() @ found.weight.T + found.bias).softmax(1).numpy()
        assert np.abs(probs - wanted.predict_proba(seen)).max() < 0.02


def test_a_head_fitted_first_lowers_the_first_loss_and_resumes_to_the_bit(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    knobs = ("--model", "test_vit", "--epochs", "2", "--mix", "0", "--folds", "1")
    assert podium("train", *FAST, *knobs, "--name", "plain")[0] == 0
    assert podium("train", *FAST, *knobs, "--name", "whole", "--head-first")[0] == 0
    step, passes = Fold.step, Passes(monkeypatch)

    def interrupted(fold: Fold, *batch: Any) -> None:
        if fold.state.step == 1:
            signal.raise_signal(signal.SIGINT)
        step(fold, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(Fold, "step", interrupted)
        assert podium("train", *FAST, *knobs, "--name", "stopped", "--head-first")[0] == 75
    computed = passes.images
    assert podium("train", *FAST, *knobs, "--name", "stopped", "--head-first")[0] == 0
    assert passes.images == computed  # the checkpoint holds the head
    assert weights(tiny, "stopped", 1) == weights(tiny, "whole", 1)
    plain, whole = (run_of(tiny, name).history(1)[0]["loss"] for name in ("plain", "whole"))
    assert whole < plain
    assert podium("train", *FAST, *knobs[:-1], "2", "--name", "whole", "--head-first")[0] == 0
    assert passes.images == computed + 2  # the features serve the other folds
