"""Writes checkpoints of a fold, and restores the newest undamaged one. learner_state.py says what they hold.

The files are fold<k>/checkpoint-<step>.safetensors, the newest KEPT of them, each with a hash of its contents.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import say
from podium.models.tensors import load_tensors, save_tensors, tensors_digest

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2  # checkpoints of a fold: if the newest is damaged, the one before it is used


def checkpoints(folder: Path) -> list[Path]:
    """Returns a fold's checkpoints, the newest first."""
    return sorted(folder.glob("checkpoint-*.safetensors"), reverse=True)


# --- writing -----------------------------------------------------------------------------------------


class CheckpointWriter:
    """Writes checkpoints in a thread, while training continues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writing: Future[None] | None = None

    def save(self, step: int, tensors: Mapping[str, "Tensor"], progress: dict[str, Any]) -> None:
        """Copies the tensors; a thread writes the copies."""
        self.wait()
        copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
        pool = ThreadPoolExecutor(1)
        self._writing = pool.submit(self._write, step, copies, json.dumps(progress))
        pool.shutdown(wait=False)  # the thread ends when the file is written

    def wait(self) -> None:
        """Waits until the file is on disk; raises if it could not be written."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    @contextmanager
    def finish_writing(self) -> Iterator[None]:
        """Waits at the end of the block, also after an error, until its last checkpoint is on disk."""
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                self.wait()
            raise
        self.wait()

    def delete_all(self) -> None:
        for path in checkpoints(self.folder):
            path.unlink()

    def _write(self, step: int, tensors: dict[str, "Tensor"], progress: str) -> None:
        path = self.folder / f"checkpoint-{step:09d}.safetensors"
        save_tensors(path, tensors, {"podium": progress, "sha256": tensors_digest(tensors, progress)})
        for outdated in checkpoints(self.folder)[KEPT:]:
            outdated.unlink(missing_ok=True)


# --- restoring ---------------------------------------------------------------------------------------


def restore_newest(folder: Path, restore: Callable[[Mapping[str, "Tensor"], dict[str, Any]], None]) -> bool:
    """Restores the newest checkpoint whose hash is right, and deletes damaged ones; False if there is none."""
    for path in checkpoints(folder):
        try:
            tensors, metadata = load_tensors(path)
            if metadata["sha256"] != tensors_digest(tensors, metadata["podium"]):
                raise PodiumError(f"{path}: the contents do not match their hash")
        except (PodiumError, LookupError) as error:
            is_last = path == checkpoints(folder)[-1]
            consequence = "training starts again" if is_last else "the checkpoint before it is used"
            say(f"podium: warning: {str(error) or 'it has no hash'}; {consequence}")
            path.unlink()
            continue
        try:
            restore(tensors, json.loads(metadata["podium"]))
        except Exception as error:  # an undamaged file of another model or version can raise nearly anything
            raise PodiumError(
                f"{path} is not of this run ({type(error).__name__}: {error}); delete it to start again"
            ) from None
        return True
    return False
