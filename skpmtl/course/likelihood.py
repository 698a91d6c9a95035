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

Where there are no factors, slopes of beta are taken as a factor of d levels, with a spread of their
own, and spreads of slopes have their prior (`find_joint`): few tasks with many columns have no mode
otherwise. Rows are then those that votes have decomposed, so that an evaluation is two products.

What is found becomes the model: grids of scales are moved until one of their cells is the estimate,
and effects are posterior means given all scales. Neighbouring cells have weights that follow from
its standard error.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotri

from .._runtime.jit import njit
from ..task.posterior import likelihood
from ..task.priors import BEFORE_RATIO, RATIO, SLOPE_RATIO, after
from . import profiles
from .personal import same
from .queries import Question, alone

_STEPS = 60
# Of the deviance: spreads then move by a thousandth; and of a first look at effects. Spreads and
# the centre together have that of profiles: with .1 errors of 24 random tables are 1.004 times as
# large, the worst 1.13, and with 1e-6 1.0001.
_TOL, _FIRST = 1e-6, 0.1
# Spread of slopes of the centre, at least. Without it errors of the same tables are 1.004 times as
# large, the worst 1.11.
_START_OF_CENTRE = 0.1
_APART = 1e-4  # between logarithms of spreads, for slopes: half and twice as much change nothing
_TIMES = 6  # that weights of cells spread to their neighbours
DEPENDENT = 1e-9  # part of what it is of, below which a number is rounding


@dataclass
class LikelihoodStep(Question):
    """Sums over tasks, see above; without a budget only. They have no bound."""

    kind = "likelihood"
    ratios: np.ndarray  # (3,), tau, root of kappa and rho, over sigma

    def sums(self, tasks, model):
        """Log determinant, number of rows, and F' V^-1 F with y last, its lower half, as one
        vector."""
        tasks._place(model)
        key = *tasks._placed, model.root
        if tasks.products is None or not same(tasks.products[0], key):
            tasks.products = key, _Products(tasks, model)
        return tasks.products[1].at(*self.ratios)


@dataclass
class JointStep(LikelihoodStep):
    """The same without factors, with columns in a task's own scales: of rows as votes have them."""

    kind = "joint likelihood"

    def sums(self, tasks, model):
        (part,) = tasks.decomposition(model, model.root)
        tau, kappa, _ = self.ratios
        return likelihood(part.dec, kappa**2, tau**2, tasks.unit == model.unit)


class _Products:
    """What the likelihood takes of the rows of tasks. Rows of tasks far from the released unit, to
    which units of their own belong, do not count."""

    def __init__(self, tasks, model):
        there = np.flatnonzero(np.diff(tasks.offsets))
        codes, counts = tasks.codes, tasks.table.counts
        u = counts * (tasks.unit == model.unit)[codes]
        X = tasks.X - model.column_centre
        y = (tasks.y - model.middle) / model.unit
        moved = tasks.near_mean - tasks.rows[0][0].x_mean
        X_own = X / tasks.scale[codes] + moved[codes]
        B = np.c_[np.ones(len(y)), X / model.column_scale]
        Z = np.c_[np.ones(len(y)), X_own @ model.root]
        F = sparse.hstack([sparse.csr_array(B), _indicators(tasks, model), y[:, None]], "csr")
        self.n, self.FF = u.sum(), (F.multiply(u[:, None]).T.tocsr() @ F).toarray()
        ZZ = [np.add.reduceat((u * one)[:, None] * Z, tasks.offsets[there]) for one in Z.T]
        self.ZZ, owner = np.stack(ZZ, axis=1), np.searchsorted(there, codes)
        self.pairs, of_number = _pairs(owner, F, len(there))
        self.ZF = _sums(F, u[:, None] * Z, of_number)
        self.classes = None
        if tasks.subgroups is not None:
            of_class, of_task = tasks.subgroups.of_row, tasks.subgroups.tasks
            n, ends = len(of_task), np.searchsorted(of_task, there)
            z = np.stack([np.bincount(of_class, u * one, minlength=n) for one in Z.T], axis=1)
            pairs, at = _pairs(of_class, F, n)
            to = np.empty(len(pairs[1]), dtype=int)
            to[at] = of_number
            self.classes = ends, z, pairs, _sums(F, u[:, None], at), to

    def at(self, tau, kappa, rho):
        ZZ, ZF, found, logdet = self.ZZ, self.ZF, self.FF.copy(), 0.0
        m, q, _ = ZZ.shape
        if self.classes is not None:
            (ends, z, pairs, f, to), sizes = self.classes, self.classes[1][:, 0]
            logdet = np.log1p(rho**2 * sizes).sum()
            part = rho**2 / (1.0 + rho**2 * sizes)
            less = part[:, None] * z
            ZZ = ZZ - np.add.reduceat(less[:, :, None] * z[:, None], ends)
            less = less[pairs[1]] * f
            ZF = ZF - np.stack([np.bincount(to, one, minlength=len(ZF)) for one in less.T], axis=1)
            _subtract(found, *pairs, f, part[:, None, None])
        L = np.append(tau, np.full(q - 1, kappa))
        M = np.eye(q) + L[:, None] * ZZ * L
        logdet += np.linalg.slogdet(M)[1].sum()
        _subtract(found, *self.pairs, ZF, L[:, None] * np.linalg.inv(M) * L)
        return np.append([logdet, self.n], found)


