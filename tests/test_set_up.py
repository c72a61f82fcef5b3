"""`make setup`: which packages an environment gets, and how an interrupted or hindered one ends.

A stand-in plays uv: it installs nothing but a command `podium`, and fails where a test wants it to.
"""

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import set_up
from set_up import Progress, SetUpError, State, explain, main, read_project, requirements
from tiny import assert_says

ROOT = Path(__file__).parents[1]
FAKE_UV = """\
#!{python}
import pathlib, sys

words = sys.argv[1:]
with open({log!r}, "a") as log:
    print(*words, file=log)
if words == ["--version"]:
    print("uv 0.13.9 (a stand-in)")
    sys.exit()
failures = {failures!r}
for part, message in failures.items():
    if part in words:
        sys.exit(message)
if "-e" in words:
    venv = pathlib.Path(words[words.index("--python") + 1]).parents[1]
    command = venv / "bin" / "podium"
    command.write_text("#!/bin/sh\\necho podium 0.1.0\\n")
    command.chmod(0o755)
    packages = venv / "lib" / "python3.11" / "site-packages"
    (packages / "torch-2.15.0.dist-info").mkdir(parents=True, exist_ok=True)
    print("Downloading torch (514.0MiB)", file=sys.stderr)
    print(" Downloaded torch", file=sys.stderr)
    print("Installed 1 package in 5ms", file=sys.stderr)
"""


class Uv:
    """The stand-in, and what it was called with."""

    def __init__(self, folder: Path) -> None:
        self.path, self.log = folder / "uv", folder / "uv.log"
        self.fails()

    def fails(self, **failures: str) -> None:
        """Lets every call with such a flag fail with this message."""
        words = {f"--{word.replace('_', '-')}".replace("--e", "-e"): text for word, text in failures.items()}
        self.path.write_text(FAKE_UV.format(python=sys.executable, log=str(self.log), failures=words))
        self.path.chmod(0o755)

    def installs(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if " -e " in line]


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Uv:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(set_up, "try_packages", lambda venv: None)
    monkeypatch.setattr(set_up, "_settings_of_pip", lambda python: {})
    monkeypatch.setattr(set_up, "put_python_into", put_python_into)
    return Uv(folder)


@pytest.fixture
def venv(tmp_path: Path, uv: Uv) -> Path:
    """The folder of an environment that has a Python."""
    folder = tmp_path / ".venv"
    put_python_into(folder)
    return folder


def put_python_into(folder: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)


def run(monkeypatch: pytest.MonkeyPatch, venv: Path, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["set_up.py", "--venv", str(venv), *words])
    set_up.main()


def test_an_environment_is_ready_once_all_is_installed_and_then_left_alone(
    venv: Path, uv: Uv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, venv)
    (install,) = uv.installs()
    assert install.endswith(f"-e {ROOT}")
    state = State(venv)
    assert (state.is_ready, state.clone) == (True, str(ROOT))
    said = capsys.readouterr().err
    assert_says(said, "1 packages", "torch 2.15.0, by uv 0.13.9", "fetching torch, 514 MB")
    run(monkeypatch, venv)
    assert len(uv.installs()) == 1
    assert "is ready, with 1 packages" in capsys.readouterr().err


def test_what_a_target_needs_is_added_once_and_kept(
    venv: Path, uv: Uv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, venv)
    run(monkeypatch, venv, "--with", "search onnx")
    assert f"{ROOT}[onnx,search]" in uv.installs()[-1]
    assert "adding onnx, search to" in capsys.readouterr().err
    assert (venv / ".with-search").exists()
    run(monkeypatch, venv, "--with", "dev")
    assert f"{ROOT}[formats,medical,notebooks,onnx,ray,search,slurm] " in uv.installs()[-1]
    assert "pytest>=" in uv.installs()[-1]
    run(monkeypatch, venv, "--with", "search")
    assert len(uv.installs()) == 3
    with pytest.raises(SetUpError, match="there is no extra oonx; there are all, dev, formats"):
        run(monkeypatch, venv, "--with", "oonx")


def test_a_build_of_torch_that_is_not_there_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["set_up.py", "--torch", "gpu"])
    with pytest.raises(SetUpError, match="there is no TORCH=gpu; there are auto, cpu, default"):
        main()


def test_the_declared_packages_are_those_of_running_alone() -> None:
    project = read_project()
    core = " ".join(project["project"]["dependencies"])
    for tool in ("pytest", "mypy", "ruff", "jupyter", "optuna", "onnx", "ray", "submitit", "hypothesis", "py7zr"):
        assert tool not in core
    assert requirements(set(), project) == ["-e", str(ROOT)]
    extras = project["project"]["optional-dependencies"]
    assert extras["all"] == [f"podium[{','.join(sorted(set(extras) - {'all'}))}]"]
    assert (ROOT / "requirements.txt").read_text().splitlines()[-1] == "-e ."


