"""TensorFlow's private names around a function that is being traced; a part of internals.py, under its rules."""

from collections.abc import Iterator
from contextlib import contextmanager

from tfdb.internals import func_graph_class, private


@contextmanager
def apart() -> Iterator[None]:
    """Within the block, ops go into a graph of their own: the one being traced keeps its ops, seeds and tapes.

    Tensors of the graph around it can be used.  It counts as one that never runs (`internals.is_scratch`).
    """
    graph = func_graph_class()("scratch_graph_tfdb")
    with private("eager.record", "stop_recording")(), graph.as_default():
        yield
