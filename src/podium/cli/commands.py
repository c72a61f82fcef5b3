"""One function per command. Each imports what it needs when it runs, so that `podium --help` stays fast."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from podium import PodiumError, terminal
from podium.cli import flags

if TYPE_CHECKING:
    from podium.competition.load import Competition
    from podium.machine import Machine


# --- data --------------------------------------------------------------------------------------------


def data(args: argparse.Namespace) -> None:
    """Download and unpack a competition's files, and show what they are."""
    from podium.kaggle.download import download_competition

    download_competition(args.competition, args.root)


def sample(args: argparse.Namespace) -> None:
    """Write the embedded competition (handwritten digits), which needs no network."""
    from podium.competition.handwritten_digits import write_digits

    write_digits(args.root)


def audit(args: argparse.Namespace) -> None:
    """Look at every image: bad files, copies, leaks into the test set, labels that disagree."""
    from podium.recipe import check_options

    check_options({"image_size": args.image_size})
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


# --- training ----------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> None:
    """Train a model on every fold, or resume it."""
    from podium.training.budget import Budget, process_start
    from podium.training.plan import Request, check_request, make_plan

    request = Request(
        options=_recipe_options(args),
        folds=args.folds or (),
        name=args.name,
        machine=_machine(args),
        budget=Budget(args.budget, process_start()) if args.budget else None,
    )
    if args.processes is not None and "WORLD_SIZE" not in os.environ:
        check_request(args.competition, args.root, request)  # before any process starts
        from podium.training.processes import launch_processes

        launch_processes(args.processes, args.device, args.words)
        return
    plan = make_plan(args.competition, args.root, request)
    from podium.training.train import train

    train(plan)


def bench(args: argparse.Namespace) -> None:
    """Measure training beside the bare step, on this machine."""
    from podium.models.hub import check_model_name
    from podium.recipe import check_options

    names = ("image_size", "batch_size", "precision")
    options = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    check_options(options)
    for model in args.model:
        check_model_name(model)
    from podium.machine import Machine
    from podium.training.bench import bench

    machine = Machine(device=args.device, workers=args.workers)
    bench(_competition(args), args.root, args.model, options, machine, args.json)


# --- submitting --------------------------------------------------------------------------------------


def submit(args: argparse.Namespace) -> None:
    """Predict the test images with every finished fold and write the submission."""
    from podium.machine import Machine
    from podium.submit.submission import SubmitOptions, submit, suggest_next_step

    machine = Machine(device=args.device, workers=args.workers, keep_pixels=args.store == "on")
    if args.lineage:
        from podium.submit.lineage import read_lineage
        from podium.submit.rebuild_submission import rebuild

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
        from podium.kaggle.upload_submission import upload
        from podium.submit.lineage import submission_message

        upload(args.competition, path, competition.metric, args.message or submission_message(path))
    else:
        terminal.say(f"next: {suggest_next_step(competition, path)}")
    print(path)


def compare(args: argparse.Namespace) -> None:
    """List the runs: their scores, what they cost, and how often they disagree."""
    from podium.submit.compare import compare

    print(compare(_competition(args), args.root, args.runs))


def lineage(args: argparse.Namespace) -> None:
    """Show where every number of a submission came from."""
    from podium.submit.lineage import describe_lineage

    print(terminal.printable(describe_lineage(args.file)))


def score(args: argparse.Namespace) -> None:
    """Score a submission against a solution."""
    from podium.competition.score_csv import score

    print(score(args.file, args.solution, args.metric, args.positive))


# --- Kaggle's machines -------------------------------------------------------------------------------


def kaggle_train(args: argparse.Namespace) -> None:
    """Train on Kaggle's own GPUs: pack a kernel, follow it, bring the run back."""
    from podium.competition.card import read_card
    from podium.kaggle.inside_kernel import TrainFlags
    from podium.models.hub import check_model_name
    from podium.recipe import check_card_options, check_options

    options = _recipe_options(args)
    check_options(options)
    if options.get("model") == "auto":
        options["model"] = "convnext_small"
    check_model_name(options.get("model"))
    for flag, is_on_kaggle in (
        ("--weights", options.get("weights", "none") in ("none", "pretrained")),
        ("--teacher", "teacher" not in options),
    ):
        if not is_on_kaggle:
            raise PodiumError(f"{flag}: its files are not on Kaggle's machines; leave it out, or train here")
    card = read_card(args.competition, args.root).get("recipe", {})
    check_card_options(card)
    from podium.kaggle.remote_train import train_on_kaggle
    from podium.models.build import resolve_recipe

    recipe = resolve_recipe(options, card)
    train_flags = TrainFlags(options, args.folds, args.budget)
    train_on_kaggle(args.competition, args.root, args.name or recipe.model, recipe, train_flags, args.accelerator)


def kaggle_bundle(args: argparse.Namespace) -> None:
    """Pack models, code and a notebook for a competition without a network, and try them without one."""
    from podium.kaggle.bundle import bundle

    folder = bundle(_competition(args), args.root, args.runs, args.blend)
    print(folder)
    if args.upload:
        from podium.kaggle.publish_bundle import publish_bundle

        page = publish_bundle(args.competition, folder)
        terminal.say(f"next: Submit to Competition, on the page of the notebook's output: {page}")
    else:
        again = "UPLOAD=1" if terminal.uses_make() else "--upload"
        terminal.say(f"next: the same command with {again} brings it to Kaggle")


def doctor(args: argparse.Namespace) -> None:
    """Find what would cost a day later: packages, disk, GPU, weights, Kaggle's terms, the data."""
    from podium.cli.doctor import doctor

    doctor(args.competition, args.root, args.model, args.device)


# --- from flags to arguments -------------------------------------------------------------------------


def _competition(args: argparse.Namespace, **settings: str) -> "Competition":
    from podium.competition.load import load_and_report

    return load_and_report(args.competition, args.root, **settings)


def _recipe_options(args: argparse.Namespace) -> dict[str, Any]:
    from podium.recipe import recipe_options

    return {name: getattr(args, name) for name in recipe_options() if getattr(args, name) is not None}


def _machine(args: argparse.Namespace) -> "Machine":
    from podium.machine import Machine

    return Machine(
        device=args.device,
        workers=args.workers,
        keep_pixels=args.store == "on",
        save_every=args.save_every,
        parallel=args.parallel,
        deterministic=args.deterministic,
        compiled=args.compile,
    )


COMMANDS: dict[str, flags.Command] = {
    "data": (data, flags.no_flags),
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
    "sample": (sample, flags.no_flags),
}
