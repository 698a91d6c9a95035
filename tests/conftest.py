"""Fixtures shared by the tests: where the reference data lie, tables with a task column."""

import gc
from pathlib import Path

import numpy as np
import pytest

from tests.rounding import change_tables

GOLDEN = (5**0.5 - 1) / 2
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser):
    parser.addoption("--rounding", type=int, metavar="SEED", help="other last bits in all tables")
    parser.addoption("--part", metavar="K/N", help="every N-th of the cases, those of part K < N")


def pytest_configure(config):
    if config.option.rounding is not None:
        change_tables(config.option.rounding)
    if config.option.part:
        config.pluginmanager.register(Part(config.option.part))


def pytest_runtest_setup(item):
    mark = item.get_closest_marker("exact_bits")
    if mark and item.config.option.rounding is not None:
        pytest.skip(f"needs its numbers bit by bit: {mark.args[0]}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    """Thousands of cases are made that stay: the garbage collector need not walk them, ever."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(items):
    """Most of the cases of tests that are marked ``spread`` become slow ones."""
    alike = {}
    for item in items:
        if item.get_closest_marker("spread") and not item.get_closest_marker("slow"):
            alike.setdefault((item.parent.nodeid, item.originalname), []).append(item)
    for cases in alike.values():
        n = min(cases[0].get_closest_marker("spread").args[0], len(cases))
        # One of every n-th part, at changing places: equal steps would keep to one value of a
        # parameter whose values take turns.
        kept = {int((k + k * GOLDEN % 1) * len(cases) / n) for k in range(n)}
        for k, item in enumerate(cases):
            if k not in kept:
                item.add_marker("slow")


class Part:
    """Every N-th of the cases that are left when slow ones are out."""

    def __init__(self, text):
        self.k, self.n = map(int, text.split("/"))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        kept, left = [], []
        for i, item in enumerate(items):
            # One place further in every round, as values of a parameter may take turns.
            (kept if (i + i // self.n) % self.n == self.k else left).append(item)
        items[:] = kept
        config.hook.pytest_deselected(items=left)


@pytest.fixture
def shared_data():
    """The folder shared/data beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("needs the folder shared/data beside the checkout")
    return SHARED


@pytest.fixture
def school_mat(shared_data):
    """The School data set, ``shared/data/school.mat``."""
    path = shared_data / "school.mat"
    if not path.is_file():
        pytest.skip("needs school.mat in the folder shared/data beside the checkout")
    return path


@pytest.fixture
def school_like():
    """Function that makes a frame with a string column "school", in random order, and y.

    Coefficients of the schools scatter around common ones; the noise is small.
    """
    import pandas as pd

    def make(n_tasks=8, n_features=4, rows=(15, 40), seed=0):
        rng = np.random.default_rng(seed)
        task = rng.permutation(np.repeat(np.arange(n_tasks), rng.integers(*rows, n_tasks)))
        X = rng.normal(size=(len(task), n_features))
        W = rng.normal(size=n_features) + 0.3 * rng.normal(size=(n_tasks, n_features))
        y = np.einsum("ij,ij->i", X, W[task]) + 0.1 * rng.normal(size=len(task))
        frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(n_features)])
        frame.insert(1, "school", [f"s{t:03d}" for t in task])
        return frame, pd.Series(y, name="score")

    return make
