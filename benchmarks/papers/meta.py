"""Li, Khodak, Caldas and Talwalkar, "Differentially private meta-learning": what the paper claims.

    python -m benchmarks.papers.meta [--quick] [--only NAME ...] [--plays ZIP] [--output FOLDER]

Every method is `skpmtl.reproduction.meta`, the paper's own algorithm. Constants are tuned by the
paper's rule, in two steps, on validation tasks, which are in no result: first everything but the
refinement, by the score of the initialisation itself (of "risk", whose new tasks have one step per
row, by the risk), then the refinement. All methods have the same grid. Budgets are for records
("task-global") or tasks ("local"), delta is 1e-3 everywhere, and adjacency "zero-out", so that a
record is replaced by nothing, as the accountant of the paper's experiments has it.

``descent``
    Lemma B.2: excess risk of the noisy descent of a task over its rows. -> meta_descent.csv
``risk``
    Theorem 3.1: excess risk of new tasks over the spread of tasks, their number, their rows, and
    epsilon, and task-averaged regret. Linear regression with models around a common one; excess
    risk is a closed form. -> meta_risk.csv, meta_slopes.csv
``gain``
    Figure 2 on linear data: what new tasks with 10 rows gain. -> meta_gain.csv,
    meta_gain_curves.csv
``text``
    Figure 2 on text: the next word of speakers of a generated language, 800 words each as in the
    paper, 80 records of 10 words with a loss for every word, and an LSTM of two layers. Words
    outside the public vocabulary have no loss, and count as wrong. -> meta_text.csv,
    meta_curves.csv. With ``--plays``, of the speakers of plays. -> meta_text_plays.csv,
    meta_curves_plays.csv
"""

import itertools
import re
from functools import cache, partial

import numpy as np
from sklearn.model_selection import ParameterGrid

from skpmtl.datasets import CHARACTERS, load_school, load_shakespeare
from skpmtl.privacy.rng import SeededSource
from skpmtl.reproduction.meta import (
    MetaRoundsPlan,
    PublishedMetaInit,
    PublishedMetaInitClassifier,
    PublishedMetaNetwork,
)
from skpmtl.reproduction.meta.models import GeneralizedLinear
from skpmtl.reproduction.meta.rounds import MetaTasks, minibatch_descent, online_descent

from .tables import best, line, mean_sd, run

DELTA, BUDGET = 1e-3, 9.2
TUNING = 1000  # a draw that is in no result
PRIVATE = {"delta": DELTA, "adjacency": "zero-out"}


def fitted(est, tasks):
    """The estimator after a fit to a list of (X, y)."""
    X, y = (np.concatenate(parts) for parts in zip(*tasks, strict=True))
    task = np.repeat(np.arange(len(tasks)), [len(part) for _, part in tasks])
    return est.set_params(tasks=range(len(tasks))).fit(X, y, task=task)


def settings_of(g):
    """Arguments of the estimators, of a point of a grid with "meta": (rate, decay)."""
    rest = {name: value for name, value in g.items() if name != "meta"}
    return rest | {"meta_learning_rate": g["meta"][0], "meta_decay": g["meta"][1]}


# --------------------------------------------------------------------------------- Theorem 3.1
WIDTH, ROWS, RADIUS = 10, 50, 2.0
BASE = {"spread": 0.3, "n_tasks": 100, "new_rows": 10, "epsilon": 3.0}
SWEEPS = {
    "spread": (0.1, 0.3, 0.6, 1.0),
    "n_tasks": (10, 30, 100, 300),
    "new_rows": (5, 10, 20, 40, 80),
    "epsilon": (0.3, 1.0, 3.0, 9.2, None),
}
RISK_GRID = {"inner_learning_rate": (1.0, 3.0, 10.0), "clip_norm": (0.3, 1.0)}
OGD_RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 2.0)


def environment(spread, n_tasks, rows, rng):
    """Tasks, and their models: spread is the root of the mean square distance from the common."""
    common = np.full(WIDTH, 1.0 / np.sqrt(WIDTH))
    W = common + spread * rng.normal(size=(n_tasks, WIDTH)) / np.sqrt(WIDTH)
    X = rng.normal(size=(n_tasks, rows, WIDTH)) / np.sqrt(WIDTH)
    y = np.einsum("knd,kd->kn", X, W) + 0.3 * rng.normal(size=(n_tasks, rows))
    return list(zip(X, y, strict=True)), W


