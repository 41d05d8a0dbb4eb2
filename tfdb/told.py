"""Faults that the user has been told of and went on from -> whether a new trip is only their consequence.

After `c` the bad update is in the weights, and every step from there on is bad.  That is one fault, and one stop: what
comes from variables that are known to be poisoned is passed over, until they are all healthy again.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from . import internals_rerun, state, varnames
from .conditions import badness
from .gate import Trip, gate
from .report import Report


class Told:
    """What the stops so far have been about."""

    def __init__(self) -> None:
        self.poisoned: list[weakref.ref[Any]] = []
        self.names: set[str] = set()
        self.place: tuple[Any, ...] | None = None
        self.origin: tuple[Any, ...] | None = None
        self.gates: set[Any] = set()
        self.before: set[int] = set()
        self.fresh = False
        self.same = False

    def forget(self) -> None:
        """No stop counts any more."""
        self.__init__()  # type: ignore[misc]

    def went_on(self, trip: Trip, report: Report) -> None:
        """The user was told of this and went on: what it poisons from now on is known."""
        if not gate.active:  # the user has taken the watches away at this stop
            return
        self.place, self.origin, self.fresh = step_of(trip), key(report), True
        self.gates = {gate_of(trip)}
        self.names |= bad_names(trip)
        named = set(report.variables) if report.phase == "variable" else set()
        bad = [variable for variable in state.live_variables() if is_bad(variable)]
        self.before = {id(variable) for variable in bad if not names_of(variable) & named}

    def in_same_step(self, trip: Trip) -> bool:
        """Whether the step that was told of is still going on: no gate of it comes a second time."""
        if step_of(trip) != self.place or gate_of(trip) in self.gates:
            return False
        self.gates.add(gate_of(trip))
        return True

    def covers(self, trip: Trip) -> bool:
        """Whether this trip can be nothing but what was told, without a search for its origin."""
        if self.origin is None:
            return False
        self.same = self.in_same_step(trip)
        return bad_names(trip) <= self.names and (self.same or bool(self.alive()))

    def is_same(self, trip: Trip, report: Report) -> bool:
        """Whether an origin that was found is the one told in this same step, or a variable known to be poisoned."""
        if self.origin is None:
            return False
        same = self.same and key(report) == self.origin
        spread = report.phase == "variable" and report.op == "ReadVariableOp" and bool(self.alive())
        if spread:
            names = {name for variable in self.alive() for name in names_of(variable)}
            spread = set(report.variables) <= names
        if same or spread:
            self.names |= bad_names(trip)
        return same or spread

    def alive(self) -> list[Any]:
        """The variables that a told fault has poisoned and that are so still; all is forgotten when none is."""
        if self.fresh:
            self.fresh = False
            bad = [variable for variable in state.live_variables() if is_bad(variable)]
            self.poisoned = [weakref.ref(variable) for variable in bad if id(variable) not in self.before]
        found = [variable for each in self.poisoned if (variable := each()) is not None and is_bad(variable)]
        if not found:
            self.forget()
        return found


def step_of(trip: Trip) -> tuple[Any, ...]:
    """What tells one step from the next: the graph call and its run of the step, or the eager tape opened last."""
    if trip.call is not None:
        return (trip.call,)
    return (threading.get_ident(), gate.local.tapes)


def gate_of(trip: Trip) -> Any:
    """What tells one gate of a step from the others."""
    return trip.place if trip.place.step is not None else (trip.place.kind, trip.place.names)


def key(report: Report) -> tuple[Any, ...]:
    """What two reports of the same fault have in common."""
    return report.line, report.forward_op or report.op


def bad_names(trip: Trip) -> set[str]:
    """The names of what was bad at the gate."""
    return {name for name, bad in zip(trip.place.names, trip.bad, strict=False) if bad} or set(trip.place.names)


def names_of(variable: Any) -> set[str]:
    """The names that a report may call a variable by."""
    return {varnames.name_of(variable), str(getattr(variable, "name", "variable")).removesuffix(":0")}


def is_bad(variable: Any) -> bool:
    """Whether a variable holds NaN, or infinities where it is trained; elsewhere they may be meant (a mask).

    Scalars that are not trained are left out: a metric poisons nothing, and is NaN until it is reset.
    """
    dtype = variable.dtype
    if not (dtype.is_floating or dtype.is_complex) or (variable.shape.rank == 0 and not variable.trainable):
        return False
    try:
        found = badness(np.asarray(internals_rerun.read(variable)))
        return found == "nan" or (found == "inf" and bool(variable.trainable))
    except Exception:  # not initialised, or of a graph: it poisons nothing
        return False


told = Told()
