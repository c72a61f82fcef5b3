"""The commands that the annex brings. Each imports what it needs when it runs."""

import argparse
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from podium.basics import terminal
from podium.basics.errors import PodiumError
from podium.basics.light_torch import start_torch
from podium.cli import commands as core
from podium.cli.from_flags import competition_of, plain_machine_of, recipe_options_of, request_of
from podium.cli.parser import Command, no_flags
from podium_annex import flags

if TYPE_CHECKING:
    from podium.competing.choices import CompeteRequest
    from podium.competing.ending import Outcome
    from podium.competition.load import Competition
    from podium_annex.searching.search_request import SearchRequest

SKY = "sky"


def _check_flags_of_cells(args: argparse.Namespace) -> None:
    if args.on or args.cell or args.at_once or args.job:
        from podium_annex.fleet.cells import check_flags

        check_flags(args)


def search(args: argparse.Namespace) -> None:
    """Search the options of a run with Optuna, and judge the winner on a fold that the search has not seen."""
    from podium.basics.extras import refuse_without
    from podium.training.timing.budget import process_start
    from podium_annex.searching.search_request import SearchRequest

    refuse_without("search", "podium search")
    _check_flags_of_cells(args)
    if args.on and not args.model:
        raise PodiumError(f"--on {args.on} searches; name models with --model, or leave it out")
    if args.report and args.model:
        raise PodiumError("--report only shows what a search has found; leave out --model, or leave out --report")
    if args.model or not (args.report or args.write_card):
        options = {name: value for name, value in recipe_options_of(args).items() if name != "model"}
        request = SearchRequest(
            models=args.model or (),
            options=options,
            sizes=args.image_sizes or (),
            folds=args.folds or (),
            name=args.name,
            machine=plain_machine_of(args),
            trials=args.trials,
            budget=args.budget,
            started=process_start(),
        )
        if not _search(args, request):
            return
    _report_search(args)


def _search(args: argparse.Namespace, request: "SearchRequest") -> bool:
    """Searches; returns whether this command shows the report."""
    from podium_annex.searching.search_request import check_search

    models = check_search(args.competition, args.root, request, args.on == SKY)
    if args.on == SKY and not args.cell:
        from podium_annex.sky_file import write_sky_file

        write_sky_file(args, "search")
        return False
    if args.cell or args.on:
        from podium_annex.searching.search_workers import search_as_worker, search_on_machines

        return (search_as_worker if args.cell else search_on_machines)(args, request, models)
    from podium_annex.searching.search import search
    from podium_annex.searching.search_plan import plan_search

    return search(plan_search(args.competition, args.root, request, models))


def _report_search(args: argparse.Namespace) -> None:
    from podium.competition.load import load
    from podium_annex.searching.search_page import write_page
    from podium_annex.searching.search_report import Found, describe_search
    from podium_annex.searching.write_card import write_winner

    found = Found(load(args.competition, args.root), args.root, args.name)
    terminal.show(describe_search(found))
    write_page(found)
    if args.write_card:
        write_winner(found)
    elif found.winner is not None:
        submission = terminal.command_for("submit", args.competition, runs=found.run(found.winner).name)
        keeps = ", or --write-card for later runs" if found.searched_options() else ""
        terminal.say(f"next: {submission}{keeps}")


def pretrain(args: argparse.Namespace) -> None:
    """Pretrain a model on the competition's images, training and test, without their labels; or resume it."""
    from podium_annex.pretraining.pretraining_plan import PretrainRequest, plan_pretraining

    names = ("model", "weights", "epochs", "batch_size", "optimizer", "lr", "image_size", "seed")
    request = PretrainRequest(
        options={name: getattr(args, name) for name in names if getattr(args, name) is not None},
        method=args.method,
        small_crops=args.local_crops,
        outputs=args.outputs,
        name=args.name,
        machine=plain_machine_of(args),
    )
    plan = plan_pretraining(args.competition, args.root, request)
    start_torch()
    from podium_annex.pretraining.pretrain import pretrain

    print(pretrain(plan))


