"""Threads over blocks of tasks, with one limit for the whole process.

The compiled loops release the interpreter lock, so that plain threads run them side by side.
What is a block depends on the data alone and results are combined in the order of the blocks:
no number depends on how many threads there were.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from numbers import Integral

import joblib
import numpy as np
from threadpoolctl import ThreadpoolController

__all__ = [
    "get_num_threads",
    "set_num_threads",
]
_VARIABLES = ("SKPMTL_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")


class _State:
    """Of one process."""

    def __init__(self):
        self.lock = threading.Lock()
        self.chosen = None  # by set_num_threads
        self.working = 0  # threads at work on blocks, callers included
        self.pool = None
        self.limits, self.limited = None, 0  # of BLAS, and by how many callers


_state = _State()


def _start_afresh():  # a forked child has none of its parent's threads
    chosen, _state.__dict__ = _state.chosen, _State().__dict__
    _state.chosen = chosen


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_afresh)
_N_CPUS = joblib.cpu_count()
_controller = cache(ThreadpoolController)


def set_num_threads(n_threads: int | None):
    """Set how many threads of this process may work on tasks at the same time.

    The number holds for all fits of the process together: a fit inside another thread pool, of
    joblib say, uses only the remaining threads. Results do not depend on it.

    Parameters
    ----------
    n_threads : int or None
        At least 1. None: the default, which is the environment variable SKPMTL_NUM_THREADS,
        else OMP_NUM_THREADS or NUMBA_NUM_THREADS (joblib sets both in its worker processes),
        else the number of CPUs this process may use.

    Raises
    ------
    TypeError, ValueError
        If `n_threads` is neither None nor a positive integer.

    Examples
    --------
    >>> import skpmtl
    >>> skpmtl.set_num_threads(2)
    >>> skpmtl.get_num_threads()
    2
    >>> skpmtl.set_num_threads(None)
    """
    if n_threads is not None:
        if not isinstance(n_threads, Integral) or isinstance(n_threads, bool):
            raise TypeError(f"n_threads={n_threads!r} must be an integer or None.")
        if n_threads < 1:
            raise ValueError(f"n_threads={n_threads!r} must be at least 1.")
        n_threads = int(n_threads)
    with _state.lock:
        if n_threads != _state.chosen and _state.pool is not None:
            _state.pool.shutdown(wait=False)
            _state.pool = None
        _state.chosen = n_threads


def get_num_threads() -> int:
    """How many threads of this process may work on tasks at the same time.

    Returns
    -------
    n_threads : int
    """
    if _state.chosen is not None:
        return _state.chosen
    for name in _VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return _N_CPUS


@contextmanager
def single_blas_thread():
    """Context in which BLAS runs on one thread: small decompositions only lose by more.

    The limit belongs to the process: the first thread to enter sets it and the last to leave
    lifts it.
    """
    with _state.lock:
        if not _state.limited:
            _state.limits = _controller().limit(limits=1, user_api="blas")
        _state.limited += 1
    try:
        yield
    finally:
        with _state.lock:
            _state.limited -= 1
            if not _state.limited:
                _state.limits.restore_original_limits()


def run_blocks(function, blocks):
    """[function(*block) for block in blocks], on as many threads as are free.

    The caller works too. A helper joins only while fewer threads than `get_num_threads` are at
    work in the whole process, and asks again before every block.
    """
    limit = get_num_threads() if len(blocks) > 1 else 1
    if limit == 1:
        return [function(*block) for block in blocks]
    results, waiting, failed = [None] * len(blocks), iter(range(len(blocks))), []
    errors = np.geterr()  # of the caller; a thread starts with the defaults

    def help_out():
        with np.errstate(**errors):
            work(True)

    def work(helper):
        while not failed:
            with _state.lock:
                number = None
                if not helper or _state.working < limit:
                    number = next(waiting, None)
                if number is None:
                    return
                _state.working += helper
            try:
                results[number] = function(*blocks[number])
            except BaseException:
                failed.append(True)
                raise
            finally:
                with _state.lock:
                    _state.working -= helper

    with _state.lock:
        if _state.pool is None:
            _state.pool = ThreadPoolExecutor(limit - 1, thread_name_prefix="skpmtl")
        _state.working += 1
        helpers = [_state.pool.submit(help_out) for _ in range(min(limit, len(blocks)) - 1)]
    try:
        work(False)
    finally:
        with _state.lock:
            _state.working -= 1
        started = [helper for helper in helpers if not helper.cancel()]
        wait(started)  # also after an error: none may still write into the results
    for helper in started:
        helper.result()
    return results


def in_order(function, blocks):
    """Yield function(block) of one block after the other, made on as many threads as are free.

    At most one result for every thread waits at a time.
    """
    ahead = get_num_threads()
    for first in range(0, len(blocks), ahead):
        yield from run_blocks(function, [(block,) for block in blocks[first : first + ahead]])


def cost_blocks(cost, limit):
    """Pairs (first, last): consecutive items that cost `limit` together at most, or one item."""
    ends = np.cumsum(cost)
    if len(cost) and ends[-1] <= limit:
        return [(0, len(cost))]
    blocks, first, before = [], 0, 0
    while first < len(cost):
        last = int(np.searchsorted(ends, before + limit, side="right"))
        last = max(last, first + 1)
        blocks.append((first, last))
        first, before = last, ends[last - 1]
    return blocks


def task_blocks(offsets, width, limit):
    """Pairs (first, last) of tasks; rows times `width` of a block are `limit` or one task."""
    return cost_blocks(np.diff(offsets) * max(width, 1), limit)
