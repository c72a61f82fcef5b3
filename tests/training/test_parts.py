"""The parts of training: recipes, metrics, the order and the look of the images."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from podium import PodiumError
from podium.competition.load import load
from podium.folds.folds_csv import read_folds, write_folds
from podium.images.store import open_store
from podium.metrics import METRICS, evaluate
from podium.models.build import ModelSpec, family_and_sizes
from podium.models.normalise import Normaliser
from podium.models.predict import predict_proba, views_of
from podium.recipe import OPTIMIZERS, VIEWS, Recipe, expand_auto, image_size_at, resolve
from podium.training.augment import TestView, TrainView, generator, mix
from podium.training.context import Context
from podium.training.loader import BatchSampler, batches_in_order
from podium.training.loop import Fold
from podium.training.run_folder import Run
from podium.training.schedule import learning_rate
from tiny import write_competition

SPEC = ModelSpec("test_vit", ("a", "b"), 48, 48, (0.5, 0.4, 0.3), (0.2, 0.2, 0.1), "bicubic", 0.9, "crop", "none")


SQUASHED = replace(SPEC, fit="squash")


def recipe(**given: object) -> Recipe:
    return resolve({"model": "convnext_small", **given}, {}, "convnext", 224, 288)


def test_a_knob_is_what_was_given_else_the_cards_else_the_familys() -> None:
    plain = recipe()
    assert (plain.weights, plain.image_size, plain.layer_decay) == ("pretrained", 224, 0.8)
    card = {"layer_decay": 0.5, "mirror": 0}
    assert resolve({"model": "m"}, card, "convnext", 224, 288).layer_decay == 0.5
    assert isinstance(resolve({"model": "m"}, card, "convnext", 224, 288).mirror, float)
    assert resolve({"model": "m", "layer_decay": 0.7}, card, "convnext", 224, 288).layer_decay == 0.7
    assert resolve({"model": "m"}, {}, "unheard_of", 64, 64).epochs == 15


def test_the_default_rate_grows_with_the_square_root_of_the_batch_and_a_given_one_stays() -> None:
    assert recipe(batch_size=128).lr == 1e-4
    assert recipe(batch_size=512).lr == 2e-4
    assert recipe(batch_size=512, lr=3e-4).lr == 3e-4


def test_from_scratch_everything_moves() -> None:
    tuned, scratch = recipe(), recipe(weights="none")
    assert scratch.lr > 10 * tuned.lr
    assert scratch.layer_decay == 1
    assert scratch.epochs > tuned.epochs


@pytest.mark.parametrize(
    ("card", "answer"),
    [
        ({"epoch": 3}, "no knob 'epoch'; did you mean epochs?"),
        ({"model": "x"}, "a card cannot choose the model"),
        ({"epochs": 2.5}, "[recipe]: epochs must be int, not 2.5"),
        ({"mirror": True}, "mirror must be float, not True"),
        ({"mirror": 7.0}, "the card's [recipe]: mirror must be between 0 and 1"),
    ],
)
def test_a_cards_mistake_is_named(card: dict[str, object], answer: str) -> None:
    with pytest.raises(PodiumError) as refused:
        resolve({"model": "m"}, card, "convnext", 224, 288)
    assert answer in str(refused.value)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 4), st.integers(0, 3))
def test_an_epoch_shows_every_image_once_and_a_resumed_run_the_same_ones(
    images: int, batch: int, epochs: int, fold: int
) -> None:
    whole = list(BatchSampler(images, batch, epochs, seed=5, fold=fold))
    size = min(batch, images)
    assert all(len(keys) == size for keys in whole)
    assert len(whole) == epochs * (images // size)
    for epoch in range(epochs):
        shown = [image for keys in whole for at, image in keys if at == epoch]
        assert len(set(shown)) == len(shown) == images // size * size
    for start in {0, 1, len(whole) // 2, len(whole)}:
        assert list(BatchSampler(images, batch, epochs, seed=5, fold=fold, start=start)) == whole[start:]


def test_epochs_folds_and_seeds_differ_in_their_order() -> None:
    orders = [
        tuple(image for keys in BatchSampler(50, 10, 2, seed, fold) for at, image in keys if at == epoch)
        for seed, fold, epoch in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0))
    ]
    assert len(set(orders)) == 4


def test_prediction_goes_through_every_image_once_in_order() -> None:
    assert [image for keys in batches_in_order(7, 3) for _, image in keys] == list(range(7))


def test_an_augmentation_follows_from_seed_epoch_and_image_alone() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (80, 60, 3), dtype=np.uint8)
    one, other = TrainView(recipe(image_size=48), SPEC), TrainView(recipe(image_size=48), SPEC)
    seen = {}
    for epoch in range(3):
        for image in range(3):
            first = one(picture, epoch, image)
            assert first.shape == (48, 48, 3)
            assert first.dtype == np.uint8
            seen[first.tobytes()] = (epoch, image)
    assert len(seen) == 9  # each another
    for epoch, image in reversed(list(seen.values())):  # in another order, by another object: the same
        assert other(picture, epoch, image).tobytes() in seen
    assert one(picture, 2, 1).tobytes() == other(picture, 2, 1).tobytes()
    assert TrainView(recipe(image_size=48, seed=1), SPEC)(picture, 0, 0).tobytes() not in seen


def test_a_level_sets_several_knobs_at_once_and_one_that_is_given_counts_more() -> None:
    light, strong = recipe(level="light"), recipe(level="strong", mix=0.1)
    assert light.crop > strong.crop
    assert (light.ops, strong.ops) == (0, 2)
    assert strong.mix == 0.1
    assert asdict(recipe(level="default")) == asdict(recipe())
    assert resolve({"model": "m"}, {"level": "strong", "crop": 0.9}, "", 64, 64).crop == 0.9
    with pytest.raises(PodiumError, match="--level must be one of default, none, light, strong, not 'medium'"):
        recipe(level="medium")


@pytest.mark.parametrize("strength", [0.0, 0.65, 1.0])
def test_operations_follow_from_seed_epoch_and_image_too(strength: float) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (80, 60, 3), dtype=np.uint8)
    knobs = recipe(image_size=48, level="none", ops=2, strength=strength, mirror=0.0)
    one, other = TrainView(knobs, SQUASHED), TrainView(knobs, SQUASHED)
    seen = [one(picture, epoch, 3) for epoch in range(30)]
    assert all(np.array_equal(view, other(picture, epoch, 3)) for epoch, view in enumerate(seen))
    assert {view.shape for view in seen} == {(48, 48, 3)}
    if strength:
        assert len({view.tobytes() for view in seen}) > 20  # each another


@pytest.mark.parametrize("size", [(1, 1), (2, 400), (400, 2), (48, 48), (300, 200)])
def test_no_shape_of_image_is_too_odd(size: tuple[int, int]) -> None:
    picture = np.full((*size, 3), 77, dtype=np.uint8)
    assert (TestView(SPEC)(picture) == 77).all()
    assert (TestView(SQUASHED)(picture) == 77).all()
    for spec in (SPEC, SQUASHED):
        assert (TrainView(recipe(image_size=48, colour=0.0, erase=0.0), spec)(picture, 0, 0) == 77).all()
        for epoch in range(20):
            assert TrainView(recipe(image_size=48, level="strong"), spec)(picture, epoch, 0).shape == (48, 48, 3)


def test_the_test_view_is_the_centre_that_the_model_asks_for() -> None:
    picture = np.zeros((100, 60, 3), dtype=np.uint8)
    picture[20 + 3 : 80 - 3, 3:57] = 200  # the centre square's inner nine tenths
    assert (TestView(SPEC)(picture) == 200).all()


def test_a_squashed_image_is_all_there() -> None:
    picture = np.zeros((100, 60, 3), dtype=np.uint8)
    picture[:50] = 200
    assert np.abs(TestView(SQUASHED)(picture).astype(int).mean() - 100) < 3
    seen = TrainView(recipe(image_size=48, crop=1.0, colour=0.0, erase=0.0, mirror=0.0), SQUASHED)(picture, 0, 0)
    assert np.abs(seen.astype(int).mean() - 100) < 12


def test_auto_is_a_model_that_suits_the_device_and_what_is_given_counts() -> None:
    assert expand_auto({"model": "auto"}, "cpu")["weights"] == "none"
    assert expand_auto({"model": "auto"}, "cpu with bfloat16")["optimizer"] == "muon"
    assert expand_auto({"model": "auto"}, "cuda") == {"model": "convnext_small"}
    assert expand_auto({"model": "auto", "epochs": 3}, "cpu")["epochs"] == 3
    assert "mix" not in expand_auto({"model": "auto", "level": "strong"}, "cpu")  # the level says it
    assert expand_auto({"model": "test_vit"}, "cpu") == {"model": "test_vit"}


def test_images_grow_from_half_the_size_to_all_of_it_and_stay() -> None:
    growing = recipe(image_size=80, epochs=10, grow=0.6)
    assert [image_size_at(epoch, growing) for epoch in range(10)] == [32, 32, 48, 48, 64, 64, 80, 80, 80, 80]
    assert {image_size_at(epoch, recipe(image_size=80, grow=0.0)) for epoch in range(10)} == {80}
    assert image_size_at(0, recipe(image_size=40, epochs=10, grow=1.0)) == 32
    assert image_size_at(0, recipe(image_size=8, epochs=10, grow=1.0)) == 8
    picture = np.zeros((60, 80, 3), np.uint8)
    assert TrainView(growing, replace(SPEC, image_size=80))(picture, 2, 0).shape == (48, 48, 3)


def test_normalising_gives_the_models_own_mean_and_deviation() -> None:
    images = torch.randint(0, 256, (2, 5, 4, 3), dtype=torch.uint8)
    inputs = Normaliser(SPEC, torch.device("cpu"))(images)
    wanted = (images.permute(0, 3, 1, 2) / 255 - torch.tensor(SPEC.mean).view(1, 3, 1, 1)) / torch.tensor(
        SPEC.std
    ).view(1, 3, 1, 1)
    assert torch.allclose(inputs, wanted, atol=1e-5)
    assert inputs.is_contiguous(memory_format=torch.channels_last)


@given(st.integers(0, 200))
def test_a_mixed_target_says_how_much_of_each_image_is_seen(seed: int) -> None:
    """Image i is filled with its own target's value, so the mean of a mixture is its soft target."""
    targets = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    images = targets[:, 1].view(2, 1, 1, 1).expand(2, 3, 16, 12).contiguous()
    mixed, soft = mix(images, targets, generator(9, seed))
    assert torch.allclose(soft.sum(1), torch.ones(2))
    assert torch.allclose(mixed.mean((1, 2, 3)), soft[:, 1], atol=1e-5)


