"""An edited recipe.json is found by what each fold recorded, and so are versions of packages that changed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from podium.basics.disk import write_json
from podium.saved_runs.trained_with import RECORD, edited_options, mixed_versions
from tiny import FAST, Podium, assert_says, done, one_line, run_of

TRAIN = ("train", *FAST, "--device", "cpu", "--model", "test_vit")


def edit(root: Path, run: str, **facts: Any) -> Path:
    path = run_of(root, run).path / "recipe.json"
    write_json(path, {**json.loads(path.read_text()), **facts})
    return path


def test_a_run_whose_recipe_was_edited_is_doubted_wherever_it_is_used(two_runs: Path, podium: Podium) -> None:
    assert edited_options(run_of(two_runs, "good")) == []
    path = edit(two_runs, "good", lr=0.5, test_size=96)
    for words in (("compare", "-c", "tiny"), ("submit", "-c", "tiny", "--runs", "good", "--name", "doubted")):
        out, err = done(podium(*words))
        assert err.count(f"{path} was edited") == 1
        assert_says(err, "lr was 0.003 and is 0.5", "test_size was 64 and is 96", "restore it, or train")
    assert "was edited" in json.loads(Path(out.strip()).with_suffix(".json").read_text())["runs"][0]["doubt"]
    shutil.copytree(path.parent, path.parent.with_name("copy"))
    edit(two_runs, "good", lr=0.003, test_size=64)
    assert "copy (its recipe.json was edited)" in podium("submit", "-c", "tiny")[2]


@pytest.mark.annex
def test_no_fold_is_trained_after_such_an_edit(one_run: Path, podium: Podium) -> None:
    path = edit(one_run, "test_vit", epochs=2)
    line = one_line(podium(*TRAIN, "--epochs", "2"), f"{path} was edited", "epochs was 1 and is 2")
    assert "verify" not in line
    assert f"{path} was edited" in one_line(podium("verify", "-c", "tiny", "test_vit"))


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"weights_sha256": 1, "options": []}', "OTHER WEIGHTS"])
def test_a_damaged_record_is_named_with_a_remedy(two_runs: Path, podium: Podium, damage: str) -> None:
    path = run_of(two_runs, "good").fold_folder(1) / RECORD
    other = path.parents[2] / "idle" / "fold1" / RECORD
    path.write_text(other.read_text() if damage == "OTHER WEIGHTS" else damage)
    line = one_line(podium("compare", "-c", "tiny"))
    assert str(path) in line
    assert f"delete {path.parent}" in line


@pytest.mark.annex
def test_a_run_that_goes_on_with_other_versions_says_so_and_keeps_them(
    one_run: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(one_run)
    assert "other_versions" not in run.recipe
    now = run.recipe["versions"]
    newer = {name: f"{version}.9" if name in ("timm", "torch") else version for name, version in now.items()}
    monkeypatch.setattr("podium.saved_runs.trained_with.package_versions", lambda: newer)
    _, err = done(podium(*TRAIN, "--epochs", "1", "--folds", "0,1"))
    assert_says(err, f"timm {now['timm']} before, {now['timm']}.9 then", "install the versions")
    run = run_of(one_run)
    assert run.recipe["versions"] == now
    assert run.recipe["other_versions"] == {"1": {name: newer[name] for name in ("torch", "timm")}}
    said = mixed_versions(run)
    assert said.startswith("fold 1 of test_vit")
    csv = podium("submit", "-c", "tiny", "--anyway", "--runs", "test_vit")[1].strip()
    lineage = Path(csv).with_suffix(".json")
    for words in (("compare", "-c", "tiny"), ("verify", "-c", "tiny", "test_vit"), ("submit", "--from", lineage)):
        _, err = done(podium(*words))
        assert err.count(said) == 1, words
