"""Simulated accuracy of a budget, from public sizes, without data."""

import math
import warnings
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from sklearn.base import clone, is_classifier
from threadpoolctl import threadpool_limits

from ._runtime.hints import RandomState
from .datasets.generators import make_group_sparse_tasks, make_low_rank_tasks
from .exchange.plan import divided_mu
from .exchange.protocol import Population
from .inspection import _pyplot
from .privacy.accounting import check_budget, gdp_epsilon
from .structures.estimators import PrivateMTL, PrivateMTLClassifier

__all__ = ["BudgetPlan", "plan"]
__dir__ = __all__.copy


SHARED = {
    "nothing": "each task has a model of its own",
    "a mean": "models lie around a common model; 10 % of their variance is their own",
    "few directions": "four groups of tasks, in which 5 % of the variance is the task's own",
    "few features": "the same eighth of the features, with other coefficients in each task",
}
_WIDE = 8  # features from which on few of them, or few directions, are less than all
_LEVEL = 0.5  # standard deviation of the levels of tasks, where that of the noise is 1
_NUMBERS = 300_000  # in X; beyond, fewer tasks with proportionally less noise stand for all
_FEWEST = 200  # tasks that stand for more
_MOST = 10_000_000  # numbers in X that are simulated at all
_NOTHING = 1e-9  # an epsilon at which nothing is released
_TEST_ROWS = 12  # per task


@dataclass(frozen=True)
class BudgetPlan:
    """Expected errors by epsilon, made by :func:`plan`; ``print`` shows them as a table.

    Parameters
    ----------
    n_tasks, n_rows, n_features : int
        The public sizes.
    epsilons : tuple of float or None
        Budgets; None is a fit without privacy.
    delta : float
        Delta of the budgets.
    shared : tuple of str
        What tasks share, one entry per row of `errors`.
    errors : ndarray of shape (n_kinds, n_epsilons)
        Expected test error (mean squared error, or log-loss) over that of each task alone.
    deviations : ndarray of shape (n_kinds, n_epsilons)
        Standard deviation of `errors` between simulations; nan with one.
    floors : ndarray of shape (n_kinds,)
        Error of the true models over that of each task alone: nothing can be lower.
    smallest_epsilon : float
        Smallest budget at which anything is released, to three digits.
    mean_noise : ndarray of shape (n_epsilons,)
        Standard deviation of the noise of one mean over tasks that has the whole budget, over the
        public range of what is averaged.
    n_repeats, n_simulated : int
        Simulations, and tasks in each; less than `n_tasks` if the table would be large.
    estimator : str
        Name of its class.
    explained : float
        Share of the variance that the true model of a task explains.
    """

    n_tasks: int
    n_rows: int
    n_features: int
    epsilons: tuple
    delta: float
    shared: tuple
    errors: np.ndarray
    deviations: np.ndarray
    floors: np.ndarray
    smallest_epsilon: float
    mean_noise: np.ndarray
    n_repeats: int
    n_simulated: int
    estimator: str
    explained: float

    def to_frame(self):
        """The table as a pandas DataFrame: kinds by epsilons."""
        import pandas as pd

        columns = pd.Index([_label(epsilon) for epsilon in self.epsilons], name="epsilon")
        index = pd.Index(self.shared, name="tasks share")
        return pd.DataFrame(self.errors, index=index, columns=columns)

    def plot(self, ax=None):
        """Draw the errors by epsilon.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a figure.

        Returns
        -------
        ax : matplotlib Axes
        """
        if ax is None:
            _, ax = _pyplot().subplots()
        places = range(len(self.epsilons))
        for name, errors, spread in zip(self.shared, self.errors, self.deviations, strict=True):
            bars = None if np.isnan(spread).any() else spread
            ax.errorbar(places, errors, bars, marker="o", capsize=3, label=name)
        ax.axhline(1.0, color="0.5", linestyle="--", label="each task alone")
        ax.set_xticks(places, [_label(epsilon) for epsilon in self.epsilons])
        ax.set_xlabel("epsilon (privacy budget of each task)")
        ax.set_ylabel("expected error over each task alone")
        ax.set_title(f"{self.n_tasks:,} tasks of {self.n_rows:,} rows, {self.n_features} features")
        ax.legend(title="tasks share", frameon=False)
        return ax

    def __str__(self):
        heads = ["tasks share", *(f"eps {_label(e)}" for e in self.epsilons), "true models"]
        rows = [
            [name, *(f"{error:.2f}" for error in errors), f"{floor:.2f}"]
            for name, errors, floor in zip(self.shared, self.errors, self.floors, strict=True)
        ]
        noise = ["noise of a mean", *(f"{100 * sd:.2g} %" for sd in self.mean_noise), ""]
        widths = [max(map(len, column)) for column in zip(heads, *rows, noise, strict=True)]

        def line(cells):
            first, *others = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
            return "  ".join([cells[0].ljust(len(first)), *others]).rstrip()

        legend = [f"  {name.ljust(widths[0])}  {SHARED[name]}" for name in self.shared]
        fewer = "" if self.n_simulated == self.n_tasks else f" with {self.n_simulated:,} tasks"
        times = "once" if self.n_repeats == 1 else f"{self.n_repeats} times"
        return "\n".join(
            [
                f"{self.n_tasks:,} tasks of {self.n_rows:,} rows with {self.n_features} features, "
                f"{self.estimator}, delta = {self.delta:.3g}",
                "",
                "Expected error over that of each task alone (1: no gain, less is better):",
                line(heads),
                *(line(row) for row in rows),
                line(noise),
                "",
                *legend,
                "",
                f"Below epsilon = {self.smallest_epsilon:.3g} nothing is released, and each task "
                "is on its own.",
                "Noise of a mean: standard deviation of one mean over all tasks that has the whole "
                "budget, in",
                "percent of the public range.",
                f"Simulated {times}{fewer}; the features of a task explain "
                f"{100 * self.explained:.0f} % of the variance of its target. No data were read.",
            ]
        )


