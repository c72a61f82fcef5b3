"""Measures what losses, scales, weights and sums gain where the answers of photographs are numbers.

    python -m benchmarks.numbers options ROOT SLUG WORK [--tuned] [--epochs 3]
    python -m benchmarks.numbers competing ROOT SLUG WORK [--budget 4m]

The competition `SLUG-numbers` in WORK has four numbers for each training image of SLUG. `light`, `colour` and `detail`
are exponentials of what is in the image (the brightness of its upper half, the saturation of its middle, the contrast
of its lower half), times noise of a third; `total` is their sum. Each option is compared with the same training
without it, on the images that both held out: a frozen head, or with --tuned two folds of a fine-tuning. Or `podium
compete` may ask whether logarithms are easier to learn, and is told not to by the card. Prints the tables of "Numbers";
the gain is that of blending/gain.py.
"""

from pathlib import Path

import cv2
import numpy as np
import pandas as pd

from benchmarks.harness import Project, call, head, row
from benchmarks.sets import hidden_labels, images_of
from podium.blending.choose_decision import DecisionKind, choose_decision, find_kind
from podium.blending.gain import Gain, gain_of
from podium.blending.held_out import HeldOut, collect_held_out
from podium.competition.card import card_path
from podium.competition.load import Competition, load, raw_folder
from podium.folds.folds_csv import read_groups
from podium.saved_runs.run_folder import Run
from podium.submissions.lineage import read_lineage

MODEL = ("--model", "tf_efficientnet_lite0", "--image-size", "64")
METRICS = ("r2", "mae")
NOISE = 0.33
SCALES = {scale: ("--target-scale", scale) for scale in ("log1p", "rank")}
LOSSES = {
    **{loss: ("--loss", loss) for loss in ("absolute", "huber", "poisson")},
    "quantile 0.7": ("--loss", "quantile", "--quantile", "0.7"),
    "total weighs 5": ("--target-weights", "total:5"),
}


def options(root: Path, slug: str, work: Path, tuned: bool = False, epochs: int = 3) -> None:
    project = Project(work, f"{slug}-numbers", threads=1)
    if not raw_folder(project.slug, work).exists():
        write_numbers(project, images_of(load(slug, root)))
        project.podium("folds", "--k", "4")
    how, folds = (("--linear",), "0,1,2,3") if not tuned else (("--epochs", epochs), "0,1")
    kind = "tuned" if tuned else "head"
    competition = load(project.slug, work)
    plain = project.train(kind, *MODEL, *how, folds=folds)
    head("option", *(f"{metric}: without, with, gain (95 % interval)" for metric in METRICS))
    for name, words in {**SCALES, **(LOSSES if tuned else {})}.items():
        run = project.train(f"{kind}-{name.replace(' ', '-')}", *MODEL, *how, *words, folds=folds)
        held_out = held_out_by(competition, plain, run)
        without, own = held_out.probs
        row(name, *(in_words(gain_of(held_out, without, own, metric)) for metric in METRICS))
    row("sums", *(in_words(gain_of_sums(competition, held_out_by(competition, plain), metric)) for metric in METRICS))


def competing(root: Path, slug: str, work: Path, budget: str = "4m") -> None:
    head("compete", "expected r2", "hidden r2", "hidden mae", "members of the blend")
    for name, recipe in {"asks": "", "does not ask": '[recipe]\ntarget_scale = "none"\n'}.items():
        project = Project(work / name.replace(" ", "-"), f"{slug}-numbers", threads=1)
        if not raw_folder(project.slug, project.root).exists():
            write_numbers(project, images_of(load(slug, root)), recipe)
        csv = project.root / "submissions" / project.slug / "compete.csv"
        if not csv.exists():
            project.podium("compete", "--budget", budget)
        lineage, answers, truth = (
            read_lineage(csv.with_suffix(".json")),
            *(pd.read_csv(path, index_col="id") for path in (csv, hidden_labels(project))),
        )
        errors = answers.loc[truth.index] - truth
        r2 = 1 - (errors**2).mean() / truth.var(ddof=0)
        members = ", ".join(run["run"] for run in lineage.content["runs"])
        row(
            name,
            f"{lineage.content['estimate']['score']:.4f}",
            f"{r2.mean():.4f}",
            f"{errors.abs().mean().mean():.2f}",
            members,
        )


def held_out_by(competition: Competition, *runs: Run) -> HeldOut:
    return collect_held_out(runs, competition.classes, read_groups(competition), competition.label_of)


def gain_of_sums(competition: Competition, held_out: HeldOut, metric: str) -> Gain:
    """Returns what holding the sums gains over staying in the ranges alone, which numbers always do."""
    sums = find_kind(metric, competition.task, competition.classes, competition.card)
    assert sums is not None
    kinds = DecisionKind("clip_numbers"), sums
    ranges, summed = (choose_decision(held_out, held_out.probs[0], metric, kind)[1] for kind in kinds)
    return gain_of(held_out, ranges, summed, metric)


def in_words(gain: Gain) -> str:
    low, high = gain.interval
    return f"{gain.before:.4f}, {gain.score:.4f}, {gain.gain:+.4f} ({low:+.4f} to {high:+.4f})"


def write_numbers(project: Project, images: pd.DataFrame, recipe: str = "") -> None:
    """Writes the images as links, and their numbers; a tenth are test images."""
    folder, rng = raw_folder(project.slug, project.root), np.random.default_rng(0)
    seen = pd.DataFrame([seen_in(image) for image in images["image"]])
    logarithms = 0.8 * (seen - seen.mean()) / seen.std() + NOISE * rng.normal(size=seen.shape)
    rows = np.exp(logarithms) * [20.0, 8.0, 3.0]
    rows = rows.assign(total=rows.sum(axis=1)).round(4)
    rows.insert(0, "id", [f"i{number:05d}" for number in range(len(rows))])
    is_test = rng.random(len(rows)) < 0.1
    for name, own in (("train", ~is_test), ("test", is_test)):
        (folder / name).mkdir(parents=True)
        for image_id, image in zip(rows["id"][own], images["image"].to_numpy()[own], strict=True):
            (folder / name / f"{image_id}{Path(image).suffix}").symlink_to(image)
    rows[~is_test].to_csv(folder / "train.csv", index=False)
    rows[is_test].assign(**dict.fromkeys(rows.columns[1:], 0.5)).to_csv(folder / "sample_submission.csv", index=False)
    rows[is_test].to_csv(hidden_labels(project), index=False)
    card_path(project.slug, project.root).parent.mkdir(parents=True, exist_ok=True)
    sums = 'sums = ["total = light + colour + detail"]'
    card_path(project.slug, project.root).write_text(f'metric = "r2"\ntask = "numbers"\n{sums}\n{recipe}')


def seen_in(path: str) -> dict[str, float]:
    """Returns three facts about an image, in [0, 255]."""
    image = cv2.imread(path)
    assert image is not None, path
    small = cv2.resize(image, (64, 64), interpolation=cv2.INTER_AREA)
    grey, colours = cv2.cvtColor(small, cv2.COLOR_BGR2GRAY), cv2.cvtColor(small, cv2.COLOR_BGR2HSV)
    return {
        "light": float(grey[:32].mean()),
        "colour": float(colours[16:48, 16:48, 1].mean()),
        "detail": float(grey[32:].std()),
    }


if __name__ == "__main__":
    call(options, competing)
