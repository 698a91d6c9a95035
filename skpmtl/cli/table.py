"""A table of your own: ``python -m skpmtl fit data.csv --task school --target score --regress
--epsilon 1 --output result``.

Columns are numbers, unless ``--category`` or the file of ``--public`` declares them as categories.
``fit`` writes a folder with two parts. ``public`` has what the fit released and may go to anybody;
``private`` holds the held-out errors and one model per task, for that task alone.
``personalize`` makes models of further tasks from ``public`` and their own rows, which is free, and
``predict`` applies the model files.
"""

import argparse
import json
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .. import (
    MPMTLGroupSparse,
    MPMTLGroupSparseClassifier,
    MPMTLLowRank,
    MPMTLLowRankClassifier,
    PrivateMeanRegMTL,
    PrivateMeanRegMTLClassifier,
    PrivateMTL,
    PrivateMTLClassifier,
    load_billboard,
    personalize,
    save_billboard,
)
from .._runtime.stack import users_line
from ..baselines import LocalOnly, LocalOnlyClassifier
from ..metrics import nmse, task_scores
from ..privacy import PrivacyLeakWarning
from ..tables.assignment import hold_out
from ..tables.files import TableFile
from ..tables.ids import encode_ids, listed
from ..tables.table import LARGEST
from .columns import Columns, read_public
from .models import predict_rows, read_models, write_models

METHODS = {
    "auto": (PrivateMTL, PrivateMTLClassifier),
    "low-rank": (MPMTLLowRank, MPMTLLowRankClassifier),
    "group-sparse": (MPMTLGroupSparse, MPMTLGroupSparseClassifier),
    "mean": (PrivateMeanRegMTL, PrivateMeanRegMTLClassifier),
    "covariates": (PrivateMeanRegMTL, PrivateMeanRegMTLClassifier),
}
# What parameters are called here.
_HERE = {
    "Pass the public list: tasks=[...].": "Name a file with the public list: --tasks FILE.",
    "mean model of what tasks share": "model that tasks share, for a picture of effects",
    "target_range=": "--target-range",
    "columns of public scale": "public scales of columns (--public)",
    "fewer columns": "fewer columns (--drop)",
}
SETTINGS, BILLBOARD = "settings.json", "billboard.npz"


