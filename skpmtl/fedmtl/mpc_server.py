"""One server of the secure aggregation: run as a process, sees shares only.

    python -m skpmtl.fedmtl.mpc_server FOLDER

The file needs numpy and the extra ``skpmtl[mpc]`` and nothing else of skpmtl: it may be copied to
a server and run there as ``python mpc_server.py FOLDER``. FOLDER holds all that this server gets:

``job.json``
    Public: the number of this server (``rank``) and the fields of `Job`.
``.config/mpyc_ca.crt``, ``.config/party_<rank>.crt``, ``.config/party_<rank>.key``
    Certificate of the authority, own certificate and key, by the names that MPyC gives them.
``in/<i>.shares``
    This server's share of the upload of client i, see `skpmtl.fedmtl.secure.split_upload`.

It writes ``out/<i>.shares``, its share of the answer to client i, and ``out/run.json`` (seconds,
CPU seconds, bytes sent) last, once all servers have finished. Exit status: 0, or `LOST` if another
server did not come or went away, or 1; the reason is the last line of the error output.

The servers run one fixed sequence of operations of MPyC (Shamir shares, honest majority): no
branch and no message size depends on data. No value is opened among them; what MPyC opens within
a truncation or a comparison is masked, statistically by `SECURITY` bits or perfectly.
"""

import argparse
import asyncio
import io
import json
import os
import pickle
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

PRIME = 2**144 - 369  # 3 mod 4, as MPyC's square roots want it
BYTES = 18  # of one element of the field
# Fractional bits of cosines, of sizes, of parameters. A truncation costs as much as a comparison:
# weights, reciprocals and parameters are multiplied without any, the field is large enough.
SCORE, SIZE, VALUE = 22, 24, 32
RESULT = SCORE + SIZE + 2 * VALUE
PRECISION = 28  # fractional bits of a result that are not noise
SECURITY = 40
LOST = 3
_MAX_HEADS = 10  # 4,097 comparisons for every pair of clients
_ELEMENTS = 2**16  # at most that many numbers are in work at a time


@dataclass(frozen=True)
class Job:
    """What everybody knows: addresses, and public numbers that fix all shapes.

    Attributes
    ----------
    addresses : list of str
        "host:port" of every server, in order of their numbers.
    n_clients, n_shared, n_tasks : int
        Clients N, shared parameters P, tasks known to the system K.
    head_length : int
        Parameters of a head D, after padding.
    max_heads : int
        Rows R that every client uploads: a public cap of its number of tasks, at most 10.
    max_size : float
        Public bound of the clients' sizes.
    timeout : float
        Seconds after which a server gives up.

    Raises
    ------
    ValueError
        For fewer than three servers, and for `max_heads` out of its range.
    """

    addresses: list
    n_clients: int
    n_shared: int
    n_tasks: int
    head_length: int
    max_heads: int
    max_size: float
    timeout: float = 600.0

    def __post_init__(self):
        if self.n_servers < 3:
            raise ValueError(
                f"n_servers={self.n_servers} gives no secrecy: with Shamir shares a minority of "
                "servers may be curious, and of two servers that is none. Use 3 servers or more; a "
                "protocol for 2 servers, as CHEETAH in SPU, is another engine."
            )
        if not 1 <= self.max_heads <= _MAX_HEADS:
            raise ValueError(f"max_heads={self.max_heads} must be from 1 to {_MAX_HEADS}.")

    @property
    def n_servers(self):
        return len(self.addresses)

    @property
    def threshold(self):
        """Servers that may put their shares together and still learn nothing."""
        return (self.n_servers - 1) // 2

    @property
    def parts(self):
        """Shapes in an upload, in order."""
        heads = (self.max_heads, self.head_length)
        return {
            "shared": (self.n_shared,),
            "heads": heads,
            "directions": heads,
            "tasks": (self.max_heads, self.n_tasks),
            "size": (),
            "threshold": (),
        }

    def save(self, folder, rank):
        text = json.dumps({"rank": rank, **asdict(self)}, indent=1)
        (folder / "job.json").write_text(text + "\n")

    @classmethod
    def load(cls, folder):
        """-> (rank, Job)"""
        content = json.loads((folder / "job.json").read_text())
        return content.pop("rank"), cls(**{f.name: content[f.name] for f in fields(cls)})


def to_bytes(elements):
    return b"".join(int(x).to_bytes(BYTES, "little") for x in elements)


def from_bytes(raw):
    ends = range(0, len(raw), BYTES)
    return np.array([int.from_bytes(raw[k : k + BYTES], "little") for k in ends], dtype=object)


