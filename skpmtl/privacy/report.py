"""Privacy reports: the guarantee of a fit, as text and as data."""

import json
import math
import re
import textwrap
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real

import numpy as np

from .html import report_html

_NEIGHBOURS = {
    ("task", "replace-one"): "all rows of one task are replaced by arbitrary other rows",
    ("task", "zero-out"): "one task contributes nothing (the number of tasks is public)",
    ("record", "replace-one"): "one record is replaced by an arbitrary other record",
    ("record", "zero-out"): "one record contributes nothing (the number of records is public)",
    ("records", "replace-one"): "up to that many records of one task are replaced by arbitrary "
    "other records",
    ("records", "zero-out"): "up to that many records of one task contribute nothing (the number "
    "of records is public)",
    ("person", "replace-one"): "all records of one person are replaced by arbitrary other "
    "records (which records are the person's is public)",
    ("person", "zero-out"): "all records of one person contribute nothing (the number of records "
    "is public)",
}
# What guarantees rest on, in the words of all reports.
TRUSTED_CURATOR = "the curator is trusted and adds the noise once"
PUBLIC_LISTS = "the list of tasks, the features and the classes are public"
ALWAYS = (
    "the parameters were not tuned on these data without being charged for it",
    "whether the input was valid at all is not protected",
)
PUBLIC_INIT = (
    "the model of init= is public: it knows none of the private rows, or what it cost is added"
)
PUBLIC_MODULE = (
    "the module and the numbers that it starts from are public: they know none of the private "
    "rows, or what it cost is added",
    "parameters and statistics that are not shared stay with their task",
)
_WHICH = {
    ("task", "replace-one"): "whether the rows of one task were used or other rows in their place",
    ("task", "zero-out"): "whether one task took part",
    ("record", "replace-one"): "whether one record was used or another one in its place",
    ("record", "zero-out"): "whether one record was used",
    ("records", "replace-one"): "whether {} of one task were used or others in their place",
    ("records", "zero-out"): "whether {} of one task were used",
    ("person", "replace-one"): "whether the records of one person were used or others in their "
    "place",
    ("person", "zero-out"): "whether the records of one person were used",
}
_UNIT = re.compile(r"task|record|person|[1-9][0-9]* records")


class LittleFoundWarning(UserWarning):
    """A fit found less than it was asked for; the warning names what, and the remedy.

    Of a private fit it follows from released and public numbers alone, as the report does. Without
    a budget it names targets that are too large, or too close together, for the units of the model.
    """


class PrivacyLeakWarning(UserWarning):
    """Something outside the stated guarantee may disclose private data."""


