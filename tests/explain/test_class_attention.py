"""Attention of the class token, rolled out attention and attention distances, compared with loops and with hands."""

import math

import numpy as np
import pytest
import torch

from explain.small_models import zoo_model
from podium.basics.errors import PodiumError
from podium_annex.explain.attention import (
    attention_distance,
    attention_layers,
    attention_rollout,
    class_attention,
    mean_distance,
    rollout,
)

# Kinds of attention: fused, plain, with relative positions, rotated, with biases, with a CNN before, in stages.
WITH_CLASS_TOKEN = {
    "test_vit": (32, 2),
    "deit_tiny_distilled_patch16_224": (32, 2),
    "beit_base_patch16_224": (32, 2),  # cut to two blocks: there is no small one
    "eva02_tiny_patch14_224": (28, 2),
    "cait_xxs24_224": (32, 2),
    "deepvit_nano": (32, 4),
    "t2t_vit_nano": (64, 4),
    "cpvt_nano": (32, 8),
    "pvt_nano": (64, 2),
    "teaching_vit_nano": (32, 8),
    "teaching_vit_nano_relative": (32, 8),
}


def test_the_attention_of_a_block_is_that_of_a_loop() -> None:
    model = zoo_model("teaching_vit_nano")
    images = torch.randn(1, 3, 32, 32)
    attention = class_attention(model, images, layer=0)
    with torch.no_grad():
        block = model.get_submodule("blocks.0")
        tokens = block.norm1(model.embed(images))[0]  # type: ignore[operator]
        qkv = block.attn.qkv(tokens)  # type: ignore[union-attr, operator]
    for head in range(3):
        places = slice(32 * head, 32 * head + 32)
        query, keys = qkv[0, :96][places], qkv[:, 96:192][:, places]
        exponents = [math.exp(float(query @ key) / math.sqrt(32)) for key in keys]
        expected = [exponent / sum(exponents) for exponent in exponents][1:]  # without the class token itself
        np.testing.assert_allclose(attention[0, head].ravel(), expected, rtol=1e-4)


def cut(name: str) -> dict[str, int]:
    return {"depth": 2} if name.startswith("beit") else {}


@pytest.mark.parametrize("name", WITH_CLASS_TOKEN)
def test_every_family_with_a_class_token_shows_its_attention(name: str) -> None:
    size, side = WITH_CLASS_TOKEN[name]
    options = {} if name.startswith(("teaching", "cpvt", "deepvit")) else {"img_size": size}
    model = zoo_model(name, **options, **cut(name))
    attention = class_attention(model, torch.randn(2, 3, size, size))
    assert attention.shape[0] == 2
    assert attention.shape[2:] == (side, side)
    assert attention.dtype == np.float32
    assert (attention >= 0).all()
    sums = attention.sum((2, 3))
    assert ((sums > 0) & (sums <= 1 + 1e-5)).all()


def test_images_need_not_be_square() -> None:
    model = zoo_model("cpvt_nano")
    assert class_attention(model, torch.randn(1, 3, 16, 32)).shape == (1, 3, 4, 8)
    assert attention_rollout(model, torch.randn(1, 3, 16, 32)).shape == (1, 4, 8)


@pytest.mark.parametrize("name", ["teaching_vit_nano", "test_vit", "beit_base_patch16_224"])
def test_the_output_without_the_fused_kernel_is_the_same(name: str) -> None:
    """So the attention that is shown is the attention that the model computes with."""
    model = zoo_model(name, **({} if "nano" in name else {"img_size": 32}), **cut(name)).eval()
    images = torch.randn(1, 3, 32, 32)
    with torch.inference_mode():
        fused = model(images)
    outputs = []
    hook = model.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    attention_layers(model, images)
    hook.remove()
    torch.testing.assert_close(outputs[0], fused, rtol=1e-4, atol=1e-5)


