"""Searches the options of a run, and judges the winner on a fold that the search has not seen.

    podium search --model A B [--trials 40] [--budget 4h] [--folds 0-4] [--name SEARCH] [options that are not searched]

Cheap looks come first: a frozen head of each model, of which the better half goes on; then, for each trial, a short
training of one fold, that fold, and the other folds. Of the trials that reach a rung, half go on (successive halving).
The first trials are those of the defaults, and always go on. Reads what training reads; writes runs like any other,
`<search>-t<number>`, and the study (study.py). The same command goes on; several processes may search at once.
"""

import json
import math
from collections.abc import Collection, Iterator, Sequence

from optuna.trial import Trial, TrialState

from podium.basics.disk import locked
from podium.basics.errors import InUse, NoSpaceLeft, PodiumError
from podium.basics.image_size import ImageSize
from podium.basics.terminal import duration, first_line, plural, say, show, table
from podium.blending.pool_images import fold_scores
from podium.competition.load import Competition
from podium.options.recipe import Options, describe_options
from podium.options.recipe_defaults import learns_anew
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import METRICS
from podium.training.open_regions import open_regions
from podium.training.plan import Plan
from podium.training.train import train_folds
from podium_annex.searching.pace import Pace
from podium_annex.searching.search_plan import SearchPlan
from podium_annex.searching.search_space import MODEL, Space
from podium_annex.searching.study import (
    DEFAULTS,
    ERROR,
    OF_EACH_FOLD,
    OPTIONS,
    SHORT_TRAINING,
    STUDY,
    SearchStudy,
    keep_settings,
)

SHORT = 3  # a short training has one epoch in so many
LEAST_MODELS = 2  # that go on after the looks: a frozen head alone does not tell the best model
MOST_FAILURES = 3  # of trials in a row: then it is not their options


def search(plan: SearchPlan) -> bool:
    """Tries trials until there are enough or the time is over; returns whether this process has judged the winner."""
    pace = Pace(plan.request.budget, plan.request.started - plan.request.spent)
    if not (plan.folder / STUDY).exists():
        _refuse_short_budget(plan, pace, looks_of(plan).values())
    keep_settings(plan.folder, plan.settings())
    better = METRICS[plan.base.competition.metric]().better
    study = SearchStudy(plan.folder, better, plan.base.recipe.seed)
    _prepare_pixels(plan)
    trials = Trials(plan, study, pace, choose_models(plan, pace))
    trials.run()
    if study.is_busy():
        say("podium: other processes are still training trials of this search; the last of them judges the winner")
        return False
    _judge(plan, trials)
    return True


def _prepare_pixels(plan: SearchPlan) -> None:
    """Decodes the images first, so that no trial's time contains it."""
    for model in plan.models:
        for size in plan.request.sizes or (None,):
            options = {"model": model, **({} if size is None else {"image_size": size})}
            open_regions(plan.plan_of(options, "defaults"), plan.request.machine.keep_pixels)


def score_on(run: Run, folds: Sequence[int], competition: Competition) -> float:
    """Returns the mean score on these folds; NaN if one of them is not finished."""
    scores = dict(zip(run.finished(), fold_scores(run, competition, competition.label_of), strict=True))
    return sum(scores.get(fold, math.nan) for fold in folds) / len(folds)


# --- looks -------------------------------------------------------------------------------------------


def looks_of(plan: SearchPlan) -> dict[tuple[str, ImageSize | None], Plan]:
    """Returns the frozen heads by model and size; none where a head tells nothing, or no model would be left out."""
    if len(plan.models) <= LEAST_MODELS or learns_anew(plan.base.recipe.weights):
        return {}
    sizes: Sequence[ImageSize | None] = plan.request.sizes or (None,)
    return {(model, size): plan.look_of(model, size) for model in plan.models for size in sizes}


