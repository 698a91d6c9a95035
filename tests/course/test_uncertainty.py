"""How sure tasks are of their models under a released hierarchical model."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import invgamma, norm

from skpmtl import PrivateMTL
from skpmtl.course.billboard import HierarchicalBillboard
from skpmtl.course.personal import TaskModels
from skpmtl.course.uncertainty import noise_of, posterior
from skpmtl.tables.forms import read_training
from skpmtl.task.priors import NEVER, SIGMA, after


def tables(m, n, d=2, seed=0):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, d)) * [10.0, 0.1][:d] + 3.0
    W = [0.1, 5.0] + [0.05, 4.0] * rng.normal(size=(m, d))
    noise = np.exp(0.3 * rng.normal(size=m))[task] * rng.normal(size=m * n)
    level = 40.0 + rng.normal(size=m)[task]
    return X, level + np.einsum("ij,ij->i", X, W[task]) + noise, task


def by_every_cell(tasks, board, X, y):
    """Mean and covariance of (coef, intercept), a mixture over all cells of all components, and the
    weights of these.

    The joint Gaussian of targets and parameters is written out in units of the input.
    """
    scale, unit, mean_row = tasks.scale[0], tasks.unit[0], tasks.near_mean[0]
    d, n, logs, means, squares = len(scale), len(y), [], [], []
    to = np.zeros((d + 1, d + 1))  # from (level, slopes) in units to (coef, intercept)
    to[:d, 1:] = np.diag(unit / scale)
    to[d] = np.append(unit, unit * mean_row - X.mean(axis=0) * unit / scale)
    A = np.c_[X, np.ones(n)] @ to
    for part in board.all_components():
        s = part.scales
        centre = np.append(board.centre[0], part.slopes)
        mean = to @ centre + np.append(np.zeros(d), board.middle)
        kappa, sigma, tau = np.meshgrid(s.kappa, s.sigma, s.tau, indexing="ij")
        prior = np.zeros((*tau.shape, d + 1, d + 1))
        prior[..., 0, 0] = tau**2
        prior[..., 1:, 1:] = kappa[..., None, None] * (part.root @ part.root.T)
        V = A @ prior @ A.T + (unit * sigma[..., None, None]) ** 2 * np.eye(n)
        e = y - np.c_[X, np.ones(n)] @ mean
        gain = np.linalg.solve(V, A @ prior).swapaxes(-1, -2)
        found = mean + gain @ e @ to.T
        log = part.log_weight + s.log_kappa[:, None, None] + s.log_sigma[:, None] + s.log_tau
        log = log - 0.5 * (np.linalg.slogdet(V)[1] + np.linalg.solve(V, e[:, None])[..., 0] @ e)
        cov = to @ (prior - gain @ A @ prior) @ to.T
        squares.extend((cov + found[..., None] * found[..., None, :]).reshape(-1, d + 1, d + 1))
        logs.extend(log.ravel())
        means.extend(found.reshape(-1, d + 1))
    p = np.exp(np.array(logs) - max(logs))
    p /= p.sum()
    mean = p @ np.array(means)
    covariance = np.tensordot(p, np.array(squares), 1) - np.outer(mean, mean)
    return mean, covariance, p.reshape(len(board.all_components()), -1).sum(axis=1)


def test_the_covariance_is_that_of_all_cells():
    X, y, task = tables(60, 6)
    y = y + np.where(task % 2, 8.0, -8.0) * (X[:, 1] - 3.0)
    est = PrivateMTL("groups", epsilon=1e3, tasks=range(60), random_state=1, uncertainty=True).fit(
        X, y, task=task
    )
    mine, board = task == 7, est.billboard_
    assert board.has_place and len(board.components()) > 4
    one, _ = read_training(PrivateMTL(tasks=[7]), X[mine], y[mine], task[mine])
    tasks = TaskModels(one)
    coef, intercept, extras = tasks.personal(board)
    mean, covariance, weights = by_every_cell(tasks, board, X[mine], y[mine])
    assert_allclose(np.append(coef, intercept), mean, rtol=1e-6)
    found = posterior(tasks, board).covariance[0]
    assert_allclose(found, covariance, rtol=1e-4, atol=1e-6 * covariance.max())
    k = len(board.groups)
    members = np.append(weights[-k:], weights[:-k].sum())
    assert_allclose(extras["membership_"][0], members, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("nu, scale", [(4.5, 0.3), (60.0, 2.7), (1000.0, 0.011)])
def test_noise_of_an_inverse_gamma_is_exact(nu, scale):
    """Also between the points of the grid, and however narrow it is."""
    s2 = invgamma(nu / 2, scale=nu * scale / 2)
    by_sigma = s2.logpdf(SIGMA**2) + np.log(SIGMA**2)
    variance, dof = noise_of(by_sigma[None], SIGMA)
    assert_allclose(dof, nu, rtol=1e-6)
    assert_allclose(variance, s2.mean(), rtol=1e-6)


def test_noise_that_is_known_is_what_it_is():
    """Whatever few rows say; and of a prior alone it has its mean."""
    rows = invgamma(3.0, scale=2.0).logpdf(SIGMA**2)
    known = np.full(len(SIGMA), NEVER)
    known[7] = 0.0
    assert_allclose(noise_of((rows + known)[None], SIGMA, known)[0], SIGMA[7] ** 2, rtol=1e-6)
    doubt = known.copy()
    doubt[6:9] = np.log([0.03, 0.95, 0.02])
    mean = np.exp(doubt) @ SIGMA**2
    assert_allclose(noise_of(doubt[None], SIGMA, doubt)[0], mean, rtol=1e-6)


@pytest.mark.parametrize("epsilon", [None, 3.0])
def test_intervals_hold_nine_in_ten_targets(epsilon):
    """Noise and slopes differ between tasks; three standard errors on both sides."""
    X, y, task = tables(400, 16)
    new, test = task >= 250, np.arange(len(y)) % 2 == 0
    settings = {"tasks": range(250), "uncertainty": True, "unseen_task": "mean"}
    est = PrivateMTL(epsilon=epsilon, random_state=0, **settings)
    est.fit(X[~test & ~new], y[~test & ~new], task=task[~test & ~new])
    # Of a new task all rows have one level, and how far levels are apart is known to an octave.
    for some, slack in ((test & ~new, 0.02), (new, 0.09)):
        low, high = est.predict_interval(X[some], task=task[some]).T
        held = np.mean((low <= y[some]) & (y[some] <= high))
        assert abs(held - 0.9) < 3 * np.sqrt(0.09 / some.sum()) + slack


def test_intervals_of_new_tasks_know_the_noise_of_rows():
    """Where levels are close to each other, and rows are not."""
    rng, m, n = np.random.default_rng(0), 150, 8
    X, task = rng.normal(size=(m * n, 2)), np.repeat(np.arange(m), n)
    y = 5.0 + (0.1 * rng.normal(size=m))[task] + 2.0 * rng.normal(size=m * n)
    old = task < 100
    est = PrivateMTL(epsilon=None, uncertainty=True, unseen_task="mean")
    est.fit(X[old], y[old], task=task[old])
    low, high = est.predict_interval(X[~old], task=task[~old]).T
    assert 0.86 < np.mean((low <= y[~old]) & (y[~old] <= high)) < 0.96


def wide_slopes():
    """600 tasks of 8 rows, about a common model. -> X, y, task, slopes (m, 2)"""
    rng, m, n = np.random.default_rng(1), 600, 8
    task, X = np.repeat(np.arange(m), n), rng.normal(size=(m * n, 2))
    W = [0.5, -0.5] + 0.7 * rng.normal(size=(m, 2))
    y = (0.5 * rng.normal(size=m))[task] + np.sum(X * W[task], axis=1) + rng.normal(size=m * n)
    return X, y, task, W


def board_of_new_tasks(n, **values):
    """A model of released numbers, and rows far and near with their distances in scales."""
    rng, d = np.random.default_rng(0), 3
    public = {"middle": 5.0, "width": 4.0, "unit": 2.0, "scale_variance": np.zeros(2)} | values
    root = rng.normal(size=(d, d))
    board = HierarchicalBillboard(
        *(30, 30.0, np.array([0.3, 1.0, -1.0, 0.5])),
        **public,
        root=root / np.sqrt(np.sum(root**2)),
        column_scale=np.array([1.0, 2.0, 0.1]),
        column_centre=np.array([0.5, 0.0, 0.0]),
        log_components=np.array([NEVER, NEVER, 0.0]),
    )
    for name, some in {"kappa": [6, 8], "sigma": [6, 8], "tau": [5, 7]}.items():
        before = getattr(board, f"log_{name}")
        voted = np.log(np.isin(np.arange(len(before)), some) / 2.0 + 1e-300)
        setattr(board, f"log_{name}", after(voted, before))
    X = rng.normal(size=(n, d)) * [1.0, 3.0, 0.1]
    return board, X, (X - board.column_centre) / board.column_scale


def test_intervals_of_new_tasks_are_those_of_their_normal_mixture():
    """Targets given all scales, written out; between those at which quantiles are found, too."""
    doubt = 0.1 * (np.eye(4) + 0.3)
    board, X, Z = board_of_new_tasks(50, centre_doubt=doubt)
    of_slopes = np.mean(np.sqrt(board.kappa[[6, 8]])) ** 2
    of_row = of_slopes * np.sum((Z @ board.root) ** 2, axis=1)
    of_row += np.einsum("ni,ij,nj->n", np.c_[np.ones(50), Z], doubt, np.c_[np.ones(50), Z])
    of_row += board.sigma[7] ** 2
    found = board.residuals.quantiles(0.9, board.residuals.of_slopes(X))
    held = [
        norm.cdf(found / (board.unit * np.sqrt(of_row + t**2))) - 0.5 for t in board.tau[[5, 7]]
    ]
    assert_allclose(np.sum(held, axis=0), 0.9, atol=0.005)


def test_intervals_of_new_tasks_know_that_the_mean_is_bounded():
    """Rows that count less, and the end of the range of predictions, are errors of the mean."""
    board, X, _ = board_of_new_tasks(50, scale_variance=np.array([0.1, 0.2]), width=0.5)
    X[0] = board.column_centre + 3.0 * board.safe_scale * np.sign(board.centre[1:])
    X[1:20] *= 100.0
    Z = (X - board.column_centre) / board.column_scale
    slopes = board.in_units(board.centre, board.middle)
    near, limits = board.near_rows(X)
    predicted = np.clip(near @ slopes[0] + slopes[1], *limits)
    assert (predicted == limits[1]).any() and (np.abs(near - X) > 1.0).any()
    mean = board.middle + board.unit * (board.centre[0] + Z @ board.centre[1:])
    of_slopes = np.mean(np.sqrt(board.kappa[[6, 8]])) ** 2
    of_slopes *= np.sum((Z @ board.root) ** 2, axis=1)
    found = board.residuals.of_slopes(X)
    assert_allclose(found, (mean - predicted) ** 2 + board.unit**2 * of_slopes)


def test_intervals_of_new_tasks_hold_far_out_with_a_budget():
    """At twelve scales of a column, where its rows count less."""
    X, y, task, W = wide_slopes()
    old = task < 400
    settings = {"tasks": range(400), "random_state": 0, "unseen_task": "mean"}
    est = PrivateMTL(epsilon=3.0, **settings)
    est.fit(X[old], y[old], task=task[old])
    for far in (0.0, 12.0):
        step = far * np.eye(2)[0]
        low, high = est.predict_interval(X[~old] + step, task=task[~old]).T
        moved = y[~old] + W[task[~old]] @ step
        assert 0.86 < np.mean((low <= moved) & (moved <= high)) < 0.97


def test_intervals_of_new_tasks_far_from_the_others_are_wider():
    """Slopes differ, so that they say more of a target the farther its columns are."""
    rng, m, n = np.random.default_rng(1), 300, 8
    task, place = np.repeat(np.arange(m), n), np.repeat(np.arange(m) % 2, n)
    X = rng.normal(size=(m * n, 2)) + np.where((task >= 200) & (place == 1), 3.0, 0.0)[:, None]
    W = [0.5, -0.5] + 0.7 * rng.normal(size=(m, 2))
    y = (0.5 * rng.normal(size=m))[task] + np.sum(X * W[task], axis=1) + rng.normal(size=m * n)
    est = PrivateMTL(epsilon=None, unseen_task="mean")
    est.fit(X[task < 200], y[task < 200], task=task[task < 200])
    widths = []
    for where in (0, 1):
        some = (task >= 200) & (place == where)
        low, high = est.predict_interval(X[some], task=task[some]).T
        assert 0.86 < np.mean((low <= y[some]) & (y[some] <= high)) < 0.96
        widths.append(np.mean(high - low))
    assert widths[1] > 1.5 * widths[0]
