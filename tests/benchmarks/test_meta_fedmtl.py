"""Figures of the meta-learning and FedMTL studies: the quick modes run and say what they show."""

import numpy as np

from benchmarks.reproduce import (
    fedmtl_overhead,
    fedmtl_secure,
    meta_learning,
)


def test_few_shots_are_among_more():
    """What `shots` compares: the same test rows, and for each task its first rows."""
    X, y, task = meta_learning.synthetic(0, quick=True, shots=5)[1]
    few = meta_learning.first_rows((X, y, task), 2)
    for name in np.unique(task):
        np.testing.assert_array_equal(few[0][few[2] == name], X[task == name][:2])
        np.testing.assert_array_equal(few[1][few[2] == name], y[task == name][:2])


def test_the_plain_average_is_one_model_for_all():
    shared, heads, tasks, sizes, _ = fedmtl_secure.problem(6, 3, 3, 4, 5)
    mean, average = fedmtl_overhead.plain_average(shared, heads, tasks, sizes)
    np.testing.assert_allclose(mean, np.average(shared, axis=0, weights=sizes))
    held = [(i, own.index(0)) for i, own in enumerate(tasks) if 0 in own]
    rows, weights = [heads[i][s] for i, s in held], [sizes[i] for i, _ in held]
    np.testing.assert_allclose(average[0], np.average(rows, axis=0, weights=weights))
