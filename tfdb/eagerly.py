"""A stack of eager code that made a bad value -> a function that runs the same step once more.

There is no traced function to run again here, so the user's own statements are: those from the gradient tape's `with`
block (else from the start of the innermost loop's body, else of the function) up to the one that ran into the gate.
They are compiled under their own file and lines, and see copies of the names they had.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

from . import blame

STEPS = ("train_step", "test_step", "predict_step")


MOST_CALLERS = 4


def steps_of(frame: FrameType | None) -> list[Callable[[], Any]]:
    """Functions without arguments that repeat the step the stack is in: of the innermost function, then of its callers.

    A bad value that came to the innermost function as an argument was made in one of those; of them only what a tape
    watches is a step, the rest of a program must not be run again.  Empty without source.
    """
    for caller in reversed(list(blame.outward(frame))):
        name, names = caller.f_code.co_name, caller.f_locals
        if name in STEPS and "data" in names and hasattr(names.get("self"), name):
            return [functools.partial(getattr(names["self"], name), names["data"])]
    users = blame.user_frames(frame)[: -MOST_CALLERS - 1 : -1]
    found = [repeat(user, only_tapes=number > 0) for number, user in enumerate(users)]
    return [function for function in found if function is not None]


def repeat(frame: FrameType, only_tapes: bool = False) -> Callable[[], Any] | None:
    """A function that runs the statements of the frame's current step again; with `only_tapes` one with a tape."""
    tree = parsed(frame.f_code.co_filename)
    scope = tree and scope_of(tree, frame)
    if scope is None:
        return None
    statements = current_step(scope, frame.f_lineno)
    if not statements or (only_tapes and not is_tape(statements[0])):
        return None
    try:
        return function_of(statements, frame)
    except (SyntaxError, ValueError):  # a `nonlocal`, a bare `await`: cannot stand in a function of their own
        return None


def parsed(filename: str) -> ast.Module | None:
    """The file's syntax tree, from the lines Python itself would show."""
    try:
        return ast.parse("".join(linecache.getlines(filename)), filename)
    except SyntaxError:
        return None


def scope_of(tree: ast.Module, frame: FrameType) -> ast.Module | ast.FunctionDef | None:
    """The definition that the frame runs: the function of its first line, or the module."""
    if frame.f_code.co_name == "<module>":
        return tree
    first = frame.f_code.co_firstlineno
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == frame.f_code.co_name:
            if first in (node.lineno, *(decorator.lineno for decorator in node.decorator_list)):
                return node
    return None


def blocks_around(body: list[ast.stmt], line: int) -> Iterator[tuple[ast.AST | None, list[ast.stmt], int]]:
    """From the outside in: (statement that owns the block, block, index of the statement that spans `line`)."""
    owner: ast.AST | None = None
    while True:
        index = next((i for i, s in enumerate(body) if s.lineno <= line <= (s.end_lineno or s.lineno)), None)
        if index is None:
            return
        yield owner, body, index
        owner = body[index]
        inner = [getattr(owner, name, None) for name in ("body", "orelse", "finalbody")]
        inner += [handler.body for handler in getattr(owner, "handlers", [])]
        found = [b for b in inner if isinstance(b, list) and b and b[0].lineno <= line <= (b[-1].end_lineno or 0)]
        if not found or isinstance(owner, ast.FunctionDef | ast.ClassDef):
            return
        body = found[0]


def current_step(scope: ast.Module | ast.FunctionDef, line: int) -> list[ast.stmt]:
    """The statements to run again so that `line` is reached as it was."""
    blocks = list(blocks_around(scope.body, line))
    for _, body, index in reversed(blocks):
        starts = [i for i in range(index + 1) if is_tape(body[i])]
        if starts:
            return body[starts[-1] : index + 1]
    for owner, body, index in reversed(blocks):
        if isinstance(owner, ast.For | ast.While):
            return body[: index + 1]
    if isinstance(scope, ast.FunctionDef) and blocks:
        _, body, index = blocks[0]
        return body[: index + 1]
    return [blocks[0][1][blocks[0][2]]] if blocks else []


def is_tape(statement: ast.stmt) -> bool:
    """Whether the statement is a `with` that opens a gradient tape."""
    return isinstance(statement, ast.With) and any("Tape" in ast.dump(item.context_expr) for item in statement.items)


def function_of(statements: list[ast.stmt], frame: FrameType) -> Callable[[], Any]:
    """The statements as a function of the frame's names, under the frame's own name, file and lines."""
    assigned = {
        node.id
        for s in statements
        for node in ast.walk(s)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    names = set(frame.f_locals) if frame.f_code.co_name != "<module>" else assigned & set(frame.f_locals)
    names = {name for name in names if name.isidentifier()}
    parameters = ast.arguments(
        posonlyargs=[],
        args=[],
        vararg=None,
        kwarg=None,
        defaults=[],
        kwonlyargs=[ast.arg(name) for name in sorted(names)],
        kw_defaults=[None] * len(names),
    )
    more: dict[str, Any] = {"type_params": []}  # a field of Python 3.12 on
    definition = ast.FunctionDef("step", parameters, without_outer_names(statements), [], **more)
    module = ast.fix_missing_locations(ast.copy_location(ast.Module([definition], []), statements[0]))
    outer = compile(module, frame.f_code.co_filename, "exec", dont_inherit=True)
    code = next(c for c in outer.co_consts if isinstance(c, CodeType))
    run = FunctionType(code.replace(co_name=frame.f_code.co_name), dict(frame.f_globals), "step")
    run.__kwdefaults__ = {name: frame.f_locals[name] for name in names}
    return run


def without_outer_names(statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements without `global`: they write to copies."""
    kept = [s for s in statements if not isinstance(s, ast.Global)]
    return kept or [ast.Pass(lineno=statements[0].lineno, col_offset=0)]
