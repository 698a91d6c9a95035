"""Faults that leave releases and attributes as they should be are found by a replay.

In what chance decides, in the last digits of noise, in memory, and in what is called after a fit.
"""

import uuid
import zlib
from typing import ClassVar

import numpy as np
import pytest

from skpmtl import DPMetaInit, PrivateMTL, PrivateMTLClassifier
from skpmtl.exchange.protocol import PublicDraw
from skpmtl.networks import rounds as rounds_module
from skpmtl.networks.rounds import PiecewiseGaussian
from skpmtl.privacy import VectorGamma, VectorGaussian, audit, mechanisms
from skpmtl.privacy.replay import changed_tasks
from skpmtl.privacy.rng import SystemSource, noise_source
from skpmtl.privacy.uses import new_tasks, outcomes
from tests.helpers.cases import CHANGED, FIRST, N_ROWS, TASKS, fitted, long_data, replaced
from tests.helpers.linear_rounds import LinearRounds

ROUNDS = {"tasks": TASKS, "n_rounds": 6}
LOOP = {"tasks": TASKS, "epsilon": 1e3, "structure": "low-rank", "levels": "free"}
DRAWN = {"tasks": TASKS, "tasks_per_round": 2, "inner_steps": 2, "visits": 6}


def pair():
    """Data, and a neighbour whose rows are larger in one task."""
    data, rng = long_data(), np.random.default_rng(1)
    X, score = 20.0 * rng.normal(size=(N_ROWS, 3)), 30.0 * rng.normal(size=N_ROWS)
    return data, replaced(data, CHANGED, X, score)


def failures(estimator, n_draws=0, data=None):
    result = audit(estimator, *(data or pair()), replay=True, n_draws=n_draws)
    assert result.passed == (not result.failures)
    return result.failures


def kinds(found):
    return {text.partition(":")[0] for text in found}


class KeepsRows:
    """Mixin: the rows of a fit are kept where an audit does not see them."""

    def _fit_table(self, table):
        self._rows = table
        try:
            return super()._fit_table(table)
        finally:
            del self._rows


class Reads(KeepsRows, LinearRounds):
    """The rounds, with the rows at hand."""


# ---------------------------------------------------------------- who takes part
class Selects(KeepsRows, DPMetaInit):
    """The tasks with the largest rows come last."""

    def _curator(self, population, source):
        curator, reply = super()._curator(population, source), None
        size = np.abs(self._rows.y).reshape(len(TASKS), -1).max(axis=1)
        while True:
            try:
                step = curator.send(reply)
            except StopIteration as end:
                return end.value
            if isinstance(step, PublicDraw):
                step = PublicDraw(lambda source: np.argsort(size))
            reply = yield step


class SelectsNearly(KeepsRows, DPMetaInit):
    """Chance decides, but tasks with large rows have better chances."""

    def _source(self):
        largest = np.abs(self._rows.X).reshape(len(TASKS), -1).max(axis=1)

        class Source(SystemSource):
            def permutation(self, n):
                return np.argsort(self.uniform(n) - 0.1 * largest[:n])

        return Source()


@pytest.mark.parametrize("cls", [Selects, SelectsNearly])
def test_participants_that_follow_rows(cls):
    found = failures(cls(**DRAWN))
    assert kinds(found) == {"Draw"} and "who takes part" in found[0]


# ---------------------------------------------------------------- the last digits
def _rounded_to(multiple, offset=0):
    add = mechanisms.add_on_grid
    return lambda value, n, step: add(value, multiple * np.rint(n / multiple) + offset, step)


def _without_bit(bit):
    add = mechanisms.add_on_grid
    return lambda value, n, step: add(value, n - (n.astype(np.int64) & (1 << bit)), step)


LAST_DIGITS = {
    "even": _rounded_to(2),
    "threes": _rounded_to(3, 1),
    "1024": _rounded_to(1024),
    "bit 5": _without_bit(5),
}


