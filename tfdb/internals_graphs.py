"""TensorFlow's private names that reading graphs needs: traces of a function, pieces of its graph, single ops.

Kept apart from `internals` by size alone; the same rule holds: a new release is mended in such modules only.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tfdb import internals
from tfdb.internals import private

CALL_ATTRIBUTES = internals.FUNCTION_ATTRIBUTES
RESOURCE_NAME = re.compile(r'ResourceHandle\(name="([^"]*?)(?:/\d+)?"')
INTERNAL_ATTRIBUTE = re.compile(r"_(?!output_shapes|Xla)")


def is_function(value: Any) -> bool:
    """Whether the value is what `tf.function` returns, one loaded from a SavedModel included."""
    return internals.loaded() and isinstance(value, internals.function_class())


def is_concrete(value: Any) -> bool:
    """Whether the value is one trace of a function."""
    return internals.loaded() and isinstance(
        value, private("eager.polymorphic_function.concrete_function", "ConcreteFunction")
    )


def is_func_graph(value: Any) -> bool:
    """Whether the value is a function's graph."""
    return internals.loaded() and isinstance(value, internals.func_graph_class())


def concrete_functions(function: Any) -> list[Any]:
    """The traces that a `tf.function` holds, first traced first; those of a SavedModel are the signatures it takes."""
    return [concrete for _, concrete in contexts(function)]


def contexts(function: Any) -> list[tuple[Any, Any]]:
    """The traces with the context each was made in, first traced first; a SavedModel's have none."""
    if hasattr(function, "concrete_functions"):
        return [(None, concrete) for concrete in function.concrete_functions]
    found: dict[int, tuple[Any, Any]] = {}
    for options in (function._variable_creation_config, function._no_variable_creation_config):
        cache = getattr(options, "function_cache", None)
        for (context, _), concrete in cache._primary.items() if cache is not None else ():
            found.setdefault(id(concrete), (context, concrete))
    return list(found.values())


def calls_per_trace(function: Any) -> list[int] | None:
    """For each recent trace the calls it served until the next one; None when they are not counted any more.

    TensorFlow counts them itself, for its warning, over a window of recent calls.
    """
    manager = private("eager.polymorphic_function.polymorphic_function", "_frequent_tracing_detector_manager")
    detector = manager._detectors.get(function._key_for_call_stats)
    return list(detector._calls_per_tracings) if detector is not None else None


def fresh_copy(function: Any) -> Any:
    """The same Python function as a new `tf.function`, so that tracing it leaves the user's alone."""
    return function._clone(function._python_function)


def cache_of(function: Any) -> Any:
    """What holds the traces of a `tf.function`."""
    return function._function_cache


def python_function(function: Any) -> Any:
    """The Python function of a `tf.function`."""
    return function._python_function


def is_restored(function: Any) -> bool:
    """Whether a `tf.function` comes from a SavedModel and has no Python source."""
    return isinstance(function, private("saved_model.function_deserialization", "RestoredFunction"))


def wants_xla(value: Any) -> bool:
    """Whether a `tf.function` or a trace of one is to be compiled by XLA."""
    if is_function(value):
        return bool(value._jit_compile)
    function = getattr(value, "_inference_function", None)
    attributes = getattr(function, "attributes", None) or {}
    return any(name in attributes for name in internals.XLA_ATTRIBUTES[:1])


def input_signature(function: Any) -> Any:
    """The `input_signature` that a `tf.function` was made with, or None."""
    return function.input_signature


def reduces_retracing(function: Any) -> bool:
    """Whether a `tf.function` was made with `reduce_retracing=True`."""
    return bool(function._reduce_retracing)


def atomic_graph(function: Any) -> Any | None:
    """The graph of the callable function at a call's end, or None when only its definition is known."""
    graph = getattr(function, "graph", None)
    return graph if is_func_graph(graph) else None


def nested_graph(graph: Any, name: str) -> Any | None:
    """The graph of a function that an op of `graph` calls, by the function's name; None when it cannot be had."""
    while graph is not None:
        if getattr(graph, "_is_function", lambda _: False)(name):
            function = graph._get_function(name)
            found = atomic_graph(function)
            if found is None and function is not None:
                with suppress(Exception):
                    found = private("eager.polymorphic_function.atomic_function", "to_func_graph")(function)
            return found
        graph = graph.outer_graph
    return None


def called(op: Any) -> list[str]:
    """The names of the functions that an op calls."""
    if not any(each.name in CALL_ATTRIBUTES for each in op.op_def.attr):
        return []
    attributes = op.node_def.attr
    return [name for each in CALL_ATTRIBUTES if each in attributes for name in called_as(op, each)]


