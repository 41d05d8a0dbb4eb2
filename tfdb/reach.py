"""An object -> the expression by which the user's names reach it: `layer.last`, `seen[0]`, `net.cache['h']`.

Only plain containers and attributes are looked through, breadth first, and only so many: no code of the user's runs.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from tfdb import internals

MOST = 20_000  # objects looked at
DEEP = 4


def path_to(wanted: Any, names: Mapping[str, Any], default: str) -> str:
    """The shortest expression for `wanted`, other than a plain name where a longer one tells who keeps it."""
    found = default
    seen: set[int] = set()
    waiting = deque((name, value, 0) for name, value in names.items() if not name.startswith("__"))
    while waiting and len(seen) < MOST:
        path, value, depth = waiting.popleft()
        if value is wanted and depth:
            return path
        if value is wanted:
            found = path
        if depth < DEEP and id(value) not in seen:
            seen.add(id(value))
            waiting.extend((path + step, child, depth + 1) for step, child in children(value))
    return found


def children(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, each with the step that leads to it."""
    if isinstance(value, str | bytes | int | float | type | ModuleType | FunctionType | BuiltinFunctionType):
        return
    if internals.loaded() and isinstance(value, internals.function_class()):  # it keeps what it captured
        return
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", child) for key, child in list(value.items()))
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{number}]", child) for number, child in enumerate(list(value)[:200]))
    else:
        state = getattr(value, "__dict__", None)
        if type(state) is dict:
            yield from ((f".{name}", child) for name, child in list(state.items()) if not name.startswith("__"))
