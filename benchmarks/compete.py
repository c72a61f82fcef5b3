"""Measures `podium compete`: score against time, beside other ways to train, and on a larger set made from a small one.

    python docs/measure_compete.py curve ROOT SLUG              a line for each blend and member: minutes and score
    python docs/measure_compete.py beside ROOT SLUG MINUTES     trains in other ways for so long; ROOT/beside.json
    python docs/measure_compete.py picture FILE.png ROOT...     draws the curves of both, a panel for each ROOT
    python docs/measure_compete.py enlarge FROM SLUG ROOT [N]   a competition `large` of N images (35,551) at 60 x 80 px
    python docs/measure_compete.py gpu FROM SLUG ROOT           enlarges, and competes for ten minutes

`beside` trains `--model auto`, tf_efficientnet_lite0 by its defaults, and its frozen head, one after the other, each
from ROOT's zip in a root of its own; the score of a moment is the mean of the folds that are finished then.
`enlarge` cuts and lights the training images of SLUG anew; the column `source` keeps those of one image in one fold.
For a machine with a GPU and without a network: `gpu` needs the hub's cache, or only packaged weights compete.
"""

import csv
import json
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np

from podium.competition.load import load
from podium.saved_runs.ledger import ENDED, SUBMITTED, Ledger
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import score_of

SIZE, IMAGES = (60, 80), 35_551
LEAST_CUT = 0.8  # of an image's sides
LIGHT = 0.2  # at most, more or less
LITE = "tf_efficientnet_lite0"
WAYS = {"auto": ["--model", "auto"], LITE: ["--model", LITE], "frozen head": ["--model", LITE, "--linear"]}
Curve = list[tuple[float, float]]  # minutes, and the score from then on


def show_curve(root: Path, slug: str) -> None:
    """Prints when each blend was submitted and each member trained, and their scores."""
    competition, ledger = load(slug, root), Ledger(slug, root)
    print(f"minutes\t{competition.metric}\twhat")
    for line in ledger.of(SUBMITTED, ENDED):
        minutes = line["worked"] / 60
        if line["event"] == SUBMITTED:
            print(f"{minutes:.1f}\t{line['score']:.4f}\tblend of {len(line['runs'])}")
        elif (error := line["errors"].get(line["member"])) is not None:
            print(f"{minutes:.1f}\t{score_of(competition.metric, error):.4f}\t{line['member']}")


def train_beside(root: Path, slug: str, minutes: float) -> None:
    """Trains in each of the other ways, and writes their curves beside the runs of `compete`."""
    curves = {}
    for name, words in WAYS.items():
        own = root / "beside" / name.replace(" ", "-")
        shutil.rmtree(own, ignore_errors=True)
        (own / "data" / "raw").mkdir(parents=True)
        shutil.copy(root / "data" / "raw" / f"{slug}.zip", own / "data" / "raw")
        podium, started = [sys.executable, "-m", "podium", "--root", str(own)], time.time()
        for command in ("data", "folds"):
            subprocess.run([*podium, command, "-c", slug], check=True)
        with suppress(subprocess.TimeoutExpired):
            subprocess.run([*podium, "train", "-c", slug, *words, "--name", "way"], timeout=60 * minutes)
        curves[name] = _curve_of_folds(Run(own / "runs" / slug / "way"), load(slug, own).metric, started)
        print(name, curves[name])
    (root / "beside.json").write_text(json.dumps(curves, indent=1))


def _curve_of_folds(run: Run, metric: str, started: float) -> Curve:
    ends = sorted((run.fold_folder(fold) / "oof.npz").stat().st_mtime for fold in run.finished())
    by_end = sorted(run.finished(), key=lambda fold: (run.fold_folder(fold) / "oof.npz").stat().st_mtime)
    scores = [run.score(fold, metric) for fold in by_end]
    return [((end - started) / 60, float(np.mean(scores[: count + 1]))) for count, end in enumerate(ends)]


