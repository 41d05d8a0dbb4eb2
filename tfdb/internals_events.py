"""Graphs and tensors -> GraphDefs without tfdb's own nodes, and event files that TensorBoard shows."""

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from tfdb.errors import TfdbError
from tfdb.internals_graphs import unrecorded


def definition(graph: Any, left_out: Callable[[str], bool]) -> Any:
    """The GraphDef without the nodes that are left out and the control edges to them."""
    made = graph.as_graph_def(add_shapes=True)
    for nodes in (made.node, *(function.node_def for function in made.library.function)):
        kept = [node for node in nodes if not left_out(node.name)]
        for node in kept:
            inputs = [each for each in node.input if not (each.startswith("^") and left_out(each[1:]))]
            node.input[:] = inputs
        copies = [type(node).FromString(node.SerializeToString()) for node in kept]
        del nodes[:]
        nodes.extend(copies)
    return made


def event_writer(folder: str) -> Any:
    """A writer of event files in a folder.

    Raises:
        TfdbError: there can be none.
    """
    import tensorflow as tf

    try:
        return tf.summary.create_file_writer(folder)
    except tf.errors.OpError as error:
        raise TfdbError(f"cannot write event files in {folder}") from error


def write_summary(folder: str, graph: Any, left_out: Callable[[str], bool]) -> None:
    """Write a graph to an event file that TensorBoard shows."""
    import tensorflow as tf

    with unrecorded(), event_writer(folder).as_default():
        tf.summary.graph(definition(graph, left_out))


def write_tensor(folder: str, name: str, array: Any, histogram: bool) -> None:
    """Write an array to an event file: a histogram, scalars over steps, or images, by its shape.

    Raises:
        TfdbError: TensorBoard is not installed.
    """
    import tensorflow as tf

    if importlib.util.find_spec("tensorboard") is None:
        raise TfdbError("--tb needs TensorBoard, which is not installed: pip install tensorboard")

    if not histogram and array.ndim != 1:
        array = as_images(array)
    with unrecorded(), event_writer(folder).as_default():
        if histogram:
            tf.summary.histogram(name, array, step=0)
        elif array.ndim == 1:
            for step, value in enumerate(array):
                tf.summary.scalar(name, value, step=step)
        else:
            low, high = float(np.min(array)), float(np.max(array))
            scaled = array if array.dtype == np.uint8 else (array - low) / ((high - low) or 1.0)
            tf.summary.image(name, scaled, step=0)


def as_images(array: Any) -> Any:
    """A batch of images: of a matrix one in grey; NaN and infinities as 0 and the largest numbers.

    Raises:
        TfdbError: the shape is no matrix, image or batch of images.
    """
    images = array[None, ..., None] if array.ndim == 2 else array[None] if array.ndim == 3 else array
    if images.ndim != 4 or images.shape[-1] not in (1, 3, 4) or not images.size:
        raise TfdbError(f"--tb takes matrices and images (1, 3 or 4 channels), not {array.shape}: give a slice")
    return images if images.dtype == np.uint8 else np.nan_to_num(images.astype(np.float32))
