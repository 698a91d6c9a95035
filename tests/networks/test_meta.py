"""Networks in private meta-learning: against linear models and gradients one by one."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from skpmtl import DPMetaInit, DPMetaInitClassifier, load_billboard, save_billboard
from skpmtl.exchange import Population
from skpmtl.networks import TorchMetaInitClassifier, TorchMetaInitRegressor, meta
from tests.contract import test_contract as contract
from tests.helpers.cases import N_TASKS, _case, every, fitted, long_data, seeded
from tests.networks import nets

torch = pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")
pytestmark = [
    pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible"),
    pytest.mark.filterwarnings("ignore:The noise of (one|all) round"),  # of six tasks
]
TASKS = range(6)
NUMBERS = {"inner_steps": 3, "inner_learning_rate": 0.7, "meta_learning_rate": 0.8}


def _cases():
    record = {"sizes_public": True, "record": True, "module": nets.mlp, "refine_steps": 3}
    cls = TorchMetaInitRegressor
    yield _case(cls, name="plain", inner_steps=2, unseen_task="mean", **record)
    options = {"batches": "disjoint", "batch_size": 4, "inner_steps": 5}
    yield _case(cls, name="disjoint", adjacency="zero-out", **options, **record)
    options = {"batches": "poisson", "batch_size": 4, "inner_steps": 2, "tasks_per_round": 2}
    yield _case(cls, name="poisson", needs="dp_accounting", **options, **record)
    task = {**record, "record": False}
    yield _case(cls, name="local", privacy="local", visits=2, **task)
    options = {"module__outputs": 3, "inner_steps": 2}
    yield _case(TorchMetaInitClassifier, 3, name="classes", **options, **record)
    yield _case(cls, name="servers", curator="servers", inner_steps=2, **record)


CASES = list(_cases())


@every(CASES)
def test_contract(case, tmp_path):
    case.skip_without_extras()
    contract.test_only_releases_depend_on_a_neighbour(case)
    contract.test_only_releases_depend_on_all_rows(case)
    contract.test_report(case)
    contract.test_report_is_known_before_the_fit(case)
    contract.test_wire(case)
    contract.test_sites_agree_with_one_process(case)
    contract.test_an_interrupted_run_repeats_no_release(case, at_end=False)
    contract.test_nothing_private_is_in_the_file(case, tmp_path)


@pytest.mark.parametrize("rows", ["1e150", "1e308", "denormal", "zero", "target 1e300"])
@every([CASES[0], CASES[4]])
def test_adversarial_neighbours(case, rows):
    contract.test_adversarial_neighbours(case, rows)


@pytest.mark.parametrize("privacy", ["task-global", "local", None])
@pytest.mark.parametrize(("n_classes", "outputs"), [(0, 1), (2, 1), (3, 3)])
def test_a_linear_module_is_linear_meta_learning(n_classes, outputs, privacy):
    X, y, task = long_data(n_classes, sizes=(9, 14, 20, 7, 11, 14))
    given = {
        **NUMBERS,
        "privacy": privacy,
        "clip_norm": 0.3,
        "epsilon": 4.0,
        "tasks": TASKS,
        "visits": 2,
        "random_state": 5,
        "unseen_task": "mean",
    }
    given |= {"classes": range(n_classes)} if n_classes else {}
    plain = DPMetaInitClassifier if n_classes else DPMetaInit
    plain = plain(fit_intercept=False, refine="sgd", refine_learning_rate=0.2, **given)
    net = TorchMetaInitClassifier if n_classes else TorchMetaInitRegressor
    net = net(nets.linear, module__outputs=outputs, refine_learning_rate=0.2, **given)
    for est in (plain, net):
        est.fit(X, y, task=task)
    assert abs(plain.init_coef_).max() > 0.05
    assert_allclose(net.init_coef_, plain.init_coef_.ravel(), rtol=0, atol=1e-6)
    if not plain.billboard_.lost:  # which the linear model then leaves aside
        assert_allclose(net.coef_, plain.coef_.reshape(6, -1), rtol=0, atol=1e-6)
    assert net.privacy_.noise_std == plain.privacy_.noise_std
    assert_array_equal(net.task_privacy(2), plain.task_privacy(2))
    single = clone(net).set_params(module__dtype="float32").fit(X, y, task=task)
    assert_allclose(single.init_coef_, net.init_coef_, rtol=0, atol=1e-5)


def tokens():
    """The next of five tokens, from the last four."""

    class Lstm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(5, 3)
            self.lstm = torch.nn.LSTM(3, 4, batch_first=True)
            self.out = torch.nn.Linear(4, 5)

        def forward(self, x):
            return self.out(self.lstm(self.table(x.long()))[0][:, -1])

    return Lstm()


def images():
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 2, 2)),
        torch.nn.Conv2d(1, 3, 2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(3, 5),
    )


def dense():
    return nets.mlp(features=4, outputs=5)


@pytest.mark.parametrize("module", [dense, images, tokens])
def test_clipped_gradients_are_those_of_a_plain_loop(module):
    rng = np.random.default_rng(0)
    X, task = rng.integers(0, 5, size=(24, 4)).astype(float), np.repeat(range(3), 8)
    y = rng.integers(0, 5, size=24)
    weight = rng.uniform(0.2, 1.0, size=24)
    est = TorchMetaInitClassifier(module, tasks=range(3), classes=range(5), random_state=2)
    table, _ = est._read_training(X, y, task, weight)
    table, _ = est._encoded(table)
    task_side = est._task_side(table, Population.of(table))
    w, rows = 0.1 * rng.normal(size=task_side.network.n_shared), np.array([1, 4, 5, 20])
    net = task_side.network.module
    task_side.network.write(task_side.network.tensor(task_side.start + w))
    expected, whole, lengths = 0.0, 0.0, []
    for i in rows:
        net.zero_grad()
        score = net(torch.from_numpy(X[i : i + 1]).float())
        torch.nn.functional.cross_entropy(score, torch.tensor(y[i : i + 1])).backward()
        g = torch.cat([p.grad.reshape(-1) for p in net.parameters()]).double().numpy()
        lengths.append(np.linalg.norm(g))
        expected = expected + weight[i] * g * min(1.0, 2.0 / lengths[-1])
        whole = whole + weight[i] * g
    assert min(lengths) < 2.0 < max(lengths) or module is not dense
    assert_allclose(task_side.clipped_sum(w, rows, 2.0), expected, rtol=0, atol=1e-6)
    assert_allclose(task_side.clipped_sum(w, rows, np.inf), whole, rtol=0, atol=1e-6)


class Centred(torch.nn.Module):
    """Subtracts a running mean of the rows that it was trained with."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.out = torch.nn.Linear(3, 1)

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.5)
        return self.out(x - self.mean)


