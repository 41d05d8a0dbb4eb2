"""A threshold that was passed -> the forward frames behind it: where the worst variable is used, and the loss line.

They stand in the prompt's stack between the frames around the step and the one that applies the gradient, one `u` away.
What the graph's ops say of where they were made is all that is needed: nothing is kept while training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from . import blame, detours, internals, internals_gate, sites
from .internals_graphs import called, nested_graph
from .report import Frame, UserLine

COPIES = ("ReadVariableOp", "Identity", "Cast")
DEEP = 8  # functions, branches and loops that are looked into


def loss_line(frame: Any, losses: Sequence[Any]) -> UserLine | None:
    """The line of eager code that gave one of these losses the name that a user frame knows it by."""
    wanted = {id(loss) for loss in losses}
    for each in reversed(blame.user_frames(frame)):
        here = blame.line_of(each)
        name = next((name for name, value in each.f_locals.items() if id(value) in wanted), "")
        line = detours.assignment(here.file, here.line, name) if name else None
        if line is not None:
            return UserLine(here.file, line, here.function)
    return None


def uses(graph: Any, variable: Any) -> Iterator[Any]:
    """The ops of a graph, and of what it runs, that compute with a variable's value."""
    handle = getattr(internals_gate.unwrapped(variable), "handle", None)
    while graph is not None and handle is not None:
        inside = next((place for outside, place in getattr(graph, "captures", ()) if outside is handle), None)
        if inside is not None:
            yield from consumers(inside, DEEP)
            return
        graph = getattr(graph, "outer_graph", None)


def consumers(tensor: Any, depth: int) -> Iterator[Any]:
    """The ops that take a tensor, through reads and copies, and into functions, branches and loops."""
    for op in tensor.consumers():
        names = called(op) if depth else []
        if names:
            index = next(n for n, each in enumerate(op.inputs) if each is tensor) - (op.type in internals.BRANCH_OPS)
            graphs = [graph for name in names if (graph := nested_graph(op.graph, name)) is not None]
            for graph in graphs:
                if 0 <= index < len(graph.inputs):
                    yield from consumers(graph.inputs[index], depth - 1)
        elif op.type in COPIES and op.outputs:
            yield from consumers(op.outputs[0], depth)
        elif not is_update(op):
            yield op


def is_update(op: Any) -> bool:
    """Whether an op belongs to the gradient or writes the variable."""
    return op.name.startswith("gradient") or "gradient_tape/" in op.name or not op.outputs


def stack_of(op: Any) -> list[UserLine]:
    """The user's lines on the stack that made an op, outermost first."""
    found = list(sites.lines_of_op(op))[::-1]
    # AutoGraph runs the body of a loop from the line of its header, in the same function
    following = [*found[1:], None]
    return [
        a for a, b in zip(found, following, strict=True) if b is None or (a.file, a.function) != (b.file, b.function)
    ]


def frames(stop: Sequence[Frame], graph: Any, variable: Any, loss: UserLine | None) -> tuple[Frame, ...]:
    """The frames to stand before the last of a stop's, outermost first: the variable's use, and the loss line.

    They have the locals of this step where the stop's own frames are of the same function, else none.
    """
    callers = [(frame.line.file, frame.line.function) for frame in stop[:-1]]
    used = next(uses(graph, variable), None) if variable is not None else None
    lines = stack_of(used) if used is not None else []
    lines = [line for line in lines if (line.file, line.function) not in callers]
    if loss is not None and loss not in lines and loss not in [frame.line for frame in stop]:
        lines.append(loss)
    known = {(frame.line.file, frame.line.function): frame for frame in stop}
    scopes = {frame.line.file: frame.globals for frame in stop}
    made = []
    for line in dict.fromkeys(lines):
        same = known.get((line.file, line.function))
        names = dict(same.locals) if same is not None else {}
        made.append(Frame(line, scopes.get(line.file, {}), names))
    return tuple(made)
