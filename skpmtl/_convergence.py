"""Picture of rounds; public in `skpmtl.inspection`."""

import warnings
from copy import copy
from dataclasses import replace

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from .privacy.report import PrivacyLeakWarning


class ConvergenceDisplay:
    """Budget and noise after every round of a private mean, and, on request, its score.

    Budget and noise are public. A score per round is computed from rows that the guarantee does
    not cover, so it is drawn only when rows are given. Create it with :meth:`from_estimator`.

    Parameters
    ----------
    epsilon : array-like of shape (n_rounds,)
        Budget spent after every round; a fit without privacy has infinities, which are not
        drawn.

    noise_std : array-like of shape (n_rounds,)
        Standard deviation of the noise in one number of the released mean.

    scores : array-like of shape (n_rounds,), default=None
        Score of the shared model after every round.

    score_name : str, default=None
        What the scores are; the label of their axis.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One for every curve, from top to bottom: scores, epsilon, noise.

    figure_ : matplotlib Figure
        Figure with the plot.

    lines_ : list of matplotlib Line2D
        The curves, in the order of `axes_`.

    Examples
    --------
    >>> from skpmtl.inspection import ConvergenceDisplay
    >>> display = ConvergenceDisplay(epsilon=[0.5, 0.8, 1.0], noise_std=[0.1, 0.1, 0.1]).plot()
    >>> [ax.get_ylabel() for ax in display.axes_]
    ['epsilon spent', 'noise std']
    """

    def __init__(self, *, epsilon, noise_std, scores=None, score_name=None):
        self.epsilon = epsilon
        self.noise_std = noise_std
        self.scores = scores
        self.score_name = score_name

    def plot(self, ax=None, **kwargs):
        """Draw the display.

        Parameters
        ----------
        ax : array-like of matplotlib Axes, default=None
            One for every curve; None makes a figure.

        **kwargs : dict
            Keywords for the :meth:`matplotlib.axes.Axes.plot` of every curve.

        Returns
        -------
        display : ConvergenceDisplay
            This object, with ``axes_`` and the other attributes set.
        """
        curves = {} if self.scores is None else {self.score_name or "score": self.scores}
        curves.update({"epsilon spent": self.epsilon, "noise std": self.noise_std})
        curves = {name: np.asarray(v, dtype=np.float64) for name, v in curves.items()}
        if len({v.shape for v in curves.values()}) > 1 or np.ndim(self.epsilon) != 1:
            shapes = {name: v.shape for name, v in curves.items()}
            raise ValueError(f"The curves need one number per round, but have the shapes {shapes}.")
        curves = {name: v for name, v in curves.items() if np.isfinite(v).all()}
        if ax is None:
            from .inspection import _pyplot

            _, ax = _pyplot().subplots(len(curves), sharex=True)
        self.axes_ = np.atleast_1d(ax).ravel()
        if len(self.axes_) != len(curves):
            raise ValueError(f"ax has {len(self.axes_)} axes for the curves {list(curves)}.")
        self.lines_ = []
        for axis, (name, values) in zip(self.axes_, curves.items(), strict=True):
            look = {"marker": ".", **kwargs}
            self.lines_ += axis.plot(np.arange(1, len(values) + 1), values, **look)
            axis.set_ylabel(name)
        self.axes_[-1].set_xlabel("round")
        self.figure_ = self.axes_[0].figure
        return self

    @classmethod
    def from_estimator(cls, estimator, X=None, y=None, task=None, *, ax=None, **kwargs):
        """Read the rounds of a fitted estimator and draw the display.

        Parameters
        ----------
        estimator : PrivateMeanRegMTL, or another estimator that learns a mean in rounds
            Fitted.

        X, y, task : as in the estimator's `fit`, default=None
            Rows to score the shared model of every round on (a task's intercept is fitted to
            them): ``estimator.score``, from the released numbers and these rows. Scores of
            private rows are not covered by the guarantee, hence the warning.

        ax : array-like of matplotlib Axes, default=None
            One for every curve; None makes a figure.

        **kwargs : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : ConvergenceDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            When the fit had no rounds, or its releases were too large to be kept.

        Warns
        -----
        PrivacyLeakWarning
            When rows are given to a private fit.
        """
        check_is_fitted(estimator)
        if not hasattr(getattr(estimator, "billboard_", None), "history"):
            raise TypeError(
                f"{type(estimator).__name__} has no noisy mean of rounds to draw: pass a fitted "
                "PrivateMeanRegMTL or federated baseline (of a Pipeline its last step)."
            )
        board, scores, name = estimator.billboard_, None, None
        models = board.replay() if X is not None else None
        history = board.history()
        if not history:
            board.replay()  # says why there is nothing to draw
        if X is not None:
            if estimator.privacy_.guarantee != "none":
                warnings.warn(
                    "The score of every round is computed from the rows that were given, without "
                    "noise: the guarantee of the fit does not cover it. Do not publish it if "
                    "they are private.",
                    PrivacyLeakWarning,
                    stacklevel=2,
                )
            replayed, scores = copy(estimator), []
            for means in models:
                replayed.billboard_ = replace(board, means=means, personalization="none")
                replayed.personalize(X, y, task=task)
                scores.append(replayed.score(X, y, task=task))
            name = "accuracy" if is_classifier(estimator) else "R2"
        display = cls(
            epsilon=[entry["epsilon"] for entry in history],
            noise_std=[entry["noise_std"] for entry in history],
            scores=scores,
            score_name=name,
        )
        return display.plot(ax=ax, **kwargs)
