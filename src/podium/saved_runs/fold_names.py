"""The numbers of a run's models, and what they are called: those of folds, and those that hold nothing out.

A model that learns from all images has the number WHOLE, the next one with another seed WHOLE + 1, and so on. No fold
of a folds.csv has such a number, so every image is trained on and none is held out.
"""

MOST_FOLDS = 100_000  # a folds.csv that is written by hand may have more than --k allows
WHOLE = MOST_FOLDS


def holds_nothing_out(fold: int) -> bool:
    return fold >= WHOLE


def seed_offset(fold: int) -> int:
    """Returns what is added to the seed of the recipe."""
    return max(0, fold - WHOLE)


def fold_folder_name(fold: int) -> str:
    return f"all{fold - WHOLE}" if holds_nothing_out(fold) else f"fold{fold}"


def fold_name(fold: int) -> str:
    """Returns what messages call it."""
    if not holds_nothing_out(fold):
        return f"fold {fold}"
    return "all images" if fold == WHOLE else f"all images, seed +{fold - WHOLE}"
