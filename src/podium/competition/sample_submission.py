"""Reads the sample submission: its ids come first, and a row for each label becomes a row for each image."""

import re

from podium.competition.find_tables import Sources, Table
from podium.competition.long_tables import widen_sample
from podium.terminal import first_few


def read_sample_submission(sources: Sources) -> Table | None:
    """Reads the sample submission and puts its ids first; returns None if there is none.

    The ids are in the first column, unless only another column names the images.
    """
    table = sources.read_table("sample_submission")
    if table is None:
        return None
    pool = sources.image_pool("test")
    id_column = sources.card.get("id_column")
    if id_column not in table.rows:
        sources.ids_name_images = all(pool.find_candidates(table.rows.iloc[:, 0]).values())
        if sources.ids_name_images:
            return table
        wide = widen_sample(sources, table, pool)
        if wide is not None:
            return wide
        id_column = pool.find_column(table.rows, preferred=table.rows.columns[0])
        if id_column is None or table.rows[id_column].duplicated().any():
            return table
        if not all(pool.find_candidates(table.rows[id_column]).values()):
            return table
    position = list(table.rows.columns).index(id_column)
    return Table(table.path, table.rows[[id_column, *table.rows.columns.drop(id_column)]], position)


def note_possible_samples(sources: Sources) -> None:
    """Notes which files may be the sample submission, if none was found."""
    if sources.sample or "sample_submission" in sources.card:
        return
    names = [name for name in sources.files.others if re.search("submi|sample", name.lower())]
    names += [name for name in sources.files.tables if name not in sources.tables_read]
    if names:
        sources.notes.append(
            "no sample submission was found, so the submission's header and order are guesses;"
            f" if it is {first_few(names)}, " + sources.card.advise('sample_submission = "NAME"')
        )
