"""Exact minimisation of loss(W) + alpha * penalty(W), stopped on the duality gap.

Penalties that are sums over features are solved on working sets of them, the squared loss of dense
rows by coordinate descent (`skpmtl.solvers.descent`); penalties that no rotation of the features
changes in the space of the rows, where that is small (`skpmtl.solvers.losses.RowSpace`). All else,
and sets that are too badly conditioned for it, are solved by first-order steps with Anderson
extrapolation: Douglas-Rachford splitting where matrices of all tasks take no more room than their
rows, in turns with proximal gradient steps where it takes long, else the latter alone. Sparse
tables that have no such matrices, but are small, go on as dense ones where that takes long. On a
path of strengths, the logistic loss goes to the Newton steps of `_by_models`, which do not pass
over the rows. Where a history would take more room than the rows a short one is kept, or one step.
"""

import warnings
from collections import deque
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._runtime.stack import users_line
from .._runtime.threads import single_blas_thread
from .certificate import dual_gap
from .extrapolation import MEMORY, Anderson, Secant
from .grams import SMALL
from .resolvents import Step

_FIRST = 30  # first-order steps before models, and that a phase may have ahead then
_AHEAD = 250  # steps that a phase may have ahead after its `patience`
_CHECK = 4  # iterations between two evaluations of the duality gap
SMALLEST_SET = 32  # features of the first working set
# Rows, or features, for every direction of a subspace. CPU seconds with 2, 4, 8, 16 and without
# subspaces, at .3 / .1 / .02 of the largest strength (benchmarks.peers.wide_trace, seed 5; busy):
#   3 tasks x 330 x 6,000:  .13 .14 .14 .61 .60 / .22 .22 .20 .61 .64 / .78 .80 .78 .66 .66
#   20 tasks x 50 x 2,000:  .10 .10 .10 .17 .19 / .21 .22 .26 .25 .24 / .35 .33 .29 .29 .27
_SUBSPACE = 8
_INSIDE = 1e-8  # part of a direction that is rounding; 1e-4 to 1e-12 took the same time on these
# Part of the share that splitting takes in a space of few rows or directions. CPU time with 1, 1/2,
# 1/4, 1/8 (15 wide fits of benchmarks.peers.wide_trace, seed 12): 1, .94, .91, .94. With 1/4 it was
# .90 on 24 fits of seeds 22 to 25, between .73 and 1.15.
_FEW = 0.25
_EVEN = 0.05  # share at which the step of splitting is the mean curvature, see `resolvents`
_CYCLES = 1000  # of coordinate descent for one set, before other methods take over
_ENOUGH, _LOOSE = 0.5, 0.1  # parts of the wanted and of the present gap to which a set is solved
_RENEWAL, _RENEWALS = 8, 100  # iterations to the first new Hessians and, at most, between two
_FLOOR = 0.1  # how far slopes are raised towards their bound at first
_BALANCE = 16  # iterations of splitting before its step is judged, and again after twice as many
# Sizes of the weights over that of the subgradient, beyond which the step is renewed. Of 40 random
# problems those whose iterations change take .79 to .87 of the CPU time with 3 / 16 and 12.
_UNEVEN = 1 / 4, 2.0
_TURN = 500  # iterations of splitting before gradient steps
_MODEL_FLOOR = 1e-3  # how far slopes of models are raised towards their bound
_FORCING = 0.05  # part of the gap that a model may leave
_HIDDEN = 1e-14  # part of an objective by which two cannot be told apart
_SHORTEST = 1e-9  # part of a Newton step, where all are taken
_RELAXATION = 1.8  # of Douglas-Rachford steps, below 2
_SHORT = 2  # steps of a short history
_POINTS = 12  # arrays of the size of the weights that splitting with it keeps
_ROOM = 1 << 22  # models of more numbers keep a short history


# -------------------------------------------------------------------------------- solver
@dataclass
class Solution:
    """W, its objective and duality gap, and how it was reached."""

    W: np.ndarray
    objective: float
    gap: float
    n_iter: int
    converged: bool
    exhausted: bool = False  # rounding hides what is left


