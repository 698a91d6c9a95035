"""Arithmetic modulo 2^64: matrix products by floating-point limbs, and streams from a key."""

import math

import numpy as np

__all__ = ["LENGTH", "Stream", "fold_order", "matmul", "modular"]

LENGTH = 32  # bytes of a key
# Limbs of 22, 22 and 20 bits: sums of 2 * _INNER products of two limbs stay below 2^53 and are
# exact in float64.
_LIMB, _INNER = 22, 256
_COLUMNS = 768  # of a block of a product, which stays in the cache
_ZEROS = memoryview(bytes(1 << 18))


def modular(value):
    """A whole number as uint64, modulo 2^64."""
    return np.uint64(value % 2**64)


def fold_order(x):
    """uint64 numbers with bit k at the place whose six binary digits are those of k backwards.

    Folding the upper half of a number onto the lower one, again and again, then joins neighbours
    first. Bits 0 and 63 stay.
    """
    for low, high in ((0, 5), (1, 4), (2, 3)):  # these digits of all places change places
        shift = modular(2**high - 2**low)
        chosen = modular(sum(1 << k for k in range(64) if k >> low & 1 and not k >> high & 1))
        moved = (x >> shift ^ x) & chosen
        x = x ^ moved ^ moved << shift
    return x


def _limbs(x):
    low = modular(2**_LIMB - 1)
    parts = x & low, x >> modular(_LIMB) & low, x >> modular(2 * _LIMB)
    return [part.astype(np.float64) for part in parts]


def matmul(left, right):
    """Product of uint64 matrices (n, m) and (m, c) modulo 2^64, by six products of floats."""
    out = np.zeros((left.shape[0], right.shape[1]), np.uint64)
    for first in range(0, left.shape[1], _INNER):
        inner = slice(first, first + _INNER)
        a, b, c = _limbs(left[:, inner])
        for start in range(0, out.shape[1], _COLUMNS):
            block = slice(start, start + _COLUMNS)
            x, y, z = _limbs(right[inner, block])
            out[:, block] += (a @ x).astype(np.uint64)
            second, third = a @ y, a @ z
            second += b @ x
            third += b @ y
            third += c @ x
            out[:, block] += second.astype(np.uint64) << modular(_LIMB)
            out[:, block] += third.astype(np.uint64) << modular(2 * _LIMB)
    return out


class Stream:
    """Numbers from a key of `LENGTH` bytes: AES-256 in counter mode, from number `first` on."""

    def __init__(self, key, first=0):
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        block, skip = divmod(8 * first, 16)
        counter = modes.CTR(block.to_bytes(16, "big"))
        self._encryptor = Cipher(algorithms.AES(key), counter).encryptor()
        self._encryptor.update(bytes(skip))

    def draw(self, shape, dtype=np.uint64):
        """The next numbers, uniform over all values of `dtype`."""
        kind = np.dtype(dtype).newbyteorder("<")
        size = math.prod(shape) * kind.itemsize
        raw = np.empty(size + 15, np.uint8)  # the cipher asks for room for a block more
        for start in range(0, size, len(_ZEROS)):  # parts that stay in the cache are faster
            self._encryptor.update_into(_ZEROS[: size - start], raw[start:])
        return raw[:size].view(kind).reshape(shape).astype(dtype, copy=False)
