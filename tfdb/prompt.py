"""pdb and ipdb with graph stops: the session's answers become prompts, the prompt's commands become its wishes.

`Commands` is a mixin over any pdb: over ipdb's terminal class where there is a terminal (`terminal_debugger`), over
`pdb.Pdb` elsewhere (`plain_debugger`).
"""

import io
import pdb
import sys
import threading
from types import FrameType, SimpleNamespace
from typing import Any, TextIO

from tfdb import exits, graphtext, render
from tfdb.commands.completing import CompletingPrompt
from tfdb.commands.console import ConsoleCommands
from tfdb.commands.errors import ErrorCommands
from tfdb.commands.gradients import GradientCommands
from tfdb.commands.grads import GradTableCommands
from tfdb.commands.graph import GraphCommands
from tfdb.commands.helping import HelpCommands
from tfdb.commands.nodes import NodeCommands
from tfdb.commands.pending import PENDING
from tfdb.commands.rerun import RerunCommands
from tfdb.commands.stepping import SteppingCommands
from tfdb.commands.stops import StopCommands
from tfdb.commands.tensors import TensorCommands
from tfdb.commands.watches import WatchCommands
from tfdb.errors import Again
from tfdb.interrupted import InterruptedPrompt
from tfdb.linehooks import Hit
from tfdb.program import Ending
from tfdb.session import Session
from tfdb.sourcemap import is_hidden
from tfdb.stopping import GraphStop, Stepping, stop_line
from tfdb.waiting import Waiting

