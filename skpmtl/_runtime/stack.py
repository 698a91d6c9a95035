"""Where a warning is told: at the line of the user."""

import sys


def users_line():
    """The ``stacklevel`` of a warning that names the first line outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "skpmtl":
        frame, level = frame.f_back, level + 1
    return level
