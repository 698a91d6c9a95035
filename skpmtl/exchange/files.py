"""Files of billboards, and estimators made from them.

A curator writes ``save_billboard(est, path)``; anybody goes on with ``load_billboard(path)`` and
``personalize(X, y, task)`` on rows of their own. `skpmtl.exchange.wire` is the same for the
network.
"""

import copy
import io
import json
import os
import warnings
import zipfile
from functools import partial
from os import PathLike
from typing import ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from .._runtime.constraints import check_parameters
from .._runtime.stack import users_line
from .._version import __version__
from ..tables.forms import (
    InputForm,
    feature_names,
    is_mapping_of_tasks,
    read_rows,
    read_training,
    task_position,
)
from ..tables.ids import listed
from ..tables.table import SingleTaskWarning, bound_values
from .billboard import Billboard
from .journal import write_file
from .wire import (
    FORMAT,
    Complaints,
    check_billboard,
    decode,
    decode_all,
    encode,
    from_npy,
    parse,
    to_npy,
    written_type,
)

__all__ = ["load_billboard", "save_billboard"]
# Parameters that stay where the rows of the fit are.
_NOT_WRITTEN = (
    "class_weight",
    "classes",
    "dtype",
    "random_state",
    "tasks",
    "uncertainty",
    "verbose",
    "warm_start",
)
_CLASS_TYPES = (
    "<U",
    "|b1",
    "|i1",
    "<i2",
    "<i4",
    "<i8",
    "|u1",
    "<u2",
    "<u4",
    "<u8",
    "<f2",
    "<f4",
    "<f8",
)
_ZIP64 = 1 << 31  # bytes from which an archive needs longer fields
_KEYS = ("board", "estimator", "feature_names", "format", "n_features", "package", "params")


def estimators():
    """Estimators whose billboards others can go on with. -> {name: class}"""
    return {
        name: cls
        for name, cls in FromBillboard._known.items()
        if cls._billboards
        and issubclass(cls, (RegressorMixin, ClassifierMixin))
        and not name.startswith("_")
    }


# -------------------------------------------------------------------------------- files
def save_billboard(est, path: str | PathLike[str]):
    """Write what a fit published, for others to personalise on their own rows.

    The file is a NumPy archive (.npz) without pickled objects. It has the billboard with its
    privacy report, the parameters except `class_weight`, `dtype`, `random_state`, `tasks`,
    `uncertainty`, `verbose` and `warm_start`, the classes, and the names of the features. It has no
    rows, no models of tasks and no list of tasks, with the exception of what is public about tasks:
    a mapping of tasks to clusters, or a relation. An exact fit has a billboard too, which protects
    nobody, as its report says.

    Parameters
    ----------
    est : estimator
        Fitted, of a class of this package that has a billboard.
    path : str or path-like
        File to write; the customary ending .npz is not added. One that is there is replaced when
        the new one is complete and safe on the disk, and keeps its permissions.

    Raises
    ------
    ValueError
        If `est` is of another class, or has a parameter that is neither a number nor text.
    NotFittedError

    See Also
    --------
    load_billboard : The other half.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from skpmtl import MPMTLLowRank, load_billboard, save_billboard
    >>> from skpmtl.datasets import make_low_rank_tasks
    >>> X, y, task = make_low_rank_tasks(n_tasks=41, n_samples=15, n_features=5, random_state=0)
    >>> here, there = task < 40, task == 40
    >>> curator = MPMTLLowRank(tasks=range(40)).fit(X[here], y[here], task=task[here])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_billboard(curator, Path(folder, "billboard.npz"))
    ...     device = load_billboard(Path(folder, "billboard.npz"))
    >>> device.personalize(X[there], y[there], task=task[there]).tasks_
    array([40])
    """
    write_file(path, file_of(est))