@pytest.mark.parametrize("digits", LAST_DIGITS)
def test_noise_that_leaves_the_last_digits(digits, monkeypatch):
    monkeypatch.setattr(rounds_module, "add_on_grid", LAST_DIGITS[digits])
    found = failures(LinearRounds(**ROUNDS), 20)
    assert found and all("own last digits are released" in text for text in found), found


def test_even_noise_of_the_loop(monkeypatch):
    monkeypatch.setattr(mechanisms, "add_on_grid", _rounded_to(2))
    assert any("bit 0 is no fair coin" in text for text in failures(PrivateMTL(**LOOP), 1))


class Even(VectorGaussian):
    def _noise_steps(self, source):
        return 2.0 * np.rint(0.5 * super()._noise_steps(source))


class EvenGamma(VectorGamma):
    def _noise_steps(self, source):
        return 2.0 * np.rint(0.5 * super()._noise_steps(source))


@pytest.mark.parametrize("mechanism", [Even(2, 1.0, 1.0), EvenGamma(2, 1.0, 1.0)])
def test_even_noise_of_a_mechanism(mechanism):
    assert "bit 0 is no fair coin" in str(audit(mechanism, n_draws=100))
    assert audit(type(mechanism).__base__(2, 1.0, 1.0), n_draws=100).passed


def test_even_noise_in_the_statistical_audit(monkeypatch):
    monkeypatch.setattr(rounds_module, "add_on_grid", _rounded_to(2))
    result = audit(LinearRounds(**ROUNDS), *pair(), n_draws=60)
    assert "bit 0 is no fair coin" in str(result)


# ---------------------------------------------------------------- noise
class Noisy(Reads):
    """`noise(z, kept, rows)` stands for the normals z."""

    kept = None

    def _source(self):
        noise, rows, kept = self.noise, self._rows, {}

        class Source(SystemSource):
            def normal(self, size):
                return noise(super().normal(size), kept, rows)

        return Source()


class Scales(Noisy):
    def noise(self, z, kept, rows):
        return z * (1.0 + 1e-3 * np.abs(rows.X).max())


class Mirrors(Noisy):
    """The sign of some of the noise follows the rows: its law is what is stated."""

    def noise(self, z, kept, rows):
        z[-1:] *= np.sign(np.abs(rows.X).max() - 10.0)
        return z


class Wastes(Noisy):
    """How many random bytes there are before the noise follows the rows."""

    def noise(self, z, kept, rows):
        source = noise_source(None)
        source.normal(int(np.abs(rows.X).max()))
        return source.normal(z.shape)


@pytest.mark.parametrize("cls", [Scales, Mirrors, Wastes])
def test_noise_that_follows_rows(cls):
    found = failures(cls(**ROUNDS))
    assert len(found) == 1 and "the same random bytes make another one" in found[0]


class Tiles(Noisy):
    def noise(self, z, kept, rows):
        return np.resize(z[: (len(z) + 1) // 2], z.shape)


class TilesNearly(Noisy):
    def noise(self, z, kept, rows):
        z[2:] = 0.2 * z[2:] + np.sqrt(0.96) * z[:-2]
        return z


class Again(Noisy):
    """The noise of the release before, with another sign and size, and a little more."""

    def noise(self, z, kept, rows):
        last = kept.get(z.shape, z)
        kept[z.shape] = z = np.sqrt(0.1) * z - np.sqrt(0.9) * last
        return z


class AfterTheNext(Noisy):
    """The noise of the release before the one before."""

    def noise(self, z, kept, rows):
        past = kept.setdefault(z.shape, [])
        z = z if len(past) < 2 else np.sqrt(0.1) * z + np.sqrt(0.9) * past[-2]
        past.append(z)
        return z


class OfTheRows(Noisy):
    """The same noise for the same data."""

    def noise(self, z, kept, rows):
        kept["calls"] = kept.get("calls", 0) + 1
        return np.random.default_rng([zlib.crc32(rows.X.tobytes()), kept["calls"]]).normal(
            size=z.shape
        )


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Tiles, "are used again"),
        (TilesNearly, "of entries of one release is correlated"),
        (Again, "of releases of one fit is correlated"),
        (AfterTheNext, "of releases of one fit is correlated"),
        (OfTheRows, "are used again"),
    ],
)
def test_noise_that_repeats_itself(cls, text):
    found = failures(cls(**{**ROUNDS, "n_rounds": 24}), 8)
    assert any(text in failure for failure in found), found


