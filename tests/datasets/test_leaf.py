"""LEAF's JSON: what was written is what is read, and faults of the files are named."""

import json

import numpy as np
import pytest
from scipy import sparse

from skpmtl.datasets.leaf import load_leaf


def write(path, users, extra=None, **keys):
    """A file as LEAF's scripts write it; `users` maps a name to (rows, targets)."""
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }
    content["user_data"].update(extra or {})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, **keys}))


def femnist(seed, names, d=16):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 6, len(names))
    return {
        name: (rng.random((n, d)).round(3).tolist(), rng.integers(0, 62, n).tolist())
        for name, n in zip(names, sizes, strict=True)
    }


@pytest.fixture
def posts(tmp_path):
    """StackOverflow: texts as words and as strings, with several tags."""
    write(
        tmp_path / "posts.json",
        {
            "ann": ([["sort", "a", "list"], [], ["list", "list"]], [["python", "list"], ["r"], []]),
            "bob": (["c# list ?", "Sort"], ["c#|list", "python"]),
        },
    )
    return tmp_path / "posts.json"


VOCABULARY = ["list", "sort", "c#"]
COUNTS = [[1, 1, 0], [0, 0, 0], [2, 0, 0], [1, 0, 1], [0, 0, 0]]  # "Sort" is another word


def test_femnist_is_what_was_written(tmp_path):
    first, second = femnist(0, ["f1", "f2"]), femnist(1, ["f0"])
    write(tmp_path / "all_data_0.json", first, hierarchies=["hsf0", "hsf0"])
    write(tmp_path / "all_data_1.json", second, hierarchies=["hsf4"])
    (tmp_path / "notes.txt").write_text("not data")
    leaf = load_leaf(tmp_path)
    everybody = {**first, **second}
    assert leaf.data.dtype == np.float64 and leaf.data.flags.c_contiguous
    assert leaf.tasks.tolist() == ["f1", "f2", "f0"] == list(dict.fromkeys(leaf.task))
    for name, (x, y) in everybody.items():
        np.testing.assert_array_equal(leaf.data[leaf.task == name], x)
        np.testing.assert_array_equal(leaf.target[leaf.task == name], y)
    assert len(leaf.data) == len(leaf.target) == sum(len(y) for _, y in everybody.values())
    assert leaf.hierarchies == {"f1": "hsf0", "f2": "hsf0", "f0": "hsf4"}
    assert [name[-15:] for name in leaf.filenames] == ["all_data_0.json", "all_data_1.json"]
    assert leaf.n_left_out == 0
    one = load_leaf(tmp_path / "all_data_1.json")
    np.testing.assert_array_equal(one.data, second["f0"][0])


def test_leaf_split_by_sample(tmp_path):
    """train/ and test/ of LEAF's split_data.py, with what it leaves of users that it drops."""
    dropped = {"lonely": {"x": [], "y": []}}
    for part, seed in (("train", 0), ("test", 1)):
        users = femnist(seed, ["f1", "f2"])
        write(tmp_path / part / "all_data_0.json", users, dropped, hierarchies=["a", "b", "c"])
    train, test = load_leaf(tmp_path / "train"), load_leaf(tmp_path / "test")
    assert set(train.task) == set(test.task) == {"f1", "f2"}
    assert train.hierarchies is None  # three entries for two users: nobody knows which
    assert not np.array_equal(train.data[:2], test.data[:2])
    with pytest.raises(FileNotFoundError, match=r"no \*\.json.*train.*test"):
        load_leaf(tmp_path)
    with pytest.raises(FileNotFoundError, match="gone.* is neither a file nor a folder"):
        load_leaf(tmp_path / "gone")


