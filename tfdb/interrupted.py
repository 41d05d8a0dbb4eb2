"""Ctrl-C outside the hooks -> a prompt in eager code, or beside a call that does not come back."""

import ctypes
import os
import sys
import threading
from types import FrameType

from tfdb import internals_tracing
from tfdb.commands.base import PromptBase
from tfdb.errors import Quit
from tfdb.interrupts import raise_from
from tfdb.program import Ending
from tfdb.stopping import Stepping

STILL_RUNNING = "\nProgram interrupted in a call that has not come back. (c: wait for it, q: end the process)"


class InterruptedPrompt(PromptBase):
    """What the prompt does about Ctrl-C where no hook answers it; mixed in before a pdb class."""

    beside: bool = False  # a prompt is open on a thread of its own while the main thread is in a call

    busy: int
    ending: Ending

    def noticed(self) -> None:
        """Ctrl-C was typed: the next hook stops for it, or the command ends that a prompt off the main thread runs.

        Python raises KeyboardInterrupt on the main thread alone, and there only when its call is over, which waits
        for that prompt.
        """
        if self.ending.no_prompt:
            return
        self.session.interrupt()
        if self.busy not in (0, threading.main_thread().ident):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.busy), ctypes.py_object(KeyboardInterrupt))

    def interrupted_at(self, frame: FrameType | None) -> None:
        """Ctrl-C in eager code, or after a graph that had no hook: stop at the user's innermost line.

        So it is too when another thread has quit the program.
        """
        if self.beside:
            with self.session.lock:
                pass
        if internals_tracing.is_making_error(frame) or self.session.door.handed:
            return  # the call's own door raises what is meant, or has
        if self.session.quitting is not None:
            raise_from(frame, self.session.quitting)
            return
        if self.ending.no_prompt or threading.get_ident() in self.session.at_prompt or self.session.is_foreign():
            raise KeyboardInterrupt
        if not self.session.interrupted or self.session.at_prompt:  # another thread's prompt has it
            return
        self.session.interrupted = False
        interrupted, frame = frame, self.user_frame(frame)
        if self.session.stepping is not None and self.session.stepping.kind == "eager":
            self.step_in_eager(frame)
            return
        self.message("\nProgram interrupted. (Use 'cont' to resume.)")
        self.step_in_eager(frame)
        trace = sys.gettrace()
        sys.settrace(None)
        self.interaction(frame, None)
        if self.quitting:
            self.session.quitting = Quit(1)  # hooks on other threads are to end too
            raise_from(interrupted, self.session.quitting)
            return
        if self.trace_function() is not None or self.stopframe is not self.botframe:
            sys.settrace(trace)

    def still_running(self) -> None:
        """The main thread has not answered Ctrl-C: it is in TensorFlow, or in other C code, for long.  Ask meanwhile.

        Runs on a thread of its own.  The prompt stands at the user's line that made the call; a step chosen there
        begins when the call is over, and `q` ends the process, for nothing ends the call.
        """
        now = self.session
        with now.lock:
            frame = self.user_frame(sys._current_frames().get(threading.main_thread().ident or 0))
            if not now.interrupted or now.at_prompt or now.is_foreign() or frame is None:
                return
            now.interrupted = False
            self.beside = True
            try:
                self.message(STILL_RUNNING)
                self.interaction(frame, None)
                if self.quitting:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(0)
                if self.stopframe is not self.botframe:
                    now.stepping, now.interrupted = Stepping("eager"), True
            finally:
                self.beside = False

    def user_frame(self, frame: FrameType | None) -> FrameType | None:
        """The innermost of the user's frames, of those that led to this one."""
        while frame is not None and self.is_hidden(frame) and frame.f_back is not None:
            frame = frame.f_back
        return frame
