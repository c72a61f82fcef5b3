"""Reads a TFRecord file of images without TensorFlow.

A record is a length, its checksum, the data and their checksum. The data are a protobuf message `Example`: a map from
names of features to lists of bytes, floats or whole numbers. The checksums of lengths are compared, so a file that is
cut off is detected. Damage in an image is left to its decoder.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from podium.basics.errors import PodiumError
from podium.competition.containers.pixel_names import names_of

IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"RIFF", b"GIF8", b"BM")  # the first bytes of image files
LENGTH = struct.Struct("<QI")  # of the data, and its checksum
VARINT, EIGHT_BYTES, TEXT, FOUR_BYTES = 0, 1, 2, 5  # protobuf's wire types


class TfRecordFile:
    pixels = ""

    def __init__(self, path: Path, shape: str) -> None:
        self.path = path
        self.places: list[tuple[int, int]] = []  # of each record's image: offset and length
        features = []
        for number, (offset, data) in enumerate(_records(path), 1):
            try:
                image, texts = _image_and_texts(data)
            except (IndexError, ValueError, struct.error):
                raise PodiumError(f"{path}, record {number}: not an Example with an image; download it again") from None
            self.places.append((offset + image[0], image[1] - image[0]))
            features.append(texts)
        self.rows = pd.DataFrame(features, index=range(1, len(features) + 1), dtype=object).fillna("")
        self.names, self.has_ids = names_of(self.rows, len(features))
        self.keys = [str(number) for number in range(1, len(features) + 1)]

    def read(self, key: str) -> bytes:
        number = int(key)
        if not 1 <= number <= len(self.places):
            raise ValueError(f"the file has {len(self.places):,} records")
        offset, length = self.places[number - 1]
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields the offset and the data of each record."""
    with path.open("rb") as file:
        number, size = 1, os.fstat(file.fileno()).st_size
        while head := file.read(LENGTH.size):
            length, checksum = LENGTH.unpack(head) if len(head) == LENGTH.size else (0, -1)
            if checksum != masked_crc(head[:8]):
                raise PodiumError(f"{path}, record {number}: its length is damaged; download it again")
            if length + 4 > size - file.tell():
                raise PodiumError(f"{path}, record {number}: the file ends in it; download it again")
            yield file.tell(), file.read(length)
            file.seek(4, os.SEEK_CUR)  # its checksum
            number += 1


def masked_crc(data: bytes) -> int:
    """Returns the checksum of TFRecord: CRC-32C, rotated, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def _image_and_texts(data: bytes) -> tuple[tuple[int, int], dict[str, str]]:
    """Returns where the image lies in the data of an Example, and its other features of one value, as text."""
    image, texts = None, {}
    for _, features in _fields(data, 0, len(data)):
        for _, entry in _fields(data, *_span(features)):
            fields = dict(_fields(data, *_span(entry)))  # of the entry of a map: 1 is the key, 2 the value
            name = data[slice(*_span(fields[1]))].decode()
            values = list(_values(data, *_span(fields[2])))
            if len(values) == 1 and isinstance(values[0], tuple):
                content = data[slice(*values[0])]
                if image is None and content.startswith(IMAGES):
                    image = values[0]
                elif len(content) < 1000:
                    texts[name] = content.decode()
            elif len(values) == 1:
                texts[name] = str(values[0])
    if image is None:
        raise ValueError("no image")
    return image, texts


def _values(data: bytes, start: int, stop: int) -> Iterator[int | float | tuple[int, int]]:
    """Yields the values of a Feature: where bytes lie, floats or whole numbers."""
    for kind, values in _fields(data, start, stop):  # 1: bytes, 2: floats, 3: whole numbers
        for _, value in _fields(data, *_span(values)):
            if kind == 1:
                yield _span(value)
            elif kind == 2:
                first, last = _span(value)
                yield from (number for (number,) in struct.iter_unpack("<f", data[first:last]))
            elif isinstance(value, int):
                yield _signed(value)
            else:
                position, last = value
                while position < last:
                    number, position = _varint(data, position)
                    yield _signed(number)


def _fields(data: bytes, start: int, stop: int) -> Iterator[tuple[int, int | tuple[int, int]]]:
    """Yields the fields of a protobuf message: the number of each, and its whole number or where its bytes lie."""
    while start < stop:
        tag, start = _varint(data, start)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, start = _varint(data, start)
            yield number, value
            continue
        length = {EIGHT_BYTES: 8, FOUR_BYTES: 4}.get(wire)
        if wire == TEXT:
            length, start = _varint(data, start)
        if length is None or start + length > stop:
            raise ValueError("a damaged field")
        yield number, (start, start + length)
        start += length


def _span(value: int | tuple[int, int]) -> tuple[int, int]:
    if isinstance(value, int):
        raise ValueError("a whole number in place of a message")
    return value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a whole number of seven bits a byte, and the position behind it."""
    number = shift = 0
    while True:
        byte = data[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return number, position


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
