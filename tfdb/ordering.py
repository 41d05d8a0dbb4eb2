"""Hook ops and effects in the order they are created -> control inputs that make them run in that order.

And the other way: `without_hooks` takes the hooks out of a graph that is being saved.
"""

import itertools
import weakref
from collections.abc import Mapping
from typing import Any

from tfdb import internals

LOCKED = frozenset(("resource", "variant"))  # what only the graph itself can hold


class Ordering:
    """Holds hooks in program order: a barrier waits for all effects before it and holds back all after it.

    Automatic control dependencies order effects on one resource only, so a hook would see later assignments
    (tensorflow's own ops need no more).  An op whose body holds hooks is a barrier too.
    """

    def __init__(self) -> None:
        self.hooked: dict[str, int] = {}
        self.graphs: weakref.WeakKeyDictionary[Any, tuple[list[Any], list[Any]]] = weakref.WeakKeyDictionary()
        self.drawn: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
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
            self.drawn[op.graph] = [other for other in before if is_drawn(other)]
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
            self.drawn[op.graph] += [op] if is_drawn(op) else []

    def draws(self, graph: Any) -> list[Any]:
        """The tensors of a graph so far that no second run would give again: random numbers, what Python gave."""
        made = self.drawn.get(graph)
        if made is None:
            made = [op for op in graph.get_operations() if internals.is_stateful(op) and is_drawn(op)]
        return [tensor for op in made for tensor in op.outputs]

    def callee(self, op_type: str, attributes: Mapping[str, Any]) -> int | None:
        """The number of the function with hooks that an op of this type and attributes calls, or None."""
        if op_type not in internals.CALLING_OPS:
            return None
        names = internals.called_functions(attributes)
        return next((self.hooked[name] for name in names if name in self.hooked), None)


def is_hook(op: Any) -> bool:
    """Whether the op is one of tfdb's."""
    return op.type == "EagerPyFunc" and "tfdb" in op.name


def is_drawn(op: Any) -> bool:
    """Whether a stateful op gives random numbers, or what Python code gave."""
    random = any(part in op.type for part in ("Random", "Truncated", "Multinomial", "Stateful"))
    python = op.type in ("PyFunc", "EagerPyFunc") and not is_hook(op)
    dtypes = {tensor.dtype.name for tensor in op.outputs}
    return (random or python) and op.type not in internals.CALLING_OPS and LOCKED.isdisjoint(dtypes)


def without_hooks(graph_def: Any) -> None:
    """Take the hooks out of a GraphDef and its functions, in place; nothing but control inputs refers to them."""
    drop_hooks(graph_def.node)
    for function in graph_def.library.function:
        hooks = drop_hooks(function.node_def)
        for name in [name for name, node in function.control_ret.items() if node in hooks]:
            del function.control_ret[name]
            function.signature.control_output.remove(name)


def drop_hooks(nodes: Any) -> set[str]:
    """Take the hooks out of a list of NodeDefs; returns their names."""
    numbers = [n for n, node in enumerate(nodes) if node.op == "EagerPyFunc" and "tfdb" in node.name]
    hooks = {nodes[n].name for n in numbers}
    for n in reversed(numbers):
        del nodes[n]
    for node in nodes if hooks else ():
        inputs = [name for name in node.input if name.removeprefix("^") not in hooks]
        del node.input[:]
        node.input.extend(inputs)
    return hooks
