"""Public multilevel tables: our estimators by epsilon, over mixed models and other peers.

    python -m benchmarks.accuracy.real [--tables A,B] [--splits N] [--estimators A;B]
        [--epsilon none,10,3,1,.3] [--peers A,B|none] [--folder DIR] [--again | --read]
        [--output FILE.csv]

Errors on test rows: mean squared error over the variance of the test targets, log-loss of classes,
or the mean Poisson deviance of counts, for which estimators have ``loss="poisson"``. A split puts
each row into the training part with probability .7.

Estimators are names, with parameters if need be: "PrivateMTL;PrivateMTL(structure='mean')";
"splines:PrivateMTL" has splines of public knots before it.
target_range='known' stands for the whole numbers around the targets of a table, with squared loss.
--tables, --estimators and --epsilon choose what is measured and printed. landmine, parkinson and
computer are read from --folder, which holds NAME/NAME_data.csv and NAME/NAME_target.csv; without it
they are left out. ``python -m pip install --group multilevel`` installs the tables and the peers;
a peer that is not installed is noted and left out.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from .cells import RESULTS, columns_of, label, measure, named, names_of, parser_of
from .features import FEATURES
from .peers import MIXED, PEERS, Skipped, error_of, made_for, ours
from .sources import SOURCES

FIELDS = "commit table loss tasks rows features estimator epsilon split error seconds note".split()
STARS = {"squared": "", "log-loss": "*", "poisson": "+"}


def figures(table, sample, estimator, epsilon, seed):
    """-> dict of the error of a peer or of one of our estimators, or "", and a note"""
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
        return {"error": float(f"{error_of(predicted, table.loss, sample):.5g}"), "note": ""}
    except Skipped as reason:
        return {"error": "", "note": str(reason)}
    except Exception as failure:  # whatever goes wrong is a result of the table
        text = " ".join(str(failure).split())
        return {"error": "", "note": f"error: {type(failure).__name__}: {text[:160]}"}


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


def main(arguments=None):
    parser = parser_of(
        "real",
        __doc__,
        splits=3,
        estimators="PrivateMTL",
        epsilon="none,10,3,1,.3",
        output=RESULTS / "multilevel.csv",
    )
    parser.add_argument("--peers", default=",".join(PEERS), help="names, or none")
    options = parser.parse_args(arguments)
    peers = [] if options.peers == "none" else options.peers.split(",")
    unknown = sorted(set(peers) - set(PEERS))
    if unknown:
        parser.error(f"unknown peers {', '.join(unknown)}; choose from {', '.join(PEERS)}")
    options.estimators = ";".join([*peers, options.estimators])
    cells = measure(parser, options, FIELDS, figures, PEERS)
    columns = columns_of(options, PEERS)
    known = {table for table, *_ in cells}
    names = [name for name in names_of(options.tables) if name in known]
    report(cells, names, columns, options.splits)


if __name__ == "__main__":
    main()
