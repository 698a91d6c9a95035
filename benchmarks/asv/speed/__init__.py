"""Benchmarks in the form of airspeed velocity; `benchmarks.compare` runs them as well."""
