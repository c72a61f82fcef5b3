"""One function per command. Each imports what it needs when it runs, so that `podium --help` stays fast."""

import argparse
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium import terminal
from podium.cli import flags
from podium.errors import PodiumError
from podium.light_torch import start_torch

if TYPE_CHECKING:
    from podium.competition.load import Competition
    from podium.machine import Machine
    from podium.searching.search_request import SearchRequest


# --- data --------------------------------------------------------------------------------------------


def data(args: argparse.Namespace) -> None:
    """Download and unpack a competition's files, and show what they are."""
    from podium.kaggle.download import download_competition

    download_competition(args.competition, args.root, args.card)


def sample(args: argparse.Namespace) -> None:
    """Write the built-in competition (handwritten digits), which needs no network."""
    from podium.competition.handwritten_digits import write_digits

    write_digits(args.root)


def demo(args: argparse.Namespace) -> None:
    """Go the whole way on the built-in competition, in a minute: files, folds, two models, submission, report."""
    from podium.cli.demo import demo

    demo(args.root)


def audit(args: argparse.Namespace) -> None:
    """Check every image: bad files, duplicates, leaks into the test set, labels that disagree or are probably wrong."""
    if args.suspects is not None:
        _list_suspects(args)
        return
    if args.csv:
        raise PodiumError("--csv prints the suspects; give --suspects too, or leave it out")
    from podium.recipe import check_options

    check_options({"image_size": args.image_size})
    from podium.images.audit import audit, drop_bad

    competition = _competition(args)
    audit(competition, args.root, args.image_size, args.store == "on")
    if args.drop_bad:
        drop_bad(competition, args.root)
    terminal.say(f"next: {terminal.command_for('folds', competition.slug)}")


def _list_suspects(args: argparse.Namespace) -> None:
    from podium.comparing.suspect_list import describe_suspects, rank_labels, suspects_as_corrections

    competition = _competition(args)
    ranked = rank_labels(competition, args.root, args.suspects or None)
    if args.csv:
        print(suspects_as_corrections(ranked), end="")
    else:
        terminal.show(describe_suspects(competition, ranked))


def folds(args: argparse.Namespace) -> None:
    """Split the training images into folds, or verify a split."""
    from podium.folds.folds_csv import certified_columns, folds_path, has_bad_images, verify_folds, write_folds
    from podium.folds.strategies import Split
    from podium.saved_runs.run_folder import names_of_runs_on_folds

    group, split = args.group, Split(args.k, args.seed, args.by_time, args.gap, args.strategy)
    if args.verify is not None:
        certified_group, time, gap = certified_columns(args.competition, args.root)
        group = certified_group if group is None else group
        split = Split(by_time=time, gap=args.gap or gap) if args.by_time is None else split
    settings = {} if group is None else {"group_column": group}
    competition = _competition(args, split.needs_columns, **settings)
    if args.verify is None:
        in_use_by = [] if args.force else names_of_runs_on_folds(args.competition, args.root)
        path = folds_path(args.competition, args.root)
        before = path.read_bytes() if path.exists() else None
        write_folds(competition, args.root, split, in_use_by)
        if path.read_bytes() != before:
            train = terminal.command_for("train", competition.slug, model="auto")
            is_blocked = has_bad_images(competition, args.root)
            terminal.say(f"next: {terminal.command_to_drop_bad(competition.slug) if is_blocked else train}")
    else:
        verify_folds(competition, args.root, args.verify or None, split)
    competition.corrections.save()


# --- training ----------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> None:
    """Train a model on every fold, or resume it; several models or seeds in turn."""
    from podium.cli.cells import check_flags
    from podium.cli.sweep import train_in_turn
    from podium.timing.budget import process_start
    from podium.training.request import Request

    request = Request(
        options=_recipe_options(args),
        folds=args.folds or (),
        name=args.name,
        machine=_machine(args),
        budget=args.budget,
        started=process_start(),
        corrections=args.corrections,
    )
    check_flags(args)
    if args.on:
        from podium.cli.train_cells import train_cells

        train_cells(args, request)
    else:
        train_in_turn(args, request)


