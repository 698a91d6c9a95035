"""Sources of noise, their replies, and rounding of noisy numbers to a public grid."""

import os
import warnings
from contextvars import ContextVar

import numpy as np
from scipy.special import gammainccinv, gammaincinv, ndtri

from .._runtime.hints import RandomState
from .._runtime.stack import users_line
from .report import PrivacyLeakWarning

GRID_BITS = 24  # the public grid is 2^-24 of the noise (rounded down to a power of two)
_RARE = np.uint64(1 << 53)  # words below this get more bits: a float has room for them

TAPE = ContextVar("skpmtl_tape", default=None)  # the `skpmtl.privacy.tape.Tape` of a fit, if any

# What the report says about rounding, by source.
_GRID = (
    "values and noise are rounded to a public grid of 2^-24 of the noise scale and added as "
    "integers; the noise is calibrated to the sensitivity after rounding"
)
SYSTEM_ARITHMETIC = (
    f"{_GRID}; noise is computed in double precision from as many random bits as a float has room "
    "for: every point of the grid can be reached, and its probability is the exact one up to a "
    "factor of 1 +- 2^-18 for each normal or chi-square number, but for tails of a "
    "probability below 2^-180"
)
SEEDED_ARITHMETIC = (
    f"{_GRID}; noise is computed in double precision by numpy, whose tails are coarser than the "
    "grid"
)
EXACT_ARITHMETIC = (
    "exact: values are rounded to a public grid of 2^-24 of the noise scale, discrete noise is "
    "drawn exactly on that grid and added as integers, but for noise beyond 2^28 noise scales, of "
    "a probability below exp(-2^28), which a float rounds; the noise is calibrated to the "
    "sensitivity after rounding"
)


def replied(entry, draw, values):
    """``draw()``, which adds noise or decides by chance, or what the tape that is running replies.

    ``entry()`` describes it; `values` (n_parts, ...), or a function of the reply, is what the noise
    is added to, which may depend on earlier noise of the same reply.
    """
    tape = TAPE.get()
    return draw() if tape is None else tape.reply(entry(), draw, values)


def noise_source(random_state: RandomState = None, *, secure: bool = False):
    """Source of noise and of sampling decisions for one fit.

    Parameters
    ----------
    random_state : None, int, Generator or RandomState, default=None
        None: the operating system's generator. Otherwise one stream spawned for this fit,
        with a `PrivacyLeakWarning`: whoever knows the seed can subtract the noise.
    secure : bool, default=False
        Exact discrete sampler of OpenDP (extra ``skpmtl[secure]``); needs None.

    Returns
    -------
    source with methods ``uniform``, ``normal``, ``chisquare``, ``permutation``,
    ``stream`` and, for the report, the attributes ``description`` and ``arithmetic``.
    """
    if secure:
        if random_state is not None:
            raise ValueError(
                f"secure=True draws from the operating system: random_state={random_state!r} "
                "must be None."
            )
        return ExactSource()
    if random_state is None:
        return SystemSource()
    if isinstance(random_state, np.random.Generator):
        generator = random_state.spawn(1)[0]
    else:
        if isinstance(random_state, np.random.RandomState):
            words = [int(word) for word in random_state.randint(2**31, size=4)]
        else:
            words = random_state
        # A spawned key: the caller's own default_rng(seed) may have made public data.
        generator = np.random.default_rng(np.random.SeedSequence(words).spawn(1)[0])
    warnings.warn(
        "The noise of this fit is reproducible from random_state: it protects nobody against "
        "anyone who knows the seed, and two fits with one seed share their noise. Use "
        "random_state=None for a fit that is published.",
        PrivacyLeakWarning,
        stacklevel=users_line(),
    )
    return SeededSource(generator)


