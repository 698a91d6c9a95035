"""One runner for the measurements that end in a CSV file.

    python -m benchmarks.run SUITE [--quick] [--only TEXT] [--repeats R] [--output FILE.csv]

========  ==================================================================================
peers     exact solvers against others at equal accuracy
path      a hundred strengths and their cross-validation, against loops of fits and lasso_path
scale     seconds and memory of fit and predict, and their exponent in the number of rows
========  ==================================================================================

Rows are printed as they are measured. Everything has one thread, but scale,
which has as many as `skpmtl.get_num_threads` says.
"""

from contextlib import nullcontext

from . import scale
from .command import command_line, one_thread, with_commit, write_rows
from .peers import exact, path

FIELDS = ("commit", "peer", "problem", "penalty", "accuracy", "seconds", "ratio", "megabytes")


SUITES = {  # rows by quick, repeats and text of names; columns; whether on one thread
    "path": (path.measure, path.FIELDS, True),
    "scale": (lambda quick, repeats, only: scale.measure(quick, only), scale.FIELDS, False),
    "peers": (exact.measure, FIELDS, True),
}


def main(arguments=None):
    parser = command_line("run", __doc__, None, "small problems, one repeat", "7, quick 1")
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--only", default="", help="text of estimators or problems")
    options = parser.parse_args(arguments)
    measure, fields, alone = SUITES[options.suite]
    rows = with_commit(
        measure(options.quick, options.repeats or (1 if options.quick else 7), options.only)
    )
    # Other solvers differ most in how many threads they use, so everything gets one.
    with one_thread() if alone else nullcontext():
        return write_rows(rows, fields, options.output)


if __name__ == "__main__":
    main()