def compete(args: argparse.Namespace) -> None:
    """Make the best submission that a time allows: train different models, blend them, always keep a valid CSV."""
    if args.on or args.at_once or args.job:
        from podium.cli.compete_cells import check_place

        check_place(args)
    start_torch()
    from podium.competing.choices import CompeteRequest
    from podium.competing.compete import compete
    from podium.competition.load import raw_folder
    from podium.kaggle.download import download_competition

    if not raw_folder(args.competition, args.root).exists():
        download_competition(args.competition, args.root, False)
    competition = _competition(args)
    request = CompeteRequest(args.budget, _plain_machine(args), tuple(args.except_names or ()))
    if args.on:
        from podium.cli.compete_cells import compete_on_machines

        shared = compete_on_machines(args, competition, request)
        if shared is None:  # it has helped another one
            return
        outcome = shared
    else:
        outcome = compete(competition, args.root, request)
    _show_best(competition, outcome.submission)


def _show_best(competition: "Competition", csv: Path) -> None:
    """Ends `compete`, here or at Kaggle: says what to do with the CSV, and prints where it is."""
    from podium.submissions.submission import suggest_next_step

    if not len(competition.test):
        terminal.say(f"next: {terminal.command_for('compare', competition.slug)}")
        return
    upload = f"{terminal.podium_command()} submit --from {shlex.quote(str(csv.with_suffix('.json')))} --upload"
    terminal.say(f"next: {suggest_next_step(competition, csv, upload)}")
    print(csv)


def next_moves(args: argparse.Namespace) -> None:
    """Say what to train next: the three steps with the largest expected gain of the blend per minute, and why."""
    start_torch()
    from podium.competing.next_moves import show_next_moves

    show_next_moves(_competition(args), args.root, _plain_machine(args))


def jobs(args: argparse.Namespace) -> None:
    """List the cells of commands with --on: which are waiting, running, done, or have failed."""
    from podium.fleet.list_cells import list_cells

    def trials_of(search: str) -> str:
        from podium.searching.count_trials import count_trials  # it imports Optuna

        return count_trials(args.competition, args.root, search)

    list_cells(args.competition, args.root, trials_of)


def search(args: argparse.Namespace) -> None:
    """Search the options of a run with Optuna, and judge the winner on a fold that the search has not seen."""
    from podium.cli.cells import check_flags
    from podium.extras import refuse_without
    from podium.fleet.lifeline import follow_parent
    from podium.searching.search_request import SearchRequest
    from podium.timing.budget import process_start

    is_worker = follow_parent()  # the command that has started it shows the report
    refuse_without("search", "podium search")
    check_flags(args)
    if args.on and not args.model:
        raise PodiumError(f"--on {args.on} searches; name models with --model, or leave it out")
    if args.report and args.model:
        raise PodiumError("--report only shows what a search has found; leave out --model, or leave out --report")
    if args.model or not (args.report or args.write_card):
        options = {name: value for name, value in _recipe_options(args).items() if name != "model"}
        request = SearchRequest(
            models=args.model or (),
            options=options,
            sizes=args.image_sizes or (),
            folds=args.folds or (),
            name=args.name,
            machine=_plain_machine(args),
            trials=args.trials,
            budget=args.budget,
            started=process_start(),
        )
        if not _search(args, request) or is_worker:
            return
    _report_search(args)


def _search(args: argparse.Namespace, request: "SearchRequest") -> bool:
    """Searches; returns whether this command shows the report."""
    from podium.searching.search_request import check_search

    models = check_search(args.competition, args.root, request, bool(args.on) and args.on.kind == "sky")
    if args.on:
        from podium.cli.search_workers import search_on_machines

        return search_on_machines(args, request, models)
    from podium.searching.search import search
    from podium.searching.search_plan import plan_search

    return search(plan_search(args.competition, args.root, request, models))


def _report_search(args: argparse.Namespace) -> None:
    from podium.competition.load import load
    from podium.searching.search_page import write_page
    from podium.searching.search_report import Found, describe_search
    from podium.searching.write_card import write_winner

    found = Found(load(args.competition, args.root), args.root, args.name)
    terminal.show(describe_search(found))
    write_page(found)
    if args.write_card:
        write_winner(found)
    elif found.winner is not None:
        submission = terminal.command_for("submit", args.competition, runs=found.run(found.winner).name)
        keeps = ", or --write-card for later runs" if found.searched_options() else ""
        terminal.say(f"next: {submission}{keeps}")


def models(args: argparse.Namespace) -> None:
    """Find a model by parts of its name: what it costs, its weights and their licence."""
    from podium.competition.card import read_card
    from podium.models.model_list import list_models

    read_card(args.competition, args.root)  # loads the files of the project, which may register models
    list_models(args.competition, args.pattern, args.all, args.json)


