"""The embedded competition: real digits, in Kaggle's layout, the same bytes every time."""

import hashlib
from pathlib import Path

import numpy as np

from podium.competition.csv_files import read_table
from podium.competition.load import load
from podium.images.decode import read_image
from tiny import Podium

# Of all files, names and contents: another value is another competition, and old scores no longer compare.
DIGEST = "f4a8454d5225e9c50016c0e03e08ac9a6c4888b2b77160f680bfa07cd4f66627"


def digest(folder: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            whole.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def test_the_sample_is_the_same_to_the_byte(tmp_path: Path, podium: Podium) -> None:
    status, out, _ = podium("sample")
    assert status == 0
    assert "Handwritten digits" in out
    folder = tmp_path / "data" / "raw" / "sample"
    assert digest(folder) == DIGEST
    assert podium("data", "-c", "sample")[0] == 0  # another way to it, again
    assert digest(folder) == DIGEST
    assert not list(folder.parent.glob(".*"))


def test_a_fifth_of_every_class_is_held_out_and_its_labels_lie_beside_it(tmp_path: Path, podium: Podium) -> None:
    assert podium("sample")[0] == 0
    sample = load("sample", tmp_path)
    solution = read_table(sample.folder / "solution.csv")
    assert list(solution["id"]) == list(sample.test["id"])
    assert set(sample.train["id"]).isdisjoint(sample.test["id"])
    assert len(sample.train) + len(sample.test) == 1797
    for digit in sample.classes:
        held_out = (solution["target"] == digit).sum()
        assert 0.18 < held_out / (held_out + (sample.train["target"] == digit).sum()) < 0.22
    assert sample.recipe["mirror"] == 0
    assert read_image(sample.folder / sample.train["image"].iloc[0]).shape == (32, 32, 3)


def test_the_pictures_are_the_digits_of_scikit_learn(tmp_path: Path, podium: Podium) -> None:
    from sklearn.datasets import load_digits

    assert podium("sample")[0] == 0
    sample = load("sample", tmp_path)
    scans, digits = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(digits))
    for row in sample.train.iloc[::200].itertuples():
        small = read_image(sample.folder / row.image)[:, :, 0].reshape(8, 4, 8, 4).mean((1, 3)) / 255 * 16
        assert np.corrcoef(small.ravel(), scans[order[int(row.id)]])[0, 1] > 0.97
        assert str(digits[order[int(row.id)]]) == row.target


def test_a_card_of_the_users_own_is_kept(tmp_path: Path, podium: Podium) -> None:
    card = tmp_path / "data" / "competitions" / "sample.toml"
    card.parent.mkdir(parents=True)
    card.write_text('metric = "macro_f1"\n')
    status, out, _ = podium("sample")
    assert status == 0
    assert "macro_f1" in out
    assert card.read_text() == 'metric = "macro_f1"\n'
