"""Averages the weights of finished runs of one architecture, and tries other sizes of prediction: `podium soup`.

    podium soup RUN RUN [...] [--test-sizes 128 160]

A soup of seeds costs one model in prediction (Wortsman et al., 2022, "Model soups"). With the run that holds the frozen
head (--linear), it is the model between the start and the end of fine-tuning (the same authors' WiSE-FT).

What goes into fold k is chosen by the other folds: of each, the mixture predicts the images that it holds out. So no
model has seen the images that accept an ingredient or a size, and those of fold k choose nothing of their own model. A
run may go in several times, and counts as often. Writes a run, as training does.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from podium.basics.disk import sha256, write_json
from podium.basics.errors import PodiumError
from podium.basics.image_size import ImageSize, shorter_side
from podium.basics.machine import Machine
from podium.basics.project_root import runs_folder
from podium.basics.terminal import command_for, plural, say, show
from podium.competition.load import Competition
from podium.images.store import open_store, side_of_run
from podium.models.build import check_sizes
from podium.models.model_file import load_model, read_spec, save_model
from podium.options.recipe import has_neighbours
from podium.saved_runs.earlier_runs import hash_weights
from podium.saved_runs.epoch_record import EpochRecord, score_held_out
from podium.saved_runs.imported_runs import refuse_imported
from podium.saved_runs.known_images import inherited_origin
from podium.saved_runs.made_from import made_from
from podium.saved_runs.regions_of_run import region_files, regions_of
from podium.saved_runs.run_folder import CORRECTIONS, Run, discarded_if_failed, find_runs, results_table
from podium.tasks.metrics import METRICS, evaluate
from podium.training.fold_model import FoldModel
from podium.training.series import as_run_sees
from podium.training.test_predictions import predict_examples

MOST = 10  # ingredients: shares in tenths are fine enough


class Mixture(NamedTuple):
    counts: tuple[int, ...]  # how often each run goes in
    size: ImageSize  # of the images that it predicts

    def with_more(self, one: Sequence[int]) -> "Mixture":
        return self._replace(counts=tuple(own + more for own, more in zip(self.counts, one, strict=True)))


class SoupScores:
    """The runs, and the scores of their mixtures on held-out images."""

    def __init__(
        self, competition: Competition, runs: Sequence[Run], test_sizes: Sequence[ImageSize], machine: Machine
    ) -> None:
        self.competition, self.runs, self.machine = competition, runs, machine
        self.folds = sorted(set.intersection(*(set(run.finished()) for run in runs)))
        recipe = runs[0].recipe
        self.size = recipe["test_size"]
        self.sizes = [self.size, *(size for size in test_sizes if size != self.size)]
        side = side_of_run(recipe["image_size"], max(self.sizes, key=shorter_side))
        store = open_store(competition, side, self.machine.keep_pixels, regions_of(runs[0]))
        self.store = as_run_sees(store, competition, runs[0].recipe)
        self.scores: dict[tuple[Mixture, int], float] = {}

    def score(self, mixture: Mixture, fold: int) -> float:
        """Returns the score of a mixture on the images that a fold holds out; higher is better."""
        if (mixture, fold) not in self.scores:
            metric, alone = self.competition.metric, self.is_a_run_as_it_is(mixture)
            run = self.runs[mixture.counts.index(1)] if alone else self.runs[0]
            held_out = run.out_of_fold(fold, self.competition.classes)
            if not alone:  # else as its training has predicted them
                held_out = replace(held_out, probs=self.predict(mixture, fold))
            known = held_out.with_labels(self.competition.label_of)  # of today, for all runs
            self.scores[mixture, fold] = METRICS[metric]().better * evaluate(metric, known.target, known.probs)
        return self.scores[mixture, fold]

    def is_a_run_as_it_is(self, mixture: Mixture) -> bool:
        if sum(mixture.counts) > 1 or mixture.size != self.size:
            return False
        return bool(self.runs[mixture.counts.index(1)].recipe["views"] == self.runs[0].recipe["views"])

    def mixed(self, mixture: Mixture, fold: int) -> FoldModel:
        """Returns the fold's model with the mean weights of the runs that go in, and the views of the first named."""
        chosen = [(run, count) for run, count in zip(self.runs, mixture.counts, strict=True) if count]
        mixed = FoldModel.load(chosen[0][0], fold, self.machine.device)
        mixed = replace(mixed, views=self.runs[0].recipe["views"])
        if mixture.size != mixed.spec.test_size:
            name = mixed.spec.architecture
            check_sizes(mixed.model, name, {mixture.size}, f"leave {mixture.size} out of --test-sizes")
            mixed = replace(mixed, spec=replace(mixed.spec, test_size=mixture.size))
        tensors = [{name: tensor.clone() for name, tensor in mixed.model.state_dict().items()}]
        for run, _ in chosen[1:]:
            other = load_model(run.weights_path(fold))[0].state_dict()
            tensors.append({name: part.to(mixed.device) for name, part in other.items()})
        mean_weights(mixed.model.state_dict(), tensors, [count for _, count in chosen])
        return mixed

    def predict(self, mixture: Mixture, fold: int) -> NDArray[np.float32]:
        """Predicts the images that the fold holds out, in the order of its oof.npz."""
        model = self.mixed(mixture, fold)
        rows = self.competition.train_in_files.set_index("id", drop=False).loc[self.runs[0].out_of_fold(fold).id]
        store = self.store.of_fold(fold)
        return predict_examples(store, store.examples(rows), model, self.machine)


