"""The library: what `import podium` offers. docs/api.md has an example of every name, which test_docs.py runs."""

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pytest
import torch
from sklearn.datasets import load_digits

import podium
from templates import template
from tiny import one_trained_run, write_competition

anyhow: Any = podium  # a checker of types would refuse these calls
OPTIONS: dict[str, Any] = {"weights": "none", "image_size": 32, "batch_size": 8, "epochs": 1}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a run of one of two folds."""
    root = tmp_path_factory.mktemp("library")
    return Path(shutil.copytree(template(one_trained_run), root, dirs_exist_ok=True))


def test_importing_podium_imports_nothing_heavy() -> None:
    code = "import sys, podium; dir(podium); print([m for m in ('numpy', 'pandas', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_name_is_there_and_others_are_refused() -> None:
    assert set(podium.__all__) <= set(dir(podium))
    for name in podium.__all__:
        assert getattr(podium, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'learner'"):
        podium.learner  # noqa: B018


def test_a_room_of_another_name_never_hides_a_function(root: Path) -> None:
    import podium.submissions.submission

    assert callable(podium.submit)
    assert callable(podium.train)


def test_a_competition_shows_itself_in_a_line_and_takes_text_as_root(root: Path) -> None:
    competition = podium.load("tiny", str(root))
    assert repr(competition) == "<podium.Competition tiny: 25 training images, 7 test images, 4 classes, accuracy>"
    assert competition != podium.load("tiny", root)
    assert competition.folder.is_absolute()  # a notebook may change the current folder


@pytest.mark.slow
def test_the_sample_is_written_if_it_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scans, labels = load_digits(return_X_y=True)
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda **_: (scans[:220], labels[:220]))
    digits = podium.load("sample", tmp_path)
    assert sorted(digits.folds()["fold"].unique()) == [0, 1, 2]
    assert digits.folds(k=2)["fold"].nunique() == 2
    capsys.readouterr()
    assert podium.load("sample", tmp_path).folds()["fold"].nunique() == 2  # what is there is kept
    assert "digits" not in capsys.readouterr().err


def test_the_audit_and_the_images_are_those_of_training(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    competition = podium.load("tiny", root)
    audited = competition.audit()
    assert "duplicates" in capsys.readouterr().out
    train = audited[audited["role"] == "train"]
    assert list(train["id"]) == list(competition.train["id"])
    first, second = competition.train["image"].head(2)
    pixels = competition.pixels(first)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (*train.loc[0, ["height", "width"]], 3)
    options: dict[str, Any] = {"image_size": 32, "mirror": 0.0, "colour": 0.0}
    seen = competition.augmented([first, second], "test_vit", epochs=2, **options)
    assert [[image.shape for image in images] for images in seen] == 2 * [3 * [(32, 32, 3)]]
    (again,) = competition.augmented([second], "test_vit", epochs=2, **options)
    assert all((one == other).all() for one, other in zip(seen[1], again, strict=True))
    assert (again[1] != again[2]).any()
    with pytest.raises(podium.PodiumError, match="no option 'bs'"):
        competition.augmented([first], "test_vit", bs=8)


def test_folds_are_read_and_made(tmp_path: Path) -> None:
    write_competition(tmp_path)
    competition = podium.load("tiny", tmp_path)
    assert competition.folds()["fold"].nunique() == 6  # five, and -1 for the class of one image
    folds = competition.folds(k=2)
    assert list(folds.columns) == ["id", "target", "fold", "group"]
    pd.testing.assert_frame_equal(folds, competition.folds())
    assert list(folds["id"]) == list(competition.train["id"])


def test_folds_that_a_run_was_trained_on_are_protected(root: Path) -> None:
    with pytest.raises(podium.PodiumError, match="test_vit"):
        podium.load("tiny", root).folds(k=3)


def test_a_run_is_trained_and_read(root: Path) -> None:
    competition = podium.load("tiny", root)
    run = podium.train(competition, "test_vit", name="mine", machine=podium.Machine(workers=0), **OPTIONS)
    assert repr(run).startswith("<podium.Run mine: 2 of 2 folds, accuracy ")
    held_out = run.held_out()
    assert list(held_out.columns) == ["id", "target", "fold", *competition.classes]
    truth = competition.train.set_index("id")["target"]
    assert (held_out.set_index("id")["target"] == truth[held_out["id"]]).all()
    assert held_out["fold"].nunique() == 2
    np.testing.assert_allclose(held_out[list(competition.classes)].sum(axis=1), 1, rtol=1e-5)
    assert {"mine", "test_vit"} <= {other.name for other in podium.runs(competition)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: podium.load("../x", c.root), "the name of a competition"),
        (
            lambda c: podium.load(3, c.root),  # type: ignore[arg-type]
            "the name of a competition",
        ),
        (
            lambda c: podium.train(7, "test_vit"),  # type: ignore[arg-type]
            "the first argument is a competition or its name",
        ),
        (lambda c: podium.train(c, "test_vit", name="../x", **OPTIONS), "the name of a run cannot be '../x'"),
        (
            lambda c: podium.train(c, "test_vit", folds="0", **OPTIONS),  # type: ignore[arg-type]
            "folds must be numbers",
        ),
        (lambda c: podium.train(c, "test_vit", folds=7, **OPTIONS), "no fold 7"),
        (lambda c: podium.train(c, "test_vit", budget="soon", **OPTIONS), "budget must be a time such as '8h'"),
        (lambda c: podium.train(c, "test_vit", learning_rate=1e-3), "no option 'learning_rate'; it is lr here"),
        (lambda c: podium.train(c, "test_vit", bs=8), "no option 'bs'; it is batch_size here"),
        (lambda c: podium.train(c, "test_vit", fold=0), "no option 'fold'; it is folds here"),
        (lambda c: podium.train(c, "test_vit", dropout=0.1), "fine-tuning .*: drop_path"),
        (lambda c: podium.train(c, "test_vit", device="cpu"), "it is an argument of podium.Machine"),
        (lambda c: podium.train(c, "test_vit", machine="gpu", **OPTIONS), "choose auto, cpu, cuda"),
        (lambda c: podium.Machine(workers=-1), "workers must be a number of processes"),
        (lambda c: podium.Machine(parallel="x"), "parallel must be auto, data or folds"),
        (lambda c: podium.submit(c, blend="average"), "no blending strategy 'average'"),
        (lambda c: podium.submit(c, name="a/b"), "the name of a submission cannot be 'a/b'"),
        (lambda c: podium.submit(c, []), "no runs were given"),
        (lambda c: anyhow.submit(c, 7), "runs must be runs or their names, not 7"),
        (lambda c: anyhow.submit(c, ["test_vit", None]), "runs must be runs or their names, not None"),
        (lambda c: anyhow.submit(c, except_=3.5), "except_ must be runs or their names"),
        (lambda c: anyhow.submit(c, "test_vit", except_="test_vit"), "runs and except_ .*; give one of them"),
        (lambda c: anyhow.submit(c, except_="test_vot"), "no run 'test_vot'"),
        (lambda c: anyhow.submit(c, name=7), "name must be text, not 7"),
        (lambda c: anyhow.submit(c, blend=["equal"]), "blend must be text"),
        (lambda c: anyhow.submit(c, decision=["none"]), "decision must be text"),
        (lambda c: anyhow.submit(c, decision="wrong"), "no decision 'wrong'; there are auto, none"),
        (lambda c: anyhow.submit(c, cost=5), "cost must be the path of a CSV"),
        (lambda c: anyhow.submit(c, cost="costs.csv"), "costs.csv"),
        (lambda c: anyhow.submit(c, machine=2), "machine must be a podium.Machine"),
        (lambda c: anyhow.submit(c, excepts="a"), "unexpected keyword argument 'excepts'; did you mean except_?"),
        (lambda c: anyhow.submit(), "missing a required argument: 'competition'; the arguments are competition, runs"),
        (lambda c: anyhow.submit(c, probs={}, name="x"), "probs must be a data frame .*as podium.frame returns it"),
        (lambda c: anyhow.submit(c, probs=podium.frame(c)), "probs become a run; give it a name"),
        (lambda c: anyhow.submit(c, probs=podium.frame(c, "test_vit"), name="x"), "no row for the training image"),
        (lambda c: anyhow.submit(c, probs=podium.frame(c), except_="test_vit", name="x"), "probs and except_"),
        (lambda c: anyhow.compare(c, run="test_vit"), "podium.compare: .*'run'; did you mean runs?"),
        (lambda c: podium.frame(c, except_=podium.runs(c)), "leave out fewer runs"),
        (lambda c: anyhow.train(c), "podium.train: missing a required argument: 'model'"),
        (lambda c: podium.runs(c, "test_vot"), "no run 'test_vot'"),
        (lambda c: podium.runs(c, "test_vit")[0].model(7), "fold 7 of .* is not trained; its finished folds are 0"),
        (lambda c: podium.runs(c, "test_vit")[0].score(0, "f1"), "no metric 'f1'"),
        (lambda c: podium.runs(c, "test_vit")[0].predict(None), "images must be files, folders or arrays"),
        (lambda c: podium.Run(Path("runs/nothing")).held_out(), "a fold of runs/nothing is not trained"),
        (lambda c: c.folds(seed="a"), "seed must be a whole number"),
    ],
)
def test_a_wrong_call_is_answered_in_a_sentence(root: Path, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(podium.PodiumError, match=message):
        call(podium.load("tiny", root))


def test_a_notebook_shows_the_sentence_of_a_mistake_alone() -> None:
    assert podium.PodiumError("no run 'x'")._render_traceback_() == ["PodiumError: no run 'x'"]


def test_timm_gives_the_transform_that_the_model_expects(root: Path) -> None:
    from timm.data import create_transform, resolve_model_data_config

    (run,) = podium.runs(podium.load("tiny", root), "test_vit")
    model = run.model()
    transform = create_transform(**resolve_model_data_config(model), is_training=False)
    files = sorted((root / "data/raw/tiny/test_image").iterdir())
    with torch.inference_mode():
        logits = model(torch.stack([transform(PIL.Image.open(file)) for file in files]))
    theirs = [run.classes[number] for number in logits.argmax(1)]
    assert np.mean(np.array(theirs) == run.predict(files)["prediction"]) > 0.8


def turned(image: PIL.Image.Image, path: Path) -> Path:
    """Saves the image on its side, with the EXIF note that turns it upright."""
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    image.transpose(PIL.Image.Transpose.ROTATE_90).save(path, exif=exif, quality=100, subsampling=0)
    return path


def test_a_model_reads_images_as_training_did(root: Path, tmp_path: Path) -> None:
    (run,) = podium.runs(podium.load("tiny", root), "test_vit")
    file = min((root / "data/raw/tiny/test_image").iterdir())
    pixels = np.zeros((40, 40, 3), np.uint8)
    pixels[:20], pixels[20:, :20] = (220, 30, 30), (30, 30, 220)  # what is up and what is left differ
    sideways = turned(PIL.Image.fromarray(pixels), tmp_path / "sideways.jpg")
    images = run.read([file, pixels, sideways])
    assert images.shape == (3, 3, 32, 32)
    torch.testing.assert_close(images[1], images[2], atol=0.1, rtol=0)
    with torch.inference_mode():
        probs = run.model()(images).softmax(1).numpy()
    np.testing.assert_allclose(probs, run.predict([file, pixels, sideways])[list(run.classes)], atol=0.05)  # bfloat16
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(podium.PodiumError, match=r"broken\.jpg cannot be read"):
        run.read([file, tmp_path / "broken.jpg"])


def test_timm_loads_an_exported_model_without_podium(root: Path, tmp_path: Path) -> None:
    (run,) = podium.runs(podium.load("tiny", root), "test_vit")
    file = run.export(tmp_path / "model.safetensors")
    np.save(tmp_path / "images.npy", run.read(root / "data/raw/tiny/test_image").numpy())
    program = """
        import json, sys
        import numpy as np, timm, torch
        from safetensors import safe_open

        with safe_open(sys.argv[1], "pt") as opened:
            about = json.loads(opened.metadata()["timm"])
        model = timm.create_model(**about["create_model"], checkpoint_path=sys.argv[1]).eval()
        timm.data.create_transform(**about["transform"])
        assert "podium" not in sys.modules
        with torch.inference_mode():
            probs = model(torch.from_numpy(np.load("images.npy"))).softmax(1)
        print(json.dumps([about["classes"], probs.tolist(), about["outputs"]]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), file], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    classes, probs, outputs = json.loads(done.stdout)
    assert (tuple(classes), outputs) == (run.classes, "softmax")
    with torch.inference_mode():
        expected = run.model()(run.read(root / "data/raw/tiny/test_image")).softmax(1).numpy()
    np.testing.assert_allclose(probs, expected, atol=1e-6)
    for name, reason in (("model.pt", "ending"), ("no/model.safetensors", "a folder that exists")):
        with pytest.raises(podium.PodiumError, match=reason):
            run.export(tmp_path / name)


