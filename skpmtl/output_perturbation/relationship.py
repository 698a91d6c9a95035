"""Multi-task relationship learning with noisy local models (DP-MTRL)."""

import warnings
from numbers import Integral, Real

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._kernels.clip import clip_rows
from .._runtime.compat import Interval
from .._runtime.threads import single_blas_thread
from ..base import CLASS_LIST_DOC, MTLClassifierMixin, MTLRegressorMixin
from ..privacy.mechanisms import VectorGamma, VectorGaussian
from ..privacy.report import exact_report
from ..privacy.rng import noise_source
from .board import RelationshipBillboard, split
from .estimators import CLASSES_DOC, COMMON_DOC, MAX_TARGET_DOC, PAPER_DOC, OutputPerturbation
from .plan import PerturbationPlan
from .tasks import ProximalModels

__all__ = [
    "DPRelationship",
    "DPRelationshipClassifier",
]


def smooth(W, ratio):
    """argmin over V of 1/2 ||W - V||_F^2 + ratio / 2 ||V||_*^2.

    As ||V||_*^2 is the minimum of tr(V Omega^-1 V') over Omega of trace 1, it minimises over
    Omega as well. Singular values are lowered by tau = ratio ||V||_*. (V and Omega in turn, as
    in the papers, get stuck once Omega is singular: its range then no longer turns.)
    """
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    tau = ratio * np.cumsum(s) / (1.0 + ratio * np.arange(1, len(s) + 1))
    kept = int(np.count_nonzero(s > tau))
    tau = tau[max(kept, 1) - 1]
    return (U * np.maximum(s - tau, 0.0)) @ Vt


