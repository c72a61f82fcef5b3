"""One function per command. Each imports what it needs when it runs, so that `podium --help` stays fast."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from podium.basics import terminal
from podium.basics.errors import PodiumError
from podium.basics.light_torch import start_torch
from podium.cli import flags
from podium.cli.from_flags import competition_of, plain_machine_of, request_of
from podium.cli.parser import Command, no_flags

if TYPE_CHECKING:
    from pandas import DataFrame

    from podium.competing.choices import CompeteRequest
    from podium.competing.ending import Outcome
    from podium.competition.load import Competition
    from podium.submissions.submission import Models


# --- data --------------------------------------------------------------------------------------------


def data(args: argparse.Namespace) -> None:
    """Download and unpack a competition's files, and show what they are."""
    from podium.kaggle.download import download_competition

    download_competition(args.competition, args.root, args.card)


def sample(args: argparse.Namespace) -> None:
    """Write the built-in competition (handwritten digits), which needs no network."""
    from podium.competition.handwritten_digits import write_digits

    write_digits(args.root)


def audit(args: argparse.Namespace) -> None:
    """Check every image: bad files, duplicates, leaks into the test set, labels that disagree or are probably wrong."""
    if args.model is not None and not args.shift:
        raise PodiumError("--model gives the features that --shift compares; give --shift too, or leave it out")
    if args.shift:
        if args.drop_bad or args.suspects is not None:
            raise PodiumError("--shift compares images; leave out --drop-bad and --suspects, or give them alone")
        from podium.comparing.shift import tell_shift

        tell_shift(competition_of(args), args.model)
        return
    if args.suspects is not None:
        if args.drop_bad:
            raise PodiumError("--suspects lists labels, and --drop-bad leaves out images; give one of them")
        _list_suspects(args)
        return
    if args.csv:
        raise PodiumError("--csv prints the suspects; give --suspects too, or leave it out")
    from podium.options.recipe import check_options

    check_options({"image_size": args.image_size})
    from podium.images.audit import audit, bad_training_images, drop_bad

    competition = competition_of(args)
    bad = bad_training_images(audit(competition, args.image_size, args.store == "on"))
    if args.drop_bad:
        drop_bad(competition, bad)
    is_blocked = len(bad) and not args.drop_bad
    command = terminal.command_to_drop_bad if is_blocked else partial(terminal.command_for, "folds")
    terminal.say(f"next: {command(competition.slug)}")


def _list_suspects(args: argparse.Namespace) -> None:
    from podium.comparing.suspect_list import describe_suspects, rank_labels, suspects_as_corrections

    competition = competition_of(args)
    ranked = rank_labels(competition, args.suspects or None)
    if args.csv:
        print(suspects_as_corrections(ranked), end="")
    else:
        terminal.show(describe_suspects(competition, ranked))


def folds(args: argparse.Namespace) -> None:
    """Split the training images into folds, or verify a split."""
    from podium.folds.folds_csv import certified_columns, folds_path, has_bad_images, verify_folds, write_folds
    from podium.folds.sites import ASKED_FOR
    from podium.folds.strategies import Split
    from podium.saved_runs.run_folder import names_of_runs_on_folds
    from podium.training.image_features import sites_of

    group, split = args.group, Split(args.k, args.seed, args.by_time, args.gap, args.strategy)
    if args.by_site is not None:
        split = replace(split, sites=ASKED_FOR)
        split.check()
    if args.by_site is not None and args.verify is not None:
        raise PodiumError("--verify reads the sites of the folds from sites.csv; leave out --by-site")
    if args.model is not None and args.by_site is not False:
        raise PodiumError("--model gives the features that --by-site without a column clusters; leave it out")
    if args.verify is not None:
        certified_group, time, gap = certified_columns(args.competition, args.root)
        group = certified_group if group is None else group
        split = Split(by_time=time, gap=args.gap or gap) if args.by_time is None else split
    settings = {} if group is None else {"group_column": group}
    competition = competition_of(args, split.needs_columns, **settings)
    if args.by_site is not None:
        split.refuse_validation(competition)
        split = replace(split, sites=sites_of(competition, args.by_site or None, args.k, args.seed, args.model))
    if args.verify is None:
        in_use_by = [] if args.force else names_of_runs_on_folds(args.competition, args.root)
        path = folds_path(args.competition, args.root)
        before = path.read_bytes() if path.exists() else None
        write_folds(competition, split, in_use_by, args.verbose)
        if path.read_bytes() != before:
            compete = terminal.command_for("compete", competition.slug)
            is_blocked = has_bad_images(competition)
            terminal.say(f"next: {terminal.command_to_drop_bad(competition.slug) if is_blocked else compete}")
    else:
        verify_folds(competition, args.verify or None, split, args.verbose)
    competition.corrections.save()


