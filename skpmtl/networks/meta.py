"""Networks in private meta-learning: an initialisation that new tasks fine-tune."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .._docstrings import fill_docstring
from .._runtime.constraints import Interval, StrOptions, take
from .._runtime.hints import Adjacency, ClassWeight, Curator, RandomState
from .._runtime.stack import users_line
from .._runtime.torch_modules import drawing, sow
from ..base import MTLClassifierMixin, MTLRegressorMixin
from ..exchange.billboard import Billboard
from ..exchange.wire import MOST_STEPS
from ..meta.curator import release_init
from ..meta.estimators import _MetaInit
from ..meta.plan import MetaPlan
from ..meta.tasks import MetaTaskSide
from .billboard import check_layout
from .estimators import NOISY, OfModule, check_arguments
from .module import plain_numbers
from .recurrent import spelled_out
from .steps import LocalSteps, Pace

__all__ = ["TorchMetaInitClassifier", "TorchMetaInitRegressor"]
# Numbers of gradients of records held at once: what stays in a processor's cache, or fills a GPU.
_GRADIENTS = {"cpu": 1 << 20}
_MORE = 1 << 24
_RATES = 0.5 ** np.arange(20)  # by which a task shortens steps after which its loss is larger


@dataclass
class InitBillboard(Billboard):
    """What was published: the numbers of a network that tasks start from.

    Attributes
    ----------
    init : ndarray (n_numbers,)
    layout : list of tuple
        (name, shape) of the parameters in the order of their numbers.
    width : int
        Features of a row.
    classes : int
        0 for real targets.
    refine_steps, refine_learning_rate
        As in the estimator.
    report : PrivacyReport
    """

    init: np.ndarray
    layout: list = field(default_factory=list)
    width: int = 1
    classes: int = 0
    refine_steps: int = 10
    refine_learning_rate: float = 0.1
    report: object = None

    constraints = {
        "width": [Interval(Integral, 1, None, closed="left")],
        "classes": [Interval(Integral, 0, None, closed="left")],
        "refine_steps": [Interval(Integral, 1, MOST_STEPS, closed="both")],
        "refine_learning_rate": [Interval(Real, 0, None, closed="neither")],
    }
    settings = ("refine_steps", "refine_learning_rate")

    @property
    def n_features(self):
        return self.width

    @property
    def n_classes(self):
        return self.classes

    @property
    def model_shape(self):
        return self.init.shape

    def attributes(self):
        found = {"init_coef_": self.init.copy(), "init_intercept_": 0.0}
        return {**found, "mean_coef_": self.init.copy(), "mean_intercept_": 0.0}

    def declared(self):
        """See `skpmtl.exchange.wire`."""
        size = check_layout(self.layout)
        if size < 1:
            raise ValueError("its layout does not suit its numbers")
        yield "the initialisation", self.init, [(size,)]


class NetworkMetaTaskSide(MetaTaskSide):
    """The task side of meta-learning with a module: inner steps, with the task's own noise."""

    def __init__(self, est, plan, table, positions, source, network):
        super().__init__(est, plan, table, positions, source)
        self.network, self.local = network, LocalSteps(network, table)
        self.start = network.start.double().cpu().numpy()
        given = np.ones(table.n_rows) if self.weights is None else self.weights
        self.record_weights = network.tensor(given * self.local.taken).double()
        torch = network.torch
        # Who else is in a Poisson batch must not show in the gradient of a record: all draw alike.
        self._drawn_alike = plan.batches == "poisson"
        self._slopes = torch.func.vmap(
            torch.func.grad(self._loss),
            in_dims=(None, 0, 0),
            randomness="same" if self._drawn_alike else "different",
        )

    def _loss(self, parts, x, y):
        return self.network.losses(self.network.call(parts, x[None]), y[None])[0]

    def _walk(
        self,
        block,
        init,
        begun,
        marks,
        clip_norm=np.inf,
        noise=None,
        noise_step=None,
        shrink=None,
        gradients=None,
    ):
        """As `skpmtl._kernels.records.inner_steps` says it of linear models."""
        plan, out = self.plan, np.empty((len(block), *init.shape))
        first = self.network.tensor(self.start + init[0])
        for a, k in enumerate(block):
            for rate in self.rate[k] * _RATES:
                w = init[0].copy()
                for t in range(plan.inner_steps):
                    rows, divisor = self._batch(a, k, t, begun, marks)
                    sums = self.clipped_sum(w, rows, clip_norm, salt=t)
                    if noise is not None:
                        whole = np.rint(sums * shrink[k] / noise_step[k])
                        sums = (whole + noise[a, t, 0]) * noise_step[k]
                        gradients[a, t, 0] = sums
                    w -= rate / divisor * sums
                if noise is not None:  # clipped gradients lead nowhere far
                    break
                if not self.local.grows(k, first, self.network.tensor(self.start + w)):
                    break
            out[a, 0] = w - init[0]
        return out

    def _exact_sums(self, block, init, begun, reply):
        plan, released = self.plan, reply["sums"]
        out = np.empty(released.shape)
        for a, k in enumerate(block):
            w = init[0].copy()
            for t in range(plan.inner_steps):
                rows, divisor = self._batch(a, k, t, begun, reply["marks"])
                out[a, t, 0] = self.clipped_sum(w, rows, plan.clip_norm, salt=t)
                w -= self.rate[k] / divisor * released[a, t, 0]
        return out

    def _batch(self, a, k, t, begun, marks):
        """Rows of step t of the task k, and the divisor of their sum."""
        plan, (first, last) = self.plan, self.table.offsets[k : k + 2]
        rows, n = np.arange(first, last), last - first
        if marks:
            begin = marks["mask_ends"][a] + t * n
            return rows[marks["mask"][begin : begin + n] > 0], plan.batch_size
        if plan.n_batches[k] > 1:
            rows = rows[(begun + t) % plan.n_batches[k] :: plan.n_batches[k]]
        return rows, len(rows)

    def clipped_sum(self, w, rows, clip_norm, salt=0):
        """Sum (n_shared,) of the gradients of records, each clipped to `clip_norm`, at start + w.

        Gradients that are not finite count as 0. `salt` is for what is random in the module: in
        Poisson batches it is the same for all records, otherwise it follows from their places.
        """
        network, torch = self.network, self.network.torch
        parts = network.split(network.tensor(self.start + w))
        if np.isinf(clip_norm):
            total = self._sum(parts, rows, salt)
            if np.isfinite(total).all():
                return total
        total = torch.zeros(network.n_shared, dtype=torch.float64, device=network.device)
        most = max(_GRADIENTS.get(network.device.type, _MORE) // network.n_shared, 1)
        with drawing(torch, salt, network.device), plain_numbers(torch):
            network.reset()
            network.train(1)
            for first in range(0, len(rows), most):
                some = rows[first : first + most]
                at = torch.as_tensor(some, device=network.device)
                X, y = self.local._features(some), self.local.y[at]
                found = self._of_records(parts, X, y, salt).double()
                norms = torch.linalg.vector_norm(found, dim=1)
                good = torch.isfinite(norms)
                found = torch.where(good[:, None], found, 0.0)
                scale = (clip_norm / norms.nan_to_num(0.0).clamp_min(1e-300)).clamp(max=1.0)
                total += (scale * self.record_weights[at]) @ found
        return total.cpu().numpy()

    def _of_records(self, parts, X, y, salt):
        """Gradients of records, (n, n_shared)."""
        network, torch = self.network, self.network.torch
        if not network.one_by_one:
            self._draw(salt)
            try:
                with torch.no_grad(), spelled_out(torch, network.module):
                    return network.joined(self._slopes(parts, X, y), 1)
            except Exception:  # what a module does may be more than vmap takes
                network.one_by_one = True
        found = []
        for one in zip(X, y, strict=True):
            network.reset()  # what a module keeps of a record would be in the gradients of others
            self._draw(salt)
            found.append(self._slope(parts, *one))
        return torch.stack(found)

    def _draw(self, salt):
        """Draw anew what is random in the module, where records draw alike."""
        if self._drawn_alike:
            sow(self.network.torch, salt, self.network.device)

    def _sum(self, parts, rows, salt):
        """Sum of the gradients of records, none of which is clipped."""
        network, torch = self.network, self.network.torch
        at = torch.as_tensor(rows, device=network.device)
        with drawing(torch, salt, network.device), plain_numbers(torch):
            network.reset()
            network.train(1)
            leaves = [p.detach().requires_grad_() for p in parts]
            scores = network.call(leaves, self.local._features(rows))
            losses = self.record_weights[at] * network.losses(scores, self.local.y[at])
            found = self._gradient(losses.sum(), leaves)
        return found.double().cpu().numpy()

    def _slope(self, parts, x, y):
        """Gradient of one record."""
        leaves = [p.detach().requires_grad_() for p in parts]
        return self._gradient(self._loss(leaves, x, y), leaves)

    def _gradient(self, loss, leaves):
        torch = self.network.torch
        slopes = torch.autograd.grad(loss, leaves, allow_unused=True)
        pairs = zip(slopes, leaves, strict=True)
        return self.network.joined([torch.zeros_like(p) if s is None else s for s, p in pairs])


class _TorchMetaInit(OfModule, _MetaInit):  # type: ignore[misc]  # no units of rows in `fit`
    _parameter_constraints = {
        **{
            name: rule
            for name, rule in _MetaInit._parameter_constraints.items()
            if name not in ("refine", "init")
        },
        "module": [callable, None],
        "inner_steps": [Interval(Integral, 1, None, closed="left")],
        "inner_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "meta_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "refine_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "privacy": [StrOptions({"task-global", "local"}), None],
        "device": [str],
    }
    _billboards = (InitBillboard,)
    _stays = ("module", "device")

    def __init__(
        self,
        module: Callable | None = None,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        privacy: Literal["local", "task-global"] | None = "task-global",
        clip_norm: float = 0.5,
        inner_steps: int = 5,
        inner_learning_rate: float = 0.5,
        batch_size: int | None = None,
        batches: Literal["disjoint", "full", "poisson"] = "full",
        meta_learning_rate: float = 1.0,
        tasks_per_round: Literal["all", "auto"] | int = "auto",
        visits: int = 1,
        group_size: int = 1,
        max_rows_per_unit: int | None = None,
        refine_steps: int = 10,
        refine_learning_rate: float = 0.5,
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
        take(self, locals())

    def _network_of(self, population):
        network = self._network(population.n_features, population.n_classes)
        if network.mixes_rows or network.n_kept:
            raise ValueError(
                "The module has a layer that normalises by several rows, so that a record would "
                "change the gradients of others: take torch.nn.GroupNorm or LayerNorm."
            )
        return network

    def _flat(self, population):
        """The population of a linear model with as many numbers."""
        size = self._network_of(population).n_shared
        return replace(population, n_features=size, n_classes=0)

    def _plan(self, population):
        return self._once("plan", lambda: MetaPlan(self, self._flat(population)))

    def _planned_report(self, population):
        return self._stated(super()._planned_report(population), population)

    def _curator(self, population, source):
        plan, network = self._plan(population), self._network_of(population)
        log = self._progress("round %d: %d tasks", plan.n_rounds)
        if plan.noise_over_path > NOISY:
            warnings.warn(
                f"The noise of all rounds is {plan.noise_over_path:.2g} times as long as the path "
                "that they make where all gradients agree, which they never do: expect an "
                "initialisation that is no better than none, whatever clip_norm and rates are. "
                "Take more records or tasks, more epsilon, or a smaller module.",
                UserWarning,
                stacklevel=users_line(),
            )
        moved = yield from release_init(plan, log)
        return InitBillboard(
            init=network.start.double().cpu().numpy() + moved[0],
            layout=network.layout,
            width=population.n_features,
            classes=population.n_classes,
            refine_steps=self.refine_steps,
            refine_learning_rate=float(self.refine_learning_rate),
            report=self._stated(plan.report(source), population),
        )

    def _tasks(self, plan, table, positions, population):
        network = self._network_of(population)
        return NetworkMetaTaskSide(self, plan, table, positions, self._source(), network)

    def _refined(self, table):
        """Networks of tasks after fine-tuning. -> coef, intercept"""
        network, billboard = self._of_billboard(), self.billboard_
        starts = network.tensor(billboard.init).repeat(table.n_tasks, 1)
        local, left = LocalSteps(network, table), np.arange(table.n_tasks)
        coef = starts.double().cpu().numpy()
        for rate in billboard.refine_learning_rate * _RATES:
            grown, begin = [], starts[: len(left)]
            pace = Pace(billboard.refine_steps, float(rate), 0.0, None)
            for places, ends in local.walk(left, begin, begin, pace):
                for k, end in zip(left[places], ends, strict=True):
                    if local.grows(k, starts[0], end):
                        grown.append(k)
                    else:
                        coef[k] = end.double().cpu().numpy()
            left = np.array(grown, dtype=np.int64)
            if not len(left):
                break
        return coef, np.zeros(len(coef))


_DOC = """{summary}

    `DPMetaInit{twin}` with a torch module in the place of a linear model: in every round some
    tasks receive the initialisation phi, take a few gradient steps on their own rows, and send the
    change, of which the mean moves phi. With ``privacy="task-global"`` gradients of single records
    are clipped and noise is added *inside* the task, in every step: neither the meta-learner nor
    any other task needs to be trusted.

    Parameters
    ----------
    module : callable
        ``module(**arguments) -> torch.nn.Module``, from rows (batch, n_features), in the type of
        its parameters, to {scores}. Images are made of rows by ``torch.nn.Unflatten``, and tokens
        by ``x.long()``. Its parameters as it is built are where phi starts: a public input, drawn
        from `random_state` if that is an int, else from 0, unless they are loaded. Layers that
        normalise by several rows are an error.
    epsilon, delta, adjacency, curator, privacy, batch_size, batches, \
tasks_per_round, visits, group_size, max_rows_per_unit, task_feature, tasks, {class_list}secure, \
random_state, verbose
        As in `DPMetaInit{twin}`.
    clip_norm : float, default=0.5
        Public bound on the length of the gradient of a record over all parameters; "local": of
        the update of a task.
    inner_steps : int, default=5
        Gradient steps of a task in one visit.
    inner_learning_rate : float, default=0.5
        Their length, on the mean loss.
    meta_learning_rate : float, default=1.0
        Part of the mean update by which phi moves.
    refine_steps : int, default=10
        Gradient steps from phi by which a task makes its own network.
    refine_learning_rate : float, default=0.5
        A task whose loss is larger after its steps takes half of it, and so on; so it is with
        `inner_learning_rate` where neither gradients are clipped nor noise is added ("local",
        None).
    device : str, default="cpu"
        Where gradients are computed, such as "cuda". Noise is drawn and added as ever.
    unseen_task : {{"error", "mean"}}, default="error"
        What `predict` does with a task that was not fitted: an error, or phi.
    **arguments
        ``module__name=value``: arguments of `module`, which `set_params` and searches know too.

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_numbers)
        Numbers of the networks of the tasks, in the order of ``billboard_.layout``. Together they
        are no private object: hand each task its own with `export_task` or `to_module`.
    init_coef_, mean_coef_ : ndarray of shape (n_numbers,)
        The initialisation.
    intercept_ : ndarray of shape (n_tasks,)
        Zeros.
    tasks_, billboard_, privacy_, n_iter_, n_features_in_, feature_names_in_{classes}
        As in `DPMetaInit{twin}`.

    See Also
    --------
    skpmtl.DPMetaInit{twin} : The same with linear models.
    TorchFeatures : Public features for linear models.

    Notes
    -----
    Gradients of records are those of ``torch.func.vmap(grad)``; modules with recurrent layers of
    torch, which it does not take, have theirs computed one by one.

    For d numbers and m tasks of n records the noise of all rounds together is sqrt(d / m) / (n mu)
    of the path that they make where all gradients agree (twice that with "replace-one"; n = 1 for
    "local"), whatever clip norm and rates are. It is in the report, among the public inputs, and
    a fit warns where it is above .25.

    References
    ----------
    .. [1] J. Li, M. Khodak, S. Caldas, A. Talwalkar, "Differentially private meta-learning",
       ICLR, 2020.
    """


class TorchMetaInitClassifier(MTLClassifierMixin, _TorchMetaInit):  # type: ignore[misc]  # the same
    __doc__ = fill_docstring(
        _DOC.replace("{class_list}", "classes, "),
        summary="Private meta-learning of networks for classes.",
        twin="Classifier",
        scores="scores of\n        the classes; of two classes also one score, the log-odds of the "
        "second",
        classes=None,
    )
    _multiclass = True
    _spreads_labels = False

    def __init__(
        self,
        module: Callable | None = None,
        *,
        epsilon: float | None = 1.0,
        delta: float | None = None,
        adjacency: Adjacency = "replace-one",
        curator: Curator = "trusted",
        privacy: Literal["local", "task-global"] | None = "task-global",
        clip_norm: float = 0.5,
        inner_steps: int = 5,
        inner_learning_rate: float = 0.5,
        batch_size: int | None = None,
        batches: Literal["disjoint", "full", "poisson"] = "full",
        meta_learning_rate: float = 1.0,
        tasks_per_round: Literal["all", "auto"] | int = "auto",
        visits: int = 1,
        group_size: int = 1,
        max_rows_per_unit: int | None = None,
        refine_steps: int = 10,
        refine_learning_rate: float = 0.5,
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


class TorchMetaInitRegressor(MTLRegressorMixin, _TorchMetaInit):  # type: ignore[misc]  # the same
    __doc__ = fill_docstring(
        _DOC,
        summary="Private meta-learning of networks for real targets.",
        twin="",
        scores="one number\n        each; the loss is half the squared error",
        classes=None,
    )
