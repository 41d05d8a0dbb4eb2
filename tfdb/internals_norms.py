"""Keras' private names for the norms of what is applied; a part of internals.py."""

from collections.abc import Sequence
from typing import Any

from tfdb.cuts import SHAPE_ONLY
from tfdb.internals import CALLING_OPS, current_graph, is_stateful, is_symbolic, private
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


HEADS = frozenset(
    ("MatMul", "BatchMatMul", "BatchMatMulV2", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "BiasAdd", "Einsum")
)  # ops that TensorFlow computes together with a bias and an activation, of several ops at times
WHOLE = frozenset("Placeholder PlaceholderWithDefault Const Switch Merge Enter Exit NextIteration".split())
MOST_COPIES = 500  # of one gate
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


class Copies:
    """Tensors of a graph to be read by the debugger, those computed once more that TensorFlow may fuse away.

    It computes a product, its bias and its activation in one kernel, with other last bits than each by itself, but only
    where nothing else reads what is between. So whatever has no two readers, and what starts such a kernel, is done a
    second time, with an attribute that keeps it from being merged with the first. Most are read in a branch that is
    hardly ever taken: there a copy costs nothing.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.made: dict[int, tuple[Any, list[Any]]] = {}  # with the op, so that its id stays its own

    def of(self, tensor: Any) -> Any:
        """The tensor, or a copy of it in the graph."""
        if not is_symbolic(tensor) or not is_fused(tensor):
            return tensor
        waiting = [tensor.op]
        while waiting and len(self.made) < MOST_COPIES:
            op = waiting[-1]
            before = [each.op for each in op.inputs if is_fused(each) and id(each.op) not in self.made]
            if not before or id(op) in self.made:
                waiting.pop()
                if id(op) not in self.made:
                    inputs = [self.known(each) for each in op.inputs]
                    dtypes = [each.dtype for each in op.outputs]
                    self.made[id(op)] = (op, again(op, self.graph, inputs, dtypes))
            waiting += before
        return self.known(tensor)

    def known(self, tensor: Any) -> Any:
        """The copy of a tensor, if its op was copied."""
        _, outputs = self.made.get(id(tensor.op), (None, None))
        return tensor if outputs is None else outputs[tensor.value_index]


def is_fused(tensor: Any) -> bool:
    """Whether TensorFlow may compute an op together with what reads it, if nobody else does."""
    op = tensor.op
    if op.type in WHOLE or op.type in CALLING_OPS or is_stateful(op) or not op.inputs:
        return False
    if any(each.dtype.name in ("variant", "resource") for each in (*op.inputs, *op.outputs)):
        return False
    return op.type in HEADS or op.type in REGROUPED or len(readers(tensor)) < 2


def readers(tensor: Any) -> set[tuple[Any, ...]]:
    """What reads a tensor's values; ops that are the same count once, and those that nobody reads do not."""
    found = [op for op in tensor.consumers() if op.type not in SHAPE_ONLY]
    live = [op for op in found if is_stateful(op) or any(each.consumers() for each in op.outputs)]
    return {(op.type, *(each.name for each in op.inputs), str(op.node_def.attr)) for op in live}


def again(op: Any, graph: Any, inputs: Sequence[Any], dtypes: Sequence[Any]) -> list[Any]:
    """The outputs of the same op on other inputs in a graph."""
    from tensorflow.core.framework import attr_value_pb2

    attributes = {name: value for name, value in op.node_def.attr.items() if not name.startswith("_")}
    attributes["_tfdb_copy"] = attr_value_pb2.AttrValue(b=True)
    return list(graph.create_op(op.type, list(inputs), list(dtypes), attrs=attributes, name="copy").outputs)


def source(tensor: Any) -> Any:
    """The tensor that Identity ops pass on."""
    while tensor.op.type in ("Identity", "IdentityN"):
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor


def copied(tensor: Any, kind: str, graph: Any, done: dict[int, Any]) -> Any:
    """The chain of ops of one kind that ends in a tensor, once more in `graph`; its inputs are shared."""
    tensor = source(tensor)
    if tensor.op.type != kind:
        return tensor
    if id(tensor) not in done:
        inputs = [copied(each, kind, graph, done) for each in tensor.op.inputs]
        done[id(tensor)] = again(tensor.op, graph, inputs, [tensor.dtype])[0]
    return done[id(tensor)]
