"""Text of speakers in private meta-learning: the next character, linear models beside an LSTM.

    python -m benchmarks.reproduce.networks_text [--quick] [--repeats R] [--output FILE.csv]
                                                 [--jobs J] [--plays PATH | --leaf FOLDER] [--tune]

The study of text in Li, Khodak, Caldas and Talwalkar (ICLR 2020). Data, in this order: ``--leaf``
is a folder of LEAF's Shakespeare, ``--plays`` the zip or folder that
`skpmtl.datasets.load_shakespeare` reads, otherwise that is fetched (``--quick``: plays of the same
form are generated).

A record is a row: 10 characters of a speaker and the next one, its target, of 36 public symbols and
one for all others; capitals are taken for small letters. As in LEAF rows overlap, one begins at
every character. Speakers with 200 rows or more take part. A fifth of them, the same in all draws,
are to tune on; of the others 75 % by the seed are learned from, with at most 1,000 rows spread over
their text, and 25 % are the test. Those to tune on and of the test adapt with at most 500 rows of
the first 70 % of their text, in 20 steps, and are scored on at most 500 of the rest, less 10
characters between, so that no row of the test has a character of training. The score is the
accuracy over all these rows.

Models: "3-gram", linear in the last three characters, one-hot (`DPMetaInitClassifier`), and "LSTM"
with 48 units over all ten (`TorchMetaInitClassifier`). Methods, each from the same draws:

- "most frequent": the character that is most frequent in a speaker's rows of training;
- "no initialisation": speakers of the test take their steps from 0, or from the random network;
- "not private", "task-global" and "local": from an initialisation, for which every speaker is
  visited once; adjacency "zero-out", delta 1e-6. The budget is for a "row", for the four rows of
  the linear model that a "character" stands in (``group_size=``), or for a "speaker" ("local");
- "defaults": "task-global" of the linear model with nothing set but 20 steps of fine-tuning.

The constants of all others (``TUNED``) are those that are best for the speakers to tune on, in one
further draw, for every budget alone; ``--tune`` writes that table,
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
from sklearn.preprocessing import OneHotEncoder

from skpmtl import DPMetaInitClassifier, PrivacyLeakWarning
from skpmtl.datasets import CHARACTERS, fetch_shakespeare, load_leaf, load_shakespeare
from skpmtl.networks import TorchMetaInitClassifier

from ..run import write_rows
from . import RESULTS, computed, script
from .networks_images import device

FIELDS = ("data", "model", "method", "unit", "epsilon", "mean", "sd", "kept", "repeats")
METHODS = (
    ("no initialisation", None, None),
    ("not private", None, None),
    ("task-global", "row", 9.0),
    ("task-global", "row", 3.0),
    ("task-global", "row", 1.0),
    ("task-global", "character", 9.0),
    ("local", "speaker", 9.0),
    ("defaults", "row", 9.0),
    ("defaults", "row", 3.0),
    ("defaults", "row", 1.0),
)
TUNING = "networks_text_tuning.csv"
TUNED = ("clip_norm", "inner_learning_rate", "refine_learning_rate")
REFINE_RATES = {"3-gram": (3.0, 10.0), "LSTM": (0.5, 5.0)}
GRID = {  # clip norms, rates of inner steps
    ("3-gram", "not private"): ((1.0,), (4.0, 12.0)),
    ("3-gram", "task-global"): ((0.5, 1.0), (1.0, 4.0, 12.0)),
    ("3-gram", "local"): ((0.1,), (4.0,)),
    ("LSTM", "not private"): ((1.0,), (10.0, 30.0)),
    ("LSTM", "task-global"): ((1.0,), (6.0, 20.0)),
    ("LSTM", "local"): ((0.01,), (3.0,)),
}
INNER_STEPS = {"3-gram": 10, "LSTM": 1}
REFINE_STEPS = 20
SYMBOLS = "\n abcdefghijklmnopqrstuvwxyz.,;:!?'-"
N_CLASSES = len(SYMBOLS) + 1
LENGTH, NEAR, LEAST = 10, 3, 200
LEARN, ADAPT = 1000, 500  # rows at most


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
    small = np.array([SYMBOLS.find(c) for c in CHARACTERS.lower()] + [-1]) % N_CLASSES
    order = np.argsort(text.task, kind="stable")
    names, sizes = np.unique(text.task, return_counts=True)
    parts = np.split(order, np.cumsum(sizes)[:-1])
    found = {name: part for name, part in zip(names, parts, strict=True) if len(part) >= LEAST}
    return small[text.data].astype(np.uint8), small[text.target], found


def spread(rows, most):
    """At most so many of the rows, evenly spread."""
    return rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int)]


def drawn(read, seed, tune):
    """Rows to learn from, to adapt with and to score on: (characters, next one, task) each.

    The speakers of the last two are those to tune on, or those of the test.
    """
    X, y, speakers = read()
    names = np.random.default_rng(0).permutation([*speakers])
    apart, others = np.split(names, [len(names) // 5])
    others = np.random.default_rng([seed, 1]).permutation(others)
    learn, test = np.split(others, [3 * len(others) // 4])
    parts = [{name: spread(speakers[name], LEARN) for name in learn}, {}, {}]
    for name in apart if tune else test:
        mine = speakers[name]
        end = int(0.7 * len(mine))
        parts[1][name] = spread(mine[:end], ADAPT)
        parts[2][name] = spread(mine[end + LENGTH :], ADAPT)
    for part in parts:
        rows = np.concatenate([*part.values()])
        task = np.repeat([*part], [len(one) for one in part.values()])
        yield X[rows], y[rows], task


# --------------------------------------------------------------------------------- models
def features(model, characters):
    """Rows as a model takes them; of the linear one they have length 1."""
    if model == "LSTM":
        return characters.astype(np.float32)
    encoder = OneHotEncoder(categories=[range(N_CLASSES)] * NEAR, sparse_output=False)
    return encoder.fit_transform(characters[:, -NEAR:]) / np.sqrt(NEAR)


def lstm(width=48, embedding=8):
    import torch

    class Lstm(torch.nn.Module):
        """The equations of torch.nn.LSTM, whose kernels torch.func.vmap does not take."""

        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(N_CLASSES, embedding)
            self.into = torch.nn.Linear(embedding, 4 * width)
            self.onward = torch.nn.Linear(width, 4 * width, bias=False)
            self.scores = torch.nn.Linear(width, N_CLASSES)
            with torch.no_grad():
                self.into.bias[width : 2 * width] += 1.0  # it remembers, at first

        def forward(self, x):
            given = self.into(self.table(x.long()))
            h = c = torch.zeros_like(given[:, 0, :1]).expand(-1, width)
            for t in range(x.shape[1]):
                i, f, o, g = (given[:, t] + self.onward(h)).chunk(4, dim=1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
            return self.scores(h)

    return Lstm()


@cache
def chosen(model, method, epsilon):
    """The tuned constants of a method for one budget."""
    asked = {"model": model, "method": method, "epsilon": "" if epsilon is None else str(epsilon)}
    with (RESULTS / TUNING).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if asked.items() <= row.items()]
    best = max(rows, key=lambda row: float(row["score"]))
    return {name: float(best[name]) for name in TUNED if best[name]}


def estimator(model, method, unit, epsilon, tasks, seed, quick, constants):
    privacy = {"defaults": "task-global", "no initialisation": None, "not private": None}
    privacy = privacy.get(method, method)
    given = {
        "privacy": privacy,
        "epsilon": epsilon,
        "delta": 1e-6,
        "adjacency": "zero-out",
        "tasks": tasks,
        "classes": range(N_CLASSES),
        "refine_steps": 1,
        "random_state": seed,
    }
    if method != "defaults":
        steps = INNER_STEPS[model] if privacy == "task-global" else 5
        given |= {"tasks_per_round": 1, "inner_steps": steps, "meta_learning_rate": 1.0}
    given |= constants
    if unit == "character":
        given["group_size"] = 1 + NEAR
    if model == "3-gram":
        return DPMetaInitClassifier(refine="sgd", **given)
    if quick:
        given |= {"module__width": 8}
    return TorchMetaInitClassifier(lstm, device=device(), **given)


def learned(model, method, unit, epsilon, learn, seed, quick, constants):
    """An estimator with the initialisation of a method."""
    names = np.unique(learn[2])
    est = estimator(model, method, unit, epsilon, names, seed, quick, constants)
    if method == "no initialisation":
        few = np.isin(learn[2], names[:1])
        est.set_params(tasks=names[:1], meta_learning_rate=1e-12, inner_steps=1)
        learn = tuple(part[few] for part in learn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        warnings.simplefilter("ignore", UserWarning)
        return est.fit(features(model, learn[0]), learn[1], task=learn[2])


def scored(model, est, rate, adapt, test):
    """Accuracy of speakers after their steps from an initialisation, of this rate."""
    for one in (est, est.billboard_):
        one.refine_steps, one.refine_learning_rate = REFINE_STEPS, rate
    est.personalize(features(model, adapt[0]), adapt[1], task=adapt[2])
    return est.score(features(model, test[0]), test[1], task=test[2])


def most_frequent(read, seed):
    """Accuracy of the speakers of the test without any model."""
    _, adapt, test = drawn(read, seed, tune=False)
    best = {name: np.bincount(adapt[1][adapt[2] == name]).argmax() for name in set(adapt[2])}
    return np.mean([best[name] == y for name, y in zip(test[2], test[1], strict=True)])


def of_method(read, model, method, unit, epsilon, seed, quick):
    """Accuracy of the speakers of the test."""
    learn, adapt, test = drawn(read, seed, tune=False)
    constants = {"refine_learning_rate": "auto"}
    if method != "defaults":  # four rows at epsilon 9 have about the noise of one at 2
        constants = chosen(model, method, 1.0 if unit == "character" else epsilon)
    est = learned(model, method, unit, epsilon, learn, seed, quick, constants)
    return scored(model, est, constants["refine_learning_rate"], adapt, test)


def measure(read, data, quick, repeats):
    """Cells of the table, as `computed` takes them; "kept": of the gain without privacy."""
    known = {}

    def cell(call, model, method, unit=None, epsilon=None):
        def rows(found):
            mean = known[model, method] = np.mean(found)
            kept = ""
            if epsilon is not None:
                low = known[model, "no initialisation"]
                kept = f"{(mean - low) / (known[model, 'not private'] - low):.3f}"
            yield {
                "data": data,
                "model": model,
                "method": method,
                "unit": unit or "",
                "epsilon": "" if epsilon is None else epsilon,
                "mean": f"{mean:.4f}",
                "sd": f"{np.std(found):.4f}",
                "kept": kept,
                "repeats": len(found),
            }

        return [call(seed) for seed in range(repeats)], rows

    yield cell(lambda seed: (most_frequent, read, seed), "", "most frequent")
    for model, given in itertools.product(REFINE_RATES, METHODS):
        if model == "LSTM" and (given[0] == "defaults" or given[1] == "character"):
            continue  # steps of a network have none; eleven rows are too many
        yield cell(
            lambda seed, one=(model, *given): (of_method, read, *one, seed, quick), model, *given
        )


def tune(read, quick, jobs):
    """Accuracy of the speakers to tune on over the grid."""

    def cell(model, method, epsilon, values):
        constants = dict(zip(TUNED, values, strict=False))

        def rows(found):
            for rate, *scores in zip(REFINE_RATES[model], *found, strict=True):
                yield {
                    "model": model,
                    "method": method,
                    "epsilon": epsilon,
                    **constants,
                    "refine_learning_rate": rate,
                    "score": f"{np.mean(scores):.4f}",
                }

        return [(_tried, read, model, method, epsilon, constants, 100, quick)], rows

    cells = []
    for model in REFINE_RATES:
        cells.append(cell(model, "no initialisation", None, ()))
        for method, epsilon in dict.fromkeys((m, e) for m, _, e in METHODS[1:] if m != "defaults"):
            values = [*itertools.product(*GRID[model, method])]
            cells += [
                cell(model, method, epsilon, point) for point in (values[:1] if quick else values)
            ]
    yield from computed(cells, jobs)


def _tried(read, model, method, epsilon, constants, seed, quick):
    """Scores by rate of the refinement."""
    learn, adapt, test = drawn(read, seed, tune=True)
    est = learned(model, method, None, epsilon, learn, seed, quick, constants)
    return [scored(model, est, rate, adapt, test) for rate in REFINE_RATES[model]]


def main(arguments=None):
    parser = script(
        "networks_text",
        __doc__,
        "15 generated speakers, a small LSTM",
        2,
        "networks_text.csv",
        jobs=True,
    )
    parser.add_argument("--plays", help="the corpus, a zip or folder")
    parser.add_argument("--leaf", help="folder of LEAF's Shakespeare")
    parser.add_argument("--tune", action="store_true", help="the grid of constants")
    options = parser.parse_args(arguments)
    kind, path = ("leaf", options.leaf) if options.leaf else ("plays", options.plays)
    read = partial(rows_of, kind, path, options.quick)
    if options.tune:
        rows = tune(read, options.quick, options.jobs)
        return write_rows(rows, ("model", "method", "epsilon", *TUNED, "score"), options.output)
    data = {"leaf": "LEAF"}.get(kind, "plays" if path or not options.quick else "generated")
    repeats = options.repeats or (1 if options.quick else 2)
    rows = computed(measure(read, data, options.quick, repeats), options.jobs)
    return write_rows(rows, FIELDS, options.output)


if __name__ == "__main__":
    from . import networks_text  # by whose name other processes find what is cached

    networks_text.main()
