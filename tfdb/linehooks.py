"""Lines of a function that is being traced -> hook ops that report each later run of those lines, in program order.

`plant` adds one hook for the line that a frame stands on.  `LineTracer` calls it for every line the user may want to
stop at, while a graph is traced.
"""

import itertools
import linecache
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from tfdb import generated, internals
from tfdb.callsites import CallSite, OpenCalls
from tfdb.frames import Carrier, Filled, LiveFrame, TracedFrame, live
from tfdb.ordering import Ordering, is_hook, without_hooks
from tfdb.sourcemap import GENERATED_FILE, Activation, activations, in_site_packages, is_hidden, line_range

MOST_HOOKS = 3000  # in one trace; code that unrolls a longer loop keeps the hooks of its breakpoints only
EXPORTS = ("saved_model/save.py", "src/export/", "saved_model/function_serialization.py")


@dataclass(frozen=True, slots=True)
class HookPoint:
    """One planted line: what was known of it while tracing.  `frames` are outermost first."""

    number: int
    event: str  # "line", "iteration" (a loop's header again), "return", or "call" for an explicit set_trace()
    frames: tuple[TracedFrame, ...]
    callers: tuple[TracedFrame, ...]
    graph: str
    function: int
    xla: bool
    condition: Any
    returned: Any

    @property
    def place(self) -> TracedFrame:
        """The innermost frame: where the hook stands."""
        return self.frames[-1]


@dataclass(frozen=True, slots=True)
class Hit:
    """One run of a planted line, with the values that its tensors have in this pass."""

    point: HookPoint
    values: Sequence[Any]

    def frames(self) -> list[LiveFrame]:
        """The user's stack inside the graph, outermost first, with this pass's values."""
        return [live(frame, self.values) for frame in self.point.frames]

    def condition(self) -> bool:
        """Whether the `cond` of set_trace() holds in this pass."""
        return bool(self.filled(self.point.condition))

    def returned(self) -> Any:
        """What the function returns in this pass, at a "return" event."""
        return self.filled(self.point.returned)

    def filled(self, part: Any) -> Any:
        """A part of the point's template with this pass's values."""
        return part.make(self.values) if isinstance(part, Filled) else part


