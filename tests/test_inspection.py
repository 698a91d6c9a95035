"""What the displays draw is what they were given."""

import sys

import matplotlib
import numpy as np
import pytest
from sklearn.metrics import mean_squared_error

from skpmtl.inspection import PrivacyUtilityDisplay

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


def test_plot_on_given_axes_without_spread():
    _, ax = matplotlib.pyplot.subplots()
    display = PrivacyUtilityDisplay(epsilons=[1, 2], scores=[[0.5], [0.4]]).plot(
        ax, errorbar_kw={"color": "red"}
    )
    assert display.ax_ is ax
    assert display.errorbar_.lines[0].get_color() == "red"
    assert not display.errorbar_.has_yerr


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
