"""Data for studies of multi-task learning: School, LEAF's files and the papers' generators."""

import hashlib
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from sklearn.datasets import get_data_home
from sklearn.utils import Bunch, check_random_state

from .leaf import load_leaf

__all__ = [
    "fetch_school",
    "load_leaf",
    "load_school",
    "make_group_sparse_tasks",
    "make_low_rank_tasks",
    "make_lsoa_like",
]

SCHOOL_ENV = "SKPMTL_SCHOOL"
SCHOOL_FILE = "school.mat"
SCHOOL_URL = (
    "https://raw.githubusercontent.com/jiayuzhou/MALSAR/"
    "ca3d55b878cc4113f0d9603e8ac46538aeb1ecd9/data/school.mat"
)
SCHOOL_SHA256 = "57fb3238fdd03a9aa17276e2ce18d9bbb5d128c3261e794fe6233b58b6909068"

SCHOOL_FEATURES = (
    *("year_a", "year_b", "year_c"),
    *("pct_free_school_meals", "pct_vr_band_1"),
    *("girl", "boy"),
    *("vr_band_3", "vr_band_1", "vr_band_2"),
    *("ethnic_eswi", "ethnic_african", "ethnic_arab", "ethnic_bangladeshi"),
    *("ethnic_caribbean", "ethnic_greek", "ethnic_indian", "ethnic_pakistani"),
    *("ethnic_south_east_asian", "ethnic_turkish", "ethnic_other"),
    *("school_mixed", "school_boys", "school_girls"),
    *("school_maintained", "school_church_of_england", "school_roman_catholic"),
    "constant",
)
_PERCENTAGES = [SCHOOL_FEATURES.index(name) for name in SCHOOL_FEATURES if "pct_" in name]

_SCHOOL_DESCR = """\
School data set (Inner London Education Authority)
--------------------------------------------------
Examination scores of 15,362 pupils from 139 secondary schools in inner London, in three
years (1985 to 1987). One task is one school: predict the score of its pupils.

:Rows: 15,362 pupils, 22 to 251 a school, sorted by school
:Tasks: 139 schools, labelled 0 to 138 in the order of the file
:Target: examination score, whole numbers from 1 to 70
:Features: 28, of which 25 are 0/1 indicators

===========  =============================================================================
column       meaning
===========  =============================================================================
0 to 2       year of the examination (indicators; the file does not say in which order)
3            percentage of the school's pupils eligible for free school meals, 0 to 100
4            percentage of the school's pupils in verbal reasoning band 1, 0 to 100
5, 6         girl, boy
7 to 9       the pupil's own verbal reasoning band: 3 (lowest), 1 (highest), 2
10 to 20     ethnic group, eleven indicators; the first is English, Scottish, Welsh, Irish
21 to 23     mixed, boys', girls' school
24 to 26     maintained, Church of England, Roman Catholic school
27           the constant 1
===========  =============================================================================

Columns 21 to 27 are constant within each school, columns 3 and 4 within each school and
year. The indicator groups each add up to one (a few pupils have no verbal reasoning band),
so the pooled matrix has rank 23. The file has no column names: the ones used here follow
the published coding of the survey and agree with the data (means, scores, and the columns
that determine each other).

The file is the one distributed with the MALSAR toolbox (J. Zhou, J. Chen, J. Ye); the
multi-task form goes back to A. Argyriou, T. Evgeniou, M. Pontil, Convex multi-task feature
learning, Machine Learning 73, 2008.
"""


def load_school(path=None, *, scale=None, as_frame=False):
    """Load the School data set from a local file; nothing is downloaded.

    Parameters
    ----------
    path : str or path-like, default=None
        The MATLAB file ``school.mat`` of the MALSAR toolbox. None looks at the
        environment variable ``SKPMTL_SCHOOL``, then into scikit-learn's data home, where
        :func:`fetch_school` keeps its copy.

    scale : {None, "public"}, default=None
        "public" divides the two percentages (columns 3 and 4) by 100. That range is known
        without looking at the data, so the scaling releases nothing about any school, and
        rows of unit length then keep the indicators visible: with raw percentages these
        two columns make up nearly all of a row's length, which costs about .03 of
        normalised error. ``sklearn.preprocessing.normalize(school.data)`` afterwards gives
        the rows of unit length (constant column included) with which this package states
        its School results; normalising uses nothing but the row itself.

    as_frame : bool, default=False
        Return pandas objects; ``data`` then has the task column "school" first.

    Returns
    -------
    school : :class:`~sklearn.utils.Bunch`
        data : ndarray of shape (15362, 28), or DataFrame of shape (15362, 29)
            Pupils, sorted by school.
        target : ndarray or Series of shape (15362,)
            Examination scores, 1 to 70.
        task : ndarray or Series of shape (15362,)
            School of each pupil, 0 to 138.
        frame : DataFrame of shape (15362, 30)
            Task, features and target; only with ``as_frame=True``, else None.
        feature_names : list of str
            Names of the 28 features.
        target_names : list of str
            ``["exam_score"]``.
        DESCR : str
            What the columns mean and where the data come from.
        filename : str
            The file that was read.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not the School data set, or `scale` is unknown.
    """
    found = _find_school(path, data_home=None)
    if found is None:
        raise FileNotFoundError(
            f"The School data set was not found: give the path of {SCHOOL_FILE}, set "
            f"{SCHOOL_ENV}, or call skpmtl.datasets.fetch_school() to download it."
        )
    return _read_school(found, scale, as_frame)


