"""The pages of docs/stories/, which `make stories` writes: what the notebooks print and draw on the digits."""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
STORIES = ROOT / "docs" / "stories"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]*)\)")
OF_A_MACHINE = re.compile(r"/(?:tmp|home|root|Users|work|var|private)/")
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def page_of(path: Path) -> str:
    return (STORIES / f"{path.stem}.md").read_text(encoding="utf-8")


@each_notebook
def test_a_page_begins_with_its_reader_and_tells_the_notebooks_words(path: Path) -> None:
    page, cells = page_of(path), nbformat.read(path, as_version=4).cells
    title, reader, how = page.split("\n\n")[:3]
    assert cells[0].source.startswith(f"{title}\n\n{reader}\n\n")
    assert reader.startswith("For ")
    assert "make notebook" in how
    words = [part for cell in cells if cell.cell_type == "markdown" for part in cell.source.split("\n\n")]
    code = [cell.source for cell in cells if cell.cell_type == "code" and cell.id not in ("settings", "imports")]
    told = [*words, *(source for source in code if "plt.show()" not in source)]
    missing = [part for part in told if part not in page]
    assert all(re.match(r"Choose \*Run|The other notebooks", part) for part in missing), "run: make stories"


@each_notebook
def test_every_picture_is_there_and_has_a_text_in_its_place(path: Path) -> None:
    alts = {cell.metadata.get("alt") for cell in nbformat.read(path, as_version=4).cells if "plt.show()" in cell.source}
    pictures = PICTURE.findall(page_of(path))
    assert pictures
    for alt, file in pictures:
        assert len(alt) > 20
        assert alt in alts, "run: make stories"
        assert (STORIES / file).stat().st_size


def test_the_stories_are_small_and_name_no_machine() -> None:
    files = sorted(STORIES.iterdir())
    shown = {file for path in NOTEBOOKS for _, file in PICTURE.findall(page_of(path))}
    assert {file.name for file in files} == shown | {f"{path.stem}.md" for path in NOTEBOOKS}
    assert sum(file.stat().st_size for file in files) < 1_000_000
    for file in files:
        if file.suffix != ".png":
            assert not OF_A_MACHINE.search(file.read_text(encoding="utf-8")), file
