"""Audits: attacks on a mechanism or a fitted estimator, compared with its stated guarantee."""

import warnings
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, chi2, norm
from sklearn.base import clone

from . import noise_checks
from .accounting import gdp_epsilon
from .costs import epsilon_of_pure, gaussian_cost, is_gaussian, n_servers
from .report import PrivacyLeakWarning
from .rng import SeededSource, SystemSource
from .tape import Release, Tape, TapeError, distance

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
    noise_ratio : tuple of float
        Observed over stated noise std, per release; NaN for one that hardly any run made.
    sensitivity_observed, sensitivity_stated : float
        Distance of the neighbours' first differing release under the same noise; NaN if the
        noise cannot be replayed.
    event : str
        The event that gave `epsilon_lower`.
    scores : tuple of two ndarrays
        The statistic of that event on fresh draws of the data and of its neighbour.
    threshold : float
    n_replayed : int or None
        Releases and draws that ``replay=True`` played to the fit of the neighbour. `noise_ratio`
        is then that of all noise, `confidence` that of the tests of noise (1 - 1e-9), and
        the other statistical attributes are empty or NaN. Sensitivities are those of the release
        that comes nearest to its bound; "stated" is twice what the report states under
        "zero-out".
    """

    passed: bool
    failures: tuple
    epsilon_lower: float
    epsilon_claimed: float
    delta: float
    confidence: float
    noise_ratio: tuple
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
                f"Noise std, observed/stated: {', '.join(f'{r:.3f}' for r in self.noise_ratio)}. "
                f"Sensitivity: seen {self.sensitivity_observed:.4g}, stated "
                f"{self.sensitivity_stated:.4g}.",
                *self.failures,
            ]
        )

    def plot(self, ax=None):
        """Histogram of the attack's statistic on both neighbours. -> the matplotlib axes"""
        if self.n_replayed is not None:
            raise ValueError("A replay has no draws to plot: audit with replay=False.")
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
    confidence=0.999,
    random_state=None,
    replay=False,
):
    """Lower bound on the epsilon of a mechanism or of a whole estimator, and exact checks.

    The target is run many times on both neighbours. Half of the draws choose an event
    (statistic, threshold, direction), the other half bounds its two probabilities by
    Clopper-Pearson intervals, so the bound is valid whatever the event:
    epsilon >= log((p - delta) / q). Two faults are too small for that and are tested directly: the
    noise variance against the stated one, and the distance of the first
    differing release under the same noise against the stated sensitivity. For estimators the
    report's own arithmetic is repeated in every run, and the noise of the first runs is tested as
    in a replay. The number, kind and noise of releases may follow from earlier releases; where
    they follow from rows the audit ends with an error.

    The noise of the first runs is also tested number by number; differences of the noise that was
    added to equal sums have last digits that are uniform, or the release shows those of the sum.

    With ``replay=True`` the releases of a fit of `data` are played to a fit of `neighbour`,
    whatever its rows. That fit also draws, from the same random bytes of the operating system (or
    with the same seed), what it is not given. It **finds**

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
        ``random_state``; fitted, it has ``privacy_`` (`PrivacyReport`) and
        ``billboard_.releases`` (arrays in the order of the report's `releases`, before any
        shift or projection). Where tasks release something themselves, as in `DPMetaInit`, it
        is that.
    data, neighbour : default=None
        Mechanism: two values of the statistic; None: zero and the stated sensitivity in one
        entry. Estimator: the arguments of ``fit`` as tuples, (X, y) or (X, y, task). They
        must be neighbours in the claimed adjacency (under "zero-out" the task contributes
        zero to one of them); choose them so that this task changes as much as possible. A replay
        also takes data sets that differ in more tasks or records than neighbours: the models of
        these tasks and the sensitivities are then left out.
    epsilon, delta : float, default=None
        The claim. None: what the mechanism (at delta 0 or 1e-5) or the report states.
    n_draws : int, default=None
        Runs on each neighbour; None: 2000 for a mechanism, 200 for an estimator. In a replay:
        further fits for tests of the noise; None: as many as find half the stated noise, up to
        60. Releases of many numbers need one, and 0 leaves out what only other fits show, such as
        last digits and noise that is the same for the same rows.
    confidence : float, default=0.999
    random_state : int, default=None
        Reproducible audit; None: noise from the operating system. A replay leaves the
        `random_state` of the estimator as it is, but for other seeds in further fits of one that
        has a seed.
    replay : bool, default=False
        Audit of an estimator by playing its releases, instead of the statistical one; `epsilon`,
        `delta` and `confidence` have no part in it.

    Returns
    -------
    AuditResult
    """
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence={confidence!r} must lie between 0.5 and 1.")
    if replay:
        return _replayed(target, data, neighbour, n_draws)
    seeds = np.random.default_rng(random_state)
    if hasattr(target, "fit"):
        _check_pair(data, neighbour)
        run = _estimator_runner(target, seeds if random_state is not None else None)
        n_draws = 200 if n_draws is None else n_draws
        values = None
    else:
        run = _mechanism_runner(target, seeds if random_state is not None else None)
        n_draws = 2000 if n_draws is None else n_draws
        if (data is None) != (neighbour is None):
            raise ValueError("Pass data and neighbour, two values of the statistic, or neither.")
        if data is None:
            data, neighbour = np.zeros(target.shape), np.zeros(target.shape)
            neighbour[(0,) * len(target.shape)] = target.sensitivity
        values = np.asarray(data, dtype=float), np.asarray(neighbour, dtype=float)
    if n_draws < 20:
        raise ValueError(f"n_draws={n_draws!r} is too small for a bound: use 20 or more.")
    seed = int(seeds.integers(2**31))
    first, book = run(data, seed)
    replayed = _same(first, run(data, seed)[0])
    other = run(neighbour, seed)[0]
    if replayed and [r.key for r in first] != [r.key for r in other]:
        _check_numbers(run, data, neighbour, seed, (first, other))
    # The noise is replayed, so up to the first release that differs the histories agree and
    # that release differs by the signal alone; later ones react to it and show nothing.
    where, signal, observed, stated = 0, None, np.nan, first[0].entry["sensitivity"]
    failures = []
    if replayed:
        pairs = zip(first, other, strict=False)
        differs = [not np.array_equal(a.values, b.values) for a, b in pairs]
        where = differs.index(True) if any(differs) else 0
        signal, entry = other[where].values - first[where].values, first[where].entry
        observed, stated = distance(signal, entry["norm"]), entry["sensitivity"]
        if observed > stated * (1 + 1e-9) + entry["noise_std"] * 2.0**-24 * signal.size:
            failures.append(
                f"Sensitivity: under the same noise release {where + 1} differs by "
                f"{observed:.6g} ({entry['norm']}), but {stated:.6g} is stated."
            )
        signal = signal / entry["noise_std"]
    runs = [[run(d) for _ in range(n_draws)] for d in (data, neighbour)]
    claim = _claim(book, epsilon, delta)
    books = [book, *(drawn for side in runs for _, drawn in side)]
    failures = [*_books_failures(books, claim[1]), *failures]
    made = [first, other, *(releases for side in runs for releases, _ in side)]
    shown = {release.key: release for releases in reversed(made) for release in releases[::-1]}
    keys = list(dict.fromkeys(release.key for releases in made for release in releases))
    entries = [shown[key].entry for key in keys]
    draws = [_Draws.of([releases for releases, _ in side], shown, keys) for side in runs]
    risk = (1.0 - confidence) / 2  # for the noise tests and for the bound
    ratios = []
    for t in range(len(keys)):
        groups = [d.standardised[t][d.there[t]] for d in draws]
        ratio, caught = _noise_ratio(groups, entries[t], risk / len(keys))
        ratios.append(ratio)
        if caught:
            failures.append(
                f"Noise: release {t + 1} has {ratio:.3f} times the stated std "
                f"{entries[t]['noise_std']:.6g}."
            )
    tapes = _tapes(books)
    noises = [noise for n, tape in enumerate(tapes) for noise in noise_checks.noise_of(tape, n)]
    failures += noise_checks.failures(noises, noise_checks.differences(tapes))
    if values is not None:
        values = [value / entries[0]["noise_std"] for value in values]
    known = {} if signal is None else {where: signal}
    lower, event, scores, threshold = _attack(draws, known, values, claim[1], risk)
    if lower > claim[0]:
        failures.append(
            f"Budget: epsilon is at least {lower:.4g} at delta = {claim[1]:.4g}, but "
            f"{claim[0]:.4g} is claimed."
        )
    return AuditResult(
        passed=not failures,
        failures=tuple(failures),
        epsilon_lower=lower,
        epsilon_claimed=claim[0],
        delta=claim[1],
        confidence=confidence,
        noise_ratio=tuple(ratios),
        sensitivity_observed=float(observed),
        sensitivity_stated=float(stated),
        event=event,
        scores=scores,
        threshold=threshold,
    )


