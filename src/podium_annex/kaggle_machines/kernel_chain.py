"""Records which kernels have trained a run, or competed: runs/<slug>/.<run>.kernel.json, or .compete.kernel.json.

Kaggle ends a kernel after twelve hours, so a long run needs a chain of them: each continues where the last one stopped.
The file lets the same command follow them again after an interruption.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from podium.basics.disk import write_json
from podium.basics.errors import PodiumError


@dataclass
class Kernel:
    """One kernel of the chain."""

    name: str  # owner/name
    token: str  # random; the kernel's report repeats it, so that no other kernel's output is taken for this one's
    pushed: bool = False
    ended: bool = False


def chain_path(made: Path) -> Path:
    """Returns where the kernels are recorded that make a run, or the ledger of compete."""
    return made.parent / f".{made.name.removeprefix('.')}.kernel.json"


class KernelChain:
    """The kernels of a run, or of compete, the newest last."""

    def __init__(self, path: Path, words: Sequence[str]) -> None:
        """Reads the kernels so far; refuses to continue if they work with other words of a command line."""
        self.path = path
        self.words = list(words)
        self.is_done = False  # all that these words ask for
        self.kernels: list[Kernel] = []
        try:
            content = json.loads(path.read_text())
            self.kernels = [
                Kernel(str(entry["kernel"]), str(entry["token"]), bool(entry["pushed"]), bool(entry["ended"]))
                for entry in content["kernels"]
            ]
            words_before, was_done = list(map(str, content["words"])), bool(content.get("done"))
        except FileNotFoundError:
            return
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise PodiumError(f"{path}: cannot be read ({error!r}); delete it to start with a first kernel") from None
        is_same = sorted(words_before) == sorted(self.words)  # the order of options may be that of an earlier version
        if self.kernels and not is_same and not was_done:
            raise PodiumError(
                f"{self.kernels[-1].name} was started with other flags ({' '.join(words_before)}); repeat these flags"
                f" to continue with it, or delete {path}; another run needs another --name"
            )
        self.is_done = was_done and is_same

    @property
    def previous(self) -> str | None:
        """The name of the kernel before the newest."""
        return self.kernels[-2].name if len(self.kernels) > 1 else None

    def save(self) -> None:
        entries = [
            {"kernel": kernel.name, "token": kernel.token, "pushed": kernel.pushed, "ended": kernel.ended}
            for kernel in self.kernels
        ]
        write_json(self.path, {"words": self.words, "kernels": entries, "done": self.is_done})

    def finish(self) -> None:
        """Keeps the kernels, so that others can go on from the newest."""
        self.is_done = True
        self.save()

    def add(self, kernel: Kernel) -> None:
        self.kernels.append(kernel)
        self.save()

    def drop_newest(self) -> None:
        """Removes the newest kernel, so that another one replaces it."""
        self.kernels.pop()
        self.save()
