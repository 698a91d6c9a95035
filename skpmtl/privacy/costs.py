"""Privacy costs of recorded releases, from their sensitivities and noise alone.

Nothing that a mechanism or a report says of its own budget is used: an audit compares the two.
"""

import math

import numpy as np

from .accounting import compose_gdp, gdp_epsilon, pure_epsilon
from .mechanisms import mean_sensitivity
from .sampling import poisson_epsilon
from .selection import selection_epsilon

_SCALES = {
    "L2-gamma": lambda d: math.sqrt(d + 1.0),
    "symmetrised Wishart": lambda d: 2.0 * math.sqrt(d + 1.0),
}


def is_gaussian(entry):
    """Whether a release has Gaussian noise, by its description."""
    return "epsilon" not in entry


def noise_scale(entry, shape):
    """Scale parameter of the stated noise: its std, or what the law of a pure mechanism has.

    None for a law that is not known here.
    """
    if is_gaussian(entry):
        return entry["noise_std"]
    factor = _SCALES.get(entry["mechanism"])
    if factor is None:
        return None
    return entry["noise_std"] / factor(shape[-1] // entry.get("n_vectors", 1))


def pure_cost(entry, shape):
    """epsilon of one pure release; None for Gaussian noise, or a law that is not known here."""
    scale = None if is_gaussian(entry) else noise_scale(entry, shape)
    if scale is None:
        return None
    wishart = "Wishart" in entry["mechanism"]
    return (0.5 if wishart else 1.0) * entry["sensitivity"] / scale


def gaussian_cost(entries):
    """mu of Gaussian releases together."""
    return compose_gdp([entry["sensitivity"] / entry["noise_std"] for entry in entries])


def n_servers(report):
    """Servers that added the noise of a fit; 1 for a trusted curator."""
    return next((entry["servers"] for entry in report.releases if "servers" in entry), 1)


def epsilon_of_pure(report, epsilons):
    """epsilon of pure releases at the delta of a report, by groups of records where it says so."""
    spent = pure_epsilon(epsilons, report.delta)
    size = report.public_inputs.get("max_task_rows") if "group" in report.notes else None
    if size:
        # The releases of one record, and the group lemma with the delta that belongs to it.
        x = report.epsilon
        # Of expm1(x / size) / expm1(x), which overflows before its logarithm does.
        log = x / size - x + math.log(-math.expm1(-x / size)) - math.log(-math.expm1(-x))
        delta = report.delta * math.exp(log)
        spent = min(spent, size * pure_epsilon(np.array(epsilons) / size, delta))
    return spent


def epsilon_of_tape(report, tape, fitted):
    """epsilon of all releases on a tape, at the delta of the report of its fit.

    None where no rule here adds them up: Poisson batches of groups of records or of persons, rounds
    of a part of the tasks, and noise of unknown laws.
    """
    made = [release for release in tape.releases if len(release.values)]
    if not made:
        return 0.0
    if any("tasks" in release.entry for release in made):
        return _of_tasks(report, made, fitted)
    entries = [release.entry for release in made]
    if not all(map(is_gaussian, entries)):
        shapes = [release.values.shape[1:] for release in made]
        found = [pure_cost(*pair) for pair in zip(entries, shapes, strict=True)]
        return None if None in found else epsilon_of_pure(report, found)
    if report.mu is not None:
        mu = math.sqrt(n_servers(report)) * gaussian_cost(entries)
        return float(gdp_epsilon(mu, report.delta))
    if "mu_trial" in report.notes:
        return _of_search(report, entries)
    return None


def _of_search(report, entries):
    """Of the best of a random number of trials: the dearest trial counts."""
    score = report.releases[-1]
    key = score["sensitivity"], score["noise_std"]
    trials, trial = [], []
    for entry in entries:
        trial.append(entry)
        if (entry["sensitivity"], entry["noise_std"]) == key:
            trials.append(gaussian_cost(trial))
            trial = []
    mu = max([*trials, gaussian_cost(trial)])
    public = report.public_inputs
    return selection_epsilon(mu, public["n_trials"], public["selection"], report.delta)


def _of_tasks(report, made, fitted):
    """Largest cost of releases that each task makes alone: tasks compose in parallel."""
    steps, noise = {}, {}
    for release in made:
        tasks = release.entry["tasks"].tolist()
        multipliers = release.entry["noise_std"] / release.entry["sensitivity"]
        for k, multiplier in zip(tasks, multipliers.tolist(), strict=True):
            steps.setdefault(k, []).append(len(release.values) // len(tasks))
            noise.setdefault(k, []).append(multiplier)
    local = report.guarantee.startswith("local")
    sampling = "full" if local else fitted.batches
    if sampling == "poisson":
        return _of_poisson_batches(report, steps, noise, fitted)
    found = []
    for k in steps:
        n_batches = 1
        if sampling == "disjoint":
            n_batches = -(-_rows(fitted, k) // int(fitted.batch_size))
        uses = [-(-count // n_batches) for count in steps[k]]
        found.append(compose_gdp(1.0 / np.repeat(noise[k], uses)))
    mu = max(found)
    if report.unit == "person":
        # The worst case: groups of rows, each in one task, and the rest in another.
        most, group = report.public_inputs["max_rows_per_unit"], report.public_inputs["group_size"]
        whole, rest = divmod(most, group)
        mu *= math.hypot(math.sqrt(whole), rest / group)
    return float(gdp_epsilon(mu, report.delta))


def _rows(fitted, k):
    return fitted.task_privacy(fitted.tasks_[k])["n_rows"]


def _of_poisson_batches(report, steps, noise, fitted):
    if report.unit != "record":
        return None
    known = {
        (1.0 / min(noise[k]), sum(steps[k]), min(1.0, fitted.batch_size / _rows(fitted, k)))
        for k in steps
    }
    factor = mean_sensitivity(1.0, 1.0, report.adjacency)
    return max(
        poisson_epsilon(factor / mu, count, rate, report.delta, report.adjacency)
        for mu, count, rate in known
    )
