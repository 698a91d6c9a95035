"""The quick modes run, and what they print is what they say."""

import numpy as np
import pytest

from benchmarks.peers.solvers import Fista
from benchmarks.problems import instances

QUICK = [problem for problem, _ in instances(quick=True)]


@pytest.mark.parametrize("problem", QUICK, ids=lambda p: f"{p.name} {p.penalty}")
def test_the_peer_is_a_correct_solver(problem):
    """Optimality conditions at the peer's solution, from the rows alone."""
    fista = Fista(problem).prepare()
    W, b = fista.solution(fista.run(3_000)[0])
    assert fista.value(W) == pytest.approx(problem.objective(W, b), rel=1e-12)
    gradient = []
    for (X, y), w, intercept in zip(problem.tasks(), W, b, strict=True):
        residual = (X @ w + intercept - y) / (len(y) if problem.formula == "mean" else 1)
        assert not problem.fit_intercept or abs(residual.sum()) < 1e-9
        gradient.append(X.T @ residual)
    # -gradient / alpha is a subgradient of the norm at W: dual norm <= 1, <., W> = Omega(W).
    G = -np.array(gradient) / problem.alpha
    if problem.penalty == "trace":
        dual, norm = np.linalg.norm(G, 2), np.linalg.norm(W, "nuc")
    else:
        dual, norm = np.linalg.norm(G, axis=0).max(), np.linalg.norm(W, axis=0).sum()
    assert norm > 0
    assert dual <= 1 + 1e-8
    assert np.vdot(G, W) == pytest.approx(norm, rel=1e-8)