class Uploads:
    """Shares of all clients, kept as bytes until they are needed."""

    def __init__(self, job, folder):
        self.job = job
        self.raw = [(folder / "in" / f"{i}.shares").read_bytes() for i in range(job.n_clients)]
        self.offsets, total = {}, 0
        for name, shape in job.parts.items():
            self.offsets[name] = total
            total += int(np.prod(shape))
        for i, raw in enumerate(self.raw):
            if len(raw) != total * BYTES:
                raise SystemExit(
                    f"The share of client {i} has {len(raw)} bytes; job.json asks for "
                    f"{total * BYTES}. Client and servers must use the same job."
                )

    def __getitem__(self, name):
        shape = self.job.parts[name]
        flat = self.columns(name, 0, int(np.prod(shape)))
        return flat.reshape(self.job.n_clients, *shape)

    def columns(self, name, start, stop):
        """Columns of the flattened part `name`, one row per client."""
        at = self.offsets[name]
        window = slice((at + start) * BYTES, (at + stop) * BYTES)
        return np.array([from_bytes(raw[window]) for raw in self.raw])


def largest_matching(gains, maximum):
    """Value of the best one-to-one matching of every (R, R) matrix in `gains`; none negative.

    f(S) = max over k in S of f(S without k) + gain[|S| - 1, k] over subsets S of columns: the same
    R 2^(R-1) - 2^R + 1 comparisons for all data.
    """
    n, size, _ = gains.shape
    f = gains[:, 0, :]
    place = {1 << k: k for k in range(size)}
    for r in range(1, size):
        sets = [s for s in range(1 << size) if s.bit_count() == r + 1]
        members = [[k for k in range(size) if s >> k & 1] for s in sets]
        rest = [[place[s ^ 1 << k] for k in own] for s, own in zip(sets, members, strict=True)]
        members, rest = np.array(members), np.array(rest)
        place = {s: at for at, s in enumerate(sets)}
        choices = [f[:, rest[:, q]] + gains[:, r, :][:, members[:, q]] for q in range(r + 1)]
        while len(choices) > 1:
            left = [choices.pop()] if len(choices) % 2 else []
            choices = [maximum(*choices[q : q + 2]) for q in range(0, len(choices), 2)] + left
        f = choices[0]
    return f.reshape(n)


