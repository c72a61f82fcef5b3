"""A fold takes as many threads as are free when it begins, and begins again with one if others are in their way."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from podium.basics.disk import sha256, write_json
from podium.models.cpu_threads import threads
from podium.saved_runs.run_folder import recorded_threads
from podium.training import crowded, loop
from podium.training.crowded import THREADS_OF, Crowded, refuse_crowd, settle_threads
from tiny import FAST, Podium, done, run_of
from training.learners import context_of

TRAIN = ("train", *FAST, "--model", "test_vit", "--device", "cpu", "--epochs", "2")


class Pace(SimpleNamespace):
    """Stands for a forecast: of 100 steps, so many are left; seconds per step at best, and now."""

    def __init__(self, left: float, best: float, now: float, is_settled: bool = True) -> None:
        super().__init__(left=left, best_pace=best, now=now, settled=is_settled, work=SimpleNamespace(total=100.0))

    def is_settled(self, step: int) -> bool:
        return bool(self.settled)

    def work_left(self, step: int) -> float:
        return float(self.left)

    def recent_pace(self, step: int) -> float:
        return float(self.now)


@pytest.mark.parametrize(
    ("pace", "begins_again"),
    [
        (Pace(95, 1.0, 1.2), True),  # little is lost
        (Pace(80, 1.0, 1.2), False),  # 96 seconds, and 200 with one thread from the beginning
        (Pace(80, 1.0, 10.0), True),
        (Pace(10, 1.0, 10.0), False),
        (Pace(95, 1.0, 10.0, is_settled=False), False),
    ],
)
def test_a_fold_begins_again_where_one_thread_is_sooner_at_its_end(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, pace: Any, begins_again: bool
) -> None:
    monkeypatch.setattr(threads, "own", 2)
    with context_of(tiny, model="test_vit") as context:
        refuse_crowd(context, pace, 10)  # nobody is in the way
        monkeypatch.setattr(threads, "crowded_since", 0.0)
        if not begins_again:
            refuse_crowd(context, pace, 10)
            return
        with pytest.raises(Crowded):
            refuse_crowd(context, pace, 10)


@pytest.mark.annex
@pytest.mark.slow
def test_what_begins_again_ends_with_the_bits_of_its_own_threads(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(podium(*TRAIN, "--name", "alone"))
    calls: list[int] = []

    def refuse(context: Any, forecast: Any, step: int) -> None:
        calls.append(step)
        if len(calls) == 2:
            raise Crowded

    monkeypatch.setattr(loop, "refuse_crowd", refuse)
    _, err = done(podium(*TRAIN, "--name", "crowded"))
    assert "fold 0 begins again, with one" in err
    alone, run = run_of(tiny, "alone"), run_of(tiny, "crowded")
    assert run.recipe[THREADS_OF] == {"0": 1}
    for fold in (0, 1):
        hashes = [sha256(one.fold_folder(fold) / "model.safetensors") for one in (alone, run)]
        assert hashes[0] == hashes[1]
        assert len(run.history(fold)) == len(alone.history(fold))
    done(podium("verify", "crowded", "-c", "tiny", "--device", "cpu"))


@pytest.mark.slow
def test_each_fold_takes_what_is_free_when_it_begins_and_keeps_it(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(podium(*TRAIN, "--folds", "0"))
    run = run_of(tiny, "test_vit")
    write_json(run.path / "recipe.json", {**run.recipe, "threads": 4})
    run, taken = run_of(tiny, "test_vit"), list[int | None]()
    monkeypatch.setattr(threads, "settle", lambda number=None, follows=False: taken.append(number))
    monkeypatch.setattr(threads, "free", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS")
    context: Any = SimpleNamespace(run=run, device=None, processes=None)
    monkeypatch.setattr(crowded, "_may_choose", lambda _: True)
    settle_threads(context, 1)
    assert (taken[-1], recorded_threads(run, 1), run.recipe["threads"]) == (2, 2, 4)
    assert recorded_threads(run, 0) == 4
    monkeypatch.setattr(crowded, "checkpoints", lambda _: [run.path])
    settle_threads(context, 2)
    assert taken[-1] == 4  # what has begun goes on as it was
