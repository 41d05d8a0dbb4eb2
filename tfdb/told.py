"""Faults that the user has been told of and went on from -> whether a new trip is only their consequence.

After `c` the bad update is in the weights, and every step from there on is bad.  That is one fault, and one stop: what
comes from variables that are known to be poisoned is passed over, until they are all healthy again, and that is said
once.  A batch with bad values where none were before, or bad values on their way into other variables, are looked at.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import internals, internals_rerun, replaying, state, steps, varnames
from .conditions import badness
from .gate import Trip, gate
from .report import Report

MOST_NAMES = 3


class Told:
    """What the stops so far have been about."""

    def __init__(self) -> None:
        self.poisoned: list[weakref.ref[Any]] = []
        self.names: set[str] = set()
        self.place: tuple[Any, ...] | None = None
        self.origins: set[tuple[Any, ...]] = set()
        self.spoiled: set[tuple[int, str]] = set()
        self.step: int | None = None
        self.said = False
        self.gates: set[Any] = set()
        self.before: set[int] = set()
        self.fresh: tuple[Any, ...] | None = None  # the step that is writing bad values, as it was told
        self.same = False

    def forget(self) -> None:
        """No stop counts any more."""
        self.__init__()  # type: ignore[misc]

    def went_on(self, trip: Trip, report: Report) -> None:
        """The user was told of this and went on: what it poisons from now on is known."""
        if not gate.active:  # the user has taken the watches away at this stop
            return
        known = {id(variable) for variable in self.alive(trip)}
        self.place, self.fresh, self.step, self.said = step_of(trip), step_of(trip), report.step, False
        self.origins.add(key(report))
        self.spoiled |= spoiled(trip)
        self.gates = {gate_of(trip)}
        self.names |= bad_names(trip)
        named = set(report.variables) if report.phase == "variable" else set()
        bad = [variable for variable in state.live_variables() if is_bad(variable)]
        self.before = {id(v) for v in bad if id(v) not in known and not names_of(v) & named}

    def in_same_step(self, trip: Trip) -> bool:
        """Whether the step that was told of is still going on: no gate of it comes a second time."""
        if step_of(trip) != self.place or gate_of(trip) in self.gates:
            return False
        self.gates.add(gate_of(trip))
        return True

    def covers(self, trip: Trip) -> bool:
        """Whether this trip can be nothing but what was told, without a search for its origin."""
        if not self.origins:
            return False
        self.same = self.in_same_step(trip)
        if not bad_names(trip) <= self.names:
            return False
        if self.same:
            return True
        if not (alive := self.alive(trip)) or not spoiled(trip) <= self.spoiled:
            return False
        self.pass_over(trip, alive)
        return True

    def pass_over(self, trip: Trip, poisoned: Sequence[Any]) -> None:
        """Count a step that is not looked at, and say so at the first one."""
        gate.passed_over[trip.watch] = gate.passed_over.get(trip.watch, 0) + 1
        if not self.said:
            self.said = True
            sys.stderr.write(f"\ntfdb: {passing_over([varnames.name_of(each) for each in poisoned], self.step)}\n")

    def is_known(self, trip: Trip, report: Report) -> bool:
        """Whether an origin is the one told in this same step, a batch that was told of, or a poisoned variable."""
        if not self.origins:
            return False
        if (self.same or report.phase == "data") and key(report) in self.origins:
            return True
        if report.phase != "variable" or report.op != "ReadVariableOp":
            return False
        alive = self.alive(trip)
        return bool(alive) and set(report.variables) <= {name for variable in alive for name in names_of(variable)}

    def is_same(self, trip: Trip, report: Report) -> bool:
        """Whether the origin that was found is nothing new; then what the trip was about is known from now on."""
        known = self.is_known(trip, report)
        if known:
            self.names |= bad_names(trip)
            self.spoiled |= spoiled(trip)
            self.fresh = step_of(trip)
        return known

    def alive(self, trip: Trip) -> list[Any]:
        """The variables that a told fault has poisoned and that are so still; all is forgotten when none is."""
        if self.fresh is not None:
            self.fresh = self.fresh if self.fresh == step_of(trip) else None
            bad = [variable for variable in state.live_variables() if is_bad(variable)]
            self.poisoned = [weakref.ref(variable) for variable in bad if id(variable) not in self.before]
        found = [variable for each in self.poisoned if (variable := each()) is not None and is_bad(variable)]
        if not found and self.fresh is None:
            self.forget()
        return found


def passing_over(names: Sequence[str], step: int | None) -> str:
    """What is said when the first step is passed over."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    since = f" at step {step}" if step is not None else ""
    return (
        f"{', '.join(names[:MOST_NAMES])}{more} hold{'s' if len(names) == 1 else ''} bad values since the stop{since}: "
        "steps that these spoil are passed over until they are finite again, other faults of such a step too"
    )


def spoiled(trip: Trip) -> set[tuple[int, str]]:
    """Which of the step's arguments and elements of datasets hold bad values, and which kind."""
    import tensorflow as tf

    step = trip.place.step
    if step is None:
        drawn = [element for _, element in replaying.last_drawn.values()]
        values = tf.nest.flatten(drawn, expand_composites=True)
    else:
        symbols = steps.flatten((step.args, step.kwargs, step.drawn))
        values = [trip.values.get(id(symbol)) for symbol in symbols if internals.is_symbolic(symbol)]
    return {(n, kind) for n, value in enumerate(values) if (kind := replaying.kind_of(value))}


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
