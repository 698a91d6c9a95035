"""Every private scikit-learn import, in one place; works with scikit-learn 1.6 to 1.9.

Where a name is gone, what is left does without it.
"""

try:
    from sklearn.utils import _safe_indexing as safe_indexing
except ImportError:

    def safe_indexing(X, indices, *, axis=0):
        """Rows (axis 0) or columns of X by their positions."""
        if isinstance(X, (list, tuple)):
            return [X[i] for i in indices]
        X = getattr(X, "iloc", X)
        return X[:, indices] if axis else X[indices]


try:
    from sklearn.base import BaseEstimator
    from sklearn.utils._param_validation import (
        Interval,
        InvalidParameterError,
        StrOptions,
        make_constraint,
    )

    check_parameters = BaseEstimator._validate_params
except (ImportError, AttributeError):
    from .constraints import (
        Interval,
        InvalidParameterError,
        StrOptions,
        check_parameters,
        make_constraint,
    )

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback._callback_support import callback_management_context

    CallbackSupportMixin._init_callback_context  # noqa: B018
except (ImportError, AttributeError):  # before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]  # as scikit-learn has it
        """There are no callbacks."""

    callback_management_context = None

try:
    from sklearn.utils._pprint import _EstimatorPrettyPrinter as PrettyPrinter

    PrettyPrinter._dispatch, PrettyPrinter._pprint_estimator  # noqa: B018
except (ImportError, AttributeError):
    PrettyPrinter = None

# What an estimator has that callbacks follow, or that is inside of one that they follow.
CALLBACK_ATTRIBUTES = {"_skl_callbacks", "_parent_callback_ctx"}

try:
    from sklearn.utils._repr_html.estimator import _VisualBlock as VisualBlock
except ImportError:
    try:  # before 1.7
        from sklearn.utils._estimator_html_repr import _VisualBlock as VisualBlock
    except ImportError:

        def VisualBlock(*args, **kwargs):
            """Raise, upon which scikit-learn draws a diagram of its own."""
            raise NotImplementedError("this scikit-learn has no diagrams with captions")


__all__ = [
    "CALLBACK_ATTRIBUTES",
    "CallbackSupportMixin",
    "Interval",
    "InvalidParameterError",
    "PrettyPrinter",
    "StrOptions",
    "VisualBlock",
    "callback_management_context",
    "check_parameters",
    "make_constraint",
    "safe_indexing",
]
