"""The checksums and the values of TFRecord files, as TensorFlow writes them."""

from pathlib import Path

import pytest

from contained import write_tfrecord
from podium_annex.formats.tfrecord import TfRecordFile, masked_crc

JPEG = b"\xff\xd8\xff an image"


def test_the_checksum_is_crc_32c_rotated_plus_a_constant() -> None:
    crc = masked_crc(b"123456789") - 0xA282EAD8 & 0xFFFFFFFF
    assert (crc << 15 | crc >> 17) & 0xFFFFFFFF == 0xE3069283  # the check value of CRC-32C


def test_features_become_text_and_the_image_stays_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrec"
    write_tfrecord(
        path, [{"id": b"x1", "image": JPEG, "class": 300, "age": 0.5, "wrong_by": -2, "mask": b"\xff" * 1000}]
    )
    file = TfRecordFile(path, "")
    assert file.names == ["x1"]
    assert file.rows.loc[1].to_dict() == {"id": "x1", "class": "300", "age": "0.5", "wrong_by": "-2"}
    assert file.read("1") == JPEG
    with pytest.raises(ValueError, match="the file has 1 records"):
        file.read("2")
