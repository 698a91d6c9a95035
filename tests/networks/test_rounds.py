"""Networks in private rounds: against linear models, closed forms and plain loops."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from skpmtl.exchange import Population
from skpmtl.networks import (
    TorchMeanRegClassifier,
    TorchMeanRegRegressor,
    TorchMetaInitRegressor,
    steps,
)
from skpmtl.privacy.accounting import gdp_mu
from skpmtl.tables.assignment import random_words
from tests.helpers.cases import labels, long_data
from tests.networks import nets

torch = pytest.importorskip("torch", reason="needs the extra skpmtl[torch]")
pytestmark = [
    pytest.mark.filterwarnings("ignore:The noise of this fit is reproducible"),
    pytest.mark.filterwarnings("ignore:The noise of all rounds"),  # of six tasks
]
TASKS = range(6)
GPU = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
)


def same_rows(n_classes, n_rows=20):
    """Tasks with the same rows, so that one step length suits all."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3)) / 2
    W = rng.normal(size=3) + rng.normal(size=(6, 3))
    y = np.concatenate([labels(X @ w + 0.1 * rng.normal(size=n_rows), n_classes) for w in W])
    return np.tile(X, (6, 1)), y, np.repeat(TASKS, n_rows)


def test_two_scores_of_two_classes_are_their_log_odds():
    X, y, task = same_rows(2)
    given = {
        "epsilon": None,
        "n_rounds": 5,
        "learning_rate": 1.0,
        "momentum": 0.0,
        "random_state": 0,
        "personalization": "none",
        "update": "fedavg",
    }
    one = TorchMeanRegClassifier(nets.linear, **given).fit(X, y, task=task)
    # Both scores move, in opposite directions: half the rate moves their difference as much.
    two = TorchMeanRegClassifier(nets.linear, module__outputs=2, **given)
    two.set_params(learning_rate=0.5).fit(X, y, task=task)
    assert_allclose(
        two.decision_function(X, task=task), one.decision_function(X, task=task), atol=1e-9
    )
    assert_allclose(two.predict_proba(X, task=task).sum(axis=1), 1.0)


# ----------------------------------------------------------------------- personal networks
def towards(X, y, start, lam):
    """Minimum of 1 / (2 n) ||y - X w||^2 + lam / 2 ||w - start||^2."""
    n = len(X)
    return np.linalg.solve(X.T @ X / n + lam * np.eye(X.shape[1]), X.T @ y / n + lam * start)


@pytest.mark.parametrize("variant", ["mean-reg", "finetune"])
def test_personal_networks_are_minima_around_the_released_one(variant):
    X, y, task = long_data()
    lam, ids = 0.3, np.array(["a", "b", "c", "d", "e", "f"])
    est = TorchMeanRegRegressor(
        nets.linear,
        lam=lam,
        epsilon=20.0,
        n_rounds=2,
        personalization=variant,
        personal_steps=200,
        personal_folds=None,
        learning_rate=2.0,
        momentum=0.0,
        random_state=0,
        tasks=ids.tolist(),
    ).fit(X, y, task=ids[task])
    for k in TASKS:
        rows, target, start = X[task == k], y[task == k], est.mean_coef_
        expected = towards(rows, target, start, lam if variant == "mean-reg" else 0.0)
        assert_allclose(est.coef_[k], expected, rtol=0, atol=1e-6)
        assert_allclose(est.export_task(ids[k])["parameters"]["weight"][0], expected, atol=1e-6)


