"""Measures what wins elsewhere: does a move help here, on images whose labels training never sees?

    python docs/measure_moves.py ROOT WORK -c SLUG [SLUG ...] [--scenes few random ...] [--moves pseudo ...] [--size 64]

ROOT holds competitions. Of each, a scene makes another one below WORK, with trouble planted in it and a hidden test of
its own. There, runs are trained without the move and with it, two folds of four each. The runs stay in WORK, so the
same command goes on. It ends with a table: the mean accuracy (with a long tail: the mean over the classes) of the seeds
on the hidden test, its difference from the runs without the move, with the standard error of the paired differences,
and the same difference on held-out images, which is all that a user sees.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

from podium.competition.load import load
from podium.options.moves.seen_parts import FOUND_BY
from podium.saved_runs.run_folder import Run

MODEL, FOLDS = "tf_efficientnet_lite0", (0, 1)
TEST_SHARE, MOST_TEST, MOST_TRAIN = 0.4, 1500, 1000  # images
Words = Sequence[str]
# The negative control: all folds' models label the test images together, and every fold learns these labels.
NAIVE: Words = ("naive",)
SOUP = "soup"  # a move that begins with it averages the weights of the runs that follow
OTHER = 10  # more than the seed of a run: the seed of the run that is averaged with it
BLEND = "blend"  # or the probabilities: what the soup is compared with
FITTED = "fitted"  # the run that follows, with the decision that `podium submit` fits; without it, none is fitted
UNKNOWN = "unknown"  # the class of test images whose own class training does not know


class Length(NamedTuple):
    """What makes a run long."""

    size: int  # px
    epochs: int


class Scene(NamedTuple):
    """A kind of trouble, and the moves against it.

    In the flags of a move, `{base}` is the name of the run without it, `{other}` of such a run with another seed,
    `{on}` of the run that goes on from it, `{folder}` the competition's folder, and `{larger}` one and a half times its
    size, `{longer}` twice its epochs.
    """

    plant: Callable[[pd.DataFrame, np.random.Generator], pd.DataFrame]  # of the training rows: id, label, image
    moves: dict[str, Words]
    card: str = ""  # `{slug}` is the competition's name, `{unknown}` the share of unknown test images
    outside: float = 0.0  # the share of the training images that come from elsewhere
    is_small: bool = False  # the objects, each on a larger background, with a table of their boxes
    is_plain: bool = False  # that background, of one random colour
    is_of_all: bool = False  # the trouble, of the test images, too
    metric: str = "accuracy"


def as_it_is(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    return rows


def few_labels(rows: pd.DataFrame, rng: np.random.Generator, share: float = 0.25) -> pd.DataFrame:
    """Leaves a few labelled images of each class; the hidden test is as large as it was."""
    few = rows.groupby("label", group_keys=False).sample(frac=share, random_state=0)
    least = rows.groupby("label", group_keys=False).head(8)
    return rows[rows["id"].isin({*few["id"], *least["id"]})]


def random_noise(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Gives a fifth of the images any other label."""
    classes = sorted(rows["label"].unique())
    wrong = rng.random(len(rows)) < 0.2
    others = [rng.choice([name for name in classes if name != label]) for label in rows["label"]]
    return rows.assign(label=np.where(wrong, others, rows["label"]))