# --- training ----------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> None:
    """Train a model on every fold, or resume it; several models or seeds in turn."""
    from podium.cli.sweep import train_in_turn

    train_in_turn(args, request_of(args))


def compete(args: argparse.Namespace) -> None:
    """Make the best submission that a time allows: train different models, blend them, always keep a valid CSV."""
    start_torch()
    from podium.competing.compete import compete

    compete_by(args, compete)


def compete_by(args: argparse.Namespace, work: "Callable[[Competition, CompeteRequest], Outcome | None]") -> None:
    """Competes by this function, which returns None where it has only helped another process."""
    from podium.competing.choices import CompeteRequest
    from podium.competition.load import raw_folder
    from podium.kaggle.download import download_competition

    if not raw_folder(args.competition, args.root).exists():
        download_competition(args.competition, args.root, False)
    competition = competition_of(args)
    request = CompeteRequest(args.budget, plain_machine_of(args), tuple(args.except_names or ()))
    if outcome := work(competition, request):
        show_best(competition, outcome.submission)


def show_best(competition: "Competition", csv: Path) -> None:
    """Ends `compete`, here or at Kaggle: says what to do with the CSV, and prints where it is."""
    from podium.submissions.submission import suggest_next_step

    if competition.answered_by != "submit":
        terminal.say(f"next: {terminal.command_for(competition.answered_by or 'compare', competition.slug)}")
        return
    upload = f"{terminal.command_to_rebuild(csv.with_suffix('.json'))} --upload"
    terminal.say(f"next: {suggest_next_step(competition, csv, upload)}")
    print(csv)


def next_steps(args: argparse.Namespace) -> None:
    """Say what to train next: the three steps with the largest expected gain of the blend per minute, and why."""
    start_torch()
    from podium.competing.show_next_steps import show_next_steps

    show_next_steps(competition_of(args), plain_machine_of(args))


# --- submitting --------------------------------------------------------------------------------------


def submit(args: argparse.Namespace) -> None:
    """Predict the test images with every finished fold and write the submission."""
    submit_by(args)


def submit_by(args: argparse.Namespace, predict: "Callable[[Competition, Models], None] | None" = None) -> None:
    """Submits; `predict` makes the predictions that are missing before the models of this process would."""
    from podium.submissions.lineage import read_lineage
    from podium.submissions.submission import suggest_next_step

    lineage = None
    if args.lineage:
        flags_given = {"runs": args.runs, "except": args.except_names, "name": args.name, "blend": args.blend}
        flags_given["decision"], flags_given["on"] = args.decision, predict is not None
        given = [flag for flag, value in flags_given.items() if value]
        if given:
            raise PodiumError(f"--from takes all it needs from the file; leave out --{given[0]}")
        lineage = read_lineage(args.lineage)
        args.competition = lineage.competition
    if args.upload:
        from podium.kaggle.client import check_token

        page = f"https://www.kaggle.com/competitions/{args.competition}/submit"
        check_token(args.competition, f", and upload the CSV by hand at {page}")
    if lineage:
        from podium.competition.load import raw_folder
        from podium.submissions.rebuild_submission import rebuild

        if not raw_folder(args.competition, args.root).is_dir():
            download = terminal.command_for("data", args.competition)
            raise PodiumError(
                f"{lineage.path} is of the competition {args.competition}, whose files are not here; get them with:"
                f" {download}"
            )
        competition = competition_of(args)
        path = rebuild(competition, lineage, plain_machine_of(args))
    else:
        competition = competition_of(args)
        path = _submit(args, competition, predict)
    if args.upload:
        from podium.kaggle.upload_submission import upload
        from podium.submissions.lineage import submission_message

        upload(args.competition, path, competition.metric, args.message or submission_message(path))
    else:
        terminal.say(f"next: {suggest_next_step(competition, path)}")
    print(path)


