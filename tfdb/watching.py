"""The command line's and the API's watches -> doors installed as soon as TensorFlow and Keras are there.

`start` may come before or after the program imports them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from . import (
    conditions,
    doors,
    internals,
    internals_numerics,
    masks,
    nonegrads,
    normreport,
    replay,
    thresholds,
    tripreports,
)
from .conditions import Watch
from .gate import UPDATING, Trip, gate
from .imports import ImportWatch
from .near import near
from .normgate import norms
from .normlook import Crossing
from .report import Report
from .thresholds import Threshold
from .told import told
from .tripreports import Origin

PACKAGES = ("tensorflow", "keras", "tf_keras")
SILENT = conditions.parse("nan")


class Watching:
    """The watches of this process: parsed conditions, and what is called with each trip and its origin.

    `on_stop` returns whether the update that the trip stood before is being skipped; a search for an origin goes on
    inside of a `searching`.
    """

    def __init__(
        self,
        on_stop: Callable[[Trip, Origin], bool | None],
        searching: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.on_stop = on_stop
        self.searching = searching
        self.watches: list[Watch] = []
        self.importing: ImportWatch | None = None
        self.masked: list[Any] = []  # the steps of which it has been said
        self.recording = False  # all columns of `grads`
        self.silent = False  # note the first origin of a NaN, and stop for nothing
        self.noted: Origin | None = None

    def start(self, texts: Sequence[str]) -> None:
        """Add watches; arms the doors now, or when TensorFlow is imported.

        Raises:
            conditions.WatchError: a text that cannot be understood.
        """
        self.watches += [parse(text) for text in texts]
        if self.importing is None:
            self.importing = ImportWatch(dict.fromkeys(PACKAGES, lambda module: self.arm()), lambda: True)
            self.importing.install()
        self.arm()

    def note_silently(self) -> None:
        """From now on, note the first NaN's origin where no watch stops for it."""
        self.silent = True
        self.start([])

    def arm(self) -> None:
        """Install what can be installed by now."""
        limits = [watch for watch in self.watches if isinstance(watch, Threshold)]
        others = [watch for watch in self.watches if not isinstance(watch, Threshold)]
        if internals.loaded() and (close := [watch for watch in self.watches if watch.kind == "near"]):
            near.install(close, self.on_stop, names_of)
        silent = [SILENT] if self.silent and not any(watch.kind == "nan" for watch in others) else []
        if internals.loaded() and (others or silent):
            doors.install([*others, *silent], self.tripped, told.covers)
            if any(watch.kind in ("nan", "inf") for watch in others):
                internals_numerics.numerics_check.set_aside(say_set_aside)
            if lost := [watch for watch in self.watches if watch.kind == "none"]:
                nonegrads.watch.install(lost, self.lost)
        if internals.loaded() and (limits or self.recording):
            norms.install(limits, self.crossed, self.recording)

    def stop(self) -> None:
        """Watch nothing from now on.  Idempotent."""
        self.watches.clear()
        if self.importing is not None:
            self.importing.remove()
            self.importing = None
        if internals.loaded():
            norms.remove()
            near.remove()
            nonegrads.watch.remove()
            internals_numerics.numerics_check.put_back()
            doors.uninstall()
        told.forget()

    def tripped(self, trip: Trip) -> None:
        """Find the origin, and say so, unless a watch leaves such origins out."""
        origin = self.to_tell(trip)
        if origin is not None and not self.on_stop(trip, origin):
            told.went_on(trip, origin.report)

    def to_tell(self, trip: Trip) -> Origin | None:
        """What made the bad values of a trip; None where that is nothing to stop for."""
        counted = trip.watch is not SILENT and not trip.watch.selective
        if masks.is_awaited(trip):
            gate.hits[trip.watch] = gate.hits.get(trip.watch, 0) - counted
            return None
        if trip.watch is SILENT:
            self.noted = self.noted or self.origin_of(trip, lambda report: True)
            return None
        if counted:
            origin = self.origin_of(trip, lambda report: not is_passed(trip, report))
        else:
            origin = self.origin_of(
                trip,
                lambda report: not is_passed(trip, report) and gate.concerned(trip, names_of(report)) is not None,
            )
        if trip.masked or is_written(trip, origin.report) or told.is_same(trip, origin.report):
            self.say_masked(trip)
            gate.hits[trip.watch] = gate.hits.get(trip.watch, 0) - counted
            return None
        passed = not counted and gate.falling_under(trip, names_of(origin.report)) is None
        return None if passed else origin

    def say_masked(self, trip: Trip) -> None:
        """Say it once of a step that the program masks what its gates see."""
        if trip.masked and trip.step not in self.masked:
            self.masked.append(trip.step)
            number = tripreports.step_number(trip)
            step = f" at step {number}" if number is not None else ""
            what = {"nan": "NaN", "inf": "infinite"}.get(trip.reason, "bad")
            sys.stderr.write(f"\ntfdb: the loss is {what}{step}, but {replay.MASKED}: no stop\n")

    def origin_of(self, trip: Trip, accept: Callable[[Report], bool]) -> Origin:
        """What made the bad values of a trip: the first origin that `accept` takes, else the first."""
        with self.searching():
            return replay.find_origin(trip, accept)

    def lost(self, trip: Trip, origin: Origin) -> None:
        """A gradient is None: say so."""
        self.on_stop(trip, origin)

    def crossed(self, crossing: Crossing) -> None:
        """A threshold was passed: say so."""
        trip = normreport.trip_of(crossing)
        trip.call = norms.calls.current()
        self.on_stop(trip, normreport.origin(crossing, trip))


def is_passed(trip: Trip, report: Report) -> bool:
    """Whether this origin is none to stop for, whatever the watch leaves out."""
    return is_written(trip, report) or told.is_known(trip, report)


def is_written(trip: Trip, report: Report) -> bool:
    """Whether an infinity that weights do not depend on is one the program has written: `np.inf`, a mask's constant.

    Such a constant holds nothing else, or one other number (0 and -inf); data with an infinity has more values.
    """
    if trip.reason != "inf" or trip.place.kind in UPDATING or report.op != "Const" or not report.inputs:
        return False
    summary = report.inputs[0].summary
    return summary.nan is None and summary.minimum == summary.maximum


def say_set_aside() -> None:
    """Tell it once."""
    sys.stderr.write("tfdb: enable_check_numerics is set aside while nan or inf is watched\n")


def names_of(report: Report) -> list[str]:
    """What `in` and `allow` are matched with: the origin's file, functions, layers, inputs, and the variables it is on
    its way into when no op of the forward pass made it."""
    line = report.line
    names = [os.path.basename(line.file), line.function] if line is not None else []
    names += [entry.function for entry in report.stack if entry.function != "<module>"]
    names += [*report.layers, *(value.name for value in report.inputs if value.name)]
    return names + list(report.variables if report.op is None or report.phase in ("update", "variable") else ())


def parse(text: str) -> Watch:
    """A watch of either kind.

    Raises:
        conditions.WatchError: a text that cannot be understood.
    """
    return (
        conditions.parse(text) if text.split()[:1] and text.split()[0] in conditions.KINDS else thresholds.parse(text)
    )
