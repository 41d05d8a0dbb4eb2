"""The process ends -> every dataset's iterator is gone before Python stops serving other threads.

While it shuts down, Python ends each thread that asks to run Python.  A thread of a dataset that is ended so within a
hook leaves its iterator waiting for ever, and the process with it.
"""

import atexit
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from tfdb import internals, internals_datasets
from tfdb.interrupts import uninterrupted
from tfdb.sourcemap import is_hidden

_registered: list[Callable[[], None]] = []
_over: list[bool] = []
_process = os.getpid()


def register(end: Callable[[], None]) -> None:
    """Call `end()` and let go of all iterators when the process exits.  Idempotent."""
    if not _registered:
        _registered.append(end)
        atexit.register(leave)


def no_more_stops() -> None:
    """The program has been quit: what it has registered for its exit runs without stops.  Idempotent."""
    atexit.unregister(over)
    atexit.register(over)  # the last is the first to be called


def over() -> None:
    """End the session; `is_over` from now on."""
    for end in _registered:
        end()
    _over.append(True)


def is_over() -> bool:
    """Whether the program has been quit, and now does what it has registered for its exit."""
    return bool(_over)


def leave() -> None:
    """Stop in hooks no more; where any was made, let go of what frames of the past hold, and of the iterators.

    Not in a forked child: it has none of the iterators' threads, and would wait for them.
    """
    with uninterrupted():
        for end in _registered:
            end()
        if internals.loaded() and internals.planted and os.getpid() == _process:
            let_go_of_tracebacks()
            gc.collect()
            internals_datasets.let_go_of_iterators()


def let_go_of_tracebacks() -> None:
    """Clear what libraries' frames of errors that are kept hold: the handle of an iterator that one came out of."""
    kept: list[Any] = [each for each in gc.get_objects() if type(each) is TracebackType]
    for each in kept:
        if is_hidden(each.tb_frame.f_code.co_filename):
            with suppress(RuntimeError):  # the frame is running
                each.tb_frame.clear()
