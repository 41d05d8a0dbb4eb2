"""A gate that tripped -> the execution of its step up to there: its graphs, and the value of each tensor.

The gate stands before the update, so the weights still are what the step read; its batch and small state came with the
trip. What lies between is computed again (see `evaluation`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import eagerly, graphs, halted, internals, internals_graphs, phases, steps
from .calls import Call
from .errors import TfdbError
from .evaluation import Evaluation, Memory, Unavailable
from .executions import Execution, Level, same
from .gate import Trip, gate

EAGER = "this step ran eagerly, so there is no graph to look at: pt, p and u show its values"
TRACING = "the function is being traced, it has not run yet"
Known = dict[int, dict[str, Any]]  # values by tensor name, by the id of the graph


def of_trip(trip: Trip, calls: Sequence[Call]) -> Execution:
    """The graphs around a gate that tripped, outermost first; `calls` are the graph calls that may have run it.

    Raises:
        TfdbError: the step has no graph.
    """
    step = trip.step
    graph, end = trip.place.spot or (step.graph if step is not None else None, None)
    if trip.xla and graph is not None:
        end = before_own_ops(graph)
    if graph is None:
        return being_traced() if internals.current_graph() is not None else of_eager_step(trip)
    chain = list(around(graph))[::-1]
    known = carried(trip)
    given = next((each for each in calls if is_of(each, chain[0])), None)
    if given is not None:
        arguments = zip(chain[0].inputs, given.args, strict=False)
        known.setdefault(id(chain[0]), {}).update({place.name: value for place, value in arguments})
    memory = Memory(held(trip), False, unwritten(chain, end, held_back=not trip.xla))
    levels: list[Level] = []
    for n, each in enumerate(chain):
        outer = levels[-1] if levels else None
        call = call_of(outer.evaluation.graph, each) if outer is not None else None
        evaluation = evaluated(each, outer, call, known.get(id(each), {}), memory)
        inner = call_of(each, chain[n + 1]) if each is not graph else None
        position = evaluation.order[inner.name] if inner is not None else end if each is graph else None
        title = " > ".join([*([outer.title] if outer else []), graphs.clean_name(each.name)])
        stop = len(evaluation.operations) if position is None else position
        levels.append(
            Level(title, evaluation, stop, frozenset(known.get(id(each), {})) if each is graph else frozenset())
        )
    return Execution(levels)


def of_eager_step(trip: Trip) -> Execution:
    """The statements of an eager step, traced (and not run) for the values they had, up to the first write of a weight.

    Raises:
        TfdbError: they cannot be found, or not be traced.
    """
    import tensorflow as tf

    for function in eagerly.steps_of(trip.frame):
        try:
            with gate.quiet():
                # Its names are defaults of the function, which TensorFlow would make arguments of the graph.
                graph = tf.function(functools.partial(call, function), autograph=False).get_concrete_function().graph
        except Exception:  # a Python `if` on a tensor, variables that are made: it cannot be a graph
            continue
        evaluation = evaluated(graph, None, None, {}, Memory({}, False, unwritten([graph], None)))
        ops = graph.get_operations()
        end = next((n for n, op in enumerate(ops) if phases.UPDATES.fullmatch(op.type)), len(ops))
        name = getattr(getattr(function, "__code__", None), "co_name", graphs.clean_name(graph.name))
        return Execution([Level(name, evaluation, end, frozenset())])
    raise TfdbError(EAGER)


def being_traced(values: Sequence[Any] = ()) -> Execution:
    """The graph that is being traced, as far as it is made: the one of these values, or of this thread.

    Raises:
        TfdbError: there is no op yet.
    """
    graph = next((each.graph for each in values if internals.is_symbolic(each)), internals.current_graph())
    if graph is None:
        raise TfdbError(TRACING)
    evaluation = Evaluation(graph, {}, Memory({}, False))
    evaluation.reasons.update({op.name: TRACING for op in evaluation.operations})
    return Execution([Level(graphs.clean_name(graph.name), evaluation, len(evaluation.operations), frozenset())])


def call(function: Callable[[], Any]) -> Any:
    """The function's result."""
    return function()


def around(graph: Any) -> Iterator[Any]:
    """A graph and the function graphs it was traced in, innermost first."""
    while internals_graphs.is_func_graph(graph):
        yield graph
        graph = graph.outer_graph


def is_of(given: Call, graph: Any) -> bool:
    """Whether a call runs this graph."""
    found = internals_graphs.atomic_graph(given.function)
    return found is not None and same(found, graph)