@given(st.integers(2, 400), st.floats(0, 80))
def test_the_rate_rises_to_its_peak_once_and_falls_to_nothing(total: int, warmup: float) -> None:
    warmup = min(warmup, total / 5)
    rates = [learning_rate(step, total, warmup, 1.0) for step in range(total + 1)]
    top = rates.index(max(rates))
    assert 0 < max(rates) <= 1
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-9)
    assert abs(top - warmup) <= 1


def test_every_metric_is_scikit_learns() -> None:
    targets = np.array([0, 1, 2, 2, 1])
    right = np.eye(3)[targets] * 0.8 + 0.2 / 3
    best = {"accuracy": 1, "macro_f1": 1, "balanced_accuracy": 1, "roc_auc": 1, "quadratic_kappa": 1}
    for name in METRICS:
        score = evaluate(name, targets, right)
        assert score == pytest.approx(best.get(name, -np.log(0.8 + 0.2 / 3)))
        worse = evaluate(name, targets, right[::-1].copy())
        assert (score - worse) * METRICS[name]().better > 0


def test_metrics_take_classes_that_do_not_occur() -> None:
    targets, probs = np.array([0, 1, 1]), np.full((3, 5), 0.2)
    assert {name for name in METRICS if not np.isfinite(evaluate(name, targets, probs))} == set()


