"""Reads the page that some copies of a competition have beside the data: description.md, overview.html, README.txt.

It may only suggest: what it says is text for people, and another competition's page may lie there. A metric that it
names, where neither the card nor Podium knows one, is a note with the line for the card. So are groups.
"""

import html
import re
from contextlib import suppress

from podium.competition.card import Card
from podium.competition.find.find_files import Files
from podium.tasks.metrics import BUILT_IN

NAMES = re.compile(r"(?:.*/)?(description|overview|evaluation|readme|about)[^/]*\.(md|html?|txt)", re.IGNORECASE)
MOST_BYTES = 1_000_000
AROUND = 1_500  # letters after the heading about the evaluation
METRICS = {  # by how pages call them; the first that is found counts
    "quadratic_kappa": r"quadratic(ally)? weighted kappa",
    "balanced_log_loss": r"(weighted|balanced) (multi-?class )?log(arithmic)? loss",
    "log_loss": r"log(arithmic)? ?loss|cross.entropy",
    "kl_divergence": r"kullback.l(ei|ie)bler|\bkl.divergence",
    "weighted_auc": r"weighted (auc|area under)",
    "partial_auc_80": r"partial area under|pauc",
    "roc_auc": r"area under the (roc|receiver)|roc.?auc|auc.?roc|column.?wise auc",
    "average_precision": r"average precision score|area under the precision",
    "map_at_5": r"map ?@ ?5|mean average precision ?@ ?5",
    "map_at_3": r"map ?@ ?3|mean average precision ?@ ?3",
    "micro_f1": r"micro.?(averaged)? ?f1",
    "macro_f1": r"macro.?(averaged)? ?f1",
    "mcc": r"matthews",
    "balanced_accuracy": r"balanced accuracy",
    "mcrmse": r"column.?wise root mean square",
    "rmse": r"root mean square|\brmse\b",
    "mae": r"mean absolute error",
    "r2": r"\br2\b|r\^2|coefficient of determination",
    "accuracy": r"(categori[sz]ation|classification|multi-?class) accuracy|\baccuracy\b",
}
GROUPS = re.compile(
    r"(?:same|per|each|by|(?:of|from) (?:a|one)) (patient|subject|person|individual|driver|site|camera)"
)


def suggestions(card: Card, files: Files, metric: str, has_groups: bool) -> list[str]:
    """Returns notes of what the page suggests and is not so here."""
    name = next((name for name in files.others if NAMES.fullmatch(name)), None)
    text = _text_of(files, name) if name else ""
    notes = []
    found = _metric_in(text)
    if found and found != metric and "metric" not in card:
        notes.append(f"{name} speaks of {found}; if that is the metric, " + card.advise(f'metric = "{found}"'))
    group = GROUPS.search(text)
    if group and not has_groups and not {"group_column", "group_pattern"} & set(card):
        who = group[1]
        advice = card.advise('group_column = "NAME"', "group_pattern = '(...)'")
        notes.append(f"{name} speaks of images of the same {who}; if a {who} has several here, {advice}")
    return notes


def _text_of(files: Files, name: str) -> str:
    """Returns the text of a page in small letters, without tags."""
    path = files.folder / name
    with suppress(OSError):
        if path.is_file() and path.stat().st_size <= MOST_BYTES:
            text = path.read_text(encoding="utf-8", errors="replace")
            text = re.sub(r"(?is)<(script|style).*?</\1>|<[^>]{1,500}>", " ", text)
            return " ".join(html.unescape(text).lower().split())
    return ""


def _metric_in(text: str) -> str:
    """Returns the metric that the page names after its heading about the evaluation; "" if none, or several."""
    start = text.find("evaluat")
    part = text[start : start + AROUND] if start >= 0 else ""
    return next((name for name, pattern in METRICS.items() if name in BUILT_IN and re.search(pattern, part)), "")