def explain(args: argparse.Namespace) -> None:
    """Draw what a model looks at and what it has learned: attention, Grad-CAM, receptive field, filters, positions."""
    start_torch()
    from podium_annex.explain.explain_models import explain_models
    from podium_annex.explain.picture_names import PICTURES

    if args.regions:
        _find_regions(args)
        return
    written = explain_models(
        args.competition,
        args.root,
        runs=args.runs,
        models=args.model or (),
        weights=args.weights,
        pictures=args.what or tuple(PICTURES),
        images=args.images or (),
        fold=args.fold,
        output=args.output,
    )
    for path in written:
        print(path)


def _find_regions(args: argparse.Namespace) -> None:
    from podium.saved_runs.run_folder import find_runs
    from podium_annex.explain.find_regions import find_regions

    if not args.runs or args.model or args.what or args.images or args.output or args.fold is not None:
        raise PodiumError("--regions looks at all images with all models of the runs that you name; leave out the rest")
    competition = competition_of(args)
    for run in find_runs(competition.slug, args.root, args.runs):
        for path in find_regions(run, competition):
            print(path)


def report(args: argparse.Namespace) -> None:
    """Write pages that show the runs in a browser: curves, confusions, mistakes, doubtful labels, costs."""
    start_torch()
    from podium_annex.report.write_report import write_reports

    print(write_reports(competition_of(args), args.runs, args.except_names))


def export(args: argparse.Namespace) -> None:
    """Write a run's models as one file for other programs, and a card that describes it."""
    start_torch()
    from podium.saved_runs.run_folder import find_runs
    from podium_annex.exporting.export_run import export_run

    competition = competition_of(args)
    (run,) = find_runs(args.competition, args.root, [args.run_name])
    wanted = {"folds": args.folds or (), "views": args.views, "path": args.output, "int8": args.int8}
    print(export_run(competition, run, args.form, **wanted))


def score(args: argparse.Namespace) -> None:
    """Score a submission against a solution."""
    from podium.competition.load import load
    from podium.options.extensions.extension_files import load_extensions
    from podium.submissions.lineage import recorded_competition, recorded_metric
    from podium_annex.scoring.score_csv import score

    slug = args.competition or recorded_competition(args.file, args.root)
    competition = None
    if slug:
        try:
            competition = load(slug, args.root, **({"positive": args.positive} if args.positive else {}))
        except PodiumError as error:
            if args.competition:
                raise
            terminal.say(f"podium: {slug}, for which the file was made, cannot be read ({error}); scored without it")
    else:
        load_extensions(args.root)  # the file belongs to no competition, so there is no card
    metric, recorded = args.metric, None if args.metric else recorded_metric(args.file)
    print(score(args.file, args.solution, metric, args.positive, competition, recorded))
    if competition is not None:
        terminal.say(f"next: {terminal.command_for('report', competition.slug)}, which shows the mistakes")


def final(args: argparse.Namespace) -> None:
    """Propose which two submissions to choose before the competition ends, from honest and public scores."""
    import json

    start_torch()
    from podium_annex.finals.final import choose_final, show_final

    choice = choose_final(competition_of(args), args.public_share)
    if args.json:
        print(json.dumps(choice.as_json(), indent=2))
    else:
        show_final(choice, args.public_share is not None)


def demo(args: argparse.Namespace) -> None:
    """Go the whole way on the built-in competition, in a minute: files, folds, two models, submission, report."""
    from podium_annex.demo import demo

    demo(args.root)


def kaggle_train(args: argparse.Namespace) -> None:
    """Train a model on Kaggle's own GPUs, or compete there: pack a kernel, follow it, bring back what it made."""
    from podium.training.request import Request
    from podium_annex.kaggle_machines.remote_train import train_on_kaggle

    options = recipe_options_of(args)
    if not options.keys() & {"model", "start"}:
        _compete_on_kaggle(args, options)
        return
    request = Request(options=options, folds=args.folds or (), name=args.name, budget=args.budget)
    train_on_kaggle(args.competition, args.root, request, args.accelerator)


