"""``python -m skpmtl``: the School study; with ``fit``, ``personalize``, ``predict`` a table."""

import sys


def main(arguments=None):
    """Run a command; `arguments` are those of the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] and arguments[0] in ("fit", "personalize", "predict"):
        from .cli.table import main as run
    else:
        from .cli.study import main as run
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