def pretrain(args: argparse.Namespace) -> None:
    """Pretrain a model on the competition's images, training and test, without their labels; or resume it."""
    from podium.pretraining.pretraining_plan import PretrainRequest, plan_pretraining

    names = ("model", "weights", "epochs", "batch_size", "optimizer", "lr", "image_size", "seed")
    request = PretrainRequest(
        options={name: getattr(args, name) for name in names if getattr(args, name) is not None},
        method=args.method,
        small_crops=args.local_crops,
        outputs=args.outputs,
        name=args.name,
        machine=_plain_machine(args),
    )
    plan = plan_pretraining(args.competition, args.root, request)
    start_torch()
    from podium.pretraining.pretrain import pretrain

    print(pretrain(plan))


def bench(args: argparse.Namespace) -> None:
    """Measure training, compared with a plain loop around timm's model on this machine."""
    start_torch()
    from podium.machine import Machine
    from podium.training.bench import bench

    names = ("image_size", "batch_size", "precision")
    options = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    machine = Machine(device=args.device, workers=args.workers)
    bench(_competition(args), args.root, args.model, options, machine, args.json)


# --- submitting --------------------------------------------------------------------------------------


def submit(args: argparse.Namespace) -> None:
    """Predict the test images with every finished fold and write the submission."""
    from podium.cli.cells import check_flags
    from podium.machine import Machine
    from podium.submissions.submission import suggest_next_step

    check_flags(args)
    machine = Machine(device=args.device, workers=args.workers, store=args.store)
    if args.cell:
        from podium.cli.predict_cells import predict_cell

        predict_cell(args, _competition(args), machine)
        return
    if args.upload:
        from podium.kaggle.client import check_token

        check_token(args.competition)
    if args.lineage:
        from podium.competition.load import raw_folder
        from podium.submissions.lineage import read_lineage
        from podium.submissions.rebuild_submission import rebuild

        flags_given = {"runs": args.runs, "except": args.except_names, "name": args.name, "blend": args.blend}
        flags_given["decision"], flags_given["on"] = args.decision == "none", bool(args.on)
        given = [flag for flag, value in flags_given.items() if value]
        if given:
            raise PodiumError(f"--from takes all it needs from the file; leave out --{given[0]}")
        lineage = read_lineage(args.lineage)
        args.competition = lineage.competition
        if not raw_folder(args.competition, args.root).is_dir():
            download = terminal.command_for("data", args.competition)
            raise PodiumError(
                f"{lineage.path} is of the competition {args.competition}, whose files are not here; get them with:"
                f" {download}"
            )
        competition = _competition(args)
        path = rebuild(competition, args.root, lineage, machine)
    else:
        competition = _competition(args)
        path = _submit(args, competition, machine)
    if args.upload:
        from podium.kaggle.upload_submission import upload
        from podium.submissions.lineage import submission_message

        upload(args.competition, path, competition.metric, args.message or submission_message(path))
    else:
        terminal.say(f"next: {suggest_next_step(competition, path)}")
    print(path)


def _submit(args: argparse.Namespace, competition: "Competition", machine: "Machine") -> Path:
    from podium.submissions.submission import SubmitOptions, submit

    options = SubmitOptions(args.runs, args.except_names, args.name, args.blend, args.decision, args.anyway, args.cost)
    if not args.on:
        return submit(competition, args.root, options, machine)
    from podium.cli.predict_cells import check_place, predict_missing

    check_place(args)
    return submit(competition, args.root, options, machine, partial(predict_missing, args, competition, machine))


def import_predictions(args: argparse.Namespace) -> None:
    """Make a run of predictions from elsewhere, such as a team mate's or a notebook's, which blends like any other."""
    from podium.saved_runs.import_predictions import ImportRequest, import_predictions

    request = ImportRequest(args.name, args.oof, args.test, args.note, args.same_folds)
    import_predictions(_competition(args), args.root, request)


def predict(args: argparse.Namespace) -> None:
    """Predict images of your own with a run, or with the blend of a submission."""
    start_torch()
    from podium.machine import Machine
    from podium.submissions.predict_boxes import predict_boxes
    from podium.submissions.predict_images import find_models, predict_images

    folds, blend = find_models(args.models, args.competition, args.root)
    machine = Machine(device=args.device)
    if args.boxes:
        predictions = predict_boxes(folds, args.images, machine, args.boxes)
    else:
        predictions = predict_images(folds, blend, args.images, machine, args.cropped)
    if args.csv:
        print(predictions.frame().to_csv(index=False, float_format="%.9g"), end="")
    else:
        terminal.show(predictions.table(args.top))


