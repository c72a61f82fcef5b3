"""The study of a search: what its trials have drawn and scored, in a journal that several processes write at once.

    runs/<competition>/search/<search>/study.json    what is searched; it stays the same when the search goes on
                                       trials.jsonl  Optuna's journal: a line of JSON for each change
                                       .t<n>.lock    held by the process that trains trial n

The system releases the lock of a process that ends, however it ends. A trial that is running and that nobody holds was
left by such a process: the next one goes on with it, and its runs resume.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from podium.basics.disk import locked, write_json
from podium.basics.errors import InUse, PodiumError
from podium.options.recipe import differences
from podium.saved_runs.run_folder import PATIENCE

VERSION = 2  # of study.json, and of what the trials record in their attributes
HALVING = 2  # one trial in so many goes on from each rung
SHORT_TRAINING, OF_EACH_FOLD = 1, 2  # steps: so the rungs are a short training, one fold, two folds, four folds, ...
MOMENT = 0.1  # seconds that who counts the trials may hold the lock of one
STUDY, JOURNAL = "study.json", "trials.jsonl"
DEFAULTS, OPTIONS, SCORES, ERROR = "defaults", "options", "scores", "error"  # attributes of trials
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


class SearchStudy:
    def __init__(self, folder: Path, better: float, seed: int = 0) -> None:
        """`better` is the sign of the metric: 1 if higher scores are better."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.folder, self.better, self.seed = folder, better, seed
        lock = _JournalLock(folder / ".journal.lock")
        with lock:
            pass  # it has cut what was left of a line
        try:
            self.study = _open_study(folder, lock)
            for trial in self.trials(TrialState.COMPLETE):
                if not isinstance(trial.value, float):
                    raise TypeError(f"trial {trial.number} has the score {trial.value!r}")
        except (ValueError, LookupError, TypeError, AssertionError, RuntimeError) as error:
            raise PodiumError(
                f"{folder / JOURNAL} cannot be read ({error}); restore it, or delete {folder} to search anew"
            ) from None

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=states or None)

    def enqueue_defaults(self, drawn_by_model: dict[str, dict[str, Any]]) -> None:
        """Lets the first trials be those of the defaults, one of each model."""
        with locked(self.folder / ".claim.lock", patience=math.inf):
            known = {trial.user_attrs.get(DEFAULTS) for trial in self.trials()}
            for model, drawn in drawn_by_model.items():
                if model not in known:
                    self.study.enqueue_trial(drawn, user_attrs={DEFAULTS: model})

    @contextmanager
    def claimed(self, most: int) -> Iterator[Trial | None]:
        """Yields a trial that no other process has: one that a process left, or a new one; None if there are enough."""
        with ExitStack() as held:
            with locked(self.folder / ".claim.lock", patience=math.inf):
                trial = self._left_trial(held) or self._new_trial(held, most)
            yield trial

    def _left_trial(self, held: ExitStack) -> Trial | None:
        for trial in self.trials(TrialState.RUNNING):
            with ExitStack() as own:
                is_free = own.enter_context(locked(self._lock_path(trial.number), patience=MOMENT))
                # Who held the lock may have finished the trial since it was listed.
                if is_free and self.trials()[trial.number].state == TrialState.RUNNING:
                    held.push(own.pop_all())
                    self._seed_sampler(trial.number)
                    return Trial(self.study, trial._trial_id)  # Optuna has no public way to a running trial
        return None

    def _new_trial(self, held: ExitStack, most: int) -> Trial | None:
        begun = [trial for trial in self.trials() if trial.state in (TrialState.RUNNING, *FINISHED)]
        if len(begun) >= most and not self.trials(TrialState.WAITING):
            return None
        self._seed_sampler(len(self.trials()))
        trial = self.study.ask()
        # Only who counts may hold it, for a moment.
        if not held.enter_context(locked(self._lock_path(trial.number), patience=PATIENCE)):
            raise InUse(f"{self._lock_path(trial.number)} is held by another process; run the same command again")
        return trial

    def _seed_sampler(self, number: int) -> None:
        """Lets what a trial draws depend on the seed, its number and the trials before it, not on who draws it."""
        digest = hashlib.sha256(f"{self.seed} {number}".encode()).hexdigest()
        self.study.sampler = TPESampler(seed=int(digest[:8], 16))

    def is_busy(self) -> bool:
        """Returns whether other processes train trials."""
        for trial in self.trials(TrialState.RUNNING):
            with locked(self._lock_path(trial.number), shared=True) as is_left:  # others may look at the same time
                if not is_left:
                    return True
        return False

    def _lock_path(self, number: int) -> Path:
        return self.folder / f".t{number}.lock"

    def value(self, score: float) -> float:
        """Returns the score as the study has it: higher is better."""
        return self.better * score

    def best(self) -> FrozenTrial | None:
        """Returns the best trial that all folds of the search have judged; of equal ones, the first."""
        complete = self.trials(TrialState.COMPLETE)
        return max(complete, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)

    def defaults_of(self, model: str) -> FrozenTrial | None:
        """Returns the trial of a model's defaults, if it is complete."""
        found = (trial for trial in self.trials(TrialState.COMPLETE) if trial.user_attrs.get(DEFAULTS) == model)
        return next(found, None)


def _open_study(folder: Path, lock: "_JournalLock") -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(folder / JOURNAL), lock_obj=lock))  # type: ignore[arg-type]
    pruner = SuccessiveHalvingPruner(min_resource=1, reduction_factor=HALVING)
    if folder.name in optuna.get_all_study_names(storage):  # to create it again would add a line
        return optuna.load_study(study_name=folder.name, storage=storage, pruner=pruner)
    return optuna.create_study(
        study_name=folder.name, storage=storage, direction="maximize", pruner=pruner, load_if_exists=True
    )


class _JournalLock:
    """A lock for Optuna's journal that a killed process does not leave behind, nor half a line of what it wrote."""

    def __init__(self, path: Path) -> None:
        self.path, self.held = path, ExitStack()

    def acquire(self) -> bool:
        self.held.enter_context(locked(self.path, patience=math.inf))
        _cut_half_line(self.path.with_name(JOURNAL))
        return True

    def release(self) -> None:
        self.held.close()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _cut_half_line(path: Path) -> None:
    """Deletes what a power cut or a full disk left of a line: Optuna would refuse all lines after it."""
    with suppress(FileNotFoundError), path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if size and (file.seek(size - 1), file.read(1))[1] != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def keep_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Writes study.json, or refuses to go on with other settings."""
    with locked(folder / ".claim.lock", patience=math.inf):
        if not (folder / STUDY).exists():
            write_json(folder / STUDY, {"version": VERSION, **settings})
            return
        recorded = read_settings(folder)
        if changes := differences(recorded, settings):
            raise PodiumError(
                f"{folder} was started with other settings: {'; '.join(changes)}. Give the same to go on, or choose"
                " another name for this search (--name NAME)"
            )


def read_settings(folder: Path) -> dict[str, Any]:
    path = folder / STUDY
    try:
        settings = dict(json.loads(path.read_text(encoding="utf-8")))
        version = settings.pop("version")
    except FileNotFoundError:
        raise PodiumError(f"there is no search in {folder}; begin one with podium search --model NAME") from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PodiumError(f"{path}: cannot be read ({error!r}); restore it, or delete {folder}") from None
    if version != VERSION:
        raise PodiumError(
            f"{path}: it is of version {version}, and this Podium reads {VERSION}; go on with the Podium that began it,"
            " or choose another --name"
        )
    return settings
