"""DICOM files are read as viewers show them; without the package, the message names the extra that brings it."""

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from layouts import SLUG, load_files, raw_path, table
from podium.competition.containers.image_place import MAX_PIXELS
from podium.competition.containers.number_files import size_in_header
from podium.competition.load import load
from podium.images.decode import BadImage, decode, decode_with_header, read_image
from tiny import assert_says, write_file

pytestmark = pytest.mark.annex

pydicom = pytest.importorskip("pydicom")


def dataset(values: NDArray[np.generic], kind: str = "MONOCHROME2", **changes: Any) -> Any:
    """A DICOM file of this image, as a small scanner writes it; `changes` are further elements."""
    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    file = pydicom.dataset.Dataset()
    file.file_meta = meta
    file.SOPClassUID, file.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    file.Rows, file.Columns = values.shape[-2:] if kind.startswith("MONO") else values.shape[:2]
    file.SamplesPerPixel, file.PhotometricInterpretation = (1 if kind.startswith("MONO") else 3), kind
    if file.SamplesPerPixel == 3:
        file.PlanarConfiguration = 0
    file.BitsAllocated = file.BitsStored = 8 * values.itemsize
    file.HighBit, file.PixelRepresentation = file.BitsStored - 1, int(values.dtype.kind == "i")
    file.PixelData = values.tobytes()
    for name, value in changes.items():
        setattr(file, name, value)
    return file


def written(file: Any) -> bytes:
    output = io.BytesIO()
    file.save_as(output, enforce_file_format=True)
    return output.getvalue()


VALUES = 100 * np.arange(16, dtype=np.uint16).reshape(4, 4)
RGB = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)


def greys(values: NDArray[np.generic], kind: str = "MONOCHROME2", **changes: Any) -> list[int]:
    pixels: list[int] = decode(written(dataset(values, kind, **changes)), "a.dcm")[..., 0].ravel().tolist()
    return pixels


def test_without_a_window_an_image_has_its_own_range() -> None:
    assert greys(VALUES) == [round(255 * number / 15) for number in range(16)]
    assert greys(VALUES, "MONOCHROME1") == [255 - round(255 * number / 15) for number in range(16)]


def test_the_first_window_is_taken_behind_slope_and_intercept() -> None:
    window: dict[str, Any] = {"WindowCenter": [500.5, 99], "WindowWidth": [801, 9]}  # 100 to 900
    expected = [round(255 * min(max((100 * number - 100) / 800, 0), 1) + 1e-6) for number in range(16)]
    assert greys(VALUES, **window) == expected
    shifted: dict[str, Any] = {"RescaleSlope": 2, "RescaleIntercept": -1000, "WindowCenter": 0.5, "WindowWidth": 1601}
    assert greys(VALUES, **shifted) == [round(255 * min(max((200 * n - 200) / 1600, 0), 1)) for n in range(16)]
    assert greys(VALUES.astype(np.int16) - 700, "MONOCHROME1", WindowCenter=0.5, WindowWidth=1)[0] == 255


