"""Budget of the rounds -> bounds on the updates and mechanisms. Reads public numbers only.

Clipping norms have the unit of y over that of X, which nobody knows before the fit. A noisy
histogram gives the length of the models of most tasks: every task names the public bin of the
length of its own model. Bin j of 81 holds lengths whose binary logarithm rounds to j, from -40 to
40. One task fills one bin, so that the counts have L2 sensitivity 1 when its contribution is left
out, and sqrt(2) when it is replaced.
"""

import math

import numpy as np

from ..exchange.plan import divided_mu
from ..privacy.accounting import gdp_epsilon
from ..privacy.mechanisms import VectorGaussian, clip_rows, mean_sensitivity
from ..privacy.rng import add_on_grid, replied
from ..privacy.sampling import blocks_mu

BINS = np.arange(-40, 41)
_MOST = 2 / 3  # part of the tasks that it must hold: others have units of their own
_CLEAR = 4.0  # standard errors that a peak of three bins must have


def histogram(adjacency, mu):
    """Mechanism of the counts, a `VectorGaussian`.

    What a task sends is non-negative and of L2 norm 1 at most (`sum_of_bins`). Two such vectors u,
    v have ||u - v||^2 = ||u||^2 + ||v||^2 - 2 u'v <= 2.
    """
    return VectorGaussian(len(BINS), 1.0 if adjacency == "zero-out" else math.sqrt(2.0), mu)


def bins(lengths):
    """One-hot rows (n, 81) for the lengths of the tasks' models, (n,)."""
    with np.errstate(all="ignore"):
        level = np.rint(np.log2(np.maximum(lengths, 2.0 ** BINS[0])))
    return (np.clip(level, BINS[0], BINS[-1])[:, None] == BINS).astype(float)


def sum_of_bins(contributions, positions):
    """``combine`` of the histogram; what anybody sent is bounded here, too.

    A task that is silent (NaN) adds nothing.
    """
    sent = np.nan_to_num(np.asarray(contributions["bins"], dtype=float), nan=0.0)
    sent = np.clip(sent, 0.0, 1.0)
    clip_rows(sent, 1.0)
    return {"bins": sent.sum(axis=0)}


def common_length(counts, noise_std, n_tasks):
    """Length that models of most tasks have, from noisy counts (81,); None: they have none.

    Of the three neighbouring bins with the largest sum it is the mean weighted by their counts;
    None where this sum is less than two thirds of the tasks or `_CLEAR` standard errors.
    """
    padded = np.concatenate([[0.0], counts, [0.0]])
    sums = padded[:-2] + padded[1:-1] + padded[2:]
    at = int(np.argmax(sums))
    if sums[at] < max(_CLEAR * math.sqrt(3.0) * noise_std, _MOST * n_tasks):
        return None
    near = slice(max(at - 1, 0), at + 2)
    weight = np.maximum(counts[near], 0.0)
    return float(2.0 ** (weight @ BINS[near] / weight.sum()))


SCALE_SHARE = 0.04  # of mu^2, for the histogram of lengths
_BLOCK = 1 << 16  # noise is drawn and added in pieces
# Of clip_norm="auto": rounds below these ratios, and the ratio from which there is more than one.
_ROUNDS, _MOST_ROUNDS, _ONE_ROUND = ((1.5, 0), (4.0, 1), (6.0, 10), (12.0, 30)), 100, 4.0
_FEW_CLASSES = 10
_SCALE_TASKS = 7.0  # it is asked for from so many tasks on, in standard deviations of a count
_COLUMN_RATIO = 6.0  # for every column of a relation; one that has less is left out


def epsilon_of_rounds(noise_multiplier, n_rounds, delta, adjacency, before=0.0):
    """epsilon of the first rounds, at this delta.

    `noise_multiplier` is that of the sums of every round, and `before` the mu of what was released
    before them.
    """
    mu = math.hypot(before, blocks_mu(noise_multiplier, n_rounds, adjacency))
    return float(gdp_epsilon(mu, delta))


class BlockGaussian(VectorGaussian):
    """`VectorGaussian` that adds its noise piece by piece, in place: models may be large."""

    def release(self, value, source):
        return replied(self.describe, lambda: self._noisy(value, source), value[None])

    def _noisy(self, value, source):
        flat = value.reshape(-1)
        scale = self.noise_std / self.step
        for first in range(0, flat.size, _BLOCK):
            part = flat[first : first + _BLOCK]
            if not np.isfinite(part).all():
                raise ValueError("the statistic is not finite: clip the contributions first.")
            if source.exact:
                noise = source.discrete_normal(scale, part.size)
            else:
                noise = np.rint(source.normal(part.size) * scale)
            part[:] = add_on_grid(part * self._shrink, noise, self.step)
        return flat.reshape(value.shape)


