"""What the operator of a site settles in one file, ``site.toml``: which studies, on which rows.

::

    folder = "books"             # ledger, states and models
    epsilon = 10.0               # cap on the sum over all studies; without it there is none

    [[study]]
    file = "exam-scores.toml"    # the public settings, as the curator has them
    rows = "rows.csv"
    task = "school"
    target = "score"
    weight = "sure"              # where rows have weights
    # event = "died", entry = "from"  # of SurvivalMTL, whose target is a time

One of the servers of a study has ``server = "server.key"``, its private key, in place of rows.

Paths are relative to the file. Nothing of it leaves the site.
"""

import math
from dataclasses import MISSING, dataclass, fields
from numbers import Real
from pathlib import Path

from .._version import __version__
from ..tables.ids import listed
from .ledger import Refusal, private_folder
from .secret_shares import ShareServer
from .site import Site, read_rows
from .study import Study, read_toml

__all__ = ["Participation", "Settings", "SiteConfig"]


@dataclass(frozen=True)
class Participation:
    """A study in which the site takes part; see `skpmtl.federated.site_config`."""

    file: Path
    rows: Path | None = None
    server: Path | None = None
    task: object = "task"
    target: object = "y"
    weight: object = None
    event: object = None
    entry: object = None


@dataclass(frozen=True)
class Settings:
    """A ``site.toml``; see `skpmtl.federated.site_config`."""

    study: tuple
    folder: Path
    epsilon: float = math.inf

    @classmethod
    def load(cls, path):
        """Read a file.

        Raises ValueError for unknown or missing keys, and for values of other types.
        """
        path = Path(path).resolve()
        given = read_toml(path)
        parts = given.get("study")
        if not (parts and isinstance(parts, list) and all(isinstance(p, dict) for p in parts)):
            raise ValueError(f"{path} names no study: it needs a table [[study]].")
        given["study"] = tuple(_checked(Participation, part, path) for part in parts)
        if any((part.rows is None) == (part.server is None) for part in given["study"]):
            raise ValueError(
                f"{path}: every study needs rows, or server= for one of its servers, not both."
            )
        epsilon = given.get("epsilon", math.inf)
        if not isinstance(epsilon, Real) or not epsilon > 0:
            raise ValueError(f"{path}: epsilon={epsilon!r} must be positive.")
        return _checked(cls, {"folder": "books", **given}, path)


def _checked(cls, given, path):
    known = fields(cls)
    odd = sorted(set(given) - {item.name for item in known})
    missing = [f.name for f in known if f.default is MISSING and f.name not in given]
    if odd or missing:
        what = f"has the keys {listed(odd)}" if odd else f"lacks {listed(missing)}"
        raise ValueError(f"{path} {what}; {listed([f.name for f in known], 20)} are known.")
    paths = [f.name for f in known if "Path" in str(f.type) and f.name in given]
    for name in paths:
        if not isinstance(given[name], str):
            raise ValueError(f"{path}: {name}={given[name]!r} must be text.")
    return cls(**given | {name: path.parent / given[name] for name in paths})


class SiteConfig:
    """The sites of all studies of a ``site.toml``, made when they are asked for.

    They are made again when the file of a study, or of rows, has changed; ``site.toml`` is read
    anew for each query.
    """

    def __init__(self, path):
        self.path, self._sites, self._studies = Path(path).resolve(), {}, {}

    @property
    def settings(self):
        """As the file has them now."""
        return Settings.load(self.path)

    @property
    def folder(self):
        """The books."""
        return private_folder(self.settings.folder)

    def site(self, digest, name="", version=""):
        """The site of a study, or its server. -> Site or ShareServer

        `name` and `version`, of the study and of skpmtl at the curator, are for the Refusal when no
        study here has the digest.
        """
        names = {}
        for part in self.settings.study:
            found = _print(part.file)
            if part.file not in self._studies or self._studies[part.file][0] != found:
                self._studies[part.file] = found, Study.load(part.file)
            study = self._studies[part.file][1]
            if study.digest == digest:
                return self.open(part, study)
            names[study.name] = study.digest
        if version and version != __version__:
            why = f"it has skpmtl {__version__}, and the curator {version}: install the same one"
        elif name and name not in names:
            why = f"it takes part in {listed(sorted(names))}, and not in {name!r}: add the study"
        else:
            known = f" (digest {names[name][:12]}, the curator's {digest[:12]})" if name else ""
            why = (
                f"it was given another study{known}: compare the files, or the output of  "
                "python -m skpmtl.federated check  at both ends"
            )
        raise Refusal(f"this site does not answer: {why}")

    def open(self, part, study):
        """The site of one study, or its server; made again when the file of rows has changed."""
        found = _print(part.file), _print(part.rows or part.server)
        if part.file not in self._sites or self._sites[part.file][0] != found:
            if part.server is not None:
                site = ShareServer(study, part.server, self.folder)
            else:
                columns = part.task, part.target, part.weight, part.event, part.entry
                rows = read_rows(part.rows, study, *columns)
                site = Site(study, rows, self.folder, self.settings.epsilon)
            self._sites[part.file] = found, site
        return self._sites[part.file][1]


def _print(path):
    """What changes when a file does."""
    found = Path(path).stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
