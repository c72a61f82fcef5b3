"""The winner's options in a card: only [recipe] changes, or nothing."""

import tomllib
from pathlib import Path

import pytest

from podium.basics.errors import PodiumError
from podium_annex.searching.write_card import with_options_in_card, write_card

OPTIONS = {"lr": 2e-4, "level": "light", "epochs": 9}
CARDS = {
    "": '[recipe]\nlr = 0.0002\nlevel = "light"\nepochs = 9\n',
    '# mine\nmetric = "accuracy"  # why\n': '# mine\nmetric = "accuracy"  # why\n\n[recipe]\nlr = 0.0002\n'
    'level = "light"\nepochs = 9\n',
    "[recipe]  # tried\nlr = 1e-4  # too low\nmix = 0\n\n[shares]\na = 0.5\n": "[recipe]  # tried\nlr = 0.0002"
    '  # too low\nmix = 0\nlevel = "light"\nepochs = 9\n\n[shares]\na = 0.5\n',
}
CARDS |= {
    '[recipe]\nlr = 1e-4# don\'t\nlevel = "#1"  # "none" # or\n': "[recipe]\nlr = 0.0002# don't\n"
    'level = "light"  # "none" # or\nepochs = 9\n',
    "# mine\r\n[recipe]\r\nlr = 1e-4  # low\r\n": "# mine\r\n[recipe]\r\nlr = 0.0002  # low\r\n"
    'level = "light"\r\nepochs = 9\r\n',
}
NOT_KEPT = (
    "recipe = { lr = 1e-4 }\n",
    "recipe.lr = 1e-4\n",
    '"recipe" = { mix = 0 }\n',
    'title = """\n[recipe]\n"""\n',
)


@pytest.mark.parametrize("before", CARDS)
def test_the_rest_of_the_card_stays_as_it_is(before: str) -> None:
    assert with_options_in_card(before, OPTIONS) == CARDS[before]
    assert with_options_in_card(CARDS[before], OPTIONS) == CARDS[before]
    assert tomllib.loads(CARDS[before])["recipe"]["lr"] == 2e-4


@pytest.mark.parametrize("before", NOT_KEPT)
def test_a_card_that_could_not_be_kept_is_left_alone_and_the_lines_are_named(before: str, tmp_path: Path) -> None:
    path = tmp_path / "it.toml"
    path.write_text(before)
    with pytest.raises(PodiumError, match=r'lr = 0\.0002, level = "light", epochs = 9'):
        write_card(path, OPTIONS)
    assert path.read_text() == before
