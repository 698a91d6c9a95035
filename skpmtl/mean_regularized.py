"""Personal models around a private mean (Hu, Wu and Smith, "Private multi-task learning")."""

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from scipy import sparse

from ._compat import Interval, StrOptions
from ._kernels.clip import clip_rows
from .base import BaseMTL, MTLClassifierMixin, MTLRegressorMixin, merge_rows
from .budget import exact_report
from .curator import RoundPlan, auto_rounds, run_rounds
from .exact_mean import dense_copy, fixed_point, minimize_exactly
from .personal import MeanBillboard, Models, SparseModels, cluster_rows
from .privacy.rng import SeededSource, noise_source
from .rounds import Problem, RunningModels, TaskHalf

__all__ = ["PrivateMeanRegMTL", "PrivateMeanRegMTLClassifier"]

_PROX_STEPS, _PROX_TOL = 12, 1e-3  # of the accelerated steps of one round
_PLAIN_STEPS = 20  # gradient steps of one round of the other updates


class Rounds(BaseMTL):
    """Estimators that release a mean in rounds and personalise it afterwards.

    Subclasses have the attribute or parameter `update`.
    """

    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "lam": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "clip_norm": [Interval(Real, 0, None, closed="neither")],
        "clip_quantile": [None, Interval(Real, 0, 1, closed="neither")],
        "n_rounds": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "sampling": [StrOptions({"all", "poisson", "fixed"})],
        "sampling_rate": [Interval(Real, 0, 1, closed="right")],
        "local_steps": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "local_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "server_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "personalization": [
            StrOptions({"mean-reg", "finetune", "symmetrized-kl", "ewc", "none"})
        ],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "task_weight": [StrOptions({"equal", "samples"})],
        "clusters": [Mapping, None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }
    _classification = False

    def __init__(
        self,
        lam="auto",
        *,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        clip_norm=1.0,
        clip_quantile=None,
        n_rounds="auto",
        sampling="all",
        sampling_rate=1.0,
        local_steps="auto",
        local_learning_rate=1.0,
        server_learning_rate=1.0,
        personalization="mean-reg",
        ridge=0.0,
        task_weight="equal",
        clusters=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        max_iter=100,
        tol=1e-10,
        random_state=None,
        verbose=0,
    ):
        self.lam = lam
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.clip_norm = clip_norm
        self.clip_quantile = clip_quantile
        self.n_rounds = n_rounds
        self.sampling = sampling
        self.sampling_rate = sampling_rate
        self.local_steps = local_steps
        self.local_learning_rate = local_learning_rate
        self.server_learning_rate = server_learning_rate
        self.personalization = personalization
        self.ridge = ridge
        self.task_weight = task_weight
        self.clusters = clusters
        self.fit_intercept = fit_intercept
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _update_name(self):
        return self.update

    def _n_rounds(self, epsilon):
        return auto_rounds(epsilon) if isinstance(self.n_rounds, str) else self.n_rounds

    # ------------------------------------------------------------------------- fit
    def _fit_table(self, table):
        problem = self._problem(table)
        cluster_of = self._cluster_rows(table)
        which = cluster_rows(table.tasks, cluster_of)
        update = self._update_name()
        if update != "prox" and self.ridge:
            raise ValueError(
                f'ridge={self.ridge!r} belongs to update="prox"; with {update!r} pass ridge=0.'
            )
        if update == "prox" and not self._is_private():
            return self._fit_exact(table, problem, which, cluster_of)
        means = np.zeros((which.max() + 1, problem.n_outputs * table.n_features))
        share_intercept = (
            self._is_private()
            and self.fit_intercept
            and self.unseen_task == "mean"
            and cluster_of is None
        )
        plan = RoundPlan(
            self, table.n_tasks, means.size, problem.n_outputs if share_intercept else 0
        )
        source = self._source()
        half = TaskHalf(table, problem, which)
        running = None
        if update == "prox":
            steps = _PROX_STEPS if isinstance(self.local_steps, str) else self.local_steps

            def contribute(pick, anchor, clip_norm, total):
                return half.sum_of_updates(
                    pick, anchor, clip_norm, total, n_steps=steps, tol=_PROX_TOL
                )
        else:
            steps = _PLAIN_STEPS if isinstance(self.local_steps, str) else self.local_steps
            running = RunningModels(
                half, update, means.shape[1], n_steps=steps, rate=self.local_learning_rate
            )
            contribute = running.sum_of_updates
        groups = np.bincount(which)
        log = self._progress("round %d: noise std %.3g")
        releases, entries, bounds = run_rounds(plan, groups, contribute, means, source, log)
        del half
        board = self._board(table, problem, means, cluster_of)
        board.releases, board.clip_norms, board.plan = releases, bounds, plan
        board.noise_variance = _noise_variance(plan, entries, groups)
        models = board.personalize(table)
        fitted = self._fitted(table, board, models, plan.n_rounds)
        if running is not None and running.W is not None and self.personalization == "none":
            fitted["coef_"] = running.models(means).reshape(table.n_tasks, *board.shape)
        if plan.intercept is not None:
            b = models.intercept.copy()
            clip_rows(b, plan.clip_norm, 2, b)
            board.mean_intercept = plan.intercept.release(b.sum(axis=0) / len(b), source)
            board.releases.append(board.mean_intercept)
            entries.append(
                {"name": "mean intercept", **plan.intercept.describe("mean of clipped intercepts")}
            )
        if self._is_private() or not plan.n_rounds:
            board.report = plan.report(self, entries, source)
        else:
            board.report = exact_report("the rounds ran without noise (epsilon=None)")
        fitted["privacy_"] = board.report
        if cluster_of is None:
            fitted["mean_coef_"] = board.mean.copy()
            shift = board.mean_intercept
            if not self._is_private() and self.fit_intercept:
                shift = models.intercept.mean(axis=0)
            elif not self.fit_intercept:
                shift = np.zeros(problem.n_outputs)
            if shift is not None:
                fitted["mean_intercept_"] = shift if len(board.shape) == 2 else float(shift[0])
        return fitted

    def _problem(self, table):
        kind = 0
        if self._classification:
            kind = 1 if table.y.max() <= 1 else 2  # -1 and 1, or the numbers of the classes
        n_outputs = int(table.y.max()) + 1 if kind == 2 else 1
        lam, ridge = self.lam, float(self.ridge)
        return Problem(kind, n_outputs, self.fit_intercept, self.task_weight, lam, ridge)

    def _cluster_rows(self, table):
        """{task: number of its cluster} for the clusters that have a task here."""
        if self.clusters is None:
            return None
        tasks = table.tasks.tolist()
        missing = [task for task in tasks if task not in self.clusters]
        if missing:
            cluster_rows(table.tasks, dict.fromkeys(set(tasks) - set(missing), 0))
        present = sorted({str(self.clusters[task]) for task in tasks})
        number = {name: g for g, name in enumerate(present)}
        return {
            task: number[str(name)] for task, name in self.clusters.items() if str(name) in number
        }

    def _source(self):
        if self._is_private():
            return noise_source(self.random_state)
        seed = self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = seed.randint(2**31)
        return SeededSource(np.random.default_rng(seed))

    def _board(self, table, problem, means, cluster_of):
        shape = (table.n_features,)
        return MeanBillboard(
            means=means,
            releases=[],
            clip_norms=[],
            noise_variance=np.zeros(len(means)),
            shape=shape if problem.kind < 2 else (problem.n_outputs, *shape),
            problem=problem,
            personalization=self.personalization,
            local_steps=self.local_steps,
            sparse=table.is_sparse,
            cluster_of=cluster_of,
        )

    def _fitted(self, table, board, models, n_iter):
        b = models.intercept
        fitted = {
            "intercept_": b if len(board.shape) == 2 else b[:, 0],
            "n_iter_": max(n_iter, 1),
            "billboard_": board,
        }
        if models.dense:
            fitted["coef_"] = models.coef
        else:
            fitted["models_"] = SparseModels(models)
        return fitted

    def _fit_exact(self, table, problem, which, cluster_of):
        given = table
        table = dense_copy(given) or given
        half = TaskHalf(table, problem, which)
        lam = float(np.median(half.lam))
        half.problem = problem = replace(problem, lam=lam)
        half.lam = np.full(table.n_tasks, lam)
        log = self._progress("iteration %d: objective %.8g, gradient norm %.3g")
        size = problem.n_outputs * table.n_features
        anchor = np.zeros((which.max() + 1, size))
        objective = W = None
        if table.is_sparse:
            n_iter = fixed_point(half, anchor, tol=self.tol, max_iter=self.max_iter)
        else:
            W, b, objective, n_iter = minimize_exactly(
                half, lam, tol=self.tol, max_iter=self.max_iter, log=log
            )
            flat = W.transpose(0, 2, 1) if given.is_sparse else W
            np.add.at(anchor, which, flat.reshape(len(W), size))
            anchor /= np.bincount(which)[:, None]
        board = self._board(given, problem, anchor, cluster_of)
        board.personalization = "mean-reg"
        board.report = exact_report()
        if W is None:
            models = Models(given, board)
            fitted = self._fitted(given, board, models, n_iter)
            b = models.intercept
        else:
            fitted = {
                "coef_": W.reshape(table.n_tasks, *board.shape),
                "intercept_": b if len(board.shape) == 2 else b[:, 0],
                "n_iter_": n_iter,
                "objective_": objective,
                "billboard_": board,
            }
        fitted.update(privacy_=board.report, lam_=lam)
        if cluster_of is None:
            fitted["mean_coef_"] = board.mean.copy()
            shift = b.mean(axis=0)
            fitted["mean_intercept_"] = shift if len(board.shape) == 2 else float(shift[0])
        return fitted

    # -------------------------------------------------------------- personal models
    def _personalize_table(self, table):
        models = self.billboard_.personalize(table)
        b = models.intercept
        return models.coef, b if len(self.billboard_.shape) == 2 else b[:, 0]

    def personalize(self, X, y, task=None):
        if "models_" not in vars(self):
            return super().personalize(X, y, task)
        table = self._read_new_tasks(X, y, task)
        models = Models(table, self.billboard_, dense=False)
        b = models.intercept if len(self.billboard_.shape) == 2 else models.intercept[:, 0]
        tasks, form = self._add_labels(table.tasks)
        old, new = np.searchsorted(tasks, self.tasks_), np.searchsorted(tasks, table.tasks)
        self.models_ = self.models_.merged(len(tasks), old, new, models)
        self.intercept_ = merge_rows(len(tasks), old, self.intercept_, new, b)
        self.tasks_, self._form_ = tasks, form
        return self

    personalize.__doc__ = BaseMTL.personalize.__doc__

    def __getattr__(self, name):
        # Coefficients of wide sparse tasks are written out only when somebody asks for them.
        if name == "coef_" and "models_" in vars(self):
            return self.models_.coef()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _task_coef(self, position):
        if "models_" in vars(self):
            return self.models_.task_coef(position)
        return super()._task_coef(position)

    def _row_values(self, rows, decide):
        if "models_" not in vars(self):
            return super()._row_values(rows, decide)
        X = sparse.csr_matrix(rows.X, dtype=np.float64)
        single = len(self.billboard_.shape) == 1

        def values(part, k):
            if k < 0:
                mean = np.atleast_2d(self.mean_coef_)
                scores = part @ mean.T + self.mean_intercept_
            else:
                scores = self.models_.scores(part, k)
            scores = np.asarray(scores[:, 0] if single else scores)
            return scores if decide is None else decide(scores)

        if rows.codes is None:
            return np.stack([values(X, k) for k in self._wide_columns()], axis=1)
        order = np.argsort(rows.codes, kind="stable")
        present, starts = np.unique(rows.codes[order], return_index=True)
        out = None
        for k, part in zip(present, np.split(order, starts[1:]), strict=True):
            some = values(X[part], k)
            if out is None:
                out = np.empty((X.shape[0], *some.shape[1:]), dtype=some.dtype)
            out[part] = some
        return out


