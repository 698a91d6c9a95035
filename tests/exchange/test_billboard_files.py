"""Billboard files that are damaged, crafted, or cut off as they are written."""

import json
import math
import os
import pickle
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from skpmtl import DPMetaInitClassifier, MPMTLLowRank, load_billboard, save_billboard
from skpmtl.exchange.files import _CLASS_TYPES
from skpmtl.exchange.wire import from_npy, to_npy
from tests.helpers.apart import apart
from tests.helpers.cases import CASES, EXACT, FIRST, fitted, long_data

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")
ROOT = Path(__file__).resolve().parents[2]
BY_NAME = {case.name: case for case in CASES + EXACT if not case.marks and not case.needs}
LOOP = "PrivateMTL-epsilon=1000.0-unseen_task=mean"
MEAN = "PrivateMeanRegMTL-epsilon=60.0-unseen_task=mean"
META = "DPMetaInitClassifier-3 classes-inner_steps=3"
# One of every billboard and loss.
QUICK = (
    LOOP,
    MEAN,
    META,
    EXACT[0].name,
    "MPMTLLowRankClassifier-epsilon=1000.0-unseen_task=mean",
    "DPMetaInit-group_size=3-inner_steps=2-refine=sgd",
    FIRST[DPMetaInitClassifier].name,
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Path of the file of a case, written once."""
    folder = tmp_path_factory.mktemp("boards")

    def file(name):
        path = folder / name
        if not path.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                save_billboard(fitted(BY_NAME[name])[0], path)
        return path

    return file


def read(path):
    """-> header, {name: array}"""
    with np.load(path) as archive:
        arrays = dict(archive)
    return json.loads(arrays.pop("header").tobytes()), arrays


def write(path, header, arrays):
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)


def refused(path):
    """Whether loading is refused, with a remedy; anything else that goes wrong is an error."""
    try:
        load_billboard(path)
    except ValueError as error:
        assert "cannot be read: " in str(error) and "Ask whoever published it" in str(error)
        return True
    return False


def refused_with(message, folder, header, arrays):
    with open(folder / "board", "wb") as stream:
        write(stream, header, arrays)
    assert refused(folder / "board")
    with pytest.raises(ValueError, match=message):
        load_billboard(folder / "board")


PERSONALIZE = """
import pickle, sys, warnings
import numpy as np
import tests.helpers.dummy_method
from skpmtl import load_billboard
warnings.simplefilter("ignore")
paths, X, y, task = pickle.load(open(sys.argv[1], "rb"))
for path in paths:
    print(path, end=" ", flush=True)
    est = load_billboard(path)
    d = est.billboard_.n_features
    rows = np.resize(X, (len(X), d))
    if not hasattr(est, "classes_"):
        target = y
    else:
        target = est.classes_[(y * 7).astype(int) % len(est.classes_)]
    try:
        est.personalize(rows, target, task=task)
    except ValueError as error:
        print("refused:", str(error).replace(chr(10), " "), flush=True)
        continue
    good = np.isfinite(est.coef_).all() and np.isfinite(est.intercept_).all()
    print("good" if good else "NOT FINITE", flush=True)
"""


def personalize_elsewhere(paths, folder):
    """Personalise every file, in a process that may crash and has guarded memory."""
    X, y, task = long_data()
    pick = np.flatnonzero(task < 3)
    with open(folder / "rows.pickle", "wb") as stream:
        pickle.dump(([str(path) for path in paths], X[pick], y[pick], task[pick]), stream)
    done = subprocess.run(
        [sys.executable, "-c", PERSONALIZE, str(folder / "rows.pickle")],
        text=True,
        capture_output=True,
        timeout=300 + len(paths),
        env={**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "85"},
    )
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert done.returncode == 0, (done.stdout[-300:], done.stderr[-2000:])
    assert len(said) == len(paths)
    assert "NOT FINITE" not in said.values(), said
    return said


# ------------------------------------------------------------------------------- crafted files
def places(tree, path=()):
    """Paths to all plain values of a JSON tree, without the privacy report."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key != "report":
                yield from places(value, (*path, key))
    elif isinstance(tree, list):
        for key, value in enumerate(tree):
            yield from places(value, (*path, key))
    else:
        yield path


GONE, FIELDS = object(), ("board", "fields")


def edited(tree, path, value):
    """A copy with another value at the end of the path, or without one; the rest is shared."""
    if not path:
        return value
    tree = tree.copy()
    if value is GONE and len(path) == 1:
        del tree[path[0]]
    else:
        tree[path[0]] = edited(tree[path[0]] if len(path) > 1 else None, path[1:], value)
    return tree


def other_arrays(array):
    """The same in other forms, of which kernels would read past the end, or nonsense."""
    if array.dtype.kind != "f":
        return
    for kind in ("f2", "f4", ">f8", "i8", "i4", "c16", "?", "O", "U8", "longdouble"):
        yield array.astype(kind)
    yield array[None]
    yield array.ravel()[:-1]
    yield array[:0]
    yield np.concatenate([array, array]) if array.ndim else np.array([array, array])
    if array.ndim == 2:
        yield array[:, :-1].copy()
        yield np.asfortranarray(array)
        yield array[:-1].copy()
    for value in (np.nan, np.inf, -1.0, 0.0, 1e308, -1e308, 1e-320):
        changed = array.copy()
        changed.flat[-1:] = value
        yield changed
        yield np.full_like(array, value)


def crafted(name, header, arrays, others):
    """Yield header, arrays of a file that says something else than the good one.

    Of releases that of the first: they are a record, which no model is made from.
    """
    first = "board.releases.0"
    for key, array in arrays.items():
        if key.startswith("board.releases.") and key != first:
            continue
        for changed in other_arrays(array):
            yield header, {**arrays, key: changed}
        yield header, {k: v for k, v in arrays.items() if k != key}
        for other in others:  # what belongs to another billboard
            for changed in other.values():
                if changed.shape != array.shape:
                    yield header, {**arrays, key: changed}
    for path in places(header["board"]):
        tree = header["board"]
        for key in path[:-1]:
            tree = tree[key]
        old = tree[path[-1]]
        for value in (-1, 0, 1, 2, 3, 4, 2**62, 2**70, 1e308, -0.5, "auto", None, True, [old]):
            if value != old or type(value) is not type(old):
                yield edited(header, ("board", *path), value), arrays
    for estimator in (
        "MPMTLGroupSparse",
        "MPMTLLowRankClassifier",
        "DPMetaInitClassifier",
        "PrivateMeanRegMTLClassifier",
        "PrivateMeanRegMTL",
        "DPMetaInit",
    ):
        for n_classes in (0, 1, 2, 3, 5):
            if estimator != header["estimator"] or (n_classes and "classes" in arrays):
                more = {"classes": np.arange(n_classes)} if n_classes else {}
                kept = {k: v for k, v in arrays.items() if k != "classes"}
                yield {**header, "estimator": estimator, "params": {}}, {**kept, **more}


def survivors_of(name, files, folder, most):
    """Files that are crafted from those of a case, and pass; `most` of all that there are."""
    header, arrays = read(files(name))
    others = [read(files(other))[1] for other in (LOOP, META)]
    contents = list(crafted(name, header, arrays, others))
    pick = np.random.default_rng(len(contents)).permutation(len(contents))[:most]
    contents = [contents[k] for k in pick]
    passed = []
    for k, content in enumerate(contents):
        path = folder / f"{name}-{k}".replace(" ", "-")
        with open(path, "wb") as stream:
            write(stream, *content)
        if refused(path):
            path.unlink()
        else:
            passed.append(path)
    assert len(passed) < 0.35 * len(contents)
    return passed


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("format",), 2, r"format 2, and skpmtl .* reads 3: fit again, or use .* \(skpmtl"),
        (("format",), GONE, "not a billboard of skpmtl"),
        (("extra",), 1, "its keys are"),
        (("params",), GONE, "its keys are"),
        (("estimator",), "Ridge", "estimator 'Ridge' is not known"),
        (("estimator",), "PrivateMeanRegMTLClassifier", "unexpected keyword"),
        (("estimator",), "DPMetaInit", "does not go on with"),
        (("params", "lambda"), 1.0, "unexpected keyword"),
        (("params", "sampling"), "poisson", "unexpected keyword"),
        (("params", "tol"), -1.0, "tol"),
        (("params", "fit_intercept"), False, "made with True"),
        (("n_features",), 7, "for 3 features"),
        (("feature_names",), ["a"], "must be 3 strings"),
        (("board", "object"), "Path", "type 'Path' is not known"),
        (("board", "object"), "PenaltyBillboard", "unknown, or missing"),
        ((*FIELDS, "personalization"), "finetune", "personalization.* are unknown"),
        ((*FIELDS, "releases", 0), [0.0] * 4, r"a release has the shape \(4,\), not \(\)"),
        ((*FIELDS, "releases", 0), math.nan, "NaN is not JSON"),
        ((*FIELDS, "report", "report", "adjacency"), "next", "adjacency='next'"),
        ((*FIELDS, "report"), {"report": {"secret": 1}}, "not fields of a privacy report"),
    ],
)
def test_unknown_or_wrong_content(place, value, message, files, tmp_path):
    header, arrays = read(files(MEAN))
    header = edited(header, place, value)
    named = json.dumps(header)  # arrays that it no longer has are another error
    kept = {name: array for name, array in arrays.items() if f'"{name}"' in named}
    refused_with(message, tmp_path, header, kept)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((2, 4)), r"centre has the shape \(2, 4\)"),
        (np.full(4, np.nan), "board.centre holds NaN or infinity"),
        (np.array(["a"] * 4), "board.centre holds <U1, not <f8"),
        (np.ones(4, dtype=complex), "board.centre holds complex128, not <f8"),
        (np.ones(4, dtype=np.float16), "board.centre holds float16, not <f8"),
        (np.ones(4, dtype=">f8"), "board.centre holds >f8, not <f8"),
        (np.ones(4, dtype=np.int64), "centre holds int64, not float64"),
        (np.ones(4, dtype=[("a", float)]), "board.centre is no array as NumPy writes it"),
        (np.array([1, 2, 3, None]), "board.centre holds object, not <f8"),
        (None, "the array 'board.centre' is missing"),
    ],
)
def test_wrong_arrays(array, message, files, tmp_path):
    header, arrays = read(files(MEAN))
    others = {name: kept for name, kept in arrays.items() if name != "board.centre"}
    given = {} if array is None else {"board.centre": array}
    refused_with(message, tmp_path, header, {**others, **given})