def test_a_sigmoid_and_an_exact_window_are_taken_as_they_are() -> None:
    window: dict[str, Any] = {"WindowCenter": 700, "WindowWidth": 400}
    expected = [round(255 / (1 + np.exp(-4 * (100 * number - 700) / 400))) for number in range(16)]
    assert greys(VALUES, **window, VOILUTFunction="SIGMOID") == expected
    straight = [round(255 * min(max((100 * number - 500) / 400, 0), 1) + 1e-6) for number in range(16)]
    assert greys(VALUES, **window, VOILUTFunction="LINEAR_EXACT") == straight
    eight = (VALUES // 100).astype(np.uint8)
    assert greys(eight, WindowCenter=7, WindowWidth=4, VOILUTFunction="SIGMOID") == expected


def table_of_greys(entries: list[int], first: int, bits: int, packed: bool) -> Any:
    item = pydicom.dataset.Dataset()
    item.add_new("LUTDescriptor", "US", [len(entries), first, bits])
    data = np.array(entries, "<u2").tobytes() if packed else entries
    item.add_new("LUTData", "OW" if packed else "US", data)
    return pydicom.sequence.Sequence([item])


@pytest.mark.parametrize("packed", [True, False])
def test_a_table_of_greys_is_applied_before_the_window(packed: bool) -> None:
    entries = [0, 1000, 4095, 2000]
    own = table_of_greys(entries, 200, 12, packed)
    hundreds: dict[str, Any] = {"RescaleSlope": 0.01, "RescaleIntercept": 198, "VOILUTSequence": own}
    expected = [round(255 * entries[min(max(number - 2, 0), 3)] / 4095) for number in range(16)]
    assert greys(VALUES, **hundreds, WindowCenter=5, WindowWidth=3) == expected
    assert greys(VALUES, "MONOCHROME1", **hundreds) == [255 - grey for grey in expected]


def test_the_range_of_the_card_replaces_a_curve() -> None:
    data = written(dataset(VALUES, WindowCenter=500, WindowWidth=10, VOILUTFunction="SIGMOID"))
    pixels = decode(data, "a.dcm", (0.0, 1500.0))
    assert pixels[..., 0].ravel().tolist() == [round(255 * number / 15) for number in range(16)]


def test_slices_of_a_series_without_a_window_share_a_range(tmp_path: Path) -> None:
    for series, factor in (("FLAIR", 1), ("T1w", 10)):
        for number in (1, 2):
            path = raw_path(tmp_path, "train/00000", series, f"Image-{number}.dcm")
            write_file(path, written(dataset(VALUES // number * factor)))
    files = [f"{series}/Image-{number}.dcm" for series in ("FLAIR", "T1w") for number in (1, 2)]
    raw_path(tmp_path, "train.csv").write_text(table("id,label", "00000,a", "00001,b"))
    shutil.copytree(raw_path(tmp_path, "train/00000"), raw_path(tmp_path, "train/00001"))
    (raw_path(tmp_path, "train/00001") / files[1]).write_bytes(written(dataset(VALUES, WindowCenter=51, WindowWidth=2)))
    competition = load(SLUG, tmp_path, id_column="id")
    first, second = (read_image(competition.folder / image)[..., 0] for image in competition.train["image"])
    whole = np.array([round(255 * number / 15) for number in range(16)]).reshape(4, 4)
    half = np.array([round(255 * number / 30 + 1e-6) for number in range(16)]).reshape(4, 4)
    assert first.tolist() == np.block([[whole, half], [whole, half]]).tolist()
    assert second[:4, :4].tolist() == whole.tolist()
    assert set(second[:4, 4:].ravel().tolist()) == {0, 255}


def test_the_range_of_the_card_replaces_the_window() -> None:
    data = written(dataset(VALUES, WindowCenter=500, WindowWidth=10))
    pixels, header = decode_with_header(data, "a.dcm", (0.0, 1500.0))
    assert pixels[..., 0].ravel().tolist() == [round(255 * number / 15) for number in range(16)]
    assert header.values == (0.0, 1500.0)
    assert header.format == "DICOM"


def test_pixels_of_8_bits_stay_as_they_are() -> None:
    values = np.array([[3, 9], [200, 70]], np.uint8)
    assert greys(values) == [3, 9, 200, 70]
    assert greys(values, "MONOCHROME1") == [252, 246, 55, 185]
    assert np.array_equal(decode(written(dataset(RGB, "RGB")), "a.dcm"), RGB)


def test_colours_of_another_space_become_rgb() -> None:
    grey = np.dstack([RGB[..., 0], np.full_like(RGB[..., :2], 128)])
    decoded = decode(written(dataset(grey, "YBR_FULL")), "a.dcm")
    assert np.array_equal(decoded, np.dstack([RGB[..., 0]] * 3))


def test_run_length_coded_files_are_read() -> None:
    file = dataset(VALUES.repeat(8, 0).repeat(8, 1))
    expected = decode(written(file), "a.dcm")
    file.compress(pydicom.uid.RLELossless)
    assert np.array_equal(decode(written(file), "a.dcm"), expected)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("SC_rgb_jpeg_gdcm.dcm", "SC_rgb_rle.dcm"),  # lossless JPEG
        ("MR_small_jpeg_ls_lossless.dcm", "MR_small.dcm"),
        ("MR_small_jp2klossless.dcm", "MR_small_bigendian.dcm"),
    ],
)
def test_the_examples_of_pydicom_are_read(name: str, plain: str) -> None:
    pytest.importorskip("gdcm")
    paths = [pydicom.data.get_testdata_file(example, download=False) for example in (name, plain)]
    if None in paths:
        pytest.skip("this pydicom comes without its examples")
    compressed, expected = (decode(Path(path).read_bytes(), "a.dcm") for path in paths)
    assert np.array_equal(compressed, expected)
    assert expected.std() > 20


def test_of_several_frames_the_middle_one_is_read(tmp_path: Path) -> None:
    frames = np.stack([VALUES // 100 + 50 * number for number in range(5)]).astype(np.uint8)
    data = written(dataset(frames, NumberOfFrames=5))
    assert np.array_equal(decode(data, "a.dcm")[..., 0], frames[2])
    path = raw_path(tmp_path, "train/p/1.dcm")
    write_file(path, data)
    (path.parent / "2.dcm").write_bytes(data)
    (note,) = load_files(tmp_path, [], {"train.csv": table("id,target", "1,a", "2,b")}).notes
    assert_says(note, "train/p/1.dcm", "middle one of its 5 frames")
    assert size_in_header(path) == (4, 4)


def test_rsna_breast(tmp_path: Path) -> None:
    for patient, image in ((10, 1), (10, 2), (11, 3), (12, 4), (13, 5)):
        role = "test" if image == 5 else "train"
        path = raw_path(tmp_path, f"{role}_images/{patient}/{image}.dcm")
        write_file(path, written(dataset(VALUES)))
    tables = {
        "train.csv": table("site_id,patient_id,image_id,cancer", "1,10,1,0", "1,10,2,1", "1,11,3,0", "1,12,4,1"),
        "test.csv": table("site_id,patient_id,image_id", "1,13,5"),
    }
    competition = load_files(tmp_path, [], tables, 'target_column = "cancer"\nid_column = "image_id"\n')
    assert competition.train["image"].tolist() == [
        f"train_images/{name}.dcm" for name in ("10/1", "10/2", "11/3", "12/4")
    ]
    assert competition.test["image"].tolist() == ["test_images/13/5.dcm"]
    assert not competition.notes


def test_dicoms_beside_images_change_nothing(tmp_path: Path) -> None:
    images = ["train/1.jpg", "train/2.jpg"]
    for name in ("train/1.dcm", "more/3.dcm"):
        path = raw_path(tmp_path, name)
        write_file(path, written(dataset(VALUES)))
    competition = load_files(tmp_path, images, {"train.csv": table("id,target", "1,a", "2,b")})
    assert competition.train["image"].tolist() == images
    assert not competition.notes


@pytest.mark.parametrize(
    ("codec", "frame"),
    [
        ("JPEG2000Lossless", b"\xff\x4f\xff\x51\0\x29\0\0" + 2 * (60_000).to_bytes(4, "big") + bytes(60)),
        ("JPEGBaseline8Bit", b"\xff\xd8\xff\xc0\0\x0b\x08" + 2 * (60_000).to_bytes(2, "big") + bytes(60)),
        ("JPEGLSLossless", b"\xff\xd8\xff\xf7\0\x0b\x08" + 2 * (60_000).to_bytes(2, "big") + bytes(60)),
    ],
)
def test_a_frame_that_unpacks_to_more_than_its_header_says_takes_no_memory(codec: str, frame: bytes) -> None:
    file = dataset(VALUES)
    file.file_meta.TransferSyntaxUID = getattr(pydicom.uid, codec)
    file.PixelData = pydicom.encaps.encapsulate([frame])
    with pytest.raises(BadImage, match=r"a\.dcm .*60000 x 60000"):
        decode(written(file), "a.dcm")


def without_pixels() -> Any:
    file = dataset(VALUES)
    del file.PixelData, file.Rows
    return file


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (written(dataset(VALUES))[:-9], "less than expected"),
        (written(dataset(VALUES))[:140], ""),
        (bytes(128) + b"DICM" + bytes(100), ""),
        (written(without_pixels()), "no image"),
        (written(dataset(VALUES, Rows=65000, Columns=65000)), f"more than {MAX_PIXELS // 10**6} million"),
        (written(dataset(VALUES, NumberOfFrames=9)), ""),
    ],
)
def test_a_broken_file_is_refused_in_a_line(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage) as refused:
        decode(data, "train/a.dcm")
    assert "train/a.dcm" in str(refused.value)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(dataset(VALUES))
    monkeypatch.setitem(__import__("sys").modules, "pydicom", None)
    with pytest.raises(BadImage, match=r"a\.jpg .*pydicom.*podium\[medical\]"):
        decode(data, "a.jpg")


def test_without_a_decoder_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    file = dataset(VALUES.repeat(8, 0).repeat(8, 1))
    file.file_meta.TransferSyntaxUID = pydicom.uid.JPEG2000Lossless
    file.PixelData = pydicom.encaps.encapsulate([b"not read"])
    monkeypatch.setattr("podium_annex.formats.dicom.find_spec", lambda name: None)
    with pytest.raises(BadImage, match=r"a\.dcm .*python-gdcm.*podium\[medical\]"):
        decode(written(file), "a.dcm")


def test_what_could_not_be_read_makes_another_store_once_the_package_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium.images.store import open_store

    for number in range(2):
        path = raw_path(tmp_path, f"train/{'ab'[number]}/{number}.jpg")
        write_file(path, written(dataset(VALUES)))
    competition = load(SLUG, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("podium.competition.find.image_names.find_spec", lambda name: None)
        patch.setitem(__import__("sys").modules, "pydicom", None)
        assert open_store(competition, 128).bad(np.arange(2)).all()
    assert not open_store(competition, 128).bad(np.arange(2)).any()
