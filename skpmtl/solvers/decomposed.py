"""Models of two parts, W = P + Q, each with a penalty of its own.

    min over P, Q of loss(P + Q) + alpha Omega(P) + beta Psi(Q)

is one problem in the stack of P and Q, (2 m, d): `Stacked` is its loss and `Sum` its penalty, which
`minimize` takes at strength 1. The gap follows from weak duality for the sum: with the dual point
theta times minus the gradient V of the loss at P + Q, both dual norms must hold,
Omega*(theta V) <= alpha and Psi*(theta V) <= beta, and a ridge counts the sum of the parts.
"""

import numpy as np

from . import resolvents
from .minimize import minimize
from .penalties import EntryNorm, Penalty, TaskNorm

_SMALLEST = 1e-2, 1e-5  # part of the curvature that steps may be; of slopes that change, and others
OUTLIERS = {"tasks": TaskNorm, "entries": EntryNorm}  # penalties of what a task has alone


def minimize_sum(loss, first, second, *, start=None, **options):
    """Minimise ``loss(P + Q) + alpha Omega(P) + beta Psi(Q)``. -> Solution of the stack, (P, Q)

    `first` and `second` are (Omega, alpha) and (Psi, beta), `start` is (P, Q) to begin with, and
    `options` are those of `minimize`.
    """
    start = None if start is None else np.concatenate(start)
    solution = minimize(Stacked(loss), Sum(first, second), 1.0, W=start, **options)
    return solution, np.split(solution.W, 2)


class Stacked:
    """A loss as a function of the stack of two parts that add up to its weights.

    ``ridge`` is 0 to those outside: that of the loss is on the sum, and counted here.
    """

    ridge = 0.0
    keeps = is_few = crawls = False
    is_bounded = True
    is_flat = True  # parts that grow in opposite directions change no residual

    def __init__(self, loss):
        self.loss = loss
        self.quadratic, self.table = loss.quadratic, loss.table
        m, d = loss.shape
        self.shape = (2 * m, d)

    @property
    def dense(self):
        return Stacked(self.loss.dense)

    def sum(self, W):
        """P + Q."""
        half = len(W) // 2
        return W[:half] + W[half:]

    def evaluate(self, W):
        value, V = self.loss.evaluate(self.sum(W))
        return value, np.concatenate([V, V])

    def curvatures(self):
        """Both parts move the sum, so that it curves twice as much."""
        return 2.0 * self.loss.curvatures()

    def dual_scale(self, W, value):
        return self.loss.dual_scale(self.sum(W), value)

    def dual(self, theta, W, value):
        W = self.sum(W)
        found = self.loss.dual(theta, W, value)
        return found - 0.5 * self.loss.ridge * theta**2 * np.vdot(W, W)

    def rounding(self, W, value):
        both = np.abs(W)  # as parts may be larger than their sum
        error, size = self.loss.rounding(self.sum(both), value)
        return error, np.sqrt(2.0) * size

    def resolvent(self, share, W, floor, lean=False):
        """Steps from those of the loss, see `resolvents`.

        With u_1 and u_2 the halves of the step and e_i = W_i - S_i, (H + rho / 2) (u_1 + u_2) =
        V + rho / 2 (e_1 + e_2) and u_1 - u_2 = e_1 - e_2.

        What is weighed between the parts moves by about alpha / rho in a step, whatever the loss
        is, and has to go as far as the weights are large: rho is alpha over their size, or `share`
        of the curvature.
        """
        part = resolvents.Fraction(np.clip(share, _SMALLEST[self.quadratic], 1.0))
        found = self.loss.resolvent(part, self.sum(W), floor, lean)
        if found is None:
            return None
        inner, m = found[1], len(W) // 2

        def step(W, S, V):
            apart = 0.5 * (W[:m] - W[m:] - S[:m] + S[m:])
            both = 0.5 * inner(self.sum(W), self.sum(S), None if V is None else V[:m])
            return np.concatenate([both + apart, both - apart])

        return 2.0 * found[0], step


class Sum(Penalty):
    """alpha Omega(P) + beta Psi(Q) of the stack of P and Q; (penalty, strength) pairs."""

    def __init__(self, *parts):
        self.parts = parts

    def _halves(self, W):
        half = len(W) // 2
        return [(*part, W[i * half : (i + 1) * half]) for i, part in enumerate(self.parts)]

    def prox(self, V, threshold):
        found = [part.prox(half, threshold * alpha) for part, alpha, half in self._halves(V)]
        value = sum(alpha * omega for (_, alpha), (_, omega) in zip(self.parts, found, strict=True))
        return np.concatenate([W for W, _ in found]), value

    def value(self, W):
        return sum(alpha * part.value(half) for part, alpha, half in self._halves(W))

    def dual_levels(self, V):
        return np.concatenate(
            [part.dual_levels(half) / alpha for part, alpha, half in self._halves(V)]
        )

    def dual_bound(self, size):
        return max(part.dual_bound(size) / alpha for part, alpha in self.parts)

    def conjugate(self, V, alpha, size=0.0):
        return sum(part.conjugate(half, alpha * own, size) for part, own, half in self._halves(V))