def risk_of(init, rate, tasks, W):
    """Excess risk of averaged online descent, and mean regret per row."""
    model, risks, regrets = GeneralizedLinear(WIDTH, 0, False), [], []
    for (X, y), w in zip(tasks, W, strict=True):
        phi = init if init.ndim == 1 else init[len(risks)]
        theta, losses = online_descent(model, phi, X, y, rate, RADIUS)
        risks.append(0.5 * np.sum((theta - w) ** 2) / WIDTH)
        regrets.append(np.mean(losses - model.losses(w, X, y)))
    return float(np.mean(risks)), float(np.mean(regrets))


def risk_point(descent, point, repeats, quick):
    """Columns of one point of a sweep, or of "no initialisation" for descent=None."""
    known = {"epsilon": point["epsilon"], "descent": descent, "diameter": 2 * RADIUS, **PRIVATE}
    known |= {"fit_intercept": False, "inner_steps": 20, "refine": "minibatch"}

    def learned(seed, **settings):
        rng = np.random.default_rng([seed, 0])
        tasks, _ = environment(point["spread"], point["n_tasks"], ROWS, rng)
        est = PublishedMetaInit(refine_epochs=0, random_state=seed, **known, **settings)
        return fitted(est, tasks)

    def new(seed, n_tasks=100):
        rng = np.random.default_rng([seed, 1])
        return environment(point["spread"], n_tasks, point["new_rows"], rng)

    zero = np.zeros(WIDTH)
    grid = [{}] if descent is None else list(ParameterGrid(RISK_GRID))[:: 4 if quick else 1]
    if descent == "bassily":
        grid = [{"clip_norm": c} for c in RISK_GRID["clip_norm"]]
    inits = [zero if descent is None else learned(TUNING, **g).init_coef_ for g in grid]
    pairs = itertools.product(range(len(grid)), OGD_RATES)
    at, rate = best(pairs, lambda pair: -risk_of(inits[pair[0]], pair[1], *new(TUNING))[0])
    found, certain = [], ""
    for seed in range(repeats):
        regret_init = init = zero
        if descent is not None:
            est = learned(seed, **grid[at])
            init, certain = est.init_coef_, round(est.privacy_.epsilon, 2)
            # The tasks of the bound, in place of which others of the environment stand.
            regret_init = est.init_path_[:-1]
        n_tasks = 100 if descent is None else point["n_tasks"]
        regret = risk_of(regret_init, rate, *new(seed + 500, n_tasks))[1]
        error = np.sum((init - 1 / np.sqrt(WIDTH)) ** 2)
        found.append((risk_of(init, rate, *new(seed))[0], regret, error))
    risks, regrets, errors = zip(*found, strict=True)
    values = *mean_sd(risks, ".5f"), *(f"{np.mean(x):.5f}" for x in (regrets, errors))
    names = "excess_risk, sd, regret, square_error_of_init, certain_epsilon, repeats"
    return line(names, *values, certain, repeats)


def measure_risk(quick, repeats):
    rows = []
    for descent, swept in itertools.product((None, "sgd", "bassily"), SWEEPS):
        if descent is None and swept not in ("spread", "new_rows"):
            continue  # nothing of the tasks before
        for value in SWEEPS[swept][:: 3 if quick else 1]:
            point = {**BASE, swept: value}
            if descent != "bassily" or point["epsilon"] is not None:
                about = {"descent": descent or "none", "swept": swept, **point}
                rows.append(about | risk_point(descent, point, repeats, quick))
    return {"risk": rows, "slopes": slopes(rows)}


def slopes(rows):
    """Exponents of the excess risk, and of the error of the initialisation, in every sweep."""
    for (descent, swept), group in itertools.groupby(rows, lambda r: (r["descent"], r["swept"])):
        group = [row for row in group if row[swept] is not None]
        x, row = np.log([row[swept] for row in group]), {"descent": descent, "swept": swept}
        for name in ("excess_risk", "square_error_of_init"):
            y = np.log([max(float(row[name]), 1e-9) for row in group])
            row[f"slope_{name}"] = f"{np.polyfit(x, y, 1)[0]:.2f}"
        yield row


# ------------------------------------------------------------------------------------ Lemma B.2
LIPSCHITZ = 2.0  # more than nearly all gradients of these rows: hardly one is clipped


