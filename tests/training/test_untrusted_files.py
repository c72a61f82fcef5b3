"""Files that are read back cannot run code, whoever wrote them."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tiny import FAST, Podium, assert_says, done, one_line, run_of, weights_hash

TRAIN = ("train", *FAST, "--model", "test_vit", "--folds", "0", "--epochs", "3")


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def test_no_file_that_is_read_back_can_run_code(tiny: Path, podium: Podium) -> None:
    marker = tiny / "the code ran"
    evil_pickle = pickle.dumps(Malicious(marker))
    objects = np.empty(1, dtype=object)
    objects[0] = Malicious(marker)
    for name in ("evil.pth", "evil.bin", "evil.safetensors"):
        (tiny / name).write_bytes(evil_pickle)
    torch.save({"state_dict": Malicious(marker)}, tiny / "evil.pt")
    np.savez(tiny / "evil.npz", features=objects, key=objects, id=objects, probs=objects)
    evil_arrays = (tiny / "evil.npz").read_bytes()
    for name in ("evil.pth", "evil.bin", "evil.safetensors", "evil.pt", "evil.npz"):
        one_line(podium(*TRAIN, "--weights", tiny / name, "--name", "other"))

    command = (*TRAIN, "--head-first")
    done(podium(*command))
    expected = weights_hash(tiny, "test_vit")
    fold = run_of(tiny).fold_folder(0)
    blocks = list((tiny / "data" / "prepared").glob("tiny/features-*/*.npz"))
    assert blocks
    for path in fold.iterdir():
        path.unlink()
    (fold / "checkpoint-000000003.safetensors").write_bytes(evil_pickle)
    for block in blocks:
        block.write_bytes(evil_arrays)
    _, err = done(podium(*command))
    assert_says(err, "training starts again", "its features are computed again")
    assert weights_hash(tiny, "test_vit") == expected

    for path, content in ((fold / "oof.npz", evil_arrays), (fold / "model.safetensors", evil_pickle)):
        before = path.read_bytes()
        path.write_bytes(content)
        one_line(podium("submit", "-c", "tiny"))
        path.write_bytes(before)
    assert not marker.exists()
    pickle.loads(evil_pickle)
    assert marker.exists()  # the code could have run
