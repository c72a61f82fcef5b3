"""What only a GPU can show: `pytest -m gpu`, or benchmarks/gpu.sh. Tests that a CPU can run too, run there too."""

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from forked_podium import run_group
from podium.basics.machine import Machine
from podium.models.device import autocast, full_float32, pick_precision, prepare_device
from podium.models.predict import predict_proba
from podium.saved_runs.checkpoint import checkpoints
from podium.training.augment import TestView, TrainView
from podium.training.context import Context, open_context
from podium.training.drawn_changes import ChangesView
from podium.training.gpu_images import GpuImages
from podium.training.learner import Learner
from podium.training.loader import batches_in_order, load_batches
from podium.training.plan import make_plan
from podium.training.request import Request, check_before_plan
from podium_annex.measuring import bench
from tiny import (
    Podium,
    assert_same_fold,
    assert_says,
    assert_stopped_and_resumed_alike,
    done,
    one_line,
    run_of,
    stop_in_step,
    weights_hash,
)
from training.learners import a_batch, copy_state, spoil_inputs

# torch 2.9 warns so when TF32 is switched on, whichever way it is done.
pytestmark = pytest.mark.filterwarnings("ignore:Please use the new API settings to control TF32")
gpu = pytest.mark.gpu
on_any_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
OPTIONS = {"weights": "none", "image_size": 32, "batch_size": 4, "epochs": 3, "model": "test_resnet"}
TRAIN = (
    *("train", "-c", "tiny", "--weights", "none", "--model", "test_resnet", "--image-size", "32"),
    *("--batch-size", "4", "--folds", "0", "--epochs", "3", "--workers", "0"),
)


@contextmanager
def context_on(root: Path, device: str, workers: int = 0, **options: Any) -> Iterator[Context]:
    machine = Machine(device=device, workers=workers, deterministic=True)
    plan = make_plan(check_before_plan("tiny", root, Request({**OPTIONS, **options}, folds=(0,), machine=machine)))
    with open_context(plan) as context:
        yield context


# --- precision ---------------------------------------------------------------------------------------


@gpu
def test_products_are_computed_in_tf32_except_those_that_must_be_exact() -> None:
    device = torch.device("cuda")
    prepare_device(device, deterministic=False)
    torch.manual_seed(0)
    first, second = torch.randn(2, 512, 512, device=device).unbind()
    exact = first.double() @ second.double()

    def error() -> float:
        return float((first @ second - exact).abs().max())

    with full_float32():
        assert error() < 1e-3
    if torch.cuda.get_device_capability(device) >= (8, 0):
        assert 1e-3 < error() < 1


@gpu
def test_float16_scales_the_loss_and_skips_a_step_whose_gradients_overflow(tiny: Path) -> None:
    with context_on(tiny, "cuda", precision="float16", batch_size=8, ema=0.0) as context:
        learner = Learner(context, fold=0)
        assert learner.scaler.is_enabled()
        learner.scaler = torch.amp.GradScaler("cuda", init_scale=8.0)  # with which no gradient overflows at the start
        learner.step(*a_batch())
        assert learner.progress.skipped.item() == 0
        scale, before = learner.scaler.get_scale(), copy_state(learner)
        spoil_inputs(learner)
        learner.step(*a_batch())
        assert learner.scaler.get_scale() == scale / 2
        assert learner.progress.skipped.item() == 1
        assert all(tensor.equal(before[name]) for name, tensor in learner.model.state_dict().items())


@gpu
@pytest.mark.parametrize("precision", ["auto", "float16", "bfloat16", "float32"])
def test_every_precision_learns(tiny: Path, podium: Podium, precision: str) -> None:
    _, err = done(podium(*TRAIN, "--device", "cuda", "--precision", precision, "--epochs", "8"))
    history = run_of(tiny, "test_resnet").history(0)
    assert history[-1].loss < history[0].loss
    assert precision in ("auto", "float16") or "skipped" not in err  # float16 finds its scale by skipping


# --- the same bits -----------------------------------------------------------------------------------


@on_any_device
@pytest.mark.parametrize("precision", ["float32", "bfloat16", pytest.param("float16", marks=gpu)])
def test_an_interrupted_run_resumes_to_the_same_bits(tiny: Path, podium: Podium, device: str, precision: str) -> None:
    if (device, precision) == ("cpu", "float16"):
        pytest.skip("a CPU does not train in float16")
    command = (*TRAIN, "--device", device, "--deterministic", "--precision", precision, "--mix", "0.5")
    for step in (3, 6):
        stop_in_step(podium, step, *command, "--name", "interrupted")
    assert checkpoints(run_of(tiny, "interrupted").fold_folder(0))
    for name in ("interrupted", "undisturbed"):
        done(podium(*command, "--name", name))
    assert_same_fold(run_of(tiny, "interrupted"), run_of(tiny, "undisturbed"))


