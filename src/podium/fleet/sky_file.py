"""Writes sky.yaml, with which SkyPilot runs a command on a spot machine of a cloud.

    podium train | search ... --on sky

Nothing is started, and no package is needed. The machine mounts a bucket that holds the images, the folds and the runs;
pixels are decoded onto its own disk. If the cloud takes the machine away, or the command ends with status 75, SkyPilot
starts another one, where the same command resumes.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from podium import __version__
from podium.disk import write_text
from podium.errors import STOPPED

FORM = """\
# Runs one command on a spot machine, with SkyPilot: sky jobs launch sky.yaml
#
# Before: name your bucket below, and copy data/raw/{slug} and data/prepared/{slug}/folds.* into it,
# under the same paths. After: the bucket's folder runs/ holds the runs.
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

setup: pip install 'podium{extra}=={version}'

run: |
  mkdir -p /bucket/runs ~/project/data/prepared/{slug}
  ln -sfn /bucket/data/raw ~/project/data/raw
  ln -sfn /bucket/runs ~/project/runs
  cp /bucket/data/prepared/{slug}/folds.* ~/project/data/prepared/{slug}/
  podium --root ~/project {words}
"""


def write_sky(slug: str, words: Sequence[str], extra: str = "", path: Path = Path("sky.yaml")) -> Path:
    """Writes the file of a command; `words` are those after `podium`, `extra` is what it needs of pyproject.toml."""
    name = f"podium-{slug}"[:40].lower().replace("_", "-").replace(".", "-").strip("-")
    text = FORM.format(
        slug=slug,
        name=name,
        stopped=STOPPED,
        extra=f"[{extra}]" if extra else "",
        version=__version__,
        words=shlex.join(words),
    )
    write_text(path, text)
    return path
