"""Describes the files of a store. store.py reads them, store_builder.py writes them.

    data/prepared/<slug>/pixels-<key>/pixels.bin     uint8: RGB, or the card's channels; shrunk, never enlarged
                                      index.npy      for each image: offset in pixels.bin, height, width
                                      thumbs.bin     for each image: a thumbnail of 24 x 24, which the audit compares
                                      files.jsonl    for each image: a `FileRecord`
                                      manifest.json  how the store was built, sizes and hashes of the other files

All files hold the images in the order of their paths.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

THUMB = 24  # pixels, the side of a thumbnail; duplicates.py divides it into 12 and 8 cells
APPENDED = ("pixels.bin", "thumbs.bin", "files.jsonl")  # written while images are decoded
STORED = (*APPENDED, "index.npy")  # all but the manifest, which lists them


class FileRecord(NamedTuple):
    """What one image file is: a line of files.jsonl."""

    image: str  # its place (image_place.py), relative to the competition's folder
    bytes: int
    sha256: str
    format: str
    mode: str
    doubt: str  # damage in a file that can be read; "" if none
    width: int  # upright, of the part that its place names, before it is shrunk; 0 if the file cannot be read
    height: int
    stored_width: int
    stored_height: int
    reason: str  # why the file cannot be read; "" if it can
    values: tuple[float, float] | None = None  # the lowest and the highest, if it has more than 8 bits
    pages: int = 1  # in the file, of which the first is read


def read_manifest(path: Path) -> dict[str, Any]:
    """Returns the manifest of the store at `path`; an empty one if the store is incomplete or damaged."""
    try:
        manifest = dict(json.loads((path / "manifest.json").read_text(encoding="utf-8")))
        sizes = {name: (path / name).stat().st_size for name in STORED}
        types = {"side": int, "largest": int, "kept": bool, "sha256": dict}
        is_complete = sizes == manifest["bytes"] and sizes.keys() == manifest["sha256"].keys()
        is_valid = is_complete and all(isinstance(manifest[key], kind) for key, kind in types.items())
        return manifest if is_valid else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
