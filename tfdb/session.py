"""The one mutable object: it answers "stop here?" for every hook, and keeps what the answers depend on.

One session serves the whole process: breakpoints and the prompt belong to its debugger (made by `make_debugger`, which
the prompt row supplies), stepping inside graphs, the lock that lets one prompt open at a time, and the wish to quit
belong to itself.
"""

import dataclasses
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from tfdb import internals, tapes
from tfdb.calls import CallDoor
from tfdb.errors import Quit
from tfdb.frames import LiveFrame, attributes_of_this_pass, live, standing
from tfdb.kept import Keeper
from tfdb.linehooks import Hit, HookPoint, Planter, is_exporting, place_only
from tfdb.linetracer import LineTracer
from tfdb.opbreaks import OpBreaks, Watched
from tfdb.ring import Ring
from tfdb.sourcemap import activations, has_line
from tfdb.traces import Recorder
from tfdb.twins import Needs, Twins

LINES = ("line", "iteration")


@dataclass(frozen=True, slots=True)
class Stepping:
    """How far a graph runs before the next stop: "step", or "next", "return", "until" in one activation."""

    kind: str
    activation: int = 0
    lineno: int = 0


@dataclass(frozen=True, slots=True)
class GraphStop:
    """A stop inside a running graph: the stand-in frames, outermost first, and what they stand for.

    `callers` are the eager frames outside the graph: real ones of the waiting thread, with their lines.
    """

    hit: Hit | None
    frames: list[FrameType]
    live: list[LiveFrame]
    callers: list[tuple[FrameType, int]]
    number_of_pass: int
    reason: str
    event: str
    title: str = ""
    report: Any = None

    def live_frame(self, frame: FrameType) -> LiveFrame | None:
        """What a frame object of this stop stands for, or None when it is an eager caller's."""
        for stand_in, entry in zip(self.frames, self.live, strict=True):
            if stand_in is frame:
                return entry
        return None


