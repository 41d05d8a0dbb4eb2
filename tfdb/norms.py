"""Gradients and weights inside a gate -> columns of numbers per variable (thresholds.py), by fused reductions.

The same functions run in a graph and eagerly.  IndexedSlices stay sparse: rows of the same index are added up first,
for that is the gradient they stand for, and only the rows that are touched are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import internals, internals_norms
from .thresholds import LARGEST, MAGNITUDES, NONZERO, SQUARES, UPDATE, WEIGHT, Arithmetic

HALVED = (SQUARES, UPDATE, WEIGHT)


def arithmetic() -> Arithmetic:
    """TensorFlow's arithmetic, for a graph that decides for itself."""
    import tensorflow as tf

    def take(vector: Any, places: Sequence[int]) -> Any:
        return vector if list(places) == list(range(vector.shape[0])) else tf.gather(vector, places)

    return Arithmetic(take, tf.sqrt, tf.reduce_sum, tf.reduce_max, tf.where, tf.reduce_all, tf.minimum)


def is_sliced(value: Any) -> bool:
    """Whether a gradient is IndexedSlices."""
    return type(value).__name__ == "IndexedSlices"


def is_floating(value: Any) -> bool:
    """Whether a gradient or variable has a norm."""
    dtype = getattr(value, "dtype", None)
    return bool(getattr(dtype, "is_floating", False) or getattr(dtype, "is_complex", False))


def dense(gradient: Any) -> Any:
    """The gradient's elements that may differ from 0, as a float32 (or float64) tensor of magnitudes or values."""
    import tensorflow as tf

    if is_sliced(gradient):
        gradient = summed(gradient)
    gradient = internals_norms.apart(gradient)
    if gradient.dtype.is_complex:
        return tf.abs(gradient)
    return gradient if gradient.dtype in (tf.float32, tf.float64) else tf.cast(gradient, tf.float32)


def summed(slices: Any) -> Any:
    """The rows of IndexedSlices, those of the same index added up; shape (touched rows, ...).

    XLA has no shapes that depend on values: there the rows are added up into the full shape.
    """
    import tensorflow as tf

    graph = internals.current_graph()
    if graph is not None and internals.is_xla(graph):
        return tf.convert_to_tensor(slices)
    indices, places = tf.unique(slices.indices)
    return tf.math.unsorted_segment_sum(slices.values, places, tf.size(indices))


def column(name: str, gradient: Any) -> Any:
    """One number of one gradient, a float32 scalar; of squares half their sum, which is one fused op."""
    import tensorflow as tf

    values = dense(gradient)
    if name in HALVED:
        number = tf.nn.l2_loss(values)
    elif name == MAGNITUDES:
        number = tf.reduce_sum(tf.abs(values))
    elif name == LARGEST:
        # of no elements, -inf
        number = tf.maximum(tf.reduce_max(tf.abs(values)), 0.0) if values.shape.rank != 0 else tf.abs(values)
    else:
        assert name == NONZERO
        number = tf.reduce_sum(tf.cast(tf.not_equal(values, 0), tf.float32))
    return tf.cast(number, tf.float32)


def vector(name: str, values: Sequence[Any]) -> Any:
    """One column as it is measured, which of squares is half of it: a float32 vector, one number per value."""
    import tensorflow as tf

    return tf.stack([column(name, value) for value in values])


def whole(halves: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of what was measured."""
    return {name: 2.0 * vector if name in HALVED else vector for name, vector in halves.items()}


def exactly(names: Sequence[str], arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The same columns of plain arrays, in float64: for a table at a stop."""
    found: dict[str, list[float]] = {name: [] for name in names}
    with np.errstate(all="ignore"):
        for array in arrays:
            magnitudes = np.abs(np.asarray(array).astype(np.complex128 if array.dtype.kind == "c" else np.float64))
            numbers: Mapping[str, float] = {
                SQUARES: float(np.sum(magnitudes**2)),
                MAGNITUDES: float(np.sum(magnitudes)),
                LARGEST: float(np.max(magnitudes, initial=0.0)),
                NONZERO: float(np.count_nonzero(magnitudes)),
            }
            for name in names:
                found[name].append(numbers[SQUARES if name in (UPDATE, WEIGHT) else name])
    return {name: np.asarray(values) for name, values in found.items()}


def size_of(variable: Any) -> int:
    """How many elements a variable has; 0 when that is not known."""
    shape = getattr(variable, "shape", ())
    return int(np.prod([size or 0 for size in shape])) if shape is not None else 0
