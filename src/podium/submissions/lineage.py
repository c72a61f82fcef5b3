"""Reads the lineage of a submission, the JSON beside its CSV, and describes it.

    podium lineage FILE.csv

record_lineage.py says what a lineage holds; rebuild_submission.py makes the CSV from it.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from podium.basics.disk import NAME_PATTERN, sha256
from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, podium_command, table
from podium.blending.blend import Blend, blend_from_json
from podium.blending.own_decision import OwnDecision, read_decision
from podium.competition.load import raw_folder
from podium.saved_runs.fold_names import fold_name
from podium.saved_runs.imported_runs import describe_import
from podium.saved_runs.made_from import describe_images, licences_of


@dataclass(frozen=True)
class Lineage:
    path: Path
    content: dict[str, Any]

    @property
    def csv(self) -> Path:
        return self.path.with_suffix(".csv")

    @property
    def competition(self) -> str:
        return str(self.content["competition"])

    @property
    def blend(self) -> Blend:
        content = self.content
        return blend_from_json(content["blend"], len(content["runs"]), content.get("decision"))

    def describe(self) -> str:
        content, runs, blend = self.content, self.content["runs"], self.blend
        data = f"training data {content['train_sha256'][:16]}, test data {content['test_sha256'][:16]}"
        folds = sorted({str(run["recipe"].get("folds_sha256"))[:16] for run in runs})
        versions = [f"{name} {version}" for name, version in content["versions"].items()]
        lines = [
            f"{self.csv.name}  sha256 {content['sha256']}",
            f"competition  {content['competition']}  {data}",
            f"folds        {', '.join(folds)}",
            f"code         {content['commit'] or 'not from a checkout'}",
            f"versions     {', '.join(versions)}",
            f"blend        {blend.describe()}",
            *(
                [f"features     {first_few(content['features']['names'])}"]
                if content.get("features", {}).get("names")
                else []
            ),
        ]
        if blend.stack and blend.stack.importances:
            lines.append(f"learned from {blend.stack.describe_importances()} ({content['metric']} lost without it)")
        if blend.decision:
            lines.append(f"decision     {_describe_decision(content)}")
        if shares := content.get("test_shares"):
            lines.append(f"test shares  {_describe_shares(shares)}")
        extensions = [f"{name} {digest[:16]}" for name, digest in content.get("extensions", {}).items()]
        if extensions:
            lines.append(f"extensions   {', '.join(extensions)}")
        corrections = _describe_corrections(content)
        if corrections:
            lines.append(f"corrections  {corrections}")
        recipes = [run["recipe"] for run in runs]
        imports = [describe_import(run["run"], own) for run in runs if (own := run["recipe"].get("imported"))]
        lines += [f"imported     {text}" for text in imports]
        if images := describe_images(recipes):
            lines.append(f"elsewhere    {first_few(images)}")
        if licences := dict.fromkeys(licence for recipe in recipes for licence in licences_of(recipe)):
            lines.append(f"licences     {first_few(licences)}")
        if content["estimate"]:
            lines.append(f"expected     {_describe_estimate(content['metric'], content['estimate'])}")
        lines += [f"doubt        {run['doubt']}" for run in runs if run.get("doubt")]
        lines += [f"decided      {_describe_step(line)}" for line in content.get("decisions", ())]
        return "\n".join([*lines, _models_table(content["metric"], runs)])


def _describe_decision(content: dict[str, Any]) -> str:
    decision, classes = content["decision"], content["form"]["classes"]
    scores = f"{content['metric']} {decision['score_before']:z.4f} -> {decision['score']:z.4f}"
    step = read_decision(decision)
    if isinstance(step, OwnDecision):
        return f"{step.describe()}, code {step.sha256[:16]}: {scores}"
    numbers = ", ".join(f"{number:.4g}" for number in step.numbers)
    return f"{step.describe()} {numbers} (classes {classes}): {scores}"


def _describe_shares(shares: dict[str, Any]) -> str:
    """Returns the estimated share of each class among the test images, with its interval."""
    texts = [
        f"{name} {share['estimated']:z.3f}, {share['between'][0]:z.3f} to {share['between'][1]:z.3f}"
        f" (in training {share['in_training']:z.3f})"
        for name, share in shares.items()
    ]
    return first_few(texts, 12)


def _describe_corrections(content: dict[str, Any]) -> str:
    """Returns what the corrections of labels change, and the hashes of those that the runs were trained with."""
    scored, counts = _short_hash(content), content.get("corrections")
    trained = sorted({_short_hash(run["recipe"]) for run in content["runs"]})
    described = f"{scored} ({counts})" if counts else scored
    if trained == [scored]:
        return "" if scored == "none" else described
    return f"trained with {', '.join(trained)}; scored with {described}"


def _describe_step(line: dict[str, Any]) -> str:
    """Returns a decision of `compete`: which member it trained, why, and what that brought."""
    brought = "" if line["gain"] is None else f", brought {line['gain']:z.5f}"
    return f"{line['member']}: {line['why']}; took {line['seconds']:.0f} s{brought}"


def _short_hash(record: dict[str, Any]) -> str:
    return str(record.get("corrections_sha256", "none"))[:16]


def _describe_estimate(metric: str, estimate: dict[str, Any]) -> str:
    low, high = estimate["between"]
    held_out = f"{metric} {estimate['score']:z.5f} on {estimate['images']:,} held-out images"
    return f"{held_out}, {low:z.4f} to {high:z.4f} on the test images"


def _models_table(metric: str, runs: list[dict[str, Any]]) -> str:
    rows = [
        [
            f"{run['run']} {fold_name(int(fold['fold']))}",
            f"{run['weight'] / len(run['folds']):z.3f}",
            "-" if fold["score"] is None else f"{fold['score']:z.5f}",
            run["recipe"].get("model"),
            fold["weights_sha256"][:16],
            fold["predicted_on"],
        ]
        for run in runs
        for fold in run["folds"]
    ]
    return table(["model", "share", metric, "architecture", "weights", "predicted on"], rows)


def read_lineage(path: Path) -> Lineage:
    """Reads a lineage; `path` is its JSON or the CSV beside it."""
    if not path.name:
        raise PodiumError(f"'{path}' is not a file; name a CSV or the JSON beside it")
    json_path = path.with_suffix(".json") if path.suffix == ".csv" else path
    try:
        content = json.loads(json_path.read_text(encoding="utf-8"))
        _validate(content)
        lineage = Lineage(json_path, content)
        lineage.describe()  # a lineage that cannot be described is refused here
    except OSError as error:
        raise PodiumError(f"{json_path}: {error.strerror}; podium submit writes it beside its CSV") from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise PodiumError(f"{json_path} is not a lineage that podium submit wrote ({error!r}); restore it") from None
    return lineage


def _validate(content: dict[str, Any]) -> None:
    """Raises an error of any kind unless a submission can be made from the content."""
    runs = content["runs"]
    names = [content["competition"], *(run["run"] for run in runs)]
    fold_lists = [[int(fold["fold"]) for fold in run["folds"]] for run in runs]
    folds = [fold for run in runs for fold in run["folds"]]
    hashes = [content["sha256"], content["train_sha256"], content["test_sha256"]]
    hashes += [fold["weights_sha256"] for fold in folds]
    prediction_keys = ("predicted_on", "predicted_from", "predictions_sha256")
    is_valid = {
        "competition": all(re.fullmatch(NAME_PATTERN, name) for name in names),  # names become paths
        "runs": runs
        and len(set(names[1:])) == len(runs)
        and all(len(set(numbers)) == len(numbers) > 0 for numbers in fold_lists),
        "sha256": all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes),
        "predictions": all(isinstance(fold[key], str) for key in prediction_keys for fold in folds),
        "form": set(content["form"]) == {"header", "newline", "delimiter", "answers", "classes"},
        "recipe": all(isinstance(run["recipe"], dict) for run in runs),
        "versions": isinstance(content["versions"], dict),
    }
    for key, valid in is_valid.items():
        if not valid:
            raise ValueError(f"its {key}")
    blend_from_json(content["blend"], len(runs))
    if content.get("decision") is not None:
        read_decision(content["decision"])


def describe_lineage(path: Path) -> str:
    """Describes a submission's lineage; raises if its CSV is missing or was changed."""
    lineage = read_lineage(path)
    command = f"{podium_command()} submit --from {quote(str(lineage.path))}"
    if path.suffix == ".csv" and not path.exists():
        raise PodiumError(f"{path} does not exist; rebuild it with: {command}")
    if path.suffix == ".csv" and sha256(path) != lineage.content["sha256"]:
        raise PodiumError(f"{path} was changed after it was written; move it away and rebuild it with: {command}")
    return lineage.describe()


def submission_message(csv: Path) -> str:
    """Returns one line about a submission, for Kaggle's list of submissions."""
    lineage = read_lineage(csv)
    content = lineage.content
    runs = "+".join(f"{run['run']} x {len(run['folds'])}" for run in content["runs"])
    estimate = content["estimate"]
    expected = f", {content['metric']} {estimate['score']:z.5f} held out" if estimate else ""
    return f"{runs}, {lineage.blend.strategy}{expected}"


def recorded_competition(csv: Path, root: Path) -> str | None:
    """Returns the competition of the lineage beside the CSV, if there is one and the competition's files are here."""
    with suppress(PodiumError):
        slug = read_lineage(csv).competition
        return slug if raw_folder(slug, root).is_dir() else None
    return None


def recorded_metric(csv: Path) -> str | None:
    """Returns the metric of the lineage beside the CSV, if there is one; its file may not be loaded."""
    with suppress(PodiumError):
        return str(read_lineage(csv).content["metric"])
    return None
