"""The readers that the annex brings: of files of numbers, told by their first bytes, and of containers, by names."""

from collections.abc import Callable
from pathlib import Path

from podium.competition.containers.number_files import Reader
from podium.competition.containers.open_container import Container
from podium_annex.formats import dicom, nifti
from podium_annex.formats.bson import BsonFile
from podium_annex.formats.hdf5 import Hdf5File
from podium_annex.formats.tfrecord import TfRecordFile

READERS = [
    Reader(dicom.is_dicom, dicom.read_picture, dicom.size_of_picture, dicom.describe, False, True),
    Reader(nifti.is_nifti, nifti.read_picture, nifti.size_of_picture, nifti.describe, False),
]
OPENERS: dict[str, Callable[[Path, str], Container]] = {
    **dict.fromkeys((".hdf5", ".h5"), Hdf5File),
    **dict.fromkeys((".tfrec", ".tfrecord", ".tfrecords"), TfRecordFile),
    ".bson": BsonFile,
}
