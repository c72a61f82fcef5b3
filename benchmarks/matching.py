"""Measures similarities of individuals that no model has learned, and heads where some test images show such ones.

    python -m benchmarks.matching pairs ROOT WORK SLUG... [--of classes] [--size 64]
    python -m benchmarks.matching heads ROOT WORK SLUG... [--size 64]

The individuals are made: each is a photograph of SLUG in several views (cut, turned, lighter or darker, blurred), or,
with `--of classes`, a class of SLUG. Prints the tables of "Re-identification".
"""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd

from benchmarks.harness import Project, call, head, row
from benchmarks.sets import Image, hidden_labels, images_of, write_set
from podium.basics.machine import Machine
from podium.competition.load import Competition, load, raw_folder
from podium.saved_runs.run_folder import Run
from podium.training.test_predictions import open_stores
from podium_annex.matching.compared_features import Looker
from podium_annex.matching.scores import Queries, average_precisions
from podium_annex.matching.similarities import WAYS, Way

MODEL = "tf_efficientnet_lite0"
RUNS = {"frozen": ("--linear",), "arcface": ("--head", "arcface", "--epochs", "4")}
NEW = "new_individual"
CARD = f'unknown = "{NEW}"\nunknown_share = 0.5\n'
PHOTOGRAPHS, VIEWS = 160, 5  # that become individuals, and of each
IMAGES = 16  # of a class, at most
SHARE_NEW = 0.3  # of the individuals: in the test only
PLACES = 5


def pairs(root: Path, work: Path, slugs: list[str], of: str = "photographs", size: int = 64) -> None:
    """Mean average precision on pairs of new individuals, by way and run, and what held-out images have said of it."""
    for slug in slugs:
        rows = individuals(root, slug, work, of)
        is_new = rows["label"].isin(new_ones(rows))
        project = write_set(work, f"pairs-{of}-{slug}", rows[~is_new], rows[is_new], CARD)
        ask_for_pairs(project)
        competition = load(project.slug, work)
        head(f"{slug}, {of}", *(f"{name}, {where}" for name in RUNS for where in ("new", "held out")))
        columns = [scores_of(project, competition, train(project, name, size, *words)) for name, words in RUNS.items()]
        for way in WAYS:
            row(way.describe(), *(f"{score:.4f}" for new, held_out in columns for score in (new[way], held_out[way])))
        for name in RUNS:
            lineage = lineage_of(project, name)
            gain = lineage["estimate"].get("gain", {})
            row(name, Way(**lineage["way"]).describe(), gain, f"pairs {lineage['estimate']['pair_accuracy']:.4f}")


def scores_of(project: Project, competition: Competition, run: Run) -> tuple[dict[Way, float], dict[Way, float]]:
    """Returns the score of each way on the test images, and on held-out ones."""
    identity = pd.factorize(pd.read_csv(hidden_labels(project), dtype=str)["label"])[0]
    looker = Looker(open_stores(competition, [run], Machine()), Machine())
    features = looker.features({run: run.models()}, competition.test)
    new = {}
    for way in WAYS:
        found = [average_precisions(block, start, identity) for start, block in way.rows(features)]
        new[way] = Queries(np.concatenate(found), identity).mean()
    held_out = lineage_of(project, run.name)["estimate"]["ways"]
    return new, {Way(one["expanded"], one["reranked"]): one["mean_average_precision"] for one in held_out}


def lineage_of(project: Project, name: str) -> dict[str, Any]:
    path = project.root / "submissions" / project.slug / f"{name}.json"
    if not path.exists():
        project.podium("match", "--runs", name, "--name", name)
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def heads(root: Path, work: Path, slugs: list[str], size: int = 64) -> None:
    """MAP@5 of heads on one frozen backbone; half of the test images show individuals of the training images."""
    for slug in slugs:
        rows = individuals(root, slug, work, "photographs")
        is_new = rows["label"].isin(new_ones(rows))
        of_known = rows[~is_new & (rows.groupby("label").cumcount() == 0)]
        of_new = rows[is_new].head(len(of_known)).assign(label=NEW)
        card = f'metric = "map_at_5"\n{CARD}'
        known = rows[~is_new].drop(of_known.index)
        project = write_set(work, f"heads-{slug}", known, pd.concat([of_known, of_new]), card)
        train(project, "logistic", size, "--linear")
        train(project, "neighbours", size, "--linear", "--head", "neighbours")
        head(slug, "held out", "expected", "MAP@5 on the test", "of known", "of new")
        for name in (("logistic",), ("neighbours",), ("logistic", "neighbours")):
            csv = project.submit("+".join(name), "--runs", *name)
            estimate = json.loads(csv.with_suffix(".json").read_text())["estimate"]
            found = precision_at_five(project, csv)
            expected = "{:.4f} to {:.4f}".format(*estimate["between"])
            scores = (found.mean(), *(found[found.index == NEW].mean(), found[found.index != NEW].mean())[::-1])
            row("+".join(name), f"{estimate['score']:.4f}", expected, *(f"{score:.4f}" for score in scores))


