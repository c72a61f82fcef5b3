"""Trains on Kaggle's own GPUs: packs the code into a kernel, follows it and brings the run back.

    podium kaggle-train --model NAME [any flag of podium train]

Writes runs/<slug>/<run>/ as training here would. Where Kaggle's time runs out first, a next kernel goes on. A small
file beside the run says which kernel is at work, so that the same command goes on following it.
"""

import base64
import contextlib
import hashlib
import io
import json
import re
import secrets
import shutil
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podium import STOPPED, PodiumError
from podium.competition import raw_folder
from podium.console import bar, command, duration, say
from podium.disk import sha256, write_bytes, write_json
from podium.folds import path_of
from podium.kaggle import reason, talking
from podium.on_kaggle import LIMIT, REPORT
from podium.recipe import Recipe, differences, knobs
from podium.runs import Run, folder_of

# Kaggle gives two of them at once. Where none is named it may give a card that its torch has no kernels for.
ACCELERATOR = "NvidiaTeslaT4"
PAUSE = 30.0  # seconds between looks
DENIALS = 3  # in a row of looks: right after a push Kaggle may not know the kernel yet
PATIENCE = 3600.0  # seconds without an answer from Kaggle
LONGEST = 38  # of a kernel's name, before its hash and number; Kaggle takes 50 letters
LARGEST = 1_000_000  # bytes of a kernel
LINES = 20  # of the log of a kernel that failed
FAILED = ("ERROR", "CANCEL_REQUESTED", "CANCEL_ACKNOWLEDGED")


def kaggle_train(
    slug: str, root: Path, name: str, recipe: Recipe, words: Sequence[str], accelerator: str = ACCELERATOR
) -> Run:
    """The run, trained over there; `words` are the flags that make its recipe, and others."""
    run = Run(folder_of(slug, root) / name)
    if raw_folder(slug, root).is_dir() and not path_of(slug, root).exists():
        raise PodiumError(f"the folds come first, so that they are the same here: {command('folds', slug)}")
    if run.begun() and len(run.finished()) == run.recipe["folds"]:
        raise PodiumError(f"{run.path} is trained already; give another run another --name")
    if run.begun():
        folds = {"folds_sha256": sha256(path_of(slug, root))} if path_of(slug, root).exists() else {}
        run.check_same({**asdict(recipe), **folds})
    note = run.path.parent / f".{name}.kernel.json"
    with talking(slug) as client, contextlib.redirect_stdout(io.StringIO()):  # it advises on standard output
        chain = _read(note)  # the kernels so far, each going on with what the one before left
        if chain and chain[-1]["works"]:
            say(f"podium: kernel {chain[-1]['kernel']} is at work already")
        ended = STOPPED
        while ended == STOPPED:
            if not chain or not chain[-1]["works"]:
                token = secrets.token_hex(8)
                kernel = _push(client, slug, root, name, [*words, *_left(run, words)], accelerator, chain, token)
                chain.append({"kernel": kernel, "works": True, "token": token})
                write_json(note, {"kernels": chain})
            try:
                found = None
                while found is None:  # at first Kaggle may tell of an older kernel of that name
                    follow(client, slug, chain[-1]["kernel"])
                    found = _bring(client, slug, root, chain[-1], run)
            except Failed:
                write_json(note, {"kernels": chain[:-1]})  # another takes its place
                raise
            ended = found
            chain[-1]["works"] = False
            write_json(note, {"kernels": chain})
            if ended == STOPPED:
                say("podium: Kaggle's time ran out first; a next kernel goes on")
    note.unlink()
    say(f"podium: wrote {run.path}")
    say(f"next: {command('submit', slug)}")
    return run


def _left(run: Run, words: Sequence[str]) -> list[str]:
    """Folds that are finished here need not be trained there."""
    if "--folds" in words or not run.finished():
        return []
    return ["--folds", ",".join(str(fold) for fold in range(run.recipe["folds"]) if fold not in run.finished())]


