"""Measures how images become training examples, and how duplicates and folds are found.

    python -m benchmarks.data examples ROOT SLUG     training examples a second, one process
    python -m benchmarks.data duplicates ROOT SLUG   which duplicates of its images are found
    python -m benchmarks.data pairs 1000000          time to find duplicates among so many images
    python -m benchmarks.data folds 1000000          time to split so many images, with classes and groups
    python -m benchmarks.data balance                balance of the folds with groups, and scikit-learn's

The tables "From files to training examples", "Duplicates that are found" and "Balance of the folds with groups".
"""

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import call, head, in_turn, row, seconds, with_range
from podium.competition.load import load
from podium.images.store import open_store, stored_side


def examples(root: Path, slug: str) -> None:
    """Makes views of 4,000 images, with and without colour and erasing, five times in turn."""
    import torch

    from podium.models.build import build_model, resolve_recipe
    from podium.training.augment import TrainView

    torch.set_num_threads(1)
    competition = load(slug, root)
    store = open_store(competition, stored_side(224))
    count = min(4000, len(competition.train))
    read = store.reader(store.positions(competition.train["image"])[:count])
    recipe = resolve_recipe({"model": "vit_small_patch32_224", "weights": "none"}, competition.recipe)
    spec = build_model(recipe, competition.classes)[1]

    def work(view: TrainView) -> Callable[[], object]:
        return lambda: [view(read(number), 0, number) for number in range(count)]

    views = {"crop and mirror": recipe.but(colour=0.0, erase=0.0), "the full recipe": recipe}
    taken = in_turn([work(TrainView(own, spec)) for own in views.values()], 5)
    for name, values in zip(views, taken, strict=True):
        print(f"{name}: {with_range([count / value for value in values])} images/s")


def duplicates(root: Path, slug: str) -> None:
    """Saves 1,000 images again in many ways, and counts how often the duplicate joins its original's group."""
    import cv2

    from podium.images.duplicates import find_duplicates, linked_groups
    from podium.images.store_format import THUMB

    store = open_store(load(slug, root), stored_side(224))
    positions = np.arange(len(store.names))
    read, areas = store.reader(positions), store.index[:, 1] * store.index[:, 2]
    originals = np.random.default_rng(3).permutation(positions)[:1000]
    head("saved as", "found")
    for name, change in changes().items():
        saved = [change(read(number)) for number in originals]
        thumbs = [cv2.resize(image, (THUMB, THUMB), interpolation=cv2.INTER_AREA) for image in saved]
        sizes = np.array([image.shape[0] * image.shape[1] for image in saved])
        found = find_duplicates(np.concatenate([store.thumbs, thumbs]), np.concatenate([areas, sizes]))
        groups = linked_groups(found.first, found.second, len(positions) + len(saved))
        row(name, f"{(groups[originals] == groups[len(positions) :]).mean():.1%}")


