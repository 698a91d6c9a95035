"""Search of published text and bytes for numbers of a posterior."""

import numpy as np

from skpmtl._uncertainty import POSTERIOR


def search(est, text, binary):
    """Assert that no number of the posterior of `est` is there. -> how many were searched for"""
    count = 0
    for name in POSTERIOR[:2]:
        assert name not in text
        for value in np.unique(getattr(est, name, [])):
            if value in (0.0, 1.0):  # numbers that stand anywhere
                continue
            count += 1
            digits = repr(abs(float(value))).lstrip("0.")[:8]  # the first that mean something
            assert digits not in text or len(digits) < 8
            assert value.tobytes() not in binary
    return count
