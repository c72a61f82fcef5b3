"""Podium as a library: what `import podium` offers to notebooks and scripts. docs/api.md has an example of each name.

    import podium

    digits = podium.load("sample")
    run = podium.train(digits, "test_convnext", weights="none", epochs=3)
    podium.submit(digits)

Each function does what the command of its name does, prints the same, and raises `podium.PodiumError` with the same
message. Nothing heavy is imported before it is needed.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from podium.basics.disk import check_name, check_utf8
from podium.basics.errors import PodiumError
from podium.basics.machine import Machine
from podium.basics.project_root import DIGITS_SLUG, find_root
from podium.basics.terminal import did_you_mean, first_few, in_brief, plural, seconds_of, show
from podium.competition import load as competition_files
from podium.options.known_words import explain_option
from podium.options.recipe import flag_of, recipe_options
from podium.saved_runs import run_folder
from podium.tasks.task import class_columns

__all__ = ["Competition", "Machine", "Run", "compare", "compete", "frame", "load", "runs", "submit", "train"]

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from podium.competing.ending import Outcome

P = ParamSpec("P")
R = TypeVar("R")


def answers_wrong_calls(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a PodiumError, with the arguments that there are, of a call with other ones."""
    signature = inspect.signature(function)

    @wraps(function)
    def called(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            signature.bind(*arguments, **named)
        except TypeError as error:
            known = list(signature.parameters)
            unknown = str(error).partition("unexpected keyword argument ")[2].strip("'")
            hint = did_you_mean(unknown, known, otherwise=f"the arguments are {', '.join(known)}")
            raise PodiumError(f"podium.{function.__name__}: {error}; {hint}") from None
        return function(*arguments, **named)

    return called


@dataclass(frozen=True, repr=False, eq=False)
class Competition(competition_files.Competition):
    """A competition's images and labels: `train` and `test` are data frames, `classes` the labels."""

    def describe(self) -> str:
        """Returns what was understood of the competition's files, for people."""
        from podium.competition.describe import describe

        return describe(self)

    def audit(self) -> "pd.DataFrame":
        """Returns a row for each image, as in audit.csv, and prints what `podium audit` finds; audits if need be."""
        import pandas as pd

        from podium.images.audit import load_audit
        from podium.images.audit_report import summarise_audit

        rows = load_audit(self)
        show(summarise_audit(self, rows))
        numbers = {name: pd.to_numeric(rows[name]) for name in ("width", "height", "bytes")}
        return rows.assign(**numbers).reset_index(drop=True)

    def pixels(self, image: str | Path) -> "NDArray[np.uint8]":
        """Returns an image, such as one of `train["image"]`, as training reads it: height x width x 3.

        Of more channels, these are the first three.
        """
        from podium.images.decode import read_image

        return read_image(self.folder / image, self.card.value_range)[..., :3]

    def augmented(
        self, images: Sequence[str], model: str, epochs: int = 7, **options: Any
    ) -> "list[list[NDArray[np.uint8]]]":
        """Returns, for each image, what this model sees of it in prediction, then in the first epochs of training.

        `images` are some of `train["image"]` or `test["image"]`, `options` those of the recipe. No weights are needed.
        """
        from podium.models.build import build_model, resolve_recipe
        from podium.training.augment import TrainView
        from podium.training.fold_model import prepare

        _refuse_unknown_options(options)
        recipe = resolve_recipe({**options, "model": model}, self.recipe)
        view = TrainView(recipe, spec := build_model(recipe.but(weights="none"), self.classes)[1])
        row_of = {image: row for row, image in enumerate(self.train["image"])}  # it decides the random draws
        return [
            [prepare(pixels, spec), *(view(pixels, epoch, row_of.get(image, 0)) for epoch in range(epochs))]
            for image, pixels in zip(images, map(self.pixels, images), strict=True)
        ]

    def folds(
        self,
        k: int | None = None,
        group: str | None = None,
        seed: int | None = None,
        force: bool = False,
        by_time: str | tuple[str, float] | None = None,
        strategy: str | None = None,
        by_site: str | bool | None = None,
    ) -> "pd.DataFrame":
        """Returns id, target, fold and group of every training image.

        Makes five folds if there are none. With `k`, `group` (a column), `seed`, `by_time` (a column, or a column and a
        gap), `strategy` (a splitter) or `by_site` (a column, or True for clusters of the images) it makes new ones;
        with `force` also if runs were trained on the present ones. Folds by time have a further column, trained_from:
        the first fold that trains on the image.
        """
        from podium.folds.folds_csv import folds_path, read_folds, read_groups, write_folds
        from podium.folds.sites import ASKED_FOR
        from podium.folds.strategies import Split
        from podium.training.image_features import sites_of

        for name, number in {"k": k, "seed": seed}.items():
            if number is not None and not isinstance(number, int):
                raise PodiumError(f"{name} must be a whole number, not {number!r}")
        path, settings = folds_path(self.slug, self.root), {} if group is None else {"group_column": group}
        if not path.exists() or {k, group, seed, by_time, strategy, by_site or None} != {None}:
            time, gap = by_time if isinstance(by_time, tuple) else (by_time, 0.0)
            split = Split(5 if k is None else k, seed or 0, time, gap, strategy, ASKED_FOR if by_site else None)
            split.check()
            grouped = competition_files.load(self.slug, self.root, None, split.needs_columns, **settings)
            if by_site:
                column = by_site if isinstance(by_site, str) else None
                split = replace(split, sites=sites_of(grouped, column, split.k, split.seed))
            in_use_by = [] if force else run_folder.names_of_runs_on_folds(self.slug, self.root)
            write_folds(grouped, split, in_use_by)
        groups = self.train["id"].map(read_groups(self)).fillna("")
        folds = read_folds(self)
        rows = self.train[["id", "target"]].assign(fold=folds.of_image, group=groups)
        return rows.assign(trained_from=folds.trained_from) if folds.is_rolling else rows

    def correct(self, path: str | Path) -> "Competition":
        """Adds a file of corrections to the competition's own; returns the competition with corrected labels."""
        competition_files.load_and_report(self.slug, self.root, Path(path)).corrections.save()
        return load(self.slug, self.root)

    def add_predictions(
        self,
        name: str,
        oof: "Path | str | pd.DataFrame",
        test: "Path | str | pd.DataFrame | None" = None,
        note: str = "",
        same_folds: bool = False,
    ) -> "Run":
        """Makes a run of predictions from elsewhere, such as a team mate's, which blends like any other.

        `oof` and `test` are CSV files or data frames: id and a column of probabilities for each class, and `fold`.
        """
        from podium.saved_runs.import_predictions import import_predictions

        self.folds()
        return Run(import_predictions(self, name, oof, test, note, same_folds).path)

    def suspects(self, runs: "Sequence[Run | str] | Run | str | None" = None) -> "pd.DataFrame":
        """Returns the images whose label is probably wrong, the most suspicious first.

        The held-out predictions of the runs decide (default: of all that a submission would blend).
        """
        from podium.comparing.suspect_list import rank_labels

        ranked = rank_labels(self, _names(runs))
        return ranked[ranked["is_suspect"]].drop(columns=["is_suspect", "is_predicted"]).reset_index(drop=True)

    def __repr__(self) -> str:
        counts = f"{len(self.train):,} training images, {len(self.test):,} test images, {len(self.classes)} classes"
        return f"<podium.Competition {self.slug}: {counts}, {self.metric}>"


@dataclass(frozen=True, repr=False)
class Run(run_folder.Run):
    """A trained model per fold, with the predictions of each for the images that it has not seen."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    @property
    def classes(self) -> tuple[str, ...]:
        """Returns the classes in the order of the model's outputs."""
        return self.out_of_fold(self._one_finished(None)).classes

    def score(
        self,
        fold: int | None = None,
        metric: str | None = None,
        labels: "Mapping[str, str] | None" = None,
        classes: tuple[str, ...] = (),
    ) -> float:
        """Returns the score of a fold on its held-out images, or the mean over the finished folds.

        `labels` by image id replace those that the run was trained with; images without one do not count. `classes`
        give the order of grades, if it is another one than in training.
        """
        metric = metric or str(self.recipe["metric"])
        folds = [self._one_finished(fold)] if fold is not None else self.finished()
        return sum(super(Run, self).score(number, metric, labels, classes) for number in folds) / len(folds)

    def held_out(self) -> "pd.DataFrame":
        """Returns id, target, fold and the probability of every class, for the images of the finished folds.

        A class that is itself called id, target or fold has the column `class id`, and so on.
        """
        import pandas as pd

        self._one_finished(None)
        frames = []
        for fold in self.finished():
            predicted = self.out_of_fold(fold)
            task = predicted.target.task
            targets = [task.decode(target, predicted.classes) for target in predicted.target.values]
            facts = pd.DataFrame({"id": predicted.id, "target": targets, "fold": fold})
            columns = class_columns(predicted.classes, list(facts))
            frames.append(pd.concat([facts, pd.DataFrame(predicted.probs, columns=columns)], axis=1))
        return pd.concat(frames, ignore_index=True)

    def frame(self) -> "pd.DataFrame":
        """Returns run, role (train or test), id, fold, target and the probabilities, as `podium.frame` does."""
        return frame(load(self.path.parent.name, self.path.absolute().parents[2]), self)

    def model(self, fold: int | None = None) -> "nn.Module":
        """Returns a fold's model (default: the first) as timm built it, trained, in evaluation mode, on the CPU.

        It takes what `read` returns; its outputs are logits in the order of `classes`.
        """
        from podium.models.timm_file import data_config
        from podium.training.fold_model import open_model

        model, spec = open_model(self, self._one_finished(fold))
        config = data_config(spec)
        config |= {"test_input_size": config["input_size"], "num_classes": len(spec.classes)}
        setattr(model, "pretrained_cfg", {**(getattr(model, "pretrained_cfg", None) or {}), **config})  # noqa: B010
        return model.eval()

    def read(self, images: Any, fold: int | None = None) -> "Tensor":
        """Returns images as a fold's model takes them: normalised, n x 3 x height x width, turned as EXIF says.

        Takes what `predict` takes.
        """
        from podium.models.model_file import read_spec
        from podium.training.own_images import read_for_model

        return read_for_model(self._located(images), read_spec(self.weights_path(self._one_finished(fold))))

    def export(self, path: str | Path, fold: int | None = None) -> Path:
        """Writes a fold's model as one file that timm loads without Podium: weights, size, transform and classes."""
        from podium.models.timm_file import export_model

        export_model(self.weights_path(self._one_finished(fold)), Path(path))
        return Path(path)

    def predict(self, images: Any, machine: Machine | str | None = None, cropped: bool = False) -> "pd.DataFrame":
        """Returns, for each image, the predicted class and the probability of every class: the mean of the folds.

        A class that is itself called image or prediction has the column `class image`, and so on.

        Takes paths of files and folders, arrays of uint8 (height x width x 3), images of Pillow, and a data frame with
        their column `image`, such as the competition's `train`. Paths may be relative to the competition's `folder`.
        A run that has learned from boxes needs images that are `cropped` to them.
        """
        from podium.blending.blend import equal_blend
        from podium.submissions.predict_boxes import predict_boxes, see_tiles
        from podium.submissions.predict_images import predict_images

        self._one_finished(None)
        listed, folds = self._located(images), dict[Any, Any]({self: self.models()})
        if see_tiles(folds) and not cropped:
            return predict_boxes(folds, listed, _machine(machine), None).frame()
        return predict_images(folds, equal_blend(1), listed, _machine(machine), cropped).frame()

    def features(
        self, images: Any, fold: int | None = None, machine: Machine | str | None = None
    ) -> "NDArray[np.float32]":
        """Returns what the last layer of a fold's model (default: the first) gets: a row per image."""
        from podium.training.own_images import features_of_images

        return features_of_images(self, self._one_finished(fold), self._located(images), _machine(machine).device)

    def _located(self, images: Any) -> Any:
        """Returns images with their whole paths, where they are named relative to the competition's folder."""
        import pandas as pd

        if isinstance(images, pd.DataFrame) and "image" in images:
            images = images["image"]
        if isinstance(images, str | Path):
            images = [images]
        if not isinstance(images, Sequence | pd.Series):
            return images
        listed = list(images)
        missing = [n for n, image in enumerate(listed) if isinstance(image, str | Path) and not Path(image).exists()]
        slug, root = self.path.parent.name, self.path.absolute().parents[2]
        if missing and competition_files.raw_folder(slug, root).is_dir():
            folder = competition_files.load(slug, root).folder
            for number in missing:
                inside = folder / listed[number]
                listed[number] = inside if inside.exists() else listed[number]
        return listed

    def _one_finished(self, fold: int | None) -> int:
        """Returns the fold, or the first finished one; raises if it is not trained."""
        finished = self.finished()
        if not finished or (fold is not None and fold not in finished):
            folds = f"its finished folds are {', '.join(map(str, finished))}" if finished else "none is finished yet"
            raise PodiumError(f"{'a fold' if fold is None else f'fold {fold}'} of {self.path} is not trained; {folds}")
        return finished[0] if fold is None else fold

    def __repr__(self) -> str:
        folds = self.finished()
        text = f"<podium.Run {self.name}: {len(folds)} of {plural(self.recipe['folds'], 'fold')}"
        if folds:
            text += f", {self.recipe['metric']} {self.score():z.4f}"
        return text + ">"


@answers_wrong_calls
def load(competition: str, root: str | Path | None = None, folder: str | Path | None = None) -> Competition:
    """Reads a competition's files, data/raw/<competition>/, and its card; writes those of "sample" if there are none.

    Without `root`, it is PODIUM_ROOT, or the nearest folder with the data, from the current one upwards. With `folder`,
    images of your own, data/raw/<competition> becomes a link to that folder.
    """
    check_name(competition, "the name of a competition (its folder in data/raw/)")
    root = find_root(root).absolute()  # absolute: a notebook may change the current folder
    check_utf8(str(root), "the project's folder")
    if folder is not None:
        _link_raw(competition_files.raw_folder(competition, root), Path(folder).absolute())
    if competition == DIGITS_SLUG and not competition_files.raw_folder(competition, root).exists():
        _write_sample(root)
    loaded = competition_files.load_and_report(competition, root)
    return Competition(**{field.name: getattr(loaded, field.name) for field in fields(loaded)})


@answers_wrong_calls
def train(
    competition: Competition | str,
    model: str,
    folds: Sequence[int] | int | None = None,
    name: str | None = None,
    budget: float | str | None = None,
    machine: Machine | str | None = None,
    **options: Any,
) -> Run:
    """Trains a model on every fold, or resumes it. Makes five folds if there are none.

    `folds` are numbers (default: all); `name` is that of the run (default: the model's); `budget` is a time such as
    "8h", or seconds; `machine` is a podium.Machine, or a device such as "cpu". `options` are those of the recipe, such
    as lr, epochs, image_size and weights: `podium train --help` lists them (`--from` is `start` here).
    """
    from podium.competing.one_model import choose_one
    from podium.training.plan import make_plan
    from podium.training.request import Request, check_before_plan
    from podium.training.train import train

    competition = _loaded(competition)
    _refuse_unknown_options(options)
    numbers = [folds] if isinstance(folds, int) else list(folds or ())
    if not all(isinstance(number, int) for number in numbers):
        raise PodiumError(f"folds must be numbers, such as [0, 1], not {folds!r}")
    seconds = _seconds(budget)
    competition.folds()
    request = Request({"model": model, **options}, numbers, name, _machine(machine), seconds)
    plan = make_plan(check_before_plan(competition.slug, competition.root, request))
    return Run(train(choose_one(plan)).path)


@answers_wrong_calls
def compete(
    competition: Competition | str,
    budget: float | str | None = None,
    except_runs: "Sequence[Run | str] | Run | str | None" = None,
    machine: Machine | str | None = None,
) -> "Outcome":
    """Makes the best submission that a time allows, and keeps a valid CSV from the first minutes on.

    `budget` is a time such as "2h", or seconds (default: half an hour on a CPU, two hours with a GPU); the same call
    with more continues. `except_runs` are not blended. The result has .submission (a path), .expected (score and
    interval), .members (the runs of the blend and their weights) and .table (a data frame of all members).
    """
    from podium.competing.choices import CompeteRequest
    from podium.competing.compete import compete

    competition = _loaded(competition)
    request = CompeteRequest(_seconds(budget), _machine(machine), tuple(_names(except_runs) or ()))
    return compete(competition, request)


@answers_wrong_calls
def runs(competition: Competition | str, names: Sequence[str] | str | None = None) -> list[Run]:
    """Returns the runs with a finished fold, in the order of their names; or those of these names."""
    competition = _loaded(competition)
    return [Run(run.path) for run in run_folder.find_runs(competition.slug, competition.root, _names(names))]


@answers_wrong_calls
def submit(
    competition: Competition | str,
    runs: Sequence[Run | str] | Run | str | None = None,
    name: str | None = None,
    blend: str | None = None,
    anyway: bool = False,
    machine: Machine | str | None = None,
    decision: str | None = None,
    except_: Sequence[Run | str] | Run | str | None = None,
    cost: str | Path | None = None,
    probs: "pd.DataFrame | None" = None,
) -> Path:
    """Blends the runs, writes the CSV and its lineage, and returns the CSV's path.

    `runs` are the runs or their names (default: all that a blend gains from, but those in `except_`); `name` is that of
    the CSV; `blend` the strategy (default: the best); `anyway` writes it even if all images get the same class.
    `decision` is "auto", "none", "test-shares" or one of the project's own, `cost` a file of what mistakes cost
    (default: the card's).

    `probs` are predictions of your own, as `frame` returns them of one run: they become a run called `name`, as with
    Competition.add_predictions, which is submitted alone, or blended with the `runs` that are given.
    """
    from podium.submissions.submission import submit

    competition, given = _loaded(competition), {"name": name, "blend": blend, "decision": decision}
    for word, value in given.items():
        if value is not None and not isinstance(value, str):
            raise PodiumError(f"{word} must be text, not {value!r}")
    if cost is not None and not isinstance(cost, str | Path):
        raise PodiumError(f"cost must be the path of a CSV, not a {type(cost).__name__}")
    names, except_names = _names(runs), _names(except_, "except_")
    if except_names and (names or probs is not None):
        raise PodiumError(f"{'runs' if names else 'probs'} and except_ both say what is blended; give one of them")
    if probs is not None:
        names = [_run_of(competition, name, probs).name, *(names or ())]
    return submit(
        competition,
        names,
        except_names=except_names,
        name=name,
        blend=blend,
        decision=decision,
        anyway=anyway,
        cost=None if cost is None else Path(cost),
        machine=_machine(machine),
    )


def _run_of(competition: Competition, name: str | None, probs: "pd.DataFrame") -> Run:
    """Makes a run of predictions of training and test images."""
    import pandas as pd

    if not isinstance(probs, pd.DataFrame) or "role" not in probs:
        raise PodiumError(
            "probs must be a data frame of training and test images, as podium.frame returns it: role (train or test),"
            f" id, and a column for each class; not a {type(probs).__name__} without these"
        )
    if name is None:
        raise PodiumError("probs become a run; give it a name")
    if "run" in probs and probs["run"].nunique() > 1:
        raise PodiumError(
            f"probs hold several runs ({first_few(probs['run'].unique())}); average them, or give `runs` in their place"
        )
    oof, test = (probs[probs["role"] == role].drop(columns="role") for role in ("train", "test"))
    return competition.add_predictions(name.removesuffix(".csv"), oof, test)


@answers_wrong_calls
def compare(
    competition: Competition | str,
    runs: Sequence[Run | str] | Run | str | None = None,
    except_: Sequence[Run | str] | Run | str | None = None,
) -> "pd.DataFrame":
    """Returns a row per run, the best first: its score, its gain over the best run with an interval, its costs."""
    from podium.comparing.compare import compare_runs

    competition = _loaded(competition)
    return compare_runs(competition, _names(runs), _names(except_, "except_"))


@answers_wrong_calls
def frame(
    competition: Competition | str,
    runs: Sequence[Run | str] | Run | str | None = None,
    except_: Sequence[Run | str] | Run | str | None = None,
) -> "pd.DataFrame":
    """Returns what runs predict, without predicting: run, role, id, fold, target and the probability of every class.

    Rows of the role train are the held-out images, those of the role test the mean of a run's models; they are left out
    of runs that have not predicted the test images yet.
    """
    from podium.comparing.prediction_frame import prediction_frame

    competition = _loaded(competition)
    found = run_folder.find_runs(competition.slug, competition.root, _names(runs), _names(except_, "except_"))
    return prediction_frame(competition, found)


def _write_sample(root: Path) -> None:
    """Writes the handwritten digits, and three folds of them if there are none: a model of each takes seconds."""
    from podium.competition.handwritten_digits import write_digits
    from podium.folds.folds_csv import folds_path

    with in_brief():
        write_digits(root)
        if not folds_path(DIGITS_SLUG, root).exists():
            load(DIGITS_SLUG, root).folds(k=3)


def _link_raw(raw: Path, folder: Path) -> None:
    """Makes a competition's folder a link to a folder of images."""
    if not folder.is_dir():
        raise PodiumError(f"{folder}: no such folder")
    if raw.exists() or raw.is_symlink():
        if raw.resolve() != folder.resolve():
            raise PodiumError(f"{raw} exists already, and is not {folder}; choose another name, or move it away")
        return
    raw.parent.mkdir(parents=True, exist_ok=True)
    raw.symlink_to(folder, target_is_directory=True)


def _loaded(competition: Competition | str) -> Competition:
    if not isinstance(competition, Competition | str):
        raise PodiumError(f"the first argument is a competition or its name, not a {type(competition).__name__}")
    return load(competition) if isinstance(competition, str) else competition


def _seconds(budget: float | str | None) -> float | None:
    seconds = seconds_of(budget) if isinstance(budget, str) else budget
    if budget is not None and not (isinstance(seconds, int | float) and seconds > 0):
        raise PodiumError(f"budget must be a time such as '8h', or seconds, not {budget!r}")
    return seconds


def _machine(machine: Machine | str | None) -> Machine:
    if machine is None or isinstance(machine, str):
        return Machine(device=machine or "auto")
    if not isinstance(machine, Machine):
        raise PodiumError(f"machine must be a podium.Machine, or a device such as 'cpu', not {machine!r}")
    return machine


def _names(runs: Sequence[Run | str] | Run | str | None, word: str = "runs") -> list[str] | None:
    if runs is None:
        return None
    chosen = [runs] if isinstance(runs, run_folder.Run | str) or not isinstance(runs, Iterable) else list(runs)
    if not chosen:
        raise PodiumError(f"no runs were given; leave `{word}` out")
    for run in chosen:
        if not isinstance(run, run_folder.Run | str):
            raise PodiumError(f"{word} must be runs or their names, not {run!r}")
    return [run if isinstance(run, str) else run.name for run in chosen]


def _refuse_unknown_options(options: Mapping[str, Any]) -> None:
    """Answers words of other libraries, and arguments of Machine, with Podium's."""
    known = recipe_options()
    for word in options:
        if word in known:
            continue
        if word in {field.name for field in fields(Machine)}:
            raise PodiumError(f"no option '{word}'; it is an argument of podium.Machine: machine=podium.Machine(...)")
        hint = explain_option(word, {*map(flag_of, known), "--folds", "--name", "--budget"})
        if hint:
            raise PodiumError(f"no option '{word}'; {hint}")
