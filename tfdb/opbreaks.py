"""Breakpoints on ops and layers -> hooks right after each op or layer call that matches, carrying inputs and outputs.

`b op:REGEX` matches an op's type or its whole node name, `b layer:REGEX` a Keras layer's name.  In graphs the hook is
planted while an instrumented function is traced; eager ops and layers are looked at as they run.
"""

import re
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tfdb import internals

NAME = re.compile(r"<(op|layer):(.*)>", re.DOTALL)


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

    def install(self) -> None:
        """Watch eager ops of this thread, and the calls of Keras layers.  Idempotent; `remove` undoes it."""
        watched = {owner for owner, _, _ in self.patches.saved}
        for layer in internals.layer_classes():
            if layer not in watched:
                self.patches.replace(layer, "__call__", self.calling)
        if not self.installed:
            self.installed = True
            self.thread = threading.get_ident()
            internals.add_op_callback(self.on_eager_op)

    def settle(self) -> None:
        """Watch eager ops of this thread, the program's, when a breakpoint was set on one of TensorFlow's own."""
        if self.installed and self.thread != threading.get_ident():
            self.thread = threading.get_ident()
            internals.add_op_callback(self.on_eager_op)

    def remove(self) -> None:
        """Watch no more."""
        if self.installed:
            self.installed = False
            with suppress(KeyError):  # the callbacks are the thread's own
                internals.remove_op_callback(self.on_eager_op)
        self.patches.remove()

    def on_graph_op(self, op: Any) -> None:
        """An op was added to a graph; plant a hook behind it if a breakpoint matches."""
        if self.busy or not self.watched.instrumented():
            return
        name = matching(self.watched.names(), "op", op.type, op.name)
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
        name = matching(self.watched.names(), "op", op_type)
        if name is not None:
            self.stop(sys._getframe(1), name, {"inputs": list(inputs), "outputs": list(outputs)})

    def calling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A layer's `__call__`, watched."""

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = original(layer, *args, **kwargs)
            name = matching(self.watched.names(), "layer", layer.name, getattr(layer, "path", layer.name))
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
