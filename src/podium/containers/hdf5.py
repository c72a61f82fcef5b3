"""Reads an HDF5 file with a dataset for each image, called by its id, that holds the bytes of a JPEG or PNG file."""

from pathlib import Path

import numpy as np
import pandas as pd

from podium import PodiumError
from podium.containers.pixel_names import import_package


class Hdf5File:
    pixels = ""
    has_ids = True

    def __init__(self, path: Path, shape: str) -> None:
        h5py = import_package("h5py", path)
        try:
            self.file = h5py.File(path, "r")
            self.names = list(self.file)
        except (OSError, RuntimeError) as error:
            raise PodiumError(f"{path}: {error}; download it again") from None
        if self.names and not isinstance(self.file[self.names[0]], h5py.Dataset):
            self.names = []  # the weights of a model, or another tree
        self.keys = self.names
        self.rows = pd.DataFrame({"id": self.names}, index=range(1, len(self.names) + 1), dtype=object)

    def read(self, key: str) -> bytes:
        if key not in self.file:
            raise ValueError("the file has no such dataset")
        value = np.asarray(self.file[key][()])
        if value.dtype.kind == "O":
            value = np.asarray(value.item())
        if value.dtype.kind not in "SV" and (value.dtype != np.uint8 or value.ndim != 1):
            raise ValueError("the dataset does not hold the bytes of an image file")
        return value.tobytes()
