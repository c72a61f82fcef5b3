"""Grad-CAM and receptive fields of small networks, computed by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from explain.small_models import SmallConvNet, averaging, zoo_model
from podium.basics.errors import PodiumError
from podium_annex.explain.gradients import grad_cam, receptive_field, side_of_square


def test_grad_cam_of_two_layers_is_that_by_hand() -> None:
    """A logit's gradient for channel c is w[c] / places everywhere: the map is relu(sum of w[c] map[c]) / places."""
    model = SmallConvNet(nn.Conv2d(3, 2, 1, bias=False), nn.Conv2d(2, 2, 1, bias=False))
    first, second = model.layers
    first.weight.data = torch.tensor([[1.0, 0, 0], [0, 1, 0]])[..., None, None]  # type: ignore[assignment]
    second.weight.data = torch.tensor([[2.0, 0], [0, 1]])[..., None, None]  # type: ignore[assignment]
    model.head.weight.data = torch.tensor([[1.0, -1.0], [0.0, 3.0]])
    model.head.bias.data.zero_()
    image = torch.tensor([[[[1.0, 0], [0, 2]], [[0.0, 1], [1, 5]], [[9.0, 9], [9, 9]]]])
    first_class = np.maximum([[2 - 0, 0 - 1], [0 - 1, 4 - 5]], 0) / 4
    second_class = np.array([[0, 3], [3, 15]]) / 4
    np.testing.assert_allclose(grad_cam(model, image, 0)[0], first_class, rtol=1e-6)
    np.testing.assert_allclose(grad_cam(model, image, [1])[0], second_class, rtol=1e-6)
    np.testing.assert_allclose(grad_cam(model, image)[0], second_class, rtol=1e-6)  # the predicted class


def test_maps_are_as_large_as_the_images() -> None:
    maps = grad_cam(zoo_model("test_resnet"), torch.randn(3, 3, 64, 96), classes=[0, 1, 2])
    assert maps.shape == (3, 64, 96)
    assert (maps >= 0).all()


@pytest.mark.parametrize("name", ["test_convnext", "swin_tiny_patch4_window7_224", "teaching_vit_nano_mean"])
def test_every_layout_of_the_last_map_gives_the_same_as_timms_maps(name: str) -> None:
    """Maps with the channels last and tokens are compared with timm's own map [n, channels, rows, columns]."""
    size = {"swin_tiny_patch4_window7_224": 56, "test_convnext": 64}.get(name, 32)
    model = zoo_model(name, **({"img_size": size} if "swin" in name else {})).eval()
    images = torch.randn(1, 3, size, size)
    features = model.forward_features(images).detach().requires_grad_()  # type: ignore[operator]
    model.forward_head(features)[0, 2].backward()  # type: ignore[operator]
    weights, channels = features.grad, features.detach()
    assert weights is not None
    if name != "test_convnext":
        channels = channels.flatten(1, -2)
        weights = weights.flatten(1, -2)
        side = round(channels.shape[1] ** 0.5)
        maps = (channels * weights.mean(1, keepdim=True)).sum(-1).relu().view(1, 1, side, side)
    else:
        maps = (channels * weights.mean((2, 3), keepdim=True)).sum(1, keepdim=True).relu()
    expected = F.interpolate(maps, (size, size), mode="bilinear")[0, 0]
    np.testing.assert_allclose(grad_cam(model, images, 2)[0], expected, rtol=1e-4, atol=1e-7)


def test_a_classifier_of_the_class_token_has_no_grad_cam() -> None:
    with pytest.raises(PodiumError, match=r"class token alone.*class_attention"):
        grad_cam(zoo_model("teaching_vit_nano"), torch.randn(1, 3, 32, 32))


def test_a_module_without_timms_parts_is_refused() -> None:
    with pytest.raises(PodiumError, match=r"Conv2d.*forward_features.*add them"):
        grad_cam(nn.Conv2d(3, 3, 1), torch.randn(1, 3, 8, 8))


def test_an_averaging_kernel_sees_nine_pixels_equally() -> None:
    field = receptive_field(SmallConvNet(averaging()), torch.randn(2, 3, 9, 9))
    expected = np.zeros((9, 9))
    expected[3:6, 3:6] = 1 / 9
    np.testing.assert_allclose(field.shares, expected, rtol=1e-6)
    assert field.centre == (4.5, 4.5)
    assert field.side == 3


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_a_stack_of_convolutions_sees_what_is_known_of_it(depth: int) -> None:
    """Two averages of three pixels weigh 1, 2, 3, 2, 1; `depth` of them see 2 * depth + 1 pixels."""
    model = SmallConvNet(averaging(), *(averaging(1) for _ in range(depth - 1)))
    shares = receptive_field(model, torch.randn(1, 3, 21, 21)).shares
    line = np.ones(1)
    for _ in range(depth):
        line = np.convolve(line, np.ones(3) / 3)
    expected = np.zeros((21, 21))
    reach = slice(10 - depth, 10 + depth + 1)
    expected[reach, reach] = np.outer(line, line)
    np.testing.assert_allclose(shares, expected, atol=1e-6)
    assert (shares > 0).sum() == (2 * depth + 1) ** 2


def test_strides_move_the_centre_to_the_middle_of_its_patch() -> None:
    patches = nn.Conv2d(3, 4, 4, stride=4)
    field = receptive_field(SmallConvNet(patches), torch.randn(1, 3, 16, 16))
    assert field.centre == (10, 10)
    assert (field.shares[8:12, 8:12] > 0).all()
    assert field.shares[8:12, 8:12].sum() == pytest.approx(1)


def test_the_square_holds_half() -> None:
    shares = np.zeros((7, 7))
    shares[3, 3], shares[2, 2], shares[0, 3] = 0.3, 0.3, 0.4
    assert side_of_square(shares, (3.5, 3.5), 0.2) == 1
    assert side_of_square(shares, (3.5, 3.5), 0.5) == 3
    assert side_of_square(shares, (3.5, 3.5), 0.7) == 7


@pytest.mark.parametrize("name", ["teaching_vit_nano", "cpvt_nano_gap"])
def test_a_norm_at_the_end_does_not_hide_the_field(name: str) -> None:
    """The sum of normalised channels does not depend on the image; the place must depend on its own patch most."""
    field = receptive_field(zoo_model(name), torch.randn(2, 3, 32, 32))
    assert field.shares.sum() == pytest.approx(1, abs=1e-4)
    patches = field.shares.reshape(8, 4, 8, 4).sum((1, 3))
    assert np.unravel_index(patches.argmax(), (8, 8)) == (4, 4)
    assert patches[4, 4] > 5 * np.median(patches)
    assert field.centre == (18, 18)


def test_a_map_of_one_place_cannot_say_where() -> None:
    with pytest.raises(PodiumError, match=r"single place for images of 32x32 pixels.*larger images"):
        grad_cam(zoo_model("test_resnet"), torch.randn(1, 3, 32, 32))
