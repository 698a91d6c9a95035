"""Texts as integer codes of characters: rows from which the next character is predicted."""

import numpy as np

# The alphabet of LEAF's Shakespeare, in its order.
CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"


class Alphabet:
    """Positions of characters in a public list, at most 255; of others, the next one."""

    def __init__(self, characters):
        if not isinstance(characters, str) or not 0 < len(characters) < 256:
            raise ValueError("characters must be a string of 1 to 255 characters.")
        if len(set(characters)) < len(characters):
            raise ValueError("characters holds a character twice.")
        codes = _codes(characters)
        self.unknown = len(characters)
        self._order = np.argsort(codes)
        self._codes = codes[self._order]

    def __call__(self, text):
        """Position of every character of a text, uint8."""
        codes = _codes(text)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        known = self._codes[at] == codes
        return np.where(known, self._order[at], self.unknown).astype(np.uint8)


def _codes(text):
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
