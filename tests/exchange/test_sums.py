"""What curators bound again, whatever was sent: dense vectors tell one norm from another."""

import math
import re
from dataclasses import replace
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import skpmtl
from skpmtl import DPMetaInit
from skpmtl.exchange import Population, TaskSide
from skpmtl.exchange.protocol import (
    PartialTaskSide,
    Query,
    QuerySpec,
    allow_for_rounding,
    contributed,
    run_away,
    task_side_of,
)
from skpmtl.exchange.sums import clipped_sum, sum_of_clipped
from skpmtl.meta.curator import sum_of_updates as sum_of_meta
from skpmtl.meta.plan import MetaPlan
from skpmtl.networks import rounds as curator
from skpmtl.privacy.mechanisms import VectorGaussian, rounding_factor
from skpmtl.tables.table import TaskTable

SENT = np.array([[3.0] * 4, [-0.1] * 4, [np.nan, 0, 0, 0], [0.0, np.inf, 0, 0], [0, -9.0, 0, 0]])
# Each within a length of 1; what is not finite is zero.
WITHIN = np.array([[0.5] * 4, [-0.1] * 4, [0.0] * 4, [0.0] * 4, [0, -1.0, 0, 0]])


def test_vectors_are_scaled_to_the_bound():
    before = SENT.copy()
    np.testing.assert_allclose(sum_of_clipped(SENT, 1.0), WITHIN.sum(axis=0), rtol=1e-9)
    np.testing.assert_array_equal(SENT, before)
    np.testing.assert_allclose(sum_of_clipped(2 * SENT, 2), 2 * WITHIN.sum(axis=0), rtol=1e-9)
    to = np.array([0, 1, 1, 0, 1])
    found = sum_of_clipped(SENT, 1.0, to, (3, 4)).reshape(3, 4)
    expected = [WITHIN[to == k].sum(axis=0) for k in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (5, 2))
    found = sum_of_clipped(SENT, 1.0, rows).reshape(2, 4)
    np.testing.assert_allclose(found, rows.T @ WITHIN, rtol=1e-9)


