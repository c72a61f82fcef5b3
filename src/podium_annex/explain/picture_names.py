"""The pictures that `podium explain` draws: the function that computes each, and its file."""

PICTURES = {
    "class_attention": "class_attention.png",
    "attention_rollout": "attention_rollout.png",
    "attention_distance": "attention_distance.svg",
    "patch_filters": "patch_filters.png",
    "position_similarity": "position_similarity.png",
    "grad_cam": "grad_cam.png",
    "receptive_field": "receptive_field.png",
}
