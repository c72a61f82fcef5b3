"""One function a command; its module is imported only when it runs."""

import argparse
import os
from typing import Any

from podium import PodiumError, console, options


def data(flags: argparse.Namespace) -> None:
    """Download and unpack a competition's files, and say what they are."""
    from podium.kaggle import get

    get(flags.competition, flags.root)


def sample(flags: argparse.Namespace) -> None:
    """Write the embedded competition (handwritten digits), which needs no network."""
    from podium.sample import write

    write(flags.root)


def audit(flags: argparse.Namespace) -> None:
    """Look at every image: bad files, duplicates, leaks into the test set, labels that disagree."""
    from podium.recipe import check

    check({"image_size": flags.image_size})
    from podium.audit import audit

    audit(_competition(flags), flags.root, flags.image_size, flags.store == "on")


def folds(flags: argparse.Namespace) -> None:
    """Split the training images into folds, or verify a split."""
    from podium.folds import certified_group, verify, write_folds

    group = flags.group
    if flags.verify is not None and group is None:
        group = certified_group(flags.competition, flags.root)
    competition = _competition(flags, **({} if group is None else {"group_column": group}))
    if flags.verify is None:
        write_folds(competition, flags.root, flags.k, flags.seed)
    else:
        verify(competition, flags.root, flags.verify or None)


def train(flags: argparse.Namespace) -> None:
    """Train a model on every fold, or go on with it."""
    given = _recipe_given(flags)
    if flags.processes is not None and "WORLD_SIZE" not in os.environ:
        from podium.launch import launch

        launch(flags.processes, flags.device, flags.words)
        return
    from podium.budget import Budget
    from podium.device import Machine
    from podium.schedule import process_start
    from podium.train import train

    machine = Machine(
        device=flags.device,
        workers=flags.workers,
        keep=flags.store == "on",
        save_every=flags.save_every,
        parallel=flags.parallel,
        deterministic=flags.deterministic,
        compiled=flags.compile,
    )
    competition = _competition(flags)
    budget = Budget(flags.budget, process_start()) if flags.budget else None
    train(competition, flags.root, given, flags.folds, flags.name, machine, budget)


def _recipe_given(flags: argparse.Namespace) -> dict[str, Any]:
    """The knobs on the command line. What follows takes seconds to import and minutes to run; what can be told now is
    told now."""
    from podium.card import read_card
    from podium.models import check_name, check_weights
    from podium.recipe import expand

    given = _knobs(flags)
    if given.get("model") == "auto":
        from podium.device import kind_of, pick_device

        given = expand(given, kind_of(pick_device(flags.device)))
    check_name(given.get("model"))
    of_card = read_card(flags.competition, flags.root).get("recipe", {})
    check_weights(given["model"], {**of_card, **given}.get("weights", "pretrained"))
    return given


def _knobs(flags: argparse.Namespace) -> dict[str, Any]:
    from podium.recipe import check, knobs

    given = {name: getattr(flags, name) for name in knobs() if getattr(flags, name) is not None}
    check(given)
    return given


def kaggle_train(flags: argparse.Namespace) -> None:
    """Train on Kaggle's own GPUs: pack a kernel, follow it, bring the run back."""
    from podium.card import read_card
    from podium.kaggle_train import kaggle_train
    from podium.models import check_name, family_and_sizes
    from podium.recipe import resolve

    given = _knobs(flags)
    if given.get("model") == "auto":
        given["model"] = "convnext_small"
    check_name(given.get("model"))
    for flag, there in (
        ("--weights", given.get("weights", "none") in ("none", "pretrained")),
        ("--teacher", "teacher" not in given),
    ):
        if not there:
            raise PodiumError(f"{flag}: what it names is not on Kaggle's machines; leave it out, or train here")
    words = []
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag if value else f"--no-{flag[2:]}"] if isinstance(value, bool) else [flag, str(value)]
    if flags.folds:
        words += ["--folds", ",".join(map(str, flags.folds))]
    if flags.budget:
        words += ["--budget", f"{flags.budget}s"]
    card = read_card(flags.competition, flags.root).get("recipe", {})
    recipe = resolve(given, card, *family_and_sizes(given["model"]))
    kaggle_train(flags.competition, flags.root, flags.name or recipe.model, recipe, words, flags.accelerator)


