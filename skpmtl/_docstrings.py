"""Paragraphs of docstrings that several estimators share.

A docstring is a template in which ``{task_feature}`` on a line of its own stands for the paragraph
of that parameter; `fill_docstring` inserts them. Where the parameter of an estimator has another
meaning, its docstring has its own paragraph.
"""

__all__ = [
    "LOSS", "PARAGRAPHS", "TARGET_RANGE", "UNCERTAINTY", "UNSEEN", "fill_docstring",
]  # fmt: skip

PARAGRAPHS = {
    "adjacency": """\
adjacency : {"replace-one", "zero-out"}, default="replace-one"
        Whether neighbouring inputs differ by one task's data being replaced by any other
        data, or by its contribution being 0.""",
    "curator": """\
curator : "trusted", "servers", ("servers", P) or ("sites", n, h), default="trusted"
        Who adds up contributions, and noise: a curator that all trust, or P servers (two for
        "servers") that hold additive shares of the sums, each adding noise that suffices by
        itself. One of them has to be honest, whichever it is, and the noise is sqrt(P) times as
        large; Gaussian noise only. ("sites", n, h): n sites add the noise to what they send, h of
        them suffice and have to be honest, and the noise is sqrt(n / h) times as large. In `fit`
        all of them are a part of this process.""",
    "task_feature": """\
task_feature : str, int or None, default=None
        Column of X that holds the task id, by name or position, or a list of this one. None: ids
        are passed as ``task=``, or y has one column per task, or X and y are mappings.""",
    "tasks": """\
tasks : "auto" or array-like, default="auto"
        Public list of the tasks. "auto" reads it from the data, which discloses which tasks
        exist.""",
    "task_weight": """\
task_weight : {"equal", "samples"}, default="equal"
        "equal": mean loss per task, every task counts the same. "samples": sum of losses.""",
    "init": """\
init : array, mapping, fitted linear model, billboard or None, default=None
        Public model from which all starts, and to which all falls back, in the place of 0. An array
        of the shape of one task's coefficients; ``{"coef": ..., "intercept": ..., "classes": ...,
        "feature_names": ...}``, of which all but the first may be missing; a fitted linear model of
        scikit-learn; or an estimator or billboard of this package with a shared model. Classes are
        matched by their labels, and those that the fit lacks are left out. Whoever fitted it on
        private rows has to account for that. None: 0.""",
    "secure": """\
secure : bool, default=False
        Draw Gaussian and Laplace noise with the exact discrete samplers of OpenDP (extra
        ``skpmtl[secure]``), which leave nothing to floating-point attacks, for about 30
        microseconds per number. Needs ``random_state=None``.""",
    "random_state": """\
random_state : int, Generator, RandomState or None, default=None
        None: noise from the operating system's generator. Anything else makes the noise
        reproducible, which protects nobody against those who know it.""",
    "verbose": """\
verbose : int, default=0
        Progress through the ``skpmtl`` logger.""",
    "dtype": """\
dtype : {"float64", "float32"} or numpy type, default=numpy.float64
        Type in which dense rows of X are held where a row is of one task; all else is float64.""",
    "privacy_": """\
privacy_ : PrivacyReport
        The guarantee with all its assumptions; prints as a paragraph.""",
    "features_in_": """\
n_features_in_, feature_names_in_
        Of X as given, so that a task column counts.""",
    # The papers that more than one method comes from.
    "liang": """\
J. Liang, Z. Liu, J. Zhou, X. Jiang, C. Zhang, F. Wang, "Model-protected multi-task
       learning", IEEE TPAMI 44(2), 2022.""",
}
# Of classifiers only; each follows another paragraph.
_CLASS_LIST = """
    classes : "auto" or array-like, default="auto"
        Public list of the class labels. "auto" reads it from the data, which discloses which
        labels exist.
    class_weight : "balanced", mapping of class to float, or None, default=None
        Weights of the classes, by which those of the rows are multiplied; a class that is not
        named weighs 1. "balanced": each task gives its classes the same weight
        together, by its own counts."""
_CLASSES = {
    None: "",
    "two": """
    classes_ : ndarray of shape (2,)
        Class labels, shared by all tasks; a task need not have both.""",
    "several": """
    classes_ : ndarray of shape (n_classes,)
        Class labels, shared by all tasks; a task need not have all of them.""",
}
# Shapes of classifiers of more than two classes; empty for others.
_SHAPES = {
    "shapes": " or (n_tasks, n_classes, n_features)",
    "intercepts": " or (n_tasks, n_classes)",
    "means": "\n        or of shape (n_classes, n_features), (n_classes,)",
    "shapes_of_mean": " or (n_classes, n_features)",
    "intercepts_of_mean": " or ndarray of shape (n_classes,)",
    "shapes_of_covariates": " or (n_covariates, n_classes, n_features)",
    "intercepts_of_covariates": " or (n_covariates, n_classes)",
}


