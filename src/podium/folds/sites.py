"""Folds that leave sites out: the images of one camera, hospital or place are all in one fold.

    podium folds --by-site camera        the sites are the values of a column of the training table
    podium folds --by-site               the sites are clusters of the images' features under a frozen model

The score of such folds is that on a site which the model has not seen. Sites are groups, so images that are duplicates,
or share a group of the card, join their sites. data/prepared/<slug>/sites.csv keeps the site of each image, beside
folds.csv; the certificate says whether a fold trains on a site that it validates.

A model's features tell classes apart, and clusters of them would be classes. So what a label explains, the mean of its
images, is taken away first.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.disk import write_text
from podium.basics.errors import PodiumError
from podium.basics.terminal import busy_with, command_for, first_few, plural, say
from podium.competition.find.csv_files import csv_text, read_table
from podium.competition.load import Competition
from podium.folds.folds import Folds, Ints, Mask
from podium.folds.split import Labels, cells_of, deal, labels_of

DIRECTIONS = 16  # principal ones, of the features that are clustered; of 8 to 64, each finds cameras as well
FURTHER_CLUSTERS = 3  # more than folds, at most: two small ones may share a fold
EVEN = 1.25  # times the mean of the folds: further clusters are tried until no fold is larger
STARTS = 10  # of k-means
SHOWN = 8  # sites whose sizes are said

Features = NDArray[np.float32]  # [training images, features]; not a number where an image cannot be read


@dataclass(frozen=True, eq=False)
class Sites:
    source: str  # in words
    of_image: "pd.Series[str]"  # the site of each training image; "" where none is known

    @property
    def count(self) -> int:
        return int(self.of_image[self.of_image != ""].nunique())

    def write(self, path: Path, ids: "pd.Series[str]") -> None:
        lines = zip(ids, self.of_image, strict=True)
        write_text(path, csv_text([("id", "site"), *lines]))

    @staticmethod
    def read(path: Path, competition: Competition, source: str) -> "Sites":
        """Returns the sites that the folds were made with."""
        remedy = f"split again with: {command_for('folds', competition.slug)} --by-site"
        if not path.exists():
            raise PodiumError(f"{path} does not exist, which has the sites of the folds ({source}); {remedy}")
        rows = read_table(path, remedy)
        if not {"id", "site"} <= set(rows.columns) or rows["id"].duplicated().any():
            raise PodiumError(f"{path}: it needs the columns id and site, and one line for each id; {remedy}")
        return Sites(
            source, rows.set_index("id")["site"].reindex(competition.train["id"]).fillna("").reset_index()["site"]
        )

    def describe(self, folds: Folds) -> str:
        """Returns how many sites there are, how large they are, and in which folds."""
        fold_of = pd.Series(folds.of_image).groupby(self.of_image.to_numpy()).agg(["size", "max"])
        sizes = fold_of.drop(index="", errors="ignore").sort_values("size", ascending=False, kind="stable")
        texts = [f"{name} ({size:,}, fold {fold})" for name, size, fold in sizes.itertuples()]
        return f"{plural(len(sizes), 'site')}, {self.source}: {first_few(texts, SHOWN)}"


ASKED_FOR = Sites("not known yet", pd.Series(dtype=object))


def sites_in_column(competition: Competition, column: str) -> Sites:
    """Returns the sites that a column of the training table names; the competition has been read with its columns."""
    columns, flag = competition.columns, f"--by-site {column}"
    assert columns is not None
    if column not in columns:
        names = f"its columns are {first_few(columns.columns)}" if len(columns.columns) else "there is no such table"
        raise PodiumError(
            f"{flag}: the training table of {competition.slug} has no such column; {names}; name one of them, or"
            " leave the name out, to cluster the images"
        )
    cells = columns[column].loc[competition.train["id"]].str.strip()
    count, blank = cells.nunique(), cells.index[cells == ""]
    remedy = "name a column of sites or cameras, or leave the name out, to cluster the images"
    if len(blank):
        raise PodiumError(
            f"{flag}: {plural(len(blank), 'training image')} without a site, '{blank[0]}' first; fill in that column,"
            " or drop these images with --corrections"
        )
    if count == 1:
        raise PodiumError(
            f"{flag}: all training images have the value '{cells.iloc[0]}', so none is left out; {remedy}"
        )
    if count == len(cells):
        raise PodiumError(f"{flag}: each training image has a value of its own, so these are no sites; {remedy}")
    return Sites(f"values of the column {column}", cells.reset_index(drop=True))


# --- clusters ----------------------------------------------------------------------------------------


@busy_with("clustering the images")
def cluster_sites(competition: Competition, features: Features, groups: Ints, k: int, seed: int, model: str) -> Sites:
    """Returns clusters of the images as sites: as many as folds, or a few more where that makes the folds more even.

    `groups` are the first images of groups that stay whole: of duplicates, and those of the card.
    """
    is_good: Mask = np.asarray(np.isfinite(features).all(1))
    group = np.unique(groups[is_good], return_inverse=True)[1]
    sizes = np.bincount(group)
    if len(sizes) < k:
        raise PodiumError(
            f"--by-site: {plural(len(sizes), 'group')} of images cannot make {plural(k, 'site')}; use fewer folds (--k)"
        )
    labels = labels_of(list(competition.train["target"]), competition.task).of_images(is_good)
    points = _directions(_without_labels(features[is_good], labels))
    centres = np.stack([np.bincount(group, column) for column in points.T], 1) / sizes[:, None]
    cluster_of_group = _even_clusters(centres, sizes, k, seed)
    names = np.full(len(features), "", dtype=object)
    order = np.argsort(-np.bincount(cluster_of_group, sizes), kind="stable")  # the largest is the first
    number_of = np.empty(len(order), np.int64)
    number_of[order] = np.arange(len(order))
    names[is_good] = [f"cluster {number + 1}" for number in number_of[cluster_of_group[group]]]
    return Sites(f"clusters of the features of {model}, without what the labels explain", pd.Series(names))


def _without_labels(features: Features, labels: Labels) -> NDArray[np.float64]:
    """Returns standardised features less the mean of their class; those of rare classes count less."""
    points = features - features.mean(0, dtype=np.float64)
    deviations = points.std(0)
    points /= np.where(deviations > 0, deviations, 1.0)
    sums = np.zeros((len(labels.classes), points.shape[1]))
    np.add.at(sums, labels.label, points[labels.image])
    means = sums / (1 + np.bincount(labels.label, minlength=len(sums)))[:, None]
    explained = np.zeros_like(points)
    np.add.at(explained, labels.image, means[labels.label])
    count = np.bincount(labels.image, minlength=len(points))
    return np.asarray(points - explained / np.maximum(count, 1)[:, None])


def _directions(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the points along their principal directions, the same at each call."""
    from sklearn.decomposition import PCA

    return np.asarray(PCA(min(DIRECTIONS, *points.shape), svd_solver="full").fit_transform(points))


