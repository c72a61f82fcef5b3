"""What packages beside podium bring: they lie in the same folder, and their names begin with `podium_`."""

from pathlib import Path

import pytest

from podium.basics import beside


@pytest.mark.annex
def test_the_annex_is_found() -> None:
    assert beside.modules_beside("commands") == ("podium_annex.commands",)
    assert beside.modules_beside("nothing") == ()
    (commands,) = beside.brought("commands", "COMMANDS")
    assert "report" in commands


@pytest.mark.annex
def test_a_package_elsewhere_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one in the folder where `python -m podium` is called."""
    package = tmp_path / "podium_mine"
    package.mkdir()
    for name in ("__init__", "commands"):
        (package / f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    beside.modules_beside.cache_clear()
    assert beside.modules_beside("commands") == ("podium_annex.commands",)


def test_other_modules_of_such_names_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an installation, what lies beside podium is all that is installed."""
    (tmp_path / "podium_single.py").write_text("raise SystemExit('imported')")
    package = tmp_path / "podium_of_others"
    package.mkdir()
    for name in ("__init__", "commands"):
        (package / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(beside, "__file__", str(tmp_path / "podium" / "beside.py"))
    beside.modules_beside.cache_clear()
    try:
        assert beside.brought("commands", "COMMANDS") == []
    finally:
        beside.modules_beside.cache_clear()
