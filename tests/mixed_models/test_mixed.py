"""Formulas, what they refuse under a budget, and the results of `mixed`."""

import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import skpmtl
from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl._display.summary import variance_columns
from skpmtl.inspection import Summary, compare_summaries

from .test_published import read

pd = pytest.importorskip("pandas")
pytest.importorskip("formulae")
M = 40


def table(seed=0):
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(M), 12)
    x, sex = rng.uniform(1.0, 9.0, size=len(g)), rng.choice(["f", "m"], size=len(g))
    y = 3.0 + 2.0 * x - (sex == "m") + rng.normal(size=M)[g] + rng.normal(size=len(g))
    count = rng.poisson(np.exp(0.2 * x))
    return pd.DataFrame(
        {"y": y, "x": x, "sex": sex, "g": g, "n": count, "win": (y > 13).astype(int)}
    )


def exact(formula="y ~ x + sex + (1 | g)", data=None, **more):
    return skpmtl.mixed(formula, table() if data is None else data, epsilon=None, **more)


PUBLIC = {"g": range(M), "sex": ["f", "m"], "y": (0.0, 30.0), "win": [0, 1]}


@pytest.fixture(scope="module")
def private():
    with pytest.warns(skpmtl.PrivacyLeakWarning, match="random_state"):
        return skpmtl.mixed(
            "y ~ x + sex + (1 | g)", table(), epsilon=8.0, public=PUBLIC, random_state=0
        )


def test_population_level_leaves_out_random_effects():
    data, fit = table(), exact("y ~ x + (1 + x | g)")
    fixed = fit.params["Intercept"] + fit.params["x"] * data["x"]
    assert_allclose(fit.predict(data, level="population"), fixed)
    own = fit.random_effects.loc[data["g"]].to_numpy()
    expected = fixed + own[:, 0] + own[:, 1] * data["x"].to_numpy()
    assert_allclose(fit.predict(data), expected)


def test_unknown_and_missing_tasks_get_the_population_level():
    fit, new = exact(), table().head(3).astype({"g": object})
    new["g"] = [0, 999, None]
    level = fit.predict(new, level="population")
    assert_allclose(fit.predict(new)[1:], level[1:])
    assert fit.predict(new)[0] != level[0]


def test_an_offset_is_a_term_with_coefficient_one():
    data = table()
    shifted = data.assign(y=data["y"] + 5.0 * data["x"], t=5.0 * data["x"])
    with_offset = exact("y ~ x + sex + offset(t) + (1 | g)", shifted)
    assert_allclose(with_offset.params, exact().params, rtol=1e-6)
    assert_allclose(with_offset.predict(shifted), exact().predict(data) + shifted["t"])


def test_weights_are_inverse_variances():
    data = table()
    double = exact("y ~ x + (1 | g)", data, weights=np.full(len(data), 4.0))
    plain = exact("y ~ x + (1 | g)", data)
    assert_allclose(double.params, plain.params, rtol=1e-5)
    assert_allclose(double.cov_params("model"), plain.cov_params("model"), rtol=1e-4)
    weights = np.arange(len(data)) % 2
    dropped = exact("y ~ x + (1 | g)", data.assign(w=weights), weights="w")
    assert_allclose(dropped.params, exact("y ~ x + (1 | g)", data[1::2]).params, rtol=1e-5)


def test_the_private_fit_is_that_of_the_estimator(private):
    data = table()
    columns = np.c_[data["x"], data["sex"] == "m"]
    est = PrivateMTL(
        epsilon=8.0,
        standard_errors=True,
        tasks=range(M),
        unseen_task="mean",
        target_range=(0.0, 30.0),
        random_state=0,
    )
    with pytest.warns(skpmtl.PrivacyLeakWarning):
        est.fit(columns, data["y"], task=data["g"])
    assert list(private.params.index) == ["x", "sex[m]", "Intercept"]
    assert_allclose(private.predict(data), est.predict(columns, task=data["g"]))
    assert_allclose(
        private.predict(data, level="population"), est.predict(columns, level="population")
    )


