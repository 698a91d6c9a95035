"""FedMTL's default rule and other rules on draws that it was not chosen on.

    python -m benchmarks.fedmtl_default [--quick] [--repeats R] [--output FILE.csv]

The six scenarios of `make_fedmtl_clients`, and twenty others: more and fewer clients, tasks,
domains, classes and rows, noisier labels, domains that agree more or less. 60 clients with some of
8 tasks of 5 classes; a hidden layer of 32, 20 rounds of one epoch with plain SGD, step .5, batches
of 10; accuracy over all labels of 200 further rows per client. Draws are 100, 101 and so on (the
constants of "per-task" were chosen on draw 200 of fourteen of these scenarios). "paper" is the
paper's rule. ``without_nearness`` is "per-task" without the factor that compares heads with the
nearest ones. The last rows are one draw each of scenarios with other training, which played no part
in the choice of the constants: "Adam" is that of the estimator's defaults, "no hidden layer" the
same with heads on the features.
"""

from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from skpmtl.fedmtl import FedMTLClassifier, aggregation, make_fedmtl_clients

from .command import RESULTS, command_line, write_rows

FIELDS = (
    "scenario",
    "local",
    "uniform",
    "paper",
    "without_nearness",
    "per_task",
    "repeats",
)
RULES = {
    "local": "local",
    "uniform": "uniform",
    "paper": "similarity",
    "without_nearness": "per-task",
    "per_task": "per-task",
}
TRAINING = {
    "hidden_layer_sizes": (32,),
    "n_rounds": 20,
    "solver": "sgd",
    "learning_rate": 0.5,
    "momentum": 0.0,
    "alpha": 0.0,
    "batch_size": 10,
}
CORRELATED = {"n_domains": 2, "correlation": 0.8}
SCENARIOS = {
    "two random tasks, one domain": {},
    "two random tasks, two domains": {"n_domains": 2},
    "fixed pairs, two domains": {"tasks_per_client": "pairs", "n_domains": 2},
    "one to eight tasks, one domain": {"tasks_per_client": "any"},
    "two random tasks, correlated domains": CORRELATED,
    "fixed pairs, correlated domains": {"tasks_per_client": "pairs", **CORRELATED},
}
FRESH = {
    "20 domains, of three clients each": {"n_domains": 20},
    "4 domains, correlation .5, 40 clients with 3 tasks": {
        "n_clients": 40,
        "n_domains": 4,
        "correlation": 0.5,
        "tasks_per_client": 3,
    },
    "20 rows, one domain": {"n_samples": 20},
    "20 rows, correlated domains": {"n_samples": 20, **CORRELATED},
    "20 rows, two domains": {"n_samples": 20, "n_domains": 2},
    "400 rows, two domains, 30 clients": {"n_samples": 400, "n_domains": 2, "n_clients": 30},
    "400 rows, correlated domains, 30 clients": {"n_samples": 400, "n_clients": 30, **CORRELATED},
    "one task of four, two domains": {"tasks_per_client": 1, "n_tasks": 4, "n_domains": 2},
    "one task of four, correlated domains": {"tasks_per_client": 1, "n_tasks": 4, **CORRELATED},
    "correlation .95": {"n_domains": 2, "correlation": 0.95},
    "correlation .5": {"n_domains": 2, "correlation": 0.5},
    "10 clients, one to eight tasks": {"n_clients": 10, "tasks_per_client": "any"},
    "10 clients, one to eight tasks, two domains": {
        "n_clients": 10,
        "tasks_per_client": "any",
        "n_domains": 2,
    },
    "two classes, one domain": {"n_classes": 2},
    "two classes, two domains": {"n_classes": 2, "n_domains": 2},
    "two classes, correlated domains": {"n_classes": 2, **CORRELATED},
    "120 clients of 60 rows, 5 tasks of 20": {
        "n_clients": 120,
        "n_tasks": 20,
        "tasks_per_client": 5,
        "n_samples": 60,
    },
    "24 hidden features, correlation .6": {"n_hidden": 24, "n_domains": 2, "correlation": 0.6},
    "noisy labels, one domain": {"noise": 0.5},
    "noisy labels, correlated domains": {"noise": 0.5, **CORRELATED},
}

OTHERS = {
    "one domain": {},
    "two domains": {"n_domains": 2},
    "correlated domains": CORRELATED,
    "fixed pairs, correlated domains": {"tasks_per_client": "pairs", **CORRELATED},
    "20 rows, one domain": {"n_samples": 20},
    "3 domains, correlation .7, 45 clients": {
        "n_clients": 45,
        "n_domains": 3,
        "correlation": 0.7,
    },
    "one to eight tasks, two domains": {"n_domains": 2, "tasks_per_client": "any"},
}
ADAM = {
    name: FedMTLClassifier().get_params()[name]
    for name in ("solver", "learning_rate", "alpha", "batch_size")
}
TRAININGS = {"Adam": ADAM, "no hidden layer": {**ADAM, "hidden_layer_sizes": ()}}


def row_of(scenario, scores):
    """-> dict; `scores` {column: one accuracy for each draw}"""
    means = {name: round(float(np.mean(found)), 4) for name, found in scores.items()}
    return {"scenario": scenario, **means, "repeats": len(scores["per_task"])}


SHAPE = {"n_clients": 12, "n_samples": 30, "n_test": 20}  # of the quick mode


def measured(scenario, quick=False, repeats=None):
    """The row of a scenario."""
    settings = {**SCENARIOS, **FRESH}[scenario]
    given = {"n_test": 200, **settings, **(SHAPE if quick else {})}
    seeds = range(100, 100 + (repeats or (1 if quick else 3)))
    draws = {seed: make_fedmtl_clients(**given, random_state=seed) for seed in seeds}
    rounds = {"n_rounds": 2} if quick else {}
    return row_of(
        scenario,
        {
            name: [_accuracy(name, found, seed, rounds) for seed, found in draws.items()]
            for name in RULES
        },
    )


def measure(quick=False, repeats=None):
    """Rows of the table, as they are finished."""
    for scenario in (*SCENARIOS, *FRESH):
        yield measured(scenario, quick, repeats)
    shape, rounds = (SHAPE, {"n_rounds": 2}) if quick else ({}, {})
    for scenario, settings in OTHERS.items():
        data = make_fedmtl_clients(**{"n_test": 200, **settings, **shape}, random_state=300)
        for training, given in TRAININGS.items():
            scores = {name: [_accuracy(name, data, 0, {**given, **rounds})] for name in RULES}
            yield row_of(f"{training}: {scenario}", scores)


def _accuracy(name, data, seed, settings):
    """Accuracy of a rule on the test rows."""
    X, y, client, X_test, y_test, client_test = data
    known = ~np.isnan(y).all(axis=0)  # few clients may lack a task
    y, y_test = y[:, known], y_test[:, known]
    fall = 0 if name == "without_nearness" else aggregation._FALL
    est = FedMTLClassifier(**{**TRAINING, **settings}, aggregation=RULES[name], random_state=seed)
    with patch.object(aggregation, "_FALL", fall):
        return est.fit(X, y, client=client).score(X_test, y_test, client=client_test)


def main(arguments=None):
    quick = "few clients, two rounds, one draw"
    output = RESULTS / "fedmtl_default.csv"
    parser = command_line("fedmtl_default", __doc__, output, quick, "3 draws")
    options = parser.parse_args(arguments)
    with threadpool_limits(1):
        return write_rows(measure(options.quick, options.repeats), FIELDS, options.output)


if __name__ == "__main__":
    main()
