"""Tables in parts: the same numbers as one table, in this process and on Ray."""

import os
import pickle
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import Ridge

from skpmtl import (
    DPMetaInit,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    PerTask,
    PrivacyLeakWarning,
    PrivateMeanRegMTLClassifier,
)
from skpmtl.exchange.journal import Journal
from skpmtl.exchange.protocol import run
from skpmtl.shards import fit as shards
from skpmtl.shards import load_models
from skpmtl.shards.fit import Shard, fit_shards
from tests.helpers.data import even_tasks
from tests.helpers.linear_rounds import LinearRounds, LinearTaskSide
from tests.helpers.sites import assert_same_fit, write_part, write_parts

M, N, D = 12, 9, 4
SEED = {"random_state": 3, "tasks": range(M)}
CASES = {
    "low rank": MPMTLLowRank(epsilon=60.0, **SEED),
    "labels": MPMTLLowRankClassifier(epsilon=60.0, classes=[0, 1], **SEED),
    "rounds": LinearRounds(n_rounds=6, **SEED),
    "meta": DPMetaInit(epsilon=5.0, visits=2, **SEED),
}
# Of sums, whose order hangs on where an array begins in memory. Noise drawn anew is far above it.
ROUNDING = {"rtol": 1e-11, "atol": 1e-12}
SPLIT = [[1, 4, 6, 10], [0], [2, 3, 5, 7, 8, 9, 11]]


def rows(est):
    return even_tasks(M, N, D, 2 * est._classification)


@pytest.mark.skipif(np.__version__ < "2", reason="copies of a Generator forget their seed")
def test_a_generator_is_drawn_from_once(tmp_path):
    """Not by the copies of every part."""
    X, y, task = even_tasks(M, N, D)

    def est():
        return DPMetaInit(random_state=np.random.default_rng(5), tasks=range(M))

    parts = write_parts(tmp_path, np.asfortranarray(X), y, task, SPLIT)
    whole = est().fit(X, y, task=task)
    assert_same_fit(fit_shards(est(), parts), whole, rtol=1e-12, atol=1e-13)