def main(arguments=None):
    """Run ``fit``, ``personalize`` or ``predict``."""
    options = parse(arguments)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", PrivacyLeakWarning)
        try:
            {"fit": fit, "personalize": add, "predict": predict}[options.command](options)
        except (ValueError, TypeError, OSError, ImportError) as error:
            raise SystemExit(f"Error: {error}") from None
        finally:
            for text in dict.fromkeys(str(warning.message) for warning in said):
                for name, here in _HERE.items():
                    text = text.replace(name, here)
                print(f"\nWarning: {text}", file=sys.stderr)


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m skpmtl", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    words = "private models of all tasks of a table"
    one = commands.add_parser("fit", help=words, description=f"Fit {words}.")
    one.add_argument("data", type=Path, help="CSV or Parquet file, one row per record")
    one.add_argument("--task", required=True, help="column that names the task")
    one.add_argument("--target", required=True, help="column to predict")
    one.add_argument(
        "--epsilon", required=True, type=budget, help='privacy budget of every task, or "none"'
    )
    one.add_argument("--delta", type=float, help="default: min(1e-5, 1/m^2) for m tasks")
    one.add_argument(
        "--tasks", type=Path, help="file with the public list of tasks, and covariates"
    )
    one.add_argument(
        "--public",
        type=Path,
        help="JSON file with what is public of the columns: categories (of text columns), scale "
        "and default (of numbers), classes or target_range (of the target)",
    )
    one.add_argument(
        "--category",
        nargs="+",
        default=[],
        metavar="COLUMN",
        help="columns that are text, or codes; others without public categories are numbers",
    )
    one.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="columns to leave out")
    one.add_argument("--method", choices=METHODS, default="auto", help="default: auto, PrivateMTL")
    kind = one.add_mutually_exclusive_group()
    kind.add_argument("--classify", action="store_true", help="the target is a class, as text")
    kind.add_argument(
        "--regress",
        action="store_true",
        help="the target is a number; with a budget say one of the two, or give its classes or "
        "range in the file of --public",
    )
    one.add_argument(
        "--target-range",
        nargs=2,
        type=float,
        metavar=("LOW", "HIGH"),
        help="public range of a target of numbers",
    )
    one.add_argument(
        "--held-out",
        type=float,
        default=0.25,
        help="share of every task's rows that errors are of, default .25",
    )
    one.add_argument("--output", type=Path, required=True, help="new folder")
    one.add_argument(
        "--plot",
        action="store_true",
        help="draw effects that tasks share, public/effects.png; a mean model, and standard errors "
        "where the method has them, then take a share of the budget",
    )
    words = "models of further tasks, from what a fit released and their own rows, at no cost"
    two = commands.add_parser("personalize", help=words, description=f"Write {words}.")
    two.add_argument("public", type=Path, help="folder public of a fit")
    two.add_argument("data", type=Path, help="rows of these tasks, with the target")
    two.add_argument("--tasks", type=Path, help="their covariates, after --method covariates")
    two.add_argument("--output", type=Path, required=True, help="folder for the models")
    words = "predictions of rows, each by the file of the model of its task"
    three = commands.add_parser("predict", help=words, description=f"Write {words}.")
    three.add_argument("models", type=Path, help="folder of models, or the file of one")
    three.add_argument("data", type=Path, help="rows of these tasks")
    three.add_argument("--output", type=Path, required=True, help="CSV file to write")
    three.add_argument("--probabilities", action="store_true", help="of all classes, too")
    for command in (one, two):
        command.add_argument(
            "--drop-missing-target", action="store_true", help="leave out rows without a target"
        )
    for command in (one, two, three):
        command.add_argument("--sep", default=",", help='of CSV files: ";", "tab", ...')
        command.add_argument("--encoding", default="utf-8", help="of CSV files: cp1252, ...")
        command.add_argument("--decimal", default=".", help='of CSV files: "," in much of Europe')
        command.add_argument(
            "--missing",
            nargs="+",
            default=[],
            metavar="WORD",
            help="for a gap, in addition to empty cells: NA, -99, ...",
        )
    options = parser.parse_args(arguments)
    sep = {"tab": "\t", "\\t": "\t"}.get(options.sep, options.sep)
    options.form = {"sep": sep, "encoding": options.encoding, "decimal": options.decimal}
    options.form["missing"] = tuple(options.missing)
    for name in ("sep", "decimal"):
        if len(options.form[name]) != 1:
            parser.error(f"--{name} must be one character")
    if sep == options.decimal:
        parser.error("--sep and --decimal must differ")
    if options.command == "fit" and not 0 < options.held_out < 1:
        parser.error("--held-out must be between 0 and 1")
    if options.command == "fit" and options.task == options.target:
        parser.error("--task and --target must be two columns")
    return options


def budget(text):
    """Argument of --epsilon."""
    if text == "none":
        return None
    value = float(text)
    if not 0 < value < np.inf:
        raise argparse.ArgumentTypeError('must be positive and finite, or "none"')
    return value


