"""Fits a stack (stack.py) to held-out predictions, with the loss that the models were trained with.

Both kinds start from the mean of the runs: few images, or features without meaning, leave them close to it.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from podium.blending.stack import SHRINKAGE, TREE_KEYS, Inputs, Probs, Stack, Tree, inputs_of
from podium.blending.strategy_names import STACKS
from podium.tasks.task import Targets

# Of a weight's square, where the loss is the sum over the images. The last one is right for many weights; for few, one
# is chosen on a third of the images.
PENALTIES, MANY_WEIGHTS = (1.0, 5.0, 30.0), 500
ITERATIONS = 200
TREES, DEPTH, LEAF_IMAGES = 60, 3, 20
TREE_SHARE, TREE_IMAGES = 0.5, 10_000  # of the images: how many a tree's splits are chosen on, and at most how many
LEAST = 1e-12  # 0 has no logarithm
MOST_CLASSES, MOST_BOOSTED_CLASSES = 200, 50  # with more, a fit takes too long


def fit_linear(stack: Stack, mean: Probs, inputs: Inputs, truth: Probs) -> Stack:
    """Returns the stack whose linear correction minimises the loss and a penalty on its weights.

    `mean` is that of the runs' logits, `truth` what the probabilities (or scaled numbers) should be.
    """
    penalty = PENALTIES[-1]
    if inputs.shape[1] * mean.shape[1] <= MANY_WEIGHTS:
        scored = np.random.default_rng(0).permutation(len(mean)) % 3 == 0

        def loss_with(penalty: float) -> float:
            weights = _minimise(stack, mean[~scored], inputs[~scored], truth[~scored], penalty)
            return _loss(stack, mean[scored] + inputs[scored] @ weights, truth[scored])

        penalty = min(PENALTIES, key=loss_with)
    weights = _minimise(stack, mean, inputs, truth, penalty)
    return replace(stack, weights=tuple(map(tuple, weights.tolist())))


def _minimise(stack: Stack, mean: Probs, inputs: Inputs, truth: Probs, penalty: float) -> Probs:
    """Returns the weights of the inputs, for each class."""
    from scipy.optimize import minimize

    shape = inputs.shape[1], mean.shape[1]

    def penalised(flat: Probs) -> tuple[float, Probs]:
        weights = flat.reshape(shape)
        scores = mean + inputs @ weights
        loss = _loss(stack, scores, truth) + penalty / 2 * float(flat @ flat)
        return loss, (penalty * weights - inputs.T @ _errors(stack, scores, truth)).ravel()

    start, options = np.zeros(shape[0] * shape[1]), {"maxiter": ITERATIONS}
    return np.asarray(minimize(penalised, start, jac=True, method="L-BFGS-B", options=options).x.reshape(shape))


def fit_boosting(stack: Stack, mean: Probs, inputs: Inputs, truth: Probs) -> Stack:
    """Returns the stack whose correction is a sum of small trees.

    Each is fitted to what the sum of those before it leaves; its leaves hold a Newton step for every class.
    """
    from sklearn.tree import DecisionTreeRegressor

    scores, single, rng, trees = mean, inputs.astype(np.float32), np.random.default_rng(0), []
    for number in range(TREES):
        errors = _errors(stack, scores, truth)
        sample = rng.permutation(len(inputs))[: min(TREE_IMAGES, max(1, round(TREE_SHARE * len(inputs))))]
        model = DecisionTreeRegressor(max_depth=DEPTH, min_samples_leaf=LEAF_IMAGES, random_state=number)
        model.fit(single[sample], errors[sample])
        leaves, nodes = model.apply(single), model.tree_
        steps, curvature = (np.zeros((nodes.node_count, errors.shape[1])) for _ in range(2))
        np.add.at(steps, leaves, errors)
        np.add.at(curvature, leaves, _curvature(stack, scores, truth))
        steps /= curvature + 1
        columns = (nodes.feature, nodes.threshold, nodes.children_left, nodes.children_right)
        arrays = [tuple(column.tolist()) for column in columns]
        trees.append(Tree(**dict(zip(TREE_KEYS, [*arrays, tuple(map(tuple, steps.tolist()))], strict=True))))
        scores = scores + SHRINKAGE * trees[-1].apply(inputs)
    return replace(stack, trees=tuple(trees))


FIT: dict[str, Callable[[Stack, Probs, Inputs, Probs], Stack]] = dict(
    zip(STACKS, (fit_linear, fit_boosting), strict=True)
)


def fit_stack(strategy: str, probs: Probs, targets: Targets, features: Inputs | None) -> Stack:
    """Returns the stack of this kind; `probs` are those of all runs."""
    stack = Stack(targets.task.name, columns=targets.columns)
    if targets.task.are_labels:
        truth = targets.truth(probs.shape[2]).astype(np.float64)
    else:
        deviation = np.nanstd(targets.values, 0)
        scale = np.where(deviation > 0, deviation, 1.0)
        stack = replace(stack, center=tuple(np.nanmean(targets.values, 0).tolist()), scale=tuple(scale.tolist()))
        truth = stack.logits(targets.values)
    logits = stack.logits(probs)
    inputs = inputs_of(logits, features)
    return FIT[strategy](replace(stack, input_count=inputs.shape[1]), logits.mean(0), inputs, truth)


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