class Global(Noisy):
    def noise(self, z, kept, rows):
        return np.random.standard_normal(z.shape)  # noqa: NPY002


def test_noise_of_the_random_state_of_the_process():
    assert "Process" in kinds(failures(Global(**ROUNDS)))


# ---------------------------------------------------------------- memory and form of releases
def _view(mechanism, value, source, plain=PiecewiseGaussian._noisy):
    block = np.stack([value, value])
    plain(mechanism, block[1], source)
    return block[1]


def _view_of_zeros(mechanism, value, source, plain=PiecewiseGaussian._noisy):
    block = np.stack([np.zeros_like(value), value])
    plain(mechanism, block[1], source)
    return block[1]


def test_a_release_that_is_a_view_of_the_exact_sum(monkeypatch):
    monkeypatch.setattr(PiecewiseGaussian, "_noisy", _view)
    found = failures(LinearRounds(**ROUNDS))
    assert kinds(found) <= {"Release", "Attribute"}
    assert any("is a view of memory with" in text for text in found)


def test_a_view_of_public_memory_is_no_fault(monkeypatch):
    monkeypatch.setattr(PiecewiseGaussian, "_noisy", _view_of_zeros)
    assert failures(LinearRounds(**ROUNDS)) == ()


class KeepsSum(Reads):
    """What is published lies in the memory of the rows."""

    def _fit_table(self, table):
        fitted = super()._fit_table(table)
        mean = fitted["mean_coef_"]
        block = np.stack([mean, table.X.mean(axis=0)])
        fitted["mean_coef_"] = block[0]
        return fitted


def test_an_attribute_that_is_a_view_of_private_memory():
    assert [text[:31] for text in failures(KeepsSum(**ROUNDS))] == [
        "Attribute: mean_coef_.base depe"
    ]


class Typed(Reads):
    """The type of the released numbers follows the rows."""

    def _curator(self, population, source):
        release = PiecewiseGaussian._noisy
        large = np.abs(self._rows.X).max() > 10

        def noisy(mechanism, value, source):
            out = release(mechanism, value, source)
            return out.astype(np.longdouble) if large else out

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PiecewiseGaussian, "_noisy", noisy)
            return (yield from super()._curator(population, source))


def test_types_of_releases_that_follow_rows():
    assert "types or shapes of release 1" in failures(Typed(**ROUNDS))[-1]


# ---------------------------------------------------------------- what is called after the fit
class Predicts(LinearRounds):
    """Unseen tasks are predicted by the mean of the models of all tasks."""

    def predict(self, X, task=None, return_std=False):
        if np.isin(task, self.tasks_).all():
            return super().predict(X, task, return_std)
        return X @ self.coef_.mean(axis=0)


class Welcomes(LinearRounds):
    """Newcomers begin at the mean of the models of all tasks."""

    def _personalize_table(self, table):
        coef, intercept, *_ = super()._personalize_table(table)
        if "coef_" in vars(self):
            coef = 0.5 * coef + 0.5 * self.coef_.mean(axis=0)
        return coef, intercept


class WelcomesWithoutRows(LinearRounds):
    """Newcomers without rows get the mean of the models of all tasks."""

    def personalize(self, X, y, task=None, sample_weight=None):
        mean = self.coef_.mean(axis=0)
        super().personalize(X, y, task, sample_weight)
        if sample_weight is not None and (sample_weight == 0).any():
            new = np.isin(self.tasks_, np.asarray(task)[sample_weight == 0])
            self.coef_[new] = mean
        return self


class Complains(LinearRounds):
    """An error shows a private number."""

    def predict(self, X, task=None, return_std=False):
        try:
            return super().predict(X, task, return_std)
        except ValueError as error:
            raise ValueError(f"{error} Models lie around {self.coef_.mean()}.") from None


