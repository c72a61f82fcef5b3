"""Models that a repository of the hub, or a folder, describes: `hf-hub:OWNER/NAME[@REVISION]`, `local-dir:FOLDER`.

    config.json            timm's form: an architecture of timm, what it is built with, how it wants its images
    model.safetensors      its weights; pickles, which can run code, are never loaded
    README.md              its first lines name the licence

or open_clip's form, open_clip_config.json and open_clip_model.safetensors, of which timm can convert the image tower.
Reads these files, from the hub into its cache or from there; imports neither torch nor timm.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from podium.basics.disk import sha256
from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, first_line, say
from podium.models.hub_access import WeightsUnreachable, endpoint_of_hub, hub_answers, hub_cache

HUB, FOLDER = "hf-hub:", "local-dir:"  # as timm calls them
UNSTATED = "no licence is stated"
CONFIG, OPEN_CLIP_CONFIG = "config.json", "open_clip_config.json"
WEIGHTS = {CONFIG: ("model.safetensors",), OPEN_CLIP_CONFIG: ("open_clip_model.safetensors", "model.safetensors")}
FACTS = (  # of the weights, as timm's PretrainedCfg calls them: no addresses or files
    *("input_size", "test_input_size", "fixed_input_size", "interpolation", "crop_pct", "test_crop_pct"),
    *("mean", "std", "num_classes", "first_conv", "classifier", "license"),
)
# What no description may say: what timm loads, and what Podium decides.
OURS = (
    *("num_classes", "in_chans", "drop_rate", "drop_path_rate", "features_only", "out_indices"),
    *("checkpoint_path", "cache_dir", "model_cls", "variant"),
)
DYNAMIC = {"dynamic_img_size": True, "strict_img_size": False, "use_naflex": True}  # ViTs that take any size
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
# Image towers of open_clip that are models of timm: patch, width, layers and heads.
TOWERS = {
    (32, 768, 12, 12): "vit_base_patch32",
    (16, 768, 12, 12): "vit_base_patch16",
    (14, 1024, 24, 16): "vit_large_patch14",
    (14, 1280, 32, 16): "vit_huge_patch14",
    (14, 1408, 40, 16): "vit_giant_patch14",
    (14, 1664, 48, 16): "vit_gigantic_patch14",
}
OF_TOWERS = ("image_size", "layers", "width", "head_width", "patch_size", "mlp_ratio", "patch_dropout", "output_tokens")
POOLS_OF_TIMM = ("", "avg", "token", "map")  # of towers that are models of timm

Options = Mapping[str, Any]


def is_described(name: str) -> bool:
    return name.startswith((HUB, FOLDER))


@dataclass(frozen=True, eq=False)
class Description:
    """What a repository or a folder says of a model of timm."""

    name: str  # as --model has it
    architecture: str
    arguments: Options  # that timm builds it with
    facts: Options  # of its weights: see FACTS
    config: Path

    @property
    def licence(self) -> str:
        return str(self.facts["license"])

    def weights_name(self) -> str:
        """Returns the name of the file of its weights; refuses a place that has none but, perhaps, pickles."""
        names, is_online = WEIGHTS[self.config.name], _asks_hub(self.name)
        if (found := next((name for name in names if _has(self.name, name, is_online)), None)) is not None:
            return found
        if self.name.startswith(HUB) and not is_online:
            raise _unreachable(self.name, names[0])
        raise PodiumError(
            f"{self.name} has no {names[0]}, and pickles (.bin, .pth, .pt) are not loaded, because they can run code;"
            f" ask its owner for safetensors, or give a folder with {self.config.name} and that file: {FOLDER}FOLDER"
        )

    def weights(self) -> tuple[Path, str]:
        """Returns the file of its weights, fetched if it is not here, and what recipe.json records of them."""
        path = _find(self.name, self.weights_name(), _asks_hub(self.name))
        assert path is not None
        place = self.name if self.name.startswith(HUB) else f"{FOLDER}{name_of_place(self.name)}"
        return path, f"{place} sha256:{sha256(path)} ({self.config.name} {sha256(self.config)[:12]})"


@cache
def read_description(name: str) -> Description:
    """Returns what the place says of its model, and says it."""
    _check_place(name)
    is_online = _asks_hub(name)
    for file, read in {CONFIG: _of_timm, OPEN_CLIP_CONFIG: _of_open_clip}.items():
        if (path := _find(name, file, is_online)) is None:
            continue
        place = f"{name}, {file}"
        config = _read_json(path, place)
        if (found := read(config, place)) is not None:
            architecture, arguments, facts = found
            facts["license"] = _licence(name, is_online) or facts.get("license") or UNSTATED
            description = Description(name, architecture, arguments, facts, path)
            say(f"podium: {name} is a {architecture}; {_in_words(description.licence)}")
            return description
    if name.startswith(HUB) and not is_online:
        raise _unreachable(name, CONFIG)
    raise PodiumError(
        f"{name} describes no model of timm: it needs a {CONFIG} with an `architecture`, or an {OPEN_CLIP_CONFIG};"
        " take another one, or write that file into a copy of its folder, and give the copy with local-dir:FOLDER"
    )


def in_timm(name: str) -> tuple[str, Options]:
    """Returns timm's name of a model, and what it is built with."""
    if not is_described(name):
        return name, {}
    description = read_description(name)
    return description.architecture, description.arguments


