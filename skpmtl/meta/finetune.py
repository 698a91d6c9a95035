"""Fine-tuning of an initialisation on the rows of each task; nothing leaves the task.

The model of a task is the mean of its posterior under a mixture of the priors of
`skpmtl.task.posterior` and `skpmtl.task.losses`: one around every model that is known, which are
the initialisation and those that were known before any release, of which the last is 0. Each task
measures in units of its own, the length of its rows and the spread of its targets.
"""

import math
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from .._kernels.passes import column_moments
from .._runtime.threads import cost_blocks, run_blocks
from ..tables.table import weighted_sum
from ..task import priors
from ..task.losses import LOGISTIC, SOFTMAX, ScoreRows
from ..task.losses import posterior as posterior_of_scores
from ..task.mixture import against_others, flatter, noise_of
from ..task.posterior import Decomposition, TaskRows, averages, covariances, log_evidence, log_sum
from ..task.scales import TINY, Summaries, own_scales

# Variance that slopes add to a score at a row of typical length, in squared units: a grid, and
# centre and spread of log10 of its prior, for real targets and for classes.
_KAPPA, _KAPPA_OF_SCORES = 4.0 ** np.arange(-5, 3), 8.0 ** np.arange(-2, 2)
_CHANGE_OF_TARGETS, _CHANGE_OF_SCORES = (-1.0, 0.5), (-0.5, 0.7)
_SIGMA = -0.4, 1.5  # the same of the noise of real targets, in log2 of units
# Spreads of levels in units, all as likely; a level may also be free.
_TAU, _TAU_OF_SCORES = np.append(2.0 ** np.arange(-3, 4), priors.FREE), 2.0 ** np.arange(-3, 3)
_FAR = 3.0  # lengths of rows to which a mean row counts in a level
_TOL = 0.05  # precision of modes, in scores
_TINY = 1e-12  # of the squared length of rows, what a level hides in rounding
_UNKNOWN = 64.0  # variance of log2 of the scale of all columns, before any row
# Numbers of rows that a thread works on at a time. 1 << 17, 18, 19, 20 on a busy machine: .32 .24
# .23 .22 s for 2,000 tasks x 10 x 200, and 5.3 4.6 4.8 4.6 s for 5,000 x 50 x 50.
_BLOCK = 1 << 18


@dataclass
class KnownModel:
    """A prior of the models of tasks.

    Attributes
    ----------
    models : ndarray (n_outputs, size) or (n_tasks, n_outputs, size)
        Its mean, the intercept last.
    error : float
        Squared error of its scores that is expected, over that of 0.
    log_weight : float
    """

    models: np.ndarray
    error: float
    log_weight: float


def fine_tuned(rows, known, *, spread=False):
    """Posterior of the models of the tasks of a table.

    A task whose rows overflow stays at the first of `known`, in silence.

    Parameters
    ----------
    rows : skpmtl.meta.steps.RoundRows
    known : list of KnownModel
        Of scaled features, as what is returned.
    spread : bool, default=False
        Whether covariances are asked for.

    Returns
    -------
    models : ndarray (n_tasks, n_outputs, size)
    covariance : ndarray (n_tasks, n_outputs, d + 1, d + 1) or None
        Intercept last, zeros without one; infinite where rows overflow.
    noise : ndarray (2, n_tasks) or None
        Of real targets: variance of the noise of a row, and its degrees of freedom.
    """
    table = rows.table
    kind, m, d = ClassTasks if table.n_classes else TargetTasks, table.n_tasks, table.n_features
    models = np.broadcast_to(known[0].models, (m, *known[0].models.shape[-2:])).copy()
    covariance = np.full((m, models.shape[1], d + 1, d + 1), np.inf) if spread else None
    noise = np.full((2, m), np.inf) if spread else None

    def block(tasks):
        with np.errstate(all="ignore"):
            found = kind(rows.part(tasks), rows.fit_intercept, reduced=not spread)
            parts = [
                (np.broadcast_to(one.models, models.shape)[tasks], one.error, one.log_weight)
                for one in known
            ]
            mean, *wide = found.posterior(parts, spread)
            good = found.good & np.isfinite(mean).all(axis=(1, 2))
            models[tasks[good]] = mean[good]
            if spread:
                good &= np.isfinite(wide[0]).all(axis=(1, 2, 3))
                covariance[tasks[good]], noise[:, tasks[good]] = wide[0][good], wide[1][:, good]

    cost = table.sizes * d + (d + 1) ** 2 * spread
    run_blocks(block, [(tasks,) for tasks in _blocks(table.sizes, d, cost)])
    return models, covariance, noise