def _compete_on_kaggle(args: argparse.Namespace, options: dict[str, Any]) -> None:
    from podium.competition.load import raw_folder
    from podium.options.recipe import flag_of
    from podium_annex.kaggle_machines.remote_compete import compete_on_kaggle

    if args.budget is None:
        raise PodiumError("train what? --model NAME trains a model on Kaggle; --budget 8h alone competes there")
    flags_given = [*map(flag_of, options), *(f"--{name}" for name in ("folds", "name") if getattr(args, name))]
    if flags_given:
        raise PodiumError(
            f"{flags_given[0]}: without a model, podium compete chooses by itself; leave it out, or add --model NAME"
        )
    csv = compete_on_kaggle(args.competition, args.root, args.budget, args.accelerator)
    if csv is None:
        terminal.say(f"next: {terminal.command_for('compete', args.competition)}")
    elif raw_folder(args.competition, args.root).is_dir():
        core.show_best(competition_of(args), csv)
    else:
        terminal.say(f"next: {terminal.command_for('data', args.competition)}")
        print(csv)


def kaggle_bundle(args: argparse.Namespace) -> None:
    """Pack models, code and a notebook for a competition without a network, and try them without one."""
    from podium_annex.kaggle_machines.bundle import bundle

    if args.upload:
        from podium.kaggle.client import check_token

        check_token(args.competition)
    folder = bundle(competition_of(args), args.runs, args.except_names, args.blend)
    print(folder)
    if args.upload:
        from podium_annex.kaggle_machines.publish_bundle import publish_bundle

        page = publish_bundle(args.competition, folder)
        terminal.say(f"next: Submit to Competition, on the page of the notebook's output: {page}")
    else:
        again = "UPLOAD=1" if terminal.uses_make() else "--upload"
        terminal.say(f"next: the same command with {again} brings it to Kaggle")


def bench(args: argparse.Namespace) -> None:
    """Measure training, compared with a plain loop around timm's model on this machine."""
    start_torch()
    from podium.basics.machine import Machine
    from podium_annex.measuring.bench import bench

    names = ("image_size", "batch_size", "precision")
    options = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    machine = Machine(device=args.device, workers=args.workers)
    bench(competition_of(args), args.model, options, machine, args.json)


def verify(args: argparse.Namespace) -> None:
    """Train a fold of a run again, and say whether it is the same to the bit."""
    start_torch()
    from podium.basics.machine import Machine
    from podium_annex.measuring.verify_run import verify_fold

    machine = Machine(device=args.device, workers=args.workers, deterministic=args.deterministic)
    verify_fold(args.competition, args.root, args.run_name, args.fold, machine)


def soup(args: argparse.Namespace) -> None:
    """Average the weights of runs, and try sizes of prediction, chosen for each fold by the others."""
    start_torch()
    from podium.basics.machine import Machine
    from podium.comparing.baseline import describe_gain_of_soup
    from podium_annex.soup import make_soup

    competition, machine = competition_of(args), Machine(device=args.device, workers=args.workers)
    beside, sizes = partial(describe_gain_of_soup, competition), args.test_sizes or ()
    make_soup(competition, args.run_names, name=args.name, test_sizes=sizes, machine=machine, beside=beside)


def match(args: argparse.Namespace) -> None:
    """Answer which images show the same individual: pairs of them by their similarity, or clusters of single ones."""
    from podium_annex.matching.match import match, read_match, rebuild_match

    start_torch()
    if not args.lineage:
        competition = competition_of(args)
        wanted = {"except_names": args.except_names, "name": args.name or "", "clusters": args.clusters}
        path = match(competition, args.runs, machine=plain_machine_of(args), **wanted)
    else:
        for flag, value in {
            "runs": args.runs,
            "except": args.except_names,
            "name": args.name,
            "clusters": args.clusters,
        }.items():
            if value:
                raise PodiumError(f"--from takes all it needs from the file; leave out --{flag}")
        lineage = read_match(args.lineage)
        args.competition = lineage.competition
        path = rebuild_match(competition_of(args), lineage, plain_machine_of(args))
    terminal.say(f"next: upload it at https://www.kaggle.com/competitions/{args.competition}/submit")
    print(path)


