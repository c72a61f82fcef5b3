"""A timm name to a model with a fresh head, weights from the hub, a file or none; and back from a saved fold."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium import PodiumError
from podium.models.hub import weights_unreachable
from podium.recipe import Recipe

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

CRASH_WITH_CHANNELS_LAST = {"fastvit"}  # families: torch 2.15 corrupts its memory when these train on a CPU
PERMISSIVE = ("apache-2.0", "mit", "bsd-3-clause", "bsd", "cc-by-4.0", "cc0-1.0", "openrail", "openrail++")


@dataclass(frozen=True)
class ModelSpec:
    """All that is needed to rebuild a model and to feed it; carried in the metadata of its weights."""

    architecture: str
    classes: tuple[str, ...]
    image_size: int
    test_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    crop: float  # share of the shorter side that prediction sees
    fit: str  # "crop": the centre; "squash": the whole image, made square
    source: str  # where the weights came from: a tag of the hub, a file and its hash, or none


# --- building ----------------------------------------------------------------------------------------


def family_and_sizes(name: str) -> tuple[str, int, int]:
    """The module a model was registered in (its row in the recipe's table), and the sizes it was made for: in training
    and in prediction."""
    import timm

    config = _config(name)
    module: str = timm.models.model_entrypoint(name).__module__
    size = config.input_size[-1] if config else 224
    tested = config.test_input_size[-1] if config and config.test_input_size else size
    return module.rpartition(".")[2], size, tested


def _config(name: str) -> Any:
    """timm's description of the weights that a name, with or without a tag, means."""
    import timm

    try:
        return timm.get_pretrained_cfg(name)
    except RuntimeError:
        architecture = name.partition(".")[0]
        tags = [known for known in timm.list_pretrained() if known.partition(".")[0] == architecture]
        raise PodiumError(f"no weights '{name}'; there are {', '.join(tags) or 'none'}") from None


def build_model(recipe: Recipe, classes: Sequence[str]) -> tuple["nn.Module", ModelSpec]:
    """A model that answers images with a logit per class, and how it wants them."""
    name, weights = recipe.model, recipe.weights
    options: dict[str, Any] = {"drop_path_rate": recipe.drop_path or None}
    source = "none"
    if weights not in ("pretrained", "none"):
        from podium.disk import sha256

        options["pretrained_cfg_overlay"] = {"file": weights, "custom_load": weights.endswith(".npz")}
        source = f"{Path(weights).name} sha256:{sha256(Path(weights))}"
    model = _create(name, recipe.image_size, pretrained=weights != "none", num_classes=len(classes), **options)
    if recipe.test_size != recipe.image_size:
        check_sizes(model, name, {recipe.test_size}, f"--test-size {recipe.image_size}")
    if weights == "pretrained":
        pretrained: Any = model.pretrained_cfg
        source = f"{pretrained['architecture']}.{pretrained['tag']} from {pretrained['hf_hub_id']}"
        _warn_of_licence(source, str(pretrained.get("license") or "unknown"))
    architecture = name.partition(".")[0] if weights == "none" else name
    return model, ModelSpec(
        architecture=architecture,
        classes=tuple(classes),
        image_size=recipe.image_size,
        test_size=recipe.test_size,
        fit=recipe.fit,
        source=source,
        **_data_config(model, recipe.test_size),
    )


def rebuild_model(spec: ModelSpec) -> "nn.Module":
    """The model without its weights."""
    return _create(spec.architecture, spec.image_size, pretrained=False, num_classes=len(spec.classes))


def _create(name: str, image_size: int, pretrained: bool, **options: Any) -> "nn.Module":
    import timm
    import torch
    from timm.data import resolve_model_data_config

    config = _config(name)
    if config is not None and config.fixed_input_size and config.input_size[-1] != image_size:
        options["img_size"] = image_size
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model: nn.Module = timm.create_model(name, pretrained=pretrained, **options)
    except Exception as error:  # timm, the hub's client, its transport and the file formats raise a dozen kinds
        raise _not_built(name, image_size, pretrained, error) from None
    try:
        model.eval()
        with torch.inference_mode():
            shape = model(torch.zeros(1, 3, image_size, image_size)).shape
        if shape != (1, options["num_classes"]):
            raise PodiumError(f"{name} answers with {tuple(shape)}, not with one number per class; take another model")
    except PodiumError:
        raise
    except Exception as error:  # a thousand architectures, and each its own way to refuse
        size = resolve_model_data_config(model)["input_size"][-1]
        raise PodiumError(
            f"{name} cannot take images of {image_size} pixels ({_first_line(error)}); try --image-size {size}"
        ) from None
    return model


def check_sizes(model: "nn.Module", name: str, sizes: set[int], remedy: str) -> None:
    """Raises unless the model takes images of all these sizes too."""
    import torch

    model.eval()
    for size in sorted(sizes):
        try:
            with torch.inference_mode():
                model(torch.zeros(1, 3, size, size))
        except Exception as error:  # each family refuses in its own way
            said = f"{name} cannot take images of {size} pixels ({_first_line(error)})"
            raise PodiumError(f"{said} besides its own; use {remedy}") from None


def _not_built(name: str, image_size: int, pretrained: bool, error: Exception) -> PodiumError:
    """timm's and the hub's many exceptions, as the one sentence that helps."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

    text = _first_line(error)
    if isinstance(error, LocalEntryNotFoundError):
        return weights_unreachable(name)
    if isinstance(error, GatedRepoError):
        return PodiumError(f"the weights of {name} need a licence accepted on the hub and a token: run hf auth login")
    if isinstance(error, HfHubHTTPError):
        return PodiumError(f"the hub does not give the weights of {name}: {text}; or train with --weights none")
    if "No pretrained weights exist" in text:
        return PodiumError(f"timm has no pretrained weights for {name}; train from scratch with --weights none")
    if "drop_path" in text:
        return PodiumError(f"{name} has no residual branches to drop; add --drop-path 0")
    if "weights_only" in str(error) or "unpickling" in text.lower():
        return PodiumError(f"these weights are no checkpoint that can be loaded safely ({text}); use another file")
    what = f"{name} for images of {image_size} pixels"
    return PodiumError(f"{what} cannot be built{' with these weights' if pretrained else ''}: {text}")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _data_config(model: "nn.Module", test_size: int) -> dict[str, Any]:
    from timm.data import resolve_model_data_config

    own: dict[str, Any] = getattr(model, "pretrained_cfg", None) or {}
    config = resolve_model_data_config(model, use_test_size=(own.get("test_input_size") or (0,))[-1] == test_size)
    return {
        "mean": tuple(config["mean"]),
        "std": tuple(config["std"]),
        "interpolation": config["interpolation"],
        "crop": config["crop_pct"],
    }


def licence_of(name: str) -> str | None:
    """Of the pretrained weights that a name means, as timm knows it; None where there are none."""
    config = _config(name)
    return str(config.license or "unknown") if config is not None and config.has_weights else None


def _warn_of_licence(source: str, licence: str) -> None:
    from podium.terminal import say

    if licence.lower() not in PERMISSIVE:
        say(f"podium: warning: the weights {source} are licensed {licence}: check that your competition allows them")


# --- feeding and saving ------------------------------------------------------------------------------


class Normaliser:
    """uint8 [n, height, width, 3] on any device to the model's input, in the memory `layout` of the model."""

    def __init__(self, spec: ModelSpec, device: "torch.device") -> None:
        import torch

        family = family_and_sizes(spec.architecture)[0]
        crashes = device.type == "cpu" and family in CRASH_WITH_CHANNELS_LAST
        self.layout = torch.contiguous_format if crashes else torch.channels_last
        self.device = device
        mean = torch.tensor(spec.mean, device=device) * 255
        std = torch.tensor(spec.std, device=device) * 255
        self.scale = (1 / std).view(1, 3, 1, 1)
        self.shift = (-mean / std).view(1, 3, 1, 1)

    def __call__(self, images: "Tensor") -> "Tensor":
        on_device = images.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float()
        return on_device.contiguous(memory_format=self.layout).mul_(self.scale).add_(self.shift)


def save_model(path: Path, model: "nn.Module", spec: ModelSpec) -> None:
    from podium.models.tensors import save_tensors

    save_tensors(path, dict(model.state_dict()), {"podium": json.dumps(asdict(spec))})


def classes_of_weights(weights: str) -> tuple[str, ...]:
    """The classes that a file's weights answer with, if Podium has written it."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, framework="pt") as file:
            return tuple(json.loads((file.metadata() or {})["podium"])["classes"])
    except (SafetensorError, OSError, LookupError, ValueError, TypeError):
        return ()


def load_model(path: Path) -> tuple["nn.Module", ModelSpec]:
    """A fold's model as it was saved; the file alone says what it is."""
    from podium.models.tensors import load_tensors

    tensors, metadata = load_tensors(path)
    try:
        read = json.loads(metadata["podium"])
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in read.items()
        }
        spec = ModelSpec(**fields)
    except (KeyError, TypeError, ValueError):
        raise PodiumError(f"{path}: these weights were not saved by podium train; train that fold again") from None
    model = rebuild_model(spec)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise PodiumError(f"{path}: does not fit {spec.architecture}: {_first_line(error)}") from None
    return model, spec
