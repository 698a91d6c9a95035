"""DP-MTRL and DP-AGGR as the experiments of Liang et al. ran them, with group privacy.

Both add noise to models in proportion to what one record can change. The paper takes the Lipschitz
constants of the losses from the rows, so that these runs have no guarantee, and turns a guarantee
for records into one for tasks by Proposition 3. With a public bound on the length of models there
is a guarantee for tasks. The methods are of Pathak et al. (2010) and Gupta et al. (2016), whose
texts this module did not have: it follows what Liang et al. say of them.
"""

from numbers import Integral, Real

import numpy as np
from scipy.optimize import minimize

from ..._runtime.constraints import Interval, StrOptions, take
from ...base import MTLClassifierMixin, MTLRegressorMixin
from ...exchange.plan import Plan
from ...privacy.accounting import gdp_mu, pure_epsilons, record_budget
from ...privacy.mechanisms import VectorGamma, VectorGaussian, clip_rows, mean_sensitivity
from ...privacy.report import PUBLIC_LISTS, TRUSTED_CURATOR, PrivacyReport
from ..published import with_classes
from .estimators import LinearTasks
from .losses import MeanLogistic, ridge_inverse

__all__ = ["PublishedOutputNoise", "PublishedOutputNoiseClassifier", "relationship_columns"]


def relationship_columns(W, ratio):
    """Models that multi-task relationship learning pulls the models W (m, d) to.

    ``argmin over V of 1/2 |W - V|^2 + ratio / 2 min over Omega of tr(V' Omega^-1 V)``, Omega of
    trace 1. The inner minimum is the square of the trace norm, at ``Omega = (V V')^(1/2) / trace``,
    so that singular values fall by ``ratio |V|_*``.
    """
    U, s, Vt = np.linalg.svd(W, full_matrices=False)
    count = np.arange(1, len(s) + 1)
    falls = ratio * np.cumsum(s) / (1.0 + ratio * count)  # ratio |V|_* if the first ones stay
    stay = np.flatnonzero(s > falls)
    fall = falls[stay[-1]] if len(stay) else np.inf
    return (U * np.maximum(s - fall, 0.0)) @ Vt


class PulledModels:
    """argmin of 1/(2n) |X w - y|^2 + lam / 2 |w - v|^2 of every task, for centres v that change.

    The closed form is (X'X/n + lam)^-1 (X'y/n + lam v), of which the first factor is kept.
    """

    def __init__(self, tasks, lam):
        d, self.lam = tasks[0][0].shape[1], lam
        self.moments, curvature = np.zeros((len(tasks), d)), np.zeros((len(tasks), d, d))
        for k, (X, y) in enumerate(tasks):
            if len(y):
                curvature[k], self.moments[k] = X.T @ X / len(y), X.T @ y / len(y)
        self.inverse = ridge_inverse(curvature, lam)

    def around(self, centres):
        """Models (m, d) around the centres (m, d)."""
        return np.einsum("kde,ke->kd", self.inverse, self.moments + self.lam * centres)


def logistic_models(tasks, lam):
    """argmin of the mean logistic loss + lam / 2 |w|^2 of every task, (m, d)."""
    W = np.zeros((len(tasks), tasks[0][0].shape[1]))
    for k, one in enumerate(tasks):
        loss = MeanLogistic([one])

        def objective(w, loss=loss):
            slope = loss.gradient(w[None])[0] + lam * w
            return loss.value(w[None])[0] + 0.5 * lam * w @ w, slope

        if len(one[1]):
            W[k] = minimize(objective, W[k], jac=True, method="L-BFGS-B").x
    return W


def estimated_lipschitz(tasks, W):
    """Largest \\|x'w - y\\| |x| over the rows of every task, (m,): the paper's estimate of L_i."""
    each = (
        np.abs(X @ w - y) * np.linalg.norm(X, axis=1) for (X, y), w in zip(tasks, W, strict=True)
    )
    return np.array([slopes.max(initial=0.0) for slopes in each])


_REASON = (
    "numbers of rows and Lipschitz constants, on which the noise depends, are taken from the "
    "private rows, as in the paper"
)


