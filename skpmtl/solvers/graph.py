"""Exact minimum where any penalty Omega between the tasks takes the place of distances to a mean.

    sum_k loss_k(w_k, b_k) + lam / 2 sum_jk Omega_jk w_j' w_k + ridge / 2 sum_k ||w_k||^2

for a public positive semi-definite Omega (m, m), dense or sparse; for the Laplacian of a graph the
second term is lam / 4 sum_jk weight_jk ||w_j - w_k||^2. Newton steps by conjugate gradients, whose
products cost one pass over the rows and one with Omega; every task's own block is the
preconditioner.

**The gap.** Let V be minus the gradient of the losses at W, and A = lam Omega + ridge I on the
tasks. For any convex losses V and the conjugates of both parts give

    objective(W) - optimum  <=  1/2 <R, A^+ R>  for  R = V - A W,

where R is orthogonal to the kernel of A, and the gradients of the intercepts are zero. The last
steps see to that: they minimise over the kernel and the intercepts alone, until that lowers the
objective by next to nothing (what the last one did is added), and what is left of R is at most
||R||^2 / (2 smallest) for the smallest eigenvalue of A that is not zero. Added is what rounding may
do to the objective: c = 2 u (n + d + m)^1/2 times the size of its terms, with the unit roundoff u,
as in `skpmtl.solvers.certificate`.

Features are divided by a power of two about as large as they are, which rounds nothing, and lose
their means where intercepts are free, so that these and weights are of one kind whatever the rows
are; what rounding may do is that of the rows as they were given.

With an additional L1 norm of W the penalty of the graph is a part of the smooth function,
`LossOnGraph`, and first-order steps do.
"""

import warnings
from copy import copy
from dataclasses import replace

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from .._runtime.stack import users_line
from .._runtime.threads import single_blas_thread
from .centred import CentredTasks
from .losses import make_loss
from .mean import Arrow, State, conjugate_gradient, in_unit, newton, unchanged, unit_of

_DENSE = 1500  # tasks up to which all eigenvalues of Omega are found
_KERNEL = 1e-10  # times the largest eigenvalue, below which one is zero
_MARGIN = 0.99  # of an eigenvalue that is found by iterations
_POLISH = 6  # times that kernel and intercepts are minimised over
_LOOSE = 1e-3  # gap over objective from which the certificate says too little
_ROOM = 1 << 27  # numbers of blocks of all tasks, beyond which there is no preconditioner


def minimize_on_graph(centred, Omega, lam, *, tol, max_iter, log=None):
    """-> W (n_tasks, n_outputs, d), b (n_tasks, n_outputs), objective, gap, n_iter; dense rows.

    Omega (n_tasks, n_tasks) is symmetric and positive semi-definite. Newton steps end when none of
    the coefficients moves by more than `tol` times the largest; a ConvergenceWarning says when the
    gap is above a thousandth of the objective.
    """
    with single_blas_thread():
        unit = unit_of(centred.table, centred.problem.fit_intercept)
        centred, lam = in_unit(centred, lam, unit), lam / unit**2
        table, problem, means = centred.table, centred.problem, np.zeros(centred.table.n_features)
        if problem.fit_intercept and not centred.held.any():
            means = table.X.mean(axis=0)
            centred = CentredTasks(replace(table, X=table.X - means), problem)
        state = GraphState(centred, Omega, lam)
        small = len(state.which) * (centred.table.n_features + 1) ** 2 <= _ROOM
        W, b, _, n_iter = newton(state, tol, max_iter, log, Blocks if small else None)
        Wb = np.concatenate([W, b[:, :, None]], axis=2)
        ridge = problem.ridge
        smallest, kernel = (ridge, None) if ridge else spectrum(Omega, lam)
        value, floor = state.value(Wb), 1e-14 * state.largest
        for _ in range(_POLISH):
            there = _in_kernel(state.gradient, kernel, state.held)

            def product(U, out):
                state.product(U, out)
                out[:] = _in_kernel(out, kernel, state.held)

            step, gain = conjugate_gradient(product, unchanged, there, 1e-10, 500, floor)
            Wb -= step
            value = state.value(Wb)
            if not gain > 1e-15 * abs(value):
                break
        rest = state.gradient - _in_kernel(state.gradient, kernel, state.held)
        size = float(np.vdot(rest, rest))
        gap = 0.5 * size / smallest if size else 0.0
        gap += gain  # as much as the last of these steps at most
        W, b = Wb[:, :, :-1], Wb[:, :, -1] - Wb[:, :, :-1] @ means
        gap += state.rounding(table, W, b, value)
        if gap > _LOOSE * abs(value):
            warnings.warn(
                f"The fit is proved to be within {gap:.3g} of the optimum only, for an objective "
                f"of {value:.3g}. Scale the features, or add a ridge.",
                ConvergenceWarning,
                stacklevel=users_line(),
            )
        return W / unit, b, value, gap, n_iter


