"""Which step comes next: arithmetic on errors and seconds, without a file or a model."""

import math
from dataclasses import replace

import pytest

from podium.competing.next_step import (
    FIRST_OF_KIND,
    LAST_STEPS,
    LEAST_JUDGES,
    MODEL_POWER,
    MOST_PROMISED,
    PRIOR_GAIN,
    Known,
    Standing,
    choose_step,
    expect,
    expected_error,
    first_of_kind,
    folds_that_judge,
    gain_of_best,
    gain_of_blend,
    own_gain,
    trust_in,
)
from podium.competing.portfolio import HEAD, LOGS, PLAIN, QUESTIONS, SCRATCH, TUNED, ZOOM, Candidate
from podium.options.recipe import Options


def one(kind: str = HEAD, model: str = "a", side: int = 160, family: str = "f", **more: object) -> Candidate:
    return Candidate(kind, model, family, side, {"model": model}, **more)  # type: ignore[arg-type]


def standing(blend: float, *known: tuple[Candidate, float], loss_left: float = 1.0) -> Standing:
    return Standing(tuple(Known(candidate, error) for candidate, error in known), blend, loss_left)


HEADS = standing(0.1, (one(), 0.1))


def test_the_largest_gain_per_minute_of_those_in_time_is_chosen() -> None:
    steps = [
        expect(one(TUNED), (0,), 100.0, HEADS),
        expect(one(HEAD, "b", family="g"), (0,), 10.0, HEADS),
        expect(one(TUNED, side=224), (0,), 10_000.0, HEADS),
    ]
    assert choose_step(steps, 20_000.0) is steps[1]  # a tenth of the time, and more than a tenth of the gain
    assert choose_step([steps[0], steps[2]], 20_000.0) is steps[0]
    assert choose_step(steps, 5.0) is None
    assert choose_step([], 5.0) is None


def test_what_is_begun_is_finished_before_as_good_a_member_is_begun() -> None:
    """The first fold of another one costs as much, and brings nothing before it has all folds."""
    begun = Known(one(TUNED), 0.05, is_whole=False)
    known = Standing((*HEADS.members, begun), 0.1)
    steps = [
        expect(one(TUNED, "b", family="g"), (0,), 100.0, known, seconds_in_all=200.0),
        expect(one(TUNED), (0, 1), 100.0, known, seconds_in_all=100.0),
    ]
    assert choose_step(steps, 1_000.0) is steps[1]


@pytest.mark.parametrize(
    ("new", "than"),
    [
        (one(model="b", family="g"), one(model="b")),  # another family gains more than another net of one
        (one(model="b"), one(side=224)),
        (one(side=224), one(seed=1)),
        (one(seed=1), one(variant=ZOOM)),
    ],
)
def test_what_differs_more_gains_more(new: Candidate, than: Candidate) -> None:
    assert gain_of_blend(new, 0.1, HEADS) > gain_of_blend(than, 0.1, HEADS) > 0


