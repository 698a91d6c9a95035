"""Fits that look for the levels of tasks: what they find, and what moves along with the data."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import PrivateMTL, PrivateMTLClassifier, load_billboard, save_billboard
from skpmtl.engine.levels import Level
from skpmtl.exchange.wire import pack, unpack
from skpmtl.privacy import audit
from tests.helpers.data import rows_of
from tests.helpers.sites import Sites

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
M, N, D = 120, 8, 4
SETTINGS = {"epsilon": 6.0, "tasks": range(M), "random_state": 0}


def rows(m=M, n=N, d=D, tau=0.5, fact=0.0, shift=0.0, seed=0, of=0):
    """Slopes near common ones, levels that spread by tau about a pooled model. -> X, y, task"""
    rng = np.random.default_rng(seed)
    a, levels = rng.normal(size=d), tau * rng.normal(size=m)
    W, covariates = a + 0.2 * rng.normal(size=(m, d)), rng.normal(size=m)
    rng = np.random.default_rng([seed, of])
    X, y, task = rows_of(rng, W, n, noise=1.0, level=3.0 + shift + levels)
    if fact:
        X, y = np.column_stack([X, covariates[task]]), y + fact * covariates[task]
    return X, y, task


def fitted(data=None, cls=PrivateMTL, **options):
    X, y, task = rows() if data is None else data
    return cls(**{**SETTINGS, **options}).fit(X, y, task=task)


@pytest.fixture(scope="module")
def one():
    return fitted(unseen_task="mean")


# ------------------------------------------------------------------------- what is found
def test_pooled_levels_help_tasks_of_few_rows():
    data, (X, y, task) = rows(n=4), rows(n=40, of=1)
    pooled, free = (fitted(data, levels=levels) for levels in ("auto", "free"))
    errors = [np.mean((y - est.predict(X, task=task)) ** 2) for est in (pooled, free)]
    # Of own levels the noise is 1/4, of levels near the pooled model 1 / (4 + 1 / tau^2) = 1/8.
    assert errors[0] < errors[1] - 0.06
    assert pooled.level_ == pytest.approx(3.0, abs=0.6)
    assert 0.2 < pooled.level_spread_ < 1.5
    assert not hasattr(free, "level_") and free.billboard_.level is None


def test_unseen_tasks_have_the_pooled_model(one):
    X, y, task = rows()
    level = one.billboard_.level
    assert_allclose(one.mean_coef_, level.coef)
    assert one.mean_intercept_ == level.intercept == one.level_
    assert level.spread == one.level_spread_
    assert_allclose(one.predict(X, task=task + 1000), X @ level.coef + level.intercept)
    plain = fitted()  # at no cost: the same releases
    for mine, theirs in zip(one.billboard_.releases, plain.billboard_.releases, strict=True):
        assert_array_equal(mine, theirs)


def test_a_task_without_rows_has_the_pooled_model():
    X, y, task = rows()
    est = fitted((X, y, task), tasks=range(M + 1))
    assert_array_equal(est.coef_[M], est.billboard_.level.coef)
    assert est.intercept_[M] == est.billboard_.level.intercept


@pytest.mark.parametrize("n_classes", [0, 2])
def test_tasks_of_one_row_or_one_class(n_classes):
    """They have finite models, between their own and the pooled one, and cost others nothing."""
    X, y, task = rows()
    keep = (task > 2) | (np.arange(len(y)) % N == 0)
    options = {}
    if n_classes:
        y = np.where(task == 5, True, y > 3.0)
        options = {"cls": PrivateMTLClassifier, "classes": [False, True]}
    est = fitted((X[keep], y[keep], task[keep]), **options)
    assert np.isfinite(est.coef_).all() and np.isfinite(est.intercept_).all()
    level = est.billboard_.level
    scores = est.intercept_[:3] + np.einsum("kj,kj->k", X[::N][:3], est.coef_[:3])
    if not n_classes:
        pooled = level.intercept + X[::N][:3] @ level.coef
        own = y[::N][:3]
        between = np.minimum(pooled, own) - 1e-9, np.maximum(pooled, own) + 1e-9
        assert (between[0] <= scores).all() and (scores <= between[1]).all()
    else:
        mine = task == 5
        assert (X[mine] @ est.coef_[5] + est.intercept_[5]).mean() < 20.0


@pytest.mark.parametrize("fact", [1.5])
def test_columns_that_are_constant_in_tasks_tell_of_their_levels(fact):
    """Level-2 covariates as columns of X: new tasks have half of the error without them."""
    X, y, task = rows(fact=fact)
    new, target, of = rows(fact=fact, seed=0, of=2)
    with_, without = (
        fitted((columns, y, task), unseen_task="mean", epsilon=None, tasks="auto")
        for columns in (X, X[:, :D])
    )
    assert np.isfinite(with_.coef_).all() and np.isfinite(with_.intercept_).all()
    assert with_.mean_coef_[-1] == pytest.approx(fact, abs=0.25)
    ours = np.mean((target - with_.predict(new, task=of + 1000)) ** 2)
    theirs = np.mean((target - without.predict(new[:, :D], task=of + 1000)) ** 2)
    assert ours < 0.6 * theirs
    # With its own rows a task has the covariate once: in slopes, or in its level.
    assert np.mean((target - with_.predict(new, task=of)) ** 2) < 1.6


def test_pooled_levels_have_a_public_rule():
    X, y, task = rows(m=60)
    settings = {"levels": "pooled", "tasks": range(60), "epsilon": 1.0}
    est = PrivateMTL(**settings)
    with pytest.raises(ValueError, match=r"target_range=\(low, high\)"):
        est.fit(X, y, task=task)
    assert not hasattr(est, "coef_")
    est = PrivateMTL(**settings, target_range=(-5.0, 10.0), random_state=0).fit(X, y, task=task)
    assert est.billboard_.level.pooled and fitted(levels="pooled").billboard_.level.pooled
    with pytest.raises(ValueError, match="levels"):
        PrivateMTL(levels="none").fit(X, y, task=task)


def test_all_levels_are_pooled_where_users_say_so():
    """A task far from all others keeps its level, but not with levels="pooled"."""
    X, y, task = rows(n=3)
    y = np.where(task == 4, y + 1e3, y)
    mine = task == 4
    far = [
        fitted((X, y, task), levels=levels).predict(X[mine], task=task[mine]).mean()
        for levels in ("auto", "pooled")
    ]
    assert far[0] > 990.0 > 900.0 > far[1]


# ------------------------------------------------------------------------- what moves along
def test_targets_move_along_with_their_range():
    X, y, task = rows()
    est = fitted((X, y, task), target_range=(-5.0, 11.0), unseen_task="mean")
    shifted = fitted((X, 1e3 * y + 20.0, task), target_range=(-4980.0, 11020.0), unseen_task="mean")
    wanted = 1e3 * est.predict(X, task=task) + 20.0
    assert_allclose(shifted.predict(X, task=task), wanted, rtol=1e-6, atol=1e-3)
    assert shifted.level_ == pytest.approx(1e3 * est.level_ + 20.0, rel=1e-6)
    assert shifted.level_spread_ == pytest.approx(1e3 * est.level_spread_, rel=1e-6)


def test_windows_and_scales_move_along_by_powers_of_two(one):
    """Octaves, so that histograms of other units are the same ones elsewhere."""
    X, y, task = rows()
    est = fitted((64.0 * X, 1024.0 * y, task))
    wanted = 1024.0 * one.predict(X, task=task)
    assert_allclose(est.predict(64.0 * X, task=task), wanted, rtol=1e-6, atol=1e-3)
    assert est.level_ == pytest.approx(1024.0 * one.level_, rel=1e-6)


@pytest.mark.parametrize("shift", [20.0, -1e4])
def test_levels_are_found_wherever_the_target_lies(shift):
    X, y, task = rows(shift=shift)
    test, target, of = rows(shift=shift, of=1)
    near, far = fitted(), fitted((X, y, task))
    errors = [
        np.mean((target - off - est.predict(test, task=of)) ** 2)
        for est, off in ((near, shift), (far, 0.0))
    ]
    assert errors[1] < 1.25 * errors[0]
    assert far.level_ == pytest.approx(3.0 + shift, abs=0.6)
    assert far.level_spread_ < 1.5  # of a window that would be thousands wide


# ------------------------------------------------------------------------------ billboards
def test_billboards_with_levels_travel(one, tmp_path):
    X, y, task = rows(of=3)
    text, arrays = pack(one.billboard_)
    level, sent = one.billboard_.level, unpack(text, arrays).level
    assert isinstance(sent, Level) and sent.spread == level.spread and sent.window == level.window
    assert_array_equal(sent.coef, level.coef)
    save_billboard(one, tmp_path / "with level.npz")
    again = load_billboard(tmp_path / "with level.npz").personalize(X, y, task=task)
    assert_allclose(
        again.predict(X, task=task),
        one.personalize(X, y, task=task + 5 * M).predict(X, task=task + 5 * M),
        rtol=1e-9,
    )
    assert again.level_ == one.level_


def read(path):
    with np.load(path) as archive:
        arrays = dict(archive)
    return json.loads(arrays.pop("header").tobytes()), arrays


def write(path, header, arrays):
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)


@pytest.mark.parametrize(
    "change",
    [
        {"spread": None},
        {"spread": 0.0},
        {"spread": -1.0},
        {"spread": "wide"},
        {"window": 0.0},
        {"window": None},
        {"noise_std": None},
        {"noise_std": -0.5},
        {"intercept": None},
        {"pooled": 3},
        {"sd": 1.0},
        {"coef": None},
    ],
    ids=str,
)
def test_crafted_levels_are_refused(change, one, tmp_path):
    save_billboard(one, tmp_path / "good.npz")
    header, arrays = read(tmp_path / "good.npz")
    header["board"]["fields"]["level"]["fields"].update(change)
    write(tmp_path / "crafted.npz", header, arrays)
    with pytest.raises(ValueError, match="cannot be read"):
        load_billboard(tmp_path / "crafted.npz")


# ----------------------------------------------------------------------------- replay audit
def few_rows(m=60, n=4, d=8, seed=0):
    """Rank 1 and few rows: on these the refinement of moments runs."""
    rng = np.random.default_rng(seed)
    u = np.linalg.qr(rng.normal(size=(d, 1)))[0][:, 0]
    X, task = rng.normal(size=(m * n, d)), np.repeat(np.arange(m), n)
    y = 1.0 + 2.0 * (X @ u) * rng.normal(size=m)[task] + 0.1 * rng.normal(size=m * n)
    return X, y, task


def changed(data, seed=1):
    X, y, task = (part.copy() for part in data)
    rng, mine = np.random.default_rng(seed), data[2] == 3
    X[mine], y[mine] = 20.0 * rng.normal(size=(mine.sum(), X.shape[1])), 500.0
    return X, y, task


AUDITED = {
    "few rows": (
        few_rows,
        {"epsilon": 150.0, "tasks": range(60)},
        {"log evidence, by rank", "inside and outside"},
    ),
    "pooled again": (
        lambda: rows(m=30),
        {"epsilon": 40.0, "tasks": range(30)},
        {"of families of structures"},
    ),
    "zooms": (
        lambda: rows(m=30, shift=1e4),
        {"epsilon": 40.0, "tasks": range(30)},
        {"votes on the window", "bins of a window"},
    ),
    "shapes": (
        lambda: few_columns(),
        {"epsilon": 40.0, "tasks": range(40)},
        {"log evidence, by shape"},
    ),
    "no window": (
        lambda: scattered(),
        {"epsilon": 40.0, "tasks": range(30), "structure": ["low-rank", "mean"]},
        set(),
    ),
}


def few_columns(m=40, n=10, d=8, seed=0):
    """Models on three columns of the same size, which have no mean."""
    rng = np.random.default_rng(seed)
    W = np.zeros((m, d))
    W[:, [1, 4, 6]] = rng.choice([-1.0, 1.0], (m, 3)) * rng.uniform(1.0, 2.0, (m, 3))
    return rows_of(rng, W, n, noise=0.5, level=rng.normal(size=m))


def scattered():
    """Tasks in units of their own."""
    X, y, task = rows(m=30)
    return X, y * 4.0 ** (task - 15.0), task


@pytest.mark.parametrize("name", ["few rows", "pooled again", "zooms", "shapes"])
def test_sites_that_add_up_release_what_one_process_does(name):
    """Also votes on evidence, and blocks; with the same seed to rounding."""
    data, options, _ = AUDITED[name]
    data, est = data(), PrivateMTL(**options, random_state=0)
    parts = np.array_split(np.unique(data[2]), 3)
    billboard = Sites(est, data, [part.tolist() for part in parts]).run()
    est.fit(data[0], data[1], task=data[2])
    assert len(billboard.releases) == len(est.billboard_.releases)
    for sent, one in zip(billboard.releases, est.billboard_.releases, strict=True):
        assert_allclose(sent, one, rtol=1e-5, atol=1e-5 * np.abs(one).max())


@pytest.mark.parametrize("name", AUDITED)
def test_a_replay_finds_nothing_but_releases(name):
    data, options, asked = AUDITED[name]
    data, est = data(), PrivateMTL(**options)
    result = audit(est, data, changed(data), replay=True, n_draws=0)
    assert result.passed, str(result)
    est.set_params(random_state=0).fit(data[0], data[1], task=data[2])
    words = " ".join(entry["statistic"] for entry in est.privacy_.releases)
    assert all(part in words for part in asked)
    assert (est.billboard_.level is None) == (name == "no window")
