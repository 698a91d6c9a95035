"""``python -m skpmtl``: the School study; ``plan`` a budget; ``fit`` and ``predict`` a table."""

import sys


def main(arguments=None):
    """Run a command; `arguments` are those of the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] and arguments[0] in ("fit", "personalize", "predict"):
        from .cli.table import main as run
    elif arguments[:1] == ["plan"]:
        from .cli.plan import main as run

        arguments = arguments[1:]
    else:
        from .cli.study import main as run
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
