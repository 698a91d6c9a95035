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

from threadpoolctl import threadpool_limits

import skpmtl

from . import scale
from .command import command_line, with_commit, write_rows
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
    measure, fields, one_thread = SUITES[options.suite]
    rows = with_commit(
        measure(options.quick, options.repeats or (1 if options.quick else 7), options.only)
    )
    chosen = skpmtl.get_num_threads()
    # Other solvers differ most in how many threads they use, so everything gets one.
    skpmtl.set_num_threads(1 if one_thread else chosen)
    try:
        with threadpool_limits(1 if one_thread else None):
            return write_rows(rows, fields, options.output)
    finally:
        skpmtl.set_num_threads(chosen)


if __name__ == "__main__":
    main()
