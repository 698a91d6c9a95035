"""Sums, products and comparisons of additive shares modulo 2^64, with a dealer.

Setting. P servers hold shares: x = x_0 + ... + x_(P-1) modulo 2^64, or the XOR of the x_r for
bits. A dealer, who sees no input and no message of the servers, deals correlated random numbers.
All are honest but curious: they follow the protocol and may keep what they see. Up to P - 1 servers
may pool it; the dealer must not collude with any of them. *Dealer and one server together open
every value*: the server has x - b and the dealer b.

Servers and dealer run the same program (`computation`), the servers on shares, the dealer on the
masks: whatever is dealt follows from public shapes.

Why any P - 1 servers learn nothing. Everything that a server receives is either a fresh share of a
dealt value or the sum of what the servers send in `open`. A dealt value is shared by drawing the
shares of servers 0 to P - 2 from keys that each has in common with the dealer alone, so that the
shares of any P - 1 servers are uniform whatever the value is. What is opened is x - b, where b is
the sum of one draw of each server: the draw of the one server outside the coalition makes the
message of that server, hence the sum, uniform and independent of all else. Each b masks one x.
A view of a coalition is therefore made of its own draws and of uniform numbers, for every input
(up to AES-256 in counter mode as a source of random numbers). Results are never opened among
servers: the client gets one fresh share from each.

Protocols. Products: D. Beaver, Efficient multiparty protocols using circuit randomization, CRYPTO
1991, and for matrices P. Mohassel, Y. Zhang, SecureML, S&P 2017. Masked numbers with dealt bits:
I. Damgard et al., Unconditionally secure constant-rounds multi-party computation for equality,
comparison, bits and exponentiation, TCC 2006; D. Escudero et al., Improved primitives for MPC over
mixed arithmetic-binary circuits, CRYPTO 2020 (edaBits). The carry by a tree: O. Catrina,
S. de Hoogh, Improved primitives for secure multiparty integer computation, SCN 2010.
"""

import time
from typing import NamedTuple

import numpy as np

from .ring import LENGTH, Stream, fold_order, matmul, modular

__all__ = ["Dealer", "Link", "Masked", "Server"]


_PIECE = 2**18  # bytes; a connection takes five times as long for a piece that is much larger


class Link:
    """A connection that carries arrays and counts the bytes that are sent over it."""

    def __init__(self, connection):
        self.connection, self.sent = connection, 0

    def send(self, x):
        raw = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
        self.sent += raw.nbytes
        for start in range(0, max(raw.size, 1), _PIECE):
            self.connection.send_bytes(raw[start : start + _PIECE])

    def receive(self, shape, dtype=np.uint64):
        out = np.empty(shape, dtype)
        raw, count = out.reshape(-1).view(np.uint8), 0
        for start in range(0, max(raw.size, 1), _PIECE):
            count += self.connection.recv_bytes_into(raw[start : start + _PIECE])
        if count != out.nbytes:
            raise ValueError(f"a message has {count} bytes instead of {out.nbytes}")
        return out

    def send_message(self, raw):
        """Bytes of any length."""
        self.send(np.array([len(raw)], np.uint64))
        self.send(np.frombuffer(raw, np.uint8))

    def receive_message(self):
        (size,) = self.receive((1,)).tolist()
        return self.receive((size,), np.uint8)


class Masked(NamedTuple):
    """A secret e + b, or e XOR b: all servers know e, and each has a share of the mask b.

    The dealer has b itself, and zeros for e.
    """

    e: np.ndarray
    b: np.ndarray

    def map(self, function):
        """Of a linear function, such as a choice of entries or a sum."""
        return Masked(function(self.e), function(self.b))


