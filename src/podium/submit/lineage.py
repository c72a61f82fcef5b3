"""Where every number of a submission came from: a JSON beside its CSV.

    podium lineage FILE.csv          podium submit --from FILE.json

It holds the hashes of the CSV, of the data, of the folds and of every weight file, the recipes, the packages' versions,
the commit, how the runs were blended and what that was expected to score.
"""

import hashlib
import json
import math
import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from podium import PodiumError
from podium.competition.load import Competition
from podium.disk import NAME_PATTERN, sha256
from podium.recipe import differences
from podium.submit.blend import Blend
from podium.submit.choose_blend import Verdict
from podium.terminal import first_few, podium_command, table
from podium.training.run_folder import READ_BY_SUBMIT, Run, package_versions, runs_folder

Made = dict[Run, dict[int, dict[str, str]]]  # what each fold's predictions are, and were made from and on


def lineage_of(
    competition: Competition, csv: Path, made: Made, blend: Blend, verdict: Verdict | None
) -> dict[str, Any]:
    return {
        "csv": csv.name,
        "sha256": sha256(csv),
        "competition": competition.slug,
        "metric": competition.metric,
        "commit": _commit(),
        "versions": package_versions(),
        "train_sha256": competition.train_hash,
        "test_sha256": competition.test_hash,
        "form": _form(competition),
        "blend": asdict(blend),
        "estimate": verdict and asdict(verdict) | {"score": verdict.score, "blend": blend.way},
        "runs": [
            {
                "run": run.name,
                "weight": weight,
                "folds": [
                    {
                        "fold": fold,
                        "score": run.score(fold, competition.metric),
                        "weights_sha256": run.check_weights(fold),
                        **made_of,
                    }
                    for fold, made_of in folds.items()
                ],
                "recipe": run.recipe,
            }
            for (run, folds), weight in zip(made.items(), blend.weights, strict=True)
        ],
    }


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
        known = self.content["blend"]
        lists = {name: tuple(map(float, known[name])) for name in ("weights", "temperatures")}
        return Blend(known["way"], **lists, temperature=float(known["temperature"]))

    def find(self, competition: Competition, root: Path) -> dict[Run, list[int]]:
        """The runs and folds, if data, recipes and weights are those of the lineage."""
        form, source = _form(competition), competition.submission_format.source
        for what, then in self.content["form"].items():
            if then != form[what]:
                now = f"the submission's {what} was {then!r} and would be {form[what]!r}"
                raise PodiumError(f"{self.path}: {now}, by {source} in {competition.folder} or the card; restore them")
        for what in ("train", "test"):
            if self.content[f"{what}_sha256"] != getattr(competition, f"{what}_hash"):
                raise PodiumError(f"{self.path}: the {what} data is not that of {competition.folder}; restore it there")
        folds = {}
        for known in self.content["runs"]:
            run = Run(runs_folder(competition.slug, root) / known["run"])
            if not run.path.is_dir():
                raise PodiumError(f"{self.path} needs the run {run.path}; bring it there, with its folds")
            changed = differences(
                *({key: each.get(key) for key in READ_BY_SUBMIT} for each in (known["recipe"], run.recipe))
            )
            if changed:
                raise PodiumError(f"{run.path} is not the run of {self.path.name}: {changed[0]}; restore it")
            for each in known["folds"]:
                if run.check_weights(each["fold"]) != each["weights_sha256"]:
                    raise PodiumError(
                        f"{run.fold(each['fold'])}: its weights are not those of {self.path.name}; restore that run"
                    )
            folds[run] = [each["fold"] for each in known["folds"]]
        return folds

    def check_same(self, text: str, made: Made) -> None:
        if hashlib.sha256(text.encode()).hexdigest() == self.content["sha256"]:
            return
        why: list[str] = []
        pairs = [
            (run.fold(each["fold"]) / "test.npz", each, made[run][each["fold"]])
            for run, known in zip(made, self.content["runs"], strict=True)
            for each in known["folds"]
        ]
        other = [path for path, then, now in pairs if then["predictions_sha256"] != now["predictions_sha256"]]
        if any(then["predicted_from"] != now["predicted_from"] for _, then, now in pairs):
            why.append("the test images' pixels are not those of then")
        elif other:
            why.append(f"{first_few(other, 2)} holds other predictions, delete it to predict again")
            old, new = self.content["versions"], package_versions()
            changed = [f"{name} {old[name]} and {new.get(name)}" for name in old if old[name] != new.get(name)]
            why += [f"versions: {', '.join(changed)}"] if changed else []
            there, here = {then["predicted_on"] for _, then, _ in pairs}, {now["predicted_on"] for _, _, now in pairs}
            if there != here:
                why.append(f"predicted on {' and '.join(sorted(there))}, and here on {' and '.join(sorted(here))}")
        if self.content["commit"] != _commit():
            why.append(f"code {self.content['commit']} and {_commit()}")
        raise PodiumError(
            f"the same weights give another CSV here than {self.path.name} tells of"
            f" ({'; '.join(why) or 'nothing has changed: was that file edited?'}); restore what was there then"
        )

    def describe(self) -> str:
        known, blend = self.content, self.blend
        rows = [
            [
                f"{run['run']} fold {each['fold']}",
                f"{run['weight'] / len(run['folds']):.3f}",
                f"{each['score']:.5f}",
                run["recipe"].get("model"),
                each["weights_sha256"][:16],
                each["predicted_on"],
            ]
            for run in known["runs"]
            for each in run["folds"]
        ]
        estimate, lines = known["estimate"], []
        if estimate:
            low, high = estimate["between"]
            lines = [
                f"expected     {known['metric']} {estimate['score']:.5f} on {estimate['images']:,} held-out images,"
                f" {low:.4f} to {high:.4f} on the test images"
            ]
        temperatures = [f"{each:.2f}" for each in (*blend.temperatures, blend.temperature)]
        cool = {"1.00"} == set(temperatures)
        folds = {str(run["recipe"].get("folds_sha256"))[:16] for run in known["runs"]}
        return "\n".join(
            [
                f"{self.csv.name}  sha256 {known['sha256']}",
                f"competition  {known['competition']}  training data {known['train_sha256'][:16]}, test data"
                f" {known['test_sha256'][:16]}",
                f"folds        {', '.join(sorted(folds))}",
                f"code         {known['commit'] or 'not from a checkout'}",
                f"versions     {', '.join(f'{name} {version}' for name, version in known['versions'].items())}",
                f"blend        {blend.way}" + ("" if cool else f", temperatures {', '.join(temperatures)}"),
                *lines,
                table(["model", "share", known["metric"], "architecture", "weights", "predicted on"], rows),
            ]
        )


