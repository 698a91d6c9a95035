"""Networks in private meta-learning on text of speakers: the next character, by an LSTM.

    python -m benchmarks.reproduce.networks_text [--quick] [--repeats R] [--output FILE.csv]
                                                 [--jobs J] [--plays PATH | --leaf FOLDER] [--tune]

The study of text in Li, Khodak, Caldas and Talwalkar (ICLR 2020). Data, in this order: ``--leaf``
is a folder of LEAF's Shakespeare, ``--plays`` the zip or folder that
`skpmtl.datasets.load_shakespeare` reads, otherwise that is fetched (``--quick``: plays of the same
form are generated).

A row is 10 characters, its target the next one, of LEAF's alphabet of 80. Speakers with 100 rows
or more take part. A fifth of them, the same in all draws, are to tune on; of the others 75 % by the
seed are learned from, with at most 60 rows spread over their text, and 25 % are the test. Those to
tune on and of the test adapt with at most 60 rows of the first 70 % of their text, and are scored
on at most 60 of the rest, less 10 characters between, so that no row of the test has a character
of training. The score is the accuracy over all these rows.

Methods, each from the same draws of the network (17 thousand numbers):

- "no initialisation": speakers of the test take the steps of refinement from the random network;
- "not private", "task-global" and "local": `TorchMetaInitClassifier`, every speaker visited once,
  adjacency "zero-out", delta 1e-4 for a record ("task-global") and for a speaker ("local");
- "most frequent": the character that is most frequent in a speaker's rows of training.

Their constants (``TUNED``) are those that are best for the speakers to tune on, in one further
draw, at epsilon 9 for all budgets; ``--tune`` writes that table,
``results/networks_text_tuning.csv``, and the others read it.
"""

import csv
import itertools
import tempfile
import warnings
import xml.etree.ElementTree as ET
from functools import cache, partial
from pathlib import Path

import numpy as np

from skpmtl import PrivacyLeakWarning
from skpmtl.datasets import CHARACTERS, fetch_shakespeare, load_leaf, load_shakespeare
from skpmtl.networks import TorchMetaInitClassifier

from ..run import write_rows
from . import RESULTS, computed, script
from .networks_images import device

FIELDS = ("data", "method", "epsilon", "mean", "sd", "kept", "repeats")
METHODS = (
    ("no initialisation", None), ("not private", None), ("task-global", 9.0), ("task-global", 3.0),
    ("task-global", 1.0), ("local", 9.0), ("local", 3.0),
)  # fmt: skip
TUNING = "networks_text_tuning.csv"
TUNED = ("clip_norm", "inner_steps", "inner_learning_rate", "refine_learning_rate")
REFINE_RATES = (0.5, 2.0, 5.0)
GRID = {
    "not private": ((1.0,), (5,), (1.0, 3.0, 10.0)),
    "task-global": ((0.2, 0.5), (5,), (1.0, 3.0, 10.0)),
    "local": ((0.01, 0.1), (5,), (3.0,)),
}
LENGTH, ROWS, LEAST = 10, 60, 100


# ----------------------------------------------------------------------------------- data
def generated(folder, n_speakers=15, seed=0):
    """Plays in the markup of the corpus; every speaker has words of all and some of its own."""
    rng = np.random.default_rng(seed)
    letters = [*"abcdefghijklmnopqrstuvwxyz"]
    words = ["".join(rng.choice(letters, n)) for n in rng.integers(2, 7, 12 + n_speakers)]
    play = ET.Element("PLAY")
    ET.SubElement(play, "TITLE").text = "Of chance"
    for k in range(n_speakers):
        speech = ET.SubElement(play, "SPEECH")
        ET.SubElement(speech, "SPEAKER").text = f"SPEAKER {k}"
        for _ in range(12):
            own = rng.choice([*words[:12], *[words[12 + k]] * 3], 6)
            ET.SubElement(speech, "LINE").text = " ".join(own).capitalize() + "."
    ET.ElementTree(play).write(Path(folder) / "play.xml")


