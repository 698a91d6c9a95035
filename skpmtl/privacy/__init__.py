"""Mechanisms, accounting, reports and audits of differential privacy."""

from .accounting import (
    cb_epsilon,
    check_budget,
    compose_gdp,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    group_privacy,
    optimal_pure_delta,
    optimal_pure_epsilon,
    pure_epsilon,
    pure_epsilons,
    record_budget,
)
from .allocation import allocation_weights, release_mus
from .audit import AuditResult, audit
from .composition import compose, grid_search_cost
from .mechanisms import (
    SymmetricGaussian,
    VectorGamma,
    VectorGaussian,
    mean_sensitivity,
    second_moment_sensitivity,
)
from .report import LittleFoundWarning, PrivacyLeakWarning, PrivacyReport
from .rng import noise_source
from .selection import selection_epsilon, selection_mu

__all__ = [
    "AuditResult",
    "LittleFoundWarning",
    "PrivacyLeakWarning",
    "PrivacyReport",
    "SymmetricGaussian",
    "VectorGamma",
    "VectorGaussian",
    "allocation_weights",
    "audit",
    "cb_epsilon",
    "check_budget",
    "compose",
    "compose_gdp",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "grid_search_cost",
    "group_privacy",
    "mean_sensitivity",
    "noise_source",
    "optimal_pure_delta",
    "optimal_pure_epsilon",
    "pure_epsilon",
    "pure_epsilons",
    "record_budget",
    "release_mus",
    "second_moment_sensitivity",
    "selection_epsilon",
    "selection_mu",
]
__dir__ = __all__.copy
