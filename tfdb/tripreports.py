"""A Trip whose origin is no op of a pass -> its report: a variable, a load, an op that fails, or only what was seen.

Also what every report of a trip says of it: the step, the user's frames around the call, the variables affected.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import blame, causes, evidence, explain, internals_gate, varnames
from .conditions import badness, worst
from .frames import LiveFrame
from .gate import Trip
from .recorder import Outcome
from .replaying import kind_of
from .report import BEFORE_UPDATE, WRITING, Frame, NamedSummary, Report, UserLine
from .tensors import describe_leaf


@dataclass(eq=False)
class Origin:
    """Where a bad value was made: the report, and the user's live frames there, outermost first (may be empty)."""

    report: Report
    frames: tuple[Frame, ...] = ()


def of_variable(trip: Trip, variable: Any, more: dict[str, Any]) -> Origin:
    """The origin is a value that a variable held already."""
    name, array = varnames.name_of(variable), np.asarray(variable)
    line, since = since_when(variable)
    callers = caller_lines(trip)
    report = Report(
        reason=badness(array) or trip.reason,
        line=line or (callers[-1] if callers else None),
        op="ReadVariableOp",
        phase="variable",
        step=step_number(trip),
        cause=f"{causes.data(array, name)}; {since}",
        fix="look where this variable is loaded or assigned",
        inputs=(NamedSummary(name, describe_leaf(variable)),),
        stack=callers,
        notes=tuple(trip.notes),
        **{**more, "variables": (name,)},
    )
    return Origin(report, caller_frames(trip))


def since_when(variable: Any) -> tuple[UserLine | None, str]:
    """The user line that gave a variable its value: set it, built the layer that made it, or made it; and in words."""
    if line := blame.assigned.get(variable):
        return line, f"set at line {line.line} of {os.path.basename(line.file)}"
    owners = [owner for owner in blame.built.values() if holds(owner, variable)]
    if not owners:
        if line := blame.built.get(variable):
            return line, f"not seen being set since line {line.line} of {os.path.basename(line.file)} made it"
        return None, "not seen being set while watching"
    owner = min(owners, key=lambda each: len(each.variables))  # the layer itself, not the model around it
    line = blame.built.get(owner)
    assert line is not None
    place = f"line {line.line} of {os.path.basename(line.file)}"
    return line, f"not seen being set since the {type(owner).__name__} of {place} made it"


def holds(owner: Any, variable: Any) -> bool:
    """Whether a layer has this variable."""
    if not hasattr(type(owner), "count_params"):
        return False
    try:
        return any(part is variable for each in owner.variables for part in internals_gate.components(each))
    except Exception:  # a layer of the program's may not be ready for the question
        return False


def of_load(trip: Trip) -> Origin:
    """Bad values are being put into a variable from outside: loaded, restored, or assigned from a plain array."""
    callers, name, array = caller_lines(trip), trip.place.names[0], trip.arrays[0]
    report = Report(
        reason=trip.reason,
        line=callers[-1] if callers else None,
        op="AssignVariableOp",
        phase="variable",
        cause=f"{name} is set to bad values: {causes.data(array, 'the new value')}",
        fix="look where these values come from",
        inputs=(NamedSummary(name, describe_leaf(array)),),
        stack=callers,
        notes=tuple(trip.notes),
        **{**circumstances(trip), "variables": (name,), "watched": 1},
    )
    return Origin(report, caller_frames(trip))


def of_error(trip: Trip, first: Outcome) -> Origin:
    """The eager pass raised: that op refuses eagerly what another device or XLA let through."""
    failed = first.failed
    assert failed is not None
    line = blame.responsible(failed.site, ())
    message = explain.report(str(first.error)).message or type(first.error).__name__
    report = Report(
        reason=trip.reason,
        line=line,
        op=failed.op,
        phase="forward",
        step=step_number(trip),
        cause=f"run again eagerly, {failed.op} fails: {message}",
        stack=(*caller_lines(trip), *failed.site.user),
        notes=tuple(trip.notes),
        **circumstances(trip, first),
    )
    return Origin(report, (*caller_frames(trip), *failed.frames))


