"""Moments in parts: always priors, and block rounds lead to the subspace that tasks share."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import subspace_angles

from skpmtl import MPMTLLowRank, PrivateMTL
from skpmtl.datasets import load_school
from skpmtl.engine.billboard import StructureBillboard
from skpmtl.engine.refine import Refinement, read_rivals
from skpmtl.engine.spectrum import (
    FLOORS,
    RIVAL_FLOORS,
    STEPS,
    WEIGHTS_OF_NEW,
    Spectrum,
    in_blocks,
    sum_of_blocks,
)
from skpmtl.engine.votes import Tally, differences_of, evidences, sum_of_differences
from skpmtl.exchange.protocol import Population, Query
from skpmtl.privacy.mechanisms import SymmetricGaussian, second_moment_sensitivity
from skpmtl.privacy.moments import shrink_matrix
from skpmtl.tables.table import TaskTable

SETTINGS = {"fit_intercept": True}


def spectrum_of(d=12, k=3, m=400, std=4.0, seed=0):
    """Of m directions near a subspace of rank k, and the noise of a release."""
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.normal(size=(d, d)))[0][:, :k]
    u = rng.normal(size=(m, k)) @ U.T + 0.3 * rng.normal(size=(m, d))
    u /= np.linalg.norm(u, axis=1)[:, None]
    noise = rng.normal(size=(d, d))
    S = u.T @ u + std * (noise + noise.T) / 2.0
    return S, Spectrum.of(S, std / math.sqrt(2.0), float(m), 0.5, 3.0), U


def assert_is_prior(M):
    assert np.trace(M) == pytest.approx(1.0, abs=1e-10)
    assert_allclose(M, M.T, atol=1e-14)
    assert np.linalg.eigvalsh(M)[0] > -1e-14


def assert_is_spectrum(found, rank):
    d = len(found.spikes)
    assert found.rank == rank and (found.spikes >= 0).all() and (found.floor > 0).all()
    assert_allclose(found.Q.T @ found.Q, np.eye(d), atol=1e-9)
    assert_allclose(found.basis.T @ found.basis, np.eye(d), atol=1e-9)
    for floor in FLOORS:
        assert_is_prior(found.moment(floor))
    # Directions that stand out are the top ones at any floor, and first in the basis.
    top = np.linalg.eigh(found.moment(FLOORS[-1]))[1][:, -rank:]
    assert np.sin(subspace_angles(top, found.basis[:, :rank])).max(initial=0.0) < 1e-6


def test_parts_are_those_of_the_shrunk_moment():
    S, found, U = spectrum_of(std=2.0)
    whole = shrink_matrix(S, 2.0 / math.sqrt(2.0), 400.0, 0.5, 3.0) / 400.0
    assert_allclose(found.moment(), whole, atol=1e-12)
    assert_is_spectrum(found, 3)
    assert np.degrees(subspace_angles(found.basis[:, :3], U)).max() < 15.0


@pytest.mark.parametrize("d, k", [(12, 3), (30, 7), (4, 1), (3, 1)])
def test_all_candidates_are_priors(d, k):
    found, rng = spectrum_of(d, k)[1], np.random.default_rng(1)
    k = found.rank
    assert k > 0
    ranks, fewer = found.of_ranks()
    assert ranks == sorted(ranks, reverse=True) and ranks[0] <= max(d // 4, 1) and ranks[-1] == 1
    for j, other in zip(ranks, fewer, strict=True):
        assert_is_spectrum(other, j)
        assert_allclose(other.basis[:, :j], found.Q[:, -j:])
    for scale in (1e-3, 1.0, 1e3):
        step = scale * rng.normal(size=(d, k))
        for a in STEPS:
            assert_is_spectrum(found.moved(a * step), k)
    j = min(2, d - k)
    E, sizes = found.basis[:, k : k + j], np.array([1.0, 0.3])[:j]
    for weight in WEIGHTS_OF_NEW:
        grown = found.grown(E, sizes, weight)
        assert_is_spectrum(grown, min(k + j, d - 1) if weight else k)


def test_directions_move_by_a_step_and_keep_what_they_hold():
    found, rng = spectrum_of()[1], np.random.default_rng(2)
    k, step = found.rank, 0.2 * rng.normal(size=(12, found.rank))
    moved = found.moved(step)
    angles = subspace_angles(moved.basis[:, :k], found.Q[:, -k:] + step)
    assert np.sin(angles).max() < 1e-7
    assert moved.spikes.sum() == pytest.approx(found.spikes.sum())
    same = found.moved(0.0 * step)
    assert_allclose(same.moment(1e-4), found.moment(1e-4), atol=1e-4)


def test_new_directions_hold_their_part():
    """`weight` times the mean of the old ones, over all; the total stays."""
    found = spectrum_of()[1]
    k, total, e = found.rank, found.spikes.sum(), found.basis[:, found.rank :][:, :1]
    grown = found.grown(e, np.array([5.0]), 0.4)
    F = (grown.Q * grown.spikes) @ grown.Q.T
    assert np.trace(F) == pytest.approx(total)
    share = (e.T @ F @ e).item()
    assert share == pytest.approx(total * (0.4 / k) / (1.0 + 0.4 / k), rel=1e-6)


def test_directions_of_tiny_weight_are_left_out():
    """As part of a subspace their eigenvectors would be rounding errors."""
    found = spectrum_of()[1]
    assert found.grown(found.basis[:, found.rank :][:, :1], np.array([5.0]), 1e-13) is found


@pytest.mark.parametrize("cls", [PrivateMTL, MPMTLLowRank])
def test_exact_models_do_not_depend_on_last_bits(cls):
    """On School the votes give further directions almost no weight."""
    rng, school = np.random.default_rng(0), load_school()
    y = school.target * (1.0 + 2e-16 * rng.standard_normal(len(school.target)))
    one, other = (cls(epsilon=None).fit(school.data, t, school.task) for t in (school.target, y))
    assert_allclose(one.coef_, other.coef_, atol=1e-6 * np.abs(one.coef_).max())


# ------------------------------------------------------------------------ rounds of blocks
def test_blocks_are_two_directions():
    rng = np.random.default_rng(3)
    W = rng.normal(size=(5, 7)) * 10.0 ** np.array([[0], [5], [-5], [300], [0]])
    W[4, :2] = 0.0
    found = in_blocks(W, 2)
    assert_allclose(np.linalg.norm(found[:, :2], axis=1), [0.5**0.5] * 4 + [0.0])
    assert_allclose(np.linalg.norm(found[:, 2:], axis=1), [0.5**0.5] * 5)
    assert_allclose(
        found[0, :2] / np.linalg.norm(found[0, :2]), W[0, :2] / np.linalg.norm(W[0, :2])
    )
    several = in_blocks(rng.normal(size=(5, 3, 7)), 2)
    assert_allclose(np.linalg.norm(several.reshape(5, -1), axis=1), 1.0)


@pytest.mark.parametrize("adjacency, factor", [("replace-one", 1.0), ("zero-out", 0.0)])
def test_the_sensitivity_of_blocks_is_reached_and_not_passed(adjacency, factor):
    d, rng = 5, np.random.default_rng(4)
    bound = second_moment_sensitivity(1.0, adjacency, dimension=d)
    assert bound == pytest.approx(math.sqrt(2.0) if factor else 1.0)
    assert SymmetricGaussian(d, bound, 1.0).sensitivity == bound

    def block(u):
        return sum_of_blocks({"block": np.array([u])})["block"]

    far = block(1e6 * np.eye(d)[0]) - factor * block(np.eye(d)[1])
    assert bound * (1.0 - 1e-9) < np.linalg.norm(far) <= bound * (1.0 + 1e-12)
    for _ in range(200):
        u, v = 10.0 ** rng.uniform(-3, 3, size=(2, 1)) * rng.normal(size=(2, d))
        assert np.linalg.norm(block(u) - factor * block(v)) <= bound
    for broken in (np.nan, np.inf, -np.inf):
        assert not block([1.0, broken, 0.0, 0.0, 0.0]).any()
    assert np.linalg.norm(block(np.full(d, 1e300))) <= 1.0


def test_a_step_is_read_from_blocks():
    """Tasks of (U + C b) c, whose part outside is b c up to a number of their own."""
    rng, m, d, k = np.random.default_rng(5), 4000, 8, 2
    found = spectrum_of(d, k)[1]
    assert found.rank == k
    b, c = rng.normal(size=(d - k, k)), rng.normal(size=(m, k))
    models = np.hstack([c, 0.01 * rng.uniform(0.5, 2.0, size=(m, 1)) * (c @ b.T)])
    S = sum_of_blocks({"block": in_blocks(models, k)})["block"]
    step, E, sizes = found.read_block(S, 1e-6, 0.5, 0.0, m)
    wanted = found.basis[:, k:] @ b
    cosine = (step * wanted).sum() / np.linalg.norm(step) / np.linalg.norm(wanted)
    assert cosine > 0.95
    assert E.shape == (d, len(sizes)) and np.abs(found.basis[:, :k].T @ E).max(initial=0) < 1e-9


def few_rows(m=600, n=5, d=20, k=2, noise=0.3, seed=6):
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.normal(size=(d, k)))[0]
    X, W = rng.normal(size=(m, n, d)), rng.normal(size=(m, k)) @ U.T
    y = 3.0 + np.einsum("kid,kd->ki", X, W) + noise * rng.normal(size=(m, n))
    return TaskTable(X.reshape(-1, d), y.ravel(), np.arange(m + 1) * n, np.arange(m)), U


@pytest.fixture(scope="module")
def refined():
    """A moment of few rows without noise, and after every part of its refinement."""
    table, U = few_rows()
    m, d = table.n_tasks, table.n_features
    tasks = PrivateMTL(epsilon=None)._task_side(table, Population(table.tasks, d))
    asked = []

    def vote(share, priors, what):
        asked.append(what)
        sent = differences_of(evidences(table, priors, 1.5, **SETTINGS))
        return sum_of_differences("evidence")({"evidence": sent})["evidence"], 0.0
        yield

    def block(share, moment, basis, rank):
        asked.append("block")
        public = {
            "snr_centre": 1.5,
            "snr_spread": 0.5,
            "moment": moment,
            "basis": basis,
            "rank": rank,
        }
        sent = tasks.contributions(Query("block", public, {"block": None}, sum_of_blocks))
        return sum_of_blocks(sent)["block"], 0.0
        yield

    def complete(steps):
        assert list(steps) == []

    billboard = StructureBillboard.empty(m, d)
    query = Query("moment", {"billboard": billboard}, {"moment": None}, None)
    u = tasks.contributions(query)["moment"]
    refinement, found = Refinement(m, 0.5, vote, block), []
    complete(refinement.sharpen(u.T @ u, 0.0, ("rank", "floor", "rival"), (), True))
    found.append((refinement.spectrum, refinement.moment))
    for _ in range(2):
        complete(refinement.block_round("main", ("a", "b", "c")))
        found.append((refinement.spectrum, refinement.moment))
    return table, U, u, found, asked


def test_few_rows_find_the_rank_and_sharpen_the_moment(refined):
    table, U, u, found, asked = refined
    spectrum, moment = found[0]
    assert spectrum.rank == U.shape[1]
    inside = np.trace(U.T @ (u.T @ u) @ U) / len(u)
    assert inside < 0.6  # of what the moment itself says
    assert np.trace(U.T @ moment @ U) > 0.8
    assert asked[:2] == ["rank", "floor"]


def test_rounds_of_blocks_lead_to_the_subspace(refined):
    table, U, _, found, asked = refined
    errors = []
    for spectrum, moment in found:
        assert_is_prior(moment)
        angles = subspace_angles(spectrum.basis[:, : U.shape[1]], U)
        errors.append(np.sin(angles).max())
    assert errors[1] < 0.7 * errors[0] and errors[2] < 1.05 * errors[1]
    logs = evidences(table, [moment for _, moment in found], 1.5, **SETTINGS).sum(axis=0)
    assert (np.diff(logs) > 0).all()
    assert asked.count("block") == 2 == asked.count("step")


def test_unrelated_tasks_are_not_sharpened():
    """Rank is voted down where tasks share nothing, whatever the sample shows."""
    rng, m, n, d = np.random.default_rng(7), 300, 6, 16
    X, W = rng.normal(size=(m, n, d)), rng.normal(size=(m, d))
    y = np.einsum("kid,kd->ki", X, W) + 0.3 * rng.normal(size=(m, n))
    table = TaskTable(X.reshape(-1, d), y.ravel(), np.arange(m + 1) * n, np.arange(m))

    def vote(share, priors, what):
        sent = differences_of(evidences(table, priors, 1.5, **SETTINGS))
        return sum_of_differences("evidence")({"evidence": sent})["evidence"], 0.0
        yield

    u = np.linalg.pinv(X) @ y[..., None]
    u = u[..., 0] / np.linalg.norm(u[..., 0], axis=1)[:, None]
    refinement = Refinement(m, 0.5, vote, None)
    for S in (u.T @ u, u.T @ u + 40.0 * np.outer(np.eye(d)[0], np.eye(d)[0])):
        assert list(refinement.sharpen(S, 0.0, "abc")) == []
        assert refinement.spectrum is None


@pytest.mark.parametrize("best", [0, 1, 3])
def test_rivals_are_read_at_their_likeliest_floor(best):
    """Log odds are those at the floor that tasks are likelier under, whatever the others say."""
    total = np.append(0.0, -50.0 * np.abs(np.arange(len(RIVAL_FLOORS)) - best) + 20.0)
    tally = Tally(np.diff(total), 1.0, len(total))
    odds, floor = read_rivals(tally)
    assert odds == pytest.approx(20.0, abs=0.1)
    assert floor == pytest.approx(RIVAL_FLOORS[best], rel=0.1)
    unclear, floor = read_rivals(Tally(np.diff(total), 1e9, len(total)))
    assert RIVAL_FLOORS[-1] < floor < RIVAL_FLOORS[0]  # the public prior
