"""
Audit: why the published Wishart mechanism fails
================================================

An audit attacks a mechanism and bounds its epsilon from below. It can never prove privacy, but it
can prove that a claim is wrong. This page does so for the noise with which model-protected
multi-task learning was published [1]_.

**The claim.** The method adds to the d x d matrix W W' of the tasks' models, each of length at
most K, a Wishart matrix with d + 1 degrees of freedom and scale K^2 / (2 epsilon), and claims
epsilon-differential privacy for whole tasks.

**The attack.** Wishart noise is positive definite. An attacker guesses a task's model w and
subtracts w w' from the release. If the task took part, the remainder is always positive
semi-definite. If it did not, the smallest eigenvalue may be negative, which *never* happens with
the task.
"""

# %%
# Two neighbours: one task with a model of length K = 1, and no task. The part of the other tasks in
# W W' only shifts both, so it is left out. Three mechanisms claim the same: the published one, its
# symmetrised form (the same noise minus an independent copy) and the Gaussian default.
import matplotlib.pyplot as plt
import numpy as np

from skpmtl.privacy import SymmetricGaussian, audit, gdp_mu, noise_source
from skpmtl.reproduction.mp_mtl import PublishedWishart, SymmetrizedWishart

d, epsilon = 10, 1.0
w = np.zeros(d)
w[0] = 1.0
present, absent = np.outer(w, w), np.zeros((d, d))
mechanisms = {
    "published Wishart": PublishedWishart(d, 1.0, epsilon),
    "symmetrised Wishart": SymmetrizedWishart(d, 1.0, epsilon),
    "symmetric Gaussian": SymmetricGaussian(d, 1.0, gdp_mu(epsilon, 1e-5)),
}
noise = noise_source(None)  # of the operating system; every run draws anew


def smallest_eigenvalues(mechanism, statistic, n_draws=3000):
    """Of release - w w'."""
    releases = np.stack([mechanism.release(statistic, noise) for _ in range(n_draws)])
    return np.linalg.eigvalsh(releases - present)[:, 0]


# %%
# The picture
# -----------
# With the task, no published release is ever left of zero. Without it, a fraction of 1 -
# exp(-epsilon) is: .63 at a claimed epsilon of 1. An observer of such a release is certain that the
# task did not take part. The sound mechanisms overlap everywhere.
fig, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for ax, (name, mechanism) in zip(axes, mechanisms.items(), strict=True):
    without = smallest_eigenvalues(mechanism, absent)
    with_task = smallest_eigenvalues(mechanism, present)
    bins = np.histogram_bin_edges(np.concatenate([without, with_task]), bins=60)
    ax.hist(without, bins=bins, alpha=0.6, label="without the task")
    ax.hist(with_task, bins=bins, alpha=0.6, label="with the task")
    ax.set(title=name, xlabel="smallest eigenvalue of release - w w'")
    if name.startswith("published"):
        ax.axvline(0, color="black", linewidth=1)
        # Sums of doubles are exact to about 1e-15 of their size.
        print(f"with the task, below zero:    {np.mean(with_task < -1e-9):.3f}")
        print(f"without the task, below zero: {np.mean(without < -1e-9):.3f}")
axes[0].set_ylabel("draws")
_ = axes[0].legend()

# %%
# An event of probability 0 under one neighbour and .63 under the other excludes every finite
# epsilon, unless delta is .63 or more. With several releases the fraction is 1 - exp(-sum of the
# epsilons).
from skpmtl.reproduction.mp_mtl import published_wishart_delta_bound

for epsilons in ([0.1], [1.0], [1.0, 1.0, 1.0]):
    print(epsilons, f"delta >= {published_wishart_delta_bound(epsilons):.3f}")

# %%
# The audit
# ---------
# ``audit`` searches for such events. It chooses one on half of the draws and bounds its probability
# on the other half, so that its result holds with the stated confidence.
results = {
    name: audit(mechanism, absent, present, delta=0.0 if "Wishart" in name else 1e-5)
    for name, mechanism in mechanisms.items()
}
for name, result in results.items():
    print(f"--- {name}\n{result}\n")

# %%
_ = results["published Wishart"].plot()

# %%
# A whole estimator
# -----------------
# The releases of a fit are played to the fit of a data set that differs in one task. What others
# can see beside them has to be equal, and sensitivities and noise as the report states them.
from skpmtl import MPMTLLowRank

rng = np.random.default_rng(0)
X, task = rng.normal(size=(480, 3)), np.repeat(np.arange(40), 12)
coef = rng.normal(size=(40, 3))
neighbours = []
for axis in range(2):  # the model of task 3 is long, along one axis or another
    coef[3] = 50.0 * np.eye(3)[axis]
    neighbours.append((X, np.einsum("ij,ij->i", X, coef[task]), task))
print(audit(MPMTLLowRank(epsilon=3.0, tasks=range(40)), *neighbours))

# %%
# What the sound noise costs
# --------------------------
# Mean spectral norm of the noise for the same claimed epsilon, for one release.
dimensions = [2, 5, 10, 20, 30]
_, ax = plt.subplots()
for name, make in (
    ("published Wishart, no guarantee", lambda d: PublishedWishart(d, 1.0, epsilon)),
    ("symmetrised Wishart, delta = 0", lambda d: SymmetrizedWishart(d, 1.0, epsilon)),
    ("Gaussian, delta = 1e-5", lambda d: SymmetricGaussian(d, 1.0, gdp_mu(epsilon, 1e-5))),
):
    norms = []
    for dimension in dimensions:
        mechanism = make(dimension)
        draws = np.stack([mechanism.sample(noise) for _ in range(100)])
        # The mean of the published noise is public and would be subtracted.
        draws -= getattr(mechanism, "noise_mean", 0.0) * np.eye(dimension)
        norms.append(np.abs(np.linalg.eigvalsh(draws)).max(axis=1).mean())
    ax.plot(dimensions, norms, marker="o", label=name)
ax.set(xlabel="number of features", ylabel="spectral norm of the noise / K^2", title="epsilon = 1")
_ = ax.legend()

# %%
# .. [1] J. Liang, Z. Liu, J. Zhou, X. Jiang, C. Zhang, F. Wang. Model-protected multi-task
#    learning. IEEE Transactions on Pattern Analysis and Machine Intelligence 44(2), 2022.
