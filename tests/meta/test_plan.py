"""Plans of private meta-learning against the formulas of their docstrings; no table is read."""

import math

import numpy as np
import pytest

from skpmtl import DPMetaInit, DPMetaInitClassifier
from skpmtl.exchange import Population
from skpmtl.meta import columns
from skpmtl.meta import plan as plans
from skpmtl.meta.plan import MetaPlan, poisson_multiplier
from skpmtl.meta.rules import course, task_weights
from skpmtl.privacy import gdp_mu
from skpmtl.tables.relation import read_relation

SIZES = np.array([12, 30, 7])
MU = gdp_mu(1.0, 1e-3)
REACH = {"replace-one": 2.0, "zero-out": 1.0}
FAR = math.sqrt(2.0 * 64 * math.log(2.0))  # tails of 2^-64


def plan_of(cls=DPMetaInit, sizes=SIZES, d=4, n_classes=0, **settings):
    given = {"epsilon": 1.0, "delta": 1e-3, "tasks": range(len(sizes)), "fit_intercept": False}
    given |= {"inner_steps": 5, "clip_norm": 0.5, "inner_learning_rate": 0.2}
    est = cls(**{**given, "meta_learning_rate": 0.7, **settings})
    return MetaPlan(est, Population(np.arange(len(sizes)), d, n_classes, np.array(sizes)))


@pytest.mark.parametrize("adjacency", REACH)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batches": "disjoint", "batch_size": 5, "visits": 3},
        {"group_size": 3},
        {"max_rows_per_unit": 7, "group_size": 3},
        {"privacy": "local", "sizes": np.full(4000, 9)},
    ],
)
def test_queries_on_columns_are_paid_for(adjacency, settings):
    """Squares of all ratios of sensitivity to noise add up to that of the budget."""
    given = {"sizes": SIZES, "adjacency": adjacency, "epsilon": 1e3, "delta": 1e-5, **settings}
    plan = plan_of(inner_learning_rate="auto", fit_intercept=True, **given)
    local, people = plan.mode == "local", "max_rows_per_unit" in settings
    reach = 2.0 if local else REACH[adjacency]
    for k in range(3):
        noise = [asked.noise_std[k] for asked in plan.columns]
        assert len(noise) == len(columns.PARTS)
        z = plan.noise_multiplier[k] / math.sqrt(plan.visits if local else plan.touches()[k])
        of_columns = np.linalg.norm(reach / np.array(noise))
        assert of_columns == pytest.approx(plan.record_mu * math.sqrt(columns.SHARE), rel=1e-6)
        assert math.hypot(of_columns, reach / z) == pytest.approx(plan.record_mu, rel=1e-6)
    factor = math.sqrt(2 * 9 + 1) if people else plan.group
    assert plan.record_mu == pytest.approx(gdp_mu(1e3, 1e-5) / factor)
    entries = plan.releases()[: len(plan.columns)]
    assert {entry["sensitivity"] for entry in entries} == {reach * plan.group}
    assert "found before the rounds" in plan.notes()["features"]
    for without in ({"feature_range": (0, 1)}, {"inner_learning_rate": 0.2}, {"epsilon": 0.01}):
        other = plan_of(**{"inner_learning_rate": "auto", **given, **without})
        assert not other.columns and other.step_mu == other.record_mu
    enough = plan_of(**{"inner_learning_rate": "auto", **given, "epsilon": 1.1 * other.asks_from})
    assert enough.columns, other.asks_from
    assert f"from about epsilon={other.asks_from:.2g}," in other.notes()["features"]


