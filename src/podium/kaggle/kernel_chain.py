"""Records which kernels have trained a run: runs/<slug>/.<run>.kernel.json.

Kaggle ends a kernel after twelve hours, so a long run needs a chain of them: each continues where the last one stopped.
The file lets the same command follow them again after an interruption.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from podium.disk import write_json
from podium.errors import PodiumError
from podium.saved_runs.run_folder import Run


@dataclass
class Kernel:
    """One kernel of the chain."""

    name: str  # owner/name
    token: str  # random; the kernel's report repeats it, so that no other kernel's output is taken for this one's
    pushed: bool = False
    ended: bool = False


def chain_path(run: Run) -> Path:
    return run.path.parent / f".{run.name}.kernel.json"


class KernelChain:
    """The kernels of a run, the newest last."""

    def __init__(self, path: Path, words: Sequence[str]) -> None:
        """Reads the kernels so far; refuses to continue if they were started with other words of a command line."""
        self.path = path
        self.words = list(words)
        self.kernels: list[Kernel] = []
        try:
            content = json.loads(path.read_text())
            self.kernels = [
                Kernel(str(entry["kernel"]), str(entry["token"]), bool(entry["pushed"]), bool(entry["ended"]))
                for entry in content["kernels"]
            ]
            words_before = list(map(str, content["words"]))
        except FileNotFoundError:
            return
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise PodiumError(f"{path}: cannot be read ({error!r}); delete it to start with a first kernel") from None
        if self.kernels and words_before != self.words:
            raise PodiumError(
                f"{self.kernels[-1].name} was started with other flags ({' '.join(words_before)}); repeat these flags"
                f" to continue with it, or use another --name, or delete {path}"
            )

    @property
    def previous(self) -> str | None:
        """The name of the kernel before the newest."""
        return self.kernels[-2].name if len(self.kernels) > 1 else None

    def save(self) -> None:
        entries = [
            {"kernel": kernel.name, "token": kernel.token, "pushed": kernel.pushed, "ended": kernel.ended}
            for kernel in self.kernels
        ]
        write_json(self.path, {"words": self.words, "kernels": entries})

    def add(self, kernel: Kernel) -> None:
        self.kernels.append(kernel)
        self.save()

    def drop_newest(self) -> None:
        """Removes the newest kernel, so that another one replaces it."""
        self.kernels.pop()
        self.save()
