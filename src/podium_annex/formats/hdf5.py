"""Reads an HDF5 file with a dataset for each image, called by its id, that holds the bytes of a JPEG or PNG file."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.extras import import_package
from podium.basics.terminal import first_line
from podium.competition.containers.image_place import MAX_BYTES


class Hdf5File:
    pixels = ""
    has_ids = True

    def __init__(self, path: Path, shape: str) -> None:
        h5py = import_package("h5py", "formats", f"{path}: reading it")
        try:
            self.file = h5py.File(path, "r")
            self.names = list(self.file)
            if self.names and not isinstance(self.file[self.names[0]], h5py.Dataset):
                self.names = []  # the weights of a model, or another tree
        except (OSError, RuntimeError, KeyError) as error:
            raise PodiumError(f"{path}: {first_line(error)}; download it again") from None
        self.kinds = h5py.HardLink, h5py.Dataset
        self.keys = self.names
        self.rows = pd.DataFrame({"id": self.names}, index=range(1, len(self.names) + 1), dtype=object)

    def read(self, key: str) -> bytes:
        try:
            value = np.asarray(self._own_dataset(key)[()])
        except (OSError, RuntimeError, KeyError) as error:
            raise ValueError(f"the dataset is damaged ({first_line(error)})") from None
        if value.dtype.kind == "O":
            value = np.asarray(value.item())
        if value.dtype.kind not in "SV" and (value.dtype != np.uint8 or value.ndim != 1):
            raise ValueError("the dataset does not hold the bytes of an image file")
        return value.tobytes()

    def _own_dataset(self, key: str) -> Any:
        """Returns a dataset whose values are in this file, and of which memory can hold them."""
        link, dataset = self.kinds
        found = self.file[key] if isinstance(self.file.get(key, getlink=True), link) else None
        if not isinstance(found, dataset):
            raise ValueError("the file has no such dataset")
        if found.external:
            raise ValueError("its values are in another file")
        size = (found.size or 0) * found.dtype.itemsize
        if size > MAX_BYTES:
            raise ValueError(f"it has {size / 1e9:,.1f} GB, more than {MAX_BYTES / 1e9:.0f} GB")
        return found
