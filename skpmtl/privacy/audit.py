"""Audits: attacks on a mechanism, and replays of a fit, compared with the stated guarantee."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, chi2, norm

from . import noise_checks
from .accounting import gdp_epsilon
from .costs import is_gaussian
from .rng import SeededSource, SystemSource
from .tape import Release, Tape, distance

_CONFIDENCE = 0.999
_TAPES = 60  # runs whose noise is tested number by number


@dataclass(frozen=True)
class AuditResult:
    """Outcome of `audit`.

    Attributes
    ----------
    passed : bool
        No check failed. It does not prove privacy: an audit can only find faults.
    failures : tuple of str
    epsilon_lower : float
        The true epsilon at `delta` is at least this, with `confidence`.
    epsilon_claimed, delta : float
    confidence : float
        Joint confidence of all statistical checks.
    noise_ratio : float
        Observed over stated noise std.
    sensitivity_observed, sensitivity_stated : float
        Distance of the neighbours' releases under the same noise; NaN if it cannot be repeated.
    event : str
        The event that gave `epsilon_lower`.
    scores : tuple of two ndarrays
        The statistic of that event on fresh draws of the data and of its neighbour.
    threshold : float
    n_replayed : int or None
        Of an estimator: releases and draws that were played to the fit of the neighbour.
        `noise_ratio` is then that of all noise, `confidence` that of its tests (1 - 1e-9), and the
        other statistical attributes are empty or NaN. Sensitivities are those of the release
        that comes nearest to its bound; "stated" is twice what the report states under
        "zero-out".
    """

    passed: bool
    failures: tuple
    epsilon_lower: float
    epsilon_claimed: float
    delta: float
    confidence: float
    noise_ratio: float
    sensitivity_observed: float
    sensitivity_stated: float
    event: str
    scores: tuple
    threshold: float
    n_replayed: int | None = None

    def __str__(self):
        verdict = "passed" if self.passed else "FAILED"
        if self.n_replayed is not None:
            return "\n".join(
                [
                    f"Audit {verdict} (replay of {self.n_replayed} releases and draws).",
                    f"Claimed: epsilon = {self.epsilon_claimed:.4g} at delta = {self.delta:.4g}. "
                    f"Sensitivity: seen {self.sensitivity_observed:.4g}, stated "
                    f"{self.sensitivity_stated:.4g}.",
                    *self.failures,
                ]
            )
        return "\n".join(
            [
                f"Audit {verdict} ({100 * self.confidence:.6g} % confidence, "
                f"{len(self.scores[0])} fresh draws per neighbour).",
                f"epsilon >= {self.epsilon_lower:.4g} at delta = {self.delta:.4g}; claimed "
                f"{self.epsilon_claimed:.4g}. Event: {self.event}.",
                f"Noise std, observed/stated: {self.noise_ratio:.3f}. Sensitivity: seen "
                f"{self.sensitivity_observed:.4g}, stated {self.sensitivity_stated:.4g}.",
                *self.failures,
            ]
        )

    def plot(self, ax=None):
        """Histogram of the attack's statistic on both neighbours. -> the matplotlib axes"""
        if self.n_replayed is not None:
            raise ValueError("A replay has no draws to plot: audit a mechanism.")
        import matplotlib.pyplot as plt

        if ax is None:
            ax = plt.subplots()[1]
        bins = np.histogram_bin_edges(np.concatenate(self.scores), bins=40)
        for scores, label in zip(self.scores, ("data", "neighbour"), strict=True):
            ax.hist(scores, bins=bins, alpha=0.6, label=label)
        ax.axvline(self.threshold, color="black", linestyle="--", label="threshold")
        ax.set(
            xlabel=self.event.rpartition(" ")[0].rpartition(" ")[0],
            ylabel="draws",
            title=f"epsilon >= {self.epsilon_lower:.3g}, claimed {self.epsilon_claimed:.3g}",
        )
        ax.legend()
        return ax


