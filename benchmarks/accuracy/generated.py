"""Defaults on unseen tables: error of every estimator at its defaults over that of each task alone.

    python -m benchmarks.accuracy.generated [--draws R] [--shapes TEXT] [--estimators A,B]
        [--epsilons .1,1,none] [--jobs J] [--output FILE.csv]

Shapes are those of `benchmarks.accuracy.shapes` whose name contains TEXT, or are named, separated
by ";". A cell is the mean, the median and the worst of the ratios of R draws (data and noise); 1 is
as good as alone, less is better. epsilon "none" is the exact fit. Everything runs on one thread of
each of J processes; all of it takes about an hour of one core. `pictures` shows the medians.
"""

import numpy as np
from joblib import Parallel, delayed

from ..command import command_line, commit, one_thread, write_rows
from .alone import ESTIMATORS, POOLED, ratios
from .cells import epsilon_of
from .shapes import SHAPES

FIELDS = (
    "commit shape role loss tasks rows features "
    "estimator epsilon mean median worst draws seconds note"
).split()


def chosen(text):
    """The shapes that are named, or whose names contain the text."""
    parts = [part.strip() for part in text.split(";")]
    named = [SHAPES[part] for part in parts if part in SHAPES]
    if len(named) == len(parts):
        return named
    return [shape for shape in SHAPES.values() if any(part in shape.name for part in parts)]


def one_draw(shape, seed, names, epsilons):
    with one_thread():
        return ratios(shape, seed, names, epsilons)


def measure(shapes, names, epsilons, draws, jobs=1):
    """Yield the cells of the table, shape by shape."""
    work = [(shape, seed) for shape in shapes for seed in range(draws)]
    found = Parallel(n_jobs=jobs, return_as="generator")(
        delayed(one_draw)(shape, seed, names, epsilons) for shape, seed in work
    )
    for shape in shapes:
        results = [next(found) for _ in range(draws)]
        sample = shape.draw(0)
        about = {
            "shape": shape.name,
            "role": shape.role,
            "draws": draws,
            "loss": {0: "squared", 2: "logistic"}.get(shape.classes, "multinomial"),
            "tasks": len(sample.tasks),
            "rows": len(sample.X),
            "features": sample.X.shape[1],
        }
        for cell in zip(*results, strict=True):
            name, epsilon = cell[0][:2]
            yield {
                **about,
                "estimator": name,
                "epsilon": "" if epsilon is None else f"{epsilon:g}",
                **summary([ratio for _, _, ratio, _, _ in cell]),
                "seconds": round(float(np.mean([seconds for *_, seconds, _ in cell])), 3),
                "note": next((message for *_, message in cell if message), ""),
            }


def summary(values):
    """Mean, median and worst; empty if one of the draws has none."""
    if any(value is None for value in values):
        return {"mean": "", "median": "", "worst": ""}
    found = {"mean": np.mean(values), "median": np.median(values), "worst": np.max(values)}
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def main(arguments=None):
    parser = command_line("accuracy.generated", __doc__, jobs=True)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--shapes", default="")
    parser.add_argument(
        "--estimators", default=",".join((*ESTIMATORS, POOLED)), help="names, separated by commas"
    )
    parser.add_argument(
        "--epsilons", default=".1,.3,1,3,10,none", help="numbers and none, separated by commas"
    )
    options = parser.parse_args(arguments)
    names = options.estimators.split(",")
    epsilons = [epsilon_of(part) for part in options.epsilons.split(",")]
    cells = measure(chosen(options.shapes), names, epsilons, options.draws, options.jobs)
    at = commit()
    return write_rows(({"commit": at, **cell} for cell in cells), FIELDS, options.output)


if __name__ == "__main__":
    main()
