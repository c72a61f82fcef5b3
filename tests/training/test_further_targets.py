"""Columns that only training has are learned beside the answers: the card's `also`."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from podium.competition.load import load
from podium.models.model_file import load_model
from podium.training.augment import TrainView
from podium.training.fold_loss import loss_of_further
from podium.training.learner import Learner
from second_round import first_of
from templates import copied
from tiny import FAST, Podium, done, one_line, podium_at, run_of, stop_in_step, write_card, write_competition
from training.learners import context_of

TRAIN = ("train", *FAST, "--device", "cpu", "--folds", "0", "--epochs", "3", "--lr", "1e-3")


def with_further_columns(root: Path) -> None:
    """Makes a project whose table has a height, a site and a blank here and there."""
    folder = write_competition(root)
    with (folder / "train.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    lines = [[*header, "height", "site", "code"]]
    for number, row in enumerate(rows):
        height = "" if number % 6 == 0 else f"{number * 1.5 + 3}"
        lines.append([*row, height, ("north", "south", "", "east")[number % 4], f"code {number}"])
    with (folder / "train.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
    write_card(root, 'also = ["height", "site"]')
    podium_at(root, "folds", "-c", "tiny", "--k", "2")


further = copied(with_further_columns)


def test_numbers_and_texts_are_told_apart_and_blanks_are_unknown(further: Path) -> None:
    competition = load("tiny", further)
    assert competition.further is not None
    height, site = competition.further.columns
    assert (height.classes, height.part) == ((), slice(0, 1))
    assert (set(site.classes), site.part) == ({"north", "south", "east"}, slice(1, 4))
    values = competition.further.of(competition.train["id"].tolist())
    assert np.isnan(values[::6, 0]).all()
    assert not np.isnan(values[1:6, 0]).any()
    assert np.isnan(values[2::4, 1:]).all()
    assert np.nanmean(values[:, 0]) == pytest.approx(0, abs=1e-5)
    assert np.nanstd(values[:, 0]) == pytest.approx(1, abs=1e-5)
    known = values[~np.isnan(values[:, 1]), 1:]
    assert (known.sum(1) == 1).all()


def test_cells_that_list_labels_teach_each_of_them(further: Path, podium: Podium) -> None:
    table = further / "data" / "raw" / "tiny" / "train.csv"
    header, *lines = table.read_text().splitlines()
    lists = ("red|round", "round", "", "red|big", "big")
    rows = [f"{line},{lists[number % 5]}" for number, line in enumerate(lines)]
    table.write_text("\n".join([f"{header},tags", *rows]) + "\n")
    write_card(further, 'also = ["tags", "height"]')
    found = load("tiny", further).further
    assert found is not None
    tags, height = found.columns
    assert (tags.classes, tags.separator, height.part) == (("big", "red", "round"), "|", slice(3, 4))
    values = found.of(load("tiny", further).train["id"].tolist())[:5, :3]
    assert values[[0, 1, 3, 4]].tolist() == [[0, 1, 1], [0, 0, 1], [1, 1, 0], [1, 0, 0]]
    assert np.isnan(values[2]).all()
    logits, targets = torch.zeros(2, 4), torch.tensor([[0.0, 1.0, 1.0, 0.5], [float("nan")] * 4])
    loss = loss_of_further(found, [0.5, 0.5], logits, targets)
    assert loss.item() == pytest.approx((np.log(2) + 0.25) / 2)
    _, err = done(podium(*TRAIN, "--model", "test_vit", "--name", "tags"))
    assert "also learns tags (3 labels, several an image), height (numbers)" in err


def test_podium_data_says_what_is_learned_beside(further: Path, podium: Podium) -> None:
    out, _ = done(podium("data", "-c", "tiny"))
    assert "height (numbers), site (3 classes)" in out
    assert 'also = ["height", "site"]' in podium("data", "-c", "tiny", "--card")[1]


MODELS = ["test_vit", "test_convnext", "test_resnet", "deit_tiny_distilled_patch16_224"]


@pytest.mark.parametrize("model", first_of(["test_vit", "test_resnet"], MODELS))
def test_a_model_learns_them_and_its_file_is_as_without(further: Path, podium: Podium, model: str) -> None:
    for name in ("with", "without"):
        _, err = done(podium(*TRAIN, "--model", model, "--name", name))
        assert ("also learns height (numbers), site (3 classes)" in err) == (name == "with")
        write_card(further, "")
    (own, spec), (other, _) = (load_model(run_of(further, name).weights_path(0)) for name in ("with", "without"))
    assert {key: value.shape for key, value in own.state_dict().items()} == {
        key: value.shape for key, value in other.state_dict().items()
    }
    assert len(spec.classes) == 4
    assert any(not own.state_dict()[key].equal(value) for key, value in other.state_dict().items())
    done(podium("submit", "-c", "tiny", "--runs", "with"))


def test_the_backbone_learns_from_them(further: Path) -> None:
    """The gradient of the further loss reaches it once the further outputs have weights."""
    with context_of(further, "also", model="test_vit", lr=1e-2) as context:
        learner = Learner(context, 0)
        images = learner.lessons.images(context.images, TrainView(context.recipe, learner.spec))
        batch = images.load([(0, index) for index in range(8)])
        assert isinstance(batch, tuple)
        assert batch[1].shape == (8, 4 + 4)
        for _ in range(3):
            assert learner.step(*batch).isfinite()
        inputs, targets = learner.prepare(*batch)
        learner.model.train()
        outputs = learner.model(inputs)
        assert context.further is not None
        loss = loss_of_further(context.further, context.further.known_shares, outputs[:, 4:], targets[:, 4:])
        gradient = torch.autograd.grad(loss, learner.model.patch_embed.proj.weight)[0]  # type: ignore[union-attr, arg-type]
        assert gradient.abs().max() > 0
        learner.model.eval()
        assert learner.model(inputs).shape == (8, 4)


def test_the_loss_is_the_mean_over_known_cells(further: Path) -> None:
    columns = load("tiny", further).further
    assert columns is not None
    outputs = torch.randn(25, 4, generator=torch.Generator().manual_seed(0))
    targets = torch.from_numpy(columns.of(load("tiny", further).train["id"].tolist()))
    heights = ~targets[:, 0].isnan()
    sites = ~targets[:, 1].isnan()
    squared = (outputs[heights, 0] - targets[heights, 0]).square().mean()
    crossed = torch.nn.functional.cross_entropy(outputs[sites, 1:], targets[sites, 1:])
    loss = loss_of_further(columns, columns.known_shares, outputs, targets)
    assert loss.item() == pytest.approx((squared + crossed).item() / 2, rel=1e-4)


def test_other_columns_cannot_go_on(further: Path, podium: Podium) -> None:
    command = (*TRAIN, "--model", "test_vit", "--name", "run")
    stop_in_step(podium, 1, *command)
    write_card(further, 'also = ["height"]')
    assert "the further columns of the card changed" in one_line(podium(*command))


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        ('also = ["hight"]', "train.csv has no column 'hight', which also names"),
        ('also = ["code"]', "also names 'code', of which only 'code 0' has two images or more"),
        ('also = ["target"]', "also names 'target', which holds the answers; leave it out"),
        ('also = ["id"]', "also names 'id', which holds the ids of the images; leave it out"),
        ("also = [1]", "also must be a list of texts"),
        ('also = "height"', "also must be a list of texts"),
    ],
)
def test_columns_that_teach_nothing_are_refused(further: Path, podium: Podium, card: str, problem: str) -> None:
    write_card(further, card)
    assert problem in one_line(podium(*TRAIN, "--model", "test_vit"))
