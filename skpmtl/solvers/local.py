"""The task side: models that a task fits alone under a prior w ~ N(a, kappa s^2 M).

Centre a and shape M are public (they come from the billboard); kappa, the noise level s and the
intercept are the task's own. All tasks are treated alike, in blocks that bound the memory.
"""

from dataclasses import replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from .._kernels.average import NO_CENTRES, averages
from .._kernels.grams import centred_rows, grams, rotate, tridiagonal
from .._kernels.local import left_out, posterior_modes, sums_of_rows, triangular_products
from .._kernels.passes import scores
from .._runtime.registers import LANES
from .._runtime.threads import even_blocks, run_blocks, single_blas_thread
from ..tables.datafits import LOGISTIC, POISSON, levels_of, with_events
from ..tables.table import common_scores, padded, read_only, rows_of
from .softmax import softmax_criteria, softmax_modes

# Grid of the prior variance of a score in units of the noise variance: a multiple of `LANES`, which
# kernels process at a time.
SNR = np.logspace(-2.5, 5, 16)
# Public weak prior on log10(snr): (centre, spread), for squared and logistic loss.
_WEAK = {False: (1.5, 1.0), True: (0.0, 1.0)}
# Gamma prior of the variance of the scores of a task of counts: shape and scale. Chosen on six
# tables and eight generators that the pages do not show.
_SHAPE, _SCALE = 0.125, 0.5
_FOLDS, _FOLD_ROWS = 5, 16
_BLOCK = 1 << 18  # numbers that a thread holds at once: of transformed rows, of what it makes
_NEWTON_STEPS = 30
_LOOSE = 1e-3  # Newton steps of models from which dispersions are taken
_SEARCHED_STEPS, _HALVINGS = 100, 30
_SINGLE_STRENGTH, _MARGIN = 0.5, 1.05  # of `LocalOnly`; eigenvalues are found from below
_ALONE_WEIGHT, _FEW_TASKS = 0.1, 10.0
# Criteria of squared loss, functions of a table and a root, by table: the first and the last
# ones of a fit are asked for twice.
_criteria: WeakKeyDictionary = WeakKeyDictionary()
# Tridiagonal forms of squared loss, by table: of its first root and of its last one.
_forms: WeakKeyDictionary = WeakKeyDictionary()
_KEPT = 1 << 24  # numbers of the forms of one root that are kept


def even_root(d):
    """Root of I / d."""
    return np.full(d, d**-0.5)