@gpu
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_deterministic_run_has_the_same_bits_with_and_without_workers(
    tiny: Path, podium: Podium, optimizer: str
) -> None:
    command = (*TRAIN, "--device", "cuda", "--deterministic", "--optimizer", optimizer)
    for workers in ("0", "2"):
        done(podium(*command, "--workers", workers, "--name", f"workers{workers}"))
    assert weights_hash(tiny, "workers0") == weights_hash(tiny, "workers2")


# --- from the store to the device and back -----------------------------------------------------------


@on_any_device
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_batches_reach_the_device_unchanged_from_pinned_memory(tiny: Path, device: str, workers: int) -> None:
    with context_on(tiny, device, workers) as context:
        learner = Learner(context, fold=0)
        images = context.images.of_rows(context.images.held_out_rows(0), TestView(learner.spec))
        expected = torch.from_numpy(np.stack([images.view(images.read(row), 0, 0) for row in range(len(images.rows))]))
        arrived = []
        for batch, _ in load_batches(images, batches_in_order(len(images.rows), 5), workers):
            assert batch.is_pinned() == torch.cuda.is_available()
            arrived.append(batch.to(context.device, non_blocking=True))
        assert torch.cat(arrived).cpu().equal(expected)


@gpu
@pytest.mark.parametrize("model", ["test_resnet", "test_vit", "test_convnext"])
def test_cpu_and_gpu_predict_alike(tiny: Path, model: str) -> None:
    with context_on(tiny, "cuda", model=model, batch_size=8) as context:
        learner = Learner(context, fold=0)
        for _ in range(3):
            learner.step(*a_batch())
    cast(Any, learner.model).get_classifier().weight.data *= 20  # it starts almost at zero
    images, labels = a_batch()
    probs = {}
    for device in ("cpu", "cuda"):
        with context_on(tiny, device, model=model, precision="float32") as context, full_float32():
            other = Learner(context, fold=0)
            other.model.load_state_dict(learner.model.state_dict())
            batches = [(images, labels)]
            probs[device] = predict_proba(other.model, batches, other.normalise, context.precision, "mirror")
    assert np.allclose(probs["cpu"], probs["cuda"], atol=1e-3)  # a GPU's convolutions are computed in TF32
    assert probs["cpu"].std(axis=0).max() > 1e-2  # the images differ, so the comparison means something


# --- the whole program -------------------------------------------------------------------------------


@gpu
@pytest.mark.filterwarnings("default")  # the compiler has warnings of its own
def test_a_compiled_model_trains_and_predicts_as_the_eager_one_does(tiny: Path, podium: Podium) -> None:
    command = (*TRAIN, "--device", "cuda", "--precision", "float32", "--mix", "0")
    for name, flags in (("eager", ()), ("compiled", ("--compile",))):
        done(podium(*command, *flags, "--name", name))
    eager, compiled = (run_of(tiny, name) for name in ("eager", "compiled"))
    assert compiled.history(0)[0].loss == pytest.approx(eager.history(0)[0].loss, rel=1e-2)
    assert np.allclose(compiled.out_of_fold(0).probs, eager.out_of_fold(0).probs, atol=0.1)


@gpu
@pytest.mark.parametrize("size", [1, 2])
def test_processes_that_nccl_joins_train_what_one_alone_trains(
    tiny: Path, tmp_path: Path, podium: Podium, size: int
) -> None:
    if size > torch.cuda.device_count():
        pytest.skip("needs two GPUs: NCCL refuses two processes on one")
    command = (*TRAIN, "--device", "cuda", "--precision", "float32", "--parallel", "data", "--deterministic")
    log = tmp_path / "group.log"
    statuses = run_group(size, ("--root", tiny, *command, "--name", "group"), log)
    assert statuses == [0] * size, log.read_text()
    done(podium(*command, "--name", "alone"))
    group, alone = (run_of(tiny, name).out_of_fold(0).probs for name in ("group", "alone"))
    assert np.allclose(group, alone, atol=1e-2)