def test_two_classes_are_ranked_by_the_second() -> None:
    probs = np.array([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]])
    assert evaluate("roc_auc", np.array([0, 1, 0]), probs) == 1.0


def test_atomic_writing_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    from podium.disk import atomic

    path = tmp_path / "deep" / "file"
    with atomic(path) as temporary:
        temporary.write_text("first")

    def fail(error: Exception) -> None:
        with atomic(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    with pytest.raises(PodiumError, match="no space left to write"):
        fail(OSError(28, "No space left on device"))
    assert path.read_text() == "first"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def fold(tmp_path: Path, **given: object) -> Fold:
    """A fold about to be trained, on the tiny competition."""
    write_competition(tmp_path)
    competition = load("tiny", tmp_path)
    write_folds(competition, tmp_path, 2, 0)
    small = {"weights": "none", "image_size": 32, "batch_size": 8, "epochs": 3, "precision": "float32"}
    whole = resolve({**small, **given}, {}, *family_and_sizes(str(given["model"])))
    run = Run(tmp_path / "runs" / "tiny" / "x")
    run.begin(asdict(whole), {"folds": 2})
    index = {label: i for i, label in enumerate(competition.classes)}
    targets = np.array([index[label] for label in competition.train["target"]])
    folds = read_folds(competition, tmp_path)
    store = open_store(competition, tmp_path, 128)
    setting = Context(run, whole, competition, store, folds, targets, torch.device("cpu"), torch.float32, 0)
    return Fold(setting, 0, 1)


def test_layer_decay_reaches_the_step_and_never_freezes_a_deep_models_stem(tmp_path: Path) -> None:
    trained = fold(tmp_path, model="convnext_tiny", layer_decay=0.8)
    trained.state.step = 1
    trained.step(torch.zeros(8, 32, 32, 3, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64))
    rates = [group["lr"] for group in trained.optimizer.param_groups]
    assert min(rates) / max(rates) == pytest.approx(0.8**12)
    state = trained.state
    assert max(rates) == pytest.approx(learning_rate(1, state.total, state.total / 5, trained.recipe.lr))


def test_a_batch_in_parts_is_the_whole_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randint(0, 256, (8, 32, 32, 3), dtype=torch.uint8)
    after = []
    for at_once in (100, 3):
        monkeypatch.setattr("podium.training.loop.micro_batch_limit", lambda *_, count=at_once: count)
        trained = fold(tmp_path / str(at_once), model="test_vit", drop_path=0.0, clip=0.0, mix=0.0)
        trained.step(images, torch.arange(8) % 4)
        after.append(torch.cat([each.grad.flatten() for each in trained.model.parameters() if each.grad is not None]))
    assert torch.allclose(after[0], after[1], atol=1e-6)
    assert after[0].abs().max() > 1e-4


def test_a_sharpness_aware_step_takes_another_way_and_the_batches_statistics_of_where_it_stands(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (8, 32, 32, 3), dtype=torch.uint8)
    plain, sharp = (fold(tmp_path / str(radius), model="test_resnet", sam=radius) for radius in (0.0, 0.5))
    for trained in (plain, sharp):
        trained.step(images, torch.arange(8) % 4)
    here, there = plain.model.state_dict(), sharp.model.state_dict()
    statistics = {name for name in here if name.endswith(("running_mean", "running_var", "num_batches_tracked"))}
    assert statistics
    assert {name for name in statistics if not torch.equal(here[name], there[name])} == set()
    moved = {name for name in here if not torch.equal(here[name], there[name])}
    assert "conv1.0.weight" in moved
    rate = plain.optimizer.param_groups[0]["lr"]
    assert all((here[name] - there[name]).abs().max() <= 2.1 * rate for name in moved)  # back from where it looked


def test_what_predicts_is_the_average_and_without_one_the_last_weights(tmp_path: Path) -> None:
    for share in (0.5, 0.0):
        trained = fold(tmp_path / str(share), model="resnet10t", ema=share)
        for _ in range(4):
            trained.step(torch.randint(0, 256, (8, 32, 32, 3), dtype=torch.uint8), torch.arange(8) % 4)
        last, final = trained.model.state_dict(), trained.final.state_dict()
        same = all(torch.equal(last[name], final[name]) for name in last)
        assert same == (share == 0)
        assert all(torch.isfinite(value).all() for value in final.values() if value.is_floating_point())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_whose_gradients_are_not_numbers_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    images, labels = torch.randint(0, 256, (8, 32, 32, 3), dtype=torch.uint8), torch.arange(8) % 4
    trained, gradient = fold(tmp_path, model="test_resnet", optimizer=optimizer), Fold.gradient
    trained.step(images, labels)
    before = {name: each.clone() for name, each in trained.model.state_dict().items()}

    def broken(self: Fold, *batch: torch.Tensor) -> torch.Tensor:
        loss = gradient(self, *batch)
        for weight in self.model.parameters():
            weight.grad = torch.full_like(weight, float("nan"))
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(Fold, "gradient", broken)
        trained.step(images, labels)
    assert trained.state.skipped.item() == 1
    assert all(torch.equal(each, before[name]) for name, each in trained.model.state_dict().items())
    trained.step(images, labels)
    assert not torch.equal(trained.model.state_dict()["conv1.0.weight"], before["conv1.0.weight"])


def test_muon_moves_all_directions_of_a_matrix_alike(tmp_path: Path) -> None:
    images, labels = torch.randint(0, 256, (8, 32, 32, 3), dtype=torch.uint8), torch.arange(8) % 4
    spread = {}
    for optimizer in OPTIMIZERS:
        trained = fold(tmp_path / optimizer, model="test_resnet", optimizer=optimizer, weight_decay=0.0)
        weight = dict(trained.model.named_parameters())["conv1.0.weight"]
        before = weight.detach().clone()
        trained.step(images, labels)
        lengths = torch.linalg.svdvals((weight.detach() - before).flatten(1))
        spread[optimizer] = (lengths[0] / lengths[-1]).item()
    assert spread["muon"] < 1.5 < 3 < spread["adamw"]


def test_a_mirrored_view_is_the_mean_of_both() -> None:
    class Left(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images[:, 0, 0, :1] * torch.tensor([[8.0, 0.0]])

    picture = torch.zeros(1, 4, 4, 3, dtype=torch.uint8)
    picture[:, :, 0] = 255
    normalise = Normaliser(replace(SPEC, mean=(0.0,) * 3, std=(1.0,) * 3), torch.device("cpu"))
    batch = [(picture, torch.zeros(1))]
    plain = predict_proba(Left(), batch, normalise, torch.float32, "none")
    both = predict_proba(Left(), batch, normalise, torch.float32, "mirror")
    assert plain[0, 0] > 0.99
    assert both[0, 0] == pytest.approx((plain[0, 0] + 0.5) / 2)


def test_views_are_what_they_are_called_and_combine() -> None:
    images = torch.arange(2 * 3 * 32 * 32, dtype=torch.float32).reshape(2, 3, 32, 32)
    for view, count in VIEWS.items():
        assert len(views_of(images, view)) == count == recipe(views=view).looks
    assert torch.equal(views_of(images, "mirror")[1], images.flip(3))
    assert torch.equal(views_of(images, "flip")[1], images.flip(2))
    assert torch.equal(views_of(images, "turn")[2], images.flip(2, 3))
    zoomed = views_of(images, "zoom")[1]
    assert zoomed.shape == images.shape
    assert torch.allclose(zoomed.mean((2, 3)), images.mean((2, 3)), rtol=1e-4)  # the same centre,
    assert (zoomed.amax((2, 3)) < images.amax((2, 3))).all()  # without the edges
    every = views_of(images, "mirror+flip+turn")
    assert len(every) == recipe(views="mirror+flip+turn").looks == 16
    assert len({view.numpy().tobytes() for view in every}) == 8  # a square has no more symmetries
    assert views_of(images, "none") == [images]


def test_views_and_the_size_of_prediction_have_defaults_that_fit() -> None:
    assert (recipe().views, recipe(mirror=0.0).views) == ("mirror", "none")
    assert recipe().test_size == 288  # as timm tests convnext_small
    assert recipe(image_size=320).test_size == 320  # a size for other images than those
    assert recipe(weights="none").test_size == 224
    assert recipe(test_size=256).test_size == 256
    for wrong in ("mirrored", "mirror+", "mirror+mirror", ""):
        with pytest.raises(PodiumError, match="--views must be none, or of mirror, flip, turn, zoom"):
            recipe(views=wrong)


def test_a_larger_picture_is_predicted_at_its_size() -> None:
    picture = np.random.default_rng(0).integers(256, size=(90, 90, 3), dtype=np.uint8)
    assert TestView(replace(SPEC, test_size=64))(picture).shape == (64, 64, 3)