@njit
def _subtract(out, order, owner, starts, columns, values, G):
    """Less the sum over tasks of v_j' G v_k, for columns k <= j that a task has.

    Tasks of one column are taken one after the other, so that its row of `out` stays at hand.
    """
    g = np.zeros(values.shape[1])
    for a in order:
        t, j = owner[a], columns[a]
        for i in range(len(g)):
            g[i] = 0.0
            for k in range(len(g)):
                g[i] += G[t, i, k] * values[a, k]
        for b in range(starts[t], a + 1):
            s = 0.0
            for i in range(len(g)):
                s += g[i] * values[b, i]
            out[j, columns[b]] -= s


def _pairs(owner, F, n):
    """Which columns the rows of every owner have, and where these are for every number of F.

    -> order of columns, owners, starts (n + 1,) and columns of pairs; of numbers (F.nnz,)
    """
    rows, columns = F.nonzero()
    known, of = np.unique(owner[rows] * F.shape[1] + columns, return_inverse=True)
    owner, columns = np.divmod(known, F.shape[1])
    starts = np.searchsorted(owner, np.arange(n + 1))
    return (np.argsort(columns, kind="stable"), owner, starts, columns), of


def _sums(F, values, of):
    """Sums of products of rows of `values` (N, q) and numbers of F, (n_pairs, q)."""
    known = F.tocoo()
    return np.stack([np.bincount(of, known.data * one[known.row]) for one in values.T], axis=1)


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
    """The deviance of log spreads over sigma: tau, root of kappa, rho and omega of every factor.

    With `centre`, d slopes of the centre are the only factor.
    """

    START = 0.01  # of sigma, where it is less
    FAINT = 0.03  # of sigma: a spread below is none if the deviance says the same

    def __init__(self, loop, sizes, has_below, centre=False):
        self.loop, self.sizes, self.has_below, self.sums = loop, sizes, has_below, {}
        self.basis, self.centre = None, centre

    def value(self, spreads, given=None):
        """Deviance and what it follows from, for spreads over sigma themselves.

        `given`: (k, size), of which sigma follows, if spread k is of this size; behind all spreads
        is sigma. Without, sigma is that of the least deviance.
        """
        logdet, n, F = yield from self._ask(spreads)
        p = len(F) - 1 - sum(self.sizes)
        if self.basis is None:  # columns may depend on each other
            values, vectors = np.linalg.eigh(F[:p, :p])
            self.basis = vectors[:, values > DEPENDENT * values[-1]]
        rank = self.basis.shape[1]
        omega = np.repeat(spreads[2 + self.has_below :], self.sizes)
        R = _both_sides(F[:-1, :-1], self.basis, omega)
        R[np.arange(rank, len(R)), np.arange(rank, len(R))] += 1.0
        r = np.append(self.basis.T @ F[-1, :p], omega * F[-1, p:-1])
        try:
            root = np.linalg.cholesky(R)
        except np.linalg.LinAlgError:  # spreads so far apart that rounding decides
            return np.inf, None
        if not np.isfinite(root).all():
            return np.inf, None
        free = cho_solve((root, True), r)
        rss = max(F[-1, -1] - free @ r, 1e-14 * F[-1, -1], 1e-300)  # less is rounding
        beta, sigma2 = self.basis @ free[:rank], rss / max(n - rank, 1.0)
        used = sigma2 if given is None else (given[1] / np.append(spreads, 1.0)[given[0]]) ** 2
        value = logdet + 2.0 * np.log(np.diag(root)).sum()
        value += (n - rank) * math.log(used) + rss / used + np.sum(self._off(spreads) ** 2)
        return value, (beta, free, sigma2, root, omega, used)

    def _off(self, spreads):
        """Standard deviations of their prior that spreads of slopes are from its middle."""
        if not self.centre:
            return np.zeros(len(spreads))
        middle, width = SLOPE_RATIO
        sizes = np.append(1.0, np.sqrt(self.sizes))  # of slopes that make up one of length one
        return np.append(0.0, (np.log(spreads[1:] * sizes) - middle) / width)

    def _ask(self, spreads):
        ratios = np.append(spreads[:2], spreads[2] if self.has_below else 0.0)
        question = (JointStep if self.centre else LikelihoodStep)(ratios)
        key = tuple(question.ratios)
        if key not in self.sums:
            found = (yield question.query(self.loop.model, {question.kind: None}))[question.kind]
            side = math.isqrt(len(found) - 2)
            known = found[0], found[1], found[2:].reshape(side, side)
            self.sums = dict([*self.sums.items(), (key, known)][-4:])
        return self.sums[key]

    def slopes(self, logs, found, given):
        """By logarithms of spreads over sigma, where `value` found this.

        With T = (basis, diag omega), v = (beta, omega u, -1) and the matrix F of tasks, the
        deviance changes by tr (T R^-1 T' dF) + v' dF v / sigma^2 and their log determinant, and
        with omega by 2 sum_j (1 - (R^-1)_jj - u_j^2 / sigma^2).
        """
        out, spreads = np.zeros(len(logs)), np.exp(logs)
        if found is None:
            return out
        beta, free, sigma2, root, omega, used = found
        n_ratios, rank = 2 + self.has_below, len(free) - len(omega)
        logdet, n, F = yield from self._ask(spreads)
        inverse = dpotri(root, lower=True)[0]
        each = 2.0 * (1.0 - np.diag(inverse) - free**2 / used)[rank:]
        levels = np.repeat(np.arange(len(self.sizes)), self.sizes)
        out[n_ratios:] = np.bincount(levels, each, minlength=len(self.sizes))
        if given is not None and given[0] < len(logs):
            out[given[0]] += 2.0 * (sigma2 / used - 1.0) * max(n - rank, 1.0)
        v = np.concatenate([beta, omega * free[rank:], [-1.0]])
        weights = v[:, None] * v / used
        weights[:-1, :-1] += _both_sides(inverse, self.basis.T, omega)
        weights[np.diag_indices(len(v))] *= 0.5  # of which the lower half counts twice
        for k in range(n_ratios):
            moved = spreads * np.where(np.arange(len(logs)) == k, 1.0 + _APART, 1.0)
            there, _, more = yield from self._ask(moved)
            out[k] += (there - logdet + 2.0 * np.vdot(weights, more - F)) / _APART
        return out + 2.0 * self._off(spreads) / SLOPE_RATIO[1]

    def minimise(self, logs, tol, given=None, inverse=None):
        """Quasi-Newton steps (BFGS). -> logarithms of spreads over sigma, inverse, deviance"""
        value, found = yield from self.value(np.exp(logs), given)
        slope = yield from self.slopes(logs, found, given)
        for _ in range(_STEPS):
            if inverse is None:
                inverse = np.eye(len(logs)) / max(np.abs(slope).max(), 1.0)
            step = -inverse @ slope
            step /= max(np.abs(step).max(), 1.0)
            while True:
                moved, found = yield from self.value(np.exp(logs + step), given)
                if moved <= value + 1e-4 * (slope @ step) or -(slope @ step) < tol:
                    break
                step *= 0.5
            if not value - moved > tol:
                break
            logs = logs + step
            after_it = yield from self.slopes(logs, found, given)
            change, value, slope = after_it - slope, moved, after_it
            s = step @ change
            if s > 0:
                A = np.eye(len(logs)) - np.outer(step, change) / s
                inverse = A @ inverse @ A.T + np.outer(step, step) / s
        return logs, inverse, value

    def without_nothing(self, logs, value, n_may=None):
        """-> spreads over sigma, those of the first `n_may` that may be none zero; what follows"""
        spreads = np.exp(logs)
        for k in np.flatnonzero(spreads[:n_may] < self.FAINT):
            without = spreads * (np.arange(len(spreads)) != k)
            if (yield from self.value(without))[0] <= value + profiles.TOL:
                spreads = without
        return spreads, (yield from self.value(spreads))[1]


