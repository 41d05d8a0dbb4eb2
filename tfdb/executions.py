"""A stop, or the last graph call -> the execution it is in: its graphs, what each op gives, how far it has come.

Values come from three places, the first that has them: what the stop's own hook carried, the call's recorded arguments,
and the ops computed again from those (see `evaluation`).
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from . import graphs, halted, internals, internals_graphs
from .calls import Call
from .errors import TfdbError
from .evaluation import Evaluation, Memory, Unavailable, written
from .graphrecords import GraphRecord, Node
from .graphtext import unique_suffixes

_records: weakref.WeakKeyDictionary[Any, tuple[int, GraphRecord]] = weakref.WeakKeyDictionary()
_suffixes: weakref.WeakKeyDictionary[Any, tuple[GraphRecord, dict[str, str]]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Level:
    """One graph of an execution: its values, and how many of its ops had been made where the stop stands."""

    title: str
    evaluation: Evaluation
    end: int
    carried: frozenset[str]

    @property
    def record(self) -> GraphRecord:
        """The record of the graph."""
        return record_of(self.evaluation.graph)

    @property
    def suffixes(self) -> dict[str, str]:
        """For each node the shortest end of its name that no other has."""
        record, (known, made) = self.record, _suffixes.get(self.evaluation.graph, (None, {}))
        if known is not record:
            made = unique_suffixes([node.name for node in record.nodes])
            _suffixes[self.evaluation.graph] = (record, made)
        return made


@dataclass(frozen=True, slots=True)
class Found:
    """One node of an execution, in the level that it was found in."""

    level: Level
    node: Node

    def tensor(self, index: int = 0) -> Any:
        """One of its outputs."""
        return self.level.evaluation.graph.get_tensor_by_name(f"{self.node.name}:{index}")

    def value(self, index: int = 0) -> Any:
        """The value of one of its outputs.

        Raises:
            Unavailable: it cannot be had; the text says why.
        """
        position = self.level.evaluation.order[self.node.name]
        if position >= self.level.end:
            raise Unavailable("it has not run yet at this stop")
        return self.level.evaluation.fetch(self.tensor(index))


def record_of(graph: Any) -> GraphRecord:
    """The record of a graph, kept as long as the graph lives and has no more ops."""
    size, made = _records.get(graph, (0, None))
    if made is None or size != len(graph.get_operations()):
        with uncollected():
            made = graphs.graph_record(graph, graphs.clean_name(graph.name))
        _records[graph] = (len(graph.get_operations()), made)
    return made


@contextmanager
def uncollected() -> Iterator[None]:
    """Within the block, Python's garbage collector waits: making thousands of records would call it again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def forget() -> None:
    """Read every graph anew when it is next looked at."""
    _records.clear()
    _suffixes.clear()


class Execution:
    """The graphs of one execution from the outermost, which Python called, to the one that the stop is in."""

    def __init__(self, levels: Sequence[Level]) -> None:
        self.levels = list(levels)

    @property
    def place(self) -> Level:
        """The innermost level."""
        return self.levels[-1]

    def all_levels(self) -> Iterator[Level]:
        """The levels, innermost first, then the functions, branches and last passes of loops that they have run."""
        yield from reversed(self.levels)
        seen = {id(level.evaluation) for level in self.levels}
        waiting = list(reversed(self.levels))
        while waiting:
            level = waiting.pop(0)
            level.evaluation.run_to(level.end)
            for name, inner in level.evaluation.inner.items():
                if id(inner) not in seen:
                    seen.add(id(inner))
                    title = f"{level.title} > {graphs.clean_name(inner.graph.name)} ({name})"
                    made = Level(title, inner, len(inner.operations), frozenset())
                    waiting.append(made)
                    yield made

    def find(self, name: str) -> Found:
        """The node of this name, or the only one whose name ends so.

        Raises:
            TfdbError: there is none, or there are several.
        """
        wanted = name.partition(":")[0]
        candidates: list[Found] = []
        for level in self.all_levels():
            node = level.record.node(wanted)
            if node is not None:
                return Found(level, node)
            candidates += [Found(level, each) for each in level.record.nodes if each.name.endswith("/" + wanted)]
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise TfdbError(f"no node {wanted} here: `lt` lists them, `lt -n REGEX` looks for one")
        names = ", ".join(each.node.name for each in candidates[:4])
        raise TfdbError(f"{wanted} may be {names}{' …' if len(candidates) > 4 else ''}: give more of the name")


def of_call(given: Call | None, failed: str = "") -> Execution:
    """The execution of the last graph call, which is over; `failed` is the name of the op that ended it, if one did.

    Raises:
        TfdbError: there was none, or its graph is not known.
    """
    graph = internals_graphs.atomic_graph(given.function) if given is not None else None
    if given is None or graph is None:
        raise TfdbError("no graph has run yet: stop in a tf.function, or after one was called")
    level = outermost(given, graph, failed)
    if not failed and not level.evaluation.memory.whole:
        level.evaluation.memory.over = True
        level.evaluation.last_writes = last_writes(level.evaluation)
    return Execution([level])


