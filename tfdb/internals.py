"""TensorFlow's private names -> one checked place, so that a new release is mended here and nowhere else.

Nothing here imports TensorFlow by itself: `loaded()` says whether the program did, and every other function
may be called only then.  A name that a release has moved raises `errors.Incompatible` naming it.
"""

import functools
import gc
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tfdb.errors import Incompatible
from tfdb.internals_patches import Patches as Patches

DROPPED_BY_XLA = ("CheckNumerics", "Assert")
XLA_ATTRIBUTES = ("_XlaMustCompile", "_XlaHasReferenceVars")
CALL_OPS = frozenset(("PartitionedCall", "StatefulPartitionedCall"))
BRANCH_OPS = frozenset(("If", "StatelessIf", "Case", "StatelessCase"))
LOOP_OPS = frozenset(("While", "StatelessWhile"))
CALLING_OPS = CALL_OPS | BRANCH_OPS | LOOP_OPS
FUNCTION_ATTRIBUTES = ("f", "then_branch", "else_branch", "body", "cond", "branches")


def loaded() -> bool:
    """Whether the program has imported TensorFlow whole (not: is importing it right now)."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and hasattr(tensorflow, "function")


@functools.cache
def private(module: str, name: str) -> Any:
    """The object `name` of the private module `tensorflow.python.<module>`.

    Raises:
        Incompatible: this TensorFlow release has no such name.
    """
    try:
        return getattr(importlib.import_module(f"tensorflow.python.{module}"), name)
    except (ImportError, AttributeError) as error:
        import tensorflow as tf

        raise Incompatible(f"tensorflow.python.{module}.{name}", tf.__version__) from error


def function_class() -> type:
    """The class of what `tf.function` returns; its `__call__` is the one door to every graph call from Python."""
    return private("eager.polymorphic_function.polymorphic_function", "Function")


def atomic_function() -> type:
    """The class whose `call_flat` runs a graph when called eagerly, and makes a call op otherwise."""
    return private("eager.polymorphic_function.atomic_function", "AtomicFunction")


def structured_function() -> type:
    """tf.data's wrapper of a user function (`map`, `filter`, ...); it traces in `__init__`."""
    return private("data.ops.structured_function", "StructuredFunctionWrapper")


def trace_count(function: Any) -> int:
    """How often a `tf.function` object was traced."""
    return len(function._function_cache)


def traced_graphs(function: Any) -> list[Any]:
    """The graphs of a `tf.function` object's traces."""
    return [concrete.graph for concrete in function._function_cache.values()]


def dataset_graphs() -> list[Any]:
    """The graphs of all tf.data functions that are alive and hold no hooks."""
    kind = structured_function()
    wrappers = [each for each in gc.get_objects() if type(each) is kind]
    graphs = [getattr(getattr(each, "_function", None), "graph", None) for each in wrappers]
    return [graph for graph in graphs if graph is not None and not holds_hooks(graph)]


def holds_hooks(graph: Any) -> bool:
    """Whether one of tfdb's ops is in the graph or in one that it calls."""
    operations = (op for each in with_called_graphs([graph]) for op in each.get_operations())
    return any(op.type == "EagerPyFunc" and "tfdb" in op.name for op in operations)


def with_called_graphs(graphs: Iterable[Any]) -> Iterator[Any]:
    """The graphs, and those of the branches, loops and functions that they call, each once."""
    waiting, seen = list(graphs), set()
    while waiting:
        graph = waiting.pop()
        if graph is not None and id(graph) not in seen:
            seen.add(id(graph))
            yield graph
            waiting += [getattr(function, "graph", None) for function in getattr(graph, "_functions", {}).values()]


def op_places(graph: Any) -> Iterator[tuple[str, int]]:
    """The files and lines at which the graph's ops were made, callers included, in the user's own lines."""
    for op in graph.get_operations():
        for frame in op.traceback or ():
            yield frame.filename, frame.lineno


def func_graph_module() -> Any:
    """The module whose `func_graph_from_py_func` traces every Python function into a graph."""
    private("framework.func_graph", "func_graph_from_py_func")
    return sys.modules["tensorflow.python.framework.func_graph"]


def is_parallel_for(function: Any) -> bool:
    """Whether a `tf.function` is the one in which TensorFlow vectorises a loop."""
    code = getattr(function._python_function, "__code__", None)
    return code is not None and "parallel_for" in code.co_filename


def functions_run_eagerly() -> bool:
    """Whether `tf.config.run_functions_eagerly(True)` is in effect."""
    return bool(runs_functions_eagerly()())


def runs_functions_eagerly() -> Callable[[], bool]:
    """The function that says so, to be called at every step of a program."""
    return private("eager.polymorphic_function.eager_function_run", "functions_run_eagerly")


def func_graph_class() -> type:
    """The class of a function's graph."""
    return private("framework.func_graph", "FuncGraph")


def executing_eagerly() -> bool:
    """Whether ops run at once on this thread; TensorFlow must be loaded."""
    return private("eager.context", "executing_eagerly")()


