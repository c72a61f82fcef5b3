"""Reads and writes tensors as safetensors, never as a pickle. The metadata describes them."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from podium.basics.disk import atomic
from podium.basics.errors import PodiumError

if TYPE_CHECKING:
    from torch import Tensor


def save_tensors(path: Path, tensors: Mapping[str, "Tensor"], metadata: dict[str, str]) -> None:
    from safetensors.torch import save_file

    copies: dict[str, Tensor] = {}
    addresses: set[int] = set()
    for name, tensor in tensors.items():
        copy = tensor.detach().cpu().contiguous()
        # Tied weights, one tensor under two names, become two tensors in the file.
        copies[name] = copy.clone() if copy.data_ptr() in addresses and copy.numel() else copy
        addresses.add(copy.data_ptr())
    with atomic(path) as temporary:
        save_file(copies, temporary, metadata)


def load_tensors(path: Path) -> tuple[dict[str, "Tensor"], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise PodiumError(f"{path}: cannot be read ({error})") from None


def tensors_digest(tensors: Mapping[str, "Tensor"], text: str) -> str:
    """Hashes tensors on the CPU and a text."""
    import torch

    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return digest.hexdigest()
