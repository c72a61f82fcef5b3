"""From files to a submission where no training image has the unknown class: Happywhale's form, made of colours."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from podium.competition.find.csv_files import read_table
from podium.competition.load import load
from podium.folds.folds_csv import folds_path
from podium.models.build import build_model
from podium.saved_runs.run_folder import Run
from podium.submissions.predict_images import find_models, predict_images
from templates import copied
from tiny import Podium, done, one_line, podium_at, recipe_of
from whales import SLUG, UNKNOWN, write_whale_card, write_whales

FAST = ("-c", SLUG, "--model", "test_resnet", "--weights", "none", "--image-size", "32", "--workers", "0")
LINEAR = ("train", *FAST, "--linear", "--views", "none", "--name", "head")
CARD = f'unknown = "{UNKNOWN}"\nunknown_share = 0.2\n'


def trained_whales(root: Path) -> None:
    """Makes a project with a linear run of four folds."""
    write_whales(root)
    write_whale_card(root, CARD)
    podium_at(root, "folds", "-c", SLUG, "--k", "4")
    podium_at(root, *LINEAR)


whales = copied(trained_whales)


def submitted(podium: Podium, root: Path, *flags: str) -> tuple[float, "pd.Series[str]", str]:
    """Returns the score of a submission on the hidden solution, its answers, and what was said."""
    out, err = done(podium("submit", "-c", SLUG, *flags))
    path = Path(out.strip())
    out, _ = done(podium("score", path, "--solution", root / "solution.csv", "-c", SLUG))
    return json.loads(out)["score"], read_table(path).set_index("image")["predictions"], err


@pytest.mark.annex
def test_the_decision_places_the_unknown_class_and_scores_higher(whales: Path, podium: Podium) -> None:
    decided, answers, err = submitted(podium, whales, "--name", "decided")
    plain, plain_answers, _ = submitted(podium, whales, "--name", "plain", "--decision", "none")
    assert "decision: unknown threshold for map_at_5" in err
    assert decided > plain + 0.02
    truth = read_table(whales / "solution.csv").set_index("image")["predictions"]
    is_first = answers.str.split().str[0] == UNKNOWN
    assert is_first[truth == UNKNOWN].mean() > 0.5 > 0.2 > is_first[truth != UNKNOWN].mean()
    assert not (plain_answers.str.split().str[0] == UNKNOWN).any()
    (threshold,) = json.loads((whales / "submissions" / SLUG / "decided.json").read_text())["decision"]["numbers"]
    assert is_first.to_dict() == (_best_known(whales / "runs" / SLUG / "head") < threshold).to_dict()


def _best_known(run: Path) -> "pd.Series[float]":
    """Returns the highest probability of a known class for each test image: the mean of the models that know it."""
    sums: Any = 0.0
    models: Any = 0
    for fold in range(4):
        held_out, test = (np.load(run / f"fold{fold}" / name) for name in ("oof.npz", "test.npz"))
        assert test["classes"][-1] == UNKNOWN
        sums, models = sums + test["probs"].astype(float), models + ~np.isin(test["classes"], held_out["unseen"])
    assert 3 in models  # some class is unseen by a model
    return pd.Series((sums / models)[:, :-1].max(1), test["id"])


@pytest.mark.annex
def test_own_images_are_answered_as_those_of_the_test(whales: Path, podium: Podium) -> None:
    submitted(podium, whales, "--name", "any", "--decision", "none")
    folds, blend = find_models("head", SLUG, whales)
    test = np.load(whales / "runs" / SLUG / "head" / "fold0" / "test.npz")["id"].tolist()
    predictions = predict_images(folds, blend, [whales / "data" / "raw" / SLUG / "test_images" / name for name in test])
    best = _best_known(whales / "runs" / SLUG / "head")
    known = [name != UNKNOWN for name in predictions.classes]
    assert predictions.probs[:, known].max(1) == pytest.approx(best.to_numpy(), abs=1e-5)


@pytest.mark.annex
def test_an_exported_model_asks_only_those_that_were_taught_a_class() -> None:
    from podium_annex.exporting.whole_model import WholeModel

    models, specs = zip(*(build_model(recipe_of("test_vit"), ("a", "b", UNKNOWN)) for _ in range(2)), strict=True)
    specs = tuple(replace(spec, task="one_label", unknown=UNKNOWN, unknown_share=0.1) for spec in specs)
    first = replace(specs[0], unseen=("a",))
    images = torch.randint(256, (2, 64, 64, 3), dtype=torch.uint8)

    def answers(*numbers: int) -> Any:
        own = [first if number == 0 else specs[1] for number in numbers]
        with torch.inference_mode():
            return WholeModel([models[number].eval() for number in numbers], own, "mirror")(images)

    both, taught = answers(0, 1), answers(1)
    assert torch.allclose(both[:, 0], taught[:, 0])
    assert torch.allclose(both[:, 1:], (answers(0)[:, 1:] + taught[:, 1:]) / 2)
    assert not torch.allclose(answers(0)[:, 0], taught[:, 0])


def test_held_out_images_count_as_unknown_and_teach_their_own_label(whales: Path, podium: Podium) -> None:
    competition, run = load(SLUG, whales), Run(whales / "runs" / SLUG / "head")
    folds = read_table(folds_path(SLUG, whales)).set_index("id")
    unknown = 0
    for fold in run.finished():
        taught = set(folds["target"][folds["fold"] != str(fold)])
        for held_out in (run.out_of_fold(fold), run.out_of_fold(fold).with_labels(competition.label_of)):
            for name, target in zip(held_out.id, held_out.target.values.tolist(), strict=True):
                own = folds["target"][str(name)]
                assert held_out.classes[target] == (own if own in taught else UNKNOWN)
                unknown += own not in taught
            share = held_out.probs[:, held_out.classes.index(UNKNOWN)]
            assert share == pytest.approx(0.2)  # what the card says, for every image
    certificate = json.loads(folds_path(SLUG, whales).with_suffix(".json").read_text())
    assert certificate["unknown"]["images"] * 2 == unknown > 0
    assert certificate["classes_not_trained"] == certificate["uneven_classes"] == []
    (scored,) = (float(row["score"]) for row in json.loads(podium("compare", "-c", SLUG, "--json")[1]))
    epochs = [run.history(fold)[-1].scores["map_at_5"] for fold in run.finished()]
    counts = [len(run.out_of_fold(fold).id) for fold in run.finished()]
    assert scored == pytest.approx(np.average(epochs, weights=counts))


@pytest.mark.annex
def test_a_share_that_differs_in_the_test_moves_the_threshold(whales: Path, podium: Podium) -> None:
    """The same held-out images: the more unknown ones the card expects in the test, the higher the threshold."""

    def threshold(share: str, name: str) -> float:
        write_whale_card(whales, CARD.replace("0.2", share))
        submitted(podium, whales, "--name", name)
        return float(json.loads((whales / "submissions" / SLUG / f"{name}.json").read_text())["decision"]["numbers"][0])

    assert threshold("0.01", "few") < threshold("0.9", "many")


def test_no_unseen_class_is_called_a_wrong_label(whales: Path, podium: Podium) -> None:
    out, _ = done(podium("audit", "-c", SLUG, "--suspects"))
    assert UNKNOWN not in out
    assert "whose class its model has not seen" in out


@pytest.mark.parametrize(
    "flags",
    [
        ("--balance", "1", "--pseudo", "head"),
        ("--class-weights", "balanced"),
        ("--adjust", "1", "--clean", "drop", "--loss", "focal"),
    ],
    ids=["balanced", "weighted", "adjusted"],
)
def test_options_that_count_classes_train(whales: Path, podium: Podium, flags: Sequence[str]) -> None:
    words = ("--epochs", "1", "--batch-size", "32", "--folds", "0", "--name", "other")
    _, err = done(podium("train", *FAST, *words, *flags))
    assert "nan" not in err
    assert Run(whales / "runs" / SLUG / "other").finished() == [0]


@pytest.mark.annex
def test_commands_that_look_at_the_competition_succeed(whales: Path, podium: Podium) -> None:
    for words in (("report",), ("audit",), ("folds", "--verify"), ("data", "--card")):
        out, _ = done(podium(words[0], "-c", SLUG, *words[1:]))
        if words[0] == "folds":
            assert f"scored as {UNKNOWN}" in out
    done(podium("train", *FAST, "--dry-run"))


def test_another_share_does_not_resume_the_run(whales: Path, podium: Podium) -> None:
    write_whale_card(whales, CARD.replace("0.2", "0.3"))
    assert "unknown_share" in one_line(podium(*LINEAR))
