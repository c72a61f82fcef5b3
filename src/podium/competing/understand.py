"""What `podium compete` finds before it trains: the data, the audit, the folds, and the backbones that can be had."""

import json
from collections.abc import Callable, Iterator

import torch

from podium.basics.errors import PodiumError
from podium.basics.terminal import command_to_drop_bad, plural
from podium.competing.portfolio import BACKBONES, FREE_LICENCES, BackboneRow
from podium.competition.load import Competition
from podium.folds.folds_csv import folds_path, write_folds
from podium.folds.strategies import Split
from podium.images.audit import audit_path, bad_training_images, load_audit
from podium.models.catalogue import licence_of
from podium.models.device import gpu_memory_gb
from podium.models.hub import check_weights_available


def understand(competition: Competition, tell: Callable[[str], None]) -> None:
    """Audits and splits what is not yet, as `audit` and `folds` do; says what they found in a line each."""
    rows = load_audit(competition)
    images = f"{len(competition.train):,} training images, {len(competition.test):,} test images"
    origin = competition.card.origin_of_metric().partition(":")[0]
    tell(f"podium: data: {images}, {competition.task.words}; {competition.metric} ({origin})")
    bad, copies = int((rows["reason"] != "").sum()), int((rows["group"] != "").sum())
    tell(f"podium: audit: {plural(bad, 'unreadable image')}, {plural(copies, 'image')} with a duplicate")
    if unreadable := len(bad_training_images(rows)):
        raise PodiumError(
            f"{plural(unreadable, 'training image')} cannot be read; leave them out with"
            f" {command_to_drop_bad(competition.slug)}, or replace them:"
            f" {audit_path(competition.slug, competition.root)} lists them"
        )
    path = folds_path(competition.slug, competition.root)
    if not path.exists():
        write_folds(competition, Split())
    try:
        certificate = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        certificate = {}
    holds = "certified: no leak" if certificate.get("holds") else "NOT certified; podium folds --verify says why"
    tell(f"podium: folds: {certificate.get('folds', 'some')}, {holds}")


def backbones_to_have(device: torch.device) -> Iterator[BackboneRow]:
    """Yields the backbones whose weights can be had here, under a free licence, and that the device can take."""
    memory = gpu_memory_gb(device) or 0.0
    for row in BACKBONES:
        if row.gpu_memory > memory or not (licence_of(row.model) or "").lower().startswith(FREE_LICENCES):
            continue
        try:
            check_weights_available(row.model, "pretrained")
        except PodiumError:
            continue
        yield row
