"""Measures `podium compete`: score against time, beside other ways to train, and on a larger set made from a small one.

    python -m benchmarks.compete curve ROOT SLUG              a line for each blend and member: minutes and score
    python -m benchmarks.compete beside ROOT SLUG MINUTES     trains in other ways for so long; ROOT/beside.json
    python -m benchmarks.compete hidden ROOT SLUG WORK MINUTES   holds fold 0 back: expected and real score
    python -m benchmarks.compete picture FILE.png ROOT...     draws the curves of both, a panel for each ROOT
    python -m benchmarks.compete enlarge FROM SLUG ROOT       a competition `large` of 35,551 images at 60 x 80 px
    python -m benchmarks.compete gpu FROM SLUG ROOT           enlarges, and competes for ten minutes

The figures and the picture of "Competing". `gpu` is for a machine with a GPU and without a network: it needs the hub's
cache, or only packaged weights compete.
"""

import json
import shutil
import statistics
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd

from benchmarks.harness import Project, call
from benchmarks.sets import enlarge, held, hidden_labels
from podium.competition.load import load, raw_folder
from podium.saved_runs.ledger import ENDED, SUBMITTED, Ledger
from podium.tasks.metrics import score_of
from podium_annex.scoring.score_csv import score

LITE = "tf_efficientnet_lite0"
WAYS = {"auto": ["--model", "auto"], LITE: ["--model", LITE], "frozen head": ["--model", LITE, "--linear"]}


def curve(root: Path, slug: str) -> None:
    """Prints when each blend was submitted and each member trained, and their scores."""
    metric = load(slug, root).metric
    print(f"minutes\t{metric}\twhat")
    for line in Ledger(slug, root).of(SUBMITTED, ENDED):
        minutes = line["worked"] / 60
        if line["event"] == SUBMITTED:
            print(f"{minutes:.1f}\t{line['score']:.4f}\tblend of {len(line['runs'])}")
        elif (error := line["errors"].get(line["member"])) is not None:
            print(f"{minutes:.1f}\t{score_of(metric, error):.4f}\t{line['member']}")


def hidden(root: Path, slug: str, work: Path, minutes: float) -> None:
    """Competes on all folds but one, which becomes the test images, and prints the expected and the real score."""
    source = load(slug, root)
    held(root, slug, work)
    project = Project(work, "held")
    sample = raw_folder("held", work) / "sample_submission.csv"
    if source.submission_format.wants == "probs":  # of one class, as in the files that the images come from
        sample.write_text(pd.read_csv(sample, dtype=str).assign(label="0.5").to_csv(index=False))
    csv = Path(project.podium("compete", "--budget", f"{minutes:g}m").splitlines()[-1])
    lineage = json.loads(csv.with_suffix(".json").read_text())
    real = score(csv, hidden_labels(project), competition=load("held", work))
    print(json.dumps({"estimate": lineage["estimate"], "hidden": json.loads(real)}, indent=2))


def beside(root: Path, slug: str, minutes: float) -> None:
    """Trains by `--model auto`, by a model's defaults and its frozen head, each from ROOT's zip in a root of its own.

    The score of a moment is the mean of the folds that are finished then.
    """
    curves = {}
    for name, words in WAYS.items():
        own = root / "beside" / name.replace(" ", "-")
        shutil.rmtree(own, ignore_errors=True)
        (own / "data" / "raw").mkdir(parents=True)
        shutil.copy(root / "data" / "raw" / f"{slug}.zip", own / "data" / "raw")
        project, started = Project(own, slug), time.time()
        project.podium("data")
        project.podium("folds")
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(project.words("train", *words, "--name", "way"), timeout=60 * minutes)
        run, metric = project.run("way"), load(slug, own).metric
        ends = {fold: (run.fold_folder(fold) / "oof.npz").stat().st_mtime for fold in run.finished()}
        order = sorted(ends, key=lambda fold: ends[fold])
        scores = [run.score(fold, metric) for fold in order]
        curves[name] = [((ends[f] - started) / 60, statistics.mean(scores[: k + 1])) for k, f in enumerate(order)]
        print(name, curves[name])
    (root / "beside.json").write_text(json.dumps(curves, indent=1))


def picture(file: Path, roots: list[Path]) -> None:
    """Draws score against time: that of `compete`, and those of the other ways."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(roots), figsize=(4.2 * len(roots), 3.4), squeeze=False)
    for panel, root in zip(panels[0], roots, strict=True):
        (ledger_file,) = root.glob("runs/*/.compete/compete.jsonl")
        slug = ledger_file.parents[1].name
        ledger = Ledger(slug, root)
        curves = {"compete": [(line["worked"] / 60, line["score"]) for line in ledger.of(SUBMITTED)]}
        with suppress(FileNotFoundError):
            curves |= json.loads((root / "beside.json").read_text())
        curves = {name: points for name, points in curves.items() if points}
        end = max(*(points[-1][0] for points in curves.values()), ledger.of(ENDED)[-1]["worked"] / 60)
        for name, points in curves.items():
            times, scores = zip(*points, strict=True)
            wide = 2.5 if name == "compete" else 1.2
            panel.step([*times, end], [*scores, scores[-1]], where="post", label=name, linewidth=wide)
        panel.set(title=f"{slug}: {load(slug, root).metric}", xlabel="minutes")
        panel.legend(fontsize=8)
        panel.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=100)


def gpu(source: Path, slug: str, root: Path) -> None:
    """Enlarges a competition, competes for ten minutes, and prints the last submission and the curve."""
    enlarge(source, slug, root)
    print(Project(root, "large").podium("compete", "--budget", "10m"))
    print(json.dumps(Ledger("large", root).of(SUBMITTED)[-1], indent=2))
    curve(root, "large")


if __name__ == "__main__":
    call(curve, hidden, beside, picture, enlarge, gpu)