def outermost(given: Call, graph: Any, failed: str = "") -> Level:
    """The level of the graph that Python called, with its arguments."""
    feeds = {place.name: value for place, value in zip(graph.inputs, given.args, strict=False)}
    held = {id(given.args[n]): value for n, value in given.variables.items()}
    handles = {name: id(value) for name, value in feeds.items()} if failed else {}
    unwritten = halted.unwritten(graph, handles, failed) if failed else ()
    evaluation = Evaluation(graph, feeds, Memory(held, bool(held), unwritten))
    return Level(graphs.clean_name(graph.name), evaluation, len(evaluation.operations), frozenset())


def last_writes(evaluation: Evaluation) -> dict[str, list[Any]]:
    """The handles of the variables that a graph writes, by the name of the op that is the last to write each."""
    last = {id(handle): (op.name, handle) for op in evaluation.operations for tensor in written(op)
            if (handle := evaluation.values.get(tensor.name)) is not None}  # fmt: skip
    found: dict[str, list[Any]] = {}
    for name, handle in last.values():
        found.setdefault(name, []).append(handle)
    return found


def of_stop(hook: Any, known: Sequence[tuple[Any, Any]], given: Call | None) -> Execution:
    """The execution that a stop is in: `hook` is the op that stopped, `given` the call.

    `known` are the tensors of its graph whose values the stop has, with those.
    """
    carried = {tensor.name: value for tensor, value in known}
    graph = internals_graphs.atomic_graph(given.function) if given is not None else None
    if given is None or graph is None:
        return alone(hook, carried)
    outer = outermost(given, graph)
    if same(graph, hook.graph):
        outer.evaluation.values.update(carried)
        return Execution([level_at(outer.evaluation, hook, carried)])
    path = next(paths(graph, hook.graph, ()), None)
    return Execution(descend(outer, path, hook, carried)) if path is not None else alone(hook, carried)


def alone(hook: Any, carried: dict[str, Any]) -> Execution:
    """The execution of a graph of which only what a hook carried is known."""
    return Execution([level_at(Evaluation(hook.graph, carried, Memory({}, False)), hook, carried)])


def level_at(evaluation: Evaluation, hook: Any, carried: dict[str, Any]) -> Level:
    """The level that a hook is in."""
    end = evaluation.order.get(hook.name, len(evaluation.operations))
    return Level(graphs.clean_name(evaluation.graph.name), evaluation, end, frozenset(carried))


def descend(outer: Level, path: Sequence[tuple[Any, str]], hook: Any, carried: dict[str, Any]) -> list[Level]:
    """The levels from the outermost along a path of calling ops, the last with what the hook carried."""
    levels: list[Level] = []
    evaluation, title = outer.evaluation, outer.title
    for op, name in path:
        position = evaluation.order[op.name]
        levels.append(Level(title, evaluation, position, frozenset()))
        evaluation.run_to(position)
        inner = evaluation.nested(op, name, list(op.inputs), 1 if op.type in internals.BRANCH_OPS else 0)
        if op.type in internals.LOOP_OPS:  # a later pass may be under way: only what no pass changes is known
            keep_invariants(inner)
        evaluation, title = inner, f"{title} > {graphs.clean_name(inner.graph.name)}"
    evaluation.values.update(carried)
    for reason in [key for key in evaluation.reasons if f"{key}:0" in evaluation.values]:
        del evaluation.reasons[reason]
    return [*levels, replace(level_at(evaluation, hook, carried), title=title)]


def keep_invariants(body: Evaluation) -> None:
    """Forget the loop variables that a body changes: which pass is under way only the hook knows."""
    for place, result in zip(body.graph.inputs, body.graph.outputs, strict=False):
        while result.op.type == "Identity":
            result = result.op.inputs[0]
        if result is not place and body.values.pop(place.name, None) is not None:
            body.reasons[place.op.name] = "it changes from pass to pass of the loop and was not carried to this stop"


def reaches(given: Call, hook: Any) -> bool:
    """Whether a call runs the graph that a hook is in."""
    graph = internals_graphs.atomic_graph(given.function)
    return graph is not None and (same(graph, hook.graph) or next(paths(graph, hook.graph, ()), None) is not None)


def reaching(calls: Sequence[Call], hook: Any) -> Call | None:
    """The first of some calls that runs the graph that a hook is in."""
    return next((each for each in calls if reaches(each, hook)), None)


def same(one: Any, other: Any) -> bool:
    """Whether two graphs are the same function's."""
    return one is other or (one.name == other.name and len(one.get_operations()) == len(other.get_operations()))


def paths(graph: Any, wanted: Any, above: tuple[Any, ...]) -> Iterator[list[tuple[Any, str]]]:
    """The ways from a graph to one that it calls, as calling ops with the function's name."""
    for op in graph.get_operations():
        for name in internals_graphs.called(op):
            inner = internals_graphs.nested_graph(graph, name)
            if inner is None or any(inner is each for each in above):
                continue
            if same(inner, wanted):
                yield [(op, name)]
            for rest in paths(inner, wanted, (*above, graph)):
                yield [(op, name), *rest]