def path(ratio, size, far=False, n_started=1):
    """Public rule of ``clip_norm="auto"``. -> n_rounds, path

    Without rounds the centre would be little but noise: nothing is released. `path` is the length
    that clipped updates of all rounds can make together, in lengths of a task's model.

    Parameters
    ----------
    ratio : float
        See `RoundsPlan`.
    size : int
        Numbers in a shared model. The more they are, the fewer of them the rows of a task
        determine, and the shorter its own model is compared with the shared one.
    far : bool, default=False
        Whether shared models are longer than those of a task: with log-losses, and those that
        covariates with a wide range are multiplied by.
    n_started : int, default=1
        Classes of the public initial model. A task has few of many classes: what all of them have
        in common is longer than its own part, and worth more of the noise, which is small compared
        with its scores.
    """
    n_rounds = next((T for limit, T in _ROUNDS if ratio < limit), _MOST_ROUNDS)
    if ratio < _ONE_ROUND:
        more = max(math.sqrt(n_started / _FEW_CLASSES), 1.0)
        return (10, 2.0 * more) if far and ratio * more >= _ROUNDS[0][0] else (n_rounds, 1.0)
    length = min(max(3.0 * math.sqrt(ratio), 2.0), 30.0)
    return n_rounds, max(length, min(ratio, 100.0)) * min(max(math.sqrt(size) / 10.0, 0.5), 1.0)


def columns_within(ratio):
    """How many columns of a relation a budget carries, by a public rule; None: all.

    `ratio` is that of `RoundsPlan` for a single shared model.
    """
    return max(int(ratio / _COLUMN_RATIO), 1) if math.isfinite(ratio) else None


def speeds(n_rounds):
    """Parts of the path of every round: they fall, so that the last rounds add little noise."""
    v = np.arange(n_rounds, 0, -1, dtype=float)
    return v / v.sum()