def test_an_environment_that_was_stopped_is_made_anew_and_one_of_older_versions_too(
    venv: Path, uv: Uv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uv.fails(e="error: stopped")
    with pytest.raises(SetUpError, match="installing the packages failed: error: stopped"):
        run(monkeypatch, venv)
    assert not State(venv).is_ready
    uv.fails()
    for name, content in ((".made-by-podium", ""), (".ready", f"{ROOT}\n")):
        for path in (venv / ".ready", venv / ".made-by-podium"):
            path.unlink(missing_ok=True)
        (venv / name).write_text(content)
        (venv / "half").touch()
        run(monkeypatch, venv)
        assert not (venv / "half").exists()
        assert State(venv).is_ready
        assert "it is made anew" in capsys.readouterr().err


def test_an_environment_of_somebody_else_is_used_and_not_emptied(
    venv: Path, uv: Uv, monkeypatch: pytest.MonkeyPatch
) -> None:
    (venv / "mine").touch()
    run(monkeypatch, venv)
    assert (venv / "mine").exists()


def test_two_at_a_time_wait_for_each_other(
    venv: Path, uv: Uv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = os.open(venv, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    threading.Timer(0.3, os.close, [folder]).start()
    run(monkeypatch, venv)
    assert "another make works in" in capsys.readouterr().err
    assert State(venv).is_ready


def test_without_a_network_the_step_is_named_and_what_was_fetched_is_taken(
    venv: Path, uv: Uv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uv.fails(dry_run="error: client error (Connect)")
    run(monkeypatch, venv)
    assert "taking what was fetched before" in capsys.readouterr().err
    assert "--offline" in uv.installs()[-1]
    uv.fails(dry_run="error: client error (Connect)", offline="error: network connectivity is disabled")
    with pytest.raises(
        SetUpError, match=r"there is no network \(installing the packages\); connect and run make setup"
    ):
        run(monkeypatch, venv, "--with", "onnx")
    assert not State(venv).is_ready


def test_where_pytorchs_index_does_not_answer_the_large_build_is_taken_and_said(
    venv: Path, uv: Uv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: str(uv.path) if name == "uv" else None)
    uv.fails(torch_backend="cause: dns error")
    run(monkeypatch, venv)
    assert "torch comes with NVIDIA's libraries: 4 GB more" in capsys.readouterr().err
    assert "--torch-backend" not in uv.installs()[-1]
    with pytest.raises(SetUpError, match=r"there is no network .* or leave out TORCH=cpu"):
        run(monkeypatch, venv, "--torch", "cpu")


def test_another_build_of_torch_makes_the_environment_anew(
    venv: Path, uv: Uv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, venv, "--torch", "default")
    assert "--torch-backend" not in uv.installs()[-1]
    run(monkeypatch, venv, "--torch", "cpu")
    assert "--torch-backend cpu" in uv.installs()[-1]
    assert json.loads((venv / ".ready").read_text().splitlines()[1])["torch"] == "cpu"
    run(monkeypatch, venv, "--with", "onnx")
    assert "--torch-backend cpu" in uv.installs()[-1]  # what was chosen once stays


def test_without_uv_pip_installs_and_says_so(
    venv: Path, uv: Uv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    commands = []

    def runs(command: list[object], environment: dict[str, str], progress: Progress) -> str:
        commands.append(" ".join(map(str, command)))
        return "ERROR: No matching distribution found for uv"

    monkeypatch.setattr(set_up, "_run", runs)
    monkeypatch.setattr(set_up, "describe", lambda venv, installer: f"1 package, by {installer.name}")
    run(monkeypatch, venv)
    assert commands[-1].endswith(f"-m pip install --disable-pip-version-check --progress-bar off -e {ROOT}")
    assert "uv cannot be had here, so pip installs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "wanted"),
    [
        ("error: failed to write: No space left on device (os error 28)", "the disk is full (fetching)"),
        ("error: Failed to fetch\n  cause: dns error", "there is no network (fetching)"),
        ("WARNING: Retrying after connection broken by 'NewConnectionError'", "there is no network (fetching)"),
        ("error: No solution found\n  cause: Because torch>=9", "No solution found; cause: Because torch>=9"),
        ("", "fetching failed: no reason was given"),
    ],
)
def test_what_hinders_it_is_told_in_one_line_with_the_remedy(output: str, wanted: str) -> None:
    line = explain("fetching", output)
    assert wanted in line
    assert "\n" not in line
    assert "run make setup again" in line


def test_an_old_python_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    source = "import sys; sys.version_info = (3, 10, 4); sys.argv = ['set_up.py', '--venv', sys.argv[1]]"
    source += f"; exec(compile(open({str(ROOT / 'src' / 'set_up.py')!r}).read(), 'set_up.py', 'exec'))"
    source = source.replace("exec(compile", "__file__ = sys.argv[0]; exec(compile")
    done = subprocess.run([sys.executable, "-c", source, tmp_path / "env"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "podium: error: Podium needs Python 3.11 or newer, and this is 3.10; name one: make PYTHON=python3.12\n"
    )
    assert not (tmp_path / "env").exists()
