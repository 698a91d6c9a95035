"""Cells of a measurement on the public tables: one for a table, estimator, epsilon and split.

A csv holds them with the commit of the package. Cells that it has are not measured again, so that
an interrupted run continues where it stopped; a cell of our estimators counts for the present
commit only, one of a peer for every commit. --again measures all that were asked for, --read
nothing.
"""

import ast
import hashlib
import time
import warnings
from pathlib import Path

from benchmarks.asv.speed.tables import public

from ..command import RESULTS, command_line, git, one_thread, store, stored
from .features import FEATURES
from .sources import SOURCES, Unavailable, load

KEY = ("table", "estimator", "epsilon", "split")


def package_commit():
    """Commit that last changed the package; a digest follows where it was changed since."""
    name = git("log", "-1", "--format=%h", "--abbrev=10", "--", "skpmtl")
    if git("status", "--porcelain", "--", "skpmtl"):
        paths = sorted((RESULTS.parents[1] / "skpmtl").rglob("*.py"))
        name += "+" + hashlib.sha256(b"".join(p.read_bytes() for p in paths)).hexdigest()[:6]
    return name


def named(text):
    """-> name of the features or "", name of an estimator and its parameters

    From "NAME", "NAME(parameter=value, ...)", or one of both after "FEATURES:".
    """
    features, colon, rest = text.strip().partition(":")
    if not colon or features not in FEATURES:
        features, rest = "", text.strip()
    try:
        call = ast.parse(rest, mode="eval").body
        if isinstance(call, ast.Name):
            name, given = call.id, {}
        else:
            name = call.func.id
            given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
            if call.args or None in given:
                raise ValueError
        public(name)
    except (SyntaxError, ValueError, AttributeError):
        raise ValueError(
            f"{text!r} is not an estimator of skpmtl; write NAME or NAME(parameter=value), with "
            f"{' or '.join(f'{part}:' for part in FEATURES)} before it if features are wanted."
        ) from None
    return features, name, given


def epsilon_of(text):
    return None if text in ("none", "") else float(text)


def label(epsilon):
    return "none" if epsilon is None else f"{epsilon:g}"


def names_of(text):
    """Tables that are named, those of counts for "counts", or all others."""
    if text in ("", "counts"):
        return [n for n, s in SOURCES.items() if (s.loss == "poisson") == (text == "counts")]
    return text.split(",")


def loaded(text, folder=None):
    """Yield the tables of `names_of`; of these, those that need a folder only with one."""
    for name in names_of(text):
        if text or folder or SOURCES[name].place:
            yield load(name, folder)
        else:
            print(f"{name} is left out: no --folder holds it.")


def parser_of(module, doc, **defaults):
    """Parser of the options that say what is measured, and where the csv is."""
    parser = command_line(f"accuracy.{module}", doc)
    parser.add_argument(
        "--tables", default="", help="names, separated by commas, or counts: those of counts"
    )
    parser.add_argument("--splits", type=int)
    parser.add_argument("--estimators", help="separated by semicolons")
    parser.add_argument("--epsilon", help="numbers and none, separated by commas")
    parser.add_argument("--folder", type=Path, default=None, help="of tables that are read there")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--read", action="store_true")
    parser.set_defaults(**defaults)
    return parser


def columns_of(options, peers):
    """-> list of (estimator, epsilon); peers have no epsilon"""
    epsilons = [epsilon_of(part) for part in options.epsilon.split(",")]
    names = [part.strip() for part in options.estimators.split(";") if part.strip()]
    for name in names:
        if name not in peers:
            named(name)
    return [(n, eps) for n in names for eps in ([None] if n in peers else epsilons)]


def measure(parser, options, fields, figures, peers=()):
    """Measure what the csv lacks, and keep each cell at once. -> cells

    `parser`, `options`: of `parser_of`. `fields`: of the csv; a table and a cell know those before
    the figures. `figures`: ``figures(table, sample, estimator, epsilon, seed)`` -> dict of them.
    `peers`: collection of str.
    """
    cells = stored(options.output, lambda row: tuple(row[part] for part in KEY))
    try:
        columns = columns_of(options, peers)
        chosen = [] if options.read else list(loaded(options.tables, options.folder))
    except (Unavailable, ValueError) as fault:
        parser.error(str(fault))
    at, tables = package_commit(), list(SOURCES)
    work = [
        (t, split, *column) for t in chosen for split in range(options.splits) for column in columns
    ]
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for table, split, estimator, epsilon in work:
            cell = table.name, estimator, "" if epsilon is None else label(epsilon), str(split)
            known = cell in cells and (estimator in peers or cells[cell]["commit"] == at)
            if known and not options.again:
                continue
            about = {
                "commit": at,
                "loss": table.loss,
                "tasks": len(table.tasks),
                "rows": len(table.y),
                "features": table.X.shape[1],
                **dict(zip(KEY, cell, strict=True)),
            }
            start = time.process_time()
            found = figures(table, table.split(split), estimator, epsilon, split)
            seconds = round(time.process_time() - start, 2)
            cells[cell] = {**about, **found, "seconds": seconds}
            print(*cell, *found.values(), sep=",", flush=True)
            rows = sorted(cells.values(), key=lambda row: tables.index(row["table"]))
            store(options.output, rows, fields)
    return cells


def report(cells, names):
    """Print means over the splits."""
    print(f"{'table':14}{'estimator':22}{'epsilon':>8}" + "".join(f"{n:>13}" for n in names))
    for cell in dict.fromkeys(key[:3] for key in cells):
        rows = [row for key, row in cells.items() if key[:3] == cell]
        means = [[float(row[name]) for row in rows if row[name] != ""] for name in names]
        numbers = "".join(f"{sum(m) / len(m):13.3f}" if m else f"{'-':>13}" for m in means)
        print(f"{cell[0]:14}{cell[1]:22}{cell[2] or 'none':>8}{numbers}")