def test_a_worse_member_gains_less_and_a_better_one_takes_the_blend_with_it() -> None:
    other = one(model="b", family="g")
    gains = [gain_of_blend(other, error, HEADS) for error in (0.05, 0.1, 0.2, 0.5)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 0.05  # half of the blend's error, and what the families differ in
    assert gains[3] < 0.001
    assert gain_of_blend(other, math.inf, HEADS) == 0
    assert gain_of_blend(other, 0.1, standing(0.0, (one(), 0.0))) == 0  # nothing is left to gain


def test_the_more_equals_there_are_the_less_another_gains() -> None:
    three = standing(0.1, (one(), 0.1), (one(side=128), 0.1), (one(side=96), 0.1))
    assert gain_of_blend(one(model="b"), 0.1, three) < gain_of_blend(one(model="b"), 0.1, HEADS)


def test_fine_tuning_promises_little_where_heads_leave_little() -> None:
    rich, poor = HEADS, standing(0.1, (one(), 0.1), loss_left=0.01)
    for kind in (TUNED, SCRATCH):
        assert expected_error(one(kind), rich)[1] == 2 * expected_error(one(kind), poor)[1]


def test_a_trained_member_of_the_kind_tells_what_the_next_one_will_do() -> None:
    known = standing(0.02, (one(), 0.1), (one(TUNED), 0.02))
    error, chance = expected_error(one(TUNED, "b"), known)
    assert (error, chance) == (0.02, 1.0)
    heads = standing(0.02, (one(), 0.1), (one(model="b"), 0.05), (one(TUNED), 0.02))
    assert expected_error(one(TUNED, "b"), heads)[0] < 0.02  # its head is better, too
    in_part = Standing((*known.members, Known(one(TUNED, "b"), 0.3, is_whole=False)), 0.02)
    assert expected_error(one(TUNED, "b"), in_part) == (0.3, 1.0)  # what its first fold has shown


def test_of_two_new_models_the_better_one_on_imagenet_promises_more() -> None:
    known = standing(0.1, (one(model="tf_efficientnet_lite0"), 0.1))
    better, _ = expected_error(one(model="tf_efficientnet_lite2"), known)
    assert better == pytest.approx(0.1 * (22.5 / 25.2) ** MODEL_POWER)
    assert expected_error(one(model="unknown"), known) == (0.1, 1.0)
    joined = "tf_efficientnet_lite0+tf_efficientnet_lite2"
    assert expected_error(one(model=joined), known)[0] == pytest.approx(better)


def test_larger_heads_follow_the_trend_of_their_sizes() -> None:
    falls = standing(0.05, (one(side=96), 0.2), (one(side=160), 0.1))
    rises = standing(0.05, (one(side=96), 0.1), (one(side=160), 0.11))
    assert expected_error(one(side=224), falls)[0] < 0.1
    assert expected_error(one(side=224), falls)[0] / 0.1 < expected_error(one(side=224), rises)[0] / 0.11


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_a_better_head_has_holds_for_all_later_members(question: str) -> None:
    def learned(error: float) -> Options:
        return standing(0.1, (one(), 0.1), (one(variant=question), error)).learned

    assert learned(0.12) == learned(0.1) == {}
    assert learned(0.08) == QUESTIONS[question].options
    assert HEADS.learned == {}  # not asked yet
    both = standing(0.1, (one(), 0.1), (one(variant=PLAIN), 0.08), (one(variant=LOGS), 0.08))
    assert both.learned == {**QUESTIONS[PLAIN].options, **QUESTIONS[LOGS].options}


def test_folds_are_as_many_as_leave_time_for_several_members_and_images_to_judge_by() -> None:
    sizes = [LEAST_JUDGES] * 5
    assert folds_that_judge(1_000.0, 10.0, sizes) == 5
    assert folds_that_judge(1_000.0, 150.0, sizes) == 2
    assert folds_that_judge(1_000.0, 900.0, sizes) == 1
    assert folds_that_judge(1_000.0, 900.0, [LEAST_JUDGES // 2] * 5) == 2
    assert folds_that_judge(1_000.0, 900.0, [10] * 5) == 5


def test_the_first_of_a_kind_counts_for_the_others_but_brings_its_own_gain_only() -> None:
    first, another = expect(one(TUNED), (0,), 60.0, HEADS), expect(one(model="b", family="b"), (0,), 60.0, HEADS)
    assert own_gain(first) == first.gain / FIRST_OF_KIND
    assert own_gain(another) == another.gain > 0


def test_a_step_says_its_arithmetic() -> None:
    step = expect(one(TUNED), (0,), 90.0, HEADS)
    assert step.why(HEADS) == (
        f"an error of 0.0500 expected with a chance of 80%, the blend's 0.1000 would fall by {step.gain:.5f} in 90 s"
    )


def test_a_model_with_fewer_epochs_is_expected_to_be_worse() -> None:
    short = replace(one(TUNED), share=0.5)
    assert expected_error(short, HEADS)[0] == expected_error(one(TUNED), HEADS)[0] * 2**0.25
    known = standing(0.02, (one(), 0.1), (one(TUNED), 0.02))
    other = one(TUNED, "b")
    assert expected_error(replace(other, share=0.5), known)[0] > expected_error(other, known)[0]


def test_gains_are_believed_as_far_as_the_last_ones_came_true() -> None:
    assert trust_in([]) == 1
    assert trust_in([(0.3, 0.3)]) == pytest.approx(1)
    assert trust_in([(0.0, 0.3)]) == trust_in([(0.0, MOST_PROMISED)]) > 0.4  # one large promise says little of others
    assert trust_in([(0.0, PRIOR_GAIN)]) == pytest.approx(0.5)
    assert trust_in([(0.0, 0.2), (0.0, 0.2)]) < trust_in([(0.0, 0.2), (0.1, 0.2)]) < 1
    assert trust_in([(0.0, 0.5), *[(0.1, 0.1)] * LAST_STEPS]) == pytest.approx(1)  # what is long ago is forgotten
    doubted = replace(HEADS, trust={HEAD: 0.5})
    new = one(model="b")
    assert expect(new, (0,), 60.0, doubted).gain == expect(new, (0,), 60.0, HEADS).gain / 2


def test_the_first_of_a_kind_is_the_best_that_leaves_time_for_others() -> None:
    small, large = (
        expect(one(TUNED, side=side), (0,), seconds, HEADS) for side, seconds in ((96, 100.0), (160, 300.0))
    )
    assert small.gain < large.gain
    assert first_of_kind([small, large], 1_000.0) == large
    assert first_of_kind([small, large], 400.0) == small
    assert first_of_kind([small, large], 50.0) == small  # the cheapest, if no other leaves time
    assert first_of_kind([], 50.0) is None


def test_a_trial_costs_its_fold_and_by_its_chance_the_others() -> None:
    tried = expect(one(TUNED), (0,), 60.0, HEADS, seconds_in_all=300.0)
    assert tried.gain_per_minute == pytest.approx(tried.gain / (60 + tried.chance * 240) * 60)


def test_who_wants_one_model_gains_only_by_a_better_one() -> None:
    known = standing(0.02, (one(), 0.1), (one(TUNED), 0.02))
    assert gain_of_best(one(model="b"), 0.03, known) == 0
    assert gain_of_best(one(model="b"), 0.015, known) == pytest.approx(0.005)
    assert gain_of_best(one(model="b"), math.inf, known) == 0


def test_a_kind_that_may_do_very_well_promises_more_than_its_usual_error() -> None:
    """A member of a known kind with the usual error gains nothing; a new kind may yet be much better."""
    known = standing(0.04, (one(), 0.1), (one(SCRATCH), 0.04))
    tuned = one(TUNED)
    error, chance = expected_error(tuned, known)
    assert error > 0.04
    assert expect(tuned, (0,), 60.0, known).gain > 2 * chance * gain_of_blend(tuned, error, known)


def test_how_heads_of_other_models_fare_at_larger_sizes_says_what_a_larger_size_brings() -> None:
    flat = standing(0.04, (one(side=160), 0.04), (one(side=288), 0.04), (one(model="b", side=160), 0.05))
    steep = standing(0.04, (one(side=160), 0.08), (one(side=288), 0.04), (one(model="b", side=160), 0.05))
    alone = standing(0.04, (one(model="b", side=160), 0.05))
    larger = one(model="b", side=224)
    errors = [expected_error(larger, known)[0] for known in (steep, alone, flat)]
    assert errors == sorted(errors)
    assert len(set(errors)) == 3
    assert 0.04 < errors[2] < 0.05


def test_a_new_kind_is_compared_with_the_best_head_of_its_model() -> None:
    heads = standing(0.04, (one(side=288), 0.04), (one(model="b", side=288), 0.08))
    assert expected_error(one(TUNED, "b", side=96), heads)[0] == 2 * expected_error(one(TUNED, side=96), heads)[0]
    assert expected_error(one(TUNED, "c", side=96), heads) == expected_error(one(TUNED, side=96), heads)