def measure_descent(quick, repeats):
    """Excess risk of the noisy descent of one task over its rows, and its bound."""
    model, zero = GeneralizedLinear(WIDTH, 0, False), np.zeros(WIDTH)
    known = {"descent": "bassily", "diameter": 2 * RADIUS, "clip_norm": LIPSCHITZ, **PRIVATE}
    sizes = (50, 200) if quick else (50, 100, 200, 400, 800, 1600)
    for epsilon, n in itertools.product((1.0, BUDGET), sizes):
        tasks, W = environment(0.3, 5 if quick else 20, n, np.random.default_rng([n, 5]))
        est = PublishedMetaInit(epsilon=epsilon, **known)
        plan = MetaRoundsPlan(est, np.full(len(tasks), n), WIDTH, "task-global")
        side = MetaTasks(model, tasks, plan, SeededSource(np.random.default_rng([n, 6])))
        square = np.mean([np.sum((side.descent(k, zero) - w) ** 2) for k, w in enumerate(W)])
        private = np.sqrt(WIDTH * np.log(1 / DELTA)) / (epsilon * n)
        bound = 10 * RADIUS * LIPSCHITZ * max(private, n**-0.5)
        yield line(
            "epsilon, rows, steps, batch_size, certain_epsilon, square_distance, excess_risk, "
            "bound, tasks",
            *(epsilon, n, plan.inner_steps[0], plan.batch_sizes[0], f"{plan.epsilon:.2f}"),
            *(f"{square:.4f}", f"{0.5 * square / WIDTH:.5f}", f"{bound:.3f}", len(tasks)),
        )


# ------------------------------------------------------------------------- figure 2, linear data
METHODS = (
    ("no initialisation", None),
    ("not private", None),
    ("task-global", BUDGET),
    ("task-global", 1.0),
    ("local", BUDGET),
    ("local", 1.0),
)
GAIN_GRID = {
    "inner_learning_rate": (0.3, 1.0, 3.0),
    "clip_norm": (0.1, 0.3, 1.0),
    "meta": ((1.0, 1.0), (0.5, 0.95)),
}
REFINE_GRID = {"rate": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0), "epochs": (1, 5, 20)}
SHOTS = 10


def synthetic(kind, seed, n_tasks=200, n_new=100):
    rng = np.random.default_rng([seed, 2])
    tasks, _ = environment(0.5, n_tasks + n_new, ROWS, rng)
    if kind == "logistic":
        scale = 4.0
        tasks = [
            (X, np.where(rng.random(len(y)) < 1 / (1 + np.exp(-scale * y)), 1.0, -1.0))
            for X, y in tasks
        ]
    return tasks[:n_tasks], tasks[n_tasks:]


def school(seed):
    """79 schools to learn from and 30 new ones; other 30, the same always, are for validation."""
    data = load_school(scale="public")
    y = (np.asarray(data.target, dtype=float) - 35.0) / 35.0  # marks are from 0 to 70
    X = np.asarray(data.data, dtype=float) / np.sqrt(data.data.shape[1])
    names = np.random.default_rng(0).permutation(np.unique(data.task))
    validation, others = names[:30], names[30:]
    if seed == TUNING:
        learn, new = others[:79], validation
    else:
        others = np.random.default_rng([seed, 3]).permutation(others)
        learn, new = others[:79], others[79:]
    shuffled = np.random.default_rng([seed, 4]).permutation(len(y))
    of = {k: shuffled[data.task[shuffled] == k] for k in names}
    return tuple([(X[of[k]], y[of[k]]) for k in part] for part in (learn, new))


def gain_score(kind, model, path, new, rate, epochs, t=-1):
    """Of new tasks after a refinement on their first rows: accuracy, or 1 - error / variance."""
    init, predicted, known = path[t], [], []
    for X, y in new:
        w = minibatch_descent(model, init, X[:SHOTS], y[:SHOTS], rate, np.inf, epochs, None)
        predicted.append(model.scores(w, X[SHOTS:])[:, 0])
        known.append(y[SHOTS:])
    predicted, known = np.concatenate(predicted), np.concatenate(known)
    if kind == "logistic":
        return float(np.mean(np.sign(predicted) == known))
    return float(1.0 - np.mean((predicted - known) ** 2) / np.var(known))


