"""What a search has found: its best trials, what mattered, and the winner on a fold that the search did not use.

    podium search --report [--name SEARCH]

A searched score flatters: the best of many trials is partly the luckiest. So the winner and the defaults of its model
are compared on the last fold, on which nothing was chosen. Reads the study and the runs of its trials.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState, create_trial

from podium.basics.errors import PodiumError
from podium.basics.terminal import duration, plural, table
from podium.blending.expected_score import Interval, estimate_score
from podium.blending.gain import Gain, gain_of
from podium.blending.held_out import collect_held_out
from podium.blending.pool_images import pool_held_out
from podium.competition.load import Competition
from podium.folds.folds_csv import read_groups
from podium.options.recipe import describe_options
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import METRICS
from podium_annex.searching.search_request import folder_of
from podium_annex.searching.search_space import MODEL
from podium_annex.searching.study import (
    DEFAULTS,
    OPTIONS,
    SHORT_TRAINING,
    SearchStudy,
    read_settings,
)

SHOWN = 10  # trials
LEAST_TRIALS = 12  # for the importance of options: fewer trees would guess
RESAMPLES, TREES = 20, 16
RANGE = (5, 95)  # percentiles of the resampled importances


class Importance(NamedTuple):
    option: str
    share: float  # of the variance of the scores
    low: float
    high: float


class Judgement(NamedTuple):
    """Winner and defaults on the fold that the search did not use."""

    interval: Interval  # 95 %: where the winner's score on as many other images would be
    gain: Gain  # of the winner over the defaults


@dataclass(frozen=True)
class Found:
    """A search as it is on disk."""

    competition: Competition
    root: Path
    name: str

    @cached_property
    def settings(self) -> dict[str, Any]:
        return read_settings(folder_of(self.competition.slug, self.root, self.name))

    @cached_property
    def study(self) -> SearchStudy:
        _ = self.settings  # says what is wrong before Optuna makes a new file
        better = METRICS[self.competition.metric]().better
        return SearchStudy(folder_of(self.competition.slug, self.root, self.name), better)

    @cached_property
    def winner(self) -> FrozenTrial | None:
        return self.study.best()

    def run(self, trial: FrozenTrial) -> Run:
        folder = folder_of(self.competition.slug, self.root, self.name).parents[1]
        return Run(folder / f"{self.name}-t{trial.number}")

    def time_of(self, trial: FrozenTrial) -> str:
        """Returns how long a fold took: a winner that trains longer has a price."""
        run = self.run(trial)
        try:
            seconds = [sum(record.seconds for record in run.history(fold)) for fold in run.finished()]
        except PodiumError:  # no prediction depends on it
            return "?"
        return duration(float(np.mean(seconds))) if seconds else "?"

    @property
    def defaults(self) -> FrozenTrial | None:
        """The trial of the defaults of the winner's model."""
        return self.study.defaults_of(options_of(self.winner)["model"]) if self.winner else None

    def changed_options(self) -> dict[str, Any]:
        """Returns the winner's options that are not the defaults of its model."""
        if self.winner is None or self.defaults is None or DEFAULTS in self.winner.user_attrs:
            return {}
        recipe = self.run(self.defaults).recipe
        return {name: value for name, value in options_of(self.winner).items() if recipe.get(name) != value}

    def searched_options(self) -> dict[str, Any]:
        """Returns what a card must say for the winner: the size, too, if it was searched."""
        if self.winner is None or not self.settings["sizes"]:
            return self.changed_options()
        return {"image_size": self.run(self.winner).recipe["image_size"], **self.changed_options()}

    def judge(self) -> Judgement | None:
        """Compares winner and defaults on the last fold; None before both are trained there."""
        fold, competition = self.settings["last_fold"], self.competition
        if self.winner is None or self.defaults is None:
            return None
        runs = [self.run(self.defaults), self.run(self.winner)]
        if any(fold not in run.finished() for run in runs):
            return None
        groups, labels = read_groups(competition), competition.label_of
        held_out = pool_held_out(collect_held_out(runs, competition.classes, groups, labels), competition)
        pair = held_out.of(held_out.parts == fold)
        pair = replace(pair, groups=np.unique(pair.groups, return_inverse=True)[1])  # those of this fold
        metric = competition.metric
        interval = estimate_score(pair, pair.probs[1], metric, len(pair)).interval
        return Judgement(interval, gain_of(pair, pair.probs[0], pair.probs[1], metric))


def options_of(trial: FrozenTrial) -> dict[str, Any]:
    return dict(json.loads(trial.user_attrs.get(OPTIONS, "{}")))


# --- what mattered -----------------------------------------------------------------------------------


def find_importances(trials: Sequence[FrozenTrial]) -> list[Importance]:
    """Returns the share of each option in the variance of the scores after the short trainings (fANOVA).

    All trials have this score, also those that stopped there. The range is that of resampled trials. An option that
    only some models have explains a share of the variance among their trials.
    """
    scored = [trial for trial in trials if math.isfinite(_score_of(trial))]
    found = _importances_of(scored)
    models = dict.fromkeys(trial.params[MODEL] for trial in scored if MODEL in trial.params)
    common = {item.option for item in found}
    for model in models if len(models) > 1 else ():
        of_model = _importances_of([trial for trial in scored if trial.params[MODEL] == model])
        found += [item._replace(option=f"{item.option} of {model}") for item in of_model if item.option not in common]
    return found


def _score_of(trial: FrozenTrial) -> float:
    return trial.intermediate_values.get(SHORT_TRAINING, math.nan)


