"""Real multilevel tables: our estimators by epsilon, over mixed models and other peers.

    python -m benchmarks.multilevel [--tables A,B] [--splits N] [--estimators A;B]
        [--epsilon none,10,3,1,.3] [--peers A,B|none] [--folder DIR] [--again | --read]
        [--output FILE.csv] [--picture FILE.png]

Errors on test rows: mean squared error over the variance of the test targets, log-loss of classes,
or the mean Poisson deviance of counts, for which estimators have ``loss="poisson"``. A split puts
each row into the training part with probability .7. The csv holds one row per table, estimator,
epsilon and split, with the commit of the package; cells that it has are not measured again, so that
an interrupted run continues where it stopped. A cell of our estimators counts for
the present commit only, one of a peer for every commit. --again measures all that were asked for,
--read nothing: it prints and draws what the file holds.

Estimators are names, with parameters if need be: "PrivateMTL;PrivateMTL(structure='mean')";
"splines:PrivateMTL" has splines of public knots before it, "random:PrivateMTL" random features.
target_range='known' stands for the whole numbers around the targets of a table, with squared loss.
--tables, --estimators and --epsilon choose what is measured and printed. landmine, parkinson and
computer are read from --folder, which holds NAME/NAME_data.csv and NAME/NAME_target.csv; without it
they are left out. ``python -m pip install --group multilevel`` installs the tables and the peers;
a peer that is not installed is noted and left out.
"""

import argparse
import ast
import csv
import hashlib
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import skpmtl
from benchmarks.names import public

from ..checkouts import ROOT, git
from ..unseen.__main__ import epsilon_of
from .features import FEATURES
from .peers import MIXED, PEERS, Skipped, error_of, made_for, ours
from .picture import draw
from .sources import SOURCES, Unavailable, load

OUTPUT = Path("benchmarks", "results", "multilevel.csv")
FIELDS = (
    "commit",
    "table",
    "loss",
    "tasks",
    "rows",
    "features",
    "estimator",
    "epsilon",
    "split",
    "error",
    "seconds",
    "note",
)
KEY = ("table", "estimator", "epsilon", "split")
STARS = {"squared": "", "log-loss": "*", "poisson": "+"}


def package_commit():
    """Commit that last changed the package; a digest follows where it was changed since."""
    name = git("log", "-1", "--format=%h", "--abbrev=10", "--", "skpmtl")
    if git("status", "--porcelain", "--", "skpmtl"):
        paths = sorted((ROOT / "skpmtl").rglob("*.py"))
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


def measured(table, sample, estimator, epsilon, seed):
    """Error of a peer or of one of our estimators. -> error or "", CPU seconds, note"""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if estimator in PEERS:
                predicted = PEERS[estimator](sample, table.loss)
            else:
                features, name, given = named(estimator)
                if given.get("target_range") == "known":
                    given["target_range"] = (np.floor(table.y.min()), np.ceil(table.y.max()))
                    if table.loss != "squared":
                        del given["target_range"]
                if features:
                    make = partial(FEATURES[features], numeric=table.numeric)
                    sample = replace(sample, X=make(sample.X), X_test=make(sample.X_test))
                model = made_for(name, table.loss, sample, epsilon, seed).set_params(**given)
                predicted = ours(model, sample, table.loss)
            error, note = float(f"{error_of(predicted, table.loss, sample):.5g}"), ""
        except Skipped as reason:
            error, note = "", str(reason)
        except Exception as failure:  # whatever goes wrong is a result of the table
            text = " ".join(str(failure).split())
            error, note = "", f"error: {type(failure).__name__}: {text[:160]}"
    return {"error": error, "seconds": round(time.process_time() - start, 2), "note": note}


def read(path):
    """-> dict: (table, estimator, epsilon, split) -> row of the file, if there is one"""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {tuple(row[part] for part in KEY): row for row in csv.DictReader(file)}


