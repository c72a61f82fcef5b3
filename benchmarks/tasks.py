"""Measures every task on handwritten digits, from the files to the score of the submission, against simple answers.

    python docs/measure_tasks.py ROOT [TASK ...]

Makes competitions of scikit-learn's digits, 1,797 images of 8 x 8 pixels, of which a fifth are test images:

    labels     two digits side by side, any of the ten
    grade      the digit itself, scored by quadratic kappa
    number     the digit itself, scored by RMSE
    columns    of two digits, the left one and whether the right one is odd
    ranking    the three most probable digits
    bags       four images: three of a digit and a stranger
    signs      four images, of which one may be a 7

For each it runs `podium folds`, `train` and `submit`, and prints the score of the submission on the test images beside
that of a constant answer.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from podium.competition.load import load
from podium.tasks.metrics import METRICS, evaluate
from podium.tasks.task import ONE_LABEL, SEVERAL_TARGETS, Targets

Ints = NDArray[np.int64]
TRAIN = ("--model", "resnet10t", "--image-size", "32", "--weights", "none", "--epochs", "12", "--mirror", "0")
FOLDS = 3
STRANGERS = {"bags": 1, "signs": 3}  # of four images


class Digits:
    """The digits, as grey images of 32 x 32 pixels; test images are always the same ones."""

    def __init__(self) -> None:
        digits = load_digits()
        pixels = (digits.images * 255 / 16).astype(np.uint8)
        self.images = pixels.repeat(4, axis=1).repeat(4, axis=2)
        self.labels: Ints = digits.target.astype(np.int64)
        order = np.random.default_rng(0).permutation(len(self.labels))
        self.train, self.test = order[len(order) // 5 :], order[: len(order) // 5]


class Writer:
    """Writes a competition: images, train.csv, sample_submission.csv and a table of the true answers."""

    def __init__(self, root: Path, slug: str, metric: str) -> None:
        self.folder, self.slug = root / "data" / "raw" / slug, slug
        card = root / "data" / "competitions" / f"{slug}.toml"
        card.parent.mkdir(parents=True, exist_ok=True)
        card.write_text(f'metric = "{metric}"\n')
        self.truth = root / f"{slug}.truth.csv"

    def image(self, role: str, name: str, pixels: NDArray[np.uint8]) -> None:
        path = self.folder / role / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)

    def tables(self, **tables: pd.DataFrame) -> None:
        for name, table in tables.items():
            path = self.truth if name == "truth" else self.folder / f"{name}.csv"
            table.to_csv(path, index=False)


def write_single(root: Path, slug: str, metric: str, answer: str, placeholder: str) -> None:
    """One digit an image; the answer is the digit."""
    digits, writer = Digits(), Writer(root, slug, metric)
    rows = {}
    for role, numbers in (("train", digits.train), ("test", digits.test)):
        for number in numbers:
            writer.image(role, f"d{number}", digits.images[number])
        rows[role] = pd.DataFrame({"id": [f"d{n}" for n in numbers], answer: digits.labels[numbers]})
    writer.tables(
        train=rows["train"], sample_submission=rows["test"].assign(**{answer: placeholder}), truth=rows["test"]
    )


def write_pairs(root: Path, slug: str, metric: str, in_columns: bool) -> None:
    """Two digits side by side: a column of 0 and 1 for each digit, or a column for each side."""
    digits, writer, rng = Digits(), Writer(root, slug, metric), np.random.default_rng(1)
    rows = {}
    for role, numbers in (("train", digits.train), ("test", digits.test)):
        partners = rng.permutation(numbers)
        for left, right in zip(numbers, partners, strict=True):
            writer.image(role, f"d{left}", np.hstack([digits.images[left], digits.images[right]]))
        left_labels, right_labels = digits.labels[numbers], digits.labels[partners]
        if in_columns:
            columns = {"left": left_labels, "right": np.where(right_labels % 2, "odd", "even")}
        else:
            columns = {f"is_{d}": ((left_labels == d) | (right_labels == d)).astype(int) for d in range(10)}
        rows[role] = pd.DataFrame({"id": [f"d{n}" for n in numbers], **columns})
    placeholders = {"left": 0, "right": "odd"} if in_columns else {f"is_{d}": 0.5 for d in range(10)}
    writer.tables(train=rows["train"], sample_submission=rows["test"].assign(**placeholders), truth=rows["test"])


def write_groups(root: Path, slug: str, metric: str) -> None:
    """Four images in a group: three of a digit and a stranger, or strangers that may hide a 7."""
    digits, writer, rng = Digits(), Writer(root, slug, metric), np.random.default_rng(2)
    images, truth = {}, {}
    for role, numbers in (("train", digits.train), ("test", digits.test)):
        left, rows, answers = list(rng.permutation(numbers)), [], []
        of_digit = {d: [n for n in left if digits.labels[n] == d] for d in range(10)}
        for group in range(len(numbers) // 4):
            largest = max(of_digit, key=lambda d: len(of_digit[d]))
            if slug.endswith("bags"):
                chosen, answer = [of_digit[largest].pop() for _ in range(min(3, len(of_digit[largest])))], str(largest)
            else:
                answer = str(int(group % 2 == 0 and bool(of_digit[7])))
                chosen = [of_digit[7].pop()] if answer == "1" else []
            others = [d for d in of_digit if of_digit[d] and d not in (largest if slug.endswith("bags") else 7, 7)]
            while len(chosen) < 4 and others:
                chosen.append(of_digit[others[int(rng.integers(len(others)))]].pop())
                others = [d for d in others if of_digit[d]]
            for number in chosen:
                writer.image(role, f"d{number}", digits.images[number])
                rows.append([f"d{number}", f"{role}{group}", answer])
            answers.append([f"{role}{group}", answer])
        images[role] = pd.DataFrame(rows, columns=["image_id", "group_id", "label"])
        truth[role] = pd.DataFrame(answers, columns=["group_id", "label"])
    sample = truth["test"][["group_id"]]
    sample = sample.assign(label="0" if slug.endswith("bags") else 0.5)
    writer.tables(
        train=images["train"],
        test=images["test"][["image_id", "group_id"]],
        sample_submission=sample,
        truth=truth["test"],
    )


TASKS: dict[str, tuple[str, Callable[[Path, str, str], None]]] = {
    "labels": ("macro_f1", lambda root, slug, metric: write_pairs(root, slug, metric, in_columns=False)),
    "grade": ("quadratic_kappa", lambda root, slug, metric: write_single(root, slug, metric, "grade", "0")),
    "number": ("rmse", lambda root, slug, metric: write_single(root, slug, metric, "value", "4.5")),
    "columns": ("mean_recall", lambda root, slug, metric: write_pairs(root, slug, metric, in_columns=True)),
    "ranking": ("map_at_3", lambda root, slug, metric: write_single(root, slug, metric, "digit", "1 2 3")),
    "bags": ("accuracy", write_groups),
    "signs": ("log_loss", write_groups),
}


def podium(root: Path, *words: str) -> str:
    command = [sys.executable, "-m", "podium", "--root", str(root), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.strip()


def scores(root: Path, slug: str, csv: Path) -> tuple[float, float]:
    """Returns the score of the submission on the test images, and that of the best constant answer."""
    competition = load(slug, root)
    answers, truth = (pd.read_csv(path, dtype=str) for path in (csv, root / f"{slug}.truth.csv"))
    assert answers.iloc[:, 0].tolist() == truth.iloc[:, 0].tolist()
    classes, task = list(competition.classes), competition.task
    train = competition.targets
    if task is ONE_LABEL:
        targets = task.encode(truth.iloc[:, 1], classes)
        probs = np.zeros((len(targets), len(classes)))
        for row, cell in enumerate(answers.iloc[:, 1]):
            if competition.submission_format.wants == "probs":
                probs[row] = [1 - float(cell), float(cell)]
            else:
                for place, label in enumerate(cell.split()):
                    probs[row, classes.index(label)] = 1 / (1 + place)
        shares = train.counts(len(classes)) / len(train)
    elif task is SEVERAL_TARGETS:
        columns = list(answers.columns[1:])
        targets, answered = (
            task.encode(["|".join(f"{name}={row[name]}" for name in columns) for _, row in table.iterrows()], classes)
            for table in (truth, answers)
        )
        probs, shares = answered.values * 1.0, train.values.mean(0)
    else:
        targets = Targets(task, truth.iloc[:, 1:].to_numpy(train.values.dtype))
        probs, shares = answers.iloc[:, 1:].to_numpy(np.float64), train.values.mean(0)
    constant = np.tile(shares, (len(targets), 1))
    return evaluate(competition.metric, targets, probs), evaluate(competition.metric, targets, constant)


def main(root: Path, tasks: list[str]) -> None:
    print("| task | metric | constant | without decision | submitted | decision or pooling | seconds |")
    print("| --- " * 7 + "|", flush=True)
    for name in tasks:
        metric, write = TASKS[name]
        slug, started = f"digits-{name}", time.monotonic()
        write(root, slug, metric)
        podium(root, "folds", "-c", slug, "--k", str(FOLDS))
        podium(root, "train", "-c", slug, *TRAIN)
        csv = Path(podium(root, "submit", "-c", slug, "--name", "decided"))
        plain = Path(podium(root, "submit", "-c", slug, "--name", "plain", "--decision", "none"))
        lineage = load_json(csv.with_suffix(".json"))
        decision = lineage.get("decision") or {}
        taken = decision["kind"].replace("_", " ") if decision.get("is_taken") else "none"
        taken += f", {lineage['blend']['pooling']}" if "pooling" in lineage["blend"] else ""
        (decided, constant), (undecided, _) = scores(root, slug, csv), scores(root, slug, plain)
        assert METRICS[metric]().better * (decided - constant) > 0
        numbers = f"{constant:.4f} | {undecided:.4f} | {decided:.4f}"
        print(f"| {name} | {metric} | {numbers} | {taken} | {time.monotonic() - started:.0f} |", flush=True)


def load_json(path: Path) -> dict[str, dict[str, str]]:
    import json

    content: dict[str, dict[str, str]] = json.loads(path.read_text())
    return content


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    arguments = parser.parse_args()
    main(arguments.root, arguments.tasks or list(TASKS))
