"""Measures what an image between its neighbours gains (--adjacent), on made series of noisy slices of photographs.

    python -m benchmarks.series ROOT SLUG WORK [--studies 160] [--noise 40]

A study of the competition `SLUG-series` in WORK is five grey slices of one photograph of SLUG: windows of three
quarters of its width, from left to right, each with noise of its own. Its label is that of the photograph, and answers
are for studies. Prints the table of "Images in an order"; the gain is that of blending/gain.py.
"""

from pathlib import Path

import cv2
import numpy as np

from benchmarks.harness import Project, call, head, row
from benchmarks.sets import images_of
from podium.blending.gain import gain_of
from podium.blending.held_out import collect_held_out
from podium.competition.card import card_path
from podium.competition.load import load, raw_folder
from podium.folds.folds_csv import read_groups
from podium.images.decode import read_image

SLICES, SIDE, TESTS = 5, 80, 10
MODEL = ("--model", "tf_efficientnet_lite0", "--image-size", "64")


def series(
    root: Path, slug: str, work: Path, studies: int = 160, noise: int = 40, epochs: int = 4, adjacent: int = 3
) -> None:
    project = Project(work, f"{slug}-series")
    if not raw_folder(project.slug, work).exists():
        write_studies(project, root, slug, studies, noise)
        project.podium("folds", "--k", "2")
    alone, joined = (
        project.train(f"adjacent-{count}", *MODEL, "--epochs", epochs, "--adjacent", count, folds="0,1")
        for count in (1, adjacent)
    )
    competition = load(project.slug, work)
    held_out = collect_held_out([alone, joined], competition.classes, read_groups(competition), competition.label_of)
    head("metric", "each slice alone", f"--adjacent {adjacent}", "gain (95 % interval), slices")
    for metric in ("accuracy", "log_loss"):
        gain = gain_of(held_out, held_out.probs[0], held_out.probs[1], metric)
        low, high = gain.interval
        row(metric, f"{gain.before:.4f}", f"{gain.score:.4f}", f"{gain.gain:+.4f} ({low:+.4f} to {high:+.4f})")
    print(project.podium("compare"))


def write_studies(project: Project, root: Path, slug: str, studies: int, noise: int) -> None:
    """Writes the slices of some photographs, drawn at random, and a sample submission with a row for each study."""
    folder, rng = raw_folder(project.slug, project.root), np.random.default_rng(0)
    chosen = images_of(load(slug, root)).sample(studies + TESTS, random_state=0)
    lines: dict[str, list[str]] = {"train": ["image_id,study_id,label"], "test": ["image_id,study_id"]}
    for number, (label, path) in enumerate(zip(chosen["label"], chosen["image"], strict=True)):
        role = "train" if number < studies else "test"
        (folder / role).mkdir(parents=True, exist_ok=True)
        photograph = cv2.resize(read_image(Path(path)), (SIDE * 4 // 3, SIDE)).mean(-1)
        for place in range(SLICES):
            left = place * (photograph.shape[1] - SIDE) // (SLICES - 1)
            pixels = photograph[:, left : left + SIDE] + rng.normal(0, noise, (SIDE, SIDE))
            name = f"s{number}_{place}"
            cv2.imwrite(str(folder / role / f"{name}.png"), pixels.clip(0, 255).astype(np.uint8))
            lines[role].append(f"{name},s{number}" + (f",{label}" if role == "train" else ""))
    first = chosen["label"].iloc[0]
    lines["sample_submission"] = ["study_id,label", *(f"s{studies + number},{first}" for number in range(TESTS))]
    for name, own in lines.items():
        (folder / f"{name}.csv").write_text("\n".join(own) + "\n")
    card_path(project.slug, project.root).parent.mkdir(parents=True, exist_ok=True)
    card_path(project.slug, project.root).write_text('metric = "accuracy"\n')


if __name__ == "__main__":
    call(series)
