"""Stacks: they learn what the mean of the runs lacks, and nothing where there is nothing to learn."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from blending.simulated_runs import simulate_runs
from by_array import targets_of
from patients import FAST, SLUG, write_patients
from podium.basics.errors import PodiumError
from podium.blending.blend_strategies import fit_blend
from podium.blending.choose_blend import choose_blend
from podium.blending.held_out import HeldOut
from podium.blending.stack import stack_from_json
from podium.blending.stack_fits import _errors, _loss, fit_stack
from podium.blending.stack_inputs import BESIDE_GROUP, TableRows
from podium.blending.strategy_names import BOOSTED, BY_CLASS, BY_RUN, LINEAR, STACKS
from podium.tasks.metrics import METRICS, evaluate
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, Targets
from tiny import Podium, done, one_line, write_file

TASKS = (ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, NUMBERS)
Probs = NDArray[np.float64]


def rows_of(numbers: Probs, groups: NDArray[np.int64] | None = None) -> TableRows:
    sources = tuple(f"column {number}" for number in range(numbers.shape[1]))
    return TableRows(numbers, np.empty((len(numbers), 0)), groups, sources)


def make_held_out(task: Any, seed: int, count: int = 600) -> HeldOut:
    """Two runs that know half of the truth; a feature knows the other half, and a second one knows nothing."""
    rng = np.random.default_rng(seed)
    seen, told = rng.normal(size=(2, count))
    features = np.stack([told, rng.normal(size=count)], 1)
    noisy = [seen + rng.normal(0, 0.3, count) for _ in range(2)]
    parts, groups = np.arange(count) % 5, np.arange(count)
    if task is NUMBERS:
        targets: NDArray[Any] = 50 + 8 * np.stack([seen + told, seen - told], 1)
        targets[rng.random(targets.shape) < 0.1] = np.nan
        probs = np.array([50 + 8 * np.stack([run, run], 1) for run in noisy])
        return HeldOut(probs, targets_of(targets), parts, groups, features=rows_of(features))
    is_yes = [seen + told > 0, seen - told > 0]
    yes = np.array([1 / (1 + np.exp(-2 * run)) for run in noisy])
    if task is ONE_LABEL:
        probs = np.stack([1 - yes, yes], 2)
        return HeldOut(probs, targets_of(is_yes[0].astype(np.int64)), parts, groups, features=rows_of(features))
    if task is SEVERAL_LABELS:
        targets = np.stack(is_yes, 1).astype(np.float32)
        return HeldOut(np.stack([yes, yes], 2), targets_of(targets), parts, groups, features=rows_of(features))
    marks = np.stack([~is_yes[0], is_yes[0], ~is_yes[1], is_yes[1]], 1)
    truth = Targets(SEVERAL_TARGETS, marks.astype(np.int8), (1, 1, 2, 2))
    return HeldOut(np.stack([1 - yes, yes, 1 - yes, yes], 2), truth, parts, groups, features=rows_of(features))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_feature_tells_what_the_images_do_not(task: Any) -> None:
    held_out, new = make_held_out(task, 0), make_held_out(task, 1)
    better = METRICS[task.loss]().better
    scores = {}
    for strategy in ("equal", LINEAR, BOOSTED):
        blend = fit_blend(strategy, held_out.probs, held_out.targets, task.loss, held_out.features)
        scores[strategy] = better * evaluate(task.loss, new.targets, blend.apply(new.probs, new.features))
    for strategy in (LINEAR, BOOSTED):
        assert scores[strategy] > 0.7 * scores["equal"]  # losses, so both are negative


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_the_loss_has_this_gradient(task: Any) -> None:
    held_out, rng = make_held_out(task, 0, 60), np.random.default_rng(3)
    stack = fit_stack(LINEAR, held_out.probs, held_out.targets, None)
    truth = held_out.targets.values.astype(np.float64)
    if task is ONE_LABEL:
        truth = np.eye(2)[held_out.targets.values]
    elif task is not NUMBERS:
        truth = (truth > 0).astype(np.float64)
    scores, step = rng.normal(size=truth.shape), 1e-5 * rng.normal(size=truth.shape)
    change = _loss(stack, scores + step, truth) - _loss(stack, scores - step, truth)
    assert change == pytest.approx(-2 * float((_errors(stack, scores, truth) * step).sum()), rel=1e-4)


def test_a_stack_keeps_its_bits_in_json() -> None:
    for task in TASKS:
        held_out = make_held_out(task, 2, 200)
        for strategy in STACKS:
            stack = fit_stack(strategy, held_out.probs, held_out.targets, held_out.features)
            again = stack_from_json(json.loads(json.dumps(stack.as_json())))
            assert again == stack
            assert [again.fits(held_out.probs.shape[-1] + more) for more in (0, 1)] == [True, False]
            logits = [again.logits(probs) for probs in held_out.probs]
            assert np.array_equal(again.apply(logits, held_out.features), stack.apply(logits, held_out.features))
            if stack.has_rows:
                with pytest.raises(PodiumError, match="the stack was fitted to"):
                    again.apply(logits, None)


def test_trees_answer_as_those_of_scikit_learn() -> None:
    from sklearn.tree import DecisionTreeRegressor

    from podium.blending.stack import Tree

    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(300, 3)), rng.normal(size=(300, 2))
    model = DecisionTreeRegressor(max_depth=4, random_state=0).fit(inputs.astype(np.float32), targets)
    nodes = model.tree_
    values = tuple(map(tuple, nodes.value[:, :, 0].tolist()))
    arrays = (nodes.feature, nodes.threshold, nodes.children_left, nodes.children_right)
    feature, threshold, left, right = (tuple(array.tolist()) for array in arrays)
    tree = Tree(feature, threshold, left, right, values)
    assert np.array_equal(tree.apply(inputs), model.predict(inputs.astype(np.float32)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda stack: stack.update(task="none"),
        lambda stack: stack.update(trees=[]),
        lambda stack: stack.update(input_count=3),
        lambda stack: stack["trees"][0].update(left=[0] * len(stack["trees"][0]["left"])),
        lambda stack: stack["trees"][0].update(value=[]),
    ],
)
def test_a_damaged_stack_is_refused(damage: Callable[[dict[str, Any]], None]) -> None:
    held_out = make_held_out(ONE_LABEL, 0, 100)
    content = json.loads(json.dumps(fit_stack(BOOSTED, held_out.probs, held_out.targets, None).as_json()))
    damage(content)
    with pytest.raises(ValueError, match="its stack"):
        stack_from_json(content)


def test_features_without_meaning_bring_nothing() -> None:
    """Thirty of them for 300 images: what is fitted to them does not hold on other images, and the scores say so."""
    held_out, rng = simulate_runs((2.0, 2.0), 300, 0), np.random.default_rng(1)
    without = choose_blend(held_out, "log_loss", 1000, "stacked")
    choice = choose_blend(replace(held_out, features=rows_of(rng.normal(size=(300, 30)))), "log_loss", 1000, "stacked")
    assert [candidate.strategy for candidate in choice.candidates] == ["equal", "best", *STACKS]
    for plain, candidate in zip(without.candidates, choice.candidates, strict=True):
        assert 0.93 * plain.gain.score < candidate.gain.score < 1.2 * plain.gain.score
    new = simulate_runs((2.0, 2.0), 4000, 9)
    real = evaluate("log_loss", new.targets, choice.blend.apply(new.probs, rows_of(rng.normal(size=(4000, 30)))))
    low, high = choice.estimate.interval
    assert low - 0.05 < real < high + 0.05


def make_experts(seed: int, count: int = 900) -> HeldOut:
    """One run knows the first three classes, the other one the last three; both are sure of all."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(6, size=count)
    logits = rng.normal(0, 0.5, (2, count, 6))
    for run in range(2):
        knows = targets // 3 == run
        seen = np.where(knows, targets, rng.integers(3 * (1 - run), 3 * (2 - run), size=count))
        logits[run, np.arange(count), seen] += 2.5
    probs = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    return HeldOut(probs, targets_of(targets), np.arange(count) % 5, np.arange(count))


