"""The models of a task have the same bits whoever else has rows, how many, and in what blocks.

All sizes of `tests.helpers.sizes` are made so small that they are crossed when one of six tasks
has rows, or more of them. Columns are more than three, since libraries of linear algebra have
kernels of their own for narrow matrices.
"""

import ast

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone

from skpmtl import PrivateMeanRegMTL, PrivateMTL
from skpmtl.privacy.replay import _ALL_PUBLIC, _OF_TASKS, _public_differences
from skpmtl.privacy.tape import Tape
from skpmtl.shards import fit_shards
from skpmtl.tables.table import TaskTable
from tests.helpers.cases import CASES, FIRST, N_ROWS, N_TASKS, arguments, every, labels, replaced
from tests.helpers.sites import write_parts
from tests.helpers.sizes import LEAST, make_tiny, sources, whole

WIDTH = 17
# What five tasks keep and six exceed, of tasks, columns, and squares of them.
SIZES = [(N_TASKS - 1) * number for number in (1, WIDTH, WIDTH + 1, WIDTH**2, (WIDTH + 1) ** 2)]
CHANGED = 1
# Those whose rows are sparse are cases of their own, as they have other code.
SPARSE = {type(c.estimator): c for c in CASES if c.form == "csr" and not c.marks}
CHOSEN = [*FIRST.values(), *SPARSE.values()]


def widened(case):
    """The estimator, with a start of as many columns; and how sure models are, where it says so."""
    est = clone(case.estimator)
    options = est.get_params()
    if options.get("init") is not None:
        coef = np.resize(options["init"]["coef"], (*np.shape(options["init"]["coef"])[:-1], WIDTH))
        est.set_params(init={**options["init"], "coef": coef.tolist()})
    if options.get("uncertainty") is False and est.loss == "squared" and not est._no_posterior():
        est.set_params(uncertainty=True)
    return est


def table_of(case):
    """Tasks of one row among others; of sparse rows, some have no number but zeros."""
    rng = np.random.default_rng(0)
    sizes = [N_ROWS] * N_TASKS if case.sizes_public or case.unit else [4, 7, 1, 12, 1, 5]
    task = np.repeat(np.arange(N_TASKS), sizes)
    X = rng.normal(size=(len(task), WIDTH)) / 2
    if case.form == "csr":
        X *= rng.random(X.shape) < 0.6
        X[np.isin(task, (2, N_TASKS - 1))] = 0.0
    W = rng.normal(size=WIDTH) + 0.3 * rng.normal(size=(N_TASKS, WIDTH))
    score = np.einsum("ij,ij->i", X, W[task]) + 0.1 * rng.normal(size=len(task))
    return X, labels(score, case.n_classes), task


def others(case, data):
    """Tables in which the task `CHANGED` has more rows, or none."""
    rng, (X, y, task) = np.random.default_rng(1), data
    mine = task == CHANGED
    if case.unit or case.record or case.sizes_public:
        X = X[mine].copy()
        X[0] = 3.0 * rng.normal(size=WIDTH)
        yield replaced(data, CHANGED, X, y[mine])
        return
    yield replaced(data, CHANGED, rng.normal(size=(30, WIDTH)), np.resize(y, 30))
    yield replaced(data, CHANGED, X[:0], y[:0])


def moved(est, data, tables, arguments=lambda data: data):
    """What differs between fits from the same releases, but for the task `CHANGED`."""
    tape, found = Tape(), []
    with tape.running():
        first = clone(est).fit(*arguments(data))
    guarantee = first.privacy_.guarantee
    for other in tables:
        if guarantee in _OF_TASKS and CHANGED not in other[2]:
            continue  # who has rows is public
        with Tape(tape).running():
            second = clone(est).fit(*arguments(other))
        keep = guarantee in _ALL_PUBLIC
        found += _public_differences(first, second, [CHANGED], keep, "")
    return found


def moved_of(case):
    """`moved` of a case whose table has one other task."""
    data = table_of(case)
    return moved(widened(case), data, others(case, data), lambda data: arguments(case, data))


@pytest.mark.parametrize("size", SIZES)
@every(CHOSEN)
@pytest.mark.spread(3)
def test_bits_of_a_task_depend_on_its_rows_alone(case, size, monkeypatch):
    case.skip_without_extras()
    make_tiny(monkeypatch, size)
    assert not moved_of(case)


def test_a_count_of_tasks_with_rows_is_found(monkeypatch):
    """The test above finds a size that is compared with what is not public."""
    make_tiny(monkeypatch, SIZES[-1])
    monkeypatch.setattr(TaskTable, "n_listed", property(lambda table: table.n_tasks))
    case = next(
        case for case in CHOSEN if type(case.estimator).__name__.endswith("LowRankClassifier")
    )
    assert "covariance_ (whether it is there)" in moved_of(case)


def test_bits_of_models_in_parts(monkeypatch, tmp_path):
    make_tiny(monkeypatch, SIZES[1])
    est = PrivateMTL(epsilon=60.0, tasks=range(N_TASKS))
    tape, found = Tape(), []
    data = table_of(CASES[0])
    for number, (X, y, task) in enumerate((data, *others(CASES[0], data))):
        folder = tmp_path / str(number)
        folder.mkdir()
        with (Tape(tape) if number else tape).running():
            parts = write_parts(folder, X, y, task, [[0, CHANGED, 2], [3, 4, 5]])
            found.append(fit_shards(clone(est), parts))
    for other in found[1:]:
        keep = np.arange(N_TASKS) != CHANGED
        assert_array_equal(other.coef_[keep], found[0].coef_[keep])
        assert_array_equal(other.intercept_[keep], found[0].intercept_[keep])


@pytest.mark.parametrize("csr", [sparse.csr_matrix, lambda x: x.astype(np.float32)])
def test_one_task_does_not_choose_the_form_of_all(csr):
    """Tables of a mapping are all dense, or all sparse and of one type."""
    X, y, task = table_of(CASES[0])
    parts = {k: X[task == k] for k in range(N_TASKS)}
    if csr is not sparse.csr_matrix:
        parts = {k: sparse.csr_matrix(x) for k, x in parts.items()}
    targets = {k: y[task == k] for k in range(N_TASKS)}
    est = PrivateMeanRegMTL(tasks=range(N_TASKS))
    with pytest.raises(ValueError, match="give all tasks one form"):
        est.fit({**parts, 2: csr(parts[2])}, targets)
    assert "coef_" not in vars(est)
    est.fit({**parts, 2: csr(parts[2])[:0]}, {**targets, 2: []})  # an empty table has no form


# ------------------------------------------------------------------------- where sizes are
ELSEWHERE = {  # comparisons with numbers that have no name, and why
    "exchange/wire.py": "bound on integers of a file",
    "_kernels/passes.py": "trials of a line search of one task",
    "reproduction/pmtl/estimators.py": "refuses models of listed tasks that fill the memory",
    "reproduction/pmtl/rounds.py": "keeps large models in a file, which holds the same numbers",
    "tables/forms.py": "range of a type",
}


def test_sizes_that_are_compared_have_names():
    found = {
        path
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        if any((whole(part) or 0) >= 2 * LEAST for part in ast.walk(node))
    }
    assert found == ELSEWHERE.keys()
