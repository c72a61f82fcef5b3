"""Brings a bundle to Kaggle: its files as a private data set, its notebook as a private kernel without a network.

    podium kaggle-bundle --upload

Writes your name into the bundle's dataset-metadata.json. A file beside the bundle, .bundle.json, records the finished
steps. Another bundle becomes a new version of the data set.
"""

import contextlib
import hashlib
import io
import json
import secrets
from pathlib import Path
from typing import Any

from podium.basics.disk import sha256, write_json
from podium.basics.errors import PodiumError
from podium.basics.terminal import duration, first_line, say
from podium.kaggle.client import http_status, signed_in_client
from podium.kaggle.polling import Poll
from podium_annex.kaggle_machines.bundle import METADATA, NOTEBOOK
from podium_annex.kaggle_machines.push_kernel import (
    ACCELERATOR,
    KernelFailed,
    follow_kernel,
    make_kernel_name,
    push_kernel,
    read_user_name,
)

PAUSE = 10.0  # seconds between two requests
PATIENCE = 3600.0  # seconds to wait until Kaggle has unpacked a data set
MAX_FAILURES = 3  # at first Kaggle may report the failure of an earlier version


def publish_bundle(slug: str, folder: Path) -> str:
    """Uploads the bundle and waits until its notebook has made submission.csv at Kaggle.

    Skips the steps that are already done for this bundle. Returns the notebook's address.
    """
    receipt = folder.with_name(f".{folder.name}.json")
    with signed_in_client(slug) as client:
        digest = _digest(folder)
        steps = _read_receipt(receipt)
        if steps.get("bundle") != digest:
            steps = {"bundle": digest, "dataset": _upload_dataset(client, slug, folder)}
            write_json(receipt, steps)
        if "kernel" not in steps:
            steps["kernel"] = _push_notebook(client, slug, folder, steps["dataset"])
            write_json(receipt, steps)
        try:
            follow_kernel(client, slug, steps["kernel"])
        except KernelFailed:
            write_json(receipt, {key: steps[key] for key in ("bundle", "dataset")})
            raise
    return f"https://www.kaggle.com/code/{steps['kernel']}"


def _digest(folder: Path) -> str:
    """Returns a hash of all files except the metadata, which uploading changes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != METADATA)
    lines = "".join(f"{path.relative_to(folder)} {sha256(path)}\n" for path in paths)
    return hashlib.sha256(lines.encode()).hexdigest()


def _read_receipt(receipt: Path) -> dict[str, str]:
    """Returns nothing if the file is missing or damaged: then all is uploaded again."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        content = json.loads(receipt.read_text())
        return {key: str(content[key]) for key in ("bundle", "dataset", "kernel") if key in content}
    return {}


def _upload_dataset(client: Any, slug: str, folder: Path) -> str:
    """Uploads the bundle as a data set, or as a new version of it, and waits until Kaggle has unpacked it."""
    metadata = json.loads((folder / METADATA).read_text())
    dataset = f"{read_user_name(client)}/{metadata['id'].rpartition('/')[2]}"
    write_json(folder / METADATA, {**metadata, "id": dataset})
    version = _newest_version(client, dataset)
    say(f"podium: uploading {folder} as {f'version {version + 1} of ' if version else ''}{dataset}")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            if version:
                response = client.dataset_create_version(str(folder), f"by podium for {slug}", dir_mode="zip")
            else:
                response = client.dataset_create_new(str(folder), dir_mode="zip")
        reason = response.error
    except ValueError as error:
        if isinstance(error, OSError | json.JSONDecodeError):  # Kaggle's answer, or none
            raise
        reason = first_line(error)  # the client stops at the first file that it could not upload
    if reason:
        raise PodiumError(f"Kaggle does not have the bundle ({reason}); run the same command again to upload it again")
    _wait_until_unpacked(client, slug, dataset, version)
    return dataset


def _newest_version(client: Any, dataset: str) -> int:
    """Returns the number of the data set's newest version; 0 if there is none."""
    try:
        status = json.loads(client.dataset_status(dataset, format="json(current_version_number)"))
        return int(status["current_version_number"] or 0)
    except OSError as error:
        if http_status(error) in (403, 404):  # Kaggle's answers about a data set that does not exist
            return 0
        raise


def _wait_until_unpacked(client: Any, slug: str, dataset: str, version_before: int) -> None:
    """Returns when Kaggle has unpacked a version newer than `version_before`."""
    page = f"https://www.kaggle.com/datasets/{dataset}"
    again = "run the same command again to upload it again"
    not_ready = f"{page} is not ready after {duration(PATIENCE)}; {again}"
    poll = Poll(slug, (PAUSE,), PATIENCE, not_ready, fatal=(401,))
    failures = 0

    def look() -> bool | None:
        nonlocal failures
        status = client.dataset_status(dataset)
        failures += status in ("failed", "deleted")
        if failures > MAX_FAILURES:
            raise PodiumError(f"Kaggle could not unpack {dataset}; see {page}, then {again}")
        return True if status == "ready" and _newest_version(client, dataset) > version_before else None

    poll.until(look, f"Kaggle unpacks {dataset}")


def _push_notebook(client: Any, slug: str, folder: Path, dataset: str) -> str:
    """Starts the notebook on Kaggle; returns its kernel's name."""
    with contextlib.redirect_stdout(io.StringIO()):  # the client prints advice, but standard output is for results
        return push_kernel(
            client,
            slug,
            make_kernel_name(slug, "notebook", salt=secrets.token_hex(8)),
            (folder / NOTEBOOK).read_text(),
            code_file=NOTEBOOK,
            kernel_type="notebook",
            enable_internet=False,
            machine_shape=ACCELERATOR,
            dataset_sources=[dataset],
        )
