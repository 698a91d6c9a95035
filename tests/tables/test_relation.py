"""Facts about tasks -> a basis over them: what it spans, what one task can move, and bad input."""

import numpy as np
import pytest
from scipy import sparse

from skpmtl.tables.relation import laplacian, leverages, read_relation

pd = pytest.importorskip("pandas")
M = 60
TASKS = np.arange(M)


def covariates(rng, m=M, first=0):
    return pd.DataFrame(
        {
            "size": 5e4 + 1e3 * rng.normal(size=m),
            "region": rng.choice(["north", "south", "west"], m),
            "urban": rng.random(m) < 0.4,
        },
        index=range(first, first + m),
    )


def span(Q):
    return Q @ np.linalg.pinv(Q)


def design(table):
    """Columns of the covariates by hand."""
    return np.column_stack(
        [
            np.ones(len(table)),
            table["size"],
            table["region"] == "south",
            table["region"] == "west",
            table["urban"],
        ]
    ).astype(float)


@pytest.mark.parametrize("seed", range(5))
def test_rows_and_weights_are_what_the_module_says(seed):
    rng = np.random.default_rng(seed)
    table = covariates(rng)
    relation = read_relation(table, TASKS)
    V, B = relation.rows(TASKS), relation.weights(TASKS)
    h = np.linalg.norm(V, axis=1)
    np.testing.assert_allclose(np.linalg.norm(B, axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(B.T @ V, np.eye(5), atol=1e-10)
    np.testing.assert_allclose(h.sum(), 5.0)
    assert relation.leverage == pytest.approx(h.max())
    Z = design(table)
    np.testing.assert_allclose(span(V), span(Z / Z.max(axis=0)), atol=1e-8)
    inverse = np.linalg.inv((Z / Z.max(axis=0)).T @ (Z / Z.max(axis=0) / h[:, None]))
    fixed = np.einsum("kj,ji,ki->k", Z / Z.max(axis=0), inverse, Z / Z.max(axis=0))
    np.testing.assert_allclose(h**2, fixed, rtol=1e-8)
    assert relation.names == ["constant", "size", "region[south]", "region[west]", "urban"]


@pytest.mark.parametrize("make", ["frame", "mapping", "rows", "array", "series"])
def test_forms_agree(make):
    table = covariates(np.random.default_rng(1))
    Z = design(table)[:, 1:]
    given = {
        "frame": table,
        "mapping": {k: dict(table.loc[k]) for k in reversed(range(M))},
        "rows": {k: list(table.loc[k]) for k in range(M)},
        "array": Z[::-1],
        "series": table["region"],
    }[make]
    order = TASKS[::-1] if make == "array" else None
    V = read_relation(given, TASKS, order=order).rows(TASKS)
    wanted = design(table)[:, [0, 2, 3]] if make == "series" else design(table)
    wanted = wanted / wanted.max(axis=0)
    np.testing.assert_allclose(span(V), span(wanted), atol=1e-8)


def test_later_tasks_have_the_row_that_their_covariates_ask_for():
    rng = np.random.default_rng(2)
    table, later = covariates(rng), covariates(rng, 4, M)
    both = read_relation(pd.concat([table, later]), TASKS)
    new = np.arange(M, M + 4)
    # Row v with v_k = z_k T for the T of the fit.
    T = np.linalg.lstsq(design(table), both.rows(TASKS), rcond=None)[0]
    np.testing.assert_allclose(both.rows(new), design(later) @ T, atol=1e-9)
    added = read_relation(table, TASKS).with_tasks(later)
    np.testing.assert_array_equal(added.rows(new), both.rows(new))
    np.testing.assert_array_equal(added.rows(TASKS), both.rows(TASKS))
    with pytest.raises(ValueError, match=r"lacks the columns \['size'\]"):
        added.with_tasks(later[["region", "urban"]])
    with pytest.raises(ValueError, match="category that no task of the fit has"):
        added.with_tasks(later.assign(region="abroad"))
    with pytest.raises(ValueError, match=r"without covariates in relation=: \[99\]"):
        added.rows(np.array([3, 99]))


def test_a_relation_of_another_fit_is_read_anew():
    """Rows that were of length 1 over other tasks are not over these."""
    relation = read_relation(covariates(np.random.default_rng(3)), TASKS)
    again = read_relation(relation, TASKS[:30])
    B, V = again.weights(TASKS[:30]), again.rows(TASKS[:30])
    np.testing.assert_allclose(B.T @ V, np.eye(5), atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(B, axis=1), 1.0)
    later = covariates(np.random.default_rng(4), 3, 100)
    ids = np.arange(100, 103)
    wanted = read_relation(pd.concat([covariates(np.random.default_rng(3)), later]), TASKS[:30])
    np.testing.assert_allclose(again.with_tasks(later).rows(ids), wanted.rows(ids), atol=1e-12)


def ring(m=M):
    i = np.arange(m)
    A = sparse.csr_matrix((np.ones(m), (i, (i + 1) % m)), shape=(m, m))
    return A + A.T


def test_graphs_give_the_smoothest_vectors():
    relation = read_relation(ring(), TASKS, rank=5)
    V = relation.rows(TASKS)
    angle = 2 * np.pi * TASKS / M
    waves = [np.ones(M), np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle)]
    np.testing.assert_allclose(span(V), span(np.stack(waves, axis=1)), atol=1e-7)
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), 5 / M, rtol=1e-6)
    order = np.random.default_rng(0).permutation(M)
    mixed = read_relation(ring()[order][:, order], TASKS, order=order, rank=5).rows(TASKS)
    np.testing.assert_allclose(span(mixed), span(V), atol=1e-7)
    L = read_relation(laplacian(ring(), TASKS).toarray(), TASKS, rank=5).rows(TASKS)
    np.testing.assert_allclose(span(L), span(V), atol=1e-7)


