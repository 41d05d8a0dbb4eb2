"""How the debugger waits for breakpoints in eager code while the program runs: mixed into `prompt.Commands`.

From Python 3.12 on by `sys.monitoring`, which costs nothing outside of the code that holds breakpoints; there
`sys.settrace` is used for stepping only.  Before, bdb's trace function stays on while there are breakpoints.
"""

import bdb
import ctypes
import sys
import threading
from collections.abc import Collection
from functools import cached_property
from types import CodeType, FrameType
from typing import Any

from tfdb import exits, internals
from tfdb.commands.base import PromptBase
from tfdb.errors import Quit
from tfdb.frames import is_stand_in
from tfdb.monitoring import BreakpointLines
from tfdb.sourcemap import GENERATED_FILE, in_site_packages, is_hidden, is_nowhere, is_user


class Waiting(PromptBase):
    """Arms breakpoints in eager code on all threads, and changes between waiting and stepping."""

    running_again: bool
    changes: int = 0  # of breakpoints

    @cached_property
    def lines(self) -> BreakpointLines:
        """Sees the lines with breakpoints, where Python can."""
        return BreakpointLines(self.break_lines, self.line_reached, self.generated_event)

    def break_lines(self, code: CodeType) -> Collection[int]:
        """The lines with breakpoints in a code object's file; none in what only stands for a line at a graph's stop."""
        return () if is_stand_in(code) else self.get_file_breaks(code.co_filename)

    def get_file_breaks(self, filename: str) -> list[int]:
        """bdb's own, in one look at the table: another thread's prompt may clear the file's last breakpoint."""
        return self.breaks.get(self.canonic(filename), [])

    @cached_property
    def judged(self) -> threading.local:
        """What bdb has just been asked about on each thread: a frame's id, its instruction, `changes` at that time."""
        return threading.local()

    def set_break(self, *args: Any, **kwargs: Any) -> str | None:
        """Set a breakpoint; functions that were traced before are traced anew when they are next called."""
        error: str | None = super().set_break(*args, **kwargs)
        if error is None:
            self.session.arm()
            self.arm_breakpoints()
        return error

    def _prune_breaks(self, filename: str, lineno: int) -> None:
        super()._prune_breaks(filename, lineno)
        self.arm_breakpoints()

    def arm_breakpoints(self) -> None:
        """Breakpoints changed: all threads are to stop at those that there are now, and at no others."""
        self.changes += 1
        self.lines.refresh([filename for filename in self.breaks if not filename.startswith("<")])
        if self.lines.installed:
            return
        if self.breaks and threading.gettrace() is None:
            threading.settrace(self.trace_dispatch)
        elif not self.breaks:
            self.leave_threads()

    def leave_threads(self) -> None:
        """Wait for breakpoints no more; trace no thread that starts from now on."""
        self.lines.remove()
        if threading.gettrace() == self.trace_dispatch:
            threading.settrace(None)

    def trace_function(self) -> Any:
        """The trace function that a thread needs now: bdb's while eager code is stepped or breakpoints need it."""
        needed = self.is_stepping() or (self.breaks and not self.lines.installed)
        return self.trace_dispatch if needed else None

    def is_stepping(self) -> bool:
        """Whether `s` is under way in eager code."""
        return self.stopframe is None and self.stoplineno == 0 and self.session.twins.is_traced()

    def is_idle(self) -> bool:
        """Whether nothing asks for a stop in a function that is about to be called."""
        return not self.breaks and not (self.stopframe is None and self.stoplineno == 0)

    def stepped_over(self) -> FrameType | None:
        """The frame in which the next line, or the return, is waited for."""
        return self.stopframe if self.stoplineno != -1 else None

    def is_waiting(self) -> bool:
        """Whether only breakpoints stop the program, and they need no trace function."""
        nothing_else = self.stopframe is self.botframe and self.stoplineno == -1
        return nothing_else and (self.lines.installed or not self.breaks)

    def is_idle_trace(self, trace: Any) -> bool:
        """Whether a thread's trace function is this debugger's, and has nothing to do there any more."""
        return bool(trace == self.trace_dispatch and self.is_waiting())

    def line_reached(self, frame: FrameType) -> None:
        """A line that may have a breakpoint is about to run: stop if it is in effect, unless bdb is asked as well.

        bdb's trace function is asked first; the prompt that it opened for this line may have taken it away.
        """
        asked, self.judged.place = getattr(self.judged, "place", None), None
        if asked == (id(frame), frame.f_lasti, self.changes):
            return
        if frame.f_trace is not None and sys.gettrace() == self.trace_dispatch:
            return
        if self.session.closed or threading.get_ident() in self.session.at_prompt:
            return
        if internals.current_graph() is not None or not self.break_here(frame):
            return
        self.user_line(frame)
        keep_locals(frame)
        if self.quitting:
            raise self.quit_of(frame)
        if not self.is_waiting():
            frame.f_trace = self.trace_dispatch
            self.trace_from(frame)

    def generated_event(self, frame: FrameType, event: str, arg: Any) -> None:
        """Something happens in code that AutoGraph generated; where it is run eagerly, it may hold breakpoints."""
        if frame.f_trace is not None and sys.gettrace() == self.trace_dispatch:
            return
        if self.session.closed or internals.current_graph() is not None:
            return
        if event == "call":
            self.session.eager_stops.trace_function(frame)
        else:
            self.session.eager_stops.on_event(frame, event, arg)

    def trace_from(self, frame: FrameType | None) -> None:
        """Trace this thread from now on, in the calls of the user's that are open too."""
        while frame is not None:
            if is_user(frame.f_code.co_filename):
                frame.f_trace = self.trace_dispatch
            self.botframe = frame
            frame = frame.f_back
        sys.settrace(self.trace_dispatch)

    def set_continue(self) -> None:
        super().set_continue()
        if self.lines.installed and sys.gettrace() == self.trace_dispatch:
            sys.settrace(None)

    def quit_of(self, frame: FrameType) -> BaseException:
        """The user's `q` at an eager stop, as what ends the program."""
        if not self.running_again:
            exits.no_more_stops()
        if internals.in_py_function(frame) and not self.running_again:
            self.session.quit()
        elif threading.current_thread() is not threading.main_thread() and not self.running_again:
            self.session.quitting = self.session.quitting or Quit(1)
            self.session.door.wake_main()
            return SystemExit(1)  # a thread ends silently with this class alone
        return self.session.quitting or Quit(1)

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        """bdb's trace function: library frames are not entered, and symbolic passes are left to the line hooks.

        Where a thread has nothing to do for it any more, it takes itself away.
        """
        if event == "call":
            filename = frame.f_code.co_filename
            if GENERATED_FILE in filename and self.breaks and internals.current_graph() is None:
                return self.session.eager_stops.trace_function(frame)
            if self.is_out_of_sight(filename) or (in_site_packages(filename) and not self.get_file_breaks(filename)):
                return None
        if internals.current_graph() is not None:
            return None
        if event == "line":
            self.judged.place = id(frame), frame.f_lasti, self.changes
        elif self.is_waiting():
            sys.settrace(None)
            return None
        try:
            traced = super().trace_dispatch(frame, event, arg)
        except bdb.BdbQuit:
            sys.settrace(None)
            raise self.quit_of(frame) from None
        if event == "return" and self.is_stepping() and internals.in_py_function(frame) and not has_callers(frame):
            self.session.step_into()  # the graph goes on, or, after it, the line that called it
            self._set_stopinfo(self.botframe, None, -1)
        return traced

    def is_out_of_sight(self, filename: str) -> bool:
        """Whether stepping leaves a file out: a library's, or text that exists nowhere (namedtuple, dataclasses)."""
        return is_hidden(filename) or is_nowhere(filename)


def has_callers(frame: FrameType) -> bool:
    """Whether code of the user's called this frame, on its thread."""
    outer = frame.f_back
    while outer is not None and not is_user(outer.f_code.co_filename):
        outer = outer.f_back
    return outer is not None


def keep_locals(frame: FrameType) -> None:
    """Make what the user assigned to a frame's locals stay: Python 3.12 does it for trace functions only."""
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(1))