def test_words_are_counted_as_they_stand(posts):
    leaf = load_leaf(posts, vocabulary=VOCABULARY, labels=["python", "r", "c#", "list"])
    assert sparse.issparse(leaf.data) and leaf.data.format == "csr"
    # The third post of ann has no tags. The first of `labels` among the tags counts.
    assert leaf.n_left_out == 1
    np.testing.assert_array_equal(leaf.data.toarray(), np.delete(COUNTS, 2, axis=0))
    assert leaf.target.tolist() == [0, 1, 2, 0]
    assert leaf.task.tolist() == ["ann", "ann", "bob", "bob"]
    columns = {word: j for j, word in enumerate(VOCABULARY)}
    again = load_leaf(posts, vocabulary=columns, labels=["python", "r", "c#", "list"])
    assert (again.data != leaf.data).nnz == 0
    # A user may lose all rows, also the first or the last.
    few = load_leaf(posts, vocabulary=VOCABULARY, labels=["c#"])
    assert few.tasks.tolist() == ["bob"] and few.n_left_out == 4
    few = load_leaf(posts, vocabulary=VOCABULARY, labels=["r"])
    assert few.tasks.tolist() == ["ann"] and few.data.shape == (1, 3)


def fault(**change):
    content = {
        "users": ["a", "b"],
        "num_samples": [1, 2],
        "user_data": {"a": {"x": [[1, 2]], "y": [0]}, "b": {"x": [[1, 2], [3, 4]], "y": [0, 1]}},
    }
    for key, value in change.items():
        if value is None:
            del content[key]
        elif isinstance(value, dict):
            content[key] = {**content[key], **value}
        else:
            content[key] = value
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"users": [', "bad.json is not JSON: .*line 1 column 12"),
        ("[1, 2]", "bad.json is not in LEAF's format: no .*users.*user_data"),
        (fault(num_samples=None), "bad.json is not in LEAF's format: no .*num_samples"),
        (fault(num_samples=[1]), "bad.json has 2 users, but 1 num_samples"),
        (fault(num_samples=[1, 3]), "user 'b': 2 rows in x and 2 in y, but num_samples is 3"),
        (fault(users=["a", "a"]), "lists users more than once: .*a"),
        (fault(users=["a", "c"]), "user 'c': \"user_data\" has no"),
        (fault(users=["b"], num_samples=[2]), "user 'a': has rows, but is not among"),
        (fault(user_data={"b": {"x": [], "y": []}}, num_samples=[1, 0]), "user 'b': has no rows"),
        (fault(user_data={"b": {"x": [[1], [2]], "y": [0, 1]}}), "'b': rows of length 1, .* 2"),
        (fault(user_data={"b": {"x": [[1], [2, 3]], "y": [0, 1]}}), "'b': x is not a matrix"),
        (fault(user_data={"b": {"x": ["p", "q"], "y": [0, 1]}}), "'b': x is text; give vocab"),
        (fault(user_data={"b": {"x": [[1, 2]] * 2, "y": [0, None]}}), "'b': a \"y\" is missing"),
        (fault(user_data={"b": {"x": [[1, 2]] * 2, "y": [0, "p"]}}), "'b': some \"y\" are str"),
        (fault(user_data={"b": {"x": [[1, 2]] * 2, "y": ["p", "q"]}}), 'some "y" are strings'),
        (fault(user_data={"b": {"x": [[1, 2]] * 2, "y": [["p"], []]}}), "'b': .* give labels="),
        ('{"users": [], "num_samples": [], "user_data": {}}', "has no users"),
    ],
)
def test_faults_name_the_file_and_the_user(tmp_path, text, message):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=f"(?s){message}") as caught:
        load_leaf(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_faults_between_files_and_arguments(tmp_path, posts):
    write(tmp_path / "other" / "0.json", femnist(0, ["f1"]))
    write(tmp_path / "other" / "0_keep_10.json", femnist(0, ["f1"]))
    with pytest.raises(ValueError, match=r"0_keep_10.json: user 'f1' is also in .*0\.json"):
        load_leaf(tmp_path / "other")
    with pytest.raises(ValueError, match="x is not text; leave vocabulary"):
        load_leaf(tmp_path / "other" / "0.json", vocabulary=["p"])
    with pytest.raises(ValueError, match="labels= is for tags, but a y is"):
        load_leaf(tmp_path / "other" / "0.json", labels=["p"])
    with pytest.raises(ValueError, match="no rows with one of the 1 labels"):
        load_leaf(posts, vocabulary=VOCABULARY, labels=["fortran"])
