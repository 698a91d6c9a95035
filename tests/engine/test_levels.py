"""Levels of tasks, by hand, by quadrature of SciPy, and by what bounds they have."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, sparse, stats

from skpmtl import PrivateMTL
from skpmtl._kernels.losses import LOGISTIC
from skpmtl.engine import levels
from skpmtl.engine.levels import (
    LEVEL_BINS,
    OCTAVES,
    Level,
    TaskLevels,
    scale_of,
    sum_of_octaves,
    sum_of_scales,
    window_of,
)
from skpmtl.engine.plan import STRUCTURES, StructurePlan
from skpmtl.exchange.protocol import Population
from skpmtl.tables.table import TaskTable

HALF = OCTAVES // 2


def table_of(sizes=(5, 1, 8), d=3, seed=0, form=np.asarray, classes=False, weights=None):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    X, y = rng.normal(size=(n, d)) + 1.0, 3.0 + rng.normal(size=n)
    if classes:
        y = np.where(y > 3.0, 1.0, -1.0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    settings = {"n_classes": 2} if classes else {}
    return TaskTable(form(X), y, offsets, np.arange(len(sizes)), weights=weights, **settings)


# ------------------------------------------------------------------------------ a task alone
def level_by_hand(y, m, Q, level):
    """l_k of one task by the formulas of the module, with densities and integrals of SciPy."""
    n, s0, tau, B = len(y), level.noise_std, level.spread, level.window
    e, prior = y.mean() - m, stats.invgamma(0.5 * (n + 3.0), scale=0.5 * (4.0 * s0**2 + Q))

    def integral(f):
        """Of f(s^2) and the densities of s^2 and e, over log s^2."""

        def density(log):
            square = math.exp(log)
            likely = stats.norm.pdf(e, scale=(tau**2 + square / n) ** 0.5)
            return f(square) * likely * prior.pdf(square) * square

        middle = math.log((4.0 * s0**2 + Q) / (n + 3.0))
        return integrate.quad(density, middle - 6.0, middle + 12.0, epsabs=0.0, limit=200)[0]

    inside = integral(lambda square: 1.0)
    phi = integral(lambda square: tau**2 / (tau**2 + square / n)) / inside
    odds = math.log(0.98 / 0.02) + math.log(inside) - math.log(1 / (8 * B))
    if n > 1:  # Q / dof by an F density, against 40 octaves: log-uniform in the variance
        ratio = Q / ((n - 1.0) * s0**2)
        density = stats.f.pdf(ratio, n - 1.0, 4.0)
        odds += math.log(density) - math.log(1.0 / (ratio * 40.0 * math.log(2.0)))
    p = 1.0 if level.pooled else 1.0 / (1.0 + math.exp(-odds))
    return m + e * (p * phi + 1.0 - p)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("tau, noise", [(0.3, 1.0), (2.0, 0.1), (0.01, 0.02)])
def test_levels_are_posterior_means_under_the_released_prior(tau, noise, pooled):
    table, rng = table_of((5, 1, 8, 2, 30)), np.random.default_rng(1)
    Q, W = rng.uniform(0.1, 20.0, 5), rng.normal(size=(5, 3))
    level = Level(2.5, rng.normal(size=3) / 3.0, 4.0, noise, tau, pooled)
    found = TaskLevels(table).levels(W, Q, level)
    for k in range(5):
        rows = slice(table.offsets[k], table.offsets[k + 1])
        m = level.intercept + table.X[rows].mean(axis=0) @ level.coef
        # 28 is 40 log(2) to two digits.
        assert found[k] == pytest.approx(level_by_hand(table.y[rows], m, Q[k], level), rel=1e-3)


def test_a_task_in_units_of_its_own_keeps_its_level():
    """Errors of 1e6 where the released noise is 1, wherever the level is; one of 1 is pooled."""
    table = table_of((10, 10))
    Q = np.array([1e13, 9.0])
    level = Level(0.0, np.zeros(3), 4.0, 1.0, 0.1)
    found, own = TaskLevels(table).levels(np.zeros((2, 3)), Q, level), TaskLevels(table).targets
    assert found[0] == pytest.approx(own[0], rel=1e-2)
    near = Level(float(own[1]) + 0.1, np.zeros(3), 4.0, 1.0, 0.01)
    assert abs(TaskLevels(table).levels(np.zeros((2, 3)), Q, near)[1] - near.intercept) < 0.02


def test_a_task_of_absurd_size_keeps_its_level():
    """Squares of its targets overflow; other tasks have the levels of before."""
    table, level = table_of((5, 1, 8)), Level(0.0, np.zeros(3), 1.5, 0.8, 0.3)
    Q = np.array([4.0, 0.0, 7.0])
    expected = TaskLevels(table).levels(np.zeros((3, 3)), Q, level)
    table.y[:6], Q[0] = 1e200, np.inf
    found = TaskLevels(table).levels(np.zeros((3, 3)), Q, level)
    assert_allclose(found, [1e200, 1e200, expected[2]])


@pytest.mark.parametrize("size, off", [(1, 5.0), (2, 1.0), (40, 5.0)])
def test_few_rows_far_off_or_alike_are_no_level_of_its_own(size, off):
    """Five std off, a single row is rather that than its level; two equal rows do not say that
    there is no noise; the mean of 40 rows says where the level is."""
    table, level = table_of((size,)), Level(0.0, np.zeros(3), 1.5, 0.8, 0.3)
    table.y[:] = off * (0.3**2 + 0.8**2 / size) ** 0.5
    Q = np.full(1, 0.8**2 * (size - 1.0) if size > 2 else 0.0)
    part = TaskLevels(table).levels(np.zeros((1, 3)), Q, level)[0] / table.y[0]
    assert part > 0.9 if size == 40 else part < 0.5


@pytest.mark.parametrize("spread", [0.125, 1.0, 8.0])
def test_levels_of_classes_are_posterior_means(spread):
    """Mean by quadrature of SciPy; evidence at the mode by Laplace, the integral where it is."""
    table = table_of((6, 1, 40, 15), classes=True)
    table.y[21:] = 1.0  # one class only
    rng = np.random.default_rng(2)
    W, level = rng.normal(size=(4, 3)), Level(-0.4, rng.normal(size=3), None, spread=spread)
    task = TaskLevels(table)
    found = task.levels(W, None, level)
    logs = task._of_classes(W, level, spread, *levels._MODE)[1]
    fine = np.linspace(-9.0, 9.0, 361)
    exact = task._of_classes(W, level, spread, fine, np.full(361, 0.05))[1]
    pooled = task.levels(W, None, replace(level, pooled=True))
    for k in range(4):
        rows = slice(table.offsets[k], table.offsets[k + 1])
        X, y = table.X[rows], table.y[rows]
        score = (X - X.mean(axis=0)) @ W[k]

        def posterior(m, spread, score=score, y=y):
            """Mean, width and log mass under the prior N(m, spread^2)."""

            def log_density(at):
                likely = -np.logaddexp(0.0, -y[:, None] * (score[:, None] + at)).sum(axis=0)
                return likely - 0.5 * ((at - m) / spread) ** 2 - np.log(2.5066282746 * spread)

            at = np.linspace(m - 9.0 * spread, m + 9.0 * spread, 4001)
            values = log_density(at)
            top = values.max()
            inside = {"a": at[values > top - 40.0][0], "b": at[values > top - 40.0][-1]}
            mass, mean, square = (
                integrate.quad(lambda x, q=q: x**q * np.exp(log_density(x)[0] - top), **inside)[0]
                for q in range(3)
            )
            return mean / mass, (square / mass - (mean / mass) ** 2) ** 0.5, top + np.log(mass)

        mean, width, mass = posterior(level.intercept + X.mean(axis=0) @ level.coef, spread)
        assert pooled[k] == pytest.approx(mean, abs=0.04 * width)
        assert exact[k] == pytest.approx(mass, abs=0.02)
        assert logs[k] == pytest.approx(mass, abs=0.25)  # Laplace's error
        # Two in a hundred levels are of a wide prior about 0.
        free, wide, other = posterior(0.0, 4.0)
        share = 1.0 / (1.0 + 0.02 / 0.98 * np.exp(other - mass))
        wanted = share * mean + (1.0 - share) * free
        room = 0.04 * (width + wide) + 0.02 * abs(free - mean)
        assert found[k] == pytest.approx(wanted, abs=room)


def test_a_pooled_model_far_off_does_not_move_levels_of_classes():
    """A column in thousands, with a little noise in its coefficient, would."""
    table = table_of((30, 30), classes=True)
    far = Level(500.0, np.zeros(3), None, spread=1.0)
    found = TaskLevels(table).levels(np.zeros((2, 3)), None, far)
    rate = [np.mean(table.y[k * 30 : k * 30 + 30] > 0) for k in range(2)]
    assert_allclose(found, np.log(np.divide(rate, np.subtract(1.0, rate))), atol=0.1)


def test_levels_of_classes_without_compiler():
    """The plain function, where there is a compiled one."""
    kernel = levels.level_posteriors
    table = table_of((6, 1, 9), classes=True)
    given = (
        np.linspace(-2, 2, 16),
        table.y,
        np.ones(16),
        table.offsets,
        np.array([0.0, 1.0, -1.0]),
        0.7,
        levels._NODES,
        np.full(len(levels._NODES), 0.5),
    )
    out = [np.empty((2, 3)) for _ in range(2)]
    kernel(*given, *out[0], LOGISTIC)
    getattr(kernel, "py_func", kernel)(*given, *out[1], LOGISTIC)
    assert_allclose(out[1], out[0], rtol=1e-10)


def test_weights_are_repeated_rows_and_csr_is_dense():
    w = np.array([2.0, 1.0, 3.0, 1.0, 1.0, 2.0])
    plain, level = table_of((4, 2)), Level(1.0, np.ones(3), 4.0, 1.0, 0.5)
    heavy = table_of((4, 2), weights=w)
    picked = np.repeat(np.arange(6), w.astype(int))
    again = TaskTable(plain.X[picked], plain.y[picked], np.array([0, 7, 10]), np.arange(2))
    thin = TaskTable(sparse.csr_array(plain.X), plain.y, plain.offsets, plain.tasks, weights=w)
    Q, W = np.array([3.0, 2.0]), np.ones((2, 3))
    wanted = TaskLevels(again)
    for table in (heavy, thin):
        found = TaskLevels(table)
        assert_allclose(found.targets, wanted.targets, rtol=1e-12)
        assert_allclose(found.rows, wanted.rows, rtol=1e-12)
        assert_allclose(found.scales(), wanted.scales(), rtol=1e-9)
        for name in ("levels", "spreads"):
            sent = (getattr(task, name)(W, Q, level) for task in (found, wanted))
            assert_allclose(*sent, rtol=1e-9)
        assert_allclose(found.noises(Q, level), wanted.noises(Q, level), rtol=1e-9)


# ----------------------------------------------------------------------- what tasks say of it
def test_noises_say_the_noise_of_most_tasks():
    """Of Gaussian errors the mean of log2, without its bias, is that of the noise."""
    rng = np.random.default_rng(3)
    sizes, sd = (3,) * 4000, 0.21
    table = table_of(sizes, d=1)
    Q = sd**2 * rng.chisquare(2, size=4000)
    sent = TaskLevels(table).noises(Q, Level(0.0, np.zeros(1), 4.0))
    found = Level(0.0, np.zeros(1), 4.0).with_noise(sent.sum(), 4000).noise_std
    # 5 std of the mean of log2 of sqrt(chi^2 of 2 degrees): .93 octaves each.
    assert abs(np.log2(found / sd)) < 5 * 0.93 / 4000**0.5 + 0.05  # and clipped at 6 octaves


def test_the_noise_of_single_rows_is_their_distance_to_the_pooled_model():
    rng, m, sd = np.random.default_rng(3), 4000, 1.0
    table = table_of((1,) * m, d=1)
    table.y[:] = 2.0 + table.X[:, 0] + sd * rng.normal(size=m)
    sent = TaskLevels(table).noises(np.zeros(m), Level(2.0, np.ones(1), 4.0))
    found = Level(0.0, np.zeros(1), 4.0).with_noise(sent.sum(), m).noise_std
    # 5 std of the mean of log2 of sqrt(chi^2 of one degree): 1.6 octaves each.
    assert abs(np.log2(found / sd)) < 5 * 1.6 / m**0.5 + 0.08  # and clipped at 6 octaves


@pytest.mark.parametrize("tau", [0.3, 1.0])
def test_spreads_say_the_spread_of_most_tasks(tau):
    rng, m, B = np.random.default_rng(4), 4000, 4.0
    table = table_of((5,) * m, d=1)
    table.y[:] = np.repeat(tau * rng.normal(size=m), 5) + 1e-3 * rng.normal(size=5 * m)
    level = Level(0.0, np.zeros(1), B, 1e-3)
    sent = TaskLevels(table).spreads(np.zeros((m, 1)), np.full(m, 4e-6), level)
    assert sent.shape == (m, 1)
    found = level.with_spread(sent.sum(), 0.0, m).spread
    # log2 |e| / sqrt(.455) of a normal number: .25 octaves below in the mean, less what is
    # clipped at -4 octaves; the median would be 0.
    assert abs(np.log2(found / tau)) < 0.4


def test_noise_in_the_spread_goes_to_the_prior_and_towards_free_levels():
    level, m = Level(0.0, np.zeros(1), 4.0, 1.0), 100
    spreads = [level.with_spread(-0.5 * m, std, m).spread for std in (0.0, 5.0, 25.0, 1e9)]
    assert_allclose(spreads[0], 4.0 * 2.0**-4.0)
    assert (np.diff(spreads) > 0).all()
    assert_allclose(spreads[-1], 4.0 * 2.0**-1.0, rtol=1e-6)  # -1.5 octaves and half a std
    assert level.with_spread(1e300, 0.0, m).spread == 4.0
    for total in (-1e300, -1e9, 0.0, 1e9):
        assert 4.0 * 2.0**-6 <= level.with_noise(total, m).noise_std <= 4.0


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf, 1e300, -1e300])
def test_nothing_that_a_task_has_passes_the_bounds(broken):
    """A bound of 1/2 on the numbers, whatever a task computes."""
    table = table_of((4, 3))
    table.y[1] = broken
    level, Q = Level(0.0, np.zeros(3), 4.0, 1.0, 0.5), np.array([broken, 1.0])
    with np.errstate(all="ignore"):
        task = TaskLevels(table)
        for sent in (task.noises(Q, level), task.spreads(np.zeros((2, 3)), Q, level)[:, 0]):
            assert np.isfinite(sent).all() and np.abs(sent).max() <= 0.5
    classes = table_of((4, 3), classes=True)
    W = np.full((2, 3), broken)
    with np.errstate(all="ignore"):
        found = TaskLevels(classes).spreads(W, None, Level(0.0, np.zeros(3), None))
    assert np.isfinite(found).all()


# ------------------------------------------------------------------------------ windows
def test_octaves_are_one_bin_a_task():
    found = [3.0, 4.0, -0.3, 0.0, np.nan, np.inf, -1e300, 2.0**-39.5, 1e300]
    counts = sum_of_octaves({"window": np.array(found)})["window"]
    assert counts.shape == (LEVEL_BINS,) and counts.sum() == 7
    assert counts[HALF + 1] == counts[HALF + 2] == 1  # 2 <= 3 < 4 <= 4
    assert counts[OCTAVES + HALF - 2] == 1  # 1/4 < .3 < 1/2, below 0
    assert counts[0] == 2  # 0 and 2^-39.5
    assert counts[OCTAVES - 1] == counts[LEVEL_BINS - 1] == 1  # and what is beyond
    scales = sum_of_scales({"scale": np.array([-3.0, 3.0, np.nan])})["scale"]
    assert scales.shape == (OCTAVES,) and scales[HALF + 1] == 2 == scales.sum()


def counts_of(x):
    return sum_of_octaves({"window": np.asarray(x, dtype=float)})["window"]


@pytest.mark.parametrize("std", [0.0, 1.0])
@pytest.mark.parametrize(
    "middle, width",
    [(0.0, 1.0), (0.0, 3e-5), (20.0, 1.0), (-5000.0, 100.0), (1e8, 1e7), (100.0, 40.0)],
)
def test_windows_are_where_most_levels_are(middle, width, std):
    rng = np.random.default_rng(5)
    x = np.concatenate([middle + width * rng.normal(size=190), 1e6 * rng.normal(size=10)])
    found = window_of(counts_of(x) + std * rng.normal(size=LEVEL_BINS), std, 200)
    assert found is not None
    c, B, _ = found
    assert (np.abs(x - c) < B).mean() > 0.6
    # The octaves of one sign that a level may be in are as wide as it is far.
    assert B < 8.0 * max(width, abs(middle))


def searched(x, z, rng, adjacency="replace-one", apart=1.0):
    """`release_window` for levels x of two rows each, so far apart, at so many tasks times mu.

    -> window, what was queried
    """
    m, queried = len(x), []
    rows = np.repeat(x, 2) + np.tile([0.5 * apart, -0.5 * apart], m)
    task = TaskLevels(TaskTable(np.zeros((2 * m, 1)), rows, 2 * np.arange(m + 1), np.arange(m)))
    est = PrivateMTL(tasks=range(m), adjacency=adjacency)
    plan = StructurePlan(est, Population(np.arange(m), 5), STRUCTURES)
    plan.mu = z / m
    plan.budget_shares = plan._shares_of_levels()
    sent = {
        "window": lambda: levels.octave_of(task.targets),
        "inside": task.inside,
        "zoom": task.places,
    }

    def query(share, name, words, mechanism, combine, **public):
        queried.append(name)
        yield
        total = combine({name: sent[name](**public)})[name]
        return total + mechanism.noise_std * rng.normal(size=total.shape)

    mechanisms = (plan.window(("window", 0.8)), plan.inside(("window", 0.2)), plan.zooms(), m)
    steps = levels.release_window(query, *mechanisms)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, queried


@pytest.mark.parametrize("z, missed", [(50.0, 0.25), (90.0, 0.2)])
def test_false_windows_have_to_mislead_twice(z, missed):
    """100 levels about 0 at small budgets, whose window stands out little: it is not missed often,
    and none far too wide is taken (before there was a vote, about 1 in 100 was)."""
    rng, found = np.random.default_rng(8), []
    for _ in range(300):
        found.append(searched(rng.normal(size=100), z, rng)[0])
    units = [window[1] for window in found if window is not None]
    assert len(units) > (1.0 - missed) * 300
    assert max(units) < 1000.0


def test_windows_that_stand_out_outlive_noise_in_the_vote():
    """That of 100 levels in one octave, at the least budget for it: the vote is negative in 1 of 40
    searches then, and the histogram leaves no doubt."""
    rng = np.random.default_rng(12)
    levels_of = [rng.uniform(34.0, 60.0, size=100) for _ in range(150)]
    found = [searched(x, 35.0, rng, apart=10.0)[0] for x in levels_of]
    assert found.count(None) <= 2  # about 1 in 300 is taken for one far too wide


def test_windows_far_wider_than_targets_vary_need_a_zoom():
    """Where the budget has none, such a window is none: slopes are lost in its unit."""
    rng = np.random.default_rng(13)
    x = 8192.0 + 100.0 * rng.normal(size=100)
    found = [searched(x, 35.0, rng)[0] for _ in range(50)]
    assert sum(window is None for window in found) > 30  # a vote is below its noise in 1 of 5
    (_, B), queried = searched(x, 250.0, rng)
    assert "zoom" in queried and B < 1000.0


@pytest.mark.parametrize("z", [50.0, 100.0, 500.0])
def test_windows_need_tasks_that_agree(z):
    """Tasks over eighty octaves have none, whether there is noise or not."""
    rng, m = np.random.default_rng(6), 400
    scattered = 2.0 ** rng.uniform(-39, 39, size=m) * rng.choice([-1, 1], size=m)
    assert window_of(counts_of(scattered), 0.0, m) is None
    found = [searched(scattered, z, rng)[0] for _ in range(100)]
    assert np.mean([window is not None for window in found]) <= 0.05


@pytest.mark.parametrize("middle", [100.0, 8192.0, -1e4, 1e6])
def test_zooms_find_levels_far_from_zero(middle):
    """Also where an edge of bins is among them; and not where levels are as wide as far."""
    rng = np.random.default_rng(9)
    (c, B), queried = searched(middle + rng.normal(size=200), 250.0, rng)
    assert abs(c - middle) < B < 100.0 and "zoom" in queried
    window, queried = searched(middle * rng.uniform(1.0, 1.9, size=200), 250.0, rng)
    assert window[1] > 0.2 * abs(middle)


def test_zooms_end_where_the_noise_of_a_row_is():
    """Levels that agree better than rows tell: bins are no finer than some part of these."""
    rng = np.random.default_rng(10)
    x = 100.0 + 1e-4 * rng.normal(size=200)
    assert 0.1 < searched(x, 250.0, rng)[0][1] < 10.0


def test_votes_and_bins_of_a_window():
    table = TaskTable(
        np.zeros((8, 1)),
        np.array([2.0, 4.0, 0.05, 0.05, 9.0, 7.1, 3.0, np.nan]),
        np.array([0, 2, 4, 6, 8]),
        np.arange(4),
    )
    task = TaskLevels(table)  # of levels 3, .05, 8.05 and none
    votes = task.inside(4.0, 4.0)
    assert_array_equal(votes, [[0.5, -0.5], [-0.5, -0.5], [-0.5, -0.5], [-0.5, -0.5]])
    assert_array_equal(task.inside(4.0, 10.0)[:, 0], [0.5, -0.5, 0.5, -0.5])
    assert_array_equal(task.inside(50.0, 48.0)[0], [0.5, 0.5])
    assert_array_equal(task.places(0.0, 32.0), [3.0, 0.0, 8.0, -1.0])
    assert_array_equal(task.places(0.0, 8.0), [-1.0, 0.0, -1.0, -1.0])  # too fine
    counts = levels.sum_of_places({"zoom": np.array([3.0, -1.0, 32.0, 31.0, np.inf, np.nan])})
    assert_array_equal(np.flatnonzero(counts["zoom"]), [3, 31])


def test_scales_are_those_of_most_tasks():
    m, rng = 300, np.random.default_rng(7)
    x = 37.0 * 2.0 ** rng.normal(scale=0.3, size=m)
    counts = sum_of_scales({"scale": x})["scale"]
    for std in (0.0, 5.0):
        found = scale_of(counts + std * rng.normal(size=OCTAVES), std, m)
        assert abs(np.log2(found / 37.0)) < 1.0
    assert scale_of(np.full(OCTAVES, m / OCTAVES), 1.0, m) == 1.0  # nowhere
    false = [scale_of(60.0 * rng.normal(size=OCTAVES), 60.0, m) for _ in range(200)]
    assert np.mean(np.array(false) != 1.0) <= 5 / 200


def test_scales_of_a_task_are_about_its_mean():
    table = table_of((6, 1, 7))
    X = table.X.copy()
    found = TaskLevels(table).scales()
    assert np.isnan(found[1])
    for k in (0, 2):
        rows = X[table.offsets[k] : table.offsets[k + 1]]
        assert found[k] == pytest.approx(np.sqrt(rows.var(axis=0).mean()), rel=1e-9)
    constant = TaskTable(np.ones((4, 2)), np.ones(4), np.array([0, 4]), np.arange(1))
    assert_array_equal(np.isnan(TaskLevels(constant).scales()), [True])


# -------------------------------------------------------------------------- refused levels
def test_levels_from_elsewhere_are_checked():
    good = Level(0.0, np.zeros(3), 4.0, 1.0, 0.5)
    assert list(good.declared(3)) == [("slopes of its level", good.coef, [(3,)])]
    for window, noise in ((None, 1.0), (4.0, None)):
        with pytest.raises(ValueError, match="a window and a noise, or neither"):
            list(Level(0.0, np.zeros(3), window, noise, 0.5).declared(3))


def test_a_released_noise_counts_rows_by_its_own_noise():
    """As many as have so much of a spread of log s, together with four rows."""
    level = Level(0.0, np.zeros(1), 4.0)
    assert level.with_noise(0.0, 100).noise_rows == pytest.approx(4.0)
    rng = np.random.default_rng(0)
    for std in (2.0, 5.0, 20.0):
        rows = level.with_noise(0.0, 100, std).noise_rows
        of_rows = 0.5 * np.log(rng.chisquare(rows, 200_000))
        four = 0.5 * np.log(rng.chisquare(4.0, 200_000))
        noise = math.log(2.0) * 6.0 * std / 100.0
        assert np.var(of_rows) == pytest.approx(np.var(four) + noise**2, rel=0.05)