@pytest.mark.parametrize(
    ("name", "message"), [("board.more", "arrays that nothing refers to"), ("classes", "has none")]
)
def test_arrays_too_many(name, message, files, tmp_path):
    header, arrays = read(files(MEAN))
    refused_with(message, tmp_path, header, {**arrays, name: np.array([0, 1])})


def test_crafted_files_are_refused_or_work(files, tmp_path):
    """Whatever passes is personalised in another process; nothing may crash or be NaN there."""
    found = [path for name in QUICK for path in survivors_of(name, files, tmp_path, 5)]
    personalize_elsewhere(found, tmp_path)


@pytest.mark.parametrize("name", [LOOP, META])
def test_damaged_files_are_refused_or_the_same(name, files, tmp_path):
    content = files(name).read_bytes()
    path, rng = tmp_path / "board", np.random.default_rng(0)
    for end in range(0, len(content), max(len(content) // 10, 1)):
        path.write_bytes(content[:end])
        assert refused(path)
    survivors = []
    for k in range(18):
        changed = bytearray(content)
        # The directory at the end, the header at the beginning, or anywhere.
        low, high = [(-min(600, len(content)), 0), (0, 600), (-len(content), 0)][k % 3]
        changed[rng.integers(low, high)] ^= 1 << rng.integers(8)
        path = tmp_path / f"{k}"
        path.write_bytes(changed)
        if not refused(path):
            survivors.append(path)
    good = load_billboard(files(name))
    for path in survivors:  # what nobody reads, such as dates
        found = load_billboard(path)
        assert found.get_params() == good.get_params()
        for key, array in read(files(name))[1].items():
            np.testing.assert_array_equal(read(path)[1][key], array)


# --------------------------------------------------------------------------------- archives
def archive(path, members, compression=zipfile.ZIP_STORED):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name twice
        with zipfile.ZipFile(path, "w", compression) as file:
            for name, content in members:
                file.writestr(name, content)


def test_archives_that_are_not_what_was_written(files, tmp_path):
    with zipfile.ZipFile(files(LOOP)) as file:
        good = [(name, file.read(name)) for name in file.namelist()]
    path = tmp_path / "board"
    archive(path, good)
    load_billboard(path)
    empty = to_npy(np.ones(1)).tobytes()
    for members, message in (
        ([*good, good[1]], "there twice"),
        ([*good, good[0]], "there twice"),
        ([*good, ("board.more.npy", empty)], "nothing refers to: .*board.more"),
        ([*good, ("../up.npy", empty)], r"nothing refers to: .*\.\./up"),
        ([*good, ("/etc/x.npy", empty)], "nothing refers to"),
        ([*good, ("readme.txt", b"text")], "'readme.txt' is no array"),
        ([*good, ("folder/", b"")], "'folder/' is no array"),
        (good[1:], "is not a billboard"),
        ([("header.npy", to_npy(np.ones(3)).tobytes()), *good[1:]], "header holds float64"),
        ([("header.npy", b""), *good[1:]], "header is no array"),
        ([("header.npy", good[0][1][:-1]), *good[1:]], "does not fit its size"),
    ):
        archive(path, members)
        with pytest.raises(ValueError, match=message):
            load_billboard(path)
    archive(path, good, zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="is compressed or encrypted"):
        load_billboard(path)
    archive(path, good)
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"PK\x01\x02") + 8] |= 1  # of the first member in the directory: encrypted
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="is compressed or encrypted"):
        load_billboard(path)