def _check_pair(data, neighbour):
    if data is None or neighbour is None:
        raise ValueError(
            "auditing an estimator needs data and neighbour: the arguments of fit as tuples, "
            "equal but for one task."
        )


def _replayed(estimator, data, neighbour, n_draws):
    from .replay import replay  # it imports the input layer, which imports this package

    if not hasattr(estimator, "fit"):
        raise ValueError("replay=True is for estimators: a mechanism publishes its release only.")
    _check_pair(data, neighbour)
    failures, course, (observed, stated), spread = replay(estimator, data, neighbour, n_draws)
    report = course.fitted.privacy_
    return AuditResult(
        passed=not failures,
        failures=tuple(failures),
        epsilon_lower=0.0,
        epsilon_claimed=report.epsilon,
        delta=report.delta,
        confidence=1.0 - noise_checks.RISK,
        noise_ratio=(spread,),
        sensitivity_observed=float(observed),
        sensitivity_stated=float(stated),
        event="replay",
        scores=(np.empty(0), np.empty(0)),
        threshold=np.nan,
        n_replayed=len(course.tape.releases),
    )


# ---------------------------------------------------------------- running the target
@dataclass(frozen=True)
class _Made:
    """One release of one run; those of several runs with the same key are compared."""

    key: tuple
    values: np.ndarray
    entry: dict


