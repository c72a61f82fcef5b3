"""The plan of a pretraining: its options, folder and images, with every check that needs no image.

DINO shares most options with training, so they are a recipe: model, weights, sizes, schedule, and from the card how
images may be changed (mirror, colour, fit).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.basics.disk import check_name
from podium.basics.errors import PodiumError
from podium.basics.image_size import square_side
from podium.basics.machine import Machine
from podium.basics.torchrun import world_size
from podium.options.extensions.own_parts import own_parts_digest
from podium.options.recipe import Options, Recipe, check_options

if TYPE_CHECKING:
    from podium.competition.load import Competition
    from podium_annex.pretraining.pretraining_folder import PretrainingFolder

METHODS = ("dino",)
DEFAULTS: dict[str, Any] = {
    "weights": "none",  # from the hub's weights, training with labels is usually the better use of the time
    "epochs": 100,  # the paper's shortest schedule; an epoch of a few thousand images has few steps
    "batch_size": 64,  # ten crops of each image take the memory of about four images
    "optimizer": "adamw",
    "weight_decay": 0.04,  # the paper's first; its rise to 0.4 pays over hundreds of thousands of steps
    "warmup": 10.0,  # epochs, as in the paper; at most a fifth of the run
    "layer_decay": 1.0,  # every layer learns anew
    "drop_path": 0.0,  # a student of different depths needs longer schedules
}
# Higher than the paper's 5e-4 for 256 images, which is for a hundred times as many steps; grows with the square root.
LEARNING_RATE, REFERENCE_BATCH = 1e-3, 64
RECORDED = (  # options of the recipe that decide the result
    *("model", "weights", "image_size", "epochs", "batch_size", "lr"),
    *("optimizer", "weight_decay", "layer_decay", "warmup"),
    *("fit", "crop", "mirror", "colour", "precision", "operators", "seed"),
)


@dataclass(frozen=True)
class PretrainRequest:
    """What the user asked for; everything else has a default."""

    options: Options  # of the recipe
    method: str = "dino"
    small_crops: int = 6
    # The paper's 65,536 are for a million images. With fewer images than outputs, most outputs would mean nothing.
    outputs: int = 1024
    name: str | None = None  # default: dino-MODEL
    machine: Machine = field(default_factory=Machine)


@dataclass(frozen=True)
class PretrainingPlan:
    competition: "Competition"
    root: Path
    request: PretrainRequest
    recipe: Recipe
    folder: "PretrainingFolder"

    def identity(self) -> dict[str, Any]:
        """Returns what must stay the same on resuming; the images are checked when they are read."""
        options = {name: getattr(self.recipe, name) for name in RECORDED}
        own = {
            "method": self.request.method,
            "local_crops": self.request.small_crops,
            "outputs": self.request.outputs,
            "competition": self.competition.slug,
        }
        model = own_parts_digest({"model": self.recipe.model})
        return {**own, **options, **({"own_parts_sha256": model} if model else {})}


def plan_pretraining(slug: str, root: Path, request: PretrainRequest) -> PretrainingPlan:
    options, card = check_pretrain_request(slug, root, request)
    from podium.basics.project_root import runs_folder
    from podium.competition.load import load_and_report
    from podium.models.build import resolve_recipe
    from podium.models.hub import name_for_runs
    from podium_annex.pretraining.pretraining_folder import PretrainingFolder

    competition = load_and_report(slug, root)
    recipe = resolve_recipe(options, card)
    recipe = recipe.but(image_size=square_side(recipe.image_size, "pretraining"), test_size=recipe.image_size)
    name = request.name or f"{request.method}-{name_for_runs(options['model'])}"
    folder = PretrainingFolder(runs_folder(slug, root) / name)
    plan = PretrainingPlan(competition, root, request, recipe, folder)
    folder.check_same(plan.identity())
    return plan


def check_pretrain_request(slug: str, root: Path, request: PretrainRequest) -> tuple[Options, Options]:
    """Returns the options with the defaults of pretraining, and the card's; refuses what no pretraining can use."""
    from podium.competition.card import read_card
    from podium.models.hub import JOIN, check_model_name, check_weights_available, timm_name

    card: Mapping[str, Any] = read_card(slug, root).get("recipe", {})
    if request.name is not None:
        check_name(request.name, "the name of a pretraining")
    check_options(request.options)
    for flag, value, least in (("--local-crops", request.small_crops, 0), ("--outputs", request.outputs, 2)):
        if value < least:
            raise PodiumError(f"{flag} must be at least {least}, not {value}")
    if request.method not in METHODS:
        raise PodiumError(f"--method must be one of {', '.join(METHODS)}, not '{request.method}'")
    if world_size() > 1:
        raise PodiumError("podium pretrain computes in one process; start it without torchrun")
    options = {**DEFAULTS, **request.options}
    options["model"] = timm_name(options.get("model", ""))
    if options["model"] == "auto":
        raise PodiumError("--model auto is for podium train; name a model, for example --model cpvt_nano")
    if JOIN in options["model"]:
        raise PodiumError("several models are for podium train --linear; pretraining takes one")
    options.setdefault("lr", float(f"{LEARNING_RATE * (options['batch_size'] / REFERENCE_BATCH) ** 0.5:.3g}"))
    check_model_name(options["model"])
    check_weights_available(options["model"], options["weights"])
    return options, card
