"""What private meta-learning publishes: an initialisation."""

from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np

from .._runtime.compat import Interval, StrOptions
from ..exchange.board import Board
from ..exchange.wire import MOST_STEPS
from ..tables.start import Start
from .finetune import FineTuner, tuned

_LOST = 0.8  # expected error, over that of 0, from which tasks leave an initialisation aside


@dataclass
class MetaBillboard(Board):
    """What was published: the initialisation and the public settings that tasks need with it.

    Attributes
    ----------
    coef : ndarray (n_features,) or (n_classes, n_features)
    intercept : float or ndarray (n_classes,)
    init : ndarray (n_outputs, n_features + fit_intercept)
        Both together, the intercept last.
    loss : {"squared", "logistic", "multinomial"}
    fit_intercept, refine, refine_steps, refine_learning_rate
        As in the estimator.
    doubt : float
        Squared error that public numbers let expect of the initialisation, over that of 0, or of
        the start.
    noise : float
        Expected square of the noise in `init`, in the units that it was learnt in.
    middle : float
        Of the public range of the target: intercept before anything is known.
    frame : ndarray (2, n_features) or None
        Middles and units of the public ranges of the features, in which tasks fine-tune; the
        initialisation is in the units of the features.
    start : Start or None
        Public model from which the rounds began; None: 0.
    report : PrivacyReport
    """

    coef: np.ndarray
    intercept: object
    init: np.ndarray
    loss: str
    fit_intercept: bool
    refine: str
    refine_steps: int
    refine_learning_rate: object
    doubt: float = 0.0
    noise: float = 0.0
    middle: float = 0.0
    frame: np.ndarray | None = None
    start: Start | None = None
    report: object = None

    constraints = {
        "loss": [StrOptions({"squared", "logistic", "multinomial"})],
        "refine": [StrOptions({"prox", "sgd"})],
        "refine_steps": [Interval(Integral, 1, MOST_STEPS, closed="both")],
        "refine_learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "doubt": [Interval(Real, 0, None, closed="left")],
        "noise": [Interval(Real, 0, None, closed="left")],
        "middle": [Interval(Real, None, None, closed="neither")],
    }
    settings = ("fit_intercept", "refine", "refine_steps", "refine_learning_rate")

    @property
    def n_features(self):
        return self.coef.shape[-1]

    @property
    def n_classes(self):
        return {"squared": 0, "logistic": 2}.get(self.loss, len(self.init))

    @property
    def model_shape(self):
        return self.coef.shape

    def parameters(self):
        return {**super().parameters(), "init": self.start}

    def attributes(self):
        return {
            "init_coef_": self.coef.copy(),
            "init_intercept_": self.intercept,
            "mean_coef_": self.coef.copy(),
            "mean_intercept_": self.intercept,
        }

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        d, C, several = self.n_features, len(self.init), self.loss == "multinomial"
        if C < 3 if several else C != 1:
            raise ValueError(f"{C} models do not suit the {self.loss} loss")
        yield "the initialisation", self.init, [(C, d + self.fit_intercept)]
        yield "its coefficients", self.coef, [(C, d) if several else (d,)]
        yield "its intercept", self.intercept, [(C,) if several else ()]
        if self.start is not None:
            yield from self.start.declared(C, d)
        if self.frame is not None:
            yield "the units of the features", self.frame, [(2, d)]
            if not self.frame[1].min() > 0:
                raise ValueError("units of features must be positive")
        (coef,), (intercept,) = split_models(self.init[None], self.fit_intercept)
        if not (np.array_equal(coef, self.coef) and np.array_equal(intercept, self.intercept)):
            raise ValueError("its coefficients are not those of the initialisation")

    @property
    def noisy(self):
        """Part of the squared length of the initialisation that is noise; not read by "sgd"."""
        way = inside(self.init, self.frame) - self.places[0]
        square = float(np.vdot(way, way))
        return min(self.noise / square, 1.0) if self.refine == "prox" and square else 0.0

    @property
    def lost(self):
        """Whether the initialisation is noise by a public reckoning: tasks then leave it aside."""
        return max(self.doubt, self.noisy) >= _LOST

    @property
    def places(self):
        """Models that were known before any release, in the units in which tasks fine-tune: the
        start, and 0 with the middle of the public range."""
        zero = np.zeros_like(self.init)
        if self.fit_intercept:
            zero[:, -1] = self.middle
        if self.start is None:
            return [zero]
        return [inside(self.start.joined(self.fit_intercept), self.frame), zero]

    def without_rows(self, tasks):
        models = super().without_rows(tasks)
        if self.lost:
            starts = outside(self.places[0], self.frame)
            starts = split_models(starts[None], self.fit_intercept)
            models = tuple(0.0 * b + a for a, b in zip(starts, models, strict=True))
        return models

    def personalize(self, table):
        """Models of the tasks of `table`, from their rows and this billboard alone."""
        places = self.places
        init = places[0] if self.lost else inside(self.init, self.frame)
        table = within(table, self.frame)
        if self.refine == "prox":
            init = init - self.noisy * (init - places[0])
            settings = places, max(self.doubt, self.noisy), self.lost
            W = tuned(table, self.loss, init, self.fit_intercept, *settings)
        else:
            tuner = FineTuner(table, self.loss, init, self.fit_intercept)
            W = tuner.sgd(self.refine_steps, self.refine_learning_rate)
        return split_models(outside(W, self.frame), self.fit_intercept)


def within(table, frame):
    """The table with its features in the units of `frame`; None: as it is."""
    if frame is None:
        return table
    X = table.X - frame[0].astype(table.X.dtype)
    X /= frame[1].astype(table.X.dtype)
    return replace(table, X=X)


def inside(W, frame):
    """Models (..., size) of features as they are, for those in the units of `frame`."""
    return W if frame is None else _moved(W, frame[1], frame[0])


def outside(W, frame):
    """The inverse of `inside`."""
    return W if frame is None else _moved(W, 1.0 / frame[1], -frame[0] / frame[1])


def _moved(W, times, shift):
    d, moved = len(times), W.copy()
    moved[..., :d] *= times
    if W.shape[-1] > d:
        moved[..., d] += W[..., :d] @ shift
    return moved


def split_models(W, fit_intercept):
    """Models (n, n_outputs, size) -> coef (n, [n_outputs,] n_features), intercept (n, ...)."""
    if fit_intercept:
        coef, intercept = np.ascontiguousarray(W[:, :, :-1]), W[:, :, -1].copy()
    else:
        coef, intercept = W, np.zeros(W.shape[:2])
    return (coef, intercept) if W.shape[1] > 1 else (coef[:, 0], intercept[:, 0])
