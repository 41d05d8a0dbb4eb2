"""One op with real inputs -> what XLA makes of it, compiled alone: finds NaNs that exist only under compilation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import internals_gate

LIMIT = 30.0  # seconds spent on compiling ops one by one, at most
SKIPPED = ("resource", "variant", "string")


class CompiledOps:
    """Compiles ops on demand, one function per op type, attributes and shapes; gives up when its time is over."""

    def __init__(self) -> None:
        self.functions: dict[Any, Callable[..., Any]] = {}
        self.end = time.monotonic() + LIMIT

    def run(self, op: str, inputs: Sequence[Any], attributes: Sequence[Any]) -> list[np.ndarray] | None:
        """The op's outputs under XLA, or None where it cannot be compiled alone (or the time is over)."""
        import tensorflow as tf

        if any(value.dtype.name in SKIPPED for value in inputs) or not any(v.dtype.is_floating for v in inputs):
            return None
        raw = internals_gate.raw_op(op)
        if raw is None or time.monotonic() > self.end:
            return None
        # Integer inputs (axes, shapes) must be constants when XLA compiles.
        fixed = {i: value.numpy() for i, value in enumerate(inputs) if value.dtype.is_integer and value.shape.rank < 2}
        key = (
            op,
            repr(attributes),
            tuple((v.dtype, tuple(v.shape)) for v in inputs),
            tuple((i, value.tobytes()) for i, value in fixed.items()),
        )
        if key not in self.functions:
            self.functions[key] = tf.function(
                lambda *values: raw(
                    [tf.constant(fixed[i]) if i in fixed else v for i, v in enumerate(values)], attributes
                ),
                jit_compile=True,
                autograph=False,
            )
        try:
            return [np.asarray(value) for value in tf.nest.flatten(self.functions[key](*inputs))]
        except (tf.errors.OpError, ValueError, TypeError, NotImplementedError):
            self.functions[key] = lambda *values: []
            return None
