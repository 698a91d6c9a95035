"""
The School study
================

The data are examination scores of 15,362 pupils in 139 schools of inner London, on which multi-task
methods have been compared for twenty years. Each school is a task.
"""

# %%
# Percentages are divided by 100 and rows are scaled to unit length. Both use public numbers and the
# row itself only, so they release nothing about a school.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import normalize

from skpmtl import task_train_test_split
from skpmtl.datasets.school import load_school

school = load_school(scale="public")
X, y, task = normalize(school.data), school.target, school.task
schools = np.unique(task)
print(f"{len(y)} pupils, {len(schools)} schools, {X.shape[1]} features")

# %%
# 30 % of the pupils of each school are for training and the others for the test, in three splits.
splits = [
    task_train_test_split(X, y, task=task, train_size=0.3, random_state=repeat)
    for repeat in range(3)
]
y_test = [split[3] for split in splits]


def predictions(estimator):
    return [
        estimator.fit(X_train, y_train, task=task_train).predict(X_test, task=task_test)
        for X_train, X_test, y_train, _, task_train, task_test in splits
    ]


# %%
# Three methods without a budget, and one with:
#
# - each school alone: ridge regression, its penalty chosen by the school;
# - one model for all: the same on the rows of all schools;
# - joint, not private: the convex trace-norm problem, solved exactly, with an alpha that was
#   chosen on another split;
# - private: whole schools protected.
from skpmtl import MPMTLLowRank, PerTask
from skpmtl.inspection import PrivacyUtilityDisplay

ridge = RidgeCV(np.logspace(-4, 2, 13), fit_intercept=False)
pooled = [ridge.fit(split[0], split[2]).predict(split[1]) for split in splits]
alone = predictions(PerTask(ridge))
exact = MPMTLLowRank(3.0, epsilon=None, fit_intercept=False)
private = MPMTLLowRank(tasks=schools.tolist(), fit_intercept=False)
display = PrivacyUtilityDisplay.from_predictions(
    y_test,
    {epsilon: predictions(private.set_params(epsilon=epsilon)) for epsilon in (0.3, 1, 3, 10)},
    baselines={
        "each school alone": alone,
        "one model for all": pooled,
        "joint, not private": predictions(exact),
    },
    score_name="normalised test error",
)

# %%
# Convergence
# -----------
# A fit without a budget stops when a duality gap proves that its objective is within ``tol`` of the
# optimum, relative to it. More digits cost little: nine more take a few dozen iterations.
X_train, X_test, y_train, _, task_train, task_test = splits[0]
fits = [
    MPMTLLowRank(3.0, epsilon=None, fit_intercept=False, tol=tol).fit(
        X_train, y_train, task=task_train
    )
    for tol in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
]
_, ax = plt.subplots()
ax.plot([fit.n_iter_ for fit in fits], [fit.dual_gap_ / fit.objective_ for fit in fits], "o-")
ax.set(yscale="log", xlabel="iterations", ylabel="duality gap / objective", title="Exact fit")

# %%
# Gain per school
# ---------------
# R2 of a school with few pupils is noisy. The plot therefore shows the change of the squared error,
# divided by the variance of all scores, against the number of pupils that the school trained on.
joint = private.set_params(epsilon=1.0).fit(X_train, y_train, task=task_train)
codes = np.searchsorted(schools, task_test)
gain = (alone[0] - y_test[0]) ** 2 - (joint.predict(X_test, task=task_test) - y_test[0]) ** 2
gain = np.bincount(codes, gain) / np.bincount(codes) / np.var(y_test[0])
_, ax = plt.subplots()
ax.scatter(np.bincount(np.searchsorted(schools, task_train)), gain, s=12)
ax.axhline(0, color="black", linewidth=1)
ax.set(xlabel="pupils to train on", ylabel="error alone - error joint", title="epsilon 1")
print(f"{np.mean(gain > 0):.0%} of the schools are better off.")

# %%
# Related schools
# ---------------
# All schools have much in common, so the plot shows how they differ from their mean model:
# correlations of the coefficients of the exact fit after subtracting the mean over the schools,
# with the schools in the order of the leading direction of these differences. The longer study,
# with more splits and the report of a fit, is ``python -m skpmtl``.
from skpmtl.inspection import TaskRelatednessDisplay

difference = fits[-1].coef_ - fits[-1].coef_.mean(axis=0)
order = np.argsort(np.linalg.svd(difference, full_matrices=False)[0][:, 0])
_ = TaskRelatednessDisplay.from_coef(difference, tasks=schools, order=order)
