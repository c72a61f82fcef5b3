"""Counts the parameters and multiply-adds of all models, and writes the table that `podium models` reads.

    python docs/measure_models.py

Writes src/podium/models/catalogue.csv. Run it when the zoo or the version of timm has changed; a test compares the
table with them. For a new version of timm it takes seven minutes on two cores, else it counts the zoo's models only.
"""

import csv
import importlib.metadata
import io
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields, replace

import torch

from podium.basics.disk import write_text
from podium.basics.terminal import progress_bar
from podium.models.catalogue import TABLE, Weights, describe, origin_of, read_catalogue, table_fits
from podium.models.costs import Costs, count_costs
from podium.models.hub import registered_names

PROCESSES = 2


def main() -> None:
    rows = list(describe(registered_names()))
    costs = counted_before()
    # Weights of one model differ in their costs only if they were made for different sizes.
    names = {(row.model, row.image_size): row.name for row in reversed(rows)}
    names = {key: name for key, name in names.items() if key not in costs}
    with ProcessPoolExecutor(PROCESSES, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        counted = progress_bar(pool.map(count_costs, names.values(), chunksize=4), total=len(names))
        costs |= zip(names, counted, strict=True)
    write_text(TABLE, table(rows, costs))
    print(f"{TABLE}: {len(rows):,} rows, {len(names):,} of them counted")


def counted_before() -> dict[tuple[str, int], Costs]:
    """Returns the costs of timm's models, if the table is of this version of timm; the zoo's files may have changed."""
    known = [row for weights in read_catalogue().values() for row in weights] if table_fits() else []
    return {
        (row.model, row.image_size): Costs(row.parameters, row.multiply_adds)
        for row in known
        if origin_of(row.model) == "timm" and row.parameters is not None and row.multiply_adds is not None
    }


def table(rows: Iterable[Weights], costs: dict[tuple[str, int], Costs]) -> str:
    """Returns the text of the file: the version of timm, a header, and the models in alphabetical order."""
    file = io.StringIO()
    file.write(f"# timm {importlib.metadata.version('timm')}\n")
    writer = csv.DictWriter(file, [field.name for field in fields(Weights)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(asdict(replace(row, **costs[row.model, row.image_size]._asdict())))
    return file.getvalue()


if __name__ == "__main__":
    main()
