"""The facts of an error -> one sentence, for what users ask of TensorFlow and Keras that they do not do.

As explanations.py: pure, and of TensorFlow 2.16 to 2.21's and Keras 3's own wording.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tfdb.explain import Facts, Operand

NUMPY_NAMES = {"double": "float64", "float": "float32", "half": "float16"}


@dataclass(frozen=True, slots=True)
class Misuse:
    """A pattern of the message, and the sentence; `{who}` is a tensor that takes part, `{1}` a group of the pattern."""

    pattern: str
    sentence: str
    who: Callable[[Operand], bool] = bool
    elements: bool = False  # only while a function of a dataset is traced

    def explain(self, facts: Facts) -> str | None:
        """The sentence, if the message fits."""
        found = re.search(self.pattern, facts.message, re.S)
        if found is None or (self.elements and not facts.elements):
            return None
        who = next((operand.text for operand in facts.operands if self.who(operand)), "the tensor")
        function = facts.place.function if facts.place else "the function"
        groups = [NUMPY_NAMES.get(group, group) or "" for group in found.groups()]
        return self.sentence.format("", *groups, who=who, function=function)


def has_unknown_rank(operand: Operand) -> bool:
    """Whether a tensor's static shape is unknown altogether."""
    return operand.shape is None


def has_unknown_extent(operand: Operand) -> bool:
    """Whether a tensor's static shape has an unknown extent."""
    return operand.shape is not None and None in operand.shape


