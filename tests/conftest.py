"""Settings of all tests, the command line as a fixture, a tiny competition with folds, and two trained runs of it."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # tiny models: threads that wait for each other cost more than they compute
os.environ["HF_HUB_OFFLINE"] = "1"  # no test may reach for the real hub; the tests of the hub bring their own


import shutil
import signal
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from measured_time import Measure, mark_slow
from podium.basics import watch
from ray_cluster import ray_cluster  # noqa: F401
from signal_from_outside import _end_at_sigterm  # noqa: F401
from templates import copied, template
from tiny import Podium, one_trained_run, tiny_with_folds, two_trained_runs, with_a_submission

watch.PATIENCE = float("inf")  # what a slow machine says in between is none of a test's business

# A shell starts background jobs with SIGINT ignored; tests interrupt commands with it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# In a copy of the clone without the annex (core_alone.py): the environment knows the clone itself, too.
if not (Path(__file__).parents[1] / "src" / "podium_annex").exists():
    sys.modules["podium_annex"] = None  # type: ignore[assignment]

# nbformat imports it, which takes seconds, to check addresses in notebooks; there are none.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# How long an example takes depends on the machine more than on the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--measure", action="store_true", help="write down which tests are slow (measured_time.py)")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--measure") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Measure())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_slow(items)


@pytest.fixture
def podium(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Podium:
    """The command line in this process: podium("folds", "-c", "tiny") -> exit status, stdout, stderr."""
    from podium.__main__ import main

    monkeypatch.setattr("podium.basics.terminal.root", Path())  # put back after the test

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["--root", str(tmp_path), *map(str, words)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run


@pytest.fixture(autouse=True)
def _no_signal_handlers_afterwards() -> Iterator[None]:
    """Puts back the handlers of signals: torch's launcher of several processes leaves its own."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    handlers = [(number, signal.getsignal(number)) for number in numbers]
    yield
    for number, handler in handlers:
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _no_extensions_afterwards() -> Iterator[None]:
    """Removes what a test's project has registered."""
    from podium.options.extensions.extend import CELLS
    from podium.options.extensions.extension_files import use_extensions

    yield
    CELLS.clear()
    use_extensions([])


@pytest.fixture
def timm_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the models that a test has registered."""
    from timm.models import _registry

    from podium.models.registry import register_zoo

    register_zoo()  # its files are imported once: a copy from before that would lose its models
    for name in ("_module_to_models", "_model_to_module", "_model_entrypoints"):
        monkeypatch.setattr(_registry, name, deepcopy(vars(_registry)[name]))  # with the sets in it


@pytest.fixture(scope="session")
def tiny_template() -> Path:
    """The tiny competition with two folds; tests get copies of it."""
    return template(tiny_with_folds)


@pytest.fixture
def tiny(tmp_path: Path, tiny_template: Path) -> Path:
    """The root folder of a tiny competition with two folds."""
    shutil.copytree(tiny_template, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture(scope="session")
def trained_root() -> Path:
    """A project with the runs `good` and `idle` of two folds each. `idle` has learned nothing."""
    return template(two_trained_runs)


one_run = copied(one_trained_run)


@pytest.fixture
def two_runs(trained_root: Path, tmp_path: Path) -> Path:
    """A copy of that project, in the folder that the `podium` fixture works in."""
    shutil.copytree(trained_root, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    """A submission of the run `good`, in a copy of that project."""
    shutil.copytree(template(with_a_submission), tmp_path, dirs_exist_ok=True)
    return tmp_path / "submissions" / "tiny" / "good.csv"
