"""Files of models that stay with their rows, of parts of a fit and of sites."""

import io
import os
from pathlib import Path

import numpy as np

from ..tables.forms import InputForm
from ..tables.ids import listed, locate
from ..tables.table import distinct_ids
from .addresses import opened, reading
from .files import read_billboard

__all__ = ["load_models"]


def models_file(tasks, coef, intercept, **extras):
    """Models of tasks, with their other attributes, as a NumPy archive. -> buffer"""
    buffer = io.BytesIO()
    np.savez(buffer, tasks=tasks, coef=coef, intercept=intercept, **extras)
    return buffer.getbuffer()


def with_models(est, tasks, coef, intercept, **extras):
    """An estimator of a billboard with stored models and other attributes of tasks.

    Ids are passed as ``task=``.
    """
    for name in set(est._extras) & set(extras):
        setattr(est, name, extras[name])
    est.tasks_, est.coef_, est.intercept_ = tasks, coef, intercept
    est._form_ = InputForm("keyword")
    est.n_features_in_ = est.billboard_.n_features
    if est._billboard_names_ is not None:
        est.feature_names_in_ = est._billboard_names_
    return est


def load_models(folder, tasks=None):
    """The estimator of a fit whose models are in a folder, with some of them.

    Parameters
    ----------
    folder : path-like
        Or an address of an object store. The `models` of ``fit_shards``, or the folder of one
        study inside that of a site.
    tasks : array-like, default=None
        Tasks whose models are read; None: all.

    Returns
    -------
    est : estimator
        Fitted, with these tasks; ids are passed as ``task=``.

    Raises
    ------
    ValueError
        If the folder has no model of a task, or is no such folder.
    """
    files, root = opened(os.fspath(folder))
    paths = files.ls(root, detail=False) if files else [os.fspath(p) for p in Path(root).iterdir()]
    wanted = None if tasks is None else np.sort(distinct_ids(list(tasks), "tasks="))
    some = []
    for path in sorted(paths):
        name = path.rpartition("/")[2] if files else Path(path).name
        if not (name.startswith("models") and name.endswith(".npz")):
            continue
        with reading(files, path) as stream:
            with np.load(stream, allow_pickle=False) as arrays:
                ids = arrays["tasks"]
                mine = np.arange(len(ids))
                if wanted is not None:
                    mine = np.flatnonzero(locate(ids, wanted) >= 0)
                if len(mine):
                    some.append({key: arrays[key][mine] for key in arrays.files})
    names = some[0] if some else ()
    merged = {key: np.concatenate([part[key] for part in some]) for key in names}
    if wanted is not None:
        known = merged["tasks"] if merged else wanted[:0]
        missing = wanted[~np.isin(wanted, known)]
        if len(missing):
            raise ValueError(f"{str(folder)!r} has no models of the tasks {listed(missing)}.")
    elif not merged:
        raise ValueError(f"{str(folder)!r} has no models: neither fit_shards nor a site wrote it.")
    order = np.argsort(merged["tasks"])
    with reading(files, f"{root}/billboard.npz") as stream:
        est = read_billboard(stream)
    return with_models(est, **{key: values[order] for key, values in merged.items()})._for_users()
