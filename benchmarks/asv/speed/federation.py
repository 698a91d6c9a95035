"""A federated fit with real sites in one process."""

import importlib.util
import logging
import shutil
import tempfile
import warnings
from pathlib import Path

from .tables import cpu_seconds


class Federated:
    """Skipped where the repository has another form."""

    timer = staticmethod(cpu_seconds)
    number, repeat, warmup_time = 1, 5, 0.0

    def setup(self):
        if any(importlib.util.find_spec(name) is None for name in ("pytest", "tests")):
            raise NotImplementedError("needs pytest and the folder tests")
        from skpmtl.federated.curator import curate
        from tests.helpers.federated_cases import study_of
        from tests.helpers.federated_sites import InProcessSites

        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        self.curate, self.sites = curate, InProcessSites
        self.study = study_of("rounds")

    def time_study(self):
        folder = Path(tempfile.mkdtemp())
        try:
            self.curate(self.sites(self.study, folder), self.study, folder / "curator")
        finally:
            shutil.rmtree(folder)
