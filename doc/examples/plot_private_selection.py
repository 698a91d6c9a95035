"""
Private selection
=================

A grid search over private fits spends the budget once per fit, and then chooses by scores without
noise. ``PrivateSearch`` keeps everything within one budget: the fits, the scores and the choice.
"""

# %%
# Four hundred tasks around a mean. The candidates differ in what slopes may share.
import matplotlib.pyplot as plt
import numpy as np

from skpmtl import PrivateMTL, PrivateSearch, TaskStratifiedKFold
from skpmtl.metrics import nmse

rng = np.random.default_rng(0)
models = rng.normal(size=8) + 0.3 * rng.normal(size=(400, 8))


def draw(n_rows):
    task = np.repeat(np.arange(400.0), n_rows)
    X = rng.normal(size=(len(task), 8))
    y = np.sum(X * models[task.astype(int)], axis=1) + rng.normal(size=len(task))
    return np.column_stack([task, X]), y


(table, y), (test, y_test) = draw(10), draw(60)
tuned = PrivateMTL(task_feature=0, tasks=range(400))
candidates = {"structure": ["low-rank", "sparse", "mean"]}

# %%
# What a grid search really spends
# --------------------------------
# ``grid_search_cost`` composes the budgets of all fits exactly. The scores, on which the choice is
# based, are not covered.
from sklearn.model_selection import GridSearchCV

from skpmtl.privacy import grid_search_cost

folds = TaskStratifiedKFold(3, task_feature=0)
grid = GridSearchCV(tuned.set_params(epsilon=1.0), candidates, cv=folds).fit(table, y)
cost = grid_search_cost(grid)
print(f"{cost.notes['fits']} fits at epsilon 1 cost epsilon {cost.epsilon:.2f}")
print(cost.notes["not_covered"])

# %%
# One budget for everything
# -------------------------
# The budget covers the whole search. Only the winner is shown, and the number of trials stays
# secret, which makes the search cheap.
search = PrivateSearch(tuned, candidates, n_trials=5, epsilon=3.0).fit(table, y)
print(search.best_params_, f"epsilon {search.privacy_.epsilon:g}")
print(f"test error {nmse(y_test, search.predict(test)):.3f}")

# %%
# The default learns the structure within the fit, which keeps the whole budget. Try it first.
automatic = PrivateMTL(epsilon=3.0, task_feature=0, tasks=range(400)).fit(table, y)
print(f"test error {nmse(y_test, automatic.predict(test)):.3f}")

# %%
# What a trial costs
# ------------------
# Gaussian differential privacy measures a fit by one number, mu; its noise is proportional to 1/mu.
# The plot shows the mu that is available for each of k trials, at (epsilon, delta) = (1, 1e-5).
from skpmtl.privacy import gdp_mu, selection_mu

trials = np.array([3, 5, 10, 20, 30, 50, 100])
_, ax = plt.subplots()
for selection, label in (
    ("compose", "all trials are seen"),
    ("poisson", "only the best is seen, Poisson number"),
    ("logarithmic", "only the best is seen, logarithmic number"),
):
    mu = [selection_mu(1.0, 1e-5, int(k), selection) for k in trials]
    ax.plot(trials, np.array(mu) / gdp_mu(1.0, 1e-5), marker="o", label=label)
ax.set(xscale="log", xlabel="mean number of trials", ylabel="mu of a trial / mu of one fit", ylim=0)
_ = ax.legend()

# %%
# Accuracy against epsilon
# ------------------------
# At the same total budget, the plot compares the search (three runs), the three candidates without
# a search (mean and spread, as of an arbitrary choice), and the default.
from skpmtl.inspection import PrivacyUtilityDisplay

epsilons = (1.0, 3.0, 10.0)


def predict(estimator, epsilon, **parameters):
    return estimator.set_params(epsilon=epsilon, **parameters).fit(table, y).predict(test)


curves = {
    "PrivateSearch": {e: [predict(search, e) for _ in range(3)] for e in epsilons},
    "any candidate": {
        e: [predict(tuned, e, structure=name) for name in candidates["structure"]] for e in epsilons
    },
    "nothing to choose": {e: [predict(automatic, e) for _ in range(3)] for e in epsilons},
}
_, ax = plt.subplots()
for number, (name, predictions) in enumerate(curves.items()):
    PrivacyUtilityDisplay.from_predictions(
        [y_test] * len(predictions[1.0]),
        predictions,
        score_name="normalised test error",
        ax=ax,
        name=name,
        errorbar_kw={"color": f"C{number}"},
    )