def _submit(
    args: argparse.Namespace, competition: "Competition", predict: "Callable[[Competition, Models], None] | None"
) -> Path:
    from podium.submissions.submission import submit

    return submit(
        competition,
        args.runs,
        except_names=args.except_names,
        name=args.name,
        blend=args.blend,
        decision=args.decision,
        anyway=args.anyway,
        cost=args.cost,
        machine=plain_machine_of(args),
        predict_first=partial(predict, competition) if predict else None,
    )


def import_predictions(args: argparse.Namespace) -> None:
    """Make a run of predictions from elsewhere, such as a team mate's or a notebook's, which blends like any other."""
    from podium.saved_runs.import_predictions import import_predictions

    import_predictions(competition_of(args), args.name, args.oof, args.test, args.note, args.same_folds)


def predict(args: argparse.Namespace) -> None:
    """Predict images of your own with a run, or with the blend of a submission."""
    start_torch()
    from podium.basics.machine import Machine
    from podium.submissions.predict_boxes import predict_boxes, see_tiles
    from podium.submissions.predict_images import find_models, predict_images

    folds, blend = find_models(args.models, args.competition, args.root)
    machine = Machine(device=args.device)
    if args.boxes or (see_tiles(folds) and not args.cropped):
        predictions = predict_boxes(folds, args.images, machine, args.boxes)
    else:
        predictions = predict_images(folds, blend, args.images, machine, args.cropped)
    if args.csv:
        print(predictions.frame().to_csv(index=False, float_format="%.9g"), end="")
    else:
        terminal.show(predictions.table(args.top))


def compare(args: argparse.Namespace) -> None:
    """List the runs: their scores, what they cost, and how often they disagree."""
    compare_by(args)


def compare_by(args: argparse.Namespace) -> "DataFrame | None":
    """Shows the runs and returns their table; None if their predictions were written instead."""
    from podium.comparing.compare import compare_runs
    from podium.comparing.comparison_text import compare_as_text

    competition = competition_of(args)
    if args.predictions:
        from podium.comparing.prediction_frame import write_predictions

        write_predictions(competition, args.predictions, args.runs, args.except_names)
        return None
    runs = compare_runs(competition, args.runs, args.except_names)
    if args.json:
        terminal.show(runs.to_json(orient="records", indent=2, double_precision=15))
    elif args.csv:
        terminal.show(runs.to_csv(index=False).rstrip("\n"))
    else:
        terminal.show(compare_as_text(competition, runs))
    return runs


def lineage(args: argparse.Namespace) -> None:
    """Show where every number of a submission came from."""
    from podium.submissions.lineage import describe_lineage

    print(terminal.printable(describe_lineage(args.file)))
    rebuild = terminal.command_to_rebuild(args.file.with_suffix(".json"))
    terminal.say(f"next: {rebuild} --upload, which uploads it; without --upload, it makes the file again")


# --- Kaggle's machines -------------------------------------------------------------------------------


COMMANDS = {
    "data": Command(data, flags.data),
    "audit": Command(audit, flags.audit),
    "folds": Command(folds, flags.folds),
    "train": Command(train, flags.train),
    "compete": Command(compete, flags.compete),
    "next": Command(next_steps, flags.next_steps),
    "submit": Command(submit, flags.submit),
    "import": Command(import_predictions, flags.import_predictions),
    "predict": Command(predict, flags.predict, then="report"),
    "lineage": Command(lineage, flags.lineage, has_competition=False),
    "compare": Command(compare, flags.compare, then="submit"),
    "sample": Command(sample, no_flags, has_competition=False),
}
