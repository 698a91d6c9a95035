"""A published billboard alone is enough to personalise: files, and estimators from them.

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
from importlib import import_module

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from .._version import __version__
from ..tables.finite import bound_values
from ..tables.forms import InputForm, is_mapping_of_tasks, read_rows, read_training, task_position
from ..tables.ids import listed
from ..tables.table import SingleTaskWarning
from .journal import write_file
from .wire import (
    BOARDS,
    FORMAT,
    Complaints,
    check_board,
    class_of,
    decode,
    decode_all,
    encode,
    from_npy,
    parse,
    to_npy,
)

__all__ = [
    "load_billboard",
    "save_billboard",
]
_MODEL_PROTECTED = (
    "MPMTLLowRank",
    "MPMTLLowRankClassifier",
    "MPMTLGroupSparse",
    "MPMTLGroupSparseClassifier",
)
_ROUNDS = (
    "PrivateMeanRegMTL",
    "PrivateMeanRegMTLClassifier",
    "PrivateFedAvg",
    "PrivateFedAvgClassifier",
    "PrivateFedProx",
    "PrivateFedProxClassifier",
    "PPSGD",
    "PPSGDClassifier",
    "LocalOnly",
    "LocalOnlyClassifier",
)
# Billboard -> estimators that publish it.
_OWNERS = {
    "PriorBillboard": _MODEL_PROTECTED,
    "ProjectionBillboard": _MODEL_PROTECTED,
    "PenaltyBillboard": _MODEL_PROTECTED,
    "MeanBillboard": _ROUNDS,
    "MetaBillboard": ("DPMetaInit", "DPMetaInitClassifier"),
    "AggregationBillboard": ("DPAggregation", "DPAggregationClassifier"),
    "RelationshipBillboard": ("DPRelationship", "DPRelationshipClassifier"),
}
# Parameters that stay where the rows of the fit are.
_NOT_WRITTEN = ("classes", "clusters", "dtype", "random_state", "tasks", "verbose", "warm_start")
_CLASS_TYPES = (
    "<U", "|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"
)  # fmt: skip
_ZIP64 = 1 << 31  # bytes from which an archive needs longer fields
_KEYS = ("board", "estimator", "feature_names", "format", "n_features", "package", "params")


# -------------------------------------------------------------------------------- files
def save_billboard(est, path):
    """Write what a fit published, for others to personalise on their own rows.

    The file is a NumPy archive (.npz) without pickled objects. It has the billboard with its
    privacy report, the parameters except `dtype`, `random_state`, `tasks`, `verbose` and
    `warm_start`, the classes, and the names of the features. It has no rows, no models of tasks and
    no list of tasks, with the exception of a public mapping of tasks to clusters. An exact fit has
    a billboard too, which protects nobody, as its report says.

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
    ...     save_billboard(curator, Path(folder, "board.npz"))
    ...     device = load_billboard(Path(folder, "board.npz"))
    >>> device.personalize(X[there], y[there], task=task[there]).tasks_
    array([40])
    """
    write_file(path, file_of(est))


def file_of(est):
    """What `save_billboard` writes. -> buffer"""
    cls = type(est)
    if cls.__name__ not in _estimators() or cls is not _estimator(cls.__name__):
        raise ValueError(
            f"{cls.__name__} has no billboard that others can go on with. Give one of the fitted "
            f"estimators {listed(sorted(_estimators()), 50)}; of a search or a pipeline its last "
            "step."
        )
    check_is_fitted(est)
    board = est.billboard_
    if board.report is None:
        raise ValueError("The billboard has no privacy report, without which it is not published.")
    arrays, given = {}, est.get_params(deep=False)
    names = _feature_names(est)
    header = {
        "board": encode(board, "board", arrays),
        "estimator": cls.__name__,
        "feature_names": None if names is None else names.tolist(),
        "format": FORMAT,
        "n_features": board.n_features,
        "package": f"skpmtl {__version__}",
        "params": {
            name: _encode_parameter(name, given[name])
            for name in sorted(set(given) - set(_settings(board)) - set(_NOT_WRITTEN))
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
    path : str or path-like

    Returns
    -------
    est : estimator
        Of the class that wrote the file, with `billboard_`, `privacy_`, `classes_` and what is
        known of the mean model. ``est.personalize(X, y, task)`` with rows of the same features, in
        any of the forms of `fit`, makes it as if these tasks had been personalised where the
        billboard comes from. Before that, with ``unseen_task="mean"`` and a released mean model,
        `predict` uses that one. What concerns the course of the fit is missing, such as `n_iter_`.

    Raises
    ------
    ValueError
        If the file is no billboard, damaged, of another format version, holds anything that is
        not known or arrays of another type, order or shape than its settings ask for, or is
        compressed: it takes a few times its size in memory at most. Nothing in it is executed.
    OSError
        If the file cannot be opened.
    """
    path = os.fspath(path)
    with open(path, "rb") as stream, Complaints(repr(path)):
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
        board = decode_all(header["board"], arrays)
        params = {name: decode(value, {}) for name, value in header["params"].items()}
        if header["estimator"] not in _estimators():
            raise ValueError(f"estimator {header['estimator']!r} is not known")
        cls = _estimator(header["estimator"])
        return estimator_of(
            cls, board, classes, header["n_features"], header["feature_names"], params
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
    found = {}
    for info in archive.infolist():
        name = info.filename
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise ValueError(f"{name!r} is compressed or encrypted, which save_billboard does not")
        if info.file_size != info.compress_size:
            raise ValueError(f"{name!r} has two sizes")
        if not name.endswith(".npy") or name[:-4] in found:
            raise ValueError(f"{name!r} is no array of a billboard, or there twice")
        size -= info.file_size
        found[name[:-4]] = partial(archive.read, info)
    if size < 0:
        raise ValueError("its arrays are larger than itself")
    return found


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


def _estimators():
    return {name for names in _OWNERS.values() for name in names}


def _estimator(name):
    return getattr(import_module("skpmtl"), name)


def _encode_parameter(name, value):
    arrays = {}
    tree = encode(value, f"the parameter {name}", arrays)
    if arrays:
        raise ValueError(f"the parameter {name} holds an array; pass a list.")
    return tree


def _settings(board):
    """Parameters whose values the billboard brings along."""
    kind = type(board).__name__
    found = {name: getattr(board, name) for name in board.settings}
    if kind == "MeanBillboard":
        for name in ("fit_intercept", "task_weight", "ridge"):
            found[name] = getattr(board.problem, name)
        found["clusters"] = board.cluster_of
    return found


def _feature_names(est):
    """Names of the features, without a task column, or None."""
    names = getattr(est, "feature_names_in_", None)
    if names is None:
        return getattr(est, "_board_names_", None)
    position = est._form_.position
    return names if position is None else np.delete(names, position)


# --------------------------------------------------------- an estimator without tasks so far
class FromBillboard:
    """Mixin of the estimators that have a billboard."""

    @classmethod
    def from_billboard(cls, board, *, classes=None, n_features=None, feature_names=None, **params):
        """An estimator without tasks, which `personalize` fills from a published billboard.

        Parameters
        ----------
        board : billboard
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
            If `board` is no billboard, or does not go with the class or the other arguments.
        """
        return estimator_of(cls, board, classes, n_features, feature_names, params)

    def _billboard_file(self):
        """What `save_billboard` writes. -> buffer"""
        return file_of(self)


def estimator_of(cls, board, classes, n_features, feature_names, params):
    kind = type(board).__name__
    if kind not in BOARDS or type(board) is not class_of(kind):
        raise TypeError(
            f"board must be a billboard, not {kind}: take billboard_ or export_billboard() of a "
            "fitted estimator, or load_billboard(path) for a file."
        )
    owners = _OWNERS[kind]
    fits = any(issubclass(cls, _estimator(name)) for name in owners)
    if not fits or getattr(cls, "_statistic", None) != getattr(board, "statistic", None):
        raise ValueError(
            f"{cls.__name__} does not go on with a {kind}"
            + (f" of a {board.statistic}" if hasattr(board, "statistic") else "")
            + f"; {listed(owners, 20)} are made for it."
        )
    check_board(board)
    settings = _settings(board)
    other = [name for name in params if name in settings and params[name] != settings[name]]
    if other:
        raise ValueError(
            f"{other[0]}={params[other[0]]!r}, but the billboard was made with "
            f"{settings[other[0]]!r}: leave {other[0]} out."
        )
    est = cls(**{**settings, **params})
    est._validate_params()
    classes = _checked_classes(est, board, classes)
    d = board.n_features
    if n_features is not None and n_features != d:
        raise ValueError(f"n_features={n_features!r}, but the billboard is for {d} features.")
    names = None
    if feature_names is not None:
        names = np.array(list(feature_names), dtype=object)
        if len(names) != d or not all(isinstance(name, str) for name in names):
            raise ValueError(
                f"feature_names={listed(names)} must be {d} strings, without the task column."
            )
    shape = board.shape if kind == "MeanBillboard" else (d,)
    if kind == "MetaBillboard":
        shape = board.coef.shape
    state = {
        "tasks_": np.empty(0, dtype=np.int64),
        "_form_": InputForm("none"),
        "coef_": np.empty((0, *shape)),
        "intercept_": np.empty((0, *shape[:-1])),
        "billboard_": board,
        "privacy_": board.report,
        "_board_names_": names,
        **released_attributes(board),
    }
    if classes is not None:
        est.classes, state["classes_"] = classes.tolist(), classes
    for name, value in state.items():
        setattr(est, name, value)
    return est


def _checked_classes(est, board, classes):
    """Sorted array, None for regression."""
    name = type(est).__name__
    kind = n_outputs = None  # of other billboards not known
    if hasattr(board, "problem"):
        kind, n_outputs = board.problem.kind, board.problem.n_outputs
    elif hasattr(board, "kind"):
        kind, n_outputs = board.kind, len(board.init)
    if not est._classification:
        if classes is not None:
            raise ValueError(f"classes={listed(classes)} are for classifiers; {name} has none.")
        if kind not in (0, None):
            raise ValueError(f"{name} is for real targets, the billboard for classes.")
        return None
    if classes is None:
        raise ValueError(f"{name} needs classes=, those of the fit: pass its classes_.")
    classes = np.unique(np.asarray(classes))
    expected = {1: 2, 2: n_outputs}.get(kind, 2)
    if kind == 0 or len(classes) != expected or classes.dtype.kind not in "biufU":
        raise ValueError(
            f"classes={listed(classes)} do not go with this billboard, which is for "
            + ("real targets." if kind == 0 else f"{expected} classes: pass classes_ of the fit.")
        )
    return classes


def released_attributes(board):
    """What a fit sets from the billboard alone, beside the models."""
    kind = type(board).__name__
    if kind in ("PriorBillboard", "ProjectionBillboard"):
        if board.mean is None:
            return {}
        return {"mean_coef_": board.mean[:-1], "mean_intercept_": float(board.mean[-1])}
    if kind == "MeanBillboard":
        found = {} if board.plan is not None else {"lam_": board.problem.lam}
        if board.cluster_of is None:
            found["mean_coef_"] = board.mean.copy()
            if board.mean_intercept is not None:
                b = board.mean_intercept
                found["mean_intercept_"] = b if len(board.shape) == 2 else float(b[0])
        return found
    if kind == "MetaBillboard":
        nobody = object.__new__(import_module("skpmtl.meta.plan").MetaPlan)
        return {
            "init_coef_": board.coef.copy(),
            "init_intercept_": board.intercept,
            "mean_coef_": board.coef.copy(),
            "mean_intercept_": board.intercept,
            "_plan_": (nobody, np.empty(0, dtype=np.int64)),
        }
    if kind == "AggregationBillboard":
        coef, intercept = board.mean
        return {"mean_coef_": coef, "mean_intercept_": float(intercept)}
    if kind == "RelationshipBillboard" and len(board.models):
        d = board.n_features
        b = board.models[:, d].mean() if board.fit_intercept else 0.0
        return {"mean_coef_": board.models[:, :d].mean(axis=0), "mean_intercept_": float(b)}
    return {}  # exact: the mean over the tasks is not on the billboard


def first_tasks(est, X, y, task):
    """`BaseMTL.personalize` of an estimator without tasks, which reads the form of the input."""
    probe = copy.copy(est)  # the estimator stays as it is after an error
    table, form = read_training(probe, X, y, task)
    if form.kind == "single":
        warnings.warn(
            "There is no task information: all rows are taken as one task. Set task_feature, or "
            "pass task=, a mapping, or a 2-D y.",
            SingleTaskWarning,
            stacklevel=3,
        )
    _check_features(probe, table.n_features, form.position)
    table = bound_values(est._encoded(table, getattr(est, "classes_", None))[0])
    if type(est.billboard_).__name__ == "MeanBillboard":
        with np.errstate(all="ignore"):
            models = est.billboard_.personalize(table)
        fitted = est._fitted(table, est.billboard_, models, 0)
        del fitted["n_iter_"]
        if "coef_" in fitted:
            models = est._finite_models(fitted["coef_"], fitted["intercept_"])
            fitted["coef_"], fitted["intercept_"] = models
    else:
        coef, intercept = est._personal_models(table)
        fitted = {"coef_": coef, "intercept_": intercept}
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(probe, name):
            fitted[name] = getattr(probe, name)
    if "models_" in fitted:  # wide sparse tasks: written out when somebody asks for them
        del est.coef_
        vars(est).pop("mean_coef_", None)
    for name, value in {**fitted, "tasks_": table.tasks, "_form_": form}.items():
        setattr(est, name, value)
    return est


def rows_before_tasks(est, X, task, mean):
    """Rows to predict with the mean model alone, as there are no tasks yet."""
    mapped = is_mapping_of_tasks(X)
    told = mapped or task is not None or est.task_feature is not None
    if not (mean and told and est._has_mean()):
        raise NotFittedError(
            f"This {type(est).__name__} was made from a billboard and has no task yet: call "
            "personalize(X, y, task) first, with the rows of one task or more."
        )
    probe = copy.copy(est)
    probe._form_ = None  # the position of the task column and the names are read from X
    if mapped and X:
        validate_data(probe, next(iter(X.values())), skip_check_array=True)
    rows = read_rows(probe, X, task)
    position = None if mapped or est.task_feature is None else task_position(X, est.task_feature)
    _check_features(probe, rows.X.shape[1] - (rows.position is not None), position)
    return rows


def _check_features(probe, n_features, position):
    """Compare the input that `probe` has read with the billboard."""
    expected, known = probe.billboard_.n_features, probe._board_names_
    if n_features != expected:
        raise ValueError(
            f"X has {n_features} features"
            + (" beside the task column" if position is not None else "")
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
            stacklevel=4,
        )
        return
    names = names if position is None else np.delete(names, position)
    if names.tolist() == known.tolist():
        return
    odd = [name for name in names if name not in set(known)]
    problem = f"unknown features {listed(odd)}" if odd else "its features in another order"
    raise ValueError(
        f"X has {problem}: the billboard is for {listed(known, 20)}, in this order."
    )
