"""Standard errors of what tasks have in common: a step of generalised least squares from the
released centre, and its sandwich (Liang and Zeger, Biometrika 73, 1986).

With the scales at one value each, a task has the score s of the centre and its information I. One
step of Newton's method from the released centre is the estimate of generalised least squares
whatever the centre was shrunk by; its covariance H^-1 (sum s s') H^-1, H the sum of I, holds where
noise or slopes are not as the model has them. The sums of the scores, of their squares and of the
information are released, and the noise of each is part of the covariance. Columns are in released
scales: in those of a task, which few rows leave open, slopes would seem to vary more than they do.

Where columns are correlated, some directions of H are small, and the same noise in all directions
would hide them. So the information is released several times, each time in coordinates in which
what was released before is the identity; directions below the noise are stretched to it (Biswas,
Dong, Kamath and Ullman, "CoinPress", NeurIPS 2020). A first release of squares shows where
tasks differ more than votes had it, and the last round has their spread instead. A score beyond
L - 1 is sent with length L, the mean of an exponential tail from there on: where tasks differ in a
skewed way, plain clipping would take the tail, and move the estimate towards the bulk. Squares are
those of (I - I_t / H)^-1/2 s, the correction CR2 (Bell and McCaffrey, Surv. Methodol. 28(2), 2002).
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from ..privacy.mechanisms import SymmetricGaussian, VectorGaussian, clip_rows
from ..tables.public_init import PublicInit
from ..task import priors
from .plan import ERRORS
from .queries import Question

# Lengths of a score and of an information in units of their root mean square, with rows without
# end. Scores are sent the longer, the smaller the noise is: that of their sum has 1.5 times the
# standard deviation of the sum at most, that of squares a tenth of their sum.
SHORTEST, LONGEST, LARGEST = 2.25, 4.0, 1.5
OF_SCORES, OF_SQUARES = 1.5, 0.1
BEYOND = 1.0  # mean of an exponential tail beyond any point, in standard deviations
CLEAR = 2.0  # edges of the noise that every direction of the information has to clear
LEAST_DOF = 4.0  # of a variance: a smaller one than has these is taken for the noise that hides it
# Of squares of rows: degrees of freedom that weigh half, and the longest pair. The variance of 800
# tasks of 5 to 15 rows at epsilon 3 is off by .15 to .2 (100 draws; noise of tasks equal, or apart
# by e^(1/2)). Half the length leaves out .12 to .24 of it where apart, twice is off by .3 to .5.
STEADY, HEAVY = 4.0, 3.0
OF_CELL = 0.5  # of the variance of rows, voted to be from half to twice it: half of the way up
_ALONE = 1e-9  # of information that other tasks have, too
# Of the largest information: what rounding leaves of none, and of its effects, by the root.
_NOTHING, _UNTOLD = 1e-10, 1e-6
# Of mu^2, by sums, one release after the other; all of them together are `ERRORS`.
ROUNDS: tuple[dict[str, float], ...] = (
    {"information": 0.10 * ERRORS},
    {"information": 0.11 * ERRORS, "square": 0.06 * ERRORS},
    {"score": 0.30 * ERRORS, "square": 0.13 * ERRORS, "information": 0.22 * ERRORS},
)
OF_ROWS = 0.08 * ERRORS  # of the squares of rows, which are asked first
# Without a budget: two have the spread that the one before shows, and the last is at the estimate.
EXACT: tuple[dict[str, float], ...] = (
    dict.fromkeys(ROUNDS[-1], 0.0),
    dict.fromkeys(ROUNDS[-1], 0.0),
    dict.fromkeys(("score", "information"), 0.0),
    dict.fromkeys(ROUNDS[-1], 0.0),
)


@dataclass
class RowSquares(Question):
    """What rows of tasks have beside any level and slopes.

    A task sends the sum of squares of its residuals about a model of its own, and their degrees of
    freedom; none of both where its rows leave none. With a budget both are divided by these degrees
    and `STEADY` more, and by `HEAVY`, squares also by the variance of the vote; the sums of these
    two are released. Without one those of their products are, too, and there is no bound.
    """

    kind, sends = "row squares", (2,)
    size, spread = 2, math.sqrt(2.0)  # none of both is negative
    clipped: bool = True

    def answer(self, tasks, model):
        sent = np.stack(tasks.squares_of_rows(model), axis=1)
        if self.clipped:
            sent /= HEAVY * (sent[:, 1:] + STEADY)
            sent[:, 0] /= model.middle_sigma**2
        return sent

    def bounded(self, sent):
        if self.clipped:
            sent = np.maximum(np.array(sent, dtype=float), 0.0)
            clip_rows(sent, 1.0)
        return sent

    def total(self, sent):
        total = sent.sum(axis=0)
        return total if self.clipped else np.concatenate([total[None], sent.T @ sent])


def variance_of_rows(model, sums, noise):
    """Of rows about the model of their task, and the standard deviation of its error.

    Without a budget the ratio of the sums has the error of a ratio over tasks, whose noise may
    differ, and at least that of normal rows; the vote, of the same rows, counts as one degree of
    freedom. With one the ratio has the error of the noise and of normal rows, and the vote is a
    normal prior.

    -> ndarray (2,), in units of the input
    """
    voted = model.middle_sigma**2
    if noise:
        squares, dof = sums
        dof = max(dof, noise)
        ratio = max(squares, 0.0) / dof
        known = 1.0 / ((1.0 + ratio**2) * (noise / dof) ** 2 + 2.0 / (HEAVY * dof))
        error = 1.0 / math.sqrt(known + OF_CELL**-2)
        return model.unit**2 * voted * np.array([error**2 * (ratio * known + OF_CELL**-2), error])
    (squares, dof), *products = sums
    variance = (squares + voted) / (dof + 1.0)
    by = np.array([1.0, -variance]) / (dof + 1.0)
    error = by @ np.array(products) @ by
    error = max(error, min(2.0 / (dof + 1.0), OF_CELL**2) * variance**2)
    return model.unit**2 * np.array([variance, math.sqrt(error)])


@dataclass
class Errors(Question):
    """Score and information of the centre, each of length 1 at most."""

    kind, sends = "errors", ("d + 1", "d + 3")  # two vectors and a matrix
    # The released model of tasks without rows, the intercept last, in units of the input and less
    # the public initial model
    mean: Annotated[np.ndarray, "d + 1"]
    # Standard deviations of level and slopes, in units and scaled columns
    deviations: Annotated[np.ndarray, "d + 1"]
    # Coordinates, as rows, in which the information of a task is about the identity, from those in
    # which level and slopes have these deviations
    whiten: Annotated[np.ndarray, "d + 1", "d + 1"]
    kappa: float
    sigma: float
    tau: float
    longest: float = 1.0  # lengths of the longest score and information
    largest: float = 1.0
    clipped: bool = True  # false without a budget

    @property
    def size(self):
        return len(self.mean)

    def mechanism(self, adjacency, mu, name=None):
        k, one = self.size, adjacency == "zero-out"
        if name == "score":
            return VectorGaussian(k, 1.0 if one else 2.0, mu)
        square = 1.0 if one or k == 1 else math.sqrt(2.0)  # squares have no negative product
        return SymmetricGaussian(k, square, mu)

    def answer(self, tasks, model):
        k = self.size
        d = k - 1
        tasks = tasks.about(PublicInit(self.mean[None, :d], self.mean[d:]))
        one = np.zeros(1)
        grids = (np.array([value]) for value in (self.tau, self.kappa, self.sigma))
        bare = replace(model, middle=0.0, centre=np.zeros(d + 1), init=None)
        scales = priors.Scales(one, one, one, *grids, model.log_ratio)
        score, information = tasks.information(bare, scales)
        to = self.whiten * self.deviations
        score, information = to @ score[:, :, None], to @ information @ to.T
        if self.clipped:
            # Information that overflows counts as zero, so that one task cannot end the fit of all.
            known = np.isfinite(information).all(axis=(1, 2), keepdims=True)
            information = np.where(known, information, 0.0)
            size = np.sqrt(np.einsum("tij,tij->t", information, information))
            weight = np.minimum(1.0, self.largest / np.maximum(size, 1e-300))[:, None, None]
            score, information = weight * score, weight * information
            size = np.sqrt(np.einsum("tij,tij->t", score, score))[:, None, None]
            tail = size > self.longest - BEYOND
            score = np.where(tail, self.longest / np.maximum(size, 1e-300), 1.0) * score
        values, vectors = np.linalg.eigh(information)
        values = np.maximum(values, 0.0)
        root = vectors * np.sqrt(values / self.largest)[:, None, :]
        left = 1.0 - values / model.n_present  # without its part in the sum of all
        unbiased = np.where(left > _ALONE, 1.0 / np.sqrt(np.maximum(left, _ALONE)), 0.0)
        unbiased = (vectors * unbiased[:, None, :]) @ (vectors.transpose(0, 2, 1) @ score)
        both = np.concatenate([score, unbiased], axis=1)[..., 0] / self.longest
        return np.c_[both, root.reshape(len(root), -1)]

    def totals(self, sent):
        k = self.size
        parts = np.split(np.array(sent, dtype=float), [k, 2 * k], axis=1)
        score, unbiased, root = (part.copy() for part in parts)
        if self.clipped:
            clip_rows(score, 1.0)
            clip_rows(unbiased, 1.0)
            clip_rows(root, math.sqrt(k))  # finite, before it is squared
        root = root.reshape(-1, k, k)
        squares = (root @ root.transpose(0, 2, 1)).reshape(-1, k * k)
        if self.clipped:
            clip_rows(squares, 1.0)
        information = squares.sum(axis=0).reshape(k, k)
        return {
            "score": score.sum(axis=0),
            "square": unbiased.T @ unbiased,
            "information": 0.5 * (information + information.T),
        }


def question_about(model, plan):
    """The first `Errors` of a released model with pooled levels."""
    part, d = model.components()[-1], model.n_features
    kappa = priors.middle(model.log_kappa, model.law.log_kappa, part.scales.kappa)
    sigma, tau = model.row_spread, model.level_spread / model.unit
    shape = np.maximum(np.sum(model.root**2, axis=1), 1.0 / d)
    deviations = np.append(tau, np.sqrt(kappa * shape))
    mean = model.mean if model.init is None else model.mean - model.init.joined(True)[0]
    question = Errors(mean, deviations, np.eye(d + 1), kappa, sigma, tau)
    if not plan.is_private:
        return replace(question, clipped=False)
    size, m = math.sqrt(d + 1.0), model.n_present
    of_score, of_square = (
        question.mechanism(plan.adjacency, plan.mu * math.sqrt(share), name).noise_std
        for name, share in (("score", ROUNDS[-1]["score"]), ("square", ROUNDS[-1]["square"]))
    )
    longest = min(OF_SCORES * math.sqrt(m) / of_score, math.sqrt(OF_SQUARES * m / of_square))
    longest = min(max(SHORTEST * size, longest), LONGEST * size)
    return replace(question, longest=longest, largest=LARGEST * size)


def _edge(question, noise):
    """Largest eigenvalue of the noise of the information, nearly."""
    return question.largest * noise["information"] * math.sqrt(2.0 * question.size)


def whitened(model, question, sums, noise):
    """The next question: in coordinates in which this information is that of the identity a task.

    Directions below the noise are stretched to it; without noise, those that rows say nothing of
    are left out. Where squares were released, models of tasks have the spread that these show above
    a standard deviation of their noise, and with a budget at least that of the votes.
    """
    values, vectors = np.linalg.eigh(question.largest * sums["information"])
    least = max(_edge(question, noise), _NOTHING * np.linalg.norm(values), 1e-300)
    stretch = np.sqrt(model.n_present / np.maximum(values, least))[:, None] * vectors.T
    if not question.clipped:
        stretch[values <= least] = 0.0
    following = replace(question, whiten=stretch @ question.whiten)
    if "square" not in sums:
        return following
    part, one = question.longest / model.n_present, np.eye(question.size)
    score = part * stretch @ sums.get("score", np.zeros(question.size))
    square = (
        part * question.longest * stretch @ (sums["square"] - noise["square"] * one) @ stretch.T
    )
    by = _from_whitened(following)
    spread = _moments(model, following, square - np.outer(score, score), one)[0]
    spread = by @ _positive(spread) @ by.T
    kappa, tau = float(np.trace(spread[1:, 1:])), math.sqrt(spread[0, 0])
    if not question.clipped:
        return replace(following, kappa=kappa, tau=tau)
    wider = replace(following, kappa=max(question.kappa, kappa), tau=max(question.tau, tau))
    more = _expected(model, wider) - _expected(model, following)
    # Information of the identity becomes (I + more)^-1.
    values, vectors = np.linalg.eigh(one + more)
    return replace(wider, whiten=np.sqrt(values)[:, None] * vectors.T @ following.whiten)


def moved(model, question, sums):
    """The question at the estimate, without a budget: squares are then those of residuals."""
    step = _inverse(sums["information"]) @ sums["score"]
    change = _to_effects(model, question) @ question.whiten.T @ step
    return replace(question, mean=question.mean + change)


def _from_whitened(question):
    """From whitened coordinates to level and slopes, in units and scaled columns."""
    return question.deviations[:, None] * question.whiten.T


def _expected(model, question):
    """Covariance of the models of tasks that the question has, in whitened coordinates."""
    spread = np.zeros((question.size, question.size))
    spread[0, 0] = question.tau**2
    spread[1:, 1:] = question.kappa * model.root @ model.root.T
    to = np.linalg.pinv(question.whiten.T, rcond=_NOTHING) / question.deviations
    return to @ spread @ to.T


def _inverse(information):
    """Of the directions that rows say something of."""
    return np.linalg.pinv(information, rcond=_NOTHING, hermitian=True)


def _to_effects(model, question):
    """From level and slopes, in deviations, to slopes and, last, the intercept: (d + 1, d + 1)."""
    d = model.n_features
    by = question.deviations * model.unit / np.append(1.0, model.column_scale)
    to = np.zeros((d + 1, d + 1))
    to[:d, 1:] = np.diag(by[1:])
    to[d] = by * np.append(1.0, -model.column_centre)
    return to


def effects(model, question, sums, noise):
    """Effects, their errors and how much tasks differ; none of them where noise hides it.

    From the last question, released sums and standard deviations of their noise, by name.

    -> attributes of `HierarchicalBillboard` from `effects` to `spread_doubt`
    """
    m, k = model.n_present, question.size
    H, edge = question.largest * sums["information"], _edge(question, noise)
    values = np.linalg.eigvalsh(H)[k - question.whiten.any(axis=1).sum() :]
    if m - k < LEAST_DOF or (values <= max(CLEAR * edge, 1e-9)).any():
        return {}
    inverse, length = _inverse(H), question.longest
    score, square = length * sums["score"], length**2 * sums["square"]
    step = inverse @ score
    # A symmetric noise N in H moves the step by H^-1 N step, to first order.
    of_score, of_H = (length * noise["score"]) ** 2, (question.largest * noise["information"]) ** 2
    of_square = length**2 * noise["square"]
    # Where tasks differ less than noise can tell, it stands for how much they do; where it is more
    # than scores of the model have, nothing is known.
    least = math.sqrt(0.5 * LEAST_DOF) * of_square
    if least > m + of_score:
        return {}
    known = of_score * np.eye(k)
    known += 0.5 * of_H * (step @ step * np.eye(k) + np.outer(step, step))
    values, vectors = np.linalg.eigh(square - np.outer(score, score) / m + known)
    inner = (vectors * np.maximum(values, max(of_score, least))) @ vectors.T
    to = _to_effects(model, question) @ question.whiten.T
    effect = question.mean + to @ step
    to *= _told(model, question)[:, None]
    rows = to @ inverse
    covariance = rows @ inner @ rows.T
    unsure = of_square * np.sum(rows**2, axis=1) / np.maximum(np.diag(covariance), 1e-300)
    dof = 1.0 / (1.0 / (m - k) + 0.5 * unsure**2)
    to = np.r_[to, model.unit * _from_whitened(question)[:1]]
    score, squares = score / m, square / m + (of_score / m**2) * np.eye(k)
    spread, squares = _moments(model, question, squares - np.outer(score, score), H / m)
    # By noise of the squares and of the information, by the draw of normal scores, and by the
    # variance of rows, in proportion to which is what I^-1 has besides the models of tasks.
    left = m * to @ inverse
    right = left - 2.0 * to @ squares
    size = np.sum(left**2, axis=1)
    by_square = of_square / m * size
    size = 0.5 * (size * np.sum(right**2, axis=1) + np.sum(left * right, axis=1) ** 2)
    by_information = np.sqrt(of_H * size) / m
    drawn = math.sqrt(2.0 / m) * np.einsum("ij,jk,ik->i", to, squares, to)
    of_rows = _inverse(H / m) - _expected(model, question)
    unsure = OF_CELL if model.row_variance is None else np.divide(*model.row_variance[::-1])
    by_rows = unsure * np.maximum(np.einsum("ij,jk,ik->i", to, of_rows, to), 0.0)
    doubt = np.sqrt(by_square**2 + by_information**2 + drawn**2 + by_rows**2)
    # The nearest matrix that is one of covariances has larger variances than what was measured.
    nearest, variance = to @ _positive(spread) @ to.T, np.einsum("ij,jk,ik->i", to, spread, to)
    less = np.sqrt(np.maximum(variance, 0.0) / np.maximum(np.diag(nearest), 1e-300))
    of_effects = {"effects": effect, "effect_covariance": covariance, "effect_dof": dof}
    return {**of_effects, "spread": nearest * np.outer(less, less), "spread_doubt": doubt}


def _told(model, question):
    """Whether rows tell an effect from those of columns that determine it: (d + 1,) of bool."""
    to = _to_effects(model, question)
    seen = np.linalg.pinv(question.whiten, rcond=_NOTHING) @ question.whiten
    return np.linalg.norm(to - to @ seen, axis=1) <= _UNTOLD * np.linalg.norm(to, axis=1)


def _moments(model, question, square, information):
    """Covariance of the models of tasks, from mean square of scores and mean information.

    Where models vary by G more than the question has it, squares of scores are the information
    and I G I: in whitened coordinates, where I is about one for every task, G follows from their
    difference.

    -> G (k, k), I^-1 square I^-1 (k, k), both in whitened coordinates
    """
    inverse = _inverse(information)
    square = inverse @ square @ inverse
    return _expected(model, question) + square - inverse, square


def _positive(matrix):
    """The nearest matrix without negative eigenvalues."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