def current_graph() -> Any | None:
    """The function graph that is being built on this thread now, or None in eager code (and in TF1 graphs)."""
    if not loaded() or executing_eagerly():
        return None
    graph = private("framework.ops", "get_default_graph")()
    return graph if isinstance(graph, func_graph_class()) else None


def is_symbolic(value: object) -> bool:
    """Whether the value is a tensor of a graph, with no value of its own."""
    return type(value).__name__ == "SymbolicTensor" and isinstance(value, private("framework.ops", "SymbolicTensor"))


def is_composite(value: object) -> bool:
    """Whether the value is a RaggedTensor, SparseTensor, IndexedSlices or another tensor made of tensors."""
    return isinstance(value, private("framework.composite_tensor", "CompositeTensor"))


def is_undefined(value: object) -> bool:
    """Whether AutoGraph put this in a name that has no value yet."""
    variables = ("Undefined", "UndefinedReturnValue")
    return type(value).__name__ in variables and isinstance(
        value, tuple(private("autograph.operators.variables", name) for name in variables)
    )


def is_symbolic_array(value: Any) -> bool:
    """Whether the value is a TensorArray of a graph."""
    return type(value).__name__ == "TensorArray" and hasattr(value, "_implementation") and is_symbolic(value.flow)


def with_flow(array: Any, flow: Any) -> Any:
    """The graph's TensorArray again, over an eager `flow` tensor; its methods then compute eagerly."""
    implementation = private("ops.tensor_array_ops", "_GraphTensorArrayV2")
    made = implementation(dtype=array.dtype, flow=flow, infer_shape=False)
    made._element_shape = array._implementation._element_shape  # not taken beside a flow
    return made


def visible(tensor: Any, graph: Any, of_closure: bool = False) -> bool:
    """Whether an op of `graph` may take `tensor`: it belongs to this graph, or to one around its loop or branch body.

    The graph around a function does not count, for a traced function is called from other graphs too; unless the
    tensor is in the function's closure, or tf.data made the function for this one use.
    """
    while graph is not None:
        if tensor.graph is graph:
            return True
        inside = of_closure or is_control_flow_body(graph) or is_of_dataset(graph)
        graph = getattr(graph, "outer_graph", None) if inside else None
    return False


def is_of_dataset(graph: Any) -> bool:
    """Whether tf.data traced the graph: a function of `map`, `reduce`, or the body of a loop over a dataset."""
    return bool(graph.name.startswith("Dataset_"))


def is_scratch(graph: Any) -> bool:
    """Whether Keras builds the graph only to learn shapes; it never runs."""
    while graph is not None:
        if getattr(graph, "name", "").startswith("scratch_graph"):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def is_control_flow_body(graph: Any) -> bool:
    """Whether the graph is the body of a branch or a loop, not of a function."""
    return isinstance(graph, private("ops.control_flow_v2_func_graphs", "ControlFlowFuncGraph"))


def function_graph(graph: Any) -> Any:
    """The graph of the function that `graph` is a branch or loop body in, or `graph` itself."""
    while is_control_flow_body(graph) and graph.outer_graph is not None:
        graph = graph.outer_graph
    return graph


def traces_function(frame: FrameType) -> bool:
    """Whether this frame of `func_graph_from_py_func`, not of a wrapper, traces a function: no branch or loop body."""
    graph = frame.f_locals.get("func_graph")
    return graph is not None and not is_control_flow_body(graph)


def outermost(graph: Any) -> Any:
    """The graph of the function that Python called, of those around `graph`."""
    while isinstance(graph.outer_graph, func_graph_class()):
        graph = graph.outer_graph
    return graph


def is_xla(graph: Any) -> bool:
    """Whether the graph is traced for XLA (`jit_compile=True` on it or around it)."""
    return private("ops.control_flow_util", "GraphOrParentsInXlaContext")(graph)


