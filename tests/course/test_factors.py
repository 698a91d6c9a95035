"""A factor above tasks, such as districts of schools."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from skpmtl import PrivateMTL, PrivateMTLClassifier, load_billboard, save_billboard
from skpmtl.course.factors import LOG_OMEGA, OMEGA, RESPONSE, UNEVEN, posterior

M, K, NEW = 300, 10, 100
ABOVE = {"district": "above"}


def schools(seed, omega, tau=1.0, n=12):
    """-> X, y, task, {task: district}, effects of districts (K,)"""
    rng = np.random.default_rng(seed)
    of = np.arange(M + NEW) % K
    effects = omega * rng.normal(size=K)
    level = 20.0 + effects[of] + tau * rng.normal(size=M + NEW)
    task = np.repeat(np.arange(M + NEW), n)
    X = rng.normal(size=(len(task), 2))
    y = level[task] + X @ [1.0, -1.0] + rng.normal(size=len(task))
    return X, y, task, {t: f"d{j}" for t, j in enumerate(of)}, effects


def fitted(data, epsilon=3.0, seed=0, **more):
    X, y, task, *_ = data
    est = PrivateMTL(epsilon=epsilon, tasks=range(M), unseen_task="mean", random_state=seed, **more)
    return est.fit(X[task < M], y[task < M], task=task[task < M])


def error(est, data):
    """Root mean square of the errors about tasks that were not fitted."""
    X, y, task, *_ = data
    new = task >= M
    return np.sqrt(np.mean((est.predict(X[new], task=task[new]) - y[new]) ** 2))


def districts(data):
    return {"relation": data[3], "factors": ABOVE}


@pytest.mark.parametrize("seed", [0, 1])
def test_districts_help_where_they_matter_and_else_do_no_harm(seed):
    for omega, low, high in ((2.0, 0.4, 0.9), (0.0, 0.98, 1.02)):
        data = schools(seed, omega)
        with_districts = error(fitted(data, seed=seed, **districts(data)), data)
        assert low < with_districts / error(fitted(data, seed=seed), data) < high


def test_new_tasks_have_the_level_of_their_district(tmp_path):
    """Also in a file, and the mean in a new district."""
    data = schools(3, 3.0)
    X = data[0][:3]
    est = fitted(data, epsilon=20.0, **districts(data))
    found = est.factors_["district"]
    mean = X @ est.mean_coef_ + est.mean_intercept_
    for j in (0, 7):
        told = est.predict(X, task=np.full(3, M + j))
        assert_allclose(told, mean + found["effects"][j])
    with pytest.raises(ValueError, match="without a district.*relate"):
        est.predict(X, task=np.full(3, 9999))
    save_billboard(est, tmp_path / "board.npz")
    for one in (est, load_billboard(tmp_path / "board.npz").set_params(unseen_task="mean")):
        one.relate({9999: "d7", 10000: "elsewhere"})
        assert_allclose(one.predict(X, task=np.full(3, 9999)), mean + found["effects"][7])
        assert_allclose(one.predict(X, task=np.full(3, 10000)), mean)


def test_intervals_hold_in_old_and_in_new_districts():
    """Those of new ones have the spread of districts."""
    data = schools(6, 3.0)
    X, y, task, of, _ = data
    given = {t: d for t, d in of.items() if t < M}
    est = fitted(data, epsilon=20.0, relation=given, factors=ABOVE)
    est.relate({t: of[t] if t < M + 50 else f"new {t}" for t in range(M, M + NEW)})
    low, high = est.predict_interval(X[task >= M], task=task[task >= M], coverage=0.9).T
    width, new = high - low, task[task >= M] >= M + 50
    assert width[new].min() > 1.5 * width[~new].max()
    held = (low < y[task >= M]) & (y[task >= M] < high)
    assert held[~new].mean() > 0.8 and held[new].mean() > 0.9


@pytest.mark.parametrize(("tasks", "says"), [(M, "differ by about"), (30, "too few")])
def test_the_report_says_what_was_found_of_the_factor(tasks, says):
    X, y, task, of, _ = schools(7, 2.0)
    some = task < tasks
    est = PrivateMTL(epsilon=3.0, tasks=range(tasks), random_state=0)
    est.set_params(relation={t: of[t] for t in range(tasks)}, factors=ABOVE)
    est.fit(X[some], y[some], task=task[some])
    assert says in est.privacy_.found()["district"]
    if says == "too few":  # nothing changes for schools without rows
        without = PrivateMTL(epsilon=3.0, tasks=range(tasks), random_state=0, unseen_task="mean")
        without.fit(X[some], y[some], task=task[some])
        est.set_params(unseen_task="mean").relate({t: of[t] for t in range(M)})
        new = X[:9], np.full(9, tasks)
        assert_allclose(est.predict(new[0], task=new[1]), without.predict(new[0], task=new[1]))


def test_posterior_of_effects_is_that_of_a_dense_gaussian():
    """Conditional means of a joint normal of effects and answers, weighed by its density."""
    rng, n, k, wide = np.random.default_rng(0), 3, 4, 300.0
    about, found = rng.normal(size=(2, n, k))
    noise, own = rng.uniform(0.1, 0.5, size=(2, k))
    omega = OMEGA[[0, 3, 5]]
    log_weights, means, effects, squares = [], [], [], []
    for r in RESPONSE:
        for s, prior in zip(omega, LOG_OMEGA[[0, 3, 5]], strict=True):
            # A flat prior on what shifts all answers; answer q of level j is q k + j.
            common = (wide / r) ** 2 * np.ones((k, k)) + s**2 * np.eye(k)
            joint = r**2 * np.kron(np.ones((n, n)), common + np.diag(own) / r**2)
            joint += np.kron(np.eye(n), np.diag(noise + UNEVEN * own))
            answers = (found + r * about).ravel()
            log_weights.append(prior + multivariate_normal(cov=joint).logpdf(answers))
            cross = r * np.kron(np.ones(n), common)
            effects.append(cross @ np.linalg.solve(joint, answers))
            shift = r * (wide / r) ** 2 * np.ones(n * k)
            means.append(shift @ np.linalg.solve(joint, answers))
            seen = s**2 * r**2 / (s**2 * r**2 + (noise + UNEVEN * own) / n + own)
            squares.append(s**2 * (1.0 - seen) + (effects[-1] - means[-1]) ** 2)
    weights = np.exp(np.array(log_weights) - max(log_weights))
    weights /= weights.sum()
    asked = list(zip(about, found, strict=True))
    got = posterior(asked, noise, own, omega, LOG_OMEGA[[0, 3, 5]])
    assert_allclose(got[0], weights @ means, rtol=1e-4)
    assert_allclose(got[1], weights @ effects, rtol=1e-3)
    own = weights @ (np.array(effects) - np.array(means)[:, None])
    assert_allclose(got[3], np.sqrt(weights @ np.array(squares) - own**2), rtol=1e-3)


@pytest.mark.parametrize("kind", ["classes", "counts"])
def test_districts_help_for_classes_and_counts(kind):
    rng = np.random.default_rng(0)
    of = np.arange(M) % 3
    task = np.repeat(np.arange(M), 20)
    score = np.array([-1.5, 0.0, 1.5])[of][task] + 0.3 * rng.normal(size=M)[task]
    X = rng.normal(size=(len(task), 1))
    given = {"relation": {t: int(of[t]) for t in range(M)}, "factors": ABOVE, "epsilon": 5.0}
    given |= {"tasks": range(M), "random_state": 0}
    if kind == "classes":
        y = rng.random(len(task)) < 1.0 / (1.0 + np.exp(-score))
        est = PrivateMTLClassifier(classes=[False, True], **given)
    else:
        y, est = rng.poisson(np.exp(score)), PrivateMTL(loss="poisson", **given)
    found = est.fit(X, y, task=task).factors_["district"]["effects"]
    assert np.all(np.diff(found) > 0.7)


def test_a_budget_that_finds_nothing_leaves_the_public_mean():
    data = schools(0, 2.0)
    est = fitted(data, epsilon=1e-3, target_range=(0.0, 40.0), **districts(data))
    assert not hasattr(est, "factors_")
    assert_allclose(est.predict(data[0][:3], task=np.full(3, M)), 20.0)


def test_covariates_stand_with_a_factor():
    """Those of the same table of tasks, which move slopes as well."""
    X, y, task, of, effects = schools(5, 2.0)
    z = np.random.default_rng(0).normal(size=M + NEW)
    y = y + 2.0 * z[task] * X[:, 0]
    table = {t: {"district": of[t], "z": z[t]} for t in of}
    est = fitted((X, y, task), epsilon=20.0, relation=table, factors=ABOVE)
    assert est.billboard_.relation.names == ["constant", "z"]
    assert abs(est.relation_coef_[1, 0] - 2.0) < 0.5
    found = est.factors_["district"]["effects"]
    assert np.corrcoef(found, effects)[0, 1] > 0.9