def _both_sides(F, basis, omega):
    """T' F T for T = (basis, 0; 0, diag omega), from the lower half of F. -> its lower half"""
    p, rank = basis.shape
    out = np.zeros((rank + len(omega),) * 2)
    own = np.tril(F[:p, :p])
    out[:rank, :rank] = basis.T @ (own + np.tril(own, -1).T) @ basis
    out[rank:, :rank] = omega[:, None] * (F[p:, :p] @ basis)
    out[rank:, rank:] = omega[:, None] * F[p:, p:] * omega
    return out


def find_spreads(loop, first):
    """Spreads of levels, rows and factors, and effects of these, without a budget.

    `first`: for a look at effects, by which other numbers will move.
    """
    model = loop.model
    sizes, has_below = [f.factor.n_levels for f in model.factors], model.below is not None
    sigma = model.row_spread
    start = [model.middle_tau, math.sqrt(model.middle_kappa)]
    start += [sigma * math.sqrt(model.middle_ratio)] * has_below
    start += [sigma if f.spread is None else f.spread for f in model.factors]
    start = np.log(np.maximum(np.array(start) / sigma, _Deviance.START))
    deviance = _Deviance(loop, sizes, has_below)
    logs, _, value = yield from deviance.minimise(start, _FIRST if first else _TOL)
    spreads, found = yield from deviance.without_nothing(logs, value)
    beta, free, sigma2, root, omega, _ = found
    effects = omega * free[len(free) - len(omega) :]
    sigma, centre = math.sqrt(sigma2), model.centre.copy()
    centre[0] = beta[0]
    # Posterior covariance of the effects over their spread.
    half = np.linalg.solve(root, np.eye(len(root))[:, len(root) - len(omega) :])
    doubt = sigma * omega * np.sqrt((half**2).sum(axis=0))
    found = {"kappa": (spreads[1] * sigma) ** 2, "sigma": sigma, "tau": spreads[0] * sigma}
    if has_below:
        found["ratio"] = spreads[2] ** 2
    loop.update(centre=centre)
    if sigma > model.law.sigma[0]:  # otherwise rounding of rows that have no noise
        loop.update(**sure_of(model, **found))
    ends = np.cumsum(sizes)
    for f, end, spread in zip(model.factors, ends, spreads[2 + has_below :], strict=True):
        own = slice(end - f.factor.n_levels, end)
        of_levels = {"effects": effects[own], "spread": float(spread * sigma), "doubt": doubt[own]}
        loop.update_effects(f.factor, **of_levels)
    if loop.plan.has_summary and not first:
        loop.update(profiles=(yield from profiles.profiles(deviance, spreads, sigma)))


