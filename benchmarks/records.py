"""Gradients of single records of recurrent networks, compared with Opacus.

    python -m benchmarks.records [--output FILE.csv]

256 sequences of 64 tokens, an embedding, one recurrent layer of 16 units and ten classes, on one
thread of the CPU. "loop" makes the gradient of one record per call, "vmap" is what
`TorchMetaInitClassifier` does, "hooks" Opacus's `GradSampleModule` with its own layers, and "ghost"
its norms without gradients, and the sum of clipped ones from a second pass. "seconds" are of
processor time, the best of three; "ratio" is over "vmap"; "apart" is the largest difference of a
norm from that of "loop", over the largest. Needs ``pip install opacus`` in addition to the extra
``skpmtl[torch]``.
"""

import time

from .command import command_line, with_commit, write_rows

FIELDS = ("commit", "layer", "method", "seconds", "ratio", "apart")
RECORDS, LENGTH, TOKENS, CLASSES = 256, 64, 20, 10


def network(layer):
    import torch

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(TOKENS, 8)
            self.walk = layer(8, 16, batch_first=True)
            self.out = torch.nn.Linear(16, CLASSES)

        def forward(self, x):
            return self.out(self.walk(self.table(x))[0][:, -1])

    return Network()


def methods(kind):
    """{name: function of no arguments -> norms of the gradients of records}"""
    import torch
    from opacus import layers
    from opacus.grad_sample import GradSampleModule
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
        GradSampleModuleFastGradientClipping as Ghost,
    )

    from skpmtl.networks.recurrent import spelled_out

    torch.manual_seed(0)
    net = network(getattr(torch.nn, kind))
    theirs = [network(getattr(layers, f"DP{kind}")) for _ in range(2)]
    for other in theirs:
        other.load_state_dict(net.state_dict(), strict=False)  # its numbers have two names each
    X = torch.randint(0, TOKENS, (RECORDS, LENGTH))
    y = torch.randint(0, CLASSES, (RECORDS,))
    loss, parts = torch.nn.functional.cross_entropy, dict(net.named_parameters())
    hooks = GradSampleModule(theirs[0], loss_reduction="sum")
    ghost = Ghost(theirs[1], loss_reduction="sum", max_grad_norm=1.0, use_ghost_clipping=True)

    def of_one(p, x, label):
        return loss(torch.func.functional_call(net, p, (x[None],)), label[None])

    def norms(gradients):
        return torch.cat([g.reshape(RECORDS, -1) for g in gradients], dim=1).norm(dim=1)

    def loop():
        found = [
            torch.autograd.grad(of_one(parts, x, label), list(parts.values()))
            for x, label in zip(X, y, strict=True)
        ]
        return norms(map(torch.stack, zip(*found, strict=True)))

    def vmap():
        with spelled_out(torch, net), torch.no_grad():
            found = torch.func.vmap(torch.func.grad(of_one), in_dims=(None, 0, 0))(parts, X, y)
        return norms(found.values())

    def by_hooks():
        hooks.zero_grad(set_to_none=True)
        loss(hooks(X), y, reduction="sum").backward()
        return norms([p.grad_sample for p in hooks.parameters()])

    def by_ghosts():
        ghost.zero_grad(set_to_none=True)
        ghost.enable_hooks()
        losses = loss(ghost(X), y, reduction="none")
        losses.sum().backward(retain_graph=True)
        found = ghost.get_norm_sample()
        ghost.zero_grad(set_to_none=True)
        ghost.disable_hooks()
        (losses * (1.0 / found).clamp(max=1.0)).sum().backward()
        return found

    return {"vmap": vmap, "loop": loop, "hooks": by_hooks, "ghost": by_ghosts}


def measure():
    import torch

    torch.set_num_threads(1)
    for kind in ("GRU", "LSTM", "RNN"):
        seconds, found, runs = {}, {}, methods(kind)
        for _ in range(4):  # in turns; the first one warms up
            for name, method in runs.items():
                start = time.process_time()
                found[name] = method().detach()
                spent = time.process_time() - start
                seconds[name] = min(spent, seconds.get(name, spent))
        for name in runs:
            apart = (found[name] - found["loop"]).abs().max() / found["loop"].max()
            yield {
                "layer": kind,
                "method": name,
                "seconds": f"{seconds[name]:.3g}",
                "ratio": f"{seconds[name] / seconds['vmap']:.3g}",
                "apart": f"{float(apart):.1g}",
            }


def main(arguments=None):
    options = command_line("records", __doc__).parse_args(arguments)
    return write_rows(with_commit(measure()), FIELDS, options.output)


if __name__ == "__main__":
    main()