def _mechanism_runner(mechanism, seeds):
    fresh = SystemSource() if seeds is None else SeededSource(seeds)
    bound = getattr(mechanism, "delta_lower_bound", 0.0)
    book = {"report": None, "entry": mechanism.describe(), "delta_lower_bound": bound}

    def run(value, seed=None):
        source = fresh if seed is None else SeededSource(np.random.default_rng(seed))
        reply = np.asarray(mechanism.release(value, source))
        tape = Tape()
        tape.releases.append(Release(book["entry"], reply, np.asarray(value, dtype=float)[None]))
        return [_Made((), reply, book["entry"])], {**book, "tape": tape}

    return run


def _estimator_runner(estimator, seeds):
    def run(data, seed=None, played=None):
        if seed is None and seeds is not None:
            seed = int(seeds.integers(2**31))
        with warnings.catch_warnings(), Tape(played).running() as tape:
            warnings.simplefilter("ignore", PrivacyLeakWarning)  # seeds are part of the audit
            fitted = clone(estimator).set_params(random_state=seed).fit(*data)
        report, billboard = fitted.privacy_, fitted.billboard_
        releases = [np.atleast_1d(np.asarray(r, float)) for r in getattr(billboard, "releases", ())]
        by_task = _releases_of_tasks(tape)
        book = {"report": report, "tape": tape}
        if by_task and report.releases:
            return _numbered(by_task), book
        if not report.releases:
            raise ValueError(
                "nothing to audit: the fit published no noisy statistic "
                f"(guarantee {report.guarantee!r}, epsilon={report.epsilon!r})."
            )
        if len(releases) != len(report.releases):
            raise ValueError(
                f"the report lists {len(report.releases)} releases, but the billboard holds "
                f"{len(releases)}: the audit needs both in step."
            )
        found = zip(releases, report.releases, strict=True)
        return _numbered([(entry.get("name"), r, entry) for r, entry in found]), book

    return run


