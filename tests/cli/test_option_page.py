"""`podium train --help NAME`: all that is known of one option."""

import pytest

from podium.__main__ import main
from podium.cli.option_page import option_page
from podium.options.recipe import KNOBS
from tiny import Podium, one_line


@pytest.mark.parametrize("name", KNOBS)
def test_each_option_has_a_page_with_its_reason(name: str) -> None:
    page = " ".join(option_page(name).split())
    assert KNOBS[name].text in page
    assert KNOBS[name].why in page
    for word in KNOBS[name].also_called:
        assert word in page


def test_a_page_says_values_levels_and_what_a_search_tries(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*words: str) -> str:
        with pytest.raises(SystemExit) as end:
            main(["train", "--help", *words])
        assert not end.value.code
        return " ".join(capsys.readouterr().out.split())

    page = shown("smoothing")
    for fact in ("values 0 to 0.95", "eva02 0.2", "because some labels are wrong", "levels none 0.0", "tries 0 to 0.2"):
        assert fact in page
    assert shown("--smoothing") == page
    assert shown("from").startswith("--from")
    assert "--smoothing X label smoothing" in shown("all")
    brief = shown()
    assert "--class-weights --smoothing --pseudo" in brief
    assert "--epochs N passes over the training images" in brief
    assert "label smoothing" in shown("labels")
    assert "The loss: which function" in shown("labels")
    assert "Images of rare classes are shown more often" in shown("rare-classes")
    assert "smoothing" not in shown("rare-classes")
    assert shown("workers").startswith("--workers N processes that load images (default: ")
    assert shown("mixup").startswith("--mix")
    assert shown("fitted-head").startswith("move fitted-head")


def test_an_unknown_option_is_refused_with_a_suggestion(podium: Podium) -> None:
    assert "did you mean smoothing?" in one_line(podium("train", "--help", "smothing"))
