"""Estimators that release a mean in rounds and personalise it afterwards."""

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from scipy import sparse

from ._compat import Interval, StrOptions
from ._finite import bound_values
from ._kernels.clip import clip_rows
from .base import BaseMTL, merge_rows
from .budget import exact_report
from .curator import RoundPlan, auto_rounds, clipped_sum, rounds, sum_of_intercepts
from .exact_mean import cluster_means, dense_copy, fixed_point, minimize_exactly
from .exchange import Ask, Population, run
from .personal import MeanBillboard, Models, SparseModels, cluster_rows
from .privacy.rng import SeededSource, noise_source
from .rounds import KEEP_MODELS, Problem, RunningModels, TaskHalf

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
        "secure": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }
    _classification = False
    _sparse_in_place = True

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
        secure=False,
        random_state=None,
        verbose=0,
        dtype=np.float64,
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
        self.secure = secure
        self.random_state = random_state
        self.verbose = verbose
        self.dtype = dtype

    def _update_name(self):
        return self.update

    def _n_rounds(self, epsilon):
        return auto_rounds(epsilon) if isinstance(self.n_rounds, str) else self.n_rounds

    # ------------------------------------------------------------------------- fit
    def _fit_table(self, table):
        population = Population.of(table)
        if self._update_name() == "prox" and not self._is_private():
            cluster_of = self._cluster_rows(table.tasks)
            which = cluster_rows(table.tasks, cluster_of)
            return self._fit_exact(table, self._problem(population), which, cluster_of)
        source = self._source()
        tasks = self._task_half(table, population)
        board = run(self._curate(population, source), tasks, source)
        models = tasks.models(board)
        fitted = self._fitted(table, board, models, board.plan.n_rounds)
        own = tasks.own_models(board)
        if own is not None:
            fitted["coef_"] = own
        fitted["privacy_"] = board.report
        if board.cluster_of is None and models.dense:
            fitted["mean_coef_"] = board.mean.copy()
        shift = board.mean_intercept
        if shift is None:
            which = tasks.half.which
            shift = self._open_intercept(board.report, models.intercept, which)
        else:
            shift = np.atleast_2d(shift)
        return self._with_mean_intercept(fitted, board, shift)

    def _curate(self, population, source):
        """The curator half of the rounds; see `skpmtl.exchange`."""
        if self._update_name() != "prox" and self.ridge:
            raise ValueError(
                f'ridge={self.ridge!r} belongs to update="prox"; with {self._update_name()!r} '
                "pass ridge=0."
            )
        problem, cluster_of = self._problem(population), self._cluster_rows(population.tasks)
        which = cluster_rows(population.tasks, cluster_of)
        groups = np.bincount(which)
        means = np.zeros((len(groups), problem.n_outputs * population.n_features))
        plan = self._plan(population, len(groups))
        log = self._progress("round %d: noise std %.3g", plan.n_rounds)
        releases, bounds = yield from rounds(plan, which, means, log)
        board = self._board(population, problem, means, cluster_of)
        board.releases, board.clip_norms, board.plan = releases, bounds, plan
        board.noise_variance, board.total_variance = _noise_variances(plan, bounds, groups)
        if plan.intercept is not None:
            shape = len(groups), problem.n_outputs
            ask = Ask(
                "intercept", {"board": board, "clip_norm": plan.clip_norm},
                {"intercept": plan.intercept}, sum_of_intercepts(which, plan.clip_norm, shape),
                population.n_tasks,
            )  # fmt: skip
            released = (yield ask)["intercept"]
            board.releases.append(released)
            shift = released.reshape(shape) * (population.n_tasks / groups)[:, None]
            board.mean_intercept = shift if cluster_of is not None else shift[0]
        board.report = self._report(plan, bounds, source)
        return board

    def _plan(self, population, n_groups):
        """Budget of the rounds, for that many shared models."""
        shares_intercept = self._is_private() and self.fit_intercept and self.unseen_task == "mean"
        n_intercepts = n_groups * population.n_outputs if shares_intercept else 0
        size = n_groups * population.n_outputs * population.n_features
        return RoundPlan(self, population.n_tasks, size, n_intercepts)

    def _report(self, plan, bounds, source):
        if self._is_private() or not plan.n_rounds:
            return plan.report(self, bounds, source)
        return exact_report("the rounds ran without noise (epsilon=None)")

    def _planned_report(self, population):
        if self._update_name() == "prox" and not self._is_private():
            return exact_report()
        cluster_of = self._cluster_rows(population.tasks)
        n_groups = 1 if cluster_of is None else len(set(cluster_of.values()))
        plan = self._plan(population, n_groups)
        return self._report(plan, [plan.clip_norm] * plan.n_rounds, self._source())

    def _task_half(self, table, population):
        """The task half for the tasks of `table`."""
        which = cluster_rows(table.tasks, self._cluster_rows(population.tasks))
        return MeanTasks(self, table, self._problem(population), which)

    def _open_intercept(self, report, b, which):
        """Mean intercepts (n_clusters, n_outputs) where the report promises nothing, else None."""
        groups = np.bincount(which)
        if not self.fit_intercept:
            return np.zeros((len(groups), b.shape[1]))
        return cluster_means(b, which, groups) if report.guarantee == "none" else None

    def _with_mean_intercept(self, fitted, board, shift):
        if shift is None:
            return fitted
        board.mean_intercept = shift if board.cluster_of is not None else shift[0]
        if board.cluster_of is None:
            fitted["mean_intercept_"] = shift[0] if len(board.shape) == 2 else float(shift[0, 0])
        return fitted

    def _problem(self, population):
        return Problem(
            population.kind, population.n_outputs, self.fit_intercept, self.task_weight,
            self.lam, float(self.ridge),
        )  # fmt: skip

    def _cluster_rows(self, labels):
        """{task: number of its cluster} for the clusters that have one of the tasks `labels`."""
        if self.clusters is None:
            return None
        tasks = labels.tolist()
        missing = [task for task in tasks if task not in self.clusters]
        if missing:
            cluster_rows(labels, dict.fromkeys(set(tasks) - set(missing), 0))
        present = sorted({str(self.clusters[task]) for task in tasks})
        number = {name: g for g, name in enumerate(present)}
        return {
            task: number[str(name)] for task, name in self.clusters.items() if str(name) in number
        }

    def _source(self):
        if self._is_private():
            return noise_source(self.random_state, secure=self.secure)
        seed = self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = seed.randint(2**31)
        return SeededSource(np.random.default_rng(seed))

    def _board(self, population, problem, means, cluster_of):
        shape = (population.n_features,)
        return MeanBillboard(
            means=means,
            releases=[],
            clip_norms=[],
            noise_variance=np.zeros(len(means)),
            total_variance=np.zeros(len(means)),
            shape=shape if problem.kind < 2 else (problem.n_outputs, *shape),
            problem=problem,
            personalization=self.personalization,
            local_steps=self.local_steps,
            sparse=population.is_sparse,
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
        lam = float(np.median(half.own_lam))
        half.problem = problem = replace(problem, lam=lam)
        half.lam = half.prox_lam = np.full(table.n_tasks, lam)
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
            if "coef_" in fitted:
                fitted["mean_coef_"] = board.mean.copy()
        shift = self._open_intercept(board.report, b, which)
        return self._with_mean_intercept(fitted, board, shift)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._update_name() not in KEEP_MODELS
        return tags

    # -------------------------------------------------------------- personal models
    def _personalize_table(self, table):
        models = Models(table, self.billboard_, dense=True)
        b = models.intercept
        return models.coef, b if len(self.billboard_.shape) == 2 else b[:, 0]

    def personalize(self, X, y, task=None):
        if "models_" not in vars(self):
            return super().personalize(X, y, task)
        table = bound_values(self._read_new_tasks(X, y, task))
        with np.errstate(all="ignore"):
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
        if "models_" in vars(self):
            if name == "coef_":
                return self.models_.coef()
            if name == "mean_coef_" and self.billboard_.cluster_of is None:
                return self.billboard_.mean
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _task_coef(self, position):
        if "models_" in vars(self):
            return self.models_.task_coef(position)
        return super()._task_coef(position)

    def _has_mean(self):
        if self.billboard_.cluster_of is None:
            return super()._has_mean()
        return self.billboard_.mean_intercept is not None

    def _mean_models(self, unseen):
        """-> cluster of every unseen task, shared models (n_clusters, n_outputs, d), intercepts

        Raises
        ------
        ValueError
            For tasks that the public mapping does not name.
        """
        board = self.billboard_
        models = board.shaped(board.means).reshape(len(board.means), -1, board.shape[-1])
        return board.clusters(unseen), models, np.atleast_2d(board.mean_intercept)

    def _row_scores(self, rows):
        scores = super()._row_scores(rows)
        if self.billboard_.cluster_of is None or rows.unseen is None or not len(rows.unseen):
            return scores
        cluster, models, shift = self._mean_models(rows.unseen)
        new = np.flatnonzero(rows.codes < 0)
        which = cluster[-1 - rows.codes[new]]
        for g in np.unique(which):
            part = new[which == g]
            found = rows.features(part) @ models[g].T + shift[g]
            scores[part] = found if scores.ndim == 2 else found[:, 0]
        return scores

    def _row_values(self, rows, decide):
        if "models_" not in vars(self):
            return super()._row_values(rows, decide)
        X = sparse.csr_matrix(rows.X, dtype=np.float64)
        single = len(self.billboard_.shape) == 1
        if rows.unseen is not None and len(rows.unseen):
            cluster, models, shift = self._mean_models(rows.unseen)

        def values(part, k):
            if k < 0:
                scores = part @ models[cluster[-1 - k]].T + shift[cluster[-1 - k]]
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


class MeanTasks:
    """The task half of the rounds: updates, and intercepts at the end.

    Attributes
    ----------
    half : TaskHalf
    running : RunningModels or None
        What the tasks keep between rounds.
    """

    def __init__(self, est, table, problem, which):
        self.table, self.half = table, TaskHalf(table, problem, which)
        self.running, self._models = None, (None, None)
        update, steps = est._update_name(), est.local_steps
        if update == "prox":
            self._steps = _PROX_STEPS if isinstance(steps, str) else steps
        else:
            self.running = RunningModels(
                self.half, update, problem.n_outputs * table.n_features,
                n_steps=_PLAIN_STEPS if isinstance(steps, str) else steps,
                rate=est.local_learning_rate,
            )  # fmt: skip

    def _add_updates(self, pick, anchor, clip_norm, total):
        if self.running is not None:
            return self.running.sum_of_updates(pick, anchor, clip_norm, total)
        return self.half.sum_of_updates(
            pick, anchor, clip_norm, total, n_steps=self._steps, tol=_PROX_TOL
        )

    def answer(self, ask):
        if ask.statistic == "intercept":
            b, board = self.rows(ask)["intercept"], ask.public["board"]
            shape = len(board.means), b.shape[1]
            return {"intercept": clipped_sum(b, self.half.which, ask.public["clip_norm"], shape)}
        anchor = ask.public["anchor"]
        pick = np.arange(self.table.n_tasks) if ask.pick is None else ask.pick
        total = np.zeros(anchor.shape)
        count = self._add_updates(pick, anchor, ask.public["clip_norm"], total)
        return {"update": total, "inside": np.array([count - 0.5 * len(pick)])}

    def rows(self, ask):
        """What each task contributes: "update" (n, size) and "inside" (n,), 1/2 or -1/2, or
        "intercept" (n, n_outputs)."""
        clip_norm = ask.public["clip_norm"]
        if ask.statistic == "intercept":
            b = self.models(ask.public["board"]).intercept.copy()
            clip_rows(b, clip_norm, 2, b)
            return {"intercept": b}
        anchor = ask.public["anchor"]
        pick = np.arange(self.table.n_tasks) if ask.pick is None else ask.pick
        updates, inside = np.empty((len(pick), anchor.shape[1])), np.empty(len(pick))
        for i, k in enumerate(pick):
            total = np.zeros(anchor.shape)
            inside[i] = self._add_updates(pick[i : i + 1], anchor, clip_norm, total) - 0.5
            updates[i] = total[self.half.which[k]]
        return {"update": updates, "inside": inside}

    def own_models(self, board):
        """Coefficients that the rounds left with the tasks, for personalization="none"; or None."""
        if self.running is None or self.running.W is None or board.personalization != "none":
            return None
        return self.running.models(board.means).reshape(self.table.n_tasks, *board.shape)

    def models(self, board):
        """Personal models under a billboard."""
        if self._models[0] is not board:
            self._models = board, board.personalize(self.table)
        return self._models[1]


def _noise_variances(plan, bounds, groups):
    """Variance of the noise in one number of each shared model: of ten rounds, of all."""
    if plan.noise_multiplier is None:
        return np.zeros((2, len(groups)))
    squares = [plan.mechanisms(bound)[0].noise_std ** 2 for bound in bounds]
    step = plan.server_rate * groups.sum() / groups
    return step**2 * np.array([[sum(squares[:10])], [sum(squares)]])
