"""Files of models that stay with their rows: each worker writes those of its part."""

import os
from pathlib import Path

import numpy as np

from ..exchange.addresses import opened
from ..exchange.files import load_billboard, models_file, with_models
from ..exchange.journal import write_file
from ..tables.ids import listed, locate
from ..tables.table import distinct_ids

__all__ = ["load_models", "make_folder", "write_billboard", "write_models"]


def make_folder(folder):
    """Make the folder for models, before anything is released that could then not be stored."""
    files, root = opened(folder)
    if files is None:
        Path(root).mkdir(mode=0o700, parents=True, exist_ok=True)
    else:
        files.makedirs(root, exist_ok=True)


def write_billboard(folder, data):
    """Write a file of `save_billboard` into a folder."""
    files, root = opened(folder)
    _write(files, f"{root}/billboard.npz", data)


def write_models(folder, name, tasks, coef, intercept, **extras):
    """Write models as ``models-NAME.npz``, with other attributes of tasks."""
    files, root = opened(folder)
    _write(files, f"{root}/models-{name}.npz", models_file(tasks, coef, intercept, **extras))


def _write(files, path, data):
    if files is None:
        write_file(path, data, 0o600)
    else:
        files.pipe_file(path, bytes(data))


def load_models(folder, tasks=None):
    """The estimator of a fit whose models stayed with the parts, with some of them.

    Parameters
    ----------
    folder : path-like or address
        As `models` of `fit_shards`.
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
    found = files.ls(root, detail=False) if files else [os.fspath(p) for p in Path(root).iterdir()]
    wanted = None if tasks is None else np.sort(distinct_ids(list(tasks), "tasks="))
    some = []
    for path in sorted(found):
        name = path.rpartition("/")[2] if files else Path(path).name
        if not (name.startswith("models-") and name.endswith(".npz")):
            continue
        with files.open(path) if files else open(path, "rb") as stream:
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
        raise ValueError(f"{str(folder)!r} has no models: it is not what fit_shards wrote.")
    order = np.argsort(merged["tasks"])
    with (
        files.open(f"{root}/billboard.npz")
        if files
        else open(Path(root, "billboard.npz"), "rb") as stream
    ):
        est = load_billboard(stream)
    return with_models(est, **{key: values[order] for key, values in merged.items()})
