"""Counts the parameters and multiply-adds of all models, and writes the table that `podium models` reads.

    python -m benchmarks.catalogue

Writes src/podium/models/catalogue.csv. Run it when the zoo or the version of timm has changed; a test compares the
table with them. For a new version of timm it takes seven minutes on two cores, else it counts the zoo's models only.
"""

import csv
import importlib.metadata
import io
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields, replace

import torch

from benchmarks.harness import call
from podium.basics.disk import write_text
from podium.basics.terminal import progress_bar
from podium.models.catalogue import TABLE, Weights, describe, origin_of, read_catalogue, table_fits
from podium.models.costs import Costs, count_costs
from podium.models.hub import registered_names


def catalogue(processes: int = 2) -> None:
    # The costs of timm's models are known if the table is of this version of timm; the zoo's files may have changed.
    known = [row for weights in read_catalogue().values() for row in weights] if table_fits() else []
    costs = {
        (row.model, row.image_size): Costs(row.parameters, row.multiply_adds)
        for row in known
        if origin_of(row.model) == "timm" and row.parameters is not None and row.multiply_adds is not None
    }
    rows = list(describe(registered_names()))
    # Weights of one model differ in their costs only if they were made for different sizes.
    names = {(row.model, row.image_size): row.name for row in reversed(rows)}
    names = {key: name for key, name in names.items() if key not in costs}
    with ProcessPoolExecutor(processes, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        counted = progress_bar(pool.map(count_costs, names.values(), chunksize=4), total=len(names))
        costs |= zip(names, counted, strict=True)
    file = io.StringIO()
    file.write(f"# timm {importlib.metadata.version('timm')}\n")
    writer = csv.DictWriter(file, [field.name for field in fields(Weights)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(replace(row, **costs[row.model, row.image_size]._asdict())) for row in rows)
    write_text(TABLE, file.getvalue())
    print(f"{TABLE}: {len(rows):,} rows, {len(names):,} of them counted")


if __name__ == "__main__":
    call(catalogue)
