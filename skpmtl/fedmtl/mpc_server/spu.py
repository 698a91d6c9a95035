"""One of three servers of the secure aggregation on SPU: a process that sees shares only.

    python -m skpmtl.fedmtl.mpc_server.spu FOLDER

It needs numpy and the extra ``skpmtl[spu]`` and nothing else of skpmtl than this folder of modules.
FOLDER holds what this server gets: ``link.json`` with its number (``rank``) and the addresses of
all three, ``.config`` with the certificates of `skpmtl.fedmtl.secure.make_certificates`. It writes
``connected`` when it is, and then reads numbers of rounds from its standard input, one a line, and
ends with it: ``FOLDER/round-<number>`` holds ``shapes.json`` (public) and ``in/<i>.shares``, and
gets ``out/<i>.shares`` and, last, ``out/run.json``. Servers stay connected, and keep what they
compiled, from one round to the next.

Similarities and weights are what SPU computes, modulo 2^128 with 40 fractional bits. Shares modulo
2^128 are shares modulo 2^64 when their upper halves are left out, so that averages, which are
nearly all of the work, are sums of products of shares that each server has: they need no message.
"""

import hashlib
import json
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

from .computation import largest_matching
from .replicated import FINE, KEY, WIDE, Answer, Shapes, Upload, Veil, product, product_of_shares
from .tunnel import Tunnels

_TIMEOUT = 600_000  # milliseconds without a word of another server


def weights_of(directions, labels, size, threshold):
    """Weights of averages, (N, N) of shared layers and (N R, N R) of heads, times 2^(FINE - WIDE).

    Eqs. 4 to 9, as `skpmtl.fedmtl.mpc_server.computation.aggregate` has them.
    """
    import jax.numpy as jnp

    n, rows, _ = directions.shape
    flat = directions.reshape(n * rows, -1)
    real = labels.sum(axis=2)
    counts = real.sum(axis=1)
    first, second = np.triu_indices(n, 1)
    cosines = (flat @ flat.T).reshape(n, rows, n, rows).transpose(0, 2, 1, 3)
    gains = jnp.maximum(cosines.reshape(n * n, rows, rows)[first * n + second], 0.0)
    at = np.diag(np.arange(n))
    at[first, second] = at[second, first] = n + np.arange(len(first))
    values = jnp.concatenate([counts, largest_matching(gains, jnp.maximum)])
    H = values[at.ravel()].reshape(n, n)
    eye = np.eye(n)  # rounding must not drop a client's own model
    near = (H >= (threshold * counts)[:, None]).astype(H.dtype) * (1.0 - eye) + eye
    weights = near * H * size[None, :]
    owner = np.repeat(np.arange(n), rows)
    labels = labels.reshape(n * rows, -1)
    same = labels @ labels.T
    head_weights = weights[owner] * same.reshape(n * rows, n, rows).sum(axis=2)
    padding = 1.0 - real.reshape(n * rows)  # keeps the sums of added rows away from 0
    totals = jnp.concatenate([weights.sum(axis=1), head_weights.sum(axis=1) + padding])
    inverse = 2.0 ** (FINE - WIDE) / totals
    head_weights = head_weights * inverse[n:, None]
    return weights * inverse[:n, None], head_weights[:, owner] * same


class Engine:
    """SPU's machine modulo 2^128, with programs that stay compiled."""

    def __init__(self, link):
        from spu import api, libspu

        self.libspu, self.secret = libspu, libspu.Visibility.VIS_SECRET
        config = libspu.RuntimeConfig(
            protocol=libspu.ProtocolKind.ABY3, field=libspu.FieldType.FM128,
            fxp_fraction_bits=WIDE,
        )  # fmt: skip
        # Goldschmidt's division doubles the bits in every step; 40 of them need five.
        config.fxp_div_goldschmidt_iters = 5
        self.machine, self.io, self.programs = api.Runtime(link, config), api.Io(3, config), {}

    def run(self, function, *inputs):
        """Shares (..., 2, 2) of the results of a function of arrays of such shares."""
        shapes = tuple(x.shape[:-2] for x in inputs)
        if (function, shapes) not in self.programs:
            self.programs[function, shapes] = self._compiled(function, shapes)
        program, metas, results = self.programs[function, shapes]
        for name, meta, x in zip(program.input_names, metas, inputs, strict=True):
            self.machine.set_var(name, self._packed(meta, x))
        self.machine.run(program)
        found = [
            self._unpacked(self.machine.get_var(name), shape)
            for name, shape in zip(program.output_names, results, strict=True)
        ]
        for name in (*program.input_names, *program.output_names):
            self.machine.del_var(name)
        return found

    def _compiled(self, function, shapes):
        import jax
        from spu.utils import frontend

        given = [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes]
        names = [f"in{k}" for k in range(len(given))]
        program, results = frontend.compile(
            frontend.Kind.JAX, function, given, {}, names, [self.secret] * len(given),
            lambda flat: [f"out{k}" for k in range(len(flat))],
        )  # fmt: skip
        metas = [self.io.make_shares(np.zeros(s), self.secret)[0].meta for s in shapes]
        return program, metas, [result.shape for result in jax.tree_util.tree_leaves(results)]

    def _packed(self, meta, x):
        """A value of SPU from replicated shares."""
        content = np.ascontiguousarray(x).tobytes()
        chunk = self.libspu.ValueChunk()
        chunk.total_bytes, chunk.content = len(content), content
        share = self.libspu.Share()
        share.meta, share.share_chunks = meta, [chunk.SerializeToString()]
        return share

    def _unpacked(self, share, shape):
        parts = []
        for raw in share.share_chunks:
            chunk = self.libspu.ValueChunk()
            chunk.ParseFromString(raw)
            parts.append(chunk.content)
        return np.frombuffer(b"".join(parts), np.uint64).reshape(*shape, 2, 2)


