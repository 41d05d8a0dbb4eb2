"""Tracing a tf.function -> a Step: what it takes to run that function again, eagerly, from where one run of it began.

A step knows its function, its symbolic arguments, and the small non-trainable state (seeds, averages, counters,
metrics) as it was when the step began: those values are read just before the first write to each.  Where a step loops
over a dataset, each pass of the loop begins it anew: it has its element and its own reading of that state.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from . import internals, internals_errors, internals_gate

SMALL = 1 << 16  # elements, up to which a variable's value at the step's start is kept
MARK = "_tfdb_step"
OUTSIDE = object()  # the mark of graphs that run apart from the step they are traced in
INITIALISER = "initialize_variables"  # TensorFlow's own function for variables that a traced function creates


@dataclass(eq=False)
class Step:
    """One traced function.

    `draws_data` says that an argument is a dataset or an iterator: then the step begins in a function called from
    here, which gets the batch as an argument, if there is one.  `statistics` are the ids of variables that it writes
    under XLA other than in an optimizer.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    graph: Any
    before: dict[tuple[int, int], tuple[Any, Any]] = field(default_factory=dict)
    pending: list[tuple[Any, Any, str]] = field(default_factory=list)
    inner: bool = False
    gates: int = 0
    updates: bool = False
    drawn: list[Any] = field(default_factory=list)
    xla: bool = False
    losses: list[tuple[Any, Any]] = field(default_factory=list)
    checked: set[int] = field(default_factory=set)
    written: list[Any] = field(default_factory=list)
    statistics: set[int] = field(default_factory=set)
    passes: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    @property
    def draws_data(self) -> bool:
        """Whether an argument is a dataset or an iterator."""
        return any(internals_gate.is_iterator(leaf) for leaf in leaves((self.args, self.kwargs)))

    def tensors(self) -> list[Any]:
        """The symbolic tensors that a gate must carry to run this step again."""
        graph = internals.current_graph()
        arguments = [t for t in flatten((self.args, self.kwargs)) if portable(t)]
        drawn = [t for t in flatten(self.drawn) if portable(t) and internals.visible(t, graph)]
        return arguments + self.state(graph) + drawn

    def state(self, graph: Any) -> list[Any]:
        """The values of small state that hold for an op of `graph`: of the innermost pass of a loop around it."""
        found: dict[int, Any] = {}
        for outer in outward(graph, self.graph):
            for (variable, place), (_, value) in self.before.items():
                if place == id(outer):
                    found.setdefault(variable, value)
        return list(found.values())

    def draw(self, element: Any) -> None:
        """An element of a dataset arrived in the current graph: each run of that graph is a step of its own."""
        self.drawn.append(element)
        self.passes.append(internals.current_graph())


@dataclass(eq=False, slots=True)
class Call:
    """A graph function that Python is running now: its real arguments and the frame that called it.

    `settings` are Keras' for the calling thread, where the caller notes them; `undo` is what to do when the call is
    over.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    thread: int
    frame: FrameType
    number: int
    settings: Mapping[str, Any] | None = None
    undo: Callable[[], None] | None = None


def outermost_call(frame: FrameType | None) -> Call | None:
    """The outermost call of a `tf.function` on a stack, which may be one that an exception left."""
    found = None
    for each in internals_errors.outward(frame):
        if call := internals_errors.function_call(each):
            found = Call(*call, 0, each.f_back or each, 0)
    return found


class Depth(threading.local):
    """Whether a thread is in a call that counts."""

    inside = False


class Calls:
    """The outermost tf.function calls of every thread, and how often each function was called."""

    def __init__(self) -> None:
        self.active: list[Call] = []
        self.numbers: dict[int, int] = {}
        self.depth = Depth()

    def enter(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Note a call made eagerly; None when it is not an outermost one."""
        depth = self.depth
        if depth.inside:
            return None
        depth.inside = True
        key = id(getattr(function, "_python_function", function))  # a call goes to a clone where it is to stop
        number = self.numbers[key] = self.numbers.get(key, 0) + 1
        call = Call(function, args, kwargs, threading.get_ident(), sys._getframe(2), number)
        self.active.append(call)
        return call

    def leave(self, call: Call | None) -> None:
        """The end of what `enter` returned."""
        if call is not None:
            self.depth.inside = False
            if call in self.active:  # watching may have ended at this call's own stop
                self.active.remove(call)

    def current(self) -> Call | None:
        """The call that a hook on a TensorFlow thread runs for: the latest one still running."""
        return self.active[-1] if self.active else None


def flatten(structure: Any) -> list[Any]:
    """The tensors and other leaves of a structure, composite tensors taken apart."""
    import tensorflow as tf

    flat: list[Any] = []
    for leaf in tf.nest.flatten(structure):
        parts = internals_gate.replica_values(leaf)  # TensorFlow refuses to take these apart inside of a replica
        flat += flatten(parts) if parts is not None else tf.nest.flatten(leaf, expand_composites=True)
    return flat


def leaves(structure: Any) -> list[Any]:
    """The leaves of a structure, composite tensors whole."""
    import tensorflow as tf

    return tf.nest.flatten(structure)


def portable(value: Any) -> bool:
    """Whether a value is a symbolic tensor that a hook can take."""
    import tensorflow as tf

    return internals.is_symbolic(value) and value.dtype not in (tf.resource, tf.variant)


