"""Plans of output perturbation against the bounds that they are derived from."""

import math

import numpy as np
import pytest

from skpmtl.exchange import Population
from skpmtl.privacy import compose_gdp, gdp_epsilon, gdp_mu
from skpmtl.privacy.accounting import group_privacy, pure_epsilon, record_budget
from skpmtl.reproduction import DPAggregation, DPAggregationClassifier, DPRelationship
from skpmtl.reproduction.output_perturbation.plan import AggregationPlan, RelationshipPlan

REACH = {"replace-one": 2.0, "zero-out": 1.0}
BOUNDS = {"max_row_norm": 1.0, "max_target": 2.0, "lam": 0.5}
SIZES = np.array([4, 10, 0])
GAP = 1e-6


def plan_of(cls=DPAggregation, sizes=SIZES, n_tasks=3, **settings):
    settings = {"epsilon": 1.0, "delta": 1e-5, "guarantee": "record", **BOUNDS, **settings}
    if cls is DPAggregationClassifier:
        del settings["max_target"]
    est = cls(**settings)
    family = RelationshipPlan if cls is DPRelationship else AggregationPlan
    sizes = None if sizes is None else np.array(sizes)
    return family(est, Population(np.arange(n_tasks), 3, 0, sizes))


@pytest.mark.parametrize("adjacency", REACH)
@pytest.mark.parametrize("intercept", [False, True])
def test_a_record_moves_a_model_by_its_gradient_over_rows_and_strength(adjacency, intercept):
    """L / (n lam) for each of the two records that differ; nothing without rows."""
    plan = plan_of(adjacency=adjacency, fit_intercept=intercept, mechanism="gaussian")
    radius = math.sqrt(2.0) if intercept else 1.0
    slope = 2.0  # |y| at a centre of 0
    distance = min(radius * slope / 0.5, math.sqrt(slope**2 / 4.0 / 0.5))
    lipschitz = radius * (2.0 + radius * distance)
    influence = lipschitz / (np.array([4.0, 10.0, math.inf]) * 0.5)
    reach = plan.reach(np.zeros(3))
    np.testing.assert_allclose(reach.limit, distance + GAP * influence)
    np.testing.assert_allclose(reach.gradient, GAP * influence * 0.5)
    expected = np.minimum((REACH[adjacency] + 2 * GAP) * influence, 2 * reach.limit)
    np.testing.assert_allclose(reach.record, expected)
    np.testing.assert_allclose(reach.sensitivity, expected)
    (entry,) = plan.releases()
    assert entry["sensitivity"] == pytest.approx(expected.max() / 3)
    assert entry["mu"] == pytest.approx(gdp_mu(1.0, 1e-5))
    assert plan.mechanisms[0].shape == (4 if intercept else 3,)
    # Around other centres gradients are larger, and few rows are bounded by the way itself.
    far = plan.reach(np.array([5.0, 0.0, 0.0]))
    assert far.limit[0] > reach.limit[0] and far.limit[1] == reach.limit[1]
    one = plan_of(sizes=[1, 1, 1], adjacency=adjacency, mechanism="gaussian").reach(np.zeros(3))
    np.testing.assert_allclose(one.record, np.minimum(one.record, 2 * one.limit))
    clipped = plan_of(clip_norm=0.1, adjacency=adjacency).reach(np.zeros(3))
    assert set(clipped.limit) == {0.1} and clipped.record.max() <= 0.2
    sparse = plan_of(cls=DPAggregationClassifier, adjacency=adjacency, fit_intercept=False)
    limit = sparse.reach(np.zeros(3)).limit  # (1/2 of the largest row) / lam, at a centre of 0
    assert limit[2] == pytest.approx(min(0.5 / 0.5, math.sqrt(0.2784645427610738 / 0.5)))


def test_gaussian_noise_of_records_and_of_groups():
    """mu of a group is so many times that of a record; a task has at most 6 rows here."""
    mu = gdp_mu(1.0, 1e-5)
    record = plan_of(mechanism="gaussian")
    assert record.mu == pytest.approx(mu) and record.size == 1 and not record.grouped
    assert record.guarantee == "record DP" and record.record == (1.0, 1e-5)
    task = {"guarantee": "task", "max_task_rows": 10, "epsilon": 1.0, "delta": 1e-5}
    gaussian = plan_of(group="gaussian", **task)
    assert gaussian.kind == "gaussian" and gaussian.mu == pytest.approx(mu)
    assert gaussian.size == 10 and gaussian.grouped
    assert gaussian.record[0] == pytest.approx(gdp_epsilon(mu / 10, 1e-5))
    assert gaussian.notes()["epsilon_exact"] == pytest.approx(1.0)
    np.testing.assert_allclose(
        gaussian.reach(np.zeros(3)).sensitivity, 10 * gaussian.reach(np.zeros(3)).record
    )
    for group in ("published", "tight"):
        plan = plan_of(group=group, mechanism="gaussian", **task)
        assert plan.record == record_budget(1.0, 1e-5, 10, group)
        assert plan.mu == pytest.approx(10 * gdp_mu(*plan.record))
        spent = plan.notes()["epsilon_exact"]
        assert spent == pytest.approx(gdp_epsilon(plan.mu, 1e-5)) and spent < 1.0
        assert plan.notes()["group"].startswith(f"{group} group privacy for 10 records")
        epsilon, delta = group_privacy(*plan.record, 10)
        assert epsilon <= 1.0 + 1e-12 and delta <= 1e-5 * (1 + 1e-12)
    servers = DPAggregation(
        mechanism="gaussian",
        guarantee="record",
        epsilon=1.0,
        delta=1e-5,
        curator="servers",
        **BOUNDS,
    )
    servers = AggregationPlan(servers, Population(np.arange(3), 3, 0, SIZES))
    assert servers.n_servers == 2
    assert servers.mu == pytest.approx(mu / math.sqrt(2.0))
    assert servers.notes()["epsilon_exact"] == pytest.approx(1.0)
    assert all("average" in name for name in servers.names)