@pytest.mark.parametrize("weight", [None, 0.4])
def test_the_way_to_a_personal_network_follows_held_out_rows(weight):
    X, y, task = long_data()
    lam, ids, folds = 0.3, np.array(["a", "b", "c", "d", "e", "f"]), 4
    est = TorchMeanRegRegressor(
        nets.linear,
        lam=lam,
        epsilon=0.4,
        n_rounds=2,
        personal_steps=200,
        personal_folds=folds,
        learning_rate=1.0,
        momentum=0.0,
        random_state=0,
        tasks=ids.tolist(),
    )
    given = None if weight is None else np.full(len(y), weight)
    est.fit(X, y, task=ids[task], sample_weight=given)
    shared, public, parts, backs = est.mean_coef_, est.billboard_.start, [], []

    def likely(errors, n):
        likely = (errors / errors.min()) ** (-n / 2)
        return likely / likely.sum()

    for k in TASKS:
        rows, target = X[task == k], y[task == k]
        errors = np.array([((target - rows @ w) ** 2).sum() for w in (shared, public)])
        backs.append(likely(errors, len(rows)))
        begin = backs[-1] @ [shared, public]
        dealt = np.argsort(random_words(0, "fold", ids[k : k + 1], [len(rows)]))
        errors = np.zeros(5)
        for f in range(folds):
            out = np.isin(np.arange(len(rows)), dealt[f::folds])
            own = towards(rows[~out], target[~out], begin, lam)
            between = [begin + i / 4 * (own - begin) for i in range(5)]
            errors += [((target - rows @ way)[out] ** 2).sum() for way in between]
        own = towards(rows, target, begin, lam)
        parts.append(likely(errors, len(rows)) @ np.arange(5) / 4)
        assert_allclose(est.coef_[k], begin + parts[-1] * (own - begin), rtol=0, atol=1e-6)
    assert np.ptp(backs) > 0.5 and np.max(parts) < 0.99


def test_personal_networks_stay_at_the_start_if_all_is_noise():
    rng = np.random.default_rng(0)
    task, w = np.repeat(np.arange(15), 12), rng.normal(size=3)
    X = rng.normal(size=(180, 3))
    y = X @ w + rng.normal(size=180)
    start = nets.linear()
    start.weight.data = torch.tensor(w[None])
    est = TorchMeanRegRegressor(
        lambda: start,
        lam=1.0,
        clip_norm=10.0,
        epsilon=0.05,
        n_rounds=5,
        random_state=0,
        personal_steps=40,
        tasks=list(range(15)),
    ).fit(X, y, task=task)
    assert np.linalg.norm(est.mean_coef_ - w) > 10
    errors = np.linalg.norm(est.coef_ - w, axis=1)
    assert np.median(errors) < 0.2
    est.billboard_.personal_folds = None
    est.personalize(X, y, task=task)
    assert np.median(np.linalg.norm(est.coef_ - w, axis=1)) > 1


def test_a_task_of_one_row_stays_at_the_released_network():
    X, y, task = long_data()
    keep = (task != 2) | (np.cumsum(task == 2) == 1)
    est = TorchMeanRegRegressor(nets.linear, epsilon=None, n_rounds=2, random_state=0)
    est.fit(X[keep], y[keep], task=task[keep])
    assert_array_equal(est.coef_[2], est.mean_coef_)
    assert (est.coef_[3] != est.mean_coef_).any()


# ---------------------------------------------------------------------- many at a time
def together(monkeypatch):
    """Train tasks together, as on a GPU."""
    blocks = steps.LocalSteps._blocks
    monkeypatch.setattr(
        steps.LocalSteps, "_blocks", lambda self, pick, given, _: blocks(self, pick, given, True)
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"batch_size": 5}, {"local": "2.*"}, {"update": "fedavg", "personalization": "none"}],
    ids=str,
)
@pytest.mark.parametrize("n_classes", [0, 3])
def test_tasks_trained_together_take_the_same_steps(n_classes, options, monkeypatch):
    X, y, task = long_data(n_classes, sizes=(3, 9, 14, 1, 20, 9))
    cls = TorchMeanRegClassifier if n_classes else TorchMeanRegRegressor
    est = cls(
        nets.mlp,
        module__outputs=max(n_classes, 1),
        epsilon=5.0,
        n_rounds=3,
        random_state=1,
        tasks=TASKS,
        **options,
    )
    est = est.set_params(classes=range(3)) if n_classes else est
    one = clone(est).fit(X, y, task=task)
    together(monkeypatch)
    many = clone(est).fit(X, y, task=task)
    assert_allclose(many.mean_coef_, one.mean_coef_, rtol=0, atol=2e-6)
    assert_allclose(many.coef_, one.coef_, rtol=0, atol=1e-5)


