"""Settings of all tests, and the command line as a fixture."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # tiny models: threads that wait for each other cost more than they compute
os.environ["HF_HUB_OFFLINE"] = "1"  # no test may reach for the real hub; the tests of the hub bring their own


from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tiny import Podium, write_competition

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")  # how long an example takes says more of the machine than of the code


@pytest.fixture
def podium(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Podium:
    """The command line in this process: podium("folds", "-c", "tiny") -> exit status, stdout, stderr."""
    from podium.__main__ import main

    monkeypatch.setattr("podium.terminal.root", Path())  # and so put back after the test

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["--root", str(tmp_path), *map(str, words)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run


@pytest.fixture
def tiny(tmp_path: Path, podium: Podium) -> Path:
    write_competition(tmp_path)
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    return tmp_path
