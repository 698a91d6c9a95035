"""Hazards against values of R, generalised linear models and closed forms."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skpmtl import PrivacyLeakWarning
from skpmtl.privacy import audit
from skpmtl.survival import SurvivalMTL, periods
from skpmtl.survival.counts import PiecewiseHazards
from skpmtl.survival.estimators import concordance
from skpmtl.survival.frailty import fit_frailty
from skpmtl.survival.periods import Periods

# Infections of 38 patients with catheters (McGilchrist and Aisbett, Biometrics 47, 1991).
KIDNEY = np.loadtxt(Path(__file__).with_name("kidney.csv"), delimiter=",", skiprows=1)
DTYPE = [("event", bool), ("time", float)]


def kidney():
    time, status, age, sex, patient = KIDNEY.T
    y = np.array(list(zip(status == 1, time, strict=True)), dtype=DTYPE)
    return np.c_[age, sex], y, patient.astype(int)


def generated(seed=0, m=60, n=10):
    rng = np.random.default_rng(seed)
    task, X = np.repeat(np.arange(m), n), rng.normal(size=(m * n, 2))
    rate = 0.5 * np.exp(X @ [1.0, -0.5] + 0.6 * rng.normal(size=m)[task])
    end, censored = rng.exponential(1.0 / rate), rng.uniform(0.5, 3.0, size=m * n)
    y = np.array(list(zip(end <= censored, np.minimum(end, censored), strict=True)), dtype=DTYPE)
    return X, y, task


def test_hazard_ratios_are_those_of_r():
    """R 4.2.2, survival 3.5-3: coxph(Surv(time, status) ~ age + sex + frailty(id, dist = "gauss",
    eps = 1e-9), kidney, ties = "breslow", control = coxph.control(eps = 1e-11, iter.max = 50,
    outer.max = 50))"""
    X, y, patient = kidney()
    model = SurvivalMTL(epsilon=None).fit(X, y, task=patient)
    assert_allclose(np.exp(model.coef_), np.exp([0.004944493, -1.387909578]), rtol=1e-4)
    assert model.frailty_variance_ == pytest.approx(0.5507, rel=1e-4)
    summary = model.summary()
    assert_allclose(summary.effects["std_error"], [0.0123668, 0.441421], rtol=0.03)
    assert_allclose(summary.effects["effect"], model.coef_)
    assert_allclose(summary.variances["variance"], [model.frailty_variance_])


@pytest.mark.parametrize(
    ("name", "theta", "coef", "errors"),
    [
        (
            "lung",
            0.018671,
            [0.01109200324, -0.55586142995, 0.49131075601],
            [0.009349815079, 0.1684922751, 0.1165827416],
        ),
        ("rats", 0.394636, [0.9045864913], [0.3221119434]),
    ],
)
def test_further_hazard_ratios_are_those_of_r(name, theta, coef, errors):
    """R 4.2.2, survival 3.5-3: coxph(Surv(time, status) ~ age + sex + ph.ecog + frailty(inst, dist
    = "gauss"), lung, ties = "breslow") without missing values; Surv(time, status) ~ rx +
    frailty(litter, dist = "gauss") of female rats."""
    data = np.loadtxt(Path(__file__).with_name(f"{name}.csv"), delimiter=",", skiprows=1)
    task, (time, status) = data[:, 0].astype(int), data[:, -2:].T
    y = np.array(list(zip(status == 1, time, strict=True)), dtype=DTYPE)
    model = SurvivalMTL(epsilon=None).fit(data[:, 1:-2], y, task=task)
    assert_allclose(np.exp(model.coef_), np.exp(coef), rtol=1e-4)
    assert_allclose(model.frailty_variance_, theta, rtol=1e-3)
    assert_allclose(np.sqrt(np.diag(model.covariance_)), errors, rtol=0.01)


def test_without_frailties_it_is_the_regression_of_cox():
    phreg = pytest.importorskip("statsmodels.duration.hazard_regression").PHReg
    X, y, patient = kidney()
    periods = Periods(y["event"], y["time"], None, None)
    found = fit_frailty(X, patient - 1, 38, periods, theta=0.0)
    other = phreg(y["time"], X, status=y["event"], ties="breslow").fit()
    assert_allclose(found.coef, other.params, rtol=1e-6)
    assert_allclose(np.sqrt(np.diag(found.covariance)), other.bse, rtol=1e-6)


@pytest.mark.parametrize(
    ("risk", "expected"),
    [
        (lambda age, sex: age, 0.5025380710659898),
        (lambda age, sex: -sex, 0.6357868020304569),  # most pairs have ties of risk
        (lambda age, sex: np.round(age / 10.0), 0.500761421319797),
    ],
)
def test_concordance_is_that_of_r_and_of_scikit_survival(risk, expected):
    """R 4.2.2, survival: concordance(Surv(time, status) ~ risk, kidney, reverse = TRUE); the same
    of concordance_index_censored."""
    X, y, _ = kidney()
    found = concordance(y["event"], y["time"], risk(*X.T))
    assert found == pytest.approx(expected, rel=1e-12)


def test_with_cuts_it_is_a_poisson_regression():
    sklearn = pytest.importorskip("sklearn.linear_model")
    X, y, patient = kidney()
    X = X - X.mean(axis=0)
    periods = Periods(y["event"], y["time"], None, [20.0, 60.0, 150.0])
    found = fit_frailty(X, patient - 1, 38, periods, theta=0.0)
    rows, intervals, events, exposure = periods.table()
    columns = np.c_[X[rows], np.eye(4)[intervals]]
    peer = sklearn.PoissonRegressor(
        alpha=1e-9, fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=1000
    )
    peer.fit(columns, events / exposure, sample_weight=exposure)
    assert_allclose(found.coef, peer.coef_[:2], rtol=1e-4)
    assert_allclose(np.log(found.hazard) - found.centre @ found.coef, peer.coef_[2:], rtol=1e-4)


@pytest.mark.parametrize("cuts", [None, [0.5, 1.5]])
def test_columns_far_from_zero_change_nothing(cuts):
    """Such as years: the hazard of the year 0 is too small to be a number."""
    X, y, task = generated()
    alone, far = (SurvivalMTL(cuts, epsilon=None).fit(Z, y, task=task) for Z in (X, X + 2e3))
    assert_allclose(far.predict(X + 2e3, task), alone.predict(X, task), rtol=1e-6)
    assert_allclose(far.coef_, alone.coef_, rtol=1e-6)


@pytest.mark.parametrize("cuts", [None, [0.5, 1.5]])
def test_columns_that_follow_from_others_change_nothing(cuts):
    """A constant one, and a copy in another unit and from another origin."""
    X, y, task = generated()
    alone = SurvivalMTL(cuts, epsilon=None).fit(X, y, task=task)
    more = np.c_[X, np.full(len(X), 0.1), 1e3 * X[:, 0] + 1e5]
    model = SurvivalMTL(cuts, epsilon=None).fit(more, y, task=task)
    assert_allclose(model.predict(more, task), alone.predict(X, task), rtol=1e-6)
    assert_allclose(model.frailty_variance_, alone.frailty_variance_, rtol=1e-5)
    assert model.coef_[2] == 0.0
    assert_allclose(model.coef_[1], alone.coef_[1], rtol=1e-6)
    error = np.sqrt(np.diag(model.covariance_))
    assert_allclose(error[1], np.sqrt(alone.covariance_[1, 1]), rtol=1e-5)
    assert np.isnan(error[[0, 2, 3]]).all()


@pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
def test_passes_are_those_over_rows_written_out():
    X, y, task = generated(m=40, n=5)
    entry, order = 0.3 * y["time"], np.random.default_rng(0).permutation(len(X))
    found = []
    for how in ("passes", "rows"):
        model = PiecewiseHazards([0.2, 0.5, 1.0], epsilon=40.0, tasks=range(40), random_state=0)
        given = X[order], y[order], entry[order], task[order]
        columns, target, ids, *weights = getattr(model, how)(*given)
        found.append(model.fit(columns, target, task=ids, sample_weight=(weights or [None])[0]))
    for name in ("coef_", "intercept_", "row_reach_", "prediction_range_"):
        one, other = (getattr(model, name) for model in found)
        assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    assert np.ptp(found[0].intercept_) > 0.01 and found[0].billboard_.slopes_are_equal


@pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_large_budget_finds_hazards_where_events_are_few(seed):
    X, y, task = generated(seed, m=600, n=2)
    y["event"] &= np.random.default_rng(seed).uniform(size=len(y)) < 0.5
    X = X * [10.0, 1.0] + [50.0, 0.0]
    exact, model = (
        SurvivalMTL([0.5, 1.0], epsilon=e, tasks=range(600), random_state=seed).fit(X, y, task=task)
        for e in (None, 1000.0)
    )
    assert_allclose(model.coef_, exact.coef_, rtol=0.12)


def test_tasks_without_a_common_level_share_the_named_slopes():
    """For 60 tasks at epsilon 1 no level is looked for."""
    X, y, task = generated(n=3)
    model = SurvivalMTL([0.5, 1.0], epsilon=1.0, tasks=range(60)).fit(X, y, task=task)
    assert np.isnan(model.baseline_hazard_).all() and model.coef_.any()
    assert_allclose(model.estimator_.coef_[:, :2], np.tile(model.coef_, (60, 1)), rtol=1e-12)
    found = model.privacy_.found()
    assert "no common place" in found["levels"] and "noise" in found["slopes"]


def test_exposures_add_up_to_the_time_at_risk():
    _, y, _ = kidney()
    entry = 0.3 * y["time"]
    periods = Periods(y["event"], y["time"], entry, [7.0, 100.0])
    assert_allclose(periods.exposure.sum(axis=1), y["time"] - entry)
    assert periods.events().sum() == y["event"].sum()
    rows, _, events, _ = periods.table()
    assert_allclose(np.bincount(rows, events), y["event"])
    hazard = np.array([0.1, 0.02, 0.5])
    assert_allclose(periods.cumulative(hazard, [0.0, 3.0, 50.0, 101.0]), [0, 0.3, 1.56, 3.06])


def test_rows_split_at_entry_times_are_the_same_data():
    """A row cut in two at a time, the second part with late entry, has the same likelihood."""
    X, y, task = generated()
    half, cuts = 0.5 * y["time"], [0.2, 0.5, 1.0, 2.0]
    whole = SurvivalMTL(cuts, epsilon=None).fit(X, y, task=task)
    first = y.copy()
    first["event"], first["time"] = False, half
    parts = SurvivalMTL(cuts, epsilon=None).fit(
        np.r_[X, X],
        np.concatenate([first, y]),
        task=np.r_[task, task],
        entry=np.concatenate([np.zeros(len(y)), half]),
    )
    assert_allclose(parts.coef_, whole.coef_, rtol=1e-6)
    assert_allclose(parts.frailty_variance_, whole.frailty_variance_, rtol=1e-4)


@pytest.mark.parametrize("cuts", [None, [0.2, 0.5, 1.0, 2.0]])
def test_survival_falls_and_follows_the_hazard(cuts):
    X, y, task = generated()
    model = SurvivalMTL(cuts, epsilon=None).fit(X, y, task=task)
    survival = model.predict_survival_function(X[:7], task=task[:7])
    assert (np.diff(survival, axis=1) <= 0).all() and (survival > 0).all()
    hazard = model.predict_cumulative_hazard_function(X[:7], task=task[:7])
    assert_allclose(survival, np.exp(-hazard))
    ratio = hazard[0] / hazard[1]
    expected = np.exp((X[0] - X[1]) @ model.coef_)
    assert_allclose(ratio[ratio == ratio], expected, rtol=1e-10)
    assert model.score(X, y, task=task) > 0.7


class Leaks(SurvivalMTL):
    """Intervals end with the last time of all."""

    def _fit_counts(self, X, y, entry, ids):
        fitted = super()._fit_counts(X, y, entry, ids)
        return {**fitted, "ends_": np.append(fitted["ends_"][:-1], y["time"].max())}


def test_hazards_under_a_budget_are_audited():
    X, y, task = generated(m=40, n=5)
    changed = task == 3
    other_X, other_y = np.where(changed[:, None], 1e300, X), y.copy()
    other_y["time"][changed] = 1e6
    data = X, y, task
    absent = tuple(part[~changed] for part in data)
    known = [0.2, 1.0], {"epsilon": 20.0, "tasks": range(40)}
    for neighbour in ((other_X, other_y, task), absent):
        result = audit(SurvivalMTL(known[0], **known[1]), data, neighbour, n_draws=0)
        assert result.passed, str(result)
        assert result.n_replayed > 9 and result.sensitivity_observed > 1.0
    found = audit(Leaks(known[0], **known[1]), data, (other_X, other_y, task), n_draws=0).failures
    assert "Attribute: ends_ depends on more than the releases." in found


@pytest.mark.parametrize(("n", "off"), [(10, 0.1), (2, 0.45)])
def test_a_budget_finds_hazards_of_many_tasks(n, off):
    X, y, task = generated(m=300, n=n)
    cuts = [0.2, 0.5, 1.0, 2.0]
    private = SurvivalMTL(cuts, epsilon=20.0, tasks=range(300)).fit(X, y, task=task)
    exact = SurvivalMTL(cuts, epsilon=None, tasks=range(300)).fit(X, y, task=task)
    assert private.privacy_.epsilon == 20.0
    assert_allclose(private.coef_, exact.coef_, atol=off)
    assert private.score(X, y, task=task) > exact.score(X, y, task=task) - 0.06
    summary = private.summary()
    assert_allclose(summary.effects["effect"], private.coef_)
    assert np.isnan(summary.effects["std_error"]).all() and "no standard errors" in str(summary)
    assert "epsilon = 20" in summary.facts["budget"]
    unknown = private.predict_survival_function(X[:2], times=[0.5, 1.0])
    assert ((unknown > 0) & (unknown < 1)).all()


def test_unknown_tasks_and_rows_without_ids_have_the_means():
    X, y, task = generated()
    model = SurvivalMTL(epsilon=None).fit(X, y, task=task)
    expected = model.predict(X[:3])
    assert_allclose(model.predict(X[:3], task=[999, 1000, 999]), expected)
    assert_allclose(model.predict(X[:3], task=[np.nan, np.nan, np.nan]), expected)


def test_what_cannot_be_fitted_says_why():
    X, y, task = generated()
    wrong = {
        "structured array": (X, y["time"], {}),
        "cuts=": (X, y, {"epsilon": 1.0}),
        "one entry": (X[:-1], y, {}),
        "missing": (np.where(X > 2, np.nan, X), y, {}),
        "must increase": (X, y, {"cuts": [2.0, 1.0]}),
        "lacks tasks": (X, y, {"tasks": range(3)}),
    }
    for message, (rows, target, options) in wrong.items():
        model = SurvivalMTL(**{"epsilon": None, **options})
        with pytest.raises(ValueError, match=message):
            model.fit(rows, target, task=task)
        assert not hasattr(model, "coef_")
    with pytest.raises(ValueError, match="entry="):
        SurvivalMTL(epsilon=None).fit(X, y, task=task, entry=y["time"])
    with pytest.raises(ValueError, match="task of every row"):
        SurvivalMTL(epsilon=None).fit(X, y)
    with pytest.warns(PrivacyLeakWarning, match="tasks="):
        SurvivalMTL([1.0]).fit(X, y, task=task)


def test_no_number_of_rows_ends_a_fit_with_a_budget(monkeypatch):
    monkeypatch.setattr(periods, "_MOST", 100)
    X, y, task = generated()
    model = SurvivalMTL([1.0], tasks=range(60)).fit(X, y, task=task)
    assert np.isfinite(model.predict(X, task=task)).all()
    with pytest.raises(ValueError, match="too many: pass cuts="):
        SurvivalMTL(epsilon=None).fit(X, y, task=task)


def test_few_tasks_keep_their_own_models_under_a_budget():
    X, y, patient = kidney()
    model = SurvivalMTL([30.0, 120.0], epsilon=1.0, tasks=range(1, 39)).fit(X, y, task=patient)
    assert np.isfinite(model.predict(X, task=patient)).all()
    with pytest.raises(ValueError, match="population|pooled"):
        model.predict(X)
    assert "Nothing was found" in str(model.summary()) and not model.privacy_.releases