def gain_init(data, method, epsilon, seed, g):
    """-> model, its initialisations phi_1.. (the last one is the result), new tasks"""
    learn, new = school(seed) if data == "school" else synthetic(data, seed)
    model = GeneralizedLinear(learn[0][0].shape[1], 2 * (data == "logistic"), True)
    if method == "no initialisation":
        return model, model.start[None], new
    known = {"epsilon": epsilon, "random_state": seed, "tasks_per_round": 10, **PRIVATE}
    known |= {"privacy": method if method in ("task-global", "local") else None}
    known |= {"meta_step": "reptile", "iterate": "last", "inner_iterate": "last"}
    known |= {"refine": "minibatch", "refine_epochs": 0, **settings_of(g)}
    if data == "logistic":
        est = PublishedMetaInitClassifier(classes=[-1.0, 1.0])
    else:
        est = PublishedMetaInit()
    return model, fitted(est.set_params(**known), learn).init_path_, new


def gain_scores(data, method, epsilon, quick, repeats):
    """-> {round: scores of the draws (repeats,)}, with constants from the draw for tuning."""
    grid = list(ParameterGrid(GAIN_GRID))[:: 6 if quick else 1]
    grid = grid[:1] if method == "no initialisation" else grid
    tried = [(g, gain_init(data, method, epsilon, TUNING, g)) for g in grid]
    g, init = best(tried, lambda one: gain_score(data, *one[1], 1.0, 0))
    refine = itertools.product(REFINE_GRID["rate"], REFINE_GRID["epochs"])
    rate, epochs = best(refine, lambda r: gain_score(data, *init, *r))
    draws = [gain_init(data, method, epsilon, seed, g) for seed in range(repeats)]
    last = len(draws[0][1]) - 1
    rounds = sorted({t for t in (0, 1, 2, 4, 8, last) if t <= last})
    return {t: np.array([gain_score(data, *one, rate, epochs, t) for one in draws]) for t in rounds}


def measure_gain(quick, repeats):
    """For every method its row of the table, and the rows of its learning curve."""
    rows, curves = [], []
    for data in ("linear", "logistic", "school"):
        means = []
        for method, epsilon in METHODS:
            scores = gain_scores(data, method, epsilon, quick, repeats)
            found = scores[max(scores)]
            means.append(found.mean())
            kept = (means[-1] - means[0]) / (means[1] - means[0]) if len(means) > 1 else None
            kept = "" if kept is None else f"{kept:.3f}"
            cell = {"data": data, "method": method, "epsilon": epsilon}
            rows.append(cell | line("score, sd, kept, repeats", *mean_sd(found), kept, repeats))
            for t, some in scores.items() if method != "no initialisation" else ():
                curves.append(cell | line("round, score, sd", t, *mean_sd(some)))
    return {"gain": rows, "gain_curves": curves}