def verify(args: argparse.Namespace) -> None:
    """Train a fold of a run again, and say whether it is the same to the bit."""
    start_torch()
    from podium.machine import Machine
    from podium.training.verify_run import verify_fold

    machine = Machine(device=args.device, workers=args.workers, deterministic=args.deterministic)
    verify_fold(args.competition, args.root, args.run_name, args.fold, machine)


def explain(args: argparse.Namespace) -> None:
    """Draw what a model looks at and what it has learned: attention, Grad-CAM, receptive field, filters, positions."""
    start_torch()
    from podium.explain.explain_models import ExplainRequest, explain_models
    from podium.explain.picture_names import PICTURES

    if args.regions:
        _find_regions(args)
        return
    request = ExplainRequest(
        runs=args.runs,
        models=args.model or (),
        weights=args.weights,
        pictures=args.what or tuple(PICTURES),
        images=args.images or (),
        fold=args.fold,
        output=args.output,
    )
    for path in explain_models(request, args.competition, args.root):
        print(path)


def _find_regions(args: argparse.Namespace) -> None:
    from podium.explain.find_regions import find_regions
    from podium.saved_runs.run_folder import find_runs

    if not args.runs or args.model or args.what or args.images or args.output or args.fold is not None:
        raise PodiumError("--regions looks at all images with all models of the runs that you name; leave out the rest")
    competition = _competition(args)
    for run in find_runs(competition.slug, args.root, args.runs):
        for path in find_regions(run, competition, args.root):
            print(path)


def compare(args: argparse.Namespace) -> None:
    """List the runs: their scores, what they cost, and how often they disagree."""
    from podium.comparing.compare import compare_runs
    from podium.comparing.comparison_picture import check_path, draw_comparison
    from podium.comparing.comparison_text import compare_as_text

    if args.picture:
        check_path(args.picture)
    competition = _competition(args)
    if args.predictions:
        from podium.comparing.prediction_frame import write_predictions

        write_predictions(competition, args.root, args.predictions, args.runs, args.except_names)
        return
    runs = compare_runs(competition, args.root, args.runs, args.except_names)
    if args.json:
        terminal.show(runs.to_json(orient="records", indent=2, double_precision=15))
    elif args.csv:
        terminal.show(runs.to_csv(index=False).rstrip("\n"))
    else:
        terminal.show(compare_as_text(competition, args.root, runs))
    if args.picture:
        draw_comparison(runs, args.picture)


def report(args: argparse.Namespace) -> None:
    """Write pages that show the runs in a browser: curves, confusions, mistakes, doubtful labels, costs."""
    start_torch()
    from podium.report.write_report import write_reports

    print(write_reports(_competition(args), args.root, args.runs, args.except_names))


def export(args: argparse.Namespace) -> None:
    """Write a run's models as one file for other programs, and a card that describes it."""
    start_torch()
    from podium.exporting.export_run import ExportRequest, export_run
    from podium.saved_runs.run_folder import find_runs

    competition = _competition(args)
    (run,) = find_runs(args.competition, args.root, [args.run_name])
    request = ExportRequest(args.form, args.folds or (), args.views, args.output, args.int8)
    print(export_run(competition, args.root, run, request))


def soup(args: argparse.Namespace) -> None:
    """Average the weights of runs, and try sizes of prediction, chosen for each fold by the others."""
    start_torch()
    from podium.comparing.twin import describe_gain_of_soup
    from podium.machine import Machine
    from podium.training.soup import SoupRequest, make_soup

    competition, machine = _competition(args), Machine(device=args.device, workers=args.workers)
    request = SoupRequest(args.name, args.test_sizes or (), machine)
    beside = partial(describe_gain_of_soup, competition, args.root)
    make_soup(competition, args.root, args.run_names, request, beside)


def lineage(args: argparse.Namespace) -> None:
    """Show where every number of a submission came from."""
    from podium.submissions.lineage import describe_lineage

    print(terminal.printable(describe_lineage(args.file)))


def score(args: argparse.Namespace) -> None:
    """Score a submission against a solution."""
    from podium.competition.load import load
    from podium.extensions.extension_files import load_extensions
    from podium.scoring.score_csv import score
    from podium.submissions.lineage import recorded_competition, recorded_metric

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


