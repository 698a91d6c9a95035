"""Constraints of parameters against those of scikit-learn, which are private there."""

from numbers import Integral, Real

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.model_selection import KFold

from skpmtl._runtime import constraints
from skpmtl._runtime.public import Public

from ..helpers.public import NAMES, public

theirs = pytest.importorskip("sklearn.utils._param_validation")
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


def theirs_of(item):
    if isinstance(item, constraints.Interval):
        return theirs.Interval(item.type, item.left, item.right, closed=item.closed)
    return theirs.StrOptions(item.options) if isinstance(item, constraints.StrOptions) else item


def test_declared_constraints_are_those_of_scikit_learn():
    seen = 0
    for name, item in declared():
        ours, other = constraints.make_constraint(item), theirs.make_constraint(theirs_of(item))
        seen += 1
        for value in VALUES:
            found = ours.is_satisfied_by(value)
            assert found is bool(other.is_satisfied_by(value)), (name, str(ours), value)
        if item != "cv_object":
            assert str(ours) == str(other), name
    assert seen > 200


@pytest.mark.parametrize("closed", ["left", "right", "both", "neither"])
@pytest.mark.parametrize("kind", [Integral, Real])
def test_bounds_of_intervals(closed, kind):
    bounds = (0, 2), (None, 2), (0, None)
    for left, right in bounds if kind is Real else bounds[:1]:
        ours = constraints.Interval(kind, left, right, closed=closed)
        other = theirs_of(ours)
        assert str(ours) == str(other)
        for value in VALUES:
            assert ours.is_satisfied_by(value) is bool(other.is_satisfied_by(value)), value
