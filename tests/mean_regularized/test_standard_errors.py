"""Standard errors of the shared model: closed forms, a jackknife, coverage, and what they cost."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import stdtrit
from sklearn.base import clone

from skpmtl import PrivateMeanRegMTL, PrivateMeanRegMTLClassifier, load_billboard, save_billboard
from skpmtl.privacy import audit

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")


def table(m, n, tau, seed, d=4, classes=False):
    rng = np.random.default_rng(seed)
    a = np.array([1.0, -0.5, 0.0, 0.3])[:d]
    W = a + tau * rng.standard_normal((m, d))
    task, X = np.repeat(np.arange(m), n), rng.standard_normal((m * n, d))
    score = np.einsum("ij,ij->i", X, W[task]) + rng.standard_normal(m)[task]
    if classes:
        return X, (rng.uniform(size=m * n) < 1 / (1 + np.exp(-score))).astype(int), task, a
    return X, score + rng.standard_normal(m * n), task, a


def private(m, **given):
    return PrivateMeanRegMTL(
        **{"epsilon": 3.0, "tasks": range(m), "standard_errors": True, "random_state": 0, **given}
    )


# ------------------------------------------------------------------------- the release
@pytest.mark.parametrize("own_units", [True, False])
def test_the_report_lists_the_releases_that_were_made(own_units):
    """Also where models have no common length, so that no standard errors are released."""
    m = 60
    X, y, task, _ = table(m, 12, 0.4, 0)
    if own_units:
        y = y * 2.0 ** np.random.default_rng(0).integers(-30, 30, m)[task]
    given = {"epsilon": 8.0, "delta": 1e-3, "levels": "free"}
    est = private(m, **given).fit(X, y, task=task)
    assert est.billboard_.own_units == own_units
    assert len(est.privacy_.releases) == len(est.billboard_.releases)
    names = [entry["name"] for entry in est.privacy_.releases]
    assert ("standard errors, deviations" in names) != own_units
    other = np.where(task == 3, -y, y)
    report = audit(private(m, **given), (X, y, task), (X, other, task), replay=True, n_draws=0)
    assert report.passed


# -------------------------------------------------------------------------- reading it


# -------------------------------------------------------------------------- exact fits
@pytest.mark.parametrize("lam, fit_intercept", [(0.05, True), (2.0, False)])
def test_exact_errors_agree_with_a_jackknife(lam, fit_intercept):
    X, y, task, _ = table(60, 8, 0.5, 1)
    est = PrivateMeanRegMTL(
        lam, epsilon=None, standard_errors=True, fit_intercept=fit_intercept
    ).fit(X, y, task=task)
    left = [
        clone(est).fit(X[task != k], y[task != k], task=task[task != k]).mean_coef_
        for k in range(60)
    ]
    jackknife = np.sqrt(59.0 * np.var(left, axis=0))
    assert_allclose(est.mean_std_, jackknife, rtol=0.15)


def test_errors_of_relations_agree_with_a_jackknife():
    X, y, task, _ = table(60, 8, 0.5, 2, d=3)
    z = np.random.default_rng(0).standard_normal(60)
    relation = {k: {"z": float(z[k])} for k in range(60)}
    given = {"epsilon": None, "standard_errors": True}
    related = PrivateMeanRegMTL(0.3, relation=relation, **given).fit(X, y, task=task)
    assert related.relation_std_.shape == related.relation_coef_.shape
    clusters = {k: k % 2 for k in range(60)}
    apart = PrivateMeanRegMTL(0.3, clusters=clusters, **given).fit(X, y, task=task)
    coef, centres = [], []
    for k in range(60):
        rows = task != k
        own = {j: value for j, value in relation.items() if j != k}
        coef.append(
            clone(related)
            .set_params(relation=own)
            .fit(X[rows], y[rows], task=task[rows])
            .relation_coef_
        )
        centres.append(clone(apart).fit(X[rows], y[rows], task=task[rows]).billboard_.mean)
    jackknife = np.sqrt(59.0 * np.var(coef, axis=0))
    assert_allclose(related.relation_std_, jackknife, rtol=0.25)
    # A task moves the centre of its cluster only.
    jackknife = np.sqrt(59.0 * np.var(centres, axis=0))
    assert_allclose(apart.billboard_.errors.std, jackknife, rtol=0.15)


def test_exact_errors_of_classes_agree_with_a_jackknife():
    X, y, task, _ = table(50, 25, 0.3, 3, classes=True)
    est = PrivateMeanRegMTLClassifier(0.1, epsilon=None, standard_errors=True)
    est.fit(X, y, task=task)
    left = [
        clone(est).fit(X[task != k], y[task != k], task=task[task != k]).mean_coef_
        for k in range(50)
    ]
    assert_allclose(est.mean_std_, np.sqrt(49.0 * np.var(left, axis=0)), rtol=0.25)


# ------------------------------------------------------------------------ private fits
def coverage(m, n, tau, seeds, **given):
    inside, error, std = [], [], []
    for seed in range(seeds):
        X, y, task, a = table(m, n, tau, 1000 * m + seed)
        est = private(m, random_state=seed, **given).fit(X, y, task=task)
        if est.billboard_.errors.reason is not None:  # no window of levels, now and then
            continue
        frame = est.summary_frame(0.9).iloc[:4]
        inside.append((frame["lower"] <= a) & (a <= frame["upper"]))
        error.append(frame["effect"] - a)
        std.append(frame["std_error"])
    assert len(inside) >= 0.8 * seeds
    ratio = np.sqrt(np.mean(np.square(std)) / np.mean(np.square(error)))
    return np.mean(inside), ratio


@pytest.mark.parametrize("levels", ["auto", "free"])
def test_intervals_cover(levels):
    # 64 numbers: the standard deviation of the share is .04 at .9.
    share, ratio = coverage(100, 15, 0.5, 16, levels=levels)
    assert share >= 0.78
    assert 0.75 < ratio < 1.6


@pytest.mark.parametrize("levels", ["auto", pytest.param("free", marks=pytest.mark.slow)])
def test_the_part_of_the_noise_is_the_spread_over_seeds(levels):
    X, y, task, _ = table(200, 15, 0.5, 5)
    fits = [private(200, levels=levels, random_state=s).fit(X, y, task=task) for s in range(16)]
    errors = [est.billboard_.errors for est in fits]
    spread = np.std([e.estimate for e in errors], axis=0, ddof=1).mean()
    assert 1 / 1.5 < np.mean([e.noise_std for e in errors]) / spread < 1.5


def test_errors_have_the_unit_of_the_target_and_no_origin():
    X, y, task, _ = table(120, 10, 0.3, 0)
    one = private(120).fit(X, y, task=task)
    other = private(120).fit(X, 4.0 * y, task=task)
    assert_allclose(other.mean_std_, 4.0 * one.mean_std_, rtol=1e-6)
    start = {"coef": [1.0, 2.0, 0.0, -1.0], "intercept": 0.0}
    moved = private(120, init=start).fit(X, y + X @ start["coef"], task=task)
    assert_allclose(moved.mean_std_, one.mean_std_, rtol=1e-6)
    shift = moved.billboard_.errors.estimate - one.billboard_.errors.estimate
    assert_allclose(shift, [[*start["coef"], 0.0]], atol=1e-6)


def test_counts_have_errors():
    rng, found = np.random.default_rng(0), []
    a, task = np.array([0.3, -0.2]), np.repeat(np.arange(200), 20)
    for seed in range(8):
        W = a + 0.2 * rng.standard_normal((200, 2))
        X = rng.standard_normal((4000, 2))
        y = rng.poisson(np.exp(np.einsum("ij,ij->i", X, W[task]) + 0.5))
        est = private(200, loss="poisson", random_state=seed).fit(X, y, task=task)
        found.append([est.mean_coef_, est.mean_std_])
    coef, std = np.moveaxis(found, 1, 0)
    # 16 numbers: their spread is known to 18 %.
    assert 0.65 < np.sqrt(np.mean(std**2)) / np.sqrt(np.mean((coef - coef.mean(axis=0)) ** 2)) < 1.6


def test_errors_are_nan_where_nothing_is_released():
    X, y, task, _ = table(100, 8, 0.3, 0)
    y = y * (10.0 ** np.random.default_rng(0).uniform(-6, 6, size=100))[task]
    est = private(100, levels="free").fit(X, y, task=task)
    assert est.billboard_.own_units
    assert np.isnan(est.mean_std_).all()
    with pytest.warns(UserWarning, match="no standard errors: lengths .* no common bin"):
        frame = est.summary_frame()
    assert frame.isna().all(axis=None)
    few = private(6).fit(X[:48], y[:48], task=task[:48])
    with pytest.warns(UserWarning, match="with n_rounds=1 a shared model does not arrive"):
        few.summary_frame()
    assert np.isnan(few.mean_std_).all()


def test_the_table_names_what_it_is_about(tmp_path):
    X, y, task, _ = table(120, 10, 0.3, 0)
    est = private(120).fit(X, y, task=task)
    frame = est.summary_frame(0.5)
    assert list(frame.index) == ["x0", "x1", "x2", "x3", "intercept"]
    assert_array_equal(frame["effect"][:4], est.mean_coef_)
    assert_array_equal(frame["std_error"][:4], est.mean_std_)
    assert frame["effect"]["intercept"] == est.mean_intercept_
    assert frame["std_error"]["intercept"] == est.mean_intercept_std_
    width = 2.0 * stdtrit(est.billboard_.errors.dof, 0.75) * frame["std_error"]
    assert_allclose(frame["upper"] - frame["lower"], width)
    assert frame["noise_share"].between(0.0, 1.0, inclusive="neither").all()
    save_billboard(est, tmp_path / "billboard.npz")
    other = load_billboard(tmp_path / "billboard.npz")
    assert_array_equal(other.mean_std_, est.mean_std_)
    assert_array_equal(other.summary_frame(0.5), frame)
    relation = {k: {"z": k % 3, "kind": "ab"[k % 2]} for k in range(120)}
    related = private(120, epsilon=1e3, relation=relation).fit(X, y, task=task)
    frame = related.summary_frame()
    assert frame.index.names == ["covariate", "feature"]
    assert_array_equal(frame["std_error"].to_numpy().reshape(3, 4), related.relation_std_)
    assert (related.relation_std_ > 0).all()


def test_tables_of_several_classes_have_one_row_a_class():
    rng = np.random.default_rng(0)
    X, task = rng.standard_normal((900, 2)), np.repeat(np.arange(60), 15)
    y = np.argmax(X @ rng.standard_normal((2, 3)) + rng.gumbel(size=(900, 3)), axis=1)
    given = {"tasks": range(60), "classes": range(3), "standard_errors": True, "random_state": 0}
    found = {}
    for name, rows in (("dense", X), ("sparse", sparse.csr_matrix(X))):
        est = PrivateMeanRegMTLClassifier(epsilon=1e3, **given).fit(rows, y, task=task)
        frame = est.summary_frame()
        assert frame.index.names == ["class", "feature"]
        assert_array_equal(frame["std_error"].to_numpy().reshape(3, 2), est.mean_std_)
        found[name] = frame["std_error"]
    assert_allclose(found["sparse"], found["dense"], rtol=0.1)
    exact = PrivateMeanRegMTLClassifier(epsilon=None, **given).fit(X, y, task=task)
    assert exact.mean_std_.shape == (3, 2)
    assert (exact.mean_std_ > 0).all()


def test_faults_are_named():
    X, y, task, _ = table(60, 8, 0.3, 0)
    plain = PrivateMeanRegMTL(epsilon=None).fit(X, y, task=task)
    assert not hasattr(plain, "mean_std_")
    with pytest.raises(ValueError, match="refit with standard_errors=True"):
        plain.summary_frame()
    est = PrivateMeanRegMTL(epsilon=None, standard_errors=True).fit(X, y, task=task)
    for wrong in (0.0, 1.0, 90, "high", np.nan):
        with pytest.raises(ValueError, match=r"coverage=.* must be a number in \(0, 1\)"):
            est.summary_frame(wrong)
    with pytest.raises(ValueError, match='loss="huber": they are of the other losses'):
        clone(est).set_params(loss="huber").fit(X, y, task=task)
    wide = sparse.csr_matrix((480, 20_000))
    with pytest.raises(ValueError, match="standard_errors=True needs dense models"):
        clone(est).fit(wide, y, task=task)
    with pytest.raises(ValueError, match="standard_errors"):
        private(60, standard_errors="yes").fit(X, y, task=task)
