"""Measures training on a GPU: the bench of the two default models, then a whole run of five folds.

    python docs/measure_gpu.py OUT [--seconds 420] [--device cuda] [--small]

Writes OUT/gpu.json and OUT/gpu.md after each measurement; the second is the table for benchmarks.md. The order is by
importance: what does not fit into the seconds is listed as left out; give more seconds to measure all. `--small` takes
tiny models and few images, so that the script itself can be tried on a CPU. docs/measure_gpu.sh runs this and the tests
that need a GPU.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from synthetic_competition import write_competition

from podium.basics.machine import Machine
from podium.competition.load import load
from podium.models import normalise
from podium.saved_runs.run_folder import Run
from podium_annex.measuring import bench

COMPILING = 100.0  # seconds that a compiled measurement may need, and another one
MEASURING = 20.0
RUN_SECONDS = 150.0  # kept for the run of five folds
WORKERS = 3  # enough for these models; with more, each measurement first waits for more batches loaded in advance


class Case(NamedTuple):
    model: str
    batch_size: int
    compiled: bool = False
    layout: str = "channels last"
    store: str = "on"

    def __str__(self) -> str:
        words = [f"batches of {self.batch_size}", "compiled" if self.compiled else "eager", self.layout]
        return ", ".join([self.model, *words, *(["pixels on the GPU"] if self.store == "gpu" else [])])


VIT, CONVNEXT = "vit_small_patch32_224", "convnext_small"
CASES = [
    Case(VIT, 512),
    Case(CONVNEXT, 256),
    Case(VIT, 512, compiled=True, store="gpu"),
    Case(VIT, 512, store="gpu"),
    Case(CONVNEXT, 256, store="gpu"),
    Case(VIT, 512, compiled=True),
    Case(CONVNEXT, 256, layout="channels first"),
    Case(VIT, 512, layout="channels first"),
    Case(VIT, 1024),
    Case(VIT, 128),
    Case(CONVNEXT, 128),
    Case(CONVNEXT, 512),
    Case(CONVNEXT, 256, compiled=True),
    Case(VIT, 64),
    Case(CONVNEXT, 64),
    Case(VIT, 1024, compiled=True),
    Case(CONVNEXT, 256, compiled=True, layout="channels first"),
]
SMALL_CASES = [
    Case("test_vit", 8),
    Case("test_vit", 8, store="gpu"),
    Case("test_convnext", 8, layout="channels first"),
]


def main(out: Path, seconds: float, device: str, small: bool) -> None:
    ends = time.monotonic() + seconds
    results: dict[str, Any] = {"machine": {}, "bench": [], "left_out": [], "run": None}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        train, test, classes = (60, 10, 3) if small else (35_551, 8_889, 44)
        write_competition(root, "synthetic", train, test, classes)
        results["machine"] = describe_machine(device)  # not before: processes that fork must not have touched the GPU
        for case in SMALL_CASES if small else CASES:
            needed = (COMPILING if case.compiled else MEASURING) + (0 if small else RUN_SECONDS)
            if time.monotonic() + needed > ends:
                results["left_out"].append(str(case))
                continue
            results["bench"].append({"case": case._asdict(), **measure(root, case, device, small)})
            save(out, results)
        results["run"] = whole_run(root, device, small, ends - time.monotonic())
    save(out, results)
    print(table(results))


def describe_machine(device: str) -> dict[str, str]:
    name = torch.cuda.get_device_name(0) if device == "cuda" else device
    shared = f"{shutil.disk_usage('/dev/shm').total / 1e9:.1f} GB"
    return {"device": name, "torch": torch.__version__, "cuda": str(torch.version.cuda), "/dev/shm": shared}


def save(out: Path, results: dict[str, Any]) -> None:
    (out / "gpu.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (out / "gpu.md").write_text(table(results), encoding="utf-8")


# --- measuring ---------------------------------------------------------------------------------------


def measure(root: Path, case: Case, device: str, small: bool) -> dict[str, Any]:
    """Returns the figures of `podium bench`, or the error."""
    options = {"batch_size": case.batch_size, **({"image_size": 32} if small else {})}
    compile, workers = "on" if case.compiled else "off", 0 if small else WORKERS
    machine = Machine(device=device, compile=compile, workers=workers, store=case.store)
    started = time.monotonic()
    try:
        with short_windows(), layout(case.layout):
            (measured,) = bench.bench(load("synthetic", root), [case.model], options, machine)
    except Exception as error:  # one case that fails must not cost the others
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        torch.compiler.reset()
    figures = asdict(measured)
    del figures["first_step_seconds"]  # it counts from the start of this script
    return {**figures, "seconds": round(time.monotonic() - started, 1)}


@contextmanager
def short_windows() -> Iterator[None]:
    with mock.patch.object(bench, "WINDOWS", (3, 3)), mock.patch.object(bench, "SECONDS", 0.4):
        yield


@contextmanager
def layout(name: str) -> Iterator[None]:
    if name == "channels last":
        yield
        return
    with mock.patch.object(normalise, "layout_for", return_value=torch.contiguous_format):
        yield


def whole_run(root: Path, device: str, small: bool, seconds: float) -> dict[str, Any]:
    """Trains five folds as a user does; returns the times of each command and the score."""
    model = ("--model", "test_vit", "--image-size", "32") if small else ("--model", VIT)
    options = (*model, "--epochs", "1" if small else "10", "--batch-size", "8" if small else "512")
    options += ("--store", "auto", "--compile", "auto", "--accumulate", "auto")
    podium = (sys.executable, "-m", "podium", "--root", str(root))
    times: dict[str, Any] = {"options": " ".join(options)}
    ends = time.monotonic() + seconds
    for words in (
        ("folds", "-c", "synthetic"),
        ("train", "-c", "synthetic", "--weights", "none", "--device", device, "--name", "run", *options),
        ("submit", "-c", "synthetic", "--device", device),
    ):
        started = time.monotonic()
        try:
            subprocess.run([*podium, *words], check=True, timeout=max(10, ends - time.monotonic()))
        except subprocess.SubprocessError as error:
            times["error"] = f"{words[0]}: {type(error).__name__}"
            break
        times[words[0]] = round(time.monotonic() - started, 1)
    run = Run(root / "runs" / "synthetic" / "run")
    histories = [run.history(fold) for fold in run.finished()]
    training = sum(record.seconds for history in histories for record in history)
    scores = [history[-1].scores["accuracy"] for history in histories] or [float("nan")]
    return {
        **times,
        "folds": len(histories),
        "training": round(training, 1),
        "accuracy": round(float(np.mean(scores)), 4),
    }


# --- reporting ---------------------------------------------------------------------------------------


def table(results: dict[str, Any]) -> str:
    machine = results["machine"]
    title = f"{machine['device']}, torch {machine['torch']}"
    lines = [f"| {title} | plain loop | podium | share | prediction | share | GPU memory |", "| --- " * 7 + "|"]
    for row in results["bench"]:
        case = str(Case(**row["case"]))
        if "error" in row:
            lines.append(f"| {case} | {row['error'].splitlines()[0]} | | | | | |")
            continue
        rates = (f"{row[name]['median']:,.0f}" for name in ("bare_step", "training"))
        memory = f"{row['gpu_memory_mb'] / 1000:.1f} GB" if row["gpu_memory_mb"] else ""
        shares = f"{row['training_share']:.2f}", f"{row['prediction_share']:.2f}"
        cells = case, *rates, shares[0], f"{row['prediction']['median']:,.0f}", shares[1], memory
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(f"Left out, for lack of time: {case}." for case in results["left_out"])]
    lines.append(f"Five folds, seconds of each command: {json.dumps(results['run'])}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=420, help="stop measuring so that all ends in this time")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny models and few images, to try the script")
    main(**vars(parser.parse_args()))
