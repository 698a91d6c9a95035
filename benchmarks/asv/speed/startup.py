"""What a process pays before its first result: the import, and the first fit without a cache."""

import os
import subprocess
import sys
import tempfile

from .tables import cpu_seconds

FIT = """
import warnings
import numpy as np
import skpmtl
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X, y, task = rng.standard_normal((400, 10)), rng.standard_normal(400), np.repeat(np.arange(20), 20)
more = dict(classes=[False, True]) if "{name}".endswith("Classifier") else {{}}
y = y > 0 if more else y
skpmtl.{name}(tasks=range(20), random_state=0, **more).fit(X, y, task=task)
"""


def _process(program, **environment):
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={**os.environ, **environment},
        capture_output=True,
    )


class _Process:
    timer = staticmethod(cpu_seconds)
    number, repeat, warmup_time = 1, 5, 0.0


class Import(_Process):
    def time_import(self):
        _process("import skpmtl")


class FirstFit(_Process):
    """With an empty cache of numba."""

    params, param_names = [["PrivateMTL", "PrivateMTLClassifier"]], ["estimator"]
    repeat = 2

    def time_fit(self, name):
        with tempfile.TemporaryDirectory() as folder:
            _process(FIT.format(name=name), NUMBA_CACHE_DIR=folder)
