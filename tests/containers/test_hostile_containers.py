"""Containers that are damaged, or that somebody made to do harm, are refused in words."""

import datetime
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contained import example_of, jpegs, record
from layouts import SLUG, raw_path
from podium.basics.errors import PodiumError
from podium.competition.containers.image_place import MAX_BYTES, Place
from podium.competition.containers.open_container import open_container, read_place
from podium.competition.load import load
from podium_annex.formats.tfrecord import masked_crc

h5py = pytest.importorskip("h5py")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def hdf5_with(path: Path, change: Callable[[Any], object]) -> Path:
    """Writes two images, `good` and what `change` adds under the name `odd`."""
    with h5py.File(path, "w") as file:
        file.create_dataset("good", data=np.void(jpegs(1)[0]))
        change(file)
    return path


def link_to(link: Any) -> Callable[[Any], object]:
    return lambda file: file.__setitem__("odd", link)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda file: file.create_group("odd"), "no such dataset"),
        (link_to(h5py.SoftLink("/nowhere")), "no such dataset"),
        (link_to(h5py.SoftLink("/odd")), "no such dataset"),
        (link_to(h5py.ExternalLink("/etc/hostname", "/x")), "no such dataset"),
        (lambda file: file.create_dataset("odd", (9,), "u1", external=[("/etc/hostname", 0, 9)]), "another file"),
        (lambda file: file.create_dataset("odd", (MAX_BYTES + 1,), "u1", chunks=(1000,)), "1.0 GB"),
    ],
)
def test_an_hdf5_file_shows_only_images_of_its_own(
    tmp_path: Path, change: Callable[[Any], object], problem: str
) -> None:
    path = hdf5_with(tmp_path / "train.hdf5", change)
    assert read_place(Place(str(path), "good", "")) == jpegs(1)[0]
    with pytest.raises(ValueError, match=problem):
        read_place(Place(str(path), "odd", ""))


def test_an_hdf5_file_whose_first_name_leads_nowhere_is_named(tmp_path: Path) -> None:
    path = hdf5_with(tmp_path / "train.hdf5", lambda file: file.__setitem__("a", h5py.SoftLink("/nowhere")))
    with pytest.raises(PodiumError, match=r"train\.hdf5: .*; download it again"):
        open_container(path)


@pytest.mark.parametrize("suffix", [".hdf5", ".parquet", ".tfrec", ".csv", ".json"])
def test_a_pipe_is_refused_at_once(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"train{suffix}"
    os.mkfifo(path)
    with pytest.raises(PodiumError, match=f"train{suffix}: it is not a regular file; download it again"):
        open_container(path)


def test_a_record_longer_than_its_file_takes_no_memory(tmp_path: Path) -> None:
    path, length = tmp_path / "train.tfrec", struct.pack("<Q", 2**62)
    good = record(example_of({"image": jpegs(1)[0]}))
    path.write_bytes(good + length + struct.pack("<I", masked_crc(length)) + b"data")
    with pytest.raises(PodiumError, match="record 2: the file ends in it; download it again"):
        open_container(path)


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path, ids = tmp_path / "train.parquet", pyarrow.array(["a", "b"])
    parquet.write_table(pyarrow.Table.from_arrays([ids, ids], names=["image_id", "image_id"]), path)
    with pytest.raises(PodiumError, match="several columns are called image_id; rename"):
        open_container(path)


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        *(([1, 2], None), ({"a": 1}, None), (datetime.date(1970, 1, 2), None), (datetime.time(3), None)),
        *((b"abc", kind()) for kind in (pyarrow.binary, pyarrow.large_binary, pyarrow.binary_view)),
    ],
)
def test_a_column_of_pixels_that_holds_no_numbers_is_refused(tmp_path: Path, cell: object, kind: object) -> None:
    columns = {f"pixel{number}": [0, 1] for number in range(64)}
    path = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.table({**columns, "pixel5": pyarrow.array([cell, cell], kind)}), path)
    with pytest.raises(PodiumError, match=r"train\.parquet: the column 'pixel5' holds .*; write whole numbers"):
        open_container(path)


@pytest.mark.parametrize("cell", ["abc", 5, [1, 2]])
def test_a_parquet_file_without_images_is_refused(tmp_path: Path, cell: object) -> None:
    path = raw_path(tmp_path, "train.parquet")
    path.parent.mkdir(parents=True)
    parquet.write_table(pyarrow.table({"label": ["a", "b"], "image": [cell, cell]}), path)
    with pytest.raises(PodiumError, match=r"train\.parquet: none of its columns holds images .*; write the bytes"):
        load(SLUG, tmp_path)
