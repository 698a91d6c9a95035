"""Estimators of Algorithm 1 and of the methods in Table 3 and figure 8."""

from contextlib import nullcontext
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..._runtime.constraints import Interval, StrOptions, check_parameters, take
from ...privacy.report import PrivacyReport
from .aggregation import VERSIONS
from .baselines import BASELINES
from .models import Perceptron
from .outputs import outputs_of
from .rounds import Client, FedMTLPlan, run

__all__ = ["FittedClients", "FedMTLRounds", "PublishedFedMTL"]


class FittedClients:
    """The models of all clients during or after the rounds.

    Parameters
    ----------
    clients : list of Client
    names : ndarray (n_clients,)
    n_tasks : int
    """

    def __init__(self, clients, names, n_tasks):
        self.of = dict(zip(names.tolist(), clients, strict=True))
        self.n_tasks = n_tasks

    def predict(self, X, client):
        """Predictions for every task, NaN for tasks that the client of a row does not have."""
        X, client, found = np.asarray(X), np.asarray(client), None
        for name in dict.fromkeys(client.tolist()):
            if name not in self.of:
                raise ValueError(f"Client {name!r} is not one of the fit.")
            one, rows = self.of[name], np.flatnonzero(client == name)
            decided = one.model.outputs.decide(one.model.scores(one.w, X[rows]))
            if found is None:
                found = np.full((len(X), self.n_tasks, *decided.shape[2:]), np.nan)
            found[rows[:, None], one.tasks] = decided
        return found

    def score(self, X, y, client, measure=None):
        """Mean over clients of their accuracy over all known targets, or of ``measure(y, found)``.

        Of pixels the accuracy is the pixel accuracy.
        """
        y, client, found = np.asarray(y, dtype=float), np.asarray(client), self.predict(X, client)
        measure = _accuracy if measure is None else measure
        names = np.unique(client)
        return float(np.mean([measure(y[client == name], found[client == name]) for name in names]))


def _accuracy(y, found):
    known = ~np.isnan(y)
    return float((found[known] == y[known]).mean())


PARAMETERS = {
    "method": [StrOptions({*VERSIONS, *BASELINES})],
    "threshold": [Interval(Real, 0, 1, closed="both"), "array-like"],
    "n_rounds": [Interval(Integral, 1, None, closed="left")],
    "participation": [Interval(Real, 0, 1, closed="right")],
    "local_epochs": [Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 1, None, closed="left")],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "strength": [Interval(Real, 0, None, closed="left")],
    "inner_steps": [Interval(Integral, 1, None, closed="left")],
    "scale": [Interval(Real, 0, None, closed="neither")],
    "n_candidates": [Interval(Integral, 1, None, closed="left")],
    "groups": [StrOptions({"position", "equal sets"})],
    "start": [StrOptions({"common", "own"})],
    "secure": ["boolean"],
    "n_servers": [Interval(Integral, 2, None, closed="left")],
    "monitor": [callable, None],
    "random_state": [Integral, None],
}

DOCUMENTED = """method : str, default="fedmtl"
        "fedmtl"; the versions of figure 8, "fedmtl-x", "fedmtl-g", "fedmtl-t", "fedmtl-j" and
        "fedmtl-e" (FedMTL-Z is "fedmtl" with one number for `threshold`); the methods of Table 3,
        "fedavg", "fedprox", "pfedme", "mocha", "fedamp" and "fedfomo"; and "local", no exchange.
    threshold : float, (float, float) or array-like of shape (n_clients, 2), default=(0.75, 0.95)
        Z of the first and of the last round, linear in between; of all clients, or one row for
        each in the order of the sorted clients. The step (1 - Z_min) / R of section 4.2 is that of
        ``(Z_min, 1 - (1 - Z_min) / R)``.
    n_rounds : int, default=20
        R.
    participation : float in (0, 1], default=1.0
        Part of the clients that is drawn for a round.
    local_epochs : int, default=1
    batch_size : int, default=32
    learning_rate : float, default=0.1
        Of plain SGD.
    strength : float, default=0.1
        mu of "fedprox", lambda of "pfedme" and "mocha", lambda / alpha of "fedamp".
    inner_steps : int, default=5
        K of "pfedme".
    scale : float, default=1.0
        sigma of "fedamp" over the mean squared distance of the models.
    n_candidates : int, default=5
        M of "fedfomo".
    groups : {"position", "equal sets"}, default="position"
        How the methods of Table 3 compare models: by the position of the heads, as in the paper,
        for which all clients must have as many tasks; or among clients with equal sets of tasks.
    start : {"common", "own"}, default="common"
        Whether the heads of a task start equal at all clients, as section 5.3 has it, or every
        client draws its own.
    secure : bool, default=False
        Aggregate on secret shares by `skpmtl.fedmtl.secure`, "fedmtl" only.
    n_servers : int, default=3
        P.
    monitor : callable or None, default=None
        ``monitor(t, models)`` after round t with `FittedClients`, for curves over rounds.
    random_state : int or None, default=None"""


