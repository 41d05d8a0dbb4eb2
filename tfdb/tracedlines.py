"""Graphs that exist already -> the user's lines they came from, so that only what a breakpoint meets is traced again.

A graph that was built without hooks cannot stop.  Functions get a new trace at their next call; a dataset, built once,
gets none, and the user has to be told.
"""

import linecache
from collections.abc import Iterable

from tfdb import internals, syntax
from tfdb.sourcemap import is_user

Place = tuple[str, int]


def user_lines(graphs: Iterable[object]) -> frozenset[Place]:
    """The user's lines (file, line) whose ops are in the graphs, or in functions that they call."""
    lines: set[Place] = set()
    for graph in internals.with_called_graphs(graphs):
        for place in internals.op_places(graph):
            if is_user(place[0]):
                lines.add(place)
    return frozenset(lines)


def function_of(place: Place) -> range:
    """The lines of the function around a place; the line alone where there is no function."""
    filename, line = place
    node = syntax.function_around("".join(linecache.getlines(filename)), line)
    if node is None:
        return range(line, line + 1)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def meets(lines: Iterable[Place], place: Place) -> bool:
    """Whether any of the lines lies in the function around the place; an op or layer may be anywhere."""
    if place[0].startswith("<"):
        return True
    around = function_of(place)
    return any(filename == place[0] and line in around for filename, line in lines)


def is_in_built_dataset(place: Place) -> bool:
    """Whether a dataset's function that runs the place was traced without hooks."""
    return meets(user_lines(internals.dataset_graphs()), place)
