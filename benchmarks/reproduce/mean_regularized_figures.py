"""Private multi-task learning (Hu, Wu and Smith, TMLR 2023): its further comparisons, run again.

    python -m benchmarks.reproduce.mean_regularized_figures [--figure NAME] [--quick] [--repeats R]
                                                            [--output FOLDER] [--jobs J]

Every figure writes ``mean_regularized_NAME.csv`` and ``.png``; all of them take about seven minutes
of one core. Data, hyper-parameters, delta = 1 / n_tasks and zero-out adjacency as in
`mean_regularized`, whose own run is the comparison at every epsilon and of the personalisations.

- ``strength``: scores over the strength lam of the pull to the shared model, between learning
  alone (lam = 0) and one model for all (lam = infinity), with and without privacy;
- ``tasks``: scores over the number of tasks;
- ``rows``: scores over the number of rows of a task;
- ``spread``: scores over the heterogeneity of the tasks;
- ``accounting``: what a stated epsilon is worth. "all tasks": the exact account of rounds in which
  everybody takes part, the default. "all tasks, Theorem 1": noise from the published bound. "fixed
  size": a quarter of the tasks is drawn for every round, with the exact account; tasks know whether
  they were drawn, so that nothing is amplified. "fixed size, accounted as Poisson": the same with
  the noise for which the authors' code states that epsilon, from Renyi divergences of Poisson
  sampling. The epsilon that is stated is the ``value``.

The column ``epsilon`` is the exact one everywhere, ``epsilon_replace_one`` that of the same noise
with replace-one adjacency, and ``epsilon_theorem_1`` what the paper's Theorem 1 says of it, which
has no constants for rounds with less than all tasks. ``noise_multiplier`` is the standard deviation
of the noise on the sum of the updates over the clip norm.
"""

from functools import partial

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from skpmtl.mean_regularized.plan import auto_rounds
from skpmtl.privacy import gdp_epsilon, gdp_mu
from skpmtl.privacy.sampling import blocks_mu, fixed_size_epsilon, fixed_size_noise

from . import run_figures, script
from .mean_regularized import school, scores, synthetic
from .mean_regularized_plots import METHODS, accounting, by_strength, by_value
from .model_protected_methods import number

FIELDS = (
    "data",
    "metric",
    "method",
    "epsilon",
    "epsilon_replace_one",
    "epsilon_theorem_1",
    "tasks",
    "rounds",
    "noise_multiplier",
    "parameter",
    "value",
    "mean",
    "sd",
    "repeats",
)
EPSILONS = (0.4, 2.0)
RATE = 0.25
# Orders and conversion of the authors' accountant.
ORDERS = np.array(
    [1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.5, *range(5, 64), 128, 256, 512]
)
ALONE, GLOBAL, TUNED, OURS = (
    ("local only", "mean-reg"),
    ("fedavg", "none"),
    ("fedavg", "mean-reg"),
    ("prox", "mean-reg"),
)
LAMBDAS = {
    "School 80/20": (school, np.geomspace(0.01, 30.0, 8)),
    "School 10-shot": (partial(school, n_train=10), np.geomspace(1e-3, 3.0, 8)),
    "Synthetic(.5,.5)": (synthetic, np.geomspace(1e-4, 0.1, 5)),
}


def metric_of(name):
    return "nMSE" if name.startswith("School") else "accuracy"


