"""A head on frozen features: as good as the model that is saved, blind to the held-out fold, and not computed twice."""

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

import bars
from by_array import targets_of
from podium.basics.image_size import sides_of
from podium.basics.machine import Machine
from podium.competition.find.csv_files import read_table
from podium.competition.load import load
from podium.folds.folds import Folds
from podium.models.build import ModelSpec, build_model
from podium.models.device import DTYPES
from podium.models.model_file import load_model
from podium.models.normalise import Normaliser
from podium.models.predict import predict_proba, scaled
from podium.options.moves.loss_functions import squared_error
from podium.saved_runs.run_folder import has_shared_backbone
from podium.tasks.task import NUMBERS
from podium.training import fold_model, frozen_features, linear_probe
from podium.training.augment import TestView
from podium.training.context import Context
from podium.training.fold_model import FoldModel
from podium.training.frozen_features import Features, features_of
from podium.training.linear_probe import (
    Head,
    fit_head,
    inner_split,
    linear_layers,
    loss_of_head,
    predict_head,
    set_layer,
)
from podium.training.loader import batches_in_order, load_batches
from podium.training.test_predictions import kept_predictions, open_stores, predict_examples
from podium.training.train import train
from second_round import first_of
from tiny import FAST, Podium, assert_same_fold, done, podium_at, recipe_of, run_of, stop_in_step, weights_hash
from training.damage import cut_end, flip_bit
from training.learners import CPU, context_of, plan_of

LINEAR = ("train", *FAST, "--batch-size", "4", "--linear")


@pytest.fixture
def tiny3(tiny: Path) -> Path:
    """The tiny competition with three folds."""
    podium_at(tiny, "folds", "-c", "tiny", "--k", "3")
    return tiny


def test_the_loss_of_a_head_has_the_unit_of_the_training() -> None:
    """Numbers in thousands would otherwise have a loss of thousands before the first epoch."""
    _, spec = build_model(recipe_of("test_resnet"), ("price",))
    spec = replace(spec, task=NUMBERS.name, scales=((5_000.0, 1_000.0),))
    numbers = np.array([[4_000.0], [5_000.0], [np.nan], [6_000.0]])
    outputs = scaled(torch.full((4, 1), 5_500.0), spec)
    expected = squared_error(0.75, outputs, scaled(torch.from_numpy(numbers).float(), spec))
    assert loss_of_head(targets_of(numbers), np.full((4, 1), 5_500, np.float32), spec) == pytest.approx(expected.item())


def test_an_image_of_weight_two_counts_as_two_images() -> None:
    torch.manual_seed(0)
    outputs, targets = torch.randn(2, 5, 3), torch.randint(3, (5,)).repeat(2, 1)  # of two views
    weights, twice = np.array([1.0, 1.0, 2.0, 2.0, 1.0]), [0, 1, 2, 2, 3, 3, 4]
    weighed = linear_probe._weighing(F.cross_entropy, weights, 2)(outputs.flatten(0, 1), targets.flatten())
    assert weighed.item() == pytest.approx(
        F.cross_entropy(outputs[:, twice].flatten(0, 1), targets[:, twice].flatten())
    )
    assert linear_probe._weighing(F.cross_entropy, np.ones(5), 2) is F.cross_entropy


def test_a_whole_fold_chooses_the_strength_whatever_folds_are_left(tiny: Path) -> None:
    podium_at(tiny, "folds", "-c", "tiny", "--k", "4")
    with context_of(tiny, model="test_resnet") as context:
        for left, chosen in (((1, 2, 3), 1), ((2, 3), 2), ((0, 3), 3)):
            rows = np.flatnonzero(np.isin(context.images.folds.of_image, left))
            learns, judges = inner_split(context.images, 0 if 0 not in left else 2, rows)
            assert np.array_equal(rows[judges], np.flatnonzero(context.images.folds.of_image == chosen))
            assert np.array_equal(learns, ~judges)
        for known in ((1,), (-1, 1)):  # -1: always trained on
            rows = np.flatnonzero(np.isin(context.images.folds.of_image, known))
            judging = context.images.folds.of_image[rows[inner_split(context.images, 0, rows)[1]]]
            assert 0 < (judging == 1).sum() < (context.images.folds.of_image == 1).sum()


def blocks_of(root: Path) -> list[Path]:
    return sorted((root / "data" / "prepared" / "tiny").glob("features-*/*.npz"))


def ten_images_in(path: Path) -> bool:
    return bool(len(np.load(path)["features"]) == 10)


