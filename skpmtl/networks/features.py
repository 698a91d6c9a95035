"""Features of a frozen network, as a transformer."""

from copy import deepcopy
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from .._display.diagram import Documented
from .._runtime.hints import Self
from .._runtime.torch_modules import build, drawing, import_torch
from ..tables.forms import InputForm, check_finite, kept_columns, read_features, table_matrix
from ..tables.frames import column_labels, frame_of, table_like
from .module import device_of, plain_numbers

__all__ = ["TorchFeatures"]


class TorchFeatures(Documented, TransformerMixin, BaseEstimator):
    """Features that a frozen torch module makes of every row.

    A linear multi-task model on features of a network that was trained on public data is often
    worth more than a network that is trained privately. Nothing is learned here: `fit` reads only
    the width of the rows, so that no budget is spent if the module itself comes from public data.

    Parameters
    ----------
    module : torch.nn.Module, or callable
        The network, or ``module() -> torch.nn.Module``. It gets (batch, n_features), or
        (batch, ...) for X with more dimensions, in the type of its parameters; one of token rows
        begins with ``x.long()``. It is copied, and used as after ``eval()``.
    output : str, default=None
        Name of the layer whose output is taken, as in ``module.named_modules()``. None: what the
        module returns. More than two dimensions are made flat.
    task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position. It is kept, and comes first.
    device : str, default="cpu"
        Where the module runs, such as "cuda".
    batch_size : int, default=1024
        Rows that are in memory at a time, besides X.

    Attributes
    ----------
    module_ : torch.nn.Module
        The copy that is used.
    n_features_out_ : int
        Features that a row has afterwards, without the task column.
    n_features_in_, feature_names_in_
        Of X as given, so that a task column counts.

    Notes
    -----
    "Public" is a promise about the rows that the module was trained on: no person of any task may
    be among them, and none may be like them because they were chosen for it. Needs the extra
    ``skpmtl[torch]``.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())  # doctest: +SKIP
    >>> frozen = TorchFeatures(net, task_feature="writer")  # doctest: +SKIP
    >>> make_pipeline(frozen, PrivateMTL(task_feature="writer"))  # doctest: +SKIP
    """

    module_: object
    n_features_out_: int
    _position: int | None
    _task_name: str | None

    def __init__(
        self,
        module,
        *,
        output: str | None = None,
        task_feature: str | int | None = None,
        device: str = "cpu",
        batch_size: int = 1024,
    ) -> None:
        self.module = module
        self.output = output
        self.task_feature = task_feature
        self.device = device
        self.batch_size = batch_size

    def fit(self, X, y: ArrayLike | None = None) -> Self:
        """Check the module against the width of the rows; no number of X is used.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features), or array (n_samples, ...)
        y : object
            Not used.

        Returns
        -------
        self : object
        """
        torch = import_torch("TorchFeatures")
        for name in ("module_", "n_features_out_", "_position", "_task_name"):
            self.__dict__.pop(name, None)
        if isinstance(self.batch_size, bool) or not isinstance(self.batch_size, Integral):
            raise TypeError(f"batch_size={self.batch_size!r} must be an int.")
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size!r} must be at least 1.")
        device = device_of(torch, self.device)
        if isinstance(self.module, torch.nn.Module):
            module = deepcopy(self.module)
        else:
            module = build(torch, self.module, {})
        module.eval().requires_grad_(False).to(device)
        if self.output is not None and self.output not in dict(module.named_modules()):
            names = [name for name, _ in module.named_modules() if name]
            raise ValueError(f"output={self.output!r} is none of the layers {', '.join(names)}.")
        matrix, _, position = self._read(X, None)
        width = matrix.shape[1] - (matrix.shape[1] == self.n_features_in_ and position is not None)
        shape = matrix.shape[1:] if matrix.ndim > 2 else (width,)
        found = self._values(torch, module, np.zeros((1, *shape)), device)
        self.module_, self.n_features_out_, self._position = module, found.shape[1], position
        self._task_name = self._name_of(X, position)
        return self

    def transform(self, X):
        """Features of rows.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features), or array (n_samples, ...)

        Returns
        -------
        Z : ndarray of shape (n_samples, n_features_out), or DataFrame
            float32 without a task column; with one, that comes first. A DataFrame for a DataFrame.
        """
        check_is_fitted(self)
        torch = import_torch("TorchFeatures")
        device = device_of(torch, self.device)
        module = self.module_.to(device)
        matrix, ids, position = self._read(X, self._position)
        dropped = kept_columns(self, matrix, () if position is None else (position,))
        out = np.empty((len(matrix), self.n_features_out_), dtype=np.float32)
        for first in range(0, len(matrix), self.batch_size):
            block = matrix[first : first + self.batch_size]
            block = table_matrix(block, None, dropped) if matrix.ndim == 2 else block
            out[first : first + len(block)] = self._values(torch, module, block, device)
        if position is None and frame_of(X) is None:
            return out
        columns = [*out.T] if position is None else [ids, *out.T]
        return table_like(X, dict(zip(self.get_feature_names_out(), columns, strict=True)))

    def get_feature_names_out(self, input_features=None) -> NDArray:
        """Names of the features: "torchfeatures0" and so on, after that of the task column.

        Parameters
        ----------
        input_features : object
            Not used.

        Returns
        -------
        names : ndarray of str
        """
        check_is_fitted(self)
        names = [f"torchfeatures{j}" for j in range(self.n_features_out_)]
        names = names if self._position is None else [self._task_name, *names]
        return np.array(names, dtype=object)

    def _read(self, X, position):
        """-> rows, which may have the task column still; ids or None; its position or None"""
        fitted = hasattr(self, "module_")
        if self.task_feature is None and np.ndim(X) > 2:
            matrix = check_array(X, allow_nd=True, dtype="numeric", ensure_all_finite=False)
            validate_data(self, matrix, skip_check_array=True, reset=not fitted)
            check_finite(self, matrix.reshape(len(matrix), -1), ())
            return matrix, None, None
        form = InputForm("column" if position is not None else "single", position)
        matrix, ids, form = read_features(
            self, X, None, form if fitted else None, accept_sparse=False
        )
        check_finite(self, matrix, form.columns)
        return matrix, ids, form.position

    def _name_of(self, X, position):
        if position is None:
            return None
        names = column_labels(X)
        return "task" if names is None else str(names[position])

    def _values(self, torch, module, rows, device):
        """Output of the layer for some rows, float32 (n, n_features_out)."""
        first = next((p for p in module.parameters() if p.is_floating_point()), None)
        dtype = torch.float32 if first is None else first.dtype
        rows = torch.from_numpy(np.array(rows, dtype=np.float64)).to(device, dtype)
        found = []
        layer = module if self.output is None else module.get_submodule(self.output)
        hook = layer.register_forward_hook(lambda layer, given, out: found.append(out))
        constants = [(values, values.clone()) for values in module.buffers()]
        try:
            with torch.no_grad(), drawing(torch, 0, device), plain_numbers(torch):
                module(rows)
        finally:
            hook.remove()
            with torch.no_grad():  # frozen: rows leave nothing behind for the next ones
                for values, first in constants:
                    values.copy_(first)
        if not found:
            raise ValueError(f"output={self.output!r} is a layer that the module does not use.")
        values = found[-1]
        if not torch.is_tensor(values) or values.ndim < 1 or len(values) != len(rows):
            raise ValueError(
                "The layer must give a tensor with one entry for every row: name another one "
                "in output=."
            )
        return values.reshape(len(rows), -1).float().cpu().numpy()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = self.task_feature is not None
        tags.requires_fit = True
        return tags
