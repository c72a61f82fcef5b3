"""Checks packages, disk, GPU, weights, Kaggle's terms and the data before a long run.

    podium doctor [-c SLUG] [--model A B]

Writes nothing and downloads nothing. Exit status 1 if something would prevent a submission.
"""

import importlib.metadata
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from podium.basics.errors import PodiumError
from podium.basics.extras import requirements_of
from podium.basics.light_torch import import_torch
from podium.basics.terminal import command_for, first_line, plural, say, show, table
from podium.competition.card import read_card
from podium.models.build import PERMISSIVE
from podium.models.catalogue import licence_of
from podium.models.hub import JOIN, backbones_in, check_model_name, check_weights_available, package_to_use, timm_name
from podium.models.look_inside import inner_backbones
from podium.options.extensions.extension_files import loaded_extensions
from podium.options.recipe_defaults import AUTO_PRETRAINED, expand_auto

# Bytes: for a large competition, its pixels and the runs of the two default models; for a first small run.
ENOUGH_SPACE, LITTLE_SPACE = 20e9, 3e9


class Finding(NamedTuple):
    subject: str
    level: str  # "ok"; "note": good to know; "BAD": fix it first
    text: str


def doctor(slug: str, root: Path, models: Sequence[str], device: str) -> None:
    """Prints all findings; raises if one of them is BAD."""
    checks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("packages", _packages),
        ("disk", partial(_disk, root)),
        ("extensions", partial(_extensions, slug, root)),
        ("device", partial(_devices, device)),
        *((model, partial(_weights, model, device)) for model in models),
        ("kaggle", partial(_kaggle, slug, root)),
        ("data", partial(_data, slug, root)),
    )
    findings: list[Finding] = []
    for subject, check in checks:
        try:
            findings += check()
        except (PodiumError, ImportError, OSError, LookupError) as error:
            findings.append(Finding(subject, "BAD", str(error) or repr(error)))
    rows = [(finding.level, finding.subject, finding.text) for finding in findings]
    show(table(["", "", ""], rows, text_columns=3).partition("\n")[2])
    bad_count = sum(finding.level == "BAD" for finding in findings)
    if bad_count:
        raise PodiumError(f"{plural(bad_count, 'thing')} to fix first, marked BAD")
    say("podium: all is ready")


# --- this machine ------------------------------------------------------------------------------------


def _packages() -> Iterator[Finding]:
    problems = []
    for requirement in requirements_of():
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            problems.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{requirement.name} is {version}, not {requirement.specifier}")
    python = f"Python {sys.version.split()[0]}"
    if problems:
        yield Finding("packages", "BAD", f"{python}; {', '.join(problems)}; run: make setup")
    else:
        core = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torch", "timm", "albumentations"))
        yield Finding("packages", "ok", f"{python}, {core}")


