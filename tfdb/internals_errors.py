"""TensorFlow's private names that post-mortem needs: what the frames of a failed call hold, and pieces of its graphs.

Kept apart from `internals` by size alone; the same rule holds: a new release is mended in such modules only.
"""

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tfdb import internals
from tfdb.internals import private
from tfdb.sourcemap import GENERATED_FILE, OWN, is_hidden

counter = itertools.count(1)


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and its callers, innermost first; also of frames that an exception left."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def source_map(frame: FrameType | None) -> dict[tuple[str, int], tuple[str, int, str]]:
    """AutoGraph's map for the generated frames of a stack: generated (file, line) -> user's (file, line, function).

    Unlike `internals.generated_lines` it is had from the frames, so it is there when tracing is over.
    """
    found: dict[tuple[str, int], tuple[str, int, str]] = {}
    for each in outward(frame):
        if each.f_code.co_name == "converted_call":
            lines = getattr(each.f_locals.get("converted_f"), "ag_source_map", None) or {}
            for key, origin in lines.items():
                found[key.filename, key.lineno] = (origin.loc.filename, origin.loc.lineno, origin.function_name)
    return found


def is_tracing_boundary(frame: FrameType) -> bool:
    """Whether code called from this frame runs inside a graph that is being built."""
    return frame.f_code.co_name == "func_graph_from_py_func"


def symbolic_arguments(frame: FrameType) -> tuple[Any, Any] | None:
    """Of the frame that traces a function, the structure of its placeholders and that of what was passed for them."""
    if frame.f_code.co_name != "_create_concrete_function":
        return None
    bound = frame.f_locals.get("placeholder_bound_args")
    theirs = (each for each in outward(frame.f_back) if not each.f_code.co_filename.startswith(OWN))
    caller = next(theirs, None)
    if bound is None or caller is None or "args" not in caller.f_locals:
        return None
    return (bound.args, bound.kwargs), (caller.f_locals["args"], caller.f_locals["kwargs"])


def loop_arguments(frame: FrameType) -> tuple[Any, Any] | None:
    """Of the frame that traces a loop's body or condition, the placeholders and the loop variables before the loop."""
    if frame.f_code.co_name not in ("wrapped_body", "wrapped_cond"):
        return None
    for caller in itertools.islice(outward(frame), 8):
        before = caller.f_locals.get("flat_orig_loop_vars") if caller.f_code.co_name == "while_loop" else None
        if before is not None:
            return list(frame.f_locals.get("args", ())), list(before)
    return None


def dataset_function(frame: FrameType) -> tuple[Any, Any, Any] | None:
    """Of the frame that traces a tf.data function: that, its input dataset, and placeholders of one element of it."""
    if frame.f_code.co_name != "wrapper_helper" or "args" not in frame.f_locals:
        return None
    for caller in outward(frame):
        if caller.f_code.co_name == "__init__" and isinstance(
            caller.f_locals.get("self"), internals.structured_function()
        ):
            dataset, function = caller.f_locals.get("dataset"), caller.f_locals.get("func")
            return (function, dataset, list(frame.f_locals["args"])) if dataset is not None else None
    return None


def function_call(frame: FrameType) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """The `tf.function` and the arguments of a frame that is its `__call__`."""
    names = frame.f_locals
    if frame.f_code.co_name == "__call__" and isinstance(names.get("self"), internals.function_class()):
        return names["self"], tuple(names.get("args", ())), dict(names.get("kwds") or {})
    return None


def graph_called(frame: FrameType) -> str:
    """The name of the graph function that a frame of TensorFlow's runs, or ""."""
    names = frame.f_locals
    if frame.f_code.co_name == "call_flat" and isinstance(names.get("self"), internals.atomic_function()):
        return names["self"].name.decode()
    return ""