def test_the_model_matrix_times_effects_is_the_population(private):
    data, fit = table(), exact()
    expected = fit.model_matrix(data) @ fit.params.to_numpy()
    assert_allclose(fit.predict(data, level="population"), expected)
    # A private mean is bounded where scales of columns are noisy, but has the same columns.
    columns = np.c_[data["x"], data["sex"] == "m", np.ones(len(data))]
    assert_array_equal(private.model_matrix(data), columns)


def test_a_private_summary_is_of_released_numbers(private):
    text = str(private.summary())
    assert "epsilon = 8" in text and "rows" not in private.summary().facts
    assert private.summary().effects_frame().shape == (3, 5)
    assert "<table>" in private.summary()._repr_html_()
    latex = private.summary().to_latex().split("\n\n")
    assert len(latex) == 3 and "(2)" in latex[2] and "corr" not in "".join(latex)
    assert all(line.count("&") <= 6 for line in "\n".join(latex).splitlines())
    with pytest.raises(ValueError, match="kind='CR1' belongs to fits without a budget"):
        private.summary("CR1")


def test_correlations_of_many_components_are_in_the_frame_alone():
    for n, shown in ((3, True), (9, False)):
        columns = variance_columns(np.eye(n), [f"x{j}" for j in range(n)])
        summary = Summary("", components=[f"x{j}" for j in range(n)], variances=columns)
        for text in (str(summary), summary._repr_html_()):
            assert ("corr. x0" in text) == shown == ("variance_frame()" not in text)
        assert "corr. x0" in summary.variance_frame()


def test_a_fit_that_found_nothing_has_no_effects_to_read():
    """The middle of the public range is no estimate of an intercept."""
    with pytest.warns(skpmtl.privacy.LittleFoundWarning):
        fit = skpmtl.mixed("y ~ x + (1 | g)", table(), epsilon=0.1, public=PUBLIC)
    assert fit.params.isna().all() and "there are no estimates" in str(fit.summary())
    assert "there are no estimates" in str(fit.estimator.summary())
    assert_allclose(fit.predict(table(), level="population"), 15.0)


@pytest.mark.parametrize(
    "term", ["scale(x)", "center(x)", "I(x - np.mean(x))", "bs(x, df=4)", "poly(x, 2)"]
)
def test_terms_of_other_rows_are_refused_under_a_budget(term):
    with pytest.raises(ValueError, match="depend on other rows|private") as refused:
        skpmtl.mixed(f"y ~ {term} + (1 | g)", table(), public=PUBLIC)
    assert "9." not in str(refused.value)
    exact(f"y ~ {term} + (1 | g)")


def test_terms_of_public_numbers_are_taken_under_a_budget():
    public = {**PUBLIC, "at": [3.0, 6.0], "x": (0.0, 10.0)}
    spline = "bs(x, knots=at, lower_bound=0, upper_bound=10, center=False)"
    for term in ("np.log(x)", "{(x - 5) / 2}", "I(x^2)", f"0 + {spline}", "sex:x"):
        fit = skpmtl.mixed(f"y ~ {term} + (1 | g)", table(), epsilon=50.0, public=public)
        assert np.isfinite(fit.predict(table())).all()


def test_levels_are_public_under_a_budget():
    with pytest.raises(ValueError, match=r"public=\{'sex'"):
        skpmtl.mixed("y ~ sex + (1 | g)", table(), public={"g": range(M)})
    public = {**PUBLIC, "sex": ["f"]}
    with pytest.raises(ValueError, match="categories that are not in its list"):
        skpmtl.mixed("y ~ sex + (1 | g)", table(), public=public)


def test_columns_do_not_follow_the_rows_under_a_budget():
    data = table()
    data.loc[:, "sex"] = "f"
    fit = skpmtl.mixed("y ~ sex + (1 | g)", data, epsilon=50.0, public=PUBLIC)
    assert list(fit.params.index) == ["sex[m]", "Intercept"]


