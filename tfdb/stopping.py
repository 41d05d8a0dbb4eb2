"""What a stop is and how far to run after it: values between session and prompt, and pdb's rules of stepping."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from tfdb.frames import LiveFrame
from tfdb.linehooks import Hit


@dataclass(frozen=True, slots=True)
class Stepping:
    """How far a graph runs before the next stop: "step", or "next", "return", "until" in one activation."""

    kind: str
    activation: int = 0
    lineno: int = 0


@dataclass(frozen=True, slots=True)
class GraphStop:
    """A stop inside a running graph: the stand-in frames, outermost first, and what they stand for.

    `callers` are the eager frames outside the graph: real ones of the waiting thread, with their lines.  With
    `tracing`, Python runs these lines now, and that is told how to go on.
    """

    hit: Hit | None
    frames: list[FrameType]
    live: list[LiveFrame]
    callers: list[tuple[FrameType, int]]
    number_of_pass: int
    reason: str
    event: str
    title: str = ""
    report: Any = None
    tracing: Any = None
    trip: Any = None  # of a watch: the gate that failed

    def live_frame(self, frame: FrameType) -> LiveFrame | None:
        """What a frame object of this stop stands for, or None when it is an eager caller's."""
        for stand_in, entry in zip(self.frames, self.live, strict=True):
            if stand_in is frame:
                return entry
        return None


def after_return(stepping: Stepping, entries: list[LiveFrame]) -> Stepping:
    """What a wish about the function that is returning now becomes: about its caller."""
    if stepping.activation != entries[-1].activation or stepping.kind == "step":
        return stepping
    caller = next((entry.activation for entry in entries[-2::-1] if not entry.hidden), 0)
    return Stepping("next", caller) if stepping.kind == "return" and caller else Stepping("step")


def reads_dataset(frame: FrameType | None) -> bool:
    """Whether a prompt's thread, now at `frame`, is carrying out a command that reads a dataset."""
    while frame is not None and frame.f_code.co_name not in ("onecmd", "interaction"):
        if "tensorflow/python/data/" in frame.f_code.co_filename.replace("\\", "/"):
            return True
        frame = frame.f_back
    return False


def read_dataset(threads: Iterable[int]) -> bool:
    """Whether any of these threads, which stand at a prompt, reads a dataset there."""
    frames = sys._current_frames()
    return any(reads_dataset(frames.get(each)) for each in list(threads))


def steps_here(stepping: Stepping, event: str, activation: int, lineno: int) -> bool:
    """Whether a step ends at this event, by pdb's rules."""
    if stepping.kind == "step":
        return True
    if activation != stepping.activation:
        return False
    if event == "return":
        return True
    return stepping.kind == "next" or (stepping.kind == "until" and lineno >= stepping.lineno)


def without_the_line_shown(real: list[tuple[FrameType, int]], shown: LiveFrame) -> list[tuple[FrameType, int]]:
    """The callers outside the one that stands in for a graph with no user line; it lends its locals."""
    for n, (frame, lineno) in reversed(list(enumerate(real))):
        if (frame.f_code.co_filename, lineno) == (shown.filename, shown.lineno):
            for name, value in frame.f_locals.items():
                shown.locals.setdefault(name, value)
            return real[:n]
    return real


def stop_line(stop: GraphStop) -> str:
    """The line above a graph stop: the functions open in the graph, the pass, and what is special."""
    assert stop.hit is not None
    point = stop.hit.point
    functions = [f.function for f in stop.live if (f.activation or f is stop.live[-1]) and not f.hidden]
    kind = "graph stop" if point.graph else "eager stop"
    parts = [kind, " > ".join(functions), f"pass {stop.number_of_pass}"]
    if point.event.startswith("<"):
        parts.insert(1, f"after {point.event[1:-1]}")
    if point.replica is not None:
        parts.append(f"replica {point.replica}")
    if point.xla:
        parts.append("XLA off for this function: jit_compile=True cannot hold a stop")
    return " · ".join(parts)


def at_last_line(frame: LiveFrame, before: Mapping[int, tuple[str, int]]) -> LiveFrame:
    """A frame that returns, at the line of its `return` that ran in this pass."""
    _, lineno = before.get(frame.activation, ("", frame.lineno))
    return replace(frame, lineno=lineno)
