"""Training images that a GPU holds as uint8: it crops, mirrors, resizes, colours and erases them there (--store gpu).

The images are those of `TrainView`, up to the rounding of a level or two of 255. Resizing is two products of matrices:
one for the rows and one for the columns of a crop, with the weights that OpenCV gives to each pixel.
"""

from collections.abc import Generator
from contextlib import closing

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from podium.models.build import ModelSpec
from podium.models.device import CPU, Batch
from podium.options.moves.augmenter import NEAR, border_colour
from podium.training.drawn_changes import Changes
from podium.training.loader import ImageDataset

PART = 64  # images that are changed together: a crop needs 24 times the memory of its pixels meanwhile
GREY = (0.299, 0.587, 0.114)


class GpuImages:
    """The pixels of some rows of the training table, on the device."""

    def __init__(self, images: ImageDataset, spec: ModelSpec, device: torch.device) -> None:
        self.spec, self.device, self.rows = spec, device, images.rows
        shapes = [images.read(index).shape[:2] for index in range(len(images.rows))]
        self.shapes = np.array(shapes, np.int64)
        self.starts = np.append(0, np.cumsum(self.shapes.prod(1)))  # in pixels
        self.pixels = torch.empty((int(self.starts[-1]), 3), dtype=torch.uint8, device=device)
        for index, start in enumerate(self.starts[:-1].tolist()):
            pixels = torch.from_numpy(np.array(images.read(index))).view(-1, 3)
            self.pixels[start : start + len(pixels)] = pixels.to(device)
        self.border = torch.tensor(border_colour(spec), dtype=torch.float32, device=CPU).to(device)

    def changed(self, changes: NDArray[np.float64]) -> Tensor:
        """Returns uint8 images [n, height, width, 3]; a row of `changes` holds `Changes`."""
        parts = np.array_split(changes, -(-len(changes) // PART))
        return torch.cat([self._changed_part(Changes(*part.T)) for part in parts])

    def _changed_part(self, host: Changes) -> Tensor:
        """Takes a Changes of columns. What decides the shapes stays on the host: to read it would make a GPU wait."""
        columns = torch.from_numpy(np.stack(host)).to(self.device, non_blocking=True)
        changes = Changes(*columns.unbind())
        final = int(host.final_height[0]), int(host.final_width[0])
        is_small = changes.height * changes.width < final[0] * final[1]
        images, is_there = self._crops(host, changes, is_small)
        factors = torch.stack([changes.brightness, changes.contrast, changes.saturation, torch.ones_like(changes.row)])
        has_colour = any((column != 1).any() for column in (host.brightness, host.contrast, host.saturation))
        order = torch.stack([changes.first, changes.second, changes.third, changes.fourth]).long()
        if has_colour:
            images = coloured(images, torch.where(is_small, factors, 1.0), order, is_there)
        images = resized(images, changes, final, self.spec.interpolation, ~is_small & (changes.is_mirrored > 0))
        if has_colour:
            images = coloured(images, torch.where(is_small, 1.0, factors), order)
        return erased(images, changes).to(torch.uint8)

    def _crops(self, host: Changes, changes: Changes, is_small: Tensor) -> tuple[Tensor, Tensor]:
        """Returns crops [n, height, width, 3] of the largest size among them, and which of these pixels they have.

        Small ones are mirrored already: as in `TrainView`, which changes an image where it has the fewest pixels.
        """
        index = np.searchsorted(self.rows, np.asarray(host.row))
        facts = np.stack([self.starts[index], *self.shapes[index].T])
        start, image_height, image_width = torch.from_numpy(facts).to(self.device, non_blocking=True)[:, :, None]
        down = torch.arange(int(np.max(host.height)), device=self.device)
        across = torch.arange(int(np.max(host.width)), device=self.device)
        top, left, height, width, is_mirrored = (
            column.long()[:, None]
            for column in (changes.top, changes.left, changes.height, changes.width, changes.is_mirrored * is_small)
        )
        y, x = top + down, left + torch.where(is_mirrored > 0, width - 1 - across, across)
        in_image = ((y >= 0) & (y < image_height))[:, :, None] & ((x >= 0) & (x < image_width))[:, None, :]
        y, x = y.clamp(min=0).minimum(image_height - 1), x.clamp(min=0).minimum(image_width - 1)
        places = (start + y * image_width)[:, :, None] + x[:, None, :]
        crops = torch.where(in_image[..., None], self.pixels[places].float(), self.border)
        return crops, (down < height)[:, :, None] & (across < width)[:, None, :]


def gpu_batches(images: GpuImages, batches: Generator[Batch]) -> Generator[Batch]:
    """Yields the images on the device for batches of `ChangesView`."""
    with closing(batches):
        for changes, targets in batches:
            yield images.changed(changes.numpy().view(np.float64)), targets


# --- changes -----------------------------------------------------------------------------------------


def coloured(images: Tensor, factors: Tensor, order: Tensor, is_there: Tensor | None = None) -> Tensor:
    """Moves the images towards or away from black, their mean grey and their greys, in an order of their own.

    `factors` are [kinds, n], and 1 changes nothing; `order` says which kind comes at which of the [places, n].
    `is_there` marks the pixels that belong to an image.
    """
    for kind in order:
        factor = factors.gather(0, kind[None])[0].float()[:, None, None, None]
        red, green, blue = images.split(1, -1)
        grey = (GREY[0] * red + GREY[1] * green + GREY[2] * blue).round()
        if is_there is None:
            mean = grey.mean((1, 2), keepdim=True)
        else:
            present = is_there[..., None]
            mean = (grey * present).sum((1, 2), keepdim=True) / present.sum((1, 2), keepdim=True)
        kind = kind[:, None, None, None]
        base = torch.where(kind == 1, mean, torch.where(kind == 2, grey, 0.0))
        moved = images * factor + base * (1 - factor)
        # albumentations cuts off the fraction, but rounds where it changes the saturation.
        moved = torch.where(kind == 2, moved.round(), moved.clamp(min=0).floor())
        images = torch.where(factor == 1, images, moved.clamp(0, 255))
    return images


def resized(
    images: Tensor, changes: Changes, final: tuple[int, int], interpolation: str, is_mirrored: Tensor
) -> Tensor:
    """Resizes the crops of `changes` as `augment.resize` does, and mirrors some; the values are whole numbers."""
    down, across = changes.height / final[0], changes.width / final[1]
    shrinks, is_near = (down > 1) | (across > 1), (down <= NEAR) & (across <= NEAR)
    has_areas = (down >= 1) & (across >= 1)

    def weights(side: Tensor, length: int, out: int) -> Tensor:
        enlarging = pixel_weights(side, length, out, interpolation)
        near, far = (pixel_weights(side, length, out, kind) for kind in ("bilinear", "area"))
        mixed = pixel_weights(side, length, out, "area, enlarged")
        far = torch.where(has_areas[:, None, None], far, mixed)
        return torch.where(shrinks[:, None, None], torch.where(is_near[:, None, None], near, far), enlarging)

    count, height, width, channels = images.shape
    rows = weights(changes.height, height, final[0])
    columns = weights(changes.width, width, final[1])
    columns = torch.where(is_mirrored[:, None, None], columns.flip(1), columns)
    shorter = (rows @ images.reshape(count, height, width * channels)).view(count, final[0], width, channels)
    both = columns @ shorter.transpose(1, 2).reshape(count, width, final[0] * channels)
    return both.view(count, final[1], final[0], channels).transpose(1, 2).round().clamp(0, 255)


def pixel_weights(side: Tensor, length: int, out: int, interpolation: str) -> Tensor:
    """Returns the share [n, out, length] of each pixel along a side in each pixel of the result, as OpenCV has it.

    The sides [n] are at most `length`; beyond its side an image has no pixels, and their shares are 0.
    """
    side = side[:, None, None]
    per_pixel = torch.full_like(side, out) / side  # `out / side` would round twice, and some edges hang on the last bit
    scale = 1 / per_pixel
    to = torch.arange(out, device=side.device, dtype=side.dtype)[:, None]
    pixel = torch.arange(length, device=side.device, dtype=side.dtype)
    last = side - 1
    centre = (to + 0.5) * scale - 0.5
    match interpolation:
        case "bilinear":
            shares = (1 - (pixel - centre.clamp(min=0).minimum(last)).abs()).clamp(min=0)
        case "nearest":
            shares = (pixel == (to * scale).floor().minimum(last)).to(side.dtype)
        case "area":
            start = to * scale
            overlap = (start + scale).minimum(pixel + 1) - start.maximum(pixel)
            shares = overlap.clamp(min=0) / scale.minimum(side - start)
        case "area, enlarged":  # what OpenCV takes for areas if one of the sides grows
            whole = (to * scale).floor()
            fraction = ((to + 1) - (whole + 1) * per_pixel).float()
            fraction = torch.where(fraction <= 0, 0, fraction - fraction.floor())
            shares = (1 - (pixel - (whole + fraction).minimum(last)).abs()).clamp(min=0)
        case _:
            shares = _cubic(centre - pixel)
            for beyond in (1, 2):  # pixels beyond the edges have the values of those at the edges
                shares += torch.where(pixel == 0, _cubic(centre + beyond), 0)
                shares += torch.where(pixel == last, _cubic(centre - last - beyond), 0)
            shares = torch.where(pixel <= last, shares, 0)
    return shares.float()


def _cubic(distance: Tensor) -> Tensor:
    """Returns OpenCV's kernel of cubic interpolation, of -0.75."""
    d = distance.abs()
    near, far = (1.25 * d - 2.25) * d * d + 1, ((-0.75 * d + 3.75) * d - 6) * d + 3
    return torch.where(d <= 1, near, torch.where(d < 2, far, 0))


def erased(images: Tensor, changes: Changes) -> Tensor:
    height, width = images.shape[1:3]
    down = torch.arange(height, device=images.device)
    across = torch.arange(width, device=images.device)
    rows = (down >= changes.hole_top[:, None]) & (down < changes.hole_bottom[:, None])
    columns = (across >= changes.hole_left[:, None]) & (across < changes.hole_right[:, None])
    colour = torch.stack([changes.red, changes.green, changes.blue], -1).float()
    return torch.where((rows[:, :, None] & columns[:, None, :])[..., None], colour[:, None, None], images)
