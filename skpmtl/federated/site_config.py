"""What the operator of a site settles in one file, ``site.toml``: which studies, of whom, on what.

::

    name = "clinic-a"
    superlink = "curator.example.org:8000"
    certificate = "ca.pem"       # of the authority that the SuperLink's certificate is from
    key = "site.key"             # of this site
    folder = "books"             # ledger, states and models
    epsilon = 10.0               # cap on the sum over all studies; without it there is none

    [[study]]
    file = "exam-scores.toml"    # the public settings, as the curator has them
    curator = "3b6a..."          # public key; without it anybody at the SuperLink may send queries
    rows = "rows.csv"
    task = "school"
    target = "score"
    weight = "sure"              # where rows have weights

One of the servers of a study has ``server = "server.key"``, its private key, in place of rows.

Paths are relative to the file. All of it is the site's own, and nothing of it leaves the site but
its name.
"""

import math
from dataclasses import MISSING, dataclass, fields, replace
from importlib import import_module
from numbers import Real
from pathlib import Path

from .._version import __version__
from ..tables.ids import listed
from .ledger import Refusal, private_folder
from .secret_shares import ShareServer
from .site import Site, read_rows
from .study import Study

__all__ = ["SiteConfig", "Participation", "Settings"]


@dataclass(frozen=True)
class Participation:
    """A study in which the site takes part; see `skpmtl.federated.site_config`."""

    file: Path
    rows: Path | None = None
    curator: str = ""
    server: Path | None = None
    task: object = "task"
    target: object = "y"
    weight: object = None


@dataclass(frozen=True)
class Settings:
    """A ``site.toml``; see `skpmtl.federated.site_config`."""

    name: str
    superlink: str
    study: tuple
    certificate: Path | None = None  # without it the connection is in the clear
    key: Path | None = None
    folder: Path = Path("books")
    epsilon: float = math.inf

    @classmethod
    def load(cls, path):
        """Read a file.

        Raises ValueError for unknown or missing keys, and for values of other types.
        """
        path = Path(path).resolve()
        given = import_module("tomllib").loads(path.read_text())  # Python >= 3.11
        parts = given.get("study", ())
        if not isinstance(parts, list) or not parts:
            raise ValueError(f"{path} names no study: it needs a table [[study]].")
        given["study"] = tuple(_checked(Participation, part, path) for part in parts)
        if any((part.rows is None) == (part.server is None) for part in given["study"]):
            raise ValueError(
                f"{path}: every study needs rows, or server= for one of its servers, not both."
            )
        return _checked(cls, given, path)


def _checked(cls, given, path):
    known = fields(cls)
    odd = sorted(set(given) - {item.name for item in known})
    missing = [f.name for f in known if f.default is MISSING and f.name not in given]
    if odd or missing:
        what = f"has the keys {listed(odd)}" if odd else f"lacks {listed(missing)}"
        raise ValueError(f"{path} {what}; {listed([f.name for f in known], 20)} are known.")
    for item in known:
        value = given.get(item.name)
        if item.type is str and value is not None and not isinstance(value, str):
            raise ValueError(f"{path}: {item.name}={value!r} must be text.")
        if "Path" in str(item.type) and item.name in given:
            given[item.name] = path.parent / value
        if item.type is float and value is not None:
            if not isinstance(value, Real) or not value > 0:
                raise ValueError(f"{path}: {item.name}={value!r} must be positive.")
    if cls is Settings:
        given.setdefault("folder", path.parent / "books")
    return cls(**given)


class SiteConfig:
    """The sites of all studies of a ``site.toml``, made when they are asked for.

    They are made again when a file has changed. `rows` takes the place of the rows of the only
    study.
    """

    _kept = {}

    def __init__(self, path, rows=None):
        self.path, self.settings = Path(path).resolve(), Settings.load(path)
        self.folder = private_folder(self.settings.folder)
        self.parts, self.rows = self.settings.study, rows
        if rows is not None:
            if len(self.parts) > 1:
                raise ValueError("Rows for several studies are named in site.toml.")
            self.parts = (replace(self.parts[0], rows=Path(rows).resolve()),)
        self._print, self._sites, self._studies = _print(self.path), {}, {}
        self._kept[str(self.path)] = self

    @classmethod
    def of(cls, path):
        """The home of a file, kept in memory; read again when the file has changed."""
        config = cls._kept.get(path)
        if config is None:
            return cls(path)
        if config._print != _print(config.path):
            config.__init__(config.path, config.rows)
        return config

    def site(self, digest, name="", version=""):
        """The site of a study, and what the operator says of it. -> Site, Participation

        `name` and `version`, of the study and of skpmtl at the curator, are for the Refusal when no
        study here has the digest.
        """
        names = {}
        for part in self.parts:
            found = _print(part.file)
            if part.file not in self._studies or self._studies[part.file][0] != found:
                self._studies[part.file] = found, Study.load(part.file)
            study = self._studies[part.file][1]
            if study.digest == digest:
                return self.open(part, study), part
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
                site = ShareServer(study, part.server, self.folder, part.curator)
            else:
                rows = read_rows(part.rows, study, part.task, part.target, part.weight)
                site = Site(study, rows, self.folder, self.settings.epsilon, part.curator)
            self._sites[part.file] = found, site
        return self._sites[part.file][1]

    def finished(self):
        """Whether nothing more will be asked of any study here."""
        return all(
            part.file in self._sites and self._sites[part.file][1].finished for part in self.parts
        )


def _print(path):
    """What changes when a file does."""
    found = Path(path).stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
