"""A Trip whose origin is no op of a pass -> its report: a variable, a load, an op that fails, or only what was seen.

Also what every report of a trip says of it: the step, the user's frames around the call, the variables affected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import blame, causes
from .conditions import badness
from .gate import Trip
from .recorder import Outcome
from .report import Frame, NamedSummary, Report, UserLine
from .tensors import describe_leaf


@dataclass(eq=False)
class Origin:
    """Where a bad value was made: the report, and the user's live frames there, outermost first (may be empty)."""

    report: Report
    frames: tuple[Frame, ...] = ()


def of_variable(trip: Trip, variable: Any, more: dict[str, Any]) -> Origin:
    """The origin is a value that a variable held already."""
    name, array = variable_name(variable), np.asarray(variable)
    line = blame.assigned.get(variable) or blame.built.get(variable)
    callers = caller_lines(trip)
    since = f"set at line {line.line} of {line.file}" if line else "not seen being set while watching"
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
        variables=(name,),
        watched=1,
        stack=callers,
        notes=tuple(trip.notes),
    )
    return Origin(report, caller_frames(trip))


def of_error(trip: Trip, first: Outcome) -> Origin:
    """The eager pass raised: that op refuses eagerly what another device or XLA let through."""
    failed = first.failed
    assert failed is not None
    line = blame.responsible(failed.site, ())
    message = str(first.error).strip().splitlines()
    report = Report(
        reason=trip.reason,
        line=line,
        op=failed.op,
        phase="forward",
        step=step_number(trip),
        cause=f"run again eagerly, {failed.op} fails: {message[0] if message else type(first.error).__name__}",
        stack=(*caller_lines(trip), *failed.site.user),
        notes=tuple(trip.notes),
        **affected(trip, first),
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
        **affected_only(trip),
    )
    return Origin(report, caller_frames(trip))


def affected(trip: Trip, first: Outcome) -> dict[str, Any]:
    """The names of the variables that bad values were on their way into, and how many were looked at."""
    if trip.place.kind in ("gradient", "tape", "update", "scaled", "variable"):
        return {"variables": trip.variables, "watched": trip.watched}
    if first.run.where in ("gradient", "update"):
        return {"variables": tuple(first.run.names), "watched": first.run.watched}
    return {}


def affected_only(trip: Trip) -> dict[str, Any]:
    """As `affected`, without a pass."""
    return {"variables": trip.variables, "watched": trip.watched} if trip.place.kind != "output" else {}


def step_number(trip: Trip) -> int | None:
    """The number of the step, from 1: how often the outermost function was called."""
    return trip.call.number if trip.call is not None else None


def caller_frames(trip: Trip) -> tuple[Frame, ...]:
    """The user's eager frames around the graph call, outermost first."""
    frame = trip.call.frame if trip.call is not None else trip.frame
    return tuple(Frame(blame.line_of(f), f.f_globals, dict(f.f_locals)) for f in blame.user_frames(frame))


def caller_lines(trip: Trip) -> tuple[UserLine, ...]:
    """The lines of `caller_frames`."""
    return tuple(frame.line for frame in caller_frames(trip))


def variable_name(variable: Any) -> str:
    """The variable's name without TensorFlow's `:0`."""
    return str(getattr(variable, "name", "variable")).removesuffix(":0")