def carried(trip: Trip) -> Known:
    """What came with the trip: the step's arguments and the elements it drew."""
    step, found = trip.step, Known()
    for symbol in steps.flatten((step.args, step.kwargs, step.drawn)) if step is not None else ():
        if internals.is_symbolic(symbol) and id(symbol) in trip.values:
            found.setdefault(id(symbol.graph), {})[symbol.name] = trip.values[id(symbol)]
    return found


def held(trip: Trip) -> dict[int, Any]:
    """What small variables held when the step began, by the id of their handle."""
    step = trip.step
    if trip.xla and step is not None:  # the whole step is taken back: its variables hold what it began with
        return {id(v.handle): v.read_value() for v in step.graph.variables if not internals.is_symbolic(v.handle)}
    before = step.before.values() if step is not None else ()
    return {id(v.handle): trip.values[id(symbol)] for v, symbol in before if id(symbol) in trip.values}


def before_own_ops(graph: Any) -> int:
    """How many ops the graph of a compiled step has before the first that the debugger added; all, if there is none."""
    ops = graph.get_operations()
    return next((n for n, op in enumerate(ops) if graphs.is_hook(op)), len(ops))


def unwritten(chain: Sequence[Any], end: int | None, held_back: bool = False) -> Iterator[int]:
    """The handles of the weights that no write can have reached: none was made ahead of the gate.

    With `held_back`, none made after it either that does not wait for the gate.
    """
    ops = chain[-1].get_operations()
    waiting = waits(ops[end:]) if held_back and end is not None else set()
    written = set()
    for n, op in enumerate(ops if held_back else ops[: end or 0]):
        ahead = n < (end or 0) or op.name not in waiting
        if ahead and internals_graphs.is_stateful(op) and phases.UPDATES.fullmatch(op.type) and not graphs.is_hook(op):
            written |= {id(origin(tensor)) for tensor in op.inputs if tensor.dtype.name == "resource"}
    for variable in variables(chain):
        handle = getattr(variable, "handle", None)
        if handle is not None and getattr(variable, "trainable", False) and id(handle) not in written:
            yield id(handle)


def waits(ops: Sequence[Any]) -> set[str]:
    """The names of the ops that run only after the gate, which is the first of tfdb's branches among them."""
    gates = (op for op in ops if op.type in internals.BRANCH_OPS and graphs.is_hook(op))
    return next(({gate.name} | halted.after(gate) for gate in gates), set())


def variables(chain: Iterable[Any]) -> list[Any]:
    """The variables of all of these graphs, each once."""
    found = {id(variable): variable for graph in chain for variable in graph.variables}
    return list(found.values())


def origin(tensor: Any) -> Any:
    """The eager tensor that a graph's tensor was captured from, through all graphs around; the tensor for others."""
    while internals.is_symbolic(tensor):
        outer = next((outside for outside, inside in getattr(tensor.graph, "captures", ()) if inside is tensor), None)
        if outer is None:
            return tensor
        tensor = outer
    return tensor


def call_of(outer: Any, inner: Any) -> Any | None:
    """The op of `outer` that runs `inner`, or None when it cannot be told."""
    for op in outer.get_operations():
        for name in internals_graphs.called(op):
            found = internals_graphs.nested_graph(outer, name)
            if found is not None and (found is inner or found.name == inner.name):
                return op
    return None


def evaluated(graph: Any, outer: Level | None, call: Any, known: Mapping[str, Any], memory: Memory) -> Evaluation:
    """The evaluation of one graph, fed with what came with the trip, what it captured, and the inputs of its call.

    Of a loop's body only what no pass changes is known, for which pass it was is not.
    """
    feeds, reasons = {}, {}
    pairs = list(graph.captures)
    if outer is not None:
        outer.evaluation.run_to(outer.end)
        if call is not None and call.type in internals.CALL_OPS:
            pairs += zip(call.inputs, graph.inputs, strict=False)
        elif call is not None and call.type in internals.BRANCH_OPS:
            pairs += zip(call.inputs[1:], graph.inputs, strict=False)
    for outside, inside in pairs:
        source = origin(outside)
        if not internals.is_symbolic(source):
            feeds[inside.name] = source
        elif outer is not None and outside.graph is outer.evaluation.graph:
            try:
                feeds[inside.name] = outer.evaluation.known(outside)
            except Unavailable as reason:
                reasons[inside.op.name] = str(reason)
    feeds.update(known)
    made = Evaluation(graph, feeds, memory)
    made.reasons.update({name: text for name, text in reasons.items() if f"{name}:0" not in feeds})
    return made
