"""Whatever is released, a course spends what its plan says: curators on releases of chance."""

import math
from collections import defaultdict

import numpy as np
import pytest
from scipy.stats import norm

from skpmtl import PrivateMTL, PrivateMTLClassifier
from skpmtl.engine.plan import STRUCTURES
from skpmtl.exchange.protocol import Population
from skpmtl.privacy.rng import noise_source
from tests.helpers.courses import course_of

SUBSETS = [
    STRUCTURES,
    STRUCTURES,
    ("low-rank",),
    ("mean",),
    ("low-rank", "mean"),
    ("sparse",),
    ("sparse", "mean"),
]


# Numbers with branches of their own that are rare among others: (parameters, m, d).
RARE = (
    ({"epsilon": 1.0, "target_range": (-5.0, 15.0)}, 200, 30),
    ({"epsilon": 10.0}, 400, 12),
    ({"epsilon": 10.0, "adjacency": "zero-out"}, 400, 12),
    ({"epsilon": 3.0, "structure": "mean"}, 200, 6),
    ({"epsilon": 10.0, "structure": "groups"}, 400, 12),
    (
        {
            "epsilon": 10.0,
            "structure": ["low-rank", "groups"],
            "adjacency": "zero-out",
            "target_range": (-5.0, 15.0),
        },
        400,
        12,
    ),
    ({"epsilon": 30.0, "structure": "groups", "target_range": (-5.0, 15.0)}, 400, 12),
    ({"epsilon": 5.0, "structure": "groups", "target_range": (-5.0, 15.0)}, 400, 12),
    ({"epsilon": 10.0, "structure": "groups", "loss": "poisson"}, 400, 12),
)


def drawn_estimator(rng):
    """Parameters of chance; all the branches that follow from them."""
    cls = PrivateMTLClassifier if rng.uniform() < 0.25 else PrivateMTL
    options = {
        "structure": list(SUBSETS[rng.integers(len(SUBSETS))]),
        "levels": ["auto", "auto", "auto", "free", "pooled"][rng.integers(5)],
        "epsilon": float(rng.choice([0.05, 0.3, 1.0, 3.0, 10.0, 30.0])),
        "adjacency": ["replace-one", "zero-out"][rng.integers(2)],
        "curator": ["trusted", "trusted", "servers", ("servers", 3)][rng.integers(4)],
        "unseen_task": ["error", "mean"][rng.integers(2)],
        "fit_intercept": bool(rng.uniform() < 0.85),
    }
    if cls is PrivateMTL and (options["unseen_task"], options["adjacency"]) == ("mean", "zero-out"):
        options["uncertainty"] = "unseen"
    if cls is PrivateMTL and rng.uniform() < 0.4:
        options["target_range"] = (-5.0, 15.0)
    m, d = int(rng.choice([20, 200, 200, 2000])), int(rng.choice([2, 6, 16]))
    C = 1 if cls is PrivateMTL or rng.uniform() < 0.7 else 3
    return cls(**options), Population(np.arange(m), d, C)


@pytest.mark.filterwarnings("ignore:Intervals of tasks without rows")
def test_courses_spend_what_their_plans_say():
    """mu^2 by budget share and in total, by the mechanisms of what is yielded; on all branches."""
    seen, ran = set(), 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        est, population = drawn_estimator(rng)
        if seed % 10 < len(RARE):
            options, m, d = RARE[seed % 10]
            est, population = PrivateMTL(**options), Population(np.arange(m), d)
        m = population.n_tasks
        try:
            plan, course, queries = course_of(est, population, rng)
        except ValueError as error:  # a public rule: too few tasks for a window, and no range
            assert est.levels == "pooled" or est.unseen_task == "mean"
            assert "target_range=(low, high)" in str(error)
            seen.add("refused")
            continue
        ran += 1
        assert [mechanism for _, _, mechanism in course.made] == [m_ for _, m_ in queries]
        spent, parts = defaultdict(float), defaultdict(list)
        for (share, words, _), (query, mechanism) in zip(course.made, queries, strict=True):
            # The noise that is added is the sensitivity over mu, so that mu is what it costs.
            assert mechanism.noise_std * mechanism.mu == pytest.approx(
                mechanism.sensitivity, rel=1e-6
            )
            spent[share] += mechanism.mu**2
            parts[share].append(mechanism.mu**2)
            assert share in plan.budget_shares and "None" not in words
        for share, squared in spent.items():
            whole = plan.budget_shares[share] * plan.mu**2
            assert squared <= whole * (1.0 + 1e-9)
            halves = share in ("refine", "group spread", "group cells")
            halves |= share == "comparison 2" and len(parts[share]) == 2
            halves |= share == "pooled" and course.window is None
            # The histogram of levels, and the vote on it; and what zooms have of the rounds.
            halves |= share == "window" or len(parts["pooled"]) > 30
            halves |= share == plan.columns_from[0] and course.pays_for_columns
            if not halves:  # everything or nothing, in equal parts
                assert squared == pytest.approx(whole, rel=1e-9)
                assert np.ptp(parts[share]) <= 1e-9 * whole
        shares = plan.budget_shares.values()
        assert not shares or sum(shares) == pytest.approx(1.0, abs=1e-12)
        total = sum(spent.values())
        assert total <= plan.mu**2 * (1.0 + 1e-9)
        # Those who hold the noise of all dishonest servers see less of it.
        P = est._n_servers
        if total:
            mu, epsilon = math.sqrt(total * P), est.epsilon
            delta = norm.cdf(mu / 2 - epsilon / mu)
            delta -= math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
            assert delta <= plan.delta * (1.0 + 1e-6)
        report = plan.report(noise_source(None), (course.made, course.billboard.shares, {}))
        listed = defaultdict(float)
        for entry in report.releases:
            listed[entry["name"]] += entry["mu"] ** 2
        assert {s: pytest.approx(v / P) for s, v in listed.items()} == dict(spent)
        assert len(report.releases) == len(course.billboard.releases) == len(queries)
        seen |= {query.statistic for query, _ in queries}
    assert ran >= 50 and seen >= {"refused", "octaves", "mixtures", "spread"}, seen


def test_plans_do_not_see_what_was_released():
    """Order, number and sizes of budget shares are the same for all releases; some are left out."""
    est = PrivateMTL(epsilon=10.0)
    population, orders = Population(np.arange(400), 12), []
    for seed in range(12):
        plan, course, _ = course_of(est, population, np.random.default_rng(seed))
        orders.append((plan.budget_shares, [share for share, _, _ in course.made]))
    shares = orders[0][0]
    assert all(other == shares for other, _ in orders) and "refine" in shares
    assert len({tuple(dict.fromkeys(order)) for _, order in orders}) > 3


def test_a_course_is_a_function_of_its_releases():
    """The same releases, the same queries: what is asked follows from nothing else."""
    est, population = PrivateMTL(epsilon=10.0), Population(np.arange(400), 12)
    two = [course_of(est, population, np.random.default_rng(5)) for _ in range(2)]
    for (one, _), (other, _) in zip(two[0][2], two[1][2], strict=True):
        assert one.statistic == other.statistic and one.public.keys() == other.public.keys()
        for key, value in one.public.items():
            if isinstance(value, np.ndarray | float | int):
                np.testing.assert_array_equal(value, other.public[key])