def _noise_variance(plan, entries, groups):
    """Variance of the noise in one number of each shared model, for at most ten rounds."""
    if plan.noise_multiplier is None:
        return np.zeros(len(groups))
    stds = np.array([e["noise_std"] for e in entries if "," not in e["name"]])
    rounds = min(len(stds), 10)
    step = plan.server_rate * groups.sum() / groups
    return step**2 * rounds * np.mean(stds**2)


class _MeanRegularized(Rounds):
    _parameter_constraints = {
        **Rounds._parameter_constraints,
        "update": [StrOptions({"prox", "algorithm-1", "stateful"})],
    }

    def __init__(
        self,
        lam="auto",
        *,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        clip_norm=1.0,
        clip_quantile=None,
        n_rounds="auto",
        update="prox",
        sampling="all",
        sampling_rate=1.0,
        local_steps="auto",
        local_learning_rate=1.0,
        server_learning_rate=1.0,
        personalization="mean-reg",
        ridge=0.0,
        task_weight="equal",
        clusters=None,
        fit_intercept=True,
        task_feature=None,
        tasks="auto",
        unseen_task="error",
        max_iter=100,
        tol=1e-10,
        random_state=None,
        verbose=0,
    ):
        super().__init__(
            lam,
            epsilon=epsilon,
            delta=delta,
            adjacency=adjacency,
            clip_norm=clip_norm,
            clip_quantile=clip_quantile,
            n_rounds=n_rounds,
            sampling=sampling,
            sampling_rate=sampling_rate,
            local_steps=local_steps,
            local_learning_rate=local_learning_rate,
            server_learning_rate=server_learning_rate,
            personalization=personalization,
            ridge=ridge,
            task_weight=task_weight,
            clusters=clusters,
            fit_intercept=fit_intercept,
            task_feature=task_feature,
            tasks=tasks,
            unseen_task=unseen_task,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            verbose=verbose,
        )
        self.update = update


