"""Runs `podium compete` on Kaggle's GPUs, in a chain of kernels, and brings back all that it has made.

    podium kaggle-train --budget 8h

Writes what `podium compete` writes here: the members in runs/<slug>/, the ledger in runs/<slug>/.compete/ and
submissions/<slug>/compete.csv; fetch_run.py says what of it replaces what is here. The record of the kernels stays
(.compete.kernel.json): with more time, the same command goes on from the newest of them.
"""

from pathlib import Path

from podium.basics.errors import PodiumError
from podium.basics.terminal import duration, say
from podium.saved_runs.ledger import Ledger
from podium_annex.kaggle_machines.kernel_chain import KernelChain
from podium_annex.kaggle_machines.push_kernel import ACCELERATOR
from podium_annex.kaggle_machines.remote_train import (
    KernelJob,
    refuse_extra_images,
    refuse_files_of_card,
    refuse_missing_folds,
)


def compete_on_kaggle(slug: str, root: Path, budget: float, accelerator: str = ACCELERATOR) -> Path | None:
    """Competes on Kaggle for so many seconds; returns the CSV, or None if the one here is of other work."""
    refuse_extra_images(slug, root, "run podium compete here", ("extra", "unlabelled"))
    refuse_files_of_card(slug, root, "run podium compete here")
    refuse_missing_folds(slug, root)
    made = Ledger(slug, root).folder

    def call(previous: str | None, token: str) -> str:
        return f"run_competing{(slug, budget, previous, token)!r}"

    job = KernelJob(slug, root, made, accelerator, call)
    with job.alone():
        chain = KernelChain(job.receipt, ["--budget", f"{budget}s"])
        if chain.is_done and made.is_dir():
            raise PodiumError(
                f"Kaggle has worked for {duration(budget)} on {made.parent} already; more --budget goes on there,"
                " podium compete goes on here"
            )
        if made.is_dir() and not chain.kernels:
            say(f"podium: note: the kernel begins without what is in {made.parent}; its members will join that")
        csv = job.work(chain).csv
        chain.finish()
    say(f"podium: wrote {made.parent}")
    return csv
