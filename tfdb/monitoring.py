"""Python's own events -> calls for chosen code objects only: `sys.monitoring`, which Python has from 3.12 on.

Other code runs at full speed: each function outside of the chosen ones is reported once, when it is first called.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

from tfdb.sourcemap import GENERATED_FILE, has_line, is_user

monitoring: Any = getattr(sys, "monitoring", None)
NUMBERS = (
    0,
    5,
    2,
    1,
)  # after a tool's own place: 3 and 4 have no name in Python's manual, and the program's are elsewhere


class Tool:
    """One of the interpreter's few places for tools, while it is claimed."""

    def __init__(self, name: str, place: int) -> None:
        self.name = name
        self.place = place
        self.number: int | None = None
        self.chosen: dict[int, weakref.ref[CodeType]] = {}
        self.callbacks: Mapping[str, Callable[..., Any]] = {}

    def claim(self, callbacks: Mapping[str, Callable[..., Any]]) -> bool:
        """Take a free place, with a callback for each event's name; False when there is none."""
        if self.number is not None:
            return True
        places = (self.place, *NUMBERS) if monitoring is not None else ()
        free = [number for number in places if monitoring.get_tool(number) is None]
        if not free:
            return False
        self.number, self.callbacks = free[0], callbacks
        if self.number != self.place:
            monitoring.restart_events()  # what another tool switched off there would stay so
        monitoring.use_tool_id(self.number, self.name)
        for name, callback in callbacks.items():
            monitoring.register_callback(self.number, getattr(monitoring.events, name), callback)
        return True

    def everywhere(self, *names: str) -> None:
        """Report these events in all code, and no others."""
        monitoring.set_events(self.number, union(names))

    def within(self, code: CodeType, *names: str) -> None:
        """Report these events in a code object too; those that a callback had switched off come again."""
        if id(code) in self.chosen:
            monitoring.set_local_events(self.number, code, 0)
        monitoring.set_local_events(self.number, code, union(names))
        if names:
            self.chosen[id(code)] = remembered(code, self.chosen)
        else:
            self.chosen.pop(id(code), None)

    def has(self, code: CodeType) -> bool:
        """Whether events are reported in this code object."""
        return id(code) in self.chosen

    def release(self) -> None:
        """Report nothing more and give the place back.  Idempotent."""
        if self.number is None:
            return
        self.everywhere()
        for code in alive(self.chosen):
            monitoring.set_local_events(self.number, code, 0)
        self.chosen.clear()
        for name in self.callbacks:
            monitoring.register_callback(self.number, getattr(monitoring.events, name), None)
        monitoring.free_tool_id(self.number)
        self.number = None


def union(names: Collection[str]) -> int:
    """The events of these names as `sys.monitoring` takes them."""
    return sum(getattr(monitoring.events, name) for name in names)


def remembered(code: CodeType, table: dict[int, "weakref.ref[CodeType]"]) -> "weakref.ref[CodeType]":
    """A reference under the object's id, gone with it: equal code objects are not the same to the interpreter."""
    key = id(code)
    return weakref.ref(code, lambda _: table.pop(key, None))


def alive(table: Mapping[int, "weakref.ref[CodeType]"]) -> Iterator[CodeType]:
    """The code objects of a table that still exist."""
    yield from filter(None, [reference() for reference in list(table.values())])


class BreakpointLines:
    """Calls `on_line(frame)`, on the thread that runs it, when a line with a breakpoint is about to run.

    `lines_in(code)` tells the lines with breakpoints in the code's file: of a function whose first line is among them
    all lines are reported.  Only code that holds such lines costs anything, and code that AutoGraph generated: calls of
    that, its lines and returns go to `on_generated(frame, event, arg)`.
    """

    def __init__(
        self,
        lines_in: Callable[[CodeType], Collection[int]],
        on_line: Callable[[FrameType], None],
        on_generated: Callable[[FrameType, str, Any], None],
    ) -> None:
        self.lines_in = lines_in
        self.on_line = on_line
        self.on_generated = on_generated
        self.tool = Tool("tfdb breakpoints", 4)
        self.met: dict[int, weakref.ref[CodeType]] = {}
        self.without: set[str] = set()  # libraries' files without breakpoints; an import runs thousands of functions

    @property
    def installed(self) -> bool:
        """Whether breakpoints are seen by this object: not before Python 3.12, nor where all places are taken."""
        return self.tool.number is not None

    def refresh(self, files: Collection[str]) -> None:
        """Breakpoints changed: these files have some now."""
        self.without.clear()
        if not files:
            self.remove()
            return
        first = not self.installed
        events: dict[str, Callable[..., Any]] = {
            "PY_START": self.started, "PY_RESUME": self.started, "LINE": self.reached, "PY_RETURN": self.returned,
        }  # fmt: skip
        if not self.tool.claim(events):
            return
        if first:
            self.tool.everywhere("PY_START", "PY_RESUME")
        for code in [*alive(self.met), *running()]:
            self.meet(code)
        if first or not all(map(is_user, files)):
            monitoring.restart_events()  # library code is not kept in `met`: it is met again at its next call

    def remove(self) -> None:
        """See breakpoints no more.  Idempotent."""
        self.tool.release()
        self.met.clear()

    def meet(self, code: CodeType) -> None:
        """A code object is running or known: look at its lines, if it has any with breakpoints."""
        if GENERATED_FILE in code.co_filename:
            self.tool.within(code, "LINE", "PY_RETURN")
            return
        if is_user(code.co_filename):
            self.met[id(code)] = remembered(code, self.met)
        lines = self.lines_in(code)
        if any(has_line(code, line) for line in lines):
            self.tool.within(code, "LINE")
        elif self.tool.has(code):
            self.tool.within(code)
        elif not lines and not is_user(code.co_filename):
            self.without.add(code.co_filename)

    def started(self, code: CodeType, offset: int) -> Any:
        """A code object begins to run for the first time, or goes on after a `yield`."""
        if code.co_filename in self.without:
            return monitoring.DISABLE
        if not self.tool.has(code):
            self.meet(code)
        if GENERATED_FILE not in code.co_filename:
            return monitoring.DISABLE
        self.on_generated(sys._getframe(1), "call", None)
        return None

    def reached(self, code: CodeType, line: int) -> Any:
        """A line of a code object that holds breakpoints, or of a generated one, is about to run."""
        if GENERATED_FILE in code.co_filename:
            self.on_generated(sys._getframe(1), "line", None)
            return None
        lines = self.lines_in(code)
        if line not in lines and code.co_firstlineno not in lines:
            return monitoring.DISABLE
        self.on_line(sys._getframe(1))
        return None

    def returned(self, code: CodeType, offset: int, value: Any) -> None:
        """A call of generated code ends."""
        self.on_generated(sys._getframe(1), "return", value)


