"""Soups average the weights of runs, accepted on images that no model has seen."""

import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest
import torch

from forked_podium import exit_status, start_podium
from podium.basics import disk
from podium.basics.disk import write_json
from podium.models.model_file import load_model
from podium_annex import soup
from second_round import first_of
from templates import copied
from tiny import FAST, Podium, assert_same_fold, done, one_line, podium_at, run_of, write_competition, write_file

TRAIN = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--lr", "3e-3", "--epochs", "3")


def with_runs_of_three_folds(root: Path) -> None:
    write_competition(root, per_class=12)
    podium_at(root, "folds", "-c", "tiny", "--k", "3")
    podium_at(root, *TRAIN, "--name", "a", "--epochs", "2")
    podium_at(root, *TRAIN, "--name", "b", "--from", "a", "--epochs", "1")
    podium_at(root, "train", *FAST, "--model", "test_resnet", "--name", "other", "--epochs", "1")


runs = copied(with_runs_of_three_folds)


def test_the_mean_is_that_of_the_weights() -> None:
    parts = [{"w": torch.tensor([value]), "steps": torch.tensor(number)} for number, value in enumerate((1.0, 4.0))]
    target = {"w": torch.zeros(1), "steps": torch.tensor(7)}
    soup.mean_weights(target, parts, [2, 1])
    assert target["w"].item() == pytest.approx(2.0)
    assert target["steps"].item() == 7


def test_a_soup_is_a_run_like_any_other(runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soup, "_choose", lambda soups, judges: soup.Mixture((3, 1), 32))
    _, err = done(podium("soup", "a", "b", "-c", "tiny", "--name", "mixed", "--workers", "0"))
    assert "fold 2  3 x a, 1 x b" in err
    (said,) = [line for line in err.splitlines() if "the best of its runs: accuracy" in line]
    assert said.split()[2] in ("a,", "b,")
    assert "on 36 held-out images (95 % over images: " in said
    own, first, second = (load_model(run_of(runs, name).weights_path(1))[0] for name in ("mixed", "a", "b"))
    for name, weight in own.state_dict().items():
        expected = 0.75 * first.state_dict()[name] + 0.25 * second.state_dict()[name]
        assert torch.allclose(weight, expected, atol=1e-6)
    recipe = run_of(runs, "mixed").recipe
    assert recipe["soup"]["0"] == {"a": 3, "b": 1}
    out, _ = done(podium("submit", "-c", "tiny", "--runs", "mixed", "--anyway"))
    assert json.loads(Path(out.strip()).with_suffix(".json").read_text())["runs"][0]["recipe"]["soup"]
    for words in (("report",), ("predict", "mixed", runs / "data")):
        done(podium(*words, "-c", "tiny"))
    out, _ = done(podium("compare", "-c", "tiny", "--runs", "mixed", "b"))
    assert "soup of a+b" in out
    (cost,) = [line.split() for line in out.split("\n\n")[1].splitlines() if line.startswith("mixed")]
    assert cost[-4:] == ["?"] * 4  # nothing was trained
    assert "is a soup of other runs; verify these: a, b" in one_line(podium("verify", "mixed", "-c", "tiny"))


def die_at(name: str, count: int) -> None:
    """Kills this process when it has written `count` files of this name, one of them under its temporary name."""
    rename, renamed = disk.rename_durably, []

    def rename_or_die(old: Path, new: Path) -> None:
        renamed.extend([new] * (new.name == name))
        if len(renamed) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(old, new)

    disk.rename_durably = rename_or_die


@pytest.mark.slow
@pytest.mark.parametrize("moment", first_of([("oof.npz", 2)], [("oof.npz", 2), ("recipe.json", 1), ("oof.npz", 1)]))
def test_a_killed_soup_is_resumed_by_the_same_command(runs: Path, podium: Podium, moment: tuple[str, int]) -> None:
    words = ("soup", "a", "b", "-c", "tiny", "--workers", "0", "--name")
    killed = start_podium(("--root", runs, *words, "killed"), runs / "log", before=partial(die_at, *moment))
    assert exit_status(killed) == -signal.SIGKILL, (runs / "log").read_text()
    assert list(runs.rglob(".*.tmp"))
    for own in ("killed", "undisturbed"):
        done(podium(*words, own))
    for fold in range(3):
        assert_same_fold(run_of(runs, "killed"), run_of(runs, "undisturbed"), fold)
    assert run_of(runs, "killed").recipe == run_of(runs, "undisturbed").recipe
    assert not list(runs.rglob(".*.tmp"))
    assert "exists already" in one_line(podium(*words, "killed"))


