"""Hidden groups of tasks: bounds, releases, membership, and where they may go."""

import copy
import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logsumexp
from sklearn.base import clone
from sklearn.metrics import log_loss, mean_poisson_deviance

from skpmtl import (
    ClusteredMTL,
    ClusteredMTLClassifier,
    LocalOnly,
    LocalOnlyClassifier,
    PrivateMTL,
    PrivateMTLClassifier,
    load_billboard,
    save_billboard,
)
from skpmtl.engine.billboard import alone
from skpmtl.engine.evidence import Evidence
from skpmtl.engine.groups import (
    IN_GROUPS,
    SPREADS,
    Groups,
    scales,
)
from skpmtl.engine.members import Members
from skpmtl.exchange.wire import pack, unpack
from skpmtl.local.prior import LocalModels, even_root
from skpmtl.privacy.audit import audit
from skpmtl.tables.table import TaskTable

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
M, D, K = 123, 8, 3
TASKS = range(M)


def rows(m=M, n=6, seed=0, of=0):
    """Three groups about their mean, and the group of every task."""
    rng = np.random.default_rng(seed)
    C = 3.0 * np.linalg.qr(rng.normal(size=(D, K)))[0].T
    z = np.arange(m) % K
    own = np.random.default_rng([seed, of])
    W = C[z] + 0.2 * own.normal(size=(m, D)) / math.sqrt(D)
    X, task = own.normal(size=(m * n, D)), np.repeat(np.arange(m), n)
    y = 1.0 + np.einsum("ij,ij->i", X, W[task]) + 0.5 * own.normal(size=m * n)
    return X, y, task, C, z


def fitted(cls=PrivateMTL, data=None, **options):
    X, y, task = rows()[:3] if data is None else data
    options = {"epsilon": 60.0, "tasks": TASKS, "random_state": 0} | options
    if cls is PrivateMTL:
        options = {"structure": "groups"} | options
    return cls(**options).fit(X, y, task=task)


@pytest.fixture(scope="module")
def one():
    return fitted()


# -------------------------------------------------------------------------- sensitivities


# ------------------------------------------------------------------- after a release


# ------------------------------------------------------------------------- the task side
def small(weights=False):
    rng = np.random.default_rng(3)
    sizes = np.array([3, 9, 14, 5])
    X, y = rng.normal(size=(sizes.sum(), 6)), rng.normal(size=sizes.sum())
    w = rng.uniform(0.2, 1.0, size=len(y)) if weights else None
    return TaskTable(X, y, np.append(0, np.cumsum(sizes)), np.arange(4), weights=w)


def test_membership_is_bayes():
    """Posterior shares, models and moments of a mixture, centre by centre and spread by spread."""
    table, rng = small(), np.random.default_rng(5)
    settings = {"fit_intercept": True}
    evidence = Evidence(table, 50, **settings)
    structures = [alone(6)]
    A = rng.normal(size=(6, 2))
    shape = A @ A.T + 0.1 * np.eye(6)
    groups = Groups(
        rng.normal(size=(3, 6)),
        np.array([20.0, 5.0, 12.0]),
        np.array([0.3, 0.4, 0.1, 0.2, 0.0]),
        shape / np.trace(shape),
    )
    W, b, energies, membership = Members(evidence).models(structures, groups)
    logs, models = [], []
    for c, count in zip(groups.centres, groups.counts, strict=True):
        local = LocalModels(table, centre=c, **settings)
        for i, spread in enumerate(groups.spreads[:4]):
            root = np.linalg.cholesky(groups.moment) if SPREADS[i][0] else even_root(6)
            prior = np.column_stack([np.full(4, -np.inf), np.tile(scales(i), (4, 1))])
            found = local.average(root, np.ones(4), prior)
            logs.append(found[0] + math.log(spread * count / 37.0 * IN_GROUPS))
            models.append(found[1])
    lone = evidence.models(structures)[0]
    local = LocalModels(table, **settings)
    logs.append(evidence.likelihood(structures, local) + math.log(1.0 - IN_GROUPS))
    p = np.exp(np.array(logs) - logsumexp(logs, axis=0))
    assert_allclose(membership[:, -1], p[-1], rtol=1e-6, atol=1e-12)
    assert_allclose(
        membership[:, :-1], p[:-1].reshape(3, 4, 4).sum(axis=1).T, rtol=1e-6, atol=1e-12
    )
    wanted = sum(q[:, None] * w for q, w in zip(p, [*models, lone], strict=True))
    assert_allclose(W, wanted, rtol=1e-6, atol=1e-9)
    assert np.isfinite(b).all() and np.isfinite(energies).all()


