"""Random assignment of rows to folds, held-out sets and batches, one task at a time.

All random choices of rows in this package are made here. They follow from a seed, the id of the
task and the place of the row in its task, and from nothing else: one task's rows, or its absence,
never change which rows of another task are chosen. A fit to the chosen rows therefore has the
sensitivity of a fit to all rows. The seed is not secret, so that a choice made here must not be
counted as privacy amplification; samples that are come from `skpmtl.privacy.rng.SecureSource`.
"""

import hashlib
import secrets

import numpy as np
from sklearn.utils import check_random_state

from .ids import factorize

__all__ = ["deal", "draw_seed", "hold_out", "random_words", "shuffled"]


def draw_seed(random_state):
    """Seed of the functions below, an int.

    Parameters
    ----------
    random_state : int, RandomState instance or None
        An integer is the seed itself, a generator draws one, and None takes one from the operating
        system.

    Raises
    ------
    ValueError
        For anything else.
    """
    if random_state is None:
        return secrets.randbits(128)
    generator = check_random_state(random_state)  # refuses what is no seed
    if generator is random_state or random_state is np.random:
        return int(generator.randint(2**31))
    return int(random_state)


def random_words(seed, purpose, tasks, sizes=None):
    """Uniform 64-bit words, `sizes` of each task, task after task.

    The words of a task are the first of SHAKE128 (FIPS 202) of seed, purpose and id. A number and
    its text are the same id, as in a CSV file.

    Parameters
    ----------
    seed : int
    purpose : str
        What the words decide; two purposes have independent words.
    tasks : ndarray of shape (m,)
        Ids, as `encode_ids` returns them.
    sizes : ndarray of int of shape (m,), default=None
        Number of words of each task; None: one.

    Returns
    -------
    words : ndarray of uint64 of shape (sizes.sum(),)
    """
    ids = np.asarray(tasks).tolist()
    counts = [1] * len(ids) if sizes is None else np.asarray(sizes).tolist()
    start = hashlib.shake_128(f"{seed}/{purpose}/".encode())
    streams = []
    for task, count in zip(ids, counts, strict=True):
        own = start.copy()
        own.update(str(task).encode("utf-8", "surrogatepass"))
        streams.append(own.digest(8 * count))
    return np.frombuffer(b"".join(streams), dtype="<u8").astype(np.uint64)


def _by_task(codes, n_tasks):
    """Rows sorted by task, in their order, and the number of rows of each task."""
    return np.argsort(codes, kind="stable"), np.bincount(codes, minlength=n_tasks)


def _places(sizes):
    """Place of each row in its task, for rows sorted by task."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def shuffled(codes, tasks, seed, purpose="order"):
    """Rows sorted by task, in random order within each task.

    Parameters
    ----------
    codes : ndarray of int of shape (n,)
        Position in `tasks` of the task of each row.
    tasks : ndarray of shape (m,)
    seed : int
    purpose : str, default="order"
        See `random_words`.

    Returns
    -------
    rows : ndarray of int of shape (n,)
    """
    rows, sizes = _by_task(codes, len(tasks))
    words = random_words(seed, purpose, tasks, sizes)
    return rows[np.lexsort((words, codes[rows]))]


def deal(codes, tasks, n_splits, *, labels=None, seed=0, shuffle=False):
    """Deal the rows of each task to the folds in turn, one row to a fold.

    The first row of a task goes to a fold that is drawn for the task, the next row to the next
    fold. With labels a task deals its rows label after label, in the order in which the labels
    first occur in the task; labels that are all different change nothing.

    Parameters
    ----------
    codes : ndarray of int of shape (n,)
        Position in `tasks` of the task of each row.
    tasks : ndarray of shape (m,)
    n_splits : int
    labels : array-like of shape (n,), default=None
    seed : int, default=0
    shuffle : bool, default=False
        Whether a task deals its rows in random order.

    Returns
    -------
    fold : ndarray of int of shape (n,)
        Each fold has floor(k / n_splits) or ceil(k / n_splits) of the k rows of a task.
    """
    rows, sizes = _by_task(codes, len(tasks))
    if shuffle:
        rows = shuffled(codes, tasks, seed)
    if labels is not None:
        kinds = factorize(labels)[0] + 1  # missing labels are one kind
        pairs = codes * (kinds.max(initial=0) + 1) + kinds
        _, first, number = np.unique(pairs[rows], return_index=True, return_inverse=True)
        rows = rows[np.argsort(first[number], kind="stable")]
    begin = random_words(seed, "first fold", tasks) % np.uint64(n_splits)
    fold = np.empty(len(codes), dtype=np.int64)
    fold[rows] = (np.repeat(begin.astype(np.int64), sizes) + _places(sizes)) % n_splits
    return fold


def hold_out(codes, tasks, share, seed):
    """Mark a random share of the rows of each task.

    A task of k rows holds out ``share * k`` of them. If that is not a whole number, it is rounded
    up for a random part of the tasks, so that the expected share is exact for tasks of any size.
    Each task keeps at least one row.

    Parameters
    ----------
    codes : ndarray of int of shape (n,)
        Position in `tasks` of the task of each row.
    tasks : ndarray of shape (m,)
    share : float
        Between 0 and 1.
    seed : int

    Returns
    -------
    held : ndarray of bool of shape (n,)
    """
    rows, sizes = shuffled(codes, tasks, seed), np.bincount(codes, minlength=len(tasks))
    up = (random_words(seed, "rounding", tasks) >> np.uint64(11)) * 2.0**-53
    count = np.minimum(np.floor(share * sizes + up), np.maximum(sizes - 1, 0))
    held = np.empty(len(codes), dtype=bool)
    held[rows] = _places(sizes) < np.repeat(count, sizes)
    return held
