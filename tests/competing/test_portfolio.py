"""Which members a competition may have, and the options of their recipes."""

from podium.competing.portfolio import BACKBONES, LOGS, PLAIN, QUESTIONS, TUNED, Candidate, candidates_of
from podium.options.recipe import Options
from podium.options.recipe_defaults import AUTO_MANY_IMAGES, AUTO_WITH_MANY, Data


def tuned(images: int, **asked: object) -> Options:
    """Returns the options of the first fine-tuned member, of so many images, where the card asks for these options."""
    return tuned_members(images, asked)[0].options


def tuned_members(images: int, asked: Options) -> list[Candidate]:
    members = candidates_of(BACKBONES, Data(images=images), "cpu", asked)
    return [member for member in members if member.kind == TUNED]


def test_with_many_images_fine_tuning_learns_faster_and_shorter_unless_somebody_asks_otherwise() -> None:
    few, many = tuned(AUTO_MANY_IMAGES - 1), tuned(AUTO_MANY_IMAGES)
    assert not AUTO_WITH_MANY.keys() & few.keys()
    assert many == {**few, **AUTO_WITH_MANY}
    assert tuned(AUTO_MANY_IMAGES, lr=1e-4) == few
    assert tuned(AUTO_MANY_IMAGES, epochs=20) == {name: value for name, value in many.items() if name != "epochs"}


def test_the_rate_of_nets_with_batch_norm_is_for_no_other_kind() -> None:
    faster = [member.model for member in tuned_members(AUTO_MANY_IMAGES, {}) if "lr" in member.options]
    assert set(faster) == {row.model for row in BACKBONES if row.family == "efficientnet_lite"}


def test_no_member_is_larger_than_what_the_card_wants_at_the_end() -> None:
    members = candidates_of(BACKBONES, Data(images=900), "cpu", {"finish": "128:2"})
    assert max(member.side for member in members) == 128


def test_what_heads_ask_depends_on_the_numbers_and_on_what_somebody_wants() -> None:
    def asked(are_skewed: bool, wanted: Options | None = None, learned: Options | None = None) -> set[str]:
        data = Data(images=900, are_skewed=are_skewed)
        members = [*candidates_of(BACKBONES[:1], data, "cpu", wanted or {}, learned)]
        for one in members:
            # Questions are beside the first head, and have nothing of what later ones have learned.
            expected = QUESTIONS[one.variant].options if one.variant in QUESTIONS else learned or {}
            assert {name: one.options[name] for name in ("mirror", "target_scale") if name in one.options} == expected
        return {one.variant for one in members} & QUESTIONS.keys()

    assert asked(are_skewed=False) == {PLAIN}
    assert asked(are_skewed=True) == {PLAIN, LOGS}
    assert asked(are_skewed=True, wanted={"loss": "huber"}) == {PLAIN}
    assert asked(are_skewed=True, learned={"mirror": 0.0}) == {LOGS}
    assert asked(are_skewed=True, learned={"target_scale": "log1p"}) == {PLAIN}
