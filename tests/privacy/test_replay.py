"""The audit by replay finds planted faults, and says what it cannot judge."""

import copy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skpmtl import DPMetaInit, PrivateMTL, PrivateSearch
from skpmtl.privacy import audit
from skpmtl.privacy.replay import (
    _are_neighbours,
    _public_differences,
    _queries,
    _rows_of,
    _sensitivities,
    changed_tasks,
    differing,
    observed_fit,
)
from skpmtl.privacy.tape import Tape, distance
from tests.helpers.cases import (
    CASES,
    FIRST,
    N_ROWS,
    TASKS,
    everybody,
    long_data,
    neighbour,
)
from tests.helpers.linear_rounds import LinearRounds

LOOP = {"tasks": TASKS, "epsilon": 1e3, "structure": "low-rank", "levels": "free"}


def differ(*given):
    return changed_tasks(*given)[:3]


def test_rows_that_differ_are_counted_by_task():
    X, y, task = data = long_data()
    est, (Z, z, w) = PrivateMTL(tasks=[*TASKS, 77]), (X.copy(), y.copy(), np.ones(len(y)))
    Z[task == 2] += np.eye(N_ROWS, 3) > 0  # three rows
    z[np.flatnonzero(task == 4)[[0, 5]]] += 1.0
    assert differ(est, data, (Z, z, task)) == ([2, 4], 5, [2, 4])
    w[np.flatnonzero(task == 5)[:4]] = 0.5  # the order of fit: no persons
    assert differ(est, (*data, np.ones(len(y))), (*data, w)) == ([5], 4, [5])
    short, absent = np.ones(len(y), bool), task != 1
    short[np.flatnonzero(task == 1)[0]] = False
    for keep, rows in ((short, N_ROWS), (absent, N_ROWS)):  # of the longer one
        pair = [data, (X[keep], y[keep], task[keep])]
        assert differ(est, *pair) == differ(est, *pair[::-1]) == ([1], rows, [1])
    one = absent.copy()
    one[np.flatnonzero(task == 1)[0]] = True
    pair = [(X[keep], y[keep], task[keep]) for keep in (one, absent)]
    assert differ(est, *pair) == differ(est, *pair[::-1]) == ([1], 1, [1])
    empty = _rows_of(SimpleNamespace(tasks=TASKS[:1], X=X, y=y), 77)
    assert [len(part) for part in empty] == [0, 0, 0]
    with pytest.raises(ValueError, match="other tasks"):
        differ(PrivateMTL(), data, (X[absent], y[absent], task[absent]))


def test_rows_of_weight_zero_differ_where_rows_are_counted():
    X, y, task = long_data()
    Z, w = X.copy(), np.ones(len(y))
    row = np.flatnonzero(task == 4)[2]
    Z[row], w[row] = Z[row] + 1.0, 0.0
    pair = (X, y, task, w), (Z, y, task, w)
    assert differ(PrivateMTL(), *pair) == ([], 0, [])
    assert differ(DPMetaInit(), *[(X, y, task, None, w) for X, y, task, w in pair])[1] == 1


def test_neighbours_differ_in_what_the_unit_says():
    def most(unit, **public):
        report = SimpleNamespace(unit=unit, public_inputs=public)
        assert not _are_neighbours(report, 2, 99)
        return max(n for n in range(1, 50) if _are_neighbours(report, 1, n))

    assert [most(unit) for unit in ("record", "3 records", "task")] == [1, 3, 49]


# ---------------------------------------------------------------- what an audit takes
def test_data_that_are_no_neighbours_are_judged():
    case = FIRST[PrivateMTL]
    data = long_data()
    result = audit(PrivateMTL(**LOOP), data, everybody(case, data), n_draws=0)
    assert result.passed and np.isnan(result.sensitivity_observed)
    assert result.n_replayed > 10
    assert f"replay of {result.n_replayed} releases and draws" in str(result)
    with pytest.raises(ValueError, match="no draws to plot"):
        result.plot()


def test_fits_without_privacy_fail():
    data = long_data()
    for est in (PrivateMTL(epsilon=None), DPMetaInit(privacy=None), DPMetaInit(epsilon=None)):
        result = audit(est, data, neighbour(CASES[0], data), n_draws=0)
        assert any("no guarantee is claimed" in text for text in result.failures)


def test_what_cannot_be_replayed():
    data = long_data()
    with pytest.raises(ValueError, match="have other tasks"):
        audit(PrivateMTL(), data, [part[data[2] > 0] for part in data])
    listed = DPMetaInit(privacy="local", epsilon=8.0, delta=1e-2, tasks=np.unique(data[2]))
    with pytest.raises(ValueError, match="other tasks with rows, which are public here"):
        audit(listed, data, [part[data[2] > 0] for part in data])
    with pytest.raises(ValueError, match="needs data and neighbour"):
        audit(PrivateMTL(), data)
    for name, value in {"epsilon": 0.5, "delta": 0.0, "random_state": 0, "confidence": 0.9}.items():
        with pytest.raises(ValueError, match=f"{name}={value} would not be used"):
            audit(PrivateMTL(), data, data, **{name: value})
    with pytest.raises(ValueError, match="NaN"):
        audit(PrivateMTL(), (data[0] * np.nan, *data[1:]), data)


