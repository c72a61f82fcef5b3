"""Writes sky.yaml, with which SkyPilot runs a command on a spot machine of a cloud.

    podium train | search ... --on sky

Nothing is started, and no package is needed. The machine mounts a bucket that holds the images and the runs; pixels are
decoded onto its own disk. The small files that decide what is trained (card, corrections, folds, extensions, files that
the command names, the code of a checkout) are uploaded with the command. If the cloud takes the machine away, or the
command ends with status 75, SkyPilot starts another one, where the same command resumes.
"""

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from shlex import join, quote

import podium
from podium import __version__
from podium.basics.disk import write_text
from podium.basics.errors import STOPPED
from podium.basics.project_root import prepared_folder
from podium.competition.build.corrections import find_project_files
from podium.competition.card import read_card

WITH_FILES = ("--weights", "--corrections", "--region")  # flags
CODE = ("src", "pyproject.toml", "README.md")  # of a checkout: what pip needs to install it
FORM = """\
# Runs one command on a spot machine, with SkyPilot: sky jobs launch sky.yaml
#
# Before: name your bucket below, and copy {copied} into it, under the same paths; also the
# folders of runs/ that the command names (--from, --teacher, --pseudo, --weights).
# After: the bucket's folder runs/ holds the runs.
# A bucket has no hard links, so several machines cannot share its cells. On a volume that has them (EFS, Filestore, a
# claim of Kubernetes), mounted in place of the bucket, add --on here to the command, and launch the file several times.
name: {name}

resources:
  accelerators: A10G:1
  use_spot: true
  job_recovery:
    recover_on_exit_codes: [{stopped}]  # a signal has stopped the command after it saved

file_mounts:
  /bucket:
    name: NAME-OF-YOUR-BUCKET
    mode: MOUNT_CACHED
{mounts}
setup: pip install {package}

run: |
  mkdir -p /bucket/runs ~/project/data/prepared/{slug}
  {links}
  cd ~/project
  podium --root ~/project {words}
"""


def write_sky(slug: str, root: Path, words: Sequence[str], extra: str = "", path: Path = Path("sky.yaml")) -> Path:
    """Writes the file of a command; `words` are those after `podium`, `extra` is what it needs of pyproject.toml."""
    name = f"podium-{slug}"[:40].lower().replace("_", "-").replace(".", "-").strip("-")
    card = read_card(slug, root)
    extra_folders = [str(entry.get("folder")) for entry in card.get("extra", ()) if isinstance(entry, dict)]
    folders = list(dict.fromkeys([f"data/raw/{slug}", *extra_folders]))
    mounts, words = _mounts(slug, root, words)
    for value in (card.get("recipe", {}).get(option) for option in ("weights", "region")):
        if value and Path(value).is_file() and not Path(value).is_absolute():
            mounts[f"~/project/{value}"] = Path(value)
    code = _checkout()
    mounts |= {f"~/podium/{part}": code / part for part in CODE} if code else {}
    extras = f"[{extra}]" if extra else ""
    text = FORM.format(
        slug=slug,
        name=name,
        stopped=STOPPED,
        copied=" and ".join(folders),
        mounts="".join(f"  {json.dumps(there)}: {json.dumps(str(here.resolve()))}\n" for there, here in mounts.items()),
        package=f'"$HOME/podium{extras}"' if code else quote(f"podium{extras}=={__version__}"),
        links="\n  ".join(_link(folder) for folder in [*folders, "runs"]),
        words=join(words),
    )
    write_text(path, text)
    return path


def _link(folder: str) -> str:
    """Returns the commands that put a folder of the bucket into its place."""
    above = quote(str(PurePosixPath(folder).parent))
    return f"mkdir -p ~/project/{above} && ln -sfn /bucket/{quote(folder)} ~/project/{quote(folder)}"


def _mounts(slug: str, root: Path, words: Sequence[str]) -> tuple[dict[str, Path], list[str]]:
    """Returns which files have which place there, and the words with these places."""
    folds = sorted(prepared_folder(slug, root).glob("folds.*"))
    own = [*find_project_files(slug, root), *folds]
    mounts, changed = {f"~/project/{path.relative_to(root)}": path for path in own}, []
    for before, word in zip(["", *words], words, strict=False):
        flag, sign, value = word.partition("=") if word.startswith("-") else (before, "", word)
        if flag in WITH_FILES and value and Path(value).is_file():
            place = f"files/{len(mounts)}-{Path(value).name}"
            mounts[f"~/project/{place}"] = Path(value)
            word = f"{flag}={place}" if sign else place
        changed.append(word)
    return mounts, changed


def _checkout() -> Path | None:
    """Returns the folder of the running code's repository; None if it was installed without one."""
    folder = Path(podium.__file__).resolve().parents[2]
    return folder if all((folder / part).exists() for part in CODE) else None