def fit(options):
    """Fit, judge on held-out rows, personalise with all rows, write."""
    if options.epsilon is None:
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # nothing is promised
    output = options.output
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"--output {output} is there already; name a new folder.")
    public_values = read_public(options.public)
    file = TableFile(options.data, **options.form)
    file.check([options.task, options.target])
    list_of_tasks, names = None, []
    if options.tasks is not None:
        list_of_tasks = TableFile(options.tasks, **options.form)
        list_of_tasks.check([options.task])
    if options.method == "covariates":
        names = [] if list_of_tasks is None else list_of_tasks.names
        names = [name for name in names if name != options.task]
        if not names:
            raise ValueError(
                "--method covariates needs --tasks FILE with columns of covariates in addition to "
                f"{options.task!r}."
            )
    columns = Columns.declared(file.names, public_values, options, names)
    table, y = rows_with_target(columns, file, options)
    read = columns.complete(table, y)
    for line in columns.unlisted(table):
        print(line)
    classify = columns.classes is not None
    estimator = METHODS[options.method][classify]
    params = {"epsilon": options.epsilon, "delta": options.delta, "task_feature": options.task}
    if list_of_tasks is not None:
        covariates = columns.read_covariates(list_of_tasks)
        params["tasks"] = covariates.index.tolist()
        if names:
            params["relation"] = covariates
    if classify:  # also those that are only among the rows that are held out
        params["classes"] = columns.classes
    elif options.target_range is not None or "target_range" in public_values:
        target_range = options.target_range or public_values["target_range"]
        params["target_range"] = tuple(target_range)
    model = columns.pipeline(estimator(**params))
    if options.plot:
        wanted = {"unseen_task": "mean", "standard_errors": True}
        model[-1].set_params(**{k: v for k, v in wanted.items() if k in model[-1].get_params()})
    train, test = split(table[options.task], options.held_out)
    model.fit(table.iloc[train], y.iloc[train])
    judged = judge(model, columns, table, y, train, test, classify)
    # The billboard stays as it is: the held-out rows improve only the own models of the tasks.
    personalize(model, table, y)

    report = model[-1].privacy_.disclosing(read)
    model[-1].billboard_.report = model[-1].privacy_ = report
    with written_at_once(output) as folder:
        private = folder / "private"
        (private / "models").mkdir(parents=True)
        write_models(private / "models", model, columns, table[options.task].unique())
        judged["tasks"].to_csv(private / "errors.csv", index=False)
        drawn = ", a picture" if picture(judged, private / "errors.png") else ""
        publish(folder / "public", model[-1], columns)
        effects = ""
        if options.plot:
            effects = effects_picture(model[-1], columns, folder / "public" / "effects.png")
    n_tasks = len(model[-1].tasks_)
    print(f"{len(table)} rows of {n_tasks} task{'s' if n_tasks > 1 else ''}; {columns}")
    if options.epsilon is not None and columns.without_scale():
        print(columns.without_scale())
    kind = f"the classes {listed(columns.classes, 20)}" if classify else "numbers"
    said = classify or options.regress or "target_range" in params
    other = "" if said else " (for classes: --classify)"
    print(f"The target {options.target!r} holds {kind}{other}.")
    print(f"{report.summary()}\n")
    if n_tasks == 1:
        print("There is one task, which has nobody to learn from.\n")
    elif options.epsilon is not None and not report.epsilon:
        rows, features = round(len(table) / n_tasks), model[-1].coef_.shape[-1]
        print(
            "What other budgets and numbers of tasks would buy:\n    python -m skpmtl plan "
            f"--tasks {n_tasks} --rows {rows} --features {features}\n"
        )
    title = f"Held-out {judged['name']} over all tasks:"
    print(f"{title} {judged['totals']['this fit']:.4g}")
    for name, total in list(judged["totals"].items())[1:]:
        print(f"{name + ':':>{len(title)}} {total:.4g}")
    print(verdict(judged["totals"], options.epsilon is not None))
    if effects:
        print(f"No picture of effects: {effects}")
    print(
        f"\n{output / 'public'}: what was released, for everybody: billboard, settings, privacy "
        f"report\n{output / 'private'}: errors by task{drawn}; models, each for its task only"
    )


def rows_with_target(columns, file, options):
    """Rows of a file, and targets without gaps. -> table, y"""
    table, y = columns.read(file)
    gap = y.isna().to_numpy()
    if gap.any() and not options.drop_missing_target:
        raise ValueError(
            f"{file.path} has no target in {gap.sum()} row(s), first in "
            f"{file.place(gap.argmax())}, column {columns.target!r}: leave them out with "
            "--drop-missing-target."
        )
    if gap.all():
        raise ValueError(f"{file.path} has no target at all in column {columns.target!r}.")
    if gap.any():
        print(f"{gap.sum()} rows without a target were left out.")
    return table[~gap].reset_index(drop=True), y[~gap].reset_index(drop=True)


