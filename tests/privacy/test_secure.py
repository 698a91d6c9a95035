"""secure=True: exact noise by OpenDP, for every model-protected estimator."""

import math
import sys

import numpy as np
import pytest

from skpmtl import (
    PPSGD,
    DPMetaInit,
    DPMetaInitClassifier,
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    PrivateFedAvg,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
    PrivateSearch,
)
from skpmtl.datasets.generators import make_low_rank_tasks
from skpmtl.privacy import PrivacyLeakWarning
from skpmtl.privacy.rng import (
    EXACT_ARITHMETIC,
    SEEDED_ARITHMETIC,
    SYSTEM_ARITHMETIC,
    ExactSource,
    SystemSource,
)

M = 20
X, y, TASK = make_low_rank_tasks(n_tasks=M, n_samples=20, n_features=3, random_state=0)
MODELS = [MPMTLLowRank, MPMTLGroupSparse, MPMTLLowRankClassifier, MPMTLGroupSparseClassifier]


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
        fit(MPMTLLowRank, random_state=0)


def test_no_extra_is_needed_without_privacy(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    assert fit(MPMTLLowRank, epsilon=None).privacy_.guarantee == "none"


SETTINGS = [
    {},
    {"unseen_task": "mean"},
    {"algorithm": "proximal"},
    {"mechanism": "laplace"},
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_report_says_exact(opendp, model, settings):
    if settings.get("mechanism") == "laplace" and "LowRank" in model.__name__:
        settings = {"delta": 1e-6}
    report = fit(model, **settings).privacy_
    assert report.arithmetic.startswith("exact")
    assert report.rng == "operating system, exact discrete samplers of OpenDP"
    plain = model(tasks=range(M), **listed(model))
    plain = plain.fit(X, np.tile([0, 1], len(y) // 2), task=TASK).privacy_
    assert not plain.arithmetic.startswith("exact") and plain.rng == "operating system"


@pytest.mark.parametrize(
    "model, settings",
    [
        (PrivateMeanRegMTL, {}),
        (PrivateMeanRegMTL, {"unseen_task": "mean", "clip_quantile": 0.5, "sampling": "fixed"}),
        (PrivateMeanRegMTLClassifier, {}),
        (PrivateFedAvg, {}),
        (PPSGD, {}),
        (DPMetaInit, {}),
        (DPMetaInit, {"privacy": "local"}),
        (DPMetaInitClassifier, {}),
    ],
)
def test_reports_of_rounds_say_what_sampler_they_had(opendp, model, settings):
    """Exact where OpenDP drew the noise, and nowhere else."""
    if "Meta" not in model.__name__:
        settings = {"n_rounds": 2, **settings}
    report = fit(model, **settings).privacy_
    assert report.rng == ExactSource.description and report.arithmetic == EXACT_ARITHMETIC
    assert "Arithmetic: exact: " in str(report)
    target = np.tile([0, 1], len(y) // 2)
    settings |= listed(model)
    plain = model(tasks=range(M), **settings).fit(X, target, task=TASK).privacy_
    assert plain.rng == SystemSource.description and plain.arithmetic == SYSTEM_ARITHMETIC
    with pytest.warns(PrivacyLeakWarning):
        seeded = model(random_state=0, tasks=range(M), **settings).fit(X, target, task=TASK)
    assert seeded.privacy_.arithmetic == SEEDED_ARITHMETIC


def test_releases_lie_on_the_grid_and_have_the_stated_noise(opendp):
    fits = [fit(MPMTLLowRank, n_releases=1) for _ in range(60)]
    entry = fits[0].privacy_.releases[1]
    step = 2.0 ** (math.floor(math.log2(entry["sensitivity"] / entry["mu"])) - 24)
    # Replayed rows: all releases share their mean, up to what the vote before them moves.
    S = np.stack([model.billboard_.releases[1] for model in fits])
    assert np.array_equal(S / step, np.rint(S / step))
    diagonal = S[:, range(3), range(3)] - S[:, range(3), range(3)].mean(axis=0)
    assert diagonal.std() / entry["noise_std"] == pytest.approx(1.0, abs=0.2)


def test_wishart_noise_has_no_exact_sampler(opendp):
    with pytest.raises(ValueError, match="no exact sampler for Wishart"):
        fit(MPMTLLowRank, mechanism="wishart")


def test_search_is_exact_too(opendp):
    model = MPMTLLowRank(secure=True, tasks=range(M))
    search = PrivateSearch(model, {"n_releases": [1, 2]}, n_trials=2).fit(X, y, task=TASK)
    assert search.privacy_.arithmetic.startswith("exact")
