"""What `--model auto` takes on a CPU: looks at the training images decide, within a minute (looks.py).

Heads on the frozen features of a small pretrained model say at which size and in which shape the images tell their
classes, and whether a mirrored image keeps its class. Where they leave little to learn, the head is the choice.
Otherwise the model is fine-tuned, at a size for which there is time. If the head at a larger size may be better than
that, or a model from scratch, short trainings decide. recipe.json records what was seen and chosen, and a resumed run
does not look again.
"""

import math
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from podium.errors import PodiumError
from podium.image_size import ImageSize, area_of, size_of
from podium.models.device import is_cpu, pick_device
from podium.models.hub import check_weights_available
from podium.recipe import NEUTRAL, ONLY_IN_TRAINING, Options, Recipe
from podium.recipe_defaults import AUTO_PRETRAINED
from podium.saved_runs.fold_names import holds_nothing_out
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import METRICS
from podium.terminal import duration, plural, say, show, table
from podium.torchrun import world_size
from podium.training.looks import LARGEST, SMALLEST, Look, Looks, Trial
from podium.training.plan import Plan, with_options, with_run

SIZES = (SMALLEST, 128, 160, LARGEST)  # of the longer side
SIDE_STEP = 8  # of the shorter side
LARGER_PAYS = 0.95  # of the loss at the smaller size
SQUARE_PAYS = 0.95  # of the loss in the images' own oblong shape, which has fewer pixels
SECONDS = (210, 420)  # that a fold may take without the look: few images gain little from long runs
IMAGES_PER_SECOND = 15  # of that time, between the two
LOOK_SECONDS = 55.0  # that the look may take, or a smaller share of a budget
LOOK_SHARE = 0.2
TRIAL_SECONDS = (5.0, 20.0)  # of training, at least and at most, or a smaller share of the time that a fold may take
TRIAL_SHARE = 0.15
FOR_TRIAL = 0.4  # of the time of the look, where the features leave something to learn
IN_TRAINING = 0.7  # of the time of a trial; the rest is for its head and its predictions
# How many times a trial's gain over the head a whole run gains, if the trial has this share of its epochs; with a
# smaller share, the root of the ratio as many times.
WHOLE_RUN, TRIED_SHARE = 2.0, 0.25
KNOWS_LITTLE = 0.15  # of the loss that the frozen head leaves: then a model from scratch may be better
# What fine-tuning leaves of the frozen head's errors, on the measured sets (docs/benchmarks.md).
ERRORS_LEFT = (0.05, 0.75)
LOSS_LEFT = 0.75  # of its loss: a guess, because smoothed labels may even raise it


class Choice(NamedTuple):
    options: Options
    head: Look  # the best one
    score: str  # to expect


def will_look(plan: Plan) -> bool:
    """Returns whether training looks at the images before it chooses a model."""
    request = plan.request
    return (
        request.options.get("model") == "auto"
        and plan.recipe.weights == "none"
        and {**plan.competition.recipe, **request.options}.get("weights") != "none"
        and is_cpu(pick_device(request.machine.device))
        and world_size() == 1
        and not plan.run.has_begun()
    )


def look_first(plan: Plan) -> Plan:
    """Returns the plan with what a look at the images prefers; without `--model auto`, as it is."""
    if not will_look(plan):
        return plan
    try:
        check_weights_available(AUTO_PRETRAINED, "pretrained")
    except PodiumError:
        say(f"podium: note: no weights of {AUTO_PRETRAINED} are here, so auto trains {plan.recipe.model} from scratch")
        return plan
    started = time.monotonic()
    fold = plan.folds_to_train[0]
    most = duration(seconds_to_look(plan))
    say(f"podium: auto looks at training images of fold {fold}, and at none of its held-out images: for at most {most}")
    with tempfile.TemporaryDirectory() as folder:
        looks = Looks(replace(plan, run=Run(Path(folder))), seconds_to_look(plan))
        choice = choose(looks)
    chosen = with_options(plan, choice.options)
    _show_choice(looks, chosen.recipe, choice)
    say(f"podium: the look took {duration(time.monotonic() - started)}; --model NAME and single options overrule it")
    recorded = {name: value for name, value in choice.options.items() if plan.request.options.get(name) != value}
    return replace(chosen, facts={**plan.facts, "auto": {"options": recorded, "fold": fold, "looks": looks.seen}})


