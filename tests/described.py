"""A small model with all that its owner says of it, as a repository of the hub or a folder holds it."""

import json
from pathlib import Path
from typing import Any

ARGUMENTS = {"reg_tokens": 2, "init_values": 0.5, "num_classes": 0}
CONFIG = {
    "architecture": "test_vit",
    "num_classes": 0,
    "global_pool": "avg",
    "model_args": ARGUMENTS,
    "pretrained_cfg": {
        **{"input_size": [3, 48, 48], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "crop_pct": 0.8},
        **{"interpolation": "bilinear", "license": "mit", "url": "https://example.org/other.pth", "custom_load": True},
    },
}
CARD = "---\ntags:\n- moss\nlicense: cc-by-nc-4.0\n---\n# Moss\nlicense: none\n"


def write_model(folder: Path, card: str | None = CARD, bias: float = 0.125, **changes: Any) -> Path:
    """Writes a small ViT as its owner would: with a pooling, layers and colours of its own."""
    import timm
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = timm.create_model("test_vit", global_pool="avg", img_size=48, **ARGUMENTS)
    with torch.no_grad():
        model.patch_embed.proj.bias.fill_(bias)
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    if card is not None:
        (folder / "README.md").write_text(card)
    return folder