class Planter:
    """Plants hooks and keeps what all of them share: the ordering, the activations' numbers, the callback."""

    def __init__(
        self, on_hit: Callable[[Hit], None], on_problem: Callable[[FrameType, Exception], None]
    ) -> None:
        self.on_hit = on_hit
        self.on_problem = on_problem
        self.ordering = Ordering()
        self.open_calls = OpenCalls()
        self.on_op: Callable[[Any], None] | None = None
        self.patches = internals.Patches()
        self.numbers: dict[int, int] = {}
        self.without_ops: set[int] = set()
        self.counter = itertools.count(1)
        self.points = itertools.count(1)
        self.hooks: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def install(self) -> None:
        """Watch every op and every finished graph from now on.  Idempotent; `remove` undoes it."""
        if self.patches.saved:
            return
        self.patches.replace(internals.func_graph_class(), "_create_op_internal", self.watching_ops)
        self.patches.replace(internals.atomic_module(), "from_func_graph", self.watching_graphs)
        self.patches.replace(internals.save_module(), "_fill_meta_graph_def", self.watching_saves)

    def remove(self) -> None:
        """Take the watching away.  Graphs that hold hooks keep them."""
        self.patches.remove()

    def watching_ops(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The graph's op factory, telling `ordering` of each op."""

        def create_op(graph: Any, op_type: str, *args: Any, **kwargs: Any) -> Any:
            if op_type in internals.DROPPED_BY_XLA and internals.is_xla(graph):
                return original(graph, *internals.as_under_xla(op_type, args, kwargs))
            calls = op_type in internals.CALL_OPS and self.ordering.hooked
            callee = self.ordering.callee(op_type, internals.attributes(args, kwargs)) if calls else None
            enter = self.plant_call(graph, callee) if callee is not None else None
            op = original(graph, op_type, *args, **kwargs)
            self.ordering.created(op)
            if enter is not None:
                self.plant_end(*enter)
            if self.on_op is not None and not is_hook(op):
                self.on_op(op)
            return op

        return create_op

    def watching_graphs(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The maker of functions from graphs; one that holds hooks is not compiled by XLA, which has no py_function."""

        def from_func_graph(name: Any, graph: Any, attrs: Any, *args: Any, **kwargs: Any) -> Any:
            if self.ordering.holds_hooks(graph):
                self.ordering.named(name, graph)
                attrs = {key: value for key, value in (attrs or {}).items() if key not in internals.XLA_ATTRIBUTES}
            function = original(name, graph, attrs, *args, **kwargs)
            if self.ordering.holds_hooks(graph):
                self.ordering.named(function.name, graph)
            return function

        return from_func_graph

    def watching_saves(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The writer of saved models; functions that were traced with hooks are saved without."""

        def fill_meta_graph_def(meta_graph_def: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(meta_graph_def, *args, **kwargs)
            without_hooks(meta_graph_def.graph_def)
            return result

        return fill_meta_graph_def

    def plant(
        self,
        frame: FrameType,
        event: str = "line",
        condition: Any = True,
        returned: Any = None,
        names: dict[str, Any] | None = None,
    ) -> HookPoint | None:
        """Add a hook to the current graph for the user's innermost activation at `frame` or outside it.

        `names` are shown among that activation's locals.  Where only library code is being traced (Keras' own
        training step), the eager line that called it stands in.
        """
        self.install()
        with untraced():
            try:
                return self.plant_untraced(frame, event, condition, returned, names or {})
            except Exception as error:
                self.on_problem(frame, error)
                return None

    def plant_untraced(
        self, frame: FrameType, event: str, condition: Any, returned: Any, names: dict[str, Any]
    ) -> HookPoint:
        """`plant` itself; a fault in it must not reach the program that is being traced."""
        stack, callers = split_stack(frame)
        graph = internals.current_graph()
        carrier = Carrier(graph)
        frames = [carrier.frame(activation, self.number(activation)) for activation in stack]
        if not frames:
            frames = [place_only(next(caller for caller in callers if not caller.hidden))]
        for name, value in names.items():
            frames[0].locals[name] = carrier.template(value)
        point = HookPoint(
            next(self.points),
            event,
            tuple(reversed(frames)),
            tuple(place_only(caller) for caller in reversed(callers)),
            internals.function_graph(graph).name,
            self.ordering.key(graph),
            internals.is_xla(graph),
            carrier.template(condition),
            carrier.template(returned),
        )
        op = internals.plant(lambda *values: self.on_hit(Hit(point, values)), carrier.tensors)
        self.ordering.barrier(op)
        self.hooks[point.number] = op
        return point

    def plant_call(self, graph: Any, callee: int) -> tuple[CallSite, Any] | None:
        """Before a call of a function that holds hooks: one that carries the caller's values of this pass."""
        frame = sys._getframe(1)
        if graph is not internals.current_graph():
            return None
        with untraced():
            try:
                stack, callers = split_stack(frame)
                carrier = Carrier(graph)
                frames = tuple(carrier.frame(each, self.number(each)) for each in reversed(stack))
                outside = tuple(place_only(caller) for caller in reversed(callers))
                key, name = self.ordering.key(graph), internals.function_graph(graph).name
                site = CallSite(key, callee, name, frames, outside)
                enter = internals.plant(lambda *values: self.open_calls.enter(site, values), carrier.tensors, ["int64"])
                self.ordering.barrier(enter)
                return site, enter
            except Exception as error:
                self.on_problem(frame, error)
                return None

    def plant_end(self, site: CallSite, enter: Any) -> None:
        """After that call: one that says it is over."""
        with untraced():
            self.ordering.barrier(internals.plant(lambda token: self.open_calls.leave(site, token), enter.outputs))

    def number(self, activation: Activation) -> int:
        """The activation's number: one per call of a function while tracing."""
        key = id(activation.base)
        if key not in self.numbers:
            self.renumber(activation.base)
        return self.numbers[key]

    def renumber(self, base: FrameType) -> None:
        """Give a new number to a frame object that begins a new call (objects are reused)."""
        self.numbers[id(base)] = next(self.counter)


@contextmanager
def untraced() -> Iterator[None]:
    """Within the block this thread has no trace function."""
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)


def begins(frame: FrameType) -> str | None:
    """What of the user's begins at the frame's line: "line", "iteration" (a loop's header again), or None."""
    code = frame.f_code
    if GENERATED_FILE not in code.co_filename:
        return "line"
    if (code.co_filename, frame.f_lineno) not in internals.generated_lines():
        return None
    return generated.kind(code.co_filename, frame.f_lineno)


def split_stack(frame: FrameType) -> tuple[list[Activation], list[Activation]]:
    """The activations inside the function that is being traced, and those around its tracing, each innermost first.

    Library frames at the inner end are left out: the first is the user's.
    """
    inside = next(traces(frame), None)
    stack = list(activations(frame))
    traced = [activation for activation in stack if inside is None or id(activation.frames[-1]) in inside]
    first = next((n for n, activation in enumerate(traced) if not activation.hidden), len(traced))
    return traced[first:], stack[len(traced) :]


def traced_stack(frame: FrameType) -> list[Activation]:
    """The activations inside all functions that are being traced, innermost first."""
    inside = list(traces(frame))
    return [each for each in activations(frame) if not inside or id(each.frames[-1]) in inside[-1]]


def traces(frame: FrameType | None) -> Iterator[set[int]]:
    """For each function that is being traced on this stack, innermost first: the frames inside it, by id."""
    seen = set()
    while frame is not None:
        seen.add(id(frame))
        if frame.f_code.co_name == "func_graph_from_py_func" and not internals.builds_control_flow(frame):
            yield set(seen)
        frame = frame.f_back


def place_only(activation: Activation) -> TracedFrame:
    """An eager caller as it stood while tracing; its locals of that time would mislead."""
    code = activation.base.f_code
    return TracedFrame(
        activation.filename,
        activation.lineno,
        activation.function,
        code.co_firstlineno,
        (),
        activation.base.f_globals,
        {},
        (),
        0,
        activation.hidden,
    )


def is_exporting(frame: FrameType | None) -> bool:
    """Whether the trace is for a file: a saved model must not hold hooks."""
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in EXPORTS):
            return True
        frame = frame.f_back
    return False


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
            graph = internals.current_graph()
            self.open_lines[base] = (point, graph, graph.version)

    def close_line(self, base: int) -> None:
        """An activation's line is over: take note when it has added nothing to its graph."""
        point, graph, version = self.open_lines.pop(base, (None, None, 0))
        if point is not None and graph is internals.current_graph() and graph.version == version:
            self.planter.without_ops.add(point.number)

    def is_full(self, here: Activation) -> bool:
        """Whether this trace holds so many hooks already that only breakpoints are worth one more."""
        return self.count >= MOST_HOOKS

