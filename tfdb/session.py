"""The one mutable object: it answers "stop here?" for every hook, and keeps what the answers depend on.

One session serves the whole process: breakpoints and the prompt belong to its debugger (made by `make_debugger`, which
the prompt row supplies); stepping in graphs, the lock of the one prompt and the wish to quit belong to itself.
"""

import dataclasses
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from tfdb import exits, internals, stopping, tapes
from tfdb.calls import CallDoor
from tfdb.errors import NotReached, Quit
from tfdb.frames import LiveFrame, attributes_of_this_pass, live, standing
from tfdb.headers import LINES, Headers
from tfdb.kept import Keeper
from tfdb.linehooks import Hit, HookPoint, Planter, never_runs, place_only
from tfdb.linetracer import LineTracer, on_thread
from tfdb.opbreaks import OpBreaks, Watched
from tfdb.ring import Ring
from tfdb.sourcemap import activations, has_line
from tfdb.stopping import GraphStop, Stepping
from tfdb.traces import Recorder
from tfdb.tracestops import EagerStops, TraceStops
from tfdb.twins import Needs, Twins, united

POLL_SECONDS = 0.1  # between two looks at what the open prompt is doing


class Session:
    """What the debugger knows and wants, for all threads of the process."""

    def __init__(self, make_debugger: Callable[["Session"], Any]) -> None:
        self.make_debugger = make_debugger
        self.own: Any = None
        self.lock = threading.RLock()
        self.at_prompt: set[int] = set()
        self.passes: Counter[tuple[Any, ...]] = Counter()
        self.headers = Headers()
        self.stepping: Stepping | None = None
        self.quitting: BaseException | None = None
        self.interrupted = self.closed = self.prompted = False
        self.said: set[str] = set()
        self.late_watches: frozenset[tuple[str, int]] = frozenset()  # as breakpoints: they need functions traced anew
        self.watches: Any = None  # the prompt row's, where there is one
        self.planter = Planter(self.on_hit, self.could_not_plant)
        self.door = CallDoor(self.after_call, lambda: self.quitting, self.planter.ordering.hooked, self.at_prompt)
        self.traces = Recorder()
        self.ring = Ring()
        self.keeper = Keeper()
        self.process = os.getpid()
        self.op_breaks = OpBreaks(self.watched())
        self.twins = Twins(self.needs())
        self.trace_stops = TraceStops(self)
        self.eager_stops = EagerStops(self)

    def watched(self) -> Watched:
        """What the breakpoints on ops and layers ask the session."""
        return Watched(
            lambda: [name for name in self.debugger.breaks if name.startswith(("<op:", "<layer:"))],
            lambda: threading.get_ident() not in self.at_prompt and self.twins.active_tracer() is not None,
            self.plant_named,
            self.stop_eagerly,
        )

    def needs(self) -> Needs:
        """What the doors of `tf.function`s ask the session."""
        return Needs(
            lambda: not self.late_watches and (self.own is None or self.own.is_idle()),
            lambda: united((self.own or self.debugger).breakpoints(), self.late_watches),
            lambda: (self.own or self.debugger).is_stepping(),
            self.at_prompt,
            self.tracer,
            self.step_into,
            self.ring.called,
            self.say_retraced,
            lambda: self.debugger.trace_function(),
            lambda trace: bool(self.own is not None and trace == self.own.trace_dispatch),
            lambda trace: (self.own or self.debugger).is_idle_trace(trace),
        )

    @property
    def debugger(self) -> Any:
        """The pdb of this session, made on first use."""
        if self.own is None:
            self.own = self.make_debugger(self)
            self.door.stepped_over = self.own.stepped_over
        return self.own

    def plant(self, frame: FrameType, condition: Any = True) -> None:
        """set_trace() in traced code: stop at each run of this point, and let the user step on from there."""
        if self.closed or condition is False or never_runs(frame):
            return
        if internals.in_vectorisation(frame):
            self.trace_stops.cannot_stop(next(each for each in activations(frame) if not each.hidden))
            return
        _ = self.debugger  # made here, on the user's thread: IPython must not be set up on a graph's
        self.arm()
        self.planter.plant(frame, "call", condition)
        if on_thread() is None:
            self.tracer(armed=True).start(frame)

    def tracer(self, armed: bool = False) -> LineTracer:
        """A tracer that plants what the present breakpoints and stepping need."""
        return LineTracer(self.planter, self.wants, self.has_breakpoint, armed, self.trace_stops)

    def wants(self, code: CodeType) -> bool:
        """Whether all lines of a function are to be planted: it has a breakpoint."""
        return any(has_line(code, line) for line in self.debugger.get_file_breaks(code.co_filename))

    def has_breakpoint(self, filename: str, *lines: int) -> bool:
        """Whether a breakpoint stands on one of these lines."""
        return not set(lines).isdisjoint(self.debugger.get_file_breaks(filename))

    def arm(self) -> None:
        """Stand at TensorFlow's doors, if the program has imported it; hooks follow as they are needed."""
        if internals.loaded() and not self.closed:
            self.door.install()
            self.traces.install()
            self.twins.install()
            self.keeper.install()
            self.arm_op_breaks()
            tapes.log.at_prompt = lambda: threading.get_ident() in self.at_prompt
            tapes.log.lasting = tapes.log.lasting or self.prompted
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
        self.passes[hit.point.line] += 1
        with self.lock:
            if event == "call" or self.debugger.breakpoint_reason(hit) is not None:
                self.stop(hit, "breakpoint", [(each.base, each.lineno) for each in reversed(stack[1:])])
        if self.quitting is not None:
            raise self.quitting

    def say_retraced(self, function: Any) -> None:
        """A function that ran before is traced again; its Python effects show that to the user, so say it, once."""
        name = getattr(function.python_function, "__name__", "a function")
        what = "the watch" if self.late_watches and not self.debugger.breaks else "breakpoints"
        effects = "what it prints or counts in Python while tracing happens once more"
        self.say_once(f"{name} is traced again for {what}: {effects}", self.debugger.tell)

    def could_not_plant(self, frame: FrameType, error: Exception) -> None:
        """A line could not get its hook: say so once for each kind of reason, and go on."""
        what = f"{type(error).__name__}: {error}"
        where = f"no stop in {frame.f_code.co_name} near line {frame.f_lineno}"
        self.say_once(what, lambda text: self.debugger.error(f"{where}: {text}"))

    def say_once(self, what: str, say: Callable[[str], object]) -> None:
        """Tell the user something that would be noise the second time."""
        if what not in self.said:
            self.said.add(what)
            say(what)

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

    def on_hit(self, hit: Hit) -> None:
        """A planted line is about to run in a graph: stop if anything asks for it."""
        if self.closed:
            return
        if self.quitting is not None:
            raise self.quitting
        if (arrived := self.headers.arrived(hit)) is None:
            return
        hit = arrived
        self.passes[hit.point.line] += 1
        if self.is_evaluated(hit):
            return
        try:
            if hit.point.event not in LINES or self.stepping or self.interrupted or self.debugger.breaks:
                if not self.turn(hit):
                    return
                try:
                    reason = None if self.quitting else self.reason(hit)
                    if reason is not None:
                        self.stop(hit, reason)
                finally:
                    self.lock.release()
        except Exception as error:
            if not isinstance(error, NotReached):
                self.debugger.error(f"tfdb could not stop here, the program goes on. {type(error).__name__}: {error}")
        if self.quitting is not None:
            raise self.quitting

    def turn(self, hit: Hit) -> bool:
        """Wait until no other prompt is open and take the lock; False when the open one waits for this hit to go on."""
        while not self.lock.acquire(timeout=POLL_SECONDS):
            if self.is_evaluated(hit):
                return False
        return True

    def is_evaluated(self, hit: Hit) -> bool:
        """Whether the hit comes from what the user evaluates at the prompt, which waits for it: stopping would hang.

        Runs of graphs are known by their name; of a dataset, by a reader at the prompt.
        """
        if threading.get_ident() in self.at_prompt or not self.at_prompt:
            return bool(self.at_prompt)
        graph = (self.planter.open_calls.chain(hit.point.function) or hit.point).graph
        names = [call.name for call in list(self.door.active) if call.thread in self.at_prompt]
        return any(f"_{graph}_" in f"_{name}_" for name in names) or (
            graph.startswith("Dataset_") and stopping.read_dataset(self.at_prompt)
        )

    def reason(self, hit: Hit) -> str | None:
        """Why to stop at this hit, or None."""
        point, place = hit.point, hit.point.place
        if self.interrupted:
            self.interrupted = False
            return "interrupted"
        if point.event == "call":
            return "set_trace" if hit.condition() else None
        if self.stepping is not None and stopping.steps_here(
            self.stepping, point.event, place.activation, place.lineno
        ):
            return self.stepping.kind
        if point.event.startswith("<") or (
            point.event in LINES and self.has_breakpoint(place.filename, place.lineno, place.firstlineno)
        ):
            return self.debugger.breakpoint_reason(hit)
        return None

    def stop(self, hit: Hit, reason: str, callers_now: list[tuple[FrameType, int]] | None = None) -> None:
        """Open the prompt at a hit, and apply what the user chose there.

        `callers_now` are the eager frames around it; by default those of the thread that is running the graph.
        """
        entries = hit.frames()
        if hit.point.event == "return":
            entries[-1] = stopping.at_last_line(entries[-1], self.headers.before)
            entries[-1].locals["__return__"] = hit.returned()
        chain = self.planter.open_calls.chain(hit.point.function)
        entries = chain.frames + entries if chain is not None else entries
        callers = [live(frame, ()) for frame in (chain or hit.point).callers]
        real = self.door.frames_of((chain or hit.point).graph) if callers_now is None else callers_now
        if entries[-1].activation == 0 and callers_now is None and hit.point.graph:
            real = stopping.without_the_line_shown(real, entries[-1])
        stack = entries if real else callers + entries
        self.stepping = None

        def ask(frames: list[FrameType]) -> None:
            number = self.passes[hit.point.line]
            self.debugger.graph_interaction(GraphStop(hit, frames, stack, real, number, reason, hit.point.event))

        with attributes_of_this_pass(entries):
            standing(stack, ask)
        if self.stepping is not None and hit.point.event == "return":
            self.stepping = stopping.after_return(self.stepping, entries)

    def stop_at_report(self, title: str, report: Any, stack: list[LiveFrame], trip: Any = None) -> None:
        """Open the prompt at the origin that a watch found; `title` is its screen, `report` what `why` explains."""
        real = [] if stack else self.door.frames_of("")

        def ask(frames: list[FrameType]) -> None:
            stop = GraphStop(None, frames, stack, real, 0, "watch", "<watch>", title, report, trip=trip)
            self.debugger.graph_interaction(stop)

        with self.lock:
            self.stepping = None
            standing(stack, ask)
        if self.quitting is not None:
            raise self.quitting

    @contextmanager
    def prompting(self) -> Iterator[None]:
        """Mark this thread as standing at a prompt: nothing it evaluates there stops again."""
        thread = threading.get_ident()
        again = thread in self.at_prompt
        self.at_prompt.add(thread)
        self.prompted = True
        if internals.loaded():
            tapes.log.lasting = True
        try:
            yield
        finally:
            if not again:
                self.at_prompt.discard(thread)

    def after_call(self, frame: FrameType) -> None:
        """A graph call is over on this thread: stepping goes on in the eager code that made it."""
        if not self.door.active and (self.planter.open_calls.open or self.op_breaks.installed):
            self.planter.open_calls.clear()
            self.op_breaks.settle()
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
        if self.watches is not None:
            self.watches.watching.stop()
        if self.own is not None:
            self.own.leave_threads()
        for part in self.parts():
            part.remove()

    def parts(self) -> tuple[Any, ...]:
        """Everything of this session that hooks into TensorFlow; each has `patches` and `remove`."""
        late = [tapes.log] if internals.loaded() else []
        return self.keeper, self.planter, self.door, self.traces, self.twins, self.op_breaks, *late


_current: list[Session] = []


def current(make_debugger: Callable[[Session], Any]) -> Session:
    """The process's session; the first caller's `make_debugger` makes it."""
    if not _current:
        exits.register(end)
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
    parts = [part for session in _current for part in session.parts()]
    saved = [(type(part).__name__, owner.__name__, name) for part in parts for owner, name, _ in part.patches.saved]
    return [f"{part}: {owner}.{name}" for part, owner, name in saved]