def minimize(loss, penalty, alpha, *, W=None, tol=1e-6, max_iter=10_000, log=None):
    """Minimise ``loss(W) + alpha * penalty(W)``, from `W` if it is given. -> Solution

    `tol` bounds the duality gap relative to the objective, and `max_iter` the sum of all steps;
    a ConvergenceWarning says where they do not suffice. With ``alpha = 0`` the loss must hold a
    ridge term.
    """
    with single_blas_thread():
        by_sets = penalty.by_columns and loss.has_sets(SMALLEST_SET)
        solution = solve(loss, penalty, float(alpha), W, tol, max_iter, log, by_sets=by_sets)
    if not solution.converged:
        why = "Raise max_iter or tol, scale the features, or add a ridge."
        if solution.exhausted:
            why = "Rounding hides what is left: centre and scale the features, or raise tol."
        warnings.warn(
            f"Duality gap {solution.gap:.3g} is above tol * objective = "
            f"{tol * abs(solution.objective):.3g} after {solution.n_iter} iterations. {why}",
            ConvergenceWarning,
            stacklevel=users_line(),
        )
    return solution


def solve(loss, penalty, alpha, W, tol, max_iter, log=None, *, by_sets=False):
    """`minimize` without its warning, with working sets of the features or without."""
    if by_sets and alpha > 0:
        engine = _by_working_sets
    elif penalty.turns and alpha > 0:
        few = loss.keeps or _most_directions(loss) < 2 * SMALLEST_SET
        engine = _in_row_space if few else _by_subspaces
    else:
        engine = _alternate
    return engine(loss, penalty, alpha, W, tol, max_iter, log)


def _judged(loss, penalty, alpha, W, tol, done, max_iter, log):
    """-> minus the gradient at W, its gap; W as a `Solution` where it is the last, else None"""
    value, V = loss.evaluate(W)
    at = dual_gap(loss, penalty, alpha, W, V, value, penalty.value(W), tol)
    if log is not None and done:
        log(done, at.objective, at.gap)
    if at.ends(tol) or done >= max_iter:
        return V, at, Solution(W, at.objective, at.gap, done, at.closes(tol), at.ends(tol))
    return V, at, None


def _most_directions(loss):
    """Of a subspace that still costs less than the space of all rows, or of all features."""
    return min(loss.table.X.shape) // _SUBSPACE


def _by_subspaces(loss, penalty, alpha, W, tol, max_iter, log):
    """Models in few directions at a time, until no other one would change them.

    As working sets of features: the problem with features X Q is solved to a part of the gap of the
    whole one, and Q then grows by the directions that a proximal step would use: those of minus the
    gradient plus a part of W with singular values above alpha. What of them is outside of Q
    adds its square to the dual levels, so that the gap closes fast. Where more directions are
    needed than `_most_directions`, at the rate of the later half, the space of the rows takes
    over.
    """
    directions = np.zeros((0, loss.shape[1])) if W is None else penalty.directions(W)
    W, done, gaps = np.zeros(loss.shape) if W is None else W, 0, []
    X, Q, C = loss.table.X, directions[:0], np.zeros((loss.shape[0], 0))
    Z = np.zeros((X.shape[0], 0))
    while True:
        V, at, solution = _judged(loss, penalty, alpha, W, tol, done, max_iter, log)
        if solution is not None:
            return solution
        size = np.linalg.norm(W)
        step = V + np.linalg.norm(V) / size * W if size else V
        new = _outside(Q, np.concatenate([directions, penalty.directions(step, alpha)]))
        directions = directions[:0]
        goal = _ENOUGH * tol * abs(at.objective)
        gaps.append((len(Q), at.gap))
        if not len(new) or _directions_ahead(gaps, len(new), goal) > _most_directions(loss):
            rest = _in_row_space(loss, penalty, alpha, W, tol, max_iter - done, log)
            rest.n_iter += done
            return rest
        Q, Z = np.concatenate([Q, new]), np.concatenate([Z, X @ new.T], axis=1)
        part, start = loss.with_features(Z), np.concatenate([C, W @ new.T], axis=1)
        part.is_few = True
        inner = max(goal, _LOOSE * at.gap) / abs(at.objective)
        found = _alternate(part, penalty, alpha, start, inner, max_iter - done, None)
        C, done = found.W, done + max(found.n_iter, 1)
        W = C @ Q


