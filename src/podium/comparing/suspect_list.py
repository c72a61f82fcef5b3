"""Lists the training images whose label is probably wrong.

    podium audit --suspects [RUN ...] [--csv]

Reads runs/<slug>/*/fold<k>/oof.npz and the competition's files. Writes nothing; --csv prints a file for --corrections.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import plural, podium_command, table
from podium.blending.held_out import collect_held_out
from podium.blending.select_runs import select_runs
from podium.comparing.label_suspects import find_suspects
from podium.competition.build.corrections import corrections_csv
from podium.competition.load import Competition
from podium.tasks.task import ONE_LABEL

SHOWN = 50  # lines; --csv prints all
CAUTION = "the lower that share, the more of the suspects are mistakes of the model"


def rank_labels(competition: Competition, names: list[str] | None = None) -> pd.DataFrame:
    """Returns a row for each image that the runs held out, the most suspicious label first.

    The mean of the runs' predictions decides: of `names`, or of all that a submission would blend. The columns are id,
    label, suggested, label_prob, suggested_prob, is_suspect, is_predicted (the label is the most probable class) and
    runs. An image that a line of the corrections names was looked at by the user, so it is no suspect.
    """
    if competition.task is not ONE_LABEL:
        problem = f"these have {competition.task.words.removesuffix(' an image')}"
        raise PodiumError(f"doubtful labels are found where each image has one label; {problem}")
    runs = select_runs(competition, names)
    held_out = collect_held_out(runs, competition.classes, labels=competition.label_of)
    if not len(held_out):
        raise PodiumError(
            f"no training image was held out by all of the runs {', '.join(run.name for run in runs)}; name runs of the"
            " same folds, or one run"
        )
    if unknown := competition.unknown:  # the models have never seen the labels of images that count as unknown
        is_known = held_out.targets.values != competition.classes.index(unknown.name)
        held_out = replace(held_out.of(is_known), ids=np.array(held_out.ids, dtype=object)[is_known].tolist())
    probs = held_out.probs[0] if len(runs) == 1 else held_out.probs.mean(0)  # the mean of one would be a copy
    classes = np.array(competition.classes, dtype=object)
    suspects = find_suspects(held_out.targets.values, probs)
    order, given = suspects.order, held_out.targets.values[suspects.order]
    ids = np.array(held_out.ids, dtype=object)[order]
    checked = competition.corrections.lines
    return pd.DataFrame(
        {
            "id": ids,
            "label": classes[given],
            "suggested": classes[suspects.suggested],
            "label_prob": probs[order, given],
            "suggested_prob": probs[order, suspects.suggested],
            "is_suspect": suspects.is_suspect & ~np.array([name in checked for name in ids]),
            "is_predicted": (probs.argmax(1) == held_out.targets.values)[order],
            "runs": "+".join(run.name for run in runs),
        }
    )


def suspects_as_corrections(ranked: pd.DataFrame) -> str:
    """Returns the suspects as a file of corrections, which the user edits."""
    return corrections_csv(
        (
            row.id,
            row.suggested,
            f"{row.runs} gives {row.suggested} {row.suggested_prob:z.3f} and {row.label} {row.label_prob:z.3f}",
        )
        for row in ranked[ranked["is_suspect"]].itertuples()
    )


def describe_suspects(competition: Competition, ranked: pd.DataFrame) -> str:
    """Returns the suspects as a table for people."""
    suspects = ranked[ranked["is_suspect"]]
    runs, images = ranked["runs"].iloc[0], plural(len(ranked), "image")
    unseen = len(competition.train) - len(ranked)
    why = "that no fold validated" + (", or whose class its model has not seen," if competition.unknown else "")
    others = f"; {plural(unseen, 'training image')} {why} cannot be judged" if unseen else ""
    title = f"{plural(len(suspects), 'label')} of {images} probably wrong, by the predictions of {runs}{others}"
    title += f"\nright with {ranked['is_predicted'].mean():.1%} of the labels: {CAUTION}"
    if not len(suspects):
        return title
    rows = [
        [row.id, row.label, row.suggested, f"{row.label_prob:z.3f}", f"{row.suggested_prob:z.3f}"]
        for row in suspects.head(SHOWN).itertuples()
    ]
    header = ["id", "label", "suggested", "prob. of label", "prob. of suggested"]
    more = f"\n... and {len(suspects) - SHOWN:,} more" if len(suspects) > SHOWN else ""
    command = f"{podium_command()} audit -c {competition.slug} --suspects --csv"
    advice = (
        f"{command} prints them as a file for --corrections. Look at each image: where its"
        "\nlabel is right, write that label in the line, and the image is no suspect any more."
    )
    return f"{title}\n{table(header, rows, 3)}{more}\n\n{advice}"
