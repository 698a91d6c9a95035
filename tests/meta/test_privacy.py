"""What DPMetaInit discloses of one record: sensitivity, calibration, noise, report, audits."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import DPMetaInit, DPMetaInitClassifier
from skpmtl.exchange import Population
from skpmtl.meta.plan import MetaPlan
from skpmtl.privacy import PrivacyLeakWarning
from skpmtl.privacy.costs import epsilon_of_tape
from skpmtl.privacy.tape import Tape
from skpmtl.tables.forms import read_training
from tests.helpers import plain_reptile as plain
from tests.helpers.plain_reference import listed_classes

SIZES = (12, 30, 7)
TASK = np.repeat(np.arange(3), SIZES)
BATCHES = {
    "full": {},
    "disjoint": {"batches": "disjoint", "batch_size": 5},
    "poisson": {"batches": "poisson", "batch_size": 5},
}


@pytest.fixture(params=BATCHES)
def batches(request):
    if request.param == "poisson":
        pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    return BATCHES[request.param]


# What is released is a sum of clipped gradients, up to public factors.
STEP = {"inner_steps": 1, "meta_learning_rate": 1.0, "tasks_per_round": "all", "clip_norm": 0.7}
STEP |= {"fit_intercept": False, "refine": "sgd"}


def rows(seed=0, d=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(len(TASK), d))
    return X, X[:, 0] + 0.3 * rng.normal(size=len(TASK))


def estimator(cls=DPMetaInit, **parameters):
    settings = {"epsilon": 1.0, "delta": 1e-3, "tasks": [0, 1, 2], "inner_steps": 4}
    if cls._classification:
        settings["classes"] = [0, 1]
    return cls(**{**settings, **parameters})


def fit(cls=DPMetaInit, seed=0, **parameters):
    X, y = rows(seed)
    target = y if cls is DPMetaInit else (y > 0).astype(int)
    return estimator(cls, **parameters).fit(X, target, task=TASK)


# ------------------------------------------------------------------------ calibration
@pytest.mark.parametrize("privacy", ["task-global", "local"])
def test_whole_numbers_stay_exact_at_next_to_no_noise(privacy):
    """The grid is that of the largest sum of clipped gradients, or of one clipped update."""
    est = estimator(epsilon=1e40, clip_norm=3.0, privacy=privacy)
    plan = MetaPlan(est, Population(np.arange(3), 4, 0, np.array(SIZES)))
    largest = 3.0 * (np.array(SIZES) if privacy == "task-global" else np.ones(3))
    steps = largest / plan.noise_step
    assert (2.0**50 < steps).all() and (steps <= 2.0**51).all()
    moved = math.sqrt(plan.size) * plan.noise_step  # by rounding
    np.testing.assert_allclose(1.0 - plan.shrink, moved / (plan.reach * 3.0), rtol=0.1)


def test_sampled_noise():
    """Losses convolved in numpy; no library of theirs or ours takes part."""
    pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    X = np.ones((len(TASK), 2))
    given = {"adjacency": "zero-out", "inner_steps": 3, "epsilon": 2.0, **BATCHES["poisson"]}
    est = estimator(**given).fit(X, X[:, 0], task=TASK)
    for k, n in enumerate(SIZES):
        told = est.task_privacy(k)
        rate = min(1.0, 5 / n)
        assert told["sampling_rate"] == pytest.approx(rate) and told["steps"] == 3
        run = [(rate, told["noise_multiplier"], 1, 3)]
        # The claim holds, and the noise is not 3 % of epsilon too much.
        assert plain.sampled_delta(2.0, "zero-out", run, h=5e-4, side="below") <= 1e-3
        assert plain.sampled_delta(1.94, "zero-out", run, h=5e-4) > 1e-3
        # Taking every record would need more.
        mu = math.sqrt(3) / told["noise_multiplier"]
        assert plain.gaussian_delta(mu, 2.0) >= 1e-3 * (1 - 1e-4)


def test_sampled_noise_covers_a_person_with_rows_in_two_tasks():
    pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    X = np.ones((len(TASK), 2))
    given = {"adjacency": "zero-out", "inner_steps": 3, "epsilon": 2.0, **BATCHES["poisson"]}
    est = estimator(max_rows_per_unit=2, **given)
    told = est.fit(X, X[:, 0], task=TASK, unit=np.arange(len(X))).task_privacy
    runs = [(5 / SIZES[k], told(k)["noise_multiplier"], 1, 3) for k in (0, 2)]
    assert plain.sampled_delta(2.0, "zero-out", runs) <= 1e-3


@pytest.mark.parametrize("bound, group", [(1, 1), (3, 1), (3, 2), (7, 2), (5, 5)])
def test_persons_with_rows_in_several_tasks(bound, group):
    """Any way to spread `bound` rows over tasks, `group` at most in each, is within budget."""
    X, y = rows()
    steps = {"inner_learning_rate": 0.5}  # without queries on columns
    est = estimator(max_rows_per_unit=bound, group_size=group, adjacency="zero-out", **steps)
    est.fit(X, y, task=TASK, unit=np.arange(len(X)))
    assert est.privacy_.unit == "person"
    assert est.privacy_.epsilon == pytest.approx(1.0, rel=1e-9)
    z = est.task_privacy(0)["noise_multiplier"]
    assert est.task_privacy(1)["noise_multiplier"] == pytest.approx(z)
    spent = []
    for rows_of in itertools.product(range(group + 1), repeat=bound):
        if sum(rows_of) <= bound and any(rows_of):
            mu = math.sqrt(4) / z * math.hypot(*rows_of)
            spent.append(plain.gaussian_delta(mu, 1.0))
    assert max(spent) == pytest.approx(1e-3, rel=1e-4)
    assert max(spent) <= 1e-3 * (1 + 1e-9)


# -------------------------------------------------------- same noise, one record changed
EXTREMES = {
    "flip": (np.array([50.0, 0, 0, 0]), 1e4),
    "huge": (np.array([1e12, -1e12, 1e12, 1e12]), -1e12),
    "overflow": (np.array([1e200, 1e300, 0, 0]), 1e250),
    "tiny": (np.full(4, 1e-9), 1e9),
    "zero": (np.zeros(4), 0.0),
}


@pytest.mark.parametrize(
    ("how", "kind", "intercept"),
    [("full", "real", True), ("disjoint", "multi", False), ("poisson", "binary", True)],
)
def test_the_first_noisy_sum_moves_by_the_stated_sensitivity(how, kind, intercept):
    """The released initialisation after one step is the sum, up to public factors."""
    if how == "poisson":
        pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    batches = BATCHES[how]
    cls = DPMetaInit if kind == "real" else DPMetaInitClassifier
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(30, 4)), np.repeat(np.arange(3), 10)
    y = {"real": X[:, 0], "binary": (X[:, 0] > 0).astype(int), "multi": np.arange(30) % 3}[kind]
    clip, rate, at = STEP["clip_norm"], 0.05, 14  # of task 1
    batch = {"full": 10, "disjoint": 5, "poisson": 5}[batches.get("batches", "full")]
    given = {"inner_learning_rate": rate, "fit_intercept": intercept, "epsilon": 4.0}
    est = estimator(cls, **{**STEP, **given, **batches, **listed_classes(cls, y)})

    def released(x, target, seed):
        A, t = X.copy(), y.copy()
        A[at], t[at] = x, target
        est.set_params(random_state=seed).fit(A, t, task=task)
        return np.append(np.ravel(est.init_coef_), np.ravel(est.init_intercept_))

    moves = []
    for seed in range(4):
        x, target = EXTREMES["flip"]
        first = released(x, target if kind == "real" else 1, seed)
        for x, target in EXTREMES.values():
            for sign in (-1, 1):
                other = released(sign * x, target if kind == "real" else 0, seed)
                moves.append(np.linalg.norm(other - first))
    moves = np.array(moves) * 3 * batch / rate
    assert 1.2 * clip < moves.max() <= 2 * clip * (1 + 1e-6)


@pytest.mark.parametrize("k", [2, 5])
def test_groups_of_records_move_the_sum_by_their_number(k):
    X, y = np.zeros((10, 3)), np.zeros(10)
    given = {"tasks": [0], "random_state": 0, "inner_learning_rate": 0.1, "group_size": k}
    est = estimator(**{**STEP, **given})
    found = []
    for sign in (-1, 1):
        X[:k, 0], y[:k] = 1.0, sign * 1e6
        found.append(est.fit(X, y, task=np.zeros(10, dtype=int)).init_coef_ * 10 / 0.1)
    assert np.linalg.norm(found[1] - found[0]) == pytest.approx(2 * k * 0.7, rel=1e-5)


@pytest.mark.parametrize("privacy", ["task-global", "local"])
def test_rounding_to_a_coarse_grid_stays_within_the_bound(privacy):
    """Next to no budget: a step of the grid is a good part of the bound, and sums make room."""
    clip, tape = 1.0, Tape()
    given = {"epsilon": 1e-9, "delta": 6e-8, "inner_learning_rate": 1e9, "inner_steps": 1}
    given |= {"tasks": [0], "clip_norm": clip, "fit_intercept": False, "random_state": 0}
    est = estimator(privacy=privacy, **given)
    plan = MetaPlan(est, Population(np.zeros(1, dtype=int), 2, 0, np.array([1])))
    assert plan.noise_step[0] in (0.25 * clip, 0.5 * clip)
    sent = []
    with tape.running():
        for angle in np.linspace(0.0, 2 * math.pi, 25):
            x = 9.0 * np.array([[math.cos(angle), math.sin(angle)]])
            est.fit(x, [9.0], task=[0])
            released = tape.releases[-1].reply
            sent.append(np.ravel(released["sums" if privacy == "task-global" else "update"]))
    moved = [np.linalg.norm(a - b) for a, b in itertools.combinations(sent, 2)]
    assert clip < max(moved) <= 2 * clip


@pytest.mark.parametrize("cls", [DPMetaInit, DPMetaInitClassifier])
def test_a_local_update_is_bounded_as_a_whole(cls):
    """Task level: all rows of a task change, the initialisation moves by 2 clip over m."""
    X, y = rows()
    y = y if cls is DPMetaInit else (y > 0).astype(int)
    given = {"clip_norm": 0.3, "inner_steps": 10, "inner_learning_rate": 0.5, "random_state": 1}
    given |= {"fit_intercept": True, "refine": "prox"}
    est = estimator(cls, privacy="local", **{**STEP, **given})
    found = []
    for scale in (1.0, -1.0, 1e3, 1e9, 0.0):
        A, t = X.copy(), y.copy()
        A[TASK == 1] *= scale
        t[TASK == 1] = t[TASK == 1] if cls is DPMetaInitClassifier else 5 * t[TASK == 1]
        # The number of rows is the task's own business too.
        few = (TASK != 1) | (np.arange(len(X)) < SIZES[0] + (2 if scale == 1e3 else 30))
        est.fit(A[few], t[few], task=TASK[few])
        found.append(3 * np.append(est.init_coef_, est.init_intercept_))
    moved = [np.linalg.norm(a - b) for a, b in itertools.combinations(found, 2)]
    assert 0.3 < max(moved) <= 0.6 * (1 + 1e-6)


# ----------------------------------------------------------------------------- the noise
@pytest.mark.parametrize("steps", [1, 3])
def test_the_noise_has_the_stated_size(batches, steps):
    """Rows and targets of zero send nothing: the released numbers are noise alone."""
    n, d, rate = 11, 6000, 0.2
    X, y = np.zeros((n, d)), np.zeros(n)
    given = {"inner_steps": steps, "inner_learning_rate": rate, "meta_learning_rate": 0.5}
    est = estimator(**{**STEP, **given, "tasks": [0], **batches})
    est.fit(X, y, task=np.zeros(n, dtype=int))
    z = est.task_privacy(0)["noise_multiplier"]
    sizes = {"full": [n], "disjoint": [4, 4, 3], "poisson": [5]}[batches.get("batches", "full")]
    divisor = np.array([sizes[t % len(sizes)] for t in range(steps)])
    std = 0.5 * rate * 0.7 * z * np.linalg.norm(1.0 / divisor)
    assert np.std(est.init_coef_) == pytest.approx(std, rel=6.0 / math.sqrt(2 * d))
    assert abs(np.mean(est.init_coef_)) < 6.0 * std / math.sqrt(d)


def test_tasks_and_visits_have_noise_of_their_own():
    """Mean of m tasks, V visits: the variances add; equal noise would not shrink."""
    m, V, d = 8, 2, 3000
    task = np.repeat(np.arange(m), 5)
    given = {"tasks": range(m), "clip_norm": 1.0, "visits": V, "inner_learning_rate": 1.0}
    est = estimator(**{**STEP, **given})
    est.fit(np.zeros((5 * m, d)), np.zeros(5 * m), task=task)
    std = est.task_privacy(3)["noise_multiplier"] / 5 * math.sqrt(V / m)
    assert np.std(est.init_coef_) == pytest.approx(std, rel=6.0 / math.sqrt(2 * d))


@pytest.mark.parametrize("visits", [1, 3])
def test_local_noise(visits):
    """sigma = 2 clip sqrt(visits) / mu: any two data sets of a task."""
    m, d = 3, 6000
    est = estimator(**{**STEP, "privacy": "local", "inner_steps": 2, "visits": visits})
    est.fit(np.zeros((len(TASK), d)), np.zeros(len(TASK)), task=TASK)
    sigma = np.std(est.init_coef_) * math.sqrt(m / visits)
    spent = plain.gaussian_delta(2 * 0.7 * math.sqrt(visits) / sigma, 1.0)
    expected = 2 * 0.7 * math.sqrt(visits) / _mu(1.0, 1e-3)
    assert sigma == pytest.approx(expected, rel=6.0 / math.sqrt(2 * d)), spent
    assert est.privacy_.unit == "task" and "local" in est.privacy_.guarantee


def _mu(epsilon, delta):
    from scipy.optimize import brentq

    return brentq(lambda mu: plain.gaussian_delta(mu, epsilon) - delta, 1e-3, 30, xtol=1e-14)


# --------------------------------------------------------------------------- the report
def test_the_report_of_groups_persons_and_none():
    assert fit(group_size=3).privacy_.unit in ("3 records", "k records")
    assert "3" in fit(group_size=3).privacy_.text(None)
    for parameters in ({"epsilon": None}, {"epsilon": math.inf}, {"privacy": None}):
        nothing = fit(**parameters).privacy_
        assert nothing.guarantee == "none" and nothing.epsilon == math.inf
        assert "NO" in nothing.text(None)
        assert fit(**parameters).task_privacy(0)["epsilon"] == math.inf
    X, y = rows()
    est = estimator(max_rows_per_unit=3, group_size=2)
    report = est.fit(X, y, task=TASK, unit=np.arange(len(X))).privacy_
    assert report.unit == "person"
    assert report.public_inputs["max_rows_per_unit"] == 3
    local = fit(privacy="local").privacy_
    assert "local DP per task" in local.guarantee and local.unit == "task"


# ------------------------------------------------------------------------ Poisson batches
@pytest.mark.parametrize("seed", [None, 0])
def test_a_record_is_in_a_private_batch_by_its_own_secret_draw(monkeypatch, seed):
    """Unit rows make a batch visible: number i of a released sum is -clip_norm for record i.

    Draws are independent over records, steps, visits and tasks; the accounting rests on it.
    """
    monkeypatch.setattr("skpmtl.meta.plan.poisson_multiplier", lambda *given: 1e-9)
    monkeypatch.setattr("skpmtl.meta.plan.accountant_name", lambda: "none")
    n, tape = 100, Tape()
    given = {"inner_steps": 5, "visits": 4, "clip_norm": 0.5, "inner_learning_rate": 1e-9}
    given |= {"fit_intercept": False, "refine": "sgd", "random_state": seed}
    est = DPMetaInit(tasks=[0, 1], batches="poisson", batch_size=25, **given)
    with tape.running():
        est.fit(np.tile(np.eye(n), (2, 1)), np.ones(2 * n), task=np.repeat([0, 1], n))
    made = [r.reply["sums"][:, :, 0] for r in tape.releases if len(r.values)]
    inside = -2.0 * np.concatenate([sums.reshape(-1, n) for sums in made])
    assert inside.shape == (2 * 4 * 5, n)
    assert_allclose(inside, np.rint(inside), atol=1e-6)
    assert set(np.rint(inside).ravel()) == {0.0, 1.0}
    deviation = math.sqrt(0.25 * 0.75)
    assert abs(inside.mean() - 0.25) < 5.0 * deviation / math.sqrt(inside.size)
    assert np.abs(inside.mean(axis=0) - 0.25).max() < 6.0 * deviation / math.sqrt(len(inside))
    pairs = np.corrcoef(inside)[np.triu_indices(len(inside), 1)]
    assert np.abs(pairs).max() < 6.0 / math.sqrt(n)


# ------------------------------------------------------------------------- whose rows
def test_a_row_of_a_wide_table_is_in_several_tasks():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 3)), rng.standard_normal((30, 4))
    with pytest.warns(PrivacyLeakWarning, match="max_rows_per_unit"):
        est = DPMetaInit(tasks=range(4)).fit(X, Y)
    assert "2-D y" in est.privacy_.notes["records"]
    person = DPMetaInit(tasks=range(4), max_rows_per_unit=4).fit(X, Y, unit=range(30))
    assert person.privacy_.unit == "person"
    # Four tasks of one person share the budget: twice the noise in each.
    ratio = person.task_privacy(0)["noise_multiplier"] / est.task_privacy(0)["noise_multiplier"]
    steps = person.task_privacy(0)["steps"] / est.task_privacy(0)["steps"]
    assert ratio == pytest.approx(2 * np.sqrt(steps), rel=1e-9)


def test_a_task_side_counts_the_rows_of_persons():
    """Wherever rows are: a report of persons holds only if somebody looked who owns what."""
    X, y = rows()
    table, _ = read_training(DPMetaInit(), X, y, TASK)
    population = Population.of(table)
    est = estimator(max_rows_per_unit=3, privacy="task-global")
    assert est._planned_report(population).unit == "person"
    with pytest.raises(ValueError, match="max_rows_per_unit=3 needs unit="):
        est._task_side(table, population)
    assert estimator()._task_side(table, population).plan.group == 1


def test_units_of_a_mapping_come_as_a_mapping():
    rng = np.random.default_rng(1)
    X = {"b": rng.standard_normal((5, 2)), "a": rng.standard_normal((7, 2))}
    y = {task: rows[:, 0] for task, rows in X.items()}
    unit = {"b": list("uvwxy"), "a": list("pqppqrs")}  # p has three rows in a
    est = DPMetaInit(tasks=["a", "b"], max_rows_per_unit=4, group_size=2)
    with pytest.raises(ValueError, match="'p' has 3 rows in task 'a'"):
        est.fit(X, y, unit=unit)
    with pytest.raises(ValueError, match="mapping"):
        est.fit(X, y, unit=unit["b"] + unit["a"])
    with pytest.raises(ValueError, match="each row of each task"):
        est.fit(X, y, unit={"b": unit["a"], "a": unit["b"]})
    est.set_params(group_size=3).fit(X, y, unit=unit)
    assert est.privacy_.unit == "person"


def test_queries_on_columns_and_steps_cost_the_budget_together():
    rng = np.random.default_rng(0)
    task, X = np.repeat(np.arange(20), 30), rng.normal(size=(600, 2))
    with Tape().running() as tape:
        est = DPMetaInit(epsilon=4.0, delta=1e-5, tasks=range(20)).fit(X, X[:, 0], task=task)
    text = " ".join(str(est.privacy_).split())
    assert "1 by each of 20 tasks" in text and "of 40 tasks" not in text
    assert 3.99 < epsilon_of_tape(est.privacy_, tape, est) <= 4.0 * (1 + 1e-6)
