"""Measures whether fine-tuning beats its own frozen head in every kind of model, where no hub gives weights.

    python docs/measure_transfer.py ROOT [-c SLUG] [--models regnetx_002 ...] [--seeds 0 1 2] [--at-once 2]

ROOT holds a competition with folds, of one label an image. Its classes are dealt into two halves, by turns from the
largest class to the smallest. Each model is trained from scratch on the first half, which stands for pretraining. On
the second half, which it has never seen, a head is fitted to its frozen features, and it is fine-tuned with the
defaults of `podium train`. Prints the accuracy on fold 0. ROOT/measured-transfer holds everything; the same command
goes on.
"""

import argparse
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import torch

from podium.models.look_inside import modules_of
from podium.saved_runs.run_folder import Run

SIZE, BATCH = 64, 64
EPOCHS = 16  # of the first half
# A model of each kind that learns in minutes on a CPU. small_swin is timm's Swin with fewer and narrower layers.
MODELS = {
    "regnetx_002": (),
    "mobilenetv3_small_100": (),
    "resnet10t": (),
    "tf_efficientnet_lite0": (),
    "convnext_atto": ("--drop-path", "0"),
    "vit_tiny_r_s16_p8_224": (),
    "mobilevit_xxs": (),
    "small_swin": (),
}
SMALL_SWIN = """
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import generate_default_cfgs, register_model
from timm.models.swin_transformer import _create_swin_transformer

default_cfgs = generate_default_cfgs({
    "small_swin.untrained": {
        "input_size": (3, 64, 64), "fixed_input_size": True, "crop_pct": 0.9, "interpolation": "bicubic",
        "mean": IMAGENET_DEFAULT_MEAN, "std": IMAGENET_DEFAULT_STD,
        "first_conv": "patch_embed.proj", "classifier": "head.fc",
    },
})


@register_model
def small_swin(pretrained=False, **options):
    sizes = dict(patch_size=4, window_size=4, embed_dim=48, depths=(2, 2, 2), num_heads=(2, 4, 8))
    return _create_swin_transformer("small_swin", pretrained=pretrained, **dict(sizes, **options))
"""
FIRST, SECOND = "first-half", "second-half"


def main(root: Path, slug: str, models: list[str], seeds: list[int], at_once: int) -> None:
    project = root / "measured-transfer"
    prepare(root, slug, project)
    print("| model | kind | first half, from scratch | second half: frozen head | fine-tuned | lowest |")
    print("| --- " * 6 + "|", flush=True)
    with ThreadPoolExecutor(at_once) as pool:
        for row in pool.map(lambda model: measure(project, model, seeds, at_once), models):
            print(row, flush=True)


def prepare(root: Path, slug: str, project: Path) -> None:
    """Makes a competition of each half, with the folds of the whole."""
    raw = root / "data" / "raw" / slug
    folds = pd.read_csv(root / "data" / "prepared" / slug / "folds.csv", dtype=str)
    turns = {label: place % 2 for place, label in enumerate(folds["target"].value_counts().index)}
    for half, name in enumerate((FIRST, SECOND)):
        own_raw, prepared = project / "data" / "raw" / name, project / "data" / "prepared" / name
        if (prepared / "folds.csv").exists():
            continue
        for path in (own_raw, prepared):
            path.mkdir(parents=True, exist_ok=True)
        chosen = folds[folds["target"].map(turns) == half]
        for path in raw.iterdir():
            if path.name != "train.csv":
                (own_raw / path.name).symlink_to(path.resolve())
        chosen[["id", "target"]].to_csv(own_raw / "train.csv", index=False)
        chosen.to_csv(prepared / "folds.csv", index=False)
    (project / "small_swin.py").write_text(SMALL_SWIN)
    (project / "podium.toml").write_text('extend = "small_swin.py"\n')


def measure(project: Path, model: str, seeds: list[int], at_once: int) -> str:
    """Trains one model on both halves; returns a row of the table."""
    common = ("--model", model, "--image-size", str(SIZE), "--batch-size", str(BATCH), "--folds", "0", *MODELS[model])
    scratch = podium(project, at_once, FIRST, *common, "--weights", "none", "--epochs", str(EPOCHS), "--name", model)
    weights = scratch.fold_folder(0) / "model.safetensors"
    transferred = (*common, "--weights", str(weights))
    head = podium(project, at_once, SECOND, *transferred, "--linear", "--name", f"{model}-head")
    runs = [
        podium(project, at_once, SECOND, *transferred, "--seed", str(seed), "--name", f"{model}-{seed}")
        for seed in seeds
    ]
    tuned = [run.score(0, "accuracy") for run in runs]
    kind = modules_of(model).kind if model != "small_swin" else "swin"
    scores = (scratch.score(0, "accuracy"), head.score(0, "accuracy"), statistics.mean(tuned), min(tuned))
    return f"| {model} | {kind} | {' | '.join(f'{score:.4f}' for score in scores)} |"


def podium(project: Path, at_once: int, slug: str, *flags: str) -> Run:
    words = [sys.executable, "-m", "podium", "--root", str(project), "train", "-c", slug, *flags]
    threads = {} if at_once == 1 else {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // at_once))}
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **threads}, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stderr}")
    return Run(project / "runs" / slug / flags[-1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("-c", "--competition", dest="slug", default="boolart-image-classification")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default: %(default)s")
    parser.add_argument("--at-once", type=int, default=1, help="models side by side, each with its share of the cores")
    main(**vars(parser.parse_args()))
