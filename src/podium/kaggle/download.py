"""Downloads a competition's files with Kaggle's own client and unpacks them safely.

    podium data [-c SLUG]

Writes data/raw/<slug>/. If data/raw/<slug>.zip exists already, downloaded with a browser, it is unpacked instead; that
needs no account here.
"""

import contextlib
import shutil
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from podium.basics.disk import locked
from podium.basics.errors import MissingFiles, PodiumError
from podium.basics.project_root import DIGITS_SLUG
from podium.basics.terminal import command_for, first_few, say, show
from podium.competition.build.complete_card import as_toml
from podium.competition.card import card_path, read_card
from podium.competition.describe import describe
from podium.competition.extras.extra_images import packed_folders
from podium.competition.find.find_files import role_in_path
from podium.competition.load import Competition, files_folder, load, raw_folder
from podium.competition.said_notes import remember
from podium.kaggle.client import signed_in_client
from podium.kaggle.unpack_archives import archives_below, unpack, unpack_in_place


def download_competition(slug: str, root: Path, as_card: bool = False) -> None:
    """Downloads and unpacks the files unless data/raw/<slug>/ exists, and prints what they contain.

    With `as_card` it prints the complete card instead, alone on standard output.
    """
    from podium.competition.handwritten_digits import write_digits

    folder = raw_folder(slug, root)
    if slug == DIGITS_SLUG and not folder.is_dir():
        with contextlib.redirect_stdout(sys.stderr if as_card else sys.stdout):
            write_digits(root)
        if not as_card:
            return
    card = read_card(slug, root)  # a mistake in it is found before the download
    if folder.is_dir():
        say(f"podium: {folder} exists already and is read as it is; to download the files again, move it away")
    else:
        archive = root / "data" / "raw" / f"{slug}.zip"
        lock = archive.parent / f".{slug}.lock"
        if not archive.exists() and not lock.exists():
            advice = "; ".join(filter(None, [_look_beside(slug, archive), _by_hand(slug, archive)]))
            with signed_in_client(slug, advice):  # without a token, not even a folder is made
                pass
        with locked(lock) as acquired:
            if not acquired:
                raise PodiumError(f"another process is already downloading {slug}; wait for it")
            if not folder.is_dir() and not archive.exists():
                _download_archive(slug, archive)
            if not folder.is_dir():
                unpack(archive, folder)
    for archive, own in packed_folders(card, root):
        if archive.is_file() and not own.is_dir():
            unpack(archive, own)
            say(f"podium: unpacked {archive}, which the card names, to {own}")
    competition = load_unpacked(slug, root, partial(load, slug, root))
    if as_card:
        show(as_toml(slug, competition.settings))
        say(f"podium: save this as {card_path(slug, root)} to fix what was guessed")
        return
    show(describe(competition))
    remember(slug, root, competition.notes)
    say(f"next: {command_for('folds', slug)}")


def load_unpacked(slug: str, root: Path, read: Callable[[], Competition]) -> Competition:
    """Reads a competition; unpacks the archives that lie in its folder where images are missing, and no other.

    Test images that are not there are no mistake, but an archive called after them is.
    """
    try:
        competition = read()
        folder = raw_folder(slug, root)
        if len(competition.test) or not any(role_in_path(path.name) == "test" for path in archives_below(folder)):
            return competition
    except MissingFiles:
        folder = raw_folder(slug, root)
        if not any(archives_below(folder)):
            raise
    names = unpack_in_place(folder, files_folder(slug, root))
    say(f"podium: unpacked {first_few(names)} in {raw_folder(slug, root)}; the archives stay where they are")
    return read()


def _download_archive(slug: str, archive: Path) -> None:
    """Downloads to a folder beside the archive's place; moves the archive there when it is complete."""
    unfinished = archive.parent / ".download" / slug  # kept after an interruption: the client resumes
    by_hand = _by_hand(slug, archive)
    say(f"podium: downloading {slug} from Kaggle")
    # The client prints advice, but standard output is for results.
    with signed_in_client(slug, by_hand) as client, contextlib.redirect_stdout(sys.stderr):
        unfinished.mkdir(parents=True, exist_ok=True)
        client.competition_download_files(slug, path=str(unfinished), quiet=False)
    archives = sorted(unfinished.glob("*.zip"))
    if not archives:
        raise PodiumError(f"Kaggle's client left no archive in {unfinished}; {by_hand}")
    archives[0].replace(archive)
    shutil.rmtree(unfinished, ignore_errors=True)
    with contextlib.suppress(OSError):  # another competition's download may lie beside it
        unfinished.parent.rmdir()


def _look_beside(slug: str, archive: Path) -> str:
    """Returns what is here that may be meant: the archive in another folder, or a competition of a similar name."""
    raw = archive.parent
    places = (raw.parents[1], raw.parent, *raw.glob("*/"))
    misplaced = next((place / archive.name for place in places if (place / archive.name).is_file()), None)
    if misplaced:
        return f"{misplaced} is there: move it to {archive}"
    here = {path.name for path in raw.glob("*/")} | {path.stem for path in raw.glob("*.zip")}
    near = get_close_matches(slug, [name for name in here if not name.startswith(".")], 1)
    return f"did you mean {near[0]}, which is here? Then write -c {near[0]} (with make: COMP={near[0]})" if near else ""


def _by_hand(slug: str, archive: Path) -> str:
    page = f"https://www.kaggle.com/competitions/{slug}/data"
    return f"or download the archive at {page} and put it at {archive}, then run the same command again"