def _blocks(sizes, d, cost):
    """Positions of tasks: of equal size where rows are few, otherwise of all sizes."""
    few = np.where(2 * sizes <= d, sizes, 0)
    for size in np.unique(few):
        tasks = np.flatnonzero(few == size)
        yield from (tasks[first:last] for first, last in cost_blocks(cost[tasks], _BLOCK))


class TasksInUnits:
    """Rows of some tasks in units of their own, and models in these units.

    With z = x / (columns length) - shift the score of a row is unit (l + z' v), so that l is the
    level near the mean row. `columns` are the task's own scales of columns.

    Parameters
    ----------
    table : TaskTable
        Of rows in float64, each once.
    fit_intercept : bool
    reduced : bool
        Whether rows may be written in a basis of their own where they are few: nothing that is
        orthogonal to all rows of a task changes in its model.

    Attributes
    ----------
    good : ndarray (n,) of bool
        Tasks whose numbers do not overflow; others have rows of zeros.
    """

    def __init__(self, table, fit_intercept, reduced):
        self.fit_intercept, self.counts, self.offsets = fit_intercept, table.counts, table.offsets
        self.codes = np.repeat(np.arange(table.n_tasks), table.sizes)
        n, total = table.sizes, self._sums(self.counts)
        self.columns = self._column_units(table.X, n, total)
        self.basis, by_columns = None, 1.0 / self.columns
        if reduced and 2 * n[0] <= table.n_features:
            self.basis = by_columns[:, None] * table.X.reshape(len(n), n[0], -1)
            self.basis[~self.good] = 0.0
            self.inverse, X = _own_basis(self.basis)
        else:
            X = by_columns[self.codes]
            X *= table.X
            X[~self.good[self.codes]] = 0.0
        mean = np.add.reduceat(self.counts[:, None] * X, self.offsets[:-1]) / total[:, None]
        square = self._sums(self.counts * np.einsum("ij,ij->i", X, X)) / total
        if fit_intercept:
            about_mean = square - np.einsum("ij,ij->i", mean, mean)
            # Rows that are alike, but for what `_own_basis` adds, may be short by chance: a level
            # would be taken for slopes that are far too large for other rows.
            varies = about_mean > n * _TINY * square
            square = np.where(varies, about_mean, np.maximum(square, 1.0))
        self.length = np.where(square > 0, np.sqrt(square), 1.0)
        self.unit = np.ones(len(n))
        self.X, self.near = X / self.length[self.codes, None], mean / self.length[:, None]
        self.shift = np.zeros_like(mean)
        if fit_intercept:  # a mean row counts the less, the farther it is
            far = np.sqrt(np.einsum("ij,ij->i", self.near, self.near))
            self.shift = (
                self.near * (1.0 - np.minimum(1.0, _FAR / np.maximum(far, _FAR)) ** 2)[:, None]
            )
            self.near = self.near - self.shift

    def _sums(self, values):
        return np.add.reduceat(values, self.offsets[:-1])

    def _column_units(self, X, sizes, total):
        """Scales of columns (n, d), from each task's own rows, shrunk to equal ones."""
        dof = np.where((sizes > 1) & (total > 1.0), total - 1.0, 1.0)
        mean, std = np.zeros((2, len(total), X.shape[1]))
        column_moments(X, self.offsets, self.counts, total, dof, mean, std)
        self.good = np.isfinite(np.einsum("ij,ij->i", mean, mean) + np.einsum("ij->i", std))
        mean[~self.good] = std[~self.good] = 0.0
        np.sqrt(std, out=std)
        std[std <= TINY * np.abs(mean)] = 0.0
        if not self.fit_intercept:  # nothing takes up what is constant
            std = np.hypot(std, mean)
        summaries = Summaries(total, mean, std, *[np.zeros(len(total))] * 4)
        return own_scales(summaries, np.ones(X.shape[1]), _UNKNOWN, 0.0, own_unit=True)[0]

    def centre(self, models):
        """Models (n, C, size) as level and slopes (n, C, 1 + k) in units."""
        w = models[..., : models.shape[-1] - self.fit_intercept] * self.columns[:, None]
        if self.basis is not None:
            w = w @ self.basis.transpose(0, 2, 1) @ self.inverse.transpose(0, 2, 1)
        out = np.zeros((*w.shape[:2], 1 + w.shape[2]))
        out[..., 1:] = w * (self.length / self.unit)[:, None, None]
        if self.fit_intercept:
            out[..., 0] = models[..., -1] / self.unit[:, None]
            out[..., 0] += np.einsum("kcj,kj->kc", out[..., 1:], self.shift)
        return out

    def models(self, moved):
        """The inverse of `centre` for differences (n, C, 1 + k)."""
        w = moved[..., 1:] * (self.unit / self.length)[:, None, None]
        w = w if self.basis is None else w @ self.inverse @ self.basis
        w = w / self.columns[:, None]
        if not self.fit_intercept:
            return w
        level = moved[..., 0] - np.einsum("kcj,kj->kc", moved[..., 1:], self.shift)
        return np.concatenate([w, (self.unit[:, None] * level)[..., None]], axis=2)

    def covariances(self, covariance):
        """Covariances (n, C, d + 1, d + 1) of level and slopes as those of models."""
        m, d = self.shift.shape
        T = np.zeros((m, 1, d + 1, d + 1))
        T[:, 0, np.arange(d), 1 + np.arange(d)] = (self.unit / self.length)[:, None] / self.columns
        T[:, 0, d, 0] = self.unit * self.fit_intercept
        T[:, 0, d, 1:] = -self.unit[:, None] * self.shift
        found = T @ covariance @ T.transpose(0, 1, 3, 2)
        return 0.5 * (found + found.transpose(0, 1, 3, 2))

    def posterior(self, parts, spread):
        """-> models (n, C, size); with `spread` covariances (n, C, d + 1, d + 1) and noise (2, n)

        `parts` are the models around which priors are, their errors, and log weights.
        """
        models, errors, log_weights = zip(*parts, strict=True)
        centres = [self.centre(one) for one in models]
        found = map(self.about, centres, errors, repeat(spread))
        logs, moved, seconds = zip(*found, strict=True)
        logs = np.stack([w + log for w, log in zip(log_weights, logs, strict=True)], axis=1)
        shares = np.exp(logs - log_sum(logs)[:, None]).T
        # What is orthogonal to all rows moves from one centre to another, too.
        mean = weighted_sum(shares, models) + self.models(weighted_sum(shares, moved))
        if not spread:
            return (mean,)
        away = [centre - centres[0] for centre in centres]
        means = [a + b for a, b in zip(away, moved, strict=True)]
        seconds = [
            second + a[..., None] * here[..., None, :] + b[..., None] * a[..., None, :]
            for second, a, b, here in zip(seconds, away, moved, means, strict=True)
        ]
        here = weighted_sum(shares, means)
        covariance = weighted_sum(shares, seconds) - here[..., None] * here[..., None, :]
        covariance = self.covariances(self.widened(covariance, shares))
        return mean, covariance, self.noise(log_weights)


