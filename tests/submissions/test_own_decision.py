"""podium submit --decision NAME: a function of the project decides; its answers are judged, recorded and rebuilt."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import patients
import podium as library
from bars import write_competition as write_bars
from extension_file import write_extension
from several_labels import write_competition as write_stripes
from tiny import Podium, assert_rebuilt, assert_says, done, one_line, write_card

SOURCE = """
from podium import extend

SEEN = []

@extend.decision
def by_camera(ids, probabilities, table):
    print("what a decision prints is no result")
    probabilities[table["camera"] == "odd"] = {answer}
    return probabilities

@extend.decision
def all_red(ids, probabilities, table):
    assert ids == list(probabilities.index) == list(table.index)
    return ["red" for _ in ids]

@extend.metric
def unused(targets, probs):
    return 1.0
"""
RIGHT = SOURCE.replace("{answer}", "0.25")
HERE = ("submit", "-c", "tiny")


@pytest.fixture
def cameras(two_runs: Path) -> Path:
    """That project with a column of both tables: which images have an id that is an odd number."""
    folder = two_runs / "data/raw/tiny"
    for name, source in (("train.csv", "train.csv"), ("test.csv", "sample_submission.csv")):
        table = pd.read_csv(folder / source, dtype=str)
        table["camera"] = ["odd" if int(number) % 2 else "even" for number in table["id"]]
        table.drop(columns="predict", errors="ignore").to_csv(folder / name, index=False)
    write_extension(two_runs, RIGHT)
    return two_runs


def lineage_of(csv: Path) -> dict[str, dict[str, object]]:
    content: dict[str, dict[str, object]] = json.loads(csv.with_suffix(".json").read_text())
    return content


def submitted(podium: Podium, *flags: object) -> tuple[Path, str]:
    out, err = done(podium(*HERE, "--runs", "good", *flags))
    return Path(out.strip()), err


def test_a_decision_of_ones_own_is_in_the_estimate_and_rebuilt_byte_for_byte(cameras: Path, podium: Podium) -> None:
    plain, _ = submitted(podium, "--name", "plain")
    csv, err = submitted(podium, "--decision", "all_red", "--anyway", "--name", "red")
    assert_says(err, "decision: all_red of mine.py for accuracy", "as you ask; it harms here")
    assert set(pd.read_csv(csv)["predict"]) == {"red"}
    before, after = lineage_of(plain), lineage_of(csv)
    recorded = after["decision"]
    assert (recorded["kind"], recorded["name"], recorded["file"]) == ("own", "all_red", "mine.py")
    assert recorded["score_before"] == before["estimate"]["score"]
    assert recorded["score"] == after["estimate"]["score"] == pytest.approx(1 / 3)  # of three colours
    assert after["estimate"]["log_loss"] == before["estimate"]["log_loss"]  # of the blend, for the mean over folds
    assert_rebuilt(podium, csv)
    assert "decision     all_red of mine.py, code " in podium("lineage", csv)[1]


def test_it_gets_the_columns_that_both_tables_have(cameras: Path, podium: Podium) -> None:
    csv, err = submitted(podium, "--decision", "by_camera", "--blend", "best")
    assert "what a decision prints" in err
    answers = pd.read_csv(csv, dtype=str).set_index("id")["predict"]
    assert set(answers[[int(number) % 2 == 1 for number in answers.index]]) == {"blue"}  # the first of equal ones
    assert len(set(answers)) > 1
    assert_rebuilt(podium, csv)
    table = cameras / "data/raw/tiny/test.csv"
    table.write_text(table.read_text().replace("odd", "even"))
    csv.unlink()
    message = one_line(podium("submit", "--from", csv.with_suffix(".json")), "another CSV", "restore")
    assert "the columns of the test table, which the decision may read, have changed" in message


def test_a_rebuild_refuses_other_code_of_the_decision_and_no_other_edit(cameras: Path, podium: Podium) -> None:
    csv, _ = submitted(podium, "--decision", "by_camera")
    file = cameras / "mine.py"
    file.write_text(RIGHT.replace("return 1.0", "return 2.0"))
    assert "mine.py has changed since" in done(podium("submit", "--from", csv.with_suffix(".json")))[1]
    again = ("submit", "--from", csv.with_suffix(".json"))
    file.write_text(RIGHT.replace("= 0.25", "= 1.0"))
    one_line(podium(*again), f"{csv.with_suffix('.json')}: its decision by_camera of mine.py has changed", "restore it")
    file.write_text(RIGHT.replace("def by_camera", "def by_lens"))
    one_line(podium(*again), "its decision by_camera of mine.py is not there", "restore it")
    (cameras / "podium.toml").unlink()
    one_line(podium(*again), "its decision by_camera of mine.py is not there", "`extend`")
    content = lineage_of(csv)
    content["decision"]["sha256"] = 3
    csv.with_suffix(".json").write_text(json.dumps(content))
    one_line(podium(*again), "its decision", "restore it")


def test_the_card_names_it_for_every_submission_and_a_flag_comes_first(cameras: Path, podium: Podium) -> None:
    card = write_card(cameras, 'decision = "all_red"\n')
    csv, _ = submitted(podium, "--anyway", "--name", "of-card")
    assert lineage_of(csv)["decision"]["name"] == "all_red"
    for flag, kind in (("by_camera", "own"), ("none", None), ("auto", None)):
        csv, _ = submitted(podium, "--decision", flag, "--name", f"of-{flag}")
        assert lineage_of(csv).get("decision", {}).get("kind") == kind  # accuracy rewards none
    write_card(cameras, 'decision = "all_read"\n')
    one_line(podium(*HERE), f"{card}: no decision 'all_read'; did you mean all_red?")
    write_card(cameras, 'decision = "all_red"\n[cost]\nred = { blue = 5 }\n')
    one_line(podium(*HERE), "two ways to decide", "delete one of them")


def test_a_name_that_is_not_there_is_answered_with_those_that_are(cameras: Path, podium: Podium) -> None:
    one_line(
        podium(*HERE, "--decision", "wrong"),
        "no decision 'wrong'; there are auto, none, test-shares, by_camera, all_red",
    )
    one_line(podium(*HERE, "--decision", "by_cameras"), "did you mean by_camera?")
    one_line(podium(*HERE, "--decision", "all_red", "--cost", "costs.csv"), "two ways to decide", "leave one of them")
    (cameras / "podium.toml").unlink()
    one_line(podium(*HERE, "--decision", "by_camera"), "there are auto, none, test-shares; docs/extend.md shows")
    csv = submitted(podium)[0]
    one_line(podium("submit", "--from", csv.with_suffix(".json"), "--decision", "none"), "leave out --decision")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return table['lens']", "mine.py, line 5: the decision own: KeyError: 'lens'"),
        ("return table['lens']", "(the table has the columns id, camera)"),
        ("return probabilities.missing", "AttributeError"),
        ("return probabilities[1:]", "returned 35 rows, where the probabilities have 36"),
        ("return probabilities.drop(columns='red')", "returned 3 columns, where the probabilities have 4"),
        ("return probabilities.rename(columns={'red': 'rot'})", "in one of them only: 'red', 'rot'"),
        ("return probabilities.to_numpy()[1:]", "returned 35x4 values; return 36 rows and 4 columns"),
        ("return None", "returned a NoneType; return 36 rows and 4 columns"),
        ("return ids[1:]", "returned 35 values"),
        ("return ['red'] * 35 + ['redd']", "answers 'redd' for the id '035', which is no class; did you mean red?"),
        ("return ids", "answers '000' for the id '000', which is no class; the classes are the texts 'blue'"),
        ("return probabilities.to_numpy().argmax(1)", "which is no class; the classes are the texts 'blue'"),
        ("return probabilities * float('nan')", "returned nan for 'blue' of the id '000', which is no probability"),
        ("return probabilities - 1", "which is no probability"),
        ("return probabilities * 0", "returned only zeros for the id '000'"),
        ("return probabilities.astype(str) + 'x'", "cells that are no numbers"),
        ("SEEN.append(1); return probabilities.pow(len(SEEN))", "in two ways, so no submission could be rebuilt"),
    ],
)
def test_what_cannot_be_an_answer_is_refused_with_its_place(
    cameras: Path, podium: Podium, body: str, problem: str
) -> None:
    source = "from podium import extend\nSEEN = []\n@extend.decision\ndef own(ids, probabilities, table):\n    "
    write_extension(cameras, source + body + "\n")
    message = one_line(podium(*HERE, "--decision", "own"), "the decision own", problem)
    assert "mine.py" in message
    assert not list(cameras.glob("submissions/tiny/*.csv"))


def test_without_a_test_table_there_are_no_columns(two_runs: Path, podium: Podium) -> None:
    write_extension(two_runs, RIGHT)
    one_line(podium(*HERE, "--decision", "by_camera"), "KeyError: 'camera'", "no columns: there is no test table")
    done(podium(*HERE, "--decision", "all_red", "--anyway"))


def test_a_column_of_answers_is_never_shown(cameras: Path, podium: Podium) -> None:
    """The test table may have a blank one, which a decision could take for one that it may use."""
    table = cameras / "data/raw/tiny/test.csv"
    pd.read_csv(table, dtype=str).assign(target="red").to_csv(table, index=False)
    write_extension(cameras, RIGHT.replace('table["camera"] == "odd"', 'table["target"] == "red"'))
    one_line(podium(*HERE, "--decision", "by_camera"), "KeyError: 'target'", "(the table has the columns id, camera)")


def test_the_name_of_a_value_of_the_flag_is_taken(cameras: Path, podium: Podium) -> None:
    write_extension(cameras, RIGHT.replace("def all_red", "def auto"))
    one_line(podium(*HERE), "there is a decision 'auto' already")


def test_a_decision_whose_code_no_lineage_could_keep_is_refused(cameras: Path) -> None:
    competition = library.load("tiny", cameras)

    @library.extend.decision
    def of_a_notebook(ids: list[str], probabilities: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
        return probabilities

    with pytest.raises(library.PodiumError, match="not written in a file that `extend` names"):
        library.submit(competition, decision="of_a_notebook")


def predicted_by_chance(competition: library.Competition) -> pd.DataFrame:
    """Returns predictions of all images, as `podium.frame` does, that are right a little more often than not."""
    rng, names, roles = np.random.default_rng(0), list(competition.classes), []
    folds = competition.folds(k=2)
    for role, images in (("train", folds), ("test", competition.test)):
        probs = rng.uniform(0.05, 0.95, (len(images), len(names)))
        if role == "train" and competition.task.are_labels:
            probs += 0.5 * competition.targets.are_true(len(names))
        probs /= probs.sum(1, keepdims=True) if competition.task.sums_to_one else 1.5
        rows = pd.DataFrame(probs, columns=names).assign(role=role, id=images["id"].to_numpy())
        roles.append(rows.assign(fold=folds["fold"].to_numpy() if role == "train" else pd.NA))
    return pd.concat(roles, ignore_index=True)


def test_it_decides_for_a_patient_with_several_images(tmp_path: Path, podium: Podium) -> None:
    patients.write_patients(tmp_path)
    for name in ("train", "test"):  # two patients share a room
        table = tmp_path / f"data/raw/patients/{name}.csv"
        rooms = pd.read_csv(table, dtype=str)
        rooms.assign(room=[str(int(own[1:]) // 2) for own in rooms["patient_id"]]).to_csv(table, index=False)
    source = """
