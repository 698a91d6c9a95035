"""Without a budget: variance components of largest restricted likelihood.

For the rows of a task t, in units, with the levels j of factors above and across tasks and the
subgroups c of a factor below them,

    y = x' beta + l + z' w + v_c + sum_j u_j + e,
    l ~ N(0, tau^2),   w ~ N(0, kappa S),   v_c ~ N(0, rho^2),   u_j ~ N(0, omega^2),

and e ~ N(0, sigma^2). With all but u and beta integrated out, a task has the covariance sigma^2 V,
of which

    V^-1 = A - A Z G Z' A,   A = I - (rho^2 / (1 + rho^2 U_c)) 1 1' in every subgroup,

for rho, tau and root kappa over sigma (`skpmtl.task.nested` for A, `skpmtl.mixed_models.reml` for
G). Tasks add up F' V^-1 F for the columns F of beta, y and indicators of levels (`LikelihoodStep`).
From these sums the deviance follows as in section 3.4 of Bates, Machler, Bolker and Walker (J.
Stat. Softw. 67(1), 2015): indicators times omega are columns with the identity added to their
block. It is minimised by quasi-Newton steps, since every evaluation is a query.

What is found becomes the model: grids of scales are moved until one of their cells is the estimate,
and effects are posterior means given all scales.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve

from ..tables.table import blocks_of
from ..task.priors import BEFORE_RATIO, RATIO, after, middle
from . import profiles
from .personal import same
from .queries import Question, alone

_STEPS = 60
# Of the deviance: spreads then move by a thousandth; and of a first look at effects.
_TOL, _FIRST = 1e-6, 0.1
_APART = 1e-4  # between logarithms of spreads, for slopes
_RANK = 1e-9  # of the largest eigenvalue of the columns of beta


@dataclass
class LikelihoodStep(Question):
    """Sums over tasks, see above; without a budget only. They have no bound.

    Attributes
    ----------
    ratios : ndarray (3,)
        tau, root of kappa and rho, over sigma.
    """

    kind = "likelihood"
    ratios: np.ndarray

    def sums(self, tasks, model):
        """Log determinant, number of rows, and F' V^-1 F with y behind beta, as one vector."""
        tasks._place(model)
        key = *tasks._placed, model.root, model.origin
        if tasks.products is None or not same(tasks.products[0], key):
            tasks.products = key, _Products(tasks, model)
        return tasks.products[1].at(*self.ratios)


