"""Commands that run a recorded call again."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tfdb import frozen, internals, internals_gate, internals_rerun, records, render, rerun, state, tensors
from tfdb.commands.compare import CompareCommands
from tfdb.commands.repro import ReproCommands
from tfdb.errors import Quit, TfdbError
from tfdb.frames import arguments
from tfdb.ring import Record, Ring, is_same
from tfdb.sourcemap import is_hidden

AFTERWARDS = "the bad update is in the variables already: `-w nan` stops before it, with what they held"
POSITION = (
    "running_again",
    "stack", "curindex", "curframe", "curframe_locals", "lineno", "tb_lineno", "botframe", "stopframe", "returnframe",
    "stoplineno", "quitting", "graph_stop", "lastcmd", "old_completer", "_user_requested_quit", "_chained_exceptions",
    "_chained_exception_index", "cmdqueue",
)  # fmt: skip


class RerunCommands(CompareCommands, ReproCommands):
    """`rerun`, and the choice of the call that it and its kin are about."""

    graph_stop: Any
    running_again: bool = False  # then `q` ends the re-run, not the program

    def do_rerun(self, arg: str) -> None:
        """rerun [FUNCTION] [-n K] [--keep] [-l]

        Run a tf.function's recorded call again, eagerly, and stop at its first line: step with `n`, `s`, `until`, as in
        any Python code.  Without a name it is the call that this stop is in, or the latest one; `-n K` is the call K
        calls before that; `-l` lists the calls that are kept.  `q` ends the re-run.  Afterwards the prompt is back here
        and all variables and random states are as they were, bit for bit, unless `--keep` is given.

        Example:

            (tfdb) rerun
            (tfdb) rerun train_step -n 1
        """
        try:
            words, back, keep = rerun_options(arg)
            if words == ["-l"]:
                for line in ring_lines(self.session.ring):
                    self.message(line)
                return
            target = self.target(" ".join(words), back)
            self.run_again(target, keep)
        except (TfdbError, ValueError) as error:
            self.error(str(error))

    def target(self, expression: str, back: int = 0) -> rerun.Target:
        """The call that a command is about: of the function that the expression names, or that of this stop.

        Raises:
            TfdbError: no such function, or no call of it can be run again.
        """
        ring, wreck = self.session.ring, self.wreck
        wanted = self.function_named(expression) if expression else None
        inside = self.graph_stop is not None
        eager = not inside and wreck is None and wanted is None
        views = [] if eager else self.views()
        if wreck is not None and wreck.origin is None and not back:
            if wreck.given is not None and (wanted is None or is_same(wanted, wreck.given.function)):
                return rerun.of_given(wreck.given)
            if wanted is None and wreck.calls and not any(self.is_call_of(each, wreck.calls) for each in ring):
                ring = Ring()  # nobody was recording: the frames have the call
                ring.called(*wreck.calls[-1])
                found = rerun.find(ring, views, batch=self.batch)
                return (
                    replace(found, call="the call that failed") if found.wrapped is not None or wreck.batch else found
                )
            elif wanted is None and not wreck.calls:
                return rerun.of_frames(views, False, "this error is not of a call of a tf.function")
        found = rerun.find(ring, views, wanted, back=back, outermost=inside, batch=self.batch)
        stop = self.graph_stop if inside and not expression and not back else None
        if stop is not None and stop.trip is None and stop.report is not None and stop.report.place == "check":
            return replace(found, notes=(*found.notes, AFTERWARDS))
        return found if stop is None or stop.trip is None else rerun.at_trip(found, stop.trip)

    def is_call_of(self, record: Record, calls: Sequence[Any]) -> bool:
        """Whether a recorded call is of one of these calls' functions, or went to one in its own one's place."""
        called = [record.function, *self.session.twins.called_for(record.function)]
        return any(is_same(each, function) for each in called for function, _, _ in calls)

    def batch(self, function: Any) -> list[list[Any]]:
        """What the iterators in the function's graph gave last."""
        session = self.session
        functions = [function, *session.twins.called_for(function)]
        names = [trace.graph.name for each in functions for trace in internals_rerun.traces(each)]
        found = (session.keeper.batch(name) for name in reversed(names))
        again = [list(self.wreck.batch)] if self.wreck is not None and self.wreck.batch else []
        return next((batch for batch in found if batch), again)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Within the block, functions are traced and run as without a debugger."""
        session = self.session
        with session.aside(), session.twins.aside():
            yield

    @contextmanager
    def away_from_prompt(self) -> Iterator[None]:
        """Within the block this thread runs the program, and set_trace() stops it."""
        session, thread = self.session, threading.get_ident()
        session.at_prompt.discard(thread)
        try:
            with session.twins.aside():
                yield
        finally:
            session.at_prompt.add(thread)

    def substitutes(self, target: rerun.Target) -> list[Any]:
        """The functions that calls of the target's went to in its place."""
        return self.session.twins.called_for(target.wrapped) if target.wrapped is not None else []

    def function_named(self, expression: str) -> Any:
        """The function that an expression gives in the current frame, or that was called under this name."""
        try:
            found = self.evaluate(expression)
        except Exception as error:
            found = self.session.ring.named(expression)
            if found is None:
                raise TfdbError(f"{expression}: {type(error).__name__}: {error}") from error
        if not callable(found):
            raise TfdbError(f"{expression} is no function")
        return found

    def views(self) -> list[rerun.FrameView]:
        """The frames of this stop, from the current one outwards."""
        shown = self.stack[: self.curindex + 1]
        return [self.view(frame) for frame, _ in reversed(shown)]

    def view(self, frame: Any) -> rerun.FrameView:
        """A frame of this stop: a graph's or a wreck's stand-in, or a real one."""
        live = self.graph_stop.live_frame(frame) if self.graph_stop is not None else None
        live = live or (self.wreck_frame(frame) if self.wreck is not None else None)
        if live is not None:
            return rerun.FrameView(
                live.filename, live.function, live.firstlineno, live.arguments, live.locals, live.globals
            )
        code = frame.f_code
        return rerun.FrameView(
            code.co_filename, code.co_name, code.co_firstlineno, arguments(code), frame.f_locals, frame.f_globals, True
        )

    def run_again(self, target: rerun.Target, keep: bool) -> None:
        """Run the target under this debugger, and put the prompt, and unless `keep` the state, back."""
        for line in rerun.facts(target):
            self.message(line)
        kept = {name: self.__dict__[name] for name in POSITION if name in self.__dict__}
        trace, stepping = sys.gettrace(), self.session.stepping
        python = None if keep else state.PythonState.take(frozen.places(target.function))
        written: list[Any] = []
        try:
            with (
                self.session.door.last_kept(),
                internals.eager(),
                state.set_aside(target.at_call, keep) as began,
            ):  # a stop may be inside of a tracing
                self.message(sys.call_tracing(self.ended, (target,)))
                written = state.changed(began)
        finally:
            sys.settrace(trace)
            if python is not None:
                python.put()
            for name in POSITION:
                self.__dict__.pop(name, None)
            self.__dict__.update(kept)
            self.session.stepping = stepping
        self.message(written_sentence(written, began, keep))
        self.print_stack_entry(self.stack[self.curindex])

    def ended(self, target: rerun.Target) -> str:
        """Call the target under the trace function, from its first line; how that ended."""
        self.graph_stop, self.running_again = None, True
        self.reset()
        try:
            with self.away_from_prompt(), internals_gate.eager_functions():
                sys.settrace(self.trace_dispatch)
                value = target.function(*target.args, **target.kwargs)
        except Quit:
            if self.session.quitting is not None:
                raise
            return f"re-run of {target.name}() ended by q"
        except Exception as error:
            sys.settrace(None)
            return f"re-run of {target.name}() ended with {raised(error)}"
        finally:
            sys.settrace(None)
        return f"re-run of {target.name}() returned {shown(value)}"