class LocalModels:
    """Personal models of all tasks of a table.

    A task asks two things about a prior of shape M = root root': at which scale kappa it explains
    the task best (`criteria`, all scales of `SNR` at once), and which model it has at that scale
    (`solve`). With rows times the root every prior is a ridge: the matrix of a task's rows is made
    tridiagonal once, and every scale is then a system of linear cost.

    Parameters
    ----------
    table : TaskTable
        With more than two classes, C of them, a task has a model for each, whose prior is that of
        the shape I_C (x) M; models and intercepts are then (n_tasks, C, d) and (n_tasks, C).
    fit_intercept : bool
        Local intercept, not penalised.
    centre : ndarray (d,) or (C, d), default=None
        Public centre of the prior; None: 0. With one axis more in front, of every task.
    precision : ndarray (n_tasks,), default=None
        One over the variance of the noise of a row of weight 1, for `about`; None: integrated out.
    restrained : bool, default=True
        Whether criteria of counts have the gamma prior of `restraint`: where no scale is known.
    """

    def __init__(self, table, *, fit_intercept, centre=None, precision=None, restrained=True):
        self.centre, self._shift, self.restraint = centre, None, 0.0
        self.precision = np.zeros(table.n_tasks) if precision is None else precision
        self.log_loss = table.has_log_loss
        several, counts = table.n_classes > 2, table.loss == "poisson"
        self._restrained = restrained and counts
        # Targets do not matter to forms, nor does a centre.
        self._forms = _forms.setdefault(table, {}).setdefault(fit_intercept, [])
        self._datafit = POISSON if counts else LOGISTIC  # of one score
        table = with_events(table) if counts else table
        if table.base is not None:
            self._shift = table.base if several else table.base[:, 0]
        if centre is not None:
            own = centre.ndim == 2 + several
            models = centre if several or not own else centre[:, None]
            shift = common_scores(table, np.atleast_2d(models))
            shift = shift if several else shift[:, 0]
            if self.log_loss:
                self._shift = shift if self._shift is None else self._shift + shift
            else:
                table = replace(table, y=table.y - shift)
        self.table, self._support = table, table.support
        self.fit_intercept = fit_intercept
        self._several = (table.n_classes,) if several else ()
        self._scores = np.zeros((table.n_rows if self.log_loss else 0, *self._several))
        if self._several and self._shift is not None:
            # Even probabilities: far from them the first steps are too long.
            self._scores -= self._shift
        elif counts and fit_intercept:
            self._scores += np.repeat(self._first_levels(), table.sizes)
        # Where they take little memory compared with the models: 3 results of len(SNR) numbers. How
        # many rows there are must not matter: models from criteria that were kept differ in the
        # last bits.
        self._keep = table.n_features >= len(SNR) and not self.log_loss
        results = _criteria.setdefault(table, {}) if self._keep else {}
        self._known = results.setdefault(fit_intercept, [])

    def _first_levels(self):
        """Intercepts of counts without features; the shift has the exposures."""
        bare = replace(self.table, base=None)
        return levels_of(bare, 0.0 if self._shift is None else self._shift)

    def scores(self):
        """Scores of all rows under the last models, with those that a centre gives."""
        return self._scores + self._shift_of(slice(None))

    @cached_property
    def _order(self):
        """Rows in the order of the folds.

        Folds are blocks of rows in a scattered order (golden-ratio sequence) that depends on a
        row's place in its task alone: a task gets the same model in any company.
        """
        table = self.table
        order, sizes = np.empty(table.n_rows, dtype=np.int64), table.sizes
        for n in np.unique(sizes):
            start = table.offsets[:-1][sizes == n, None]
            place = np.arange(n)
            scattered = np.argsort((place * 0.6180339887498949) % 1.0, kind="stable")
            order[start + place] = start + scattered
        return order

    def _run(self, function, root, in_folds):
        """function(block, tasks, rows, targets, weights) for blocks of all tasks; -> nothing.

        Rows are in the order of the folds, or as they lie in memory, which is faster.
        """
        table = self.table
        panels, in_place = _panels(root), root.ndim == 1 and not table.is_sparse
        factor = root if in_place else np.ones(root.shape[-1])
        shared = None
        if table.rows is not None and not in_place:
            shared = _products(table.X, np.arange(table.X.shape[0]), root, panels)

        def run(tasks):
            places, ends = rows_of(table.offsets, tasks)
            rows = self._order[places] if in_folds else places
            if in_place or shared is not None:
                A = table.X if in_place else shared
                pick = rows if table.rows is None else table.rows[rows]
            else:
                A = _products(table.X, rows, root, panels)
                pick = np.arange(len(rows))
            block = _Block(
                read_only(A), pick, factor, ends, self.fit_intercept, self._support[tasks]
            )
            # A task whose rows overflow gets a model that is not finite, in silence.
            weights = None if table.weights is None else table.weights[rows]
            with np.errstate(all="ignore"):
                function(block, tasks, rows, table.y[rows], weights)

        with single_blas_thread():
            width = max(table.n_features, len(SNR))
            run_blocks(run, [(tasks,) for tasks in even_blocks(table.sizes, width, _BLOCK)])

    def _run_squares(self, function, root, several=None):
        """function(block, targets) for blocks of all tasks, for squared loss; -> triangular root.

        Targets are those of `several` models (n_models, n_rows) where they are given.
        """
        table, shared = self.table, None
        forms = next((form for form in self._forms if np.array_equal(form.root, root)), None)
        if forms is None:
            forms = _Forms(root, table)
            self._forms[1:] = [forms]  # the first one is the even root's
        L = forms.triangular
        if table.rows is not None and L.ndim == 2 and not table.is_sparse:
            shared = _products(table.X, np.arange(table.X.shape[0]), L, forms.panels)

        def run(number, tasks):
            block = forms.blocks[number]
            if block is None:
                block = _Squares(table, tasks, self._order, forms, self.fit_intercept)
            block.shared = shared
            # A task whose rows overflow gets a model that is not finite, in silence.
            with np.errstate(all="ignore"):
                if several is None:
                    function(block, table.y[block.rows])
                else:
                    function(block, np.stack([model.table.y[block.rows] for model in several]))
            block.shared = None
            if forms.kept:
                forms.blocks[number] = block

        with single_blas_thread():
            run_blocks(run, list(enumerate(forms.tasks)))
        return L

    def criteria(self, root):
        """How well every scale of `SNR` explains every task. -> criterion, level

        They are (n_tasks, len(SNR)) and (n_tasks,). M = root @ root.T, or diag(root**2), and kappa
        = snr / level. The criterion is the average of -2 log evidence and n log(cross-validated
        error) (deviances for the logistic loss), plus a weak public prior.
        """
        return self._recalled(root) or self._criteria_and_modes(root)

    def _recalled(self, root):
        for known, out, level in self._known:
            if np.array_equal(known, root):
                return out.copy(), level
        return None

    def _criteria_and_modes(self, root, choose=None, tol=0.0):
        if not self.log_loss:
            ((out, level),) = criteria_of([self], root)
            return (out, level, *self.solve(root, choose(out, level))) if choose else (out, level)
        m, weak = self.table.n_tasks, weak_penalty(self.log_loss)
        out, level = np.empty((m, len(SNR))), np.empty(m)
        root = _triangular(root)
        W, b = self._empty(m if choose else 0, root)
        if self._restrained:
            self.restraint = np.empty_like(out)

        def block_criteria(block, tasks, rows, label, weights):
            if self._several:
                score = self._scores[rows]
                shift = self._shift_of(rows)
                found = softmax_criteria(block, label, score, weak, shift, weights)
                out[tasks], level[tasks] = found
                if choose:
                    precision = _inverse(choose(out[tasks], level[tasks]))
                    modes = softmax_modes(block, label, score, precision, tol, shift, weights)
                    W[tasks], b[tasks], self._scores[rows] = modes
                return
            shift = self._shift_of(rows)
            working = *self._working(label, self._scores[rows], weights, shift), label
            (found,), level[tasks] = block.criteria(
                *working, weak, shift=shift, counts=weights, datafit=self._datafit
            )
            if self._restrained:
                held = _penalty_of_counts(block.spread(weights) / level[tasks])
                self.restraint[tasks] = held
                found += held
            out[tasks] = found
            if choose:
                precision = _inverse(choose(out[tasks], level[tasks]))
                W[tasks], b[tasks] = self._newton(block, rows, label, precision, tol, weights)

        self._run(block_criteria, root, in_folds=True)
        return (out, level, self._back(W, root), b) if choose else (out, level)

    def solve(self, root, kappa, tol=1e-8):
        """Posterior modes W, b under priors N(0, kappa_k M), for root (d, r) with r <= d, or (d,).

        Newton steps of a task for the logistic loss end when none of its scores moves by more than
        `tol`.
        """
        if not self.log_loss:
            return self._averages(root, _inverse(kappa))[:2]
        m, root = self.table.n_tasks, _triangular(root)
        W, b = self._empty(m, root)
        precision = _inverse(kappa)

        def block_modes(block, tasks, rows, label, weights):
            if self._several:
                start, shift = self._scores[rows], self._shift_of(rows)
                modes = softmax_modes(block, label, start, precision[tasks], tol, shift, weights)
                W[tasks], b[tasks], self._scores[rows] = modes
                return
            modes = self._newton(block, rows, label, precision[tasks], tol, weights)
            W[tasks], b[tasks] = modes

        self._run(block_modes, root, in_folds=False)
        return self._back(W, root), b

    def _averages(self, root, precision, prior=None, proper=False, trust=1.0):
        """-> W, b, evidence, energies; `prior` None: of the one scale of each task alone,
        `precision` None: of those of `SNR` alone"""
        W = np.empty((self.table.n_tasks, root.shape[-1]))
        b, evidence, energies = np.empty((3, len(W)))

        def averages_of_squares(block, y):
            k = block.tasks
            given = (None if numbers is None else numbers[k] for numbers in (precision, prior))
            found = block.average(y, *given, proper, trust)
            W[k], b[k], evidence[k], energies[k] = found

        triangular = self._run_squares(averages_of_squares, root)
        return self._back(W, triangular), b, evidence, energies

    def _empty(self, m, root):
        """Arrays for models of the transformed features and intercepts of m tasks."""
        return np.empty((m, *self._several, root.shape[-1])), np.empty((m, *self._several))

    def _back(self, W, root):
        W = _back(W.reshape(-1, root.shape[-1]), root)
        W = W.reshape(-1, *self._several, W.shape[-1])
        return W if self.centre is None else W + self.centre

    def _shift_of(self, rows):
        return 0.0 if self._shift is None else self._shift[rows]

    def _working(self, label, score, counts, shift=0.0):
        """Weights and response of the working least squares at the current scores, less the shift.

        `counts`: how much each row counts; None: once.
        """
        weight, step = self._datafit.working(label, score + shift)
        return weight if counts is None else counts * weight, score + step

    def _newton(self, block, rows, label, precision, tol, weights):
        if self._datafit.searched:
            return self._searched(block, rows, label, precision, tol, weights)
        score, active = self._scores[rows], np.arange(len(precision))
        shift = np.broadcast_to(self._shift_of(rows), score.shape)
        W, b = np.empty((len(precision), block.A.shape[1])), np.empty(len(precision))
        for _ in range(_NEWTON_STEPS):
            part, kept = block.select(active)
            counts = None if weights is None else weights[kept]
            working = self._working(label[kept], score[kept], counts, shift[kept])
            W[active], b[active] = part.modes(*working, precision[active])
            step = part.scores(W[active], b[active]) - score[kept]
            # A longer step would leave the quadratic approximation.
            score[kept] += np.clip(step, -4.0, 4.0)
            active = active[np.maximum.reduceat(np.abs(step), part.offsets[:-1]) > tol]
            if not len(active):
                break
        self._scores[rows] = score
        return W, b

    def _searched(self, block, rows, label, precision, tol, weights):
        """`_newton` from models without features, with steps halved where the penalised loss of a
        task would rise: slopes of counts have no bound."""
        shift = np.broadcast_to(self._shift_of(rows), label.shape)
        W, b = np.zeros((len(precision), block.A.shape[1])), np.zeros(len(precision))
        if self.fit_intercept:
            bare = replace(self.table, y=label, offsets=block.offsets, base=None)
            b = levels_of(bare, shift)
        score, active = block.scores(W, b), np.arange(len(precision))

        def losses(part, kept, W, score, active):
            value = self._datafit.value(label[kept], score + shift[kept])
            value = value if weights is None else weights[kept] * value
            value = np.add.reduceat(value, part.offsets[:-1])
            return value + 0.5 * precision[active] * np.einsum("kj,kj->k", W, W)

        for _ in range(_SEARCHED_STEPS):
            part, kept = block.select(active)
            now, old, at = score[kept], W[active], b[active]
            before = losses(part, kept, old, now, active)
            own = None if weights is None else weights[kept]
            working = self._working(label[kept], now, own, shift[kept])
            new, level = part.modes(*working, precision[active])
            there = part.scores(new, level)
            size = np.ones(len(active))
            for _ in range(_HALVINGS):
                some = np.repeat(size, np.diff(part.offsets)) * (there - now) + now
                models = old + size[:, None] * (new - old)
                value = losses(part, kept, models, some, active)
                rises = ~(value <= before + 1e-12 * (1.0 + np.abs(before)))
                if not rises.any():
                    break
                size[rises] *= 0.5
            moved = np.maximum.reduceat(np.abs(there - now), part.offsets[:-1])
            score[kept], W[active], b[active] = some, models, at + size * (level - at)
            active = active[moved > tol]
            if not len(active):
                break
        self._scores[rows] = score
        return W, b