def without_replay(trip: Trip, why: str) -> Origin:
    """What is known without an origin: where the values were seen, and in which variables."""
    callers = caller_lines(trip)
    summaries = [
        NamedSummary(n, describe_leaf(a)) for n, a, b in zip(trip.place.names, trip.arrays, trip.bad, strict=True) if b
    ]
    phase = {
        "gradient": "gradient",
        "tape": "gradient",
        "scaled": "gradient",
        "update": "update",
        "variable": "variable",
    }
    report = Report(
        reason=trip.reason,
        line=callers[-1] if callers else None,
        op=None,
        step=step_number(trip),
        phase=phase.get(trip.place.kind, "forward"),
        cause=f"{trip.reason} in {', '.join(trip.variables[:5])}; {why}",
        inputs=tuple(summaries[:5]),
        stack=callers,
        notes=(*trip.notes, why),
        **circumstances(trip),
    )
    return Origin(report, caller_frames(trip))


KERAS_STEPS = ("one_step_on_data", "one_step_on_iterator", "multi_step_on_iterator", "step_function", "run_step")


def circumstances(trip: Trip, first: Outcome | None = None) -> dict[str, Any]:
    """What every report says of the gate that tripped: the fields of Report from `place` on, and the variables."""
    kind = trip.place.kind
    variables, watched = (trip.variables, trip.watched) if kind in WRITING else ((), 0)
    stopped, clean = trip.reason, False
    if first is not None:
        run = first.run
        if not variables and run.where in ("gradient", "update"):
            variables, watched = tuple(run.names), run.watched
        if kind in BEFORE_UPDATE:  # a pass may end at another door than the one that tripped
            stopped = worst([kind_of(value) for value in run.targets]) or stopped
        reads = [event for event in first.log.events if event.variable is not None and event.variable.trainable]
        clean = kind in BEFORE_UPDATE and not any(any(event.bad) for event in reads)
    named = zip(trip.place.names, trip.bad, strict=False)
    seen = tuple(name for name, bad in named if bad and name not in variables)
    return {
        "variables": variables,
        "watched": watched,
        "place": kind,
        "stopped": stopped,
        "seen": seen,
        "during": during(trip),
        "clean": clean,
        "skips": kind == "scaled",
    }


def during(trip: Trip) -> str:
    """The step that ran: epoch and batch of Keras' training, else the user's function."""
    step = trip.step
    return going_on(trip.call.frame if trip.call is not None else trip.frame, step.name if step is not None else "")


def going_on(frame: Any, step: str = "") -> str:
    """The step that a stack is in, the function `step` where it is known: epoch and batch, else the function."""
    if position := evidence.position(frame):
        return position[0]
    if step and step not in KERAS_STEPS:
        return f"{step}()"
    users = blame.user_frames(frame)
    name = users[-1].f_code.co_name if users else "<module>"
    return "" if name.startswith("<") else f"{name}()"


def step_number(trip: Trip) -> int | None:
    """The number of the step, from 1: how often the outermost function was called."""
    return (trip.call.number or None) if trip.call is not None else None


def caller_frames(trip: Trip, inside: Sequence[Frame] = ()) -> tuple[Frame, ...]:
    """The user's eager frames around the graph call, or around the pass of an eager step whose frames are `inside`."""
    frame = trip.call.frame if trip.call is not None else trip.frame
    found = blame.live_frames(frame)
    if trip.call is None and inside:
        first = (inside[0].line.file, inside[0].line.function)
        same = [n for n, each in enumerate(found) if (each.line.file, each.line.function) == first]
        found = found[: same[-1]] if same else found
    return found


def caller_lines(trip: Trip) -> tuple[UserLine, ...]:
    """The lines of `caller_frames`."""
    return tuple(frame.line for frame in caller_frames(trip))


def live_frame(frame: Frame) -> LiveFrame:
    """A frame of the replay as one the prompt can stand in."""
    line = frame.line
    return LiveFrame(
        line.file,
        line.line,
        line.function,
        line.line,
        (),
        dict(frame.globals),
        dict(frame.locals),
        (),
        0,
        False,
        frame.done,
    )