def _importances_of(scored: Sequence[FrozenTrial]) -> list[Importance]:
    if len(scored) < LEAST_TRIALS:
        return []
    whole = _shares(scored, seed=0)
    rng = np.random.default_rng(0)
    draws = [
        _shares([scored[place] for place in rng.integers(len(scored), size=len(scored))], seed)
        for seed in range(1, RESAMPLES + 1)
    ]
    ranges = {name: np.percentile([draw.get(name, 0.0) for draw in draws], RANGE) for name in whole}
    return [Importance(name, share, *map(float, ranges[name])) for name, share in whole.items()]


def _shares(trials: Sequence[FrozenTrial], seed: int) -> dict[str, float]:
    values = [_score_of(trial) for trial in trials]
    if len(set(values)) < 2:  # nothing varies
        return {}
    study = optuna.create_study(direction="maximize")
    study.add_trials(
        create_trial(state=TrialState.COMPLETE, value=value, params=trial.params, distributions=trial.distributions)
        for trial, value in zip(trials, values, strict=True)
    )
    evaluator = FanovaImportanceEvaluator(n_trees=TREES, seed=seed)
    return {name: float(share) for name, share in get_param_importances(study, evaluator=evaluator).items()}


# --- for people --------------------------------------------------------------------------------------


def describe_search(found: Found) -> str:
    parts = [_summary(found), _best_trials(found), _curve(found), _importances(found), describe_judgement(found)]
    return "\n\n".join(part for part in parts if part)


def _summary(found: Found) -> str:
    states = [trial.state for trial in found.study.trials()]
    counts = {
        "on all folds of the search": states.count(TrialState.COMPLETE),
        "stopped early": states.count(TrialState.PRUNED),
        "failed": states.count(TrialState.FAIL),
        "unfinished": states.count(TrialState.RUNNING) + states.count(TrialState.WAITING),
    }
    texts = [f"{count} {what}" for what, count in counts.items() if count]
    folds, last = found.settings["folds"], found.settings["last_fold"]
    return (
        f"search {found.name}: {plural(len(states), 'trial')} ({', '.join(texts)});"
        f" fold{'s' if len(folds) > 1 else ''} {','.join(map(str, folds))} searched, fold {last} judges"
    )


def _best_trials(found: Found) -> str:
    metric, better = found.competition.metric, found.study.better
    complete = sorted(found.study.trials(TrialState.COMPLETE), key=lambda trial: (-(trial.value or 0), trial.number))
    rows = []
    for trial in complete[:SHOWN]:
        options = options_of(trial)
        model = options.pop("model", "")
        text = "the defaults" if DEFAULTS in trial.user_attrs else describe_options(options)
        rows.append([found.run(trial).name, model, text, f"{better * (trial.value or 0):z.5f}", found.time_of(trial)])
    return table(["run", "model", "options", metric, "per fold"], rows, text_columns=3) if rows else ""


def _curve(found: Found) -> str:
    """Returns the best score so far, each time that it rose."""
    best, steps = -math.inf, []
    for trial in found.study.trials(TrialState.COMPLETE):
        if trial.value is not None and trial.value > best:
            best = trial.value
            steps.append(f"{found.study.better * best:z.5f} (trial {trial.number})")
    return f"the best so far: {', then '.join(steps)}" if steps else ""


def _importances(found: Found) -> str:
    importances = find_importances(found.study.trials())
    if not importances:
        return f"what mattered: not known before {LEAST_TRIALS} trials with scores that differ"
    rows = [
        [item.option, f"{item.share:.0%}", f"{item.low:.0%} to {item.high:.0%}"]
        for item in sorted(importances, key=lambda item: -item.share)
    ]
    title = "what mattered: share of the variance of the scores after short trainings, and 90 % of resampled trials"
    return f"{title}\n{table(['option', 'share', 'range'], rows)}"


def describe_judgement(found: Found) -> str:
    """Returns the winner's score on the search's folds and on the other one, and the gain over the defaults."""
    if found.winner is None:
        return "no trial is finished on all folds of the search yet"
    metric, better, fold = found.competition.metric, found.study.better, found.settings["last_fold"]
    run, is_default = found.run(found.winner), DEFAULTS in found.winner.user_attrs
    searched = better * (found.winner.value or 0.0)
    winner = f"winner: {run.name}{', the defaults' if is_default else ''}: {metric} {searched:z.5f} as searched"
    judgement, defaults = found.judge(), found.defaults
    if judgement is None or defaults is None:
        return f"{winner}; fold {fold} has not judged it yet"
    low, high = judgement.interval
    winner += f", {judgement.gain.score:z.5f} on fold {fold}, which the search did not use ({low:z.5f} to {high:z.5f})"
    if is_default:
        return f"{winner}\nthe search has not beaten the defaults: no trial was better on the folds of the search"
    before = better * (defaults.value or 0.0)
    searched_gain = better * (searched - before)
    low, high = judgement.gain.interval
    lines = [
        winner,
        f"defaults: {found.run(defaults).name}: {before:z.5f} as searched, {judgement.gain.before:z.5f} on fold {fold}",
        f"gain over the defaults: {searched_gain:+z.5f} as searched, {judgement.gain.gain:+z.5f} on fold {fold}, with"
        f" 95 % probability between {low:+z.5f} and {high:+z.5f}",
    ]
    if not judgement.gain.is_clear:
        lines.append("this is within chance: the search has not beaten the defaults")
    elif searched_gain > judgement.gain.gain:
        lines.append("expect the gain of that fold: a searched score flatters")
    return "\n".join(lines)