def _form(competition: Competition) -> dict[str, str]:
    """How the submission is written, which the sample decides."""
    form = competition.submission_format.line_style
    return {
        "header": form.header,
        "newline": form.newline,
        "delimiter": form.delimiter,
        "answers": competition.submission_format.wants,
        "classes": first_few(competition.classes, 99),
    }


def read_lineage(path: Path) -> Lineage:
    """The lineage in a JSON, or beside a CSV."""
    if not path.name:
        raise PodiumError(f"'{path}' is no file; name a CSV or the JSON beside it")
    beside = path.with_suffix(".json") if path.suffix == ".csv" else path
    try:
        content = json.loads(beside.read_text(encoding="utf-8"))
        _check(content)
        found = Lineage(beside, content)
        found.describe()
    except OSError as error:
        raise PodiumError(f"{beside}: {error.strerror}; podium submit writes it beside its CSV") from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise PodiumError(f"{beside} is no lineage of podium submit ({error!r}); restore it") from None
    return found


def _check(content: dict[str, Any]) -> None:
    """Raises, whatever it may be, unless a submission can be made from it."""
    blend, runs = content["blend"], content["runs"]
    names = [content["competition"], *(run["run"] for run in runs)]
    folds = [[int(each["fold"]) for each in run["folds"]] for run in runs]
    sound = {
        "competition": all(re.fullmatch(NAME_PATTERN, name) for name in names),  # they become paths
        "runs": runs and len(set(names[1:])) == len(runs) and all(len(set(each)) == len(each) > 0 for each in folds),
        "blend": len(blend["weights"]) == len(blend["temperatures"]) == len(runs)
        and all(0 <= weight <= 1 for weight in blend["weights"])
        and abs(sum(blend["weights"]) - 1) < 1e-6
        and all(0 < each < math.inf for each in (*blend["temperatures"], blend["temperature"])),
        "sha256": all(
            re.fullmatch("[0-9a-f]{64}", text)
            for text in (
                *(content["sha256"], content["train_sha256"], content["test_sha256"]),
                *(each["weights_sha256"] for run in runs for each in run["folds"]),
            )
        ),
        "predictions": all(
            isinstance(each[fact], str)
            for fact in ("predicted_on", "predicted_from", "predictions_sha256")
            for run in runs
            for each in run["folds"]
        ),
        "form": set(content["form"]) == {"header", "newline", "delimiter", "answers", "classes"},
        "recipe": all(isinstance(run["recipe"], dict) for run in runs),
        "versions": isinstance(content["versions"], dict),
    }
    for what, right in sound.items():
        if not right:
            raise ValueError(f"its {what}")


def describe_lineage(path: Path) -> str:
    """What a submission's lineage says; raises where the CSV is another."""
    lineage = read_lineage(path)
    again = f"{podium_command()} submit --from {quote(str(lineage.path))}"
    if path.suffix == ".csv" and not path.exists():
        raise PodiumError(f"{path} is not there; rebuild it with: {again}")
    if path.suffix == ".csv" and sha256(path) != lineage.content["sha256"]:
        raise PodiumError(f"{path} has been changed since; move it away and rebuild it with: {again}")
    return lineage.describe()


def submission_message(csv: Path) -> str:
    """A submission in a line, for Kaggle's list."""
    known = read_lineage(csv).content
    runs = "+".join(f"{run['run']} x {len(run['folds'])}" for run in known["runs"])
    estimate = known["estimate"]
    expected = f", {known['metric']} {estimate['score']:.5f} held out" if estimate else ""
    return f"{runs}, {known['blend']['way']}{expected}"


def _commit() -> str | None:
    """The commit of the code that runs, with a mark when it has been changed since; None outside a checkout."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None
