"""podium final: the table of submissions, the pairs, and what is not proposed."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from podium.submissions.kaggle_scores import COLUMNS
from tiny import Podium, assert_says, done, one_line

FOLDER = Path("submissions") / "tiny"


def record(root: Path, **public: str) -> None:
    """Writes the history of uploads: a public score for each submission; an empty one was refused."""
    with (root / FOLDER / "history.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, restval="")
        rows.writeheader()
        for number, (name, score) in enumerate(public.items()):
            content = json.loads((root / FOLDER / f"{name}.json").read_text())
            status = "complete" if score else "error"
            own = {"date": f"2026-11-0{number + 1} 10:00:00", "file": f"{name}.csv", "sha256": content["sha256"]}
            rows.writerow({**own, "status": status, "public_score": score, "ref": number})


@pytest.fixture
def submissions(two_runs: Path, podium: Podium) -> Path:
    """A project with submissions of probabilities: of the run `good`, of `idle`, and of both, which is `fair`."""
    sample = two_runs / "data" / "raw" / "tiny" / "sample_submission.csv"
    ids = [line.partition(",")[0] for line in sample.read_text().splitlines()[1:]]
    sample.write_text("\n".join(["id,blue,green,lonely,red", *(f"{name},0.3,0.3,0.0,0.4" for name in ids)]) + "\n")
    for name, runs in {"good": ["good"], "idle": ["idle"], "fair": ["good", "idle"]}.items():
        words = ("--anyway", "--blend", "equal", "--decision", "none", "--runs", *runs, "--name", name)
        done(podium("submit", "-c", "tiny", *words))
    return two_runs


def test_estimates_and_public_scores_propose_pairs(submissions: Path, podium: Podium) -> None:
    record(submissions, good="0.4", idle="1.4", fair="0.7")
    out, err = done(podium("final", "-c", "tiny"))
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["good.csv", "fair.csv", "idle.csv"]
    assert_says(out, "2026-11-01", "0.40000", "2 runs, equal", "safe pair: good.csv and fair.csv")
    assert_says(err, "3 public scores", "--public-share", "of 9, a guess", "from 4 on their correlation")
    assert "https://www.kaggle.com/competitions/tiny/submissions" in err
    assert "not at Kaggle" not in err


def test_what_is_not_uploaded_is_proposed_with_its_command(submissions: Path, podium: Podium) -> None:
    record(submissions, idle="1.4")
    out, err = done(podium("final", "-c", "tiny", "--public-share", "0.5"))
    assert "safe pair: good.csv and fair.csv" in out
    assert "podium: good.csv is not at Kaggle: podium " in err
    assert f"submit --from {submissions / FOLDER / 'good.json'} --upload" in err
    assert "a guess" not in err
    (submissions / FOLDER / "history.csv").unlink()
    assert "no submission has a public score here" in done(podium("final", "-c", "tiny"))[1]


def test_all_of_it_is_one_json_object(submissions: Path, podium: Podium) -> None:
    record(submissions, good="0.4", idle="1.4", fair="0.7")
    shutil.copy(submissions / FOLDER / "fair.csv", submissions / FOLDER / "copy.csv")
    shutil.copy(submissions / FOLDER / "fair.json", submissions / FOLDER / "copy.json")
    content = json.loads(done(podium("final", "-c", "tiny", "--json"))[0])
    assert content["safe"] == ["good.csv", "fair.csv"]
    scores = {one["file"]: one for one in content["submissions"]}
    assert scores.keys() == {"good.csv", "idle.csv", "fair.csv"}  # a copy counts once
    good = scores["good.csv"]
    assert good["public"] == 0.4
    low, high = sorted((good["expected"], 0.4))
    assert low - 0.1 < good["forecast"] < high + 0.1


def test_what_cannot_be_trusted_is_named_and_not_proposed(submissions: Path, podium: Podium) -> None:
    record(submissions, good="0.4", idle="", fair="0.7")
    (submissions / FOLDER / "fair.csv").write_text("edited")
    out, err = done(podium("final", "-c", "tiny"))
    assert_says(
        err, "not proposed: idle.csv (Kaggle refused it)", "fair.csv (its CSV was changed after it was written)"
    )
    assert "only good.csv can be chosen: write another submission to have two" in out
    for fold in (submissions / "runs" / "tiny" / "good").glob("fold*"):
        shutil.rmtree(fold)
    line = one_line(podium("final", "-c", "tiny"))
    assert "no submission to choose" in line
    assert "what it held out cannot be blended again" in line


def test_uploads_whose_lineage_is_gone_are_named(submissions: Path, podium: Podium) -> None:
    record(submissions, good="0.4", idle="1.4", fair="0.7")
    (submissions / FOLDER / "idle.json").unlink()
    err = done(podium("final", "-c", "tiny"))[1]
    assert "idle.csv of 2026-11-02 10:00:00 (its lineage is not here any more)" in err


@pytest.mark.parametrize("share", ["0", "1", "30%", "x"])
def test_a_share_that_is_none_is_refused(two_runs: Path, podium: Podium, share: str) -> None:
    assert "is not a share between 0 and 1, such as 0.3" in one_line(podium("final", "--public-share", share))


def test_without_a_submission_the_command_that_writes_one_is_named(two_runs: Path, podium: Podium) -> None:
    line = one_line(podium("final", "-c", "tiny"), "has no submission to choose; write one with: podium")
    assert line.endswith("submit -c tiny")
