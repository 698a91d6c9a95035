"""What is observed of a process, and that nothing of the observer stays."""

import builtins
import io
import logging
import os
import random
import sys
import warnings
import weakref

import numpy as np

from skpmtl.privacy import rng
from skpmtl.privacy.observation import global_chance, lasting, observing


def test_text_logs_warnings_and_files_are_recorded(tmp_path):
    said, old = {}, tmp_path / "old.txt"
    old.write_text("before")
    silent = logging.getLogger("skpmtl_test.silent")
    silent.propagate, silent.level = False, logging.ERROR
    with observing(said):
        print("printed")
        print("complained", file=sys.stderr)
        os.write(1, b"raw")
        os.write(2, b" too")
        warnings.warn("warned", RuntimeWarning, stacklevel=1)
        warnings.warn("warned", RuntimeWarning, stacklevel=1)
        logging.getLogger("skpmtl_test").debug("of %d rows", 3)
        silent.info("unheard")
        logging.getLogger("numba.core").debug("how it compiles")
        logging.getLogger("skpmtl.compiling").warning("what a first fit waits for")
        logging.getLogger("torch").warning("but warnings")
        (tmp_path / "new.txt").write_bytes(b"content")
        with open(tmp_path / "more.txt", "x") as file:
            file.write("x")
        handle = os.open(tmp_path / "low.txt", os.O_CREAT | os.O_WRONLY)
        os.write(handle, b"low")
        os.close(handle)
        (tmp_path / "loops").mkdir()
        (tmp_path / "loops" / "a.nbi").write_bytes(b"index")
        (tmp_path / "loops" / "tmp123").write_bytes(b"unnamed")
        (tmp_path / "gone").write_text("x")
        (tmp_path / "gone").unlink()
        old.read_text()  # what is only read is no trace
        os.close(os.open(old, os.O_RDONLY))
    assert said["printed text"] == ("printed\ncomplained\n", b"raw too")
    assert said["warnings"] == [("RuntimeWarning", "warned")] * 2
    assert said["log lines"] == [
        ("skpmtl_test", "DEBUG", "of 3 rows"),
        ("skpmtl_test.silent", "INFO", "unheard"),
        ("torch", "WARNING", "but warnings"),
    ]
    assert said["files"] == [
        (str(tmp_path / "new.txt"), b"content"),
        (str(tmp_path / "more.txt"), b"x"),
        (str(tmp_path / "low.txt"), b"low"),
        (str(tmp_path / "gone"), None),
    ]


def state():
    root = logging.getLogger()
    loggers = [root, *(x for x in root.manager.loggerDict.values() if hasattr(x, "handlers"))]
    return (
        builtins.open,
        io.open,
        os.open,
        sys.stdout,
        sys.stderr,
        os.fstat(1).st_ino,
        os.fstat(2).st_ino,
        [(x.name, x.level, [*x.handlers]) for x in loggers],
        [(h, h.level) for x in loggers for h in x.handlers],
    )


def test_everything_is_put_back_after_an_error_too(capfd):  # two files
    assert os.fstat(1).st_ino != os.fstat(2).st_ino
    own, handler = logging.getLogger("skpmtl_test.own"), logging.StreamHandler(io.StringIO())
    own.addHandler(handler)
    own.setLevel(logging.CRITICAL)
    own.propagate = False
    before = state()
    n_open = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for error in (None, KeyError):
        said = {}
        try:
            with observing(said):
                own.info("quiet elsewhere")
                if error:
                    raise error
        except KeyError:
            pass
        assert ("skpmtl_test.own", "INFO", "quiet elsewhere") in said["log lines"]
        assert state() == before and handler.stream.getvalue() == ""
    if n_open:
        assert len(os.listdir("/proc/self/fd")) == n_open


class Keeps:
    seen = []
    count = 0

    def fit(self, X, found=[]):  # noqa: B006
        found.append(X)

    @classmethod
    def made(cls):
        cls.count += 1


def counting():
    seen = []
    return lambda: seen.append(1)


count = counting()


def test_what_stays_in_classes_and_defaults_is_seen():
    for change in (
        lambda: Keeps.seen.append(np.ones(3)),
        lambda: Keeps().fit(2.0),
        Keeps.made,
        lambda: setattr(Keeps.fit, "rows", [1]),
        lambda: KEPT.update(rows=1),
        count,
    ):
        before = lasting(Keeps())
        assert lasting(Keeps()) == before  # looking changes nothing
        change()
        assert lasting(Keeps()) != before


def test_what_stays_anywhere_in_the_package_is_seen(monkeypatch):
    before = lasting(Keeps())
    monkeypatch.setattr(rng, "kept", [1], raising=False)  # whose module is of no class of it
    assert lasting(Keeps()).keys() - before.keys() == {"skpmtl.privacy.rng.kept"}


class Rows:
    pass


def test_what_nobody_holds_any_more_has_not_stayed():
    before = lasting(Keeps())
    rows = Rows()
    rows.itself = rows  # so that only the garbage collector frees it
    WEAK[rows] = 1
    assert lasting(Keeps()) != before
    del rows
    assert lasting(Keeps()) == before


def test_draws_from_the_random_states_of_the_process_are_seen():
    before = global_chance()
    assert global_chance() == before
    random.random()
    np.random.default_rng().normal()  # has a state of its own
    assert [name for name, state in global_chance().items() if state != before[name]] == ["random"]


KEPT = {}
WEAK = weakref.WeakKeyDictionary()