class SpuServer:
    """Rounds of one server."""

    def __init__(self, folder):
        from spu import libspu

        settings = json.loads((folder / "link.json").read_text())
        self.folder, self.rank = folder, settings["rank"]
        desc = libspu.link.Desc()
        desc.recv_timeout_ms = desc.http_timeout_ms = _TIMEOUT
        self.tunnels = Tunnels(self.rank, settings["addresses"], folder)
        for number in range(3):
            desc.add_party(f"server {number}", f"unix:{self.tunnels.socket(number)}")
        desc.connect_retry_times, desc.connect_retry_interval_ms = 120, 500
        self.link = libspu.link.create_brpc(desc, self.rank)
        self.engine = Engine(self.link)
        Veil(bytes(KEY), bytes(KEY)).over(product(*np.zeros((2, 1, 1), np.uint64)))  # compiles

    def aggregate(self, number):
        """One round."""
        started, spent, sent = time.perf_counter(), time.process_time(), self.tunnels.sent
        folder = self.folder / f"round-{number}"
        shapes = Shapes.load(folder)
        if len(set(self.link.all_gather(json.dumps([number, *vars(shapes).values()])))) > 1:
            raise ValueError("the servers were given other shapes, or other rounds")
        uploads = [
            Upload(shapes, self.rank, folder / "in" / f"{i}.shares")
            for i in range(shapes.n_clients)
        ]
        numbers, inputs, place = np.array([upload.wide() for upload in uploads]), [], 0
        for shape in shapes.parts.values():
            size = int(np.prod(shape))
            part = numbers[:, place : place + size]
            inputs.append(part.reshape(shapes.n_clients, *shape, 2, 2))
            place += size
        # Without the upper halves, shares modulo 2^64.
        weights = [found[..., 0] for found in self.engine.run(weights_of, *inputs)]
        compared = time.perf_counter() - started
        (folder / "out").mkdir(mode=0o700)
        veil, run = self._veil()
        answers = [Answer(folder / "out" / f"{i}.shares", run) for i in range(shapes.n_clients)]
        for block in _averages(shapes, *weights, uploads):
            for one, own in zip(answers, veil.over(block), strict=True):
                one.add(own)
        for one in answers:
            one.close()
        run = {
            "seconds": time.perf_counter() - started,
            "seconds_of_weights": compared,
            "cpu_seconds": time.process_time() - spent,
            "bytes_sent": self.tunnels.sent - sent,
            "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        (folder / "out" / "run.part").write_text(json.dumps(run))
        (folder / "out" / "run.part").rename(folder / "out" / "run.json")

    def _veil(self):
        """-> new keys, of this server and the next one, and the number of the run"""
        own = os.urandom(KEY)
        self.link.send((self.rank + 2) % 3, own.hex())
        other = bytes.fromhex(_text(self.link.recv((self.rank + 1) % 3)))
        said = self.link.all_gather(os.urandom(KEY).hex())
        return Veil(own, other), hashlib.sha256("".join(map(_text, said)).encode()).digest()


def _text(said):
    return said if isinstance(said, str) else said.decode()


def _averages(shapes, weights, head_weights, uploads):
    """Yield this server's terms of columns of the answers, (N, columns)."""
    step = shapes.columns_at_once
    for first in range(0, shapes.n_shared, step):
        yield product_of_shares(weights, _fine(uploads, first, min(step, shapes.n_shared - first)))
    n, rows, length = shapes.n_clients, shapes.max_heads, shapes.head_length
    values = _fine(uploads, shapes.n_shared, rows * length)
    found = product_of_shares(head_weights, values.reshape(2, n * rows, length))
    yield found.reshape(n, rows * length)


def _fine(uploads, first, count):
    """Both components of numbers of all clients, (2, N, count)."""
    out = np.empty((2, len(uploads), count), np.uint64)
    for i, upload in enumerate(uploads):
        out[0, i], out[1, i] = upload.fine(first, count)
    return out


def main(arguments=None):
    import jax
    from spu import libspu

    jax.config.update("jax_enable_x64", True)
    (folder,) = sys.argv[1:] if arguments is None else arguments
    quiet = libspu.logging.LogOptions()
    quiet.system_log_path = str(Path(folder) / "spu.log")  # else in this folder of the package
    quiet.log_level = libspu.logging.LogLevel.ERROR
    libspu.logging.setup_logging(quiet)
    server = SpuServer(Path(folder))
    (server.folder / "connected").touch()
    for line in sys.stdin:
        server.aggregate(int(line))
    os._exit(0)  # the link waits for others at a regular end


if __name__ == "__main__":
    main()
