"""A graph call that one of its ops ended with an error -> the variables that it cannot have written by then.

What needs the failed op, by data or control, has not run.  Of loops this is not known: an earlier pass may have run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import internals, internals_graphs
from .evaluation import written


def unwritten(graph: Any, handles: Mapping[str, int], failed: str) -> frozenset[int]:
    """The handles that no op can have written when the op called `failed` ended the run of the graph.

    `handles` are the graph's resources: by the name of the tensor that stands for each, an id that is the answer's.
    Empty where the graph and those that it calls have no such op.
    """
    paths = list(paths_to(graph, failed, ()))
    if not paths:
        return frozenset()
    return frozenset(handles.values()).difference(*(may_write(graph, handles, failed, path) for path in paths))


def paths_to(graph: Any, failed: str, above: tuple[Any, ...]) -> Iterator[list[tuple[Any, str]]]:
    """The ways from a graph to an op of this name, as calling ops with the function's name."""
    for op in graph.get_operations():
        if op.name == failed:
            yield []
        for name in internals_graphs.called(op):
            inner = internals_graphs.nested_graph(graph, name)
            if inner is not None and not any(inner is each for each in above):
                for rest in paths_to(inner, failed, (*above, graph)):
                    yield [(op, name), *rest]


def may_write(graph: Any, handles: Mapping[str, int], failed: str, path: list[tuple[Any, str]]) -> set[int]:
    """The handles that ops other than those after the failed one write, along one way to it."""
    calling, name = path[0] if path else (graph.get_operation_by_name(failed), "")
    later = after(calling)
    found = {handles[tensor.name] for op in graph.get_operations() if op.name not in later and op is not calling
             for tensor in written(op) if tensor.name in handles}  # fmt: skip
    if not path:
        return found
    if calling.type in internals.LOOP_OPS:
        return found | {handles[tensor.name] for tensor in written(calling) if tensor.name in handles}
    inner = internals_graphs.nested_graph(graph, name)
    assert inner is not None  # a way leads through it
    given = list(calling.inputs)[1 if calling.type in internals.BRANCH_OPS else 0 :]
    known = {place.name: handles[tensor.name] for place, tensor in zip(inner.inputs, given, strict=False)
             if tensor.name in handles}  # fmt: skip
    return found | may_write(inner, known, failed, path[1:])


def after(op: Any) -> set[str]:
    """The names of the ops of a graph that need this one."""
    waiting, found = [op], set[str]()
    needing: dict[str, list[Any]] = {}
    for each in op.graph.get_operations():
        for source in [*(tensor.op for tensor in each.inputs), *each.control_inputs]:
            needing.setdefault(source.name, []).append(each)
    while waiting:
        for each in needing.get(waiting.pop().name, ()):
            if each.name not in found:
                found.add(each.name)
                waiting.append(each)
    return found
