"""
How sure is each model, and what all share?
===========================================

A private fit with ``uncertainty=True`` gives each task the uncertainty of its own model; a fit with
``standard_errors=True`` releases that of the shared model. Two plots show them.
"""

# %%
# Three hundred clinics with few patients each. The effect of the first column differs
# between clinics; that of the last is 0 in all of them.
import warnings

import numpy as np

from skpmtl import PrivacyLeakWarning, PrivateMeanRegMTL
from skpmtl.inspection import EffectsDisplay, TaskIntervalDisplay

rng = np.random.default_rng(0)
n_tasks, effects = 300, np.array([1.0, -0.5, 0.0])
models = effects + rng.normal(size=(n_tasks, 3)) * [0.5, 0.1, 0.0]
task = np.repeat(np.arange(n_tasks), rng.integers(5, 40, n_tasks))
X = rng.normal(size=(len(task), 3))
y = np.sum(X * models[task], axis=1) + rng.normal(size=n_tasks)[task] + rng.normal(size=len(task))

est = PrivateMeanRegMTL(
    epsilon=8.0,
    tasks=range(n_tasks),
    uncertainty=True,
    standard_errors=True,
).fit(X, y, task=task)

# %%
# The clinics
# -----------
# Posterior means of one coefficient with 90 % intervals, in the order of the means: clinics with
# few patients have wide intervals, nearer to the shared value (the line). The plot shows models of
# private rows, and a warning says who may see it; these rows are generated.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", PrivacyLeakWarning)
    TaskIntervalDisplay.from_estimator(est, "x0", tasks=range(0, n_tasks, 8))

# %%
# What they share
# ---------------
# The bar is the interval of the shared effect. Its standard error includes differences between
# clinics and the noise of the budget. Both were released and may be published.
display = EffectsDisplay.from_estimator(est)
display.axes_[0].set_xlabel("effect")
print(est.summary())
