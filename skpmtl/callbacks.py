"""Callbacks of scikit-learn for the rounds of a fit (1.9 or newer; otherwise without effect).

The task "fit" has one subtask per round, release or iteration. A callback receives names and
counters, which are public, but neither rows nor intermediate models: a score of every round would
be a release outside the budget. Early stopping is ignored, because the budget is divided over a
number of rounds fixed in advance.
"""

import inspect
import warnings

from ._runtime.hints import Self
from ._runtime.stack import users_line

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before 1.9
    CallbackSupportMixin = object

    def with_callbacks(method):
        return method


__all__ = ["FOLLOWED", "RoundCallbacks", "told"]


# What an estimator has that callbacks follow, or that is inside of one that they follow.
FOLLOWED = {"_skl_callbacks", "_parent_callback_ctx"}
_WITHHELD = ("X", "y", "metadata", "fitted_estimator")


class RoundCallbacks(CallbackSupportMixin):
    """Gives an estimator `set_callbacks`, where scikit-learn has it."""

    # Neither callbacks nor the log may count the fits of a search that hides their number.
    _is_hidden = False

    if CallbackSupportMixin is not object:

        def set_callbacks(self, *callbacks) -> Self:
            """Set callbacks of scikit-learn, such as ``sklearn.callback.ProgressBar()``.

            They are called when a fit and its rounds begin and end. A callback that asks for rows
            or for the model of every round receives None, with a warning.

            Parameters
            ----------
            *callbacks : callback
                Without any, those that are set are removed.

            Returns
            -------
            self : object
                The estimator.

            Raises
            ------
            TypeError
                For what does not follow ``sklearn.callback.FitCallback``, or is a class.
            """
            super().set_callbacks(*callbacks)
            for callback in callbacks:
                wanted = inspect.signature(callback.on_fit_task_end).parameters
                withheld = [name for name in _WITHHELD if name in wanted]
                if withheld:
                    warnings.warn(
                        f"{type(callback).__name__} asks for {', '.join(withheld)} after every "
                        f"round of {type(self).__name__} and gets None: scores of every round "
                        "would be releases outside the budget. After the fit, privacy_ states "
                        "what was released.",
                        UserWarning,
                        stacklevel=users_line(),
                    )
            return self


def told(estimator, fit, *args):
    """``fit(*args)``, whose rounds callbacks of the estimator follow; also an error ends them."""
    followed = FOLLOWED & vars(estimator).keys() and isinstance(estimator, RoundCallbacks)
    if followed and not estimator._is_hidden:
        return _told(estimator, fit, *args)
    return fit(*args)


@with_callbacks
def _told(estimator, fit, *args):
    rounds = estimator._round_callbacks = _Rounds(estimator)
    try:
        fitted = fit(*args)
        rounds.finish()
        return fitted
    finally:
        del estimator._round_callbacks


class _Rounds:
    """Contexts of one fit, and of the round that is running."""

    def __init__(self, estimator):
        self.estimator = estimator
        self.fit = self.round = None
        self.done = 0

    def followed(self, log, message, n_rounds=None):
        """`log`, or a function that calls it and ends a round.

        Parameters
        ----------
        log : callable or None
        message : str
            Its first word says what is counted.
        n_rounds : int, default=None
            Public number of calls, None if it is not known before.
        """
        if self.fit is not None:
            return log
        self.begin(message.split()[0], n_rounds)

        def count(*values):
            if log is not None:
                log(*values)
            self.count()

        return count

    def begin(self, name, n_rounds):
        self.name, self.n_rounds = name, n_rounds
        self.fit = self.estimator._init_callback_context(max_subtasks=n_rounds)
        self.fit.call_on_fit_task_begin(estimator=self.estimator)
        self._next(n_rounds or 0)

    def _next(self, n_rounds):
        if self.done < n_rounds:
            self.round = self.fit.subcontext(task_name=self.name)
            self.round.call_on_fit_task_begin(estimator=self.estimator)

    def count(self):
        if self.round is None:  # without a number there may be no further one to begin
            self._next(self.done + 1)
        self._end()
        self.done += 1
        self._next(self.n_rounds or 0)

    def _end(self):
        self.round.call_on_fit_task_end(estimator=self.estimator)
        self.round = None

    def finish(self):
        if self.fit is None:  # a fit without rounds
            self.begin("round", 0)
        if self.round is not None:
            self._end()
        self.fit.call_on_fit_task_end(estimator=self.estimator)
