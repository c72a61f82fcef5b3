"""What counts as chance: four ways to be better than it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from by_array import targets_of
from podium.options.recipe import Recipe
from podium.tasks.chance import is_better_than_chance
from podium.tasks.metrics import METRICS, Metric
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, Targets
from podium.training.at_chance import advice, loss_of_guessing
from tiny import FAST, Podium, done, recipe_of

TRAIN = ("train", *FAST, "--model", "test_vit")
LABELS = np.random.default_rng(0).choice(3, 500, p=(0.7, 0.2, 0.1))
SHARES = np.tile(np.bincount(LABELS) / 500, (500, 1))


def noise(rows: int, classes: int = 3) -> np.ndarray:
    return np.random.default_rng(1).dirichlet(np.ones(classes), rows)


def test_chance_is_the_same_prediction_for_every_image() -> None:
    rng = np.random.default_rng(2)
    knowing = 0.9 * SHARES + 0.1 * np.eye(3)[LABELS]  # as accurate as chance, but with a lower log loss
    overconfident = np.eye(3)[np.where(rng.random(500) < 0.9, LABELS, 2 - LABELS)]  # a log loss worse than chance
    for probs, expected in ((SHARES, False), (noise(500), False), (knowing, True), (overconfident, True)):
        assert is_better_than_chance(targets_of(LABELS), probs, "accuracy") is expected
    assert is_better_than_chance(
        targets_of(np.zeros(5, np.int64)), noise(5), "accuracy"
    )  # one class: nothing can be compared


def test_the_order_of_the_images_is_better_than_chance() -> None:
    """A rare class whose images come first, with probabilities that are far too low, or far too high."""
    targets = (np.arange(400) < 20).astype(np.int64)
    ranks = np.where(targets, 0.9, 0.1) + np.random.default_rng(3).normal(0, 0.3, 400)
    for lowest in (0.0, 0.9):
        second = np.interp(ranks, (ranks.min(), ranks.max()), (lowest, lowest + 0.001))
        assert is_better_than_chance(targets_of(targets), np.stack([1 - second, second], 1), "accuracy")
        assert is_better_than_chance(
            targets_of(np.eye(2, dtype=np.float32)[targets]), np.stack([1 - second, second], 1), "log_loss"
        )
    dealt = np.random.default_rng(4).permutation(ranks)[:, None] / 10
    assert not is_better_than_chance(targets_of(targets), np.hstack([1 - dealt, dealt]), "accuracy")


@pytest.fixture
def only_rare(monkeypatch: pytest.MonkeyPatch) -> str:
    """A metric of one's own: whether the images of the last class are found, whatever happens to the others."""

    def score(targets: Targets, probs: np.ndarray) -> float:
        return float((probs.argmax(1) == 2)[targets.values == 2].mean() - (probs.argmax(1) == 2).mean())

    metric = Metric("labels", 1, score, -np.inf, np.inf, frozenset({ONE_LABEL.name}))
    monkeypatch.setitem(METRICS, "rare.py:score", lambda: metric)
    return "rare.py:score"


def test_the_competitions_own_metric_is_compared_too(only_rare: str) -> None:
    """All of a rare class are found, where nearly all images are wrong and none comes before another."""
    found = np.tile((0.30, 0.36, 0.34), (500, 1))
    found[LABELS == 2] = (0.33, 0.33, 0.34)
    for probs, expected in ((found, True), (noise(500), False)):
        assert is_better_than_chance(targets_of(LABELS), probs, only_rare) is expected


def test_numbers_are_compared_with_their_mean_and_in_order() -> None:
    targets = np.random.default_rng(5).normal(10, 2, (200, 1))
    mean = np.full((200, 1), 10.0)
    assert not is_better_than_chance(targets_of(targets), mean, "rmse")
    assert is_better_than_chance(targets_of(targets), 0.5 * targets + 0.5 * mean, "rmse")
    assert is_better_than_chance(targets_of(targets), 100 * targets, "spearman")  # in other units: the order is right


@pytest.mark.parametrize("ranked", [20_000_000, 300_000])  # all classes, or 100
def test_thousands_of_classes_are_compared_at_once(monkeypatch: pytest.MonkeyPatch, ranked: int) -> None:
    monkeypatch.setattr("podium.tasks.chance.MOST_RANKED", ranked)
    targets = np.where(np.arange(3000) < 1000, np.arange(3000) % 100, np.arange(3000) % 1500)
    probs = noise(3000, 1500).astype(np.float32)
    assert not is_better_than_chance(targets_of(targets), probs, "accuracy")
    probs[np.arange(3000), targets] *= 2
    assert is_better_than_chance(targets_of(targets), probs, "accuracy")


# --- advice ------------------------------------------------------------------------------------------

PRETRAINED, SCRATCH = recipe_of("test_vit", weights="pretrained"), recipe_of("test_vit", weights="none")


@pytest.mark.parametrize(
    ("recipe", "losses", "words", "not_there"),
    [
        (SCRATCH, [2.31, 2.30], ["2.31 to 2.3", "hardly begun", "more --epochs or a higher --lr"], "--linear"),
        (PRETRAINED, [2.31, 2.30], ["hardly begun", "--linear"], "lower --lr"),
        (PRETRAINED, [5.6, 4.9], ["too large", "a lower --lr", "2.3 is guessing"], "higher"),
        (PRETRAINED, [2.0, 0.1], ["knows the training images alone", "podium audit"], "--lr"),
        (recipe_of("test_vit", linear=True), [2.2], ["another --model", "--image-size"], "--lr"),
    ],
)
def test_the_advice_follows_the_losses(recipe: Recipe, losses: list[float], words: list[str], not_there: str) -> None:
    text = advice(recipe, np.log(10), losses)
    assert all(word in text for word in words), text
    assert not_there not in text


def test_guessing_has_a_loss_in_every_task() -> None:
    assert loss_of_guessing(ONE_LABEL, "abcd") == pytest.approx(np.log(4))
    assert loss_of_guessing(SEVERAL_LABELS, "abcd") == pytest.approx(np.log(2))
    assert loss_of_guessing(SEVERAL_TARGETS, ["a=1", "a=2", "b=1", "b=2", "b=3", "b=4"]) == pytest.approx(np.log(8) / 2)
    assert loss_of_guessing(NUMBERS, "ab") == 1


def test_a_fold_at_chance_says_what_was_compared(tiny: Path, podium: Podium) -> None:
    table = tiny / "data/raw/tiny/train.csv"
    rows = pd.read_csv(table, dtype=str)
    labels = rows["target"].sample(frac=1, random_state=1).to_numpy()  # so nothing can be learned of the images
    rows.assign(target=labels).to_csv(table, index=False)
    podium("folds", "-c", "tiny", "--k", "2", "--force")
    _, err = done(podium(*TRAIN, "--epochs", "1", "--lr", "1e-9", "--folds", "0"))
    (line,) = [line for line in err.splitlines() if "chance" in line and "warning" in line]
    assert "fold 0: accuracy 0." in line
    assert "held-out images is not clearly better than chance" in line
    assert "(in accuracy, log loss and the order of the images)" in line
    assert "higher --lr" in line
    assert "submissions leave this run out" in err
    assert "podium submit" not in err


def test_a_fold_that_learns_is_not_at_chance(tiny: Path, podium: Podium) -> None:
    _, err = done(podium(*TRAIN, "--epochs", "12", "--lr", "3e-3", "--mix", "0", "--folds", "0", "--name", "good"))
    assert "chance" not in err
