"""A value on its way into a variable -> the same value after its gate, or a write that waits for an optimizer's others.

The doors of `variable.assign*` and `scatter_*`, and of reads, which must see what waits.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import blame, internals, internals_gate, replaying, skips, steps
from .gate import Place, check_eager, floating, gate, plant
from .varnames import name_of


def identity(value: Any) -> Any:
    """The same tensor, in a place of its own in the order of ops."""
    import tensorflow as tf

    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(tf.identity(value.values), value.indices, value.dense_shape)
    return None if value is None else tf.identity(value)


def after(passed: Any, values: list[Any]) -> list[Any]:
    """The values, to be read only after a gate (None: there is none); what is done without them need not wait."""
    import tensorflow as tf

    if passed is None:
        return values
    with tf.control_dependencies([passed]):
        return [identity(value) for value in values]


@dataclass(eq=False)
class Deferred:
    """While an optimizer runs, writes to its weights wait until all of them have passed one gate.

    A weight that is read while a write of it waits (decay, constraints) gets all waiting writes first, so the
    program's order holds.
    """

    variables: list[Any] | None
    beside: tuple[list[Any], list[str]] = field(default_factory=lambda: ([], []))
    waiting: list[tuple[Callable[..., Any], str, Any, Any, tuple[Any, ...], dict[str, Any]]] = field(
        default_factory=list
    )
    graph: Any = None
    outer: tuple[Any, bool] = (None, False)
    optimizer: Any = None
    before: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def __enter__(self) -> Deferred:
        self.graph = internals.current_graph()
        self.outer = gate.local.deferred, gate.local.ungated
        self.ids = {id(internals_gate.unwrapped(v)) for v in self.variables or () if v is not None}
        gate.local.deferred = self if self.variables is not None else None
        gate.local.ungated = self.variables is None
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.flush()
        gate.local.deferred, gate.local.ungated = self.outer

    def takes(self, variable: Any) -> bool:
        """Whether a write of this variable, now, is one of those that wait."""
        return id(variable) in self.ids and internals.current_graph() is self.graph

    def remember(self, variable: Any) -> None:
        """Keep what a counter holds before its write, in eager code: a replay has to start from there."""
        if self.graph is None and variable.dtype.is_integer and steps.is_small(variable):
            self.before.setdefault(id(variable), (variable, variable.read_value()))

    def flush(self) -> None:
        """Let the waiting writes go on, after their gate."""
        import tensorflow as tf

        waiting, self.waiting = self.waiting, []
        if not waiting:
            return
        tensors, names = floating([w[3] for w in waiting], [name_of(w[2]) for w in waiting])
        if self.graph is None:
            place = Place(None, "update", tuple(names), before=tuple(self.before.values()))
            check_eager(place, tensors, sys._getframe(1))
            if skips.is_on():
                return
            passed = []
        else:
            passed = self.gated(tensors, names)
        with tf.control_dependencies(passed):
            for original, _, variable, value, args, kwargs in waiting:
                original(variable, identity(value), *args, **kwargs)

    def gated(self, tensors: list[Any], names: list[str]) -> list[Any]:
        """The gate of the waiting values in a graph: what their writes must wait for."""
        step = steps.current()
        (others, labels), self.beside = self.beside, ([], [])
        place = Place(step, "update", (*names, *labels), len(names), optimizer=self.optimizer)
        return [plant(place, [*tensors, *others])] if step is not None and tensors else []


def reading(original: Callable[..., Any]) -> Callable[..., Any]:
    """A variable's reads: what waits to be written to it is written first."""

    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        deferred = gate.local.deferred
        if deferred is not None and deferred.waiting and id(self) in deferred.ids:
            if deferred.graph is None or deferred.graph is internals.current_graph():
                deferred.flush()
            else:
                with deferred.graph.as_default():
                    deferred.flush()
        return original(self, *args, **kwargs)

    return read


def assigning(original: Callable[..., Any], method: str) -> Callable[..., Any]:
    """`variable.assign*` and `scatter_*`."""

    def assign(self: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        if replaying.active():
            return replaying.assign(original, method, self, value, args, kwargs)
        if not gate.active:
            return original(self, value, *args, **kwargs)
        if skips.leaves_out(self):
            return self
        deferred = gate.local.deferred
        graph = internals.current_graph()
        if deferred is not None:
            if deferred.takes(self):
                deferred.waiting.append((original, method, self, value, args, kwargs))
                return None
            deferred.remember(self)
        elif not gate.busy:
            value = entering(self, value, method, graph, sys._getframe(1))
            if skips.leaves_out(self):
                return self
        if graph is not None and internals.is_xla(graph):
            if not gate.local.ungated:
                for compiled in steps.chain(graph):
                    compiled.statistics.add(id(self))
        elif graph is not None and (step := steps.current()) is not None:
            if not (gate.local.ungated and self.shape.rank):  # slots, that no replay will need
                steps.remember(step, self)
            with after_gate(self, graph):
                written = original(self, value, *args, **kwargs)
            step.written.append(getattr(written, "_parent_op", written))
            return written
        return original(self, value, *args, **kwargs)

    return assign


def after_gate(variable: Any, graph: Any) -> contextlib.AbstractContextManager[Any]:
    """An optimizer's count of its iterations needs no gradient, so it has to be told to wait for their gate."""
    passed = gate.local.passed
    if passed is None or passed.graph is not graph or not variable.dtype.is_integer:
        return contextlib.nullcontext()
    return passed.graph.control_dependencies([passed])


def entering(variable: Any, value: Any, method: str, graph: Any, frame: Any) -> Any:
    """A value on its way into a variable by the program's own hand, after its gate."""
    import tensorflow as tf

    if not (variable.dtype.is_floating or variable.dtype.is_complex):
        return value
    names = (name_of(variable),)
    if graph is None:
        known = hasattr(getattr(value, "dtype", None), "is_floating")
        tensors, _ = floating([value if known else tf.convert_to_tensor(value, variable.dtype)], names)
        kind = "update" if method != "assign" and variable.trainable else "variable" if by_hand(frame) else "load"
        if tensors:
            check_eager(Place(None, kind, names), tensors, frame)
        blame.assigned.record(variable, frame)  # only now: while it is looked at, the value is not set yet
        return value
    step = steps.current()
    if step is None or internals.is_xla(graph):
        return value
    value = value if hasattr(value, "dtype") else tf.convert_to_tensor(value, variable.dtype)
    tensors, _ = floating([value], names)
    if not tensors or not internals.is_symbolic(tensors[0]):
        return value
    if not variable.trainable and steps.is_small(variable):
        if not internals_gate.in_metric(frame):  # what a metric holds comes out as its result
            step.pending.append((graph, tensors[0], names[0]))
        return value
    passed = plant(Place(step, "update", names), tensors)
    with tf.control_dependencies([passed]):
        return identity(value)


def by_hand(frame: Any) -> bool:
    """Whether the program computes what it assigns: no library loads or restores weights here."""
    for caller in blame.outward(frame):
        if blame.is_user_file(caller.f_code.co_filename):
            return True
        if any(word in caller.f_code.co_name for word in ("load", "restore", "set_weights")):
            return False
    return False
