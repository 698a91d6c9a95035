"""Parameters, public bounds and report that both baselines share."""

from numbers import Integral, Real

from .._runtime.compat import Interval, StrOptions
from .._version import __version__
from ..base import BaseMTL
from ..privacy.accounting import gdp_epsilon
from ..privacy.report import PrivacyReport, exact_report
from ..privacy.rng import noise_source
from .plan import Bounds
from .tasks import ProximalModels

COMMON_DOC = """epsilon : float or None, default=1.0
        Privacy budget. None or infinity: no privacy, exact; the bounds below have no effect.
    delta : float or None, default=None
        Probability part of the guarantee, in (0, 1). None: 0 with "gamma" noise; with
        "gaussian" ``min(1e-5, 1 / n**2)`` for n tasks, or n records.
    adjacency : {{"replace-one", "zero-out"}}, default="replace-one"
        Whether neighbouring inputs differ by a record (a task) being replaced by any other, or
        by its contribution being 0.
    guarantee : {{"task", "record"}}, default="task"
        What `epsilon` protects: all rows of one task, or one row, the native guarantee of the
        method.
    group : {{"published", "tight", "gaussian", "direct"}}, default="published"
        How ``guarantee="task"`` comes about. The first three go from one record to
        n = `max_task_rows` of them: "published", Proposition 3 of [1]_, a budget of
        (epsilon / n, delta / (n e^epsilon)) per record; "tight", the same lemma with
        delta (e^(epsilon/n) - 1) / (e^epsilon - 1); "gaussian", exact for Gaussian noise, mu / n
        per record. "direct" is the fair comparison: no group, but the bound on how far {direct}
        moves when all rows of a task change.
    mechanism : {{"auto", "gamma", "gaussian"}}, default="auto"
        "gamma": density proportional to exp(-epsilon ||x||_2 / sensitivity), as published,
        delta = 0. "auto": "gaussian" for the groups "gaussian" and "direct", else "gamma".
    max_row_norm : float or None, default=None
        Public bound on the Euclidean norm of a row of features, needed for privacy. Longer
        rows are scaled down to it, so that the guarantee holds for any data.{target}
    max_task_rows : int or None, default=None
        Public bound n on the rows of a task, needed by group privacy. A task with more is
        an error.
    min_task_rows : int or None, default=None
        Public lower bound on the rows of a task, which the sensitivity is divided by. None:
        the numbers of rows are public themselves.
    clip_norm : float or None, default=None
        {clip}
    fit_intercept : bool, default=True
        Whether there is a constant feature 1. Its coefficient is penalised and released like
        the others.
    task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position. None: ids are passed as
        ``task=``, or y has one column per task, or X and y are mappings.
    tasks : "auto" or array-like, default="auto"
        Public list of the tasks. "auto" reads it from the data, which discloses which tasks
        exist.{class_list}
    unseen_task : {{"error", "mean"}}, default={unseen}
        What `predict` does with a task that was not fitted: an error, or {mean}.{more}
    secure : bool, default=False
        Exact discrete noise of OpenDP (extra ``skpmtl[secure]``), Gaussian only; needs
        random_state=None.
    random_state : int, Generator, RandomState or None, default=None
        None: noise from the operating system's generator. Anything else makes the noise
        reproducible, which protects nobody against those who know it.
    verbose : int, default=0
        Progress through the ``skpmtl`` logger.

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features)
        {coef}
    intercept_ : ndarray of shape (n_tasks,)
    mean_coef_ : ndarray of shape (n_features,)
    mean_intercept_ : float
        {average}
    tasks_ : ndarray of shape (n_tasks,){classes}
    billboard_ : {board}
        What was released.
    privacy_ : PrivacyReport
        The guarantee with all its assumptions; prints as a paragraph.
    n_iter_ : int
        {n_iter}{objective}
    n_features_in_, feature_names_in_
        Of X as given, so that a task column counts."""
MAX_TARGET_DOC = """
    max_target : float or None, default=None
        Public bound on the absolute value of a target, needed for privacy; larger ones are set
        to it. Subtract a public centre first."""
CLASSES_DOC = """
    classes_ : ndarray of shape (2,)"""
PAPER_DOC = """.. [1] J. Liang, Z. Liu, J. Zhou, X. Jiang, C. Zhang, F. Wang, "Model-protected
       multi-task learning", IEEE TPAMI 44(2), 2022."""


