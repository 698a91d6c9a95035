"""No public function of accounting makes a statement out of a number that is none."""

import inspect
import math

import pytest

import skpmtl.privacy as privacy
from skpmtl.privacy import sampling

NAN, INF = math.nan, math.inf
POSITIVE = [NAN, -INF, -1.0, 0.0, INF]
NOT_NEGATIVE = [NAN, -INF, -1.0, INF]
# No noise at all is a limit that holds: mu = inf, epsilon = inf.
LIMIT = [NAN, -INF, -1.0]
FINITE = [NAN, INF, -INF]
COUNT = [NAN, INF, -1, 0, 1.5, True]
ROUNDS = [NAN, INF, -1, 1.5]
OPEN = [NAN, INF, -0.1, 0.0, 1.0]  # a delta, strictly between 0 and 1
HALF_OPEN = [NAN, INF, -0.1, 1.0]  # that may be 0
RATE = [NAN, INF, -0.5, 0.0, 1.5]
LIST = [[NAN], [1.0, NAN], [-1.0, 2.0], [INF], [0.0], []]
ADJACENCY = ["add-remove", None]

MATRIX = {"dimension": (3, COUNT), "sensitivity": (1.0, POSITIVE), "mu": (1.0, POSITIVE)}
PURE = {"dimension": (3, COUNT), "sensitivity": (1.0, POSITIVE), "epsilon": (1.0, POSITIVE)}
CLIP = {"clip_norm": (1.0, POSITIVE + [1e200]), "adjacency": ("zero-out", ADJACENCY)}
SAMPLED = {
    "noise_multiplier": (2.0, POSITIVE),
    "n_rounds": (5, ROUNDS),
    "rate": (1.0, RATE),
    "adjacency": ("zero-out", ADJACENCY),
}
BUDGET = {"epsilon": (1.0, POSITIVE), "delta": (1e-5, OPEN)}
SELECTION = {"n_trials": (3, [NAN, INF, -1, 0, 0.5]), "distribution": ("poisson", ["normal"])}

