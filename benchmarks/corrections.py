"""Measures whether wrong labels are found, and what it brings to correct them.

    python -m benchmarks.corrections ROOT SLUG [--planted 0.05 0.15] [--kinds random confused] [--k 5] [--flags "..."]

Makes competitions of the same images below ROOT/measured-corrections, plants wrong labels, trains, ranks the labels,
takes the suspects as corrections and trains again. Errors are planted in two ways: an image gets the label of another
one, drawn at random, or the label of the class that its own is confused with most by a model of the clean labels. The
flags are those of `podium train`; without any, a small model that takes a few minutes per fold.

A row for each experiment: the share of planted errors among as many of the most suspicious labels as were planted
(precision and recall in one), the same of the suspects that `podium audit --suspects` lists, and the accuracy of the
held-out predictions on the clean labels, before and after all suspects are corrected as suggested. The tables of "Wrong
labels".
"""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.harness import Project, call, head, row
from benchmarks.sets import card_of, images_of, tests_of, write_set
from podium.blending.held_out import collect_held_out
from podium.comparing.suspect_list import rank_labels
from podium.competition.load import load

# Learns the usual competition in minutes: the model and the optimiser of `--model auto`, with fewer epochs.
SMALL = (
    "--model resnet10t --weights none --image-size 64 --batch-size 128 --level light --optimizer muon --lr 6e-3"
    " --weight-decay 1.5 --epochs 6 --workers 1"
)


def corrections(
    root: Path,
    slug: str,
    planted: tuple[float, ...] = (0.05, 0.15),
    kinds: tuple[str, ...] = ("random", "confused"),
    k: int = 5,
    flags: str = SMALL,
) -> None:
    source, folder = load(slug, root), root / "measured-corrections"
    rows = images_of(source)
    truth = dict(zip(rows["id"], rows["label"], strict=True))

    def trained(project: Project, name: str, *words: object) -> float:
        """Returns the accuracy of a run's held-out predictions on the clean labels."""
        run = project.train(name, *flags.split(), *words, folds=",".join(map(str, range(k))))
        held_out = collect_held_out([run], load(slug, project.root).classes, labels=truth)
        return float((held_out.probs[0].argmax(1) == held_out.targets.values).mean())

    def make(name: str, labels: "pd.Series[str]") -> Project:
        project = write_set(folder / name, slug, rows.assign(label=labels), tests_of(source), card_of(source))
        project.podium("folds", "--k", k)
        return project

    clean = make("clean", rows["label"])
    print(f"clean labels: accuracy {trained(clean, 'before'):.4f}")
    head("errors", "planted", "found among as many", "suspects: number, precision, recall", "accuracy before", "after")
    for kind in kinds:
        for share in planted:
            confused = most_confused(clean) if kind == "confused" else {}
            given = plant(rows["label"], share, confused)
            project = make(f"{kind}-{share}", given)
            before = trained(project, "before")
            ranked = rank_labels(load(slug, project.root), ["before"])
            wrong_ids = set(rows["id"][given != rows["label"]])
            is_wrong, suspects = ranked["id"].isin(wrong_ids).to_numpy(), ranked["is_suspect"].to_numpy(dtype=bool)
            path = project.root / "suspects.csv"
            ranked[suspects][["id", "suggested"]].rename(columns={"suggested": "label"}).to_csv(path, index=False)
            after = trained(project, "after", "--corrections", path)
            count, found = int(is_wrong.sum()), is_wrong[suspects]
            judged = f"{len(found):,}, {found.mean():.3f}, {found.sum() / max(count, 1):.3f}"
            row(f"{kind}, {share:.0%}", f"{count:,}", f"{is_wrong[:count].mean():.3f}", judged, before, after)


def plant(clean: "pd.Series[str]", share: float, confused: dict[str, str]) -> "pd.Series[str]":
    """Returns the labels with this share of errors."""
    rng, labels = np.random.default_rng(0), clean.tolist()
    for place in rng.choice(len(labels), round(share * len(labels)), replace=False):
        while labels[place] == clean.iloc[place]:
            labels[place] = confused.get(clean.iloc[place]) or clean.iloc[rng.integers(len(labels))]
    return pd.Series(labels, clean.index)


def most_confused(clean: Project) -> dict[str, str]:
    """Returns, for each class, the class that the model of the clean labels confuses it with most."""
    classes = load(clean.slug, clean.root).classes
    held_out = collect_held_out([clean.run("before")], classes)
    mass = np.zeros((len(classes), len(classes)))
    np.add.at(mass, held_out.targets.values, held_out.probs[0])
    np.fill_diagonal(mass, -1)
    return {name: classes[int(row.argmax())] for name, row in zip(classes, mass, strict=True) if (row > 0).any()}


if __name__ == "__main__":
    call(corrections)
