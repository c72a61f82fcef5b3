"""Models that a repository of the hub or a folder describes: hf-hub:OWNER/NAME, local-dir:FOLDER."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from described import ARGUMENTS, CARD, write_model
from podium.basics.errors import PodiumError
from podium.models import described_models
from podium.models.build import backbone_of, build_model, rebuild_model
from podium.models.described_models import UNSTATED, Description, read_description
from podium.models.hub import check_model_name, check_weights_available, name_for_runs
from podium.models.look_inside import look_inside
from podium.models.model_file import load_model
from podium.models.timm_file import export_model
from stand_ins.hub import GATED, UNREACHABLE, commit_of, serve
from tiny import Podium, assert_same_fold, assert_says, done, one_line, recipe_of, run_of, stop_in_step

REPOSITORY = "wild/Moss-T-160"
NAME = f"hf-hub:{REPOSITORY}"
TRAIN = ("train", "-c", "tiny", "--image-size", "32", "--batch-size", "8", "--workers", "0", "--device", "cpu")


@pytest.fixture(autouse=True)
def _forget() -> None:
    read_description.cache_clear()


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return write_model(tmp_path / "hub" / REPOSITORY).parents[1]


# --- from the hub ------------------------------------------------------------------------------------


def test_a_run_starts_from_a_repository_and_needs_the_hub_no_more(
    tiny: Path, podium: Podium, hub: Path, use_hub: Callable[[str], None]
) -> None:
    train = (*TRAIN, "--model", NAME, "--epochs", "1", "--lr", "1e-9", "--keep", "0", "--views", "none")
    with serve(hub) as (address, requests):
        use_hub(address)
        _, err = done(podium(*train, "--folds", "0"))
    assert f"GET /{REPOSITORY}/resolve/main/model.safetensors" in requests
    assert_says(err, f"{NAME} is a test_vit; licence cc-by-nc-4.0", "are licensed cc-by-nc-4.0: check")
    run = run_of(tiny, "Moss-T-160")
    model, spec = load_model(run.weights_path(0))
    assert (spec.architecture, spec.mean, spec.std, spec.interpolation) == (
        *("test_vit", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "bilinear"),
    )
    state = model.state_dict()
    assert state["patch_embed.proj.bias"].sub(0.125).abs().max() < 1e-4
    assert (state["reg_token"].shape[1], state["head.weight"].shape) == (2, (4, 64))
    assert run.recipe["model"] == NAME
    assert run.recipe["weights_licence"] == "cc-by-nc-4.0"
    assert run.recipe["weights_source"].startswith(f"{NAME} sha256:")
    assert run.recipe["multiply_adds"] > 0

    use_hub(UNREACHABLE)
    done(podium(*train))  # fold 1, from the cache
    shutil.rmtree(tiny / "hub-cache")
    read_description.cache_clear()
    out, _ = done(podium("submit", "-c", "tiny", "--anyway", "--name", "moss"))
    csv, text = Path(out.strip()), Path(out.strip()).read_text()
    assert "licences" in podium("lineage", csv)[1]
    csv.unlink()
    done(podium("submit", "-c", "tiny", "--from", csv.with_suffix(".json"), "--anyway"))
    assert csv.read_text() == text
    one_line(podium(*train, "--name", "other"), UNREACHABLE, "hub-cache", "bring the cache", "local-dir:FOLDER")


def test_a_file_of_its_own_is_loaded_by_timm_with_its_arguments(tiny: Path, podium: Podium, hub: Path) -> None:
    from safetensors import safe_open

    name = f"local-dir:{hub / REPOSITORY}"
    done(podium(*TRAIN, "--model", name, "--epochs", "1", "--folds", "0"))
    run = run_of(tiny, "Moss-T-160")
    export_model(run.weights_path(0), tiny / "moss.safetensors")
    with safe_open(tiny / "moss.safetensors", framework="pt") as file:
        how = json.loads(file.metadata()["timm"])["create_model"]
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    model = timm.create_model(**how)
    model.load_state_dict(tensors)
    images = torch.rand(2, 3, 32, 32)
    own = load_model(run.weights_path(0))[0]
    assert torch.equal(model.eval()(images), own.eval()(images))


@pytest.mark.parametrize("words", [(), ("--linear",)])
def test_what_it_is_shows_in_a_dry_run_without_its_weights(
    tiny: Path, podium: Podium, hub: Path, use_hub: Callable[[str], None], words: tuple[str, ...]
) -> None:
    with serve(hub) as (address, requests):
        use_hub(address)
        out, err = done(podium("train", "-c", "tiny", "--model", NAME, "--dry-run", *words))
    assert_says(err, f"{NAME} is a test_vit")
    assert " 48 " in out  # the size of its images
    assert not any("GET" in request and "safetensors" in request for request in requests)


def test_heads_of_frozen_features_and_of_two_models_side_by_side(tiny: Path, podium: Podium, hub: Path) -> None:
    name = f"local-dir:{hub / REPOSITORY}"
    done(podium(*TRAIN, "--model", name, "--linear"))
    assert run_of(tiny, "Moss-T-160-linear").finished() == [0, 1]
    done(podium(*TRAIN, "--model", f"{name}+{name}", "--linear", "--name", "both", "--folds", "0"))
    spec = load_model(run_of(tiny, "both").weights_path(0))[1]
    assert len(spec.model_args) == 2
    assert rebuild_model(spec).state_dict()["backbones.1.reg_token"].shape[1] == 2
    done(podium("submit", "-c", "tiny", "--anyway", "--runs", "both"))


def test_a_stopped_run_goes_on_to_the_same_bits_and_another_run_goes_on_from_it(
    tiny: Path, podium: Podium, hub: Path
) -> None:
    train = (*TRAIN, "--model", f"local-dir:{hub / REPOSITORY}", "--epochs", "2", "--folds", "0", "--batch-size", "4")
    stop_in_step(podium, 2, *train, "--name", "stopped")
    for name in ("stopped", "whole"):
        done(podium(*train, "--name", name))
    assert_same_fold(run_of(tiny, "stopped"), run_of(tiny, "whole"))
    done(podium("train", "-c", "tiny", "--from", "whole", "--epochs", "1", "--workers", "0", "--device", "cpu"))
    assert run_of(tiny, "whole-more").recipe["made_from"][0]["weights_licence"] == "cc-by-nc-4.0"


def test_other_weights_under_the_same_name_are_noticed(
    tiny: Path, podium: Podium, hub: Path, use_hub: Callable[[str], None]
) -> None:
    train = (*TRAIN, "--model", NAME, "--epochs", "1")
    with serve(hub) as (address, _):
        use_hub(address)
        commit = commit_of(hub / REPOSITORY)
        done(podium(*train, "--folds", "0"))
        write_model(hub / REPOSITORY, card="# Another page\n")
        read_description.cache_clear()
        done(podium(*train, "--folds", "0"))  # nothing left to train
        write_model(hub / REPOSITORY, bias=0.25)
        read_description.cache_clear()
        one_line(podium(*train), f"was started from the weights {NAME} sha256:", "choose another --name")
        pinned = f"{NAME}@{'0' * 40}"
        one_line(podium(*train, "--model", pinned, "--name", "x"), "no such revision", "commits/main")
    assert len(commit) == 40


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda place: (place / GATED).touch(), ("accept its terms", f"/{REPOSITORY}", "hf auth login")),
        (shutil.rmtree, ("no such repository, or it is private", "hf auth login")),
        (
            lambda place: (place / "model.safetensors").rename(place / "pytorch_model.bin"),
            ("has no model.safetensors", "can run code", "ask its owner for safetensors"),
        ),
        (lambda place: (place / "config.json").unlink(), ("describes no model of timm", "copy")),
        (
            lambda place: (place / "config.json").write_text('{"architectures": ["ViTModel"]}'),
            ("describes no model of timm", "`architecture`"),
        ),
        (lambda place: (place / "config.json").write_text("{"), ("config.json cannot be read", "get the file again")),
        (
            lambda place: (place / "config.json").write_text('{"architecture": "test_vitt"}'),
            ("describes a 'test_vitt'", "did you mean test_vit", "update timm"),
        ),
        (
            lambda place: write_model(place, model_args={"in_chans": 5}),
            ("its images have 5 channels", "take another model"),
        ),
        (
            lambda place: write_model(place, pretrained_cfg={"mean": [0.5]}),
            ("mean must be three numbers, not [0.5]", "correct that"),
        ),
        (lambda place: write_model(place, pretrained_cfg=[]), ("must be tables", "correct that")),
    ],
)
def test_a_repository_that_gives_no_model_is_refused(
    tiny: Path,
    podium: Podium,
    hub: Path,
    use_hub: Callable[[str], None],
    change: Callable[[Path], object],
    says: tuple[str, ...],
) -> None:
    change(hub / REPOSITORY)
    with serve(hub) as (address, _):
        use_hub(address)
        one_line(podium(*TRAIN, "--model", NAME), REPOSITORY, *says)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("hf-hub:moss", ("hf-hub:OWNER/NAME",)),
        ("hf-hub:wild/moss/more", ("hf-hub:OWNER/NAME@REVISION",)),
        ("local-dir:nowhere", ("there is no folder nowhere", "correct its name")),
        ("wild/moss", ("write hf-hub:wild/moss",)),
        ("tests", ("tests is a folder; write local-dir:tests",)),
    ],
)
def test_a_name_that_is_no_place_is_refused(
    name: str, says: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PodiumError) as refused:
        check_model_name(name)
    assert_says(str(refused.value), *says)


def test_weights_of_other_sizes_are_refused(tmp_path: Path) -> None:
    name = f"local-dir:{write_model(tmp_path, model_args={**ARGUMENTS, 'embed_dim': 32})}"
    with pytest.raises(
        PodiumError, match=r"does not hold the weights of local-dir:.*is \(1, 1, 64\), not \(1, 1, 32\)"
    ):
        build_model(recipe_of(name, "pretrained", 48), ["a", "b"])
    write_model(tmp_path, model_args={**ARGUMENTS, "petals": 5})
    read_description.cache_clear()
    with pytest.raises(PodiumError, match=r"petals.*; take another, or correct its model_args in a copy"):
        build_model(recipe_of(name, "pretrained", 48), ["a", "b"])


# --- what a description says -------------------------------------------------------------------------


def described(folder: Path, card: str | None = CARD, **changes: Any) -> Description:
    read_description.cache_clear()
    return read_description(f"local-dir:{write_model(folder, card, **changes)}")


def test_it_decides_the_model_but_not_what_is_loaded(tmp_path: Path) -> None:
    harmful = {"checkpoint_path": "a.pth", "pretrained_cfg_overlay": {"file": "b.pth"}, "cache_dir": "/"}
    description = described(tmp_path, model_args={**ARGUMENTS, **harmful, "drop_rate": 0.5})
    assert description.arguments == {"global_pool": "avg", "reg_tokens": 2, "init_values": 0.5}
    assert not {"url", "file", "custom_load"} & description.facts.keys()
    backbone = backbone_of(description.name)
    assert (backbone.family, backbone.kind, backbone.image_size) == ("vision_transformer", "vit", 48)
    assert described(tmp_path, model_args={"img_size": [64, 64]}).facts["input_size"] == (3, 64, 64)
    assert described(tmp_path, model_args={"dynamic_img_size": True}).facts["fixed_input_size"] is False
    assert "global_pool" not in described(tmp_path, global_pool="", model_args={}).arguments


def test_the_model_has_the_size_of_its_weights(tmp_path: Path) -> None:
    name = f"local-dir:{write_model(tmp_path)}"  # made for 48 pixels, and the architecture for 160
    state = build_model(recipe_of(name, "pretrained", 48), ["a", "b"])[0].state_dict()
    weights = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(state[key], weights[key]) for key in weights.keys() - {"head.weight", "head.bias"})


def test_older_ones_have_all_in_one_table(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "config.json").write_text(
        json.dumps({"architecture": "test_vit", "mean": [0.5, 0.5, 0.5], "num_classes": 7, "file": "a.pth"})
    )
    description = read_description(f"local-dir:{tmp_path}")
    assert description.facts == {"mean": [0.5, 0.5, 0.5], "num_classes": 7, "license": "cc-by-nc-4.0"}


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        (CARD, "cc-by-nc-4.0"),
        ("---\r\nlicense: 'apache-2.0'  # or so\r\n---\r\n", "apache-2.0"),
        ("---\nlicense:\n- mit\n- bsd\n---\n", "mit"),
        ("---\nlicense: other\nlicense_name: moss-licence\n---\n", "moss-licence"),
        ("---\nlicense: other\n---\n", "other"),
        ("# Moss\n\nlicense: mit\n---\n", "gpl"),  # not in the first lines: what the configuration says
        (None, "gpl"),
    ],
)
def test_the_licence_is_that_of_the_first_lines_of_the_page(tmp_path: Path, card: str | None, licence: str) -> None:
    assert described(tmp_path, card, pretrained_cfg={"license": "gpl"}).licence == licence


def test_a_licence_that_nobody_states_is_said(
    tiny: Path, podium: Podium, hub: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_model(hub / REPOSITORY, card="# Moss\n", pretrained_cfg={})
    _, err = done(podium(*TRAIN, "--model", f"local-dir:{folder}", "--epochs", "1", "--folds", "0", "--name", "moss"))
    assert_says(err, f"is a test_vit; {UNSTATED}", "sha256:", f") {UNSTATED}: check that your competition allows")
    assert run_of(tiny, "moss").recipe["weights_licence"] == UNSTATED


def test_names_of_runs_are_names_of_files() -> None:
    assert name_for_runs("hf-hub:wild/Moss-T") == "Moss-T"
    assert name_for_runs("hf-hub:wild/Moss@v1/a") == "a"
    assert name_for_runs("hf_hub:wild/Moss@v1") == "Moss-v1"
    assert name_for_runs("local-dir:/a/my moss (old)/") == "my-moss-old"
    assert name_for_runs("local-dir:/a/???") == "model"
    assert name_for_runs("hf-hub:timm/resnet18.a1_in1k+hf-hub:a/b") == "resnet18.a1_in1k-and-b"


# --- open_clip's form --------------------------------------------------------------------------------


def write_clip(folder: Path, tensors: dict[str, torch.Tensor], **tower: Any) -> str:
    folder.mkdir(exist_ok=True)
    text = {"text_projection": torch.ones(4, 4), "logit_scale": torch.ones(1)}
    save_file(
        {**{key: value.contiguous() for key, value in tensors.items()}, **text}, folder / "open_clip_model.safetensors"
    )
    images = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "interpolation": "bicubic", "resize_mode": "shortest"}
    config = {"model_cfg": {"embed_dim": 8, "vision_cfg": tower, "text_cfg": {}}, "preprocess_cfg": images}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text('{"model_type": "clip"}')  # of another library
    return f"local-dir:{folder}"


def test_the_image_tower_of_a_clip_becomes_a_model_of_timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(described_models.TOWERS, (16, 256, 10, 4), "vit_xsmall_patch16")
    torch.manual_seed(0)
    own = timm.create_model("vit_xsmall_patch16_clip_224", num_classes=0, img_size=32)
    names = {
        "cls_token": "class_embedding", "pos_embed": "positional_embedding", "norm_pre.weight": "ln_pre.weight",
        "norm_pre.bias": "ln_pre.bias", "norm.weight": "ln_post.weight", "norm.bias": "ln_post.bias",
        "patch_embed.proj.weight": "conv1.weight",
    }  # fmt: skip
    in_blocks = {
        "blocks.": "transformer.resblocks.", "norm1": "ln_1", "norm2": "ln_2", "attn.qkv.": "attn.in_proj_",
        "attn.proj": "attn.out_proj", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj",
    }  # fmt: skip
    tensors = {"visual.proj": torch.ones(256, 8)}
    for key, value in own.state_dict().items():
        name = names.get(key, key)
        for ours, theirs in in_blocks.items():
            name = name.replace(ours, theirs)
        tensors[f"visual.{name}"] = value.squeeze() if "embedding" in name else value
    name = write_clip(tmp_path, tensors, image_size=32, layers=10, width=256, patch_size=16)
    check_model_name(name)
    check_weights_available(name, "pretrained")
    model, spec = build_model(recipe_of(name, "pretrained", 32), ["a", "b"])
    state = model.state_dict()
    assert all(torch.equal(state[key], value) for key, value in own.state_dict().items())
    assert (spec.architecture, spec.mean, spec.crop) == ("vit_xsmall_patch16_clip_224", (0.1, 0.2, 0.3), 1.0)
    assert state["head.weight"].shape == (2, 256)  # no projection of CLIP's


def test_a_tower_that_is_a_model_of_timm_is_that_model(tmp_path: Path) -> None:
    own = timm.create_model("test_vit", num_classes=0, global_pool="avg")
    tensors = {f"visual.trunk.{key}": value for key, value in own.state_dict().items()}
    tower = {"timm_model_name": "test_vit", "timm_pool": "avg", "timm_proj": "linear", "image_size": 160}
    name = write_clip(tmp_path, {**tensors, "visual.head.proj.weight": torch.ones(8, 64)}, **tower)
    model, spec = build_model(recipe_of(name, "pretrained", 160), ["a", "b", "c"])
    state = model.state_dict()
    assert all(torch.equal(state[key], value) for key, value in own.state_dict().items())
    assert (state["head.weight"].shape, spec.model_args) == ((3, 64), ({"global_pool": "avg"},))


@pytest.mark.parametrize(
    ("tower", "says"),
    [
        ({"layers": [3, 4, 6, 3], "width": 64}, "no conversion for its image tower of width 64"),
        ({"layers": 12, "width": 768, "patch_size": 16, "pool_type": "avg"}, "with pool_type"),
        ({"layers": 12, "width": 768, "patch_size": 16, "head_width": 32}, "of width 768"),
        ({"timm_model_name": "resnet50", "timm_pool": "abs_attn"}, "no pooling 'abs_attn'"),
    ],
)
def test_a_tower_that_timm_lacks_is_refused(tmp_path: Path, tower: dict[str, Any], says: str) -> None:
    name = write_clip(tmp_path, {}, **tower)
    with pytest.raises(PodiumError, match=rf"open_clip_config.json.*{says}.*take another"):
        read_description(name)


def sizes_of(model: Any) -> tuple[int, ...]:
    return model.patch_embed.patch_size[0], model.embed_dim, len(model.blocks), model.blocks[0].attn.num_heads


def test_the_towers_are_models_of_timm_with_these_sizes() -> None:
    for (patch, width, layers, heads), name in described_models.TOWERS.items():
        for end in ("224", "quickgelu_224"):
            if name == "vit_giant_patch14" and end != "224":
                continue  # nobody has trained one
            assert look_inside(f"{name}_clip_{end}", sizes_of, num_classes=0) == (patch, width, layers, heads)