@contextmanager
def written_at_once(folder):
    """A temporary folder whose content moves to `folder` at the end, in the order of the names.

    After an error nothing has moved. What is private comes before what is public, so that nothing
    is published, and no budget spent, by a run that cannot write all of its files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".unfinished-") as held:
        yield Path(held)
        for path in sorted(Path(held).iterdir()):
            path.replace(folder / path.name)


def publish(folder, estimator, columns):
    """Write what everybody may see, in a new folder."""
    folder.mkdir()
    report = estimator.privacy_
    save_billboard(estimator, folder / BILLBOARD)
    settings = json.dumps(columns.to_dict(), indent=1)
    (folder / SETTINGS).write_text(settings, encoding="utf-8")
    (folder / "privacy.txt").write_text(f"{report}\n", encoding="utf-8")
    (folder / "privacy.json").write_text(report.to_json(indent=1), encoding="utf-8")
    (folder / "privacy.html").write_text(page(report), encoding="utf-8")


def split(task, share):
    """Positions of the rows to fit and to judge: a share of every task that has two rows.

    The seed is public: the split costs no privacy and gives none, see `hold_out`.
    """
    held = hold_out(*encode_ids(task), share, seed=0)
    return np.flatnonzero(~held), np.flatnonzero(held)


def judge(model, columns, table, y, train, test, classify):
    """Errors on held-out rows: of the fit, of tasks alone, of one model for all, of the mean."""
    import pandas as pd

    if not len(test):
        raise ValueError("No task has enough rows to hold one out: raise --held-out.")
    numbers = table.select_dtypes("number")
    table = table.assign(**numbers.clip(-LARGEST, LARGEST))  # as private fits take them
    y = y if classify else y.clip(-LARGEST, LARGEST)
    X_train, X_test, y_train, y_test = (
        part.iloc[rows] for part in (table, y) for rows in (train, test)
    )
    local = (LocalOnlyClassifier if classify else LocalOnly)(task_feature=columns.task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing leaves a task
        alone = columns.pipeline(local).fit(X_train, y_train)
    scoring = "accuracy" if classify else "neg_root_mean_squared_error"
    by_task, errors = None, []
    for fitted in (model, alone):
        scores = task_scores(fitted, X_test, y_test, task=columns.task, scoring=scoring)
        error = 1.0 - scores.scores if classify else -scores.scores
        errors.append(error)
        by_task = scores
    rows = pd.DataFrame(
        {
            columns.task: by_task.tasks,
            "rows_held_out": by_task.n_samples,
            "error": errors[0],
            "error_alone": errors[1],
        }
    )
    pooled = LogisticRegression(max_iter=1000) if classify else Ridge()
    pooled = make_pipeline(StandardScaler(), pooled)
    constant = DummyClassifier() if classify else DummyRegressor()
    features = [alone[:-1].transform(part).drop(columns=columns.task) for part in (X_train, X_test)]
    predicted = {"this fit": model.predict(X_test), "every task alone": alone.predict(X_test)}
    one_class = classify and y_train.nunique() < 2
    simplest = "the most frequent class" if classify else "the mean"
    for title, peer in (("one model for all tasks", pooled), (simplest, constant)):
        peer = constant if one_class else peer
        predicted[title] = peer.fit(features[0], y_train).predict(features[1])
    totals = {
        title: float(np.mean(found != y_test.to_numpy())) if classify else nmse(y_test, found)
        for title, found in predicted.items()
    }
    name = "error rate" if classify else "MSE / variance"
    return {"tasks": rows, "name": name, "totals": totals}


def verdict(totals, is_private=True):
    """One sentence: whether the fit is better than what needs no joint learning."""
    fit, *_ = totals.values()
    name, best = min(list(totals.items())[1:], key=lambda item: item[1])
    if fit <= 0.98 * best:
        return "This fit is the best of these."
    if fit <= 1.02 * best:
        return f"This fit is as good as {name}, within 2 %."
    percent = f", by {100.0 * (fit / best - 1.0):.0f} %" if best > 0 else ""
    remedies = ["a larger budget", "public scales of columns (--public)"]
    if not is_private:
        remedies = ["fewer columns (--drop)"]
    if "the mean" in totals and name != "every task alone":
        remedies.append("the logarithm of a skewed target")
    return (
        f"This fit is worse than {name}{percent}. Remedies: {' or '.join(remedies)}. Its privacy "
        "report says what was found."
    )


def picture(judged, path):
    """Errors of the tasks and of learning alone; False without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    rows = judged["tasks"]
    figure = Figure(figsize=(5.2, 4.8), layout="constrained")
    axes = figure.subplots()
    axes.scatter(rows["error_alone"], rows["error"], s=10 + rows["rows_held_out"], alpha=0.6)
    ends = [0, max(rows["error_alone"].max(), rows["error"].max()) * 1.05]
    axes.plot(ends, ends, color="grey", linewidth=1)
    axes.set(xlabel="held-out error, task alone", ylabel="held-out error, joint")
    axes.set_title("Below the line: better together")
    save_picture(figure, path)
    return True


