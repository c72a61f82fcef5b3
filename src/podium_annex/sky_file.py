"""Writes sky.yaml, with which SkyPilot runs a command on a spot machine of a cloud.

    podium train | search ... --on sky

Nothing is started. The machine mounts a bucket that holds images and runs. The small files that decide what is trained
(card, corrections, folds, extensions, files that the command names, the code of a checkout) are uploaded. If the cloud
takes the machine away, or the command ends with status 75, another machine resumes it.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from shlex import join, quote

import podium
from podium import __version__
from podium.basics.disk import write_text
from podium.basics.errors import STOPPED
from podium.basics.project_root import prepared_folder
from podium.basics.terminal import say
from podium.competition.build.corrections import find_project_files
from podium.competition.card import read_card
from podium.competition.extras.extra_images import unpacked
from podium.models.described_models import FOLDER
from podium.options.recipe import KNOBS, flag_of

OF_HERE = ("--root", "--on")  # flags that mean this machine
CODE = ("src", "pyproject.toml", "README.md")  # of a checkout: what pip needs to install it
FORM = Path(__file__).with_name("sky.yaml")


def write_sky_file(args: argparse.Namespace, extra: str = "", path: Path = Path("sky.yaml")) -> None:
    """Writes the file of the command; `extra` is what it needs of pyproject.toml."""
    slug, root, card, code = args.competition, args.root, read_card(args.competition, args.root), _checkout()
    entries = [*card.get("extra", ()), *card.get("unlabelled", ())]
    extra_folders = [unpacked(str(entry.get("folder"))) for entry in entries if isinstance(entry, dict)]
    folders = list(dict.fromkeys([f"data/raw/{slug}", *extra_folders]))
    naming_files = [name for name, own in KNOBS.items() if own.is_file or own.may_be_file]
    flags = ["--corrections", *map(flag_of, naming_files)]
    mounts, words = _mounts(slug, root, _words_for_elsewhere(args), flags)
    for value in map(card.get("recipe", {}).get, naming_files):
        if value and Path(value).is_file() and not Path(value).is_absolute():
            mounts[f"~/project/{value}"] = Path(value)
    mounts |= {f"~/podium/{part}": code / part for part in CODE} if code else {}
    extras = f"[{extra}]" if extra else ""
    text = FORM.read_text(encoding="utf-8").format(
        slug=slug,
        name=f"podium-{slug}"[:40].lower().replace("_", "-").replace(".", "-").strip("-"),
        stopped=STOPPED,
        copied=" and ".join(folders),
        mounts="".join(f"  {json.dumps(there)}: {json.dumps(str(here.resolve()))}\n" for there, here in mounts.items()),
        package=f'"$HOME/podium{extras}"' if code else quote(f"podium{extras}=={__version__}"),
        links="\n  ".join(_link(folder) for folder in [*folders, "runs"]),
        words=join(words),
    )
    write_text(path, text)
    say(f"podium: wrote {path}; name your bucket in it")
    say(f"next: sky jobs launch {path}")


def _words_for_elsewhere(args: argparse.Namespace) -> list[str]:
    pairs = zip(["", *args.words], args.words, strict=False)
    words = [word for before, word in pairs if before not in OF_HERE and word.partition("=")[0] not in OF_HERE]
    is_named = {"-c", "--competition"} & {word.partition("=")[0] for word in words}
    return words if is_named else [*words, "-c", args.competition]


def _link(folder: str) -> str:
    """Returns the commands that put a folder of the bucket into its place."""
    above = quote(str(PurePosixPath(folder).parent))
    return f"mkdir -p ~/project/{above} && ln -sfn /bucket/{quote(folder)} ~/project/{quote(folder)}"


def _mounts(
    slug: str, root: Path, words: Sequence[str], with_files: Sequence[str]
) -> tuple[dict[str, Path], list[str]]:
    """Returns which files have which place there, and the words with these places, which follow some flags."""
    own = [*find_project_files(slug, root), *sorted(prepared_folder(slug, root).glob("folds.*"))]
    mounts, changed = {f"~/project/{path.relative_to(root)}": path for path in own}, []
    for before, word in zip(["", *words], words, strict=False):
        flag, sign, value = word.partition("=") if word.startswith("-") else (before, "", word)
        kind = FOLDER if value.startswith(FOLDER) else ""  # a model; --model takes several words
        path = Path(value.removeprefix(kind)).expanduser()
        if kind or (flag in with_files and value and path.is_file()):
            place = f"files/{len(mounts)}-{path.resolve().name}"
            mounts[f"~/project/{place}"] = path
            word = f"{flag}{sign}{kind}{place}" if sign else f"{kind}{place}"
        changed.append(word)
    return mounts, changed


def _checkout() -> Path | None:
    """Returns the folder of the running code's repository; None if it was installed without one."""
    folder = Path(podium.__file__).resolve().parents[2]
    return folder if all((folder / part).exists() for part in CODE) else None