def graph_run(frame: FrameType) -> tuple[Any, list[Any]] | None:
    """The graph of the function that a frame of TensorFlow's runs, and what it runs on."""
    if not graph_called(frame) or not frame.f_locals.get("args"):
        return None
    graph = getattr(frame.f_locals["self"], "graph", None)
    return (graph, list(frame.f_locals["args"])) if graph is not None else None


def graphs_of_call(frame: FrameType) -> Iterator[Any]:
    """The graphs of what a frame of TensorFlow's calls, or makes a dataset with; those they call first."""
    owner = frame.f_locals.get("self")
    if frame.f_code.co_name == "_call_flat" and hasattr(owner, "captured_inputs"):
        yield from reversed(list(graph_functions(owner)))
    elif frame.f_code.co_name == "__init__" and isinstance(owner, private("data.ops.dataset_ops", "DatasetV2")):
        with contextlib.suppress(AttributeError):  # it is not made yet
            for wrapper in owner._functions():
                yield from reversed(list(graph_functions(wrapper.function)))


def child_graph(graph: Any, name: str) -> Any | None:
    """The graph of a function that ops of this graph call by name."""
    return getattr(graph._functions.get(name), "graph", None)


def failing_op(frame: FrameType | None) -> tuple[str, list[tuple[str, Any]]] | None:
    """The op that could not be added to a graph, and its inputs by name, of the frames that an error left."""
    for each in outward(frame):
        names = each.f_locals
        if "/tensorflow/" not in each.f_code.co_filename.replace("\\", "/"):
            return None
        if each.f_code.co_name in ("_ExtractInputsAndAttrs", "_apply_op_helper") and "op_def" in names:
            inputs = [item for item in names.get("inputs") or () if is_tensor_like(item)]
            if each.f_code.co_name == "_ExtractInputsAndAttrs" and is_tensor_like(names.get("values")):
                inputs.append(names["values"])  # the one that did not fit
            arguments = [argument.name for argument in names["op_def"].input_arg]
            if len(inputs) > len(arguments):
                arguments = [f"{arguments[0]}[{n}]" if arguments else "" for n in range(len(inputs))]
            return names["op_type_name"], list(zip(arguments, inputs, strict=False))
    return None


def in_gradient(frame: FrameType | None) -> bool:
    """Whether these frames compute a gradient, the program's own ones included."""
    return any(each.f_code.co_name in ("_gradient_function", "_GradientsHelper") for each in outward(frame))


def gradient_of(frame: FrameType | None) -> tuple[str, Any] | None:
    """Of frames that add an op: the type of the op whose gradient it is part of, and that op (None: not known).

    None where code of the program's own lies between the two: a gradient that it defines is charged to its own lines.
    """
    for each in outward(frame):
        names, function = each.f_locals, each.f_code.co_name
        if function == "_gradient_function" and "op_name" in names:
            kept = [tensor for tensor in names.get("outputs") or () if internals.is_symbolic(tensor)]
            scope = names.get("forward_pass_name_scope") or ""
            return names["op_name"], kept[0].op if kept else op_in_scope(names["op_name"], scope)
        if function == "_GradientsHelper" and getattr(names.get("op"), "type", None):
            return names["op"].type, names["op"]
        if not is_hidden(each.f_code.co_filename) or GENERATED_FILE in each.f_code.co_filename:
            return None
    return None


def op_in_scope(op_type: str, scope: str) -> Any | None:
    """The op of that type that was made under a name scope, in the graph that is being built or one around it."""
    graph: Any = internals.current_graph()
    kind: Any = internals.func_graph_class()
    scope = scope.rstrip("/")
    while isinstance(graph, kind):
        made = [op for op in graph.get_operations() if op.type == op_type]
        named = [op for op in made if op.name == scope]
        inside = [op for op in made if op.name.rpartition("/")[0] == scope]
        if named or len(inside) == 1:
            return (named or inside)[0]
        graph = graph.outer_graph
    return None