@dataclass(frozen=True)
class PrivacyReport:
    """Statement of what one fit spent.

    ``print(report)`` is the whole statement, ``report.summary()`` one line of it, and a notebook
    shows it as a table.

    Parameters
    ----------
    guarantee : {"joint DP per task", "task DP", "record DP", "none"}
        "joint DP per task": what is published (the billboard) is (epsilon, delta)-DP in every
        task; a task's own model goes to that task only. "task DP" and "record DP": all that
        the fit computed is. Of meta-learning, what leaves a task is private and its own model
        goes to that task only: "record-level DP (task-global)", "local DP per task".
    unit : str
        Whose data one guarantee protects: "task", "record", "5 records" or "person".
    adjacency : {"replace-one", "zero-out"}
    epsilon, delta : float
        For guarantee "none": the nominal ones (infinity without noise).
    mechanism : str
    sensitivity : float or tuple of float
        One number, or one per release, in the norm that the release states.
    noise_std : tuple of float
        Std of the noise on one entry, per release.
    shift : tuple of float
        Public shift c_t added to the diagonal, per release.
    mu : float or None
        Total Gaussian-DP parameter; None if the fit is not accounted by it.
    releases : tuple of dict
        One per release, with keys such as name, statistic, mechanism, sensitivity, norm,
        noise_std and mu or epsilon (see the mechanisms' ``describe``).
    accountant : str
        Name and version of what turned noise into (epsilon, delta).
    sampling : str
        Which tasks enter a release, with the constant denominator under sampling.
    rng : str
        ``description`` of the noise source.
    arithmetic : str
        ``arithmetic`` of the noise source: what rounding does to the guarantee.
    public_inputs : dict
        Everything the guarantee takes as public knowledge.
    assumptions : tuple of str
    notes : dict
        Further facts, such as ``delta_lower_bound`` of the published Wishart mechanism or
        the ``reason`` for guarantee "none".
    """

    guarantee: str
    unit: str = "task"
    adjacency: str = "replace-one"
    epsilon: float = math.inf
    delta: float = 0.0
    mechanism: str = "none"
    sensitivity: object = None
    noise_std: tuple = ()
    shift: tuple = ()
    mu: float | None = None
    releases: tuple = ()
    accountant: str = "none"
    sampling: str = "all tasks in every release"
    rng: str = "none"
    arithmetic: str = "none"
    public_inputs: dict = field(default_factory=dict)
    assumptions: tuple = ()
    notes: dict = field(default_factory=dict)

    __hash__ = None  # type: ignore[assignment]  # holds dictionaries, as dataclass has it

    def __post_init__(self):
        if not _UNIT.fullmatch(self.unit):
            raise ValueError(
                f'unit={self.unit!r} must be "task", "record", "person" or "<number> records".'
            )
        if self.adjacency not in ("replace-one", "zero-out"):
            raise ValueError(f'adjacency={self.adjacency!r} must be "replace-one" or "zero-out".')
        for item in fields(self):
            value = _plain(getattr(self, item.name))
            if item.name in ("epsilon", "delta") or (item.name == "mu" and value is not None):
                value = float(value)
            object.__setattr__(self, item.name, value)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<PrivacyReport: {self.summary()}>"

    @property
    def guess(self) -> float:
        """Largest probability of a right guess whether a unit's rows, or others, were used.

        The guess is made by somebody who knows all other rows, both versions, and that each was
        used with probability 1/2. It is (e^epsilon + delta) / (e^epsilon + 1) (Kairouz, Oh,
        Viswanath, ICML 2015, theorem 2.1), and with Gaussian accounting at most Phi(mu / 2) (Dong,
        Roth, Su, J. R. Stat. Soc. B 84(1), 2022). 1 without a guarantee.
        """
        if self.guarantee == "none":
            return 1.0
        odd = 1.0 / (1.0 + math.exp(min(self.epsilon, 700.0)))  # of the other outcome
        found = min(1.0 - odd + self.delta * odd, 1.0)
        if self.mu is not None:
            found = min(found, 0.5 * math.erfc(-self.mu / math.sqrt(8.0)))
        return found

    def meaning(self) -> str:
        """What the guarantee means for one task, record or person, in two sentences.

        Returns
        -------
        sentences : str
            Empty without a guarantee, and where nothing was released.
        """
        if self.guarantee == "none" or self._is_silent():
            return ""
        which = _WHICH[self.unit.split()[-1], self.adjacency].format(self.unit)
        share = math.ceil(self.guess * 1000.0 - 1e-9) / 10.0
        return (
            f"Suppose that someone knows the rows of all others and guesses {which}, both equally "
            "likely before. From everything that this guarantee covers, the guess is right with "
            f"probability at most {share:.1f} %, compared with 50 % for a coin toss."
        )

    def found(self) -> dict[str, str]:
        """What the fit found and other notes on it, as text by name.

        Returns
        -------
        found : dict of str to str
        """
        return {key: _short(value) for key, value in self.notes.items() if key != "reason"}

    def _repr_html_(self) -> str:
        """The statement as HTML without scripts, for notebooks and pages."""
        return report_html(self, self.paragraphs())

    def summary(self) -> str:
        """The statement in one line: guarantee, budget, unit and adjacency.

        Returns
        -------
        line : str
        """
        if self.guarantee == "none":
            return f"NO differential privacy guarantee: {self._reason()}"
        reason = f": nothing is released, because {self._reason()}" if self._is_silent() else ""
        return (
            f"{self.guarantee}: epsilon = {self.epsilon:.6g}, delta = {self.delta:.6g} "
            f"(unit: {self.unit}; adjacency: {self.adjacency}){reason}"
        )

    def text(self, width: int | None = 88) -> str:
        """The whole statement.

        Parameters
        ----------
        width : int or None, default=88
            Columns at which lines are broken. None: all in one line.

        Returns
        -------
        text : str
            The guarantee and what it means for one participant, notes on the fit, the definition
            of the guarantee, noise and its accounting, randomness and rounding, what is taken as
            public, and assumptions: a paragraph for each.
        """
        if width is None:
            return " ".join(self.paragraphs())
        return "\n".join(
            textwrap.fill(paragraph, width, break_long_words=False, break_on_hyphens=False)
            for paragraph in self.paragraphs()
        )

    def paragraphs(self) -> list[str]:
        """The whole statement in pieces.

        Returns
        -------
        paragraphs : list of str
        """
        paragraphs = [self.meaning() or self._headline()]
        paragraphs += [f"{_title(name)}: {value}." for name, value in self.found().items()]
        if self.meaning():
            paragraphs.append(self._headline())
        paragraphs.append(self._definition())
        accounting = f"Accounting: {self.accountant}"
        if self.mu is not None:
            accounting += f", Gaussian DP with mu = {self.mu:.6g} in total"
        paragraphs.append(f"{self._noise()} {accounting}. Sampling: {self.sampling}.")
        randomness = f"Randomness: {self.rng}."
        if self.noise_std:
            randomness += f" Arithmetic: {self.arithmetic}."
        paragraphs.append(randomness)
        inputs = ", ".join(f"{key} = {_short(value)}" for key, value in self.public_inputs.items())
        paragraphs.append(f"Taken as public: {inputs or 'nothing was stated'}.")
        if self.assumptions:
            paragraphs.append(f"Assumptions: {'; '.join(self.assumptions)}.")
        return paragraphs

    def disclosing(self, lists: list[str]) -> "PrivacyReport":
        """The statement of a fit that took lists, such as "the tasks", from private rows.

        Parameters
        ----------
        lists : list of str

        Returns
        -------
        report : PrivacyReport
        """
        if not lists or self.guarantee == "none":
            return self
        sentence = (
            f"{' and '.join(lists)} were read from private rows: which exist is disclosed, and "
            "not protected"
        )
        return replace(self, assumptions=(*self.assumptions, sentence))

    def _reason(self):
        return self.notes.get("reason", "no noise was added")

    def _is_silent(self):
        """Whether a private fit released nothing, for a reason."""
        return self.guarantee != "none" and not self.releases and "reason" in self.notes

    def _headline(self):
        if self.guarantee == "none":
            return f"This fit has NO differential privacy guarantee: {self._reason()}."
        if self._is_silent():
            return (
                f"This fit published nothing that depends on the rows of any {self.unit}, because "
                f"{self._reason()}: every task learns alone."
            )
        if self.guarantee == "joint DP per task":
            return (
                f"The statistics published by this fit are (epsilon = {self.epsilon:.6g}, delta "
                f"= {self.delta:.6g})-differentially private in every task (joint differential "
                "privacy: a task's own model is for that task, and the models of all tasks "
                "together are not private)."
            )
        if self.guarantee in ("record-level DP (task-global)", "local DP per task"):
            whom = f"group of {self.unit} of one task" if " " in self.unit else self.unit
            return (
                f"What leaves a task in this fit is (epsilon = {self.epsilon:.6g}, delta = "
                f"{self.delta:.6g})-differentially private in every {whom} "
                f"({self.guarantee}); a fine-tuned model is for its own task, and the models of "
                "all tasks together are not private."
            )
        return (
            f"The output of this fit is (epsilon = {self.epsilon:.6g}, delta = {self.delta:.6g})-"
            f"differentially private in every {self.unit} ({self.guarantee})."
        )

    def _definition(self):
        budget = f"epsilon = {self.epsilon:.6g}, delta = {self.delta:.6g}"
        if self.guarantee == "none":
            return (
                f"Nominal values, not a guarantee: {budget}, unit {self.unit}, adjacency "
                f"{self.adjacency}."
            )
        neighbours = _NEIGHBOURS[self.unit.split()[-1], self.adjacency]
        return (
            f"Two data sets are neighbours (unit: {self.unit}; adjacency: {self.adjacency}) when "
            f"{neighbours}; the probability of any set of published outcomes under one is at most "
            f"exp({self.epsilon:.6g}) times that under the other plus {self.delta:.6g} ({budget})."
        )

    def _noise(self):
        sentences = [f"Mechanism: {self.mechanism}"]
        kinds = self.kinds()
        if kinds:
            listed = "; ".join(_kind(*kind) for kind in kinds) + self._names()
            which = f" ({self.notes['releases']})" if "releases" in self.notes else ""
            sentences.append(f"Releases{which}: {listed}")
        elif self.noise_std:
            sensitivity, std = _short(self.sensitivity), _short(self.noise_std)
            sentences[0] += f", sensitivity {sensitivity}, noise std {std}"
        if any(self.shift):
            sentences.append(f"Public shift: {_short(self.shift)}")
        return ". ".join(sentences) + "."

    def _names(self):
        """How many releases have a name of how many, where names repeat."""
        names = Counter(str(entry.get("name", "")).split(" ")[0] for entry in self.releases)
        if not 1 < len(names) < len(self.releases):
            return ""
        return f" (by name: {', '.join(f'{count} {name}' for name, count in names.items())})"

    def kinds(self) -> list[tuple[str, str, tuple, tuple]]:
        """The releases by mechanism.

        Returns
        -------
        kinds : list of (str, str, tuple of float, tuple of float)
            For each mechanism its name, how many releases, and their sensitivities and standard
            deviations of noise. Empty where the releases are not known one by one.
        """
        found: dict[tuple, list] = {}
        for entry in self.releases:
            if not {"mechanism", "sensitivity", "noise_std"} <= entry.keys():
                return []
            times = entry.get("times")
            # Tasks release themselves: an entry holds all that are alike, and statistics add up.
            of = None if times is None else entry.get("statistic")
            found.setdefault((entry["mechanism"], times, of), []).append(entry)
        kinds = []
        for (mechanism, times, _), entries in found.items():
            count = str(len(entries))
            if times is not None:
                tasks = sum(entry.get("n_tasks", 0) for entry in entries)
                count = f"{times} by each of {tasks} tasks" if tasks else f"{times} by every task"
            numbers = (tuple(e[name] for e in entries) for name in ("sensitivity", "noise_std"))
            kinds.append((mechanism, count, *numbers))
        return kinds

    def to_dict(self) -> dict[str, object]:
        """Plain dictionary of all fields (tuples as lists)."""
        return {item.name: _listed(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def from_dict(cls, values: dict) -> "PrivacyReport":
        """Inverse of `to_dict`; unknown keys are refused."""
        names = {item.name for item in fields(cls)}
        unknown = sorted(set(values) - names)
        if unknown:
            raise ValueError(f"not fields of a privacy report: {unknown}.")
        if any(isinstance(e, dict) and "sites" in e for e in values.get("releases", ())):
            raise ValueError(
                "The sites of this fit added its noise, which is not supported any more: read it "
                'with the version of skpmtl that wrote it, or fit again with curator="servers".'
            )
        return cls(**values)

    def to_json(self, indent: int | None = None) -> str:
        """Strict JSON; numbers survive exactly, infinities as {"float": "inf"}."""
        return json.dumps(_finite(self.to_dict()), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "PrivacyReport":
        """Inverse of `to_json`."""
        return cls.from_dict(json.loads(text, object_hook=_number))


def _plain(value):
    """numpy values and lists as Python values and tuples; keys of dictionaries as text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    return str(value)


def _listed(value):
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _number(values):
    return float(values["float"]) if list(values) == ["float"] else values


def _short(value):
    """Numbers to six digits; lists of equal numbers, and long ones, as their range and length."""
    if isinstance(value, bool) or not isinstance(value, (int, float, tuple)):
        return str(value)
    if not isinstance(value, tuple):
        return f"{value:.6g}"
    if len(value) > 1 and all(item == value[0] for item in value):
        return f"{_short(value[0])} (each of {len(value)})"
    if len(value) > 5 and all(isinstance(item, Real) for item in value):
        return f"{_short(min(value))} to {_short(max(value))} ({len(value)} in all)"
    shown = [_short(item) for item in value[:10]]
    return ", ".join(shown) + (f", ... ({len(value)} in all)" if len(value) > 10 else "")


def _title(name):
    """A key of the notes as the beginning of a sentence."""
    return name[:1].upper() + name[1:].replace("_", " ")


def _kind(mechanism, count, sensitivity, noise_std):
    noise = mechanism if mechanism.endswith("noise") else f"{mechanism} noise"
    return f"{count} with {noise}, sensitivity {_short(sensitivity)}, noise std {_short(noise_std)}"


ALONE = "tasks learn alone"  # the reason of `silent_report` where that was asked for


def silent_report(reason, **fields):
    """The statement of a private fit that releases nothing, for this reason."""
    return PrivacyReport(
        guarantee="joint DP per task",
        epsilon=0.0,
        mechanism="none: nothing is released",
        accountant="nothing to account",
        notes={"reason": reason},
        **fields,
    )


def exact_report(reason="the exact solution was computed without noise (epsilon=None)"):
    """The statement for a fit without privacy."""
    return PrivacyReport(guarantee="none", notes={"reason": reason})
