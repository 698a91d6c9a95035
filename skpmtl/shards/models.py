"""Files of models that stay with their rows: each worker writes those of its part."""

from pathlib import Path

from ..exchange.addresses import opened
from ..exchange.journal import write_file
from ..exchange.models import models_file


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
