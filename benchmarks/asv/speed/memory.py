"""Peak of the memory that a process holds while it fits a table of 64 MB."""

import warnings

import numpy as np

from .tables import public

TASKS, ROWS, FEATURES = 4000, 40, 50


class Memory:
    params = [["DPMetaInit", "PrivateMTL"]]
    param_names = ["estimator"]

    def setup(self, name):
        warnings.simplefilter("ignore")
        rng = np.random.default_rng(0)  # no arrays but those that the fit gets
        self.X = rng.standard_normal((TASKS * ROWS, FEATURES))
        self.y, self.task = rng.standard_normal(len(self.X)), np.repeat(np.arange(TASKS), ROWS)
        self.model = public(name)(epsilon=1.0, tasks=np.arange(TASKS), random_state=0)

    def peakmem_fit(self, name):
        self.model.fit(self.X, self.y, task=self.task)
