"""A graph that is being traced -> hooks on its user lines: each line that may be stopped at, as Python reaches it."""

import bdb
import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any, Protocol

from tfdb import generated, internals, internals_autograph, internals_tracing
from tfdb.linehooks import HookPoint, Loop, Planter, never_runs, traced_stack
from tfdb.monitoring import TracingEvents
from tfdb.sourcemap import GENERATED_FILE, Activation, activations, in_site_packages, is_hidden, is_nowhere, line_range

MOST_HOOKS = 3000  # in one trace; code that unrolls a longer loop keeps the hooks of its breakpoints only
FACTORY = re.compile(r"(inner|outer)_factory(_\d+)?|<module>")  # AutoGraph's frames that make a function, not run it


def begins(frame: FrameType) -> str | None:
    """What of the user's begins at the frame's line: "line", "iteration" (a loop's header again), or None."""
    code = frame.f_code
    if GENERATED_FILE not in code.co_filename:
        return "line"
    if (code.co_filename, frame.f_lineno) not in internals_autograph.generated_lines():
        return None
    return generated.kind(code.co_filename, frame.f_lineno)


def flags(frame: FrameType, names: Iterable[str]) -> tuple[Any, ...]:
    """What AutoGraph's flags of a loop stand at: bools where Python runs the loop, else tensors."""
    values = (frame.f_locals.get(name, False) for name in names)
    return tuple(value for value in values if value is True or internals.is_symbolic(value))


class AtTracing(Protocol):
    """What is told of lines as they are traced (`tracestops.TraceStops`)."""

    def wanted(self, filename: str) -> bool: ...

    def reached(self, frame: FrameType, here: Activation, event: str, returned: Any) -> None: ...

    def cannot_stop(self, here: Activation) -> None: ...

    def over(self, frame: FrameType | None) -> None: ...


@functools.cache
def is_library(filename: str) -> bool:
    """Whether no line of a file is ever planted: a library's, but those that AutoGraph made."""
    return GENERATED_FILE not in filename and is_hidden(filename)


events = TracingEvents(is_library)


def on_thread() -> "LineTracer | None":
    """The tracer that plants lines on this thread now."""
    tracer = events.tracer or getattr(sys.gettrace(), "__self__", None)
    return tracer if isinstance(tracer, LineTracer) else None


