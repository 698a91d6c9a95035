"""What the displays draw is what they were given."""

import sys

import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from scipy.stats import t as student
from scipy.stats import t as student_t
from sklearn.dummy import DummyRegressor
from sklearn.metrics import mean_squared_error

from skpmtl import (
    DPMetaInit,
    MPMTLGroupSparseClassifierCV,
    MPMTLLowRank,
    MPMTLLowRankCV,
    PrivacyLeakWarning,
    PrivateMeanRegMTL,
    PrivateMTLClassifier,
    mtl_path,
)
from skpmtl.datasets.generators import make_low_rank_tasks
from skpmtl.inspection import (
    EffectsDisplay,
    PathDisplay,
    PrivacyUtilityDisplay,
    RelationDisplay,
    TaskIntervalDisplay,
    TaskRelatednessDisplay,
)
from skpmtl.reproduction import LocalOnly

EPSILONS = [10.0, 0.1, 1.0]
SCORES = np.array([[0.60, 0.62], [0.75, 0.79], [0.66, 0.70]])


@pytest.fixture(autouse=True)
def without_screen():
    backend = matplotlib.get_backend()
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")
    matplotlib.use(backend)


def test_plot_draws_means_spreads_and_baselines():
    display = PrivacyUtilityDisplay(
        epsilons=EPSILONS, scores=SCORES, baselines={"alone": [0.71, 0.73]}, score_name="nMSE"
    ).plot(name="ours")
    line, _, (bars,) = display.errorbar_
    np.testing.assert_allclose(line.get_xdata(), [0.1, 1, 10])
    np.testing.assert_allclose(line.get_ydata(), [0.77, 0.68, 0.61])
    # Two repeats that differ by 2h have standard deviation h * sqrt(2).
    np.testing.assert_allclose(
        [np.ptp(segment[:, 1]) for segment in bars.get_segments()],
        2 * np.sqrt(2) * np.array([0.02, 0.02, 0.01]),
    )
    np.testing.assert_allclose(display.baseline_lines_[0].get_ydata(), 0.72)
    assert display.ax_.get_xscale() == "log"
    assert [t.get_text() for t in display.ax_.get_xticklabels()] == ["0.1", "1", "10"]
    labels = {text.get_text() for text in display.ax_.get_legend().get_texts()}
    assert labels == {"ours", "alone"}
    assert display.figure_ is display.ax_.figure


def test_from_predictions_scores_every_repeat():
    y_true = [np.array([1.0, 2.0, 3.0]), np.array([0.0, 4.0])]
    shifted = {2.0: [y + 1 for y in y_true], 1.0: [y_true[0] + 1, y_true[1] + 3]}
    display = PrivacyUtilityDisplay.from_predictions(
        y_true, shifted, metric=mean_squared_error, baselines={"exact": y_true}
    )
    np.testing.assert_allclose(display.scores, [[1, 1], [1, 9]])
    assert display.epsilons == [2.0, 1.0]
    assert display.baselines == {"exact": [0, 0]}
    assert display.ax_.get_ylabel() == "mean_squared_error"
    default = PrivacyUtilityDisplay.from_predictions(y_true, shifted)
    np.testing.assert_allclose(default.scores, [[1 / (2 / 3), 1 / 4], [1 / (2 / 3), 9 / 4]])
    with pytest.raises(ValueError, match="zip"):
        PrivacyUtilityDisplay.from_predictions(y_true, {1.0: y_true[:1]})


@pytest.mark.parametrize(
    ("epsilons", "scores", "message"),
    [
        ([1, 2], [[0.5, 0.5]], r"shape \(1, 2\) do not fit"),
        ([1, 2], [0.5, 0.5], r"shape \(2,\) do not fit"),
        ([1, np.inf], [[0.5], [0.5]], "belongs into baselines"),
        ([0, 1], [[0.5], [0.5]], "must be positive"),
    ],
)
def test_bad_input_is_named(epsilons, scores, message):
    with pytest.raises(ValueError, match=message):
        PrivacyUtilityDisplay(epsilons=epsilons, scores=scores).plot()


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"\[plot\]"):
        PrivacyUtilityDisplay(epsilons=[1], scores=[[0.5]]).plot()


def fitted(estimator, n_tasks=5):
    X, y, task = make_low_rank_tasks(n_tasks=n_tasks, n_features=4, random_state=0)
    return estimator.set_params(tasks=range(n_tasks)).fit(X, y, task=task)


