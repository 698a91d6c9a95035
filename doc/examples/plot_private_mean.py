"""
Personal models around a private mean
=====================================

If all coefficients of tasks are similar, a mean is enough to share. ``PrivateMeanRegMTL`` learns it
from sums of clipped contributions, to which the curator adds noise. Every task then fits its own
model, and follows the noisy mean as far as its rows suggest.
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
# One fit
# -------
est = PrivateMeanRegMTL(epsilon=1.0, tasks=range(n_tasks)).fit(X, y, task=task)
print(f"{est.n_iter_} releases, epsilon = {est.privacy_.epsilon}")

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