def test_a_run_and_its_frozen_head_are_averaged(runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    done(podium("train", *FAST, "--model", "test_vit", "--linear", "--name", "head"))
    monkeypatch.setattr(soup, "_choose", lambda soups, judges: soup.Mixture((1, 1), 32))
    done(podium("soup", "a", "head", "-c", "tiny", "--name", "between", "--workers", "0"))
    end, start, own = (
        load_model(run_of(runs, name).weights_path(0))[0].state_dict() for name in ("a", "head", "between")
    )
    assert all(torch.allclose(own[name], (end[name] + start[name]) / 2, atol=1e-6) for name in own)
    done(podium("submit", "-c", "tiny", "--runs", "between", "--anyway"))


def test_the_images_of_a_fold_choose_nothing_of_its_own_model(runs: Path, podium: Podium) -> None:
    asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    original = soup._choose

    def choose(soups: soup.SoupScores, judges: list[int]) -> soup.Mixture:
        before = set(soups.scores)
        soups.scores.clear()
        chosen = original(soups, judges)
        asked.append((tuple(judges), tuple(sorted({fold for _, fold in soups.scores}))))
        assert before or asked
        return chosen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(soup, "_choose", choose)
        status, _, err = podium("soup", "a", "b", "-c", "tiny", "--name", "mixed", "--workers", "0")
    assert status == 0, err
    assert asked == [((1, 2), (1, 2)), ((0, 2), (0, 2)), ((0, 1), (0, 1))]


def test_an_ingredient_is_accepted_only_if_the_score_rises() -> None:
    class Bowl:
        runs, size, sizes = ("a", "b"), 32, (32, 48)

        def __init__(self, gain: float, best: int = 0) -> None:
            self.gain, self.best = gain, best

        def score(self, mixture: soup.Mixture, fold: int) -> float:
            share = mixture.counts[1] / sum(mixture.counts)
            gain = self.gain * (0.25 - (share - 0.5) ** 2) - 0.01 * share  # alone, the first is better
            return gain + (0.1 if mixture.size == self.best else 0.0)

    assert soup._choose(Bowl(0.0), [0, 1]) == ((1, 0), 32)  # type: ignore[arg-type]
    assert soup._choose(Bowl(1.0), [0, 1]) == ((1, 1), 32)  # type: ignore[arg-type]
    assert soup._choose(Bowl(1.0, best=48), [0, 1]) == ((1, 1), 48)  # type: ignore[arg-type]


def test_all_predictions_have_the_views_of_the_first_run(
    runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = run_of(runs, "b").recipe
    write_json(run_of(runs, "b").path / "recipe.json", {**recipe, "views": "none"})
    monkeypatch.setattr(soup, "_choose", lambda soups, judges: soup.Mixture((0, 1), 32))
    _, err = done(podium("soup", "a", "b", "-c", "tiny", "--name", "mixed", "--workers", "0"))
    own = run_of(runs, "mixed")
    assert own.recipe["views"] == run_of(runs, "a").recipe["views"] == "mirror"
    assert "a soup gains nothing" not in err  # the views are not those of b
    assert (own.out_of_fold(1).probs == run_of(runs, "b").out_of_fold(1).probs).all()  # b was trained with mirror, too
    assert own.recipe["soup_sha256"]["1"].count("+") == 1


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("a",), "a soup needs two runs or more"),
        (("a", "other"), "cannot be averaged: their"),
        (("a", "nobody"), "no run 'nobody'"),
    ],
)
def test_runs_that_cannot_be_averaged_are_refused(
    runs: Path, podium: Podium, names: tuple[str, ...], problem: str
) -> None:
    assert problem in one_line(podium("soup", *names, "-c", "tiny", "--name", "mixed"))
    assert not run_of(runs, "mixed").path.exists()


def test_a_soup_takes_the_place_of_no_run(runs: Path, podium: Podium) -> None:
    assert "exists already" in one_line(podium("soup", "a", "b", "-c", "tiny", "--name", "a"))


def test_todays_labels_judge_and_dropped_images_do_not_count(runs: Path, podium: Podium) -> None:
    corrections = runs / "data" / "competitions" / "tiny.corrections.csv"
    write_file(corrections, "id,label,why\n003,drop,blurred\n")
    done(podium("soup", "a", "b", "-c", "tiny", "--workers", "0"))
    assert len(run_of(runs, "soup-a-b").out_of_fold(0).id) == len(run_of(runs, "a").out_of_fold(0).id)


def test_another_size_of_prediction_is_tried(runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soup, "_choose", lambda soups, judges: soup.Mixture((1,), 48 if 0 in judges else 32))
    _, err = done(podium("soup", "other", "-c", "tiny", "--test-sizes", "48", "--name", "larger", "--workers", "0"))
    assert "fold 1  1 x other, at 48 px" in err
    run = run_of(runs, "larger")
    assert [load_model(run.weights_path(fold))[1].test_size for fold in (0, 1, 2)] == [32, 48, 48]
    assert run.recipe["test_size"] == 48
    assert not (run.out_of_fold(1).probs == run_of(runs, "other").out_of_fold(1).probs).all()
    assert (run.out_of_fold(0).probs == run_of(runs, "other").out_of_fold(0).probs).all()
    done(podium("submit", "-c", "tiny", "--runs", "larger", "--anyway"))


def test_a_size_that_a_model_does_not_take_is_refused(runs: Path, podium: Podium) -> None:
    one_line(
        podium("soup", "a", "-c", "tiny", "--test-sizes", "8", "--name", "larger", "--workers", "0"),
        "cannot take images of 8 pixels",
        "leave 8 out of --test-sizes",
    )
    assert not run_of(runs, "larger").path.exists()
