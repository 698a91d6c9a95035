"""Whatever is given to an estimator, there is an error with a remedy or a finite model."""

import re
import warnings
from importlib.util import find_spec

import hypothesis
import numpy as np
import pytest
from hypothesis import configuration
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.validation import check_is_fitted

from skpmtl import FedMTLClassifier, FedMTLRegressor, PerTask
from skpmtl._runtime.constraints import StrOptions
from tests.helpers.cases import FIRST, TASKS
from tests.helpers.drawn import drawn

ESTIMATORS = {
    **{cls.__name__: case.estimator for cls, case in FIRST.items()},
    "PerTask": PerTask(Ridge()),
    "PerTaskClassifier": PerTask(LogisticRegression()),
    "FedMTLRegressor": FedMTLRegressor(n_rounds=2),
    "FedMTLClassifier": FedMTLClassifier(n_rounds=2),
}
SHORT = {"n_rounds": 2, "inner_steps": 2, "max_iter": 50}  # whatever is left at its default
# What numpy and LAPACK say where the package did not look.
RAW = re.compile(
    r"broadcast|operands|ufunc|singular|converge|cannot reshape|out of bounds|setting an array "
    r"element|unorderable|not supported between|subscriptable|has no attribute|unhashable|"
    r"unexpected keyword|object is not|must be real number|truth value|zero-size|cast",
    re.IGNORECASE,
)
ODD_NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-310, 1e-150, 1e20, 1e150, -1e308]
NOT_FINITE = [np.nan, np.inf, -np.inf]
ODD_IDS = [0, 1, 2, -5, 2**62, "a", "b", "a\0", "", "é", None, 1.0, 1.5, np.nan, True, (1, 2), b"a"]
ODD_TARGETS = [0, 1, 2, -1, 7, "yes", "no", None, True, False, 0.5, np.nan, np.inf, 1e300, b"x"]
ODD_VALUES = [None, True, False, 0, 1, 2, 3, -1, 0.0, 0.5, 1.0, -0.5, 1e-300, 1e308, np.nan, np.inf]
ODD_VALUES += [-np.inf, "auto", "mean", "nonsense", "", b"x", [], [0], {}, {0: 0}, (1, 2), "0.5"]
ODD_VALUES += [("geometric", 2.0), np.float64(0.3), np.int64(2), np.array([1.0, 2.0]), object()]
ODD_VALUES += [range(3), 1 + 2j]


@pytest.fixture(scope="module", autouse=True)
def no_folder_here(tmp_path_factory):
    configuration.set_hypothesis_home_dir(tmp_path_factory.mktemp("hypothesis"))


def of_every_estimator(test):
    """The test of every estimator with a few examples."""
    some = drawn(8, data=st.data())(test)

    @pytest.mark.parametrize("name", ESTIMATORS)
    def run(name):
        some(name)

    return run


# ---------------------------------------------------------------- what is drawn
def arrays(draw, shape, numbers):
    """An array of numbers, most of them normal."""
    seed = draw(st.integers(0, 9))
    out = np.random.default_rng(seed).normal(size=shape)
    flat = out.reshape(-1)
    for _ in range(draw(st.integers(0, 2))):
        if flat.size:
            flat[draw(st.integers(0, flat.size - 1))] = draw(st.sampled_from(numbers))
    return out


def sound(draw, name):
    """Long data that are valid, with numbers that may be large. -> X, y, task"""
    classes = ESTIMATORS[name].__sklearn_tags__().classifier_tags is not None
    n, d = draw(st.integers(2, 5)), draw(st.integers(1, 4))
    task = np.repeat(TASKS, n)
    X = arrays(draw, (len(task), d), ODD_NUMBERS)
    if classes:
        y = np.arange(len(task)) % 2
        y[:2] = 0, 1
    else:
        y = arrays(draw, len(task), ODD_NUMBERS)
    return X, y, task


def spoiled(draw, X, y, task):
    """One or two things that are wrong, or at least unusual."""
    d, n = X.shape[1], len(X)
    args = {"X": X, "y": y, "task": task}
    for _ in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from(KINDS))
        try:
            kind(draw, args, n, d)
        except (TypeError, ValueError, OverflowError, LookupError, AttributeError):
            pass  # what was spoiled before cannot be spoiled so
    return (args["X"], args["y"]) if args["task"] is None else tuple(args.values())


def _not_finite(draw, args, n, d):
    args["X"] = np.array(args["X"], dtype=float)
    args["X"][draw(st.integers(0, n - 1)), 0] = draw(st.sampled_from(NOT_FINITE))


def _dtype(draw, args, n, d):
    kinds = ["f4", "f2", "i8", "u1", "bool", "object", "str", "c16", "M8[s]", "S3", "longdouble"]
    part = draw(st.sampled_from(["X", "y", "task"]))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args[part] = np.asarray(args[part]).astype(draw(st.sampled_from(kinds)))


