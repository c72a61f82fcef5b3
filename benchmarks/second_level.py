"""Measures a second level of trees where images belong to patients, and tables say something beside them.

    python -m benchmarks.second_level trees ROOT SLUG WORK --classes 0 6 [--telling]
    python -m benchmarks.second_level nets ROOT SLUG WORK --classes 0 6 [--effect 1.2]

The competition is made of the training images of SLUG: those of the given classes are ill. Patients have 8 to 16
images, all changed alike (light, colour, blur), as a camera would, so that a model rates a patient's images higher or
lower as a whole. The tables have the patient, a site, an age with gaps, a size that is a little larger where an image
is ill, a date and a camera that mean nothing. With --telling, an image's age is 4 above its patient's where it is
ill: what is relative to the patient tells nearly all. 30 % of the patients are the hidden test images. Two heads on
frozen models are blended by each strategy; the tables of "A second level of trees". Or fine-tuned nets see the columns
beside the image; the table of "Columns as an input of the net".
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.harness import Project, call, head, row
from benchmarks.sets import hidden_labels, images_of
from podium.blending.gain import gain_of
from podium.blending.held_out import collect_held_out
from podium.competition.card import card_path
from podium.competition.load import load, raw_folder
from podium.folds.folds_csv import read_groups
from podium.options.moves.joined_columns import CONCAT, FILM, NONE
from podium.submissions.lineage import read_lineage
from podium.tasks.metric_functions import roc_auc
from podium.tasks.task import ONE_LABEL

SIDE, TEST_SHARE = 160, 0.3
EFFECT = 0.3  # on the logarithm of the size of what is ill; the deviation in a patient is 0.5, between patients 0.6
CARD = """metric = "roc_auc"
group_column = "patient"
features = ["site", "age", "size", "visit", "camera"]
"""
MODELS = {"small": ("tf_efficientnet_lite0", 96), "large": ("tf_efficientnet_lite1", 160)}


def patients(
    root: Path, slug: str, work: Path, classes: tuple[str, ...], telling: bool = False, effect: float = EFFECT
) -> Project:
    kind = "telling" if telling else "patients" if effect == EFFECT else f"effect{effect:g}"
    project = Project(work, f"{slug}-{kind}", threads=1)
    if not hidden_labels(project).exists():
        write_patients(project, images_of(load(slug, root)), classes, telling, effect)
        project.podium("folds")
    return project


def trees(root: Path, slug: str, work: Path, classes: tuple[str, ...] = ("0",), telling: bool = False) -> None:
    project = patients(root, slug, work, classes, telling)
    for name, (model, size) in MODELS.items():
        project.train(name, "--linear", "--model", model, "--image-size", size, folds="0,1,2,3,4")
    head("strategy", "expected, held out", "gain over the best run (95 % interval)", "hidden test images")
    for strategy in ("best", "equal", "shrunk", "stacked-linear", "stacked-boosting"):
        csv = project.submit(strategy, "--runs", *MODELS, "--blend", strategy)
        content = read_lineage(csv).content
        tried = next(one for one in content["estimate"]["candidates"] if one["strategy"] == strategy)
        low, high = tried["between"]
        hidden = f"{hidden_score(project, csv):.4f}"
        row(strategy, f"{tried['score']:.4f}", f"{tried['gain']:+.4f} ({low:+.4f} to {high:+.4f})", hidden)


def nets(
    root: Path,
    slug: str,
    work: Path,
    classes: tuple[str, ...] = ("0",),
    effect: float = EFFECT,
    seeds: tuple[int, ...] = (0,),
    folds: str = "0,1",
    epochs: int = 6,
) -> None:
    """Trains nets without and with columns; the mean of the seeds answers alone, and below a stack on columns."""
    project = patients(root, slug, work, classes, effect=effect)
    options = ("--model", "tf_efficientnet_lite0", "--image-size", "64", "--epochs", str(epochs))
    head("columns", "held out", "gain over none (95 % interval)", "hidden test images", "with a linear stack: hidden")
    before: NDArray[Any] | None = None
    for kind in (NONE, CONCAT, FILM):
        names = [f"{kind}-{seed}" for seed in seeds]
        runs = [
            project.train(name, *options, "--columns", kind, "--seed", str(seed), folds=folds)
            for name, seed in zip(names, seeds, strict=True)
        ]
        held_out = collect_held_out(runs, ("0", "1"), read_groups(load(project.slug, work)))
        probs = held_out.probs.mean(0)
        gain = gain_of(held_out, probs if before is None else before, probs, "roc_auc")
        before = probs if before is None else before
        hidden = (
            f"{hidden_score(project, project.submit(f'{kind}-{blend}', '--runs', *names, '--blend', blend)):.4f}"
            for blend in ("equal", "stacked-linear")
        )
        low, high = gain.interval
        row(kind, f"{gain.score:.4f}", f"{gain.gain:+.4f} ({low:+.4f} to {high:+.4f})", *hidden)


def hidden_score(project: Project, csv: Path) -> float:
    """Returns the ROC AUC of a submission on the hidden test images."""
    truth = pd.read_csv(hidden_labels(project), dtype=str)
    answers = pd.read_csv(csv, dtype={"id": str}).set_index("id")["label"].loc[truth["id"]].to_numpy()
    return float(roc_auc(ONE_LABEL.encode(truth["label"], ("0", "1")), np.stack([1 - answers, answers], 1)))


def write_patients(
    project: Project, images: pd.DataFrame, classes: tuple[str, ...], telling: bool, effect: float
) -> None:
    rows = pd.DataFrame(_patients(images, classes, telling, effect, np.random.default_rng(0)))
    rng = np.random.default_rng(1)
    patients = rng.permutation(rows["patient"].unique())
    is_test = rows["patient"].isin(patients[: round(TEST_SHARE * len(patients))])
    folder = raw_folder(project.slug, project.root)
    for name, own in (("train", rows[~is_test]), ("test", rows[is_test])):
        (folder / name).mkdir(parents=True)
        for one in own.to_dict("records"):
            image = cv2.imread(one["image"])
            assert image is not None, one["image"]
            cv2.imwrite(str(folder / name / f"{one['id']}.jpg"), _seen(image, one["camera_of"]))
    columns = ["id", "patient", "site", "age", "size", "visit", "camera"]
    rows[~is_test][[*columns, "label"]].to_csv(folder / "train.csv", index=False)
    rows[is_test][columns].to_csv(folder / "test.csv", index=False)
    rows[is_test][["id"]].assign(label=0.5).to_csv(folder / "sample_submission.csv", index=False)
    card_path(project.slug, project.root).parent.mkdir(parents=True, exist_ok=True)
    card_path(project.slug, project.root).write_text(CARD)
    rows[is_test][["id", "label"]].to_csv(hidden_labels(project), index=False)


def _patients(
    images: pd.DataFrame, classes: tuple[str, ...], telling: bool, effect: float, rng: np.random.Generator
) -> Iterator[dict[str, object]]:
    shuffled, number, patient = images.iloc[rng.permutation(len(images))], 0, 0
    while number < len(shuffled):
        size = int(rng.integers(8, 17))
        site, age, factor = rng.choice(list("ABCD")), rng.normal(55, 12), np.exp(rng.normal(0, 0.6))
        light = rng.normal(0, 25) + rng.normal(0, 18, 3), float(np.exp(rng.normal(0, 0.25))), rng.exponential(1.2)
        for image, label in shuffled[["image", "label"]].iloc[number : number + size].itertuples(index=False):
            is_ill = label in classes
            own_age = age + 4 * is_ill + rng.normal() if telling else age
            yield {
                "id": f"i{number:05d}",
                "patient": f"p{patient:04d}",
                "site": site,
                "age": "" if rng.random() < 0.1 else f"{own_age:.1f}",
                "size": f"{factor * np.exp(effect * is_ill + rng.normal(0, 0.5)):.2f}",
                "visit": f"2021-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}",
                "camera": f"c{rng.integers(60)}",
                "label": int(is_ill),
                "image": image,
                "camera_of": light,
            }
            number += 1
        patient += 1


def _seen(image: NDArray[Any], light: tuple[NDArray[np.float64], float, float]) -> NDArray[np.uint8]:
    """Returns the image as this patient's camera sees it."""
    shift, contrast, blur = light
    scale = min(1.0, SIDE / min(image.shape[:2]))
    small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA).astype(np.float32)
    changed = cv2.GaussianBlur((small - 128) * contrast + 128 + shift, (0, 0), max(0.05, blur))
    return changed.clip(0, 255).astype(np.uint8)


if __name__ == "__main__":
    call(trees, nets)
