"""Measurements: ``python -m benchmarks.run peers``."""
