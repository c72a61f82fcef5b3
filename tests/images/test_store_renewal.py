"""A store is built once, and again only when an image file has changed or the store is damaged."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from podium.competition.load import load
from podium.images import store as store_module
from podium.images.decode import POLICY
from podium.images.store import open_verified_store
from podium.images.store_format import STORED
from second_round import first_of
from stores import (
    IMAGES,
    LARGEST,
    SIDE,
    append,
    are_equal,
    decoded,
    file_hashes,
    interrupt_build,
    open_tiny,
    pixels_in,
    remove,
    shorten,
    store_folders,
    train_image,
)

# --- built once --------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False])
def test_opening_a_store_again_decodes_nothing(root: Path, decoded_names: list[str], keep: bool) -> None:
    first = open_tiny(root, keep=keep)
    assert sorted(decoded_names) == first.names.tolist()
    decoded_names.clear()
    assert open_tiny(root, keep=keep).path == first.path
    assert decoded_names == []


def test_a_store_with_pixels_is_used_where_none_are_needed(root: Path, decoded_names: list[str]) -> None:
    first = open_tiny(root)
    decoded_names.clear()
    assert open_tiny(root, keep=False).path == first.path
    assert decoded_names == []


def test_a_store_is_used_for_other_sides_if_no_image_was_shrunk(root: Path, decoded_names: list[str]) -> None:
    first = open_tiny(root, 999)
    decoded_names.clear()
    for side in (LARGEST, LARGEST + 1, 2000):
        store = open_tiny(root, side)
        assert store.path == first.path
        assert are_equal(pixels_in(store), decoded(root, side))
    assert decoded_names == []


@pytest.mark.parametrize(("first_side", "second_side"), [(999, LARGEST - 1), (LARGEST - 1, 999), (SIDE, 8), (8, SIDE)])
def test_each_side_has_its_own_store_if_an_image_was_shrunk(root: Path, first_side: int, second_side: int) -> None:
    first = open_tiny(root, first_side)
    second = open_tiny(root, second_side)
    assert second.path != first.path
    assert are_equal(pixels_in(second), decoded(root, second_side))
    assert are_equal(pixels_in(open_tiny(root, first_side)), decoded(root, first_side))
    assert len(store_folders(root)) == 2


# --- built again when a file has changed -------------------------------------------------------------


def change_content(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the size and the modification time."""
    status = image.stat()
    image.write_bytes(image.read_bytes().replace(b"\x10\x20\x30", b"\x30\x20\x10"))
    os.utime(image, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert image.stat().st_size == status.st_size


def change_time(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(image, ns=(0, 0))


def delete_image(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image.unlink()
    image.symlink_to("nowhere")


def change_policy(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "POLICY", POLICY + 1)


@pytest.mark.parametrize("change", [change_content, change_time, delete_image, change_policy])
@pytest.mark.parametrize("keep", [True, False])
def test_a_changed_file_or_policy_builds_the_store_again_and_deletes_the_stale_one(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    decoded_names: list[str],
    change: Callable[[Path, pytest.MonkeyPatch], None],
    keep: bool,
) -> None:
    image = train_image(root, "008")
    Image.new("RGB", (20, 20), (0x30, 0x20, 0x10)).save(image, "BMP")
    interrupt_build(root, 3, side=8)
    first = open_tiny(root, keep=keep)
    assert len(store_folders(root)) == (2 if keep else 1)  # without pixels, the unfinished store is deleted for space
    decoded_names.clear()
    change(image, monkeypatch)
    second = open_tiny(root, keep=keep)
    assert second.files_key != first.files_key
    assert len(decoded_names) == IMAGES - (change is delete_image)
    assert store_folders(root) == [second.path.name]
    if change is not delete_image:
        assert are_equal(pixels_in(second), decoded(root, SIDE))


def test_a_stale_store_that_another_process_reads_is_not_deleted(root: Path) -> None:
    first = open_tiny(root)
    script = f"""
import sys
from pathlib import Path
from podium.competition.load import load
from podium.images.store import open_store
store = open_store(load("tiny", Path({str(root)!r})), {SIDE})
print(store.path.name, flush=True)
sys.stdin.read()
print(int(store.reader(store.positions(["train_image/008.jpg"]))(0).sum()), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == first.path.name
        os.utime(train_image(root, "001"), ns=(0, 0))
        second = open_tiny(root)
        assert store_folders(root) == sorted([first.path.name, second.path.name])
        output, _ = process.communicate(timeout=60)
    assert int(output) > 0


# --- built again when it is damaged ------------------------------------------------------------------


def write_manifest(text: bytes) -> Callable[[Path], None]:
    def damage(store_path: Path) -> None:
        (store_path / "manifest.json").write_bytes(text)

    return damage


def drop_from_manifest(key: str) -> Callable[[Path], None]:
    def damage(store_path: Path) -> None:
        manifest = json.loads((store_path / "manifest.json").read_bytes())
        del manifest[key]
        (store_path / "manifest.json").write_text(json.dumps(manifest))

    return damage


def make_manifest_a_folder(store_path: Path) -> None:
    (store_path / "manifest.json").unlink()
    (store_path / "manifest.json").mkdir()


def delete_all_files(store_path: Path) -> None:
    for path in store_path.iterdir():
        path.unlink()


FILES = (*STORED, "manifest.json")
MANIFESTS = (b"", b"{", b"[]", b"null", b"3", b'"x"', b"{}", b'{"bytes": 1}', b'{"bytes": []}', b"\xff\xfe\x00")
DAMAGES: dict[str, Callable[[Path], None]] = {
    **{f"{name} is missing": remove(name) for name in FILES},
    **{f"{name} is shorter": shorten(name, 3) for name in FILES},
    **{f"{name} is longer": append(name, b"x") for name in FILES},
    **{f"the manifest lacks {key}": drop_from_manifest(key) for key in ("bytes", "side", "kept")},
    **{f"the manifest is {text!r}": write_manifest(text) for text in MANIFESTS},
    "the manifest has text for a number": write_manifest(b'{"bytes": {}, "side": "24", "largest": "60", "kept": true}'),
    "the manifest is a folder": make_manifest_a_folder,
    "all files are missing": delete_all_files,
}


@pytest.mark.parametrize("damage", first_of(list(DAMAGES)[::3], DAMAGES))
def test_a_damaged_store_is_built_again_with_a_warning(
    root: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    first = open_tiny(root)
    expected = file_hashes(first)
    DAMAGES[damage](first.path)
    assert file_hashes(open_tiny(root)) == expected
    assert f"podium: warning: {first.path} is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("name", STORED)
def test_a_flipped_bit_is_found_when_its_file_is_verified(
    root: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    first = open_tiny(root)
    expected = file_hashes(first)
    data = bytearray((first.path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (first.path / name).write_bytes(data)
    assert open_tiny(root).path == first.path  # only sizes are compared at every opening
    others = [other for other in STORED if other != name]
    assert open_verified_store(load("tiny", root), SIDE, verify=others).path == first.path
    assert capsys.readouterr().err == ""
    verified = open_verified_store(load("tiny", root), SIDE)
    assert f"podium: warning: {first.path / name} is damaged" in capsys.readouterr().err
    assert file_hashes(verified) == expected