def choose_models(plan: SearchPlan, pace: Pace) -> tuple[str, ...]:
    """Returns the better half of the models, by frozen heads on one fold; all if none are looked at."""
    looks = looks_of(plan)
    if not looks:
        return plan.models
    for patience in (0.0, math.inf):  # first what no other process does, then what none has finished
        for look in looks.values():
            with locked(plan.folder / f".{look.run.name}.lock", patience=patience) as is_mine:
                if is_mine and look.unfinished_folds():
                    with pace.timed(look):
                        train_folds(look)
    better = METRICS[plan.base.competition.metric]().better
    scores = {key: score_on(look.run, plan.folds[:1], plan.base.competition) for key, look in looks.items()}
    best = {model: max(better * score for (own, _), score in scores.items() if own == model) for model in plan.models}
    ranked = sorted(plan.models, key=lambda model: -best[model])
    kept = ranked[: max(LEAST_MODELS, math.ceil(len(ranked) / 2))]
    rows = [[model, f"{better * best[model]:z.5f}", "" if model in kept else "left out"] for model in ranked]
    show(table(["frozen head of", plan.base.competition.metric, ""], rows))
    return tuple(model for model in plan.models if model in kept)


# --- trials ------------------------------------------------------------------------------------------


class Trials:
    def __init__(self, plan: SearchPlan, study: SearchStudy, pace: Pace, models: tuple[str, ...]) -> None:
        self.plan, self.study, self.pace, self.models = plan, study, pace, models
        sizes = tuple(plan.request.sizes)
        self.spaces = {model: Space(plan.defaults_of(model), plan.fixed, sizes) for model in models}

    def run(self) -> None:
        """Trains trials until there are enough or the time is over."""
        choice = {model: {MODEL: model} if len(self.models) > 1 else {} for model in self.models}
        self.study.enqueue_defaults(
            {model: {**choice[model], **space.drawn_for_defaults()} for model, space in self.spaces.items()}
        )
        if self.study.best() is None and not self.plan.request.spent:
            _refuse_short_budget(self.plan, self.pace)
        failures, has_time = 0, True
        while has_time:
            with self.study.claimed(self.plan.request.trials) as trial:
                if trial is None:
                    return
                try:
                    has_time = self._train(trial)
                    failures = 0
                except (InUse, NoSpaceLeft):  # the trial is not at fault: the same command goes on with it
                    raise
                except PodiumError as error:
                    failures += 1
                    if DEFAULTS in trial.user_attrs or failures == MOST_FAILURES:
                        raise
                    say(f"podium: warning: trial {trial.number} failed: {error}")
                    trial.set_user_attr(ERROR, first_line(error))
                    self.study.study.tell(trial, state=TrialState.FAIL)
        say("podium: the time of the search is over; the same command goes on")

    def options_of(self, trial: Trial) -> Options:
        """Returns the options of a trial, which are drawn when it begins."""
        if OPTIONS in trial.user_attrs:
            return dict(json.loads(trial.user_attrs[OPTIONS]))
        model = trial.suggest_categorical(MODEL, self.models) if len(self.models) > 1 else self.models[0]
        drawn = self.spaces[model].draw(trial)
        options = {"model": model, **({} if DEFAULTS in trial.user_attrs else drawn)}
        trial.set_user_attr(OPTIONS, json.dumps(options))
        return options

    def _train(self, trial: Trial) -> bool:
        """Trains what is left of a trial; returns False if the time does not allow it."""
        options, is_default = self.options_of(trial), DEFAULTS in trial.user_attrs
        say(f"podium: trial {trial.number}: {describe_options(options) if not is_default else options['model']}")
        known = self.study.trials()[trial.number].last_step or 0
        value = math.nan
        for step, plan, folds in steps_of(self.plan, trial.number, options):
            if plan.unfinished_folds():
                if not self._has_time_for(plan, trial.number, options):
                    return False
                with self.pace.timed(plan):
                    train_folds(plan)
            value = self.study.value(score_on(plan.run, folds, self.plan.base.competition))
            if math.isnan(value):
                raise PodiumError(f"{plan.run.path}: its {self.plan.base.competition.metric} is not a number")
            if step > known:
                trial.report(value, step)
            # The defaults are asked, too: only then do others compete with them.
            if step >= known and trial.should_prune() and not is_default:
                self.study.study.tell(trial, state=TrialState.PRUNED)
                say(f"podium: trial {trial.number} stops after {_words_of(step)}: others did better")
                return True
        self.study.study.tell(trial, value)
        best = self.study.best()
        is_best = ", the best so far" if best is not None and best.number == trial.number else ""
        score = f"{self.plan.base.competition.metric} {self.study.better * value:z.5f}"
        say(f"podium: trial {trial.number}: {score}{is_best}")
        return True

    def _has_time_for(self, plan: Plan, number: int, options: Options) -> bool:
        """Returns whether there is time for a step, and for a judgement, also if this trial becomes the winner."""
        if not self.pace.is_limited:
            return True
        judgements = judged(self.plan, self.study), judged_if_won(self.plan, self.study, number, options)
        most = max(sum(map(self.pace.seconds, plans)) for plans in judgements)
        return self.pace.seconds(plan) + most < self.pace.seconds_left()


