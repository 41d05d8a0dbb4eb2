"""TensorFlow's and Keras' private names for the step gate and the replay; the second half of internals.py.

As there, nothing imports TensorFlow by itself, and a name that a release has moved raises `errors.Incompatible`.
"""

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfdb.errors import Incompatible
from tfdb.internals import Patches, current_graph, private

ASSIGNMENTS = ("assign", "assign_add", "assign_sub")
READS = ("_read_variable_op", "sparse_read", "gather_nd")
SCATTERS = ("scatter_sub", "scatter_add", "scatter_update")


def keras_private(package: str, module: str, name: str) -> Any | None:
    """The object `name` of `<package>.src.<module>`, or None when the program has not imported that package.

    Raises:
        Incompatible: the package is loaded, and its release has no such name.
    """
    if not keras_loaded(package):
        return None
    try:
        return getattr(importlib.import_module(f"{package}.src.{module}"), name)
    except (ImportError, AttributeError) as error:
        raise Incompatible(
            f"{package}.src.{module}.{name}", getattr(sys.modules[package], "__version__", "")
        ) from error


def keras_loaded(package: str) -> bool:
    """Whether the program has imported this Keras package whole (not: is importing it right now)."""
    module = sys.modules.get(package)
    return module is not None and hasattr(module, "optimizers") and hasattr(module, "Model")


def tracing_module() -> Any:
    """The module whose `func_graph_from_py_func` traces every Python function into a graph."""
    private("framework.func_graph", "func_graph_from_py_func")
    return sys.modules["tensorflow.python.framework.func_graph"]


def original_function(python_func: Callable[..., Any]) -> Callable[..., Any]:
    """The user's function under tf.function's decorators, with `self` bound when it is a method."""
    function = private("util.tf_decorator", "unwrap")(python_func)[1]
    target = getattr(function, "__self__", None)
    if isinstance(target, private("eager.polymorphic_function.tf_method_target", "TfMethodTarget")):
        return function.__func__.__get__(target.target)
    return function


def variable_class() -> type:
    """The base class of all resource variables; its `assign*` and `scatter_*` are the doors of hand-written updates."""
    return private("ops.resource_variable_ops", "BaseResourceVariable")


def plain_variable(value: Any, name: str) -> Any:
    """A non-trainable variable made here and now: a function being traced does not see it as one of its own."""
    made = private("ops.resource_variable_ops", "ResourceVariable")(value, trainable=False, name=name)
    made._tfdb_own = True
    return made


def is_own(variable: Any) -> bool:
    """Whether the variable is the debugger's."""
    return getattr(variable, "_tfdb_own", False) is True


def tape_class() -> type:
    """The class of `tf.GradientTape`."""
    return private("eager.backprop", "GradientTape")


def dataset_class() -> type:
    """The base class of all datasets."""
    return private("data.ops.dataset_ops", "DatasetV2")


def iterator_class() -> type:
    """The class of an eager dataset iterator; keeps its dataset in `_dataset`."""
    return private("data.ops.iterator_ops", "OwnedIterator")


def optional_class() -> type:
    """The class of an optional in a graph; a loop over an iterator takes its elements out of them by `get_value`."""
    return private("data.ops.optional_ops", "_OptionalImpl")


def loops_module() -> Any:
    """The module that turns AutoGraph's loops over datasets into scans of them."""
    private("data.ops.dataset_autograph", "_general_purpose_scan")
    return sys.modules["tensorflow.python.data.ops.dataset_autograph"]


def replica_thread_class() -> type:
    """The class of the threads that run the replicas of a mirrored strategy."""
    return private("distribute.mirrored_run", "_MirroredReplicaThread")


def replica_values(value: object) -> tuple[Any, ...] | None:
    """The parts of a value that each replica has its own of, None for every other value."""
    return value.values if isinstance(value, private("distribute.values", "PerReplica")) else None


def is_of_dataset(python_func: Callable[..., Any]) -> bool:
    """Whether this is tf.data's wrapper of a dataset's function (`map`, `filter`, a loop's body)."""
    code = getattr(original_function(python_func), "__code__", None)
    return code is not None and code.co_filename.endswith("data/ops/structured_function.py")


def is_loop_body(name: str, python_func: Callable[..., Any]) -> bool:
    """Whether a graph of this name is (part of) AutoGraph's loop over a dataset."""
    return name.endswith(("scan_scan_body", "reduce_reduce_body", "take_while_predicate")) and is_of_dataset(
        python_func
    )


def converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as AutoGraph would call it from here."""
    status = private("autograph.core.ag_ctx", "control_status_ctx")()
    return private("autograph.impl.api", "tf_convert")(function, status)


def is_iterator(value: object) -> bool:
    """Whether the value is a dataset or an iterator, whose elements a step draws inside its graph."""
    names = (("data.ops.iterator_ops", "OwnedIterator"), ("data.ops.dataset_ops", "DatasetV2"))
    return isinstance(value, tuple(private(*name) for name in names)) or hasattr(value, "get_next")


def in_dataset_function() -> bool:
    """Whether a function of a dataset (`map`, `filter`) is being traced on this thread."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith("data/ops/structured_function.py"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


