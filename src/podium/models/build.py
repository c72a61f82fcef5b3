"""Builds a timm model with a new head; its weights come from the hub or a file, or are random.

Errors of timm and the hub's client become one sentence each.
"""

import warnings
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.basics.disk import sha256
from podium.basics.errors import PodiumError
from podium.basics.image_size import ImageSize, area_of, sides_of, size_of
from podium.basics.terminal import first_line, say
from podium.competition.value_range import ValueRange
from podium.models.described_models import UNSTATED, in_timm, is_described, read_description, takes_any_size
from podium.models.hub import JOIN, backbones_in, package_to_use, weights_unreachable
from podium.models.inner_weights import SOURCES, Inner, Load, describe_parts, recorded_sources, watch_loading
from podium.models.look_inside import inner_backbones, look_inside, modules_of
from podium.models.tensors import load_tensors
from podium.models.weights_file import load_exactly, other_model, refuse_other_models
from podium.options.moves.joined_columns import FILM, NONE, kind_of_columns
from podium.options.moves.shape import CROP
from podium.options.recipe import Options, Recipe, has_neighbours
from podium.options.recipe_defaults import Backbone, Data, fill_in_defaults, learns_anew, row_of
from podium.options.recipe_options import ARCFACE, LINEAR, POOLS, TIMM_POOL
from podium.tasks.task import ONE_LABEL, TASKS

if TYPE_CHECKING:
    from torch import Tensor, nn

STEPS = (8, 14, 16, 32)  # patches and strides of models
PERMISSIVE = ("apache-2.0", "mit", "bsd-3-clause", "bsd", "cc-by-4.0", "cc0-1.0", "openrail", "openrail++")


@dataclass(frozen=True)
class ModelSpec:
    """All that is needed to rebuild a model and to feed it; stored in the metadata of its weights."""

    architecture: str
    classes: tuple[str, ...]
    image_size: ImageSize
    test_size: ImageSize
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    crop: float  # share of the centre's sides that prediction sees
    fit: str  # "crop": the centre; "squash": the whole image, in another shape; "pad": the whole image, with borders
    source: str  # of the weights: a tag of the hub, a file and its hash, or none
    operators: str = "timm"  # as in the recipe; files from before there was a choice do not say it
    task: str = ONE_LABEL.name  # what the outputs stand for; as above
    norm: str = "train"  # as in the recipe; as above
    scales: tuple[tuple[float, float], ...] = ()  # of numbers: the mean and deviation that an output is measured in
    target_scale: str = "none"  # on which they are measured (number_scale.py); files from before it do not say it
    curves: tuple[tuple[tuple[float, float], ...], ...] = ()  # of that scale, if it is that of ranks
    value_range: ValueRange | None = None  # in which the images were decoded
    pool: str = TIMM_POOL  # as in the recipe; as above
    head: str = LINEAR  # as in the recipe; as above
    neighbours: tuple[int, int] | None = None  # of that head: the training images that it keeps, and how many vote
    unknown: str = ""  # the class that no training image has; its output is never taught
    unknown_share: float = 0.0  # its probability, the same for every image
    unseen: tuple[str, ...] = field(default=(), compare=False)  # classes that its fold holds out whole, if there is one
    part: str | None = None  # that it sees of every image (images/cut.py), if not all of it
    columns: str = NONE  # as in the recipe; files from before there was a choice do not say it
    column_count: int = 0  # how many numbers beside an image the model gets
    channels: tuple[int, ...] = ()  # that it gets of images that are seen at once; none: red, green and blue of one
    model_args: tuple[Options, ...] = ()  # that timm builds it with, for each backbone, if its description names any

    @property
    def parts(self) -> list[slice]:
        """Returns the parts of the classes in which the probabilities sum to 1."""
        task = TASKS[self.task]
        return task.parts(len(self.classes), task.columns_of(self.classes))

    @property
    def channel_count(self) -> int:
        return len(self.channels) or 3

    def as_json(self) -> dict[str, Any]:
        """Returns the fields; the later ones only where they say something, so that other models keep their bits."""
        usual = {
            "target_scale": "none",
            "curves": (),
            "value_range": None,
            "part": None,
            "pool": TIMM_POOL,
            "head": LINEAR,
            "neighbours": None,
            "unknown": "",
            "unknown_share": 0.0,
            "unseen": (),
            "columns": NONE,
            "column_count": 0,
            "channels": (),
            "model_args": (),
        }
        return {name: value for name, value in asdict(self).items() if (name, value) not in usual.items()}


