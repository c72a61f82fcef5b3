"""Shows what a model looks at and what it has learned: attention, Grad-CAM, receptive fields, filters, positions.

In: a model of timm or of the zoo, normalised images; for the command, a finished run. Out: arrays; the command writes
pictures and explain.npz into runs/<slug>/<run>/explain/.
Read attention.py first, then gradients.py and embeddings.py. explain_models.py is the command.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium_annex.explain.attention import attention_distance, attention_rollout, class_attention, rollout
    from podium_annex.explain.distance_picture import draw_distances
    from podium_annex.explain.draw_pictures import draw_filters, draw_maps, draw_positions, draw_receptive_fields
    from podium_annex.explain.embeddings import PatchFilters, patch_filters, position_similarity
    from podium_annex.explain.gradients import ReceptiveField, grad_cam, receptive_field

_MODULES = {  # imported when one of their names is used: they need torch
    "attention": ("attention_distance", "attention_rollout", "class_attention", "rollout"),
    "distance_picture": ("draw_distances",),
    "draw_pictures": ("draw_filters", "draw_maps", "draw_positions", "draw_receptive_fields"),
    "embeddings": ("PatchFilters", "patch_filters", "position_similarity"),
    "gradients": ("ReceptiveField", "grad_cam", "receptive_field"),
}

__all__ = [
    "PatchFilters",
    "ReceptiveField",
    "attention_distance",
    "attention_rollout",
    "class_attention",
    "draw_distances",
    "draw_filters",
    "draw_maps",
    "draw_positions",
    "draw_receptive_fields",
    "grad_cam",
    "patch_filters",
    "position_similarity",
    "receptive_field",
    "rollout",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"podium_annex.explain.{module}"), name)
    raise AttributeError(f"module 'podium_annex.explain' has no attribute '{name}'")
