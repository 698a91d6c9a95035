"""Plans hold in fits on tables drawn elsewhere; what they state of noise follows from theory."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import skpmtl
from skpmtl import PrivateMeanRegMTL, PrivateMTL, PrivateMTLClassifier
from skpmtl.__main__ import main
from skpmtl.datasets import make_low_rank_tasks

pytestmark = pytest.mark.filterwarnings("ignore::skpmtl.PrivacyLeakWarning")


def around_a_mean(seed, m, n, d, rng):
    """Rows of tasks around a mean, and models, by other means than the plan's."""
    centre = rng.standard_normal(d)
    W = math.sqrt(0.9) * centre + math.sqrt(0.1) * rng.standard_normal((m, d))
    level = 0.5 * rng.standard_normal(m)

    def rows(n):
        task = np.repeat(np.arange(m), n)
        X = rng.standard_normal((m * n, d))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        noise = rng.standard_normal(m * n)
        return X, np.sum(X * W[task], axis=1) + level[task] + noise, task

    return rows(n), rows(20)


def test_a_plan_holds_in_fits_at_other_seeds():
    m, n, d, epsilons = 120, 14, 7, [1.0, 10.0]
    found = skpmtl.plan(m, n, d, epsilons=epsilons, n_repeats=3)
    ratios = np.empty((3, 2))
    for seed in range(3):
        train, test = around_a_mean(seed, m, n, d, np.random.default_rng(100 + seed))

        errors = []
        for epsilon in (1e-6, *epsilons):
            est = PrivateMTL(epsilon=epsilon, tasks=range(m), random_state=seed)
            est.fit(train[0], train[1], task=train[2])
            errors.append(np.mean((est.predict(test[0], task=test[2]) - test[1]) ** 2))
        ratios[seed] = np.divide(errors[1:], errors[0])
    mean, spread = ratios.mean(axis=0), ratios.std(axis=0, ddof=1)
    row = found.shared.index("a mean")
    # Means of 3 draws each; four standard errors of their difference, with room for nothing.
    room = 4.0 * np.maximum(spread, found.deviations[row]) * math.sqrt(2 / 3)
    assert (np.abs(mean - found.errors[row]) < np.maximum(room, 0.02)).all()
    assert mean[1] < 0.9  # there is something to hold


@pytest.mark.parametrize("m, d", [(40, 3), (139, 28)])
def test_the_smallest_epsilon_is_where_a_fit_begins_to_release(m, d):
    found = skpmtl.plan(m, 10, d, epsilons=[1], n_repeats=1)
    X, y, task = make_low_rank_tasks(m, 4, d, random_state=0)
    for factor, released in ((0.99, False), (1.01, True)):
        est = PrivateMTL(
            epsilon=factor * found.smallest_epsilon, tasks=range(m), random_state=0
        ).fit(X, y, task=task)
        assert bool(est.privacy_.releases) == released


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_the_noise_of_a_mean_gives_the_budget_that_is_stated(adjacency):
    m, epsilon, delta = 80, 2.0, 1e-6
    found = skpmtl.plan(
        m,
        5,
        2,
        epsilons=[epsilon, None],
        n_repeats=1,
        estimator=PrivateMTL(adjacency=adjacency, delta=delta),
    )
    # A mean of numbers in [0, 1], or of [-1/2, 1/2] with one taken out, moves by 1 / m or half.
    sensitivity = (1.0 if adjacency == "replace-one" else 0.5) / m

    def excess(sd):  # Balle and Wang (2018), Theorem 8
        r = sensitivity / sd
        return (
            norm.cdf(r / 2 - epsilon / r) - math.exp(epsilon) * norm.cdf(-r / 2 - epsilon / r)
        ) - delta

    assert found.mean_noise[0] == pytest.approx(brentq(excess, 1e-4, 10.0), rel=1e-6)
    assert found.mean_noise[1] == 0.0 and found.delta == delta


@pytest.mark.parametrize(
    "given, said",
    [
        ({"n_tasks": 1}, "n_tasks=1 must be at least 2. One task has nobody"),
        ({"n_tasks": 10.5}, "n_tasks=10.5 must be an integer"),
        ({"n_rows": 0}, "n_rows=0 must be at least 1"),
        ({"n_features": True}, "n_features=True must be an integer"),
        ({"n_features": -3}, "n_features=-3"),
        ({"epsilons": []}, "epsilons is empty"),
        ({"epsilons": 1.0}, "must be a list of budgets"),
        ({"epsilons": [0.0]}, "epsilon=0.0 is not a privacy budget"),
        ({"epsilons": [math.nan]}, "epsilon=nan is not a privacy budget"),
        ({"explained": 1.0}, "explained=1.0 must be a number between 0 and 1"),
        ({"n_rows": 10**9}, "too many to simulate"),
        ({"n_repeats": 0}, "n_repeats=0 must be at least 1"),
        ({"estimator": PrivateMTL(delta=2.0)}, "delta=2.0"),
    ],
)
def test_nonsense_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        skpmtl.plan(**{"n_tasks": 20, "n_rows": 5, "n_features": 2, **given})


def test_command_and_picture(tmp_path, capsys):
    picture = tmp_path / "plan.png"
    sizes = ["plan", "--tasks", "40", "--rows", "6", "--features", "3", "--epsilon", "2", "none"]
    main([*sizes, "--repeats", "1", "--picture", str(picture)])
    printed = capsys.readouterr().out
    assert "40 tasks of 6 rows with 3 features" in printed and "eps none" in printed
    assert picture.read_bytes()[1:4] == b"PNG"
    with pytest.raises(SystemExit):
        main(["plan", "--tasks", "1", "--rows", "6", "--features", "3"])
    assert "One task has nobody to learn from" in capsys.readouterr().err


def test_classes_and_other_estimators():
    found = skpmtl.plan(100, 20, 5, epsilons=[5], estimator=PrivateMTLClassifier(), n_repeats=1)
    assert found.estimator == "PrivateMTLClassifier"
    assert found.floors[1] < found.errors[1, 0] < 1.02
    found = skpmtl.plan(100, 20, 5, epsilons=[5], estimator=PrivateMeanRegMTL(), n_repeats=1)
    assert found.floors[1] < found.errors[1, 0] < 1.0


def test_an_estimator_without_a_budget_is_refused():
    with pytest.raises(
        TypeError, match="MPMTLLowRankCV has no delta and no epsilon: pass a private"
    ):
        skpmtl.plan(20, 5, 2, estimator=skpmtl.MPMTLLowRankCV())
