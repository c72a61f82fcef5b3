"""Trains tiny runs of every kind and writes the hashes of their files, to check that results stay identical.

    python tests/freeze.py FILE.json          writes the hashes, or compares with those that FILE.json holds

It uses the command line only, so it runs before and after modules move. Hashes can be compared on
one machine with one set of packages only.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # sums depend on the number of threads
os.environ["HF_HUB_OFFLINE"] = "1"

from tiny import write_competition

BASE = ("--weights", "none", "--image-size", "64", "--batch-size", "8", "--folds", "0", "--epochs", "3")
MIXED = ("--mix", "0.7", "--drop-path", "0.1")
RUNS: dict[str, tuple[str, ...]] = {
    "vit": ("--model", "test_vit", *MIXED),
    "vit-all-folds": ("--model", "test_vit", "--folds", "0,1", "--workers", "1"),
    "convnext": ("--model", "test_convnext", *MIXED, "--level", "strong"),
    "resnet": ("--model", "test_resnet", "--views", "mirror+zoom", "--fit", "squash"),  # batch norm
    "micro-batches": ("--model", "test_resnet", "--image-size", "224", "--batch-size", "36"),
    "muon": ("--model", "test_resnet", "--optimizer", "muon"),
    "sam": ("--model", "test_resnet", "--sam", "0.05"),
    "grow": ("--model", "test_resnet", "--grow", "0.6"),
    "teacher": ("--model", "test_vit", "--teacher", "vit+resnet"),
    "distilled": ("--model", "deit_tiny_distilled_patch16_224", "--teacher", "vit", "--epochs", "1"),
    "linear": ("--model", "test_vit", "--linear"),
    "linear-resnet": ("--model", "test_resnet", "--linear", "--norm", "frozen", "--image-size", "32"),
    "linear-convnext": ("--model", "test_convnext", "--linear", "--mirror", "0", "--precision", "float32"),
    "head-first": ("--model", "test_convnext", "--head-first"),
    "operators-of-timm": ("--model", "test_convnext", "--operators", "timm"),
    "float32": ("--model", "test_vit", "--precision", "float32", "--ema", "0", "--layer-decay", "0.7"),
    "from-a-file": ("--model", "test_vit", "--weights", "runs/tiny/vit/fold0/model.safetensors", "--seed", "5"),
    "finish": ("--model", "test_resnet", "--finish", "96:1"),
    "low-rank": ("--model", "test_vit", "--lora", "2"),
    "frozen": ("--model", "test_convnext", "--freeze", "0.3", "--layer-decay", "0.8"),
    "adapted": ("--model", "test_resnet", "--norm", "adapt", "--head-first", "--keep", "0.3"),
    "kept-statistics": ("--model", "test_resnet", "--norm", "frozen", "--level", "light"),
    "weighted": ("--model", "test_vit", "--class-weights", "effective", "--loss", "focal"),
    "adjusted": ("--model", "test_vit", "--adjust", "1", "--smoothing", "0"),
    "balanced": ("--model", "test_vit", "--balance", "0.5"),
    "angles": ("--model", "test_vit", "--head", "arcface", "--mix", "0"),
    "pooled": ("--model", "test_convnext", "--pool", "both"),
    "cleaned": ("--model", "test_resnet", "--clean", "soften"),
    "pseudo": ("--model", "test_vit", "--pseudo", "vit"),
    "further": ("--model", "test_vit", "--from", "vit", "--epochs", "1"),
    "region": ("--model", "test_vit", "--region", "border"),
    "two-processes": ("--model", "test_vit", "--processes", "2", "--parallel", "data", "--device", "cpu"),
    "two-folds": ("--model", "test_resnet", "--processes", "2", "--folds", "0,1", "--device", "cpu"),
}
SUBMISSIONS = {
    "one": ("--runs", "vit-all-folds"),
    "blend": ("--runs", "convnext", "resnet", "vit", "--name", "blend"),
    "convex": ("--runs", "convnext", "resnet", "vit", "--blend", "convex-calibrated", "--name", "convex"),
}
VARYING_KEYS = (
    "seconds",
    "validation_seconds",
    "images_per_s",
    "memory_mb",
)  # of an epoch's record: they depend on the clock


def podium(root: Path, *words: str) -> str:
    command = [sys.executable, "-m", "podium", "--root", ".", *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    return done.stdout


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def history_hash(path: Path) -> str:
    """Hashes the record of every epoch, without its times."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [{key: value for key, value in entry.items() if key not in VARYING_KEYS} for entry in entries]
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()


def hashes(root: Path) -> dict[str, str]:
    file_hashes = {}
    write_competition(root, per_class=24, test_images=19)
    podium(root, "audit", "-c", "tiny")
    podium(root, "folds", "-c", "tiny", "--k", "2")
    for name in ("audit.csv", "duplicates.csv", "folds.csv", "folds.json"):
        file_hashes[name] = sha256(root / "data" / "prepared" / "tiny" / name)
    for run, flags in RUNS.items():
        print(run, flush=True)
        podium(root, "train", "-c", "tiny", "--name", run, *BASE, *flags)
        for fold in sorted((root / "runs" / "tiny" / run).glob("fold*")):
            for name in ("model.safetensors", "oof.npz"):
                file_hashes[f"{run}/{fold.name}/{name}"] = sha256(fold / name)
            file_hashes[f"{run}/{fold.name}/metrics.jsonl"] = history_hash(fold / "metrics.jsonl")
    for name, words in SUBMISSIONS.items():
        csv = podium(root, "submit", "-c", "tiny", *words).splitlines()[-1]
        file_hashes[f"submission {name}"] = sha256(root / csv)
    return file_hashes


def main(file: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        current = hashes(Path(folder))
    if not file.exists():
        file.write_text(json.dumps(current, indent=2) + "\n")
        print(f"wrote {len(current)} hashes to {file}")
        return 0
    known = json.loads(file.read_text())
    changed = sorted(name for name in {*known, *current} if known.get(name) != current.get(name))
    for name in changed:
        print(f"CHANGED: {name}")
    print(f"{len(current) - len(changed)} of {len(known)} hashes are as before")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
