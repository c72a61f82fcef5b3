"""The command line: `podium COMMAND --help`, or `python -m podium`.

Results go to standard output, progress and advice to standard error. Exit status: 0 done; 1 a mistake of
the user's or of the data, said in one line; 75 stopped by a signal, the same command goes on.
"""

import io
import os
import re
import signal
import sys
import time
from collections.abc import Sequence

from podium import STOPPED, PodiumError, terminal
from podium.cli.commands import COMMANDS
from podium.cli.flags import parser


def main(argv: Sequence[str] | None = None) -> int:
    terminal.quiet = os.environ.get("RANK", "0") != "0"  # of torchrun's processes the first speaks
    try:
        _streams()
        flags = parser(COMMANDS).parse_args(argv)
        flags.words = list(sys.argv[1:] if argv is None else argv)
        if not flags.root.is_dir():
            raise PodiumError(f"--root {flags.root}: no such folder")
        terminal.root = flags.root
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: nothing is left half written
        flags.run(flags)
        sys.stdout.flush()
    except PodiumError as error:
        if terminal.quiet and os.environ.get("LOCAL_RANK") != "0":
            _wait_for_the_first()
            return 1
        line = terminal.printable(str(error).replace("\n", " "))
        if terminal.uses_make() and re.search(r" --[a-z]", line) and "make" not in line:
            line += ' (flags go to make as ARGS="--flag ...")'
        print(f"podium: error: {line}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        what = f"{error.filename or 'the system'}: {error.strerror or error}"
        print(f"podium: error: {what}; mend that and run the same command again", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        if not terminal.quiet:
            print(f"podium: {str(stop) or 'stopped'}; run the same command again to go on", file=sys.stderr)
        return STOPPED
    return 0


def _wait_for_the_first() -> None:
    """It says what all have met, and torchrun would end it before it has, as soon as another process ended."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    time.sleep(60)


def _streams() -> None:
    """What is printed may not fit the terminal's encoding, and a stream may have been closed by whoever started us."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
