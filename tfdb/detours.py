"""The source of a function -> the lines where a tensor's value may leave TensorFlow for plain Python.  Pure.

TensorFlow notices `numpy()`, `float()` and `bool()`; numpy itself takes a tensor's memory unseen.  Those calls are
looked for in the text.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass

from . import syntax

NUMPY = ("np", "numpy", "onp", "math", "scipy", "sklearn", "pd")
METHODS = ("numpy", "item", "tolist", "predict", "predict_on_batch", "eval")
BUILTINS = ("float", "int", "bool", "round", "list", "sum", "max", "min")


@dataclass(frozen=True, slots=True)
class Detour:
    """One such call: its line, its text, and the names that it is given."""

    line: int
    text: str
    names: tuple[str, ...]


def function_at(file: str, line: int) -> ast.AST | None:
    """The innermost function (or the module) whose text holds the line; None when there is no text."""
    source = "".join(linecache.getlines(file))
    found: ast.AST | None = syntax.parsed(source) if source else None
    for node in ast.walk(found) if found is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            if node.lineno <= line <= (node.end_lineno or node.lineno):
                found = node  # walked outside in
    return found


def detours(function: ast.AST) -> Iterator[Detour]:
    """The calls of a function that may take a tensor out of TensorFlow, in the order of lines."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        target = call.func
        if isinstance(target, ast.Attribute):
            base = target.value
            while isinstance(base, ast.Attribute):
                base = base.value
            leaves = isinstance(base, ast.Name) and base.id in NUMPY
            if leaves or target.attr in METHODS:
                given = [call] if leaves else [target.value, *call.args]
                yield Detour(call.lineno, ast.unparse(target), names(given))
        elif isinstance(target, ast.Name) and target.id in BUILTINS:
            yield Detour(call.lineno, target.id, names(call.args))


def of_what(file: str, line: int, last: int | None) -> Detour | None:
    """The first call of numpy's, up to line `last` of the same function, that is given what a line computes."""
    function = function_at(file, line)
    if function is None:
        return None
    known = {name for at, targets, _ in assignments(function) if at[0] <= line <= at[1] for name in targets}
    calls = [each for each in detours(function) if each.text.partition(".")[0] in NUMPY]
    calls = [each for each in calls if each.line >= line and (last is None or each.line <= last)]
    for (start, _), targets, read in assignments(function):
        if start <= line:
            continue
        if any(call.line == start and known & set(call.names) for call in calls):
            break
        known |= set(targets) if known & set(read) else set()
    return next((call for call in calls if call.line == line or known & set(call.names)), None)


def assignments(function: ast.AST) -> list[tuple[tuple[int, int], tuple[str, ...], tuple[str, ...]]]:
    """The assignments of a function in order: first and last line, the names that are set, those that are read."""
    found = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            made = tuple(n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
            found.append(((node.lineno, node.end_lineno or node.lineno), made, names([node.value])))
    return sorted(found)


def names(nodes: list[ast.Call] | list[ast.expr]) -> tuple[str, ...]:
    """The plain names that some expressions read."""
    return tuple(dict.fromkeys(n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)))


def assignment(file: str, line: int, name: str) -> int | None:
    """The last line before `line`, in the function around it, that gives the name a value."""
    function = function_at(file, line)
    found = [
        node.lineno
        for node in (ast.walk(function) if function is not None else ())
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store) and node.lineno < line
    ]
    return max(found, default=None)
