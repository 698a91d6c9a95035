"""The curator of mean-regularised rounds, to whom chosen releases are played."""

import math
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skpmtl import PrivateMeanRegMTL
from skpmtl.exchange.protocol import Population
from skpmtl.mean_regularized import errors as standard_errors
from skpmtl.reproduction import PublishedMeanRegMTL
from skpmtl.rounds.plan import BINS
from tests.helpers.data import covariates
from tests.helpers.noisy_rounds import kept_part
from tests.helpers.sites import play

M, D = 90, 5
CLUSTERS = {k: "ab"[k % 3 == 0] for k in range(M)}
RELATION = covariates(np.random.default_rng(3).normal(size=(M, 2)))
RANGE = {"unseen_task": "mean", "target_range": (-4.0, 10.0)}
INIT = {"init": {"coef": np.arange(5.0), "intercept": 2.5}}
BY_HAND = {"clip_norm": 0.7, "n_rounds": 12}
GIVEN = {"epsilon": 8.0, "delta": 1e-5, "tasks": range(M)}
OURS, PUBLISHED = partial(PrivateMeanRegMTL, levels="free"), PublishedMeanRegMTL


@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (PUBLISHED, {**BY_HAND, "server_learning_rate": 0.5, "unseen_task": "mean"}),
        (PUBLISHED, {**BY_HAND, "relation": RELATION, "epsilon": None}),
        (PUBLISHED, {**BY_HAND, "clusters": CLUSTERS}),
        (OURS, {**RANGE, **INIT}),
        (OURS, {**RANGE, "clusters": CLUSTERS, "standard_errors": True}),
        (OURS, {**RANGE, "relation": RELATION, "standard_errors": True}),
    ],
)
def test_a_billboard_follows_from_its_releases(cls, options, common):
    """Centres are the sums of moves, shrunk once by their known noise; and intercepts follow."""
    rng, centres = np.random.default_rng(0), []
    target = rng.normal(30.0 if "relation" in options else 2.0, 1.0, size=D)
    est = cls(**{**GIVEN, **options})
    population, private = Population(np.arange(M), D), est.epsilon is not None
    by_rule = private and est.clip_norm == "auto"

    def release(query, name, mechanism):
        if name == "bins":  # most tasks have models of length 8, or no length stands out
            return 0.75 * M * (BINS == 3.0) if common else np.full(len(BINS), M / len(BINS))
        if name == "update":
            centres.append(query.public["centre"].copy())
            return (0.5 * (target - centres[-1]) + rng.normal(0.0, 0.1, (len(step), D))) / step
        return rng.normal(0.3, 0.1, size=mechanism.shape)

    # Means over all tasks become means over those of each centre, or sums of a relation.
    to = est._to(population, True)
    reach = M / np.bincount(to) if to.ndim == 1 else np.full(to.shape[1], float(M))
    step = options.get("server_learning_rate", 1.0) * reach[:, None]
    board, queries, replies = play(est, population, release)
    plan = est._plan(population, est._relation(population))
    length = 8.0 if by_rule and common else None
    errors, mean = options.get("standard_errors") and common, "unseen_task" in options
    assert [query.statistic for query in queries] == (
        ["length"] * by_rule
        + ["update"] * plan.n_rounds
        + ["deviation"] * bool(errors)
        + ["intercept"] * mean
    )
    assert board.own_units == (by_rule and not common)
    found = [value for reply in replies for value in reply.values()]
    for kept, sent in zip(board.releases, found, strict=True):
        assert_array_equal(kept, sent if kept.ndim == sent.ndim else sent[0])

    assert_allclose(board.step, step)
    rounds = [pair for pair in zip(queries, replies, strict=True) if pair[0].statistic == "update"]
    bounds, moves, noise = plan.bounds(length), [], []
    for t, (query, reply) in enumerate(rounds):
        assert_allclose(centres[t], np.sum(moves, axis=0) if moves else np.zeros_like(centres[0]))
        assert query.public["own_units"] == board.own_units and query.divide == M
        clip = query.public["clip_norm"]
        assert clip == (pytest.approx(bounds[t]) if private else math.inf)
        if private:
            assert query.mechanisms["update"].sensitivity == pytest.approx(2.0 * clip / M)
            noise.append(query.mechanisms["update"].noise_std * step[:, 0])
        moves.append(step * reply["update"])
    total = np.sum(moves, axis=0)
    assert board.clip_norms == [query.public["clip_norm"] for query, _ in rounds]
    if private:
        chance = np.zeros(len(reach))
        if to.ndim > 1:
            chance = 2.0 * (length or 1.0) ** 2 * np.sum(to**2, axis=0)
        each = [np.array(moves).transpose(1, 0, 2), total, np.array(noise).T, chance]
        factor, left = np.array([kept_part(*one) for one in zip(*each, strict=True)]).T
        assert_allclose(board.shrinkage, factor)
        assert (factor < 1.0).any() and (factor > 0.0).any()
        factor = factor if by_rule else np.ones(len(factor))
        assert_allclose(board.noise_std, left * factor)
        total = factor[:, None] * total
        entries = [e for e in board.report.releases if e["name"].startswith("round")]
        assert [e["noise_std"] for e in entries] == [
            query.mechanisms["update"].noise_std for query, _ in rounds
        ]
    assert_allclose(board.centres, total)
    assert_allclose(board.alone_weight, plan.alone_weight)

    if mean:  # in the unit of targets, of whose range the middle was taken away
        query, sent = queries[-1], found[-1]
        middle, bound = (3.0, 7.0) if by_rule and "init" not in options else (0.0, 0.7)
        bound = 7.0 if by_rule else bound
        assert (query.public["middle"], query.public["clip_norm"]) == (middle, bound)
        assert query.divide == M
        middle += 2.5 if "init" in options else 0.0
        shift = sent.reshape(len(reach), 1) * reach[:, None]
        shift += middle * (board.relation.of_constant[:, None] if to.ndim > 1 else 1.0)
        assert_allclose(np.atleast_2d(board.mean_intercept), shift)
        far = np.array([[1e9]] + [[0.0]] * (M - 1))
        assert np.linalg.norm(query.combine({"intercept": far})["intercept"]) <= bound * (1 + 1e-9)
    if "standard_errors" in options:
        assert (board.errors.reason is None) == common
        assert errors or "common bin" in board.errors.reason
    if errors:  # at the centres as they are before they are shrunk
        transform = board.relation.transform if to.ndim > 1 else np.eye(2)
        assert_allclose(board.errors.estimate, transform @ np.sum(moves, axis=0))
        (query,) = [query for query in queries if query.statistic == "deviation"]
        assert_allclose(query.public["centre"], np.sum(moves, axis=0))
        (sent,) = [reply["deviation"] for reply in replies if "deviation" in reply]
        std, first = query.mechanisms["deviation"].noise_std, board.clip_norms[0]
        found = standard_errors.read(sent, std, M, np.shape(moves)[-1], first)
        rate = options.get("server_learning_rate", 1.0)
        left = found.noise_left(np.array(noise), board.clip_norms, rate)
        assert_allclose(board.errors.noise_std**2, transform**2 @ left**2)
        # of the mean over the tasks of each centre, or of the sums of a relation
        of_one = np.diag(1.0 / np.bincount(to)) if to.ndim == 1 else to.T @ to
        own = np.multiply.outer(
            np.diag(transform @ of_one @ transform.T),
            found.differences(board.clip_norms[-1]) ** 2,
        )
        way = found.way_left(board.clip_norms, rate)
        ahead = board.errors.estimate * way / np.maximum(1.0 - way, 0.1)
        assert_allclose(board.errors.std**2, own + board.errors.noise_std**2 + ahead**2)
        assert (own > 0.0).all()
    else:
        assert board.errors is None or board.errors.std is None


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("given", [{}, INIT])
def test_errors_of_a_course_are_in_the_units_of_its_targets(given, columns):
    """Of a pooled model whose level is in the unit of the window, and slopes over their scale."""
    rng = np.random.default_rng(1)
    est = OURS(**{**GIVEN, **RANGE, "epsilon": 40.0, "standard_errors": True, **given})
    est.set_params(levels="auto")

    def release(query, name, mechanism):
        if name == "pooled":
            return 0.5 * (0.2 - query.public["theta"][0]) + rng.normal(0.0, 0.01, D + 1)
        if name == "columns":
            return np.array([0.5 * M if columns else -0.5 * M])
        if name == "octaves":  # one column of each power of 4
            return M * (np.arange(80) == 40 + 2 * np.arange(D)[:, None]).ravel().astype(float)
        if name == "scale":
            return M * (np.arange(80) == 41.0)
        return 0.1 * M * rng.uniform(size=mechanism.shape)

    board, queries, replies = play(est, Population(np.arange(M), D), release)
    assert sum(est._course(Population(np.arange(M), D))[0].budget_shares.values()) == (
        pytest.approx(1.0)
    )
    asked = {q.statistic: q.public | {"of": q.mechanisms} for q in queries}
    assert list(asked)[-1] == "deviation" and ("octaves" in asked) == columns
    ways = [reply["pooled"] for reply in replies if "pooled" in reply]
    rounds = [q for q in queries if q.statistic == "pooled"]
    theta = np.sum(ways, axis=0)
    for t, query in enumerate(rounds):
        assert_allclose(query.public["theta"], [np.sum(ways[:t], axis=0) if t else np.zeros(D + 1)])
    last = asked["deviation"]
    assert_allclose(last["theta"], [theta])
    middle, unit = 0.0 if given else 3.0, 7.0
    assert (last["middle"], last["unit"]) == (middle, unit)
    of_columns = board.column_scale if columns else np.ones(D)
    assert (columns and np.ptp(of_columns) > 0) or not columns
    units = np.append(unit, unit / (last["scale"] * of_columns))
    bounds = [q.public["clip_norm"] for q in rounds]
    stds = np.array([[q.mechanisms["pooled"].noise_std] for q in rounds])
    found = standard_errors.read(
        replies[-1]["deviation"], last["of"]["deviation"].noise_std, M, D + 1, 2.0 * bounds[0]
    )
    left = found.way_left(bounds)
    variance = found.differences(bounds[-1]) ** 2 / M + found.noise_left(stds, bounds)[0] ** 2
    ahead = theta * left / np.maximum(1.0 - left, 0.1)
    std = units * np.sqrt(variance + ahead**2)
    estimate = units * theta + middle * np.eye(D + 1)[0]
    if given:
        estimate += np.append(2.5, np.arange(5.0))
    assert_allclose(board.errors.estimate, [np.roll(estimate, -1)])
    assert_allclose(board.errors.std, [np.roll(std, -1)])
    assert board.errors.dof == found.dof
