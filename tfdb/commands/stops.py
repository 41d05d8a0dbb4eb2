"""Commands that set breakpoints and look around a stop, where graph frames need more than pdb gives."""

import bdb
import inspect
import linecache
import re
from typing import Any

from tfdb import internals, opbreaks, syntax, tracedlines

BUILT = "a dataset that was built before runs this line too: only datasets built from now on can stop there"


class NamedBreakpoint(bdb.Breakpoint):
    """A breakpoint on ops or layers; its file is `<op:REGEX>` or `<layer:REGEX>`, its line 0."""

    def bpformat(self) -> str:
        return super().bpformat().replace(f"{self.file}:0", self.file[1:-1])

    def __str__(self) -> str:
        return f"breakpoint {self.number} at {self.file[1:-1]}"


class StopCommands:
    """Breakpoints on `tf.function`s by name; arguments and evaluation in graph frames."""

    def _getval(self, arg: str) -> Any:
        try:
            return self.evaluate(arg)
        except BaseException:
            self._error_exc()  # type: ignore[attr-defined]
            raise

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the current frame; lambdas and comprehensions see the locals too."""
        names = {**self.curframe.f_globals, **self.curframe_locals}  # type: ignore[attr-defined]
        return eval(expression, names, self.curframe_locals)  # type: ignore[attr-defined]

    def do_break(self, arg: str, temporary: int = 0) -> None:
        try:
            named = opbreaks.parse(arg)
        except re.error as error:
            self.error(f"the pattern is no regular expression: {error}")  # type: ignore[attr-defined]
            return
        if named is not None:
            self.break_named(*named, bool(temporary))
            return
        place, comma, condition = arg.partition(",")
        found = self.function_place(place.strip()) if ":" not in place and place.strip() else None
        before = len(bdb.Breakpoint.bpbynumber)
        super().do_break(f"{found}{comma}{condition}" if found else arg, temporary)  # type: ignore[misc]
        for made in bdb.Breakpoint.bpbynumber[before:]:
            if internals.loaded() and tracedlines.is_in_built_dataset((made.file, made.line)):
                self.message(BUILT)  # type: ignore[attr-defined]

    do_b = do_break

    def break_named(self, kind: str, pattern: str, condition: str, temporary: bool) -> None:
        """Set a breakpoint on ops or layers; it is in pdb's own table, so that `cl`, `disable`, ... work on it."""
        name = opbreaks.file_name(kind, pattern)
        self._add_to_breaks(name, 0)  # type: ignore[attr-defined]
        made = NamedBreakpoint(name, 0, temporary, condition or None)
        self.session.arm()  # type: ignore[attr-defined]
        self.message(f"Breakpoint {made.number} at {kind}:{pattern}")  # type: ignore[attr-defined]

    def checkline(self, filename: str, lineno: int, *arguments: Any) -> int:
        """pdb's check of a line for a breakpoint; inside a statement of several lines it is the statement's first.

        Returns the line to break at, 0 when there is nothing to stop at.
        """
        line: int = super().checkline(filename, lineno, *arguments)  # type: ignore[misc]
        return syntax.first_line("".join(linecache.getlines(filename)), line) if line else 0

    def break_here(self, frame: Any) -> bool:
        """bdb's question; when it stops because a condition cannot be evaluated, say so."""
        found: bool = super().break_here(frame)  # type: ignore[misc]
        made = bdb.Breakpoint.bpbynumber[self.currentbp] if found and self.currentbp else None  # type: ignore[attr-defined]
        if made is not None and made.cond:
            try:
                bool(eval(made.cond, frame.f_globals, frame.f_locals))
            except Exception as error:
                reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                self.message(f"the condition of breakpoint {made.number} failed: {reason}")  # type: ignore[attr-defined]
        return found

    def note_on_tracing(self, stop: Any) -> None:
        """Say it when the line of a breakpoint is plain Python: it runs while tracing, not now."""
        point = stop.hit.point
        place = point.place
        if point.number in self.session.planter.without_ops and syntax.calls(  # type: ignore[attr-defined]
            "".join(linecache.getlines(place.filename)), place.lineno
        ):
            self.message(f"line {place.lineno} makes no ops: it ran once, while tracing")  # type: ignore[attr-defined]

    def function_place(self, name: str) -> str | None:
        """`file:line` of the first line of a `tf.function` or other wrapper; None for what pdb finds by itself."""
        try:
            value = eval(name, self.curframe.f_globals, self.curframe_locals)  # type: ignore[attr-defined]
        except Exception:
            return None
        if not hasattr(value, "python_function"):
            return None
        code = inspect.unwrap(value.python_function).__code__
        lines = [line for _, _, line in code.co_lines() if line and line > code.co_firstlineno]
        return f"{code.co_filename}:{min(lines, default=code.co_firstlineno)}"

    def bring_displays(self, stop: Any) -> None:
        """`display` belongs to a frame; a graph's stand-in frames are new at each stop, so it is kept by function."""
        kept = self.__dict__.setdefault("graph_displays", {})
        for frame, entry in zip(stop.frames, stop.live, strict=True):
            self.displaying[frame] = kept.setdefault(entry.activation, {})  # type: ignore[attr-defined]

    def preloop(self) -> None:
        for expression, old in self.displaying.get(self.curframe, {}).items():  # type: ignore[attr-defined]
            new = self._getval_except(expression)  # type: ignore[attr-defined]
            if new is not old and repr(new) != repr(old):  # == of two tensors is a tensor
                self.displaying[self.curframe][expression] = new  # type: ignore[attr-defined]
                self.message(f"display {expression}: {new!r}  [old: {old!r}]")  # type: ignore[attr-defined]

    def do_args(self, arg: str) -> None:
        stop = self.graph_stop  # type: ignore[attr-defined]
        frame = (stop.live_frame if stop is not None else self.wreck_frame)(self.curframe)  # type: ignore[attr-defined]
        if frame is None:
            super().do_args(arg)  # type: ignore[misc]
            return
        for name in frame.arguments:
            value = self._safe_repr(frame.locals[name], name) if name in frame.locals else "*** undefined ***"  # type: ignore[attr-defined]
            self.message(f"{name} = {value}")  # type: ignore[attr-defined]

    do_a = do_args

    def do_jump(self, arg: str) -> None:
        if self.graph_stop is not None:  # type: ignore[attr-defined]
            self.error("a graph runs in its own order: jump works in eager code only (try `rerun`)")  # type: ignore[attr-defined]
            return
        super().do_jump(arg)  # type: ignore[misc]

    do_j = do_jump
