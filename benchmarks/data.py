"""Measures the data figures in benchmarks.md.

python docs/measure_data.py examples [COMPETITION]    training examples a second, one process
python docs/measure_data.py duplicates [COMPETITION]  which duplicates of its images are found
python docs/measure_data.py pairs 1000000             time to find duplicates among so many images
python docs/measure_data.py folds 1000000             time to split so many images, with classes and groups
python docs/measure_data.py balance                   balance of the folds with groups, and scikit-learn's
"""

import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray


def examples(slug: str = "boolart-image-classification") -> None:
    from podium.competition.load import load
    from podium.images.store import open_store, stored_side
    from podium.models.build import build_model, resolve_recipe
    from podium.training.augment import TrainView

    torch.set_num_threads(1)
    competition = load(slug, Path())
    store = open_store(competition, stored_side(224))
    count = min(4000, len(competition.train))
    read = store.reader(store.positions(competition.train["image"])[:count])
    recipe = resolve_recipe({"model": "vit_small_patch32_224", "weights": "none"}, competition.recipe)
    spec = build_model(recipe, competition.classes)[1]
    plain = recipe.but(colour=0.0, erase=0.0)
    for name, view in (("crop and mirror", TrainView(plain, spec)), ("the full recipe", TrainView(recipe, spec))):

        def make_examples(epoch: int, view: TrainView = view) -> None:
            for number in range(count):
                view(read(number), epoch, number)

        rates = [count / seconds(lambda epoch=epoch: make_examples(epoch)) for epoch in range(5)]  # type: ignore[misc]
        print(f"{name}: {statistics.median(rates):,.0f} images/s ({min(rates):,.0f} to {max(rates):,.0f})")


def duplicates(slug: str = "boolart-image-classification") -> None:
    """Saves 1,000 images again in many ways, and counts how often the duplicate joins its original's group."""
    import io

    import cv2
    from PIL import Image, ImageOps

    from podium.competition.load import load
    from podium.images.decode import decode
    from podium.images.duplicates import find_duplicates, linked_groups
    from podium.images.store import open_store, stored_side
    from podium.images.store_format import THUMB

    def jpeg(image: Image.Image, quality: int) -> Image.Image:
        data = io.BytesIO()
        image.save(data, "JPEG", quality=quality)
        return Image.fromarray(decode(data.getvalue(), "a duplicate"))

    def sized(image: Image.Image, share: float, resampling: Image.Resampling = Image.Resampling.BICUBIC) -> Image.Image:
        return image.resize((round(image.width * share), round(image.height * share)), resampling)

    def aliased(image: Image.Image, share: float) -> Image.Image:
        return Image.fromarray(cv2.resize(np.asarray(image), None, fx=share, fy=share))

    mirror = ImageOps.mirror
    changes: dict[str, Callable[[Image.Image], Image.Image]] = {
        **{f"JPEG, quality {quality}": lambda i, q=quality: jpeg(i, q) for quality in (90, 50, 20, 10)},  # type: ignore[misc]
        "mirrored": mirror,
        **{f"mirrored, quality {quality}": lambda i, q=quality: jpeg(mirror(i), q) for quality in (60, 30)},  # type: ignore[misc]
        "0.75 of the size, mirrored, quality 75": lambda i: jpeg(mirror(sized(i, 0.75)), 75),
        "256 colours": lambda i: i.convert("P").convert("RGB"),
        "5 % brighter": lambda i: i.point(lambda value: min(255, value * 1.05)),
        "half the size (bicubic)": lambda i: sized(i, 0.5),
        "half the size, quality 75": lambda i: jpeg(sized(i, 0.5), 75),
        "half the size, quality 40": lambda i: jpeg(sized(i, 0.5), 40),
        "0.7 of the size (bilinear, no antialiasing)": lambda i: aliased(i, 0.7),
        "0.4 of the size (the same)": lambda i: aliased(i, 0.4),
        "twice the size": lambda i: sized(i, 2),
        "three times the size, quality 50": lambda i: jpeg(sized(i, 3), 50),
        "squashed to 224 x 224": lambda i: i.resize((224, 224)),
        "0.75 of the size, nearest neighbour": lambda i: sized(i, 0.75, Image.Resampling.NEAREST),
        "one pixel cut off all around": lambda i: ImageOps.crop(i, 1),
    }
    competition = load(slug, Path())
    store = open_store(competition, stored_side(224))
    positions = np.arange(len(store.names))
    read, areas = store.reader(positions), store.index[:, 1] * store.index[:, 2]
    originals = np.random.default_rng(3).permutation(positions)[:1000]
    for name, change in changes.items():
        saved = [np.asarray(change(Image.fromarray(read(number)))) for number in originals]
        thumbs = [cv2.resize(image, (THUMB, THUMB), interpolation=cv2.INTER_AREA) for image in saved]
        sizes = np.array([image.shape[0] * image.shape[1] for image in saved])
        pairs = find_duplicates(np.concatenate([store.thumbs, thumbs]), np.concatenate([areas, sizes]))
        groups = linked_groups(pairs.first, pairs.second, len(positions) + len(saved))
        found_count = int((groups[originals] == groups[len(positions) :]).sum())
        print(f"{name}: {found_count / len(originals):.1%}")


