"""The gallery of layouts: a file in tests/competition/gallery/ holds a competition's files and what is read of them.

To add one, write its images, tables and card there, run test_gallery.py, and check what it shows before you copy it.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from layouts import IMAGE
from podium.basics.errors import PodiumError
from podium.competition.build.complete_card import as_toml
from podium.competition.describe import describe
from podium.competition.load import Competition, load

FOLDER = Path(__file__).parent / "competition" / "gallery"


@dataclass(frozen=True)
class Example:
    name: str
    slug: str
    card: str
    files: dict[str, str]  # the text of each; "" of images
    expected: str

    def write(self, root: Path) -> None:
        for name, text in self.files.items():
            path = root / "data" / "raw" / self.slug / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode() or IMAGE)
        if self.card:
            self.write_card(root, self.card)

    def write_card(self, root: Path, text: str) -> None:
        path = root / "data" / "competitions" / f"{self.slug}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def needs_annex(example: Example) -> bool:
    """Returns whether images are in a format that the annex reads."""
    return any(name.endswith((".bson", ".dcm", ".hdf5", ".nii", ".nii.gz", ".tfrec")) for name in example.files)


def examples() -> list[Example]:
    return [read_example(path) for path in sorted(FOLDER.glob("*.toml"))]


def read_example(path: Path) -> Example:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    files = {**dict.fromkeys(content["images"].split("\n")[:-1], ""), **content.get("tables", {})}
    return Example(path.stem, content.get("slug", "it"), content.get("card", ""), files, content["read"]["text"])


def what_is_read(slug: str, root: Path) -> str:
    """Returns all that Podium reads of a competition, as text: the complete card, the rows, the notes; or the error."""
    try:
        competition = load(slug, root)
    except PodiumError as error:
        return _without_paths(f"error: {error}\n", slug, root)
    lines = [
        *as_toml(slug, competition.settings).split("\n")[1:],
        *(line.strip() for line in describe(competition).split("\n") if line.startswith(("  task ", "  submit "))),
        f"classes: {' | '.join(competition.classes)}",
        f"header: {' | '.join(competition.submission_format.header)}",
        *rows_of(competition),
        *(f"note: {note}" for note in competition.notes),
    ]
    return _without_paths("\n".join(lines) + "\n", slug, root)


def rows_of(competition: Competition) -> list[str]:
    groups = competition.groups if competition.groups is not None else [""] * len(competition.train)
    train = zip(*(competition.train[name] for name in ("id", "target", "image")), groups, strict=True)
    test = zip(competition.test["id"], competition.test["image"], strict=True)
    return [
        *("train: " + " | ".join(filter(None, row)) for row in train),
        *("test: " + " | ".join(row) for row in test),
        *(f"pair: {' | '.join(row)}" for row in pairs_of(competition)),
        *([f"validation: {' | '.join(sorted(competition.validation))}"] if competition.validation else []),
    ]


def pairs_of(competition: Competition) -> list[tuple[str, str, str]]:
    pairs = competition.pairs
    return list(zip(pairs.ids, pairs.first, pairs.second, strict=True)) if pairs else []


def _without_paths(text: str, slug: str, root: Path) -> str:
    text = text.replace(str(root / "data" / "competitions" / f"{slug}.toml"), "CARD")
    return text.replace(str(root / "data" / "raw" / slug), "FOLDER")
