"""The command line's and the API's watches -> doors installed as soon as TensorFlow and Keras are there.

`start` may come before or after the program imports them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from . import conditions, doors, internals, internals_numerics, nonegrads, normreport, replay, thresholds
from .conditions import Watch
from .gate import Trip, gate
from .normgate import norms
from .normlook import Crossing
from .report import Report
from .thresholds import Threshold
from .tripreports import Origin

PACKAGES = ("tensorflow", "keras", "tf_keras")


class ImportWatcher(importlib.abc.MetaPathFinder):
    """Calls back when one of `PACKAGES` has been imported whole."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.looking = False

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """The package's own spec, with a loader that calls back at its end; None for every other module."""
        del path, target
        if name not in PACKAGES or self.looking:
            return None
        self.looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.looking = False
        if spec is None or spec.loader is None:
            return None
        load, callback = spec.loader.exec_module, self.callback

        def exec_module(module: ModuleType) -> None:
            load(module)
            callback()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Watching:
    """The watches of this process: parsed conditions, and what is called with each trip and its origin."""

    def __init__(self, on_stop: Callable[[Trip, Origin], None]) -> None:
        self.on_stop = on_stop
        self.watches: list[Watch] = []
        self.importing: ImportWatcher | None = None
        self.recording = False  # all columns of `grads`

    def start(self, texts: Sequence[str]) -> None:
        """Add watches; arms the doors now, or when TensorFlow is imported.

        Raises:
            conditions.WatchError: a text that cannot be understood.
        """
        self.watches += [parse(text) for text in texts]
        if self.importing is None:
            self.importing = ImportWatcher(self.arm)
            sys.meta_path.insert(0, self.importing)
        self.arm()

    def arm(self) -> None:
        """Install what can be installed by now."""
        limits = [watch for watch in self.watches if isinstance(watch, Threshold)]
        others = [watch for watch in self.watches if not isinstance(watch, Threshold)]
        if internals.loaded() and others:
            doors.install(others, self.tripped)
            if any(watch.kind in ("nan", "inf") for watch in others):
                internals_numerics.numerics_check.set_aside(say_set_aside)
            if lost := [watch for watch in self.watches if watch.kind == "none"]:
                nonegrads.watch.install(lost, self.on_stop)
        if internals.loaded() and (limits or self.recording):
            norms.install(limits, self.crossed, self.recording)

    def stop(self) -> None:
        """Watch nothing from now on.  Idempotent."""
        self.watches.clear()
        if self.importing is not None:
            sys.meta_path.remove(self.importing)
            self.importing = None
        if internals.loaded():
            norms.remove()
            nonegrads.watch.remove()
            internals_numerics.numerics_check.put_back()
            doors.uninstall()

    def tripped(self, trip: Trip) -> None:
        """Find the origin, and say so, unless a watch leaves such origins out."""
        if not trip.watch.selective:
            self.on_stop(trip, replay.find_origin(trip))
            return
        origin = replay.find_origin(trip, lambda report: gate.concerned(trip, names_of(report)) is not None)
        if gate.falling_under(trip, names_of(origin.report)) is not None:
            self.on_stop(trip, origin)

    def crossed(self, crossing: Crossing) -> None:
        """A threshold was passed: say so."""
        self.on_stop(normreport.trip_of(crossing), normreport.origin(crossing))


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
