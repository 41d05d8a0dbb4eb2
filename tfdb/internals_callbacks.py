"""TensorFlow's private names for op callbacks, each thread's own; a part of internals.py, under its rules."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tfdb.internals import private

OpCallback = Callable[..., Any]
_aside = threading.local()  # `kept`: the op callbacks that `without_op_callbacks` is to give back to this thread


def add_op_callback(callback: OpCallback) -> None:
    """Call `callback(op_type, inputs, attrs, outputs, op_name, graph)` after every op this thread runs or adds.

    Idempotent.  While a graph is traced TensorFlow would tell it of no eager op later, so it is added as in eager code.
    """
    with private("eager.context", "eager_mode")():
        private("framework.op_callbacks", "add_op_callback")(callback)


def remove_op_callback(callback: OpCallback) -> None:
    """Undo `add_op_callback` on this thread; callbacks are each thread's own, and one it has not is no error."""
    for kept in getattr(_aside, "kept", ()):
        kept[:] = [each for each in kept if each != callback]
    with contextlib.suppress(KeyError), private("eager.context", "eager_mode")():
        private("framework.op_callbacks", "remove_op_callback")(callback)


@contextlib.contextmanager
def op_callback(callback: OpCallback) -> Iterator[None]:
    """Have the callback on this thread while the block runs."""
    add_op_callback(callback)
    try:
        yield
    finally:
        remove_op_callback(callback)


@contextlib.contextmanager
def without_op_callbacks() -> Iterator[None]:
    """Run the block with this thread's op callbacks (the program's own `enable_check_numerics` too) set aside."""
    context = private("eager.context", "context")()
    kept = list(context.op_callbacks)
    for callback in kept:
        context.remove_op_callback(callback)
    _aside.kept = [*getattr(_aside, "kept", ()), kept]
    try:
        yield
    finally:
        _aside.kept = _aside.kept[:-1]
        for callback in kept:
            context.add_op_callback(callback)
