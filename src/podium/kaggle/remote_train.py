"""Trains on Kaggle's own GPUs, in a chain of kernels, each of which goes on with what the one before left.

    podium kaggle-train --model NAME [any flag of podium train]

Writes runs/<slug>/<run>/ as training here would. Where Kaggle's time runs out first, a next kernel goes on. A small
file beside the run says which kernels there are, so that the same command goes on following them.
"""

import contextlib
import io
import json
import re
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podium import STOPPED, PodiumError
from podium.competition.csv_files import read_table
from podium.competition.load import raw_folder
from podium.disk import locked, sha256, write_bytes, write_json
from podium.folds.folds_csv import folds_path
from podium.kaggle.client import http_status, kaggle_client
from podium.kaggle.inside_kernel import LIMIT, REPORT
from podium.kaggle.kernels import ACCELERATOR, Failed, follow_kernel, kernel_name, push_kernel, script
from podium.recipe import Recipe, differences, recipe_options
from podium.terminal import command_for, say
from podium.training.run_folder import Run, runs_folder

LARGEST = 1_000_000  # bytes of a kernel
MOST = 20  # kernels for one run: more than a week


class Done(PodiumError):
    """Nothing is left to train."""


def kaggle_train(
    slug: str, root: Path, name: str, recipe: Recipe, words: Sequence[str], accelerator: str = ACCELERATOR
) -> Run:
    """The run, trained over there; `words` are the flags that make its recipe, and others."""
    run = Run(runs_folder(slug, root) / name)
    note = run.path.parent / f".{name}.kernel.json"
    with locked(note.with_suffix(".lock")) as mine:
        if not mine:
            raise PodiumError(f"another process follows the kernels of {run.path} already")
        try:
            _check(slug, root, run, recipe, words)
        except Done:
            note.unlink(missing_ok=True)
            raise
        with kaggle_client(slug) as client, contextlib.redirect_stdout(io.StringIO()):  # it advises on standard output
            _train(client, slug, root, run, note, words, accelerator)
        note.unlink()
    say(f"podium: wrote {run.path}")
    say(f"next: {command_for('submit', slug)}")
    return run


def _check(slug: str, root: Path, run: Run, recipe: Recipe, words: Sequence[str]) -> None:
    """Whatever would be noticed only once a kernel has worked for hours."""
    path = folds_path(slug, root)
    if raw_folder(slug, root).is_dir() and not path.exists():
        raise PodiumError(f"the folds come first, so that they are the same here: {command_for('folds', slug)}")
    asked = _folds(words)
    if path.exists():
        known = set(read_table(path).get("fold", asked))
        wrong = [fold for fold in asked if fold not in known]
        if wrong:
            raise PodiumError(f"there is no fold {wrong[0]} in {path}")
    if run.has_begun():
        run.check_same({**asdict(recipe), **({"folds_sha256": sha256(path)} if path.exists() else {})})
        with run.lock():
            finished = [str(fold) for fold in run.finished()]
        if set(asked or map(str, range(run.recipe["folds"]))) <= set(finished):
            raise Done(f"{run.path} is trained already; give another run another --name")


def _folds(words: Sequence[str]) -> list[str]:
    return words[words.index("--folds") + 1].split(",") if "--folds" in words else []


def _train(client: Any, slug: str, root: Path, run: Run, note: Path, words: Sequence[str], accelerator: str) -> None:
    chain = _read(note, words)

    def keep() -> None:
        write_json(note, {"words": words, "kernels": chain})

    ended = STOPPED
    while ended == STOPPED:
        if chain and not chain[-1]["ended"]:
            pushed = chain[-1]["pushed"] or _known(client, chain[-1]["kernel"])
        else:
            if len(chain) == MOST:
                raise PodiumError(
                    f"{run.path} is not trained after {MOST} kernels; delete {note} to go on all the same"
                )
            token = secrets.token_hex(8)
            name = f"{kernel_name(slug, run.name, unlike=token)}-{len(chain) + 1}"  # so no older kernel is called so
            user = client.get_config_value(client.CONFIG_NAME_USER)
            chain.append({"kernel": f"{user}/{name}", "token": token, "pushed": False, "ended": False})
            keep()
            pushed = False
        link = chain[-1]
        try:
            if pushed:
                say(f"podium: kernel {link['kernel']} is at work already")
            else:
                _push(client, slug, root, run, words, accelerator, chain)
            link["pushed"] = True
            keep()
            follow_kernel(client, slug, link["kernel"], LIMIT)
            ended = _bring(client, slug, root, link, run, note)
        except PodiumError as error:
            if isinstance(error, Failed) or not link["pushed"]:
                chain.pop()  # another takes its place
                keep()
            raise
        link["ended"] = True
        keep()
        if ended == STOPPED:
            say("podium: Kaggle's time ran out first; a next kernel goes on")


