"""TensorFlow's private names for gradients: the registry of gradient functions, tapes, and the graphs of calls.

Kept apart from `internals` by size alone; the same rule holds: a new release is mended in such modules only.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from tfdb.internals import Patches, eager, layer_classes, private

STOPPED = "StopGradient"


def registered(op_type: str) -> bool | None:
    """Whether an op type has a gradient function; None when it is registered as one that has no gradient."""
    try:
        found = private("framework.ops", "gradient_registry").lookup(op_type)
    except LookupError:
        return False
    return None if found is None else True


def is_trainable(dtype: Any) -> bool:
    """Whether tensors of this dtype can carry a gradient: floating and complex ones, resources and variants."""
    return bool(private("eager.backprop_util", "IsTrainable")(dtype))


def is_stopped() -> bool:
    """Whether TensorFlow itself has stopped recording on this thread, for the op that runs now."""
    return bool(private("pywrap_tfe", "TFE_Py_TapeSetIsStopped")())


def tape_class() -> type:
    """The class of `tf.GradientTape`; its `_push_tape` and `_pop_tape` begin and end all recording."""
    return private("eager.backprop", "GradientTape")


def handle_of(tape: Any) -> Any:
    """The native tape behind a `GradientTape`; None before it records and when it is used up."""
    return tape._tape


def is_persistent(tape: Any) -> bool:
    """Whether the program asked for a persistent tape."""
    return bool(tape._persistent)


def is_recording(tape: Any) -> bool:
    """Whether the tape records now: between entering and leaving it, unless it was told to stop."""
    return bool(tape._recording)


def watches_variables(tape: Any) -> bool:
    """Whether the tape watches every trainable variable that is read."""
    return bool(tape._watch_accessed_variables)


def tape_module() -> Any:
    """The module of native tapes."""
    return sys.modules[private("eager.tape", "push_new_tape").__module__]


def push_lasting(tape: Any) -> None:
    """Begin recording on a native tape that outlasts a gradient; what the program sees of its tape stays as it is."""
    watched = tape._watch_accessed_variables
    tape._tape = tape_module().push_new_tape(persistent=True, watch_accessed_variables=watched)
    tape._recording = True


def gradient(handle: Any, targets: list[Any], sources: list[Any], upstream: list[Any] | None = None) -> list[Any]:
    """The gradients of a native tape, which must be a lasting one; the tape records on as before.

    `upstream` are gradients for the targets themselves; without, those of their sum are taken.
    """
    compute = private("eager.imperative_grad", "imperative_grad")
    plain = [getattr(s, "handle", s) for s in sources]
    with private("eager.record", "stop_recording")():
        return list(compute(handle, targets, plain, output_gradients=upstream, sources_raw=sources))


@contextmanager
def native_tape() -> Iterator[Any]:
    """A lasting tape that records this thread's eager ops within the block, and that no hook on tapes sees."""
    module = tape_module()
    with eager():
        tape = module.push_new_tape(persistent=True, watch_accessed_variables=False)
        try:
            yield tape
        finally:
            module.pop_tape(tape)


def watch(tape: Any, tensor: Any) -> None:
    """Have a native tape take a tensor for one to differentiate by."""
    tape_module().watch(tape, tensor)


def record_by(op_type: str, outputs: list[Any], inputs: list[Any], backward: Callable[..., Any]) -> None:
    """Put an operation on the open tapes with a gradient function of its own."""
    private("eager.record", "record_operation")
    sys.modules["tensorflow.python.eager.record"].record_operation(op_type, outputs, inputs, backward)


def custom_graph(op: Any, gradients: list[Any]) -> tuple[Any, list[Any], list[Any]]:
    """The gradient function of an op that has one of its own, traced into a graph of its own.

    Returns the graph, the placeholders of the output's gradients, and the gradients for the inputs, None among them.
    """
    import tensorflow as tf

    function = private("framework.ops", "gradient_registry").lookup(op.get_attr("_gradient_op_type"))
    graph = private("framework.func_graph", "FuncGraph")("tfdb_custom_gradient")
    with graph.as_default():
        places = [tf.raw_ops.Placeholder(dtype=each.dtype, shape=each.shape) for each in gradients]
        return graph, places, list(function(op, *places))


