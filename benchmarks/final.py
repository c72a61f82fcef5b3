"""Measures which two submissions to choose, where half of a competition's labelled images are its hidden test.

    python -m benchmarks.final ROOT SLUG WORK [--draws 500] [--share 0.3]

Frozen heads of two models at four sizes, and blends of some of them, are the submissions. The hidden test images are
dealt to a public and a private part, again and again, and each time pairs are chosen in several ways: by the public
scores, by the honest estimates, and the safe and the bold pair of `podium final`, which knows both. Prints the table of
"Which two submissions to choose": the private score of the better one of the pair, less that of the best public pair.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.harness import Project, call, head, row
from benchmarks.sets import card_of, hidden_labels, images_of, write_set
from podium.competition.load import Competition, load
from podium.tasks.metrics import METRICS, evaluate
from podium_annex.finals.find_submissions import Numbers, find_submissions, with_held_out
from podium_annex.finals.private_scores import choose_pairs, forecast

SIDES = (48, 64, 96, 128)
MODELS = ("tf_efficientnet_lite0", "tf_efficientnet_lite1")
BLENDS = (("lite0-48", "lite1-48"), ("lite0-96", "lite1-96"), ("lite0-128", "lite1-128"), ("lite0-96", "lite0-128"))


def final(root: Path, slug: str, work: Path, draws: int = 500, share: float = 0.3) -> None:
    competition = with_submissions(root, slug, work)
    folder = work / "submissions" / competition.slug
    found, covariance = with_held_out(competition, find_submissions(competition, folder))
    own, metric = found.submissions, METRICS[competition.metric]()
    expected = metric.better * np.array([one.expected for one in own])
    answers = [read_answers(competition, one.lineage.csv) for one in own]
    truth = pd.read_csv(hidden_labels(Project(work, competition.slug)), dtype=str).set_index("id")["label"]
    targets = competition.task.encode(truth[competition.answer_ids], competition.classes)
    rng, count = np.random.default_rng(0), len(targets)
    ways: dict[str, list[float]] = {name: [] for name in ("public", "estimates", "safe", "bold", "best possible")}
    for _ in range(draws):
        order = rng.permutation(count)
        parts = order[: round(share * count)], order[round(share * count) :]
        public, private = (
            metric.better * np.array([evaluate(competition.metric, targets[part], one[part]) for one in answers])
            for part in parts
        )
        pairs = choose_pairs(
            forecast(expected, [one.images for one in own], covariance, public, len(parts[0]), len(parts[1]))
        )
        chosen = {"public": best_two(public), "estimates": best_two(expected), "safe": pairs.safe, "bold": pairs.bold}
        for name, pair in {**chosen, "best possible": best_two(private)}.items():
            ways[name].append(float(private[list(pair)].max()))
    print(f"\n{slug}: {len(own)} submissions, {count} hidden images, {competition.metric}\n")
    head("pair", "private score of the better one", "better than by public scores", "95 % of the draws")
    for name, scores in ways.items():
        gains = np.array(scores) - ways["public"]
        low, high = np.percentile(gains, [2.5, 97.5])
        row(name, f"{metric.better * np.mean(scores):.4f}", f"{gains.mean():+.4f}", f"{low:+.4f} to {high:+.4f}")


def with_submissions(root: Path, slug: str, work: Path) -> Competition:
    source = load(slug, root)
    rows = images_of(source).sample(frac=1, random_state=0)
    half = len(rows) // 2
    project = write_set(
        work, f"{slug}-final", rows[:half].sort_values("id"), rows[half:].sort_values("id"), card_of(source)
    )
    if not (work / "data" / "prepared" / project.slug / "folds.csv").exists():
        project.podium("folds")
    for model in MODELS:
        for side in SIDES:
            name = f"{model.removeprefix('tf_efficientnet_')}-{side}"
            project.train(name, "--linear", "--model", model, "--image-size", side, folds="0,1,2,3,4")
            project.submit(name, "--runs", name)
    for runs in BLENDS:
        project.submit("+".join(runs), "--runs", *runs)
    return load(project.slug, work)


def read_answers(competition: Competition, csv: Path) -> Numbers:
    cells = competition.submission_format.answer_cells(pd.read_csv(csv, dtype=str))
    return np.asarray(competition.answer_form.read(cells), np.float64)


def best_two(scores: Numbers) -> tuple[int, int]:
    first, second = np.argsort(-scores, kind="stable")[:2].tolist()
    return first, second


if __name__ == "__main__":
    call(final)
