"""Refuses a file of weights that belongs to another model; loads a file that Podium has written.

With another number of classes, timm leaves out whatever does not fit, and says so in its log only: the model would keep
random weights, and nobody would notice.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, first_line, say

if TYPE_CHECKING:
    from torch import Tensor, nn

_one_model_at_a_time = threading.Lock()  # a function of torch is replaced meanwhile
ONLY_PRETRAINING = ("mask_token",)
COUNTERS = "num_batches_tracked"  # of batch norm; old files lack them, and nothing needs them


@contextmanager
def refuse_other_models(file: str, name: str, classifiers: Sequence[str]) -> Iterator[None]:
    """While timm builds the model and loads the file, what it loads is compared with the model first."""
    from torch import nn

    load: Any

    def check_and_load(module: "nn.Module", state_dict: "Mapping[str, Tensor]", *args: Any, **options: Any) -> Any:
        expected = _without(module.state_dict(), classifiers)
        in_file = _without(state_dict, classifiers)
        if differences := describe_differences(expected, in_file):
            raise other_model(file, name, differences)
        if extra := sorted({key.partition(".")[0] for key in in_file.keys() - expected.keys()}):
            say(f"podium: warning: {file} also holds {first_few(extra, 3)}, which {name} does not have")
        known = {key: value for key, value in state_dict.items() if key not in in_file or key in expected}
        return load(module, known, *args, **options)

    # timm builds the model, reads the file, renames its parameters and loads them in one call: there is no way between.
    with _one_model_at_a_time:
        load = nn.Module.load_state_dict
        nn.Module.load_state_dict = check_and_load  # type: ignore
        try:
            yield
        finally:
            nn.Module.load_state_dict = load  # type: ignore


def load_exactly(model: "nn.Module", tensors: "Mapping[str, Tensor]", path: Path, name: str) -> None:
    """Loads all weights of a file that Podium has written into the model that they are of."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise PodiumError(f"{path}: these weights do not fit {name}: {first_line(error)}") from None


def other_model(file: str, name: str, differences: str) -> PodiumError:
    return PodiumError(f"{file} does not hold the weights of {name}: {differences}; take another file or --model")


def describe_differences(expected: "Mapping[str, Tensor]", in_file: "Mapping[str, Tensor]") -> str:
    """Returns the first differences, or nothing. Parts that the model has none of, such as a second head, are none.

    A parameter of its own, such as a class token, is no part.
    """
    missing = [key for key in expected if key not in in_file and not key.endswith(COUNTERS)]
    parts = {key.partition(".")[0] for key in expected}
    own = {key for key in in_file if "." not in key and key not in ONLY_PRETRAINING}
    unknown = [key for key in in_file if key not in expected and (key in own or key.partition(".")[0] in parts)]
    other_shapes = [
        f"{key} is {tuple(in_file[key].shape)}, not {tuple(expected[key].shape)}"
        for key in expected
        if key in in_file and in_file[key].shape != expected[key].shape
    ]
    differences = (_first("it lacks", missing), _first("the model lacks", unknown), _first("", other_shapes))
    return "; ".join(difference for difference in differences if difference)


def _first(what: str, keys: Sequence[str]) -> str:
    return f"{what} {first_few(keys, 2)}".strip() if keys else ""


def _without(state_dict: "Mapping[str, Tensor]", parts: Sequence[str]) -> "dict[str, Tensor]":
    own = tuple(f"{part}." for part in parts)
    return {key: value for key, value in state_dict.items() if not key.startswith(own)}
