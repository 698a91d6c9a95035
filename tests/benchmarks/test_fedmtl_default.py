"""The study of FedMTL's default rule runs."""

import pytest

from benchmarks import fedmtl_default


def test_fedmtl_default_quick():
    row = next(fedmtl_default.measure(quick=True))
    assert tuple(row) == fedmtl_default.FIELDS
    assert row["ahead"] == pytest.approx(row["heads_by_similarity"] - row["per_task"], abs=2e-4)
