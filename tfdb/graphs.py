"""A tf.function, trace, Keras model or SavedModel -> records of its graph: ops with the user lines that made them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import internals, internals_graphs, phases, sourcemap, varnames
from .errors import TfdbError
from .graphrecords import GraphRecord, Named, Node, TensorType
from .report import UserLine
from .tensors import short_device
from .traceable import SPEC, is_model, named, tf_function, without_graph

SMALL = 4  # elements up to which a constant is shown by its value
HOOK_SCOPE = re.compile(r"(^|/)tfdb(_\w+)?(/|$)")
TRACING = "func_graph_from_py_func"


@dataclass(frozen=True, slots=True)
class Source:
    """A function whose graph can be read: its title, the graph, and what is known beside it."""

    title: str
    graph: Any
    concrete: Any = None
    function: Any = None
    own: bool = False  # traced by tfdb: what called the tracing is no line of the program's


def is_hook(op: Any) -> bool:
    """Whether the op is one of tfdb's own."""
    return is_hook_name(op.name)


def is_hook_name(name: str) -> bool:
    """Whether an op of this name is one of tfdb's own."""
    return HOOK_SCOPE.search(name) is not None


def operations(graph: Any) -> list[Any]:
    """The ops of a graph in the order they were made, tfdb's own left out."""
    return [op for op in graph.get_operations() if not is_hook(op)]


def function_name(function: Any) -> str:
    """The name of a `tf.function`'s Python function."""
    return str(getattr(internals_graphs.python_function(function), "__name__", "function"))


def title_of(function: Any) -> str:
    """The name of a traced function; one from a SavedModel keeps it in its graphs' names only."""
    if internals_graphs.is_restored(function):
        return clean_name(internals_graphs.concrete_functions(function)[0].name)
    return function_name(function)


def traced(function: Any, twins: Iterable[Any] = ()) -> list[Any]:
    """The traces of a `tf.function`; those of its instrumented twins stand in where it has none of its own."""
    found = internals_graphs.concrete_functions(function)
    for twin in twins if not found else ():
        found += internals_graphs.concrete_functions(twin)
    return found


def sources(value: Any, twins: Any = lambda function: ()) -> list[Source]:
    """The graphs behind a value: one for each trace of a function, for each function and signature of a SavedModel.

    Raises:
        TfdbError: the value has no graph, or none yet; the message says what to give.
    """
    if internals_graphs.is_func_graph(value):
        return [Source(value.name, value)]
    if internals_graphs.is_concrete(value):
        return [Source(clean_name(value.name), value.graph, value)]
    if internals_graphs.is_function(value):
        found = [Source(title_of(value), each.graph, each, value) for each in traced(value, twins(value))]
        if not found:
            raise TfdbError(never_traced(value))
        return found
    if hasattr(value, "signatures"):
        return saved_model(value)
    inner = inner_function(value)
    if inner is not None:
        return sources(inner, twins)
    if is_model(value):
        return [model_source(value)]
    raise TfdbError(without_graph(value))


def never_traced(function: Any) -> str:
    """What to say of a function that was not called yet."""
    name, shown = function_name(function), SPEC
    code = getattr(internals_graphs.python_function(function), "__code__", None)
    names = [each for each in (code.co_varnames[: code.co_argcount] if code else ()) if each != "self"]
    what = f" for {', '.join(names)}" if names else ""
    return f"{name} was never traced: give arguments{what}, as in `graph {name}({shown})`"


def traced_for(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Source:
    """A copy of the function traced for these arguments (values or specs); the user's own function stays as it is."""
    if not internals_graphs.is_function(function) and not internals_graphs.is_concrete(function):
        if is_model(function) and not getattr(function, "built", True):
            raise TfdbError(f"{function.name} was never built, and this would build it: call it once before")
        concrete = tf_function(function).get_concrete_function(*args, **kwargs)
        return Source(getattr(function, "name", None) or named(function), concrete.graph, concrete, own=True)
    if internals_graphs.is_restored(function) or internals_graphs.is_concrete(function):
        concrete = function.get_concrete_function(*args, **kwargs)
    else:
        concrete = internals_graphs.fresh_copy(function).get_concrete_function(*args, **kwargs)
    return Source(function_name(function), concrete.graph, concrete, function, own=True)


def saved_model(value: Any) -> list[Source]:
    """The functions and the signatures of a loaded SavedModel."""
    found = []
    for name in dir(value):
        part = getattr(value, name, None) if not name.startswith("_") else None
        if internals_graphs.is_function(part) and internals_graphs.concrete_functions(part):
            found += [Source(name, each.graph, each, part) for each in internals_graphs.concrete_functions(part)]
    return found + [Source(f"signatures[{name!r}]", each.graph, each) for name, each in dict(value.signatures).items()]


def model_source(model: Any) -> Source:
    """A model's or layer's call, traced in inference mode for the shapes it was built with."""
    import tensorflow as tf

    inputs = getattr(model, "inputs", None)
    shape: Any = getattr(model, "_build_shapes_dict", None) or getattr(model, "input_shape", None)
    try:
        if inputs:
            specs = tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape, each.dtype), list(inputs))
        else:
            shape = next(iter(shape.values())) if isinstance(shape, dict) else shape
            specs = [tf.TensorSpec((None, *tuple(shape)[1:]), getattr(model, "compute_dtype", "float32"))]
    except Exception as error:
        if getattr(model, "built", False):
            text = f"the shapes that {model.name} takes are not known: give them, as in `graph {model.name}({SPEC})`"
            raise TfdbError(text) from error
        raise TfdbError(f"{model.name} was never built: call it once before") from error
    given = specs[0] if len(specs) == 1 else specs
    concrete = tf.function(lambda x: model(x, training=False), autograph=False).get_concrete_function(given)
    return Source(model.name, concrete.graph, concrete, own=True)


