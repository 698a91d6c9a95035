"""Sen and Borcea, "FedMTL: privacy-preserving federated multi-task learning": what it claims.

    python -m benchmarks.papers.fedmtl [--quick] [--only PART] [--celeba FOLDER] [--output FOLDER]

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
from pathlib import Path

import numpy as np
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

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

from ..command import PAPERS, command_line, write_rows

PARTS = ("figures", "table3", "ablation", "scenes", "overhead", "secure")
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
    est.set_params(
        method=method.split(",")[0],
        random_state=seed,
        monitor=lambda t, models: found.append(models.score(*draw[of], measure)),
        **settings,
    )
    est.fit(*draw[0], validation=draw[1])
    return np.array(found), est


def tuned(draw, method, quick=False, own=None, rates=RATES, **settings):
    """The constants of the best validation score: first a method's own one, then the step size."""

    def score(constants):
        try:
            with np.errstate(all="ignore"):
                return curve(draw, TUNING, method, of=1, **settings, **constants)[0][-1]
        except ValueError:  # it diverged
            return -np.inf

    own, middle = own or OWN[method], rates[len(rates) // 2]
    found = [score({RATE: middle, **more}) for more in own]
    more, scores = own[int(np.argmax(found))], {middle: max(found)}
    for rate in () if quick else rates:
        if rate != middle:
            scores[rate] = score({RATE: rate, **more})
    return {RATE: max(scores, key=scores.get), **more}


def repeated(draws, method, **settings):
    """Curves of the draws, (repeats, rounds)."""
    return np.array([curve(d, seed, method, **settings)[0] for seed, d in enumerate(draws)])


def summary(values):
    """Mean and standard deviation as text."""
    sd = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.4f}", f"{sd:.4f}"


def said(constants):
    return "; ".join(f"{name} {value}" for name, value in constants.items())


def at_rounds(found):
    mean = found.mean(axis=0)
    return {f"round_{t}": f"{mean[t - 1]:.3f}" for t in ROUNDS}


# ------------------------------------------------------------------------------ Table 3
def table3(quick, names=tuple(DATA)):
    """Yield rows of Table 3, each with the row of its curve (figure 7)."""
    repeats = 1 if quick else 3
    for name in names[:: 2 if quick else 1]:
        draws = [faces(name, "D1", seed, quick) for seed in range(repeats)]
        tuning, found_by_position = faces(name, "D1", TUNING, quick), {}
        for groups, method in itertools.product(("position", "equal sets"), OWN):
            if groups != "position" and (method.startswith("fedmtl") or method == "local"):
                continue  # they are the same
            if groups == "position":
                found_by_position[method] = tuned(tuning, method, quick)
                constants = found_by_position[method]
            else:  # its own constant stays, and the step size is chosen again
                own = [{k: v for k, v in found_by_position[method].items() if k != RATE}]
                constants = tuned(tuning, method, quick, own, groups=groups)
            found = repeated(draws, method, groups=groups, **constants)
            mean, sd = summary(found[:, -1])
            row = {"data": name, "heads": groups, "method": method, "accuracy": mean, "sd": sd}
            paper = (
                PUBLISHED.get(method, ("",) * 5)[list(DATA).index(name)]
                if groups == "position"
                else ""
            )
            row |= {"paper": paper and f"{paper / 100:.3f}", "constants": said(constants)}
            row["draws"] = repeats
            yield row, {"data": name, "heads": groups, "method": method} | at_rounds(found)
    for name, paper in (("CelebA", "0.825"), ("LFWA", "0.705")):  # "Different Numbers of Tasks"
        if name not in names:
            continue
        draws = [faces(name, "D2", seed, quick) for seed in range(repeats)]
        tuning = faces(name, "D2", TUNING, quick)
        for method in ("fedmtl", "fedmtl, Z tuned", "local"):
            constants = tuned(tuning, method, quick)
            found = repeated(draws, method, **constants)
            mean, sd = summary(found[:, -1])
            row = {"data": f"{name}, D2", "heads": "", "method": method, "accuracy": mean}
            row |= {"sd": sd, "paper": paper if method == "fedmtl" else ""}
            row |= {"constants": said(constants), "draws": repeats}
            yield row, {"data": row["data"], "heads": "", "method": method} | at_rounds(found)


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