@pytest.mark.parametrize(
    ("module", "batches", "one_by_one"),
    [(nets.dropout, "poisson", False), (nets.dropout, "poisson", True), (Centred, "full", True)],
)
@pytest.mark.parametrize("most", [2, 100])
def test_a_record_leaves_the_gradients_of_others(module, batches, one_by_one, most, monkeypatch):
    """Sums over batches with and without it differ by its gradient alone, of length clip_norm."""
    rng = np.random.default_rng(0)
    X, y, task = rng.normal(size=(8, 3)), rng.normal(size=8), np.zeros(8, dtype=int)
    est = TorchMetaInitRegressor(module, tasks=[0], random_state=2)
    if batches == "poisson":
        pytest.importorskip("dp_accounting", reason="needs the extra skpmtl[sampling]")
        est.set_params(batches="poisson", batch_size=4)
    table, _ = est._read_training(X, y, task)
    task_side = est._task_side(table, Population.of(table))
    network = task_side.network
    network.one_by_one = one_by_one
    monkeypatch.setitem(meta._GRADIENTS, "cpu", most * network.n_shared)  # records at a time
    w = 0.1 * rng.normal(size=network.n_shared)

    def total(rows):
        return task_side.clipped_sum(w, np.array(rows), 0.3, salt=1)

    for others in ([1, 2, 3], [1, 2, 3, 4, 5, 6, 7], [5]):
        assert_allclose(total([0, *others]) - total(others), total([0]), rtol=0, atol=1e-6)