def as_under_xla(op_type: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments of the op factory for what XLA makes of a check that it drops without a word.

    A function whose hooks keep XLA off must not raise where the user's compiled function goes on.
    """
    inputs = kwargs.get("inputs", args[0] if args else [])
    if op_type == "Assert":
        return "NoOp", [], [], [], kwargs.get("name")
    attrs = kwargs.get("attrs") or {}
    return "Identity", inputs, None, kwargs.get("input_types"), kwargs.get("name"), {"T": attrs["T"]}


def in_vectorisation(frame: FrameType | None) -> bool:
    """Whether the frame runs under `vectorized_map` or `jacobian`, whose ops are rewritten and cannot hold a hook."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_pfor_impl" and code.co_filename.endswith("parallel_for/control_flow_ops.py"):
            return True
        frame = frame.f_back
    return False


def plant(callback: Callable[..., Any], tensors: Sequence[Any], outputs: Sequence[Any] = ()) -> Any:
    """Add an op to the current graph that calls `callback(*values)` eagerly each time it runs; returns the op.

    `outputs` are the dtypes of what the callback returns; nothing of the user's takes them, so gradients and results
    do not change.  Control inputs decide when the op runs.
    """
    ops = private("framework.ops", "get_default_graph")()
    function = private("ops.script_ops", "EagerFunc")(callback, list(outputs), False)
    token = private("ops.script_ops", "_py_funcs").insert(function)
    function.tfdb_hook = True
    planted.append(function)
    with ops.name_scope("tfdb"):
        made = private("ops.gen_script_ops", "eager_py_func")(
            input=list(tensors), token=token, Tout=list(outputs), name="hook"
        )
    op = made[0].op if outputs else made
    op.pfor_converter = left_out
    return op


def call_in_branch(callback: Callable[..., Any], tensors: Sequence[Any]) -> Any:
    """Plant a call in a branch of a `tf.cond`; returns what the branch is to return: true, after the call."""
    import tensorflow as tf

    with tf.control_dependencies([plant(callback, tensors)]):
        return tf.identity(tf.constant(True))


def unless(fine: Any, otherwise: Callable[[], Any]) -> Any:
    """A bool tensor for what has to wait: true at once where `fine` is, else what `otherwise()` makes in its branch.

    What the branch does stays a function: TensorFlow takes branches apart into ops, and each of them costs something
    at every step, if only to be passed over.  The branch itself is taken apart as usual, for TensorFlow's optimizer
    may drop the order of what waits for one that is not (a gradient of a gradient under Adam).
    """
    import tensorflow as tf

    def whole() -> Any:
        passed = tf.cond(fine, lambda: tf.constant(True), otherwise)
        if all(device.device_type == "CPU" for device in tf.config.list_logical_devices()):
            branch = passed.op if passed.op.type in BRANCH_OPS else passed.op.inputs[0].op
            private("ops.control_flow_util_v2", "maybe_set_lowering_attr")(branch, lower_using_switch_merge=False)
        return passed

    return tf.cond(fine, lambda: tf.constant(True), whole)


def left_out(pfor_input: Any) -> Any:
    """What `vectorized_map` and `jacobian` make of a hook in a function they call: nothing, they have no passes."""
    import tensorflow as tf

    wrap = private("ops.parallel_for.pfor", "wrap")
    outputs = [wrap(tf.zeros([], each.dtype), False) for each in pfor_input.outputs]
    return outputs or tf.no_op()


def py_function_registry() -> type:
    """The class whose one instance TensorFlow calls, on a thread of its own, for every py_function that runs."""
    return private("ops.script_ops", "FuncRegistry")


def in_py_function(frame: FrameType | None) -> bool:
    """Whether a running graph or dataset called the Python code of this frame."""
    while frame is not None:
        if frame.f_code.co_filename.endswith("ops/script_ops.py"):
            return True
        frame = frame.f_back
    return False


def is_planted(registry: Any, token: Any) -> bool:
    """Whether the py_function of this token is one of tfdb's hooks."""
    return getattr(registry.get(token, None), "tfdb_hook", False)


planted: list[Any] = []  # the registry of py_functions holds weak references only, and a dataset may outlive its graph


def layer_classes() -> list[type]:
    """The base classes of Keras layers that the program has imported: Keras 3's and tf_keras'."""
    modules = [sys.modules.get(name) for name in ("keras", "tf_keras")]
    return [module.layers.Layer for module in modules if module is not None and hasattr(module, "layers")]


def is_keras_symbolic(value: Any) -> bool:
    """Whether a layer's output has no value because the model is only being built."""
    import tensorflow as tf

    return any(type(leaf).__name__ == "KerasTensor" for leaf in tf.nest.flatten(value))


def attributes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes among the arguments of `_create_op_internal`, those after the op's type."""
    return kwargs.get("attrs") or (args[4] if len(args) > 4 else None) or {}


def called_functions(attributes: Mapping[str, Any]) -> Iterator[str]:
    """The names of the graph functions that an op of these attributes calls (branches, a loop body, a function)."""
    for name in FUNCTION_ATTRIBUTES:
        if name in attributes:
            value = attributes[name]
            yield from [value.func.name] if value.func.name else [f.name for f in value.list.func]


def is_stateful(op: Any) -> bool:
    """Whether running the op has, or sees, an effect beyond its outputs."""
    return op._is_stateful and op.type != "Placeholder"


def save_module() -> Any:
    """The module whose `_fill_meta_graph_def` puts the graphs of a saved model into its file."""
    private("saved_model.save", "_fill_meta_graph_def")
    return sys.modules["tensorflow.python.saved_model.save"]


def status_module() -> Any:
    """The module whose `_status_to_exception` makes the Python exception of every failed graph call or iterator."""
    private("eager.core", "_status_to_exception")
    return sys.modules["tensorflow.python.eager.core"]


def atomic_module() -> Any:
    """The module whose `from_func_graph` turns every finished graph into a callable function."""
    private("eager.polymorphic_function.atomic_function", "from_func_graph")
    return sys.modules["tensorflow.python.eager.polymorphic_function.atomic_function"]


@contextmanager
def eager() -> Iterator[None]:
    """Run the block eagerly, whatever graph this thread is building."""
    with private("eager.context", "eager_mode")():
        yield
