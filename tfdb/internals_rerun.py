"""TensorFlow's private names for running recorded calls again; a part of internals.py, under its rules."""

import contextlib
import hashlib
import inspect
import os
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfdb import internals_gate
from tfdb.internals import XLA_ATTRIBUTES, layer_classes, private
from tfdb.internals_gate import keras_private
from tfdb.sourcemap import is_user

RANDOM_OPS = (  # those that draw from a state of their own, which nobody can read
    "RandomUniform",
    "RandomUniformInt",
    "RandomStandardNormal",
    "TruncatedNormal",
    "ParameterizedTruncatedNormal",
    "RandomShuffle",
    "Multinomial",
    "RandomGamma",
    "RandomPoissonV2",
)


def traces(function: Any) -> list[Any]:
    """The concrete functions that a `tf.function` has been traced into, oldest first; never traces."""
    cache = getattr(function, "_function_cache", None)  # its own method to list them traces first where it can
    return list(cache.values()) if cache is not None else []


def python_function(function: Any) -> Callable[..., Any]:
    """What a `tf.function` wraps, with `self` bound when it is a method; any other callable as it is."""
    inner = getattr(function, "_python_function", None)
    return function if inner is None else internals_gate.original_function(inner)


def is_exact(spec: Any) -> bool:
    """Whether all dimensions in a structure of specs are known."""
    import tensorflow as tf

    return all(part.shape.is_fully_defined() for part in tf.nest.flatten(spec, expand_composites=True))


def compiles(function: Any) -> bool:
    """Whether a `tf.function` was made with `jit_compile=True`."""
    return bool(getattr(function, "_jit_compile", False))


def code_of(function: Any) -> Any | None:
    """The code object of the user's Python function under all wrappers, or None for what has none."""
    if isinstance(function, tuple(layer_classes())):
        function = getattr(function, "call")  # noqa: B009
    inner = inspect.unwrap(python_function(function))
    return getattr(getattr(inner, "__func__", inner), "__code__", None)


def read(variable: Any) -> Any:
    """The variable's value, past every wrapper of its methods; shares its memory until the next write."""
    raw = private("ops.gen_resource_variable_ops", "read_variable_op")
    return raw(variable.handle, variable.dtype)


def write(variable: Any, value: Any) -> None:
    """Set the variable's value, past every wrapper of its methods."""
    private("ops.gen_resource_variable_ops", "assign_variable_op")(variable.handle, value)


def eager_bytes(value: Any) -> int:
    """The bytes of an eager tensor, from its own counters; 0 for anything else."""
    count = getattr(value, "_num_elements", None)
    return count() * value.dtype.size if count is not None else 0


@contextlib.contextmanager
def other_random_numbers() -> Iterator[None]:
    """Within the block eager random ops get seeds of their own; afterwards every generator is where it was.

    With the program's next seeds the block would advance the kernels that TensorFlow caches for them.
    """
    context = private("eager.context", "context")()
    seed, generator = getattr(context, "_seed", None), getattr(context, "_rng", None)
    with internals_gate.random_state():
        if generator is not None:
            generator.setstate(random.Random().getstate())
        try:
            yield
        finally:
            context._seed, context._rng = seed, generator  # set_seed() makes a new generator


def node_functions(graph: Any) -> Iterator[Any]:
    """The node definitions of a graph and of every function in its library."""
    definition = graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def


def writes(graph: Any) -> bool:
    """Whether any op of the graph, or of what it calls, writes a variable."""
    prefixes = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter", "ResourceStridedSliceAssign")
    return any(node.op.startswith(prefixes) for node in node_functions(graph))


def random_ops(graph: Any) -> list[str]:
    """The types of the graph's ops that draw from a state of their own, which nobody can read."""
    return sorted({node.op for node in node_functions(graph) if node.op in RANDOM_OPS})


def user_line(op: Any) -> tuple[str, int, str] | None:
    """The innermost user line of the stack that created a graph op: file, line, function."""
    for frame in reversed(list(op.traceback or ())):
        if is_user(frame.filename):
            return frame.filename, frame.lineno, frame.name
    return None


def holds_hooks(graph: Any) -> bool:
    """Whether tfdb planted anything in the graph or in what it calls."""
    return any(node.op == "EagerPyFunc" and "tfdb" in node.name for node in node_functions(graph))


