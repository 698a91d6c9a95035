"""Servers in place of a trusted curator, in processes of their own.

A site divides the sum of what its tasks contribute into one share for every server
(`skpmtl.exchange.servers`) and seals each for the key of its server (HPKE, RFC 9180), which stands
in the study. Whoever carries them sees noise. A server opens what it was sent, adds it up, adds its
own noise, and gives the total away, once for each query.

One honest server suffices, whatever the curator, the sites and the other servers do, because:

- Site and server make the query themselves (`Transcript`), with its bound, its noise and its grid,
  and a share can be opened for no other query, server or way to it.
- A share bears a mark that its site uses once for each query. No server adds up two of one mark,
  so that nobody can have a contribution counted twice under the noise for one.
- A server answers a query once, for one set of shares; again it gives the same total.

A site may send a share that nobody can open, to one server only. Servers therefore say first which
of the shares open, and are then asked for the total of those that open at all of them: what only
some of them add up is no sum of anything.
"""

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..exchange import servers
from ..exchange.files import save_billboard
from ..exchange.journal import locked, write_file
from ..exchange.protocol import PublicDraw
from ..exchange.wire import from_npy, to_npy
from .ledger import Account, Refusal

__all__ = ["ShareServer", "longest", "new_share_key", "opened", "seal"]

_MARK = 32  # bytes


def new_share_key(path):
    """Make the private key of a server in a file (X25519). -> public key, in hexadecimal"""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key = X25519PrivateKey.generate()
    text = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    write_file(path, text, 0o600)
    return key.public_key().public_bytes_raw().hex()


def _read_key(path):
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key(Path(path).read_bytes(), None)


def _suite():
    from cryptography.hazmat.primitives import hpke

    return hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.CHACHA20_POLY1305)


def _about(transcript, query, server, name):
    """What a share belongs to: it can be opened for nothing else.

    The grids are in it because they follow from arithmetic, which might differ between machines.
    """
    grids = {k: servers.step_of(m, query.bound) for k, m in query.mechanisms.items()}
    text = [transcript.codes[-1], server, name, grids, float(query.divide)]
    return hashlib.sha256(json.dumps(text).encode()).digest()


