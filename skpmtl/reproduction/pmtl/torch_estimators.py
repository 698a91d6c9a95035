"""Algorithm 1 for torch modules; torch is imported when a fit begins."""

import numpy as np

from ..._runtime.constraints import take
from ...base import MTLClassifierMixin
from .estimators import PMTLRounds
from .models import Block, OneByOne, tasks_of

__all__ = ["ModuleModel", "PublishedPMTLTorchClassifier"]


class ModuleModel(OneByOne):
    """A torch module as a vector of its parameters, see `models`.

    Parameters
    ----------
    module : torch.nn.Module
        From rows (n, d) to scores (n, c), without buffers; its parameters are the public start.
    tasks : list of Task
    n_outputs : int
    loss : {"mean", "sum"}, default="mean"
        Over the rows of a task.
    device : str, default="cpu"
    """

    def __init__(self, module, tasks, n_outputs, *, loss="mean", device="cpu"):
        import torch

        OneByOne.__init__(self, tasks, loss)
        if list(module.buffers()):
            raise ValueError(
                "A module with buffers, such as the means of a batch normalisation, has numbers "
                "that no noise protects: take GroupNorm, or none."
            )
        self.module, self.n_outputs, self.device = module.to(device), n_outputs, device
        parameters = {name: p.detach() for name, p in module.named_parameters()}
        self.shapes = {name: p.shape for name, p in parameters.items()}
        flat = torch.cat([p.reshape(-1) for p in parameters.values()])
        self.start, self.size = flat.double().cpu().numpy(), flat.numel()

    def _parameters(self, w, *, grad):
        """The vector w (size,) as parameters by name."""
        import torch

        flat = torch.tensor(w, dtype=torch.float32, device=self.device)
        parts = torch.split(flat, [shape.numel() for shape in self.shapes.values()])
        return {
            name: part.reshape(shape).requires_grad_(grad)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def _scores(self, parameters, X):
        import torch

        X = torch.as_tensor(np.array(X), dtype=torch.float32, device=self.device)
        return torch.func.functional_call(self.module, parameters, (X,))

    def features(self, X):
        """Rows as they are."""
        return X

    def rows(self, block, index=None):
        found = super().rows(block, index)
        return Block(found.X[None], found.y, found.weight)

    def scores(self, W, X):
        import torch

        if not X.shape[1]:
            return np.empty((1, 0, self.n_outputs))
        with torch.no_grad():
            found = self._scores(self._parameters(W[0], grad=False), X[0])
        return found.double().cpu().numpy().reshape(1, -1, self.n_outputs)

    def pull(self, W, X, slope):
        import torch

        if not X.shape[1]:
            return np.zeros((1, self.size))
        parameters = self._parameters(W[0], grad=True)
        s = self._scores(parameters, X[0])
        given = slope(s.detach().double().cpu().numpy().reshape(1, -1, self.n_outputs))
        given = torch.as_tensor(given, dtype=s.dtype, device=self.device).reshape(s.shape)
        found = torch.autograd.grad(s, list(parameters.values()), given)
        return torch.cat([g.reshape(-1) for g in found]).double().cpu().numpy()[None]

    def pull_squares(self, W, X, slope):
        total = np.zeros((1, self.size))
        if X.shape[1]:
            slopes = slope(self.scores(W, X))
            for i in range(X.shape[1]):
                one = slopes[:, [i]]
                total += self.pull(W, X[:, [i]], lambda s, one=one: one) ** 2
        return total


class PublishedPMTLTorchClassifier(MTLClassifierMixin, PMTLRounds):
    """Private multi-task classification as published, with a torch module as the model.

    Parameters and attributes are those of `PublishedPMTLClassifier` but for `fit_intercept`,
    `coef_` and `intercept_`. ``method="ppsgd"`` needs a linear model.

    Parameters
    ----------
    module : callable
        Returns a new ``torch.nn.Module`` from rows (n, n_features) to one score per class, or one
        score for two classes.
    method, lam, epsilon, delta, adjacency, clip_norm, noise_multiplier, n_rounds, n_sampled, \
local_steps, learning_rate, batch_size, task_loss, relation, personalization, \
personal_steps, personal_lam, monitor, task_feature, tasks, classes, secure, random_state
        As in `PublishedPMTLClassifier`.
    start_seed : int, default=0
        Public seed of the parameters that the module starts from.
    device : str, default="cpu"

    Attributes
    ----------
    task_models_, billboard_, privacy_, tasks_, classes_
        As in `PublishedPMTLClassifier`.
    """

    _multiclass = True
    _parameter_constraints = {
        **PMTLRounds._parameter_constraints,
        "module": [callable, None],
        "start_seed": ["random_state"],
        "device": [str],
    }

    def __init__(
        self,
        module=None,
        method="algorithm-1",
        *,
        lam=0.1,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        clip_norm=1.0,
        noise_multiplier=None,
        n_rounds=20,
        n_sampled=None,
        local_steps=10,
        learning_rate=0.1,
        batch_size=None,
        task_loss="mean",
        relation=None,
        personalization="none",
        personal_steps=20,
        personal_lam=None,
        monitor=None,
        task_feature=None,
        tasks="auto",
        classes="auto",
        start_seed=0,
        device="cpu",
        secure=False,
        random_state=None,
    ):
        take(self, locals())

    def _check_parameters(self):
        super()._check_parameters()
        if self.module is None:
            raise ValueError("module=None: pass a function that returns a torch.nn.Module.")
        if self.method == "ppsgd":
            raise ValueError(
                'method="ppsgd" adds a shared and a personal part of a linear model: take '
                "PublishedPMTLClassifier, or another method."
            )

    def _with_targets(self, table):
        return table

    def _model(self, table, outputs):
        import torch

        if table.is_sparse:
            raise ValueError(f"{type(self).__name__} takes dense rows: pass X.toarray().")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.start_seed)
            module = self.module()
        c = table.n_classes if table.n_classes > 2 else 1
        tasks = tasks_of(table, outputs)
        return ModuleModel(module, tasks, c, loss=self.task_loss, device=self.device)

    def _without_rows(self, model):
        model.tasks, model.sizes = [], np.zeros(0)
        return model