class RoundsPlan:
    """Noise and bounds of the rounds of one fit. Reads public numbers only.

    Parameters
    ----------
    n_tasks : int
    size : int
        Numbers in all shared models together.
    budget : tuple of (float, float) or None
        epsilon and delta of the whole fit; None: rounds without noise.
    n_rounds : int or None
        None: by the rule `path`, which needs clip_norm="auto" and a budget.
    share : float, default=1.0
        Part of the squared mu that the rounds have, with all that belongs to them.
    aside : float, default=0.0
        Part of mu^2 that other releases take.
    adjacency : {"replace-one", "zero-out"}, default="replace-one"
    clip_norm : "auto" or float, default="auto"
    groups : ndarray, default=None
        Public number of tasks of every shared model; None: one for all. With a relation of r
        columns, r times the part n_tasks / r.
    far, n_started
        See `path`.
    n_servers : int, default=1
        Servers that add the noise (`skpmtl.exchange.servers`); 1 is a trusted curator.

    Attributes
    ----------
    ratio : float
        m mu / sqrt(d) for replaced tasks, with d numbers of a shared model and m tasks in the
        smallest cluster: of equal rounds, all of the noise together is 2 / ratio times as long as
        the path that updates can make. Left-out tasks, which need half the noise, have twice the
        ratio. Infinite without noise.
    auto : bool
        Whether `clip_norm` is "auto".
    measures : bool
        Whether bounds on the updates follow from the ratio and the tasks' own models.
    scale : VectorGaussian or None
        Mechanism of the histogram of lengths (`histogram`); None where it is not asked
        for. With mu_s^2 of the squared budget, which is `SCALE_SHARE` of mu^2, rounds have
        mu_r^2 = mu^2 - mu_s^2: all releases are Gaussian, round t of sensitivity 2 C_t / m and
        standard deviation 2 C_t sqrt(T) / (m mu_r), that is mu_r / sqrt(T), whatever the earlier
        releases made of C_t. Together exactly mu.
    mu : float or None
        Of the whole fit; None without privacy.
    path : float
    noise_multiplier : float or None
        Std of the noise on the sum of the updates (and counts) over the clip norm; None
        without privacy.
    round_delta : float or None
        delta at which the rounds are accounted; None without privacy.
    """

    def __init__(
        self,
        n_tasks,
        size,
        budget,
        n_rounds,
        *,
        share=1.0,
        aside=0.0,
        adjacency="replace-one",
        clip_norm="auto",
        groups=None,
        far=False,
        n_started=1,
        n_servers=1,
    ):
        self.n_tasks, self.size, self.adjacency, self.share = n_tasks, size, adjacency, share
        self.auto = isinstance(clip_norm, str)
        self.clip_norm = 1.0 if self.auto else float(clip_norm)
        self.n_servers = n_servers
        self.epsilon = self.delta = self.round_delta = self.mu = self.scale_mu = None
        self.noise_multiplier = self.scale = None
        self.measures = self.auto and budget is not None
        self.ratio, self.path, self.n_rounds = math.inf, 1.0, n_rounds
        if budget is None or n_rounds == 0:
            return
        self.epsilon, self.delta = budget
        groups = np.array([n_tasks]) if groups is None else groups
        self.groups = groups
        self.ratio = self._ratio(groups.min(), size / len(groups))
        if self.auto:
            found, self.path = path(self.ratio, size / len(groups), far, n_started)
            self.n_rounds = found if n_rounds is None else n_rounds
        self.round_delta, self.mu = self.delta, self._mu()
        if not self.n_rounds:
            return
        if self.auto:
            scale = histogram(adjacency, self.mu * math.sqrt(SCALE_SHARE))
            if n_tasks >= _SCALE_TASKS * scale.noise_std:
                self.scale, self.scale_mu = scale, scale.mu
        self.set_aside(aside)

    def set_aside(self, part):
        """Leave a fraction of mu^2 to other releases; the noise of the rounds follows."""
        reach = mean_sensitivity(1.0, 1.0, self.adjacency)
        spent = part + (SCALE_SHARE if self.scale else 0.0)
        rounds = self.mu * math.sqrt(1.0 - spent)
        self.noise_multiplier = reach * math.sqrt(self.n_rounds) / rounds

    def _mu(self):
        return divided_mu(self.epsilon, self.delta, self.n_servers) * math.sqrt(self.share)

    def _ratio(self, n_tasks, size):
        reach = mean_sensitivity(1.0, 1.0, self.adjacency)
        return float(2.0 / reach * n_tasks * self._mu() / math.sqrt(size))

    def bounds(self, length=None):
        """Bounds on the updates of all rounds; those of the start where counts move them.

        `length` is that of the models of most tasks; None: tasks send in units of their own.
        """
        if not self.auto:
            return [self.clip_norm] * self.n_rounds
        return (self.path * (length or 1.0) * speeds(self.n_rounds)).tolist()

    @property
    def noise_over_path(self):
        """Noise of a round over the longest path that all of them can make; 0 without either.

        sqrt(d sum_t sd_t^2 / T) / sum_t C_t for d numbers and bounds C_t. With T equal rounds,
        and a task that may be left out, that is sqrt(d / T) / (m mu). Above about 1 the
        shared model is noise.
        """
        if self.noise_multiplier is None or not self.n_rounds:
            return 0.0
        bounds = np.array(self.bounds())
        noise = self.noise_multiplier / self.groups.min()
        noise *= math.sqrt(self.size / len(self.groups) * np.mean(bounds**2))
        return float(noise / bounds.sum())

    @property
    def total_noise_over_path(self):
        """Noise of all rounds together over the longest path that they can make.

        sqrt(sum_t d sd_t^2) / sum_t C_t: with equal rounds, and a task that may be left out,
        sqrt(d) / (m mu).
        """
        return math.sqrt(self.n_rounds) * self.noise_over_path if self.n_rounds else 0.0

    # ---------------------------------------------------------------------- mechanisms
    def update_mechanism(self, clip_norm):
        """Of the mean update of one round."""
        reach = mean_sensitivity(1.0, 1.0, self.adjacency)
        mu = reach / self.noise_multiplier
        sensitivity = mean_sensitivity(clip_norm, self.n_tasks, self.adjacency)
        return BlockGaussian(self.size, sensitivity, mu)

    def entries(self, bounds):
        """Descriptions of the releases of rounds with these bounds on the updates."""
        if self.noise_multiplier is None:
            return []
        entries = []
        if self.scale is not None:
            entries.append({"name": "lengths, counts", **self.scale.describe("histogram")})
        for t, clip_norm in enumerate(bounds):
            update = self.update_mechanism(clip_norm).describe("mean of clipped updates")
            entries.append({"name": f"round {t + 1}", **update})
        return entries
