"""Sizes of images that change while a model trains: small ones first (--grow), or larger ones at the end (--finish).

Growing: as fastai's courses and Tan and Le, 2021. From 32 px up in half of the run, clothes scored 0.965, as without
in the same time. The last epochs at the size of prediction: Touvron et al., 2019. Two epochs at 96 px after four at 64
px gained 4.7 points on pets, 0.8 on hand signs, and lost 1.7 on digits (48 px after 32); on the last two, all epochs
at the larger size gained (docs/benchmarks.md).
"""

from dataclasses import dataclass

from podium.basics.errors import PodiumError
from podium.basics.image_size import ImageSize, parse_size, shorter_side, sides_of, size_of
from podium.basics.terminal import plural
from podium.options.knob import knob
from podium.options.moves.move import Core, Move
from podium.options.option_kinds import FINISH

# Pixels. The size grows in steps of 16, one pixel of a deep layer. It starts at 32 at least: with a deep layer of a
# single pixel, torch 2.15 computes a wrong gradient of a bfloat16 convolution.
GROWTH_STEP, SMALLEST_IMAGE = 16, 32


@dataclass(frozen=True)
class Sizes(Move):
    topic = "images"
    tried = {"grow": 0.5, "finish": "48:1"}
    grow: float = knob(
        "share of the run, at its start, with smaller images, which grow from half the size",
        0,
        1,
        off=0.0,
        default=0.0,
        why="works only for models that take any size",
        is_move=True,
    )
    finish: str = knob(
        "size and number of the last epochs, such as 320:2; prediction has this size, too, if its own is smaller"
        " (Touvron et al., 2019)",
        1,
        4096,
        off="",
        default="",
        why="whether the last epochs gain at a larger size depends on the competition",
        is_taken_over=False,
        kind=FINISH,
        for_heads=False,
        is_move=True,
        needs_end=True,
    )

    @property
    def is_on(self) -> bool:
        return bool(self.grow or self.finish)

    def size(self, size: ImageSize, epoch: int, epochs: int) -> ImageSize:
        """From half the size to the whole size, then that of the last epochs."""
        if self.finish:
            last_size, last_epochs = _parts(self.finish)
            if epoch >= epochs - last_epochs:
                return last_size
        growing_epochs = self.grow * epochs
        if epoch >= growing_epochs:
            return size
        grown = ((side, int(side * (1 + epoch / growing_epochs) / 2)) for side in sides_of(size))
        return size_of(*(min(side, max(SMALLEST_IMAGE, new // GROWTH_STEP * GROWTH_STEP)) for side, new in grown))

    @property
    def has_last_size(self) -> bool:
        return bool(self.finish)

    @property
    def last_size(self) -> ImageSize:
        """That of the last epochs; 1 if they have none of their own."""
        return _parts(self.finish)[0] if self.finish else 1

    @property
    def size_remedy(self) -> str:
        return "leave out --finish" if self.finish else "use --grow 0"

    def of_images(self) -> str:
        words = [f"grow {self.grow:g}"] if self.grow else []
        if self.finish:
            size, epochs = _parts(self.finish)
            words.append(f"{size} px in the last {plural(epochs, 'epoch') if epochs > 1 else 'epoch'}")
        return ", ".join(words)

    def check(self, core: Core) -> None:
        """Refuses last epochs that a run does not have, or whose images would be smaller than before or than stored."""
        if not self.finish:
            return
        size, epochs = _parts(self.finish)
        if shorter_side(size) < shorter_side(core.image_size):
            raise PodiumError(
                f"--finish {self.finish} is smaller than --image-size {core.image_size}; the last epochs need larger"
                " images, or leave it out"
            )
        if epochs >= core.epochs:
            raise PodiumError(
                f"--finish {self.finish} leaves no epoch of {core.epochs} at {core.image_size} px; use fewer, or"
                f" --image-size {size}"
            )
        if shorter_side(core.test_size) < shorter_side(size):
            raise PodiumError(
                f"--test-size {core.test_size} is smaller than --finish {self.finish}; use --test-size {size}, or"
                " leave it out"
            )


def _parts(finish: str) -> tuple[ImageSize, int]:
    size, _, epochs = finish.partition(":")
    return parse_size(size), int(epochs)
