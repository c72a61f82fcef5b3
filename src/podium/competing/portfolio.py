"""What `podium compete` can train: backbones that differ in pretraining, family and size, in the ways that they serve.

A member is a frozen head, a fine-tuned model, or a model from scratch. A row of BACKBONES says what to take; whether
its weights can be had, under which licence, and how fast it is, is found out where it is needed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from podium.basics.image_size import ImageSize, shorter_side, sides_of, size_of
from podium.models.hub import JOIN
from podium.options.moves.sizes import Sizes
from podium.options.recipe import Options, fits_only_head
from podium.options.recipe_defaults import AUTO, AUTO_MANY_IMAGES, AUTO_WITH_MANY, Data, set_by_level
from podium.saved_runs.run_folder import Run
from podium.tasks.number_scale import LOG1P

HEAD, TUNED, SCRATCH = "head", "tuned", "scratch"
IMPORTED = "imported"  # the kind of predictions from elsewhere, which nobody can train here
WORDS = {HEAD: "frozen head", TUNED: "fine-tuned", SCRATCH: "from scratch"}
SIDES = (64, 96, 128, 160, 224, 288)  # of the longer side, for ConvNets
TUNED_FROM = 96  # pixels: fine-tuned at 64, nets lose 2 points on clothes and 1 on hands (docs/benchmarks.md)
SIDE_STEP = 8  # of the shorter side
FREE_LICENCES = ("apache", "mit", "bsd", "cc-by-4", "cc0")  # others, such as non-commercial ones, are not taken unasked
SEEDS = 3  # of the same member
ZOOM = "zoom"  # heads that see the images' middle parts, too
PLAIN, LOGS = "plain", "logs"  # the heads that ask a question
PSEUDO = "pseudo"  # a fine-tuned model that also learns the test images, from what the same one answers for them
RATE_OPTIONS = {"lr", "norm", "batch_size", "optimizer"}  # who asks for one of these chooses the rest to suit it
JOINED = 3  # backbones of one family whose features one head sees


class Question(NamedTuple):
    """What a head asks once, for all later members: they take its options if it is better than the usual head."""

    options: Options
    words: str
    answered_by: frozenset[str]  # options: who asks for one of these needs no answer
    needs_skewed: bool = False  # whether only numbers that reach far to one side raise it


QUESTIONS = {
    PLAIN: Question({"mirror": 0.0}, "not mirrored", frozenset({"mirror", "views", "level"})),
    LOGS: Question({"target_scale": LOG1P}, "on a scale of logarithms", frozenset({"loss", "target_scale"}), True),
}
WORDS_OF_VARIANTS = {
    **{name: question.words for name, question in QUESTIONS.items()},
    **{ZOOM: "also zoomed", PSEUDO: "with pseudo-labels"},
}


class BackboneRow(NamedTuple):
    """A pretrained model of timm that a portfolio may hold."""

    model: str  # timm's name
    family: str  # members of one family make more of the same mistakes
    error: float  # on ImageNet, in percent: of two models of which nothing else is known, the better one
    sides: tuple[int, ...] = SIDES  # at which it may be used; a ViT of its own size only
    gpu_memory: float = 0.0  # gigabytes that its fine-tuning takes, about; 0: also for a CPU


# Families as winning blends of 2024 to 2026 mix them. What a CPU can take comes first, the quickest of all foremost.
# Errors: timm's results-imagenet.csv; about, of tiny_vit, hgnetv2, mobilenetv4, so150m2, and dinov2 (a linear head).
BACKBONES = (
    BackboneRow("tf_efficientnet_lite0", "efficientnet_lite", 25.2),
    BackboneRow("tf_efficientnet_lite1", "efficientnet_lite", 23.4),
    BackboneRow("tf_efficientnet_lite2", "efficientnet_lite", 22.5),
    BackboneRow("vit_small_patch32_224", "vit_augreg", 24.0, (224,)),
    BackboneRow("convnext_small", "convnext", 14.7, (160, 224)),
    BackboneRow("tiny_vit_5m_224.dist_in22k_ft_in1k", "tiny_vit", 19.1, (224,)),
    BackboneRow("convnext_nano.in12k_ft_in1k", "convnext", 17.1, (160, 224)),
    BackboneRow("hgnetv2_b1.ssld_stage2_ft_in1k", "hgnet", 20.8, (128, 160, 224)),
    BackboneRow("mobilenetv4_conv_medium.e500_r256_in1k", "mobilenet", 20.1, (128, 160, 256)),
    BackboneRow("caformer_s18.sail_in22k_ft_in1k", "caformer", 15.9, (224,), 6.0),
    BackboneRow("tf_efficientnetv2_s.in21k_ft_in1k", "efficientnetv2", 15.7, (224, 300), 8.0),
    BackboneRow("vit_base_patch16_clip_224.laion2b_ft_in12k_in1k", "clip", 13.8, (224,), 10.0),
    BackboneRow("eva02_small_patch14_336.mim_in22k_ft_in1k", "eva02", 14.3, (336,), 12.0),
    BackboneRow("deit3_base_patch16_224.fb_in22k_ft_in1k", "deit3", 14.3, (224,), 10.0),
    BackboneRow("swinv2_base_window12to16_192to256.ms_in22k_ft_in1k", "swin", 13.7, (256,), 16.0),
    BackboneRow("beitv2_base_patch16_224.in1k_ft_in22k_in1k", "beit", 13.5, (224,), 10.0),
    BackboneRow("vit_so150m2_patch16_reg1_gap_256.sbb_e200_in12k_ft_in1k", "vit_so150m", 13.0, (256,), 16.0),
    BackboneRow("maxvit_tiny_tf_384.in1k", "maxvit", 14.9, (384,), 20.0),
    BackboneRow("vit_base_patch14_reg4_dinov2.lvd142m", "dinov2", 15.2, (224,), 12.0),
)


@dataclass(frozen=True)
class Candidate:
    """A member that can be trained."""

    kind: str  # HEAD, TUNED or SCRATCH
    model: str
    family: str
    side: int  # the longer side of its images
    options: Options = field(compare=False)  # of its recipe
    seed: int = 0
    variant: str = ""  # one of WORDS_OF_VARIANTS, or nothing; of a run that a person has trained, its name
    share: float = field(default=1.0, compare=False)  # of its recipe's epochs, for which there is time

    @property
    def name(self) -> str:
        """Returns the name of its run."""
        models = JOIN.join(model.partition(".")[0] for model in self.model.split(JOIN))
        endings = (self.variant, f"seed{self.seed}" if self.seed else "")
        return "-".join(filter(None, [models, self.kind, str(self.side), *endings]))

    @property
    def size(self) -> ImageSize:
        size: ImageSize = self.options.get("image_size", self.side)
        return size

    def describe(self) -> str:
        more = f", {WORDS_OF_VARIANTS[self.variant]}" if self.variant in WORDS_OF_VARIANTS else ""
        seed = f", seed {self.seed}" if self.seed else ""
        return f"{self.model}, {WORDS[self.kind]}, {self.size} px{more}{seed}"


def shaped(side: int, data: Data) -> dict[str, Any]:
    """Returns the size for images whose longer side is shown with so many pixels, and how they are fitted into it."""
    if not data.is_oblong:
        return {"image_size": side}
    shape = data.shape
    shorter = max(SIDE_STEP, round(side * min(shape, 1 / shape) / SIDE_STEP) * SIDE_STEP)
    size = size_of(side, shorter) if shape < 1 else size_of(shorter, side)
    return {"image_size": size, "fit": "squash"}


def candidates_of(
    rows: Sequence[BackboneRow], data: Data, device_kind: str, asked: Options, learned: Options | None = None
) -> Iterator[Candidate]:
    """Yields all members that these backbones can be, and a model from scratch.

    `asked` is what the card wants of every run, `learned` what the answers to QUESTIONS want of every further member.
    """
    common: dict[str, Any] = {**(learned or {})}
    is_mirrored = "mirror" not in common
    if "fit" in asked or "turn" in str(asked.get("views", "")).split("+"):
        data = data._replace(shape=1.0)  # images that are turned have to be squares
    for row in [] if asked.get("weights") == "none" else [*rows, *_joined(rows)]:
        many = data.images >= AUTO_MANY_IMAGES and row.family == rows[0].family == "efficientnet_lite"
        of_many = drop_asked(AUTO_WITH_MANY, asked) if many and not RATE_OPTIONS & asked.keys() else {}
        for side, size in _sizes(row.sides, data, asked):
            base = {"model": row.model, "weights": "pretrained", **size, **common}
            head = Candidate(HEAD, row.model, row.family, side, {**base, "linear": True})
            yield head
            usual = {name: value for name, value in head.options.items() if name not in common}
            for name, question in QUESTIONS.items():
                is_answered = question.answered_by & asked.keys() or question.options.keys() & common.keys()
                if not is_answered and (data.are_skewed or not question.needs_skewed):
                    yield replace(head, options={**usual, **question.options}, variant=name)
            if "views" not in asked:
                views = "mirror+zoom" if is_mirrored else "zoom"
                yield replace(head, options={**head.options, "views": views}, variant=ZOOM)
            if JOIN not in row.model and (side >= TUNED_FROM or "image_size" in asked):
                tuned = Candidate(TUNED, row.model, row.family, side, {**base, **of_many})
                yield from _seeds(tuned)
                if not {"pseudo", "teacher"} & asked.keys():
                    yield replace(tuned, options={**tuned.options, "pseudo": tuned.name}, variant=PSEUDO)
    small = AUTO.get(device_kind, AUTO["cpu"])
    for side, size in _sizes((small["image_size"], 96, 128), data, asked):
        own = drop_asked({**small, **size, **common}, asked)
        yield from _seeds(Candidate(SCRATCH, str(small["model"]), "scratch", side, own))


def drop_asked(own: Options, asked: Options) -> Options:
    """Returns the options without those that somebody, or the level that he wants, sets otherwise."""
    fixed, taken = {"model", "weights"}, {*asked, *set_by_level(asked)}
    return {name: value for name, value in own.items() if name in fixed or name not in taken}


def _joined(rows: Sequence[BackboneRow]) -> list[BackboneRow]:
    """Returns the quickest backbones as one row: one head sees the features of all of them."""
    first = [row for row in rows if row.family == rows[0].family and len(row.sides) > 1][:JOINED]
    models = JOIN.join(row.model for row in first)
    return [BackboneRow(models, first[0].family, min(row.error for row in first))] if len(first) > 1 else []


def _sizes(sides: Sequence[int], data: Data, asked: Options) -> Iterator[tuple[int, dict[str, Any]]]:
    if "image_size" in asked:
        yield longer_side(asked["image_size"]), {}
        return
    sizes = Sizes.recorded(asked)
    most = shorter_side(sizes.last_size) if sizes.has_last_size else math.inf
    for side in sides:
        size = shaped(side, data) if len(sides) > 1 else {"image_size": side}
        if shorter_side(size["image_size"]) <= most:  # the last epochs see no smaller images
            yield side, size


def _seeds(candidate: Candidate) -> Iterator[Candidate]:
    yield candidate
    for seed in range(1, SEEDS):
        yield replace(candidate, options={**candidate.options, "seed": seed}, seed=seed)


def error_on_imagenet(model: str) -> float:
    """Returns the error of the pretrained model, or of the best one of several; 0 if it is not known."""
    known = {row.model: row.error for row in BACKBONES}
    errors = [known.get(one, 0.0) for one in model.split(JOIN)]
    return min(errors)


def candidate_of(run: Run) -> Candidate:
    """Returns what a run that a person has trained is; the run's name keeps it apart from what can be trained."""
    recipe = run.recipe
    if run.imported:
        return Candidate(IMPORTED, run.name, run.name, 1, {}, variant=run.name)
    anew = recipe.get("weights") == "none"
    kind = HEAD if fits_only_head(recipe) else SCRATCH if anew else TUNED
    model = str(recipe["model"])
    family = next((row.family for row in BACKBONES if row.model.partition(".")[0] == model.partition(".")[0]), model)
    return Candidate(kind, model, family, longer_side(recipe["image_size"]), {}, variant=run.name)


def longer_side(size: ImageSize) -> int:
    return max(sides_of(size))
