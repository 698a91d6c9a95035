"""The statement: exact round trips, what the paragraph says, sound totals."""

import json
import math
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.stats import norm

from skpmtl.privacy import (
    PrivacyReport,
    SymmetricGaussian,
    VectorGamma,
    compose,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    optimal_pure_epsilon,
)
from skpmtl.privacy.rng import SYSTEM_ARITHMETIC


def gaussian(epsilon=1.0, delta=1e-5, **changes):
    mu = gdp_mu(epsilon, delta or 1e-5)
    mechanism = SymmetricGaussian(3, math.sqrt(2), mu)
    values = dict(
        guarantee="joint DP per task",
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism.name,
        sensitivity=mechanism.sensitivity,
        noise_std=[mechanism.noise_std],
        shift=[5.5],
        mu=mu,
        releases=[mechanism.describe("second moment of the unit-length models")],
        accountant="skpmtl 0.1.0, exact Gaussian DP",
        rng="operating system",
        arithmetic=SYSTEM_ARITHMETIC,
        public_inputs={"clip_norm": np.float64(1.0), "n_tasks": np.int64(139), "on": np.True_},
        assumptions=["the task list is public"],
    )
    return PrivacyReport(**{**values, **changes})


def pure(epsilons, delta=0.0, **changes):
    entries = [VectorGamma(3, 1.0, e).describe("vector") for e in epsilons]
    values = dict(epsilon=sum(epsilons), delta=delta, mu=None, releases=entries)
    return gaussian(**{**values, "mechanism": "L2-gamma", **changes})


def pair(epsilon, delta):
    return gaussian(epsilon=epsilon, delta=delta, mu=None, releases=(), mechanism="Poisson")


NONE = PrivacyReport("none", notes={"reason": "epsilon=None", "bound": [1.0, math.inf]})


@pytest.mark.parametrize("report", [gaussian(), pure([0.1, 0.7]), NONE])
def test_round_trips(report):
    assert PrivacyReport.from_json(report.to_json()) == report
    assert PrivacyReport.from_json(report.to_json(indent=2)) == report
    assert PrivacyReport.from_dict(report.to_dict()) == report
    json.loads(report.to_json(), parse_constant=pytest.fail)  # strict JSON: no NaN, Infinity
    assert compose([report]) is report


@pytest.mark.parametrize("adjacency", ["replace-one", "zero-out"])
def test_paragraph_states_everything(adjacency):
    text = gaussian(adjacency=adjacency).text(None)
    for words in [
        "epsilon = 1",
        "delta = 1e-05",
        "unit: task",
        f"adjacency: {adjacency}",
        "symmetric Gaussian",
        "sensitivity 1.41421",
        "noise std 5.27",
        "Public shift",
        "mu = 0.26805",
        "operating system",
        "clip_norm = 1",
        "n_tasks = 139",
        "the task list is public",
        "all tasks in every release",
        "2^-24",
        "joint",
        "Releases: 1 with symmetric Gaussian noise, sensitivity 1.41421, noise std 5.27",
    ]:
        assert words in text, words
    alone = pair(1.0, 1e-5).text(None)  # its releases are not listed one by one
    assert "Mechanism: Poisson, sensitivity 1.41421, noise std 5.27" in alone
    assert "\n" not in text
    assert "NO differential privacy" not in text


def test_printed_lines_are_short_and_lose_nothing():
    report = gaussian(mechanism="a-name-with-many-hyphens " * 9)
    lines = str(report).splitlines()
    assert len(lines) > 5 and max(map(len, lines)) <= 88
    assert str(report) == report.text() == report.text(88)
    for width in (12, 88):  # neither long words nor those with hyphens are broken
        assert report.text(width).split() == report.text(None).split()


def test_equal_numbers_are_printed_once():
    numbers = {"a": 1 / 3, "b": (2.5,), "c": (2.5, 2.5), "d": (2.5, 1e-7), "e": tuple(range(11))}
    text = gaussian(public_inputs=numbers).text(None)
    assert "a = 0.333333, b = 2.5, c = 2.5 (each of 2), d = 2.5, 1e-07, e = 0 to 10 (11 in" in text