PLAIN_PROMPT = "(tfdb) "
SAID_YES, SAID_NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class Commands(
    WatchCommands,
    CompletingPrompt,
    HelpCommands,
    GraphCommands,
    NodeCommands,
    TensorCommands,
    GradTableCommands,
    GradientCommands,
    ErrorCommands,
    RerunCommands,
    StopCommands,
    SteppingCommands,
    ConsoleCommands,
    InterruptedPrompt,
    Waiting,
):
    """What tfdb adds to pdb; mixed in before a pdb class."""

    session: Session
    ending = Ending()
    graph_stop: GraphStop | None = None
    skip_hidden: bool = True
    start_at_once: bool = False  # with watches: no stop at the first line
    at_start: bool = False  # before the program's first line
    has_input: bool = True
    stepping_thread: int = 0

    @property
    def graph_hit(self) -> Hit | None:
        """What the hook of this stop carried; None in eager code, and at stops that no hook made."""
        return self.graph_stop.hit if self.graph_stop is not None else None

    def start_running(self) -> None:
        """Begin in the state after `c`: nothing but a breakpoint or a set_trace() stops."""
        self.reset()
        self.botframe = sys._getframe(1)
        self._set_stopinfo(self.botframe, None, -1)

    # -- the stack ------------------------------------------------------------------------------------------------

    def get_stack(self, f: FrameType | None, t: Any) -> tuple[list[tuple[FrameType, int]], int]:
        """The frames of this stop, outermost first, and which is current; libraries' are left out unless asked for."""
        stop = self.graph_stop
        if stop is not None and t is None:
            stack = stop.callers + [(frame, frame.f_lineno) for frame in stop.frames]
            current = len(stack) - 1
        else:
            stack, current = super().get_stack(f, t)
            if t is not None:
                stack = self.stack_of_wreck(t) or stack
                current = len(stack) - 1
                current = max((n for n, (frame, _) in enumerate(stack) if not self.is_hidden(frame)), default=current)
        if not self.skip_hidden:
            return stack, current
        shown = [n for n, (frame, _) in enumerate(stack) if n == current or not self.is_hidden(frame)]
        return [stack[n] for n in shown], shown.index(current)

    def is_hidden(self, frame: FrameType) -> bool:
        """Whether the frame is a library's."""
        return is_hidden(frame.f_code.co_filename)

    def do_skip_hidden(self, arg: str) -> None:
        """skip_hidden [True|False]

        Leave the frames of TensorFlow, Keras, Python and tfdb out of `w`, `u` and `d` (the default), or show them.
        Without an argument, say which.

        Example, to see how Keras came to call your layer:

            (tfdb) skip_hidden False
            (tfdb) w
        """
        word = arg.strip().lower()
        if word in SAID_YES + SAID_NO:
            self.skip_hidden = word in SAID_YES
            frame = self.curframe
            self.stack, self.curindex = self.get_stack(frame if self.graph_stop is None else None, None)
            frames = [each for each, _ in self.stack]
            self.curindex = frames.index(frame) if frame in frames else self.curindex
        elif arg:
            self.error("skip_hidden takes True or False")
            return
        self.message(f"library frames are {'hidden' if self.skip_hidden else 'shown'}")

    # -- graph stops ----------------------------------------------------------------------------------------------

    def graph_interaction(self, stop: GraphStop) -> None:
        """Open the prompt at a stop inside a graph; the user's wishes go to the session."""
        with self.session.prompting():
            self.graph_stop = stop
            frame = stop.frames[-1] if stop.frames else stop.callers[-1][0]
            self.bring_displays(stop)
            sys.stdout.flush()
            try:
                at_breakpoint = stop.reason == "breakpoint" and stop.hit is not None
                if not (at_breakpoint and vars(self).get("commands_silent", {}).get(vars(self).get("currentbp"))):
                    self.message(stop.title or graphtext.wrapped(stop_line(stop), render.terminal_width(), 2))
                    if at_breakpoint:
                        self.note_on_tracing(stop)
                if stop.event == "return":
                    self.message("--Return--")
                    self.interaction(frame, None)
                else:
                    self.user_line(frame)
            except pdb.Restart:
                self.session.quit(Again(1))
            finally:
                self.graph_stop = None
            if self.quitting:
                exits.no_more_stops()
                self.session.quit()

    def interaction(self, frame: FrameType | None, tb_or_exc: Any) -> None:
        """One prompt at a time, in any thread; none in a forked worker, which shares the terminal with its parent."""
        if self.session.is_foreign():
            self.message("a forked worker does not stop at breakpoints; tfdb.set_trace() in a terminal stops there")
            self.set_continue()
            sys.settrace(None)
            return
        with self.session.lock, self.session.prompting():
            super().interaction(frame, tb_or_exc)

    def breakpoint_reason(self, hit: Hit) -> str | None:
        """ "breakpoint" when one is in effect at this hit: enabled, its condition true, its ignore count used up."""
        frame, event = hit.place(), hit.point.event
        named = event.startswith("<")
        code = SimpleNamespace(
            co_filename=event if named else frame.filename,
            co_name=frame.function,
            co_firstlineno=frame.firstlineno,
            co_flags=0,
        )
        lineno = 0 if named else frame.lineno
        scope = SimpleNamespace(f_code=code, f_lineno=lineno, f_globals=frame.globals, f_locals=frame.locals)
        return "breakpoint" if self.break_here(scope) else None

    # -- stepping -------------------------------------------------------------------------------------------------

    def graph_step(self, kind: str, frame: FrameType | None = None, lineno: int = 0) -> bool:
        """Tell the session how far to run; False when the frame is an eager one, which bdb handles."""
        stop = self.graph_stop
        if stop is None:
            return False
        last = stop.live[-1] if stop.live else None
        entry = stop.live_frame(frame) if frame is not None else last
        if entry is None or (entry.activation == 0 and kind != "step"):
            self.session.stepping = Stepping("eager")
            return False
        wish = Stepping(kind, entry.activation, lineno)
        if stop.tracing is not None:
            stop.tracing.step(wish)
        else:
            self.session.stepping = wish
        self._set_stopinfo(self.botframe, None, -1)
        return True

    def set_step(self) -> None:
        if not self.graph_step("step"):
            self.session.arm()
            super().set_step()

    def set_next(self, frame: FrameType) -> None:
        if not self.graph_step("next", frame):
            super().set_next(frame)

    def set_return(self, frame: FrameType) -> None:
        if not self.graph_step("return", frame):
            super().set_return(frame)

    def set_until(self, frame: FrameType, lineno: int | None = None) -> None:
        if not self.graph_step("until", frame, lineno or frame.f_lineno + 1):
            super().set_until(frame, lineno)

    def set_continue(self) -> None:
        if self.graph_stop is not None:
            self.session.stepping = None
            self._set_stopinfo(self.botframe, None, -1)
        else:
            self.session.stepping = None
            super().set_continue()

    def step_in_eager(self, frame: FrameType | None) -> None:
        """A graph call is over while stepping: stop at the next line of the eager code that made it."""
        self.stepping_thread = threading.get_ident()
        if self.session.stepping is None or self.session.stepping.kind != "eager":
            super().set_step()
        self.trace_from(frame)

    def stop_here(self, frame: FrameType) -> bool:
        """bdb's question: does a step end in this eager frame?  Not in a library that calls the user's code back."""
        if self.stepping_thread != threading.get_ident():
            return False
        if frame is not self.stopframe and self.is_out_of_sight(frame.f_code.co_filename):
            return False
        return bool(super().stop_here(frame))

    def user_line(self, frame: FrameType) -> None:
        """A stop at a line.  At the program's first, a breakpoint that `-c` set makes it run on to that one."""
        if self.at_start and self.rcLines:
            self.at_start = False
            self.run_first_commands(frame)
            if self.breaks or self.quitting or self.stopframe is not None:
                return
        self.at_start = False
        if self.graph_stop is None:
            self.session.eager_stops.stepping = None
        super().user_line(frame)

    def run_first_commands(self, frame: FrameType) -> None:
        """Run the commands of .pdbrc files and of `-c` at the program's first line."""
        lines, self.rcLines = self.rcLines, []
        self.setup(frame, None)
        resumed = False
        while lines and not resumed:
            resumed = bool(self.onecmd(self.precmd(lines.pop(0).strip())))
        self.rcLines = lines
        if not resumed and (self.breaks or self.start_at_once):
            self.set_continue()
        self.forget()

    def _set_stopinfo(self, *arguments: Any, **options: Any) -> None:
        self.stepping_thread = threading.get_ident()
        super()._set_stopinfo(*arguments, **options)

    counted: tuple[Any, int, int, frozenset[tuple[str, int]]] = (None, 0, 0, frozenset())

    def breakpoints(self) -> frozenset[tuple[str, int]]:
        """The places of all breakpoints, enabled or not, but those that wait for their file.

        Asked for at every call of a function, so they are listed anew only after a change.
        """
        breaks, known = self.breaks, self.counted
        if known[0] is not breaks or known[1:3] != (len(breaks), self.changes):
            places = [place for place in breaks.items() if not place[0].startswith(PENDING)]
            found = frozenset((filename, line) for filename, lines in places for line in lines)
            known = self.counted = (breaks, len(breaks), self.changes, found)
        return known[3]


