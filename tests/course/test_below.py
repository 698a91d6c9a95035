"""A factor below tasks, such as classes of schools."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import xlogy
from sklearn.base import clone
from sklearn.metrics import log_loss

from benchmarks.accuracy.factors import below
from skpmtl import PrivateMTL, PrivateMTLClassifier, load_billboard, save_billboard
from skpmtl.course.billboard import HierarchicalBillboard
from skpmtl.course.personal import TaskModels
from skpmtl.course.queries import NEVER
from skpmtl.privacy import audit
from skpmtl.shards.fit import fit_shards
from skpmtl.tables.factors import RowLevels
from skpmtl.tables.table import TaskTable
from skpmtl.task.priors import KAPPA, RATIO, SIGMA
from tests.helpers.sites import write_parts

M, CLASSES = 100, 3
BELOW = {"class": "below"}


def fitted(rows, epsilon=3.0, seed=0, factors=BELOW, **more):
    est = PrivateMTL(epsilon=epsilon, factors=factors, random_state=seed, **more)
    est.set_params(tasks=range(M), task_feature="school")
    return est.fit(features(rows, factors), rows["y"])


def features(rows, factors=BELOW):
    return rows.drop(columns=["y"] if factors else ["y", "class"])


def error(est, rows):
    return np.mean((est.predict(features(rows, est.factors)) - rows["y"]) ** 2)


@pytest.mark.parametrize("epsilon", [3.0, None])
def test_classes_help_where_they_matter_and_else_do_no_harm(epsilon):
    for rho, most in ((1.0, 0.8), (0.0, 1.02)):
        here, same, other = below(1, rho)
        with_classes, without = (fitted(here, epsilon, factors=f) for f in (BELOW, None))
        assert error(with_classes, same) < most * error(without, same)
        assert error(with_classes, other) < 1.02 * error(without, other)


def test_effects_are_the_conditional_means_of_a_dense_normal():
    """Of one cell of every grid; model and effects given the rows of the task."""
    rng, n, d, ratio = np.random.default_rng(0), 12, 2, RATIO[4]
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    number = np.array([0, 0, 0, 2, 2, 1, 1, 1, 1, 1, 2, 0])
    levels = RowLevels(("class",), (np.array(["a", "b", "c"]),), number[:, None])
    table = TaskTable(X, y, np.array([0, n]), np.array([7]), levels=levels)
    one = {"log_kappa": KAPPA, "log_sigma": SIGMA, "log_ratio": RATIO}
    one = {name: np.where(np.arange(len(grid)) == 4, 0.0, NEVER) for name, grid in one.items()}
    public = {"width": 1.0, "middle": 0.3, "unit": 1.0, "scale_variance": np.zeros(2), **one}
    board = HierarchicalBillboard(1, 1.0, np.zeros(d + 1), below="class", **public)
    board.log_tau = np.where(board.tau == 1.0, 0.0, NEVER)
    board.log_components = np.array([NEVER, NEVER, 0.0])
    tasks = TaskModels(table)
    coef, intercept, extras = tasks.personal(board)
    F = np.c_[np.ones(n), X / tasks.scale]
    same = number[:, None] == np.arange(3)
    P = np.diag([1.0, *np.full(d, KAPPA[4] / d)])
    rho2 = ratio * SIGMA[4] ** 2
    V = F @ P @ F.T + rho2 * same @ same.T + SIGMA[4] ** 2 * np.eye(n)
    seen = np.linalg.solve(V, y - 0.3)
    model = P @ F.T @ seen
    known = extras["level_effects_"][0]
    assert known.levels.tolist() == ["a", "b", "c"]
    assert_allclose(coef[0], model[1:] / tasks.scale[0], rtol=1e-8)
    assert_allclose(intercept[0], 0.3 + model[0], rtol=1e-8)
    assert_allclose(known.effects, rho2 * same.T @ seen, rtol=1e-8)
    # Variances of predictions, by the model and by what is left of the effect.
    x = np.array([[0.4, -1.0, 1.0]])
    G = np.concatenate([P @ F.T, rho2 * same.T])
    prior = np.zeros((6, 6))
    prior[:3, :3], prior[3:, 3:] = P, rho2 * np.eye(3)
    joint = prior - G @ np.linalg.solve(V, G.T)
    to_model = np.diag([*(1.0 / tasks.scale[0]), 1.0])
    order = [1, 2, 0]
    covariance = to_model @ joint[np.ix_(order, order)] @ to_model
    for place, row in ((0, [1, 0, 0]), (2, [0, 0, 1])):
        f = np.array([1.0, *(x[0, :d] / tasks.scale[0]), *row])
        Z, left = known.known(np.array([place]), x)
        assert_allclose(Z @ covariance @ Z.T + left * SIGMA[4] ** 2, f @ joint @ f, rtol=1e-7)


def test_the_name_of_a_class_counts_within_its_task_alone():
    """Permuted in every task; and as numbers that are different everywhere."""
    here, same, _ = below(2, 1.0)
    expected = fitted(here).predict(features(same))
    for names in (
        lambda rows: rows["school"].to_numpy() * 3 + rows["class"].str[1:].astype(int),
        lambda rows: (rows["class"].str[1:].astype(int) + rows["school"]) % 3,
    ):
        found = fitted(here.assign(**{"class": names(here)}))
        moved = found.predict(features(same.assign(**{"class": names(same)})))
        assert_allclose(moved, expected, rtol=1e-7)


def test_intervals_hold_in_old_and_in_new_classes():
    here, same, other = below(3, 1.0)
    est = fitted(here, 20.0, uncertainty=True)
    widths = []
    for rows in (same, other):
        low, high = est.predict_interval(features(rows), coverage=0.9).T
        widths.append(np.median(high - low))
        held = np.mean((low < rows["y"]) & (rows["y"] < high))
        assert 0.86 < held < 0.96
    assert widths[1] > 1.2 * widths[0]


def test_new_tasks_and_files_have_effects_of_classes(tmp_path):
    here, same, _ = below(4, 1.0)
    est = fitted(here[here["school"] < 90])
    save_billboard(est, tmp_path / "board.npz")
    new = here["school"] >= 90
    other = load_billboard(tmp_path / "board.npz")
    for one in (est, other):
        one.personalize(features(here[new]), here["y"][new])
    rows = same[same["school"] >= 90]
    assert_allclose(est.predict(features(rows)), other.predict(features(rows)), rtol=1e-12)
    assert error(est, rows) < 1.5
    model, row = est.export_task(95), rows[rows["school"] == 95].iloc[:1]
    score = row[["x", "z"]].to_numpy() @ model["coef"] + model["intercept"]
    score += model["level_effects"][row["class"].iloc[0]]
    assert_allclose(est.predict(features(row)), score, rtol=1e-12)


def test_groups_of_tasks_are_found_with_classes():
    """Posterior probabilities of groups are those over all spreads of classes."""
    here, _, _ = below(8, 1.0)
    group = np.arange(M) % 2
    here["y"] += 3.0 * (2 * group - 1)[here["school"]] * here["x"]
    est = fitted(here, 30.0, structure="groups")
    own = est.membership_[:, :2]
    assert len(est.groups_["counts"]) == 2
    assert_allclose(est.membership_.sum(axis=1), 1.0)
    assert max(np.mean(own.argmax(axis=1) == part) for part in (group, 1 - group)) > 0.95


def test_the_report_and_the_summary_name_the_factor():
    est = fitted(below(5, 1.0)[0], None, standard_errors=True)
    spread = est.factors_["class"]["spread"]
    assert 0.5 < spread < 2.0
    assert "differ within a task by about" in est.privacy_.found()["class"]
    stds = est.summary().variance_frame()["std"]
    assert_allclose(stds["class"], spread)
    dof = M * (CLASSES * 10 - 3 - CLASSES)  # of rows beside the model and the classes of a task
    assert abs(stds["residual"] - 1.0) < 3.0 / np.sqrt(2.0 * dof)
    few = fitted(below(5, 1.0)[0], 0.3)
    assert "times the standard deviation of a row" in few.privacy_.found()["class"]
    assert not hasattr(few, "factors_")


def test_a_task_alone_shrinks_its_classes_without_any_release():
    here, same, _ = below(6, 2.0)
    est = fitted(here, 0.01)
    without = fitted(here, 0.01, factors=None)
    assert error(est, same) < 0.5 * error(without, same)


def test_parts_of_a_table_give_the_same_fit(tmp_path):
    here, same, _ = below(7, 1.0)
    columns = here[["x", "z"]].to_numpy(), here["class"].str[1:].astype(float)
    X, y, task = np.c_[columns], here["y"].to_numpy(), here["school"].to_numpy()
    est = PrivateMTL(epsilon=3.0, factors={2: "below"}, tasks=range(M), random_state=0)
    parts = write_parts(tmp_path, X, y, task, [range(60), range(60, M)])
    whole, sharded = clone(est).fit(X, y, task=task), fit_shards(clone(est), parts)
    found, expected = (one.predict(X, task=task) for one in (sharded, whole))
    assert_allclose(found, expected, rtol=1e-9)
    with pytest.raises(ValueError, match="without models="):
        fit_shards(clone(est), parts, models=tmp_path / "models")


def test_names_of_levels_stay_with_their_task():
    """Text of numpy is as wide as the longest of all."""
    rows = below(1, 1.0, 30)[0]
    other = rows.copy()
    other.loc[rows["school"] == 3, "class"] = "the only class with a name of so many letters"
    est = PrivateMTL(epsilon=50.0, factors=BELOW, tasks=range(30), task_feature="school")
    pair = [(features(table), table["y"]) for table in (rows, other)]
    result = audit(est, *pair, n_draws=0)
    assert result.passed, str(result)


@pytest.mark.parametrize("loss", ["classes", "three classes", "poisson"])
def test_classes_and_counts_have_effects_below_tasks(loss):
    """Losses over those without: in old classes less, in new ones no more; spreads are found.

    At a budget of which the noise moves losses of new classes by .001, over 8 draws.
    """
    rng, is_class = np.random.default_rng(0), loss != "poisson"
    m, rho = (40, 2.0) if loss == "three classes" else (M, 1.0)
    frames = below(1, rho, m)
    for rows in frames:
        score = rows["y"] - 20.0  # with normal noise of one
        if loss == "three classes":
            scores = np.outer(score, [0.0, 1.5, -1.5]) + rng.gumbel(size=(len(rows), 3))
            rows["y"] = scores.argmax(axis=1)
        else:
            rows["y"] = score > 0.0 if is_class else rng.poisson(np.exp(0.5 * score))
    one = {"epsilon": 1000.0, "tasks": range(m), "task_feature": "school", "random_state": 0}
    losses, spread = [], 1.7 if is_class else 0.5  # logit for probit; half of the score
    for factors in (BELOW, None):
        if is_class:
            classes = range(2 + (loss == "three classes"))
            est = PrivateMTLClassifier(factors=factors, classes=classes, **one)
        else:
            est = PrivateMTL(loss=loss, factors=factors, **one)
        est.fit(features(frames[0], factors), frames[0]["y"])
        for rows in frames[1:]:
            X = features(rows, factors)
            if is_class:
                losses.append(log_loss(rows["y"], est.predict_proba(X)))
            else:
                rate = est.predict(X)
                y = rows["y"]
                losses.append(np.mean(xlogy(y, y) - xlogy(y, rate) - y + rate))
        if factors:
            if loss == "three classes":  # what scores have in common means nothing
                of_first = est.level_effects_[0].effects
                assert_allclose(of_first.sum(axis=1), 0.0, atol=0.02)  # precision of modes
                assert_allclose(of_first[:, 1] > 0.0, of_first[:, 2] < 0.0)
            else:
                assert 0.7 * spread < est.factors_["class"]["spread"] < 1.4 * spread
            row = frames[1].iloc[[7]]
            model = est.export_task(row["school"].iloc[0])
            score = row[["x", "z"]].to_numpy() @ model["coef"].T + model["intercept"]
            score += model["level_effects"][row["class"].iloc[0]]
            found = est.decision_function(features(row)) if is_class else est.predict(features(row))
            found = found if is_class else np.log(found)
            assert_allclose(found, score, rtol=1e-9)
    same, new, *without = losses
    assert same < 0.92 * without[0]
    assert new < 1.01 * without[1]