def write(path, cells, fields=FIELDS):
    """Replace the file by the cells, in the order of `SOURCES`."""
    tables = list(SOURCES)
    rows = sorted(cells.values(), key=lambda row: tables.index(row["table"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows(rows)
    part.replace(path)


def measure(cells, tables, columns, splits, output, again=False):
    """Measure what the cells lack, and keep each at once.

    Parameters
    ----------
    cells : dict
        As `read` gives them; is changed.
    tables : list of Table
    columns : list of (estimator, epsilon)
    splits : int
    output : Path
    again : bool, default=False
        Measure all of them.
    """
    at = package_commit()
    for table in tables:
        about = {
            "commit": at,
            "table": table.name,
            "loss": table.loss,
            "tasks": len(table.tasks),
            "rows": len(table.y),
            "features": table.X.shape[1],
        }
        for split in range(splits):
            sample = table.split(split)
            for estimator, epsilon in columns:
                cell = (table.name, estimator, "" if epsilon is None else f"{epsilon:g}")
                key = (*cell, str(split))
                kept = cells.get(key)
                if kept and not again and (estimator in PEERS or kept["commit"] == at):
                    continue
                found = measured(table, sample, estimator, epsilon, split)
                cells[key] = {**about, **dict(zip(KEY, key, strict=True)), **found}
                print(*key, found["error"], found["note"], sep=",", flush=True)
                write(output, cells)


def means(cells, tables, columns, splits):
    """-> array (tables, columns): mean error over the splits; nan where one is missing."""
    out = np.full((len(tables), len(columns)), np.nan)
    for i, table in enumerate(tables):
        for j, (estimator, epsilon) in enumerate(columns):
            cell = (table, estimator, "" if epsilon is None else f"{epsilon:g}")
            found = [cells.get((*cell, str(split)), {}).get("error") for split in range(splits)]
            if all(error not in ("", None) for error in found):
                out[i, j] = np.mean([float(error) for error in found])
    return out


def yardstick(cells, tables, splits):
    """-> array (tables,): mean error of the best mixed model, chosen in hindsight, or nan."""
    found = means(cells, tables, [(name, None) for name in MIXED], splits)
    best = np.where(np.isnan(found), np.inf, found).min(axis=1)
    return np.where(np.isinf(best), np.nan, best)


def over_mixed(errors, mixed):
    """-> geometric mean over the tables of errors (tables, columns) over the mixed model, counts"""
    usable = np.isfinite(errors) & np.isfinite(mixed)[:, None]
    logs = np.log(np.where(usable, errors / mixed[:, None], 1.0))
    counts = usable.sum(axis=0)
    means = np.exp(logs.sum(axis=0) / np.maximum(counts, 1))
    return np.where(counts > 0, means, np.nan), counts


def report(cells, tables, columns, splits):
    """Print one line a table, and the geometric means over the mixed model."""
    errors, mixed = means(cells, tables, columns, splits), yardstick(cells, tables, splits)
    heads = [
        name if eps is None and name in PEERS else f"{name} {label(eps)}" for name, eps in columns
    ]
    print(*(f"[{j}] {head}" for j, head in enumerate(heads)), sep="\n")
    print(f"{'':14}{'mixed':>8}" + "".join(f"{f'[{j}]':>8}" for j in range(len(heads))))
    for table, best, row in zip(tables, mixed, errors, strict=True):
        star = STARS[SOURCES[table].loss]
        print(f"{table + star:14}{best:8.4f}" + "".join(f"{value:8.4f}" for value in row))
    ratios, counts = over_mixed(errors, mixed)
    for lead, values, form in (("over mixed", ratios, "8.3f"), ("tables", counts, "8d")):
        print(f"{lead:22}" + "".join(f"{value:{form}}" for value in values))
    print("Errors over the variance of the test targets, log-loss (*), or Poisson deviance (+).")


def loaded(text, folder=None):
    """Yield the tables named, those of counts for "counts", or all others; of these, those that
    need a folder only with one."""
    for name in names_of(text):
        if text or folder or SOURCES[name].place:
            yield load(name, folder)
        else:
            print(f"{name} is left out: no --folder holds it.")


def names_of(text):
    if text in ("", "counts"):
        return [n for n, s in SOURCES.items() if (s.loss == "poisson") == (text == "counts")]
    return text.split(",")


def label(epsilon):
    return "none" if epsilon is None else f"{epsilon:g}"


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.multilevel",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--tables",
        default="",
        help="names, separated by commas, or counts: those of counts; default: all others",
    )
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--estimators", default="PrivateMTL", help="separated by semicolons")
    parser.add_argument("--epsilon", default="none,10,3,1,.3")
    parser.add_argument("--peers", default=",".join(PEERS), help="names, or none")
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--read", action="store_true")
    parser.add_argument("--output", type=Path, default=ROOT / OUTPUT)
    parser.add_argument("--picture", type=Path, default=None)
    options = parser.parse_args(arguments)
    peers = [] if options.peers == "none" else options.peers.split(",")
    unknown = sorted(set(peers) - set(PEERS))
    if unknown:
        parser.error(f"unknown peers {', '.join(unknown)}; choose from {', '.join(PEERS)}")
    estimators = [part.strip() for part in options.estimators.split(";") if part.strip()]
    tables = []
    try:
        for estimator in estimators:
            named(estimator)
        if not options.read:
            tables = list(loaded(options.tables, options.folder))
    except (Unavailable, ValueError) as fault:
        parser.error(str(fault))
    epsilons = [epsilon_of(part) for part in options.epsilon.split(",")]
    columns = [(peer, None) for peer in peers]
    columns += [(estimator, epsilon) for estimator in estimators for epsilon in epsilons]
    cells = read(options.output)
    threads = skpmtl.get_num_threads()
    skpmtl.set_num_threads(1)
    try:
        with threadpool_limits(1):
            measure(cells, tables, columns, options.splits, options.output, options.again)
    finally:
        skpmtl.set_num_threads(threads)
    names = [table.name for table in tables]
    if options.read:
        known = {table for table, *_ in cells}
        names = [n for n in names_of(options.tables) if n in known]
    report(cells, names, columns, options.splits)
    if options.picture:
        errors = means(cells, names, columns, options.splits)
        draw(names, columns, errors, yardstick(cells, names, options.splits), options.picture)


if __name__ == "__main__":
    main()