def _own_basis(X):
    """Rows X (m, n, d) in an orthonormal basis A X of their span. -> A (m, n, n), rows (m n, n)

    By Cholesky's factor of the matrix of their products. What it is moved by, so that rows may be
    equal, is below what models show.
    """
    m, n, _ = X.shape
    G = X @ X.transpose(0, 2, 1)
    trace = np.einsum("kii->k", G)
    G[:, np.arange(n), np.arange(n)] += np.where(trace > 0, _TINY * trace, 1.0)[:, None]
    L = np.linalg.cholesky(G)
    return np.linalg.inv(L), L.reshape(m * n, n)


class TargetTasks(TasksInUnits):
    """Tasks of real targets."""

    def __init__(self, table, fit_intercept, reduced):
        super().__init__(table, fit_intercept, reduced)
        y, u = np.array(table.y, dtype=float), self.counts
        total = self._sums(u)
        mean = self._sums(u * y) / total
        square = self._sums(u * (y - fit_intercept * mean[self.codes]) ** 2)
        std = np.sqrt(square / np.maximum(total - fit_intercept, 1.0))
        unit = np.where(std > TINY * np.abs(mean), std, np.abs(mean))
        self.good &= np.isfinite(unit)
        self.unit = np.where(self.good & (unit > 0), unit, 1.0)
        y[~self.good[self.codes]] = 0.0
        rows = TaskRows.of(self.X, y / self.unit[self.codes], self.offsets, u)
        self.rows = Decomposition(rows, np.eye(self.X.shape[1]), self.near)
        self.by_noise = []

    def about(self, centre, error, spread):
        """Log evidence, means and second moments of differences to a centre, under its prior."""
        tau = _TAU if self.fit_intercept else np.zeros(1)
        scales = priors.Scales(
            _change(_KAPPA, *_CHANGE_OF_TARGETS, error),
            priors.bump(priors.SIGMA, *_SIGMA),
            priors.before_tau(tau),
            tau,
            _KAPPA,
        )
        of = self.rows, centre[:, 0, 0], centre[:, 0, 1:], scales
        log, level, slopes = averages(*of)
        moved = np.column_stack([level, slopes])[:, None]
        if not spread:
            return log, moved, None
        self.by_noise.append(log_evidence(*of, "sigma"))
        return log, moved, covariances(*of)[1][:, None]

    def widened(self, covariance, shares):
        return covariance

    def noise(self, log_weights):
        """Variance and degrees of freedom of the noise of a row, (2, n)."""
        by_noise = np.stack(self.by_noise, axis=2) + log_weights
        shape = by_noise.shape[:2]
        by_noise = log_sum(by_noise.reshape(math.prod(shape), -1)).reshape(shape)
        variance, dof = noise_of(by_noise, priors.SIGMA)
        return np.stack([self.unit**2 * variance, dof])


