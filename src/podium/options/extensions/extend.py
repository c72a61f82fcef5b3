"""Your own heads, poolings, losses, augmentations, views, metrics and other parts: decorators.

    extend = "mine.py"           in podium.toml, or in the competition's card

docs/extend.md has an example of each. Models need only timm's own `register_model`. extension_files.py loads the files,
and notebook_parts.py what cells of a notebook define.
"""

import contextlib
import inspect
import math
import reprlib
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass
from functools import partial, wraps
from numbers import Real
from typing import Any

from podium.basics.errors import PodiumError
from podium.options.extensions.notebook_parts import NOTEBOOK
from podium.options.knob import ALWAYS_RECORDED, OF_THE_ROW, Knob
from podium.options.knob import knob as knob
from podium.options.moves import MOVES
from podium.options.moves.losses import LOSSES
from podium.options.moves.move import Cost as Cost
from podium.options.moves.move import Move as Move
from podium.options.moves.optimizing import SCHEDULES
from podium.options.recipe import KNOBS, NEUTRAL, Recipe, add_options, remove_options
from podium.options.recipe_options import AUGMENTATIONS, HEADS, OPTIMIZERS, POOLS, VIEWS, View
from podium.tasks.metrics import METRICS, WANTS, Metric
from podium.tasks.task import ONE_LABEL, TASKS, Targets

Function = Callable[..., Any]

READERS: dict[str, Function] = {}
SPLITTERS: dict[str, Function] = {}
OWN_DECISIONS: dict[str, Function] = {}
OWN_STACKS: dict[str, Function] = {}
CELLS: dict[str, Any] = {}  # parts that a notebook has defined, by name; a later one of this name replaces it
when_a_cell_adds: list[Callable[[], None]] = []  # extension_files.py loads it as it loads a file
FLAG_VALUES = ("none", "auto")  # that no part can be called
_undo: list[Callable[[], object]] = []  # of what is registered, so that another project's parts can replace it


# --- decorators --------------------------------------------------------------------------------------


def metric(
    function: Function | None = None,
    *,
    wants: str = "labels",
    better: str = "higher",
    tasks: Sequence[str] = (ONE_LABEL.name,),
) -> Function:
    """Registers a metric: (targets, probs) -> score, of arrays (task.py); `tasks` are those that it is defined for."""
    if function is None:
        return partial(metric, wants=wants, better=better, tasks=tasks)
    tasks = (tasks,) if isinstance(tasks, str) else tuple(tasks)
    choices = [(wants, WANTS), (better, ("higher", "lower")), *((task, tuple(TASKS)) for task in tasks)]
    for value, allowed in choices:
        if value not in allowed:
            raise PodiumError(f"a metric takes {' or '.join(allowed)}, not '{value}'; correct its decorator")

    def score(targets: Targets, probs: Any) -> float:
        return call_metric(function, targets.values.copy(), probs.copy())  # it may change its arguments

    sign = 1 if better == "higher" else -1
    built = Metric(wants, sign, score, -math.inf, math.inf, frozenset(tasks))
    return _register("metric", METRICS, function, lambda: built)


def register_metric_of_file(name: str, built: Metric) -> None:
    """Registers a metric that a card names by file and function; a later one of this name replaces it."""
    if name not in METRICS:
        _undo.append(partial(METRICS.pop, name))
    METRICS[name] = lambda: built


def call_metric(function: Function, *arguments: Any) -> float:
    """Returns the score, not a number where it is infinite; explains the errors of the function."""
    with contextlib.redirect_stdout(sys.stderr):  # what it prints is no result of a command
        value = _call(function, "metric", *arguments)
    if not isinstance(value, Real):
        raise _wrong(function, "metric", f"returned {reprlib.repr(value)}, not a number")
    return float(value) if math.isfinite(value) else math.nan


def loss(function: Function) -> Function:
    """Registers a loss: (logits, targets), both [images, classes] -> a loss per image. Targets are probabilities."""

    @wraps(function)
    def checked(logits: Any, targets: Any) -> Any:
        losses = _call(function, "loss", logits, targets)
        if getattr(losses, "shape", None) != logits.shape[:1] or not hasattr(losses, "requires_grad"):
            raise _wrong(function, "loss", f"returned {_describe(losses)}, not a tensor with one number for each image")
        if logits.requires_grad and not losses.requires_grad:
            raise _wrong(function, "loss", "returned a tensor without a gradient")
        return losses

    return _register("loss", LOSSES, function, checked)


def head(function: Function) -> Function:
    """Registers a head: a function, or a class, (features: int, outputs: int) -> nn.Module, in the classifier's place.

    The module gets features [images, features] and returns a number for each output.
    """
    return _register("head", HEADS, function, _tried(function, "head"))


