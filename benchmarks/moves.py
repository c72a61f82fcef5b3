"""Measures what wins elsewhere: does a move help here, on images whose labels training never sees?

    python -m benchmarks.moves ROOT WORK SLUG... [--scenes few random ...] [--moves pseudo ...] [--size 64]

ROOT holds competitions. Of each, a scene makes another one below WORK, with trouble planted in it and a hidden test of
its own. There, runs are trained without the move and with it, two folds of four each. The runs stay in WORK, so the
same command goes on. It ends with a table: the mean accuracy (with a long tail: the mean over the classes) of the seeds
on the hidden test, its difference from the runs without the move, with the standard error of the paired differences and
with the 95 % interval of `Gain` over the hidden images, and the same difference on held-out images, which is all that a
user sees. The tables of "What wins elsewhere", "Few steps" and "Images without labels".
"""

import json
import shutil
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from benchmarks.harness import Project, call, gain, head, row
from benchmarks.sets import images_of, is_right, write_set
from podium.blending.gain import gain_of
from podium.blending.held_out import HeldOut
from podium.competition.card import card_path
from podium.competition.load import load, raw_folder
from podium.options.moves.seen_parts import FOUND_BY
from podium.tasks.task import ONE_LABEL, Targets

MODEL, FOLDS = "tf_efficientnet_lite0", "0,1"
TEST_SHARE, MOST_TEST, MOST_TRAIN = 0.4, 1500, 1000  # images
OTHER = 10  # more than the seed of a run: the seed of the run that is averaged with it
UNKNOWN = "unknown"  # the class of test images whose own class training does not know
Plant = Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]  # of rows: id, label, image


class Scene(NamedTuple):
    """A kind of trouble, and the moves against it: flags of `podium train`, or what is done with finished runs.

    `soup` averages the weights of the runs that follow, `blend` their probabilities; `fitted` is the run that follows,
    with the decision that `podium submit` fits, and without it none is fitted. `{base}` is the name of the run without
    the move, `{other}` of such a run with another seed, `{head}` and `{on}` of the runs of these moves, `{folder}` the
    competition's folder, and `{larger}` one and a half times its size, `{longer}` twice its epochs. `{finder}` is a run
    of all folds that predicts the boxes of small objects.
    """

    plant: Plant
    moves: dict[str, str]
    card: str = ""  # `{slug}` is the competition's name, `{unknown}` the share of unknown test images
    outside: float = 0.0  # the share of the training images that come from elsewhere
    is_labelled: bool = True  # that share
    background: int = 0  # patches a side of it: the images are small objects on it, with a table of their boxes
    is_of_all: bool = False  # the trouble, of the test images, too
    by_class: bool = False  # the score is the mean over the classes
    base: str = ""  # flags of the run without a move, where the card would use it


