"""The calling code: the line that a warning names, and whether folds are being tried."""

import sys
import warnings
from contextlib import contextmanager
from contextvars import ContextVar

_said: ContextVar[set | None] = ContextVar("skpmtl_said", default=None)


def users_line():
    """The ``stacklevel`` of a warning that names the first line outside of this package."""
    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "skpmtl":
        frame, level = frame.f_back, level + 1
    return level


@contextmanager
def saying_once():
    """Within this context `warn_once` gives each warning once, whatever filters there are."""
    token = _said.set(set())
    try:
        yield
    finally:
        _said.reset(token)


def warn_once(message, category):
    """A warning that names the user's line: a fit checks its budget in more than one place."""
    said = _said.get()
    if said is not None:
        if (message, category) in said:
            return
        said.add((message, category))
    warnings.warn(message, category, stacklevel=users_line())


def sklearn_holds(meets):
    """Whether a function of scikit-learn that is running has a local variable that `meets` this."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("sklearn."):
            if any(meets(value) for value in frame.f_locals.values()):
                return True
        frame = frame.f_back
    return False
