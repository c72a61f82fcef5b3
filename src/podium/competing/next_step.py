"""Decides which step comes next: the one with the largest expected gain of the blend per minute.

Everything here is arithmetic on what was measured: errors of members, the blend's error, seconds. Nothing is read,
trained or asked, so each decision can be tested as a table, and compete.jsonl can show how it was made.

An error is how far a score is from the best possible one: 1 - accuracy, or a log loss.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from podium.basics.terminal import duration
from podium.competing.portfolio import HEAD, PSEUDO, QUESTIONS, SCRATCH, TUNED, ZOOM, Candidate, error_on_imagenet
from podium.models.hub import backbones_in
from podium.options.recipe import Options

# What is expected of a kind of member of which none is trained yet: its share of the best frozen head's error, and the
# chance that it does so well. Measured on photographs of clothes, animals, flowers and hands (docs/benchmarks.md):
# fine-tuning leaves 0.06 to 1.1 of the error; a model from scratch is better than a head on foreign images only.
KIND_ERROR = {TUNED: 0.5, SCRATCH: 0.5}
KIND_CHANCE = {TUNED: 0.8, SCRATCH: 0.15}
# Of such chances, this share does very well: its error is so many times the expected one (signs).
VERY_WELL, VERY_WELL_ERROR = 0.35, 0.3
NEW_KIND_POWER = 0.15  # with which the error of the first fine-tuning falls with the side, from that of the best head
FIRST_OF_KIND = 2.0  # times its gain: what it shows holds for all others of its kind
LITTLE_LEFT = 0.06  # of the loss of the classes' shares: where heads leave less, other kinds find more less often
CHANCE_OF_LITTLE = 0.5  # times the chance, there: pets gain nothing, signs nearly all of it
LAST_STEPS = 4  # of a kind, whose gains say how far to believe what is expected of the next one
PRIOR_GAIN = 0.05  # of the blend's error, as if a step had brought what was expected of it
MOST_PROMISED = 0.05  # of it, that a step counts for: one large promise that fails says little of the others
SIZE_POWER = {HEAD: 0.6, TUNED: 0.35, SCRATCH: 0.2}  # error falls with this power of the side, if nothing is known
EPOCHS_POWER = 0.25  # error falls with this power of the epochs: where time allows a third of them only, 1.3 times
ZOOM_ERROR = 0.92  # times the error without zoomed views
PSEUDO_ERROR = 0.95  # times the error without pseudo-labels, which take longer
LEAST_BETTER = 1.05  # times the error of a head that asks: where the usual one's is more, that answers yes
MODEL_POWER = 2.0  # with which a head's error falls with that of its backbone on ImageNet, if nothing else is known
KNOWN_SIZES = 0.5  # of what heads of both sizes, or of both models, say: so much of it holds for other kinds
MOST_STEP = 1.5  # times the error, from one member to the most similar one
# What a second member of equal error takes off a blend's error, by what it does not share with the nearest member.
DIVERSITY = {"variant": 0.03, "seed": 0.05, "size": 0.07, "model": 0.10, "family": 0.14, "kind": 0.12}
HELPS_UP_TO = 1.5  # times the best member's error: one with a larger error does not count as one of its equals
WEIGHT_OF_WORSE = 3  # the power with which what a member adds falls with its error
WANTED = 3  # fine-tuned members that a time is divided among
LEAST_JUDGES = 400  # held-out images that may compare blends, if there are so many


@dataclass(frozen=True)
class Known:
    """A member that is trained on some folds."""

    candidate: Candidate
    error: float  # on the images that it has held out, of those that judge
    is_whole: bool = True  # on all folds that judge


@dataclass(frozen=True)
class Standing:
    """What is known when a step is chosen."""

    members: tuple[Known, ...]
    blend_error: float
    loss_left: float = 1.0  # that the best head leaves, of the loss of the classes' shares
    trust: Mapping[str, float] = field(default_factory=dict)  # by kind: of what was expected, what came true

    @property
    def heads(self) -> list[Known]:
        """Returns the frozen heads, without those of further views."""
        return [member for member in self.members if member.candidate.kind == HEAD and not member.candidate.variant]

    @property
    def best_head(self) -> Known | None:
        return min(self.heads, key=lambda member: member.error, default=None)

    @property
    def learned(self) -> Options:
        """Returns the options of further members, as the answers to QUESTIONS want them.

        The head of such a variant is compared with that of the same model and size.
        """
        errors = {(one.candidate.model, one.candidate.side): one.error for one in self.heads}
        options: dict[str, Any] = {}
        for one in self.members:
            usual = errors.get((one.candidate.model, one.candidate.side), 0.0)
            if one.candidate.variant in QUESTIONS and usual > LEAST_BETTER * one.error:
                options |= QUESTIONS[one.candidate.variant].options
        return options


@dataclass(frozen=True)
class Step:
    """A member to train, on some of the folds."""

    candidate: Candidate
    folds: tuple[int, ...]
    seconds: float  # with its part of the submission
    gain: float  # expected, of the blend
    error: float  # expected, of the member
    chance: float
    seconds_in_all: float = 0.0  # until it is trained on all folds, if these are only the first of them

    @property
    def gain_per_minute(self) -> float:
        """Returns the gain for the time that it takes: on the other folds it is trained only if it helps."""
        others = max(0.0, self.seconds_in_all - self.seconds)
        return self.gain / max(self.seconds + self.chance * others, 1.0) * 60

    def why(self, standing: Standing) -> str:
        chance = "" if self.chance == 1 else f" with a chance of {self.chance:.0%}"
        if math.isinf(standing.blend_error):
            return f"a first member, in {duration(self.seconds)}"
        return (
            f"an error of {self.error:z.4f} expected{chance}, the blend's {standing.blend_error:z.4f} would fall by"
            f" {self.gain:z.5f} in {duration(self.seconds)}"
        )


def choose_step(steps: Iterable[Step], seconds_left: float) -> Step | None:
    """Returns the step with the largest expected gain per minute, of those that fit into the time."""
    fitting = [step for step in steps if step.seconds <= seconds_left and step.gain > 0]
    return max(fitting, key=lambda step: step.gain_per_minute, default=None)


Gain = Callable[[Candidate, float, Standing], float]  # of a member with this error


def expect(
    candidate: Candidate,
    folds: tuple[int, ...],
    seconds: float,
    standing: Standing,
    seconds_in_all: float = 0.0,
    gain_of: Gain | None = None,
) -> Step:
    """Returns the step with what is expected of it: of the blend, or of what `gain_of` says."""
    error, chance = expected_error(candidate, standing)
    gain_of = gain_of or gain_of_blend
    gain = chance * gain_of(candidate, error, standing)
    if chance < 1:
        very_well = chance * gain_of(candidate, VERY_WELL_ERROR * error, standing)
        gain = (1 - VERY_WELL) * gain + VERY_WELL * very_well
    if candidate.kind == TUNED and chance < 1:
        gain *= FIRST_OF_KIND
    gain *= standing.trust.get(candidate.kind, 1.0)
    return Step(candidate, folds, seconds, gain, error, chance, seconds_in_all)


def expected_error(candidate: Candidate, standing: Standing) -> tuple[float, float]:
    """Returns the error that a member will have, and the chance that it is so small."""
    own = next((member for member in standing.members if member.candidate.name == candidate.name), None)
    if own:
        return own.error, 1.0
    same_kind = [member for member in standing.members if member.candidate.kind == candidate.kind]
    if same_kind:
        nearest = min(same_kind, key=lambda member: _distance(candidate, member.candidate))
        shorter = (nearest.candidate.share / candidate.share) ** EPOCHS_POWER
        return nearest.error * _ratio(candidate, nearest.candidate, standing) * shorter, 1.0
    head = standing.best_head
    if head is None:  # nothing is trained yet
        return 1.0, 1.0
    chance = KIND_CHANCE[candidate.kind] * (CHANCE_OF_LITTLE if standing.loss_left < LITTLE_LEFT else 1.0)
    error = KIND_ERROR[candidate.kind] * head.error * (1 / candidate.share) ** EPOCHS_POWER
    if candidate.kind == TUNED:
        of_model = [member.error for member in standing.heads if member.candidate.model == candidate.model]
        error *= min(of_model, default=head.error) / max(head.error, 1e-9)
        error *= (head.candidate.side / candidate.side) ** NEW_KIND_POWER
    return error, chance


def gain_of_blend(candidate: Candidate, error: float, standing: Standing) -> float:
    """Returns how much the blend's error falls if a member with this error joins it."""
    blend, whole = standing.blend_error, [member for member in standing.members if member.is_whole]
    if not (0 < blend < math.inf) or not math.isfinite(error):
        return 0.0
    best = max(min((member.error for member in whole), default=blend), 1e-9)
    equals = [member for member in whole if member.error <= HELPS_UP_TO * best]
    ratio = error / best  # below 1: a better member, and the blend becomes better with it
    likeness = min(ratio, 1 / ratio) if ratio > 0 else 0.0
    new = _diversity(candidate, equals) / max(1, len(equals)) * likeness**WEIGHT_OF_WORSE
    return blend - blend * min(ratio, 1.0) * (1 - new)


