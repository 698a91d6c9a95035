"""fedmtl_aggregate: by hand, and against brute force over all matchings."""

from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl.fedmtl import fedmtl_aggregate

RULES = ["similarity", "uniform", "per-task"]


# ------------------------------------------------------------------------ reference
def cosine(a, b):
    if len(a) != len(b) or not np.any(a) or not np.any(b):
        return 0.0
    return float(np.dot(a, b) / np.sqrt(np.dot(a, a)) / np.sqrt(np.dot(b, b)))


def nearness(cos, ids, k, i, j, like):
    """How near two heads of task k are beside those nearest to either, by loops."""
    product = 1.0
    for one in (i, j):
        others = []
        for other in range(len(ids)):
            if other != one and k in ids[other]:
                a, b = list(ids[one]).index(k), list(ids[other]).index(k)
                others.append(max(0.0, cos[one][other][a, b]))
        product *= np.quantile(others, 0.75)
    return min(1.0, like / np.sqrt(product)) ** 16 if product > 0 else 1.0


def best_matching(A):
    """Value of the best one-to-one matching, by trying all of them.

    A pair with a negative cosine counts as two heads without a partner.
    """
    few, many = sorted(A.shape)
    gain = np.maximum(A if A.shape == (few, many) else A.T, 0.0)
    orders = permutations(range(many), few)
    return max(sum(gain[a, b] for a, b in enumerate(order)) for order in orders)


def reference(shared, heads, ids, sizes, Z, rule):
    """Every rule, and versions of the paper, in plain loops over clients, heads and neighbours."""
    N = len(heads)
    Z = np.broadcast_to(Z, N)
    cos = [[None] * N for _ in range(N)]
    S = np.ones((N, N))
    for i in range(N):
        for j in range(N):
            A = np.array([[cosine(a, b) for b in heads[j]] for a in heads[i]])
            cos[i][j] = A
            mine, other = set(ids[i]), set(ids[j])
            common = [(ids[i].index(k), ids[j].index(k)) for k in ids[i] if k in other]
            if rule == "similarity" and i != j:
                S[i, j] = best_matching(A) / len(ids[i])
            elif rule == "jaccard":
                S[i, j] = len(mine & other) / len(mine | other)
            elif rule == "exact-match":
                S[i, j] = float(mine == other)
            elif rule == "per-task" and i != j:
                gates = [max(0.0, A[a, b]) for a, b in common]
                S[i, j] = max(0.1, np.mean(gates) ** 2) if gates else np.nan
    S[np.isnan(S)] = np.nanmean(S)
    shared_new, heads_new = np.empty_like(shared), []
    for i in range(N):
        near = range(N)
        if rule == "similarity":
            near = [j for j in range(N) if j == i or S[i, j] >= Z[i]]
        weight = {j: S[i, j] * sizes[j] for j in near}
        shared_new[i] = sum(weight[j] * shared[j] for j in near) / sum(weight.values())
        mine = []
        for a, k in enumerate(ids[i]):
            total, top = 0.0, 0.0
            for j in near:
                if k not in ids[j] or rule == "shared-only" and j != i:
                    continue
                b, w = ids[j].index(k), weight[j]
                if rule == "per-task":
                    like = 1.0 if j == i else max(0.0, cos[i][j][a, b])
                    w = sizes[j] * like**4 * (1.0 if j == i else nearness(cos, ids, k, i, j, like))
                if w:
                    total += w
                    top = top + w * np.asarray(heads[j][b])
            mine.append(top / total)
        heads_new.append(mine)
    return shared_new, heads_new, S


