"""A run's folder: where its files lie, and what they say.

    runs/<competition>/<run>/recipe.json
                             fold<k>/{model.safetensors, metrics.jsonl, oof.npz, test.npz}
                             features/<n>.npz

A fold is finished when its oof.npz is there: training writes it last. test.npz is kept from a submission, features/
from --linear and --head-first.
"""

import hashlib
import importlib.metadata
import json
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium import PodiumError
from podium.disk import NAME_PATTERN, atomic, locked, sha256, write_json
from podium.metrics import evaluate
from podium.recipe import differences
from podium.terminal import command_for, did_you_mean, duration, say, table
from podium.training.checkpoint import checkpoints

READ_BACK: dict[str, Any] = {  # of recipe.json, by submit
    "folds": int,
    "image_size": int,
    "test_size": int,
    "batch_size": int,
    "views": str,
    "precision": str,
}
TRIAL = ".trial-"  # folders of runs that only measure
PACKAGES = (
    *("torch", "torchvision", "timm", "albumentations", "numpy", "scipy", "scikit-learn"),
    *("opencv-python-headless", "pillow"),
)


@dataclass(frozen=True)
class Predictions:
    """Rows of ids with a probability per class; `target` is the index of the true one, -1 where unknown."""

    id: NDArray[np.str_]
    probs: NDArray[np.float32]
    target: NDArray[np.int64]
    classes: tuple[str, ...]
    key: str = ""  # what they were made from
    made_on: str = ""  # the device, and the precision

    def of(self, classes: tuple[str, ...]) -> "Predictions":
        """The same, with the classes in this order, which a sample submission may have changed."""
        if classes == self.classes:
            return self
        if set(classes) != set(self.classes):
            raise PodiumError("not all of these runs were trained on the same classes; leave the others out: --runs")
        order = np.array([self.classes.index(name) for name in classes])
        target = np.where(self.target < 0, -1, order.argsort()[self.target])
        return replace(self, probs=self.probs[:, order], target=target, classes=classes)

    def facts(self) -> dict[str, str]:
        """What a lineage tells of them."""
        digest = hashlib.sha256(self.probs.tobytes()).hexdigest()
        return {"predicted_on": self.made_on, "predicted_from": self.key, "predictions_sha256": digest}

    def save(self, path: Path) -> None:
        with atomic(path) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                id=self.id,
                probs=self.probs,
                target=self.target,
                classes=np.array(self.classes),
                key=np.array(self.key),
                made_on=np.array(self.made_on),
            )

    @staticmethod
    def load(path: Path, remedy: str) -> "Predictions":
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                classes = tuple(str(name) for name in file["classes"])
                texts = str(file["key"]), str(file["made_on"])
                return Predictions(file["id"], file["probs"], file["target"], classes, *texts)
        except Exception as error:  # a damaged archive makes numpy and zipfile raise nearly anything
            what = "it is no archive of arrays" if "pickle" in str(error) else error  # numpy's advice would be unsafe
            raise PodiumError(f"{path}: cannot be read ({what}); {remedy}") from None