MISUSES = (
    Misuse(
        r"Recorded operation '([^']+)' returned too (few|many) gradients",
        "The gradient function that {1}() defines returns too {2} gradients: one for each argument of {1}() is "
        "wanted, in their order, and None for those that have none.",
    ),
    Misuse(
        r"KerasTensor cannot be used as input to a TensorFlow function|cannot convert it to a NumPy array"
        r"|symbolic KerasTensor cannot",
        "A KerasTensor stands for a layer's output and holds no numbers; only layers and keras.ops take it: use the "
        "function of keras.ops, or put this code into the call() of a Layer.",
    ),
    Misuse(
        r"of layer '([^']+)' is incompatible with the layer: expected axis (-?\d+) of input shape to have value (\d+), "
        r"but received input with shape (\([^)]*\))",
        "Layer '{1}' was built for {3} values in axis {2} and gets the shape {4}: give it such data, or make the model "
        "for this shape.",
    ),
    Misuse(
        r"of layer '([^']+)' is incompatible with the layer: expected (min_|max_)?ndim=(\d+), found ndim=(\d+)"
        r"\. Full shape received: (\([^)]*\))",
        "Layer '{1}' takes {3} dimensions, the batch included, and gets {4}, the shape {5}: reshape the data, or add "
        "the missing axis (x[..., None]).",
    ),
    Misuse(
        r"Expected shape (\([^)]*\)), but input has incompatible shape (\([^)]*\))",
        "The model takes {1}, the batch first, and is given {2}: give it a batch of such rows (x[None] makes a batch "
        "of one).",
    ),
    Misuse(
        r"Arguments `target` and `output` must have the same shape\. Received: target\.shape=(\([^)]*\)), "
        r"output\.shape=(\([^)]*\))",
        "The labels have shape {1}, the model gives {2}: for class numbers use the sparse loss "
        "(sparse_categorical_crossentropy), for one-hot labels as many columns as outputs.",
    ),
    Misuse(
        r"non-persistent GradientTape can only be used to compute one set of gradients",
        "This tape has been asked before, and its first gradient() used it up: ask for all sources in one call, or "
        "make it with tf.GradientTape(persistent=True).",
    ),
    Misuse(
        r"(?:Shape|shape).* unknown (?:TensorShape|rank)|unknown TensorShape|with unknown rank",
        "{who} has no static shape (numpy_function, py_function and image decoders lose it): say it with set_shape(), "
        "or read it at run time with tf.shape().",
        has_unknown_rank,
    ),
    Misuse(
        r"'NoneType' object cannot be interpreted as an integer|but got None of type 'NoneType'",
        "A size is None: {who} has an extent that is known only when the graph runs; use tf.shape(x)[i] and tf ops "
        "for it, not x.shape[i].",
        has_unknown_extent,
    ),
    Misuse(
        r"'(?:Symbolic|Eager)?Tensor' object does not support item assignment",
        "A tensor cannot be written into: make a new one with tf.tensor_scatter_nd_update, tf.where or tf.concat, "
        "collect in a tf.TensorArray, or use a tf.Variable.",
    ),
    Misuse(
        r"Tensor is unhashable",
        "A tensor cannot be a key or a member of a set: use tensor.ref(), or its value in eager code "
        "(int(t), t.numpy()).",
    ),
    Misuse(
        r"optimizer can only be called for the variables it was originally built with|optimizer cannot recognize",
        "The optimizer keeps slots for the variables it saw first, and this one is new: make one optimizer for each "
        "set of variables, or call optimizer.build(all_variables) first.",
    ),
    Misuse(
        r"Unsupported object type (\w+)|Invalid dtype: object",
        "An array of dtype object holds Python objects, as a rule rows of unequal length: pad them, use "
        "tf.ragged.constant, or give the array a dtype.",
    ),
    Misuse(
        r"Unrecognized data type: x=.*of type <class '(\w+)'>",
        "fit, evaluate and predict take arrays, tensors and datasets: make an array of the {1} with np.array(x).",
    ),
    Misuse(
        r"Value for attr '\w+' of (\w+) is not in the list of allowed values: ([\w, ]+)",
        "This op does not take {1}: tf.cast the tensor to one of {2}.",
    ),
    Misuse(
        r"Cannot (?:add tensor to the|batch tensors).*?"
        r"(?:\[tensor\]: (\[[^\]]*\]), \[batch\]: (\[[^\]]*\])|had shape (\[[^\]]*\]).*?had shape (\[[^\]]*\]))",
        "The elements of one batch must have one shape, and here {2}{3} and {1}{4} meet: use padded_batch or "
        "ragged_batch, or make them alike in a map.",
    ),
    Misuse(
        r"pyfunc_\w+ is (\w+), but expects (\w+)",
        "The Python function gives {1} and its Tout says {2}: cast what it returns, or change Tout.",
    ),
    Misuse(
        r"pyfunc_\w+ returns (\d+) values, but expects to see (\d+)",
        "The Python function gives {1} and its Tout lists {2}: one dtype for each value it returns.",
    ),
    Misuse(
        r"(\w+|<lambda>)\(\) missing (\d+) required positional arguments?",
        "{1}() takes more arguments than an element of the dataset has components; a tuple inside another counts as "
        "one, and a dict too.",
        elements=True,
    ),
    Misuse(
        r"Detected unsupported operations when trying to compile .*?: (Debug\w+|CheckNumerics\w*) \(",
        "{1} is what tf.debugging.enable_check_numerics or enable_dump_debug_info adds to each op, and XLA cannot "
        "compile it: leave that or jit_compile=True out. Breakpoints and `-w nan` of tfdb work without either.",
    ),
    Misuse(
        r"Detected unsupported operations when trying to compile .*?: (\w+) \(",
        "XLA cannot compile {1}: leave jit_compile=True off here (for fit: compile(jit_compile=False)), or take "
        "this op out of what is compiled.",
    ),
    Misuse(
        r"must be a compile-time constant",
        "Under XLA shapes must be known when {function}() is compiled, and this one depends on a tensor's value: take "
        "it from a static shape, or leave jit_compile=True off.",
    ),
    Misuse(
        r"cannot compute __inference_.+? as input #(\d+).*? was expected to be a (\w+) tensor but is a (\w+) tensor",
        "The function takes a {2} tensor as its input {1} (0 is the first) and is given {3}: tf.cast it.",
    ),
    Misuse(
        r"must return zero or more Tensors or ExtensionTypes or None values; in compilation of .*?found return value "
        r"of type (\w+)",
        "A tf.function can return tensors, None and structures of them, and this one returns a {1}.",
    ),
)


def misuse(facts: Facts) -> str | None:
    """One sentence on something asked for that is not done, or None."""
    return next((sentence for rule in MISUSES if (sentence := rule.explain(facts))), None)
