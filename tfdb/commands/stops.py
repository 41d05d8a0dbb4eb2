"""Commands that set breakpoints and look around a stop, where graph frames need more than pdb gives."""

import bdb
import functools
import inspect
import linecache
import os
import re
from collections.abc import MutableMapping
from types import CodeType
from typing import Any

from tfdb import internals, opbreaks, syntax, tracedlines, tracestops, tracingonly
from tfdb.commands.pending import PendingBreakpoints
from tfdb.errors import NotReached

BUILT = "a dataset that was built before runs this line too: only datasets built from now on can stop there"


@functools.lru_cache(maxsize=256)
def compiled(condition: str) -> CodeType:
    """A breakpoint's condition as code.

    Raises:
        SyntaxError: it is no expression.
    """
    return compile(condition.strip(), "<condition>", "eval")


def holds(condition: str, names: dict[str, Any], local: MutableMapping[str, Any]) -> bool:
    """Whether a breakpoint's condition is true in a frame; generators and lambdas in it see the frame's locals too.

    Raises:
        Exception: what evaluating it raises.
    """
    code = compiled(condition)
    if any(isinstance(part, CodeType) for part in code.co_consts):
        names = {**names, **local}
    return bool(eval(code, names, local))


class NamedBreakpoint(bdb.Breakpoint):
    """A breakpoint that is on no line that runs; its file is `<op:REGEX>` or the like, its line 0."""

    def bpformat(self) -> str:
        return super().bpformat().replace(f"{self.file}:0", self.file[1:-1])

    def __str__(self) -> str:
        return f"breakpoint {self.number} at {self.file[1:-1]}"


