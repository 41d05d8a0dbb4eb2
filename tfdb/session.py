"""The one mutable object: it answers "stop here?" for every hook, and keeps what the answers depend on.

One session serves the whole process: breakpoints and the prompt belong to its debugger (made by `make_debugger`, which
the prompt row supplies), stepping inside graphs, the lock that lets one prompt open at a time, and the wish to quit
belong to itself.
"""

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from tfdb import internals
from tfdb.calls import CallDoor
from tfdb.errors import Quit
from tfdb.frames import LiveFrame, attributes_of_this_pass, live, standing
from tfdb.linehooks import Hit, LineTracer, Planter, is_exporting
from tfdb.sourcemap import activations, has_line
from tfdb.twins import Needs, Twins


@dataclass(frozen=True, slots=True)
class Stepping:
    """How far a graph runs before the next stop: "step", or "next", "return", "until" in one activation."""

    kind: str
    activation: int = 0
    lineno: int = 0


@dataclass(frozen=True, slots=True)
class GraphStop:
    """A stop inside a running graph: the stand-in frames, outermost first, and what they stand for.

    `callers` are the eager frames outside the graph: real ones of the waiting thread, with their lines.
    """

    hit: Hit
    frames: list[FrameType]
    live: list[LiveFrame]
    callers: list[tuple[FrameType, int]]
    number_of_pass: int
    reason: str

    def live_frame(self, frame: FrameType) -> LiveFrame | None:
        """What a frame object of this stop stands for, or None when it is an eager caller's."""
        for stand_in, entry in zip(self.frames, self.live, strict=True):
            if stand_in is frame:
                return entry
        return None


