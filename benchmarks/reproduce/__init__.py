"""Scripts that reproduce figures and tables of the papers; CSV and PNG files go to results/."""

import argparse
from pathlib import Path

from threadpoolctl import threadpool_limits

from ..run import write_rows

__all__ = ["RESULTS", "run_figures", "script"]

RESULTS = Path(__file__).resolve().parents[1] / "results"


def script(name, text, quick, repeats, output):
    """Command line of a script: its documentation `text`, --quick, --repeats and --output.

    `quick` and `repeats` say what these options stand for, None leaves --repeats out; `output`
    is a file or folder below results/.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.reproduce.{name}", description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help=quick)
    if repeats is not None:
        parser.add_argument("--repeats", type=int, help=f"default: {repeats}")
    parser.add_argument("--output", type=Path, default=RESULTS / output, help="CSV, PNG")
    return parser


def run_figures(parser, prefix, figures, fields, arguments=None):
    """Write PREFIX_NAME.csv and .png of the figures that are asked for. -> rows by name

    `figures`: name -> (``measure(quick, repeats) -> rows``, repeats, ``draw(rows) -> Figure``).
    """
    parser.add_argument("--figure", choices=figures, help="default: all of them")
    options = parser.parse_args(arguments)
    done = {}
    with threadpool_limits(1):
        for name in [options.figure] if options.figure else figures:
            measure, repeats, draw = figures[name]
            repeats = options.repeats or (1 if options.quick else repeats)
            path = options.output / f"{prefix}_{name}.csv"
            done[name] = write_rows(measure(options.quick, repeats), fields, path)
            draw(done[name]).savefig(path.with_suffix(".png"), dpi=100)
    return done
