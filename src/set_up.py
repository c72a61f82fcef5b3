"""Makes the Python environment that the Makefile's targets run in; `make setup` calls it, and it calls uv.

    python3 src/set_up.py [--venv .venv] [--torch auto|cpu|default] [--with dev onnx ...] [--constraints FILE]
    python3 src/set_up.py --lock            renews constraints.txt

Reads pyproject.toml. Writes the environment and, last of all, its file .ready: an environment without that file is not
finished, and the next call makes it anew, from what was fetched already. Needs Python's own library only, because it
runs before anything is installed.
"""

from __future__ import annotations  # older versions of Python read this far, and are refused by name

import argparse
import contextlib
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

CLONE = Path(__file__).resolve().parents[1]
LOCK = "constraints.txt"
OLDEST_PYTHON = (3, 11)
OLDEST_UV = (0, 7)  # earlier ones do not know --torch-backend, or install no groups
# What `--with dev` brings beside the group of that name: the features that the tests try.
TRIED_BY_TESTS = ("formats", "medical", "notebooks", "onnx", "ray", "search", "slurm")
# What training imports, in two halves for two processor cores.
TRIED = (
    "from podium.basics.light_torch import import_timm; import_timm(); import podium.training.train",
    "import albumentations, pandas, scipy.optimize, sklearn.metrics, podium.cli.flags, podium.submissions.submission",
)
QUICK = {"UV_HTTP_TIMEOUT": "8", "UV_HTTP_CONNECT_TIMEOUT": "8", "UV_HTTP_RETRIES": "0"}  # to find out who answers
TORCH_CHOICES = ("auto", "cpu", "default")
Words = list["str | Path"]
STAMP = ".with-"  # files that tell make what has been added
NO_NETWORK = re.compile(
    r"(?i)dns error|error sending request|client error \(connect|connection (refused|reset|error|aborted)|timed out"
    r"|unreachable|name resolution|newconnectionerror|offline|network connectivity"
)
NO_SPACE = re.compile(r"(?i)no space left|os error 28|disk quota|os error 122")


class SetUpError(Exception):
    """What a person can mend, in one line."""


class State:
    """What the environment holds, as its file .ready tells: the clone on the first line, the rest as JSON."""

    def __init__(self, venv: Path) -> None:
        self.path, self.clone, self.facts = venv / ".ready", "", {}
        if self.path.is_file():
            self.clone, _, rest = self.path.read_text().partition("\n")
            with contextlib.suppress(ValueError):
                self.facts = json.loads(rest)

    @property
    def is_ready(self) -> bool:
        return bool(self.facts)

    def of(self, name: str, otherwise: str = "") -> str:
        return str(self.facts.get(name, otherwise))

    @property
    def extras(self) -> set[str]:
        return set(self.facts.get("extras", ()))

    def write(self, **facts: object) -> None:
        """Writes the file in one step, and the stamps that make looks at."""
        temporary = self.path.with_name(".ready.tmp")
        temporary.write_text(f"{CLONE}\n{json.dumps(facts)}\n")
        for extra in facts["extras"] if isinstance(facts["extras"], list) else ():
            self.path.with_name(STAMP + extra).touch()
        temporary.replace(self.path)


def main() -> None:
    if sys.version_info < OLDEST_PYTHON:
        wanted, here = (".".join(map(str, version[:2])) for version in (OLDEST_PYTHON, sys.version_info))
        raise SetUpError(f"Podium needs Python {wanted} or newer, and this is {here}; name one: make PYTHON=python3.12")
    args = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if args.lock:
        renew_lock(args.venv)
        return
    with alone_in(args.venv):
        set_up(args.venv, args.torch, {word for words in args.extras for word in words.split()}, args.constraints)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="set_up.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--venv", type=Path, default=Path(".venv"), metavar="FOLDER")
    text = "auto: the build that fits this machine, from PyTorch's own index; cpu: the small one without NVIDIA's"
    text += " libraries; default: that of the package index"
    parser.add_argument("--torch", metavar="|".join(TORCH_CHOICES), help=text)
    text = "extras of pyproject.toml, or dev: all that the tests and linters need"
    parser.add_argument("--with", nargs="+", dest="extras", default=[], metavar="EXTRA", help=text)
    parser.add_argument("--constraints", type=Path, metavar="FILE", help=f"take these versions, such as {LOCK}")
    parser.add_argument("--lock", action="store_true", help=f"write the newest versions that fit into {LOCK}")
    given = parser.parse_args()
    if given.torch not in (None, *TORCH_CHOICES):
        raise SetUpError(f"there is no TORCH={given.torch}; there are {', '.join(TORCH_CHOICES)}")
    return given