def test_pure_noise():
    record = plan_of()
    assert record.kind == "gamma" and record.mu is None
    assert pure_epsilon(record.shares, 1e-5) == pytest.approx(1.0)
    assert record.accounting == "composition of pure releases"
    for group in ("published", "tight"):
        plan = plan_of(guarantee="task", group=group, max_task_rows=10)
        epsilon, delta = record_budget(1.0, 1e-5, 10, group)
        assert plan.kind == "gamma" and plan.record == (epsilon, delta)
        assert pure_epsilon(plan.shares / 10, delta) == pytest.approx(epsilon, rel=1e-4)
    with pytest.raises(ValueError, match="Gaussian noise"):
        plan_of(guarantee="task", group="gaussian", mechanism="gamma", max_task_rows=10)


def test_models_of_whole_tasks_are_bounded_in_place_of_records():
    plan = plan_of(guarantee="task", group="direct", max_row_norm=1.0)
    assert plan.kind == "gaussian" and not plan.rows_are_public and plan.rows.tolist() == [1.0] * 3
    reach = plan.reach(np.zeros(3))
    np.testing.assert_allclose(reach.sensitivity, 2.0 * reach.limit)
    left_out = plan_of(guarantee="task", group="direct", adjacency="zero-out").reach(np.zeros(3))
    np.testing.assert_allclose(left_out.sensitivity, left_out.limit)
    assert not any("number of rows" in text for text in plan.assumptions())
    assert not any("a record is" in text for text in plan.assumptions())


def test_rows_that_are_public_or_bounded():
    public = plan_of()
    assert public.rows_are_public and public.rows.tolist() == [4.0, 10.0, math.inf]
    assert any("number of rows" in text for text in public.assumptions())
    assert any("a record is" in text for text in public.assumptions())
    least = plan_of(min_task_rows=3)
    assert not least.rows_are_public and least.rows.tolist() == [3.0] * 3
    assert plan_of(sizes=None, min_task_rows=3, delta=1e-5).rows.tolist() == [3.0] * 3
    equal = plan_of(guarantee="task", sizes=[5, 5, 5], min_task_rows=5, max_task_rows=5)
    assert equal.row_limits == (5, 5) and equal.size == 5
    for settings, words in (
        ({"guarantee": "task"}, "needs max_task_rows"),
        ({"min_task_rows": 6, "max_task_rows": 5}, "exceeds max_task_rows=5"),
        ({"sizes": None}, "not public here"),
        ({"guarantee": "task", "min_task_rows": 2, "max_task_rows": 9}, "have none"),
        ({"sizes": None, "min_task_rows": 2, "delta": None, "mechanism": "gaussian"}, "delta=None"),
    ):
        with pytest.raises(ValueError, match=words):
            plan_of(**settings)
    # Without a list of rows, delta=None of pure noise is 0, which asks for no number of records.
    assert plan_of(sizes=None, min_task_rows=2, delta=None).delta == 0.0
    counted = plan_of(delta=None, mechanism="gaussian")
    assert counted.delta == pytest.approx(
        plan_of(sizes=[7, 7, 0], delta=None, mechanism="gaussian").delta
    )
    assert counted.delta != plan_of(sizes=[10**6, 70, 0], delta=None, mechanism="gaussian").delta


@pytest.mark.parametrize("mechanism", ["gaussian", "gamma"])
def test_rounds_of_relationships_share_the_budget(mechanism):
    """In units of each task's sensitivity, of which a neighbour changes one task's."""
    plan = plan_of(DPRelationship, n_rounds=4, mechanism=mechanism, alpha=0.3)
    entries = plan.releases()
    assert [entry["name"] for entry in entries] == [f"round {t}" for t in range(1, 5)]
    assert {entry["sensitivity"] for entry in entries} == {1.0}
    if mechanism == "gaussian":
        assert compose_gdp([entry["mu"] for entry in entries]) == pytest.approx(gdp_mu(1.0, 1e-5))
        assert plan.mechanisms[0].shape == (3 * 4,)
    else:
        shares = [entry["epsilon"] for entry in entries]
        assert pure_epsilon(shares, 1e-5) == pytest.approx(1.0)
        assert plan.mechanisms[0].n_vectors == 3
    public = plan.public_inputs()
    assert (public["alpha"], public["n_rounds"], public["n_tasks"]) == (0.3, 4, 3)
    assert public["lam"] == 0.5 and public["max_target"] == 2.0 and "clip_norm" not in public
    low, high = plan.notes()["sensitivity of the models in round 1"]
    reach = plan.reach(np.zeros(3)).sensitivity
    assert low == reach[1] and high == reach[0]  # the task without rows does not count
    assert "every task, or a curator" in plan.assumptions()[0]
