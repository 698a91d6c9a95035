"""Data for studies of multi-task learning: School, LEAF's files and the papers' generators."""

import numpy as np
from sklearn.utils import check_random_state

from .._runtime.hints import RandomState

__all__ = ["make_group_sparse_tasks", "make_low_rank_tasks", "make_lsoa_like"]


def make_low_rank_tasks(
    n_tasks=320,
    n_samples=30,
    n_features=30,
    *,
    n_blocks: int = 4,
    correlation: float = 0.999,
    variance: float = 120.0,
    interleave: bool = False,
    noise: float = 1.0,
    n_test: int = 0,
    coef: bool = False,
    random_state: RandomState = None,
) -> tuple:
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
    n_informative: int = 4,
    coef_range: tuple = (1.0, 50.0),
    noise=1.0,
    n_test=0,
    coef=False,
    random_state: RandomState = None,
) -> tuple:
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
    n_continuous: int = 10,
    missing: float = 0.137,
    coef: bool = False,
    random_state: RandomState = None,
) -> tuple:
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
