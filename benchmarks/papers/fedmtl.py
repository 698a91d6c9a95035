"""Sen and Borcea, "FedMTL: privacy-preserving federated multi-task learning": what it claims.

    python -m benchmarks.papers.fedmtl [--quick] [--only NAME ...] [--celeba FOLDER]
        [--output FOLDER]

Every method is `skpmtl.reproduction.fedmtl`, the paper's own algorithm, with the paper's settings:
60 or 80 clients, 12,000, 9,000 or 16,000 rows with symmetric Dirichlet sizes, 70 / 15 / 15 %, 8
tasks of 5 attributes, 20 rounds of one epoch, batches of 32, plain SGD. The data are generated
(`make_faces`, `make_scenes`), the network has a hidden layer of 32. All constants are those of the
best validation accuracy on a draw that is in no result: first the best of up to three values of a
method's own constant, then of three step sizes; the paper has the defaults of PFLlib. Scores are
means over clients.

``figures``
    Figures 2, 5 and 6: how near layers are, by groups of clients and rounds; rows and tasks of
    clients. -> fedmtl_layers.csv, fedmtl_clients.csv
``table3``
    Table 3 by position of the heads, as in the paper, and among clients with equal tasks; figure 7;
    FedMTL with different numbers of tasks. -> fedmtl_table3.csv, fedmtl_curves.csv
``ablation``
    Figure 8: the versions of FedMTL, and other thresholds. -> fedmtl_ablation.csv
``scenes``
    The columns of NYUD2 in Table 3, with a small SegNet; needs torch. -> fedmtl_scenes.csv
``overhead``
    Section 6.1: time and numbers sent, of all methods. -> fedmtl_overhead.csv, fedmtl_growth.csv
``secure``
    Figure 9 and section 6.2: secure over plain, by clients, tasks, servers; the paper's size; Table
    2 and what a client sends; accuracy of the secure version. Needs the extra ``skpmtl[secure]``.
    -> fedmtl_ratio.csv, fedmtl_secure.csv, fedmtl_sizes.csv, fedmtl_secret.csv

``--celeba`` names the folder of CelebA's own files (`load_celeba`): the methods of Table 3 with
LeNet on 12,000 of its images; needs torch. -> fedmtl_celeba.csv
"""

import itertools
import time
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score

from skpmtl.fedmtl.secure import Job, SecureServers, split_upload
from skpmtl.reproduction.fedmtl import (
    PublishedFedMTL,
    PublishedFedMTLNetwork,
    dirichlet_sizes,
    lenet,
    load_celeba,
    make_faces,
    make_scenes,
    mean_iou,
    segnet,
    split_rows,
    task_sets,
)
from skpmtl.reproduction.fedmtl.aggregation import VERSIONS, Upload, aggregate, cosines
from skpmtl.reproduction.fedmtl.baselines import attention, coupled, mean_model

from .tables import best, line, mean_sd, run

TUNING = 1000  # a draw that is in no result
ROUNDS = (1, 2, 5, 10, 15, 20)
# Table 1; of FaceA half of the clients have either domain.
DATA = {"CelebA": (60, 12_000, (0, 0)), "LFWA": (60, 9_000, (1, 1)), "FaceA": (80, 16_000, (0, 1))}
RATE, RATES = "learning_rate", (0.5, 1.5, 4.5)
THRESHOLDS = [{"threshold": z} for z in ((0.75, 0.95), (0.5, 0.75), (0.3, 0.5))]
STRENGTHS = [{"strength": s} for s in (0.01, 0.1, 1.0)]
OWN = {  # constants of a method's own
    "fedmtl": [{}],
    "fedmtl, Z tuned": THRESHOLDS,
    "fedavg": [{}],
    "fedprox": STRENGTHS,
    "pfedme": STRENGTHS,
    "mocha": STRENGTHS,
    "fedamp": [{"strength": s, "scale": c} for s, c in ((0.1, 0.1), (1.0, 0.1), (1.0, 1.0))],
    "fedfomo": [{"n_candidates": m} for m in (5, 10, 20)],
    "local": [{}],
}
PUBLISHED = {
    "fedmtl": (83.3, 70.9, 78.3, 37.2, 74.4),
    "fedavg": (76.0, 64.7, 68.5, 28.9, 62.0),
    "fedprox": (76.4, 64.7, 69.3, 30.4, 63.9),
    "mocha": (81.7, 67.9, 76.9, 34.9, 71.1),
    "pfedme": (76.2, 64.7, 69.2, 30.3, 64.2),
    "fedfomo": (80.9, 68.9, 76.1, 35.1, 72.0),
    "fedamp": (81.9, 68.4, 77.1, 35.4, 71.3),
}


