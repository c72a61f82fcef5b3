"""`--cost`: a submission decides by what mistakes cost, says what that saves, and can be rebuilt."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from by_array import targets_of
from layouts import IMAGES, TABLES, load_files, table
from podium.basics.errors import PodiumError
from podium.blending.choose_decision import decide_by_cost
from podium.blending.cost import Costs, find_costs
from podium.blending.held_out import HeldOut
from tiny import Podium, assert_says, done, one_line

GOOD = table("true,cat,dog", "cat,0,1", "dog,5,0")


def test_the_answer_that_is_expected_to_cost_least_is_given() -> None:
    """Of an image that is a dog with a third, `dog` costs 2/3 on average and `cat` 5/3."""
    truth = np.arange(60) % 3 // 2
    probs = np.tile([2 / 3, 1 / 3], (60, 1))
    held_out = HeldOut(probs[None], targets_of(truth), np.arange(60) % 5, np.arange(60))
    costs = Costs("costs.csv", np.array([[0.0, 1.0], [5.0, 0.0]]))
    judged, decided = decide_by_cost(held_out, probs, "accuracy", costs)
    assert set(decided.argmax(1)) == {1}
    assert judged.is_taken
    assert costs.mean_of(held_out.targets, probs) == pytest.approx(5 / 3)
    assert costs.mean_of(held_out.targets, decided) == pytest.approx(2 / 3)
    assert judged.gain.gain == pytest.approx(-1 / 3)  # in accuracy it is a loss, which is said
    plain = Costs("costs.csv", 1.0 - np.eye(2))
    assert (decide_by_cost(held_out, probs, "accuracy", plain)[1].argmax(1) == probs.argmax(1)).all()


def test_a_file_and_the_card_say_the_same(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, TABLES)
    assert find_costs(competition, None) is None
    (tmp_path / "costs.csv").write_text(table("true,dog,cat", "dog,0,5", "cat,1,0"))
    of_file = find_costs(competition, tmp_path / "costs.csv")
    of_card = find_costs(load_files(tmp_path, [], {}, "[cost]\ndog = { cat = 5 }"), None)
    assert of_file is not None
    assert of_card is not None
    assert of_file.matrix.tolist() == of_card.matrix.tolist() == [[0, 1], [5, 0]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD.replace("cat,0,1", "cat,-1,1"), "answering 'cat' as 'cat', which is right, must cost"),
        (GOOD.replace("dog,5,0", "dog,nan,0"), "answering 'dog' as 'cat', which is a mistake, must cost"),
        (GOOD.replace("dog,5,0", "dgo,5,0"), "no class 'dgo'; did you mean dog"),
        (GOOD.replace("true,cat,dog", "true,cat,fox"), "no column 'dog'"),
        (GOOD.replace("dog,5,0\n", ""), "no row for dog"),
        (GOOD + "dog,1,0\n", "line 4: a second row for 'dog'"),
    ],
)
def test_a_matrix_that_does_not_fit_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    competition = load_files(tmp_path, IMAGES, TABLES)
    (tmp_path / "costs.csv").write_text(text)
    with pytest.raises(PodiumError) as refused:
        find_costs(competition, tmp_path / "costs.csv")
    assert "costs.csv" in str(refused.value)
    assert problem in str(refused.value)


@pytest.mark.parametrize("card", ['task = "several_labels"', 'wants = "probs"'])
def test_only_single_labels_have_costs(tmp_path: Path, card: str) -> None:
    competition = load_files(tmp_path, IMAGES, TABLES, card)
    (tmp_path / "costs.csv").write_text(GOOD)
    with pytest.raises(PodiumError, match="single label"):
        find_costs(competition, tmp_path / "costs.csv")


def test_a_submission_decides_by_costs_and_is_rebuilt(two_runs: Path, podium: Podium) -> None:
    names = ["blue", "green", "lonely", "red"]
    costs = pd.DataFrame(1.0 - np.eye(4), index=names, columns=names)
    costs["red"] = [0.001, 0.001, 0.001, 0.0]  # to say red costs next to nothing
    costs.to_csv(two_runs / "costs.csv", index_label="true")
    words = ("submit", "-c", "tiny", "--runs", "idle", "--cost", two_runs / "costs.csv", "--anyway")
    out, err = done(podium(*words))
    assert_says(err, "costs.csv", "% less")
    written = Path(out.strip())
    assert set(pd.read_csv(written)["predict"]) == {"red"}
    assert json.loads(written.with_suffix(".json").read_text())["decision"]["kind"] == "least_cost"
    content = written.read_bytes()
    written.unlink()
    done(podium("submit", "-c", "tiny", "--from", written.with_suffix(".json")))
    assert written.read_bytes() == content
    assert "--decision none" in one_line(podium(*words, "--decision", "none"))
