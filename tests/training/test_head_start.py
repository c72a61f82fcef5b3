"""Training of pretrained weights starts from a head that is fitted to the frozen features, and never below it."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from torch import nn

import bars
import marks
import several_labels as stripes
from by_array import targets_of
from podium.basics.errors import PodiumError
from podium.models.build import build_model, resolve_recipe
from podium.models.normalise import Normaliser
from podium.models.tensors import load_tensors
from podium.models.weight_packages import PACKAGES
from podium.options.layers.heads import output_layers
from podium.options.moves.kept_start import KeptStart
from podium.saved_runs.run_folder import Run
from podium.training import head_start, loop
from podium.training.head_start import adapt_statistics, start_head
from podium.training.linear_probe import Inner
from podium.training.plan import make_plan
from podium.training.request import Request, check_before_plan
from second_round import first_of
from tiny import FAST, Podium, assert_says, done, recipe_of, run_of
from training.learners import learner_of

LITE0 = PACKAGES[0].model
Words = tuple[object, ...]
SMALL = "test_efficientnet"
# Two epochs of three steps.
WORDS = (
    *("train", "-c", "tiny", "--image-size", "32", "--batch-size", "4", "--epochs", "2", "--keep", "0.3"),
    *("--folds", "0", "--device", "cpu", "--workers", "0"),
)
REAL = (*WORDS, "--model", LITE0)  # with real weights of ImageNet


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Words:
    """The same with a small model, whose weights are in a file."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "small.pt"
    torch.save(timm.create_model(SMALL).state_dict(), path)
    return (*WORDS, "--model", SMALL, "--weights", str(path))


def frozen_head_of(history: str) -> str:
    """Returns the scores that a run printed for its frozen head."""
    (line,) = [line for line in history.splitlines() if "  frozen head  loss" in line]
    return line


# --- every task --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slug", "write"),
    [
        (stripes.SLUG, partial(stripes.write_competition, as_tags=True)),
        pytest.param(stripes.SLUG, partial(stripes.write_competition, as_tags=False), marks=pytest.mark.all),
        (marks.SLUG, marks.write_competition),
        pytest.param(bars.SLUG, partial(bars.write_competition, columns=bars.COLUMNS["one"]), marks=pytest.mark.all),
        (bars.SLUG, partial(bars.write_competition, columns=bars.COLUMNS["two"])),
    ],
    ids=["tags", "columns of 0 and 1", "several targets", "a number", "two numbers"],
)
def test_training_starts_at_the_score_of_the_linear_run(
    tmp_path: Path, podium: Podium, slug: str, write: Callable[[Path], object]
) -> None:
    write(tmp_path)
    done(podium("folds", "-c", slug, "--k", "3"))
    words = ("train", "-c", slug, *FAST[2:], "--model", "test_resnet", "--folds", "0")
    done(podium(*words, "--linear", "--name", "linear"))
    done(podium(*words, "--head-first", "--epochs", "1", "--name", "tuned"))
    (linear,), tuned = (Run(tmp_path / "runs" / slug / name).history(0) for name in ("linear", "tuned"))
    assert [record.epoch for record in tuned] == [0, 1]
    assert tuned[0].scores == pytest.approx(linear.scores, abs=1e-3)
    assert tuned[0].loss == pytest.approx(linear.loss, abs=1e-3)


@pytest.mark.slow
def test_real_weights_start_at_the_score_of_the_linear_run(tiny: Path, podium: Podium) -> None:
    done(podium(*REAL, "--linear", "--name", "linear"))
    _, err = done(podium(*REAL, "--name", "tuned"))
    (linear,), tuned = run_of(tiny, "linear").history(0), run_of(tiny, "tuned").history(0)
    assert tuned[0].scores == pytest.approx(linear.scores, abs=1e-3)
    assert f"accuracy {linear.scores['accuracy']:.4f}" in frozen_head_of(err)
    assert tuned[0].loss <= math.log(4)


