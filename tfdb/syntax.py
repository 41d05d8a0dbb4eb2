"""The source text of a file and a line in it -> the statements that an explanation names.

Everything answers with nothing where the text cannot be parsed or has no such statement: source may be missing.
"""

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

Block = Sequence[ast.stmt]
# The methods by which Python's containers are changed.
MUTATORS = frozenset(
    "append appendleft extend insert add update pop popleft popitem remove discard clear setdefault".split()
)
ADDING = ("append", "extend", "insert", "add", "update", "setdefault", "appendleft", "put")


@functools.lru_cache(maxsize=32)
def parsed(text: str) -> ast.Module | None:
    """The syntax tree, or None for what is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def own_tree(function: Any) -> ast.Module | None:
    """The syntax tree of a function's (or a code object's) own source, numbered as its file; None without source."""
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    return ast.increment_lineno(tree, first - 1)


def nodes(text: str) -> Iterator[ast.AST]:
    """Every node of the text's syntax tree."""
    tree = parsed(text)
    return ast.walk(tree) if tree is not None else iter(())


def covers(node: ast.AST, line: int) -> bool:
    """Whether the node has the line."""
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", 0) or 0)


def statement_at(text: str, line: int) -> ast.stmt | None:
    """The innermost statement at the line; of a branch or loop, only where the line is its head."""
    found = [node for node in nodes(text) if isinstance(node, ast.stmt) and covers(node, line)]
    return max(found, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)


def first_line(text: str, line: int) -> int:
    """The first line of the statement that `line` continues; `line` itself where it begins one."""
    statement = statement_at(text, line)
    if statement is None or isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Try):
        return line
    parts = [node for part in head(statement) for node in ast.walk(part) if covers(node, line)]
    inner = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    return statement.lineno if parts and not any(isinstance(part, inner) for part in parts) else line