class SystemSource:
    """Operating-system CSPRNG through inverse distribution functions.

    Uniforms u have the relative precision of a float, 2^-53, however small they are: a word has 64
    bits, and the one in a thousand below 2^53 takes what stands behind its point from another
    word, and so on. A step of the grid is at least 2^-25 of the noise scale. Where a tail u is
    left, a step takes the part 2^-25 (chi-square) or z 2^-25 (normal, beyond z = 1) of u, which is
    2^28 floats or more: no point of the grid is missed, as far out as floats go.

    What remains is that z = quantile(u) times the scale is rounded twice by 2^-53 of itself, which
    is 2^-27 z steps of the grid. At each end of a step this makes the probability of a point the
    exact one up to a factor of 1 +- 2^-18 for z < 128, beyond which there are 2^-180 of it all.
    """

    description = "operating system"
    arithmetic = SYSTEM_ARITHMETIC
    exact = False

    def _words(self, size):
        count = int(np.prod(size))
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64).reshape(size)

    def _extended(self, words):
        """Words as floats, with a random fraction where there is room for it; never 0."""
        found = words.astype(np.float64)
        rare = np.flatnonzero(words < _RARE)
        if len(rare):
            fraction = self._extended(self._words(len(rare))) * 2.0**-64
            found.flat[rare] = words.flat[rare] + fraction
        return found

    def _halves(self, size):
        """-> (upper, u): a fair coin and a uniform in (0, 1/2].

        Tails are read off near zero, where floats are fine, and the coin makes both signs
        equally likely to the last bit.
        """
        words = self._words(size)
        return (words & np.uint64(1)).astype(bool), self._extended(words >> np.uint64(1)) * 2.0**-64

    def uniform(self, size):
        """Uniform on (0, 1), never 0 or 1."""
        return np.minimum(self._extended(self._words(size)) * 2.0**-64, 1.0 - 2.0**-53)

    def normal(self, size):
        """Standard normals."""
        upper, u = self._halves(size)
        z = ndtri(u)
        return np.where(upper, -z, z)

    def chisquare(self, degrees):
        """Chi-squares, one for every entry of `degrees`."""
        shape = np.asarray(degrees, dtype=float) / 2
        upper, u = self._halves(shape.shape)
        return 2.0 * np.where(upper, gammainccinv(shape, u), gammaincinv(shape, u))

    def permutation(self, n):
        """Random order of range(n); ties of 64-bit keys have probability n^2 2^-65."""
        return np.argsort(self._words(n), kind="stable")

    def stream(self, key):
        """Source of the noise of part `key` of a fit, which may be drawn on another machine."""
        return self


class SeededSource:
    """numpy generator: reproducible, hence no privacy against who knows the seed."""

    description = "seeded: not private against anyone who knows the seed"
    arithmetic = SEEDED_ARITHMETIC
    exact = False

    def __init__(self, generator):
        self._generator = generator

    def uniform(self, size):
        return self._generator.uniform(size=size)

    def normal(self, size):
        return self._generator.standard_normal(size)

    def chisquare(self, degrees):
        return self._generator.chisquare(degrees)

    def permutation(self, n):
        return self._generator.permutation(n)

    def stream(self, key):
        seed = self._generator.bit_generator.seed_seq
        child = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, 1 << 31, key))
        return SeededSource(np.random.default_rng(child))

    @property
    def state(self):
        """Where the stream is; set it to go on from there."""
        return self._generator.bit_generator.state

    @state.setter
    def state(self, value):
        self._generator.bit_generator.state = value


class ExactSource(SystemSource):
    """OpenDP's exact discrete Gaussian on an integer grid."""

    description = "operating system, exact discrete sampler of OpenDP"
    arithmetic = EXACT_ARITHMETIC
    exact = True

    def __init__(self):
        try:
            import opendp.prelude as dp
        except ImportError as error:
            raise ImportError(
                "secure=True needs OpenDP: install the extra with  pip install skpmtl[secure]"
            ) from error
        dp.enable_features("contrib")
        self._dp = dp

    def discrete_normal(self, scale, size):
        """Integers with probability proportional to exp(-k^2 / (2 scale^2))."""
        if (tape := TAPE.get()) is not None:
            tape.repeats = False
        # Of 64 bits: OpenDP takes int for 32, which saturate at 64 to 128 scales of the grid.
        dp, count = self._dp, int(np.prod(size))
        domain = dp.vector_domain(dp.atom_domain(T=dp.i64), size=count)
        sampler = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale)
        return np.array(sampler([0] * count), dtype=float).reshape(size)


def grid_step(scale):
    """Step of the public grid: 2^(floor(log2 scale) - GRID_BITS)."""
    return float(2.0 ** (np.floor(np.log2(scale)) - GRID_BITS))


def add_on_grid(value, noise_steps, step):
    """(round(value / step) + noise_steps) * step with the sum taken over the integers.

    Float addition would leave low-order bits of `value` in the result.
    """
    steps = np.rint(value / step)
    if np.abs(steps).max(initial=0.0) + np.abs(noise_steps).max(initial=0.0) < 2.0**53:
        # Floats are exact integers here. No zero has a sign: it would tell that of the value.
        return (steps + noise_steps + 0.0) * step
    total = np.vectorize(lambda a, b: float(int(a) + int(b)), otypes=[float])
    return total(steps, noise_steps) * step
