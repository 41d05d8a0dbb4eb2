"""`watch near`: every op that has an edge -> a stop where an element comes near it.

Nothing of this exists unless it is asked for.  Eager ops are looked at as they run, by TensorFlow's op callbacks; in a
function that is traced, each such op gets a check in the graph and a branch that calls Python when it is near.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np

from . import (
    blame,
    edges,
    frames,
    internals,
    internals_callbacks,
    internals_errors,
    internals_gate,
    normexpr,
    operands,
    sites,
    steps,
)
from .conditions import Watch, concerns
from .gate import gate
from .report import Frame, NamedSummary, Report, UserLine
from .tensors import describe_leaf
from .tripreports import Origin, going_on

FIX = "keep the values away from the edge (tf.maximum, tf.clip_by_value), or compute in a stable form or a wider dtype"


@dataclass(eq=False)
class Op:
    """One op that is looked at: its type and place; in a graph, what its hook fills frames from, and its step."""

    op: str
    site: blame.Site
    step: str = ""
    traced: tuple[Any, ...] = ()
    frames: tuple[Frame, ...] = ()
    stack: FrameType | None = None


class NearWatch:
    """The doors of `watch near`."""

    def __init__(self) -> None:
        self.watches: tuple[Watch, ...] = ()
        self.on_stop: Callable[[Any, Origin], Any] = lambda trip, origin: None
        self.names_of: Callable[[Report], list[str]] = lambda report: []
        self.told: set[tuple[Any, ...]] = set()
        self.local = threading.local()
        self.installed = False

    def install(
        self,
        watches: Sequence[Watch],
        on_stop: Callable[[Any, Origin], Any],
        names_of: Callable[[Report], list[str]],
    ) -> None:
        """Look at every op of this thread from now on, and at those of every function traced on it.  Idempotent."""
        self.watches, self.on_stop, self.names_of = tuple(watches), on_stop, names_of
        if watches and not self.installed:
            self.installed = True
            internals_callbacks.add_op_callback(self.on_op)

    def remove(self) -> None:
        """Look at nothing from now on; checks in graphs traced before do nothing.  Idempotent."""
        self.watches = ()
        self.told.clear()
        if self.installed:
            self.installed = False
            self.withdraw()

    def withdraw(self) -> None:
        """Take the op callback away, if it is this thread's; op callbacks are each thread's own."""
        internals_callbacks.remove_op_callback(self.on_op)

    def on_op(self, op: str, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:
        """An op ran eagerly, or was added to a graph (TensorFlow's op callback)."""
        if not self.installed:  # taken away at a prompt of another thread
            self.withdraw()
        op = op.decode() if isinstance(op, bytes) else op
        if not self.watches or getattr(self.local, "busy", False):
            return
        if not edges.concerns(op, [getattr(getattr(value, "dtype", None), "name", "") for value in outputs]):
            return
        self.local.busy = True
        try:
            if graph is None:
                self.look(op, inputs, outputs, sys._getframe(1))
            elif graph is internals.current_graph():
                self.plant(op, inputs, outputs, graph, sys._getframe(1))
        finally:
            self.local.busy = False

    def look(self, op: str, inputs: Any, outputs: Any, frame: FrameType) -> None:
        """Look at an op that has just run."""
        found = edges.find(op, arrays(inputs), arrays(outputs))
        if found is None:
            return
        site = blame.site_of(frame)
        if counts(op, site, frame):
            self.tell(Op(op, site, frames=blame.live_frames(frame), stack=frame), found, inputs, outputs)

    def plant(self, op: str, inputs: Any, outputs: Any, graph: Any, frame: FrameType) -> None:
        """Add the check of an op to its graph, unless Python cannot be called there."""
        import tensorflow as tf

        if internals.is_scratch(graph) or internals.is_xla(graph) or internals.in_vectorisation(frame):
            return
        looked = [value for value in inputs if is_float(value)]
        made = [value for value in outputs if is_float(value)]
        if not (looked or made) or not counts(op, site := sites.site_in_graph(frame), frame):
            return
        carrier = frames.Carrier(graph)
        traced = normexpr.carried(normexpr.inside(frame, steps.outermost_call(frame)), carrier)
        step = steps.current()
        planted = Op(op, site, step.name if step is not None else "", traced)
        count, more = len(looked), len(made)

        def fire(*values: Any) -> None:
            real, results, rest = values[:count], values[count : count + more], values[count + more :]
            if self.watches and (found := edges.find(op, arrays(real), arrays(results))):
                self.tell(planted, found, real, results, rest)

        def hooked() -> Any:
            return internals.call_in_branch(fire, [*looked, *made, *carrier.tensors])

        with internals_callbacks.without_op_callbacks(), tf.name_scope("tfdb_near"):
            tf.cond(suspicion(op, looked, made), hooked, lambda: tf.constant(False))

    def tell(
        self,
        op: Op,
        found: edges.Near,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        carried: Sequence[Any] = (),
    ) -> None:
        """Report an element that is near, when a watch is for such places; each line and op once, or each N-th."""
        report = self.report(op, found, inputs, outputs)
        watch = concerns(self.watches, "near", self.names_of(report))
        if watch is None:
            return
        key = (watch, report.line, report.op)
        if not gate.count(watch) or (watch.every == 1 and key in self.told):
            return
        self.told.add(key)
        call = gate.calls.current()
        during = going_on(call.frame if call is not None else op.stack, op.step)
        report = replace(report, step=(call.number or None) if call is not None else None, during=during)
        self.on_stop(None, Origin(report, (*op.frames, *normexpr.passed(op.traced, carried))))

    def report(self, op: Op, found: edges.Near, inputs: Sequence[Any], outputs: Sequence[Any]) -> Report:
        """The report of one near miss."""
        drivers = (*optimizers(), *internals_gate.model_classes())
        line = blame.responsible(op.site, drivers)
        names = written(op, line)
        values = [NamedSummary(name_at(names, n), describe_leaf(v)) for n, v in enumerate(inputs) if is_float(v)]
        where = f" at {list(found.where)}" if found.where else ""
        subject = "the result" if found.index is None else name_at(names, found.index) or "the input"
        if found.index is not None and found.index < len(values):
            each = values[found.index]
            values[found.index] = NamedSummary(each.name, each.summary, found.where or None, found.value)
        return Report(
            reason="watch",
            line=line,
            op=op.op,
            phase="gradient" if op.op.endswith("Grad") else "forward",
            cause=f"{subject} is {found.value:.4g}{where}: {found.text}",
            fix=FIX,
            inputs=tuple(values[:4]),
            output=NamedSummary("", describe_leaf(outputs[0])) if len(outputs) else None,
            stack=op.site.user,
            detail=op.site.detail if line != op.site.line else None,
            layers=op.site.layers,
            place="near",
        )


def suspicion(op: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """A scalar bool tensor: whether NumPy should look closer.  Never false where `edges.find` finds something."""
    import tensorflow as tf

    limits = edges.LIMITS[outputs[0].dtype.name if outputs else inputs[0].dtype.name]
    index, rule, _ = edges.RULES.get(op, (0, None, ""))
    if rule in edges.SMALL:
        least = tf.reduce_min(tf.abs(tf.cast(inputs[index], tf.float64)))
        found = least < (limits.inverse_root if rule is edges.RSQRT else limits.inverse)
    elif rule is edges.large:
        found = tf.reduce_max(tf.cast(inputs[index], tf.float64)) > limits.exponent
    elif rule is edges.at_one:
        found = tf.reduce_max(tf.abs(tf.cast(inputs[index], tf.float64))) >= 1.0 - limits.eps
    elif op == "Pow":
        base, power = (tf.cast(value, tf.float64) for value in inputs)
        found = tf.reduce_any(tf.abs(power * tf.pow(tf.abs(base), power - 1.0)) > limits.slope)
    else:
        found = tf.constant(False)
    halves = [value for value in outputs if value.dtype.name in edges.HALVES]
    for value in halves:
        most = edges.LIMITS[value.dtype.name].most
        found = tf.logical_or(found, tf.reduce_max(tf.abs(tf.cast(value, tf.float32))) > most / 2.0)
    return found


def optimizers() -> tuple[type, ...]:
    """The optimizer classes of the loaded Keras packages."""
    return tuple(owner for owner, _ in internals_gate.optimizer_classes())


def counts(op: str, site: blame.Site, frame: FrameType) -> bool:
    """Whether an op is one to look at: forward, where it has an edge of its own, and none of an optimizer."""
    return not isinstance(site.called, optimizers()) and not (op in edges.OPS and internals_errors.in_gradient(frame))


def is_float(value: Any) -> bool:
    """Whether a tensor's dtype is one with edges."""
    return getattr(getattr(value, "dtype", None), "name", "") in edges.LIMITS


def arrays(values: Sequence[Any]) -> list[np.ndarray]:
    """The floating ones among eager tensors, as arrays."""
    return [np.asarray(value) for value in values if is_float(value)]


def written(op: Op, line: UserLine | None) -> tuple[str, ...]:
    """What the user's line writes for the op's inputs."""
    return () if line is None else operands.written("".join(linecache.getlines(line.file)), line.line, op.op)


def name_at(names: Sequence[str], index: int) -> str:
    """The name of an input, "" when it has none."""
    return names[index] if index < len(names) else ""


near = NearWatch()