def head_beside(plan: Plan) -> Plan | None:
    """Returns the plan of the best frozen head that auto has seen, for the same folds, if it chose another model.

    What auto promised may fail: with this head, no submission is worse than the best that it has seen.
    """
    heads = [look for look in plan.run.recipe.get("auto", {}).get("looks", ()) if "model" not in look]
    if plan.recipe.linear or not heads or holds_nothing_out(plan.folds_to_train[-1]):
        return None
    best = min(heads, key=lambda look: float(look["loss"]))
    found = {name: value for name, value in best.items() if name not in ("loss", "score")}
    options = {"model": AUTO_PRETRAINED, "weights": "pretrained", **found, "linear": True}
    request = replace(plan.request, options=options, name=f"{plan.run.name}-head", budget=None)
    run = Run(plan.run.path.with_name(f"{plan.run.name}-head"))
    return with_run(with_options(replace(plan, request=request, run=run, facts={}), options), run)


def choose(looks: Looks) -> Choice:
    """Returns the options of the run: fine-tuning, the frozen head itself, or from scratch."""
    heads = look_at_sizes(looks)
    best, allowed = heads[-1], seconds_allowed(looks)
    linear = Choice({**looks.options_of_pretrained(best.options), "linear": True}, best, f"{best.score:z.3f}")
    if looks.asked.get("linear"):
        return linear
    if best.leaves_little and may_be_linear(looks):
        say("podium: the frozen features leave little to learn, so auto takes the head on them")
        return linear
    in_time = [head for head in heads if looks.seconds_of(looks.recipe_of(head.options)) <= allowed]
    start = in_time[-1] if in_time else heads[0]
    tuned = Choice(fine_tuning(looks, start, allowed), best, _expected_score(looks.metric, start))
    tried = None
    if best.loss < LOSS_LEFT * start.loss and may_be_linear(looks):
        tried = try_out(looks, tuned.options, allowed)
        if tried is None or start.loss - gain_of_run(start.loss - tried.loss, tried.share) > best.loss:
            size = best.options["image_size"]
            say(f"podium: there is no time to fine-tune at {size} px, so auto takes the head on features of this size")
            return linear
    if best.left > KNOWS_LITTLE and (scratch := try_out(looks, looks.options_from_scratch(), allowed)):
        if scratch.loss < best.loss:  # else it need not be compared with a fine-tuning, which starts there
            tried = tried or try_out(looks, tuned.options, allowed)
        if scratch.loss < (tried.loss if tried else best.loss):
            than = "above" if METRICS[looks.metric]().better > 0 else "below"
            return Choice(looks.options_from_scratch(), best, f"{than} {scratch.score:z.3f}")
    return tuned


def try_out(looks: Looks, options: Options, allowed: float) -> Trial | None:
    """Returns what a short training shows; None if there is no time for one that would tell anything."""
    shortest, longest = (min(seconds, TRIAL_SHARE * allowed) for seconds in TRIAL_SECONDS)
    seconds = min(longest, IN_TRAINING * looks.seconds_left)
    return looks.trial(options, seconds) if seconds >= shortest else None


def may_be_linear(looks: Looks) -> bool:
    """Returns whether a head may be the choice: the user has not asked for what only training has."""
    asked = {**NEUTRAL, **looks.given, "teacher": looks.asked.get("teacher", "")}
    return looks.asked.get("linear") is None and all(asked[name] == NEUTRAL[name] for name in ONLY_IN_TRAINING)


def look_at_sizes(looks: Looks) -> list[Look]:
    """Fits heads at larger and larger sizes as long as these pay; the last one is the best."""
    if "image_size" in looks.asked:
        return [looks.head({"image_size": looks.asked["image_size"]}, tries_mirror=True)]
    heads = [look_at_shapes(looks)]
    is_square = isinstance(heads[0].options["image_size"], int)
    for side in SIZES[1:]:
        size = side if is_square else oblong_size(side, looks.plan.data.shape)
        reserved = 0.0 if heads[-1].leaves_little else FOR_TRIAL * looks.seconds
        if looks.seconds_to_see(size) > looks.seconds_left - reserved:
            break
        larger = looks.head({**heads[-1].options, "image_size": size})
        if larger.loss > LARGER_PAYS * heads[-1].loss:
            break
        heads.append(larger)
    return heads


