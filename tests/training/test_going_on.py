"""Going on from a finished run: what is taken over, and what is not."""

from pathlib import Path

from tiny import FAST, Podium, one_line, run_of

MORE = ("train", "-c", "tiny", "--workers", "0", "--epochs", "1")


def test_another_image_size_brings_its_own_test_size(tiny: Path, podium: Podium) -> None:
    assert podium("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0", "--name", "first")[0] == 0
    status, _, err = podium(*MORE, "--from", "first", "--image-size", "48")
    assert status == 0, err
    more = run_of(tiny, "first-more")
    assert (more.recipe["image_size"], more.recipe["test_size"]) == (48, 48)
    assert more.finished() == [0]  # the folds that the first run has finished


def test_a_linear_head_is_not_trained_further(tiny: Path, podium: Podium) -> None:
    status, _, err = podium("train", *FAST, "--model", "test_vit", "--linear", "--folds", "0")
    assert status == 0, err
    assert "--head-first" in one_line(podium(*MORE, "--from", "test_vit-linear"))


def test_a_run_that_has_learned_nothing_is_not_advised_for_submission(tiny: Path, podium: Podium) -> None:
    words = ("--model", "test_vit", "--epochs", "1", "--folds", "0", "--lr", "1e-9")
    _, _, err = podium("train", *FAST, *words)
    assert "next: other options under another --name" in err
    assert "podium submit" not in err
