"""The head of nearest neighbours: what it computes, what it keeps in a file, and how it finds rare identities."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from podium.basics.errors import PodiumError
from podium.models.build import build_model
from podium.models.model_file import load_model, save_model
from podium.models.neighbours_head import NeighboursHead, put_neighbours
from podium.models.tensors import load_tensors
from podium.options.layers.heads import put_linear_head
from podium.options.option_kinds import NEIGHBOURS
from tiny import recipe_of


def head_of(features: Tensor, class_of: Tensor, classes: int, k: int, temperature: float) -> NeighboursHead:
    head = NeighboursHead(features.shape[1], classes, len(features), k)
    head.remember(features, class_of)
    head.temperature.fill_(temperature)
    return head.eval()


def by_numpy(head: NeighboursHead, queries: Tensor, classes: int) -> NDArray[np.float64]:
    """Computes the outputs image by image and class by class."""
    gallery, own = head.gallery.double().numpy(), queries.double().numpy()
    cosines = own / np.linalg.norm(own, axis=1, keepdims=True) @ gallery.T
    class_of, outputs = head.class_of.numpy(), np.zeros((len(own), classes))
    for row, similar in zip(outputs, cosines / float(head.temperature), strict=True):
        voters = np.argsort(-similar)[: head.k]
        for number in range(classes):
            votes = similar[voters][class_of[voters] == number]
            known = similar[class_of == number]
            row[number] = np.log(np.exp(votes).sum()) if len(votes) else known.max() if len(known) else similar.min()
    return outputs


@pytest.mark.parametrize("k", [1, 4, 40])
def test_the_outputs_are_those_of_a_search_by_hand(k: int) -> None:
    rng = torch.Generator().manual_seed(k)
    features, queries = torch.randn(40, 16, generator=rng), torch.randn(9, 16, generator=rng)
    class_of = torch.randint(0, 6, (40,), generator=rng)  # of 8 classes: two have no image
    head = head_of(features, class_of, 8, k, 0.1)
    outputs = head(queries)
    assert np.allclose(outputs.numpy(), by_numpy(head, queries, 8), atol=1e-4)
    assert torch.allclose(head(7 * queries), outputs, atol=1e-4)  # lengths do not count
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.allclose(head(queries), outputs, atol=1e-5)  # not rounded to 16 bits


def test_all_probabilities_are_positive_also_of_classes_without_images() -> None:
    features = torch.eye(4)
    head = head_of(features, torch.tensor([0, 0, 1, 1]), classes=5, k=2, temperature=0.05)
    probs = head(features).softmax(1)
    assert (probs > 0).all()
    assert probs.argmax(1).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("k", [1, 3])
def test_300_identities_with_two_to_four_images_are_found(k: int) -> None:
    rng = torch.Generator().manual_seed(0)
    directions = torch.randn(300, 64, generator=rng)
    class_of = torch.arange(300).repeat_interleave(torch.arange(300) % 3 + 2)
    noise = torch.randn(len(class_of), 64, generator=rng)
    head = head_of(directions[class_of] + 0.5 * noise, class_of, 300, k, 0.05)
    probs = head(directions + 0.5 * torch.randn(300, 64, generator=rng)).softmax(1)
    right = probs.argmax(1) == torch.arange(300)
    assert right.float().mean() > 0.97
    shuffled = class_of[torch.randperm(len(class_of), generator=rng)]
    wrong = head_of(directions[class_of], shuffled, 300, k, 0.05)(directions).argmax(1)
    assert (wrong == torch.arange(300)).float().mean() < 0.05


@pytest.mark.parametrize(("name", "pool"), [("test_vit", "both"), ("test_resnet", "gem"), ("test_convnext", "default")])
def test_a_saved_head_answers_to_the_bit_and_takes_half_the_bytes(tmp_path: Path, name: str, pool: str) -> None:
    path = tmp_path / "model.safetensors"
    model, spec = build_model(recipe_of(name, pool=pool, head="neighbours:2"), ["a", "b", "c"])
    assert spec.head == "linear"  # until its images are known
    head = put_neighbours(model, name, 5, 2)
    head.remember(torch.randn(head.gallery.shape), torch.tensor([0, 1, 1, 2, 2]))
    spec = spec.__class__(**{**spec.__dict__, "head": NEIGHBOURS, "neighbours": (5, 2)})
    save_model(path, model, spec)
    loaded, loaded_spec = load_model(path)
    images = torch.rand(2, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(loaded.eval()(images), model.eval()(images))
    assert loaded_spec == spec
    (gallery,) = [part for part_name, part in load_tensors(path)[0].items() if part_name.endswith("gallery")]
    assert gallery.dtype == torch.float16


def test_it_can_be_exported() -> None:
    rng = torch.Generator().manual_seed(0)
    head = head_of(torch.randn(30, 8, generator=rng), torch.arange(30) % 4, 4, 3, 0.1)
    queries = torch.randn(5, 8, generator=rng)
    batch = torch.export.Dim("batch")
    program = torch.export.export(head, (queries[:2],), dynamic_shapes={"features": {0: batch}})
    assert torch.allclose(program.module()(queries), head(queries), atol=1e-5)


def test_a_head_that_compares_directions_can_be_exchanged_for_a_linear_one() -> None:
    model, _ = build_model(recipe_of("test_efficientnet", head="arcface"), ["a", "b", "c"])
    put_linear_head(model)
    assert type(model.get_classifier()) is torch.nn.Linear  # type: ignore[operator]
    assert model.eval()(torch.rand(2, 3, 64, 64)).shape == (2, 3)


def test_a_model_with_two_classifiers_is_refused() -> None:
    model, _ = build_model(recipe_of("deit_tiny_distilled_patch16_224", image_size=224), ["a", "b"])
    with pytest.raises(PodiumError, match="cannot use --head neighbours: it has several classifiers, or none"):
        put_neighbours(model, "deit_tiny_distilled_patch16_224", 3, 1)
