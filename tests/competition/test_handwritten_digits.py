"""The built-in competition: real digits, in Kaggle's layout, the same bytes every time."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from podium.basics.project_root import DIGITS_SLUG
from podium.competition.find.csv_files import read_table
from podium.competition.handwritten_digits import write_digits
from podium.competition.load import Competition, load
from podium.images.decode import read_image
from tiny import Podium, done, write_card

# Of the names and contents of all files. If it changes, this is another competition, and old scores no longer compare.
DIGEST = "f4a8454d5225e9c50016c0e03e08ac9a6c4888b2b77160f680bfa07cd4f66627"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Competition:
    root = tmp_path_factory.mktemp("digits")
    write_digits(root)
    return load(DIGITS_SLUG, root)


def folder_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def test_the_files_are_the_same_to_the_byte(tmp_path: Path, podium: Podium) -> None:
    out, _ = done(podium("sample"))
    assert "Handwritten digits" in out
    folder = tmp_path / "data" / "raw" / "sample"
    assert folder_digest(folder) == DIGEST
    done(podium("data", "-c", "sample"))  # the other command that writes them, over the existing files
    assert folder_digest(folder) == DIGEST
    assert not list(folder.parent.glob(".*"))


def test_a_fifth_of_every_class_is_held_out_and_its_labels_are_beside_it(digits: Competition) -> None:
    solution = read_table(digits.folder / "solution.csv")
    assert list(solution["id"]) == list(digits.test["id"])
    assert set(digits.train["id"]).isdisjoint(digits.test["id"])
    assert len(digits.train) + len(digits.test) == 1797
    for digit in digits.classes:
        held_out = (solution["target"] == digit).sum()
        assert 0.18 < held_out / (held_out + (digits.train["target"] == digit).sum()) < 0.22
    assert digits.recipe["mirror"] == 0
    assert read_image(digits.folder / digits.train["image"].iloc[0]).shape == (32, 32, 3)


def test_the_images_are_the_digits_of_scikit_learn(digits: Competition) -> None:
    from sklearn.datasets import load_digits

    scans, targets = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(targets))
    for row in digits.train.iloc[::200].itertuples():
        small = read_image(digits.folder / row.image)[:, :, 0].reshape(8, 4, 8, 4).mean((1, 3)) / 255 * 16
        assert np.corrcoef(small.ravel(), scans[order[int(row.id)]])[0, 1] > 0.97
        assert str(targets[order[int(row.id)]]) == row.target


def test_a_card_that_the_user_changed_is_kept(tmp_path: Path, podium: Podium) -> None:
    card = write_card(tmp_path, 'metric = "macro_f1"\n', "sample")
    out, _ = done(podium("sample"))
    assert "macro_f1" in out
    assert card.read_text() == 'metric = "macro_f1"\n'


def test_the_digits_that_are_there_are_kept(tmp_path: Path, podium: Podium) -> None:
    done(podium("data", "-c", "sample"))
    table = tmp_path / "data" / "raw" / "sample" / "train.csv"
    table.write_text(table.read_text() + "\n")
    edited = table.read_bytes()
    out, err = done(podium("data", "-c", "sample"))
    assert "exists already" in err
    assert "1,433 images" in out
    assert table.read_bytes() == edited
