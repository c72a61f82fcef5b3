"""Short journeys of `podium compete`, and the bits that they leave."""

from pathlib import Path
from typing import Any

from podium.basics.disk import sha256
from podium.competing.choices import CompeteRequest
from podium.competing.compete import compete
from podium.competing.ending import Outcome
from podium.competition.load import load


def run(root: Path, members: int = 3, **request: Any) -> Outcome:
    return compete(load("tiny", root), CompeteRequest(600.0, most_members=members, **request))


def bits_of(root: Path) -> dict[str, str]:
    kept = [*root.glob("runs/tiny/*/fold*/model.safetensors"), *root.glob("submissions/tiny/compete.csv")]
    return {str(path.relative_to(root)): sha256(path) for path in kept}
