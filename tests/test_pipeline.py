"""The whole pipeline on a tiny competition, and what the README promises of it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from podium.basics.disk import sha256
from podium.competition.find.csv_files import read_table
from podium.models.model_file import load_model
from tiny import FAST, Podium, done, one_line, run_of, weights_hash, write_competition, write_image

TRAIN = ("train", *FAST, "--model", "test_vit", "--epochs", "1")


@pytest.mark.slow
def test_a_convnext_and_a_vit_go_all_the_way_to_a_submission(tiny: Path, podium: Podium) -> None:
    for model, epochs in (("test_convnext", 8), ("test_vit", 3)):
        out, err = done(podium("train", *FAST, "--model", model, "--epochs", epochs))
        assert "over 2 of 2 folds" in out
        assert f"next: podium --root {tiny} submit -c tiny" in err
    out, _ = done(podium("submit", "-c", "tiny", "--workers", "0"))
    csv = Path(out.splitlines()[-1])
    assert out == f"{csv}\n"
    sample = tiny / "data" / "raw" / "tiny" / "sample_submission.csv"
    ids = [[line.split(",")[0] for line in path.read_text().splitlines()] for path in (csv, sample)]
    assert ids[0] == ids[1]
    answers, solution = (path.read_text().split()[1:] for path in (csv, tiny / "solution.csv"))
    assert len(set(answers) & set(solution)) >= 0.8 * len(solution)  # three plain colours
    lineage = json.loads(csv.with_suffix(".json").read_text())
    assert lineage["sha256"] == sha256(csv)
    assert [(run["run"], fold["fold"], fold["weights_sha256"]) for run in lineage["runs"] for fold in run["folds"]] == [
        (run, fold, weights_hash(tiny, run, fold)) for run in ("test_convnext", "test_vit") for fold in (0, 1)
    ]


# --- what a run leaves -------------------------------------------------------------------------------


def test_a_run_leaves_the_files_that_are_documented(tiny: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--epochs", 2, "--folds", 1))
    run = run_of(tiny)
    assert run.finished() == [1]
    keys = {"model", "weights", "lr", "seed", "weights_source", "folds_sha256", "data_sha256", "versions"}
    assert keys <= set(run.recipe)
    assert run.recipe["weights_source"] == "none"
    assert len({path.stat().st_mode for path in run.fold_folder(1).iterdir()}) == 1  # who may read one may read all
    assert sorted(path.name for path in run.fold_folder(1).iterdir()) == [
        "metrics.jsonl",
        "model.safetensors",
        "oof.npz",
        "trained.json",
    ]

    folds = read_table(tiny / "data" / "prepared" / "tiny" / "folds.csv")
    with np.load(run.fold_folder(1) / "oof.npz", allow_pickle=False) as held_out:
        assert held_out["id"].tolist() == folds["id"][folds["fold"] == "1"].tolist()
        assert held_out["probs"].dtype == np.float32
        assert held_out["probs"].shape == (12, 4)
        assert np.allclose(held_out["probs"].sum(1), 1, atol=1e-5)
        labels = [str(held_out["classes"][index]) for index in held_out["target"]]
        assert labels == folds["target"][folds["fold"] == "1"].tolist()

    history = run.history(1)
    assert [record.epoch for record in history] == [1, 2]
    assert set(history[0].to_json()) == {
        *("epoch", "step", "lr", "loss", "log_loss", "accuracy", "views"),
        *("images_per_s", "seconds", "validation_seconds", "memory_mb"),
    }
    with safe_open(run.weights_path(1), framework="pt") as file:
        spec = json.loads(file.metadata()["podium"])
    assert spec["architecture"] == "test_vit"
    assert spec["classes"] == ["blue", "green", "lonely", "red"]
    assert spec["image_size"] == 32
    assert {"mean", "std", "interpolation", "crop", "fit"} <= set(spec)
    model, rebuilt = load_model(run.weights_path(1))
    assert model.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, len(rebuilt.classes))


def test_a_finished_fold_is_not_trained_again_and_another_recipe_is_refused(tiny: Path, podium: Podium) -> None:
    command = (*TRAIN, "--name", "small")
    done(podium(*command, "--folds", "0"))
    weights = run_of(tiny, "small").weights_path(0)
    before = weights.stat().st_mtime_ns
    out, err = done(podium(*command))
    assert "fold 0 is trained already" in err
    assert "over 2 of 2 folds" in out
    assert weights.stat().st_mtime_ns == before
    result = podium(*command, "--lr", "0.5", "--mirror", "0")
    assert result[1] == ""
    one_line(result, "mirror was 0.5 and is 0.0", "lr was 0.00025 and is 0.5", "--name")


def test_a_run_is_not_resumed_with_other_folds_or_other_data(one_run: Path, podium: Podium) -> None:
    folds = one_run / "data" / "prepared" / "tiny" / "folds.csv"
    before = folds.read_text()
    done(podium("folds", "-c", "tiny", "--k", "2"))  # the same folds again
    damaged = shutil.copytree(run_of(one_run).path, run_of(one_run, "damaged").path)
    (damaged / "recipe.json").write_text("{")  # must not stop a command that does not train this run
    one_line(
        podium("folds", "-c", "tiny", "--k", "2", "--seed", "7"), f"{folds} holds other folds", "test_vit", "--force"
    )
    assert folds.read_text() == before
    _, err = done(podium("folds", "-c", "tiny", "--k", "2", "--seed", "7", "--force"))
    assert "the folds have changed" in err
    assert "the folds changed" in one_line(podium(*TRAIN))
    folds.write_text(before)
    write_image(one_run / "data" / "raw" / "tiny" / "train_image" / "003.jpg", (1, 2, 3), 99, (50, 50))
    assert "the data changed" in one_line(podium(*TRAIN))


# --- submissions -------------------------------------------------------------------------------------


def test_predictions_are_kept_until_the_images_change(one_run: Path, podium: Podium) -> None:
    first, again = podium("submit", "-c", "tiny"), podium("submit", "-c", "tiny")
    assert first[:2] == again[:2]  # the same file, because nothing has changed
    assert "already predicted" not in first[2]
    assert "already predicted" in again[2]
    write_image(one_run / "data" / "raw" / "tiny" / "test_image" / "000.jpg", (9, 9, 9), 5, (60, 60))
    assert "already predicted" not in podium("submit", "-c", "tiny")[2]


def test_another_submission_is_never_overwritten(one_run: Path, podium: Podium) -> None:
    path = Path(podium("submit", "-c", "tiny")[1].strip())
    path.write_text("uploaded long ago")
    assert podium("submit", "-c", "tiny")[1].strip() == str(path.with_name("test_vit-2.csv"))
    assert path.read_text() == "uploaded long ago"


def test_a_submission_of_a_run_that_does_not_exist_is_answered_with_the_nearest(tiny: Path, podium: Podium) -> None:
    assert "train one with" in one_line(podium("submit", "-c", "tiny"))
    done(podium(*TRAIN, "--folds", "0"))
    assert "did you mean test_vit?" in one_line(podium("submit", "-c", "tiny", "--runs", "test_vot"))


@pytest.mark.annex
def test_a_sample_with_a_column_per_class_gets_probabilities(tmp_path: Path, podium: Podium) -> None:
    folder = write_competition(tmp_path)
    ids = read_table(folder / "sample_submission.csv")["id"]
    header = "id,lonely,red,green,blue"
    (folder / "sample_submission.csv").write_text("\r\n".join([header, *(f"{name},0,0,0,0" for name in ids), ""]))
    done(podium("folds", "-c", "tiny", "--k", "2"))
    done(podium("train", *FAST, "--model", "test_convnext", "--epochs", "2", "--folds", "0"))
    out, _ = done(podium("submit", "-c", "tiny"))
    lines = Path(out.strip()).read_bytes().decode().split("\r\n")
    assert lines[0] == header
    assert [sum(map(float, line.split(",")[1:])) for line in lines[1:-1]] == pytest.approx([1.0] * 7, abs=1e-6)
    out, _ = done(podium("score", out.strip(), "--solution", tmp_path / "solution.csv"))
    assert json.loads(out)["metric"] == "log_loss"


def test_a_blend_of_named_runs_names_missing_folds_and_fits_no_weights_to_few_images(
    tiny: Path, podium: Podium
) -> None:
    for name, folds in (("whole", "0,1"), ("half", "0")):
        done(podium(*TRAIN, "--folds", folds, "--name", name))
    out, err = done(podium("submit", "-c", "tiny", "--runs", "half", "whole"))
    assert "warning: half lacks its fold 1, which is not trained yet" in err
    assert "half has held out only 12 of 24" in err
    assert "on 12 held-out images" in err
    lineage = json.loads(Path(out.strip()).with_suffix(".json").read_text())
    assert [(run["run"], run["weight"], [fold["fold"] for fold in run["folds"]]) for run in lineage["runs"]] == [
        ("half", 0.5, [0]),
        ("whole", 0.5, [0, 1]),
    ]
    assert "cannot be fitted to 12 images" in one_line(
        podium("submit", "-c", "tiny", "--runs", "half", "whole", "--blend", "convex")
    )


def test_an_unreadable_test_image_keeps_its_row(tiny: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--epochs", "2", "--folds", "0"))
    images = tiny / "data" / "raw" / "tiny" / "test_image"
    (images / "002.jpg").write_bytes(b"")
    for store in ("on", "off"):
        out, err = done(podium("submit", "-c", "tiny", "--store", store))
        assert "1 test image CANNOT BE READ, test_image/002.jpg first (the file is empty)" in err
        rows = dict(line.split(",") for line in Path(out.strip()).read_text().splitlines())
        assert len(rows) == 8
        assert rows["002"] == "blue"  # the first of three classes of equal size
    for path in images.iterdir():
        path.write_bytes(b"junk")
    out, err = done(podium("submit", "-c", "tiny"))
    assert "7 test images CANNOT BE READ" in err
    assert len(Path(out.strip()).read_text().splitlines()) == 8


# --- the module --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_podium_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "podium", "--root", str(tmp_path), "folds", "-c", "tiny"]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("podium: error: ")
    assert len(result.stderr.splitlines()) == 1