def _disk(root: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(root).free
    level = "ok" if free >= ENOUGH_SPACE else "note" if free >= LITTLE_SPACE else "BAD"
    need = "" if level == "ok" else f"; a large competition and its runs take {ENOUGH_SPACE / 1e9:.0f} GB"
    yield Finding("disk", level, f"{free / 1e9:.0f} GB are free{need}")


def _extensions(slug: str, root: Path) -> Iterator[Finding]:
    """Loads them first: a model may be one of them."""
    read_card(slug, root)
    for extension in loaded_extensions():
        yield Finding("extensions", "ok", f"{extension.path} can be loaded")


def _devices(name: str) -> Iterator[Finding]:
    import_torch()
    from podium.models.device import gpu_names, has_any_gpu, has_gpu

    yield from map(_device, gpu_names() if name == "auto" and has_gpu() else [name])
    if name == "cpu" or not has_any_gpu():
        yield _kernels()


def _kernels() -> Finding:
    from podium.models.operators import kernels

    problem = kernels.problem()
    if problem:
        return Finding("kernels", "note", f"{problem}; some layers are slower on this CPU (Debian: apt install gcc)")
    return Finding("kernels", "ok", "the faster layers for this CPU are compiled")


def _device(name: str) -> Finding:
    """Runs a small training step: is_available() is also true for a GPU that this build of torch has no kernels for."""
    import torch
    from torch import nn

    from podium.models.device import device_name, gpu_memory_gb, is_cpu, pick_device, pick_precision, precision_name
    from podium.training.timing.measure_step import PlainStep

    device = pick_device(name)
    precision = pick_precision("auto", device)
    try:
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(device)
        images, labels = torch.ones(2, 3, 16, 16, device=device), torch.zeros(2, dtype=torch.int64, device=device)
        loss = PlainStep(model, torch.optim.AdamW(model.parameters()), images, labels, precision)()
        is_finite = bool(torch.isfinite(loss).item())
    except RuntimeError as error:
        reason = first_line(error)
        return Finding("device", "BAD", f"{name} exists but cannot run a training step ({reason}); use --device cpu")
    memory = gpu_memory_gb(device)
    size = "" if memory is None else f", {memory:.0f} GB"
    text = f"{device_name(device)}{size}, trains in {precision_name(precision)}"
    if not is_finite:
        return Finding("device", "BAD", f"{text}, but the result is not finite; use --device cpu")
    if is_cpu(device):
        advice = "no GPU: use --model auto; the two default models take a day or more"
        return Finding("device", "note", f"{text}; {advice}")
    return Finding("device", "ok", text)


# --- weights, Kaggle and the data --------------------------------------------------------------------


def _auto_on_a_cpu(scratch: str) -> Finding:
    try:
        check_weights_available(AUTO_PRETRAINED, "pretrained")
    except PodiumError:
        return Finding("auto", "note", f"trains {scratch} from scratch: no pretrained weights are here")
    return Finding(
        "auto", "ok", f"tries heads, {AUTO_PRETRAINED} fine-tuned and {scratch} from scratch; the best is taken"
    )


def _weights(model: str, device: str) -> Iterator[Finding]:
    if model == "auto":
        from podium.models.device import device_kind, pick_device

        options = expand_auto({"model": model}, device_kind(pick_device(device)))
        model = options["model"]
        if options.get("weights") == "none":
            yield _auto_on_a_cpu(model)
            return
    model = timm_name(model)
    check_model_name(model)
    if parts := backbones_in(model) if JOIN in model else inner_backbones(model):
        for part in parts:
            yield from _weights(part, device)
        return
    check_weights_available(model, "pretrained")
    licence = licence_of(model)
    if licence is None:
        raise PodiumError(f"timm has no pretrained weights for {model}; train from scratch with --weights none")
    package = package_to_use(model)
    text = f"its weights are {f'here: {package.source}' if package else 'available'}; licence {licence}"
    if licence.lower() in PERMISSIVE:
        yield Finding(model, "ok", text)
    else:
        yield Finding(model, "note", f"{text}: check that the competition allows it")


def _kaggle(slug: str, root: Path) -> Iterator[Finding]:
    from podium.basics.project_root import DIGITS_SLUG
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
        yield Finding(
            "kaggle", "note", f"{error}; the data is downloaded, so only --upload and kaggle-train need Kaggle"
        )
        return
    yield from _terms(slug, page)


def _terms(slug: str, page: Any) -> Iterator[Finding]:
    """Reports what Kaggle says about the competition and about this user."""
    if not page.user_has_entered:
        rules = f"https://www.kaggle.com/competitions/{slug}/rules"
        yield Finding("kaggle", "BAD", f"you have not accepted the rules of {slug} yet; do so once at {rules}")
        return
    is_over = bool(page.deadline) and page.deadline.replace(tzinfo=UTC) < datetime.now(UTC)
    deadline = f", {'ended on' if is_over else 'until'} {page.deadline:%Y-%m-%d}" if page.deadline else ""
    daily = f", {page.max_daily_submissions} submissions a day" if page.max_daily_submissions else ""
    text = f"you have entered {slug}: {page.evaluation_metric or 'no metric named'}{daily}{deadline}"
    yield Finding("kaggle", "note" if is_over else "ok", text)
    if page.submissions_disabled:
        yield Finding("kaggle", "BAD", f"{slug} no longer takes submissions")
    if page.is_kernels_submissions_only:
        yield Finding("kaggle", "note", f"{slug} takes notebooks only, no CSV files: see kaggle-bundle")


def _data(slug: str, root: Path) -> Iterator[Finding]:
    from podium.competition.load import load, raw_folder
    from podium.folds.folds_csv import folds_path, read_folds

    if not raw_folder(slug, root).is_dir():
        yield Finding("data", "note", f"not downloaded yet; get it with: {command_for('data', slug)}")
        return
    competition = load(slug, root)
    counts = f"{len(competition.train):,} training and {len(competition.test):,} test images"
    source = competition.submission_format.source
    yield Finding("data", "ok", f"{counts}, {len(competition.classes)} classes; the rows of the submission: {source}")
    for note in competition.notes:
        yield Finding("data", "note", note)
    if not folds_path(slug, root).exists():
        yield Finding("folds", "note", f"none yet; make them with: {command_for('folds', slug)}")
        return
    folds = read_folds(competition)
    yield Finding("folds", "ok", f"{folds.count}, and they fit the data")