class Session:
    """What the debugger knows and wants, for all threads of the process."""

    def __init__(self, make_debugger: Callable[["Session"], Any]) -> None:
        self.make_debugger = make_debugger
        self.own: Any = None
        self.lock = threading.RLock()
        self.at_prompt: set[int] = set()
        self.evaluations = 0  # commands of the user that are being carried out now
        self.passes: Counter[int] = Counter()
        self.before: dict[int, tuple[str, int]] = {}
        self.stepping: Stepping | None = None
        self.quitting: BaseException | None = None
        self.interrupted = False
        self.closed = False
        self.said: set[str] = set()
        self.late_watches: frozenset[tuple[str, int]] = frozenset()  # as breakpoints: they need functions traced anew
        self.watches: Any = None  # the prompt row's, where there is one
        self.planter = Planter(self.on_hit, self.could_not_plant)
        self.door = CallDoor(self.after_call, lambda: self.quitting, lambda name: name in self.planter.ordering.hooked)
        self.traces = Recorder()
        self.ring = Ring()
        self.keeper = Keeper()
        self.process = os.getpid()
        self.op_breaks = OpBreaks(
            Watched(
                lambda: [name for name in self.debugger.breaks if name.startswith(("<op:", "<layer:"))],
                lambda: self.twins.active_tracer() is not None,
                self.plant_named,
                self.stop_eagerly,
            )
        )
        self.twins = Twins(
            Needs(
                lambda: self.debugger.breakpoints() | self.late_watches,
                lambda: self.debugger.is_stepping(),
                lambda: threading.get_ident() in self.at_prompt,
                self.tracer,
                self.step_into,
                self.ring.called,
                self.say_retraced,
                lambda: self.debugger.trace_function(),
            )
        )

    @property
    def debugger(self) -> Any:
        """The pdb of this session, made on first use."""
        if self.own is None:
            self.own = self.make_debugger(self)
        return self.own

    # -- planting -------------------------------------------------------------------------------------------------

    def plant(self, frame: FrameType, condition: Any = True) -> None:
        """set_trace() in traced code: stop at each run of this point, and let the user step on from there."""
        if self.closed or is_exporting(frame) or condition is False or internals.in_vectorisation(frame):
            return
        if internals.is_scratch(internals.current_graph()):
            return
        _ = self.debugger  # made here, on the user's thread: IPython must not be set up on a graph's
        self.arm()
        self.planter.plant(frame, "call", condition)
        if not isinstance(getattr(sys.gettrace(), "__self__", None), LineTracer):
            self.tracer(armed=True).start(frame)

    def tracer(self, armed: bool = False) -> LineTracer:
        """A tracer that plants what the present breakpoints and stepping need."""
        return LineTracer(self.planter, self.wants, self.has_breakpoint, armed)

    def wants(self, code: CodeType) -> bool:
        """Whether all lines of a function are to be planted: it has a breakpoint."""
        lines = self.debugger.breaks.get(self.debugger.canonic(code.co_filename), ())
        return any(has_line(code, line) for line in lines)

    def has_breakpoint(self, filename: str, lineno: int) -> bool:
        """Whether a breakpoint stands on this line."""
        return lineno in self.debugger.breaks.get(self.debugger.canonic(filename), ())

    def arm(self) -> None:
        """Stand at TensorFlow's doors, if the program has imported it; hooks follow as they are needed."""
        if internals.loaded() and not self.closed:
            self.door.install()
            self.traces.install()
            self.twins.install()
            self.keeper.install()
            self.arm_op_breaks()
            tapes.log.at_prompt = lambda: threading.get_ident() in self.at_prompt
            tapes.log.install(ops=False)

    def arm_op_breaks(self) -> None:
        """Look at every op and layer call while there are breakpoints on any, and not otherwise."""
        if self.op_breaks.watched.names():
            self.planter.install()
            self.planter.on_op = self.op_breaks.on_graph_op
            self.op_breaks.install()
        else:
            self.planter.on_op = None
            self.op_breaks.remove()

    def plant_named(self, frame: FrameType, name: str, names: dict[str, Any]) -> None:
        """An op or layer with a breakpoint was traced: stop each time it has run."""
        tracer = self.twins.active_tracer()
        if tracer is not None:
            tracer.armed = True
        self.planter.plant(frame, name, names=names)

    def stop_eagerly(self, frame: FrameType, event: str, names: dict[str, Any]) -> None:
        """Stop now in eager code, in the user's frame with `names` added: an op or layer with a breakpoint has run.

        With the event "call", a set_trace() in code that AutoGraph generated, whose real frame is not the user's.
        """
        if threading.get_ident() in self.at_prompt:
            return
        stack = [activation for activation in activations(frame) if not activation.hidden]
        if not stack:
            return
        place = dataclasses.replace(place_only(stack[0]), locals={**stack[0].names(), **names})
        hit = Hit(HookPoint(-hash((event, place.lineno)), event, (place,), (), "", 0, False, True, None), ())
        self.passes[hit.point.number] += 1
        with self.lock:
            if event == "call" or self.debugger.breakpoint_reason(hit) is not None:
                self.stop(hit, "breakpoint", [(each.base, each.lineno) for each in reversed(stack[1:])])
        if self.quitting is not None:
            raise self.quitting

    def say_retraced(self, function: Any) -> None:
        """A function that ran before is traced again; its Python effects show that to the user, so say it, once."""
        name = getattr(function.python_function, "__name__", "a function")
        effects = "what it prints or counts in Python while tracing happens once more"
        what = f"{name} is traced again for breakpoints: {effects}"
        if what not in self.said:
            self.said.add(what)
            self.debugger.message(what)

    def could_not_plant(self, frame: FrameType, error: Exception) -> None:
        """A line could not get its hook: say so once for each kind of reason, and go on."""
        what = f"{type(error).__name__}: {error}"
        if what not in self.said:
            self.said.add(what)
            self.debugger.error(f"no stop in {frame.f_code.co_name} near line {frame.f_lineno}: {what}")

    def interrupt(self) -> None:
        """Ctrl-C was typed: the next hook stops for it, if one comes before Python does."""
        if not self.at_prompt:
            self.interrupted = True

    def step_into(self) -> None:
        """`s` goes from eager code into a graph: stop at the first line that it runs."""
        self.stepping = Stepping("step")

    def is_foreign(self) -> bool:
        """Whether this process was forked from the one that the session belongs to."""
        return self.process != os.getpid()

    # -- running --------------------------------------------------------------------------------------------------

    def on_hit(self, hit: Hit) -> None:
        """A planted line is about to run in a graph: stop if anything asks for it."""
        if self.closed:
            return
        if self.quitting is not None:
            raise self.quitting
        if self.is_repeated(hit.point):
            return
        self.passes[hit.point.number] += 1
        if self.is_evaluated(hit):
            return
        try:
            if hit.point.event not in LINES or self.stepping or self.interrupted or self.debugger.breaks:
                with self.lock:
                    reason = None if self.quitting else self.reason(hit)
                    if reason is not None:
                        self.stop(hit, reason)
        except Exception as error:
            self.debugger.error(f"tfdb could not stop here, the program goes on. {type(error).__name__}: {error}")
        if self.quitting is not None:
            raise self.quitting

    def is_evaluated(self, hit: Hit) -> bool:
        """Whether the hit comes from what the user evaluates at the prompt, which waits for it: stopping would hang.

        Runs of graphs are known by their name; of a dataset nobody knows who reads it.
        """
        if threading.get_ident() in self.at_prompt:
            return True
        graph = (self.planter.open_calls.chain(hit.point.function) or hit.point).graph
        names = [call.function for call in list(self.door.active) if call.thread in self.at_prompt]
        if self.evaluations and graph.startswith("Dataset_"):
            return True
        return any(f"_{graph}_" in f"_{name}_" for name in names)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Mark that a command of the user is being carried out."""
        self.evaluations += 1
        try:
            yield
        finally:
            self.evaluations -= 1

    def is_repeated(self, point: HookPoint) -> bool:
        """Whether a loop's first iteration begins on the header that was reported just now, before the loop."""
        before = self.before.get(point.place.activation)
        if point.event in LINES:
            self.before[point.place.activation] = (point.event, point.place.lineno)
        return point.event == "iteration" and before == ("line", point.place.lineno)

    def reason(self, hit: Hit) -> str | None:
        """Why to stop at this hit, or None."""
        point, place = hit.point, hit.point.place
        if self.interrupted:
            self.interrupted = False
            return "interrupted"
        if point.event == "call":
            return "set_trace" if hit.condition() else None
        if self.stepping is not None and steps_here(self.stepping, point.event, place.activation, place.lineno):
            return self.stepping.kind
        if point.event.startswith("<") or (point.event in LINES and self.has_breakpoint_near(place)):
            return self.debugger.breakpoint_reason(hit)
        return None

    def has_breakpoint_near(self, place: Any) -> bool:
        """Whether a breakpoint may be meant for this line: on it, or on the function's first."""
        lines = self.debugger.breaks.get(self.debugger.canonic(place.filename), ())
        return place.lineno in lines or place.firstlineno in lines

    def stop(self, hit: Hit, reason: str, callers_now: list[tuple[FrameType, int]] | None = None) -> None:
        """Open the prompt at a hit, and apply what the user chose there.

        `callers_now` are the eager frames around it; by default those of the thread that is running the graph.
        """
        entries = hit.frames()
        if hit.point.event == "return":
            entries[-1] = self.at_last_line(entries[-1])
            entries[-1].locals["__return__"] = hit.returned()
        chain = self.planter.open_calls.chain(hit.point.function)
        entries = chain.frames + entries if chain is not None else entries
        callers = [live(frame, ()) for frame in (chain or hit.point).callers]
        real = self.caller_frames((chain or hit.point).graph) if callers_now is None else callers_now
        if entries[-1].activation == 0 and callers_now is None and hit.point.graph:
            real = self.without_the_line_shown(real, entries[-1])
        stack = entries if real else callers + entries
        self.stepping = None

        def ask(frames: list[FrameType]) -> None:
            stop = GraphStop(hit, frames, stack, real, self.passes[hit.point.number], reason, hit.point.event)
            with self.prompting():
                self.debugger.graph_interaction(stop)

        with attributes_of_this_pass(entries):
            standing(stack, ask)
        if self.stepping is not None and hit.point.event == "return":
            self.stepping = after_return(self.stepping, entries)

    def stop_at_report(self, title: str, report: Any, stack: list[LiveFrame]) -> None:
        """Open the prompt at the origin that a watch found; `title` is its screen, `report` what `why` explains."""
        real = [] if stack else self.caller_frames("")

        def ask(frames: list[FrameType]) -> None:
            stop = GraphStop(None, frames, stack, real, 0, "watch", "<watch>", title, report)
            with self.prompting():
                self.debugger.graph_interaction(stop)

        with self.lock:
            self.stepping = None
            standing(stack, ask)
        if self.quitting is not None:
            raise self.quitting

    def at_last_line(self, frame: LiveFrame) -> LiveFrame:
        """A frame that returns, at the line of its `return` that ran in this pass."""
        _, lineno = self.before.get(frame.activation, ("", frame.lineno))
        return dataclasses.replace(frame, lineno=lineno)

    @staticmethod
    def without_the_line_shown(real: list[tuple[FrameType, int]], shown: LiveFrame) -> list[tuple[FrameType, int]]:
        """The callers outside the one that stands in for a graph with no user line; it lends its locals."""
        for n, (frame, lineno) in reversed(list(enumerate(real))):
            if (frame.f_code.co_filename, lineno) == (shown.filename, shown.lineno):
                for name, value in frame.f_locals.items():
                    shown.locals.setdefault(name, value)
                return real[:n]
        return real

    @contextmanager
    def prompting(self) -> Iterator[None]:
        """Mark this thread as standing at a prompt: nothing it evaluates there stops again."""
        thread = threading.get_ident()
        again = thread in self.at_prompt
        self.at_prompt.add(thread)
        tapes.log.lasting = True
        try:
            yield
        finally:
            if not again:
                self.at_prompt.discard(thread)

    def caller_frames(self, graph: str) -> list[tuple[FrameType, int]]:
        """The eager stack, outermost first, of the thread that is running this graph; empty when none can be told."""
        calls = [call for call in list(self.door.active) if f"_{graph}_" in f"_{call.function}_"]
        if not calls:
            return []
        return [(each.base, each.lineno) for each in reversed(list(activations(calls[-1].frame)))]

    def after_call(self, frame: FrameType) -> None:
        """A graph call is over on this thread: stepping goes on in the eager code that made it."""
        if not self.door.active:
            self.planter.open_calls.clear()
        if self.quitting is None and self.stepping is not None:
            self.stepping = None
            self.debugger.step_in_eager(frame)

    def quit(self, error: BaseException | None = None) -> None:
        """End the program: every hook, waiting or to come, raises this, and so does the graph call around it."""
        self.quitting = error or Quit(1)
        self.door.hush()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within the block nothing stops and nothing new is planted: post-mortem runs parts of the program again."""
        before, self.closed = self.closed, True
        try:
            yield
        finally:
            self.closed = before

    def close(self) -> None:
        """Take away every hook that is not part of a user's graph."""
        self.closed = True
        if self.own is not None:
            self.own.leave_threads()
        for part in self.parts():
            part.remove()

    def parts(self) -> tuple[Any, ...]:
        """Everything of this session that hooks into TensorFlow; each has `patches` and `remove`."""
        return self.keeper, self.planter, self.door, self.traces, self.twins, self.op_breaks, tapes.log


