"""Votes of experts become shares and a label for each image; other numbers stay what they are."""

from pathlib import Path

import numpy as np
import pytest

from layouts import IMAGES, load_error, load_files, raw_path, table, train_labels
from podium.competition.load import Competition
from tiny import assert_says

VOTES = ("a_vote", "b_vote", "c_vote")
SAMPLE = table(f"id,{','.join(VOTES)}", "4,0.333,0.333,0.333", "5,0.34,0.33,0.33")


def load_votes(root: Path, *rows: str, sample: str = SAMPLE, card: str = "") -> Competition:
    tables = {"train.csv": table(f"id,{','.join(VOTES)}", *rows), "sample_submission.csv": sample}
    return load_files(root, IMAGES, tables, card)


def labels_of(competition: Competition) -> list[str]:
    assert competition.task.name == "one_label"
    assert competition.submission_format.wants == "probs"
    labels: list[str] = competition.train["target"].tolist()
    return labels


def test_the_label_is_the_column_with_the_most_votes_of_a_tie_the_first(tmp_path: Path) -> None:
    competition = load_votes(tmp_path, "1,0,2,1", "2,3,0,0", "3,1,4,4")
    assert labels_of(competition) == ["b_vote", "a_vote", "b_vote"]
    assert competition.classes == VOTES
    (note,) = [note for note in competition.notes if "is a guess" in note]
    assert_says(note, 'metric = "kl_divergence"', 'task = "one_label"')
    assert any("1 tie" in note for note in competition.notes)
    assert any("3 rows" in note and "3 images" in note for note in competition.notes)


def test_the_shares_of_the_votes_are_learned_and_scored(tmp_path: Path) -> None:
    competition = load_votes(tmp_path, "1,0,2,2", "1,0,1,0", "2,4,0,0", "3,1,4,5")
    assert competition.metric == "kl_divergence"
    votes = competition.targets.votes
    assert votes is not None
    assert votes == pytest.approx(np.array([[0, 0.6, 0.4], [1, 0, 0], [0.1, 0.4, 0.5]]))
    assert not any("is a guess" in note for note in load_again(tmp_path, 'metric = "kl_divergence"').notes)
    plain = load_again(tmp_path, 'task = "one_label"')
    assert (plain.metric, plain.targets.votes, plain.targets.values.tolist()) == ("log_loss", None, [1, 0, 2])
    assert load_again(tmp_path, 'metric = "accuracy"').targets.votes is None
    assert plain.train_hash != competition.train_hash


def load_again(root: Path, card: str) -> Competition:
    return load_files(root, [], {}, card + "\n")


def test_a_card_that_says_so_has_written_shares_learned(tmp_path: Path) -> None:
    card = 'metric = "kl_divergence"\n'
    rows = "1,0.25,0.5,0.25", "2,1,0,0", "3,0.1,0.5,0.5"
    votes = load_votes(tmp_path, *rows, card=card).targets.votes
    assert votes is not None
    assert votes == pytest.approx(np.array([[0.25, 0.5, 0.25], [1, 0, 0], [1 / 11, 5 / 11, 5 / 11]]))


def test_rows_of_one_image_are_added_up(tmp_path: Path) -> None:
    competition = load_votes(tmp_path, "1,2,0,0", "1,0,3,0", "2,0,0,1", "3,1,0,0", "1,2,0,0")
    assert labels_of(competition) == ["a_vote", "c_vote", "a_vote"]
    assert any("5 rows" in note and "3 images" in note for note in competition.notes)


def test_shares_stay_numbers(tmp_path: Path) -> None:
    """They may be what is measured, such as how much of a field is grass."""
    rows = [f"{row},{0.01 * row:.2f},{1 - 0.02 * row:.2f},{0.01 * row:.2f}" for row in range(1, 4)]
    assert load_votes(tmp_path, *rows).task.name != "one_label"


def test_an_image_without_votes_is_left_out_and_counted(tmp_path: Path) -> None:
    competition = load_votes(tmp_path, "1,0,2,1", "2,0,0,0", "3,3,0,0")
    assert labels_of(competition) == ["b_vote", "a_vote"]
    assert any("1 image without a vote left out" in note for note in competition.notes)


def test_what_the_card_says_is_no_guess(tmp_path: Path) -> None:
    rows = "1,0,2,1", "2,3,0,0", "3,1,4,4"
    competition = load_votes(tmp_path, *rows, card='task = "one_label"\n')
    assert labels_of(competition) == ["b_vote", "a_vote", "b_vote"]
    assert not any("votes is a guess" in note for note in competition.notes)
    assert load_votes(tmp_path, *rows, card='task = "numbers"\n').task.name == "numbers"


