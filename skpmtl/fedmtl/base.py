"""What the two FedMTL estimators share: fit, personalize, and scores of rows."""

import warnings
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._display.diagram import ShowsPrivacy
from .._runtime.constraints import Interval, InvalidParameterError, StrOptions, check_parameters
from .._runtime.hints import RandomState
from .._runtime.stack import users_line
from ..base import BaseMTL, TaskIndexed
from ..callbacks import RoundCallbacks, told
from ..privacy.report import PrivacyReport
from ..tables.ids import listed, locate
from ..tables.table import by_code, known_labels
from ..tables.targets import pair_known
from .aggregation import AGGREGATIONS
from .clients import RARE_LABELS, known_positions, read_rows, read_training
from .network import ACTIVATIONS, Heads, Network, Optimizer
from .training import (
    ClientModels,
    Schedule,
    average_start,
    initial_parameters,
    run_rounds,
    unlearned,
)

__all__ = ["BaseFedMTL"]

_IN_THE_CLEAR = (
    "the server gets every client's layers without noise, and a layer can disclose much about the "
    "rows it was trained on"
)
_SECRET = (
    "no noise is added, so that what a client receives and predicts with can disclose the rows "
    "of others; multi-party computation hides the uploads, similarities and numbers of rows from "
    "the servers while one of them is honest and the dealer of random numbers colludes with none, "
    "and nothing more"
)


