"""The same rounds for torch modules, and modules of the sizes in Table 2.

torch is imported when a module is built. Normalisation layers of groups stand in place of those of
batches: they have as many parameters, and no statistics that would be neither shared nor counted.
"""

import numpy as np

from ..._runtime.constraints import take
from ..._runtime.torch_modules import build, import_torch
from .estimators import DOCUMENTED, PARAMETERS, FedMTLRounds

__all__ = ["SharedModule", "PublishedFedMTLNetwork", "lenet", "mobilenet_v2", "segnet"]


class SharedModule:
    """Shared layers and task layers that are torch modules, as a vector, see `models`.

    Parameters
    ----------
    module, head : callable
        Return new ``torch.nn.Module``, without buffers: the shared layers, from rows (n, ...), and
        a task layer, from what these give to scores (n, L, ...).
    outputs : Attributes or Categories
    device : str, default="cpu"
    """

    def __init__(self, module, head, outputs, device="cpu"):
        torch = import_torch("SharedModule")
        self.factories, self.outputs, self.device = (module, head), outputs, device
        self.parts = [build(torch, factory, {}).to(device) for factory in self.factories]
        if any(list(part.buffers()) for part in self.parts):
            raise ValueError(
                "A module with buffers, such as the means of a batch normalisation, has numbers "
                "that are no parameters: take GroupNorm, or none."
            )
        self.shapes = [{name: p.shape for name, p in m.named_parameters()} for m in self.parts]
        self.n_shared, self.head_size = (
            sum(shape.numel() for shape in shapes.values()) for shapes in self.shapes
        )

    def start(self, n_tasks, rng):
        """W^S(0) (ds,) and W^Tk(0) (K, dt), as the modules draw them."""
        torch = import_torch("SharedModule")
        seeds = rng.integers(2**31, size=1 + n_tasks).tolist()
        kinds = [0] + [1] * n_tasks
        made = [
            build(torch, self.factories[k], {}, seed) for k, seed in zip(kinds, seeds, strict=True)
        ]
        flat = [
            torch.cat([p.detach().reshape(-1) for p in m.parameters()]).double().numpy()
            if list(m.parameters())
            else np.empty(0)
            for m in made
        ]
        return flat[0], np.stack(flat[1:])

    def _call(self, which, flat, X):
        import torch

        parts = flat.split([shape.numel() for shape in self.shapes[which].values()])
        named = zip(self.shapes[which].items(), parts, strict=True)
        given = {name: part.reshape(shape) for (name, shape), part in named}
        return torch.func.functional_call(self.parts[which], given, (X,))

    def _scores(self, flat, X):
        import torch

        X = torch.as_tensor(np.asarray(X), dtype=torch.float32, device=self.device)
        hidden = self._call(0, flat[: self.n_shared], X)
        heads = flat[self.n_shared :].reshape(-1, self.head_size)
        return torch.stack([self._call(1, own, hidden) for own in heads], dim=1)

    def scores(self, w, X):
        """(n, K_i, L, ...)"""
        import torch

        with torch.no_grad():
            flat = torch.tensor(w, dtype=torch.float32, device=self.device)
            return self._scores(flat, X).double().cpu().numpy()

    def gradient(self, w, X, Y):
        """Gradient in w of the loss of a batch with targets Y (n, K_i, ...)."""
        import torch

        flat = torch.tensor(w, dtype=torch.float32, device=self.device, requires_grad=True)
        s = self._scores(flat, X)
        slope = self.outputs.slope(s.detach().double().cpu().numpy(), Y)
        s.backward(torch.as_tensor(slope, dtype=torch.float32, device=self.device))
        return flat.grad.double().cpu().numpy()


class PublishedFedMTLNetwork(FedMTLRounds):
    __doc__ = f"""FedMTL as published, with torch modules for shared layers and task layers.

    Parameters
    ----------
    module : callable
        Returns the shared layers, a new ``torch.nn.Module`` without buffers, from rows (n, ...).
    head : callable
        Returns a task layer, from what `module` gives to scores (n, L, ...).
    device : str, default="cpu"
        Of the training, such as "cuda"; the server computes on the CPU.
    {DOCUMENTED}

    Attributes
    ----------
    models_, history_, clients_, n_shared_, head_size_, privacy_
        As in `PublishedFedMTL`.

    References
    ----------
    .. [1] P. Sen, C. Borcea, "FedMTL: privacy-preserving federated multi-task learning", ECAI,
       2024.
    """

    _parameter_constraints = {
        **PARAMETERS,
        "module": [callable, None],
        "head": [callable, None],
        "device": [str],
    }

    def __init__(
        self,
        module=None,
        head=None,
        *,
        device="cpu",
        method="fedmtl",
        threshold=(0.75, 0.95),
        n_rounds=20,
        participation=1.0,
        local_epochs=1,
        batch_size=32,
        learning_rate=0.1,
        strength=0.1,
        inner_steps=5,
        scale=1.0,
        n_candidates=5,
        groups="position",
        start="common",
        secure=False,
        n_servers=3,
        monitor=None,
        random_state=None,
    ):
        take(self, locals())

    def _model(self, X, outputs):
        if self.module is None or self.head is None:
            raise ValueError("module= and head= must be functions that return torch modules.")
        return SharedModule(self.module, self.head, outputs, self.device)


