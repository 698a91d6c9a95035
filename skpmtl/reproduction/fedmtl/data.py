"""Section 7.1: rows and tasks of clients; CelebA's own files; generated faces and scenes."""

from pathlib import Path

import numpy as np

__all__ = [
    "dirichlet_sizes",
    "load_celeba",
    "make_faces",
    "make_scenes",
    "split_rows",
    "task_sets",
]


def dirichlet_sizes(n_rows, n_clients, *, concentration=1.0, least=10, random_state=None):
    """Rows of every client: shares of a symmetric Dirichlet distribution, at least `least`.

    The paper does not say which concentration it has.

    Returns
    -------
    sizes : ndarray of int (n_clients,)
        Their sum is `n_rows`.
    """
    if n_rows < least * n_clients:
        raise ValueError(f"{n_clients} clients of {least} rows need more than n_rows={n_rows}.")
    rng = np.random.default_rng(random_state)
    share = rng.dirichlet(np.full(n_clients, float(concentration)))
    free = n_rows - least * n_clients
    ends = np.round(np.cumsum(share) * free).astype(int)
    ends[-1] = free
    return least + np.diff(ends, prepend=0)


def task_sets(n_clients, n_tasks, distribution, *, random_state=None):
    """U_i of every client, sorted lists of tasks.

    `distribution` is "D1" (two tasks), "D2" (any number from 1 to `n_tasks`), or "pairs" ((0, 1),
    (2, 3), ... in turn, the groups of figure 6).
    """
    rng = np.random.default_rng(random_state)
    if distribution == "pairs":
        return [[2 * (i % (n_tasks // 2)), 2 * (i % (n_tasks // 2)) + 1] for i in range(n_clients)]
    if distribution not in ("D1", "D2"):
        raise ValueError(f'distribution={distribution!r} must be "D1", "D2" or "pairs".')
    counts = rng.integers(1, n_tasks + 1, n_clients) if distribution == "D2" else [2] * n_clients
    return [sorted(rng.choice(n_tasks, count, replace=False).tolist()) for count in counts]


def split_rows(client, *, random_state=None):
    """Part of every row (n,): 0 for training, 1 for validation, 2 for the test.

    70, 15 and 15 % of the rows of every client, and of each at least one row.
    """
    client, rng = np.asarray(client), np.random.default_rng(random_state)
    part = np.zeros(len(client), dtype=int)
    for name in np.unique(client):
        rows = rng.permutation(np.flatnonzero(client == name))
        held = max(1, round(0.15 * len(rows)))
        part[rows[:held]], part[rows[held : 2 * held]] = 1, 2
    return part


def _without_others(y, client, sets):
    """NaN for the tasks that the client of a row does not have."""
    for i, own in enumerate(sets):
        others = np.setdiff1d(np.arange(y.shape[1]), own)
        y[np.ix_(client == i, others)] = np.nan
    return y


def make_faces(
    sizes,
    sets,
    domain,
    *,
    n_tasks=8,
    n_attributes=5,
    n_features=24,
    n_hidden=8,
    correlation=0.5,
    noise=(0.5, 1.2),
    missing=0.0,
    random_state=None,
):
    """Attributes of faces, generated, in place of CelebA and LFWA.

    Hidden features are ``h = max(A' (x - m), 0)``, A common to all and m the mean of a domain. An
    attribute is there where ``b' h``, standardised, plus normal noise exceeds a threshold: A, b and
    m are normal, b has the given correlation between domains, and rates of attributes are uniform
    between .2 and .8.

    Parameters
    ----------
    sizes : array-like of int (n_clients,)
    sets : list of list of int
        Tasks of every client.
    domain : array-like of int (n_clients,)
        0 or 1, "CelebA" or "LFWA".
    n_tasks, n_attributes : int, default=8 and 5
        K and L.
    n_features, n_hidden : int, default=24 and 8
    correlation : float in [0, 1], default=0.5
    noise : (float, float), default=(0.5, 1.2)
        Its standard deviation in each domain.
    missing : float, default=0.0
        Part of the targets of a row that are missing, task by task.
    random_state : int, default=None

    Returns
    -------
    X : ndarray (n, n_features)
    y : ndarray (n, K, L)
        0, 1, or NaN.
    client : ndarray (n,)
    """
    rng = np.random.default_rng(random_state)
    A = rng.normal(size=(n_features, n_hidden)) / np.sqrt(n_features)
    common = rng.normal(size=(n_tasks, n_attributes, n_hidden))
    own = rng.normal(size=(2, *common.shape))
    b = np.sqrt(correlation) * common + np.sqrt(1.0 - correlation) * own
    means = 0.5 * rng.normal(size=(2, n_features))
    rate = rng.uniform(0.2, 0.8, (n_tasks, n_attributes))
    sizes, domain = np.asarray(sizes), np.asarray(domain)
    client = np.repeat(np.arange(len(sizes)), sizes)
    of = domain[client]
    centred = rng.normal(size=(len(client), n_features))
    h = np.maximum(centred @ A, 0.0)
    y = np.empty((len(client), n_tasks, n_attributes))
    for g in np.unique(of):
        rows = of == g
        score = np.einsum("nh,klh->nkl", h[rows], b[g])
        score = (score - score.mean(axis=0)) / score.std(axis=0)
        score += noise[g] * rng.normal(size=score.shape)
        for at in np.ndindex(rate.shape):
            each = score[(slice(None), *at)]
            y[(rows, *at)] = each > np.quantile(each, 1.0 - rate[at])
    y[rng.random(y.shape[:2]) < missing] = np.nan
    return centred + means[of], _without_others(y, client, sets), client


def make_scenes(sizes, sets, *, n_tasks=4, n_categories=3, side=16, noise=0.3, random_state=None):
    """Images with a category for every pixel and task, generated, in place of NYUD2.

    Images are three mixtures of four smooth random fields, and noise; the category of a pixel in
    task k is the largest of `n_categories` other mixtures of the fields.

    Returns
    -------
    X : ndarray (n, 3, side, side)
    y : ndarray (n, K, side, side)
        Categories from 0, NaN for tasks that the client does not have.
    client : ndarray (n,)
    """
    rng = np.random.default_rng(random_state)
    client = np.repeat(np.arange(len(sizes)), sizes)
    at = np.arange(side) / side
    waves = np.stack([f(np.pi * k * at) for k in (1, 2) for f in (np.sin, np.cos)])  # (4, side)
    weights = rng.normal(size=(len(client), 4, 4, 4))
    fields = np.einsum("nfab,ay,bx->nfyx", weights, waves, waves, optimize=True) / 2.0
    X = np.einsum("cf,nfyx->ncyx", rng.normal(size=(3, 4)) / 2.0, fields)
    X = X + noise * rng.normal(size=X.shape)
    of = rng.normal(size=(n_tasks, n_categories, 4))
    y = np.einsum("kcf,nfyx->nkcyx", of, fields, optimize=True).argmax(axis=2).astype(float)
    return X, _without_others(y, client, sets), client


def load_celeba(folder, n_rows=12_000, *, n_tasks=8, side=32, random_state=None):
    """CelebA from its own files; images need the package Pillow.

    Parameters
    ----------
    folder : path-like
        With ``list_attr_celeba.txt`` and the folder ``img_align_celeba`` of the JPEG files.
    n_rows : int, default=12000
        D, images that are drawn.
    n_tasks : int, default=8
        K; task k has the attributes L k, ..., L k + L - 1 in the order of the file, L = 5. The
        paper does not say which attributes form a task.
    side : int, default=32
        The square in the middle of an image is scaled to this size.
    random_state : int, default=None

    Returns
    -------
    X : ndarray of float32 (n_rows, 3, side, side)
        From -1 to 1.
    y : ndarray (n_rows, K, L)
        0 or 1.
    names : list of list of str
        Attributes of every task.

    Raises
    ------
    ValueError
        For a file of attributes that has not this form, or fewer images than `n_rows`.
    """
    from PIL import Image

    folder = Path(folder)
    lines = (folder / "list_attr_celeba.txt").read_text(encoding="utf-8").splitlines()
    names = lines[1].split() if len(lines) > 1 else []
    rows = [line.split() for line in lines[2:] if line.strip()]
    if not names or any(len(row) != len(names) + 1 for row in rows) or len(names) % n_tasks:
        raise ValueError(
            f"list_attr_celeba.txt must have a count, a line of names, a multiple of {n_tasks}, "
            "and a line for each image with its file and a number for every name."
        )
    if len(rows) < n_rows:
        raise ValueError(f"There are {len(rows)} images: take n_rows of at most that.")
    pick = np.sort(np.random.default_rng(random_state).choice(len(rows), n_rows, replace=False))
    X = np.empty((n_rows, 3, side, side), dtype=np.float32)
    for place, i in enumerate(pick):
        with Image.open(folder / "img_align_celeba" / rows[i][0]) as image:
            width, height = image.size
            edge = min(width, height)
            left, top = (width - edge) // 2, (height - edge) // 2
            image = image.convert("RGB").crop((left, top, left + edge, top + edge))
            X[place] = np.asarray(image.resize((side, side)), dtype=np.float32).transpose(2, 0, 1)
    values = np.array([[float(v) for v in rows[i][1:]] for i in pick])
    length = len(names) // n_tasks
    grouped = [names[k * length : (k + 1) * length] for k in range(n_tasks)]
    return X / 127.5 - 1.0, (values > 0).astype(float).reshape(n_rows, n_tasks, length), grouped
