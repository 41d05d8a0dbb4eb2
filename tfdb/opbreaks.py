"""Breakpoints on ops and layers -> hooks right after each op or layer call that matches, carrying inputs and outputs.

`b op:REGEX` matches an op's type or its whole node name, `b layer:REGEX` a Keras layer's name.  In graphs the hook is
planted while an instrumented function is traced; eager ops and layers are looked at as they run.
"""

import difflib
import re
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tfdb import internals, internals_callbacks, internals_tracing

NAME = re.compile(r"<(op|layer):(.*)>", re.DOTALL)
CLOSE = 0.6  # difflib's ratio from which a name is offered for a misspelt one


@dataclass(frozen=True, slots=True)
class Watched:
    """What the session answers: the breakpoints' names (`<op:REGEX>`), whether this thread traces for hooks."""

    names: Callable[[], Iterable[str]]
    instrumented: Callable[[], bool]
    plant: Callable[[FrameType, str, dict[str, Any]], None]
    stop: Callable[[FrameType, str, dict[str, Any]], None]


def file_name(kind: str, pattern: str) -> str:
    """What stands for the file in pdb's table of breakpoints."""
    return f"<{kind}:{pattern}>"


def parse(argument: str) -> tuple[str, str, str] | None:
    """`op:REGEX[, COND]` or `layer:NAME[, COND]` -> (kind, pattern, condition); None for other breakpoints.

    Raises:
        re.error: the pattern is no regular expression.
    """
    kind, colon, rest = argument.partition(":")
    if kind.strip() not in ("op", "layer") or not colon:
        return None
    pattern, _, condition = rest.partition(",")
    re.compile(pattern.strip())
    return kind.strip(), pattern.strip(), condition.strip()


def note(kind: str, pattern: str) -> str | None:
    """What to say of a new breakpoint that nothing there is yet would meet; None where it may stop at once."""
    names = internals_tracing.op_types() if kind == "op" else internals_tracing.layer_names()
    if not names or any(re.fullmatch(pattern, name) for name in names):
        return None
    near = difflib.get_close_matches(pattern, names, 3, CLOSE) or (names[:6] if kind == "layer" else [])
    meant = f" (there are: {', '.join(near)})" if near else ""
    if kind == "op":
        return f"no op type is called {pattern}{meant}: it waits for a node of that name"
    return f"no layer called {pattern} has been seen yet{meant}: it waits for one of that name"


def never_met(kind: str, pattern: str) -> str:
    """What to say at the program's end of a breakpoint that nothing has met."""
    return f"no {'op type or node' if kind == 'op' else 'layer'} matched {kind}:{pattern}: it never stopped"


def matching(names: Iterable[str], kind: str, *texts: str) -> str | None:
    """The first breakpoint of this kind whose pattern is the whole of one of the texts."""
    for name in names:
        found = NAME.fullmatch(name)
        if found and found[1] == kind and any(re.fullmatch(found[2], text) for text in texts):
            return name
    return None


class OpBreaks:
    """The doors at which ops are made and layers called, open while such breakpoints exist."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.patches = internals.Patches()
        self.busy = False
        self.installed = False
        self.thread = 0
        self.found: set[str] = set()

    def met(self, kind: str, *texts: str) -> str | None:
        """The first breakpoint that an op or a layer of these names meets; it is remembered."""
        name = matching(self.watched.names(), kind, *texts)
        if name is not None:
            self.found.add(name)
        return name

    def missed(self) -> list[tuple[str, str]]:
        """The breakpoints, as kind and pattern, that nothing has met."""
        return [
            (found[1], found[2])
            for name in self.watched.names()
            if (found := NAME.fullmatch(name)) and name not in self.found
        ]

    def install(self) -> None:
        """Watch eager ops of this thread, and the calls of Keras layers.  Idempotent; `remove` undoes it."""
        watched = {owner for owner, _, _ in self.patches.saved}
        for layer in internals.layer_classes():
            if layer not in watched:
                self.patches.replace(layer, "__call__", self.calling)
        if not self.installed:
            self.installed = True
            self.thread = threading.get_ident()
            internals_callbacks.add_op_callback(self.on_eager_op)

    def settle(self) -> None:
        """Watch eager ops of this thread, the program's, when a breakpoint was set on one of TensorFlow's own."""
        if self.installed and self.thread != threading.get_ident():
            self.thread = threading.get_ident()
            internals_callbacks.add_op_callback(self.on_eager_op)

    def remove(self) -> None:
        """Watch no more."""
        if self.installed:
            self.installed = False
            internals_callbacks.remove_op_callback(self.on_eager_op)
        self.patches.remove()

    def on_graph_op(self, op: Any) -> None:
        """An op was added to a graph; plant a hook behind it if a breakpoint matches."""
        if self.busy or not self.watched.instrumented():
            return
        name = self.met("op", op.type, op.name)
        if name is not None:
            self.busy = True
            try:
                self.watched.plant(sys._getframe(1), name, {"inputs": list(op.inputs), "outputs": list(op.outputs)})
            finally:
                self.busy = False

    def on_eager_op(
        self, op_type: str, inputs: Any, attrs: Any, outputs: Any, op_name: str | None = None, graph: Any = None
    ) -> None:
        """An op ran eagerly (TensorFlow's op callback)."""
        if graph is not None or self.busy or not self.installed:
            return
        name = self.met("op", op_type)
        if name is not None:
            self.stop(sys._getframe(1), name, {"inputs": list(inputs), "outputs": list(outputs)})

    def calling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A layer's `__call__`, watched."""

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = original(layer, *args, **kwargs)
            name = self.met("layer", layer.name, getattr(layer, "path", None) or layer.name)
            if name is None or self.busy:
                return outputs
            names = {"inputs": args[0] if len(args) == 1 else (args or kwargs), "outputs": outputs, "layer": layer}
            if internals.current_graph() is None:
                if not internals.is_keras_symbolic(outputs):
                    self.stop(sys._getframe(1), name, names)
            elif self.watched.instrumented():
                self.watched.plant(sys._getframe(1), name, names)
            return outputs

        return call

    def stop(self, frame: FrameType, name: str, names: dict[str, Any]) -> None:
        """Stop in eager code."""
        self.busy = True
        try:
            self.watched.stop(frame, name, names)
        finally:
            self.busy = False
