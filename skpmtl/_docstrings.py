"""Paragraphs of docstrings that several estimators share.

A docstring is a template in which ``{task_feature}`` on a line of its own stands for the paragraph
of that parameter; `fill_docstring` inserts them. Where the parameter of an estimator has another
meaning, its docstring has its own paragraph.
"""

__all__ = [
    "LOSS",
    "PARAGRAPHS",
    "TARGET_RANGE",
    "UNCERTAINTY",
    "fill_docstring",
]

PARAGRAPHS = {
    "adjacency": """\
adjacency : {"replace-one", "zero-out"}, default="replace-one"
        How neighbouring inputs differ: the data of one task are replaced by any other data, or its
        contribution is 0.""",
    "curator": """\
curator : "trusted", "servers" or ("servers", P), default="trusted"
        Who adds up contributions and adds the noise: a trusted curator, or P servers (two for
        "servers") that hold additive shares of the sums and each add noise that suffices alone. At
        least one of them has to be honest; the noise is sqrt(P) times as large and must be
        Gaussian. In `fit` they are part of one process.""",
    "task_feature": """\
task_feature : str, int or None, default=None
        Name or position of the column of X with the task ids, or a list with it alone. None: ids
        are passed as ``task=``, or y has one column per task, or X and y are mappings.""",
    "tasks": """\
tasks : "auto" or array-like, default="auto"
        Public list of the tasks. "auto" reads it from the data, which discloses which tasks
        exist.""",
    "task_weight": """\
task_weight : {"equal", "samples"}, default="equal"
        "equal": mean loss per task, so that every task counts the same. "samples": sum of
        losses.""",
    "init": """\
init : array, mapping, fitted linear model, billboard or None, default=None
        Public initial model, from which fits start and to which they fall back instead of 0. An
        array of the shape of one task's coefficients;
        ``{"coef": ..., "intercept": ..., "classes": ..., "feature_names": ...}``, where all but the
        first may be missing; a fitted linear model of scikit-learn; or an estimator or billboard of
        this package with a shared model. Classes are matched by label, and those that the fit lacks
        are ignored. If it was fitted on private rows, account for that separately. None: 0.""",
    "secure": """\
secure : bool, default=False
        Draw Gaussian noise with the exact discrete sampler of OpenDP (extra
        ``skpmtl[secure]``), which rules out floating-point attacks and takes about 30 microseconds
        per number. Needs ``random_state=None``.""",
    "random_state": """\
random_state : int, Generator, RandomState or None, default=None
        None: noise from the operating system's generator. Anything else makes the noise
        reproducible, and gives no protection against those who know it.""",
    "verbose": """\
verbose : int, default=0
        If positive, log progress to the ``skpmtl`` logger.""",
    "dtype": """\
dtype : {"float64", "float32"} or numpy type, default=numpy.float64
        Type in which dense rows of X are stored if each row belongs to one task; all else is
        float64.""",
    "privacy_": """\
privacy_ : PrivacyReport
        The guarantee with all its assumptions; prints as a paragraph.""",
    "features_in_": """\
n_features_in_, feature_names_in_
        Those of X as passed, including a task column.""",
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
        Weights of the classes, which multiply those of the rows; classes that are not named have
        weight 1. "balanced": each task gives its classes equal total weights, by its own counts."""
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
        "squared": half of the squared error. "huber": for outlying rows; each task first gives its
        outlying rows smaller weights, and the fit is then one of squared loss. "poisson": half of
        the deviance of counts, with the logarithm of the mean as linear score. Predictions are then
        means, and `score` is the fraction of the deviance that they explain. For rates, pass counts
        divided by exposures, with the exposures as `sample_weight`, as for `PoissonRegressor` of
        scikit-learn; these weights are not rescaled in private fits. Negative counts are an error;
        with a budget, where an error would reveal them, they are 0. A task without any event has a
        finite model."""

# Of regressors only; follows `unseen_task`.
TARGET_RANGE = """
    target_range : (float, float) or None, default=None
        Public lowest and highest value of the target, never computed from private rows.
        Predictions stay within it; where no place of levels was found, its middle is the mean
        model. It saves no budget."""
# Of regressors with a posterior: a parameter, which follows `target_range`, and attributes.
UNCERTAINTY = """
    uncertainty : bool, default=False
        Whether to store the posterior covariance of each task's model, for
        ``predict(X, return_std=True)`` and `predict_interval`. It follows from the rows of the task
        and the releases, costs no privacy, and is for the task alone; it takes (n_features + 1)^2
        numbers per task."""
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
        Whether `predict_proba` averages over the posterior of the task's model, by Laplace's
        approximation (see there). The posterior follows from the rows of the task and the releases,
        costs no privacy, and does not change `predict`. "auto": for two or three classes, if models
        are averages over priors and covariances take at most 2^24 numbers: (n_features + 1)^2 per
        task and, with three classes, per class. Otherwise probabilities are those of the models."""
_CLASS_POSTERIOR = """
    covariance_ : ndarray of shape (n_tasks, [n_classes,] n_features + 1, n_features + 1)
        With `uncertainty`: posterior covariance of coefficients and, last, the intercept. It shows
        a task's second moments of X, and belongs to that task alone."""

# What follows from the kind of targets.
_OF_TARGETS = {
    None: {
        "target": "y",
        "of_rows": LOSS,
        "posterior": _POSTERIOR,
        **dict.fromkeys(_SHAPES, ""),
    },
    "two": {"target": "y > 0"},
    "several": {
        "target": "y > 0",
        "of_rows": "",
        "posterior": _CLASS_POSTERIOR,
        "target_range": _CLASS_UNCERTAINTY,
        **_SHAPES,
    },
}


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