class _Party:
    """What servers and dealer have in common: protocols on top of `draw`, `open`, `deal`.

    `draw(shape, dtype, xor)` is a share of a random mask (the dealer: the mask). `open(x, xor)` is
    the sum of all shares (the dealer: zeros). ``deal(like, value, xor)`` is a share of the array
    ``value()``, which only the dealer computes, of the shape and type of `like` (the dealer:
    zeros). `product` is that of two `Masked`. Shares are arrays of uint64; on the dealer, zeros.
    """

    def __init__(self):
        self.first, self.costs, self._open_part = False, {}, None

    # ------------------------------------------------------------------ costs
    def part(self, name):
        """From here on, time and bytes belong to this part of the computation."""
        now = time.perf_counter(), time.process_time(), sum(link.sent for link in self.links)
        if self._open_part is not None:
            before, start = self._open_part
            spent = [b - a for a, b in zip(start, now, strict=True)]
            known = self.costs.get(before, (0.0, 0.0, 0))
            self.costs[before] = [a + b for a, b in zip(known, spent, strict=True)]
        self._open_part = None if name is None else (name, now)

    # ------------------------------------------------------------------ local
    def constant(self, values):
        """A share of numbers that all servers know: one server has them, the others zeros."""
        return values if self.first else np.zeros_like(values)

    def shares(self, masked):
        return masked.b + self.constant(masked.e)

    # ------------------------------------------------------------------ products
    def mask(self, x, xor=False):
        b = self.draw(x.shape, x.dtype, xor)
        return Masked(self.open(x ^ b if xor else x - b, xor), b)

    def multiply(self, left, right):
        """Entry by entry, of shares or of `Masked`."""
        both = (x if isinstance(x, Masked) else self.mask(x) for x in (left, right))
        return self.product(*both, np.multiply)

    # ------------------------------------------------------------------ comparisons
    def _carry(self, e, bits, count):
        """XOR shares of the carry out of the low `count` bits of e + b, both in `fold_order`.

        Generate g and propagate p of two neighbours join to g_high ^ p_high g_low and
        p_high p_low; bits above `count` generate nothing and propagate.
        """
        low = fold_order(modular(2**count - 1))
        g, p = e & bits & low, (bits ^ self.constant(e)) & low ^ self.constant(e | ~e) & ~low
        for half, kind in ((32, "u4"), (16, "u2"), (8, "u1"), (4, "u1"), (2, "u1"), (1, "u1")):
            lower = g.dtype.type(2**half - 1)
            g_low, p_low = (g & lower).astype(kind), (p & lower).astype(kind)
            g_high, p_high = ((x >> g.dtype.type(half)).astype(kind) for x in (g, p))
            masked = self.mask(np.stack([p_high, g_low, p_low]), xor=True)
            joined = self.product(
                masked.map(lambda x: x[:1]), masked.map(lambda x: x[1:]), np.bitwise_and, xor=True
            )
            g, p = g_high ^ joined[0], joined[1]
        return g

    def _bit(self, shared):
        """An XOR-shared bit in uint8 as v ^ t. -> v, which all know; t (dealer); shares of t"""
        v, t = self.mask(shared & np.uint8(1), xor=True).map(lambda x: (x & 1).astype(np.uint64))
        return v, t, self.deal(t, lambda: t)

    def _bits(self, masked):
        """-> e and XOR shares of b, in `fold_order`"""
        return fold_order(masked.e), self.deal(masked.b, lambda: fold_order(masked.b), xor=True)

    def _not_negative(self, x):
        """-> x masked; v and t, whose XOR is whether x >= 0 (a signed number); shares of t"""
        masked = self.mask(x)
        e, bits = self._bits(masked)
        sign = (bits ^ self.constant(e)) >> modular(63)
        sign = sign.astype(np.uint8) ^ self._carry(e, bits, 63)
        v, t, shared = self._bit(sign)
        return masked, v ^ modular(1), t, shared

    def step(self, x):
        """1 where x >= 0, else 0."""
        _, v, _, t = self._not_negative(x)
        return self._opposite(v, t)

    def _opposite(self, v, t):
        """v ^ t = v + (1 - 2 v) t"""
        return self.constant(v) + (modular(1) - (v + v)) * t

    def ramp(self, x):
        """max(x, 0): (v ^ t) (e + b), where the dealer knows t b."""
        masked, v, t, shared = self._not_negative(x)
        mixed = self.deal(masked.b, lambda: t * masked.b)
        of_mask = v * masked.b + (modular(1) - (v + v)) * mixed
        return self._opposite(v, shared) * masked.e + of_mask

    def maximum(self, x, y):
        return y + self.ramp(x - y)

    def truncate(self, x, count, nearest=False):
        """floor(x / 2^count), or the nearest whole number, exactly, of 0 <= x < 2^63.

        Of x = e + b - 2^64 w the quotients of e and b are known and dealt, and the carry of the low
        bits is compared. x has no bit 63, so that w is the OR of those of e and b.
        """
        if nearest:
            x = x + self.constant(np.full(x.shape, modular(2 ** (count - 1))))
        masked = self.mask(x)
        v, _, t = self._bit(self._carry(*self._bits(masked), count))
        quotient = self.deal(masked.b, lambda: masked.b >> modular(count))
        top = self.deal(masked.b, lambda: masked.b >> modular(63))
        e_top = masked.e >> modular(63)
        wrapped = self.constant(e_top) + (modular(1) - e_top) * top
        out = self._opposite(v, t) + quotient + self.constant(masked.e >> modular(count))
        return out - (wrapped << modular(64 - count))