def takes_any_size(arguments: Options) -> bool:
    """Returns whether a ViT that is built with these takes images of any size, though its family does not."""
    return any(arguments.get(name) == value for name, value in DYNAMIC.items())


def name_of_place(name: str) -> str:
    """Returns the last part of the repository's or the folder's name, as a name that a file can have."""
    place = name.removeprefix(HUB)
    last = place.rpartition("/")[2] if place != name else Path(name.removeprefix(FOLDER)).expanduser().resolve().name
    return re.sub(r"[^A-Za-z0-9_.=-]+", "-", last).strip("-._=") or "model"


def _in_words(licence: str) -> str:
    return licence if licence == UNSTATED else f"licence {licence}"


# --- what the files say ------------------------------------------------------------------------------


def _of_timm(config: Options, place: str) -> tuple[str, Options, dict[str, Any]] | None:
    """Returns architecture, arguments and facts; None if it is no description of timm's form."""
    if not isinstance(architecture := config.get("architecture"), str):
        return None
    given = config.get("pretrained_cfg", config)  # older ones have all in one table
    arguments = config.get("model_args") or {}
    if not isinstance(given, dict) or not isinstance(arguments, dict):
        raise PodiumError(f"{place}: pretrained_cfg and model_args must be tables; correct that in a copy of the files")
    facts = {name: given[name] for name in FACTS if given.get(name) is not None}
    facts |= {"num_classes": config["num_classes"]} if isinstance(config.get("num_classes"), int) else {}
    if (channels := arguments.get("in_chans", (facts.get("input_size") or [3])[0])) != 3:
        raise PodiumError(f"{place}: its images have {channels} channels, and Podium shows three; take another model")
    if isinstance(pool := config.get("global_pool"), str):
        arguments = {"global_pool": pool, **arguments}
    kept = {name: value for name, value in arguments.items() if not name.startswith("pretrained") and name not in OURS}
    if not kept.get("global_pool", "-"):  # the head of a run needs pooled features
        del kept["global_pool"]
    if takes_any_size(kept):
        facts["fixed_input_size"] = False
    elif size := kept.get("img_size"):
        kept["img_size"] = size = size if isinstance(size, int) else size[-1]
        facts["input_size"] = (3, size, size)
    _check_numbers(facts, place)
    return architecture.partition(".")[0], kept, facts


def _of_open_clip(config: Options, place: str) -> tuple[str, Options, dict[str, Any]]:
    """Returns the model of timm that the image tower is; refuses a tower that timm has no model for."""
    model, images = (config.get(name) or {} for name in ("model_cfg", "preprocess_cfg"))
    tower = model.get("vision_cfg") if isinstance(model, dict) else None
    if not isinstance(tower, dict) or not isinstance(images, dict):
        raise PodiumError(f"{place}: it has no model_cfg with a vision_cfg; take another repository")
    size = tower.get("image_size", 224)
    size = size if isinstance(size, int) else size[-1]
    arguments: dict[str, Any] = {}
    if name := tower.get("timm_model_name"):
        if (pool := tower.get("timm_pool", "")) not in POOLS_OF_TIMM:
            raise PodiumError(f"{place}: timm has no pooling '{pool}', which its image tower uses; take another model")
        arguments |= {"global_pool": pool} if pool else {}
    else:
        name = _tower_in_timm(tower, bool(model.get("quick_gelu")), place)
        arguments |= {"img_size": size} if size != 224 else {}
    facts = {
        "input_size": (3, size, size),
        "mean": images.get("mean", CLIP_MEAN),
        "std": images.get("std", CLIP_STD),
        "interpolation": images.get("interpolation", "bicubic"),
        "crop_pct": 1.0,  # the shorter side becomes the size of the model
        "num_classes": 0,
    }
    _check_numbers(facts, place)
    return str(name).partition(".")[0], arguments, facts


def _tower_in_timm(tower: Options, quick: bool, place: str) -> str:
    width, others = tower.get("width", 768), [key for key in tower if key not in OF_TOWERS]
    heads = width // tower.get("head_width", 64)
    sizes = [tower.get("patch_size", 16), width, layers := tower.get("layers", 12), heads]
    found = next((name for known, name in TOWERS.items() if [*known] == sizes), None)
    if found is None or others:
        why = f"with {first_few(others)}" if others else f"of width {width} and {layers} layers"
        raise PodiumError(f"{place}: timm has no conversion for its image tower {why}; take another repository")
    return f"{found}_clip_{'quickgelu_' if quick else ''}224"


