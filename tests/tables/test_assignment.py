"""Words and assignments of rows: distributions, and what they depend on."""

import hashlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import stats

from skpmtl.tables.assignment import deal, draw_seed, hold_out, random_words, shuffled

MANY = np.arange(20_000)


def test_words_are_those_of_shake128_of_seed_purpose_and_id():
    stream = hashlib.shake_128("3/order/clinic é".encode()).digest(24)
    expected = [int.from_bytes(stream[i : i + 8], "little") for i in (0, 8, 16)]
    assert random_words(3, "order", np.array(["clinic é"]), [3]).tolist() == expected


def test_words_of_a_task_do_not_depend_on_other_tasks():
    tasks, sizes = np.array(["", "a", "b", "\udcff"]), np.array([2, 0, 3, 1])
    words = np.split(random_words(1, "order", tasks, sizes), np.cumsum(sizes)[:-1])
    for k in range(4):
        assert_array_equal(random_words(1, "order", tasks[k : k + 1], sizes[k : k + 1]), words[k])
        assert_array_equal(random_words(1, "order", tasks[k : k + 1], [9])[: sizes[k]], words[k])


def test_a_number_and_its_text_have_the_same_words():
    numbers, text = np.array([-3, 0, 12]), np.array(["-3", "0", "12"])
    assert_array_equal(random_words(0, "order", numbers), random_words(0, "order", text))


@pytest.mark.parametrize("other", [(1, "order"), (0, "tasks"), (2**100, "order"), (-1, "order")])
def test_seeds_and_purposes_have_independent_words(other):
    a, b = random_words(0, "order", MANY), random_words(*other, MANY)
    bits = np.bitwise_count(a ^ b).sum()
    assert stats.binomtest(int(bits), 64 * len(MANY)).pvalue > 1e-6


def test_first_folds_are_uniform():
    fold = deal(MANY, MANY, 5)
    assert stats.chisquare(np.bincount(fold)).pvalue > 1e-6


def test_shuffled_orders_are_uniform():
    rows = shuffled(np.repeat(MANY, 3), MANY, seed=0).reshape(-1, 3)
    assert_array_equal(rows // 3, np.repeat(MANY[:, None], 3, axis=1))
    order = (rows % 3) @ [9, 3, 1]
    assert stats.chisquare(np.unique(order, return_counts=True)[1]).pvalue > 1e-6
    assert len(np.unique(order)) == 6


@pytest.mark.parametrize(("size", "share"), [(2, 0.25), (7, 0.3), (4, 0.5), (5, 0.9), (1, 0.5)])
def test_held_out_counts_are_the_share_on_average(size, share):
    held = hold_out(np.repeat(MANY, size), MANY, share, seed=0).reshape(-1, size)
    counts, low = held.sum(axis=1), min(np.floor(share * size), size - 1)
    assert set(counts) <= {low, min(low + 1, size - 1)}
    up = int((counts > low).sum())
    if share * size == low or low == size - 1:
        assert up == 0
    else:
        assert stats.binomtest(up, len(MANY), share * size - low).pvalue > 1e-6
    assert stats.chisquare(held.sum(axis=0)).pvalue > 1e-6 if held.any() else size == 1


def test_labels_that_all_differ_deal_rows_as_they_come():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 9, 200)
    assert_array_equal(
        deal(codes, np.arange(9), 4), deal(codes, np.arange(9), 4, labels=range(200))
    )


def test_kinds_of_labels_in_other_tasks_change_nothing():
    """A text, a gap or a fraction makes no other kind of targets for all."""
    codes, tasks = np.repeat([0, 1], [6, 2]), np.array([4, 7])
    labels = [2, 10, 2, 10, 10, 2, 0, 0]
    expected = deal(codes, tasks, 3, labels=labels)[:6]
    for last in ("ten", None, 0.5, np.nan):
        assert_array_equal(deal(codes, tasks, 3, labels=[*labels[:-1], last])[:6], expected)


def test_seeds_come_from_all_kinds_of_random_states():
    assert draw_seed(7) == draw_seed(np.int64(7)) == 7
    assert draw_seed(None) != draw_seed(None)
    state = np.random.RandomState(0)
    assert draw_seed(state) != draw_seed(state)
    with pytest.raises(ValueError, match="seed"):
        draw_seed("seven")
