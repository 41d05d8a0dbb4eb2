"""The process ends -> every dataset's iterator is gone before Python stops serving other threads.

While it shuts down, Python ends each thread that asks to run Python.  A thread of a dataset that is ended so within a
hook leaves its iterator waiting for ever, and the process with it.
"""

import atexit
import gc
from collections.abc import Callable

from tfdb import internals, internals_datasets

_registered: list[Callable[[], None]] = []


def register(end: Callable[[], None]) -> None:
    """Call `end()` and let go of all iterators when the process exits.  Idempotent."""
    if not _registered:
        _registered.append(end)
        atexit.register(leave)


def leave() -> None:
    """Stop in hooks no more; where any was made, let go of what frames of the past hold, and of the iterators."""
    for end in _registered:
        end()
    if internals.loaded() and internals.planted:
        gc.collect()
        internals_datasets.let_go_of_iterators()