def audit(
    target,
    data=None,
    neighbour=None,
    *,
    epsilon=None,
    delta=None,
    n_draws=None,
    confidence=_CONFIDENCE,
    random_state=None,
):
    """Lower bound on the epsilon of a mechanism, and replay of the fit of an estimator.

    A **mechanism** is run many times on both neighbours. Half of the draws choose an event
    (statistic, threshold, direction), the other half bounds its two probabilities by
    Clopper-Pearson intervals, so the bound is valid whatever the event:
    epsilon >= log((p - delta) / q). Two faults are too small for that and are tested directly: the
    noise variance against the stated one, and the distance of two releases under the same noise
    against the stated sensitivity. The noise of the first runs is also tested number by number, as
    in a replay.

    The releases of an **estimator** fitted to `data` are played to its fit of `neighbour`,
    whatever the rows of that. The second fit also draws, from the same random bytes of the
    operating system (or with the same seed), what it is not given. It **finds**

    - anything that others can see and that does not follow from the releases, to the last bit: the
      models of the other tasks, every other attribute (also private ones, nested ones, variables
      of functions, and the memory that arrays are views of), the report, the saved billboard, the
      public part of every query to the tasks, warnings, log lines of all loggers, printed text,
      files that Python code writes, calls of callbacks, and what modules and classes of the
      estimator keep after a fit;
    - the same in what follows a fit: what public methods return, raise, print and log for the other
      tasks, for tasks that the fit does not know, and for these again after ``personalize``, with
      rows and without any; the text of the estimator; and methods without arguments;
    - draws, such as who takes part, that follow the rows; noise whose size, sign or need of random
      bytes does; draws and noise of the global random states of numpy and Python;
    - names, types and shapes of releases that follow the rows, and released arrays that are views
      of an exact sum;
    - contributions of other tasks that depend on the rows of this one;
    - releases that are further apart, before noise, than their stated sensitivity (under
      "zero-out" twice of it, as both neighbours contribute);
    - releases that cost more than the report states, by their sensitivities and noise: under
      Gaussian and pure composition, with sampled rounds, of each task's own releases, with
      amplification where batches are Poisson samples, in a search, and of every budget share that
      is fixed before the fit;
    - noise that is not on its public grid, is missing from some numbers, has another spread or
      distribution than stated, is used again in the same or in another fit, is the same in two
      fits of the same rows, is correlated (at every distance up to 39, and at powers of two, of
      entries, releases and fits), or leaves last digits of the exact sum: one of the 16 lowest bits
      of its steps of the grid, or the remainder by a prime up to 31. Further fits of both data
      sets, which are given the same releases, show half the stated noise; last digits need some 50
      numbers. All these tests of noise together raise a false alarm with probability 1e-9, the
      other comparisons none.

    It **cannot find** a sensitivity that is too small where these neighbours do not reach it; what
    depends on rows for other rows only, or on other releases; how long a fit takes and how much
    memory it needs; what compiled extensions write to files, sockets and other processes; the state
    of modules other than those of the package and of the estimator's classes; class methods,
    methods that need other arguments than rows and a task, pickles, and private methods that are
    called after a fit; new tasks for which a ``relation`` has no covariates; correlations at other
    distances, or after other operations than changes of sign; off-diagonal noise of Wishart
    releases but for its last digits; noise of a law that is not one of the package's; last digits
    of noise that tasks add to sums that depend on their earlier noise; noise that follows the rows
    where its random numbers are not from the operating system or a seed (``secure=True``), or in
    batches that a task draws itself; the cost of Poisson batches where groups of records or persons
    are protected; and a noise source that can be predicted. No audit proves privacy.

    Parameters
    ----------
    target : mechanism or estimator
        A mechanism has ``release(value, source)`` and ``describe()``. An estimator has
        ``privacy_`` (`PrivacyReport`) when it is fitted.
    data, neighbour : default=None
        Mechanism: two values of the statistic; None: zero and the stated sensitivity in one
        entry. Estimator: the arguments of ``fit`` as tuples, (X, y) or (X, y, task). They
        must be neighbours in the claimed adjacency (under "zero-out" the task contributes
        zero to one of them); choose them so that this task changes as much as possible. Of data
        sets that differ in more tasks or records than neighbours the models of these tasks and the
        sensitivities are left out.
    epsilon, delta : float, default=None
        Mechanism: the claim. None: what it states, at delta 0 or 1e-5.
    n_draws : int, default=None
        Mechanism: runs on each neighbour; None: 2000. Estimator: further fits for tests of the
        noise; None: as many as find half the stated noise, up to 60. Releases of many numbers need
        one, and 0 leaves out what only other fits show, such as last digits and noise that is the
        same for the same rows.
    confidence : float, default=0.999
        Mechanism: of the bound and the tests of noise.
    random_state : int, default=None
        Mechanism: reproducible audit; None: noise from the operating system. An estimator has its
        own, with other seeds in further fits of one that has a seed.

    Returns
    -------
    AuditResult
    """
    if hasattr(target, "fit"):
        given = {"epsilon": epsilon, "delta": delta, "random_state": random_state}
        given["confidence"] = None if confidence == _CONFIDENCE else confidence
        given = [f"{name}={value!r}" for name, value in given.items() if value is not None]
        if given:
            raise ValueError(
                f"{', '.join(given)} would not be used: the replay of an estimator tests what its "
                "report states. Set epsilon, delta and random_state of the estimator, or audit a "
                "mechanism."
            )
        return _replayed(target, data, neighbour, n_draws)
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence={confidence!r} must lie between 0.5 and 1.")
    n_draws = 2000 if n_draws is None else n_draws
    if n_draws < 20:
        raise ValueError(f"n_draws={n_draws!r} is too small for a bound: use 20 or more.")
    if (data is None) != (neighbour is None):
        raise ValueError("Pass data and neighbour, two values of the statistic, or neither.")
    if data is None:
        data, neighbour = np.zeros(target.shape), np.zeros(target.shape)
        neighbour[(0,) * len(target.shape)] = target.sensitivity
    values = [np.asarray(value, dtype=float) for value in (data, neighbour)]
    entry, seeds = target.describe(), np.random.default_rng(random_state)
    stated, std = entry["sensitivity"], entry["noise_std"]
    fresh = SystemSource() if random_state is None else SeededSource(seeds)
    seed = seeds.integers(2**31)

    def same(value):
        """A release whose noise is always the same, where the mechanism takes its source."""
        return np.asarray(target.release(value, SeededSource(np.random.default_rng(seed))))

    first, again, other = same(values[0]), same(values[0]), same(values[1])
    failures, signal, observed = [], None, np.nan
    if np.array_equal(first, again):
        signal = other - first
        observed = distance(signal, entry["norm"])
        if observed > stated * (1 + 1e-9) + std * 2.0**-24 * signal.size:
            failures.append(
                f"Sensitivity: two releases under the same noise differ by {observed:.6g} "
                f"({entry['norm']}), but {stated:.6g} is stated."
            )
    replies = [np.array([target.release(v, fresh) for _ in range(n_draws)]) for v in values]
    draws = [side / std for side in replies]
    epsilon, delta = _claim(entry, epsilon, delta)
    least = getattr(target, "delta_lower_bound", 0.0)
    if least > delta:
        failures.insert(
            0,
            f"Closed form: delta is at least {least:.6g} for every epsilon, but {delta:.6g} is "
            "claimed.",
        )
    risk = (1.0 - confidence) / 2  # for the noise test and for the bound
    ratio, caught = _noise_ratio(draws, entry, risk)
    if caught:
        failures.append(f"Noise: it has {ratio:.3f} times the stated std {std:.6g}.")
    tapes = [Tape() for _ in range(min(_TAPES, n_draws))]
    for tape, reply in zip(tapes, replies[0], strict=False):
        tape.releases.append(Release(entry, reply, values[0][None]))
    noises = [noise for n, tape in enumerate(tapes) for noise in noise_checks.noise_of(tape, n)]
    failures += noise_checks.failures(noises, noise_checks.differences(tapes))
    values = [value / std for value in values]
    lower, event, scores, threshold = _attack(draws, signal, values, delta, risk)
    if lower > epsilon:
        failures.append(
            f"Budget: epsilon is at least {lower:.4g} at delta = {delta:.4g}, but {epsilon:.4g} is "
            "claimed."
        )
    return AuditResult(
        passed=not failures,
        failures=tuple(failures),
        epsilon_lower=lower,
        epsilon_claimed=epsilon,
        delta=delta,
        confidence=confidence,
        noise_ratio=ratio,
        sensitivity_observed=float(observed),
        sensitivity_stated=float(stated),
        event=event,
        scores=scores,
        threshold=threshold,
    )


