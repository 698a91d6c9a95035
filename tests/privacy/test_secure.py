"""secure=True: exact noise by OpenDP."""

import math
import sys

import numpy as np
import pytest
from scipy.stats import kstest, norm

from skpmtl import PrivateMTL, PrivateMTLClassifier, PrivateSearch
from skpmtl.datasets.generators import make_low_rank_tasks
from skpmtl.privacy.rng import ExactSource

M = 20
RARE = 1e-7  # noise of the operating system cannot be seeded: false alarms
X, y, TASK = make_low_rank_tasks(n_tasks=M, n_samples=20, n_features=3, random_state=0)
MODELS = [PrivateMTL, PrivateMTLClassifier]


def listed(model):
    return {"classes": [0, 1]} if "Classifier" in model.__name__ else {}


def fit(model, **settings):
    target = (y > 0).astype(int) if "Classifier" in model.__name__ else y
    if "Classifier" in model.__name__:
        for k in range(M):  # both classes in every task
            target[np.flatnonzero(TASK == k)[:2]] = [0, 1]
    return model(secure=True, tasks=range(M), **listed(model), **settings).fit(X, target, task=TASK)


@pytest.fixture
def opendp():
    return pytest.importorskip("opendp", reason="needs the extra skpmtl[secure]")


@pytest.mark.parametrize("model", MODELS)
def test_missing_extra_is_named(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r"pip install skpmtl\[secure\]"):
        fit(model)


def test_seed_and_secure_exclude_each_other():
    with pytest.raises(ValueError, match="random_state=0 must be None"):
        fit(PrivateMTL, random_state=0)


def test_no_extra_is_needed_without_privacy(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    assert fit(PrivateMTL, epsilon=None).privacy_.guarantee == "none"


def test_releases_lie_on_the_grid_and_have_the_stated_noise(opendp):
    fits = [fit(PrivateMTL, epsilon=50.0) for _ in range(10)]
    billboard, report = fits[0].billboard_, fits[0].privacy_
    assert len({entry["mechanism"] for entry in report.releases}) == 2  # of vectors and matrices
    for S, entry in zip(billboard.releases, report.releases, strict=True):
        step = 2.0 ** (math.floor(math.log2(entry["sensitivity"] / entry["mu"])) - 24)
        assert np.array_equal(S / step, np.rint(S / step))
    # The first one is of the same sums in all fits. Of 9 x 162 numbers: the standard error is 0.02.
    S = np.stack([model.billboard_.releases[0] for model in fits])
    std = math.sqrt(S.var(axis=0, ddof=1).mean())
    assert std / report.releases[0]["noise_std"] == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize("bits", [25, 45, 60])
def test_exact_noise_does_not_saturate_at_any_scale(opendp, bits):
    """At 2^60 steps nothing of 64 bits is left beyond 8 scales; of 32 bits nothing at 2^45."""
    source, scale = ExactSource(), 2.0**bits
    assert kstest(source.discrete_normal(scale, (50, 40)).ravel() / scale, norm.cdf).pvalue > RARE


def test_search_is_exact_too(opendp):
    model = PrivateMTL(secure=True, tasks=range(M))
    search = PrivateSearch(model, {"levels": ["auto", "free"]}, n_trials=2).fit(X, y, task=TASK)
    assert search.privacy_.arithmetic.startswith("exact")
