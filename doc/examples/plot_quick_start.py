"""
Quick start
===========

Three hundred clinics have twenty patients each. These are too few to fit ten coefficients, and the
clinics do not want to disclose their patients. They fit their models jointly, under a privacy
budget that protects all rows of a clinic together.
"""

# %%
# One column of the table names the clinic of each row. The generator makes four kinds of clinics;
# clinics of one kind have nearly the same coefficients, and the fit does not know the kinds.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skpmtl.datasets.generators import make_low_rank_tasks

drawn = make_low_rank_tasks(300, 20, 10, noise=8.0, n_test=60, random_state=0)
X, y, clinic, X_test, y_test, clinic_test = drawn
table = pd.DataFrame(X).add_prefix("x").assign(clinic=clinic)
test = pd.DataFrame(X_test).add_prefix("x").assign(clinic=clinic_test)
table.tail(3)

# %%
# Every clinic alone
# ------------------
# The baseline is ridge regression in each clinic, with a penalty chosen by the clinic. Nothing is
# exchanged, so there is nothing to protect. The normalised error is the mean squared error divided
# by the variance: 1 is a constant prediction, and .35 is the noise that no model can predict.
from sklearn.linear_model import RidgeCV

from skpmtl import PerTask
from skpmtl.metrics import nmse, task_scores

alone = PerTask(RidgeCV(np.logspace(-1, 2, 13)), task_feature="clinic").fit(table, y)
print(f"alone: {nmse(y_test, alone.predict(test)):.3f}")

# %%
# Jointly, and privately
# ----------------------
# ``epsilon`` is the whole budget. ``tasks`` is the list of participants, which must be public.
# There is nothing else to choose.
from skpmtl import MPMTLLowRank

private = MPMTLLowRank(epsilon=3.0, task_feature="clinic", tasks=range(300)).fit(table, y)
print(f"joint, epsilon 3: {nmse(y_test, private.predict(test)):.3f}")

# %%
# The report states what was spent, in words for a data protection officer.
print(private.privacy_)

# %%
# Accuracy against epsilon
# ------------------------
# On real data, every fit below would spend the budget of the same clinics again: do such a scan on
# generated or past data only, as here. The bars are one standard deviation over the noise of eight
# fits.
from skpmtl.inspection import PrivacyUtilityDisplay

epsilons = [0.1, 0.3, 1, 3, 10]
predictions = {
    epsilon: [private.set_params(epsilon=epsilon).fit(table, y).predict(test) for _ in range(8)]
    for epsilon in epsilons
}
exact = MPMTLLowRank(epsilon=None, task_feature="clinic", tasks=range(300)).fit(table, y)
display = PrivacyUtilityDisplay.from_predictions(
    [y_test] * 8,
    predictions,
    baselines={
        "each clinic alone": [alone.predict(test)] * 8,
        "joint, not private": [exact.predict(test)] * 8,
    },
    score_name="normalised test error",
)
_ = display.ax_.set_title("What privacy costs")

# %%
# Who gains
# ---------
# Each point is a clinic, with R2 on its own test rows. A clinic decides from its own rows how much
# to trust the release, so that few lose by taking part.
joint = private.set_params(epsilon=3.0).fit(table, y)
before = task_scores(alone, test, y_test).scores
after = task_scores(joint, test, y_test).scores
_, ax = plt.subplots()
ax.scatter(before, after, s=12)
ax.axline((0.5, 0.5), slope=1, color="black", linewidth=1)
ax.set(xlabel="R2 alone", ylabel="R2 joint, epsilon 3", title="One point per clinic")
print(f"{np.mean(after > before):.0%} of the clinics are better off.")

# %%
# Next: your own table (:doc:`plot_task_column`), several outcomes with gaps
# (:doc:`plot_missing_outcomes`), and what is protected from whom (:doc:`/privacy_guide`).
