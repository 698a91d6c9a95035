"""Worked examples of others, with what they print: a formula of theirs is ours."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import skpmtl

# Pinheiro and Bates, "Mixed-effects models in S and S-PLUS" (2000), appendix A.
RAIL = """
    55 53 54 26 37 32 78 91 85 92 100 96 49 51 50 80 85 83
"""
STOOLS = """
    12 15 12 10 10 14 13 12 7 14 13 9 7 11 10 9 8 11 8 7 9 11 11 10 8 12 12 11 7 11 8 7 9 13
    10 8
"""
MACHINES = """
    52 52.8 53.1 51.8 52.8 53.1 60 60.2 58.4 51.1 52.3 50.3 50.9 51.8 51.4 46.4 44.8 49.2
    62.1 62.6 64 59.7 60 59 68.6 65.8 69.7 63.2 62.8 62.2 64.8 65 65.4 43.7 44.2 43 67.5
    67.2 66.9 61.5 61.7 62.3 70.8 70.6 71 64.1 66.2 64 72.1 72 71.1 62 61.4 60.5
"""
TEETH = """
    21 20 21.5 23 21 21.5 24 25.5 20.5 24 24.5 26 23.5 24.5 25 26.5 21.5 23 22.5 23.5 20 21
    21 22.5 21.5 22.5 23 25 23 23 23.5 24 20 21 22 21.5 16.5 19 19 19.5 24.5 25 28 28 26 25
    29 31 21.5 22.5 23 26.5 23 22.5 24 27.5 25.5 27.5 26.5 27 20 23.5 22.5 26 24.5 25.5 27
    28.5 22 22 24.5 26.5 24 21.5 24.5 25.5 23 20.5 31 26 27.5 28 31 31.5 23 23 23.5 25 21.5
    23.5 24 28 17 24.5 26 29.5 22.5 25.5 25.5 26 23 24.5 26 30 22 21.5 23.5 25
