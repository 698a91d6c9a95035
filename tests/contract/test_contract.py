"""What every method owes: each estimator with each option, in every place that it may be used.

A method that is new has to be in `tests.helpers.cases`, and nowhere else.
"""

import json
import pickle
import re
from collections import Counter
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

import skpmtl
from skpmtl import load_billboard, save_billboard
from skpmtl.exchange.wire import pack, unpack
from skpmtl.meta import finetune
from skpmtl.privacy import PrivacyReport, compose
from skpmtl.privacy.replay import replay
from skpmtl.privacy.rng import (
    EXACT_ARITHMETIC,
    SEEDED_ARITHMETIC,
    SYSTEM_ARITHMETIC,
    ExactSource,
    SystemSource,
)
from skpmtl.shards import fit_shards
from skpmtl.solvers import losses, ridge
from skpmtl.tables import scores
from tests.helpers.cases import (
    CASES,
    CHANGED,
    EXACT,
    FIRST,
    N_ROWS,
    N_TASKS,
    TASKS,
    Counts,
    arguments,
    every,
    everybody,
    fit,
    fitted,
    labels,
    long_data,
    neighbour,
    replaced,
    seeded,
)
from tests.helpers.sites import Sites, assert_same_fit, released, write_parts

LONG = [case for case in CASES + EXACT if case.form in ("long", "csr")]
# Fits that can be repeated, by curators who see none of the rows.
CURATED = [
    case
    for case in LONG
    if case.private
    and hasattr(case.estimator, "_curator")
    and not getattr(case.estimator, "secure", False)
    and not case.unit
]
SPLIT = [[1, 4], [0], [2, 3, 5]]


def first_of_every_form(cases):
    """Of every estimator; the others share all but their plan with it."""
    seen = {}
    for case in cases:
        seen.setdefault((type(case.estimator), case.form, case.private), case)
    return seen.values()


def rows_of(case, data):
    """X (as the case has it), y, task."""
    X, y, task = data
    return sparse.csr_matrix(X) if case.form == "csr" else X, y, task


