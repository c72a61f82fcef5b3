"""A Parquet file of powers by time and frequency is one picture; other tables are none."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from layouts import SLUG, load_files, raw_path, table
from podium.competition.containers.open_container import open_container
from podium.competition.containers.spectrogram import Spectrogram
from podium.competition.describe import describe
from podium.competition.find.contained_images import FEW
from podium.images.decode import BadImage, read_image

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def write_spectrogram(path: Path, powers: NDArray[np.float32]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns: dict[str, NDArray[np.generic]] = {"time": np.arange(powers.shape[1]) * 2 + 1}
    columns |= {f"LL_{0.59 + 0.2 * number:.2f}": row for number, row in enumerate(powers)}
    parquet.write_table(pyarrow.table(columns), path)


def powers_of(logarithms: list[float]) -> NDArray[np.float32]:
    """Powers of 64 frequencies, each the same at all times."""
    powers: NDArray[np.float32] = np.exp(np.array(logarithms + [-4.0] * (64 - len(logarithms)), np.float32))
    return np.repeat(powers[:, None], 5, axis=1)


def test_powers_become_logarithms_of_frequency_by_time(tmp_path: Path) -> None:
    powers = powers_of([8, -4, 2.02, 60, -50])
    powers[2, 1:4] = np.nan, 0, -1
    write_spectrogram(tmp_path / "7.parquet", powers)
    pixels = read_image(Path(f"{tmp_path}/7.parquet#picture"))
    assert pixels.shape == (64, 5, 3)
    assert pixels[:, 0, 0].tolist() == [255, 0, 128, 255, 0, *[0] * 59]
    assert pixels[2, :, 1].tolist() == [128, 0, 0, 0, 128]


def test_the_spectrograms_of_hms(tmp_path: Path) -> None:
    for number in range(4):
        write_spectrogram(raw_path(tmp_path, f"train_spectrograms/{number}.parquet"), powers_of([number]))
        eeg = raw_path(tmp_path, f"train_eegs/{number + 100}.parquet")
        eeg.parent.mkdir(exist_ok=True)
        parquet.write_table(pyarrow.table({"Fp1": [0.5, 0.25], "EKG": [1.0, 2.0]}), eeg)
    write_spectrogram(raw_path(tmp_path, "test_spectrograms/9.parquet"), powers_of([9]))
    tables = {
        "train.csv": table("eeg_id,spectrogram_id,target", *(f"{i + 100},{i},{'ab'[i % 2]}" for i in range(4))),
        "test.csv": table("spectrogram_id,eeg_id", "9,109"),
    }
    competition = load_files(tmp_path, [], tables, 'id_column = "spectrogram_id"\n')
    assert competition.train["image"].tolist() == [f"train_spectrograms/{i}.parquet#picture" for i in range(4)]
    assert competition.test["image"].tolist() == ["test_spectrograms/9.parquet#picture"]
    assert "spectrogram" in describe(competition)
    assert "logarithms" in describe(competition)


def test_of_a_folder_of_spectrograms_one_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    for number in range(FEW):
        folder = "train_spectrograms" if number % 2 else "train_eegs"
        write_spectrogram(raw_path(tmp_path, folder, f"{number}.parquet"), powers_of([number]))

    def open_and_note(path: Path, shape: str = "") -> object:
        opened.append(path.name)
        return open_container(path, shape)

    monkeypatch.setattr("podium.competition.find.contained_images.open_container", open_and_note)
    rows = table("id,label", *(f"{number},{number % 4}" for number in range(FEW)))
    assert len(load_files(tmp_path, [], {"train.csv": rows}).train) == FEW
    assert len(set(opened)) == 2


@pytest.mark.parametrize(
    "columns",
    [
        {f"LL_{number}": [0.5] for number in range(70)},
        {"time": [1], **{f"LL_{number}": [0.5] for number in range(20)}},
        {"time": [1], "name": ["a"], **{f"LL_{number}": [0.5] for number in range(70)}},
    ],
)
def test_other_tables_are_no_spectrograms(tmp_path: Path, columns: dict[str, list[object]]) -> None:
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert not isinstance(open_container(tmp_path / "a.parquet"), Spectrogram)


def test_a_damaged_or_empty_spectrogram_is_refused_in_a_line(tmp_path: Path) -> None:
    for number in range(2):
        write_spectrogram(raw_path(tmp_path, f"train/{number}.parquet"), powers_of([number]))
    load_files(tmp_path, [], {"train.csv": table("id,label", "0,a", "1,b")})
    path = raw_path(tmp_path, "train/1.parquet")
    write_spectrogram(path, powers_of([1])[:, :0])
    with pytest.raises(BadImage, match=r"train/1\.parquet#picture .*no rows"):
        read_image(Path(f"{path}#picture"))
    write_spectrogram(path, powers_of([1]))
    path.write_bytes(path.read_bytes()[:100] + bytes(900) + path.read_bytes()[1000:])
    with pytest.raises(BadImage, match=r"train/1\.parquet#picture") as refused:
        read_image(Path(f"{path}#picture"))
    assert "\n" not in str(refused.value)
    assert SLUG in str(refused.value)
