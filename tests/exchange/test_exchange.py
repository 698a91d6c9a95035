"""Queries and answers: what a curator is told, what it keeps, what it bounds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import DPMetaInit, DPMetaInitClassifier
from skpmtl.exchange.protocol import PublicDraw, Query, release, run
from skpmtl.privacy import VectorGaussian
from skpmtl.privacy.rng import SeededSource
from tests.helpers.cases import CASES, N_TASKS, TASKS, every, long_data, seeded
from tests.helpers.sites import Sites

pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


GARBAGE = (np.nan, np.inf, -np.inf, 1e300, -1e12)


class Garbled(Sites):
    """One task after the other sends garbage in the place of its noisy update."""

    def run(self):
        self.inside, self.broken_sums = [], 0
        self.longest = self.est._plan(self.population).longest_updates()
        return super().run()

    def answer(self, query):
        sent, place = self.contributions(query)
        honest = sent["update"]
        self.inside.extend(np.linalg.norm(honest, axis=(1, 2)) / self.longest[place])
        a = query.combine({"update": honest}, place)
        assert_array_equal(a["update"], honest.sum(axis=0))  # to the last bit
        for k in range(len(place)):
            broken = honest.copy()
            broken[k, :, :2] = GARBAGE[self.broken_sums % len(GARBAGE)]
            b = query.combine({"update": broken}, place)["update"]
            assert np.linalg.norm(a["update"] - b) <= 2.0 * self.longest[place[k]]
            self.broken_sums += 1
        return a


@every(
    case
    for case in CASES
    if type(case.estimator) in (DPMetaInit, DPMetaInitClassifier) and not case.marks
    if not case.unit and not case.estimator.secure
)
@pytest.mark.spread(8)
def test_garbage_of_a_task_moves_an_initialisation_by_its_bound(case):
    """Updates of DPMetaInit come with their noise: the bound has room for it, and not for more."""
    case.skip_without_extras()
    sites = Garbled(seeded(case), long_data(case.n_classes), [list(TASKS)])
    sites.run()
    assert sites.broken_sums >= N_TASKS
    assert 0.02 < max(sites.inside) < 1.0


def test_curator_sees_releases_only():
    """What is sent to the curator is the noisy number, never the sum."""
    secret = np.array([5.0])

    class Noise:
        def release(self, value, source):
            assert value == secret / 2
            return np.array([7.0])

    def curator():
        drawn = (yield PublicDraw(lambda source: source))["drawn"]
        got = yield Query("x", {}, {"x": Noise()}, None, 2.0)
        return drawn, got

    class Tasks:
        def answer(self, query):
            return {"x": secret.copy(), "not asked for": np.array([1.0])}

    drawn, got = run(curator(), Tasks(), "source")
    assert drawn == "source"
    assert got == {"x": np.array([7.0])}


def test_sums_are_divided_by_a_public_number_before_noise():
    total = np.array([6.0, -2.0])

    def released(mechanism=None, **divided):
        query = Query("a", {}, {"a": mechanism}, None, **divided)
        return release(query, {"a": total.copy()}, SeededSource(np.random.default_rng(0)))["a"]

    assert_array_equal(released(), total)
    assert_array_equal(released(divide=4.0), total / 4.0)
    mechanism = VectorGaussian(2, 1.0, 2.0)
    noise = [released(mechanism) - total, released(mechanism, divide=4.0) - total / 4.0]
    assert_allclose(*noise, rtol=1e-5)
