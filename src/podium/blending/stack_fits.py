"""Fits a stack (stack.py) to held-out predictions, with the loss that the models were trained with.

Both kinds start from the mean of the runs: few images, or features without meaning, leave them close to it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from podium.blending.own_stack import fit_own_stack
from podium.blending.stack import SHRINKAGE, TREE_KEYS, Stack, Tree
from podium.blending.stack_inputs import Inputs, Probs, TableRows, inputs_of
from podium.blending.strategy_names import BOOSTED, BY_CLASS, BY_RUN, STACKS
from podium.options.extensions.extend import OWN_STACKS
from podium.tasks.task import Targets

# Of a weight's square, where the loss is the sum over the images. The last one is right for many weights; for few, one
# is chosen on a third of the images.
PENALTIES, MANY_WEIGHTS = (1.0, 5.0, 30.0), 500
ITERATIONS = 200
RUN_PENALTY, MOST_IMAGES = 5.0, 4_000  # of weights per run
TREES, DEPTH, LEAF_IMAGES = 30, 3, 20
TREE_SHARE, TREE_IMAGES = 0.5, 10_000  # of the images: how many a tree's splits are chosen on, and at most how many
INPUT_SHARE = 0.5  # of the inputs: how many a split is chosen among
SEEDS, MANY_SCORES = 3, 100_000  # averaged; only one where images times classes are more
LEAST = 1e-12  # 0 has no logarithm
MOST_CLASSES, MOST_BOOSTED_CLASSES = 200, 50  # with more, a fit takes too long


def fit_linear(stack: Stack, mean: Probs, inputs: Inputs, truth: Probs) -> Stack:
    """Returns the stack whose linear correction minimises the loss and a penalty on its weights.

    `mean` is that of the runs' logits, `truth` what the probabilities (or scaled numbers) should be.
    """
    return _with_least_loss(stack, mean, inputs, truth, Corrections(inputs.shape[1], mean.shape[1]))


def fit_by_run(stack: Stack, mean: Probs, inputs: Inputs, truth: Probs) -> Stack:
    """Returns the stack with a further weight for each run, which may be negative, and a constant for each class.

    These are few numbers, which some thousand images tell.
    """
    rows = np.random.default_rng(0).permutation(len(mean))[:MOST_IMAGES]
    corrections = OwnLogits(inputs.shape[1], mean.shape[1])
    weights = corrections.weights(_minimise(stack, mean[rows], inputs[rows], truth[rows], RUN_PENALTY, corrections))
    return replace(stack, weights=tuple(map(tuple, weights.tolist())))


def fit_by_class(stack: Stack, mean: Probs, inputs: Inputs, truth: Probs) -> Stack:
    """Returns the stack with a further weight for each run and class, and a constant for each class."""
    return _with_least_loss(stack, mean, inputs, truth, OwnLogits(inputs.shape[1], mean.shape[1], by_class=True))


@dataclass(frozen=True)
class Corrections:
    """What a linear correction may be: here any weight of each input for each class, from a list of numbers."""

    inputs: int
    classes: int

    @property
    def count(self) -> int:
        return self.inputs * self.classes

    def apply(self, inputs: Inputs, numbers: Probs) -> Probs:
        return np.asarray(inputs @ numbers.reshape(self.inputs, self.classes))

    def gradient(self, inputs: Inputs, errors: Probs) -> Probs:
        """Returns the sum over the images of what each number changes, times the errors."""
        return np.asarray((inputs.T @ errors).ravel())

    def weights(self, numbers: Probs) -> Probs:
        return numbers.reshape(self.inputs, self.classes)


@dataclass(frozen=True)
class OwnLogits(Corrections):
    """A class is corrected by a constant and its own logits: those of the mean and, of several runs, of each."""

    by_class: bool = False  # whether each class has weights of its own

    @property
    def blocks(self) -> int:
        return (self.inputs - 1) // self.classes

    @property
    def count(self) -> int:
        return (self.blocks + 1) * self.classes if self.by_class else self.blocks + self.classes

    def apply(self, inputs: Inputs, numbers: Probs) -> Probs:
        by_block, constants = numbers[: -self.classes].reshape(self.blocks, -1), numbers[-self.classes :]
        return np.asarray((self._blocks_of(inputs) * by_block).sum(1) + constants)

    def gradient(self, inputs: Inputs, errors: Probs) -> Probs:
        of_blocks = np.einsum("nbc,nc->bc" if self.by_class else "nbc,nc->b", self._blocks_of(inputs), errors)
        return np.concatenate([of_blocks.ravel(), errors.sum(0)])

    def weights(self, numbers: Probs) -> Probs:
        weights, own = np.zeros((self.inputs, self.classes)), np.arange(self.classes)
        for block, row in enumerate(numbers[: -self.classes].reshape(self.blocks, -1)):
            weights[block * self.classes + own, own] = row
        weights[-1] = numbers[-self.classes :]
        return weights

    def _blocks_of(self, inputs: Inputs) -> Inputs:
        return inputs[:, :-1].reshape(len(inputs), self.blocks, self.classes)


def _with_least_loss(stack: Stack, mean: Probs, inputs: Inputs, truth: Probs, corrections: Corrections) -> Stack:
    penalty = PENALTIES[-1]
    if corrections.count <= MANY_WEIGHTS:
        scored = np.random.default_rng(0).permutation(len(mean)) % 3 == 0

        def loss_with(penalty: float) -> float:
            numbers = _minimise(stack, mean[~scored], inputs[~scored], truth[~scored], penalty, corrections)
            return _loss(stack, mean[scored] + corrections.apply(inputs[scored], numbers), truth[scored])

        penalty = min(PENALTIES, key=loss_with)
    weights = corrections.weights(_minimise(stack, mean, inputs, truth, penalty, corrections))
    return replace(stack, weights=tuple(map(tuple, weights.tolist())))


def _minimise(
    stack: Stack, mean: Probs, inputs: Inputs, truth: Probs, penalty: float, corrections: Corrections
) -> Probs:
    """Returns the numbers of the correction."""
    from scipy.optimize import minimize

    def penalised(numbers: Probs) -> tuple[float, Probs]:
        scores = mean + corrections.apply(inputs, numbers)
        loss = _loss(stack, scores, truth) + penalty / 2 * float(numbers @ numbers)
        return loss, penalty * numbers - corrections.gradient(inputs, _errors(stack, scores, truth))

    start, options = np.zeros(corrections.count), {"maxiter": ITERATIONS}
    return np.asarray(minimize(penalised, start, jac=True, method="L-BFGS-B", options=options).x)


def fit_boosting(stack: Stack, mean: Probs, inputs: Inputs, truth: Probs) -> Stack:
    """Returns the stack whose correction is a sum of small trees, averaged over seeds.

    Each tree is fitted to what those before it leave, on a part of the images, and looks at a part of the inputs in
    each split; its leaves hold a Newton step for every class.
    """
    from sklearn.tree import DecisionTreeRegressor

    single, trees = inputs.astype(np.float32), []
    seeds = SEEDS if mean.size <= MANY_SCORES else 1
    for seed in range(seeds):
        scores, rng = mean, np.random.default_rng(seed)
        for number in range(TREES):
            errors = _errors(stack, scores, truth)
            sample = rng.permutation(len(inputs))[: min(TREE_IMAGES, max(1, round(TREE_SHARE * len(inputs))))]
            model = DecisionTreeRegressor(
                max_depth=DEPTH,
                min_samples_leaf=LEAF_IMAGES,
                max_features=INPUT_SHARE,
                random_state=TREES * seed + number,
            )
            model.fit(single[sample], errors[sample])
            leaves, nodes = model.apply(single), model.tree_
            steps, curvature = (np.zeros((nodes.node_count, errors.shape[1])) for _ in range(2))
            np.add.at(steps, leaves, errors)
            np.add.at(curvature, leaves, _curvature(stack, scores, truth))
            steps /= curvature + 1
            scores = scores + SHRINKAGE * steps[leaves]
            columns = (nodes.feature, nodes.threshold, nodes.children_left, nodes.children_right)
            arrays = [tuple(column.tolist()) for column in columns]
            values = tuple(map(tuple, (steps / seeds).tolist()))
            trees.append(Tree(**dict(zip(TREE_KEYS, [*arrays, values], strict=True))))
    return replace(stack, trees=tuple(trees))


FIT: dict[str, Callable[[Stack, Probs, Inputs, Probs], Stack]] = dict(
    zip(STACKS, (fit_linear, fit_by_run, fit_by_class, fit_boosting), strict=True)
)


def fit_stack(strategy: str, probs: Probs, targets: Targets, rows: TableRows | None) -> Stack:
    """Returns the stack of this kind; `probs` are those of all runs, `rows` what the tables say of the images."""
    stack = Stack(targets.task.name, columns=targets.columns)
    if targets.task.are_labels:
        truth = targets.truth(probs.shape[2]).astype(np.float64)
    else:
        deviation = np.nanstd(targets.values, 0)
        scale = np.where(deviation > 0, deviation, 1.0)
        stack = replace(stack, center=tuple(np.nanmean(targets.values, 0).tolist()), scale=tuple(scale.tolist()))
        truth = stack.logits(targets.values)
    logits = stack.logits(probs)
    if strategy in OWN_STACKS:
        return fit_own_stack(stack, strategy, probs, targets.values, rows)
    has_rows = strategy not in (BY_RUN, BY_CLASS)
    rows = rows if has_rows else None
    has_further = strategy == BOOSTED and rows is not None
    inputs = inputs_of(logits, rows, has_further)
    stack = replace(stack, input_count=inputs.shape[1], has_rows=has_rows, has_further=has_further)
    return FIT[strategy](stack, logits.mean(0), inputs, truth)


def _loss(stack: Stack, scores: Probs, truth: Probs) -> float:
    """Returns the sum over all images."""
    if stack.scale:
        return float((_errors(stack, scores, truth) ** 2).sum() / 2)
    probs = stack.probs(scores).clip(LEAST, 1 - LEAST)
    likelihood = truth * np.log(probs)
    if not stack.parts(probs.shape[1]):
        likelihood += (1 - truth) * np.log(1 - probs)
    return -float(likelihood.sum())


def _errors(stack: Stack, scores: Probs, truth: Probs) -> Probs:
    """Returns the truth minus the prediction, which is the loss's negative gradient; 0 where the truth is unknown."""
    if stack.scale:
        return np.nan_to_num(truth - scores)
    return truth - stack.probs(scores)


def _curvature(stack: Stack, scores: Probs, truth: Probs) -> Probs:
    """Returns the second derivatives of the loss by each score."""
    if stack.scale:
        return np.isfinite(truth).astype(np.float64)
    probs = stack.probs(scores)
    return probs * (1 - probs)