def parts_of(X, y, client, seed):
    """Rows of training, validation and test."""
    part = split_rows(client, random_state=seed)
    return [(X[part == k], y[part == k], client[part == k]) for k in range(3)]


def faces(name, distribution, seed, quick=False, correlation=0.5):
    """Clients of a data set as in section 7.1. -> training, validation, test"""
    n_clients, n_rows, domains = DATA[name]
    if quick:
        n_clients, n_rows = 8, 400
    sizes = dirichlet_sizes(n_rows, n_clients, random_state=seed)
    sets = task_sets(n_clients, 8, distribution, random_state=seed)
    turns = np.arange(n_clients) // (4 if distribution == "pairs" else 1) % 2
    rows = make_faces(
        sizes, sets, np.take(domains, turns), correlation=correlation, random_state=seed
    )
    return parts_of(*rows, seed)


def curve(draw, seed, method, of=2, est=None, measure=None, **settings):
    """Score after every round, on the test (2) or validation (1) rows; the fitted estimator."""
    found = []
    est = PublishedFedMTL() if est is None else est

    def watch(t, models):
        found.append(models.score(*draw[of], measure))

    est.set_params(method=method.split(",")[0], random_state=seed, monitor=watch, **settings)
    est.fit(*draw[0], validation=draw[1])
    return np.array(found), est