def doctor(args: argparse.Namespace) -> None:
    """Check all that a long run needs: packages, disk, GPU, weights, Kaggle's terms and data."""
    from podium_annex.doctor import doctor

    doctor(args.competition, args.root, args.model, args.device)


def models(args: argparse.Namespace) -> None:
    """Find a model by parts of its name: what it costs, its weights and their licence."""
    from podium.competition.card import read_card
    from podium_annex.model_list import list_models

    read_card(args.competition, args.root)  # loads the files of the project, which may register models
    list_models(args.competition, args.pattern, args.all, args.json)


# --- commands of podium, with flags of the annex -----------------------------------------------------


def train(args: argparse.Namespace) -> None:
    _check_flags_of_cells(args)
    if args.dry_run or not (args.cell or args.on):
        core.train(args)
        return
    from podium_annex.fleet.train_cells import check_requests, train_cell, train_cells

    if args.on == SKY and not args.cell:
        from podium_annex.sky_file import write_sky_file

        check_requests(args, request_of(args))
        write_sky_file(args)
        return
    (train_cell if args.cell else train_cells)(args, request_of(args))


def compete(args: argparse.Namespace) -> None:
    _check_flags_of_cells(args)
    if not args.on:
        core.compete(args)
        return
    from podium.training.request import Request
    from podium_annex.fleet.train_cells import refuse_choices_of_one_machine, train_member

    if args.on == SKY:
        raise PodiumError(
            "--on sky does not go with compete, which decides after each member; start podium compete itself on a"
            " machine of the cloud, or train on Kaggle's with podium kaggle-train"
        )
    refuse_choices_of_one_machine(args, Request({}))
    start_torch()
    from podium.competing.compete import compete

    def on_machines(competition: "Competition", request: "CompeteRequest") -> "Outcome":
        return compete(competition, replace(request, train=partial(train_member, args), on=args.on))

    core.compete_by(args, on_machines)


def submit(args: argparse.Namespace) -> None:
    _check_flags_of_cells(args)
    if not (args.cell or args.on):
        core.submit(args)
        return
    from podium_annex.fleet.predict_cells import predict_cell, predict_missing

    if args.cell:
        predict_cell(args, competition_of(args), plain_machine_of(args))
        return
    if args.on == SKY:
        raise PodiumError("--on sky does not go with submit: predictions take minutes; use --on ray or --on slurm")
    core.submit_by(args, partial(predict_missing, args, plain_machine_of(args)))


def compare(args: argparse.Namespace) -> None:
    from podium_annex.report.comparison_picture import check_path, draw_comparison

    if args.picture:
        check_path(args.picture)
    runs = core.compare_by(args)
    if args.picture and runs is not None:
        draw_comparison(runs, args.picture)


for command in (train, compete, submit, compare):
    command.__doc__ = core.COMMANDS[command.__name__].run.__doc__


COMMANDS = {
    "pretrain": Command(pretrain, flags.pretrain),
    "search": Command(search, flags.search),
    "report": Command(report, flags.report, then="submit"),
    "export": Command(export, flags.export, then="report"),
    "explain": Command(explain, flags.explain, then="report"),
    "final": Command(final, flags.final),
    "score": Command(score, flags.score, has_competition=False),
    "demo": Command(demo, no_flags, has_competition=False),
    "kaggle-train": Command(kaggle_train, flags.kaggle_train),
    "kaggle-bundle": Command(kaggle_bundle, flags.kaggle_bundle),
    "bench": Command(bench, flags.bench, then="compete"),
    "verify": Command(verify, flags.verify, then="submit"),
    "soup": Command(soup, flags.soup),
    "match": Command(match, flags.match),
    "doctor": Command(doctor, flags.doctor, then="compete"),
    "train": Command(train, flags.train),
    "compete": Command(compete, flags.compete),
    "submit": Command(submit, flags.submit),
    "models": Command(models, flags.models),
    "compare": Command(compare, flags.compare, then="submit"),
}
