"""
Several outcomes, some unknown
==============================

A survey asks a thousand persons about twenty outcomes; one answer in eight is missing. Every
outcome is a task, all tasks share the persons, and y is a table with gaps.
"""

# %%
# The data imitate a health survey: binary features, outcomes that share a few causes.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from skpmtl import MPMTLLowRankClassifier, PerTask
from skpmtl.datasets.generators import make_lsoa_like
from skpmtl.metrics import average_auc, task_scores

persons, outcomes = make_lsoa_like(2000, 60, 20, random_state=0)
X, X_test = persons[:1000], persons[1000:]
Y, Y_test = outcomes[:1000], outcomes[1000:]
print(f"{np.isnan(Y).mean():.1%} of the answers are missing; the first person's:")
print(Y[0])

# %%
# Nothing has to be imputed: a gap is a row that this one task does not have. X is stored once,
# whatever the number of outcomes.
alone = PerTask(LogisticRegression(C=0.1)).fit(X, Y)
joint = MPMTLLowRankClassifier(0.01, epsilon=None).fit(X, Y)
private = MPMTLLowRankClassifier(epsilon=3.0, classes=[0, 1]).fit(X, Y)
print(f"alone               {average_auc(Y_test, alone.predict_proba(X_test)):.3f}")
print(f"joint, not private  {average_auc(Y_test, joint.predict_proba(X_test)):.3f}")
print(f"joint, epsilon 3    {average_auc(Y_test, private.predict_proba(X_test)):.3f}")

# %%
# Gain per outcome
# ----------------
before = task_scores(alone, X_test, Y_test, scoring="roc_auc").scores
order = np.argsort(before)
_, ax = plt.subplots()
ax.plot(before[order], "o", label="alone")
for name, model in (("joint, not private", joint), ("joint, epsilon 3", private)):
    after = task_scores(model, X_test, Y_test, scoring="roc_auc").scores
    ax.plot(after[order], "s", markerfacecolor="none", label=name)
ax.set(xlabel="outcome, sorted", ylabel="area under the ROC curve", title="Twenty outcomes")
_ = ax.legend()

# %%
# Related outcomes
# ----------------
from skpmtl.inspection import TaskRelatednessDisplay

_ = TaskRelatednessDisplay.from_estimator(joint)

# %%
# Cross-validation needs the long form
# ------------------------------------
# scikit-learn's splitters and scorers refuse gaps. ``wide_to_long`` makes one row per known answer
# and returns its person. Keep all rows of a person in one fold; otherwise the model has seen other
# answers of the persons in the test.
from sklearn.model_selection import StratifiedGroupKFold, cross_val_score

from skpmtl import wide_to_long

X_long, y_long, outcome, person = wide_to_long(X, Y)
table = np.column_stack([X_long, outcome])
folds = list(StratifiedGroupKFold(3).split(table, outcome, person))
estimator = MPMTLLowRankClassifier(0.01, epsilon=None, task_feature=-1)
print(cross_val_score(estimator, table, y_long, cv=folds, scoring="roc_auc").round(3))

# %%
# What the guarantee covers
# -------------------------
# The unit of the private fit is the *task*, here an outcome with all its answers. That is not the
# person, who has an answer in up to twenty outcomes. To protect persons, use
# ``DPMetaInitClassifier`` with ``unit=`` (:doc:`/meta_learning`), or make each person a task.
print(private.privacy_.unit, private.privacy_.guarantee)