def make_soup(
    competition: Competition,
    names: Sequence[str],
    *,
    name: str | None = None,
    test_sizes: Sequence[ImageSize] = (),
    machine: Machine | None = None,
    beside: Callable[[Run], str] | None = None,
) -> Run:
    """Writes a run whose folds are soups of the named runs.

    `name` is that of the soup; `test_sizes` are tried beside that of the runs; `beside` says how it does beside one.
    """
    runs = find_runs(competition.slug, competition.root, list(names))
    refuse_imported(runs, "podium soup")
    _refuse_other_runs(competition, runs, test_sizes)
    soup_name = name or f"soup-{'-'.join(run.name for run in runs)}"
    soup = Run(runs_folder(competition.slug, competition.root) / soup_name)
    _refuse_what_is_there(soup)
    soups = SoupScores(competition, runs, test_sizes, machine or Machine())
    if len(soups.folds) < 2:
        raise PodiumError("a soup is chosen by the other folds, so these runs need two finished folds in common")
    with discarded_if_failed(soup), soup.lock():
        chosen = {fold: _choose(soups, [other for other in soups.folds if other != fold]) for fold in soups.folds}
        _begin(soup, soups, chosen)
        finished = soup.finished()  # before the same command was killed
        for fold, mixture in chosen.items():
            if fold not in finished:
                _write_fold(soups, soup, fold, mixture)
            shares = ", ".join(f"{count} x {run}" for run, count in soup.recipe["soup"][str(fold)].items())
            say(f"  fold {fold}  {shares}" + (f", at {mixture.size} px" if len(soups.sizes) > 1 else ""))
    show(results_table(soup, soup.recipe["folds"], competition.metric, competition.classes))
    if all(map(soups.is_a_run_as_it_is, chosen.values())):
        say("podium: note: in each fold, a single run as it is does best, so a soup gains nothing; it may be deleted")
    elif beside is not None and (said := beside(soup)):
        say(f"podium: {said}")
    say(f"podium: wrote {soup.path}")
    say(f"next: {command_for('compare', competition.slug)}")
    return soup


def _refuse_what_is_there(soup: Run) -> None:
    """Refuses the name of a run. A soup that lacks folds was killed: the same command makes these."""
    is_soup = (soup.path / "recipe.json").exists() and bool(soup.ingredients)
    is_whole = is_soup and {*soup.recipe["soup"]} <= {*map(str, soup.finished())}
    is_empty = soup.path.exists() and all(path.name.startswith(".") for path in soup.path.iterdir())
    if soup.path.exists() and (is_whole or not (is_soup or is_empty)):
        raise PodiumError(f"{soup.path} exists already; give the soup another --name, or delete that folder")


