"""Empirical-Bayes model-protected learning: release a prior, let every task use it.

Round t: every task computes its posterior mode w under the current prior N(0, kappa s^2 M),
with kappa and s its own; it contributes w w' / ||w||^2, whose trace is 1, so that there is
nothing to clip. The diagonal statistic is w * w, of unit sum for pure mechanisms and of unit
length for Gaussian noise, whose sensitivity is about lengths: a direction spread over many
features then stands out further by 1 / ||w||_4^2. The curator releases the noisy sum, averages
it over the rounds and shrinks it to the next M. One more released number per round, the mean
clipped log10 signal-to-noise ratio ("vote"), centres the tasks' choice of kappa.
"""

from dataclasses import dataclass, field
from numbers import Integral, Real

import numpy as np

from ._compat import Interval, StrOptions
from .exchange import Ask
from .local import SNR, LocalModels
from .shrinkage import DriftingAverage, shrink_diagonal, shrink_matrix

# Public range of the votes, log10(snr), for squared and logistic loss, and the spread of the
# tasks around the released centre.
VOTE_RANGE = {False: (-1.5, 3.0), True: (-3.0, 1.5)}
VOTE_SPREAD = 0.3
# Advantage of the even prior from which a task leaves the billboard aside: odds of e^4, so that
# a task with few rows does not do so by chance.
_DOUBT = 8.0
_BLOCK = 1 << 20  # coefficients at a time in the sum of contributions


@dataclass
class PriorBillboard:
    """What the curator of the empirical-Bayes method published.

    Attributes
    ----------
    statistic : {"matrix", "diagonal"}
    moment : ndarray (d, d) or (d,)
        Prior shape M of trace 1, derived from the releases.
    snr_centre, snr_spread : float or None
        Centre and width of the tasks' prior on log10(snr); None when no vote was released.
    n_tasks : int
    releases : list of ndarray
        The noisy statistics in the order of publication, before any processing.
    mean : ndarray (d + 1,) or None
        Released mean of the clipped models (intercept last).
    report : PrivacyReport or None
    """

    statistic: str
    moment: np.ndarray
    snr_centre: float | None
    snr_spread: float | None
    n_tasks: int
    releases: list = field(default_factory=list)
    mean: np.ndarray | None = None
    report: object = None

    constraints = {
        "statistic": [StrOptions({"matrix", "diagonal"})],
        "snr_spread": [Interval(Real, 0, None, closed="neither"), None],
        "n_tasks": [Interval(Integral, 1, None, closed="left")],
    }
    settings = ()

    @property
    def n_features(self):
        return len(self.moment)

    def declared(self):
        """See `skpmtl.packing`."""
        d = self.n_features
        square = (d, d) if self.statistic == "matrix" else (d,)
        if (self.snr_centre is None) != (self.snr_spread is None):
            raise ValueError("snr_centre needs a snr_spread")
        yield "its moment", self.moment, [square]
        diagonal = np.diagonal(self.moment) if self.moment.ndim == 2 else self.moment
        if diagonal.min() < 0 or abs(diagonal.sum() - 1.0) > 1e-6:
            raise ValueError("its moment is not that of a prior of trace 1")
        yield from (("a release", S, [square, (1,), (d + 1,)]) for S in self.releases)
        if self.mean is not None:
            yield "the mean model", self.mean, [(d + 1,)]

    def personalize(self, table, *, classification, fit_intercept):
        """Models of the tasks of `table`, from their rows and this billboard alone.

        A task compares the released prior with an even one, M = I / d, by the same criterion,
        and takes it where it is clearly better: a billboard that is all noise does no harm.
        """
        local = LocalModels(table, classification=classification, fit_intercept=fit_intercept)
        W, b, loss = self._models(local, _root(self.moment))
        even_W, even_b, even_loss = self._models(local, _even_root(table.n_features))
        alone = even_loss + _DOUBT < loss
        W[alone], b[alone] = even_W[alone], even_b[alone]
        return W, b

    def _models(self, local, root):
        penalty = vote_penalty(self.snr_centre, self.snr_spread)

        def choose(criterion, level):
            return best_scale(criterion + penalty, level)

        for _ in range(2 if local.classification else 1):
            criterion, W, b = local.fit(root, choose)
        return W, b, (criterion + penalty).min(axis=1)


