"""A factor across tasks, such as items that pupils of many schools answer."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from skpmtl import PrivateMTL, PrivateMTLClassifier, load_billboard, save_billboard
from skpmtl.course.billboard import HierarchicalBillboard
from skpmtl.course.factors import count_of, spread_of
from skpmtl.course.personal import TaskModels
from skpmtl.course.queries import NEVER, AcrossStep
from skpmtl.shards.fit import fit_shards
from skpmtl.tables.factors import FactorEffects, RowFactor, RowLevels
from skpmtl.tables.table import TaskTable
from skpmtl.task.priors import KAPPA, SIGMA
from tests.helpers.sites import write_parts

M, NEW, K = 300, 100, 20
NAMES = [f"item {j:02d}" for j in range(K)]
ACROSS = {"item": ("across", NAMES)}


def answers(seed, omega, n=15):
    """Rows of tasks that are fitted and of new ones. -> DataFrame with y, effects of items (K,)"""
    rng = np.random.default_rng(seed)
    effects, level = rng.normal(size=K), 20.0 + rng.normal(size=M + NEW)
    effects *= omega / np.std(effects)
    school, item = np.repeat(np.arange(M + NEW), n), rng.integers(K, size=(M + NEW) * n)
    X = rng.normal(size=(len(school), 2))
    y = level[school] + effects[item] + X @ [1.0, -1.0] + rng.normal(size=len(school))
    frame = {"x": X[:, 0], "z": X[:, 1], "school": school, "item": np.array(NAMES)[item], "y": y}
    return pd.DataFrame(frame), effects


def fitted(rows, epsilon=3.0, factors=ACROSS, **more):
    est = PrivateMTL(epsilon=epsilon, factors=factors, tasks=range(M), unseen_task="mean")
    est.set_params(task_feature="school", random_state=0, **more)
    some = rows["school"] < M
    return est.fit(features(rows[some], factors), rows["y"][some])


def features(rows, factors=ACROSS):
    return rows.drop(columns=["y"] if factors else ["y", "item"])


def error(est, rows):
    """Root mean square of the errors about tasks that were not fitted."""
    new = rows[rows["school"] >= M]
    return np.sqrt(np.mean((est.predict(features(new, est.factors)) - new["y"]) ** 2))


@pytest.mark.parametrize(
    ("epsilon", "most"), [(1.0, 0.97), (3.0, 0.9), pytest.param(None, 0.9, marks=pytest.mark.slow)]
)
def test_items_help_where_they_matter_and_else_do_no_harm(epsilon, most):
    for omega, high in ((1.0, most), (0.0, 1.03)):
        rows, effects = answers(1, omega)
        est = fitted(rows, epsilon)
        assert error(est, rows) < high * error(fitted(rows, epsilon, None), rows)
        if omega and epsilon != 1.0:
            found = est.factors_["item"]
            assert found["levels"].tolist() == NAMES
            assert np.corrcoef(found["effects"], effects)[0, 1] > 0.9
            assert 0.6 < found["spread"] < 1.7


def test_effects_without_a_budget_are_those_of_shrunk_indicators():
    """Of all rows at once, with indicator columns of tasks and items written out."""
    rng, m, n, k = np.random.default_rng(0), 60, 8, 12
    task, item = np.repeat(np.arange(m), n), rng.integers(k, size=m * n)
    X = rng.normal(size=(m * n, 1))
    y = rng.normal(size=m)[task] + 0.7 * rng.normal(size=k)[item] + rng.normal(size=m * n)
    levels = RowLevels(("item",), (np.arange(k),), item[:, None])
    table = TaskTable(X, y, n * np.arange(m + 1), np.arange(m), levels=levels)
    board = known_scales(k)
    tasks = TaskModels(table)
    omega2, sigma2, tau2 = 0.5, 1.0, 1.0
    question, v = AcrossStep(k, 1.0, False, False), np.zeros(k)
    counts = np.bincount(item, minlength=k)
    for _ in range(200):
        board.across.effects = v
        tasks._deviations = None
        sums = question.answer(tasks, board).sum(axis=0)
        v = (counts * v + sums) / (counts + sigma2 / omega2)
    Z = (task[:, None] == np.arange(m)).astype(float)
    of_items = (item[:, None] == np.arange(k)).astype(float)
    X = X / tasks.scale[task]
    covariance = sigma2 * np.eye(m * n) + tau2 * Z @ Z.T + omega2 * of_items @ of_items.T
    covariance += KAPPA[4] * (Z @ Z.T) * (X @ X.T)
    best = omega2 * of_items.T @ np.linalg.solve(covariance, y)
    assert_allclose(v, best, atol=1e-6)


def known_scales(k):
    """A model without slopes in common, of which every scale is known."""
    one = {"log_kappa": KAPPA, "log_sigma": SIGMA}
    at = {"log_kappa": 4, "log_sigma": int(np.flatnonzero(SIGMA == 1.0)[0])}
    one = {name: np.where(np.arange(len(g)) == at[name], 0.0, NEVER) for name, g in one.items()}
    public = {"width": 1.0, "middle": 0.0, "unit": 1.0, "scale_variance": np.zeros(2), **one}
    across = {"factors": [FactorEffects.none(RowFactor("item", list(range(k))))]}
    board = HierarchicalBillboard(1, 1.0, np.zeros(2), **public, **across)
    board.log_tau = np.where(board.tau == 1.0, 0.0, NEVER)
    return board


def test_new_items_have_no_effect_and_wider_intervals(tmp_path):
    """Of tasks with rows and without, also in a file."""
    rows, _ = answers(2, 2.0)
    est = fitted(rows, 20.0, uncertainty=True)
    save_billboard(est, tmp_path / "board.npz")
    other = load_billboard(tmp_path / "board.npz").set_params(unseen_task="mean")
    X = pd.DataFrame({"x": 0.0, "z": 0.0, "school": M, "item": [*NAMES[:3], "another"]})
    effects = np.append(est.factors_["item"]["effects"][:3], 0.0)
    for school, one in ((M, est), (M, other), (0, est)):
        X["school"] = school
        found = one.predict(X)
        assert_allclose(found - found[-1], effects, atol=1e-9)
        low, high = one.predict_interval(X, coverage=0.9).T
        assert (high - low)[-1] > 1.3 * (high - low)[:3].max()


def test_parts_on_a_disk_and_exported_models_have_effects(tmp_path):
    rng, item = np.random.default_rng(0), np.tile(np.arange(4), 60)
    task = np.repeat(np.arange(20), 12)
    X, y = np.c_[rng.normal(size=240), item], item + rng.normal(size=240)
    factors = {1: ("across", range(4))}
    est = PrivateMTL(epsilon=200.0, factors=factors, tasks=range(20), random_state=0)
    parts = write_parts(tmp_path, X, y, task, [range(12), range(12, 20)])
    whole, sharded = clone(est).fit(X, y, task=task), fit_shards(clone(est), parts)
    assert_allclose(sharded.billboard_.across.effects, whole.billboard_.across.effects)
    with pytest.raises(ValueError, match="across tasks.*without models="):
        fit_shards(clone(est), parts, models=tmp_path / "models")
    own = whole.export_task(3)
    found = own["intercept"] + X[36:48, :1] @ own["coef"] + own["factors"][1]["effects"][item[:12]]
    assert_allclose(whole.predict(X[36:48], task=task[36:48]), found)


@pytest.mark.parametrize(("tasks", "says"), [(M, "differ by about"), (30, "too few tasks")])
def test_the_report_says_what_was_found_of_the_factor(tasks, says):
    rows, _ = answers(4, 1.0)
    est = PrivateMTL(epsilon=3.0, factors=ACROSS, tasks=range(tasks), task_feature="school")
    rows = rows[rows["school"] < tasks]
    est.set_params(random_state=0).fit(features(rows), rows["y"])
    assert says in est.privacy_.found()["item"]
    assert est.privacy_.public_inputs["across"] == f"public, item of rows, {K} levels"


def test_targets_of_all_sizes_have_no_unit_and_no_effects():
    rng, task = np.random.default_rng(0), np.repeat(np.arange(60), 4)
    y = 10.0 ** rng.uniform(-12.0, 12.0, 60)[task] * rng.choice([-1.0, 1.0], 240)
    X = pd.DataFrame({"x": rng.normal(size=240), "item": np.tile(np.arange(4), 60)})
    settings = {"factors": {"item": ("across", range(4))}, "tasks": range(60)}
    units = set()
    for seed in range(8):
        est = PrivateMTL(epsilon=3.0, random_state=seed, **settings).fit(X, y, task=task)
        units.add(est.billboard_.unit)
        assert np.isfinite(est.predict(X, task=task)).all()
    assert None in units


def test_a_list_of_levels_is_public_or_the_fit_is_refused():
    rows, _ = answers(4, 1.0, n=2)
    rows["item"] = rows["item"].astype("category")
    with pytest.raises(ValueError, match=r'private rows.*\("across", levels\).*categories'):
        fitted(rows, 3.0, {"item": "across"})
    assert not hasattr(fitted(rows, None, {"item": "across"}), "classes_")


def test_spread_of_effects_has_the_largest_restricted_likelihood():
    """Of equal variances it is the variance between levels less that of a mean."""
    level, own = np.array([3.0, -1.0, 0.5, 2.0, -2.5]), np.full(5, 0.7)
    assert spread_of(level, own) ** 2 == pytest.approx(np.var(level, ddof=1) - 0.7, rel=1e-3)
    assert spread_of(0.1 * level, own) == 0.0


def test_counts_of_levels_are_shrunk_as_james_and_stein_do():
    """By 1 - (number - 1) (variance of noise) / (squared length), about the upper end of a mean."""
    apart = 4.0 * np.array([1.0, -1.0, 1.0, -1.0])
    found = count_of(40.0 + apart, 2.0, n_present=100.0)
    assert_allclose(found, 41.0 + (1.0 - 3.0 * 4.0 / 64.0) * apart)
    assert_allclose(count_of(40.0 + apart, 8.0, n_present=100.0), 44.0)


@pytest.mark.parametrize("kind", ["classes", "counts"])
@pytest.mark.parametrize("epsilon", [5.0, None])
def test_items_help_for_classes_and_counts(kind, epsilon):
    m, rng = 150, np.random.default_rng(0)
    item, task = np.tile(np.arange(20) % 3, m), np.repeat(np.arange(m), 20)
    score = np.array([-1.2, 0.0, 1.2])[item] + 0.3 * rng.normal(size=m)[task]
    X = np.c_[rng.normal(size=len(task)), item]
    given = {"factors": {1: ("across", range(3))}, "epsilon": epsilon, "tasks": range(m)}
    given["random_state"] = 0
    if kind == "classes":
        y = rng.random(len(task)) < 1.0 / (1.0 + np.exp(-score))
        est = PrivateMTLClassifier(classes=[False, True], **given)
    else:
        y, est = rng.poisson(np.exp(score)), PrivateMTL(loss="poisson", **given)
    found = est.fit(X, y, task=task).factors_[1]["effects"]
    assert_allclose(found, [-1.2, 0.0, 1.2], atol=0.45 if epsilon else 0.15)


def test_a_factor_above_and_one_across_stand_together():
    rows, effects = answers(5, 1.0)
    of = {t: f"d{t % 10}" for t in range(M + NEW)}
    move = np.random.default_rng(9).normal(size=10)
    rows["y"] += 2.0 * move[rows["school"] % 10]
    both = {"district": "above", **ACROSS}
    est = fitted(rows, 10.0, both, relation=of)
    assert np.corrcoef(est.factors_["item"]["effects"], effects)[0, 1] > 0.9
    assert np.corrcoef(est.factors_["district"]["effects"], move)[0, 1] > 0.9
    assert error(est, rows) < 0.85 * error(fitted(rows, 10.0), rows)
