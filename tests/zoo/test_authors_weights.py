"""Checkpoints with the names and shapes of the authors' public code load, with another head and other image sizes."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from podium.basics.errors import PodiumError
from podium.models.build import build_model
from second_round import first_of
from tiny import recipe_of

Shapes = dict[str, tuple[int, ...]]


def linear(name: str, inputs: int, outputs: int, bias: bool = True) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), **({f"{name}.bias": (outputs,)} if bias else {})}


def conv(name: str, inputs: int, outputs: int, side: int, bias: bool = True) -> Shapes:
    return {f"{name}.weight": (outputs, inputs, side, side), **({f"{name}.bias": (outputs,)} if bias else {})}


def norm(name: str, dim: int) -> Shapes:
    return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}


def batch_norm(name: str, dim: int) -> Shapes:
    statistics: Shapes = {f"{name}.running_mean": (dim,), f"{name}.running_var": (dim,)}
    return {**norm(name, dim), **statistics, f"{name}.num_batches_tracked": ()}


def mlp(name: str, dim: int, hidden: int) -> Shapes:
    return {**linear(f"{name}.fc1", dim, hidden), **linear(f"{name}.fc2", hidden, dim)}


def vit_block(name: str, dim: int, hidden: int, qkv_bias: bool = True) -> Shapes:
    return {
        **norm(f"{name}.norm1", dim),
        **linear(f"{name}.attn.qkv", dim, 3 * dim, bias=qkv_bias),
        **linear(f"{name}.attn.proj", dim, dim),
        **norm(f"{name}.norm2", dim),
        **mlp(f"{name}.mlp", dim, hidden),
    }


def tokens(dim: int, positions: int) -> Shapes:
    return {"cls_token": (1, 1, dim), "pos_embed": (1, positions, dim)}


def head(dim: int) -> Shapes:
    return {**norm("norm", dim), **linear("head", dim, 1000)}


def deepvit_s() -> Shapes:
    """layers.py of zhoudaquan/dvit_repo, deepvit_S."""
    shapes = {
        **tokens(396, 197),
        **conv("patch_embed.conv1", 3, 64, 7, bias=False),
        **batch_norm("patch_embed.bn1", 64),
        **conv("patch_embed.conv2", 64, 64, 3, bias=False),
        **batch_norm("patch_embed.bn2", 64),
        **conv("patch_embed.proj", 64, 396, 8),
        **head(396),
    }
    for number in range(16):
        shapes |= vit_block(f"blocks.{number}", 396, 1188)
        if number >= 11:
            shapes |= conv(f"blocks.{number}.attn.reatten_matrix", 12, 12, 1)
            shapes |= batch_norm(f"blocks.{number}.attn.var_norm", 12)
    return shapes


def t2t_vit(dim: int, depth: int, hidden: int, layer: str) -> Shapes:
    """models/t2t_vit.py, token_performer.py and token_transformer.py of yitu-opensource/T2T-ViT."""
    shapes = {**tokens(dim, 197), **linear("tokens_to_token.project", 576, dim), **head(dim)}
    for number, inputs in ((1, 147), (2, 576)):
        name = f"tokens_to_token.attention{number}"
        shapes |= norm(f"{name}.norm1", inputs) | norm(f"{name}.norm2", 64)
        if layer == "performer":
            shapes |= linear(f"{name}.kqv", inputs, 192) | linear(f"{name}.proj", 64, 64)
            shapes |= linear(f"{name}.mlp.0", 64, 64) | linear(f"{name}.mlp.2", 64, 64) | {f"{name}.w": (32, 64)}
        else:
            shapes |= linear(f"{name}.attn.qkv", inputs, 192, bias=False) | linear(f"{name}.attn.proj", 64, 64)
            shapes |= mlp(f"{name}.mlp", 64, 64)
    for number in range(depth):
        shapes |= vit_block(f"blocks.{number}", dim, hidden, qkv_bias=False)
    return shapes


def cswin_t() -> Shapes:
    """models/cswin.py of microsoft/CSWin-Transformer, CSWin_64_12211_tiny_224."""
    shapes = {**conv("stage1_conv_embed.0", 3, 64, 7), **norm("stage1_conv_embed.2", 64), **head(512)}
    for stage, depth in enumerate((1, 2, 21, 1), 1):
        dim = 32 << stage
        if stage > 1:
            shapes |= conv(f"merge{stage - 1}.conv", dim // 2, dim, 3) | norm(f"merge{stage - 1}.norm", dim)
        for number in range(depth):
            name = f"stage{stage}.{number}"
            shapes |= linear(f"{name}.qkv", dim, 3 * dim) | linear(f"{name}.proj", dim, dim)
            shapes |= norm(f"{name}.norm1", dim) | norm(f"{name}.norm2", dim) | mlp(f"{name}.mlp", dim, 4 * dim)
            branches = 1 if stage == 4 else 2
            for branch in range(branches):
                shapes[f"{name}.attns.{branch}.get_v.weight"] = (dim // branches, 1, 3, 3)
                shapes[f"{name}.attns.{branch}.get_v.bias"] = (dim // branches,)
    return shapes


def pvt_tiny() -> Shapes:
    """classification/pvt.py of whai362/PVT."""
    shapes: Shapes = {"cls_token": (1, 1, 512), **head(512)}
    channels, facts = 3, zip((64, 128, 320, 512), (8, 8, 4, 4), (8, 4, 2, 1), (3136, 784, 196, 50), strict=True)
    for stage, (dim, ratio, reduction, positions) in enumerate(facts, 1):
        shapes |= conv(f"patch_embed{stage}.proj", channels, dim, 2 if stage > 1 else 4)
        shapes |= norm(f"patch_embed{stage}.norm", dim) | {f"pos_embed{stage}": (1, positions, dim)}
        for number in range(2):
            name = f"block{stage}.{number}"
            shapes |= norm(f"{name}.norm1", dim) | norm(f"{name}.norm2", dim) | mlp(f"{name}.mlp", dim, ratio * dim)
            shapes |= linear(f"{name}.attn.q", dim, dim) | linear(f"{name}.attn.kv", dim, 2 * dim)
            shapes |= linear(f"{name}.attn.proj", dim, dim)
            if reduction > 1:
                shapes |= conv(f"{name}.attn.sr", dim, dim, reduction) | norm(f"{name}.attn.norm", dim)
        channels = dim
    return shapes


def cpvt_tiny() -> Shapes:
    """Algorithm 1 of the paper with timm's DeiT, which its authors start from."""
    shapes: Shapes = {"cls_token": (1, 1, 192), **conv("patch_embed.proj", 3, 192, 16), **head(192)}
    shapes |= {"pos_block.proj.weight": (192, 1, 3, 3), "pos_block.proj.bias": (192,)}
    for number in range(12):
        shapes |= vit_block(f"blocks.{number}", 192, 768)
    return shapes


