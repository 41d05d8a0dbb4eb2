"""A program that tests gradients or its loss for bad values itself -> whether a bad one is kept from the weights.

A masked NaN is no fault.  In a graph the pass that looks for the origin tells: an op tested a value that was bad for
the same reason, and every update got finite values or was left out.  In eager code the update itself is still to come
and has a gate of its own: where a test stands in the source between the tape and the update, that gate is to decide.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from . import blame, eagerly
from .gate import Trip
from .origin import Log, find_all
from .recorder import Outcome
from .replaying import dense, kind_of

TESTS = ("IsFinite", "IsNan", "IsInf", "MulNoNan")
COMPARISONS = ("Equal", "NotEqual")  # of a value with itself
WORDS = frozenset(
    ("is_finite", "is_nan", "is_inf", "isfinite", "isnan", "isinf", "nan_to_num", "multiply_no_nan", "is_non_finite")
)
UPDATES = frozenset(("apply_gradients", "apply", "assign", "assign_sub", "assign_add", "minimize"))
LEAVING = (ast.Break, ast.Raise, ast.Return, ast.Assert)
EXITS = ("exit", "quit", "_exit", "abort")
MOST_CALLERS = 4


def is_masked(trip: Trip, outcome: Outcome) -> bool:
    """Whether the step, run again, keeps the bad loss that tripped an output or a gate with finite gradients off."""
    import tensorflow as tf

    run, log, step = outcome.run, outcome.log, trip.place.step
    if (
        step is None
        or trip.place.kind not in ("gradient", "update", "output")
        or not run.losses
        or not (run.updates or step.updates)
    ):
        return False
    if outcome.error is not None or run.where or run.written or (trip.place.kind != "output" and trip.variables):
        return False
    made = origins_of(log, run.losses)
    if trip.place.kind == "output":
        outputs = [value for value in tf.nest.flatten(outcome.outputs, expand_composites=True) if kind_of(value)]
        if not origins_of(log, outputs) <= made:
            return False
    return any(origins_of(log, [], [key]) & made for key in tested(log))


def origins_of(log: Log, values: list[Any], keys: list[int] | None = None) -> set[tuple[int | None, int | None]]:
    """The ops and roots that made these values bad."""
    ids = [value._id for value in map(dense, values) if hasattr(value, "_id")]
    return {(finding.index, finding.root) for finding in find_all(log, [*ids, *(keys or ())])}


def tested(log: Log) -> Iterator[int]:
    """The bad tensors that an op tested."""
    for event in log.events:
        same = event.op in COMPARISONS and len(set(event.inputs)) == 1
        if event.op in TESTS or same:
            yield from (key for key in event.inputs if log.kinds.get(key))


def is_awaited(trip: Trip) -> bool:
    """Whether eager code tests what its tape gave before it updates weights: the gate of the update decides then."""
    if trip.place.kind != "tape" or trip.frame is None:
        return False
    users = blame.user_frames(trip.frame)[: -MOST_CALLERS - 1 : -1]
    return any(masks_later(frame) for frame in users)


def masks_later(frame: FrameType) -> bool:
    """Whether a test stands between the frame's line and the next update behind it, which nothing leaves before."""
    tree = eagerly.parsed(frame.f_code.co_filename)
    scope = tree and eagerly.scope_of(tree, frame)
    if scope is None:
        return False
    later = [node for node in ast.walk(scope) if getattr(node, "lineno", 0) > frame.f_lineno]
    ends = [node.lineno for node in later if isinstance(node, ast.Call) and attribute(node.func) in UPDATES]
    if not ends:
        return False
    between = [node for node in later if getattr(node, "lineno", 0) <= min(ends)]
    calls = [node for node in between if isinstance(node, ast.Call)]
    if any(isinstance(node, LEAVING) for node in between) or any(attribute(each.func) in EXITS for each in calls):
        return False
    names = {**frame.f_globals, **frame.f_locals}
    return any(is_test(each.func, names) for each in calls)


def attribute(node: ast.expr) -> str:
    """The last name of `a.b.name`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_test(node: ast.expr, names: dict[str, Any]) -> bool:
    """Whether a call tests for bad values, or is one of a function of the program's that does."""
    name = attribute(node)
    code = getattr(names.get(name), "__code__", None) if isinstance(node, ast.Name) else None
    return name in WORDS or (code is not None and not WORDS.isdisjoint(names_in(code)))


def names_in(code: CodeType) -> Iterator[str]:
    """The names that a function's code uses, those of its comprehensions and lambdas too."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names_in(inner)