def plan(
    n_tasks: int,
    n_rows: int,
    n_features: int,
    *,
    epsilons=(0.3, 1.0, 3.0, 10.0, None),
    estimator=None,
    explained: float = 0.5,
    n_repeats: int | None = None,
    random_state: RandomState = 0,
) -> "BudgetPlan":
    """Expected error by privacy budget, before any data are read.

    For each structure that tasks may share, tables of the given sizes are generated, and the
    estimator is fitted to them. The result depends on public numbers only, so it costs no privacy
    and may be part of an agreement. It takes seconds.

    Errors are divided by that of each task alone, which is the same estimator with nothing
    released: a value of .8 at epsilon 1 means that this budget lowers the error on new rows by 20
    %. Tasks of real tables share several of these structures, and less clearly: read the rows as a
    range.

    Parameters
    ----------
    n_tasks : int
        Number of tasks, at least 2.
    n_rows : int
        Rows of a typical task.
    n_features : int
        Columns, after encoding of categories and without the task.
    epsilons : sequence of float or None, default=(0.3, 1, 3, 10, None)
        Budgets; None is a fit without privacy.
    estimator : estimator, default=None
        A private estimator of this package; its parameters but ``epsilon``, ``tasks``, ``classes``
        and ``random_state`` are used. None: :class:`PrivateMTL`. Two classes are simulated for a
        classifier.
    explained : float, default=0.5
        Share of the variance within a task that its own true model explains, between 0 and 1.
    n_repeats : int, default=None
        Simulations of each cell. None: 4, 2 or 1, with the number of tasks.
    random_state : int, default=0
        Seed of the simulations.

    Returns
    -------
    plan : BudgetPlan

    Raises
    ------
    ValueError
        For sizes or budgets that make no sense, or tables too large to simulate.

    Examples
    --------
    >>> import skpmtl
    >>> found = skpmtl.plan(n_tasks=60, n_rows=12, n_features=4, epsilons=[1, 10], n_repeats=1)
    >>> found.shared, found.errors.shape
    (('nothing', 'a mean'), (2, 2))
    >>> print(f"{found.mean_noise[0]:.3f}")  # of the public range, at epsilon 1
    0.062
    """
    m, n, d = (
        _checked(name, value, least)
        for name, value, least in (
            ("n_tasks", n_tasks, 2),
            ("n_rows", n_rows, 1),
            ("n_features", n_features, 1),
        )
    )
    if not isinstance(explained, Real) or not 0.0 < explained < 1.0:
        raise ValueError(f"explained={explained!r} must be a number between 0 and 1.")
    budgets = _budgets(epsilons)
    simulated = min(m, max(_FEWEST, _NUMBERS // (n * d)))
    if simulated * n * d > _MOST:
        raise ValueError(
            f"{n:,} rows of {d:,} features are too many to simulate: with that many rows per task "
            "pass at most 50 rows per feature, beyond which a task hardly needs the others."
        )
    if n_repeats is None:
        n_repeats = 4 if simulated < 100 else 2 if simulated < 500 else 1
    n_repeats = _checked("n_repeats", n_repeats, 1)
    random_state = _checked("random_state", random_state, 0)
    if estimator is None:
        estimator = PrivateMTL()
    missing = {"epsilon", "delta", "tasks"} - set(getattr(estimator, "get_params", dict)())
    if missing:
        raise TypeError(
            f"{type(estimator).__name__} has no {' and no '.join(sorted(missing))}: pass a private "
            "estimator of this package, such as PrivateMTL()."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about budgets: the table says it
        delta = check_budget(1.0, estimator.delta, m)[1]
        noise = np.array([_mean_noise(estimator, epsilon, delta, m) for epsilon in budgets])
        smallest = _smallest(estimator, delta, m, d)
        names = tuple(SHARED) if d >= _WIDE else tuple(SHARED)[:2]
        errors, floors = np.empty((n_repeats, len(names), len(budgets))), []
        with threadpool_limits(1):
            for i, name in enumerate(names):
                for repeat in range(n_repeats):
                    rng = np.random.default_rng([random_state, i, repeat])
                    sample = _Sample(name, simulated, n, d, explained, rng)
                    if is_classifier(estimator):
                        sample.classify()
                    seed = int(rng.integers(2**31))
                    alone = sample.alone(seed)
                    for j, epsilon in enumerate(budgets):
                        near = _stand_in(estimator, epsilon, delta, m, simulated)
                        errors[repeat, i, j] = sample.error(near, seed) / alone
                    floors.append(sample.floor() / alone)
    spread = errors.std(axis=0, ddof=1) if n_repeats > 1 else np.full(errors[0].shape, np.nan)
    return BudgetPlan(
        n_tasks=m,
        n_rows=n,
        n_features=d,
        epsilons=tuple(budgets),
        delta=delta,
        shared=names,
        errors=errors.mean(axis=0),
        deviations=spread,
        floors=np.reshape(floors, (len(names), n_repeats)).mean(axis=1),
        smallest_epsilon=smallest,
        mean_noise=noise,
        n_repeats=n_repeats,
        n_simulated=simulated,
        estimator=type(estimator).__name__,
        explained=float(explained),
    )


class _Sample:
    """One simulated table, and errors on further rows of its tasks."""

    def __init__(self, name, m, n, d, explained, rng):
        variance = explained / (1.0 - explained)
        given = {"noise": 0.0, "n_test": _TEST_ROWS, "coef": True}
        given["random_state"] = int(rng.integers(2**31))
        if name == "few features":
            drawn = make_group_sparse_tasks(
                m, n, d, n_informative=max(d // _WIDE, 1), coef_range=(0.5, 1.0), **given
            )
        else:
            blocks, correlation = {"nothing": (m, 0.0), "a mean": (1, 0.9)}.get(name, (4, 0.95))
            drawn = make_low_rank_tasks(
                m, n, d, n_blocks=blocks, correlation=correlation, variance=1.0, **given
            )
        self.X, signal, self.task, self.X_test, signal_test, self.task_test, coef = drawn
        scale = math.sqrt(variance) / np.std(signal)
        self.coef, self.level = scale * coef, _LEVEL * rng.standard_normal(m)
        self.y, self.y_test = (
            scale * part + self.level[task] + rng.standard_normal(len(task))
            for part, task in ((signal, self.task), (signal_test, self.task_test))
        )
        self.tasks, self.classes = np.arange(m), False

    def classify(self):
        self.classes = True
        self.y, self.y_test = (self.y > 0).astype(int), (self.y_test > 0).astype(int)

    def _loss(self, predicted):
        if not self.classes:
            return float(np.mean((predicted - self.y_test) ** 2))
        chosen = np.where(self.y_test == 1, predicted, 1.0 - predicted)
        return float(-np.log(np.maximum(chosen, 1e-6)).mean())

    def error(self, estimator, seed):
        given = {"tasks": self.tasks, "random_state": seed}
        if self.classes:
            given["classes"] = [0, 1]
        model = estimator.set_params(**given).fit(self.X, self.y, task=self.task)
        if not self.classes:
            return self._loss(model.predict(self.X_test, task=self.task_test))
        return self._loss(model.predict_proba(self.X_test, task=self.task_test)[:, 1])

    def alone(self, seed):
        front = PrivateMTLClassifier if self.classes else PrivateMTL
        return self.error(front(epsilon=_NOTHING, delta=1e-9), seed)

    def floor(self):
        """Error of the models that the responses were drawn from."""
        scores = np.sum(self.X_test * self.coef[self.task_test], axis=1)
        scores += self.level[self.task_test]
        if self.classes:
            scores = np.vectorize(math.erfc)(-scores / math.sqrt(2.0)) / 2.0
        return self._loss(scores)


def _stand_in(estimator, epsilon, delta, m, simulated):
    """The estimator with a budget with which that many tasks have the noise of m."""
    if epsilon is not None and simulated < m:
        mu = divided_mu(epsilon, delta, estimator._n_servers) * m / simulated
        epsilon = float(gdp_epsilon(mu, delta))
    return clone(estimator).set_params(epsilon=epsilon, delta=delta)


def _mean_noise(estimator, epsilon, delta, m):
    if epsilon is None:
        return 0.0
    reach = 1.0 if estimator.adjacency == "replace-one" else 0.5
    return reach / (m * divided_mu(epsilon, delta, estimator._n_servers))


def _smallest(estimator, delta, m, d):
    """Smallest epsilon at which the estimator plans a release, rounded up to three digits."""
    classes = 2 if is_classifier(estimator) else 0
    population = Population(np.arange(m), d, classes, np.ones(m, dtype=np.int64))

    def releases(epsilon):
        candidate = clone(estimator).set_params(epsilon=epsilon, delta=delta)
        return bool(candidate._planned_report(population).releases)

    low, high = 1e-6, 1e4
    if releases(low):
        return 0.0
    if not releases(high):
        return math.inf
    while high > 1.0005 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if releases(middle) else (middle, high)
    return high


def _checked(name, value, least):
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name}={value!r} must be an integer.")
    if value < least:
        why = " One task has nobody to learn from." if name == "n_tasks" else ""
        raise ValueError(f"{name}={value!r} must be at least {least}.{why}")
    return int(value)


def _budgets(epsilons):
    if isinstance(epsilons, (Real, str)) or epsilons is None:
        raise ValueError(f"epsilons={epsilons!r} must be a list of budgets, such as [1, 10, None].")
    found = []
    for epsilon in epsilons:
        if epsilon is not None and (
            isinstance(epsilon, bool) or not isinstance(epsilon, Real) or not epsilon > 0
        ):
            raise ValueError(
                f"epsilon={epsilon!r} is not a privacy budget: pass positive numbers, and None for "
                "a fit without privacy."
            )
        found.append(None if epsilon is None or math.isinf(epsilon) else float(epsilon))
    if not found:
        raise ValueError("epsilons is empty: pass at least one budget.")
    return sorted(set(found), key=lambda epsilon: math.inf if epsilon is None else epsilon)


def _label(epsilon):
    return "none" if epsilon is None else f"{epsilon:g}"
