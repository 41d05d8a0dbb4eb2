"""Live functions, classes and values -> the text that makes them again in another process, with what they need.

Values go into arrays or literals; functions, classes, and the statements that built an object are copied from the
program's source.  What comes out is in an order in which it can run.
"""

from __future__ import annotations

import ast
import dis
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from tfdb import internals, internals_gate, internals_rerun, tracingonly
from tfdb.errors import TfdbError
from tfdb.sourcemap import in_site_packages, is_hidden
from tfdb.sources import (
    Scope,
    assigned,
    bodies,
    bound_in,
    building,
    import_of,
    lambda_text,
    loaded,
    module_tree,
    sets_up,
)

LITERAL = 2000  # characters of a literal, at most
DEPTH = 3  # attributes followed from a name to an object


@dataclass
class Rebuilt:
    """The text so far: imports, then statements; `arrays` are saved beside it.

    `objects` and `variables` are the names that have state; `saved` is what the arrays are called in the text.
    """

    saved: str = "saved"
    imports: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    done: set[str] = field(default_factory=set)

    def settings(self, scope: Scope) -> None:
        """Add the calls at the top of a file that set up the process: policies, seeds, checks."""
        for statement in module_tree(scope.filename).body:
            if isinstance(statement, ast.Expr) and sets_up(statement.value, scope):
                self.needed(sorted(loaded(statement)), scope)
                self.statements.append(ast.unparse(statement))

    def function(self, function: FunctionType, scope: Scope) -> None:
        """Add a function's source under its own name, decorators included, and what it needs."""
        self.source(function.__name__, function.__code__, names_of(function.__code__), scope_of(function, scope))

    def source(self, name: str, code: Any, used: set[str], scope: Scope) -> None:
        """Add the source of a function or class and the names it uses, those first."""
        if name in self.done:
            return
        self.done.add(name)
        try:
            text = textwrap.dedent(inspect.getsource(code))
        except (OSError, TypeError) as error:
            raise TfdbError(f"{name} has no source to copy into the file") from error
        text = re.sub(r"^(\s+)nonlocal ", r"\1global ", text, flags=re.MULTILINE)
        used = used | loaded(ast.parse(text))
        self.needed(sorted(used - {name}), scope)
        self.statements.append(text.rstrip())

    def needed(self, names: Sequence[str], scope: Scope) -> None:
        """Add what these names stand for in the scope, as far as they are the program's own or imported."""
        for name in names:
            if name in scope.names and name not in self.done and not name.startswith("__"):
                self.name(name, scope.names[name], scope)

    def name(self, name: str, value: Any, scope: Scope) -> None:
        """Add one name with its value."""
        plain = inspect.unwrap(internals_rerun.python_function(value)) if callable(value) else value
        if statement := import_of(name, scope.filename):
            self.done.add(name)
            self.add_import(statement, scope.filename)
        elif isinstance(value, ModuleType):
            self.done.add(name)
            self.imports.append(f"import {value.__name__} as {name}")
        elif isinstance(plain, FunctionType) and is_own(plain.__code__.co_filename):
            if plain.__name__ == "<lambda>":
                self.anonymous(name, plain, value, scope)
                return
            self.function(plain, scope)
            if plain.__name__ != name or not decorated(plain, value):
                self.done.add(name)
                self.statements.append(f"{name} = {wrapped(plain.__name__, plain, value)}")
        elif isinstance(value, type) and is_own(sys.modules[value.__module__].__dict__.get("__file__") or ""):
            self.source(name, value, class_names(value), Scope(scope.filename, class_scope(value, scope)))
        else:
            self.value(name, value, scope)

    def anonymous(self, name: str, function: FunctionType, value: Any, scope: Scope) -> None:
        """Add a lambda, or what it was made into, under a name."""
        self.done.add(name)
        inner = scope_of(function, scope)
        for statement in building(name, Scope(inner.filename, scope.names, scope.function)):
            if any(isinstance(node, ast.Lambda) for node in ast.walk(statement)):
                self.needed(sorted((names_of(function.__code__) | loaded(statement)) - {name}), inner)
                self.statements.append(ast.unparse(statement))
                return
        text = lambda_text(function)
        if text is None:
            raise TfdbError(f"{name}: its lambda cannot be cut out of the line that it stands in")
        self.needed(sorted(names_of(function.__code__) - {name}), inner)
        self.statements.append(f"{name} = {wrapped(text, function, value)}")

    def value(self, name: str, value: Any, scope: Scope) -> None:
        """Add a name for a value: as a literal or array where it is one, else by the statements that built it."""
        self.done.add(name)
        try:
            self.statements.append(f"{name} = {self.expression(value, name)}")
            if hasattr(value, "handle"):
                self.variables.append(name)
        except TfdbError:
            self.built(name, value, scope)

    def built(self, name: str, value: Any, scope: Scope) -> None:
        """Add the program's own statements that assign the name and set its object up."""
        found = building(name, scope)
        if not found:
            raise TfdbError(f"{name} ({type(value).__name__}) is not made by a plain assignment that could be copied")
        for statement in found:
            inside = {each for each in loaded(statement) if bound_in(each, statement)}
            self.needed(sorted(loaded(statement) - inside - {name}), scope)
            self.statements.append(ast.unparse(statement))
        self.objects[name] = value

    def add_import(self, statement: str, filename: str) -> None:
        """Add an import; a module that lies beside the program gets its folder on the path."""
        folder = os.path.dirname(os.path.abspath(filename))
        module = re.split(r"[\s.]", statement.split()[1])[0]
        beside = any(os.path.exists(os.path.join(folder, f"{module}{end}")) for end in (".py", os.sep + "__init__.py"))
        if beside and folder not in self.folders:
            self.folders.append(folder)
        if statement not in self.imports:
            self.imports.append(statement)

    def expression(self, value: Any, key: str) -> str:
        """Python text whose value this is; arrays and tensors are saved under `key`.

        Raises:
            TfdbError: the value is no tensor, array, literal or container of these.
        """
        if internals_gate.is_symbolic_eagerly(value):
            return self.tensor(value, key)
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
            self.arrays[key] = np.array(value)
            return f"{self.saved}[{key!r}]" + ("[()]" if isinstance(value, np.generic) else "")
        if isinstance(value, float) and not np.isfinite(value):
            return f'float("{value}")'
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return checked(repr(value), key)
        if type(value) in (list, tuple):
            parts = [self.expression(item, f"{key}/{index}") for index, item in enumerate(value)]
            comma = "," if len(parts) == 1 else ""
            return f"[{', '.join(parts)}]" if type(value) is list else f"({', '.join(parts)}{comma})"
        if type(value) is dict:
            parts = [f"{name!r}: {self.expression(item, f'{key}/{name}')}" for name, item in value.items()]
            return f"{{{', '.join(parts)}}}"
        return self.tensorflow_expression(value, key)

    def tensorflow_expression(self, value: Any, key: str) -> str:
        """`expression` for TensorFlow's own kinds of values."""
        import tensorflow as tf

        if isinstance(value, tf.DType):
            return f"tf.{value.name}"
        if isinstance(value, tf.RaggedTensor):
            splits = self.expression(list(value.nested_row_splits), f"{key}/splits")
            values = self.tensor(value.flat_values, f"{key}/values")
            return f"tf.RaggedTensor.from_nested_row_splits({values}, {splits})"
        if isinstance(value, tf.SparseTensor):
            names = ("indices", "values", "dense_shape")
            parts = [self.tensor(getattr(value, name), f"{key}/{name}") for name in names]
            return f"tf.SparseTensor({', '.join(parts)})"
        if isinstance(value, tf.Variable) and not internals.is_symbolic(value.handle):
            known = self.tensor(value.read_value(), key)
            return f"tf.Variable({known}, trainable={value.trainable}, name={value.name.removesuffix(':0')!r})"
        raise TfdbError(f"{key}: a {type(value).__name__} cannot be written into a file")

    def tensor(self, value: Any, key: str) -> str:
        """Python text for an eager tensor."""
        array = np.asarray(value)
        if array.dtype == object:
            return checked(f"tf.constant({array.tolist()!r})", key)
        if array.dtype.kind == "V" or array.dtype.type.__module__ != "numpy":  # bfloat16 and its kin
            self.arrays[key] = array.view(f"u{array.dtype.itemsize}")
            return f"tf.bitcast({self.saved}[{key!r}], tf.{value.dtype.name})"
        self.arrays[key] = np.array(array)
        return f"tf.constant({self.saved}[{key!r}])"


