"""A public start in every family: fits are about differences to it, and fall back to it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from skpmtl import (
    DPMetaInit,
    DPMetaInitClassifier,
    MPMTLGroupSparse,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    PrivateMeanRegMTL,
    PrivateMTL,
    PrivateMTLClassifier,
    load_billboard,
    save_billboard,
)
from skpmtl.metrics import task_scores
from tests.helpers.data import rows_of
from tests.helpers.exact_fits import apart, squared_curvature

M, D, LEVEL = 30, 4, 2.0
TASKS = range(M)
COEF = np.array([1.0, -2.0, 0.5, 3.0])
START = {"coef": COEF, "intercept": LEVEL}
SEEDED = {"tasks": TASKS, "random_state": 0}


def rows(seed=0, n=12, of=0, spread=1.0):
    """Models around the start, in one direction but for a tenth; `of` draws other rows of them."""
    rng = np.random.default_rng(seed)
    W = np.outer(rng.normal(size=M), rng.normal(size=D)) + 0.1 * rng.normal(size=(M, D))
    W = COEF + spread * W
    rng = np.random.default_rng([seed, of])
    return rows_of(rng, W, n, noise=0.3, level=LEVEL, scale=1.0 / np.sqrt(D))


# ---------------------------------------------------------------------------- differences
WIDE = {"target_range": (-20.0, 20.0)}
EXACT = {"epsilon": None, "alpha": 0.1, "tol": 1e-11}
STEPS = {"epsilon": 3.0, "inner_steps": 4, "inner_learning_rate": 0.2, "refine": "sgd"}
RANGES = {"target_range": (-3.0, 7.0), "feature_range": (-1.0, 2.0)}  # the middle is the level
DIFFERENCES = [
    PrivateMeanRegMTL(epsilon=None, lam=0.3, ridge=0.2),
    *(
        cls(**options)
        for cls in (MPMTLLowRank, MPMTLGroupSparse)
        for options in (EXACT, {"ridge": 0.1, "outliers": "tasks", **EXACT})
    ),
    *(
        DPMetaInit(privacy=privacy, **ranges, **STEPS)
        for privacy in ("task-global", "local", None)
        for ranges in ({}, RANGES)
    ),
]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
@pytest.mark.parametrize("est", DIFFERENCES, ids=repr)
@pytest.mark.spread(6)
def test_a_start_is_subtracted_from_the_targets(est, form):
    """With the same noise on the same numbers, all that a fit learns is the same."""
    if form is not np.asarray and not est.__sklearn_tags__().input_tags.sparse:
        pytest.skip("takes no sparse rows")
    X, y, task = rows()
    one = clone(est).set_params(init=START, **SEEDED)
    other = clone(est).set_params(**SEEDED)
    middle = 0.0
    if isinstance(est, DPMetaInit) and est.target_range is not None:
        middle = LEVEL  # which the other fit subtracts again
    one.fit(form(X), y, task=task)
    other.fit(form(X), y - X @ COEF - LEVEL + middle, task=task)
    room = 1e-9
    if est.epsilon is None and "tol" in est.get_params() and hasattr(one, "dual_gap_"):
        room = apart(squared_curvature(X, task, one.ridge), one, other)
        assert room < 1e-4
        assert one.objective_ == pytest.approx(other.objective_, rel=2e-11)
    close = {"rtol": 1e-9, "atol": room}
    assert_allclose(one.coef_, other.coef_ + COEF, **close)
    means = max(np.linalg.norm(X[task == k].mean(axis=0)) for k in TASKS)
    close["atol"] *= max(means, 1.0)
    assert_allclose(one.intercept_, other.intercept_ + LEVEL - middle, **close)
    if hasattr(one, "mean_coef_"):
        assert_allclose(one.mean_coef_, other.mean_coef_ + COEF, **close)
    if est.unseen_task == "mean" and isinstance(est, PrivateMeanRegMTL):
        assert one.mean_intercept_ == pytest.approx(other.mean_intercept_ + LEVEL)


@pytest.mark.parametrize(
    "est",
    [
        PrivateMTL(epsilon=30.0, unseen_task="mean", **WIDE),
        MPMTLLowRank(epsilon=30.0),
        MPMTLLowRank(epsilon=30.0, unseen_task="mean"),
        MPMTLLowRank(epsilon=30.0, relation={k: {"size": float(k % 3)} for k in TASKS}),
    ],
    ids=repr,
)
def test_releases_are_those_of_differences(est):
    X, y, task = rows()
    one = clone(est).set_params(init=START, **SEEDED)
    if isinstance(est, PrivateMTL):  # whose range is of targets
        one.set_params(target_range=(-20.0 + LEVEL, 20.0 + LEVEL))
    one.fit(X, y, task=task)
    other = clone(est).set_params(**SEEDED).fit(X, y - X @ COEF - LEVEL, task=task)
    pairs = list(zip(one.billboard_.releases, other.billboard_.releases, strict=True))
    assert len(pairs) > 2
    if isinstance(est, PrivateMTL):
        assert_allclose(one.mean_coef_, other.mean_coef_ + COEF, atol=1e-9)
        assert one.mean_intercept_ == pytest.approx(other.mean_intercept_ + LEVEL)
    last = isinstance(est, MPMTLLowRank) and est.unseen_task == "mean"
    for mine, theirs in pairs[: len(pairs) - last]:
        assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)
    if last:  # of models that were also compared with 0
        assert np.abs(pairs[-1][0] - pairs[-1][1]).max() < 1e-3
        known = one.billboard_.without_rows(np.array([M]))
        assert_array_equal(known[0][0], one.mean_coef_)


# -------------------------------------------------------------------------- falling back
@pytest.mark.parametrize(
    "est",
    [
        PrivateMeanRegMTL(epsilon=0.01),
        PrivateMTL(epsilon=0.01),
        MPMTLLowRank(),
        DPMetaInit(epsilon=1e-3),
    ],
    ids=repr,
)
def test_what_falls_back_falls_back_to_the_start(est, tmp_path):
    """Tasks without rows, where nothing is released or all of it is lost."""
    X, y, task = rows()
    there = task < M - 2
    est = clone(est).set_params(init=START, **SEEDED)
    est.fit(X[there], y[there], task=task[there])
    if isinstance(est, DPMetaInit):
        assert est.billboard_.lost
    elif not isinstance(est, MPMTLLowRank):
        assert est.privacy_.epsilon == 0.0
    assert_array_equal(est.coef_[-2:], [COEF] * 2)
    assert_array_equal(est.intercept_[-2:], [LEVEL] * 2)
    inputs = est.privacy_.public_inputs
    assert inputs["init"] == "public model of 4 coefficients and intercepts"
    assert "init=" in est.privacy_.assumptions[-1]
    save_billboard(est, tmp_path / "board.npz")
    read = load_billboard(tmp_path / "board.npz")
    read.personalize(X[:12], y[:12], task=task[:12])
    assert_allclose(read.coef_[0], est.coef_[0], rtol=1e-9)
    if isinstance(est, DPMetaInit):  # what a single row says of it is little
        one = est.personalize(X[:1], y[:1], task=[M]).coef_[-1]
        assert np.linalg.norm(one - COEF) < 0.2 * np.linalg.norm(COEF)
    est.set_params(init=None).fit(X, y, task=task)
    assert "init" not in est.privacy_.public_inputs


def test_an_initialisation_in_a_range_falls_back_to_its_middle():
    X, y, task = rows()
    est = DPMetaInit(init=COEF, target_range=(-1.0, 5.0), **SEEDED).fit(X, y, task=task)
    assert est.billboard_.public_init.intercept[0] == 2.0


# ------------------------------------------------------------------------ good and bad ones
HELPS = [  # with the classes, and the largest error over that without a start of a good one
    (PrivateMeanRegMTL(epsilon=0.3), 0, 0.9),
    (MPMTLLowRank(epsilon=1.0), 0, 0.97),
    (MPMTLGroupSparse(epsilon=1.0), 0, 0.97),
    (MPMTLLowRankClassifier(epsilon=1.0), 2, 0.97),
    *((PrivateMTLClassifier(epsilon=3.0), n_classes, 0.97) for n_classes in (2, 3)),
    (PrivateMTL(epsilon=1.0), 0, 0.92),
    *((DPMetaInit(epsilon=epsilon), 0, 0.95) for epsilon in (0.1, 3.0)),
    (DPMetaInitClassifier(epsilon=0.1), 2, 0.97),
    (DPMetaInitClassifier(epsilon=3.0, inner_learning_rate=2.0), 2, 0.97),  # columns as they are
]


@pytest.mark.parametrize("est, n_classes, helps", HELPS, ids=repr)
@pytest.mark.spread(6)
def test_a_good_start_helps_and_a_bad_one_is_left(est, n_classes, helps):
    (X, y, task), (A, z, of) = rows(1, spread=0.5), rows(1, 200, of=1, spread=0.5)
    given = dict(SEEDED)
    if n_classes:
        ends = np.quantile(z, np.arange(1, n_classes) / n_classes)
        y, z = np.digitize(y, ends), np.digitize(z, ends)
        given["classes"] = range(n_classes)

    def error(times):
        coef = None if times is None else times * COEF
        if times is not None and n_classes == 3:
            coef = np.stack([-coef, 0.0 * coef, coef])
        fitted = clone(est).set_params(init=coef, **given).fit(X, y, task=task)
        return 1.0 - task_scores(fitted, A, z, task=of)["mean"]

    none, good, bad = map(error, (None, 1.0, -1.0))
    assert good < helps * none and bad < 1.5 * none