LOAD = """
import os, resource, sys
from skpmtl import load_billboard
for path in sys.argv[1:]:
    child = os.fork()  # whose peak is of one file
    if child == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            load_billboard(path)
        except ValueError as error:
            assert "Ask whoever published it" in str(error)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def widened(npy, size):
    """A .npy file whose header says that it has `size` numbers."""
    start, end = npy.index(b"("), npy.index(b"\n")
    return npy[:start] + (b"(%d,), }" % size).ljust(end - start) + npy[end:]


def deflated(path, header):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        file.writestr("header.npy", header)
        with file.open("board.releases.0.npy", "w", force_zip64=True) as stream:
            stream.write(widened(to_npy(np.ones(1)).tobytes()[:128], 9 << 20))
            for _ in range(9):  # compressed to a two hundredth
                stream.write(bytes(8 << 20))


def wide_shape(path, header):
    wide = widened(to_npy(np.ones(5)).tobytes(), 1 << 33)
    archive(path, [("header.npy", header), ("board.releases.0.npy", wide)])


def overlapping(path, header):
    """One entry many times in the directory, under other names."""
    one = to_npy(np.ones(80_000)).tobytes()
    archive(path, [("header.npy", header), ("board.releases.0.npy", one)])
    content = path.read_bytes()
    with zipfile.ZipFile(path) as file:
        start, info = file.start_dir, file.infolist()
    body, entries = content[:start], content[start:]
    first = 46 + len("header.npy")
    entry, tail = entries[first : first + 46 + len(info[1].filename)], entries[-22:]
    again = b"".join(entry.replace(b"releases.0", b"release%03d" % k) for k in range(400))
    size = (len(entries) - 22 + len(again)).to_bytes(4, "little")
    tail = tail[:8] + (402).to_bytes(2, "little") * 2 + size + tail[16:]
    path.write_bytes(body + entries[:-22] + again + tail)
    assert len(zipfile.ZipFile(path).infolist()) == 402


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="units of ru_maxrss")
def test_a_small_file_takes_little_memory(files, tmp_path):
    """Each of these would take 72 MB, or much more."""
    header = read(files(LOOP))[0]
    header = to_npy(np.frombuffer(json.dumps(header).encode(), np.uint8)).tobytes()
    paths = []
    for make in (deflated, wide_shape, overlapping):
        paths.append(tmp_path / make.__name__)
        make(paths[-1], header)
        assert paths[-1].stat().st_size < 2 << 20
    grown = [int(line) for line in apart(LOAD, tmp_path, *paths).split()]
    assert len(grown) == 3 and max(grown) < 50_000  # kB


def test_arrays_of_a_message_are_held_against_their_size():
    array = np.arange(6.0).reshape(2, 3)
    data = bytes(to_npy(array))
    np.testing.assert_array_equal(from_npy(data, "x", shape=(2, 3)), array)
    assert from_npy(bytes(to_npy(np.float64(3.0))), "x") == 3.0
    for other, message in (
        (data[:-1], "does not fit its size"),
        (data + b"\0", "does not fit its size"),
        (data.replace(b"(2, 3)", b"(9, 9)"), "does not fit its size"),
        (data.replace(b"False", b"True "), "is no array as NumPy writes it"),
        (data.replace(b"(2, 3)", b"(-2,3)"), "is no array as NumPy writes it"),
        (data.replace(b"<f8", b"|O8"), "holds object"),
        (data.replace(b"\x93NUMPY\x01", b"\x93NUMPY\x02"), "is no array as NumPy writes it"),
        (b"", "is no array"),
        (data[:30], "is no array"),
    ):
        with pytest.raises(ValueError, match=message):
            from_npy(other, "x")
    with pytest.raises(ValueError, match=r"has the shape \(2, 3\), not \(3, 2\)"):
        from_npy(data, "x", shape=(3, 2))
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        to_npy(np.array([object()]))


def test_labels_of_every_type_come_back():
    for kind in "i1 u2 i4 f4 f2 >i4 >f8 U3 >U3 ?".split():
        labels = np.array([0, 1]).astype(kind)
        there = from_npy(bytes(to_npy(labels)), "classes", _CLASS_TYPES)
        np.testing.assert_array_equal(there, labels)
        assert there.dtype == labels.dtype.newbyteorder("=")


# --------------------------------------------------------------------------------- writing
KILL = """
import os, pickle, sys, time
import numpy as np
from skpmtl import load_billboard, save_billboard
path, ests = sys.argv[2], pickle.load(open(sys.argv[1], "rb"))
save_billboard(ests[0], path)
rng = np.random.default_rng(0)
for _ in range(4):
    writers = []
    for est in ests:
        writers.append(os.fork())
        if writers[-1] == 0:
            while True:
                save_billboard(est, path)
    for writer in rng.permutation(writers).tolist():  # so that either may be the last
        time.sleep(0.02 + 0.05 * rng.random())
        os.kill(writer, 9)
        os.waitpid(writer, 0)
        print(load_billboard(path).billboard_.n_features, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_killed_at_any_time_the_file_is_whole(tmp_path):
    """Two processes write two billboards to one file, and are killed, 8 times."""
    ests = []
    for d in (3, 130):  # of two sizes: a mixture of them is noticed
        rng = np.random.default_rng(d)
        X, y, task = rng.standard_normal((90, d)), rng.standard_normal(90), np.arange(90) % 30
        est = MPMTLLowRank(tasks=range(30), random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ests.append(est.fit(X, y, task=task))
    (tmp_path / "ests").write_bytes(pickle.dumps(ests))
    sizes = apart(KILL, tmp_path, tmp_path / "ests", tmp_path / "board").split()
    assert len(sizes) == 8 and set(sizes) == {"3", "130"}


def test_what_cannot_be_read_again_is_not_written(tmp_path):
    est, path = fitted(BY_NAME[MEAN])[0], tmp_path / "board"
    save_billboard(est, path)
    content = path.read_bytes()
    est.billboard_.centre = est.billboard_.centre[:2]
    with pytest.raises(ValueError, match="has the shape .*Nothing was written"):
        save_billboard(est, path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["board"]


@pytest.mark.parametrize(
    "loss, n_models",
    [("squared", 3), ("logistic", 3), ("multinomial", 1), ("multinomial", 2), ("squared", 2)],
)
def test_number_of_classes_against_the_loss(loss, n_models, files, tmp_path):
    """Kernels take the number of models from the arrays, and labels from `loss`."""
    header, arrays = read(files(META))
    fields = header["board"]["fields"]
    fields["loss"] = loss
    arrays["board.init"] = np.ones((n_models, 5))
    arrays["board.coef"] = np.ones((n_models, 4)) if loss == "multinomial" else np.ones(4)
    if loss == "multinomial":
        arrays["board.intercept"] = np.ones(n_models)
    else:
        del arrays["board.intercept"]
        fields["intercept"] = 1.0
    for classes in (None, [0, 1], [0, 1, 2]):
        more = {"classes": np.array(classes)} if classes else {}
        header["estimator"] = "DPMetaInitClassifier" if classes else "DPMetaInit"
        with open(tmp_path / "board", "wb") as stream:
            write(stream, header, {**{k: v for k, v in arrays.items() if k != "classes"}, **more})
        with pytest.raises(ValueError, match="models do not suit the .* loss"):
            load_billboard(tmp_path / "board")