def _push(
    client: Any,
    slug: str,
    root: Path,
    name: str,
    words: Sequence[str],
    accelerator: str,
    chain: list[dict[str, Any]],
    token: str,
) -> str:
    """Kaggle begins the chain's next kernel; its name."""
    number, previous = 1 + len(chain), chain[-1]["kernel"] if chain else None
    text = script(slug, root, f"train({slug!r}, {name!r}, {list(words)!r}, {previous!r}, {token!r})")
    if len(text) > LARGEST:
        raise PodiumError(f"the kernel has {len(text):,} bytes, most of them folds, and Kaggle takes {LARGEST:,}")
    return push(
        client,
        slug,
        f"{plain(slug, name)}-{number}",
        {"kernel.py": text},
        kernel_type="script",
        enable_internet=True,  # for the weights
        machine_shape=accelerator,
        kernel_sources=[previous] if previous else [],
    )


def plain(*words: str) -> str:
    """A name that Kaggle takes and that is of nothing else."""
    name = re.sub("[^a-z0-9]+", "-", "-".join(("podium", *words)).lower()).strip("-")[:LONGEST].strip("-")
    return name + "-" + hashlib.sha256("/".join(words).encode()).hexdigest()[:6]  # what is cut off made it another's


def push(client: Any, slug: str, name: str, code: dict[str, str], **metadata: object) -> str:
    """Kaggle begins a kernel of the one file of code; the kernel's name."""
    kernel = f"{client.get_config_value(client.CONFIG_NAME_USER)}/{name}"
    ((file, text),) = code.items()
    metadata = {
        "id": kernel,
        "title": name.replace("-", " "),
        "code_file": file,
        "language": "python",
        "is_private": True,
        "enable_gpu": True,
        "competition_sources": [slug],
        **metadata,
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / file).write_text(text)
        (Path(folder) / "kernel-metadata.json").write_text(json.dumps(metadata))
        answer = client.kernels_push(folder)
    invalid = [
        *answer.invalid_competition_sources,
        *answer.invalid_kernel_sources,
        *answer.invalid_dataset_sources,
    ]
    if answer.error or invalid:
        what = answer.error or f"it does not know {', '.join(map(str, invalid))}"
        rules = f"https://www.kaggle.com/competitions/{slug}/rules"
        raise PodiumError(f"Kaggle does not take the kernel ({what}); are the rules accepted at {rules}?")
    say(f"podium: {kernel} is at Kaggle: https://www.kaggle.com/code/{kernel}")
    return kernel


def script(slug: str, root: Path, call: str) -> str:
    """One file that holds all of the code, the competition's card and its folds, and calls a function of on_kaggle."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        for path, inside in code():
            archive.write(path, inside)
        for path in [*card_of(slug, root), *sorted((root / "data" / "prepared" / slug).glob("folds.*"))]:
            archive.write(path, str(path.relative_to(root)))
    text = "\n".join(re.findall(".{1,120}", base64.b64encode(packed.getvalue()).decode()))
    return f'''"""Made by podium kaggle-train; https://www.kaggle.com/competitions/{slug}"""
import base64, io, sys, zipfile

PACKED = """
{text}
"""
zipfile.ZipFile(io.BytesIO(base64.b64decode(PACKED))).extractall("/tmp/podium")
sys.path.insert(0, "/tmp/podium/src")
import podium.on_kaggle

