"""The lineage of a submission: it is described, and a damaged one is refused with its file and the remedy."""

import json
from pathlib import Path

import pytest

from tiny import Podium, assert_says, done, one_line, write_card


def test_a_lineage_is_described(two_runs: Path, podium: Podium) -> None:
    _, out, _ = podium("submit", "-c", "tiny", "--runs", "good", "idle", "--blend", "greedy-calibrated")
    lineage = json.loads(Path(out.strip()).with_suffix(".json").read_text())
    description, _ = done(podium("lineage", out.strip()))
    assert lineage["sha256"] in description
    for fact in ("greedy-calibrated", "good fold 1", "held-out images", "torch"):
        assert fact in description


def test_a_lineage_of_an_older_version_is_read(csv: Path, podium: Podium) -> None:
    path = csv.with_suffix(".json")
    content = json.loads(path.read_text())
    content["blend"]["way"] = content["blend"].pop("strategy")
    path.write_text(json.dumps(content))
    description, _ = done(podium("lineage", csv))
    assert content["blend"]["way"] in description
    csv.unlink()
    done(podium("submit", "--from", path))
    assert csv.exists()


@pytest.mark.annex
def test_a_submission_is_scored_with_the_metric_of_its_lineage(two_runs: Path, csv: Path, podium: Podium) -> None:
    path = csv.with_suffix(".json")
    content = json.loads(path.read_text())
    command = ("score", csv, "--solution", two_runs / "solution.csv")
    for metric, used in (("macro_f1", "macro_f1"), ("my_metric", "accuracy")):
        path.write_text(json.dumps({**content, "metric": metric}))
        _, out, err = podium(*command)
        assert json.loads(out)["metric"] == used
        if metric == used:
            assert "warning" not in err
        else:
            assert f"{path} names the metric my_metric, which no loaded file defines, so accuracy is used" in err
            assert "-c" in err
            assert "warning" not in podium(*command, "--metric", "accuracy")[2]
    assert json.loads(podium(*command, "--metric", "balanced_accuracy")[1])["metric"] == "balanced_accuracy"
    path.unlink()
    assert json.loads(podium(*command)[1])["metric"] == "accuracy"


@pytest.mark.annex
def test_a_submission_is_scored_where_its_competition_cannot_be_read(two_runs: Path, csv: Path, podium: Podium) -> None:
    command = ("score", csv, "--solution", two_runs / "solution.csv")
    _, score, err = podium(*command)
    assert "cannot be read" not in err
    (two_runs / "data" / "raw" / "tiny" / "train.csv").write_text("")
    status, out, err = podium(*command)
    assert (status, out) == (0, score), err
    assert_says(err, "tiny, for which the file was made, cannot be read", "train.csv: the file is empty")
    assert podium(*command, "-c", "tiny")[0] == 1


@pytest.mark.annex
@pytest.mark.parametrize(
    ("metric", "card"), [("error_rate", 'extend = "own.py"'), ("own.py:share_of_errors", 'better = "lower"')]
)
@pytest.mark.parametrize("is_named", [False, True])
def test_ones_own_metric_of_a_card_scores_where_the_data_are(
    two_runs: Path, csv: Path, podium: Podium, metric: str, card: str, is_named: bool
) -> None:
    (two_runs / "own.py").write_text(
        """
from podium import extend

@extend.metric(better="lower")
def error_rate(targets, probs):
    return (probs.argmax(1) != targets).mean()

def share_of_errors(solution, submission, row_id_column_name):
    return (solution["predict"] != submission["predict"]).mean()
"""
    )
    write_card(two_runs, f'metric = "{metric}"\n{card}')
    content = json.loads(csv.with_suffix(".json").read_text())
    slug = "elsewhere" if is_named else "tiny"
    csv.with_suffix(".json").write_text(json.dumps({**content, "metric": metric, "competition": slug}))
    command = ("score", csv, "--solution", two_runs / "solution.csv", *(("-c", "tiny") if is_named else ()))
    out, err = done(podium(*command))
    assert "warning" not in err
    accuracy = json.loads(podium(*command, "--metric", "accuracy")[1])["score"]
    assert json.loads(out) == {"metric": metric, "score": pytest.approx(1 - accuracy)}
    (two_runs / "data" / "raw" / "tiny").rename(two_runs / "away")
    if not is_named:
        out, err = done(podium(*command))
        assert json.loads(out)["metric"] == "accuracy"
        assert f"names the metric {metric}" in err


def test_a_changed_or_missing_csv_has_a_command_that_rebuilds_it(csv: Path, podium: Podium) -> None:
    csv.write_text(csv.read_text().replace("red", "blue"))
    one_line(podium("lineage", csv), f"{csv} was changed", "rebuild it with: podium --root")
    csv.unlink()
    one_line(podium("lineage", csv), f"{csv} does not exist", "rebuild it with: podium --root")


def test_a_damaged_lineage_is_refused(csv: Path, podium: Podium) -> None:
    path = csv.with_suffix(".json")
    content = json.loads(path.read_text())
    blend, run = content["blend"], content["runs"][0]
    damages: tuple[dict[str, object], ...] = (
        {"blend": {**blend, "weights": [float("nan")]}},
        {"blend": {**blend, "temperature": 0}},
        {"blend": {**blend, "temperature": 10**400}},
        {"runs": [{**run, "run": "../../elsewhere"}]},
        {"competition": "../.."},
    )
    texts = [json.dumps({**content, **damage}) for damage in damages]
    for text in ("{}", "[]", "not json", '{"runs": 3}', "[" * 100_000, *texts):
        path.write_text(text)
        one_line(podium("submit", "--from", path), f"{path} is not a lineage", "restore it")


def test_a_missing_lineage_is_refused(csv: Path, podium: Podium) -> None:
    csv.with_suffix(".json").unlink()
    message = one_line(podium("lineage", csv))
    assert str(csv.with_suffix(".json")) in message
    assert "podium submit writes it beside its CSV" in message


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_a_path_that_is_not_a_file_has_no_lineage(podium: Podium, path: str) -> None:
    for command in (("lineage", path), ("submit", "--from", path)):
        assert "name a CSV or the JSON beside it" in one_line(podium(*command))