def test_groups_that_differ_in_levels_alone_are_found():
    """Levels at -3, 0 and 3, at random slopes: a task of 3 rows learns which is its own."""
    rng = np.random.default_rng(7)
    task, z = np.repeat(np.arange(3 * M), 3), np.arange(3 * M) % 3
    X = rng.normal(size=(len(task), 4))
    y = 3.0 * (z[task] - 1.0) + X[:, 0] + rng.normal(size=len(task))
    data, errors = (X, y, task), []
    for structure in ("auto", "groups"):
        est = fitted(data=data, structure=structure, tasks=range(3 * M), epsilon=20.0)
        score = est.predict(np.zeros((3 * M, 4)), task=np.arange(3 * M))
        errors.append(np.mean((score - 3.0 * (z - 1.0)) ** 2))
    assert errors[1] < 0.6 * errors[0]
    own = est.groups_["intercepts"][est.membership_[:, :-1].argmax(axis=1)]
    assert np.mean(np.abs(own - 3.0 * (z - 1.0)) < 1.5) > 0.8


def test_the_posterior_has_the_models_as_its_mean(one):
    est = fitted(uncertainty=True)
    X, y, task = rows()[:3]
    predicted, std = est.predict(X, task=task, return_std=True)
    assert_allclose(predicted, one.predict(X, task=task), rtol=1e-9)
    inside = np.abs(predicted - y) < 1.96 * std
    assert np.isfinite(std).all() and 0.85 < inside.mean() <= 1.0


# --------------------------------------------------------------------------------- fits
def test_groups_are_found_and_named_by_their_tasks(one):
    _, _, _, C, z = rows()
    centres, counts = one.groups_["centres"], one.groups_["counts"]
    distance = np.linalg.norm(centres[:, None] - C, axis=2)
    heavy = counts > 0.1 * M
    assert heavy.sum() >= K and set(distance[heavy].argmin(axis=1)) == set(range(K))
    assert distance[heavy].min(axis=1).max() < 1.0  # centres are 3 sqrt(2) apart
    assert one.membership_.shape == (M, len(counts) + 1)
    assert_allclose(one.membership_.sum(axis=1), 1.0)
    likeliest = distance.argmin(axis=1)[one.membership_[:, :-1].argmax(axis=1)]
    assert np.mean(likeliest == z) > 0.95
    assert one.privacy_.notes["groups"] == f"{len(counts)} found"
    X, y, task = rows(of=1)[:3]
    usual = fitted(structure="auto")
    new = [est.personalize(X, y, task=task + M) for est in (copy.deepcopy(one), usual)]
    X, y, task = rows(of=2)[:3]
    assert np.isfinite(new[0].coef_).all() and new[0].membership_.shape[0] == 2 * M


def test_a_new_task_finds_its_group_from_the_billboard(one, tmp_path):
    X, y, task = rows(of=0)[:3]
    mine = task < 4
    for path in ("pickle", "file", "wire"):
        if path == "pickle":
            est = pickle.loads(pickle.dumps(one))
        elif path == "file":
            save_billboard(one, tmp_path / "groups.npz")
            est = load_billboard(tmp_path / "groups.npz")
        else:
            est = PrivateMTL.from_billboard(unpack(*pack(one.billboard_)), n_features=D)
        est.personalize(X[mine], y[mine], task=task[mine])
        assert_allclose(est.coef_[:4], one.coef_[:4], rtol=1e-9)
        assert_allclose(est.membership_[:4], one.membership_[:4], rtol=1e-9)
    assert_array_equal(est.groups_["counts"], one.groups_["counts"])