class _Products:
    """What the likelihood takes of the rows of tasks. Rows of tasks far from the released unit, to
    which units of their own belong, do not count."""

    def __init__(self, tasks, model):
        there = np.flatnonzero(np.diff(tasks.offsets))
        codes, counts = tasks.codes, tasks.table.counts
        u = counts * (tasks.unit == model.unit)[codes]
        X = tasks.X - model.column_centre
        y = (tasks.y - model.middle) / model.unit
        B = np.c_[np.ones(len(y)), X / model.column_scale, y]
        moved = tasks.near_mean - tasks.rows[0][0].x_mean
        Z = np.c_[np.ones(len(y)), (X / tasks.scale[codes] + moved[codes]) @ model.root]
        self.n, F = u.sum(), np.c_[Z, B]
        q, width = Z.shape[1], F.shape[1]
        pairs = np.zeros((len(there), q, width))
        starts = np.append(tasks.offsets[there], len(y))
        for first, last in blocks_of(starts, q * width):
            some = slice(starts[first], starts[last])
            both = (u[some, None] * Z[some])[:, :, None] * F[some, None]
            pairs[first:last] = np.add.reduceat(both, starts[first:last] - starts[first])
        self.ZZ, self.ZB = pairs[:, :, :q], pairs[:, :, q:]
        W = _indicators(tasks, model)
        uW = W.multiply(u[:, None]).tocsr()
        self.BB, self.WB, self.WW = B.T @ (u[:, None] * B), uW.T @ B, uW.T @ W
        place = np.searchsorted(there, codes)[:, None] * q + np.arange(q)
        tall = Z.ravel(), place.ravel(), np.arange(len(y) + 1) * q
        self.ZW = sparse.csr_array(tall, shape=(len(y), len(there) * q)).T.tocsr() @ uW
        self.classes = None
        if tasks.subgroups is not None:
            of_row, of_task = tasks.subgroups.of_row, tasks.subgroups.tasks
            known = u, (of_row, np.arange(len(y)))
            of_class = sparse.csr_array(known, shape=(len(of_task), len(y)))
            sizes, ends = of_class.sum(axis=1), np.searchsorted(of_task, there)
            self.classes = sizes, ends, of_class @ Z, of_class @ B, of_class @ W

    def at(self, tau, kappa, rho):
        ZZ, ZB, BB, ZW, WB, WW = self.ZZ, self.ZB, self.BB, self.ZW, self.WB, self.WW
        m, q, p = ZB.shape
        logdet = 0.0
        if self.classes is not None:
            sizes, ends, z, b, w = self.classes
            logdet = np.log1p(rho**2 * sizes).sum()
            part = rho**2 / (1.0 + rho**2 * sizes)
            less = (part[:, None] * z)[:, :, None] * np.c_[z, b][:, None]
            less = np.add.reduceat(less, ends)
            ZZ, ZB = ZZ - less[:, :, :q], ZB - less[:, :, q:]
            # Rows of z by subgroup, in the columns of their task.
            owner = np.repeat(np.arange(m), np.diff(np.append(ends, len(z))))
            place = owner[:, None] * q + np.arange(q)
            tall = (part[:, None] * z).ravel(), place.ravel(), np.arange(len(z) + 1) * q
            tall = sparse.csr_array(tall, shape=(len(z), m * q))
            weighted = w.multiply(part[:, None]).tocsr()
            ZW, WB, WW = ZW - tall.T @ w, WB - weighted.T @ b, WW - weighted.T @ w
            BB = BB - b.T @ (part[:, None] * b)
        L = np.append(tau, np.full(q - 1, kappa))
        M = np.eye(q) + L[:, None] * ZZ * L
        logdet += np.linalg.slogdet(M)[1].sum()
        G = L[:, None] * np.linalg.inv(M) * L
        GZB = G @ ZB
        blocks = sparse.bsr_array((G, np.arange(m), np.arange(m + 1)), shape=(m * q, m * q))
        found = np.zeros((p + WW.shape[0],) * 2)
        found[:p, :p] = BB - ZB.reshape(-1, p).T @ GZB.reshape(-1, p)
        found[p:, :p] = WB - ZW.T @ GZB.reshape(-1, p)
        found[:p, p:] = found[p:, :p].T
        found[p:, p:] = (WW - ZW.T @ (blocks @ ZW)).toarray()
        return np.append([logdet, self.n], found)


def _indicators(tasks, model):
    """Of the levels of factors above and across tasks, for every row. -> csr_array (N, K)"""
    parts, n = [], len(tasks.y)
    for one in model.factors:
        of_tasks = one is model.above
        level = one.factor.of(tasks.tasks if of_tasks else tasks.row_levels)
        level = level[tasks.codes] if of_tasks else level
        known, shape = np.flatnonzero(level >= 0), (n, one.factor.n_levels)
        places = np.ones(len(known)), (known, level[known])
        parts.append(sparse.csr_array(places, shape=shape))
    return sparse.hstack(parts, format="csr") if parts else sparse.csr_array((n, 0))


