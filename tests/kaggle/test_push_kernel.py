"""Starting a kernel and following it: what Kaggle refuses, and what is shown of a kernel that fails."""

import pytest

from podium_annex.kaggle_machines.push_kernel import make_kernel_name
from stand_ins.kaggle_kernels import TRAIN
from stand_ins.kaggle_service import Service
from tiny import Podium, assert_says, done, one_line


def test_a_kernel_that_fails_shows_its_log_and_another_can_follow(instant_service: Service, podium: Podium) -> None:
    instant_service.kernel_end = "ERROR"
    instant_service.kernel_log = [{"stream_name": "stderr", "data": "podium: error: no GPU there\n"}]
    status, _, err = podium(*TRAIN)
    assert status == 1
    assert "podium: error: no GPU there" in err
    message = err.splitlines()[-1]
    assert "ended with error" in message
    assert "https://www.kaggle.com/code/somebody/podium-tiny-test-vit-" in message
    assert "same command" in message
    instant_service.kernel_end = "COMPLETE"
    done(podium(*TRAIN, "--name", "again"))


def test_what_kaggle_says_of_a_kernel_it_refuses_is_shown(service: Service, packed_fast: None, podium: Podium) -> None:
    service.push_error = "Maximum weekly GPU quota of 30.00 hours reached"
    assert "Maximum weekly GPU quota" in one_line(podium(*TRAIN))


def test_following_ends_when_kaggle_denies_access_to_the_kernel(instant_service: Service, podium: Podium) -> None:
    instant_service.next_statuses["GetKernelSessionStatus"] = [403] * 9
    message = one_line(podium(*TRAIN))
    assert_says(message, "does not let you see somebody/podium-tiny-test-vit-", "token")
    assert instant_service.count_requests("GetKernelSessionStatus") == 4


def test_following_ends_when_kaggle_does_not_answer_for_too_long(
    instant_service: Service, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium_annex.kaggle_machines.push_kernel.PATIENCE", -1.0)
    instant_service.kernel_statuses = []
    instant_service.next_statuses["GetKernelSessionStatus"] = [500]
    one_line(podium(*TRAIN), "Kaggle answered 500", "same command")
    done(podium(*TRAIN))
    assert len(instant_service.kernels) == 1


def test_a_kernels_name_is_one_that_kaggle_accepts() -> None:
    name = make_kernel_name("A Competition With A Very Long Slug", "Run_1.+=", salt="x")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert len(f"{name}-20") <= 50


def test_other_words_or_another_salt_make_another_name() -> None:
    names = [make_kernel_name(*words, salt=salt) for words in (("a", "b"), ("a", "c"), ("a-b",)) for salt in ("", "x")]
    assert len(set(names)) == len(names)
    assert make_kernel_name("a", "b", salt="x") == make_kernel_name("a", "b", salt="x")
