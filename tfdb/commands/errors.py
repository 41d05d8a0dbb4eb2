"""Commands at the end of a program: what went wrong, in one sentence or in full."""

from __future__ import annotations

from types import FrameType
from typing import Any

from tfdb import explain, internals, internals_errors, leaks, postmortem, render, screens
from tfdb.commands.base import PromptBase
from tfdb.frames import LiveFrame

WHOLE = "`full` shows the error's whole text"


class ErrorCommands(PromptBase):
    """`why` and `full`, and the prompt after an error."""

    wreck: postmortem.Wreck | None = None
    wreck_stack: list[tuple[FrameType, int]]

    def wreck_interaction(self, wreck: postmortem.Wreck) -> None:
        """Open the prompt where an error came from."""
        self.wreck = wreck
        error = wreck.failure.error
        for line in postmortem_lines(wreck, render.terminal_width()):
            self.message(line)

        def ask(stack: list[tuple[FrameType, int]]) -> None:
            self.wreck_stack = stack
            chained = hasattr(self, "_get_tb_and_exceptions")
            self.interaction(None, error if chained else error.__traceback__)  # type: ignore[arg-type]

        try:
            wreck.standing(ask)
        finally:
            self.wreck = None
            self.wreck_stack = []

    def user_exception(self, frame: FrameType, exc_info: Any) -> None:
        """An error passes a line that is stepped over; of a graph's, the sentence that matters is shown."""
        kind, error, traceback = exc_info
        said = explain.report(str(error)) if internals.loaded() and internals_errors.is_op_error(error) else None
        if said is None or not said.message:
            super().user_exception(frame, exc_info)
            return
        frame.f_locals["__exception__"] = kind, error
        self.message(f"{kind.__name__}: {said.message}")
        self.interaction(frame, traceback)

    def stack_of_wreck(self, traceback: Any) -> list[tuple[FrameType, int]] | None:
        """The stack to show for a traceback, if it is that of the wreck."""
        if self.wreck is None or traceback is not self.wreck.failure.error.__traceback__:
            return None
        return list(self.wreck_stack)

    def wreck_frame(self, frame: FrameType) -> LiveFrame | None:
        """What a frame of the wreck stands for, or None when it is a real one."""
        for (entry, _), (made, _) in zip(self.wreck.entries if self.wreck else (), self.wreck_stack, strict=False):
            if made is frame and isinstance(entry, LiveFrame):
                return entry
        return None

    def do_why(self, arg: str) -> None:
        """why [EXPRESSION]

        Explain this stop in a sentence: after an error, what went wrong and which lines had a part in it.  With an
        expression that is a tensor which left its graph: the line that let it out.

        Example:

            (tfdb) why
            (tfdb) why layer.last
        """
        if arg:
            self.why_expression(arg)
        elif self.wreck is not None:
            for line in why_lines(self.wreck, render.terminal_width()):
                self.message(line)
        else:
            self.error("there is nothing to explain here: no error has stopped the program")

    def why_expression(self, expression: str) -> None:
        """Explain a value."""
        try:
            value = self._getval(expression)
        except Exception:
            return
        leak = leaks.leak(expression, value)
        if leak is None:
            self.message(f"{expression} is no tensor of a graph; nothing is known to be wrong with it")
        else:
            self.message(leaks.explained_leak(leak))

    def do_full(self, arg: str) -> None:
        """full

        The error as TensorFlow and Python tell it, with every frame and the whole message.

        Example:

            (tfdb) full
        """
        if self.wreck is None:
            self.error("full shows an error's whole text, and there is none here")
        else:
            self.message(self.wreck.full.rstrip())


def postmortem_lines(wreck: postmortem.Wreck, width: int, at_prompt: bool = True) -> list[str]:
    """The lines above the prompt: error, place, values, explanation, where the values are from, and what shows more."""
    reported = wreck.reported
    layer = f" (in {reported.layer})" if reported.layer else ""
    lines = [f"{wreck.facts.error}: {reported.message}{layer}" if reported.message else wreck.facts.error]
    if wreck.origin is not None:
        return [*lines, *screens.watch_screen(wreck.origin, width).splitlines(), *[f"  {WHOLE}"] * at_prompt]
    lines += ["  " + line for line in place_lines(wreck)]
    lines += ["  " + line for line in wreck.layer]
    lines += ["  " + line for line in value_lines(wreck, width - 2)]
    if wreck.sentence:
        lines.append(f"  {wreck.sentence}")
    lines += [f"  {note}" for note in wreck.notes]
    if len(wreck.full) > 1500 and at_prompt:
        lines.append(
            "  `full` shows TensorFlow's whole message" if reported.node else "  `full` shows the whole traceback"
        )
    return lines


def place_lines(wreck: postmortem.Wreck) -> list[str]:
    """The op and the user's line."""
    place, op = wreck.facts.place, wreck.facts.op
    node = f'"{wreck.reported.node}"' if wreck.reported.node else ""
    what = " ".join(part for part in (op, node) if part)
    what += f", the gradient of {wreck.facts.forward}" if wreck.facts.forward else ""
    where = place.told if place is not None else ""
    joined = " · ".join(part for part in (what, where) if part)
    return [joined] if joined else []


def failing_lines(wreck: postmortem.Wreck, width: int) -> list[str]:
    """The op that failed in a graph and its inputs; none where it is not known."""
    return [*place_lines(wreck), *(f"  {line}" for line in value_lines(wreck, width - 2))] if wreck.facts.op else []


def value_lines(wreck: postmortem.Wreck, width: int) -> list[str]:
    """A line for each tensor that took part."""
    lines = []
    for each in wreck.shown:
        line = render.tensor_line(each.summary, width, name=each.name)
        if each.symbolic and each.symbolic not in line:
            line += f"  (traced as {each.symbolic})"
        lines.append(line + (f"  from {each.origin}" if each.origin else ""))
    return lines


def why_lines(wreck: postmortem.Wreck, width: int) -> list[str]:
    """The explanation, or what there is to say of an error that is none of the usual ones."""
    if wreck.origin is not None:
        return screens.watch_screen(wreck.origin, width).splitlines()
    if wreck.sentence:
        return [wreck.sentence, *value_lines(wreck, width)]
    lines = place_lines(wreck) + list(wreck.layer) + value_lines(wreck, width)
    return [f"{wreck.facts.error}: {wreck.reported.message}", *lines, "no explanation is known for this error"]