def vit_small_patch32() -> Shapes:
    """timm's own names."""
    shapes = {**tokens(384, 50), **conv("patch_embed.proj", 3, 384, 32), **head(384)}
    for number in range(12):
        shapes |= vit_block(f"blocks.{number}", 384, 1536)
    return shapes


MODELS = {
    "deepvit_small": deepvit_s(),
    "t2t_vit_7": t2t_vit(256, 7, 512, "performer"),
    "t2t_vit_t_14": t2t_vit(384, 14, 1152, "transformer"),
    "cswin_tiny": cswin_t(),
    "pvt_tiny": pvt_tiny(),
    "cpvt_tiny": cpvt_tiny(),
    "teaching_vit_small_patch32": vit_small_patch32(),
}
OTHERS = [
    ("cswin_tiny", "pvt_tiny"),
    pytest.param("t2t_vit_14", "t2t_vit_t_14", marks=pytest.mark.all),
    pytest.param("deepvit_small", "cpvt_tiny", marks=pytest.mark.all),
]
CONTAINERS = {"t2t_vit_7": "state_dict_ema", "cswin_tiny": "state_dict_ema", "pvt_tiny": "model"}  # in the files


def checkpoint_of(name: str, folder: Path) -> tuple[dict[str, Tensor], Path]:
    torch.manual_seed(1)
    tensors = {key: torch.rand(shape) * 0.1 if shape else torch.tensor(7) for key, shape in MODELS[name].items()}
    saved = {CONTAINERS[name]: tensors, "epoch": 300} if name in CONTAINERS else tensors
    torch.save(saved, folder / "authors.pth")
    return tensors, folder / "authors.pth"