# --- what timm knows of a name -----------------------------------------------------------------------


def _timm() -> Any:
    """Returns timm, with the models of the zoo in its registry."""
    import timm

    from podium.models.registry import register_zoo

    register_zoo()
    return timm


def resolve_recipe(given: Options, card: Options, data: Data | None = None) -> Recipe:
    """Returns the whole recipe, with the defaults that suit the model and the data."""
    from_scratch = learns_anew(str({**card, **given}.get("weights", "pretrained")))
    return fill_in_defaults(given, card, backbone_of(given["model"], from_scratch), data)


def model_options(name: str, from_scratch: bool) -> Options:
    """Returns the options that the model decides."""
    return row_of(backbone_of(name, from_scratch), from_scratch)[1]


@cache
def backbone_of(name: str, from_scratch: bool = False) -> Backbone:
    """Returns what the defaults of a run depend on; of several backbones, the first decides.

    A model of one's own around a pretrained one is fine-tuned as that one is.
    """
    if len(names := backbones_in(name)) > 1 or (not from_scratch and (names := list(inner_backbones(name)))):
        return backbone_of(names[0])._replace(weights="")  # a row for large weights would pool in its own way
    config, modules = _weights_config(name), modules_of(name)
    size = config.input_size[-1] if config else 224
    test_size = config.test_input_size[-1] if config and config.test_input_size else size
    weights = f"{config.architecture}.{config.tag}" if config and config.tag else name
    return Backbone(family_of(name), modules.kind, size, test_size, modules.has_batch_norm, weights)


def family_of(name: str) -> str:
    """Returns the last part of the module that registers the model."""
    return module_of(name).rpartition(".")[2]


def module_of(name: str) -> str:
    """Returns the module that registers the model: timm's, the zoo's, or an extension."""
    return str(_timm().models.model_entrypoint(in_timm(name)[0]).__module__)


def licence_in_timm(name: str) -> str | None:
    """Returns the licence of a model's pretrained weights; None if there are no weights. catalogue.py knows it, too."""
    config = _weights_config(name)
    has_weights = config is not None and (config.has_weights or is_described(name))
    return str(config.license or "unknown") if has_weights else None


def size_of_weights(name: str) -> int:
    """Returns the size in pixels that the weights were made for."""
    return int(_weights_config(name).input_size[-1])


def _weights_config(name: str) -> Any:
    """Returns timm's description of the weights that a name, with or without a tag, means."""
    timm = _timm()
    if is_described(name):
        return _described_config(name)
    try:
        return timm.get_pretrained_cfg(name)
    except RuntimeError:
        architecture = name.partition(".")[0]
        tags = [tag for tag in timm.list_pretrained() if tag.partition(".")[0] == architecture]
        raise PodiumError(f"no weights '{name}'; there are {', '.join(tags) or 'none'}") from None


def _described_config(name: str) -> Any:
    """Returns what a description says of its weights; the architecture knows the names of its layers."""
    from timm.models import PretrainedCfg

    description = read_description(name)
    own = _timm().get_pretrained_cfg(description.architecture, allow_unregistered=True) or PretrainedCfg()
    of_layers = {key: getattr(own, key) for key in ("classifier", "first_conv", "fixed_input_size")}
    return PretrainedCfg(**{"architecture": description.architecture, **of_layers, **description.facts})


# --- building ----------------------------------------------------------------------------------------