@gpu
def test_one_more_process_than_gpus_is_refused(tiny: Path, podium: Podium) -> None:
    count = torch.cuda.device_count() + 1
    one_line(
        podium(*TRAIN, "--device", "cuda", "--processes", str(count)),
        f"--processes {count} needs as many GPUs, but there are {count - 1}",
    )


@gpu
def test_a_batch_beyond_the_memory_is_answered_with_one_that_fits(tiny: Path, podium: Podium) -> None:
    words = ("train", "-c", "tiny", "--weights", "none", "--model", "resnet50", "--image-size", "224", "--epochs", "1")
    command = (*words, "--folds", "0", "--workers", "0", "--device", "cuda", "--batch-size", "12")
    torch.cuda.reset_peak_memory_stats()
    done(podium(*command, "--name", "unlimited"))
    needed = torch.cuda.max_memory_allocated()
    free_gpu_memory()
    in_all = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(0.85 * needed / in_all)
    try:
        message = one_line(podium(*command), "does not hold a batch of 12, but holds one of ")
        parts = message.partition("use --accumulate ")[2].partition(",")[0]
        free_gpu_memory()
        done(podium(*command, "--accumulate", parts, "--name", "in-parts"))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@gpu
def test_a_batch_beyond_the_memory_is_split_on_request(tiny: Path, podium: Podium) -> None:
    words = ("train", "-c", "tiny", "--weights", "none", "--model", "resnet50", "--image-size", "224", "--epochs", "1")
    command = (*words, "--folds", "0", "--workers", "0", "--device", "cuda", "--batch-size", "12", "--accumulate")
    torch.cuda.reset_peak_memory_stats()
    done(podium(*command, "1", "--name", "whole"))
    needed = torch.cuda.max_memory_allocated()
    free_gpu_memory()
    torch.cuda.set_per_process_memory_fraction(0.85 * needed / torch.cuda.get_device_properties(0).total_memory)
    try:
        done(podium(*command, "auto", "--name", "split"))
        assert run_of(tiny, "split").recipe["accumulate"] > 1
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@on_any_device
def test_images_changed_on_the_device_are_those_of_the_loader(tiny: Path, device: str) -> None:
    with context_on(tiny, device, colour=0.3, erase=0.5) as context:
        spec, rows = Learner(context, fold=0).spec, context.images.training_rows(0)
        drawn = context.images.of_rows(rows, ChangesView(context.recipe, spec))
        keys = [(1, index) for index in range(len(rows))]
        changes, _ = cast(Any, drawn.load(keys))
        made = GpuImages(drawn, spec, context.device).changed(changes.numpy().view(np.float64))
        loaded, _ = cast(Any, context.images.of_rows(rows, TrainView(context.recipe, spec)).load(keys))
    differences = (made.cpu().int() - loaded.int()).abs()
    assert differences.max() <= 6
    assert differences.float().mean() < 0.3


@gpu
def test_a_deterministic_run_with_pixels_on_the_gpu_resumes_to_the_same_bits(tiny: Path, podium: Podium) -> None:
    command = (*TRAIN, "--device", "cuda", "--deterministic", "--store", "gpu", "--colour", "0.3", "--erase", "0.5")
    assert_stopped_and_resumed_alike(podium, tiny, 3, *command)


@gpu
def test_a_device_decides_where_its_pixels_are_and_whether_to_compile(tiny: Path, podium: Podium) -> None:
    _, err = done(podium(*TRAIN, "--device", "cuda", "--store", "auto", "--compile", "auto"))
    assert_says(err, "--store auto: ", "--compile auto: off, because a fold takes about")


def free_gpu_memory() -> None:
    """Frees what the commands before this one held in this process; a new process holds nothing."""
    gc.collect()
    torch.cuda.empty_cache()


@on_any_device
def test_bench_measures_the_device(tiny: Path, podium: Podium, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WINDOWS", (2, 2))
    monkeypatch.setattr(bench, "SECONDS", 0.01)
    file = tiny / "figures.json"
    words = ("--model", "test_resnet", "--image-size", "32", "--batch-size", "4", "--workers", "0")
    done(podium("bench", "-c", "tiny", *words, "--device", device, "--json", file))
    (measured,) = json.loads(file.read_text())
    assert (measured["gpu_memory_mb"] is not None) == (device == "cuda")
    assert measured["training"]["median"] > 0


@gpu
def test_auto_is_a_precision_that_the_gpu_has(tiny: Path) -> None:
    device = torch.device("cuda")
    precision = pick_precision("auto", device)
    assert precision in (torch.bfloat16, torch.float16)
    with autocast(device, precision):
        assert (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).dtype == precision
