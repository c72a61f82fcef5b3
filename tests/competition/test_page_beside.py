"""A page beside the data only suggests: the metric that it names, the groups that it speaks of."""

from pathlib import Path

import pytest

from layouts import IMAGES, TABLES, load_files
from tiny import assert_says

PAGE = "# Cats\n## Evaluation\nSubmissions are scored by the {metric} between what is predicted and what is seen.\n"


@pytest.mark.parametrize(
    ("words", "metric"),
    [
        ("quadratic weighted kappa", "quadratic_kappa"),
        ("area under the ROC curve", "roc_auc"),
        ("multi-class logarithmic loss", "log_loss"),
        ("micro-averaged F1-score", "micro_f1"),
        ("Kullback Liebler divergence", "kl_divergence"),
    ],
)
@pytest.mark.parametrize("name", ["description.md", "overview.html"])
def test_the_metric_of_a_page_is_a_suggestion(tmp_path: Path, words: str, metric: str, name: str) -> None:
    page = PAGE.format(metric=words.replace(" ", " <b>", 1) if name.endswith("html") else words)
    competition = load_files(tmp_path, IMAGES, TABLES | {name: page})
    assert competition.metric == "accuracy"
    (note,) = [note for note in competition.notes if name in note]
    assert f'metric = "{metric}"' in note


def test_nothing_is_suggested_that_is_so_already(tmp_path: Path) -> None:
    page = PAGE.format(metric="classification accuracy")
    assert not load_files(tmp_path, IMAGES, TABLES | {"description.md": page}).notes
    page = PAGE.format(metric="quadratic weighted kappa")
    card = 'metric = "balanced_accuracy"'
    assert not load_files(tmp_path / "card", IMAGES, TABLES | {"description.md": page}, card).notes
    assert not load_files(tmp_path / "other", IMAGES, TABLES | {"notes.md": page}).notes


def test_groups_that_a_page_speaks_of_are_a_suggestion(tmp_path: Path) -> None:
    page = "There may be several images from one patient, left and right."
    (note,) = load_files(tmp_path, IMAGES, TABLES | {"README.txt": page}).notes
    assert_says(note, "patient", "group_column")
    card = "group_pattern = '(.)'"
    assert not load_files(tmp_path / "card", IMAGES, TABLES | {"README.txt": page}, card).notes