class Passes:
    """Counts what goes through the backbone; the pass of number `stop_at` is interrupted, as by Ctrl-C."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop_at: int = 0) -> None:
        self.images = self.passes = 0

        def count(model: Any, images: Tensor) -> Tensor:
            self.passes += 1
            if self.passes == stop_at:
                raise KeyboardInterrupt
            self.images += len(images)
            return features_of(model, images)

        for module in (linear_probe, frozen_features):
            monkeypatch.setattr(module, "features_of", count)


PROOF = 2  # images that prove, for every fold, that a model's output is linear in its features


# --- the files of a fold -----------------------------------------------------------------------------


@pytest.mark.annex
@pytest.mark.parametrize("model", first_of(["test_vit"], ["test_vit", "test_convnext"]))
def test_it_goes_all_the_way_to_a_submission(tiny3: Path, podium: Podium, model: str) -> None:
    out, err = done(podium(*LINEAR, "--model", model, "--name", model))
    assert "over 3 of 3 folds" in out
    assert err.count("features of random weights") == 1
    run = run_of(tiny3, model)
    names = ["metrics.jsonl", "model.safetensors", "oof.npz", "trained.json"]
    assert [sorted(path.name for path in run.fold_folder(fold).iterdir()) for fold in range(3)] == [names] * 3
    assert len(blocks_of(tiny3)) == 2  # one block of images, in two views
    (record,) = run.history(0)
    keys = {"epoch", "step", "lr", "loss", "log_loss", "accuracy", "views", "images_per_s", "seconds", "l2"}
    assert keys <= set(record.to_json())
    assert (record.epoch, record.views) == (1, "mirror")
    out, _ = done(podium("submit", "-c", "tiny", "--workers", "0"))
    scored = json.loads(podium("score", out.strip(), "--solution", tiny3 / "solution.csv")[1].splitlines()[-1])
    assert scored["score"] >= 0.8  # three plain colours, which random features tell apart


@pytest.mark.parametrize(
    ("precision", "mirror", "views"),
    [
        ("float32", 0.5, "mirror"),
        pytest.param("bfloat16", 0.5, "mirror", marks=pytest.mark.all),
        pytest.param("float32", 0.0, "none", marks=pytest.mark.all),
        ("bfloat16", 0.0, "none"),
    ],
)
def test_the_saved_model_gives_the_out_of_fold_predictions(
    tiny: Path, precision: str, mirror: float, views: str
) -> None:
    options: dict[str, Any] = {"linear": True, "batch_size": 4, "precision": precision, "mirror": mirror}
    run = train(plan_of(tiny, model="test_convnext", **options))
    with context_of(tiny, model="test_convnext", **options) as context:
        model, spec = load_model(run.weights_path(0))
        rows = context.images.held_out_rows(0)
        batches = load_batches(context.images.of_rows(rows, TestView(spec)), batches_in_order(len(rows), 4), 0)
        normalise = Normaliser(spec, CPU)
        model.to(memory_format=normalise.layout)
        probs = predict_proba(model, batches, normalise, DTYPES[precision], views)
    recorded = run.out_of_fold(0).probs
    assert np.abs(probs - recorded).max() < 1e-3
    assert (probs.argmax(1) == recorded.argmax(1)).all()


def test_numbers_choose_their_strength_with_two_folds_too(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fifth image chooses it. (Every fifth of those with the same number would be none.)"""
    shares = []

    def split(*arguments: Any) -> Any:
        learns, validates = inner_split(*arguments)
        assert not (learns & validates).any()
        shares.append(validates.mean())
        return learns, validates

    monkeypatch.setattr(linear_probe, "inner_split", split)
    bars.write_competition(tmp_path, bars.COLUMNS["one"])
    done(podium("folds", "-c", bars.SLUG, "--k", "2"))
    words = ("train", "-c", bars.SLUG, *FAST[2:], "--model", "test_resnet", "--linear", "--name", "linear")
    done(podium(*words))
    assert shares == pytest.approx([0.2, 0.2], abs=0.05)


def test_unreadable_images_are_left_out(tiny3: Path, podium: Podium) -> None:
    (tiny3 / "data" / "raw" / "tiny" / "train_image" / "004.jpg").write_bytes(b"<html>")
    done(podium("audit", "-c", "tiny", "--drop-bad"))
    out, _ = done(podium(*LINEAR, "--model", "test_vit", "--name", "test_vit"))
    assert "over 3 of 3 folds" in out
    assert all("004" not in run_of(tiny3).out_of_fold(fold).id for fold in range(3))