def checked(text: str, key: str) -> str:
    """The literal, if it is not too long for a file that people read."""
    if len(text) > LITERAL:
        raise TfdbError(f"{key} is too long to be written as text")
    return text


def is_own(filename: str) -> bool:
    """Whether the file is the program's."""
    return bool(filename) and not is_hidden(filename) and not in_site_packages(filename)


def wrapped(text: str, function: FunctionType, value: Any) -> str:
    """The text of a function made into the `tf.function` that the value is, where it is one."""
    jit = ", jit_compile=True" if internals_rerun.compiles(value) else ""
    return text if function is value else f"tf.function({text}{jit})"


def decorated(function: FunctionType, value: Any) -> bool:
    """Whether the function's source already makes the value: it is the function, or a decorator line made it."""
    return function is value or inspect.getsource(function).lstrip().startswith("@")


def names_of(code: CodeType) -> set[str]:
    """The names that a function's code reads from outside, nested functions included."""
    inner = [names_of(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    read = {str(each.argval) for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return (read | set(code.co_freevars)).union(*inner)


def scope_of(function: FunctionType, outer: Scope) -> Scope:
    """The names a function sees: its globals and closure."""
    return Scope(function.__code__.co_filename or outer.filename, tracingonly.visible(function))


def methods(owner: type) -> Iterator[FunctionType]:
    """The Python functions among a class's own attributes."""
    for value in vars(owner).values():
        value = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
        plain = inspect.unwrap(internals_rerun.python_function(value)) if callable(value) else None
        if isinstance(plain, FunctionType):
            yield plain


def class_names(owner: type) -> set[str]:
    """The names that a class's methods read from outside."""
    return set().union(*(names_of(method.__code__) for method in methods(owner)))


def class_scope(owner: type, outer: Scope) -> dict[str, Any]:
    """The names that a class's methods see."""
    names = {**vars(sys.modules[owner.__module__]), **outer.names}
    for method in methods(owner):
        names.update(scope_of(method, outer).names)
    return names


def path_to(wanted: Any, scopes: Sequence[Scope]) -> tuple[str, str, Scope] | None:
    """The expression under which a scope reaches an object, the name it starts from, and that scope.

    A name that its own function assigns comes before one that it was only passed as.
    """
    first = None
    for each in paths_to(wanted, scopes):
        if is_made_in(each[1], each[2]):
            return each
        first = first or each
    return first


def is_made_in(name: str, scope: Scope) -> bool:
    """Whether a scope's own statements assign the name."""
    return any(assigned(name, node) for node in bodies(scope) if getattr(node, "name", "") == scope.function)


def paths_to(wanted: Any, scopes: Sequence[Scope]) -> Iterator[tuple[str, str, Scope]]:
    """All that `path_to` may choose from: names of the object itself first, then those of what it is inside of."""
    for scope in scopes:
        for name, value in scope.names.items():
            if value is wanted and name.isidentifier() and name != "self":
                yield name, name, scope
    for scope in scopes:
        for name, value in scope.names.items():
            found = path_inside(value, wanted, DEPTH) if name != "self" and is_object(value) else None
            if found:
                yield name + found, name, scope


def path_inside(value: Any, wanted: Any, depth: int) -> str | None:
    """The attributes and items that lead from an object to one inside of it."""
    if value is wanted:
        return ""
    if depth == 0:
        return None
    steps = [(f"[{index}]", item) for index, item in enumerate(value)] if isinstance(value, list | tuple) else []
    steps += [(f".{name}", item) for name, item in getattr(value, "__dict__", {}).items() if name.isidentifier()]
    for step, item in steps:
        if is_object(item) or item is wanted:
            found = path_inside(item, wanted, depth - 1)
            if found is not None:
                return step + found
    return None


def is_object(value: Any) -> bool:
    """Whether a value may hold others worth following."""
    return not isinstance(value, ModuleType | type | FunctionType | str | bytes | int | float | np.ndarray)
