"""Servers in place of a curator: what they are sent, what they add, and what comes out."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone

from skpmtl import DPMetaInit, PrivateMTL
from skpmtl.exchange import servers
from skpmtl.exchange.protocol import Query, release
from skpmtl.privacy import PrivacyReport, gdp_mu
from skpmtl.privacy.mechanisms import SymmetricGaussian, VectorGaussian
from skpmtl.privacy.rng import SeededSource, noise_source
from skpmtl.search import PrivateSearch
from tests.helpers.cases import long_data
from tests.helpers.linear_rounds import LinearRounds


def query_for(mechanism, divide=1.0, bound=None):
    return Query("x", {}, {"x": mechanism}, None, divide, bound=bound)


class Given:
    """A source whose normals are those that it is given."""

    exact = False

    def __init__(self, *normals):
        self.normals = list(normals)

    def normal(self, size):
        return self.normals.pop(0)


@pytest.mark.parametrize("n_servers", [2, 3, 5])
def test_equals_the_trusted_curator_at_the_same_noise(n_servers):
    rng = np.random.default_rng(0)
    mechanism, value = VectorGaussian(40, 0.3, 0.7), rng.normal(size=40)
    query = query_for(mechanism, divide=8.0)
    parts = rng.normal(size=(n_servers, 40))
    found = servers.release(query, {"x": value}, Given(*parts), n_servers)["x"]
    # The noise that all of them added, as one curator would: whole numbers of steps each.
    scale = mechanism.noise_std / math.sqrt(n_servers) / mechanism.step
    noise = np.rint(parts * scale).sum(axis=0) * mechanism.step / mechanism.noise_std
    trusted = release(query, {"x": value.copy()}, Given(noise))["x"]
    np.testing.assert_array_equal(found, trusted)


def test_every_site_rounds_by_half_a_step_at_most():
    rng = np.random.default_rng(1)
    mechanism, sums = SymmetricGaussian(4, 1.4, 0.5), rng.normal(size=(7, 4, 4))
    sums += sums.transpose(0, 2, 1)
    query = query_for(mechanism)
    one, whole = (servers.SumServer(query, 1) for _ in range(2))
    for own in sums:
        one.receive(*servers.shares(query, {"x": own}, 1))
    whole.receive(*servers.shares(query, {"x": sums.sum(axis=0)}, 1))
    quiet = Given(np.zeros(10), np.zeros(10))
    difference = servers.opened(query, [one.publish(quiet)])["x"]
    difference = difference - servers.opened(query, [whole.publish(quiet)])["x"]
    assert 0 < np.abs(difference).max() <= 4 * mechanism.step


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_what_all_servers_but_one_are_sent_is_uniform(left_out):
    """Of any value: so are the bytes of the shares, and so is every sum of two of them."""
    mechanism = VectorGaussian(20_000, 1.0, 1.0)
    for value in (np.zeros(20_000), np.full(20_000, 1e3)):
        sent = servers.shares(query_for(mechanism), {"x": value}, 3)
        a, b = (part["x"] for r, part in enumerate(sent) if r != left_out)
        for numbers in (a, b, a + b, a - b):
            counts = np.bincount(numbers.view(np.uint8), minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-9
            # Neither has anything to do with the other, nor with those beside it.
            high = numbers.astype(float) * 2.0**-64
            assert stats.kstest(high, "uniform").pvalue > 1e-9
    total = sum(part["x"] for part in sent)
    np.testing.assert_array_equal(total.view(np.int64), mechanism.steps(value))


def test_noise_of_one_server_suffices():
    X, y, task = long_data()
    settings = {"epsilon": 2.0, "clip_norm": 1.0, "n_rounds": 4, "tasks": range(6)}
    est = LinearRounds(curator=("servers", 3), random_state=0, **settings)
    with pytest.warns(Warning, match="reproducible"):
        plan = est._plan(est.fit(X, y, task=task)._population_)
    mechanism = plan.update_mechanism()
    report, source = est.privacy_, SeededSource(np.random.default_rng(0))
    assert report.noise_std[0] == mechanism.noise_std
    one = np.concatenate([mechanism.noise_of_one(source, 3) for _ in range(3000)]) * mechanism.step
    zero = query_for(mechanism)
    nothing = {"x": np.zeros(3)}
    public = [servers.release(zero, nothing, source, 3)["x"] for _ in range(3000)]
    # 9000 normals: their std is known within 0.75 %, 4.4 sigma here.
    alone = report.sensitivity[0] * math.sqrt(4) / gdp_mu(2.0, report.delta)
    assert np.std(one) == pytest.approx(alone, rel=0.033)
    assert np.std(public) == pytest.approx(math.sqrt(3) * alone, rel=0.033)
    assert mechanism.noise_std == pytest.approx(math.sqrt(3) * alone, rel=1e-12)
    assert report.mu == pytest.approx(gdp_mu(2.0, report.delta))
    assert sum(e["mu"] ** 2 for e in report.releases) == pytest.approx(report.mu**2)
    assert "one of the 3 servers is honest" in str(report)
    assert "1.732 times the noise" in str(report)
    assert "curator is trusted" not in str(report)


def test_a_report_on_noise_by_sites_is_refused():
    report = PrivacyReport("joint DP per task", releases=[{"name": "x", "sites": (3, 2)}])
    with pytest.raises(ValueError, match='fit again with curator="servers"'):
        PrivacyReport.from_json(report.to_json())


def test_sums_without_noise_have_forty_bits_below_their_bound():
    for bound, step in ((1.0, 2.0**-40), (3.0, 2.0**-38), (4.0, 2.0**-38)):
        assert servers.step_of(None, bound) == step
    query = query_for(None, bound=1.0)
    largest = np.array([2.0**21 - 2.0**-30, -(2.0**21) + 1.0])
    parts = servers.shares(query, {"x": largest}, 2)
    np.testing.assert_array_equal(servers.opened(query, parts)["x"], largest)
    for value in (2.0**21, -(2.0**21)):
        with pytest.raises(ValueError, match="too large"):
            servers.shares(query, {"x": np.array([0.0, value])}, 2)


def test_updates_that_have_their_noise_cost_nothing_more():
    X, y, task = long_data()
    one = DPMetaInit(tasks=range(6), inner_steps=2, random_state=0)
    with pytest.warns(Warning, match="reproducible"):
        trusted = one.fit(X, y, task=task)
        found = clone(one).set_params(curator="servers").fit(X, y, task=task)
    assert found.privacy_.noise_std == trusted.privacy_.noise_std
    scale = np.abs(trusted.mean_coef_).max()
    np.testing.assert_allclose(found.mean_coef_, trusted.mean_coef_, rtol=0, atol=1e-8 * scale)
    assert "unless all of them" in str(found.privacy_)


def test_exact_noise():
    pytest.importorskip("opendp")
    X, y, task = long_data()
    est = PrivateMTL(tasks=range(6), epsilon=60.0, curator="servers", secure=True)
    assert "exact" in est.fit(X, y, task=task).privacy_.arithmetic
    mechanism = VectorGaussian(2000, 1.0, 1.0)
    noise = mechanism.noise_of_one(noise_source(secure=True), 2) * mechanism.step
    assert np.std(noise) == pytest.approx(math.sqrt(0.5), rel=0.1)  # 6 standard errors


def test_scores_of_a_search_need_one_curator():
    search = PrivateSearch(PrivateMTL(curator="servers"), {"structure": ["mean", "sparse"]})
    with pytest.raises(ValueError, match="scores of a search go to one curator"):
        search.fit(*long_data())


def test_a_sum_that_would_wrap_around_is_refused():
    mechanism = VectorGaussian(2, 1.0, 1.0)
    for value in (1e12, np.nan, np.inf):
        with pytest.raises(ValueError, match="Lower clip_norm or epsilon"):
            servers.shares(query_for(mechanism), {"x": np.array([0.0, value])}, 2)
    with pytest.raises(ValueError, match="without a public bound"):
        servers.shares(query_for(None), {"x": np.zeros(2)}, 2)