def seconds_to_look(plan: Plan) -> float:
    """Returns how long the look may take: less with a small budget."""
    budget = plan.request.budget
    return LOOK_SECONDS if budget is None else min(LOOK_SECONDS, LOOK_SHARE * budget)


def gain_of_run(gain: float, share: float) -> float:
    """Returns what a whole run gains over the head, if a trial with this share of its epochs gains so much."""
    return WHOLE_RUN * max(0.0, gain) * math.sqrt(max(1.0, TRIED_SHARE / share))


def look_at_shapes(looks: Looks) -> Look:
    """Returns the smallest look: at squares, or at the shape that nearly all images have."""
    square = {"image_size": SIZES[0]}
    needs_squares = "turn" in str(looks.asked.get("views", "")).split("+")
    if not looks.plan.data.is_oblong or "fit" in looks.asked or needs_squares:
        return looks.head(square, tries_mirror=True)
    whole = {"image_size": oblong_size(SIZES[0], looks.plan.data.shape), "fit": "squash"}
    oblong = looks.head(whole, tries_mirror=True)
    squashed = looks.head({**oblong.options, **square})
    return squashed if squashed.loss < SQUARE_PAYS * oblong.loss else oblong


def oblong_size(longer: int, shape: float) -> ImageSize:
    """Returns the size of images whose width is `shape` heights."""
    shorter = max(SIDE_STEP, round(longer * min(shape, 1 / shape) / SIDE_STEP) * SIDE_STEP)
    return size_of(longer, shorter) if shape < 1 else size_of(shorter, longer)


def seconds_allowed(looks: Looks) -> float:
    """Returns the time that a fold may take: a share of the budget, or some minutes."""
    request = looks.plan.request
    if request.budget is not None:
        left = request.budget - (time.monotonic() - request.started)
        return max(1.0, left) / sum(looks.plan.folds.sizes(looks.plan.folds_to_train, looks.fold))
    shortest, longest = SECONDS
    return min(max(looks.training / IMAGES_PER_SECOND, shortest), longest)


def fine_tuning(looks: Looks, look: Look, allowed: float) -> Options:
    """Returns the options of the run: fewer epochs if it would take too long. A budget fits the epochs itself."""
    options = looks.options_of_pretrained(look.options)
    recipe = looks.recipe_of(look.options)
    too_long = looks.seconds_of(recipe) / allowed
    if too_long > 1 and looks.plan.request.budget is None and "epochs" not in looks.asked:
        options = {**options, "epochs": max(1, int(recipe.epochs / too_long))}
    return options


# --- what the user sees ------------------------------------------------------------------------------


def _show_choice(looks: Looks, recipe: Recipe, choice: Choice) -> None:
    """Prints the choice beside a faster and a slower one: their time for a fold, and the score to expect."""
    head = choice.head
    quick = replace(looks.recipe_of(head.options), linear=True)
    rows = [("quick", "a head on frozen features: ARGS=--linear", quick, f"{head.score:z.3f}")]
    if not recipe.linear:
        rows.append(("good", _described(recipe), recipe, choice.score))
    larger = [side for side in SIZES if recipe.linear or side**2 > area_of(recipe.image_size)]
    if larger and "image_size" not in looks.asked and recipe.model == AUTO_PRETRAINED:
        side = next((side for side in larger if side**2 >= area_of(head.options["image_size"])), larger[-1])
        slow = replace(looks.recipe_of({**head.options, "image_size": side}), linear=False)
        rows.append(("best", f"MODEL={slow.model} SIZE={side}", slow, _expected_score(looks.metric, head)))
    chosen = "quick" if recipe.linear else "good"
    lines = [
        [f"{name} (chosen)" if name == chosen else name, what, duration(looks.seconds_of(timed)), score]
        for name, what, timed, score in rows
    ]
    show(table(["choice", "what", "a fold", looks.metric], lines, text_columns=4))


def _expected_score(metric: str, head: Look) -> str:
    known = METRICS[metric]()
    if known.better < 0 or known.best != 1.0:
        return "not below quick" if known.better > 0 else "not above quick"
    low, high = (f"{1 - (1 - head.score) * left:z.3f}" for left in reversed(ERRORS_LEFT))
    return f"{low} to {high}" if low != high else low


def _described(recipe: Recipe) -> str:
    start = "from scratch" if recipe.weights == "none" else "pretrained"
    return f"{recipe.model}, {start}, {recipe.image_size} px, {plural(recipe.epochs, 'epoch')}"
