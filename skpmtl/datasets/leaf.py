"""Reading the JSON of LEAF, the benchmark for federated settings."""

import json
import os
from numbers import Integral
from os import PathLike
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from ..tables.ids import listed

__all__ = ["load_leaf"]
_KEYS = ("users", "num_samples", "user_data")


def load_leaf(
    path: str | PathLike[str],
    *,
    vocabulary=None,
    labels=None,
    images: str | PathLike[str] | None = None,
    image_size: int = 84,
) -> Bunch:
    """Load federated data that LEAF [1]_ wrote, or that others wrote in its format.

    FEMNIST needs a path alone. For StackOverflow give the public lists `vocabulary` and `labels`,
    for CelebA ``images=`` the folder of the photographs.

    Files are read one after the other, so that there is only one copy of the rows besides
    the content of one file. Nothing is learned from the rows: features are the numbers in the
    file, counts of the words of a vocabulary that is public, or values of images.

    Parameters
    ----------
    path : str or path-like
        A file, or a folder of which all ``*.json`` are read in the order of their names; for
        data that LEAF has split this is the folder ``train`` or ``test``. One file is ::

            {"users": ["ann", ...], "num_samples": [2, ...],
             "user_data": {"ann": {"x": [row, row], "y": [3, 7]}, ...},
             "hierarchies": ["group of ann", ...]}

        where "hierarchies" may be missing. A row is a list of numbers (nested lists are
        flattened), a text (a string, or a list of words), or the name of an image.
    vocabulary : iterable or mapping of words, default=None
        Public list of the words to count, exactly as they stand between blanks, in the order of the
        columns, or mapping of words to columns. A list made from private texts discloses who used
        a rare word.
    labels : sequence of str, default=None
        Public list of labels, for rows that have several: a list of tags, or a string of tags
        with ``|`` between them. The target is the position of the first of `labels` that is
        among the tags of a row; rows with none of them are left out. None: targets are the
        numbers or strings of the file.
    images : str or path-like, default=None
        Folder of images, which rows name by their paths in it. They become three planes, red,
        green and blue, of `image_size` times `image_size` values from 0 to 1, one after the
        other (``torch.nn.Unflatten(1, (3, image_size, image_size))``). Needs the extra
        ``skpmtl[images]``.
    image_size : int, default=84
        Side that images are scaled to, whatever their shape; the default is that of LEAF's models.

    Returns
    -------
    leaf : :class:`~sklearn.utils.Bunch`
        data : ndarray or CSR matrix of shape (n_samples, n_features), float64
            Rows, user after user; of images float32.
        target : ndarray of shape (n_samples,)
            Targets.
        task : ndarray of shape (n_samples,), str
            User of every row.
        tasks : ndarray of shape (n_tasks,), str
            Users with rows, in the order of the files.
        hierarchies : dict or None
            Group of each user, by user: a public mapping for ``clusters=``, if it is public.
            None unless all files have one entry for each user (LEAF's split by sample keeps
            entries of users that it drops).
        n_left_out : int
            Rows left out because of `labels`.
        filenames : list of str
            What was read.

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder, no ``*.json`` in it, or no image of a name.
    ImportError
        If there are images to read and no Pillow.
    ValueError
        If a file is not JSON or not in this format: missing keys, numbers of rows that disagree,
        users without rows or in two files, rows of different lengths, text without a
        vocabulary, names outside the folder of images. The file and the user are named.

    References
    ----------
    .. [1] S. Caldas et al., "LEAF: A benchmark for federated settings", 2018,
       https://leaf.cmu.edu.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from skpmtl.datasets import load_leaf
    >>> ann, bob = {"x": [["how", "to"], ["to"]], "y": ["r", "c|r"]}, {"x": ["who"], "y": ["c"]}
    >>> content = {"users": ["ann", "bob"], "num_samples": [2, 1],
    ...            "user_data": {"ann": ann, "bob": bob}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "all_data.json").write_text(json.dumps(content))
    ...     posts = load_leaf(folder, vocabulary=["how", "to", "do"], labels=["c", "r"])
    >>> posts.data.toarray().tolist(), posts.target.tolist(), posts.task.tolist()
    ([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [1, 0, 0], ['ann', 'ann', 'bob'])
    """
    files = _json_files(path)
    if vocabulary is not None and images is not None:
        raise ValueError("Give one of vocabulary and images.")
    if vocabulary is not None:
        rows = _TextRows(vocabulary)
    else:
        rows = _NumberRows() if images is None else _ImageRows(images, image_size)
    rank = None if labels is None else {label: i for i, label in enumerate(labels)}
    users: dict[str, object] = {}
    hierarchies: dict | None = {}
    sizes, targets, left_out = [], [], 0
    for file in files:
        names, counts, user_data, groups = _read(file)
        for name in names:
            if name in users:
                raise ValueError(
                    f"{file}: user {name!r} is also in {users[name]}; LEAF writes all rows of a "
                    "user into one file, so that the folder may hold the same rows twice."
                )
            users[name] = file
        hierarchies = None if groups is None or hierarchies is None else hierarchies | groups
        if rank is not None:
            for k, name in enumerate(names):
                left_out += _keep_labelled(user_data[name], rank, _where(file, name))
                counts[k] = len(user_data[name]["y"])
        for name in names:
            targets.append(_targets(user_data[name]["y"], _where(file, name)))
        rows.extend(names, counts, user_data, file)
        sizes += counts
    if not sum(sizes):
        reason = "no users" if rank is None else f"no rows with one of the {len(rank)} labels"
        raise ValueError(f"{os.fspath(path)!r} has {reason}.")
    kinds = {part.dtype.kind for part in targets if len(part)}
    if "U" in kinds and len(kinds) > 1:
        raise ValueError(f'{os.fspath(path)!r}: some "y" are strings, others numbers.')
    names, sizes = np.array(list(users)), np.array(sizes)
    return Bunch(
        data=rows.matrix(),
        target=np.concatenate([part for part in targets if len(part)]),
        task=np.repeat(names, sizes),
        tasks=names[sizes > 0],
        hierarchies=hierarchies or None,
        n_left_out=left_out,
        filenames=[os.fspath(file) for file in files],
    )