def without(Omega, here, share):
    """Omega over the tasks `here` (a mask), where the models of the others are the best for theirs.

    -> Omega (n, n); extend (m - n, n), models of the others are this times those of the tasks
    `here`. `share` is ridge over lam.
    """
    A = Omega.toarray() if sparse.issparse(Omega) else Omega
    A = A + share * np.eye(len(A))
    extend = -np.linalg.pinv(A[~here][:, ~here], rcond=1e-12, hermitian=True) @ A[~here][:, here]
    left = A[here][:, here] + A[here][:, ~here] @ extend
    left[np.diag_indices(len(left))] -= share
    return 0.5 * (left + left.T), extend


def spectrum(Omega, lam):
    """-> smallest eigenvalue of lam Omega that is not zero, basis of its kernel (m, r)

    The kernel of a Laplacian is one vector for every part of the graph, so that the number
    of zero eigenvalues is known.
    """
    m = Omega.shape[0]
    if sparse.issparse(Omega):
        count, label = sparse.csgraph.connected_components(Omega, directed=False)
        kernel = sparse.csr_matrix((np.ones(m), (np.arange(m), label)), shape=(m, count))
        kernel = kernel @ sparse.diags(1.0 / np.sqrt(np.bincount(label)))
        if count == m:
            return lam, kernel  # Omega is zero
        if m > _DENSE and count < m // 4:
            shift = 1e-3 * float(Omega.diagonal().mean())
            start = np.random.default_rng(0).standard_normal(m)
            values = sparse.linalg.eigsh(
                Omega, count + 1, sigma=-shift, which="LM", v0=start, return_eigenvectors=False
            )
            return _MARGIN * lam * float(values.max()), kernel
        values = np.linalg.eigvalsh(Omega.toarray())
        return lam * float(values[count]), kernel
    values, vectors = np.linalg.eigh(Omega)
    zero = values <= _KERNEL * max(values[-1], 0.0)
    smallest = float(values[~zero].min()) if not zero.all() else 1.0
    return lam * smallest, vectors[:, zero]


def _in_kernel(U, kernel, held):
    """What of U (m, n_outputs, d + 1) is in the kernel of the penalties, orthogonally."""
    out = np.zeros_like(U)
    if kernel is not None:
        W = U[:, :, :-1].reshape(len(U), -1)
        out[:, :, :-1] = (kernel @ (kernel.T @ W)).reshape(U[:, :, :-1].shape)
    if held is not None:
        out[:, :, -1] = U[:, :, -1]
    return out


class GraphState(State):
    """`State` with Omega between the tasks."""

    def __init__(self, centred, Omega, lam):
        super().__init__(centred, lam)
        self.Omega = Omega
        # A task without neighbours has blocks that may have no inverse.
        self.strengths = np.maximum(lam * Omega.diagonal(), 1e-8 * float(centred.smoothness.max()))
        self.largest = float(centred.smoothness.max() + self.strengths.max()) + self.ridge

    def rounding(self, table, W, b, value):
        """Bound on the difference between the computed objective, `value`, and the true one.

        A score is wrong by c times its terms, as in `Loss.rounding`, and residuals r by that of all
        rows, `big`, so that the losses are by c (value + r big) + (c big)^2 / 2.
        """
        problem = self.centred.problem
        settings = {"task_weight": problem.task_weight, "fit_intercept": problem.fit_intercept}
        loss = make_loss(table, **settings)
        c, (X, y, _) = loss.unit, loss.sizes()
        ones = np.sqrt(loss.scale * loss.table.support)
        lengths = np.sqrt(np.einsum("kcj,kcj->kc", W, W)).ravel()
        big = np.linalg.norm(y + X * lengths + ones * np.abs(b).ravel())
        r = np.sqrt(2.0 * value) if loss.quadratic else np.linalg.norm(ones)
        terms = self.lam * np.vdot(np.abs(W), abs(self.Omega) @ np.abs(W).reshape(len(W), -1))
        terms += self.ridge * np.vdot(W, W)
        return c * (3.0 * value + 2.0 * r * big + terms) + 0.5 * (c * big) ** 2

    def _shared(self, W):
        """Omega W of all tasks."""
        return (self.Omega @ W.reshape(len(W), -1)).reshape(W.shape)

    def _quadratic(self, W, shared, part):
        return self.lam * float(np.vdot(W, shared[part])), self.lam * shared[part]