class ClippedModelsPlan(Plan):
    """Noise on models whose length a public number bounds; all that is computed is released.

    Replacing a task moves its model by 2 K at most, and the average of m models by 2 K / m.
    """

    guarantee = "task DP"
    own_assumptions: tuple[str, ...] = (TRUSTED_CURATOR, PUBLIC_LISTS)  # type: ignore[assignment]

    def __init__(self, method, n_tasks, n_rounds, clip_norm, epsilon, delta):
        self.epsilon, self.delta, self.adjacency = epsilon, delta, "replace-one"
        self.n_rounds = n_rounds if method == "dp-mtrl" else 1
        self.given = {"method": method, "n_tasks": n_tasks, "n_rounds": self.n_rounds}
        self.given["clip_norm"] = clip_norm
        self.mu = float(gdp_mu(epsilon, delta))
        out_of = 1 if method == "dp-mtrl" else n_tasks
        self.sensitivity = mean_sensitivity(clip_norm, out_of, self.adjacency)

    def of(self, size):
        """Noise of one round."""
        return VectorGaussian(size, self.sensitivity, self.mu / self.n_rounds**0.5)

    def releases(self, made=None):
        entry = self.of(1).describe("clipped models")
        return [{"name": f"round {t + 1}", **entry} for t in range(self.n_rounds)]

    def public_inputs(self):
        return self.given

    def mechanism(self):
        return "Gaussian noise on clipped models"


class OutputNoise(LinearTasks):
    """Parameters and fit."""

    _parameter_constraints = {
        **LinearTasks._parameter_constraints,
        "method": [StrOptions({"dp-mtrl", "dp-aggr"})],
        "lam": [Interval(Real, 0, None, closed="neither")],
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "output": [StrOptions({"models", "columns"})],
        "max_task_rows": [Interval(Integral, 1, None, closed="left"), None],
        "clip_norm": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        method="dp-mtrl",
        *,
        lam=1.0,
        alpha=1.0,
        epsilon=1.0,
        delta=None,
        n_rounds=1,
        output="models",
        max_task_rows=None,
        clip_norm=None,
        task_feature=None,
        tasks="auto",
        random_state=None,
    ):
        take(self, locals())

    @property
    def mechanism(self):
        return "published" if self.clip_norm is None else "gaussian"

    def _record_budgets(self, tasks):
        """epsilon per record of every round, by Proposition 3 and the composition bound."""
        m, longest = len(tasks), max(len(y) for _, y in tasks)
        size = longest if self.max_task_rows is None else self.max_task_rows
        if size < longest:
            raise ValueError(
                f"A task has more than max_task_rows={size} rows: pass a larger bound, or None."
            )
        epsilon, delta = self._budget(m)
        epsilon, delta = record_budget(epsilon, delta, int(size), "published")
        rounds = self.n_rounds if self.method == "dp-mtrl" else 1
        return pure_epsilons(epsilon, delta, np.ones(rounds), "cb" if delta > 0 else "basic")

    def _fitted(self, table, tasks, source):
        budgets, plan = None, None
        if self._is_private() and self.clip_norm is not None:
            given = len(tasks), self.n_rounds, float(self.clip_norm)
            plan = ClippedModelsPlan(self.method, *given, *self._budget(len(tasks)))
        elif self._is_private():
            budgets = self._record_budgets(tasks)
        if self.method == "dp-aggr":
            W = self._average(table, tasks, budgets, plan, source)
        else:
            W = self._relationship(tasks, budgets, plan, source)
        report = self._report(len(tasks), budgets) if plan is None else plan.report(source)
        return {"coef_": W, "privacy_": report}

    def _report(self, m, budgets):
        if budgets is None:
            return self._report_of(None, None)
        epsilon, delta = self._budget(m)
        notes = {"reason": _REASON, "epsilon per record of a round": list(budgets)}
        return PrivacyReport(
            guarantee="none",
            epsilon=epsilon,
            delta=delta,
            mechanism="L2-gamma noise on models",
            notes=notes,
        )

    def _average(self, table, tasks, budgets, plan, source):
        """The average of ridge or logistic models, and noise for a record of the shortest task."""
        m, d = len(tasks), table.n_features
        if table.n_classes:
            W, slope = logistic_models(tasks, self.lam), 1.0
        else:
            W = PulledModels(tasks, self.lam).around(np.zeros((m, d)))
            slope = estimated_lipschitz(tasks, W).max()
        if plan is not None:
            clip_rows(W, plan.given["clip_norm"])
        average = W.mean(axis=0)
        if plan is not None:
            average = plan.of(d).release(average, source)
        elif budgets is not None:
            shortest = max(min(len(y) for _, y in tasks), 1)
            sensitivity = max(2.0 * slope / (shortest * self.lam * m), 1e-300)
            average = average + VectorGamma(d, sensitivity, budgets[0]).sample(source)
        return np.tile(average, (m, 1))

    def _relationship(self, tasks, budgets, plan, source):
        """Rounds: models around the columns, noise on them, new columns from the noisy models.

        Two classes are fitted by least squares, since the guarantee of the method needs a closed
        form.
        """
        m, d = len(tasks), tasks[0][0].shape[1]
        columns, models = np.zeros((m, d)), PulledModels(tasks, self.lam)
        for t in range(self.n_rounds):
            W = models.around(columns)
            if plan is not None:
                clip_rows(W, plan.given["clip_norm"])
                W = plan.of(m * d).release(W.ravel(), source).reshape(m, d)
            elif budgets is not None:
                sizes = np.array([max(len(y), 1) for _, y in tasks])
                sensitivity = 2.0 * estimated_lipschitz(tasks, W) / (sizes * self.lam)
                noise = VectorGamma(d, 1.0, budgets[t], n_vectors=m).sample(source)
                W = W + sensitivity[:, None] * noise.reshape(m, d)
            columns = relationship_columns(W, self.alpha / self.lam)
        return W if self.output == "models" else columns


