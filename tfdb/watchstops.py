"""A watch that tripped -> the prompt at the origin, or the report and the end of the program."""

import contextlib
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tfdb import internals, progress, render, screens, skips
from tfdb.errors import Quit, TfdbError
from tfdb.gate import Trip, gate
from tfdb.normgate import norms
from tfdb.program import Ending
from tfdb.report import Frame, Report
from tfdb.session import Session
from tfdb.thresholds import Threshold
from tfdb.tripreports import Origin, live_frame
from tfdb.watching import Watching

SEARCHING = (
    "\ntfdb runs the step again, op by op, to find where the bad value was made"  # a progress bar's line is not over
)


class WatchStops:
    """The session's watches, and what happens when one trips."""

    def __init__(self, session: Session, ending: Ending) -> None:
        self.session = session
        self.ending = ending
        self.watching = Watching(self.tripped, self.searching)
        self.numbers: list[int] = []  # of the watches, which keep them as long as they last
        self.last_number = 0
        self.trip: Trip | None = None
        self.skipped = False

    def searching(self) -> AbstractContextManager[None]:
        """Within the block, a user who waits at a terminal for the prompt is told what takes so long."""
        return told(self.session, SEARCHING)

    def start(self, texts: Sequence[str]) -> None:
        """Watch for these conditions from now on.

        Raises:
            conditions.WatchError: a text that cannot be understood.
        """
        before = len(self.watching.watches)
        self.watching.start(texts)
        for watch in self.watching.watches[before:]:
            self.last_number += 1
            self.numbers.append(self.last_number)
            if watch not in self.watching.watches[:before]:  # one that went before it may have been the same
                gate.hits.pop(watch, None)
                gate.passed_over.pop(watch, None)
        self.retrace_for_watches()

    def retrace_for_watches(self) -> None:
        """Have functions that were traced before the watch traced again; none when nothing is watched."""
        texts = ";".join([*map(str, self.watching.watches), *(["grads"] if self.watching.recording else [])])
        self.session.late_watches = frozenset({(f"<watch:{texts}>", 0)} if texts and internals.loaded() else ())
        self.session.arm()

    def record(self) -> bool:
        """Keep what `grads` shows from the next step on; False when that is so already."""
        before, self.watching.recording = self.watching.recording, True
        if not before:
            self.start([])
        return not before

    def listing(self) -> list[str]:
        """A line for each watch: its number, the condition, how often it stopped the program."""
        return [
            f"watch {number}  {watch}{hit_text(gate.hits.get(watch, 0))}{passed_text(gate.passed_over.get(watch, 0))}"
            for number, watch in zip(self.numbers, self.watching.watches, strict=False)
        ]

    def remove(self, numbers: Sequence[int]) -> list[str]:
        """Take the watches with these numbers away, or all; returns their lines.

        Raises:
            ValueError: there is no watch with one of the numbers.
        """
        lines = dict(zip(self.numbers, self.listing(), strict=True))
        chosen = sorted(set(numbers or lines))
        if any(number not in lines for number in chosen):
            raise ValueError(f"no watch {chosen}")
        known = zip(self.numbers, list(self.watching.watches), strict=True)
        kept = [str(watch) for number, watch in known if number not in chosen]
        self.numbers = [number for number in self.numbers if number not in chosen]
        self.watching.stop()
        if kept or self.watching.recording or self.watching.silent:
            self.watching.start(kept)
        self.retrace_for_watches()
        return [lines[number] for number in chosen]

    def not_looked_at(self) -> list[str]:
        """A line for each limit or expression that no step has come to: it has stopped nothing, whatever it says."""
        known = zip(self.numbers, self.watching.watches, strict=False)
        unseen = [(number, each) for number, each in known if isinstance(each, Threshold) and each not in norms.seen]
        return [
            f"watch {number}  {each}: no step came to it: it is looked at where gradients are applied"
            for number, each in unseen
        ]

    def tripped(self, trip: Trip | None, origin: Origin) -> bool:
        """A step went bad: say so, in the user's frame of the origin.  Returns whether the user skips its update."""
        self.trip, self.skipped = trip, False
        try:
            self.stop(origin.report, origin.frames, trip)
        finally:
            self.trip = None
        return self.skipped

    def tripped_late(self, origin: Origin) -> None:
        """The program has found a bad value itself, after the fact: say where it came from."""
        self.stop(origin.report, origin.frames)

    def skip(self) -> str:
        """Leave out the update that this stop stands before; returns what is left out, in words.

        Raises:
            TfdbError: this is no stop of a watch, or nothing stands behind it that could be left out.
        """
        if self.trip is None:
            raise TfdbError("skip leaves out the update at a stop of `watch`; this is none")
        said = skips.begin(self.trip)
        self.skipped = True
        return said

    def stop(self, report: Report, frames: Sequence[Frame], trip: Trip | None = None) -> None:
        """Print the screen of a report, write it, and prompt or end."""
        self.write(report)
        terminal = hasattr(self.session.debugger, "shell")
        text = screens.watch_screen(report, render.terminal_width(), terminal and sys.stdout.isatty())
        if self.ending.no_prompt:
            self.session.debugger.message(text)
            self.session.quit(Quit(1))
            raise Quit(1)
        self.session.stop_at_report(text, report, [live_frame(frame) for frame in frames], trip)

    def write(self, report: Report) -> None:
        """Write the report where `--report` says."""
        if self.ending.path is not None:
            write_report(self.ending.path, report.to_json())


def told(session: Session, text: str) -> AbstractContextManager[None]:
    """Within the block, the text is said once it takes long, to a user at a terminal who will get a prompt."""
    if session.debugger.ending.no_prompt:
        return contextlib.nullcontext()
    return progress.told(text, session.debugger.stdout)


def passed_text(count: int) -> str:
    """How often the origin of something bad was one that a watch leaves out."""
    return f"  passed over {count} time{'s' if count != 1 else ''}" if count else ""


def hit_text(count: int) -> str:
    """How often a watch has found something."""
    return f"  hit {count} time{'s' if count != 1 else ''}" if count else ""


def of(session: Session) -> WatchStops:
    """The session's watches, made on first use."""
    if session.watches is None:
        session.watches = WatchStops(session, session.debugger.ending)
    return session.watches


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Write a report's JSON to a file; a file that cannot be written is said, and the program goes on."""
    try:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"tfdb: the report cannot be written: {error}\n")