# Function -> name: (good value, bad values).
FUNCTIONS = {
    privacy.VectorGaussian: MATRIX,
    privacy.SymmetricGaussian: MATRIX,
    privacy.VectorGamma: {**PURE, "n_vectors": (2, COUNT)},
    privacy.second_moment_sensitivity: {**CLIP, "dimension": (3, COUNT)},
    privacy.mean_sensitivity: {
        "clip_norm": (1.0, POSITIVE),
        "denominator": (9.0, POSITIVE),
        "adjacency": ("zero-out", ADJACENCY),
    },
    privacy.check_budget: {
        "epsilon": (1.0, POSITIVE),
        "delta": (None, OPEN),
        "n_tasks": (9, POSITIVE),
    },
    privacy.gdp_delta: {"mu": (1.0, LIMIT), "epsilon": (1.0, FINITE)},
    privacy.gdp_epsilon: {"mu": (1.0, LIMIT), "delta": (1e-5, OPEN)},
    privacy.gdp_mu: {"epsilon": (1.0, LIMIT), "delta": (1e-5, OPEN)},
    privacy.compose_gdp: {"mus": ([1.0, 2.0], [[NAN], [1.0, -1.0], [INF, NAN]])},
    privacy.cb_epsilon: {"epsilons": ([1.0], LIST), "delta": (1e-5, HALF_OPEN)},
    privacy.optimal_pure_delta: {
        "epsilons": ([1.0], LIST),
        "epsilon": (0.5, FINITE),
        "mu": (0.0, LIMIT),
    },
    privacy.optimal_pure_epsilon: {
        "epsilons": ([1.0], LIST),
        "delta": (1e-5, HALF_OPEN),
        "mu": (0.0, NOT_NEGATIVE),
    },
    privacy.pure_epsilon: {"epsilons": ([1.0], LIST), "delta": (1e-5, HALF_OPEN)},
    privacy.pure_epsilons: {
        "epsilon": (1.0, POSITIVE),
        "delta": (1e-5, HALF_OPEN),
        "weights": ([1.0, 2.0], LIST),
    },
    privacy.group_privacy: {
        "epsilon": (1.0, NOT_NEGATIVE),
        "delta": (1e-5, HALF_OPEN),
        "size": (3, COUNT),
    },
    privacy.record_budget: {
        "epsilon": (1.0, POSITIVE),
        "delta": (1e-5, HALF_OPEN),
        "size": (3, COUNT),
    },
    privacy.allocation_weights: {
        "allocation": (0.0, [NAN, INF, ("geometric", NAN), ("geometric", -1.0)]),
        "n_releases": (3, COUNT),
    },
    privacy.release_mus: {"mu": (1.0, POSITIVE), "n_releases": (3, COUNT)},
    privacy.selection_epsilon: {
        "mu": (1.0, NOT_NEGATIVE),
        "delta": (1e-5, OPEN),
        **SELECTION,
    },
    privacy.selection_mu: {**BUDGET, **SELECTION},
    sampling.blocks_mu: {
        "noise_multiplier": (2.0, POSITIVE),
        "n_passes": (5, ROUNDS),
        "adjacency": ("zero-out", ADJACENCY),
    },
    sampling.fixed_size_delta: {**SAMPLED, "epsilon": (1.0, FINITE)},
    sampling.fixed_size_epsilon: {**SAMPLED, "delta": (1e-5, OPEN)},
    sampling.fixed_size_noise: {
        **BUDGET,
        "n_rounds": (5, COUNT),
        "rate": (0.5, RATE),
        "adjacency": ("zero-out", ADJACENCY),
    },
    sampling.poisson_epsilon: {
        **SAMPLED,
        "n_rounds": (5, COUNT),
        "delta": (1e-5, OPEN),
        "group_size": (1, COUNT),
    },
    sampling.poisson_noise: {
        **BUDGET,
        "n_rounds": (5, COUNT),
        "rate": (1.0, RATE),
        "adjacency": ("zero-out", ADJACENCY),
        "group_size": (1, COUNT),
    },
}
# What takes reports, estimators or seeds, and what is no function of numbers.
OTHERS = {
    "AuditResult",
    "LittleFoundWarning",
    "PrivacyLeakWarning",
    "PrivacyReport",
    "audit",
    "compose",
    "grid_search_cost",
    "noise_source",
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_bad_numbers_are_refused_and_those_around_them_taken(function):
    good = {key: number for key, (number, _) in FUNCTIONS[function].items()}
    function(**good)
    for name, (_, bad) in FUNCTIONS[function].items():
        for value in bad:
            with pytest.raises(ValueError):
                function(**{**good, name: value})
                print(f"{name}={value!r} is taken")  # shown where nothing is raised


def test_every_public_function_is_here():
    public = {getattr(privacy, name) for name in privacy.__all__ if name not in OTHERS}
    public |= {
        function
        for name, function in inspect.getmembers(sampling, inspect.isfunction)
        if function.__module__ == sampling.__name__ and name[0] != "_" and name != "accountant_name"
    }
    assert public == set(FUNCTIONS)
    # Every parameter of a function is tried, but for choices among words and flags.
    words = {"norm", "method", "pure", "unit", "allocation"}
    for function, tried in FUNCTIONS.items():
        assert set(inspect.signature(function).parameters) - set(tried) <= words, function


def test_nothing_spent_in_no_rounds():
    assert sampling.fixed_size_epsilon(2.0, 0, 0.5, 1e-5, "zero-out") == 0.0
    assert sampling.blocks_mu(2.0, 0, "zero-out") == 0.0
    assert privacy.gdp_epsilon(INF, 1e-5) == INF and privacy.gdp_delta(INF, 1.0) == 1.0