def ablation(quick):
    """Rows of figure 8, for FaceA; "change" is the accuracy minus FedMTL's on the same draws."""
    repeats = 1 if quick else 3
    cases = (("D1", 0.5), ("D2", 0.5), ("pairs", 0.0))
    for distribution, agree in cases[: 2 if quick else None]:
        draws = [faces("FaceA", distribution, seed, quick, agree) for seed in range(repeats)]
        tuning, base = faces("FaceA", distribution, TUNING, quick, agree), None
        for name, (method, settings) in ABLATION.items():
            constants = tuned(tuning, method, quick, own=[settings])
            found = repeated(draws, method, **constants)
            base = found[:, -1] if base is None else base
            (mean, sd), (change, change_sd) = summary(found[:, -1]), summary(found[:, -1] - base)
            row = {
                "tasks": distribution,
                "agreement": agree,
                "version": name,
                "accuracy": mean,
                "sd": sd,
            }
            row |= {"change": change, "change_sd": change_sd}
            row |= {"rate": constants["learning_rate"], "draws": repeats}
            yield row | at_rounds(found)


# ------------------------------------------------------------------------------ NYUD2
def scenes(quick):
    """Table 3's columns of NYUD2: 20 clients, 4 tasks of 3 categories, batches of 2."""
    repeats, rounds = (1, 2) if quick else (3, 20)

    def draw(seed, distribution):
        sizes = dirichlet_sizes(260, 20, random_state=seed)
        sets = task_sets(20, 4, distribution, random_state=seed)
        return parts_of(*make_scenes(sizes, sets, random_state=seed), seed)

    def network():
        return PublishedFedMTLNetwork(
            *segnet(filters=(8, 12)), batch_size=2, n_rounds=rounds, inner_steps=2
        )

    cells = [("D1", method) for method in OWN if "tuned" not in method] + [("D2", "fedmtl")]
    for distribution, method in cells[:: 4 if quick else 1]:
        own = OWN[method][-1:] if method != "fedprox" else STRENGTHS[:1]
        tuning = draw(TUNING, distribution)
        constants = tuned(tuning, method, quick, own, (0.1, 0.3), est=network())
        found = [
            curve(draw(seed, distribution), seed, method, est=network(), **constants)
            for seed in range(repeats)
        ]
        ious = [
            est.models_.score(*draw(seed, distribution)[2], mean_iou)
            for seed, (_, est) in enumerate(found)
        ]
        (iou, iou_sd), (mean, sd) = summary(ious), summary([points[-1] for points, _ in found])
        paper = PUBLISHED.get(method, ("",) * 5)[3:] if distribution == "D1" else (36.7, "")
        yield {
            "tasks": distribution,
            "method": method,
            "mean_iou": iou,
            "iou_sd": iou_sd,
            "paper_iou": paper[0] and f"{paper[0] / 100:.3f}",
            "pixel_accuracy": mean,
            "sd": sd,
            "paper_accuracy": paper[1] and f"{paper[1] / 100:.3f}",
            "constants": said(constants),
            "draws": repeats,
        }


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


def figures(quick):
    """Figures 2 and 6: cosines and silhouettes, with a column for each of some rounds."""
    moments = (1, 2) if quick else (1, 5, 20)
    yield from _rows("2", second(moments))
    for agree in (0.5, 0.0):
        for method in ("local", "fedmtl"):
            yield from _rows(f"6, agreement {agree}, {method}", sixth(moments, method, agree))


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
    for q in (0, 25, 50, 75, 100):
        yield {
            "figure": "5a",
            "what": f"rows, {q} % quantile",
            "value": int(np.percentile(sizes, q)),
        }
    for count in range(1, 9):
        held = sum(len(own) == count for own in sets)
        yield {"figure": "5b", "what": f"clients with {count} tasks", "value": held}
    for k in range(8):
        yield {"figure": "5c", "what": f"clients with task {k}", "value": sum(k in s for s in sets)}


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


