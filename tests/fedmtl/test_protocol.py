"""Shares modulo 2^64: what servers compute, and that P - 1 of them learn nothing."""

import queue
from itertools import count

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats
from scipy.optimize import linear_sum_assignment

from skpmtl.fedmtl.mpc.computation import aggregate, largest_matching
from skpmtl.fedmtl.mpc.job import HEADER, Job
from skpmtl.fedmtl.mpc.protocol import Dealer, Masked, Server
from skpmtl.fedmtl.mpc.ring import LENGTH, Stream, matmul
from skpmtl.fedmtl.mpc.server import Uploads
from skpmtl.fedmtl.secure import split_upload
from tests.helpers.parties import opened, run, spread

# Both ends of signed numbers, and what carries through all bits.
ENDS = [0, 1, -1, 2, 2**31, -(2**31), 2**32 - 1, 2**62, -(2**62), 2**63 - 1, -(2**63)]


def numbers(rng, size=200):
    """Signed numbers of all magnitudes, as uint64."""
    scale = rng.integers(0, 64, size)
    values = rng.integers(-(2**63), 2**63 - 1, size) >> scale
    return np.concatenate([np.array(ENDS), values]).view(np.uint64)


@pytest.mark.parametrize("shape", [(3, 1, 5), (2, 257, 3), (4, 600, 1), (1, 3, 4100), (2, 0, 3)])
def test_matrix_products_are_exact_modulo_2_64(shape):
    rng = np.random.default_rng(0)
    n, m, c = shape
    left, right = (rng.integers(0, 2**64, s, dtype=np.uint64) for s in ((n, m), (m, c)))
    left[:, : m // 2] = right[: m // 2] = np.uint64(2**64 - 1)  # the largest sums of limbs
    expected = (left.astype(object) @ right.astype(object)) % 2**64 if m else np.zeros((n, c))
    np.testing.assert_array_equal(matmul(left, right), expected.astype(np.uint64))


@pytest.mark.parametrize("first", [0, 1, 2, 33_000])
def test_streams_are_aes_in_counter_mode_from_any_place(first):
    key = bytes(range(LENGTH))
    blocks = b"".join(k.to_bytes(16, "big") for k in range(first // 2, first // 2 + 20_000))
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    whole = np.frombuffer(cipher.update(blocks), "<u8")[first % 2 :]
    stream = Stream(key, first)
    own = stream.draw((3,)), stream.draw((2, 8), np.uint8), stream.draw((35_000,))
    np.testing.assert_array_equal(own[0], whole[:3])
    np.testing.assert_array_equal(own[1].ravel(), whole[3:5].view(np.uint8))
    np.testing.assert_array_equal(own[2], whole[5:35_005])


@pytest.mark.parametrize("n_servers", [2, 3, 5])
def test_operations_on_shares_equal_those_on_numbers(n_servers):
    rng = np.random.default_rng(n_servers)
    x, y = numbers(rng), numbers(rng)[::-1].copy()
    signed, positive = x.view(np.int64), x >> np.uint64(1)
    a, b, c = (spread(rng, values, n_servers) for values in (x, y, positive))

    def program(party, rank):
        left, right = party.mask(a[rank][:12].reshape(3, 4)), party.mask(b[rank][:8].reshape(4, 2))
        return [
            party.product(left, right).ravel(),
            party.multiply(a[rank], b[rank]),
            party.multiply(party.mask(a[rank]), b[rank]),
            party.step(a[rank]),
            party.ramp(a[rank]),
            *(party.truncate(c[rank], bits) for bits in (1, 22, 30, 62)),
            party.truncate(c[rank], 20, nearest=True),
        ]

    results, _ = run(n_servers, program)
    found = [opened(parts) for parts in zip(*results, strict=True)]
    expected = [
        matmul(x[:12].reshape(3, 4), y[:8].reshape(4, 2)).ravel(),
        x * y,
        x * y,
        (signed >= 0).astype(np.uint64),
        np.maximum(signed, 0).view(np.uint64),
        *(positive >> np.uint64(bits) for bits in (1, 22, 30, 62)),
        [(int(value) + 2**19) // 2**20 for value in positive],
    ]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_matchings_are_the_best_ones(size):
    gains = np.random.default_rng(size).integers(0, 1000, (20, size, size))
    best = [own[linear_sum_assignment(own, maximize=True)].sum() for own in gains]
    np.testing.assert_array_equal(largest_matching(gains, np.maximum), best)


# --------------------------------------------------------------------------- what servers see
def bits_of(parts):
    """Views of entries, (n, bits), from arrays whose last axis is that of the entries."""
    columns = []
    for part in parts:
        rows = part.reshape(-1, part.shape[-1]).T.copy()
        columns.append(np.unpackbits(rows.view(np.uint8), axis=1))
    return np.hstack(columns)


def views_of_entries(value, n_servers, n=4000):
    """What servers hold and receive in a program on n equal numbers: independent repetitions."""
    shares = spread(np.random.default_rng(), np.full(n, value, np.int64).view(np.uint64), n_servers)
    held = [[] for _ in range(n_servers)]

    def program(party, rank):
        x = shares[rank]
        y = party.multiply(party.ramp(x), x)
        z = party.truncate(party.step(x) << np.uint64(9), 5)
        if rank < n_servers:
            held[rank] += [x, y, z]

    _, received = run(n_servers, program)
    return [
        bits_of(own + [part for part in parts if part.shape[-1] == n])
        for own, parts in zip(held, received, strict=True)
    ]


def distinguished(first, second):
    """Share of held-out views that a linear rule assigns to the right input; the p-value of it."""
    half = len(first) // 2
    rule = first[:half].mean(axis=0) - second[:half].mean(axis=0)
    middle = rule @ (first[:half].mean(axis=0) + second[:half].mean(axis=0)) / 2
    right = (first[half:] @ rule > middle).sum() + (second[half:] @ rule <= middle).sum()
    return stats.binomtest(int(right), 2 * (len(first) - half)).pvalue


@pytest.mark.parametrize("n_servers", [2, 3])
def test_views_of_all_but_one_server_do_not_tell_the_input(n_servers):
    views = [views_of_entries(value, n_servers) for value in (5, -(2**40))]
    for honest in range(n_servers):
        first, second = (
            np.hstack([own for rank, own in enumerate(one) if rank != honest]) for one in views
        )
        # Each bit, and each sum of neighbours, is as often 1 for both inputs.
        sums = [own[:, 1:] ^ own[:, :-1] for own in (first, second)]
        for a, b in ((first, second), sums):
            z = (a.mean(axis=0) - b.mean(axis=0)) / np.sqrt(0.5 / len(a))
            assert np.abs(z).max() < stats.norm.isf(1e-9 / len(z))
        assert distinguished(first, second) > 1e-9
    # The rule can distinguish: all servers together add their shares up.
    joined = []
    for one in views:
        words = [np.packbits(own[:, :64], axis=1).view(np.uint64)[:, 0] for own in one]
        total = np.sum(words, axis=0, dtype=np.uint64)
        joined.append(np.unpackbits(total[:, None].view(np.uint8), axis=1))
    assert distinguished(*joined) < 1e-9


JOB = Job(3, 3, 4, 3, 2, 2, 64.0, name="views", round=0)


class Given(Uploads):
    """Uploads of known masked numbers and shares of the masks."""

    def __init__(self, job, rank, e, b):
        super().__init__(job, rank)
        self.e, self.b, self.start = e, b, 0

    def _masked(self, first, size):
        window = np.s_[:, first : first + size]
        b = self.b[window]
        return Masked(np.zeros_like(b) if self.deals else self.e[window], b)


def inputs(seed):
    """Numbers of the clients of `JOB`, (N, n_upload), by way of their shares."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(JOB.n_clients):
        k = int(rng.integers(1, 3))
        own = rng.normal(size=4), rng.normal(size=(k, 2)), rng.choice(3, k, replace=False)
        _, shares = split_upload(JOB, i, *own, float(rng.integers(1, 65)), rng.uniform())
        sections = list(shares)
        sent = [bytes(section[0][HEADER:]) for section in sections]
        e = np.frombuffer(b"".join(sent)[LENGTH:], "<u8").astype(np.uint64)
        keys = bytes(sections[0][-1][HEADER:])
        for start in range(0, 3 * LENGTH, LENGTH):
            e += Stream(keys[start : start + LENGTH]).draw(e.shape)
        found.append(e)
    return np.array(found)


@pytest.mark.parametrize("honest", [0, 1, 2])
def test_a_view_occurs_with_every_input(honest):
    """Random numbers of one server that explain a view of the others with any other input.

    The run with other input uses the same keys of the others and the same messages; the draws of
    the honest server are what follows from them. Each draw is shifted by a number that depends on
    the inputs and on the other draws only, so that both runs are equally probable: the view of the
    others has one distribution. A message that betrays something cannot be repeated.
    """
    n = JOB.n_servers
    rng = np.random.default_rng(honest)
    keys = [rng.bytes(LENGTH) for _ in range(n)]
    masks = rng.integers(0, 2**64, (n, JOB.n_clients, JOB.n_upload), dtype=np.uint64)
    first, second = inputs(1), inputs(2)
    e = first - masks.sum(axis=0, dtype=np.uint64)
    sent, corrections, drawn, dealt = [], [], queue.Queue(), queue.Queue()

    class Recording(Server):
        def open(self, x, xor=False):
            if self.rank == honest:
                sent.append(x.copy())
            return super().open(x, xor)

    class RecordingDealer(Dealer):
        def deal(self, like, value, xor=False):
            send = self.last.send
            self.last.send = lambda x: (corrections.append(x.copy()), send(x))
            try:
                return super().deal(like, value, xor)
            finally:
                self.last.send = send

    class Repeating(Server):
        def mask(self, x, xor=False):
            if self.rank != honest:
                return super().mask(x, xor)
            message = sent[next(sends)]
            b = x ^ message if xor else x - message
            drawn.put(b)
            return Masked(self.open(message, xor), b)

        def deal(self, like, value, xor=False):
            if self.rank != honest or self.last:
                return super().deal(like, value, xor)
            return dealt.get(timeout=5)

    class RepeatingDealer(Dealer):
        def draw(self, shape, dtype, xor):
            total = drawn.get(timeout=5).copy()
            for rank, stream in enumerate(self.streams):
                if rank != honest:
                    own = stream.draw(shape, dtype)
                    total = total ^ own if xor else total + own
            return total

        def deal(self, like, value, xor=False):
            if honest == n - 1:  # the others do not see what it is sent
                return super().deal(like, value, xor)
            last, rest = corrections[next(deals)], value()
            for x in (last, *(self.streams[r].draw(rest.shape, rest.dtype) for r in others)):
                rest = rest ^ x if xor else rest - x
            dealt.put(rest)
            self.last.send(last)
            return np.zeros_like(rest)

    others = [rank for rank in range(n - 1) if rank != honest]

    def once(values, server, dealer):
        own = masks.copy()
        own[honest] += values - first
        shares = [*own, own.sum(axis=0, dtype=np.uint64)]
        supply = iter(keys)

        def program(party, rank):
            return np.hstack(list(aggregate(party, JOB, Given(JOB, rank, e, shares[rank]))))

        return run(n, program, server, dealer, lambda: next(supply))

    sends, deals = count(), count()
    results, views = once(first, Recording, RecordingDealer)
    repeated, again = once(second, Repeating, RepeatingDealer)
    assert next(sends) == len(sent) > 100
    for rank in set(range(n)) - {honest}:
        assert len(views[rank]) == len(again[rank])
        for ours, theirs in zip(views[rank], again[rank], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(results[rank], repeated[rank])
    difference = (opened(results) - opened(repeated)).view(np.int64)
    assert np.abs(difference).max() > 2**40  # the results are those of other inputs
