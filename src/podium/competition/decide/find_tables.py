"""Finds the tables among a competition's files: the sample submission, the training table, the test table."""

import re
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.card import Card
from podium.competition.find.find_files import Files

TableKey = Literal["sample_submission", "train_table", "test_table"]

# Patterns for the names of tables, in small letters without punctuation; the first pattern that fits a table decides.
TABLE_NAMES: dict[TableKey, tuple[str, ...]] = {
    "sample_submission": (r"samplesub.*|submission.*", r".*submission.*|.*submit.*|sample", r".*test.*sample"),
    "train_table": (r"train(labels?)?", r"train.*", r".*train.*", r"labels?"),
    "test_table": (r"test(ids)?", r"test.*", r"(public|private)test.*", r".*testinformation"),
}


# Answers that any model should beat, in the form of a submission: all zeros, all ones.
BENCHMARK = r".*benchmark"


class FoundTable(NamedTuple):
    name: str | None  # "" if the card says that there is none, None if none was found
    origin: str
    note: str = ""


def find_table(files: Files, card: Card, key: TableKey, sample: str | None = None) -> FoundTable:
    """Returns the table that the card names, else the one whose name fits best and is not the `sample` submission.

    A copy of the competition may have the table that Podium knows in another folder, or not at all.
    """
    if key not in card:
        return _guess_table(files, card, key, sample)
    named, tables = str(card[key]), (*files.tables, *files.others)
    name = named.removeprefix("./")
    if not named or name in tables:
        return FoundTable(name, card.origin_of(key))
    elsewhere = [table for table in tables if PurePosixPath(table).name == name]
    if key in card.known and len(elsewhere) == 1:
        return FoundTable(elsewhere[0], card.origin_of(key))
    refusal = (
        f'{card.path}: {key} = "{named}" is not among the tables of {files.folder}: {first_few(files.tables)};'
        " correct that name"
    )
    guess = _guess_table(files, card, key, sample)
    note = (
        f'{key} = "{named}" is not among these files, as this competition has it; {guess.name or "none"} stands for it'
    )
    return guess._replace(note=card.drop(key, note, refusal))


def _guess_table(files: Files, card: Card, key: TableKey, sample: str | None) -> FoundTable:
    """Returns the table whose name fits best; of several, the one in the fewest folders."""
    stems = {name: _comparable_stem(name) for name in files.tables}
    for pattern in TABLE_NAMES[key]:
        matches = [name for name, stem in stems.items() if name != sample and re.fullmatch(pattern, stem)]
        matches.sort(key=lambda name: name.count("/"))
        if len(matches) > 1 and matches[0].count("/") == matches[1].count("/"):
            raise PodiumError(
                f"{files.folder}: {matches[0]} and {matches[1]} could both be the {key.replace('_', ' ')}; "
                + card.advise(f'{key} = "NAME"')
            )
        if matches:
            return FoundTable(matches[0], "by its name")
    benchmarks = sorted(name for name, stem in stems.items() if re.fullmatch(BENCHMARK, stem))
    if key == "sample_submission" and benchmarks:
        of_several = f", the first of {len(benchmarks)}" if len(benchmarks) > 1 else ""
        return FoundTable(benchmarks[0], f"by its name{of_several}")
    return FoundTable(None, "no table has such a name")


def find_validation_table(files: Files, name: str) -> str | None:
    """Returns the table for validation beside a training table: val_labels.csv beside train_labels.csv."""
    names = [re.sub("train(ing)?", word, name, flags=re.IGNORECASE) for word in ("val", "valid", "validation")]
    found = next((other for other in names if other != name and other in files.tables), None)
    return None if found is None or found in files.containers else found


def _comparable_stem(name: str) -> str:
    """Returns the name in small letters without punctuation.

    With its folder if it is a JSON file (train/metadata.json), or if it says nothing alone (train/annotations.csv).
    """
    path = PurePosixPath(name)
    stem, folder = (re.sub(r"[\W_]", "", part.lower()) for part in (path.stem, path.parent.name))
    says_nothing = not any(re.fullmatch(pattern, stem) for patterns in TABLE_NAMES.values() for pattern in patterns)
    return f"{folder}{stem}" if says_nothing or path.suffix.lower() == ".json" else stem