def chain(graph: Any) -> Iterator[Step]:
    """The steps being traced around `graph`, innermost first."""
    while graph is not None:
        step = getattr(graph, MARK, None)
        if step is OUTSIDE:
            return
        if step is not None:
            yield step
        graph = getattr(graph, "outer_graph", None)


def outward(graph: Any, last: Any) -> Iterator[Any]:
    """A graph and those around it, up to `last`."""
    while graph is not None:
        yield graph
        graph = None if graph is last else getattr(graph, "outer_graph", None)


def spot() -> tuple[Any, int] | None:
    """The graph that ops are added to now and how many it has; None in eager code."""
    graph = internals.current_graph()
    return None if graph is None else (graph, len(graph.get_operations()))


def current() -> Step | None:
    """The step that the ops added on this thread now belong to: the outermost one that gets its data as arguments."""
    graph = internals.current_graph()
    steps = list(chain(graph)) if graph is not None else []
    if not steps:
        return None
    return next((step for step in reversed(steps) if not step.draws_data), steps[-1])


def tracer(original: Callable[..., Any], finish: Callable[[Step, Any], Any]) -> Callable[..., Any]:
    """`func_graph_from_py_func`, marking the graph of every tf.function with its Step.

    `finish(step, outputs)` runs at the end of the function's body, in its graph, and returns its outputs.
    """

    def func_graph_from_py_func(name: str, python_func: Any, args: Any, kwargs: Any, *rest: Any, **more: Any) -> Any:
        # A loop over a dataset in a step is a dataset function too, and part of the step: it gets no mark of its own.
        if more.get("create_placeholders", True) or internals_gate.is_loop_body(name, python_func):
            return original(name, python_func, args, kwargs, *rest, **more)
        in_dataset = internals_gate.in_dataset_function() and next(chain(internals.current_graph()), None) is None
        outside = name == INITIALISER or in_dataset or internals_gate.is_of_dataset(python_func)

        def body(*values: Any, **keywords: Any) -> Any:
            graph = internals.current_graph()
            if outside:
                setattr(graph, MARK, OUTSIDE)
                return python_func(*values, **keywords)
            function = internals_gate.original_function(python_func)
            step = Step(function, values, keywords, graph, xla=internals.is_xla(graph))
            for outer in itertools.islice(chain(graph), 1):
                outer.inner = outer.draws_data
            setattr(graph, MARK, step)
            return finish(step, python_func(*values, **keywords))

        decorated = internals.private("util.tf_decorator", "make_decorator")(python_func, body)
        return original(name, decorated, args, kwargs, *rest, **more)

    return func_graph_from_py_func


def came_from_body(error: BaseException) -> bool:
    """Whether the body of a function that was being traced raised it."""
    tail = error.__traceback__
    while tail is not None:
        code = tail.tb_frame.f_code
        if code.co_name == "body" and code.co_filename == __file__:
            return True
        tail = tail.tb_next
    return False


def arguments(step: Step, values: Mapping[int, Any], call: Call | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The step's arguments with real values: carried ones by the id of their symbol, others as the call passed them.

    An argument that has no value at hand (a resource of a nested call) is passed as it was at tracing.
    """
    import tensorflow as tf

    real = leaves((call.args, call.kwargs)) if call is not None else []
    symbols = leaves((step.args, step.kwargs))
    filled = []
    for index, leaf in enumerate(symbols):
        if internals.is_symbolic(leaf):
            filled.append(values.get(id(leaf), leaf))
        elif not internals_gate.is_iterator(leaf) and internals.is_composite(leaf) and not hasattr(leaf, "handle"):
            parts = [values.get(id(part), part) for part in flatten(leaf)]
            unknown = any(map(internals.is_symbolic, parts)) and len(real) == len(symbols)
            packed = real[index] if unknown else tf.nest.pack_sequence_as(leaf, parts, expand_composites=True)
            filled.append(packed)
        elif hasattr(leaf, "handle") or internals_gate.is_iterator(leaf):
            filled.append(real[index] if len(real) == len(symbols) else leaf)
        else:
            filled.append(leaf)
    args, kwargs = tf.nest.pack_sequence_as((step.args, step.kwargs), filled)
    return args, kwargs


def remember(step: Step, variable: Any) -> None:
    """Read the variable's value for the start of the step, and of each pass around the current graph.

    Left out are those read already, and large or trainable ones.  Must be called before the write is added to the
    graph: the order of ops on one resource is that of their creation.
    """
    if not is_small(variable) or getattr(variable, "trainable", False):
        return
    for graph in outward(internals.current_graph(), step.graph):
        begins = graph is step.graph or any(graph is place for place in step.passes)
        if begins and (id(variable), id(graph)) not in step.before:
            with graph.as_default():
                step.before[id(variable), id(graph)] = (variable, variable.read_value())


def is_small(variable: Any) -> bool:
    """Whether the variable's shape is known and has at most `SMALL` elements."""
    count = variable.shape.num_elements() if variable.shape.rank is not None else None
    return count is not None and count <= SMALL


def drawn(step: Step, values: Mapping[int, Any]) -> list[Any]:
    """The elements that iterators gave inside the step, with real values; those that no hook carried are left out."""
    import tensorflow as tf

    found = []
    for element in step.drawn:
        parts = flatten(element)
        if all(id(part) in values for part in parts if portable(part)):
            real = [values.get(id(part), part) for part in parts]
            found.append(tf.nest.pack_sequence_as(element, real, expand_composites=True))
    return found
