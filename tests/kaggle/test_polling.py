"""Waiting for Kaggle: which errors it outlives, and how it ends."""

import pytest
from requests import HTTPError, Response

from podium.basics.errors import PodiumError
from podium.kaggle.polling import Poll


def http_error(status: int) -> HTTPError:
    response = Response()
    response.status_code = status
    return HTTPError("no", response=response)


class Looks:
    """Returns these answers in turn; raises those that are errors."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    def __call__(self) -> object:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_polling_outlives_errors_that_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    looks = Looks(None, http_error(429), ConnectionError(), ValueError("odd"), None, "done", "never asked")
    assert Poll("tiny", (1.0, 2.0, 5.0), 60.0, "too late").until(looks, "waiting") == "done"
    assert looks.answers == ["never asked"]
    assert pauses == [1.0, 2.0, 5.0, 5.0, 5.0]


def test_polling_ends_at_a_status_that_will_not_change() -> None:
    looks = Looks(None, http_error(401))
    with pytest.raises(HTTPError):
        Poll("tiny", (0.0,), 60.0, "too late", fatal=(401,)).until(looks, "waiting")


def test_patience_ends_with_its_message_and_kaggles_last_error() -> None:
    with pytest.raises(PodiumError, match=r"^too late$"):
        Poll("tiny", (0.0,), -1.0, "too late").until(Looks(None), "waiting")
    with pytest.raises(PodiumError, match=r"^Kaggle cannot be reached \(ConnectionError\); too late$"):
        Poll("tiny", (0.0,), -1.0, "too late").until(Looks(ConnectionError()), "waiting")


def test_patience_may_count_from_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("podium.kaggle.polling.time.monotonic", lambda: now)
    answers = [None, None, ConnectionError(), None, ConnectionError(), ConnectionError(), "done"]
    with pytest.raises(PodiumError, match="too late"):
        Poll("tiny", (10.0,), 15.0, "too late").until(Looks(*answers), "waiting")
    looks = Looks(*answers)
    with pytest.raises(PodiumError, match="too late"):
        Poll("tiny", (10.0,), 15.0, "too late", since_last_answer=True).until(looks, "waiting")
    assert looks.answers == ["done"]
