"""Programs in processes of their own, which find the package imported."""

import multiprocessing
import os
import sys

from tests import rounding


def apart(program, folder, *arguments):
    """What a program prints, which is forked from a process without threads and has to end well.

    That process imports the package once for all programs: the import takes longer than they do.
    Its tables have the last bits of the tables here.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["skpmtl"])
    files = folder / "stdout", folder / "stderr"
    words = [str(argument) for argument in arguments]
    process = context.Process(target=_run, args=(program, words, files, rounding.changed))
    process.start()
    process.join(120)
    process.kill()  # if it has not ended
    process.join()
    printed, errors = (file.read_text() for file in files)
    assert process.exitcode == 0, (printed[-300:], errors[-2000:])
    return printed


def _run(program, words, files, seed):
    if seed is not None:
        rounding.change_tables(seed)
    for stream, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    sys.argv = ["-c", *words]
    exec(program, {"__name__": "__main__"})
