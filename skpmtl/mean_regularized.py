"""Personal models around a private mean (Hu, Wu and Smith, "Private multi-task learning")."""

import numpy as np

from ._compat import StrOptions
from .base import CLASS_LIST_DOC, MTLClassifierMixin, MTLRegressorMixin
from .released_mean import Rounds

__all__ = ["PrivateMeanRegMTL", "PrivateMeanRegMTLClassifier"]


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
        secure=False,
        random_state=None,
        verbose=0,
        dtype=np.float64,
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
            secure=secure,
            random_state=random_state,
            verbose=verbose,
            dtype=dtype,
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
        With ``epsilon=None``: the median of what the tasks would choose to personalise.
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
        divided by a few rounds. For rows of length r and scores of scale s (a fifth of the range
        of a target, the root of the number of classes) take 1.9 s / r.
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
        trusts w~ less the more noise it carries, down to the model of the task alone; for
        squared loss and dense X of up to 64 columns a task also goes alone where its
        leave-one-out errors say clearly that this is better. `local_steps` (20) gradient steps
        from w~ on: the loss ("finetune"), with a pull to the predictions of w~
        ("symmetrized-kl"), or one weighted by the Fisher information ("ewc"). "none": w~
        itself, or the running model of an update that keeps one.
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
        exist.{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: an error, or the shared model (with
        `clusters` that of the cluster that they name for it). With local intercepts their
        clipped mean is then one more release, which takes 10 % of the squared budget; under
        sampling 10 % of `epsilon` and `delta`.
    max_iter : int, default=100
        Bound on the iterations of the exact solver.
    tol : float, default=1e-10
        The exact solver stops when no coefficient moves by more than this part of the largest.
    secure : bool, default=False
        Exact discrete noise of OpenDP (extra ``skpmtl[secure]``); needs random_state=None.
    random_state : int, Generator, RandomState or None, default=None
        None: noise from the operating system's generator. Anything else makes the noise
        reproducible, which protects nobody against those who know it.
    verbose : int, default=0
        Progress through the ``skpmtl`` logger.
    dtype : {{"float64", "float32"}} or numpy type, default=numpy.float64
        Type in which dense rows of X are held where a row is of one task; all else is float64.

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
        shapes="",
        intercepts="",
        classes="",
        class_list="",
        also="PrivateMeanRegMTLClassifier : The same for classes.",
        loss="sum_k 1 / (2 n_k) ||y_k - X_k w_k - b_k||^2",
        name="PrivateMeanRegMTL",
        target="y",
    )


class PrivateMeanRegMTLClassifier(MTLClassifierMixin, _MeanRegularized):
    __doc__ = _DOC.format(
        summary="Private mean-regularised multi-task logistic regression, binary or multinomial.",
        model="logistic regression",
        auto="0.005 times the smoothness of its loss in\n        the rounds (other updates: 0.02), "
        "0.02 times in the personalisation.",
        shapes=" or (n_tasks, n_classes, n_features)",
        intercepts=" or (n_tasks, n_classes)",
        class_list=CLASS_LIST_DOC,
        classes="\n    classes_ : ndarray of shape (n_classes,)\n        "
        "Class labels, shared by all tasks; a task need not have all of them.",
        also="PrivateMeanRegMTL : The same for regression.",
        loss="sum_k 1 / n_k sum_i loss_i, the logistic or multinomial log-loss,",
        name="PrivateMeanRegMTLClassifier",
        target="y > 0",
    )
    _classification = True
    _multiclass = True
    _one_class_tasks = "allow"
