"""podium compare --predictions, Run.frame and podium.frame: one table of what runs predict."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import podium as library
from tiny import Podium, done, one_line

HERE = ("-c", "tiny")
FACTS = ["run", "role", "id", "fold", "target"]


def test_the_table_has_what_the_runs_predict_and_says_what_is_missing(
    two_runs: Path, podium: Podium, capsys: pytest.CaptureFixture[str]
) -> None:
    competition = library.load("tiny", two_runs)
    good, idle = library.runs(competition)
    capsys.readouterr()
    before = good.frame()
    assert set(before["role"]) == {"train"}
    assert "good has not predicted the test images yet" in capsys.readouterr().err
    done(podium("submit", *HERE, "--runs", "good"))
    frame = library.frame(competition, [good, idle])
    assert list(frame.columns) == [*FACTS, *competition.classes]
    train, test = (frame.query(f"run == 'good' and role == '{role}'") for role in ("train", "test"))
    held_out = good.held_out()
    assert train["id"].tolist() == held_out["id"].tolist()
    assert train["target"].tolist() == held_out["target"].tolist()
    assert (train[list(competition.classes)].to_numpy() == held_out[list(competition.classes)].to_numpy()).all()
    assert test["id"].tolist() == competition.test["id"].tolist()
    assert test["fold"].isna().all()
    predicted = good.predict(competition.test)[list(competition.classes)].to_numpy()
    np.testing.assert_allclose(test[list(competition.classes)].to_numpy(float), predicted, atol=1e-5)
    assert set(frame.query("run == 'idle'")["role"]) == {"train"}


def test_the_targets_are_those_of_today(two_runs: Path) -> None:
    competition = library.load("tiny", two_runs)
    image_id = str(competition.train["id"].iloc[0])
    (two_runs / "wrong.csv").write_text(f"id,label,why\n{image_id},blue,seen\n")
    corrected = competition.correct(two_runs / "wrong.csv")
    frame = library.frame(corrected, "good")
    assert frame.set_index("id")["target"][image_id] == "blue"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_command_writes_it(two_runs: Path, podium: Podium, ending: str) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = two_runs / f"predicted.{ending}"
    done(podium("compare", *HERE, "--runs", "good", "--predictions", path))
    written = pd.read_csv(path, dtype={"id": str}) if ending == "csv" else pd.read_parquet(path)
    frame = library.frame(library.load("tiny", two_runs), "good")
    assert written["id"].tolist() == frame["id"].tolist()
    np.testing.assert_allclose(written["red"], frame["red"].astype(float), rtol=1e-6)


def test_another_ending_is_refused(two_runs: Path, podium: Podium) -> None:
    one_line(podium("compare", *HERE, "--predictions", two_runs / "predicted.xlsx"), "ends in .csv or .parquet")