def test_membership_is_in_nothing_that_is_published(one, tmp_path):
    text, arrays = pack(one.billboard_)
    assert "membership" not in text and not any("membership" in name for name in arrays)
    assert all(np.shape(array)[:1] != (M,) for array in arrays.values())
    save_billboard(one, tmp_path / "groups.npz")
    with np.load(tmp_path / "groups.npz") as archive:
        assert b"membership" not in archive["header"].tobytes()
        assert not any("membership" in name for name in archive)


@pytest.mark.parametrize(
    "change",
    [
        {"counts": np.ones(2)},
        {"centres": np.zeros((3, D + 1))},
        {"spreads": np.ones(5)},
        {"spreads": np.array([2.0, -1.0, 0.0, 0.0, 0.0])},
        {"levels": np.zeros(9)},
        {"level_spread": None},
        {"level_spread": -1.0},
        {"moment": np.eye(D + 1)},
        {"levels_alone": True, "levels": None, "level_spread": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_crafted_groups_are_refused(change, one):
    billboard = copy.deepcopy(one.billboard_)
    vars(billboard.groups).update(change)
    with pytest.raises(ValueError):
        unpack(*pack(billboard))


# ----------------------------------------------------------------- where they are not looked for
@pytest.mark.parametrize(
    "options, why",
    [
        ({"epsilon": 1.0}, "too few tasks for the budget"),
        ({"levels": "free"}, "levels are not pooled"),
        ({"fit_intercept": False}, "levels are not pooled"),
    ],
    ids=["budget", "levels", "intercept"],
)
def test_the_usual_course_goes_on_and_says_why(options, why):
    """Below the public gate the fit is that of the usual course, number for number."""
    est, usual = fitted(**options), fitted(structure="auto", **options)
    assert est.privacy_.notes["groups"] == f"not looked for: {why}"
    assert_array_equal(est.coef_, usual.coef_)
    assert len(est.groups_["counts"]) == 0 and est.groups_["centres"].shape == (0, D)
    assert_array_equal(est.membership_, np.ones((M, 1)))


def test_one_mean_is_no_groups():
    rng = np.random.default_rng(6)
    X, task = rng.normal(size=(M * 12, D)), np.repeat(np.arange(M), 12)
    y = X @ np.arange(1.0, D + 1) + 0.3 * rng.normal(size=len(task))
    est = fitted(data=(X, y, task))
    assert len(est.groups_["counts"]) == 0
    assert "none" in est.privacy_.notes["groups"] or "no direction" in est.privacy_.notes["groups"]


# ------------------------------------------------------------------------- ClusteredMTL
def test_clustered_is_the_same_course_with_a_number_of_groups(one):
    auto = fitted(ClusteredMTL, n_clusters="auto")
    assert_array_equal(auto.coef_, one.coef_)
    three = fitted(ClusteredMTL, n_clusters=K)
    assert len(three.groups_["counts"]) == K
    assert np.mean(three.membership_.max(axis=1) > 0.9) > 0.9
    with pytest.raises(AttributeError, match="membership_"):
        _ = three.cluster_matrix_
    exact = ClusteredMTL(K, alpha=1.0, tasks=TASKS, epsilon=None).fit(*rows()[:2], task=rows()[2])
    assert not hasattr(exact, "groups_") and exact.cluster_matrix_.shape == (M, M)


def test_evidence_beats_the_best_strength_of_few_rows():
    """Three groups, 8 tasks each, 5 rows of 8 features: no one strength fits centres and tasks."""
    X, y, task, C, z = rows(m=24, n=5, seed=1)
    W = C[z]  # but for a spread of .2

    def error(est):
        return np.sum((est.fit(X, y, task=task).coef_ - W) ** 2)

    exact = [
        error(ClusteredMTL(K, alpha=a, ridge=r, epsilon=None))
        for a in (0.1, 1.0)
        for r in (0.003, 0.03)
    ]
    auto = ClusteredMTL(K, epsilon=None)
    assert error(auto) < 0.5 * min(exact)
    assert np.linalg.norm(auto.groups_["counts"] - 8.0) < 1.0
    assert auto.privacy_.epsilon is None or np.isinf(auto.privacy_.epsilon)


# ------------------------------------------------------------------- who else runs a fit


@pytest.mark.parametrize(
    "adjacency", ["replace-one", pytest.param("zero-out", marks=pytest.mark.slow)]
)
def test_a_replay_finds_nothing_but_releases(adjacency):
    X, y, task = rows()[:3]
    other = X.copy(), y.copy(), task
    other[0][task == 3], other[1][task == 3] = 20.0 * X[task == 3], 500.0
    est = PrivateMTL("groups", epsilon=60.0, tasks=TASKS, adjacency=adjacency)
    result = audit(est, (X, y, task), other, replay=True, n_draws=0)
    assert result.passed, str(result)
    est.set_params(random_state=0).fit(X, y, task=task)
    words = " ".join(entry["statistic"] for entry in est.privacy_.releases)
    for statistic in (
        "sizes of models in the span",
        "cells of a public net",
        "number of groups",
        "spread about groups",
        "about the centres",
        "step of",
    ):
        assert statistic in words


# ------------------------------------------------------------------- classes and counts
def scored(loss, of=0):
    """Three groups of classes, or of counts, in which rows of 8 numbers say which is a task's."""
    rng = np.random.default_rng([5, of])
    C, z = np.eye(D)[:K], np.arange(M) % K
    X, task = rng.normal(size=(M * 12, D)), np.repeat(np.arange(M), 12)
    if loss == "poisson":
        return X, rng.poisson(np.exp(1.0 + 0.9 * np.einsum("ij,ij->i", X, C[z][task]))), task, z
    p = expit(4.0 * np.einsum("ij,ij->i", X, C[z][task]))
    return X, (rng.uniform(size=len(p)) < p).astype(int), task, z


@pytest.fixture(scope="module")
def scored_fits():
    classes = {"epsilon": 200.0, "tasks": TASKS, "random_state": 0}
    return {
        "classes": PrivateMTLClassifier("groups", classes=[0, 1], **classes),
        "poisson": PrivateMTL("groups", loss="poisson", **classes),
    }


@pytest.mark.parametrize("loss", ["classes", "poisson"])
def test_groups_of_classes_and_of_counts_are_found(loss, scored_fits):
    X, y, task, z = scored(loss)
    est = scored_fits[loss].fit(X, y, task=task)
    usual = clone(est).set_params(structure="auto").fit(X, y, task=task)
    far = np.abs(est.groups_["centres"][:, :K]).argmax(axis=1)
    assert np.mean(far[est.membership_[:, :-1].argmax(axis=1)] == z) > 0.9
    X, y, task, _ = scored(loss, of=1)

    def deviance(est):
        if loss == "classes":
            return log_loss(y, est.predict_proba(X, task=task))
        return mean_poisson_deviance(y, est.predict(X, task=task))

    assert deviance(est) < 0.95 * deviance(usual)
    part = scored(loss, of=1)
    new = copy.deepcopy(est).personalize(*part[:2], task=part[2] + M)
    assert np.mean(far[new.membership_[M:, :-1].argmax(axis=1)] == z) > 0.9


@pytest.mark.parametrize("alpha", ["auto", 1.0])
@pytest.mark.parametrize("loss", ["poisson", "classes"])
def test_clustered_counts_and_classes_beat_tasks_alone(alpha, loss):
    """By evidence, and by the objective."""
    (X, y, task, _), new = scored(loss), scored(loss, of=1)
    if loss == "poisson":
        est, lone = ClusteredMTL(loss=loss, epsilon=None), LocalOnly(loss=loss, tasks=TASKS)
    else:
        est, lone = (
            ClusteredMTLClassifier(epsilon=None),
            LocalOnlyClassifier(tasks=TASKS, classes=[0, 1]),
        )
    est.set_params(n_clusters=K, alpha=alpha, ridge=0.3 if loss == "poisson" else 0.03)
    errors = [1.0 - one.fit(X, y, task=task).score(*new[:2], task=new[2]) for one in (est, lone)]
    assert errors[0] < 0.9 * errors[1]
