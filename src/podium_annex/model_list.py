"""Finds models by parts of their names, and lists what they cost and which pretrained weights they have.

    podium models [PATTERN] [--all] [--json]

Prints a table or JSON; writes nothing.
"""

import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from podium.basics.errors import PodiumError
from podium.basics.terminal import (
    amount,
    command_for,
    did_you_mean,
    first_few,
    podium_command,
    say,
    show,
    table,
    uses_make,
)
from podium.models.build import PERMISSIVE
from podium.models.catalogue import Catalogue, Weights, count_missing_costs, origin_of, read_catalogue
from podium.models.hub import cached_repositories, timm_name
from podium.models.look_inside import inner_backbones
from podium.models.weight_packages import installed_package

# For those who do not know a name yet; the weights of all of them have a permissive licence.
FIRST_CHOICES = {
    "resnet10t": "a CPU, from scratch at 64 px",
    "convnext_atto": "a CPU; the smallest ConvNeXt",
    "vit_small_patch32_224": "a CPU or any GPU; default model",
    "resnet18": "a CPU; the simplest baseline",
    "resnet50": "any GPU; the usual baseline",
    "convnext_tiny": "any GPU",
    "swin_tiny_patch4_window7_224": "any GPU; attention in windows",
    "vit_small_patch16_224": "any GPU; patches of 16 px",
    "tf_efficientnetv2_s": "any GPU; images of 300 px",
    "convnext_small": "any GPU; default model",
    "convnext_base": "a large GPU",
    "vit_base_patch16_224": "a large GPU",
    "vit_large_patch14_clip_224": "a large GPU; learned from captions",
    "eva02_large_patch14_448": "a large GPU; images of 448 px",
}

# Up to so many multiply-adds, training on 10,000 images takes minutes, or up to an hour, on two cores in bfloat16. Such
# cores do 60 to 100 thousand million a second, if all of training counts as one forward pass: vit_small_patch32_224
# (1.1 G) takes 2 to 3 minutes, convnext_small (8.7 G) 15 to 25. Mobile networks do a fifth of that, because their
# depthwise convolutions wait for memory: efficientnet_b0 (0.4 G) takes 6 minutes. The words roughly hold for them, too.
A_MINUTE, MINUTES, AN_HOUR = 1e8, 2e9, 10e9


class Row(NamedTuple):
    name: str  # as --model takes it
    weights: Weights
    further: int  # other weights of the same model, which rows of their own do not show


def list_models(slug: str, words: Sequence[str], everything: bool, as_json: bool) -> None:
    """Prints the models that the words find; without words a first choice, or all."""
    catalogue = read_catalogue()
    words = [timm_name(word.lower()) for word in " ".join(words).split()]
    is_choice = not (words or everything or as_json)
    if words:
        rows = _search(catalogue, words)
    else:
        rows = _models(catalogue, FIRST_CHOICES.__contains__ if is_choice else lambda model: True)
    counted = count_missing_costs(row.weights for row in rows)
    rows = [row._replace(weights=weights) for row, weights in zip(rows, counted, strict=True)]
    rows.sort(key=lambda row: (row.weights.multiply_adds is None, row.weights.multiply_adds))
    cached = cached_repositories()
    if as_json:
        show(json.dumps([_record(row, cached) for row in rows], indent=2))
        return
    show(_table(rows, cached, is_choice))
    _explain(rows, catalogue, is_choice)
    say(f"next: {_next_command(rows, slug)}")


# --- finding -----------------------------------------------------------------------------------------


def _search(catalogue: Catalogue, words: Sequence[str]) -> list[Row]:
    """Returns the models whose names match all words. If it is one, or a word has a dot, returns weights instead."""
    rows = [] if any("." in word for word in words) else _models(catalogue, lambda name: _matches(name, words))
    if len(rows) > 1:
        return rows
    several = [catalogue[rows[0].name]] if rows else list(catalogue.values())
    matching = [weights for group in several for weights in group if rows or _matches(weights.name, words)]
    if not matching:
        raise PodiumError(_nothing_found(catalogue, words))
    return [Row(weights.name, weights, 0) for weights in matching]


def _models(catalogue: Catalogue, wanted: Callable[[str], bool]) -> list[Row]:
    return [Row(name, group[0], len(group) - 1) for name, group in catalogue.items() if wanted(name)]


def _matches(name: str, words: Sequence[str]) -> bool:
    """Returns whether a name contains all words. A word with * must match the whole name, MODEL.TAG its beginning."""
    patterns = (word if set("*?[") & set(word) else f"{word}*" if "." in word[1:] else f"*{word}*" for word in words)
    return all(fnmatchcase(name.lower(), pattern) for pattern in patterns)


def _nothing_found(catalogue: Catalogue, words: Sequence[str]) -> str:
    parts = {part for name in catalogue for part in name.split("_")}  # a family is nearer to its misspelling
    pattern, bare = " ".join(words), "_".join(words).replace("*", "").partition(".")[0]
    if bare in catalogue:
        tags = first_few([weights.tag for weights in catalogue[bare] if weights.tag], 8)
        has = f"there are {tags}" if tags else f"it has none; {bare} alone is its name"
        return f"no weights of {bare} match '{pattern}'; {has}"
    hint = did_you_mean(bare, catalogue.keys() | parts, most=3, otherwise=f"{podium_command()} models --all lists all")
    return f"none of {len(catalogue):,} models matches '{pattern}'; {hint}"