def called_as(op: Any, attribute: str) -> list[str]:
    """The names of the functions in one attribute of an op: `then_branch`, `body`, `branches`, `f`."""
    value = op.node_def.attr[attribute]
    return [value.func.name] if value.func.name else [each.name for each in value.list.func]


def places(op: Any) -> list[tuple[str, int, str]]:
    """The Python stack that made an op, outermost first: file, line, function; [] without source."""
    summary = op.traceback
    return [(each.filename, each.lineno, each.name) for each in summary] if summary else []


def trace(op: Any) -> Any:
    """What stands for the stack that made an op: equal for equal stacks, None without source."""
    return op.traceback


def is_stateful(op: Any) -> bool:
    """Whether running the op has, or sees, an effect beyond its outputs."""
    return internals.is_stateful(op)


def attributes(op: Any) -> list[tuple[str, str]]:
    """An op's attributes as text, those that TensorFlow keeps for itself left out."""
    found = []
    for name in sorted(op.node_def.attr):
        if not INTERNAL_ATTRIBUTE.match(name):
            found.append((name, attribute_text(op, name)))
    return found


def attribute_text(op: Any, name: str) -> str:
    """One attribute as text, a tensor's value by its elements."""
    try:
        value = op.get_attr(name)
    except Exception as error:
        return f"cannot be read: {error}"
    if hasattr(value, "tensor_shape"):
        array = private("framework.tensor_util", "MakeNdarray")(value)
        return f"{array.dtype.name}{array.shape} {array.tolist() if array.size <= 8 else '…'}"
    if hasattr(value, "as_numpy_dtype"):
        return value.name
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if hasattr(value, "name") and hasattr(value, "attr"):
        return value.name
    if hasattr(value, "dim"):
        return "(" + ", ".join("?" if each.size < 0 else str(each.size) for each in value.dim) + ")"
    return str(value)


def constant(op: Any) -> Any | None:
    """The array of a Const op."""
    return private("framework.tensor_util", "MakeNdarray")(op.get_attr("value")) if op.type == "Const" else None


def constant_tensor(op: Any) -> Any:
    """The eager tensor of a Const op."""
    import tensorflow as tf

    return tf.constant(constant(op), dtype=op.outputs[0].dtype)


def copy_of(value: Any) -> Any:
    """A new variable that holds a value."""
    import tensorflow as tf

    with tf.init_scope():
        return tf.Variable(value, trainable=False, name="tfdb_copy")


@contextmanager
def unrecorded() -> Iterator[None]:
    """Within the block, ops run at once on this thread and no open gradient tape sees them."""
    with private("eager.context", "eager_mode")(), private("eager.record", "stop_recording")():
        yield


def as_array(value: Any) -> Any:
    """An eager tensor as a numpy array."""
    return value.numpy() if hasattr(value, "numpy") else value


def read_only_inputs(op: Any) -> list[int]:
    """The places of the inputs that a calling op only reads."""
    name = "_read_only_resource_inputs"
    return list(op.node_def.attr[name].list.i) if name in op.node_def.attr else []


def read_from(op: Any, value: Any, inputs: Sequence[Any]) -> list[Any]:
    """What an op that reads a variable gives for a value of it."""
    import tensorflow as tf

    if op.type == "ResourceGather":
        return [tf.gather(value, inputs[0], batch_dims=op.get_attr("batch_dims"))]
    return [tf.gather_nd(value, inputs[0])] if op.type == "ResourceGatherNd" else [value]


def run_op(op: Any, inputs: Sequence[Any], recorded: bool = False) -> list[Any]:
    """Run one op of a graph eagerly on other inputs, seen by the open tapes if `recorded`; what it raises passes."""
    outputs = eager_op(op)(inputs)
    if recorded and outputs:
        private("eager.backprop", "record_gradient")(op.type, list(inputs), eager_attributes(op), outputs)
    return outputs


def eager_op(op: Any) -> Callable[[Sequence[Any]], list[Any]]:
    """A function that runs one op of a graph eagerly on other inputs, any number of times; what it raises passes."""
    flat, count, kind = eager_attributes(op), len(op.outputs), op.type
    execute, context = private("eager.execute", "execute"), private("eager.context", "context")

    def run(inputs: Sequence[Any]) -> list[Any]:
        made = execute(kind, count, list(inputs), flat, context())
        return list(made) if isinstance(made, list | tuple) else []

    return run


def eager_attributes(op: Any) -> tuple[Any, ...]:
    """An op's attributes, names and values in turn, as an eager call takes them."""
    flat: list[Any] = []
    given = op.node_def.attr
    for attribute in op.op_def.attr:
        if attribute.name in given:
            flat += [attribute.name, eager_attribute(op, attribute.name, attribute.type)]
    return tuple(flat)


