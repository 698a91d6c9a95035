"""Posteriors of classes and counts against quadrature, penalised regressions, and other tasks."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp, softmax
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from skpmtl.course.curator import OF_SLOPES
from skpmtl.task.losses import LOGISTIC, POISSON, SOFTMAX, ScoreRows, posterior
from skpmtl.task.nested import Subgroups
from skpmtl.task.priors import candidates

TAU = 2.0 ** np.arange(-4, 3)
ONE = np.ones(1)


def rows_of(kind, X, y, given=None, C=1):
    given = np.zeros((len(y), C)) if given is None else given
    offsets = np.array([0, len(y)])
    return ScoreRows(
        kind, np.ascontiguousarray(X), y.astype(float), np.ones(len(y)), given, offsets
    )


def drawn(kind, n, d, rng, scale=1.0):
    X = rng.normal(size=(n, d)) / np.sqrt(d)
    s = rng.normal() + scale * X @ rng.normal(size=d)
    if kind == POISSON:
        return X, rng.poisson(np.exp(s))
    return X, (rng.random(n) < 1 / (1 + np.exp(-s))).astype(float)


def mode(kind, X, y, kappa, tau, C=1, given=None):
    """Level and slopes under N(0, tau^2), N(0, kappa I)."""
    rows = rows_of(kind, X, y, given, C)
    grids = np.array([kappa]), ONE, np.array([tau])
    centre = np.zeros((C, X.shape[1]))
    _, level, slopes, *_ = posterior(
        rows, np.eye(X.shape[1]), 0.0, centre, grids, np.zeros((1, 1, 1)), tol=1e-9, moments="means"
    )
    return level[0], slopes[0]


@pytest.mark.parametrize("kind", [LOGISTIC, POISSON, SOFTMAX])
def test_effects_of_subgroups_are_slopes_of_their_indicators(kind):
    rng, n, g, kappa, C = np.random.default_rng(kind), 14, 0.7, 0.5, 1 + 2 * (kind == SOFTMAX)
    X, y = rng.normal(size=(n, 3)), rng.integers(3 if kind else 2, size=n)
    of_row, none = np.arange(n) % 3, np.zeros((C, 6))
    groups = Subgroups.of(np.zeros(n, dtype=int), of_row, np.ones(n), 1)
    grids, even = (np.array([kappa]), ONE, TAU[3:5]), np.log([[[0.4, 0.6]]])
    known = {"tol": 1e-6, "moments": "second"}
    root = np.diag(np.append(np.ones(3), np.full(3, np.sqrt(g / kappa))))
    size = np.append(np.ones(3), np.zeros(3))
    wide = rows_of(kind, np.c_[X, of_row[:, None] == np.arange(3)], y, C=C)
    expected = posterior(wide, root, 0.1, none, grids, even, size=size, **known)
    rows = replace(rows_of(kind, X, y, C=C), subgroups=groups)
    one = np.eye(3), 0.1, none[:, :3], grids, even
    found = posterior(rows, *one, size=size[:3], ratio=g, **known)
    for j, kept in enumerate((..., ..., np.s_[..., :3], np.s_[..., :4, :4])):
        np.testing.assert_allclose(found[j], expected[j][kept], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found[5][0].T, expected[2][0, :, 3:], rtol=1e-10)
    second = expected[3][0]
    at, far = np.arange(4, 7), g / kappa
    np.testing.assert_allclose(found[5][1].T, far * second[:, at, at], rtol=1e-10)
    np.testing.assert_allclose(found[5][2].T, np.sqrt(far) * second[:, 0, at], rtol=1e-10)


# ------------------------------------------------------------------------------------- modes
@pytest.mark.parametrize("n", [4, 40])
def test_modes_are_those_of_penalised_regressions(n):
    rng, d, kappa, tau = np.random.default_rng(n), 6, 0.7, 1.5
    X, y = drawn(LOGISTIC, n, d, rng)
    y[:2] = 0, 1
    Z = np.c_[tau * np.ones(n), np.sqrt(kappa) * X]
    level, slopes = mode(LOGISTIC, X, y, kappa, tau)
    one = {"fit_intercept": False, "tol": 1e-10}
    expected = LogisticRegression(C=1.0, max_iter=1000, **one).fit(Z, y).coef_[0]
    found = np.r_[level / tau, slopes[0] / np.sqrt(kappa)]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    y = rng.poisson(np.exp(X @ rng.normal(size=d)))
    e = rng.uniform(0.5, 20.0, n)
    level, slopes = mode(POISSON, X, y, kappa, tau, given=np.log(e)[:, None])
    # Rates with exposures as weights; the penalty is over the mean of the losses.
    model = PoissonRegressor(alpha=1.0 / e.sum(), solver="newton-cholesky", **one)
    expected = model.fit(Z, y / e, sample_weight=e).coef_
    found = np.r_[level / tau, slopes[0] / np.sqrt(kappa)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    C = 4
    y = np.r_[np.arange(C), rng.integers(C, size=n - C)]
    level, slopes = mode(SOFTMAX, X, y, kappa, tau, C)
    expected = LogisticRegression(C=1.0, max_iter=5000, **one).fit(Z, y).coef_
    found = np.c_[level / tau, slopes / np.sqrt(kappa)]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_two_classes_of_softmax_are_logistic():
    """With half of the variance each, where differences have all of it."""
    rng, kappa, tau = np.random.default_rng(0), np.array([0.5, 2.0]), np.array([0.3, 1.0])
    X, y = drawn(LOGISTIC, 12, 3, rng)
    a, c = rng.normal(size=(1, 3)), 0.4
    flat = np.zeros((2, 1, 2))
    known = rows_of(LOGISTIC, X, y), np.eye(3), c, a, (kappa, ONE, tau), flat
    E, level, slopes, *_ = posterior(*known, tol=1e-8, moments="means")
    two = np.concatenate([-a / 2, a / 2])
    grids = kappa / 2, ONE, tau / np.sqrt(2)
    rows, levels = rows_of(SOFTMAX, X, y, C=2), [-c / 2, c / 2]
    known = rows, np.eye(3), levels, two, grids, flat
    E2, level2, slopes2, *_ = posterior(*known, tol=1e-8, moments="means")
    np.testing.assert_allclose(E2, E, rtol=1e-8)
    np.testing.assert_allclose(level2[:, 1] - level2[:, 0], level[:, 0], rtol=1e-8)
    np.testing.assert_allclose(slopes2[:, 1] - slopes2[:, 0], slopes[:, 0], rtol=1e-8)


# ---------------------------------------------------------------------------------- evidence
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(17)
STRETCH = 1.15  # of the nodes: tails are longer than normal ones


def log_likelihood(kind, y, s):
    if kind == POISSON:
        return (y * s - np.exp(s) - gammaln(y + 1)).sum(axis=-1)
    return (y * s - np.logaddexp(0.0, s)).sum(axis=-1)


def quadrature(kind, X, y, kappa, tau):
    """Log evidence of a level and two slopes, by nodes about the mode."""
    level, slopes = mode(kind, X, y, kappa, tau)
    D = np.c_[tau * np.ones(len(y)), np.sqrt(kappa) * X]
    u = np.r_[level / tau, slopes[0] / np.sqrt(kappa)]
    p = np.exp(D @ u) if kind == POISSON else 1 / (1 + np.exp(-(D @ u)))
    h = p if kind == POISSON else p * (1 - p)
    H = np.eye(3) + D.T @ (h[:, None] * D)
    root = STRETCH * np.linalg.cholesky(np.linalg.inv(H))
    nodes = np.stack(np.meshgrid(*[NODES] * 3, indexing="ij"), -1).reshape(-1, 3)
    logs = sum(np.meshgrid(*[np.log(WEIGHTS / WEIGHTS.sum())] * 3, indexing="ij")).ravel()
    U = u + nodes @ root.T
    f = log_likelihood(kind, y, U @ D.T) - 0.5 * (U**2).sum(axis=1) + 0.5 * (nodes**2).sum(axis=1)
    return logsumexp(f + logs) + np.linalg.slogdet(root)[1]


KAPPA = 4.0 ** np.arange(-4, 3)


@pytest.mark.parametrize("kind", [LOGISTIC, POISSON])
@pytest.mark.parametrize("n", [2, 3, 6, 20])
def test_differences_of_evidence_are_exact_to_a_twentieth(kind, n):
    """Of votes on levels and on scales of slopes, and of slopes against none."""
    rng = np.random.default_rng([n, kind])
    X, y = drawn(kind, n, 2, rng)
    exact = np.array([[quadrature(kind, X, y, k, t) for t in TAU] for k in KAPPA])
    found = np.empty(exact.shape)
    flat, zero = np.full((len(KAPPA), 1, 1), -np.log(len(KAPPA))), np.zeros((1, 2))
    for j in range(len(TAU)):  # as votes on levels take them
        grids = KAPPA, ONE, TAU[j : j + 1]
        E = posterior(rows_of(kind, X, y), np.eye(2), 0.0, zero, grids, flat, tol=0.1)[0]
        found[:, j] = E[0, :, 0, 0]
    by_tau = logsumexp(exact, axis=0), logsumexp(found, axis=0)
    assert np.abs(np.diff(by_tau[1] - by_tau[0])).max() < 0.05
    grids, even = (KAPPA, ONE, TAU), np.zeros((len(KAPPA), 1, len(TAU)))
    E = posterior(rows_of(kind, X, y), np.eye(2), 0.0, zero, grids, even, tol=0.1)[0][0, :, 0]
    priors = candidates(KAPPA, OF_SLOPES)
    votes = [logsumexp(logsumexp(one, axis=1)[None] + priors, axis=1) for one in (exact, found)]
    assert np.abs(np.diff(votes[1] - votes[0])).max() < 0.05
    votes = [logsumexp(logsumexp(one, axis=1)[None] + priors, axis=1) for one in (exact, E)]
    assert np.abs(np.diff(votes[1] - votes[0])).max() < 0.1


@pytest.mark.parametrize("events", [0, 1, 6, 20])
@pytest.mark.parametrize("tau", [0.25, 0.5, 1.0, 2.0])
@pytest.mark.spread(6)
def test_mean_rates_of_counts_are_those_of_quadrature(events, tau):
    """Of one row, for a level and a slope, at new rows about the mean row of the task."""
    kappa, centre, x, size = 0.3, 0.7, 0.5, 0.8
    rows = rows_of(POISSON, np.array([[x]]), np.array([events]))
    grids, zero = (np.array([kappa]), ONE, np.array([tau])), np.zeros((1, 1))
    *_, typical, _ = posterior(
        rows,
        np.eye(1),
        centre,
        zero,
        grids,
        np.zeros((1, 1, 1)),
        size=np.array([[size]]),
        tol=1e-8,
        moments="second",
    )
    u = np.linspace(-6.0, 6.0, 401)
    level = centre - 0.5 * kappa * size + tau * u[:, None]
    slope = np.sqrt(kappa) * u
    score = level + x * slope
    logs = events * score - np.exp(score) - 0.5 * u[:, None] ** 2 - 0.5 * u**2
    density = np.exp(logs - logs.max())
    variance = (density * slope**2).sum() / density.sum()
    variance -= ((density * slope).sum() / density.sum()) ** 2
    exact = (density * np.exp(score + 0.5 * size * variance)).sum() / density.sum()
    assert np.exp(centre + typical[0, 0, 0]) == pytest.approx(
        exact, rel=0.03 if tau <= 1.0 else 0.1
    )


def test_dispersion_of_counts_is_found():
    """Negative binomial counts of variance phi times their mean have most evidence near phi."""
    rng, phi = np.random.default_rng(0), np.array([1.0, 2.5, 6.0, 15.0])
    for true in (1, 2):
        mean = np.exp(rng.normal(1.5, 0.3, 400))
        y = rng.poisson(rng.gamma(mean / (phi[true] - 1), phi[true] - 1))
        X = np.zeros((400, 1))
        grids = ONE, phi, np.array([1.0, 4.0])
        zero = np.zeros((1, 1))
        E = posterior(rows_of(POISSON, X, y), np.eye(1), 0.0, zero, grids, np.zeros((1, 4, 2)))[0]
        assert E[0, 0, :, 1].argmax() == true


# ------------------------------------------------------------------------- what tasks depend on
@pytest.mark.parametrize("kind", [LOGISTIC, POISSON, SOFTMAX])
def test_what_is_kept_of_other_shapes_changes_nothing(kind):
    rng, C = np.random.default_rng(4), 1 + 2 * (kind == SOFTMAX)
    X, y = drawn(kind if kind == POISSON else LOGISTIC, 37, 4, rng)
    rows, grids = (
        replace(rows_of(kind, X, y, C=C), offsets=np.array([0, 2, 7, 37])),
        (ONE, ONE, TAU),
    )
    for root in (np.eye(4), np.diag([1.0, 2.0, 0.5, 1.0]), np.eye(4)[:, :2], np.eye(4)):
        centre = rng.normal(size=(C, 4))
        for moments in (None, "means", "second", "information"):
            options = {"size": None if moments == "information" else np.ones(4)}
            asked = root, 0.1, centre, grids, np.zeros((1, 1, len(TAU)))
            found = posterior(rows, *asked, moments=moments, **options)
            fresh = posterior(replace(rows, chunk=None), *asked, moments=moments, **options)
            for x, y in zip(found, fresh, strict=True):
                np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("kind", [LOGISTIC, POISSON, SOFTMAX])
def test_other_tasks_do_not_matter(kind):
    rng, C = np.random.default_rng(1), 3 if kind == SOFTMAX else 1
    sizes = np.array([3, 0, 9, 1, 150, 40])  # of one lane and of several
    offsets, d = np.r_[0, np.cumsum(sizes)], 5
    n = sizes.sum()
    X, y = rng.normal(size=(n, d)), rng.integers(0, 2 + (kind == SOFTMAX), n).astype(float)
    grids, weights = (KAPPA, ONE, TAU), np.zeros((len(KAPPA), 1, len(TAU)))

    def of(part, ends, given=0.0):
        one = np.ones(len(y[part])), np.zeros((len(y[part]), C)) + given
        rows = ScoreRows(kind, X[part], y[part], *one, ends)
        centre = np.linspace(-1, 1, C * d).reshape(C, d)
        return posterior(rows, np.eye(d)[:, :4], 0.1, centre, grids, weights, moments="second")[:5]

    every = of(slice(None), offsets)
    assert (every[0][1] == 0).all() and all(np.isfinite(found).all() for found in every)
    for t, size in enumerate(sizes):
        alone = of(slice(offsets[t], offsets[t + 1]), np.array([0, size]))
        assert all(np.array_equal(a[0], b[t]) for a, b in zip(alone, every, strict=True))
        rows, others = np.repeat(np.arange(len(sizes)), sizes), np.arange(len(sizes)) != t
        with np.errstate(invalid="ignore"):
            none = of(slice(None), offsets, np.where(rows == t, np.nan, 0.0)[:, None])
        assert all(np.array_equal(a[others], b[others]) for a, b in zip(none, every, strict=True))


@pytest.mark.parametrize("n", [3, 12])
def test_second_moments_are_those_of_the_mixture(n):
    """Of one cell, whose mean is the mode and whose covariance the inverse of the Hessian."""
    rng, d, kappa, tau = np.random.default_rng(n), 5, 0.5, 0.8
    X, y = drawn(LOGISTIC, n, d, rng)
    root = rng.normal(size=(d, d))
    grids = np.array([kappa]), ONE, np.array([tau])
    *means, second, _, _ = posterior(
        rows_of(LOGISTIC, X, y),
        root,
        0.0,
        np.zeros((1, d)),
        grids,
        np.zeros((1, 1, 1)),
        tol=1e-8,
        moments="second",
    )
    level, slopes = means[1][0, 0], np.linalg.solve(root, means[2][0, 0])
    D, v = np.c_[np.ones(n), X @ root], np.r_[level, slopes]
    p = 1 / (1 + np.exp(-(D @ v)))
    precision = D.T @ ((p * (1 - p))[:, None] * D) + np.diag([tau**-2, *np.full(d, 1 / kappa)])
    expected = np.linalg.inv(precision) + np.outer(v, v)
    np.testing.assert_allclose(second[0, 0], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("n", [3, 12])
def test_what_is_kept_is_the_slope_of_means_in_the_centre(n):
    """Of one cell, where a move of the centre is small; and information is that of the score."""
    rng, d = np.random.default_rng(n), 5
    X, y = drawn(LOGISTIC, n, d, rng)
    root = rng.normal(size=(d, d))
    grids = np.array([0.5]), ONE, np.array([0.8])

    def of(level, slopes, **more):
        flat = np.zeros((1, 1, 1))
        rows = rows_of(LOGISTIC, X, y)
        return posterior(rows, root, level, slopes[None], grids, flat, tol=1e-9, **more)

    step, zero = 1e-5, np.zeros(d)
    *_, kept, _, _ = of(0.0, zero, moments="kept")
    moves = [(step, zero), *((0.0, step * root[:, j]) for j in range(d))]
    _, *score, information, _, _ = of(0.0, zero, moments="information")
    inverse, turn = np.zeros((2, d + 1, d + 1))
    inverse[0, 0], inverse[1:, 1:] = 0.8**-2, np.linalg.inv(0.5 * root @ root.T)
    turn[0, 0], turn[1:, 1:] = 1.0, root
    _, *means, _, _, _ = of(0.0, zero, moments="means")
    np.testing.assert_allclose(score[1][0, 0], inverse[1:, 1:] @ means[1][0, 0])
    bend = inverse @ (np.eye(d + 1) - turn @ kept[0, 0] @ np.linalg.inv(turn))
    np.testing.assert_allclose(information[0, 0], bend, rtol=1e-6, atol=1e-8)
    found = []
    for level, slopes in moves:
        after, before = of(level, slopes, moments="means"), of(-level, -slopes, moments="means")
        now, then = (
            np.r_[s * level + one[1][0], np.linalg.solve(root, s * slopes + one[2][0, 0])]
            for s, one in ((1, after), (-1, before))
        )
        found.append((now - then) / (2 * step))
    np.testing.assert_allclose(kept[0, 0], np.stack(found, axis=1), atol=1e-5)


@pytest.mark.parametrize("kind, most", [(LOGISTIC, 0.03), (POISSON, 0.08)])
def test_scores_of_levels_are_those_of_means(kind, most):
    """Of three rows without an event, over the exact posterior of the level."""
    X, y, tau, level = np.zeros((3, 1)), np.zeros(3), 1.5, -0.5
    grids, flat = (ONE, ONE, np.array([tau])), np.zeros((1, 1, 1))
    known = rows_of(kind, X, y), np.eye(1), level, np.zeros((1, 1)), grids, flat
    score = posterior(*known, tol=1e-8, moments="information")[1][0, 0]
    v = np.linspace(-12.0, 8.0, 4001)
    rate = np.exp(v + level)
    weight = np.exp(-3.0 * (np.log1p(rate) if kind == LOGISTIC else rate) - 0.5 * (v / tau) ** 2)
    exact = weight @ v / weight.sum() / tau**2
    assert score == pytest.approx(exact, rel=most)
    mode = posterior(*known, tol=1e-8, moments="means")[1][0, 0] / tau**2
    assert mode - exact > 2.0 * most * abs(exact)


def test_levels_of_classes_are_those_of_mean_probabilities():
    """Whatever the spreads of levels and slopes, of a task without rows; to the approximation."""
    z = np.random.default_rng(0).normal(size=(100_000, 3))
    for level, slope, kappa, tau in (
        ([-3.0], 0.0, 0.1, 1.0),
        ([-2.0], 1.0, 0.5, 0.5),
        ([0.7], 0.0, 0.5, 4.0),
        ([1.4, -0.7, -0.7], 0.5, 0.5, 1.0),
    ):
        C, grids = len(level), (np.array([kappa]), ONE, np.array([tau]))
        rows = rows_of(LOGISTIC if C == 1 else SOFTMAX, np.zeros((0, 1)), np.zeros(0), C=C)
        slopes = np.full((C, 1), slope)
        known = rows, np.eye(1), np.array(level), slopes, grids, np.zeros((1, 1, 1))
        moved = posterior(*known, size=ONE, moments="second")[1][0]
        spread = np.sqrt(tau**2 + kappa + slope**2)
        scores = level + moved + spread * z[:, :C]
        p, asked = (
            softmax(np.c_[0.0 * x, x] if C == 1 else x, axis=1) for x in (scores, np.array([level]))
        )
        assert p.mean(axis=0)[-1] == pytest.approx(asked[0, -1], rel=0.12)


def test_levels_of_classes_stay_under_a_mixture_of_spreads():
    """Of a task without rows, whose averaged score at a typical row is the level that is asked."""
    grids = np.array([0.1, 1.0, 30.0]), ONE, np.array([0.2, 2.0])
    rows, level = rows_of(LOGISTIC, np.zeros((0, 1)), np.zeros(0)), -3.0
    known = (
        rows,
        np.eye(1),
        level,
        np.zeros((1, 1)),
        grids,
        np.log(np.arange(1.0, 7.0)).reshape(3, 1, 2),
    )
    _, moved, *_, typical, _ = posterior(*known, size=ONE, moments="second")
    assert (level + moved[0, 0]) * typical[0, 0, 1] == pytest.approx(level, rel=1e-9)
