"""
Tables with a task column
=========================

The task is a column of the table. It travels with its row through splits, pipelines and searches
of scikit-learn, and it is not a feature.
"""

# %%
# A raw table: identifiers are strings, rows are in no order, schools differ in size.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skpmtl.datasets.generators import make_low_rank_tasks

X, y, number, coef = make_low_rank_tasks(40, 60, 6, noise=6.0, coef=True, random_state=0)
rng = np.random.default_rng(0)
keep = rng.permutation(len(y))[: len(y) // 2]
table = pd.DataFrame(X, columns=["hours", "rooms", "age", "sites", "budget", "books"])
table["school"] = [f"school {k:02d}" for k in number]
table, y = table.iloc[keep], pd.Series(y, name="score").iloc[keep]
table["school"].value_counts().describe()[["min", "max"]]

# %%
# Cross-validation
# ----------------
# ``TaskStratifiedKFold`` splits every school into folds. (Plain ``KFold`` would leave out whole
# schools where rows are sorted by school.) Without a budget, ``epsilon=None``, the fit is the exact
# optimum of a convex problem and a grid search costs only time.
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from skpmtl import MPMTLLowRank, TaskStratifiedKFold

columns = ["hours", "rooms", "age", "sites", "budget", "books"]
scale = ColumnTransformer(
    [("unit", Normalizer(), columns)], remainder="passthrough", verbose_feature_names_out=False
).set_output(transform="pandas")
model = make_pipeline(scale, MPMTLLowRank(epsilon=None, task_feature="school"))
alphas = np.geomspace(0.01, 10, 10)
search = GridSearchCV(
    model, {"mpmtllowrank__alpha": alphas}, cv=TaskStratifiedKFold(5, task_feature="school")
).fit(table, y)
search

# %%
# The curve has a maximum: with a small ``alpha`` tasks ignore each other, with a large one all
# coefficients are 0.
_, ax = plt.subplots()
results = search.cv_results_
ax.errorbar(alphas, results["mean_test_score"], results["std_test_score"], marker="o", capsize=3)
ax.set(xscale="log", xlabel="alpha", ylabel="cross-validated R2", title="Strength of sharing")

# %%
# What is inside
# --------------
# One row of coefficients per school, in the order of ``tasks_``. ``export_task`` gives a school its
# own model and nobody else's.
best = search.best_estimator_[-1]
print(best.tasks_[:2], best.coef_.shape)
best.export_task("school 07")

# %%
# Which schools are alike
# -----------------------
# The plot shows correlations between the coefficients of schools. The generator drew four kinds of
# schools, ten each. It uses all models together: after a private fit, show it only to people who
# may see all rows, as a warning says.
from skpmtl.inspection import TaskRelatednessDisplay

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
TaskRelatednessDisplay.from_coef(coef, ax=left).ax_.set_title("drawn")
_ = TaskRelatednessDisplay.from_estimator(best, ax=right).ax_.set_title("fitted")

# %%
# Other forms
# -----------
# Identifiers may also be a separate argument; lists with one array per school have to be stacked
# first.
from skpmtl import stack_tasks

groups = [rows for _, rows in table.groupby("school")]
X_list = [rows[columns].to_numpy() for rows in groups]
y_list = [y[rows.index].to_numpy() for rows in groups]
X_long, y_long, task = stack_tasks(X_list, y_list)
apart = MPMTLLowRank(best.alpha, epsilon=None).fit(X_long, y_long, task=task)
print(apart.coef_.shape, apart.privacy_.guarantee)