# Of regressors only; follows the first parameter.
LOSS = """
    loss : {"squared", "huber", "poisson"}, default="squared"
        "squared": half of the squared error. "huber": for outlying rows; each task weighs its rows
        by its own scale, and what follows is squared loss (`LocalOnly`: the objective of
        `HuberRegressor`). "poisson": half of the deviance of counts, with the logarithm of the mean
        as linear score. Predictions are then means, and `score` is the part of the deviance that
        they explain. Rates are counts over exposures with the exposures as `sample_weight`, as
        `PoissonRegressor` of scikit-learn has them; in a private fit nothing divides them. A task
        without any event counts as one with half an event."""

# Of regressors only; follows `unseen_task`.
TARGET_RANGE = """
    target_range : (float, float) or None, default=None
        Public lowest and highest value of the target, never taken from private rows: where means of
        the tasks' intercepts are clipped. Shifted with the target it gives the same models."""
# Of regressors with a posterior: a parameter, which follows `target_range`, and attributes.
UNCERTAINTY = """
    uncertainty : {False, True, "unseen"}, default=False
        Keep what a task knows of the error of its own model, for ``predict(X, return_std=True)``
        and `predict_interval`. It follows from the rows of the task and the releases, costs no
        privacy, and is for the task alone; it takes (n_features + 1)^2 numbers per task."""
UNSEEN = """ "unseen", with
        ``unseen_task="mean"``: also for tasks without rows, by a histogram of distances from the
        mean model that takes 5 % of the squared budget."""
_POSTERIOR = """
    covariance_ : ndarray of shape (n_tasks, n_features + 1, n_features + 1)
        With `uncertainty`: posterior covariance of coefficients and, last, the intercept. It shows
        a task's second moments of X, and belongs to that task alone.
    noise_variance_, dof_ : ndarray of shape (n_tasks,)
        With `uncertainty`: variance of the noise of a row, infinite where the rows of a task do
        not determine it, and its degrees of freedom."""

# The same of classifiers; the parameter follows `unseen_task`.
_CLASS_UNCERTAINTY = """
    uncertainty : "auto" or bool, default="auto"
        Whether `predict_proba` averages over what a task knows of its own model: over Laplace's
        posterior at it (see there). It follows from the rows of the task and the releases, costs
        no privacy, and leaves `predict` as it is. "auto": of two or three classes, where models
        are averages over priors, and covariances take at most 2^24 numbers, (n_features + 1)^2 per
        task and, of three, class. Otherwise probabilities are those of the models."""
_CLASS_POSTERIOR = """
    covariance_ : ndarray of shape (n_tasks, [n_classes,] n_features + 1, n_features + 1)
        With `uncertainty`: posterior covariance of coefficients and, last, the intercept. It shows
        a task's second moments of X, and belongs to that task alone.
    posterior_shift_ : ndarray of shape (n_tasks, [n_classes,] n_features + 1)
        With `uncertainty`: posterior mean less the model."""

# What follows from the kind of targets.
_OF_TARGETS = {
    None: {
        "target": "y", "of_rows": LOSS, "posterior": _POSTERIOR, **dict.fromkeys(_SHAPES, ""),
    },
    "two": {"target": "y > 0"},
    "several": {
        "target": "y > 0", "of_rows": "", "posterior": _CLASS_POSTERIOR,
        "target_range": _CLASS_UNCERTAINTY, **_SHAPES,
    },
}  # fmt: skip


def fill_docstring(template, *, classes=None, **words):
    """Docstring from a template.

    Parameters
    ----------
    template : str
        With ``{name}`` for paragraphs and words; braces are doubled.
    classes : {None, "two", "several"}, default=None
        Of a classifier, how many classes it has: fills ``{class_list}``, the parameter `classes`
        after `tasks`, and ``{classes}``, the attribute after `tasks_`. Both are empty otherwise.
        Shapes, posteriors and the target of the example follow from it, too.
    **words
        Further words; they come before paragraphs of the same name.
    """
    of_classes = {"class_list": _CLASS_LIST if classes else "", "classes": _CLASSES[classes]}
    return template.format(**{**PARAGRAPHS, **of_classes, **_OF_TARGETS[classes], **words})
