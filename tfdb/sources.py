"""A file of the program -> the statements in it that make a name's object, import it, or are a lambda."""

from __future__ import annotations

import ast
import copy
import linecache
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)
SETUP = ("compile", "build", "add", "adapt", "load_weights", "set_weights")  # calls that belong to an object's making


@dataclass(frozen=True, slots=True)
class Scope:
    """Where names are looked up: those of a running function (its name; "" for a module), and its file."""

    filename: str
    names: Mapping[str, Any]
    function: str = ""


def loaded(tree: ast.AST) -> set[str]:
    """The names that a piece of source reads where it stands: of functions only what runs when they are defined."""
    if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        parts = [*tree.decorator_list, tree.args, *([tree.returns] if tree.returns else [])]
        return set().union(*(loaded(part) for part in parts))
    own = {tree.id} if isinstance(tree, ast.Name) and isinstance(tree.ctx, ast.Load) else set()
    return own.union(*(loaded(part) for part in ast.iter_child_nodes(tree)))


def module_tree(filename: str) -> ast.Module:
    """The syntax tree of a file of the program; empty when it cannot be read."""
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return ast.Module([], [])


def import_of(name: str, filename: str) -> str | None:
    """The import statement of the file that binds the name, reduced to it."""
    for node in ast.walk(module_tree(filename)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name.split(".")[0]) == name:
                    return ast.unparse(ast.Import([alias]))
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return ast.unparse(ast.ImportFrom(node.module, [alias], 0))
    return None


def sets_up(call: ast.expr, scope: Scope) -> bool:
    """Whether this is a call like `tf.random.set_seed(1)`: of a module's function that sets something for all."""
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
        return False
    root: ast.expr = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    is_module = isinstance(root, ast.Name) and isinstance(scope.names.get(root.id), ModuleType)
    return is_module and call.func.attr.startswith(("set_", "enable_", "disable_"))


def building(name: str, scope: Scope) -> list[ast.stmt]:
    """The statements that assign the name, and calls on it that belong to its making, in order.

    They are those of the scope's own function where it has any, else of the first function or module of its file.
    """
    return next((found for node in bodies(scope) if (found := assigned(name, node))), [])


def bodies(scope: Scope) -> list[ast.Module | ast.FunctionDef]:
    """The module and the functions of a scope's file, the scope's own first."""
    nodes = ast.walk(module_tree(scope.filename))
    found = [node for node in nodes if isinstance(node, ast.Module | ast.FunctionDef)]
    return sorted(found, key=lambda node: getattr(node, "name", "") != scope.function)


def assigned(name: str, node: ast.Module | ast.FunctionDef) -> list[ast.stmt]:
    """What a function or module makes the name's object by; empty where it does not assign the name."""
    found = [part for statement in straight(node.body) if (part := part_for(name, statement)) is not None]
    return found if any(isinstance(statement, ast.Assign | ast.AnnAssign) for statement in found) else []


def part_for(name: str, statement: ast.stmt) -> ast.stmt | None:
    """What of a statement belongs to the name's making: of a loop or an `if`, the statements in it that do."""
    if not isinstance(statement, ast.For | ast.While | ast.If):
        return statement if builds(name, statement) else None
    wanted, made = set[str](), {name} | (loaded(statement.test) if isinstance(statement, ast.While) else set())
    while made != wanted:  # what the statements that make the name read is made in the loop, too
        wanted = set(made)
        kept = [
            each for each in ast.walk(statement) if isinstance(each, SIMPLE) and any(builds(n, each) for n in wanted)
        ]
        made = wanted | {read for each in kept for read in loaded(each) if is_made_by(read, statement)}
    return cut(statement, set(map(id, kept))) if any(builds(name, each) for each in kept) else None


def bound_in(name: str, statement: ast.stmt) -> bool:
    """Whether a loop or an `if` gives the name its value itself: as its variable, or in a statement before its use."""
    if not isinstance(statement, ast.For | ast.While | ast.If):
        return False
    target = statement.target if isinstance(statement, ast.For) else ast.Pass()
    if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(target)):
        return True
    for each in statement.body:
        if name in loaded(each):
            return False
        if is_made_by(name, each):
            return True
    return False


def is_made_by(name: str, statement: ast.stmt) -> bool:
    """Whether a statement inside of this one assigns the name."""
    return any(isinstance(each, ast.Assign | ast.AnnAssign) and builds(name, each) for each in ast.walk(statement))


def cut(statement: ast.stmt, kept: Set[int]) -> ast.stmt | None:
    """The statement with only those in it whose ids are kept; None where none is."""
    if not isinstance(statement, ast.For | ast.While | ast.If):
        return statement if id(statement) in kept else None
    body, other = ([part for each in block if (part := cut(each, kept)) is not None]
                   for block in (statement.body, statement.orelse))  # fmt: skip
    if not body and not other:
        return None
    made = copy.copy(statement)
    made.body, made.orelse = body or [ast.Pass()], other
    return made


def straight(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body that run once with it: those inside of `with`, and of `if __name__ == …`, too."""
    for statement in body:
        if isinstance(statement, ast.With) or (isinstance(statement, ast.If) and "__name__" in loaded(statement.test)):
            yield from straight(statement.body)
        else:
            yield statement


def builds(name: str, statement: ast.stmt) -> bool:
    """Whether the statement assigns the name or sets its object up."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return any(isinstance(node, ast.Name) and node.id == name for target in targets for node in ast.walk(target))
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    called = statement.value.func
    return (
        isinstance(called, ast.Attribute) and called.attr in SETUP
        and isinstance(called.value, ast.Name) and called.value.id == name
    )  # fmt: skip


def lambda_text(function: FunctionType) -> str | None:
    """The source of a lambda, cut out of its line; None when it cannot be told from its neighbours."""
    code = function.__code__
    taken = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    found = [node for node in ast.walk(module_tree(code.co_filename)) if isinstance(node, ast.Lambda)
             and node.lineno == code.co_firstlineno and arguments(node) == taken]  # fmt: skip
    if len(found) > 1:
        columns = first_column(code)
        found = [node for node in found if node.body.col_offset == columns]
    return ast.unparse(found[0]) if len(found) == 1 else None


def arguments(node: ast.Lambda) -> list[str]:
    """The names of a lambda's arguments, those with stars excepted."""
    return [each.arg for each in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]


def first_column(code: CodeType) -> int | None:
    """The column where the text of a lambda's value starts; None before Python 3.11, which does not keep it."""
    if not hasattr(code, "co_positions"):
        return None
    places = [(line, column) for line, _, column, end in code.co_positions() if line and column is not None and end]
    return min(places)[1] if places else None