# --- showing -----------------------------------------------------------------------------------------


def _table(rows: Sequence[Row], cached: frozenset[str], is_choice: bool) -> str:
    """Returns a table; a first choice shows reasons, and names with tags need no column for the tag."""
    about: dict[str, Callable[[Row], object]] = {}
    if is_choice:
        about["good for"] = lambda row: FIRST_CHOICES[row.name]
    elif any(row.name != row.weights.name or not row.weights.tag for row in rows):
        about["weights"] = _weights_text
    columns: dict[str, Callable[[Row], object]] = {
        "model": lambda row: row.name,
        **about,
        "licence": lambda row: row.weights.licence or "-",
        "CPU epoch": lambda row: epoch_on_cpu(row.weights.multiply_adds) or "?",
        "here": lambda row: _where(row, cached),
        "pixels": lambda row: row.weights.image_size,
        "parameters": lambda row: _amount(row.weights.parameters),
        "multiply-adds": lambda row: _amount(row.weights.multiply_adds),
    }
    lines = [[cell(row) for cell in columns.values()] for row in rows]
    return table(list(columns), lines, text_columns=len(columns) - 3)


def epoch_on_cpu(multiply_adds: int | None) -> str | None:
    """Returns in words how long 10,000 images take on two cores; None if nobody has counted what the model costs."""
    if multiply_adds is None:
        return None
    words = {A_MINUTE: "a minute", MINUTES: "minutes", AN_HOUR: "up to an hour"}
    return next((word for most, word in words.items() if multiply_adds <= most), "use a GPU")


def _weights_text(row: Row) -> str:
    if row.weights.tag:
        return row.weights.tag + (f" +{row.further}" if row.further else "")
    if inner := _inner_text(row.weights.model):
        return inner.strip()
    return {"timm": "none", "podium": "none (Podium's own)", "project": "none (yours)"}[origin_of(row.weights.model)]


def _inner_text(model: str) -> str:
    """Returns whose weights a model of the project has, inside; nothing for others."""
    inner = inner_backbones(model)
    return f" of {' and '.join(inner)}" if inner else ""


def _amount(count: int | None) -> str:
    return "?" if count is None else amount(count)


def _is_cached(row: Row, cached: frozenset[str]) -> bool:
    return bool(row.weights.licence) and row.weights.repository in cached


def _package_of(row: Row) -> str | None:
    """Returns the installed package that holds these weights."""
    (name, *_) = inner_backbones(row.weights.model) or (row.weights.name,)
    package = installed_package(name) if row.weights.licence else None
    return package.distribution if package else None


def _where(row: Row, cached: frozenset[str]) -> str:
    """Returns where this machine has the weights."""
    return "hub's cache" if _is_cached(row, cached) else "package" if _package_of(row) else "-"


def _record(row: Row, cached: frozenset[str]) -> dict[str, Any]:
    weights = row.weights
    return {
        "model": row.name,
        "weights": weights.tag or None,
        "licence": weights.licence or None,
        "cpu_epoch": epoch_on_cpu(weights.multiply_adds),
        "cached": _is_cached(row, cached),
        "package": _package_of(row),
        "image_size": weights.image_size,
        "parameters": weights.parameters,
        "multiply_adds": weights.multiply_adds,
        "further_weights": row.further,
        "from": origin_of(weights.model),
    }


def _explain(rows: Sequence[Row], catalogue: Catalogue, is_choice: bool) -> None:
    """Says what the columns mean and how to search."""
    models = sorted({row.weights.model for row in rows})
    if is_choice:
        find, every = ('make models PATTERN="vit small"', "make models ARGS=--all")
        if not uses_make():
            find, every = f"{podium_command()} models vit small", f"{podium_command()} models --all"
        say(f"podium: a first choice among {len(catalogue):,} models; to search: {find}; to list all: {every}")
    elif len(models) == 1:
        default = catalogue[models[0]][0]
        say(
            f"podium: {models[0]} alone means {default.name}"
            if default.tag
            else f"podium: it has {'the' if default.licence else 'no'} pretrained weights{_inner_text(models[0])}"
        )
    elif len(models) == len(rows):
        say(f"podium: {len(rows):,} of {len(catalogue):,} models; weights: the default, and how many others there are")
    else:
        say(f"podium: {len(rows):,} weights of {len(models):,} models")
    say("podium: CPU epoch: about how long training on 10,000 images takes on two cores with bfloat16")
    say("podium: here: the weights are on this machine, in the hub's cache or as an installed package")
    restricted = {row.weights.licence for row in rows if row.weights.licence.lower() not in (*PERMISSIVE, "")}
    if restricted:
        say(f"podium: check that your competition allows the licence {first_few(sorted(restricted))}")


def _next_command(rows: Sequence[Row], slug: str) -> str:
    if len(rows) > 1:
        from_scratch = not any(row.weights.licence for row in rows)
        return command_for("train", slug, model="NAME", weights="none" if from_scratch else None)
    return command_for("train", slug, model=rows[0].name, weights=None if rows[0].weights.licence else "none")