def vote_penalty(centre, spread):
    """What the released centre of the votes adds to the criterion of every task."""
    if centre is None:
        return 0.0
    return ((np.log10(SNR) - centre) / spread) ** 2


def _root(moment):
    """R with R R' = moment; a diagonal moment is given by its diagonal, and so is its root."""
    if moment.ndim == 1:
        return np.sqrt(moment)
    values, U = np.linalg.eigh(moment)
    return U * np.sqrt(np.maximum(values, 0.0))


def _even_root(d):
    """Root of I / d."""
    return np.full(d, d**-0.5)


def best_scale(criterion, level):
    """kappa of every task: minimum of the parabola through the best grid point's neighbours."""
    best = criterion.argmin(axis=1)
    middle = np.clip(best, 1, len(SNR) - 2)
    rows = np.arange(len(best))
    left, centre, right = (criterion[rows, middle + step] for step in (-1, 0, 1))
    bend = left - 2.0 * centre + right
    inside = (best == middle) & (bend > 0)
    shift = np.where(inside, 0.5 * (left - right) / np.where(inside, bend, 1.0), best - middle)
    snr = SNR[middle] * (SNR[1] / SNR[0]) ** shift
    return snr / np.maximum(level, 1e-300)


def n_releases_for(n_tasks, n_features, mu, sensitivity, statistic):
    """Public rule for the number of releases, and the signal-to-noise ratio behind it.

    The ratio says how far a signal that all tasks share stands above the edge of the noise
    when the whole budget goes into one release.
    """
    edge = np.sqrt(2 * n_features if statistic == "matrix" else 2 * np.log(max(n_features, 2)))
    ratio = n_tasks * mu / (sensitivity * edge)
    return (1 if ratio < 4 else 2 if ratio < 20 else 3), ratio


def vote_share(n_tasks, n_releases, mu, sensitivity):
    """Share of mu^2 for the votes: enough for a noise of `VOTE_SPREAD`, at most one eighth."""
    need = sensitivity / (VOTE_SPREAD * n_tasks)
    return min(0.125, (n_releases + 1) * (need / mu) ** 2)


def contributions(W):
    """Unit directions u_k of the models: task k contributes u_k u_k', of trace 1.

    A model that is zero or not finite contributes zero, so that no input leaves the bound.
    """
    largest = np.abs(W).max(axis=1)
    usable = np.isfinite(largest) & (largest > 0)
    # Divided by their largest entry first: squares of tiny numbers would lose the norm.
    U = np.where(usable[:, None], W, 0.0) / np.where(usable, largest, 1.0)[:, None]
    norm = np.sqrt(np.einsum("kj,kj->k", U, U))
    # 1 - 1e-12: rounding must not push a contribution over the bound.
    return U * ((1.0 - 1e-12) / np.where(usable, norm, 1.0))[:, None]


def _diagonals(U, mechanism):
    """u * u of the unit directions: of unit length where the noise is Gaussian, else of sum 1."""
    squares = U * U
    if mechanism is not None and mechanism.norm == "l2":
        length = np.sqrt(np.einsum("kj,kj->k", squares, squares))
        squares *= ((1.0 - 1e-12) / np.where(length > 0, length, 1.0))[:, None]
    return squares