def as_it_is(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return rows


def few_labels(rows: pd.DataFrame, rng: np.random.Generator, share: float = 0.25) -> pd.DataFrame:
    """Leaves a few labelled images of each class; the hidden test is as large as it was."""
    few = rows.groupby("label", group_keys=False).sample(frac=share, random_state=0)
    least = rows.groupby("label", group_keys=False).head(8)
    return rows[rows["id"].isin({*few["id"], *least["id"]})]


def wrong_labels(rows: pd.DataFrame, rng: np.random.Generator, is_random: bool) -> pd.DataFrame:
    """Gives a fifth of the images any other label, or that of the class that follows theirs."""
    classes = sorted(rows["label"].unique())
    wrong = rng.random(len(rows)) < 0.2
    others = rows["label"].map({name: classes[(number + 1) % len(classes)] for number, name in enumerate(classes)})
    if is_random:
        others = [rng.choice([name for name in classes if name != label]) for label in rows["label"]]
    return rows.assign(label=np.where(wrong, others, rows["label"]))


def hidden_classes(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Calls a third of the classes unknown."""
    classes = rng.permutation(sorted(rows["label"].unique()))
    is_hidden = rows["label"].isin(classes[: round(len(classes) / 3)])
    return rows.assign(label=rows["label"].mask(is_hidden, UNKNOWN))


def long_tail(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Leaves of each class fewer images than of the class before it: of the last one a fortieth."""
    classes = rng.permutation(sorted(rows["label"].unique()))
    most, last = rows["label"].value_counts().max(), max(1, len(classes) - 1)
    kept = {name: max(4, round(most * 40 ** (-number / last))) for number, name in enumerate(classes)}
    return pd.concat([rows[rows["label"] == name].head(count) for name, count in kept.items()])


PSEUDO = {"pseudo": "--pseudo {base}", "longer": "--epochs {longer}"}
CLEANING = {"drop": "--clean drop", "soften": "--clean soften"}
SCENES = {
    "plain": Scene(
        as_it_is,
        {
            "finish": "--finish {larger}:2",
            "larger": "--image-size {larger}",
            "pseudo": "--pseudo {base}",
            "fold 2": "--folds 0,1,2",
            "all": "--folds 0,1,all",
            "soup": "soup {base} {other}",
            "blend": "blend {base} {other}",
            "head": "--linear",
            "wise": "soup {base} {head}",
        },
    ),
    "outside": Scene(
        as_it_is,
        {
            "extra": "",
            "extra 0.3": "--extra-weight 0.3",
            "head": "--linear --extra-weight 0",
            "head extra": "--linear",
        },
        '[[extra]]\nfolder = "data/extra/{slug}"\n',
        outside=0.5,
        base="--extra-weight 0",
    ),
    "unlabelled": Scene(
        as_it_is, PSEUDO, '[[unlabelled]]\nfolder = "data/extra/{slug}"\n', outside=0.7, is_labelled=False
    ),
    "third": Scene(as_it_is, PSEUDO, outside=0.7, is_labelled=False),
    "small": Scene(
        as_it_is,
        {
            "region": "--region {folder}/boxes.csv",
            "border": "--region border",
            "attention": f"--region {FOUND_BY}{{base}}",
            "found": "--region box:{finder}",
            "tiles": "--region tiles:3",
        },
        background=12,
    ),
    "bordered": Scene(as_it_is, {"border": "--region border"}, background=1),
    "few": Scene(
        few_labels,
        {
            "pseudo": "--pseudo {base}",
            "longer": "--epochs {longer}",
            "on": "--from {base} --pseudo {base} --epochs 3",
            "on blend": "blend {base} {on}",
        },
    ),
    "tenth": Scene(partial(few_labels, share=0.1), PSEUDO),
    "random": Scene(partial(wrong_labels, is_random=True), CLEANING),
    "confusable": Scene(partial(wrong_labels, is_random=False), CLEANING),
    "tail": Scene(
        long_tail,
        {
            "balance": "--balance 0.5",
            "adjust": "--adjust 1",
            "weights": "--class-weights balanced",
            "decision": "fitted {base}",
        },
        'metric = "balanced_accuracy"\n',
        by_class=True,
    ),
    "strangers": Scene(
        hidden_classes,
        {"decision": "fitted {base}"},
        f'unknown = "{UNKNOWN}"\nunknown_share = {{unknown:.2f}}\nmetric = "accuracy"\n',
        is_of_all=True,
    ),
}


# --- competitions ------------------------------------------------------------------------------------


def make_competition(root: Path, work: Path, slug: str, name: str) -> Project:
    """Writes the scene's competition, unless it is there, and makes its folds."""
    scene, own, source, rng = SCENES[name], f"{slug}-{name}", load(slug, root), np.random.default_rng(0)
    if (work / "data" / "prepared" / own / "folds.csv").exists():
        return Project(work, own)
    rows = images_of(source).sample(frac=1, random_state=0).reset_index(drop=True)
    rows["id"] = [f"{number:06}" for number in range(len(rows))]
    count = min(MOST_TEST, round(TEST_SHARE * len(rows)))
    if scene.background:
        made = [str(work / "made" / own / f"{number}.jpg") for number in rows["id"]]
        boxes = [paste_small(*paths, rng, scene.background) for paths in zip(rows["image"], made, strict=True)]
        rows["image"] = made
    if scene.is_of_all:
        rows = scene.plant(rows, rng)
    test, train = rows[:count], rows[count : count + MOST_TRAIN]
    train = train if scene.is_of_all else scene.plant(train, rng)
    train = train[train["label"] != UNKNOWN]
    outside, train = train[: round(scene.outside * len(train))], train[round(scene.outside * len(train)) :]
    for image in outside.itertuples():
        place = work / "data" / "extra" / own / (image.label if scene.is_labelled else "")
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(image.image, place / f"{image.id}{Path(image.image).suffix}")
    recipe = "".join(f"{option} = {json.dumps(value)}\n" for option, value in source.recipe.items())
    card = f"{scene.card.format(slug=own, unknown=(test['label'] == UNKNOWN).mean())}[recipe]\n{recipe}"
    project = write_set(work, own, train.sort_values("id"), test.sort_values("id"), card)
    if scene.background:
        boxes_of = pd.DataFrame(boxes, rows["id"], ["x", "y", "width", "height"])
        boxes_of = boxes_of.loc[[*train["id"], *test["id"]]]
        boxes_of.to_csv(raw_folder(own, work) / "boxes.csv")
        write_places(project, train, boxes_of)
    project.podium("folds", "--k", "4")
    return project


def write_places(project: Project, train: pd.DataFrame, boxes: pd.DataFrame) -> None:
    """Writes the competition whose answers are the boxes of the same images."""
    places = Project(project.root, f"{project.slug}-boxes")
    folder = raw_folder(places.slug, places.root)
    folder.mkdir(parents=True)
    for name in ("train", "test"):
        (folder / name).symlink_to(raw_folder(project.slug, project.root) / name)
    corners = boxes.assign(right=boxes["x"] + boxes["width"], bottom=boxes["y"] + boxes["height"])
    corners = corners.rename(columns={"x": "left", "y": "top"})[["left", "top", "right", "bottom"]]
    corners.loc[train["id"]].to_csv(folder / "train.csv")
    corners.drop(index=train["id"]).assign(left=0, top=0, right=1, bottom=1).to_csv(folder / "sample_submission.csv")
    card_path(places.slug, places.root).write_text('task = "numbers"\nmetric = "mae"\n')
    places.podium("folds", "--k", "4")


def paste_small(image: str, target: str, rng: np.random.Generator, patches: int) -> tuple[int, int, int, int]:
    """Writes the image at a third of its sides somewhere on a background of random colours; returns its box."""
    with Image.open(image) as opened:
        picture = opened.convert("RGB")
    side = min(3 * max(picture.size), 480)
    picture.thumbnail((side // 3, side // 3))
    colours = Image.fromarray(rng.integers(256, size=(patches, patches, 3), dtype=np.uint8))
    background = colours.resize((side, side), Image.Resampling.BICUBIC)
    x, y = (int(rng.integers(side - own + 1)) for own in picture.size)
    background.paste(picture, (x, y))
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    background.save(target, quality=92)
    return x, y, *picture.size


# --- runs and their scores ---------------------------------------------------------------------------


def moves(
    root: Path,
    work: Path,
    slugs: list[str],
    scenes: tuple[str, ...] = tuple(SCENES),
    moves: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (0, 1, 2),
    size: int = 64,
    epochs: int = 6,
) -> None:
    for name in scenes:
        scene = SCENES[name]
        chosen = {"base": scene.base, **{move: w for move, w in scene.moves.items() if not moves or move in moves}}
        for slug in slugs:
            project = make_competition(root, work, slug, name)
            train = partial(scores_of, project, scene, size, epochs)
            found: dict[str, list[Scores]] = {move: [] for move in chosen}
            for seed in seeds:
                names = {"base": f"base-{seed}", "other": f"base-{seed + OTHER}", "head": f"head-{seed}"}
                names |= {"on": f"on-{seed}", "larger": str(3 * size // 2), "longer": str(2 * epochs)}
                names["finder"] = f"{project.slug}-boxes/finder-{seed}"
                for move, text in chosen.items():
                    if "{other}" in text:
                        train(names["other"], scene.base.split(), seed + OTHER)
                    if "{finder}" in text:
                        longer = ("--model", MODEL, "--image-size", size, "--epochs", 2 * epochs, "--seed", seed)
                        Project(work, f"{project.slug}-boxes").train(f"finder-{seed}", *longer, folds="0,1,2,3")
                    words = text.format(**names, folder=raw_folder(project.slug, work)).split()
                    one = train(f"{move.replace(' ', '-')}-{seed}", words, seed)
                    found[move].append(one)
                    print(f"  {project.slug} {move} {seed}: hidden {one[0]:.4f}, held out {one[1]:.4f}", flush=True)
            print(f"\n{project.slug}: {len(seeds)} seeds, {MODEL} at {size} px, {epochs} epochs\n")
            head("move", "hidden test", "gain", "95 % over images", "gain on held-out images")
            for move, own in found.items():
                gains = [gain([s.scores[k] for s in own], [s.scores[k] for s in found["base"]], 100, 1) for k in (0, 1)]
                cells = [gains[0], "" if scene.by_class else over_images(own, found["base"]), gains[1]]
                row(move, f"{statistics.mean(s.hidden for s in own):.4f}", *([""] * 3 if move == "base" else cells))
            print(flush=True)


class Scores(NamedTuple):
    hidden: float
    held_out: float
    right: NDArray[np.bool_]  # whether each image of the hidden test is

    @property
    def scores(self) -> tuple[float, float]:
        return self.hidden, self.held_out


def over_images(own: list[Scores], base: list[Scores]) -> str:
    """Returns the 95 % interval of the gain of all seeds over images of the hidden test, in points."""
    before, after = (np.concatenate([one.right for one in scores]) for scores in (base, own))
    images = np.tile(np.arange(len(own[0].right)), len(own))
    held_out = HeldOut(np.zeros(0), Targets(ONE_LABEL, np.zeros(len(images), np.int64)), images, images)
    answers = [np.stack([right, ~right], 1).astype(np.float64) for right in (before, after)]  # class 0 is the right one
    low, high = gain_of(held_out, answers[0], answers[1], "accuracy").interval
    return f"{100 * low:+.1f} to {100 * high:+.1f}"


def scores_of(
    project: Project, scene: Scene, size: int, epochs: int, name: str, words: Sequence[str], seed: int
) -> Scores:
    """Trains a run, unless it is there; returns the score of its folds' mean on the hidden test, and that held out."""
    run, runs, decision = project.run(name), [name], "none"
    if words[:1] in (["blend"], ["fitted"]):
        run, runs = project.run(words[1]), list(words[1:])
        decision = "auto" if words[0] == "fitted" else "none"
    elif words[:1] == ["soup"]:
        if not run.path.exists():
            project.podium("soup", *words[1:], "--name", name)
    else:
        # A run that goes on from another has its model, and asks for other epochs.
        model = () if "--from" in words else ("--model", MODEL, "--image-size", size)
        length = () if {"--epochs", "--linear"} & {*words} else ("--epochs", epochs)
        for word in words:
            if word.startswith(FOUND_BY) and not run.path.exists():
                project.podium("explain", word.removeprefix(FOUND_BY), "--regions")
        project.train(name, "--seed", seed, *model, *length, *words, folds=FOLDS)
    right = is_right(project, project.submit(name, "--runs", *runs, "--decision", decision, "--anyway"))
    metric = "balanced_accuracy" if scene.by_class else "accuracy"
    held_out = statistics.mean(run.score(fold, metric) for fold in (0, 1))
    hidden = right.groupby(level=0).mean().mean() if scene.by_class else right.mean()
    return Scores(float(hidden), held_out, right.to_numpy())


if __name__ == "__main__":
    call(moves)
