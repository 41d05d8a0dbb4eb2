"""The gate in functions that XLA compiles: pure reductions, updates that keep the old value, a flag read after.

XLA cannot call back into Python, and compiling a step is not neutral: some NaNs exist only there.  So compilation stays
on.  A bad step does not reach the weights: each write of them keeps the old value, and a flag says which check failed.
Whoever called the function reads the flag and trips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import internals, internals_gate, steps
from .gate import Place, Trip, floating, gate
from .steps import Step

GRADIENT, UPDATE, OUTPUT = 1.0, 2.0, 4.0
KINDS = {GRADIENT: "gradient", UPDATE: "update", OUTPUT: "output"}
NOTE = (
    "the step was compiled by XLA: going on skips this step's update; the guard on each write changes what XLA "
    "fuses, so a watched run may differ from an unwatched one in the last bits of float32"
)


@dataclass(eq=False)
class Compiled:
    """What is known of one XLA step while it is traced: its flag variable and the checks so far, with their code."""

    step: Step
    flag: Any
    checks: list[tuple[float, Any]] = field(default_factory=list)
    names: dict[float, tuple[str, ...]] = field(default_factory=dict)
    starts: list[tuple[Any, Any]] = field(default_factory=list)

    def keep(self) -> None:
        """Copy the small state of the step's start to variables of the debugger: taking it back here would change bits.

        (XLA fuses a computed average with the choice between it and its old value, and rounds it otherwise.)
        """
        import tensorflow as tf

        for variable, value in [entry for entry in self.step.before.values() if entry[1].graph is self.step.graph]:
            with tf.init_scope():
                start = internals_gate.plain_variable(tf.zeros(variable.shape, variable.dtype), "tfdb_start")
            self.starts.append((value, start))
            start.assign(value)

    def is_own(self, variable: Any) -> bool:
        """Whether the variable is the debugger's."""
        return variable is self.flag or any(variable is start for _, start in self.starts)


fresh: list[Compiled] = []


def of(graph: Any) -> Compiled | None:
    """The compiled step that `graph` is part of: the outermost one that XLA compiles."""
    import tensorflow as tf

    found = [step for step in steps.chain(graph) if step.xla]
    if not found:
        return None
    step = found[-1]
    if step.compiled is None:
        with tf.init_scope():
            flag = internals_gate.plain_variable(0.0, "tfdb_flag")
        step.compiled = Compiled(step, flag)
        fresh.append(step.compiled)
    return step.compiled


def fine(tensors: Sequence[Any], nan_only: bool = False) -> Any:
    """Whether all elements are finite (or, `nan_only`, none is NaN), as a boolean tensor."""
    import tensorflow as tf

    good = [tf.reduce_all(tf.math.logical_not(tf.math.is_nan(t)) if nan_only else is_finite(t)) for t in tensors]
    return tf.reduce_all(tf.stack(good)) if len(good) > 1 else good[0]


def is_finite(tensor: Any) -> Any:
    """Elementwise; a complex number is finite when both of its parts are."""
    import tensorflow as tf

    if tensor.dtype.is_complex:
        return tf.math.is_finite(tf.math.real(tensor)) & tf.math.is_finite(tf.math.imag(tensor))
    return tf.math.is_finite(tensor)


def check(compiled: Compiled, code: float, tensors: Sequence[Any], names: Sequence[str], nan_only: bool = False) -> Any:
    """Add a check, when it can be seen from the step's end; returns its boolean tensor, None with nothing to check."""
    if not tensors:
        return None
    import tensorflow as tf

    with tf.name_scope("tfdb_gate"):
        good = fine(tensors, nan_only)
    if internals.current_graph() is compiled.step.graph:
        compiled.checks.append((code, good))
        compiled.names[code] = (*compiled.names.get(code, ()), *names)
    return good


