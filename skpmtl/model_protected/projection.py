"""Algorithms 2 and 3 of the model-protected paper: noisy projections, local gradient steps.

Iteration t: the curator receives the clipped models, releases their noisy second moment S (or
its diagonal) and everybody derives from it the public projection
M = U (1 - alpha / sqrt(Lambda))_+ U'; every task projects its own model, extrapolates and takes
a gradient step on its own rows, with a step size of its own.
"""

import numpy as np


def second_moment(ask, C):
    diagonal = ask.public["statistic"] == "diagonal"
    return {"moment": np.einsum("kj,kj->j", C, C) if diagonal else C.T @ C}
