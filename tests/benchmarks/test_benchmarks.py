"""The quick modes run, and what they print is what they say."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import skpmtl
from benchmarks import scale
from benchmarks.peers import random_shapes, wide_trace
from benchmarks.peers.exact import Fista, fista_at, skpmtl_fit
from benchmarks.problems import Problem, instances
from benchmarks.walk import walk
from skpmtl.datasets import make_low_rank_tasks

from ..helpers.public import public

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


def test_memory_is_that_of_the_fit(monkeypatch):
    """A fit that allocates twice the input is reported with about three times the input."""

    class Greedy:
        def fit(self, X, y, task):
            if len(X) > 10_000:
                np.ones(2 * X.size)
            return self

        def predict(self, X, task):
            return X[:, 0]

    monkeypatch.setattr(skpmtl, "Greedy", Greedy, raising=False)
    row = scale.measure_one("Greedy", {}, 4_000, 10, 100, parts=(1,))[0]
    assert row["memory"] == pytest.approx(3.0, abs=0.3)


# ------------------------------------------------------------------ peers of other languages
@pytest.mark.parametrize("shell, suffix", [(["Rscript"], ".R"), (["octave-cli", "--quiet"], ".m")])
def test_tables_reach_other_languages_as_they_are(shell, suffix):
    """The real interpreter sends back what it read: rows by task, in the order of the file."""
    from benchmarks.peers import external
    from benchmarks.problems import Problem

    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    script = {".R": external._RMTL, ".m": external._MALSAR}[suffix]
    # Instead of a fit: w_k = first row of task k, c_k = its last target.
    if suffix == ".R":
        first, last = script.index("model <-"), script.index("spent <-")
        answer = (
            "model <- list(W = sapply(X, function(x) x[1, ]), "
            "C = sapply(Y, function(v) v[nrow(v), 1]), Obj = 1:7)\n"
        )
    else:
        first, last = script.index("if strcmp"), script.index("spent =")
        answer = 'W = cell2mat(cellfun(@(x) x(1, :)\', X, "UniformOutput", false));\n'
        answer += "values = 1:7;\n"
    rng = np.random.default_rng(0)
    X, y, task = rng.normal(size=(9, 3)), rng.normal(size=9), np.repeat([0, 1, 2], [2, 3, 4])
    formula = "mean" if suffix == ".R" else "sum"
    problem = Problem("test", "trace", formula, X, y, task, alpha=0.5)
    coef, intercept, seconds, steps = external._fit(
        shell, script[:first] + answer + script[last:], suffix, problem, 1e-3
    )
    np.testing.assert_array_equal(coef, X[[0, 2, 5]])
    np.testing.assert_array_equal(intercept, y[[1, 4, 8]] if suffix == ".R" else np.zeros(3))
    assert seconds >= 0 and steps == 7


def test_missing_peers_are_skipped(monkeypatch):
    from benchmarks.peers import external

    monkeypatch.setenv("PATH", "")
    assert external.installed() == {}
    assert list(external.measure(True, 1)) == []


@pytest.mark.parametrize(
    "name, most",
    [("PrivateMTL", 26), ("DPMetaInit", 27)],
)
@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")  # a fixed seed
def test_private_fits_enter_few_files(name, most):
    X, y, task = make_low_rank_tasks(n_tasks=12, n_samples=30, n_features=4, random_state=0)[:3]
    found = walk(public(name)(tasks=range(12), random_state=0), X, y, task)
    assert len(found) <= most + 1  # one more reads seeds


def test_random_shapes_are_compared_with_the_largest_ratio_first():
    one, other = (
        random_shapes.draw(np.random.default_rng(5)),
        random_shapes.draw(np.random.default_rng(5)),
    )
    assert one[:3] == other[:3] and np.array_equal(one[3], other[3])
    rows = list(random_shapes.compared("", "trace", 0.3, *wide_trace.low_rank(3, 20, 9)))
    ratios = {row["peer"]: float(row["ratio"]) for row in rows}
    assert set(ratios) == {"skpmtl", "skpmtl, certified", "fista"} and ratios["skpmtl"] == 1.0
    assert random_shapes.worst(rows) == ratios["fista"]


def test_fista_on_rows_is_that_on_gram_matrices():
    X, y, task = wide_trace.low_rank(3, 6, 9)
    problem = Problem("", "trace", "mean", X, y, task)
    problem = replace(problem, alpha=0.1 * problem.alpha_max())
    found = [kind(problem).prepare().run(40)[0] for kind in (Fista, wide_trace.RowFista)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-10)
    objective = problem.objective(*skpmtl_fit(problem, 1e-8))
    best = fista_at(problem, objective, wide_trace.RowFista)
    assert problem.objective(*best()) == pytest.approx(objective, rel=2e-6)