def assert_same(found, expected):
    """Equal but for the last bits, which depend on where in memory an array begins."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def exported(est, task):
    """Model of a task, without its posterior, for which see `test_uncertainty`."""
    posterior = "covariance", "noise_variance", "dof"
    return {name: of for name, of in est.export_task(task).items() if name not in posterior}


# ---------------------------------------------------------------------------------- leaks
def replayed(case, other):
    """A fit of the data of a case, and one of others from the same releases. -> Playback, ratio

    The ratio is that of the largest observed over the stated sensitivity.
    """
    case.skip_without_extras()
    data = long_data(case.n_classes)
    pair = arguments(case, data), arguments(case, other(case, data))
    failures, first, (observed, stated), _ = replay(case.estimator, *pair, 0)
    assert not failures, "\n".join(failures)
    return first, observed / stated


@every(CASES)
@pytest.mark.spread(46)
def test_only_releases_depend_on_a_neighbour(case):
    """The report counts and names them, and says what is public, or why nothing is released."""
    course, ratio = replayed(case, neighbour)
    if course.tape.releases and not case.sampled:
        # The neighbours are far apart, so that the check of sensitivities has something to see; in
        # one draw of 150, noise puts a model where the rows of both have gradients near zero.
        again = (replayed(case, neighbour)[1] for _ in range(2))
        assert any(found > 0.01 for found in chain([ratio], again))
    est, made, by_tasks = course.fitted, Counter(), 0
    for release in course.tape.releases:
        if "tasks" in release.entry:  # each of its tasks has added its noise to a part, or several
            by_tasks += len(release.values)
        elif len(release.values):
            made[release.entry["mechanism"]] += 1
    text = est.privacy_.text(None)
    kinds = r"[:;] (\d+) with ([\w -]+?) noise, sens"
    told = {kind: int(n) for n, kind in re.findall(kinds, text)}
    assert told == dict(made)
    each = re.findall(r"[:;] (\d+) by each of (\d+) tasks with Gaussian noise, sens", text)
    assert sum(int(times) * int(tasks) for times, tasks in each) == by_tasks
    silent = not made and not by_tasks
    assert silent == ("published nothing" in text) == ("nothing is released" in text)
    if silent:
        assert "because" in est.privacy_.summary() and est.privacy_.epsilon == 0.0
    assert not re.search(r"= [,.;]", text)  # nothing is said to be empty
    assert "were read from private rows" not in text


@every(first_of_every_form(CASES))
@pytest.mark.spread(3)
def test_only_releases_depend_on_all_rows(case):
    """Whatever is public and depends on rows comes from releases, which the report lists."""
    replayed(case, everybody)


def _filled(value):
    def rows(X, y):
        return np.full_like(X, value), np.full_like(y, value) if y.dtype.kind == "f" else y

    return rows


def _scaled(factor):
    def rows(X, y):
        return factor * X, factor * y if y.dtype.kind == "f" else y

    return rows


ROWS = {  # of the task, or of the record, that the neighbour has
    "1e150": _scaled(1e150),
    "1e308": _filled(1e308),
    "alternating 1e308": lambda X, y: (1e308 * np.sign(X), y),
    "denormal": _scaled(1e-310),
    "constant": _filled(7.0),
    "zero": _filled(0.0),
    "duplicate": lambda X, y: (np.repeat(X[:1], len(X), axis=0), np.repeat(y[:1], len(y))),
    "target 1e300": lambda X, y: (X, np.full_like(y, 1e300) if y.dtype.kind == "f" else y),
    "one row": lambda X, y: (X[:1], y[:1]),
    "one class": lambda X, y: (X, np.full_like(y, y[0])),
    "no row": lambda X, y: (X[:0], y[:0]),
}


@pytest.mark.parametrize(
    "case, rows",
    [
        # By default every estimator meets one kind of rows, and every kind one estimator.
        pytest.param(
            case,
            rows,
            id=f"{case.name}-{rows}",
            marks=case.marks if (i + k) % len(ROWS) == 2 else (*case.marks, pytest.mark.slow),
        )
        for i, case in enumerate(FIRST.values())
        for k, rows in enumerate(ROWS)
        if rows not in ("one row", "no row") or not case.sizes_public
    ],
)
def test_adversarial_neighbours(case, rows):
    def other(case, data):
        X, y, task = data
        mine = np.flatnonzero(task == CHANGED)
        X, y = X[mine].copy(), y[mine].copy()
        part = slice(0, 1) if case.record else slice(None)
        if rows in ("one row", "no row"):
            X, y = ROWS[rows](X, y)
        else:
            X[part], y[part] = ROWS[rows](X[part], y[part])
        return replaced(data, CHANGED, X, y)

    replayed(case, other)


@every(case for case in CASES if case.n_classes == 3 and not case.needs)
@pytest.mark.spread(3)
def test_a_label_of_one_task_alone(case):
    """Of three public classes the others have two; the neighbour brings the third, or does not."""
    data = long_data(2)
    mine = data[2] == CHANGED
    y = data[1][mine].copy()
    y[: 1 if case.record else 5] = 2
    pair = arguments(case, data), arguments(case, replaced(data, CHANGED, data[0][mine], y))
    for first, second in (pair, pair[::-1]):
        assert not replay(case.estimator, first, second, 0)[0]


# --------------------------------------------------------------------------------- report
@every(CASES + EXACT)
@pytest.mark.spread(10)
def test_report(case):
    est, _ = fitted(case)
    report = est.privacy_
    assert report is est.billboard_.report
    assert est.export_billboard().report == report and est.export_billboard() is not est.billboard_
    assert PrivacyReport.from_json(report.to_json()) == report
    json.loads(report.to_json(), parse_constant=pytest.fail)  # strict JSON: no NaN, Infinity
    if not case.private:
        assert report.guarantee == "none" and "NO differential privacy" in report.text(None)
        return
    assert 0 <= report.epsilon <= est.epsilon * (1 + 1e-9)
    assert report.delta == est.delta or est.delta is None
    assert report.adjacency == est.adjacency
    assert f"adjacency: {est.adjacency}" in report.text(None) and "public" in report.text(None)
    assert compose([report, report]).epsilon >= report.epsilon
    if getattr(est, "secure", False):
        assert (report.rng, report.arithmetic) == (ExactSource.description, EXACT_ARITHMETIC)
        assert "Arithmetic: exact: " in report.text(None)
    elif report.releases:
        assert report.arithmetic == SEEDED_ARITHMETIC


@every(FIRST.values())
@pytest.mark.spread(4)
def test_noise_is_that_of_the_operating_system_by_default(case):
    seeded, data = fitted(case)
    est, billboards = clone(case.estimator), [seeded.billboard_]
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002  # numpy's global stream has no part in it
        fit(est, *arguments(case, data))
        billboards.append(est.billboard_)
        if est.privacy_.releases:
            described = est.privacy_.rng, est.privacy_.arithmetic
            assert described == (SystemSource.description, SYSTEM_ARITHMETIC)
    found = [np.concatenate([np.empty(0), *map(np.ravel, released(b))]) for b in billboards]
    if found[0].size:  # noise may lead to other queries
        for one, other in combinations(found, 2):
            assert one.shape != other.shape or (one != other).any()


@every(CURATED)
@pytest.mark.spread(9)
def test_report_is_known_before_the_fit(case):
    """From public numbers; bounds that follow the releases are those of the start."""
    est, data = fitted(case)
    population = Sites(est, rows_of(case, data), []).population
    planned = seeded(case)._planned_report(population)
    assert (planned.epsilon, planned.delta, planned.mu) == (
        est.privacy_.epsilon,
        est.privacy_.delta,
        est.privacy_.mu,
    )
    # Use of the shares follows the releases.
    if any("sensitivity" not in entry for entry in planned.releases):
        budgets = {entry["name"]: entry["mu"] ** 2 for entry in planned.releases}
        if "budget shares" not in planned.public_inputs:  # which follow the releases, too
            for report in (planned, est.privacy_):
                spent = sum(entry["mu"] ** 2 for entry in report.releases)
                assert 0 < spent <= planned.mu**2 * (1.0 + 1e-9)
            return
        assert sum(budgets.values()) == pytest.approx(planned.mu**2)
        for entry in est.privacy_.releases:
            budgets[entry["name"]] -= entry["mu"] ** 2
        assert min(budgets.values()) > -1e-9 * planned.mu**2
        return
    assert len(planned.releases) == len(est.privacy_.releases)
    follows = any(entry["name"] == "lengths, counts" for entry in planned.releases)
    if not follows:
        assert planned == est.privacy_


# ----------------------------------------------------------------------------------- file
NEW = 20 + np.repeat([0, 1], N_ROWS)


def newcomers(case):
    """Rows of two more tasks."""
    X, y, _ = long_data(case.n_classes, seed=7)
    return rows_of(case, (X[: len(NEW)], y[: len(NEW)], NEW))


@every(first_of_every_form(LONG))
@pytest.mark.spread(10)
def test_new_tasks_go_on_from_a_file_alone(case, tmp_path):
    """Another machine has what the one of the fit has: models, predictions, exports, report."""
    est, data = fitted(case)
    save_billboard(est, tmp_path / "board.npz")
    there = load_billboard(tmp_path / "board.npz")
    assert type(there) is type(est) and len(there.tasks_) == 0
    if "dtype" in there.get_params():  # how rows are held here is no part of a file
        there.set_params(dtype=est.dtype)
    assert there.privacy_ == est.privacy_ and there.privacy_.text(None) == est.privacy_.text(None)
    for attribute in ("mean_coef_", "mean_intercept_", "init_coef_", "init_intercept_", "lam_"):
        assert hasattr(there, attribute) == hasattr(est, attribute) or not case.private
        if hasattr(there, attribute):
            assert_array_equal(getattr(there, attribute), getattr(est, attribute))

    # the tasks of the fit: same rows, same models
    X, y, task = rows_of(case, data)
    again, some = pickle.loads(pickle.dumps(there)), np.isin(task, SPLIT[0])
    for mine in (some, ~some):  # in other company
        again.personalize(X[mine], y[mine], task=task[mine])
    assert_array_equal(again.tasks_, est.tasks_)
    if case.close:
        assert_allclose(again.coef_, est.coef_, atol=case.close * np.abs(est.coef_).max())
    elif not case.keeps:
        assert_same(again.coef_, est.coef_)
        assert_same(again.intercept_, est.intercept_)

    X, y, task = newcomers(case)
    before = pickle.loads(pickle.dumps(est))
    for one in (there, est):
        one.personalize(X, y, task=task)
    assert_array_equal(est.coef_[:N_TASKS], before.coef_)  # of the others, nothing has changed
    assert_array_equal(est.intercept_[:N_TASKS], before.intercept_)
    assert pickle.dumps(pack(est.billboard_)) == pickle.dumps(pack(before.billboard_))
    if hasattr(est, "task_privacy"):
        assert est.task_privacy(3) == before.task_privacy(3)
        assert est.task_privacy(20)["epsilon"] == est.task_privacy(21)["steps"] == 0
    assert there.tasks_.tolist() == [20, 21] and est.tasks_.tolist() == [*TASKS, 20, 21]
    assert_same(there.coef_, est.coef_[N_TASKS:])
    assert_same(there.intercept_, est.intercept_[N_TASKS:])
    check = assert_array_equal if case.n_classes else assert_same
    check(*(one.predict(X, task=task) for one in (there, est)))
    ours, theirs = (one.score(X, y, task=task) for one in (there, est))
    assert ours == pytest.approx(theirs, rel=1e-9)
    here, other = exported(there, 21), exported(est, 21)
    assert_same(here.pop("coef"), other.pop("coef"))
    assert_allclose(here.pop("intercept"), other.pop("intercept"), rtol=1e-9, atol=1e-9)
    assert here == other
    if case.n_classes:
        assert_same(*(one.predict_proba(X, task=task) for one in (there, est)))


@every(case for case in LONG if not {"clusters", "relation"} & {*case.name.split("-")})
@pytest.mark.spread(14)
def test_unseen_tasks_get_the_mean_model_or_an_error(case):
    est, data = fitted(case)
    X, strange = rows_of(case, data)[0][:5], [99] * 5
    answer = est.decision_function if case.n_classes else est.predict
    if hasattr(est, "mean_coef_") and hasattr(est, "mean_intercept_"):
        if case.close:  # of models that are no secret
            shared = est.coef_ - getattr(est, "outlier_coef_", 0.0)
            assert_allclose(est.mean_coef_, shared.mean(axis=0), rtol=1e-9, atol=1e-12)
        elif hasattr(est, "init_coef_"):
            assert_array_equal(est.mean_coef_, est.init_coef_)
            assert_array_equal(est.mean_intercept_, est.init_intercept_)
        W, b = np.atleast_2d(est.mean_coef_), np.atleast_1d(est.mean_intercept_)
        expected = X @ W.T + b
        expected = np.exp(expected) if isinstance(case.n_classes, Counts) else expected
        est.set_params(unseen_task="mean")
        assert_same(answer(X, task=strange), expected if len(b) > 1 else expected[:, 0])
    else:
        with pytest.raises(ValueError, match="99.*released no mean"):
            est.set_params(unseen_task="mean").predict(X, task=strange)
    with pytest.raises(ValueError, match="not fitted: .99"):
        est.set_params(unseen_task="error").predict(X, task=strange)


@pytest.mark.filterwarnings("ignore:With a 2-D y")
# How near to 1e-12 rounding lets a gap come is up to the processor; models are compared anyway.
@pytest.mark.filterwarnings(
    "ignore:Duality gap .* Rounding hides:sklearn.exceptions.ConvergenceWarning"
)
@every(first_of_every_form([*FIRST.values(), *EXACT]))
@pytest.mark.parametrize("form", ["wide", "mapping", "column"])
@pytest.mark.spread(10)
def test_forms_of_input_give_one_fit(form, case):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 3)) / 2
    scores = X @ rng.normal(size=(3, N_TASKS)) + 0.1 * rng.normal(size=(N_ROWS, N_TASKS))
    Y = np.column_stack([labels(score, case.n_classes) for score in scores.T]).astype(float)
    Y[rng.random(Y.shape) < 0.2] = np.nan
    task, row = np.nonzero(~np.isnan(Y.T))
    long, y = (X[row], Y[row, task], task), Y[row, task]
    given = {
        "wide": (X, Y),
        "mapping": tuple({t: part[task == t] for t in TASKS} for part in long[:2]),
        "column": (np.column_stack([task, X[row]]), y),
    }[form]
    exact = {"tol": 1e-12} if case.close and hasattr(case.estimator, "alpha") else {}
    one, other = fit(seeded(case).set_params(**exact), *long), seeded(case).set_params(**exact)
    fit(other.set_params(task_feature=0) if form == "column" else other, *given)
    close = {"rtol": 1e-6, "atol": 1e-6}
    for ours, theirs in zip(released(other.billboard_), released(one.billboard_), strict=True):
        assert_allclose(ours, theirs, **close)
    if case.close:  # forms are solved in different ways: models are as near as the root of tol
        close = {"atol": (1e-5 if exact else case.close) * np.abs(one.coef_).max()}
    assert_allclose(other.coef_, one.coef_, **close)
    assert_allclose(other.intercept_, one.intercept_, **close)
    predicted = other.predict(given[0])
    if form == "mapping":
        predicted = np.concatenate([predicted[t] for t in TASKS])
    elif form == "wide":
        assert predicted.shape == Y.shape
        predicted = predicted[row, task]
    if not case.n_classes:
        assert_allclose(predicted, one.predict(long[0], task=task), rtol=1e-3, atol=1e-3)
    else:
        assert np.mean(predicted == one.predict(long[0], task=task)) > 0.95


def collect(tree, numbers):
    """All numbers of a JSON tree."""
    if isinstance(tree, (list, dict)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            collect(item, numbers)
    elif isinstance(tree, (int, float)) and not isinstance(tree, bool):
        numbers.add(tree)


@every(first_of_every_form(case for case in LONG if not case.unit))
@pytest.mark.spread(12)
def test_nothing_private_is_in_the_file(case, tmp_path):
    case.skip_without_extras()
    X, y, task = long_data(case.n_classes)
    # Marks: a number in X, a target, a name, and a task with a number of rows like no other.
    mark, name, crowd = 0.12345678901234567, "marked task", 87
    mine = np.flatnonzero(task == CHANGED).repeat(9)[:crowd]
    X, y, task = replaced((X, y, task), CHANGED, X[mine], y[mine])
    X[:, 2] = np.where(X[:, 2] > 0.3, mark, X[:, 2])
    if not case.n_classes:
        y[-7:] = mark
    ids = np.array([f"t{k}" for k in TASKS[:CHANGED]] + [name] + [f"t{k}" for k in (4, 5)])
    est = seeded(case).set_params(tasks=ids.tolist())
    public = {name: getattr(est, name, None) for name in ("clusters", "relation")}
    public = {name: of for name, of in public.items() if isinstance(of, dict)}  # not a graph
    for kind, of in public.items():
        est.set_params(**{kind: {str(ids[k]): of[k] for k in TASKS}})
    X, y, task = rows_of(case, (X, y, ids[task]))
    save_billboard(est.fit(X, y, task=task), tmp_path / "board.npz")
    content = (tmp_path / "board.npz").read_bytes()
    assert np.float64(mark).tobytes() not in content and b"0.1234567890123" not in content
    assert name.encode("utf-32-le") not in content
    assert (name.encode() in content) == bool(public)
    text, arrays = pack(est.billboard_)
    numbers = set(np.concatenate([[0.0], *(a.ravel() for a in arrays.values())]).tolist())
    collect(json.loads(text), numbers)
    assert crowd not in numbers
    models = np.concatenate([np.asarray(est.coef_).ravel(), est.intercept_.ravel()])
    models = models[~np.isin(models, arrays.get("board.start", 0.0))]  # it may stay there
    assert not numbers & set(models[models != 0].tolist())


# ----------------------------------------------------------------------------------- wire
@every(CASES + EXACT)
@pytest.mark.spread(12)
def test_wire(case):
    """JSON and arrays, for a network; also while a fit goes on, when there is no report yet."""
    billboard = fitted(case)[0].billboard_
    text, arrays = pack(billboard)
    other = unpack(text, {name: array.copy() for name, array in arrays.items()})
    assert type(other) is type(billboard) and other is not billboard
    text_again, arrays_again = pack(other)
    assert text_again == text and list(arrays_again) == list(arrays)
    for name, array in arrays.items():
        assert_array_equal(arrays_again[name], array)
        assert arrays_again[name].dtype == array.dtype
    if hasattr(billboard, "history"):
        assert other.history() == billboard.history()
    text, arrays = pack(replace(billboard, report=None))
    assert unpack(text, arrays).report is None


# ---------------------------------------------------------------------- sites and shards
@every(first_of_every_form(CURATED))
@pytest.mark.spread(7)
def test_sites_agree_with_one_process(case):
    """Whether they send sums, or contributions that the curator bounds and adds up itself."""
    est, data = fitted(case)
    whole, coef = est.billboard_, est.coef_
    for send in ("sums", "contributions"):
        sites = Sites(clone(est), rows_of(case, data), [[1, 4], [0, 2, 3, 5]], send)
        billboard = sites.run()
        assert sites.asked or not whole.report.releases
        for ours, theirs in zip(released(billboard), released(whole), strict=True):
            assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
        assert billboard.report == whole.report
        assert_allclose(sites.models(billboard), coef, rtol=1e-10, atol=1e-12)


class Recorder:
    """A journal in memory, which remembers what an interrupted run was told."""

    def __init__(self, replies=()):
        self.replies, self.kept, self.place = list(replies), [], 0

    def recall(self, source):
        if self.place == len(self.replies):
            return None
        reply, state = self.replies[self.place]
        self.place += 1
        source.state = state
        return {name: value.copy() for name, value in reply.items()}

    def keep(self, reply, source):
        copy = {name: np.copy(value) for name, value in reply.items()}
        self.kept.append((copy, source.state))


@every(first_of_every_form(CURATED))
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.spread(6)
def test_an_interrupted_run_repeats_no_release(case, at_end):
    """Whatever was released before the cut is not asked for, nor released, again."""
    est, data = seeded(case), long_data(case.n_classes)

    def start(journal):
        sites = Sites(clone(est), rows_of(case, data), SPLIT)
        return sites.run(journal), sites.asked

    first = Recorder()
    whole, asked = start(first)
    cut = len(first.kept) if at_end else (len(first.kept) + 1) // 2
    billboard, again = start(Recorder(first.kept[:cut]))
    for ours, theirs in zip(released(billboard), released(whole), strict=True):
        assert_array_equal(ours, theirs)
    draws = sum("drawn" in reply for reply, _ in first.kept[:cut])
    assert len(again) == len(asked) - (cut - draws)


@every(first_of_every_form(case for case in CURATED if case.form == "long"))
@pytest.mark.spread(7)
def test_parts_agree_with_one_table(case, tmp_path):
    whole, (X, y, task) = fitted(case)
    # In Fortran order, so that workers copy it and loops need not be compiled for read-only rows.
    parts = write_parts(tmp_path, np.asfortranarray(X), y, task, SPLIT)
    est = seeded(case)
    assert fit_shards(est, parts) is est
    assert_same_fit(est, whole, rtol=1e-12, atol=1e-13)
    assert_allclose(est.predict(X, task=task), whole.predict(X, task=task), rtol=1e-11)
    for model in (est, whole):
        model.personalize(X[:9] + 1, y[9:18], task=[50] * 9)
    ours, theirs = exported(est, 50), exported(whole, 50)
    assert_allclose(ours.pop("coef"), theirs.pop("coef"), rtol=1e-12, atol=1e-13)
    assert_allclose(ours.pop("intercept"), theirs.pop("intercept"), rtol=1e-12, atol=1e-13)
    assert ours == theirs
    if hasattr(est, "task_privacy"):
        assert est.task_privacy(3) == whole.task_privacy(3)


# ------------------------------------------------------------------------------- threads
MANY = np.random.default_rng(0).integers(10, N_ROWS + 1, 40)  # rows of every task


def with_many_tasks(case):
    """The estimator for 40 tasks, and their rows."""
    case.skip_without_extras()
    data = long_data(case.n_classes, sizes=MANY)
    return seeded(case).set_params(tasks=range(len(MANY))), rows_of(case, data)


@pytest.fixture
def n_threads(monkeypatch):
    """`set_num_threads`, undone afterwards, with blocks so small that there are many."""
    for module in (ridge, losses, scores, finetune):
        monkeypatch.setattr(module, "_BLOCK", 64)
    yield skpmtl.set_num_threads
    skpmtl.set_num_threads(None)


@every(
    first_of_every_form(
        case
        for case in LONG  # classes have to compile, and groups of counts take seconds
        if not case.n_classes and "Clustered" not in case.name and not case.unit
        if not getattr(case.estimator, "secure", False) and "graph" not in case.name  # other tasks
    )
)
@pytest.mark.spread(6)
def test_results_do_not_depend_on_threads(case, n_threads):
    est, (X, y, task) = with_many_tasks(case)
    results = []
    for count in (1, 5):
        n_threads(count)
        est = clone(est).fit(X, y, task=task)
        results.append((np.asarray(est.coef_), est.intercept_, est.predict(X, task=task)))
    for one, same in zip(*results, strict=True):
        assert_array_equal(one, same)


# ------------------------------------------------------------------------------- float32
def arrays_in(value):
    """All arrays in the attributes of an estimator or a billboard."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays_in(item)
    elif isinstance(value, dict):
        yield from arrays_in(list(value.values()))
    elif hasattr(value, "__dict__") and not isinstance(value, (PrivacyReport, type)):
        yield from arrays_in(list(vars(value).values()))