def file_of(est):
    """What `save_billboard` writes. -> buffer"""
    est = est._in_files() if hasattr(est, "_in_files") else est
    cls = type(est)
    if estimators().get(cls.__name__) is not cls:
        names = sorted(one._name_in_studies or name for name, one in estimators().items())
        raise ValueError(
            f"{cls.__name__} has no billboard that others can go on with. Give one of the fitted "
            f"estimators {listed(names, 50)}; of a search or a pipeline its last step."
        )
    check_is_fitted(est)
    billboard = est.billboard_
    if billboard.report is None:
        raise ValueError("The billboard has no privacy report, without which it is not published.")
    arrays, given = {}, est.get_params(deep=False)
    names = feature_names(est)  # of the fit, or of its billboard
    names = getattr(est, "_billboard_names_", None) if names is None else names
    header = {
        "board": encode(billboard, "board", arrays),
        "estimator": cls.__name__,
        "feature_names": None if names is None else names.tolist(),
        "format": FORMAT,
        "n_features": billboard.n_features,
        "package": f"skpmtl {__version__}",
        "params": {
            name: _encode_parameter(name, given[name])
            for name in sorted(set(given) - set(billboard.parameters()))
            if name.partition("__")[0] not in (*_NOT_WRITTEN, *cls._stays)
        },
    }
    text = json.dumps(header, allow_nan=False).encode()
    with Complaints("This billboard", "Nothing was written: fit again with other settings"):
        decode_all(json.loads(text)["board"], arrays)  # what is written can be read
    if hasattr(est, "classes_"):
        arrays["classes"] = est.classes_
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {"header": np.frombuffer(text, dtype=np.uint8), **arrays}.items():
            info = zipfile.ZipInfo(f"{name}.npy")  # of one date: equal billboards, equal files
            with archive.open(info, "w", force_zip64=array.nbytes > _ZIP64) as member:
                member.write(to_npy(array))
    return stream.getbuffer()


def load_billboard(path):
    """Estimator from a file of `save_billboard`; it has no tasks until `personalize`.

    Parameters
    ----------
    path : str, path-like or file opened for reading bytes

    Returns
    -------
    est : estimator
        Of the class that wrote the file, with `billboard_`, `privacy_`, `classes_` and what is
        known of the mean model. ``est.personalize(X, y, task)`` with rows of the same features, in
        any of the forms of `fit`, makes it as if these tasks had been personalised where the
        billboard comes from. Before that, with ``unseen_task="mean"`` and a released mean model,
        `predict` uses that one. What concerns the course of the fit is missing, such as `n_iter_`.
        Parameters that the file does not have are the defaults: a classifier averages probabilities
        over what is not known of a model, also where the fit had ``uncertainty=False``, unless
        ``est.set_params(uncertainty=False)`` comes before `personalize`.

    Raises
    ------
    ValueError
        If the file is no billboard, damaged, of another format version, holds anything that is
        not known or arrays of another type, order or shape than its settings ask for, or is
        compressed: it takes a few times its size in memory at most. Nothing in it is executed.
    OSError
        If the file cannot be opened.
    """
    if hasattr(path, "read"):
        return read_billboard(path)._for_users()
    path = os.fspath(path)
    with open(path, "rb") as stream:
        return read_billboard(stream, repr(path))._for_users()


def read_billboard(stream, name="The billboard"):
    """`load_billboard` for a stream. -> estimator of the class that wrote it"""
    with Complaints(name):
        members = _members(stream)
        if "header" not in members:
            raise ValueError("it is not a billboard of skpmtl")
        header = from_npy(members.pop("header")(), "header", ("|u1",))
        header = parse(header.tobytes().decode(), _KEYS)
        _check_names(members, header["board"])
        classes = None
        if "classes" in members:
            classes = from_npy(members.pop("classes")(), "classes", _CLASS_TYPES)
        arrays = {name: from_npy(read(), name) for name, read in members.items()}
        billboard = decode_all(header["board"], arrays)
        params = {name: decode(value, {}) for name, value in header["params"].items()}
        cls = estimators().get(header["estimator"])
        if cls is None:
            raise ValueError(f"estimator {header['estimator']!r} is not known")
        return estimator_of(
            cls, billboard, classes, header["n_features"], header["feature_names"], params
        )


def _members(stream):
    """{name: function that reads it} of the arrays in an archive; nothing is read yet.

    What is in it is not compressed, has a name of its own, and is not larger than the file: no
    file takes more memory than it has bytes, a few times over.
    """
    if not zipfile.is_zipfile(stream):
        raise ValueError("it is not a billboard of skpmtl, or only the beginning of one")
    size = stream.seek(0, os.SEEK_END)
    archive = zipfile.ZipFile(stream)
    members = {}
    for info in archive.infolist():
        name = info.filename
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise ValueError(f"{name!r} is compressed or encrypted, which save_billboard does not")
        if info.file_size != info.compress_size:
            raise ValueError(f"{name!r} has two sizes")
        if not name.endswith(".npy") or name[:-4] in members:
            raise ValueError(f"{name!r} is no array of a billboard, or there twice")
        size -= info.file_size
        members[name[:-4]] = partial(archive.read, info)
    if size < 0:
        raise ValueError("its arrays are larger than itself")
    return members