def _json_files(path):
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"{os.fspath(path)!r} is neither a file nor a folder.")
    files = sorted(path.glob("*.json"))
    if not files:
        inner = [name for name in ("train", "test") if (path / name).is_dir()]
        hint = f" Read its folders one by one: {listed(inner)}." if inner else ""
        raise FileNotFoundError(f"{os.fspath(path)!r} has no *.json.{hint}")
    return files


def _where(file, name):
    return f"{file}, user {name!r}"


# ------------------------------------------------------------------------------ one file
def _read(file):
    """-> users, numbers of rows, {user: {"x", "y"}}, {user: group} or None; all checked"""
    try:
        with open(file, encoding="utf-8") as stream:
            content = json.load(stream)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    missing = [key for key in _KEYS if key not in content] if isinstance(content, dict) else _KEYS
    if missing:
        raise ValueError(f"{file} is not in LEAF's format: no {listed(missing)}.")
    users, counts, user_data = (content[key] for key in _KEYS)
    if len(counts) != len(users):
        raise ValueError(f"{file} has {len(users)} users, but {len(counts)} num_samples.")
    if len(set(users)) < len(users):
        twice = sorted({name for name in users if users.count(name) > 1})
        raise ValueError(f"{file} lists users more than once: {listed(twice)}.")
    for name, count in zip(users, counts, strict=True):
        _check_user(user_data.get(name), count, _where(file, name))
    for name in user_data.keys() - set(users):
        # Users with a single row keep an empty entry when LEAF splits by sample.
        if user_data[name].get("y"):
            raise ValueError(f'{_where(file, name)}: has rows, but is not among "users".')
    groups = content.get("hierarchies")
    if groups is None or len(groups) != len(users):
        groups = None
    else:
        groups = dict(zip(users, groups, strict=True))
    return users, list(counts), user_data, groups


def _check_user(data, count, where):
    if not isinstance(data, dict) or "x" not in data or "y" not in data:
        raise ValueError(f'{where}: "user_data" has no "x" and "y" for this user.')
    n_x, n_y = len(data["x"]), len(data["y"])
    if not n_x == n_y == count:
        raise ValueError(f"{where}: {n_x} rows in x and {n_y} in y, but num_samples is {count}.")
    if count == 0:
        raise ValueError(f'{where}: has no rows; remove the user from "users".')


def _keep_labelled(data, rank, where):
    """Replace tags by positions in the list of labels, in place. -> rows without any of them"""
    best = []
    for tags in data["y"]:
        if not isinstance(tags, (str, list)):
            raise ValueError(
                f"{where}: labels= is for tags, but a y is of type {type(tags).__name__}."
            )
        tags = tags.split("|") if isinstance(tags, str) else tags
        best.append(min((rank[tag] for tag in tags if tag in rank), default=None))
    data["x"] = [row for row, label in zip(data["x"], best, strict=True) if label is not None]
    data["y"] = [label for label in best if label is not None]
    return len(best) - len(data["y"])


def _targets(values, where):
    if any(isinstance(value, (list, dict)) for value in values):
        raise ValueError(
            f'{where}: a "y" is a list or an object. For several tags give labels=, the public '
            "list of those that count."
        )
    if len({isinstance(value, str) for value in values}) > 1:
        raise ValueError(f'{where}: some "y" are strings, others numbers.')
    found = np.array(values)
    if found.dtype.kind == "O":
        raise ValueError(f'{where}: a "y" is missing (null).')
    return found