class _Relationship(OutputPerturbation):
    _boards = (RelationshipBillboard,)
    _trusted = "every task, or a curator that it trusts, adds the noise to its model"
    _parameter_constraints = {
        **OutputPerturbation._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        lam=1.0,
        alpha=1.0,
        *,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        guarantee="task",
        group="published",
        mechanism="auto",
        max_row_norm=None,
        max_task_rows=None,
        min_task_rows=None,
        clip_norm=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        n_rounds=3,
        max_iter=1000,
        tol=1e-10,
        secure=False,
        random_state=None,
        verbose=0,
    ):
        self.lam = lam
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.guarantee = guarantee
        self.group = group
        self.mechanism = mechanism
        self.max_row_norm = max_row_norm
        self.max_task_rows = max_task_rows
        self.min_task_rows = min_task_rows
        self.clip_norm = clip_norm
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.n_rounds = n_rounds
        self.max_iter = max_iter
        self.tol = tol
        self.secure = secure
        self.random_state = random_state
        self.verbose = verbose

    def _fit_table(self, table):
        return self._fit_private(table) if self._is_private() else self._fit_exact(table)

    def _fit_private(self, table):
        plan = bounds, budget, mechanisms = self._plan(table)
        budget.check_rows(table)
        source = noise_source(self.random_state, secure=self.secure)
        models, m = self._models(table, bounds), table.n_tasks
        log = self._progress("round %d: noise std %.3g to %.3g", self.n_rounds)
        board = self._board([], [], np.zeros((m, models.width)), np.zeros((m, models.width)))
        # No column is longer than what a task may send in the first round.
        longest = budget.reach(bounds, np.zeros(m)).limit.max()
        for t, mechanism in enumerate(mechanisms):
            reach = budget.reach(bounds, np.linalg.norm(board.columns, axis=1))
            unit = reach.sensitivity[:, None]
            U = models.contributions(board.columns, reach) / unit
            noisy = mechanism.release(U.reshape(-1), source)
            board.models = board.columns + unit * noisy.reshape(m, -1)
            with single_blas_thread():
                board.columns = smooth(board.models, self.alpha / self.lam)
            clip_rows(board.columns, longest, 2, board.columns)
            board.releases.append(noisy)
            board.sensitivity.append(reach.sensitivity)
            if log is not None:
                std = mechanism.noise_std * reach.sensitivity
                log(t + 1, std.min(), std.max())
        board.report = self._statement(plan, table, source)
        return self._fitted(board, board.models, self.n_rounds)

    def _plan(self, population):
        """-> Bounds, PerturbationPlan, mechanisms of the rounds"""
        budget = PerturbationPlan(self, population, self.n_rounds)
        m, width = population.n_tasks, population.n_features + bool(self.fit_intercept)
        # In units of each task's sensitivity a neighbour moves one vector, by 1 at most.
        if budget.kind == "gaussian":
            mechanisms = [VectorGaussian(m * width, 1.0, share) for share in budget.shares]
        else:
            mechanisms = [VectorGamma(width, 1.0, share, n_vectors=m) for share in budget.shares]
        return self._bounds(), budget, mechanisms

    def _statement(self, plan, population, source):
        bounds, budget, mechanisms = plan
        first = budget.reach(bounds, np.zeros(population.n_tasks)).sensitivity
        notes = {
            "released": "the noisy models of all tasks go to the curator, who returns to each task "
            "its column of the smoothed matrix; all of it, and with it coef_, may be published",
            "sensitivity of the models in round 1": (first.min(), first.max()),
        }
        names = [f"round {t + 1}" for t in range(self.n_rounds)]
        statistic = "updates of all tasks, each in units of its sensitivity"
        public = {"alpha": self.alpha, "n_rounds": self.n_rounds}
        return self._report(
            budget, population, mechanisms, names, statistic, source, public, notes
        )

    def _fit_exact(self, table):
        """Alternating minimisation, a proximal gradient method on V, with momentum."""
        models, ratio = self._models(table), self.alpha / self.lam
        log = self._progress("iteration %d: columns move by %.3g")
        V = W = ahead = np.zeros((table.n_tasks, models.width))
        momentum = 1.0
        for n_iter in range(1, self.max_iter + 1):
            W = models.solve(ahead, start=W)
            with single_blas_thread():
                new = smooth(W, ratio)
            moved, size = np.abs(new - ahead).max(), np.abs(new).max()
            if np.vdot(ahead - new, new - V) > 0.0:
                momentum = 1.0  # the momentum leads uphill: restart
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            ahead = new + (momentum - 1.0) / following * (new - V)
            V, momentum = new, following
            if log is not None:
                log(n_iter, moved)
            if moved <= self.tol * max(size, 1e-300):
                break
        else:
            warnings.warn(
                f"The columns still move by {moved:.3g} after {self.max_iter} iterations. Raise "
                "max_iter or tol, or scale the features.",
                ConvergenceWarning,
                stacklevel=5,
            )
        W = models.solve(V, start=W)
        board = self._board([], [], W, V)
        board.report = exact_report()
        trace = np.linalg.svd(V, compute_uv=False).sum()
        value = models.value(W, V) + 0.5 * self.alpha * trace**2
        return {**self._fitted(board, W, n_iter), "objective_": float(value)}

    def _board(self, releases, sensitivity, models, columns):
        settings = float(self.lam), float(self.alpha), self.fit_intercept
        return RelationshipBillboard(releases, sensitivity, models, columns, *settings)

    def _fitted(self, board, W, n_iter):
        coef, intercept = split(W, self.fit_intercept)
        return {
            "coef_": coef,
            "intercept_": intercept,
            "mean_coef_": coef.mean(axis=0),
            "mean_intercept_": float(intercept.mean()),
            "billboard_": board,
            "privacy_": board.report,
            "n_iter_": n_iter,
        }

    def _personalize_table(self, table):
        board = self.billboard_
        root = board.prior()
        models = ProximalModels(
            table,
            classification=self._classification,
            fit_intercept=board.fit_intercept,
            lam=1.0,
            root=root,
        )
        W = models.solve(np.zeros((table.n_tasks, models.width)), alone=True) @ root
        return split(W, board.fit_intercept)

