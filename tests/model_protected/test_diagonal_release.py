"""Contributions of unit length, and the shape that is recovered from their noisy sum."""

import numpy as np
import pytest

from skpmtl import MPMTLGroupSparse
from skpmtl.privacy import DiagonalGaussian, DiagonalLaplace, diagonal_sensitivity
from skpmtl.privacy.moments import directions, shrink_diagonal, squared_directions

GAUSSIAN, LAPLACE = DiagonalGaussian(6, 2**0.5, 1.0), DiagonalLaplace(6, 2.0, 1.0)


def hostile(d=6):
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [
            rng.standard_normal((200, d)),
            np.eye(d),
            1e300 * rng.standard_normal((5, d)),
            1e-300 * rng.standard_normal((5, d)),
            np.ones((1, d)),
            np.zeros((1, d)),
            np.full((1, d), np.nan),
            np.full((1, d), np.inf),
            [[1.0, 1e-200] + [0.0] * (d - 2)],
        ]
    )
    with np.errstate(all="ignore"):
        return directions(rows)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_no_pair_of_contributions_exceeds_the_sensitivity(adjacency):
    V = squared_directions(hostile(), GAUSSIAN)
    assert np.isfinite(V).all() and (V >= 0).all()
    lengths = np.linalg.norm(V, axis=1)
    assert lengths.max() <= 1.0 and np.median(lengths) > 1 - 1e-11
    others = np.zeros((1, 6)) if adjacency == "zero-out" else V
    distance = np.linalg.norm(V[:, None] - others[None], axis=2).max()
    stated = diagonal_sensitivity(1.0, adjacency, dimension=6)
    assert 0.999 * stated < distance <= stated


def test_pure_mechanisms_keep_unit_sums():
    V = squared_directions(hostile(), LAPLACE)
    assert V.sum(axis=1).max() <= 1.0
    np.testing.assert_array_equal(squared_directions(hostile(), None), V)


def test_signal_grows_by_the_inverse_of_the_fourth_moment():
    """Equal weight on k of d features: 1/k per feature becomes 1/sqrt(k), at the same noise."""
    U = directions(np.repeat([[1.0, -1.0, 1.0, 1.0, 0.0, 0.0]], 3, axis=0))
    np.testing.assert_allclose(squared_directions(U, LAPLACE)[0, :4], 0.25, rtol=1e-11)
    np.testing.assert_allclose(squared_directions(U, GAUSSIAN)[0, :4], 0.5, rtol=1e-11)


@pytest.mark.parametrize("trace", [100.0, (100.0, 100.0 * 30**0.5)], ids=["known", "bounds"])
def test_shape_is_recovered(trace):
    rng = np.random.default_rng(1)
    s = np.zeros(30)
    s[:4] = 25.0 if isinstance(trace, float) else 50.0
    for std, worst in [(0.5, 0.03), (3.0, 0.2), (200.0, None)]:
        shape = shrink_diagonal(s + std * rng.standard_normal(30), std, trace)
        assert shape.sum() == pytest.approx(1.0) and (shape > 0).all()
        if worst is not None:
            assert np.abs(shape - s / s.sum()).sum() < worst
        else:  # all noise: nearly even
            assert shape.max() < 8 * shape.min()


def test_even_and_degenerate_shapes():
    rng = np.random.default_rng(2)
    r = 20.0 + rng.standard_normal(30)
    shape = shrink_diagonal(r, 1.0, (100.0, 100.0 * 30**0.5))
    assert shape.max() / shape.min() < r.max() / r.min()
    assert shrink_diagonal(np.array([-5.0]), 1.0, (2.0, 2.0)) == [1.0]
    exact = shrink_diagonal(np.array([3.0, 1.0, 0.0]), 0.0, 4.0)
    np.testing.assert_allclose(exact, [0.75, 0.25, 0.0], atol=1e-4)
    assert (shrink_diagonal(-50.0 * np.ones(9), 1.0, (5.0, 15.0)) > 0).all()


def test_report_names_the_statistic():
    rng = np.random.default_rng(0)
    X, task = rng.standard_normal((200, 3)), np.repeat(np.arange(20), 10)
    for mechanism, words in (
        ("gaussian", "sum of w * w / ||w * w||_2, unit directions w"),
        ("laplace", "sum of w * w, unit directions w"),
    ):
        model = MPMTLGroupSparse(mechanism=mechanism, tasks=range(20)).fit(X, X[:, 0], task=task)
        assert model.privacy_.releases[1]["statistic"] == words