def graph_functions(function: Any) -> Iterator[Any]:
    """A concrete function's graph and the graphs of the functions it calls."""
    graph = getattr(function, "graph", None)
    if graph is not None:
        yield graph
        for child in graph._functions.values():
            yield from graph_functions(child)


def ancestors(tensors: Sequence[Any]) -> list[Any]:
    """The ops of one graph that the tensors need, themselves included."""
    graph, seen, waiting = tensors[0].graph, {}, [tensor.op for tensor in tensors]
    while waiting:
        op = waiting.pop()
        if op.name not in seen and op.graph is graph:
            seen[op.name] = op
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return list(seen.values())


def captured(graph: Any) -> dict[int, Any]:
    """What a graph takes from outside: the id of each placeholder -> the tensor outside."""
    return {id(inner): outer for outer, inner in graph.captures}


def run_part(
    operations: Sequence[Any], feeds: Sequence[Any], values: Sequence[Any], fetches: Sequence[Any]
) -> list[Any]:
    """Run the given ops of a graph, finished or not, with `values` in the place of `feeds`; the values of `fetches`."""
    graph = fetches[0].graph
    fed = {id(tensor.op) for tensor in feeds}
    body = [op._c_op for op in operations if id(op) not in fed]
    name = f"tfdb_part_{next(counter)}"
    session = private("client", "pywrap_tf_session")
    with graph._c_graph.get() as c_graph:
        function = session.TF_GraphToFunction_wrapper(
            c_graph, name, False, body, [t._as_tf_output() for t in feeds], [t._as_tf_output() for t in fetches],
            [], [], [], None, "",
        )  # fmt: skip
    context = private("eager.context", "context")()
    context.add_c_function(function)
    session.TF_DeleteFunction(function)
    try:
        return list(context.call_function(name.encode(), list(values), len(fetches)))
    finally:
        context.remove_function(name.encode())