def overhead(quick):
    """Time of clients and server and numbers sent, of rounds on FaceA."""
    draw, rates = faces("FaceA", "D1", 0, quick), {}
    methods = ["fedavg", "fedprox", "pfedme", "mocha", "fedamp", "fedfomo", "fedmtl"]
    for method in methods:
        est = curve(draw, 0, method, learning_rate=0.3)[1]
        h, size = est.history_, est.n_shared_ + 2 * est.head_size_
        rates[method] = h["client_seconds"].mean(), h["server_seconds"].mean()
        base = rates["fedavg"]
        n = h["participants"][0]
        yield {
            "method": method,
            "client_seconds": f"{rates[method][0]:.4f}",
            "over_fedavg": f"{rates[method][0] / base[0]:.2f}",
            "server_seconds": f"{rates[method][1]:.5f}",
            "server_over_fedavg": f"{rates[method][1] / base[1]:.1f}",
            "sent_up": f"{h['uploaded'].mean() / n / size:.2f}",
            "sent_down": f"{h['downloaded'].mean() / n / size:.2f}",
        }


GROWTH = {
    "clients": [{"n": n} for n in (10, 20, 40, 80, 160)],
    "shared parameters": [{"ds": d} for d in (3_000, 30_000, 300_000)],
    "tasks": [{"k": k} for k in (2, 4, 8, 16)],
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
    for swept, points in GROWTH.items():
        points = points[: 2 if quick else None]
        for name, function in SERVER.items():
            found = []
            for point in points:
                uploads = drawn_uploads(**{**base, **point})
                found.append(seconds(lambda f=function, u=uploads: f(u), 0.01 if quick else 0.15))
            x = np.log([next(iter(point.values())) for point in points])
            slope = np.polyfit(x[-3:], np.log(found[-3:]), 1)[0]
            row = {"swept": swept, "method": name, "exponent": f"{slope:.2f}"}
            row["from"], row["to"] = next(iter(points[0].values())), next(iter(points[-1].values()))
            yield row | {"first_ms": f"{1e3 * found[0]:.3g}", "last_ms": f"{1e3 * found[-1]:.3g}"}


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
    from skpmtl.fedmtl.secure import SecureServers

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
            uploads = problem(**shape)
            plain = seconds(
                lambda u=uploads: aggregate(u, *VERSIONS["fedmtl"](u)), 0.05 if quick else 0.3
            )
            *_, cpu, sent, _ = in_secret(uploads, servers, shape["max_heads"])
            secure = sum(cpu.values())
            yield {
                "swept": swept,
                "clients": shape["n_clients"],
                "max_heads": shape["max_heads"],
                "servers": servers,
                "plain_cpu_seconds": f"{plain:.4f}",
                "secure_cpu_seconds": f"{secure:.3f}",
                "ratio": f"{secure / plain:.1f}",
                "megabytes": f"{sent:.2f}",
            }


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
            yield {
                "case": case,
                "servers": n_servers,
                "plain_cpu_seconds": f"{plain:.3g}",
                **{part: f"{cpu[part]:.2g}" for part in WORK},
                "cpu_seconds": f"{whole:.3g}",
                "share_of_shared_layers": f"{cpu['shared layers'] / whole:.2f}",
                "megabytes": f"{float(f'{sent:.4g}'):g}",
                "gigabytes_of_memory": f"{held:.2g}",
                "difference": f"{difference:.0e}",
            }


def sizes():
    """Table 2, and bytes of a client with LeNet and two heads, measured and by formula."""
    from skpmtl.fedmtl.secure import Job, split_upload

    table = {
        "LeNet": (1_628_210, 2_505),
        "MobileNet_v2": (2_223_872, 6_405),
        "SegNet": (24_943_296, 37_123),
    }
    for name, (shared, head) in table.items():
        delta = 8 * (shared + 2 * head)
        row = {"model": name, "shared": shared, "head": head, "delta_MiB": f"{delta / 2**20:.2f}"}
        for n_servers in (2, 3, 5) if name == "LeNet" else ("",):
            row |= {"servers": n_servers, "to_one_server_MiB": "", "sent_over_delta": ""}
            if n_servers:
                job = Job(
                    n_servers=n_servers,
                    n_clients=80,
                    n_shared=shared,
                    n_tasks=8,
                    head_length=head,
                    max_heads=2,
                    max_size=1024.0,
                    name="sizes",
                    round=0,
                )
                zeros, heads = np.zeros(shared), np.ones((2, head))
                _, sections = split_upload(job, 0, zeros, heads, [0, 1], 100, 0.75)
                sent = np.array([[len(share) for share in shares] for shares in sections])
                row["to_one_server_MiB"] = f"{sent[:, 0].sum() / 2**20:.2f}"
                answers = sum(8 * job.n_answer(section) for section in range(job.n_sections))
                sent = sent.sum() + answers * n_servers
                row["sent_over_delta"] = f"{sent / delta:.3f}"
            yield row | {"2_P": 2 * n_servers if n_servers else ""}


def secure_accuracy(quick):
    """The last claim of section 7.2: secure and plain fits on the same rows."""
    for name in list(DATA)[: 1 if quick else None]:
        draw, found = faces(name, "D1", 0, quick), {}
        for secret in (False, True):
            points, est = curve(
                draw, 0, "fedmtl", secure=secret, learning_rate=1.0, n_rounds=2 if quick else 20
            )
            found[secret] = points[-1], np.concatenate([c.w for c in est.models_.of.values()])
        yield {
            "data": name,
            "plain": f"{found[False][0]:.4f}",
            "secure": f"{found[True][0]:.4f}",
            "largest_difference": f"{np.abs(found[True][1] - found[False][1]).max():.1e}",
        }


# ------------------------------------------------------------------------------ CelebA itself
def celeba(folder, quick):
    """Table 3 with LeNet on CelebA's own files, 3 runs, constants of the method by validation."""
    n_clients, n_rows = (4, 60) if quick else (60, 12_000)
    X, Y, _ = load_celeba(folder, n_rows, random_state=0)
    shape = {"channels": (2, 3), "width": 5} if quick else {}

    def draw(seed):
        client = np.repeat(
            np.arange(n_clients), dirichlet_sizes(n_rows, n_clients, random_state=seed)
        )
        y, order = Y.copy(), np.random.default_rng(seed).permutation(n_rows)
        y = y[order]
        for i, own in enumerate(task_sets(n_clients, 8, "D1", random_state=seed)):
            y[np.ix_(client == i, np.setdiff1d(np.arange(8), own))] = np.nan
        return parts_of(X[order], y, client, seed)

    def network():
        return PublishedFedMTLNetwork(*lenet(**shape), n_rounds=2 if quick else 20)

    for method in list(OWN)[: 1 if quick else None]:
        constants = tuned(draw(TUNING), method, quick, rates=(0.03, 0.1, 0.3), est=network())
        ends = [
            curve(draw(seed), seed, method, est=network(), **constants)[0][-1]
            for seed in range(1 if quick else 3)
        ]
        mean, sd = summary(ends)
        paper = PUBLISHED.get(method, ("",))[0]
        row = {
            "method": method,
            "accuracy": mean,
            "sd": sd,
            "paper": paper and f"{paper / 100:.3f}",
        }
        yield row | {"constants": said(constants), "draws": len(ends)}


def main(arguments=None):
    parser = command_line("papers.fedmtl", __doc__, PAPERS, "few clients, one draw")
    parser.add_argument("--only", choices=PARTS, help="default: all")
    parser.add_argument("--celeba", type=Path, help="folder of CelebA's files; this part only")
    options = parser.parse_args(arguments)
    quick, done = options.quick, {}
    parts = [options.only] if options.only else PARTS

    def write(name, rows):
        rows = list(rows)
        done[name] = write_rows(rows, tuple(rows[0]), options.output / f"fedmtl_{name}.csv")

    with threadpool_limits(1):
        if options.celeba is not None:
            write("celeba", celeba(options.celeba, quick))
            return done
        if "figures" in parts:
            write("layers", figures(quick))
            write("clients", clients())
        if "table3" in parts:
            found = list(table3(quick))
            write("table3", (row for row, _ in found))
            write("curves", (along for _, along in found))
        if "ablation" in parts:
            write("ablation", ablation(quick))
        if "scenes" in parts:
            write("scenes", scenes(quick))
        if "overhead" in parts:
            write("overhead", overhead(quick))
            write("growth", growth(quick))
        if "secure" in parts:
            write("ratio", ratios(quick))
            write("secure", secure_parts(quick))
            write("sizes", sizes())
            write("secret", secure_accuracy(quick))
    return done


if __name__ == "__main__":
    main()
