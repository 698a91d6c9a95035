"""The quick modes run, and what they print is what they say."""

import json
import shutil

import numpy as np
import pytest

import skpmtl
from benchmarks import run, scale
from benchmarks.peers import exact, grid
from benchmarks.peers.exact import Fista
from benchmarks.problems import instances
from benchmarks.reproduce import (
    mean_regularized,
    mean_regularized_figures,
)
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


def test_grid_quick(tmp_path, capsys):
    rows = run.main(["grid", "--quick", "--output", str(tmp_path / "grid.csv")])
    assert len(rows) == 2 and capsys.readouterr().out.count("alpha") == 2
    for row in rows:
        assert float(row["gap"]) <= 1.01e-6 and float(row["ratio"]) > 0
    problem = grid.draw(np.random.default_rng(5), quick=True)
    fista = exact.Fista(problem).prepare()
    ours, theirs = (
        problem.objective(*fista.solution(W))
        for W in (exact.skpmtl_fit(problem)[0], grid.fista_fit(problem))
    )
    assert ours == pytest.approx(theirs, rel=2e-6)


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


@pytest.fixture
def leaf_posts(tmp_path):
    """Texts of 12 users about three things, in LEAF's format."""
    rng = np.random.default_rng(0)
    words, tags = [f"w{j}" for j in range(12)], ["python", "r", "c"]
    users = {}
    for k in range(12):
        kind = rng.integers(0, 3, 10)
        texts = [" ".join(rng.choice(words[4 * c : 4 * c + 4], 5)) for c in kind]
        users[f"u{k}"] = {"x": texts, "y": [f"other|{tags[c]}" for c in kind]}
    content = {"users": list(users), "num_samples": [10] * 12, "user_data": users}
    (tmp_path / "posts").mkdir()
    (tmp_path / "posts" / "0.json").write_text(json.dumps(content))
    (tmp_path / "words.txt").write_text("\n".join(words))
    (tmp_path / "tags.txt").write_text("\n".join(tags))
    return tmp_path


def test_leaf_rows_are_split_within_users(leaf_posts):
    make = mean_regularized.leaf(
        leaf_posts / "posts", leaf_posts / "words.txt", leaf_posts / "tags.txt"
    )
    X, y, task, X_test, y_test, task_test, _ = make(0)
    np.testing.assert_array_equal(np.unique(task, return_counts=True)[1], 7)
    np.testing.assert_array_equal(np.unique(task_test, return_counts=True)[1], 3)
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 2.0)
    assert not np.array_equal(make(1)[1], y) and np.array_equal(make(0)[1], y)
    # With folders for both, nothing is drawn, and users without training rows are left out.
    posts = json.loads((leaf_posts / "posts" / "0.json").read_text())
    for part, names in (("train", posts["users"][1:]), ("test", posts["users"])):
        (leaf_posts / "fixed" / part).mkdir(parents=True)
        some = {"users": names, "num_samples": [10] * len(names)}
        some["user_data"] = {name: posts["user_data"][name] for name in names}
        (leaf_posts / "fixed" / part / "0.json").write_text(json.dumps(some))
    make = mean_regularized.leaf(
        leaf_posts / "fixed", leaf_posts / "words.txt", leaf_posts / "tags.txt"
    )
    parts = make(0)
    assert parts[0].shape == parts[3].shape == (110, 13)
    assert (parts[0] != make(1)[0]).nnz == 0 and set(parts[5]) == set(posts["users"][1:])


def test_stated_and_exact_epsilon(monkeypatch):
    """The authors' accountant as their code prints it, and what the same noise is worth."""
    stated = mean_regularized_figures.poisson_rdp_epsilon(10.0, 600, 0.25, 1 / 400)
    assert stated == pytest.approx(1.79, abs=0.01)
    with monkeypatch.context() as patch:  # order 2 in closed form: log(1 + p^2 (exp(1/z^2) - 1))
        patch.setattr(mean_regularized_figures, "ORDERS", np.array([2.0]))
        z, p, delta = 1.5, 0.1, 0.01
        bound = np.log1p(p**2 * np.expm1(1 / z**2)) + np.log(0.5) - np.log(2 * delta)
        single = mean_regularized_figures.poisson_rdp_epsilon(z, 1, p, delta)
        assert single == pytest.approx(bound, rel=1e-9)
    for m in (30, 200):
        for scheme, T, rate, noise in mean_regularized_figures.schemes(0.8, m):
            true = mean_regularized_figures.exact(noise, T, rate, 1 / m, "zero-out")
            if "Theorem" in scheme:
                assert true < 0.2
            elif "Poisson" in scheme:
                assert true > 1.3
            else:
                assert true == pytest.approx(0.8)


@pytest.mark.parametrize(
    "name, most",
    [("PrivateMTL", 26), ("MPMTLLowRank", 26), ("PrivateMeanRegMTL", 30), ("DPMetaInit", 28)],
)
@pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")  # a fixed seed
def test_private_fits_enter_few_files(name, most):
    X, y, task = make_low_rank_tasks(n_tasks=12, n_samples=30, n_features=4, random_state=0)[:3]
    found = walk(public(name)(tasks=range(12), random_state=0), X, y, task)
    assert len(found) <= most + 1  # one more reads seeds
