"""Trains on Kaggle's own GPUs, in a chain of kernels: each continues what the one before left.

    podium kaggle-train --model NAME [any flag of podium train]

Writes runs/<slug>/<run>/ as training here does. When Kaggle's time runs out, it starts the next kernel. A file beside
the run records the kernels (kernel_chain.py), so that the same command follows them again after an interruption.
remote_compete.py does the same for `podium compete`.
"""

import contextlib
import io
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from podium.basics.disk import locked, sha256
from podium.basics.errors import STOPPED, PodiumError
from podium.basics.project_root import runs_folder
from podium.basics.terminal import command_for, say
from podium.competition.card import read_card
from podium.competition.find.csv_files import read_table
from podium.competition.load import load, raw_folder
from podium.folds.folds_csv import folds_path, read_folds
from podium.kaggle.client import http_status, signed_in_client
from podium.models.build import resolve_recipe
from podium.models.described_models import FOLDER, HUB
from podium.options.extensions.own_parts import own_parts_digest
from podium.options.moves.joining import Joining
from podium.options.moves.seen_parts import SeenParts
from podium.options.option_kinds import AUTO
from podium.options.recipe import Options, files_of, flag_of, hashes_of_files, learns_from, parts_of_batch
from podium.options.recipe_defaults import expand_auto
from podium.saved_runs.fold_names import holds_nothing_out
from podium.saved_runs.run_folder import Run
from podium.training.plan import data_of
from podium.training.request import Request, check_request, name_of_run
from podium_annex.kaggle_machines.fetch_run import Fetched, fetch_run
from podium_annex.kaggle_machines.inside_kernel import LIMIT, TrainFlags
from podium_annex.kaggle_machines.kernel_chain import Kernel, KernelChain, chain_path
from podium_annex.kaggle_machines.pack_kernel import build_kernel_script
from podium_annex.kaggle_machines.push_kernel import (
    ACCELERATOR,
    KernelFailed,
    follow_kernel,
    is_denied,
    make_kernel_name,
    push_kernel,
    read_user_name,
)

MAX_SCRIPT = 1_000_000  # characters that Kaggle accepts
MAX_KERNELS = 20  # in one chain: more than a week


class AlreadyTrained(PodiumError):
    """Nothing is left to train."""


def train_on_kaggle(slug: str, root: Path, request: Request, accelerator: str = ACCELERATOR) -> Run:
    """Trains the run on Kaggle and brings it back."""
    options = check_request(slug, root, replace(request, options=expand_auto(request.options, "cuda")))
    _refuse_local_files(options)
    if Joining.recorded(options).weight_of_extra:
        refuse_extra_images(slug, root, "add --extra-weight 0, or train here")
    run = Run(runs_folder(slug, root) / name_of_run(request, options))
    if any(map(holds_nothing_out, request.folds)):
        raise PodiumError("--folds all: kernels train folds only; train on all images here, from the fetched run")
    files = files_of({**read_card(slug, root).get("recipe", {}), **options})
    places = {name: f"files/{name}{path.suffix}" for name, path in files.items()}
    flags = TrainFlags(dict(options), list(request.folds) or None, request.budget, places)
    training = Training(slug, root, run, flags)
    job = KernelJob(slug, root, run.path, accelerator, training.call, {places[name]: files[name] for name in files})
    with job.alone():
        try:
            training.check_before_push(options)
        except AlreadyTrained:
            job.receipt.unlink(missing_ok=True)
            raise
        job.work(KernelChain(job.receipt, flags.to_words()))
        job.receipt.unlink()
    say(f"podium: wrote {run.path}")
    say(f"next: {command_for('submit', slug)}")
    return run


def _refuse_local_files(options: Options) -> None:
    parts = SeenParts.recorded(options)
    is_on_kaggle = {
        "--weights": options.get("weights", "none") in ("none", "pretrained"),
        "--model": not options["model"].startswith(FOLDER),
        **{flag_of(name): not options.get(name) for name in learns_from()},
        "--region": not (parts.file or parts.run or parts.finder),
    }
    for flag, is_there in is_on_kaggle.items():
        if not is_there:
            raise PodiumError(f"{flag}: its files are not on Kaggle's machines; leave it out, or train here")
    if options["model"].startswith(HUB):
        say(f"podium: note: the kernel fetches {options['model']} from the hub by itself, and without your token")


def refuse_extra_images(slug: str, root: Path, remedy: str, keys: Sequence[str] = ("extra",)) -> None:
    for key in keys:
        if read_card(slug, root).get(key):
            raise PodiumError(f"the card's [[{key}]] images are not on Kaggle's machines; {remedy}")


def refuse_files_of_card(slug: str, root: Path, remedy: str) -> None:
    for name in files_of(read_card(slug, root).get("recipe", {})):
        raise PodiumError(f"the file of the card's {name} is not on Kaggle's machines; {remedy}")


def refuse_missing_folds(slug: str, root: Path) -> None:
    path = folds_path(slug, root)
    if raw_folder(slug, root).is_dir() and not path.exists():
        command = command_for("folds", slug)
        raise PodiumError(f"{path} is missing, and the kernel must train on the same folds; run first: {command}")