def test_a_guess_is_as_good_as_the_accuracy_of_the_best_test():
    for mu in (0.01, 0.268, 1.0, 4.0):  # the error of the likelihood ratio of N(0, 1), N(mu, 1)
        best = norm.cdf(mu / 2.0)
        assert gaussian(mu=mu, epsilon=50.0).guess == pytest.approx(best, rel=1e-12)
        # Any point of its privacy profile bounds it from above, the one at epsilon 0 exactly.
        profile = [(e, gdp_delta(mu, e)) for e in (0.0, 0.1, 1.0, 3.0)]
        bounds = [gaussian(epsilon=e, delta=d, mu=None).guess for e, d in profile]
        assert min(bounds) == pytest.approx(best, rel=1e-9) and bounds[0] == min(bounds)
    assert pair(math.log(3.0), 0.0).guess == pytest.approx(0.75)  # randomised response
    assert pair(1e4, 0.0).guess == NONE.guess == 1.0 and pair(0.0, 0.0).guess == 0.5


def test_what_a_guarantee_means_is_said_for_its_unit():
    assert "right with probability at most 75.1 %" in pair(math.log(3.0), 1e-5).text(None)
    text = gaussian(unit="3 records", adjacency="zero-out").meaning()
    assert "whether 3 records of one task were used," in text
    assert "whether one person" not in text and "took part" not in text
    assert "whether one task took part" in gaussian(adjacency="zero-out").meaning()
    nothing = PrivacyReport("joint DP per task", epsilon=0.0, notes={"reason": "one task"})
    assert NONE.meaning() == nothing.meaning() == ""