from podium import extend

@extend.decision
def one_answer_for_each_room(ids, probabilities, table):
    return probabilities.groupby(table["room"]).transform("mean")
"""
    write_extension(tmp_path, source)
    competition = library.load("patients", tmp_path)
    name = "one_answer_for_each_room"
    csv = library.submit(competition, probs=predicted_by_chance(competition), name="mine", decision=name)
    answers = pd.read_csv(csv, dtype=str).set_index("patient_id")["ill"]
    assert answers.index.tolist() == competition.answer_ids
    assert answers["p36"] == answers["p37"]
    assert answers.nunique() == 5  # rooms
    assert lineage_of(csv)["decision"]["score"] == lineage_of(csv)["estimate"]["score"]
    assert_rebuilt(podium, csv)


@pytest.mark.parametrize("kind", ["tags", "marks", "numbers"])
def test_it_decides_for_several_labels_and_for_numbers(tmp_path: Path, podium: Podium, kind: str) -> None:
    if kind == "numbers":
        write_bars(tmp_path, ["height", "width"])
    else:
        write_stripes(tmp_path, as_tags=kind == "tags", count=30, tests=6)
    (slug,) = (path.name for path in (tmp_path / "data/raw").iterdir())
    source = """
from podium import extend

@extend.decision
def the_last_but_one(ids, probabilities, table):
    probabilities.loc[ids[0]] = [0.25] * (probabilities.shape[1] - 1) + [0.75]
    return probabilities
"""
    write_extension(tmp_path, source)
    competition = library.load(slug, tmp_path)
    probs = predicted_by_chance(competition)
    plain = library.submit(competition, probs=probs, name="plain", decision="none")
    csv = library.submit(competition, "plain", name="decided", decision="the_last_but_one")
    first, *others = csv.read_text().splitlines()[1:]
    assert others == plain.read_text().splitlines()[2:]
    last = competition.classes[-1]
    expected = {"tags": last, "marks": "0.25,0.25,0.25,0.75", "numbers": "0.25,0.75"}[kind]
    assert first == f"{competition.answer_ids[0]},{expected}"
    assert lineage_of(csv)["decision"]["score"] == lineage_of(csv)["estimate"]["score"]
    assert_rebuilt(podium, csv)
