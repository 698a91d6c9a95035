"""The same rounds for torch modules; torch is imported when a fit begins."""

from numbers import Integral

import numpy as np

from ..._runtime.constraints import take
from ..._runtime.torch_modules import build, import_torch
from ...base import MTLRegressorMixin
from .estimators import PARAMETERS, MetaRounds

__all__ = ["MetaModule", "PublishedMetaNetwork"]
_ROWS = 512  # whose gradients are held at once


class MetaModule:
    """A torch module as a vector of its parameters, with the interface of `models`.

    Parameters
    ----------
    module : torch.nn.Module
        Without buffers; its parameters are the public start.
    loss : callable or None
        ``loss(scores, X, y) -> (n,)``; None: half the squared error.
    """

    def __init__(self, module, loss):
        torch = import_torch("MetaModule")
        if list(module.buffers()):
            raise ValueError(
                "A module with buffers, such as the means of a batch normalisation, has numbers "
                "that no noise protects: take GroupNorm, or none."
            )
        self.module, self.loss = module, loss
        parts = {name: p.detach() for name, p in module.named_parameters()}
        self.shapes = {name: p.shape for name, p in parts.items()}
        self.start = torch.cat([p.reshape(-1) for p in parts.values()]).double().numpy()
        self.size = len(self.start)

    def _scores(self, flat, X):
        import torch

        parts = flat.split([shape.numel() for shape in self.shapes.values()])
        named = zip(self.shapes.items(), parts, strict=True)
        given = {name: part.reshape(shape) for (name, shape), part in named}
        return torch.func.functional_call(self.module, given, (X,))

    def _losses(self, flat, X, y):
        scores = self._scores(flat, X)
        if self.loss is not None:
            return self.loss(scores, X, y)
        return 0.5 * (scores.reshape(-1) - y) ** 2

    def _loss_of_one(self, flat, x, y):
        return self._losses(flat, x[None], y[None])[0]

    def _mean_loss(self, flat, X, y):
        return self._losses(flat, X, y).mean()

    def scores(self, w, X):
        import torch

        with torch.no_grad():
            return self._scores(*_tensors(w, X)).double().numpy()

    def losses(self, w, X, y):
        import torch

        with torch.no_grad():
            return self._losses(*_tensors(w, X, y)).double().numpy()

    def gradients(self, w, X, y):
        import torch

        each = torch.func.vmap(torch.func.grad(self._loss_of_one), (None, 0, 0))
        flat, X, y = _tensors(w, X, y)
        parts = zip(X.split(_ROWS), y.split(_ROWS), strict=True)
        return np.concatenate([each(flat, *part).double().numpy() for part in parts])

    def gradient(self, w, X, y):
        import torch

        return torch.func.grad(self._mean_loss)(*_tensors(w, X, y)).double().numpy()


def _tensors(*arrays):
    import torch

    return [torch.tensor(np.asarray(a), dtype=torch.float32) for a in arrays]


class PublishedMetaNetwork(MTLRegressorMixin, MetaRounds):
    __doc__ = f"""Differentially private meta-learning of networks as published.

    `PublishedMetaInit` with a torch module in place of the linear model.

    Parameters
    ----------
    module : callable
        Returns a new ``torch.nn.Module`` without buffers, from rows (n, n_features) of float32 to
        scores. Its parameters, drawn from `start_seed`, are phi_1, unless `init` is given.
    row_loss : callable or None, default=None
        ``row_loss(scores, X, y) -> tensor (n,)``, the loss of every row: a record may be a sequence
        with a loss per position. None: half the squared error.
    start_seed : int, default=0
    {PARAMETERS}
        As in `PublishedMetaInit`. `init` has the parameters of the module in their order.

    Attributes
    ----------
    task_models_, init_coef_, init_path_, billboard_, privacy_, tasks_, n_iter_
        As in `PublishedMetaInit`.

    References
    ----------
    .. [1] J. Li, M. Khodak, S. Caldas, A. Talwalkar, "Differentially private meta-learning",
       ICLR, 2020.
    """
    _weighs_rows = False
    _parameter_constraints = {
        **{k: v for k, v in MetaRounds._parameter_constraints.items() if k != "fit_intercept"},
        "module": [callable, None],
        "row_loss": [callable, None],
        "start_seed": [Integral],
    }

    def __init__(
        self,
        module=None,
        row_loss=None,
        *,
        start_seed=0,
        epsilon=1.0,
        delta=None,
        adjacency="replace-one",
        privacy="task-global",
        curator="trusted",
        group_size=1,
        clip_norm=1.0,
        descent="sgd",
        inner_steps=10,
        inner_learning_rate=0.1,
        batch_size=None,
        inner_iterate="last",
        meta_step="reptile",
        meta_learning_rate=1.0,
        meta_decay=1.0,
        iterate="last",
        tasks_per_round=10,
        visits=1,
        diameter=None,
        init=None,
        refine="minibatch",
        refine_learning_rate=0.1,
        refine_epochs=1,
        refine_batch_size=None,
        task_feature=None,
        tasks="auto",
        secure=False,
        random_state=None,
    ):
        take(self, locals())

    def _model(self, n_features, n_classes):
        torch = import_torch(f"{type(self).__name__}(module=)")
        module = build(torch, self.module, {}, self.start_seed)
        return MetaModule(module, self.row_loss)