def _sum_of_contributions(W, statistic, mechanism):
    """Sum over the tasks of u u', or of the diagonal statistic; (d, d) or (d,)."""
    total, step = 0.0, max(_BLOCK // W.shape[1], 1)
    for first in range(0, len(W), step):
        U = contributions(W[first : first + step])
        total += _diagonals(U, mechanism).sum(axis=0) if statistic == "diagonal" else U.T @ U
    return total


class PriorTasks:
    """The task half of `release_prior`: votes and directions of the tasks of a table."""

    def __init__(self, local):
        self.local = local
        self._root, self._found = None, None

    @property
    def memory(self):
        """What lasts from one question to the next: Newton steps start where the last ones ended.

        Arrays by name, to be set again where every question meets a new process.
        """
        if self._root is None or not self.local.classification:
            return {}
        criterion, level = self._found
        scores = self.local._scores
        return {"scores": scores, "root": self._root, "criterion": criterion, "level": level}

    @memory.setter
    def memory(self, arrays):
        if arrays:
            self.local._scores[:] = arrays["scores"]
            self._root, self._found = arrays["root"], (arrays["criterion"], arrays["level"])

    def rows(self, ask):
        """What each task contributes: "vote" (m,), or "moment", its unit direction (m, d)."""
        criterion, level = self._criteria(ask.public["root"])
        if ask.statistic == "vote":
            return {"vote": np.log10(SNR)[criterion.argmin(axis=1)]}
        return {"moment": contributions(self._models(ask.public, criterion, level))}

    def answer(self, ask):
        if ask.statistic == "vote":
            return ask.combine(self.rows(ask))
        criterion, level = self._criteria(ask.public["root"])
        return ask.combine({"moment": self._models(ask.public, criterion, level)})

    def _criteria(self, root):
        # A vote and a moment ask about the same prior one after the other.
        if self._root is None or not np.array_equal(self._root, root):
            self._root, self._found = root, self.local.criteria(root)
        return self._found

    def _models(self, public, criterion, level):
        penalty = vote_penalty(public["snr_centre"], public["snr_spread"])
        W, _ = self.local.solve(public["root"], best_scale(criterion + penalty, level), tol=1e-3)
        return W


def release_prior(population, statistic, *, moment, vote, classification, tilt, log=None):
    """The curator of the method, see `skpmtl.exchange`.

    Parameters
    ----------
    population : Population
    statistic : {"matrix", "diagonal"}
    moment : list of mechanisms, one per release of the second moment; None for no noise
    vote : list of mechanisms, one per release and one for the end; empty for no votes
    classification : bool
    tilt : float
        See `shrink_matrix`.

    Returns
    -------
    PriorBillboard
    """
    m, d = population.n_tasks, population.n_features
    low, high = VOTE_RANGE[classification]
    middle = 0.5 * (low + high)
    M = np.full(d, 1.0 / d) if statistic == "diagonal" else np.eye(d) / d
    board = PriorBillboard(statistic, M, None, None, m)
    average = DriftingAverage()

    def sum_of_votes(rows, positions=None):
        votes = np.clip(np.nan_to_num(rows["vote"], nan=middle), low, high) - middle
        return {"vote": np.array([votes.sum()])}

    def sum_of_moments(rows, positions=None):
        return {"moment": _sum_of_contributions(rows["moment"], statistic, moment[t])}

    for t in range(len(moment) + 1):
        root = _root(board.moment) if t else _even_root(d)
        if vote:
            total = (yield Ask("vote", {"root": root}, {"vote": vote[t]}, sum_of_votes))["vote"]
            board.releases.append(total)
            board.snr_centre = float(np.clip(middle + total[0] / m, low, high))
            board.snr_spread = float(np.hypot(VOTE_SPREAD, 2 * vote[t].noise_std / m))
        if t == len(moment):
            return board
        public = {"root": root, "snr_centre": board.snr_centre, "snr_spread": board.snr_spread}
        S = (yield Ask("moment", public, {"moment": moment[t]}, sum_of_moments))["moment"]
        std = 0.0
        if moment[t] is not None:
            board.releases.append(S)
            # The spectrum of Wishart noise ends 18 % beyond that of a Gaussian of its variance.
            std = moment[t].noise_std * (1.18 if moment[t].norm == "nuclear" else 1.0)
        size = d if statistic == "diagonal" else d * (d + 1) / 2
        S, variance = average.add(S, std**2, size)
        if statistic == "diagonal":
            unit_length = moment[t] is not None and moment[t].norm == "l2"
            trace = (float(m), m * np.sqrt(d)) if unit_length else float(m)
            board.moment = shrink_diagonal(S, np.sqrt(variance), trace)
        else:
            board.moment = shrink_matrix(S, np.sqrt(variance / 2), float(m), tilt) / m
        if log is not None:
            log(t + 1, std)