def traced(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The trace that a `tf.function` uses for these arguments, made if there is none, and the tensors it takes.

    Raises:
        Exception: whatever tracing raises.
    """
    if not traces(function):
        function.get_concrete_function(*args, **kwargs)
    canonical = private("eager.polymorphic_function.function_type_utils", "canonicalize_function_inputs")
    bound = canonical(args, kwargs, function._function_type, function._default_values, function._is_pure)
    options = function._variable_creation_config
    if function._created_variables:
        options = function._no_variable_creation_config
    trace_function = private("eager.polymorphic_function.tracing_compilation", "trace_function")
    concrete = trace_function(args=bound.args, kwargs=bound.kwargs, tracing_options=options)
    kind = concrete.function_type
    return concrete, list(kind.unpack_inputs(kind.bind(*bound.args, **bound.kwargs)))


def keras_step(function: Any, depth: int = 6) -> Any | None:
    """The `train_step` or `test_step` that Keras built this `tf.function` around, bound to its model, or None."""
    inner = inspect.unwrap(python_function(function))
    cells = zip(getattr(getattr(inner, "__code__", None), "co_freevars", ()), inner.__closure__ or (), strict=False)
    names = {name: cell.cell_contents for name, cell in cells}
    if "step_function" in names:
        return names["step_function"]
    callables = [value for value in names.values() if callable(value)]
    nested = [value for value in callables if inspect.isfunction(value) or hasattr(value, "_python_function")]
    found = (keras_step(value, depth - 1) for value in nested if depth)
    return next((step for step in found if step is not None), None)


def whole_layer(function: Any) -> Any:
    """The layer itself for its bound `call`: `Layer.__call__` sets what `call` relies on (dtypes, training)."""
    owner = getattr(function, "__self__", None)
    is_layer = getattr(function, "__name__", "") == "call" and isinstance(owner, tuple(layer_classes()))
    return owner if is_layer else function


def operations() -> list[Any]:
    """The ops of the graph that is being built."""
    return list(private("framework.ops", "get_default_graph")().get_operations())


def captured(value: Any) -> Any:
    """An eager tensor (a variable's handle) as an input of the graph that is being built."""
    return private("framework.ops", "get_default_graph")().capture(value)


def import_graph(graph: Any, inputs: Sequence[Any]) -> list[Any]:
    """Add all ops of a traced graph, tfdb's own left out, to the one being built; returns the graph's outputs there.

    Names stay.  Requests to compile parts of it with XLA are dropped: the function around it decides.
    """
    import tensorflow as tf

    mapped = {symbol.name: value for symbol, value in zip(graph.inputs, inputs, strict=True)}
    definition = without_hooks(graph.as_graph_def(), {symbol.op.name for symbol in graph.inputs})
    used = {name if ":" in name else f"{name}:0" for node in definition.node for name in node.input}
    wanted = [tensor.name for tensor in graph.outputs]
    found = tf.graph_util.import_graph_def(
        definition,
        input_map={name: value for name, value in mapped.items() if name in used},
        return_elements=[name for name in wanted if name not in mapped],
        name="",
    )
    made = iter(found)
    return [mapped[name] if name in mapped else next(made) for name in wanted]


def without_hooks(definition: Any, inputs: set[str]) -> Any:
    """The graph definition without tfdb's py_functions, without these input nodes and without requests for XLA."""
    for function in definition.library.function:
        for name in XLA_ATTRIBUTES:
            function.attr.pop(name, None)
        gone = strip(function.node_def, set())
        for key, name in list(function.control_ret.items()):
            if name in gone:
                del function.control_ret[key]
                function.signature.control_output.remove(key)
    strip(definition.node, inputs)
    text = definition.library.SerializeToString(deterministic=True)
    rename_functions(definition, f"_tfdb_{hashlib.sha1(text).hexdigest()[:12]}")
    context = private("eager.context", "context")()
    for function in definition.library.function:
        if not context.has_function(function.signature.name):
            context.add_function_def(function)
    return definition


def rename_functions(definition: Any, suffix: str) -> None:
    """Give the functions of a graph's library new names: under a known name TensorFlow runs what it has already."""
    known = {function.signature.name for function in definition.library.function}
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    for node in nodes:
        for attribute in node.attr.values():
            kind = attribute.WhichOneof("value")
            for called in [attribute.func] if kind == "func" else attribute.list.func if kind == "list" else ():
                called.name += suffix if called.name in known else ""
        node.op += suffix if node.op in known else ""
    for function in definition.library.function:
        function.signature.name += suffix
    for gradient in definition.library.gradient:
        gradient.function_name += suffix if gradient.function_name in known else ""
        gradient.gradient_func += suffix if gradient.gradient_func in known else ""


def strip(nodes: Any, inputs: set[str]) -> set[str]:
    """Take hooks and these inputs out of a list of nodes, and every order on them; returns the hooks' names."""
    hooks = {node.name for node in nodes if node.op == "EagerPyFunc" and "tfdb" in node.name}
    kept = [node for node in nodes if node.name not in hooks | inputs]
    orders = {f"^{name}" for name in hooks | inputs}
    for node in kept:
        if any(name in orders for name in node.input):
            node.input[:] = [name for name in node.input if name not in orders]
    if len(kept) < len(nodes):
        copies = [type(node).FromString(node.SerializeToString()) for node in kept]
        del nodes[:]
        nodes.extend(copies)
    return hooks


def keras_paths(values: Sequence[Any]) -> dict[int, str]:
    """The paths of the Keras variables among some objects, by the id of the tf.Variable in each."""
    owner = keras_variable_class()
    found = [value for value in values if owner in type(value).__mro__]
    return {id(value._value): value.path for value in found if getattr(value, "_value", None) is not None}


def keras_variable_class() -> type | None:
    """Keras 3's own class of variables, None while the program has not imported it."""
    return keras_private("keras", "backend.common.variables", "Variable")


def keras_owned(variables: Sequence[Any]) -> Iterator[tuple[Any, str]]:
    """The tf.Variable in each Keras variable among some variables, those on each replica too, with the Keras path."""
    owner = keras_variable_class()
    for value in variables:
        if owner in type(value).__mro__ and (inner := getattr(value, "_value", None)) is not None:
            yield inner, value.path
            for part in internals_gate.components(inner):
                yield part, value.path


def is_holder(kind: type) -> bool:
    """Whether objects of a class hold variables in attributes: layers, models, modules."""
    import tensorflow as tf

    return issubclass(kind, (tf.Module, *layer_classes()))


def is_variable(kind: type) -> bool:
    """Whether it is a class of variables, TensorFlow's or Keras'."""
    owner = keras_variable_class()
    return internals_gate.variable_class() in kind.__mro__ or owner is not None and owner in kind.__mro__


def holders(values: Sequence[Any]) -> list[Any]:
    """The layers, models and modules among some objects."""
    return of_kinds(values, is_holder)


def variables(values: Sequence[Any]) -> list[Any]:
    """The variables among some objects, TensorFlow's and Keras'."""
    return of_kinds(values, is_variable)


def of_kinds(values: Sequence[Any], wanted: Callable[[type], bool]) -> list[Any]:
    """The objects whose class is a wanted one; each class is asked about once, for the objects are many."""
    kinds: dict[type, bool] = {}
    found = []
    for value in values:
        kind = type(value)
        if kind not in kinds:
            kinds[kind] = wanted(kind)
        if kinds[kind]:
            found.append(value)
    return found


def concrete_function_class() -> type:
    """The class of what `get_concrete_function` returns; `graph` is the graph that its calls run."""
    return private("eager.polymorphic_function.concrete_function", "ConcreteFunction")


def random_makers() -> list[tuple[Any, str]]:
    """The functions that run TensorFlow's stateful random ops: the module and the names in it."""
    private("ops.gen_random_ops", "random_uniform")
    module = sys.modules["tensorflow.python.ops.gen_random_ops"]
    names = [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op).lower() for op in RANDOM_OPS]
    return [(module, name) for name in names if hasattr(module, name)]


def spare_threads() -> int:
    """How many graphs can run beside one that is held at a stop: the inter-op threads but one."""
    import tensorflow as tf

    count = tf.config.threading.get_inter_op_parallelism_threads()
    count = count or int(os.environ.get("TF_NUM_INTEROP_THREADS", "0") or 0) or os.cpu_count() or 1
    return count - 1


def parts(value: Any) -> list[dict[str, Any]]:
    """The attributes of a layer, model or module, and of all that are inside of it; empty for other values."""
    import tensorflow as tf

    if isinstance(value, tuple(layer_classes())):
        inside = value._flatten_layers() if hasattr(value, "_flatten_layers") else []
        return [vars(layer) for layer in [value, *inside]]
    return [vars(module) for module in [value, *value.submodules]] if isinstance(value, tf.Module) else []


def global_seed() -> int | None:
    """The seed that `tf.random.set_seed` has set."""
    return getattr(private("eager.context", "context")(), "_seed", None)


def inner_variable(variable: Any) -> Any:
    """The tf.Variable in a Keras variable, or the variable itself."""
    return getattr(variable, "_value", None) if not hasattr(variable, "handle") else variable


def first_element(iterator: Any) -> Any | None:
    """What a fresh pass over the iterator's dataset gives first; the iterator itself does not move."""
    dataset = getattr(iterator, "_dataset", None)
    return None if dataset is None else next(iter(dataset), None)


def creation_number(variable: Any) -> int:
    """A number that grows with the creation of variables."""
    number = str(getattr(variable, "_unique_id", "")).rpartition("_")[2]
    return int(number) if number.isdigit() else 0
