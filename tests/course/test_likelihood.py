"""Without a budget: variance components of factors above, below and across tasks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from skpmtl import PrivateMTL
from skpmtl.course.billboard import HierarchicalBillboard
from skpmtl.course.likelihood import sure_of
from skpmtl.course.personal import TaskModels
from skpmtl.tables.forms import read_training
from skpmtl.task.priors import SLOPE_RATIO, typical

TABLES = Path(__file__).parents[1] / "mixed_models"


@pytest.mark.parametrize(
    ("table", "task", "factors", "best", "ends"),
    [
        (
            *("pastes", "batch", {"cask": "below"}, [2.90408, 1.28736, 0.82341]),
            [[0.0, 3.28660], [2.15793, 4.10005], [0.65202, 1.08545]],
        ),
        (
            *("penicillin", "plate", {"sample": "across"}, [1.93157, 0.84671, 0.54992]),
            [[0.63410, 1.18492], [1.15149, 4.21433], [0.48584, 0.62944]],
        ),
    ],
)
def test_spreads_are_those_of_lme4(table, task, factors, best, ends):
    """Documentation of lme4: strength ~ 1 + (1 | batch / cask), diameter ~ 1 + (1 | plate) +
    (1 | sample).

    Ends are where the restricted criterion that ``update(fit, devFunOnly=TRUE)`` of lme4 1.1-31
    has, as a function of one spread and least over the others, is 3.841 above its minimum.
    (``confint`` has those of the likelihood without restriction.)
    """
    rows = pd.read_csv(TABLES / f"{table}.csv")
    est = PrivateMTL(epsilon=None, factors=factors, task_feature=task, unseen_task="mean")
    est.fit(rows[[task, *factors]].assign(z=0.0), rows.drop(columns=[task, *factors]).squeeze())
    found = [*(f["spread"] for f in est.factors_.values()), est.level_spread_]
    assert_allclose([*found, est.billboard_.unit * est.billboard_.row_spread], best, rtol=1e-3)
    frame = est.summary().variance_frame().iloc[2:]
    assert_allclose(frame[["lower", "upper"]], ends, rtol=2e-3)
    if table == "penicillin":
        best = [2.18706, -1.01048, 1.93790, -0.09690, -0.01384, -3.00374]
        assert_allclose(est.factors_["sample"]["effects"], best, atol=2e-3)


def test_three_factors_have_the_likelihood_of_a_normal():
    rng, m, n, k = np.random.default_rng(0), 24, 10, 5
    task, item = np.repeat(np.arange(m), n), rng.integers(k, size=m * n)
    cell = task * 3 + rng.integers(3, size=m * n)
    district = np.arange(m) % 6
    y = 30.0 + rng.normal(size=m)[task] + rng.normal(size=6)[district[task]]
    y += (
        0.7 * rng.normal(size=3 * m)[cell] + 0.8 * rng.normal(size=k)[item] + rng.normal(size=m * n)
    )
    rows = pd.DataFrame({"x": 0.0, "task": task, "item": item, "class": cell})
    factors = {"district": "above", "class": "below", "item": "across"}
    est = PrivateMTL(epsilon=None, factors=factors, task_feature="task")
    est.set_params(unseen_task="mean", relation={t: f"d{district[t]}" for t in range(m)}).fit(
        rows, y
    )
    same = [of[:, None] == of for of in (task, district[task], cell, item)]

    def covariance(stds):
        return sum(s * s * one for s, one in zip(stds, same, strict=False)) + stds[
            -1
        ] ** 2 * np.eye(len(y))

    def deviance(logs):
        V = covariance(np.exp(logs))
        one, r = np.linalg.solve(V, np.c_[np.ones(len(y)), y]).T
        rest = y @ r - (one @ y) ** 2 / one.sum()
        return np.linalg.slogdet(V)[1] + np.log(one.sum()) + rest

    best = np.exp(minimize(deviance, np.zeros(5)).x)
    found = [est.level_spread_, *(est.factors_[f]["spread"] for f in ("district", "class", "item"))]
    found.append(est.billboard_.unit * est.billboard_.row_spread)
    assert_allclose(found, best, rtol=2e-3)
    end = np.log(est.summary(0.8).variance_frame()["upper"]["district"])
    free = np.delete(np.log(best), 1)
    above = minimize(lambda free: deviance(np.insert(free, 1, end)), free, tol=1e-3).fun
    above -= deviance(np.log(best))
    assert_allclose(above, 1.64237, rtol=0.02)  # chi squared of one degree of freedom
    V = covariance(best)
    one = np.linalg.solve(V, np.ones(len(y)))
    rest = np.linalg.solve(V, y - one @ y / one.sum())
    for name, of, std in (("district", district[task], best[1]), ("item", item, best[3])):
        effects = std**2 * np.bincount(of, rest)
        assert_allclose(est.factors_[name]["effects"], effects, atol=5e-3)
    sizes = {"kappa": 0.037, "sigma": 1.3, "tau": 0.71, "ratio": 0.22}
    moved = replace(est.billboard_, **sure_of(est.billboard_, **sizes))
    assert all(np.isclose(getattr(moved, name), size).any() for name, size in sizes.items())


def test_a_factor_that_moves_nothing_leaves_the_others():
    """Classes of equal means: spreads are those of one grouping, by the analysis of variance."""
    rng, m, n = np.random.default_rng(0), 12, 4
    e = rng.normal(size=(m, 3, n))
    e -= e.mean(axis=2, keepdims=True)  # classes of a task differ by nothing
    y = 7.0 + 2.0 * rng.normal(size=m)[:, None, None] + e
    rows = pd.DataFrame({"x": 0.0, "task": np.repeat(np.arange(m), 3 * n)})
    rows["class"] = np.tile(np.repeat(list("abc"), n), m)
    est = PrivateMTL(epsilon=None, factors={"class": "below"}, task_feature="task")
    est.fit(rows, y.ravel())
    within = np.sum(e**2) / (m * (3 * n - 1))
    assert est.factors_["class"]["spread"] < 1e-6
    between = y.mean(axis=(1, 2)).var(ddof=1) - within / (3 * n)
    assert_allclose(est.level_spread_, np.sqrt(between), rtol=1e-3)


def test_spreads_and_the_centre_together_are_those_of_a_normal():
    """Few tasks with more columns than rows: the mode, written out, and the mean at it."""
    rng, m, n, d = np.random.default_rng(0), 12, 6, 9
    task, a = np.repeat(np.arange(m), n), rng.normal(size=d)
    X, W = rng.normal(size=(m * n, d)), a + 0.7 * rng.normal(size=(m, d))
    y = 40.0 + rng.normal(size=m)[task] + np.sum(X * W[task], axis=1) + rng.normal(size=m * n)
    board = PrivateMTL("mean", epsilon=None).fit(X, y, task=task).billboard_
    tasks = TaskModels(read_training(PrivateMTL(), X, y, task)[0])
    tasks._place(board)
    F = (X - board.column_centre) / tasks.scale[task]
    F += (tasks.near_mean - tasks.rows[0][0].x_mean)[task]
    v, same = (y - board.middle) / board.unit, task[:, None] == task
    assert (tasks.unit == board.unit).all()

    def covariance(logs):
        sigma, tau, kappa, alpha = np.exp(2.0 * logs)
        own = same * (tau + kappa / d * F @ F.T)
        return sigma * np.eye(m * n) + own + alpha * F @ F.T

    def deviance(logs):
        V, off = covariance(logs), logs[2:] + [0.0, 0.5 * np.log(d)] - logs[0] - SLOPE_RATIO[0]
        one, r = np.linalg.solve(V, np.c_[np.ones(m * n), v]).T
        found = np.linalg.slogdet(V)[1] + np.log(one.sum()) + v @ r - (one @ v) ** 2 / one.sum()
        return found + np.sum((off / SLOPE_RATIO[1]) ** 2)

    logs = minimize(deviance, [-1.0, -1.0, -1.0, -1.0], tol=1e-6).x
    found = [board.middle_sigma, board.middle_tau, np.sqrt(board.middle_kappa)]
    assert_allclose(found, np.exp(logs[:3]), rtol=0.01)
    V = covariance(logs)
    one, r = np.linalg.solve(V, np.c_[np.ones(m * n), v]).T
    slopes = np.exp(2.0 * logs[3]) * F.T @ (r - one * (one @ v) / one.sum())
    assert_allclose(board.centre[1:], slopes, rtol=0.01, atol=0.003)
    prior = np.diag(np.append(0.0, np.full(d, np.exp(-2.0 * logs[3]))))
    G = np.c_[np.ones(m * n), F]
    rest = V - np.exp(2.0 * logs[3]) * F @ F.T
    doubt = np.linalg.inv(G.T @ np.linalg.solve(rest, G) + prior)
    assert_allclose(np.diag(board.centre_doubt), np.diag(doubt), rtol=0.02)


def test_levels_all_alike_leave_new_tasks_their_intervals():
    """Whose spread may be as small as it likes, and is not large for that."""
    rng, task = np.random.default_rng(4), np.repeat(np.arange(30), 8)
    X, W = rng.normal(size=(240, 3)), [1.0, -0.5, 0.25] + 0.3 * rng.normal(size=(30, 3))
    y = 2.0 + np.einsum("ij,ij->i", X, W[task]) + 0.5 * rng.normal(size=240)
    est = PrivateMTL(epsilon=None, unseen_task="mean", uncertainty=True).fit(X, y, task=task)
    assert np.sqrt(np.mean((est.intercept_ - 2.0) ** 2)) < 0.06
    low, high = est.predict_interval(X, task=task + 1000, coverage=0.9).T
    assert 2.0 < np.mean(high - low) < 3.5  # 2.4 of the model that made the rows


def test_weights_of_spreads_follow_their_doubt_without_a_cliff():
    """And stay within an octave or two of the estimate, however large it is."""
    board = HierarchicalBillboard(30, 30.0, np.zeros(3), middle=0.0, width=8.0, unit=1.0)
    doubts = np.geomspace(0.01, 5.0, 400)
    found = [
        typical(sure_of(board, {"tau": doubt}, tau=0.3)["log_tau"], board.law.before_tau(board.tau))
        for doubt in doubts
    ]
    weights = np.exp(found)
    assert np.abs(np.diff(weights, axis=0)).max() < 0.02
    octaves = np.log2(board.tau) - np.log2(board.tau[weights[0].argmax()])
    spread = np.sqrt(weights @ octaves**2)
    assert_allclose(spread[:60], doubts[:60] / np.log(2.0), rtol=0.1)
    assert (np.diff(spread) > 0.0).all() and spread[-1] < 2.0
