"""A trace and its inputs -> the values of its outputs, gradients and ops, run as a graph or by XLA.

The graph is the program's own, imported as it is, so what was frozen into it stays; only the way of running it differs.
The eager counterpart is a log of the ops that the Python function runs.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfdb import blame, internals_callbacks, internals_rerun, state

Line = tuple[str, int, str]
MOST_LOGGED = 20_000  # eager ops kept with their values


@dataclass(frozen=True, slots=True)
class Node:
    """An op of a graph: `line` is the user's, that of the forward op for a gradient op of known `forward` type."""

    name: str
    op: str
    line: Line | None
    inputs: tuple[str, ...]
    forward: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """One run: outputs in order, gradients by the name of what they are by, and the tensors fetched, by name."""

    outputs: tuple[Any, ...]
    gradients: dict[str, Any]
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class EagerOp:
    """An op that ran eagerly, with its values and the user's innermost line."""

    op: str
    line: Line | None
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """A concrete function with the tensors to give it; `sources` are what to take gradients by: name, input index."""

    concrete: Any
    inputs: tuple[Any, ...]
    sources: tuple[tuple[str, int], ...]


def trace(wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    """The trace that the call uses (made if need be), with its inputs; gradients are by float arguments and weights."""
    concrete, flat = internals_rerun.traced(wrapped, args, kwargs)
    inputs = [*flat, *concrete.captured_inputs]
    names = state.names(concrete.graph.trainable_variables)
    weights = {id(variable.handle): names[id(variable)] for variable in concrete.graph.trainable_variables}
    sources = []
    for index, (symbol, value) in enumerate(zip(concrete.graph.inputs, inputs, strict=True)):
        if symbol.dtype.is_floating and index < len(flat):
            sources.append((symbol.op.name, index))
        elif id(value) in weights:
            sources.append((weights[id(value)], index))
    return Trace(concrete, tuple(inputs), tuple(sources))


def run(given: Trace, *, xla: bool, of_ops: Callable[[Any], bool] | None = None) -> Probe:
    """Run the trace's graph once, whole, on its inputs; the numeric inputs and outputs of some ops are fetched too.

    Raises:
        Exception: what the graph raises, or XLA when it cannot compile it.
    """
    import tensorflow as tf

    if xla:
        refuse_for_xla(given)
    nodes: list[Node] = []
    names: list[str] = []
    given_names: list[str] = []

    def probe(*inputs: Any) -> Any:
        outputs, gradients = imported(given, inputs)
        fetched: list[Any] = []
        if of_ops is not None:
            known = {op.name: op for op in given.concrete.graph.get_operations()}
            operations = internals_rerun.operations()
            nodes[:] = [node_of(op, known) for op in operations]
            given_names[:] = [t.name for t in inputs]
            near = {t.name: t for op in operations if of_ops(op) for t in (*op.inputs, *op.outputs)}
            fetched = [t for t in near.values() if t.op.type != "Placeholder" and is_numeric(t.dtype)]
            names[:] = [tensor.name for tensor in fetched]
        return outputs, gradients, fetched

    passed = [value for value in given.inputs if value.dtype not in (tf.resource, tf.variant)]
    made = tf.function(probe, jit_compile=xla, autograph=False).get_concrete_function(*passed)
    outputs, gradients, fetched = made(*passed)
    by = {name: value for (name, _), value in zip(given.sources, gradients, strict=False) if value is not None}
    values = [*(passed if of_ops is not None else ()), *fetched]
    arrays = {name: np.asarray(value) for name, value in zip([*given_names, *names], values, strict=True)}
    return Probe(tuple(outputs), by, arrays, tuple(nodes))


def refuse_for_xla(given: Trace) -> None:
    """Raise where an input is of a type that XLA does not refuse by itself: it ends the process over it.

    Raises:
        TypeError: an input is a string or a variant (a dataset, a TensorArray).
    """
    taken = {symbol.dtype.name for symbol in given.concrete.graph.inputs} & {"string", "variant"}
    if taken:
        raise TypeError(f"XLA compiles no graph that takes a {' or a '.join(sorted(taken))}")


def imported(given: Trace, passed: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Add the trace's graph to the one being built: its outputs, and the gradients of their sum."""
    import tensorflow as tf

    waiting = iter(passed)
    inputs = [
        internals_rerun.captured(value) if value.dtype in (tf.resource, tf.variant) else next(waiting)
        for value in given.inputs
    ]
    outputs = internals_rerun.import_graph(given.concrete.graph, inputs)
    floats = [value for value in outputs if value.dtype.is_floating]
    if not floats or not given.sources:
        return outputs, []
    found = tf.gradients(floats, [inputs[index] for _, index in given.sources])
    return outputs, [None if value is None else tf.convert_to_tensor(value) for value in found]


def all_ops(op: Any) -> bool:
    """Every op, for `run`."""
    return True


def is_numeric(dtype: Any) -> bool:
    """Whether tensors of the dtype can be fetched from any device and compared as numbers."""
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex)


def node_of(op: Any, known: dict[str, Any]) -> Node:
    """The op as a record; gradient ops get the line of the forward op they are the gradient of, where it is told."""
    inputs = tuple(tensor.name for tensor in op.inputs)
    forward = forward_of(op, known)
    source = forward or known.get(op.name)
    line = internals_rerun.user_line(source) if source is not None else None
    return Node(op.name, op.type, line, inputs, forward.type if forward is not None else "")


def forward_of(op: Any, known: dict[str, Any]) -> Any | None:
    """The op that a gradient op is the gradient of: by its name's scope, or an op of its type among its inputs."""
    scope = op.name.partition("gradients/")[2].rpartition("_grad/")[0]
    if scope in known:
        return known[scope]
    kind = op.type.removesuffix("Grad")
    inputs = [known[t.op.name] for t in op.inputs if t.op.name in known] if kind != op.type else []
    return next((each for each in inputs if each.type == kind), None)


class Logged:
    """Within the block, every eager op of this thread is kept with its values; `ops` has them in order."""

    def __init__(self) -> None:
        self.ops: list[EagerOp] = []
        self.callback: Any = None

    def __enter__(self) -> "Logged":
        self.callback = internals_callbacks.op_callback(self.on_op)
        self.callback.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.callback.__exit__(*error)

    def on_op(self, op: str, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:
        """Keep one op."""
        if graph is None and len(self.ops) < MOST_LOGGED:
            line = blame.user_line(sys._getframe(1))
            place = None if line is None else (line.file, line.line, line.function)
            self.ops.append(EagerOp(op, place, tuple(inputs), tuple(outputs)))


def paired(ops: Sequence[EagerOp], nodes: Sequence[Node]) -> Iterator[tuple[EagerOp, Node]]:
    """Eager ops with the graph's op of the same type on the same line, first with first, in the order of the graph."""
    waiting: dict[tuple[Any, str], list[EagerOp]] = {}
    for each in ops:
        waiting.setdefault((each.line and each.line[:2], each.op), []).append(each)
    for node in nodes:
        queue = waiting.get((node.line and node.line[:2], node.op))
        if node.line is not None and not node.forward and queue:
            yield queue.pop(0), node