def kept(variable: Any, value: Any, method: str, good: Any) -> Any:
    """The value to write so that the variable keeps its old one where `good` is false."""
    import tensorflow as tf

    if good is None or method.startswith("scatter"):
        return value
    value = tf.convert_to_tensor(value, variable.dtype)
    if method == "assign":
        return tf.where(good, value, variable.read_value())
    return tf.where(good, value, tf.zeros_like(value))


def assigned(graph: Any, variable: Any, value: Any, method: str) -> Any:
    """A write in an XLA graph: the value with its guard, the state at the step's start kept."""
    compiled = of(graph)
    if compiled is None or compiled.is_own(variable):
        return value
    steps.remember(compiled.step, variable)
    good = getattr(gate.local, "compiled", None)
    tensors, names = floating([value], [str(variable.name)])
    if good is None and variable.trainable and tensors and internals.is_symbolic(tensors[0]):
        good = check(compiled, UPDATE, tensors, names)
    return kept(variable, value, method, good)


def finish(step: Step, outputs: Sequence[Any], names: Sequence[str]) -> None:
    """The step's end: check its outputs, keep the state it began with, set the flag."""
    import tensorflow as tf

    compiled = of(step.graph)
    if compiled is None or compiled.step is not step:
        return
    nan_only = not any(watch.kind == "inf" for watch in gate.watches)
    check(compiled, OUTPUT, outputs, names, nan_only)
    if not compiled.checks:
        fresh.remove(compiled)
        return
    compiled.keep()
    codes = {code: [g for c, g in compiled.checks if c == code] for code, _ in compiled.checks}
    code = tf.add_n([tf.where(tf.reduce_all(tf.stack(good)), 0.0, code) for code, good in codes.items()])
    compiled.flag.assign(code)


def after_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], graph: Any) -> None:
    """Read the flags of a function that was just called, eagerly or (with `graph`) in the graph that calls it."""
    known: list[Compiled] = gate.compiled.setdefault(id(function), [])
    known.extend(fresh)
    fresh.clear()
    for compiled in known:
        if graph is None:
            if code := float(compiled.flag.numpy()):
                trip(compiled, code, steps.flatten((args, kwargs)))
        else:
            watch_flag(compiled, args, kwargs)


def watch_flag(compiled: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """In a graph that calls the function: a branch that is taken when the flag is set."""
    import tensorflow as tf

    arguments = steps.flatten((args, kwargs))
    carried = [value for value in arguments if steps.portable(value)]
    places = [index for index, value in enumerate(arguments) if steps.portable(value)]

    def on_flag(code: Any, *values: Any) -> None:
        real = list(arguments)
        for index, value in zip(places, values, strict=True):
            real[index] = value
        trip(compiled, float(code), real)

    def tripped() -> Any:
        hook = internals.plant(on_flag, [code, *carried])
        with tf.control_dependencies([hook]):
            return tf.identity(tf.constant(False))

    with tf.name_scope("tfdb_gate"):
        code = compiled.flag.read_value()
        tf.cond(tf.equal(code, 0.0), lambda: tf.constant(True), tripped)


def trip(compiled: Compiled, code: float, arguments: Sequence[Any]) -> None:
    """A flag was set: lower it and trip.  The arguments are the call's, in the order of the step's own."""
    compiled.flag.assign(0.0)
    if not gate.active:
        return
    bit, kind = next((bit, name) for bit, name in KINDS.items() if int(code) & int(bit))
    names = compiled.names.get(bit, ())
    judged = gate.judge(kind, ["nan"]) or gate.judge(kind, ["inf"])
    if judged is None:
        return
    step = compiled.step
    symbols = steps.flatten((step.args, step.kwargs))
    values = {id(s): v for s, v in zip(symbols, arguments, strict=False) if internals.is_symbolic(s)}
    values.update({id(symbol): start.read_value() for symbol, start in compiled.starts})
    names = names or ("output",)
    empty = tuple(np.zeros(()) for _ in names)
    place = Place(step, kind, names)
    gate.trip(Trip(place, *judged, empty, ("",) * len(names), values, gate.calls.current(), notes=[NOTE], xla=True))