def _even_clusters(centres: NDArray[np.float64], sizes: Ints, k: int, seed: int) -> Ints:
    """Returns the cluster of each group: of the first count of clusters whose folds are even, or the most even."""
    from sklearn.cluster import KMeans

    best, least = np.zeros(len(sizes), np.int64), np.inf
    for count in range(k, min(k + FURTHER_CLUSTERS, len(sizes)) + 1):
        clusters = KMeans(count, n_init=STARTS, random_state=seed).fit_predict(centres, sample_weight=sizes)
        clusters = np.unique(clusters, return_inverse=True)[1]
        if clusters.max() + 1 < k:
            continue
        totals = np.zeros(k)
        for size in sorted(np.bincount(clusters, sizes), reverse=True):
            totals[totals.argmin()] += size
        unevenness = totals.max() / totals.mean()
        if unevenness < least:
            best, least = clusters, unevenness
        if unevenness <= EVEN:
            break
    if not np.isfinite(least):
        raise PodiumError(f"--by-site: the images are too much alike for {plural(k, 'site')}; use fewer folds (--k)")
    return best


# --- folds -------------------------------------------------------------------------------------------


def site_folds(labels: Labels, is_good: Mask, groups: Ints, sites: Sites, k: int, seed: int) -> Folds:
    """Returns folds in which each site is whole: a fold for each of K sites, or several in one where there are more.

    `labels` are those of all images, `groups` the first images of groups, which hold whole sites. A class of one site
    is validated, too: on a new site, a model may meet what it has not seen.
    """
    names = sites.of_image.to_numpy()
    together = pd.Series(names[is_good]).groupby(groups[is_good]).unique()
    for shared in together[together.map(len) > 1]:
        say(f"podium: note: the sites {first_few(sorted(shared))} share duplicates or a group, so they share a fold")
    if len(together) < 2:
        raise PodiumError(
            f"--by-site: all sites share duplicates or groups with each other ({sites.source}), so none can be left"
            ' out; if images only look alike, write copies = "exact" in the card, else name another column'
        )
    if len(together) < k:
        say(f"podium: a fold for each of {plural(len(together), 'site')}, not {plural(k, 'fold')} (--k)")
        k = len(together)
    labels = labels.of_images(is_good)
    cells = cells_of(labels.label, groups[is_good][labels.image], len(labels.classes))
    if (np.bincount(cells.label) < 2).all():
        raise PodiumError(
            f"--by-site: each class has all its images in one site ({sites.source}), so no model would learn a class"
            " that it is judged on; name a column of sites or cameras, or leave the name out, to cluster the images"
        )
    of_image = np.full(len(names), -1, np.int64)
    of_image[is_good] = deal(labels, groups[is_good], k, np.random.default_rng([seed, k]))
    folds = Folds.of(of_image)
    if fault := folds.fault():
        raise PodiumError(f"--by-site: {fault}; use fewer folds (--k)")
    return folds
