"""Flags of other programs, and what Podium has in their place: for the error message of an unknown flag."""

import re

from podium.options.recipe import KNOBS, flag_of
from podium.options.removed_options import why_gone

# timm's train.py, Hugging Face's example, Lightning, fastai and Kaggle notebooks use these words.
FLAGS = {
    "--track": ("wandb", "log-wandb", "report-to", "tensorboard", "mlflow", "logger"),
    "--workers": ("num-workers", "dataloader-num-workers", "jobs"),
    "--threads": ("num-threads", "omp-num-threads", "nthreads", "n-jobs", "cpus"),
    "--processes": ("gpus", "num-gpus", "nproc-per-node", "world-size"),
    "--device": ("gpu", "cuda", "cpu", "accelerator"),
    "--folds": ("fold", "val-fold"),
    "--name": ("experiment", "output", "output-dir", "run-name", "exp", "run"),
    "--seeds": ("num-seeds", "n-seeds"),
    "--budget": ("time-limit", "max-time", "time"),
    "--compile": ("torchcompile", "torch-compile"),
    "--deterministic": ("reproducible",),
    "--save-every": ("save-steps", "checkpoint-every", "recovery-interval"),
    "--runs": ("models", "ensemble"),
}

COMMANDS_GONE = {  # of earlier versions
    "jobs": "the command with --on says what begins, ends and fails; ray status and squeue list what waits",
}


def other_names() -> dict[str, str]:
    """Returns the flag of each word of other programs."""
    known = {flag_of(name): knob.also_called for name, knob in KNOBS.items()} | FLAGS
    return {word: flag for flag, words in known.items() for word in words}


REASONS = {
    "batch": "--batch-size N is the images of a step; --accumulate auto computes them in the fewest parts that fit into"
    " memory",
    "resume": "the same command resumes a run that was stopped",
    "scheduler": "the learning rate warms up (--warmup), then follows a cosine to zero, or your own --schedule",
    "dropout": "fine-tuning uses stochastic depth instead: --drop-path",
    "patience": "no epoch is chosen on the fold that reports the score; the last, averaged weights are the model",
    "log-interval": "every epoch prints a line; metrics.jsonl in the fold's folder has the figures",
    "num-classes": "the training table says how many classes there are",
    "k": "the folds are made once for all runs, by podium folds --k",
    "val-split": "the folds are made once for all runs, by podium folds --k; --folds 0 trains a single one",
    "pin-memory": "it is on where there is a GPU",
    "local-rank": "--processes starts the processes, or torchrun does",
    "list-models": "podium models finds models by parts of their names",
    "tune": "podium search --model A B searches options; podium train --model A B trains several models as they are",
    "export": "podium export RUN --onnx writes a file for other programs; run.export(path) in Python one for timm",
    "pseudo": "podium train --pseudo RUN learns the test images as a finished run labels them, each fold by its own"
    " model",
    "unlabelled": "the card's [[unlabelled]] names folders of images without labels: podium pretrain and podium train"
    " --pseudo RUN learn from them",
    "external": "the card's [[extra]] names folders of labelled images: trained on, never validated on, without copies"
    " of the competition's own",
}
FOR_ALL_COMMANDS = ("export", "pseudo", "unlabelled", "external")  # the other reasons are for commands that train
SAME_REASON = {
    "batch": ("auto-scale-batch-size", "micro-batch", "micro-batch-size", "auto-find-batch-size"),
    "resume": ("resume-from", "resume-from-checkpoint", "auto-resume", "ckpt-path"),
    "scheduler": ("sched", "lr-scheduler", "lr-scheduler-type", "min-lr", "decay-epochs", "one-cycle"),
    "dropout": ("drop", "drop-rate"),
    "patience": ("early-stopping", "early-stop", "eval-metric", "monitor", "save-best"),
    "log-interval": ("logging-steps", "verbose", "log"),
    "num-classes": ("n-classes", "classes"),
    "k": ("n-folds", "num-folds", "nfolds", "n-splits", "kfold"),
    "val-split": ("validation-split", "test-split", "valid-pct"),
    "pin-memory": ("pin-mem",),
    "local-rank": ("rank",),
    "list-models": ("models-list", "show-models", "help-models"),
    "tune": ("search", "optuna", "hpo", "hyperparameter-search", "auto-tune", "n-trials", "sweep", "grid-search"),
    "export": ("onnx", "export-onnx", "to-onnx", "torchscript", "tflite"),
    "pseudo": ("pseudo-label", "pseudo-labels", "pseudo-labeling", "pseudo-labelling", "pseudolabel"),
    "unlabelled": ("unlabeled", "unlabelled-data", "unlabeled-data"),
    "external": ("external-data", "extra-data", "extra-images", "extra-train"),
}


def explain_option(word: str, known: set[str]) -> str:
    """Returns the same for an option in Python, where flags are called without hyphens."""

    def in_python(flag: re.Match[str]) -> str:
        return flag[0] if flag[1] else flag[2].replace("-", "_")

    return re.sub(r"(podium [a-z]+ )?--([a-z-]+)", in_python, explain_flag(word, known))


def explain_flag(flag: str, known: set[str]) -> str:
    """Returns what to write in place of a flag of another program; nothing if the word means nothing here."""
    word = flag.lstrip("-").replace("_", "-").lower()
    if f"--{word}" in known:
        return f"it is --{word} here"
    if other_names().get(word) in known:
        return f"it is {other_names()[word]} here"
    if gone := why_gone(word):
        return gone
    if f"--{word}" in map(flag_of, KNOBS):
        return "it is a flag of podium train, and the run keeps its value"
    for reason, words in SAME_REASON.items():
        if word in (reason, *words) and (reason in FOR_ALL_COMMANDS or "--lr" in known):
            return REASONS[reason]
    return ""