def seal(transcript, query, sums, mark):
    """Shares of the sums (by name) of a site. -> {server.name: bytes}

    `mark`, 32 bytes, is the same for all that this site sends in answer to this query, and for
    nothing else.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    found, names = {}, sorted(transcript.study.servers)
    for server, part in zip(names, servers.shares(query, sums, len(names)), strict=True):
        key = X25519PublicKey.from_public_bytes(bytes.fromhex(transcript.study.servers[server]))
        for name, share in part.items():
            data = mark + to_npy(share.view(np.int64))
            found[f"{server}.{name}"] = _suite().encrypt(
                data, key, info=_about(transcript, query, server, name)
            )
    return found


def longest(query, question):
    """Bytes of a sealed share, at most."""
    shapes = [m.shape for m in query.mechanisms.values() if m is not None]
    numbers = max(math.prod(shape) for shape in [*shapes, *question.shapes.values()])
    return 8 * numbers + 1024


def opened(query, published):
    """The release from what every server published, {name: ndarray of int64}.

    Raises ValueError for totals of other names, types or shapes.
    """
    for one in published:
        if set(one) != set(query.mechanisms) or any(a.dtype != np.int64 for a in one.values()):
            raise ValueError(f"totals {sorted(one)} instead of {sorted(query.mechanisms)}")
        for name, mechanism in query.mechanisms.items():
            first = published[0][name]
            size = first.size if mechanism is None else math.prod(mechanism.shape)
            if one[name].shape != first.shape or first.size != size:
                raise ValueError(f"a total of {name} of the shape {one[name].shape}")
    whole = [{name: a.view(np.uint64) for name, a in one.items()} for one in published]
    return servers.opened(query, whole)


class ShareServer(Account):
    """One of the servers of a study; `folder` is its own, `key` its private key of `new_share_key`.

    Raises ValueError when the key is of no server of the study.
    """

    def __init__(self, study, key, folder):
        super().__init__(study, folder)
        self.key = _read_key(key)
        public = self.key.public_key().public_bytes_raw().hex()
        known = study.servers or {}
        try:
            self.name = next(name for name in sorted(known) if known[name] == public)
        except StopIteration:
            raise ValueError(
                f"The key {public} in {key} is none of the servers of the study {study.name}: its "
                "table [servers] must have it."
            ) from None

    def opens(self, number, transcript, sealed):
        """Positions of the shares that can be added, of arguments as of `total`. -> list of int

        Nothing is added or stored. Raises Refusal.
        """
        found = self._shares(transcript, transcript.query(number), sealed)
        return [place for place, share in enumerate(found) if not isinstance(share, Refusal)]

    def total(self, number, transcript, sealed):
        """Sum of the shares, with the noise of this server. -> {name: ndarray of int64}

        `transcript` has all that was released and drawn before query `number`, `sealed` the share
        of every sum by name, of every site. Raises Refusal.
        """
        query, run = transcript.query(number), transcript.run
        code = hashlib.sha256()
        for part in sealed:
            for name in sorted(query.mechanisms):
                code.update(hashlib.sha256(part[name]).digest())
        with locked(self.folder):
            state, last = self._begin(number, run, transcript)
            if number > last:
                totals = self._opened(transcript, query, sealed)
                totals = servers.with_noise(totals, self._noise(transcript))
                kept = {f"total.{name}": t.view(np.int64) for name, t in totals.items()}
                kept["sealed"] = np.array(code.hexdigest())
                state = self._enter(
                    kept, number, run, query.statistic, transcript, sites=len(sealed)
                )
            elif str(state["sealed"]) != code.hexdigest():
                raise Refusal(f"query {number} was answered about other shares")
        return {name: state[f"total.{name}"] for name in query.mechanisms}

    def _opened(self, transcript, query, sealed):
        """Sums of the shares, modulo 2^64. -> {name: ndarray of uint64}"""
        server = servers.SumServer(query, len(self.study.servers))
        for share in self._shares(transcript, query, sealed):
            if isinstance(share, Refusal):
                raise share
            server.receive(share)
        if not sealed:
            raise Refusal("no shares")
        return server.totals

    def _shares(self, transcript, query, sealed):
        """Each share, opened, or why it cannot be. -> list of {name: ndarray of uint64} or Refusal

        Of two with one mark the first one counts.
        """
        shapes, marks, found = self._shapes(query), set(), []
        for place, part in enumerate(sealed):
            try:
                mark, share = self._share(transcript, query, part, shapes, place)
                if mark in marks:
                    raise Refusal(f"share {place} is of a site that another one is of")
                marks.add(mark)
            except Refusal as refusal:
                share = refusal
            found.append(share)
        return found

    def _share(self, transcript, query, part, shapes, place):
        """What a site sent, opened. -> its mark, {name: ndarray of uint64}"""
        from cryptography.exceptions import InvalidTag

        share, marks = {}, set()
        for name in query.mechanisms:
            about = _about(transcript, query, self.name, name)
            try:
                data = _suite().decrypt(part[name], self.key, info=about)
                share[name] = from_npy(data[_MARK:], name, ("<i8",), shapes[name]).view(np.uint64)
            except (InvalidTag, ValueError, KeyError) as error:
                raise Refusal(f"share {place} is none of this query for {self.name}") from error
            marks.add(data[:_MARK])
        if len(marks) != 1:
            raise Refusal(f"share {place} is of two sites")
        return marks.pop(), share

    def _shapes(self, query):
        """Of the sums of an answer, by name."""
        shapes = self.study.questions[query.statistic].shapes
        one = {name: np.zeros((1, *shape)) for name, shape in shapes.items()}
        first = np.zeros(1, np.int64) if query.pick is None else query.pick[:1]
        with np.errstate(all="ignore"):
            return {name: found.shape for name, found in query.combine(one, first).items()}

    def _noise(self, transcript):
        """Of this server, for the last query.

        With a seed, which is for tests, that of `fit`: all queries and servers draw in turn.
        """
        source, rank = self.study.build()._source(), sorted(self.study.servers).index(self.name)
        seeded = self.study.seed is not None
        for step in transcript.steps if seeded else transcript.steps[-1:]:
            if isinstance(step, PublicDraw):
                step.draw(source)
                continue
            found = {}
            for name, mechanism in step.mechanisms.items():
                one = replace(step, mechanisms={name: mechanism})
                for place in range(len(self.study.servers)):
                    noise = servers.noise_of_one(one, source, len(self.study.servers))
                    if place == rank:
                        found |= noise
        return found

    # ------------------------------------------------------------------------- the end
    def publish(self, billboard):
        """Take the billboard, after which nothing more will be asked."""
        save_billboard(self.study.published(billboard), self.folder / "billboard.npz")