def measured(name, sets, method, epsilon, parameter="", value="", about=None, **parameters):
    """A cell of one row, as of `computed`: the method (name, personalisation) on all `sets`.

    `about`: columns of the row that are other than usual.
    """
    score = partial(scores, **parameters)
    calls = [
        (score, method[0], method[1:], epsilon, data, seed, metric_of(name) == "accuracy")
        for seed, data in enumerate(sets)
    ]
    m = len(np.unique(sets[0][2]))
    spent = {"tasks": m, "epsilon": ""}
    if epsilon is not None:
        T = auto_rounds(epsilon)
        spent |= account(blocks_mu(1.0, T, "zero-out") / float(gdp_mu(epsilon, 1 / m)), T, 1.0, m)

    def rows(found):
        yield {
            "data": name,
            "metric": metric_of(name),
            "method": METHODS[method][0],
            **spent,
            "parameter": parameter,
            "value": value,
            "mean": number(np.mean(found)),
            "sd": number(np.std(found, ddof=1)) if len(found) > 1 else "",
            "repeats": len(found),
            **(about or {}),
        }

    return calls, rows


# ------------------------------------------------------------------------------ figures
def strength(quick, repeats):
    for name, (make, grid) in LAMBDAS.items():
        sets = [make(seed, quick=quick) for seed in range(repeats)]
        yield measured(name, sets, ALONE, None)
        for epsilon in (0.4,) if quick else (None, *reversed(EPSILONS)):
            yield measured(name, sets, GLOBAL, epsilon)
            for lam in grid[::4] if quick else grid:
                value = number(lam)
                yield measured(name, sets, OURS, epsilon, "lam", value, lam=value)


def varied(problems, parameter, values, quick, repeats):
    """Four methods over a property of the data, where `value` enters the seeded maker."""
    for name, make in problems.items():
        for value in values[name][::2] if quick else values[name]:
            sets = [make(seed, value, quick) for seed in range(repeats)]
            yield measured(name, sets, ALONE, None, parameter, value)
            for epsilon in EPSILONS:
                for method in (GLOBAL, TUNED, OURS):
                    yield measured(name, sets, method, epsilon, parameter, value)


def first_schools(seed, m, quick):
    """10 pupils of each of the first m schools in a random order."""
    parts = school(seed, 10)
    chosen = np.random.default_rng(seed).permutation(139)[:m]
    keep, keep_test = np.isin(parts[2], chosen), np.isin(parts[5], chosen)
    return *(part[keep] for part in parts[:3]), *(part[keep_test] for part in parts[3:6]), parts[6]


def small(quick, **how):
    return {**how, "d": 12, "C": 4, "n_test": 20} if quick else how


def tasks(quick, repeats):
    problems = {
        "School 10-shot": first_schools,
        "Synthetic(.5,.5)": lambda seed, m, quick: synthetic(seed, **small(quick, m=m)),
    }
    values = {"School 10-shot": (17, 35, 70, 139), "Synthetic(.5,.5)": (25, 50, 100, 200)}
    if quick:
        values = {"School 10-shot": (20,), "Synthetic(.5,.5)": (20,)}
    yield from varied(problems, "tasks", values, quick, repeats)


def rows(quick, repeats):
    m = 30 if quick else 200
    problems = {
        "School, few pupils": lambda seed, n, quick: school(seed, n, quick),
        "Synthetic(.5,.5)": lambda s, n, quick: synthetic(s, **small(quick, m=m, median=n)),
    }
    values = {"School, few pupils": (2, 5, 10, 20), "Synthetic(.5,.5)": (10, 20, 40)}
    yield from varied(problems, "rows per task", values, quick, repeats)


def spread(quick, repeats):
    m = 30 if quick else 200
    problems = {"Synthetic(s,.5)": lambda s, x, quick: synthetic(s, **small(quick, m=m, spread=x))}
    yield from varied(problems, "spread", {"Synthetic(s,.5)": (0.0, 0.5, 1.0, 2.0)}, quick, repeats)


