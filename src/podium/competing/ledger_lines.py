"""A step as a line of the ledger, a line as the step that it has begun, and what the steps have brought so far."""

import math

from podium.competing.best_csv import finite
from podium.competing.next_step import Step, trust_in
from podium.competing.portfolio import QUESTIONS, Candidate
from podium.saved_runs.ledger import BEGUN, ENDED, Ledger, Line


def facts_of(step: Step) -> Line:
    """Returns what the ledger keeps of a step that begins."""
    candidate = step.candidate
    return {
        "member": candidate.name,
        "folds": list(step.folds),
        "kind": candidate.kind,
        "model": candidate.model,
        "family": candidate.family,
        "side": candidate.side,
        "seed": candidate.seed,
        "variant": candidate.variant,
        "share": candidate.share,
        "options": dict(candidate.options),
        "seconds": finite(step.seconds),
        "gain": finite(step.gain),
        "error": finite(step.error),
        "chance": step.chance,
        "is_trial": step.seconds_in_all > step.seconds,  # on the first fold: it brings nothing yet
    }


def _is_trial(line: Line) -> bool:
    """Returns whether a step asked something, or could bring nothing yet that can be judged."""
    return bool(line.get("is_trial")) or not line.get("gain") or line.get("variant") in QUESTIONS


def step_of(line: Line) -> Step:
    """Returns the step that a line of the ledger has begun."""
    candidate = Candidate(
        line["kind"],
        line["model"],
        str(line.get("family", "")),
        line["side"],
        line["options"],
        line["seed"],
        str(line.get("variant", "")),
        float(line.get("share", 1.0)),
    )
    return Step(candidate, tuple(line["folds"]), float(line.get("seconds") or 0.0), 0.0, math.nan, 1.0)


def trust_of(ledger: Ledger) -> dict[str, float]:
    """Returns how far to believe what is expected of each kind, by what its steps have brought so far."""
    gains: dict[str, list[tuple[float, float]]] = {}
    begun: dict[str, Line] = {}
    for line in ledger.of(BEGUN, ENDED):
        if line["event"] == BEGUN:
            begun[line["member"]] = line
        elif (step := begun.get(line["member"])) and step.get("blend_error") and not _is_trial(step):
            brought, promised = ((one.get("gain") or 0.0) / step["blend_error"] for one in (line, step))
            gains.setdefault(step["kind"], []).append((brought, promised))
    return {kind: trust_in(of_kind) for kind, of_kind in gains.items()}
