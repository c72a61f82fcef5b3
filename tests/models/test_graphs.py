"""What --compile compiles is one graph, and a second batch compiles nothing."""

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from podium.models.build import build_model
from podium.models.place import place_model
from second_round import first_of
from tiny import recipe_of

CPU = torch.device("cpu")
# The smallest model of each kind.
MODELS = ("test_vit", "test_resnet", "test_convnext")
FURTHER = (
    *("test_efficientnet", "test_coatnet", "test_vit_relpos", "test_nfnet", "test_byobnet"),
    *("test_mambaout", "test_maxvit"),
)


@pytest.mark.parametrize("name", first_of(MODELS[:2], [*MODELS, *FURTHER]))
def test_a_model_is_one_graph_for_all_batches(name: str) -> None:
    graphs: list[GraphModule] = []

    def note(graph: GraphModule, inputs: list[Tensor]) -> GraphModule:
        graphs.append(graph)
        return graph

    model, spec = build_model(recipe_of(name), ("a", "b", "c"))
    normalise = place_model(model, spec, CPU, torch.float32, True)
    torch._dynamo.reset()
    network: nn.Module = torch.compile(model.train(), backend=note, fullgraph=True)  # type: ignore[assignment]
    for seed in (0, 1):
        torch.manual_seed(seed)
        images = normalise(torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8))
        network(images).sum().backward()
    assert len(graphs) == 1
