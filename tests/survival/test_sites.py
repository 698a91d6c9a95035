"""Hazards across sites against the same fit of one table."""

import os

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import load_billboard, save_billboard
from skpmtl.federated import Study, load_models
from skpmtl.federated.check import check_site
from skpmtl.federated.curator import curate
from skpmtl.federated.site import read_rows
from skpmtl.survival import SurvivalMTL
from tests.helpers.federated_sites import InProcessSites

M, N, CUTS, EPSILON = 60, 8, [0.2, 0.5, 1.0], 30.0
TIMES = [0.1, 0.5, 2.0]

pytestmark = [
    pytest.mark.filterwarnings("ignore:X does not have valid feature names"),
]


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def study_of(**settings):
    given = {"parameters": {"cuts": CUTS, "epsilon": EPSILON}, "features": ["age", "dose"]}
    given |= {"seed": 3, "timeout": 1.0, "enrolment": 0.3, "tasks": list(range(M))}
    return Study(**{"name": "hazards", "estimator": "SurvivalMTL", **given, **settings})


def rows():
    rng = np.random.default_rng(0)
    task, X = np.repeat(np.arange(M), N), rng.normal(size=(M * N, 2))
    rate = np.exp(X @ [1.0, -0.5] + 0.5 * rng.normal(size=M)[task])
    entry = np.where(rng.uniform(size=M * N) < 0.3, 0.1, 0.0)
    end, censored = entry + rng.exponential(1.0 / rate), rng.uniform(0.5, 3.0, size=M * N)
    event = (end <= censored).astype(np.int64)
    return {"X": X, "y": np.minimum(end, censored), "task": task, "event": event, "entry": entry}


def target(table):
    return np.rec.fromarrays([table["event"] == 1, table["y"]], names="event,time")


def test_three_sites_equal_one_table(tmp_path, capsys):
    study, table = study_of(), rows()
    X, task = table["X"], table["task"]
    whole = SurvivalMTL(CUTS, epsilon=EPSILON, tasks=range(M), random_state=3)
    whole.fit(X, target(table), task=task, entry=table["entry"])
    assert np.isfinite(whole.coef_).all()
    parts = [range(k, M, 3) for k in range(3)]
    sites = InProcessSites(study, tmp_path, parts, rows=table)
    billboard = curate(sites, study, tmp_path / "curator")
    assert billboard.report.epsilon == whole.privacy_.epsilon
    shared = "coef_", "baseline_hazard_", "frailty_variance_", "ends_"
    for k, part in enumerate(parts):
        (folder,) = (tmp_path / f"site{k}").glob("hazards-*")
        model, mine = load_models(folder), np.isin(task, part)
        assert model.tasks_.tolist() == list(part)
        for name in shared:
            assert_allclose(getattr(model, name), getattr(whole, name), rtol=1e-8)
        ours, theirs = (
            each.predict_survival_function(X[mine], task=task[mine], times=TIMES)
            for each in (model, whole)
        )
        assert_allclose(ours, theirs, rtol=1e-6)
        assert np.abs(theirs - whole.predict_survival_function(X[mine], times=TIMES)).max() > 0.01
    public = load_billboard(tmp_path / "curator" / "billboard.npz")
    for name in shared:
        assert_allclose(getattr(public, name), getattr(whole, name), rtol=1e-8)
    assert_allclose(public.predict(X[:5]), whole.predict(X[:5]), rtol=1e-6)
    assert public.summary().effects["effect"].shape == (2,)
    assert public.feature_names_in_.tolist() == ["age", "dose"]
    assert check_site(tmp_path / "site0.toml") == 0
    assert "hazards: SurvivalMTL(cuts=[0.2, 0.5, 1.0], epsilon=30.0" in capsys.readouterr().out
    save_billboard(whole, tmp_path / "whole.npz")
    assert_allclose(load_billboard(tmp_path / "whole.npz").predict(X), public.predict(X), rtol=1e-6)
    some = task < 2
    few = {name: array[some] for name, array in table.items()}
    public.personalize(few["X"], target(few), task=few["task"], entry=few["entry"])
    assert_allclose(public.predict(X[:5], task=task[:5]), whole.predict(X[:5], task=task[:5]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parameters": {"epsilon": 1.0}}, "cuts="),
        ({"parameters": {"cuts": [2.0, 1.0]}}, "cuts= must increase"),
        ({"parameters": {"cuts": CUTS, "epsilon": None}}, "no private fit"),
        ({"parameters": {"cuts": CUTS, "loss": "squared"}}, "loss"),
    ],
)
def test_studies_that_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        study_of(**settings)


def test_rows_that_are_refused(tmp_path):
    table = rows()
    np.savez(tmp_path / "rows.npz", **table)
    np.savez(tmp_path / "odd.npz", **{**table, "event": table["event"] + 1})
    study = study_of()
    for path, columns, message in (
        ("rows", {}, "need event="),
        ("rows", {"event": "event", "weight": "entry"}, "no weight="),
        ("odd", {"event": "event"}, "0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            read_rows(tmp_path / f"{path}.npz", study, **columns)
    with pytest.raises(ValueError, match="PrivateMTL has none"):
        read_rows(
            tmp_path / "rows.npz",
            Study("x", "PrivateMTL", list(range(M)), 2),
            event="event",
        )
    with pytest.raises(ValueError, match="2 features, the study 3"):
        read_rows(tmp_path / "rows.npz", study_of(features=3), event="event")
