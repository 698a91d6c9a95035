"""Every private scikit-learn import, in one place; works with scikit-learn 1.6 to 1.9."""

from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions

__all__ = ["Interval", "InvalidParameterError", "StrOptions", "safe_indexing"]
