"""The School study: ``python -m skpmtl``."""

import sys

from .shell.study import main

if __name__ == "__main__":
    sys.exit(main())
