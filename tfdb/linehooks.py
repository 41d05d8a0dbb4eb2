"""Lines of a function that is being traced -> hook ops that report each later run of those lines, in program order.

`plant` adds one hook for the line that a frame stands on; a `LineTracer` calls it for every line to stop at.
"""

import functools
import itertools
import linecache
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from tfdb import internals, internals_autograph, syntax
from tfdb.callsites import CallSite, OpenCalls
from tfdb.frames import Carrier, Filled, LiveFrame, TracedFrame, lazy, live
from tfdb.internals_keras import learns_shapes
from tfdb.ordering import Ordering, is_hook, without_hooks
from tfdb.readers import PassValues, Reading
from tfdb.sourcemap import Activation, activations

EXPORTS = ("saved_model/save.py", "src/export/", "saved_model/function_serialization.py")


@dataclass(frozen=True, slots=True)
class HookPoint:
    """One planted line: what was known of it while tracing.  `frames` are outermost first.

    `unless` are the templates of flags: when one is true the line does not run in this pass.  `items` are the names
    that the `for` loops around the line give their items.
    """

    number: int
    event: str  # "line", "iteration" (a loop's header again), "return", or "call" for an explicit set_trace()
    frames: tuple[TracedFrame, ...]
    callers: tuple[TracedFrame, ...]
    graph: str
    function: int
    xla: bool
    condition: Any
    returned: Any
    replica: int | None = None
    unless: Any = ()
    items: tuple[str, ...] = ()

    @property
    def place(self) -> TracedFrame:
        """The innermost frame: where the hook stands."""
        return self.frames[-1]

    @property
    def line(self) -> tuple[Any, ...]:
        """What all traces of the line have in common: its passes are counted under this."""
        return (self.event, self.replica, *[(frame.filename, frame.lineno) for frame in self.frames])


@dataclass(frozen=True, slots=True)
class Loop:
    """A header that is planted: its line, and the flags that tell whether the loop was left by `break` or `return`."""

    lineno: int
    left: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """One run of a planted line, with the values that its tensors have in this pass."""

    point: HookPoint
    values: Sequence[Any]
    names: Mapping[str, Any] = field(default_factory=dict)  # what earlier hits gave, where this one has no value

    def frames(self) -> list[LiveFrame]:
        """The user's stack inside the graph, outermost first, with this pass's values."""
        frames = [live(frame, self.values) for frame in self.point.frames]
        for name, value in self.names.items():
            frames[-1].locals.setdefault(name, value)
        return frames

    def place(self) -> LiveFrame:
        """The innermost of these frames, each of its names given its value when it is asked for."""
        return lazy(self.point.place, self.values, self.names)

    def carried(self, hook: Any) -> list[tuple[Any, Any]]:
        """The tensors of the hook's graph whose values the hit has, with these."""
        return self.values.carried(hook) if isinstance(self.values, PassValues) else []

    def runs(self) -> bool:
        """Whether the line runs in this pass: no `break` or `return` has left its loop."""
        return not any(bool(flag) for flag in self.filled(self.point.unless))

    def condition(self) -> bool:
        """Whether the `cond` of set_trace() holds in this pass."""
        return bool(self.filled(self.point.condition))

    def returned(self) -> Any:
        """What the function returns in this pass, at a "return" event."""
        return self.filled(self.point.returned)

    def filled(self, part: Any) -> Any:
        """A part of the point's template with this pass's values."""
        return part.make(self.values) if type(part) is Filled else part


class Planter:
    """Plants hooks and keeps what all of them share: the ordering, the activations' numbers, the callback."""

    def __init__(self, on_hit: Callable[[Hit], None], on_problem: Callable[[FrameType, Exception], None]) -> None:
        self.on_hit = on_hit
        self.on_problem = on_problem
        self.ordering = Ordering()
        self.open_calls = OpenCalls()
        self.on_op: Callable[[Any], None] | None = None
        self.patches = internals.Patches()
        self.numbers: dict[int, int] = {}
        self.without_ops: set[int] = set()
        self.data_armed = False  # a function of a dataset holds a breakpoint
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

    def hook_of(self, hit: Hit | None) -> Any:
        """The op that a hit came from; None for no hit, and when the op's graph is gone."""
        return self.hooks.get(hit.point.number) if hit is not None else None

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
        loop: Loop | None = None,
    ) -> HookPoint | None:
        """Add a hook to the current graph for the user's innermost activation at `frame` or outside it.

        `names` are shown among that activation's locals.  Where only library code is being traced (Keras' own
        training step), the eager line that called it stands in.  With `loop` it is for the header of a loop.
        """
        self.install()
        with untraced():
            try:
                return self.plant_untraced(frame, event, condition, returned, names or {}, loop)
            except Exception as error:
                self.on_problem(frame, error)
                return None

    def plant_untraced(
        self, frame: FrameType, event: str, condition: Any, returned: Any, names: dict[str, Any], loop: Loop | None
    ) -> HookPoint:
        """`plant` itself; a fault in it must not reach the program that is being traced."""
        stack, callers = split_stack(frame)
        if loop is not None:
            stack[0] = replace(stack[0], lineno=loop.lineno)
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
            internals_autograph.replica_number(),
            carrier.template(loop.left if loop is not None else ()),
            item_names(frames[0].filename, frames[0].lineno),
        )
        for tensor in self.ordering.draws(graph):
            carrier.slot(tensor)
        reading = Reading(carrier.tensors)
        op = internals.plant(lambda *values: self.on_hit(Hit(point, PassValues(reading, values))), reading.taken)
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
                reading = Reading(carrier.tensors)
                enter = internals.plant(
                    lambda *values: self.open_calls.enter(site, PassValues(reading, values)), reading.taken, ["int64"]
                )
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
        if frame.f_code.co_name == "func_graph_from_py_func" and internals.traces_function(frame):
            yield set(seen)
        frame = frame.f_back


@functools.lru_cache(maxsize=4096)
def item_names(filename: str, lineno: int) -> tuple[str, ...]:
    """The names of the items of the `for` loops around a line."""
    return syntax.item_names("".join(linecache.getlines(filename)), lineno)


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


def never_runs(frame: FrameType | None) -> bool:
    """Whether what is being traced is run by nobody here: for a file, or to learn shapes."""
    return internals.is_scratch(internals.current_graph()) or is_exporting(frame) or learns_shapes(frame)