def kaggle_bundle(flags: argparse.Namespace) -> None:
    """Pack models, code and a notebook for a competition that takes notebooks only; try them without a network."""
    from podium.bundle import bundle

    folder = bundle(_competition(flags), flags.root, flags.runs, flags.blend)
    print(folder)
    if flags.upload:
        from podium.deliver import deliver

        console.say(
            f"next: Submit to Competition, on the page of the notebook's output: {deliver(flags.competition, folder)}"
        )
    else:
        again = "UPLOAD=1" if console.types_make() else "--upload"
        console.say(f"next: the same command with {again} brings it to Kaggle")


def submit(flags: argparse.Namespace) -> None:
    """Predict the test images with every finished fold and write the submission."""
    from podium.submission import rebuild, submit, what_next

    where = flags.device, flags.workers, flags.store == "on"
    if flags.lineage:
        from podium.lineage import read

        given = [name for name in ("runs", "name", "blend") if getattr(flags, name)]
        if given:
            raise PodiumError(f"--from says all of a submission: leave out --{given[0]}")
        lineage = read(flags.lineage)
        flags.competition = lineage.competition
        competition = _competition(flags)
        path = rebuild(competition, flags.root, lineage, *where)
    else:
        competition = _competition(flags)
        path = submit(competition, flags.root, flags.runs, flags.name, *where, flags.blend, flags.anyway)
    if flags.upload:
        from podium.lineage import message
        from podium.upload import upload

        upload(flags.competition, path, competition.metric, flags.message or message(path))
    else:
        console.say(f"next: {what_next(competition, path)}")
    print(path)


def compare(flags: argparse.Namespace) -> None:
    """List the runs: their scores, what they cost, and how far they disagree."""
    from podium.compare import compare

    print(compare(_competition(flags), flags.root, flags.runs))


def lineage(flags: argparse.Namespace) -> None:
    """Say where every number of a submission came from."""
    from podium.lineage import tell

    print(console.printable(tell(flags.file)))


def bench(flags: argparse.Namespace) -> None:
    """Measure training beside the bare step, on this machine."""
    from podium.models import check_name
    from podium.recipe import check

    names = ("image_size", "batch_size", "precision")
    given = {name: getattr(flags, name) for name in names if getattr(flags, name) is not None}
    check(given)
    for model in flags.model:
        check_name(model)
    from podium.bench import bench

    given["weights"] = "none"
    bench(_competition(flags), flags.root, flags.model, given, flags.device, flags.workers, flags.json)


def doctor(flags: argparse.Namespace) -> None:
    """Look for what would cost a day later: packages, disk, GPU, weights, Kaggle's terms, the data."""
    from podium.doctor import doctor

    doctor(flags.competition, flags.root, flags.model, flags.device)


def score(flags: argparse.Namespace) -> None:
    """Score a submission against a solution."""
    from podium.score import score

    print(score(flags.file, flags.solution, flags.metric, flags.positive))


def _competition(flags: argparse.Namespace, **settings: str) -> Any:
    from podium.competition import load

    competition = load(flags.competition, flags.root, **settings)
    for note in competition.notes:
        console.say(f"podium: note: {note}")
    return competition


COMMANDS: dict[str, options.Command] = {
    "data": (data, options.nothing),
    "audit": (audit, options.audit),
    "folds": (folds, options.folds),
    "train": (train, options.train),
    "submit": (submit, options.submit),
    "lineage": (lineage, options.lineage),
    "score": (score, options.score),
    "compare": (compare, options.compare),
    "bench": (bench, options.bench),
    "kaggle-train": (kaggle_train, options.kaggle_train),
    "kaggle-bundle": (kaggle_bundle, options.kaggle_bundle),
    "doctor": (doctor, options.doctor),
    "sample": (sample, options.nothing),
}