def eager_attribute(op: Any, name: str, kind: str) -> Any:
    """An attribute as an eager call takes it."""
    value = op.get_attr(name)
    if kind == "type":
        return value.as_datatype_enum
    if kind == "list(type)":
        return [each.as_datatype_enum for each in value]
    if kind == "func":
        return value.name
    if kind == "shape":
        return eager_shape(value)
    if kind == "list(shape)":
        return [eager_shape(each) for each in value]
    return value


def eager_shape(shape: Any) -> list[int] | None:
    """A shape attribute as an eager call takes it: -1 for a length that is not known, None for an unknown rank."""
    sizes = None if shape.unknown_rank else private("framework.tensor_shape", "TensorShape")(shape).as_list()
    return None if sizes is None else [-1 if size is None else size for size in sizes]


def read_variable(handle: Any) -> Any | None:
    """The value that a variable's eager handle holds now, or None: no copy, and no open tape sees it."""
    data = getattr(handle, "_handle_data", None)
    if data is None or len(data.shape_and_type) != 1 or handle.dtype.name != "resource":
        return None
    import tensorflow as tf

    with private("eager.record", "stop_recording")():
        if not tf.raw_ops.VarIsInitializedOp(resource=handle):
            return None
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(data.shape_and_type[0].dtype))


def read_store(handle: Any, dtype: Any) -> Any:
    """What an eager resource that holds a tensor of this dtype holds now."""
    import tensorflow as tf

    with unrecorded():
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def resource_name(handle: Any) -> str:
    """The name of the variable or other resource behind a captured handle, "" for none."""
    found = RESOURCE_NAME.search(str(handle)) if getattr(handle, "dtype", None) == "resource" else None
    return found[1] if found else ""


def argument_name(op: Any) -> str:
    """The user's name for a placeholder: its argument's."""
    if "_user_specified_name" in op.node_def.attr:
        return op.node_def.attr["_user_specified_name"].s.decode()
    return op.name


def tracing_door() -> tuple[Any, str]:
    """The module and the name of the function that makes one trace of a `tf.function`."""
    module = "eager.polymorphic_function.tracing_compilation"
    private(module, "_create_concrete_function")
    return sys.modules[f"tensorflow.python.{module}"], "_create_concrete_function"


def traced_code(options: Any) -> Any | None:
    """The code of the user's function that a trace is made of."""
    _, function = private("util.tf_decorator", "unwrap")(options.python_function)
    return getattr(function, "__code__", None)


def tracing_context(options: Any) -> Any:
    """The context that a trace is being made in."""
    return private("eager.polymorphic_function.function_context", "make_function_context")(options.scope_type)


def parameters(concrete: Any) -> list[tuple[str, Any]]:
    """The parameters of a trace with the type it was made for: TensorSpec, Literal, and structures of those."""
    kind = getattr(concrete, "function_type", None)
    return [(name, each.type_constraint) for name, each in kind.parameters.items()] if kind is not None else []


def element_spec(kind: Any) -> Any | None:
    """The type of what an iterator or dataset gives, from its own type; None for other types."""
    return getattr(kind, "element_spec", getattr(kind, "_element_spec", None))


def referent(kind: Any) -> Any | None:
    """The object that a trace was made for, or None when it is gone."""
    return kind._ref() if hasattr(kind, "_ref") else None


def leaves(kind: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The leaves of one parameter's type, each with its path: `batch['x']`, `args[0]`."""
    module = "tensorflow.core.function.trace_type.default_types"
    name = type(kind).__name__
    if type(kind).__module__ != module or name in ("Literal", "Weakref"):
        yield path, kind
    elif name == "NamedTuple":
        for key, part in zip(kind.attribute_names, kind.attributes.components, strict=True):
            yield from leaves(part, f"{path}.{key}")
    elif name == "Attrs":
        for key, part in zip(kind.named_attributes.mapping, kind.named_attributes.mapping.values(), strict=True):
            yield from leaves(part, f"{path}.{key}")
    elif name in ("List", "Tuple"):
        parts = getattr(kind, "components", None) or kind.components_tuple.components
        if not parts:
            yield path, kind
        for n, part in enumerate(parts):
            yield from leaves(part, f"{path}[{n}]")
    elif name == "Dict":
        if not kind.mapping:
            yield path, kind
        for key, part in kind.mapping.items():
            yield from leaves(part, f"{path}[{key!r}]")
    elif name == "Reference":
        yield from leaves(kind.base, path) if type(kind.base).__name__ != "Weakref" else [(path, kind)]
    else:
        yield path, kind
