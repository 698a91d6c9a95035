"""Figures of the FedMTL studies: the quick modes run and say what they show."""

import numpy as np

from benchmarks.reproduce import (
    fedmtl_overhead,
    fedmtl_secure,
)


def test_the_plain_average_is_one_model_for_all():
    shared, heads, tasks, sizes, _ = fedmtl_secure.problem(6, 3, 3, 4, 5)
    mean, average = fedmtl_overhead.plain_average(shared, heads, tasks, sizes)
    np.testing.assert_allclose(mean, np.average(shared, axis=0, weights=sizes))
    held = [(i, own.index(0)) for i, own in enumerate(tasks) if 0 in own]
    rows, weights = [heads[i][s] for i, s in held], [sizes[i] for i, _ in held]
    np.testing.assert_allclose(average[0], np.average(rows, axis=0, weights=weights))
