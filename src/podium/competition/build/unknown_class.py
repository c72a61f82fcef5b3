"""Finds the class for unknown ones that no training image has, such as Happywhale's `new_individual`.

The card names it (`unknown = "new_individual"`), or the sample submission answers one of UNKNOWN_NAMES beside labels of
the training table. If training images have the class, as in Humpback Whale (`new_whale`), it is a class like the
others, and nothing here concerns it.

Folds hold some classes out whole (folds/unseen_classes.py). Their held-out images are unknown to the model that
predicts them, so they are scored as the unknown class (tasks/scored_labels.py), and a threshold can be fitted to them.
"""

from dataclasses import dataclass

from podium.basics.errors import PodiumError
from podium.competition.card import Card
from podium.competition.find.table import Table
from podium.tasks.metrics import METRICS

UNKNOWN_NAMES = ("new_whale", "new_individual", "unknown")
# The share of unknown images that folds aim at if the card does not say it. A guess: enough to fit a threshold to, and
# so few that nine tenths of the held-out images are left for the classes that models tell apart.
USUAL_SHARE = 0.1
WITHOUT_PLACE = ("quadratic_kappa", "gap")  # metrics that have no answer for an unknown image, or an empty one


@dataclass(frozen=True)
class UnknownClass:
    name: str
    share: float = USUAL_SHARE  # of the images that are unknown
    is_share_known: bool = False  # whether the card says it: then it is that of the test images
    notes: tuple[str, ...] = ()


def find_unknown(card: Card, names: list[str], sample: Table | None, is_possible: bool) -> UnknownClass | None:
    """Returns the unknown class if no training image has it; `names` are the labels of the training images.

    It is possible where each image has one label, and no probability beside it. The answers must be labels.
    """
    name, notes = card.get("unknown"), list[str]()
    if name is None and sample is not None:
        answers = _answers_in(sample)
        answered = [other for other in UNKNOWN_NAMES if other in answers and other not in names]
        if answered and answers.intersection(names):  # else it may fill the cells because something must
            name = answered[0]
            notes = [f"'{name}' is taken for the unknown class; " + card.advise('unknown = ""') + " if it is none"]
    if not name or name in names or not (is_possible and _can_be_answered(card, sample)):
        if "unknown_share" in card:
            raise PodiumError(
                f"{card.path}: unknown_share is for an unknown class that no training image has, and that is an answer;"
                " delete it, or correct unknown"
            )
        return None
    if "shares" in card:
        raise PodiumError(
            f"{card.path}: shares does not go with the unknown class '{name}', whose threshold decides; delete shares,"
            " and write unknown_share if you know it"
        )
    notes.insert(
        0, f"no training image has the class '{name}': images of classes that a fold holds out whole count as it"
    )
    share = float(card.get("unknown_share", USUAL_SHARE))
    return UnknownClass(str(name), share, "unknown_share" in card, tuple(notes))


def note_on_placeholder(card: Card, unknown_answers: list[str]) -> str:
    """Returns advice if answers of the sample that are no labels may be the unknown class; "" if none may."""
    answered = [name for name in UNKNOWN_NAMES if name in unknown_answers]
    if not answered or "unknown" in card:
        return ""
    setting = f'unknown = "{answered[0]}"'
    return f"; if test images may be unknown, {card.advise(setting)}"


def _answers_in(sample: Table) -> set[str]:
    """Returns the cells of the only answer column, and the words in them; nothing of several columns."""
    if len(sample.answer_columns) != 1 or len(sample.rows.columns) < 2:
        return set()
    cells = set(sample.rows.iloc[:, 1].str.strip())
    return cells.union(*(cell.split() for cell in cells))


def _can_be_answered(card: Card, sample: Table | None) -> bool:
    """Returns whether a cell of the submission holds labels, of which the unknown class may be one."""
    if sample is not None and (len(sample.answer_columns) != 1 or sample.long is not None):
        return False
    metric = card.get("metric")
    wants = METRICS[metric]().wants if metric else "labels"
    return card.get("wants", wants) != "probs" and wants in ("labels", "ranking", "") and metric not in WITHOUT_PLACE
