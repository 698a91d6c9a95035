"""Distance to the optimum: the duality gap, and a bound on its rounding error.

With residuals u = theta r of the weights W, r those that the loss computed and V = X'r minus the
gradient, every value of the dual is a bound from below::

    min over W of loss(W) + alpha Omega(W)  >=  dual(u)    where  Omega*(X'u) <= alpha

In floating point the numbers on both sides are not those of W and r. Let u be the unit roundoff,
and c = 2 u sqrt(n + d + m) for n rows of the largest task, d features and m tasks, twice the size
that errors of sums of so many terms have [1]_. `Loss.rounding` bounds with it

- ``error``, of the computed objective and of the computed dual value together, and
- ``slack``, the dual norm of the error of V: `dual_gap` adds the first to the gap, and lets the
  dual norm of V be larger by the second when it scales the residuals into the ball.

Then ``dual_gap_`` is a bound for what an exact computer would find at the same W. Where the gap
itself is below what rounding adds, further iterations cannot be distinguished.

References
----------
.. [1] N. J. Higham, T. Mary, "A new approach to probabilistic rounding error analysis", SIAM
       Journal on Scientific Computing 41(5), 2019.
"""

from dataclasses import dataclass

import numpy as np


@dataclass
class Gap:
    """What is known at some weights.

    gap: bound on the distance to the optimum, with what rounding may add, of which ``rounding`` is
    that part. levels: the dual levels of V.
    """

    objective: float
    gap: float
    rounding: float
    levels: np.ndarray

    def closes(self, tol):
        """Whether the gap is small enough, as it is for an objective that is rounding alone."""
        small = self.gap <= tol * abs(self.objective)
        return bool(small or self.objective <= 2.0 * self.rounding)

    def ends(self, tol):
        """Whether it is, or will never be, and rounding is much of what is left."""
        hidden = self.rounding > 0.9 * tol * abs(self.objective) and self.gap <= 8 * self.rounding
        return bool(self.closes(tol) or hidden)


def dual_gap(loss, penalty, alpha, W, V, value, omega, tol=0.0):
    """Objective minus the best of two dual values. -> Gap

    The first scales residuals and ridge term into the dual ball; the second, only with a ridge and
    a norm, keeps the residuals and pays the conjugate of alpha Omega + ridge / 2 ||.||^2. For
    penalties that are no norms, the first term has their conjugate. V is minus the gradient of the
    loss at W, where the loss was evaluated last; `value` and `omega` are of loss and penalty, the
    latter as inexact as a proximal map makes it. A gap that closes within `tol` is computed again
    with the value of the penalty itself.
    """
    ridge = loss.ridge
    error, size = loss.rounding(W, value)
    slack = penalty.dual_bound(size)
    levels = penalty.dual_levels(V)
    best, costs = -np.inf, []
    if alpha > 0:
        top = float(levels.max(initial=0.0)) + slack
        paid = penalty.conjugate(V, alpha, size)
        theta = 1.0 if paid else loss.dual_scale(W, value)
        if top * abs(theta) > alpha:
            theta = np.sign(theta) * alpha / top
        best = loss.dual(theta, W, value)
        best -= theta**2 * (0.5 * ridge * np.vdot(W, W) + paid)
        costs += [slack * omega + (paid and paid - penalty.conjugate(V, alpha))]
    if ridge > 0 and penalty.is_norm:
        above = np.maximum(penalty.dual_levels(V + ridge * W) + slack - alpha, 0.0)
        best = max(best, loss.dual(1.0, W, value) - 0.5 / ridge * (above @ above))
        costs += [0.5 / ridge * slack**2 * len(levels)]
    rounding = error + min(costs)  # no iteration takes away what the slack costs

    def stated(omega):
        objective = value + alpha * omega
        return Gap(objective, max(objective - best, 0.0) + error, rounding, levels)

    found = stated(omega)
    return stated(max(omega, penalty.value(W))) if found.closes(tol) else found