def _check_names(members, tree):
    """Refuse other arrays than those that the header refers to, before they are read."""
    named, left = set(), [tree]
    while left:
        item = left.pop()
        if isinstance(item, dict) and list(item) == ["array"]:
            named.add(item["array"])
        elif isinstance(item, (dict, list)):
            left.extend(item.values() if isinstance(item, dict) else item)
    missing = sorted(map(str, named - set(members)))
    if missing:
        raise ValueError(f"the array {missing[0]!r} is missing")
    odd = sorted(set(members) - named - {"classes"})
    if odd:
        raise ValueError(f"it has arrays that nothing refers to: {listed(odd)}")


def _encode_parameter(name, value):
    arrays = {}
    tree = encode(value, f"the parameter {name}", arrays)
    if arrays:
        raise ValueError(f"the parameter {name} holds an array; pass a list.")
    return tree


# --------------------------------------------------------- an estimator without tasks so far
class FromBillboard:
    """Mixin of the estimators that have a billboard.

    Attributes
    ----------
    _billboards : tuple of type
        Kinds of billboards that the class publishes and goes on with; those of a class without
        any are not written. A class of another package than the one that declares them is its
        author's own affair: its billboards are written if it declares them again.
    _stays : tuple of str
        Further parameters, with all of theirs, that stay where the rows of the fit are.
    """

    _billboards: ClassVar[tuple[type, ...]] = ()
    _stays: ClassVar[tuple[str, ...]] = ()
    _known: ClassVar[dict[str, type]] = {}  # by name

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        owner = next(base for base in cls.__mro__ if "_billboards" in vars(base))
        if owner.__module__.partition(".")[0] != cls.__module__.partition(".")[0]:
            return
        old = FromBillboard._known.setdefault(cls.__name__, cls)
        if old.__module__ == cls.__module__:  # others of its name do not take its place
            FromBillboard._known[cls.__name__] = cls

    @classmethod
    def _goes_on(cls, billboard):
        """Whether a billboard of this kind can be personalised by this class."""
        return isinstance(billboard, cls._billboards)

    @classmethod
    def from_billboard(
        cls, billboard, *, classes=None, n_features=None, feature_names=None, **params
    ):
        """An estimator without tasks, which `personalize` fills from a published billboard.

        Parameters
        ----------
        billboard : billboard
            `billboard_` of a fit of this class, or of one with the same kind of billboard.
        classes : array-like of shape (n_classes,), default=None
            `classes_` of the fit; for classifiers, which need them.
        n_features : int, default=None
            Number of features without a task column, to be compared with the billboard.
        feature_names : sequence of str, default=None
            Their names, with which the rows of `personalize` are compared.
        **params
            Parameters of the estimator; those that the billboard settles may be left out.

        Returns
        -------
        est : estimator
            `personalize`, which reads its input as `fit` would, adds the first tasks; models and
            predictions are then those of the fitted estimator, had these tasks been added there.

        Raises
        ------
        TypeError, ValueError
            If `billboard` is no billboard, or does not go with the class or the other arguments.
        """
        return estimator_of(cls, billboard, classes, n_features, feature_names, params)

    def _for_users(self):
        """What is given to those who read a file of this estimator."""
        return self

    def _billboard_file(self):
        """What `save_billboard` writes. -> buffer"""
        return file_of(self)


def estimator_of(cls, billboard, classes, n_features, feature_names, params):
    kind = type(billboard).__name__
    if not isinstance(billboard, Billboard) or type(billboard) is not written_type(kind):
        raise TypeError(
            f"board must be a billboard, not {kind}: take billboard_ or export_billboard() of a "
            "fitted estimator, or load_billboard(path) for a file."
        )
    if not cls._goes_on(billboard):
        owners = [name for name, owner in estimators().items() if owner._goes_on(billboard)]
        raise ValueError(
            f"{cls.__name__} does not go on with this {kind}; {listed(sorted(owners), 20)} are "
            "made for it."
        )
    check_billboard(billboard)
    settings = billboard.parameters()
    other = [name for name in params if name in settings and params[name] != settings[name]]
    if other:
        raise ValueError(
            f"{other[0]}={params[other[0]]!r}, but the billboard was made with "
            f"{settings[other[0]]!r}: leave {other[0]} out."
        )
    given = {**settings, **params}
    if given.get("loss") == "squared":  # which estimators without the parameter have, too
        del given["loss"]
    est = cls(**given)
    check_parameters(est)
    classes = _checked_classes(est, billboard, classes)
    d = billboard.n_features
    if n_features is not None and n_features != d:
        raise ValueError(f"n_features={n_features!r}, but the billboard is for {d} features.")
    names = None
    if feature_names is not None:
        names = np.array(list(feature_names), dtype=object)
        if len(names) != d or not all(isinstance(name, str) for name in names):
            raise ValueError(
                f"feature_names={listed(names)} must be {d} strings, without the task column."
            )
    shape = billboard.model_shape
    state = {
        "tasks_": np.empty(0, dtype=np.int64),
        "_form_": InputForm("none"),
        "coef_": np.empty((0, *shape)),
        "intercept_": np.empty((0, *shape[:-1])),
        "billboard_": billboard,
        "privacy_": billboard.report,
        "_billboard_names_": names,
        **billboard.attributes(),
    }
    if classes is not None:
        est.classes, state["classes_"] = classes.tolist(), classes
    for name, value in state.items():
        setattr(est, name, value)
    return est


