"""Calls of `tf.function`s -> calls of their instrumented twins, for as long as a breakpoint or a step needs them.

A function that was traced without hooks cannot get any, and the user's own function object must stay as it is.  So
the first call that needs hooks goes to a clone, traced under a `LineTracer`; when nothing needs it, calls go to the
user's function again.
"""

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

from tfdb import internals, internals_numerics, internals_rerun, tracedlines, traces
from tfdb.linehooks import is_exporting
from tfdb.linetracer import LineTracer, on_thread

Place = tuple[str, int]


@functools.lru_cache(maxsize=4)
def united(places: frozenset[Place], more: frozenset[Place]) -> frozenset[Place]:
    """Both sets as one, the same object each time: it is compared at every call of a function."""
    return places | more


@dataclass(frozen=True, slots=True)
class Met:
    """What a function was found to be: for which breakpoints, at how many traces; whether it meets one, is a twin."""

    places: frozenset[Place]
    traces: int
    meets: bool
    is_twin: bool


@dataclass(slots=True)
class Twin:
    """A clone of a user's function, and what its traces planted and saw."""

    function: Any
    places: frozenset[Place]
    planted: set[Place] = field(default_factory=set)
    seen: set[tuple[str, int, int]] = field(default_factory=set)

    def serves(self, places: frozenset[Place]) -> bool:
        """Whether the twin, traced for other breakpoints, would be traced the same for these."""
        if self.places == places:
            return True
        if any(filename.startswith(("<op:", "<layer:", "<watch:", "<trace:")) for filename, _ in places - self.places):
            return False
        return all(place in self.planted or not self.has_seen(place) for place in places)

    def has_seen(self, place: Place) -> bool:
        """Whether the traces went through the function around a place."""
        return any(filename == place[0] and low <= place[1] <= high for filename, low, high in self.seen)


@dataclass(frozen=True, slots=True)
class Needs:
    """What the session answers for the door: breakpoints now, whether `s` is under way, the threads at a prompt.

    `idle` says quickly that there is no breakpoint and no stepping, as at most calls of a watched program.
    `called` is told of each outermost call, with its arguments and the twin it goes to, or None.  `is_own_trace` knows
    the debugger's trace function, `is_idle_trace` whether a thread can do without it by now.
    """

    idle: Callable[[], bool]
    breakpoints: Callable[[], frozenset[Place]]
    stepping: Callable[[], bool]
    at_prompt: set[int]
    tracer: Callable[[bool], LineTracer]
    entering: Callable[[], None]
    called: Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]
    retraced: Callable[[Any], None]
    eager_trace: Callable[[], Any]
    is_own_trace: Callable[[Any], bool]
    is_idle_trace: Callable[[Any], bool]


class Local(threading.local):
    """What is so on one thread; a name missing there would be looked up at every call, slowly."""

    aside = False
    trace: Any = None  # set aside while a function is called
    tracer: LineTracer | None = None
    wanted: tuple[bool, Twin | None] | None = None


def need_another_thread() -> None:
    """What the prompt of a graph's stop is about to run needs a thread of TensorFlow's besides the stopped one.

    Raises:
        RuntimeError: there is no other: it would wait for ever.
    """
    if internals_rerun.spare_threads() < 1 and internals.in_py_function(sys._getframe(1)):
        raise RuntimeError("this stop holds TensorFlow's only inter-op thread, and this needs one more to run")


COUNT = "experimental_get_tracing_count"
counted: weakref.WeakKeyDictionary[Any, dict[bool, Twin]] = weakref.WeakKeyDictionary()


def tracing_count(function: Any) -> int:
    """The user's count of traces: what it would be without a twin."""
    count = type(function).experimental_get_tracing_count
    return max([count(function), *(count(twin.function) for twin in counted.get(function, {}).values())])


