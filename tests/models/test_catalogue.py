"""The catalogue of models: its table agrees with timm, costs are as published, and patterns find models."""

import importlib.metadata
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extension_file import write_extension
from podium.models import catalogue
from podium.models.build import PERMISSIVE
from podium.models.catalogue import describe, licence_of, read_catalogue, table_fits
from podium.models.costs import count_costs
from podium.models.hub import registered_names
from podium.models.registry import zoo_names
from second_round import first_of
from tiny import Podium, done, one_line

NANO_MODELS = sorted(name for name in zoo_names() if "nano" in name)
NO_CACHE = "/nowhere"
OWN_MODEL = """
from timm.models import register_model
from torch import nn

class Own(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 32, 32, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))

@register_model
def our_own_net(pretrained=False, **options):
    return Own()

@register_model
def our_broken_net(pretrained=False, **options):
    raise ValueError("not yet")
"""


@pytest.fixture
def records(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`podium models ... --json`, without a hub cache: records("vit small") -> {name: record}."""
    monkeypatch.setenv("HF_HUB_CACHE", NO_CACHE)

    def run(*words: str) -> dict[str, Any]:
        status, out, err = podium("models", *words, "--json")
        assert (status, err) == (0, "")
        return {record["model"]: record for record in json.loads(out)}

    return run


# --- the table ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not table_fits(), reason="catalogue.csv describes another version of timm")
def test_the_table_agrees_with_timm_and_the_zoo() -> None:
    in_table = [weights for group in read_catalogue().values() for weights in group]
    remedy = "run: python -m benchmarks.catalogue"
    assert all(weights.parameters and weights.multiply_adds for weights in in_table), remedy
    without_costs = [replace(weights, parameters=None, multiply_adds=None) for weights in in_table]
    assert without_costs == list(describe(registered_names())), remedy


@pytest.mark.parametrize(
    "name",
    first_of(
        ["test_vit", "test_convnext.r160_in1k", "lcnet_050", *NANO_MODELS[:3]],
        ["test_vit", "test_convnext.r160_in1k", "resnet10t", "lcnet_050", *NANO_MODELS],
    ),
)
def test_the_costs_in_the_table_are_those_of_the_models(name: str) -> None:
    group = read_catalogue()[name.partition(".")[0]]
    weights = next(weights for weights in group if name in (weights.name, weights.model))
    assert count_costs(name) == (weights.parameters, weights.multiply_adds)


@pytest.mark.parametrize(
    (
        "name",
        "parameters",
        "multiply_adds",
    ),  # of the papers and of timm's own results, in millions and thousand millions
    [
        ("vit_small_patch16_224", 22.05, 4.6),
        ("vit_base_patch16_224", 86.57, 17.6),
        ("convnext_tiny", 28.59, 4.47),
        ("resnet50", 25.56, 4.1),
        ("swin_tiny_patch4_window7_224", 28.29, 4.5),
        ("efficientnet_b0", 5.29, 0.39),
        ("eva02_base_patch14_448", 87.12, 107.11),
        ("vit_base_patch16_siglip_224", 92.88 + 0.77, 17.73),  # published without a head for 1,000 classes
    ],
)
def test_costs_are_the_published_ones(name: str, parameters: float, multiply_adds: float) -> None:
    weights = read_catalogue()[name][0]
    assert weights.parameters is not None
    assert weights.multiply_adds is not None
    assert weights.parameters / 1e6 == pytest.approx(parameters, abs=0.006)
    assert weights.multiply_adds / 1e9 == pytest.approx(multiply_adds, rel=0.02)


def test_another_version_of_timm_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read_catalogue()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0.0")
    monkeypatch.setattr(catalogue, "_read_table", lambda: {"test_vit": expected["test_vit"]})
    found = read_catalogue()
    assert found.keys() == expected.keys()
    assert found["test_vit"] == expected["test_vit"]
    assert found["resnet10t"][0].licence == expected["resnet10t"][0].licence
    assert found["resnet10t"][0].parameters is None


# --- finding -----------------------------------------------------------------------------------------


@pytest.mark.annex
def test_a_pattern_is_a_part_of_a_name_several_words_or_a_whole_name_with_stars(records: Any) -> None:
    small = records("vit_small")
    assert {"vit_small_patch32_224", "vit_small_patch16_224"} <= small.keys()
    assert all("vit_small" in name for name in small)
    assert list(records("vit", "SMALL", "32")) == list(records("vit small 32"))
    assert set(records("timm/vit small 32")) >= {"vit_small_patch32_224", "vit_small_patch32_384"}
    assert "convnextv2_tiny" in records("*convnext*tiny*")
    assert all(name.startswith("convnext") for name in records("convnext*tiny"))
    costs = [record["multiply_adds"] for record in small.values()]
    assert costs == sorted(costs)


@pytest.mark.annex
def test_a_dot_or_a_single_model_shows_its_weights(records: Any) -> None:
    everything = records("convnext_small")
    assert everything == records("convnext_small.")
    assert everything["convnext_small.in12k_ft_in1k_384"]["image_size"] == 384
    expected = {name for name in everything if name.startswith("convnext_small.in12k")}
    assert len(expected) > 1
    assert set(records("convnext_small.in12k")) == set(records("convnext_small.in12k*")) == expected
    assert set(records("convnext_small in12k")) == expected  # a word of the tag
    assert set(records("resnet50.a1_in1k")) == {"resnet50.a1_in1k"}
    assert records("convnextv2_nano")["convnextv2_nano.fcmae"]["licence"] == "cc-by-nc-4.0"


@pytest.mark.annex
def test_the_default_weights_of_one_model_are_named(podium: Podium) -> None:
    out, err = done(podium("models", "convnext_small"))
    assert "convnext_small alone means convnext_small.in12k_ft_in1k\n" in err
    assert "next: podium" in err.splitlines()[-1]
    (line,) = [line for line in err.splitlines() if "your competition allows" in line]
    assert "dinov3-license" in line
    assert "apache" not in line
    assert out.splitlines()[0].split() == [
        "model",
        "licence",
        "CPU",
        "epoch",
        "here",
        "pixels",
        "parameters",
        "multiply-adds",
    ]


@pytest.mark.annex
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("convnxt_tiny",), "did you mean convnext_tiny"),
        (("mobilnet",), "did you mean mobilenet"),
        (("vit", "smll", "patch32"), "vit_small_patch32"),
        (("*.*", "zzz"), "podium --root"),
        (("convnext_small.in99k",), "there are in12k_ft_in1k, "),
        (("deepvit_nano.in1k",), "it has none; deepvit_nano alone is its name"),
    ],
)
def test_a_pattern_that_matches_nothing_is_answered_with_the_nearest_names(
    podium: Podium, words: tuple[str, ...], hint: str
) -> None:
    assert hint in one_line(podium("models", *words))


# --- what the list says ------------------------------------------------------------------------------


@pytest.mark.annex
def test_without_a_pattern_there_is_a_first_choice_for_every_machine(podium: Podium, records: Any) -> None:
    from podium_annex.model_list import FIRST_CHOICES

    out, err = done(podium("models"))
    names = [line.split()[0] for line in out.splitlines()[1:]]
    assert sorted(names) == sorted(FIRST_CHOICES)
    assert all(reason in out for reason in FIRST_CHOICES.values())
    assert f"{len(registered_names()):,} models" in err
    everything = records()
    assert everything.keys() == registered_names() == records("--all").keys()
    chosen = [everything[name] for name in FIRST_CHOICES]
    assert {record["cpu_epoch"] for record in chosen} == {"minutes", "up to an hour", "use a GPU"}
    assert all(record["licence"] in PERMISSIVE for record in chosen)


@pytest.mark.annex
def test_a_record_has_all_that_the_list_shows(records: Any) -> None:
    record = records("vit_small_patch32")["vit_small_patch32_224"]
    assert record.pop("further_weights") >= 1
    assert record == {
        "model": "vit_small_patch32_224",
        "weights": "augreg_in21k_ft_in1k",
        "licence": licence_of("vit_small_patch32_224"),
        "cpu_epoch": "minutes",
        "cached": False,
        "package": None,
        "image_size": 224,
        "parameters": 22_878_952,
        "multiply_adds": 1_142_909_952,
        "from": "timm",
    }


@pytest.mark.annex
def test_a_model_of_the_zoo_has_no_weights_and_is_trained_without(podium: Podium, records: Any) -> None:
    record = records("deepvit_nano")["deepvit_nano"]
    assert (record["weights"], record["licence"], record["from"]) == (None, None, "podium")
    _, out, err = podium("models", "deepvit_nano")
    assert "none (Podium's own)" in out
    assert err.splitlines()[-1].endswith("train --model deepvit_nano --weights none")


@pytest.mark.annex
def test_weights_in_the_hub_cache_are_marked(
    records: Any, podium: Podium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    in_cache = {
        "timm/convnext_small.in12k": "model.safetensors",
        "timm/convnext_small.fb_in22k": "config.json",  # without its weights
        "timm/vit_base_patch32_clip_224.openai": "open_clip_model.safetensors",  # serves another model, too
    }
    for repository, file in in_cache.items():
        snapshot = tmp_path / "hub" / f"models--{repository.replace('/', '--')}" / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        (snapshot / file).touch()
    unfinished = tmp_path / "hub" / "models--timm--convnext_small.fb_in1k" / "snapshots" / "abc"
    unfinished.mkdir(parents=True)
    (unfinished / "model.safetensors").symlink_to("missing")
    _, out, _ = podium("models", "convnext_small.", "--json")
    assert [record["model"] for record in json.loads(out) if record["cached"]] == ["convnext_small.in12k"]
    cached = {record["model"] for record in json.loads(podium("models", ".openai", "--json")[1]) if record["cached"]}
    assert cached == {"vit_base_patch32_clip_224.openai", "vit_base_patch32_clip_quickgelu_224.openai"}


@pytest.mark.annex
@pytest.mark.parametrize(
    ("multiply_adds", "words"),
    [
        (None, None),
        (90_000_000, "a minute"),
        (400_000_000, "minutes"),
        (8_700_000_000, "up to an hour"),
        (17_600_000_000, "use a GPU"),
    ],
)
def test_an_epoch_on_a_cpu_is_told_in_words(multiply_adds: int | None, words: str | None) -> None:
    from podium_annex.model_list import epoch_on_cpu

    assert epoch_on_cpu(multiply_adds) == words


# --- models of the project ---------------------------------------------------------------------------


@pytest.mark.annex
@pytest.mark.usefixtures("timm_registry")
def test_models_of_the_project_are_listed_and_counted(tmp_path: Path, podium: Podium, records: Any) -> None:
    write_extension(tmp_path, OWN_MODEL)
    found = records("our")
    own, broken = found["our_own_net"], found["our_broken_net"]
    assert own["from"] == "project"
    # 49 patches of 32 x 32 x 3 values give 8 numbers each; then 8 numbers give 10.
    assert (own["parameters"], own["multiply_adds"]) == (3072 * 8 + 90, 49 * 3072 * 8 + 80)
    assert (broken["parameters"], broken["cpu_epoch"]) == (None, None)
    _, out, _ = podium("models", "our")
    (line,) = [line for line in out.splitlines() if line.startswith("our_broken_net")]
    assert line.split() == ["our_broken_net", "none", "(yours)", "-", "?", "-", "224", "?", "?"]


@pytest.mark.annex
@pytest.mark.usefixtures("timm_registry")
def test_nobody_waits_long_for_costs(tmp_path: Path, records: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write_extension(tmp_path, OWN_MODEL)
    monkeypatch.setattr(catalogue, "SECONDS_FOR_COUNTING", -1.0)
    assert records("our_own_net")["our_own_net"]["parameters"] is None