async def aggregate(mpc, job, uploads):
    """Shares of the new models: arrays (N, P) and (N, R, D) of field elements.

    The results have `RESULT` fractional bits; those after `PRECISION` are noise.
    """
    n, rows = job.n_clients, job.max_heads
    integers = mpc.SecInt(64, p=PRIME)  # all fixed-point scales are kept by hand
    fixed = mpc.SecFxp(2 * VALUE, VALUE, p=PRIME)
    field = integers.field

    def secret(elements):
        return integers.array(field.array(elements, check=False))

    async def finished(x):
        """The same array once it is computed, so that blocks do not pile up in memory."""
        return integers.array(await mpc.gather(x))

    def at_least(x, y):  # for |x - y| <= R in units of 2^-SCORE
        return 1 - mpc.np_sgn(x - y, l=SCORE + rows.bit_length() + 1, LT=True)

    def maximum(x, y):
        return y + at_least(x, y) * (x - y)

    # Eqs. 4, 5. H is symmetric, and H_ii = K_i exactly: a client keeps its own model at Z_i = 1.
    directions, tasks = secret(uploads["directions"]), secret(uploads["tasks"])
    real = np.sum(tasks, axis=2)
    counts = np.sum(real, axis=1)
    first, second = np.triu_indices(n, 1)
    values = [counts * 2**SCORE]
    step = max(1, _ELEMENTS // 8 // max(rows**2, 2**rows))
    for start in range(0, len(first), step):
        i, j = first[start : start + step], second[start : start + step]
        cosines = directions[i] @ np.transpose(directions[j], (0, 2, 1))
        cosines = mpc.np_trunc(cosines, f=SCORE, l=2 * SCORE + 3)
        gains = at_least(cosines, 0) * cosines  # a pair of negative cosine stays unmatched
        values.append(await finished(largest_matching(gains, maximum)))
    at = np.diag(np.arange(n))
    at[first, second] = at[second, first] = n + np.arange(len(first))
    H = np.reshape(np.concatenate(values)[at.ravel()], (n, n))

    # Eqs. 6, 7 without division: S_ij >= Z_i is H_ij >= Z_i K_i, and 1 / K_i cancels in the means.
    least = secret(uploads["threshold"]) * counts
    weights = at_least(H, np.reshape(least, (n, 1))) * H * secret(uploads["size"])

    # Eqs. 8, 9: a row of weights for every client, and one for every uploaded head.
    labels = np.reshape(tasks, (n * rows, job.n_tasks))
    same = await finished(labels @ np.transpose(labels))
    owner = np.repeat(np.arange(n), rows)
    head_weights = weights[owner] * np.sum(np.reshape(same, (n * rows, n, rows)), axis=2)
    padding = 1 - np.reshape(real, (n * rows,))  # keeps the sums of added rows away from 0
    totals = np.sum(head_weights, axis=1) + padding * 2 ** (SCORE + SIZE)
    totals = np.concatenate((np.sum(weights, axis=1), totals))
    bits = SCORE + SIZE + (n * rows).bit_length() + 2
    totals = await mpc.gather(mpc.np_trunc(totals, f=SCORE + SIZE - VALUE, l=bits))
    inverse = integers.array(await mpc.gather(1 / fixed.array(totals, None, False)))
    weights = np.concatenate((weights, head_weights)) * np.reshape(inverse, (n + n * rows, 1))
    weights = await finished(weights)

    # Eqs. 2, 3. The products leave as they are; the mask hides their last bits from the client,
    # as rounding would: exact products would betray the weights.
    async def answer(x):
        y = (await mpc.gather(x)).value
        mask = mpc._np_randoms(field, y.size, 1 << RESULT - PRECISION).value
        return (y + mask.reshape(y.shape)) % PRIME

    step = max(1, _ELEMENTS // n)
    shared = [np.empty((n, 0), dtype=object)]
    for start in range(0, job.n_shared, step):
        columns = uploads.columns("shared", start, min(start + step, job.n_shared))
        shared.append(await answer(weights[:n] @ secret(columns)))
    old = secret(uploads["heads"].reshape(n * rows, job.head_length))
    heads = await answer((weights[n:][:, owner] * same) @ old)
    return np.concatenate(shared, axis=1), heads.reshape(n, rows, job.head_length)


class _ArraysOnly(pickle.Unpickler):
    """MPyC pickles its messages; a server must not be able to run code at another one."""

    def find_class(self, module, name):
        known = {"_reconstruct": "numpy._core.multiarray", "ndarray": "numpy", "dtype": "numpy"}
        if name not in known or module not in (known[name], "numpy.core.multiarray"):
            raise pickle.UnpicklingError(f"A message asks for {module}.{name}; refused.")
        return super().find_class(module, name)


def _unconnected(mpc):
    peers = [peer for peer in mpc.parties if peer.pid != mpc.pid]
    return [p.pid for p in peers if p.protocol is None or p.protocol.transport.is_closing()]


async def _until_lost(mpc):
    while not _unconnected(mpc):
        await asyncio.sleep(0.2)


async def _serve(mpc, job, uploads):
    """-> (shared, heads, seconds, bytes sent)"""
    await mpc.start()
    print(f"Process {os.getpid()} is connected to {job.n_servers - 1} servers.", flush=True)
    started = time.perf_counter()
    work = asyncio.ensure_future(aggregate(mpc, job, uploads))
    watch = asyncio.ensure_future(_until_lost(mpc))
    await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        raise ConnectionError("a server went away")
    watch.cancel()
    shared, heads = work.result()
    sent = sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)
    seconds = time.perf_counter() - started
    await mpc.shutdown()  # waits for all servers: nobody answers unless all have finished
    return shared, heads, seconds, sent


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m skpmtl.fedmtl.mpc_server", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("folder", type=Path)
    parser.add_argument("--listen", help="host to listen on; default: the one in the addresses")
    parser.add_argument("--attached", action="store_true", help="end with the standard input")
    options = parser.parse_args(arguments)
    if options.attached:
        threading.Thread(target=lambda: os.read(0, 1) or os._exit(LOST), daemon=True).start()
    os.chdir(options.folder)  # where MPyC looks for .config
    folder = Path()
    rank, job = Job.load(folder)
    uploads = Uploads(job, folder)
    # MPyC reads its settings from the command line when it is imported.
    sys.argv = [sys.argv[0], "--no-log", "--ssl", "-K", str(SECURITY), "-I", str(rank)]
    sys.argv += ["-T", str(job.threshold)]
    for address in job.addresses:
        sys.argv += ["-P", address]
    os.environ["MPYC_NOUVLOOP"] = "1"
    from mpyc import runtime

    mpc = runtime.mpc
    runtime.pickle = SimpleNamespace(
        dumps=pickle.dumps, loads=lambda data: _ArraysOnly(io.BytesIO(data)).load()
    )
    loop = asyncio.get_event_loop()
    host = options.listen or mpc.parties[rank].host
    loop.create_server = partial(loop.create_server, host=host)  # MPyC: every interface
    try:
        result = mpc.run(asyncio.wait_for(_serve(mpc, job, uploads), job.timeout))
    except Exception as error:
        if _unconnected(mpc):
            with suppress(RuntimeError):  # the first to go takes others with it: name them all
                loop.run_until_complete(asyncio.sleep(1.0))
            reason = f"No connection to server {', '.join(map(str, _unconnected(mpc)))}."
        elif isinstance(error, (TimeoutError, asyncio.TimeoutError)):
            reason = f"Not finished within {job.timeout:g} seconds."
        else:
            raise
        print(reason, file=sys.stderr, flush=True)
        os._exit(LOST if _unconnected(mpc) else 1)  # MPyC cannot give up a computation
    shared, heads, seconds, sent = result
    out = folder / "out"
    out.mkdir(exist_ok=True)
    for i in range(job.n_clients):
        elements = np.concatenate([shared[i], heads[i].ravel()])
        (out / f"{i}.shares").write_bytes(to_bytes(elements))
    run = {"seconds": seconds, "cpu_seconds": time.process_time(), "bytes_sent": sent}
    (out / "run.json").write_text(json.dumps(run) + "\n")


if __name__ == "__main__":
    main()
