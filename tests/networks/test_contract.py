"""What every method owes, by the estimators with networks: leaks, report, files, sites, shards."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skpmtl import load_billboard, save_billboard
from skpmtl.exchange.wire import pack, unpack
from skpmtl.networks import TorchMeanRegClassifier, TorchMeanRegRegressor
from tests.contract import test_contract as contract
from tests.helpers.cases import CLUSTERS, N_TASKS, RELATION, _case, every, fitted
from tests.helpers.sites import Sites
from tests.networks import nets

torch = pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")
pytestmark = [
    pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible"),
    pytest.mark.filterwarnings("ignore:The noise of (one|all) round"),  # of six tasks
    pytest.mark.filterwarnings("ignore:relation=:UserWarning"),
]


def _cases():
    few = {"n_rounds": 3, "local_steps": 2, "personal_steps": 3, "module": nets.mlp}
    cls = TorchMeanRegRegressor
    yield _case(cls, name="plain", unseen_task="mean", **few)
    yield _case(cls, name="zero-out", adjacency="zero-out", clusters=CLUSTERS, **few)
    yield _case(cls, name="batches", batch_size=5, **few)
    yield _case(cls, name="relation", relation=RELATION, **few)
    yield _case(cls, name="local", local=("2.*",), update="fedavg", **few)
    few["module"] = nets.normalised
    yield _case(cls, name="statistics", local="1.*", **few)
    few["module"] = nets.mlp
    for variant in ("finetune", "none"):
        options = {"personalization": variant, "module__outputs": 3, **few}
        yield _case(TorchMeanRegClassifier, 3, name=f"classes {variant}", **options)
    options = {"module": nets.dropout, "module__outputs": 2}
    yield _case(TorchMeanRegClassifier, 2, name="two classes", **{**few, **options})
    yield _case(cls, name="servers", curator="servers", **few)


CASES = list(_cases())
REMEMBER = ("local", "statistics")
FIRST = [CASES[0], *CASES[4:7], CASES[-1]]


@every(CASES)
def test_only_releases_depend_on_rows(case):
    contract.test_only_releases_depend_on_a_neighbour(case)
    if case in FIRST:
        contract.test_only_releases_depend_on_all_rows(case)


@pytest.mark.parametrize("rows", contract.ROWS)
@every([CASES[0], CASES[5]])
def test_adversarial_neighbours(case, rows):
    contract.test_adversarial_neighbours(case, rows)


@every(CASES)
def test_report(case):
    contract.test_report(case)
    contract.test_report_is_known_before_the_fit(case)


@every(FIRST)
def test_noise_and_forms_of_input(case):
    contract.test_noise_is_that_of_the_operating_system_by_default(case)
    for form in ("wide", "mapping", "column"):
        if case is CASES[0]:
            contract.test_forms_of_input_give_one_fit(form, case)


@every(CASES)
def test_wire_and_sites(case):
    contract.test_wire(case)
    contract.test_sites_agree_with_one_process(case)
    if case in FIRST:
        contract.test_an_interrupted_run_repeats_no_release(case, at_end=False)


class Bounded(Sites):
    """Every task on a site of its own, of which one sends what it likes; or nothing (NaN)."""

    largest = 0.0

    def answer(self, query):
        sent, place = self.contributions(query)
        honest = query.combine({k: v.copy() for k, v in sent.items()}, place)
        zero_out = self.est.adjacency == "zero-out"
        for k in range(len(place)):
            others = {name: np.delete(v, k, axis=0) for name, v in sent.items()}
            without = query.combine(others, np.delete(place, k))
            if zero_out:
                own = {name: v[k : k + 1].copy() for name, v in sent.items()}
                self.check(query, query.combine(own, place[k : k + 1]), {})
                self.check(query, honest, without)
            for garbage in (np.nan, np.inf, 1e300, -1e12):
                broken = {name: v.copy() for name, v in sent.items()}
                for value in broken.values():
                    value[k] = garbage
                sums = query.combine(broken, place)
                if np.isnan(garbage):
                    for name in query.mechanisms:
                        assert_allclose(sums[name], without[name], rtol=1e-13, atol=1e-13)
                self.check(query, sums, without if zero_out else honest)
        return honest

    def check(self, query, one, other):
        for name, mechanism in query.mechanisms.items():
            size = np.linalg.norm((one[name] - other.get(name, 0.0)) / query.divide)
            assert size <= mechanism.sensitivity * (1 + 1e-9)
            self.largest = max(self.largest, size / mechanism.sensitivity)


@every([case for case in CASES if case.name in ("plain", "zero-out", "batches", "relation")])
def test_the_curator_bounds_what_tasks_send(case):
    """Sensitivities do not rest on those who send: not on the honest, the broken, the silent."""
    usual = contract.long_data(case.n_classes)
    for data in (usual, contract.neighbour(case, contract.everybody(case, usual))):
        rows = contract.rows_of(case, data)
        sites = Bounded(contract.seeded(case), rows, [[k] for k in range(N_TASKS)])
        assert sites.run().report.releases
    assert sites.largest > (0.4 if sites.est.adjacency == "zero-out" else 0.3)


@every(FIRST)
def test_nothing_private_is_in_the_file(case, tmp_path):
    contract.test_nothing_private_is_in_the_file(case, tmp_path)


@every(CASES)
def test_new_tasks_go_on_from_a_file_and_the_module(case, tmp_path):
    est, (X, y, task) = fitted(case)
    save_billboard(est, tmp_path / "board.npz")
    content = (tmp_path / "board.npz").read_bytes()
    assert not any(word in content for word in (b"nets", b"torch", b"Sequential", b"pickle"))
    there = load_billboard(tmp_path / "board.npz")
    assert type(there) is type(est) and there.privacy_ == est.privacy_
    with pytest.raises(ValueError, match="module= is missing"):
        there.personalize(X, y, task=task)
    of_module = {k: v for k, v in est.get_params().items() if k.startswith("module")}
    there.set_params(**{**of_module, "module": nets.mlp, "module__width": 7})
    with pytest.raises(ValueError, match="of the fit|local="):
        there.personalize(X, y, task=task)
    del there.arguments["module__width"]
    there.set_params(**of_module)
    there.personalize(X, y, task=task)
    if case.name not in REMEMBER:
        assert_allclose(there.coef_, est.coef_, rtol=0, atol=1e-6)
    X, y, task = contract.newcomers(case)
    before = pickle.loads(pickle.dumps(est))
    for one in (there, est):
        one.personalize(X, y, task=task)
    assert_array_equal(est.coef_[:N_TASKS], before.coef_)
    assert_allclose(there.coef_[N_TASKS:], est.coef_[N_TASKS:], rtol=0, atol=1e-6)
    assert_array_equal(*(one.predict(X, task=task) for one in (there, est)))
    here, other = there.export_task(21), est.export_task(21)
    assert list(here["parameters"]) == list(other["parameters"])
    module = there.to_module(21)
    for name, values in here["parameters"].items():
        assert_allclose(values, other["parameters"][name], rtol=0, atol=1e-6)
        assert_array_equal(module.state_dict()[name].numpy(), values)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_crafted_strength_is_refused(value):
    board = fitted(CASES[0])[0].billboard_
    unpack(*pack(board))
    with pytest.raises(ValueError, match="lam"):
        unpack(*pack(replace(board, lam=value)))


@every([CASES[0], CASES[4]])
def test_parts_agree_with_one_table(case, tmp_path):
    from skpmtl.shards import fit_shards
    from tests.helpers.cases import seeded
    from tests.helpers.sites import write_parts

    whole, (X, y, task) = fitted(case)
    parts = write_parts(tmp_path, np.asfortranarray(X), y, task, contract.SPLIT)
    est = fit_shards(clone(seeded(case)), parts)
    assert_allclose(est.coef_, whole.coef_, rtol=0, atol=1e-7)
    assert_allclose(est.predict(X, task=task), whole.predict(X, task=task), rtol=0, atol=1e-5)


def test_reports_name_the_module_and_warnings_the_line():
    est, (X, y, task) = fitted(CASES[4])
    assert est.privacy_.public_inputs["module"] == (
        "16 shared numbers, and 5 that stay with every task"
    )
    told = str(est.privacy_).replace("\n", " ")
    assert "the module and the numbers that it starts from are public" in told
    exact = clone(est).set_params(epsilon=None).fit(X, y, task=task).privacy_
    assert "module" not in exact.public_inputs
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(est).set_params(tasks="auto", random_state=0, epsilon=0.01).fit(X, y, task=task)
    assert len(caught) == 3
    assert {one.filename for one in caught} == {__file__}
