"""The source of a traced function -> its lines that run while it is traced and never again: effects, frozen values."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Callable, Container, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from . import syntax
from .graphrecords import TracingOnly
from .sourcemap import is_user

DRAWS = re.compile(r"(numpy\.random|random|secrets|uuid)\.")
CLOCKS = re.compile(r"(time\.(time|perf_counter|monotonic|time_ns|process_time)|datetime\.\S*(now|today|utcnow))")
GENERATORS = ("Generator", "RandomState", "Random")
WHY_EFFECT = "changes {name}: at each trace, not at each call (a tf.Variable would count calls)"
WHY_KEEP = "changes {name}: at each trace, not at each call; a tensor kept there is a symbol without a value"
WHY_PRINT = "prints at each trace, not at each call: tf.print prints when the graph runs"
WHY_LOG = "logs at each trace, not at each call"
WHY_DRAW = "draws once, at the trace; the graph keeps that value: tf.random draws at each run"
WHY_CLOCK = "reads the clock once, at the trace; the graph keeps that time: tf.timestamp() reads it at each run"
WHY_FILE = "opens the file at each trace, not at each call"


def tracing_only(function: Callable[..., Any], depth: int = 2) -> list[TracingOnly]:
    """The lines of a Python function, and of the user's functions it calls by name, that run only at tracing.

    Empty when its source cannot be read. Judged by the text alone: an effect behind a call is not seen.
    """
    plain = inspect.unwrap(function)
    plain = getattr(plain, "__func__", plain)
    tree = parsed(plain)
    if tree is None:
        return []
    names = visible(plain)
    found = {each.line: each for each in reversed(list(lines(tree, names)))}
    for callee in called(tree, names, plain) if depth > 1 else ():
        for each in tracing_only(callee, depth - 1):
            found.setdefault(each.line, each)
    return [found[line] for line in sorted(found)]


def at_line(filename: str, line: int, names: Mapping[str, Any], traced: Container[int]) -> str | None:
    """Why the line runs only at tracing, if it does; None in functions that are no `tf.function`, by text.

    `names` are the globals of the file, `traced` the first lines of functions of the file that were traced.
    """
    text = "".join(linecache.getlines(filename))
    around = [node for node in syntax.nodes(text) if isinstance(node, ast.FunctionDef) and syntax.covers(node, line)]
    for tree in reversed(around):
        decorators = [each.func if isinstance(each, ast.Call) else each for each in tree.decorator_list]
        first = min([tree.lineno, *(each.lineno for each in decorators)])
        if first in traced or any(syntax.last_name(each) == "function" for each in decorators):
            return next((each.why for each in lines(around[-1], names) if each.line == line), None)
    return None


def file_of(function: Callable[..., Any]) -> str:
    """The file of a Python function, "" when it has none."""
    return getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "")


def parsed(function: Any) -> ast.FunctionDef | None:
    """The function's own tree with its line numbers of the file, or None without source."""
    tree = syntax.own_tree(function)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = next((node for node in ast.walk(tree) if isinstance(node, kinds)), None) if tree is not None else None
    return found if isinstance(found, ast.FunctionDef) else None


def visible(function: Any) -> dict[str, Any]:
    """What the function's names stand for outside it: globals and closure."""
    names = dict(getattr(function, "__globals__", {}))
    if isinstance(function, FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                names[name] = cell.cell_contents
            except ValueError:
                continue
    return names


def lines(tree: ast.FunctionDef, names: Mapping[str, Any]) -> Iterator[TracingOnly]:
    """Each line that runs only at tracing."""
    own = local_names(tree)
    source = {node.lineno: node for node in ast.walk(tree) if isinstance(node, ast.stmt)}
    for node in ast.walk(tree):
        why = effect_of(node, own) or value_of(node, own, names)
        if why is not None and isinstance(node, ast.stmt | ast.expr):
            statement = source.get(node.lineno, node)
            yield TracingOnly(node.lineno, ast.unparse(statement).split("\n")[0], why)


def local_names(tree: ast.FunctionDef) -> set[str]:
    """The names that are the function's own: what is done to them is over with the trace."""
    outer = {name for node in ast.walk(tree) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored - outer


def effect_of(node: ast.AST, own: set[str]) -> str | None:
    """Why a statement is an effect on something that outlives the trace."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    counts = isinstance(node, ast.AugAssign)
    for target in targets:
        name = root(target)
        if isinstance(target, ast.Attribute | ast.Subscript) and name not in own:
            return (WHY_EFFECT if counts else WHY_KEEP).format(name=ast.unparse(target))
        if isinstance(target, ast.Name) and isinstance(node, ast.AugAssign | ast.Assign) and target.id not in own:
            return (WHY_EFFECT if counts else WHY_KEEP).format(name=target.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in syntax.MUTATORS:
        if (name := root(node.func.value)) is not None and name not in own:
            return WHY_KEEP.format(name=ast.unparse(node.func.value))
    return None


def value_of(node: ast.AST, own: set[str], names: Mapping[str, Any]) -> str | None:
    """Why a call gives or does something at tracing only."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name) and node.func.id in ("print", "open") and node.func.id not in own:
        return WHY_PRINT if node.func.id == "print" else WHY_FILE
    dotted = full_name(node.func, names)
    if DRAWS.match(dotted):
        return WHY_DRAW
    if CLOCKS.match(dotted):
        return WHY_CLOCK
    return WHY_LOG if dotted.startswith("logging.") else None


def root(node: ast.AST) -> str | None:
    """The name at the start of `self.a[0].b`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def full_name(node: ast.AST, names: Mapping[str, Any]) -> str:
    """A called function's name with its module, whatever alias it was imported by; "" for what is not of a module."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    value = names.get(node.id)
    if isinstance(value, ModuleType):
        return ".".join([value.__name__, *parts])
    if type(value).__name__ in GENERATORS:
        return ".".join(["random", *parts])
    if type(value).__name__ == "Logger":
        return ".".join(["logging", *parts])
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    owner = getattr(value, "__self__", None)
    if module is None and owner is not None:  # random.random, np.random.rand
        module, name = type(owner).__module__, getattr(value, "__name__", "")
    return ".".join([str(module), str(name), *parts]) if module and name else ""


def called(tree: ast.FunctionDef, names: Mapping[str, Any], function: Any) -> Iterator[FunctionType]:
    """The user's functions that are called by a plain name, and the methods called on `self`."""
    owner = names.get(getattr(function, "__qualname__", "").rpartition(".")[0])
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        value = names.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if isinstance(node.func, ast.Attribute) and root(node.func) == "self" and isinstance(owner, type):
            value = getattr(owner, node.func.attr, None)
        if isinstance(value, FunctionType) and is_user(value.__code__.co_filename):
            yield value
