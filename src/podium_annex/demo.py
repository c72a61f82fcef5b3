"""Shows the whole way on handwritten digits: from a competition's files to a submission and its score.

    podium demo

Two models learn the digits: a head on EfficientNet-Lite0, whose weights for ImageNet come as a package, and a small
ResNet that starts from scratch. Each step does what the command of its name does, all in one process. What a step has
made is kept: a second demo trains nothing.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from podium.basics.errors import PodiumError
from podium.basics.light_torch import start_torch
from podium.basics.project_root import DIGITS_SLUG
from podium.basics.terminal import duration, in_brief, plural, podium_command, say, show, uses_make
from podium.competition.card import card_path
from podium.competition.handwritten_digits import write_digits
from podium.competition.load import Competition, load, raw_folder
from podium.folds.folds_csv import folds_path, read_folds, write_folds
from podium.folds.strategies import Split
from podium.options.recipe import Options
from podium.submissions.lineage import read_lineage
from podium.submissions.submission import submit

FOLDS, STEPS, SUBMISSION = 3, 6, "demo"
HEAD: Options = {"model": "tf_efficientnet_lite0", "linear": True, "image_size": 96}
NET: Options = {"model": "test_resnet", "weights": "none", "epochs": 8}
RUNS = {"demo-head": HEAD, "demo-net": NET}


def demo(root: Path) -> None:
    """Goes the whole way, and says before each step what it is for."""
    started = time.monotonic()
    say("podium: from a competition's files to a scored submission; it needs no network, no account and no GPU")
    with _step(1, "The files: handwritten digits, as Kaggle delivers a competition. Which digit is it?") as result:
        competition = _files(root)
        train, classes = plural(len(competition.train), "image"), len(competition.classes)
        result(f"{competition.folder}: {train} of {classes} classes to learn from, {len(competition.test)} to predict")
    with _step(2, "The folds: each model is judged by images that it has not learned from.") as result:
        result(_split(competition))
    start_torch()
    with _step(3, "A frozen net: EfficientNet-Lite0 as it is after ImageNet. Only a head learns digits.") as result:
        result(_train(competition, "demo-head"))
    with _step(4, "A short training: a small ResNet learns the digits from scratch.") as result:
        result(_train(competition, "demo-net"))
    with _step(5, "The submission: both predict the test images, and are blended.") as result:
        csv = submit(competition, list(RUNS), name=SUBMISSION)
        expected = _expected(competition, csv)
        result(f"{csv}: {expected}")
    with _step(6, "The report: what was predicted, and what was confused?") as result:
        from podium_annex.report.write_report import write_reports

        report = write_reports(competition, list(RUNS))
        result(str(report))
    score = _score(competition, csv)
    show(
        f"\n{competition.metric} {score:z.4f} on the {len(competition.test)} test images; {expected}"
        f"\nsubmission  {csv}\nreport      {report}  (open it in a browser)"
    )
    say(f"podium: the demo took {duration(time.monotonic() - started)}\nnext: {_next_step(root)}")


@contextmanager
def _step(number: int, meaning: str) -> Iterator[Callable[[str], None]]:
    """Says what the step is for, then leaves out most of what its parts say, then says its result."""
    started, results = time.monotonic(), list[str]()
    say(f"{number} of {STEPS}  {meaning}")
    with in_brief():
        yield results.append
    say(f"        {results[0]} ({duration(time.monotonic() - started)})")


# --- the steps ---------------------------------------------------------------------------------------


def _files(root: Path) -> Competition:
    if raw_folder(DIGITS_SLUG, root).exists() and card_path(DIGITS_SLUG, root).exists():
        with suppress(PodiumError):  # some files are missing or damaged, and are written anew
            return load(DIGITS_SLUG, root)
    write_digits(root)
    return load(DIGITS_SLUG, root)


def _split(competition: Competition) -> str:
    """Splits the images unless they are split; returns what the split is and guarantees."""
    path = folds_path(competition.slug, competition.root)
    if not path.exists():
        write_folds(competition, Split(FOLDS))
    folds, certificate = read_folds(competition), path.with_suffix(".json")
    holds = certificate.exists() and json.loads(certificate.read_text(encoding="utf-8")).get("holds")
    proof = ", certified: no copy of an image is on both sides" if holds else ""
    return f"{path}: {plural(folds.count, 'fold')}{proof}"


def _train(competition: Competition, name: str) -> str:
    """Trains the run unless it is trained; returns its score."""
    from podium.tasks.metrics import evaluate
    from podium.training.plan import make_plan
    from podium.training.request import Request, check_before_plan
    from podium.training.train import train
    from podium_annex.report.numbers import read_held_out

    run = train(make_plan(check_before_plan(competition.slug, competition.root, Request(RUNS[name], name=name))))
    images = read_held_out(run, competition)
    score = evaluate(competition.metric, images.truth, images.probs)
    return f"{run.path}: {competition.metric} {score:z.4f} on the {len(images):,} images, each held out from its model"


def _expected(competition: Competition, csv: Path) -> str:
    estimate = read_lineage(csv).content["estimate"]
    low, high = estimate["between"]
    return f"expected: {low:z.4f} to {high:z.4f}, from {estimate['score']:z.4f} on the held-out images"


def _score(competition: Competition, csv: Path) -> float:
    from podium_annex.scoring.score_csv import score

    return float(json.loads(score(csv, competition.folder / "solution.csv", competition=competition))["score"])


def _next_step(root: Path) -> str:
    command = "make compete" if uses_make() else f"{podium_command()} compete"
    return f"put a competition's zip into {root / 'data' / 'raw'}, then: {command}"