def fetch_school(data_home=None, download_if_missing=True, *, scale=None, as_frame=False):
    """Load the School data set, downloading it once where no local file is found.

    Local files come first: the one named by the environment variable ``SKPMTL_SCHOOL``,
    then the copy in `data_home`. Otherwise the file (45 kB) is downloaded from the
    repository of the MALSAR toolbox, checked against its known SHA-256 and kept.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder of the copy; None is scikit-learn's data home (``~/scikit_learn_data``).

    download_if_missing : bool, default=True
        False raises an OSError rather than use the network.

    scale, as_frame
        As in :func:`load_school`.

    Returns
    -------
    school : :class:`~sklearn.utils.Bunch`
        As :func:`load_school`.

    Raises
    ------
    OSError
        If the file is missing and may not be, or cannot be, downloaded, or the download
        does not have the expected checksum.
    """
    found = _find_school(None, data_home)
    if found is None:
        if not download_if_missing:
            raise OSError(
                f"{SCHOOL_FILE} is not in {get_data_home(data_home)} and "
                f"download_if_missing is False; set {SCHOOL_ENV} to the path of a local copy."
            )
        found = Path(get_data_home(data_home)) / SCHOOL_FILE
        _download(SCHOOL_URL, found, SCHOOL_SHA256)
    return _read_school(found, scale, as_frame)


def _find_school(path, data_home):
    """The file to read, or None. A file that was named but is missing is an error."""
    for source, named in (("path", path), (SCHOOL_ENV, os.environ.get(SCHOOL_ENV))):
        if named:
            if not Path(named).is_file():
                raise FileNotFoundError(f"{source}={os.fspath(named)!r} is not a file.")
            return Path(named)
    cached = Path(get_data_home(data_home)) / SCHOOL_FILE
    return cached if cached.is_file() else None


