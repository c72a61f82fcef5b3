"""Pretrained weights of the timm models inside a model of one's own, such as a backbone with a head of one's own.

Its function hands `pretrained` on to `timm.create_model`. While Podium builds it, each model of timm that asks for its
weights is noted, and gets them from where Podium finds them. docs/extend.md has an example.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import nn

SOURCES = " + "  # between the sources of the weights of several backbones
PLACE, NEW = ", in ", "; new: "  # in the record of a run, after a source: the modules that have it, and the others

_one_model_at_a_time = threading.RLock()  # a function of timm is replaced meanwhile


class Inner(NamedTuple):
    """A model of timm that has asked for its pretrained weights."""

    model: "nn.Module"
    config: dict[str, Any]  # of its weights, as timm has it
    has_own_classes: bool  # of the weights; else its classifiers are new

    @property
    def name(self) -> str:
        architecture, tag = self.config.get("architecture") or "", self.config.get("tag") or ""
        return f"{architecture}.{tag}" if tag else str(architecture)


Load = Callable[[], None]  # timm's, with the configuration of the weights as it is by then


@contextmanager
def watch_loading(give: Callable[[Inner, Load], None] = lambda inner, load: None) -> Iterator[list[Inner]]:
    """Notes the models of timm that ask for their weights; `give` lets timm load them, else they get none."""
    from timm.models import _builder

    noted: list[Inner] = []
    load = _builder.load_pretrained

    def note(model: "nn.Module", pretrained_cfg: Any = None, num_classes: int = 1000, **options: Any) -> None:
        config = pretrained_cfg or {}
        inner = Inner(model, config, num_classes == config.get("num_classes"))
        noted.append(inner)
        give(inner, lambda: load(model, pretrained_cfg=config, num_classes=num_classes, **options))

    # timm builds a model and loads its weights in one call, and a file may have imported that by any name.
    with _one_model_at_a_time:
        _builder.load_pretrained = note
        try:
            yield noted
        finally:
            _builder.load_pretrained = load


def describe_parts(model: "nn.Module", inners: Iterable[Inner], sources: Iterable[str]) -> str:
    """Returns what a run records: the source of each backbone with the modules that have it, and what is new."""
    sources, pretrained = list(sources), [_pretrained_parameters(inner) for inner in inners]
    parts = [
        f"{source}{PLACE}{', '.join(_modules_with(model, own))}"
        for source, own in zip(sources, pretrained, strict=True)
    ]
    new = {id(parameter) for parameter in model.parameters()}.difference(*pretrained)
    return SOURCES.join(parts) + (NEW + ", ".join(_modules_with(model, new)) if new else "")


def recorded_sources(recorded: str, count: int) -> list[str]:
    """Returns the source of each backbone as `describe_parts` has recorded it; none where it has not."""
    sources = [part.partition(PLACE)[0] for part in recorded.partition(NEW)[0].split(SOURCES)]
    return sources if len(sources) == count else [""] * count


def _pretrained_parameters(inner: Inner) -> set[int]:
    classifiers = inner.config.get("classifier") or ()
    classifiers = (classifiers,) if isinstance(classifiers, str) else tuple(classifiers)
    return {
        id(parameter)
        for name, parameter in inner.model.named_parameters()
        if inner.has_own_classes or name.rpartition(".")[0] not in classifiers
    }


def _modules_with(module: "nn.Module", wanted: set[int], name: str = "") -> list[str]:
    """Returns the largest modules, or single parameters, all of whose parameters are wanted."""
    own = {id(parameter) for parameter in module.parameters()}
    if not own & wanted:
        return []
    if own <= wanted:
        return [name or "all of it"]
    prefix = f"{name}." if name else ""
    single = [f"{prefix}{key}" for key, value in module.named_parameters(recurse=False) if id(value) in wanted]
    return [
        *single,
        *(found for key, child in module.named_children() for found in _modules_with(child, wanted, prefix + key)),
    ]
