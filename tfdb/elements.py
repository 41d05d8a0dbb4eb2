"""An element of a dataset that a step draws -> the step knows it, so that it can be run again with the same one.

The doors of iterators and of AutoGraph's loops over datasets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import internals, internals_gate, replaying, steps
from .gate import gate


def drawing(original: Callable[..., Any]) -> Callable[..., Any]:
    """`next` of an iterator: a step can be run again with the same element."""

    def _next_internal(self: Any) -> Any:
        if replaying.active():
            return replaying.draw(self, original)
        element = original(self)
        if not gate.busy:
            graph = internals.current_graph()
            if graph is None:
                replaying.last_drawn[id(self)] = (self, element)
            elif (step := steps.current()) is not None:
                step.draw(element)
        return element

    return _next_internal


def unwrapping(original: Callable[..., Any]) -> Callable[..., Any]:
    """An optional's `get_value`: what a loop over an iterator gets its elements by, in a graph."""

    def get_value(self: Any, *args: Any, **kwargs: Any) -> Any:
        element = original(self, *args, **kwargs)
        arrived(element)
        return element

    return get_value


def looping(original: Callable[..., Any]) -> Callable[..., Any]:
    """AutoGraph's scan, which is what a loop over a dataset becomes in a graph: `body(state, element)` is its body."""

    def scan(dataset: Any, state: Any, body: Callable[[Any, Any], Any]) -> Any:
        converted = internals_gate.converted(body)

        @functools.wraps(body)
        def one_pass(state: Any, element: Any) -> Any:
            arrived(element)
            return converted(state, element)

        one_pass.autograph_info__ = None  # type: ignore[attr-defined]  # AutoGraph must call it as it is
        return original(dataset, state, one_pass)

    return scan


def arrived(element: Any) -> None:
    """An element of a dataset is there, in the graph of a step."""
    if not gate.busy and internals.current_graph() is not None and (step := steps.current()) is not None:
        step.draw(element)
