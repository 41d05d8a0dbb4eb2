"""A Python stack, eager or tracing -> user lines and sites of ops; a value -> the number that names it.

What `blame` keeps of objects is filled in here for variables (where made) and layers (where frozen).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from . import blame, internals, internals_autograph, internals_gate, internals_gradients
from .report import UserLine
from .sourcemap import Activation, activations

frozen = blame.Lines()  # layers and variables: where the program set `trainable` to False


def key_of(value: Any) -> int:
    """A number for an eager tensor or a variable that no other one ever has."""
    if type(value).__name__ == "EagerTensor":  # asking one for an attribute that it lacks is slow
        return value._id
    value = getattr(value, "handle", value)
    number = None if internals.is_symbolic(value) else getattr(value, "_id", None)
    return -id(value) if number is None else number


def flat(value: Any) -> Iterator[Any]:
    """The tensors and variables in what a program gives to `watch` or `gradient`."""
    import tensorflow as tf

    for leaf in tf.nest.flatten(value):
        yield leaf if isinstance(leaf, tf.Tensor | tf.Variable) else internals_gate.unwrapped(leaf)


def user_line(frame: FrameType | None) -> UserLine | None:
    """The innermost user line of a stack; in code that AutoGraph made, the line it was made from."""
    if not internals.loaded() or internals.current_graph() is None:
        return blame.user_line(frame)
    for activation in traced(frame):
        if blame.is_user_file(activation.filename):
            return UserLine(activation.filename, activation.lineno, activation.function)
    return None


def traced(frame: FrameType | None) -> Iterator[Activation]:
    """The activations of a stack that traces; a replica's thread has no map of AutoGraph's own."""
    return activations(frame, internals_autograph.generated_lines() or internals_gradients.all_generated_lines())


def lines_of_op(op: Any) -> Iterator[UserLine]:
    """The user's lines on the stack that an op of a graph was made on, innermost first."""
    return (UserLine(*each) for each in internals_gradients.op_stack(op) if blame.is_user_file(each[0]))


def site_in_graph(frame: FrameType | None) -> blame.Site:
    """As `blame.site_of`, for an op that is being added to a graph."""
    owners: list[tuple[str, UserLine]] = []
    user: list[UserLine] = []
    seen: set[int] = set()
    called = None
    for activation in traced(frame):
        if blame.is_user_file(activation.filename):
            user.append(UserLine(activation.filename, activation.lineno, activation.function))
        elif not user:
            owner = activation.base.f_locals.get("self") if "self" in activation.base.f_code.co_varnames[:1] else None
            if owner is not None and id(owner) not in seen:
                seen.add(id(owner))
                called = owner
                if (line := blame.built.get(owner)) and not hasattr(type(owner), "assign_add"):
                    owners.append((type(owner).__name__, line))
    return blame.Site(user[0] if user else None, tuple(user[::-1]), None, tuple(owners), called)


def creating(original: Callable[..., None]) -> Callable[..., None]:
    """A variable's `__init__`, keeping the user line that made it."""

    def __init__(variable: Any, *args: Any, **kwargs: Any) -> None:
        line = user_line(sys._getframe(1))
        original(variable, *args, **kwargs)
        blame.built.put(variable, line)

    return __init__


def freezing(original: Callable[..., None]) -> Callable[..., None]:
    """The setter of `layer.trainable`, keeping the user line that froze a layer and its variables."""

    def trainable(layer: Any, value: bool) -> None:
        original(layer, value)
        line = user_line(sys._getframe(1))
        for each in (layer, *flat(list(getattr(layer, "weights", ())))):
            frozen.drop(each) if value else frozen.put(each, line)

    return trainable
