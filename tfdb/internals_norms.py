"""Keras' private names for the norms of what is applied; a part of internals.py."""

from typing import Any

from tfdb.internals import current_graph, is_symbolic, private
from tfdb.internals_gate import keras_loaded, keras_private


def applied_doors() -> list[tuple[str, Any, str]]:
    """(what, class, method) of the loaded Keras packages: where gradients are applied, last of all.

    "clip" gives the gradients as they are applied, "batch" names their variables, "write" does the update; "apply" is
    around all three.  tf_keras has one method, "pairs", which clips inside: there the gradients are those before.
    """
    found: list[tuple[str, Any, str]] = []
    if base := keras_private("keras", "optimizers.base_optimizer", "BaseOptimizer"):
        found += [
            ("apply", base, "apply"),
            ("batch", base, "_backend_apply_gradients"),
            ("clip", base, "_clip_gradients"),
        ]
        found.append(
            ("write", keras_private("keras", "backend.tensorflow.optimizer", "TFOptimizer"), "_backend_update_step")
        )
        scaling = keras_private("keras", "optimizers.loss_scale_optimizer", "LossScaleOptimizer")
        found += [("scaled", scaling, "apply"), ("skipped", scaling, "_stateful_handle_non_finite_grads")]
    if keras_loaded("tf_keras"):
        found.append(("pairs", keras_private("tf_keras", "optimizers.optimizer", "Optimizer"), "apply_gradients"))
        legacy = keras_private("tf_keras", "optimizers.legacy.optimizer_v2", "OptimizerV2")
        found.append(("pairs", legacy, "apply_gradients"))
    return [(what, owner, name) for what, owner, name in found if owner is not None]


def clips(optimizer: Any) -> str:
    """How a Keras optimizer clips ("clipnorm=1.0"), or ''."""
    for name in ("clipnorm", "global_clipnorm", "clipvalue"):
        if (limit := getattr(optimizer, name, None)) is not None:
            return f"{name}={limit:g}"
    return ""


def built_for(optimizer: Any) -> list[Any]:
    """The variables that a Keras optimizer was built for."""
    return list(getattr(optimizer, "_trainable_variables", ()))


def iterations(optimizer: Any) -> Any:
    """The variable that counts an optimizer's steps, those that only accumulate among them; None without one."""
    return getattr(optimizer, "_iterations", getattr(optimizer, "iterations", None))


def is_variable(value: Any) -> bool:
    """Whether a value is a variable of TensorFlow's, or one for each replica."""
    return isinstance(value, private("ops.variables", "Variable"))


REGROUPED = ("Mul", "Add", "AddV2", "AddN")  # chains of one of these TensorFlow computes in an order of its choice


def apart(tensor: Any) -> Any:
    """The same value to be read by the debugger, while TensorFlow rewrites what the program makes of the tensor.

    It regroups products and sums, which changes last bits, but only those that nothing else reads: so the ops of the
    chain are done a second time, with an attribute that keeps them from being merged with the first.
    """
    graph = current_graph()
    if graph is None or not is_regrouped(tensor):
        return tensor
    return copied(tensor, source(tensor).op.type, graph, {})


def is_regrouped(tensor: Any) -> bool:
    """Whether what is computed of a graph's tensor may be computed in another order, if nothing comes between."""
    return is_symbolic(tensor) and source(tensor).op.type in REGROUPED


def source(tensor: Any) -> Any:
    """The tensor that Identity ops pass on."""
    while tensor.op.type in ("Identity", "IdentityN"):
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor


def copied(tensor: Any, kind: str, graph: Any, done: dict[int, Any]) -> Any:
    """The chain of ops of one kind that ends in a tensor, once more in `graph`; its inputs are shared."""
    from tensorflow.core.framework import attr_value_pb2

    tensor = source(tensor)
    if tensor.op.type != kind:
        return tensor
    if id(tensor) not in done:
        inputs = [copied(each, kind, graph, done) for each in tensor.op.inputs]
        attributes = {name: value for name, value in tensor.op.node_def.attr.items() if not name.startswith("_")}
        attributes["_tfdb_copy"] = attr_value_pb2.AttrValue(b=True)
        done[id(tensor)] = graph.create_op(kind, inputs, [tensor.dtype], attrs=attributes, name="copy").outputs[0]
    return done[id(tensor)]
