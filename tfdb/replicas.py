"""A thread of a mirrored replica -> one that knows what its parent is doing: watching, asking, or running a step again.

MirroredStrategy runs each replica's Python on a thread of its own, which waits for, and is waited for by, its parent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import replaying
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
