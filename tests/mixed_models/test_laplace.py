"""Classes and counts against numbers of lme4, and the gradient against differences.

R 4.2.2, lme4: glmer with control = glmerControl(optimizer = "bobyqa", tolPwrss = 1e-12), since its
defaults stop early.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import skpmtl
from skpmtl.mixed_models.laplace import FAMILIES, _Problem
from skpmtl.mixed_models.reml import GroupedRows

from .test_published import read

pytest.importorskip("pandas")
pytest.importorskip("formulae")


def fitted(formula, data, family, **more):
    return skpmtl.mixed(formula, data, family=family, epsilon=None, **more)


def std_errors(fit, kind="model"):
    return np.sqrt(np.diag(fit.cov_params(kind)))


def test_trials_of_cattle_herds_are_as_lme4_prints_them():
    """glmer(cbind(incidence, size - incidence) ~ period + (1 | herd), cbpp, binomial)"""
    data = read("cbpp").astype({"period": str})
    fit = fitted("prop(incidence, size) ~ period + (1 | herd)", data, "binomial")
    coef = [-1.3985321098, -0.9923327972, -1.1286721333, -1.5803139510]
    assert_allclose(fit.params, coef, rtol=1e-6)
    errors = [0.2324718388, 0.3066422104, 0.3266375751, 0.4274362049]
    assert_allclose(std_errors(fit), errors, rtol=1e-5)
    assert fit.deviance == pytest.approx(184.052563743, rel=1e-8)
    assert fit.summary().variances["std"] == pytest.approx(0.642261426, rel=1e-6)
    effects = [0.59002001820, -0.29889721166, 0.40625556558, 0.03927731276]
    assert_allclose(fit.random_effects["Intercept"][:4], effects, rtol=1e-5)
    expected = [0.30820765055, 0.14174824826, 0.12595752511, 0.08402874484]
    assert_allclose(fit.predict(data)[:4], expected, rtol=1e-6)


def test_two_classes_are_as_lme4_prints_them():
    """glmer(w ~ x + z + (1 | g), binomial), and with offset(z) in place of z"""
    data = read("unbalanced").assign(w=lambda d: (d["y"] > 1).astype(int))
    fit = fitted("w ~ x + z + (1 | g)", data, "binomial")
    assert_allclose(fit.params, [-0.71294316, 1.94703153, 0.85098014], rtol=1e-5)
    assert_allclose(std_errors(fit), [0.48680945, 0.58692434, 0.61431111], rtol=1e-5)
    assert fit.deviance == pytest.approx(49.2987061849, rel=1e-8)
    fit = fitted("w ~ x + offset(z) + (1 | g)", data, "binomial")
    assert_allclose(fit.params, [-0.68981078, 1.98157865], rtol=2e-5)
    assert fit.summary().variances["std"] == pytest.approx(0.78330041, rel=1e-4)


@pytest.mark.parametrize(
    ("bar", "coef", "std", "deviance"),
    [
        ("|", [5.53224809, 0.33860364], [0.10637362, 0.18419809], 1788.11646265),
        ("||", [5.53232144, 0.33845351], [0.10522168, 0.18229309], 1788.30631562),
    ],
)
def test_counts_with_slopes_are_as_lme4_prints_them(bar, coef, std, deviance):
    """glmer(y ~ d + (1 + d | Subject), poisson), with y = round(Reaction) and d = Days / 10"""
    data = read("sleepstudy").assign(y=lambda t: t["Reaction"].round(), d=lambda t: t["Days"] / 10)
    fit = fitted(f"y ~ d + (1 + d {bar} Subject)", data, "poisson")
    assert_allclose(fit.params, coef, rtol=1e-5)
    assert_allclose(fit.summary("model").variances["std"], std, rtol=1e-5)
    assert fit.deviance == pytest.approx(deviance, rel=1e-8)
    if bar == "|":
        assert fit.summary().variances["corr. Intercept"][1] == pytest.approx(-0.114287, abs=1e-4)
        assert_allclose(std_errors(fit), [0.026459852, 0.045999824], rtol=1e-4)


def test_several_groupings_are_as_lme4_prints_them():
    """R 4.2.2: glmer(cbind(incidence, size - incidence) ~ period + (1 | herd) + (1 | obs), cbpp,
    binomial)"""
    data = read("cbpp").astype({"period": str}).assign(obs=range(56))
    fit = fitted("prop(incidence, size) ~ period + (1 | herd) + (1 | obs)", data, "binomial")
    coef = [-1.50029168, -1.22650920, -1.32884055, -1.86626530]
    assert_allclose(fit.params, coef, rtol=1e-6)
    assert_allclose(std_errors(fit), [0.2967129, 0.4803117, 0.4939206, 0.5936111], rtol=1e-5)
    assert fit.deviance == pytest.approx(174.63831108, rel=1e-8)
    assert_allclose(fit.summary().variances["std"], [0.1839471, 0.8910785], rtol=1e-5)
    assert_allclose(fit.predict(data[:2]), [0.1630837093, 0.1529059469], rtol=1e-5)
    with pytest.raises(ValueError, match="one grouping"):
        fit.cov_params("CR1")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_is_that_of_the_deviance(family):
    rng, m, n = np.random.default_rng(0), 8, 9
    X = rng.normal(size=(m * n, 3))
    y = rng.integers(0, 2 if family == "binomial" else 6, size=m * n).astype(float)
    others = [np.eye(k)[rng.integers(k, size=m * n)] for k in (3, 20)]
    others = tuple(sparse.csr_array(W) for W in others[: 2 * (family == "poisson")])
    rows = GroupedRows(X, X[:, :2], y, np.arange(m + 1) * n, others)
    weight, offset = rng.uniform(0.5, 2.0, size=m * n), 0.3 * rng.normal(size=m * n)
    problem = _Problem(rows, FAMILIES[family], weight, offset, True)
    params = np.array([0.7, -0.4, 0.5, *[0.6, 0.9][: len(others)], 0.3, -0.2, 0.1])
    moves = 1e-5 * np.eye(len(params))
    found = [problem.total(params + e)[0] - problem.total(params - e)[0] for e in moves]
    assert_allclose(np.array(found) / 2e-5, problem.total(params)[1], rtol=1e-5, atol=1e-5)


def test_weights_are_numbers_of_rows():
    data = read("unbalanced").assign(w=lambda d: (d["y"] > 1).astype(int))
    weights = 1 + np.arange(len(data)) % 3
    short = fitted("w ~ x + (1 | g)", data, "binomial", weights=weights)
    full = fitted("w ~ x + (1 | g)", data.loc[data.index.repeat(weights)], "binomial")
    assert_allclose(short.params, full.params, rtol=1e-6)
    assert short.deviance == pytest.approx(full.deviance, rel=1e-8)
    assert_allclose(short.cov_params(), full.cov_params(), rtol=1e-4)


def test_influences_sum_to_zero_and_robust_errors_differ():
    data = read("cbpp").astype({"period": str})
    fit = fitted("prop(incidence, size) ~ period + (1 | herd)", data, "binomial")
    influences = fit._fit.fit.influences
    assert_allclose(influences.sum(axis=0), 0.0, atol=1e-6)
    assert_allclose(fit.cov_params("CR0"), influences.T @ influences)
    assert_allclose(fit.cov_params(), fit.cov_params("CR0") * 15 / 14)
    with pytest.raises(ValueError, match="CR1"):
        fit.summary("CR2")


def test_large_numbers_are_no_reason_for_a_warning():
    data = read("sleepstudy").assign(y=lambda t: (1e5 * t["Reaction"]).round())
    fit = fitted("y ~ Days + (1 | Subject)", data, "poisson")
    assert fit.params["Intercept"] == pytest.approx(np.log(251.4e5), abs=0.05)


def test_classes_that_a_column_separates_are_warned_of():
    data = read("unbalanced").assign(w=lambda d: (d["x"] > 0).astype(int))
    with pytest.warns(UserWarning, match="separate classes"):
        fitted("w ~ x + (1 | g)", data, "binomial")
    with pytest.warns(UserWarning, match="counts of zero"):
        fitted("w ~ x + (1 | g)", data.assign(w=0), "poisson")
    one = fitted("w ~ z + (1 | one)", data.assign(one=0), "binomial")
    assert np.isnan(one.summary().effects["std_error"]).all()
    assert np.isfinite(std_errors(one)).all()


def test_what_a_column_separates_has_no_error_and_the_rest_has():
    data = read("unbalanced").assign(w=lambda d: (d["y"] > 1).astype(int))
    data["f"] = np.where(np.arange(len(data)) % 3 == 0, "c", "a")
    data.loc[data["f"] == "c", "w"] = 1
    with pytest.warns(UserWarning, match="separate classes"):
        fit = fitted("w ~ x + f + (1 | g)", data, "binomial")
    rest = fitted("w ~ x + (1 | g)", data[data["f"] == "a"], "binomial")  # the same likelihood
    assert_allclose(std_errors(fit)[:2], std_errors(rest), rtol=1e-3)
    assert np.isnan(std_errors(fit)[2]) and np.isnan(std_errors(fit, "CR1")[2])


def test_the_origin_of_a_column_does_not_matter():
    data = read("unbalanced").assign(n=lambda d: np.exp(d["y"]).round(), far=lambda d: d["x"] + 1e5)
    near = fitted("n ~ x + I(x^2) + (1 | g)", data, "poisson")
    far = fitted("n ~ far + I((far - 100000)^2) + (1 | g)", data, "poisson")
    assert far.deviance == pytest.approx(near.deviance, rel=1e-8)
    assert_allclose(far.params[1:], near.params[1:], rtol=1e-4)
    assert_allclose(std_errors(far)[1:], std_errors(near)[1:], rtol=1e-4)


def test_without_random_effects_a_fit_is_that_of_a_generalised_linear_model():
    statsmodels = pytest.importorskip("statsmodels.api")
    data = read("unbalanced").assign(w=lambda d: (d["y"] > 1).astype(int))
    fit = fitted("w ~ x + z + (0 | g)", data, "binomial")
    model = statsmodels.GLM.from_formula("w ~ x + z", data, family=statsmodels.families.Binomial())
    known = model.fit()
    assert_allclose(fit.params, known.params, rtol=1e-6)
    assert_allclose(std_errors(fit), known.bse, rtol=1e-4)
    assert fit.deviance == pytest.approx(-2.0 * known.llf, rel=1e-9)
    groups = {"groups": data["g"], "use_correction": False}
    robust = model.fit(cov_type="cluster", cov_kwds=groups)
    assert_allclose(std_errors(fit, "CR0"), robust.bse, rtol=1e-4)
