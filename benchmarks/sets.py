"""Makes the competitions that are measured: made-up photographs of any number, and parts of a competition that is here.

    python -m benchmarks.sets held ROOT SLUG WORK             its test images are fold 0 of SLUG
    python -m benchmarks.sets few ROOT SLUG WORK --count 20   as many labelled images of each class, and fold 0
    python -m benchmarks.sets halves ROOT SLUG WORK           half of the classes each: `first` and `second`
    python -m benchmarks.sets enlarge FROM SLUG ROOT          `large`: 35,551 images at 60 x 80 px

WORK/SLUG-hidden.csv holds the labels of the test images, for `podium score`. What is trained on them: the sections of
docs/benchmarks.md that name these commands.
"""

import json
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.harness import Project, call
from podium.competition.card import card_path
from podium.competition.load import Competition, load, raw_folder

Image = NDArray[np.uint8]

# --- parts of a competition --------------------------------------------------------------------------


def images_of(source: Competition) -> pd.DataFrame:
    """Returns id, label and image of all training images, with the labels of the files."""
    rows = source.train_in_files
    images = [str(source.folder.resolve() / image) for image in rows["image"]]
    return pd.DataFrame({"id": rows["id"], "label": rows["target"], "image": images})


def tests_of(source: Competition) -> pd.DataFrame:
    """Returns the same of the test images, whose labels nobody knows."""
    images = [str(source.folder.resolve() / image) for image in source.test["image"]]
    return pd.DataFrame({"id": source.test["id"], "label": source.classes[0], "image": images})


def card_of(source: Competition) -> str:
    recipe = "".join(f"{option} = {json.dumps(value)}\n" for option, value in source.recipe.items())
    return f'metric = "{source.metric}"\n\n[recipe]\n{recipe}'


def write_set(root: Path, slug: str, train: pd.DataFrame, test: pd.DataFrame, card: str) -> Project:
    """Writes a competition of images that lie elsewhere, unless it is there; each row has id, label and image.

    A column `fold` of the training rows becomes its folds. ROOT/SLUG-hidden.csv holds the labels of the test images.
    """
    project, folder = Project(root, slug), raw_folder(slug, root)
    if hidden_labels(project).exists():
        return project
    for name, rows in (("train", train), ("test", test)):
        (folder / name).mkdir(parents=True)
        for number, image in zip(rows["id"], rows["image"], strict=True):
            (folder / name / f"{number}{Path(image).suffix}").symlink_to(image)
    train[["id", "label"]].to_csv(folder / "train.csv", index=False)
    test[["id"]].assign(label=train["label"].iloc[0]).to_csv(folder / "sample_submission.csv", index=False)
    card_path(slug, root).parent.mkdir(parents=True, exist_ok=True)
    card_path(slug, root).write_text(card)
    if "fold" in train:
        prepared = root / "data" / "prepared" / slug
        prepared.mkdir(parents=True)
        train[["id", "label", "fold"]].rename(columns={"label": "target"}).to_csv(prepared / "folds.csv", index=False)
    test[["id", "label"]].to_csv(hidden_labels(project), index=False)
    return project


def hidden_labels(project: Project) -> Path:
    return project.root / f"{project.slug}-hidden.csv"


def is_right(project: Project, csv: Path) -> "pd.Series[bool]":
    """Returns whether a submission names the class of each image of the hidden test, by true class."""
    answers, truth = (pd.read_csv(path, dtype=str).set_index("id")["label"] for path in (csv, hidden_labels(project)))
    return (answers.loc[truth.index] == truth).set_axis(truth)


def read_folds(root: Path, slug: str) -> pd.DataFrame:
    """Returns id, target and fold of a competition's training images."""
    return pd.read_csv(root / "data" / "prepared" / slug / "folds.csv", dtype=str)


def held(root: Path, slug: str, work: Path) -> None:
    """Holds fold 0 back as the test images, of competition `held`. Their duplicates are in that fold, too."""
    source, rows = load(slug, root), _with_folds(root, slug)
    is_test = rows["fold"] == "0"
    write_set(work, "held", rows[~is_test].drop(columns="fold"), rows[is_test], card_of(source))


def few(root: Path, slug: str, work: Path, count: int = 20, most_held_out: int = 600) -> None:
    """Leaves as many labelled images of each class (0: all), as fold 1, and some of fold 0 that tell the score."""
    source, rows = load(slug, root), _with_folds(root, slug).sample(frac=1, random_state=0)
    rows["fold"] = rows["fold"].where(rows["fold"] == "0", "1")
    if count:
        left = rows[rows["fold"] == "1"].groupby("label").head(count)
        rows = pd.concat([left, rows[rows["fold"] == "0"].head(most_held_out)])
    write_set(work, slug, rows.sort_index(), tests_of(source), card_of(source))


