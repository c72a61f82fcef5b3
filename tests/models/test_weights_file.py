"""The check of weights replaces a function of torch, also in threads, only while a model is built."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import timm
import torch
from torch import nn

from podium.models.build import build_model
from tiny import recipe_of


def test_threads_that_build_models_leave_torch_as_it_was(tmp_path: Path) -> None:
    before = nn.Module.load_state_dict
    path = tmp_path / "weights.pth"
    torch.save(timm.create_model("test_vit").state_dict(), path)
    start = Barrier(4, timeout=60)

    def build(_: int) -> str:
        start.wait()
        return build_model(recipe_of("test_vit", str(path), 160), ["a", "b"])[1].source

    with ThreadPoolExecutor(4) as pool:
        sources = set(pool.map(build, range(4)))
    assert len(sources) == 1
    assert nn.Module.load_state_dict is before
