"""Commands about gradients: why one is None, what the tapes record, and gradients on demand."""

from __future__ import annotations

import ast
import gc
import threading
from collections.abc import Iterator
from typing import Any

from tfdb import (
    asked,
    cuttext,
    internals,
    internals_gradients,
    lostgrads,
    nonegrads,
    render,
    screens,
    sites,
    taperecords,
    tapes,
    tensors,
    varnames,
)
from tfdb.commands.backward import AGAIN, BackwardCommands, listed, shown
from tfdb.errors import TfdbError
from tfdb.sourcemap import Activation

NO_GRADIENTS = "No gradients provided for any variable"
MOST_NAMES = 8
UNKNOWN = (
    "which ops made this loss is known while `watch none` is on: `watch none` now, then `c` to a stop in the next step "
    "(without one: `tbreak` on this line first, or start with -w none), and ask again"
)


class GradientCommands(BackwardCommands):
    """`why` for lost gradients, and `tape`."""

    def do_why(self, arg: str) -> None:
        """why [EXPRESSION]

        Explain this stop in a sentence: after an error, what went wrong and which lines had a part in it.  With a
        variable, why its gradient is None: the op and the line that cut it off from the loss.  The ops of eager code
        are known while `watch none` is on.

        Example:

            (tfdb) why
            (tfdb) why model.layers[0].kernel
        """
        try:
            if not self.why_gradient(arg.strip()):
                super().do_why(arg)
        except TfdbError as error:
            self.error(str(error))

    def why_gradient(self, arg: str) -> bool:
        """Explain a lost gradient; False when the question is about something else."""
        if not internals.loaded():
            return False
        wreck = self.wreck
        if not arg:
            if wreck is None or NO_GRADIENTS not in str(wreck.failure.root):
                return False
            found = self.asked_here()
            return found is not None and self.explain(found, None)
        try:
            value = self.evaluate(arg)
        except Exception:  # not the program's, or the user's own objects raise
            return False
        if (text := self.of_given(arg, value)) is not None:
            self.message(text)
            return True
        variable = self.variable_of(arg, value)
        if variable is None:
            return False
        found = self.asked_here()
        if found is None:
            raise TfdbError("there is no tape and no loss in these frames: stop where the gradient is computed")
        return self.explain(found, variable)

    def variable_of(self, expression: str, value: Any) -> Any:
        """The variable that an expression is, or whose gradient it is (`grads[0]`); None for anything else."""
        if value is None:
            return self.of_gradient(expression)
        plain = next(iter(sites.flat([value])), None)
        return plain if lostgrads.is_variable(plain) else None

    def of_given(self, expression: str, value: Any) -> str | None:
        """What is to be said of `grads[2]` where that gradient is there; None for anything else."""
        name = expression.partition("[")[0].strip()
        if not any(name in asked.results(activation) for activation in self.activations_here()):
            return None
        try:
            variable = self.of_gradient(expression)
        except Exception:  # the user's own objects raise
            return None
        if variable is None or not hasattr(value, "dtype"):
            return None
        whose = lostgrads.names_of([variable], None)[0]
        text = render.tensor_line(tensors.describe_leaf(value))
        return f"{expression}, the gradient of {whose}, is there, nothing cuts it: {text}"

    def of_gradient(self, expression: str) -> Any:
        """The variable at the place of `grads[2]` among the sources."""
        node = ast.parse(expression, mode="eval").body
        found = self.asked_here()
        if found is None or not isinstance(node, ast.Subscript):
            return None
        try:
            index = ast.literal_eval(node.slice)
        except ValueError:
            return None
        sources = list(sites.flat(found.sources))
        return sources[index] if isinstance(index, int) and -len(sources) <= index < len(sources) else None

    def asked_here(self) -> asked.Asked | None:
        """The gradient that the program asks for at this stop."""
        wreck = self.wreck
        lost = tapes.log.lost
        if wreck is not None and lost is not None:
            return asked.Asked(lost.tape, lost.target, lost.sources, None)
        last = nonegrads.watch.last
        if last is not None:
            return asked.Asked(last.tape, list(last.targets), list(last.sources), last.frame)
        return asked.asked(self.activations_here())

    def activations_here(self) -> Iterator[Activation]:
        """This stop's frames, innermost first."""
        for frame, line in reversed(self.stack):
            code = frame.f_code
            yield Activation(code.co_filename, line, code.co_name, code, (frame,))

    def explain(self, found: asked.Asked, variable: Any) -> bool:
        """Print why the variable (all sources, if None) gets no gradient."""
        targets = [self.symbol_of(target) for target in lostgrads.flat(found.target)]
        sources = [variable] if variable is not None else list(sites.flat(found.sources))
        symbolic = any(internals.is_symbolic(target) for target in targets)
        if not sources or not targets:
            return False
        if not symbolic and not tapes.log.logging:
            raise TfdbError(UNKNOWN)
        names = lostgrads.names_of(sources, found.frame)
        recording = tapes.log.recording_of(found.tape) if tapes.log.logging else None
        question = lostgrads.Question(targets, sources, names, range(len(sources)), found.tape, recording, found.frame)
        if not symbolic and lostgrads.is_unseen(question):
            cause, fix = cuttext.worded(cuttext.CutFacts("unseen"))
            raise TfdbError(f"{cause}: {fix}")
        answer = lostgrads.answers(question, tapes.log)
        if answer is None:
            self.message(f"{names[0]} is connected to the loss: nothing cuts the gradient")
        else:
            report = nonegrads.report(question, answer)
            self.message(screens.watch_screen(report, render.terminal_width(), self.in_colour()))
        return True

    def do_tape(self, arg: str) -> None:
        """tape [TARGET [, SOURCES]]

        The gradient tapes of this stop: where each was opened, whether it is persistent and recording, and what it
        watches.  With a target, its gradient for the sources (default: the variables that the innermost tape watches),
        computed aside: the tape is not used up, and what the program asks of it later is not changed.

        Example:

            (tfdb) tape
            (tfdb) tape loss, model.trainable_variables
        """
        try:
            self.message("\n".join(self.gradients(arg) if arg.strip() else tape_lines(self.tapes_here())))
        except TfdbError as error:
            self.error(str(error))

    def tapes_here(self) -> list[Any]:
        """The tapes in this stop's frames and those that record now, innermost first."""
        if not internals.loaded():
            return []
        kind = internals_gradients.tape_class()
        found = [v for each in self.activations_here() for v in each.names().values() if isinstance(v, kind)]
        found += [tape for tape in gc.get_objects() if type(tape) is kind and internals_gradients.is_recording(tape)]
        return list({id(tape): tape for tape in found}.values())

    def gradients(self, arg: str) -> Iterator[str]:
        """The lines of gradients computed on demand."""
        parts = expressions(arg)
        if self.graph_hit is not None:
            leaves, found = self.gradients_of_pass(*parts)
            yield AGAIN
        else:
            leaves, found = self.by_the_tape(*parts)
        names = lostgrads.names_of(leaves, self.curframe)
        for name, leaf, gradient in zip(names, leaves, found, strict=True):
            if gradient is not None:
                yield shown(gradient, name)
            else:
                yield f"{name}  {self.reason_at_prompt(parts[0], leaf, name)}"

    def by_the_tape(self, target: str, sources: str | None = None) -> tuple[list[Any], list[Any]]:
        """(sources, gradients) by the program's own tape, in eager code."""
        wanted = self.value_of(sources) if sources is not None else None
        targets = lostgrads.flat([self.value_of(target)])
        tape, _ = self.lasting_tape()
        leaves = list(sites.flat(list(tape.watched_variables()) if sources is None else [wanted]))
        if not all(lostgrads.is_tensor(each) for each in (*targets, *leaves)):
            raise TfdbError("a gradient is of tensors, for tensors or variables")
        return leaves, internals_gradients.gradient(internals_gradients.handle_of(tape), targets, leaves)