_DOC = """{summary}

    Every task has its own {model}, held near a shared model w~ that is learned in rounds: the
    tasks receive w~, work on their own rows, and send a clipped update of which only the noisy
    mean is published (joint, or billboard, differential privacy at task level). Afterwards
    every task turns the last w~ into its own model, at no further cost.

    Parameters
    ----------
    lam : float or "auto", default="auto"
        Pull towards the shared model, in the objective below. "auto" is every task's own
        choice, which stays with the task: {auto}
        With ``epsilon=None``: {part} times the median smoothness.
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: no privacy; the exact optimum with
        ``update="prox"``, rounds without noise and clipping otherwise.
    delta : float or None, default=None
        Probability part of the guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``.
    adjacency : {{"replace-one", "zero-out"}}, default="replace-one"
        Whether neighbouring inputs differ by one task's data being replaced by any other
        data, or by its contribution being 0.
    clip_norm : float, default=1.0
        Public bound on the norm of an update: about the distance from 0 to the shared model
        divided by a few rounds. For rows of length r and scores of scale s (a fifth of the range of
        a target, the root of the number of classes) take 1.9 s / r.
    clip_quantile : float or None, default=None
        With a number the bound starts at `clip_norm` and moves towards this quantile of the
        norms of the updates, by noisy counts; the report states their cost.
    n_rounds : "auto" or int, default="auto"
        "auto" is a public rule: 3, 10, 30, 100 rounds for epsilon up to .1, 1, 2, above.
    update : {{"prox", "algorithm-1", "stateful"}}, default="prox"
        What a task sends. "prox": its proximal model minus w~, without memory. For
        reproduction only, as every task keeps a dense model: "algorithm-1", the change of
        its running model, as printed in [1]_ (what a clip removed is never sent again);
        "stateful", its running model minus w~, as the authors' code does.
    sampling : {{"all", "poisson", "fixed"}}, default="all"
        Who takes part in a round. "all" has the least noise. "poisson": every task with
        probability `sampling_rate`, secretly (needs the extra ``skpmtl[sampling]``). "fixed":
        that share of the tasks; they know it, so it is accounted without amplification.
        The denominator is `sampling_rate` times the number of tasks in any case.
    sampling_rate : float, default=1.0
    local_steps : "auto" or int, default="auto"
        Steps of a task in a round: accelerated ones of "prox" (12; squared loss is solved
        exactly where factors fit into memory), gradient steps otherwise (20).
    local_learning_rate : float, default=1.0
        Gradient steps in units of 1 / smoothness of the task's own objective.
    server_learning_rate : float, default=1.0
        Factor of the noisy mean that w~ moves by.
    personalization : {{"mean-reg", "finetune", "symmetrized-kl", "ewc", "none"}}, \
default="mean-reg"
        From w~ to a task's model. "mean-reg": the proximal model, with a strength that
        trusts w~ less the more noise it carries. `local_steps` (20) gradient steps from w~
        on: the loss ("finetune"), with a pull to the predictions of w~ ("symmetrized-kl"), or
        one weighted by the Fisher information ("ewc"). "none": w~ itself, or the running
        model of an update that keeps one.
    ridge : float, default=0.0
        Weight of ``ridge / 2 * ||W||_F^2``; with ``update="prox"``.
    task_weight : {{"equal", "samples"}}, default="equal"
        "equal": mean loss per task. "samples": sum of losses. Updates of all tasks count the
        same in either case.
    clusters : mapping of task to cluster or None, default=None
        Public. One shared model per cluster, at no cost (parallel composition). It may name
        tasks that are added later.
    fit_intercept : bool, default=True
        Whether every task has an intercept, which is local and not penalised (only in tasks
        where a class is missing it is, with `lam`, as it would be infinite).
    task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position. None: ids are passed as
        ``task=``, or y has one column per task, or X and y are mappings.
    tasks : "auto" or array-like, default="auto"
        Public list of the tasks. "auto" reads it from the data, which discloses which tasks
        exist.
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: an error, or the shared model.
        With local intercepts their clipped mean is then one more release, which takes 10 % of
        the squared budget.
    max_iter : int, default=100
        Bound on the iterations of the exact solver.
    tol : float, default=1e-10
        The exact solver stops when no coefficient moves by more than this part of the largest.
    random_state : int, Generator, RandomState or None, default=None
        None: noise from the operating system's generator. Anything else makes the noise
        reproducible, which protects nobody against those who know it.
    verbose : int, default=0
        Progress through the ``skpmtl`` logger.

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features){shapes}
        Personal models. All together they are not a private object: hand each task its own
        with `export_task`. For wide sparse X (more than 2^20 coefficients) only the
        differences on the columns of a task's rows are kept, or, where these outgrow the rows,
        the rows themselves; `coef_` is then written out at every access.
    intercept_ : ndarray of shape (n_tasks,){intercepts}
    mean_coef_, mean_intercept_
        Shared model; with ``clusters`` see ``billboard_.mean``. The intercept is missing when
        it was not released.
    tasks_ : ndarray of shape (n_tasks,){classes}
    billboard_ : MeanBillboard
        Noisy means in the order of publication, and ``history()``: noise and epsilon per round.
        Nothing that depends on the data in another way is recorded.
    privacy_ : PrivacyReport
        The guarantee with all its assumptions; prints as a paragraph.
    n_iter_ : int
        Rounds, or iterations of the exact solver.
    objective_, lam_ : float
        Value of the objective, and the `lam` used; exact solution only.
    n_features_in_, feature_names_in_
        Of X as given, so that a task column counts.

    See Also
    --------
    {also}
    skpmtl.federated_baselines : FedAvg, FedProx and others with the same interface.

    Notes
    -----
    Without privacy the objective is, with n_k rows in task k and v free (hence the mean),

        {loss}
        + lam / 2 sum_k ||w_k - v||^2 + ridge / 2 ||W||_F^2.

    With privacy w~ follows noisy gradient descent on the mean of the tasks' Moreau envelopes.

    References
    ----------
    .. [1] S. Hu, Z. S. Wu, V. Smith, "Private multi-task learning: formulation and
       applications to federated learning", TMLR, 2023.

    Examples
    --------
    >>> from skpmtl import {name}
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=20, n_samples=15, n_features=5, random_state=0)
    >>> model = {name}(lam=0.1, epsilon=None).fit(X, {target}, task=task)
    >>> model.coef_.shape
    (20, 5)
    """