def precision_at_five(project: Project, csv: Path) -> "pd.Series[float]":
    """Returns 1 divided by the place of the true answer for each test image, by that answer."""
    answers, truth = (pd.read_csv(path, dtype=str).set_index("id")["label"] for path in (csv, hidden_labels(project)))
    places = [
        1 / (said.index(label) + 1) if label in (said := answers[image].split()[:PLACES]) else 0.0
        for image, label in truth.items()
    ]
    return pd.Series(places, truth.to_numpy())


def train(project: Project, name: str, size: int, *words: str) -> Run:
    if not (project.root / "data" / "prepared" / project.slug / "folds.csv").exists():
        project.podium("folds", "--k", "3")
    return project.train(name, "--model", MODEL, "--image-size", size, *words, folds="0,1,2")


# --- individuals -------------------------------------------------------------------------------------


def individuals(root: Path, slug: str, work: Path, of: str) -> pd.DataFrame:
    """Returns id, label and image of individuals that are made of the training images."""
    rows = images_of(load(slug, root)).sample(frac=1, random_state=0)
    if of == "classes":
        chosen = rows.groupby("label").head(IMAGES)
        chosen = chosen[chosen.groupby("label")["id"].transform("size") >= IMAGES // 2]
        return chosen.assign(id=[f"i{number}" for number in range(len(chosen))])
    folder, rng, views = work / f"views-of-{slug}", np.random.default_rng(0), []
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(rows["image"].head(PHOTOGRAPHS)):
        image = cv2.imread(path)
        assert image is not None, path
        for view in range(VIEWS):
            name = f"{number:03d}-{view}"
            cv2.imwrite(str(folder / f"{name}.jpg"), seen_again(np.asarray(image, np.uint8), rng))
            views.append((name, f"one{number:03d}", str((folder / f"{name}.jpg").resolve())))
    return pd.DataFrame(views, columns=["id", "label", "image"])


def new_ones(rows: pd.DataFrame) -> list[str]:
    names = sorted(rows["label"].unique())
    return [str(one) for one in np.random.default_rng(1).permutation(names)[: round(SHARE_NEW * len(names))]]


def seen_again(image: Image, rng: np.random.Generator) -> Image:
    """Returns a photograph as if taken another time."""
    height, width = image.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), rng.uniform(-25, 25), rng.uniform(1.0, 1.5))
    turn[:, 2] += rng.uniform(-0.15, 0.15, 2) * np.array([width, height])
    turned = cv2.warpAffine(image, turn, (width, height), borderMode=cv2.BORDER_REFLECT).astype(np.float32)
    light = turned * rng.uniform(0.6, 1.4, 3) * rng.uniform(0.7, 1.3) + rng.normal(0, 8, turned.shape)
    blurred = cv2.GaussianBlur(light, (0, 0), rng.uniform(0.3, 0.02 * min(height, width) + 0.4))
    return blurred.clip(0, 255).astype(np.uint8)


def ask_for_pairs(project: Project) -> None:
    """Replaces the sample submission of single images by one of all pairs of them."""
    folder = raw_folder(project.slug, project.root)
    names = pd.read_csv(hidden_labels(project), dtype=str)["id"].tolist()
    listed = [(first, second) for first in names for second in names if first != second]
    table = pd.DataFrame(listed, columns=["query_image", "gallery_image"]).rename_axis("row_id").reset_index()
    table.to_csv(folder / "test.csv", index=False)
    table[["row_id"]].assign(similarity=0.5).to_csv(folder / "sample_submission.csv", index=False)


if __name__ == "__main__":
    call(pairs, heads)
