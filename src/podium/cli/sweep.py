"""Trains what one command asks for: one run, or several in turn, a run for each model and seed.

    podium train --model A B [--one-recipe] [--seeds 0-4] [--dry-run]

All requests are checked before the first run begins. If a run fails, the next one is trained; at the end the runs are
compared. The same command resumes.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from podium.basics.beside import brought
from podium.basics.errors import PodiumError
from podium.basics.light_torch import start_torch
from podium.basics.terminal import first_few, say, show
from podium.basics.torchrun import started_by_torchrun
from podium.options.recipe import Options
from podium.training.request import Request, check_before_plan, check_request, check_weights, name_of_run


def train_in_turn(args: argparse.Namespace, request: Request) -> None:
    """Trains the request, or each of those that its lists of models and seeds stand for."""
    requests = list_requests(args, request)
    if args.dry_run:  # a later round learns from a run that is not there yet
        requests = requests[:: args.rounds]
    launches = args.processes is not None and not started_by_torchrun() and not args.dry_run
    if launches or len(requests) > 1:
        models = []
        for single in requests:
            options = check_request(args.competition, args.root, single, args.processes if launches else 1)
            check_weights(args.competition, args.root, options, args.dry_run)
            models.append(options["model"])
        if request.options.get("linear"):
            requests = _smallest_model_first(requests, models)
    run = partial(_launch if launches else train_request, args)
    if len(requests) == 1:
        run(requests[0])
    else:
        _train_each(requests, run, args)


def list_requests(args: argparse.Namespace, request: Request) -> list[Request]:
    """Returns a request for each model and each seed."""
    from podium.models.hub import expand_pattern

    named = [name for pattern in args.model or () for name in expand_pattern(pattern)]
    models, seeds = (list(dict.fromkeys(values or [None])) for values in (named, args.seeds))
    if len(models) > 1:
        for flag, value in {"--name": request.name, "--budget": request.budget, "--from": args.start}.items():
            if value:
                raise PodiumError(f"{flag} is for one model, not for {len(models)}; leave it out, or train one model")
    if args.rounds > 1 and request.budget:
        raise PodiumError(f"--budget is for one run, not for {args.rounds} rounds; leave it out, or give --epochs")
    if args.seeds and args.seed is not None:
        raise PodiumError("--seed and --seeds contradict each other; give one of them")
    if len(seeds) > 1 and request.budget:
        raise PodiumError(f"--budget is for one run, not for {len(seeds)}; leave it out, or train one seed")
    if args.one_recipe:
        first = _recipe_of_first(args, _with(request, models[0], None))
        request = replace(request, options={**first, **request.options})
    singles = [_with(request, model, seed) for model in models for seed in seeds]
    return [part for single in singles for part in _in_rounds(single, args.rounds)]


def _in_rounds(request: Request, rounds: int) -> list[Request]:
    """Returns a request for each round of pseudo-labels: the named runs label for the first, each for the next."""
    if rounds == 1:
        return [request]
    if not request.options.get("pseudo"):
        raise PodiumError("--rounds is for pseudo-labels; name the runs of the first round with --pseudo")
    name, requests = name_of_run(request, request.options), list[Request]()
    for number in range(1, rounds + 1):
        own = name if number == rounds else f"{name}-round{number}"
        labelled = {"pseudo": requests[-1].name} if requests else {}
        requests.append(replace(request, options={**request.options, **labelled}, name=own))
    return requests


def _recipe_of_first(args: argparse.Namespace, request: Request) -> Options:
    """Returns the options that the first model decides: all models get them.

    Weights made for larger test images would give their model another size, so all are tested at the training size.
    """
    from podium.competition.load import load
    from podium.folds.folds_csv import read_folds
    from podium.models.build import model_options, resolve_recipe
    from podium.options.recipe_defaults import learns_anew
    from podium.training.plan import data_of

    options = check_request(args.competition, args.root, request)
    competition = load(args.competition, args.root, request.corrections)
    card = competition.recipe
    recipe = resolve_recipe(options, card, data_of(competition, read_folds(competition)))
    names = model_options(options["model"], learns_anew(recipe.weights))
    sizes = {"image_size": recipe.image_size, "test_size": recipe.image_size}
    return {**{name: getattr(recipe, name) for name in names if name not in card}, **sizes}


def _with(request: Request, model: str | None, seed: int | None) -> Request:
    options = dict(request.options)
    if model is not None:
        options["model"] = model
    single = replace(request, options=options)
    if seed is None:
        return single
    return replace(single, options={**options, "seed": seed}, name=f"{name_of_run(single, options)}-seed{seed}")


def _smallest_model_first(requests: Sequence[Request], models: Sequence[str]) -> list[Request]:
    from podium.models.costs import count_parameters

    sizes = [count_parameters(model) for model in models]
    return [requests[number] for number in sorted(range(len(requests)), key=sizes.__getitem__)]


# --- one run, or several -----------------------------------------------------------------------------


def train_request(args: argparse.Namespace, request: Request) -> str:
    """Trains a run in this process; returns its name."""
    checked = check_before_plan(args.competition, args.root, request, only_shown=args.dry_run)
    start_torch()
    from podium.training.plan import make_plan

    plan = make_plan(checked)
    if args.dry_run:
        from podium.training.dry_run import show_plan

        show_plan(plan)
    else:
        from podium.comparing.baseline import compare_with_baseline
        from podium.training.train import train

        if plan.may_choose:
            from podium.competing.one_model import choose_one

            plan = choose_one(plan)
        train(plan, partial(compare_with_baseline, plan.competition))
    return plan.run.name


def _launch(args: argparse.Namespace, request: Request) -> str:
    """Trains a run in several processes: each gets the same command, for this run only."""
    from podium.training.processes import launch_processes

    words = [*args.words]
    if args.model:  # the last of a flag that is given twice counts
        words += ["--model", request.options["model"]]
    if args.seeds:
        words += ["--seeds", str(request.options["seed"])]
    if args.one_recipe:  # these processes know one model only: they get the options of the first as flags
        shared = {name: value for name, value in request.options.items() if getattr(args, name) is None}
        words += [word for name, value in shared.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    launch_processes(args.processes, args.device, words)
    return name_of_run(request, request.options)


def _train_each(requests: Sequence[Request], run: Callable[[Request], str], args: argparse.Namespace) -> None:
    trained, failed = [], []
    for number, request in enumerate(requests, 1):
        name = name_of_run(request, request.options)
        say(f"podium: run {number} of {len(requests)}, {name}")
        try:
            trained.append(run(request))
        except PodiumError as error:
            failed.append(name)
            say(f"podium: error: {error}")
        except SystemExit as stop:  # of several processes, which have reported their error
            if stop.code != 1:
                raise
            failed.append(name)
    if trained and not args.dry_run and not started_by_torchrun():
        show_comparison(args, trained)
    if failed:
        raise PodiumError(f"{len(failed)} of {len(requests)} runs failed: {first_few(failed)}; their errors are above")


def show_comparison(args: argparse.Namespace, names: list[str]) -> None:
    from podium.basics.project_root import runs_folder
    from podium.comparing.compare import compare_runs
    from podium.comparing.comparison_text import compare_as_text
    from podium.competition.load import load

    competition = load(args.competition, args.root)
    runs = compare_runs(competition, names)
    show(compare_as_text(competition, runs))
    for draw in brought("pictures", "AFTER_COMPARING"):
        draw(runs, runs_folder(competition.slug, args.root) / "comparison.svg")
