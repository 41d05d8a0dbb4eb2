"""Graph calls made from Python -> who is calling now, a hook when the call is over, and clean exceptions.

A hook runs on one of TensorFlow's own threads, and whatever it raises arrives at the call as a long "Graph execution
error".  The session keeps what was meant (the user's `q`, say) and the door below raises that in its place.
"""

import os
import sys
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tfdb import internals, internals_graphs, internals_numerics, internals_stacks
from tfdb.sourcemap import activations


@dataclass(slots=True, eq=False)  # not frozen: one is made at every call, and that would double its cost
class Call:
    """A graph function that runs, or ran, for Python code: its flat arguments, captures last.

    `variables` are the values that the variables among them held when the call began, by position; they are kept where
    `CallDoor.keeps` says, for the look at a stop after the update.  `frame` is the innermost calling one, None when
    the call is over.
    """

    function: Any
    args: tuple[Any, ...]
    variables: Mapping[int, Any]
    thread: int
    frame: FrameType | None

    @property
    def name(self) -> str:
        """The name of the graph function."""
        return str(self.function.name.decode())


NOTHING: Mapping[int, Any] = {}


class Inside(threading.local):
    """Whether a thread is in a graph call already."""

    call = False


class CallDoor:
    """Watches the outermost graph calls of every thread while it is installed."""

    def __init__(
        self,
        after_call: Callable[[FrameType], None],
        meant: Callable[[], BaseException | None],
        hooked: Container[str] = (),
        at_prompt: Container[int] = (),
    ) -> None:
        self.after_call = after_call
        self.meant = meant
        self.hooked = hooked  # names of functions that hold hooks
        self.at_prompt = at_prompt  # threads whose calls the user types: the program's last one stays the last
        self.last: Call | None = None
        self.asked: set[str] = set()  # names of functions that were looked at after a call
        self.stepped_over: Callable[[], FrameType | None] = lambda: None
        self.patches = internals.Patches()
        self.own_frames = internals_stacks.OwnFrames()
        self.active: list[Call] = []
        self.inside = Inside()
        self.silence = ExitStack()
        self.handed = False  # what was meant has reached the main thread
        self.wake_main: Callable[[], None] = lambda: None

    def install(self) -> None:
        """Watch from now on.  Idempotent; `remove` undoes it."""
        if not self.patches.saved:
            self.patches.replace(internals.atomic_function(), "call_flat", self.watching)
            self.patches.replace(internals.status_module(), "_status_to_exception", self.cleaning)
            self.own_frames.install()

    @contextmanager
    def last_kept(self) -> Iterator[None]:
        """Within the block, calls are the debugger's own: the program's last one stays the last."""
        last = self.last
        try:
            yield
        finally:
            self.last = last

    def remove(self) -> None:
        """Stop watching, and let go of the last call's arguments."""
        self.patches.remove()
        self.own_frames.remove()
        self.last = None
        self.asked.clear()

    def keeps(self, function: Any, frame: FrameType) -> bool:
        """Whether what variables hold when a call begins is kept: where it can stop, or is likely to be looked at.

        Keeping makes the call's first write to each variable a copy.
        """
        if self.hooked or self.asked:
            name = function.name.decode()
            if name in self.hooked or name in self.asked:
                return True
        stepped = self.stepped_over()
        return stepped is not None and next(callers(frame), None) is stepped

    def watching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`call_flat`, keeping the list of active calls."""
        eagerly, inside = internals_numerics.eagerly(), self.inside
        at_prompt = self.at_prompt

        def call_flat(function: Any, *args: Any) -> Any:
            if inside.call or not eagerly():
                return original(function, *args)
            frame = sys._getframe(1)
            inside.call = True
            kept = held(args) if self.keeps(function, frame) else NOTHING
            call = Call(function, args, kept, threading.get_ident(), frame)
            if call.thread not in at_prompt:
                self.last = call
            self.active.append(call)
            try:
                return original(function, *args)
            except Exception:
                if self.meant() is not None:
                    raise self.delivered() from None
                raise
            finally:
                inside.call = False
                self.active.remove(call)
                call.frame = None
                self.after_call(frame)

        return call_flat

    def frames_of(self, graph: str) -> list[tuple[FrameType, int]]:
        """The eager stack, outermost first, of the thread that is running this graph; empty when none can be told."""
        frames = [call.frame for call in list(self.active) if f"_{graph}_" in f"_{call.name}_"]
        frame = frames[-1] if frames else None
        return [(each.base, each.lineno) for each in reversed(list(activations(frame)))] if frame is not None else []

    def cleaning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The maker of exceptions: what the user meant, when the failure is only its carrier."""

        def status_to_exception(status: Any) -> BaseException:
            return original(status) if self.meant() is None else self.delivered()

        return status_to_exception

    def delivered(self) -> BaseException:
        """What the user meant, now that it is back in Python; stderr speaks again."""
        meant = self.meant()
        assert meant is not None
        self.silence.close()
        self.silence = ExitStack()
        if isinstance(meant, SystemExit) and threading.current_thread() is not threading.main_thread():
            self.wake_main()
            return SystemExit(meant.code)  # a thread ends silently with this class alone
        self.handed = True
        return meant

    def hush(self) -> None:
        """Keep TensorFlow's log of the hook's own exception off the screen until it is back in Python."""
        with suppress(OSError, ValueError):
            sys.stderr.flush()
            kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            os.close(null)
            self.silence.callback(os.close, kept)
            self.silence.callback(os.dup2, kept, 2)


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those around it, innermost first, without TensorFlow's and the debugger's own."""
    passed = (os.path.dirname(sys.modules["tensorflow"].__file__ or "") + os.sep, os.path.dirname(__file__) + os.sep)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(passed):
            yield frame
        frame = frame.f_back


def held(args: Sequence[Any]) -> dict[int, Any]:
    """The values of the variables among the arguments, by position; no copies."""
    values = ((n, internals_graphs.read_variable(value)) for n, value in enumerate(args))
    return {n: value for n, value in values if value is not None}
