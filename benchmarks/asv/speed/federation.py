"""A federated fit with the real Flower apps in one process."""

import importlib.util
import logging
import shutil
import tempfile
import warnings
from pathlib import Path

from .tables import cpu_seconds


class Federated:
    """Skipped where Flower is not installed, or where the repository has another form."""

    timer = staticmethod(cpu_seconds)
    number, repeat, warmup_time = 1, 5, 0.0

    def setup(self):
        if any(importlib.util.find_spec(name) is None for name in ("flwr", "pytest", "tests")):
            raise NotImplementedError("needs skpmtl[flower], pytest and the folder tests")
        from skpmtl.federated.server import curate
        from tests.helpers.federated_cases import study_of
        from tests.helpers.federated_grid import InProcessGrid

        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        self.curate, self.grid = curate, InProcessGrid
        self.study = study_of("rounds")

    def time_study(self):
        folder = Path(tempfile.mkdtemp())
        try:
            self.curate(self.grid(self.study, folder), self.study, folder / "curator")
        finally:
            shutil.rmtree(folder)
