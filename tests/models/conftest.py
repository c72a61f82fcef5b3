"""Connects the client of the hub to a stand-in on this machine."""

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from podium.models.described_models import read_description


@pytest.fixture
def use_hub(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Connects the hub's client to an address, with an empty cache, and forgets what has been read so far.

    The client reads its environment when it is imported, so its constants are loaded again.
    """
    with pytest.MonkeyPatch.context() as patch:

        def connect(address: str) -> None:
            patch.setenv("HF_ENDPOINT", address)
            patch.setenv("HF_HOME", str(tmp_path / "hub-cache"))
            patch.setenv("HF_HUB_DISABLE_XET", "1")
            patch.setenv("HF_HUB_OFFLINE", "0")
            importlib.reload(huggingface_hub.constants)
            read_description.cache_clear()

        yield connect
    importlib.reload(huggingface_hub.constants)
    read_description.cache_clear()