def expressions(text: str) -> list[str]:
    """A loss and, after a comma, what it is differentiated for.

    Raises:
        TfdbError: the text is something else.
    """
    parts = listed(text)
    if not 1 <= len(parts) <= 2:
        raise TfdbError("give a loss and, after a comma, what it is differentiated for")
    return parts


def tape_lines(found: list[Any]) -> list[str]:
    """What `tape` shows: two lines for each tape."""
    if not found:
        return ["no GradientTape is open here"]
    lines = []
    for tape in found:
        recording = tapes.log.recording_of(tape)
        used = internals_gradients.handle_of(tape) is None
        state = "used up" if used else "recording" if internals_gradients.is_recording(tape) else "not recording"
        opened = f"opened {nonegrads.place(recording.opened)}" if recording is not None else ""
        elsewhere = recording is not None and recording.thread not in ("", threading.current_thread().name)
        opened += f" in thread {recording.thread}" if recording is not None and elsewhere else ""
        kind = "persistent" if internals_gradients.is_persistent(tape) else "for one gradient"
        lines.append(" · ".join(part for part in ("GradientTape", kind, state, opened) if part))
        lines.append("  watches " + watched_text(tape, recording))
    return lines


def watched_text(tape: Any, recording: taperecords.Recording | None) -> str:
    """The names of what a tape watches."""
    names = [varnames.name_of(variable) for variable in tape.watched_variables()]
    more = [f"and {len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    told = len(recording.watched) if recording is not None else 0
    more += [f"{told} tensor{'s' * (told > 1)} by tape.watch()"] if told else []
    if not internals_gradients.watches_variables(tape):
        more.append("no variables by itself")
    return ", ".join([*names[:MOST_NAMES], *more]) or "nothing yet"