def trust_in(gains: Sequence[tuple[float, float]]) -> float:
    """Returns how far to believe in the next gain, by those that the last steps of its kind brought and promised."""
    counted = [[min(max(gain, 0.0), MOST_PROMISED) for gain in step] for step in gains[-LAST_STEPS:]]
    brought, promised = (sum(step[column] for step in counted) for column in (0, 1))
    return (PRIOR_GAIN + brought) / (PRIOR_GAIN + promised)


def first_of_kind(steps: Sequence[Step], seconds_left: float) -> Step | None:
    """Returns which member of a kind is tried first: the one with the most gain that leaves time for others.

    What is learned from it holds for its kind, so the cheapest one would be a bad witness.
    """
    in_time = [step for step in steps if max(step.seconds, step.seconds_in_all) <= seconds_left / WANTED]
    if in_time:
        return max(in_time, key=lambda step: step.gain)
    return min(steps, key=lambda step: max(step.seconds, step.seconds_in_all), default=None)


def gain_of_best(candidate: Candidate, error: float, standing: Standing) -> float:
    """Returns how much less the best member's error is if this one joins: the gain of who wants one model only."""
    best = min((member.error for member in standing.members), default=math.inf)
    return max(0.0, best - error) if math.isfinite(error) else 0.0


def own_gain(step: Step) -> float:
    """Returns what the step itself is expected to bring: without what the first of a kind shows of the others."""
    return step.gain / FIRST_OF_KIND if step.candidate.kind == TUNED and step.chance < 1 else step.gain


