"""Corrections from the command line to the submission: folds and runs from before stay of use."""

import json
from pathlib import Path

import pytest

import podium as library
from podium.competition.build.corrections import corrections_path, find_project_files
from podium.competition.find.csv_files import read_table
from podium.competition.load import load
from podium.folds.folds_csv import folds_path, read_folds
from podium.images.audit import load_audit
from tiny import FAST, Podium, done, one_line, run_of, write_file

TRAIN = ("train", *FAST, "--model", "test_vit", "--epochs", "1")


def write_corrections(root: Path, *lines: str) -> Path:
    path = root / "mine.csv"
    path.write_text("\n".join(["id,label,why", *lines, ""]))
    return path


def contradict(root: Path, name: str) -> None:
    """Corrects the label of every image that the run held out: to the class that it finds least probable."""
    run, lines = run_of(root, name), ["id,label"]
    for fold in run.finished():
        held_out = run.out_of_fold(fold)
        labels = [held_out.classes[number] for number in held_out.probs.argmin(1)]
        lines += [f"{image_id},{label}" for image_id, label in zip(held_out.id, labels, strict=True)]
    path = corrections_path("tiny", root)
    write_file(path, "\n".join(lines) + "\n")


def stored_pixels(root: Path) -> set[Path]:
    return set((root / "data" / "prepared" / "tiny").glob("pixels-*"))


def test_data_shows_the_corrections(tiny: Path, podium: Podium) -> None:
    corrections = write_corrections(tiny, "000,blue,", "001,drop,")
    assert "2 lines, 2 new" in podium("folds", "-c", "tiny", "--verify", "--corrections", corrections)[2]
    _, out, _ = podium("data", "-c", "tiny")
    assert "1 label changed, 1 image dropped" in out
    assert str(corrections_path("tiny", tiny)) in out
    assert "train    24 images" in out
    assert corrections_path("tiny", tiny) in find_project_files("tiny", tiny)


def test_folds_and_audit_from_before_stay_valid(tiny: Path, podium: Podium) -> None:
    folds, before = folds_path("tiny", tiny).read_bytes(), load("tiny", tiny)
    load_audit(before)  # builds the store of this copy
    pixels = stored_pixels(tiny)
    fold_of_image = dict(zip(before.train["id"], read_folds(before).of_image, strict=True))
    corrections = write_corrections(tiny, "000,blue,", "001,drop,")
    _, err = done(podium(*TRAIN, "--folds", "0", "--corrections", corrections))
    assert "not verified" not in err
    assert stored_pixels(tiny) == pixels  # no image was decoded again
    assert folds_path("tiny", tiny).read_bytes() == folds
    corrected = load("tiny", tiny)
    assert read_folds(corrected).of_image.tolist() == [fold_of_image[name] for name in corrected.train["id"]]
    rows = load_audit(corrected)
    assert "001" not in set(rows["id"][rows["role"] == "train"])
    assert rows.set_index(["role", "id"])["target"]["train", "000"] == "blue"
    corrections_path("tiny", tiny).unlink()
    assert len(load_audit(load("tiny", tiny))) == len(rows) + 1
    assert stored_pixels(tiny) == pixels


def test_folds_stay_certified_when_corrected_labels_make_them_uneven(tiny: Path, podium: Podium) -> None:
    before = load("tiny", tiny)
    folds = read_folds(before)
    of_fold_0 = before.train["id"][folds.validates(0) & (before.train["target"] == "red")]
    corrections = write_corrections(tiny, *(f"{name},blue," for name in of_fold_0))
    out, _ = done(podium("folds", "-c", "tiny", "--verify", "--corrections", corrections))
    assert "FAILS" not in out


def test_folds_that_were_made_after_a_drop_lack_the_image_if_it_is_taken_back(tiny: Path, podium: Podium) -> None:
    corrections = write_corrections(tiny, "000,blue,", "001,drop,")
    done(podium("folds", "-c", "tiny", "--k", "2", "--seed", "1", "--corrections", corrections))
    rows = read_table(folds_path("tiny", tiny)).set_index("id")
    assert "001" not in rows.index
    assert rows["target"]["000"] == "red"  # as in the competition's files, so later corrections cannot contradict it
    done(podium(*TRAIN, "--folds", "0", "--dry-run"))
    corrections_path("tiny", tiny).write_text("id,label\n000,green\n")
    one_line(podium(*TRAIN, "--folds", "0"), "1 training image without a fold, '001' first", "split again with: podium")