def build_model(
    recipe: Recipe,
    classes: Sequence[str],
    start: Path | None = None,
    backbone: Path | None = None,
    further: Options | None = None,
    recorded_source: str = "",
    column_count: int = 0,
    channels: tuple[int, ...] = (),
) -> tuple["nn.Module", ModelSpec]:
    """Returns a model with an output per class, and the description of its inputs; without classes, its features.

    `start` is the model of a fold with the same classes: all of its weights are loaded, also those of the head.
    `backbone` is a file of the pretraining, or of another competition's run, that the recipe names; its head is left
    out. `further` are options of timm. A run whose `recorded_source` is a package loads that package, even if the hub
    has the weights now. `column_count` is how many numbers beside an image the model of --columns gets; without any, it
    is built as without that option. Of `channels` other than three, timm repeats the weights of the first layer.
    """
    if JOIN in recipe.model:
        return _build_several(recipe, classes, recorded_source)
    if has_neighbours(recipe.head):  # which takes the place of the linear one when its images are known
        recipe = recipe.but(head=LINEAR)
    if not column_count:
        recipe = recipe.but(columns=NONE)
    if inner_backbones(recipe.model):
        if channels:
            raise PodiumError(f"--adjacent: {recipe.model} is built around other models; take one of timm's")
        return _build_around(recipe, classes, start, recorded_source, further or {}, column_count)
    name, weights = recipe.model, str(start or backbone or recipe.weights)
    source, overlay = _weights_to_load(recipe, classes, start, backbone, recorded_source)
    options: dict[str, Any] = {**recipe.model_options(), **(further or {})}
    if channels:
        _refuse_other_channels(name, backbone)
        options["in_chans"] = len(channels)
    if overlay:
        options["pretrained_cfg_overlay"] = overlay
    model = _create(name, recipe.image_size, pretrained=weights != "none", num_classes=len(classes), **options)
    if classes and not is_timms_head(recipe):
        _change_head(model, name, recipe, recipe.image_size, column_count)
        _load_own_head(model, name, recipe, start, overlay)
    if weights != "none" and not getattr(model, "pretrained_cfg", None):
        _fill_plain_module(model, name, start)
    if recipe.test_size != recipe.image_size:
        check_sizes(model, name, {recipe.test_size}, recipe.test_size_remedy)
    if weights == "pretrained":
        config: Any = model.pretrained_cfg
        source = source or f"{config['architecture']}.{config['tag']} from {config['hf_hub_id']}"
        config["state_dict"] = None  # of a package; the model has its own copy
        warn_of_licence(source, str(config.get("license") or "unknown"))
    architecture, arguments = in_timm(name) if is_described(name) or weights != "none" else (name.partition(".")[0], {})
    spec = _describe(model, architecture, recipe, classes, source, column_count)
    spec = replace(spec, channels=channels)
    return model, replace(spec, model_args=(arguments,)) if arguments else spec


def _refuse_other_channels(name: str, weights: Path | None) -> None:
    """Refuses weights of a run that saw other channels than three: timm would leave out a layer of them."""
    first = (_weights_config(name) and _weights_config(name).first_conv) or ()
    for layer in (first,) if isinstance(first, str) else first:
        tensor = load_tensors(weights)[0].get(f"{layer}.weight") if weights else None
        if tensor is not None and tensor.shape[1] != 3:
            raise PodiumError(
                f"{weights}: its first layer has {tensor.shape[1]} channels; take weights that have three"
            )


def _describe(
    model: "nn.Module",
    architecture: str,
    recipe: Recipe,
    classes: Sequence[str],
    source: str,
    column_count: int = 0,
    weights_config: Options | None = None,
) -> ModelSpec:
    facts: Options = {"fit": CROP, **dict(fact for move in recipe.moves for fact in move.spec().items())}
    return ModelSpec(
        architecture=architecture,
        classes=tuple(classes),
        image_size=recipe.image_size,
        test_size=recipe.test_size,
        source=source,
        **{**facts, **({} if classes else {"pool": TIMM_POOL})},
        head=recipe.head if classes else LINEAR,
        columns=kind_of_columns(recipe),
        column_count=column_count,
        **_data_config(model, recipe.test_size, weights_config),
    )


def _build_several(recipe: Recipe, classes: Sequence[str], recorded_source: str) -> tuple["nn.Module", ModelSpec]:
    names = backbones_in(recipe.model)
    recorded = recorded_source.split(SOURCES) if SOURCES in recorded_source else [""] * len(names)
    parts = [
        build_model(recipe.but(model=name), (), recorded_source=source)
        for name, source in zip(names, recorded, strict=True)
    ]
    architecture = JOIN.join(spec.architecture for _, spec in parts)
    source = "none" if recipe.weights == "none" else SOURCES.join(spec.source for _, spec in parts)
    model = _join([model for model, _ in parts], recipe.image_size, recipe.test_size, len(classes))
    arguments = tuple(next(iter(spec.model_args), {}) for _, spec in parts)
    spec = replace(parts[0][1], architecture=architecture, source=source, classes=tuple(classes))
    return model, replace(spec, model_args=arguments if any(arguments) else ())


