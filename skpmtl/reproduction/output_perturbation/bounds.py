"""Public bounds on rows and targets -> bounds on models and sensitivities.

The model of a task around a public centre v is the minimiser of a loss plus lam / 2 ||w - v||^2.
That objective is lam-strongly convex, so that another record moves it by at most 2 L / (n lam) when
the loss is L-Lipschitz at the minimisers (Chaudhuri et al. 2011). Nothing in here is estimated
from data.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, wrightomega

from ...privacy.mechanisms import clip_rows


class Bounds:
    """What follows from public bounds on rows and targets for any data.

    The first-order condition gives lam ||w - v||^2 = mean of -l'(p) (p - p_v), p = z'w and p_v =
    z'v. Its right side is bounded in two ways: by ``slope`` |p - p_v| and by its maximum over p.
    Rows without the constant feature are scaled down to `max_row_norm`, targets are set to
    `max_target` (None for the logistic loss), and w - v is held within `clip_norm`, if that is not
    None.
    """

    def __init__(self, max_row_norm, max_target, clip_norm, lam, fit_intercept):
        self.max_row_norm, self.max_target = max_row_norm, max_target
        self.clip_norm, self.lam = clip_norm, lam
        self.radius = float(np.hypot(max_row_norm, 1.0 if fit_intercept else 0.0))

    @classmethod
    def of(cls, est):
        """Bounds that the parameters of an estimator state."""
        target = None if est._classification else float(est.max_target)
        clip_norm = None if est.clip_norm is None else float(est.clip_norm)
        return cls(float(est.max_row_norm), target, clip_norm, float(est.lam), est.fit_intercept)

    def clip(self, X, y):
        """Rows and targets inside the bounds; float32 would round rows to outside of them."""
        clipped = np.array(X, dtype=float)
        clip_rows(clipped, self.max_row_norm)
        if self.max_target is not None:
            y = np.clip(y, -self.max_target, self.max_target)
        return clipped, y

    def distance(self, centre_norm):
        """Bound on ||w - v|| for ||v|| = `centre_norm`."""
        a = self.radius * centre_norm
        if self.max_target is None:
            slope, largest = expit(a), wrightomega(a - 1.0)  # max of t / (1 + e^(t - a))
        else:
            slope = self.max_target + a
            largest = slope**2 / 4.0
        return np.minimum(self.radius * slope / self.lam, np.sqrt(largest / self.lam))

    def lipschitz(self, centre_norm):
        """Bound on the gradient of one record's loss at the minimiser."""
        score = self.radius * (centre_norm + self.distance(centre_norm))
        slope = expit(score) if self.max_target is None else self.max_target + score
        return self.radius * slope


@dataclass(frozen=True)
class Reach:
    """Bounds on the distance of models from their centres, and on their changes."""

    limit: np.ndarray  # (n_tasks,), bound on ||w - v||, to which contributions are clipped
    gradient: np.ndarray  # (n_tasks,), norm of the gradient at which the solver may stop
    sensitivity: np.ndarray  # (n_tasks,), how far w moves (L2) between neighbours
    record: np.ndarray  # (n_tasks,), the same when one record is changed


def bounded(updates, limit):
    """Updates w - v (n, width), none of them longer than its `limit` (n,); a new array."""
    U = np.array(updates, dtype=float) / limit[:, None]
    clip_rows(U, 1.0)
    U *= limit[:, None]
    return U