@dataclass(frozen=True)
class Training:
    """A run, and what to train of it in kernels."""

    slug: str
    root: Path
    run: Run
    flags: TrainFlags

    def check_before_push(self, options: Options) -> None:
        """Raises for mistakes that would otherwise show only after hours of a kernel's work."""
        refuse_missing_folds(self.slug, self.root)
        path = folds_path(self.slug, self.root)
        if path.exists():
            self._refuse_unknown_folds(path)
        if self.run.has_begun():
            hashes: dict[str, str | None] = {"folds_sha256": sha256(path)} if path.exists() else {}
            if raw_folder(self.slug, self.root).is_dir():
                hashes["corrections_sha256"] = load(self.slug, self.root).corrections.sha256
            known = dict(self._known_options(options))
            if parts_of_batch(known) == AUTO:
                del known["accumulate"]  # the first call chose it
            hashes |= hashes_of_files(known)
            self.run.check_same({**known, **hashes, "own_parts_sha256": own_parts_digest(self.run.recipe)})
            with self.run.lock():
                finished = self.run.finished()
            if set(self._chosen_folds()) <= set(finished):
                raise AlreadyTrained(f"{self.run.path} is trained already; give another run another --name")

    def _known_options(self, options: Options) -> Options:
        """Returns the whole recipe, or what is given of it if the data that decide the rest are only at Kaggle."""
        if not raw_folder(self.slug, self.root).is_dir():
            return {**read_card(self.slug, self.root).get("recipe", {}), **options}
        competition = load(self.slug, self.root)
        data = data_of(competition, read_folds(competition))
        return resolve_recipe(options, competition.recipe, data).values()

    def _refuse_unknown_folds(self, path: Path) -> None:
        chosen = list(map(str, self.flags.folds or []))
        folds = set(read_table(path).get("fold", chosen))
        unknown = [fold for fold in chosen if fold not in folds]
        if unknown:
            raise PodiumError(f"there is no fold {unknown[0]} in {path}; leave it out of --folds")

    def _chosen_folds(self) -> list[int]:
        """Returns which folds to train of a run that has begun."""
        return list(range(self.run.recipe["folds"])) if self.flags.folds is None else self.flags.folds

    def call(self, previous: str | None, token: str) -> str:
        flags, finished = self.flags, self.run.finished()
        if finished:  # here, so the kernel need not train them
            flags = replace(flags, folds=[fold for fold in self._chosen_folds() if fold not in finished])
        return f"run_training{(self.slug, self.run.name, asdict(flags), previous, token)!r}"


@dataclass(frozen=True)
class KernelJob:
    """What a chain of kernels makes."""

    slug: str
    root: Path
    made: Path  # the folder of a run, or of the ledger of compete
    accelerator: str
    call: Callable[[str | None, str], str]  # of a function in inside_kernel.py, by the previous kernel and a token
    files: Mapping[str, Path] = field(default_factory=dict)  # that options name, by their place in PROJECT

    @property
    def receipt(self) -> Path:
        return chain_path(self.made)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps a second process out."""
        with locked(self.receipt.with_suffix(".lock")) as acquired:
            if not acquired:
                raise PodiumError(f"another process follows the kernels of {self.made} already; wait for it")
            yield

    def work(self, chain: KernelChain) -> Fetched:
        """Works in as many kernels as it takes; returns what the last one has brought."""
        # The client prints advice, but standard output is for results.
        with signed_in_client(self.slug) as client, contextlib.redirect_stdout(io.StringIO()):
            while (fetched := self._work_in_kernel(client, chain)).exit_status == STOPPED:
                say("podium: Kaggle's time ran out first; the next kernel continues")
        return fetched

    def _work_in_kernel(self, client: Any, chain: KernelChain) -> Fetched:
        """Pushes a kernel unless the newest still works, follows it and fetches what it has made."""
        if chain.kernels and not chain.kernels[-1].ended:
            kernel = chain.kernels[-1]
            is_at_kaggle = kernel.pushed or _is_at_kaggle(client, kernel.name)
        else:
            kernel = self._add_kernel(client, chain)
            is_at_kaggle = False
        try:
            if is_at_kaggle:
                say(f"podium: kernel {kernel.name} is already at Kaggle")
            else:
                self._push(client, kernel, chain.previous)
            kernel.pushed = True
            chain.save()
            follow_kernel(client, self.slug, kernel.name, LIMIT)
            fetched = fetch_run(client, self.slug, self.root, self.made, kernel)
        except PodiumError as error:
            if isinstance(error, KernelFailed) or not kernel.pushed:
                chain.drop_newest()
            raise
        kernel.ended = True
        chain.save()
        return fetched

    def _add_kernel(self, client: Any, chain: KernelChain) -> Kernel:
        if len(chain.kernels) == MAX_KERNELS:
            raise PodiumError(
                f"{self.made} is not finished after {MAX_KERNELS} kernels; delete {chain.path} to continue anyway"
            )
        token = secrets.token_hex(8)
        name = make_kernel_name(self.slug, self.made.name, salt=token)  # so that no older kernel has this name
        kernel = Kernel(f"{read_user_name(client)}/{name}-{len(chain.kernels) + 1}", token)
        chain.add(kernel)
        return kernel

    def _push(self, client: Any, kernel: Kernel, previous: str | None) -> None:
        call = self.call(previous, kernel.token)
        text = build_kernel_script(self.slug, self.root, call, self.files)
        if len(text) > MAX_SCRIPT:
            raise PodiumError(
                f"the kernel has {len(text):,} characters, most of them folds.csv or files of options, but Kaggle"
                f" accepts {MAX_SCRIPT:,}; run it on a machine of your own"
            )
        push_kernel(
            client,
            self.slug,
            kernel.name.rpartition("/")[2],
            text,
            code_file="kernel.py",
            kernel_type="script",
            enable_internet=True,  # for the pretrained weights
            machine_shape=self.accelerator,
            kernel_sources=[previous] if previous else [],
        )


def _is_at_kaggle(client: Any, kernel: str) -> bool:
    """Returns whether Kaggle has a kernel whose push was interrupted."""
    try:
        client.kernels_status(kernel)
    except (OSError, ValueError) as error:
        if http_status(error) in (403, 404) or is_denied(error):
            return False
        raise
    return True
