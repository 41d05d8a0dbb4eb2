"""A program with stops -> one record per stop: where it was, and what expressions gave there.

    visits(program, "x", "type(self).__name__")

Every stop opens the real prompt machinery of tfdb; instead of a user, this one evaluates the expressions and types `c`.
"""

import contextlib
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from tfdb import prompt, session
from tfdb.report import Report
from tfdb.watching import Watching


@dataclass(frozen=True)
class Visit:
    """One stop. `stack` reads `function: source line`, outermost first, from the test's own file only."""

    stack: tuple[str, ...]
    values: tuple[Any, ...]
    heading: str

    @property
    def place(self) -> str:
        """The innermost entry of the stack."""
        return self.stack[-1]


class Visitor(prompt.PlainPdb):
    """A user who looks at the same expressions at each stop and goes on."""

    def __init__(self, expressions: tuple[str, ...], first: tuple[str, ...], file: str) -> None:
        super().__init__(nosigint=True, readrc=False)
        self.expressions, self.first, self.file = expressions, first, file
        self.visits: list[Visit] = []
        self.headings: list[str] = []
        self.problems: list[str] = []
        self.start_running()

    def message(self, msg: str, *args: Any, **kwargs: Any) -> None:
        self.headings.append(msg)

    def error(self, msg: str) -> None:
        self.problems.append(msg)

    def interaction(self, frame: FrameType | None, tb_or_exc: Any) -> None:
        with self.session.lock, self.session.prompting():
            self.setup(frame, tb_or_exc)
            stack = tuple(
                f"{each.f_code.co_name}: {linecache.getline(each.f_code.co_filename, lineno).strip()}"
                for each, lineno in self.stack
                if each.f_code.co_filename == self.file
            )
            heading = "\n".join(self.headings)
            for command in self.first:
                self.onecmd(command)
            values = tuple(self.look_at(expression) for expression in self.expressions)
            self.visits.append(Visit(stack, values, heading))
            self.headings.clear()
            self.onecmd("c")
            self.forget()

    def look_at(self, expression: str) -> Any:
        """The expression's value, or the name of the error that it raises."""
        try:
            return plain(self.evaluate(expression))
        except Exception as error:
            return type(error).__name__


def plain(value: Any) -> Any:
    """A value as Python has it, so that tests can compare it: tensors and arrays become lists and numbers."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(plain(item) for item in value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if hasattr(value, "to_list"):
        return value.to_list()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return plain(value.numpy()) if hasattr(value, "numpy") else value


def visits(program: Callable[[], Any], *expressions: str, first: tuple[str, ...] = ()) -> list[Visit]:
    """Run the program; at each stop type the commands `first`, note the expressions' values and go on."""
    visitor = Visitor(expressions, first, program.__code__.co_filename)
    with session.using(visitor):
        program()
    assert not visitor.problems, visitor.problems
    return visitor.visits


def values(program: Callable[[], Any], *expressions: str) -> list[Any]:
    """The values of the expressions, one entry per stop; of a single expression, not wrapped in a tuple."""
    found = [visit.values for visit in visits(program, *expressions)]
    return [each[0] for each in found] if len(expressions) == 1 else found


@contextlib.contextmanager
def watched(*texts: str) -> Iterator[list[Report]]:
    """The reports of the stops inside the block, for watches that are written so."""
    found: list[Report] = []
    watching = Watching(lambda trip, origin: found.append(origin.report))
    watching.start(texts)
    try:
        yield found
    finally:
        watching.stop()
