"""secure=True: exact noise by OpenDP."""

import sys

import pytest
from scipy.stats import kstest, norm

from skpmtl import PrivateMTL, PrivateSearch
from skpmtl.datasets.generators import make_low_rank_tasks
from skpmtl.privacy.rng import ExactSource

RARE = 1e-7  # noise of the operating system cannot be seeded: false alarms
X, y, TASK = make_low_rank_tasks(n_tasks=20, n_samples=20, n_features=3, random_state=0)


def fit(**settings):
    return PrivateMTL(secure=True, tasks=range(20), **settings).fit(X, y, task=TASK)


def test_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r"pip install skpmtl\[secure\]"):
        fit()
    assert fit(epsilon=None).privacy_.guarantee == "none"  # without privacy none is needed


def test_seed_and_secure_exclude_each_other():
    with pytest.raises(ValueError, match="random_state=0 must be None"):
        fit(random_state=0)


@pytest.mark.parametrize("bits", [25, 45, 60])
def test_exact_noise_does_not_saturate_at_any_scale(bits):
    """At 2^60 steps nothing of 64 bits is left beyond 8 scales; of 32 bits nothing at 2^45."""
    pytest.importorskip("opendp", reason="needs the extra skpmtl[secure]")
    source, scale = ExactSource(), 2.0**bits
    assert kstest(source.discrete_normal(scale, (50, 40)).ravel() / scale, norm.cdf).pvalue > RARE


def test_search_is_exact_too():
    pytest.importorskip("opendp", reason="needs the extra skpmtl[secure]")
    model = PrivateMTL(secure=True, tasks=range(20))
    search = PrivateSearch(model, {"levels": ["auto", "free"]}, n_trials=2).fit(X, y, task=TASK)
    assert search.privacy_.arithmetic.startswith("exact")
