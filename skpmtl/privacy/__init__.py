"""Mechanisms, accounting, reports and audits of differential privacy."""

from .report import PrivacyLeakWarning
from .rng import noise_source
