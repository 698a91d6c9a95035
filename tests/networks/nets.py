"""Small modules, which files and other processes can find by name."""

try:
    import torch
except ImportError:  # tests that need it skip
    torch = None


def mlp(width=4, outputs=1, features=3):
    return torch.nn.Sequential(
        torch.nn.Linear(features, width), torch.nn.Tanh(), torch.nn.Linear(width, outputs)
    )


def linear(features=3, outputs=1, dtype="float64"):
    """Without an intercept, and 0 at the start."""
    layer = torch.nn.Linear(features, outputs, bias=False, dtype=getattr(torch, dtype))
    torch.nn.init.zeros_(layer.weight)
    return layer


def normalised(outputs=1, affine=True):
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4),
        torch.nn.BatchNorm1d(4, affine=affine),
        torch.nn.Tanh(),
        torch.nn.Linear(4, outputs),
    )


def dropout(outputs=1):
    return torch.nn.Sequential(
        torch.nn.Linear(3, 6), torch.nn.Dropout(0.5), torch.nn.Linear(6, outputs)
    )
