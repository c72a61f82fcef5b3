"""What a move knows of a step: its epoch, images and classes, and the losses of the epochs that have ended."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from podium.options.moves.move import Moment
from podium.training.learner import Learner
from tiny import FAST, Podium, done, run_of, stop_in_step
from training.learners import learner_of


def test_a_step_has_the_images_that_the_loader_shows(tiny: Path) -> None:
    learner = learner_of(tiny, model="test_resnet")
    batch_size = learner.sampler.batch_size
    for keys in learner.sampler:
        moment = learner.moment(batch_size)
        assert [(moment.epoch, row) for row in moment.rows] == [(e, learner.lessons.rows[image]) for e, image in keys]
        learner.progress.step += 1
    assert moment.epoch == learner.recipe.epochs - 1
    assert moment.classes == 4
    assert len(learner.moment(3).rows) == 3


def test_nothing_is_found_out_that_no_move_asks_for() -> None:
    def find_out() -> None:
        raise AssertionError

    moment = Moment(0, 0, 5, 10, 1, 3, find_out, find_out)  # type: ignore[arg-type]
    assert moment.rng("a").random() == replace(moment, epoch=2).rng("a").random()
    with pytest.raises(AssertionError):
        _ = moment.rows


def test_an_image_has_random_numbers_of_its_own_in_each_epoch() -> None:
    def drawn(epoch: int, *rows: int) -> list[float]:
        moment = Moment(0, 0, 5, 10, epoch, 3, lambda: np.array(rows), list)
        return [rng.random() for rng in moment.rngs("a")]

    assert drawn(1, 3, 4) == [*drawn(1, 3), *drawn(1, 4)]
    assert len({*drawn(1, 3, 4), *drawn(2, 3, 4)}) == 4


def test_losses_are_those_of_epochs_that_have_ended_after_a_resume_too(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("train", *FAST, "--model", "test_vit", "--folds", "0", "--epochs", "3")
    seen: list[tuple[int, tuple[float, ...]]] = []
    original = Learner.moment

    def noted(learner: Learner, images: int) -> Moment:
        moment = original(learner, images)
        seen.append((moment.epoch, tuple(moment.losses)))
        return moment

    monkeypatch.setattr(Learner, "moment", noted)
    done(podium(*command, "--name", "whole"))
    whole = list(seen)
    losses = [record.loss for record in run_of(tiny, "whole").history(0)]
    assert all(found == tuple(losses[:epoch]) for epoch, found in whole)
    seen.clear()
    stop_in_step(podium, len(whole) // 3, *command, "--name", "stopped")
    done(podium(*command, "--name", "stopped"))
    assert seen == whole