@pytest.mark.exact_bits("rows stay in a memory map")
def test_rows_stay_on_the_disk_and_answers_are_sums(tmp_path):
    """Rows sorted by task are used where they are; what comes back has the size of a release."""
    est = CASES["low rank"]
    X, y, task = rows(est)
    parts = write_parts(tmp_path, X, y, task, SPLIT)
    shard = Shard(est, str(parts[0]), None)
    shard.survey()
    found = shard.given[0].X
    while isinstance(found.base, np.ndarray):
        found = found.base
    assert isinstance(found, np.memmap)
    replies = []

    class Watched(shards._Here):
        def send(self, method, argument):
            found = super().send(method, argument)
            if method == "answer":
                replies.extend(found)
            return found

    workers = Watched(est, [str(part) for part in parts], None)
    population, classes, _ = shards._population(est, parts, workers.each("survey"))
    workers.prepare(population, classes)
    source = est._source()
    releases = run(est._curator(population, source), workers, source).releases
    assert len(replies) == len(releases) * len(parts) > 0
    for number, reply in enumerate(replies):
        (value,) = reply.values()
        assert np.size(value) == releases[number // len(parts)].size


def test_text_ids_labels_and_parquet(tmp_path):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    X, y, task = rows(MPMTLLowRank())
    frame = pandas.DataFrame(X, columns=list("abcd"))
    frame.insert(1, "school", [f"s{k:02d}" for k in task])
    label = np.where(y > np.median(y), "yes", "no")
    est = PrivateMeanRegMTLClassifier(
        task_feature="school",
        tasks=sorted(set(frame["school"])),
        classes=["no", "yes"],
        random_state=1,
    )
    whole = clone(est).fit(frame, label)
    parts = []
    for k, tasks in enumerate(SPLIT):
        parts.append(tmp_path / f"{k}.parquet")
        frame.assign(label=label)[np.isin(task, tasks)].to_parquet(parts[-1])
    fit_shards(est, parts, target="label")
    assert_same_fit(est, whole, rtol=1e-12, atol=1e-13)
    assert_array_equal(est.predict(frame), whole.predict(frame))
    assert est.export_task("s03")["feature_names"] == list("abcd")
    with pytest.raises(ValueError, match=r"0.parquet.*target='no' is not among"):
        fit_shards(est, parts, target="no")
    with pytest.raises(ValueError, match=r"0.parquet.*needs task_feature="):
        fit_shards(est, parts)
    frame[["a", "school", "c"]].assign(label=label).to_parquet(parts[1])
    with pytest.raises(ValueError, match=r"1.parquet.*number of features is 2, but 4"):
        fit_shards(est, parts, target="label")


# ------------------------------------------------------------- where rows and models may be
@pytest.fixture
def memory():
    fsspec = pytest.importorskip("fsspec", reason="needs the extra skpmtl[remote]")
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/", recursive=True)


def test_parts_and_models_at_addresses(memory, tmp_path):
    """Folders behind fsspec give what folders of the disk give; models come for the asking."""
    est = clone(CASES["labels"]).set_params(tasks=range(M + 1))  # one task has no row
    X, y, task = rows(est)
    parts, there = write_parts(tmp_path, X, y, task, SPLIT), []
    for part in parts:
        memory.put(str(part), f"/{part.name}", recursive=True)
        there.append(f"memory://{part.name}")
    here = fit_shards(clone(est), parts)
    assert_same_fit(fit_shards(clone(est), there), here, **ROUNDING)
    for folder in (tmp_path / "kept", "memory://kept"):
        left = fit_shards(clone(est), parts, models=folder)
        assert len(left.tasks_) == 0 and left.privacy_ == here.privacy_
        loaded = load_models(folder)
        assert_array_equal(loaded.tasks_, here.tasks_)
        assert_array_equal(loaded.coef_, here.coef_)
        assert_array_equal(loaded.intercept_, here.intercept_)
        few = load_models(folder, tasks=[7, 2, M])
        assert_array_equal(few.coef_, here.coef_[[2, 7, M]])
        assert_array_equal(
            few.predict_proba(X[:2], task=[7, 2]), here.predict_proba(X[:2], task=[7, 2])
        )
        for asked in ([1, 99], [99]):
            with pytest.raises(ValueError, match=r"has no models of the tasks \[99\]"):
                load_models(folder, tasks=asked)
    with pytest.raises(ValueError, match="Part 'memory://nothing': there is no such folder"):
        fit_shards(clone(est), ["memory://nothing"])


def test_addresses_are_written_to_or_refused(memory, tmp_path, monkeypatch):
    """And no folder of their name is made here; a folder that is missing there is."""
    est = clone(CASES["labels"]).set_params(tasks=range(M))
    X, y, task = rows(est)
    parts = write_parts(tmp_path, X, y, task, SPLIT)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for given in ({"journal": Path("s3://kept")}, {"models": Path("s3://kept")}):
        with pytest.raises(ValueError, match="'s3:/kept' is an address"):
            fit_shards(clone(est), parts, **given)
    with pytest.raises(ValueError, match="Part 's3:/kept': .*give it as text"):
        fit_shards(clone(est), [Path("s3://kept")])
    assert not list(Path().iterdir())
    for place in ("memory://a/b", f"file://{tmp_path}/a/b"):
        fit_shards(clone(est), parts, models=place)
        assert_array_equal(load_models(place).tasks_, range(M))
    assert not list(Path().iterdir())


def test_models_that_cannot_be_stored_are_no_reason_to_release(tmp_path, monkeypatch):
    est = clone(CASES["labels"]).set_params(tasks=range(M))
    X, y, task = rows(est)
    parts = write_parts(tmp_path, X, y, task, SPLIT)
    (tmp_path / "file").write_text("")
    asked = []
    monkeypatch.setattr("skpmtl.shards.fit.run", lambda *args: asked.append(args))
    with pytest.raises(OSError):
        fit_shards(est, parts, models=tmp_path / "file" / "models")
    assert not asked


def test_row_groups_of_one_file_are_parts(tmp_path):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    X, y, task = rows(MPMTLLowRank())
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(e=np.arange(len(X)) % 3, task=task)
    est = MPMTLLowRank(task_feature="task", **SEED)
    whole = clone(est).fit(frame, y)
    path = tmp_path / "all.parquet"
    frame.assign(y=y).sort_values("task", kind="stable").to_parquet(path, row_group_size=3 * N)
    parts = [(path, [0, 1]), (path, [2]), (path, [3])]
    assert_same_fit(fit_shards(clone(est), parts, target="y"), whole, rtol=1e-12, atol=1e-13)
    for wrong, message in (([4], "row groups 0 to 3"), (["a"], "numbers of its row groups")):
        with pytest.raises(ValueError, match=message):
            fit_shards(clone(est), [(path, wrong)], target="y")


# ------------------------------------------------------------------------------- refusals
def test_bad_parts_are_named(tmp_path):
    est = MPMTLLowRank(**SEED)
    X, y, task = rows(est)

    def refused(message, parts, est=est):
        with pytest.raises(ValueError, match=message):
            fit_shards(est, parts)
        assert not any(name.endswith("_") and not name.startswith("_") for name in vars(est))

    good = write_parts(tmp_path, X, y, task, SPLIT)
    fit_shards(est, good)
    missing = [*good[:2], tmp_path / "nowhere"]
    refused(r"Part '.*nowhere': there is no such folder or file", missing)
    (tmp_path / "hollow").mkdir()
    refused(r"Part '.*hollow': .*X.npy", [*good[:2], tmp_path / "hollow"])
    refused(r"Part '.*part-0': task 1 is also in part '.*part-0'", [*good, good[0]])
    refused(r"tasks that are not listed in tasks=: \[11\]", good, MPMTLLowRank(tasks=range(M - 1)))
    refused("must be a list of paths", good[0])
    refused("must be a list of paths", [])

    def changed(name, X, y, task):
        return [*good[:2], write_part(tmp_path / name, X, y, task)]

    mine = np.isin(task, SPLIT[2])
    X, y, task = X[mine], y[mine], task[mine]
    bad = X.copy()
    bad[11, 2] = np.nan
    refused(r"Part '.*nan': .*first in row 11 \(task 3\), column 2", changed("nan", bad, y, task))
    bad = y.copy()
    bad[10] = np.inf
    refused(r"Part '.*inf': Input y .*row 10 \(task 3\)", changed("inf", X, bad, task))
    refused(
        r"Part '.*wide': the number of features is 5, but 4 in part '.*part-0'",
        changed("wide", np.column_stack([X, y]), y, task),
    )
    refused(r"Part '.*empty': .*0 sample", changed("empty", X[:0], y[:0], task[:0]))
    refused(r"Part '.*short': ", changed("short", X, y[1:], task))
    refused(
        r"Part '.*words': the type of the task ids is text, but numbers",
        changed("words", X, y, task.astype(str)),
    )
    est = MPMTLLowRankClassifier(classes=[-1, 1], **SEED)
    parts = changed("labels", X, np.where(y > 0, "a", "b"), task)
    refused(r"Part '.*part-0': ", parts, est)


def test_fits_that_need_all_rows_are_refused(tmp_path):
    X, y, task = rows(MPMTLLowRank())
    parts = write_parts(tmp_path, X, y, task, SPLIT)
    for est, message in (
        (MPMTLLowRank(0.1, epsilon=None), "all rows in one place.*memory map"),
        (DPMetaInit(privacy=None, tasks=range(M)), "all rows in one place.*memory map"),
        (DPMetaInit(max_rows_per_unit=3, tasks=range(M)), "max_rows_per_unit=3"),
        (PerTask(Ridge()), "PerTask needs all rows in one place"),
        (MPMTLLowRank(tol=-1.0), "tol"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_shards(est, parts)
    with pytest.raises(ValueError, match="backend=\"spark\"|backend='spark'"):
        fit_shards(MPMTLLowRank(tasks=range(M)), parts, backend="spark")
    with pytest.warns(PrivacyLeakWarning, match="which tasks exist"):
        est = fit_shards(MPMTLLowRank(), parts)
    assert_array_equal(est.tasks_, np.arange(M))


def test_ray_missing_is_an_error_that_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    X, y, task = rows(MPMTLLowRank())
    parts = write_parts(tmp_path, X, y, task, SPLIT)
    with pytest.raises(ImportError, match=r"pip install skpmtl\[ray\]"):
        fit_shards(MPMTLLowRank(**SEED), parts, backend="ray")


# --------------------------------------------------------------------- cut off, lost, repeated
def test_of_two_fits_on_a_journal_without_locks_one_goes_on(memory, tmp_path):
    """The other one ends before its curator sees a release."""
    est = CASES["low rank"]
    X, y, task = rows(est)
    parts = write_parts(tmp_path, X, y, task, SPLIT)
    fit_shards(clone(est), parts, journal="memory://kept")
    first = {name: memory.cat_file(name) for name in memory.ls("/kept", detail=False)}
    last = max(name for name in first if name.endswith(".npz"))
    memory.rm_file(last)
    released, keep = [], Journal.keep

    def kept(self, reply, source):
        if not released:
            released.append(reply)
            fit_shards(clone(est), parts, journal="memory://kept")  # meanwhile, to its end
        keep(self, reply, source)

    second = clone(est)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ValueError, match="Another fit"):
        patch.setattr(Journal, "keep", kept)
        fit_shards(second, parts, journal="memory://kept")
    assert released and not hasattr(second, "coef_")


def test_a_store_that_overwrites_is_refused(memory, tmp_path):
    import fsspec

    class Careless(type(memory)):
        protocol = "careless"

        def pipe_file(self, path, value, mode="overwrite", **options):
            super().pipe_file(path, value, **options)

    fsspec.register_implementation("careless", Careless, clobber=True)
    est = CASES["low rank"]
    X, y, task = rows(est)
    parts = write_parts(tmp_path, X, y, task, SPLIT)
    with pytest.raises(ValueError, match="cannot refuse to overwrite"):
        fit_shards(clone(est), parts, journal="careless://kept")
    assert not [name for name in memory.find("/") if name.endswith(".npz")]


@pytest.mark.parametrize(
    ("name", "remote"), [("low rank", False), ("labels", True), ("rounds", False), ("meta", True)]
)
def test_journal_goes_on_after_a_cut(name, remote, tmp_path, monkeypatch):
    """Released noise is not drawn again, and models that tasks keep are where they were."""
    est, place = CASES[name], tmp_path / "journal"
    if remote:
        pytest.importorskip("fsspec", reason="needs the extra skpmtl[remote]")
    journal = f"file://{place}" if remote else place
    X, y, task = rows(est)
    parts = write_parts(tmp_path, np.asfortranarray(X), y, task, SPLIT)
    whole = fit_shards(clone(est), parts)
    with monkeypatch.context() as patch:
        answer, asked = shards._Here.answer, []

        def dying(self, query):
            asked.append(query)
            if len(asked) == 3:
                raise KeyboardInterrupt
            return answer(self, query)

        patch.setattr(shards._Here, "answer", dying)
        with pytest.raises(KeyboardInterrupt):
            fit_shards(clone(est), parts, journal=journal)
    kept = sorted(place.glob("*.npz"))
    before = [path.read_bytes() for path in kept]
    again = fit_shards(clone(est), parts, journal=journal)
    assert_same_fit(again, whole, **ROUNDING)
    assert [path.read_bytes() for path in kept] == before
    with pytest.raises(ValueError, match="another run"):
        fit_shards(clone(est).set_params(epsilon=7.0), parts, journal=journal)


class Remembers(LinearRounds):
    """Its answers count as depending on earlier queries."""

    def _task_side(self, table, population):
        return type("RemembersQueries", (LinearTaskSide,), {"remembers": True})(table)


def test_new_worker_asks_for_what_it_missed_and_repeats_nothing(tmp_path):
    est = Remembers(clip_norm=1.0, n_rounds=6, **SEED)
    X, y, task = rows(est)
    parts = write_parts(tmp_path, np.asfortranarray(X), y, task, SPLIT)
    workers = shards._Here(est, [str(part) for part in parts], None)
    setup = shards._population(est, parts, workers.each("survey"))[:2]
    workers.prepare(*setup)
    messages, replies = [], []

    class Log:
        def answer(self, query):
            messages.append(pickle.dumps(("answer", shards.replace(query, combine=None))))
            replies.append(workers.shards[0].receive(len(messages) - 1, messages[-1]))
            return {k: v.copy() for k, v in replies[-1].items()}

    source = est._source()
    run(est._curator(setup[0], source), Log(), source)
    assert len(messages) >= 5
    last = len(messages) - 1
    assert workers.shards[0].receive(last, messages[last]) is replies[last]  # got it twice
    lost = Shard(est, str(parts[0]), None)
    assert lost.receive(last, messages[last]) is None
    for key, value in lost.replay(*setup, *messages).items():
        assert_array_equal(value, replies[last][key])


# ------------------------------------------------------------------------------------- Ray
@pytest.fixture(scope="module")
def ray():
    ray = pytest.importorskip("ray", reason="needs the extra skpmtl[ray]")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # 15 is the default, which waits for everybody
    root = str(Path(__file__).resolve().parents[2])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        runtime_env={"env_vars": {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"}},
    )
    yield ray
    ray.shutdown()


@pytest.fixture
def one_thread():
    from skpmtl import get_num_threads, set_num_threads

    before = get_num_threads()
    set_num_threads(1)
    yield
    set_num_threads(before)


TWO = [[0, 1, 4, 6, 10], [2, 3, 5, 7, 8, 9, 11]]
ON_RAY = ["low rank", "labels", "rounds", "meta"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", ON_RAY)
def test_ray_gives_the_same_bits_when_a_worker_dies(name, ray, one_thread, tmp_path, monkeypatch):
    est = CASES[name]
    X, y, task = rows(est)
    parts = write_parts(tmp_path, X, y, task, TWO)
    here = fit_shards(clone(est), parts)
    send, sent = shards._Actors.send, []

    def deadly(self, method, argument):
        sent.append(method)
        if len(sent) == 3:  # at once, from inside; the other one while it may be at work
            die = self.actors[0].__ray_call__.options(max_task_retries=0)
            with pytest.raises(ray.exceptions.RayError):
                ray.get(die.remote(lambda shard: os._exit(1)))
            ray.kill(self.actors[1], no_restart=False)
        return send(self, method, argument)

    start = time.monotonic()
    monkeypatch.setattr(shards._Actors, "send", deadly)
    lost = fit_shards(clone(est), parts, backend="ray")
    assert len(sent) >= 4
    assert_same_fit(lost, here, **ROUNDING)
    assert time.monotonic() - start < 300


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_dataset_of_ray_and_models_left_with_the_parts(ray, one_thread, tmp_path):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    data = pytest.importorskip("ray.data", reason="needs ray.data")
    X, y, task = rows(MPMTLLowRank())
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(task=task, y=y)
    est = MPMTLLowRank(task_feature="task", **SEED)
    whole = clone(est).fit(frame.drop(columns="y"), y)
    dataset = data.from_pandas([frame[:50], frame[50:]])  # a task is in both blocks
    given = {"target": "y", "backend": "ray", "options": {"num_cpus": 0.5}}
    fitted = fit_shards(clone(est), dataset, **given)
    assert_same_fit(fitted, whole, rtol=1e-9, atol=1e-10)
    left = fit_shards(clone(est), dataset, models=tmp_path / "kept", **given)
    assert len(left.tasks_) == 0
    assert_array_equal(load_models(tmp_path / "kept", [3]).coef_[0], fitted.coef_[3])
    with pytest.raises(ValueError, match='needs backend="ray"'):
        fit_shards(clone(est), dataset, target="y")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_errors_of_ray_workers_are_the_same(ray, tmp_path):
    est = MPMTLLowRank(**SEED)
    X, y, task = rows(est)
    parts = write_parts(tmp_path, X, y, task, TWO)
    X[3, 1] = np.nan
    np.save(parts[0] / "X.npy", X[np.isin(task, TWO[0])])
    with pytest.raises(ValueError, match=r"^Part '.*part-0': Input X contains NaN"):
        fit_shards(est, parts, backend="ray")
    assert not hasattr(est, "coef_")