# ------------------------------------------------------------------------------ Table 2
def lenet(n_attributes=5, channels=(20, 50), width=500, side=32, n_channels=3):
    """LeNet with normalisation, for images (n_channels, side, side). -> (module, head)

    The defaults have the 1,628,210 shared parameters and the 2,505 of a task layer of Table 2.
    """
    from torch import nn

    def module():
        a, b = channels
        return nn.Sequential(
            nn.Conv2d(n_channels, a, 5, padding=2),
            nn.GroupNorm(1, a),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(a, b, 5, padding=2),
            nn.GroupNorm(1, b),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(b * (side // 4) ** 2, width),
            nn.GroupNorm(1, width),
            nn.ReLU(),
        )

    return module, lambda: nn.Linear(width, n_attributes)


def mobilenet_v2(n_attributes=5):
    """MobileNetV2 (Sandler et al., 2018) for images (3, side, side). -> (module, head)

    2,223,872 shared parameters, 6,405 of a task layer.
    """
    import torch
    from torch import nn

    def normed(conv, *after):
        return [conv, nn.GroupNorm(1, conv.out_channels), *after]

    class InvertedResidual(nn.Module):
        def __init__(self, before, after, stride, expand):
            super().__init__()
            wide = before * expand
            layers = (
                normed(nn.Conv2d(before, wide, 1, bias=False), nn.ReLU6()) if expand > 1 else []
            )
            depth = nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False)
            layers += normed(depth, nn.ReLU6()) + normed(nn.Conv2d(wide, after, 1, bias=False))
            self.layers, self.adds = nn.Sequential(*layers), stride == 1 and before == after

        def forward(self, x):
            return x + self.layers(x) if self.adds else self.layers(x)

    class Mean(nn.Module):
        def forward(self, x):
            return torch.mean(x, dim=(2, 3))

    def module():
        layers, before = normed(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.ReLU6()), 32
        plan = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1))
        for expand, after, count, stride in (*plan, (6, 160, 3, 2), (6, 320, 1, 1)):
            for k in range(count):
                layers.append(InvertedResidual(before, after, stride if k == 0 else 1, expand))
                before = after
        layers += normed(nn.Conv2d(before, 1280, 1, bias=False), nn.ReLU6())
        return nn.Sequential(*layers, Mean())

    return module, lambda: nn.Linear(1280, n_attributes)


def segnet(n_categories=3, filters=(64, 128, 256, 512, 512)):
    """SegNet (Badrinarayanan et al., 2017) for images whose sides are divisible. -> (module, head)

    With blocks of two convolutions for the first two of `filters` and of three for the others, each
    halves the sides; the decoder takes the places of the maxima. The defaults have the 24,943,296
    shared parameters and the 37,123 of a task layer of Table 2.
    """
    from torch import nn

    def block(before, after, count):
        layers = []
        for k in range(count):
            conv = nn.Conv2d(before if k == 0 else after, after, 3, padding=1)
            layers += [conv, nn.GroupNorm(1, after), nn.ReLU()]
        return nn.Sequential(*layers)

    class SegNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = (3, *filters)
            counts = [2 if k < 2 else 3 for k in range(len(filters))]
            self.down = nn.ModuleList(
                block(widths[k], widths[k + 1], counts[k]) for k in range(len(filters))
            )
            into = (filters[0], *filters[:-1])
            self.up = nn.ModuleList(
                block(filters[k], into[k], counts[k]) for k in reversed(range(len(filters)))
            )
            self.pool = nn.MaxPool2d(2, return_indices=True)
            self.unpool = nn.MaxUnpool2d(2)

        def forward(self, x):
            places = []
            for layers in self.down:
                x, place = self.pool(layers(x))
                places.append(place)
            for layers in self.up:
                x = layers(self.unpool(x, places.pop()))
            return x

    def head():
        a = filters[0]
        return nn.Sequential(nn.Conv2d(a, a, 3, padding=1), nn.Conv2d(a, n_categories, 1))

    return SegNet, head