# --------------------------------------------------------------------------- accounting
def poisson_rdp_epsilon(noise_multiplier, n_rounds, rate, delta):
    """epsilon as the authors' code states it: Renyi divergence of Poisson-sampled Gaussians.

    (a - 1) D_a = log E_x ((1 - p) + p exp((2 x - 1) / (2 z^2)))^a with x ~ N(0, z^2), by
    quadrature, then the usual conversion at the best of `ORDERS`.
    """
    z = noise_multiplier
    a = ORDERS[:, None]
    x = np.linspace(-12.0 * z, 12.0 * z + 1.0, 4001) + a * rate  # the mass moves with the order
    inside = np.logaddexp(np.log1p(-rate), np.log(rate) + (2.0 * x - 1.0) / (2.0 * z**2))
    density = -0.5 * (x / z) ** 2 - np.log(z * np.sqrt(2.0 * np.pi))
    moment = logsumexp(density + a * inside, axis=1) + np.log(x[0, 1] - x[0, 0])
    rdp = n_rounds * moment / (ORDERS - 1.0)
    epsilons = rdp + np.log1p(-1.0 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1.0)
    return float(max(epsilons.min(), 0.0))


def schemes(stated, m):
    """-> scheme, rounds, rate, noise multiplier for a stated epsilon; delta = 1 / m"""
    delta, T = 1.0 / m, auto_rounds(stated)
    yield "all tasks", T, 1.0, blocks_mu(1.0, T, "zero-out") / float(gdp_mu(stated, delta))
    yield "all tasks, Theorem 1", T, 1.0, 4.0 * np.sqrt(T * np.log(m)) / stated
    rate = round(RATE * m) / m
    yield "fixed size", T, rate, fixed_size_noise(stated, delta, T, rate, "zero-out")
    log_z = brentq(
        lambda t: poisson_rdp_epsilon(np.exp(t), T, rate, delta) - stated, -1.0, 6.0, xtol=1e-6
    )
    yield "fixed size, accounted as Poisson", T, rate, float(np.exp(log_z))


def exact(noise_multiplier, n_rounds, rate, delta, adjacency):
    if rate == 1.0:
        return float(gdp_epsilon(blocks_mu(noise_multiplier, n_rounds, adjacency), delta))
    return fixed_size_epsilon(noise_multiplier, n_rounds, rate, delta, adjacency)


def account(noise_multiplier, n_rounds, rate, m):
    """Columns of a row about its privacy; delta = 1 / m."""
    bound = 4.0 * np.sqrt(n_rounds * np.log(m)) / noise_multiplier
    spent = [exact(noise_multiplier, n_rounds, rate, 1 / m, a) for a in ("zero-out", "replace-one")]
    return {
        "epsilon": number(spent[0]),
        "epsilon_replace_one": number(spent[1]),
        "epsilon_theorem_1": number(bound) if rate == 1.0 else "",
        "rounds": n_rounds,
        "noise_multiplier": number(noise_multiplier),
    }


def statements(quick, repeats):
    problems = {
        "School 10-shot": partial(school, n_train=10),
        "Synthetic(.5,.5)": synthetic,
    }
    for name, make in problems.items():
        sets = [make(seed, quick=quick) for seed in range(repeats)]
        m = len(np.unique(sets[0][2]))
        for stated in (0.8,) if quick else (0.4, 0.8, 2.0, 4.0):
            for scheme, T, rate, z in schemes(stated, m):
                epsilon = exact(z, T, rate, 1 / m, "zero-out")
                sampled = {"sampling": "fixed", "sampling_rate": rate} if rate < 1.0 else {}
                about = {"method": scheme, **account(z, T, rate, m)}
                yield measured(
                    name, sets, OURS, epsilon, "stated", stated, about, n_rounds=T, **sampled
                )


FIGURES = {
    "strength": (strength, 3, by_strength),
    "tasks": (tasks, 3, by_value),
    "rows": (rows, 3, by_value),
    "spread": (spread, 3, by_value),
    "accounting": (statements, 4, accounting),
}


def main(arguments=None):
    parser = script(
        "mean_regularized_figures",
        __doc__,
        "small data, one repeat",
        "3 or 4 splits or draws",
        "",
        jobs=True,
    )
    return run_figures(parser, "mean_regularized", FIGURES, FIELDS, arguments)


if __name__ == "__main__":
    main()
