"""The report of a search: what mattered, and whether the winner beats the defaults where nothing was searched."""

import json
import shutil
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from podium_annex.searching import search_report
from podium_annex.searching.search_report import LEAST_TRIALS, find_importances
from podium_annex.searching.search_space import MODEL
from podium_annex.searching.study import DEFAULTS, OPTIONS, SearchStudy, keep_settings
from searching.searches import folder_of_search
from tiny import Podium, assert_says, done, one_line, write_file

Studied = tuple[tuple[str, float], ...]  # run: score as searched


def trials_of(count: int, noise: float = 0.01) -> list[FrozenTrial]:
    """Returns trials whose score depends on `lr` and not on `mix`."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rng = np.random.default_rng(0)
    space = {"lr": FloatDistribution(0, 1), "mix": FloatDistribution(0, 1)}
    trials = []
    for lr, mix, error in rng.random((count, 3)):
        score = lr + noise * error
        trials.append(
            create_trial(
                state=TrialState.PRUNED,
                value=score,
                params={"lr": lr, "mix": mix},
                distributions=dict(space),
                intermediate_values={1: score},
            )
        )
    return trials


def studied(root: Path, scores: Studied, **settings: object) -> None:
    """Makes a search of finished runs; the first is that of the defaults. Fold 0 is searched, fold 1 judges."""
    folder = folder_of_search(root)
    keep_settings(folder, {"folds": [0], "last_fold": 1, "sizes": [], "options": {}, **settings})
    study = SearchStudy(folder, 1)
    study.enqueue_defaults({"test_convnext": {}})
    for number, (name, score) in enumerate(scores):
        with study.claimed(10) as trial:
            assert trial is not None
            assert trial.number == number
            lr = json.loads((root / "runs/tiny" / name / "recipe.json").read_text())["lr"]
            options = {"model": "test_convnext", **({} if DEFAULTS in trial.user_attrs else {"lr": lr, "mix": 0.0})}
            trial.set_user_attr(OPTIONS, json.dumps(options))
            study.study.tell(trial, score)
        shutil.copytree(root / "runs/tiny" / name, root / f"runs/tiny/search-t{number}")


# --- what mattered -----------------------------------------------------------------------------------


def test_what_mattered_is_found_with_its_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_report, "RESAMPLES", 5)
    importances = find_importances(trials_of(30))
    found = {item.option: item for item in importances}
    assert found["lr"].share > 0.8
    assert found["lr"].low > found["mix"].high
    assert found["lr"].low <= found["lr"].share
    assert find_importances(trials_of(30)) == importances


def test_an_option_that_only_one_model_has_matters_among_its_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_report, "RESAMPLES", 5)
    trials = []
    for number, trial in enumerate(trials_of(60)):
        model, keep = ("vit", "plain")[number % 2], trial.params.pop("mix")
        spaces = {"lr": FloatDistribution(0, 1), MODEL: CategoricalDistribution(("vit", "plain"))}
        own = {"keep": keep} if model == "vit" else {}
        trials.append(
            create_trial(
                state=TrialState.PRUNED,
                value=0.0,
                params={"lr": trial.params["lr"], MODEL: model, **own},
                distributions={**spaces, **({"keep": FloatDistribution(0, 1)} if own else {})},
                intermediate_values={1: 0.01 * trial.params["lr"] + own.get("keep", 0.5)},
            )
        )
    found = {item.option: item.share for item in find_importances(trials)}
    assert found["keep of vit"] > 0.8
    assert {"lr", MODEL} < found.keys()
    assert "keep of plain" not in found


def test_few_trials_or_equal_scores_tell_nothing() -> None:
    assert find_importances(trials_of(LEAST_TRIALS - 1)) == []
    same = trials_of(LEAST_TRIALS)
    for trial in same:
        trial.intermediate_values = {1: 0.5}
    assert find_importances(same) == []


# --- the judgement -----------------------------------------------------------------------------------


def test_a_winner_that_beats_the_defaults_where_nothing_was_searched_is_said_to(two_runs: Path, podium: Podium) -> None:
    studied(two_runs, (("idle", 0.3), ("good", 0.999)))
    out, _ = done(podium("search", "-c", "tiny", "--report"))
    assert_says(out, "winner: search-t1", "defaults: search-t0", "gain over the defaults: +0.69900 as searched")
    assert "within chance" not in out
    assert "the best so far: 0.30000 (trial 0), then 0.99900 (trial 1)" in out
    page = (folder_of_search(two_runs) / "report.html").read_text()
    assert_says(page, "all folds 0.9990", "gain over the defaults where nothing was searched")
    assert page.count('<td class="text">search-t') == 2


def test_a_gain_that_was_only_searched_is_called_chance(two_runs: Path, podium: Podium) -> None:
    studied(two_runs, (("good", 0.9), ("good", 0.95)))
    out = podium("search", "-c", "tiny", "--report")[1]
    assert "gain over the defaults: +0.05000 as searched, +0.00000 on fold 1" in out
    assert "within chance: the search has not beaten the defaults" in out


def test_defaults_that_win_are_said_to_have_won(two_runs: Path, podium: Podium) -> None:
    studied(two_runs, (("good", 0.9), ("idle", 0.3)))
    out = podium("search", "-c", "tiny", "--report")[1]
    assert_says(out, "winner: search-t0, the defaults", "the search has not beaten the defaults")


def test_a_winner_that_nothing_has_judged_is_said_to_be_so(two_runs: Path, podium: Podium) -> None:
    studied(two_runs, (("idle", 0.3), ("good", 0.9)))
    (two_runs / "runs/tiny/search-t1/fold1/oof.npz").unlink()
    assert "fold 1 has not judged it yet" in podium("search", "-c", "tiny", "--report")[1]


# --- the card ----------------------------------------------------------------------------------------


def test_the_winners_changed_options_go_into_the_card(two_runs: Path, podium: Podium) -> None:
    studied(two_runs, (("idle", 0.3), ("good", 0.9)))
    card = two_runs / "data/competitions/tiny.toml"
    write_file(card, '# mine\ntitle = "Tiny"\n')
    _, err = done(podium("search", "-c", "tiny", "--write-card"))
    assert card.read_text() == '# mine\ntitle = "Tiny"\n\n[recipe]\nlr = 0.003\n'
    assert "--model test_convnext" in err
    done(podium("search", "-c", "tiny", "--write-card"))
    assert card.read_text().count("lr") == 1


def test_a_searched_size_goes_into_the_card_and_given_flags_into_the_next_command(
    two_runs: Path, podium: Podium
) -> None:
    given = {"smoothing": 0.1, "head_first": False}
    studied(two_runs, (("idle", 0.3), ("good", 0.9)), sizes=[64, 96], options=given)
    _, err = done(podium("search", "-c", "tiny", "--write-card"))
    assert "[recipe]\nimage_size = 64\nlr = 0.003\n" in (two_runs / "data/competitions/tiny.toml").read_text()
    assert "--model test_convnext --smoothing 0.1 --no-head-first --name NAME" in err


def test_defaults_that_win_leave_the_card_as_it_is(two_runs: Path, podium: Podium) -> None:
    studied(two_runs, (("good", 0.9),))
    _, err = done(podium("search", "-c", "tiny", "--write-card"))
    assert "the defaults won" in err
    assert not (two_runs / "data/competitions/tiny.toml").exists()


def test_no_winner_writes_no_card(two_runs: Path, podium: Podium) -> None:
    studied(two_runs, ())
    assert "has no winner yet" in one_line(podium("search", "-c", "tiny", "--write-card"))


def test_a_search_without_a_winner_has_a_report(two_runs: Path, podium: Podium) -> None:
    studied(two_runs, ())
    out, _ = done(podium("search", "-c", "tiny", "--report"))
    assert "no trial is finished" in out
