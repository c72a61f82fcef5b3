"""Signs in Kaggle's own client, gives it timeouts, and explains each of its errors in one line."""

import contextlib
import io
import json
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_line

TIMEOUT = (30.0, 300.0)  # seconds: to connect, and between two bytes


@contextlib.contextmanager
def signed_in_client(slug: str, fallback: str = "") -> Iterator[Any]:
    """Yields Kaggle's client, signed in. Explains its errors in the block in one line that ends with `fallback`."""
    from requests import RequestException

    advice = f"; {fallback}" if fallback else ""
    try:
        with _default_timeout():
            quiet = io.StringIO()
            with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):  # the import signs in and prints
                from kaggle.api.kaggle_api_extended import KaggleApi

                client = KaggleApi()
                client.authenticate()
            yield client
    except (TypeError, AttributeError, LookupError) as error:
        if not _is_raised_in_client(error):
            raise
        raise PodiumError(f"Kaggle's client cannot read Kaggle's response ({error!r}){advice}") from None
    except SystemExit:  # the client exits when it finds no token
        raise PodiumError(
            "no Kaggle token found: make one at https://www.kaggle.com/settings (API) and save it as"
            f" ~/.kaggle/access_token or in KAGGLE_API_TOKEN{advice}"
        ) from None
    except (OSError, ValueError) as error:  # requests raises the first, the client itself the second
        if not isinstance(error, (RequestException, ConnectionError, TimeoutError, ValueError)):
            raise  # of this machine: a full disk, a missing file
        raise PodiumError(f"{explain_error(error, slug)}{advice}") from None


def check_token(slug: str, by_hand: str = "") -> None:
    """Raises unless Kaggle accepts this user's token, before a long work that ends with an upload."""
    with signed_in_client(slug, f"or run the same command without uploading{by_hand}"):
        pass


@contextlib.contextmanager
def _default_timeout() -> Iterator[None]:
    """Gives each request of the client a timeout; without one it could wait for ever."""
    from requests.adapters import HTTPAdapter

    adapter: Any = HTTPAdapter
    send = adapter.send

    def send_with_timeout(self: Any, request: Any, stream: bool = False, timeout: Any = None, **options: Any) -> Any:
        return send(self, request, stream=stream, timeout=timeout or TIMEOUT, **options)

    adapter.send = send_with_timeout
    try:
        yield
    finally:
        adapter.send = send


def _is_raised_in_client(error: Exception) -> bool:
    """Returns whether the client itself failed, which happens if a response does not have the expected form."""
    modules = [sys.modules[name] for name in ("kaggle", "kagglesdk") if name in sys.modules]
    folders = tuple(str(Path(str(module.__file__)).parent) for module in modules)
    return any(frame.filename.startswith(folders) for frame in traceback.extract_tb(error.__traceback__))


def fetch_competition_page(client: Any, slug: str) -> Any:
    """Returns what Kaggle says about a competition and about this user's part in it."""
    from kagglesdk.competitions.types.competition_api_service import ApiGetCompetitionRequest

    request = ApiGetCompetitionRequest()
    request.competition_name = slug
    with client.build_kaggle_client() as kaggle:
        return kaggle.competitions.competition_api_client.get_competition(request)


def http_status(error: Exception) -> int | None:
    """Returns the HTTP status of Kaggle's response; None if the error is not a response."""
    return getattr(getattr(error, "response", None), "status_code", None)


def explain_error(error: Exception, slug: str) -> str:
    """Returns what happened and the remedy, in one line."""
    status = http_status(error)
    if status is None:
        return _explain_without_status(error)
    message = "" if re.match(r"\d{3} \w+ Error", str(error)) else str(error).strip()  # requests only repeats the status
    detail = f": {message}" if message else ""
    match status:
        case 401:
            return f"Kaggle refused your token (401{detail}); make a new one at https://www.kaggle.com/settings"
        case 403:
            rules = f"https://www.kaggle.com/competitions/{slug}/rules"
            return f"Kaggle does not give you access to {slug} (403{detail}); join and accept the rules once at {rules}"
        case 404:
            return f"Kaggle has no competition '{slug}' (404{detail}); its name is the last part of its page's address"
        case 429:
            return f"Kaggle limits how often it answers (429{detail}); try again in a few minutes"
    if message and status < 400:
        return f"Kaggle says: {message}"
    return f"Kaggle answered {status}{detail}"


def _explain_without_status(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "the response is not JSON, so it is not from Kaggle: is there a proxy or a login page in between?"
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return f"Kaggle's client says: {first_line(error)}"
    return f"Kaggle cannot be reached ({type(error).__name__})"
