"""
Federated clients with different tasks
======================================

Hospitals record different diagnoses. In FedMTL every client trains a network with shared layers and
one head for each of *its* tasks, and receives averages over the clients that resemble it.

**FedMTL gives no differential privacy.** The server sees all layers, or with ``secure=True``
servers see secret shares of them; neither bounds what models disclose about rows.
"""

# %%
# Forty clients have sixty rows and two of eight tasks each. In the first data set all belong to one
# domain; in the second they belong to two domains that contradict each other: tasks have the same
# names, but different labels.
import matplotlib.pyplot as plt
import numpy as np

from skpmtl import FedMTLClassifier
from skpmtl.fedmtl import make_fedmtl_clients

settings = {"n_clients": 40, "n_samples": 60, "n_test": 60, "random_state": 0}
studies = {
    "one domain": make_fedmtl_clients(**settings),
    "two domains": make_fedmtl_clients(tasks_per_client="pairs", n_domains=2, **settings),
}
print("tasks of the first client:", np.flatnonzero(~np.isnan(studies["one domain"][1][0])))

# %%
# Rules of aggregation
# --------------------
# "local" exchanges nothing, "uniform" averages everybody, "similarity" is the rule of the paper and
# "per-task" the default. Averaging all clients is best with one domain and worst with two; under
# the rule of the paper, clients with different tasks hardly help each other.
rules = ["local", "uniform", "similarity", "per-task"]
models = {}
for study, (X, y, client, X_test, y_test, client_test) in studies.items():
    for rule in rules:
        model = FedMTLClassifier(n_rounds=40, aggregation=rule, random_state=0)
        models[study, rule] = model.fit(X, y, client=client)
        accuracy = model.score(X_test, y_test, client=client_test)
        print(f"{study:<14}{rule:<12}{accuracy:.3f}")
print("differential privacy:", model.privacy_.guarantee)

# %%
# Convergence
# -----------
# The plot shows the loss in the local epochs by round, computed in the clear, for simulations like
# this one. A low loss on sixty rows does not mean accuracy: clients on their own memorise their
# rows.
fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for study, ax in zip(studies, axes, strict=True):
    for rule in rules:
        ax.plot(np.arange(1, 41), models[study, rule].history_["loss"], label=rule)
    ax.set(xlabel="round", title=study)
axes[0].set_ylabel("loss in the local epochs")
_ = axes[0].legend()

# %%
# Who resembles whom
# ------------------
# Two domains; clients are sorted by domain, which is unknown to them.
from skpmtl.inspection import ClientSimilarityDisplay

clients = models["two domains", "similarity"].clients_
order = np.argsort(clients % 2, kind="stable")
fig, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for rule, ax in zip(("similarity", "per-task"), axes, strict=True):
    model = models["two domains", rule]
    ClientSimilarityDisplay.from_estimator(model, order=order, ax=ax)
    ax.set_title(rule)

# %%
# Gain per client
# ---------------
X, y, client, X_test, y_test, client_test = studies["one domain"]


def accuracies(rule):
    model = models["one domain", rule]
    right = model.predict(X_test, client=client_test) == y_test
    known = ~np.isnan(y_test)
    count = np.bincount(client_test, known.sum(axis=1))
    return np.bincount(client_test, (right & known).sum(axis=1)) / count


before, after = accuracies("local"), accuracies("per-task")
_, ax = plt.subplots()
ax.scatter(before, after)
ax.axline((0.7, 0.7), slope=1, color="black", linewidth=1)
ax.set(xlabel="accuracy alone", ylabel="accuracy per-task", title="One domain, one point a client")
print(f"{np.mean(after > before):.0%} of the clients are better off.")

# %%
# New clients, secure aggregation and networks of your own: :doc:`/fedmtl`.
