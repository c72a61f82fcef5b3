"""Looks for what would cost a day if it came out later: packages, disk, GPU, weights, Kaggle's terms, the data.

    podium doctor [-c SLUG] [--model A B]

Writes nothing and downloads nothing. Exit 1 where something would stop the way to a submission.
"""

import importlib.metadata
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from podium import PodiumError
from podium.models.build import PERMISSIVE, licence_of
from podium.models.hub import check_model_name, check_weights_available
from podium.terminal import plural, say, show, table

ROOM, LITTLE_ROOM = 20e9, 3e9  # bytes: of a competition, its pixels and two house models' runs; of a first look


class Finding(NamedTuple):
    what: str
    level: str  # "ok"; "note": good to know; "BAD": mend it first
    text: str


def doctor(slug: str, root: Path, models: Sequence[str], device: str) -> None:
    """Prints what was found; raises where something of it is bad."""
    looks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("packages", _packages),
        ("disk", partial(_disk, root)),
        ("device", partial(_device, device)),
        *((model, partial(_weights, model)) for model in models),
        ("kaggle", partial(_kaggle, slug, root)),
        ("data", partial(_data, slug, root)),
    )
    found = []
    for what, look in looks:
        try:
            found += list(look())
        except (PodiumError, ImportError, OSError, LookupError) as error:
            found.append(Finding(what, "BAD", str(error) or repr(error)))
    show(table(["", "", ""], [(each.level, each.what, each.text) for each in found], text=3).partition("\n")[2])
    bad = [each for each in found if each.level == "BAD"]
    if bad:
        raise PodiumError(f"{plural(len(bad), 'thing')} to mend first, marked BAD")
    say("podium: nothing stands in the way")


def _packages() -> Iterator[Finding]:
    from packaging.requirements import Requirement

    asked = [Requirement(line) for line in importlib.metadata.requires("podium") or []]
    wrong = []
    for each in asked:
        try:
            version = importlib.metadata.version(each.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{each.name} is missing")
            continue
        if not each.specifier.contains(version, prereleases=True):
            wrong.append(f"{each.name} is {version}, not {each.specifier}")
    python = f"Python {sys.version.split()[0]}"
    if wrong:
        yield Finding("packages", "BAD", f"{python}; {', '.join(wrong)}; run: make setup")
    else:
        core = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "timm", "albumentations"))
        yield Finding("packages", "ok", f"{python}, {core}")


def _disk(root: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(root).free
    level = "ok" if free >= ROOM else "note" if free >= LITTLE_ROOM else "BAD"
    wanted = "" if level == "ok" else f"; {ROOM / 1e9:.0f} GB hold a large competition and its runs"
    yield Finding("disk", level, f"{free / 1e9:.0f} GB are free{wanted}")


def _device(name: str) -> Iterator[Finding]:
    import torch

    from podium.models.device import device_name, pick_device, pick_precision, precision_name

    names = [name]
    if name == "auto" and torch.cuda.is_available():
        names = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    for each in names:
        on = pick_device(each)
        precision = pick_precision("auto", on)
        # A step as training makes it: is_available() is true for cards that this build of torch has no kernels for.
        try:
            layer = torch.nn.Conv2d(3, 8, 3).to(on)
            with torch.autocast(on.type, precision, enabled=precision != torch.float32):
                loss = layer(torch.ones(2, 3, 16, 16, device=on)).float().square().mean()
            loss.backward()
            finite = bool(torch.isfinite(loss).item())
        except RuntimeError as error:
            reason = (str(error).strip().splitlines() or ["no reason"])[0]
            yield Finding("device", "BAD", f"{each} is there and computes nothing ({reason}); use --device cpu")
            continue
        memory = f", {torch.cuda.get_device_properties(on).total_memory / 1e9:.0f} GB" if on.type == "cuda" else ""
        text = f"{device_name(on)}{memory}, trains in {precision_name(precision)}"
        if not finite:
            yield Finding("device", "BAD", f"{text}, and computes what is no number")
        elif on.type == "cpu":
            yield Finding("device", "note", f"{text}; no GPU: --model auto suits it, house models take a day and more")
        else:
            yield Finding("device", "ok", text)


def _weights(model: str) -> Iterator[Finding]:
    model = "convnext_small" if model == "auto" else model
    check_model_name(model)
    check_weights_available(model, "pretrained")
    licence = licence_of(model)
    if licence is None:
        raise PodiumError(f"timm has no pretrained weights for {model}; train from scratch with --weights none")
    if licence.lower() in PERMISSIVE:
        yield Finding(model, "ok", f"its weights can be had; licence {licence}")
    else:
        yield Finding(model, "note", f"its weights can be had; licence {licence}: check that the competition allows it")


def _kaggle(slug: str, root: Path) -> Iterator[Finding]:
    from podium.competition.digits import DIGITS_SLUG
    from podium.competition.load import raw_folder
    from podium.kaggle.client import fetch_competition_page, signed_in_client

    if slug == DIGITS_SLUG:
        yield Finding("kaggle", "ok", "not needed for this competition")
        return
    try:
        with signed_in_client(slug) as client:
            page = fetch_competition_page(client, slug)
    except PodiumError as error:
        if not raw_folder(slug, root).is_dir():
            raise
        yield Finding("kaggle", "note", f"{error}; the data is here, so only --upload and kaggle-train need it")
        return
    if not page.user_has_entered:
        rules = f"https://www.kaggle.com/competitions/{slug}/rules"
        yield Finding("kaggle", "BAD", f"the rules of {slug} are not accepted yet; do so once at {rules}")
        return
    over = bool(page.deadline) and page.deadline.replace(tzinfo=UTC) < datetime.now(UTC)
    deadline = f", {'over since' if over else 'until'} {page.deadline:%Y-%m-%d}" if page.deadline else ""
    daily = f", {page.max_daily_submissions} submissions a day" if page.max_daily_submissions else ""
    yield Finding(
        "kaggle",
        "note" if over else "ok",
        f"you have entered {slug}: {page.evaluation_metric or 'no metric named'}{daily}{deadline}",
    )
    if page.submissions_disabled:
        yield Finding("kaggle", "BAD", f"{slug} takes no submissions any more")
    if page.is_kernels_submissions_only:
        yield Finding("kaggle", "note", f"{slug} takes notebooks only, no CSV files")


def _data(slug: str, root: Path) -> Iterator[Finding]:
    from podium.competition.load import load, raw_folder
    from podium.folds.folds_csv import folds_path, read_folds
    from podium.terminal import command_for

    if not raw_folder(slug, root).is_dir():
        yield Finding("data", "note", f"not here yet; get it with: {command_for('data', slug)}")
        return
    competition = load(slug, root)
    counts = f"{len(competition.train):,} training and {len(competition.test):,} test images"
    yield Finding(
        "data",
        "ok",
        f"{counts}, {len(competition.classes)} classes; the rows are those of {competition.submission_format.source}",
    )
    for note in competition.notes:
        yield Finding("data", "note", note)
    if not folds_path(slug, root).exists():
        yield Finding("folds", "note", f"none yet; make them with: {command_for('folds', slug)}")
        return
    folds = read_folds(competition, root)
    yield Finding("folds", "ok", f"{folds.max() + 1}, and they fit the data")
