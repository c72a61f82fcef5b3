"""Brings a bundle to Kaggle: its files as a private data set, its notebook as a private kernel without a network.

    podium kaggle-bundle --upload

Writes your name into the bundle's dataset-metadata.json; all else is at Kaggle, where another bundle is a new version.
A small file beside the bundle says what of it is there already.

The client leaves out a file that it could not upload and says that all is well, so the files it uploaded are counted.
"""

import contextlib
import hashlib
import io
import json
import secrets
import time
from pathlib import Path
from typing import Any

from podium import PodiumError
from podium.disk import sha256, write_json
from podium.kaggle.bundle import METADATA, NOTEBOOK
from podium.kaggle.client import explain, http_status, kaggle_client
from podium.kaggle.kernels import ACCELERATOR, DENIALS, Failed, follow_kernel, kernel_name, push_kernel
from podium.terminal import duration, progress_bar, say

PAUSE = 10.0  # seconds between looks
PATIENCE = 3600.0  # seconds until Kaggle has unpacked a data set


def publish(slug: str, folder: Path) -> str:
    """Where the notebook is that has made a submission.csv at Kaggle."""
    note = folder.with_name(f".{folder.name}.json")  # what of this very bundle is at Kaggle already
    with kaggle_client(slug) as client:
        bundle = {"bundle": _digest(folder)}
        known = _read(note)
        if known.get("bundle") != bundle["bundle"]:
            known = {**bundle, "dataset": _upload(client, slug, folder)}
            write_json(note, known)
        if "kernel" not in known:
            known["kernel"] = _begin(client, slug, folder, known["dataset"])
            write_json(note, known)
        try:
            follow_kernel(client, slug, known["kernel"])
        except Failed:
            write_json(note, {key: known[key] for key in ("bundle", "dataset")})
            raise
    return f"https://www.kaggle.com/code/{known['kernel']}"


def _digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != METADATA)
    named = "".join(f"{path.relative_to(folder)} {sha256(path)}\n" for path in files)
    return hashlib.sha256(named.encode()).hexdigest()


def _read(note: Path) -> dict[str, str]:
    """Nothing where it is damaged: then all is uploaded again."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        known = json.loads(note.read_text())
        return {key: str(known[key]) for key in ("bundle", "dataset", "kernel") if key in known}
    return {}


def _upload(client: Any, slug: str, folder: Path) -> str:
    """The data set, once Kaggle has unpacked it."""
    metadata = json.loads((folder / METADATA).read_text())
    dataset = f"{client.get_config_value(client.CONFIG_NAME_USER)}/{metadata['id'].rpartition('/')[2]}"
    write_json(folder / METADATA, {**metadata, "id": dataset})
    before = _version(client, dataset)
    say(f"podium: uploading {folder} as {f'version {before + 1} of ' if before else ''}{dataset}")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        if before:
            answer = client.dataset_create_version(str(folder), f"by podium for {slug}", dir_mode="zip")
        else:
            answer = client.dataset_create_new(str(folder), dir_mode="zip")
    parts = sum(path.name != METADATA for path in folder.iterdir())
    lacking = parts - said.getvalue().count("Upload successful")
    if answer.error or lacking:
        what = answer.error or f"{lacking} of {parts} parts were not uploaded"
        raise PodiumError(f"Kaggle does not have the bundle ({what}); the same command uploads it again")
    _wait(client, slug, dataset, before)
    return dataset


def _begin(client: Any, slug: str, folder: Path, dataset: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()):  # it advises on standard output
        return push_kernel(
            client,
            slug,
            kernel_name(slug, "notebook", unlike=secrets.token_hex(8)),
            {NOTEBOOK: (folder / NOTEBOOK).read_text()},
            kernel_type="notebook",
            enable_internet=False,
            machine_shape=ACCELERATOR,
            dataset_sources=[dataset],
        )


def _version(client: Any, dataset: str) -> int:
    """The number of the data set's newest version; 0 where there is none."""
    known = "json(current_version_number)"
    try:
        return int(json.loads(client.dataset_status(dataset, format=known))["current_version_number"] or 0)
    except OSError as error:
        if http_status(error) in (403, 404):  # of what is not there
            return 0
        raise


def _wait(client: Any, slug: str, dataset: str, before: int) -> None:
    """Until Kaggle has unpacked a newer version than the one before."""
    began, failures = time.monotonic(), 0
    with progress_bar(desc=f"Kaggle unpacks {dataset}", unit="look") as progress:
        while True:
            try:
                status = client.dataset_status(dataset)
                failures += status in ("failed", "deleted")
                if failures > DENIALS:  # at first Kaggle may tell of the version before
                    raise PodiumError(
                        f"Kaggle could not unpack {dataset}; see https://www.kaggle.com/datasets/{dataset}"
                    )
                if status == "ready" and _version(client, dataset) > before:
                    return
            except (OSError, ValueError) as error:  # a cut connection need not be the end
                if http_status(error) == 401:
                    raise
                progress.set_postfix_str(explain(error, slug))
            if time.monotonic() - began > PATIENCE:
                raise PodiumError(
                    f"https://www.kaggle.com/datasets/{dataset} is not ready after {duration(PATIENCE)};"
                    " the same command uploads it again"
                )
            time.sleep(PAUSE)
            progress.update()