def after_return(stepping: Stepping, entries: list[LiveFrame]) -> Stepping:
    """What a wish about the function that is returning now becomes: about its caller."""
    if stepping.activation != entries[-1].activation or stepping.kind == "step":
        return stepping
    caller = next((entry.activation for entry in entries[-2::-1] if not entry.hidden), 0)
    return Stepping("next", caller) if stepping.kind == "return" and caller else Stepping("step")


def steps_here(stepping: Stepping, event: str, activation: int, lineno: int) -> bool:
    """Whether a step ends at this event, by pdb's rules."""
    if stepping.kind == "step":
        return True
    if activation != stepping.activation:
        return False
    if event == "return":
        return True
    return stepping.kind == "next" or (stepping.kind == "until" and lineno >= stepping.lineno)


_current: list[Session] = []


def current(make_debugger: Callable[[Session], Any]) -> Session:
    """The process's session; the first caller's `make_debugger` makes it."""
    if not _current:
        _current.append(Session(make_debugger))
    return _current[-1]


def end() -> None:
    """End the process's session: everything hooked is unhooked."""
    while _current:
        _current.pop().close()


@contextmanager
def using(debugger: Any) -> Iterator[Session]:
    """Within the block, stops open this debugger; everything hooked is unhooked after it."""
    session = Session(lambda session: debugger)
    debugger.session = session
    _current.append(session)
    before = sys.gettrace()
    try:
        yield session
    finally:
        sys.settrace(before)
        _current.remove(session)
        session.close()
        debugger.leave_threads()


def leftovers() -> list[str]:
    """What is still hooked into TensorFlow or the interpreter; empty when all is clean."""
    names = []
    for session in _current:
        for part in session.parts():
            names += [f"{type(part).__name__}: {owner.__name__}.{name}" for owner, name, _ in part.patches.saved]
    return names
