"""How many tasks an estimator lists, in place of a page of their ids."""

from pprint import PrettyPrinter

from scipy import sparse

from .._runtime.stack import sklearn_holds

__all__ = ["PrintsShort"]

_SHOWN = 8  # entries of a list that is printed as it is
_ENTRIES = {"tasks": "ids", "relation": "rows"}


class PrintsShort:
    """Estimator whose long lists are printed as their lengths, also inside of other estimators.

    The printer of scikit-learn asks all estimators for their parameters, at any depth, and never
    for their ``repr``.
    """

    def get_params(self, deep=True):
        """Parameters by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to add the parameters of estimators among them.

        Returns
        -------
        params : dict
        """
        params = super().get_params(deep)
        long = [name for name in _ENTRIES if _is_long(params.get(name))]
        if long and not deep and sklearn_holds(_prints):
            params |= {name: _Length(len(params[name]), _ENTRIES[name]) for name in long}
        return params


def _is_long(value):
    if isinstance(value, (str, range)) or sparse.issparse(value):
        return False
    return hasattr(value, "__len__") and len(value) > _SHOWN


def _prints(value):
    return isinstance(value, PrettyPrinter)


class _Length:
    def __init__(self, n, entries):
        self.n, self.entries = n, entries

    def __repr__(self):
        return f"[{self.n} {self.entries}]"
