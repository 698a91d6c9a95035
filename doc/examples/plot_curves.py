"""
Effects that are not straight lines
===================================

A linear model of nonlinear features is a curve. If the features follow from public numbers alone,
such as knots or a seed, they are no release, and the curves cost no privacy. In this example the
effect of a drug levels off with the dose, at a different height in each of 100 hospitals.
"""

# %%
# Rows of hospitals are private; that doses lie between 0 and 100 mg and ages between 20 and 90 is
# public.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
n_hospitals, n_patients = 100, 40
hospital = np.repeat(np.arange(n_hospitals), n_patients)
table = pd.DataFrame(
    {
        "hospital": hospital,
        "dose": rng.uniform(0, 100, len(hospital)),
        "age": rng.uniform(20, 90, len(hospital)),
    }
)
height = 3.0 + rng.normal(size=n_hospitals)


def effect(dose, age, k):
    """Rises until 30 mg and levels off; wanes above an age of 60."""
    return height[k] * np.tanh(dose / 15) * np.where(age > 60, 1.0 - (age - 60) / 60, 1.0)


outcome = effect(table["dose"], table["age"], hospital) + rng.normal(size=len(table))
test = np.arange(len(table)) % 2 == 1
train = ~test

# %%
# Public knots
# ------------
# ``SplineTransformer`` with given knots reads no rows. Linear extrapolation keeps rows outside the
# public range harmless. Five knots are enough for most effects; each knot adds a column to the
# model of a task.
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, SplineTransformer

from skpmtl import PrivateMTL


def curves(low, high, n_knots=5):
    knots = np.linspace(low, high, n_knots)[:, None]
    return SplineTransformer(degree=2, knots=knots, extrapolation="linear", include_bias=False)


splines = make_column_transformer(
    ("passthrough", ["hospital"]),
    (curves(0, 100), ["dose"]),
    (curves(20, 90), ["age"]),
    verbose_feature_names_out=False,
).set_output(transform="pandas")


def private(features, epsilon):
    est = PrivateMTL(epsilon=epsilon, task_feature="hospital", tasks=range(n_hospitals))
    return make_pipeline(features, est)


model = private(splines, 3.0).fit(table[train], outcome[train])
print(model[-1].privacy_.summary())

# %%
# What the model of a hospital says
# ---------------------------------
# Each hospital has its own curve, here at an age of 50.
doses = np.linspace(0, 100, 60)
linear = private(FunctionTransformer(), 3.0).fit(table[train], outcome[train])
_, axes = plt.subplots(1, 3, sharey=True, figsize=(9, 3.2), layout="constrained")
for ax, k in zip(axes, np.argsort(height)[[5, 50, 95]], strict=True):
    rows = pd.DataFrame({"hospital": k, "dose": doses, "age": 50.0})
    ax.plot(doses, model.predict(rows), label="public splines")
    ax.plot(doses, linear.predict(rows), "--", label="straight lines")
    ax.plot(doses, effect(doses, np.full(60, 50.0), k), "k:", label="truth")
    ax.set_title(f"hospital {k}", fontsize=10)
    ax.set_xlabel("dose (mg)")
axes[0].set_ylabel("outcome")
axes[0].legend(frameon=False, fontsize=8)

# %%
# Random features
# ---------------
# ``RBFSampler`` draws waves in all columns together, from a public seed. It also finds
# interactions, such as a weaker effect at old ages, but needs more columns, and hence more noise.
# Columns are scaled to a public range first.
from sklearn.kernel_approximation import RBFSampler


def to_unit(rows):
    return np.column_stack([(rows["dose"] - 50) / 50, (rows["age"] - 55) / 35])


waves = make_column_transformer(
    ("passthrough", ["hospital"]),
    (
        make_pipeline(
            FunctionTransformer(to_unit), RBFSampler(gamma=1.0, n_components=40, random_state=0)
        ),
        ["dose", "age"],
    ),
)


def with_waves(epsilon):
    est = PrivateMTL(epsilon=epsilon, task_feature=0, tasks=range(n_hospitals))
    return make_pipeline(waves, est)


# %%
# Error on other patients
# -----------------------
# The noise of an outcome has variance 1, the lowest error that a model can reach. Boosting with the
# hospital as a category is nonlinear as well, but has no guarantee.
from sklearn.ensemble import HistGradientBoostingRegressor


def error(fitted):
    return float(np.mean((fitted.predict(table[test]) - outcome[test]) ** 2))


epsilons = [0.5, 1.0, 3.0, 10.0]
scores = {
    "straight lines": [private(FunctionTransformer(), e) for e in epsilons],
    "public splines": [private(splines, e) for e in epsilons],
    "random features": [with_waves(e) for e in epsilons],
}
boosting = HistGradientBoostingRegressor(categorical_features=["hospital"], learning_rate=0.05)
boosting.fit(table[train], outcome[train])

_, ax = plt.subplots()
for name, models in scores.items():
    found = [error(fitted.fit(table[train], outcome[train])) for fitted in models]
    ax.plot(epsilons, found, marker="o", label=name)
    print(f"{name:16}", np.round(found, 2))
ax.axhline(error(boosting), color="k", linestyle=":", label="boosting, not private")
ax.set(xscale="log", xlabel="epsilon", ylabel="mean squared error")
ax.set_xticks(epsilons, epsilons)
ax.minorticks_off()
ax.legend(frameon=False)
print(f"boosting         {error(boosting):.2f}")