@contextlib.contextmanager
def gradient_function(around: Callable[[str, Sequence[Any], Sequence[Any], Callable[[], Any]], Any]) -> Iterator[None]:
    """Run every op's gradient through `around(op_type, inputs, outputs, compute)`; process-wide while it lasts."""
    register = private("pywrap_tfe", "TFE_Py_RegisterGradientFunction")
    original = private("eager.backprop", "_gradient_function")

    def gradient(op_name: str, attributes: Any, count: int, inputs: Any, outputs: Any, *rest: Any) -> Any:
        def compute() -> Any:
            return original(op_name, attributes, count, inputs, outputs, *rest)

        return around(op_name, inputs or (), outputs or (), compute)

    register(gradient)
    try:
        yield
    finally:
        register(original)


def optimizer_classes() -> list[tuple[type, str]]:
    """The optimizer classes of the loaded Keras packages, each with the name of the method that updates weights."""
    found = [(keras_private("keras", "optimizers.base_optimizer", "BaseOptimizer"), "apply")]
    if keras_loaded("tf_keras"):
        found.append((keras_private("tf_keras", "optimizers.optimizer", "Optimizer"), "apply_gradients"))
        found.append((keras_private("tf_keras", "optimizers.legacy.optimizer_v2", "OptimizerV2"), "apply_gradients"))
    return [(owner, name) for owner, name in found if owner is not None]


def loss_scaling_classes() -> list[tuple[type, str]]:
    """The loss-scaling optimizers of the loaded Keras packages, as `optimizer_classes`."""
    found = [(keras_private("keras", "optimizers.loss_scale_optimizer", "LossScaleOptimizer"), "apply")]
    for name in ("LossScaleOptimizer", "LossScaleOptimizerV3") if keras_loaded("tf_keras") else ():
        found.append((keras_private("tf_keras", "mixed_precision.loss_scale_optimizer", name), "apply_gradients"))
    return [(owner, name) for owner, name in found if owner is not None]


def loss_containers() -> list[tuple[type, str]]:
    """Where the losses given to `compile` are kept, as `optimizer_classes`: tf_keras builds them without `Loss`."""
    owner = keras_private("tf_keras", "engine.compile_utils", "LossesContainer") if keras_loaded("tf_keras") else None
    return [(owner, "__init__")] if owner is not None else []


def stock_steps() -> list[tuple[type, str]]:
    """Keras' own `train_step`, as `optimizer_classes`."""
    owner = keras_private("keras", "backend.tensorflow.trainer", "TensorFlowTrainer")
    return [(owner, "train_step")] if owner is not None else []


def is_stock(model: Any) -> bool:
    """Whether the model computes its metrics as Keras does, from its outputs alone."""
    trainer: Any = keras_private("keras", "trainers.trainer", "Trainer")
    own = type(model)
    return own.compute_metrics is trainer.compute_metrics and own.get_metrics_result is trainer.get_metrics_result


def model_classes() -> list[type]:
    """The `Model` classes of the loaded Keras packages."""
    found = [keras_private("keras", "models.model", "Model")]
    if keras_loaded("tf_keras"):
        found.append(keras_private("tf_keras", "engine.training", "Model"))
    return [owner for owner in found if owner is not None]


def has_finite_update(optimizer: Any) -> bool:
    """Whether finite gradients and a finite `rate_of` make finite updates only.

    That is so for float32 Adam or SGD with an epsilon, without norm clipping or a schedule.  Adam divides by the root
    of an average of squares plus epsilon, SGD not at all; a norm may overflow.
    """
    if type(optimizer).__name__ not in ("Adam", "AdamW", "SGD") or not type(optimizer).__module__.startswith("keras."):
        return False
    import tensorflow as tf

    rate = rate_of(optimizer)
    if rate is None or (tf.executing_eagerly() and not tf.math.is_finite(rate)):
        return False
    variables = getattr(optimizer, "_trainable_variables", ())
    exact = variables and all(str(variable.dtype) in ("float32", "float64") for variable in variables)
    clipped = getattr(optimizer, "clipnorm", None) or getattr(optimizer, "global_clipnorm", None)
    return bool(exact) and not clipped and float(getattr(optimizer, "epsilon", 1.0)) > 1e-30


def rate_of(optimizer: Any) -> Any | None:
    """The learning rate of a Keras 3 optimizer that keeps it in a variable; None where a schedule computes it."""
    rate = getattr(optimizer, "_learning_rate", None)
    return rate.value if rate is not None and hasattr(rate, "assign") else None


def is_stateless(optimizer: Any) -> bool:
    """Whether the optimizer keeps nothing of a gradient: then its updates can be looked at in the gradients' place.

    That is the neutral place: TensorFlow reorders products up to what is assigned, if nothing in between is read.
    """
    plain = type(optimizer).__name__ == "SGD" and type(optimizer).__module__.startswith("keras.")
    return plain and not getattr(optimizer, "momentum", 1) and not getattr(optimizer, "gradient_accumulation_steps", 0)


