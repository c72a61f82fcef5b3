"""Random numbers: each purpose draws from streams of its own."""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.basics import randomness
from second_round import examples
from tiny import FAST, Podium, done

PURPOSES = {name: value for name, value in vars(randomness).items() if name.isupper()}
LONGEST_KEY = 4
# numpy pads a short key with zeros, so keys of one purpose have one length.
KEYS = st.lists(st.integers(0, 2**32 - 1), min_size=LONGEST_KEY, max_size=LONGEST_KEY)


def first_numbers(purpose: int, *key: int) -> tuple[int, ...]:
    return tuple(randomness.generator(purpose, *key).integers(2**63, size=2).tolist())


def test_each_purpose_has_a_number_of_its_own() -> None:
    assert len(PURPOSES) >= 7
    assert len(set(PURPOSES.values())) == len(PURPOSES)


@settings(max_examples=examples(50))
@given(KEYS, KEYS)
def test_streams_of_other_purposes_and_of_other_keys_differ(key: list[int], other: list[int]) -> None:
    streams = {
        (purpose, *each): first_numbers(purpose, *each) for purpose in PURPOSES.values() for each in (key, other)
    }
    assert len(set(streams.values())) == len(streams)


def test_no_two_places_of_a_training_draw_from_one_stream(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn_by = defaultdict[tuple[int, ...], set[str]](set)
    original = randomness.generator

    def recorded(purpose: int, *key: int) -> np.random.Generator:
        padded = (*key, *[0] * (LONGEST_KEY - len(key)))
        drawn_by[purpose, *padded].add(sys._getframe(1).f_globals["__name__"])
        return original(purpose, *key)

    for name, module in list(sys.modules.items()):
        if name.startswith("podium.") and vars(module).get("generator") is original:
            monkeypatch.setattr(module, "generator", recorded)
    boxes = "".join(f"train_image/{number:03d}.jpg,1,1,25,30\n" for number in range(25))
    (tiny / "boxes.csv").write_text("image,left,top,right,bottom\n" + boxes)
    words = ("--model", "test_vit", "--mix", "0.5", "--lora", "2", "--drop-path", "0.1", "--seed", "0", "--epochs", "2")
    done(podium("train", *FAST, *words, "--folds", "0,1", "--region", tiny / "boxes.csv"))
    names = {name for name, number in PURPOSES.items() for purpose, *_ in drawn_by if purpose == number}
    assert {"ORDER", "AUGMENT", "MIX", "STEP", "LOW_RANK", "BOX"} <= names
    assert {stream: places for stream, places in drawn_by.items() if len(places) > 1} == {}