class Elements(HTMLParser):
    """Open elements, and all that were seen."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)


@pytest.mark.parametrize(
    ("report", "badge"),
    [
        (gaussian(), "\u03b5 = 1, \u03b4 = 1e-05"),
        (NONE, "no privacy guarantee"),
        (pure([0.1] * 30), "\u03b5 = 3, \u03b4 = 0"),
    ],
)
def test_html_says_what_the_text_says(report, badge):
    page = Elements(report._repr_html_())
    assert page.open == [] and page.words[0] == badge
    text = " ".join(" ".join(page.words).split())
    for paragraph in report.paragraphs():
        assert paragraph in text
    assert ("badge none" in str(page.seen)) == (report is NONE)


def test_html_shows_text_of_others_as_text():
    evil = "<script>alert(1)</script>"
    release = {"name": evil, "statistic": f'"{evil}', "noise_std": 1.0}
    report = gaussian(
        guarantee=evil,
        mechanism=evil,
        accountant=evil,
        rng=evil,
        releases=[release],
        notes={evil: evil},
        assumptions=[evil],
        public_inputs={evil: evil},
    )
    page = Elements(report._repr_html_())
    assert {tag for tag, _ in page.seen} & {"script", "img", "iframe", "a", "link"} == set()
    assert " ".join(page.words).count(evil) >= 8


# ---------------------------------------------------------------- composition
def test_gaussian_fits_compose_exactly():
    reports = [gaussian(1.0), gaussian(0.3), gaussian(2.0)]
    total = compose(reports)
    mu = math.sqrt(sum(gdp_mu(e, 1e-5) ** 2 for e in (1.0, 0.3, 2.0)))
    assert total.mu == pytest.approx(mu, rel=1e-14)
    assert total.epsilon == pytest.approx(gdp_epsilon(mu, 1e-5), rel=1e-12)
    assert total.delta == 1e-5 and total.epsilon < 3.3
    assert len(total.releases) == 3 and [e["fit"] for e in total.releases] == [1, 2, 3]
    assert len(total.noise_std) == len(total.shift) == len(total.sensitivity) == 3
    assert compose(reports, delta=1e-8).epsilon == pytest.approx(gdp_epsilon(mu, 1e-8))
    assert "fixed without looking" in total.text(None)
    assert PrivacyReport.from_json(total.to_json()) == total
    public = [{"n_tasks": 5, "alpha": alpha} for alpha in (1.0, 2.0, 1.0)]
    shared = compose([gaussian(public_inputs=inputs) for inputs in public]).public_inputs
    assert shared == {"n_tasks": 5, "alpha": (1.0, 2.0, 1.0)}
    nested = compose([compose(reports[:2]), reports[2]])
    assert nested.epsilon == pytest.approx(total.epsilon, rel=1e-12)


def test_pure_fits_compose_by_the_optimal_rule():
    reports = [pure([0.1] * 10), pure([0.1] * 20)]
    assert compose(reports).epsilon == pytest.approx(3.0)
    total = compose(reports, delta=1e-6)
    assert total.epsilon == pytest.approx(optimal_pure_epsilon([0.1] * 30, 1e-6))
    assert total.epsilon < 3.0 and total.mu is None


def test_mixed_fits_compose_jointly():
    total = compose([gaussian(1.0), pure([0.5])])
    mu, p = gdp_mu(1.0, 1e-5), 1 / (1 + math.exp(-0.5))
    e = total.epsilon
    spent = p * gdp_delta(mu, e - 0.5) + (1 - p) * gdp_delta(mu, e + 0.5)
    assert spent == pytest.approx(1e-5, rel=1e-6)
    assert 1.0 < e < 1.5


def test_pairs_compose_with_their_deltas():
    total = compose([pair(0.4, 1e-6), pair(0.4, 1e-6)])
    assert total.delta == pytest.approx(2e-6, rel=1e-5)
    assert total.epsilon == pytest.approx(0.8)
    many = compose([pair(0.1, 1e-9)] * 100, delta=1e-5)
    inner = 1 - (1 - 1e-5) / (1 - 1e-9) ** 100
    assert many.epsilon == pytest.approx(optimal_pure_epsilon([0.1] * 100, inner), rel=1e-9)
    mixed = compose([gaussian(1.0, 1e-5), pair(0.4, 1e-6)])
    mu, p, e = gdp_mu(1.0, 1e-5), 1 / (1 + math.exp(-0.4)), mixed.epsilon
    assert 1 - mixed.delta == pytest.approx((1 - 1e-5) * (1 - 1e-6), rel=1e-15)
    spent = p * gdp_delta(mu, e - 0.4) + (1 - p) * gdp_delta(mu, e + 0.4)
    assert spent == pytest.approx(1e-5, rel=1e-6)
    again = compose([gaussian(1.0, 1e-5), pair(0.4, 1e-6)], delta=mixed.delta)
    assert again.epsilon == pytest.approx(e, rel=1e-6) and again.delta == mixed.delta
    with pytest.raises(ValueError, match="pass at least that"):
        compose([pair(0.1, 1e-6)] * 3, delta=1e-6)
    with pytest.raises(ValueError, match="leaves nothing"):
        compose([gaussian(), pair(0.1, 1e-6)], delta=1e-6 * (1 - 1e-13))


def test_no_guarantee_poisons():
    total = compose([gaussian(), NONE, gaussian()])
    assert (total.guarantee, total.epsilon, total.delta) == ("none", math.inf, 0.0)
    assert "fits 2 of 3" in total.text(None)


def test_different_statements_do_not_add_up():
    with pytest.raises(ValueError, match="adjacency.*Refit with one adjacency"):
        compose([gaussian(), gaussian(adjacency="zero-out")])
    with pytest.raises(ValueError, match="record DP"):
        compose([gaussian(), gaussian(guarantee="record DP", unit="record")])
    with pytest.raises(ValueError, match="at least one"):
        compose([])


def test_fits_that_release_nothing_cost_nothing():
    nothing = PrivacyReport("joint DP per task", epsilon=0.0)
    for count in (2, 3):
        total = compose([nothing] * count)
        assert (total.epsilon, total.delta, total.mu) == (0.0, 0.0, None)
    assert compose([nothing] * 2, delta=1e-6).epsilon == 0.0
    few = pair(0.4, 1e-6)
    for others in ([gaussian()], [pure([0.5])], [few], [gaussian(), few]):
        alone, total = compose([*others]), compose([nothing, *others, nothing])
        assert total.epsilon == pytest.approx(alone.epsilon, rel=1e-12)
        assert (total.delta, total.mu) == (pytest.approx(alone.delta, rel=1e-9), alone.mu)
    assert compose([pair(0.0, 1e-6), pair(0.0, 1e-6)]).delta == pytest.approx(2e-6, rel=1e-5)


@pytest.mark.parametrize("delta", [math.nan, -0.1, 1.0, math.inf])
def test_delta_of_a_total_is_a_probability(delta):
    with pytest.raises(ValueError, match="delta="):
        compose([gaussian(), gaussian()], delta=delta)


@pytest.mark.parametrize("guarantee", ["record-level DP (task-global)", "local DP per task"])
def test_records_and_groups_of_them_are_named(guarantee):
    for unit, whom in (("record", "record"), ("3 records", "group of 3 records of one task")):
        text = gaussian(guarantee=guarantee, unit=unit).text(None)
        assert f"private in every {whom} ({guarantee})" in text