class _Deviance:
    """The deviance of log spreads over sigma: tau, root of kappa, rho and omega of every factor."""

    START = 0.01  # of sigma, where it is less
    FAINT = 0.03  # of sigma: a spread below is none if the deviance says the same

    def __init__(self, loop, sizes, has_below):
        self.loop, self.sizes, self.has_below, self.sums = loop, sizes, has_below, {}
        self.basis = None

    def value(self, spreads, given=None):
        """Deviance and what it follows from, for spreads over sigma themselves.

        `given`: (k, size), of which sigma follows, if spread k is of this size; behind all spreads
        is sigma. Without, sigma is that of the least deviance.
        """
        ratios = np.append(spreads[:2], spreads[2] if self.has_below else 0.0)
        key = tuple(ratios)
        if key not in self.sums:
            self.sums = dict([*self.sums.items(), (key, (yield from self._ask(ratios)))][-4:])
        logdet, n, F = self.sums[key]
        p = len(F) - 1 - sum(self.sizes)
        if self.basis is None:  # columns may depend on each other
            values, vectors = np.linalg.eigh(F[:p, :p])
            self.basis = vectors[:, values > _RANK * values[-1]]
        rank = self.basis.shape[1]
        omega = np.repeat(spreads[2 + self.has_below :], self.sizes)
        others = np.append(np.arange(p), np.arange(p + 1, len(F)))
        R = _both_sides(F[np.ix_(others, others)], self.basis, omega)
        R[np.arange(rank, len(R)), np.arange(rank, len(R))] += 1.0
        r = np.append(self.basis.T @ F[:p, p], omega * F[p + 1 :, p])
        try:
            root = np.linalg.cholesky(R)
        except np.linalg.LinAlgError:  # spreads so far apart that rounding decides
            return np.inf, None
        if not np.isfinite(root).all():
            return np.inf, None
        free = cho_solve((root, True), r)
        rss = max(F[p, p] - free @ r, 1e-14 * F[p, p], 1e-300)  # less is rounding
        beta, sigma2 = self.basis @ free[:rank], rss / max(n - rank, 1.0)
        used = sigma2 if given is None else (given[1] / np.append(spreads, 1.0)[given[0]]) ** 2
        value = logdet + 2.0 * np.log(np.diag(root)).sum()
        value += (n - rank) * math.log(used) + rss / used
        return value, (beta, omega * free[rank:], sigma2, root, omega)

    def _ask(self, ratios):
        question = LikelihoodStep(ratios)
        found = (yield question.query(self.loop.model, None))[question.kind]
        side = math.isqrt(len(found) - 2)
        return found[0], found[1], found[2:].reshape(side, side)

    def slopes(self, logs, value, given):
        found = np.zeros(len(logs))
        for k in range(len(logs)):
            moved = logs.copy()
            moved[k] += _APART
            found[k] = ((yield from self.value(np.exp(moved), given))[0] - value) / _APART
        return np.where(np.isfinite(found), found, 0.0)

    def minimise(self, logs, tol, given=None, inverse=None):
        """Quasi-Newton steps (BFGS). -> logarithms of spreads over sigma, inverse, deviance"""
        value = (yield from self.value(np.exp(logs), given))[0]
        slope = yield from self.slopes(logs, value, given)
        for _ in range(_STEPS):
            if inverse is None:
                inverse = np.eye(len(logs)) / max(np.abs(slope).max(), 1.0)
            step = -inverse @ slope
            step /= max(np.abs(step).max(), 1.0)
            while True:
                moved = (yield from self.value(np.exp(logs + step), given))[0]
                if moved <= value + 1e-4 * (slope @ step) or -(slope @ step) < tol:
                    break
                step *= 0.5
            if not value - moved > tol:
                break
            logs = logs + step
            after_it = yield from self.slopes(logs, moved, given)
            change, value, slope = after_it - slope, moved, after_it
            s = step @ change
            if s > 0:
                A = np.eye(len(logs)) - np.outer(step, change) / s
                inverse = A @ inverse @ A.T + np.outer(step, step) / s
        return logs, inverse, value

    def without_nothing(self, logs, value):
        """-> spreads over sigma, those that may be none zero; what follows from them"""
        spreads = np.exp(logs)
        for k in np.flatnonzero(spreads < self.FAINT):
            without = spreads * (np.arange(len(spreads)) != k)
            if (yield from self.value(without))[0] <= value + 1e-3:
                spreads = without
        return spreads, (yield from self.value(spreads))[1]


