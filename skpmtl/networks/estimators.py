"""Networks in private rounds: what the paper of the mean-regularised rounds trains."""

import hashlib
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from .._docstrings import fill_docstring
from .._runtime.constraints import Interval, StrOptions, take
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState, Self
from .._runtime.stack import users_line
from ..base import BaseMTL, MTLClassifierMixin, MTLRegressorMixin
from ..exchange.journal import Journal, fingerprint
from ..privacy.report import PUBLIC_MODULE
from ..tables.ids import listed
from ..tables.table import by_code
from .billboard import NetworkBillboard
from .module import FlatModule
from .rounds import RunsRounds, cluster_rows
from .steps import LocalSteps
from .tasks import NetworkTaskSide, personal_networks

__all__ = ["TorchMeanRegClassifier", "TorchMeanRegRegressor"]
# Noise of all rounds over the longest path, from which on it took much of what shared networks
# could learn from random numbers, and from public ones.
NOISY, _NOISY_LOADED = 0.25, 1.0


if TYPE_CHECKING:  # a mixin stands before an estimator
    _BeforeOfModule = BaseMTL
else:
    _BeforeOfModule = object


class OfModule(_BeforeOfModule):
    """Mixin of estimators of a torch module: ``module__name=`` are arguments of its factory.

    Their ``__init__`` has ``**arguments`` for these; `coef_` holds the numbers of the networks.
    """

    _is_linear = False
    fit_intercept = False  # besides the module
    target_range: ArrayLike | None = None
    feature_range: ArrayLike | None = None
    _built = None  # the last module that was built, with what it was built from
    _folder = None  # of the journal of a fit
    __metadata_request__fit = {"task": True, "journal": UNUSED}

    def fit(
        self,
        X,
        y: ArrayLike,
        task: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        journal=None,
    ) -> Self:
        """Fit all tasks.

        Parameters
        ----------
        X, y, task, sample_weight
            As of `PrivateMeanRegMTL.fit`; X is dense.
        journal : path-like or address, default=None
            Folder for what was released, as of `skpmtl.shards.fit_shards`. A fit that was cut off
            goes on from there when it is called again with the same parameters and rows, and
            spends nothing twice. One fit at a time uses it.

        Returns
        -------
        self : object
            The fitted estimator. After an error it is not fitted, even if it was before; after an
            interrupt (Ctrl-C) it is as it was before.

        Raises
        ------
        ValueError
            If `journal` holds another fit or one of other rows, is used by another process, or is
            damaged.
        """
        self._folder = journal
        try:
            return super().fit(X, y, task, sample_weight)
        finally:
            self._folder = None

    def _journal(self, table, population):
        if self._folder is None:
            return super()._journal(table, population)
        params = self.get_params(deep=False)
        start = self._network_of(population).start.double().cpu().numpy()
        run = {
            "estimator": type(self).__name__,
            "params": {k: v for k, v in params.items() if k not in ("classes", "tasks")},
            "tasks": population.tasks.tolist(),
            "n_features": population.n_features,
            "n_classes": population.n_classes,
            "start": hashlib.sha256(start.tobytes()).hexdigest(),
        }
        journal = Journal(self._folder, run)
        try:
            journal.same_rows([("The table", fingerprint(table, journal.key))])
        except BaseException:
            journal.close()
            raise
        return journal

    def get_params(self, deep=True):
        """Parameters by name, with the arguments of the module.

        Parameters
        ----------
        deep : bool, default=True

        Returns
        -------
        params : dict
        """
        return {**super().get_params(deep), **self.arguments}

    def set_params(self, **params):
        """Set parameters, and arguments of the module.

        Parameters
        ----------
        **params

        Returns
        -------
        self : object
        """
        of_module = {name: params.pop(name) for name in [*params] if name.startswith("module__")}
        super().set_params(**params)
        self.arguments = {**self.arguments, **of_module}
        return self

    def _arguments(self):
        """Arguments of the factory."""
        return {name.removeprefix("module__"): value for name, value in self.arguments.items()}

    def _network(self, n_features, n_classes):
        """The `FlatModule` of the parameters for such rows."""
        if self.module is None:
            raise ValueError(
                "module= is missing, the function that builds the network. Billboards bring no "
                "code along: pass that of the fit, set_params(module=...)."
            )
        made_of = (
            self.module,
            self._arguments(),
            self.device,
            getattr(self, "local", ()),
            self.random_state,
            n_features,
            n_classes,
        )
        if self._built is None or not _same(self._built[0], made_of):
            loss = {0: "squared", 2: "logistic"}.get(n_classes, "multinomial")
            self._built = made_of, FlatModule(self, loss, n_features, n_classes)
        return self._built[1]

    def __getstate__(self):
        state = super().__getstate__()
        state.pop("_built", None)  # made again where it is needed
        return state

    def _stated(self, report, population):
        """A report that lists the module among the public inputs."""
        if report.guarantee == "none":
            return report
        public = {**report.public_inputs, "module": self._network_of(population).describe()}
        return replace(
            report, public_inputs=public, assumptions=(*report.assumptions, *PUBLIC_MODULE)
        )

    # ------------------------------------------------------------------------ networks
    def _of_billboard(self):
        """The module of a fit, held against its billboard."""
        billboard = self.billboard_
        network = self._network(billboard.n_features, billboard.n_classes)
        if network.layout != billboard.layout or network.start.shape != billboard.model_shape:
            raise ValueError(
                "The module has other parameters than the one of the fit: "
                f"{listed([name for name, _ in network.layout], 8)} in place of "
                f"{listed([name for name, _ in billboard.layout], 8)}, or of other shapes."
            )
        return network

    def to_module(self, task=None):
        """A copy of the module with the numbers of a task, or with those that were released.

        Parameters
        ----------
        task : str or int, default=None
            Id of the task, to which its network belongs. None: the shared one, which is public.

        Returns
        -------
        module : torch.nn.Module
            On the CPU, as after ``eval()``.

        Raises
        ------
        ValueError
            If the task is not in `tasks_`, or for clusters and relations without a task.
        """
        check_is_fitted(self)
        network = self._of_billboard()
        if task is None:
            if not hasattr(self, "mean_coef_"):
                raise ValueError("There are several shared networks: name a task.")
            numbers = self.mean_coef_
        else:
            numbers = self.coef_[self._position(task)]
        network.write(network.tensor(numbers))
        return deepcopy(network.module).cpu().eval()

    def export_task(  # type: ignore[override]  # no network is a model of scikit-learn
        self, task
    ) -> dict:
        """The network of one task, which belongs to that task and to nobody else.

        Parameters
        ----------
        task : str or int
            Id of the task.

        Returns
        -------
        model : dict
            Keys "task", "parameters" (arrays by the names of the module: those that are trained,
            and statistics of normalisation layers), "classes" and "feature_names" (lists, or None).

        Raises
        ------
        ValueError
            If the task is not in `tasks_`.
        """
        model = super().export_task(task)
        del model["coef"], model["intercept"]
        numbers = self.coef_[self._position(task)]
        return {**model, "parameters": self._of_billboard().named(numbers)}

    def _has_mean(self):
        return True  # what is released is a whole network

    def _read_training(self, X, *given, **named):
        check_flat(X)
        return super()._read_training(X, *given, **named)

    def _read_rows(self, X, *given, **named):
        check_flat(X)
        return super()._read_rows(X, *given, **named)

    def _row_scores(self, rows):
        network, billboard = self._of_billboard(), self.billboard_
        if rows.codes is None:
            X = rows.features()
            return np.stack(
                [network.predict(self.coef_[k], X) for k in self._wide_columns()], axis=1
            )
        several = (self.billboard_.n_classes,) if self.billboard_.n_classes > 2 else ()
        out = np.empty((len(rows.codes), *several))
        unseen = None
        if rows.unseen is not None and len(rows.unseen):
            unseen = billboard.without_rows(rows.unseen)[0]
        for k, part in by_code(rows.codes):
            numbers = self.coef_[k] if k >= 0 else unseen[-1 - k]
            out[part] = network.predict(numbers, rows.features(part))
        return out

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def check_flat(X):
    """ValueError for images that are no rows."""
    if getattr(X, "ndim", 2) > 2:
        raise ValueError(
            f"X has {X.ndim} dimensions: pass rows, X.reshape(len(X), -1), and begin the module "
            f"with torch.nn.Unflatten(1, {tuple(X.shape[1:])})."
        )