def running() -> Iterator[CodeType]:
    """The code objects of all calls that are open now, on all threads."""
    for frame in sys._current_frames().values():
        each: FrameType | None = frame
        while each is not None:
            yield each.f_code
            each = each.f_back


class TracingEvents:
    """Gives calls, lines and returns to the tracer of the thread that runs them, but for files that `is_library` names.

    A tracer has `on_call`, as `sys.settrace` takes it; what that returns for a frame is told of its lines and return.
    """

    def __init__(self, is_library: Callable[[str], bool]) -> None:
        self.is_library = is_library
        self.tool = Tool("tfdb tracing", 3)
        self.local = threading.local()
        self.lock = threading.Lock()
        self.users = 0
        self.followed: dict[int, Callable[[FrameType, str, Any], Any]] = {}

    @property
    def tracer(self) -> Any:
        """This thread's tracer, or None."""
        return getattr(self.local, "tracer", None)

    def start(self, tracer: Any) -> bool:
        """Give this thread a tracer; False where events cannot be had."""
        with self.lock:
            callbacks: dict[str, Callable[..., Any]] = {
                "PY_START": self.started, "PY_RESUME": self.started, "LINE": self.reached,
                "PY_RETURN": self.returned, "PY_YIELD": self.returned, "PY_UNWIND": self.unwound,
            }  # fmt: skip
            if not self.tool.claim(callbacks):
                return False
            self.users += 1
            if self.users == 1:
                self.tool.everywhere("PY_START", "PY_RESUME", "PY_UNWIND")
        self.local.tracer = tracer
        return True

    def adopt(self, tracer: Any) -> None:
        """A thread that was started for a traced function has its tracer too."""
        self.local.tracer = tracer

    def stop(self) -> None:
        """Take this thread's tracer away."""
        self.local.tracer = None
        with self.lock:
            self.users -= 1
            if not self.users:
                self.tool.release()
                self.followed.clear()

    def follow(self, frame: FrameType, handler: Callable[[FrameType, str, Any], Any]) -> None:
        """Report what happens in a frame from now on."""
        self.followed[id(frame)] = handler
        if not self.tool.has(frame.f_code):
            self.tool.within(frame.f_code, "LINE", "PY_RETURN", "PY_YIELD")

    def started(self, code: CodeType, offset: int) -> Any:
        """A function is called, or goes on after a `yield`."""
        if self.is_library(code.co_filename):
            return monitoring.DISABLE
        tracer = self.tracer
        if tracer is not None:
            frame = sys._getframe(1)
            handler = tracer.on_call(frame, "call", None)
            if handler is not None:
                self.follow(frame, handler)
        return None

    def reached(self, code: CodeType, line: int) -> None:
        """A line is about to run."""
        self.tell(sys._getframe(1), "line", None)

    def returned(self, code: CodeType, offset: int, value: Any) -> None:
        """A call ends with a value, or stands at a `yield`."""
        self.tell(sys._getframe(1), "return", value)

    def unwound(self, code: CodeType, offset: int, error: BaseException) -> None:
        """A call ends with an exception."""
        if self.followed:
            self.tell(sys._getframe(1), "return", None)

    def tell(self, frame: FrameType, event: str, value: Any) -> None:
        """Pass an event on to what a followed frame has for it."""
        handler = self.followed.get(id(frame))
        if handler is None or self.tracer is None:
            return
        if event == "return":
            del self.followed[id(frame)]
        handler(frame, event, value)