def pooling(function: Function) -> Function:
    """Registers a pooling: a function, or a class, (features: int) -> nn.Module, for the last map or the last tokens.

    The module gets features [images, places, features], of any number of places, and returns [images, features].
    """
    return _register("pooling", POOLS, function, _tried(function, "pooling", (9,)))


def optimizer(function: Function) -> Function:
    """Registers an optimizer: groups of parameters -> an optimizer of torch, whose step needs no closure.

    The groups are those of torch, with `lr` and `weight_decay`; each step sets their `lr` anew.
    """

    @wraps(function)
    def checked(groups: Any) -> Any:
        import torch

        made = _call(function, "optimizer", groups)
        if not isinstance(made, torch.optim.Optimizer):
            raise _wrong(function, "optimizer", f"returned {_describe(made)}, not an optimizer of torch.optim")
        return made

    return _register("optimizer", OPTIMIZERS, function, checked)


def schedule(function: Function) -> Function:
    """Registers a schedule: share of the steps after the warm-up that are done -> factor of the learning rate."""

    @wraps(function)
    def checked(done: float) -> float:
        factor = _call(function, "schedule", done)
        if not isinstance(factor, Real) or not math.isfinite(factor) or factor < 0:
            raise _wrong(function, "schedule", f"returned {reprlib.repr(factor)}, not a number from 0 on")
        return float(factor)

    return _register("schedule", SCHEDULES, function, checked)


def augmentation(function: Function) -> Function:
    """Registers an augmentation of training images: (uint8 image [height, width, 3], rng) -> image of this shape.

    All random numbers must come from `rng`, a numpy Generator of its own for each epoch and image.
    """

    @wraps(function)
    def checked(image: Any, rng: Any) -> Any:
        changed = _call(function, "augmentation", image, rng)
        if getattr(changed, "shape", None) != image.shape or changed.dtype != image.dtype:
            raise _wrong(function, "augmentation", f"returned {_describe(changed)}, not {_describe(image)}")
        return changed

    return _register("augmentation", AUGMENTATIONS, function, checked)


def view(function: Function | None = None, *, further: int = 1) -> Function:
    """Registers a view for prediction: images [n, 3, height, width] -> a list of `further` tensors of this shape."""
    if function is None:
        return partial(view, further=further)

    @wraps(function)
    def checked(images: Any) -> Any:
        views = _call(function, "view", images)
        if not isinstance(views, list) or [getattr(item, "shape", None) for item in views] != [images.shape] * further:
            expected = f"a list of {further}, each {_describe(images)}"
            raise _wrong(function, "view", f"did not return {expected}")
        return views

    return _register("view", VIEWS, function, View(1 + further, checked))


def splitter(function: Function) -> Function:
    """Registers a splitter for `podium folds --strategy`: (images, k, seed) -> the fold of each image, or -1.

    `images` is a data frame of id, target, group and the columns of the training table, all text.
    """
    return _register("splitter", SPLITTERS, function, wraps(function)(partial(_call, function, "splitter")))


def reader(function: Function) -> Function:
    """Registers a reader of a layout: (folder: Path) -> None if it is another layout, else (train, test).

    `train` is a data frame with the columns id, target, image and perhaps group; `test` has id and image, or is None.
    """
    return _register("reader", READERS, function, wraps(function)(partial(_call, function, "reader")))


def decision(function: Function) -> Function:
    """Registers a decision for `podium submit --decision`: (ids, probabilities, table) -> answers.

    `probabilities` is a data frame with a row for each id and a column for each class, `table` one of text with the
    columns that the training table and the test table share. The answers are of the same form as the probabilities; of
    one label an image, they may be the names of classes.
    """

    @wraps(function)
    def called(*arguments: Any) -> Any:
        with contextlib.redirect_stdout(sys.stderr):  # what it prints is no result of a command
            return _call(function, "decision", *arguments)

    return _register("decision", OWN_DECISIONS, function, called)


def stack(function: Function) -> Function:
    """Registers a stack for `podium submit --blend`: (inputs, truth) -> a function from inputs to predictions.

    `inputs` is a data frame of the runs' logits and of what the tables say of the images; `truth` has the numbers of
    the classes, or a row of 0 and 1, or of numbers, for each image. The predictions are a row for each image, a column
    for each class: what `model.fit(inputs, truth).predict_proba` of scikit-learn returns.
    """

    @wraps(function)
    def called(*arguments: Any) -> Any:
        with contextlib.redirect_stdout(sys.stderr):
            return _call(function, "stack", *arguments)

    return _register("stack", OWN_STACKS, function, called)


