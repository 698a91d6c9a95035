"""Billboard of private meta-learning: the initialisation."""

from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np

from .._runtime.constraints import Interval, StrOptions
from ..exchange.billboard import Billboard, Personal
from ..exchange.wire import MOST_STEPS
from ..tables.public_init import PublicInit
from ..tables.relation import Relation
from ..tables.table import row_products
from ..task.mixture import Posterior
from .finetune import KnownModel, fine_tuned
from .rules import LEFT
from .steps import RoundRows

_LOST = 0.8  # expected error, over that of 0, from which tasks leave an initialisation aside
# Prior weight of models about a place that no release says, against 1 for an initialisation, and
# the error that an initialisation there would have.
_NOWHERE, _NO_INIT = 0.15, 1.0


@dataclass
class MetaBillboard(Billboard):
    """What was published: the initialisation and the public settings that tasks need with it.

    Attributes
    ----------
    coef : ndarray (n_features,) or (n_classes, n_features)
    intercept : float or ndarray (n_classes,)
    init : ndarray (n_outputs, n_features + fit_intercept)
        Both together, the intercept last. With a relation all three have one more axis in front:
        G, of which v_k G is the initialisation of task k.
    loss : {"squared", "logistic", "multinomial"}
    fit_intercept, refine, refine_steps, refine_learning_rate
        As in the estimator.
    init_error : float
        Squared error that public numbers let expect of the initialisation, over that of 0, or of
        the start.
    noise : float
        Expected square of the noise in `init`, in the units that it was learnt in.
    target_offset : float
        Of the public range of the target: intercept before anything is known.
    scaling : ndarray (2, n_features) or None
        Middles and units of the features, public or released (without privacy their means and
        standard deviations), in which tasks fine-tune; the initialisation is in the units of the
        features.
    public_init : PublicInit or None
        Public model from which the rounds began; None: 0.
    relation : Relation or None
    row_noise : ndarray (r,) or None
        With a relation: expected square of the noise in each row of G, in the place of `noise`.
        Rows were shrunk by it.
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
    init_error: float = 0.0
    noise: float = 0.0
    target_offset: float = 0.0
    scaling: np.ndarray | None = None
    public_init: PublicInit | None = None
    report: object = None
    relation: Relation | None = None
    row_noise: np.ndarray | None = None

    constraints = {
        "loss": [StrOptions({"squared", "logistic", "multinomial"})],
        "refine": [StrOptions({"prox", "sgd"})],
        "refine_steps": [Interval(Integral, 1, MOST_STEPS, closed="both")],
        "refine_learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "init_error": [Interval(Real, 0, None, closed="left")],
        "noise": [Interval(Real, 0, None, closed="left")],
        "target_offset": [Interval(Real, None, None, closed="neither")],
    }
    settings = ("fit_intercept", "refine", "refine_steps", "refine_learning_rate")

    @property
    def n_features(self):
        return self.coef.shape[-1]

    @property
    def n_classes(self):
        return {"squared": 0, "logistic": 2}.get(self.loss, self.init.shape[-2])

    @property
    def model_shape(self):
        return self.coef.shape if self.relation is None else self.coef.shape[1:]

    def parameters(self):
        return {**super().parameters(), "init": self.public_init, "relation": self.relation}

    def with_covariates(self, given):
        """A copy with the covariates of further tasks, see `Relation.with_tasks`."""
        return replace(self, relation=self.relation.with_tasks(given))

    def attributes(self):
        if self.relation is not None:
            T = self.relation.transform
            found = np.tensordot(T, self.coef, axes=1), np.tensordot(T, self.intercept, axes=1)
            found = dict(zip(("relation_coef_", "relation_intercept_"), found, strict=True))
            if self.row_noise.any():
                # Without what long rows correct: no release gives the length of rows.
                std = np.sqrt(T**2 @ self.row_noise / LEFT[self.loss] / self.init[0].size)
                if self.scaling is not None:
                    std = std[:, None] / self.scaling[1]
                found["relation_noise_std_"] = std
            return found
        return {
            "init_coef_": self.coef.copy(),
            "init_intercept_": self.intercept,
            "mean_coef_": self.coef.copy(),
            "mean_intercept_": self.intercept,
        }

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        d, C, several = self.n_features, self.init.shape[-2], self.loss == "multinomial"
        r = ()
        if self.relation is not None:
            yield from self.relation.declared()
            r = (self.relation.rank,)
            if self.row_noise is None:
                raise ValueError("its relation has no row_noise")
            yield "the noise of the relation", self.row_noise, [r]
            if self.row_noise.min() < 0:
                raise ValueError("noise must not be negative")
        if C < 3 if several else C != 1:
            raise ValueError(f"{C} models do not suit the {self.loss} loss")
        yield "the initialisation", self.init, [(*r, C, d + self.fit_intercept)]
        yield "its coefficients", self.coef, [(*r, C, d) if several else (*r, d)]
        yield "its intercept", self.intercept, [(*r, C) if several else r]
        if self.public_init is not None:
            yield from self.public_init.declared(C, d)
        if self.scaling is not None:
            yield "the feature scaling", self.scaling, [(2, d)]
            if not self.scaling[1].min() > 0:
                raise ValueError("units of features must be positive")
        rows = self.init if r else self.init[None]
        coef, intercept = split_models(rows, self.fit_intercept)
        if not r:
            (coef,), (intercept,) = coef, intercept
        if not (np.array_equal(coef, self.coef) and np.array_equal(intercept, self.intercept)):
            raise ValueError("its coefficients are not those of the initialisation")

    @property
    def noisy(self):
        """Part of the squared length of the initialisation that is noise; not read by "sgd"."""
        if self.relation is not None:
            return 0.0  # rows of G are shrunk by it
        way = scaled(self.init, self.scaling) - self.places[0]
        square = float(np.vdot(way, way))
        return min(self.noise / square, 1.0) if self.refine == "prox" and square else 0.0

    @property
    def lost(self):
        """Whether the initialisation is noise by a public reckoning: tasks then leave it aside."""
        return max(self.init_error, self.noisy) >= _LOST

    @property
    def places(self):
        """Models that were known before any release, in the units in which tasks fine-tune: the
        start, and 0 with the middle of the public range."""
        zero = np.zeros(self.init.shape[-2:])
        if self.fit_intercept:
            zero[:, -1] = self.target_offset
        if self.public_init is None:
            return [zero]
        return [scaled(self.public_init.joined(self.fit_intercept), self.scaling), zero]

    def without_rows(self, tasks):
        if self.relation is not None and not self.lost:
            found = self.relation.centres(tasks, self.init)
            return split_models(found, self.fit_intercept)
        models = super().without_rows(tasks)
        if self.lost:
            starts = unscaled(self.places[0], self.scaling)
            starts = split_models(starts[None], self.fit_intercept)
            models = tuple(0.0 * b + a for a, b in zip(starts, models, strict=True))
        return models

    def _known(self, tasks):
        """Models of tasks that priors are around, for scaled features: the initialisation, and what
        was known before any release. -> list of `KnownModel`"""
        init, error = scaled(self.init, self.scaling), max(self.init_error, self.noisy)
        places = [KnownModel(place, _NO_INIT, np.log(_NOWHERE)) for place in self.places]
        if self.lost:
            return [replace(places[0], log_weight=0.0), *places[1:]]
        if self.relation is not None:
            init = row_products(self.relation.rows(tasks), init)
        return [KnownModel(init - self.noisy * (init - self.places[0]), error, 0.0), *places]

    def _rows(self, table):
        return RoundRows(table, self.fit_intercept, self.scaling, self.loss)

    def personalize(self, table, *, classes_posterior=False):
        """Models of the tasks of `table`, from their rows and this billboard alone.

        `classes_posterior`: whether models of classes come with their posterior.
        """
        known, rows = self._known(table.tasks), self._rows(table)
        if self.refine == "sgd":
            W = rows.models(known[0].models, self.refine_steps, self.refine_learning_rate)
            return Personal(*split_models(unscaled(W, self.scaling), self.fit_intercept))
        W, covariance, _ = fine_tuned(rows, known, spread=classes_posterior)
        models = split_models(unscaled(W, self.scaling), self.fit_intercept)
        if not classes_posterior:
            return Personal(*models)
        covariance = self._unscaled_covariance(covariance)
        if W.shape[1] == 1:
            covariance = covariance[:, 0]
        return Personal(*models, {"covariance_": covariance})

    def posterior(self, table):
        known, rows = self._known(table.tasks), self._rows(table)
        _, covariance, noise = fine_tuned(rows, known, spread=True)
        return Posterior(self._unscaled_covariance(covariance)[:, 0], *noise)

    def _unscaled_covariance(self, covariance):
        """Covariances of models (w, b) of features as they are."""
        if self.scaling is None:
            return covariance
        d, back = self.n_features, np.eye(self.n_features + 1)
        back[:d, :d] /= self.scaling[1][:, None]
        back[d, :d] = -self.scaling[0] / self.scaling[1]
        with np.errstate(invalid="ignore"):  # what is not finite stays so
            return back @ covariance @ back.T


def scaled(W, scaling):
    """Models (..., size) for scaled features, from those for features as they are."""
    return W if scaling is None else _moved(W, scaling[1], scaling[0])


def unscaled(W, scaling):
    """The inverse of `scaled`."""
    return W if scaling is None else _moved(W, 1.0 / scaling[1], -scaling[0] / scaling[1])


def _moved(W, times, shift):
    d, moved = len(times), W.copy()
    moved[..., :d] *= times
    if W.shape[-1] > d:
        moved[..., d] += np.einsum("...j,j->...", W[..., :d], shift)
    return moved


def split_models(W, fit_intercept):
    """Models (n, n_outputs, size) -> coef (n, [n_outputs,] n_features), intercept (n, ...)."""
    if fit_intercept:
        coef, intercept = np.ascontiguousarray(W[:, :, :-1]), W[:, :, -1].copy()
    else:
        coef, intercept = W, np.zeros(W.shape[:2])
    return (coef, intercept) if W.shape[1] > 1 else (coef[:, 0], intercept[:, 0])