def last_quarter(tasks):
    """The records that are scored."""
    return [(X[3 * len(X) // 4 :], y[3 * len(y) // 4 :]) for X, y in tasks]


# --------------------------------------------------------------------------------- figure 2, text
LENGTH, TOKENS, LAYERS, UNITS = 10, 800, 2, 16
LANGUAGE = {"words": 40, "unknown": 20, "rank": 8, "spread": 0.5}
TEXT_GRID = {
    "inner_learning_rate": (5.0, 15.0),
    "clip_norm": (0.1, 1.0),
    "meta": ((1.0, 1.0),),
}
TEXT_REFINE = tuple(itertools.product((3.0, 10.0), (1, 5)))


def next_word_module(n_words):
    """Embedding, LSTM of two layers, and scores of all words by their products with embeddings."""
    import torch

    class NextWord(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(n_words + 1, UNITS)
            torch.nn.init.normal_(self.words.weight, std=0.5)
            layers = range(LAYERS)
            self.given = torch.nn.ModuleList(torch.nn.Linear(UNITS, 4 * UNITS) for _ in layers)
            self.own = torch.nn.ModuleList(
                torch.nn.Linear(UNITS, 4 * UNITS, bias=False) for _ in layers
            )

        def forward(self, X):
            x = self.words(X[:, :-1].long())
            for given, own in zip(self.given, self.own, strict=True):
                parts, found = given(x), []
                h = c = x.new_zeros(len(x), UNITS)
                for t in range(x.shape[1]):
                    i, f, g, o = (parts[:, t] + own(h)).chunk(4, -1)
                    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                    h = torch.sigmoid(o) * torch.tanh(c)
                    found.append(h)
                x = torch.stack(found, 1)
            return x @ self.words.weight.T

    return NextWord()


def loss_of_words(scores, X, y):
    import torch

    each = torch.nn.functional.cross_entropy(
        scores.transpose(1, 2), X[:, 1:].long(), reduction="none", ignore_index=0
    )
    return each.mean(1)


def records(codes):
    """Tasks (n_records, LENGTH + 1) of codes (n_tasks, TOKENS + 1), 0 for unknown words."""
    cut = np.lib.stride_tricks.sliding_window_view(codes, LENGTH + 1, axis=1)[:, ::LENGTH]
    return [(np.array(r, dtype=float), np.zeros(len(r))) for r in cut]


def generated_speakers(seed, quick=False):
    """Speakers of a language: a Markov chain of words, each speaker with a chain near the common.

    log P(next | word) is a_word . b_next of rank 8 and a law of Zipf; a speaker has other a, and
    words from the 41st on are in no public vocabulary. -> tasks to learn from, new tasks
    """
    known, rank, away = (LANGUAGE[name] for name in ("words", "rank", "spread"))
    n_learn, n_new = (6, 2) if quick else (60, 10)
    n, size = n_learn + n_new, known + LANGUAGE["unknown"]
    common, following = np.random.default_rng(0).standard_normal((2, size, rank))
    rng = np.random.default_rng([seed, 8])
    own = common + away * rng.standard_normal((n, size, rank))
    log_p = 3.0 * own @ following.T / np.sqrt(rank * (1 + away**2))
    log_p -= 0.8 * np.log(np.arange(1, size + 1))
    p = np.exp(log_p - log_p.max(axis=-1, keepdims=True)).cumsum(axis=-1)
    p /= p[..., -1:]
    words = np.zeros((n, TOKENS + 1), dtype=int)
    words[:, 0] = rng.integers(size, size=n)
    for t in range(TOKENS):
        below = p[np.arange(n), words[:, t]] < rng.random(n)[:, None]
        words[:, t + 1] = np.minimum(below.sum(axis=1), size - 1)
    tasks = records(np.where(words < known, words + 1, 0))
    return tasks[:n_learn], tasks[n_learn:]


def players(plays, n_words=300):
    """The first 800 words of every speaker who has as many: to learn from, validation, test.

    The vocabulary has the words that are frequent among the speakers to learn from, as the
    paper's; it is not protected.
    """
    data = load_shakespeare(plays, length=1)
    texts = []
    for name in data.tasks:
        codes = data.data[data.task == name, 0]
        text = "".join(CHARACTERS[c] if c < len(CHARACTERS) else " " for c in codes).lower()
        found = re.findall(r"[a-z']+|[.,;:!?]", text)
        if len(found) > TOKENS:
            texts.append(found[: TOKENS + 1])
    texts = [texts[k] for k in np.random.default_rng(0).permutation(len(texts))]
    end, half = int(0.6 * len(texts)), int(0.8 * len(texts))
    names, counts = np.unique(list(itertools.chain(*texts[:end])), return_counts=True)
    known = {w: i + 1 for i, w in enumerate(names[np.argsort(-counts, kind="stable")][:n_words])}
    tasks = records(np.array([[known.get(w, 0) for w in text] for text in texts]))
    return tasks[:end], tasks[end:half], tasks[half:]


def accuracy(model, models, tasks):
    """Of the last quarter of the records; `models` is one for all tasks, or one for each."""
    right = []
    for k, (X, _) in enumerate(last_quarter(tasks)):
        w = models if np.ndim(models) == 1 else models[k]
        guess, target = model.scores(w, X).argmax(-1), X[:, 1:]
        right.append(np.mean((guess == target) & (target > 0)))
    return float(np.mean(right))


def mean_loss(model, models, tasks):
    """Mean loss of the same records."""
    pairs = zip(models, last_quarter(tasks), strict=True)
    return float(np.mean([model.losses(w, *end).mean() for w, end in pairs]))


def refined(model, init, tasks, rate, epochs):
    parts = [(X[: 3 * len(X) // 4], y[: 3 * len(X) // 4]) for X, y in tasks]
    return [minibatch_descent(model, init, X, y, rate, np.inf, epochs, 20) for X, y in parts]


def measure_text(quick, repeats, plays=None):
    """For every method its row of the table, and the rows of its learning curve."""
    import torch

    torch.set_num_threads(1)
    n_words, parts = (LANGUAGE["words"], None) if plays is None else (300, players(plays))
    full, rows, curves = None, [], []

    @cache
    def drawn(seed):
        """Tasks to learn from, new tasks; those of the draw for tuning are in no result."""
        if parts is None:
            return generated_speakers(seed, quick)
        return parts[0], parts[1] if seed == TUNING else parts[2]

    def learned(seed, method, g, visits=1):
        """-> model, initialisations phi_1.. (the last one is the result)"""
        learn, alone = drawn(seed)[0], method == "no initialisation"
        known = {"privacy": method if method in ("task-global", "local") else None, **PRIVATE}
        known |= {"epsilon": BUDGET, "inner_steps": 10, "tasks_per_round": 6, "refine_epochs": 0}
        known |= {"start_seed": seed, "random_state": seed, "visits": visits, **settings_of(g)}
        est = PublishedMetaNetwork(lambda: next_word_module(n_words), loss_of_words, **known)
        est = fitted(est, learn[:1] if alone else learn)
        return est._model_, est.init_path_[: 1 if alone else None]

    for method in ("no initialisation", "not private", "task-global", "local"):
        grid = list(ParameterGrid(TEXT_GRID))[: 1 if quick else None]
        grid = grid[:1] if method == "no initialisation" else grid
        if method == "not private":  # which clips nothing
            grid = [g for g in grid if g["clip_norm"] == grid[0]["clip_norm"]]
        validation = drawn(TUNING)[1]

        def score(one, validation=validation):
            model, path = one[2]
            return accuracy(model, path[-1], validation)

        tried = [(g, 1, learned(TUNING, method, g)) for g in grid]
        if method == "not private" and not quick:  # which may visit tasks more than once
            g = best(tried, score)[0]
            tried.append((g, 3, learned(TUNING, method, g, 3)))
        g, visits, (model, path) = best(tried, score)

        def refined_score(r, model=model, path=path, validation=validation):
            return accuracy(model, refined(model, path[-1], validation, *r), validation)

        rate, epochs = best(TEXT_REFINE[: 1 if quick else None], refined_score)
        after, losses, along = [], [], []
        for seed in range(repeats):
            test = drawn(seed)[1]
            model, path = learned(seed, method, g, visits)
            models = refined(model, path[-1], test, rate, epochs)
            after.append(accuracy(model, models, test))
            losses.append(mean_loss(model, models, test))
            rounds = sorted({*range(0, len(path), 2), len(path) - 1})
            along.append([accuracy(model, path[t], test) for t in rounds])
        before = [scores[-1] for scores in along]
        full = np.mean(after) if method == "not private" else full
        epsilon = BUDGET if method in ("task-global", "local") else ""
        share = f"{np.mean(after) / full:.3f}" if full else ""
        rows.append(
            line(
                "data, method, epsilon, before, before_sd, after, sd, loss, of_not_private, "
                "inner_learning_rate, clip_norm, meta_decay, visits, refine_learning_rate, "
                "refine_epochs, repeats",
                *("generated" if plays is None else "plays", method, epsilon),
                *(*mean_sd(before), *mean_sd(after), f"{np.mean(losses):.3f}", share),
                *(g["inner_learning_rate"], g["clip_norm"], g["meta"][1], visits),
                *(rate, epochs, repeats),
            )
        )
        for t, scores in zip(rounds, zip(*along, strict=True), strict=True):
            curves.append(line("method, round, accuracy, sd", method, t, *mean_sd(scores)))
    end = "" if plays is None else "_plays"
    return {f"text{end}": rows, f"curves{end}": curves}


TABLES = {
    "descent": (measure_descent, 1),
    "risk": (measure_risk, 5),
    "gain": (measure_gain, 10),
    "text": (measure_text, 10),
}


def main(arguments=None):
    def of_plays(options):
        return {"text": (partial(measure_text, plays=options.plays), 10)}

    plays = "zip or folder of plays for text, see load_shakespeare"
    return run("meta", __doc__, TABLES, arguments, of_plays, plays=plays)


if __name__ == "__main__":
    main()