# --- Kaggle's machines -------------------------------------------------------------------------------


def kaggle_train(args: argparse.Namespace) -> None:
    """Train a model on Kaggle's own GPUs, or compete there: pack a kernel, follow it, bring back what it made."""
    from podium.kaggle.remote_train import train_on_kaggle
    from podium.training.request import Request

    options = _recipe_options(args)
    if not options.keys() & {"model", "start"}:
        _compete_on_kaggle(args, options)
        return
    request = Request(options=options, folds=args.folds or (), name=args.name, budget=args.budget)
    train_on_kaggle(args.competition, args.root, request, args.accelerator)


def _compete_on_kaggle(args: argparse.Namespace, options: dict[str, Any]) -> None:
    from podium.competition.load import raw_folder
    from podium.kaggle.remote_compete import compete_on_kaggle
    from podium.recipe import flag_of

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
        _show_best(_competition(args), csv)
    else:
        terminal.say(f"next: {terminal.command_for('data', args.competition)}")
        print(csv)


def kaggle_bundle(args: argparse.Namespace) -> None:
    """Pack models, code and a notebook for a competition without a network, and try them without one."""
    from podium.kaggle.bundle import bundle

    if args.upload:
        from podium.kaggle.client import check_token

        check_token(args.competition)
    folder = bundle(_competition(args), args.root, args.runs, args.except_names, args.blend)
    print(folder)
    if args.upload:
        from podium.kaggle.publish_bundle import publish_bundle

        page = publish_bundle(args.competition, folder)
        terminal.say(f"next: Submit to Competition, on the page of the notebook's output: {page}")
    else:
        again = "UPLOAD=1" if terminal.uses_make() else "--upload"
        terminal.say(f"next: the same command with {again} brings it to Kaggle")


def doctor(args: argparse.Namespace) -> None:
    """Check packages, disk, GPU, weights, Kaggle's terms and data before a long run."""
    from podium.cli.doctor import doctor

    doctor(args.competition, args.root, args.model, args.device)


# --- from flags to arguments -------------------------------------------------------------------------


def _competition(args: argparse.Namespace, with_columns: bool = False, /, **settings: str) -> "Competition":
    from podium.competition.load import load_and_report
    from podium.kaggle.download import load_unpacked

    slug, corrections = args.competition, getattr(args, "corrections", None)
    read = partial(load_and_report, slug, args.root, corrections, with_columns, **settings)
    return load_unpacked(slug, args.root, read)


def _recipe_options(args: argparse.Namespace) -> dict[str, Any]:
    from podium.recipe import recipe_options

    given = {name: getattr(args, name) for name in recipe_options() if getattr(args, name) is not None}
    if isinstance(given.get("model"), list):  # of `train`, which takes several
        given["model"] = given["model"][0]
    return given


def _plain_machine(args: argparse.Namespace) -> "Machine":
    from podium.machine import Machine

    return Machine(device=args.device, workers=args.workers, store=args.store)


def _machine(args: argparse.Namespace) -> "Machine":
    from podium.machine import Machine

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


COMMANDS: dict[str, flags.Command] = {
    "data": (data, flags.data),
    "audit": (audit, flags.audit),
    "folds": (folds, flags.folds),
    "models": (models, flags.models),
    "pretrain": (pretrain, flags.pretrain),
    "train": (train, flags.train),
    "search": (search, flags.search),
    "compete": (compete, flags.compete),
    "next": (next_moves, flags.next_moves),
    "jobs": (jobs, flags.no_flags),
    "submit": (submit, flags.submit),
    "import": (import_predictions, flags.import_predictions),
    "predict": (predict, flags.predict),
    "soup": (soup, flags.soup),
    "verify": (verify, flags.verify),
    "report": (report, flags.report),
    "export": (export, flags.export),
    "lineage": (lineage, flags.lineage),
    "score": (score, flags.score),
    "compare": (compare, flags.compare),
    "explain": (explain, flags.explain),
    "bench": (bench, flags.bench),
    "kaggle-train": (kaggle_train, flags.kaggle_train),
    "kaggle-bundle": (kaggle_bundle, flags.kaggle_bundle),
    "doctor": (doctor, flags.doctor),
    "sample": (sample, flags.no_flags),
    "demo": (demo, flags.no_flags),
}