@pytest.mark.parametrize(("selection", "seed"), [("compose", 0), ("poisson", None)])
def test_a_search_is_replayed(selection, seed):
    """Its candidates and their number are drawn, and are the same for both neighbours."""
    case = FIRST[PrivateMTL]
    data = long_data()
    search = PrivateSearch(
        PrivateMTL(tasks=TASKS, levels="free"),
        {"structure": ["sparse", "low-rank"]},
        epsilon=1e3,
        n_trials=3,
        selection=selection,
        random_state=seed,
        scoring="neg_mean_squared_error",
        score_range=(-1.0, 0.0),
    )
    result = audit(search, data, neighbour(case, data), n_draws=2)
    assert result.passed, str(result)


def test_calls_of_callbacks_are_kept_from_first_to_last():
    pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks from 1.9 on")
    est = LinearRounds(tasks=TASKS, n_rounds=2)
    events = [event for event, *_ in observed_fit(est, long_data()).said["calls of callbacks"]]
    assert events == ["setup", "begin", "begin", "end", "begin", "end", "end", "teardown"]


# ---------------------------------------------------------------- values that are compared
class Plain:
    def __init__(self, inner):
        self.inner = inner


class Slotted:
    __slots__ = ("inner", "unset")

    def __init__(self, inner):
        self.inner = inner


class Both(Slotted):
    """Has attributes beside the slots."""


class MadeAnew:
    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return MadeAnew, (Plain(self.value),)


class Hides:
    """What it holds is in a variable of a function, and in what pickle would write."""

    def __init__(self, hidden):
        self._told = lambda: hidden

    def __reduce__(self):
        return Hides, (self._told(),)


class Equal:
    def __init__(self, value):
        self.value = value

    def __reduce_ex__(self, protocol):
        raise TypeError

    def __reduce__(self):
        raise TypeError

    def __eq__(self, other):
        return self.value == other.value


def function(captured, default=1, *, keyword=2):
    def inner(x=default, *, y=keyword):
        return captured

    return inner


DIFFERENT = [  # two values, and the parts that are named
    (1, 1.0, ["v"]),
    (1, 2, ["v"]),
    (0.0, -0.0, ["v"]),
    (np.float64(1.0), np.float64(2.0), ["v"]),
    ("a", "b", ["v"]),
    (np.zeros(2), np.zeros(2, dtype=np.float32), ["v (dtype or shape)"]),
    (np.zeros(2), np.zeros((1, 2)), ["v (dtype or shape)"]),
    (np.zeros(2), -np.zeros(2), ["v"]),
    (np.array(["a", 1], dtype=object), np.array(["a", 2], dtype=object), ["v[1]"]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ["v (keys)"]),
    ({"a": 1, "b": [2, 3]}, {"a": 1, "b": [2, 4]}, ["v['b'][1]"]),
    ([1, 2], [1], ["v (length)"]),
    ((1, 2, 3), (0, 2, 4), ["v[0]", "v[2]"]),
    (int, float, ["v"]),
    (Plain, Slotted, ["v"]),
    (max, min, ["v"]),
    (Plain(1), Plain(2), ["v['inner']"]),
    (Slotted([1]), Slotted([2]), ["v[2][1]['inner'][0]"]),
    (Both([1]), Both([2]), ["v['inner'][0]"]),
    (function(1), function(2), ["v['closure']['captured']"]),
    (function(1, 1), function(1, 3), ["v['given'][0][0]"]),
    (function(1, keyword=2), function(1, keyword=4), ["v['given'][1]['y']"]),
    (Plain(1).__init__, Plain(2).__init__, ["v[1]['inner']"]),
]


def test_parts_that_are_made_for_the_comparison_are_all_compared():
    """Each is gone after it, and the next one may lie in its place."""
    for k in range(8):
        a, b = ([MadeAnew(0) for _ in range(8)] for _ in range(2))
        b[k].value = 1
        assert list(differing(a, b, "v")) == [f"v[{k}][1][0]['inner']"]


@pytest.mark.parametrize(("a", "b", "names"), DIFFERENT)
def test_each_part_that_differs_is_named(a, b, names):
    assert list(differing(a, b, "v")) == names
    for value in (a, b):
        assert list(differing(value, copy.deepcopy(value), "v")) == []


def test_frames_that_are_kept_are_compared_cell_by_cell():
    """They do not say whether two are equal, and their insides are caches, too."""
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    assert list(differing(frame, frame.copy(), "v")) == []
    for column, values in ("a", [1.0, 3.0]), ("b", ["x", "z"]):
        other = frame.assign(**{column: values})
        assert list(differing(frame, other, "v")) == [f"v['data'][1][{'ab'.index(column)}]"]
        assert len(list(differing(frame[column], other[column], "v"))) == 1