def test_counts_take_the_logarithm_of_an_exposure():
    data = table().assign(t=2.0)
    formula = "n ~ x + offset(np.log(t)) + (1 | g)"
    fit = skpmtl.mixed(formula, data, family="poisson", epsilon=None)
    plain = skpmtl.mixed("n ~ x + (1 | g)", data, family="poisson", epsilon=None)
    assert_allclose(fit.params, plain.params - [np.log(2.0), 0.0], atol=1e-6)
    assert_allclose(fit.predict(data), plain.predict(data), rtol=1e-5)
    # With a budget exposures are weights of rates, times those that are given.
    public = {"g": range(M), "n": (0.1, 50)}
    settings = {"epsilon": 8.0, "random_state": 0}
    est = PrivateMTL(
        loss="poisson", tasks=range(M), unseen_task="mean", target_range=(0.1, 50), **settings
    )
    with pytest.warns(skpmtl.PrivacyLeakWarning):
        given = {"family": "poisson", "public": public, "weights": np.full(len(data), 0.5)}
        fit = skpmtl.mixed(formula, data, **given, **settings)
        X, rate = data[["x"]].to_numpy(), data["n"] / data["t"]
        est.fit(X, rate, task=data["g"], sample_weight=0.5 * data["t"])
    assert_allclose(fit.predict(data), 2.0 * est.predict(X, task=data["g"]), rtol=1e-10)


def test_a_constant_offset_of_classes_is_a_public_intercept():
    data = table().assign(t=1.5)
    settings = {"epsilon": 8.0, "random_state": 0}
    given = {"init": {"coef": [0.0], "intercept": 1.5}, "unseen_task": "mean"}
    est = PrivateMTLClassifier(tasks=range(M), classes=[0, 1], **given, **settings)
    with pytest.warns(skpmtl.PrivacyLeakWarning):
        formula, public = "win ~ x + offset(t) + (1 | g)", {"g": range(M), "win": [0, 1]}
        fit = skpmtl.mixed(formula, data, family="binomial", public=public, **settings)
        est.fit(data[["x"]].to_numpy(), data["win"], task=data["g"])
    for level in ("task", "population"):
        known = {"task": data["g"]} if level == "task" else {"level": level}
        expected = est.predict_proba(data[["x"]].to_numpy(), **known)[:, 1]
        assert_allclose(fit.predict(data, level=level), expected, rtol=1e-10)
    assert_allclose(fit.params["Intercept"] + 1.5, est.mean_intercept_, rtol=1e-10)
    assert fit.estimator.summary().names == ["x0", "intercept"]
    moved = fit.predict(data.assign(t=0.5), level="population")
    plain = fit.predict(data, level="population")
    apart = np.log(plain / (1.0 - plain)) - np.log(moved / (1.0 - moved))
    assert_allclose(apart, 1.0, rtol=1e-6)


def test_two_classes_are_predicted_by_probabilities():
    data = table()
    fit = skpmtl.mixed("win ~ x + (1 | g)", data, family="binomial", epsilon=None)
    assert fit.estimator is None and ((fit.predict(data) > 0) & (fit.predict(data) < 1)).all()
    assert np.corrcoef(fit.predict(data), data["win"])[0, 1] > 0.8
    with pytest.raises(ValueError, match="list of classes"):
        skpmtl.mixed("win ~ x + (1 | g)", data, family="binomial", public={"g": range(M)})
    with pytest.raises(ValueError, match="two classes"):
        skpmtl.mixed("g ~ x + (1 | sex)", data, family="binomial", epsilon=None)
    with pytest.warns(skpmtl.PrivacyLeakWarning):
        private = skpmtl.mixed(
            "win ~ x + (1 | g)", data, family="binomial", public=PUBLIC, random_state=0
        )
    assert isinstance(private.estimator, PrivateMTLClassifier)
    assert np.isnan(private.summary().effects["std_error"]).all()