def changes() -> dict[str, Callable[[Any], Any]]:
    """Returns ways to save an image again."""
    import cv2
    from PIL import Image

    from podium.images.decode import decode

    def saved(
        quality: int = 0, size: float = 1, how: int = cv2.INTER_CUBIC, mirror: bool = False
    ) -> Callable[[Any], Any]:
        def change(pixels: Any) -> Any:
            pixels = cv2.resize(pixels, None, fx=size, fy=size, interpolation=how) if size != 1 else pixels
            pixels = np.ascontiguousarray(pixels[:, ::-1]) if mirror else pixels
            jpeg = cv2.imencode(".jpg", pixels[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1] if quality else None
            return pixels if jpeg is None else decode(jpeg.tobytes(), "a duplicate")

        return change

    return {
        **{f"JPEG, quality {quality}": saved(quality) for quality in (90, 50, 20, 10)},
        "mirrored": saved(mirror=True),
        **{f"mirrored, quality {quality}": saved(quality, mirror=True) for quality in (60, 30)},
        "0.75 of the size, mirrored, quality 75": saved(75, 0.75, cv2.INTER_AREA, mirror=True),
        "256 colours": lambda pixels: np.asarray(Image.fromarray(pixels).convert("P").convert("RGB")),
        "5 % brighter": lambda pixels: np.minimum(255, pixels * 1.05).astype(np.uint8),
        "half the size": saved(0, 0.5, cv2.INTER_AREA),
        **{f"half the size, quality {quality}": saved(quality, 0.5, cv2.INTER_AREA) for quality in (75, 40)},
        "0.7 of the size (bilinear, no antialiasing)": saved(0, 0.7, cv2.INTER_LINEAR),
        "0.4 of the size (the same)": saved(0, 0.4, cv2.INTER_LINEAR),
        "twice the size": saved(size=2),
        "three times the size, quality 50": saved(50, 3),
        "squashed to 224 x 224": lambda pixels: cv2.resize(pixels, (224, 224), interpolation=cv2.INTER_CUBIC),
        "0.75 of the size, nearest neighbour": saved(0, 0.75, cv2.INTER_NEAREST),
        "one pixel cut off all around": lambda pixels: pixels[1:-1, 1:-1],
    }


def pairs(count: int) -> None:
    """Searches smooth random images; every thousandth is a mirrored, noisy duplicate of the one before it."""
    from podium.images.duplicates import GREY, NOISE, RESAMPLING, candidate_pairs, perceptual_hashes

    rng = np.random.default_rng(0)
    grey = np.empty((count, GREY, GREY), np.float32)
    for start in range(0, count, 100_000):
        coarse = rng.normal(0, 1, (min(100_000, count - start), 4, 4)).astype(np.float32)
        fine = rng.normal(0, 1, (len(coarse), GREY, GREY)).astype(np.float32)
        grey[start : start + len(coarse)] = 128 + 50 * coarse.repeat(3, 1).repeat(3, 2) + 15 * fine
    copies = np.arange(1, count, 1000)
    grey[copies] = grey[copies - 1][:, :, ::-1] + rng.normal(0, 1, (len(copies), GREY, GREY))
    reach = (NOISE + RESAMPLING * grey.std((1, 2))) * GREY
    proposed, neighbours = 0, set[int]()  # the later image of each proposed pair of consecutive images

    def search() -> None:
        nonlocal proposed
        for first, second in candidate_pairs(perceptual_hashes(grey), reach):
            proposed += len(first)
            neighbours.update(np.maximum(first, second)[np.abs(first - second) == 1].tolist())

    taken = seconds(search)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{count:,} images: {taken:.0f} s, {memory:.1f} GB, {proposed:,} proposed pairs;")
    print(f"{len(neighbours & set(copies.tolist())):,} of {len(copies):,} duplicates are among them")


def folds(count: int) -> None:
    """Splits images of 1,000 classes of unequal size, five in a group."""
    from podium.folds.split import assign_folds

    rng, frequencies = np.random.default_rng(0), 1 / np.arange(1, 1001)
    targets = rng.choice(1000, count, p=frequencies / frequencies.sum()).astype(str)
    groups = rng.integers(0, count // 5, count).astype(str)
    taken = seconds(lambda: assign_folds(list(targets), 5, 0, list(groups)))
    print(f"{count:,} images, 1,000 classes, {count // 5:,} groups: {taken:.1f} s")


def balance() -> None:
    """Splits groups whose images mostly have one class."""
    from sklearn.model_selection import StratifiedGroupKFold

    from podium.folds.split import assign_folds

    def spread(folds: NDArray[np.int64], targets: NDArray[np.int64]) -> str:
        counts = np.array([np.bincount(folds[targets == target], minlength=5) for target in np.unique(targets)])
        shares = counts / counts.sum(1, keepdims=True)
        return f"{np.abs(shares - 0.2).max():.3f}, {shares.std(1).mean():.3f}"

    head("groups x images, share of images of another class", "Podium", "scikit-learn")
    for count, size, others in ((400, 25, 0.15), (200, 50, 0.15), (400, 25, 0.4), (100, 100, 0.15), (1000, 3, 0.2)):
        rng, groups = np.random.default_rng(1), np.repeat(np.arange(count), size)
        has_group_class = rng.random(len(groups)) >= others
        targets = np.where(has_group_class, groups * 7 % 20, rng.integers(0, 20, len(groups)))
        ours = assign_folds(targets.astype(str).tolist(), 5, 0, groups.astype(str).tolist())
        theirs = np.empty(len(groups), dtype=np.int64)
        splitter = StratifiedGroupKFold(5, shuffle=True, random_state=0)
        for fold, (_, validated) in enumerate(splitter.split(targets, targets, groups)):
            theirs[validated] = fold
        row(f"{count} x {size}, {others:.0%}", spread(ours, targets), spread(theirs, targets))


if __name__ == "__main__":
    call(examples, duplicates, pairs, folds, balance)
