"""A signal during training: it finishes the step and saves; a validation, which can be done again, ends at once."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from forked_podium import exit_status, start_podium
from podium.basics.end_soon import end_soon_after_sigterm
from podium.saved_runs.checkpoint import checkpoints
from podium.saved_runs.epoch_record import score_held_out
from podium.tasks.task import Targets
from podium.training import loop
from podium.training.stop_signals import stop_signals
from tiny import Podium, done, run_of, signal_in_step, write_card
from training.resuming import TRAIN, assert_resumes_to_the_same_bits

# As long as the file "deaf" is there, it hears nothing.
DEAF_METRIC = """
from pathlib import Path
from threading import Event

def score(solution, submission, row_id_column_name):
    is_fold = len(solution) < 20  # not all images, of which the sign of the metric is looked up at first
    while is_fold and Path(__file__).with_name("deaf").exists():
        try:
            print("scoring")
            Event().wait()
        except:
            pass
    return 1.0
"""


def test_the_first_signal_asks_to_stop_and_the_second_stops_at_once() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with stop_signals() as signals:
        assert not signals.stop_requested
        signal.raise_signal(signal.SIGINT)
        assert signals.stop_requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signals.stop_requested = False
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_signal_that_nobody_has_looked_at_stops_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt), stop_signals():
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_that_an_import_or_a_library_has_swallowed_stops_before_the_first_step() -> None:
    with end_soon_after_sigterm():
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), stop_signals():
            pytest.fail("training began after a signal")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_block_that_can_be_done_again_interrupts_it(number: signal.Signals) -> None:
    with stop_signals() as signals:
        with pytest.raises(KeyboardInterrupt), signals.interrupting(lambda: None):
            signal.raise_signal(number)
        signals.stop_requested = False
        with pytest.raises(KeyboardInterrupt), signals.interrupting(lambda: None), suppress(KeyboardInterrupt):
            signal.raise_signal(number)  # what the block then computes may be wrong
        signals.stop_requested = False
        signal.raise_signal(number)
        with pytest.raises(KeyboardInterrupt), signals.interrupting(lambda: None):
            pytest.fail("the block began after a signal")
        signals.stop_requested = False


def stop_in_validation(patch: pytest.MonkeyPatch, number: signal.Signals, validation: int) -> list[int]:
    """Sends a signal in this validation, of those that begin from now on; returns a list that grows with each."""
    begun: list[int] = []

    def score(metric: str, targets: Targets, probs: NDArray[np.float32]) -> dict[str, float]:
        begun.append(len(begun) + 1)
        if len(begun) == validation:
            signal.raise_signal(number)
            pytest.fail("the validation went on")
        return score_held_out(metric, targets, probs)

    patch.setattr(loop, "score_held_out", score)
    return begun


def test_a_signal_in_a_validation_saves_at_once_and_the_same_command_validates_first(
    tiny: Path, podium: Podium
) -> None:
    """Of three epochs of three steps, the second is stopped in its validation twice, the first is stopped before it."""
    with pytest.MonkeyPatch.context() as patch:
        signal_in_step(patch, 2, signal.SIGTERM)
        begun = stop_in_validation(patch, signal.SIGTERM, validation=99)
        status, _, err = podium(*TRAIN)
        assert (status, begun) == (75, [])
        assert "stopped after step 3 of 9 of fold 0; all is saved" in err
    for number, validation in ((signal.SIGTERM, 2), (signal.SIGINT, 1)):
        with pytest.MonkeyPatch.context() as patch:
            stop_in_validation(patch, number, validation)
            status, out, err = podium(*TRAIN)
        assert status == 75
        assert "stopped after step 6 of 9 of fold 0; all is saved" in err
        assert ("epoch 1/3" in out + err) is (validation == 2)
        assert checkpoints(run_of(tiny).fold_folder(0))[0].stem == "checkpoint-000000006"
    assert_resumes_to_the_same_bits(tiny, podium)
    records, undisturbed = (run_of(tiny, name).history(0) for name in ("test_vit", "undisturbed"))
    assert [(record.step, record.lr, record.scores) for record in records] == [
        (record.step, record.lr, record.scores) for record in undisturbed
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "signals", [pytest.param([signal.SIGTERM], marks=pytest.mark.all), [signal.SIGINT, signal.SIGINT]]
)
def test_a_metric_that_hears_nothing_is_ended_and_all_is_saved(
    tiny: Path, podium: Podium, signals: Sequence[signal.Signals]
) -> None:
    (tiny / "metric.py").write_text(DEAF_METRIC)
    write_card(tiny, 'metric = "metric.py:score"')
    (tiny / "deaf").touch()
    os.mkfifo(tiny / "output")
    process = start_podium(("--root", tiny, *TRAIN), tiny / "output")
    assert process.pid is not None
    with (tiny / "output").open() as output:
        for number in signals:
            assert "scoring\n" in output
            os.kill(process.pid, number)
        rest = output.read()
    assert exit_status(process) == 75
    (line,) = [line for line in rest.splitlines() if line != "scoring"]
    assert line.startswith("podium: stopped")
    assert "same command" in line
    (tiny / "deaf").unlink()
    _, err = done(podium(*TRAIN))
    assert "fold 0 resumes from step 3 of 9" in err
    assert_resumes_to_the_same_bits(tiny, podium)