def rerun_options(arg: str) -> tuple[list[str], int, bool]:
    """The words that name a function, how many calls back, and whether to keep what the re-run writes."""
    words, back, keep = shlex.split(arg), 0, False
    if "--keep" in words:
        words.remove("--keep")
        keep = True
    if "-n" in words:
        at = words.index("-n")
        if not words[at + 1 : at + 2] or not words[at + 1].isdigit():
            raise ValueError("-n takes a number of calls: rerun [FUNCTION] [-n K] [--keep]")
        back = int(words[at + 1])
        del words[at : at + 2]
    return words, back, keep


def ring_lines(ring: Any) -> list[str]:
    """The kept calls, newest first, and the bytes they hold."""
    lines = [
        f"{f'-n {back}' if back else 'latest':7} {record.name} · call {record.number}"
        f" · {render.size_text(record.nbytes)} · variables {'not kept' if record.state is None else 'as at the call'}"
        for back, record in rerun.calls(ring)
    ]
    limit = f"{ring.most_calls} calls, {render.size_text(ring.most_bytes)}"
    calls = "1 call" if len(lines) == 1 else f"{len(lines)} calls"
    return [*lines, f"{calls}, {render.size_text(ring.nbytes)} at most; the limit is {limit}"]


def raised(error: Exception) -> str:
    """An error in one line: its type, the first line of its text, and the innermost user line it came through."""
    place, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_hidden(code.co_filename):
            place = f" at {code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {rerun.said(error)}{place}"


def shown(value: Any) -> str:
    """What a function returned: a line for a tensor, a table for a structure of them, the value itself for others."""
    if value is None or internals.is_undefined(value):
        return "None"
    found = tensors.describe(value)
    if isinstance(found, records.TensorSummary):
        return render.tensor_line(found, render.terminal_width())
    return "\n" + render.tensor_table(found, render.terminal_width())


def written_sentence(written: list[Any], began: state.State, keep: bool) -> str:
    """What became of the variables that the re-run wrote."""
    count = len(began.values)
    if not written:
        return f"no variable changed ({count} looked at)"
    names = rerun.listed(list(state.names(variable for variable, _, _ in written).values()))
    return f"{'kept' if keep else 'put back'}: {names} ({len(written)} of {count} variables had changed)"
