"""Each example of the gallery is read the same when its folders are archives, and when all of it is one archive."""

import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from archives import zip_folder
from gallery import examples, needs_annex, what_is_read
from podium.competition.load import load
from podium.kaggle.download import load_unpacked
from podium.kaggle.unpack_archives import unpack
from second_round import first_of

READ = {example.name: example for example in examples() if not example.expected.startswith("error: ")}
RARE = [name for name, example in READ.items() if needs_annex(example)]
IN_FOLDERS = [name for name, example in READ.items() if any("/" in file for file in example.files)]


def without_doubled_folders(read: str) -> str:
    """Returns the text with train/ for the path train/train/: an archive of that name becomes one folder of it."""
    return re.sub(r"(?<![^ /])(\w+)/\1/", r"\1/", read)


@pytest.mark.parametrize("inside", ["the folder", pytest.param("its files", marks=pytest.mark.all)])
@pytest.mark.parametrize("name", first_of(IN_FOLDERS, IN_FOLDERS, annex={*IN_FOLDERS} & {*RARE}))
def test_an_archive_for_each_folder(tmp_path: Path, name: str, inside: str) -> None:
    """The archive of train/ holds train/1.jpg or, as some of Kaggle's, 1.jpg."""
    example = READ[name]
    example.write(tmp_path)
    raw = tmp_path / "data" / "raw" / example.slug
    for folder in [path for path in raw.iterdir() if path.is_dir()]:
        archive = zip_folder(folder, raw if inside == "the folder" else folder)
        shutil.rmtree(folder)
        (raw / f"{folder.name}.zip").write_bytes(archive)
    load_unpacked(example.slug, tmp_path, partial(load, example.slug, tmp_path))
    read = what_is_read(example.slug, tmp_path)
    assert without_doubled_folders(read) == without_doubled_folders(example.expected)


@pytest.mark.parametrize("name", first_of(list(READ)[::5], READ, annex=RARE))
def test_one_archive_of_all(tmp_path: Path, name: str) -> None:
    example = READ[name]
    example.write(tmp_path)
    raw = tmp_path / "data" / "raw" / example.slug
    archive = raw.with_suffix(".zip")
    archive.write_bytes(zip_folder(raw, raw))
    shutil.rmtree(raw)
    unpack(archive, raw)
    assert what_is_read(example.slug, tmp_path) == example.expected
