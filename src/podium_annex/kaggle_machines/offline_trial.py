"""Tries a bundle's notebook in a process without a network and compares its CSV with the one made here."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from podium.basics.disk import write_text
from podium.basics.errors import PodiumError
from podium.basics.terminal import say
from podium.competition.find.csv_files import read_table
from podium.competition.load import Competition

# Code for sitecustomize.py, which Python runs first. Where the system allows it, the process has no network at all.
NO_NETWORK = """
import socket
class Refused(socket.socket):
    def connect(self, address):
        if self.family != socket.AF_UNIX: raise OSError(101, "the network is cut off")
        return super().connect(address)
    connect_ex = connect
socket.socket = Refused
def refuse(*_, **__): raise OSError(101, "the network is cut off")
socket.create_connection = socket.getaddrinfo = refuse
"""


def try_offline(code: str, bundle: Path, dataset: str, competition: Competition, csv: Path) -> str:
    """Runs the notebook's code in a copy of Kaggle's folders, with only the packages of this machine.

    Describes how its CSV agrees with `csv`; raises if it does not agree.
    """
    say("podium: trying the notebook without a network")
    with tempfile.TemporaryDirectory() as folder:
        kaggle = Path(folder)
        (kaggle / "working").mkdir()
        (kaggle / "input").mkdir()
        shutil.copytree(bundle, kaggle / "input" / dataset)
        (kaggle / "input" / competition.slug).symlink_to(competition.folder.resolve())
        write_text(kaggle / "no_network" / "sitecustomize.py", NO_NETWORK)
        environment = {
            **os.environ,
            "PODIUM_KAGGLE": folder,
            "PYTHONPATH": str(kaggle / "no_network"),
            "HF_HUB_OFFLINE": "1",
        }
        command = [*_find_offline_prefix(), sys.executable, "-c", code]
        done = subprocess.run(command, cwd=kaggle, env=environment, capture_output=True, text=True)
        notebook_csv = kaggle / "working" / "submission.csv"
        if done.returncode or not notebook_csv.exists():
            reason = (done.stderr.strip().splitlines() or ["it prints no reason"])[-1]
            raise PodiumError(
                f"the bundle's notebook fails without a network: {reason}; correct that and run the same command again"
            )
        if notebook_csv.read_bytes() == csv.read_bytes():
            return "the same CSV"
        if _agree(competition, notebook_csv, csv):
            return "the same answers, except for rounding,"
        raise PodiumError(
            f"the bundle's notebook makes another CSV than {csv};"
            " check that no run has changed, and run the same command again"
        )


def _agree(competition: Competition, notebook_csv: Path, csv: Path) -> bool:
    """Returns whether two CSVs differ by rounding only: the kept one may have been predicted on another device."""
    table, expected = read_table(notebook_csv), read_table(csv)
    form, ids = competition.submission_format, competition.submission_format.id_column
    if list(table.columns) != list(expected.columns) or list(table[ids]) != list(expected[ids]):
        return False
    return competition.answer_form.agree(form.answer_cells(table), form.answer_cells(expected))


def _find_offline_prefix() -> list[str]:
    """Returns the words before a command that cut off its network; none if the system does not allow that."""
    for words in (["unshare", "--net"], ["unshare", "--net", "--map-root-user"]):
        try:
            if subprocess.run([*words, "true"], capture_output=True, timeout=10).returncode == 0:
                return words
        except (OSError, subprocess.SubprocessError):
            continue
    return []
