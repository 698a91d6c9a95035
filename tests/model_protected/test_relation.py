"""relation= of model-protected learning: priors about centres from public covariates."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import (
    MPMTLGroupSparse,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    load_billboard,
    save_billboard,
)
from skpmtl.local.prior import LocalModels
from skpmtl.privacy import gdp_mu
from skpmtl.reproduction import PublishedMPMTLLowRank
from skpmtl.tables.table import TaskTable
from tests.helpers import data
from tests.helpers.data import covariates

M, D, N = 120, 6, 8
pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def related(seed=0, m=M):
    return data.related(np.random.default_rng(seed), m, N, D, noise=0.5, level=0.0)


def error(est, W):
    return float(np.sum((est.coef_[: len(W)] - W) ** 2) / np.sum(W**2))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("classification", [False, True])
def test_a_centre_for_every_task_is_one_of_each(classification, several):
    rng, sizes = np.random.default_rng(1), [5, 9, 3]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.normal(size=(ends[-1], 3))
    C = 3 if classification and several else 0
    y = rng.integers(0, 3, len(X)).astype(float) if C else np.sign(rng.normal(size=len(X)))
    shape = (3, C, 3) if C else (3, 3)
    centres, root, kappa = 0.5 * rng.normal(size=shape), np.diag([1.0, 0.5, 0.2]), np.ones(3)
    n_classes = C or 2 * classification
    settings = {"fit_intercept": True}

    def fitted(first, last, centre):
        part = slice(ends[first], ends[last])
        table = TaskTable(
            X[part],
            y[part],
            ends[first : last + 1] - ends[first],
            np.arange(first, last),
            n_classes=n_classes,
        )
        local = LocalModels(table, centre=centre, **settings)
        return local.solve(root, kappa[first:last], tol=1e-10)

    W, b = fitted(0, 3, centres)
    for k in range(3):
        w, intercept = fitted(k, k + 1, centres[k])
        assert_allclose(W[k], w[0], rtol=1e-7, atol=1e-9)
        assert_allclose(b[k], intercept[0], rtol=1e-7, atol=1e-8)


def test_without_a_budget_covariates_are_found():
    X, y, task, Z, B, W = related()
    est = MPMTLLowRank(epsilon=None, relation=covariates(Z)).fit(X, y, task=task)
    assert_allclose(est.relation_coef_, B, atol=0.2)
    alone = MPMTLLowRank(epsilon=None).fit(X, y, task=task)
    assert error(est, W) < 0.7 * error(alone, W)
    assert est.privacy_.guarantee == "none" and not hasattr(est, "relation_noise_std_")
    # The second moment is that of what remains, which is the same in all directions.
    assert np.linalg.eigvalsh(est.billboard_.moment)[-1] < 0.5


@pytest.mark.parametrize("cls", [MPMTLLowRank, MPMTLGroupSparse])
@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_one_joint_budget(cls, adjacency):
    X, y, task, Z, _, _ = related()
    options = {"epsilon": 8.0, "delta": 1e-5, "adjacency": adjacency}
    est = cls(relation=covariates(Z), tasks=range(M), **options).fit(X, y, task=task)
    entries = est.privacy_.releases
    mu = [e["sensitivity"] / e["noise_std"] for e in entries]
    assert np.linalg.norm(mu) == pytest.approx(gdp_mu(8.0, 1e-5), rel=1e-4)
    rounds = [m for e, m in zip(entries, mu, strict=True) if e["name"].startswith(("ro", "le"))]
    assert np.sum(np.square(rounds)) == pytest.approx(0.35 * np.sum(np.square(mu)), rel=1e-4)
    assert len(entries) == len(est.billboard_.releases)
    assert "120 x 3" in est.privacy_.public_inputs["relation"]
    planned = est._planned_report(_population(est))
    assert [e["name"] for e in planned.releases] == [e["name"] for e in entries]


def _population(est):
    from skpmtl.exchange.protocol import Population

    return Population(est.tasks_, D)


def test_covariates_help_under_privacy_and_noise_is_reported():
    X, y, task, Z, B, W = related(2, 400)
    options = {"epsilon": 10.0, "tasks": range(400), "random_state": 0}
    est = MPMTLLowRank(relation=covariates(Z), **options).fit(X, y, task=task)
    assert error(est, W) < 0.8 * error(MPMTLLowRank(**options).fit(X, y, task=task), W)
    assert np.abs(est.relation_coef_ - B).max() < 0.4
    assert est.relation_noise_std_.shape == (3,) and (est.relation_noise_std_ > 0).all()


def test_little_budget_leaves_covariates_aside():
    X, y, task, Z, _, _ = related()
    est = MPMTLLowRank(0.1, epsilon=0.05, relation=covariates(Z), tasks=range(M)).fit(
        X, y, task=task
    )
    assert est.billboard_.centres is None and not hasattr(est, "relation_coef_")
    assert "left aside" in est.privacy_.notes["relation"]
    with pytest.raises(ValueError, match="no relation="):
        est.relate(covariates(Z))


@pytest.mark.parametrize("cls", [MPMTLLowRank, MPMTLLowRankClassifier])
@pytest.mark.parametrize("epsilon", [1e4, None])
def test_tasks_without_rows_are_predicted_from_their_covariates(cls, epsilon):
    """Coefficients and intercepts: those of tasks are 1 + 2 z."""
    X, y, task, Z, _, _ = related(5, M + 2)
    y = y + 1.0 + 2.0 * Z[task, 0]
    old, options = task < M, {"epsilon": epsilon, "unseen_task": "mean", "tasks": range(M)}
    if cls is MPMTLLowRank:
        options |= {"target_range": (-20.0, 30.0)}
    else:
        y, options["classes"] = y > 0, [False, True]
    est = cls(relation=covariates(Z[:M]), **options).fit(X[old], y[old], task=task[old])
    score = est.predict if cls is MPMTLLowRank else est.decision_function
    with pytest.raises(ValueError, match="without covariates in relation="):
        score(X[~old], task=task[~old])
    est.relate(covariates(Z[M:], [M, M + 1]))
    F = np.column_stack([np.ones(2), Z[M:]])[task[~old] - M]
    known = F @ est.relation_intercept_
    if not est.billboard_.centres.own_units:
        known = known + np.sum(X[~old] * (F @ est.relation_coef_), axis=1)
        assert np.corrcoef(known, y[~old])[0, 1] > 0.7
    assert_allclose(score(X[~old], task=task[~old]), known)
    if cls is MPMTLLowRank:
        assert_allclose(est.relation_intercept_, [1.0, 2.0, 0.0], atol=0.4)
    if epsilon:
        mu = [e["sensitivity"] / e["noise_std"] for e in est.privacy_.releases]
        assert mu[-1] ** 2 == pytest.approx(0.1 * np.sum(np.square(mu)), rel=1e-3)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"algorithm": "proximal"}, "belongs to algorithm="),
        ({"mechanism": "wishart"}, "rounds of Gaussian noise"),
        ({"relation": None, "relation_rank": 3}, "relation_rank=3 has no effect without relation="),
        ({"relation": {0: 1.0}}, "without a row in relation="),
    ],
)
def test_what_does_not_go_together(options, message):
    X, y, task, Z, _, _ = related()
    given = {"epsilon": 8.0, "relation": covariates(Z), "tasks": range(M)}
    est = PublishedMPMTLLowRank(**{**given, **options})
    with pytest.raises(ValueError, match=message):
        est.fit(X, y, task=task)
    assert not hasattr(est, "coef_")


def test_a_file_with_ids_of_two_kinds_is_refused(tmp_path):
    """Strings have no place among sorted integers, which `personalize` looks tasks up in."""
    X, y, task, Z, _, _ = related()
    est = MPMTLLowRank(epsilon=None, relation=covariates(Z)).fit(X, y, task=task)
    save_billboard(est, tmp_path / "whole")
    with np.load(tmp_path / "whole") as archive:
        arrays = dict(archive)
    text = arrays.pop("header").tobytes().decode()
    first, mixed = (json.dumps(list(range(M)))[:9], json.dumps(["a", *range(1, M)])[:11])
    assert text.count(first) == 1
    header = np.frombuffer(text.replace(first, mixed).encode(), np.uint8)
    with open(tmp_path / "mixed", "wb") as stream:
        np.savez(stream, header=header, **arrays)
    with pytest.raises(ValueError, match="different integers, or strings"):
        load_billboard(tmp_path / "mixed")
