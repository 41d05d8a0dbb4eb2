"""What is on its way into weights: the gradients a tape gave, and one `apply` of an optimizer with its writes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .norms import is_sliced


@dataclass(eq=False)
class Group:
    """The gradients that one call of a tape gave for variables, until they are applied."""

    graph: Any
    variables: list[Any]
    gradients: list[Any]
    losses: list[Any]
    passed: Any = None
    looked: bool = False


@dataclass(eq=False)
class Scope:
    """One `apply` of an optimizer: what it applies, and, where the update is watched, its writes that wait."""

    optimizer: Any
    frame: Any
    variables: list[Any] = field(default_factory=list)
    graph: Any = None
    ids: set[int] = field(default_factory=set)
    waiting: list[tuple[Callable[..., Any], str, Any, Any, tuple[Any, ...], dict[str, Any]]] = field(
        default_factory=list
    )
    good: Any = None
    counts_first: bool = False  # the optimizer counts the step before its update is seen whole
    passed: Any = None  # what writes must wait for, where the gradients themselves do not

    def gated(self) -> contextlib.AbstractContextManager[Any]:
        """Writes of the optimizer wait, inside the block, for the gate of what it applies."""
        import tensorflow as tf

        return contextlib.nullcontext() if self.passed is None else tf.control_dependencies([self.passed])


class Local(threading.local):
    """What is so on one thread; names missing there would be looked up at every step, slowly."""

    quiet = False
    scope: Scope | None = None
    scaling: Any = None


def both(first: Any, second: Any) -> Any:
    """The conjunction of two verdicts that may be None."""
    import tensorflow as tf

    return second if first is None else first if second is None else tf.logical_and(first, second)


def kept(variable: Any, value: Any, method: str, good: Any) -> Any:
    """The value to write, or under XLA one that leaves the variable as it is where the verdict `good` is false."""
    import tensorflow as tf

    if good is None or method.startswith("scatter"):
        return value
    value = tf.convert_to_tensor(value, variable.dtype)
    if method == "assign":
        return tf.where(good, value, variable.read_value())
    return tf.where(good, value, tf.zeros_like(value))


def changes(waiting: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Writes that wait -> their variables, each once, and what is added to each of them in all, or minus that.

    Only norms are taken of it, so a sign costs no pass over the weights.
    """
    import tensorflow as tf

    several = len({id(variable) for _, _, variable, *_ in waiting}) < len(waiting)
    found: dict[int, tuple[Any, Any]] = {}
    for _, method, variable, value, _, _ in waiting:
        if method in ("assign", "scatter_update"):
            before = variable.read_value() if method == "assign" else tf.gather(variable, value.indices)
            change = value - before if method == "assign" else tf.IndexedSlices(value.values - before, value.indices)
        else:
            change = negative(value) if several and method.endswith("sub") else value
        if id(variable) in found:
            change = tf.convert_to_tensor(found[id(variable)][1]) + tf.convert_to_tensor(change)
        found[id(variable)] = (variable, change)
    return [variable for variable, _ in found.values()], [change for _, change in found.values()]


def negative(value: Any) -> Any:
    """Minus the value, sparse if it is."""
    import tensorflow as tf

    return tf.IndexedSlices(-value.values, value.indices, value.dense_shape) if is_sliced(value) else -value
