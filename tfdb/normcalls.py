"""`tf.function`'s call, while norms are watched: counted, and what compiled code found is read after it.

A function that XLA compiles cannot call Python: its gates leave their verdicts in variables (normlook.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import internals, internals_numerics, normlook, skips


def calling(watch: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """`tf.function`'s call: counts it, reads what compiled code found, and raises what ended it clean."""

    eagerly = internals_numerics.eagerly()  # this is done at every step of the program

    def __call__(function: Any, *args: Any, **kwargs: Any) -> Any:
        if watch.aside:
            return original(function, *args, **kwargs)
        inside = not eagerly() and internals.current_graph() is not None
        call = None if inside else watch.calls.enter(function, args, kwargs)
        try:
            outputs = original(function, *args, **kwargs)
            if getattr(function, "_jit_compile", False):
                after_compiled(watch, function)
            return outputs
        except Exception:
            if watch.meant is not None and not inside:
                raise watch.meant from None
            raise
        finally:
            if call is not None:
                if call.undo is not None:
                    skips.after_call(call)
                watch.calls.leave(call)

    return __call__


def after_compiled(watch: Any, function: Any) -> None:
    """Read the verdicts of a compiled function that was just called, now or in the graph that calls it."""
    known = watch.compiled.setdefault(id(function), [])
    known.extend(watch.fresh)
    watch.fresh.clear()
    graph = internals.current_graph()
    for place, flag in known:
        if graph is None:
            read_verdict(watch, place, flag.numpy())
        elif not internals.is_xla(graph):
            with watch.quiet():
                plant_reading(watch, place, flag)


def plant_reading(watch: Any, place: normlook.Place, flag: Any) -> None:
    """Read a verdict in the graph that has called the compiled function; Python is called where a limit is passed."""
    import tensorflow as tf

    told = tf.raw_ops.ReadVariableOp(resource=flag.handle, dtype=tf.float32)

    def fire(value: Any) -> None:
        read_verdict(watch, place, value.numpy())

    over = tf.reduce_any(told[: len(place.thresholds)] > 0)
    tf.cond(over, lambda: internals.call_in_branch(fire, [told]), lambda: tf.constant(True))


def read_verdict(watch: Any, place: normlook.Place, told: np.ndarray) -> None:
    """What a compiled step found: verdicts, then columns, then losses."""
    count, width = len(place.thresholds), len(place.names)
    over, rest = told[:count] > 0, told[count:]
    if over.any():
        matrix = rest[: len(place.columns) * width].reshape(len(place.columns), width)
        losses = rest[len(place.columns) * width :]
        normlook.tell(watch, place, over, matrix, losses, normlook.step_now(place) or 0, None, (), xla=True)