@pytest.mark.slow
def test_neither_a_second_time_nor_loader_processes_change_a_bit(tiny: Path, podium: Podium) -> None:
    for name, workers in (("first", "0"), ("second", "0"), ("two", "2")):
        words = ("--model", "test_convnext", "--folds", "0", "--name", name, "--workers", workers)
        done(podium(*LINEAR, *words))
    assert_same_fold(run_of(tiny, "first"), run_of(tiny, "second"))
    assert_same_fold(run_of(tiny, "first"), run_of(tiny, "two"))


# --- features on disk --------------------------------------------------------------------------------


@pytest.fixture
def ten_images_per_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_features, "BLOCK", 10)


@pytest.mark.usefixtures("ten_images_per_block")
def test_a_stopped_command_resumes_at_its_block_and_later_folds_compute_nothing(tiny3: Path, podium: Podium) -> None:
    command = (*LINEAR, "--model", "test_vit", "--name", "test_vit", "--mirror", "0", "--folds", "0")
    done(podium(*command, "--name", "undisturbed"))
    for path in blocks_of(tiny3):  # else the second run takes them
        path.unlink()
    with pytest.MonkeyPatch.context() as patch:
        Passes(patch, stop_at=7)  # one pass proves linearity; then each of the blocks of 10, 10 and 5 takes three
        status, _, err = podium(*command)
    assert status == 75
    assert "run the same command again to resume" in err
    assert len(blocks_of(tiny3)) == 1
    with pytest.MonkeyPatch.context() as patch:
        passes = Passes(patch)
        done(podium(*command))
    assert passes.images == PROOF + 10 + 5
    assert weights_hash(tiny3, "test_vit") == weights_hash(tiny3, "undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        passes = Passes(patch)
        done(podium(*command[:-1], "1,2"))
    assert passes.images == 2 * PROOF


def replace_by_another_models(path: Path) -> None:
    (other,) = [block for block in path.parents[1].glob("features-*/*.npz") if block.parent != path.parent][:1]
    path.write_bytes(other.read_bytes())


@pytest.mark.usefixtures("ten_images_per_block")
@pytest.mark.parametrize(
    "damage", first_of([flip_bit, replace_by_another_models], [cut_end, flip_bit, replace_by_another_models])
)
def test_a_damaged_block_is_computed_again(
    tiny3: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    command = (*LINEAR, "--model", "test_vit", "--name", "test_vit", "--mirror", "0", "--folds", "0")
    done(podium(*command, "--name", "other", "--seed", "9"))
    others = set(blocks_of(tiny3))
    done(podium(*command))
    run, expected = run_of(tiny3), weights_hash(tiny3, "test_vit")
    damaged = next(path for path in blocks_of(tiny3) if path not in others and ten_images_in(path))
    damage(damaged)
    for path in run.fold_folder(0).iterdir():
        path.unlink()
    passes = Passes(monkeypatch)
    _, err = done(podium(*command))
    assert passes.images == PROOF + 10
    assert (f"{damaged.name}: cannot be read" in err) == (damage is not replace_by_another_models)
    assert weights_hash(tiny3, "test_vit") == expected


TEST_IMAGES = 7
LEARNS = ("--model", "test_convnext", "--linear")


@pytest.mark.parametrize("head", first_of(["linear"], ["linear", "neighbours"]))
def test_the_features_of_test_images_are_computed_once_for_all_folds_runs_and_views(
    tiny3: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    done(podium(*LINEAR, *LEARNS, "--name", "a", "--head", head))
    passes = Passes(monkeypatch)
    monkeypatch.setattr(fold_model, "features_of", frozen_features.features_of)
    _, err = done(podium("submit", "-c", "tiny", "--runs", "a", "--anyway"))
    assert passes.images == 3 * PROOF + 2 * TEST_IMAGES  # two views
    assert err.count("computing the features of 7 images at 32 px, once for all folds and runs") == 1
    run, competition = run_of(tiny3, "a"), load("tiny", tiny3)
    store = open_stores(competition, [run], Machine())[run]
    for fold in range(3):
        model = FoldModel.load(run, fold, "cpu")
        probs = predict_examples(store, store.examples(competition.test), model, Machine(workers=0))
        kept = kept_predictions(competition, store, run, fold)
        assert kept is not None
        assert np.array_equal(kept.probs, probs)  # to the bit
    done(podium(*LINEAR, *LEARNS, "--name", "b", "--folds", "0", "--views", "none"))
    passes.images = 0
    done(podium("submit", "-c", "tiny", "--runs", "b", "--anyway"))
    assert passes.images == PROOF


def test_own_images_pass_the_backbone_once_for_all_folds(
    tiny3: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(podium(*LINEAR, *LEARNS, "--name", "a"))
    images = [tiny3 / "data" / "raw" / "tiny" / "test_image" / f"{number:03d}.jpg" for number in range(3)]
    passes = Passes(monkeypatch)
    monkeypatch.setattr(fold_model, "features_of", frozen_features.features_of)
    shared, _ = done(podium("predict", "-c", "tiny", "a", *images, "--csv"))
    assert passes.images == 3 * PROOF + 2 * len(images)
    monkeypatch.setattr(FoldModel, "backbone_key", "")
    assert podium("predict", "-c", "tiny", "a", *images, "--csv")[1] == shared


def test_folds_with_backbones_of_their_own_share_nothing(tiny3: Path, podium: Podium) -> None:
    done(podium("train", *FAST, "--model", "test_convnext", "--epochs", "1", "--name", "tuned"))
    done(podium(*LINEAR, "--from", "tuned", "--name", "more"))
    for name, shares in (("tuned", False), ("more", False)):
        assert has_shared_backbone(run_of(tiny3, name)) is shares
    _, err = done(podium("submit", "-c", "tiny", "--runs", "more", "--anyway"))
    assert "computing the features" not in err


# --- which models ------------------------------------------------------------------------------------


def test_a_model_with_another_head_is_refused_in_one_line(tiny: Path, podium: Podium) -> None:
    words = ("--model", "efficientvim_m1", "--epochs", "1", "--folds", "0")
    status, out, err = podium("train", *FAST, *words, "--linear")
    assert (status, out) == (1, "")
    (line,) = [line for line in err.splitlines() if line.startswith("podium: error: ")]
    assert "the output of efficientvim_m1 is not one linear layer on its features" in line
    assert "leave out --linear, or take another model" in line


@pytest.mark.parametrize(
    "name",
    [
        *("test_resnet", "test_efficientnet", "test_vit3", "test_mambaout", "convnextv2_atto"),
        "resnetv2_18",  # a convolution of one pixel
        *("deit_tiny_distilled_patch16_224", "efficientformer_l1"),  # two heads, of which prediction takes the mean
    ],
)
def test_a_model_is_accepted_if_its_output_is_linear_in_its_features(name: str) -> None:
    model, spec = build_model(recipe_of(name, image_size=224 if "former" in name else 64), ("a", "b", "c"))
    normalise = Normaliser(spec, CPU)
    layers = linear_layers(model, spec, normalise)
    head = Head(torch.randn(3, layers[0].weight.shape[1]), torch.randn(3))
    for layer in layers:
        set_layer(layer, head)
    with torch.inference_mode():
        inputs = normalise(torch.randint(0, 256, (3, *sides_of(spec.test_size), 3), dtype=torch.uint8))
        assert torch.allclose(F.linear(features_of(model, inputs), *head), model(inputs), rtol=1e-3, atol=1e-3)


# --- the fit -----------------------------------------------------------------------------------------


class BlindFit:
    """Hides features and labels of the held-out images from the fit, and notes which folds choose the strength."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folds: NDArray[np.int64]) -> None:
        self.folds, self.hidden = folds, np.empty(0, np.float32)
        self.choosing: list[set[int]] = []
        monkeypatch.setattr(linear_probe, "fit_head", self.fit_head)
        monkeypatch.setattr(linear_probe, "predict_head", self.predict_head)

    def fit_head(self, context: Context, fold: int, features: Features, spec: ModelSpec) -> Any:
        self.hidden, targets = features.values.copy(), context.images.targets.values.copy()
        self.hidden[:, self.folds == fold] = np.nan
        targets[self.folds == fold] = 10**6
        self.choosing.append(set())
        blind = replace(features, values=self.hidden)
        try:
            return fit_head(context.with_images(targets=targets_of(targets)), fold, blind, spec)
        finally:
            self.hidden = np.empty(0, np.float32)

    def predict_head(
        self, context: Context, head: Head, features: Features, rows: NDArray[np.int64], spec: ModelSpec
    ) -> NDArray[np.float32]:
        if self.hidden.size:  # within the fit: these images judge a strength
            self.choosing[-1] |= set(self.folds[rows].tolist())
            assert 0 < len(rows) < np.isfinite(self.hidden[0, :, 0]).sum()  # some of the visible images
        return predict_head(context, head, features, rows, spec)


@pytest.mark.parametrize(("k", "choosing"), [pytest.param(2, [{1}, {0}], marks=pytest.mark.all), (3, [{1}, {2}, {0}])])
def test_a_head_never_sees_the_fold_that_it_is_reported_on(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, k: int, choosing: list[set[int]]
) -> None:
    done(podium("folds", "-c", "tiny", "--k", k))
    folds = read_table(tiny / "data" / "prepared" / "tiny" / "folds.csv")["fold"].to_numpy().astype(int)
    done(podium(*LINEAR, "--model", "test_vit", "--name", "seeing"))
    fit = BlindFit(monkeypatch, folds)
    done(podium(*LINEAR, "--model", "test_vit", "--name", "blind"))
    for fold in range(k):
        assert weights_hash(tiny, "blind", fold) == weights_hash(tiny, "seeing", fold)
    assert fit.choosing == choosing


@pytest.fixture
def float32_context(tiny: Path) -> Iterator[Context]:
    with context_of(tiny, model="test_vit") as context:
        yield context


@pytest.mark.parametrize("l2", [1.0, 1e-3])
def test_the_head_is_the_minimum_of_its_objective(
    float32_context: Context, monkeypatch: pytest.MonkeyPatch, l2: float
) -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    evidence = rng.normal(size=(300, 5))
    targets = (evidence[:, :4] + rng.normal(size=(300, 4))).argmax(1)
    features = 3 + evidence * [3, 1, 1, 0.1, 0.01]
    folds = Folds.of(np.arange(300) % 3)
    plan = replace(float32_context.plan, folds=folds)
    context = float32_context.with_plan(plan).with_images(folds=folds, targets=targets_of(targets))
    monkeypatch.setattr(linear_probe, "STRENGTHS", (l2,))
    spec = build_model(context.recipe, context.competition.classes)[1]
    known = Features(np.arange(300), features[None].astype(np.float32), np.ones(300, np.int64))
    head, strength, _ = fit_head(context, 0, known, spec)
    assert strength == l2
    rows = context.images.training_rows(0)
    variance = features[rows].var(0)
    inputs = (features - features[rows].mean(0)) / np.sqrt(0.7 * variance + 0.3 * variance.mean())
    expected = LogisticRegression(C=1 / l2 / len(rows), tol=1e-8, max_iter=10_000).fit(inputs[rows], targets[rows])
    probs = predict_head(context, head, known, np.arange(300), spec)
    assert np.abs(probs - expected.predict_proba(inputs)).max() < 0.02


@pytest.mark.parametrize("count", [300, 30])
def test_axes_are_found_where_the_fast_methods_do_not_converge(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    rng = torch.Generator().manual_seed(0)
    features = torch.full((1, count, 40), 0.3712)
    features[0, :, :3] = torch.randn(count, 3, generator=rng) * torch.tensor([3, 1, 0.5])
    fast = linear_probe.Standardiser(features.clone(), torch.float32)

    def fail(*arguments: Any, **options: Any) -> Any:
        raise torch.linalg.LinAlgError("linalg.eigh: failed to converge")  # type: ignore[attr-defined]

    monkeypatch.setattr(torch.linalg, "eigh", fail)
    monkeypatch.setattr(torch.linalg, "svd", fail)
    slow = linear_probe.Standardiser(features.clone(), torch.float32)
    assert slow.features.shape == fast.features.shape == (1, count, min(count, 40))
    for standard in (fast, slow):
        variances, order = standard.variances.sort(descending=True)
        assert variances[:3].min() > 0.1 > 1e-5 > variances[3:].abs().max()
        assert torch.allclose(standard.features[0].var(0, correction=0)[order], variances, atol=1e-5)
    assert torch.allclose(fast.variances.sort()[0], slow.variances.sort()[0], atol=1e-5)


# --- the head first ----------------------------------------------------------------------------------


def test_a_head_fitted_first_lowers_the_first_loss_and_resumes_to_the_same_bits(
    tiny3: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("train", *FAST, "--batch-size", "4", "--model", "test_vit", "--epochs", "2", "--mix", "0")
    done(podium(*command, "--folds", "1", "--name", "plain"))
    head_first = (*command, "--head-first", "--folds", "1")
    done(podium(*head_first, "--name", "undisturbed"))
    passes = Passes(monkeypatch)
    stop_in_step(podium, 1, *head_first, "--name", "stopped", number=signal.SIGINT)
    before = passes.images
    done(podium(*head_first, "--name", "stopped"))
    assert passes.images == before  # the checkpoint holds the head
    assert_same_fold(run_of(tiny3, "stopped"), run_of(tiny3, "undisturbed"), fold=1)
    plain, fitted = (run_of(tiny3, name).history(1)[0].loss for name in ("plain", "undisturbed"))
    assert fitted < plain
    done(podium(*command, "--head-first", "--folds", "2", "--name", "undisturbed"))
    assert passes.images == before + PROOF  # the features serve the other folds