class Compares(LinearRounds):
    """A method of its own compares a task with the others."""

    def distance(self, task):
        return np.linalg.norm(self.coef_ - self.export_task(task)["coef"], axis=1).mean()


class Summarises(LinearRounds):
    def spread(self):
        return float(self.coef_.std())


class Shows(LinearRounds):
    def __repr__(self, *given):
        return f"{super().__repr__(*given)} {getattr(self, 'coef_', np.zeros(1)).mean()}"


class Prints(LinearRounds):
    def decision(self, X, task):
        print(self.coef_.mean())


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Predicts, "Use: predict for unseen tasks"),
        (Welcomes, "Use: predict for new tasks"),
        (WelcomesWithoutRows, "Use: attributes after personalize"),
        (Complains, "Use: predict for unseen tasks"),
        (Compares, "Use: distance for other tasks"),
        (Summarises, "Use: spread depends"),
        (Shows, "Use: repr"),
        (Prints, "Said: printed text"),
    ],
)
def test_what_is_called_after_a_fit(cls, text):
    found = failures(cls(**ROUNDS))
    assert any(one.startswith(text) for one in found), found
    assert kinds(found) == {text.partition(":")[0]}


@pytest.mark.parametrize("cls", [PrivateMTL, PrivateMTLClassifier, DPMetaInit])
def test_other_and_new_tasks_are_really_predicted(cls):
    """What every fit refuses would be the same in all of them."""
    est, data = fitted(FIRST[cls])
    table = changed_tasks(est, data, data)[3]
    found, _ = outcomes(est, table, [CHANGED], new_tasks(est.tasks_))
    for whose in ("other tasks", "new tasks"):
        for name in ("predict", "score", "export_task"):
            values = [found[k] for k in found if f"{name} for {whose}" in (k, k[0])]
            assert values and not any(isinstance(value, tuple) for value in values)
    new = found["attributes after personalize"]["coef_"]
    assert len(new) == 2 and np.isfinite(new).all() and len(est.tasks_) == len(TASKS)


class Absent(LinearRounds):
    """Listed tasks without rows get the mean of the models of all others."""

    def _models_without_rows(self, fitted, tasks, positions):
        coef, intercept = super()._models_without_rows(fitted, tasks, positions)
        return coef + fitted["coef_"].mean(axis=0), intercept


def test_models_of_absent_tasks():
    found = failures(Absent(**{**ROUNDS, "tasks": [*TASKS, 77]}))
    assert any(text.startswith("Attribute: coef_") for text in found), found


def frame(data):
    pd = pytest.importorskip("pandas")
    X, y, task = data
    columns = {"a": X[:, 0], "school": [f"school {k}" for k in task], "b": X[:, 1]}
    return pd.DataFrame(columns), y


@pytest.mark.parametrize("cls", [PrivateMTL, Welcomes], ids=lambda cls: cls.__name__)
def test_uses_of_a_fit_of_a_frame_with_names_of_tasks(cls):
    names = [f"school {k}" for k in TASKS]
    options = {"epsilon": 1e3} if cls is PrivateMTL else {"n_rounds": 2}
    given = cls(task_feature="school", tasks=names, unseen_task="mean", **options)
    found = failures(given, 0, [frame(data) for data in pair()])
    assert bool(found) == (cls is Welcomes), found


@pytest.mark.parametrize("est", [LinearRounds(**ROUNDS), DPMetaInit(**DRAWN)], ids=repr)
def test_sound_fits_with_noise_of_their_own_raise_no_alarm(est):
    assert failures(est, 12) == ()


class CompilesAtFirst(PrivateMTL):
    """The first fit makes a name of a file, as numba does where a draw compiles a loop."""

    made: ClassVar = []

    def _source(self):
        class Source(SystemSource):
            def normal(self, *size):
                if not CompilesAtFirst.made:
                    CompilesAtFirst.made.append(uuid.uuid4())
                return super().normal(*size)

        return Source()


def test_names_of_files_are_no_chance_of_a_release():
    CompilesAtFirst.made.clear()
    assert failures(CompilesAtFirst(**LOOP)) == ()
    assert len(CompilesAtFirst.made) == 1