def _join(backbones: "list[nn.Module]", size: ImageSize, test_size: ImageSize, classes: int) -> "nn.Module":
    from podium.models.several import SeveralBackbones

    configs = [_data_config(backbone, test_size) for backbone in backbones]
    features = sum(try_size(backbone, size)[0][1] for backbone in backbones)
    return SeveralBackbones(backbones, [(config["mean"], config["std"]) for config in configs], features, classes)


def _build_around(
    recipe: Recipe, classes: Sequence[str], start: Path | None, recorded_source: str, further: Options, columns: int
) -> tuple["nn.Module", ModelSpec]:
    """Builds a model of one's own around models of timm, which get their pretrained weights; the rest is new."""
    name, pretrained = recipe.model, recipe.weights == "pretrained" and start is None
    recorded = recorded_sources(recorded_source, len(inner_backbones(name)))
    sources: list[str] = []

    def give(inner: Inner, load: Load) -> None:
        before = recorded[len(sources)] if len(sources) < len(recorded) else ""
        sources.append(_give_weights(inner, load, before))

    if not pretrained and start is None and recipe.weights != "none":
        raise PodiumError(
            f"{name} takes no file of weights, because it is not built with timm's build_model_with_cfg; use --weights"
            " pretrained, for what is timm's, or --weights none"
        )
    with watch_loading(give) as inners:
        options = {**recipe.model_options(), **further}
        model = _create(name, recipe.image_size, pretrained=pretrained, num_classes=len(classes), **options)
    if classes and not is_timms_head(recipe):
        _change_head(model, name, recipe, recipe.image_size, columns)
    if start is not None:
        load_exactly(model, load_tensors(start)[0], start, name)
    if recipe.test_size != recipe.image_size:
        check_sizes(model, name, {recipe.test_size}, recipe.test_size_remedy)
    source = _folds_of(start) if start is not None else "none"
    if pretrained:
        source = describe_parts(model, inners, sources)
        warn_of_licence(source, SOURCES.join(str(inner.config.get("license") or "unknown") for inner in inners))
    config = None if recipe.weights == "none" else _weights_config(inner_backbones(name)[0])
    return model, _describe(model, name, recipe, classes, source, columns, config and config.to_dict())


def _give_weights(inner: Inner, load: Load, recorded: str) -> str:
    """Lets timm load the weights, from a package if they come from one; returns their source."""
    package, source = package_to_use(inner.name, recorded), ""
    if package is not None:
        names = look_inside(package.model, lambda model: list(model.state_dict()))  # with the head that is left out
        inner.config["state_dict"], source = package.tensors(names), package.source
    try:
        load()
    except Exception as error:  # timm, the hub's client and the file formats raise many kinds of errors
        raise _explain_failed_build(inner.name, inner.config["input_size"][-1], "of the hub", error) from None
    inner.config["state_dict"] = None  # the model has its own copy
    return source or f"{inner.name} from {inner.config.get('hf_hub_id') or inner.config.get('url')}"


def _folds_of(weights: Path) -> str:
    """Returns what a model of a run's fold is recorded to start from: RUN/fold0/model.safetensors is one."""
    return f"the folds of {weights.parent.parent.name}"


def _weights_to_load(
    recipe: Recipe, classes: Sequence[str], start: Path | None, backbone: Path | None, recorded_source: str
) -> tuple[str, dict[str, Any]]:
    """Returns where the weights come from, and how timm is to load them; no source: timm decides."""
    if start is not None and not is_timms_head(recipe):
        return _folds_of(start), {"state_dict": _backbone_in(start, recipe), "num_classes": 0}
    if start is not None:
        return _folds_of(start), {"file": str(start), "num_classes": len(classes)}
    if backbone is not None:  # no classes: timm then keeps the new head, however many classes that has
        return f"{recipe.weights} sha256:{sha256(backbone)}", {"file": str(backbone), "num_classes": 0}
    if recipe.weights == "none":
        return "none", {}
    if recipe.weights != "pretrained":
        path = Path(recipe.weights)
        return f"{path.name} sha256:{sha256(path)}", {"file": str(path), "custom_load": path.suffix == ".npz"}
    if is_described(recipe.model):
        path, source = read_description(recipe.model).weights()
        return source, {"file": str(path)}
    package = package_to_use(recipe.model, recorded_source)
    if package is None:
        return "", {}
    names = _create_unchecked(recipe.model, recipe.image_size, pretrained=False).state_dict()
    return package.source, {"state_dict": package.tensors(names)}


