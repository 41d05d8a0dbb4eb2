"""A tensor that left its graph -> the line that let it out, and the line that used it, in another graph too."""

import dis
import inspect
import re
from collections.abc import Iterator
from types import FrameType
from typing import Any

from tfdb import internals, internals_errors, internals_rerun, reach, syntax
from tfdb.evidence import globals_here, locals_of, looked_up, place_frame, source_text
from tfdb.explain import Facts, Leak, Place
from tfdb.explanations import explain
from tfdb.frames import LiveFrame
from tfdb.sourcemap import is_hidden


def leak_of(facts: Facts, entry: FrameType | LiveFrame, deepest: FrameType | None, eager: bool = False) -> Leak | None:
    """The tensor that left its graph, if that is the error; in eager code, wanting its value is."""
    wanted = eager and re.search(r"symbolic tf\.Tensor|'SymbolicTensor' object", facts.message)
    if facts.place is None or not ("out of scope" in facts.message or wanted):
        return None
    names = {**globals_here(entry), **locals_of(entry)}
    for expression in syntax.expressions(facts.text, facts.place.lineno):
        value = looked_up(expression, locals_of(entry), entry)
        if internals.is_symbolic(value):
            return leak(reach.path_to(value, names, expression), value)
    for frame in internals_errors.outward(deepest):
        if not is_hidden(frame.f_code.co_filename):
            break
        for value in tensors_in(frame):
            if value.name and (f"'{value.name}'" in facts.message or f"({value.name})" in facts.message):
                return leak(reach.path_to(value, names, value.name), value)
    return None


def tensors_in(frame: FrameType) -> Iterator[Any]:
    """The symbolic tensors among a frame's locals and their items."""
    for value in frame.f_locals.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if internals.is_symbolic(item):
                yield item


def leak(expression: str, value: Any) -> Leak | None:
    """What is known of a symbolic tensor outside of its graph: where the user's code made it."""
    if not internals.is_symbolic(value):
        return None
    places = [Place(*each) for each in internals_errors.places(value.op) if not is_hidden(each[0])]
    if not places:
        return None
    return Leak(expression, value.name, places[-1], source_text(places[-1].filename), value.graph.name)


def explained_leak(found: Leak) -> str:
    """The sentence on a leaked tensor."""
    return explain(Facts("", "", leak=found)) or ""


def frames_of_use(deepest: FrameType | None, tensor: str) -> tuple[LiveFrame, ...]:
    """The user's frames inside a graph at the op that uses a tensor of another graph; empty where none does.

    `deepest` is the innermost frame of the call of that graph, which did not begin; `tensor` is the tensor's name.
    """
    for frame in internals_errors.outward(deepest):
        captures = (pair for graph in internals_errors.graphs_of_call(frame) for pair in graph.captures)
        symbols = [inside for outside, inside in captures if is_leaked(outside, tensor)]
        if symbols:  # a placeholder is made when a line first uses it; a branch gets one for what the other one uses
            taken = next((symbol for symbol in symbols if symbol.consumers()), symbols[0])
            names = next((found for f in internals_errors.outward(frame) if (found := arguments(f))), {})
            places = [Place(*each) for each in internals_errors.places_inside(taken.op) if not is_hidden(each[0])]
            places = places or [each for each in map(returning, internals_errors.outward(frame)) if each is not None]
            return tuple(place_frame(each, {} if number else names) for number, each in enumerate(places))
    return ()


def taken(inside: tuple[LiveFrame, ...]) -> str:
    """The sentence on a graph that was to run with a leaked tensor."""
    return f"{inside[0].function}() has it in its graph since it was traced; with that the call could not begin"


def is_leaked(value: Any, tensor: str) -> bool:
    """Whether a captured value is a symbolic tensor of this name."""
    return internals.is_symbolic(value) and value.name == tensor


def returning(frame: FrameType) -> Place | None:
    """The line where the `tf.function` returns that a frame calls; where it begins, if there are more."""
    call = internals_errors.function_call(frame)
    code = internals_rerun.code_of(call[0]) if call is not None else None
    if code is None:
        return None
    ends = [each for each in dis.get_instructions(code) if each.opname.startswith("RETURN_")]
    starts = [(offset, line) for offset, line in dis.findlinestarts(code) if line]
    lines = {max(start for start in starts if start[0] <= end.offset)[1] for end in ends}
    return Place(code.co_filename, lines.pop() if len(lines) == 1 else code.co_firstlineno, code.co_name)


def arguments(frame: FrameType) -> dict[str, Any]:
    """By name, what a `tf.function` was called with in a frame that is its `__call__`."""
    call = internals_errors.function_call(frame)
    if call is None:
        return {}
    try:
        found = inspect.signature(internals_rerun.python_function(call[0])).bind(*call[1], **call[2])
    except (TypeError, ValueError):
        return {}
    return dict(found.arguments)