class ClassTasks(TasksInUnits):
    """Tasks of classes."""

    def __init__(self, table, fit_intercept, reduced):
        super().__init__(table, fit_intercept, reduced)
        C = table.n_classes
        self.kind, self.n_outputs = (SOFTMAX, C) if C > 2 else (LOGISTIC, 1)
        self.y = (np.floor(table.y) if C > 2 else table.y > 0).astype(float)
        self.X -= self.shift[self.codes]
        self.typical = []

    def about(self, centre, error, spread):
        """Log evidence, means and second moments of differences to a centre, under its prior."""
        own, (_, k), C = centre[self.codes], self.X.shape, self.n_outputs
        given = own[..., 0] + np.einsum("icj,ij->ic", own[..., 1:], self.X)
        tau = _TAU_OF_SCORES if self.fit_intercept else np.zeros(1)
        logs = _change(_KAPPA_OF_SCORES, *_CHANGE_OF_SCORES, error)[
            :, None, None
        ] + priors.before_tau(tau)
        evidence, level, slopes, second, typical, _ = posterior_of_scores(
            ScoreRows(self.kind, self.X, self.y, self.counts, given, self.offsets),
            np.eye(k),
            0.0,
            np.zeros((C, k)),
            (_KAPPA_OF_SCORES, np.ones(1), tau),
            logs,
            tol=_TOL,
            moments="second" if spread else "means",
        )
        self.typical.append(typical)
        moved = np.concatenate([level[..., None], slopes], axis=2)
        return log_sum(evidence + logs), moved, second if spread else None

    def widened(self, covariance, shares):
        """Covariances of log-odds that give the mean probability of all scales."""
        typical, C = weighted_sum(shares, self.typical), self.n_outputs
        return against_others(C) * flatter(typical)[..., None, None] * covariance

    def noise(self, log_weights):
        """Nothing: probabilities have none."""
        return np.zeros((2, len(self.good)))


def _change(grid, centre, width, error):
    """Log weights of changes around a model that has this error."""
    octaves = math.log2(10.0)
    return priors.bump(grid, math.log2(10.0**centre + error), octaves * width)