# ---------------------------------------------------------------------------------- rows
def _grow(array, more):
    """Room for `more` further entries, in place: realloc moves pages, not a second copy."""
    array.resize((len(array) + more, *array.shape[1:]), refcheck=False)


class _NumberRows:
    """Rows of numbers, as they come."""

    def __init__(self):
        self.X, self.filled = None, 0

    def extend(self, users, counts, user_data, file):
        for name, n in zip(users, counts, strict=True):
            if n == 0:
                continue
            part = self._numbers(user_data.pop(name)["x"], _where(file, name))
            if self.X is None:
                self.X = np.empty((0, part.shape[1]), dtype=part.dtype)
            if self.filled == len(self.X):  # the first of the file
                _grow(self.X, sum(counts))
            if part.shape[1] != self.X.shape[1]:
                raise ValueError(
                    f"{_where(file, name)}: rows of length {part.shape[1]}, those before have "
                    f"{self.X.shape[1]}."
                )
            self.X[self.filled : self.filled + n] = part
            self.filled += n

    def _numbers(self, rows, where):
        """Rows of one user -> array with two dimensions"""
        if rows[0] and _is_text(rows[0]):
            raise ValueError(
                f"{where}: x is text; give vocabulary=, a public list of words, or for names of "
                "images images=, their folder."
            )
        try:
            return np.array(rows, dtype=np.float64).reshape(len(rows), -1)
        except (TypeError, ValueError):
            pass  # the first error may show a value
        raise ValueError(f"{where}: x is not a matrix of numbers.")

    def matrix(self):
        return self.X


class _ImageRows(_NumberRows):
    """Images of a folder, which rows name."""

    def __init__(self, folder, size):
        super().__init__()
        try:
            from PIL import Image
        except ImportError as error:
            raise ImportError(
                "images= needs Pillow: install skpmtl with its extra [images]."
            ) from error
        self.open = Image.open
        self.faults = OSError, ValueError, SyntaxError, Image.DecompressionBombError
        self.folder, self.size = Path(folder).resolve(), size
        if not self.folder.is_dir():
            raise FileNotFoundError(f"images={os.fspath(folder)!r} is no folder.")
        if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
            raise ValueError(f"image_size={size!r} must be an int of at least 1.")

    def _numbers(self, rows, where):
        out = np.empty((len(rows), 3, self.size, self.size), dtype=np.float32)
        for i, row in enumerate(rows):
            row = row[0] if isinstance(row, list) and len(row) == 1 else row
            if not isinstance(row, str):
                raise ValueError(f"{where}: images= needs an x of names.")
            file = (self.folder / row).resolve()
            if not file.is_relative_to(self.folder):
                raise ValueError(f"{where}: an image is not in the folder {self.folder}.")
            if not file.is_file():
                raise FileNotFoundError(f"{where}: {self.folder} has not all images.")
            try:
                with self.open(file) as image:
                    image = image.convert("RGB").resize((self.size, self.size))
            except self.faults as error:
                raise ValueError(f"{where}: {file.name} is not a readable image.") from error
            np.divide(np.moveaxis(np.asarray(image), 2, 0), 255, out=out[i])
        return out.reshape(len(rows), -1)


class _TextRows:
    """CSR rows of counts of the words of a public vocabulary."""

    def __init__(self, vocabulary):
        # Only blanks separate: words such as "c#" stay what they are.
        from sklearn.feature_extraction.text import CountVectorizer

        words = vocabulary if hasattr(vocabulary, "keys") else list(vocabulary)
        self.vectorizer = CountVectorizer(lowercase=False, token_pattern=r"\S+", vocabulary=words)
        self.data, self.indices = np.empty(0), np.empty(0, dtype=np.int32)
        self.indptr = np.zeros(1, dtype=np.int64)

    def extend(self, users, counts, user_data, file):
        texts = []
        for name in users:
            for row in user_data.pop(name)["x"]:
                if not _is_text(row):
                    raise ValueError(f"{_where(file, name)}: x is not text; leave vocabulary out.")
                texts.append(row if isinstance(row, str) else " ".join(row))
        if not texts:
            return
        part = sparse.csr_matrix(self.vectorizer.transform(texts))
        filled, rows = len(self.data), len(self.indptr)
        _grow(self.data, part.nnz)
        _grow(self.indices, part.nnz)
        _grow(self.indptr, len(texts))
        self.data[filled:], self.indices[filled:] = part.data, part.indices
        self.indptr[rows:] = part.indptr[1:] + self.indptr[rows - 1]
        self.shape = len(self.indptr) - 1, part.shape[1]

    def matrix(self):
        return sparse.csr_matrix((self.data, self.indices, self.indptr), shape=self.shape)


def _is_text(row):
    return isinstance(row, str) or (
        isinstance(row, list) and all(isinstance(word, str) for word in row)
    )