class OutputPerturbation(BaseMTL):
    """Parameters, public bounds and report of both baselines."""

    _parameter_constraints = {
        **BaseMTL._parameter_constraints,
        "lam": [Interval(Real, 0, None, closed="neither")],
        "guarantee": [StrOptions({"task", "record"})],
        "group": [StrOptions({"published", "tight", "gaussian", "direct"})],
        "mechanism": [StrOptions({"auto", "gamma", "gaussian"})],
        "max_row_norm": [None, Interval(Real, 0, None, closed="neither")],
        "max_task_rows": [None, Interval(Integral, 1, None, closed="left")],
        "min_task_rows": [None, Interval(Integral, 1, None, closed="left")],
        "clip_norm": [None, Interval(Real, 0, None, closed="neither")],
    }
    _classification = False
    _trusted = "the curator is trusted and adds the noise once"

    def _check_parameters(self):
        super()._check_parameters()
        if not self._is_private():
            return
        needed = {"max_row_norm": "the norm of every row of features"}
        if not self._classification:
            needed["max_target"] = "the absolute value of every target"
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            texts = [f"{name}= (a public bound on {needed[name]})" for name in missing]
            raise ValueError(
                f"A private fit needs {' and '.join(texts)}. The noise is proportional to it, so "
                "that taking it from the data would disclose them; rows beyond it are clipped."
            )

    def _models(self, table, bounds=None):
        return ProximalModels(
            table,
            classification=self._classification,
            fit_intercept=self.fit_intercept,
            lam=float(self.lam),
            bounds=bounds,
        )

    def _bounds(self):
        target = None if self._classification else float(self.max_target)
        clip_norm = None if self.clip_norm is None else float(self.clip_norm)
        return Bounds(
            float(self.max_row_norm), target, clip_norm, float(self.lam), self.fit_intercept
        )

    def _planned_report(self, population):
        if not self._is_private():
            return exact_report()
        source = noise_source(self.random_state, secure=self.secure)
        return self._statement(self._plan(population), population, source)

    def _report(self, budget, table, mechanisms, names, statistic, source, public, notes):
        """The statement of the guarantee; `public` and `notes` are the method's own."""
        given = ("lam", "max_row_norm", "max_target", "max_task_rows", "min_task_rows", "clip_norm")
        public = {
            "n_tasks": table.n_tasks,
            "n_features": table.n_features,
            **{n: getattr(self, n) for n in given if getattr(self, n, None) is not None},
            **public,
        }
        notes = dict(notes)
        if budget.grouped:
            epsilon, delta = budget.record
            notes["group"] = (
                f"{budget.group} group privacy for {budget.size} records; the same releases are "
                f"(epsilon = {epsilon:.6g}, delta = {delta:.6g})-differentially private in every "
                "record"
            )
        if budget.mu is not None:
            # The lemma is loose for Gaussian noise; this is what was really spent.
            notes["epsilon_exact"] = float(gdp_epsilon(budget.mu, budget.delta))
        rows = ("the number of rows of every task is public",) if budget.rows_are_public else ()
        rows += ("whether Newton's method reaches the local models (else: an error) is no secret",)
        if budget.unit == "record":
            rows += (
                "a record is one row of one task: with a 2-D y, a row with labels in several "
                "tasks is protected for each of them alone",
            )
        accounting = "exact Gaussian differential privacy"
        if budget.mu is None:
            accounting = "composition of pure releases"
        return PrivacyReport(
            guarantee=f"{budget.unit} DP",
            unit=budget.unit,
            adjacency=budget.adjacency,
            epsilon=budget.epsilon,
            delta=budget.delta,
            mechanism=f"output perturbation, {mechanisms[0].name} noise",
            sensitivity=[mechanism.sensitivity for mechanism in mechanisms],
            noise_std=[mechanism.noise_std for mechanism in mechanisms],
            mu=budget.mu,
            releases=[
                {"name": name, **mechanism.describe(statistic)}
                for name, mechanism in zip(names, mechanisms, strict=True)
            ],
            accountant=f"skpmtl {__version__}, {accounting}",
            rng=source.description,
            arithmetic=source.arithmetic,
            public_inputs=public,
            assumptions=(self._trusted, *rows, *_ASSUMPTIONS),
            notes=notes,
        )

_ASSUMPTIONS = (
    "rows and targets beyond the public bounds were clipped to them, so that nothing is assumed "
    "about the data",
    "the list of tasks, the features and the classes are public",
    "the parameters were not tuned on these data without being charged for it",
    "whether the input was valid at all is not protected",
)
