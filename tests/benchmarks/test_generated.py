"""Defaults on unseen tables: tables are what they say, it runs, and defaults hold on part of it."""

import numpy as np

from benchmarks.accuracy.shapes import SHAPES


def test_tables_are_seeded_and_cover_what_they_should():
    fewest, tasks, features, roles = [], [], [], set()
    for shape in SHAPES.values():
        sample, again, other = shape.draw(0), shape.draw(0), shape.draw(1)
        np.testing.assert_array_equal(sample.X, again.X)
        np.testing.assert_array_equal(sample.y_test, again.y_test)
        assert sample.X.shape != other.X.shape or (sample.X != other.X).any()
        found, counts = np.unique(sample.task, return_counts=True)
        assert np.isin(found, sample.tasks).all() and np.isin(sample.task_test, found).all()
        for numbers in (sample.X, sample.y, sample.X_test, sample.y_test):
            assert np.isfinite(numbers).all()
        if shape.classes:
            assert set(np.unique(sample.y)) == set(range(shape.classes))
        fewest.append(counts.min())
        tasks.append(len(sample.tasks))
        features.append(sample.X.shape[1])
        roles.add(shape.role)
    assert len(SHAPES) >= 30 and roles == {"tuning", "fresh"}
    assert min(tasks) == 3 and max(tasks) == 2_000
    assert min(features) == 3 and max(features) == 200
    assert min(fewest) == 2 and max(fewest) == 600
    rare = SHAPES["logistic, one-class tasks"].draw(0)
    assert min(len(set(rare.y[rare.task == k])) for k in rare.tasks) == 1
