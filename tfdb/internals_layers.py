"""Keras' private names for layers: what makes them, what they are given; a part of internals.py, under its rules."""

import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tfdb import internals
from tfdb.internals_gate import keras_loaded, keras_private
from tfdb.sourcemap import OWN, is_hidden

SIMPLE = (bool, int, float, str)


class NewPatches:
    """Replaced `__new__` methods, which Python keeps as static methods, put back by `remove`.

    One that leaves from the middle of several makes its own pass everything through.
    """

    def __init__(self) -> None:
        self.saved: list[tuple[Any, Any, dict[str, Any]]] = []

    def replace(self, owner: Any, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put `make(original)` in the place of `owner.__new__`."""
        original = owner.__dict__["__new__"]
        inner: dict[str, Any] = {"now": make(original.__func__)}

        def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
            return inner["now"](cls, *args, **kwargs)

        inner["made"] = staticmethod(__new__)
        self.saved.append((owner, original, inner))
        owner.__new__ = inner["made"]

    def remove(self) -> None:
        """Put every original back.  Idempotent."""
        while self.saved:
            owner, original, inner = self.saved.pop()
            if owner.__dict__.get("__new__") is inner["made"]:
                owner.__new__ = original
            else:
                inner["now"] = original.__func__


def built_classes() -> list[type]:
    """The base classes of layers, losses, metrics and optimizers: objects whose construction line is worth keeping."""
    found = [
        keras_private("keras", "layers.layer", "Layer"),
        keras_private("keras", "losses.loss", "Loss"),
        keras_private("keras", "metrics.metric", "Metric"),
        keras_private("keras", "optimizers.base_optimizer", "BaseOptimizer"),
    ]
    if keras_loaded("tf_keras"):
        found.append(keras_private("tf_keras", "engine.base_layer", "Layer"))
        found.append(keras_private("tf_keras", "losses", "Loss"))
        found.append(keras_private("tf_keras", "optimizers.optimizer", "_BaseOptimizer"))
        found.append(keras_private("tf_keras", "optimizers.legacy.optimizer_v2", "OptimizerV2"))
    return [owner for owner in found if owner is not None]


FILTERS = ("tensorflow.python", "keras.src", "tf_keras.src")


def hide_own_frames(hidden: bool) -> None:
    """Make TensorFlow and Keras leave tfdb's frames out of tracebacks, as their own, or no longer.  Idempotent.

    With them a traceback would be another than without the debugger: Keras drops its innermost frames for them.
    """
    for package in FILTERS:
        module: Any = sys.modules.get(f"{package}.util{'s' if 'keras' in package else ''}.traceback_utils")
        if module is not None:
            others = tuple(path for path in getattr(module, "_EXCLUDED_PATHS", ()) if path != OWN)
            module._EXCLUDED_PATHS = (*others, OWN) if hidden else others


def called_layer(frame: FrameType) -> tuple[Any, Any] | None:
    """The layer, no whole model, whose method a frame is, and what the call around it was given (None: not known)."""
    owner = frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
    if not isinstance(owner, tuple(internals.layer_classes())) or hasattr(type(owner), "fit"):
        return None
    caller: FrameType | None = frame
    while caller is not None:
        names = caller.f_locals
        if names.get("self") is owner and caller.f_code.co_name == "__call__" and "args" in names:
            return owner, (names["args"], names.get("kwargs") or {})
        caller = caller.f_back
    return owner, None


def layer_around(frame: FrameType | None) -> Any | None:
    """The innermost layer, no whole model, whose method is on the stack."""
    while frame is not None:
        found = called_layer(frame)
        if found is not None:
            return found[0]
        frame = frame.f_back
    return None


def made_by(tensor: Any) -> Any | None:
    """The layer or op that a Keras model's symbolic tensor is the output of."""
    history = getattr(tensor, "_keras_history", None)
    return getattr(history, "operation", None)


def settings(layer: Any) -> dict[str, Any]:
    """What a layer of Keras' own was made with, where it is simple and not the default."""
    method = type(layer).get_config
    if not is_hidden(getattr(method, "__code__", (lambda: 0).__code__).co_filename):
        return {}  # the program's own code must not be run for this
    parameters = inspect.signature(type(layer).__init__).parameters
    known = {name: value for name, value in layer.get_config().items() if name in parameters and name != "name"}
    return {name: value for name, value in known.items() if is_simple(value) and value != parameters[name].default}


def is_simple(value: Any) -> bool:
    """Whether a value is a number, a text, or a short row of them."""
    if isinstance(value, list | tuple):
        return len(value) <= 4 and all(isinstance(item, SIMPLE) for item in value)
    return isinstance(value, SIMPLE)


def leaves(value: Any) -> Iterator[Any]:
    """The tensors, symbolic ones of Keras included, in a structure."""
    import tensorflow as tf

    for leaf in tf.nest.flatten(value):
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            yield leaf
