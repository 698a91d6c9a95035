"""
New tasks without new budget
============================

A private fit publishes its *billboard*: a few numbers with noise. A clinic that was not in the fit
can combine the billboard with its own rows at any time. That discloses nothing more about the
clinics of the fit, so it costs none of their budget; and the rows of the new clinic do not leave
it.
"""

# %%
# Two hundred clinics take part, a hundred others come later.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV

from skpmtl import MPMTLLowRank, PerTask
from skpmtl.datasets.generators import make_low_rank_tasks
from skpmtl.metrics import nmse

# Kinds of clinics take turns, so that the late ones are of the same kinds as the early ones.
drawn = make_low_rank_tasks(300, 20, 10, noise=8.0, n_test=60, interleave=True, random_state=0)
X, y, clinic, X_test, y_test, clinic_test = drawn
early, late, late_test = clinic < 200, clinic >= 200, clinic_test >= 200
model = MPMTLLowRank(epsilon=3.0, tasks=range(200)).fit(X[early], y[early], task=clinic[early])
spent = model.privacy_

# %%
# ``personalize`` adds the late clinics. The report does not change, as nothing was spent.
model.personalize(X[late], y[late], task=clinic[late])
print(model.coef_.shape, model.privacy_ is spent)

# %%
# What travels
# ------------
# The billboard is a small object, and the only one that may be published. It carries the report.
import pickle

billboard = model.export_billboard()
print(f"{len(pickle.dumps(billboard))} bytes, epsilon = {billboard.report.epsilon}")

# %%
# Give every clinic its own model:
model.export_task(250)

# %%
# The gain of those who came late
# -------------------------------
# The same steps at several budgets. The late clinics have spent no budget.
from skpmtl.inspection import PrivacyUtilityDisplay

alone = PerTask(RidgeCV(np.logspace(-1, 2, 13))).fit(X[late], y[late], task=clinic[late])
test = X_test[late_test], clinic_test[late_test], y_test[late_test]


def late_predictions(epsilon):
    model = MPMTLLowRank(epsilon=epsilon, tasks=range(200))
    model.fit(X[early], y[early], task=clinic[early])
    return model.personalize(X[late], y[late], task=clinic[late]).predict(test[0], task=test[1])


repeats = 5
display = PrivacyUtilityDisplay.from_predictions(
    [test[2]] * repeats,
    {epsilon: [late_predictions(epsilon) for _ in range(repeats)] for epsilon in (0.3, 1, 3, 10)},
    baselines={"each late clinic alone": [alone.predict(test[0], task=test[1])] * repeats},
    score_name="normalised test error",
)
_ = display.ax_.set_title("Clinics that came late")

# %%
# Few rows
# --------
# The fewer rows a late clinic has, the more the billboard is worth.
sizes = [5, 8, 12, 20]
curves = {"alone": [], "billboard and own rows": []}
place = np.tile(np.arange(20), 300)
for size in sizes:
    few = late & (place < size)
    models = PerTask(RidgeCV(np.logspace(-1, 2, 13))).fit(X[few], y[few], task=clinic[few])
    curves["alone"].append(nmse(test[2], models.predict(test[0], task=test[1])))
    model.personalize(X[few], y[few], task=clinic[few])
    curves["billboard and own rows"].append(nmse(test[2], model.predict(test[0], task=test[1])))
_, ax = plt.subplots()
for name, errors in curves.items():
    ax.plot(sizes, errors, marker="o", label=name)
ax.set(xlabel="rows of a late clinic", ylabel="normalised test error", title="epsilon 3")
_ = ax.legend()