_DOC = """{summary}

    Multi-task relationship learning (Zhang and Yeung [2]_) with noise on the models of the tasks
    (Gupta et al. [3]_, a baseline of [1]_). With W = [w_1 ... w_m], one column per task and the
    intercept as last row, it minimises over W, V and the relationship Omega of trace 1

        sum_k [ 1/n_k sum_i {loss} + lam/2 ||w_k - v_k||^2 ]
        + alpha/2 tr(V Omega^-1 V').

    For given Omega the minimum over V is 1/2 tr(W (Omega/alpha + I/lam)^-1 W'): the
    regulariser of [2]_ with the customary ridge on Omega, here arranged so that a task solves
    alone. For given V the best Omega is (V'V)^(1/2) / trace. Rounds, from V = 0:

    1. every task computes w_k around its column v_k from its own rows and sends the update
       w_k - v_k with noise;
    2. the curator has the noisy matrix W, computes the best V and Omega for it, and returns
       to each task its column v_k, scaled down to the length that a task may send in round 1.

    **Who sees what.** The noise is on every model that leaves a task, before the curator (so
    that tasks could add it themselves). Other tasks see functions of noisy models. The model
    of task k is its own noisy model of the last round, as published: also a task itself does
    not get its exact one. All that `fit` computes is therefore differentially private, and the
    models of all tasks may be published. `personalize` is different: it computes an exact model
    from a new task's rows (and the prior that V implies), which belongs to that task alone.

    In each round one row moves w_k by at most 2 L_k / (n_k lam), where L_k is
    {lipschitz}
    A whole task moves it by at most twice the bound on ||w_k - v_k||; group privacy pays
    `max_task_rows` times as much as for a row. Rounds compose: exactly with Gaussian noise, by
    the bound of [1]_ ("published") or the optimal one with "gamma" noise. Tasks compose in
    parallel.

    Parameters
    ----------
    lam : float, default=1.0
        Public. Pull of a task to its column; the noise is proportional to its inverse.
    alpha : float, default=1.0
        Public. Strength of the relationship.
    {common}

    References
    ----------
    {paper}
    .. [2] Y. Zhang, D.-Y. Yeung, "A convex formulation for learning task relationships in
       multi-task learning", UAI 2010.
    .. [3] S. K. Gupta, S. Rana, S. Venkatesh, "Differentially private multi-task learning",
       PAISI 2016.

    Examples
    --------
    >>> from skpmtl import {name}
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=20, n_samples=20, n_features=3, random_state=0)
    >>> exact = {name}(lam=0.1, alpha=0.01, epsilon=None).fit(X, {y}, task=task)
    >>> exact.billboard_.relationship.shape
    (20, 20)
    >>> est = {name}(guarantee="record", max_row_norm=1, {bound}tasks=range(20))
    >>> est.fit(X, {y}, task=task).privacy_.guarantee
    'record DP'
    """


def _doc(**words):
    common = COMMON_DOC.format(
        direct="a model",
        clip="Public bound on the norm of an update w_k - v_k, enforced. None: that which follows "
        "from\n        the other bounds.",
        unseen='"error"',
        mean="the mean of the noisy\n        models",
        more="\n    n_rounds : int, default=3\n        Releases of a private fit."
        "\n    max_iter, tol : int, default=1000, and float, default=1e-10"
        "\n        The exact solution stops when no column moves by more than `tol` times the "
        "largest\n        coefficient.",
        coef="The models W: noisy, so that all of them may be published; exact with epsilon=None.",
        average="Their mean.",
        board="RelationshipBillboard",
        n_iter="Rounds, or iterations of the exact solver.",
        objective="\n    objective_ : float\n        Value of the objective; exact solution only.",
        class_list=CLASS_LIST_DOC if words["classes"] else "",
        **{k: words.pop(k) for k in ("target", "classes")},
    )
    return _DOC.format(common=common, paper=PAPER_DOC, **words)


class DPRelationship(MTLRegressorMixin, _Relationship):
    __doc__ = _doc(
        summary="DP-MTRL: relationship learning with noisy models, linear regression.",
        loss="1/2 (y_i - x_i'w_k)^2",
        lipschitz="R (Y_k + R Y_k / (2 sqrt(lam))) or less, Y_k = Y + R ||v_k||, for bounds R on a "
        "row and Y\n    on a target.",
        name="DPRelationship",
        bound="max_target=3, ",
        y="y",
        target=MAX_TARGET_DOC,
        classes="",
    )

    def __init__(
        self,
        lam=1.0,
        alpha=1.0,
        *,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        guarantee="task",
        group="published",
        mechanism="auto",
        max_row_norm=None,
        max_target=None,
        max_task_rows=None,
        min_task_rows=None,
        clip_norm=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        n_rounds=3,
        max_iter=1000,
        tol=1e-10,
        secure=False,
        random_state=None,
        verbose=0,
    ):
        super().__init__(
            lam,
            alpha,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            guarantee=guarantee,
            group=group,
            mechanism=mechanism,
            max_row_norm=max_row_norm,
            max_task_rows=max_task_rows,
            min_task_rows=min_task_rows,
            clip_norm=clip_norm,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            n_rounds=n_rounds,
            max_iter=max_iter,
            tol=tol,
            secure=secure,
            random_state=random_state,
            verbose=verbose,
        )
        self.max_target = max_target


class DPRelationshipClassifier(MTLClassifierMixin, _Relationship):
    __doc__ = _doc(
        summary="DP-MTRL: relationship learning with noisy models, two classes.",
        loss="log(1 + exp(-y_i x_i'w_k))",
        lipschitz="at most R, the bound on a row.",
        name="DPRelationshipClassifier",
        bound="classes=[False, True], ",
        y="y > 0",
        target="",
        classes=CLASSES_DOC,
    )
    _classification = True
    _one_class_tasks = "allow"