@cache
def rows_of(kind, path, quick):
    """Data, target and rows, in the order of the text, by speaker with `LEAST` rows or more."""
    if kind == "leaf":
        text = load_leaf(path, characters=CHARACTERS)
        text.data = text.data[:, -LENGTH:]
    elif path is not None:
        text = load_shakespeare(path, length=LENGTH)
    elif quick:
        with tempfile.TemporaryDirectory() as folder:
            generated(folder)
            text = load_shakespeare(folder, length=LENGTH)
    else:
        text = fetch_shakespeare(length=LENGTH)
    order = np.argsort(text.task, kind="stable")
    names, sizes = np.unique(text.task, return_counts=True)
    parts = np.split(order, np.cumsum(sizes)[:-1])
    found = {name: part for name, part in zip(names, parts, strict=True) if len(part) >= LEAST}
    return text.data, text.target, found


def spread(rows, most=ROWS):
    """At most so many of the rows, evenly spread."""
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int)]


def drawn(read, seed, tune):
    """Rows to learn from, to adapt with and to score on: (X, y, task) each.

    The speakers of the last two are those to tune on, or those of the test.
    """
    X, y, speakers = read()
    names = np.random.default_rng(0).permutation([*speakers])
    apart, others = np.split(names, [len(names) // 5])
    others = np.random.default_rng([seed, 1]).permutation(others)
    learn, test = np.split(others, [3 * len(others) // 4])
    parts = [{name: spread(speakers[name]) for name in learn}, {}, {}]
    for name in apart if tune else test:
        mine = speakers[name]
        end = int(0.7 * len(mine))
        parts[1][name], parts[2][name] = spread(mine[:end]), spread(mine[end + LENGTH :])
    for part in parts:
        rows = np.concatenate([*part.values()])
        task = np.repeat([*part], [len(one) for one in part.values()])
        yield X[rows].astype(float), y[rows].astype(int), task


# ------------------------------------------------------------------------------- networks
def lstm(width=48, embedding=8):
    import torch

    class Lstm(torch.nn.Module):
        """The equations of torch.nn.LSTM, whose kernels torch.func.vmap does not take."""

        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(len(CHARACTERS) + 1, embedding)
            self.gates = torch.nn.Linear(embedding + width, 4 * width)
            self.scores = torch.nn.Linear(width, len(CHARACTERS) + 1)

        def forward(self, x):
            x = self.table(x.long())
            h = c = torch.zeros_like(x[:, 0, :1]).expand(-1, width)
            for t in range(x.shape[1]):
                i, f, o, g = self.gates(torch.cat([x[:, t], h], dim=1)).chunk(4, dim=1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
            return self.scores(h)

    return Lstm()


@cache
def chosen(method):
    """The tuned constants of a method."""
    with (RESULTS / TUNING).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == method]
    best = max(rows, key=lambda row: float(row["score"]))
    found = {name: float(best[name]) for name in TUNED if best[name]}
    return {**found, **{n: int(v) for n, v in found.items() if n == "inner_steps"}}


def estimator(method, epsilon, tasks, seed, quick, constants):
    privacy = method if method in ("task-global", "local") else None
    given = {"tasks_per_round": 2, "refine_steps": 20, **constants}
    if quick:
        given |= {"module__width": 8, "inner_steps": 2, "refine_steps": 5}
    return TorchMetaInitClassifier(
        lstm, privacy=privacy, epsilon=epsilon, delta=1e-4, adjacency="zero-out", tasks=tasks,
        classes=range(len(CHARACTERS) + 1), random_state=seed, device=device(), **given,
    )  # fmt: skip


def learned(method, epsilon, learn, seed, quick, constants):
    """An estimator with the initialisation of a method."""
    names = np.unique(learn[2])
    est = estimator(method, epsilon, names, seed, quick, constants)
    if method == "no initialisation":
        few = np.isin(learn[2], names[:1])
        est.set_params(tasks=names[:1], meta_learning_rate=1e-12, inner_steps=1)
        learn = tuple(part[few] for part in learn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        warnings.simplefilter("ignore", UserWarning)
        return est.fit(*learn[:2], task=learn[2])


def scored(est, adapt, test):
    est.personalize(*adapt[:2], task=adapt[2])
    return est.score(*test[:2], task=test[2])


def of_method(read, method, epsilon, seed, quick):
    """Accuracy of the speakers of the test."""
    learn, adapt, test = drawn(read, seed, tune=False)
    if method == "most frequent":
        best = {name: np.bincount(adapt[1][adapt[2] == name]).argmax() for name in set(adapt[2])}
        return np.mean([best[name] == y for name, y in zip(test[2], test[1], strict=True)])
    constants = chosen(method)
    return scored(learned(method, epsilon, learn, seed, quick, constants), adapt, test)


def measure(read, data, quick, repeats):
    """Cells of the table, as `computed` takes them; "kept": of the gain without privacy."""
    known = {}

    def cell(method, epsilon):
        def rows(found):
            mean = known[method, epsilon] = np.mean(found)
            kept = ""
            if epsilon is not None:
                low = known["no initialisation", None]
                kept = f"{(mean - low) / (known['not private', None] - low):.3f}"
            yield {"data": data, "method": method, "epsilon": "" if epsilon is None else epsilon,
                   "mean": f"{mean:.4f}", "sd": f"{np.std(found):.4f}", "kept": kept,
                   "repeats": len(found)}  # fmt: skip

        return [(of_method, read, method, epsilon, seed, quick) for seed in range(repeats)], rows

    for method, epsilon in (("most frequent", None), *METHODS):
        yield cell(method, epsilon)


def tune(read, quick, jobs):
    """Accuracy of the speakers to tune on over the grid."""

    def cell(method, values):
        constants = dict(zip(TUNED, values, strict=False))

        def rows(found):
            for rate, *scores in zip(REFINE_RATES, *found, strict=True):
                yield {"method": method, **constants, "refine_learning_rate": rate,
                       "score": f"{np.mean(scores):.4f}"}  # fmt: skip

        return [(_tried, read, method, constants, 100, quick)], rows

    cells = [cell("no initialisation", ())]
    for method, grid in GRID.items():
        values = [*itertools.product(*grid)]
        cells += [cell(method, point) for point in (values[:1] if quick else values)]
    yield from computed(cells, jobs)


def _tried(read, method, constants, seed, quick):
    """Scores by rate of the refinement."""
    learn, adapt, test = drawn(read, seed, tune=True)
    epsilon = 9.0 if method in ("task-global", "local") else None
    est = learned(method, epsilon, learn, seed, quick, constants)
    scores = []
    for rate in REFINE_RATES:
        est.billboard_.refine_learning_rate = est.refine_learning_rate = rate
        scores.append(scored(est, adapt, test))
    return scores


def main(arguments=None):
    parser = script("networks_text", __doc__, "15 generated speakers, 2 steps", 3,
                    "networks_text.csv", jobs=True)  # fmt: skip
    parser.add_argument("--plays", help="the corpus, a zip or folder")
    parser.add_argument("--leaf", help="folder of LEAF's Shakespeare")
    parser.add_argument("--tune", action="store_true", help="the grid of constants")
    options = parser.parse_args(arguments)
    kind, path = ("leaf", options.leaf) if options.leaf else ("plays", options.plays)
    read = partial(rows_of, kind, path, options.quick)
    if options.tune:
        rows = tune(read, options.quick, options.jobs)
        return write_rows(rows, ("method", *TUNED, "score"), options.output)
    data = {"leaf": "LEAF"}.get(kind, "plays" if path or not options.quick else "generated")
    repeats = options.repeats or (1 if options.quick else 3)
    rows = computed(measure(read, data, options.quick, repeats), options.jobs)
    return write_rows(rows, FIELDS, options.output)


if __name__ == "__main__":
    main()
