"""A stack: a model that learns from the runs' held-out predictions, and from the card's features.

    podium submit --runs A B --blend stacked

It adds a correction to the mean of the runs' logits: a linear function of all logits and features (`stacked-linear`),
or a sum of small decision trees (`stacked-boosting`). stack_fits.py fits it. Of numbers, the logits are the numbers in
units of their deviation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.blending.stack_inputs import Inputs, Probs, TableRows, inputs_of
from podium.tasks.task import TASKS

MIN_PROB = 1e-6  # a probability of 0 has no logit
SHRINKAGE = 0.1  # how much of each tree is added
TREE_KEYS = ("feature", "threshold", "left", "right", "value")


@dataclass(frozen=True)
class Tree:
    """A decision tree as arrays, with an entry for each node; a leaf has no left node (-1)."""

    feature: tuple[int, ...]
    threshold: tuple[float, ...]  # of the feature; images at or below it go left
    left: tuple[int, ...]
    right: tuple[int, ...]
    value: tuple[tuple[float, ...], ...]  # for each class; only those of leaves count

    @cached_property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return tuple(np.array(getattr(self, key)) for key in TREE_KEYS)

    def apply(self, inputs: Inputs) -> Probs:
        feature, threshold, left, right, value = self._arrays
        single = inputs.astype(np.float32)  # in which the thresholds were chosen
        node, rows = np.zeros(len(inputs), np.int64), np.arange(len(inputs))
        while (left[node] >= 0).any():
            goes_left = single[rows, feature[node]] <= threshold[node]
            node = np.where(left[node] < 0, node, np.where(goes_left, left[node], right[node]))
        return np.asarray(value[node])


@dataclass(frozen=True)
class Stack:
    task: str  # its name
    columns: tuple[int, ...] = ()  # of several targets, the number of each class's column
    center: tuple[float, ...] = ()  # of numbers: the mean of each of them
    scale: tuple[float, ...] = ()  # and its deviation
    weights: tuple[tuple[float, ...], ...] = ()  # [inputs][classes], of a linear correction
    trees: tuple[Tree, ...] = ()  # of a boosted one
    input_count: int = 0  # columns of the inputs
    has_rows: bool = True  # whether it learns from the tables, where they say something
    has_further: bool = False  # whether the inputs have further columns, and what is relative to groups
    # how much the score falls where a column of the tables says nothing, by column: for people
    importances: tuple[tuple[str, float], ...] = field(default=(), compare=False)

    def logits(self, probs: Probs) -> Probs:
        """Returns the logits of a run's probabilities, with mean 0 where the probabilities sum to 1."""
        if self.scale:
            return np.asarray((probs - np.array(self.center)) / np.array(self.scale))
        logs = np.log(probs.clip(MIN_PROB, 1 - MIN_PROB))
        parts = self.parts(probs.shape[-1])
        if not parts:
            return np.asarray(logs - np.log(1 - probs.clip(MIN_PROB, 1 - MIN_PROB)))
        for part in parts:
            logs[..., part] -= logs[..., part].mean(-1, keepdims=True)
        return np.asarray(logs)

    def apply(self, logits: Sequence[Probs], rows: TableRows | None) -> Probs:
        """Returns the probabilities, or numbers; `logits` are those of each run."""
        mean, inputs = np.mean(logits, axis=0), inputs_of(logits, rows if self.has_rows else None, self.has_further)
        if inputs.shape[1] != self.input_count:
            raise PodiumError(
                f"the stack was fitted to {self.input_count} columns of logits and features, and there are"
                f" {inputs.shape[1]}; restore the runs, or the features in the card"
            )
        return self.of_inputs(mean, inputs)

    def of_inputs(self, mean: Probs, inputs: Inputs) -> Probs:
        return self.probs(mean + self.correction(inputs))

    def correction(self, inputs: Inputs) -> Probs:
        if self.weights:
            return np.asarray(inputs @ np.array(self.weights))
        return sum((SHRINKAGE * tree.apply(inputs) for tree in self.trees), np.zeros((1, 1)))

    def probs(self, scores: Probs) -> Probs:
        """Returns the probabilities of logits, or the numbers."""
        if self.scale:
            return np.asarray(scores * np.array(self.scale) + np.array(self.center))
        parts = self.parts(scores.shape[1])
        if not parts:
            return np.asarray(1 / (1 + np.exp(-scores)))
        powers = np.empty_like(scores)
        for part in parts:
            powers[:, part] = np.exp(scores[:, part] - scores[:, part].max(1, keepdims=True))
            powers[:, part] /= powers[:, part].sum(1, keepdims=True)
        return powers

    def parts(self, count: int) -> list[slice]:
        """Returns the parts of so many classes in which the probabilities sum to 1."""
        return TASKS[self.task].parts(count, self.columns)

    def fits(self, classes: int) -> bool:
        """Returns whether it corrects as many logits as there are classes, and knows each one's column or deviation."""
        rows = [*self.weights, *(row for tree in self.trees for row in tree.value)]
        of_classes = [numbers for numbers in (self.columns, self.center, self.scale) if numbers]
        return {classes} == {*map(len, rows), *map(len, of_classes)}

    def describe(self) -> str:
        return f"{len(self.trees)} trees" if self.trees else "a linear model"

    def describe_importances(self) -> str:
        """Returns what the stack learns from and how much each is worth, the most important first; "" if unknown."""
        ordered = sorted(self.importances, key=lambda pair: -pair[1])
        return ", ".join(f"{source} {worth:z.4f}" for source, worth in ordered)

    def as_json(self) -> dict[str, Any]:
        trees = [{key: getattr(tree, key) for key in TREE_KEYS} for tree in self.trees]
        names = ("task", "columns", "center", "scale", "weights", "input_count")
        return {name: getattr(self, name) for name in names} | {"trees": trees, **self._further_json()}

    def _further_json(self) -> dict[str, Any]:
        if not self.has_rows:
            return {"has_rows": False}
        return {"has_further": True, "importances": dict(self.importances)} if self.has_further else {}


def stack_from_json(content: Mapping[str, Any]) -> Stack:
    """Returns the stack of a lineage; raises an error of any kind if there is none in it."""
    trees = tuple(map(_tree_from_json, content["trees"]))
    weights = tuple(tuple(map(float, row)) for row in content["weights"])
    center, scale = (tuple(map(float, content[key])) for key in ("center", "scale"))
    columns, count = tuple(map(int, content["columns"])), int(content["input_count"])
    is_complete = len(weights) == count if weights else trees and all(max(tree.feature) < count for tree in trees)
    if content["task"] not in TASKS or not is_complete:
        raise ValueError("its stack")
    return Stack(
        content["task"],
        columns,
        center,
        scale,
        weights,
        trees,
        count,
        has_rows=bool(content.get("has_rows", True)),
        has_further=bool(content.get("has_further")),
        importances=tuple(content.get("importances", {}).items()),
    )


def _tree_from_json(content: Mapping[str, Any]) -> Tree:
    feature, left, right = (tuple(map(int, content[key])) for key in ("feature", "left", "right"))
    threshold = tuple(map(float, content["threshold"]))
    value = tuple(tuple(map(float, row)) for row in content["value"])
    children = [(n, child) for n, pair in enumerate(zip(left, right, strict=True)) if pair[0] >= 0 for child in pair]
    is_tree = all(n < child < len(value) for n, child in children)  # or the walk through it would never end
    if not is_tree or {len(left)} != {*map(len, (feature, right, threshold, value))}:
        raise ValueError("its stack")
    return Tree(feature, threshold, left, right, value)