class FedMTLRounds(BaseEstimator):
    """Fit and predict for any model with the interface of `Perceptron`."""

    _parameter_constraints = PARAMETERS

    def fit(self, X, y, client, validation=None):
        """Run all rounds.

        Parameters
        ----------
        X : array-like of shape (n, ...)
            Rows: features, or images.
        y : array-like of shape (n, K), (n, K, L) or (n, K, height, width)
            Categories 0, 1, ... of every task; or 0 and 1 for its L attributes; or categories of
            pixels. NaN where a target is missing. A client has the tasks with a known target.
        client : array-like of shape (n,)
            Client of every row.
        validation : tuple (X, y, client), default=None
            Rows that are not trained on, for "fedfomo". None: those of the fit.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            For settings that do not go together, and training that diverges.
        """
        check_parameters(self)
        if self.secure and self.method != "fedmtl":
            raise ValueError(
                f"secure=True computes the rule of the paper, not method={self.method!r}: take "
                'method="fedmtl".'
            )
        X, y, client = np.asarray(X), np.asarray(y, dtype=float), np.asarray(client)
        if y.ndim not in (2, 3, 4) or not len(X) == len(y) == len(client):
            raise ValueError(
                f"y has the shape {y.shape}, X {X.shape} and client {client.shape}: y must be "
                "(n, K), (n, K, L) or (n, K, height, width), with a row for each of X and client."
            )
        outputs = outputs_of(y)
        rng = np.random.default_rng(self.random_state)
        model = self._model(X, outputs)
        names, codes = np.unique(client, return_inverse=True)
        held = (X, y, client) if validation is None else validation
        held = [np.asarray(part) for part in held]
        clients = []
        for i, name in enumerate(names):
            rows, own = np.flatnonzero(codes == i), np.flatnonzero(held[2] == name)
            known = ~np.isnan(y[rows])
            tasks = np.flatnonzero(known.any(axis=(0, *range(2, y.ndim)))).tolist()
            if not tasks:
                raise ValueError(f"Client {name!r} has no known target: leave it out.")
            Y, Y_held = y[np.ix_(rows, tasks)], held[1][np.ix_(own, tasks)]
            clients.append(Client(model, X[rows], Y, tasks, (held[0][own], Y_held)))
        models = FittedClients(clients, names, y.shape[1])
        shared, heads = model.start(y.shape[1], rng)
        if self.start == "own":
            heads = np.stack([model.start(y.shape[1], rng)[1] for _ in clients])
        watch = None if self.monitor is None else lambda t: self.monitor(t, models)
        with self._servers() as servers:
            history = run(self._plan(clients), clients, (shared, heads), rng, watch, servers)
        self.models_, self.history_, self.clients_ = models, history, names
        self.n_shared_, self.head_size_ = model.n_shared, model.head_size
        reason = "the published method has neither clipping nor noise"
        if self.secure:
            reason += "; uploads are secret from servers, not what clients learn from answers"
        self.privacy_ = PrivacyReport("none", notes={"reason": reason})
        return self

    def _servers(self):
        if not self.secure:
            return nullcontext()
        from ...fedmtl.secure import SecureServers

        return SecureServers(n_servers=self.n_servers)

    def _plan(self, clients):
        n, by_position = len(clients), self.groups == "position"
        baseline = self.method in BASELINES and self.method != "local"
        if baseline and by_position and len({len(c.tasks) for c in clients}) > 1:
            raise ValueError(
                f"method={self.method!r} by position needs clients with as many tasks each: take "
                'groups="equal sets".'
            )
        try:
            Z = np.broadcast_to(np.asarray(self.threshold, dtype=float), (n, 2))
        except ValueError:
            Z = np.full(1, np.nan)
        if not ((Z >= 0) & (Z <= 1)).all():
            raise ValueError(
                f"threshold must be a number, (first, last), or of the shape ({n}, 2), in [0, 1]."
            )
        return FedMTLPlan(
            self.method,
            self.n_rounds,
            max(1, round(self.participation * n)),
            Z,
            self.local_epochs,
            self.batch_size,
            self.learning_rate,
            self.strength,
            self.inner_steps,
            self.scale,
            self.n_candidates,
            by_position,
        )

    def predict(self, X, client):
        """Predictions (n, K, ...), NaN for tasks that the client of a row does not have.

        Parameters
        ----------
        X, client
            As in `fit`.

        Raises
        ------
        ValueError
            For a client that was not in the fit.
        """
        check_is_fitted(self)
        return self.models_.predict(X, client)

    def score(self, X, y, client):
        """Mean over the clients of their accuracy over all known targets."""
        check_is_fitted(self)
        return self.models_.score(X, y, client)


class PublishedFedMTL(FedMTLRounds):
    __doc__ = f"""FedMTL as published, with fully connected shared layers.

    Algorithm 1 of [1]_, its versions and its competitors, in plain rounds: see
    `skpmtl.reproduction.fedmtl.rounds`. For everyday use take `skpmtl.FedMTLClassifier`.

    Parameters
    ----------
    hidden : tuple of int, default=(32,)
        Widths of the shared layers. All clients start from the same ones.
    {DOCUMENTED}

    Attributes
    ----------
    models_ : FittedClients
    history_ : dict of ndarray (n_rounds,)
        See `skpmtl.reproduction.fedmtl.rounds.run`.
    clients_ : ndarray (n_clients,)
    n_shared_, head_size_ : int
        Parameters of the shared layers and of a head.
    privacy_ : PrivacyReport
        With the guarantee "none".

    References
    ----------
    .. [1] P. Sen, C. Borcea, "FedMTL: privacy-preserving federated multi-task learning", ECAI,
       2024.
    """

    _parameter_constraints = {**PARAMETERS, "hidden": ["array-like"]}

    def __init__(
        self,
        hidden=(32,),
        *,
        method="fedmtl",
        threshold=(0.75, 0.95),
        n_rounds=20,
        participation=1.0,
        local_epochs=1,
        batch_size=32,
        learning_rate=0.1,
        strength=0.1,
        inner_steps=5,
        scale=1.0,
        n_candidates=5,
        groups="position",
        start="common",
        secure=False,
        n_servers=3,
        monitor=None,
        random_state=None,
    ):
        take(self, locals())

    def _model(self, X, outputs):
        if X.ndim != 2:
            raise ValueError(f"X has the shape {X.shape}; it must be (n, n_features).")
        return Perceptron(X.shape[1], tuple(self.hidden), outputs)