class LineTracer:
    """Plants a hook for each user line that is traced on this thread, until the outermost function is traced.

    `wanted(code)` says whether every line of a function is to be planted.  Once a line with a breakpoint
    (`stops(filename, lineno, firstlineno)`) has been planted, or `armed` is given, every later user line is: the user
    may step.
    `at_tracing` is told of the lines as Python reaches them, those of bodies that cannot hold a hook included.

    It hears of the lines by `sys.monitoring`, which costs library code nothing; by `sys.settrace` before Python 3.12,
    and where eager code that is called while tracing is stepped through.
    """

    def __init__(
        self,
        planter: Planter,
        wanted: Callable[[CodeType], bool],
        stops: Callable[[str, int, int], bool],
        armed: bool = False,
        at_tracing: AtTracing | None = None,
    ) -> None:
        self.planter = planter
        self.wanted = wanted
        self.stops = stops
        self.armed = armed
        self.at_tracing = at_tracing
        self.reached: dict[int, tuple[str, int]] = {}
        self.last: dict[int, int] = {}
        self.open_lines: dict[int, tuple[HookPoint | None, Any, int]] = {}
        self.loops: dict[int, tuple[int, tuple[str, ...], Any]] = {}
        self.planted: set[tuple[str, int]] = set()
        self.seen: set[tuple[str, int, int]] = set()
        self.count = 0
        self.until: FrameType | None = None
        self.previous: Any = None
        self.eager_trace: Any = None
        self.active = False
        self.monitored = False

    def start(self, frame: FrameType | None = None, eager_trace: Any = None) -> None:
        """Trace lines on this thread from now on; with `frame`, in the calls that are already open in it too."""
        self.previous = sys.gettrace()
        self.eager_trace = self.previous or eager_trace
        self.active = True
        stepping = isinstance(getattr(self.eager_trace, "__self__", None), bdb.Bdb)
        self.monitored = not stepping and events.start(self)
        if frame is not None:
            for activation in traced_stack(frame):
                if not activation.hidden:
                    self.until = activation.base
                    for each in activation.frames:
                        self.follow(each)
        if not self.monitored:
            sys.settrace(self.on_call)

    def follow(self, frame: FrameType) -> None:
        """Hear of the lines of a call that is open already."""
        if self.monitored:
            events.follow(frame, self.on_event)
        else:
            frame.f_trace = self.on_event

    def stop(self) -> None:
        """Give the thread its own trace function back.  Idempotent."""
        if not self.active:
            return
        self.active = False
        if self.monitored:
            events.stop()
        else:
            sys.settrace(self.previous)
        if self.at_tracing is not None:
            self.at_tracing.over(sys._getframe(1))

    def on_new_thread(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function of threads that are started meanwhile: a replica is traced on a thread of its own."""
        if not self.monitored:
            return self.on_call(frame, event, arg)
        sys.settrace(None)
        events.adopt(self)
        return None

    def on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function of new frames."""
        filename = frame.f_code.co_filename
        if is_library(filename) or not self.active:
            return None
        if GENERATED_FILE not in filename and not self.may_plant(filename, frame.f_code):
            return None
        if GENERATED_FILE in filename and FACTORY.fullmatch(frame.f_code.co_name):
            return None
        if is_nowhere(filename):
            return None  # there is no line to show
        graph = internals.current_graph()
        if graph is None or never_runs(frame):
            return None if self.monitored or self.eager_trace is None else self.eager_trace(frame, event, arg)
        self.forget(frame)
        return self.on_vectorised if internals.in_vectorisation(frame) else self.on_event

    def forget(self, frame: FrameType) -> None:
        """A frame object begins a new call."""
        self.planter.renumber(frame)
        self.last.pop(id(frame), None)
        self.reached.pop(id(frame), None)
        self.loops.pop(id(frame), None)

    def may_plant(self, filename: str, code: CodeType) -> bool:
        """Whether lines of this function may matter: an installed package's only when it has a breakpoint."""
        if self.at_tracing is not None and self.at_tracing.wanted(filename):
            return True
        return self.wanted(code) or not in_site_packages(filename)

    def on_event(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function of a user's frame."""
        self.handle(frame, event, arg, True)
        return self.on_event

    def on_vectorised(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function of a frame whose ops `vectorized_map` or `jacobian` rewrites: it gets no hooks."""
        self.handle(frame, event, arg, False)
        return self.on_vectorised

    def handle(self, frame: FrameType, event: str, arg: Any, plants: bool) -> None:
        """A line, or a return, of a user's frame is reached; `plants` says whether it may get a hook."""
        if self.active and event in ("line", "return") and internals.current_graph() is not None:
            try:
                self.look(frame, event, arg, plants)
            except Exception as error:
                self.planter.on_problem(frame, error)
        if event == "return" and frame is self.until:
            self.stop()

    def look(self, frame: FrameType, event: str, arg: Any, plants: bool) -> None:
        """Tell of the line or the return that the frame is at, and plant it if it is one to plant."""
        here = next(activations(frame), None)
        if here is None or here.hidden or here.frames[-1] is not frame:
            return
        base = id(here.base)
        if id(frame) in self.loops:
            self.plant_end(frame, here, *self.loops.pop(id(frame)))
        if event == "return":
            self.close_line(base)
            if frame is here.base:
                self.tell(frame, here, event, arg)
                if plants and base in self.last and not self.is_full(here):
                    self.count += 1
                    self.planter.plant(frame, "return", returned=arg)
            return
        kind = begins(frame)
        if kind is None or (frame is not here.base and frame.f_code.co_name == "<lambda>"):
            return
        self.tell(frame, here, kind, None)
        if self.last.get(base) == here.lineno and kind != "iteration":
            return
        code = here.code or frame.f_code
        stops = self.stops(here.filename, here.lineno, code.co_firstlineno)
        if plants:
            self.plant(frame, here, kind, stops)
        elif stops and self.at_tracing is not None:
            self.last[base] = here.lineno
            self.at_tracing.cannot_stop(here)

    def plant(self, frame: FrameType, here: Activation, kind: str, stops: bool) -> None:
        """Plant the line that the frame is at, unless nothing is going to ask for it; `stops`: a breakpoint does."""
        base = id(here.base)
        self.close_line(base)
        code = here.code or frame.f_code
        self.seen.add((here.filename, *line_range(code)))
        self.arm(stops)
        if stops or ((self.armed or self.wanted(code) or self.comes_again(frame)) and not self.is_full(here)):
            self.last[base] = here.lineno
            self.count += 1
            self.planted.add((here.filename, here.lineno))
            graph: Any = internals.current_graph()
            names = generated.leaving(frame.f_code.co_filename, frame.f_lineno)
            left = flags(frame, names or ()) if kind == "iteration" else ()
            if any(flag is True for flag in left):
                return
            point = self.planter.plant(frame, kind, loop=Loop(here.lineno, left))
            self.open_lines[base] = (point, graph, graph.version)
            if kind == "line" and names is not None:
                self.loops[id(frame)] = (here.lineno, names, graph)

    def arm(self, stops: bool) -> None:
        """Take note of a line with a breakpoint, from which the user may step to all that runs after it.

        After a function of a dataset that is what later functions of a pipeline do with its elements.
        """
        of_dataset = internals.is_of_dataset(internals.function_graph(internals.current_graph()))
        self.planter.data_armed = self.planter.data_armed or (stops and of_dataset)
        self.armed = self.armed or stops or (of_dataset and self.planter.data_armed)

    def comes_again(self, frame: FrameType) -> bool:
        """Whether a line, traced before a breakpoint, runs after it too: in the next pass, or for the next element."""
        graph = internals.current_graph()
        if not internals_tracing.in_loop_body(graph) and not internals.is_of_dataset(internals.function_graph(graph)):
            return False
        return any(each.code is not None and self.wanted(each.code) for each in traced_stack(frame) if not each.hidden)

    def plant_end(self, frame: FrameType, here: Activation, lineno: int, names: tuple[str, ...], graph: Any) -> None:
        """A `for` loop is over: Python looks at its header once more, unless the loop was left."""
        self.close_line(id(here.base))
        left = flags(frame, names)
        over = graph is internals.current_graph() and not any(flag is True for flag in left)
        if over and not self.is_full(here):
            self.count += 1
            self.planter.plant(frame, "iteration", loop=Loop(lineno, left))

    def tell(self, frame: FrameType, here: Activation, kind: str, returned: Any) -> None:
        """Tell `at_tracing` of a line, once for all that AutoGraph made of it, and of a loop's header once a pass."""
        if self.at_tracing is None:
            return
        base = id(here.base)
        before = self.reached.get(base)
        if kind == "return" and before is not None:
            here = dataclasses.replace(here, lineno=before[1])
        self.reached[base] = (kind, here.lineno)
        if before is None or before[1] != here.lineno or kind == "return" or before[0] == kind == "iteration":
            self.at_tracing.reached(frame, here, kind, returned)

    def close_line(self, base: int) -> None:
        """An activation's line is over: take note when it has added nothing to its graph."""
        point, graph, version = self.open_lines.pop(base, (None, None, 0))
        if point is None or graph is None:
            return
        now: Any = internals.current_graph()
        if now is graph and now.version == version:
            self.planter.without_ops.add(point.number)

    def is_full(self, here: Activation) -> bool:
        """Whether this trace holds so many hooks already that only breakpoints are worth one more."""
        return self.count >= MOST_HOOKS