def folds_that_judge(seconds_left: float, seconds_of_fold: float, fold_sizes: Sequence[int]) -> int:
    """Returns on how many folds members are trained: on as many as leave time for several members.

    There are enough of them to judge by, if there are so many images.
    """
    affordable = int(seconds_left / (WANTED * max(seconds_of_fold, 1e-6)))
    images = [sum(fold_sizes[: count + 1]) for count in range(len(fold_sizes))]
    least = next((count + 1 for count, judges in enumerate(images) if judges >= LEAST_JUDGES), len(fold_sizes))
    return min(max(affordable, least), len(fold_sizes))


def _distance(one: Candidate, other: Candidate) -> tuple[int, float, bool]:
    """Says how unlike two members of a kind are: another model counts more than another size, that more than views."""
    unlike = 2 * (one.model != other.model) + (one.family != other.family)
    return unlike, abs(math.log(one.side / other.side)), one.variant != other.variant


def _ratio(candidate: Candidate, known: Candidate, standing: Standing) -> float:
    """Returns how many times the error of a known member this one is expected to have."""
    heads = {(member.candidate.model, member.candidate.side): member.error for member in standing.heads}
    damped = 1.0 if candidate.kind == known.kind == HEAD else KNOWN_SIZES
    ratio = 1.0
    at_both = [side for model, side in heads if model == known.model and (candidate.model, side) in heads]
    if candidate.model != known.model and at_both:
        side = min(at_both, key=lambda side: abs(math.log(side / candidate.side)))
        ratio *= (heads[candidate.model, side] / max(heads[known.model, side], 1e-9)) ** damped
    elif candidate.model != known.model:
        new, old = error_on_imagenet(candidate.model), error_on_imagenet(known.model)
        ratio *= (new / old) ** (MODEL_POWER * damped) if new and old else 1.0
    if candidate.side != known.side:
        own = {side: error for (model, side), error in heads.items() if model == candidate.model}
        if candidate.side in own and known.side in own and candidate.kind != HEAD:
            ratio *= (own[candidate.side] / max(own[known.side], 1e-9)) ** damped
        else:
            ratio *= (known.side / candidate.side) ** _size_power(candidate, heads)
    for variant, error in ((ZOOM, ZOOM_ERROR), (PSEUDO, PSEUDO_ERROR)):
        ratio *= error ** ((candidate.variant == variant) - (known.variant == variant))
    return min(max(ratio, 1 / MOST_STEP), MOST_STEP)


def _size_power(candidate: Candidate, heads: Mapping[tuple[str, int], float]) -> float:
    """Returns how fast the error falls with the side: as between heads of this model, else of others, or as usual."""
    usual = SIZE_POWER[candidate.kind]
    if candidate.kind != HEAD:
        return usual
    powers = {model: _power_between(model, heads) for model, _ in sorted(heads)}
    seen = {model: power for model, power in powers.items() if power is not None}
    if not seen:
        return usual
    return (usual + 2 * seen.get(candidate.model, fmean(seen.values()))) / 3


def _power_between(model: str, heads: Mapping[tuple[str, int], float]) -> float | None:
    """Returns with which power of the side the error falls between the model's two largest heads."""
    errors = sorted((side, error) for (name, side), error in heads.items() if name == model)[-2:]
    if len(errors) < 2:
        return None
    (small, first), (large, second) = errors
    return math.log(max(first, 1e-9) / max(second, 1e-9)) / math.log(large / small)


def _diversity(candidate: Candidate, equals: Sequence[Known]) -> float:
    """Returns what the nearest of the blend's members leaves to gain."""
    return min((DIVERSITY[_differs_in(candidate, member.candidate)] for member in equals), default=DIVERSITY["family"])


def _differs_in(one: Candidate, other: Candidate) -> str:
    if one.kind != other.kind:
        return "kind"
    if one.family != other.family:
        return "family"
    if one.model != other.model:
        return "variant" if set(backbones_in(one.model)) & set(backbones_in(other.model)) else "model"
    if one.side != other.side:
        return "size"
    return "variant" if one.variant != other.variant else "seed"