def _replayed(estimator, data, neighbour, n_draws):
    from .replay import replay  # it imports the input layer, which imports this package

    if data is None or neighbour is None:
        raise ValueError(
            "auditing an estimator needs data and neighbour: the arguments of fit as tuples, "
            "equal but for one task."
        )
    failures, course, (observed, stated), spread = replay(estimator, data, neighbour, n_draws)
    report = course.fitted.privacy_
    return AuditResult(
        passed=not failures,
        failures=tuple(failures),
        epsilon_lower=0.0,
        epsilon_claimed=report.epsilon,
        delta=report.delta,
        confidence=1.0 - noise_checks.RISK,
        noise_ratio=spread,
        sensitivity_observed=float(observed),
        sensitivity_stated=float(stated),
        event="replay",
        scores=(np.empty(0), np.empty(0)),
        threshold=np.nan,
        n_replayed=len(course.tape.releases),
    )


def _claim(entry, epsilon, delta):
    """-> epsilon, delta: what is not given as the mechanism states it"""
    mu = entry.get("mu")
    delta = (0.0 if mu is None else 1e-5) if delta is None else delta
    if epsilon is None:
        epsilon = entry["epsilon"] if mu is None else gdp_epsilon(mu, delta)
    return float(epsilon), float(delta)


# ---------------------------------------------------------------- exact checks
def _noise_ratio(groups, entry, risk):
    """-> (observed / stated std, whether it is significantly below 1).

    `groups` hold releases over their stated std. Deviations from each group's mean are
    chi-squared for Gaussian noise. Other noise has heavier tails: a normal approximation, with a
    margin of 10 %.
    """
    squares = []
    for draws in groups:
        centred = draws - draws.mean(axis=0)
        if entry["norm"] in ("frobenius", "nuclear") and draws.ndim == 3:  # no diagonals
            # Entries off the diagonal have half the variance and occur once.
            squares.append(np.square(centred).sum(axis=(1, 2)))
            entries = draws.shape[1] * (draws.shape[1] + 1) // 2
        else:
            squares.append(np.square(centred).reshape(len(draws), -1).sum(axis=1))
            entries = draws[0].size
    squares = np.concatenate(squares)
    degrees = entries * (len(squares) - len(groups))
    ratio = float(np.sqrt(squares.sum() / degrees))
    if is_gaussian(entry):
        return ratio, bool(chi2.cdf(squares.sum(), degrees) < risk)
    # A sample with few large values has a small mean and a small spread: never less than the
    # spread of independent Laplace entries, whose squares have variance 5.
    spread = max(squares.std(), np.sqrt(5.0 * entries))
    top = ratio**2 + norm.isf(risk) * spread / (entries * np.sqrt(len(squares)))
    return ratio, bool(top < 1.0 and ratio < 0.9)


