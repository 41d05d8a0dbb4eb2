"""Keras' private names for its settings of each thread and for its callbacks; see internals.py."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from tfdb.internals_gate import keras_loaded, keras_private

RNN_FILES = ("keras/src/backend/tensorflow/rnn.py", "tf_keras/src/backend.py")
SETTINGS = "keras.src.backend.common.global_state"


def thread_settings() -> dict[str, Any]:
    """What Keras 3 keeps for this thread (its generator of seeds, its dtype policy): the live mapping, not a copy."""
    tracker = getattr(sys.modules.get(SETTINGS), "GLOBAL_STATE_TRACKER", None)
    return tracker.__dict__ if tracker is not None else {}


@contextlib.contextmanager
def settings_of(other: Mapping[str, Any]) -> Iterator[None]:
    """Within the block this thread has another one's settings, as they are now, where it has none of its own."""
    own = thread_settings()
    lent = [] if own is other else [name for name in other if name not in own]
    own.update({name: other[name] for name in lent})
    try:
        yield
    finally:
        for name in lent:
            own.pop(name, None)


def nan_callbacks() -> list[tuple[type, str]]:
    """The `TerminateOnNaN` callbacks of the loaded Keras packages, each with the method that ends `fit`."""
    found = [keras_private("keras", "callbacks.terminate_on_nan", "TerminateOnNaN")]
    found.append(keras_private("tf_keras", "callbacks", "TerminateOnNaN") if keras_loaded("tf_keras") else None)
    return [(owner, "on_batch_end") for owner in found if owner is not None]


def learns_shapes(frame: FrameType | None) -> bool:
    """Whether a recurrent layer calls its cell only to learn the shapes of its outputs; nothing reads what comes out.

    `rnn` does so once in the graph, on the first time step, before its loop.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == "rnn" and code.co_filename.replace("\\", "/").endswith(RNN_FILES):
            names = frame.f_locals
            return "input_time_zero" in names and "output_time_zero" not in names
        frame = frame.f_back
    return False
