"""The gate of functions that XLA compiles: around the call, for inside nothing may be added.

Whatever is added to a compiled step, a guard on a write or another output, changes what XLA fuses, and with it the last
bits of float32; and XLA cannot call back into Python, nor may it be left out, for some NaNs exist only there.  So the
variables' values are kept before the call (by reference: XLA then writes to new memory, one more copy of what the
function writes), and its results and the variables are looked at after it.  A step that went bad is taken back while
it is run again; going on puts its results in place.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import internals, internals_callbacks, internals_numerics, internals_rerun, steps, varnames
from .conditions import badness
from .gate import Place, Trip, floating, gate, whole, worst_element
from .steps import Step

NOTE = "the step was compiled by XLA: it was looked at after it ran, and taken back"
Values = Sequence[tuple[Any, Any]]


def is_readable(variable: Any) -> bool:
    """Whether the variable belongs to eager code, not to a graph."""
    handle = getattr(variable, "handle", None)
    return handle is not None and not internals.is_symbolic(handle)


known: weakref.WeakKeyDictionary[Any, list[Step]] = weakref.WeakKeyDictionary()
fresh: list[Step] = []  # traced by the call that goes on now; by a twin of its function, if there is one


def used(traces: Sequence[Any]) -> list[Any]:
    """The variables that traces of a function use, each once."""
    return list({id(v): v for trace in traces for v in trace.graph.variables if is_readable(v)}.values())


def read(variables: Sequence[Any]) -> list[tuple[Any, Any]]:
    """The variables with the values they have here."""
    return [(variable, internals_rerun.read(variable)) for variable in variables]


def write(variable: Any, value: Any) -> Any:
    """Set the variable's value, past every wrapper of its methods; returns the op in a graph."""
    import tensorflow as tf

    return tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


