"""The public settings of a federated fit, in one file that curator and sites hold alike."""

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from importlib import import_module
from pathlib import Path

import numpy as np

from .._version import __version__
from ..exchange.files import estimators
from ..exchange.plan import MOST
from ..exchange.protocol import Population
from ..tables.ids import encode_ids, listed, locate
from ..tables.table import distinct_ids
from ..tables.targets import public_classes

__all__ = ["Study"]

# Parameters of the estimators that a study does not set this way, and what does.
_ELSEWHERE = {
    "class_weight": "every site weighs its own rows",
    "classes": 'take the list "classes" beside "parameters"',
    "curator": 'take the table "servers" beside "parameters"',
    "names": 'take the list "features" beside "parameters"',
    "random_state": 'take "seed", for tests only',
    "task_feature": "every site names its own task column",
    "tasks": 'take the list "tasks" beside "parameters"',
    "verbose": "it is no setting of a study",
    "warm_start": "it is no setting of a study",
}


_MOST = 2**18  # numbers of one contribution up to which releases are sent to sites


def federated():
    """Estimators that can be federated. -> {name: class}"""
    known = [(cls._name_in_studies or name, cls) for name, cls in estimators().items()]
    return {name: cls for name, cls in known if cls._federates}


@dataclass(frozen=True)
class Study:
    """What is public about a federated fit before it starts.

    Every site checks its own copy against the curator's before it answers anything. A second run
    of the same study spends a second budget: give it another name, so that sites have to agree.

    Parameters
    ----------
    name : str
        Letters, digits, "-" and "_".
    estimator : str
        One of `federated`.
    tasks : list of str or int
        All tasks; also those that turn out to be held by nobody, which contribute nothing.
    features : int or list of str
        Their number, or their names.
    parameters : dict
        Of the estimator. Estimators of networks take "module" as "package.file:function", which
        curator and sites import from their own copies of the code, and "module__name" for the
        arguments of the function.
    classes : list, default=None
        Labels, for classifiers.
    n_rows : int, default=None
        Rows of a task, for estimators whose steps and noise follow from it: a public round number.
    timeout : float, default=60.0
        Seconds that the curator waits for the answers to one query.
    enrolment : float, default=300.0
        Seconds that the curator waits at the start until all tasks are held by a site.
    servers : dict of str to str, default=None
        Names and public keys of 2 to 16 servers that take the place of a trusted curator, see
        `skpmtl.federated.secret_shares`; each has made its key itself.
    seed : int, default=None
        Reproducible noise, which protects nobody: for tests.
    min_sites : int, default=None
        Sites that have to take part in a query, or it waits, and no budget is spent; None: 1.
    min_tasks : int, default=None
        Tasks of these sites that are needed at least; None: half of all, rounded up.

    Raises
    ------
    ValueError
        For settings that do not go together, and for fits without privacy.
    """

    name: str
    estimator: str
    tasks: list
    features: object
    parameters: dict = field(default_factory=dict)
    classes: list | None = None
    n_rows: int | None = None
    timeout: float = 60.0
    enrolment: float = 300.0
    servers: dict | None = None
    seed: int | None = None
    min_sites: int | None = None
    min_tasks: int | None = None

    def __post_init__(self):
        if not self.name or not self.name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f'name={self.name!r} must be of letters, digits, "-" and "_".')
        if self.estimator not in federated():
            raise ValueError(
                f"estimator={self.estimator!r} is none of {listed(sorted(federated()), 20)}, which "
                "can be federated."
            )
        if not len(distinct_ids(self.tasks, "tasks")):
            raise ValueError("tasks=[] must list all tasks.")
        if not self.timeout > 0 or not self.enrolment > 0:
            raise ValueError(
                f"timeout={self.timeout!r} and enrolment={self.enrolment!r} must be positive."
            )
        for name, most in (("min_sites", len(self.tasks)), ("min_tasks", len(self.tasks))):
            least = getattr(self, name)
            if least is not None and (type(least) is not int or not 1 <= least <= most):
                raise ValueError(
                    f"{name}={least!r} must be a number from 1 to {most}, the tasks of the study."
                )
        if self.servers is not None:
            self._check_servers()
        self._check_estimator(self.build())
        self.population()

    @classmethod
    def load(cls, path):
        """Read a .json or .toml file.

        Raises
        ------
        ValueError
            For unknown or missing keys.
        """
        path = Path(path)
        if path.suffix == ".toml":
            given = read_toml(path)
        else:
            given = json.loads(path.read_text())
        known = [item.name for item in fields(cls)]
        odd = sorted(set(given) - set(known))
        if odd:
            raise ValueError(f"{path} has the keys {listed(odd)}; a study has {listed(known, 20)}.")
        missing = [name for name in known[:4] if name not in given]
        if missing:
            raise ValueError(f"{path} lacks {listed(missing)}.")
        return cls(**given)

    def _check_estimator(self, est):
        est._check_parameters()
        if not est._is_private():
            raise ValueError(
                f"epsilon={est.epsilon!r} with these parameters is no private fit: what is "
                "federated needs a finite epsilon, because the statistics of an exact fit would "
                "show the rows of single tasks."
            )
        if est._classification == (self.classes is None):
            raise ValueError(
                f"classes={self.classes!r}: {self.estimator} "
                + ("needs the list of labels." if est._classification else "has no classes.")
            )
        if est._reads_sizes == (self.n_rows is None):
            raise ValueError(
                f"n_rows={self.n_rows!r}: "
                + (
                    f"a public number of rows of a task is needed for {self.estimator}."
                    if est._reads_sizes
                    else f"{self.estimator} has no use for it."
                )
            )
        est._check_study()
        if self.servers is not None:
            next(est._queries(self.population(), est._source()))  # refuses what servers cannot do

    def _check_servers(self):
        names, keys = list(self.servers), list(self.servers.values())
        if not 2 <= len(names) <= MOST or len(set(keys)) < len(keys):
            raise ValueError(
                f"servers={self.servers!r} must name 2 to {MOST} servers, each with a key of its "
                "own."
            )
        for name, key in self.servers.items():
            if not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(f'servers={names!r} must be of letters, digits, "-" and "_".')
            if not isinstance(key, str) or not re.fullmatch("[0-9a-f]{64}", key):
                raise ValueError(
                    f"The key of the server {name} must be as  python -m skpmtl.federated key FILE "
                    " prints it."
                )
        if "curator" not in federated()[self.estimator]().get_params(deep=False):
            raise ValueError(f"{self.estimator} has a trusted curator: leave servers out.")

    # ------------------------------------------------------------------- what follows
    @cached_property
    def questions(self):
        """What sites answer. -> {statistic: QuerySpec}"""
        return self.build()._query_specs(self.population())

    @property
    def is_replayed(self):
        """Whether sites of a trusted curator are sent the releases, to check its queries.

        Releases of large networks are not sent: their queries have to fit `questions` only.
        """
        shapes = [shape for spec in self.questions.values() for shape in spec.shapes.values()]
        return max(map(math.prod, shapes)) <= _MOST

    @cached_property
    def digest(self):
        """Hexadecimal number that two copies share if they and skpmtl's versions are the same."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def text(self):
        """Canonical JSON."""
        return json.dumps({**asdict(self), "skpmtl": __version__}, sort_keys=True)

    def to_json(self):
        """The study as a file has it. -> str"""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(given, indent=1)

    @property
    def least(self):
        """How many sites, and how many tasks, a query needs. -> int, int"""
        half = (len(self.tasks) + 1) // 2
        return self.min_sites or 1, half if self.min_tasks is None else self.min_tasks

    @property
    def n_features(self):
        return self.features if isinstance(self.features, int) else len(self.features)

    @cached_property
    def n_columns(self):
        """Of the model: features, and intervals of time."""
        return self.build()._n_columns(self.n_features)

    @property
    def has_events(self):
        """Whether targets are times and events."""
        return hasattr(federated()[self.estimator], "rows")

    def rows(self, X, time, ids, event, entry=None):
        """Rows with times and events, as those of the model. -> X, y, task, weights"""
        if X.shape[1] != self.n_features:
            raise ValueError(f"The rows have {X.shape[1]} features, the study {self.n_features}.")
        if not np.isin(event, (0, 1)).all():
            raise ValueError("The column of events must hold 0 and 1: whether each was seen.")
        y = np.rec.fromarrays([np.asarray(event, dtype=bool), time], names="event,time")
        return self.build().rows(np.asarray(X, dtype=np.float64), y, entry, ids)

    @property
    def feature_names(self):
        return None if isinstance(self.features, int) else list(self.features)

    @property
    def class_labels(self):
        """Sorted array, or None."""
        return None if self.classes is None else public_classes(self.classes)

    def _settings(self):
        cls = federated()[self.estimator]
        known = cls().get_params(deep=False)
        for name in self.parameters:
            if name in _ELSEWHERE and name in known:
                raise ValueError(f"The parameter {name} is not set here: {_ELSEWHERE[name]}.")
            if name not in known and not ("module" in known and name.startswith("module__")):
                raise ValueError(f"{self.estimator} has no parameter {name!r}.")
        given = dict(self.parameters)
        if "names" in known:
            given["names"] = self.feature_names
        if "module" in known:
            given["module"] = _imported(given.get("module"))
            if isinstance(given.get("local"), list):  # as files have it
                given["local"] = tuple(given["local"])
        if not isinstance(self.tasks[0], str):  # keys of a mapping of tasks in a file are text
            for name in _mappings(given):  # of tasks
                given[name] = {int(task): value for task, value in given[name].items()}
        return cls, given

    def build(self):
        """The estimator, not fitted."""
        cls, given = self._settings()
        est = cls(**given, random_state=self.seed)
        if self.servers is not None:
            est.set_params(curator=("servers", len(self.servers)))
        if est._classification and self.classes is not None:
            est.set_params(classes=list(self.classes))
        return est

    def published(self, billboard):
        """The estimator of a billboard, without tasks."""
        cls, given = self._settings()
        for name in {*_mappings(given), "init"} & set(given):  # the billboard has them
            del given[name]
        return cls.from_billboard(
            billboard,
            classes=self.class_labels,
            n_features=self.n_columns,
            feature_names=self.feature_names if self.n_columns == self.n_features else None,
            **given,
        )

    def population(self):
        """The participants, as the curator sees them."""
        tasks = encode_ids(self.tasks)[1]
        if not self.n_features >= 1 or not math.isfinite(self.n_features):
            raise ValueError(f"features={self.features!r} must be a positive number, or names.")
        sizes = None if self.n_rows is None else np.full(len(tasks), int(self.n_rows))
        n_classes = 0 if self.classes is None else len(self.class_labels)
        return Population(tasks, self.n_columns, n_classes, sizes)

    def positions(self, names):
        """Positions in the population of tasks given by name; -1 for unknown ones."""
        return locate(encode_ids(list(names))[1], self.population().tasks)


def read_toml(path):
    """A file of TOML. -> dict

    Raises ImportError on Python 3.10 without tomli, which the extra ``skpmtl[nvflare]`` has.
    """
    try:
        parser = import_module("tomllib")  # Python >= 3.11
    except ImportError:
        parser = import_module("tomli")
    return parser.loads(Path(path).read_text())


def _imported(name):
    """The function "package.file:function" that builds the network."""
    file, colon, function = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not colon:
        raise ValueError(
            f'module={name!r} must name a function as "package.file:function", in code that '
            "the curator and every site have."
        )
    try:
        return getattr(import_module(file), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"module={name!r} is not found here: {error}") from error


def _mappings(parameters):
    """Names of the parameters that are mappings of tasks."""
    mappings = {name for name, value in parameters.items() if isinstance(value, dict)}
    return mappings - {"init"}
