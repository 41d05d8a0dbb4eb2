"""Hook ops and effects in the order they are created -> control inputs that make them run in that order."""

import itertools
import weakref
from collections.abc import Mapping
from typing import Any

from tfdb import internals


class Ordering:
    """Holds hooks in program order: a barrier waits for all effects before it and holds back all after it.

    Automatic control dependencies order effects on one resource only, so a hook would see later assignments
    (tensorflow's own ops need no more).  An op whose body holds hooks is a barrier too.
    """

    def __init__(self) -> None:
        self.hooked: dict[str, int] = {}
        self.graphs: weakref.WeakKeyDictionary[Any, tuple[list[Any], list[Any]]] = weakref.WeakKeyDictionary()
        self.keys: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.counter = itertools.count(1)

    def holds_hooks(self, graph: Any) -> bool:
        """Whether a run of the graph can reach a hook."""
        return graph in self.graphs

    def key(self, graph: Any) -> int:
        """The number of the function that the graph belongs to."""
        return self.keys.setdefault(internals.function_graph(graph), next(self.counter))

    def named(self, name: str | bytes, graph: Any) -> None:
        """A function was, or is about to be, made under this name from a graph that holds hooks."""
        self.hooked[name if isinstance(name, str) else name.decode()] = self.key(graph)

    def barrier(self, op: Any) -> None:
        """Make an op, the newest of its graph, a barrier."""
        if op.graph not in self.graphs:
            before = [other for other in op.graph.get_operations() if other is not op and internals.is_stateful(other)]
            self.graphs[op.graph] = ([], before)
        last, since = self.graphs[op.graph]
        op._add_control_inputs(since + last)
        last[:], since[:] = [op], []

    def created(self, op: Any) -> None:
        """Take note of an op that was just added to any graph."""
        if self.hooked and self.callee(op.type, op.node_def.attr) is not None:
            self.barrier(op)
        elif op.graph in self.graphs and internals.is_stateful(op) and not is_hook(op):
            last, since = self.graphs[op.graph]
            op._add_control_inputs(last)
            since.append(op)

    def callee(self, op_type: str, attributes: Mapping[str, Any]) -> int | None:
        """The number of the function with hooks that an op of this type and attributes calls, or None."""
        if op_type not in internals.CALLING_OPS:
            return None
        names = internals.called_functions(attributes)
        return next((self.hooked[name] for name in names if name in self.hooked), None)


def is_hook(op: Any) -> bool:
    """Whether the op is one of tfdb's."""
    return op.type == "EagerPyFunc" and "tfdb" in op.name
