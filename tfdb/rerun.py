"""A recorded call, or a frame's arguments -> a Target to run again, and the facts that a reader must know about it."""

import dis
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from tfdb import frozen, internals, internals_gate, internals_rerun, render
from tfdb.errors import TfdbError
from tfdb.explain import report
from tfdb.refetch import Given
from tfdb.ring import Record, Ring
from tfdb.state import State

SHOWN = 4  # names in one sentence
LONGEST = 60  # characters of a value in a sentence
HEADINGS = (
    "Graph execution error", "Detected at node", "File ", "in user code", "^", "<stack traces", "[[", "Exception enc",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FrameView:
    """A frame of the stack as the prompt shows it: where its function is, its arguments' names, its names now."""

    filename: str
    function: str
    firstlineno: int
    arguments: tuple[str, ...]
    locals: Mapping[str, Any]
    globals: Mapping[str, Any]
    eager: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """What to run again: the Python function (`self` bound) and real arguments.

    `wrapped` is the program's `tf.function`, if it is one; `at_call` the variables' values at the call, if known;
    `call` says which call it is; `notes` what is not as it was; `eager` that it ran as Python, in no graph;
    `signature` the specs of a graph that was made for other shapes than those of its arguments, too.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    call: str
    wrapped: Any = None
    at_call: State | None = None
    notes: tuple[str, ...] = ()
    eager: bool = False
    signature: tuple[Any, ...] = ()

    @property
    def function_name(self) -> str:
        """The name without its class."""
        return "".join(c if c.isalnum() else "_" for c in self.name.rpartition(".")[2])

    @property
    def place(self) -> tuple[str, int]:
        """The file and the first line of the function."""
        code = internals_rerun.code_of(self.function)
        return (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)


def find(
    ring: Ring,
    views: Sequence[FrameView],
    wanted: Any = None,
    *,
    back: int = 0,
    outermost: bool = False,
    batch: Callable[[Any], list[list[Any]]] = lambda function: [],
) -> Target:
    """The call to run again: of the function `wanted`, else the latest recorded one, else that of a frame.

    `views` are the frames of the prompt's stack from the current one outwards; with `outermost` the last of them that
    can be run again is meant, not the first.  `batch` gives what in-graph iterators gave last to a `tf.function`.

    Raises:
        TfdbError: there is no such call; the message says what there is.
    """
    if wanted is None and not ring.records:
        return of_frames(views, outermost)
    try:
        record = ring.latest(wanted, back)
    except TfdbError as error:
        target = of_function(wanted, views)
        if target is None or back:
            raise error from None
        return target
    if not draws_data(record):
        return of_record(record)
    last = record is ring.latest(record.function)
    return (of_batch(record, batch(record.function)) if last else None) or of_frames(views, outermost)


def of_record(record: Record) -> Target:
    """The target of a recorded call."""
    function = internals_rerun.python_function(record.function)
    if internals_rerun.code_of(record.function) is None:
        raise TfdbError(f"{record.name} has no Python source (a loaded model?): it can be called, not stepped through")
    notes = ["a large numpy argument was kept by reference: it is as it is now"] if record.borrowed else []
    call = f"call {record.number}"
    return Target(record.name, function, record.args, record.kwargs, call, record.function, record.state, tuple(notes))


def at_trip(target: Target, trip: Any) -> Target:
    """The target of a watch's stop with the state that its step began with: the gate carried it."""
    step = trip.step
    if step is None or target.at_call is not None:
        return target
    kept = [(variable, trip.values.get(id(symbol))) for variable, symbol in step.before.values()]
    values = tuple((variable, value) for variable, value in kept if value is not None)
    return replace(target, at_call=State(values)) if values else target


def draws_data(record: Record) -> bool:
    """Whether an argument is an iterator, whose element the call took inside its graph."""
    import tensorflow as tf

    values = tf.nest.flatten((record.args, record.kwargs))
    return any(internals_gate.is_iterator(value) and not isinstance(value, tf.data.Dataset) for value in values)


def of_batch(record: Record, batch: list[list[Any]]) -> Target | None:
    """The training or test step of a Keras model with the last batch that its graph drew, or None.

    A call that failed while it was traced had drawn none: then it is the first that its dataset gives.
    """
    import tensorflow as tf

    step = internals_rerun.keras_step(record.function)
    iterators = [value for value in record.args if internals_gate.is_iterator(value)]
    if step is None or not iterators:
        return None
    name = f"{type(step.__self__).__name__}.{step.__name__}"
    if batch:
        data = tf.nest.pack_sequence_as(iterators[0].element_spec, batch[-1], expand_composites=True)
        return Target(name, step, (data,), {}, f"batch {record.number}", None, record.state)
    data = internals_rerun.first_element(iterators[0]) if not internals_rerun.traces(record.function) else None
    return None if data is None else Target(name, step, (data,), {}, "the dataset's first batch", None, record.state)


def of_given(given: Given) -> Target:
    """The target of a dataset's function with the element that it failed on.

    Raises:
        TfdbError: the function is none of Python's with a source.
    """
    function: Any = given.function
    args, kwargs, signature = given.args, dict[str, Any](), given.signature
    while isinstance(function, functools.partial):
        function, args, kwargs = function.func, (*function.args, *args), {**function.keywords, **kwargs}
        signature = ()
    name = getattr(function, "__name__", type(function).__name__)
    if internals_rerun.code_of(function) is None:
        raise TfdbError(f"the dataset's function is {name}, which has no Python source: it cannot be run by itself")
    wrapped = function if hasattr(function, "_python_function") else None
    call = f"{given.what} of its dataset"
    python = internals_rerun.python_function(function)
    if all(internals_rerun.is_exact(spec) for spec in signature):
        signature = ()
    return Target(name, python, args, kwargs, call, wrapped, signature=signature)


def of_frames(
    views: Sequence[FrameView], outermost: bool, why: str = "no call of a tf.function was recorded"
) -> Target:
    """The target of a frame on the stack: its function with the arguments that the frame holds; `why` no other is.

    Raises:
        TfdbError: no frame has a function that can be found and arguments with values.
    """
    found = [target for view in views if (target := of_frame(view)) is not None]
    if not found:
        raise TfdbError(f"{why}, and no frame here can be run again")
    return found[-1 if outermost else 0]


def of_function(wanted: Any, views: Sequence[FrameView]) -> Target | None:
    """The target of a frame of this very function, or None."""
    code = internals_rerun.code_of(wanted) if callable(wanted) else None
    for view in views:
        if code is not None and (view.filename, view.firstlineno) == (code.co_filename, code.co_firstlineno):
            return of_frame(view)
    return None


def of_frame(view: FrameView) -> Target | None:
    """The frame's function called with what its arguments are now; None where either is not at hand."""
    function, code = function_of(view)
    if function is None or code is None or any(name not in view.locals for name in view.arguments):
        return None
    values = [view.locals[name] for name in view.arguments]
    if any(internals.is_symbolic(value) for value in values):
        return None
    names = list(view.arguments)
    if hasattr(function, "__self__") and names:
        names, values = names[1:], values[1:]
    args, kwargs = arranged(code, dict(zip(names, values, strict=True)))
    function = internals_rerun.whole_layer(function)
    again = reassigned(code) & set(names)
    notes = [f"{', '.join(sorted(again))} as in this frame now: the function assigns to it"] if again else []
    wrapped = function if hasattr(function, "_python_function") else None
    return Target(view.function, internals_rerun.python_function(function), args, kwargs, "this frame's call",
                  wrapped, None, tuple(notes), view.eager)  # fmt: skip


def function_of(view: FrameView) -> tuple[Any, CodeType | None]:
    """The function that a frame runs, bound where it is a method, and its code."""
    first = view.locals.get(view.arguments[0]) if view.arguments else None
    for candidate in (
        getattr(first, view.function, None) if first is not None else None,
        view.globals.get(view.function), view.locals.get(view.function),
    ):  # fmt: skip
        if not callable(candidate):
            continue
        code = internals_rerun.code_of(candidate)
        if code is not None and (code.co_filename, code.co_name) == (view.filename, view.function):
            return candidate, code
    return None, None


def arranged(code: CodeType, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by name -> positional and keyword ones, `*args` and `**kwargs` spread."""
    names = list(code.co_varnames)
    count, keywords = code.co_argcount, code.co_kwonlyargcount
    args = [values[name] for name in names[:count] if name in values]
    kwargs = {name: values[name] for name in names[count : count + keywords] if name in values}
    rest = names[count + keywords :]
    if code.co_flags & inspect.CO_VARARGS:
        args += list(values.get(rest.pop(0), ()))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs.update(values.get(rest.pop(0), {}))
    return tuple(args), kwargs


def reassigned(code: CodeType) -> set[str]:
    """The local names that the function's own code assigns to."""
    stores = ("STORE_FAST", "STORE_DEREF")
    return {str(each.argval) for each in dis.get_instructions(code) if each.opname.startswith(stores)}


def facts(target: Target) -> list[str]:
    """What is run again, from which state, and how that differs from the run of the graph; one sentence a line."""
    lines = [f"re-run of {target.name}() · {target.call} · eager · {state_sentence(target)}", *target.notes]
    file = os.path.basename(target.place[0])
    effects = frozen.effects(target.function)
    for kind, verb in (("effect", "ran at tracing only, and runs now"), ("random", "is of the tracing, and anew now")):
        some = [f"line {effect.line} `{shortened(effect.text)}`" for effect in effects if effect.kind == kind]
        if some and target.wrapped is not None:
            lines.append(f"unlike the graph: {listed(some)} {verb} ({file})")
    constants = [f"{each.name} = {shortened(repr(each.value))}" for each in frozen.frozen(target.function)]
    if constants and target.wrapped is not None:
        lines.append(f"read now; the graph holds the values of its tracing: {listed(constants)}")
    graphs = [trace.graph for trace in internals_rerun.traces(target.wrapped)]
    drawn = sorted({op for graph in graphs for op in internals_rerun.random_ops(graph)})
    if drawn:
        lines.append(f"{listed(drawn)} draw other numbers than in the graph, whose random state cannot be read")
    return lines


def state_sentence(target: Target) -> str:
    """What the variables are during the re-run."""
    if target.at_call is not None:
        return "variables as at the call"
    traces = internals_rerun.traces(target.wrapped)
    if traces and not any(internals_rerun.writes(trace.graph) for trace in traces):
        return "variables as now (it writes none)"
    return "variables as now (not known at the call)"


def said(error: BaseException) -> str:
    """The line of an error's text that says most: TensorFlow puts headings, stacks and node names around it."""
    if "in user code:" in str(error):
        return report(str(error)).message
    lines = [line.strip() for line in render.uncoloured(str(error)).splitlines() if line.strip()]
    plain = [line.rpartition("}}")[2].strip() if line.startswith("{{") else line for line in lines]
    return next((line for line in plain if line and not line.startswith(HEADINGS)), lines[0] if lines else "")


def shortened(text: str) -> str:
    """The text on one line of at most `LONGEST` characters."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def listed(parts: Sequence[str]) -> str:
    """Up to `SHOWN` parts and how many more there are."""
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return ", ".join(parts[:SHOWN]) + more


def calls(ring: Ring) -> list[tuple[int, Record]]:
    """The kept calls with how many calls back each is, newest first."""
    return list(enumerate(reversed(ring.records)))
