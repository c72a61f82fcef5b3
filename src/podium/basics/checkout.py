"""Which code runs: the commit of the checkout that it lies in."""

import subprocess
from pathlib import Path


def current_commit() -> str | None:
    """Returns the commit of the running code, marked if the code was changed since; None outside a checkout."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # another project's checkout may hold the environment
        return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    folder = Path(__file__).parent
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True).stdout
