"""Threads that all have something to tell -> one at a time, and none that waits for a thread that waits for it.

Gates trip on TensorFlow's threads.  Two replicas wait for each other's turn; a gate in a graph that the thread whose
turn it is runs itself must not, and nothing tells the two apart but where that thread stands.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

STILL = 8  # looks in a row, a quarter of a second apart, at a thread that stands in one op: it waits for a graph
LIBRARY = "tensorflow"


class Turns:
    """A lock that is given up when its holder is inside TensorFlow, in the same op, for two seconds."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.holder: int | None = None

    @contextlib.contextmanager
    def take(self) -> Iterator[bool]:
        """Wait for this thread's turn; False when that would never come."""
        if not self.wait():
            yield False
            return
        outer, self.holder = self.holder, threading.get_ident()
        try:
            yield True
        finally:
            self.holder = outer
            self.lock.release()

    def wait(self) -> bool:
        """Take the lock; False when its holder waits for TensorFlow."""
        place, still = None, 0
        while not self.lock.acquire(timeout=0.25):
            now = where(self.holder)
            still = still + 1 if now is not None and now == place else 0
            place = now
            if still >= STILL:
                return False
        return True


def where(thread: int | None) -> tuple[int, int] | None:
    """The frame and instruction that a thread is at inside of TensorFlow; None for one that is elsewhere."""
    frame = sys._current_frames().get(thread or 0)
    if frame is None or not frame.f_globals.get("__name__", "").startswith(LIBRARY):
        return None
    return id(frame), frame.f_lasti
