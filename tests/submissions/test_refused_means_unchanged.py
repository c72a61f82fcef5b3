"""A command that is refused leaves every file as it was: it checks everything, then it writes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from podium.basics.disk import sha256
from second_round import first_of
from templates import template
from tiny import FAST, Podium, done, one_line, podium_at, two_trained_runs, write_file

CONVNEXT = ("--model", "test_convnext", "--epochs", "8", "--lr", "3e-3")
# What commands keep to be faster, or to stay out of each other's way: it can be deleted, and holds no one's work.
CACHES = ("test.npz", ".lock", "pixels-*", "audit.*", "duplicates.csv")


def with_everything_written(root: Path) -> None:
    """Makes the project of two runs, with a submission, pages, pictures, a bundle and its own corrections."""
    shutil.copytree(template(two_trained_runs), root, dirs_exist_ok=True)
    card = root / "data" / "competitions" / "tiny.corrections.csv"
    write_file(card, "id,label,why\n000,red,\n")
    podium_at(root, "submit", "-c", "tiny", "--runs", "good")
    podium_at(root, "report", "-c", "tiny")
    bundle = root / "submissions" / "tiny" / "bundle"
    bundle.mkdir()
    (bundle / "inference.ipynb").write_text("{}")
    (root / "mine.csv").write_text("id,label\n001,blue\n")


def all_files(root: Path) -> dict[str, str]:
    """Every file and folder below the root: the hash of what it holds."""
    return {
        str(path.relative_to(root)): sha256(path) if path.is_file() else "a folder"
        for path in sorted(root.rglob("*"))
        if not any(part.match(cache) for part in (path, *path.relative_to(root).parents) for cache in CACHES)
    }


def nothing(root: Path) -> None:
    pass


def damage(name: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        write_file(root / name, b"damaged")

    return write


def delete_page_and_damage(root: Path) -> None:
    (root / "runs" / "tiny" / "good" / "report.html").unlink()
    damage("runs/tiny/idle/fold1/oof.npz")(root)


def break_sample_card(root: Path) -> None:
    podium_at(root, "sample")
    (root / "data" / "raw" / "sample" / "mine.txt").write_text("kept")
    (root / "data" / "competitions" / "sample.toml").write_text('metric = "accurac"\n')


PICTURES = ("--images", "data/raw/tiny/test_image/000.jpg", "--output", "pictures")
COMMANDS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "folds_in_use": (nothing, ("folds", "-c", "tiny", "--k", "3", "--corrections", "mine.csv")),
    "folds_k": (nothing, ("folds", "-c", "tiny", "--k", "1", "--corrections", "mine.csv")),
    "folds_verify": (
        damage("data/prepared/tiny/other.csv"),
        ("folds", "-c", "tiny", "--verify", "data/prepared/tiny/other.csv", "--corrections", "mine.csv"),
    ),
    "train_other_recipe": (
        nothing,
        ("train", *FAST, *CONVNEXT, "--name", "good", "--epochs", "9", "--corrections", "mine.csv"),
    ),
    "train_unknown_model": (nothing, ("train", *FAST, "--model", "no_such_model", "--corrections", "mine.csv")),
    "submit_unknown_run": (nothing, ("submit", "-c", "tiny", "--runs", "none")),
    "submit_damaged": (damage("runs/tiny/good/fold1/model.safetensors"), ("submit", "-c", "tiny", "--runs", "good")),
    "submit_reserved_name": (nothing, ("submit", "-c", "tiny", "--runs", "good", "--name", "history")),
    "submit_from_damaged": (
        damage("runs/tiny/good/fold1/model.safetensors"),
        ("submit", "--from", "submissions/tiny/good.json"),
    ),
    "bundle_without_network": (nothing, ("kaggle-bundle", "-c", "tiny", "--runs", "good")),
    "bundle_damaged": (
        damage("runs/tiny/good/fold1/model.safetensors"),
        ("kaggle-bundle", "-c", "tiny", "--runs", "good"),
    ),
    "report_second_damaged": (delete_page_and_damage, ("report", "-c", "tiny")),
    "lineage_damaged": (damage("submissions/tiny/good.json"), ("lineage", "submissions/tiny/good.csv")),
    "predict_no_images": (nothing, ("predict", "good", "nowhere.jpg", "-c", "tiny")),
    "explain_no_such_picture": (
        nothing,
        ("explain", "--model", "test_convnext", "--weights", "none", "--what", "class_attention", *PICTURES),
    ),
    "explain_second_refused": (
        nothing,
        (
            "explain",
            "--model",
            "test_vit",
            "test_convnext",
            "--weights",
            "none",
            "--what",
            "class_attention",
            *PICTURES,
        ),
    ),
    "compare_picture": (nothing, ("compare", "-c", "tiny", "--picture", "mine.jpg")),
    "sample_with_broken_card": (break_sample_card, ("sample",)),
    "data_without_token": (nothing, ("data", "-c", "nothing-there")),
    "kaggle_train_unknown_model": (nothing, ("kaggle-train", "-c", "tiny", "--model", "no_such_model")),
    "pretrain_unknown_model": (nothing, ("pretrain", "-c", "tiny", "--model", "no_such_model")),
    "audit_image_size": (nothing, ("audit", "-c", "tiny", "--image-size", "0")),
    "score_other_ids": (nothing, ("score", "submissions/tiny/good.csv", "--solution", "mine.csv")),
    "bench_unknown_model": (nothing, ("bench", "-c", "tiny", "--model", "no_such_model", "--json", "bench.json")),
}


@pytest.mark.annex
@pytest.mark.parametrize("name", first_of(COMMANDS.keys() - {"bundle_damaged", "explain_second_refused"}, COMMANDS))
def test_a_refused_command_changes_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, podium: Podium, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shutil.copytree(template(with_everything_written), tmp_path, dirs_exist_ok=True)
    prepare, words = COMMANDS[name]
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for variable in ("KAGGLE_API_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # there is nothing
    monkeypatch.setenv("PIP_RETRIES", "0")
    before = all_files(tmp_path)
    one_line(podium(*words))
    assert all_files(tmp_path) == before


@pytest.mark.annex
def test_a_run_whose_model_is_refused_leaves_the_corrections_as_they_were(tmp_path: Path, podium: Podium) -> None:
    """The model is built after the run's folder: a run that fails before its first checkpoint leaves a recipe only."""
    shutil.copytree(template(with_everything_written), tmp_path, dirs_exist_ok=True)
    corrections = tmp_path / "data" / "competitions" / "tiny.corrections.csv"
    before, train = corrections.read_bytes(), ("train", *FAST, "--model", "test_vit", "--folds", "0", "--epochs", "1")
    words = ("--corrections", tmp_path / "mine.csv")
    one_line(podium(*train, *words, "--image-size", "33"))
    assert corrections.read_bytes() == before
    done(podium(*train, *words))
    assert b"001,blue" in corrections.read_bytes()
