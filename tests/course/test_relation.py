"""Centres that follow from public covariates of tasks."""

import numpy as np
import pytest

from skpmtl import MPMTLLowRank, PrivateMeanRegMTL, PrivateMTL
from skpmtl.course.queries import RelationStep
from skpmtl.privacy.mechanisms import ADJACENCIES
from skpmtl.tables.relation import read_relation
from tests.helpers.sites import Sites, drive

M, N, D = 300, 12, 4
pytestmark = [
    pytest.mark.filterwarnings("ignore::skpmtl.privacy.report.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore:relation=:UserWarning"),
]


def related(seed=0):
    rng = np.random.default_rng(seed)
    z, a, B = rng.normal(size=M), rng.normal(size=D), rng.normal(size=D)
    W = a + z[:, None] * B + 0.2 * rng.normal(size=(M, D))
    level = 2.0 + 1.5 * z + 0.3 * rng.normal(size=M)
    task = np.repeat(np.arange(M), N)
    X = rng.normal(size=(M * N, D))
    y = np.einsum("ij,ij->i", X, W[task]) + level[task] + rng.normal(size=M * N)
    return X, y, task, z, np.stack([a, B])


@pytest.mark.parametrize("epsilon, near", [(None, 0.2), (10.0, 0.35)])
def test_coefficients_of_covariates_are_found(epsilon, near):
    X, y, task, z, B = related()
    known = {t: z[t] for t in range(M)} | {1000: 3.0}
    est = PrivateMTL(
        epsilon=epsilon, relation=known, tasks=range(M), random_state=0, unseen_task="mean"
    ).fit(X, y, task=task)
    np.testing.assert_allclose(est.relation_coef_, B, atol=near)
    np.testing.assert_allclose(est.relation_intercept_, [2.0, 1.5], atol=near)
    new = X[:5] @ est.relation_coef_[0] + 3.0 * X[:5] @ est.relation_coef_[1]
    new += est.relation_intercept_ @ [1.0, 3.0]
    np.testing.assert_allclose(est.predict(X[:5], task=np.full(5, 1000)), new)


def one_cell(grid, value):
    """Log weights of a grid with this value alone. -> the nearest value, log weights"""
    nearest = int(np.argmin(np.abs(np.log(grid / value))))
    return grid[nearest], np.where(np.arange(len(grid)) == nearest, 0.0, -1e3)


def test_without_a_budget_coefficients_are_those_of_gls():
    """Of a mixed model of the same variance components and scaled columns."""
    m, rng = 60, np.random.default_rng(5)
    z, task = rng.normal(size=m), np.repeat(np.arange(m), 6)
    X = rng.normal(size=(len(task), 2))
    W = np.array([1.0, -0.5]) + z[:, None] * [0.7, 0.4] + 0.02 * rng.normal(size=(m, 2))
    y = np.einsum("ij,ij->i", X, W[task]) + (1.5 * z + 0.05 * rng.normal(size=m))[task]
    y += 0.05 * rng.normal(size=len(y))
    est = PrivateMTL(epsilon=None, relation={t: z[t] for t in range(m)}, tasks=range(m))
    sites = Sites(est, (X, y, task), [range(m)])
    loop = est._loop(sites.population)
    loop.update(middle=0.0, width=2.0, unit=1.0, scale_variance=np.zeros(2), log_tau=None)
    model = loop.model
    tau, log_tau = one_cell(model.tau, 0.05)
    kappa, log_kappa = one_cell(model.law.kappa, 2 * 0.02**2)
    sigma, log_sigma = one_cell(model.law.sigma, 0.05)
    loop.update(log_tau=log_tau, log_kappa=log_kappa, log_sigma=log_sigma)
    drive(loop.relation(0.0), lambda query, name, _: sites.answer(query)[name])
    rows, scale = np.column_stack([np.ones(m), z]), sites.sites[0][1].models.scale
    info, score = np.zeros((6, 6)), np.zeros(6)
    for t in range(m):
        D = np.column_stack([np.ones(6), X[task == t] / scale[t]])
        V = D @ np.diag([tau**2, kappa / 2, kappa / 2]) @ D.T + sigma**2 * np.eye(6)
        F = np.kron(rows[t], D)
        info += F.T @ np.linalg.solve(V, F)
        score += F.T @ np.linalg.solve(V, y[task == t])
    gls, stds = np.linalg.solve(info, score), np.sqrt(np.diag(np.linalg.inv(info)))
    found = loop.model.relation.transform @ loop.model.related
    found[0] += loop.model.centre
    np.testing.assert_allclose((found.ravel() - gls) / stds, 0.0, atol=0.05)


@pytest.mark.parametrize("cls", [PrivateMTL, PrivateMeanRegMTL, MPMTLLowRank])
def test_covariates_help_where_models_follow_from_them(cls):
    X, y, task, z, _ = related(1)
    seen = np.tile(np.arange(N) < 5, M)
    errors = []
    for relation in (None, {t: z[t] for t in range(M)}):
        est = cls(epsilon=3.0, relation=relation, tasks=range(M), random_state=0)
        est.fit(X[seen], y[seen], task=task[seen])
        errors.append(np.mean((est.predict(X[~seen], task=task[~seen]) - y[~seen]) ** 2))
    assert errors[1] < 0.9 * errors[0]


def test_clusters_are_a_category_among_covariates():
    X, y, task, _, _ = related(2)
    y = y + 4.0 * (task % 2) * X[:, 0]
    est = PrivateMeanRegMTL(
        epsilon=10.0, clusters={t: "ab"[t % 2] for t in range(M)}, tasks=range(M), random_state=0
    ).fit(X, y, task=task)
    assert est.billboard_.relation.names == ["constant", "cluster[b]"]
    assert abs(est.relation_coef_[1, 0] - 4.0) < 0.5


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_what_a_task_sends_of_covariates_is_bounded(adjacency):
    """By the same bound as a step, whatever is sent."""
    relation = read_relation({t: [t, t % 3] for t in range(20)}, np.arange(20), quiet=True)
    weights = relation.weights(np.arange(20))
    assert np.linalg.norm(weights, axis=1).max() <= 1.0 + 1e-9
    question = RelationStep(np.zeros(D + 1), 0.7, 1.0, True, relation.rank)
    sent = 1e6 * np.random.default_rng(0).normal(size=(20, relation.rank * (D + 1)))
    kept = question.bounded(sent)
    lengths = np.linalg.norm(kept, axis=1)
    assert lengths.max() <= question.length * (1 + 1e-9)
    assert lengths.min() > 0.99 * question.length  # and reached
    far = np.linalg.norm(kept - question.bounded(-sent), axis=1).max()
    assert far <= question.spread * (1 + 1e-9)
    assert question.sensitivity(adjacency) == (1.4 if adjacency == "replace-one" else 0.7)