class BaseFedMTL(RoundCallbacks, ShowsPrivacy, TaskIndexed):
    """Rounds of FedMTL; a subclass says with `_classification` which loss, and predicts."""

    _parameter_constraints = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "threshold": [tuple, list, Interval(Real, 0, 1, closed="both")],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "local_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "solver": [StrOptions({"sgd", "adam"})],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "aggregation": [StrOptions({*AGGREGATIONS, "local"})],
        "secure": ["boolean"],
        "n_servers": [Interval(Integral, 2, None, closed="left")],
        "max_heads": [Interval(Integral, 1, 10, closed="both"), None],
        "max_size": [Interval(Real, 0, None, closed="neither"), None],
        "module": [callable, None],
        "class_weight": [StrOptions({"balanced"}), Mapping, None],
        "client_feature": [str, Integral, list, None],
        "task_feature": [str, Integral, list, None],
        "random_state": ["random_state", np.random.Generator],
        "verbose": ["verbose"],
    }
    # Users need no set_fit_request(client=True) and so on when metadata routing is on.
    __metadata_request__fit = {"client": True, "task": True}
    __metadata_request__predict = {"client": True, "task": True}
    __metadata_request__predict_proba = {"client": True, "task": True}
    __metadata_request__predict_log_proba = {"client": True, "task": True}
    __metadata_request__score = {"client": True, "task": True}

    def __init__(
        self,
        hidden_layer_sizes: int | tuple[int, ...] | list[int] = (32,),
        *,
        activation: Literal["identity", "logistic", "relu", "tanh"] = "relu",
        threshold: float | tuple[float, float] = (0.75, 0.95),
        n_rounds: int = 20,
        local_epochs: int = 1,
        batch_size: int = 32,
        solver: Literal["adam", "sgd"] = "adam",
        learning_rate: float = 0.01,
        momentum: float = 0.9,
        alpha: float = 1e-4,
        aggregation: Literal["local", "per-task", "similarity", "uniform"] = "per-task",
        secure: bool = False,
        n_servers: int = 3,
        max_heads: int | None = None,
        max_size: float | None = None,
        module: Callable | None = None,
        client_feature: str | int | None = None,
        task_feature: str | int | None = None,
        random_state: RandomState = None,
        verbose: bool | int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.threshold = threshold
        self.n_rounds = n_rounds
        self.local_epochs = local_epochs
        self.batch_size = batch_size
        self.solver = solver
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.alpha = alpha
        self.aggregation = aggregation
        self.secure = secure
        self.n_servers = n_servers
        self.max_heads = max_heads
        self.max_size = max_size
        self.module = module
        self.client_feature = client_feature
        self.task_feature = task_feature
        self.random_state = random_state
        self.verbose = verbose

    _progress = BaseMTL._progress

    # ------------------------------------------------------------------ fitting
    def _check_parameters(self):
        check_parameters(self)
        hidden = self._hidden()
        if any(not isinstance(width, Integral) or width < 1 for width in hidden):
            raise InvalidParameterError(
                f"hidden_layer_sizes={self.hidden_layer_sizes!r} must be whole numbers >= 1."
            )
        if np.ndim(self.threshold):
            ends = list(self.threshold)
            if len(ends) != 2 or not all(isinstance(t, Real) and 0 <= t <= 1 for t in ends):
                raise InvalidParameterError(
                    f"threshold={self.threshold!r} must be a number, or (start, end), in [0, 1]."
                )
        if self.secure and self.aggregation != "similarity":
            raise InvalidParameterError(
                "secure=True computes the rule of the paper: "
                f'aggregation={self.aggregation!r} must be "similarity".'
            )

    def _hidden(self):
        sizes = self.hidden_layer_sizes
        return (sizes,) if isinstance(sizes, Integral) else tuple(np.asarray(sizes).tolist())

    def _new_network(self, n_features):
        if self.module is not None:
            from ._torch import TorchNetwork

            return TorchNetwork(self.module, n_features)
        return Network(n_features, self._hidden(), self.activation)

    def _schedule(self):
        start, end = self.threshold if np.ndim(self.threshold) else (self.threshold,) * 2
        optimizer = Optimizer(
            self.solver,
            float(self.learning_rate),
            float(self.momentum),
            float(self.alpha),
            int(self.batch_size),
            int(self.local_epochs),
        )
        thresholds = np.linspace(start, end, self.n_rounds)
        names = ("n_servers", "max_heads", "max_size")
        secure = {name: getattr(self, name) for name in names} if self.secure else None
        return Schedule(self.aggregation, thresholds, optimizer, secure)

    def _rng(self):
        seed = self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = seed.randint(2**31, size=4)
        return np.random.default_rng(seed)

    def fit(self, X, y, client=None, task=None, sample_weight=None):
        """Run all rounds.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Features; with `client_feature` and `task_feature` these columns are ids.
        y : array-like of shape (n_samples, n_tasks) or (n_samples,)
            One column per task, NaN (or None) where a row has no label; a client has the tasks of
            which it has a label. Or one label per row, of the task that `task` names; without
            task ids there is one task.
        client : array-like of shape (n_samples,), default=None
            Client of every row, when there is no client column.
        task : array-like of shape (n_samples,), default=None
            Task of every row, when y has one dimension and there is no task column.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of every row, from 0 (as if it were not there) to 1. Losses of batches are means
            with these weights; averages of layers go by numbers of rows, as ever.

        Returns
        -------
        self : object
            The fitted estimator. After an error it is not fitted, even if it was before; after an
            interrupt (Ctrl-C) it is as it was before.
        """
        before = dict(vars(self))
        try:
            self._check_parameters()
            table, form, classes = read_training(self, X, y, client, task, sample_weight)
            with np.errstate(all="ignore"):
                fitted = told(self, self._fit_rounds, table, form, classes)
        except BaseException as error:
            self._undo(error, before)
            raise
        return self._become(fitted)

    def _fit_rounds(self, table, form, classes):
        network, rng = self._new_network(table.X.shape[1]), self._rng()
        outputs = np.ones(len(form.labels), dtype=np.int64)
        if classes is not None:
            sizes = np.array([len(own) for own in classes])
            outputs = np.where(sizes == 2, 1, sizes)  # two classes: log-odds of the second
        heads = Heads(table.slots, outputs, classes is not None)
        theta, uploads, similarity, history = run_rounds(
            network,
            table,
            heads,
            initial_parameters(network, heads, rng),
            self._schedule(),
            rng,
            progress=self._progress("round %d of %d: loss %.4g, training %s %.4g", self.n_rounds),
        )
        fitted = {
            "clients_": table.clients,
            "task_names_": form.labels,
            "similarity_": similarity,
            "history_": history,
            "n_iter_": self.n_rounds,
            "privacy_": self._report(table, form, classes),
            "_form_": form,
            "_network_": network,
            "_models_": ClientModels(table.clients, heads, theta, uploads, table.sizes),
        }
        if classes is None:
            poor = unlearned(network, theta, table, heads)
            if len(poor):
                warnings.warn(
                    f"The tasks {listed(form.labels[poor])} were not learned: on the training rows "
                    "their mean predicts as well, or better. Scale features and targets to order "
                    "one (StandardScaler, TransformedTargetRegressor); if they are, lower "
                    f"learning_rate={self.learning_rate:g}.",
                    ConvergenceWarning,
                    stacklevel=users_line(),
                )
        if classes is not None:
            fitted["_task_classes_"] = classes
            fitted["classes_"] = (
                classes if form.kind == "wide" else np.unique(np.concatenate(classes))
            )
        return fitted

    def _report(self, table, form, classes):
        public = {
            "clients": table.n_clients,
            "tasks": form.labels,
            "rounds": self.n_rounds,
            "parameters": {
                name: getattr(self, name) for name in ("aggregation", "threshold", "local_epochs")
            },
        }
        if classes is not None:
            public["classes"] = [own.tolist() for own in classes]
        return PrivacyReport(
            "none",
            unit="record",
            mechanism="secret sharing, no noise" if self.secure else "none",
            public_inputs=public,
            notes={"reason": _SECRET if self.secure else _IN_THE_CLEAR},
        )

    # ------------------------------------------------------------------ new clients
    def personalize(self, X, y, client=None, task=None, sample_weight=None):
        """Add clients, or replace them, without running the others again.

        New clients start at the mean of what the others sent last, weighted by numbers of rows
        (shared layers over all clients, the head of a task over those that have it). They
        then go through all rounds, in which the others answer with the same layers as in
        their last round. The models of the others do not change.

        Parameters
        ----------
        X, y, client, task, sample_weight
            In the form of `fit`. Tasks and classes must be known from it; columns of a DataFrame y
            are matched by name, and some may be missing.

        Returns
        -------
        self : object
            The estimator; after an error it is as it was.

        Raises
        ------
        ValueError
            For unknown tasks or classes, for clients without labels, after a fit without client
            ids, and after a fit with `secure`, where no server has the layers of the others in the
            clear.
        """
        check_is_fitted(self)
        form, models = self._form_, self._models_
        if not form.has_clients:
            raise ValueError(
                "This fit had no client ids, so that there are no others to join: fit again "
                "with client= or client_feature."
            )
        if models.uploads is None:
            raise ValueError(
                "After a fit with secure=True no server has the layers of the other clients in "
                "the clear, which a new client would be averaged with: fit again with it."
            )
        classes = getattr(self, "_task_classes_", None)
        given = X, y, client, task, sample_weight
        table, _, _ = read_training(self, *given, fitted=form, classes=classes)
        stay = locate(models.clients, table.clients, "Client") < 0
        if not stay.any():
            raise ValueError(
                "These are all the clients of the fit; there are no others to join: use fit."
            )
        others = models.take(stay)
        heads = Heads(table.slots, models.heads.n_outputs, models.heads.classification)
        network, rng = self._network_, self._rng()
        theta, uploads, similarity, _ = run_rounds(
            network,
            table,
            heads,
            average_start(network, others, heads, rng),
            self._schedule(),
            rng,
            others=others,
            progress=self._progress("round %d of %d: loss %.4g, training %s %.4g", self.n_rounds),
        )
        new = ClientModels(table.clients, heads, theta, uploads, table.sizes)
        joined = new.merge(others, network)
        order = np.argsort(joined.clients)
        self._models_ = joined.take(order)
        self.clients_ = self._models_.clients
        self.similarity_ = similarity[np.ix_(order, order)]
        return self

    # ------------------------------------------------------------------ predicting
    def _scores(self, X, client, task):
        """Read rows; -> rows, and for every client its rows, heads by task, and scores."""
        check_is_fitted(self)
        form, models = self._form_, self._models_
        rows = read_rows(self, X, client, task, form)
        n = len(rows.matrix)
        if rows.client is None and form.has_clients:
            raise ValueError(
                f"This estimator was fitted with {len(self.clients_)} clients: give client=, one "
                "id for each row of X."
            )
        owner = np.zeros(n, dtype=np.int64)
        if rows.client is not None:
            codes, ids = rows.client
            known = locate(ids, self.clients_, "Client")
            if (known < 0).any():
                raise ValueError(
                    f"Unknown clients: {listed(ids[known < 0])}. Add them with personalize(). In "
                    "cross-validation, KFold without shuffling leaves out whole clients when rows "
                    "are sorted by client: use TaskStratifiedKFold with the client column as "
                    "task_feature, or the clients as groups=."
                )
            owner = known[codes]
        wanted = None
        if rows.task is not None:
            if form.kind != "long":
                raise ValueError("Task ids are given, but the fit had none: predict without task=.")
            codes, ids = rows.task
            known = known_positions(ids, form.labels, "Task")
            if (known < 0).any():
                raise ValueError(
                    f"Unknown tasks: {listed(ids[known < 0])}; the fit had {listed(form.labels)}."
                )
            wanted = known[codes]
        elif form.kind == "long":
            raise ValueError("This estimator was fitted with task ids: give task=, one per row.")
        parts = []
        for i, part in by_code(owner):
            slots = models.heads.slots[i]
            if wanted is not None and not np.isin(wanted[part], slots).all():
                lacking = form.labels[np.setdiff1d(wanted[part], slots)]
                raise ValueError(
                    f"Client {self.clients_[i].item()!r} has no model of the tasks "
                    f"{listed(lacking)}: it had no label of them in fit.{RARE_LABELS}"
                )
            scores = self._network_.scores(models.theta[i : i + 1], rows.features(part)[None])
            scores = scores.reshape(len(part), len(slots), models.heads.width)
            own = slots[slots >= 0].tolist()
            parts.append((part, {k: scores[:, s] for s, k in enumerate(own)}))
        return n, wanted, parts

    def _by_task(self, X, client, task, decide, empty):
        """Apply decide(scores, k) -> values to all scores: (n, K), or (n,) in other forms.

        Cells of tasks that a client does not have stay `empty`.
        """
        n, wanted, parts = self._scores(X, client, task)
        wide = self._form_.kind == "wide"
        out = np.full((n, len(self._form_.labels) if wide else 1), empty)
        for part, by_task in parts:
            for k, scores in by_task.items():
                values = decide(scores[:, : self._models_.heads.n_outputs[k]], k)
                if wide:
                    out[part, k] = values
                else:
                    mine = slice(None) if wanted is None else wanted[part] == k
                    out[part[mine], 0] = values[mine]
        return (out if wide else out[:, 0]), wanted

    def _known_pairs(self, X, y, client, task, sample_weight):
        predicted = self.predict(X, client=client, task=task)
        known, predicted, weight = pair_known(y, predicted, self._form_.labels, sample_weight)
        lacking = ~known_labels(predicted)
        if lacking.any():
            raise ValueError(
                f"y has {lacking.sum()} label(s) of tasks that their clients do not have. A client "
                f"has the tasks of its labels in fit; set the others to NaN.{RARE_LABELS}"
            )
        return known, predicted, weight

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        has_column = self.client_feature is not None or self.task_feature is not None
        tags.input_tags.string = tags.input_tags.categorical = has_column
        return tags
