"""Programs in processes of their own, which find the package imported."""

import multiprocessing
import os
import resource
import signal
import sys
from contextlib import suppress

from tests import rounding

SECONDS = 120


def apart(program, folder, *arguments):
    """What a program prints, which is forked from a process without threads and has to end well.

    That process imports the package once for all programs: the import takes longer than they do.
    Its tables have the last bits of the tables here. Whatever the program has started ends with
    it, and has no more than `SECONDS` of processor time where the tests themselves were killed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["skpmtl"])
    files = folder / "stdout", folder / "stderr"
    words = [str(argument) for argument in arguments]
    process = context.Process(target=_run, args=(program, words, files, rounding.changed))
    process.start()
    try:
        process.join(SECONDS)
    finally:
        with suppress(ProcessLookupError):  # nothing is left
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()  # if it has not even begun
        process.join()
    printed, errors = (file.read_text() for file in files)
    assert process.exitcode == 0, (printed[-300:], errors[-2000:])
    return printed


def _run(program, words, files, seed):
    os.setsid()  # a group of its own
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.alarm(SECONDS)
    if seed is not None:
        rounding.change_tables(seed)
    for stream, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    sys.argv = ["-c", *words]
    exec(program, {"__name__": "__main__"})
