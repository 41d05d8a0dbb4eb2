"""A graph that is being traced -> hooks on its user lines: each line that may be stopped at, as Python reaches it."""

import linecache
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from tfdb import generated, internals, internals_autograph
from tfdb.linehooks import HookPoint, Planter, is_exporting, traced_stack
from tfdb.sourcemap import GENERATED_FILE, Activation, activations, in_site_packages, is_hidden, line_range

MOST_HOOKS = 3000  # in one trace; code that unrolls a longer loop keeps the hooks of its breakpoints only


def begins(frame: FrameType) -> str | None:
    """What of the user's begins at the frame's line: "line", "iteration" (a loop's header again), or None."""
    code = frame.f_code
    if GENERATED_FILE not in code.co_filename:
        return "line"
    if (code.co_filename, frame.f_lineno) not in internals_autograph.generated_lines():
        return None
    return generated.kind(code.co_filename, frame.f_lineno)


class LineTracer:
    """Plants a hook for each user line that is traced on this thread, until the outermost function is traced.

    `wanted(code)` says whether every line of a function is to be planted.  Once a line with a breakpoint
    (`stops(filename, lineno)`) has been planted, or `armed` is given, every later user line is: the user may step.
    """

    def __init__(
        self,
        planter: Planter,
        wanted: Callable[[CodeType], bool],
        stops: Callable[[str, int], bool],
        armed: bool = False,
    ) -> None:
        self.planter = planter
        self.wanted = wanted
        self.stops = stops
        self.armed = armed
        self.last: dict[int, int] = {}
        self.open_lines: dict[int, tuple[HookPoint | None, Any, int]] = {}
        self.planted: set[tuple[str, int]] = set()
        self.seen: set[tuple[str, int, int]] = set()
        self.count = 0
        self.until: FrameType | None = None
        self.previous: Any = None
        self.eager_trace: Any = None
        self.active = False

    def start(self, frame: FrameType | None = None, eager_trace: Any = None) -> None:
        """Trace lines on this thread from now on; with `frame`, in the calls that are already open in it too."""
        self.previous = sys.gettrace()
        self.eager_trace = self.previous or eager_trace
        self.active = True
        if frame is not None:
            for activation in traced_stack(frame):
                if not activation.hidden:
                    self.until = activation.base
                    for each in activation.frames:
                        each.f_trace = self.on_event
        sys.settrace(self.on_call)

    def stop(self) -> None:
        """Give the thread its own trace function back.  Idempotent."""
        if self.active:
            self.active = False
            sys.settrace(self.previous)

    def on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function of new frames."""
        if not self.active:
            return None
        filename = frame.f_code.co_filename
        if GENERATED_FILE not in filename and (is_hidden(filename) or not self.may_plant(filename, frame.f_code)):
            return None
        if filename.startswith("<") and not linecache.getlines(filename):
            return None  # a method that dataclasses or namedtuple wrote; there is no line to show
        graph = internals.current_graph()
        if graph is None or internals.is_scratch(graph) or internals.in_vectorisation(frame) or is_exporting(frame):
            return self.eager_trace(frame, event, arg) if self.eager_trace is not None else None
        self.planter.renumber(frame)
        self.last.pop(id(frame), None)
        return self.on_event

    def may_plant(self, filename: str, code: CodeType) -> bool:
        """Whether lines of this function may matter: an installed package's only when it has a breakpoint."""
        return self.wanted(code) or not in_site_packages(filename)

    def on_event(self, frame: FrameType, event: str, arg: Any) -> Any:
        """The trace function of a user's frame."""
        if self.active and event in ("line", "return") and internals.current_graph() is not None:
            sys.settrace(None)
            try:
                self.plant(frame, event, arg)
            except Exception as error:
                self.planter.on_problem(frame, error)
            finally:
                sys.settrace(self.on_call)
        if event == "return" and frame is self.until:
            self.stop()
        return self.on_event

    def plant(self, frame: FrameType, event: str, arg: Any) -> None:
        """Plant the line or the return that the frame is at, if it is one to plant."""
        here = next(activations(frame), None)
        if here is None or here.hidden or here.frames[-1] is not frame:
            return
        base = id(here.base)
        if event == "return":
            self.close_line(base)
            if frame is here.base and base in self.last and not self.is_full(here):
                self.count += 1
                self.planter.plant(frame, "return", returned=arg)
            return
        kind = begins(frame)
        is_expression = frame is not here.base and frame.f_code.co_name == "<lambda>"
        if kind is None or is_expression or (self.last.get(base) == here.lineno and kind != "iteration"):
            return
        self.close_line(base)
        code = here.code or frame.f_code
        self.seen.add((here.filename, *line_range(code)))
        stops = any(self.stops(here.filename, line) for line in (here.lineno, code.co_firstlineno))
        self.armed = self.armed or stops
        if stops or ((self.armed or self.wanted(code)) and not self.is_full(here)):
            self.last[base] = here.lineno
            self.count += 1
            self.planted.add((here.filename, here.lineno))
            point = self.planter.plant(frame, kind)
            graph: Any = internals.current_graph()
            self.open_lines[base] = (point, graph, graph.version)

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