def test_the_model_says_what_the_fitted_head_says(tiny: Path) -> None:
    """The head is in the model, and in its average, before the first step."""
    learner = learner_of(tiny, model=LITE0, weights="pretrained")
    start_head(learner)
    images = torch.randint(0, 256, (4, 32, 32, 3), dtype=torch.uint8)
    inputs = learner.normalise(images)
    learner.model.eval()
    with torch.inference_mode():
        logits, averaged = learner.model(inputs), learner.trained_model.eval()(inputs)
    assert torch.equal(logits, averaged)
    assert logits.std() > 0.1


# --- where no head can be fitted ----------------------------------------------------------------------


# One small model of each family of timm.
FAMILIES = """
haloregnetz_b gernet_s cait_xxs24_224 coat_lite_tiny convit_tiny convnext_zepto_rms cpubone_nano
crossvit_tiny_240 csatv2 cs3darknet_focus_s cspnext_tiny deit_tiny_patch16_224 densenet121 dla46x_c dpn48b
edgenext_xx_small efficientformer_l1 efficientformerv2_s0 tinynet_e tf_efficientnet_lite0 efficientvim_m1
efficientvit_b0 efficientvit_m0 eva02_tiny_patch14_224 fasternet_t0 fastvit_t8 gcvit_xxtiny ghostnet_050
hardcorenas_a hgnetv2_b0 hrnet_w18_small iformer_t inception_next_atto lcnetv2_small levit_128s lowformer_b0
mambaout_femto maxvit_pico_rw_256 poolformer_s12 mixer_s32_224 mobilenetv3_small_050 mobilenetv4_conv_small
mobilevit_xxs nf_regnet_b0 pit_ti_224 pvt_v2_b0 regnetx_002 repghostnet_050 repvit_m0_9 res2net50_48w_2s
resnest14d resnet10t resnetv2_18 rexnet_100 legacy_seresnet18 shvit_s1 skresnet18 starnet_s050 swiftformer_xs
tiny_vit_5m_224 visformer_tiny vit_small_patch32_224 vit_tiny_r_s16_p8_224 ese_vovnet19b_slim_dw
xcit_nano_12_p16_224 test_vit test_convnext test_nfnet
"""
FIRST_FAMILIES = """
test_vit test_convnext test_nfnet resnet10t tf_efficientnet_lite0 mobilenetv3_small_050 levit_128s
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(FIRST_FAMILIES.split(), FAMILIES.split()))
def test_a_head_from_the_shares_of_the_classes_says_these_shares(name: str) -> None:
    """So the first loss is at most ln(classes), in every family."""
    torch.manual_seed(0)
    classes = ("a", "b", "c", "d", "e")
    size = timm.get_pretrained_cfg(name).input_size[-1]
    model, spec = build_model(recipe_of(name, image_size=size, drop_path=0.0), classes)
    images = Normaliser(spec, torch.device("cpu"))(torch.randint(256, (4, size, size, 3), dtype=torch.uint8))
    with torch.no_grad():
        standardise(model, images)
        head_start.set_head_to(model, torch.zeros(len(classes)))
        loss = F.cross_entropy(model.eval()(images), torch.arange(4))
    assert loss < math.log(5) + 0.01
    assert output_layers(model, len(classes))


def standardise(model: nn.Module, images: torch.Tensor) -> None:
    """Gives batch norm the statistics of these images, as pretrained weights have those of theirs."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = 1.0
    model.train()(images)


def test_a_model_whose_head_cannot_be_fitted_starts_from_the_shares(tiny: Path, podium: Podium) -> None:
    words = ("--model", "efficientvim_m1", "--head-first", "--folds", "0", "--epochs", "1", "--drop-path", "0")
    _, err = done(podium("train", *FAST, *words))
    assert "its head starts from the shares of the classes" in err
    assert [record.epoch for record in run_of(tiny, "efficientvim_m1").history(0)] == [1]


def test_without_a_fitted_head_the_shares_are_the_start(tiny: Path) -> None:
    learner = learner_of(tiny, model=LITE0, weights="pretrained", head_first=False)
    start_head(learner)
    learner.model.eval()
    with torch.inference_mode():
        images = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8)
        probs = learner.model(learner.normalise(images)).softmax(1)
    labels = learner.context.images.targets[learner.context.images.training_rows(0)]
    shares = torch.from_numpy((labels.counts(4) + 1.0) / (len(labels) + 4)).float()
    assert torch.allclose(probs, shares.expand(2, 4), atol=0.01)


