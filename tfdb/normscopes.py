"""What is on its way into weights: the gradients a tape gave, and one `apply` of an optimizer with its writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .writes import identity


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


def after(passed: Any, values: list[Any]) -> list[Any]:
    """The values, to be read only after the gate."""
    import tensorflow as tf

    if passed is None:
        return values
    with tf.control_dependencies([passed]):
        return [identity(value) for value in values]
