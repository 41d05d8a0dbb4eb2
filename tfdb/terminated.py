"""A `TerminateOnNaN` callback that ends `fit` without an error -> the stop that an error would have got.

From the moment such a callback is made, every step has the gate of `watch nan`, which notes the first origin and lets
the program go on; the callback's verdict opens the screen.  A step that was traced before that has no gate: its last
batch is run again, with the weights as they are by then.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

from tfdb import internals, internals_keras, numericfaults, tripreports, watchstops
from tfdb.session import Session

APPLIED = "TerminateOnNaN has ended fit; the bad update was applied before that, `-w nan` stops before it"
LATE = "found by running the last batch again with the weights as they are after its update"


class Terminations:
    """The doors of the loaded Keras packages' `TerminateOnNaN`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.patches = internals.Patches()

    def install(self) -> None:
        """Stand at the callbacks of every Keras package loaded by now.  Idempotent; `remove` undoes it."""
        hooked = {owner for owner, _, _ in self.patches.saved}
        for owner, name in internals_keras.nan_callbacks():
            if owner not in hooked:
                maker = next(each for each in owner.__mro__ if "__init__" in vars(each))  # Callback up to Keras 3.12
                self.patches.replace(maker, "__init__", functools.partial(self.making, owner))
                self.patches.replace(owner, name, self.ending)

    def remove(self) -> None:
        """Leave the callbacks alone.  Idempotent."""
        self.patches.remove()

    def making(self, owner: type, original: Callable[..., None]) -> Callable[..., None]:
        """The callback's `__init__`, be it inherited: from here on steps are traced with their gates."""

        def __init__(callback: Any, *args: Any, **kwargs: Any) -> None:
            original(callback, *args, **kwargs)
            if issubclass(type(callback), owner):
                watchstops.of(self.session).watching.note_silently()

        return __init__

    def ending(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The callback's look at the loss of a batch."""

        def on_batch_end(callback: Any, *args: Any, **kwargs: Any) -> Any:
            model = callback.model
            before = model.stop_training
            try:
                result = original(callback, *args, **kwargs)
            except RuntimeError:  # Keras' `raise_error=True`
                self.tell(sys._getframe(1))
                raise
            if model.stop_training and not before:
                self.tell(sys._getframe(1))
            return result

        return on_batch_end

    def tell(self, frame: FrameType) -> None:
        """Stop at the origin, unless a watch has stopped for it before."""
        stops = watchstops.of(self.session)
        watching = stops.watching
        if any(watch.kind == "nan" for watch in watching.watches):
            return
        found, watching.noted = watching.noted, None
        note = APPLIED
        if found is None:
            with stops.searching():
                found, note = numericfaults.origin_of_loss(frame, self.session.keeper), LATE
        report = replace(found.report, place="check", clean=False, skips=False, notes=(*found.report.notes, note))
        stops.tripped_late(tripreports.Origin(report, found.frames))