def test_rollout_of_two_small_matrices_is_that_by_hand() -> None:
    """Half of each layer is the identity: rows that sum to 1 become (A + I) / 2."""
    first = np.array([[[0.0, 1, 0], [0, 1, 0], [0.5, 0, 0.5]], [[1.0, 0, 0], [0, 1, 0], [0.5, 0, 0.5]]])
    second = np.array([[[0.0, 0, 1], [0, 0, 1], [0, 0, 1]]])
    mixed_first = np.array([[0.75, 0.25, 0], [0, 1, 0], [0.25, 0, 0.75]])
    mixed_second = np.array([[0.5, 0, 0.5], [0, 0.5, 0.5], [0, 0, 1]])
    np.testing.assert_allclose(rollout([first]), mixed_first)
    expected = [[0.5, 0.125, 0.375], [0.125, 0.5, 0.375], [0.25, 0, 0.75]]
    np.testing.assert_allclose(rollout([first, second]), expected)
    np.testing.assert_allclose(mixed_second @ mixed_first, expected)


def test_a_model_is_rolled_out_over_all_its_layers() -> None:
    model, image = zoo_model("teaching_vit_nano"), torch.randn(1, 3, 32, 32)
    layers = [weights[0] for weights in attention_layers(model, image)]
    assert len(layers) == 6
    expected = rollout(layers)[0, 1:].reshape(8, 8)
    np.testing.assert_allclose(attention_rollout(model, image)[0], expected, rtol=1e-5)
    assert 0 < expected.sum() < 1


def test_uniform_attention_on_four_patches_has_the_distance_by_hand() -> None:
    uniform, itself = np.full((1, 4, 4), 0.25), np.eye(4)[None]
    expected = 10 * (0 + 1 + 1 + math.sqrt(2)) / 4
    np.testing.assert_allclose(mean_distance(uniform, (2, 2), (10, 10)), [expected])
    np.testing.assert_allclose(mean_distance(itself, (2, 2), (10, 10)), [0])
    np.testing.assert_allclose(mean_distance(uniform, (1, 4), (10, 3)), [3 * (0 + 1 + 2 + 3 + 1 + 0 + 1 + 2) * 2 / 16])
    np.testing.assert_allclose(
        mean_distance(uniform / 2, (2, 2), (10, 10)), [expected]
    )  # the rest is the class token's


def test_the_distance_of_a_model_is_that_of_a_loop() -> None:
    model, images = zoo_model("teaching_vit_nano"), torch.randn(2, 3, 32, 32)
    distances = attention_distance(model, images)
    assert distances.shape == (6, 3)
    maps = [attention_layers(model, image)[4][0, 1, 1:, 1:] for image in images.split(1)]
    total = 0.0
    for weights in maps:
        for query in range(64):
            row = weights[query] / weights[query].sum()
            for key in range(64):
                total += row[key] * 4 * math.dist(divmod(query, 8), divmod(key, 8)) / (64 * 2)
    assert distances[4, 1] == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("name", ["test_convnext", "swin_tiny_patch4_window7_224", "teaching_vit_nano_mean"])
def test_models_without_a_class_token_are_refused_with_another_way(name: str) -> None:
    model = zoo_model(name, **({"img_size": 56} if "swin" in name else {}))
    for function in (class_attention, attention_rollout):
        with pytest.raises(PodiumError, match=r"class token.*grad_cam"):
            function(model, torch.randn(1, 3, 56, 56))


def test_distances_need_layers_that_see_all_tokens() -> None:
    assert attention_distance(zoo_model("teaching_vit_nano_mean"), torch.randn(1, 3, 32, 32)).shape == (6, 3)
    for name in ("cait_xxs24_224", "swin_tiny_patch4_window7_224"):
        with pytest.raises(PodiumError, match=f"{name} .*all tokens.*grad_cam"):
            attention_distance(
                zoo_model(name, img_size=56 if "swin" in name else 32),
                torch.randn(1, 3, 56, 56)[..., : 56 if "swin" in name else 32, : 56 if "swin" in name else 32],
            )


def test_wrong_images_and_layers_are_refused() -> None:
    model = zoo_model("test_vit", img_size=32)
    with pytest.raises(PodiumError, match="normalised images"):
        class_attention(model, torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
    with pytest.raises(PodiumError, match="no attention layer 99; it has"):
        class_attention(model, torch.zeros(1, 3, 32, 32), layer=99)
