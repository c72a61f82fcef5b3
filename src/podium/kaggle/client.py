"""Kaggle's own client: signed in, never waiting for ever, its errors told in one sentence."""

import contextlib
import io
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from podium import PodiumError

TIMEOUT = (30.0, 300.0)  # seconds: to be connected, and between two bytes


@contextlib.contextmanager
def kaggle_client(slug: str, otherwise: str = "") -> Iterator[Any]:
    """Kaggle's own client, signed in. What Kaggle or the way to it refuses in the block is told with its remedy."""
    from requests import RequestException
    from requests.adapters import HTTPAdapter

    adapter: Any = HTTPAdapter
    send = adapter.send
    try:
        adapter.send = _impatient(send)
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):  # importing it authenticates, aloud
            from kaggle.api.kaggle_api_extended import KaggleApi

            client = KaggleApi()
            client.authenticate()
        yield client
    except (TypeError, AttributeError, LookupError) as error:
        if not _in_the_client(error):
            raise
        raise PodiumError(
            f"Kaggle's client makes nothing of Kaggle's answer ({error!r}){otherwise and '; '}{otherwise}"
        ) from None
    except SystemExit:  # where others raise
        raise PodiumError(
            "Kaggle does not know you: make a token at https://www.kaggle.com/settings (API) and save it as"
            f" ~/.kaggle/access_token or in KAGGLE_API_TOKEN{otherwise and '; '}{otherwise}"
        ) from None
    except (OSError, ValueError) as error:  # requests raises the first, the client itself the second
        of_the_network = (RequestException, ConnectionError, TimeoutError, ValueError)
        if not isinstance(error, of_the_network):
            raise
        raise PodiumError(f"{explain(error, slug)}{otherwise and '; '}{otherwise}") from None
    finally:
        adapter.send = send


def _impatient(send: Callable[..., Any]) -> Callable[..., Any]:
    """The client waits for ever for whoever does not answer."""

    def within(self: Any, request: Any, stream: bool = False, timeout: Any = None, **more: Any) -> Any:
        return send(self, request, stream=stream, timeout=timeout or TIMEOUT, **more)

    return within


def _in_the_client(error: Exception) -> bool:
    """Whether the client stumbled, which it does over answers that are none."""
    folders = [
        str(Path(str(sys.modules[name].__file__)).parent) for name in ("kaggle", "kagglesdk") if name in sys.modules
    ]
    return any(frame.filename.startswith(tuple(folders)) for frame in traceback.extract_tb(error.__traceback__))


def competition_page(client: Any, slug: str) -> Any:
    """What Kaggle says of a competition and of this person's part in it."""
    from kagglesdk.competitions.types.competition_api_service import ApiGetCompetitionRequest

    request = ApiGetCompetitionRequest()
    request.competition_name = slug
    with client.build_kaggle_client() as kaggle:
        return kaggle.competitions.competition_api_client.get_competition(request)


def http_status(error: Exception) -> int | None:
    """What Kaggle answered with, if it was Kaggle that did not agree."""
    return getattr(getattr(error, "response", None), "status_code", None)


def explain(error: Exception, slug: str) -> str:
    status = http_status(error)
    told = "" if status is None or re.match(r"\d{3} \w+ Error", str(error)) else str(error).strip()
    more = f": {told}" if told else ""
    if status == 401:
        return f"Kaggle refused your token (401{more}); make a new one at https://www.kaggle.com/settings"
    if status == 403:
        rules = f"https://www.kaggle.com/competitions/{slug}/rules"
        return f"Kaggle does not let you have {slug} (403{more}); join and accept the rules once at {rules}"
    if status == 404:
        return f"Kaggle has no competition '{slug}' (404{more}); its name is the last part of its page's address"
    if status == 429:
        return f"Kaggle asks to wait (429{more}); try again in a few minutes"
    if status is not None:
        return f"Kaggle says: {told}" if told and status < 400 else f"Kaggle answered {status}{more}"
    if isinstance(error, json.JSONDecodeError):
        return "what answers is not Kaggle (no JSON): a proxy, or a page to sign in at?"
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return f"Kaggle's client says: {(str(error).splitlines() or [''])[0]}"
    return f"Kaggle cannot be reached ({type(error).__name__})"
