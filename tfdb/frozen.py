"""The source of a traced function -> what of it does not happen when its graph runs: side effects, frozen values.

Read from the source text alone: a change made inside a function that is called from there is not seen.
"""

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdb import internals_rerun, syntax, tracingonly

MUTATORS = syntax.MUTATORS | {"write"}
RANDOM = ("np.random.", "numpy.random.", "random.", "time.", "datetime.", "uuid.", "os.urandom")
CONTAINERS = (list, dict, set)
KEPT = (bool, int, float, str, type(None), list, dict, set)
SCALARS = (bool, int, float, complex, str, np.generic)


@dataclass(frozen=True, slots=True)
class Effect:
    """A line that ran while the function was traced and does not run with its graph. `kind`: effect or random."""

    line: int
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Frozen:
    """A Python value from outside the function that its graph holds as a constant: its name, and its value now."""

    name: str
    value: Any
    line: int


@functools.lru_cache(maxsize=256)
def parsed(code: Any) -> ast.AST | None:
    """The syntax tree of the function that a code object is of, with the line numbers of its file; None without."""
    tree = syntax.own_tree(code)
    kinds = ast.FunctionDef | ast.Lambda
    return next((node for node in ast.walk(tree) if isinstance(node, kinds)), None) if tree is not None else None


def effects(function: Callable[..., Any]) -> list[Effect]:
    """What of the function's own lines has an effect on Python only, in the order of lines."""
    code = internals_rerun.code_of(function)
    tree = parsed(code) if code is not None else None
    if code is None or tree is None:
        return []
    local = set(code.co_varnames) | set(code.co_cellvars)
    shared = {name for each in ast.walk(tree) if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
    found = {}
    for each in ast.walk(tree):
        if isinstance(each, ast.stmt) and each is not tree and (kind := effect_kind(each, local - shared, shared)):
            found[each.lineno] = Effect(each.lineno, ast.unparse(each).split("\n")[0], kind)
    return [found[line] for line in sorted(found)]


def effect_kind(statement: ast.stmt, local: set[str], shared: set[str]) -> str:
    """ "effect" or "random" when this statement by itself is one, else ""."""
    own = [each for each in ast.iter_child_nodes(statement) if isinstance(each, ast.expr)]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AugAssign | ast.AnnAssign) else targets
    if any(is_outside(target, local, shared) for target in targets):
        return "effect"
    calls = [ast.unparse(call.func) for part in own for call in ast.walk(part) if isinstance(call, ast.Call)]
    if any(call.startswith(RANDOM) for call in calls):
        return "random"
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        if isinstance(called, ast.Name):
            return "effect" if called.id == "print" else ""
        if isinstance(called, ast.Attribute) and called.attr in MUTATORS:
            return "effect" if root(called.value) not in local or isinstance(called.value, ast.Attribute) else ""
    return ""


def is_outside(target: ast.expr, local: set[str], shared: set[str]) -> bool:
    """Whether an assignment to this target changes something that outlives the call."""
    if isinstance(target, ast.Tuple | ast.List):
        return any(is_outside(each, local, shared) for each in target.elts)
    if isinstance(target, ast.Name):
        return target.id in shared
    return isinstance(target, ast.Attribute) or (isinstance(target, ast.Subscript) and root(target) not in local)


def root(node: ast.expr) -> str:
    """The name that an expression of attributes and items starts from: `self` of `self.seen[0]`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def scope(function: Callable[..., Any]) -> dict[str, Any]:
    """The names from outside that the function can read: its globals, then its closure, then `self`."""
    inner = inspect.unwrap(internals_rerun.python_function(function))
    plain = getattr(inner, "__func__", inner)
    names = tracingonly.visible(plain)
    if hasattr(inner, "__self__") and plain.__code__.co_varnames:
        names[plain.__code__.co_varnames[0]] = inner.__self__
    return names


def frozen(function: Callable[..., Any]) -> list[Frozen]:
    """The Python numbers, texts and arrays that the function reads from outside, in the order of lines."""
    code = internals_rerun.code_of(function)
    tree = parsed(code) if code is not None else None
    if code is None or tree is None:
        return []
    names = scope(function)
    changed = tuple(effect.text for effect in effects(function))
    found: dict[str, Frozen] = {}
    for each in ast.walk(tree):
        if isinstance(each, ast.Name | ast.Attribute) and isinstance(each.ctx, ast.Load):
            text = ast.unparse(each)
            value = value_of(each, names, set(code.co_varnames) - {"self"})
            written = any(line.startswith((f"{text}.", f"{text}[", f"{text} ")) for line in changed)
            if text not in found and is_plain(value) and not written:
                found[text] = Frozen(text, value, each.lineno)
    return sorted(found.values(), key=lambda each: each.line)


def value_of(node: ast.expr, names: dict[str, Any], local: set[str]) -> Any:
    """The value of `name` or `name.attribute` read from outside the function, or None."""
    if isinstance(node, ast.Name):
        return None if node.id in local else names.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in local:
        return getattr(names.get(node.value.id), "__dict__", {}).get(node.attr) if not is_module(names, node) else None
    return None


def is_module(names: dict[str, Any], node: ast.Attribute) -> bool:
    """Whether the attribute is a module's: `tf.float32`, `math.pi` are nobody's state."""
    return isinstance(node.value, ast.Name) and inspect.ismodule(names.get(node.value.id))


def is_plain(value: Any) -> bool:
    """Whether a traced function takes the value as a constant: a number, a text, an array, or a list of such."""
    if isinstance(value, list | tuple):
        return 0 < len(value) <= 100 and all(isinstance(item, SCALARS) for item in value)
    return isinstance(value, SCALARS) or isinstance(value, np.ndarray)


def places(function: Callable[..., Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """The namespaces and names that the function may change: those in its source, plain attributes of its models."""
    code = internals_rerun.code_of(function)
    tree = parsed(code) if code is not None else None
    if tree is None:
        return
    names = scope(function)
    plain = inspect.unwrap(internals_rerun.python_function(function))
    module = getattr(getattr(plain, "__func__", plain), "__globals__", {})
    used = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    for owner in {id(part): part for name in used for part in internals_rerun.parts(names.get(name))}.values():
        kept = (name for name, value in owner.items() if type(value) in KEPT and not name.startswith("_"))
        yield from ((owner, name) for name in kept if name != "built")
    for each in ast.walk(tree):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            state = getattr(names.get(each.value.id), "__dict__", None)
            if type(state) is dict and not is_module(names, each):
                yield state, each.attr
        elif isinstance(each, ast.Name) and each.id in module and not inspect.ismodule(module[each.id]):
            yield module, each.id
        elif isinstance(each, ast.Name) and type(names.get(each.id)) in CONTAINERS:
            yield names, each.id  # of a closure: what it holds