class Server(_Party):
    """Server `rank` of P; links to the dealer and to server 0, or of server 0 to all others."""

    def __init__(self, rank, n_servers, links, dealer):
        super().__init__()
        self.first, self.last, self.rank = rank == 0, rank == n_servers - 1, rank
        self.peers, self.dealer, self.links = links, dealer, [*links, dealer]
        self.stream = Stream(dealer.receive((LENGTH,), np.uint8).tobytes())

    def draw(self, shape, dtype, xor):
        return self.stream.draw(shape, dtype)

    def open(self, x, xor=False):
        """By server 0, who adds up and sends the sum to all."""
        if not self.first:
            self.peers[0].send(x)
            return self.peers[0].receive(x.shape, x.dtype)
        for peer in self.peers:
            other = peer.receive(x.shape, x.dtype)
            x = x ^ other if xor else x + other
        for peer in self.peers:
            peer.send(x)
        return x

    def deal(self, like, value, xor=False):
        if self.last:
            return self.dealer.receive(like.shape, like.dtype)
        return self.stream.draw(like.shape, like.dtype)

    def product(self, left, right, times=matmul, xor=False):
        """Shares of the product of two `Masked`; `times` is bilinear.

        (e + b) (e' + b') = (e + b) e' + e b' + b b', where the dealer knows b b'.
        """
        own = left.b ^ self.constant(left.e) if xor else self.shares(left)
        x, y = times(own, right.e), times(left.e, right.b)
        dealt = self.deal(x, None, xor)
        return x ^ y ^ dealt if xor else x + y + dealt


class Dealer(_Party):
    """The dealer; `links` to all servers, in their order. It receives nothing from them."""

    def __init__(self, links, new_key):
        super().__init__()
        self.links, self.streams, self.last = links, [], links[-1]
        for link in links:
            key = new_key()
            link.send(np.frombuffer(key, np.uint8))
            self.streams.append(Stream(key))

    def draw(self, shape, dtype, xor):
        total = self.streams[0].draw(shape, dtype)
        for stream in self.streams[1:]:
            own = stream.draw(shape, dtype)
            total = total ^ own if xor else total + own
        return total

    def open(self, x, xor=False):
        return np.zeros_like(x)

    def deal(self, like, value, xor=False):
        last = value()
        for stream in self.streams[:-1]:
            own = stream.draw(last.shape, last.dtype)
            last = last ^ own if xor else last - own
        self.last.send(last)
        return np.zeros_like(last)

    def product(self, left, right, times=matmul, xor=False):
        return self.deal(None, lambda: times(left.b, right.b), xor)