@pytest.mark.parametrize("name", first_of(["t2t_vit_7", "cswin_tiny", "pvt_tiny"], MODELS))
def test_the_authors_checkpoint_loads_with_a_new_head(name: str, tmp_path: Path) -> None:
    tensors, path = checkpoint_of(name, tmp_path)
    model, spec = build_model(recipe_of(name, str(path), 224), ["a", "b", "c"])
    assert spec.source.startswith("authors.pth sha256:")
    sums = sorted(float(value.double().sum()) for key, value in tensors.items() if not key.startswith("head."))
    loaded = model.state_dict()
    found = sorted(float(value.double().sum()) for key, value in loaded.items() if not key.startswith("head."))
    assert found == pytest.approx(sums)
    assert loaded["head.weight"].shape[0] == 3
    assert not torch.equal(model(torch.zeros(1, 3, 224, 224)), model(torch.ones(1, 3, 224, 224)))


@pytest.mark.parametrize(
    "name",
    first_of(["t2t_vit_7", "pvt_tiny"], ["deepvit_small", "t2t_vit_7", "pvt_tiny", "teaching_vit_small_patch32"]),
)
def test_learned_positions_are_resized(name: str, tmp_path: Path) -> None:
    tensors, path = checkpoint_of(name, tmp_path)
    model, _ = build_model(recipe_of(name, str(path), 256), ["a", "b"])
    places = [(key, value) for key, value in model.state_dict().items() if key.endswith("pos_embed")]
    originals = [value for key, value in tensors.items() if "pos_embed" in key]
    for (_, value), original in zip(places, originals, strict=True):
        assert value.shape[1] > original.shape[1]
        assert value.mean() == pytest.approx(original.mean().item(), rel=0.05)


@pytest.mark.parametrize(("name", "other"), OTHERS)
def test_the_checkpoint_of_another_model_is_refused_with_the_first_differences(
    name: str, other: str, tmp_path: Path
) -> None:
    _, path = checkpoint_of(other, tmp_path)
    with pytest.raises(
        PodiumError, match=rf"authors.pth does not hold the weights of {name}: .*lacks .*; take another"
    ):
        build_model(recipe_of(name, str(path), 224), ["a", "b"])


def test_a_checkpoint_with_a_class_token_is_refused_by_a_model_without_one(tmp_path: Path) -> None:
    tensors, path = checkpoint_of("cpvt_tiny", tmp_path)
    torch.save({**tensors, "dist_token": torch.zeros(1, 1, 192), "mask_token": torch.zeros(1, 1, 192)}, path)
    with pytest.raises(PodiumError, match="cpvt_tiny: the model lacks dist_token; take another file"):
        build_model(recipe_of("cpvt_tiny", str(path), 224), ["a", "b"])


def test_positions_that_cannot_be_resized_are_refused_with_a_remedy(tmp_path: Path) -> None:
    tensors, path = checkpoint_of("teaching_vit_small_patch32", tmp_path)
    torch.save({**tensors, "pos_embed": torch.zeros(1, 48, 384)}, path)  # no square
    with pytest.raises(PodiumError, match=r"with the weights .*authors\.pth: .*; if they are of another model, take"):
        build_model(recipe_of("teaching_vit_small_patch32", str(path), 256), ["a", "b"])


def test_parts_that_the_model_does_not_have_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors, path = checkpoint_of("cpvt_tiny", tmp_path)
    torch.save({**tensors, "projector.weight": torch.zeros(2)}, path)
    build_model(recipe_of("cpvt_tiny", str(path), 224), ["a", "b"])
    assert "also holds projector, which cpvt_tiny does not have" in capsys.readouterr().err