def test_weights_by_class_use_who_knows_a_class() -> None:
    choice = choose_blend(make_experts(0), "log_loss", 1000, "stacked-classes")
    scores = {candidate.strategy: candidate.gain.score for candidate in choice.candidates}
    assert scores[BY_CLASS] < 0.9 * scores["equal"]
    weights = np.array(choice.blend.stack.weights if choice.blend.stack else ())
    assert ((weights != 0).sum(0) == 4).all()  # of the mean, of both runs, and the constant
    assert (weights[6:9, :3].diagonal() > weights[12:15, :3].diagonal()).all()
    assert (weights[9:12, 3:].diagonal() < weights[15:18, 3:].diagonal()).all()


def test_a_run_that_repeats_an_error_of_the_other_gets_a_negative_weight() -> None:
    rng = np.random.default_rng(0)
    targets = np.arange(800) % 2
    error = rng.normal(0, 2, 800)
    seen = np.array([2.0 * (2 * targets - 1) + error, error + rng.normal(0, 0.3, 800)])
    yes = 1 / (1 + np.exp(-seen))
    held_out = HeldOut(np.stack([1 - yes, yes], 2), targets_of(targets), np.arange(800) // 2 % 5, np.arange(800))
    choice = choose_blend(held_out, "log_loss", 1000, "stacked-runs")
    scores = {candidate.strategy: candidate.gain.score for candidate in choice.candidates}
    assert scores[BY_RUN] < 0.5 * scores["best"]
    assert choice.blend.stack is not None
    assert choice.blend.stack.weights[4][0] + choice.blend.stack.weights[0][0] / 2 < -0.3
    assert np.array(choice.blend.stack.weights)[-1] == pytest.approx(0, abs=0.3)


def test_few_images_are_enough_for_a_strong_feature() -> None:
    rng = np.random.default_rng(0)
    targets = np.arange(60) % 2
    features = np.stack([2 * targets - 1 + rng.normal(0, 0.5, 60), rng.normal(size=60)], 1)
    held_out = HeldOut(
        np.full((1, 60, 2), 0.5), targets_of(targets), np.arange(60) % 3, np.arange(60), features=rows_of(features)
    )
    choice = choose_blend(held_out, "accuracy", 100, "stacked")
    scores = {candidate.strategy: candidate.gain.score for candidate in choice.candidates}
    assert scores[LINEAR] > 0.9


def make_patients(seed: int, count: int = 150) -> HeldOut:
    """Ten images of each patient, whom the run rates higher or lower as a whole; the odd one among them is ill."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(count), 10)
    is_ill = rng.random(len(patient)) < 0.15
    seen = 1.5 * is_ill + rng.normal(0, 0.7, len(patient)) + rng.normal(0, 2, count)[patient]
    yes = 1 / (1 + np.exp(-seen))
    rows = rows_of(rng.normal(size=(len(patient), 2)), patient)
    return HeldOut(
        np.stack([1 - yes, yes], 1)[None], targets_of(is_ill.astype(np.int64)), patient % 5, patient, features=rows
    )


def test_the_odd_one_of_a_group_is_found_by_trees_alone() -> None:
    held_out = make_patients(0)
    choice = choose_blend(held_out, "roc_auc", 1000)
    assert choice.blend.strategy == BOOSTED
    scores = {candidate.strategy: candidate.gain.score for candidate in choice.candidates}
    assert scores[BOOSTED] > scores[LINEAR] + 0.1
    new = make_patients(9, 400)
    real = evaluate("roc_auc", new.targets, choice.blend.apply(new.probs, new.features))
    low, high = choice.estimate.interval
    assert low - 0.01 < real < high + 0.01
    assert choice.blend.stack is not None
    worth = dict(choice.blend.stack.importances)
    assert list(worth) == ["column 0", "column 1", BESIDE_GROUP]
    assert worth[BESIDE_GROUP] > 0.1
    assert max(abs(worth["column 0"]), abs(worth["column 1"])) < 0.02
    assert choice.blend.stack.describe_importances().startswith(f"{BESIDE_GROUP} 0.")


def test_a_sample_has_whole_groups() -> None:
    rows, order = rows_of(np.zeros((12, 0)), np.arange(12) // 3), np.random.default_rng(0).permutation(12)
    sample = rows.whole_groups(order, 6)
    assert len(set(sample.tolist())) == 6
    assert len({*(sample // 3)}) == 2
    assert order[0] in sample
    assert rows_of(np.zeros((12, 0))).whole_groups(order, 6).tolist() == order[:6].tolist()


def test_a_class_that_a_part_lacks_stays_possible() -> None:
    held_out = simulate_runs((3.0, 2.0), 200, 4)
    targets = held_out.targets.values
    targets[targets == 7] = 0
    targets[[0, 5]] = 7  # all in the first part
    choice = choose_blend(held_out, "log_loss", 100, "stacked")
    assert np.isfinite([candidate.gain.score for candidate in choice.candidates]).all()


def test_with_many_classes_there_are_no_trees() -> None:
    choice = choose_blend(simulate_runs((3.0, 2.0), 300, 4, class_count=60), "accuracy", 100, "stacked")
    assert [candidate.strategy for candidate in choice.candidates] == ["equal", "best", *STACKS[:-1]]


def test_too_many_classes_are_refused() -> None:
    held_out = simulate_runs((3.0, 2.0), 300, 4, class_count=201)
    with pytest.raises(PodiumError, match="--blend stacked is for at most 200 classes; use convex"):
        choose_blend(held_out, "log_loss", 100, "stacked")


def test_from_features_to_a_submission_and_back(tmp_path: Path, podium: Podium) -> None:
    """Who is ill is only in the column `fever`; two images of a patient are one answer."""
    write_patients(tmp_path)
    folder, card = tmp_path / "data" / "raw" / SLUG, tmp_path / "data" / "competitions" / f"{SLUG}.toml"
    for name in ("train.csv", "test.csv"):
        rows = pd.read_csv(folder / name, dtype=str)
        is_ill = rows["patient_id"].str[1:].astype(int) % 3 == 0
        rows.assign(fever=is_ill.map({True: "high", False: "no"})).to_csv(folder / name, index=False)
    write_file(card, 'features = ["fever"]\n')
    done(podium("folds", "-c", SLUG, "--k", "3"))
    done(podium("train", *FAST, "--model", "test_resnet", "--epochs", "1", "--lr", "1e-6", "--name", "a"))
    assert "note: the features fever are for --blend stacked" in podium("submit", "-c", SLUG, "--blend", "equal")[2]
    out, err = done(podium("submit", "-c", SLUG, "--name", "plain"))
    assert "stacked-linear, better than every other strategy by more than chance: a 1.000, the features fever" in err
    plain = Path(out.strip()).read_text()
    again = podium("submit", "-c", SLUG, "--blend", "stacked-linear", "--name", "again")[1]  # as a bundle does
    assert Path(again.strip()).read_text() == plain
    out, err = done(podium("submit", "-c", SLUG, "--blend", "stacked", "--name", "stack"))
    assert "chosen with --blend: a 1.000, the features fever" in err
    written = Path(out.strip())
    submission = pd.read_csv(written)
    is_ill = submission["patient_id"].str[1:].astype(int) % 3 == 0
    assert ((submission["ill"] > 0.5) == is_ill).all()
    content, lineage = written.read_bytes(), written.with_suffix(".json")
    assert "features     fever" in podium("lineage", written)[1]
    assert "features that are in the test table" in one_line(
        podium("predict", "-c", SLUG, written, folder / "test" / "i36_0.png")
    )
    written.unlink()
    done(podium("submit", "--from", lineage))
    assert written.read_bytes() == content
    out, err = done(podium("submit", "-c", SLUG, "--blend", "stacked-boosting", "--name", "trees"))
    assert "what the stack learned from; log_loss falls by so much without it: " in err
    boosted = Path(out.strip())
    content, lineage_of_trees = boosted.read_bytes(), boosted.with_suffix(".json")
    assert "learned from fever" in podium("lineage", boosted)[1]
    boosted.unlink()
    done(podium("submit", "--from", lineage_of_trees))
    assert boosted.read_bytes() == content
    text = (folder / "test.csv").read_text()
    (folder / "test.csv").write_text(text.replace("high", "none"))
    assert "the features have changed since; restore features" in one_line(podium("submit", "--from", lineage))
    (folder / "test.csv").write_text(text)
    card.write_text("features = []\n")
    assert 'restore features = ["fever"] in ' in one_line(podium("submit", "--from", lineage))
