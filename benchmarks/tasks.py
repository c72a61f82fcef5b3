"""Measures every task on handwritten digits, from the files to the score of the submission, against a constant answer.

    python -m benchmarks.tasks ROOT [TASK ...]

Makes competitions of scikit-learn's digits, 1,797 images of 8 x 8 pixels, of which a fifth are test images:

    labels     two digits side by side, any of the ten
    grade      the digit itself, scored by quadratic kappa
    number     the digit itself, scored by RMSE
    columns    of two digits, the left one and whether the right one is odd
    ranking    the three most probable digits
    bags       four images: three of a digit and a stranger
    signs      four images, of which one may be a 7

For each it runs `podium folds`, `train` and `submit`, and prints `podium score` of the submission beside that of the
sample submission, which answers the same for all: the table "Every task".
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from benchmarks.harness import Project, call, head, row, seconds
from podium.competition.card import card_path
from podium.competition.load import raw_folder

TRAIN = ("--model", "resnet10t", "--image-size", "32", "--weights", "none", "--mirror", "0")
DIGITS = load_digits()
PIXELS = (DIGITS.images * 255 / 16).astype(np.uint8).repeat(4, axis=1).repeat(4, axis=2)
LABELS = DIGITS.target.astype(np.int64)
ORDER = np.random.default_rng(0).permutation(len(LABELS))
ROLES = {"train": ORDER[len(ORDER) // 5 :], "test": ORDER[: len(ORDER) // 5]}
Tables = dict[str, pd.DataFrame]


def write_image(folder: Path, role: str, number: int, pixels: NDArray[np.uint8]) -> str:
    path = folder / role / f"d{number}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path.stem


def single(folder: Path, answer: str, constant: object) -> Tables:
    """One digit an image; the answer is the digit."""
    rows = {
        role: pd.DataFrame({"id": [write_image(folder, role, n, PIXELS[n]) for n in numbers], answer: LABELS[numbers]})
        for role, numbers in ROLES.items()
    }
    return {"train": rows["train"], "sample": rows["test"].assign(**{answer: constant}), "truth": rows["test"]}


def pairs(folder: Path, in_columns: bool) -> Tables:
    """Two digits side by side: a column of 0 and 1 for each digit, or a column for each side."""
    rng, rows = np.random.default_rng(1), {}
    constants: dict[str, Any] = {"left": 0, "right": "odd"} if in_columns else {f"is_{d}": 0.2 for d in range(10)}
    for role, numbers in ROLES.items():
        partners = rng.permutation(numbers)
        names = [
            write_image(folder, role, left, np.hstack([PIXELS[left], PIXELS[right]]))
            for left, right in zip(numbers, partners, strict=True)
        ]
        left, right = LABELS[numbers], LABELS[partners]
        sides = {"left": left, "right": np.where(right % 2, "odd", "even")}
        digits = {f"is_{d}": ((left == d) | (right == d)).astype(int) for d in range(10)}
        rows[role] = pd.DataFrame({"id": names, **(sides if in_columns else digits)})
    return {"train": rows["train"], "sample": rows["test"].assign(**constants), "truth": rows["test"]}


def groups(folder: Path, of_one_digit: bool, constant: object) -> Tables:
    """Four images in a group: three of a digit and a stranger, or strangers that may hide a 7."""
    rng, tables = np.random.default_rng(2), {}
    for role, numbers in ROLES.items():
        order = rng.permutation(numbers)
        left = {digit: [n for n in order if LABELS[n] == digit] for digit in range(10)}
        rows = []
        for group in range(len(numbers) // 4):
            most = max(left, key=lambda digit: len(left[digit]))
            if of_one_digit:
                chosen, answer = [left[most].pop() for _ in range(min(3, len(left[most])))], most
            else:
                answer = int(group % 2 == 0 and bool(left[7]))
                chosen = [left[7].pop()] if answer else []
            others = [digit for digit in left if left[digit] and digit not in (most if of_one_digit else 7, 7)]
            while len(chosen) < 4 and others:
                chosen.append(left[others[int(rng.integers(len(others)))]].pop())
                others = [digit for digit in others if left[digit]]
            rows += [(write_image(folder, role, n, PIXELS[n]), f"{role}{group}", str(answer)) for n in chosen]
        tables[role] = pd.DataFrame(rows, columns=["image_id", "group_id", "label"])
    truth = tables["test"][["group_id", "label"]].drop_duplicates()
    test = tables["test"][["image_id", "group_id"]]
    return {"train": tables["train"], "test": test, "sample": truth.assign(label=constant), "truth": truth}


TASKS: dict[str, tuple[str, Callable[[Path], Tables]]] = {
    "labels": ("macro_f1", partial(pairs, in_columns=False)),
    "grade": ("quadratic_kappa", partial(single, answer="grade", constant=0)),
    "number": ("rmse", partial(single, answer="value", constant=4.5)),
    "columns": ("mean_recall", partial(pairs, in_columns=True)),
    "ranking": ("map_at_3", partial(single, answer="digit", constant="1 2 3")),
    "bags": ("accuracy", partial(groups, of_one_digit=True, constant="0")),
    "signs": ("log_loss", partial(groups, of_one_digit=False, constant=0.5)),
}


def tasks(root: Path, tasks: list[str], epochs: int = 12) -> None:
    head("task", "metric", "constant", "without decision", "submitted", "decision or pooling", "seconds")
    for name in tasks or TASKS:
        metric, write = TASKS[name]
        project, truth = Project(root, f"digits-{name}"), root / f"digits-{name}.truth.csv"
        folder = raw_folder(project.slug, root)
        files = {"train": folder / "train.csv", "test": folder / "test.csv", "truth": truth}
        files["sample"] = folder / "sample_submission.csv"
        for kind, table in write(folder).items():
            table.to_csv(files[kind], index=False)
        card_path(project.slug, root).parent.mkdir(parents=True, exist_ok=True)
        card_path(project.slug, root).write_text(f'metric = "{metric}"\n')

        def work(project: Project = project) -> None:
            project.podium("folds", "--k", "3")
            project.train("run", *TRAIN, "--epochs", epochs, folds="0,1,2")
            project.submit("decided")
            project.submit("plain", "--decision", "none")

        taken = seconds(work)
        decided, plain = (root / "submissions" / project.slug / f"{one}.csv" for one in ("decided", "plain"))
        lineage = json.loads(decided.with_suffix(".json").read_text())
        decision = lineage.get("decision") or {}
        words = [decision["kind"].replace("_", " ") if decision.get("is_taken") else "none"]
        words += [lineage["blend"]["pooling"]] if "pooling" in lineage["blend"] else []
        scored = [
            json.loads(project.podium("score", csv, "--solution", truth).splitlines()[-1])["score"]
            for csv in (files["sample"], plain, decided)
        ]
        row(name, metric, *(f"{score:.4f}" for score in scored), ", ".join(words), f"{taken:.0f}")


if __name__ == "__main__":
    call(tasks)
