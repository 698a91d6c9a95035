"""Classes whose log-odds have a known part, which differs from row to row."""

from dataclasses import replace

import numpy as np

from ..structures.estimators import PrivateMTLClassifier

__all__ = ["OFFSET", "_OffsetClassifier"]

OFFSET = "(offset)"  # the column, which no term of a formula can be called


class _OffsetClassifier(PrivateMTLClassifier):
    """Two classes; the last feature is a part of the log-odds, and has no coefficient.

    Levels and slopes of tasks are about it, as about the scores of a public initial model. What a
    task sends is bounded whatever its offsets are.
    """

    @property
    def coef_names_(self):
        return super().coef_names_[:-1]

    def _with_targets(self, table):
        table = super()._with_targets(table)
        columns, offset = np.split(np.asarray(table.X, dtype=np.float64), [-1], axis=1)
        return replace(table, X=np.ascontiguousarray(columns), base=offset)

    def _read_rows(self, X, task, *, mean=False):
        rows = super()._read_rows(X, task, mean=mean)
        return replace(rows, position=rows.X.shape[1] - 1)

    def _row_scores(self, rows):
        return super()._row_scores(rows) + rows.X[:, -1]
