"""Says where the cells of a command are trained: `--on here`, `slurm`, `slurm:PARTITION`, `local` or `sky`."""

import re
from dataclasses import dataclass

HERE, SLURM, LOCAL, SKY = "here", "slurm", "local", "sky"


@dataclass(frozen=True)
class Where:
    kind: str
    partition: str = ""  # of Slurm

    def __str__(self) -> str:
        return f"{self.kind}:{self.partition}" if self.partition else self.kind


def parse_where(text: str) -> Where:
    """Reads the flag; the message of its ValueError says what it may be."""
    kind, _, partition = text.partition(":")
    wants_partition = kind == SLURM and ":" in text
    if kind not in (HERE, SLURM, LOCAL, SKY) or wants_partition != bool(partition) or re.search(r"\s", partition):
        raise ValueError(f"here, slurm, slurm:PARTITION, local or sky, not {text}")
    return Where(kind, partition)