def _outside(Q, D):
    """Orthonormal rows that with those of Q span the rows of D, but for rounding."""
    sizes = np.sqrt(np.einsum("kj,kj->k", D, D))
    D = D / np.maximum(sizes, 1e-300)[:, None]
    for _ in range(2):  # once leaves much of what is nearly inside
        D = D - (D @ Q.T) @ Q
    U, s, new = np.linalg.svd(D, full_matrices=False)
    return new[s > _INSIDE]


def _directions_ahead(gaps, n_new, goal):
    """Directions at the end, from the numbers of them and gaps so far."""
    (before, high), (now, low) = gaps[max(len(gaps) // 2 - 1, 0)], gaps[-1]
    if now == before:
        return now + n_new
    rate = np.log(high / low) / (now - before)
    return now + max(n_new, np.log(low / goal) / rate if rate > 0 else np.inf)


def _in_row_space(loss, penalty, alpha, W, tol, max_iter, log):
    """In coordinates of the space of all rows, where it has far fewer dimensions than features.

    The penalty does not depend on coordinates, and has models without parts outside of that space.
    The gap is that of the rows themselves, on which the rest is done if rounding left any.
    """
    space = loss.row_space
    if space is None:
        return _alternate(loss, penalty, alpha, W, tol, max_iter, log)
    start = None if W is None else space.drop(W)
    found = _alternate(space.loss, penalty, alpha, start, tol, max_iter, log)
    W = space.lift(found.W)
    _, _, solution = _judged(loss, penalty, alpha, W, tol, found.n_iter, max_iter, None)
    if solution is not None:
        return solution
    rest = _alternate(loss, penalty, alpha, W, tol, max_iter - found.n_iter, log)
    rest.n_iter += found.n_iter
    return rest


def _by_working_sets(loss, penalty, alpha, W, tol, max_iter, log):
    """Few features at a time, until the others stay at zero.

    A set is solved to a part of the gap of the whole problem, and then grows by the features whose
    dual levels are above alpha, those with the largest first, to twice its size at most; from zero,
    all are in the first one where they fit. The squared loss of dense rows is solved by coordinate
    descent (`descent`); what that leaves, and other losses, as whole problems are.
    """
    W, done = np.zeros(loss.shape) if W is None else W, 0
    inside, members, descends = np.zeros(loss.shape[1], dtype=bool), None, True
    new, goal = np.arange(loss.shape[1]), 0.0
    while True:
        if len(inside) > SMALLEST_SET or inside.any() or W.any():
            V, at, solution = _judged(loss, penalty, alpha, W, tol, done, max_iter, log)
            if solution is not None:
                return solution
            levels = np.where(W.any(axis=0), np.inf, at.levels)
            levels[inside] = 0.0
            order = np.argsort(-levels, kind="stable")[: max(SMALLEST_SET, int(inside.sum()))]
            new = np.sort(order[levels[order] > alpha])
            goal = _LOOSE * at.gap if len(new) else 0.0
        inside[new] = True
        before = done
        descends, reached = descends and loss.has_sets(int(inside.sum())), False
        if descends:
            members = loss.working_set(alpha) if members is None else members
            members.add(new)
            start = np.ascontiguousarray(W[:, members.columns].T)
            most = min(_CYCLES, max_iter - done)
            part, cycles, reached = members.descend(start, goal, _ENOUGH * tol, most)
            W, done = np.zeros(loss.shape), done + cycles
            W[:, members.columns] = part.T
            descends = reached  # or it would crawl on larger sets, too
        if not reached and done < max_iter:
            columns = np.flatnonzero(inside)
            part, steps = loss.restricted(columns), max_iter - done
            start, inner = W.take(columns, axis=1), _ENOUGH * tol
            inner = max(inner, goal / abs(at.objective)) if goal else inner
            found = _alternate(part, penalty, alpha, start, inner, steps, None)
            W, done = np.zeros(loss.shape), done + found.n_iter
            W[:, columns] = found.W
        done = max(done, before + 1)


def _alternate(loss, penalty, alpha, W, tol, max_iter, log):
    W = np.zeros(loss.shape) if W is None else W
    if not loss.is_bounded:
        return _by_models(loss, penalty, alpha, W, tol, max_iter, log, whole=True)
    few_sparse = loss.table.is_sparse and np.prod(loss.table.X.shape) <= SMALL
    if few_sparse and loss.crawls:
        return _alternate(loss.dense, penalty, alpha, W, tol, max_iter, log)
    models = loss.keeps and alpha > 0 and loss.has_models  # on a path, where starts are close
    lean, done = _is_lean(loss), 0
    if models and loss.crawls:
        W, done = _by_models(loss, penalty, alpha, W, tol, max_iter, log)
        models = False
    phase, W = Solution(W, np.inf, np.inf, 0, False), None  # which gives W away: no room for two
    first_order, spare = _first_order(loss, penalty, alpha, lean, phase.W), None
    patience, after = max_iter, _TURN // 5
    splits = isinstance(first_order, _Splitting)
    if splits:
        patience = _FIRST if models else _TURN
    elif few_sparse:
        patience = _TURN
    while True:
        far = _FIRST if models else _AHEAD
        phase = first_order.run(phase, tol, max_iter - done, patience, far)
        done += phase.n_iter
        if log is not None:
            log(done, phase.objective, phase.gap)
        if phase.converged or phase.exhausted or done >= max_iter or patience >= max_iter:
            phase.n_iter = done
            return phase
        if models:
            loss.crawls, models = loss.keeps, False
            phase.W, steps = _by_models(loss, penalty, alpha, phase.W, tol, max_iter - done, log)
            done, patience = done + steps, _TURN
            continue
        if not splits:  # few sparse rows, which have other steps as dense ones
            loss.crawls, first_order = loss.keeps, None
            rest = _alternate(loss.dense, penalty, alpha, phase.W, tol, max_iter - done, log)
            rest.n_iter += done
            return rest
        # Either engine may crawl where slopes vanish, so they take turns, each longer.
        first_order, spare = spare or _Proximal(loss, penalty, alpha, lean), first_order
        patience, after = after, 2 * patience


def _by_models(loss, penalty, alpha, W, tol, max_iter, log, whole=False):
    """Newton steps: each minimises with the squared loss of `Loss.model` in place of the loss.

    -> W, first-order and Newton steps; no further than models are good for: a step that leaves
    half of the gap, or promises what is not there, is the last. `whole`: to the minimum, however
    short steps are. -> Solution
    """
    done, before, share = 0, np.inf, 1.0
    while True:
        value, V = loss.evaluate(W)
        omega = penalty.value(W)
        at = dual_gap(loss, penalty, alpha, W, V, value, omega, tol)
        if log is not None and done:
            log(done, at.objective, at.gap)
        hidden = share < _SHORTEST
        if whole and (at.ends(tol) or hidden or done >= max_iter):
            return Solution(W, at.objective, at.gap, done, at.closes(tol), at.ends(tol) or hidden)
        if not whole and (at.ends(tol) or done >= max_iter or at.gap > 0.5 * before):
            return W, done
        # A model that leaves too much of the gap is solved further.
        share = 0.1 * share if at.gap > 0.5 * before else 1.0
        before, model = at.gap, loss.model(W, _MODEL_FLOOR)
        here = model.evaluate(W)[0] + alpha * omega
        goal = share * max(_FORCING * at.gap, 0.3 * tol * at.objective) / here
        part = _alternate(model, penalty, alpha, W.copy(), goal, max_iter - done, None)
        done += max(part.n_iter, 1)
        promise, size = here - part.objective, 1.0
        part.W -= W
        while True:
            trial = W + size * part.W
            there = loss.evaluate(trial)[0] + alpha * penalty.value(trial)
            if there <= at.objective - 0.1 * size * promise + _HIDDEN * abs(at.objective):
                break  # or by less than can be seen: gaps, which are of first order, tell of it
            size *= 0.5
            if size < 0.1 and not whole:
                return W, done
            if size < _SHORTEST:  # rounding: no lower objective can be distinguished
                return Solution(W, at.objective, at.gap, done, at.closes(tol), True)
        W = trial


def _is_crowded(loss):
    """Whether what a history keeps would take more room than the rows do."""
    m, d = loss.shape
    return m * d > _ROOM and 2 * MEMORY * m > loss.table.n_rows


def _is_lean(loss):
    """Whether splitting with a short history would take half as much room again as the rows."""
    (m, d), table = loss.shape, loss.table
    if table.is_sparse or not _is_crowded(loss):
        return _is_crowded(loss)
    matrices = min(int(table.sizes @ table.sizes), m * d * d)
    return _POINTS * m * d + matrices > 1.5 * table.n_rows * d


def _first_order(loss, penalty, alpha, lean, W):
    if alpha > 0:
        share = _share(loss, penalty, alpha)
        resolvent = loss.resolvent(share, W, _FLOOR, lean)
        if resolvent is not None:
            return _Splitting(loss, penalty, alpha, lean, share, *resolvent)
    return _Proximal(loss, penalty, alpha, lean)


def _share(loss, penalty, alpha):
    """alpha over the smallest one for which all weights are zero."""
    if penalty.step is not None:  # where slopes change, the mean curvature
        return Step(penalty.step) if loss.quadratic else _EVEN
    top = penalty.dual_levels(loss.evaluate(np.zeros(loss.shape))[1]).max(initial=0.0)
    return (_FEW if loss.is_few else 1.0) * (float(min(alpha / top, 1.0)) if top > 0 else 1.0)


def _history(loss, lean):
    """What extrapolates the steps, in the room that there is."""
    if lean:
        return Secant()
    return Anderson(loss.shape, _SHORT if _is_crowded(loss) else MEMORY)


class _Monitor:
    """When to look at the duality gap, and when a phase has lasted long enough."""

    def __init__(self, tol, max_iter, patience, far, first=0):
        self.tol, self.max_iter, self.patience, self.far = tol, max_iter, patience, far
        self.next_check, self.gaps, self.ahead = first, [], np.inf

    def due(self, n_iter):
        return n_iter >= self.next_check or n_iter >= self.max_iter

    def ends(self, n_iter, at):
        """Whether the phase ends here: converged, out of iterations, or not about to converge."""
        gap, goal = at.gap, self.tol * abs(at.objective)
        self.gaps.append((n_iter, gap))
        self.ahead = np.inf
        if at.ends(self.tol) or n_iter >= self.max_iter:
            return True
        self.next_check = n_iter + _CHECK
        if len(self.gaps) > 1:  # a little before the recent rate reaches the goal
            rate = self._rate(2)
            ahead = 0.8 * np.log(gap / goal) / rate if rate > 0 else np.inf
            self.next_check = n_iter + int(np.clip(ahead, 1, _CHECK))
        if len(self.gaps) > 3:
            rate = self._rate(max(4, len(self.gaps) // 2))
            self.ahead = np.log(gap / goal) / rate if rate > 0 else np.inf
        return n_iter >= self.patience and self.ahead > self.far

    def solution(self, W, n_iter, at):
        done = at.closes(self.tol)
        return Solution(W, at.objective, at.gap, n_iter, done, at.ends(self.tol))

    def _rate(self, count):
        (start, high), (end, low) = self.gaps[-count], self.gaps[-1]
        return np.log(high / low) / max(end - start, 1)


class _Proximal:
    """Proximal gradient with type-II Anderson extrapolation, safeguarded by the objective.

    The extrapolated variable is the point before the proximal step, where the map is
    smoothest. An extrapolated point that does not lower the objective is dropped for the
    plain step, so the objective never rises. A phase ends after `patience` iterations unless
    the gap falls fast enough to close within as many again.
    """

    def __init__(self, loss, penalty, alpha, lean):
        self.loss, self.penalty, self.alpha, self.lean = loss, penalty, alpha, lean
        self.lipschitz = max(1.05 * float(loss.curvatures().max()), 1e-100)  # 0: X is zero

    def run(self, start, tol, max_iter, patience, far):
        loss, penalty, alpha = self.loss, self.penalty, self.alpha
        W, start.W = start.W, None
        value, V = loss.evaluate(W)
        omega = penalty.value(W)
        objective = value + alpha * omega
        history, guess = _history(loss, self.lean), None
        monitor = _Monitor(tol, max_iter, patience, far)
        n_iter, exhausted = 0, False
        while True:
            if monitor.due(n_iter) or exhausted:
                at = dual_gap(loss, penalty, alpha, W, V, value, omega, tol)
                if monitor.ends(n_iter, at) or exhausted:
                    return monitor.solution(W, n_iter, at)
            plain = V / self.lipschitz
            plain += W
            V = None  # there may be little room
            if guess is not None:
                residual, guess = plain - guess, None
                guess = history.extrapolate(plain, residual)
            extrapolated = guess is not None
            if not extrapolated:
                guess = plain
            while True:
                n_iter += 1
                trial, trial_omega = penalty.prox(guess, alpha / self.lipschitz)
                trial_value, V = loss.evaluate(trial)
                trial_objective = trial_value + alpha * trial_omega
                if trial_objective <= objective + _HIDDEN * abs(objective):
                    break
                history.clear()
                if extrapolated:
                    extrapolated, guess = False, plain
                    continue
                _, V = loss.evaluate(W)
                if trial_objective - objective <= 1e-12 * abs(objective) or n_iter >= max_iter:
                    exhausted = True  # rounding: objectives this close cannot be compared
                    break
                self.lipschitz *= 1.5  # the curvature bound was too small
                guess = W + V / self.lipschitz
            if not exhausted:
                W, value, omega, objective = trial, trial_value, trial_omega, trial_objective


class _Splitting:
    """Douglas-Rachford splitting with Anderson extrapolation, through the curvature of all tasks.

    S <- S + 1.8 (H + rho I)^-1 (V + rho (W - S)) with W = prox(S), V minus the gradient at W and
    the Hessians H_k of all tasks (`resolvents`), so that the number of iterations depends on the
    conditioning far less than that of gradient steps. An extrapolated point is dropped where its
    residual is much larger, or where it is twice as far from zero as the plain one.

    rho is about the mean curvature at first. The best one is about the size of the subgradient over
    that of the weights, so a rho of a quadratic loss that is far from that after 16, 32, 64 ...
    iterations is replaced.

    S is where the iteration lives: the weights are W = prox(S), and rho (S - W) is a subgradient of
    the penalty at them. At the solution that equals V, so that the step is zero; nothing else
    about S is of interest, and its value before the first step is one gradient step from W.

    Hessians that are not constant are renewed after 8, 16, 32 ... iterations, with slopes raised
    towards their bound (`resolvents.curved`): less each time, but more when the objective has
    risen meanwhile. Far from the solution residuals say little, as gradients do not grow there, nor
    where two parts grow in opposite directions (`is_flat`), so an extrapolated point must not raise
    the objective above those of the last steps either; and where slopes change a plain step that
    raises it much is taken back.
    """

    def __init__(self, loss, penalty, alpha, lean, share, rho, step):
        self.loss, self.penalty, self.alpha, self.lean = loss, penalty, alpha, lean
        self.share, self.rho, self.step = share, rho, step
        self.guarded = not loss.quadratic or loss.is_flat

    def run(self, start, tol, max_iter, patience, far):
        loss, penalty, alpha = self.loss, self.penalty, self.alpha
        W, start.W = start.W, None
        value, V = loss.evaluate(W)
        monitor = _Monitor(tol, max_iter, patience, far, 6)
        if W.any():  # nothing to certify at zero
            at = dual_gap(loss, penalty, alpha, W, V, value, penalty.value(W), tol)
            if monitor.ends(0, at):
                return monitor.solution(W, 0, at)
        if not loss.quadratic:  # where the first step is not a gradient step, which may go too far
            V *= min(1.0, alpha / penalty.dual_levels(V).max(initial=alpha))
        S = W + V / self.rho  # a fixed point when W is the solution
        history = _history(loss, self.lean)
        n_iter, plain, residual, smallest, too_far = 0, None, None, np.inf, False
        objective, recent = np.inf, deque([np.inf], MEMORY)
        renewal, floor, lowest = np.inf if loss.quadratic else _RENEWAL, _FLOOR, np.inf
        balance = np.inf if self.guarded or penalty.step is not None else _BALANCE
        while True:
            W = V = None
            W, omega = penalty.prox(S, alpha / self.rho)
            due = monitor.due(n_iter)
            if due or self.guarded:
                value, V = loss.evaluate(W)
                objective = value + alpha * omega
            if due:
                at = dual_gap(loss, penalty, alpha, W, V, value, omega, tol)
                if monitor.ends(n_iter, at):
                    return monitor.solution(W, n_iter, at)
                if n_iter >= balance and monitor.ahead > 0.5 * n_iter:
                    balance = 2 * n_iter
                    if self._balanced(W, S):
                        history.clear()
                        plain, residual, smallest = None, None, np.inf
            n_iter += 1
            if self.guarded and objective > max(recent):
                if plain is not None:
                    S, plain = plain, None
                    history.clear()
                    continue
                rises = floor < 1.0 and not loss.quadratic
                if rises and residual is not None and objective > 1.1 * max(recent):
                    residual *= -_RELAXATION
                    S += residual  # back, to renew the Hessians there
                    residual, renewal, too_far = None, n_iter, True
                    history.clear()
                    continue
            if n_iter >= renewal:
                floor = min(4.0 * floor, 1.0) if too_far or objective > lowest else 0.5 * floor
                too_far = False
                lowest, renewal = min(lowest, objective), n_iter + min(n_iter, _RENEWALS)
                history.clear()
                plain, residual, smallest = None, None, np.inf
                self._renew(W, S, self.share, floor)
            residual, W, V = self.step(W, S, V), None, None
            size = float(np.vdot(residual, residual))
            no_lower = not self.guarded or objective >= min(recent)  # known at every step
            if size > 4.0 * smallest and plain is not None and no_lower:
                S, plain, residual = plain, None, None
                history.clear()
                continue
            smallest = min(smallest, size)
            recent.append(objective)
            plain = _RELAXATION * residual
            plain += S
            S = None
            S = history.extrapolate(plain, residual)
            if S is None or np.vdot(S, S) > 4.0 * np.vdot(plain, plain):
                S, plain = plain, None

    def _balanced(self, W, S):
        """Whether steps were renewed, as those of now weigh weights and subgradients unevenly."""
        size, other = float(np.linalg.norm(W)), float(np.linalg.norm(S - W))
        if not size * other > 0 or _UNEVEN[0] < size / other < _UNEVEN[1]:
            return False
        self.step = None  # no matrices of both at a time
        return self._renew(W, S, Step(self.rho * other / size), 1.0)

    def _renew(self, W, S, share, floor):
        """New steps, from the S of the same weights and the same subgradient of the penalty."""
        renewed = self.loss.resolvent(share, W, floor, self.lean)
        if renewed is None:  # no slopes are left
            return False
        S -= W
        S *= self.rho / renewed[0]
        S += W
        self.rho, self.step = renewed
        return True
