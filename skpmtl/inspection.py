"""Pictures, following scikit-learn's Display conventions; matplotlib is imported on use."""

import numpy as np

__all__ = ["PrivacyUtilityDisplay"]


class PrivacyUtilityDisplay:
    """Error, or accuracy, against the privacy budget.

    The private method is a line over epsilon with error bars, methods without a budget are
    horizontal lines. Create it from scores, or with :meth:`from_predictions`.

    Parameters
    ----------
    epsilons : array-like of shape (n_epsilons,)
        Privacy budgets, positive and finite.

    scores : array-like of shape (n_epsilons, n_repeats)
        Score of every repeat at every budget.

    baselines : mapping of str to array-like of shape (n_repeats,), default=None
        Scores of methods that have no budget, by name.

    score_name : str, default=None
        What the scores are; the label of the vertical axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the plot.

    figure_ : matplotlib Figure
        Figure with the plot.

    errorbar_ : matplotlib ErrorbarContainer
        The private method: means over the repeats, bars of one standard deviation.

    baseline_lines_ : list of matplotlib Line2D
        The baselines' means, in the order of `baselines`.

    Examples
    --------
    >>> from skpmtl.inspection import PrivacyUtilityDisplay
    >>> display = PrivacyUtilityDisplay(
    ...     epsilons=[0.1, 1, 10],
    ...     scores=[[0.72, 0.73], [0.66, 0.67], [0.65, 0.65]],
    ...     baselines={"each task alone": [0.72, 0.71]},
    ...     score_name="normalised MSE",
    ... )
    >>> display.plot().ax_.get_ylabel()
    'normalised MSE'
    """

    def __init__(self, *, epsilons, scores, baselines=None, score_name=None):
        self.epsilons = epsilons
        self.scores = scores
        self.baselines = baselines
        self.score_name = score_name

    def plot(self, ax=None, *, name="private", errorbar_kw=None, baseline_kw=None):
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a figure.

        name : str, default="private"
            Label of the private method.

        errorbar_kw : dict, default=None
            Keywords for :meth:`matplotlib.axes.Axes.errorbar`.

        baseline_kw : dict, default=None
            Keywords for the :meth:`matplotlib.axes.Axes.axhline` of every baseline.

        Returns
        -------
        display : PrivacyUtilityDisplay
            This object, with ``ax_`` and the other attributes set.
        """
        epsilons, scores = self._checked()
        if ax is None:
            _, ax = _pyplot().subplots()
        order = np.argsort(epsilons)
        # One repeat has no spread, and a bar of length zero would claim certainty.
        spread = scores.std(axis=1, ddof=1) if scores.shape[1] > 1 else None
        self.errorbar_ = ax.errorbar(
            epsilons[order],
            scores.mean(axis=1)[order],
            yerr=None if spread is None else spread[order],
            **{"marker": "o", "capsize": 3, "label": name, **(errorbar_kw or {})},
        )
        self.baseline_lines_ = []
        styles = ("--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)))
        for position, (label, values) in enumerate((self.baselines or {}).items()):
            look = {
                "color": f"C{position + 1}",
                "linestyle": styles[position % len(styles)],
                "label": label,
                **(baseline_kw or {}),
            }
            self.baseline_lines_.append(ax.axhline(np.mean(values), **look))
        ax.set_xscale("log")
        ax.set_xticks(epsilons[order], [f"{value:g}" for value in epsilons[order]])
        ax.minorticks_off()
        ax.set_xlabel("epsilon (privacy budget of each task)")
        if self.score_name is not None:
            ax.set_ylabel(self.score_name)
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _checked(self):
        epsilons = np.asarray(self.epsilons, dtype=np.float64)
        scores = np.asarray(self.scores, dtype=np.float64)
        if scores.ndim != 2 or epsilons.shape != scores.shape[:1]:
            raise ValueError(
                f"scores of shape {scores.shape} do not fit epsilons of shape "
                f"{epsilons.shape}; give one row per epsilon, one column per repeat."
            )
        if not np.all((epsilons > 0) & np.isfinite(epsilons)):
            raise ValueError(
                f"epsilons={epsilons.tolist()} must be positive and finite; a fit without "
                "privacy belongs into baselines."
            )
        return epsilons, scores

    @classmethod
    def from_predictions(
        cls, y_true, y_pred, *, metric=None, baselines=None, score_name=None, ax=None, **kwargs
    ):
        """Score predictions and draw the display.

        Parameters
        ----------
        y_true : sequence of array-like, one per repeat
            Targets of the test rows of every repeat.

        y_pred : mapping of float to sequence of array-like
            Predictions for the same rows by epsilon, one array per repeat.

        metric : callable, default=None
            ``metric(y_true, y_pred) -> float``; None is :func:`skpmtl.metrics.nmse`.

        baselines : mapping of str to sequence of array-like, default=None
            Predictions of methods without a budget by name, one array per repeat.

        score_name : str, default=None
            Label of the vertical axis; None is the metric's name.

        ax : matplotlib Axes, default=None
            Axes to draw on; None makes a figure.

        **kwargs : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : PrivacyUtilityDisplay
            The display, drawn.
        """
        if metric is None:
            from .metrics import nmse as metric

        def score(predictions):
            return [metric(*pair) for pair in zip(y_true, predictions, strict=True)]

        display = cls(
            epsilons=list(y_pred),
            scores=[score(predictions) for predictions in y_pred.values()],
            baselines={name: score(p) for name, p in (baselines or {}).items()},
            score_name=metric.__name__ if score_name is None else score_name,
        )
        return display.plot(ax=ax, **kwargs)


def _pyplot():
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Plotting needs matplotlib: pip install matplotlib, or skpmtl with its extra [plot]."
        ) from error
    return plt
