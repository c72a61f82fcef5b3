"""Splits the training images into K folds, once, for every run: stratified, seeded, without leaks, certified.

    podium folds [-c SLUG] [--k 5] [--seed 0] [--group COLUMN]          podium folds --verify [FILE]

Reads the audit, so that copies of one picture share a fold. Writes data/prepared/<slug>/folds.csv with columns
id,target,fold,group, and folds.json, what it guarantees. Fold -1 is trained on in every fold and validated in
none: the images of classes that have fewer than K or only one group. A file made elsewhere serves as well, as
long as it has the columns id and fold.
"""

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, hstack

from podium import PodiumError
from podium.audit import audited, too_alike
from podium.certificate import certify
from podium.competition import Competition
from podium.console import command, podium, say, show, table
from podium.disk import sha256, write_bytes, write_json
from podium.duplicates import joined
from podium.tables import read_table, table_text

Ints = NDArray[np.int64]

# Of the exchange of groups between folds: how often each pair of folds, how many groups of each, and the relative
# improvement that is not worth another round.
ROUNDS, CANDIDATES, ENOUGH = 30, 256, 1e-7
MOST_FOLDS = 100


def assign(targets: Sequence[str], k: int, seed: int, groups: Sequence[str] | Ints | None = None) -> NDArray[np.int64]:
    """A fold for every image; images of one group share theirs. Each class is spread over the folds to within one
    group, where groups are of one class, and the whole as evenly as that allows. -1, always trained on: a class of
    fewer than K images, unless its groups hold others too, and every group that holds all of a class."""
    label = pd.factorize(np.asarray(targets, dtype=object), sort=True)[0]
    group = np.arange(len(label)) if groups is None else pd.factorize(np.asarray(groups, dtype=object))[0]
    barred = np.zeros(label.max() + 1, dtype=bool)
    most = 0
    while True:
        free = _can_be_validated(label, group, k, barred)
        if free.sum() < most / 2:
            break  # too dear: the last folds stay, and their certificate names the classes
        most = max(most, int(free.sum()))
        folds = np.full(len(label), -1, dtype=np.int64)
        if free.any():
            folds[free] = _deal(label[free], group[free], k, np.random.default_rng([seed, k]))
        # Where groups hold several classes, all of one may have come into one fold, whose model would lack it.
        spread = pd.crosstab(label, folds).reindex(columns=range(-1, k), fill_value=0).to_numpy()
        alone = spread[:, 1:].max(1) == spread.sum(1)
        if not alone.any():
            break
        barred |= alone
    if not most:
        few = "; fewer folds (--k 2) or smaller groups may help" if k > 2 else ""
        raise PodiumError(
            f"no class has {k} images, in two groups or more, that others can do without, so nothing could be"
            f" validated{few}"
        )
    empty = sorted(set(range(k)) - set(folds.tolist()))
    if empty:
        raise PodiumError(f"the groups are too few to fill {k} folds; take fewer: --k {k - len(empty)}")
    return folds


