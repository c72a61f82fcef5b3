"""Every command and every line of Python in the README and in docs/ runs as it is written."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import podium
import podium_annex
from podium.__main__ import COMMANDS
from podium.basics.terminal import seconds_of
from podium.cli.option_page import option_page
from podium.cli.parser import WORDS
from podium.competing.choices import CompeteRequest
from podium.competing.ending import Outcome
from podium.competition.card import read_card
from podium.competition.load import Competition
from podium.training.memory_forecast import Memory
from second_round import first_of
from tiny import Podium, done, podium_at, write_card, write_competition, write_image

ROOT = Path(__file__).parents[1]
README, INDEX, API, ARCHITECTURE, EXTEND = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "docs/guide.md", "docs/api.md", "docs/architecture.md", "docs/extend.md")
)
# All pages of the guide, in the order of its index. test_guide.py compares what they say with the code.
GUIDE = "\n".join(
    (ROOT / "docs" / page).read_text(encoding="utf-8") for page in re.findall(r"\((guide/[\w-]+\.md)\)", INDEX)
)
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "AGENTS")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES_OF_PAGES = [path.relative_to(ROOT).as_posix() for path in PAGES]
SLUGS = ("boolart-image-classification", "paddy-disease-classification")
# Take the place of hours and of a network: small images, one epoch, weights from scratch. The last flag wins, so the
# flags of the page are parsed, and these are run.
QUICK = ("--weights", "none", "--image-size", "32", "--epochs", "1", "--batch-size", "8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def shell_commands(page: str) -> list[str]:
    return [line for block in blocks(page, "sh") for line in block.splitlines()]


FIRST, SECOND, *OTHERS = dict.fromkeys(shell_commands(README) + shell_commands(GUIDE))
TRAINING = [line for line in OTHERS if line.startswith(("make train", "make pretrain"))]
# One command of each of these kinds is run to its end each time, with a small model; all others before a release.
KINDS = ("make pretrain", "--teacher", "NAME=linear")
trained_lines = [
    pytest.param(line, marks=[] if any(kind in line for kind in KINDS) else [pytest.mark.all]) for line in TRAINING
]
COMPETING = [line for line in OTHERS if line.startswith("make compete")]
# `make demo` is run as a whole after the tests.
REST = [line for line in OTHERS if line not in (*TRAINING, *COMPETING, "make demo")]


@pytest.fixture(scope="session")
def clone_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a newcomer has after cloning and downloading, with this environment in the place of .venv."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy2(ROOT / name, folder / name)
    shutil.copytree(ROOT / "data" / "competitions", folder / "data" / "competitions")
    for name in ("src", "tests"):
        (folder / name).mkdir()
    bin_folder = folder / ".venv" / "bin"
    bin_folder.parent.mkdir()
    bin_folder.symlink_to(Path(sys.executable).parent)
    (folder / ".venv" / ".ready").touch()
    for slug in SLUGS:
        unpacked = write_competition(folder / "elsewhere", slug, per_class=6, test_images=3)
        archive = folder / "data" / "raw" / f"{slug}.zip"
        archive.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(archive, "w") as file:
            for path in sorted(unpacked.rglob("*")):
                file.write(path, path.relative_to(unpacked))
    return folder


@pytest.fixture(scope="session")
def prepared_template(clone_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clone with data and folds."""
    folder = tmp_path_factory.mktemp("prepared")
    shutil.copytree(clone_template, folder, symlinks=True, dirs_exist_ok=True)
    for slug in SLUGS:
        podium_at(folder, "data", "-c", slug)
        podium_at(folder, "folds", "-c", slug)
    return folder