def _checked_classes(est, billboard, classes):
    """Sorted array, None for regression."""
    name = type(est).__name__
    if not est._classification:
        if classes is not None:
            raise ValueError(f"classes={listed(classes)} are for classifiers; {name} has none.")
        if billboard.n_classes:
            raise ValueError(f"{name} is for real targets, the billboard for classes.")
        return None
    if classes is None:
        raise ValueError(f"{name} needs classes=, those of the fit: pass its classes_.")
    classes = np.unique(np.asarray(classes))
    expected = 2 if billboard.n_classes is None else billboard.n_classes
    if not expected or len(classes) != expected or classes.dtype.kind not in "biufU":
        raise ValueError(
            f"classes={listed(classes)} do not go with this billboard, which is for "
            + (f"{expected} classes: pass classes_ of the fit." if expected else "real targets.")
        )
    return classes


def first_tasks(est, X, y, task, sample_weight=None):
    """`BaseMTL.personalize` of an estimator without tasks, which reads the form of the input."""
    probe = copy.copy(est)  # the estimator stays as it is after an error
    table, form = read_training(probe, X, y, task, sample_weight)
    if form.kind == "single":
        warnings.warn(
            "There is no task information: all rows are taken as one task. Set task_feature, or "
            "pass task=, a mapping, or a 2-D y.",
            SingleTaskWarning,
            stacklevel=users_line(),
        )
    _check_features(probe, table.n_features, form.columns)
    table = bound_values(est._encoded(table, getattr(est, "classes_", None), new=True)[0])
    fitted = est._first_models(table)
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(probe, name):
            fitted[name] = getattr(probe, name)
    if "coef_" not in fitted:  # kept in another form, and written out when somebody asks for them
        for name in ("coef_", "mean_coef_"):
            vars(est).pop(name, None)
    for name, value in {**fitted, "tasks_": table.everybody, "_form_": form}.items():
        setattr(est, name, value)
    return est


def rows_before_tasks(est, X, task, mean):
    """Rows to predict with the mean model alone, as there are no tasks yet."""
    mapped = is_mapping_of_tasks(X)
    has_ids = mapped or task is not None or est.task_feature is not None
    if not (mean and has_ids and est._has_mean()):
        raise NotFittedError(
            f"This {type(est).__name__} was made from a billboard and has no task yet: call "
            "personalize(X, y, task) first, with the rows of one task or more."
        )
    probe = copy.copy(est)
    probe._form_ = None  # the position of the task column and the names are read from X
    if mapped and X:
        validate_data(probe, next(iter(X.values())), skip_check_array=True)
    rows = read_rows(probe, X, task, mean)
    named = [] if mapped or est.task_feature is None else [est.task_feature]
    named += [] if rows.levels is None else rows.levels.names
    given = next(iter(X.values())) if mapped else X
    columns = [task_position(given, name) for name in named]
    _check_features(probe, rows.X.shape[1] - (rows.position is not None), columns)
    return rows


def _check_features(probe, n_features, columns):
    """Compare the input that `probe` has read with the billboard."""
    expected, known = probe.billboard_.n_features, probe._billboard_names_
    if n_features != expected:
        raise ValueError(
            f"X has {n_features} features"
            + (" beside the task column" if len(columns) else "")
            + f", but the billboard is for {expected}"
            + (f": {listed(known, 20)}." if known is not None else ".")
        )
    if known is None:
        return
    names = getattr(probe, "feature_names_in_", None)
    if names is None:
        warnings.warn(
            "X has no feature names: its columns are taken to be those of the billboard, "
            f"{listed(known, 20)}, in this order.",
            UserWarning,
            stacklevel=users_line(),
        )
        return
    names = np.delete(names, list(columns))
    if names.tolist() == known.tolist():
        return
    odd = [name for name in names if name not in set(known)]
    problem = f"unknown features {listed(odd)}" if odd else "its features in another order"
    raise ValueError(f"X has {problem}: the billboard is for {listed(known, 20)}, in this order.")