def set_up(venv: Path, torch: str | None, extras: set[str], constraints: Path | None) -> None:
    """Makes the environment, or adds what it lacks."""
    started, state, project = time.monotonic(), State(venv), read_project()
    known = {"dev", *project["project"]["optional-dependencies"]}
    if unknown := sorted(extras - known):
        raise SetUpError(f"there is no extra {unknown[0]}; there are {', '.join(sorted(known))}")
    if constraints and not constraints.is_file():
        raise SetUpError(f"CONSTRAINTS={constraints}: there is no such file")
    extras |= state.extras
    torch = torch or state.of("torch", "auto")
    declared = _digest(project, constraints)
    if state.is_ready and state.of("torch") == torch:
        if state.of("declared") == declared and extras <= state.extras and (venv / "bin" / "podium").exists():
            state.write(**state.facts)  # newer than pyproject.toml now, which has changed elsewhere
            say(f"{venv} is ready, with {state.of('holds')}")
            return
        if added := sorted(extras - state.extras):
            say(f"adding {', '.join(added)} to {venv}, once")
    installer = make_environment(venv, state, torch)
    backend = state.of("backend") if state.is_ready and state.of("torch") == torch else None
    state.path.unlink(missing_ok=True)
    if isinstance(installer, Uv):
        if backend is None:
            backend = installer.choose_torch(torch)
        installer.find_index()
    elif torch == "cpu":
        raise SetUpError("TORCH=cpu needs uv, which cannot be had here; leave TORCH out")
    installer.install(requirements(extras, project), backend or "", constraints)
    try_packages(venv)
    holds = describe(venv, installer)
    facts = {"torch": torch, "backend": backend or "", "installer": installer.name, "declared": declared}
    state.write(**facts, extras=sorted(extras), holds=holds)
    say(f"{venv} is ready, with {holds}; it took {time.monotonic() - started:.0f} s")


def read_project() -> dict[str, Any]:
    import tomllib

    return tomllib.loads((CLONE / "pyproject.toml").read_text())


def _digest(project: dict[str, Any], constraints: Path | None) -> str:
    """Hashes what decides which packages are installed, and where the command `podium` is."""
    parts = [project["project"], project["dependency-groups"], constraints.read_text() if constraints else ""]
    return hashlib.sha256(json.dumps([*parts, str(CLONE)], sort_keys=True).encode()).hexdigest()[:16]


def requirements(extras: set[str], project: dict[str, Any]) -> list[str]:
    """Returns what to install: this clone with its extras, and the packages of the group dev."""
    wanted = sorted((extras - {"dev"}) | (set(TRIED_BY_TESTS) if "dev" in extras else set()))
    here = f"{CLONE}[{','.join(wanted)}]" if wanted else str(CLONE)
    return ["-e", here, *(project["dependency-groups"]["dev"] if "dev" in extras else ())]


