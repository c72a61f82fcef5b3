"""Measures test images of other shares and of other cameras: --decision test-shares, and folds --by-site.

    python -m benchmarks.other_test ROOT SLUG WORK [--size 64] [--draws 5] [--most 800]

**Shares.** Half of the training images of SLUG are hidden and become the test images. A frozen head learns the other
half. From the hidden images, test sets are drawn in which some classes have a quarter of their images. Prints a row for
each kind of test set: log loss and accuracy without and with the decision, and the gain.

**Sites.** Each of the (most) images is taken again by one of six made cameras (CAMERAS). One camera is the test, the
other five are trained on, with three kinds of folds. Prints what each kind expects, and the score on the camera that no
model has seen.
"""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.harness import Project, call, head, row
from benchmarks.sets import hidden_labels, images_of, write_set
from podium.basics.machine import Machine
from podium.blending.blend import Blend, Probs
from podium.blending.gain import gain_of
from podium.blending.held_out import HeldOut
from podium.blending.shares_of_test import reweigh_by_shares
from podium.blending.strategy_names import TEST_SHARES
from podium.competition.load import load, raw_folder
from podium.submissions.choose_steps import ChosenSteps, Wishes, choose_steps
from podium.submissions.predict_test import predict_blend
from podium.tasks.metrics import evaluate
from podium.tasks.task import Targets

MODEL = "tf_efficientnet_lite0"
FOLDS = 3
QUARTER = 0.25  # of the images of a class that is made rare
SIDE = 96  # pixels of the images that a made camera takes
# The factors of red, green and blue, the deviation of a blur in pixels, and that of noise.
CAMERAS = {
    "plain": ((1.0, 1.0, 1.0), 0.0, 0.0),
    "warm": ((1.25, 1.0, 0.6), 0.0, 0.0),
    "cold": ((0.6, 0.95, 1.3), 0.0, 0.0),
    "dark": ((0.45, 0.45, 0.45), 0.0, 8.0),
    "noisy": ((1.0, 1.0, 1.0), 0.0, 35.0),
    "blurred": ((0.9, 0.9, 0.9), 2.5, 0.0),
}
TESTS = ("blurred", "cold")  # cameras that are held out in turn


def other_test(root: Path, slug: str, work: Path, size: int = 64, draws: int = 5, most: int = 800) -> None:
    rows = images_of(load(slug, root)).assign(id=lambda rows: range(len(rows)))
    shares(rows, slug, work, size, draws)
    sites(rows.sample(frac=1, random_state=0).head(most), slug, work, size)


# --- shares ------------------------------------------------------------------------------------------


