"""What labels look like: the usual names of their columns, marks, what stands between several, their order."""

import re
import unicodedata
from collections.abc import Iterable
from fractions import Fraction

import pandas as pd

TARGET_NAMES = (
    *("target", "label", "class", "category", "labels", "classes", "label_id", "class_id", "category_id"),
    *("label_name", "class_name", "category_name"),
)
MARKS, NO_MARKS = ("1", "1.0", "True"), ("0", "0.0", "False")  # in the column of a class
SEPARATORS = ("|", ";", ",", " ")  # between the labels of a cell; the blank comes last: it often stands beside another


def find_separator(cells: pd.Series) -> str:
    """Returns what stands between several labels of a cell; "" if the cells seem to hold one label each.

    Cells hold several if they have fewer different parts than there are different cells, if some cells have one part
    only, and if such a part occurs in a longer cell too. `Common Chickweed`, or `red car` and `blue car`, is one label.
    Of parts that are all whole numbers (`95 66 137`), none need stand alone.
    """
    unique = cells.drop_duplicates()
    for separator in SEPARATORS:
        parts = [[part.strip() for part in cell.split(separator) if part.strip()] for cell in unique]
        single = {row[0] for row in parts if len(row) == 1}
        several = [row for row in parts if len(row) > 1]
        known = {part for row in parts for part in row}
        is_list = any(single & set(row) for row in several) or (several and all(part.isdecimal() for part in known))
        if len(known) < len(unique) and is_list:
            return separator
    return ""


NUMBER = re.compile(r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*")


def are_numbers(cells: Iterable[str]) -> bool:
    """Returns whether all cells are plain numbers."""
    return all(NUMBER.fullmatch(cell) for cell in cells)


def are_words(cells: Iterable[str]) -> bool:
    """Returns whether no cell is a plain number."""
    return not any(NUMBER.fullmatch(cell) for cell in cells)


def normalised_label(label: str) -> str:
    """Returns the form in which similar labels are equal.

    Blanks, invisible characters, forms of letters and ways to write a number make no difference.
    """
    visible = (letter for letter in unicodedata.normalize("NFKC", label) if unicodedata.category(letter) != "Cf")
    text = " ".join("".join(visible).split())
    is_number = re.fullmatch(r"[-+]?[0-9]{1,99}(\.[0-9]{0,99})?|[-+]?\.[0-9]{1,99}", text)
    return str(Fraction(text)) if is_number else text


def sort_labels(labels: set[str]) -> list[str]:
    """Sorts by value if all labels are plain whole numbers, else as text."""
    are_numbers = all(re.fullmatch("0|[1-9][0-9]*", label) for label in labels)
    return sorted(labels, key=lambda label: (len(label) if are_numbers else 0, label))
