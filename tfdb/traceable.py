"""A value that is no tf.function -> one to trace for its graph, or what to say when it has none."""

from __future__ import annotations

from typing import Any

from . import internals, internals_graphs

SPEC = "tf.TensorSpec([None, 3])"  # an example of what to type
MOST_NAMES = 4


def is_model(value: Any) -> bool:
    """Whether the value is a Keras model or layer."""
    return isinstance(value, tuple(internals.layer_classes()))


def tf_function(function: Any) -> Any:
    """Plain Python, or a Keras model or layer, as a `tf.function`."""
    import tensorflow as tf

    if not is_model(function):
        return tf.function(function)
    return tf.function(lambda *args, **kwargs: function(*args, **kwargs), autograph=False)


def named(value: Any) -> str:
    """The name of a function or method, the class of another object."""
    return str(getattr(value, "__name__", type(value).__name__))


def without_graph(value: Any) -> str:
    """What to say of a value that has no graph."""
    if callable(value) and hasattr(value, "__name__") and not isinstance(value, type):
        return f"{named(value)} is plain Python: give arguments to trace it, as in `graph {named(value)}({SPEC})`"
    own = [name for name in dir(type(value)) if internals_graphs.is_function(getattr(type(value), name, None))]
    if own:
        return f"{named(value)} has no graph of its own; its tf.functions are {', '.join(own[:MOST_NAMES])}"
    return f"{named(value)} has no graph: give a tf.function, a trace, a Keras model or a SavedModel"