def looked_at(step: Step, variables: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Of the variables that a step may have spoiled the weights, and what else is small and no optimizer's own."""
    found = [v for v in variables if v.dtype.is_floating or v.dtype.is_complex]
    others = [v for v in found if not v.trainable and id(v) in step.statistics and steps.is_small(v)]
    return [v for v in found if v.trainable], others


def named_outputs(outputs: Any) -> tuple[list[Any], list[str]]:
    """The floating tensors among a function's results, with names for them."""
    flat = [value for value in steps.flatten(outputs) if hasattr(value, "dtype")]
    return floating(flat, [f"output {n}" if len(flat) > 1 else "output" for n in range(len(flat))])


def eager_call(original: Callable[..., Any], function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a compiled function from eager code, and look at what it did."""
    found = known.setdefault(function, [])
    with gate.quiet():
        before = read(used(found)) if found else first_state()
    outputs = original(function, *args, **kwargs)
    with gate.quiet():
        found.extend(fresh)
        fresh.clear()
        symbols = steps.flatten((args, kwargs))
        step = next((each for each in reversed(found) if fits(each, symbols)), None)
        if step is None:
            return outputs
        variables = used(found)
        weights, others = looked_at(step, variables)
        results, labels = named_outputs(outputs)
        values = [value for _, value in read([*weights, *others])]
        found_bad = judged_now([*values, *results])
    ids = {id(variable) for variable in variables}
    look(step, found_bad, weights, [*names_of(others), *labels], symbols, [b for b in before if id(b[0]) in ids])
    return outputs


def first_state() -> list[tuple[Any, Any]]:
    """Before a function's first call, when nobody knows what it uses: every variable that has a value."""
    from . import state

    return list(state.take().values)


checks: dict[tuple[Any, ...], tuple[Any, Any]] = {}


def judged_now(tensors: Sequence[Any]) -> np.ndarray:
    """NaN, inf or 0 for each of these eager tensors: its worst element."""
    import tensorflow as tf

    if not tensors:
        return np.zeros(0)
    key = tuple((tensor.dtype, tuple(tensor.shape)) for tensor in tensors)
    if key not in checks:
        specs = [tf.TensorSpec(shape, dtype) for dtype, shape in key]
        fast = tf.function(lambda *values: whole(values), autograph=False)
        exact = tf.function(lambda *values: tf.stack([worst_element(value) for value in values]), autograph=False)
        checks[key] = fast.get_concrete_function(*specs), exact.get_concrete_function(*specs)
    fast, exact = checks[key]
    return np.zeros(len(tensors)) if np.isfinite(fast(*tensors)) else np.asarray(exact(*tensors))


def names_of(variables: Sequence[Any]) -> list[str]:
    """The variables' names, Keras' paths where there are some."""
    return [varnames.name_of(variable) for variable in variables]


def step_of(trace: Any) -> Step | None:
    """The Step that was made when the function was traced; None where nothing was watched for then."""
    found = getattr(trace.graph, steps.MARK, None)
    return found if isinstance(found, Step) else None


def fits(step: Step, values: Sequence[Any]) -> bool:
    """Whether a call with these flat arguments may have run this trace."""
    symbols = steps.flatten((step.args, step.kwargs))
    return len(symbols) == len(values) and all(
        s.dtype == getattr(v, "dtype", s.dtype) and s.shape.is_compatible_with(np.shape(v))
        for s, v in zip(symbols, values, strict=True)
        if steps.portable(s)
    )


def graph_call(original: Callable[..., Any], function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a compiled function in a graph, with ops around the call that look at what it did."""
    import tensorflow as tf

    try:
        trace = internals_numerics.trace_of(function, args, kwargs)
    except Exception as error:
        if steps.came_from_body(error):  # as the call would have; the program's function must not be traced again
            raise
        return original(function, *args, **kwargs)  # which raises what is wrong with the call
    step = step_of(trace)
    fresh.clear()
    with internals_callbacks.without_op_callbacks(), gate.quiet(), tf.name_scope("tfdb_gate"):
        before = read(used([step])) if step is not None else []
    outputs = original(function, *args, **kwargs)
    if step is None:
        return outputs
    with internals_callbacks.without_op_callbacks(), gate.quiet(), tf.name_scope("tfdb_gate"):
        plant(step, before, steps.flatten((args, kwargs)), outputs)
    return outputs


def plant(step: Step, before: Values, arguments: list[Any], outputs: Any) -> None:
    """After the call: a branch, taken when something is bad, that takes the step back, trips, and puts it in place."""
    import tensorflow as tf

    weights, others = looked_at(step, [variable for variable, _ in before])
    results, labels = named_outputs(outputs)
    tensors = [*(value for _, value in read([*weights, *others])), *results]
    if not tensors:
        return
    after = read([variable for variable, _ in before])
    places = [index for index, value in enumerate(arguments) if steps.portable(value)]
    labels = [*names_of(others), *labels]

    def on_bad(found: Any, *values: Any) -> None:
        real = list(arguments)
        for index, value in zip(places, values, strict=True):
            real[index] = value
        look(step, found.numpy(), weights, labels, real, None)

    def tripped() -> Any:
        found = tf.stack([worst_element(tensor) for tensor in tensors])
        with tf.control_dependencies([write(variable, value) for variable, value in before]):
            hook = internals.plant(on_bad, [found, *(arguments[index] for index in places)])
        with tf.control_dependencies([hook]):
            written = [write(variable, value) for variable, value in after]
        with tf.control_dependencies([hook, *written]):
            return tf.identity(tf.constant(False))

    fine = tf.math.is_finite(whole(tensors))
    internals.unless(fine, tripped)


def look(
    step: Step, found: np.ndarray, weights: Sequence[Any], labels: Sequence[str], arguments: Any, before: Values | None
) -> None:
    """Trip where weights, or what `labels` names, are bad: `found` is NaN, inf or 0 for each.

    `before` is None where a graph takes the step back.
    """
    if not gate.active or np.isfinite(found).all():
        return
    bad = tuple(badness(np.asarray(value)) for value in found)
    count = len(weights)
    judged = gate.judge("update", bad[:count])
    kind = "update" if judged is not None else "output"
    judged = judged or gate.judge("output", bad[count:])
    if judged is None:
        return
    names, arrays = [*names_of(weights), *labels], tuple(np.asarray(value) for value in found)
    if kind == "output":
        names, arrays, bad, count = names[count:], arrays[count:], bad[count:], len(labels)
    symbols = steps.flatten((step.args, step.kwargs))
    values = {id(s): v for s, v in zip(symbols, arguments, strict=False) if internals.is_symbolic(s)}
    trip = Trip(
        Place(step, kind, tuple(names), count),
        *judged,
        arrays,
        bad,
        values,
        gate.calls.current(),
        notes=[NOTE],
        xla=True,
    )
    taken_back(trip, before or ())


def taken_back(trip: Trip, before: Values) -> None:
    """Trip with the variables as they were before the step; what it wrote is put in place when the program goes on."""
    with gate.quiet():
        after = read([variable for variable, _ in before])
        for variable, value in before:
            write(variable, value)
    gate.trip(trip)
    with gate.quiet():
        for variable, value in after:
            write(variable, value)
