"""Audits by draws of whole fits of the loop: no alarm on ours, and planted faults are found."""

import numpy as np
import pytest

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.course import queries
from skpmtl.course.queries import Question
from skpmtl.privacy import audit
from skpmtl.privacy.rng import SeededSource

N_TASKS = 8
TASKS = range(N_TASKS)


def neighbours(*, classes=False, d=3, n=12):
    """Task 3 has a large model along the first axis and a low level, or the second and a high."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N_TASKS * n, d))
    task = np.repeat(np.arange(N_TASKS), n)
    W = rng.standard_normal((N_TASKS, d))
    noise = 0.01 * rng.standard_normal(len(task))
    data = []
    for axis in (0, 1):
        W[3] = 50.0 * np.eye(d)[axis]
        y = np.einsum("ij,ij->i", X, W[task]) + noise
        y[task == 3] += 500.0 * (2 * axis - 1)
        data.append((X, (y > 0).astype(int) if classes else y, task))
    return data


@pytest.mark.parametrize("cls", [PrivateMTL, PrivateMTLClassifier])
@pytest.mark.spread(1)
def test_sound_estimators_pass(cls):
    """How many releases there are, and of which kind, is not the same in all fits."""
    classes = cls is PrivateMTLClassifier
    estimator = cls(tasks=TASKS, epsilon=20.0, **{"classes": [0, 1]} if classes else {})
    result = audit(estimator, *neighbours(classes=classes), n_draws=40, random_state=1)
    assert result.passed, str(result)
    assert len(result.noise_ratio) > 30  # steps of the centre, votes, and moments
    # The neighbours use up most of what is stated, so that the check has something to see.
    ratio = result.sensitivity_observed / result.sensitivity_stated
    assert 0.5 < ratio <= 1.0 + 1e-7
    # Queries that follow what was released differ between fits, which only adds to the spread.
    assert np.nanmin(result.noise_ratio) > 0.6


class CountsTwice(PrivateMTL):
    """Tasks are counted twice; only the first release is the same function of rows in all fits."""

    def _fit_table(self, table):
        total = queries.Place.total
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(queries.Place, "total", lambda place, sent: 2.0 * total(place, sent))
            return super()._fit_table(table)


class HalfSource:
    """A noise source whose normals are half as large."""

    exact = False

    def __init__(self, source):
        self._source, self.description = source, source.description
        self.arithmetic = source.arithmetic

    def normal(self, size):
        return 0.5 * self._source.normal(size)


class HalfNoise(PrivateMTL):
    def _source(self):
        return HalfSource(super()._source())


class HonestHalfNoise(PrivateMTL):
    """Halves the noise and says so, but not what it costs."""

    def _fit_table(self, table):
        mechanism = Question.mechanism

        def halved(question, adjacency, mu):
            found = mechanism(question, adjacency, mu)
            found.noise_std /= 2
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Question, "mechanism", halved)
            return super()._fit_table(table)


class OneSeed(PrivateMTL):
    """Every fit has the same noise."""

    def _source(self):
        return SeededSource(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (CountsTwice, "Sensitivity"),
        (HalfNoise, "Noise"),
        (HonestHalfNoise, "Report: sensitivities and noise"),
        (OneSeed, "used again"),
    ],
)
def test_faults_are_found_by_draws(cls, text):
    result = audit(cls(tasks=TASKS, epsilon=20.0), *neighbours(), n_draws=20, random_state=0)
    assert any(text in failure for failure in result.failures), str(result)