def _backbone_in(start: Path, recipe: Recipe) -> "dict[str, Tensor]":
    """Returns what timm can load of a model with another head than timm's: all that timm's model has, but no head."""
    from podium.options.layers.heads import head_layers

    tensors, _ = load_tensors(start)
    model = _create_unchecked(recipe.model, recipe.image_size, pretrained=False)
    head = {parameter for layer in head_layers(model) for parameter in layer.parameters()}
    return {
        name: tensors.get(name, tensor)
        for name, tensor in model.state_dict(keep_vars=True).items()
        if tensor not in head
    }


def _load_own_head(model: "nn.Module", name: str, recipe: Recipe, start: Path | None, overlay: Options) -> None:
    """Loads what timm has not loaded of the model of a fold."""
    if start is not None:
        tensors, _ = load_tensors(start)
        if _has_further_layers(recipe):  # whose code may be other code by now
            load_exactly(model, tensors, start, name)
        rest = {name: tensor for name, tensor in tensors.items() if name not in overlay["state_dict"]}
        model.load_state_dict(rest, strict=False)
        overlay["state_dict"].clear()  # the model has its own copy


def _fill_plain_module(model: "nn.Module", name: str, start: Path | None) -> None:
    """Loads the model of a fold into a module of an extension; timm loads weights only into what its builder makes."""
    if start is None:
        raise PodiumError(
            f"{name} takes no weights, because it is not built with timm's build_model_with_cfg; if a model of timm is"
            " in it, hand `pretrained` on to timm.create_model (docs/extend.md), else use --weights none"
        )
    load_exactly(model, load_tensors(start)[0], start, name)


def build_with_own_classes(name: str, weights: str) -> tuple["nn.Module", ModelSpec]:
    """Returns a model with the classifier that its weights have; the classes of ImageNet have their names."""
    from timm.data import ImageNetInfo, infer_imagenet_subset

    if weights not in ("pretrained", "none") and not Path(weights).is_file():
        raise PodiumError(f"--weights must be pretrained, none or a file; there is no file '{weights}'")
    config = _weights_config(name)
    count = (config and config.num_classes) or 1000
    subset = infer_imagenet_subset({"num_classes": count})
    classes = ImageNetInfo(subset).label_descriptions() if subset else [f"class {number}" for number in range(count)]
    return build_model(resolve_recipe({"model": name, "weights": weights}, {}), classes)


def rebuild_model(spec: ModelSpec) -> "nn.Module":
    """Returns the model without its weights."""
    names = backbones_in(spec.architecture)
    arguments = spec.model_args or ({},) * len(names)
    if len(names) > 1:
        backbones = [
            _create(name, spec.image_size, pretrained=False, num_classes=0, **own)
            for name, own in zip(names, arguments, strict=True)
        ]
        return _join(backbones, spec.image_size, spec.test_size, len(spec.classes))
    with watch_loading():  # a function that always asks for pretrained weights must not wait for a hub: others follow
        classes = {"num_classes": len(spec.classes)}
        if spec.channels:
            classes["in_chans"] = spec.channel_count
        model = _create(spec.architecture, spec.image_size, pretrained=False, **{**arguments[0], **classes})
    if not is_timms_head(spec):
        _change_head(model, spec.architecture, spec, spec.image_size, spec.column_count)
    return model


def is_timms_head(options: Recipe | ModelSpec) -> bool:
    """Returns whether timm builds the whole head, from the pooling on."""
    return not flags_of_head(options)


def flags_of_head(options: Recipe | ModelSpec) -> str:
    """Returns the flags that change the end of the model."""
    usual = {"pool": TIMM_POOL, "head": LINEAR, "columns": NONE}
    return " ".join(f"--{name} {own}" for name, off in usual.items() if (own := getattr(options, name)) != off)


def _has_further_layers(options: Recipe | ModelSpec) -> bool:
    is_own = options.head not in (LINEAR, ARCFACE) or POOLS[options.pool] is not None
    return is_own or kind_of_columns(options) != NONE