class Half(PrivateMTL):
    """Has a property of fits that are of one kind."""

    @property
    def of_kind(self):
        return self.kind_.real


@pytest.mark.parametrize("order", [1, -1])
def test_properties_of_one_kind_of_fit_are_not_compared(order):
    pair = [Half(), Half()]
    pair[0].kind_, pair[1].kind_ = 1.0, "none"
    assert list(_public_differences(*pair[::order], [], False, "")) == ["kind_"]


def test_an_estimator_in_the_place_of_something_else_is_named():
    a, b = Half(), Half()
    a.base_, b.base_ = None, PrivateMTL()
    for pair in ((a, b), (b, a)):
        assert list(_public_differences(*pair, [], False, "")) == ["base_"]


def test_what_pickle_would_write_is_compared_and_circles_end():
    assert list(differing(Hides(1), Hides(1), "v")) == []
    assert list(differing(Hides(1), Hides(2), "v")) == ["v[1][0]"]
    assert list(differing(Equal(1), Equal(2), "v")) == ["v"]  # which says nothing else
    assert list(differing(Equal(1), Equal(1), "v")) == []
    circle, other = [], []
    for one in (circle, other):
        one.append(Plain(one))
    assert list(differing(circle[0], other[0], "v")) == []


# ---------------------------------------------------------------- distances of releases
def tape(*values):
    entry = {"sensitivity": 2.0, "norm": "l2", "mechanism": "Gaussian"}
    made = [SimpleNamespace(entry=entry, values=np.array(v, dtype=float)) for v in values]
    return SimpleNamespace(releases=made)


def test_distances_are_the_norms_that_mechanisms_name():
    ones = np.ones((2, 2))  # eigenvalues 2 and 0
    found = [distance(ones, kind) for kind in ("nuclear", "frobenius", "l1")]
    assert found == pytest.approx([2.0, 2.0, 4.0])
    vector = np.array([3.0, -4.0])  # a diagonal
    found = [distance(vector, kind) for kind in ("nuclear", "l2", "l1")]
    assert found == pytest.approx([7.0, 5.0, 7.0])


def test_a_query_on_the_tape_is_what_was_asked():
    """Curators go on with the same arrays in place."""
    centres, tape = np.zeros(2), Tape(with_queries=True)
    tape.query(SimpleNamespace(public={"centre": centres}, combine=max), lambda: (np.arange(1), {}))
    centres += 1.0
    (query,) = tape.queries
    assert query.public["public"]["centre"].tolist() == [0.0, 0.0]
    assert query.public["combine"] is max
    without = Tape()
    without.query(query, None)  # keeps no queries, and asks for no answer
    assert without.queries == []


def test_the_release_that_is_nearest_to_its_bound_is_returned():
    first = tape([[0.0, 0.0]], [], [[1.0, 1.0]])
    near, far = tape([[0.6, 0.8]], [], [[1.0, 2.5]]), tape([[3.0, 4.0]], [], [[1.0, 1.0]])
    assert _sensitivities(first, near, "replace-one") == ([], (1.5, 2.0))
    assert _sensitivities(first, near, "zero-out") == ([], (1.5, 4.0))
    failures, worst = _sensitivities(first, far, "replace-one")
    assert worst == (5.0, 2.0) and "release 1 (Gaussian) differs by 5" in failures[0]
    failures, worst = _sensitivities(first, far, "zero-out")
    assert worst == (5.0, 4.0) and "but 4 is twice what is stated" in failures[0]
    failures, worst = _sensitivities(first, tape([[0.0]], [], [[1.0, 2.0]]), "replace-one")
    assert failures == ["Sensitivity: release 1 is of other shape."] and worst == (1.0, 2.0)
    later = tape([[0.6, 0.8]], [], [[1.0, 1.5]])  # nearer to its bound in the first release
    assert _sensitivities(first, later, "replace-one") == ([], (1.0, 2.0))
    # Of the vectors that one release adds noise to, the farthest counts.
    several = tape([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]), tape([[0.0, 1.0], [1.0, 6.0], [2.0, 2.5]])
    assert _sensitivities(*several, "replace-one")[1] == (5.0, 2.0)


def test_numbers_that_tasks_lack_are_the_same_and_others_are_not():
    def asked(*sent):
        public = {"statistic": "scale"}
        query = SimpleNamespace(
            public=public, positions=np.arange(3), contributions={"scale": np.array(sent)}
        )
        return SimpleNamespace(queries=[query])

    first = asked(4.0, np.nan, 2.0)  # a task of one row has no scale
    assert list(_queries(first, asked(8.0, np.nan, 2.0), [0])) == []
    for other in (asked(4.0, np.nan, 2.0 + 1e-6), asked(4.0, 1.0, 2.0), asked(4.0, np.nan, np.inf)):
        assert "of other tasks in query 1" in next(_queries(first, other, [0]))