def closed_over(value: Any) -> Any | None:
    """The `tf.function` that a plain Python function calls, as Keras' `model.train_function` does."""
    for cell in getattr(value, "__closure__", None) or ():
        if internals_graphs.is_function(cell.cell_contents):
            return cell.cell_contents
    return None


def inner_function(value: Any) -> Any | None:
    """The `tf.function` that a value is called through: its own `__call__`, or one that a plain function calls."""
    own = getattr(value, "__call__", None)  # noqa: B004  # the attribute itself is looked at
    return own if internals_graphs.is_function(own) else closed_over(value)


def clean_name(name: str | bytes) -> str:
    """A graph function's name without TensorFlow's prefix and number."""
    text = name.decode() if isinstance(name, bytes) else name
    return re.sub(r"_\d+$", "", re.sub(r"^__(inference|forward|backward)_", "", text))


def read(source: Source) -> GraphRecord:
    """The record of a source, with those of all functions that it calls."""
    made = graph_record(source.graph, source.title, source.own)
    restored = source.function is not None and internals_graphs.is_restored(source.function)
    notes = ("from a SavedModel: no Python source, so its ops have no lines",) if restored else ()
    xla = any(internals_graphs.wants_xla(each) for each in (source.concrete, source.function) if each is not None)
    arguments, results = signature(source)
    return replace(made, arguments=arguments, results=results, xla=xla or made.xla, notes=notes)


def read_head(source: Source) -> GraphRecord:
    """The record of a source without its ops: what it takes and gives."""
    arguments, results = signature(source)
    return GraphRecord(source.graph.name, source.title, arguments, results, (), (), (), False, ())


def graph_record(graph: Any, title: str = "", inside: bool = False) -> GraphRecord:
    """The record of a function's graph; `inside` leaves out the user's lines that called its tracing."""
    ops = operations(graph)
    literals = Literals(graph)
    stacks: Stacks = {}
    nodes = phases.updates_told([node(op, literals, stacks, inside) for op in ops])
    functions: dict[str, GraphRecord] = {}
    for each in nodes:
        for name in each.calls:
            inner = internals_graphs.nested_graph(graph, name) if name not in functions else None
            if inner is not None and inner is not graph:
                functions[name] = graph_record(inner, clean_name(name), inside)
    devices = sorted({short_device(op.device) for op in ops if op.device})
    captures = tuple(Named(literals.of(inner.op), text(inner)) for _, inner in graph.captures if not is_hook(inner.op))
    variables = tuple(Named(varnames.name_of(each), variable_text(each)) for each in variables_of(graph))
    xla = internals.is_xla(graph)
    return GraphRecord(graph.name, title, *interface(graph), captures, variables, tuple(devices), xla, nodes, functions)


def variables_of(graph: Any) -> list[Any]:
    """The variables of a graph, trainable ones first, each in the order of its first use."""
    order = {id(outer): n for n, (outer, _) in enumerate(graph.captures)}
    first = {id(each): order.get(id(getattr(each, "handle", each)), len(order)) for each in graph.variables}
    return sorted(graph.variables, key=lambda each: (not getattr(each, "trainable", True), first[id(each)]))


def own_inputs(graph: Any) -> list[Any]:
    """The placeholders of a graph that are arguments, not captures."""
    captured = {id(inner) for _, inner in graph.captures}
    return [each for each in graph.inputs if id(each) not in captured]


def interface(graph: Any) -> tuple[tuple[Named, ...], tuple[Named, ...]]:
    """The arguments and the results of a graph by the names of their ops."""
    arguments = tuple(Named(internals_graphs.argument_name(each.op), text(each)) for each in own_inputs(graph))
    return arguments, tuple(Named(each.op.name, text(each)) for each in graph.outputs)


