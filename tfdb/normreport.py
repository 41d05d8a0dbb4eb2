"""A Crossing -> the Origin of the stop: the report, and the user's frames around where the gradients are applied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from . import forwards, internals_norms, screens
from .gate import Place, Trip
from .normlook import XLA_NOTE, Crossing
from .render import number
from .report import Frame, Report
from .thresholds import LARGEST, MAGNITUDES, SQUARES, UPDATE, WEIGHT, Threshold
from .tripreports import Origin, during

MOST_NAMES = 4
WHAT = {
    ("grad", "norm"): "the l2 norm of {}", ("grad", "max"): "the largest magnitude in {}",
    ("grad", "mean"): "the mean magnitude of {}", ("update", "norm"): "the l2 norm of the update over that of {}",
}  # fmt: skip


def trip_of(crossing: Crossing) -> Trip:
    """The crossing as a trip of a gate."""
    place = Place(None, crossing.place.kind, crossing.place.names, spot=crossing.place.spot)
    trip = Trip(place, crossing.threshold, reason_of(crossing), (), (), frame=crossing.frame, xla=crossing.compiled)
    trip.values, trip.began = dict(crossing.values), crossing.began
    return trip


def reason_of(crossing: Crossing) -> str:
    """The report's reason."""
    return "grad" if crossing.threshold.kind == "grad" else "watch"


def side(threshold: Threshold) -> str:
    """Which limit was passed, and on which side of it the value is; "" of an expression."""
    if threshold.kind == "expression":
        return ""
    return f"{threshold.kind} {'over' if threshold.op[0] == '>' else 'under'}"


def origin(crossing: Crossing, trip: Trip | None = None) -> Origin:
    """The report on a threshold that was passed, and where to stand."""
    threshold, place = crossing.threshold, crossing.place
    stack = tuple(frame.line for frame in crossing.frames)
    report = Report(
        reason=reason_of(crossing),
        line=stack[-1] if stack else None,
        op=None,
        phase="update" if place.kind == "update" else "gradient",
        step=crossing.step,
        cause=cause(crossing),
        fix=fix(crossing),
        variables=crossing.over,
        watched=len(place.names) if threshold.kind in ("grad", "update") else 0,
        stack=stack,
        notes=tuple(notes(crossing)),
        stopped=side(threshold),
        during=during(trip or trip_of(crossing)),
    )
    return Origin(report, (*crossing.frames[:-1], *forward(crossing), *crossing.frames[-1:]))


def forward(crossing: Crossing) -> tuple[Frame, ...]:
    """The forward frames behind the stop: those of the worst variable, and the loss line."""
    place = crossing.place
    worst = next(iter(crossing.over), None) if crossing.threshold.kind in ("grad", "update") else None
    variable = place.variables[place.names.index(worst)] if worst is not None else None
    graph = place.graph() if place.graph is not None else None
    return tuple(
        replace(frame, done=True) for frame in forwards.frames(crossing.frames, graph, variable, place.loss_line)
    )


def cause(crossing: Crossing) -> str:
    """What is over which limit, with the numbers of the variables to blame."""
    threshold = crossing.threshold
    if threshold.kind == "expression":
        return f"{threshold.condition} is true"
    worst = float(np.max(crossing.value) if threshold.op[0] == ">" else np.min(crossing.value))
    text = f"{threshold.kind} is {number(worst)}, the limit is {threshold.op} {number(threshold.limit)}"
    if threshold.kind == "loss":
        return text
    of = "one variable" if threshold.names else "all weights" if threshold.kind == "update" else "all gradients"
    what = WHAT[threshold.kind, threshold.form].format(of)
    names = [f"{name} {number(own(crossing, name))}" for name in crossing.over[:MOST_NAMES]]
    more = [f"and {len(crossing.over) - MOST_NAMES} more"] if len(crossing.over) > MOST_NAMES else []
    return f"{text} ({what}): {', '.join(names + more)}"


def own(crossing: Crossing, name: str) -> float:
    """A variable's own number, in the form that the threshold compares."""
    place, index = crossing.place, crossing.place.names.index(name)
    columns = {column: float(values[index]) for column, values in crossing.columns.items()}
    if crossing.threshold.kind == "update":
        return float(np.sqrt(columns[UPDATE] / columns[WEIGHT])) if columns[WEIGHT] else float("inf")
    if crossing.threshold.form == "max":
        return columns[LARGEST]
    if crossing.threshold.form == "mean":
        return columns[MAGNITUDES] / max(place.sizes[index], 1)
    return float(np.sqrt(columns[SQUARES]))


def fix(crossing: Crossing) -> str:
    """What usually helps."""
    kind, grows = crossing.threshold.kind, crossing.threshold.op[0] == ">"
    if kind == "grad" and grows:
        return "clip what is applied (clipnorm=, tf.clip_by_global_norm), or look for what grows in the forward pass"
    if kind == "grad":
        return "look for saturated or dead activations, a detached loss, or a loss that is scaled down"
    return "lower the learning rate, or warm it up" if kind == "update" and grows else ""


def notes(crossing: Crossing) -> list[str]:
    """What else one must know to read the numbers."""
    found = [XLA_NOTE] if crossing.compiled else []
    if crossing.losses and crossing.threshold.kind != "loss":
        found.append("loss " + ", ".join(number(float(loss)) for loss in crossing.losses))
    line = crossing.place.loss_line
    if line is not None and line not in [frame.line for frame in crossing.frames]:
        found.append(f"the loss is computed at {screens.place(line)}")
    if how := internals_norms.clips(crossing.place.optimizer):
        found.append(f"the values are those after {how}")
    if crossing.place.kind == "update":
        found.append("the weights are as before the step; the optimizer's averages have taken it in")
    return found