def _choose(soups: SoupScores, judges: Sequence[int]) -> Mixture:
    """Returns the mixture that these folds accept: the best run at its best size, then what raises their mean score."""
    count = len(soups.runs)
    ones = [tuple(int(number == own) for number in range(count)) for own in range(count)]

    def score(mixture: Mixture) -> float:
        return float(np.mean([soups.score(mixture, fold) for fold in judges]))

    best = max((Mixture(one, soups.size) for one in ones), key=score)
    best = max((best._replace(size=size) for size in soups.sizes), key=score)  # of equals, the first: its own size
    while sum(best.counts) < MOST:
        larger = [best.with_more(one) for one in ones]
        candidates = [mixture for mixture in larger if np.count_nonzero(mixture.counts) > 1]  # else it stays the same
        if not candidates or score(candidate := max(candidates, key=score)) <= score(best):
            break
        best = candidate
    return best


def _begin(soup: Run, soups: SoupScores, chosen: Mapping[int, Mixture]) -> None:
    """Writes recipe.json, and copies what the predictions of the first run depend on."""
    first = soups.runs[0]
    used = [run for place, run in enumerate(soups.runs) if any(mixture.counts[place] for mixture in chosen.values())]
    counts = {
        str(fold): {run.name: count for run, count in zip(soups.runs, mixture.counts, strict=True) if count}
        for fold, mixture in chosen.items()
    }
    largest = max((mixture.size for mixture in chosen.values()), key=shorter_side)  # a fold's own is in its model
    recipe = {
        **first.recipe,
        "test_size": largest,
        "soup": counts,
        "soup_sha256": hash_weights(soups.runs, list(chosen)),
        **made_from(used),
        **inherited_origin(used),
    }
    if (soup.path / "recipe.json").exists() and soup.recipe != json.loads(json.dumps(recipe)):
        raise PodiumError(
            f"{soup.path} was begun with other runs, or these have changed; give the soup another --name, or delete"
            " that folder"
        )
    write_json(soup.path / "recipe.json", recipe)
    for path in (*region_files(first), first.path / CORRECTIONS):
        if path.exists():
            target = soup.path / path.relative_to(first.path)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)


@torch.no_grad()
def mean_weights(target: dict[str, Tensor], parts: Sequence[dict[str, Tensor]], counts: Sequence[int]) -> None:
    """Sets the tensors to the mean of the parts; whole numbers stay those of the first."""
    for name, tensor in target.items():
        if tensor.is_floating_point():
            weighted = [count * part[name].double() for part, count in zip(parts, counts, strict=True)]
            tensor.copy_(torch.stack(weighted).sum(0) / sum(counts))


def _write_fold(soups: SoupScores, soup: Run, fold: int, mixture: Mixture) -> None:
    """Writes the files of a finished fold; oof.npz comes last."""
    mixed, probs = soups.mixed(mixture, fold), soups.predict(mixture, fold)
    held_out, main = soups.runs[0].out_of_fold(fold), soups.runs[mixture.counts.index(max(mixture.counts))]
    folder, metric = soup.fold_folder(fold), soups.competition.metric
    folder.mkdir(parents=True, exist_ok=True)
    record = EpochRecord(
        epoch=1,
        step=0,
        lr=0.0,
        loss=main.history(fold)[-1].loss,
        scores=score_held_out(metric, held_out.target, probs),
        views=mixed.views,
        images_per_s=0.0,
        seconds=0.0,
        validation_seconds=0.0,
    )
    save_model(folder / "model.safetensors", mixed.model, mixed.spec)
    soup.write_history(fold, [record])
    key = sha256(folder / "model.safetensors")
    replace(held_out, probs=probs, key=key).save(folder / "oof.npz")


def _refuse_other_runs(competition: Competition, runs: Sequence[Run], test_sizes: Sequence[ImageSize]) -> None:
    """Refuses runs whose weights cannot be averaged, or whose held-out images differ."""
    first, *others = runs
    for run in runs:
        if has_neighbours(run.recipe.get("head", "")):
            raise PodiumError(
                f"{run.name} keeps training images in place of weights; leave it out, and blend it instead"
            )
    if not others and not test_sizes:
        raise PodiumError(f"a soup needs two runs or more; name another one beside {first.name}, or --test-sizes")
    for run in others:
        for key, what in (
            ("folds_sha256", "folds"),
            ("data_sha256", "data"),
            ("region_sha256", "boxes"),
            ("series_sha256", "series"),
        ):
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
