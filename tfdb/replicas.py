"""A thread of a mirrored replica -> one that knows what its parent is doing: watching, asking, or running a step again.

MirroredStrategy runs each replica's Python on a thread of its own, which waits for, and is waited for by, its parent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from . import internals, internals_gate, replaying
from .gate import gate

STATE = "_tfdb_state"


def starting(original: Callable[..., None]) -> Callable[..., None]:
    """The `__init__` of a replica's thread, on its parent."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        state = gate.local.busy, replaying.local.current
        setattr(self, STATE, state)

    return __init__


def running(original: Callable[..., None]) -> Callable[..., None]:
    """Its `run`."""

    def run(self: Any) -> None:
        gate.local.busy, replaying.local.current = getattr(self, STATE, (0, None))
        original(self)

    return run


def let_go() -> None:
    """End the replicas' threads of a program that was quit.

    Ctrl-C may come upon their parent before it minds them: they wait for it for ever then, and Python for them.
    """
    if internals.loaded():
        kind = internals_gate.replica_thread_class()
        waiting: list[Any] = [thread for thread in threading.enumerate() if isinstance(thread, kind)]
        for thread in waiting:
            thread.coord.request_stop()
            thread.should_run.set()