def test_a_run_records_the_corrections_and_does_not_resume_with_others(tiny: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--folds", "0", "--name", "old"))
    assert "corrections_sha256" not in run_of(tiny, "old").recipe
    corrections = write_corrections(tiny, "000,blue,")
    done(podium(*TRAIN, "--folds", "0", "--name", "new", "--corrections", corrections))
    expected = load("tiny", tiny).corrections.sha256
    assert run_of(tiny, "new").recipe["corrections_sha256"] == expected is not None
    assert run_of(tiny, "new").recipe["data_sha256"] == run_of(tiny, "old").recipe["data_sha256"]
    message = one_line(podium(*TRAIN, "--name", "old"), "the corrections changed")
    assert "the data changed" not in message
    done(podium(*TRAIN, "--name", "new"))
    done(podium(*TRAIN, "--folds", "0", "--name", "student", "--teacher", "old"))
    corrections_path("tiny", tiny).unlink()
    done(podium(*TRAIN, "--name", "old"))
    message = one_line(podium(*TRAIN, "--name", "new"), "the corrections changed")
    kept = tiny / "runs/tiny/new/corrections.csv"
    assert str(kept) in message
    done(podium(*TRAIN, "--name", "new", "--corrections", kept))


def test_runs_from_before_and_after_are_compared_and_submitted_together(tiny: Path, podium: Podium) -> None:
    for words in ((), ("--corrections", write_corrections(tiny, "000,blue,", "008,drop,"))):
        done(podium(*TRAIN, "--name", "after" if words else "before", *words))
    out, _ = done(podium("compare", "-c", "tiny", "--csv"))
    assert {line.split(",")[9] for line in out.splitlines()[1:]} == {"23"}  # images: 24 that are validated, one dropped
    out, err = done(podium("submit", "-c", "tiny", "--runs", "before", "after", "--blend", "equal", "--anyway"))
    assert "different images" not in err
    csv, digest = Path(out.strip()), load("tiny", tiny).corrections.sha256
    assert digest is not None
    assert json.loads(csv.with_suffix(".json").read_text())["corrections_sha256"] == digest
    description = podium("lineage", csv)[1]
    assert f"trained with {digest[:16]}, none; scored with {digest[:16]}" in description
    corrections_path("tiny", tiny).unlink()  # the CSV does not depend on the labels of today
    csv.unlink()
    done(podium("submit", "--from", csv.with_suffix(".json")))
    assert (
        "corrections"
        not in podium("lineage", podium("submit", "-c", "tiny", "--runs", "before", "--anyway")[1].strip())[1]
    )


def test_corrections_are_kept_when_training_begins_and_not_before(tiny: Path, podium: Podium) -> None:
    corrections = write_corrections(tiny, "000,blue,")
    _, err = done(podium(*TRAIN, "--dry-run", "--corrections", corrections))
    assert "1 label changed" in err
    assert "no fold 9" in one_line(podium(*TRAIN, "--folds", "9", "--corrections", corrections))
    done(podium(*TRAIN, "--folds", "0"))
    assert "the corrections changed" in one_line(podium(*TRAIN, "--corrections", corrections))
    assert not corrections_path("tiny", tiny).exists()


def test_scores_of_folds_are_those_of_the_labels_of_today(tiny: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--name", "old"))
    contradict(tiny, "old")
    out, _ = done(podium("compare", "-c", "tiny", "--json"))
    (row,) = json.loads(out)
    assert (row["score"], row["fold_spread"]) == (0.0, 0.0)
    csv = Path(podium("submit", "-c", "tiny", "--runs", "old", "--anyway")[1].strip())
    content = json.loads(csv.with_suffix(".json").read_text())
    assert {fold["score"] for fold in content["runs"][0]["folds"]} == {0.0}
    assert content["corrections"] in podium("lineage", csv)[1]


def test_python_corrects_too(tiny: Path, podium: Podium) -> None:
    competition = library.load("tiny", tiny)
    corrected = competition.correct(str(write_corrections(tiny, "000,blue,")))
    assert isinstance(corrected, library.Competition)
    assert corrected.train["target"][0] == "blue"
    assert competition.train["target"][0] == "red"
    assert corrected.folds()["target"][0] == "blue"
    with pytest.raises(library.PodiumError, match="no finished fold"):
        corrected.suspects()
    done(podium(*TRAIN, "--folds", "0"))
    suspects = corrected.suspects("test_vit")
    assert list(suspects.columns) == ["id", "label", "suggested", "label_prob", "suggested_prob", "runs"]
