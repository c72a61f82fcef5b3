"""One function a command; its module is imported only when it runs."""

import argparse
import os
from typing import Any

from podium import PodiumError, terminal
from podium.cli import flags


def data(args: argparse.Namespace) -> None:
    """Download and unpack a competition's files, and say what they are."""
    from podium.kaggle.download import get_competition

    get_competition(args.competition, args.root)


def sample(args: argparse.Namespace) -> None:
    """Write the embedded competition (handwritten digits), which needs no network."""
    from podium.competition.digits import write_digits

    write_digits(args.root)


def audit(args: argparse.Namespace) -> None:
    """Look at every image: bad files, duplicates, leaks into the test set, labels that disagree."""
    from podium.recipe import check_knobs

    check_knobs({"image_size": args.image_size})
    from podium.images.audit import audit

    audit(_competition(args), args.root, args.image_size, args.store == "on")


def folds(args: argparse.Namespace) -> None:
    """Split the training images into folds, or verify a split."""
    from podium.folds.folds_csv import certified_group_column, verify_folds, write_folds

    group = args.group
    if args.verify is not None and group is None:
        group = certified_group_column(args.competition, args.root)
    competition = _competition(args, **({} if group is None else {"group_column": group}))
    if args.verify is None:
        write_folds(competition, args.root, args.k, args.seed)
    else:
        verify_folds(competition, args.root, args.verify or None)


def train(args: argparse.Namespace) -> None:
    """Train a model on every fold, or go on with it."""
    given = _recipe_given(args)
    if args.processes is not None and "WORLD_SIZE" not in os.environ:
        from podium.training.processes import launch_processes

        launch_processes(args.processes, args.device, args.words)
        return
    from podium.machine import Machine
    from podium.training.budget import Budget
    from podium.training.schedule import process_start
    from podium.training.train import train

    machine = Machine(
        device=args.device,
        workers=args.workers,
        keep_pixels=args.store == "on",
        save_every=args.save_every,
        parallel=args.parallel,
        deterministic=args.deterministic,
        compiled=args.compile,
    )
    competition = _competition(args)
    budget = Budget(args.budget, process_start()) if args.budget else None
    train(competition, args.root, given, args.folds, args.name, machine, budget)


def _recipe_given(args: argparse.Namespace) -> dict[str, Any]:
    """The knobs on the command line. What follows takes seconds to import and minutes to run; what can be told now is
    told now."""
    from podium.competition.card import read_card
    from podium.models.hub import check_model_name, check_weights_available
    from podium.recipe import expand_auto

    given = _knobs(args)
    if given.get("model") == "auto":
        from podium.models.device import device_kind, pick_device

        given = expand_auto(given, device_kind(pick_device(args.device)))
    check_model_name(given.get("model"))
    of_card = read_card(args.competition, args.root).get("recipe", {})
    check_weights_available(given["model"], {**of_card, **given}.get("weights", "pretrained"))
    return given


def _knobs(args: argparse.Namespace) -> dict[str, Any]:
    from podium.recipe import check_knobs, knobs

    given = {name: getattr(args, name) for name in knobs() if getattr(args, name) is not None}
    check_knobs(given)
    return given


def kaggle_train(args: argparse.Namespace) -> None:
    """Train on Kaggle's own GPUs: pack a kernel, follow it, bring the run back."""
    from podium.competition.card import read_card
    from podium.kaggle.remote_train import kaggle_train
    from podium.models.build import family_and_sizes
    from podium.models.hub import check_model_name
    from podium.recipe import resolve

    given = _knobs(args)
    if given.get("model") == "auto":
        given["model"] = "convnext_small"
    check_model_name(given.get("model"))
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
    if args.folds:
        words += ["--folds", ",".join(map(str, args.folds))]
    if args.budget:
        words += ["--budget", f"{args.budget}s"]
    card = read_card(args.competition, args.root).get("recipe", {})
    recipe = resolve(given, card, *family_and_sizes(given["model"]))
    kaggle_train(args.competition, args.root, args.name or recipe.model, recipe, words, args.accelerator)


