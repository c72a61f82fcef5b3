"""What a command imports: one that does little no torch and no timm, and none what only torch.compile needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import podium as library
from tiny import FAST

# Each takes a third of a second to several seconds to import.
SLOW = (
    "torch",
    "timm",
    "torch._dynamo",
    "sympy",
    "sklearn",
    "albumentations",
    "scipy.stats",
    "huggingface_hub",
    "kaggle",
)
RUN = """
import contextlib, io, json, sys
from podium.__main__ import main
commands, slow = map(json.loads, sys.argv[1:])
for words in commands:
    output = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(output):
        status = main(words)
    print(json.dumps([status, output.getvalue(), [name for name in slow if name in sys.modules]]))
"""


def imported(root: Path, commands: list[list[str]]) -> list[list[str]]:
    """Runs the commands in one process; returns after each which slow modules have been imported so far."""
    words = [["--root", str(root), *command] for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(words), json.dumps(SLOW)], capture_output=True, text=True, check=True
    )
    found = []
    for command, line in zip(commands, done.stdout.splitlines(), strict=True):
        status, said, modules = json.loads(line)
        assert status == 0 or command[0] == "doctor", f"{command}: {said}"
        found.append(modules)
    return found


@pytest.mark.annex
@pytest.mark.slow
def test_a_command_that_does_little_imports_little_and_none_imports_a_compiler(csv: Path, two_runs: Path) -> None:
    """The predictions of `submit` are kept, and the models of `compare` were counted when they were trained."""
    here, frame = ["-c", "tiny"], library.frame(library.load("tiny", two_runs), "good")
    for role in ("train", "test"):
        frame[frame["role"] == role].to_csv(two_runs / f"{role}.csv", index=False)
    light = [
        ["data", *here],
        ["folds", *here, "--k", "2"],
        ["folds", *here, "--verify"],
        ["lineage", str(csv)],
        ["score", str(csv), "--solution", str(two_runs / "solution.csv")],
        ["models", "vit", "small"],
        ["compare", *here],
        ["submit", *here, "--runs", "good"],
        ["compare", *here, "--runs", "good", "--predictions", str(two_runs / "predicted.csv")],
        ["import", "team", *here, "--oof", str(two_runs / "train.csv"), "--test", str(two_runs / "test.csv")],
    ]
    doctor = ["doctor", *here, "--model", "convnext_small"]  # its line about the device takes a step with torch
    train = ["train", *FAST, "--model", "test_resnet", "--epochs", "1", "--folds", "0"]
    image = str(two_runs / "data" / "raw" / "tiny" / "test_image" / "000.jpg")
    heavy = [
        [*train, "--linear"],
        train,
        ["submit", "-c", "tiny", "--runs", "test_resnet", "--anyway"],
        ["predict", "-c", "tiny", "good", image],
    ]
    found = imported(two_runs, [*light, doctor, *heavy])
    of_heavy = found[len(light) + 1 :]
    for command, modules in zip(light, found, strict=False):
        assert not modules, command
    assert set(found[len(light)]) <= {"torch", "kaggle"}
    assert {"torch", "timm"} <= set(of_heavy[0])
    for command, modules in zip(heavy, of_heavy, strict=True):
        assert not {"torch._dynamo", "sympy"} & set(modules), command


@pytest.mark.slow
@pytest.mark.all
def test_torch_compile_still_works_after_timm_was_imported_without_it() -> None:
    source = """
import sys
from podium.basics.light_torch import import_timm
import_timm()
import torch
assert "torch._dynamo" not in sys.modules
layer = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW(layer.parameters())
layer(torch.ones(1, 3)).sum().backward()
optimizer.step()
assert not any(parameter.requires_grad is False for parameter in layer.parameters())
assert "torch._dynamo" not in sys.modules
compiled = torch.compile(layer, backend="eager")
assert torch.equal(compiled(torch.ones(1, 3)), layer(torch.ones(1, 3)))
from torchvision.ops import roi_align
roi_align(torch.rand(1, 1, 4, 4), [torch.tensor([[0.0, 0.0, 2.0, 2.0]])], 1)
from torch.distributed.tensor import DTensor
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