def confusable_noise(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Gives a fifth of the images the label of the class that follows theirs."""
    classes = sorted(rows["label"].unique())
    following = {name: classes[(number + 1) % len(classes)] for number, name in enumerate(classes)}
    wrong = rng.random(len(rows)) < 0.2
    return rows.assign(label=np.where(wrong, rows["label"].map(following), rows["label"]))


def hidden_classes(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Calls a third of the classes unknown."""
    classes = rng.permutation(sorted(rows["label"].unique()))
    is_hidden = rows["label"].isin(classes[: round(len(classes) / 3)])
    return rows.assign(label=rows["label"].mask(is_hidden, UNKNOWN))


def long_tail(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Leaves of each class fewer images than of the class before it: of the last one a fortieth."""
    classes = rng.permutation(sorted(rows["label"].unique()))
    most = rows["label"].value_counts().max()
    kept = {
        name: max(4, round(most * 40 ** (-number / max(1, len(classes) - 1)))) for number, name in enumerate(classes)
    }
    return pd.concat([rows[rows["label"] == name].head(count) for name, count in kept.items()])


SCENES = {
    "plain": Scene(
        as_it_is,
        {
            "finish": ("--finish", "{larger}:2"),
            "larger": ("--image-size", "{larger}"),
            "pseudo": ("--pseudo", "{base}"),
            "fold 2": ("--folds", "0,1,2"),
            "all": ("--folds", "0,1,all"),
            "soup": (SOUP, "{base}", "{other}"),
            "blend": (BLEND, "{base}", "{other}"),
            "head": ("--linear",),
            "wise": (SOUP, "{base}", "{head}"),
        },
    ),
    "outside": Scene(
        as_it_is,
        {
            "extra": (),
            "extra 0.3": ("--extra-weight", "0.3"),
            "head": ("--linear", "--extra-weight", "0"),
            "head extra": ("--linear",),
        },
        '[[extra]]\nfolder = "data/extra/{slug}"\n',
        outside=0.5,
    ),
    "small": Scene(
        as_it_is,
        {
            "region": ("--region", "{folder}/boxes.csv"),
            "border": ("--region", "border"),
            "attention": ("--region", f"{FOUND_BY}{{base}}"),
        },
        is_small=True,
    ),
    "bordered": Scene(as_it_is, {"border": ("--region", "border")}, is_small=True, is_plain=True),
    "few": Scene(
        few_labels,
        {
            "pseudo": ("--pseudo", "{base}"),
            "naive": NAIVE,
            "longer": ("--epochs", "{longer}"),
            "on": ("--from", "{base}", "--pseudo", "{base}", "--epochs", "3"),
            "on blend": (BLEND, "{base}", "{on}"),
        },
    ),
    "tenth": Scene(
        partial(few_labels, share=0.1), {"pseudo": ("--pseudo", "{base}"), "longer": ("--epochs", "{longer}")}
    ),
    "random": Scene(random_noise, {"drop": ("--clean", "drop"), "soften": ("--clean", "soften")}),
    "confusable": Scene(confusable_noise, {"drop": ("--clean", "drop"), "soften": ("--clean", "soften")}),
    "tail": Scene(
        long_tail,
        {
            "balance": ("--balance", "0.5"),
            "adjust": ("--adjust", "1"),
            "weights": ("--class-weights", "balanced"),
            "decision": (FITTED, "{base}"),
        },
        'metric = "balanced_accuracy"\n',
        metric="balanced_accuracy",
    ),
    "strangers": Scene(
        hidden_classes,
        {"decision": (FITTED, "{base}")},
        f'unknown = "{UNKNOWN}"\nunknown_share = {{unknown:.2f}}\nmetric = "accuracy"\n',
        is_of_all=True,
    ),
}
# Of a scene whose card would use the move.
BASE: dict[str, Words] = {"outside": ("--extra-weight", "0")}


# --- competitions ------------------------------------------------------------------------------------


def make_competition(root: Path, work: Path, slug: str, name: str) -> str:
    """Writes the scene's competition, with its hidden labels beside it, and makes its folds; returns its slug."""
    scene, own = SCENES[name], f"{slug}-{name}"
    folder, hidden = work / "data" / "raw" / own, work / "data" / f"{own}-hidden.csv"
    if hidden.exists():
        return own
    source = load(slug, root)
    rng = np.random.default_rng(0)
    rows = source.train.rename(columns={"target": "label"}).sample(frac=1, random_state=0).reset_index(drop=True)
    rows["image"] = [str(source.folder / image) for image in rows["image"]]
    rows["id"] = [f"{number:06}" for number in range(len(rows))]
    count = min(MOST_TEST, round(TEST_SHARE * len(rows)))
    if scene.is_of_all:
        rows = scene.plant(rows, rng)
    test, train = rows[:count], rows[count : count + MOST_TRAIN]
    train = train if scene.is_of_all else scene.plant(train, rng)
    train = train[train["label"] != UNKNOWN]
    outside, train = train[: round(scene.outside * len(train))], train[round(scene.outside * len(train)) :]
    for image in outside.itertuples():
        place = work / "data" / "extra" / own / image.label
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(image.image, place / f"{image.id}{Path(image.image).suffix}")
    boxes = []
    for part, images in (("train", train), ("test", test)):
        (folder / part).mkdir(parents=True)
        for image, number in zip(images["image"], images["id"], strict=True):
            if scene.is_small:
                boxes.append((number, *paste_small(image, folder / part / f"{number}.jpg", rng, scene.is_plain)))
            else:
                shutil.copy(image, folder / part / f"{number}{Path(image).suffix}")
    if boxes:
        pd.DataFrame(boxes, columns=["id", "x", "y", "width", "height"]).to_csv(folder / "boxes.csv", index=False)
    columns = [column for column in ("id", "label", "fine") if column in train]
    train.sort_values("id")[columns].to_csv(folder / "train.csv", index=False)
    test = test.sort_values("id")[["id", "label"]]
    test.assign(label=train["label"].iloc[0]).to_csv(folder / "sample_submission.csv", index=False)
    (work / "data" / "competitions").mkdir(parents=True, exist_ok=True)
    recipe = "".join(f"{option} = {json.dumps(value)}\n" for option, value in source.recipe.items())
    card = f"{scene.card.format(slug=own, unknown=(test['label'] == UNKNOWN).mean())}[recipe]\n{recipe}"
    (work / "data" / "competitions" / f"{own}.toml").write_text(card)
    podium(work, "folds", "-c", own, "--k", "4")
    test.to_csv(hidden, index=False)
    return own


def paste_small(image: str, target: Path, rng: np.random.Generator, is_plain: bool) -> tuple[int, int, int, int]:
    """Writes the image at a third of its sides somewhere on a background of random colours, or one; returns its box."""
    with Image.open(image) as opened:
        picture = opened.convert("RGB")
    side = 3 * max(picture.size)
    side = min(side, 480)
    picture.thumbnail((side // 3, side // 3))
    count = 1 if is_plain else 12
    colours = Image.fromarray(rng.integers(256, size=(count, count, 3), dtype=np.uint8))
    background = colours.resize((side, side), Image.Resampling.BICUBIC)
    x, y = (int(rng.integers(side - own + 1)) for own in picture.size)
    background.paste(picture, (x, y))
    background.save(target, quality=92)
    return x, y, *picture.size


def podium(work: Path, *words: str) -> None:
    """Runs a command; its messages are shown if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "podium", "--root", str(work), *words], capture_output=True, text=True, env=os.environ
    )
    if done.returncode:
        raise SystemExit(f"podium {' '.join(words)}\n{done.stderr[-2000:]}")


# --- runs and their scores ---------------------------------------------------------------------------


class Scores(NamedTuple):
    hidden: float
    held_out: float


def train(work: Path, slug: str, run: str, words: Words, seed: int, length: Length) -> Scores:
    """Trains a run, unless it is there, and returns the score of its folds' mean on the hidden test."""
    path, runs, decision = work / "runs" / slug / run, [run], "none"
    if words[:1] in ([BLEND], [FITTED]):
        path, runs = work / "runs" / slug / words[1], list(words[1:])
        decision = "auto" if words[0] == FITTED else "none"
    elif words[:1] == [SOUP] and not path.exists():
        podium(work, "soup", "-c", slug, *words[1:], "--name", run)
    elif len(Run(path).finished()) < len(FOLDS):
        # A run that goes on from another has its model, and asks for other epochs.
        own = () if "--from" in words else ("--model", MODEL, "--image-size", str(length.size))
        epochs = () if {"--epochs", "--linear"} & {*words} else ("--epochs", str(length.epochs))
        folds = () if "--folds" in words else ("--folds", ",".join(map(str, FOLDS)))
        for word in words:
            if word.startswith(FOUND_BY):
                podium(work, "explain", word.removeprefix(FOUND_BY), "-c", slug, "--regions")
        podium(work, "train", "-c", slug, "--name", run, *folds, "--seed", str(seed), *own, *epochs, *words)
    if not (work / "submissions" / slug / f"{run}.csv").exists():
        podium(work, "submit", "-c", slug, "--runs", *runs, "--name", run, "--decision", decision, "--anyway")
    answers = pd.read_csv(work / "submissions" / slug / f"{run}.csv", dtype=str).set_index("id")["label"]
    truth = pd.read_csv(work / "data" / f"{slug}-hidden.csv", dtype=str).set_index("id")["label"]
    metric = SCENES[slug.partition("-naive")[0].rpartition("-")[2]].metric
    held_out = [Run(path).score(fold, metric) for fold in FOLDS]
    is_right = answers.loc[truth.index] == truth
    by_class = is_right.groupby(truth).mean().mean()
    return Scores(float(is_right.mean() if metric == "accuracy" else by_class), statistics.mean(held_out))


def train_naive(work: Path, slug: str, seed: int, length: Length) -> Scores:
    """Trains on test images with labels by the mean of all folds' models, which have seen what each fold holds out."""
    own, base = f"{slug}-naive{seed}", f"base-{seed}"
    folder, raw = work / "data" / "raw" / own, work / "data" / "raw" / slug
    if not (work / "data" / f"{own}-hidden.csv").exists():
        recipe = ("--model", MODEL, "--image-size", str(length.size))
        recipe = (*recipe, "--epochs", str(length.epochs), "--seed", str(seed))
        podium(work, "train", "-c", slug, "--name", base, *recipe, *BASE.get("few", ()))
        podium(work, "submit", "-c", slug, "--runs", base, "--name", f"{base}-all", "--decision", "none")
        labels = pd.read_csv(work / "submissions" / slug / f"{base}-all.csv", dtype=str)
        shutil.copytree(raw, folder)
        shutil.copytree(raw / "test", folder / "train", dirs_exist_ok=True)
        labelled = pd.read_csv(raw / "train.csv", dtype=str)
        pd.concat([labelled, labels]).to_csv(folder / "train.csv", index=False)
        (work / "data" / "competitions" / f"{own}.toml").write_text('train_images = "train"\ntest_images = "test"\n')
        prepared = work / "data" / "prepared"
        folds = pd.read_csv(prepared / slug / "folds.csv", dtype=str)[["id", "fold"]]
        (prepared / own).mkdir(parents=True, exist_ok=True)
        never = labels[["id"]].assign(fold="-1")
        pd.concat([folds, never]).to_csv(prepared / own / "folds.csv", index=False)
        shutil.copy(work / "data" / f"{slug}-hidden.csv", work / "data" / f"{own}-hidden.csv")
    return train(work, own, base, (), seed, length)


def measure(work: Path, slug: str, name: str, seeds: Sequence[int], length: Length, only: Sequence[str]) -> None:
    scene, found = SCENES[name], dict[str, list[Scores]]()
    moves = {
        "base": BASE.get(name, ()),
        **{move: words for move, words in scene.moves.items() if not only or move in only},
    }
    for seed in seeds:
        for move, words in moves.items():
            run = f"{move.replace(' ', '-')}-{seed}"
            names = {
                "base": f"base-{seed}",
                "other": f"base-{seed + OTHER}",
                "head": f"head-{seed}",
                "on": f"on-{seed}",
            }
            names |= {"larger": str(3 * length.size // 2), "longer": str(2 * length.epochs)}
            words = [word.format(**names, folder=work / "data" / "raw" / slug) for word in words]
            if names["other"] in words:
                train(work, slug, names["other"], moves["base"], seed + OTHER, length)
            naive = words == list(NAIVE)
            scores = train_naive(work, slug, seed, length) if naive else train(work, slug, run, words, seed, length)
            found.setdefault(move, []).append(scores)
            print(f"  {slug} {run}: hidden {scores.hidden:.4f}, held out {scores.held_out:.4f}", flush=True)
    print(f"\n{slug}: {len(seeds)} seeds, {MODEL} at {length.size} px, {length.epochs} epochs\n")
    print("| move | hidden test | gain | gain on held-out images |\n| --- | ---: | ---: | ---: |")
    for move, own in found.items():
        hidden = statistics.mean(scores.hidden for scores in own)
        gains = [differences(own, found["base"], field) for field in ("hidden", "held_out")]
        shown = ["", ""] if move == "base" else [f"{100 * gain:+.1f} ± {100 * error:.1f}" for gain, error in gains]
        print(f"| {move} | {hidden:.4f} | {shown[0]} | {shown[1]} |")
    print(flush=True)


def differences(scores: Sequence[Scores], base: Sequence[Scores], field: str) -> tuple[float, float]:
    """Returns the mean gain over the seeds, and its standard error."""
    gains = [getattr(own, field) - getattr(without, field) for own, without in zip(scores, base, strict=True)]
    error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
    return statistics.mean(gains), error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("-c", "--competitions", nargs="+", required=True, metavar="SLUG")
    parser.add_argument("--scenes", nargs="+", default=list(SCENES), choices=SCENES)
    parser.add_argument("--moves", nargs="+", default=[])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    given = parser.parse_args()
    for scene_name in given.scenes:
        for competition in given.competitions:
            planted = make_competition(given.root, given.work, competition, scene_name)
            measure(given.work, planted, scene_name, given.seeds, Length(given.size, given.epochs), given.moves)
