"""Exact fits against published optima, optimality conditions, closed forms, scikit-learn."""

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skpmtl.model_protected.estimators import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
)
from tests.helpers import plain_reference as plain
from tests.helpers.data import make_rows

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
ESTIMATORS = {
    ("trace", False): MPMTLLowRank,
    ("l21", False): MPMTLGroupSparse,
    ("trace", True): MPMTLLowRankClassifier,
    ("l21", True): MPMTLGroupSparseClassifier,
}
# formula of the reference file -> fit_intercept, task_weight, logistic
FORMULAS = {
    "mean": (True, "equal", False),
    "sum": (False, "samples", False),
    "logit": (True, "equal", True),
}


def exact(penalty, logistic, **parameters):
    return ESTIMATORS[penalty, logistic](epsilon=None, **parameters)


# ------------------------------------------------------------------------ published optima
def reference_rows():
    path = SHARED / "reference_objectives.csv"
    if not path.is_file():
        return []
    with open(path, newline="") as file:
        return [row for row in csv.DictReader(file) if row["penalty"] in ("trace", "l21")]


@pytest.fixture(scope="module")
def problems():
    """name -> (X, y, task) of the shared problem instances, made once."""
    for name in ("make_problems.py", "school.mat"):
        if not (SHARED / name).is_file():
            pytest.skip(f"needs {name} in the folder shared/data beside the checkout")
    spec = importlib.util.spec_from_file_location("make_problems", SHARED / "make_problems.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    made = {}

    def problem(name):
        if name not in made:
            if name == "school":
                made[name] = make.school_view(*make.school(SHARED / "school.mat"))[0]
            else:
                (X, y), _, _ = make.synthetic(name)
                task = np.repeat(np.arange(len(X)), X.shape[1])
                made[name] = X.reshape(-1, X.shape[2]), y.ravel(), task
        return made[name]

    return problem


@pytest.mark.skipif(not reference_rows(), reason="needs shared/data/reference_objectives.csv")
@pytest.mark.parametrize(
    "row", reference_rows(), ids=lambda row: f"{row['problem']}-{row['penalty']}-{row['formula']}"
)
def test_published_optimum(row, problems):
    X, y, task = problems(row["problem"])
    intercept, weight, logistic = FORMULAS[row["formula"]]
    alpha, ridge, optimum = float(row["lam1"]), 2 * float(row["lam2"]), float(row["optimum"])
    for tol, allowed in ((None, 1e-6), (1e-10, 1e-9)):
        model = exact(
            row["penalty"],
            logistic,
            alpha=alpha,
            ridge=ridge,
            fit_intercept=intercept,
            task_weight=weight,
            **({} if tol is None else {"tol": tol}),
        ).fit(X, y, task=task)
        value = plain.objective(
            X,
            y,
            task,
            model.coef_,
            model.intercept_,
            penalty=row["penalty"],
            alpha=alpha,
            ridge=ridge,
            weight=weight,
            logistic=logistic,
        )
        assert abs(value / optimum - 1) <= allowed
        assert model.objective_ == pytest.approx(value, rel=1e-10)


# -------------------------------------------------------------------- optimality elsewhere
def shape_cases():
    X, y, task = make_rows([15] * 8, 4, 4, labels=True)
    yield "plain", X, y, task
    yield "fewer rows than features", *make_rows([4] * 7, 12, 2, labels=True)
    yield "unequal tasks", *make_rows([2, 3, 60, 5, 200, 9], 6, 3, labels=True)
    yield "badly scaled", X * np.array([1e-2, 1.0, 1e2, 10.0]), y, task
    yield "far from zero", X + 30.0, y, task
    yield "duplicated columns", np.hstack([X, X]), y, task
    yield "constant column", np.hstack([X, np.ones((len(X), 1))]), y, task
    yield "column of zeros", np.hstack([X, np.zeros((len(X), 1))]), y, task
    yield "fewer tasks than features", *make_rows([30] * 3, 12, 7, labels=True)
    yield "many features", *make_rows([6] * 4, 140, 7, labels=True)
    yield "one task", *make_rows([30], 5, 8, labels=True)
    yield "one feature", *make_rows([10] * 5, 1, 9, labels=True)


CASES = {name: rest for name, *rest in shape_cases()}


def regression_target(X, task, seed=11):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal(X.shape[1]) + 0.5 * rng.standard_normal((task.max() + 1, X.shape[1]))
    unit = X / np.maximum(np.abs(X).max(axis=0), 1e-9)
    return 3 * np.einsum("ij,ij->i", unit, W[task]) + rng.standard_normal(len(X)) + 5


def largest_alpha(X, y, task, penalty, intercept, **kind):
    zero = np.zeros((task.max() + 1, X.shape[1]))
    logistic = kind.get("logistic", False)
    b = plain.best_intercepts(X, y, task, zero, logistic) if intercept else zero[:, 0]
    return plain.dual_norm(plain.descent(X, y, task, zero, b, **kind)[0], penalty)


def check_optimal(X, y, task, penalty, alpha, intercept, tol, **kind):
    """Fit, and bound the distance to the optimum by numpy alone."""
    model = exact(
        penalty,
        kind["logistic"],
        alpha=alpha,
        ridge=kind["ridge"],
        task_weight=kind["weight"],
        fit_intercept=intercept,
        tol=tol,
    ).fit(X, y, task=task)
    W, b = model.coef_, model.intercept_
    if intercept:
        best = plain.best_intercepts(X, y, task, W, kind["logistic"])
        np.testing.assert_allclose(b, best, rtol=1e-7, atol=1e-7)
    else:
        assert not b.any()
    value = plain.objective(X, y, task, W, b, penalty=penalty, alpha=alpha, **kind)
    assert model.objective_ == pytest.approx(value, rel=1e-9)
    return value, plain.excess_bound(X, y, task, W, b, penalty=penalty, alpha=alpha, **kind)


@pytest.mark.parametrize("logistic", [False, True], ids=["squared", "logistic"])
@pytest.mark.parametrize("penalty", ["trace", "l21"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "intercept, weight, ridge, fractions",
    [(True, "equal", 0.0, (0.98, 0.3, 0.01)), (False, "samples", 0.4, (0.5, 0.02))],
    ids=["intercept", "ridge"],
)
@pytest.mark.spread(16)
def test_optimal_on_other_data(name, penalty, logistic, intercept, weight, ridge, fractions):
    X, y, task = CASES[name]
    if not logistic:
        y = regression_target(X, task)
    kind = {"weight": weight, "ridge": ridge, "logistic": logistic}
    top = largest_alpha(X, y, task, penalty, intercept, **kind)
    for fraction in fractions:
        tight, excess = check_optimal(X, y, task, penalty, fraction * top, intercept, 1e-9, **kind)
        # The plain bound is of first order in the error, with a ridge of second order.
        assert excess <= (2e-4 if ridge == 0 else 1e-6) * tight
        default, _ = check_optimal(X, y, task, penalty, fraction * top, intercept, 1e-6, **kind)
        assert -1e-9 <= default / tight - 1 <= 1e-6


# ---------------------------------------------------------------------------- closed forms
@pytest.mark.parametrize("penalty, logistic", ESTIMATORS)
def test_alpha_max(penalty, logistic):
    X, y, task = make_rows([8, 20, 5], 4, 21, labels=True)
    top = largest_alpha(X, y, task, penalty, True, logistic=logistic)
    zero = exact(penalty, logistic, alpha=1.0001 * top).fit(X, y, task=task)
    assert not zero.coef_.any()
    assert exact(penalty, logistic, alpha=0.99 * top, tol=1e-9).fit(X, y, task=task).coef_.any()


# --------------------------------------------------------------------------- the iteration
@pytest.mark.parametrize("penalty, logistic", ESTIMATORS)
def test_warm_start_along_a_path(penalty, logistic):
    X, y, task = make_rows([25] * 10, 6, 6, labels=True)
    steps = {"cold": 0, "warm": 0}
    warm = exact(penalty, logistic, tol=1e-7, warm_start=True)
    for alpha in np.geomspace(0.1, 0.01, 8):
        cold = exact(penalty, logistic, alpha=alpha, tol=1e-7).fit(X, y, task=task)
        warm.set_params(alpha=alpha).fit(X, y, task=task)
        assert warm.objective_ == pytest.approx(cold.objective_, rel=2e-7)
        steps["cold"] += cold.n_iter_
        steps["warm"] += warm.n_iter_
    assert steps["warm"] < steps["cold"]
    assert warm.fit(X, y, task=task).n_iter_ == 1  # already there
    # Another number of tasks: the old solution is of no use and must not be used.
    fewer = task < 7
    warm.fit(X[fewer], y[fewer], task=task[fewer])
    cold = exact(penalty, logistic, alpha=0.01, tol=1e-7).fit(X[fewer], y[fewer], task=task[fewer])
    assert warm.coef_.shape == (7, 6)
    assert warm.objective_ == pytest.approx(cold.objective_, rel=2e-7)


@pytest.mark.parametrize("penalty, logistic", ESTIMATORS)
def test_too_few_iterations_warn(penalty, logistic):
    X, y, task = make_rows([25] * 5, 6, 6, labels=True)
    with pytest.warns(ConvergenceWarning, match="Raise max_iter or tol") as caught:
        model = exact(penalty, logistic, alpha=0.001, max_iter=3).fit(X, y, task=task)
    assert model.dual_gap_ > 1e-6 * model.objective_
    assert caught[0].filename == __file__