def test_without_a_bound_gradients_not_finite_count_as_0():
    X, y, task = np.ones((6, 3)), np.ones(6), np.repeat(range(2), 3)
    X[1] = 1e200  # the gradient overflows, the loss too
    est = TorchMetaInitRegressor(nets.linear, tasks=range(2), random_state=2)
    table, _ = est._read_training(X, y, task)
    task_side = est._task_side(table, Population.of(table))
    w = np.full(3, 0.5)
    found = [task_side.clipped_sum(w, np.array(rows), np.inf) for rows in ([0, 1, 2], [0, 2])]
    assert_array_equal(*found)


@pytest.mark.parametrize("privacy", ["task-global", "local"])
def test_a_fit_that_is_little_but_noise_warns(privacy):
    """sqrt(d / m) / (n mu), n records protected at once, whatever clip norm and rates are."""
    X, y, task = long_data(0, sizes=(20,) * 6)
    given = {**NUMBERS, "privacy": privacy, "visits": 2, "tasks": TASKS, "adjacency": "zero-out"}

    def found(epsilon, **more):
        est = TorchMetaInitRegressor(nets.linear, epsilon=epsilon, **{**given, **more})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            est.fit(X, y, task=task)
        told = [one for one in caught if "noise of all rounds" in str(one.message)]
        report = est.privacy_
        way = report.public_inputs["noise over the longest path"]
        reach = 2.0 if privacy == "local" else 1 / 20
        assert_allclose(way, np.sqrt(3 / 6) * reach / report.mu, rtol=1e-3)
        assert bool(told) == (way > 0.25)
        if told:
            assert told[0].filename == __file__
        return way

    noisy = found(0.1)
    assert noisy > 0.25 > found(50.0)
    assert_allclose(found(0.1, clip_norm=7.0, tasks_per_round=2), noisy, rtol=1e-3)


def test_a_file_and_the_module_are_enough_for_new_tasks(tmp_path):
    est, (X, y, task) = fitted(CASES[4])
    save_billboard(est, tmp_path / "init.npz")
    there = load_billboard(tmp_path / "init.npz")
    there.set_params(module=nets.mlp, module__outputs=3).personalize(X, y, task=task)
    assert_allclose(there.coef_, est.coef_, rtol=0, atol=1e-6)
    assert_array_equal(there.predict(X, task=task), est.predict(X, task=task))
    assert est.coef_.shape[0] == N_TASKS
    before = torch.random.get_rng_state()
    seeded(CASES[4]).set_params(module=nets.dropout).fit(X, y, task=task)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"module": None}, "module= is missing"),
        ({"module": nets.normalised}, "GroupNorm"),
        ({"module": nets.normalised, "module__affine": False}, "change the gradients of others"),
        ({"inner_steps": "auto"}, "inner_steps"),
    ],
)
def test_errors_come_early(settings, message):
    X, y, task = long_data()
    est = TorchMetaInitRegressor(nets.mlp, tasks=TASKS, random_state=0).set_params(**settings)
    with pytest.raises(ValueError, match=message):
        est.fit(X, y, task=task)
    assert [name for name in vars(est) if name.endswith("_")] == []


@pytest.mark.parametrize(
    "given", [{"epsilon": 5.0}, {"epsilon": 5.0, "privacy": "local"}, {"epsilon": None}], ids=str
)
def test_steps_that_are_too_long_are_shortened(given):
    """Rows of length 17: full steps multiply errors by 150."""
    X, y, task = long_data(0)
    est = TorchMetaInitRegressor(nets.linear, tasks=TASKS, random_state=0, **given)
    est.fit(10 * X, y, task=task)
    for k in TASKS:
        mine = task == k
        begin, end = (
            np.mean((y[mine] - 10 * X[mine] @ w) ** 2) for w in (est.init_coef_, est.coef_[k])
        )
        assert end < begin
    assert est.init_coef_.shape == (3,) and np.linalg.norm(est.init_coef_) < 20