def test_batches_do_not_follow_the_last_bits_of_a_release():
    X, y, task = long_data(3)
    est = TorchMeanRegClassifier(
        nets.linear,
        module__outputs=3,
        epsilon=5.0,
        n_rounds=4,
        batch_size=5,
        random_state=1,
        tasks=TASKS,
    )
    est.set_params(classes=range(3)).fit(X, y, task=task)
    single = clone(est).set_params(module__dtype="float32").fit(X, y, task=task)
    assert_allclose(single.coef_, est.coef_, rtol=0, atol=1e-5)


@pytest.mark.parametrize("device", [GPU])
def test_a_gpu_agrees_with_the_cpu(device):
    X, y, task = long_data(3, sizes=(3, 9, 14, 1, 20, 9))
    est = TorchMeanRegClassifier(
        nets.mlp,
        module__outputs=3,
        epsilon=5.0,
        n_rounds=3,
        random_state=1,
        tasks=TASKS,
        classes=range(3),
    )
    for options in ({}, {"batch_size": 5}):
        est.set_params(**options)
        here, there = (clone(est).set_params(device=d) for d in ("cpu", device))
        for one in (here, there):
            one.fit(X, y, task=task)
        assert_allclose(there.coef_, here.coef_, rtol=0, atol=1e-5)
        assert_allclose(
            there.decision_function(X, task=task), here.decision_function(X, task=task), atol=1e-4
        )


# ------------------------------------------------------------------------- what stays
def small(module=nets.mlp, **options):
    return TorchMeanRegRegressor(module, n_rounds=2, tasks=TASKS, random_state=0, **options)


def test_local_parameters_and_statistics_never_leave_their_task():
    X, y, task = long_data()
    est = small(nets.normalised, local=("1.*",)).fit(X, y, task=task)
    released = [name for name, _ in est.billboard_.layout]
    assert released == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert est.billboard_.centres.shape == (1, 12 + 4 + 4 + 1)
    size = est.billboard_.centres.size
    assert_array_equal(est.mean_coef_[size:], est.billboard_.start[size:])
    means = est.coef_[:, size + 8 : size + 12]  # after weight and bias of the layer
    assert len(np.unique(means, axis=0)) == len(TASKS)
    parameters = est.export_task(3)["parameters"]
    assert_allclose(parameters["1.running_mean"], means[3])
    weightless = small(nets.normalised, module__affine=False).fit(X, y, task=task)
    assert weightless.coef_.shape[1] == size + 8
    module = est.to_module(3)
    mine = task == 3
    with torch.no_grad():
        found = module(torch.from_numpy(X[mine]).float()).numpy().ravel()
    assert_allclose(found, est.predict(X[mine], task=task[mine]), atol=1e-6)


@pytest.mark.parametrize("cls", [TorchMeanRegRegressor, TorchMetaInitRegressor])
def test_a_module_given_again_starts_every_fit_where_it_was(cls):
    X, y, task = long_data()
    net = nets.mlp()
    before = {name: values.clone() for name, values in net.state_dict().items()}
    est = cls(lambda: net, tasks=TASKS, random_state=0).fit(X, y, task=task)
    released = est.mean_coef_.copy()
    for name, values in net.state_dict().items():
        assert_array_equal(values, before[name])
    assert_array_equal(clone(est).fit(X, y, task=task).mean_coef_, released)


