"""Measures whether wrong labels are found, and what it brings to correct them.

    python docs/measure_corrections.py ROOT [-c SLUG] [--planted 0.05 0.15] [--kinds random confused] [--k 5]
        [-- TRAIN FLAGS]

Copies the competition's tables from ROOT and links its images, plants wrong labels, trains, ranks the labels, takes
the suspects as corrections and trains again, each with a command of its own. Errors are planted in two ways: an image
gets the label of another one, drawn at random, or the label of the class that its own is confused with most by a model
of the clean labels. The flags after -- are those of `podium train`; without any, a small model that takes a few minutes
per fold. The competition needs a table of ids and labels.

Prints a line per experiment: the share of planted errors among as many of the most suspicious labels as were planted
(precision and recall in one), the same of the suspects that `podium audit --suspects` lists, and the accuracy of the
held-out predictions on the clean labels, before and after all suspects are corrected as suggested.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from podium.blending.held_out import collect_held_out
from podium.comparing.suspect_list import rank_labels
from podium.competition.card import card_path
from podium.competition.find.csv_files import csv_text
from podium.competition.load import Competition, load, raw_folder
from podium.saved_runs.run_folder import Run

# Learns the usual competition in minutes: the model and the optimiser of `--model auto`, with fewer epochs.
SMALL = "--model resnet10t --weights none --image-size 64 --batch-size 128 --level light --optimizer muon --lr 6e-3"
SMALL += " --weight-decay 1.5 --epochs 6 --workers 1"

Labels = dict[str, str]  # by image id


def main(root: Path, slug: str, planted: list[float], kinds: list[str], k: int, flags: list[str]) -> None:
    source = load(slug, root)
    with tempfile.TemporaryDirectory(prefix="corrections-", dir=root) as folder:
        clean = Experiment(Path(folder) / "clean", source, k)
        clean.write(dict(zip(source.train_in_files["id"], source.train_in_files["target"], strict=True)))
        clean_accuracy = clean.train("before", flags)
        print(f"clean labels: accuracy {clean_accuracy:.4f}")
        print(
            "| errors | planted | found among as many | suspects: number, precision, recall | accuracy before | after |"
        )
        print("| --- " * 6 + "|")
        for kind in kinds:
            for share in planted:
                experiment = Experiment(Path(folder) / f"{kind}-{share}", source, k)
                experiment.write(plant(clean, kind, share))
                print(f"| {kind}, {share:.0%} | {' | '.join(experiment.measure(flags))} |", flush=True)


class Experiment:
    """A copy of a competition, with labels of its own."""

    def __init__(self, root: Path, source: Competition, k: int) -> None:
        self.root, self.slug, self.source, self.k = root, source.slug, source, k
        rows = source.train_in_files
        self.truth: Labels = dict(zip(rows["id"], rows["target"], strict=True))
        self.given: Labels = {}

    def write(self, given: Labels) -> None:
        """Writes the labels as train.csv, links everything else, and makes folds."""
        self.given = given
        folder = raw_folder(self.slug, self.root)
        folder.mkdir(parents=True)
        for path in self.source.folder.iterdir():
            if path.name != "train.csv":
                (folder / path.name).symlink_to(path.resolve())
        original = self.source.folder / "train.csv"
        if not original.is_file():
            sys.exit(f"{original} is missing: this measurement needs a table of ids and labels")
        with original.open(newline="", encoding="utf-8-sig") as file:
            header, *lines = csv.reader(file)
        columns = label_column(header, lines, self.truth)
        changed = [
            [given[line[columns[0]]] if k == columns[1] else cell for k, cell in enumerate(line)] for line in lines
        ]
        (folder / "train.csv").write_text(csv_text([header, *changed]))
        card = card_path(self.slug, self.source.card.path.parents[2])
        if card.is_file():
            own_card = card_path(self.slug, self.root)
            own_card.parent.mkdir(parents=True)
            own_card.write_text(card.read_text())
        self.podium("folds", "--k", str(self.k))

    def podium(self, *words: str) -> None:
        command = [sys.executable, "-m", "podium", "--root", str(self.root), words[0], "-c", self.slug, *words[1:]]
        print("$", *command[2:], file=sys.stderr)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ)

    def train(self, name: str, flags: list[str]) -> float:
        """Trains a run; returns the accuracy of its held-out predictions on the clean labels."""
        self.podium("train", *flags, "--name", name)
        return self.accuracy(name)

    def accuracy(self, name: str) -> float:
        competition = load(self.slug, self.root)
        held_out = collect_held_out([self.run(name)], competition.classes, labels=self.truth)
        return float((held_out.probs[0].argmax(1) == held_out.targets.values).mean())

    def run(self, name: str) -> Run:
        return Run(self.root / "runs" / self.slug / name)

    def measure(self, flags: list[str]) -> list[str]:
        """Trains, finds suspects, corrects and trains again; returns the cells of a table's row."""
        before = self.train("before", flags)
        ranked = rank_labels(load(self.slug, self.root), ["before"])
        is_wrong = np.array([self.given[name] != self.truth[name] for name in ranked["id"]])
        suspects = ranked["is_suspect"].to_numpy()
        path = self.root / "suspects.csv"
        path.write_text(
            csv_text([("id", "label"), *zip(ranked["id"][suspects], ranked["suggested"][suspects], strict=True)])
        )
        after = self.train("after", [*flags, "--corrections", str(path)])
        count = int(is_wrong.sum())
        precision, recall = is_wrong[suspects].mean(), is_wrong[suspects].sum() / max(count, 1)
        found = is_wrong[:count].mean() if count else float("nan")
        judged = f"{int(suspects.sum()):,}, {precision:.3f}, {recall:.3f}"
        return [f"{count:,}", f"{found:.3f}", judged, f"{before:.4f}", f"{after:.4f}"]


