"""Asks the hub of models whether it answers, in a fraction of a second and without its client."""

import os
import sys
from pathlib import Path

from podium.basics.errors import PodiumError

HUB_TIMEOUT = 2.0  # seconds; a network that needs longer is too slow for a download


class WeightsUnreachable(PodiumError):
    """No network, no cache and no package has them. A dry run needs none of these."""


def hub_answers() -> bool:
    """Returns whether the hub answers, even with an error (the client's own message about that is better).

    If it does not, the client is switched to its cache.
    """
    if status_of(endpoint_of_hub(), "GET") is not None:
        return True
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported; without it, 46 s of retries
    if "huggingface_hub" in sys.modules:
        sys.modules["huggingface_hub"].constants.HF_HUB_OFFLINE = True
    return False


def status_of(address: str, method: str) -> int | None:
    """Returns the status of the hub's answer; None if it does not answer in time, or must not be asked."""
    import urllib.error
    import urllib.request
    from concurrent.futures import ThreadPoolExecutor
    from concurrent.futures import TimeoutError as FutureTimeoutError

    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE"):
        return None

    def request() -> int | None:
        try:
            with urllib.request.urlopen(urllib.request.Request(address, method=method), timeout=HUB_TIMEOUT) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except (OSError, ValueError):
            return None

    pool = ThreadPoolExecutor(1)  # looking up a host name has no time-out of its own
    try:
        return pool.submit(request).result(HUB_TIMEOUT)
    except FutureTimeoutError:
        return None
    finally:
        pool.shutdown(wait=False)


def endpoint_of_hub() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def hub_cache() -> Path:
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()