def effects_picture(estimator, columns, path):
    """Draw the pooled model, of releases alone. -> why there is no picture, or "" """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "matplotlib is not installed (pip install matplotlib)."
    try:
        summary = estimator.summary()
    except ValueError as error:
        return str(error)
    found = summary.effects_frame()
    found = found[found.index.str.rpartition(", ").get_level_values(2) != "intercept"][::-1]
    # A number without a public scale has the released one: units of any size fit in one picture.
    scales = zip(estimator.coef_names_, estimator.billboard_.column_scale, strict=True)
    scales = {n: scale for n, scale in scales if n in columns.numbers and n not in columns.scale}
    scale = found.index.str.rpartition(", ").get_level_values(2).map(lambda n: scales.get(n, 1.0))
    effect = found["effect"] * scale
    reach = ((found["upper"] - found["effect"]) * scale).fillna(0.0)
    figure = Figure(figsize=(6.4, 1.6 + 0.28 * len(found)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(0.0, color="grey", linewidth=1)
    axes.errorbar(effect, range(len(found)), xerr=reach, fmt="o", capsize=3)
    axes.set_yticks(range(len(found)), found.index)
    unit = repr(columns.target)
    if columns.classes is not None:
        two = len(columns.classes) == 2
        unit = f"the score of {columns.classes[1]!r}" if two else "scores"
    axes.set(xlabel=f"effect on {unit} of one scale of a number, or of a category")
    known = found["std_error"].notna().any()
    axes.set_title(
        "Effects that tasks share, " + ("95 % intervals" if known else "errors not known")
    )
    save_picture(figure, path)
    return ""


def save_picture(figure, path):
    """Write a picture, with one warning in place of one for each character that no font has."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        figure.savefig(path, dpi=150)
    lacking = ["missing from font" in str(warning.message) for warning in said]
    for warning, of_font in zip(said, lacking, strict=True):
        if not of_font:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    if any(lacking):
        warnings.warn(
            f"{path.name} lacks characters that the fonts of matplotlib do not have: install a "
            "font with them, and name it in the file matplotlibrc, such as font.family: DejaVu "
            "Sans, Noto Sans CJK JP.",
            stacklevel=users_line(),
        )


def page(report):
    """The report as a page of its own."""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Privacy report</title>'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" '
        'content="light dark"></head><body style="font-family: sans-serif; margin: 2em">'
        f"<h1>Privacy report</h1>{report._repr_html_()}</body></html>\n"
    )


def add(options):
    """Models of further tasks from what was released and their own rows."""
    columns = Columns.from_dict(json.loads((options.public / SETTINGS).read_text(encoding="utf-8")))
    model = columns.pipeline(load_billboard(options.public / BILLBOARD))
    table, y = rows_with_target(columns, TableFile(options.data, **options.form), options)
    for line in columns.unlisted(table):
        print(line)
    if options.tasks is not None:
        if not hasattr(model[-1], "relate"):
            raise ValueError("--tasks is for fits with --method covariates.")
        model[-1].relate(columns.read_covariates(TableFile(options.tasks, **options.form)))
    rows = model[:-1].fit_transform(table)
    model[-1].personalize(rows, y)
    tasks = table[columns.task].unique()
    with written_at_once(options.output) as folder:
        write_models(folder, model, columns, tasks)
    print(f"{len(tasks)} models in {options.output}; nothing more was spent.")
    print(model[-1].privacy_.summary())


def predict(options):
    """Predictions of rows, each with the model of its task."""
    models, columns = read_models(options.models)
    table, _ = columns.read(TableFile(options.data, **options.form), with_target=False)
    for line in columns.unlisted(table):
        print(line)
    predictions, probabilities = predict_rows(models, columns, table)
    found = table[[columns.task]].assign(prediction=predictions)
    if options.probabilities:
        if probabilities is None:
            raise ValueError("--probabilities is for classes; these models predict numbers.")
        found[[f"probability of {label}" for label in columns.classes]] = probabilities
    options.output.parent.mkdir(parents=True, exist_ok=True)
    found.to_csv(options.output, index=False)
    print(f"{len(table)} predictions in {options.output}")