def replace_record(patches: Patches, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in the place of the function that puts calls and custom gradients on the tapes."""
    private("eager.record", "record_operation")
    patches.replace(sys.modules["tensorflow.python.eager.record"], "record_operation", make)


def replace_values(patches: Patches, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in the place of the method through which `numpy()`, `float()` and `bool()` read a tensor."""
    owner = next(base for base in private("framework.ops", "EagerTensor").__mro__ if "_numpy" in base.__dict__)
    patches.replace(owner, "_numpy", make)


def calling_function(frame: FrameType | None) -> Any:
    """The graph function that a stack is calling eagerly, or None."""
    for _ in range(12):
        if frame is None:
            return None
        if frame.f_code.co_name == "call_flat":
            return frame.f_locals.get("self")
        frame = frame.f_back
    return None


def function_graph(graph: Any, name: str) -> Any:
    """The graph of the function `name` that an op of `graph` calls; None where it has none in Python."""
    while graph is not None:
        found = graph._get_function(name) if hasattr(graph, "_get_function") else None
        if found is not None:
            return getattr(found, "graph", None)
        graph = getattr(graph, "outer_graph", None)
    return None


def branch_names(op: Any) -> list[str]:
    """The functions that an op runs and whose outputs are its own: branches, a loop's body, a called function."""
    found = []
    for name in ("f", "then_branch", "else_branch", "body", "branches"):
        if name in op.node_def.attr:
            value = op.node_def.attr[name]
            found += [value.func.name] if value.func.name else [each.name for each in value.list.func]
    return found


def loop_names(op: Any) -> tuple[str, str]:
    """The functions of a loop's condition and body."""
    return op.node_def.attr["cond"].func.name, op.node_def.attr["body"].func.name


def custom_gradient(op: Any) -> bool:
    """Whether the op's gradient is one the program defined (`tf.custom_gradient`, an override)."""
    return "_gradient_op_type" in op.node_def.attr


def capture_of(graph: Any, placeholder: Any) -> Any:
    """What a placeholder of a graph stands for outside of it, or None for an argument."""
    for outside, inside in itertools.chain(graph.captures, getattr(graph, "deferred_external_captures", ())):
        if inside is placeholder or inside.name == placeholder.name:
            return outside
    return None


def op_stack(op: Any) -> Iterator[tuple[str, int, str]]:
    """Where an op of a graph was made: (file, line, function), innermost first, AutoGraph's lines as the user's."""
    for frame in reversed(op.traceback):
        yield frame.filename, frame.lineno, frame.name


def replace_creation(patches: Patches, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in the place of what runs when a `tf.Variable` is made."""
    patches.replace(private("ops.resource_variable_ops", "ResourceVariable"), "__init__", make)


def replace_conversion(patches: Patches, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in the place of `keras.ops.convert_to_numpy`, where Keras 3 is loaded."""
    backend = sys.modules.get("keras.src.backend")
    if backend is not None and hasattr(backend, "convert_to_numpy"):
        patches.replace(backend, "convert_to_numpy", make)


def replace_python_calls(patches: Patches, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in the place of what runs `numpy_function` and `py_func`."""
    private("ops.script_ops", "py_func_common")
    patches.replace(sys.modules["tensorflow.python.ops.script_ops"], "py_func_common", make)


def replace_eager_calls(patches: Patches, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in the place of what runs `py_function`; it is given all its arguments by name."""
    private("ops.script_ops", "_internal_py_func")
    patches.replace(sys.modules["tensorflow.python.ops.script_ops"], "_internal_py_func", make)


def replace_freezing(make: Callable[[Any], Any]) -> ExitStack:
    """Put `make(setter)` in the place of the setter of `layer.trainable`, in the Keras packages that are loaded.

    Closing what is returned puts the setters back.
    """
    undo = ExitStack()
    for owner in layer_classes():
        original = owner.__dict__.get("trainable")
        if isinstance(original, property) and original.fset is not None:
            owner.trainable = original.setter(make(original.fset))  # type: ignore[attr-defined]
            undo.callback(setattr, owner, "trainable", original)
    return undo


def python_token(frame: FrameType | None) -> bytes | None:
    """The token of the `py_function` whose own gradient is being computed on this stack, or None."""
    for _ in range(12):
        if frame is None:
            return None
        if frame.f_code.co_name == "eagerly_executed_grad":
            token = frame.f_locals.get("token")
            return token.encode() if isinstance(token, str) else token
        frame = frame.f_back
    return None


def hears(callback: Any) -> bool:
    """Whether a callback is told of this thread's ops."""
    return callback in private("eager.context", "context")().op_callbacks


def token_of(attrs: Any) -> bytes:
    """The token among the attributes of an eager `EagerPyFunc`, as an op callback gets them."""
    found = dict(zip(attrs[::2], attrs[1::2], strict=False)).get("token", b"") if attrs else b""
    return found.encode() if isinstance(found, str) else bytes(found)


def all_generated_lines() -> dict[tuple[str, int], tuple[str, int, str]]:
    """AutoGraph's maps for what any thread is tracing: a replica's thread runs code that the main one converted."""
    found: dict[tuple[str, int], tuple[str, int, str]] = {}
    for stack in list(private("util.tf_stack", "_source_mapper_stacks").values()):
        for mapper in stack:
            found.update(mapper.get_effective_source_map())
    return found


@contextmanager
def aside(tape: Any) -> Iterator[None]:
    """Within the block, a gradient of a lasting tape is not recorded, and leaves the tape as it is."""
    persistent, recording = tape._persistent, tape._recording
    tape._persistent, tape._recording = True, False
    try:
        with private("eager.record", "stop_recording")():
            yield
    finally:
        tape._persistent, tape._recording = persistent, recording


def replace_symbolic(patches: Patches, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in the place of what computes `tf.gradients` (and, inside TensorFlow, much else)."""
    private("ops.gradients_util", "_GradientsHelper")
    patches.replace(sys.modules["tensorflow.python.ops.gradients_util"], "_GradientsHelper", make)


def of_python_op(frame: FrameType | None) -> bool:
    """Whether what calls a tape, from `frame` outward, is the gradient of a `py_function`."""
    here = os.path.dirname(os.path.abspath(__file__)) + os.sep
    while frame is not None and frame.f_code.co_filename.startswith(here):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith("ops/script_ops.py")


def asked_by_program(frame: FrameType | None) -> bool:
    """Whether `tf.gradients` itself is on the stack just outside."""
    for _ in range(3):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith("ops/gradients_impl.py"):
            return True
        frame = frame.f_back
    return False