_DOC = """DP-MTRL or DP-AGGR {kind}, as the model-protected paper [1]_ compared with them.

    Lipschitz constants are estimated from the rows, as there: there is *no* guarantee, which the
    report says. With `clip_norm` models are clipped, noise is Gaussian, and all models together are
    (epsilon, delta)-differentially private in every task. There are no intercepts.

    Parameters
    ----------
    method : {{"dp-mtrl", "dp-aggr"}}, default="dp-mtrl"
        Noisy models, and the relationship of tasks that follows from them, in rounds; or one noisy
        average of models that tasks learn alone.
    lam : float, default=1.0
        Strength of ``lam / 2 |w - v|^2``, v the column of the relationship, or 0. Noise is
        proportional to its inverse.
    alpha : float, default=1.0
        Strength of the relationship.
    epsilon : float or None, default=1.0
        Nominal budget of a whole task. None: no noise.
    delta : float or None, default=None
        None: 1 / (m log m).
    n_rounds : int, default=1
        Of DP-MTRL.
    output : {{"models", "columns"}}, default="models"
        Of DP-MTRL: the noisy models of the last round, or the columns of the relationship, which
        follow from them. The text does not say which the paper scores.
    max_task_rows : int or None, default=None
        n of Proposition 3. None: the rows of the longest task.
    clip_norm : float or None, default=None
        Public bound on the length of a model, in place of Lipschitz constants and Proposition 3.
    task_feature : str, int, list or None, default=None
        Column of the task ids.
    tasks : "auto" or array-like, default="auto"
        Public list of the tasks.{classes}
    random_state : int, Generator, RandomState or None, default=None

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features)
    intercept_ : ndarray of shape (n_tasks,)
        Zeros.
    privacy_ : PrivacyReport
        With guarantee "none", or with `clip_norm` "task DP".
    tasks_ : ndarray of shape (n_tasks,)

    References
    ----------
    .. [1] J. Liang, Z. Liu, J. Zhou, X. Jiang, C. Zhang, F. Wang, "Model-protected multi-task
       learning", IEEE TPAMI 44(2), 2022, sections 4.6 and 5.1.
    """


class PublishedOutputNoise(MTLRegressorMixin, OutputNoise):
    __doc__ = _DOC.format(kind="regression", classes="")
    _weighs_rows = False


class PublishedOutputNoiseClassifier(MTLClassifierMixin, OutputNoise):
    __doc__ = _DOC.format(
        kind="classification of two classes",
        classes='\n    classes : "auto" or array-like, default="auto"\n        Public list of the '
        "two classes.",
    )

    __init__ = with_classes(OutputNoise.__init__)

    def _with_targets(self, table):
        return table  # the numbers of the classes
