"""The frames of a stop -> the gradient that the program asks for there: tape, targets, sources, as the code says it.

Used where no hook saw the call: after "No gradients provided", or at a prompt before the gradient is computed.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import detours, internals_gradients
from .report import UserLine
from .sourcemap import Activation

LOSSES = ("loss", "loss_value", "total_loss", "losses", "cost", "objective")


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of `tape.gradient`; `sources` is empty where the code's own cannot be evaluated."""

    tape: Any
    target: Any
    sources: Any
    frame: Any


def asked(stack: Iterable[Activation]) -> Asked | None:
    """The gradient that the innermost frame with a tape asks for; `stack` is innermost first."""
    for activation in stack:
        names = activation.names()
        tapes = tapes_among(names)
        if not tapes:
            continue
        found = in_code(activation, names, tapes)
        if found is not None:
            return found
        target = next((names[name] for name in LOSSES if name in names), None)
        if target is not None:
            return Asked(next(iter(tapes.values())), target, [], activation.base)
    return None


def in_code(activation: Activation, names: Mapping[str, Any], tapes: Mapping[str, Any]) -> Asked | None:
    """The call of a tape's `gradient` nearest before the line, or after it."""
    calls = list(gradient_calls(activation, tapes))
    calls.sort(key=lambda call: (call.lineno > activation.lineno, abs(call.lineno - activation.lineno)))
    for call in calls:
        target, sources = (evaluated(part, names, activation.base.f_globals) for part in arguments(call))
        if target is not None:
            tape = tapes[call.func.value.id]  # type: ignore[attr-defined]
            return Asked(tape, target, [] if sources is None else sources, activation.base)
    return None


def tapes_among(names: Mapping[str, Any]) -> dict[str, Any]:
    """The names that stand for tapes."""
    kind = internals_gradients.tape_class()
    return {name: value for name, value in names.items() if isinstance(value, kind)}


def text_of(activation: Activation) -> Iterator[ast.AST]:
    """All nodes of the text of a function."""
    function = detours.function_at(activation.filename, activation.lineno)
    yield from ast.walk(function) if function is not None else ()


def gradient_calls(activation: Activation, tapes: Collection[str]) -> Iterator[ast.Call]:
    """The calls `tape.gradient(...)` in the text of a function."""
    for node in text_of(activation) if tapes else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "gradient":
            if isinstance(node.func.value, ast.Name) and node.func.value.id in tapes and node.args:
                yield node


def results(activation: Activation) -> set[str]:
    """The names that a function gives to what `tape.gradient(...)` returns."""
    calls = gradient_calls(activation, tapes_among(activation.names()))
    places = {(call.lineno, call.col_offset) for call in calls}
    found = [node for node in text_of(activation) if isinstance(node, ast.Assign)] if places else []
    return {
        target.id
        for node in found
        if (node.value.lineno, node.value.col_offset) in places
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def losses(stack: Iterable[Activation]) -> Iterator[tuple[Any, UserLine]]:
    """The targets with values that the frames' code differentiates, each with its line; inner frames first."""
    for activation in stack:
        names = activation.names()
        for call in gradient_calls(activation, tapes_among(names)):
            target = evaluated(arguments(call)[0], names, activation.base.f_globals)
            if target is not None:
                yield target, UserLine(activation.filename, call.lineno, activation.function)


def arguments(call: ast.Call) -> tuple[ast.expr | None, ast.expr | None]:
    """Targets and sources as they are written."""
    keywords = {word.arg: word.value for word in call.keywords}
    given = [*call.args, None, None]
    return given[0] or keywords.get("target"), given[1] or keywords.get("sources")


def evaluated(part: ast.expr | None, names: Mapping[str, Any], outer: Mapping[str, Any]) -> Any:
    """The value of an expression that only looks things up; None for any other, and where it fails."""
    if part is None or any(isinstance(node, ast.Call | ast.Await | ast.NamedExpr) for node in ast.walk(part)):
        return None
    try:
        return eval(compile(ast.Expression(part), "<tape.gradient>", "eval"), {**outer, **names})
    except Exception:  # the user's own attribute access may raise anything
        return None
