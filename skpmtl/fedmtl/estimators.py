"""FedMTL as estimators: clients with different sets of tasks."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score

from .._runtime.constraints import take
from .._runtime.hints import ClassWeight, RandomState
from .base import BaseFedMTL

__all__ = ["FedMTLClassifier", "FedMTLRegressor"]


class FedMTLClassifier(ClassifierMixin, BaseFedMTL):
    """Federated multi-task classification: every client gets its own averages of layers.

    A client trains a network with shared hidden layers and one linear head per task it has. In
    every round it trains some epochs on its rows and sends all layers; it receives averages whose
    weights follow from similarities between clients, computed from layers alone.
    Clients may have different sets of tasks, tasks different classes.

    FedMTL gives no differential privacy; `privacy_` says so. With ``secure=True`` the
    averages are computed on secret shares: see Notes.

    Parameters
    ----------
    hidden_layer_sizes : int or tuple of int, default=(32,)
        Widths of the shared hidden layers. ``()``: the heads take the features, and only heads of
        equal tasks are shared.
    activation : {"identity", "logistic", "tanh", "relu"}, default="relu"
        Of all hidden layers. "identity" with one layer is a linear shared projection.
    threshold : float or (float, float), default=(0.75, 0.95)
        Least similarity of a neighbour, in [0, 1]; a pair goes linearly from the first to
        the last round. For `aggregation` "similarity".
    n_rounds : int, default=20
    local_epochs : int, default=1
        Epochs of a client over its own rows in a round.
    batch_size : int, default=32
        Largest number of rows in a batch; the batches of a client differ by at most one row.
    solver : {"adam", "sgd"}, default="adam"
        Its moments are reset in every round.
    learning_rate : float, default=0.01
        Step size; "sgd" usually needs a larger one.
    momentum : float, default=0.9
        Of "sgd".
    alpha : float, default=1e-4
        Strength of the squared penalty alpha / 2 on weights, not on biases.
    aggregation : {"per-task", "similarity", "uniform", "local"}, default="per-task"
        A rule of `fedmtl_aggregate`: "per-task" is ours, "similarity" that of the paper. "local":
        no exchange. The versions and competitors of the paper are options of
        `skpmtl.reproduction.fedmtl.PublishedFedMTL`.
    secure : bool, default=False
        Compute the rule "similarity" on secret shares, by servers and a dealer that run as
        processes on this machine for all rounds of the fit: it shows the result and the cost
        (extra ``skpmtl[secure]``).
    n_servers : int, default=3
        Servers of `secure`, 2 or more; all but one of them may be curious.
    max_heads : int, default=None
        Heads that each client uploads with `secure`, zeros included, so that the number of its
        tasks stays secret: a public bound, at most 10. None: the largest number of tasks of a
        client.
    max_size : float, default=None
        Public bound on the number of rows of a client with `secure`, rounded up to a power of two;
        clients may have up to 2^16 times fewer rows. None: the largest number of rows of a client.
    module : callable, default=None
        ``module() -> torch.nn.Module``, the shared layers instead of `hidden_layer_sizes` and
        `activation`: from (batch, n_features) to (batch, width), in float32. Needs the extra
        ``skpmtl[torch]``. Clients are then trained one after the other.
    client_feature : str, int or None, default=None
        Column of X that holds the client, by name or position. None: ``client=``.
    task_feature : str, int or None, default=None
        Column of X that holds the task, for a y with one dimension. None: ``task=``, or a y
        with one column per task.
    class_weight : "balanced", mapping of class to float, or None, default=None
        Weights of the classes, by which those of the rows are multiplied; a class
        that is not named weighs 1. "balanced": each client gives the classes of a task the same
        weight together, by its own counts.
    random_state : int, RandomState, Generator or None, default=None
        Initial parameters of the networks, and order of the rows.
    verbose : bool or int, default=0
        Log every round.

    Attributes
    ----------
    clients_ : ndarray of shape (n_clients,)
        Client ids, sorted.
    task_names_ : ndarray of shape (n_tasks,)
        Tasks, in the order of the columns of y, or sorted.
    classes_ : list of ndarray, or ndarray
        Classes of every task; with a y of one dimension, the classes of all tasks together.
    similarity_ : ndarray of shape (n_clients, n_clients), or None with `secure`
        Weights of the last round before thresholds and numbers of rows.
    history_ : dict of ndarray of shape (n_rounds,)
        "loss" (mean over labels, during the local epochs), "accuracy" (of the averaged models,
        on the training rows) and "threshold". Computed from rows, in the clear: for simulation.
        With `secure` also "cpu_seconds" and "megabytes" (sent), of all processes together.
    n_iter_ : int
        Number of rounds.
    privacy_ : PrivacyReport
        With the guarantee "none".
    n_features_in_, feature_names_in_
        Of X as given, so that id columns count.

    Notes
    -----
    Loss of a client in a batch: the sum over its tasks of the mean over the rows whose label is
    known; logistic for two classes, softmax for more. All clients start with the same shared
    layers, each with heads of its own. A client predicts with its average of the last round.
    The classes of a task are those of all clients together; a client may lack some. A task of one
    class takes those of all tasks that have it, and learns that it has no others.

    ``secure=True`` protects against the servers, not against disclosure by the models: the
    uploads, the similarities and the numbers of rows stay secret from up to P - 1 of P curious
    servers, provided that the dealer of random numbers colludes with none of them. It is not
    differential privacy.

    References
    ----------
    P. Sen, C. Borcea. FedMTL: privacy-preserving federated multi-task learning. ECAI 2024.

    Examples
    --------
    >>> from skpmtl import FedMTLClassifier
    >>> from skpmtl.fedmtl import make_fedmtl_clients
    >>> X, y, client = make_fedmtl_clients(n_clients=8, n_tasks=4, random_state=0)
    >>> model = FedMTLClassifier(random_state=0).fit(X, y, client=client)
    >>> model.predict(X, client=client).shape, model.similarity_.shape
    ((936, 4), (8, 8))
    """

    _classification = True
    class_weight: ClassWeight

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
        class_weight: ClassWeight = None,
        random_state: RandomState = None,
        verbose: bool | int = 0,
    ) -> None:
        take(self, locals())

    def predict(self, X, client=None, task=None):
        """Predict classes.

        Parameters
        ----------
        X, client, task
            As in `fit`.

        Returns
        -------
        y : ndarray of shape (n_samples, n_tasks) or (n_samples,)
            In the form of y in `fit`. With one column per task, a task that the row's client
            does not have is NaN (numbers then are floats), or None with classes of strings.

        Raises
        ------
        ValueError
            For clients and tasks that are not known, and in the long form for a task that the
            row's client does not have.
        """

        def decide(scores, k):
            single = scores.shape[1] == 1
            return scores[:, 0] > 0 if single else scores.argmax(axis=1)

        codes, wanted = self._by_task(X, client, task, decide, -1)
        classes = self._task_classes_
        if codes.ndim == 1:
            wanted = np.zeros(len(codes), dtype=np.int64) if wanted is None else wanted
            offsets = np.concatenate([[0], np.cumsum([len(own) for own in classes])])
            return np.concatenate(classes)[offsets[wanted] + codes]
        missing = codes < 0
        numbers = all(own.dtype.kind in "biuf" for own in classes)
        kinds = {own.dtype.kind for own in classes}
        dtype = np.result_type(*classes) if numbers or kinds == {"U"} else np.dtype(object)
        empty = None
        if missing.any():
            dtype = np.result_type(dtype, np.float64) if numbers else np.dtype(object)
            empty = np.nan if numbers else None
        labels = np.empty(codes.shape, dtype=dtype)
        for k, own in enumerate(classes):
            labels[:, k] = own[codes[:, k]]
        if missing.any():
            labels[missing] = empty
        return labels

    def predict_proba(self, X, client=None, task=None):
        """Probabilities of the classes.

        Parameters
        ----------
        X, client, task
            As in `fit`.

        Returns
        -------
        p : list of ndarray of shape (n_samples, n_classes_of_task), or ndarray
            With one column per task: one array per task, with rows of NaN where the row's client
            does not have it. Otherwise an array (n_samples, n_classes), columns in the order
            of `classes_`, 0 for classes that the row's task does not have.
        """
        n, wanted, parts = self._scores(X, client, task)
        classes = self._task_classes_
        wide = self._form_.kind == "wide"
        if wide:
            out = [np.full((n, len(own)), np.nan) for own in classes]
        else:
            out = np.zeros((n, len(self.classes_)))
        for part, by_task in parts:
            for k, scores in by_task.items():
                p = _probabilities(scores[:, : self._models_.heads.n_outputs[k]])
                if wide:
                    out[k][part] = p
                    continue
                mine = slice(None) if wanted is None else wanted[part] == k
                columns = np.searchsorted(self.classes_, classes[k])
                out[np.ix_(part[mine], columns)] = p[mine]
        return out

    def predict_log_proba(self, X, client=None, task=None):
        """Logarithms of the probabilities of the classes, -inf for those that a task lacks.

        Parameters
        ----------
        X, client, task
            As in `fit`.

        Returns
        -------
        p : list of ndarray of shape (n_samples, n_classes_of_task), or ndarray
            As `predict_proba`.
        """
        p = self.predict_proba(X, client=client, task=task)
        with np.errstate(divide="ignore"):
            return [np.log(one) for one in p] if isinstance(p, list) else np.log(p)

    def score(self, X, y, client=None, task=None, sample_weight=None):
        """Accuracy over all known labels of all tasks together.

        Parameters
        ----------
        X, y, client, task
            As in `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows of X.

        Returns
        -------
        score : float
        """
        known, predicted, weight = self._known_pairs(X, y, client, task, sample_weight)
        return float(np.average(known == predicted, weights=weight))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = False
        return tags


class FedMTLRegressor(RegressorMixin, BaseFedMTL):
    """Federated multi-task regression: every client gets its own averages of layers.

    As `FedMTLClassifier`, with the squared loss 1/2 (y - f(x))^2 and one output per task. Targets
    should be of order one, since the loss is not scaled; a `ConvergenceWarning` names the tasks
    that were not learned because their targets, or the features, are not.

    Parameters
    ----------
    hidden_layer_sizes, activation, threshold, n_rounds, local_epochs, batch_size, solver, \
learning_rate, momentum, alpha, aggregation, secure, n_servers, max_heads, max_size, module, \
client_feature, task_feature, random_state, verbose
        As in `FedMTLClassifier`.

    Attributes
    ----------
    clients_, task_names_, similarity_, n_iter_, privacy_, n_features_in_, feature_names_in_
        As in `FedMTLClassifier`.
    history_ : dict of ndarray of shape (n_rounds,)
        "loss", "mse" (mean squared error of the averaged models on the training rows) and
        "threshold".

    Examples
    --------
    >>> import numpy as np
    >>> from skpmtl import FedMTLRegressor
    >>> rng = np.random.default_rng(0)
    >>> X, client = rng.normal(size=(90, 3)), np.repeat(["a", "b", "c"], 30)
    >>> y = np.column_stack([X[:, 0], X[:, 1] - X[:, 2]])
    >>> y[client == "c", 0] = np.nan  # c does not have the first task
    >>> model = FedMTLRegressor(random_state=0).fit(X, y, client=client)
    >>> np.isnan(model.predict(X, client=client)).sum(axis=0).tolist()
    [30, 0]
    """

    _classification = False

    def predict(self, X, client=None, task=None):
        """Predict targets.

        Parameters
        ----------
        X, client, task
            As in `fit`.

        Returns
        -------
        y : ndarray of shape (n_samples, n_tasks) or (n_samples,)
            In the form of y in `fit`. With one column per task, NaN for a task that the row's
            client does not have.

        Raises
        ------
        ValueError
            For clients and tasks that are not known, and in the long form for a task that the
            row's client does not have.
        """
        return self._by_task(X, client, task, lambda scores, k: scores[:, 0], np.nan)[0]

    def score(self, X, y, client=None, task=None, sample_weight=None):
        """Coefficient of determination R2, over all known targets of all tasks together.

        Parameters
        ----------
        X, y, client, task
            As in `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows of X.

        Returns
        -------
        score : float
        """
        known, predicted, weight = self._known_pairs(X, y, client, task, sample_weight)
        return r2_score(known.astype(np.float64), predicted, sample_weight=weight)


def _probabilities(scores):
    if scores.shape[1] == 1:
        second = 0.5 * (1.0 + np.tanh(0.5 * scores[:, 0]))  # does not overflow
        return np.column_stack([1.0 - second, second])
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)
