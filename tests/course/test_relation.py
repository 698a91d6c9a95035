"""Centres that follow from public covariates of tasks."""

import numpy as np
import pytest

from skpmtl import MPMTLLowRank, PrivateMeanRegMTL, PrivateMTL
from skpmtl.course.queries import RelationStep
from skpmtl.privacy.mechanisms import ADJACENCIES
from skpmtl.tables.relation import read_relation

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
