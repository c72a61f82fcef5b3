"""An option that names a file: by that fact alone it is looked for, hashed, compared, and taken to other machines."""

import json
from pathlib import Path

import pytest

from extension_file import write_extension
from pictures import write_card
from podium.basics.errors import PodiumError
from podium.comparing.baseline import find_baseline
from podium.saved_runs.run_folder import Run
from tiny import FAST, Podium, assert_same_fold, done, one_line, run_of, stop_in_step

WEIGHTED = """
from pathlib import Path

from podium import extend
from podium.basics.errors import PodiumError


@extend.move
class Weighted(extend.Move):
    weights_of_classes: str = extend.knob(
        "a file with a weight for each class", off="", default="", why="there is none", is_file=True
    )

    def check_classes(self, classes):
        if list(self.weights()) != list(classes):
            raise PodiumError(f"the file has {', '.join(self.weights())}, and the classes are {', '.join(classes)}")

    def weights(self):
        lines = Path(self.weights_of_classes).read_text().splitlines()
        return {name: float(weight) for name, weight in map(str.split, lines)}

    def label_loss(self, loss, taught):
        return lambda logits, targets: loss(logits, targets) * self.weights()["red"]
"""
TEXT = "blue 1\ngreen 1\nlonely 1\nred 2\n"
TRAIN = ("train", *FAST, "--model", "test_vit", "--epochs", "2", "--folds", "0")


@pytest.fixture
def file(tiny: Path) -> Path:
    write_extension(tiny, WEIGHTED)
    path = tiny / "weights.txt"
    path.write_text(TEXT)
    return path


def test_it_is_refused_before_training_where_it_is_missing_or_does_not_suit_the_classes(
    file: Path, podium: Podium
) -> None:
    one_line(podium(*TRAIN, "--weights-of-classes", "no.txt"), "--weights-of-classes no.txt", "no such file", "leave")
    file.write_text(TEXT.replace("lonely", "lost"))
    message = one_line(podium(*TRAIN, "--weights-of-classes", file))
    assert "the file has blue, green, lost, red, and the classes are blue, green, lonely, red" in message


def test_a_run_resumes_with_its_content_from_any_place_and_with_no_other(file: Path, podium: Podium) -> None:
    root = file.parent
    done(podium(*TRAIN, "--weights-of-classes", file, "--name", "whole"))
    recipe = run_of(root, "whole").recipe
    assert (recipe["weights_of_classes"], len(recipe["weights_of_classes_sha256"])) == (str(file), 64)
    stop_in_step(podium, 1, *TRAIN, "--weights-of-classes", file, "--name", "stopped")
    moved = file.rename(root / "elsewhere.txt")
    done(podium(*TRAIN, "--weights-of-classes", moved, "--name", "stopped"))
    assert_same_fold(run_of(root, "whole"), run_of(root, "stopped"))
    moved.write_text(TEXT.replace("2", "3"))
    message = one_line(podium(*TRAIN, "--weights-of-classes", moved, "--name", "whole"))
    assert "the weights of classes changed" in message
    assert "elsewhere.txt" not in message
    assert "weights_of_classes was" in one_line(podium(*TRAIN, "--name", "whole"))
    done(podium(*TRAIN, "--weights-of-classes", moved, "--name", "other"))
    baseline = find_baseline(run_of(root, "other"), [run_of(root, "whole")])
    assert baseline is not None
    assert baseline.changes == ["the weights of classes"]


def test_its_hash_is_text(file: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--weights-of-classes", file))
    path = run_of(file.parent).path / "recipe.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "weights_of_classes_sha256": 5}))
    with pytest.raises(PodiumError, match="weights_of_classes_sha256 cannot be '5'"):
        _ = Run(path.parent).recipe


@pytest.mark.annex
def test_what_needs_it_and_does_not_find_it_says_so(file: Path, podium: Podium) -> None:
    from podium_annex.kaggle_machines.remote_train import refuse_files_of_card

    done(podium(*TRAIN, "--weights-of-classes", file))
    write_card(file.parent, f'[recipe]\nweights_of_classes = "{file}"\n')
    with pytest.raises(PodiumError, match="the file of the card's weights_of_classes is not on Kaggle's machines; x"):
        refuse_files_of_card("tiny", file.parent, "x")
    file.unlink()
    assert "there is no such file" in one_line(podium("verify", "test_vit", "-c", "tiny"))


@pytest.mark.annex
def test_a_cloud_gets_it_from_the_command_or_the_card(
    file: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    yaml = pytest.importorskip("yaml")
    monkeypatch.chdir(file.parent)
    done(podium(*TRAIN, "--weights-of-classes", file, "--on", "sky"))
    content = yaml.safe_load(Path("sky.yaml").read_text())
    (place,) = [there for there, here in content["file_mounts"].items() if here == str(file.resolve())]
    assert f"--weights-of-classes {place.removeprefix('~/project/')}" in content["run"]
    write_card(file.parent, f'[recipe]\nweights_of_classes = "{file.name}"\n')
    done(podium(*TRAIN, "--on", "sky"))
    mounts = yaml.safe_load(Path("sky.yaml").read_text())["file_mounts"]
    assert mounts[f"~/project/{file.name}"] == str(file.resolve())
