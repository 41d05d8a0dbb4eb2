"""Lines that Python runs while a function is traced -> stops there and then, with the symbolic tensors of that moment.

`b trace:FILE:LINE` asks for them.  What is evaluated at such a prompt goes into a graph of its own, not the program's.
"""

import itertools
import os
import re
import threading
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

from tfdb import internals, internals_tracing, stopping
from tfdb.frames import LiveFrame, as_it_stands, live, standing
from tfdb.linehooks import Hit, HookPoint, traced_stack
from tfdb.linetracer import LineTracer
from tfdb.sourcemap import Activation, activations
from tfdb.stopping import GraphStop, Stepping

if TYPE_CHECKING:
    from tfdb.session import Session

TRACING = "<tracing>"  # the event of such a stop
NAME = re.compile(r"<trace:(.+):(\d+)>", re.DOTALL)
VECTORISED = (
    "{place} cannot stop when it runs: vectorized_map or jacobian runs all its passes as one. b trace:{place} stops "
    "while it is traced; tf.map_fn in its place, or experimental_use_pfor=False, stops at each pass"
)
MEANING = "Python runs this line now, the tensors get values when the graph runs"


def file_name(filename: str, lineno: int) -> str:
    """What stands for the file in pdb's table of breakpoints."""
    return f"<trace:{filename}:{lineno}>"


def place_of(name: str) -> tuple[str, int] | None:
    """The file and line of a breakpoint at tracing, by its name in pdb's table; None for other breakpoints."""
    found = NAME.fullmatch(name)
    return (found[1], int(found[2])) if found else None


class TraceStops:
    """Answers "stop here?" for each line of the user's that is being traced, and opens the prompt."""

    word = "tracing"
    meaning = MEANING

    def __init__(self, session: "Session") -> None:
        self.session = session
        self.stepping: Stepping | None = None
        self.into_graph = False

    def name_of(self, filename: str, lineno: int) -> str:
        """What pdb's table calls the file of a breakpoint here; the line alone tells it where it is the file's own."""
        return file_name(filename, lineno)

    def around(self) -> AbstractContextManager[None]:
        """Where the prompt evaluates."""
        return internals_tracing.apart()

    def wanted(self, filename: str) -> bool:
        """Whether a breakpoint at tracing stands in the file."""
        return any(place[0] == self.session.debugger.canonic(filename) for place in self.places())

    def places(self) -> list[tuple[str, int]]:
        """Where the breakpoints at tracing stand."""
        return [place for name in self.session.debugger.breaks if (place := place_of(name)) is not None]

    def reached(self, frame: FrameType, here: Activation, event: str, returned: Any) -> None:
        """A line, or the return of a function, of the user's is being traced on this thread: stop if anything asks."""
        places = self.places()
        if (not places and self.stepping is None) or self.session.closed:
            return
        if threading.get_ident() in self.session.at_prompt:
            return
        filename = self.session.debugger.canonic(here.filename)
        first = (here.code or here.base.f_code).co_firstlineno  # the line of a breakpoint on a function's name
        named = event != "return" and any((filename, line) in places for line in (here.lineno, first))
        number = self.session.planter.number(here)
        steps = self.stepping is not None and stopping.steps_here(self.stepping, event, number, here.lineno)
        if named or steps:
            self.stop(frame, here, event, returned, self.name_of(filename, here.lineno) if named else "")

    def stop(self, frame: FrameType, here: Activation, event: str, returned: Any, name: str) -> None:
        """Open the prompt, unless the breakpoint `name` that the line has is not in effect and no step ends here."""
        inside = self.inside(frame)
        entries = [self.entry(activation) for activation in reversed([here, *inside[1:]])]
        outside = list(activations(frame))[len(inside) :]
        callers = [(each.base, each.lineno) for each in reversed(outside)]
        if event == "return":
            entries[-1].locals["__return__"] = returned
        hit = Hit(HookPoint(-1, name or TRACING, tuple(entries), (), "", 0, False, True, None), ())
        debugger = self.session.debugger
        with self.session.lock, self.around():
            reason = debugger.breakpoint_reason(hit) if name else None
            if reason is None and self.stepping is None:
                return
            self.stepping, self.into_graph = None, False
            functions = " > ".join(each.function for each in entries if not each.hidden)
            kind = "return" if event == "return" else TRACING
            title = " · ".join([self.word, functions] + [self.meaning] * (reason is not None and self.meaning != ""))

            def ask(frames: list[FrameType]) -> None:
                stop = GraphStop(None, frames, entries, callers, 0, reason or "step", kind, title, tracing=self)
                debugger.graph_interaction(stop)

            standing(entries, ask)
        if self.stepping is not None and event == "return":
            self.stepping = stopping.after_return(self.stepping, entries)
        if self.session.quitting is not None:
            raise self.session.quitting

    def inside(self, frame: FrameType) -> list[Activation]:
        """The activations that stand-ins are shown for, innermost first."""
        return traced_stack(frame)

    def entry(self, activation: Activation) -> LiveFrame:
        """The activation as it stands, its tensors symbolic."""
        names = {} if activation.hidden else activation.names()
        return live(as_it_stands(activation, self.session.planter.number(activation), names), ())

    def cannot_stop(self, here: Activation) -> None:
        """A line with a breakpoint is traced where it cannot get a hook: say so, once for each line."""
        place = f"{os.path.basename(here.filename)}:{here.lineno}"
        self.session.say_once(VECTORISED.format(place=place), self.session.debugger.tell)

    def step(self, wish: Stepping) -> None:
        """Go on to where the user wishes: within the tracing, and after it."""
        self.stepping, self.into_graph = wish, wish.kind == "step"

    def over(self, frame: FrameType | None) -> None:
        """The outermost function is traced: `s` goes on into its graph, other steps in the code that called it."""
        if self.stepping is None:
            return
        self.stepping = None
        self.session.stepping = Stepping("step") if self.into_graph else None
        self.session.debugger.step_in_eager(frame)


class EagerStops(TraceStops):
    """The same for code that AutoGraph generated and Python runs eagerly, as `tf.map_fn` does with its function.

    bdb would see the lines of the generated file there.
    """

    word = "eager stop"
    meaning = ""

    def __init__(self, session: "Session") -> None:
        super().__init__(session)
        self.lines = LineTracer(session.planter, lambda code: False, lambda *place: False, at_tracing=self)

    def places(self) -> list[tuple[str, int]]:
        return list(self.session.debugger.breakpoints())

    def name_of(self, filename: str, lineno: int) -> str:
        return "line"

    def around(self) -> AbstractContextManager[None]:
        return nullcontext()

    def inside(self, frame: FrameType) -> list[Activation]:
        return list(
            itertools.takewhile(lambda each: each.code is not each.base.f_code or each.hidden, activations(frame))
        )

    def cannot_stop(self, here: Activation) -> None:
        pass

    def reached(self, frame: FrameType, here: Activation, event: str, returned: Any) -> None:
        super().reached(frame, here, event, returned)
        if self.stepping is not None and self.stepping.kind == "step":  # the next line may be one that bdb sees
            self.session.debugger.step_in_eager(here.base.f_back)

    def trace_function(self, frame: FrameType) -> Any:
        """The trace function of a generated frame that begins."""
        self.lines.forget(frame)
        return self.on_event

    def on_event(self, frame: FrameType, event: str, arg: Any) -> Any:
        """A trace function for lines and returns."""
        if event in ("line", "return") and internals.current_graph() is None:
            self.lines.look(frame, event, arg, False)
        return self.on_event