def find_joint(loop):
    """Spreads of largest posterior density and, given these, the centre.

    -> deviance; infinite where rows have no noise, and the model is as before
    """
    model, d = loop.model, loop.d
    sigma, deviance = model.row_spread, _Deviance(loop, [d], False, centre=True)
    size = max(math.sqrt(np.mean(model.centre[1:] ** 2)), _START_OF_CENTRE)
    start = np.array([model.middle_tau, math.sqrt(model.middle_kappa), size])
    start = np.log(np.maximum(start / sigma, _Deviance.START))
    # Twice as many effects as have a spread are the most that the deviance may curve by it.
    inverse = np.diag(0.5 / np.array([model.n_present, model.n_present * d, d]))
    logs, _, value = yield from deviance.minimise(start, profiles.TOL, inverse=inverse)
    spreads, found = yield from deviance.without_nothing(logs, value, n_may=1)
    if found is None or found[2] <= model.law.sigma[0] ** 2:
        return math.inf
    _, free, sigma2, root, omega, _ = found
    sigma, to = math.sqrt(sigma2), np.diag(np.append(1.0, omega))
    half = solve_triangular(root, to.T, lower=True)
    sizes = {"kappa": spreads[1] ** 2 * sigma2, "sigma": sigma, "tau": spreads[0] * sigma}
    loop.update(
        centre=to @ free,
        centre_doubt=sigma2 * half.T @ half,
        log_components=after(alone(2, 3)[:, 0], np.zeros(3)),
        **sure_of(model, (yield from _doubts(deviance, spreads, sigma)), **sizes),
    )
    return value


