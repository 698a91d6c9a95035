"""Weights of rows and of classes, in every family.

What a weight means is compared with tables without weights: rows that are repeated, left out, or
all weigh the same. Sums under weights of single records are compared with what was derived.
"""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, PredefinedSplit, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils.fixes import parse_version

import skpmtl
from skpmtl._kernels.losses import LOGISTIC, MULTINOMIAL, SQUARED
from skpmtl.metrics import average_auc, nmse, task_scorer, task_scores
from skpmtl.privacy import audit
from skpmtl.shards import fit_shards
from skpmtl.tables.table import read_only
from tests.helpers.cases import EXACT, FIRST, TASKS, arguments, every, labels, long_data, seeded
from tests.helpers.sites import assert_same_fit, write_parts
from tests.meta.test_estimators import kernel_sum

from ..helpers.public import public


def tables(n_classes=0, n=16, d=4, m=5, seed=0):
    """X, y, task, whole numbers as weights, of which some are 0; all classes weigh something."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(m), n)
    X = rng.normal(size=(m * n, d))
    score = X @ rng.normal(size=d) + 0.5 * rng.normal(size=m * n)
    y, times = labels(score, n_classes), rng.integers(0, 4, m * n)
    for k in range(m if n_classes else 0):
        some = np.flatnonzero(task == k)[: 2 * n_classes]
        y[some], times[some] = np.arange(len(some)) % n_classes, np.maximum(times[some], 1)
    return X, y, task, times


def close(est, other, tol=1e-8):
    scale = np.abs(other.coef_).max()
    assert_allclose(est.coef_, other.coef_, rtol=0, atol=tol * scale)
    assert_allclose(est.intercept_, other.intercept_, rtol=0, atol=tol * scale)


# ----------------------------------------------------------------------- what weights mean
@pytest.mark.parametrize("form", ["dense", "csr", "mapping"])
@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weight", ["equal", "samples"])
@pytest.mark.spread(4)
def test_exact_fits_repeat_rows(form, n_classes, intercept, weight):
    X, y, task, times = tables(n_classes, m=3)
    again = np.repeat(np.arange(len(y)), times)
    given = (X[again], y[again], task[again]), (X, y, task, times / 3.0)
    if form == "csr":
        given = [(sparse.csr_matrix(part[0]), *part[1:]) for part in given]
    if form == "mapping":
        X, y, task, w = given[1]
        parts = [{t: part[task == t] for t in TASKS[:3]} for part in (X, y, w)]
        given = given[0], (*parts[:2], None, parts[2])
    for cls, alpha, tight in (
        (skpmtl.MPMTLLowRank, 0.1, {"tol": 1e-11}),
        (skpmtl.MPMTLGroupSparse, 0.1, {"tol": 1e-11}),
        (skpmtl.PrivateMeanRegMTL, 0.3, {}),
    ):
        cls = public(cls.__name__ + "Classifier") if n_classes else cls
        settings = {"epsilon": None, "fit_intercept": intercept, "task_weight": weight, **tight}
        # A sum of losses counts whole rows: the weight 1 stands for three of them here.
        times_3 = 3.0 if weight == "samples" else 1.0
        close(
            cls(alpha, **settings).fit(*given[1]),
            cls(alpha * times_3, **settings).fit(*given[0]),
            1e-5 if n_classes else 1e-7,
        )


@pytest.mark.parametrize(
    "est",
    [
        skpmtl.reproduction.LocalOnly(uncertainty=True),
        skpmtl.PrivateMeanRegMTL(0.2, epsilon=None),
        skpmtl.PrivateMTL(epsilon=None, uncertainty=True),
        skpmtl.PrivateMTL("groups", epsilon=None, loss="huber", levels="free"),
        skpmtl.PrivateMTL(epsilon=None, fit_intercept=False),
        skpmtl.PrivateMTL(epsilon=1e3, tasks=TASKS, random_state=0),
        skpmtl.PrivateMTLClassifier(epsilon=None),
        skpmtl.DPMetaInit(epsilon=None, random_state=0),
    ],
    ids=str,
)
def test_whole_weights_count_rows(est):
    """Also where rules ask for the number of rows of a task, and of a task of a single row."""
    n_classes = 2 * est._classification
    X, y, task, times = tables(n_classes)
    times[task == 0] *= np.arange(len(y))[task == 0] == np.flatnonzero(times)[0]
    again = np.repeat(np.arange(len(y)), times)
    repeated = clone(est).fit(X[again], y[again], task=task[again])
    close(est.fit(X, y, task=task, sample_weight=times), repeated, 1e-6)
    if hasattr(est, "covariance_"):
        assert_allclose(est.covariance_, repeated.covariance_, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("epsilon", [None, 3.0])
def test_weights_of_trials_are_rows_written_out(epsilon):
    """Successes and failures as rows whose weights are their numbers, of one trial to hundreds."""
    rng, m = np.random.default_rng(0), 40
    task, X = np.repeat(np.arange(m), 4), rng.normal(size=(4 * m, 2))
    n = np.where(task < 5, 60, rng.integers(0, 6, 4 * m))
    won = rng.binomial(n, 1.0 / (1.0 + np.exp(-X[:, 0] - 0.5 * rng.normal(size=m)[task])))
    public = {"tasks": range(m), "classes": [0, 1], "random_state": 0, "epsilon": epsilon}
    est = skpmtl.PrivateMTLClassifier(**public)
    rows, outcome = skpmtl.expand_trials(won, n)
    single = clone(est).fit(X[rows], outcome, task=task[rows])
    twice, sides = np.tile(np.arange(4 * m), 2), np.repeat([1, 0], 4 * m)
    counts = np.concatenate([won, n - won])
    close(est.fit(X[twice], sides, task=task[twice], sample_weight=counts), single, 1e-8)


def test_weights_of_records_are_at_most_one():
    X, y, task, times = tables()
    est = skpmtl.DPMetaInit(tasks=range(5), random_state=0)
    with pytest.raises(ValueError, match="where single records are protected, divide weights"):
        est.fit(X, y, task=task, sample_weight=times)
    named = skpmtl.DPMetaInitClassifier(tasks=range(5), classes=[0, 1], class_weight={1: 2.0})
    with pytest.raises(ValueError, match="where single records are protected, divide weights"):
        named.fit(X, (y > 0).astype(int), task=task)


def test_wide_targets_share_weights_of_rows():
    rng = np.random.default_rng(0)
    X, Y, w = rng.normal(size=(20, 3)), rng.normal(size=(20, 4)), rng.integers(0, 3, 20) / 2.0
    Y[rng.random(Y.shape) < 0.2] = np.nan
    est = skpmtl.MPMTLLowRank(0.1, epsilon=None, tol=1e-11)
    wide = clone(est).fit(X, Y, sample_weight=w)
    at = np.argwhere(~np.isnan(Y))
    long = est.fit(X[at[:, 0]], Y[tuple(at.T)], task=at[:, 1], sample_weight=w[at[:, 0]])
    close(wide, long)


# One of each family; the others run the same loops, or have compiled forms of their own.
QUICK = ("MPMTLLowRank", "PrivateMTL", "PrivateMeanReg", "DPMetaInitC")
CASES = [
    case for case in [*FIRST.values(), *EXACT] if case.name.startswith(QUICK) and not case.needs
]


@every(CASES)
@pytest.mark.spread(7)
def test_equal_weights_are_none_and_those_of_zero_leave_rows_out(case):
    """Of all families, also with noise: it is the same."""
    data, est = long_data(case.n_classes), seeded(case)
    given, counted = arguments(case, data), est._counts_rows()
    plain = clone(est).fit(*given)
    whole = counted or getattr(est, "task_weight", "equal") == "samples" or est.loss == "poisson"
    even = clone(est).fit(*given, sample_weight=_alike(case, data, 1.0 if whole else 0.3))
    close(even, plain, 1e-5 if case.close else 1e-9)
    if counted:  # a row of weight 0 is one more row there, by which is divided
        return
    keep = np.arange(len(data[1])) % 5 != 2
    fewer = clone(est).fit(*arguments(case, tuple(part[keep] for part in data)))
    close(est.fit(*given, sample_weight=_alike(case, data, keep)), fewer, 1e-9)


def _alike(case, data, value):
    w = np.broadcast_to(value, data[1].shape).astype(float)
    return {t: w[data[2] == t] for t in TASKS} if case.form == "mapping" else w


@every(case for case in CASES if case in FIRST.values())
def test_tasks_without_any_weight(case):
    data, est = long_data(case.n_classes), seeded(case)
    if case.form != "long" or case.unit:
        return
    X, y, task = data
    w = (task != 2).astype(float)
    plain = clone(est).fit(X[task != 2], y[task != 2], task=task[task != 2])
    est.fit(X, y, task=task, sample_weight=w)
    assert_array_equal(est.tasks_, TASKS)
    if not est._counts_rows():
        close(est, plain)
    assert np.isfinite(est.coef_).all()
    # One that joins without any has the model of a task that is not known, or of no rows.
    known = getattr(est, "mean_coef_", None) if est.unseen_task == "mean" else None
    expected = est.billboard_.without_rows(np.array([7]))[0][0] if known is None else known
    est.personalize(X[:20], y[:20], task=np.repeat([7, 8], 10), sample_weight=np.repeat([0, 1], 10))
    assert_array_equal(est.tasks_, [*TASKS, 7, 8])
    assert_allclose(est.coef_[6], expected)


# ------------------------------------------------------------------------------- classes
def test_balanced_classes():
    X, y, task, times = tables(2)
    y[(task == 1) & (np.arange(len(y)) % 16 > 4)] = 0
    est = skpmtl.MPMTLLowRankClassifier(0.1, epsilon=None, tol=1e-10)
    w = np.ones(len(y))
    for k in range(5):
        n = np.bincount(y[task == k], times[task == k], 2)
        share = n.sum() / (2 * n)
        w[task == k] = (share / share.max())[y[task == k]]
    expected = clone(est).fit(X, y, task=task, sample_weight=times / 3.0 * w)
    found = clone(est).set_params(class_weight="balanced")
    close(found.fit(X, y, task=task, sample_weight=times / 3.0), expected, 1e-7)
    # Both classes weigh the same in every task.
    named = clone(est).set_params(class_weight={1: 0.25}).fit(X, y, task=task)
    close(named, est.fit(X, y, task=task, sample_weight=np.where(y == 1, 0.25, 1.0)), 1e-7)


# --------------------------------------------------------------------------------- faults
@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda w: -w, "not finite numbers of at least 0"),
        (lambda w: np.where(w == 1.0, np.nan, w), "not finite numbers of at least 0"),
        (lambda w: np.where(w == 1.0, np.inf, w), "not finite numbers of at least 0"),
        (lambda w: w[1:], "needs one weight for each"),
        (lambda w: w[:, None], "needs one weight for each"),
        (lambda w: 0.5, "needs one weight for each"),
        (lambda w: sparse.csr_matrix(w), r"sparse; give an array"),
        (lambda w: w.astype(str).astype(object) + "73.21", "not numbers"),
        (lambda w: {0: w}, "must be a mapping"),
        (lambda w: 0.0 * w, "weights are zero"),
    ],
)
def test_wrong_weights(wrong, words):
    X, y, task, times = tables()
    est = skpmtl.PrivateMTL(tasks=range(5), random_state=0).fit(X, y, task=task)
    with pytest.raises(ValueError, match=words) as error:
        est.fit(X, y, task=task, sample_weight=wrong(times / 3.0))
    assert not hasattr(est, "coef_") and "73.21" not in str(error.value)
    mapped = {t: X[task == t] for t in TASKS[:5]}, {t: y[task == t] for t in TASKS[:5]}
    with pytest.raises(ValueError, match="mapping"):
        est.fit(*mapped, sample_weight=times / 3.0)
    with pytest.raises(ValueError, match="only one of X and sample_weight"):
        est.fit(*mapped, sample_weight={0: np.ones(16)})


@pytest.mark.parametrize("kind", ["real", "two", "three"])
def test_clients_of_fedmtl_have_weights(kind):
    """A step on all rows of a client is that of rows that are repeated; 0 leaves them out."""
    X, y, client, times = tables({"real": 0, "two": 2, "three": 3}[kind])
    Y = np.column_stack([y, np.roll(y, 3)]).astype(float)
    Y[client == 1, 1] = np.nan
    cls = skpmtl.FedMTLRegressor if kind == "real" else skpmtl.FedMTLClassifier
    est = cls((5,), n_rounds=2, batch_size=1000, solver="sgd", random_state=0)
    est.set_params(aggregation="local")  # what others count for goes by numbers of rows
    again = np.repeat(np.arange(len(y)), times)
    found = clone(est).fit(X, Y, client=client, sample_weight=times / 3.0)
    plain = est.fit(X[again], Y[again], client=client[again])
    assert_allclose(found._models_.theta, plain._models_.theta, rtol=1e-8, atol=1e-10)
    assert_allclose(found.history_["loss"], plain.history_["loss"])
    some, mini = times > 0, clone(est).set_params(batch_size=5, aggregation="per-task")
    fewer = clone(mini).fit(X[some], Y[some], client=client[some])
    mini.fit(X, Y, client=client, sample_weight=some.astype(float))
    assert_allclose(mini._models_.theta, fewer._models_.theta, rtol=1e-8, atol=1e-10)
    if kind == "real":
        return
    w = np.where(y == 1, 0.5, 1.0)
    named = clone(est).set_params(class_weight={1: 0.5}).fit(X, y, client=client)
    close_to = clone(est).fit(X, y, client=client, sample_weight=w)._models_.theta
    assert_allclose(named._models_.theta, close_to, rtol=1e-8, atol=1e-10)
    for k in range(5):
        counts = np.bincount(y[client == k])
        w[client == k] = (counts.min() / counts)[y[client == k]]
    balanced = clone(est).set_params(class_weight="balanced").fit(X, y, client=client)
    close_to = clone(est).fit(X, y, client=client, sample_weight=w)._models_.theta
    assert_allclose(balanced._models_.theta, close_to, rtol=1e-8, atol=1e-10)


# -------------------------------------------------------------------------------- records
@pytest.mark.parametrize("loss", [SQUARED, LOGISTIC, MULTINOMIAL])
def test_a_weighted_record_is_clipped_before_it_is_weighted(loss):
    """No record moves the sum by more than the bound, nor its replacement by more than two."""
    rng = np.random.default_rng(loss)
    n, d, C, clip = 30, 3, 3 if loss == MULTINOMIAL else 1, 0.7
    X = read_only(np.exp(2.0 * rng.normal(size=(n, 1))) * rng.normal(size=(n, d)))
    y = {SQUARED: 9 * rng.normal(size=n), LOGISTIC: rng.choice([-1.0, 1.0], n)}.get(
        loss, rng.integers(0, 3, n).astype(float)
    )
    w, W = rng.random(n), rng.normal(size=(C, d + 1))

    def total(weights, rows):
        mask = np.isin(np.arange(n), rows).view(np.uint8)
        return kernel_sum(loss, X, y, W[:, :-1], W[:, -1], clip, mask=mask, weights=weights)

    single = [total(np.ones(n), [i]) for i in range(n)]
    assert max(np.linalg.norm(g) for g in single) == pytest.approx(clip, rel=1e-9)
    assert_allclose(total(w, range(n)), sum(a * g for a, g in zip(w, single, strict=True)))
    far = max(
        np.linalg.norm(total(np.ones(n), [i]) - total(np.full(n, b), [j]))
        for i in range(12)
        for j in range(12)
        for b in (0.0, 0.5, 1.0)
    )
    assert clip < far <= 2.0 * clip


RECORDS = {
    "meta": skpmtl.DPMetaInit(inner_steps=3, tasks=TASKS),
    "disjoint": skpmtl.DPMetaInit(
        inner_steps=3, batches="disjoint", batch_size=4, tasks=TASKS, adjacency="zero-out"
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_replay_of_records_with_weights(name):
    """The neighbour has another record of another weight; what moves stays within the report."""
    X, y, task = long_data()
    est, w = RECORDS[name], np.random.default_rng(3).random(len(y))
    unit = (None,) if name in ("meta", "disjoint") else ()
    for before, after in ((0.0, 1.0), (1.0, 1.0)):
        w[14], new, other, target = before, w.copy(), X.copy(), y.copy()
        new[14], other[14], target[14] = after, 40.0, -30.0
        pair = (X, y, task, *unit, w), (other, target, task, *unit, new)
        result = audit(est, *pair, n_draws=0)
        assert result.passed, str(result)
        assert result.sensitivity_observed > 0.01 * result.sensitivity_stated


def test_divisors_of_records_do_not_follow_weights():
    """Half the weights, half the way of the first step: nothing is divided by their sum."""
    X, y, task = long_data()
    settings = {"tasks": TASKS, "epsilon": 1e13, "delta": 1e-3, "inner_steps": 1, "clip_norm": 9.0}
    settings |= {"random_state": 0, "tasks_per_round": "all", "inner_learning_rate": 0.1}
    whole, half = (
        skpmtl.DPMetaInit(**settings).fit(X, y, task=task, sample_weight=np.full(len(y), w))
        for w in (1.0, 0.5)
    )
    assert_allclose(half.init_coef_, 0.5 * whole.init_coef_, rtol=1e-4)
    balanced = skpmtl.DPMetaInitClassifier(
        class_weight="balanced", classes=[0, 1], tasks=TASKS, random_state=0
    )
    with pytest.raises(ValueError, match="no guarantee for single records allows"):
        balanced.fit(X, (y > 0).astype(int), task=task)


# -------------------------------------------------------------------------- other places
@pytest.mark.parametrize("name", ["low rank", "meta"])
def test_parts_have_weights(tmp_path, name):
    X, y, task = long_data()
    w = np.where(task == 4, 0.0, np.random.default_rng(0).random(len(y)))
    est = (
        skpmtl.MPMTLLowRank(tasks=TASKS, random_state=0)
        if name == "low rank"
        else (skpmtl.DPMetaInit(tasks=TASKS, inner_steps=2, random_state=0))
    )
    parts = write_parts(tmp_path, X, y, task, [[1, 4], [0], [2, 3, 5]])
    for part, tasks in zip(parts, [[1, 4], [0], [2, 3, 5]], strict=True):
        np.save(part / "weight.npy", w[np.isin(task, tasks)])
    whole = clone(est).fit(X, y, task=task, sample_weight=w)
    assert_same_fit(fit_shards(clone(est), parts), whole, rtol=1e-10, atol=1e-12)
    assert np.abs(whole.coef_ - est.fit(X, y, task=task).coef_).max() > 1e-3
    # A run that goes on has to have the same weights.
    journal = tmp_path / "journal"
    fit_shards(clone(est), parts, journal=journal)
    np.save(parts[0] / "weight.npy", w[np.isin(task, [1, 4])] * np.linspace(0.5, 1, 28))
    with pytest.raises(ValueError, match="other rows than when the journal"):
        fit_shards(clone(est), parts, journal=journal)


# -------------------------------------------------------------------- scikit-learn's tools
@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_strengths_are_chosen_with_weights(n_classes):
    X, y, task, times = tables(n_classes)
    again, w = np.repeat(np.arange(len(y)), times), times / 3.0
    path, repeated = (
        skpmtl.mtl_path(
            *given,
            alphas=[0.3, 0.1],
            tol=1e-10,
            sample_weight=weight,
            loss={0: "squared", 2: "logistic", 3: "multinomial"}[n_classes],
        )
        for given, weight in (((X, y, task), w), ((X[again], y[again], task[again]), None))
    )
    assert_allclose(path.coefs, repeated.coefs, atol=1e-4)
    # Folds of which one row each is in all places where it is repeated.
    cls = skpmtl.MPMTLLowRankClassifierCV if n_classes else skpmtl.MPMTLLowRankCV
    fold = np.arange(len(y)) // 2 % 3
    some, each = fold[times > 0], fold[again]
    found = cls(alphas=[0.3, 0.1], cv=PredefinedSplit(some), tol=1e-10)
    found.fit(X, y, task=task, sample_weight=w)
    plain = cls(alphas=[0.3, 0.1], cv=PredefinedSplit(each), tol=1e-10)
    plain.fit(X[again], y[again], task=task[again])
    name = "log_loss_path_" if n_classes else "mse_path_"
    # Where a fold lacks a class in a task, labels are spread by how many rows count.
    assert_allclose(getattr(found, name), getattr(plain, name), rtol=0.05 if n_classes else 1e-6)
    # Folds that list rows count those without weight.
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    listed = found.set_params(cv=splits).fit(X, y, task=task, sample_weight=w)
    assert_allclose(getattr(listed, name), getattr(plain, name), rtol=0.05 if n_classes else 1e-6)


def test_routing_of_weights():
    """Through pipelines, searches and cross-validation, beside the task ids."""
    X, y, task, times = tables()
    table, w = np.column_stack([task, X]), times / 3.0
    with sklearn.config_context(enable_metadata_routing=True):
        est = skpmtl.MPMTLLowRank(0.1, epsilon=None, task_feature=0)
        est = est.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        folds = skpmtl.TaskStratifiedKFold(2, task_feature=0)
        search = GridSearchCV(est, {"alpha": [0.01, 10.0]}, cv=folds)
        search.fit(table, y, sample_weight=w)
        best = clone(est).set_params(**search.best_params_).fit(table, y, sample_weight=w)
        close(search.best_estimator_, best)
        pipe, params = make_pipeline(skpmtl.TaskScaler(task_feature=0), est), {"sample_weight": w}
        if parse_version(sklearn.__version__) >= parse_version("1.8"):
            # Before, no pipeline of scikit-learn could be cross-validated with weighted scores.
            scores = cross_validate(pipe, table, y, cv=folds, params=params)["test_score"]
            assert not np.allclose(scores, cross_validate(pipe, table, y, cv=folds)["test_score"])
        ids, scorer = {"task": task, "sample_weight": w}, task_scorer("neg_mean_squared_error")
        apart = skpmtl.MPMTLLowRank(0.1, epsilon=None).set_fit_request(sample_weight=True)
        split = PredefinedSplit(np.arange(len(y)) % 2)
        scored = cross_validate(apart, X, y, cv=split, params=ids, scoring=scorer)["test_score"]
        odd = np.arange(len(y)) % 2 == 1
        apart.fit(X[odd], y[odd], task=task[odd], sample_weight=w[odd])
        error = (apart.predict(X[~odd], task=task[~odd]) - y[~odd]) ** 2
        assert scored[0] == pytest.approx(-np.average(error, weights=w[~odd]))
        train, test = next(folds.split(table, y))
        fitted = clone(est).fit(table[train], y[train], sample_weight=w[train])
        expected = fitted.score(table[test], y[test], sample_weight=w[test])
        first = cross_validate(est, table, y, cv=folds, params=params)["test_score"][0]
        assert expected == pytest.approx(first)


def test_scores_have_weights():
    rng = np.random.default_rng(0)
    y, p, task = rng.normal(size=40), rng.normal(size=40), np.repeat([0, 1], 20)
    times = rng.integers(0, 3, 40)
    again, label = np.repeat(np.arange(40), times), (y > 0).astype(int)
    p = np.round(p, 1)  # with ties
    assert nmse(y, p, times) == pytest.approx(nmse(y[again], p[again]))
    found = average_auc(label, p, task, times / 2.0)
    assert found == pytest.approx(average_auc(label[again], p[again], task[again]))
    one = [
        roc_auc_score(label[task == k], p[task == k], sample_weight=times[task == k])
        for k in (0, 1)
    ]
    assert found == pytest.approx(np.mean(one))
    wide = np.column_stack([label[:20], label[20:]]), np.column_stack([p[:20], p[20:]])
    both = average_auc(*wide, sample_weight=times[:20])
    assert both == average_auc(label, p, task, np.tile(times[:20], 2))
    X = rng.normal(size=(40, 2))
    model = skpmtl.PerTask(Ridge(1.0)).fit(X, y, task=task)
    scores = task_scores(model, X, y, task=task, sample_weight=np.where(task == 0, times, 0))
    mine = task == 0
    alone = model.estimators_[0].score(X[mine], y[mine], sample_weight=times[mine])
    assert scores.scores[0] == pytest.approx(alone) and np.isnan(scores.scores[1])
