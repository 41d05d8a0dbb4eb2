"""Calls from one graph to another that holds hooks -> the calling frames of a stop, with this pass's values.

A graph function is traced once and called from many places, so a hook in it cannot know its callers.  Each call of it
stands between two hooks of the calling graph: one carries the caller's locals in, the other says that the call is over.
"""

import itertools
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfdb.frames import LiveFrame, TracedFrame, live, live_without_tensors


@dataclass(frozen=True, slots=True)
class CallSite:
    """One traced call: the calling graph, its frames and the eager ones that traced it, outermost first."""

    caller: int
    callee: int
    graph: str
    frames: tuple[TracedFrame, ...]
    callers: tuple[TracedFrame, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """The calls that a stop stands in: the frames around its own graph, and the graph that Python called."""

    frames: list[LiveFrame]
    graph: str
    callers: tuple[TracedFrame, ...]


class OpenCalls:
    """The calls between graphs that are being made right now, in all threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tokens = itertools.count(1)
        self.open: defaultdict[int, dict[int, tuple[CallSite, Sequence[Any]]]] = defaultdict(dict)

    def enter(self, site: CallSite, values: Sequence[Any]) -> Any:
        """A call begins; returns the int64 token that `leave` takes, so that calls made at once are not mixed up."""
        with self.lock:
            token = next(self.tokens)
            self.open[site.callee][token] = (site, values)
        import numpy as np  # TensorFlow has it by now

        return np.int64(token)

    def leave(self, site: CallSite, token: Any) -> None:
        """A call is over."""
        with self.lock:
            self.open[site.callee].pop(int(token), None)

    def clear(self) -> None:
        """No graph is being run for Python any more: calls that are open still were left by an error."""
        with self.lock:
            self.open.clear()

    def chain(self, function: int) -> Chain | None:
        """The open calls that lead to a graph function, or None when Python calls it itself.

        Where a function is being called from several places at once, nobody knows whose call a hook belongs to: the
        frames then keep their place and lose their tensors.
        """
        frames: list[LiveFrame] = []
        site, seen = None, set()
        while function not in seen and (calls := self.calls(function)):
            seen.add(function)
            site, values = calls[-1]
            one = len(calls) == 1
            frames[:0] = [live(frame, values) if one else live_without_tensors(frame) for frame in site.frames]
            function = site.caller
        return None if site is None else Chain(frames, site.graph, site.callers)

    def calls(self, function: int) -> list[tuple[CallSite, Sequence[Any]]]:
        """The open calls of a function, the latest last."""
        with self.lock:
            return list(self.open[function].values())