def halves(root: Path, slug: str, work: Path) -> None:
    """Deals the classes by turns from the largest to the smallest, with the folds of the whole."""
    source, rows = load(slug, root), _with_folds(root, slug)
    turns = {label: place % 2 for place, label in enumerate(rows["label"].value_counts().index)}
    for half, name in enumerate(("first", "second")):
        write_set(work, name, rows[rows["label"].map(turns) == half], tests_of(source), card_of(source))


def _with_folds(root: Path, slug: str) -> pd.DataFrame:
    return images_of(load(slug, root)).merge(read_folds(root, slug)[["id", "fold"]], on="id")


# --- made-up photographs -----------------------------------------------------------------------------

CHUNK = 2000  # images that a process writes at a time


def write_photographs(root: Path, slug: str, train: int, test: int, classes: int, size: tuple[int, int]) -> Project:
    """Writes JPEGs of `size` (width, height). Every class has stripes of its own width, over random patches of colour.

    One image of a thousand is a copy of the one before it, saved again.
    """
    folder = raw_folder(slug, root)
    with ProcessPoolExecutor() as pool:
        for name, count in (("train_image", train), ("test_image", test)):
            (folder / name).mkdir(parents=True)
            write = partial(_write_images, folder / name, classes, size, count)
            list(pool.map(write, range(0, count, CHUNK)))
    _write_table(
        folder / "train.csv", "id,target", (f"{number},{_class_of(number, classes)}" for number in range(train))
    )
    _write_table(folder / "sample_submission.csv", "id,predict", (f"{number},0" for number in range(test)))
    return Project(root, slug)


def _write_table(path: Path, header: str, lines: Iterable[str]) -> None:
    with path.open("w") as file:
        file.writelines(f"{line}\n" for line in (header, *lines))


def _is_copy(number: int) -> bool:
    return number % 1000 == 999


def _class_of(number: int, classes: int) -> int:
    """Returns the class; the larger its number, the rarer it is."""
    original = number - _is_copy(number)
    share = (original * 7919 % 100_003) / 100_003
    return int(classes * share**2)


def _write_images(folder: Path, classes: int, size: tuple[int, int], count: int, start: int) -> None:
    cv2.setNumThreads(1)
    for number in range(start, min(start + CHUNK, count)):
        original = number - _is_copy(number)
        rng = np.random.default_rng([original, folder.name == "test_image"])
        patches = rng.integers(0, 256, (5, 4, 3), dtype=np.uint8)
        image = cv2.resize(patches, size, interpolation=cv2.INTER_CUBIC).astype(np.float32)
        stripes = np.sin(np.arange(size[1]) * (0.3 + 2.5 * _class_of(number, classes) / classes) + rng.uniform(0, 6))
        image += 60 * stripes[:, None, None].astype(np.float32)
        quality = 80 if number == original else 70
        cv2.imwrite(f"{folder}/{number}.jpg", image.clip(0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, quality])


# --- a larger set of a small one ---------------------------------------------------------------------

LEAST_CUT = 0.8  # of an image's sides
LIGHT = 0.2  # at most, more or less


def enlarge(source: Path, slug: str, root: Path, count: int = 35_551) -> None:
    """Writes the competition `large`, whose training images are parts of those of SLUG, lighter or darker, 60 x 80 px.

    The column `source` keeps those of one image in one fold.
    """
    competition, folder, rng = load(slug, source), raw_folder("large", root), np.random.default_rng(0)
    rows, lines = images_of(competition), []
    for name in ("train_image", "test_image"):
        (folder / name).mkdir(parents=True)
    for number in range(count):
        image_id, label, image = rows[["id", "label", "image"]].iloc[number % len(rows)]
        cv2.imwrite(str(folder / "train_image" / f"{number}.jpg"), _changed(_read(image), rng))
        lines.append(f"{number},{label},{image_id}")
    tests = tests_of(competition)["image"]
    for number, image in enumerate(tests):
        cv2.imwrite(str(folder / "test_image" / f"{number}.jpg"), cv2.resize(_read(image), (60, 80)))
    _write_table(folder / "train.csv", "id,target,source", lines)
    answers = (f"{number},{competition.classes[0]}" for number in range(len(tests)))
    _write_table(folder / "sample_submission.csv", "id,target", answers)
    card_path("large", root).parent.mkdir(parents=True, exist_ok=True)
    card_path("large", root).write_text(f'metric = "{competition.metric}"\ngroup_column = "source"\n')


def _read(path: str) -> Image:
    image = cv2.imread(path)
    assert image is not None, path
    return np.asarray(image, np.uint8)


def _changed(image: Image, rng: np.random.Generator) -> Image:
    height, width = image.shape[:2]
    share = rng.uniform(LEAST_CUT, 1.0)
    high, wide = max(1, int(height * share)), max(1, int(width * share))
    top, left = rng.integers(height - high + 1), rng.integers(width - wide + 1)
    part = cv2.resize(image[top : top + high, left : left + wide], (60, 80), interpolation=cv2.INTER_AREA)
    return np.asarray((part * rng.uniform(1 - LIGHT, 1 + LIGHT)).clip(0, 255), np.uint8)


if __name__ == "__main__":
    call(held, few, halves, enlarge)
