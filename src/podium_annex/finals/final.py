"""Proposes the two submissions to choose before a competition ends: `podium final`.

It reads what is here, and asks Kaggle nothing: the lineages of the CSVs, the runs, and the public scores that uploads
have brought (submissions/<slug>/history.csv). Which submissions count is chosen by hand, on the competition's page.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from podium.basics.errors import PodiumError
from podium.basics.terminal import command_for, command_to_rebuild, first_few, plural, say, show, table
from podium.competition.load import Competition
from podium.tasks.metrics import METRICS
from podium.tasks.ranks import average_ranks
from podium_annex.finals.find_submissions import Numbers, Submission, find_submissions, with_held_out
from podium_annex.finals.private_scores import ENOUGH, Forecast, Pairs, choose_pairs, forecast

USUAL_SHARE = 0.3  # of the test images, that public scores are of: about what most competitions say on their page
PAGE = "https://www.kaggle.com/competitions/{slug}/submissions"


@dataclass(frozen=True)
class Choice:
    """The submissions, what is expected of them, and the pairs that are proposed."""

    competition: Competition
    submissions: list[Submission]
    left_out: dict[str, str]  # files, and why they are not proposed
    share: float  # of the test images, that public scores are of
    forecast: Forecast
    correlation: Numbers  # of the mistakes of each two
    pairs: Pairs | None  # None: there is one submission only

    @property
    def public(self) -> Numbers:
        return _public(self.submissions)

    @property
    def scores(self) -> Numbers:
        """Returns the private scores to expect, in the metric's own direction."""
        return np.array([self.as_score(mean) for mean in self.forecast.mean])

    def as_score(self, forecast: float) -> float:
        """Returns the possible score that is nearest to a forecast, in which higher is better."""
        metric = METRICS[self.competition.metric]()
        return metric.cut(metric.better * forecast)

    def agreement(self) -> tuple[float, float] | None:
        """Returns the correlation of expected and public scores over all uploads, and that of their ranks."""
        seen = np.isfinite(self.public)
        expected, public = np.array([one.expected for one in self.submissions])[seen], self.public[seen]
        if seen.sum() < ENOUGH or np.ptp(expected) == 0 or np.ptp(public) == 0:
            return None
        of_ranks = np.corrcoef(average_ranks(expected), average_ranks(public))
        return float(np.corrcoef(expected, public)[0, 1]), float(of_ranks[0, 1])

    def as_json(self) -> dict[str, Any]:
        agreement, names = self.agreement(), [one.name for one in self.submissions]
        pairs = {} if self.pairs is None else {"safe": self.pairs.safe, "bold": self.pairs.bold}
        return {
            "competition": self.competition.slug,
            "metric": self.competition.metric,
            "public_share": self.share,
            "correlation": agreement and {"scores": agreement[0], "ranks": agreement[1]},
            "spread": self.forecast.spread,
            "submissions": [
                {
                    "file": one.name,
                    "uploaded": one.uploaded or None,
                    "expected": one.expected,
                    "public": one.public,
                    "private": one.private,
                    "forecast": float(score),
                }
                for one, score in zip(self.submissions, self.scores, strict=True)
            ],
            "left_out": self.left_out,
            **{name: [names[number] for number in pair] for name, pair in pairs.items()},
        }


def choose_final(competition: Competition, share: float | None = None) -> Choice:
    """Returns the pairs to choose from; `share` is that of the test images, of which public scores are."""
    folder = competition.root / "submissions" / competition.slug
    found, covariance = with_held_out(competition, find_submissions(competition, folder))
    submissions = found.submissions
    if not submissions:
        reasons = first_few(f"{name}: {reason}" for name, reason in found.left_out.items())
        raise PodiumError(
            f"{folder} has no submission to choose{f' ({reasons})' if reasons else ''}; write one with:"
            f" {command_for('submit', competition.slug)}"
        )
    tests, better = len(competition.answer_ids), METRICS[competition.metric]().better
    public = max(1, round((USUAL_SHARE if share is None else share) * tests))
    private = forecast(
        better * np.array([one.expected for one in submissions]),
        [one.images for one in submissions],
        covariance,
        better * _public(submissions),
        public,
        tests - public,
    )
    deviation = np.sqrt(covariance.diagonal())
    scale = np.where(deviation > 0, deviation, 1.0)
    pairs = choose_pairs(private) if len(submissions) > 1 else None
    correlation = covariance / scale[:, None] / scale
    return Choice(competition, submissions, found.left_out, public / tests, private, correlation, pairs)


