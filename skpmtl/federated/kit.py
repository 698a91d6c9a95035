"""Settings of skpmtl in a start-up kit of NVFlare: what a job may do here, and ``site.toml``.

A kit is the folder that ``nvflare provision`` or ``nvflare package`` makes. Its ``local`` is its
owner's: NVFlare takes a ``resources.json`` and an ``authorization.json`` there in place of the
defaults of the kit.
"""

import json
import math
import shutil
from pathlib import Path

from ..exchange.journal import write_file
from .study import Study

__all__ = ["prepare_server", "prepare_site"]

EXECUTOR = "skpmtl.federated.executor.SiteExecutor"
CONTROLLER = "skpmtl.federated.controller.StudyController"


def prepare_server(kit):
    """Let jobs build `StudyController` and nothing else, and store jobs in the kit of a server."""
    local = _local(kit)
    _restrict(local, CONTROLLER)
    path = local / "resources.json"
    text = path.read_text()  # NVFlare stores them in a folder that is not kept
    text = text.replace('"/tmp/nvflare/', f'"{Path(kit).resolve().as_posix()}/storage/')
    write_file(path, text.encode())


def prepare_site(kit, studies, rows=None, server=None, columns=None, epsilon=math.inf):
    """Let jobs build `SiteExecutor` and nothing else in a kit, and write its ``site.toml``.

    Parameters
    ----------
    kit : path-like
        Folder of the kit of a site, or of one of the servers of a study.
    studies : list of path-like
        Public settings, which are copied into the kit.
    rows : path-like, default=None
        File of rows of this site.
    server : path-like, default=None
        Private key of one of the servers of a study, in place of rows.
    columns : dict, default=None
        Names of the columns "task", "target", "weight", "event" and "entry".
    epsilon : float, default=inf
        Cap on the sum of the epsilons of all studies.

    Raises
    ------
    ValueError
        For a folder that is no kit, and where there is a ``site.toml`` already.
    """
    local = _local(kit)
    path = local / "site.toml"
    if path.exists():
        raise ValueError(f"{path} is there already: edit it to add a study or to change rows.")
    lines = [f"folder = {json.dumps(str(Path(kit).resolve() / 'books'))}"]
    lines += [f"epsilon = {float(epsilon)!r}"] if math.isfinite(epsilon) else []
    source = ("rows", rows) if server is None else ("server", server)
    for file in map(Path, studies):
        name = f"{Study.load(file).name}{file.suffix}"
        shutil.copyfile(file, local / name)
        given = {"file": name, source[0]: str(Path(source[1]).resolve()), **(columns or {})}
        lines += ["", "[[study]]", *(f"{k} = {json.dumps(v)}" for k, v in given.items())]
    _restrict(local, EXECUTOR)
    write_file(path, ("\n".join(lines) + "\n").encode(), 0o600)


def _local(kit):
    local = Path(kit) / "local"
    if not (local / "resources.json.default").exists():
        raise ValueError(f"{kit} is no start-up kit of a site or a server: name such a folder.")
    return local


def _restrict(local, name):
    """Only the class `name` may be built; no job brings code; logs, which may show rows, stay."""
    resources = json.loads((local / "resources.json.default").read_text())
    resources |= {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [name],
        "allow_log_streaming": False,
        "components": [c for c in resources["components"] if c["id"] != "site_log_streamer"],
    }
    roles = json.loads((local / "authorization.json.default").read_text())
    for role, rights in roles["permissions"].items():
        rights = {"view": "any", "manage_job": "any"} if rights == "any" else rights
        roles["permissions"][role] = {**rights, "byoc": "none", "shell_commands": "none"}
    for file, content in (("resources", resources), ("authorization", roles)):
        write_file(local / f"{file}.json", json.dumps(content, indent=1).encode())