def _change_head(
    model: "nn.Module", name: str, options: Recipe | ModelSpec, size: ImageSize, column_count: int
) -> None:
    """Exchanges pooling and classifier; refuses a model that does not use those that timm's names speak of."""
    from podium.models.neighbours_head import put_neighbours
    from podium.options.layers.column_layers import put_columns
    from podium.options.layers.heads import put_head
    from podium.options.layers.pooling import pool_features

    changed: list[nn.Module] = [pool_features(model, options.pool, name)] if options.pool != TIMM_POOL else []
    if isinstance(options, ModelSpec) and options.neighbours is not None:
        changed.append(put_neighbours(model, name, *options.neighbours))
    elif options.head != LINEAR:
        changed.append(put_head(model, name, options.head))
    elif kind_of_columns(options) != NONE:
        changed.append(put_columns(model, name, column_count, kind_of_columns(options) == FILM))
    calls: list[nn.Module] = []
    handles = [module.register_forward_hook(lambda module, *_: calls.append(module)) for module in changed]
    _, problem = try_size(model, size)
    for handle in handles:
        handle.remove()
    if problem or calls != changed:
        flags = flags_of_head(options)
        raise PodiumError(f"{name} cannot use {flags}: its head works in a way of its own; leave that out")


def check_sizes(model: "nn.Module", name: str, sizes: Collection[ImageSize], remedy: str) -> None:
    """Refuses image sizes that the model does not take."""
    for size in sorted(sizes, key=area_of):
        _, problem = try_size(model, size)
        if problem:
            raise PodiumError(f"{name} cannot take images of {size} pixels ({problem}) besides its own size; {remedy}")


def _create(name: str, image_size: ImageSize, pretrained: bool, **options: Any) -> "nn.Module":
    from timm.data import resolve_model_data_config

    model = _create_unchecked(name, image_size, pretrained, **options)
    shape, problem = try_size(model, image_size)
    if problem:
        inner = inner_backbones(name)
        native_size = size_of_weights(inner[0]) if inner else resolve_model_data_config(model)["input_size"][-1]
        fitting = next((size for size in _fitting_sizes(image_size) if _takes(name, size)), native_size)
        raise PodiumError(f"{name} cannot take images of {image_size} pixels ({problem}); try --image-size {fitting}")
    if shape != (1, options["num_classes"] or shape[-1]):
        raise PodiumError(f"the output of {name} is {tuple(shape)}, not one number per class; take another model")
    return model


def _create_unchecked(name: str, image_size: ImageSize, pretrained: bool, **options: Any) -> "nn.Module":
    timm = _timm()
    config, (architecture, arguments) = _weights_config(name), in_timm(name)
    options = {**arguments, **options}
    options |= size_options(name, image_size, options)
    if is_described(name):
        options["pretrained_cfg"] = config.to_dict()
    file = options.get("pretrained_cfg_overlay", {}).get("file", "")
    classifier = (config and config.classifier) or ()
    classifiers = (classifier,) if isinstance(classifier, str) else classifier
    try:
        with warnings.catch_warnings(), refuse_other_models(file, name, classifiers) if file else nullcontext():
            warnings.simplefilter("ignore")
            model: nn.Module = timm.create_model(architecture, pretrained=pretrained, **options)
    except PodiumError:
        raise
    except Exception as error:  # timm, the hub's client and the file formats raise many kinds of errors
        raise _explain_failed_build(name, image_size, file or ("of the hub" if pretrained else ""), error) from None
    return model


def size_options(name: str, image_size: ImageSize, arguments: Options | None = None) -> dict[str, Any]:
    """Returns what timm has to be told of the size: nothing for most models, which take any.

    `arguments` are those that it is built with anyway.
    """
    config, built_with = _weights_config(name), arguments or {}
    if config is None or not config.fixed_input_size or takes_any_size(built_with):
        return {}
    # Weights may be described for another size than that of their architecture.
    own = (_weights_config(in_timm(name)[0]) if is_described(name) else None) or config
    if built_with.get("img_size", own.input_size[-1]) == image_size:
        return {}
    return {"img_size": image_size if isinstance(image_size, int) else sides_of(image_size)}