@pytest.mark.parametrize(
    ("rows", "sample"),
    [
        (("1,0,2,1", "2,3,0,0", "3,1,4,4"), SAMPLE.replace("0.34", "1")),  # the sample wants no shares
        (("1,0,1,1", "2,1,0,0", "3,0,0,1"), SAMPLE),  # marks
        (("1,0.5,2.5,1", "2,3,0,0", "3,1,4,4"), SAMPLE),  # amounts
        (("1,-1,2,1", "2,3,0,0", "3,1,4,4"), SAMPLE),
        (("1,x,2,1", "2,y,0,0", "3,x,4,4"), SAMPLE),
    ],
)
def test_other_columns_hold_no_votes(tmp_path: Path, rows: tuple[str, ...], sample: str) -> None:
    competition = load_votes(tmp_path, *rows, sample=sample)
    assert not any("votes" in note for note in competition.notes)


def write_hms(root: Path) -> dict[str, str]:
    """Writes spectrograms 1 to 10 for training, 9 for the test; 1 has three rows of two recordings of brain waves."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"time": [1, 3]} | {f"LL_{0.59 + 0.2 * number:.2f}": np.ones(2, np.float32) for number in range(64)}
    for path in (*(f"train_spectrograms/{number}" for number in range(1, 11)), "test_spectrograms/99"):
        file = raw_path(root, f"{path}.parquet")
        file.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.table(columns), file)
        eeg = raw_path(root, f"{path.replace('spectrograms/', 'eegs/10')}.parquet")
        eeg.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.table({"Fp1": [0.5, 0.25], "EKG": [1.0, 2.0]}), eeg)
    votes = "seizure_vote,lpd_vote,gpd_vote,lrda_vote,grda_vote,other_vote"
    header = "eeg_id,eeg_sub_id,eeg_label_offset_seconds,spectrogram_id,spectrogram_sub_id"
    header += f",spectrogram_label_offset_seconds,label_id,patient_id,expert_consensus,{votes}"
    rows = ["101,0,0.0,1,0,0.0,127,42,Seizure,3,0,0,0,0,0", "101,1,6.0,1,1,6.0,385,42,Seizure,3,0,0,0,0,0"]
    rows += ["108,0,0.0,1,2,20.0,500,42,Other,0,0,0,0,0,7"]
    rows += [
        f"10{number},0,0.0,{number},0,0.0,{number},{42 + number // 2},GPD,0,0,{number},0,1,0" for number in range(2, 11)
    ]
    return {
        "train.csv": table(header, *rows),
        "test.csv": table("spectrogram_id,eeg_id,patient_id", "99,199,6885", "99,198,6885"),
        "sample_submission.csv": table(
            f"eeg_id,{votes}", *(f"{eeg}" + ",0.16666666666666666" * 6 for eeg in (199, 198))
        ),
    }


def test_the_brain_waves_of_hms(tmp_path: Path) -> None:
    competition = load_files(tmp_path, [], write_hms(tmp_path))
    assert competition.train["image"].tolist() == [f"train_spectrograms/{n}.parquet#picture" for n in range(1, 11)]
    assert labels_of(competition) == ["other_vote", *["gpd_vote"] * 9]
    assert competition.groups is not None
    assert competition.groups.tolist() == ["42", *["43", "43", "44", "44", "45", "45", "46", "46", "47"]]
    assert competition.test["id"].tolist() == ["199", "198"]
    assert competition.test["image"].tolist() == ["test_spectrograms/99.parquet#picture"] * 2
    assert any("1 test id share" in note for note in competition.notes)
    assert competition.submission_format.header[:2] == ("eeg_id", "seizure_vote")
    assert any("12 rows" in note and "10 images of 'spectrogram_id'" in note for note in competition.notes)


def test_votes_for_one_class_alone_teach_nothing(tmp_path: Path) -> None:
    tables = {"train.csv": table(f"id,{','.join(VOTES)}", "1,2,0,0", "2,2,1,0"), "sample_submission.csv": SAMPLE}
    assert "nothing to learn" in load_error(tmp_path, IMAGES, tables)


def test_the_images_keep_their_order(tmp_path: Path) -> None:
    competition = load_votes(tmp_path, "3,0,2,1", "1,3,0,0", "3,0,1,0", "2,0,0,4")
    assert list(train_labels(competition)) == ["train/3.jpg", "train/1.jpg", "train/2.jpg"]