def test_trials_are_rows_written_out():
    rng, g = np.random.default_rng(1), np.repeat(np.arange(M), 3)
    n, x = rng.integers(0, 9, size=len(g)), rng.normal(size=len(g))
    data = pd.DataFrame({"x": x, "g": g, "n": n, "k": rng.binomial(n, 1 / (1 + np.exp(-x)))})
    rows, won = skpmtl.expand_trials(data["k"], data["n"])
    long = data.iloc[rows].assign(win=won)
    for epsilon, noise in ((None, {}), (8.0, {"random_state": 3})):
        settings = {"family": "binomial", "epsilon": epsilon, **noise}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", skpmtl.PrivacyLeakWarning)
            short = skpmtl.mixed(
                "prop(k, n) ~ x + (1 | g)", data, public={"g": range(M)}, **settings
            )
            full = skpmtl.mixed("win ~ x + (1 | g)", long, public=PUBLIC, **settings)
            shares = data.assign(k=data["k"] / data["n"])  # some are 0 / 0
            share = skpmtl.mixed(
                "k ~ x + (1 | g)", shares, weights="n", public={"g": range(M)}, **settings
            )
        same = assert_array_equal if epsilon else partial(assert_allclose, rtol=1e-7)
        assert_array_equal(share.params, short.params)
        same(short.params, full.params)
        same(short.predict(data), full.predict(data))


@pytest.mark.parametrize(
    ("change", "family", "message"),
    [
        ({"n": -1}, "binomial", "0 or more"),
        ({"n": 0.5}, "binomial", "whole numbers"),
        ({"n": 0}, "binomial", "more successes than trials"),
        ({}, "gaussian", 'needs family="binomial"'),
    ],
)
def test_trials_that_cannot_be_say_why(change, family, message):
    data = table().assign(k=1, n=3).assign(**change)
    with pytest.raises(ValueError, match=message):
        skpmtl.mixed("prop(k, n) ~ x + (1 | g)", data, family=family, epsilon=None)
    with pytest.raises(ValueError, match="no column .'trials'"):
        skpmtl.mixed("prop(k, trials) ~ x + (1 | g)", data, family="binomial", epsilon=None)


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_shares_without_trials_say_what_to_write(epsilon):
    data, settings = table().assign(k=0.4), {"family": "binomial", "epsilon": epsilon}
    with pytest.raises(ValueError, match="weights="):
        skpmtl.mixed("k ~ x + (1 | g)", data, public={"g": range(M)}, **settings)
    with pytest.raises(ValueError, match="times weights are whole numbers"):
        skpmtl.mixed("k ~ x + (1 | g)", data, weights=np.full(len(data), 3), **settings)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ x", "no grouping"),
        ("y ~ x + (1 + x | g) + (0 + x | sex)", "at most one"),
        ("x + (1 | g)", "no target"),
        ("y ~ x + (1 | g", "cannot be read"),
        ("y ~ I(2^3^x) + (1 | g)", "write parentheses"),
        ("y ~ I((x + 1)^(-x)^2) + (1 | g)", "write parentheses"),
        ("y ~ z + (1 | g)", "no columns"),
        ("y ~ x + (1 | school)", "no column"),
        ("y ~ ns(x, 3) + (1 | g)", "'ns', which is no column"),
        ("y ~ x / 2 + (1 | g)", r"Arithmetic stands in I\("),
        ("y ~ 0 + (1 | g)", "no fixed effects"),
        ("y ~ x + (1 + x | g) + (0 + n | g)", r"\(1 \+ x \|\| g\)"),
    ],
)
def test_formulas_that_cannot_be_fitted_say_why(formula, message):
    with pytest.raises(ValueError, match=message):
        exact(formula)


@pytest.mark.parametrize(
    ("as_in_r", "here"),
    [
        ("y ~ x + (x - 1 | g)", "y ~ x + (0 + x | g)"),
        ("y ~ x + (1 | g) + (x + 0 | g)", "y ~ x + (x || g)"),
        ("y ~ x + (1 | g) + (I((x + 1) / 2) - 1 | g)", "y ~ x + (I((x + 1) / 2) || g)"),
        ("y ~ factor(sex) + (1 | as.factor(g))", "y ~ C(sex) + (1 | g)"),
        (
            "y ~ `a b` + I(x / 2) + sin(2 * pi * x) + (1 | g.1)",
            "y ~ n + x + np.sin(6.283185307179586 * x) + (1 | g)",
        ),
        ("y ~ 1 + (1 | sex / win / n)", "y ~ 1 + (1 | sex) + (1 | sex:win) + (1 | sex:win:n)"),
    ],
)
def test_what_r_writes_in_another_way_is_read(as_in_r, here):
    data = table()
    data["a b"], data["g.1"] = data["n"], data["g"]
    one, other = exact(as_in_r, data), exact(here, data)
    both = (fit.summary("model").variance_frame()["std"] for fit in (one, other))
    assert_allclose(*both, rtol=1e-5)
    assert_allclose(one.predict(data), other.predict(data), rtol=1e-6)