def shares(rows: pd.DataFrame, slug: str, work: Path, size: int, draws: int) -> None:
    is_test = np.random.default_rng(0).random(len(rows)) < 0.5
    project = write_set(work, f"{slug}-half", rows[~is_test], rows[is_test], 'metric = "log_loss"\n')
    project.podium("folds", "--k", FOLDS)
    project.train("head", "--model", MODEL, "--linear", "--image-size", size, folds=",".join(map(str, range(FOLDS))))
    chosen, probs, targets = answers_of(project, "head", Wishes(decision=TEST_SHARES))
    numbers = np.array(chosen.blend.decision.numbers)  # type: ignore[union-attr]
    classes = probs.shape[1]
    head(f"{slug}: test sets", "images", "log loss", "gain", "clear in", "accuracy", "gain", "share, off by at most")
    for name, count in (("the shares of training", 0), ("half of the classes to a quarter", -(-classes // 2) or 1)):
        cells = []
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            is_rare = np.isin(targets.values, rng.choice(classes, min(count, classes - 1), replace=False))
            kept = np.flatnonzero(np.where(is_rare, rng.random(len(probs)) < QUARTER, rng.random(len(probs)) < 0.8))
            cells.append(measure_draw(probs[kept], targets[kept], numbers))
        means = pd.DataFrame(cells).mean()
        clear = f"{int(means['clear'] * draws)} of {draws}, harm in {int(means['harm'] * draws)}"
        row(
            name,
            round(means["images"]),
            f"{means['loss']:.4f} -> {means['loss after']:.4f}",
            f"{means['gain']:+.4f} ({means['low']:+.4f} to {means['high']:+.4f})",
            clear,
            f"{means['accuracy']:.4f} -> {means['accuracy after']:.4f}",
            f"{means['gain of accuracy']:+.4f}",
            f"{means['off before']:.3f} -> {means['off']:.3f}",
        )


def measure_draw(probs: Probs, targets: Targets, numbers: NDArray[np.float64]) -> dict[str, float]:
    """Returns the scores of a test set without and with its estimated shares, and how far these are from the truth."""
    held_out = HeldOut(probs[None], targets, np.zeros(len(probs), np.int64), np.arange(len(probs)))
    after = reweigh_by_shares(probs, numbers)
    gain, of_accuracy = (gain_of(held_out, probs, after, metric) for metric in ("log_loss", "accuracy"))
    true = targets.counts(probs.shape[1]) / len(targets)
    return {
        "images": len(probs),
        "loss": gain.before,
        "loss after": gain.score,
        "gain": gain.gain,
        "low": gain.interval[0],
        "high": gain.interval[1],
        "clear": gain.is_clear,
        "harm": gain.is_harm,
        "accuracy": of_accuracy.before,
        "accuracy after": of_accuracy.score,
        "gain of accuracy": of_accuracy.gain,
        "off before": float(np.abs(probs.mean(0) - true).max()),
        "off": float(np.abs(after.mean(0) - true).max()),
    }


def answers_of(project: Project, name: str, wishes: Wishes) -> tuple[ChosenSteps, Probs, Targets]:
    """Returns the blend of this run, its answers for the hidden images before a decision, and the truth."""
    competition, run = load(project.slug, project.root), project.run(name)
    chosen = choose_steps(competition, [run], wishes)
    blend: Blend = replace(chosen.blend, decision=None)
    probs = predict_blend(competition, {run: run.models()}, blend, Machine()).probs
    hidden = pd.read_csv(hidden_labels(project), dtype=str).set_index("id")["label"]
    truth = hidden.loc[competition.test["id"]].tolist()
    return chosen, probs, competition.task.encode(truth, competition.classes)


# --- sites -------------------------------------------------------------------------------------------


def sites(rows: pd.DataFrame, slug: str, work: Path, size: int) -> None:
    camera = np.random.default_rng(1).choice(list(CAMERAS), len(rows))
    folder = work / f"{slug}-cameras"
    folder.mkdir(parents=True, exist_ok=True)
    images = [
        take(image, name, folder / f"{n}.png", n)
        for n, (image, name) in enumerate(zip(rows["image"], camera, strict=True))
    ]
    rows = rows.assign(image=images, camera=camera)
    head(f"{slug}: test camera", "folds", "expected log loss", "there", "expected accuracy", "there")
    for test in TESTS:
        is_test = rows["camera"] == test
        project = write_set(work, f"{slug}-{test}", rows[~is_test], rows[is_test], 'metric = "log_loss"\n')
        table = rows[~is_test][["id", "label", "camera"]]
        table.to_csv(raw_folder(project.slug, work) / "train.csv", index=False)
        for name, flags in (
            ("stratified", ()),
            ("by-site, the column", ("--by-site", "camera")),
            ("by-site, clusters", ("--by-site",)),
        ):
            project.podium("folds", "--k", FOLDS, *flags, "--force")
            run = name.replace(", the", "").replace(",", "").replace(" ", "-")
            project.train(
                run, "--model", MODEL, "--linear", "--image-size", size, folds=",".join(map(str, range(FOLDS)))
            )
            chosen, probs, targets = answers_of(project, run, Wishes(decision="none"))
            assert chosen.estimate is not None
            known = [project.run(run).score(fold, "accuracy") for fold in range(FOLDS)]
            low, high = chosen.estimate.interval
            row(
                test,
                name,
                f"{chosen.estimate.score:.3f} ({low:.3f} to {high:.3f})",
                f"{evaluate('log_loss', targets, probs):.3f}",
                f"{np.mean(known):.3f}",
                f"{evaluate('accuracy', targets, probs):.3f}",
            )


def take(image: str, camera: str, path: Path, number: int) -> str:
    """Writes the image as this camera takes it; returns its path."""
    if not path.exists():
        pixels = cv2.imread(image)
        assert pixels is not None, image
        (red, green, blue), blur, noise = CAMERAS[camera]
        small = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)
        lens = cv2.GaussianBlur(small, (0, 0), blur) if blur else small
        grain = np.random.default_rng(number).normal(0, noise, small.shape)
        cv2.imwrite(str(path), (lens * np.array([blue, green, red]) + grain).clip(0, 255).astype(np.uint8))
    return str(path)


if __name__ == "__main__":
    call(other_test)
