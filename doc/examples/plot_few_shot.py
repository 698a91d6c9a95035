"""
Few-shot transfer
=================

Some tasks have many rows, new ones only five or ten. ``DPMetaInit`` learns an *initialisation* from
the former, and a new task fine-tunes it on its few rows. The guarantee protects records, not tasks:
the upload of a task reveals little about any single row.
"""

# %%
# Three hundred tasks of forty rows with models around a common one, and a hundred new tasks.
import matplotlib.pyplot as plt
import numpy as np

from skpmtl import DPMetaInit
from skpmtl.metrics import nmse, task_scores
from skpmtl.reproduction import LocalOnly

rng = np.random.default_rng(0)
d = 10
common = rng.normal(size=d)


def make_tasks(n_tasks, n_rows, first):
    models = common + 0.3 * rng.normal(size=(n_tasks, d))
    task = np.repeat(np.arange(first, first + n_tasks), n_rows)
    X = rng.normal(size=(len(task), d)) / np.sqrt(d)  # rows of length about 1
    y = np.sum(X * models[task - first], axis=1) + 0.5 * rng.normal(size=len(task))
    return X, y, task


X, y, task = make_tasks(300, 40, first=0)
X_new, y_new, task_new = make_tasks(100, 80, first=300)
place = np.tile(np.arange(80), 100)
test = place >= 40  # the other rows of the new tasks; they bring up to 40

# %%
# ``tasks`` is the public list of training tasks. Nothing else is set.
est = DPMetaInit(epsilon=2.0, tasks=range(300)).fit(X, y, task=task)
few = place < 8
est.personalize(X_new[few], y_new[few], task=task_new[few])
print(est.privacy_.guarantee, "- unit:", est.privacy_.unit)
est.task_privacy(17)

# %%
# How many shots
# --------------
# The fewer rows a new task has, the more the initialisation helps. ``personalize`` spends nothing,
# so the same fit serves all sizes.
sizes = [2, 4, 8, 16, 32]
exact = DPMetaInit(epsilon=None).fit(X, y, task=task)
curves = {"alone": [], "initialisation, not private": [], "initialisation, epsilon 2": []}
for size in sizes:
    few = place < size
    alone = LocalOnly().fit(X_new[few], y_new[few], task=task_new[few])
    for errors, model in zip(curves.values(), (alone, exact, est), strict=True):
        if model is not alone:
            model.personalize(X_new[few], y_new[few], task=task_new[few])
        predicted = model.predict(X_new[test], task=task_new[test])
        errors.append(nmse(y_new[test], predicted))
_, ax = plt.subplots()
for (name, errors), style in zip(curves.items(), ("k:", "C1--", "C0-"), strict=True):
    ax.plot(sizes, errors, style, marker="o", label=name)
ax.set(xscale="log", xlabel="rows of a new task", ylabel="normalised test error")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
_ = ax.legend()

# %%
# Accuracy against epsilon
# ------------------------
# With eight rows per new task, over three fits each. "local" is another guarantee: every task
# protects *all* its rows from all other parties, including the curator.
from skpmtl.inspection import PrivacyUtilityDisplay

few = place < 8
epsilons, repeats = (0.5, 1, 2, 5, 10), 3


def predictions(model):
    return model.personalize(X_new[few], y_new[few], task=task_new[few]).predict(
        X_new[test], task=task_new[test]
    )


_, ax = plt.subplots()
for privacy, color in (("task-global", "C0"), ("local", "C3")):
    curve = {}
    for epsilon in epsilons:
        model = DPMetaInit(epsilon=epsilon, privacy=privacy, tasks=range(300))
        curve[epsilon] = [predictions(model.fit(X, y, task=task)) for _ in range(repeats)]
    alone = LocalOnly().fit(X_new[few], y_new[few], task=task_new[few])
    alone = alone.predict(X_new[test], task=task_new[test])
    baselines = {"alone": [alone], "not private": [predictions(exact)]}
    PrivacyUtilityDisplay.from_predictions(
        [y_new[test]] * repeats,
        curve,
        baselines={} if color == "C3" else {k: v * repeats for k, v in baselines.items()},
        score_name="normalised test error",
        ax=ax,
        name=privacy,
        errorbar_kw={"color": color},
    )

# %%
# Gain per new task
# -----------------
model = LocalOnly().fit(X_new[few], y_new[few], task=task_new[few])
rows = X_new[test], y_new[test], task_new[test]
before = task_scores(model, *rows).scores
after = task_scores(est.personalize(X_new[few], y_new[few], task=task_new[few]), *rows).scores
_, ax = plt.subplots()
ax.scatter(before, after, s=12)
ax.axline((0.5, 0.5), slope=1, color="black", linewidth=1)
ax.set(xlabel="R2 alone", ylabel="R2 from the initialisation, epsilon 2", title="Eight rows each")
print(f"{np.mean(after > before):.0%} of the new tasks are better off.")

# %%
# For more, also on persons with several rows, see :doc:`/meta_learning`.
