"""relation= of model-protected learning: priors about centres from public covariates."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import (
    MPMTLLowRank,
    load_billboard,
    save_billboard,
)
from tests.helpers import data
from tests.helpers.data import covariates

M, D, N = 120, 6, 8
pytestmark = pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")


def related(seed=0, m=M):
    return data.related(np.random.default_rng(seed), m, N, D, noise=0.5, level=0.0)


def error(est, W):
    return float(np.sum((est.coef_[: len(W)] - W) ** 2) / np.sum(W**2))


def test_without_a_budget_covariates_are_found():
    X, y, task, Z, B, W = related()
    est = MPMTLLowRank(epsilon=None, relation=covariates(Z)).fit(X, y, task=task)
    assert_allclose(est.relation_coef_, B, atol=0.2)
    alone = MPMTLLowRank(epsilon=None).fit(X, y, task=task)
    assert error(est, W) < 0.7 * error(alone, W)
    assert est.privacy_.guarantee == "none"
    # The shape is that of what remains, which is the same in all directions.
    assert np.linalg.eigvalsh(est.billboard_.root @ est.billboard_.root.T)[-1] < 0.5


def test_covariates_help_under_privacy():
    X, y, task, Z, B, W = related(2, 400)
    options = {"epsilon": 10.0, "tasks": range(400), "random_state": 0}
    est = MPMTLLowRank(relation=covariates(Z), **options).fit(X, y, task=task)
    assert error(est, W) < 0.8 * error(MPMTLLowRank(**options).fit(X, y, task=task), W)
    assert np.abs(est.relation_coef_ - B).max() < 0.4


def test_a_file_with_ids_of_two_kinds_is_refused(tmp_path):
    """Strings have no place among sorted integers, which `personalize` looks tasks up in."""
    X, y, task, Z, _, _ = related()
    est = MPMTLLowRank(epsilon=None, relation=covariates(Z)).fit(X, y, task=task)
    save_billboard(est, tmp_path / "whole")
    with np.load(tmp_path / "whole") as archive:
        arrays = dict(archive)
    text = arrays.pop("header").tobytes().decode()
    first, mixed = (json.dumps(list(range(M)))[:9], json.dumps(["a", *range(1, M)])[:11])
    assert text.count(first) == 1
    header = np.frombuffer(text.replace(first, mixed).encode(), np.uint8)
    with open(tmp_path / "mixed", "wb") as stream:
        np.savez(stream, header=header, **arrays)
    with pytest.raises(ValueError, match="different integers, or strings"):
        load_billboard(tmp_path / "mixed")