def _known(client: Any, kernel: str) -> bool:
    """Whether a kernel was begun before something interrupted that."""
    try:
        client.kernels_status(kernel)
    except (OSError, ValueError) as error:
        if http_status(error) in (403, 404) or "Cannot access" in str(error):
            return False
        raise
    return True


def _push(
    client: Any, slug: str, root: Path, run: Run, words: Sequence[str], accelerator: str, chain: list[dict[str, Any]]
) -> None:
    previous, token = chain[-2]["kernel"] if len(chain) > 1 else None, chain[-1]["token"]
    given = [*words]
    if run.finished():  # what is finished here need not be trained there
        wanted = _folds(words) or [str(fold) for fold in range(run.recipe["folds"])]
        if "--folds" in given:
            at = given.index("--folds")
            del given[at : at + 2]
        given += ["--folds", ",".join(fold for fold in wanted if int(fold) not in run.finished())]
    text = script(slug, root, f"train({slug!r}, {run.name!r}, {given!r}, {previous!r}, {token!r})")
    if len(text) > LARGEST:
        raise PodiumError(f"the kernel has {len(text):,} bytes, most of them folds, and Kaggle takes {LARGEST:,}")
    push_kernel(
        client,
        slug,
        chain[-1]["kernel"].rpartition("/")[2],
        {"kernel.py": text},
        kernel_type="script",
        enable_internet=True,  # for the weights
        machine_shape=accelerator,
        kernel_sources=[previous] if previous else [],
    )


def _bring(client: Any, slug: str, root: Path, link: dict[str, Any], run: Run, note: Path) -> int:
    """The kernel's run folder to here; how its training ended."""
    kernel = link["kernel"]
    with tempfile.TemporaryDirectory(prefix=f".{run.name}.", dir=run.path.parent) as folder:
        say(f"podium: bringing the output of {kernel}")
        client.kernels_output(kernel, folder, force=True)
        try:
            report = json.loads((Path(folder) / REPORT).read_text())
            ended, token, folds = int(report["exit"]), report["token"], list(map(int, report["folds"]))
        except (OSError, ValueError, LookupError, TypeError) as error:
            what = f"left no {REPORT} ({error!r})"
            raise Failed(
                f"{kernel} {what}: https://www.kaggle.com/code/{kernel}; the same command begins another"
            ) from None
        brought = Run(Path(folder) / "runs" / slug / run.name)
        if token != link["token"] or not brought.path.is_dir():
            raise Failed(f"{kernel} trained nothing of this run; the same command begins another")
        try:  # the client writes whatever it was answered
            for fold in folds if brought.recipe else ():
                brought.check_weights(fold)
        except PodiumError as error:
            what = str(error).partition(";")[0].replace(f"{folder}/", "")
            again = f"the same command brings it again; should that not help, delete {note} to begin a new kernel"
            raise PodiumError(f"the output of {kernel} did not come as it was made ({what}); {again}") from None
        if not folds_path(slug, root).exists():
            for path in Path(folder).glob("folds.*"):
                write_bytes(folds_path(slug, root).with_name(path.name), path.read_bytes())
        if run.path.exists():
            with run.lock():
                _merge(brought, run)
        else:
            brought.path.rename(run.path)
    return ended


def _merge(brought: Run, run: Run) -> None:
    """Folds that are finished here stay; all else is as the kernel left it."""
    knows = (*recipe_options(), "folds_sha256", "data_sha256") if run.has_begun() else ()
    changed = differences(*({key: each.recipe.get(key) for key in knows} for each in (run, brought)))
    if changed:
        names = (f"{run.name}-kaggle{number or ''}" for number in range(99))
        aside = next(path for path in map(run.path.with_name, names) if not path.exists())
        brought.path.rename(aside)
        raise Failed(f"{run.path} is another run than the kernel's: {changed[0]}; what it trained is at {aside}")
    done = run.finished()
    for path in brought.path.iterdir():
        fold = re.fullmatch(r"fold(\d+)", path.name)
        if fold and int(fold[1]) in done:
            continue
        target = run.path / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.rename(target)


def _read(note: Path, words: Sequence[str]) -> list[dict[str, Any]]:
    """The kernels so far."""
    try:
        known = json.loads(note.read_text())
        facts = {"kernel": str, "token": str, "pushed": bool, "ended": bool}
        chain = [{fact: kind(each[fact]) for fact, kind in facts.items()} for each in known["kernels"]]
        before = list(map(str, known["words"]))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PodiumError(f"{note}: cannot be read ({error!r}); delete it to begin with a first kernel") from None
    if chain and before != list(words):
        raise PodiumError(
            f"{chain[-1]['kernel']} was begun with other flags ({' '.join(before)}); give these again to go on with it,"
            f" or another --name, or delete {note}"
        )
    return chain