@pytest.fixture
def clone(clone_template: Path, tmp_path: Path) -> Path:
    shutil.copytree(clone_template, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def prepared(prepared_template: Path, tmp_path: Path) -> Path:
    shutil.copytree(prepared_template, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=250)


def all_podium_words(folder: Path, *words: str) -> list[list[str]]:
    """What `make` with these words would call podium with, time after time."""
    result = make(folder, "-n", *words)
    assert result.returncode == 0, f"{words}\n{result.stderr}"
    commands = [shown for shown in result.stdout.replace("\\\n", " ").splitlines() if "/podium " in shown]
    return [shlex.split(command.partition("/podium ")[2]) for command in commands]


def podium_words(folder: Path, line: str) -> list[str]:
    """What `make` would call podium with."""
    if line.startswith("podium "):
        return shlex.split(line)[1:]
    (words,) = all_podium_words(folder, *shlex.split(line)[1:])
    return words


@pytest.fixture
def podium_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Podium:
    """The command line in the clone, as make calls it."""
    from podium.__main__ import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PODIUM_CALLED_BY", "make")
    monkeypatch.setattr("podium.basics.terminal.root", Path())

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([*map(str, words)])
        return status, *capsys.readouterr()

    return run


# --- commands ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("real_make", first_of([False], [False, True]))
def test_two_commands_go_from_an_archive_to_a_submission(clone: Path, podium_here: Podium, real_make: bool) -> None:
    """Make itself, which starts a process for each step, and what it would call, in this process."""

    def run(line: str, *words: str) -> tuple[str, str]:
        out = err = ""
        if real_make:
            result = make(clone, *shlex.split(line)[1:], *words)
            assert result.returncode == 0, result.stderr
            return result.stdout, result.stderr
        for step in all_podium_words(clone, *shlex.split(line)[1:], *words):
            out, err = done(podium_here(*step))
        return out, err

    small = ("--model", "test_convnext", "--name", "convnext_small")  # in place of the page's model
    out, err = run(FIRST, f"ARGS={' '.join((*QUICK, *small))}")
    assert "over 5 of 5 folds" in out
    assert "next: make submit" in err
    out, err = run(SECOND)
    assert out.splitlines()[-1] == "submissions/boolart-image-classification/convnext_small.csv"
    assert (clone / out.splitlines()[-1]).exists()


def write_what_it_reads(words: list[str], prepared: Path, podium_here: Podium) -> None:
    """Trains the teacher and writes the corrections that a command names."""
    if "--teacher" in words:
        teacher = (*QUICK, "--model", "test_vit", "--name", words[words.index("--teacher") + 1], "--folds", "0")
        done(podium_here("train", *teacher))
    if "--corrections" in words:
        (prepared / words[words.index("--corrections") + 1]).write_text("id,label\n000,drop\n")


@pytest.mark.parametrize("line", [line for line in TRAINING if not any(kind in line for kind in KINDS)])
def test_every_other_training_could_begin(
    line: str, prepared: Path, podium_here: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.training.dry_run.measure_training", lambda *_: 100.0)
    monkeypatch.setattr("podium.training.dry_run.forecast_memory", lambda *_: Memory(held=10**9, step=10**9))
    words = podium_words(prepared, line)
    write_what_it_reads(words, prepared, podium_here)
    out, err = done(podium_here(*words, *QUICK, "--dry-run"))
    assert re.search(rf"^model +{words[words.index('--model') + 1]} +flag$", out, re.MULTILINE)
    assert "nothing was trained" in err


@pytest.mark.slow
@pytest.mark.parametrize("line", trained_lines)
def test_every_command_that_trains_runs(line: str, prepared: Path, podium_here: Podium) -> None:
    words = podium_words(prepared, line)
    write_what_it_reads(words, prepared, podium_here)
    if "--processes" in words:  # as many processes of this machine as there are GPUs in the text
        result = make(prepared, *shlex.split(line.replace("GPUS=4", "GPUS=2"))[1:], f"ARGS={' '.join(QUICK)} --folds 0")
        assert result.returncode == 0, result.stderr
        return
    pretrains = words[0] == "pretrain"
    small = ("--model", "test_vit") if any(kind in line for kind in KINDS) else ()
    out, _ = done(podium_here(*words, *QUICK, *small, *(() if pretrains else ("--folds", "0"))))
    expected = "over 1 of 5 folds" if not pretrains else "features/backbone.safetensors"
    assert ("from a quick measurement" if "--dry-run" in words else expected) in out


@pytest.mark.parametrize("line", COMPETING)
def test_every_command_that_competes_could_begin(
    line: str, prepared: Path, podium_here: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/competing has whole journeys."""
    csv, asked = prepared / "submissions/compete.csv", []

    def compete(competition: Competition, request: CompeteRequest) -> Outcome:
        asked.append(request)
        return Outcome(csv, 1.0, (1.0, 1.0), {}, ())

    monkeypatch.setattr("podium.competing.compete.compete", compete)
    out, _ = done(podium_here(*podium_words(prepared, line)))
    assert out.splitlines()[-1] == str(csv)
    budget = re.search(r"BUDGET=(\S+)", line)
    assert asked[0].budget == (seconds_of(budget[1]) if budget else None)


@pytest.mark.slow
def test_every_other_command_runs(prepared: Path, podium_here: Podium) -> None:
    for name in ("convnext_small", "vit_small_patch32_224"):
        done(podium_here("train", *QUICK, "--model", "test_vit", "--name", name, "--folds", "0"))
    done(podium_here("submit", "--runs", "convnext_small"))
    write_image(prepared / "holiday.jpg", (200, 30, 30), seed=0)
    write_image(prepared / "photos" / "beach.jpg", (40, 40, 210), seed=1)
    for line in REST:
        line = line.partition(" UPLOAD=1")[0]  # there is no Kaggle here
        status, _, err = podium_here(*podium_words(prepared, line))
        assert status == 0, f"{line}\n{err}"
    assert {"make data", "make audit", "make folds", "make submit"} <= set(REST) | {SECOND}


def test_help_lists_every_target_and_the_pages_have_them_all(clone: Path) -> None:
    result = make(clone)
    assert result.returncode == 0
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(targets) > 10
    pages = "".join(path.read_text(encoding="utf-8") for path in PAGES)
    for target in targets:
        assert re.search(rf"^  {target} +\S", result.stdout, re.MULTILINE), target
        if target != "help":
            assert re.search(rf"make [a-z ]*\b{target}\b", pages), target
    assert set(re.findall(r"`make ([a-z-]+)", README)) <= set(targets)


def test_the_page_of_commands_is_what_their_help_says() -> None:
    spec = importlib.util.spec_from_file_location("make_commands", ROOT / "docs" / "make_commands.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert page == made.page(), "run: python docs/make_commands.py"
    assert set(re.findall(r"^### podium ([a-z-]+)$", page, re.MULTILINE)) == set(COMMANDS)


def test_the_commands_that_the_readme_names_exist() -> None:
    assert {name for name in re.findall(r"`podium ([a-z-]+)", README)} <= set(COMMANDS)


def test_an_environment_belongs_to_one_clone(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    ready = clone / ".venv" / ".ready"
    ready.write_text(f"{clone}\n")
    assert make(clone, "-n", "doctor").returncode == 0
    other = tmp_path_factory.mktemp("other clone")
    shutil.copy2(clone / "Makefile", other / "Makefile")
    shutil.copy2(clone / "pyproject.toml", other / "pyproject.toml")  # newer: it would be installed
    shared = f"VENV={clone / '.venv'}"
    for target in ("doctor", "setup", "test"):
        result = make(other, target, shared)
        assert result.returncode != 0
        assert f"is the environment of {clone}" in result.stderr
        assert "VENV=" in result.stderr
    assert make(other, "help", shared).returncode == 0
    assert ready.read_text() == f"{clone}\n"
    ready.write_text("")  # written by an older Makefile, or by hand: the environment itself knows its clone
    installed = clone / ".venv" / "lib" / "python3.11" / "site-packages" / "__editable__.podium-0.1.0.pth"
    installed.parent.mkdir(parents=True)
    installed.write_text(f"{clone}/src\n")
    assert f"is the environment of {clone}" in make(other, "setup", shared).stderr
    assert make(clone, "-n", "doctor").returncode == 0


def test_make_finds_the_data_where_podium_does(
    clone: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path_factory.mktemp("root")
    folds = root / "data" / "prepared" / "mine" / "folds.csv"
    for path in (folds, root / "data" / "raw" / "mine" / "train.csv"):
        path.parent.mkdir(parents=True)
        path.touch()
    assert "podium folds" in make(clone, "-n", "train", "MODEL=test_vit").stdout
    monkeypatch.setenv("PODIUM_ROOT", str(root))
    commands = make(clone, "-n", "train", "MODEL=test_vit").stdout
    assert "train -c mine" in commands
    assert "podium folds" not in commands  # they are there, and are not made anew


def test_make_without_a_model_says_what_is_missing(clone: Path) -> None:
    result = make(clone, "train")
    assert result.returncode != 0
    assert "podium: error: which model?" in result.stderr


def test_clean_keeps_what_was_computed(clone: Path) -> None:
    kept = clone / "data" / "prepared" / "kept.csv"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("")
    assert make(clone, "clean").returncode == 0
    assert kept.exists()


# --- Python and cards --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_python_of_the_api_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sklearn.datasets import load_digits

    scans, digits = load_digits(return_X_y=True)
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda **_: (scans[:220], digits[:220]))  # trained in seconds
    (tmp_path / "data" / "raw").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("podium.basics.terminal.root", Path())
    names: dict[str, object] = {}
    for block in blocks(API, "python"):
        exec(block, names)
    out = capsys.readouterr().out
    assert "Handwritten digits" in out
    assert "<podium.Run notebook: 3 of 3 folds, accuracy" in out
    assert "<podium.Run mate: 3 of 3 folds, accuracy" in out
    assert str(tmp_path / "submissions/sample/notebook.csv") in out.splitlines()
    assert (tmp_path / "submissions" / "sample" / "notebook.csv").exists()


def test_the_signatures_of_the_api_page_are_those_of_the_library() -> None:
    import inspect

    functions = dict(re.findall(r"`podium\.([a-z]+)\(([^`]*)\) -> ", API))
    assert set(functions) == {name for name in podium.__all__ if name.islower()}
    for name, shown in functions.items():
        parameters = list(inspect.signature(getattr(podium, name)).parameters)
        assert re.findall(r"(\w+):\s|\*\*(\w+)", shown) == [
            ("", parameter) if parameter == "options" else (parameter, "") for parameter in parameters
        ], name
    for kind in (podium.Competition, podium.Run):
        for name in re.findall(rf"`{kind.__name__}\.(\w+)\(", API):
            assert hasattr(kind, name), name


def test_the_card_of_the_guide_is_read(tmp_path: Path) -> None:
    (card,) = blocks(GUIDE, "toml")
    write_card(tmp_path, card, "it")
    (tmp_path / "mine.py").touch()  # the card names it
    assert read_card("it", tmp_path)["recipe"] == {"mirror": 0.0, "fit": "squash"}


@pytest.mark.slow
@pytest.mark.usefixtures("timm_registry")
def test_the_examples_of_ones_own_parts_run(tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("\n".join(blocks(EXTEND, "python")))
    (settings,) = blocks(EXTEND, "toml")
    (tmp_path / "podium.toml").write_text(settings)
    folder = write_competition(tmp_path, SLUGS[0])
    rows = (line.split(",") for line in (folder / "train.csv").read_text().split()[1:])
    (folder / "labels.json").write_text(json.dumps({f"{name}.jpg": label for name, label in rows}))
    (folder / "train.csv").unlink()
    tests = (line.split(",")[0] for line in (folder / "sample_submission.csv").read_text().split()[1:])
    (folder / "test.csv").write_text("\n".join(["id,scene", *(f"{name},{name[:2]}" for name in tests)]))
    monkeypatch.chdir(tmp_path)
    done(podium("folds", "--k", "2"))
    for line in shell_commands(EXTEND):
        words = shlex.split(line)[1:]
        quick = QUICK if "--weights" in words else QUICK[2:]  # a backbone inside has its pretrained weights
        status, _, err = podium(*words, *(quick if words[0] == "train" else ()))
        assert status == 0, f"{line}\n{err}"
        if "lite_with_two_layers" in words:
            assert "in backbone; new: head" in err
    every_kind = {"register_model", "extend.metric", "extend.loss", "extend.augmentation", "extend.view"}
    assert set(re.findall(r"^@([\w.]+)", EXTEND, re.MULTILINE)) == every_kind | {
        "extend.head",
        "extend.pooling",
        "extend.optimizer",
        "extend.schedule",
        "extend.decision",
        "extend.stack",
        "extend.reader",
        "extend.splitter",
        "extend.move",
    }


def test_the_worked_examples_of_the_architecture_page_work(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium.cli import commands
    from podium.competition import card
    from podium.competition.decide import labels
    from podium.options import moves, recipe

    option, layout, command = blocks(ARCHITECTURE, "python")
    monkeypatch.setattr(commands, "COMMANDS", dict(commands.COMMANDS))
    exec(command, vars(commands))
    monkeypatch.setattr("podium.__main__.COMMANDS", commands.COMMANDS)
    write_competition(tmp_path)
    out, _ = done(podium("classes", "-c", "tiny"))
    assert re.search(r"^red +8$", out, re.MULTILINE)
    exec(option, {**vars(moves.sizes), "__name__": "example"}, found := dict[str, Any]())
    recipe.add_options(found["Dropout"])
    assert "dropout before the classifier" in option_page("--dropout")
    recipe.remove_options(found["Dropout"])
    assert "TARGET_NAMES" in layout
    assert hasattr(labels, "TARGET_NAMES")
    assert card.CHOICES


# --- pages -------------------------------------------------------------------------------------------


def test_the_readme_is_short() -> None:
    assert len(README.encode()) <= 9_000
    assert len(README.splitlines()) <= 120


def test_the_readme_explains_the_words_of_the_help() -> None:
    section = README.split("## Words")[1].split("## ")[0]
    assert section.strip().splitlines() == [f"- **{word}**: {meaning}" for word, meaning in WORDS.items()]


def anchors_of(page: Path) -> set[str]:
    """Returns what a link may name behind the #: the headings, as GitHub writes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=[*NAMES_OF_PAGES, "CHANGELOG.md"])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]*)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            name, _, anchor = target.partition("#")
            linked = page.parent / name if name else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors_of(linked), target


def test_the_architecture_page_names_every_room_and_file_that_exists() -> None:
    rooms = {path.parent.name for path in (ROOT / "src").glob("podium*/*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)/` ", ARCHITECTURE, re.MULTILINE)) == rooms
    for name in re.findall(r"`((?:\w+/)*\w+\.py)`", ARCHITECTURE):
        found = [*(ROOT / "src").rglob(name), *(ROOT / "benchmarks").glob(name)]
        assert (ROOT / name).exists() or found, name


NAMES = r"`[A-Za-z_]\w*`(?:(?:,| and| or|, and)\s+`[A-Za-z_]\w*`)*"
FILE = r"`((?:\w+/)*\w+\.py)`"


@pytest.mark.parametrize("page", PAGES, ids=NAMES_OF_PAGES)
def test_a_name_beside_a_file_is_defined_in_that_file(page: Path) -> None:
    """`NAME` (`file.py`), `NAME` in `file.py`, `file.py` (`NAME`)."""
    text = page.read_text(encoding="utf-8")
    pairs = re.findall(rf"({NAMES})(?:\s+\([^`()]*\))?\s+(?:\(|in\s+){FILE}", text)
    pairs += [(names, file) for file, names in re.findall(rf"{FILE}\s+\(({NAMES})\)", text)]
    if page.name == "architecture.md":
        assert len(pairs) > 20
    for names, file in pairs:
        found = [ROOT / file, *(ROOT / "src").rglob(file)]
        source = "\n".join(path.read_text(encoding="utf-8") for path in found if path.exists())
        for name in re.findall(r"`(\w+)`", names):
            definition = rf"^\s*(?:def|class) {name}\b|^\s*{name}(?:: [^=\n]+)? = |^\s+{name}: "
            assert re.search(definition, source, re.MULTILINE), f"{page.name}: {file} has no {name}"


@pytest.mark.parametrize("package", [podium, podium_annex], ids=lambda package: package.__name__)
def test_each_room_is_listed_after_those_that_it_imports(package: ModuleType) -> None:
    name = package.__name__
    rooms = {path.parent.name for path in (ROOT / "src" / name).glob("*/__init__.py")}
    listed = re.findall(r"\w+", str(package.__doc__).partition("The rooms:")[2].partition(".")[0])
    assert len(listed) == len(rooms)
    assert set(listed) == rooms
    for place, room in enumerate(listed):
        for path in (ROOT / "src" / name / room).glob("*.py"):
            imported = (
                set(re.findall(rf"^ *from {name}\.(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)) & rooms
            )
            assert imported <= {*listed[:place], room}, path


def test_the_architecture_page_names_every_folder_inside_a_room_and_every_module_outside() -> None:
    found = (ROOT / "src" / "podium").glob("*/*/__init__.py")
    inside = {f"{path.parents[1].name}/{path.parent.name}/" for path in found}
    assert set(re.findall(r"`(\w+/\w+/)`", ARCHITECTURE)) >= inside
    modules = {path.stem for path in (ROOT / "src" / "podium").glob("*.py")} - {"__init__", "__main__"}
    assert all(f"`{name}.py` is what" in ARCHITECTURE for name in modules)


def test_the_short_map_names_every_room_and_only_what_exists() -> None:
    page = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "src" / "podium").glob("*/__init__.py")}
    assert {name for name in re.findall(r"`(\w+)/`", page)} == rooms | {"benchmarks"}
    for name in re.findall(r"`((?:\w+/)+(?:\w+\.\w+)?)`", page):
        assert any((place / name).exists() for place in (ROOT, ROOT / "src", ROOT / "src" / "podium")), name


def test_the_map_of_the_core_has_at_most_twelve_rooms_and_three_below_them() -> None:
    map_of_rooms, ground = (part.split("\n\n")[0] for part in ARCHITECTURE.split("| room | does | read first |")[1:])
    assert map_of_rooms.count("\n| `") <= 12
    assert ground.count("\n| `") == 3


def test_what_runs_before_packages_are_installed_imports_what_the_architecture_page_says() -> None:
    kernel, set_up = (
        (ROOT / "src" / name).read_text(encoding="utf-8")
        for name in ("podium_annex/kaggle_machines/inside_kernel.py", "set_up.py")
    )
    imports = re.compile(r"^(?:from|import) ([\w.]+)", re.MULTILINE)
    of_podium = {"podium", "podium.basics.errors", "podium.basics.extras", "podium.options.recipe"}
    assert {name for name in imports.findall(kernel) if name.split(".")[0] not in sys.stdlib_module_names} == of_podium
    assert all(name.split(".")[0] in {*sys.stdlib_module_names} for name in imports.findall(set_up))


@pytest.mark.slow
def test_the_recipe_needs_no_package() -> None:
    """A kernel on Kaggle reads it before packages are installed."""
    block = "import sys; sys.modules.update(dict.fromkeys(('numpy', 'pandas', 'torch', 'timm', 'cv2', 'PIL')))"
    subprocess.run([sys.executable, "-c", f"{block}; import podium.options.recipe"], check=True, cwd=ROOT)