def in_metric(frame: Any) -> bool:
    """Whether a frame of the stack is a method of a Keras metric."""
    found = [keras_private("keras", "metrics.metric", "Metric")]
    found.append(keras_private("tf_keras", "metrics.base_metric", "Metric"))
    classes = tuple(owner for owner in found if owner is not None)
    while frame is not None and classes:
        if "self" in frame.f_code.co_varnames[:1] and isinstance(frame.f_locals.get("self"), classes):
            return True
        frame = frame.f_back
    return False


def unwrapped(variable: Any) -> Any:
    """The tf.Variable inside a Keras variable, or the variable itself."""
    return variable if isinstance(variable, variable_class()) else getattr(variable, "value", variable)


def components(variable: Any) -> list[Any]:
    """The tf.Variables that writes to a variable reach: itself, or one on each replica."""
    inner = unwrapped(variable)
    return list(inner.values) if isinstance(inner, private("distribute.values", "DistributedVariable")) else [inner]


def is_symbolic_eagerly(tensor: object) -> bool:
    """Whether a tensor has a value of its own (an eager tensor)."""
    return isinstance(tensor, private("framework.ops", "EagerTensor"))


@contextlib.contextmanager
def random_state() -> Iterator[None]:
    """Put the random state of eager code (TensorFlow's, Python's and numpy's) back after the block."""
    import random

    import numpy as np

    context = private("eager.context", "context")()
    generator = getattr(context, "_rng", None)
    kept = generator.getstate() if generator is not None else None
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if generator is not None:
            generator.setstate(kept)


def replace_variable_method(patches: Patches, name: str, make: Callable[[Any], Any]) -> None:
    """Put `make(original)` in the place of a method of all resource variables.

    ResourceVariable holds wrapped copies of its base's methods; subclasses that override one call the base's.
    """
    base = variable_class()
    original = base.__dict__[name]
    waiting = [base]
    for owner in waiting:
        own = owner.__dict__.get(name)
        if own is not None and inspect.unwrap(own) is inspect.unwrap(original):  # another part's door may be there
            patches.replace(owner, name, make)
        waiting += owner.__subclasses__()


def raw_op(op_type: str) -> Callable[[Sequence[Any], Sequence[Any]], Any] | None:
    """A function (inputs, attributes) that adds one op of this type; None for types that take lists or are stateful.

    `attributes` alternate names and values, as an op callback gets them; those that the inputs imply are left out.
    """
    import tensorflow as tf

    definition = private("framework.op_def_registry", "get")(op_type)
    function = getattr(tf.raw_ops, op_type, None)
    if definition is None or function is None or definition.is_stateful:
        return None
    if any(argument.number_attr or argument.type_list_attr for argument in definition.input_arg):
        return None
    implied = {argument.type_attr for argument in definition.input_arg}
    attributes_of = {attribute.name for attribute in definition.attr} | {"name"}
    names = [name for name in inspect.signature(function).parameters if name not in attributes_of]
    wanted = {attribute.name for attribute in definition.attr} - implied

    def call(inputs: Sequence[Any], attributes: Sequence[Any]) -> Any:
        given = dict(zip(attributes[::2], attributes[1::2], strict=False))
        return function(**dict(zip(names, inputs, strict=True)), **{n: v for n, v in given.items() if n in wanted})

    return call


def iterated(value: Any) -> Any | None:
    """The dataset that an iterator goes through, or the value itself when it is a dataset."""
    if isinstance(value, dataset_class()):
        return value
    return getattr(value, "_dataset", None) if isinstance(value, iterator_class()) else None


def inputs_of(dataset: Any) -> list[Any]:
    """The datasets that a dataset reads from."""
    return list(dataset._inputs())


def map_function(dataset: Any) -> Callable[..., Any] | None:
    """The user's function of a dataset that maps one, else None."""
    wrapper = getattr(dataset, "_map_func", None)
    return getattr(wrapper, "_func", None) if wrapper is not None else None


@contextlib.contextmanager
def results_may_be_unused() -> Iterator[None]:
    """Within the block TensorFlow does not log that a result is never used.

    In a graph, where the code is from, it would not either (`array.write(...)` of a TensorArray that is used on).
    """
    warn = private("util.tf_should_use", "_add_should_use_warning")
    module: Any = sys.modules["tensorflow.python.util.tf_should_use"]
    before = module._add_should_use_warning
    module._add_should_use_warning = lambda value, *args, **kwargs: (
        warn(value, *args, **kwargs) if current_graph() is not None else value
    )
    try:
        yield
    finally:
        module._add_should_use_warning = before


@contextlib.contextmanager
def eager_functions(eagerly: bool = True) -> Iterator[None]:
    """Within the block a `tf.function` that is called runs as Python, line by line, and needs no thread of a graph.

    With `eagerly` False it runs as a graph there.
    """
    import tensorflow as tf

    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(eagerly)
    try:
        with results_may_be_unused() if eagerly else contextlib.nullcontext():
            yield
    finally:
        tf.config.run_functions_eagerly(before)
