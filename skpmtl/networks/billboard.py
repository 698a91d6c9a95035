"""What rounds with networks publish: the shared parameters, and how tasks go on from them."""

import math
from dataclasses import dataclass, field, replace
from numbers import Integral, Real

import numpy as np

from .._runtime.constraints import Interval, StrOptions
from ..exchange.billboard import Billboard
from ..exchange.wire import MOST_STEPS
from ..privacy.report import PrivacyReport
from ..tables.relation import Relation
from .rounds import cluster_rows, epsilon_of_rounds


@dataclass
class NetworkBillboard(Billboard):
    """What the curator of the rounds published, and the public settings tasks need with it.

    Files have the numbers, and neither the module nor any code of it.

    Attributes
    ----------
    centres : ndarray (n_centres, n_shared)
        What the rounds added to `start`: one row per cluster, or column of the relation.
    lam : float
        Strength of the personalisation around the shared network.
    n_classes : int
        0 for real targets.
    start : ndarray (n_shared + n_kept,)
        Public numbers of the module before the fit: of shared parameters, then of those that stay
        with the tasks and of statistics of normalisation layers.
    layout : list of tuple
        (name, shape) of the shared parameters in the order of their numbers.
    width : int
        Features of a row.
    personalization, personal_steps, personal_folds, learning_rate, momentum, batch_size, local
        As in the estimator.
    cluster_of : dict or None
        Public mapping of tasks to rows of `centres`.
    relation : skpmtl.tables.relation.Relation or None
        With one, task k lies around v_k `centres` for its public row v_k.
    releases : list of ndarray
        Noisy means of the clipped updates in the order of publication. Where those of all rounds
        have more than 2^22 numbers together, they are missing: only their sum is kept.
    clip_norms : list of float
        Bound in every round.
    step : ndarray (n_centres, 1) or None
        What a release is multiplied by before it is added to the centres.
    noise_multiplier : float or None
        Standard deviation of the noise on the sums of a round, over the bound; None: no noise.
    round_delta : float or None
        delta at which the rounds are accounted; None where they are part of something larger,
        which is published with all of its budget spent.
    report : PrivacyReport
    """

    centres: np.ndarray
    lam: float
    start: np.ndarray
    layout: list
    width: int
    n_classes: int = 0
    personalization: str = "mean-reg"
    personal_steps: int = 20
    personal_folds: int | None = 3
    learning_rate: float = 0.03
    momentum: float = 0.9
    batch_size: int | None = None
    local: tuple = ()
    cluster_of: dict | None = None
    relation: Relation | None = None
    releases: list = field(default_factory=list)
    clip_norms: list = field(default_factory=list)
    step: np.ndarray | None = None
    noise_multiplier: float | None = None
    round_delta: float | None = None
    report: PrivacyReport | None = None

    constraints = {
        "lam": [Interval(Real, 0, None, closed="neither")],
        "n_classes": [Interval(Integral, 0, None, closed="left")],
        "personalization": [StrOptions({"mean-reg", "finetune", "none"})],
        "width": [Interval(Integral, 1, None, closed="left")],
        "personal_steps": [Interval(Integral, 1, MOST_STEPS, closed="both")],
        "personal_folds": [Interval(Integral, 2, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "noise_multiplier": [Interval(Real, 0, None, closed="neither"), None],
        "round_delta": [Interval(Real, 0, 1, closed="both"), None],
    }
    settings = (
        "lam",
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

    @property
    def has_one_mean(self):
        """Whether all tasks have the same centre."""
        return self.cluster_of is None and self.relation is None

    def parameters(self):
        return {
            **super().parameters(),
            "clusters": self.cluster_of,
            "relation": self.relation,
        }

    def attributes(self):
        if not self.has_one_mean:
            return {}
        return {"mean_coef_": self.networks(self.centres)[0], "mean_intercept_": 0.0}

    def networks(self, centres):
        """Numbers of the networks at these centres, (n, n_shared + n_kept)."""
        out = np.repeat(self.start[None], len(centres), axis=0)
        out[:, : centres.shape[1]] += centres
        return out

    def with_covariates(self, given):
        """A copy that knows covariates of further tasks, see `Relation.with_tasks`."""
        return replace(self, relation=self.relation.with_tasks(given))

    def around(self, tasks):
        """-> number of the centre of each of `tasks` among these, the centres (n, n_shared)

        Raises
        ------
        ValueError
            For tasks without a cluster, or without covariates in the relation.
        """
        if self.relation is not None:
            return np.arange(len(tasks)), self.relation.centres(tasks, self.centres)
        return cluster_rows(tasks, self.cluster_of), self.centres

    def without_rows(self, tasks):
        """The released network of their centre, or the initial one where the centre is unknown."""
        if self.relation is not None:
            which, centres = self.around(tasks)
        else:
            zero, which = len(self.centres), np.zeros(len(tasks), dtype=np.int64)
            if self.cluster_of is not None:
                which = np.array([self.cluster_of.get(task, zero) for task in tasks.tolist()])
            centres = np.concatenate([self.centres, np.zeros((1, self.centres.shape[1]))])
        return self.networks(centres)[which], np.zeros(len(tasks))

    def history(self) -> list:
        """Noise and budget after every round; nothing here depends on the data.

        Returns
        -------
        list of dict
            Keys "round", "clip_norm", "noise_std" (of one number of the mean update) and
            "epsilon" (spent so far, at the delta of the report).
        """
        noise = [] if self.report is None else [e["noise_std"] for e in self.report.releases]
        return [
            {
                "round": t + 1,
                "clip_norm": bound,
                "noise_std": noise[t] if noise else 0.0,
                "epsilon": self._spent(t + 1),
            }
            for t, bound in enumerate(self.clip_norms)
        ]

    def _spent(self, n_rounds):
        """epsilon after this many rounds."""
        if self.noise_multiplier is None:
            return math.inf
        if self.round_delta is None:
            return self.report.epsilon
        known = self.round_delta, self.report.adjacency
        return epsilon_of_rounds(self.noise_multiplier, n_rounds, *known)

    def within(self, report):
        super().within(report)
        self.round_delta = None  # alone the rounds have no budget then

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        g, size, total = len(self.centres), check_layout(self.layout), self.start.size
        if not 0 < size <= total:
            raise ValueError("its layout does not suit its numbers")
        if not all(isinstance(pattern, str) for pattern in self.local):
            raise ValueError("local must hold names")
        for number in [] if self.cluster_of is None else self.cluster_of.values():
            if type(number) is not int or not 0 <= number < g:
                raise ValueError(f"clusters must be numbered from 0 to {g - 1}")
        if self.relation is not None:
            yield from self.relation.declared()
            if self.cluster_of is not None or self.relation.rank != g:
                raise ValueError(f"it has {g} shared networks for another relation")
        elif g < 1 or (g > 1 and self.cluster_of is None):
            raise ValueError(f"it has {g} shared networks without clusters")
        if not all(isinstance(bound, Real) and bound > 0 for bound in self.clip_norms):
            raise ValueError("clip_norms must be positive")
        if self.report is not None and self.report.releases:
            rounds = self.report.releases
            if len(rounds) < len(self.clip_norms) or not all(e["noise_std"] >= 0 for e in rounds):
                raise ValueError("its report is not about its rounds")
        yield "the start", self.start, [(total,)]
        yield "the centres", self.centres, [(g, size)]
        yield from (("a release", S, [(size,), (g, size)]) for S in self.releases)
        yield "the steps of the rounds", self.step, [(g, 1)]


def check_layout(layout):
    """Number of entries in parameters of these names and shapes; ValueError for another list."""
    for name, shape in layout:
        whole = all(type(length) is int and length >= 0 for length in shape)
        if not isinstance(name, str) or not isinstance(shape, tuple) or not whole:
            raise ValueError("its layout is none of names and shapes")
    return sum(int(np.prod(shape)) for _, shape in layout)