def tuned(draw, method, quick=False, own=None, rates=RATES, **settings):
    """The constants of the best validation score: first a method's own one, then the step size."""
    own, middle, tried = own or OWN[method], rates[len(rates) // 2], {}

    def score(rate, more):
        if (rate, said(more)) not in tried:
            try:
                found = curve(draw, TUNING, method, of=1, **settings, **{RATE: rate, **more})[0][-1]
            except ValueError:  # it diverged
                found = -np.inf
            tried[rate, said(more)] = found
        return tried[rate, said(more)]

    more = best(own, lambda more: score(middle, more))
    others = [] if quick else [rate for rate in rates if rate != middle]
    return {RATE: best([middle, *others], lambda rate: score(rate, more)), **more}


def published(method, column):
    """What the paper has in a column of Table 3, if anything."""
    return f"{PUBLISHED[method][column] / 100:.3f}" if method in PUBLISHED else ""


def repeated(draws, method, **settings):
    """Curves of the draws, (repeats, rounds)."""
    return np.array([curve(d, seed, method, **settings)[0] for seed, d in enumerate(draws)])


def said(constants):
    return "; ".join(f"{name} {value}" for name, value in constants.items())


def at_rounds(found):
    mean = found.mean(axis=0)
    return {f"round_{t}": f"{mean[t - 1]:.3f}" for t in ROUNDS}


# ------------------------------------------------------------------------------ Table 3
def table3(quick, repeats):
    """Table 3, and the curve of each of its rows (figure 7)."""
    rows, curves = [], []
    names = [*DATA][:: 2 if quick else 1]

    def add(draws, label, heads, method, paper, constants, **settings):
        found = repeated(draws, method, **settings, **constants)
        about = line("data, heads, method", label, heads, method)
        end = *mean_sd(found[:, -1]), paper, said(constants), repeats
        rows.append(about | line("accuracy, sd, paper, constants, draws", *end))
        curves.append(about | at_rounds(found))

    for name in names:
        draws = [faces(name, "D1", seed, quick) for seed in range(repeats)]
        tuning, constants = faces(name, "D1", TUNING, quick), {}
        for method in OWN:
            constants[method] = tuned(tuning, method, quick)
            paper = published(method, [*DATA].index(name))
            add(draws, name, "position", method, paper, constants[method])
        for method in OWN:
            if method.startswith("fedmtl") or method == "local":
                continue  # the same
            own = [{k: v for k, v in constants[method].items() if k != RATE}]
            groups = {"groups": "equal sets"}  # its own constant stays, the step size does not
            again = tuned(tuning, method, quick, own, **groups)
            add(draws, name, "equal sets", method, "", again, **groups)
    for name, paper in (("CelebA", "0.825"), ("LFWA", "0.705")):  # "Different Numbers of Tasks"
        if name in names:
            draws = [faces(name, "D2", seed, quick) for seed in range(repeats)]
            tuning = faces(name, "D2", TUNING, quick)
            for method in ("fedmtl", "fedmtl, Z tuned", "local"):
                known = paper if method == "fedmtl" else ""
                add(draws, f"{name}, D2", "", method, known, tuned(tuning, method, quick))
    return {"table3": rows, "curves": curves}


# ------------------------------------------------------------------------------ figure 8
ABLATION = {
    "FedMTL": ("fedmtl", {}),
    "X": ("fedmtl-x", {}),
    "G": ("fedmtl-g", {}),
    "T": ("fedmtl-t", {}),
    "J": ("fedmtl-j", {}),
    "E": ("fedmtl-e", {}),
    "Z = .8": ("fedmtl", {"threshold": 0.8}),
    "Z = .9": ("fedmtl", {"threshold": 0.9}),
    "Z from .5 to .75": ("fedmtl", {"threshold": (0.5, 0.75)}),
    "own start of heads": ("fedmtl", {"start": "own"}),
    "local": ("local", {}),
}


def ablation(quick, repeats):
    """Rows of figure 8, for FaceA; "change" is the accuracy minus FedMTL's on the same draws."""
    cases = (("D1", 0.5), ("D2", 0.5), ("pairs", 0.0))
    for distribution, agree in cases[: 2 if quick else None]:
        draws = [faces("FaceA", distribution, seed, quick, agree) for seed in range(repeats)]
        tuning, base = faces("FaceA", distribution, TUNING, quick, agree), None
        for name, (method, settings) in ABLATION.items():
            constants = tuned(tuning, method, quick, own=[settings])
            found = repeated(draws, method, **constants)
            base = found[:, -1] if base is None else base
            yield line(
                "tasks, agreement, version, accuracy, sd, change, change_sd, rate, draws",
                *(distribution, agree, name),
                *(*mean_sd(found[:, -1]), *mean_sd(found[:, -1] - base)),
                *(constants[RATE], repeats),
            ) | at_rounds(found)


# ------------------------------------------------------------------------------ NYUD2
def scenes(quick, repeats):
    """Table 3's columns of NYUD2: 20 clients, 4 tasks of 3 categories, batches of 2."""

    def draw(seed, distribution):
        sizes = dirichlet_sizes(260, 20, random_state=seed)
        sets = task_sets(20, 4, distribution, random_state=seed)
        return parts_of(*make_scenes(sizes, sets, random_state=seed), seed)

    def network():
        how = {"batch_size": 2, "n_rounds": 2 if quick else 20, "inner_steps": 2}
        return PublishedFedMTLNetwork(*segnet(filters=(8, 12)), **how)

    cells = [("D1", method) for method in OWN if "tuned" not in method] + [("D2", "fedmtl")]
    for distribution, method in cells[:: 4 if quick else 1]:
        own = OWN[method][-1:] if method != "fedprox" else STRENGTHS[:1]
        tuning = draw(TUNING, distribution)
        constants = tuned(tuning, method, quick, own, (0.1, 0.3), est=network())
        ends, ious = [], []
        for seed in range(repeats):
            rows = draw(seed, distribution)
            points, est = curve(rows, seed, method, est=network(), **constants)
            ends.append(points[-1])
            ious.append(est.models_.score(*rows[2], mean_iou))
        paper = [published(method, 3), published(method, 4)]
        paper = paper if distribution == "D1" else ["0.367", ""]
        yield line(
            "tasks, method, mean_iou, iou_sd, paper_iou, pixel_accuracy, sd, paper_accuracy, "
            "constants, draws",
            *(distribution, method, *mean_sd(ious), paper[0], *mean_sd(ends), paper[1]),
            *(said(constants), repeats),
        )


# ------------------------------------------------------------------------------ figures 2, 5, 6
def layers_of(models):
    """Weights of the bottom and top shared layers, and the heads, of every client."""
    bottom, top, heads = [], [], []
    for one in models.of.values():
        views, own = one.model._views(one.w)
        bottom.append(views[0][0].ravel())
        top.append(views[-1][0].ravel())
        heads.append([(task, head.ravel()) for task, head in zip(one.tasks, own, strict=True)])
    return np.array(bottom), np.array(top), heads


def nearness(W, groups):
    """Mean cosine within and between groups, and the silhouette in the plane of t-SNE."""
    groups = np.asarray(groups)
    A, same = cosines(W, W), groups[:, None] == groups
    np.fill_diagonal(same, False)
    other = groups[:, None] != groups
    plane = TSNE(perplexity=10, random_state=0).fit_transform(W)
    return A[same].mean(), A[other].mean(), silhouette_score(plane, groups)


def figures(quick, repeats):
    """Figures 2 and 6: cosines and silhouettes, with a column for each of some rounds; figure 5."""
    moments = (1, 2) if quick else (1, 5, 20)
    rows = list(_rows("2", second(moments)))
    for agree, method in itertools.product((0.5, 0.0), ("local", "fedmtl")):
        rows += _rows(f"6, agreement {agree}, {method}", sixth(moments, method, agree))
    return {"layers": rows, "clients": clients()}


def _rows(figure, found):
    """`found`: {round: {(layer, quantity): value}}"""
    for layer, quantity in next(iter(found.values())):
        values = {f"round_{t}": f"{of[layer, quantity]:.3f}" for t, of in found.items()}
        yield {"figure": figure, "layer": layer, "quantity": quantity} | values


def second(moments):
    """Six groups of ten clients, each alone for 20 epochs, from a common start."""
    kinds, group = ([0], [1], [2], [0, 1], [0, 2], [0, 3]), np.repeat(np.arange(6), 10)
    sizes = dirichlet_sizes(12_000, 60, random_state=0)
    domain = np.zeros(60, dtype=int)
    rows = make_faces(sizes, [kinds[g] for g in group], domain, n_tasks=4, random_state=0)
    found = {}

    def watch(t, models):
        if t not in moments:
            return
        bottom, top, heads = layers_of(models)
        flat = [(task, head) for own in heads for task, head in own]
        layers = {
            "task layers, by task": (np.array([h for _, h in flat]), [k for k, _ in flat]),
            "top shared layer, by group": (top, group),
            "bottom shared layer, by group": (bottom, group),
        }
        names = ("cosine within", "cosine between", "silhouette of t-SNE")
        found[t] = {
            (layer, name): value
            for layer, (W, groups) in layers.items()
            for name, value in zip(names, nearness(W, groups), strict=True)
        }

    est = PublishedFedMTL((32, 32), method="local", learning_rate=1.0, random_state=0)
    est.set_params(n_rounds=max(moments), monitor=watch).fit(*rows)
    return found


def sixth(moments, method, agree):
    """Two domains and four pairs of tasks, ten clients of every kind: mean cosines."""
    draw, names, found = faces("FaceA", "pairs", 0, correlation=agree), np.arange(80), {}
    domain, pair = names // 4 % 2, names % 4
    equal, same = pair[:, None] == pair, domain[:, None] == domain
    kinds = {
        "same tasks, same domain": equal & same & ~np.eye(80, dtype=bool),
        "same tasks, other domain": equal & ~same,
        "other tasks": ~equal,
    }

    def watch(t, models):
        if t not in moments:
            return
        _, top, heads = layers_of(models)
        W = np.array([np.concatenate([head for _, head in own]) for own in heads])
        layers = {"task layers": W, "shared layer": top}
        found[t] = {
            (layer, kind): cosines(values, values)[where].mean()
            for layer, values in layers.items()
            for kind, where in kinds.items()
        }

    est = PublishedFedMTL(method=method, learning_rate=1.5, random_state=0)
    est.set_params(n_rounds=max(moments), monitor=watch).fit(*draw[0])
    return found


def clients():
    """Figure 5: quantiles of rows per client; clients by number of tasks, and by task."""
    sizes = dirichlet_sizes(12_000, 60, random_state=0)
    sets = task_sets(60, 8, "D2", random_state=0)
    values = {f"5a rows, {q} % quantile": int(np.percentile(sizes, q)) for q in range(0, 101, 25)}
    values |= {f"5b clients with {n} tasks": sum(len(s) == n for s in sets) for n in range(1, 9)}
    values |= {f"5c clients with task {k}": sum(k in s for s in sets) for k in range(8)}
    for what, value in values.items():
        yield line("figure, what, value", what[:2], what[3:], value)


# ------------------------------------------------------------------------------ section 6.1
def drawn_uploads(n, ds, k, dt, seed=0):
    """Uploads of n clients with two of k tasks, or with k tasks."""
    rng = np.random.default_rng(seed)
    return [
        Upload(rng.normal(size=ds), rng.normal(size=(k, dt)), list(range(k)), 100, 0.5)
        for _ in range(n)
    ]


def seconds(function, least):
    """CPU seconds of a call, from calls of about `least` seconds together."""
    function()
    count, start = 0, time.process_time()
    while time.process_time() - start < least:
        function()
        count += 1
    return (time.process_time() - start) / count


def overhead(quick, repeats):
    """Time of clients and server and numbers sent, of rounds on FaceA."""
    draw, base = faces("FaceA", "D1", 0, quick), None
    found = []
    for method in ("fedavg", "fedprox", "pfedme", "mocha", "fedamp", "fedfomo", "fedmtl"):
        est = curve(draw, 0, method, learning_rate=0.3)[1]
        h, size = est.history_, est.n_shared_ + 2 * est.head_size_
        rates = h["client_seconds"].mean(), h["server_seconds"].mean()
        base, numbers = base or rates, h["participants"][0] * size
        found.append(
            line(
                "method, client_seconds, over_fedavg, server_seconds, server_over_fedavg, "
                "sent_up, sent_down",
                *(method, f"{rates[0]:.4f}", f"{rates[0] / base[0]:.2f}"),
                *(f"{rates[1]:.5f}", f"{rates[1] / base[1]:.1f}"),
                *(f"{h[way].mean() / numbers:.2f}" for way in ("uploaded", "downloaded")),
            )
        )
    return {"overhead": found, "growth": growth(quick)}


GROWTH = {  # argument of `drawn_uploads`, its values
    "clients": ("n", (10, 20, 40, 80, 160)),
    "shared parameters": ("ds", (3_000, 30_000, 300_000)),
    "tasks": ("k", (2, 4, 8, 16)),
}
SERVER = {
    "FedMTL": lambda u: aggregate(u, *VERSIONS["fedmtl"](u)),
    "FedMTL-G": lambda u: aggregate(u, *VERSIONS["fedmtl-g"](u)),
    "FedAMP": lambda u: attention(whole(u), 1.0),
    "MOCHA": lambda u: coupled(whole(u)),
    "FedAvg": lambda u: mean_model(whole(u), np.array([one.size for one in u], dtype=float)),
}


def whole(uploads):
    return np.stack([np.concatenate([u.shared, u.heads.ravel()]) for u in uploads])


def growth(quick):
    """Seconds of a server over N, d and K, and their exponents."""
    base = {"n": 40, "ds": 3_000, "k": 2, "dt": 165}
    for swept, (argument, points) in GROWTH.items():
        points = points[: 2 if quick else None]
        for name, function in SERVER.items():
            found = []
            for point in points:
                uploads = drawn_uploads(**base | {argument: point})
                found.append(seconds(lambda f=function, u=uploads: f(u), 0.01 if quick else 0.15))
            slope = np.polyfit(np.log(points[-3:]), np.log(found[-3:]), 1)[0]
            milliseconds = (f"{1e3 * of:.3g}" for of in (found[0], found[-1]))
            names = "swept, method, exponent, from, to, first_ms, last_ms"
            yield line(names, swept, name, f"{slope:.2f}", points[0], points[-1], *milliseconds)


# ------------------------------------------------------------------------------ figure 9
THRESHOLD = 0.6
SHAPE = {"n_clients": 20, "n_tasks": 8, "max_heads": 2, "head_length": 165, "n_shared": 800}
RATIO = {
    "clients": [{"n_clients": n} for n in (10, 20, 40, 80)],
    "tasks": [{"max_heads": k} for k in (1, 2, 4, 8)],
    "servers": [{"n_servers": p} for p in (2, 3, 4, 5)],
}
PAPER = {"n_clients": 80, "n_tasks": 8, "max_heads": 8, "head_length": 2505, "n_shared": 1_628_210}


def problem(n_clients, n_tasks, max_heads, head_length, n_shared, seed=0):
    """Uploads of two domains, each client with 1 to max_heads of the tasks."""
    rng = np.random.default_rng(seed)
    kinds = rng.normal(size=(2, n_tasks, head_length))
    found, layers = [], rng.normal(size=(n_clients, n_shared))
    for shared in layers:
        domain, count = rng.integers(2), rng.integers(1, max_heads + 1)
        own = sorted(rng.choice(n_tasks, count, replace=False).tolist())
        heads = kinds[domain, own] + 0.5 * rng.normal(size=(count, head_length))
        found.append(Upload(shared, heads, own, int(rng.integers(20, 400)), THRESHOLD))
    return found


def in_secret(uploads, n_servers, max_heads, rounds=3):
    """A secure round, the cheapest of some.

    -> shared, heads; part -> CPU seconds; megabytes sent; gigabytes of servers and dealer
    """
    fields = ("heads", "tasks", "size")
    layers = uploads[0].shared.base  # of all clients, not copied
    arguments = layers, *([getattr(u, name) for u in uploads] for name in fields), THRESHOLD
    best = None
    with SecureServers(n_servers=n_servers, timeout=3600.0) as servers:
        for _ in range(rounds):  # the first one also loads code
            shared, heads, _ = servers.aggregate(*arguments, max_heads=max_heads)
            cpu, sent = {}, 0.0
            for own in servers.costs.values():
                for part, (_, seconds, n_bytes) in own.items():
                    cpu[part] = cpu.get(part, 0.0) + seconds
                    sent += n_bytes / 1e6
            if best is None or sum(cpu.values()) < sum(best[0].values()):
                best = cpu, sent
        held = sum(peak_memory(process.pid) for process in servers.processes)
    return shared, heads, *best, held


def peak_memory(pid):
    """Gigabytes, on Linux."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9


def ratios(quick):
    """Figure 9: CPU seconds of a secure over those of a plain aggregation."""
    for swept, points in RATIO.items():
        for point in points[: 1 if quick else None]:
            servers = point.get("n_servers", 3)
            shape = SHAPE | {k: v for k, v in point.items() if k != "n_servers"}
            uploads, least = problem(**shape), 0.05 if quick else 0.3
            plain = seconds(lambda u=uploads: aggregate(u, *VERSIONS["fedmtl"](u)), least)
            *_, cpu, sent, _ = in_secret(uploads, servers, shape["max_heads"])
            secure = sum(cpu.values())
            yield line(
                "swept, clients, max_heads, servers, plain_cpu_seconds, secure_cpu_seconds, "
                "ratio, megabytes",
                *(swept, shape["n_clients"], shape["max_heads"], servers),
                *(f"{plain:.4f}", f"{secure:.3f}", f"{secure / plain:.1f}", f"{sent:.2f}"),
            )


BASE = {"n_clients": 20, "n_tasks": 8, "max_heads": 4, "head_length": 50, "n_shared": 1000}
CASES = {
    "base": BASE,
    "80 clients": BASE | {"n_clients": 80},
    "8 heads": BASE | {"max_heads": 8},
    "100,000 shared": BASE | {"n_shared": 100_000},
    "paper": PAPER,
}


WORK = ("uploads", "cosines", "matching", "weights", "heads", "shared layers", "answers")


def secure_parts(quick):
    """CPU seconds of a secure round, part by part, of all processes together.

    "base" is 20 clients with 1 to 4 of 8 tasks, 4 uploaded heads of 50 parameters and 1,000 shared
    ones, and the next cases change one number of it; "paper" is the size of section 7.2. Memory is
    that of servers and dealer; the clients' models are in the process that plays them.
    """
    for case, shape in list(CASES.items())[: 1 if quick else None]:
        uploads = problem(**shape)
        start = time.process_time()
        plain_shared, plain_heads = aggregate(uploads, *VERSIONS["fedmtl"](uploads))
        plain = time.process_time() - start
        for n_servers in (2, 3, 5):
            rounds = 1 if case == "paper" else 3
            found = in_secret(uploads, n_servers, shape["max_heads"], rounds)
            shared, heads, cpu, sent, held = found
            pairs = [(shared, plain_shared), *zip(heads, plain_heads, strict=True)]
            largest = max(np.abs(theirs).max() for _, theirs in pairs)
            difference = max(np.abs(ours - theirs).max() for ours, theirs in pairs) / largest
            whole = sum(cpu.values())
            parts = (f"{cpu[part]:.2g}" for part in WORK)
            yield line(
                f"case, servers, plain_cpu_seconds, {', '.join(WORK)}, cpu_seconds, "
                "share_of_shared_layers, megabytes, gigabytes_of_memory, difference",
                *(case, n_servers, f"{plain:.3g}", *parts, f"{whole:.3g}"),
                *(f"{cpu['shared layers'] / whole:.2f}", f"{float(f'{sent:.4g}'):g}"),
                *(f"{held:.2g}", f"{difference:.0e}"),
            )


def sizes():
    """Table 2, and bytes of a client with LeNet and two heads, measured and by formula."""
    table = {
        "LeNet": (1_628_210, 2_505),
        "MobileNet_v2": (2_223_872, 6_405),
        "SegNet": (24_943_296, 37_123),
    }
    names = "model, shared, head, delta_MiB, servers, to_one_server_MiB, sent_over_delta, 2_P"
    for name, (shared, head) in table.items():
        delta = 8 * (shared + 2 * head)
        about = name, shared, head, f"{delta / 2**20:.2f}"
        if name != "LeNet":
            yield line(names, *about, "", "", "", "")
            continue
        shape = {"n_clients": 80, "n_shared": shared, "n_tasks": 8, "head_length": head}
        shape |= {"max_heads": 2, "max_size": 1024.0, "name": "sizes", "round": 0}
        for n_servers in (2, 3, 5):
            job = Job(n_servers=n_servers, **shape)
            upload = np.zeros(shared), np.ones((2, head)), [0, 1], 100, 0.75
            sections = split_upload(job, 0, *upload)[1]
            sent = np.array([[len(share) for share in shares] for shares in sections])
            answers = sum(8 * job.n_answer(section) for section in range(job.n_sections))
            over = f"{(sent.sum() + answers * n_servers) / delta:.3f}"
            to_one = f"{sent[:, 0].sum() / 2**20:.2f}"
            yield line(names, *about, n_servers, to_one, over, 2 * n_servers)


def secure_accuracy(quick):
    """The last claim of section 7.2: secure and plain fits on the same rows."""
    known = {"learning_rate": 1.0, "n_rounds": 2 if quick else 20}
    for name in list(DATA)[: 1 if quick else None]:
        draw, scores, models = faces(name, "D1", 0, quick), [], []
        for secret in (False, True):
            points, est = curve(draw, 0, "fedmtl", secure=secret, **known)
            scores.append(f"{points[-1]:.4f}")
            models.append(np.concatenate([c.w for c in est.models_.of.values()]))
        difference = f"{np.abs(models[1] - models[0]).max():.1e}"
        yield line("data, plain, secure, largest_difference", name, *scores, difference)


def secure(quick, repeats):
    found = {"ratio": ratios(quick), "secure": secure_parts(quick)}
    return found | {"sizes": sizes(), "secret": secure_accuracy(quick)}


# ------------------------------------------------------------------------------ CelebA itself
def celeba(quick, repeats, folder):
    """Table 3 with LeNet on CelebA's own files, 3 runs, constants of the method by validation."""
    n_clients, n_rows = (4, 60) if quick else (60, 12_000)
    X, Y, _ = load_celeba(folder, n_rows, random_state=0)
    shape = {"channels": (2, 3), "width": 5} if quick else {}

    def draw(seed):
        sizes = dirichlet_sizes(n_rows, n_clients, random_state=seed)
        client = np.repeat(np.arange(n_clients), sizes)
        order = np.random.default_rng(seed).permutation(n_rows)
        y = Y[order]
        for i, own in enumerate(task_sets(n_clients, 8, "D1", random_state=seed)):
            y[np.ix_(client == i, np.setdiff1d(np.arange(8), own))] = np.nan
        return parts_of(X[order], y, client, seed)

    def network():
        return PublishedFedMTLNetwork(*lenet(**shape), n_rounds=2 if quick else 20)

    for method in list(OWN)[: 1 if quick else None]:
        constants = tuned(draw(TUNING), method, quick, rates=(0.03, 0.1, 0.3), est=network())
        fits = (curve(draw(k), k, method, est=network(), **constants) for k in range(repeats))
        parts = *mean_sd([points[-1] for points, _ in fits]), published(method, 0), said(constants)
        yield line("method, accuracy, sd, paper, constants, draws", method, *parts, repeats)


TABLES = {
    "figures": (figures, 1),
    "table3": (table3, 3),
    "ablation": (ablation, 3),
    "scenes": (scenes, 3),
    "overhead": (overhead, 1),
    "secure": (secure, 1),
}


def main(arguments=None):
    def of_celeba(options):
        return {"celeba": (partial(celeba, folder=options.celeba), 3)}

    folder = "folder of CelebA's files; nothing else then"
    return run("fedmtl", __doc__, TABLES, arguments, of_celeba, celeba=folder)


if __name__ == "__main__":
    main()
