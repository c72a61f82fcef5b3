"""The command line: `podium COMMAND --help`, or `python -m podium`.

Results go to standard output, progress and advice to standard error. Exit status: 0 done; 1 a mistake of the user or
in the data, explained in one line; 75 stopped by a signal, and the same command resumes.
"""

import argparse
import errno
import io
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from podium import __version__
from podium.basics import terminal, torchrun
from podium.basics.beside import brought
from podium.basics.disk import check_utf8
from podium.basics.end_soon import end_soon_after_sigterm, exit_stopped, stop_line
from podium.basics.errors import STOPPED, PodiumError
from podium.basics.machine import fix_threads
from podium.basics.project_root import DEFAULT_COMPETITION, find_root, usual_competition
from podium.basics.watch import watched
from podium.cli.commands import COMMANDS as OWN
from podium.cli.parser import Command, parser

COMMANDS: dict[str, Command] = OWN.copy()  # and those of the packages beside this one
for _commands in brought("commands", "COMMANDS"):
    COMMANDS |= _commands


def run() -> NoReturn:
    """Runs the command of this process. After a signal, libraries do not take down what they hold: it takes seconds."""
    status = main()
    if status == STOPPED:
        with suppress(OSError, ValueError):  # nobody reads it, or the caller has closed it
            sys.stdout.flush()
        exit_stopped()
    sys.exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    terminal.quiet = torchrun.process_rank() != 0  # only the first process speaks
    terminal.said_once.clear()
    terminal.when_done.clear()
    terminal.has_said_next, terminal.doing = False, terminal.STARTING
    try:
        _make_streams_safe()
        words = list(sys.argv[1:] if argv is None else argv)
        for word in words:
            check_utf8(word, "the name")
        args = parser(COMMANDS, __version__).parse_args(words)
        args.words = words
        terminal.root = args.root or Path()
        args.root = find_root(args.root)
        if not args.root.samefile(terminal.root) and not terminal.quiet:
            print(f"podium: using the project in {args.root}", file=sys.stderr)
        _choose_competition(args)
        if number := getattr(args, "threads", None):
            fix_threads(number)
        with end_soon_after_sigterm(), watched():
            args.run(args)
            if args.then in COMMANDS and not terminal.has_said_next:
                terminal.say(f"next: {_what_follows(args)}")
            for keep in terminal.when_done:
                keep()
            sys.stdout.flush()
    except PodiumError as error:
        return _report(error)
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        nameless = "the output" if error.errno == errno.ENOSPC else "the system"  # disk.py names full files
        problem = f"{error.filename or nameless}: {error.strerror or error}"
        print(
            terminal.coloured(f"podium: error: {problem}; correct that and run the same command again"), file=sys.stderr
        )
        return 1
    except KeyboardInterrupt as stop:
        if not terminal.quiet:
            print(stop_line(str(stop)), file=sys.stderr)
        return STOPPED
    return 0


def _what_follows(args: argparse.Namespace) -> str:
    """Returns the command that usually comes next; where `compete` has written a CSV, the one that uploads it."""
    best = args.root / "submissions" / args.competition / "compete.json"
    if args.then == "submit" and best.exists():
        return f"{terminal.command_to_rebuild(best)} --upload"
    return terminal.command_for(args.then, args.competition)


def _choose_competition(args: argparse.Namespace) -> None:
    """Sets the competition where the user has named none. `data` takes the only archive, or brings the default one.

    `compete` does so, too, where no competition is unpacked yet.
    """
    if not args.has_competition or args.competition is not None:
        return
    only, raw = usual_competition(args.root), args.root / "data/raw"
    fetches = args.command == "data" or (args.command == "compete" and not (raw / only).exists())
    args.competition = usual_competition(args.root, fetches=True) if fetches else only
    if args.competition != DEFAULT_COMPETITION:
        kind = "archive" if fetches else "one"
        terminal.say(f"podium: the competition is {args.competition}, the only {kind} in {raw}")
    elif only != DEFAULT_COMPETITION:
        terminal.say(f"podium: note: this fetches {args.competition}; for the one that is here, add -c {only}")


def _report(error: PodiumError) -> int:
    """Prints the error in one line; of several processes, only the first of each machine does."""
    if terminal.quiet and torchrun.local_rank() != 0:
        _wait_for_first_process()
        return 1
    line = terminal.printable(str(error).replace("\n", " "))
    if terminal.uses_make() and "make" not in line:
        line += terminal.flags_for_make(line)
    print(terminal.coloured(f"podium: error: {line}"), file=sys.stderr)
    return 1


def _wait_for_first_process() -> None:
    """Gives the first process time to report: torchrun ends all processes as soon as one has ended."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    time.sleep(60)


def _make_streams_safe() -> None:
    """Replaces characters that the terminal's encoding lacks, and streams that the caller has closed."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    run()