def _same(first, second):
    """Whether two modules are made of the same; arguments may be arrays."""
    try:
        return all(
            a is b or (type(a) is type(b) and bool(a == b))
            for a, b in zip(first, second, strict=True)
        )
    except (TypeError, ValueError):
        return False


def check_arguments(cls, arguments):
    """TypeError for keywords that are neither parameters nor arguments of the module."""
    for name in arguments:
        if not name.startswith("module__") or name == "module__":
            raise TypeError(f"{cls.__name__} got an unexpected keyword argument {name!r}")


class _TorchMeanReg(OfModule, RunsRounds):
    _parameter_constraints = {
        **RunsRounds._parameter_constraints,
        "module": [callable, None],
        "lam": [Interval(Real, 0, None, closed="neither")],
        "clip_norm": [Interval(Real, 0, None, closed="neither")],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "update": [StrOptions({"prox", "fedavg"})],
        "local": [str, list, tuple],
        "local_steps": [Interval(Integral, 1, None, closed="left")],
        "personalization": [StrOptions({"mean-reg", "finetune", "none"})],
        "personal_steps": [Interval(Integral, 1, None, closed="left")],
        "personal_folds": [Interval(Integral, 2, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "device": [str],
    }
    _billboards = (NetworkBillboard,)
    _stays = ("module", "device")
    _sparse_in_place = False

    def __init__(
        self,
        module: Callable | None = None,
        *,
        lam: float = 0.1,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        clip_norm: float = 0.5,
        n_rounds: int = 10,
        update: Literal["fedavg", "prox"] = "prox",
        local: str | list | tuple = (),
        local_steps: int = 5,
        learning_rate: float = 0.03,
        momentum: float = 0.9,
        batch_size: int | None = None,
        personalization: Literal["finetune", "mean-reg", "none"] = "mean-reg",
        personal_steps: int = 20,
        personal_folds: int | None = 3,
        clusters: Mapping | None = None,
        relation=None,
        relation_rank: int | Literal["all"] | None = None,
        device: str = "cpu",
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        unseen_task: Literal["error", "mean"] = "error",
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        **arguments,
    ) -> None:
        check_arguments(type(self), arguments)
        self.module = module
        self.lam = lam
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.curator = curator
        self.clip_norm = clip_norm
        self.n_rounds = n_rounds
        self.update = update
        self.local = local
        self.local_steps = local_steps
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.batch_size = batch_size
        self.personalization = personalization
        self.personal_steps = personal_steps
        self.personal_folds = personal_folds
        self.clusters = clusters
        self.relation = relation
        self.relation_rank = relation_rank
        self.device = device
        self.task_feature = task_feature
        self.tasks = tasks
        self.unseen_task = unseen_task
        self.secure = secure
        self.random_state = random_state
        self.verbose = verbose
        self.arguments = arguments

    def _network_of(self, population):
        return self._network(population.n_features, population.n_classes)

    def _size(self, population):
        return self._network_of(population).n_shared

    def _curator(self, population, source):
        rounds = super()._curator(population, source)

        def curator():
            billboard = yield from rounds
            billboard.report = self._stated(billboard.report, population)
            return billboard

        return curator()

    def _task_side(self, table, population):
        if table.is_sparse:
            raise ValueError(f"{type(self).__name__} does not take sparse X: pass X.toarray().")
        which = cluster_rows(table.tasks, self._cluster_rows(population.tasks))
        relation = self._relation(population, quiet=True)
        return NetworkTaskSide(self, self._network_of(population), table, which, relation)

    def _billboard(self, population, centres, cluster_of, relation):
        network = self._network_of(population)
        return NetworkBillboard(
            centres=centres,
            lam=float(self.lam),
            n_classes=population.n_classes,
            start=network.start.double().cpu().numpy(),
            layout=network.layout,
            width=population.n_features,
            personalization=self.personalization,
            personal_steps=self.personal_steps,
            personal_folds=self.personal_folds,
            learning_rate=float(self.learning_rate),
            momentum=float(self.momentum),
            batch_size=self.batch_size,
            local=(self.local,) if isinstance(self.local, str) else tuple(self.local),
            cluster_of=cluster_of,
            relation=relation,
        )

    def _stated(self, report, population):
        report = super()._stated(report, population)
        plan = self._plan(population)
        if report.guarantee == "none":
            return report
        public = {
            **report.public_inputs,
            "noise of a round over the longest step": plan.n_rounds * plan.noise_over_path,
            "noise of all rounds over the longest path": plan.total_noise_over_path,
        }
        return replace(report, public_inputs=public)

    def _warn_of_noise(self, plan, population):
        noise = plan.total_noise_over_path
        if noise <= NOISY:
            return
        drawn = self._network_of(population).is_drawn(self)
        if not drawn and noise <= _NOISY_LOADED:
            return
        start = "random numbers" if drawn else "the numbers of the module"
        warnings.warn(
            f"The noise of all rounds is {noise:.2g} times as long as the path that they make "
            "where the updates of all tasks agree, which they never do: expect it to take much of "
            f"what the shared network could learn from {start}, or all. Take TorchFeatures and a "
            "linear model, a module that was trained on public rows, more tasks, more epsilon, or "
            "a smaller module.",
            UserWarning,
            stacklevel=users_line(),
        )

    def _planned_report(self, population):
        return self._stated(super()._planned_report(population), population)

    def _personalize_table(self, table):
        network = self._of_billboard()
        return personal_networks(self.billboard_, network, LocalSteps(network, table))


_DOC = """{summary}

    Rounds [1]_ with a torch module in the place of a linear model: tasks receive the shared
    parameters w~, train on their own rows, and send a clipped update of which only the noisy mean
    is published (joint differential privacy at task level). Afterwards every task turns the last w~
    into its own network, at no further cost.

    Noise grows with the number of parameters: start from a module that was trained on public rows,
    or take `TorchFeatures` and a linear model. From a random start few networks get anywhere at
    usual budgets.

    Parameters
    ----------
    module : callable
        ``module(**arguments) -> torch.nn.Module``, from rows (batch, n_features), in the type of
        its parameters, to {scores}. Images are made of rows by ``torch.nn.Unflatten``, and tokens
        by ``x.long()``. Its parameters as it is built are the start of all tasks: a public input,
        drawn from `random_state` if that is an int, else from 0, unless they are loaded. Parameters
        that need no gradient are constants.
    lam : float, default=0.1
        Weight of ``lam / 2 ||w - w~||^2``, of "prox" in the rounds and in the personalisation.
    epsilon : float or None, default=1.0
        Privacy budget of the whole fit. None or infinity: rounds without noise and clipping.
    delta : float or None, default=None
        Delta of the (epsilon, delta) guarantee, in (0, 1). None: ``min(1e-5, 1 / n_tasks**2)``.
    {adjacency}
    {curator}
    clip_norm : float, default=0.5
        Public bound on the norm of an update: about the distance from the start to a good network,
        divided by a few rounds.
    n_rounds : int, default=10
    update : {{"prox", "fedavg"}}, default="prox"
        What a task sends. "prox": `local_steps` steps from w~ with the penalty of `lam` (FedProx);
        "fedavg": the same without that penalty.
    local : str or sequence of str, default=()
        Patterns of names of parameters, such as "head.*", that stay with the task. They start as
        the module does, are trained in the rounds, and cost no privacy. So stay the statistics of
        normalisation layers; a batch normalisation whose parameters would be released is an error.
    local_steps : int, default=5
        Gradient steps of a task in a round.
    learning_rate : float, default=0.03
    momentum : float, default=0.9
    batch_size : int or None, default=None
        Rows of a step. None: all of the task.
    personalization : {{"mean-reg", "finetune", "none"}}, default="mean-reg"
        From w~ to a task's network, by `personal_steps` steps on its own rows: with the penalty of
        `lam` to w~ ("mean-reg") or without ("finetune"). "none": w~ itself.
    personal_steps : int, default=20
    personal_folds : int or None, default=3
        A task begins between w~ and the start, averaged by how probable they make its rows, and
        goes from there, regularised towards there, as far as rows tell that it did not learn from:
        its rows are dealt into so many parts, each of which is left out once, and parts of the
        way are averaged by how probable they make the rows left out, for so many times the steps
        more. Few rows determine little: some fourteen of thirteen classes cost up to three points
        of accuracy compared with the better of the start and w~. A task of one row stays at w~.
        None: from w~, all of the way.
    clusters, relation, relation_rank
        As in `PrivateMeanRegMTL`.
    device : str, default="cpu"
        Where networks are trained, such as "cuda". Noise is drawn and added as ever.
    {task_feature}
    {tasks}{class_list}
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: an error, or the shared network, with
        local parameters and statistics of the start.
    {secure}
    {random_state}
    {verbose}
    **arguments
        ``module__name=value``: arguments of `module`, which `set_params` and searches know too.

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_numbers)
        All numbers of the networks of the tasks, in the order of ``billboard_.layout``, then those
        that stay with the tasks. Together they are no private object: hand each task its own with
        `export_task` or `to_module`.
    mean_coef_ : ndarray of shape (n_numbers,)
        The shared network, without `clusters` and `relation`.
    intercept_ : ndarray of shape (n_tasks,)
        Zeros.
    tasks_ : ndarray of shape (n_tasks,){classes}
    billboard_ : NetworkBillboard
        Start, noisy means in the order of publication, and ``history()``: noise and epsilon per
        round. Files of it have numbers only; who reads one passes the same module again,
        ``set_params(module=...)``.
    {privacy_}
    n_iter_ : int
        Rounds.
    {features_in_}

    See Also
    --------
    TorchFeatures : Public features for the linear estimators, mostly the better choice.
    skpmtl.PrivateMeanRegMTL{twin} : Linear models around a private mean.

    Notes
    -----
    Updates of parameters alone leave a task. Buffers of the module are constants, but for the
    statistics of normalisation layers, which stay with the task. The code of the module and its
    start are public inputs of the guarantee. A task whose steps are not finite sends zeros.
    What is random in a task, batches and dropout, follows from its id and the round.

    References
    ----------
    .. [1] S. Hu, Z. S. Wu, V. Smith, "Private multi-task learning: formulation and
       applications to federated learning", TMLR, 2023.

    Examples
    --------
    >>> net = torch.nn.Linear(20, {n_scores})  # doctest: +SKIP
    >>> {name}(lambda: net, epsilon=2.0).fit(X, y, task=task)  # doctest: +SKIP
    """


class TorchMeanRegClassifier(MTLClassifierMixin, _TorchMeanReg):
    __doc__ = fill_docstring(
        _DOC,
        summary="Private mean-regularised networks for classes.",
        twin="Classifier",
        scores="scores of\n        the classes; of two classes also one score, the log-odds of the "
        "second",
        classes="several",
        n_scores=3,
        name="TorchMeanRegClassifier",
    )
    _multiclass = True
    _spreads_labels = False  # networks have no intercept apart

    def __init__(
        self,
        module: Callable | None = None,
        *,
        lam: float = 0.1,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        clip_norm: float = 0.5,
        n_rounds: int = 10,
        update: Literal["fedavg", "prox"] = "prox",
        local: str | list | tuple = (),
        local_steps: int = 5,
        learning_rate: float = 0.03,
        momentum: float = 0.9,
        batch_size: int | None = None,
        personalization: Literal["finetune", "mean-reg", "none"] = "mean-reg",
        personal_steps: int = 20,
        personal_folds: int | None = 3,
        clusters: Mapping | None = None,
        relation=None,
        relation_rank: int | Literal["all"] | None = None,
        device: str = "cpu",
        task_feature: str | int | list | None = None,
        tasks: ArrayLike = "auto",
        classes: ArrayLike = "auto",
        class_weight: ClassWeight = None,
        unseen_task: Literal["error", "mean"] = "error",
        secure: bool = False,
        random_state: RandomState = None,
        verbose: int = 0,
        **arguments,
    ) -> None:
        super().__init__(module, **arguments)
        take(self, locals())


class TorchMeanRegRegressor(MTLRegressorMixin, _TorchMeanReg):
    __doc__ = fill_docstring(
        _DOC,
        summary="Private mean-regularised networks for real targets.",
        twin="",
        scores="one number\n        each; the loss is half the squared error, and targets should "
        "be of order one",
        n_scores=1,
        name="TorchMeanRegRegressor",
    )
