"""Starts a kernel on Kaggle and follows it to its end.

A kernel is Kaggle's word for a script or notebook that runs on its machines: a script trains, a notebook predicts.
"""

import contextlib
import hashlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import duration, say
from podium.kaggle.polling import Poll

# Kaggle gives two of them. If no accelerator is named, it may give one that its build of torch does not support.
ACCELERATOR = "NvidiaTeslaT4"
MAX_SECONDS = 12 * 3600.0  # Kaggle ends a kernel after this time
PAUSE = 30.0  # seconds between two requests
PATIENCE = 3600.0  # seconds without an answer from Kaggle
MAX_DENIALS = 3  # in a row: right after a push Kaggle may not know the kernel yet
MAX_NAME = 38  # characters, before the hash and the number of a kernel; Kaggle allows 50
LOG_LINES = 20  # shown when a kernel fails
FAILED = ("ERROR", "CANCEL_REQUESTED", "CANCEL_ACKNOWLEDGED")


class KernelFailed(PodiumError):
    """The kernel has ended without a result; another one can take its place."""


def make_kernel_name(*words: str, salt: str = "") -> str:
    """Returns a name that Kaggle accepts. Other words, or another `salt`, give another name."""
    name = re.sub("[^a-z0-9]+", "-", "-".join(("podium", *words)).lower()).strip("-")[:MAX_NAME].strip("-")
    return name + "-" + hashlib.sha256("/".join((*words, salt)).encode()).hexdigest()[:6]


def read_user_name(client: Any) -> str:
    """Returns the name of the signed-in user at Kaggle."""
    return str(client.get_config_value(client.CONFIG_NAME_USER))


def push_kernel(client: Any, slug: str, name: str, code: str, *, code_file: str, **metadata: object) -> str:
    """Uploads code in a file of this name, and Kaggle runs it; returns the kernel's full name."""
    kernel = f"{read_user_name(client)}/{name}"
    metadata = {
        "id": kernel,
        "title": name.replace("-", " "),
        "code_file": code_file,
        "language": "python",
        "is_private": True,
        "enable_gpu": True,
        "competition_sources": [slug],
        **metadata,
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / code_file).write_text(code)
        (Path(folder) / "kernel-metadata.json").write_text(json.dumps(metadata))
        response = client.kernels_push(folder)
    if response.error:
        raise PodiumError(
            f"Kaggle does not accept the kernel: {response.error}; correct that and run the same command again"
        )
    invalid_sources = [
        *response.invalid_competition_sources,
        *response.invalid_kernel_sources,
        *response.invalid_dataset_sources,
    ]
    if invalid_sources:
        sources = ", ".join(map(str, invalid_sources))
        rules = f"https://www.kaggle.com/competitions/{slug}/rules"
        raise PodiumError(f"Kaggle does not give {kernel} access to {sources}; accept the rules once at {rules}")
    say(f"podium: {kernel} is at Kaggle: https://www.kaggle.com/code/{kernel}")
    return kernel


def follow_kernel(client: Any, slug: str, kernel: str, max_seconds: float = MAX_SECONDS) -> None:
    """Returns when the kernel has ended well, which takes `max_seconds` at most."""
    not_reported = (
        f"Kaggle has not reported on {kernel} for {duration(PATIENCE)}; run the same command again to follow it"
    )
    poll = Poll(slug, (PAUSE,), PATIENCE, not_reported, since_last_answer=True)
    denials, shown = 0, ""

    def look() -> bool | None:
        nonlocal denials, shown
        try:
            response = client.kernels_status(kernel)
        except (OSError, ValueError) as error:
            denials += is_denied(error)
            if denials > MAX_DENIALS:
                raise PodiumError(
                    f"Kaggle does not let you see {kernel} any more; is your token still valid?"
                    " Make a new one at https://www.kaggle.com/settings"
                ) from None
            raise
        denials = 0
        status = str(response.status).rpartition(".")[2].upper()
        if status and status != shown:
            shown = status
            say(f"podium: {kernel} is {_in_words(status)}")
        if status in FAILED:
            _show_log(client, kernel)
            reason = f": {response.failure_message}" if response.failure_message else ""
            raise KernelFailed(
                f"{kernel} ended with {_in_words(status)}{reason}; read its log at https://www.kaggle.com/code/{kernel}"
                " and run the same command again to start another kernel"
            )
        return True if status == "COMPLETE" else None

    poll.until(look, f"{kernel} (at most {max_seconds / 3600:.0f} h)")


def is_denied(error: Exception) -> bool:
    """Returns whether Kaggle refused access to a kernel: the client's text for 401 and 403, whose numbers it hides."""
    return "Cannot access" in str(error)


def _in_words(status: str) -> str:
    return status.lower().replace("_", " ")


def _show_log(client: Any, kernel: str) -> None:
    """Shows the end of the kernel's log; nothing if the log cannot be read."""
    log_errors = (OSError, ValueError, LookupError, TypeError, AttributeError)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(*log_errors):
        client.kernels_output(kernel, folder, file_pattern="^$")  # matches no file; the log is downloaded in any case
        for path in Path(folder).glob("*.log"):
            log = "".join(str(entry.get("data", "")) for entry in json.loads(path.read_text()))
            say("\n".join(f"  {line}" for line in log.splitlines()[-LOG_LINES:]))