def _check_numbers(facts: Options, place: str) -> None:
    """Refuses what no images can be prepared with."""
    for name in ("input_size", "test_input_size", "mean", "std"):
        value = facts.get(name, (1, 1, 1))
        if not isinstance(value, list | tuple) or len(value) != 3 or not all(isinstance(n, int | float) for n in value):
            raise PodiumError(f"{place}: {name} must be three numbers, not {value!r}; correct that in a copy")


def _read_json(path: Path, place: str) -> Options:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is not a table")
    except (OSError, ValueError) as error:
        raise PodiumError(f"{place} cannot be read ({first_line(error)}); get the file again") from None
    return content


def _licence(name: str, is_online: bool) -> str:
    """Returns the licence that the first lines of the README name (the model card of the hub); "" for none."""
    card = _find(name, "README.md", is_online)
    text = card.read_text(encoding="utf-8", errors="replace") if card else ""
    front = re.match(r"---[ \t]*\r?\n(.*?)^---", text, re.DOTALL | re.MULTILINE)
    line = r"^(license(?:_name)?):[ \t]*(?:\r?\n[ \t]*-[ \t]*)?(\S[^\r\n#]*)"  # a text, or the first of a list
    named: dict[str, str] = {
        key: value.strip(" \t'\"[]") for key, value in re.findall(line, front[1] if front else "", re.MULTILINE)
    }
    licence = named.get("license", "")
    return named.get("license_name", licence) if licence in ("other", "unknown") else licence


# --- where they are ----------------------------------------------------------------------------------


def _check_place(name: str) -> None:
    if name.startswith(FOLDER):
        folder = Path(name.removeprefix(FOLDER)).expanduser()
        if not folder.is_dir():
            raise PodiumError(f"--model {name}: there is no folder {folder}; correct its name")
    elif not re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", name.removeprefix(HUB)):
        raise PodiumError(f"--model {name}: a repository is written {HUB}OWNER/NAME or {HUB}OWNER/NAME@REVISION")


def _asks_hub(name: str) -> bool:
    """Returns whether the files come from a hub that answers."""
    return name.startswith(HUB) and hub_answers()


def _find(name: str, file: str, is_online: bool) -> Path | None:
    """Returns a file of the folder, or of the repository, fetched if needed; None if it has none, or none is cached."""
    if name.startswith(FOLDER):
        path = Path(name.removeprefix(FOLDER)).expanduser() / file
        return path if path.is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    repository, _, revision = name.removeprefix(HUB).partition("@")
    try:
        return Path(hf_hub_download(repository, file, revision=revision or None))
    except LocalEntryNotFoundError as error:
        if is_online:
            raise _refused(name, error) from None
        return None
    except EntryNotFoundError:
        return None
    except Exception as error:  # the client raises many kinds of errors
        raise _refused(name, error) from None


def _has(name: str, file: str, is_online: bool) -> bool:
    """Returns whether the folder, the repository or, without the hub, its cache has a file; fetches nothing."""
    if name.startswith(FOLDER):
        return _find(name, file, is_online) is not None
    from huggingface_hub import get_hf_file_metadata, get_token, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    repository, _, revision = name.removeprefix(HUB).partition("@")
    if not is_online:
        return isinstance(try_to_load_from_cache(repository, file, revision=revision or None), str | os.PathLike)
    try:
        get_hf_file_metadata(hf_hub_url(repository, file, revision=revision or None), token=get_token())
    except EntryNotFoundError:
        return False
    except Exception as error:
        raise _refused(name, error) from None
    return True


def _refused(name: str, error: Exception) -> PodiumError:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    page = f"{endpoint_of_hub()}/{name.removeprefix(HUB).partition('@')[0]}"
    if isinstance(error, GatedRepoError):
        return PodiumError(f"{name} is for those who accept its terms: accept them on {page}, then run: hf auth login")
    if isinstance(error, RepositoryNotFoundError):
        return PodiumError(
            f"{name}: the hub has no such repository, or it is private; correct the name, or run: hf auth login"
        )
    if isinstance(error, RevisionNotFoundError):
        return PodiumError(f"{name}: the repository has no such revision; take one of {page}/commits/main")
    return PodiumError(
        f"{name}: the hub does not give it ({first_line(error)}); run the same command again, or bring its files, and"
        f" give them with {FOLDER}FOLDER"
    )


def _unreachable(name: str, file: str) -> WeightsUnreachable:
    return WeightsUnreachable(
        f"{name}: {endpoint_of_hub()} does not answer, and the hub cache ({hub_cache()}) does not hold its {file};"
        f" bring the cache from a machine with a network, or a folder with its files, and give that with {FOLDER}FOLDER"
    )