def clients(seed, N=6, K=5, width=4, most=3, ragged=False):
    """Clients of two domains with 1 to `most` of K tasks; their heads lie around prototypes."""
    rng = np.random.default_rng(seed)
    lengths = [width + (k % 2 if ragged else 0) for k in range(K)]
    prototypes = [[rng.normal(size=n) for n in lengths] for _ in range(2)]
    heads, ids = [], []
    for i in range(N):
        own = rng.permutation(K)[: rng.integers(1, most + 1)]
        rows = [prototypes[i % 2][k] + 0.4 * rng.normal(size=lengths[k]) for k in own]
        heads.append(rows if ragged else np.array(rows))
        ids.append([f"t{k}" for k in own])
    shared = rng.normal(size=(N, 7))
    return shared, heads, ids, rng.uniform(1.0, 50.0, N), rng.uniform(0.0, 0.9, N)


def assert_same(found, expected, tol=1e-10):
    assert_allclose(found[0], expected[0], rtol=0, atol=tol)
    assert_allclose(found[2], expected[2], rtol=0, atol=tol)
    assert len(found[1]) == len(expected[1])
    for ours, theirs in zip(found[1], expected[1], strict=True):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_allclose(a, b, rtol=0, atol=tol)


# -------------------------------------------------------------------------- by hand
# Cosines of client A's heads (rows) with B's:  task 1: (.96, .8), task 2: (.8, 0). Matching
# equal tasks gives .96 + 0; the best matching crosses over: .8 + .8.
SHARED = np.array([[1.0, 0.0, 2.0], [0.0, 10.0, 4.0]])
HEADS = [np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[4.0, 3.0], [0.0, 2.0]])]
IDS = [[1, 2], [1, 3]]
SIZES = np.array([100.0, 300.0])


@pytest.mark.parametrize("threshold", [0.0, 0.75, np.array([0.75, 0.5])])
def test_two_clients_by_hand(threshold):
    shared, heads, similarity = fedmtl_aggregate(SHARED, HEADS, IDS, SIZES, threshold)
    assert_allclose(similarity, [[1.0, 0.8], [0.8, 1.0]], rtol=1e-14)
    # Weights S D: A has 100 and 240, B has 80 and 300.
    assert_allclose(shared[0], [100 / 340, 2400 / 340, 1160 / 340], rtol=1e-14)
    assert_allclose(shared[1], [80 / 380, 3000 / 380, 1360 / 380], rtol=1e-14)
    assert_allclose(heads[0], [[1260 / 340, 1120 / 340], [1.0, 0.0]], rtol=1e-14)
    assert_allclose(heads[1], [[1440 / 380, 1220 / 380], [0.0, 2.0]], rtol=1e-14)


# ----------------------------------------------------------------------- brute force
def ragged(seed):
    return clients(seed, ragged=True)


def one_threshold(Z):
    def make(seed):
        return *clients(seed)[:-1], Z

    return make


def heads_of_zeros(Z):
    """The cosine with a head of zeros is 0, and its client keeps itself: no 0 / 0."""

    def make(seed):
        shared, heads, ids, sizes, _ = clients(seed)
        heads[0][0] = 0.0
        heads[3][:] = 0.0
        return shared, heads, ids, sizes, Z

    return make


def no_shared_layers(seed):
    shared, *others = clients(seed)
    return shared[:, :0], *others


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("make", "seeds"),
    [
        (clients, range(4)),
        (ragged, range(4)),
        *((one_threshold(Z), [5]) for Z in (0.0, 0.45, 1.0)),
        *((heads_of_zeros(Z), [7]) for Z in (0.0, 0.5, 1.0)),
        (no_shared_layers, [0]),
    ],
)
def test_against_brute_force(rule, make, seeds):
    for seed in seeds:
        shared, heads, ids, sizes, Z = make(seed)
        expected = reference(shared, heads, ids, sizes, Z, rule)
        assert_same(fedmtl_aggregate(shared, heads, ids, sizes, Z, aggregation=rule), expected)