def _ids(draw, args, n, d):
    ids = draw(st.lists(st.sampled_from(ODD_IDS), min_size=1, max_size=3))
    column = [ids[i % len(ids)] for i in range(n)]
    args["task"] = column if draw(st.booleans()) else np.array(column, dtype=object)


def _targets(draw, args, n, d):
    values = draw(st.lists(st.sampled_from(ODD_TARGETS), min_size=1, max_size=3))
    args["y"] = [values[i % len(values)] for i in range(n)]


def _length(draw, args, n, d):
    part = draw(st.sampled_from(["X", "y", "task"]))
    args[part] = args[part][: draw(st.integers(0, n - 1))]


def _shape(draw, args, n, d):
    part = draw(st.sampled_from(["X", "y", "task"]))
    shape = draw(st.sampled_from([(-1,), (-1, 1), (1, -1), (-1, 1, 1), (2, -1), (n, -1, 1)]))
    args[part] = np.asarray(args[part]).reshape(shape)


def _nothing(draw, args, n, d):
    args[draw(st.sampled_from(["X", "y", "task"]))] = draw(
        st.sampled_from([None, [], "text", 3, object(), {}, np.empty((0, d)), np.empty((n, 0))])
    )


def _sparse(draw, args, n, d):
    forms = [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array, sparse.dok_matrix]
    args["X"] = draw(st.sampled_from(forms))(args["X"])


def _frame(draw, args, n, d):
    import pandas as pd

    names = draw(st.lists(st.sampled_from(["a", "b", "a", 0, None]), min_size=d, max_size=d))
    args["X"] = pd.DataFrame(args["X"], columns=names)


def _list(draw, args, n, d):
    part = draw(st.sampled_from(["X", "y", "task"]))
    args[part] = np.asarray(args[part]).tolist()


def _wide(draw, args, n, d):
    args["y"], args["task"] = np.column_stack([args["y"], args["y"]]), None


def _mapping(draw, args, n, d):
    X, y, task = args.values()
    args["X"] = {t: X[task == t] for t in TASKS}
    args["y"] = {t: y[task == t] for t in draw(st.sampled_from([TASKS, range(3), range(1, 7)]))}
    args["task"] = None


KINDS = [_not_finite, _dtype, _ids, _targets, _length, _shape, _nothing, _sparse, _frame, _list]
KINDS += [_wide, _mapping]


def parameters(draw, est):
    """One to three parameters with values of their kind, or any."""
    left_out = {"verbose", "random_state", "estimator"}
    if find_spec("opendp") is None:
        left_out.add("secure")
    known = sorted(set(est.get_params(deep=False)) - left_out)
    constraints = getattr(est, "_parameter_constraints", {})
    chosen = {}
    for name in draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True)):
        words = [
            word
            for constraint in constraints.get(name, ())
            if isinstance(constraint, StrOptions)
            for word in sorted(constraint.options)
        ]
        some = st.sampled_from(ODD_VALUES)
        chosen[name] = draw(st.one_of(st.sampled_from(words), some) if words else some)
    if chosen.get("secure") is True:
        chosen["random_state"] = None
    return chosen


# ---------------------------------------------------------------- what must come out
def settled(name):
    est = clone(ESTIMATORS[name])
    known = est.get_params(deep=False)
    short = {key: value for key, value in SHORT.items() if key in known}
    return est.set_params(**short, **({"random_state": 0} if "random_state" in known else {}))


def judge(est, args):
    """Fit, and look at the error or at the model."""
    hypothesis.note(f"{est!r}\n{args!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if type(est) in FIRST:  # a warning tells of private rows
            warnings.simplefilter("error", RuntimeWarning)
        try:
            est.fit(*args)
        except (ValueError, TypeError, NotImplementedError) as error:
            assert not type(error).__module__.startswith("numpy"), repr(error)
            assert len(str(error)) > 10 and not RAW.search(str(error)), repr(error)
            with pytest.raises(NotFittedError):
                check_is_fitted(est)
            return
        check_is_fitted(est)
        for attribute in ("coef_", "intercept_", "mean_coef_", "mean_intercept_"):
            value = getattr(est, attribute, None)
            assert value is None or np.isfinite(value).all(), attribute
        X = args[0]
        if not isinstance(X, dict) and len(args) == 3:
            predicted = est.predict(X, args[2])
            assert np.shape(predicted)[0] == len(args[2])


@pytest.mark.spread(8)
@of_every_estimator
def test_odd_input(name, data):
    judge(settled(name), spoiled(data.draw, *sound(data.draw, name)))


@pytest.mark.spread(5)
@of_every_estimator
def test_odd_parameters(name, data):
    est = settled(name)
    est.set_params(**parameters(data.draw, est))
    judge(est, sound(data.draw, name))