def test_from_scratch_the_head_is_timm_s(tiny: Path) -> None:
    learner = learner_of(tiny, model="test_resnet")
    before = [parameter.clone() for parameter in learner.model.parameters()]
    start_head(learner)
    assert all(map(torch.equal, before, learner.model.parameters()))


# --- what a run does with it --------------------------------------------------------------------------


@pytest.mark.slow
def test_the_final_weights_keep_a_share_of_the_start(
    tiny: Path, podium: Podium, small: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "loss_on_training_images", lambda learner, model: 0.0)
    states = []
    for share in ("0", "0.3", "0.95"):
        done(podium(*small, "--lr", "0.001", "--keep", share, "--name", f"keep-{share}"))
        states.append(load_tensors(run_of(tiny, f"keep-{share}").weights_path(0))[0])
    trained, between, near = states  # the training itself is the same
    moved = [name for name, tensor in trained.items() if not torch.equal(tensor, near[name])]
    assert len(moved) > 40
    for name in moved:
        start = (near[name] - 0.05 * trained[name]) / 0.95
        assert torch.allclose(between[name], 0.7 * trained[name] + 0.3 * start, atol=1e-4), name


def test_no_share_of_the_start_is_kept_beyond_a_barrier() -> None:
    def weight(value: float) -> nn.Linear:
        layer = nn.Linear(1, 1)
        nn.init.constant_(layer.weight, value)
        return layer

    def weight_of(layer: nn.Module) -> float:
        (value,) = layer.state_dict()["weight"].flatten().tolist()
        return float(value)

    def valley(layer: nn.Module) -> float:
        return (weight_of(layer) - 0.4) ** 2

    def barrier(layer: nn.Module) -> float:
        return 2 - valley(layer)

    def overflow(layer: nn.Module) -> float:
        return math.inf if layer is kept.between else 1.0

    kept, trained = KeptStart(weight(-1), 0.25), weight(1)
    chosen, share = kept.choose(trained, valley)
    assert (weight_of(chosen), share) == (0.5, 0.25)
    for is_worse in (barrier, overflow, lambda layer: math.inf):
        kept.set(weight(0))
        assert kept.choose(trained, is_worse) == (trained, 0)
    kept.set(weight(0))
    assert kept.choose(trained, lambda layer: 0.1) == (kept.between, 0.25)  # rounding does not decide


@pytest.mark.slow
def test_a_run_says_that_it_keeps_nothing(
    tiny: Path, podium: Podium, small: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeptStart, "choose", lambda kept, trained, loss_of: (trained, 0.0))
    _, err = done(podium(*small, "--name", "kept"))
    assert "fold 0 keeps nothing of its start (--keep 0.3)" in err
    assert [record.kept for record in run_of(tiny, "kept").history(0)] == [None, 0, 0]


def test_nothing_is_kept_where_statistics_of_batch_norm_change_or_no_head_was_fitted(tiny: Path) -> None:
    def keep(model: str, **options: object) -> float:
        plan = make_plan(check_before_plan("tiny", tiny, Request({"model": model, **options})))
        return float(plan.recipe.keep)

    assert keep(LITE0) == 0.2
    assert keep(LITE0, norm="train", keep=0.3) == 0.3
    assert keep(LITE0, norm="train") == keep(LITE0, head_first=False) == keep(LITE0, weights="none") == 0
    with pytest.raises(PodiumError, match=r"--keep 0\.3 needs a fitted head to start from"):
        keep(LITE0, head_first=False, keep=0.3)
    assert keep("auto", keep=0.3) == 0  # it is from scratch until the look at the images has chosen
    by_attention = [
        resolve_recipe({"model": name}, {}).keep for name in ("vit_tiny_patch16_224", "xcit_nano_12_p16_224")
    ]
    assert by_attention == [0.5, 0]  # the second has batch norm, too


