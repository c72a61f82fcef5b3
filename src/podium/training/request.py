"""What the user asks of a run, and all that can be refused before the tables are read.

For the command line and for Python callers alike, the cheapest checks come first: neither numpy nor torch is imported
before a misspelt name is found.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from podium.basics.disk import check_name
from podium.basics.errors import PodiumError
from podium.basics.light_torch import start_torch
from podium.basics.machine import Machine
from podium.basics.project_root import runs_folder
from podium.basics.terminal import say
from podium.basics.torchrun import world_size
from podium.competition.card import read_card
from podium.models.hub import (
    JOIN,
    check_model_name,
    check_weights_available,
    name_for_runs,
    timm_name,
)
from podium.models.hub_access import WeightsUnreachable
from podium.options.moves.seen_parts import SeenParts
from podium.options.option_kinds import NEIGHBOURS
from podium.options.recipe import (
    KNOBS,
    NEUTRAL,
    Options,
    check_options,
    files_of,
    fits_only_head,
    flag_of,
    has_neighbours,
    learns_from,
    needing_end,
    only_in_training,
    start_of,
    teacher_of,
)
from podium.options.recipe_defaults import expand_auto
from podium.options.recipe_options import LINEAR
from podium.saved_runs.pretrained_backbones import find_backbone, names_of_pretrainings
from podium.training.tracking.find_trackers import refuse_missing_packages


@dataclass(frozen=True)
class Request:
    """What the user asked for; everything else has a default."""

    options: Options  # of the recipe
    folds: Sequence[int] = ()  # default: all
    name: str | None = None  # of the run; default: the model
    machine: Machine = field(default_factory=Machine)
    budget: float | None = None  # seconds
    started: float = field(default_factory=time.monotonic)  # the budget counts from this moment
    corrections: Path | None = None  # a file whose lines join the competition's own


@dataclass(frozen=True)
class CheckedRequest:
    """A request for a competition that nothing cheap speaks against: plan.py makes a plan of it."""

    slug: str
    root: Path
    request: Request
    options: Options  # with a model in place of `auto`
    only_shown: bool  # not trained: then a run of this name may have been started with another recipe


def check_before_plan(slug: str, root: Path, request: Request, only_shown: bool = False) -> CheckedRequest:
    options = check_request(slug, root, request, world_size())
    _refuse_unknown_runs(slug, root, request, options)
    check_weights(slug, root, options, only_shown)
    return CheckedRequest(slug, root, request, options, only_shown)


def check_request(slug: str, root: Path, request: Request, processes: int = 1) -> Options:
    """Returns the options with a model in place of `auto`; refuses wrong names, wrong values and contradictions."""
    card = read_card(slug, root).get("recipe", {})  # also loads the extensions, whose names options may use
    options = request.options
    if request.name is not None:
        check_name(request.name, "the name of a run")
    check_options(options)
    refuse_missing_packages(request.machine.trackers)
    if "model" in options:
        options = {**options, "model": timm_name(options["model"])}
    if start_of(options):
        from podium.saved_runs.earlier_runs import go_on_from  # it imports numpy

        options = go_on_from(slug, root, options, request.name)
        check_options(options)
    if options.get("model") == "auto":
        start_torch()
        from podium.models.device import device_kind, pick_device  # it imports torch

        chosen = _choice_of_begun_run(slug, root, request)
        kind = device_kind(pick_device(request.machine.device))
        options = {**options, **chosen} if chosen else expand_auto(options, kind)
    check_model_name(options.get("model"))
    _refuse_contradictions(options, card, request, processes)
    return options


def check_weights(slug: str, root: Path, options: Options, only_shown: bool) -> None:
    """Refuses weights that are neither here nor on a hub that answers."""
    options = {**read_card(slug, root).get("recipe", {}), **options}
    weights = options.get("weights", "pretrained")
    if start_of(options) or find_backbone(slug, root, weights) is not None:  # the weights are those of a run
        return
    try:
        check_weights_available(options["model"], weights, names_of_pretrainings(slug, root))
    except WeightsUnreachable as problem:
        if not only_shown:
            raise
        say(f"podium: note: {problem}")


def name_of_run(request: Request, options: Options) -> str:
    """Returns the run's name: the user's, or else that of the model, `auto`, or the run that it goes on from."""
    if request.name:
        return request.name
    if source := start_of(options):
        return f"{source}{_ending_of(options) or '-more'}"
    if request.options.get("model") == "auto":  # whatever it becomes
        name, options = "auto", request.options
    else:
        name = name_for_runs(options.get("model", ""))
    return f"{name}{_ending_of(options)}"


def _ending_of(options: Options) -> str:
    """Returns what the name of a run with a frozen backbone ends in."""
    if not fits_only_head(options):
        return ""
    return f"-{NEIGHBOURS if has_neighbours(options.get('head', '')) else LINEAR}"


# --- details -----------------------------------------------------------------------------------------


def _choice_of_begun_run(slug: str, root: Path, request: Request) -> Options:
    """Returns what `--model auto` chose when this run began; nothing if it has not begun."""
    from podium.saved_runs.run_folder import Run  # it imports numpy

    run = Run(runs_folder(slug, root) / name_of_run(request, request.options))
    return dict(run.recipe.get("auto", {}).get("options", {})) if run.has_begun() else {}


def _refuse_unknown_runs(slug: str, root: Path, request: Request, options: Options) -> None:
    """Refuses a run to learn from that is not there before weights are sought. A finished fold needs it no more."""
    for option in learns_from():
        if not (named := options.get(option)):
            continue
        from podium.saved_runs.run_folder import Run, find_runs  # it imports numpy

        name = name_of_run(request, options)
        if name in named.split("+"):
            raise PodiumError(
                f"run '{name}' cannot learn from itself; give the new run another name (--name RUN, with make NAME=RUN)"
                f" or take another {flag_of(option)}"
            )
        if not Run(runs_folder(slug, root) / name).has_begun():
            find_runs(slug, root, named.split("+"))


def _refuse_contradictions(options: Options, card: Options, request: Request, processes: int) -> None:
    chosen = {**NEUTRAL, **card, **options}
    _refuse_several_models(chosen)
    if fits_only_head(chosen):
        # The card's losses and augmentations do not apply to a head.
        asked = {**NEUTRAL, **options, "teacher": teacher_of(chosen)}
        if has_neighbours(asked["head"]):
            asked["head"] = NEUTRAL["head"]
        for flag, is_given in {
            "--processes": processes > 1,
            # `auto` may yet choose a head.
            "--budget": request.budget is not None and fits_only_head({**card, **request.options}),
            **{f"--{name.replace('_', '-')}": asked[name] != NEUTRAL[name] for name in only_in_training()},
        }.items():
            if is_given:
                raise PodiumError(
                    f"--linear cannot be combined with {flag}, because it only fits a head, in minutes; leave out one"
                    " of them"
                )
    if has_neighbours(chosen["head"]) and not fits_only_head(chosen):
        raise PodiumError(f"--head {chosen['head']} has nothing to learn: it compares frozen features; add --linear")
    _refuse_pairs(chosen)
    if request.budget is not None and (last := next(iter(needing_end(chosen)), "")):
        raise PodiumError(f"--budget may cut off the end of a run, which {flag_of(last)} needs; leave out one of them")
    if chosen["head"] != LINEAR and request.options.get("model") == "auto":
        raise PodiumError(f"--model auto judges models by linear heads; name a model for --head {chosen['head']}")
    SeenParts.recorded(chosen).refuse_missing_file()
    files_of(chosen)


def _refuse_pairs(chosen: Options) -> None:
    """Refuses options that do not go with each other, as one of them says."""
    for name, own in KNOBS.items():
        for other, why in own.against.items():
            if chosen[name] != NEUTRAL[name] and chosen[other] != NEUTRAL[other]:
                both = " and ".join(_as_given(one, chosen[one]) for one in (name, other))
                raise PodiumError(f"{both} {why}; leave out one of them")


def _as_given(name: str, value: object) -> str:
    """Returns the flag, with the word that it was given."""
    return f"{flag_of(name)} {value}" if isinstance(value, str) and KNOBS[name].limits.choices else flag_of(name)


def _refuse_several_models(chosen: Options) -> None:
    if JOIN not in chosen["model"]:
        return
    if not fits_only_head(chosen):
        raise PodiumError(
            f"--model {chosen['model']} is for --linear: one head sees the features of all; add --linear, or train one"
            " by one, and podium submit blends the runs"
        )
    for name in ("pool", "head"):
        if chosen[name] != NEUTRAL[name]:
            raise PodiumError(f"{flag_of(name)} changes the end of one model; leave it out, or name one model")
    if chosen.get("weights", "pretrained") not in ("pretrained", "none"):
        raise PodiumError("--weights cannot be one file for several models; leave it out, or name one model")