sys.exit(podium.on_kaggle.{call})
'''


def code() -> list[tuple[Path, str]]:
    """The files of this program, and where they lie in a bundle."""
    package = Path(__file__).parent
    files = [(path, f"src/podium/{path.relative_to(package)}") for path in sorted(package.rglob("*.py"))]
    requirements = package.parents[1] / "requirements.txt"
    if not requirements.is_file():
        raise PodiumError(f"{requirements} is missing; call podium from a checkout of its repository")
    return [*files, (requirements, "requirements.txt")]


def card_of(slug: str, root: Path) -> list[Path]:
    card = root / "data" / "competitions" / f"{slug}.toml"
    return [card] if card.is_file() else []


class Failed(PodiumError):
    """The kernel has ended, and not well."""


def follow(client: Any, slug: str, kernel: str) -> None:
    """Until the kernel has ended well."""
    heard, shown, denied = time.monotonic(), "", 0
    form = "{desc} {elapsed} of at most 11 h {postfix}"
    with bar(total=round(LIMIT), desc=kernel, bar_format=form) as progress:
        while True:
            status, why = "", ""
            try:
                answer = client.kernels_status(kernel)
                status, why = str(answer.status).rpartition(".")[2].upper(), answer.failure_message or ""
                heard = time.monotonic()
            except (OSError, ValueError) as error:  # a cut connection need not be the end
                denied += "Cannot access" in str(error)  # as the client says of 401 and 403
                if denied > DENIALS:
                    raise PodiumError(
                        f"Kaggle does not let you see {kernel} any more; is your token still good?"
                    ) from None
                progress.set_postfix_str(reason(error, slug))
                if time.monotonic() - heard > PATIENCE:
                    raise PodiumError(
                        f"{reason(error, slug)}, for {duration(PATIENCE)}; the same command goes on following {kernel}"
                    ) from None
            if status and status != shown:
                shown = status
                say(f"podium: {kernel} is {status.lower().replace('_', ' ')}")
            if status == "COMPLETE":
                return
            if status in FAILED:
                _show_log(client, kernel)
                raise Failed(
                    f"{kernel} ended with {status.lower()}{why and ': '}{why}; its log is at"
                    f" https://www.kaggle.com/code/{kernel}; the same command begins another"
                )
            time.sleep(PAUSE)
            progress.update(round(PAUSE))


def _show_log(client: Any, kernel: str) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(OSError, ValueError):
        client.kernels_output(kernel, folder, file_pattern="^$")
        for log in Path(folder).glob("*.log"):
            said = "".join(str(each.get("data", "")) for each in json.loads(log.read_text()))
            say("\n".join(f"  {line}" for line in said.splitlines()[-LINES:]))


def _bring(client: Any, slug: str, root: Path, working: dict[str, Any], run: Run) -> int | None:
    """The kernel's run folder to here; how its training ended, None where this is the output of another."""
    kernel = working["kernel"]
    run.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{run.name}.", dir=run.path.parent) as folder:
        say(f"podium: bringing the output of {kernel}")
        client.kernels_output(kernel, folder, force=True)
        try:
            report = json.loads((Path(folder) / REPORT).read_text())
            ended, token = int(report["exit"]), report["token"]
        except (OSError, ValueError, LookupError) as error:
            page = f"https://www.kaggle.com/code/{kernel}"
            raise PodiumError(f"{kernel} left no {REPORT} ({error!r}); see {page}") from None
        if token != working["token"]:
            time.sleep(PAUSE)
            return None
        brought = Run(Path(folder) / "runs" / slug / run.name)
        for fold in brought.finished():
            brought.check_weights(fold)  # the client writes whatever it was answered
        if not path_of(slug, root).exists():
            for path in Path(folder).glob("folds.*"):
                write_bytes(path_of(slug, root).with_name(path.name), path.read_bytes())
        if run.path.exists():
            with run.lock():
                _merge(brought, run)
        else:
            brought.path.rename(run.path)
    return ended


def _merge(brought: Run, run: Run) -> None:
    """Folds that are finished here stay; all else is as the kernel left it."""
    done, knows = run.finished(), (*knobs(), "folds_sha256", "data_sha256")
    changed = differences(*({key: each.recipe.get(key) for key in knows} for each in (run, brought))) if done else []
    if changed:
        aside = run.path.with_name(f"{run.name}-kaggle")
        brought.path.rename(aside)
        raise PodiumError(f"{run.path} is another run than the kernel's: {changed[0]}; what it trained is at {aside}")
    for path in brought.path.iterdir():
        fold = re.fullmatch(r"fold(\d+)", path.name)
        if fold and int(fold[1]) in done:
            continue
        target = run.path / path.name
        if target.is_dir():
            shutil.rmtree(target)
        path.rename(target)


def _read(note: Path) -> list[dict[str, Any]]:
    try:
        known = json.loads(note.read_text())["kernels"]
        return [{"kernel": str(each["kernel"]), "works": bool(each["works"]), "token": each["token"]} for each in known]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PodiumError(f"{note}: cannot be read ({error!r}); delete it to begin with a first kernel") from None