class PlainPdb(Commands, pdb.Pdb):
    """tfdb over the standard library's pdb."""


def plain_debugger(stdin: TextIO | None = None, stdout: TextIO | None = None, readrc: bool = False) -> PlainPdb:
    """A tfdb that reads plain lines from `stdin` (default: the process's) and never touches the terminal."""
    debugger = PlainPdb(stdin=stdin, stdout=stdout, nosigint=True, readrc=readrc)
    debugger.prompt = PLAIN_PROMPT
    if stdin is not None:
        debugger.use_rawinput = False
    debugger.start_running()
    return debugger


def terminal_debugger(context: int | None = None) -> Any:
    """A tfdb over ipdb's own choice of class: colours, completion and history are IPython's."""
    from ipdb.__main__ import _get_debugger_cls, get_context_from_config

    base = _get_debugger_cls()
    made = type("Pdb", (Commands, base), {"__doc__": Commands.__doc__, "fits": True})
    debugger = made(context=context or get_context_from_config(), nosigint=True)
    debugger.start_running()
    return debugger


plain_wanted = False


def is_terminal(*streams: Any) -> bool:
    """Whether all of these streams are a terminal."""
    return all(stream is not None and not stream.closed and stream.isatty() for stream in streams)


def make_debugger(for_session: Session) -> Any:
    """The debugger of a session: ipdb's where both ends are a terminal, plain otherwise."""
    plain = plain_wanted or not is_terminal(sys.stdin, sys.stdout)
    debugger = plain_debugger(readrc=True) if plain else terminal_debugger()
    debugger.session = for_session
    return debugger


def make_worker_debugger(for_session: Session) -> Any:
    """The debugger of a forked worker: its own prompt on the controlling terminal; silent where there is none."""
    try:
        terminal = open("/dev/tty", "r+", buffering=1) if is_terminal(sys.__stdout__) else None
    except OSError:
        terminal = None
    debugger = plain_debugger(terminal or io.StringIO(), terminal or sys.stderr)
    debugger.has_input = terminal is not None
    debugger.session = for_session
    return debugger


def can_prompt(debugger: Any) -> bool:
    """Whether anyone can answer this debugger's prompt."""
    return debugger.has_input
