"""Fixtures shared by the tests: where the reference data lie, one thread for small matrices."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def _shared_file(name):
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"needs {name} in the folder shared/data beside the checkout")
    return path


@pytest.fixture
def school_mat():
    """The School data set, ``shared/data/school.mat``."""
    return _shared_file("school.mat")