def function_named(text: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function of that dotted name in the text: `step`, `Model.call`; of several the last, as Python has it."""
    block: Sequence[ast.AST] = [parsed(text) or ast.Module([], [])]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for part in name.split("."):
        inside = [node for each in block for node in scope(each)]
        block = [node for node in inside if isinstance(node, kinds) and node.name == part]
    functions = [node for node in block if not isinstance(node, ast.ClassDef)]
    return functions[-1] if functions else None  # type: ignore[return-value]


def scope(node: ast.AST) -> Iterator[ast.AST]:
    """The statements of a module, class or function; of nested functions and classes only the heads."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from scope(child)


def first_body_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The line where the function's body begins to run: that of its first statement but the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None and function.body[1:] else function.body
    first = body[0]
    return min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", ()))])


def body_line(text: str, line: int) -> int:
    """The line where a function's body begins, for a line of the function's head; any other line as it is."""
    for node in nodes(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first <= line < node.body[0].lineno:
                return first_body_line(node)
    return line


def calls(text: str, line: int) -> bool:
    """Whether the statement at the line, no branch or loop, calls something."""
    statement = statement_at(text, line)
    if not isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign):
        return False
    return any(isinstance(node, ast.Call) for node in ast.walk(statement))


def head(node: ast.stmt | None) -> list[ast.AST]:
    """What a statement itself evaluates: of a branch or loop its test or iterable, of others all of it."""
    if node is None:
        return []
    if isinstance(node, ast.If | ast.While):
        return [node.test]
    if isinstance(node, ast.For):
        return [node.iter]
    if isinstance(node, ast.With):
        return [item.context_expr for item in node.items]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return []
    return [node]


def names_read(text: str, line: int) -> list[str]:
    """The names that the statement at the line reads, in order: `x`, and attributes of names: `self.table`."""
    statement = statement_at(text, line)
    found: dict[str, None] = {}
    called = set()
    for part in head(statement):
        for node in ast.walk(part):
            if isinstance(node, ast.Call):
                called.add(ast.unparse(node.func))
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                name = ast.unparse(node)
                if name.replace(".", "").isidentifier():
                    found[name] = None
    return [name for name in sorted(found, key=lambda name: position(text, line, name)) if name not in called]


def position(text: str, line: int, name: str) -> int:
    """Where a name first stands in the line's text."""
    lines = text.splitlines()
    return lines[line - 1].find(name) if line <= len(lines) else 0


def stores(node: ast.AST, name: str) -> list[int]:
    """The lines inside a node that give the name a value, in order; `x.append(...)` counts as well."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each.id == name:
            found.add(each.lineno)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each) == name:
            found.add(each.lineno)
    return sorted(found)


def stores_in(block: Block, name: str) -> list[int]:
    """The lines of a block that give the name a value."""
    return sorted({line for statement in block for line in stores(statement, name)})


def loop_at(text: str, line: int) -> ast.For | ast.While | None:
    """The loop whose head is at the line, else the innermost around it."""
    loops = [node for node in nodes(text) if isinstance(node, ast.For | ast.While) and covers(node, line)]
    return max(loops, key=lambda node: node.lineno, default=None)


def while_stores(text: str, line: int) -> dict[str, list[int]]:
    """Of the body of the `tf.while_loop` called at the line: its arguments that it assigns to, and where."""
    calls = [node for node in nodes(text) if isinstance(node, ast.Call) and covers(node, line)
             and isinstance(node.func, ast.Attribute) and node.func.attr == "while_loop"]  # fmt: skip
    for call in calls:
        given = [each.value for each in call.keywords if each.arg == "body"] or call.args[1:2]
        names = [each.id for each in given if isinstance(each, ast.Name)]
        found = [node for node in nodes(text) if isinstance(node, ast.FunctionDef) and node.name in names]
        body = max((node for node in found if node.lineno <= line), key=lambda node: node.lineno, default=None)
        if body is not None:
            stores = {each.arg: stores_in(body.body, each.arg) for each in body.args.args}
            return {name: lines for name, lines in stores.items() if lines}
    return {}


def branch_at(text: str, line: int) -> ast.If | None:
    """The `if` whose head is at the line, else the innermost around it."""
    branches = [node for node in nodes(text) if isinstance(node, ast.If) and covers(node, line)]
    return max(branches, key=lambda node: node.lineno, default=None)


def item_names(text: str, line: int) -> tuple[str, ...]:
    """The names that the `for` loops around the line, whose bodies have it, give their items."""
    loops = [
        node for node in nodes(text) if isinstance(node, ast.For) and any(covers(each, line) for each in node.body)
    ]
    targets = [each for loop in loops for each in ast.walk(loop.target)]
    return tuple(sorted({each.id for each in targets if isinstance(each, ast.Name)}))


def loop_stores(text: str, line: int, name: str) -> list[int]:
    """The lines in the body of the loop at `line` that give the name a value."""
    loop = loop_at(text, line)
    return stores_in(loop.body, name) if loop is not None else []


def branch_stores(text: str, line: int, name: str, orelse: bool) -> list[int]:
    """The lines in one branch of the `if` at `line` that give the name a value."""
    branch = branch_at(text, line)
    if branch is None:
        return []
    return stores_in(branch.orelse if orelse else branch.body, name)


def branch_returns(text: str, line: int, orelse: bool) -> list[int]:
    """The lines of `return` statements in one branch of the `if` at `line`."""
    branch = branch_at(text, line)
    block: Block = () if branch is None else (branch.orelse if orelse else branch.body)
    return sorted(node.lineno for statement in block for node in ast.walk(statement) if isinstance(node, ast.Return))


def function_around(text: str, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | None:
    """The innermost function that has the line."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    found = [node for node in nodes(text) if isinstance(node, kinds) and covers(node, line)]
    return max(found, key=lambda node: node.lineno, default=None)  # type: ignore[return-value]


def leaking_line(text: str, line: int, expression: str) -> int | None:
    """The line, in the function around `line`, that puts a value where `expression` finds it outside.

    `expression` is as the user reads it: `layer.last`, `seen[0]`, `cache["y"]`, `kept`.
    """
    function = function_around(text, line)
    try:
        wanted = ast.parse(expression, mode="eval").body
    except SyntaxError:
        return None
    if function is None:
        return None
    exact = next((getattr(node, "lineno", None) for node in ast.walk(function) if puts(node, wanted)), None)
    return exact or escape(function, line)


def escape(function: ast.AST, line: int) -> int | None:
    """The first line that keeps, outside of the function, what its line `line` made: on an object, in a container."""
    made = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.lineno == line
    }
    outer = {name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    for node in ast.walk(function):
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if not isinstance(node, ast.Assign | ast.Expr) or not (node.lineno == line or names & made):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else []
        kept = any(isinstance(each, ast.Attribute | ast.Subscript) or last_name(each) in outer for each in targets)
        if kept or (isinstance(node, ast.Expr) and adds(node.value)):
            return node.lineno
    return None


def adds(node: ast.AST) -> bool:
    """Whether this is a call that puts something into a container: `seen.append(y)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDING


def puts(node: ast.AST, wanted: ast.expr) -> bool:
    """Whether a node of the leaking function stores to the place that `wanted` reads."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(wanted, ast.Subscript):
        return adds(node) and last_name(node.func.value) == last_name(wanted.value)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return isinstance(wanted, ast.Attribute) and node.attr == wanted.attr
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return isinstance(wanted, ast.Subscript) and last_name(node.value) == last_name(wanted.value)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return isinstance(wanted, ast.Name) and node.id == wanted.id
    return False


def last_name(node: ast.AST) -> str | None:
    """The last name of a dotted expression: `seen` of `self.seen`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def expressions(text: str, line: int) -> list[str]:
    """What the statement at the line reads: names, attributes, subscripts; longest first."""
    statement = statement_at(text, line)
    kinds = (ast.Name, ast.Attribute, ast.Subscript)
    found = {
        ast.unparse(node): None
        for part in head(statement)
        for node in ast.walk(part)
        if isinstance(node, kinds) and isinstance(node.ctx, ast.Load)
    }
    return sorted(found, key=len, reverse=True)
