"""A torch module as vectors: released parameters, parameters that stay with a task, and losses."""

from contextlib import contextmanager
from fnmatch import fnmatchcase

import numpy as np

from .._runtime.torch_modules import build, drawing, import_torch

_ROWS = 1024  # that are predicted at a time


def device_of(torch, name):
    """The device of this name; ValueError if it is unknown or not available."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError):
        # Not inside: texts of the driver follow.
        device = None
    if device is None:
        raise ValueError(f'device={name!r} is not to be had here: take device="cpu".')
    return device


@contextmanager
def plain_numbers(torch):
    """Within it float32 is float32 on every device: no shorter numbers in products."""
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


def _mixing(torch):
    """Layers that normalise by the other rows."""
    nn = torch.nn
    return nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm


class FlatModule:
    """A module with its parameters as one vector: shared ones, then those that stay with the task.

    Parameters
    ----------
    est : estimator
        With `module`, `device`, `_arguments()`, and, if it has them, `local` and an integer
        `random_state`.
    loss : {"squared", "logistic", "multinomial"}
    n_features : int
        Of a row, which the module gets as (batch, n_features) in the type of its parameters.
    n_classes : int
        0 for real targets.

    Attributes
    ----------
    layout : list of (str, tuple)
        Names and shapes of the shared parameters, in the order of the vector.
    n_shared : int
        Numbers in them: all that is ever released.
    n_kept : int
        Numbers that stay with a task: parameters that match `local`, and running statistics of
        normalisation layers. Other buffers are constants; parameters that need no gradient are too.
    trained : list of tensor
        The parameters that are trained, the shared ones first.
    draws : bool
        Whether the module draws random numbers in training.
    start : torch tensor (n_shared + n_kept,)
        Public numbers that everything starts from.

    Raises
    ------
    TypeError, ValueError
        For a module without parameters, of several types, that are not finite or have no shape
        yet, with scores of another shape, and with a batch normalisation whose parameters would be
        released.
    """

    def __init__(self, est, loss, n_features, n_classes):
        self.torch = torch = import_torch(f"{type(est).__name__}(module=)")
        self.device = device_of(torch, est.device)
        seed = est.random_state if isinstance(est.random_state, (int, np.integer)) else 0
        self._seed = int(seed) % 2**63
        self.module = build(torch, est.module, est._arguments(), self._seed)
        self.module.to(self.device)
        self.loss, self.n_features, self.n_classes = loss, n_features, n_classes
        self.n_outputs = 1
        self._name(getattr(est, "local", ()), hasattr(est, "local"))
        self._check_scores()
        self.start = self.read()
        if not bool(torch.isfinite(self.start).all()):
            raise ValueError("The module starts from numbers that are not finite.")
        self._constants = [(b, b.clone()) for b in self.module.buffers()]
        self.draws = self._draws_in_training()

    def __deepcopy__(self, memo):
        """Itself: it is set to the numbers of a task before each use."""
        return self

    def _name(self, local, may_stay):
        torch, module = self.torch, self.module
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if any(torch.nn.parameter.is_lazy(p) for p in module.parameters()):
            raise ValueError(
                "The module has layers without a shape yet: call it on a row in module(), or name "
                "the widths, torch.nn.Linear in place of LazyLinear."
            )
        types = {p.dtype for _, p in trained}
        if not trained:
            raise ValueError(
                "The module has no parameters to learn: none of its numbers has requires_grad."
            )
        if len(types) > 1 or not next(iter(types)).is_floating_point:
            raise ValueError(
                f"The module has parameters of the types {', '.join(sorted(map(str, types)))}; "
                "they must be of one floating type."
            )
        self.dtype = types.pop()
        local = (local,) if isinstance(local, str) else tuple(local)
        names = [name for name, _ in trained]
        for pattern in local:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ValueError(
                    f"local={pattern!r} matches none of the parameters {', '.join(names[:20])}."
                )
        stays = [any(fnmatchcase(name, pattern) for pattern in local) for name in names]
        if all(stays):
            raise ValueError(
                f"local={local!r} keeps all parameters at the tasks: nothing is left to share."
            )
        shared = [pair for pair, kept in zip(trained, stays, strict=True) if not kept]
        own = [pair for pair, kept in zip(trained, stays, strict=True) if kept]
        released = {name for name, _ in shared}
        statistics = []
        for path, layer in module.named_modules():
            if not hasattr(layer, "running_mean"):
                continue
            mixes = isinstance(layer, _mixing(torch))
            inside = [f"{path}.{name}".lstrip(".") for name, _ in layer.named_parameters()]
            if mixes and released & set(inside):
                keep = f'Keep these at the tasks too, local=("{path}.*",), or take'
                raise ValueError(
                    f"The layer {path or type(layer).__name__!r} normalises by the rows of a "
                    "task, whose statistics stay there, while its parameters would be released. "
                    f"{keep if may_stay else 'Take'} torch.nn.GroupNorm."
                )
            for name, values in layer.named_buffers(recurse=False):
                if values is not None and values.is_floating_point():
                    statistics.append((f"{path}.{name}".lstrip("."), values))
        self.mixes_rows = any(isinstance(layer, _mixing(torch)) for layer in module.modules())
        # Vectorised gradients do not take buffers that change.
        self.one_by_one = bool(statistics)
        self.recurrent = any(isinstance(layer, torch.nn.RNNBase) for layer in module.modules())
        self.layout = [(name, tuple(p.shape)) for name, p in shared]
        self._parts = shared + own + statistics
        self.n_sharing = len(shared)
        self.trained = [p for _, p in shared + own]
        self.sizes = [values.numel() for _, values in self._parts]
        self.n_shared = sum(self.sizes[: len(shared)])
        self.n_kept = sum(self.sizes) - self.n_shared

    def _check_scores(self):
        self.module.eval()
        with self.torch.no_grad(), drawing(self.torch, 0, self.device):
            rows = self.torch.zeros(2, self.n_features, dtype=self.dtype, device=self.device)
            try:
                found = self.module(rows)
            except Exception as error:  # whatever code of others raises
                raise ValueError(
                    f"The module does not take rows (2, {self.n_features}), here of zeros: {error}"
                ) from error
        found = tuple(found.shape) if self.torch.is_tensor(found) else type(found).__name__
        C = self.n_classes
        fits = {0: [(2,), (2, 1)], 2: [(2,), (2, 1), (2, 2)]}.get(C, [(2, C)])
        if found not in fits:
            wanted = "one number" if C == 0 else "one score for every class"
            raise ValueError(
                f"The module maps rows (2, {self.n_features}) to {found}; it must give {wanted} a "
                f"row, {' or '.join(map(str, fits))} here."
            )

    def _draws_in_training(self):
        """Whether the module draws random numbers in training, as dropout does."""
        torch = self.torch
        cuda = self.device.type == "cuda"

        def states():
            found = [torch.random.get_rng_state()]
            return [*found, torch.cuda.get_rng_state(self.device)] if cuda else found

        rows = torch.zeros(2, self.n_features, dtype=self.dtype, device=self.device)
        with torch.no_grad(), drawing(torch, 0, self.device):
            before = states()
            self.module.train()
            self.module(rows)
            draws = not all(map(torch.equal, before, states()))
        self.write(self.start)
        return draws

    def is_drawn(self, est):
        """Whether most of its numbers are random as it is built: another seed draws others."""
        seed = (self._seed + 1) % 2**63
        other = build(self.torch, est.module, est._arguments(), seed).to(self.device)
        given = dict(other.named_parameters())
        starts = dict(zip((name for name, _ in self._parts), self.split(self.start), strict=True))
        same = sum(int((given[name] == starts[name]).sum()) for name, _ in self.layout)
        return 2 * same < self.n_shared

    def describe(self):
        """What a report says of it."""
        local = f", and {self.n_kept} that stay with every task" if self.n_kept else ""
        return f"{self.n_shared} shared numbers{local}"

    # -------------------------------------------------------------------------- vectors
    def read(self):
        """The numbers that the module has, (n_shared + n_kept,)."""
        return self.torch.cat([values.detach().reshape(-1) for _, values in self._parts])

    def write(self, vector):
        """Set the module to a vector; other buffers are as at the start."""
        self.reset()
        with self.torch.no_grad():
            for (_, values), part in zip(self._parts, self.split(vector), strict=True):
                values.copy_(part)

    def train(self, n_rows):
        """Be in training for batches of so many rows: of one there are no statistics."""
        self.module.train()
        for layer in self.module.modules() if n_rows == 1 and self.mixes_rows else ():
            if isinstance(layer, _mixing(self.torch)):
                layer.eval()

    def reset(self):
        """Set all buffers to those of the start: nothing passes from task to task."""
        with self.torch.no_grad():
            for values, first in self._constants:
                values.copy_(first)

    def split(self, vectors):
        """Vectors (..., n_shared + n_kept) -> list of tensors (..., *shape) in their order."""
        parts = vectors.split(self.sizes, dim=-1)
        return [
            part.reshape(*vectors.shape[:-1], *values.shape)
            for part, (_, values) in zip(parts, self._parts, strict=True)
        ]

    def joined(self, parts, n_lead=0):
        """Inverse of `split`, for tensors with `n_lead` leading dimensions."""
        flat = [part.reshape(*part.shape[:n_lead], -1) for part in parts]
        return self.torch.cat(flat, dim=-1)

    def tensor(self, values):
        """Numbers on the device, in the type of the parameters."""
        values = np.array(values, dtype=np.float64)
        return self.torch.from_numpy(values).to(self.device, self.dtype)

    def named(self, vector):
        """{name: ndarray} of one vector."""
        with self.torch.no_grad():
            pairs = zip(self._parts, self.split(self.tensor(vector)), strict=True)
            return {name: part.cpu().numpy() for (name, _), part in pairs}

    def refused(self, X):
        """Rows that the module raises for at the start, as an embedding for words it lacks: (n,).

        Each is tried alone, beside a row of zeros, so that no row decides about another.
        """
        torch = self.torch
        self.write(self.start)
        self.module.eval()

        def takes(rows):
            try:
                self.module(rows)
            except Exception:  # whatever code of others raises
                return False
            return True

        found = np.zeros(len(X), dtype=bool)
        with torch.no_grad(), drawing(torch, 0, self.device), plain_numbers(torch):
            for first in range(0, len(X), _ROWS):
                some = X[first : first + _ROWS]
                if not takes(some):
                    pairs = (torch.stack([row, torch.zeros_like(row)]) for row in some)
                    found[first : first + len(some)] = [not takes(pair) for pair in pairs]
        return found

    # --------------------------------------------------------------------------- losses
    def call(self, parts, X):
        """Scores of rows under tensors as `split` gives them, of shape (batch, n_scores)."""
        names = [name for name, _ in self._parts]
        given = dict(zip(names, parts, strict=True))
        found = self.torch.func.functional_call(self.module, given, (X,))
        return self.scores(found)

    def scores(self, found):
        """(batch,) for real targets and the log-odds of two classes, (batch, n_classes)."""
        if self.n_classes > 2:
            return found
        if self.n_classes == 2 and found.ndim == 2 and found.shape[1] == 2:
            return found[:, 1] - found[:, 0]
        return found.reshape(-1)

    def losses(self, scores, y):
        """Loss of every row: half squared error, logistic (y -1 or 1), or multinomial."""
        F = self.torch.nn.functional
        if self.loss == "squared":
            return 0.5 * (scores - y) ** 2
        if self.loss == "logistic":
            return F.softplus(-y * scores)
        return F.cross_entropy(scores, y, reduction="none")

    def targets(self, y):
        """Targets of a table, as `losses` takes them."""
        if self.loss == "multinomial":
            return self.torch.from_numpy(y.astype(np.int64)).to(self.device)
        return self.tensor(np.sign(y) if self.loss == "logistic" else y)

    def rows(self, X):
        """Features as the module gets them."""
        wide = np.float64 if self.dtype == self.torch.float64 else np.float32
        return self.torch.from_numpy(np.array(X, dtype=wide)).to(self.device, self.dtype)

    def predict(self, vector, X):
        """Scores of rows as float64: (n,), or (n, n_classes) for more than two."""
        torch, out = self.torch, []
        self.write(self.tensor(vector))
        self.module.eval()
        with torch.no_grad(), drawing(torch, 0, self.device), plain_numbers(torch):
            for first in range(0, max(len(X), 1), _ROWS):
                found = self.scores(self.module(self.rows(X[first : first + _ROWS])))
                out.append(found.double().cpu().numpy())
        return np.concatenate(out)
