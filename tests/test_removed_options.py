"""Options of earlier versions: refused with what became of them; runs that had them predict as always."""

import json
from pathlib import Path

import pytest

from podium.basics.errors import PodiumError
from podium.options.recipe import KNOBS, check_options
from podium.options.removed_options import REMOVED
from podium.saved_runs.run_folder import Run
from tiny import FAST, Podium, done, one_line, run_of


@pytest.mark.parametrize("name", REMOVED)
def test_the_refusal_says_what_became_of_it(tiny: Path, podium: Podium, name: str) -> None:
    assert name not in KNOBS
    one_line(
        podium("train", *FAST, f"--{name.replace('_', '-')}", "1"),
        f"there is no such option any more: {REMOVED[name].instead}",
    )
    with pytest.raises(PodiumError, match=r"CARD: no option .* there is no such option any more"):
        check_options({name: REMOVED[name].value}, "CARD: ")


def test_a_run_with_another_value_predicts_and_cannot_be_resumed(tiny: Path, podium: Podium) -> None:
    train = ("train", *FAST, "--device", "cpu", "--model", "test_resnet", "--folds", "0", "--epochs", "1")
    done(podium(*train))
    path = run_of(tiny, "test_resnet").path / "recipe.json"
    for value, is_usual in ((REMOVED["cap"].value, True), (9, False)):
        path.write_text(json.dumps({**json.loads(path.read_text()), "cap": value}))
        status, _, err = podium(*train)
        assert (status == 0) == is_usual
    assert "cap was 9, and there is no such option any more" in err
    done(podium("submit", "-c", "tiny", "--workers", "0"))


def test_a_move_of_ones_own_may_have_the_name_of_a_removed_option(tiny: Path, podium: Podium) -> None:
    done(podium("train", *FAST, "--device", "cpu", "--model", "test_resnet", "--folds", "0", "--epochs", "1"))
    run = run_of(tiny, "test_resnet")
    path = run.path / "recipe.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "clip": 2.0}))
    Run(run.path).check_same({"clip": 2.0})
    with pytest.raises(PodiumError, match=r"clip was 2.0, and there is no such option any more"):
        Run(run.path).check_same({})
