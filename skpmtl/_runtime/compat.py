"""Every private scikit-learn import, in one place; works with scikit-learn 1.6 to 1.9."""

from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._param_validation import (
    Interval,
    InvalidParameterError,
    Options,
    StrOptions,
    make_constraint,
)

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback._callback_support import callback_management_context
except ImportError:  # before 1.9

    class CallbackSupportMixin:
        """There are no callbacks."""

    callback_management_context = None

try:
    from sklearn.utils._repr_html.estimator import _VisualBlock as VisualBlock
except ImportError:  # before 1.7
    from sklearn.utils._estimator_html_repr import _VisualBlock as VisualBlock

__all__ = [
    "CallbackSupportMixin",
    "Interval",
    "InvalidParameterError",
    "Options",
    "StrOptions",
    "VisualBlock",
    "callback_management_context",
    "make_constraint",
    "safe_indexing",
]
