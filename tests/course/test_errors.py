"""Standard errors of common slopes: bounds of what is sent, and that the errors hold."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.accuracy.standard_errors import SCENES
from benchmarks.accuracy.standard_errors import table as scene_table
from skpmtl import PrivateMTL
from skpmtl.course.billboard import HierarchicalBillboard, models_of
from skpmtl.course.errors import OF_ROWS, ROUNDS, Errors, effects
from skpmtl.course.plan import ERRORS
from skpmtl.tables.forms import read_training


def asked(d, **given):
    return Errors(np.zeros(d + 1), np.ones(d + 1), np.eye(d + 1), 1.0, 1.0, 1.0, **given)


def test_shares_of_all_rounds_are_those_of_the_plan():
    assert OF_ROWS + sum(sum(shares.values()) for shares in ROUNDS) == pytest.approx(ERRORS)


def table(m, seed, n=10):
    """Noise that follows itself within tasks, which differ in how much there is of it."""
    rng = np.random.default_rng(seed)
    task, a = np.repeat(np.arange(m), n), np.array([1.0, 0.0, -0.5])
    X = rng.normal(size=(m * n, 3)) + 0.5 * rng.normal(size=(m, 3))[task]
    e = rng.normal(size=(m, n))
    for i in range(1, n):
        e[:, i] = 0.6 * e[:, i - 1] + 0.8 * e[:, i]
    e *= np.exp(0.5 * rng.normal(size=(m, 1)))
    W = a + 0.3 * rng.normal(size=(m, 3))
    level = 20.0 + 2.0 * rng.exponential(size=m)[task]
    return (X, level + np.einsum("ij,ij->i", X, W[task]) + e.ravel(), task), a


@pytest.mark.parametrize("m, epsilon, times", [(60, None, 6), (800, 5.0, 3)])
def test_errors_hold_for_rows_that_depend_on_each_other(m, epsilon, times):
    """Nine in ten intervals, within three standard deviations of such a count."""
    inside, made = [], 0
    for seed in range(times):
        data, a = table(m, seed)
        est = PrivateMTL(epsilon=epsilon, tasks=range(m), random_state=seed, standard_errors=True)
        est.fit(*data)
        if hasattr(est, "effect_std_"):
            made += 1
            inside.append(np.abs(est.effect_coef_ - a) < 1.645 * est.effect_std_)
    assert made > 0.7 * times
    assert abs(np.mean(inside) - 0.9) < 3 * np.sqrt(0.09 / (3 * made))


def test_below_the_noise_there_are_none():
    data, _ = table(100, 0)
    est = PrivateMTL(epsilon=1.0, tasks=range(100), random_state=0, standard_errors=True).fit(*data)
    assert not hasattr(est, "effect_std_")


def test_errors_and_spreads_have_the_unit_of_the_target():
    """Between powers of two, too, where votes on the noise of rows are others."""
    (X, y, task), _ = table(80, 0)
    one, *others = (
        PrivateMTL(epsilon=None, standard_errors=True).fit(X, unit * y, task=task)
        for unit in (1.0, 64.0, 1.41)
    )
    spreads = one.summary(0.9).variance_frame()[["std", "lower", "upper"]]
    for unit, other, part in zip((64.0, 1.41), others, (1e-8, 0.02), strict=True):
        away = np.abs(other.effect_coef_ - unit * one.effect_coef_) / other.effect_std_
        assert away.max() < part
        np.testing.assert_allclose(other.effect_std_, unit * one.effect_std_, rtol=part)
        found = other.summary(0.9).variance_frame()[["std", "lower", "upper"]]
        np.testing.assert_allclose(found, unit * spreads, rtol=part, atol=part * unit)


def test_spreads_of_slopes_have_the_unit_of_their_column():
    (X, y, task), _ = table(80, 0)
    unit, est = np.array([8.0, 1.0, 0.25]), PrivateMTL(epsilon=None)
    one, other = (
        est.fit(rows, y, task=task).summary().variance_frame().loc[["x0", "x1", "x2"], "std"]
        for rows in (X, unit * X)
    )
    np.testing.assert_allclose(unit * other, one, rtol=1e-6)


def test_a_public_start_moves_effects_and_no_errors():
    (X, y, task), _ = table(200, 0)
    start = {"coef": [1.0, 2.0, 0.0], "intercept": 0.25}
    given = {"epsilon": 30.0, "tasks": range(200), "standard_errors": True, "random_state": 0}
    one = PrivateMTL(**given).fit(X, y, task=task)
    moved = PrivateMTL(init=start, **given).fit(X, y + X @ start["coef"] + 0.25, task=task)
    np.testing.assert_allclose(moved.effect_std_, one.effect_std_, rtol=1e-6)
    np.testing.assert_allclose(moved.effect_coef_ - one.effect_coef_, start["coef"], atol=1e-6)
    names = [entry["name"] for entry in one.privacy_.releases]
    assert names.count("errors") == sum(map(len, ROUNDS)) and len(names) == len(
        one.billboard_.releases
    )


def test_without_a_budget_they_are_least_squares_and_cr2(monkeypatch):
    """Written out with matrices of all rows; slopes are normal in released scales of columns."""
    questions = []

    def asked_last(model, question, *sums):
        questions.append(question)
        return effects(model, question, *sums)

    monkeypatch.setattr("skpmtl.course.errors.effects", asked_last)
    (X, y, task), _ = table(30, 1)
    X, y, task = X[7:] * [1.0, 20.0, 0.1] + 3.0, y[7:], task[7:]  # tasks of different lengths
    est = PrivateMTL(epsilon=None, standard_errors=True).fit(X, y, task=task)
    board = est.billboard_
    (q,) = questions
    squares = []  # of the rows of tasks about their own least squares
    for t in range(30):
        F = np.c_[X, np.ones(len(X))][task == t]
        if len(F) > 4:
            rest = y[task == t] - F @ np.linalg.lstsq(F, y[task == t])[0]
            squares.append((rest @ rest, len(F) - 4.0))
    squares = np.array(squares)
    dof = squares[:, 1].sum() + 1.0
    variance = (squares[:, 0].sum() + (board.unit * board.middle_sigma) ** 2) / dof
    error = np.linalg.norm(squares @ [1.0, -variance]) / dof
    assert error > variance * np.sqrt(2.0 / dof)  # tasks differ in their noise
    np.testing.assert_allclose(board.row_variance, [variance, error], rtol=1e-9)
    assert board.unit * q.sigma == pytest.approx(np.sqrt(variance))
    Z, full = (X - board.column_centre) / board.column_scale, np.c_[X, np.ones(len(X))]
    H, own = 0.0, []
    for t in range(30):
        Zt, Ft, yt = Z[task == t], full[task == t], y[task == t]
        V = (
            q.sigma**2 * np.eye(len(Zt))
            + q.tau**2
            + q.kappa * Zt @ board.root @ board.root.T @ Zt.T
        )
        W = np.linalg.inv(board.unit**2 * V)
        own.append((Ft.T @ W @ Ft, Ft.T @ W @ yt))
        H = H + own[-1][0]
    expected = np.linalg.solve(H, sum(right for _, right in own))
    values, vectors = np.linalg.eigh(H)
    root = vectors / np.sqrt(values) @ vectors.T  # in these coordinates H is the identity
    meat = 0.0
    for info, right in own:
        left = np.eye(4) - root @ info @ root
        values, vectors = np.linalg.eigh(left)
        s = vectors / np.sqrt(values) @ vectors.T @ root @ (right - info @ expected)
        meat = meat + np.outer(s, s)
    np.testing.assert_allclose(
        np.append(est.effect_coef_, est.effect_intercept_), expected, rtol=1e-6
    )
    np.testing.assert_allclose(est.effect_covariance_, root @ meat @ root, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(est.effect_std_**2, np.diag(est.effect_covariance_)[:-1])
    np.testing.assert_array_equal(est.effect_dof_, 26.0)


@pytest.mark.parametrize("column", ["zeros", "constant", "twice"])
def test_effects_that_others_determine_have_no_errors(column):
    """Others have those of a fit without the column, but for weights of tasks: slopes of all
    columns have one size."""
    (X, y, task), _ = table(40, 2)
    more = {"zeros": 0.0 * X[:, 0], "constant": 0.0 * X[:, 0] + 3.0, "twice": X[:, 0]}[column]
    est = PrivateMTL(epsilon=None, standard_errors=True)
    plain = est.fit(X, y, task=task).summary().effects_frame()
    summary = est.fit(np.c_[X, more], y, task=task).summary()
    untold = {"zeros": ["x3"], "constant": ["x3", "intercept"], "twice": ["x0", "x3"]}[column]
    frame = summary.effects_frame()
    assert frame.index[frame["std_error"].isna()].tolist() == untold
    assert f"none of {', '.join(untold)}" in summary.errors
    assert summary.variance_frame().loc[untold, "std"].isna().all()
    told = plain.index.difference(untold)
    away = (frame["effect"] - plain["effect"]) / plain["std_error"]
    assert away[told].abs().max() < 0.2
    np.testing.assert_allclose(frame["std_error"][told], plain["std_error"][told], rtol=0.1)


def test_errors_are_released_where_columns_are_correlated():
    """At .9, one direction of the columns has a thirtieth of the information of another."""
    (X, y, task), _ = table(800, 0)
    rng = np.random.default_rng(5)
    own = y - X @ [1.0, 0.0, -0.5]
    X = np.sqrt(0.1) * X + np.sqrt(0.9) * rng.normal(size=(len(X), 1))
    y = own + X @ [1.0, 0.0, -0.5]
    known = {"tasks": range(800), "standard_errors": True, "random_state": 0}
    exact, private = (
        PrivateMTL(epsilon=epsilon, **known).fit(X, y, task=task) for epsilon in (None, 5.0)
    )
    assert (private.effect_std_ > exact.effect_std_).all()
    assert (private.effect_std_ < 4.0 * exact.effect_std_).all()


def sums_of(d, information, noise):
    square = {"square": np.zeros((d + 1, d + 1)), "information": information * np.eye(d + 1)}
    return {**square, "score": noise}


def test_noise_of_sums_is_part_of_the_errors():
    """Of sums that are nothing but noise; and there are none where it hides the information."""
    d, rng = 2, np.random.default_rng(0)
    question = asked(d, longest=2.0)
    known = {"middle": 0.0, "width": 2.0, "unit": 1.0}
    model = HierarchicalBillboard(500, 500.0, np.zeros(d + 1), **known)
    noise = {"score": 3.0, "square": 0.0, "information": 0.5}
    found = [
        effects(model, question, sums_of(d, 100.0, 3.0 * rng.normal(size=d + 1)), noise)
        for _ in range(400)
    ]
    estimates = np.array([one["effects"] for one in found])
    stds = np.sqrt([np.diag(one["effect_covariance"]) for one in found])
    np.testing.assert_allclose(estimates.std(axis=0), 6.0 / 100.0, rtol=0.15)
    np.testing.assert_allclose(stds.mean(axis=0), 6.0 / 100.0, rtol=0.05)
    hidden = sums_of(d, 2.0, np.zeros(d + 1))
    assert not effects(model, question, hidden, noise)
    assert effects(model, question, hidden, {**noise, "information": 0.1})
    # Noise of the squares takes degrees of freedom, and then the errors.
    dof = [
        one["effect_dof"].min() if one else 0.0
        for one in (
            effects(model, question, sums_of(d, 100.0, np.zeros(d + 1)), {**noise, "square": at})
            for at in (0.0, 3.0, 300.0)
        )
    ]
    assert dof[0] == pytest.approx(497.0) and dof[0] > dof[1] > dof[2] == 0.0


def test_a_skewed_tail_is_kept_where_clipping_would_take_it():
    """Scores of exponential levels: what is sent has their sum, within three errors of it."""
    m = 4000
    task = np.arange(m).repeat(2)
    level = np.random.default_rng(3).exponential(size=m) - 1.0
    y = level[task] + 0.1 * np.tile([-1.0, 1.0], m)
    X = np.tile([-1.0, 1.0], m)[:, None]
    est = PrivateMTL(epsilon=None).fit(X, y, task=task)
    board = est.billboard_
    tasks = models_of(read_training(est, X, y, task)[0], None)
    one = replace(asked(1), deviations=np.array([1.0, 1e-4]) / board.unit, tau=1.0 / board.unit)
    raw = replace(one, longest=1e9, largest=1e9).answer(tasks, board)[:, 0] * 1e9
    for longest in (3.5, 4.5):
        question = replace(one, longest=longest, largest=1e9)
        sent = question.answer(tasks, board)[:, 0] * longest
        tail = raw > longest - 1.0
        assert 20 < tail.sum() and sent.max() <= longest * (1.0 + 1e-12)
        np.testing.assert_allclose(sent[~tail], raw[~tail], rtol=1e-9)
        assert abs((sent - raw).sum()) < 3.0 * np.sqrt(tail.sum())
        assert (raw - longest)[raw > longest].sum() > 3.0 * np.sqrt(tail.sum()) or longest > 4.0


@pytest.mark.parametrize("epsilon, m, bound", [(None, 400, 0.15), (10.0, 1000, 0.25)])
def test_variance_components_are_those_that_were_drawn(epsilon, m, bound):
    """In a scene whose votes have slopes at half of their spread; medians of three draws."""
    found = []
    for seed in range(3):
        X, y, task = scene_table(SCENES[0], m, seed)
        est = PrivateMTL(epsilon=epsilon, tasks=range(m), standard_errors=True, random_state=seed)
        frame = est.fit(X, y, task=task).summary(0.9).variance_frame()
        assert (frame["lower"] <= frame["std"]).all() and (frame["std"] <= frame["upper"]).all()
        slopes = np.sqrt(frame.loc[["x0", "x1", "x2"], "variance"].mean())
        found.append([frame.loc["intercept", "std"], slopes, frame.loc["residual", "std"]])
    np.testing.assert_allclose(np.median(found, axis=0), [2.0, 0.3, 1.0], rtol=bound)
