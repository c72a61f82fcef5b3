"""Averages the weights of finished runs of one architecture: `podium soup RUN RUN [...]`.

A soup of seeds costs one model in prediction (Wortsman et al., 2022, "Model soups"). With the run that holds the frozen
head (--linear), it is the model between the start and the end of fine-tuning (the same authors' WiSE-FT).

What goes into fold k is chosen by the other folds: of each, the averaged weights predict the images that it holds out.
So no model has seen the images that accept an ingredient, and those of fold k choose nothing of their own model. A run
may go in several times, and counts as often. Writes a run, as training does.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from podium.competition.load import Competition
from podium.disk import sha256, write_json
from podium.errors import PodiumError
from podium.machine import Machine
from podium.models.model_file import load_model, read_spec, save_model
from podium.project_root import runs_folder
from podium.saved_runs.epoch_record import EpochRecord, score_held_out
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.run_folder import Run, discarded_if_failed, find_runs, results_table
from podium.tasks.metrics import METRICS, evaluate
from podium.terminal import command_for, plural, say, show
from podium.training.fold_model import FoldModel
from podium.training.test_predictions import open_stores, predict_examples

Recipe = tuple[int, ...]  # how often each run goes in
MOST = 10  # ingredients: shares in tenths are fine enough


class Kitchen:
    """The runs, and the scores of their mixtures on held-out images."""

    def __init__(self, competition: Competition, root: Path, runs: Sequence[Run], machine: Machine) -> None:
        self.competition, self.runs, self.machine = competition, runs, machine
        self.folds = sorted(set.intersection(*(set(run.finished()) for run in runs)))
        self.store = open_stores(competition, root, runs[:1], machine)[runs[0]]
        self.scores: dict[tuple[Recipe, int], float] = {}

    def score(self, recipe: Recipe, fold: int) -> float:
        """Returns the score of a mixture on the images that a fold holds out; higher is better."""
        if (recipe, fold) not in self.scores:
            metric = self.competition.metric
            held_out = self.runs[0].out_of_fold(fold, self.competition.classes)
            if sum(recipe) == 1:  # as its training has predicted them
                held_out = self.runs[recipe.index(1)].out_of_fold(fold, self.competition.classes)
                probs = held_out.probs
            else:
                probs = self.predict(recipe, fold)
            self.scores[recipe, fold] = METRICS[metric]().better * evaluate(metric, held_out.target, probs)
        return self.scores[recipe, fold]

    def mixed(self, recipe: Recipe, fold: int) -> FoldModel:
        """Returns the fold's model with the mean weights of the runs that go in."""
        chosen = [(run, count) for run, count in zip(self.runs, recipe, strict=True) if count]
        mixed = FoldModel.load(chosen[0][0], fold, self.machine.device)
        tensors = [{name: tensor.clone() for name, tensor in mixed.model.state_dict().items()}]
        for run, _ in chosen[1:]:
            other = load_model(run.weights_path(fold))[0].state_dict()
            tensors.append({name: part.to(mixed.device) for name, part in other.items()})
        mean_weights(mixed.model.state_dict(), tensors, [count for _, count in chosen])
        return mixed

    def predict(self, recipe: Recipe, fold: int) -> NDArray[np.float32]:
        """Predicts the images that the fold holds out, in the order of its oof.npz."""
        model = self.mixed(recipe, fold)
        rows = self.competition.train.set_index("id", drop=False).loc[self.runs[0].out_of_fold(fold).id]
        store = self.store.of_fold(fold)
        return predict_examples(store, store.examples(rows), model, self.machine)


def make_soup(
    competition: Competition, root: Path, names: Sequence[str], name: str | None, machine: Machine | None = None
) -> Run:
    """Writes a run whose folds are soups of the named runs."""
    runs = find_runs(competition.slug, root, list(names))
    _refuse_other_runs(competition, runs)
    soup = Run(runs_folder(competition.slug, root) / (name or "+".join(run.name for run in runs)))
    if soup.path.exists():
        raise PodiumError(f"{soup.path} exists already; give the soup another --name, or delete that folder")
    kitchen = Kitchen(competition, root, runs, machine or Machine())
    if len(kitchen.folds) < 2:
        raise PodiumError("a soup is chosen by the other folds, so these runs need two finished folds in common")
    with discarded_if_failed(soup), soup.lock():
        chosen = {fold: _choose(kitchen, [other for other in kitchen.folds if other != fold]) for fold in kitchen.folds}
        counts = {str(fold): _by_name(runs, recipe) for fold, recipe in chosen.items()}
        write_json(soup.path / "recipe.json", {**runs[0].recipe, "soup": counts})
        for fold, recipe in chosen.items():
            _write_fold(kitchen, soup, fold, recipe)
            shares = ", ".join(f"{count} x {run}" for run, count in counts[str(fold)].items())
            say(f"  fold {fold}  {shares}")
    show(results_table(soup, soup.recipe["folds"], competition.metric, competition.classes))
    if all(sum(recipe) == 1 for recipe in chosen.values()):
        say("podium: note: no average is better than the best run alone, so the soup is that run; it may be deleted")
    say(f"podium: wrote {soup.path}")
    say(f"next: {command_for('compare', competition.slug)}")
    return soup