def _numbered(releases):
    """Releases by name, mechanism and shape, and how many like it were before."""
    found, before = [], Counter()
    for name, values, entry in releases:
        kind = name, entry["mechanism"], values.shape
        found.append(_Made((*kind, before[kind]), values, entry))
        before[kind] += 1
    return found


def _releases_of_tasks(tape):
    """What tasks released themselves, task by task in whatever order: (task, release, entry)."""
    found = []
    for release in tape.releases:
        if "tasks" not in release.entry:
            continue
        shape = len(release.entry["tasks"]), -1, *release.values.shape[1:]
        sent = release.reply.get("sums", release.reply["update"]).reshape(shape)
        stds = release.entry["noise_std"].tolist()
        for k, std, steps in zip(release.entry["tasks"], stds, sent, strict=True):
            mu = release.entry["sensitivity"] / std
            entry = {**release.entry, "noise_std": std, "mu": mu}
            found += [(int(k), step, entry) for step in steps]
    return sorted(found, key=lambda item: item[0])


def _same(first, again):
    return [r.key for r in first] == [r.key for r in again] and all(
        np.array_equal(a.values, b.values) for a, b in zip(first, again, strict=True)
    )


def _check_numbers(run, data, neighbour, seed, found):
    """Releases that differ in number or kind have to follow from earlier ones, not from rows."""
    try:
        again, _ = run(neighbour, seed, run(data, seed)[1]["tape"])
        follows = [r.key for r in again] == [r.key for r in found[0]]
    except TapeError:
        follows = False
    if not follows:
        raise ValueError(
            f"data and neighbour published {len(found[0])} and {len(found[1])} releases: their "
            "number or kind itself depends on private rows."
        )


@dataclass(frozen=True)
class _Draws:
    """Releases of all runs on one data set, by key."""

    # ndarrays (n_draws, ...) over the stated std of each; 0 in runs that did not make
    # this release
    standardised: list
    there: list  # ndarrays (n_draws,) of bool

    @classmethod
    def of(cls, runs, shown, keys):
        """Of these runs; `shown` holds one release of every key."""
        n, made = len(runs), [{release.key: release for release in run} for run in runs]
        standardised = [np.zeros((n, *shown[key].values.shape)) for key in keys]
        there = [np.array([key in run for run in made]) for key in keys]
        for key, values in zip(keys, standardised, strict=True):
            for i, run in enumerate(made):
                if key in run:
                    values[i] = run[key].values / run[key].entry["noise_std"]
        return cls(standardised, there)

    @property
    def numbers(self):
        """Of releases in every run."""
        return np.sum(self.there, axis=0)


# ---------------------------------------------------------------- the claim
def _claim(book, epsilon, delta):
    report = book["report"]
    if report is None:
        mu, nominal = book["entry"].get("mu"), book["entry"].get("epsilon")
        delta = (0.0 if mu is None else 1e-5) if delta is None else delta
    else:
        mu, nominal = report.mu, report.epsilon
        if delta is None or delta == report.delta:
            mu, delta = None, report.delta
    if epsilon is None:
        epsilon = nominal if mu is None else float(gdp_epsilon(mu, delta))
    return float(epsilon), float(delta)


def _books_failures(books, delta):
    """Does the claim of every run follow from what is known in closed form?"""
    unlike = {}
    for book in books:
        report = book["report"]
        key = report and (report.epsilon, report.sensitivity, report.noise_std, report.mu)
        unlike[key] = book
    return list(dict.fromkeys(text for b in unlike.values() for text in _book_failures(b, delta)))