def steps_of(plan: SearchPlan, number: int, options: Options) -> Iterator[tuple[int, Plan, tuple[int, ...]]]:
    """Yields each step of a trial, its plan, and the folds that its score is a mean over."""
    folds, name = plan.folds, f"t{number}"
    whole = plan.plan_of(options, name, folds[0])
    epochs = whole.recipe.epochs // SHORT
    short = plan.plan_of({**options, "epochs": epochs}, f"{name}-short", folds[0]) if epochs else whole
    yield SHORT_TRAINING, short, folds[:1]
    for count, fold in enumerate(folds, 1):
        yield OF_EACH_FOLD * count, plan.plan_of(options, name, fold), folds[:count]


def _refuse_short_budget(plan: SearchPlan, pace: Pace, looks: Collection[Plan] = ()) -> None:
    """Refuses a time in which not even the looks are over and the defaults of one model are tried and judged."""
    if not pace.is_limited:
        return
    options, number = {"model": plan.models[0]}, 0
    steps = [step_plan for _, step_plan, _ in steps_of(plan, number, options)]
    steps.append(plan.plan_of(options, f"t{number}", plan.last_fold))
    seconds, of_looks = (sum(map(pace.seconds, plans)) for plans in (steps, looks))
    if seconds + of_looks > pace.seconds_left():
        heads = f", after {duration(of_looks)} for {plural(len(looks), 'frozen head')}" if looks else ""
        raise PodiumError(
            f"--budget: the defaults of {plan.models[0]} alone take about {duration(seconds)} on"
            f" {plural(len(plan.folds) + 1, 'fold')}{heads}; allow more, name fewer --folds or a smaller model"
        )


def _words_of(step: int) -> str:
    return "a short training" if step == SHORT_TRAINING else plural(step // OF_EACH_FOLD, "fold")


# --- the judgement -----------------------------------------------------------------------------------


def judged(plan: SearchPlan, study: SearchStudy) -> list[Plan]:
    """Returns the plans of the winner and of the defaults of its model, on the fold that the search did not use."""
    best = study.best()
    return [] if best is None else judged_if_won(plan, study, best.number, json.loads(best.user_attrs[OPTIONS]))


def judged_if_won(plan: SearchPlan, study: SearchStudy, number: int, options: Options) -> list[Plan]:
    """Returns these plans if this trial is the winner."""
    defaults, trials = study.defaults_of(options["model"]), {number: options}
    if defaults is not None:
        trials[defaults.number] = json.loads(defaults.user_attrs[OPTIONS])
    return [plan.plan_of(own, f"t{trial}", plan.last_fold) for trial, own in trials.items()]


def _judge(plan: SearchPlan, trials: Trials) -> None:
    """Trains winner and defaults on the fold that the search did not use; nothing if the time was too short for one."""
    with locked(plan.folder / ".judge.lock", patience=math.inf):
        for judged_plan in judged(plan, trials.study):
            if judged_plan.unfinished_folds():
                say(f"podium: fold {plan.last_fold}, which the search did not use, judges {judged_plan.run.name}")
                train_folds(judged_plan)
