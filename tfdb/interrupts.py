"""Ctrl-C -> a stop at the next planted line of a running graph, or else at the user's line that made the call.

Python runs a signal handler between two of its own instructions only, and a graph call may last for minutes.  The
interpreter writes each signal's number to a file descriptor at once, though; a thread that reads it tells the session.
"""

import _thread
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

PATIENCE = 1.0  # seconds


def raise_from(frame: FrameType | None, error: BaseException) -> None:
    """Raise an error that ends the program, in a signal handler that has come upon `frame`.

    What is raised within a `__del__` Python prints and forgets; there it is raised as soon as that is over.
    """
    outside = None
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            outside = frame.f_back
        frame = frame.f_back
    if outside is None:
        raise error

    def raising(at: FrameType, event: str, arg: Any) -> None:
        sys.settrace(None)
        at.f_trace = None
        at.f_trace_opcodes = False
        raise error

    outside.f_trace = raising
    outside.f_trace_opcodes = True
    sys.settrace(lambda *event: None)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Within the block Ctrl-C does nothing, as far as Python itself would answer it: what ends is ending already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        pressed.append(number)

    before = signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) == keep:
            signal.signal(signal.SIGINT, standing(before))


def standing(handler: Any) -> Any:
    """A handler of signals, or where it is that of an `Interrupts` that was removed, the one before it."""
    owner = getattr(handler, "__self__", None)
    return owner.before if isinstance(owner, Interrupts) and owner.pipe is None else handler


class Interrupts:
    """Takes SIGINT while it is installed; main thread only.

    `noticed()` is called as soon as Ctrl-C is typed, by default on a thread of its own; `arrived(frame)` on the main
    thread when Python runs again, unless a hook has stopped for it meanwhile.  `waiting()` is called when neither has
    happened within a second, on a thread of its own.
    """

    def __init__(
        self, noticed: Callable[[], None], arrived: Callable[[FrameType | None], None], waiting: Callable[[], None]
    ) -> None:
        self.noticed = noticed
        self.arrived = arrived
        self.waiting = waiting
        self.before: Any = None
        self.fd_before = -1
        self.pipe: tuple[int, int] | None = None
        self.process = os.getpid()  # a forked child has the handler, and not the thread
        self.reading = threading.RLock()  # a second signal's handler may run within the first's
        self.fresh = False  # `noticed` has been told of a signal that the handler has not come to yet

    def install(self) -> None:
        """Take the signal.  Does nothing off the main thread, or where the program set a handler of its own."""
        if threading.current_thread() is not threading.main_thread() or self.pipe is not None:
            return
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        self.pipe = read, write
        self.before = signal.signal(signal.SIGINT, self.handle)
        self.fd_before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self.leave_to_parent)
        threading.Thread(target=self.listen, args=(read,), name="tfdb-interrupts", daemon=True).start()

    def listen(self, read: int) -> None:
        """Wait for signals until the pipe is closed."""
        with suppress(OSError):
            while True:
                select.select([read], [], [])
                if not self.take(read):
                    return

    def take(self, read: int) -> bool:
        """Tell of the signals that have come, if any; whether more may come.

        A program that has a handler of its own by now means something else by Ctrl-C.
        """
        with self.reading:
            try:
                numbers = os.read(read, 64)
            except BlockingIOError:  # the other thread was faster
                return True
            if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) == self.handle:
                self.notice()
        return bool(numbers)

    def notice(self) -> None:
        """Tell of a signal; in a while ask whether it has had an answer."""
        self.noticed()
        self.fresh = True
        timer = threading.Timer(PATIENCE, self.waiting)
        timer.daemon = True
        timer.start()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Python's own handler: `noticed` comes first, whichever thread is the faster."""
        if self.process == os.getpid() and self.pipe is not None:
            with self.reading:
                self.take(self.pipe[0])
                if not self.fresh:  # the program has another use for Python's file descriptor
                    self.notice()
                self.fresh = False
        self.arrived(frame)

    def wake_main(self) -> None:
        """Make the main thread look at the session, which is quitting, wherever it is in Python."""
        if self.pipe is not None:
            _thread.interrupt_main()

    def leave_to_parent(self) -> None:
        """In a forked child: its signals are no news for the parent's thread, which reads the same pipe."""
        if self.pipe is not None:
            with suppress(ValueError):  # not the main thread
                signal.set_wakeup_fd(-1)

    def remove(self) -> None:
        """Give the signal back.  Idempotent."""
        if self.pipe is None:
            return
        signal.set_wakeup_fd(self.fd_before)
        if signal.getsignal(signal.SIGINT) == self.handle:  # not the program's own
            signal.signal(signal.SIGINT, self.before)
        os.close(self.pipe[1])
        self.pipe = None
