"""Checkpoints that are damaged, foreign or cannot be written: one line that helps, and nothing is lost."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from podium.basics.errors import PodiumError
from podium.models.tensors import load_tensors, tensors_digest
from podium.saved_runs.checkpoint import CheckpointWriter, checkpoints, restore_newest
from podium.saved_runs.epoch_record import EpochRecord
from podium.training.learner import Learner
from podium.training.learner_state import COUNTERS, learner_state, restore_learner
from second_round import first_of
from tiny import FAST, Podium, assert_same_fold, done, run_of, stop_in_step
from training.damage import cut_end, empty, flip_bit
from training.learners import a_batch, copy_state, learner_of

SIX_STEPS = ("train", *FAST, "--model", "test_vit", "--folds", "0", "--epochs", "6")


A_RECORD = EpochRecord(
    epoch=1,
    step=1,
    lr=0.1,
    loss=1.0,
    scores={"log_loss": 1.0, "accuracy": 0.5},
    views="none",
    images_per_s=10.0,
    seconds=1.5,
    validation_seconds=0.5,
)


def save(folder: Path, learner: Learner) -> None:
    writer = CheckpointWriter(folder)
    with writer.finish_writing():
        writer.save(learner.progress.step, *learner_state(learner))


def restore(folder: Path, learner: Learner) -> bool:
    return restore_newest(folder, partial(restore_learner, learner))


def stop_after(step: int, root: Path, podium: Podium) -> Path:
    """Stops a run after this step; returns the fold's folder."""
    stop_in_step(podium, step - 1, *SIX_STEPS)
    return run_of(root).fold_folder(0)


# --- reading -----------------------------------------------------------------------------------------


def test_an_older_checkpoint_has_its_learning_rate_in_the_record_of_the_start(tiny: Path) -> None:
    learner, restored = (learner_of(tiny, model="test_resnet") for _ in range(2))
    learner.step(*a_batch())
    learner.progress.history = [replace(A_RECORD, epoch=0, step=0, lr=learner.recipe.lr / 4), A_RECORD]
    tensors, values = learner_state(learner)
    del values["rate_share"]
    restore_learner(restored, tensors, values)
    assert restored.learning_rate == pytest.approx(learner.learning_rate / 4)


def test_a_restored_learner_takes_the_same_next_step(tiny: Path) -> None:
    learner, restored = (learner_of(tiny, model="test_resnet", drop_path=0.2) for _ in range(2))
    images, labels = a_batch()
    learner.step(images, labels)
    learner.progress.seconds, learner.progress.rate_share, learner.progress.history = 1.5, 0.25, [A_RECORD]
    save(tiny, learner)
    assert restore(tiny, restored)
    for name in ("step", "total_steps", "seconds", "rate_share", "history", "loss_sum", *COUNTERS.values()):
        assert getattr(restored.progress, name) == getattr(learner.progress, name), name
    learner.step(images, labels)
    restored.step(images, labels)
    expected = copy_state(learner)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in copy_state(restored).items())
    assert all(
        torch.equal(*pair)
        for pair in zip(learner.trained_model.parameters(), restored.trained_model.parameters(), strict=True)
    )


def test_a_checkpoint_of_something_else_is_refused(tiny: Path) -> None:
    learner = learner_of(tiny, model="test_vit")
    learner.step(*a_batch())
    save(tiny, learner)
    (path,) = checkpoints(tiny)
    tensors, metadata = load_tensors(path)
    progress = json.loads(metadata["podium"])
    slot = next(name for name in tensors if name.startswith("optimizer."))
    wrong_progress: list[object] = [5, [], None, {}, progress | {"step": 10**9}, progress | {"history": 5}]
    wrong_progress.append(progress | {"classes": progress["classes"][::-1]})  # a card's `positive` may turn them
    wrong_progress.append(progress | {"rate_share": []})
    needed = [key for key in progress if key not in ("classes", "rate_share")]  # older checkpoints lack them
    wrong_progress += [{key: value for key, value in progress.items() if key != missing} for missing in needed]
    wrong_tensors = [
        *({name: tensor for name, tensor in tensors.items() if name != missing} for missing in ("loss", slot)),
        {**tensors, "optimizer.9999.exp_avg": torch.zeros(1)},
        {**tensors, "optimizer.x": torch.zeros(1)},
    ]
    foreign = [(tensors, content) for content in wrong_progress] + [(content, progress) for content in wrong_tensors]
    for some_tensors, content in foreign:
        text = json.dumps(content)
        save_file(some_tensors, path, {"podium": text, "sha256": tensors_digest(some_tensors, text)})
        with pytest.raises(PodiumError) as refusal:
            restore(tiny, learner_of(tiny, model="test_vit"))
        assert f"{path} is not of this run" in str(refusal.value), content
        assert "delete it to start again" in str(refusal.value)
    save_file(tensors, path, metadata)
    assert restore(tiny, learner)


@pytest.mark.parametrize("damage", first_of([flip_bit], [flip_bit, cut_end, empty]))
def test_if_the_newest_checkpoint_is_damaged_the_one_before_serves(
    tiny: Path, podium: Podium, damage: Callable[[Path], None]
) -> None:
    done(podium(*SIX_STEPS, "--name", "undisturbed"))
    folder = stop_after(5, tiny, podium)
    kept = ["checkpoint-000000005.safetensors", "checkpoint-000000004.safetensors"]
    assert [path.name for path in checkpoints(folder)] == kept
    damage(checkpoints(folder)[0])
    _, err = done(podium(*SIX_STEPS))
    assert "checkpoint-000000005.safetensors: " in err
    assert "the checkpoint before it is used" in err
    assert "resumes from step 4 of 6" in err
    assert not checkpoints(folder)
    assert_same_fold(run_of(tiny), run_of(tiny, "undisturbed"))


def test_if_all_checkpoints_are_damaged_the_fold_starts_again(tiny: Path, podium: Podium) -> None:
    for path in checkpoints(stop_after(2, tiny, podium)):
        flip_bit(path)
    _, err = done(podium(*SIX_STEPS))
    assert "training starts again" in err
    assert "resumes from" not in err


# --- writing -----------------------------------------------------------------------------------------


def test_a_checkpoint_that_cannot_be_written_is_reported_unless_another_error_came_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    writer = CheckpointWriter(tmp_path / "file" / "fold0")

    def save(error: Exception | None = None) -> None:
        with writer.finish_writing():
            writer.save(1, {"weight": torch.zeros(2)}, {})
            if error:
                raise error

    with pytest.raises(NotADirectoryError, match="fold0"):
        save()
    with pytest.raises(ZeroDivisionError):
        save(ZeroDivisionError())
    writer.wait()  # nothing is left to report


def test_no_writing_thread_outlives_its_fold(tiny: Path, podium: Podium) -> None:
    done(podium(*SIX_STEPS))
    writers = [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
    for thread in writers:
        thread.join(10)  # it may be in its last line
    assert not [thread for thread in writers if thread.is_alive()]
