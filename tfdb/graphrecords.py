"""The values that the graph commands speak: what is known of a traced function, its ops, and its traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .records import shape_text
from .report import UserLine

FORWARD, GRADIENT, UPDATE = "forward", "gradient", "update"
PHASES = (FORWARD, GRADIENT, UPDATE)


@dataclass(frozen=True, slots=True)
class TensorType:
    """The dtype of a tensor and its shape, None for unknown sizes and for an unknown rank."""

    dtype: str
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        return f"{self.dtype}{shape_text(self.shape)}"


@dataclass(frozen=True, slots=True)
class Named:
    """An argument, a capture, a variable or a result: its name, and its type as text."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Node:
    """One op of a graph.

    `inputs` are tensor names (`MatMul:0`), `controls` op names; `stack` are the user's frames that made it, outermost
    first, empty without source; `calls` are the functions it runs: branches, a loop's parts, a nested call.
    `literal` is what to show in its place: an argument's name, a small constant's value, a variable's name.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    controls: tuple[str, ...]
    outputs: tuple[TensorType, ...]
    device: str
    stack: tuple[UserLine, ...]
    phase: str
    calls: tuple[str, ...] = ()
    stateful: bool = False
    literal: str = ""

    @property
    def line(self) -> UserLine | None:
        """The user's line that made it."""
        return self.stack[-1] if self.stack else None


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """A traced function: what it takes, holds and gives, its ops in the order they were made, what it calls."""

    name: str
    title: str
    arguments: tuple[Named, ...]
    results: tuple[Named, ...]
    captures: tuple[Named, ...]
    variables: tuple[Named, ...]
    devices: tuple[str, ...]
    xla: bool
    nodes: tuple[Node, ...]
    functions: Mapping[str, GraphRecord] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def node(self, name: str) -> Node | None:
        """The node of this name."""
        return next((node for node in self.nodes if node.name == name), None)


@dataclass(frozen=True, slots=True)
class Fetched:
    """A tensor of one execution, and why its value cannot be had, "" where it can."""

    name: str
    node: Node
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Leaf:
    """What one argument (or a part of one) was in a trace: `kind` is tensor, python, object or structure."""

    path: str
    kind: str
    text: str
    dtype: str = ""
    shape: tuple[int | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace: its arguments' leaves, its context ("" for plain eager calls), who called, the calls it served."""

    leaves: tuple[Leaf, ...]
    context: str = ""
    caller: UserLine | None = None
    calls: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Why a trace could not serve: the argument that changed, from what to what."""

    path: str
    before: str
    after: str
    kind: str


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A function in the overview: where it is, how often it was traced, why; of a library's, the line that called."""

    name: str
    place: str
    count: int
    why: str
    caller: UserLine | None = None


@dataclass(frozen=True, slots=True)
class TracingOnly:
    """A line of a function that runs while it is traced and never again, and why that may surprise."""

    line: int
    text: str
    why: str
