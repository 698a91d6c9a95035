"""
Personal models around a private mean
=====================================

If all coefficients of tasks are similar, a mean is enough to share. ``PrivateMeanRegMTL`` learns it
in rounds: each task sends a clipped update, and the curator adds noise to the sum. Every task then
fits its own model, regularised towards the noisy mean as strongly as its rows suggest.
"""

# %%
# Two hundred phones, thirty rows each, with models around a common one.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV

from skpmtl import PerTask, PrivateMeanRegMTL
from skpmtl.metrics import task_scores
from skpmtl.reproduction import PublishedPMTL

rng = np.random.default_rng(0)
n_tasks, d = 200, 10
models = rng.normal(size=d) + 0.3 * rng.normal(size=(n_tasks, d))


def draw(n_rows):
    task = np.repeat(np.arange(n_tasks), n_rows)
    X = rng.normal(size=(len(task), d)) / np.sqrt(d)  # rows of length about 1
    return X, np.sum(X * models[task], axis=1) + 0.5 * rng.normal(size=len(task)), task


X, y, task = draw(15)
X_test, y_test, task_test = draw(60)

# %%
# One fit, and what a round spent
# -------------------------------
# Budget and noise of every round are public. Scores of the mean are not, so the display draws them
# only if rows are passed; these rows are generated, and the warning about private rows is silenced.
# By default the fit first learns pooled slopes and levels; ``levels="free"`` gives all rounds to
# the mean, which the display draws.
import warnings

from skpmtl import PrivacyLeakWarning
from skpmtl.inspection import ConvergenceDisplay

est = PrivateMeanRegMTL(levels="free", epsilon=1.0, tasks=range(n_tasks)).fit(X, y, task=task)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    ConvergenceDisplay.from_estimator(est, X_test, y_test, task_test)
print(f"{est.n_iter_} rounds, epsilon = {est.privacy_.epsilon}")

# %%
# Accuracy against epsilon
# ------------------------
# Federated averaging learns the same kind of mean and uses it as one model for all. The personal
# models use the mean as far as it fits their rows.
from skpmtl.inspection import PrivacyUtilityDisplay

repeats = 3
alone = PerTask(RidgeCV(np.logspace(-1, 2, 13))).fit(X, y, task=task)
baselines = {"each phone alone": [alone.predict(X_test, task=task_test)] * repeats}
one_model = PublishedPMTL("fedavg", n_rounds=10, clip_norm=1.0, learning_rate=1.0)
one_model.set_params(tasks=range(n_tasks))
_, ax = plt.subplots()
for name, estimator, color in (
    ("personal models", est, "C0"),
    ("one model", one_model, "C2"),
):
    predictions = {}
    for epsilon in (0.3, 1, 3, 10):
        estimator.set_params(epsilon=epsilon)
        predictions[epsilon] = [
            estimator.fit(X, y, task=task).predict(X_test, task=task_test) for _ in range(repeats)
        ]
    PrivacyUtilityDisplay.from_predictions(
        [y_test] * repeats,
        predictions,
        baselines=baselines if color == "C0" else {},
        score_name="normalised test error",
        ax=ax,
        name=name,
        errorbar_kw={"color": color},
    )

# %%
# Gain per phone
# --------------
est.set_params(epsilon=1.0).fit(X, y, task=task)
before = task_scores(alone, X_test, y_test, task=task_test).scores
after = task_scores(est, X_test, y_test, task=task_test).scores
_, ax = plt.subplots()
ax.scatter(before, after, s=12)
ax.axline((0.5, 0.5), slope=1, color="black", linewidth=1)
ax.set(xlabel="R2 alone", ylabel="R2 joint, epsilon 1", title="One point per phone")
print(f"{np.mean(after > before):.0%} of the phones are better off.")
