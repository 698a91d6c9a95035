"""torch: modules built by functions of users, and seeded draws from its generator.

torch is imported when a module is used, and not before. What is drawn here from its generator,
starts of parameters and dropout, comes from seeds of our own; the user's generator stays as it is.
"""

from contextlib import contextmanager
from copy import deepcopy
from threading import RLock

_DRAWING = RLock()  # torch has one generator for all threads


def import_torch(what):
    """The package torch.

    Raises ImportError without it; it says that `what` needs the extra.
    """
    try:
        import torch
        import torch.func  # noqa: F401  # not imported by torch itself in all versions
    except ImportError as error:
        raise ImportError(f"{what} needs torch: install skpmtl with its extra [torch].") from error
    return torch


@contextmanager
def drawing(torch, seed=None, device=None):
    """Within it torch draws from `seed`, for one thread at a time; then all is as before."""
    cuda = [device] if device is not None and device.type == "cuda" else []
    with _DRAWING, torch.random.fork_rng(devices=cuda):
        if seed is not None:
            sow(torch, seed, device)
        yield


def sow(torch, seed, device=None):
    """Seed torch's generators of the CPU and of `device`.

    ``torch.manual_seed`` does it for all kinds of devices, and keeps the stack of calls for those
    that are not there: milliseconds, more than the steps of a small task.
    """
    torch.default_generator.manual_seed(seed)
    if device is not None and device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def build(torch, module, arguments, seed=0):
    """A copy of what ``module(**arguments)`` makes, its random numbers drawn from `seed`.

    A factory may give the same module again and again, and rows may leave nothing in that: it is
    the public start of the next fit.

    Raises
    ------
    TypeError
        Where that is no torch module.
    ValueError
        Where it has no copy.
    """
    if isinstance(module, torch.nn.Module) or not callable(module):
        raise TypeError(
            f"module={type(module).__name__} must be a function or class that builds a "
            "torch.nn.Module, and no module itself: lambda: net."
        )
    with drawing(torch, seed):
        made = module(**arguments)
        if not isinstance(made, torch.nn.Module):
            raise TypeError(
                f"module() returned {type(made).__name__}; it must build a torch.nn.Module."
            )
        try:
            return deepcopy(made)
        except RuntimeError as error:
            raise ValueError(
                "The module cannot be copied, as with torch.nn.utils.weight_norm: take "
                "torch.nn.utils.parametrizations.weight_norm in its place."
            ) from error
