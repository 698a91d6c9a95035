"""Side outputs of a fit: text, log lines, warnings, files, caches."""

import builtins
import contextlib
import gc
import io
import logging
import os
import pickle
import random
import sys
import tempfile
import types
import warnings
import weakref

import numpy as np

_COMPILED = (".nbi", ".nbc", ".pyc")  # written when loops are compiled, not by the fit
_MODES = frozenset("wax+")
_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class _Lines(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.lines = []

    def emit(self, record):
        if record.name == "skpmtl.compiling":  # of which code is on the disk, whatever the rows
            return
        if not _is_engine(record.name) or record.levelno >= logging.WARNING:
            self.lines.append((record.name, record.levelname, record.getMessage()))


def _is_engine(name):
    """Whether a logger is of an engine, which logs how it compiles and what it executes."""
    return name.partition(".")[0] in ("numba", "torch")


_FIXED = (str, bytes, bool, types.NoneType, types.ModuleType, property, types.BuiltinFunctionType)
_WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)


@contextlib.contextmanager
def observing(said):
    """Within it `said` gets what is printed, logged, warned of, and written to files."""
    handler, files = _Lines(), []
    try:
        with warnings.catch_warnings(record=True) as caught, _printed(said), _logged(handler):
            warnings.simplefilter("always")
            with _opened(files):
                yield
    finally:
        said["warnings"] = [(w.category.__name__, str(w.message)) for w in caught]
        said["log lines"] = handler.lines
        said["files"] = [(name, _content(name)) for name in _of_fit(files)]


@contextlib.contextmanager
def _printed(said):
    """Text that Python or compiled code writes to standard output and standard error."""
    text, raw = io.StringIO(), tempfile.TemporaryFile()  # noqa: SIM115  # closed below
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    saved = [os.dup(number) for number in (1, 2)]
    try:
        for number in (1, 2):
            os.dup2(raw.fileno(), number)
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            yield
    finally:
        for number, old in zip((1, 2), saved, strict=True):
            os.dup2(old, number)
            os.close(old)
        raw.seek(0)
        said["printed text"] = text.getvalue(), raw.read()
        raw.close()


@contextlib.contextmanager
def _logged(handler):
    """All levels of all loggers that propagate, and of those that do not."""
    root = logging.getLogger()
    known = [root, *root.manager.loggerDict.values()]
    known = [logger for logger in known if isinstance(logger, logging.Logger)]
    levels = [(logger, logger.level) for logger in known]
    ends = [logger for logger in known if logger is root or not logger.propagate]
    for logger in known:
        logger.setLevel(logging.WARNING if _is_engine(logger.name) else logging.DEBUG)
    for logger in ends:
        logger.addHandler(handler)
    others = [(h, h.level) for end in ends for h in end.handlers if h is not handler]
    for other, _ in others:  # which would print what nobody asked for
        other.setLevel(max(other.level, logging.WARNING))
    try:
        yield
    finally:
        for other, level in others:
            other.setLevel(level)
        for logger in ends:
            logger.removeHandler(handler)
        for logger, level in levels:
            logger.setLevel(level)


@contextlib.contextmanager
def _opened(files):
    """Names of files that Python code opens for writing."""
    plain, low = builtins.open, os.open

    def note(name):
        if isinstance(name, (str, bytes, os.PathLike)):
            files.append(os.path.abspath(os.fsdecode(name)))

    def opened(file, mode="r", *given, **options):
        if _MODES & set(mode):
            note(file)
        return plain(file, mode, *given, **options)

    def opened_low(path, flags, *given, **options):
        if flags & _FLAGS:
            note(path)
        return low(path, flags, *given, **options)

    builtins.open = io.open = opened
    os.open = opened_low
    try:
        yield
    finally:
        builtins.open = io.open = plain
        os.open = low


def _of_fit(files):
    """Without those of compiled loops, and the unnamed ones of their folders."""
    compiled = {os.path.dirname(name) for name in files if any(end in name for end in _COMPILED)}
    names = [name for name in dict.fromkeys(files) if not os.path.isdir(name)]
    return [name for name in names if os.path.dirname(name) not in compiled]


def _content(name):
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError:
        return None


# ---------------------------------------------------------------- what lasts in the process
def global_chance():
    """States of the random generators that the whole process shares. -> {name: bytes}"""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    return {"numpy.random": pickle.dumps(numpy_state), "random": pickle.dumps(python_state)}


def lasting(estimator):
    """Pickled containers, arrays and numbers of the modules and classes behind an estimator.

    Those of the package and of the modules of its classes: in variables, in attributes of classes
    and functions, in default arguments and closures, and the sizes of caches.

    -> found : dict of str to bytes or int
    """
    names = {cls.__module__ for cls in type(estimator).__mro__}
    own = __name__.partition(".")[0]
    names = [name for name in sys.modules if name in names or name.partition(".")[0] == own]
    found = {}
    for name in names:
        if name.partition(".")[0] in ("builtins", "sklearn", "abc"):
            continue
        for key, value in list(vars(sys.modules[name]).items()):
            if not key.startswith("__"):
                _add(found, f"{name}.{key}", value, name)
    for cls in type(estimator).__mro__:  # also those that are defined in functions
        if cls.__module__ in names:
            _add(found, f"{cls.__module__}.{cls.__qualname__}", cls, cls.__module__)
    return found


def _add(found, name, value, module):
    if isinstance(value, types.FunctionType):  # most of what there is
        if value.__module__ == module:
            cells = closure(value).values() if value.__closure__ else ()
            for part in (value.__dict__, value.__defaults__, value.__kwdefaults__, *cells):
                if part:
                    _keep(found, name, part)
    elif isinstance(value, type):
        if value.__module__ == module:
            for key, item in list(vars(value).items()):
                if not key.startswith("__"):
                    _add(found, f"{name}.{key}", getattr(item, "__func__", item), module)
    elif isinstance(value, _FIXED):
        return
    elif hasattr(value, "cache_info"):
        found[name] = value.cache_info().currsize
    else:
        _keep(found, name, value)


def closure(function):
    """Variables of enclosing functions that a function uses, by name."""
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # one has no value yet
        return {}
    return dict(zip(function.__code__.co_freevars, cells, strict=True))


def _keep(found, name, value):
    """By its pickle, where it has one; the size of others."""
    if isinstance(value, _FIXED) or callable(value) or not _holds(value):
        return
    if isinstance(value, _WEAK) and value:
        gc.collect()  # what nobody holds any more may still be there
    try:
        found[name] = pickle.dumps((found.get(name), value))
    except Exception:
        found[name] = len(value) if hasattr(value, "__len__") else None


def _holds(value):
    """Containers, arrays, numbers, and objects of classes in Python."""
    plain = (int, float, dict, list, set, tuple, bytearray)
    return isinstance(value, plain) or hasattr(value, "__dict__") or hasattr(value, "dtype")
