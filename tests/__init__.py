"""Tests, in folders that mirror those of the package; what several of them use is in helpers."""
