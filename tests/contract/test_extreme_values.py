"""Values far out of range in one task: no fit ends with a model that is not finite.

A private fit has neither an error nor a warning for the rows of one task; one without privacy
has an error that says what to do.
"""

import warnings
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skpmtl.privacy.replay import replay
from tests.helpers.data import about_one_model

from ..helpers.public import public

BAD = 3  # the task with the extreme rows
M, N, D = 6, 8, 3
METHODS = {
    "low rank": ("MPMTLLowRank", {}),
    "low rank, mean": ("MPMTLLowRank", {"unseen_task": "mean"}),
    "group sparse": ("MPMTLGroupSparse", {}),
    "mean": ("PrivateMeanRegMTL", {}),
    "mean, shared": ("PrivateMeanRegMTL", {"unseen_task": "mean"}),
    "any": ("PrivateMTL", {}),
    "local only": ("LocalOnly", {}),
    "meta": ("DPMetaInit", {}),
    "meta, sgd": ("DPMetaInit", {"refine": "sgd"}),
    "meta, local": ("DPMetaInit", {"privacy": "local"}),
}
PRIVATE = [name for name in METHODS if name != "local only"]


def make(name, classify, epsilon, **more):
    kind, parameters = METHODS[name]
    parameters = {**parameters, **more}
    if epsilon is not None:
        parameters["tasks"] = range(M)
    if classify:
        parameters["classes"] = [0, 1]
    kind = public(kind + ("Classifier" if classify else ""))
    if name != "local only":
        parameters |= {"epsilon": epsilon, "random_state": 0}
    return kind(**parameters)


def rows_of_tasks(n_features=D):
    return about_one_model(M, N, n_features, own=0.0)


def cell(value):
    def change(X, y, mine):
        X[mine[2], 1] = value

    return change


def target(value):
    def change(X, y, mine):
        y[mine[2]] = value

    return change


def whole(value):
    def change(X, y, mine):
        with np.errstate(over="ignore", under="ignore"):
            X[mine] = np.clip(value * X[mine], -1.7e308, 1.7e308)
            y[mine] = np.clip(value * y[mine], -1.7e308, 1.7e308)

    return change


def constant(X, y, mine):
    y[mine] = y[mine[0]]


def zero(X, y, mine):
    X[mine] = 0.0


def equal_rows(X, y, mine):
    X[mine] = X[mine[0]]


def signs(X, y, mine):
    X[mine] = 1e300
    X[mine[::2]] = -1e300


HARMLESS = {"constant": constant, "zero": zero, "equal rows": equal_rows, "one row": None}
EXTREME = {
    **{f"cell {value:g}": cell(value) for value in (1e155, 1e308, -1e200, 5e-324)},
    **{f"target {value:g}": target(value) for value in (1e155, -1e308, 5e-324)},
    **{f"all {value:g}": whole(value) for value in (1e30, 1e150, 1e300, 1e-160, 1e-310, 5e-324)},
    "signs": signs,
}


def extreme(name, n_features=D, classify=False):
    """-> X, y, task where the rows of one task are changed."""
    X, y, task = rows_of_tasks(n_features)
    mine = np.flatnonzero(task == BAD)
    labels = (y > 0).astype(float)
    if name == "one row":
        keep = np.delete(np.arange(len(y)), mine[1:])
        return X[keep], (labels if classify else y)[keep], task[keep]
    {**HARMLESS, **EXTREME}[name](X, labels if classify else y, mine)
    if classify and not name.startswith("constant"):
        labels = (rows_of_tasks(n_features)[1] > 0).astype(float)
    return X, labels if classify else y, task


def needs_both_classes(name, change, classify):
    return classify and "MPMTL" in METHODS[name][0] and change in ("constant", "one row")


