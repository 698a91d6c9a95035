"""Recurrent layers of torch as plain equations, of which `torch.func` makes gradients of records.

torch's own kernels write into their arguments, which `torch.func.vmap` does not take, and one
record after the other costs a call of Python for each of its steps.
"""

from contextlib import contextmanager

__all__ = ["spelled_out"]


@contextmanager
def spelled_out(torch, module):
    """Within it recurrent layers of a module compute by `_forward`, with the same numbers."""
    layers = [layer for layer in module.modules() if isinstance(layer, torch.nn.RNNBase)]
    for layer in layers:
        layer.forward = _of(torch, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _of(torch, layer):
    return lambda given, hx=None: _forward(torch, layer, given, hx)


def _forward(torch, layer, given, hx=None):
    """As ``layer(given, hx)``, for tensors."""
    if not torch.is_tensor(given):
        raise TypeError("A packed sequence has no gradients of records: pad it, and mask.")
    single, long = given.ndim == 2, layer.mode == "LSTM"
    if single:
        given = given[None] if layer.batch_first else given[:, None]
    x = given.transpose(0, 1) if layer.batch_first else given
    states = (hx if long else (hx,)) if hx is not None else ()
    if single:
        states = [state[:, None] for state in states]
    ends, n_ways = [], 2 if layer.bidirectional else 1
    for depth in range(layer.num_layers):
        if depth and layer.dropout:
            x = torch.nn.functional.dropout(x, layer.dropout, layer.training)
        found = []
        for way in range(n_ways):
            place = depth * n_ways + way
            begin = [state[place] for state in states]
            out, end = _walk(torch, layer, f"_l{depth}" + "_reverse" * way, x, begin, way)
            found.append(out)
            ends.append(end)
        x = found[0] if n_ways == 1 else torch.cat(found, dim=-1)
    ends = [torch.stack(state) for state in zip(*ends, strict=True)]
    if layer.batch_first:
        x = x.transpose(0, 1)
    if single:
        x, ends = x.squeeze(0 if layer.batch_first else 1), [end.squeeze(1) for end in ends]
    return x, tuple(ends) if long else ends[0]


def _walk(torch, layer, name, x, begin, back):
    """One layer in one direction: -> outputs (length, batch, width), last states"""

    def of(what):
        return getattr(layer, what + name, None)

    linear = torch.nn.functional.linear
    given = linear(x, of("weight_ih"), of("bias_ih"))
    width = layer.proj_size or layer.hidden_size
    h, *c = begin or [
        x.new_zeros(x.shape[1], size)
        for size in ([width, layer.hidden_size] if layer.mode == "LSTM" else [width])
    ]
    outputs = [None] * len(x)
    for t in reversed(range(len(x))) if back else range(len(x)):
        own = linear(h, of("weight_hh"), of("bias_hh"))
        if layer.mode == "GRU":
            r, z, n = given[t].chunk(3, dim=-1)
            hr, hz, hn = own.chunk(3, dim=-1)
            z = torch.sigmoid(z + hz)
            n = torch.tanh(n + torch.sigmoid(r + hr) * hn)
            h = n + z * (h - n)
        elif layer.mode == "LSTM":
            i, f, g, o = (given[t] + own).chunk(4, dim=-1)
            c = [torch.sigmoid(f) * c[0] + torch.sigmoid(i) * torch.tanh(g)]
            h = torch.sigmoid(o) * torch.tanh(c[0])
            if layer.proj_size:
                h = linear(h, of("weight_hr"))
        else:
            h = (torch.tanh if layer.mode == "RNN_TANH" else torch.relu)(given[t] + own)
        outputs[t] = h
    return torch.stack(outputs), (h, *c)
