"""relation= in every family: tasks that come later, and files."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from skpmtl import (
    DPMetaInit,
    DPMetaInitClassifier,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
    load_billboard,
    save_billboard,
)
from skpmtl.exchange.protocol import Population
from skpmtl.model_protected.plan import rounds_of
from skpmtl.rounds.curator import shrinkage
from skpmtl.rounds.plan import common_length
from skpmtl.tables.relation import read_relation
from tests.helpers.data import covariates, related
from tests.helpers.sites import play

M, N, D = 40, 10, 4
pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
ROUNDS = {"epsilon": 50.0, "clip_norm": 1.0, "n_rounds": 5}
EXACT = {"alpha": 0.03, "epsilon": None, "tol": 1e-9}
RANGES = {"epsilon": 1e4, "feature_range": (-3.0, 4.0)}
START = {"coef": [1.0, 0.0, -1.0, 0.0], "intercept": 0.3}
ESTIMATORS = [
    PrivateMeanRegMTL(**ROUNDS),
    PrivateMeanRegMTL(epsilon=1e3, target_range=(-20.0, 30.0), uncertainty=True),
    PrivateMeanRegMTLClassifier(**ROUNDS),
    MPMTLLowRank(epsilon=1e4, target_range=(-20.0, 30.0)),
    MPMTLLowRankClassifier(epsilon=1e4),
    MPMTLLowRank(**EXACT),
    MPMTLLowRank(init=START, **EXACT),
    MPMTLGroupSparseClassifier(**EXACT),
    DPMetaInit(target_range=(-9.0, 13.0), **RANGES),
    DPMetaInitClassifier(**RANGES),
]


@pytest.mark.parametrize("est", ESTIMATORS, ids=repr)
def test_tasks_without_rows_follow_from_their_covariates(est, tmp_path):
    """Those that are listed, those that come later, here and where a file has been read."""
    X, y, task, Z, *_ = related(np.random.default_rng(4), M + 2, N, D, binary=True, level=2.0)
    labels = "Classifier" in type(est).__name__
    y = y > 2.0 if labels else y
    old = task < M
    given = {"tasks": range(M), "unseen_task": "mean", "random_state": 0}
    given |= {"classes": [False, True]} if labels else {}
    est = clone(est).set_params(relation=covariates(Z[:M]), **given)
    listed = clone(est).set_params(relation=covariates(Z), tasks=range(M + 2))
    est.fit(X[old], y[old], task=task[old])
    answer = "decision_function" if labels else "predict"
    with pytest.raises(ValueError, match=r"without covariates in relation=: \[40\].*relate"):
        getattr(est, answer)(X[:2], task=[M, M])
    with pytest.raises(ValueError, match="without covariates in relation="):
        est.personalize(X[~old], y[~old], task=task[~old])
    save_billboard(est, tmp_path / "board.npz")
    later = covariates(Z[M:], [M, M + 1])
    est.relate(later)
    F = np.column_stack([np.ones(2), Z[M:]])
    start = START if est.get_params().get("init") else {"coef": np.zeros(D), "intercept": 0.0}
    intercepts = getattr(est, "relation_intercept_", None)
    if intercepts is None:  # which rounds do not state
        intercepts = est.billboard_.relation.transform @ est.billboard_.mean_intercept[:, 0]
    W, b = F @ est.relation_coef_ + start["coef"], F @ intercepts + start["intercept"]
    which = task[~old] - M
    told = np.einsum("ij,ij->i", X[~old], W[which]) + b[which]
    assert_allclose(getattr(est, answer)(X[~old], task=task[~old]), told)
    # From the file tasks of the fit have their models again, and new ones the same as here.
    there = load_billboard(tmp_path / "board.npz").relate(later)
    assert_allclose(there.relation_coef_, est.relation_coef_)
    there.personalize(X, y, task=task)
    close = {"atol": 1e-2 * np.abs(est.coef_).max()} if est.epsilon is None else {"rtol": 1e-7}
    assert_allclose(there.coef_[:M], est.coef_, **close)  # but for what holds the covariates
    est.personalize(X[~old], y[~old], task=task[~old])
    assert_allclose(there.coef_[M:], est.coef_[M:], rtol=1e-7)
    assert est.coef_.shape == (M + 2, D)
    # Those that were listed without rows.
    if est.epsilon is not None:
        listed.fit(X[old], y[old], task=task[old])
        F = F @ listed.relation_coef_
        assert_allclose(listed.coef_[M:], F, rtol=1e-7)


@pytest.mark.parametrize("cls", [MPMTLLowRank, PrivateMeanRegMTL])
@pytest.mark.parametrize("clear", [True, False])
def test_centres_are_shrunk_by_their_noise_and_by_chance(cls, clear):
    """Recounted from chosen releases; where lengths have no common bin, tasks have their units."""
    rng, m, d = np.random.default_rng(0), 400, 5
    est = cls(epsilon=8.0, relation=covariates(rng.normal(size=(m, 2))), tasks=range(m))
    if cls is PrivateMeanRegMTL:
        est.set_params(levels="free", standard_errors=True)

    def release(query, name, mechanism):
        shape = mechanism.shape if name != "moment" else (d, d)
        if name == "bins":
            return np.where(np.arange(shape[0]) == 20, 0.9 * m * clear, 0.0)
        if name == "moment":
            return np.eye(d) * m / d
        far = np.repeat([0.0, 0.03, 0.3], d).reshape(shape) if name == "update" else 0.0
        return mechanism.noise_std * (rng.normal(size=shape) + far)

    population = Population(np.arange(m), d)
    billboard, queries, replies = play(est, population, release)
    total = [n for reply in replies for n in reply]
    assert len(billboard.releases) == len(total)
    rounds = [k for k, query in enumerate(queries) if query.statistic == "update"]
    assert len(rounds) >= 5 and total.count("update") == len(rounds)
    moves = m * np.array([replies[k]["update"].reshape(3, d) for k in rounds])
    noise = [m * queries[k].mechanisms["update"].noise_std for k in rounds]
    length = None
    if clear:
        plan = queries[0].mechanisms["bins"]
        length = common_length(replies[0]["bins"], plan.noise_std, m)
        assert length > 0
    if cls is MPMTLLowRank:  # bounds that fall once the length is known
        bounds = rounds_of(est, population, 3).bounds(length)
        assert [queries[k].public["clip_norm"] for k in rounds] == bounds
        assert bounds[1] < bounds[0]
    assert [queries[k].public["own_units"] for k in rounds] == [not clear] * len(rounds)
    F = read_relation(est.relation, population.tasks).weights(population.tasks)
    chance = 2.0 * (length or 1.0) ** 2 * np.sum(F**2, axis=0)
    factors, left = shrinkage(moves, moves.sum(axis=0), np.outer(noise, np.ones(3)), chance)
    assert (factors < 0.9999).all() and (factors > 0.3).any()
    centres = billboard.centres
    found = (
        (centres.coef, centres.noise_std) if cls is MPMTLLowRank else (centres, billboard.noise_std)
    )
    assert_allclose(found[0], factors[:, None] * moves.sum(axis=0), rtol=1e-9)
    assert_allclose(found[1], factors * left, rtol=1e-9)
    assert (centres if cls is MPMTLLowRank else billboard).own_units == (not clear)