def test_sums_of_some_tasks_less_a_public_value():
    to, some = np.array([2, 0, 1, 1, 0, 2]), np.array([5, 0, 1, 2, 4])
    combine = clipped_sum("v", 1.0, to, (3, 4), less=0.25)
    found = combine({"v": SENT + 0.25}, some)["v"].reshape(3, 4)
    expected = [WITHIN[to[some] == k].sum(axis=0) for k in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(
        clipped_sum("v", 1.0)({"v": SENT})["v"], WITHIN.sum(axis=0), rtol=1e-9
    )


def test_updates_of_rounds_are_clipped_and_dealt_to_centres():
    to = np.array([0, 1, 0, 1, 0, 0])
    combine = curator.sum_of_updates(to, 1.0, (2, 4))
    some = np.array([0, 1, 2, 3, 5])
    found = combine({"update": SENT}, some)
    expected = [WITHIN[to[some] == k].sum(axis=0) for k in range(2)]
    np.testing.assert_allclose(found["update"], expected, rtol=1e-9)
    # Means over all tasks become means over those of each centre.
    assert curator.gains(to).tolist() == [6 / 4, 6 / 2]
    assert curator.gains(np.ones((6, 3))).tolist() == [6.0] * 3


def test_updates_of_meta_learning_are_held_to_their_longest():
    est = DPMetaInit(epsilon=1.0, delta=1e-5, privacy="local", fit_intercept=False, inner_steps=1)
    meta = MetaPlan(est, Population(np.arange(3), 4, 0, np.array([5, 6, 7])))
    bound = meta.longest_updates()
    sent = np.array([[[100.0] * 4], [[0.01] * 4], [[np.nan] * 4]]) * bound[:, None, None]
    found = sum_of_meta(meta, {"update": sent}, np.arange(3))["update"]
    np.testing.assert_allclose(found, [[(0.5 + 0.01) * bound[0]] * 4], rtol=1e-9)
    record = MetaPlan(
        est.set_params(privacy="task-global"),
        Population(np.arange(3), 4, 0, np.array([5, 50, 500])),
    )
    bound = record.longest_updates()
    assert len(set(bound)) == 3
    for k in range(3):  # each has its own
        sent = np.full((1, 1, 4), 1e9)
        found = sum_of_meta(record, {"update": sent}, np.array([k]))["update"]
        assert np.linalg.norm(found) == pytest.approx(bound[k])


def test_updates_without_a_budget_are_held_to_the_length_of_most():
    meta = SimpleNamespace(n_outputs=1, size=4, holds=True, to=None)
    for far in (1e3, 1e200):  # the square of the latter overflows
        sent = np.array([far, 1.0, 1.0, 1.0, 1.0])[:, None, None] * np.ones(4)
        found = sum_of_meta(meta, {"update": sent}, np.arange(5))["update"]
        assert (found >= 4.0).all() and (found <= 7.0 + 1e-9).all()


def test_updates_with_a_relation_are_multiplied_by_their_rows():
    rng = np.random.default_rng(0)
    to, sent = rng.normal(size=(7, 3)), rng.normal(size=(4, 2, 5))
    positions = np.array([0, 2, 5, 6])
    meta = SimpleNamespace(
        n_outputs=2, size=5, holds=False, to=to, longest_updates=lambda: np.full(7, 1e3)
    )
    found = sum_of_meta(meta, {"update": sent}, positions)["update"]
    expected = sum(np.multiply.outer(to[k], one) for k, one in zip(positions, sent, strict=True))
    np.testing.assert_allclose(found, expected)


class Counting(TaskSide):
    """Contributes its place among the tasks that it is asked for."""

    def __init__(self):
        self.asked = 0

    def contributions(self, query):
        self.asked += 1
        places = np.arange(3) if query.pick is None else query.pick
        return {"v": places[:, None] * 1.0}


def test_tasks_without_rows_leave_places_to_the_others():
    population, side = Population(np.array([2, 3, 5, 7]), 1), Counting()
    whole = TaskTable(np.ones((3, 1)), np.zeros(3), np.arange(4), np.array([2, 5, 7]))
    assert task_side_of(side, whole, population) is side
    part = task_side_of(side, replace(whole, absent=np.array([3])), population)
    assert part.positions.tolist() == [0, 2, 3]


def test_contributions_are_reported_by_places_in_the_population():
    noise, side = object(), Counting()
    part = PartialTaskSide(side, np.array([1, 4, 6]))  # of seven tasks, the others without rows
    query = Query("v", {}, {"v": noise}, lambda sent, positions: sent)
    for pick, places, numbers in (
        (None, [1, 4, 6], [0, 1, 2]),
        (np.array([0, 4, 6]), [4, 6], [1, 2]),
        (np.array([0, 2]), [], []),
    ):
        picked = replace(query, pick=pick)
        local, positions = picked.local(part.positions)
        assert positions.tolist() == places
        assert local.pick is None if pick is None else local.pick.tolist() == numbers
        positions, sent = contributed(part, picked)
        assert positions.tolist() == places and sent["v"][:, 0].tolist() == numbers
    positions, sent = contributed(side, replace(query, pick=np.array([0, 2])))
    assert positions.tolist() == [0, 2] and sent["v"][:, 0].tolist() == [0, 2]
    positions, sent = contributed(side, query)
    assert positions.tolist() == [0, 1, 2]
    assert side.asked == 0  # a copy was
    # Tasks that add their noise themselves, and those on other machines, show nothing.
    for tasks in (part, side):
        positions, sent = contributed(tasks, replace(query, mechanisms={"v": None}))
        assert len(positions) == 0 and sent == {}
    positions, sent = contributed(object(), query)
    assert len(positions) == 0 and sent == {}


@pytest.mark.parametrize("everybody", [True, False])
def test_rounds_ran_away_where_the_last_update_is_long(everybody):
    """Ten times the median, or a thousand times where others take part in each, and at the end."""
    for last, away in ((5.0, False), (100.0, everybody), (1e4, True), (np.nan, True)):
        assert run_away([1.0, 1.0, 1.0, last], everybody) is away
    assert not run_away([1.0, 1.0, 1.0, 1e6, 3e5], everybody)  # and comes back
    assert run_away([1.0, 1.0, 1.0, 1e6, 7e5], everybody)
    assert not run_away([], everybody)


@pytest.mark.parametrize("places", [None, 1])
def test_rounding_is_within_the_sensitivity_of_two_million(places):
    """Sums on either side of a power of two, where every pair of rows is rounded differently."""
    m, half = 2**21, 2**20
    sent = np.zeros((m, 2))
    sent[:half, 0] = 1.0
    sent[half::2, 0], sent[half + 1 :: 2, 0] = 0.5 + 0.6 * 2.0**-32, -0.5
    other = sent.copy()
    other[0, 0] = -1.0
    given = () if places is None else (np.zeros(m, dtype=np.int64), (places, 2))
    one, two = (sum_of_clipped(rows, 1.0, *given) for rows in (sent, other))
    assert np.linalg.norm(one - two) > 2.0  # what the factor is for
    assert np.linalg.norm(one - two) / rounding_factor(m) <= 2.0


@pytest.mark.parametrize("n", [2, 300])
def test_the_factor_covers_every_order_of_a_sum(n):
    """Exact sums by fractions against float sums in random orders, of numbers at the bound."""
    rng = np.random.default_rng(n)
    for _ in range(20):
        values = rng.choice([1.0, -1.0], n) * (1.0 - rng.random(n) * 2.0**-20)
        exact = sum(map(Fraction, values))
        off = max(abs(Fraction(float(sum(rng.permutation(values)))) - exact) for _ in range(5))
        assert 2 * off <= Fraction(rounding_factor(n)) - 1


def test_noisy_sums_alone_are_divided_by_the_factor():
    def curator():
        noisy = yield Query("a", {}, {"a": VectorGaussian(1, 2.0, 1.0)}, None, divide=3.0)
        exact = yield Query("a", {}, {"a": None}, None, divide=3.0)
        return noisy, exact

    steps = allow_for_rounding(curator(), 2**21)
    assert next(steps).divide == 3.0 * rounding_factor(2**21) > 3.0029
    assert steps.send("first").divide == 3.0
    with pytest.raises(StopIteration) as end:
        steps.send("second")
    assert end.value.value == ("first", "second")


def test_all_that_ask_tasks_take_queries_with_the_factor():
    """`_curator` is called in `_queries` alone; who runs another curator names the factor."""
    root = Path(skpmtl.__file__).parent
    texts = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.py")}
    calls = [
        (name, line)
        for name, text in texts.items()
        for line in text.splitlines()
        if re.search(r"\._curator\(", line) and "super()._curator(" not in line
    ]
    assert [name for name, line in calls if "allow_for_rounding" not in line] == []
    assert [name for name, _ in calls] == ["base.py"]
    texts.pop("exchange/__init__.py")  # names it only
    runs = [name for name, text in texts.items() if re.search(r"protocol import .*\brun\b", text)]
    assert runs and all(
        "_queries(" in texts[name] or "allow_for_rounding(" in texts[name] for name in runs
    )


def test_numbers_of_a_query_may_be_negative_and_counts_not():
    spec = QuerySpec({}, {"x": Real, "n": Integral})
    assert spec.check({"x": -1.5, "n": 3, "more": 0}) == {"x": -1.5, "n": 3}
    for wrong in ({"x": -1.5, "n": -3}, {"x": math.inf, "n": 3}, {"x": 1.5}, {"x": 1.5, "n": 1.5}):
        with pytest.raises(ValueError, match="is negative|not finite|without n|no Integral"):
            spec.check(wrong)
