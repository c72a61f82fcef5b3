"""Measures training on a GPU: the bench of the two default models, then a whole run of five folds.

    python -m benchmarks.gpu OUT [--seconds 420] [--device cuda] [--small]

Writes OUT/gpu.json and OUT/gpu.md after each measurement; the second is the table for "On a GPU". The order is by
importance: what does not fit into the seconds is listed as left out. `--small` takes tiny models and few images, to try
it on a CPU. benchmarks/gpu.sh runs this and the tests that need a GPU.
"""

import json
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks.harness import Project, call, machine, seconds, seconds_of
from benchmarks.sets import write_photographs
from podium.basics.machine import Machine
from podium.competition.load import load
from podium_annex.measuring import bench

COMPILING, MEASURING = 100.0, 20.0  # seconds that a compiled measurement may need, and another one
RUN_SECONDS = 150.0  # kept for the run of five folds
WORKERS = 3  # enough for these models; with more, each measurement first waits for more batches loaded in advance
VIT, CONVNEXT = "vit_small_patch32_224", "convnext_small"
CASES = [  # model, images in a batch, and what differs from an eager step with the images in the CPU's memory
    *((VIT, 512, ""), (CONVNEXT, 256, ""), (VIT, 512, "compiled gpu"), (VIT, 512, "gpu"), (CONVNEXT, 256, "gpu")),
    *((VIT, 512, "compiled"), (VIT, 1024, ""), (VIT, 128, ""), (CONVNEXT, 128, ""), (CONVNEXT, 512, "")),
    *((CONVNEXT, 256, "compiled"), (VIT, 1024, "compiled")),
]
SMALL_CASES = [("test_vit", 8, ""), ("test_vit", 8, "gpu"), ("test_convnext", 8, "")]
COLUMNS = ("plain loop", "podium", "share", "prediction", "share", "GPU memory")


def gpu(out: Path, seconds: float = 420, device: str = "cuda", small: bool = False) -> None:
    ends = time.monotonic() + seconds
    results: dict[str, Any] = {"machine": "", "bench": [], "left_out": [], "run": None}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        counts = (60, 10, 3) if small else (35_551, 8_889, 44)
        project = write_photographs(Path(folder), "synthetic", *counts, size=(60, 80))
        # Not before: processes that fork must not have touched the GPU.
        results["machine"] = f"{torch.cuda.get_device_name(0) if device == 'cuda' else device}, {machine()}"
        for model, size, how in SMALL_CASES if small else CASES:
            case = ", ".join([model, f"batches of {size}", *how.split()])
            needed = (COMPILING if "compiled" in how else MEASURING) + (0 if small else RUN_SECONDS)
            if time.monotonic() + needed > ends:
                results["left_out"].append(case)
                continue
            options = {"batch_size": size, **({"image_size": 32} if small else {})}
            compile, store = "on" if "compiled" in how else "off", "gpu" if "gpu" in how else "on"
            asked = Machine(device=device, workers=0 if small else WORKERS, compile=compile, store=store)
            results["bench"].append({"case": case, **measure(project, model, options, asked)})
            save(out, results)
        results["run"] = whole_run(project, device, small)
    print(save(out, results))


def save(out: Path, results: dict[str, Any]) -> str:
    (out / "gpu.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    lines = [f"| {' | '.join([results['machine'], *COLUMNS])} |", "| --- " * 7 + "|"]
    for found in results["bench"]:
        cells = [found["error"].splitlines()[0]] if "error" in found else figures(found)
        lines.append(f"| {' | '.join([found['case'], *cells, *[''] * (6 - len(cells))])} |")
    lines += ["", *(f"Left out, for lack of time: {case}." for case in results["left_out"])]
    table = "\n".join([*lines, f"Five folds, seconds of each command: {json.dumps(results['run'])}", ""])
    (out / "gpu.md").write_text(table, encoding="utf-8")
    return table


def figures(found: dict[str, Any]) -> list[str]:
    plain, ours, prediction = (f"{found[name]['median']:,.0f}" for name in ("bare_step", "training", "prediction"))
    memory = f"{found['gpu_memory_mb'] / 1000:.1f} GB" if found["gpu_memory_mb"] else ""
    return [plain, ours, f"{found['training_share']:.2f}", prediction, f"{found['prediction_share']:.2f}", memory]


def measure(project: Project, model: str, options: dict[str, Any], asked: Machine) -> dict[str, Any]:
    """Returns the figures of `podium bench` with short windows, or the error: it must not cost the other cases."""
    try:
        with mock.patch.object(bench, "WINDOWS", (3, 3)), mock.patch.object(bench, "SECONDS", 0.4):
            return asdict(bench.bench(load(project.slug, project.root), [model], options, asked)[0])
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        torch.compiler.reset()


def whole_run(project: Project, device: str, small: bool) -> dict[str, Any]:
    """Trains five folds as a user does; returns the seconds of each command and the accuracy."""
    options = "--model test_vit --image-size 32 --epochs 1 --batch-size 8" if small else ""
    options = options or f"--model {VIT} --epochs 10 --batch-size 512"
    options += f" --weights none --device {device} --store auto --compile auto --accumulate auto --name run"
    commands = {"folds": "", "train": options, "submit": f"--device {device} --anyway"}
    took = {name: round(seconds(partial(project.podium, name, *words.split())), 1) for name, words in commands.items()}
    run = project.run("run")
    scores = [run.score(fold, "accuracy") for fold in run.finished()]
    mean = round(sum(scores) / len(scores), 4)
    return {"options": options, **took, "folds": len(scores), "training": round(seconds_of(run), 1), "accuracy": mean}


if __name__ == "__main__":
    call(gpu)
