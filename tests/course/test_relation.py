"""Centres that follow from public covariates of tasks."""

import numpy as np
import pytest
from sklearn.base import clone

from skpmtl import (
    MPMTLLowRank,
    PrivateMeanRegMTL,
    PrivateMTL,
    load_billboard,
    save_billboard,
)
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


# ------------------------------------------------------------------------- little or no signal
@pytest.mark.parametrize("epsilon", [0.01, 0.03])
def test_budgets_without_steps_leave_covariates_aside(epsilon, tmp_path):
    """The fit is the one without covariates, and tasks that come later have no other model."""
    X, y, task, z, _ = related()
    est = PrivateMTL(
        epsilon=epsilon,
        relation={t: z[t] for t in range(M)},
        tasks=range(M),
        random_state=0,
        unseen_task="mean",
        target_range=(-30.0, 40.0),
    ).fit(X, y, task=task)
    assert not {"step", "relation"} & {entry["name"] for entry in est.privacy_.releases}
    assert not est.relation_coef_.any()
    plain = clone(est).set_params(relation=None).fit(X, y, task=task)
    np.testing.assert_array_equal(est.coef_, plain.coef_)
    save_billboard(est, tmp_path / "board")
    for one in (est, load_billboard(tmp_path / "board")):
        one.relate({1000: 3.0})
        np.testing.assert_array_equal(one.predict(X[:5], task=np.full(5, 1000)), 5.0)


@pytest.mark.parametrize("has_meaning, least, most", [(True, 0.93, 1.0), (False, 0.0, 0.85)])
def test_models_of_covariates_are_shrunk_by_their_noise(has_meaning, least, most):
    X, y, task, z, B = related()
    z = z if has_meaning else np.random.default_rng(99).normal(size=M)
    est = PrivateMTL(epsilon=3.0, relation={t: z[t] for t in range(M)}, tasks=range(M))
    sites, rng, moves = Sites(est, (X, y, task), [range(M)]), np.random.default_rng(0), []
    loop = est._loop(sites.population)
    loop.update(middle=2.0, width=4.0, unit=1.0, scale_variance=np.zeros(2), log_tau=None)
    loop.update(centre=np.append(0.0, B[0]))

    def release(query, name, mechanism):
        noise = mechanism.noise_std * rng.normal(size=mechanism.shape)
        moves.append(sites.answer(query)[name] + noise)
        return moves[-1]

    drive(loop.relation(0.05), release)
    all_of_it = np.sum(moves, axis=0).reshape(2, -1)[1, 1:]
    kept = np.linalg.norm(loop.model.related[1, 1:]) / np.linalg.norm(all_of_it)
    assert least < kept < most


@pytest.mark.parametrize("epsilon", [None, 3.0])
def test_meaningless_covariates_do_little_harm(epsilon):
    X, y, task, _, _ = related(20)
    errors, seen = [], np.tile(np.arange(N) < 6, M)
    for relation in (None, np.random.default_rng(0).normal(size=(M, 2))):
        est = PrivateMTL(epsilon=epsilon, relation=relation, tasks=range(M), random_state=0)
        est.fit(X[seen], y[seen], task=task[seen])
        errors.append(np.mean((est.predict(X[~seen], task=task[~seen]) - y[~seen]) ** 2))
    assert errors[1] < 1.1 * errors[0]


def test_a_file_with_ids_of_two_kinds_is_refused(tmp_path):
    """Strings have no place among sorted integers, which tasks are looked up in."""
    X, y, task, z, _ = related()
    est = PrivateMTL(epsilon=None, relation={t: z[t] for t in range(M)}).fit(X, y, task=task)
    save_billboard(est, tmp_path / "whole")
    with np.load(tmp_path / "whole") as archive:
        arrays = dict(archive)
    text = arrays.pop("header").tobytes().decode()
    assert text.count("[0, 1, 2,") == 1
    header = np.frombuffer(text.replace("[0, 1, 2,", '["a", 1, 2,').encode(), np.uint8)
    with open(tmp_path / "mixed", "wb") as stream:
        np.savez(stream, header=header, **arrays)
    with pytest.raises(ValueError, match="different integers, or strings"):
        load_billboard(tmp_path / "mixed")


def test_shapes_are_of_what_covariates_leave():
    """Two directions of deviations from models that follow three covariates."""
    rng, m, n, d = np.random.default_rng(3), 300, 10, 12
    z, plane = rng.normal(size=(m, 3)), np.linalg.qr(rng.normal(size=(d, 2)))[0]
    W = z @ rng.normal(size=(3, d)) + 3.0 * rng.normal(size=(m, 2)) @ plane.T
    task = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, d))
    y = np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=m * n)
    est = MPMTLLowRank(epsilon=10.0, tasks=range(m), random_state=0, relation=z)
    root = est.fit(X, y, task=task).billboard_.root
    assert np.sum((plane.T @ root) ** 2) > 0.7  # of a trace of one
