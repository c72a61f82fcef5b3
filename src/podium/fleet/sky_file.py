"""Writes sky.yaml, with which SkyPilot runs a command on a spot machine of a cloud.

    podium train | search ... --on sky

Nothing is started, and no package is needed. The machine mounts a bucket that holds the images and the runs; pixels are
decoded onto its own disk. The small files that decide what is trained (card, corrections, folds, extensions, files that
the command names, the code of a checkout) are uploaded with the command. If the cloud takes the machine away, or the
command ends with status 75, SkyPilot starts another one, where the same command resumes.
"""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import podium
from podium import __version__
from podium.competition.card import read_card
from podium.competition.project_files import find_project_files
from podium.disk import write_text
from podium.errors import STOPPED
from podium.project_root import prepared_folder

CODE = ("src", "pyproject.toml", "requirements.txt", "README.md")  # of a checkout: what pip needs to install it
FORM = """\
# Runs one command on a spot machine, with SkyPilot: sky jobs launch sky.yaml
#
# Before: name your bucket below, and copy {copied} into it, under the same paths.
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
  ln -sfn /bucket/runs ~/project/runs
  cd ~/project
  podium --root ~/project {words}
"""


def write_sky(slug: str, root: Path, words: Sequence[str], extra: str = "", path: Path = Path("sky.yaml")) -> Path:
    """Writes the file of a command; `words` are those after `podium`, `extra` is what it needs of pyproject.toml."""
    name = f"podium-{slug}"[:40].lower().replace("_", "-").replace(".", "-").strip("-")
    data = ["raw", *(["extra"] if read_card(slug, root).get("extra") else [])]
    mounts, words = _mounts(slug, root, words)
    code = _checkout()
    mounts |= {f"~/podium/{part}": code / part for part in CODE} if code else {}
    extras = f"[{extra}]" if extra else ""
    text = FORM.format(
        slug=slug,
        name=name,
        stopped=STOPPED,
        copied=" and ".join(["data/raw/" + slug, *(f"data/{folder}" for folder in data[1:])]),
        mounts="".join(f"  {there}: {json.dumps(str(here.resolve()))}\n" for there, here in mounts.items()),
        package=f'"$HOME/podium{extras}"' if code else shlex.quote(f"podium{extras}=={__version__}"),
        links="\n  ".join(f"ln -sfn /bucket/data/{folder} ~/project/data/{folder}" for folder in data),
        words=shlex.join(words),
    )
    write_text(path, text)
    return path


def _mounts(slug: str, root: Path, words: Sequence[str]) -> tuple[dict[str, Path], list[str]]:
    """Returns which files have which place there, and the words with these places."""
    folds = sorted(prepared_folder(slug, root).glob("folds.*"))
    own = [*find_project_files(slug, root), *folds]
    mounts, changed = {f"~/project/{path.relative_to(root)}": path for path in own}, []
    for word in words:
        flag, sign, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if value and Path(value).is_file():
            place = f"files/{len(mounts)}-{Path(value).name}"
            mounts[f"~/project/{place}"] = Path(value)
            word = f"{flag}{sign}{place}"
        changed.append(word)
    return mounts, changed


def _checkout() -> Path | None:
    """Returns the folder of the running code's repository; None if it was installed without one."""
    folder = Path(podium.__file__).resolve().parents[2]
    return folder if all((folder / part).exists() for part in CODE) else None
