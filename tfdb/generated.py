"""AutoGraph's generated source -> which of its lines begin a statement of the user's, and which a loop's iteration.

AutoGraph splits one `if` or loop into closures and a call, adds flags for `break`, `continue` and `return`, and maps
nearly all of it to the header's line.  Only one of those lines is where the user's statement begins.
"""

import ast
import functools
import linecache
import re
from collections.abc import Iterator, Mapping, Sequence

STATEMENT, ITERATION = "line", "iteration"
FLAG = re.compile(r"(do_return|break_|continue_)[\d_]*")
CLOSURE = re.compile(r"(if_body|else_body|loop_body|loop_test|extra_test|get_state|set_state)(_\d+)?")
SILENT = ("get_state", "set_state", "extra_test")


def kind(filename: str, lineno: int) -> str | None:
    """What begins on a line of a generated file: STATEMENT, ITERATION (a loop's header again), or None."""
    return kinds(filename).get(lineno)


@functools.lru_cache(maxsize=1024)
def kinds(filename: str) -> Mapping[int, str]:
    """The lines of a generated file on which something of the user's begins; empty when it cannot be read."""
    return {lineno: found for lineno, found in reversed(list(walk(tree_of(filename).body, None)))}


@functools.lru_cache(maxsize=64)
def tree_of(filename: str) -> ast.Module:
    """The tree of a generated file; an empty one when it cannot be read."""
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return ast.Module([], [])


@functools.lru_cache(maxsize=1024)
def closures(filename: str) -> frozenset[int]:
    """The first lines of the functions that AutoGraph made for branches and loops, not of the user's own."""
    functions = (node for node in ast.walk(tree_of(filename)) if isinstance(node, ast.FunctionDef))
    return frozenset(function.lineno for function in functions if is_own(function))


def is_own(function: ast.FunctionDef) -> bool:
    """Whether AutoGraph made the function; it decorates the user's."""
    return CLOSURE.fullmatch(function.name) is not None and not function.decorator_list


def leaving(filename: str, lineno: int) -> tuple[str, ...] | None:
    """The flags, any of which true means that a loop was left by `break` or `return`; None for other lines.

    `lineno` is the line of a `for_stmt` call, or of the test of a `while` loop.
    """
    return flags(filename).get(lineno)


@functools.lru_cache(maxsize=1024)
def flags(filename: str) -> Mapping[int, tuple[str, ...]]:
    """What `leaving` answers, for each line of a generated file that it answers for."""
    found: dict[int, tuple[str, ...]] = {}
    own = [node for node in ast.walk(tree_of(filename)) if isinstance(node, ast.FunctionDef) and is_own(node)]
    tests = {function.name: flags_in(function.body[-1]) for function in own if "_test" in function.name}
    for function in own:
        if function.name.startswith("loop_test"):
            found[function.body[-1].lineno] = tests[function.name]
    for node in ast.walk(tree_of(filename)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called(node.value) == "for_stmt":
            test = node.value.args[1]
            found[node.lineno] = tests.get(test.id, ()) if isinstance(test, ast.Name) else ()
    return found


def flags_in(node: ast.AST) -> tuple[str, ...]:
    """AutoGraph's flags that an expression reads."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and FLAG.fullmatch(each.id)}
    return tuple(sorted(names))


def walk(body: Sequence[ast.stmt], closure: ast.FunctionDef | None) -> Iterator[tuple[int, str]]:
    """Each line that counts in a block of generated code; `closure` is AutoGraph's own function around it."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            yield from of_function(statement)
            continue
        found = of_statement(statement, closure)
        if found is not None:
            yield statement.lineno, found
        for handler in getattr(statement, "handlers", ()):
            if not is_guard(handler):
                yield handler.lineno, STATEMENT
        for block in blocks(statement):
            yield from walk(block, closure)


def of_function(function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    """A function of the user's begins on its `def` line; one of AutoGraph's own does not count."""
    own = is_own(function)
    if own and function.name.startswith(SILENT):
        return
    if not own:
        yield function.lineno, STATEMENT
    yield from walk(function.body, function if own else None)


def of_statement(statement: ast.stmt, closure: ast.FunctionDef | None) -> str | None:
    """What a statement begins."""
    name = closure.name if closure is not None else ""
    if isinstance(statement, ast.Nonlocal | ast.Global):
        return None
    if isinstance(statement, ast.Return):
        return ITERATION if name.startswith("loop_test") else STATEMENT
    if isinstance(statement, ast.Assign):
        if closure is not None and name.startswith("loop_body") and is_argument(statement.value, closure):
            return ITERATION
        return None if is_scaffolding(statement) else STATEMENT
    if isinstance(statement, ast.Expr) and called(statement.value) == "if_stmt":
        assert isinstance(statement.value, ast.Call)
        return None if tests_flag(statement.value.args[0]) else STATEMENT
    return STATEMENT


def is_guard(handler: ast.ExceptHandler) -> bool:
    """Whether AutoGraph put this handler around a `return`: it takes the flag back and raises again."""
    first = handler.body[0]
    return handler.type is None and isinstance(first, ast.Assign) and is_scaffolding(first)


def is_scaffolding(statement: ast.Assign) -> bool:
    """Whether the assignment only declares a name: `x = ag__.Undefined("x")`, `break_ = False`."""
    if called(statement.value) == "Undefined":
        return True
    return all(isinstance(target, ast.Name) and FLAG.fullmatch(target.id) for target in statement.targets) and (
        isinstance(statement.value, ast.Constant) and statement.value.value is False
    )


def tests_flag(test: ast.expr) -> bool:
    """Whether an `if` is AutoGraph's, made for what follows a `break`, `continue` or `return`."""
    if called(test) == "not_":
        assert isinstance(test, ast.Call)
        return isinstance(test.args[0], ast.Name) and FLAG.fullmatch(test.args[0].id) is not None
    if called(test) == "and_":
        assert isinstance(test, ast.Call)
        return all(isinstance(part, ast.Lambda) and tests_flag(part.body) for part in test.args)
    return False


def called(value: ast.expr) -> str | None:
    """The name of AutoGraph's function that an expression calls, or None."""
    function = value.func if isinstance(value, ast.Call) else None
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "ag__":
        return function.attr
    return None


def is_argument(value: ast.expr, function: ast.FunctionDef) -> bool:
    """Whether the expression is the name of one of the function's arguments."""
    return isinstance(value, ast.Name) and any(value.id == argument.arg for argument in function.args.args)


def blocks(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    """The blocks of a compound statement."""
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, ())
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body
