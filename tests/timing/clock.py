"""A clock that tests set."""

import pytest


class Clock:
    """Replaces time.monotonic(); its seconds pass when a test adds them to `now`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)