@pytest.mark.parametrize("adjacency", REACH)
@pytest.mark.parametrize("batches", ["full", "disjoint"])
@pytest.mark.parametrize("visits", [1, 3])
def test_noise_of_each_task(adjacency, batches, visits):
    batch = None if batches == "full" else 5
    plan = plan_of(adjacency=adjacency, batches=batches, batch_size=batch, visits=visits)
    n_batches = np.ones(3) if batch is None else np.ceil(SIZES / 5)
    uses = visits * np.ceil(5 / n_batches)
    z = REACH[adjacency] * np.sqrt(uses) / MU
    assert plan.mu == pytest.approx(MU) == pytest.approx(plan.record_mu)
    np.testing.assert_array_equal(plan.touches(), uses)
    np.testing.assert_allclose(plan.noise_multiplier, z)
    np.testing.assert_allclose(plan.noise_std, z * 0.5, rtol=1e-6)
    for k in range(3):
        told = plan.task(k)
        assert told["noise_multiplier"] == pytest.approx(z[k]) and told["visits"] == visits
        assert told["n_rows"] == SIZES[k] and told["steps"] == 5 * visits
        assert told["sampling_rate"] == pytest.approx(1.0 / n_batches[k])
        assert (told["epsilon"], told["delta"]) == (pytest.approx(1.0), 1e-3)
    # What is left of a number before rounding to the grid keeps its sensitivity.
    room = math.sqrt(4) * plan.noise_step / (REACH[adjacency] * 0.5)
    np.testing.assert_allclose(plan.shrink, 1.0 - room)
    # Weights: mean gradients with a variance of 1/4 beside the noise of all steps.
    variance = (z * n_batches / SIZES) ** 2 / 5
    np.testing.assert_allclose(plan.weights, task_weights(variance, 4))
    np.testing.assert_allclose(
        plan.weights * (1 / 16 + variance) / plan.weights[0], 1 / 16 + variance[0]
    )
    assert plan.weights.mean() == pytest.approx(1.0)
    assert [plan.steps_before(number) for number in range(plan.n_rounds)] == [
        5 * visit for visit in range(visits) for _ in range(plan.n_rounds // visits)
    ]
    entries = plan.releases()
    assert sum(entry["n_tasks"] for entry in entries) == 3
    for entry in entries:
        k = int(np.flatnonzero(np.isclose(z, entry["noise_multiplier"]))[0])
        assert entry["noise_std"] == pytest.approx(z[k] * 0.5, rel=1e-6)
        assert entry["times"] == 5 * visits and entry["n_batches"] == n_batches[k]
        assert entry["sensitivity"] == REACH[adjacency] * 0.5 and entry["sampling_rate"] == 1.0
        n = entry["n_tasks"]
        assert entry["name"] == f"{n} task{'s' if n > 1 else ''}"
        assert entry["statistic"] == "sum of clipped gradients"


def test_local_noise_is_for_any_two_data_sets_of_a_task():
    plan = plan_of(privacy="local", adjacency="zero-out", visits=4, delta=1e-5)
    assert plan.adjacency == "replace-one" and plan.reach == 2.0 and plan.unit == "task"
    np.testing.assert_allclose(plan.noise_multiplier, 2.0 * math.sqrt(4) / gdp_mu(1.0, 1e-5))
    told, (entry,) = plan.task(1), plan.releases()
    assert told["n_rows"] is None and told["sampling_rate"] is None  # the number of rows is private
    assert entry["times"] == 4 and entry["name"] == "3 tasks" and "n_batches" not in entry
    # One clipped and noised update: its bound is that of the clip and of the noise.
    far = plan.clip_norm + 2.0 * plan.noise_step + (2.0 + FAR) * plan.noise_std
    np.testing.assert_allclose(plan.longest_updates(), far)
    assert plan.longest == pytest.approx(far[0])


@pytest.mark.parametrize(
    ("cls", "n_classes", "numbers"), [(DPMetaInit, 0, 4), (DPMetaInitClassifier, 3, 12)]
)
@pytest.mark.parametrize("batches", [{}, {"batches": "disjoint", "batch_size": 5}])
def test_updates_are_as_long_as_clips_and_noise_make_them(cls, n_classes, numbers, batches):
    plan = plan_of(cls, n_classes=n_classes, visits=2, **batches)
    plan.noise_step = np.array([0.01, 0.02, 0.03])  # a coarse grid, so that rounding counts
    rows, root = SIZES // np.ceil(SIZES / 5) if batches else SIZES, math.sqrt(numbers)
    moved = 5 * (0.5 + root * plan.noise_step / rows)
    moved += math.sqrt(5) * (root + FAR) * plan.noise_std / rows
    np.testing.assert_allclose(plan.longest_updates(), 0.2 * plan.weights * moved)
    assert plan.longest == pytest.approx(plan.longest_updates().max())


def test_noise_over_the_way_of_full_batches_of_equal_tasks():
    """sqrt(d / m) / (n mu), and twice that where records are replaced."""
    for adjacency, factor in REACH.items():
        plan = plan_of(sizes=[20] * 9, adjacency=adjacency, delta=1e-5)
        expected = factor * math.sqrt(4 / 9) / (20 * gdp_mu(1.0, 1e-5))
        assert plan.noise_over_path == pytest.approx(expected, rel=1e-6)


def test_noise_over_the_way_of_updates_that_are_sent_once():
    """2 sqrt(d / m) / mu: of any two updates, whatever the number of rows."""
    for sizes in ([20] * 9, [3, 1000, 7]):
        plan = plan_of(sizes=sizes, privacy="local", delta=1e-5)
        expected = 2.0 * math.sqrt(4 / len(sizes)) / gdp_mu(1.0, 1e-5)
        assert plan.noise_over_path == pytest.approx(expected, rel=1e-6)


def test_without_a_budget_there_is_no_noise():
    plan = plan_of(epsilon=None)
    assert plan.noise_of_init() == 0.0 and plan.noise_over_path == 0.0 and plan.mode is None
    assert np.isinf(plan.longest_updates()).all() and plan.noise_multiplier is None
    told = plan.task(0)
    assert told["epsilon"] == math.inf and told["delta"] == told["noise_multiplier"] == 0.0
    assert told["n_rows"] == 12
    assert not plan.holds and plan_of(epsilon=None, inner_learning_rate="auto").holds
    assert not plan_of(inner_learning_rate="auto").holds


def test_poisson_batches():
    pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
    from skpmtl.privacy.sampling import poisson_epsilon

    plan = plan_of(batches="poisson", batch_size=10)
    np.testing.assert_allclose(plan.rates, [10 / 12, 10 / 30, 1.0])
    assert plan.mu is None and plan.n_batches.tolist() == [1, 1, 1]
    for z, rate in zip(plan.noise_multiplier, plan.rates, strict=True):
        spent = poisson_epsilon(z, 5, rate, 1e-3, plan.adjacency)
        assert spent <= 1.0 + 1e-6 and spent == pytest.approx(1.0, rel=1e-2)
    variance = (plan.noise_multiplier / np.minimum(10, SIZES)) ** 2 / 5
    np.testing.assert_allclose(plan.weights, task_weights(variance, 4))
    # A batch has more than its mean with probability 2^-64 only as Bernstein's inequality says.
    tail = 64 * math.log(2.0)
    most = np.minimum(SIZES, 10 + math.sqrt(2 * 10 * tail) + tail) / 10
    moved = 5 * (most * 0.5 + 2.0 * plan.noise_step / 10)
    moved += math.sqrt(5) * (2.0 + FAR) * plan.noise_std / 10
    np.testing.assert_allclose(plan.longest_updates(), 0.2 * plan.weights * moved)
    assert "probability 0.333333 to 1" in plan.scheme()
    assert plan.accountant() != plan_of().accountant()


@pytest.mark.parametrize("adjacency", REACH)
def test_a_persons_rows_pay_by_their_number_under_sampling(adjacency, monkeypatch):
    """Noise is the most that j rows need, which have j of the 4 shares, for j of 1 and 2."""
    asked = []

    def accountant(epsilon, delta, n_steps, rate, adjacency, group_size):
        asked.append((epsilon, delta, n_steps, rate, adjacency, group_size))
        return rate * group_size**2 / epsilon

    monkeypatch.setattr(plans, "poisson_multiplier", accountant)
    plan = plan_of(
        batches="poisson", batch_size=10, max_rows_per_unit=4, group_size=2, adjacency=adjacency
    )
    rates = sorted({10 / 12, 10 / 30, 1.0})
    expected = [(j / 4, j / 4 * 1e-3, 5, rate, adjacency, j) for rate in rates for j in (1, 2)]
    assert asked == expected
    np.testing.assert_allclose(plan.noise_multiplier, np.array([10 / 12, 10 / 30, 1.0]) * 8.0)


@pytest.mark.parametrize("adjacency", REACH)
def test_noise_for_groups_leads_over_the_data_without_them(adjacency, monkeypatch):
    """Two steps of half the budget each where records are replaced, if that is cheaper."""
    asked, factor = [], 0.1

    def noise(epsilon, delta, n_steps, rate, adjacency, group_size=1):
        if rate < 1.0:
            asked.append((epsilon, delta, adjacency, group_size))
        reach = (REACH[adjacency] if rate == 1.0 else factor) * group_size
        return reach * math.sqrt(n_steps) / gdp_mu(epsilon, delta)

    monkeypatch.setattr(plans, "poisson_noise", noise)
    search = poisson_multiplier.__wrapped__
    used = 3.0, 1e-4, "zero-out", 2
    if adjacency == "replace-one":
        used = 1.5, 1e-4 / (1.0 + math.exp(1.5)), "zero-out", 2
    found = search(3.0, 1e-4, 7, 0.1, adjacency, 2)
    assert asked == [used]
    assert found == pytest.approx(0.2 * math.sqrt(7) / gdp_mu(*used[:2]))
    factor = 100.0  # a detour that costs more than all records in each step do
    full = pytest.approx(2 * REACH[adjacency] * math.sqrt(7) / gdp_mu(3.0, 1e-4))
    assert search(3.0, 1e-4, 7, 0.1, adjacency, 2) == full
    assert search(3.0, 1e-4, 7, 1.0, adjacency, 2) == full


@pytest.mark.parametrize("mode", ["task-global", "local", None])
def test_updates_of_a_relation_move_all_starts_by_as_much(mode):
    """The gain makes of sum_k weight_k b_k (v_k move) the move, and of noise what is stated."""
    m, rng = 12, np.random.default_rng(0)
    facts = rng.normal(size=(m, 2))
    settings = {"privacy": "task-global" if mode is None else mode, "delta": 1e-5, "visits": 2}
    plan = plan_of(
        sizes=rng.integers(5, 40, size=m),
        relation=facts,
        fit_intercept=True,
        epsilon=None if mode is None else 300.0,
        target_range=(-1.0, 5.0),
        init={"coef": np.arange(4.0), "intercept": 1.5},
        **settings,
    )
    relation = read_relation(facts, np.arange(m), quiet=True)
    assert plan.relation.rank == 3
    b, v = relation.weights(np.arange(m)), relation.rows(np.arange(m))
    np.testing.assert_allclose(np.linalg.norm(plan.to, axis=1), np.linalg.norm(b, axis=1))
    moved = rng.normal(size=(3, 1, 5))
    sent = np.einsum("k,kr,kos->ros", plan.weights, plan.to, plan.starts(moved, slice(None)))
    np.testing.assert_allclose(np.tensordot(plan.gain, sent / m, axes=1), moved, atol=1e-9)
    np.testing.assert_allclose(
        plan.starts(moved, np.array([7, 2]))[1], np.tensordot(v[2], moved, 1)
    )
    # All tasks start from the public model, in units of half of the range about its middle.
    start = (np.append(np.arange(4.0), 1.5) - 2.0 * np.eye(5)[4]) / plan.target_scale
    np.testing.assert_allclose(plan.starts(plan.begin, slice(None))[:, 0], np.tile(start, (m, 1)))
    assert "public rows of the relation" in plan.notes()["relation"]
    assert "relation" not in plan_of().notes() | plan_of().public_inputs()
    assert "take columns as they are" in plan_of().notes()["features"]
    assert not {"features"} & {
        *plan_of(feature_range=(0, 1)).notes(),
        *plan_of(epsilon=None).notes(),
    }
    noise = plan.noise_of_init()
    if mode is None:
        assert noise.tolist() == [0.0] * 3
        return
    assert plan.public_inputs()["relation"] == plan.relation.describe()
    assert "noise over the longest path" not in plan.public_inputs()
    one = plan.noise_std**2
    if mode == "task-global":
        one = 5 * (0.2 * plan.noise_std / plan.sizes) ** 2
    left = 0.5 * -math.expm1(-2.0 * plan.gained) / (2.0 * plan.gained)
    each = (plan.to @ plan.gain.T) * plan.weights[:, None] / plan.tasks_per_round
    total = 2 * np.sum(each**2 * one[:, None], axis=0)
    np.testing.assert_allclose(noise, 5 * 0.7**2 * left * total)


@pytest.mark.parametrize("group, grid", [(1, 1.1), (2, 1.25)])
def test_many_rates_are_rounded_up_to_a_grid(group, grid, monkeypatch):
    """As many accountings as there are powers, each at the rate of its tasks or just above."""
    asked = []

    def accountant(epsilon, delta, n_steps, rate, adjacency, group_size):
        asked.append(rate)
        return rate

    monkeypatch.setattr(plans, "poisson_multiplier", accountant)
    sizes = np.arange(20, 80)
    plan = plan_of(sizes=sizes, batches="poisson", batch_size=5, group_size=group, delta=1e-5)
    rates = 5.0 / sizes
    assert (plan.noise_multiplier >= rates).all()
    assert (plan.noise_multiplier <= grid * rates * (1.0 + 1e-9)).all()
    assert len(asked) <= 2 + math.log(rates.max() / rates.min()) / math.log(grid)


# --------------------------------------------------------------------------- the rules
def course_of(mode="task-global", loss="squared", noise=0.05, rows=SIZES, size=4, **settings):
    given = {"fit_intercept": False, "tasks": range(len(rows))}
    return course(DPMetaInit(**{**given, **settings}), mode, loss, size, len(rows), noise)


def test_rounds_are_of_a_tenth_of_the_tasks_25_to_100():
    for m, per_round in ((3, 1), (250, 10), (251, 11), (400, 10), (5000, 50)):
        found = course_of(rows=[10] * m, tasks_per_round="auto")
        assert found.tasks_per_round == per_round, m
        assert found.n_rounds == math.ceil(m / per_round)
    assert course_of(tasks_per_round="all").tasks_per_round == 3
    assert course_of(tasks_per_round=2, visits=4).n_rounds == 4 * 2
    assert course_of(tasks_per_round=90).tasks_per_round == 3
    free = course_of(mode=None, tasks_per_round="auto", visits=2)
    assert (free.tasks_per_round, free.n_rounds, free.visits) == (3, 40, 40)
    assert free.inner_steps == 5 and free.meta_rate == 1.0 and free.inner_rate == "own"


@pytest.mark.parametrize(
    ("loss", "bound", "clipped"),
    [("squared", 1.0, 0.3), ("logistic", 0.25, 0.6), ("multinomial", 0.5, 0.6)],
)
@pytest.mark.parametrize("intercept", [False, True])
def test_rates_and_steps_minimise_the_error_that_is_left(loss, bound, clipped, intercept):
    """exp(-2u) + u noise^2 (1 - exp(-2u)) after u powers of e, over a grid of u up to 6."""
    m, noise, size = 40, 0.02, 5
    found = course_of(
        loss=loss, noise=noise, rows=[10] * m, size=size + intercept, fit_intercept=intercept
    )
    both = 2 if intercept else 1
    assert found.inner_rate == pytest.approx(1.0 / (bound * both))
    curvature = bound * clipped / size
    scaled = noise * 0.5 * math.sqrt(both) * bound / curvature / math.sqrt(2 * m)
    u = np.geomspace(0.01, 6.0, 100)
    error = np.exp(-2 * u) + u * scaled**2 * (1 - np.exp(-2 * u))
    folds = u[error.argmin()]
    assert found.least == pytest.approx(error.min())
    steps = folds / (found.inner_rate * curvature * found.n_rounds)
    steps = math.ceil(steps)
    assert found.inner_steps == min(max(steps, 1), 50)
    reach = found.n_rounds * found.inner_steps * found.inner_rate * curvature
    assert found.meta_rate == pytest.approx(min(1.0, folds / reach))
    gained = min(found.meta_rate * reach, 6.0)
    assert found.gained == pytest.approx(gained)
    left = math.exp(-2 * gained) + gained * scaled**2 * (1 - math.exp(-2 * gained))
    assert found.init_error == pytest.approx(left)


def test_local_steps_are_fifty_and_go_a_quarter_of_the_way_each():
    m, noise = 40, 0.3
    found = course_of(mode="local", noise=noise, rows=[1] * m)
    scaled = noise / math.sqrt(2 * m)
    u = np.geomspace(0.01, 6.0, 100)
    error = np.exp(-2 * u) + u * scaled**2 * (1 - np.exp(-2 * u))
    assert found.inner_steps == 50 and found.inner_rate == "own"
    reach = found.n_rounds / 4.0
    assert found.meta_rate == pytest.approx(min(1.0, u[error.argmin()] / reach))
    gained = found.meta_rate * reach
    assert found.gained == pytest.approx(min(gained, 6.0))
    left = math.exp(-2 * gained) + gained * scaled**2 * (1 - math.exp(-2 * gained))
    assert found.init_error == pytest.approx(left)
