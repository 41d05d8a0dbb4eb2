"""The values of a watch's stop: where a bad value was made, and the report that says so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

from .records import TensorSummary

SCHEMA = 1
BEFORE_UPDATE = ("gradient", "tape", "update", "scaled")  # gates that stand before the weights are written
WRITING = (*BEFORE_UPDATE, "variable", "load")  # gates that stand before something is written


@dataclass(frozen=True, slots=True)
class UserLine:
    """One line of the user's program."""

    file: str
    line: int
    function: str

    @property
    def place(self) -> str:
        """`train.py:24`."""
        return f"{os.path.basename(self.file)}:{self.line}"


@dataclass(frozen=True, slots=True)
class NamedSummary:
    """A value of a report: the name it has in the program ("" when none), what is in it, and the element to blame."""

    name: str
    summary: TensorSummary
    blamed: tuple[int, ...] | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class PathStep:
    """One value on the way from the origin to the loss or a gradient: `low` and `high` are of finite elements."""

    name: str
    low: float | None
    high: float | None
    bad: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """One live frame of the user's stack at the origin; the two mappings hold real values.

    `done` says that it is none of the stack: a forward frame to look into, whose line had run before.
    """

    line: UserLine
    globals: Mapping[str, Any] = field(repr=False)
    locals: Mapping[str, Any] = field(repr=False)
    done: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What stopped the program.

    `reason` is nan, inf, grad, exception, none-grad or watch; `phase` is data, forward, gradient, update or variable.
    `line` is the user line that made the value; for a gradient op (`op`) that of the op it is the gradient of
    (`forward_op`). `stack` is outermost first. `detail` is the library line, where the op is inside a library;
    `layers` are the names of the Keras layers and models it is inside of, innermost first.

    Where it was stopped: `place` is the kind of gate (gradient, tape, update, scaled, variable, load, output) and
    `stopped` what was bad there (nan, inf; at a limit `grad over`, `loss under`), `seen` the names of bad values there
    that are no variables; `during` names the step that ran, `clean` says that all weights it read were finite, `skips`
    that going on leaves the update out. Of lost gradients, `explained` are those that this line is to blame for; the
    notes tell of the others.
    """

    reason: str
    line: UserLine | None
    op: str | None
    forward_op: str | None = None
    phase: str = "forward"
    step: int | None = None
    cause: str = ""
    fix: str = ""
    inputs: tuple[NamedSummary, ...] = ()
    output: NamedSummary | None = None
    variables: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()
    watched: int = 0
    stack: tuple[UserLine, ...] = ()
    path: tuple[PathStep, ...] = ()
    notes: tuple[str, ...] = ()
    detail: UserLine | None = None
    layers: tuple[str, ...] = ()
    place: str = ""
    stopped: str = ""
    seen: tuple[str, ...] = ()
    during: str = ""
    clean: bool = False
    skips: bool = False

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values; files, lines and functions flat at the top."""
        line = self.line
        place = {"file": line and line.file, "line": line and line.line, "function": line and line.function}
        rest = {name: plain(getattr(self, name)) for name in self.__dataclass_fields__ if name != "line"}
        return {"schema": SCHEMA, "reason": rest.pop("reason"), **place, **rest}


def plain(value: Any) -> Any:
    """Nested dataclasses, tuples and mappings as what `json` can write; infinities and NaN as text."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)