def _public(submissions: list[Submission]) -> Numbers:
    return np.array([np.nan if one.public is None else one.public for one in submissions])


# --- in words ----------------------------------------------------------------------------------------


def show_final(choice: Choice, is_share_known: bool) -> None:
    """Prints the table of submissions, what public scores add, and the pairs, with reasons."""
    competition, seen = choice.competition, int(np.isfinite(choice.public).sum())
    for name, reason in choice.left_out.items():
        say(f"podium: not proposed: {name} ({reason})")
    show(_table(choice))
    if seen:
        say(f"podium: {_what_public_adds(choice, seen, is_share_known)}")
    else:
        say("podium: no submission has a public score here, so held-out images alone decide")
    for line in _pairs_in_words(choice):
        show(line)
    for number in sorted({*choice.pairs.safe, *choice.pairs.bold}) if choice.pairs else [0]:
        one = choice.submissions[number]
        if not one.uploaded:
            say(f"podium: {one.name} is not at Kaggle: {command_to_rebuild(one.lineage.path)} --upload")
    say(f"next: choose two of them at {PAGE.format(slug=competition.slug)}")


def _table(choice: Choice) -> str:
    order = sorted(range(len(choice.submissions)), key=lambda one: -choice.forecast.mean[one])
    has_private = any(one.private is not None for one in choice.submissions)
    rows = []
    for number in order:
        one = choice.submissions[number]
        low, high = one.interval
        scores = [
            f"{one.expected:z.5f}",
            f"{low:z.4f} to {high:z.4f}",
            _score(one.public),
            f"{choice.scores[number]:z.5f}",
        ]
        private = [_score(one.private)] if has_private else []
        rows.append([one.name, one.uploaded[:10] or "-", *scores, *private, one.made_of])
    names = ["submission", "uploaded", "expected", "interval", "public", "both", *(["private"] if has_private else [])]
    return table([*names, "made of"], rows)


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:z.5f}"


def _what_public_adds(choice: Choice, seen: int, is_share_known: bool) -> str:
    better = METRICS[choice.competition.metric]().better
    gaps = [one.public - one.expected for one in choice.submissions if one.public is not None]
    gap = float(np.mean(gaps))
    tests = len(choice.competition.answer_ids)
    images, held_out = round(choice.share * tests), max(one.images for one in choice.submissions)
    known = "" if is_share_known else f" ({choice.share:.0%} of {tests:,}, a guess: --public-share 0.2 says another)"
    words = [
        f"{plural(seen, 'public score')}, on average {abs(gap):z.4f} {'better' if better * gap > 0 else 'worse'} than"
        f" expected; each is of about {images:,} images{known}, and is believed as so many more beside {held_out:,}"
        " held-out ones"
    ]
    if agreement := choice.agreement():
        words.append(f"expected and public scores correlate by {agreement[0]:z.2f}, their ranks by {agreement[1]:z.2f}")
    else:
        words.append(f"from {ENOUGH} on their correlation says how well they agree")
    if choice.forecast.spread:
        words.append(
            f"they differ by {choice.forecast.spread:z.4f} more than chance explains, so public scores count for more"
        )
    return "; ".join(words)


def _pairs_in_words(choice: Choice) -> list[str]:
    names = [one.name for one in choice.submissions]
    if choice.pairs is None:
        return [f"only {names[0]} can be chosen: write another submission to have two"]
    safe, bold = choice.pairs.safe, choice.pairs.bold
    expected = {pair: f"{choice.as_score(choice.forecast.best_of(*pair)):z.4f}" for pair in (safe, bold)}
    line = f"safe pair: {names[safe[0]]} and {names[safe[1]]}, whose private scores are expected to be best"
    if safe == bold:
        return [
            f"{line}; it is the bold pair, too: of no pair is a better best score expected than its {expected[safe]}"
        ]
    return [
        line,
        f"bold pair: {names[bold[0]]} and {names[bold[1]]}; the better one is expected to have {expected[bold]}, of the"
        f" safe pair {expected[safe]}, because their mistakes correlate by {choice.correlation[bold]:z.2f} only",
    ]
