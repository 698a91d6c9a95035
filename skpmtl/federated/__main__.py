"""Helpers of a federation: ``python -m skpmtl.federated --help``."""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from .site import Site, read_rows
from .study import Study

_APP = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "skpmtl-federated"
version = "1.0.0"
description = "Federated fit of skpmtl"
license = "BSD-3-Clause"
dependencies = []  # every machine has its own skpmtl[flower]

[tool.hatch.build.targets.wheel]
bypass-selection = true

[tool.flwr.app]
publisher = "skpmtl"

[tool.flwr.app.components]
serverapp = "skpmtl.federated.server:app"
clientapp = "skpmtl.federated.client:app"

[tool.flwr.app.config]
study = {study}
folder = {folder}
"""


def main(arguments=None):
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m skpmtl.federated", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    init = commands.add_parser("init-app", help="write the app that the curator starts")
    init.add_argument("app", type=Path, help="folder to make")
    init.add_argument("--study", type=Path, required=True, help="on the curator's machine")
    init.add_argument("--folder", type=Path, required=True, help="journal and results")
    check = commands.add_parser("check", help="show a study, and whether rows go with it")
    check.add_argument("study", type=Path)
    check.add_argument("--rows", type=Path)
    check.add_argument("--task", default="task")
    check.add_argument("--target", default="y")
    check.add_argument("--weight")
    given = parser.parse_args(arguments)
    study = Study.load(given.study)
    if given.command == "init-app":
        given.app.mkdir(parents=True)
        text = _APP.format(
            study=_quoted(given.study.resolve()), folder=_quoted(given.folder.resolve())
        )
        (given.app / "pyproject.toml").write_text(text)
        print(f"flwr run {given.app} NAME --stream    # NAME: of the SuperLink in config.toml")
        return
    est = study.build()
    print(f"study    {study.name}: {est}")
    print(f"tasks    {len(study.tasks)}, features {study.n_features}")
    print(f"digest   {study.digest}")
    if given.rows is not None:
        with tempfile.TemporaryDirectory() as folder:
            columns = given.task, given.target, given.weight
            site = Site(study, read_rows(given.rows, study, *columns), folder)
        sizes = dict(zip(site.table.tasks.tolist(), site.table.sizes.tolist(), strict=True))
        print(f"rows     of {len(sizes)} tasks: {sizes}")
        print(f"lengths  of rows: median {np.median(np.linalg.norm(site.table.X, axis=1)):.3g}")


def _quoted(path):
    """A TOML string."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


if __name__ == "__main__":
    sys.exit(main())
