"""Numbers that accounting may be given: a NaN or a negative one must not end in a guarantee."""

import math
from numbers import Integral, Real


def check_positive(**numbers):
    """ValueError, with its name, for what is no finite number above 0."""
    for name, value in numbers.items():
        if not isinstance(value, Real) or not 0 < value < math.inf:
            raise ValueError(f"{name}={value!r} must be a positive, finite number.")


def check_count(least=1, **numbers):
    """ValueError, with its name, for what is no integer from `least` on."""
    for name, value in numbers.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name}={value!r} must be an integer, {least} or more.")


def check_delta(delta, *, zero=False):
    """ValueError for what is no probability below 1 and, unless `zero`, above 0."""
    if not isinstance(delta, Real) or not (0 < delta < 1 or (zero and delta == 0)):
        where = "in [0, 1)" if zero else "strictly between 0 and 1"
        raise ValueError(f"delta={delta!r} must lie {where}.")
