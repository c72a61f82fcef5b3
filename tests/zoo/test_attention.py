"""The attention of each paper, against loops that follow its text; and the ViT to read, against timm's."""

import math

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor

from podium_annex.zoo.cpvt import PositionGenerator
from podium_annex.zoo.cswin import Block, WindowAttention
from podium_annex.zoo.deepvit import ReAttention
from podium_annex.zoo.pvt import ReducedAttention
from podium_annex.zoo.t2t_vit import TokenPerformer, sinusoids, soft_split
from podium_annex.zoo.teaching_vit import RelativePositions, TeachingViT


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One head of one image: softmax(Q Kᵀ / √d) V."""
    return (q @ k.T / math.sqrt(q.shape[-1])).softmax(-1) @ v


def test_re_attention_mixes_the_maps_of_the_heads_then_normalises_them() -> None:
    heads, tokens, head_dim = 3, 5, 4
    layer = ReAttention(heads * head_dim, heads, qkv_bias=True).eval()
    layer.var_norm.running_mean.uniform_()
    layer.var_norm.running_var.uniform_(0.5, 2)
    x = torch.randn(1, tokens, heads * head_dim)
    q, k, v = layer.qkv(x)[0].view(tokens, 3, heads, head_dim).unbind(1)
    maps = [(q[:, head] @ k[:, head].T / 2).softmax(-1) for head in range(heads)]
    mixed = []
    for head in range(heads):
        weights = layer.reatten_matrix.weight[head, :, 0, 0]
        total = sum(weight * found for weight, found in zip(weights, maps, strict=True))
        mean, variance = layer.var_norm.running_mean[head], layer.var_norm.running_var[head]
        mixed.append((total + layer.reatten_matrix.bias[head] - mean) / (variance + 1e-5).sqrt())
    expected = layer.proj(torch.cat([mixed[head] @ v[:, head] for head in range(heads)], dim=-1))
    assert torch.allclose(layer(x)[0], expected, atol=1e-5)


@pytest.mark.parametrize("stripe", [1, 2, None, 0])
def test_stripes_see_only_their_own_tokens(stripe: int | None) -> None:
    height, width, heads, head_dim = 6, 8, 4, 4
    dim = heads * head_dim
    block = Block(dim, heads, stripe, drop_path=0.0).eval()
    qkv = torch.randn(1, height * width, 3 * dim)
    found = block.attend(qkv, (height, width))[0].view(height, width, heads, head_dim)
    maps = qkv.view(height, width, 3, heads, head_dim)
    for head in range(heads):
        branch = 0 if stripe == 0 else head // (heads // 2)
        high = height if stripe == 0 or branch == 0 else stripe or height // 2
        wide = width if stripe == 0 or branch == 1 else stripe or width // 2
        attention = block.attns[branch]
        assert isinstance(attention, WindowAttention)
        kernel = attention.get_v
        first = (head - branch * (heads // 2)) * head_dim if stripe != 0 else head * head_dim
        for top in range(0, height, high):
            for left in range(0, width, wide):
                window = maps[top : top + high, left : left + wide, :, head]
                q, k, v = (window[:, :, part].reshape(-1, head_dim) for part in range(3))
                weight, bias = (part[first : first + head_dim] for part in kernel.parameters())
                positions = F.conv2d(window[:, :, 2].permute(2, 0, 1), weight, bias, padding=1, groups=head_dim)
                expected = attend(q, k, v).view(high, wide, head_dim) + positions.permute(1, 2, 0)
                assert torch.allclose(found[top : top + high, left : left + wide, head], expected, atol=1e-5)


def test_stripes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="a map of 3 x 3 tokens cannot be cut into stripes of 3 x 2"):
        Block(8, 2, 2, drop_path=0.0).attend(torch.randn(1, 9, 24), (3, 3))


def test_the_performer_follows_its_formula() -> None:
    layer = TokenPerformer(10, 6).eval()
    x = torch.randn(2, 7, 10)
    k, q, v = layer.kqv(layer.norm1(x)).split(6, dim=-1)
    expected = torch.zeros_like(v)
    for image in range(2):
        for token in range(7):
            similarities = [feature(layer, q[image, token]) @ feature(layer, other) for other in k[image]]
            weights = torch.stack(similarities) / sum(similarities)
            expected[image, token] = weights @ v[image]
    y = v + layer.proj(expected)
    assert torch.allclose(layer(x), y + layer.mlp(layer.norm2(y)), atol=1e-4)


def feature(layer: TokenPerformer, x: Tensor) -> Tensor:
    return torch.stack([torch.exp(row @ x - x @ x / 2) for row in layer.w]) / math.sqrt(len(layer.w))


def test_positions_of_t2t_are_sines_and_cosines() -> None:
    table = sinusoids(5, 6)[0]
    for position in range(5):
        for number in range(6):
            angle = position / 10000 ** (2 * (number // 2) / 6)
            assert table[position, number] == pytest.approx(
                math.cos(angle) if number % 2 else math.sin(angle), abs=1e-6
            )


def test_a_soft_split_joins_overlapping_windows() -> None:
    tokens = soft_split(torch.arange(2 * 8 * 8.0).view(1, 2, 8, 8), 3, 2)
    assert tokens.shape == (1, 16, 18)
    assert tokens[0, 0, :9].tolist() == [0, 0, 0, 0, 0, 1, 0, 8, 9]  # its upper left corner, with zeros around
    assert tokens[0, 5, :9].tolist() == [9, 10, 11, 17, 18, 19, 25, 26, 27]
    assert soft_split(torch.zeros(1, 3, 32, 32), 7, 4).shape == (1, 64, 147)


def test_keys_and_values_of_pvt_come_from_a_smaller_map() -> None:
    layer = ReducedAttention(8, 2, 2).eval()
    x = torch.randn(1, 16, 8)
    small = torch.stack([layer.sr(x[0].T.view(1, 8, 4, 4))[0, :, row, column] for row in (0, 1) for column in (0, 1)])
    k, v = layer.kv(layer.norm(small)).chunk(2, dim=-1)
    q = layer.q(x[0])
    heads = [attend(q[:, part], k[:, part], v[:, part]) for part in (slice(0, 4), slice(4, 8))]
    assert torch.allclose(layer(x, (4, 4))[0], layer.proj(torch.cat(heads, dim=-1)), atol=1e-5)


def test_the_position_generator_leaves_the_class_token_and_moves_with_the_image() -> None:
    generator = PositionGenerator(4)
    image = torch.zeros(1, 4, 8, 8)
    image[:, :, 3, 3] = 1.0
    shifted = image.roll((1, 2), (2, 3))
    tokens, moved = (torch.cat([torch.ones(1, 1, 4), x.flatten(2).transpose(1, 2)], dim=1) for x in (image, shifted))
    found, other = generator(tokens, 8, 8), generator(moved, 8, 8)
    assert torch.equal(found[:, 0], torch.ones(1, 4))
    inner = found[:, 1:].view(1, 8, 8, 4)[:, 1:6, 1:5]
    assert torch.allclose(inner, other[:, 1:].view(1, 8, 8, 4)[:, 2:7, 3:7], atol=1e-6)
    assert generator(tokens[:, 1:], 8, 8).shape == (1, 64, 4)  # without a class token


def test_the_vit_to_read_gives_the_logits_of_timm() -> None:
    original = timm.create_model("vit_small_patch32_224", num_classes=10).eval()
    for parameter in original.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.02)  # a zero bias could hide a mistake
    copy = TeachingViT(num_classes=10).eval()
    copy.load_state_dict(original.state_dict())
    images = torch.randn(3, 3, 224, 224)
    with torch.no_grad():
        assert (copy(images) - original(images)).abs().max() < 1e-5
        pairs = zip(copy.forward_intermediates(images)[1], original.forward_intermediates(images)[1], strict=True)
        assert all(torch.allclose(found, expected, atol=1e-4) for found, expected in pairs)


def test_relative_positions_know_only_the_distance() -> None:
    positions = RelativePositions((3, 4), 5, has_class_token=True)
    q = torch.randn(1, 1, 1, 5).expand(1, 2, 13, 5)  # the same query at every place
    bias = positions(q)[0, 0]
    place = {(row, column): 1 + row * 4 + column for row in range(3) for column in range(4)}
    assert bias[place[0, 0], place[1, 2]] == bias[place[1, 1], place[2, 3]]
    assert bias[place[0, 0], place[1, 2]] != bias[place[1, 2], place[0, 0]]
    assert len(set(bias[0].tolist()) | set(bias[:, 0].tolist())) == 1  # the class token has no place
    assert len(positions.vectors) == 5 * 7 + 1


def test_two_dimensional_positions_are_a_row_and_a_column() -> None:
    model = TeachingViT(img_size=8, patch_size=4, dim=6, depth=1, num_heads=1, positions="2d")
    zeros = torch.zeros(1, 3, 8, 8)
    without = TeachingViT(img_size=8, patch_size=4, dim=6, depth=1, num_heads=1, positions="none")
    without.load_state_dict(model.state_dict(), strict=False)
    added = (model.embed(zeros) - without.embed(zeros))[0]
    assert torch.equal(added[0], torch.zeros(6))  # of the class token
    assert model.row_embed is not None
    assert torch.allclose(added[3, :3], model.row_embed[1, 0], atol=1e-6)  # the patch of row 1, column 0
    assert torch.allclose(added[3, 3:], added[1, 3:], atol=1e-6)
    assert torch.allclose(added[3, :3], added[4, :3], atol=1e-6)


def test_without_positions_the_order_of_patches_does_not_matter() -> None:
    images = torch.randn(2, 3, 32, 32)
    swapped = torch.cat([images[..., 16:], images[..., :16]], dim=-1)
    for positions, is_same in {"none": True, "1d": False, "2d": False, "relative": False}.items():
        model = TeachingViT(img_size=32, patch_size=16, dim=12, depth=2, num_heads=2, positions=positions).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        assert torch.allclose(model(images), model(swapped), atol=1e-3) == is_same, positions