def test_large_graphs_take_the_sparse_solver():
    m = 1500
    path = sparse.diags([np.ones(m - 1)] * 2, [-1, 1]).tocsr()
    V = read_relation(path, np.arange(m), rank=4).rows(np.arange(m))
    waves = np.cos(np.pi * np.outer(np.arange(m) + 0.5, np.arange(4)) / m)
    np.testing.assert_allclose(span(V) @ waves, waves, atol=1e-6)


def test_laplacian_is_the_sum_of_squared_differences():
    rng = np.random.default_rng(0)
    A = sparse.random(M, M, 0.1, random_state=0)
    A = sparse.csr_matrix(A + A.T)
    W = rng.normal(size=(3, M))
    pairs = A.toarray()[None] * (W[:, :, None] - W[:, None, :]) ** 2
    assert np.trace(W @ laplacian(A, TASKS) @ W.T) == pytest.approx(0.5 * pairs.sum())


def test_networkx():
    nx = pytest.importorskip("networkx")
    graph = nx.cycle_graph(M)
    wanted = read_relation(ring(), TASKS, rank=5).rows(TASKS)
    found = read_relation(graph, TASKS, rank=5).rows(TASKS)
    np.testing.assert_allclose(span(found), span(wanted), atol=1e-7)
    with pytest.raises(ValueError, match="no vertices"):
        read_relation(nx.cycle_graph(M - 1), TASKS)
    with pytest.raises(ValueError, match="directed"):
        read_relation(nx.DiGraph(graph), TASKS)


SIZE = {"size": np.arange(M) % 7.0}


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (pd.DataFrame(SIZE).iloc[2:], ValueError, r"without a row in relation=: \[0, 1\]"),
        (pd.DataFrame(SIZE).set_axis([f"t{k}" for k in range(M)]), TypeError, "strings"),
        (pd.DataFrame(SIZE).replace(3.0, np.nan), ValueError, r"'size'.*for the tasks \[3, 10"),
        ({k: [k, None] for k in range(M)}, ValueError, "'covariate 2'"),
        ({k: {"a": k} if k else {"b": k} for k in range(M)}, ValueError, "other columns"),
        (np.ones((M - 1, 2)), ValueError, "a row for every"),
        (np.full((M, 1), np.inf), ValueError, "infinite"),
        ("north", TypeError, "not understood"),
        ([{"size": 1}] * M, TypeError, "not understood"),
        (-ring(), ValueError, "cannot be negative"),
        (sparse.csr_matrix(np.triu(ring().toarray())), ValueError, "symmetric"),
        (ring().toarray(), ValueError, "not positive semi-definite"),
        (np.triu(np.ones((M, M))), ValueError, "symmetric"),
        (ring(M - 1), ValueError, "shape"),
        (pd.DataFrame(SIZE).set_axis([0, *range(M - 1)]), ValueError, "more than once"),
    ],
)
def test_bad_input_is_named(given, error, text):
    with pytest.raises(error, match=text):
        read_relation(given, TASKS)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (np.column_stack([np.ones(M), TASKS]), r"\['covariate 1'\] are constant"),
        (np.column_stack([TASKS, 2.0 * TASKS + 1.0]), r"\['covariate 2'\] are constant"),
        (np.random.default_rng(0).normal(size=(M, 15)), "fewer than 5 tasks"),
        ({k: "b" if k == 7 else "a" for k in range(M)}, r"tasks \[7\] would follow"),
        (sparse.block_diag([ring(30), ring(30)]), "2 parts"),
    ],
)
def test_doubtful_input_is_said(given, text):
    with pytest.warns(UserWarning, match=text):
        read_relation(given, TASKS)
    read_relation(given, TASKS, quiet=True)


def test_rank_is_of_graphs():
    with pytest.raises(ValueError, match="rank=3 is for graphs"):
        read_relation({k: k for k in range(M)}, TASKS, rank=3)
    with pytest.raises(ValueError, match="from 1 to"):
        read_relation(ring(), TASKS, rank=M)


def test_leverages_of_rows_that_nearly_vanish():
    Q = np.linalg.qr(np.vstack([np.eye(3), 1e-20 * np.ones((5, 3))]))[0]
    h = leverages(Q)
    assert np.isfinite(h).all() and h.max() <= 1.0 + 1e-9


def test_the_first_columns_alone():
    table = covariates(np.random.default_rng(6))
    relation = read_relation(table, TASKS, most=2)
    np.testing.assert_array_equal(
        relation.rows(TASKS), read_relation(table[["size"]], TASKS).rows(TASKS)
    )
    assert "the last 3 of 5 columns are left out" in relation.describe()
    later = covariates(np.random.default_rng(7), 2, M)
    assert relation.with_tasks(later).rows(np.arange(M, M + 2)).shape == (2, 2)
    graph = read_relation(ring(), TASKS, rank=5, most=3)
    assert graph.rank == 3 and "the last 2 of 5" in graph.describe()