def pairs(count: int) -> None:
    """Searches smooth random images; every thousandth is a mirrored, noisy duplicate of the one before it."""
    from podium.images.duplicates import GREY, NOISE, RESAMPLING, candidate_pairs, perceptual_hashes

    rng = np.random.default_rng(0)
    grey = np.empty((count, GREY, GREY), np.float32)
    for start in range(0, count, 100_000):
        coarse = rng.normal(0, 1, (min(100_000, count - start), 4, 4)).astype(np.float32)
        fine = rng.normal(0, 1, (len(coarse), GREY, GREY)).astype(np.float32)
        grey[start : start + len(coarse)] = 128 + 50 * coarse.repeat(3, 1).repeat(3, 2) + 15 * fine
    duplicates = np.arange(1, count, 1000)
    grey[duplicates] = grey[duplicates - 1][:, :, ::-1] + rng.normal(0, 1, (len(duplicates), GREY, GREY))
    reach = (NOISE + RESAMPLING * grey.std((1, 2))) * GREY
    pair_counts: list[int] = []
    neighbours: set[int] = set()  # the later image of each proposed pair of consecutive images

    def search() -> None:
        for first, second in candidate_pairs(perceptual_hashes(grey), reach):
            pair_counts.append(len(first))
            is_consecutive = np.abs(first - second) == 1
            neighbours.update(np.maximum(first, second)[is_consecutive].tolist())

    duration = seconds(search)
    found_count = len(neighbours & set(duplicates.tolist()))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{count:,} images: {duration:.0f} s, {memory:.1f} GB, {sum(pair_counts):,} proposed pairs;")
    print(f"{found_count:,} of {len(duplicates):,} duplicates are among them")


def folds(count: int) -> None:
    from podium.folds.split import assign_folds

    rng = np.random.default_rng(0)
    frequencies = 1 / np.arange(1, 1001)
    targets = rng.choice(1000, count, p=frequencies / frequencies.sum()).astype(str)
    groups = rng.integers(0, count // 5, count).astype(str)
    duration = seconds(lambda: assign_folds(list(targets), 5, 0, list(groups)))
    print(f"{count:,} images, 1,000 classes, {count // 5:,} groups: {duration:.1f} s")


def balance() -> None:
    from sklearn.model_selection import StratifiedGroupKFold

    from podium.folds.split import assign_folds

    def spread(folds: NDArray[np.int64]) -> str:
        counts = np.array([np.bincount(folds[targets == target], minlength=5) for target in np.unique(targets)])
        shares = counts / counts.sum(1, keepdims=True)
        return f"{np.abs(shares - 0.2).max():.3f}, {shares.std(1).mean():.3f}"

    for count, size, other_share in (
        (400, 25, 0.15),
        (200, 50, 0.15),
        (400, 25, 0.4),
        (100, 100, 0.15),
        (1000, 3, 0.2),
    ):
        rng = np.random.default_rng(1)
        groups = np.repeat(np.arange(count), size)
        has_group_class = rng.random(len(groups)) >= other_share
        targets = np.where(has_group_class, groups * 7 % 20, rng.integers(0, 20, len(groups)))
        podium_folds = assign_folds(targets.astype(str).tolist(), 5, 0, groups.astype(str).tolist())
        sklearn_folds = np.empty(len(groups), dtype=np.int64)
        splitter = StratifiedGroupKFold(5, shuffle=True, random_state=0)
        for fold, (_, validated) in enumerate(splitter.split(targets, targets, groups)):
            sklearn_folds[validated] = fold
        print(
            f"{count} x {size}, {other_share:.0%}: Podium {spread(podium_folds)}; scikit-learn {spread(sklearn_folds)}"
        )


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["examples", *slug]:
            examples(*slug)
        case ["duplicates", *slug]:
            duplicates(*slug)
        case ["pairs", number]:
            pairs(int(number))
        case ["folds", number]:
            folds(int(number))
        case ["balance"]:
            balance()
        case _:
            sys.exit(__doc__)
