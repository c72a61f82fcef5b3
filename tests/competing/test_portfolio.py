"""Which members a competition may have, and the options of their recipes."""

from podium.competing.portfolio import BACKBONES, TUNED, candidates_of
from podium.recipe import Options
from podium.recipe_defaults import AUTO_MANY_IMAGES, AUTO_WITH_MANY, Data


def tuned(images: int, **asked: object) -> Options:
    """Returns the options of the first fine-tuned member, of so many images, where the card asks for these options."""
    members = candidates_of(BACKBONES[:1], Data(images=images), "cpu", asked)
    return next(member for member in members if member.kind == TUNED).options


def test_with_many_images_fine_tuning_learns_faster_and_shorter_unless_somebody_asks_otherwise() -> None:
    few, many = tuned(AUTO_MANY_IMAGES - 1), tuned(AUTO_MANY_IMAGES)
    assert not AUTO_WITH_MANY.keys() & few.keys()
    assert many == {**few, **AUTO_WITH_MANY}
    assert tuned(AUTO_MANY_IMAGES, lr=1e-4) == few
    assert tuned(AUTO_MANY_IMAGES, epochs=20) == {name: value for name, value in many.items() if name != "epochs"}
