"""What the flags of a command mean: the competition, the options of the recipe, the machine."""

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium.basics.machine import Machine
    from podium.competition.load import Competition
    from podium.training.request import Request


def competition_of(args: argparse.Namespace, with_columns: bool = False, /, **settings: str) -> "Competition":
    from podium.competition.load import load_and_report
    from podium.kaggle.download import load_unpacked

    slug, corrections = args.competition, getattr(args, "corrections", None)
    read = partial(load_and_report, slug, args.root, corrections, with_columns, **settings)
    competition = load_unpacked(slug, args.root, read)
    if getattr(args, "then", "") == "submit" and competition.answered_by != "submit":
        otherwise = {"compare": "report", "report": "compete"}.get(args.command, "")  # nothing can be submitted
        args.then = competition.answered_by or otherwise
    return competition


def recipe_options_of(args: argparse.Namespace) -> dict[str, Any]:
    from podium.options.recipe import recipe_options

    given = {name: getattr(args, name) for name in recipe_options() if getattr(args, name) is not None}
    if isinstance(given.get("model"), list):  # of `train`, which takes several
        given["model"] = given["model"][0]
    return given


def plain_machine_of(args: argparse.Namespace) -> "Machine":
    from podium.basics.machine import Machine

    return Machine(device=args.device, workers=args.workers, store=args.store)


def machine_of(args: argparse.Namespace) -> "Machine":
    from podium.basics.machine import Machine

    return Machine(
        device=args.device,
        workers=args.workers,
        store=args.store,
        save_every=args.save_every,
        parallel=args.parallel,
        deterministic=args.deterministic,
        checkpointing=args.checkpointing,
        compile=args.compile,
        track=args.track,
    )


def request_of(args: argparse.Namespace) -> "Request":
    """Returns what `podium train` asks for; lists of models and seeds are left to it."""
    from podium.training.request import Request
    from podium.training.timing.budget import process_start

    return Request(
        options=recipe_options_of(args),
        folds=args.folds or (),
        name=args.name,
        machine=machine_of(args),
        budget=args.budget,
        started=process_start(),
        corrections=args.corrections,
    )