def _can_be_validated(label: Ints, group: Ints, k: int, barred: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The images of all groups but those that hold a class which some fold's training would lack or hardly see; the
    `barred` are known to be such."""
    classes, groups, images = _contents(label, group)
    never = np.zeros(group.max() + 1, dtype=bool)
    mixed = np.bincount(groups)[groups] > 1
    amid_others = np.bincount(classes[mixed], minlength=label.max() + 1) > 0  # not worth the other classes' images
    while True:
        left = ~never[groups]
        few = (np.bincount(classes[left], images[left], label.max() + 1) < k) & ~amid_others
        few |= (np.bincount(classes[left], minlength=label.max() + 1) < 2) | barred
        more = groups[left & few[classes]]
        if not len(more):
            return ~never[group]
        never[more] = True  # which may leave another class with too few


def _deal(label: Ints, group: Ints, k: int, draws: np.random.Generator) -> Ints:
    """The rarest class first, of each its largest groups first: to the fold that has the least of what they hold.
    Single images come last and make even what can be."""
    group = np.unique(group, return_inverse=True)[1]
    classes, groups, images = _contents(label, group)
    ends = np.searchsorted(groups, np.arange(groups[-1] + 2))  # of each group's contents
    of_class, size = np.bincount(label), np.bincount(group)
    rarest = classes[np.lexsort((of_class[classes], groups))][ends[:-1]]  # class of each group
    order = draws.permutation(len(size))
    order = order[np.lexsort((-size[order], rarest[order], of_class[rarest[order]]))]

    counts, total = np.zeros((len(of_class), k)), np.zeros(k)
    chosen = np.full(len(size), -1)
    large, single = order[size[order] > 1], order[size[order] == 1]
    for one in large:
        held, many = classes[ends[one] : ends[one + 1]], images[ends[one] : ends[one + 1]]
        had = (many / of_class[held]) @ counts[held]
        best = int(np.lexsort((total, had))[0])
        chosen[one] = best
        counts[held, best] += many
        total[best] += size[one]
    if len(groups) > len(size):  # groups of several classes: what suited the first may not suit the last
        shares = coo_array((images / of_class[classes], (groups, classes))).tocsr()
        shares = hstack([shares, size[:, None] / size.sum()], format="csr")[large]
        chosen[large] = _exchange(shares, chosen[large], k, draws)
        some = size[groups] > 1
        counts[:] = 0
        np.add.at(counts, (classes[some], chosen[groups[some]]), images[some])
        total[:] = np.bincount(chosen[large], size[large], k)
    for some in np.split(single, np.flatnonzero(np.diff(rarest[single])) + 1):
        if len(some):
            more = _levelling(counts[rarest[some[0]]], total, len(some))
            chosen[some] = np.repeat(np.arange(k), more)
            total += more
    return chosen[group]


def _exchange(shares: csr_array, chosen: Ints, k: int, draws: np.random.Generator) -> Ints:
    """Moves groups from fold to fold, alone or against another, for as long as that makes the folds more alike: it
    lowers the sum of the squares of what each holds. A row of `shares` is what a group has of each class and of all
    images."""
    chosen = chosen.copy()
    squares = shares.multiply(shares).sum(1)
    held = np.stack([shares[chosen == fold].sum(0) for fold in range(k)])
    for _ in range(ROUNDS):
        before = np.square(held).sum()
        for one, other in combinations(range(k), 2):
            ours, theirs = (draws.permutation(np.flatnonzero(chosen == fold))[:CANDIDATES] for fold in (one, other))
            ours_shares, theirs_shares = shares[ours], shares[theirs]
            # Half of the change that an exchange of two brings; the last row and column are those of nothing.
            change = np.zeros((len(ours) + 1, len(theirs) + 1))
            change[:-1] = squares[ours][:, None]
            change[:, :-1] += squares[theirs]
            change[:-1, :-1] -= 2 * (ours_shares @ theirs_shares.T).toarray()
            while True:
                apart = held[other] - held[one]
                pull, push = np.append(ours_shares @ apart, 0), np.append(theirs_shares @ apart, 0)
                now = change + pull[:, None] - push
                i, j = np.unravel_index(now.argmin(), now.shape)
                if now[i, j] > -1e-12:
                    break
                moved = np.zeros(len(apart))
                if i < len(ours):
                    chosen[ours[i]], change[i] = other, np.inf
                    moved += ours_shares[[i]].toarray()[0]
                if j < len(theirs):
                    chosen[theirs[j]], change[:, j] = one, np.inf
                    moved -= theirs_shares[[j]].toarray()[0]
                held[one] -= moved
                held[other] += moved
        if np.square(held).sum() > before * (1 - ENOUGH):
            break
    return chosen


def _contents(label: Ints, group: Ints) -> tuple[Ints, Ints, Ints]:
    """What the groups hold, group after group: class, group, how many images."""
    classes = label.max() + 1
    both, images = np.unique(group * classes + label, return_counts=True)
    return both % classes, both // classes, images


def _levelling(had: NDArray[np.float64], total: NDArray[np.float64], many: int) -> Ints:
    """How many of `many` images each fold gets so that those that have the least become equal."""
    order = np.lexsort((total, had))
    sums = np.cumsum(had[order])
    low = 1
    while low < len(had) and many >= had[order[low]] * low - sums[low - 1]:
        low += 1
    each, rest = divmod(int(sums[low - 1]) + many, low)
    lowest = order[:low]
    more = np.zeros(len(had), dtype=np.int64)
    more[lowest] = each - had[lowest]
    more[lowest[np.argsort(total[lowest], kind="stable")][:rest]] += 1  # of the remainder, to the smallest folds
    return more


def path_of(slug: str, root: Path) -> Path:
    return root / "data" / "prepared" / slug / "folds.csv"


def write_folds(competition: Competition, root: Path, k: int, seed: int) -> Path:
    """Splits, certifies and writes."""
    if k < 2:
        raise PodiumError(f"--k {k}: at least two folds are needed, one to learn from and one to validate on")
    if k > MOST_FOLDS:
        raise PodiumError(f"--k {k}: each fold is a model to train, {MOST_FOLDS} are enough")
    path = path_of(competition.slug, root)
    rows = audited(competition, root)
    train = rows[rows["role"] == "train"]
    good = (train["reason"] == "").to_numpy()
    if not good.any():
        raise PodiumError(f"{competition.folder}: not one training image can be read; download it again")
    groups = _groups(competition, train)
    alike = too_alike(rows)
    try:
        folds = _assigned(train, good, groups, k, seed)
    except PodiumError as error:
        raise PodiumError("; ".join([str(error), *alike])) from None
    for text in alike:
        say(f"podium: warning: {text}")
    ids = train["id"].to_numpy()  # a group is called by its first one
    rows_of_file = zip(ids, train["target"], folds.tolist(), ids[groups], strict=True)
    content = table_text([("id", "target", "fold", "group"), *rows_of_file]).encode()
    before = path.read_bytes() if path.exists() else None
    if before == content:
        say(f"podium: {path} holds these folds already")
    else:
        if before is not None:
            kept = path.with_name("folds-before.csv")
            write_bytes(kept, before)
            say(f"podium: warning: the folds have changed; runs begun on the old ones, now {kept}, cannot go on")
        write_bytes(path, content)
    certificate = certify(competition, rows, folds, path, folds)
    write_json(path.with_suffix(".json"), certificate.as_json())
    show(f"{summary(competition, folds, good)}\n\n{certificate}")
    say(f"podium: wrote {path} and {path.with_suffix('.json').name}")
    say(f"next: {command('train', competition.slug, model='vit_small_patch32_224')}")
    return path


def _groups(competition: Competition, train: pd.DataFrame) -> Ints:
    """For each training image the first of its group: of copies, of the named column, or of both in a chain."""
    return joined([train["group"], *([] if competition.groups is None else [competition.groups])])


def _assigned(train: pd.DataFrame, good: NDArray[np.bool_], groups: Ints, k: int, seed: int) -> Ints:
    """Folds of the images that can be read; the others are in none."""
    folds = np.full(len(train), -1, dtype=np.int64)
    folds[good] = assign(list(train["target"][good]), k, seed, groups[good])
    return folds


def verify(competition: Competition, root: Path, path: Path | None) -> None:
    """Recomputes what a folds file guarantees; an error where it is not what it should be."""
    own = path_of(competition.slug, root)
    path = path or own
    folds = read_folds(competition, root, path)
    rows = audited(competition, root)
    train = rows[rows["role"] == "train"]
    good = (train["reason"] == "").to_numpy()
    try:
        possible = _assigned(train, good, _groups(competition, train), int(folds.max()) + 1, seed=0)
    except PodiumError:  # nothing better is known
        possible = folds
    certificate = certify(competition, rows, folds, path, possible)
    show(f"{summary(competition, folds, good)}\n\n{certificate}")
    if path.resolve() == own.resolve():
        path.with_suffix(".json").unlink(missing_ok=True)
        if not certificate.broken:
            write_json(path.with_suffix(".json"), certificate.as_json())
    if certificate.broken:
        raise PodiumError(f"{path}: {'; '.join(certificate.broken)}")
    say(f"podium: {path} holds what it should")


def certified_group(slug: str, root: Path) -> str | None:
    """The column of groups that the competition's folds were certified with."""
    try:
        known = json.loads(path_of(slug, root).with_suffix(".json").read_text(encoding="utf-8"))
        return str(known["group_column"]) if known["group_column"] else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def groups_of(competition: Competition, root: Path) -> dict[str, str]:
    """The group of each training image that has one, by the folds' file, ours or anybody's, or else by the card."""
    train, path = competition.train, path_of(competition.slug, root)
    ids, groups = train["id"], pd.Series("", index=train.index) if competition.groups is None else competition.groups
    if path.exists():
        rows = read_table(path, f"make folds with: {command('folds', competition.slug)}")
        if {"id", "group"} <= set(rows.columns):
            ids, groups = rows["id"], rows["group"]
    return {name: group for name, group in zip(ids, groups, strict=True) if group}


def warn_unless_certified(competition: Competition, root: Path) -> None:
    """Hand-made folds serve, but whoever trains on them should know what they hold."""
    path = path_of(competition.slug, root)
    try:
        known = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if (known["folds_sha256"], known["data_sha256"]) == (sha256(path), competition.train_hash) and known["holds"]:
            return
    except (OSError, ValueError, LookupError, TypeError):
        pass
    verifying = f"{podium()} folds -c {competition.slug} --verify"
    say(f"podium: warning: nobody has verified that {path} keeps copies of one image together: {verifying}")


def summary(competition: Competition, folds: Ints, good: NDArray[np.bool_] | None = None) -> str:
    """How many images each fold trains on and validates: of those that can be read, where that is known."""
    targets = competition.train["target"].to_numpy()
    k = int(folds.max()) + 1
    if good is not None:
        targets, folds = targets[good], folds[good]
    counts = pd.crosstab(targets, folds)
    rows = []
    for fold in range(k):
        validated = int((folds == fold).sum())
        classes = int((counts[fold] > 0).sum()) if validated else 0
        rows.append([fold, f"{len(folds) - validated:,}", f"{validated:,}", classes])
    return table(["fold", "train", "validate", "classes"], rows)


def read_folds(competition: Competition, root: Path, path: Path | None = None) -> Ints:
    """The fold of every row of `competition.train`, from folds.csv, ours or anybody's; checked."""
    path = path or path_of(competition.slug, root)
    if not path.exists():
        raise PodiumError(
            f"{path} does not exist; split the training images with: {command('folds', competition.slug)}"
        )
    rows = read_table(path, f"make folds with: {command('folds', competition.slug)}")
    for column in ("id", "fold"):
        if column not in rows.columns:
            raise PodiumError(f"{path}: no column '{column}'; there are {', '.join(rows.columns)}")
    twice = rows["id"][rows["id"].duplicated()]
    if len(twice):
        raise PodiumError(f"{path}, line {twice.index[0]}: id '{twice.iloc[0]}' stands there twice")
    wrong = rows["fold"][~rows["fold"].str.fullmatch("-1|0|[1-9][0-9]{0,3}")]
    if len(wrong):
        raise PodiumError(f"{path}, line {wrong.index[0]}: fold '{wrong.iloc[0]}' is not -1, 0, 1, ...")
    unknown = rows["id"][~rows["id"].isin(competition.train["id"])]
    if len(unknown):
        raise PodiumError(f"{path}, line {unknown.index[0]}: no training image has the id '{unknown.iloc[0]}'")
    aligned = rows.set_index("id").reindex(competition.train["id"])
    absent = aligned.index[aligned["fold"].isna()]
    if len(absent):
        raise PodiumError(f"{path}: {len(absent):,} training images have no fold, '{absent[0]}' first; make it anew")
    if "target" in rows.columns:
        differs = aligned["target"].to_numpy() != competition.train["target"].to_numpy()
        if differs.any():
            there, here = aligned["target"][differs].iloc[0], competition.train["target"][differs].iloc[0]
            raise PodiumError(
                f"{path}: id '{aligned.index[differs][0]}' has the label '{there}' there and '{here}' in the"
                " competition's files; make the folds anew"
            )
    folds: NDArray[np.int64] = aligned["fold"].astype(np.int64).to_numpy()
    empty = sorted(set(range(int(folds.max()) + 1)) - set(folds.tolist()))
    if empty or folds.max() < 0:
        raise PodiumError(
            f"{path}: no image in fold {empty[0] if empty else 0}; folds are numbered from 0 without gaps"
        )
    if (folds >= 0).all() and folds.max() == 0:
        raise PodiumError(f"{path}: all images are in fold 0, so none is left to train on")
    return folds