def test_relatedness_is_correlation_or_cosine_of_models():
    coef = np.random.default_rng(0).normal(size=(5, 4)) + 0.5
    display = TaskRelatednessDisplay.from_coef(coef, tasks=list("abcde"))
    np.testing.assert_allclose(display.relatedness, np.corrcoef(coef), atol=1e-14)
    np.testing.assert_array_equal(display.image_.get_array(), display.relatedness)
    assert display.image_.get_clim() == (-1, 1)
    assert display.figure_.axes[-1].get_ylabel() == "correlation"
    cosine = TaskRelatednessDisplay.from_coef(coef, measure="cosine").relatedness
    for i, j in [(0, 1), (2, 4)]:
        product = coef[i] @ coef[j] / np.sqrt(coef[i] @ coef[i] * (coef[j] @ coef[j]))
        assert cosine[i, j] == pytest.approx(product, abs=1e-14)


def test_relatedness_of_private_fits_warns():
    private = fitted(MPMTLLowRank(epsilon=1.0))
    with pytest.warns(PrivacyLeakWarning, match='"joint DP per task"'):
        TaskRelatednessDisplay.from_estimator(private)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"relatedness": [[1, 0.5]]}, ValueError, r"shape \(1, 2\) is not square"),
        ({"relatedness": np.eye(2), "tasks": ["a"]}, ValueError, "1 names do not fit"),
        ({"coef": [1.0, 2.0]}, ValueError, r"shape \(2,\) must have one row"),
        ({"coef": np.eye(2), "measure": "angle"}, ValueError, "'angle' must be"),
        ({"estimator": DummyRegressor()}, TypeError, "DummyRegressor has no coef_"),
    ],
)
def test_bad_relatedness_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        if "relatedness" in arguments:
            TaskRelatednessDisplay(**arguments).plot()
        elif "coef" in arguments:
            TaskRelatednessDisplay.from_coef(**arguments)
        else:
            TaskRelatednessDisplay.from_estimator(arguments["estimator"].fit([[0]], [0]))


def test_path_of_strengths():
    X, y, task = make_low_rank_tasks(n_tasks=6, n_features=4, random_state=0)
    est = MPMTLLowRankCV(n_alphas=4, cv=3).fit(X, y, task=task)
    only = PathDisplay.from_estimator(est)
    assert [ax.get_ylabel() for ax in only.axes_] == ["mean squared error"]
    *folds, mean, chosen = only.axes_[0].lines
    np.testing.assert_array_equal([line.get_ydata() for line in folds], est.mse_path_.T)
    np.testing.assert_allclose(mean.get_ydata(), est.mse_path_.mean(axis=1))
    assert chosen.get_xdata()[0] == est.alpha_ and only.axes_[0].xaxis_inverted()
    path = mtl_path(X, y, task, alphas=est.alphas_)
    display = PathDisplay.from_estimator(est, path)
    assert [ax.get_ylabel() for ax in display.axes_] == [
        "norm of coefficients",
        "rank",
        "mean squared error",
    ]
    norms = [line.get_ydata() for line in display.axes_[0].lines[:6]]
    np.testing.assert_allclose(norms, np.linalg.norm(path.coefs, axis=2).T)
    ranks = [np.linalg.matrix_rank(W, 1e-6 * np.linalg.norm(W, 2)) for W in path.coefs]
    assert display.axes_[1].lines[0].get_ydata().tolist() == ranks and ranks[0] == 0

    y = np.digitize(y, [-0.3, 0.3])
    est = MPMTLGroupSparseClassifierCV(n_alphas=3, cv=2).fit(X, y, task=task)
    path = mtl_path(X, y, task, penalty="l21", loss="multinomial", alphas=est.alphas_)
    display = PathDisplay.from_estimator(est, path)
    names = ["norm of coefficients", "features in use", "log loss"]
    assert [ax.get_ylabel() for ax in display.axes_] == names
    used = display.axes_[1].lines[0].get_ydata()
    np.testing.assert_array_equal(used, path.coefs.any(axis=(1, 2)).sum(axis=1))
    assert [ax.get_ylabel() for ax in PathDisplay.from_path(path).axes_] == names[:2]


def with_covariates(cls=PrivateMeanRegMTL, epsilon=20.0, **options):
    X, y, task = make_low_rank_tasks(n_tasks=40, n_features=4, random_state=0)
    urban = np.arange(40) % 2
    y = y + X[:, 0] * (1.0 + 2.0 * urban[task])
    est = cls(
        epsilon=epsilon,
        relation={k: {"urban": bool(urban[k])} for k in range(40)},
        tasks=range(40),
        **options,
    )
    return est.fit(X, y, task=task)


