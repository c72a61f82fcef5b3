"""Knows every model of timm, the zoo and the project: image size, costs, pretrained weights and their licence.

catalogue.csv holds this for one version of timm, because to import timm and torch takes three seconds or more, and to
count the costs of all models takes minutes. benchmarks/catalogue.py writes it. timm is asked only about what the file
lacks: models of the project, and all models if another version of timm is installed.
"""

import csv
import importlib.metadata
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from podium.models.build import licence_in_timm, size_of_weights
from podium.models.hub import backbones_in, registered_names
from podium.models.inner_weights import SOURCES
from podium.models.look_inside import inner_backbones
from podium.models.registry import register_zoo, zoo_names
from podium.options.extensions.extension_files import extension_models

TABLE = Path(__file__).parent / "catalogue.csv"
SECONDS_FOR_COUNTING = 2.0  # models whose costs nobody has counted; most take 0.1 to 0.5 s


@dataclass(frozen=True)
class Weights:
    """A model with one set of its pretrained weights; or without any, if it has none."""

    name: str  # with the tag of the weights, if there are any
    licence: str  # as timm knows it; "" without weights
    image_size: int  # that the weights were made for, in pixels
    parameters: int | None  # with a head for 1,000 classes; None: not counted
    multiply_adds: int | None  # of one image of that size, forwards
    source: str  # the repository on the hub, or the address of a file, if it is not timm/NAME

    @property
    def model(self) -> str:
        return self.name.partition(".")[0]

    @property
    def tag(self) -> str:
        return self.name.partition(".")[2]

    @property
    def repository(self) -> str:
        return self.source or f"timm/{self.name}"


Catalogue = dict[str, list[Weights]]  # by model; the first weights are those that its plain name means


def read_catalogue() -> Catalogue:
    """Returns all models that `--model` takes. Load the project's extensions first: their models are among them."""
    models = registered_names() | extension_models()
    in_table = _read_table()
    if table_fits():
        known = {name: weights for name, weights in in_table.items() if name in models}
        return known | _by_model(describe(models - known.keys()))
    return _by_model(_with_costs_of(in_table.get(weights.model, ()), weights) for weights in describe(models))


def table_fits() -> bool:
    """Returns whether the table describes the version of timm that is installed. Kernels at Kaggle have no table."""
    if not TABLE.exists():
        return False
    with TABLE.open(encoding="utf-8") as file:
        return file.readline().split()[-1] == importlib.metadata.version("timm")


def licence_of(name: str) -> str | None:
    """Returns the licence of the pretrained weights as timm knows it; None if there are no weights."""
    if len(names := backbones_in(name)) > 1 or (names := list(inner_backbones(name))):
        return SOURCES.join(dict.fromkeys(licence_of(part) or "unknown" for part in names))
    of_model = _read_table().get(name.partition(".")[0], []) if table_fits() else []
    for weights in of_model:
        if weights.name == name or "." not in name:  # the first are those of the plain name
            return weights.licence or None
    return licence_in_timm(name)


def origin_of(model: str) -> str:
    """Returns who registers a model: timm, podium or this project."""
    return "podium" if model in zoo_names() else "timm" if model in registered_names() else "project"


def count_missing_costs(rows: Iterable[Weights]) -> list[Weights]:
    """Counts the costs that nobody has counted; stops when that takes long, for whoever waits for a list."""
    deadline = time.monotonic() + SECONDS_FOR_COUNTING
    counted = []
    for weights in rows:
        if weights.parameters is None and time.monotonic() < deadline:
            weights = _counted(weights)
        counted.append(weights)
    return counted


# --- timm --------------------------------------------------------------------------------------------


def describe(models: Iterable[str]) -> Iterator[Weights]:
    """Yields what timm knows of these models, in alphabetical order, without their costs."""
    models = sorted(models)
    if not models:
        return
    from timm.models import get_arch_pretrained_cfgs

    register_zoo()
    for model in models:
        configs = get_arch_pretrained_cfgs(model)
        pretrained = {name: config for name, config in configs.items() if config.has_weights}
        for name, config in pretrained.items():
            licence, source = str(config.license or "unknown"), _source(name, config)
            yield Weights(name, licence, config.input_size[-1], None, None, source)
        if not pretrained and (inner := inner_backbones(model)):  # a model of the project around one of timm
            licence = licence_of(model) or "unknown"
            yield Weights(model, licence, size_of_weights(inner[0]), None, None, f"timm/{inner[0]}")
        elif not pretrained:
            size = next((config.input_size[-1] for config in configs.values()), 224)
            yield Weights(model, "", size, None, None, "")


def _source(name: str, config: Any) -> str:
    repository = str(config.hf_hub_id or config.url or config.file)
    repository += name if repository.endswith("/") else ""
    return "" if repository == f"timm/{name}" else repository


def _with_costs_of(counted: Iterable[Weights], weights: Weights) -> Weights:
    """Takes the costs of the same model at the same size."""
    for other in counted:
        if other.image_size == weights.image_size:
            return replace(weights, parameters=other.parameters, multiply_adds=other.multiply_adds)
    return weights


def _counted(weights: Weights) -> Weights:
    from podium.models.costs import count_costs

    try:
        costs = count_costs(weights.name)
    except Exception:  # a model of the project may fail in any way; here it is only listed
        return weights
    return replace(weights, parameters=costs.parameters, multiply_adds=costs.multiply_adds)


# --- the table ---------------------------------------------------------------------------------------


def _read_table() -> Catalogue:
    with TABLE.open(encoding="utf-8", newline="") as file:
        file.readline()  # the version of timm
        return _by_model(_weights_in(row) for row in csv.DictReader(file))


def _weights_in(row: Mapping[str, str]) -> Weights:
    numbers = {name: int(row[name]) for name in ("image_size", "parameters", "multiply_adds")}
    return Weights(**{**row, **numbers})  # type: ignore[arg-type]  # checked by a test


def _by_model(rows: Iterable[Weights]) -> Catalogue:
    catalogue: Catalogue = {}
    for weights in rows:
        catalogue.setdefault(weights.model, []).append(weights)
    return catalogue
