"""The compiled loops alone, on the arguments that fits give them: whole fits dilute their share."""

import sys
import warnings
from functools import cache
from types import ModuleType

import numpy as np

from .tables import cpu_seconds, generated, public

ROOM = "skpmtl._kernels."
TASKS, ROWS, FEATURES = 200, 20, 20
FITS = {
    "MPMTLGroupSparseClassifier": {"epsilon": None, "alpha": 0.01},
    "PrivateMeanRegMTLClassifier": {"epsilon": None, "lam": 0.1},
    "DPMetaInitClassifier": {"epsilon": 1.0},
}
# The fit whose largest call of a loop is repeated.
LOOPS = {
    loop: fit
    for fit, loops in {
        "MPMTLGroupSparseClassifier": (
            "passes.scores",
            "passes.combine",
            "grams.build_grams",
            "grams.gram_product",
            "linalg.spd_inverse_narrow",
        ),
        "PrivateMeanRegMTLClassifier": (
            "newton.loss_gradient",
            "newton.hessian_product",
            "predict.row_scores",
        ),
        "DPMetaInitClassifier": ("records.inner_steps",),
    }.items()
    for loop in loops
}


def _kept(value):
    """Arguments of a loop, with copies of the arrays that it may write to."""
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if isinstance(value, tuple) and any(isinstance(part, np.ndarray) for part in value):
        parts = map(_kept, value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _arrays(values):
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, tuple):
            yield from _arrays(value)


class _Recorder:
    """In place of a loop: keeps the arguments of its largest call."""

    def __init__(self, loop, name, calls):
        self.loop, self.name, self.calls = loop, name, calls

    def __call__(self, *given):
        size = sum(array.size for array in _arrays(given))
        if size > self.calls.get(self.name, (0,))[0]:
            self.calls[self.name] = size, self.loop, _kept(given)
        return self.loop(*given)


class _Room:
    """In place of a module of loops."""

    def __init__(self, module, calls):
        self._module, self._calls = module, calls

    def __getattr__(self, name):
        value = getattr(self._module, name)
        return _recorded(value, self._calls) if callable(value) else value


def _recorded(value, calls):
    """What stands for a name of `skpmtl` while a fit is recorded."""
    if isinstance(value, ModuleType):
        return _Room(value, calls) if value.__name__.startswith(ROOM) else value
    place = getattr(value, "__module__", None) or ""
    if place.startswith(ROOM) and callable(value):
        return _Recorder(value, f"{place.removeprefix(ROOM)}.{value.__name__}", calls)
    return value


@cache
def _calls(fit):
    """-> dict: name of a loop -> (numbers in its arrays, the loop, its arguments)"""
    X, y, task = generated("lowrank", TASKS, ROWS, FEATURES)
    settings = FITS[fit] | {"tasks": np.arange(TASKS)}
    if fit.endswith("Classifier"):
        settings["classes"], y = [0, 1], (y > 0).astype(int)
    if settings["epsilon"] is not None:
        settings["random_state"] = 0
    model = public(fit)(**settings)
    calls, changed = {}, []
    for module in [module for name, module in sys.modules.items() if name.startswith("skpmtl.")]:
        for key, value in () if module.__name__.startswith(ROOM) else [*vars(module).items()]:
            if (other := _recorded(value, calls)) is not value:
                changed.append((module, key, value))
                setattr(module, key, other)
    matrices = sys.modules["skpmtl.solvers.grams"]
    if hasattr(matrices, "FEW"):  # the loops for many tasks
        changed.append((matrices, "FEW", matrices.FEW))
        matrices.FEW = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y, task=task).predict(X, task=task)
    finally:
        for module, key, value in changed:
            setattr(module, key, value)
    return calls


class Loops:
    params, param_names = [list(LOOPS)], ["loop"]
    timer = staticmethod(cpu_seconds)
    sample_time = 0.05

    def setup(self, name):
        _, self.loop, given = _calls(LOOPS[name])[name]
        self.given, self.changed = _kept(given), ()
        self.time_loop(name)
        pairs = [*zip(_arrays(self.given), _arrays(given), strict=True)]
        after = [now.copy() for now, _ in pairs]
        self.time_loop(name)
        if all(map(np.array_equal, after, _arrays(self.given))):
            return  # it reads nothing that it writes
        # What a call changes is put back before the next one, which would do other work else.
        changed = [not np.array_equal(new, old) for new, (_, old) in zip(after, pairs, strict=True)]
        self.changed = [pair for pair, is_new in zip(pairs, changed, strict=True) if is_new]

    def time_loop(self, name):
        for now, old in self.changed:
            np.copyto(now, old)
        self.loop(*self.given)
