"""Where things are in the code: names of modules, rooms that say what they do, devices in one file."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
FILES = sorted(SOURCE.glob("podium*/**/*.py"))


def test_no_two_modules_have_one_name() -> None:
    names = [path.name for path in FILES if path.name not in ("__init__.py", "commands.py", "flags.py")]
    assert sorted(names) == sorted(set(names))


def test_every_room_says_what_it_does() -> None:
    for room in SOURCE.glob("podium*/*/__init__.py"):
        docstring = ast.get_docstring(ast.parse(room.read_text(encoding="utf-8"))) or ""
        assert "In: " in docstring, room
        assert "Out: " in docstring, room
        assert "Read " in docstring, room


# --- devices -----------------------------------------------------------------------------------------

DEVICE_NAMES = r"torch\.(cuda|mps|backends\.mps)\b|[\"']cuda|[\"']mps[\"']|\.type [!=]= [\"']cpu[\"']"
MAY_NAME_DEVICES = {
    "podium/models/device.py": "all that is asked of a device",
    "podium/models/operators/exchange.py": "which layers are faster on which device",
    "podium/options/recipe_defaults.py": "the defaults of each kind of device",
    "podium/options/known_words.py": "the words of other programs",
    "podium_annex/kaggle_machines/remote_train.py": "the machines of Kaggle",
}
NEW_TENSORS = {"zeros", "ones", "empty", "full", "arange", "tensor", "rand", "randn", "randint", "randperm", "eye"}


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SOURCE)) for path in FILES])
def test_devices_are_named_in_one_file(path: Path) -> None:
    if str(path.relative_to(SOURCE)) not in MAY_NAME_DEVICES:
        assert not re.search(DEVICE_NAMES, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("room", ["podium/training", "podium_annex/pretraining"])
def test_every_new_tensor_of_training_names_its_device(room: str) -> None:
    """Else it lies on the CPU, and a step on a GPU fails or waits."""
    nameless = []
    for path in sorted((SOURCE / room).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in {f"torch.{name}" for name in NEW_TENSORS}
                and not any(word.arg == "device" for word in node.keywords)
            ):
                nameless.append(f"{path.name}, line {node.lineno}: {ast.unparse(node)}")
    assert nameless == []