def signature(source: Source) -> tuple[tuple[Named, ...], tuple[Named, ...]]:
    """The arguments and the results of a source, of a trace by the user's names, structures taken apart."""
    arguments, results = interface(source.graph)
    found = []
    for name, kind in internals_graphs.parameters(source.concrete):
        found += [Named(path, kind_text(leaf)) for path, leaf in internals_graphs.leaves(kind, name)]
    return tuple(found) or arguments, results


def kind_text(kind: Any) -> str:
    """What a trace was made for, as text: a tensor's dtype and shape, a Python value, an object's type."""
    if hasattr(kind, "dtype") and hasattr(kind, "shape"):
        return str(tensor_type(kind))
    if hasattr(kind, "value"):
        return repr(kind.value)
    element = internals_graphs.element_spec(kind)
    if element is not None:
        return f"{type(kind).__name__.removesuffix('Spec').lower()} of {structure_text(element)}"
    return str(kind)


def structure_text(spec: Any) -> str:
    """The types of a structure of tensors."""
    if isinstance(spec, dict):
        return "{" + ", ".join(f"{key}: {structure_text(each)}" for key, each in spec.items()) + "}"
    if isinstance(spec, list | tuple):
        return "(" + ", ".join(map(structure_text, spec)) + ")"
    return kind_text(spec)


def tensor_type(tensor: Any) -> TensorType:
    """The dtype and shape of a tensor or spec."""
    shape = tensor.shape
    sizes = None if shape is None or shape.rank is None else tuple(shape.as_list())
    return TensorType(getattr(tensor.dtype, "name", str(tensor.dtype)), sizes)


def text(tensor: Any) -> str:
    """A tensor's type as text."""
    return str(tensor_type(tensor))


def variable_text(variable: Any) -> str:
    """A variable's type as text, with what is special about it."""
    return text(variable) + ("" if getattr(variable, "trainable", True) else ", not trainable")


class Literals:
    """What to show in the place of a graph's sources: arguments, captured variables, small constants."""

    def __init__(self, graph: Any) -> None:
        self.captured = {id(inner.op): outer for outer, inner in graph.captures}
        self.handles = {}
        for variable in graph.variables:
            self.handles[id(getattr(variable, "handle", variable))] = varnames.name_of(variable)

    def of(self, op: Any) -> str:
        """The literal of an op, "" for one that computes."""
        if op.type == "Placeholder":
            outer = self.captured.get(id(op))
            plain = internals_graphs.argument_name(op)
            if outer is None:
                return plain
            return self.handles.get(id(outer)) or outside(outer) or varnames.name_of_handle(outer, plain)
        if op.type == "ReadVariableOp":
            source = op.inputs[0].op
            return self.of(source) if source.type == "Placeholder" else ""
        if op.type == "Const":
            return constant_text(internals_graphs.constant(op))
        return ""


def outside(tensor: Any) -> str:
    """The name of a captured tensor or resource."""
    if internals.is_symbolic(tensor):
        return str(tensor.op.name)
    return internals_graphs.resource_name(tensor)


def constant_text(array: Any) -> str:
    """A small constant by its value, a larger one by its type."""
    if array.size > SMALL or array.dtype.kind == "O":
        return f"{array.dtype.name if array.dtype.kind != 'O' else 'string'}{array.shape}"
    return elements_text(array)


def elements_text(array: Any) -> str:
    """The elements of a small array, as short as their dtype allows."""
    if array.ndim:
        return f"[{', '.join(elements_text(each) for each in array)}]"
    return str(array[()])


Stacks = dict[Any, tuple[tuple[UserLine, ...], str]]  # of each stack: the user's lines, and the part of the step


def node(op: Any, literals: Literals, stacks: Stacks, inside: bool = False) -> Node:
    """The record of one op; `stacks` are those that were read before: most ops share theirs with others."""
    trace = internals_graphs.trace(op)
    if trace not in stacks:
        frames = internals_graphs.places(op)
        if inside:
            frames = frames[max((n for n, frame in enumerate(frames) if frame[2] == TRACING), default=0) :]
        stacks[trace] = user_lines(tuple(frames)), phases.of_calls(frames)
    lines, phase = stacks[trace]
    return Node(
        op.name,
        op.type,
        tuple(each.name for each in op.inputs),
        tuple(each.name for each in op.control_inputs if not is_hook(each)),
        tuple(tensor_type(each) for each in op.outputs),
        short_device(op.device),
        lines,
        phase or phases.of_name(op),
        tuple(internals_graphs.called(op)),
        internals_graphs.is_stateful(op),
        literals.of(op),
    )


@functools.lru_cache(maxsize=4096)
def user_lines(frames: tuple[tuple[str, int, str], ...]) -> tuple[UserLine, ...]:
    """The user's frames of a stack, outermost first."""
    return tuple(
        UserLine(file, line, sourcemap.named(name))
        for file, line, name in frames
        if not sourcemap.is_hidden(file) and not file.startswith("<frozen")
    )
