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