# ---------------------------------------------------------------- the attack
def _attack(draws, signal, values, delta, risk):
    """Choose an event on the first half of the draws, bound its odds on the second."""
    half = len(draws[0]) // 2
    best = (-np.inf,)
    for name, statistic in _statistics(draws, signal, values, half):
        scores = [statistic(d) for d in draws]
        for bound, threshold, above, swapped in _events([s[:half] for s in scores], delta, risk):
            if bound > best[0]:
                best = (bound, name, scores, threshold, above, swapped)
    _, name, scores, threshold, above, swapped = best
    fresh = [s[half:] for s in scores]
    counts = [int(((s > threshold) == above).sum()) for s in fresh]
    likely, unlikely = counts if swapped else counts[::-1]
    lower = float(_log_odds(likely, unlikely, len(fresh[0]), delta, risk))
    event = f"{name} {'>' if above else '<='} {threshold:.4g}"
    return max(0.0, lower), event, tuple(fresh), float(threshold)


def _statistics(draws, signal, values, half):
    """Pairs (name, function of the draws of one value)."""
    if signal is None:  # what separates the two means is learned
        signal = draws[1][:half].mean(axis=0) - draws[0][:half].mean(axis=0)
    yield "projection on the difference", lambda d: d.reshape(len(d), -1) @ signal.ravel()
    # The noise itself is known: look for one-sided noise.
    for name, value in zip(("data", "neighbour"), values, strict=True):

        def smallest(d, value=value):
            noise = d - value
            return np.linalg.eigvalsh(noise)[:, 0] if noise.ndim == 3 else noise.min(axis=1)

        yield f"smallest eigenvalue or entry of the release minus the {name}", smallest


def _events(scores, delta, risk):
    """Best threshold of every direction: (bound, threshold, above, swapped)."""
    pooled = np.sort(np.concatenate(scores))
    thresholds = np.unique(np.append(pooled[:: max(1, len(pooled) // 400)], 0.0))
    # The extremes of each sample matter for one-sided noise.
    thresholds = np.union1d(thresholds, [f(s) for s in scores for f in (np.min, np.max)])
    n = len(scores[0])
    above = [n - np.searchsorted(np.sort(s), thresholds, side="right") for s in scores]
    for is_above in (True, False):
        counts = above if is_above else [n - a for a in above]
        for swapped in (True, False):
            likely, unlikely = counts if swapped else counts[::-1]
            bounds = _log_odds(likely, unlikely, n, delta, risk)
            i = int(np.argmax(bounds))
            yield bounds[i], thresholds[i], is_above, swapped


def _log_odds(likely, unlikely, n, delta, risk):
    """log((p - delta) / q) with p, q at the unfavourable ends of their intervals."""
    likely, unlikely = np.asarray(likely), np.asarray(unlikely)
    low = np.where(likely > 0, beta.ppf(risk / 2, np.maximum(likely, 1), n - likely + 1), 0.0)
    high = np.where(
        unlikely < n, beta.isf(risk / 2, unlikely + 1, np.maximum(n - unlikely, 1)), 1.0
    )
    return np.log(np.maximum(low - delta, 1e-300) / high)
