"""What rounds with networks publish: the shared parameters, and how tasks go on from them."""

from dataclasses import dataclass, field, replace
from numbers import Integral, Real

import numpy as np

from .._runtime.compat import Interval, StrOptions
from ..exchange.wire import MOST_STEPS
from ..mean_regularized.billboard import MeanBillboard


@dataclass
class NetworkBillboard(MeanBillboard):
    """As `skpmtl.mean_regularized.MeanBillboard`, around a public start.

    `centres` are what the rounds added to `start`. Files have the numbers, and neither the module
    nor any code of it.

    Attributes
    ----------
    start : ndarray (n_shared + n_kept,)
        Public numbers of the module before the fit: of shared parameters, then of those that stay
        with the tasks and of statistics of normalisation layers.
    layout : list of tuple
        (name, shape) of the shared parameters in the order of their numbers.
    width : int
        Features of a row.
    personalization, personal_steps, personal_folds, learning_rate, momentum, batch_size, local
        As in the estimator.
    """

    start: np.ndarray = field(default_factory=lambda: np.empty(0))
    layout: list = field(default_factory=list)
    width: int = 1
    personalization: str = "mean-reg"
    personal_steps: int = 20
    personal_folds: int | None = 3
    learning_rate: float = 0.03
    momentum: float = 0.9
    batch_size: int | None = None
    local: tuple = ()

    constraints = {
        **MeanBillboard.constraints,
        "personalization": [StrOptions({"mean-reg", "finetune", "none"})],
        "width": [Interval(Integral, 1, None, closed="left")],
        "personal_steps": [Interval(Integral, 1, MOST_STEPS, closed="both")],
        "personal_folds": [Interval(Integral, 2, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
    }
    removed = {k: v for k, v in MeanBillboard.removed.items() if k != "personalization"}
    settings = (
        "personalization",
        "personal_steps",
        "personal_folds",
        "learning_rate",
        "momentum",
        "batch_size",
        "local",
    )

    @property
    def n_features(self):
        return self.width

    @property
    def model_shape(self):
        return self.start.shape

    def parameters(self):
        known = {name: getattr(self, name) for name in self.settings}
        known |= {"clusters": self.cluster_of, "relation": self.relation}
        return {**known, "lam": self.problem.lam}

    def attributes(self):
        if not self.has_one_mean:
            return {}
        return {"mean_coef_": self.networks(self.centres)[0], "mean_intercept_": 0.0}

    def unpersonalised(self, centres):
        """A copy with these centres, which tasks take as they are."""
        return replace(self, centres=centres, personalization="none")

    def networks(self, centres):
        """Numbers of the networks at these centres, (n, n_shared + n_kept)."""
        out = np.repeat(self.start[None], len(centres), axis=0)
        out[:, : centres.shape[1]] += centres
        return out

    def replay(self):
        """Shared parameters after every round, from releases: ``(n_rounds, *centres.shape)``."""
        return super().replay() + self.start[: self.centres.shape[1]]

    def without_rows(self, tasks):
        """The released network of their centre, or the initial one where the centre is unknown."""
        which, centres = self.centres_or_zero(tasks)
        return self.networks(centres)[which], np.zeros(len(tasks))

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        g, size, total = len(self.centres), check_layout(self.layout), self.start.size
        if not 0 < size <= total or self.shape != (size,):
            raise ValueError("its layout does not suit its numbers")
        if not all(isinstance(pattern, str) for pattern in self.local):
            raise ValueError("local must hold names")
        yield "the start", self.start, [(total,)]
        yield from self._declared_centres(size, [(size,), (g, size), (1,)])
        yield "the steps of the rounds", self.step, [(g, 1)]


def check_layout(layout):
    """Number of entries in parameters of these names and shapes; ValueError for another list."""
    for name, shape in layout:
        whole = all(type(length) is int and length >= 0 for length in shape)
        if not isinstance(name, str) or not isinstance(shape, tuple) or not whole:
            raise ValueError("its layout is none of names and shapes")
    return sum(int(np.prod(shape)) for _, shape in layout)