# ------------------------------------------------------------------------ corner cases
@pytest.mark.parametrize("rule", RULES)
def test_inputs_are_not_modified_and_not_aliased(rule):
    given = clients(0)
    copy = (given[0].copy(), [h.copy() for h in given[1]], [list(k) for k in given[2]])
    copy += (given[3].copy(), given[4].copy())
    shared, heads, similarity = fedmtl_aggregate(*given, aggregation=rule)
    shared += 1.0
    similarity += 1.0
    for own in heads:
        for head in own:
            head += 1.0
    for before, after in zip(copy[::3], given[::3], strict=True):
        assert_array_equal(before, after)
    assert_array_equal(copy[4], given[4])
    assert copy[2] == given[2]
    for before, after in zip(copy[1], given[1], strict=True):
        assert_array_equal(before, after)


def test_tiny_and_huge_heads_have_directions():
    """Norms of 1e-170 square to 0."""
    shared, heads, ids, sizes, Z = clients(1)
    plain = fedmtl_aggregate(shared, heads, ids, sizes, Z)
    scaled = [h * (1e-170 if i % 2 else 1e12) for i, h in enumerate(heads)]
    _, _, similarity = fedmtl_aggregate(shared, scaled, ids, sizes, Z)
    assert_allclose(similarity, plain[2], rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------ errors
def broken(**changes):
    shared, heads, ids, sizes, _ = clients(0)
    given = {"shared": shared, "heads": heads, "task_ids": ids, "sizes": sizes, "thresholds": 0.5}
    for name, change in changes.items():
        given[name] = change(given[name]) if callable(change) else change
    return given


def put(position, value):
    def change(values):
        values = list(values) if isinstance(values, list) else np.array(values)
        values[position] = value
        return values

    return change


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shared": put((2, 1), np.inf)}, "[Cc]lient 2 .*inf"),
        ({"heads": lambda v: v[:5]}, "5 entries.* 6 rows"),
        ({"heads": put(4, np.full((1, 4), np.nan))}, "[Cc]lient 4 .*nan"),
        ({"heads": put(1, np.ones((9, 4)))}, "[Cc]lient 1 .*9 heads"),
        ({"heads": put(4, np.empty((0, 4))), "task_ids": put(4, [])}, "[Cc]lient 4 "),
        ({"heads": put(2, np.ones((2, 4))), "task_ids": put(2, ["b", "b"])}, "[Cc]lient 2 .*'b'"),
        ({"sizes": put(3, 0.0)}, "[Cc]lient 3 .* 0"),
        ({"sizes": put(3, 1e-300)}, "size of client 3 is more than 2.53 times smaller"),
        ({"shared": put((2, 1), -1e17)}, "client 2 have a parameter above 2.53"),
        ({"heads": put(4, np.full((1, 4), 1e17))}, "The heads of client 4 have a parameter above"),
        ({"thresholds": [0.5, 0.5, 0.5, 0.5, 1.25, 0.5]}, r"[Cc]lient 4.*1\.25"),
        ({"shared": [[0.0]] * 5 + [[0.0, 1.0]]}, "shared layers .* the same length"),
    ],
)
def test_bad_input_is_named(changes, message):
    given = broken(**changes)
    heads = [np.array(h) for h in given["heads"]]
    with pytest.raises(ValueError, match=message):
        fedmtl_aggregate(**given)
    for before, after in zip(heads, given["heads"], strict=True):
        assert_array_equal(before, after)


def test_one_client_alone_may_have_any_finite_layers():
    shared, heads, _ = fedmtl_aggregate([[1e300]], [[[-1e300]]], [["a"]], [3], 0.5)
    assert (shared.tolist(), heads[0][0].tolist()) == ([[1e300]], [-1e300])


@pytest.mark.parametrize("own", [[[1j]], [[[1.0], [1.0, 2.0]]]])
def test_heads_that_are_no_numbers_name_their_client(own):
    with pytest.raises(ValueError, match="The heads of client 1 must be vectors of real numbers"):
        fedmtl_aggregate(np.eye(2), [[[1.0]], own], [["a"], ["a"]], [1, 1], 0.5)
