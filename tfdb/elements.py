"""Tracing a step -> the step knows the elements of datasets that it draws, and what small state held when it began.

The doors of functions that are traced, of iterators and of AutoGraph's loops over datasets.  Watches share them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import internals, internals_gate, replaying, steps
from .gate import gate

Finish = Callable[[steps.Step, Any], Any]

patches = internals.Patches()
followers: dict[str, Finish | None] = {}


def follow(who: str, finish: Finish | None = None) -> None:
    """Have steps known from now on; `finish` sees each at the end of its tracing (`steps.tracer`).  Idempotent."""
    followers[who] = finish
    if not patches.saved:
        patches.replace(internals_gate.tracing_module(), "func_graph_from_py_func", lambda f: steps.tracer(f, finished))
        patches.replace(internals_gate.iterator_class(), "_next_internal", drawing)
        patches.replace(internals_gate.optional_class(), "get_value", unwrapping)
        patches.replace(internals_gate.loops_module(), "_general_purpose_scan", looping)


def unfollow(who: str) -> None:
    """Undo `follow`; the doors go with the last follower.  Idempotent."""
    followers.pop(who, None)
    if not followers:
        patches.remove()


def finished(step: steps.Step, outputs: Any) -> Any:
    """The end of a traced function's body, as each follower wants it."""
    for finish in followers.values():
        outputs = outputs if finish is None else finish(step, outputs)
    return outputs


def writing(variable: Any) -> None:
    """A variable is about to be written: in a graph, its step reads what it holds first."""
    if internals.current_graph() is not None and (step := steps.current()) is not None:
        steps.remember(step, variable)


def drawing(original: Callable[..., Any]) -> Callable[..., Any]:
    """`next` of an iterator: a step can be run again with the same element."""

    def _next_internal(self: Any) -> Any:
        if replaying.active():
            return replaying.draw(self, original)
        element = original(self)
        if internals.current_graph() is not None:
            arrived(element)
        elif not gate.busy:
            replaying.last_drawn[id(self)] = (self, element)
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
    if not gate.aside and internals.current_graph() is not None and (step := steps.current()) is not None:
        step.draw(element)
