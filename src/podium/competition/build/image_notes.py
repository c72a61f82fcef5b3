"""Notes which images of a competition are used twice, or not at all, and which tables may have been overlooked."""

import os
import re

import pandas as pd

from podium.basics.terminal import first_few, plural
from podium.competition.containers.image_place import channels_of, file_of
from podium.competition.decide.tables import Tables
from podium.competition.find.composed_images import files_in_folders_of_slices, other_channels, own_files
from podium.competition.find.contained_images import note_several, note_unused
from podium.competition.find.find_files import Files
from podium.competition.find.table import Table
from podium.competition.find.unsupported import FILMS, find_unread


def notes_on_images(train: pd.DataFrame, test: pd.DataFrame, files: Files, sample: Table | None) -> list[str]:
    train_images, test_images = (own_files(rows["image"]) for rows in (train, test))
    in_both = train_images & test_images
    unused = set(files.images) - train_images - test_images
    notes = list(files.notes)
    if channels := channels_of(train["image"].iloc[0]):
        others = other_channels(train_images | test_images, unused)
        unused -= others
        notes.append(
            f"an image has several files: the channels {', '.join(channels)} are used,"
            f" {plural(len(others), 'file')} are not"
        )
    unused -= files_in_folders_of_slices({*train["image"], *test["image"]}, unused)
    test_folders = {os.path.dirname(image) for image in test_images & set(files.images)}
    beside_test = {image for image in unused if os.path.dirname(image) in test_folders}
    stems = {os.path.splitext(os.path.basename(image))[0] for image in files.images if files.others}
    alone = [name for name in files.others if os.path.basename(name).split(".")[0] not in stems]
    unread = find_unread([name for name in alone if not name.lower().endswith(FILMS)])
    if unread and not files.containers:
        counts, names = unread.counts, unread.names
        notes.append(f"files of images that Podium does not read: {counts}: {names}; to use them, {unread.remedy()}")
    if in_both:
        notes.append(f"{plural(len(in_both), 'image')} in both the training and the test rows")
    if shared := int(test[["id", "image"]].drop_duplicates()["image"].duplicated().sum()):
        notes.append(f"{plural(shared, 'test id')} share the image of another one, and get its prediction")
    if beside_test:
        name = sample.path.name if sample else "the test table"
        images = plural(len(beside_test), "image")
        notes.append(f"{images} in the folder of the test images but in no row of {name}; is {name} complete?")
    if unused - beside_test:
        notes.append(f"{plural(len(unused - beside_test), 'image')} in neither the training nor the test rows")
    if files.containers:
        notes += note_several(files.folder, train["image"])
        notes += note_unused(files, {file_of(image) for image in train_images | test_images})
    return notes


def note_on_possible_samples(tables: Tables) -> list[str]:
    """Returns a note on the files that may be the sample submission, if none was found."""
    files, card = tables.facts.files, tables.facts.card
    if tables.sample_in_file or "sample_submission" in card:
        return []
    names = [name for name in files.others if re.search("submi|sample", name.lower())]
    known = {name for table in tables.read.values() for name in table.files}
    names += [name for name in files.tables if name not in known]
    if not names:
        return []
    return [
        "no sample submission was found, so the submission's header and order are guesses;"
        f" if it is {first_few(names)}, " + card.advise('sample_submission = "NAME"')
    ]