@every([FIRST[skpmtl.PrivateMeanRegMTL], EXACT[0]])  # the others have to compile
def test_float32_is_the_fit_of_the_same_numbers_in_float64(case):
    wanted, (X, y, task) = with_many_tasks(case)
    X = (X + 0.3).astype(np.float32)
    got = clone(wanted).set_params(dtype="float32")
    new = task >= len(MANY) - 2
    for est, given in ((wanted, X.astype(np.float64)), (got, X)):
        est.set_params(tasks=range(len(MANY) - 2), dtype=given.dtype.name)
        est.fit(given[~new], y[~new], task=task[~new])
        est.personalize(given[new], y[new], task=task[new])
    close = {"rtol": 1e-9, "atol": 1e-10}
    assert_allclose(got.coef_, wanted.coef_, **close)
    assert_allclose(got.intercept_, wanted.intercept_, **close)
    assert_allclose(*(est.predict(X, task=task) for est in (got, wanted)), **close)
    found = list(arrays_in(got))
    assert len(found) > 4
    assert {a.dtype for a in found if a.dtype.kind == "f"} == {np.dtype(np.float64)}
    for a, b in zip(arrays_in(got.billboard_), arrays_in(wanted.billboard_), strict=True):
        if a.dtype.kind == "f":
            assert_allclose(a, b, **close)
