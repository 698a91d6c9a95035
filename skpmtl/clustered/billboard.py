"""Billboard of exact fits of clustered multi-task learning: the fitted penalty."""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from .._runtime.constraints import Interval
from ..solvers.fitted import PenaltyBillboard


@dataclass
class ClusterBillboard(PenaltyBillboard):
    """What the tasks of a fit share, with which a new task finishes alone.

    With the directions and weights of the fit a new task pays
    ``ridge (alpha + ridge) / 2 w' (ridge I + alpha S)^-1 w``: `ridge` along the centres of the
    clusters, and ``alpha + ridge`` across them. Those of the fit get back their models. Computed
    without noise: publishing it protects nobody.

    Attributes
    ----------
    shape : ndarray (d, d)
        S, of eigenvalues from 0 to 1 that add up to `n_clusters` at most.
    n_clusters : int
    alpha, ridge, task_weight, n_tasks, releases, report
        As in `PenaltyBillboard`.
    """

    n_clusters: int = 2

    constraints = {
        **PenaltyBillboard.constraints,
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "ridge": [Interval(Real, 0, None, closed="neither")],
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "outliers": [None],
    }
    settings = ("alpha", "ridge", "task_weight", "n_clusters", "loss")

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        yield from super().declared()
        values = np.linalg.eigvalsh(self.shape)
        if values[0] < -1e-6 or values[-1] > 1.0 + 1e-6:
            raise ValueError("its shape does not lie between 0 and 1")

    def _basis(self, d):
        s, U = np.linalg.eigh(self.shape)
        inside = self.ridge + self.alpha * np.clip(s, 0.0, 1.0)
        return U * np.sqrt(inside / (self.ridge * (self.alpha + self.ridge)))
