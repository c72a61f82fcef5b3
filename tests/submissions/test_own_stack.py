"""podium submit --blend NAME: a function of the project learns from the runs' predictions and the tables."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from extension_file import write_extension
from tiny import CAMERAS, Podium, assert_rebuilt, assert_says, done, one_line, tell_classes

SOURCE = """
import numpy as np

from podium import extend

@extend.stack
def neighbours(inputs, truth):
    from sklearn.neighbors import KNeighborsClassifier

    print(list(inputs))
    return KNeighborsClassifier(5).fit(inputs, truth).predict_proba

@extend.stack
def narrow(inputs, truth):
    return lambda inputs: np.ones((len(inputs), 2))

@extend.stack
def empty(inputs, truth):
    return lambda inputs: np.full((len(inputs), 4), np.nan)

@extend.stack
def forgetful(inputs, truth):
    return None
"""
HERE = ("submit", "-c", "tiny", "--runs", "idle")


@pytest.fixture
def cameras(two_runs: Path) -> Path:
    """That project with a column of both tables that tells the class, as a number."""
    tell_classes(two_runs)
    write_extension(two_runs, SOURCE)
    return two_runs


def test_a_stack_of_ones_own_is_judged_recorded_and_rebuilt(cameras: Path, podium: Podium) -> None:
    out, err = done(podium(*HERE, "--blend", "neighbours"))
    assert_says(err, "'mean class 2', 'mean class 3', 'camera'", "neighbours, chosen with --blend")
    assert "falls by so much without it: camera 0." in err
    csv = Path(out.strip())
    answers = pd.read_csv(csv, dtype=str)
    train = pd.read_csv(cameras / "data/raw/tiny/train.csv", dtype=str)
    classes = sorted(set(train["target"]))
    assert answers["predict"].tolist() == [classes[int(CAMERAS[int(number) % 3])] for number in answers["id"]]
    content = json.loads(csv.with_suffix(".json").read_text())
    recorded = content["blend"]["stack"]
    assert (recorded["own"], recorded["file"]) == ("neighbours", "mine.py")
    assert content["estimate"]["score"] == 1
    assert "neighbours of mine.py" in podium("lineage", csv)[1]
    assert_rebuilt(podium, csv)
    assert "is fitted for a submission only" in one_line(
        podium("predict", "-c", "tiny", csv, cameras / "data/raw/tiny/train_image")
    )
    again = ("submit", "--from", csv.with_suffix(".json"))
    (cameras / "mine.py").write_text(SOURCE.replace("Classifier(5)", "Classifier(1)"))
    one_line(podium(*again), "its stack neighbours of mine.py has changed in mine.py", "restore it")
    (cameras / "mine.py").write_text(SOURCE.replace("def neighbours", "def others"))
    one_line(podium(*again), "its stack neighbours of mine.py is not there", "`extend`")
    content["blend"]["stack"]["file"] = 3
    csv.with_suffix(".json").write_text(json.dumps(content))
    one_line(podium(*again), "its stack", "restore it")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("narrow", ("mine.py: the stack narrow predicted (", "columns")),
        ("empty", ("mine.py: the stack empty predicted something that is not a number",)),
        ("forgetful", ("the stack forgetful returned NoneType, not a function", "predict_proba")),
        ("neighbors", ("no blending strategy 'neighbors'", "did you mean neighbours")),
    ],
)
def test_what_cannot_be_a_stack_is_refused(cameras: Path, podium: Podium, name: str, words: tuple[str, ...]) -> None:
    one_line(podium(*HERE, "--blend", name), *words)


def test_a_class_that_a_part_lacks_gets_nearly_no_probability() -> None:
    from sklearn.tree import DecisionTreeClassifier

    from podium.blending.own_stack import OwnStack
    from podium.tasks.task import ONE_LABEL

    model = DecisionTreeClassifier().fit(pd.DataFrame({"a": [0.0, 1.0]}), [0, 2])
    stack = OwnStack(ONE_LABEL.name, names=("a",), predict=model.predict_proba)
    probs = stack.of_inputs(np.zeros((2, 3)), np.array([[0.0, 1.0], [1.0, 1.0]]))
    assert probs == pytest.approx(np.array([[1, 0, 0], [0, 0, 1]]), abs=1e-6)
    assert probs.sum(1) == pytest.approx(1)
