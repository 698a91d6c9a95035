"""Who calls: where a warning is told, and whether folds are being tried."""

import sys


def users_line():
    """The ``stacklevel`` of a warning that names the first line outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "skpmtl":
        frame, level = frame.f_back, level + 1
    return level


def sklearn_holds(kinds):
    """Whether a function of scikit-learn that is running has a local variable of these types."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("sklearn."):
            if any(isinstance(value, kinds) for value in frame.f_locals.values()):
                return True
        frame = frame.f_back
    return False