"""


def read(name):
    """A table of lme4, or of nlme: Pixel."""
    return pd.read_csv(Path(__file__).with_name(f"{name}.csv"))


def numbers(text):
    return np.array(text.split(), dtype=float)


def rail():
    return pd.DataFrame({"Rail": np.repeat(range(6), 3), "travel": numbers(RAIL)})


def stools():
    kind = np.tile(["T1", "T2", "T3", "T4"], 9)
    return pd.DataFrame(
        {"Subject": np.repeat(range(9), 4), "Type": kind, "effort": numbers(STOOLS)}
    )


def machines():
    machine = np.repeat(["A", "B", "C"], 18)
    worker = np.tile(np.repeat(range(6), 3), 3)
    return pd.DataFrame({"Worker": worker, "Machine": machine, "score": numbers(MACHINES)})


def teeth():
    age = np.tile([8, 10, 12, 14], 27)
    return pd.DataFrame(
        {"Subject": np.repeat(range(27), 4), "age": age, "distance": numbers(TEETH)}
    )


@pytest.mark.parametrize(
    ("data", "formula", "deviance", "effects", "errors", "stds"),
    [  # -2 logLik, fixed effects with standard errors, and standard deviations
        (rail, "travel ~ 1 + (1 | Rail)", 122.177, [66.5], [10.17104], [24.80547, 4.020779]),
        (
            stools,
            "effort ~ Type + (1 | Subject)",
            121.1308,
            [8.555556, 3.888889, 2.222222, 0.666667],
            [0.5760123, 0.5186838, 0.5186838, 0.5186838],
            [1.332465, 1.100295],
        ),
        (
            machines,
            "score ~ Machine + (1 | Worker)",
            286.8782,
            [52.35556, 7.96667, 13.91667],
            [2.229312, 1.053883, 1.053883],
            [5.146552, 3.161647],
        ),
        (
            machines,
            "score ~ Machine + (1 | Worker / Machine)",
            215.6876,
            [52.35556, 7.96667, 13.91667],
            [2.485829, 2.176974, 2.176974],
            [4.781049, 3.729536, 0.9615768],
        ),
        (
            teeth,
            "distance ~ age + (age | Subject)",
            442.6367,
            [16.761111, 0.660185],
            [0.7752462, 0.0712533],
            [2.3270341, 0.2264276, 1.3100398],
        ),
        (
            "penicillin",
            "diameter ~ 1 + (1 | plate) + (1 | sample)",
            330.860589,
            [22.9722222],
            [0.808573512],
            [0.846704400, 1.93155870, 0.549923126],
        ),
        (
            "pastes",
            "strength ~ 1 + (1 | batch / cask)",
            246.9907459,
            [60.0533333],
            [0.676870097],
            [1.28736517, 2.90407758, 0.823407545],
        ),
        (  # a line search that ends at rounding
            "pixel",
            "pixel ~ day + I(day^2) + (day | Dog) + (1 | Dog:Side)",
            825.2101935,
            [1073.33913727, 6.12959707, -0.367350275],
            [10.1716879, 0.879321004, 0.0339454363],
            [28.3699294, 1.84374953, 16.8242438, 8.98960947],
        ),
        (
            "sleepstudy",
            "Reaction ~ Days + (1 + Days | Subject)",
            1743.628272,
            [251.405104848, 10.4672859596],
            [6.82455578, 1.54578893],
            [24.7404476, 5.92213326, 25.5918159],
        ),
        (
            "sleepstudy",
            "Reaction ~ Days + (1 + Days || Subject)",
            1743.669294,
            [251.405104848, 10.4672859596],
            [6.88538151, 1.55956600],
            [25.0513296, 5.98817182, 25.5652852],
        ),
    ],
)
def test_examples_are_as_nlme_and_lme4_print_them(data, formula, deviance, effects, errors, stds):
    """R 4.2.2, nlme 3.1-162: f <- lme(travel ~ 1, Rail, ~1 | Rail), (effort ~ Type, ergoStool,
    ~1 | Subject), (score ~ Machine, Machines, ~1 | Worker) and ~1 | Worker / Machine, with
    contr.treatment, and (distance ~ age, Orthodont, ~age | Subject); -2 * logLik(f),
    summary(f)$tTable, VarCorr(f). Rows are those of nlme.

    lme4 1.1-31, the others: lmer(formula, data, control = lmerControl(optimizer = "bobyqa",
    optCtrl = list(rhoend = 1e-10))); REMLcrit, fixef, vcov, VarCorr"""
    fit = skpmtl.mixed(formula, read(data) if isinstance(data, str) else data(), epsilon=None)
    summary = fit.summary("model")
    assert fit.deviance == pytest.approx(deviance, rel=2e-6)
    assert_allclose(fit.params, effects, rtol=2e-6)
    assert_allclose(summary.effects["std_error"], errors, rtol=5e-5)
    assert_allclose(summary.variance_frame()["std"], stds, rtol=1e-4)


@pytest.mark.parametrize("target", ["log(travel)", "np.log(travel)"])
def test_a_target_may_be_a_term(target):
    data = rail()
    found = skpmtl.mixed(f"{target} ~ 1 + (1 | Rail)", data, epsilon=None)
    expected = skpmtl.mixed(
        "y ~ 1 + (1 | Rail)", data.assign(y=np.log(data["travel"])), epsilon=None
    )
    assert_allclose(found.params, expected.params)
    assert_allclose(found.deviance, expected.deviance)


def test_a_target_of_other_rows_is_refused_under_a_budget():
    known = {"public": {"Rail": range(6)}}
    with pytest.raises(ValueError, match="depend on other rows"):
        skpmtl.mixed("scale(travel) ~ 1 + (1 | Rail)", rail(), epsilon=1.0, **known)


@pytest.mark.parametrize("target", ["cbind(won, lost)", "won / n"])
def test_trials_as_r_has_them_say_what_to_write(target):
    data = pd.DataFrame({"won": [1, 2], "lost": [1, 1], "n": [2, 3], "g": [0, 1]})
    with pytest.raises(ValueError, match="prop"):
        skpmtl.mixed(f"{target} ~ 1 + (1 | g)", data, family="binomial", epsilon=None)