def _by_name(runs: Sequence[Run], recipe: Recipe) -> dict[str, int]:
    return {run.name: count for run, count in zip(runs, recipe, strict=True) if count}


def _choose(kitchen: Kitchen, judges: Sequence[int]) -> Recipe:
    """Returns the mixture that these folds accept: the best run, then each run whose weights raise their mean score."""
    count = len(kitchen.runs)
    single = [tuple(int(number == own) for number in range(count)) for own in range(count)]

    def score(recipe: Recipe) -> float:
        return float(np.mean([kitchen.score(recipe, fold) for fold in judges]))

    best = max(single, key=score)
    while sum(best) < MOST:
        larger = [tuple(own + more for own, more in zip(best, one, strict=True)) for one in single]
        candidates = [recipe for recipe in larger if np.count_nonzero(recipe) > 1]  # one run alone stays the same
        candidate = max(candidates, key=score)
        if score(candidate) <= score(best):
            break
        best = candidate
    return best


@torch.no_grad()
def mean_weights(target: dict[str, Tensor], parts: Sequence[dict[str, Tensor]], counts: Sequence[int]) -> None:
    """Sets the tensors to the mean of the parts; whole numbers stay those of the first."""
    for name, tensor in target.items():
        if tensor.is_floating_point():
            weighted = [count * part[name].double() for part, count in zip(parts, counts, strict=True)]
            tensor.copy_(torch.stack(weighted).sum(0) / sum(counts))


def _write_fold(kitchen: Kitchen, soup: Run, fold: int, recipe: Recipe) -> None:
    """Writes the files of a finished fold; oof.npz comes last."""
    mixed, probs = kitchen.mixed(recipe, fold), kitchen.predict(recipe, fold)
    held_out = kitchen.runs[0].out_of_fold(fold)
    folder, metric = soup.fold_folder(fold), kitchen.competition.metric
    folder.mkdir(parents=True, exist_ok=True)
    record = EpochRecord(
        epoch=1,
        step=0,
        lr=0.0,
        loss=kitchen.runs[recipe.index(max(recipe))].history(fold)[-1].loss,  # of the run that counts most
        scores=score_held_out(metric, held_out.target, probs),
        views=mixed.views,
        images_per_s=0.0,
        seconds=0.0,
        validation_seconds=0.0,
    )
    save_model(folder / "model.safetensors", mixed.model, mixed.spec)
    soup.write_history(fold, [record])
    key = sha256(folder / "model.safetensors")
    Predictions(held_out.id, probs, held_out.target, held_out.classes, key).save(folder / "oof.npz")


def _refuse_other_runs(competition: Competition, runs: Sequence[Run]) -> None:
    """Refuses runs whose weights cannot be averaged, or whose held-out images differ."""
    first, *others = runs
    if not others:
        raise PodiumError(f"a soup needs two runs or more; name another one beside {first.name}")
    for run in others:
        for key, what in (("folds_sha256", "folds"), ("data_sha256", "data"), ("region_sha256", "boxes")):
            if run.recipe.get(key) != first.recipe.get(key):
                raise PodiumError(f"{run.name} was trained on other {what} than {first.name}; name runs of the same")
        for fold in set(run.finished()) & set(first.finished()):
            if not np.array_equal(run.out_of_fold(fold).id, first.out_of_fold(fold).id):
                raise PodiumError(f"{run.name} and {first.name} hold out other images in fold {fold}; leave one out")
        _refuse_other_model(first, run)
    if first.out_of_fold(first.finished()[0]).classes != competition.classes:
        raise PodiumError(f"{first.name} was trained on other classes than {competition.slug} has now; train it again")


def _refuse_other_model(first: Run, run: Run) -> None:
    specs = [read_spec(part.weights_path(part.finished()[0])) for part in (first, run)]
    own, other = (replace(spec, source="", scales=()) for spec in specs)  # these may differ
    if own != other:
        names = [name for name, value in own.as_json().items() if other.as_json().get(name) != value]
        raise PodiumError(
            f"the weights of {first.name} and {run.name} cannot be averaged: their {plural(len(names), 'setting')}"
            f" {', '.join(names)} differ; name runs of one architecture, image size and fit"
        )
