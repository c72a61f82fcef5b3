"""Kernels, as Kaggle calls what runs on its machines: packs the code into one, begins it and follows it to its end.

kaggle_train.py trains in them, deliver.py predicts.
"""

import base64
import contextlib
import hashlib
import io
import json
import re
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import podium
from podium import PodiumError
from podium.kaggle.client import explain
from podium.terminal import duration, progress_bar, say

# Kaggle gives two of them at once. Where none is named it may give a card that its torch has no kernels for.
ACCELERATOR = "NvidiaTeslaT4"
LONGEST_RUN = 12 * 3600.0  # seconds, after which Kaggle ends a kernel
PAUSE = 30.0  # seconds between looks
DENIALS = 3  # in a row of looks: right after a push Kaggle may not know the kernel yet
PATIENCE = 3600.0  # seconds without an answer from Kaggle
LONGEST = 38  # of a kernel's name, before its hash and number; Kaggle takes 50 letters
LINES = 20  # of the log of a kernel that failed
FAILED = ("ERROR", "CANCEL_REQUESTED", "CANCEL_ACKNOWLEDGED")


def script(slug: str, root: Path, call: str) -> str:
    """One file that holds all of the code, the competition's card and its folds, and calls a function of on_kaggle."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_LZMA) as archive:
        for path, inside in code_files():
            archive.write(path, inside)
        for path in [*card_of(slug, root), *sorted((root / "data" / "prepared" / slug).glob("folds.*"))]:
            archive.write(path, str(path.relative_to(root)))
    text = "\n".join(re.findall(".{1,120}", base64.b64encode(packed.getvalue()).decode()))
    return f'''"""Made by podium kaggle-train; https://www.kaggle.com/competitions/{slug}"""
import base64, io, sys, zipfile

PACKED = """
{text}
"""
zipfile.ZipFile(io.BytesIO(base64.b64decode(PACKED))).extractall("/tmp/podium")
sys.path.insert(0, "/tmp/podium/src")
import podium.kaggle.inside_kernel

sys.exit(podium.kaggle.inside_kernel.{call})
'''


def code_files() -> list[tuple[Path, str]]:
    """The files of this program, and where they lie in a bundle."""
    package = Path(podium.__file__).parent
    files = [(path, f"src/podium/{path.relative_to(package)}") for path in sorted(package.rglob("*.py"))]
    requirements = package.parents[1] / "requirements.txt"
    if not requirements.is_file():
        raise PodiumError(f"{requirements} is missing; call podium from a checkout of its repository")
    return [*files, (requirements, "requirements.txt")]


def card_of(slug: str, root: Path) -> list[Path]:
    card = root / "data" / "competitions" / f"{slug}.toml"
    return [card] if card.is_file() else []


def kernel_name(*words: str, unlike: str = "") -> str:
    """A name that Kaggle takes and that nothing of other words has, nor of these and another `unlike`."""
    name = re.sub("[^a-z0-9]+", "-", "-".join(("podium", *words)).lower()).strip("-")[:LONGEST].strip("-")
    return name + "-" + hashlib.sha256("/".join((*words, unlike)).encode()).hexdigest()[:6]


def push_kernel(client: Any, slug: str, name: str, code_files: dict[str, str], **metadata: object) -> str:
    """Kaggle begins a kernel of the one file of code; the kernel's name."""
    kernel = f"{client.get_config_value(client.CONFIG_NAME_USER)}/{name}"
    ((file, text),) = code_files.items()
    metadata = {
        "id": kernel,
        "title": name.replace("-", " "),
        "code_file": file,
        "language": "python",
        "is_private": True,
        "enable_gpu": True,
        "competition_sources": [slug],
        **metadata,
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / file).write_text(text)
        (Path(folder) / "kernel-metadata.json").write_text(json.dumps(metadata))
        answer = client.kernels_push(folder)
    invalid = [
        *answer.invalid_competition_sources,
        *answer.invalid_kernel_sources,
        *answer.invalid_dataset_sources,
    ]
    if answer.error:
        raise PodiumError(f"Kaggle does not take the kernel: {answer.error}")
    if invalid:
        rules = f"https://www.kaggle.com/competitions/{slug}/rules"
        what = f"does not let {kernel} have {', '.join(map(str, invalid))}"
        raise PodiumError(f"Kaggle {what}; are the rules accepted at {rules}?")
    say(f"podium: {kernel} is at Kaggle: https://www.kaggle.com/code/{kernel}")
    return kernel


class Failed(PodiumError):
    """The kernel has ended, and not well."""


def follow_kernel(client: Any, slug: str, kernel: str, most: float = LONGEST_RUN) -> None:
    """Until the kernel has ended well, which takes so many seconds at most."""
    heard, shown, denied = time.monotonic(), "", 0
    form = f"{{desc}} {{elapsed}} of at most {most / 3600:.0f} h {{postfix}}"
    with progress_bar(total=round(most), desc=kernel, bar_format=form) as progress:
        while True:
            status, why = "", ""
            try:
                answer = client.kernels_status(kernel)
                status, why = str(answer.status).rpartition(".")[2].upper(), answer.failure_message or ""
                heard, denied = time.monotonic(), 0
            except (OSError, ValueError) as error:  # a cut connection need not be the end
                denied += "Cannot access" in str(error)  # as the client says of 401 and 403
                if denied > DENIALS:
                    raise PodiumError(
                        f"Kaggle does not let you see {kernel} any more; is your token still good?"
                    ) from None
                progress.set_postfix_str(explain(error, slug))
                if time.monotonic() - heard > PATIENCE:
                    raise PodiumError(
                        f"{explain(error, slug)}, for {duration(PATIENCE)}; the same command goes on following {kernel}"
                    ) from None
            if status and status != shown:
                shown = status
                say(f"podium: {kernel} is {status.lower().replace('_', ' ')}")
            if status == "COMPLETE":
                return
            if status in FAILED:
                _show_log(client, kernel)
                raise Failed(
                    f"{kernel} ended with {status.lower()}{why and ': '}{why}; its log is at"
                    f" https://www.kaggle.com/code/{kernel}; the same command begins another"
                )
            time.sleep(PAUSE)
            progress.update(round(PAUSE))


def _show_log(client: Any, kernel: str) -> None:
    strange = (OSError, ValueError, LookupError, TypeError, AttributeError)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(*strange):
        client.kernels_output(kernel, folder, file_pattern="^$")
        for log in Path(folder).glob("*.log"):
            said = "".join(str(each.get("data", "")) for each in json.loads(log.read_text()))
            say("\n".join(f"  {line}" for line in said.splitlines()[-LINES:]))