def criteria_of(models, root):
    """`LocalModels.criteria` of squared loss, of models that differ in their centres only.

    Most of what they cost serves all. -> [(criterion, level), ...]
    """
    found = {j: known for j, model in enumerate(models) if (known := model._recalled(root))}
    new = [model for j, model in enumerate(models) if j not in found]
    if new:
        first, weak = new[0], weak_penalty(False)
        out, level = (
            np.empty((len(new), first.table.n_tasks, len(SNR))),
            np.empty(first.table.n_tasks),
        )

        def criteria_of_squares(block, y):
            k = block.tasks
            out[:, k], level[k] = block.criteria(block.weight, y, None, weak)

        first._run_squares(criteria_of_squares, root, new)
        for model, of_model in zip(new, out, strict=True):
            if model._keep:  # the even prior comes first, and again when a task doubts the last one
                model._known[1:] = [*model._known[1:], (root, of_model.copy(), level)][-2:]
    made = iter(out if new else ())
    return [found.get(j) or (next(made), level) for j in range(len(models))]


def _inverse(kappa):
    return 1.0 / np.maximum(kappa, 1e-300)


def _triangular(root):
    """L, lower triangular, with L L' = root root': half the products. A diagonal stays one."""
    return root if root.ndim == 1 else np.linalg.qr(root.T, mode="r").T