@dataclass(frozen=True)
class Run:
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """recipe.json: every knob, and what the run was trained on and with."""
        path = self.path / "recipe.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise PodiumError(f"{path}: cannot be read ({error}); {self._lost()}") from None
        if not isinstance(content, dict):
            content = {}
        wrong = [key for key, kind in READ_BACK.items() if not isinstance(content.get(key), kind)]
        if wrong:
            raise PodiumError(f"{path}: no {wrong[0]} in it, this is no recipe; {self._lost()}")
        return content

    def _lost(self) -> str:
        return f"restore it, or delete {self.path} and train that run again"

    def fold(self, fold: int) -> Path:
        return self.path / f"fold{fold}"

    def begun(self) -> bool:
        return (self.path / "recipe.json").exists()

    def finished(self) -> list[int]:
        """The folds that are trained to the end."""
        found = (re.fullmatch(r"fold(\d+)", path.parent.name) for path in self.path.glob("fold*/oof.npz"))
        return sorted(int(match[1]) for match in found if match)

    def out_of_fold(self, fold: int) -> Predictions:
        return Predictions.load(self.fold(fold) / "oof.npz", self._remedy(fold))

    def weights(self, fold: int) -> Path:
        path = self.fold(fold) / "model.safetensors"
        if not path.is_file():
            raise PodiumError(f"{path} is missing; {self._remedy(fold)}")
        return path

    def check_weights(self, fold: int) -> str:
        """The hash of a finished fold's weights, which are those that its out-of-fold predictions came from."""
        path = self.weights(fold)
        found = sha256(path)
        if found != self.out_of_fold(fold).key:
            raise PodiumError(f"{path} is not what was trained, it is damaged or replaced; {self._remedy(fold)}")
        return found

    def _remedy(self, fold: int) -> str:
        return f"restore it, or delete {self.fold(fold)} and train that fold again"

    def history(self, fold: int) -> list[dict[str, Any]]:
        """metrics.jsonl: what each epoch came to."""
        path = self.fold(fold) / "metrics.jsonl"
        try:
            entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            if not entries:
                raise ValueError("it is empty")
            return [{**entry, "loss": float(entry["loss"]), "seconds": float(entry["seconds"])} for entry in entries]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise PodiumError(f"{path}: cannot be read ({error}); no prediction depends on it") from None

    def score(self, fold: int, metric: str) -> float:
        """The fold's score on the images it did not train on."""
        held_out = self.out_of_fold(fold)
        return evaluate(metric, held_out.target, held_out.probs)

    def results(self, count: int, metric: str) -> str:
        """The table of finished folds, and what they say of images that the models have not seen."""
        rows, scores = [], []
        for fold in self.finished():
            held_out, loss, seconds = self.out_of_fold(fold), "?", "?"
            scores.append(evaluate(metric, held_out.target, held_out.probs))
            try:
                history = self.history(fold)
                loss, seconds = f"{history[-1]['loss']:.4f}", duration(sum(entry["seconds"] for entry in history))
            except PodiumError as damage:
                say(f"podium: warning: {damage}")
            rows.append([fold, f"{len(held_out.id):,}", f"{scores[-1]:.5f}", loss, seconds])
        spread = f" ± {np.std(scores, ddof=1):.5f}" if len(scores) > 1 else ""
        text = table(["fold", "validated", metric, "train loss", "time"], rows)
        return f"{text}\n{metric} {np.mean(scores):.5f}{spread} over {len(scores)} of {count} folds"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps two processes out of one run, and sweeps what a killed one left."""
        with locked(self.path / ".lock") as mine:
            if not mine:
                raise PodiumError(f"{self.path} is being trained by another process; wait, or use --name")
            for left in (*self.path.glob(".*.tmp"), *self.path.glob("*/.*.tmp")):  # by a process killed while it saved
                left.unlink()
            for trial in self.path.glob(f"{TRIAL}*"):
                shutil.rmtree(trial)
            for fold in self.finished():
                for path in checkpoints(self.fold(fold)):
                    path.unlink()
            yield

    def begin(self, identity: dict[str, Any], facts: dict[str, Any]) -> None:
        """Writes recipe.json, or refuses to go on with another recipe, other folds or other data."""
        path = self.path / "recipe.json"
        if not path.exists():
            begun = [*self.path.glob("fold*/*.safetensors"), *self.path.glob("fold*/oof.npz")]
            if begun:
                raise PodiumError(f"{path} is missing, though {begun[0]} is there; {self._lost()}")
            write_json(path, {**identity, **facts, "weights_source": None, "versions": package_versions()})
            return
        self.check_same(identity)

    def check_same(self, identity: dict[str, Any]) -> None:
        """Refuses what the run was not begun with."""
        changed = differences({key: self.recipe.get(key) for key in identity}, identity)
        if changed:
            raise PodiumError(
                f"{self.path} was begun otherwise: {'; '.join(changed)}. Give this run a name of its own"
                " (--name RUN, with make NAME=RUN), or delete that folder to begin it anew"
            )

    def keep_source(self, source: str) -> None:
        """Which weights the run began with; known once its first model is built."""
        known = self.recipe.get("weights_source")
        if known is None:
            self.recipe["weights_source"] = source
            write_json(self.path / "recipe.json", self.recipe)
        elif known != source:
            raise PodiumError(
                f"{self.path} was begun with the weights {known}, not {source}; use --name for another run"
            )

    def keep_teachers(self, weights: dict[str, str]) -> None:
        """Which weights teach each fold; a fold that was begun with others cannot go on."""
        known = self.recipe.get("teacher_sha256", {})
        for fold, found in weights.items():
            if known.get(fold, found) != found and checkpoints(self.fold(int(fold))):
                raise PodiumError(
                    f"{self.fold(int(fold))} was begun with other weights of its teacher {self.recipe['teacher']};"
                    " restore those, or delete that folder and train that fold again"
                )
        self.recipe["teacher_sha256"] = {**known, **weights}
        write_json(self.path / "recipe.json", self.recipe)


def package_versions() -> dict[str, str]:
    package_versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            package_versions[package] = importlib.metadata.version(package)
    return package_versions


def runs_folder(slug: str, root: Path) -> Path:
    return root / "runs" / slug


def find_runs(slug: str, root: Path, names: list[str] | None = None) -> list[Run]:
    """The runs of a competition that have a finished fold; with `names`, exactly those."""
    folder = runs_folder(slug, root)
    begun = [path.parent for path in folder.glob("*/recipe.json")]
    begun += [path.parents[1] for path in folder.glob("*/fold*/oof.npz")]
    known = {path.name: Run(path) for path in sorted(begun) if not path.name.startswith(".")}
    if names:
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known, otherwise=f"there are {', '.join(known) or 'none yet'}")
                raise PodiumError(f"no run '{name}' in {folder}; {hint}")
    chosen = [known[name] for name in dict.fromkeys(names or known)]
    for run in chosen:
        if not re.fullmatch(NAME_PATTERN, run.name):
            raise PodiumError(f"{run.path} is no name for a run: rename it, to letters, digits and . _ - + =")
    unfinished = [run.name for run in chosen if not run.finished()]
    if names and unfinished:
        raise PodiumError(f"run '{unfinished[0]}' has no finished fold yet; run its training command again to go on")
    chosen = [run for run in chosen if run.finished()]
    if not chosen:
        raise PodiumError(f"no finished fold in {folder}; train one with: {command_for('train', slug, model='NAME')}")
    return chosen
