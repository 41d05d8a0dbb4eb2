"""`skip` at a watch's stop -> the program goes on as if this update had not been asked for.

In a graph the ops behind the gate cannot be taken out any more: what they write is taken back when the call is over,
so everything that the call would have written after the stop is left out.  In eager code the writes themselves are
left out, until the program opens its next gradient tape or comes back to what was left out already.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import internals, internals_gate, state
from .conditions import badness
from .errors import TfdbError
from .gate import Trip, gate
from .report import WRITING
from .tripreports import KERAS_STEPS


def begin(trip: Trip) -> str:
    """Leave out what the trip stood before; returns in words what is left out.

    Raises:
        TfdbError: nothing that could be left out stands behind this gate.
    """
    call = trip.call
    if call is not None:
        kept = at_stop(trip)
        call.undo = lambda: state.put(kept)
        return f"what {name_of(call.function)} would write from here on is left out"
    if reason := refusal(trip):
        raise TfdbError(reason)
    single = trip.place.kind in ("variable", "load")
    gate.local.skipping = {"single": single, "seen": set()}
    return "this write is left out" if single else "this update is left out"


def refusal(trip: Trip) -> str:
    """Why nothing can be left out at this stop; "" where something can."""
    if trip.call is not None:
        return ""
    if trip.place.kind not in WRITING:
        return "nothing is being written here that could be skipped; c goes on"
    return (
        ""
        if gate.active
        else "in eager code skip works at stops of `watch nan` and `watch inf`; c goes on with the update"
    )


def ways_on(trip: Trip | None) -> str:
    """The commands that leave a watch's stop, with what each does with the update."""
    if trip is None:
        return "c goes on"
    writes = trip.place.kind in WRITING and not trip.xla
    ways = ["c goes on with the update" if writes else "c goes on"]
    if not refusal(trip):
        ways.append("skip goes on without it" if writes else "skip leaves out what comes of this call")
    ways.append("rerun steps through this call" if trip.call is not None else "b LINE and c stop at the next pass")
    return ", ".join(ways)


def name_of(function: Any) -> str:
    """What to call the run of a `tf.function`."""
    name = getattr(getattr(function, "python_function", function), "__name__", "the function")
    if name in KERAS_STEPS:
        return "this call of the model's train function, with all its batches,"
    return f"this call of {name}()"


def at_stop(trip: Trip) -> state.State:
    """Every variable's value at the stop.

    The small state of the optimizer whose update it is (its count of iterations is written before the stop), and what
    else is bad already, have the value that the step began with.
    """
    present = state.take()
    step = trip.place.step
    start = {}
    for variable, symbol in step.before.values() if step is not None else ():
        if id(symbol) in trip.values:
            start[id(variable)] = trip.values[id(symbol)]
    own = {id(part) for variable in variables_of(trip.place.optimizer) for part in internals_gate.components(variable)}
    values = [
        (variable, start[id(variable)] if id(variable) in start and (id(variable) in own or is_bad(value)) else value)
        for variable, value in present.values
    ]
    return state.State(tuple(values), present.nbytes)


def variables_of(optimizer: Any) -> list[Any]:
    """The variables that an optimizer keeps; tf_keras has a method where Keras has a property."""
    found = getattr(optimizer, "variables", ())
    return list(found() if callable(found) else found)


def is_bad(value: Any) -> bool:
    """Whether a tensor holds NaN or infinities."""
    return bool((value.dtype.is_floating or value.dtype.is_complex) and badness(np.asarray(value)))


def is_on() -> bool:
    """Whether this thread's eager writes are being left out."""
    return gate.local.skipping is not None and internals.current_graph() is None


def leaves_out(*targets: Any) -> bool:
    """Whether a write of these variables (or an optimizer's update) is to be left out.

    What comes a second time belongs to the next step: nothing more is left out then.
    """
    if not is_on():
        return False
    skipping = gate.local.skipping
    if any(id(target) in skipping["seen"] for target in targets):
        end()
        return False
    skipping["seen"].update(map(id, targets))
    if skipping["single"]:
        end()
    return True


def end() -> None:
    """Leave nothing out from now on."""
    gate.local.skipping = None


def around_call(call: Any) -> None:
    """An outermost graph call begins while updates are left out: what it writes is taken back too."""
    if call is not None and is_on():
        kept = state.take()
        call.undo = lambda: state.put(kept)


def after_call(call: Any) -> None:
    """An outermost graph call is over: take back what it wrote after a stop that was skipped."""
    if call is not None and call.undo is not None:
        undo, call.undo = call.undo, None
        with gate.quiet():
            undo()


def entering(original: Any) -> Any:
    """`GradientTape.__enter__`: the next step begins."""

    def __enter__(self: Any) -> Any:
        if internals.current_graph() is None:
            gate.local.tapes += 1
            end()
        return original(self)

    return __enter__