@pytest.mark.parametrize(
    ("term", "of_x"),
    [
        ("{(x - 5) / 10}", lambda x: (x - 5.0) / 10.0),
        ("I((x - 5)^2)", lambda x: (x - 5.0) ** 2),
        ("log((x + 1) * (2 + x))", lambda x: np.log((x + 1.0) * (2.0 + x))),
        ("I(x - (x - 5)**2 / (1 + (x + 1) / 2))", lambda x: x - (x - 5) ** 2 / (1 + (x + 1) / 2)),
        ("np.exp(-(x + 1) / 4)", lambda x: np.exp(-(x + 1.0) / 4.0)),
        ("exp(-x^2 / 20)", lambda x: np.exp(-(x**2) / 20.0)),
        ("exp(-((x - 5) / 4)^2)", lambda x: np.exp(-(((x - 5.0) / 4.0) ** 2))),
        ("I(x / -(1 + x^(1/2))^2)", lambda x: -x / (1.0 + x**0.5) ** 2),
        ("I(x - -log(x + 1) ** 2)", lambda x: x + np.log(x + 1.0) ** 2),
    ],
)
@pytest.mark.parametrize("epsilon", [None, 30.0])
def test_terms_are_the_arithmetic_of_r(term, of_x, epsilon):
    """Of fixed and random effects, and of the target: names of formulae leave parentheses out."""
    data = table()
    data["w"], data["v"] = of_x(data["x"]), np.log((data["y"] + 40.0) / 2.0)
    known = {"epsilon": epsilon, "random_state": 0, "public": {"g": range(M)}}
    fits = []
    for formula in (f"log((y + 40) / 2) ~ {term} + ({term} | g)", "v ~ w + (w | g)"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fits.append(skpmtl.mixed(formula, data, **known))
    assert_allclose(*(fit.params for fit in fits), rtol=1e-9)
    assert_allclose(*(fit.predict(data) for fit in fits), rtol=1e-9)


@pytest.mark.parametrize("change", ["objects", "dates", "mixed"])
def test_columns_of_no_type_are_refused(change):
    """Every number would be a category of its own."""
    data = table()
    values = {
        "objects": data["x"].astype(object),
        "dates": pd.to_datetime("2020-01-01") + pd.to_timedelta(data["x"], unit="D"),
        "mixed": data["x"].astype(object).where(data["x"] > 2.0, "few"),
    }
    with pytest.raises(ValueError, match=r"'x'.*\.astype\(float\) makes numbers"):
        exact("y ~ x + (1 | g)", data.assign(x=values[change]))


@pytest.mark.parametrize(
    "formula", ["y ~ log(x) + (1 | g)", "y ~ x + (1 + log(x) | g)", "y ~ sex:log(x) + (1 | g)"]
)
def test_terms_that_are_not_finite_are_refused(formula):
    """And no level of a category is named."""
    data = table()
    message = r"Terms \['(sex:)?log\(x\)'\] have values that are not finite"
    with pytest.raises(ValueError, match=message):
        exact(formula, data.assign(x=data["x"] - 5.0))
    with pytest.raises(ValueError, match="not finite"):
        exact(formula, data).predict(data.assign(x=-1.0))


def test_missing_values_are_refused():
    for column in ("x", "y", "g"):
        data = table().astype({"g": float})
        data.loc[3, column] = np.nan
        with pytest.raises(ValueError, match="missing|no group"):
            exact(data=data)
    with pytest.raises(TypeError, match="DataFrame"):
        exact(data=[1, 2])


def test_effects_of_crossed_groupings_are_those_of_lme4():
    """R 4.2.2, lme4 1.1-31: ranef(lmer(diameter ~ 1 + (1 | plate) + (1 | sample), Penicillin))"""
    fit = exact("diameter ~ 1 + (1 | plate) + (1 | sample)", read("penicillin"))
    sample = fit.random_effects["sample"]["Intercept"]
    assert_allclose(sample[["A", "F"]], [2.18705840, -3.00374477], rtol=1e-3)
    new = pd.DataFrame({"plate": ["new"], "sample": ["A"]})
    assert_allclose(fit.predict(new), fit.params["Intercept"] + sample["A"])
    with pytest.raises(ValueError, match="one grouping"):
        fit.cov_params("CR2")


def test_effects_of_subjects_are_those_of_lme4():
    """R 4.2.2, lme4 1.1-31: ranef and VarCorr of lmer(Reaction ~ Days + (Days | Subject))"""
    fit = exact("Reaction ~ Days + (1 + Days | Subject)", read("sleepstudy"))
    frame = fit.summary("model").variance_frame()
    assert frame.index.tolist() == ["Intercept", "Days", "residual"]
    assert_allclose(frame["variance"], frame["std"] ** 2)
    assert frame.loc["Days", "corr. Intercept"] == pytest.approx(0.06555, abs=1e-4)
    assert_allclose(fit.random_effects.iloc[0], [2.2586, 9.1990], atol=1e-3)


def test_the_loop_finds_the_fixed_effects_of_lme4():
    """In a balanced design they are those of least squares, and the errors CR2."""
    data = read("sleepstudy")
    est = PrivateMTL(epsilon=None, unseen_task="mean", standard_errors=True)
    summary = est.fit(data[["Days"]], data["Reaction"], task=data["Subject"]).summary()
    level = summary.variance_frame()["std"]["level at the centre of the columns"]
    assert est.level_spread_ == pytest.approx(level)  # measured, in both places
    assert_allclose(summary.effects["effect"], [10.467, 251.405], atol=1e-3)
    assert_allclose(summary.effects["std_error"], [1.546, 6.825], atol=1e-3)


def test_no_random_effects_are_clustered_least_squares():
    """statsmodels: ols("Reaction ~ Days").fit(cov_type="cluster", groups=Subject); the same of
    clubSandwich 0.5.8: vcovCR(lm(Reaction ~ Days, sleepstudy), Subject, "CR1S")"""
    data = read("sleepstudy")
    fit = exact("Reaction ~ Days + (0 | Subject)", data)
    assert_allclose(fit.params, [251.40510484848474, 10.467285959595975], rtol=1e-9)
    std = np.sqrt(np.diag(fit.cov_params("CR1")))
    assert_allclose(std, [6.84369979, 1.55012492], rtol=1e-8)
    assert fit.random_effects.shape == (18, 0)
    assert_allclose(fit.predict(data), fit.predict(data, level="population"))
    with pytest.raises(ValueError, match="have one grouping"):
        exact("Reaction ~ 1 + (0 | Subject) + (1 | Days)", data)


@pytest.mark.parametrize("formula", ["y ~ 1 + (1 | g)", "y ~ 1 + offset(x) + (x | g)"])
def test_a_formula_without_slopes_is_refused_under_a_budget(formula):
    """In words of its own: those of scikit-learn tell how many rows there are."""
    with pytest.raises(ValueError, match="add a fixed effect, or pass epsilon=None"):
        skpmtl.mixed(formula, table(), public=PUBLIC)


def test_a_second_grouping_is_refused_under_a_budget():
    formula = "y ~ x + (1 | g) + (1 | sex)"
    with pytest.raises(ValueError, match=r"public=\{'sex': levels\}.*factors=\{'sex': 'above'\}"):
        skpmtl.mixed(formula, table(), public={"g": range(M)})
    with pytest.raises(ValueError, match="must map every task to its level"):
        skpmtl.mixed(formula, table(), public=PUBLIC, factors={"sex": "above"})
    with pytest.raises(ValueError, match="formula has no"):
        skpmtl.mixed("y ~ x + (1 | g)", table(), public=PUBLIC, factors={"sex": "above"})


def test_a_public_factor_above_tasks_is_a_grouping():
    data = table()
    district = {task: "north" if task < 20 else "south" for task in range(M)}
    data["y"] += 4.0 * (data["g"] < 20)
    formula = "y ~ x + (1 | g) + (1 | district)"
    settings = {"public": {**PUBLIC, "district": district}, "factors": {"district": "above"}}
    exact_fit = skpmtl.mixed(formula, data, epsilon=None, **settings)
    with pytest.warns(skpmtl.PrivacyLeakWarning):
        fit = skpmtl.mixed(formula, data, epsilon=40.0, random_state=0, **settings)
    apart = [f.random_effects["district"]["Intercept"] for f in (exact_fit, fit)]
    for effects in apart:
        assert effects["north"] - effects["south"] == pytest.approx(4.0, abs=0.8)
    assert "district" in fit.summary().variance_frame().index
    # Effects of tasks are those that their district leaves.
    own = fit.random_effects["g"]["Intercept"].groupby(np.arange(M) < 20).mean()
    assert abs(own[True] - own[False]) < 1.0


def test_a_nested_grouping_is_a_factor_below_tasks():
    """With a budget its effects are near those of restricted maximum likelihood."""
    rng, data = np.random.default_rng(0), table()
    number = rng.integers(3, size=len(data))
    data["class"] = np.array(list("abc"))[number]
    data["y"] += 3.0 * rng.normal(size=(M, 3))[data["g"], number]
    data["g"] = data["g"].astype(str)
    formula, public = "y ~ x + (1 | g / class)", {**PUBLIC, "g": sorted(set(data["g"]))}
    exact_fit = exact(formula, data)
    with pytest.warns(skpmtl.PrivacyLeakWarning):
        fit = skpmtl.mixed(formula, data, public=public, epsilon=40.0, random_state=0)
    one, other = (f.random_effects["g:class"]["Intercept"] for f in (exact_fit, fit))
    assert np.corrcoef(one, other.loc[one.index])[0, 1] > 0.97
    assert "g:class" in fit.summary().variance_frame().index
    found, expected = fit.predict(data), exact_fit.predict(data)
    assert np.mean((found - data["y"]) ** 2) < 1.1 * np.mean((expected - data["y"]) ** 2)
    fit.predict(data.drop(columns="class"), level="population")
    with pytest.raises(ValueError, match=r"write \(1 \| g / sex\)"):
        settings = {"public": PUBLIC, "factors": {"sex": "below"}}
        skpmtl.mixed("y ~ x + (1 | g) + (1 | sex)", table(), **settings)


def test_a_grouping_with_a_public_list_is_a_factor_across_tasks():
    """With a budget its effects are near those of restricted maximum likelihood."""
    rng, data = np.random.default_rng(0), table()
    data["item"] = 100 + rng.integers(6, size=len(data))
    data["y"] += 2.0 * rng.normal(size=6)[data["item"] - 100]
    formula, items = "y ~ x + (1 | g) + (1 | item)", range(100, 106)
    exact_fit = exact(formula, data)
    with pytest.warns(skpmtl.PrivacyLeakWarning):
        public = {"g": range(M), "item": items}
        fit = skpmtl.mixed(formula, data, public=public, epsilon=40.0, random_state=0)
    one, other = (f.random_effects["item"]["Intercept"] for f in (exact_fit, fit))
    assert_allclose(other, one, atol=0.35)
    stds = (f.summary().variance_frame()["std"] for f in (exact_fit, fit))
    one, other = ([std[name] for name in std.index if "item" in name] for std in stds)
    assert_allclose(other, one, rtol=0.6)  # of six levels, on a coarse grid
    new = data.assign(g=-1)  # a pupil that was not fitted has the effects of items
    apart = fit.predict(new) - fit.predict(new, level="population")
    assert_allclose(apart, fit.random_effects["item"]["Intercept"][data["item"].astype(str)])


@pytest.mark.parametrize("formula", ["y ~ x + (x + z | g)", "y ~ x + (x + z || g)"])
def test_random_effects_of_zeros_have_no_variance(formula):
    rng = np.random.default_rng(0)
    g, x = np.repeat(np.arange(30), 8), rng.normal(size=240)
    y = 1.0 + (2.0 + rng.normal(size=30)[g]) * x + rng.normal(size=30)[g] + rng.normal(size=240)
    data = pd.DataFrame({"y": y, "x": x, "z": 0.0, "g": g})
    fit = skpmtl.mixed(formula, data, epsilon=None)
    without = skpmtl.mixed(formula.replace(" + z", ""), data, epsilon=None)
    summary, told = fit.summary(), ["Intercept", "x", "residual"]
    frame, expected = summary.variance_frame(), without.summary().variance_frame()
    assert frame.loc["z"].isna().all() and "differ in z," in str(summary)
    assert_allclose(frame["std"][told], expected["std"], rtol=1e-4)
    ends = fit.deviation_intervals()
    assert ends.loc["z"].isna().all() and np.isfinite(ends.loc[told]).all(axis=None)
    voted = PrivateMTL(epsilon=None).fit(data[["x", "z"]], y, task=g).summary()
    columns = ["variance", "std", "lower", "upper"]
    assert voted.variance_frame().loc["z", columns].isna().all()
    assert voted.variance_frame().loc["x", "std"] > 0.0


def test_names_are_escaped_for_latex():
    text = Summary("t", names=["a|b^2_c\\"], effects={"effect": np.array([-1e-9])}).to_latex()
    assert r"a\textbar{}b\textasciicircum{}2\_c\textbackslash{} & $-1 \cdot 10^{-9}$ \\" in text
    # A bracket after the end of a row would be its argument.
    text = Summary("t", names=["[x]"], effects={"effect": np.ones(1)}).to_latex()
    assert "\n{}[x] & $1$" in text


def test_summaries_of_several_fits_stand_side_by_side(private):
    frame = compare_summaries({"exact": exact().summary("model"), "private": private.summary()})
    assert frame.columns.tolist()[:2] == [("exact", "effect"), ("exact", "std_error")]
    assert set(frame.index) == {"Intercept", "x", "sex[m]"}
    assert np.isfinite(frame["private"]["effect"]).all()
    with pytest.raises(TypeError, match="summary"):
        compare_summaries({"exact": exact()})


def test_estimators_summarise_their_pooled_model():
    data = table()
    est = PrivateMTL(epsilon=None, unseen_task="mean").fit(data[["x"]], data["y"], task=data["g"])
    summary = est.summary()
    assert isinstance(summary, Summary) and summary.names == ["x", "intercept"]
    assert_array_equal(summary.effects["effect"], [*est.mean_coef_, est.mean_intercept_])
    spreads = summary.variance_frame()["std"]
    assert spreads["level at the centre of the columns"] == pytest.approx(est.level_spread_)
    # The spread of slopes adds to that of levels by the distance from the centre.
    at_zero = spreads["x"] * est.billboard_.column_centre[0]
    assert spreads["intercept"] == pytest.approx(np.hypot(est.level_spread_, at_zero))


def test_known_tasks_are_predicted_at_the_population_level():
    data = table()
    X, y = data[["x"]].to_numpy(), data["y"]
    est = PrivateMTL(epsilon=None, unseen_task="mean").fit(X, y, task=data["g"])
    pooled = X @ est.mean_coef_ + est.mean_intercept_
    assert_allclose(est.predict(X, task=data["g"], level="population"), pooled)
    assert_allclose(est.predict(X, level="population"), pooled)
    ids = data["g"].astype(float).where(data["g"] > 0)
    mixed_ids = est.predict(X, task=ids)
    assert_allclose(mixed_ids[data["g"] == 0], pooled[data["g"] == 0])
    assert_allclose(mixed_ids[data["g"] > 0], est.predict(X, task=data["g"])[data["g"] > 0])
    with pytest.raises(ValueError, match="level="):
        est.predict(X, task=data["g"], level="school")
    bare = PrivateMTL(epsilon=None).fit(X, y, task=data["g"])
    with pytest.raises(ValueError, match="missing"):
        bare.predict(X, task=ids)