def _book_failures(book, delta):
    report = book["report"]
    if report is None:
        if book["delta_lower_bound"] > delta:
            yield (
                f"Closed form: delta is at least {book['delta_lower_bound']:.6g} for every "
                f"epsilon, but {delta:.6g} is claimed."
            )
        return
    if report.guarantee == "none":
        yield f"Report: no guarantee is claimed ({report.notes.get('reason', report.mechanism)})."
        return
    entries = report.releases
    if report.mu is not None:
        mu = np.sqrt(n_servers(report)) * gaussian_cost(entries)
        if "times" in entries[0]:  # tasks compose in parallel; a batch has every n-th record
            of: dict[str | None, float] = {}
            for entry in entries:
                times = -(-entry["times"] // entry.get("n_batches", 1))
                mu, statistic = np.sqrt(times) * gaussian_cost([entry]), entry.get("statistic")
                of[statistic] = max(of.get(statistic, 0.0), mu)
            mu = np.linalg.norm([*of.values()])
        spent = float(gdp_epsilon(mu, report.delta))
    elif all("epsilon" in entry for entry in entries):
        spent = epsilon_of_pure(report, [entry["epsilon"] for entry in entries])
    else:
        return  # sampling: not a function of the releases alone
    if spent > report.epsilon * (1 + 1e-6):
        yield (
            f"Report: sensitivities and noise of its releases cost epsilon = {spent:.6g} at "
            f"delta = {report.delta:.6g}, but {report.epsilon:.6g} is stated."
        )


# ---------------------------------------------------------------- exact checks
def _tapes(books):
    """Tapes of the first runs, where a guarantee is claimed for their noise."""
    found = [book for book in books[:_TAPES] if "tape" in book]
    return [b["tape"] for b in found if b["report"] is None or b["report"].guarantee != "none"]


def _noise_ratio(groups, entry, risk):
    """-> (observed / stated std, whether it is significantly below 1).

    `groups` hold releases over their stated std. Deviations from each group's mean are
    chi-squared for Gaussian noise; what an adaptive release adds to the variance only raises
    them. Other noise has heavier tails: a normal approximation, with a margin of 10 %.
    """
    squares, groups = [], [draws for draws in groups if len(draws) > 1]
    if not groups:
        return np.nan, False
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
def _attack(draws, known, values, delta, risk):
    """Choose an event on the first half of the draws, bound its odds on the second."""
    half = len(draws[0].there[0]) // 2
    best = (-np.inf,)
    for name, statistic in _statistics(draws, known, values, half):
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


def _statistics(draws, known, values, half):
    """Pairs (name, function of the draws of one data set)."""
    # What separates the two means: learned, but for the one that the replay shows.
    left, right = (d.standardised for d in draws)
    axes = [n[:half].mean(axis=0) - d[:half].mean(axis=0) for d, n in zip(left, right, strict=True)]
    for t, signal in known.items():
        axes[t] = signal

    def projection(chosen):
        def score(d):
            parts = (d.standardised[t] for t in chosen)
            return sum(
                part.reshape(len(part), -1) @ axes[t].ravel()
                for t, part in zip(chosen, parts, strict=True)
            )

        return score

    for t in known:
        yield f"projection of release {t + 1} on the difference", projection([t])
    if not known or len(axes) > 1:
        yield "projection of all releases on the differences", projection(range(len(axes)))
    if not all(d.there[t].all() for d in draws for t in range(len(axes))):
        yield "number of releases", lambda d: d.numbers.astype(float)
    if values is not None:  # the noise itself is known: look for one-sided noise
        for name, value in zip(("data", "neighbour"), values, strict=True):

            def smallest(d, value=value):
                noise = d.standardised[0] - value
                if noise.ndim == 3:
                    return np.linalg.eigvalsh(noise)[:, 0]
                return noise.min(axis=1)

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