def test_relation_shows_what_covariates_add_with_the_noise():
    est = with_covariates(DPMetaInit)
    display = RelationDisplay.from_estimator(est, color="C1")
    assert [ax.get_title() for ax in display.axes_] == ["constant", "urban"]
    for j, bars in enumerate(display.errorbars_):
        points, _, (lines,) = bars
        np.testing.assert_array_equal(points.get_xdata(), est.relation_coef_[j])
        ends = np.array([segment[:, 0] for segment in lines.get_segments()])
        assert np.allclose(np.diff(ends, axis=1)[:, 0], 4.0 * est.relation_noise_std_[j])
    assert display.figure_.get_supxlabel() == "what one more adds to the coefficient"
    display = RelationDisplay.from_estimator(with_covariates(epsilon=1e5))  # has none to state
    assert display.noise_std is None and len(display.errorbars_) == 2


def test_effects_show_their_intervals():
    X, y, task = make_low_rank_tasks(n_tasks=200, n_features=3, random_state=0)
    X = pd.DataFrame(X, columns=["age", "dose", "size"])
    est = PrivateMeanRegMTL(epsilon=100.0, tasks=range(200), standard_errors=True)
    est.fit(X, y, task=task)
    display = EffectsDisplay.from_estimator(est, coverage=0.8)
    assert [ax.get_title() for ax in display.axes_] == ["shared model"]
    labels = [label.get_text() for label in display.axes_[0].get_yticklabels()]
    assert labels == ["age", "dose", "size"]
    points, _, (lines,) = display.errorbars_[0]
    np.testing.assert_array_equal(points.get_xdata(), est.effect_coef_)
    ends = np.array([segment[:, 0] for segment in lines.get_segments()])
    reach = student.ppf(0.9, est.effect_dof_[:-1]) * est.effect_std_
    np.testing.assert_allclose(ends, np.c_[est.effect_coef_ - reach, est.effect_coef_ + reach])
    plain = PrivateMeanRegMTL(epsilon=100.0, tasks=range(200)).fit(X, y, task=task)
    with pytest.raises(ValueError, match="standard_errors=True"):
        EffectsDisplay.from_estimator(plain)


@pytest.mark.filterwarnings("ignore:The picture compares")
def test_caterpillar_shows_coefficients_with_their_intervals():
    X, y, task = make_low_rank_tasks(n_tasks=12, n_samples=30, n_features=3, random_state=0)
    est = LocalOnly(uncertainty=True, tasks=range(12)).fit(X, y, task=task)
    order = np.argsort(est.coef_[:, 1])
    display = TaskIntervalDisplay.from_estimator(est, "x1")
    points, _, (lines,) = display.errorbar_
    np.testing.assert_allclose(points.get_xdata(), est.coef_[order, 1])
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels == [str(est.tasks_[k]) for k in order]
    half = np.array([np.ptp(segment[:, 0]) / 2 for segment in lines.get_segments()])
    dof, std = est.dof_[order], np.sqrt(est.covariance_[order, 1, 1])
    np.testing.assert_allclose(half, student_t.ppf(0.95, dof) * np.sqrt((dof - 2) / dof) * std)
    by_position = TaskIntervalDisplay.from_estimator(est, 1)
    np.testing.assert_array_equal(by_position.reach, display.reach)


def test_caterpillar_at_a_row_is_the_noiseless_prediction():
    X, y, task = make_low_rank_tasks(n_tasks=12, n_samples=30, n_features=3, random_state=0)
    est = PrivateMeanRegMTL(epsilon=None, uncertainty=True, tasks=range(12)).fit(X, y, task=task)
    display = TaskIntervalDisplay.from_estimator(est, x=X[0], tasks=[3, 5])
    rows = np.repeat(X[:1], 2, axis=0)
    mean, std = est.predict(rows, task=est.tasks_[[3, 5]], return_std=True)
    np.testing.assert_allclose(display.estimate, mean)
    dof, noise = est.dof_[[3, 5]], est.noise_variance_[[3, 5]]
    unit = student_t.ppf(0.95, dof) * np.sqrt((dof - 2) / dof)
    np.testing.assert_allclose((display.reach / unit) ** 2, std**2 - noise)
    np.testing.assert_allclose(display.reference, X[0] @ est.mean_coef_ + est.mean_intercept_)


def test_caterpillar_of_private_models_warns():
    X, y, task = make_low_rank_tasks(n_tasks=40, n_features=3, random_state=0)
    est = PrivateMTLClassifier(epsilon=3.0, tasks=range(40), classes=[0, 1])
    est.fit(X, (y > 0).astype(int), task=task)
    with pytest.warns(PrivacyLeakWarning, match="only to those who may see all rows"):
        display = TaskIntervalDisplay.from_estimator(est)
    np.testing.assert_allclose(display.estimate, est.intercept_)
    np.testing.assert_allclose(display.reach, norm.ppf(0.95) * np.sqrt(est.covariance_[:, -1, -1]))
    display = TaskIntervalDisplay(estimate=[1.0, 2.0], reach=[np.inf, 1.0]).plot()
    assert np.isfinite(display.ax_.get_xlim()).all()