def label_column(header: list[str], lines: list[list[str]], truth: Labels) -> tuple[int, int]:
    """Returns the positions of the columns of ids and of labels."""
    for ids in range(len(header)):
        if all(line[ids] in truth for line in lines):
            for labels in range(len(header)):
                if labels != ids and all(line[labels] == truth[line[ids]] for line in lines):
                    return ids, labels
    sys.exit(f"no columns of ids and labels among {', '.join(header)}")


def plant(clean: Experiment, kind: str, share: float) -> Labels:
    """Returns the labels with this share of errors."""
    rng = np.random.default_rng(0)
    ids, labels = list(clean.truth), dict(clean.truth)
    confused = most_confused(clean) if kind == "confused" else {}
    for position in rng.choice(len(ids), round(share * len(ids)), replace=False):
        name = ids[position]
        while labels[name] == clean.truth[name]:
            labels[name] = confused.get(clean.truth[name]) or clean.truth[ids[rng.integers(len(ids))]]
    return labels


def most_confused(clean: Experiment) -> Labels:
    """Returns, for each class, the class that the model of the clean labels confuses it with most."""
    classes = load(clean.slug, clean.root).classes
    held_out = collect_held_out([clean.run("before")], classes)
    mass = np.zeros((len(classes), len(classes)))
    np.add.at(mass, held_out.targets.values, held_out.probs[0])
    np.fill_diagonal(mass, -1)
    return {
        name: classes[k] for name, k in zip(classes, mass.argmax(1), strict=True) if mass[classes.index(name)].any()
    }


if __name__ == "__main__":
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="the folder that holds data/")
    parser.add_argument("-c", dest="slug", default="boolart-image-classification", metavar="SLUG")
    parser.add_argument("--planted", type=float, nargs="+", default=[0.05, 0.15], metavar="SHARE")
    parser.add_argument("--kinds", nargs="+", default=["random", "confused"], choices=["random", "confused"])
    parser.add_argument("--k", type=int, default=5, help="folds")
    arguments = parser.parse_args(words[:split])
    main(**vars(arguments), flags=words[split + 1 :] or SMALL.split())
