"""The values of the record of tapes: ops that ran, tensors read into Python, tapes' lives, gradients asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import blame
from .report import UserLine


@dataclass(eq=False, slots=True)
class Op:
    """One op that ran eagerly; tensors by their numbers, dtypes of all of them by name.

    `tapes` are the recordings that were going on; `site` is known of ops that may cut a gradient.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtypes: tuple[Any, ...]
    number: int
    tapes: tuple[int, ...]
    line: UserLine | None
    site: blame.Site | None = None
    graph: Any = None
    kind: str = ""
    stack: tuple[UserLine, ...] = ()  # of ops that no tape recorded, outermost first


@dataclass(eq=False, slots=True)
class Read:
    """A tensor whose value went into plain Python: `how` is numpy, float, int, bool or the like."""

    tensor: int
    how: str
    line: UserLine
    number: int


@dataclass(eq=False)
class Recording:
    """One life of a tape: from its first recording until a reset."""

    number: int
    opened: UserLine | None
    began: int
    watched: list[Any] = field(default_factory=list)
    used: UserLine | None = None
    asked: list[tuple[Any, Callable[[Any, Sequence[Any], Any], None]]] = field(default_factory=list)
    logged: bool = False  # the ops since it opened are known
    thread: str = ""  # that it was opened on


@dataclass(frozen=True, slots=True)
class Lost:
    """The latest gradient of the program's in which something came out None."""

    tape: Any
    target: Any
    sources: Any


@dataclass(frozen=True, slots=True)
class Target:
    """What a tape differentiates in a graph: tensors by name, the line that asks, whether it is for variables."""

    names: tuple[str, ...]
    line: UserLine | None
    trains: bool