class Session:
    """What the debugger knows and wants, for all threads of the process."""

    def __init__(self, make_debugger: Callable[["Session"], Any]) -> None:
        self.make_debugger = make_debugger
        self.own: Any = None
        self.lock = threading.RLock()
        self.at_prompt: set[int] = set()
        self.passes: Counter[int] = Counter()
        self.stepping: Stepping | None = None
        self.quitting: BaseException | None = None
        self.interrupted = False
        self.closed = False
        self.planter = Planter(self.on_hit)
        self.door = CallDoor(self.after_call, lambda: self.quitting)
        self.process = os.getpid()
        self.twins = Twins(
            Needs(
                lambda: self.debugger.breakpoints(),
                lambda: self.debugger.is_stepping(),
                lambda: threading.get_ident() in self.at_prompt,
                self.tracer,
                self.step_into,
            )
        )

    @property
    def debugger(self) -> Any:
        """The pdb of this session, made on first use."""
        if self.own is None:
            self.own = self.make_debugger(self)
        return self.own

    # -- planting -------------------------------------------------------------------------------------------------

    def plant(self, frame: FrameType, condition: Any = True) -> None:
        """set_trace() in traced code: stop at each run of this point, and let the user step on from there."""
        if is_exporting(frame) or condition is False or internals.in_vectorisation(frame):
            return
        _ = self.debugger  # made here, on the user's thread: IPython must not be set up on a graph's
        self.door.install()
        self.planter.plant(frame, "call", condition)
        if not isinstance(getattr(sys.gettrace(), "__self__", None), LineTracer):
            self.tracer(armed=True).start(frame)

    def tracer(self, armed: bool = False) -> LineTracer:
        """A tracer that plants what the present breakpoints and stepping need."""
        return LineTracer(self.planter, self.wants, self.has_breakpoint, armed)

    def wants(self, code: CodeType) -> bool:
        """Whether all lines of a function are to be planted: it has a breakpoint."""
        lines = self.debugger.breaks.get(self.debugger.canonic(code.co_filename), ())
        return any(has_line(code, line) for line in lines)

    def has_breakpoint(self, filename: str, lineno: int) -> bool:
        """Whether a breakpoint stands on this line."""
        return lineno in self.debugger.breaks.get(self.debugger.canonic(filename), ())

    def arm(self) -> None:
        """Stand at TensorFlow's doors, if the program has imported it; hooks follow as they are needed."""
        if internals.loaded() and not self.closed:
            self.door.install()
            self.twins.install()

    def step_into(self) -> None:
        """`s` goes from eager code into a graph: stop at the first line that it runs."""
        self.stepping = Stepping("step")

    def is_foreign(self) -> bool:
        """Whether this process was forked from the one that the session belongs to."""
        return self.process != os.getpid()

    # -- running --------------------------------------------------------------------------------------------------

    def on_hit(self, hit: Hit) -> None:
        """A planted line is about to run in a graph: stop if anything asks for it."""
        if self.closed:
            return
        if self.quitting is not None:
            raise self.quitting
        self.passes[hit.point.number] += 1
        if threading.get_ident() in self.at_prompt:
            return
        try:
            if not (hit.point.event == "line" and self.stepping is None and not self.debugger.breaks):
                with self.lock:
                    reason = None if self.quitting else self.reason(hit)
                    if reason is not None:
                        self.stop(hit, reason)
        except Exception as error:
            self.debugger.error(f"tfdb could not stop here, the program goes on. {type(error).__name__}: {error}")
        if self.quitting is not None:
            raise self.quitting

    def reason(self, hit: Hit) -> str | None:
        """Why to stop at this hit, or None."""
        point, place = hit.point, hit.point.place
        if self.interrupted:
            self.interrupted = False
            return "interrupted"
        if point.event == "call":
            return "set_trace" if hit.condition() else None
        if self.stepping is not None and steps_here(self.stepping, point.event, place.activation, place.lineno):
            return self.stepping.kind
        if point.event == "line" and self.has_breakpoint_near(place):
            return self.debugger.breakpoint_reason(hit)
        return None

    def has_breakpoint_near(self, place: Any) -> bool:
        """Whether a breakpoint may be meant for this line: on it, or on the function's first."""
        lines = self.debugger.breaks.get(self.debugger.canonic(place.filename), ())
        return place.lineno in lines or place.firstlineno in lines

    def stop(self, hit: Hit, reason: str) -> None:
        """Open the prompt at a hit, and apply what the user chose there."""
        entries = hit.frames()
        if hit.point.event == "return":
            entries[-1].locals["__return__"] = hit.returned()
        callers = [live(frame, ()) for frame in hit.point.callers]
        real = self.caller_frames(hit.point.graph)
        stack = entries if real else callers + entries
        self.stepping = None

        def ask(frames: list[FrameType]) -> None:
            stop = GraphStop(hit, frames, stack, real, self.passes[hit.point.number], reason)
            with self.prompting():
                self.debugger.graph_interaction(stop)

        with attributes_of_this_pass(entries):
            standing(stack, ask)
        if self.stepping is not None and self.stepping.kind in ("next", "until") and hit.point.event == "return":
            self.stepping = Stepping("step")

    @contextmanager
    def prompting(self) -> Iterator[None]:
        """Mark this thread as standing at a prompt: nothing it evaluates there stops again."""
        thread = threading.get_ident()
        again = thread in self.at_prompt
        self.at_prompt.add(thread)
        try:
            yield
        finally:
            if not again:
                self.at_prompt.discard(thread)

    def caller_frames(self, graph: str) -> list[tuple[FrameType, int]]:
        """The eager stack, outermost first, of the thread that is running this graph; empty when none can be told."""
        calls = [call for call in list(self.door.active) if f"_{graph}_" in f"_{call.function}_"]
        if not calls:
            return []
        return [(each.base, each.lineno) for each in reversed(list(activations(calls[-1].frame)))]

    def after_call(self, frame: FrameType) -> None:
        """A graph call is over on this thread: stepping goes on in the eager code that made it."""
        if self.quitting is None and self.stepping is not None:
            self.stepping = None
            self.debugger.step_in_eager(frame)

    def quit(self, error: BaseException | None = None) -> None:
        """End the program: every hook, waiting or to come, raises this, and so does the graph call around it."""
        self.quitting = error or Quit(1)
        self.door.hush()

    def close(self) -> None:
        """Take away every hook that is not part of a user's graph."""
        self.closed = True
        self.planter.remove()
        self.door.remove()
        self.twins.remove()


def steps_here(stepping: Stepping, event: str, activation: int, lineno: int) -> bool:
    """Whether a step ends at this event, by pdb's rules."""
    if stepping.kind == "step":
        return True
    if activation != stepping.activation:
        return False
    if event == "return":
        return True
    return stepping.kind == "next" or (stepping.kind == "until" and lineno >= stepping.lineno)


_current: list[Session] = []


def current(make_debugger: Callable[[Session], Any]) -> Session:
    """The process's session; the first caller's `make_debugger` makes it."""
    if not _current:
        _current.append(Session(make_debugger))
    return _current[-1]


def end() -> None:
    """End the process's session: everything hooked is unhooked."""
    while _current:
        _current.pop().close()


@contextmanager
def using(debugger: Any) -> Iterator[Session]:
    """Within the block, stops open this debugger; everything hooked is unhooked after it."""
    session = Session(lambda session: debugger)
    debugger.session = session
    _current.append(session)
    before = sys.gettrace()
    try:
        yield session
    finally:
        sys.settrace(before)
        _current.remove(session)
        session.close()


def leftovers() -> list[str]:
    """What is still hooked into TensorFlow or the interpreter; empty when all is clean."""
    names = []
    for session in _current:
        for part in (session.planter, session.door, session.twins):
            names += [f"{type(part).__name__}: {owner.__name__}.{name}" for owner, name, _ in part.patches.saved]
    return names