def _doubts(deviance, spreads, sigma):
    """Standard deviations of logarithms of spreads, from the curvature of their density."""
    logs = np.log(np.maximum(spreads, deviance.START))
    curvature = yield from profiles.curvature(deviance, logs, sigma)
    values, vectors = np.linalg.eigh(curvature)
    to = np.eye(4)  # from spreads over sigma, and sigma
    to[:2, 3] = 1.0
    half = to @ vectors * np.sqrt(2.0 / np.maximum(values, profiles.FLAT))
    tau, kappa, _, sigma = np.sqrt(np.sum(half**2, axis=1))
    return {"tau": tau, "kappa": kappa, "sigma": sigma}


def sure_of(model, doubts=None, **sizes):
    """Scales of these sizes: octaves by which grids move for a cell to be each, and log weights of
    votes that are sure of these cells, or in doubt by these standard deviations of logarithms of
    spreads. -> dict of fields of the model"""
    law = model.law
    tau = law.tau(model.width, model.unit)
    grids = {
        "kappa": (law.kappa, law.log_kappa),
        "sigma": (law.sigma, law.log_sigma),
        "tau": (tau, law.before_tau(tau)),
        "ratio": (RATIO[1:], BEFORE_RATIO),
    }
    doubts = doubts or dict.fromkeys(grids, 0.0)
    found = {"moved": np.zeros(4)}
    for k, (name, (grid, before)) in enumerate(grids.items()):
        if name in sizes:
            size, at = sizes[name], 0
            if size:
                at = int(np.argmin(np.abs(np.log2(grid / size))))
                found["moved"][k] = np.log2(size / grid[at])
                at += len(before) - len(grid)  # behind a cell of nothing
            found[f"log_{name}"] = after(_about(at, len(before), doubts[name]), before)
    return found


def _about(at, n, doubt):
    """Log weights of n cells, octaves of a spread apart, about one: with the deviation at which the
    variance is one standard error, twice this doubt of its logarithm, above its estimate. A spread
    that may be none has doubts without end, and is not large for that."""
    variance = (0.5 * math.log1p(2.0 * doubt) / math.log(2.0)) ** 2
    weights, part = np.eye(n)[at], 0.5 * variance / _TIMES
    for _ in range(_TIMES):
        weights = np.convolve(weights, [part, 1.0 - 2.0 * part, part], "same")
    return np.log(np.maximum(weights, 1e-300))