def _both_sides(F, basis, omega):
    """T' F T for T = (basis, 0; 0, diag omega)."""
    p, rank = basis.shape
    out = np.empty((rank + len(omega),) * 2)
    out[:rank, :rank] = basis.T @ F[:p, :p] @ basis
    out[rank:, :rank] = omega[:, None] * (F[p:, :p] @ basis)
    out[:rank, rank:] = out[rank:, :rank].T
    out[rank:, rank:] = omega[:, None] * F[p:, p:] * omega
    return out


def find_spreads(loop, first):
    """Spreads of levels, rows and factors, and effects of these, without a budget.

    `first`: for a look at effects, by which other numbers will move.
    """
    model = loop.model
    sizes, has_below = [f.factor.n_levels for f in model.factors], model.below is not None
    sigma = model.row_spread
    start = [model.middle_tau, math.sqrt(middle(model.log_kappa, model.law.log_kappa, model.kappa))]
    start += [sigma * math.sqrt(model.middle_ratio)] * has_below
    start += [sigma if f.spread is None else f.spread for f in model.factors]
    start = np.log(np.maximum(np.array(start) / sigma, _Deviance.START))
    deviance = _Deviance(loop, sizes, has_below)
    logs, _, value = yield from deviance.minimise(start, _FIRST if first else _TOL)
    spreads, found = yield from deviance.without_nothing(logs, value)
    beta, effects, sigma2, root, omega = found
    sigma, centre = math.sqrt(sigma2), model.centre.copy()
    centre[0] = beta[0]
    # Posterior covariance of the effects over their spread.
    half = np.linalg.solve(root, np.eye(len(root))[:, len(root) - len(omega) :])
    doubt = sigma * omega * np.sqrt((half**2).sum(axis=0))
    law, tau, moves, known = model.law, model.law.tau(model.width, model.unit), np.zeros(4), {}
    grids = {
        "kappa": (law.kappa, (spreads[1] * sigma) ** 2, law.log_kappa),
        "sigma": (law.sigma, sigma, law.log_sigma),
        "tau": (tau, spreads[0] * sigma, law.before_tau(tau)),
    }
    for k, (name, (grid, size, before)) in enumerate(grids.items()):
        moves[k], at = moved_to(grid, size)
        known[f"log_{name}"] = sure_of(at, before)
    if has_below:
        moves[3], at = moved_to(RATIO[1:], spreads[2] ** 2)
        known["log_ratio"] = sure_of(at + 1 if spreads[2] else 0, BEFORE_RATIO)
    loop.update(centre=centre)
    if sigma > law.sigma[0]:  # otherwise rounding of rows that have no noise
        loop.update(moved=moves, **known)
    ends = np.cumsum(sizes)
    for f, end, spread in zip(model.factors, ends, spreads[2 + has_below :], strict=True):
        own = slice(end - f.factor.n_levels, end)
        of_levels = {"effects": effects[own], "spread": float(spread * sigma), "doubt": doubt[own]}
        loop.update_effects(f.factor, **of_levels)
    if loop.plan.has_summary and not first:
        loop.update(profiles=(yield from profiles.profiles(deviance, spreads, sigma)))


def moved_to(grid, value):
    """Octaves by which a grid has to move for a cell to be this value, and the cell."""
    if not value:
        return 0.0, 0
    at = int(np.argmin(np.abs(np.log2(grid / value))))
    return float(np.log2(value / grid[at])), at


def sure_of(at, before):
    """Log weights of a vote that is sure of one cell."""
    return after(alone(at, len(before))[:, 0], before)