def kaggle_bundle(args: argparse.Namespace) -> None:
    """Pack models, code and a notebook for a competition that takes notebooks only; try them without a network."""
    from podium.kaggle.bundle import bundle

    folder = bundle(_competition(args), args.root, args.runs, args.blend)
    print(folder)
    if args.upload:
        from podium.kaggle.publish import publish

        terminal.say(
            f"next: Submit to Competition, on the page of the notebook's output: {publish(args.competition, folder)}"
        )
    else:
        again = "UPLOAD=1" if terminal.uses_make() else "--upload"
        terminal.say(f"next: the same command with {again} brings it to Kaggle")


def submit(args: argparse.Namespace) -> None:
    """Predict the test images with every finished fold and write the submission."""
    from podium.machine import Machine
    from podium.submit.submission import SubmitOptions, submit, suggest_next_step

    machine = Machine(device=args.device, workers=args.workers, keep_pixels=args.store == "on")
    if args.lineage:
        from podium.submit.lineage import read_lineage
        from podium.submit.rebuild import rebuild

        given = [name for name in ("runs", "name", "blend") if getattr(args, name)]
        if given:
            raise PodiumError(f"--from says all of a submission: leave out --{given[0]}")
        lineage = read_lineage(args.lineage)
        args.competition = lineage.competition
        competition = _competition(args)
        path = rebuild(competition, args.root, lineage, machine)
    else:
        competition = _competition(args)
        options = SubmitOptions(runs=args.runs, name=args.name, blend=args.blend, anyway=args.anyway)
        path = submit(competition, args.root, options, machine)
    if args.upload:
        from podium.kaggle.upload import upload
        from podium.submit.lineage import submission_message

        upload(args.competition, path, competition.metric, args.message or submission_message(path))
    else:
        terminal.say(f"next: {suggest_next_step(competition, path)}")
    print(path)


def compare(args: argparse.Namespace) -> None:
    """List the runs: their scores, what they cost, and how far they disagree."""
    from podium.submit.compare import compare

    print(compare(_competition(args), args.root, args.runs))


def lineage(args: argparse.Namespace) -> None:
    """Say where every number of a submission came from."""
    from podium.submit.lineage import describe_lineage

    print(terminal.printable(describe_lineage(args.file)))


def bench(args: argparse.Namespace) -> None:
    """Measure training beside the bare step, on this machine."""
    from podium.models.hub import check_model_name
    from podium.recipe import check_knobs

    names = ("image_size", "batch_size", "precision")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    check_knobs(given)
    for model in args.model:
        check_model_name(model)
    from podium.training.bench import bench

    given["weights"] = "none"
    bench(_competition(args), args.root, args.model, given, args.device, args.workers, args.json)


def doctor(args: argparse.Namespace) -> None:
    """Look for what would cost a day later: packages, disk, GPU, weights, Kaggle's terms, the data."""
    from podium.cli.doctor import doctor

    doctor(args.competition, args.root, args.model, args.device)


def score(args: argparse.Namespace) -> None:
    """Score a submission against a solution."""
    from podium.competition.score import score

    print(score(args.file, args.solution, args.metric, args.positive))


def _competition(args: argparse.Namespace, **settings: str) -> Any:
    from podium.competition.load import load

    competition = load(args.competition, args.root, **settings)
    for note in competition.notes:
        terminal.say(f"podium: note: {note}")
    return competition


COMMANDS: dict[str, flags.Command] = {
    "data": (data, flags.nothing),
    "audit": (audit, flags.audit),
    "folds": (folds, flags.folds),
    "train": (train, flags.train),
    "submit": (submit, flags.submit),
    "lineage": (lineage, flags.lineage),
    "score": (score, flags.score),
    "compare": (compare, flags.compare),
    "bench": (bench, flags.bench),
    "kaggle-train": (kaggle_train, flags.kaggle_train),
    "kaggle-bundle": (kaggle_bundle, flags.kaggle_bundle),
    "doctor": (doctor, flags.doctor),
    "sample": (sample, flags.nothing),
}