class LossOnGraph:
    """A loss plus 1/2 <W, A W> for A = lam Omega + ridge I on the tasks, as `minimize` takes it.

    With residuals u = theta r and V = X'r - A W at W, the dual value of both is that of u less
    theta^2 / 2 <W, A W>, where the dual norm of theta V must be at most the strength of the norm:
    the conjugate of the penalties at X'u is at most that of the quadratic one at theta A W plus
    that of the norm at what is left, theta V. Nothing has to be in the range of A. The loss is one
    without a ridge.
    """

    ridge = 0.0  # to those outside: it is in A
    keeps = is_few = False
    is_flat = True  # steps of splitting only bound the curvature of A

    def __init__(self, loss, Omega, lam, ridge):
        m = Omega.shape[0]
        self.A = lam * Omega
        self.A += ridge * (sparse.eye(m, format="csr") if sparse.issparse(Omega) else np.eye(m))
        self._use(loss)
        self._sizes = abs(self.A)
        self._largest = float(self._sizes.sum(axis=0).max())  # at least the largest eigenvalue

    def _use(self, loss):
        self.loss, self.quadratic, self.is_bounded = loss, loss.quadratic, loss.is_bounded
        self.table, self.shape = loss.table, loss.shape

    def model(self, W, floor):
        """Of counts; see `PoissonLoss.model`."""
        found = copy(self)
        found._use(self.loss.model(W, floor))
        return found

    @staticmethod
    def _product(A, W):
        """A over the tasks, which have a row of W for every class."""
        return (A @ W.reshape(A.shape[0], -1)).reshape(W.shape)

    def _quadratic(self, W):
        """-> 1/2 <W, A W>, A W"""
        gradient = self._product(self.A, W)
        return 0.5 * float(np.vdot(W, gradient)), gradient

    def evaluate(self, W):
        (value, V), (penalty, slope) = self.loss.evaluate(W), self._quadratic(W)
        V -= slope
        return value + penalty, V

    def curvatures(self):
        return self.loss.curvatures() + self._largest

    def dual_scale(self, W, value):
        return self.loss.dual_scale(W, value)

    def dual(self, theta, W, value):
        penalty = self._quadratic(W)[0]
        return self.loss.dual(theta, W, value - penalty) - theta**2 * penalty

    def rounding(self, W, value):
        """With that of sums over neighbours, in the value, its dual and V."""
        error, size = self.loss.rounding(W, value)
        terms = self._product(self._sizes, np.abs(W))
        error += 2.0 * self.loss.unit * float(np.vdot(np.abs(W), terms))
        return error, size + self.loss.unit * float(np.linalg.norm(terms))

    def resolvent(self, share, W, floor, lean=False):
        """Steps from those of the loss, see `resolvents`, with a bound c on A as its ridge.

        For a quadratic loss they begin at W and S with V - c W + rho (W - S) in place of V + rho
        (W - S), and V that of the loss alone.
        """
        bound, c = copy(self.loss), self._largest
        bound.ridge = c
        found = bound.resolvent(share, W, floor, lean)
        if found is None:
            return None
        rho, inner = found

        def step(W, S, V):
            if self.quadratic:
                S = S + (self._product(self.A, W) - c * W) / rho
            return inner(W, S, V)

        return rho, step


class Blocks(Arrow):
    """Inverses of the blocks of the Hessian that a task has alone."""

    def _join(self):
        self.core = None

    def __call__(self, R, out):
        for first, last in self.state.blocks:
            out[first:last] = self._solve(first, last, R[first:last])
        return out
