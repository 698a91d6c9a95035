"""What does without private names of scikit-learn, on the day on which they are gone."""

import builtins
import importlib.util
import subprocess
import sys
from numbers import Integral, Real

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.model_selection import KFold

from skpmtl._runtime import compat, constraints
from skpmtl._runtime.public import Public

from ..helpers.public import NAMES, public

HIDE = """
import builtins
real = builtins.__import__
def hiding(name, scope=None, local=None, names=(), level=0):
    if (scope or {}).get("__name__", "").endswith("_runtime.compat") and not level:
        if "._" in name or any(each.startswith("_") for each in names or ()):
            raise ImportError(name)
    return real(name, scope, local, names, level)
"""
FIT = """
builtins.__import__ = hiding
import numpy as np
from sklearn.base import BaseEstimator
del BaseEstimator._validate_params
from sklearn.utils import estimator_html_repr
import skpmtl
from skpmtl.datasets import make_low_rank_tasks
X, y, task = make_low_rank_tasks(n_tasks=5, n_samples=8, n_features=3, random_state=0)
est = skpmtl.MPMTLLowRank(epsilon=None, tasks=range(5)).fit(X, y, task=task)
assert np.isfinite(est.coef_).all() and "MPMTLLowRank" in estimator_html_repr(est)
assert not hasattr(est, "set_callbacks")
try:
    est.set_params(alpha="much").fit(X, y, task=task)
except (ValueError, TypeError) as error:
    print(type(error).__module__, error)
"""


@pytest.fixture
def alone(monkeypatch):
    """The module as it is where scikit-learn has none of the private names."""
    scope = {}
    exec(HIDE, scope)
    spec = importlib.util.spec_from_file_location("skpmtl._runtime.compat", compat.__file__)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(builtins, "__import__", scope["hiding"])
    spec.loader.exec_module(module)
    monkeypatch.undo()
    return module


@pytest.mark.slow  # a program of its own
def test_a_fit_without_private_names():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HIDE + FIT], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("skpmtl._runtime.constraints The 'alpha' parameter of MPMTLLow")


ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]


@pytest.mark.parametrize(
    "make",
    [
        np.array,
        sparse.csr_array,
        lambda rows: pd.DataFrame(rows, index=[7, 8, 9]),
        lambda rows: pl.DataFrame(rows, orient="row"),
    ],
    ids=["numpy", "scipy", "pandas", "polars"],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_indexing(alone, make, axis):
    assert alone.safe_indexing.__module__.startswith("skpmtl")
    X = make(ROWS)
    for places in ([2, 0], np.array([1])):
        ours = alone.safe_indexing(X, places, axis=axis)
        theirs = compat.safe_indexing(X, places, axis=axis)
        assert type(ours) is type(theirs)
        for found in (ours, theirs):
            found = found.toarray() if sparse.issparse(found) else np.asarray(found)
            assert_array_equal(found, np.take(ROWS, places, axis=axis))
    assert alone.safe_indexing(["a", "b"], [1, 0]) == ["b", "a"]


VALUES = [
    None,
    True,
    np.True_,
    -1,
    0,
    1,
    2,
    np.int64(3),
    2**32,
    -0.5,
    0.0,
    0.5,
    1.0,
    np.float32(2),
    1e300,
    float("inf"),
    -float("inf"),
    float("nan"),
    "",
    "auto",
    "zero-out",
    b"auto",
    (),
    (1, 2),
    [],
    [0.5],
    {},
    {"a": 1},
    {1},
    np.array(1.0),
    np.ones(2),
    pd.Series([1.0]),
    sparse.csr_array(np.eye(2)),
    np.random.default_rng(0),
    np.random.RandomState(0),
    len,
    int,
    KFold(3),
    iter([]),
    1 + 1j,
]


def declared():
    """Constraints of all estimators and of all that is written, as pairs (name, constraint)."""
    for name in NAMES:
        rules = getattr(public(name), "_parameter_constraints", {})
        for parameter, rule in rules.items():
            for item in [] if rule == "no_validation" else rule:
                yield f"{name}.{parameter}", item
    for name, cls in Public.known.items():
        for key, rule in cls.constraints.items():
            for item in rule:
                yield f"{name}.{key}", item


def ours_of(item):
    if isinstance(item, compat.Interval):
        return constraints.Interval(item.type, item.left, item.right, closed=item.closed)
    return constraints.StrOptions(item.options) if isinstance(item, compat.StrOptions) else item


def test_constraints_are_those_of_scikit_learn():
    seen = 0
    for name, item in declared():
        theirs, ours = compat.make_constraint(item), constraints.make_constraint(ours_of(item))
        seen += 1
        for value in VALUES:
            found = ours.is_satisfied_by(value)
            assert found is bool(theirs.is_satisfied_by(value)), (name, str(ours), value)
        if item != "cv_object":
            assert str(ours) == str(theirs), name
    assert seen > 200


@pytest.mark.parametrize("closed", ["left", "right", "both", "neither"])
@pytest.mark.parametrize("kind", [Integral, Real])
def test_bounds_of_intervals(closed, kind):
    bounds = (0, 2), (None, 2), (0, None)
    for left, right in bounds if kind is Real else bounds[:1]:
        theirs = compat.Interval(kind, left, right, closed=closed)
        ours = ours_of(theirs)
        assert str(ours) == str(theirs)
        for value in VALUES:
            assert ours.is_satisfied_by(value) is bool(theirs.is_satisfied_by(value)), value