def _panels(root):
    """Columns of a triangular root in eights, for `triangular_products`; None of a diagonal."""
    if root.ndim == 1:
        return None
    root = np.pad(root, ((0, 0), (0, max(LANES - root.shape[1], 0))))
    r = root.shape[1]
    starts = np.minimum(np.arange(0, r, LANES), r - LANES)
    return np.stack([np.ascontiguousarray(root[:, c : c + LANES]) for c in starts])


def _back(W, root):
    """Weights of the features from those of the transformed ones, in place where that can be."""
    if root.ndim == 1:
        W *= root
        return W
    d, r = root.shape
    out, step = W if r == d else np.empty((len(W), d)), max(_BLOCK // d, 1)
    backwards = np.zeros((d, d))  # then the transposed root is lower triangular, too
    backwards[d - r :] = root.T[::-1, ::-1]
    panels = _panels(backwards)
    for first in range(0, len(W), step):
        part = W[first : first + step]
        V = np.zeros((len(part), d))
        V[:, d - r :] = part[:, ::-1]
        V = _products(read_only(V), np.arange(len(V)), backwards, panels)
        out[first : first + step] = V[:, ::-1]
    return out


def _products(X, rows, root, panels):
    """X[rows] @ root as an array in C order; a diagonal root is given by its diagonal."""
    if sparse.issparse(X) and root.ndim == 1:
        return X[rows].multiply(root).toarray()
    if sparse.issparse(X):
        return np.ascontiguousarray(X[rows] @ root)
    A = np.empty((len(rows), max(root.shape[1], LANES)))
    triangular_products(X, rows, panels, A)
    return np.ascontiguousarray(A[:, : root.shape[1]])


def scratch(R, S):
    """That of `averages`."""
    return np.empty((S // LANES, R, LANES)), np.empty((R, LANES)), np.empty(R), np.empty((2, S))


def in_eights(rho, reach, prior):
    """Priors of tasks (m, S), with those that never count up to a multiple of eight."""
    m, S = rho.shape
    found = np.empty((3, m, padded(S, LANES)))
    for whole, part, rest in zip(found, (rho, reach, prior), (1.0, 0.0, -np.inf), strict=True):
        whole[:, :S], whole[:, S:] = part, rest
    return found


class _Block:
    """Transformed rows A[pick] * factor of some tasks, which `offsets` divides among them.

    `support`: the rows of each as far as they count.
    """

    keeps = False  # the matrices K

    def __init__(self, A, pick, factor, offsets, centre, support):
        self.A, self.pick, self.factor, self.offsets, self.centre = A, pick, factor, offsets, centre
        self.support = support

    def select(self, tasks):
        """-> block of some of the tasks, positions of their rows among those of this one"""
        if len(tasks) == len(self.offsets) - 1:
            return self, slice(None)
        rows, ends = rows_of(self.offsets, tasks)
        some = self.support[tasks]
        return _Block(self.A, self.pick[rows], self.factor, ends, self.centre, some), rows

    def _parts(self, weight, response):
        """Yield (tasks, ends, F, K) for few tasks at a time, whose F' F stay in the cache."""
        sizes, d = np.diff(self.offsets), self.A.shape[1]
        m, n = len(sizes), int(sizes.max())
        R, P, S = padded(min(n, d) + 1, LANES), padded(max(n, d), 4), padded(min(n, d), 4)
        step = max(_BLOCK // (R * (P + 2 * S)), 1)
        even = sizes.min() == n  # then the same numbers are padding
        self.v, self.mean = np.empty(self.offsets[-1]), np.zeros((m, d))
        self.level, self.mass = np.empty((2, m))
        F, K = np.zeros((min(step, m), P, R)), np.zeros((min(step, m), S, R))
        for first in range(0, m, step):
            part = slice(first, min(first + step, m))
            ends = self.offsets[first : part.stop + 1]
            count = part.stop - first
            if first and not even:
                F[:] = 0.0
            if first and (self.keeps or not even):  # those of the part before may be kept
                K = np.zeros((count, S, R))
            centred_rows(
                self.A,
                self.pick,
                self.factor,
                ends,
                weight,
                response,
                float(self.centre),
                F[:count],
                self.v,
                self.mean[part],
                self.level[part],
                self.mass[part],
            )
            grams(F[:count], ends, d, self.v, K[:count])
            yield part, ends, F[:count], K[:count]

    def spread(self, weights):
        """Mean squared distance of each task's rows from their mean; 0 where none differs."""
        sizes, d = np.diff(self.offsets), self.A.shape[1]
        out, n = np.empty(len(sizes)), self.offsets[-1]
        for k, _, _, K in self._parts(np.ones(n) if weights is None else weights, np.zeros(n)):
            place = np.arange(min(K.shape[1], d))
            own = place < np.minimum(sizes[k], d)[:, None]
            trace = np.cumsum(np.where(own, K[:, place, place], 0.0), axis=1)[:, -1]
            size = trace + self.mass[k] * np.einsum("kj,kj->k", self.mean[k], self.mean[k])
            out[k] = np.where(trace <= 1e-24 * size, 0.0, trace / self.support[k])
        return out

    def criteria(
        self, weight, response, label, weak, shift=0.0, of_class=None, counts=None, datafit=None
    ):
        """-2 log evidence and cross-validated deviance of all scales, averaged, and levels.

        The scale is kappa = snr / level with level = trace(G) / n, so that snr is the prior
        variance of a score in units of the noise; level is infinite when no row differs from
        another. The noise variance is profiled for squared loss and 1 for the logistic loss,
        whose deviance is taken at the left-out score: the working response minus its residual.
        `label` is None for squared loss. `weak` is added. `shift` is the part of the scores that a
        centre gives. For one class of several `of_class` has the levels (m,) that scales refer to,
        an array (n, len(SNR)) for the left-out scores, and how much determinants count; the
        criterion is then half the evidence. `counts`: how much each row counts, which `weight` has
        in it already. `datafit`: that of the deviances, with `label`. For squared loss there may be
        several responses (C, n), which cost little more than one. -> (C, m, len(SNR)), (m,)

        A task has at least `_FOLDS` blocks of rows that are left out, of at most `_FOLD_ROWS`
        rows, which keeps the cost linear in its rows.
        """
        sizes, d, C = np.diff(self.offsets), len(self.factor), response.size // len(weight)
        m, n = len(sizes), int(sizes.max())
        r = min(n, d)
        R, S = padded(r + 1, LANES), padded(n, 4) + 4
        folds = np.minimum(sizes, np.maximum(_FOLDS, -(-sizes // _FOLD_ROWS)))
        root = np.sqrt(weight)
        q, product = np.zeros((C, R)), np.zeros((4, LANES))
        line, V, W = np.zeros((2 + C, R, LANES)), np.zeros((R, LANES)), np.zeros((LANES, R))
        U = np.zeros((R, _FOLD_ROWS + 4, LANES))
        B = np.zeros((_FOLD_ROWS + C, _FOLD_ROWS + 4, LANES))
        blocks = np.zeros((2, _FOLD_ROWS + C, _FOLD_ROWS, LANES))
        given, left, share = (None, None, 1.0) if of_class is None else of_class
        out = np.empty((0 if label is None and left is None else len(root), len(SNR)))
        by_row, level, dual = np.empty((1 + C, len(root))), np.empty(m), (sizes <= d)[:, None]
        by_scale, dets = np.zeros((m, 2 + 2 * C, len(SNR))), np.ones((m, -(-r // 16), len(SNR)))
        Z = None
        for k, ends, F, K, T, trace, flat in self._spectra(weight, response, True):
            count = len(K)
            if Z is None:
                Z = np.zeros((count, S, R))
            rotate(K, ends, d, F, Z[:count], V, W, product)
            rows, known = slice(ends[0], ends[-1]), trace / self.support[k]
            level[k] = np.where(flat, np.inf, known if given is None else given[k])
            by_scale[k, 0] = SNR / np.where(level[k] > 0, level[k], np.inf)[:, None]
            by_scale[k, 1] = np.where(dual[k], 1.0, -by_scale[k, 0])
            by_row[0, rows] = root[rows] * np.repeat(
                float(self.centre) / np.sqrt(self.mass[k]), sizes[k]
            )
            by_row[1:, rows] = self.v[..., rows]
            left_out(
                Z, ends, folds[k], d, T, by_scale[k], by_row, dets[k], q, line, U, B, *blocks, out
            )
        logdet = np.log(dets).sum(axis=1)
        criterion, held = np.empty((C, m, len(SNR))), self.support[:, None]
        for c, v in enumerate(by_row[1:]):
            kappa, quad, error = by_scale[:, 0], by_scale[:, 2 + 2 * c], by_scale[:, 3 + 2 * c]
            yy = np.add.reduceat(v**2, self.offsets[:-1])[:, None]
            tiny = 1e-9 * yy + 1e-300
            energy = np.maximum(np.where(dual, quad, yy - kappa * quad), tiny)
            if left is not None:
                found = energy + share * logdet
                left[:] = response[:, None] - out / root[:, None]
            elif label is None:
                dof = np.maximum(held - 1, 1) if self.centre else held
                found = dof * np.log(energy / dof) + logdet
                found += held * np.log(np.maximum(error, tiny) / held)
            else:
                working = response[:, None] - out / root[:, None]
                working += np.broadcast_to(shift, label.shape)[:, None]
                deviance = datafit.value(label[:, None], working)
                if counts is not None:
                    deviance *= counts[:, None]
                found = energy + logdet + 2.0 * np.add.reduceat(deviance, self.offsets[:-1])
            criterion[c] = 0.5 * found + weak
        return criterion, level

    def _spectra(self, weight, response, rows):
        """`_parts` with T (2, n, R) and the reflections that make K tridiagonal, and the trace.

        Yields (tasks, ends, F, K, T, trace, flat); `flat` tasks have features that do not vary, or
        rounding errors only. `rows`: whether F is needed of tasks with more rows than features.
        """
        d = self.A.shape[1]
        for k, ends, F, K in self._parts(weight, response):
            T = np.zeros((2, len(K), K.shape[2]))
            tridiagonal(K, ends, d, *T, *np.zeros((2, K.shape[2])))
            trace = np.cumsum(T[0], axis=1)[:, -1]  # whose order knows nothing of padding
            size = trace + self.mass[k] * np.einsum("kj,kj->k", self.mean[k], self.mean[k])
            yield k, ends, F, K, T, trace, trace <= 1e-24 * size

    def modes(self, weight, response, precision):
        """Weights and intercepts of the transformed features at one scale."""
        C = np.zeros((len(precision), self.A.shape[1]))
        S = x = None
        for k, ends, F, K in self._parts(weight, response):
            if S is None:
                S, x = np.zeros(K.shape[1:]), np.zeros(K.shape[2])
            posterior_modes(F, K, ends, precision[k], S, x, C[k])
        return self._weights(C)

    def _weights(self, C):
        return C, self.level - np.einsum("kj,kj->k", self.mean, C)

    def scores(self, C, intercept):
        out = np.repeat(intercept, np.diff(self.offsets))
        fitted = np.empty(len(out))
        scores(self.A, self.pick, True, self.offsets, C * self.factor, fitted)
        return out + fitted


class _Forms:
    """Tridiagonal forms under one root, block by block, kept where they are few numbers."""

    def __init__(self, root, table):
        self.root, self.triangular = root.copy(), _triangular(root)
        self.panels = _panels(self.triangular)
        r = np.minimum(table.sizes, self.triangular.shape[-1])
        self.kept = not table.on_disk and np.sum(padded(r, 4) * padded(r + 1, LANES)) <= _KEPT
        self.tasks = list(even_blocks(table.sizes, max(table.n_features, len(SNR)), _BLOCK))
        self.blocks = [None] * len(self.tasks)


class _Squares(_Block):
    """A block for squared loss, whose tridiagonal forms are made once for all responses.

    `order` has the rows of the table in the order of the folds; `forms` are those of the root, of
    which `root` (d, r) is lower triangular, or a diagonal (d,).
    """

    keeps = True

    def __init__(self, table, tasks, order, forms, centre):
        places, ends = rows_of(table.offsets, tasks)
        self.tasks, self.rows, self.X = tasks, order[places], table.X
        root = self.root = forms.triangular
        self.panels = forms.panels
        self.places = self.rows if table.rows is None else table.rows[self.rows]
        factor = root if root.ndim == 1 else np.ones(root.shape[1])
        super().__init__(None, None, factor, ends, centre, table.support[tasks])
        self.sizes, self.weight = np.diff(ends), table.counts[self.rows]
        self.half = np.sqrt(self.weight)
        self.sums = np.add.reduceat(self.weight, ends[:-1])
        self.shared = self.forms = None
        self.known = {}  # what `_places_of` found

    def _raw(self):
        """Rows as they are, and which of them."""
        if sparse.issparse(self.X):
            return read_only(self.X[self.places].toarray()), np.arange(len(self.places))
        return self.X, self.places

    def _spectra(self, weight, response, rows):
        self.response = self.half * (response - self._means(response))
        d = len(self.factor)
        if self.forms is not None and not (rows and self.sizes.max() > d):
            self.v = self.response
            for form in self.forms:
                yield form[0], form[1], np.empty((len(form[2]), 0, 0)), *form[2:]
            return
        self.A, self.pick = self._raw()
        if self.root.ndim == 2:
            places = np.arange(len(self.pick))
            if self.shared is not None:
                self.A = self.shared
            else:
                self.A = _products(self.A, self.pick, self.root, self.panels)
                self.pick = places
            self.A = read_only(self.A)
        forms = []
        for k, ends, F, K, *form in super()._spectra(weight, np.zeros(len(weight)), rows):
            made, self.v = self.v, self.response
            self.mass[k] = self.sums[k]
            forms.append((k, ends, K, *form))
            yield k, ends, F, K, *form
            self.v = made
        self.A, self.pick, self.forms = None, None, forms

    def _places_of(self, k, ends):
        """Task and place in it of each row of some tasks, and which rows these are: those of tasks
        without more rows than features."""
        if k.start not in self.known:
            sizes = self.sizes[k]
            codes = np.repeat(np.arange(len(sizes)), sizes)
            own = np.arange(ends[-1] - ends[0]) - np.repeat(ends[:-1] - ends[0], sizes)
            some = np.flatnonzero((sizes <= len(self.factor))[codes])
            self.known[k.start] = codes[some], own[some], some
        return self.known[k.start]

    def _right(self, k, ends, R):
        """Right sides of the systems, (n, 1, R), and sums of squares of the responses."""
        rows, out = slice(ends[0], ends[-1]), np.zeros((len(ends) - 1, 1, R))
        v, d = self.response[rows], len(self.factor)
        codes, places, some = self._places_of(k, ends)
        out[codes, 0, places] = v[some]
        tall = np.flatnonzero(self.sizes[k] > d)
        if len(tall):
            out[tall, 0, :d] = self._transposed(k, ends, v)[tall]
        return out, np.add.reduceat(v**2, ends[:-1] - ends[0])

    def _transposed(self, k, ends, v):
        """Transposed weighted rows times v, whose weighted sum is 0, for each task."""
        X, pick = self._raw()
        rows, out = slice(ends[0], ends[-1]), np.empty((len(ends) - 1, X.shape[1]))
        u = self.half[rows] * v
        if X.shape[1] < LANES:
            np.add.reduceat(u[:, None] * X[pick[rows]], ends[:-1] - ends[0], axis=0, out=out)
        else:
            sums_of_rows(X, pick[rows], ends - ends[0], u, out)
        if self.root.ndim == 1:
            return out * self.root
        return _products(read_only(out), np.arange(len(out)), self.root, self.panels)

    def _primal(self, k, ends, z, C):
        """Weights of the transformed features from z in the space of the systems."""
        d, rows = len(self.factor), slice(ends[0], ends[-1])
        codes, places, some = self._places_of(k, ends)
        tall = self.sizes[k] > d
        if len(codes):
            u = np.zeros(ends[-1] - ends[0])
            u[some] = z[codes, places]
            if self.centre:  # what rounding left
                sums = np.add.reduceat(self.half[rows] * u, ends[:-1] - ends[0])
                u -= self.half[rows] * np.repeat(sums / self.sums[k], self.sizes[k])
            C[:] = self._transposed(k, ends, u)
        if tall.any():
            C[tall] = z[tall, :d]

    def _means(self, response):
        """Mean responses of the tasks, of each row; 0 without intercepts."""
        self.middle = (
            float(self.centre)
            * np.add.reduceat(self.weight * response, self.offsets[:-1], axis=-1)
            / self.sums
        )
        return np.repeat(self.middle, self.sizes, axis=-1)

    def average(self, response, precision, prior, proper, trust):
        """`LocalModels.average` of squared loss, for the transformed features."""
        m, d = len(self.support), len(self.factor)
        C, (evidence, energies) = np.empty((m, d)), np.empty((2, m))
        for k, ends, _, K, T, trace, flat in self._spectra(self.weight, response, False):
            own, count, R = self.support[k], len(K), K.shape[2]
            right, squares = self._right(k, ends, R)
            weights = np.zeros((count, 1)) if prior is None else prior[k]
            rho = np.empty(weights.shape)
            if precision is not None:
                rho[:, 0] = precision[k]
            if prior is not None:
                rho[:, -len(SNR) :] = np.maximum(trace / own, 1e-300)[:, None] / SNR
            # A scale chosen at other weights may be out of proportion: the solve must not fail.
            np.maximum(rho, 1e-12 * trace[:, None], out=rho)
            dof = np.where(flat, 0.0, own - float(self.centre and not proper))
            scales = in_eights(rho, np.zeros_like(rho), weights)
            z = np.empty((count, R))
            averages(
                np.empty((0, 0, 0)),
                K,
                ends,
                d,
                T,
                right,
                squares[:, None],
                dof,
                1e-9 * squares + 1e-300,
                *scales,
                np.zeros(count),
                *NO_CENTRES,
                *scratch(R, scales[0].shape[1]),
                z,
                evidence[k],
                energies[k],
                float(trust),
            )
            # Where slopes are 0 what is left of rounding errors says nothing of the noise.
            energies[k] = np.where(dof > 0.0, energies[k], squares)
            self._primal(k, ends, z, C[k])
        self.level = self.middle
        return *self._weights(C), evidence, energies


def weak_penalty(log_loss):
    """What the weak public prior on the scale adds to the criterion of every task."""
    centre, spread = _WEAK[log_loss]
    return 0.5 * ((np.log10(SNR) - centre) / spread) ** 2


def _penalty_of_counts(per_snr):
    """Penalty of scales by a gamma prior on the variance of the scores of a task, (m, S).

    With few rows the likelihood may have no maximum, and models of large scales then predict any
    number. `per_snr` (m,): variance of the scores of a task, over snr; 0 where none differs.
    """
    variance = SNR * np.nan_to_num(per_snr)[:, None] / _SCALE
    return 2.0 * (variance - _SHAPE * np.log(np.where(variance > 0, variance, 1.0)))


# ------------------------------------------------------------------ dispersion of counts