def op_facts(op: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """An op's attributes as an eager call takes them, flat, and the names of its inputs."""
    attributes: list[Any] = []
    for attribute in op.op_def.attr:
        attributes += [attribute.name, eager_attribute(op.get_attr(attribute.name))]
    names: list[str] = []
    for argument in op.op_def.input_arg:
        count = int(op.get_attr(argument.number_attr)) if argument.number_attr else 1
        if argument.type_list_attr:
            count = len(op.get_attr(argument.type_list_attr))
        names += [argument.name] if count == 1 else [f"{argument.name}[{n}]" for n in range(count)]
    return tuple(attributes), tuple(names)


def eager_attribute(value: Any) -> Any:
    """An attribute of a graph's op as an eager op takes it: types by their numbers, shapes as `TensorShape`s."""
    if isinstance(value, list | tuple):
        return [eager_attribute(each) for each in value]
    if hasattr(value, "unknown_rank"):  # a TensorShapeProto
        return private("framework.tensor_shape", "TensorShape")(value)
    return getattr(value, "as_datatype_enum", value)


def run_op(op_type: str, outputs: int, inputs: Sequence[Any], attributes: tuple[Any, ...]) -> None:
    """Run one op eagerly for the error it may raise."""
    context = private("eager.context", "context")()
    private("eager.execute", "execute")(op_type.encode(), outputs, list(inputs), attributes, context)


def pristine(owner: Any, name: str) -> Callable[..., Any]:
    """A method of TensorFlow's without tfdb's wrappers; TensorFlow's own decorators stay."""
    function = owner.__dict__[name]
    while function.__code__.co_filename.startswith(OWN):
        function = function.__wrapped__
    return function


def clone(function: Any) -> Any:
    """The same Python function as a new `tf.function`, never compiled by XLA."""
    made = function._clone(function._python_function)
    made._jit_compile = None
    return made


def python_error_doors() -> list[tuple[Any, str]]:
    """The two methods through which graphs call Python: of `py_function` and of `numpy_function`."""
    return [
        (private("ops.script_ops", "EagerFunc"), "__call__"),
        (private("ops.script_ops", "FuncRegistry"), "__call__"),
    ]


def iterator_module() -> Any:
    """The module whose `iterator_get_next` adds the op that takes an iterator's next element."""
    private("ops.gen_dataset_ops", "iterator_get_next")
    return sys.modules["tensorflow.python.ops.gen_dataset_ops"]


def future_name(graph: Any, op_type: str, name: str | None) -> str:
    """The name that an op about to be added to the graph will have."""
    if name and name.endswith("/"):
        return name[:-1]
    return graph.unique_name(name or op_type, mark_as_used=False)


def places(op: Any) -> list[tuple[str, int, str]]:
    """The Python stack that made an op, outermost first: file, line, function, generated lines mapped to the user's."""
    try:
        return [(frame.filename, frame.lineno, frame.name) for frame in op.traceback or ()]
    except (AttributeError, ValueError):
        return []


def places_inside(op: Any) -> list[tuple[str, int, str]]:
    """The part of `places` that was traced: the calls inside the outermost function."""
    found = places(op)
    inside = next((n for n, each in enumerate(found) if each[2] == "func_graph_from_py_func"), -1)
    return found[inside + 1 :]


def static_value(tensor: Any) -> Any:
    """The tensor's value as an array where the graph itself tells it, or None."""
    return private("framework.tensor_util", "constant_value")(tensor)


def new_store(value: Any) -> Any:
    """An eager resource that can hold one tensor of the dtype of `value`, of any shape."""
    shape = private("framework.tensor_shape", "unknown_shape")()
    name = private("eager.context", "anonymous_name")()
    with private("framework.ops", "init_scope")(), private("framework.ops", "device")("CPU:0"):
        return private("ops.gen_resource_variable_ops", "var_handle_op")(
            dtype=value.dtype, shape=shape, shared_name=name
        )


def store(handle: Any, value: Any) -> None:
    """Add the op that keeps `value` in the resource."""
    private("ops.gen_resource_variable_ops", "assign_variable_op")(handle, value, name="tfdb_keep")


def stored(handle: Any, dtype: Any) -> Any:
    """What the resource holds."""
    return private("ops.gen_resource_variable_ops", "read_variable_op")(handle, dtype)


def output_shapes(attributes: Any, values: Sequence[Any]) -> list[Any]:
    """The shapes that the attributes of an iterator's op promise for the parts of one element."""
    import tensorflow as tf

    promised = attributes["output_shapes"].list.shape if "output_shapes" in attributes else ()
    if len(promised) != len(values) or any(value.dtype == tf.variant for value in values):
        return [value.shape for value in values]
    return [tf.TensorShape(shape) for shape in promised]


def feed_op(values: Sequence[Any], shapes: Sequence[Any]) -> Any:
    """An op of the current graph with these values as outputs, of which the graph knows no more than `shapes`."""
    import tensorflow as tf

    loose = [tf.raw_ops.PlaceholderWithDefault(input=v, shape=s) for v, s in zip(values, shapes, strict=True)]
    return tf.identity_n(loose)[0].op


@contextmanager
def silent_log() -> Iterator[None]:
    """Keep what TensorFlow's native code writes to stderr off the screen within the block."""
    try:
        sys.stderr.flush()
        kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except (OSError, ValueError, AttributeError):
        yield
        return
    os.dup2(null, 2)
    os.close(null)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def op_error() -> Any:
    """The class of the errors that TensorFlow's runtime reports."""
    return private("framework.errors_impl", "OpError")


def is_op_error(error: BaseException) -> bool:
    """Whether the error is one that TensorFlow's runtime reports."""
    return isinstance(error, op_error())


def is_tensor_like(value: object) -> bool:
    """Whether the value is a tensor, a variable, or a composite of tensors."""
    if internals.is_composite(value) or isinstance(value, private("framework.tensor", "Tensor")):
        return True
    return hasattr(value, "dtype") and hasattr(value, "assign") and hasattr(value, "shape")
