"""The study of FedMTL's default rule runs."""

from benchmarks import fedmtl_default


def test_fedmtl_default_quick():
    assert tuple(next(fedmtl_default.measure(quick=True))) == fedmtl_default.FIELDS
