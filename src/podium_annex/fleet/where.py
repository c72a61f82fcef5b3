"""Says where the cells of a command are trained: `--on here`, `slurm`, `slurm:PARTITION`, `local` or `sky`."""

import argparse
import re
from dataclasses import dataclass

from podium.basics.errors import PodiumError

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


def check_flags(args: argparse.Namespace) -> None:
    """Refuses flags of jobs where there are none, and options that no job has."""
    if not args.on:
        for flag in ("at_once", "job", "cell"):
            if getattr(args, flag):
                name = f"--{flag.replace('_', '-')}"
                raise PodiumError(f"{name} is for several machines; add --on here or --on slurm, or leave it out")
        return
    if args.job and (args.on.kind == SKY or (args.on.kind == HERE and args.cell is None)):
        raise PodiumError("--job is for jobs that a queue starts; leave it out, or use --on slurm")
    if args.cell and args.on.kind != HERE:
        raise PodiumError(f"--cell does not go with --on {args.on}: jobs use it, with --on here; leave it out")
    if wrong := [word for word in args.job or () if not re.fullmatch(r"\w+=\S+", word)]:
        raise PodiumError(f"--job {wrong[0]}: write NAME=VALUE, such as timeout_min=480")