class PrivateMeanRegMTL(MTLRegressorMixin, _MeanRegularized):
    __doc__ = _DOC.format(
        summary="Private mean-regularised multi-task regression.",
        model="linear regression",
        auto="0.05 times the smoothness of its loss in\n        the rounds, 0.05 + 5 / n_k times "
        "in the personalisation.",
        part="0.05",
        shapes="",
        intercepts="",
        classes="",
        also="PrivateMeanRegMTLClassifier : The same for classes.",
        loss="sum_k 1 / (2 n_k) ||y_k - X_k w_k - b_k||^2",
        name="PrivateMeanRegMTL",
        target="y",
    )


class PrivateMeanRegMTLClassifier(MTLClassifierMixin, _MeanRegularized):
    __doc__ = _DOC.format(
        summary="Private mean-regularised multi-task logistic regression, binary or multinomial.",
        model="logistic regression",
        auto="0.02 times the smoothness of its loss.",
        part="0.02",
        shapes=" or (n_tasks, n_classes, n_features)",
        intercepts=" or (n_tasks, n_classes)",
        classes="\n    classes_ : ndarray of shape (n_classes,)\n        Class labels, shared by all "
        "tasks; a task need not have all of them.",
        also="PrivateMeanRegMTL : The same for regression.",
        loss="sum_k 1 / n_k sum_i loss_i, the logistic or multinomial log-loss,",
        name="PrivateMeanRegMTLClassifier",
        target="y > 0",
    )
    _classification = True
    _multiclass = True
    _one_class_tasks = "allow"