class StopCommands(PendingBreakpoints):
    """Breakpoints on `tf.function`s by name; arguments and evaluation in graph frames."""

    def _getval(self, arg: str) -> Any:
        try:
            return self.evaluate(arg)
        except BaseException:
            self._error_exc()
            raise

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the current frame; lambdas and comprehensions see the locals too."""
        names = {**self.curframe.f_globals, **self.curframe_locals}
        return eval(expression, names, self.curframe_locals)

    def do_break(self, arg: str, temporary: Any = 0) -> None:
        """b(reak) [FILE:LINE | FUNCTION | op:REGEX | layer:NAME | trace:FILE:LINE | trace:FUNCTION][, CONDITION]

        Stop there, in eager and in graph code alike; a condition is evaluated on the values of each pass.  FUNCTION may
        be a `tf.function`.  `op:` stops after each op of that type or node name, `layer:` after each call of that Keras
        layer; both show `inputs` and `outputs`, which the condition sees too.  `trace:` stops while Python traces the
        line, once for each trace, with symbolic tensors: for lines of plain Python, which run at no other time.
        Functions that were traced before are traced again on their next call.  Without an argument: the list.

        Example:

            (tfdb) b losses.py:41, tf.reduce_any(p < 0)
            (tfdb) b op:Sqrt, tf.reduce_min(inputs[0]) == 0
            (tfdb) b trace:train.py:12, images.shape[0] != 32
        """
        try:
            named = opbreaks.parse(arg)
        except re.error as error:
            self.error(f"the pattern is no regular expression: {error}")
            return
        if named is not None:
            self.break_named(*named, bool(temporary))
            return
        if arg.strip().startswith("trace:"):
            self.break_at_tracing(arg.strip().removeprefix("trace:"), bool(temporary))
            return
        place, comma, condition = arg.partition(",")
        pending = self.pending_place(place)
        if pending is not None:
            self.add_named(pending, condition.strip(), bool(temporary))
            self.message("there is no such file on the search path yet: set when a module is imported from one")
            return
        found = self.function_place(place.strip()) if ":" not in place and place.strip() else None
        before = len(bdb.Breakpoint.bpbynumber)
        super().do_break(f"{found}{comma}{condition}" if found else arg, temporary)
        for made in bdb.Breakpoint.bpbynumber[before:]:
            if made is not None:
                self.note_on_breakpoint(made)

    do_b = do_break

    def note_on_breakpoint(self, made: bdb.Breakpoint) -> None:
        """Say what the user should know of a breakpoint on a line that was just set."""
        if internals.loaded() and tracedlines.is_in_built_dataset((made.file, made.line)):
            self.message(BUILT)
        codes = [event.code for event in self.session.traces.events if event.code is not None]
        traced = {code.co_firstlineno for code in codes if self.canonic(code.co_filename) == made.file}
        here = self.canonic(self.curframe.f_code.co_filename) == made.file if self.curframe else False
        why = tracingonly.at_line(made.file, made.line, self.curframe.f_globals if here else {}, traced)
        if why is not None:
            place = f"{os.path.basename(made.file)}:{made.line}"
            self.message(f"line {made.line} {why}; b trace:{place} stops there while Python traces it")

    def break_named(self, kind: str, pattern: str, condition: str, temporary: bool) -> None:
        """Set a breakpoint on ops or layers; say so when there is none of that name."""
        self.add_named(opbreaks.file_name(kind, pattern), condition, temporary)
        note = opbreaks.note(kind, pattern) if internals.loaded() else None
        if note is not None:
            self.message(note)

    def note_at_end(self) -> None:
        """The program is over: name the breakpoints and the limits that nothing has met."""
        for kind, pattern in self.session.op_breaks.missed():
            self.message(opbreaks.never_met(kind, pattern))
        self.note_pending()
        for line in self.session.watches.not_looked_at() if self.session.watches is not None else ():
            self.message(line)

    def add_named(self, name: str, condition: str, temporary: bool) -> None:
        """Set a breakpoint on no line; it is in pdb's own table, so that `cl`, `disable`, ... work on it."""
        self._add_to_breaks(name, 0)
        made = NamedBreakpoint(name, 0, temporary, condition or None)
        self.session.arm()
        self.message(f"Breakpoint {made.number} at {name[1:-1]}")

    def break_at_tracing(self, arg: str, temporary: bool) -> None:
        """Set a breakpoint at the tracing of a line or of a function's first line."""
        place, _, condition = (part.strip() for part in arg.partition(","))
        found = self.function_place(place) if ":" not in place and not place.isdigit() else place
        file, _, line = (found or self.plain_function_place(place) or "").rpartition(":")
        filename = self.lookupmodule(file) if file else self.defaultFile()
        if not filename or not line.isdigit():
            self.error(f"trace: takes FILE:LINE or a function; nothing is known of {place!r}")
            return
        checked = self.checkline(filename, int(line))
        if checked:
            text = "".join(linecache.getlines(filename))
            lineno = syntax.body_line(text, checked)
            self.add_named(tracestops.file_name(self.canonic(filename), lineno), condition, temporary)

    def plain_function_place(self, name: str) -> str | None:
        """`file:line` of the first line of a Python function that pdb finds by name."""
        try:
            code = inspect.unwrap(self.evaluate(name)).__code__
        except Exception:
            return None
        return f"{code.co_filename}:{code.co_firstlineno}"

    def checkline(self, filename: str, lineno: int, *arguments: Any) -> int:
        """pdb's check of a line for a breakpoint; inside a statement of several lines it is the statement's first.

        Returns the line to break at, 0 when there is nothing to stop at.
        """
        line: int = super().checkline(filename, lineno, *arguments)
        return syntax.first_line("".join(linecache.getlines(filename)), line) if line else 0

    def break_here(self, frame: Any) -> bool:
        """bdb's question: does a breakpoint stop here?  One whose condition cannot be evaluated does, and says so.

        bdb compiles a condition at each pass anew, and TensorFlow keeps the code of every line that has run an op.
        """
        filename = self.canonic(frame.f_code.co_filename)
        with_breakpoints = self.get_file_breaks(filename)
        lines = [line for line in (frame.f_lineno, frame.f_code.co_firstlineno) if line in with_breakpoints]
        for made in bdb.Breakpoint.bplist[filename, lines[0]] if lines else ():  # type: ignore[attr-defined]
            if not made.enabled or not bdb.checkfuncname(made, frame):
                continue
            made.hits += 1
            failed = ""
            try:
                if made.cond and not holds(made.cond, frame.f_globals, frame.f_locals):
                    continue
            except NotReached:
                raise
            except Exception as error:
                failed = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                self.message(f"the condition of breakpoint {made.number} failed: {failed}")
            if made.ignore > 0 and not failed:
                made.ignore -= 1
                continue
            self.currentbp = made.number
            if made.temporary and not failed:
                self.do_clear(str(made.number))
            return True
        return False

    def note_on_tracing(self, stop: Any) -> None:
        """Say it when the line of a breakpoint is plain Python: it runs while tracing, not now."""
        point = stop.hit.point
        place = point.place
        calls = syntax.calls("".join(linecache.getlines(place.filename)), place.lineno)
        acts = tracingonly.at_line(place.filename, place.lineno, place.globals, {place.firstlineno}) is not None
        if point.number in self.session.planter.without_ops and (calls or acts):
            there = f"{os.path.basename(place.filename)}:{place.lineno}"
            self.message(f"line {place.lineno} makes no ops: it ran once, while tracing (b trace:{there} stops there)")

    def function_place(self, name: str) -> str | None:
        """`file:line` of the first line of a `tf.function` or other wrapper; None for what pdb finds by itself."""
        try:
            value = eval(name, self.curframe.f_globals, self.curframe_locals)
        except Exception:
            return self.function_to_come(name) or self.function_in_module(name)
        if not hasattr(value, "python_function"):
            return None
        code = inspect.unwrap(value.python_function).__code__
        lines = [line for _, _, line in code.co_lines() if line and line > code.co_firstlineno]
        return f"{code.co_filename}:{min(lines, default=code.co_firstlineno)}"

    def function_to_come(self, name: str) -> str | None:
        """The same for a function or method of this file that is not defined yet.

        pdb itself never stops in one that has decorators, and finds no methods.
        """
        filename = self.defaultFile()
        function = syntax.function_named("".join(linecache.getlines(filename)), name)
        return f"{filename}:{syntax.first_body_line(function)}" if function is not None else None

    def function_in_module(self, name: str) -> str | None:
        """The same for `package.module.function` of a module that is not imported yet, or not under that name."""
        parts = name.split(".")
        for length in range(len(parts) - 1, 0, -1):
            stem = os.path.join(*parts[:length])
            for filename in filter(None, map(self.lookupmodule, (stem, os.path.join(stem, "__init__.py")))):
                function = syntax.function_named("".join(linecache.getlines(filename)), ".".join(parts[length:]))
                if function is not None:
                    return f"{filename}:{syntax.first_body_line(function)}"
        return None

    def bring_displays(self, stop: Any) -> None:
        """`display` belongs to a frame; a graph's stand-in frames are new at each stop, so it is kept by function."""
        kept = self.__dict__.setdefault("graph_displays", {})
        for frame, entry in zip(stop.frames, stop.live, strict=True):
            self.displaying[frame] = kept.setdefault(entry.activation, {})

    def preloop(self) -> None:
        for expression, old in self.displaying.get(self.curframe, {}).items():
            new = self._getval_except(expression)
            if new is not old and repr(new) != repr(old):  # == of two tensors is a tensor
                self.displaying[self.curframe][expression] = new
                self.message(f"display {expression}: {new!r}  [old: {old!r}]")

    def do_args(self, arg: str) -> None:
        """a(rgs)

        The arguments of the current function with their values, of this pass in a graph.

        Example:

            (tfdb) a
            x = <tf.Tensor: shape=(), dtype=float32, numpy=3.0>
        """
        stop = self.graph_stop
        frame = (stop.live_frame if stop is not None else self.wreck_frame)(self.curframe)
        if frame is None:
            super().do_args(arg)
            return
        for name in frame.arguments:
            value = self.repr_of(frame.locals[name]) if name in frame.locals else "*** undefined ***"
            self.message(f"{name} = {value}")

    do_a = do_args

    @staticmethod
    def repr_of(value: object) -> str:
        """The value's repr, or what is wrong with it (pdb has a method for it from Python 3.11 on)."""
        try:
            return repr(value)
        except Exception as error:
            return f"*** repr failed: {type(error).__name__}: {error}"

    def do_jump(self, arg: str) -> None:
        """j(ump) LINE

        Go on at another line, in eager code.  A graph runs in its own order and cannot jump: `rerun` runs the call
        again eagerly, and there `jump` works.

        Example:

            (tfdb) jump 12
        """
        if self.graph_stop is not None:
            self.error("a graph runs in its own order: jump works in eager code only (try `rerun`)")
            return
        super().do_jump(arg)

    do_j = do_jump