def try_packages(venv: Path) -> None:
    """Imports what training imports. This also compiles it, which the first command would have to do, and more slowly.

    torch and torchvision of different builds, for example, can be installed together and not be imported.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["NO_ALBUMENTATIONS_UPDATE"] = "1"
    progress = Progress("importing the packages, which compiles them")
    processes = [
        subprocess.Popen(
            [venv / "bin" / "python", "-c", program],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for program in TRIED
    ]
    try:
        while any(process.poll() is None for process in processes):
            time.sleep(0.1)
            progress.draw()
    finally:
        progress.end()
        for process in processes:
            process.kill()
    for process in processes:
        problem = process.communicate()[1]
        if process.returncode:
            raise SetUpError(f"{venv} was made, but a package cannot be imported in it: {last_line(problem)}")


def describe(venv: Path, installer: Pip | Uv) -> str:
    """Returns `98 packages, 6.4 GB (torch 2.15.0, by uv 0.13.9)`."""
    done = subprocess.run([venv / "bin" / "podium", "--version"], capture_output=True, text=True)
    if done.returncode:
        raise SetUpError(f"{venv} was made, but podium does not start in it ({last_line(done.stderr)}); delete {venv}")
    (library,) = (venv / "lib").glob("python3*")
    packages = sorted(path.name for path in (library / "site-packages").glob("*.dist-info"))
    torch = next((name.split("-")[1] for name in packages if name.startswith("torch-")), "missing")
    size = sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(venv) for name in names)
    return f"{len(packages)} packages, {size / 1e9:.1f} GB (torch {torch.removesuffix('.dist')}, by {installer.name})"


# --- the folder --------------------------------------------------------------------------------------


@contextlib.contextmanager
def alone_in(venv: Path) -> Iterator[None]:
    """Waits until no other call works in this folder."""
    import fcntl

    try:
        venv.mkdir(parents=True, exist_ok=True)
        folder = os.open(venv, os.O_RDONLY)
    except OSError as error:
        raise SetUpError(f"{venv} cannot be made: {error.strerror}; name another folder with VENV=") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another make works in {venv}; waiting for it")
        fcntl.flock(folder, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(folder)


def make_environment(venv: Path, state: State, torch: str) -> Pip | Uv:
    """Makes an empty environment where there is none, and returns what installs packages into it."""
    mark = venv / ".made-by-podium"
    if state.path.exists() and not state.is_ready:
        say(f"{venv} was made by an older version of Podium; it is made anew")
        _empty(venv)
    elif state.is_ready and state.of("torch") != torch:
        say(f"{venv} has another build of torch (TORCH={state.of('torch')}); it is made anew")
        _empty(venv)
    elif mark.exists() and not state.path.exists():
        say(f"{venv} was not finished; it is made anew, from what was fetched already")
        _empty(venv)
    python = venv / "bin" / "python"
    if not python.exists():
        say(f"making {venv} with Python {sys.version.split()[0]}")
        mark.touch()
        put_python_into(venv)
    for path in (shutil.which("uv"), str(venv / "bin" / "uv")):
        if path and (version := uv_version(path)) >= OLDEST_UV:
            return Uv(path, version, python)
    say("fetching uv, which installs packages")
    pip: Words = [python, "-m", "pip", "install", "-q", "--retries", "1", "--timeout", "8", "uv"]
    output = _run(pip, {}, Progress("fetching uv"))
    if version := uv_version(str(venv / "bin" / "uv")):
        return Uv(str(venv / "bin" / "uv"), version, python)
    if NO_NETWORK.search(output):
        raise SetUpError(explain("fetching uv", output))
    say("uv cannot be had here, so pip installs the packages, which takes about four times as long")
    return Pip(python)


def put_python_into(venv: Path) -> None:
    made = subprocess.run([sys.executable, "-m", "venv", venv], capture_output=True, text=True)
    machine_uv = shutil.which("uv")
    if made.returncode and machine_uv and "ensurepip" in made.stdout + made.stderr:  # Debian's Python lacks it
        uv: Words = [machine_uv, "venv", "-q", "--allow-existing", "--python", sys.executable, venv]
        made = subprocess.run(uv, capture_output=True, text=True)
    if made.returncode:
        raise SetUpError(explain(f"making {venv}", made.stdout + made.stderr))


def _empty(venv: Path) -> None:
    for path in venv.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def uv_version(path: str) -> tuple[int, ...]:
    """Returns an empty tuple if it does not run."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True)
    except OSError:
        return ()
    numbers = re.match(r"uv (\d+)\.(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, numbers.groups())) if numbers else ()


# --- installing --------------------------------------------------------------------------------------


class Pip:
    name = "pip"

    def __init__(self, python: Path) -> None:
        self.python = python

    def install(self, words: list[str], backend: str, constraints: Path | None) -> None:
        command: Words = [self.python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
        command += ["-c", constraints] if constraints else []
        _must_run([*command, *words], {}, "installing the packages")


class Uv:
    def __init__(self, path: str, version: tuple[int, ...], python: Path) -> None:
        self.path, self.python, self.name = path, python, f"uv {'.'.join(map(str, version))}"
        self.environment = _settings_of_pip(python)
        self.is_offline = False

    def choose_torch(self, wanted: str) -> str:
        """Returns the build of torch to ask for by uv's word; nothing means that of the package index."""
        if wanted == "default":
            return ""
        words = ["--dry-run", "--no-deps", "--torch-backend", wanted, "torch"]
        problem, output = self._ask(words)
        if not problem:
            return wanted
        if wanted == "cpu":
            raise SetUpError(explain("asking PyTorch's own index for the build cpu", output, "or leave out TORCH=cpu"))
        if not shutil.which("nvidia-smi") and sys.platform == "linux":
            say("PyTorch's own index does not answer, so torch comes with NVIDIA's libraries: 4 GB more")
        return ""

    def find_index(self) -> None:
        """Finds out in seconds whether there is a network; without one, all may have been fetched already."""
        problem, output = self._ask(["--dry-run", "--no-deps", "packaging"])
        if problem and NO_NETWORK.search(output):
            say("the package index does not answer; taking what was fetched before")
            self.is_offline = True

    def install(self, words: list[str], backend: str, constraints: Path | None) -> None:
        command: Words = [self.path, "pip", "install", "--python", self.python]
        command += ["--torch-backend", backend] if backend else []
        command += ["-c", constraints] if constraints else []
        command += ["--offline"] if self.is_offline else []
        _must_run([*command, *words], self.environment, "installing the packages", self.is_offline)

    def _ask(self, words: list[str]) -> tuple[bool, str]:
        command: Words = [self.path, "pip", "install", "--python", self.python, *words]
        environment = {**os.environ, **self.environment, **QUICK}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        return done.returncode != 0, done.stderr


def _settings_of_pip(python: Path) -> dict[str, str]:
    """Returns for uv, which does not read pip's files, the index and the certificates that they name."""
    done = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True)
    lines = dict(line.partition("=")[::2] for line in done.stdout.splitlines() if "=" in line)
    found = {}
    for name, variables in (("index-url", ("UV_DEFAULT_INDEX", "UV_INDEX_URL")), ("cert", ("SSL_CERT_FILE",))):
        value = next((lines[key].strip("'\"") for key in (f":env:.{name}", f"global.{name}") if key in lines), "")
        if value and not any(variable in os.environ for variable in variables):
            found[variables[0]] = value
    return found


def _must_run(command: Words, environment: dict[str, str], step: str, is_offline: bool = False) -> None:
    watched = Progress(step)
    output = _run(command, environment, watched)
    if watched.status:
        raise SetUpError(explain(step, "offline" if is_offline else output))


def _run(command: Words, environment: dict[str, str], progress: Progress) -> str:
    """Runs a command; shows what it fetches, and returns what it said."""
    process = subprocess.Popen(
        list(map(str, command)),
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    said: list[str] = []
    try:
        while True:
            try:
                line = lines.get(timeout=0.25)
            except queue.Empty:
                progress.draw()
                continue
            if line is None:
                break
            said.append(line)
            progress.hear(line)
        progress.status = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    finally:
        progress.end()
        if process.stdout:
            process.stdout.close()
    return "".join(said)


class Progress:
    """One line that says what is being fetched: redrawn in a terminal; in a log, a line for each large package."""

    LARGE = 100.0  # MB, for a line in a log

    def __init__(self, step: str) -> None:
        self.step, self.started, self.status = step, time.monotonic(), 0
        self.fetching: dict[str, float] = {}
        self.fetched, self.is_terminal = 0.0, sys.stderr.isatty()

    def hear(self, line: str) -> None:
        if found := re.search(r"Downloading (\S+) \(([\d.]+) ?([kKMG])i?B\)", line):
            name, megabytes = os.path.basename(found[1]).partition("-")[0], float(found[2])
            megabytes *= {"k": 0.001, "K": 0.001, "M": 1.0, "G": 1000.0}[found[3]]
            if "-" in os.path.basename(found[1]) and not found[1].endswith(".whl"):
                name = found[1]
            self.fetching[name] = megabytes
            if not self.is_terminal and megabytes >= self.LARGE:
                say(f"fetching {name}, {megabytes:,.0f} MB")
        elif found := re.search(r"Downloaded (\S+)", line):
            self.fetched += self.fetching.pop(found[1], 0.0)
        elif re.match(r"(Prepared|Installed) ", line):
            self.fetched, self.fetching = self.fetched + sum(self.fetching.values()), {}
            if not self.is_terminal:
                say(f"{line.strip().lower()}")
        self.draw()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def draw(self) -> None:
        if not self.is_terminal:
            return
        largest = sorted(self.fetching, key=lambda name: -self.fetching[name])
        names = ", ".join(f"{name} ({self.fetching[name]:,.0f} MB)" for name in largest[:2])
        more = f" and {len(largest) - 2} more" if len(largest) > 2 else ""
        here = f", {self.fetched:,.0f} MB are here" if self.fetched else ""
        line = f"podium: {self.seconds:.0f} s{here}; {f'fetching {names}{more}' if names else self.step}"
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\033[K{line[:width]}")
        sys.stderr.flush()

    def end(self) -> None:
        if self.is_terminal:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


# --- the lock ----------------------------------------------------------------------------------------


def renew_lock(venv: Path) -> None:
    """Writes the newest versions that fit for every system, for `make setup CONSTRAINTS=constraints.txt`."""
    path = next((path for path in (shutil.which("uv"), str(venv / "bin" / "uv")) if path and uv_version(path)), None)
    if path is None:
        raise SetUpError("renewing the lock needs uv; run make setup first")
    extras = [word for extra in TRIED_BY_TESTS for word in ("--extra", extra)]
    command = [path, "pip", "compile", "pyproject.toml", *extras, "--group", "dev", "--universal", "--upgrade"]
    command += ["--no-annotate", "--custom-compile-command", "make lock", "--quiet", "--output-file", LOCK]
    done = subprocess.run(command, cwd=CLONE, capture_output=True, text=True)
    if done.returncode:
        raise SetUpError(explain(f"renewing {LOCK}", done.stderr))
    say(f"wrote {LOCK}; test with it: make test CONSTRAINTS={LOCK}")


# --- words -------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(f"podium: {text}", file=sys.stderr, flush=True)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason was given"


def explain(step: str, output: str, further: str = "") -> str:
    """Returns one line: what happened in which step, and what to do."""
    also = f", {further}" if further else ""
    if NO_SPACE.search(output):
        return f"the disk is full ({step}); free some space, 8 GB in all, and run make setup again: it goes on{also}"
    if NO_NETWORK.search(output):
        return f"there is no network ({step}); connect and run make setup again: it goes on{also}"
    reasons = [line.strip(" ×╰─▶") for line in output.splitlines() if re.search(r"(?i)error|because|cause", line)]
    reason = "; ".join(reasons[:2]) or last_line(output)
    return f"{step} failed: {reason[:400]}; mend that and run make setup again{also}"


if __name__ == "__main__":
    try:
        main()
    except SetUpError as problem:
        sys.exit(f"podium: error: {problem}")
    except OSError as error:
        sys.exit(f"podium: error: {explain(str(error.filename or 'writing files'), str(error))}")
    except KeyboardInterrupt:
        sys.exit("\npodium: stopped; run make setup again: it goes on, from what was fetched already")