@pytest.mark.slow
def test_a_student_and_a_longer_run_start_from_a_head_too(tiny: Path, podium: Podium, small: Words) -> None:
    done(podium(*small, "--name", "teacher"))
    _, err = done(podium(*small, "--name", "student", "--teacher", "teacher"))
    assert "frozen head" in err
    _, err = done(podium("train", "-c", "tiny", "--workers", "0", "--epochs", "1", "--from", "teacher"))
    assert "frozen head" not in err  # it goes on with the head that it has
    more = run_of(tiny, "teacher-more")
    start, _ = more.history(0)
    assert start.scores == run_of(tiny, "teacher").history(0)[-1].scores


@pytest.mark.slow
def test_a_run_below_the_frozen_head_says_so_with_the_remedy(
    tiny: Path, podium: Podium, small: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, err = done(podium(*small, "--epochs", "3", "--lr", "1", "--warmup", "0", "--name", "wild"))
    (warning,) = [line for line in err.splitlines() if "worse than the frozen head's" in line]
    assert all(remedy in warning for remedy in ("--lr", "--freeze", "--linear"))
    _, err = done(podium(*small, "--epochs", "3", "--lr", "1e-9", "--name", "calm"))
    assert "worse than the frozen head's" not in err


@pytest.mark.slow
def test_where_the_head_leaves_little_the_rate_is_low_unless_one_is_given(
    tiny: Path, podium: Podium, small: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inner, "leaves_little", lambda *_: True)
    _, err = done(podium(*small, "--name", "low"))
    assert "leaves little to learn, so the learning rate is" in err
    low = run_of(tiny, "low")
    start, *_, last = low.history(0)
    assert start.lr == pytest.approx(head_start.CAUTIOUS * low.recipe["lr"], rel=1e-2)
    assert last.lr <= start.lr
    done(podium(*small, "--name", "given", "--lr", "0.001"))
    assert run_of(tiny, "given").history(0)[0].lr == 0.001


@pytest.mark.slow
def test_few_steps_of_a_net_with_batch_norm_have_a_lower_rate_unless_one_is_given(
    tiny: Path, podium: Podium, small: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inner, "leaves_little", lambda *_: False)
    _, err = done(podium(*small, "--name", "few"))
    few = run_of(tiny, "few")
    start, *_, last = few.history(0)
    assert f"it makes only {last.step} steps, so the learning rate is {start.lr} instead of" in err
    assert start.lr == pytest.approx(few.recipe["lr"] * last.step / head_start.FEW_STEPS, rel=1e-2)
    for name, epochs in {"fewer": 1, "more": 5}.items():  # what goes on has a rate for its own steps
        words = ("--workers", "0", "--epochs", epochs, "--from", "few", "--name", name)
        done(podium("train", "-c", "tiny", *words))
        own = run_of(tiny, name)
        first, *_, end = own.history(0)
        assert first.lr == pytest.approx(own.recipe["lr"] * min(1, end.step / head_start.FEW_STEPS), rel=1e-2)
    done(podium(*small, "--name", "given", "--lr", "0.001"))
    assert run_of(tiny, "given").history(0)[0].lr == 0.001


@pytest.mark.slow
def test_a_run_that_goes_on_takes_over_the_low_rate_and_is_compared_with_its_start(
    tiny: Path, podium: Podium, small: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inner, "leaves_little", lambda *_: True)
    done(podium(*small, "--name", "low"))
    more = ("train", "-c", "tiny", "--workers", "0", "--epochs", "1", "--from", "low")
    _, err = done(podium(*more, "--name", "calm"))
    rate = run_of(tiny, "low").history(0)[0].lr
    assert run_of(tiny, "calm").history(0)[0].lr == pytest.approx(rate, rel=1e-2)
    assert_says(err, f"the learning rate is {rate:.3g} instead", "--lr")
    _, err = done(podium(*more, "--name", "wild", "--lr", "0.1", "--warmup", "0"))
    assert run_of(tiny, "wild").history(0)[0].lr == 0.1
    (warning,) = [line for line in err.splitlines() if "worse than" in line]
    assert all(words in warning for words in ("run low", "--lr", "--name"))


@pytest.mark.slow
def test_a_run_goes_on_from_one_whose_records_are_lost(tiny: Path, podium: Podium, small: Words) -> None:
    done(podium(*small, "--folds", "0", "--name", "first"))
    lost = run_of(tiny, "first").fold_folder(0) / "metrics.jsonl"
    lost.unlink()
    _, err = done(podium("train", "-c", "tiny", "--workers", "0", "--epochs", "1", "--from", "first"))
    (warning,) = [line for line in err.splitlines() if str(lost) in line]
    assert "--lr" in warning
    assert [record.epoch for record in run_of(tiny, "first-more").history(0)] == [1]


def test_a_head_leaves_little_if_it_is_wrong_about_few_images_or_its_loss_is_small() -> None:
    targets, prior = np.arange(200) % 2, np.full((200, 2), 0.5, np.float32)

    def inner(mistakes: int, sure: float = 0.95) -> Inner:
        probs = np.where(np.arange(2) == targets[:, None], sure, 1 - sure).astype(np.float32)
        probs[:mistakes] = probs[:mistakes, ::-1]
        return Inner(targets_of(targets), probs, prior)

    assert inner(4).leaves_little("log_loss", 1_000)  # twenty mistakes
    assert not inner(6).leaves_little("log_loss", 1_000)
    assert not inner(4).leaves_little("log_loss", 2_000)
    assert inner(0, sure=0.999).leaves_little("log_loss", 10**9)
    rare = (np.arange(200) == 0).astype(int)
    shares = np.tile(np.array([0.995, 0.005], np.float32), (200, 1))
    assert not Inner(targets_of(rare), shares, shares).leaves_little("log_loss", 1_000)  # a head that knows nothing


# --- batch norm and frozen layers ----------------------------------------------------------------------


def test_adapted_statistics_are_those_of_the_training_images(tiny: Path) -> None:
    learner = learner_of(tiny, model=LITE0, weights="pretrained", norm="adapt", mirror=0.0)
    first = next(module for module in learner.model.modules() if isinstance(module, nn.BatchNorm2d))
    seen: list[torch.Tensor] = []
    first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    adapt_statistics(learner)
    values = torch.cat(seen).float()
    assert (
        len(values)
        == len(learner.context.images.training_rows(0)) // 8 * 8 + len(learner.context.images.training_rows(0)) % 8
    )
    batches = torch.stack([part.float().mean((0, 2, 3)) for part in seen]).mean(0)
    assert torch.allclose(first.running_mean, batches, atol=1e-4)  # type: ignore[arg-type]
    assert not first.training


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["train", "frozen"])
def test_the_statistics_of_batch_norm_change_only_in_training_them(
    tiny: Path, podium: Podium, small: Words, norm: str
) -> None:
    done(podium(*small, "--norm", norm, "--keep", "0", "--name", norm))
    trained = load_tensors(run_of(tiny, norm).fold_folder(0) / "model.safetensors")[0]
    pretrained = torch.load(str(small[-1]))
    is_same = torch.equal(trained["bn1.running_mean"], pretrained["bn1.running_mean"])
    assert is_same == (norm == "frozen")
    assert not torch.equal(trained["bn1.weight"], pretrained["bn1.weight"])  # which are learned in both


@pytest.mark.slow
def test_frozen_layers_stay_as_they_are(tiny: Path, podium: Podium, small: Words) -> None:
    done(podium(*small, "--freeze", "0.5", "--name", "half"))
    trained = load_tensors(run_of(tiny, "half").fold_folder(0) / "model.safetensors")[0]
    pretrained = torch.load(str(small[-1]))
    same = [name for name in pretrained if name.startswith("blocks") and torch.equal(trained[name], pretrained[name])]
    assert "blocks.0.0.conv.weight" in same
    assert torch.equal(trained["conv_stem.weight"], pretrained["conv_stem.weight"])
    assert "blocks.4.0.conv_pw.weight" not in same