def move(cls: type[Move]) -> type[Move]:
    """Registers a move: a class whose fields are options of training, declared with `knob`. See moves/move.py.

    Its options are flags of `podium train`, keys of the card's [recipe] and words of Python like all others.
    """
    if not issubclass(cls, Move):
        raise PodiumError(f"the move {cls.__name__} must be a class that extends extend.Move; correct it")
    declared: dict[str, Any] = {
        name: vars(cls).get(name)
        for name, kind in inspect.get_annotations(cls).items()
        if not str(kind).removeprefix("typing.").startswith("ClassVar")
    }
    if not declared or not all(isinstance(own, Field) and "knob" in own.metadata for own in declared.values()):
        raise PodiumError(f"the fields of the move {cls.__name__} must be options, extend.knob(...); correct it")
    for name, field in declared.items():
        _check_option(name, field.metadata["knob"])
    if _is_of_notebook(cls):
        return cls
    own = dataclass(frozen=True)(cls)
    add_options(own)
    _undo.append(partial(remove_options, own))
    MOVES.append(own)
    _undo.append(partial(MOVES.remove, own))
    return own


def _check_option(name: str, own: Knob) -> None:
    """Refuses an option that recipes could not have."""
    if own.default is OF_THE_ROW or own.off is ALWAYS_RECORDED:
        raise PodiumError(f"the option {name} needs a default, and what it is where it is off; correct it")
    if name not in KNOBS and hasattr(Recipe, name):
        raise PodiumError(f"the option {name} has the name of a part of the recipe; give it another one")
    if unknown := [other for other in own.against if other not in NEUTRAL]:
        raise PodiumError(f"the option {name} is against {unknown[0]}, which cannot be switched off; leave that out")


# --- registering -------------------------------------------------------------------------------------


def _register(kind: str, table: dict[str, Any], function: Function, value: Any) -> Function:
    name = function.__name__
    if _is_of_notebook(function):
        return function
    if name in table or name in FLAG_VALUES:
        a = "an" if kind[0] in "aeiou" else "a"
        raise PodiumError(f"there is {a} {kind} '{name}' already; give yours another name")
    table[name] = value
    _undo.append(partial(table.pop, name))
    return function


def _is_of_notebook(part: Any) -> bool:
    """Returns whether a cell defines the part, and has it loaded; another part of its name is forgotten."""
    if part.__module__ != NOTEBOOK:
        return False
    before = CELLS.get(part.__name__)
    CELLS[part.__name__] = part
    try:
        for load in when_a_cell_adds:
            load()
    except PodiumError:
        del CELLS[part.__name__]
        if before is not None:
            CELLS[part.__name__] = before
        raise
    return True


def withdraw_all() -> None:
    """Removes everything that decorators have registered."""
    while _undo:
        _undo.pop()()


def file_of(function: Function) -> str:
    return inspect.getfile(inspect.unwrap(function))


# --- calling -----------------------------------------------------------------------------------------


def _call(function: Function, kind: str, *arguments: Any) -> Any:
    """Calls a function of an extension; explains its errors, except those of the hardware."""
    try:
        return function(*arguments)
    except (PodiumError, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit() would end the command as if all was done
        if isinstance(error, RuntimeError) and "memory" in str(error).lower():
            raise  # a GPU's, which models/hardware_errors.py explains
        place = place_of(error, file_of(function))
        raise PodiumError(f"{place}: the {kind} {function.__name__}: {summary_of(error)}; correct it") from error


def place_of(error: BaseException, file: str) -> str:
    """Returns the last line of this file that the error has passed: `mine.py, line 3`."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno:
        lines.append(error.lineno)
    return f"{file}, line {lines[-1]}" if lines else file


def summary_of(error: BaseException) -> str:
    """Returns the kind of an error and the first line of its message."""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message.strip()}".partition("\n")[0][:300].removesuffix(": ")


def _tried(function: Function, kind: str, places: Sequence[int] = ()) -> Function:
    """Returns a function whose module is tried: of two images' features, in so many places, it must make one row each.

    Its first argument is how many features there are, its last one how many numbers a row has.
    """

    @wraps(function, updated=())
    def make(*sizes: int) -> Any:
        import torch

        module: Any = _call(function, kind, *sizes)
        if not isinstance(module, torch.nn.Module):
            raise _wrong(function, kind, f"returned {_describe(module)}, not a module of torch.nn")
        features, expected = torch.zeros(2, *places, sizes[0]), (2, sizes[-1])
        with torch.no_grad():
            returned = _call(wraps(function, updated=())(lambda: module.eval()(features)), kind)
        if getattr(returned, "shape", None) != expected:
            made = f"makes {_describe(returned)} of features of shape {tuple(features.shape)}"
            raise _wrong(function, kind, f"{made}, not one of shape {expected}")
        return module.train()

    return make


def _wrong(function: Function, kind: str, problem: str) -> PodiumError:
    return PodiumError(f"{file_of(function)}: the {kind} {function.__name__} {problem}; correct it")


def _describe(value: Any) -> str:
    """Describes an array or a tensor, or names the kind of anything else."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__