def test_images_may_be_a_table_or_relative_to_the_competition(root: Path) -> None:
    competition = podium.load("tiny", root)
    (run,) = podium.runs(competition, "test_vit")
    whole = run.predict([competition.folder / image for image in competition.test["image"]])
    pd.testing.assert_frame_equal(run.predict(competition.test), whole)
    pd.testing.assert_frame_equal(run.predict(list(competition.test["image"])), whole)
    with pytest.raises(podium.PodiumError, match=r"nowhere\.png: no such file"):
        run.predict("nowhere.png")


def test_images_may_lie_in_any_folder(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    write_competition(elsewhere)
    images = elsewhere / "data/raw/tiny"
    competition = podium.load("mine", project, folder=images)
    assert list(competition.train["id"]) == list(podium.load("tiny", elsewhere).train["id"])
    assert len(podium.load("mine", project, folder=images).train) == len(competition.train)
    with pytest.raises(podium.PodiumError, match="exists already"):
        podium.load("mine", project, folder=elsewhere)
    with pytest.raises(podium.PodiumError, match="no such folder"):
        podium.load("other", project, folder=tmp_path / "nowhere")


def test_a_class_may_have_the_name_of_a_column(tmp_path: Path) -> None:
    write_competition(tmp_path)
    table = tmp_path / "data/raw/tiny/train.csv"
    table.write_text(table.read_text().replace("green", "fold"))
    run = podium.train(podium.load("tiny", tmp_path), "test_vit", folds=0, **OPTIONS)
    held_out = run.held_out()
    assert set(held_out["fold"]) == {0}
    assert "class fold" in held_out


def test_folds_to_train_are_numbers(root: Path) -> None:
    competition = podium.load("tiny", root)
    run = podium.train(competition, "test_vit", folds=1, name="second", **OPTIONS)
    assert run.finished() == [1]


def test_a_run_gives_its_model_its_features_and_predictions(root: Path) -> None:
    (run,) = podium.runs(podium.load("tiny", root), ["test_vit"])
    assert not run.model().training
    files = sorted((root / "data/raw/tiny/test_image").iterdir())
    features = run.features([*files, root / "solution.csv"])
    assert features.shape == (8, run.model().num_features)
    assert np.isfinite(features[:7]).all()
    assert np.isnan(features[7]).all()  # it is no image
    frame = run.predict(files)
    assert list(frame.columns) == ["image", "prediction", "blue", "green", "lonely", "red"]
    assert frame["prediction"].isin(["blue", "green", "lonely", "red"]).all()


def test_what_is_compared_and_submitted_may_be_runs_or_names(root: Path) -> None:
    competition = podium.load("tiny", root)
    (run,) = podium.runs(competition, ["test_vit"])
    assert list(podium.compare(competition, [run])["run"]) == ["test_vit"]
    csv = podium.submit(competition, ["test_vit"], name="by-name", anyway=True)
    again = podium.submit(competition, [run], name="by-run", anyway=True)
    assert csv.read_bytes() == again.read_bytes()


def test_what_is_submitted_may_be_left_out_or_decided_as_on_the_command_line(root: Path) -> None:
    competition = podium.load("tiny", root)
    others = [run.name for run in podium.runs(competition) if run.name != "test_vit"]
    names = set(podium.compare(competition, except_=others)["run"])
    assert names == set(podium.frame(competition, except_=others)["run"]) == {"test_vit"}
    options: dict[str, Any] = {"except_": others, "anyway": True} if others else {"anyway": True}
    costs = root / "costs.csv"
    classes = list(competition.classes)
    pd.DataFrame(1.0 - np.eye(4), classes, classes).assign(red=0.0).to_csv(costs, index_label="true")
    assert set(pd.read_csv(podium.submit(competition, cost=costs, name="cheap", **options))["predict"]) == {"red"}
    csv = podium.submit(competition, decision="none", name="undecided", **options)
    assert "decision" not in json.loads(csv.with_suffix(".json").read_text())


def test_a_table_of_predictions_is_submitted_and_rebuilt(root: Path) -> None:
    from podium.submissions.lineage import read_lineage
    from podium.submissions.rebuild_submission import rebuild

    competition = podium.load("tiny", root)
    predicted = podium.frame(competition, "test_vit").drop(columns="run")
    predicted[list(competition.classes)] += 0.1
    held_out = predicted[predicted["role"] == "train"]
    missing = competition.folds()
    missing = missing[(missing["fold"] >= 0) & ~missing["id"].isin(held_out["id"])]
    rest = missing[["id", "fold"]].assign(role="train", **dict.fromkeys(competition.classes, 0.25))
    probs = pd.concat([predicted, rest], ignore_index=True)
    csv = podium.submit(competition, probs=probs, name="by-hand", anyway=True)
    assert podium.submit(competition, probs=probs, name="by-hand", anyway=True) == csv  # the cell is run again
    (run,) = read_lineage(csv).content["runs"]
    assert (run["run"], run["recipe"]["imported"]["folds"]) == ("by-hand", "same")
    both = podium.submit(competition, "test_vit", probs=probs, name="by-hand", blend="equal", anyway=True)
    assert [run["run"] for run in read_lineage(both).content["runs"]] == ["by-hand", "test_vit"]
    content = csv.read_bytes()
    csv.unlink()
    assert rebuild(competition, read_lineage(csv.with_suffix(".json"))).read_bytes() == content
    with pytest.raises(podium.PodiumError, match="choose another name"):
        podium.submit(competition, probs=probs.assign(red=0.5), name="by-hand")
