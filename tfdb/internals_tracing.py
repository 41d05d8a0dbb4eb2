"""TensorFlow's private names around a function that is being traced; a part of internals.py, under its rules."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tfdb.internals import func_graph_class, is_control_flow_body, layer_classes, private


def op_types() -> list[str]:
    """The types of all ops that TensorFlow has."""
    import tensorflow as tf

    return [name for name in dir(tf.raw_ops) if not name.startswith("_")]


def layer_names() -> list[str]:
    """The names of all Keras layers that are alive, each once, in order."""
    kinds = tuple(layer_classes())
    layers = (each for each in gc.get_objects() if issubclass(type(each), kinds)) if kinds else ()
    return sorted({str(layer.__dict__.get("name") or layer.__dict__.get("_name") or "") for layer in layers} - {""})


@contextmanager
def apart() -> Iterator[None]:
    """Within the block, ops go into a graph of their own: the one being traced keeps its ops, seeds and tapes.

    Tensors of the graph around it can be used.  It counts as one that never runs (`internals.is_scratch`).
    """
    graph = func_graph_class()("scratch_graph_tfdb")
    with private("eager.record", "stop_recording")(), graph.as_default():
        yield


def is_making_error(frame: FrameType | None) -> bool:
    """Whether TensorFlow's native code is turning a failed status into an exception; one raised there would be lost.

    `frame` may be that of a trace function, which Python calls there too.
    """
    while frame is not None:
        if frame.f_code.co_name == "__init__" and frame.f_code.co_filename.endswith("eager/core.py"):
            return True
        frame = frame.f_back
    return False


def in_loop_body(graph: Any) -> bool:
    """Whether the graph is, or is within, the body of a loop in its function."""
    bodies = private("ops.control_flow_v2_func_graphs", "WhileBodyFuncGraph")
    while is_control_flow_body(graph):
        if isinstance(graph, bodies):
            return True
        graph = graph.outer_graph
    return False
