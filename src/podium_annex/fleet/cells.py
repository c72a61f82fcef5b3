"""What train, search and submit have in common when several machines share their work (--on)."""

import argparse
from collections.abc import Callable, Mapping, Sequence

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, podium_command, say
from podium.training.request import Request
from podium_annex.fleet.cell_board import FAILED, Board, Step, reopen
from podium_annex.fleet.cell_sweep import Cell, Sweep
from podium_annex.fleet.slurm_jobs import follow, open_queue
from podium_annex.fleet.where import HERE
from podium_annex.fleet.work import work

AT_ONCE = 8  # jobs of a queue


def prepare_once(args: argparse.Namespace, sweep: Sweep, requests: Sequence[Request]) -> None:
    """Makes audit, folds and pixels where they are missing: one worker does, the others wait."""
    board, name = Board(sweep.folder), sweep.preparation
    if board.last_steps().get(name, Step()).state == FAILED:
        reopen(board, [name])

    def run(_: str) -> None:
        from podium_annex.fleet.prepare import prepare  # it imports numpy

        prepare(args.competition, args.root, requests)

    last = work(board, [name], run, sweep.rhythm)
    if last[name].state == FAILED:
        raise PodiumError(last[name].why)


def run_in_queue(
    args: argparse.Namespace,
    sweep: Sweep,
    cells: Sequence[Cell],
    words: Sequence[str],
    is_over: Callable[[], bool] | None = None,
) -> dict[str, Step]:
    """Submits a job for each cell, and follows them; `words` are those of a job, without where it is and its cell.

    `is_over` says of a search that nothing is left to try.
    """
    words = [*words, "--root", str(args.root.resolve()), "-c", args.competition, "--on", HERE]
    options, at_once = dict(word.partition("=")[::2] for word in args.job or ()), args.at_once or AT_ONCE
    return follow(open_queue(sweep, args.on, words, at_once, options), cells, at_once, is_over)


def machine_words(args: argparse.Namespace) -> list[str]:
    """Returns the flags of the machine for a job, as this command got them."""
    given = {"--device": args.device, "--workers": args.workers, "--threads": args.threads, "--store": args.store}
    return [str(word) for pair in given.items() if pair[1] is not None for word in pair]


def refuse_failed(last: Mapping[str, Step]) -> None:
    """Names the cells that have failed."""
    if failed := [cell for cell, step in last.items() if step.state == FAILED]:
        raise PodiumError(
            f"{len(failed)} of {len(last)} cells failed: {first_few(failed)}; {podium_command()} jobs says why, and the"
            " same command tries them again"
        )


def write_sky_file(args: argparse.Namespace, extra: str = "") -> None:
    from podium_annex.fleet.sky_file import write_sky

    words = words_without(args.words, {"--root": 1, "--on": 1, "--at-once": 1})
    if not {"-c", "--competition"} & {word.partition("=")[0] for word in words}:
        words += ["-c", args.competition]
    path = write_sky(args.competition, args.root, words, extra)
    say(f"podium: wrote {path}; name your bucket in it")
    say(f"next: sky jobs launch {path}")


def words_without(words: Sequence[str], flags: Mapping[str, int]) -> list[str]:
    """Returns the words without these flags and their values."""
    kept, skip = [], 0
    for word in words:
        flag, has_value, _ = word.partition("=")
        if skip:
            skip -= 1
        elif flag in flags:
            skip = 0 if has_value else flags[flag]
        else:
            kept.append(word)
    return kept