def _download(url, target, sha256):
    """Download `url` to the Path `target`, which appears only once its checksum is right."""
    handle, part = tempfile.mkstemp(prefix=target.name, suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out, urllib.request.urlopen(url, timeout=60) as source:
            shutil.copyfileobj(source, out)
        got = hashlib.sha256(Path(part).read_bytes()).hexdigest()
        if got != sha256:
            raise OSError(
                f"{url} has SHA-256 {got}, expected {sha256}: the file was changed or cut "
                f"off. Try again, or set {SCHOOL_ENV} to the path of a local copy."
            )
        os.replace(part, target)
    except urllib.error.URLError as error:
        raise OSError(
            f"{url} could not be downloaded ({error.reason}); set {SCHOOL_ENV} to the path "
            f"of a local copy of {target.name}."
        ) from error
    finally:
        Path(part).unlink(missing_ok=True)


def _read_school(path, scale, as_frame):
    if scale not in (None, "public"):
        raise ValueError(f'scale={scale!r} is unknown; use None or "public".')
    try:
        content = loadmat(path)
        cells = content["X"].ravel(), content["Y"].ravel()
        sizes = [len(y) for y in cells[1]]
        X = np.vstack(cells[0]).astype(np.float64)
        y = np.concatenate([y.ravel() for y in cells[1]]).astype(np.float64)
        if [len(x) for x in cells[0]] != sizes or X.shape[1] != len(SCHOOL_FEATURES):
            raise ValueError(f"cells of shape {X.shape} and {y.shape}")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{os.fspath(path)!r} is not the School data set of MALSAR (cells X and Y, one "
            f"per school, {len(SCHOOL_FEATURES)} columns): {error}"
        ) from error
    if scale == "public":
        X[:, _PERCENTAGES] /= 100.0
    task = np.repeat(np.arange(len(sizes)), sizes)
    names, frame = list(SCHOOL_FEATURES), None
    if as_frame:
        import pandas as pd

        frame = pd.DataFrame(X, columns=names)
        frame.insert(0, "school", task)
        frame["exam_score"] = y
        X, y, task = frame.drop(columns="exam_score"), frame["exam_score"], frame["school"]
    return Bunch(
        data=X,
        target=y,
        task=task,
        frame=frame,
        feature_names=names,
        target_names=["exam_score"],
        DESCR=_SCHOOL_DESCR,
        filename=os.fspath(path),
    )


def make_low_rank_tasks(
    n_tasks=320,
    n_samples=30,
    n_features=30,
    *,
    n_blocks=4,
    correlation=0.999,
    variance=120.0,
    interleave=False,
    noise=1.0,
    n_test=0,
    coef=False,
    random_state=None,
):
    """Regression tasks in blocks of nearly equal coefficients: a matrix of low rank.

    The tasks form `n_blocks` blocks. Every coefficient is normal with mean 0 and the given
    variance; two tasks of one block have the given correlation in each coefficient, tasks
    of different blocks none. Rows are normal vectors scaled to unit length, and
    ``y = x' w_k + noise * N(0, 1)``.

    This is the synthetic low-rank study of [1]_ (section 5), which states neither variance
    nor correlation; the defaults give its non-private error (normalised MSE .014).

    Parameters
    ----------
    n_tasks, n_samples, n_features : int, default=320, 30 and 30
        Number of tasks, of rows per task and of features.

    n_blocks : int, default=4
        Number of blocks, as equal in size as possible.

    correlation : float, default=0.999
        Correlation of the coefficients of two tasks of a block, 0 to 1.

    variance : float, default=120.
        Variance of each coefficient. With unit-length rows it is also the variance of the
        noise-free response.

    interleave : bool, default=False
        Blocks take turns (task k is in block k mod `n_blocks`) instead of being contiguous.

    noise : float, default=1.
        Standard deviation of the noise.

    n_test : int, default=0
        Further rows per task, with the same coefficients, returned as a test set. The paper
        tests on nine times as many rows as it trains on.

    coef : bool, default=False
        Also return the coefficients.

    random_state : int, RandomState instance or None, default=None
        Seed of all draws.

    Returns
    -------
    X : ndarray of shape (n_tasks * n_samples, n_features)
        Rows, sorted by task.
    y : ndarray of shape (n_tasks * n_samples,)
        Responses.
    task : ndarray of shape (n_tasks * n_samples,)
        Task of each row, 0 to ``n_tasks - 1``.
    X_test, y_test, task_test : ndarray
        The same with `n_test` rows per task; only if ``n_test > 0``.
    coef : ndarray of shape (n_tasks, n_features)
        True coefficients; only if ``coef=True``.

    References
    ----------
    .. [1] J. Liang, Z. Liu, J. Zhou, X. Jiang, C. Zhang, F. Wang, "Model-protected
       multi-task learning", IEEE TPAMI 44(2), 2022.

    Examples
    --------
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=8, n_samples=5, random_state=0)
    >>> X.shape, y.shape, task[:6]
    ((40, 30), (40,), array([0, 0, 0, 0, 0, 1]))
    """
    if not 0 <= correlation <= 1:
        raise ValueError(f"correlation={correlation!r} must be between 0 and 1.")
    rng, position = check_random_state(random_state), np.arange(n_tasks)
    block = position % n_blocks if interleave else position * n_blocks // n_tasks
    common = rng.standard_normal((n_blocks, n_features))[block]
    own = rng.standard_normal((n_tasks, n_features))
    W = np.sqrt(variance) * (np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own)
    return _respond(W, n_samples, noise, n_test, coef, rng)


def make_group_sparse_tasks(
    n_tasks=320,
    n_samples=30,
    n_features=30,
    *,
    n_informative=4,
    coef_range=(1.0, 50.0),
    noise=1.0,
    n_test=0,
    coef=False,
    random_state=None,
):
    """Regression tasks that use the same few features, each in its own way.

    The first `n_informative` coefficients of a task have random signs and magnitudes
    uniform on `coef_range`, the others are zero; rows and responses are drawn as in
    :func:`make_low_rank_tasks`. The defaults are the group-sparse study of the same paper.

    Parameters
    ----------
    n_tasks, n_samples, n_features, noise, n_test, coef, random_state
        As in :func:`make_low_rank_tasks`.

    n_informative : int, default=4
        Number of features in use; they are the first ones.

    coef_range : tuple of two floats, default=(1., 50.)
        Range of the magnitudes.

    Returns
    -------
    X, y, task[, X_test, y_test, task_test][, coef]
        As :func:`make_low_rank_tasks`.

    Examples
    --------
    >>> from skpmtl.datasets import make_group_sparse_tasks
    >>> X, y, task, coef = make_group_sparse_tasks(n_tasks=8, coef=True, random_state=0)
    >>> (coef != 0).sum(axis=0)[:6]
    array([8, 8, 8, 8, 0, 0])
    """
    if not 0 <= n_informative <= n_features:
        raise ValueError(f"n_informative={n_informative!r} must be between 0 and n_features.")
    rng = check_random_state(random_state)
    W = np.zeros((n_tasks, n_features))
    shape = (n_tasks, n_informative)
    W[:, :n_informative] = rng.uniform(*coef_range, shape) * rng.choice([-1.0, 1.0], shape)
    return _respond(W, n_samples, noise, n_test, coef, rng)


def _respond(W, n_samples, noise, n_test, coef, rng):
    """Draw rows of unit length and their responses for the coefficients W (tasks, features)."""
    n_tasks, n_features = W.shape
    result = []
    for n in (n_samples, n_test) if n_test else (n_samples,):
        X = _unit_rows(rng.standard_normal((n_tasks, n, n_features)))
        y = np.matmul(X, W[:, :, None])[:, :, 0] + noise * rng.standard_normal((n_tasks, n))
        result += [X.reshape(-1, n_features), y.ravel(), np.repeat(np.arange(n_tasks), n)]
    return (*result, W) if coef else tuple(result)


def _unit_rows(X):
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def make_lsoa_like(
    n_samples=4299,
    n_features=295,
    n_tasks=41,
    *,
    n_continuous=10,
    missing=0.137,
    coef=False,
    random_state=None,
):
    """Binary outcomes of one group of persons, some of them unknown: wide y with NaN.

    A stand-in with the shape of the health survey studied in the model-protected
    multi-task learning paper (LSOA II: 41 outcomes, 295 mostly binary features, 13.7 % of
    the labels missing), which may not be redistributed. Every person is a row of X and
    every outcome a column of Y, so all tasks share one X.

    The features come from five latent factors: binary ones by thresholds at prevalences of
    3 % to 60 %, the `n_continuous` last ones as ranks in [0, 1]; rows are then scaled to unit
    length. The outcomes follow logistic models whose coefficients are the sum of a part
    shared by all outcomes, one of rank two and one of each outcome's own; all are sparse.
    Labels are missing completely at random.

    Parameters
    ----------
    n_samples, n_features, n_tasks : int, default=4299, 295 and 41
        Number of persons, of features and of outcomes.

    n_continuous : int, default=10
        Number of features that are not binary; at least one, so that no row is zero.

    missing : float, default=0.137
        Probability that a label is missing, at least 0 and less than 1.

    coef : bool, default=False
        Also return coefficients and intercepts.

    random_state : int, RandomState instance or None, default=None
        Seed of all draws.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        One row per person.
    Y : ndarray of shape (n_samples, n_tasks)
        Labels 0. and 1., NaN where missing.
    coef : ndarray of shape (n_tasks, n_features)
        Coefficients of the log-odds; only if ``coef=True``.
    intercept : ndarray of shape (n_tasks,)
        Intercepts of the log-odds; only if ``coef=True``.

    Examples
    --------
    >>> import numpy as np
    >>> from skpmtl.datasets import make_lsoa_like
    >>> X, Y = make_lsoa_like(n_samples=1000, random_state=0)
    >>> X.shape, Y.shape, np.unique(Y[~np.isnan(Y)])
    ((1000, 295), (1000, 41), array([0., 1.]))
    """
    if not 1 <= n_continuous <= n_features:
        raise ValueError(f"n_continuous={n_continuous!r} must be between 1 and n_features.")
    if not 0 <= missing < 1:
        raise ValueError(f"missing={missing!r} must be at least 0 and less than 1.")
    rng = check_random_state(random_state)
    n_binary = n_features - n_continuous
    factors = rng.standard_normal((n_samples, 5))
    latent = factors @ (0.6 * rng.standard_normal((5, n_features)))
    latent += rng.standard_normal((n_samples, n_features))
    rank = (latent.argsort(axis=0).argsort(axis=0) + 1.0) / n_samples
    prevalence = rng.uniform(0.03, 0.6, n_binary)
    X = rank
    X[:, :n_binary] = rank[:, :n_binary] > 1 - prevalence
    X = _unit_rows(X)

    def sparse(rows, density):
        draw = rng.standard_normal((rows, n_features))
        return draw * (rng.uniform(size=(rows, n_features)) < density)

    W = sparse(1, 0.2) + 0.7 * rng.standard_normal((n_tasks, 2)) @ sparse(2, 0.3)
    W += 0.5 * sparse(n_tasks, 0.05)
    log_odds = X @ W.T
    # Standardised log-odds keep every outcome about equally predictable.
    spread = 1.3 / log_odds.std(axis=0)
    centre = rng.uniform(-2.0, 0.5, n_tasks) - spread * log_odds.mean(axis=0)
    probability = 1 / (1 + np.exp(-(spread * log_odds + centre)))
    Y = (rng.uniform(size=probability.shape) < probability).astype(np.float64)
    Y[rng.uniform(size=Y.shape) < missing] = np.nan
    return (X, Y, W * spread[:, None], centre) if coef else (X, Y)