@contextmanager
def strict():
    """Every warning is an error, and so is every flag of the processor in numpy's loops."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="The noise of this fit is reproducible")
        warnings.filterwarnings("ignore", message="The noise of one round is")
        warnings.filterwarnings("ignore", message="Little was found")
        yield


def assert_finite(est, features):
    X, _, task = rows_of_tasks(features)
    assert np.isfinite(est.coef_).all() and np.isfinite(est.intercept_).all()
    sane = task != BAD
    scores = getattr(est, "decision_function", est.predict)(X[sane], task=task[sane])
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("features, classify", [(D, False), (D, True), (12, False)])
@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.spread(4)
def test_private_fits_have_finite_models_and_no_warnings(name, features, classify):
    for change in [*EXTREME, *HARMLESS]:
        if needs_both_classes(name, change, classify):
            continue
        X, y, task = extreme(change, features, classify)
        with strict():
            est = make(name, classify, 1.0).fit(X, y, task=task)
        assert_finite(est, features)
        # The others have what they have without that task, under the same releases.
        sane = task != BAD
        found = est.coef_.copy()
        est.personalize(X[sane], y[sane], task=task[sane])
        assert_allclose(est.coef_, found, rtol=1e-6, atol=1e-9, err_msg=change)


@pytest.mark.parametrize("place", ["row", "targets"])
@pytest.mark.parametrize("options", [{"standard_errors": True}, {"uncertainty": True}])
def test_rows_beyond_the_bound_move_releases_no_more_than_stated(options, place):
    """Products of such rows overflow where nothing bounds them."""
    X, y, task = rows_of_tasks()
    far, mine = (X.copy(), y.copy(), task), np.flatnonzero(task == BAD)
    if place == "row":
        far[0][mine[2]] = 1e308
    else:
        far[1][mine] = 1e308
    est = make("any", False, 1e3, adjacency="zero-out", **options)
    failures, _, (observed, stated), _ = replay(est, (X, y, task), far, 0)
    assert not failures and 0.0 < observed <= stated * (1.0 + 1e-12)
    assert_finite(est.fit(*far), D)


@pytest.mark.parametrize("classify", [False, True])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.spread(3)
def test_fits_without_privacy_are_finite_or_say_what_to_do(name, classify):
    for change in [*EXTREME, *HARMLESS]:
        if needs_both_classes(name, change, classify):
            continue
        X, y, task = extreme(change, classify=classify)
        est = make(name, classify, None)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                warnings.simplefilter("ignore", UserWarning)
                est.fit(X, y, task=task)
        except ValueError as error:
            assert type(error) is ValueError, change  # no LinAlgError
            assert any(w in str(error) for w in ("cale", "iverged", "smaller")), (change, error)
            assert change not in HARMLESS
            assert not hasattr(est, "coef_")
        else:
            assert_finite(est, D)


@pytest.mark.parametrize("epsilon", [None, 1.0])
@pytest.mark.parametrize("classify", [False, True])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.spread(6)
def test_one_task_does_not_fail_the_personalisation_of_all(name, classify, epsilon):
    X, y, task = rows_of_tasks()
    y = (y > 0).astype(float) if classify else y
    est = make(name, classify, epsilon).fit(X, y, task=task)
    alone = est.personalize(X, y, task=task + 100).coef_[M:]
    new = [(X, y, task + 100)]
    for k, change in enumerate(EXTREME):
        X, y, _ = extreme(change, classify=classify)
        new.append((X[task == BAD], y[task == BAD], task[task == BAD] + 200 + k))
    with strict():
        if epsilon is None:
            warnings.simplefilter("ignore", ConvergenceWarning)
        X, y, task = (np.concatenate(parts) for parts in zip(*new, strict=True))
        est.personalize(X, y, task=task)
    assert len(est.coef_) == 2 * M + len(EXTREME)
    assert np.isfinite(est.coef_).all() and np.isfinite(est.intercept_).all()
    assert_allclose(est.coef_[M : 2 * M], alone, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "poisson"},
        {"class_weight": "balanced"},
        {"class_weight": {0: 1e308, 1: 1.0}},
        {"standard_errors": True, "epsilon": 100.0},
    ],
)
@pytest.mark.parametrize("value", [1.7e308, 5e-324])
def test_weights_and_exposures_of_one_task_raise_no_warning(options, value):
    X, y, task = rows_of_tasks()
    weights, classify = np.where(task == BAD, value, 1.0), "class_weight" in options
    if classify or "loss" in options:
        y = (y > 0).astype(float) if classify else np.rint(np.exp(np.clip(y, 0.0, 3.0)))
    est = make("any" if "standard_errors" in options else "mean", classify, 1.0)
    est.set_params(**options)
    with strict():
        est.fit(X, y, task=task, sample_weight=weights)
        est.personalize(X, y, task=task + 100, sample_weight=weights)
    assert np.isfinite(est.coef_).all() and np.isfinite(est.intercept_).all()


HUGE = {"integer of 400 digits": 10**400, "negative one": -(10**400), "integer": 10**30}
if np.finfo(np.longdouble).max > np.finfo(np.float64).max:
    HUGE["long double"] = np.longdouble("1e400")
PLACES = ["array", "list", "frame", "task column", "mapping", "wide", "y", "list of y", "weights"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", HUGE.values(), ids=HUGE)
@pytest.mark.spread(8)
def test_numbers_that_no_float_holds_are_bounded(value, place):
    """As the largest floats are, in every form of input."""
    X, y, task = rows_of_tasks()
    found = []
    for number in (value, np.copysign(1.7e308, np.sign(value)) if abs(value) > 10**300 else 1e30):
        dtype = np.longdouble if isinstance(number, np.longdouble) else object
        rows, targets, weights = X.astype(dtype), y.astype(dtype), np.ones(len(y)).astype(dtype)
        whole = {"y": targets, "list of y": targets, "weights": weights}.get(place, rows[:, 1])
        whole[BAD * N + 2] = abs(number) if place == "weights" else number
        est = make("mean", False, 1.0)
        frame = pd.DataFrame(rows, columns=["a", "b", "c"])
        given = {
            "list": (rows.tolist(), y, task),
            "frame": (frame, y, task),
            "task column": (frame.assign(task=task), y),
            "mapping": [{t: part[task == t] for t in range(M)} for part in (rows, y)],
            "wide": (rows, np.column_stack([y, -y])),
            "list of y": (X, targets.tolist(), task),
            "weights": (X, y, task, weights),
        }.get(place, (rows, targets, task))
        if place == "wide":
            est.set_params(tasks=[0, 1])
        if place == "task column":
            est.set_params(task_feature="task")
        with strict():
            found.append(est.fit(*given).coef_)
    assert np.isfinite(found[0]).all()
    assert_array_equal(*found)


@pytest.mark.parametrize("name", ["low rank", "group sparse", "mean", "any"])
def test_negative_counts_of_one_task_are_zeros_under_a_budget(name):
    X, y, task = rows_of_tasks()
    counts = np.floor(3 * np.exp(y / np.abs(y).max()))
    options = {"loss": "poisson", "tasks": range(M), "random_state": 0}
    est = public(METHODS[name][0])(epsilon=1.0, **options)
    negative, zero = counts.copy(), counts.copy()
    negative[task == BAD], zero[task == BAD] = -2.0, 0.0
    with strict():
        found = [clone(est).fit(X, target, task=task).coef_ for target in (negative, zero)]
    assert_array_equal(*found)
    again = est.fit(X, counts, task=task).personalize(X, negative, task=task)
    assert np.isfinite(again.coef_).all()
    with pytest.raises(ValueError, match="negative numbers"):
        est.set_params(epsilon=None).fit(X, negative, task=task)


@pytest.mark.parametrize("rate", ["inner_learning_rate", "meta_learning_rate"])
def test_meta_rounds_without_noise_that_diverge_are_an_error(rate):
    X, y, task = rows_of_tasks()
    est = make("meta", False, None, tasks_per_round=1, visits=9, **{rate: 5.0})
    with pytest.raises(ValueError, match=f"diverged.*{rate}"):
        est.fit(X, y, task=task)