class Twins:
    """The doors at which Python calls a `tf.function`, builds a tf.data function, or is called by a py_function."""

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.patches = internals.Patches()
        self.twins: weakref.WeakKeyDictionary[Any, dict[bool, Twin]] = weakref.WeakKeyDictionary()
        self.clones: weakref.WeakSet[Any] = weakref.WeakSet()
        self.met: weakref.WeakKeyDictionary[Any, Met] = weakref.WeakKeyDictionary()
        self.local = Local()

    def install(self) -> None:
        """Stand at the doors.  Idempotent; `remove` undoes it."""
        if not self.patches.saved:
            function = internals.function_class()
            self.patches.replace(function, "__call__", self.calling)
            self.patches.replace(internals.structured_function(), "__init__", self.building)
            self.patches.replace(internals.py_function_registry(), "__call__", self.calling_back)
            self.patches.replace(internals.func_graph_module(), "func_graph_from_py_func", self.building_graph)

    def remove(self) -> None:
        """Leave the doors and forget the twins."""
        self.patches.remove()
        for function in list(self.twins):
            counted.pop(function, None)
            vars(function).pop(COUNT, None)
        self.twins.clear()

    def calling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`Function.__call__`, choosing between the user's function and its twin.

        What is asked at every call of the program is asked without detours: each function called on the way costs
        about a microsecond between the steps of a training loop.
        """
        route = self.router(original)
        run_eagerly = internals.runs_functions_eagerly()

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            trace = sys.gettrace()
            if trace is None:
                return route(function, args, kwargs)
            sys.settrace(None)  # bdb finds nothing in TensorFlow's own Python, and costs as much as a small step
            before, self.local.trace = self.local.trace, trace
            if not self.needs.is_own_trace(trace) or run_eagerly():
                sys.settrace(trace)
            try:
                return route(function, args, kwargs)
            finally:
                self.local.trace = before
                if sys.gettrace() is None and not self.needs.is_idle_trace(trace):
                    sys.settrace(trace)

        return call

    def router(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What calls a `tf.function`, or its twin where a breakpoint, a step or a late watch needs one."""
        eagerly, local, needs = internals_numerics.eagerly(), self.local, self.needs

        def route(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            __tracebackhide__ = True
            if local.aside:
                return original(function, *args, **kwargs)
            if needs.at_prompt and threading.get_ident() in needs.at_prompt:
                return self.call_at_prompt(original, function, args, kwargs)
            if not eagerly():
                return original(self.traced_as(function), *args, **kwargs)
            if needs.idle():
                needs.called(function, args, kwargs, None)
                return original(function, *args, **kwargs)
            armed = needs.stepping()
            if not self.is_concerned(function, armed) or internals.functions_run_eagerly():
                needs.called(function, args, kwargs, None)
                return original(function, *args, **kwargs)
            twin = self.twin(function, armed, needs.retraced)
            needs.called(function, args, kwargs, twin.function)
            with self.tracing(armed, twin):
                return original(twin.function, *args, **kwargs)

        return route

    def call_at_prompt(
        self, original: Callable[..., Any], function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call that the user evaluates at a prompt: it is run eagerly, for what it runs must not stop again."""
        if internals.is_parallel_for(function):  # vectorized_map and jacobian have no eager form
            need_another_thread()
            return original(function, *args, **kwargs)
        return function._python_function(*args, **kwargs)

    def traced_as(self, function: Any) -> Any:
        """The function, called from one that is being traced, or its twin where that holds hooks too."""
        tracer = self.active_tracer() if internals.current_graph() is not None else None  # a saver's, TF1's: none
        if tracer is None or not self.is_concerned(function, tracer.armed):
            return function
        return self.twin(function, tracer.armed).function

    def count_once(self, function: Any) -> None:
        """Count the function's traces as the user does from now on.

        Not by a door at its class: TensorFlow asks twice at every call, of every function.
        """
        if function not in counted:
            counted[function] = self.twins[function]
            vars(function)[COUNT] = MethodType(tracing_count, function)

    def building(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The tracing of a tf.data function: it gets its hooks at once, for it has no later door."""

        def init(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            at_prompt = threading.get_ident() in self.needs.at_prompt
            if at_prompt and "reduce()" in args:
                need_another_thread()
            wanted = self.needs.breakpoints() and not at_prompt and not is_exporting(sys._getframe(1))
            if not wanted or self.active_tracer() is not None:
                original(wrapper, *args, **kwargs)
                return
            with self.tracing(False, None):
                original(wrapper, *args, **kwargs)

        return init

    def calling_back(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A graph calls Python (py_function, tf.data's debug mode): trace it, for no trace function is set there."""

        def call(registry: Any, token: Any, *args: Any) -> Any:
            if internals.is_planted(registry, token) or sys.gettrace() is not None:
                return original(registry, token, *args)
            trace = self.needs.eager_trace()
            if trace is None:
                return original(registry, token, *args)
            sys.settrace(trace)
            try:
                return original(registry, token, *args)
            finally:
                sys.settrace(None)

        return call

    def called_for(self, function: Any) -> list[Any]:
        """The twins to which calls of the function went, the newest last."""
        return [twin.function for twin in self.twins.get(function, {}).values()]

    def is_aside(self) -> bool:
        """Whether this thread is within `aside`."""
        return self.local.aside

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within the block, this thread's calls go to the user's functions, in graphs, and are not recorded."""
        before, self.local.aside = self.is_aside(), True
        try:
            yield
        finally:
            self.local.aside = before

    def is_traced(self) -> bool:
        """Whether this thread has a trace function, or had until its call of a function set it aside."""
        return sys.gettrace() is not None or self.local.trace is not None

    def active_tracer(self) -> LineTracer | None:
        """The tracer that plants lines on this thread now."""
        return self.local.tracer or on_thread()  # a replica's thread has it from threading.settrace

    def is_concerned(self, function: Any, armed: bool) -> bool:
        """Whether a call may meet a breakpoint: one that was traced tells by the lines that its ops come from."""
        places, known = self.needs.breakpoints(), self.met.get(function)
        if known is None or known.places is not places or known.traces != internals.trace_count(function):
            known = self.met[function] = self.looked_at(function, places)
        return known.meets or (armed and not known.is_twin)

    def looked_at(self, function: Any, places: frozenset[Place]) -> Met:
        """What a function is to these breakpoints: a twin meets none again, one without traces may meet any."""
        traced, is_twin = internals.trace_count(function), function in self.clones
        if is_twin or not places or traced == 0:
            return Met(places, traced, bool(places) and not is_twin, is_twin)
        lines = tracedlines.user_lines(internals.traced_graphs(function))
        return Met(places, traced, any(tracedlines.meets(lines, place) for place in places), is_twin)

    def twin(self, function: Any, armed: bool, retraced: Callable[[Any], None] = lambda function: None) -> Twin:
        """The function's twin for the present breakpoints, made when there is none that serves."""
        places = self.needs.breakpoints()
        twins = self.twins.setdefault(function, {})
        if armed not in twins or not twins[armed].serves(places):
            self.count_once(function)
            if internals.trace_count(function) or twins:
                retraced(function)
            clone = function._clone(function._python_function)
            self.clones.add(clone)
            traces.same_function(clone, function)
            twins[armed] = Twin(clone, places)
        return twins[armed]

    @contextmanager
    def tracing(self, armed: bool, twin: Twin | None) -> Iterator[None]:
        """Plant lines in whatever is traced on this thread within the block."""
        before, self.local.wanted = self.local.wanted, (armed, twin)
        if armed:
            self.needs.entering()
        try:
            yield
        finally:
            self.local.wanted = before

    def building_graph(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The tracing of a Python function: lines are planted in the outermost of a call that wants them."""

        def func_graph_from_py_func(*args: Any, **kwargs: Any) -> Any:
            wanted = self.local.wanted
            if wanted is None:
                return original(*args, **kwargs)
            self.local.wanted = None
            try:
                with self.planting(*wanted):
                    return original(*args, **kwargs)
            finally:
                self.local.wanted = wanted

        return func_graph_from_py_func

    @contextmanager
    def planting(self, armed: bool, twin: Twin | None) -> Iterator[None]:
        """Plant lines in the graph that is built within the block."""
        tracer = self.needs.tracer(armed)
        self.local.tracer = tracer
        tracer.start(eager_trace=self.local.trace)
        before = threading.gettrace()
        threading.settrace(tracer.on_new_thread)
        try:
            yield
        finally:
            threading.settrace(before)  # type: ignore[arg-type]
            tracer.stop()
            self.local.tracer = None
            if twin is not None:
                twin.planted |= tracer.planted
                twin.seen |= tracer.seen