def draw(path: Path, roots: list[Path]) -> None:
    """Draws score against time: that of `compete`, and those of the other ways."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(roots), figsize=(4.2 * len(roots), 3.4), squeeze=False)
    for panel, root in zip(panels[0], roots, strict=True):
        (ledger_file,) = root.glob("runs/*/.compete/compete.jsonl")
        slug = ledger_file.parents[1].name
        competition, ledger = load(slug, root), Ledger(slug, root)
        curves = {"compete": [(line["worked"] / 60, line["score"]) for line in ledger.of(SUBMITTED)]}
        with suppress(FileNotFoundError):
            curves |= json.loads((root / "beside.json").read_text())
        curves = {name: points for name, points in curves.items() if points}
        end = max(*(points[-1][0] for points in curves.values()), ledger.of(ENDED)[-1]["worked"] / 60)
        for name, points in curves.items():
            times, scores = zip(*points, strict=True)
            wide = 2.5 if name == "compete" else 1.2
            panel.step([*times, end], [*scores, scores[-1]], where="post", label=name, linewidth=wide)
        panel.set(title=f"{slug}: {competition.metric}", xlabel="minutes")
        panel.legend(fontsize=8)
        panel.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def enlarge(source: Path, slug: str, root: Path, count: int = IMAGES) -> None:
    """Writes the competition `large`, whose training images are parts of those of another one."""
    competition, folder = load(slug, source), root / "data" / "raw" / "large"
    rows, tests, rng = competition.train, competition.test, np.random.default_rng(0)
    for name in ("train_image", "test_image"):
        (folder / name).mkdir(parents=True)
    with (folder / "train.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["id", "target", "source"])
        for number in range(count):
            row = rows.iloc[number % len(rows)]
            image = cv2.imread(str(competition.folder / row["image"]))
            cv2.imwrite(str(folder / "train_image" / f"{number}.jpg"), _changed(image, rng))
            table.writerow([number, row["target"], row["id"]])
    with (folder / "sample_submission.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["id", "target"])
        for number, image_path in enumerate(tests["image"]):
            image = cv2.imread(str(competition.folder / image_path))
            cv2.imwrite(str(folder / "test_image" / f"{number}.jpg"), cv2.resize(image, SIZE))
            table.writerow([number, competition.classes[0]])
    cards = root / "data" / "competitions"
    cards.mkdir(parents=True, exist_ok=True)
    (cards / "large.toml").write_text(f'metric = "{competition.metric}"\ngroup_column = "source"\n')


def _changed(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns a part of an image, lighter or darker, at the size of the set."""
    height, width = image.shape[:2]
    share = rng.uniform(LEAST_CUT, 1.0)
    high, wide = max(1, int(height * share)), max(1, int(width * share))
    top, left = rng.integers(height - high + 1), rng.integers(width - wide + 1)
    part = cv2.resize(image[top : top + high, left : left + wide], SIZE, interpolation=cv2.INTER_AREA)
    return np.asarray((part * rng.uniform(1 - LIGHT, 1 + LIGHT)).clip(0, 255), np.uint8)


def compete_on_gpu(source: Path, slug: str, root: Path) -> None:
    enlarge(source, slug, root)
    command = [sys.executable, "-m", "podium", "--root", str(root), "compete", "-c", "large", "--budget", "10m"]
    subprocess.run(command, check=True)
    print(json.dumps(Ledger("large", root).of(SUBMITTED)[-1], indent=2))
    show_curve(root, "large")


def main(words: list[str]) -> None:
    match words:
        case ["curve", root, slug]:
            show_curve(Path(root), slug)
        case ["beside", root, slug, minutes]:
            train_beside(Path(root), slug, float(minutes))
        case ["picture", path, *roots] if roots:
            draw(Path(path), [Path(root) for root in roots])
        case ["enlarge", source, slug, root, *count]:
            enlarge(Path(source), slug, Path(root), *map(int, count))
        case ["gpu", source, slug, root]:
            compete_on_gpu(Path(source), slug, Path(root))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