def sizes_near(size: int) -> list[int]:
    """Returns multiples of the usual patches and strides, the nearest first."""
    multiples = {step * (size // step + more) for step in STEPS for more in (0, 1)}
    return sorted(multiples - {0, size}, key=lambda multiple: (abs(multiple - size), multiple))


def _fitting_sizes(size: ImageSize) -> list[ImageSize]:
    """Returns sizes that a model may take instead, the nearest first; both sides of oblong ones fit one step."""
    if isinstance(size, int):
        return list(sizes_near(size))
    height, width = sides_of(size)
    rounded = [[step * max(1, round(side / step)) for side in (height, width)] for step in STEPS]
    rounded.sort(key=lambda sides: abs(sides[0] - height) + abs(sides[1] - width))
    return [fitting for fitting in (size_of(*sides) for sides in rounded) if fitting != size]


def _takes(name: str, size: ImageSize) -> bool:
    try:
        model = _create_unchecked(name, size, pretrained=False)
    except PodiumError:
        return False
    return not try_size(model, size)[1]


def try_size(model: "nn.Module", size: ImageSize) -> tuple[tuple[int, ...], str]:
    """Returns the shape of the output for an image of this size, or else why the model does not take it."""
    import torch

    model.eval()
    try:
        with torch.inference_mode():
            return tuple(model(torch.zeros(1, _channels_of(model), *sides_of(size))).shape), ""
    except Exception as error:  # every family raises another error
        return (), first_line(error)


def _channels_of(model: "nn.Module") -> int:
    """Returns how many channels a model's images have: timm says which layer sees them first."""
    first = (getattr(model, "pretrained_cfg", None) or {}).get("first_conv") or ()
    names = (first,) if isinstance(first, str) else first
    return next((int(model.get_submodule(name).in_channels) for name in names), 3)  # type: ignore[arg-type]


def _data_config(model: "nn.Module", test_size: ImageSize, given: Options | None = None) -> dict[str, Any]:
    """Returns how the weights expect their images: the model's, or those of a given configuration."""
    from timm.data import resolve_model_data_config

    weights_config: Options = given or getattr(model, "pretrained_cfg", None) or {}
    uses_test_size = (weights_config.get("test_input_size") or (0,))[-1] == test_size
    config = resolve_model_data_config(model, pretrained_cfg=given, use_test_size=uses_test_size)
    return {
        "mean": tuple(config["mean"]),
        "std": tuple(config["std"]),
        "interpolation": config["interpolation"],
        "crop": config["crop_pct"],
    }


def warn_of_licence(source: str, licence: str) -> None:
    if not all(part.lower() in PERMISSIVE for part in licence.split(SOURCES)):
        what = (
            f"for the weights {source} {UNSTATED}"
            if licence == UNSTATED
            else f"the weights {source} are licensed {licence}"
        )
        say(f"podium: warning: {what}: check that your competition allows them")


def _explain_failed_build(name: str, image_size: ImageSize, weights: str, error: Exception) -> PodiumError:
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

    reason = first_line(error)
    if isinstance(error, LocalEntryNotFoundError):
        return weights_unreachable(name)
    if isinstance(error, GatedRepoError):
        return PodiumError(f"the weights of {name} need a licence accepted on the hub and a token: run hf auth login")
    if isinstance(error, HfHubHTTPError):
        return PodiumError(f"the hub does not give the weights of {name}: {reason}; or train with --weights none")
    if "No pretrained weights exist" in reason:
        return PodiumError(f"timm has no pretrained weights for {name}; train from scratch with --weights none")
    if "drop_path" in reason:
        return PodiumError(f"{name} has no stochastic depth; add --drop-path 0")
    if "weights_only" in str(error) or "unpickling" in reason.lower():
        return PodiumError(f"{weights} is not a checkpoint that can be loaded safely ({reason}); use another file")
    if weights and isinstance(error, KeyError):  # timm looks for a parameter to recognise the file's origin
        return other_model(weights, name, f"it lacks {error}")
    model = f"{name} for images of {image_size} pixels"
    if is_described(name):
        return PodiumError(
            f"{model} cannot be built: {reason}; take another, or correct its model_args in a copy of its files, and"
            " give that with local-dir:FOLDER"
        )
    if weights:
        return PodiumError(
            f"{model} cannot be built with the weights {weights}: {reason}; if they are of another model, take another"
            " file or --model"
        )
    return PodiumError(f"{model} cannot be built: {reason}")