class Counting(torch.nn.Module):
    """Remembers in a buffer what it has seen."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        with torch.no_grad():
            self.seen += x.detach().abs().sum()
        return self.layer(x) + 1e-3 * self.seen


def test_a_buffer_carries_nothing_from_task_to_task():
    X, y, task = long_data()
    est = small(Counting, epsilon=None, local_steps=1)
    whole = est.fit(X, y, task=task).coef_
    some = np.isin(task, [0, 4, 5])
    est.personalize(X[some], y[some], task=task[some])
    assert_array_equal(est.coef_, whole)
    assert "seen" not in est.export_task(0)["parameters"]


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("module", [nets.dropout, nets.normalised, nets.mlp])
def test_rows_of_one_task_move_no_batch_or_draw_of_another(module, device):
    """Folds, batches and dropout: another task has one row more, or none."""
    X, y, task = long_data(sizes=(7, 9, 8, 5, 6, 9))
    local = ("1.*",) if module is nets.normalised else ()
    est = TorchMeanRegRegressor(
        module,
        n_rounds=1,
        epsilon=None,
        batch_size=3,
        local=local,
        personal_steps=5,
        tasks=TASKS,
        random_state=0,
        device=device,
    ).fit(X, y, task=task)
    coef = est.personalize(X, y, task=task).coef_.copy()
    for rows in (np.r_[0, np.arange(len(y))], np.flatnonzero(task != 0)):
        other = est.personalize(X[rows], y[rows], task=task[rows])
        assert_allclose(other.coef_[1:], coef[1:], rtol=0, atol=0 if device == "cpu" else 1e-5)
    assert est._of_billboard().draws == (module is nets.dropout)


def test_dropout_and_starts_leave_the_generator_alone():
    X, y, task = long_data()
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = small(nets.dropout).fit(X, y, task=task)
    torch.rand(3)
    second = clone(first).fit(X, y, task=task)
    assert_array_equal(first.coef_, second.coef_)
    torch.random.set_rng_state(before)
    small(nets.dropout).fit(X, y, task=task).predict(X, task=task)
    assert torch.equal(torch.random.get_rng_state(), before)


# --------------------------------------------------------------------------- estimators
def test_arguments_of_the_module_are_parameters():
    est = TorchMeanRegClassifier(nets.mlp, module__outputs=3, module__width=6)
    assert est.get_params()["module__width"] == 6
    again = clone(est)
    assert again.get_params() == est.get_params()
    assert again.set_params(module__width=9, lam=0.5).arguments["module__width"] == 9
    assert est.arguments["module__width"] == 6 and again.lam == 0.5
    assert "module__width=6" in repr(est)
    with pytest.raises(TypeError, match="lambda_"):
        TorchMeanRegClassifier(nets.mlp, lambda_=0.3)
    X, y, task = long_data(3)
    est.set_params(random_state=0, epsilon=None, n_rounds=2).fit(X, y, task=task)
    assert est.billboard_.layout[0] == ("0.weight", (6, 3))
    assert "_built" not in est.__getstate__()
    other = pickle.loads(pickle.dumps(est))
    assert_array_equal(other.predict_proba(X, task=task), est.predict_proba(X, task=task))


def computed():
    net = nets.mlp()
    net.twice = 2 * net[0].weight
    return net


def unknown():
    net = nets.mlp()
    net[0].bias.data[1] = np.nan
    return net


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"module": None}, ValueError, "module= is missing"),
        ({"module": lambda: "net"}, TypeError, "str"),
        ({"module": torch.nn.Flatten}, ValueError, "no parameters"),
        ({"module": nets.normalised}, ValueError, "(?s)'1'.*released.*local="),
        ({"module__outputs": 4}, ValueError, "one number"),
        ({"module__features": 5}, ValueError, r"does not take rows \(2, 3\)"),
        ({"module": lambda: torch.nn.LazyLinear(1)}, ValueError, "without a shape"),
        ({"module": computed}, ValueError, "copied"),
        ({"module": unknown}, ValueError, "not finite"),
        ({"local": "9.*"}, ValueError, "matches none of the parameters 0.weight"),
        ({"local": "*"}, ValueError, "nothing is left to share"),
        ({"device": "nowhere"}, ValueError, 'device="cpu"'),
        ({"clip_norm": "auto"}, ValueError, "clip_norm"),
    ],
)
def test_errors_come_early_and_leave_nothing_fitted(settings, error, message):
    X, y, task = long_data()
    est = small().fit(X, y, task=task)
    with pytest.raises(error, match=message):
        est.set_params(**settings).fit(X, y, task=task)
    assert [name for name in vars(est) if name.endswith("_")] == []


def test_steps_that_are_not_finite_send_nothing():
    X, y, task = long_data()
    est = small(learning_rate=1e30, local_steps=3)
    est.fit(X, y, task=task)
    assert np.isfinite(est.coef_).all() and np.isfinite(est.predict(X, task=task)).all()
    for rate in (1e30, 1e4):  # nothing hides it where there is no bound
        with pytest.raises(ValueError, match="The rounds diverged"):
            clone(est).set_params(epsilon=None, learning_rate=rate).fit(X, y, task=task)
    with pytest.raises(ValueError, match=r"reshape.*Unflatten\(1, \(3, 1\)\)"):
        est.predict(X[:, :, None], task=task)
    with pytest.raises(ValueError, match="sparse"):
        est.fit(sparse.csr_matrix(X), y, task=task)


class Words(torch.nn.Module):
    """Of rows of ten words."""

    def __init__(self):
        super().__init__()
        self.table, self.out = torch.nn.Embedding(10, 3), torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.out(self.table(x.long()).mean(dim=1))


@pytest.mark.parametrize("cls", [TorchMeanRegRegressor, TorchMetaInitRegressor])
def test_rows_that_a_module_refuses_end_no_fit_of_others(cls):
    """All of them count alike, and those of a whole task as if it had none."""
    X, y, task = long_data()
    X, bad, away = np.abs(X).clip(0, 9), np.flatnonzero(task == 2)[1:], task == 0
    est, found = cls(Words, random_state=0, tasks=TASKS, epsilon=9.0), []
    for word in (-1.0, 1e20):
        X[bad] = X[away] = word
        found.append(clone(est).fit(X, y, task=task))
    assert_array_equal(found[1].coef_, found[0].coef_)
    if cls is TorchMeanRegRegressor:  # where numbers of rows are not public
        rest = clone(est).fit(X[~away], y[~away], task=task[~away])
        assert_array_equal(found[1].coef_[1:], rest.coef_[1:])
    with pytest.raises(IndexError):  # of its own rows, where they are predicted
        found[1].predict(X[bad], task=task[bad])


def test_weights_of_rows_count():
    X, y, task = long_data()
    est = small(nets.linear, epsilon=None)
    keep = np.arange(len(X)) % 3 > 0
    one = clone(est).fit(X, y, task=task, sample_weight=keep.astype(float))
    other = clone(est).fit(X[keep], y[keep], task=task[keep])
    assert_allclose(one.coef_, other.coef_, rtol=0, atol=1e-12)


def test_history_and_releases_are_of_whole_networks():
    X, y, task = long_data()
    est = small(unseen_task="mean").fit(X, y, task=task)
    board = est.billboard_
    size = board.centres.size
    moves = board.step[0] * np.sum(board.releases, axis=0)
    assert_allclose(board.start[:size] + moves, est.mean_coef_[:size])
    assert len(board.history()) == 2
    shared = est.to_module()
    with torch.no_grad():
        expected = shared(torch.from_numpy(X[:4]).float()).numpy().ravel()
    assert_allclose(est.predict(X[:4], task=[99] * 4), expected, atol=1e-6)


def test_a_fit_says_before_it_asks_that_noise_exceeds_its_way():
    start = nets.mlp(features=3).state_dict()

    def loaded():
        net = nets.mlp(features=3)
        net.load_state_dict(start)
        return net

    def drawn():
        return nets.mlp(features=3)

    for module, m, epsilon, noisy in (
        (drawn, 6, 1.0, True),
        (loaded, 6, 1.0, True),
        (drawn, 20, 2.0, True),
        (loaded, 20, 2.0, False),
        (drawn, 300, 8.0, False),
    ):
        est = TorchMeanRegRegressor(
            module, epsilon=epsilon, tasks=range(m), n_rounds=4, adjacency="zero-out"
        )
        population = Population(np.arange(m), 3, 0, None)
        size = est._network_of(population).n_shared
        planned = est._planned_report(population).public_inputs
        mu = gdp_mu(epsilon, min(1e-5, 1 / m**2))
        way = np.sqrt(size) / (m * mu)
        assert planned["noise of all rounds over the longest path"] == pytest.approx(way, rel=1e-6)
        step = planned["noise of a round over the longest step"]
        assert step == pytest.approx(
            2.0 * way, rel=1e-6
        )  # of four rounds, each with twice the noise
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            est._curator(population, est._source())
        told = [str(one.message) for one in caught if "The noise of all rounds" in str(one.message)]
        assert len(told) == noisy, (module, m, way)
        if noisy:
            assert ("random numbers" in told[0]) == (module is drawn)
