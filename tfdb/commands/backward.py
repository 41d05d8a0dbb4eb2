"""`backward` and gradients of a stop in a graph: what is asked at the prompt -> the pass run again under a tape."""

from __future__ import annotations

import ast
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tfdb import (
    asked,
    executions,
    internals,
    internals_gradients,
    lostgrads,
    nonegrads,
    passgrads,
    render,
    sites,
    taperecords,
    tapes,
    tensors,
)
from tfdb.commands.base import PromptBase
from tfdb.errors import TfdbError

AGAIN = "this pass, run again from the call's arguments"


class BackwardCommands(PromptBase):
    """Gradients of intermediate tensors, in eager code and in graphs."""

    pass_of: tuple[Any, passgrads.Pass | TfdbError] | None = None

    def do_backward(self, arg: str) -> None:
        """backward EXPRESSION

        Show the gradient that comes to a tensor of the forward pass.  In eager code it is printed at the moment the
        program asks the innermost tape for gradients.  In a graph it is shown at once: the pass is run again op by op
        from the call's arguments and the variables at its beginning, under a tape of tfdb's own, up to the loss that
        the program differentiates.  There `backward(NAME)` is also a function in expressions, for `display` above all.

        Example:

            (tfdb) backward hidden
            (tfdb) display tf.norm(backward(hidden))
        """
        try:
            found = self.named_tensors(arg)
            if self.graph_hit is not None:
                self.show_of_pass(found)
                return
            for name, tensor in found:
                self.ask_at_gradient(name, tensor)
        except TfdbError as error:
            self.error(str(error))

    def named_tensors(self, arg: str) -> list[tuple[str, Any]]:
        """The tensors that a list of expressions names."""
        found = [(name, self.value_of(name)) for name in listed(arg)]
        if not found or not all(hasattr(value, "_id") and lostgrads.is_tensor(value) for _, value in found):
            raise TfdbError("backward takes tensors, for example `backward hidden`")
        return found

    def say_gradient(self, name: str, gradient: Any, question: Callable[[], lostgrads.Question]) -> None:
        """Print a gradient that was asked for, or why there is none."""
        line = none_text(question) if gradient is None else shown(gradient, "")
        self.message(f"gradient of {name}  {line}")

    def ask_at_gradient(self, name: str, tensor: Any) -> None:
        """Print a tensor's gradient when the program asks the innermost tape for gradients."""
        tape, recording = self.lasting_tape()
        of_tape = weakref.ref(tape)

        def say(gradient: Any, targets: Sequence[Any], frame: Any) -> None:
            self.say_gradient(
                name, gradient, lambda: lostgrads.Question(targets, [tensor], [name], [0], of_tape(), recording, frame)
            )

        recording.asked.append((tensor, say))

    def reason_at_prompt(self, target: str, source: Any, name: str) -> str:
        """What is shown for a gradient that an expression at this prompt does not have."""

        def question() -> lostgrads.Question:
            targets = [self.symbol_of(each) for each in lostgrads.flat([self.value_of(target)])]
            graph = self.graph_hit is not None
            tape = None if graph else next(iter(self.tapes_here()), None)
            of = source if hasattr(source, "handle") else self.symbol_of(source)
            return lostgrads.Question(targets, [of], [name], [0], tape, tapes.log.recording_of(tape), None)

        return none_text(question)

    def symbol_of(self, target: Any) -> Any:
        """The graph's own tensor of a value that a stop inside a graph carried; what is symbolic itself as it is.

        Raises:
            TfdbError: it is no tensor of the stop's graph; eager tapes know nothing of it either.
        """
        hit = self.graph_hit
        hook = self.session.planter.hook_of(hit)
        if hit is None or internals.is_symbolic(target):
            return target
        carried = hit.carried(hook) if hook is not None else ()
        symbol = next((tensor for tensor, value in carried if value is target), None)
        if symbol is None:
            raise TfdbError("the loss is no tensor of this stop's graph: stop in the function that computes it")
        return symbol

    def lasting_tape(self) -> tuple[Any, taperecords.Recording]:
        """The innermost tape, if gradients can be had of it without using it up."""
        tape = next(iter(self.tapes_here()), None)
        recording = tapes.log.recording_of(tape) if tape is not None else None
        if tape is None or internals_gradients.handle_of(tape) is None:
            raise TfdbError("no tape is open here, or it is used up")
        if recording is None:
            raise TfdbError("this tape opened before tfdb's first prompt: a gradient now would use it up")
        return tape, recording

    # -- graphs ---------------------------------------------------------------------------------------------------

    def pass_here(self) -> passgrads.Pass:
        """The pass that this stop in a graph is in.

        Raises:
            TfdbError: it cannot be run again; the text says why.
        """
        stop = self.graph_stop
        if self.pass_of is None or self.pass_of[0] is not stop:
            try:
                made: passgrads.Pass | TfdbError = self.pass_again()
            except TfdbError as error:
                made = error
            self.pass_of = (stop, made)
        found = self.pass_of[1]
        if isinstance(found, TfdbError):
            raise found
        return found

    def pass_again(self) -> passgrads.Pass:
        """Run the pass of this stop again."""
        hit = self.graph_hit
        hook = self.session.planter.hook_of(hit)
        if hook is None or hit is None:
            raise TfdbError("this stop is in no graph that could be run again")
        calls = list(reversed(list(self.session.door.active)))
        return passgrads.Pass(hook, hit.carried(hook), executions.reaching(calls, hook))

    def show_of_pass(self, found: Sequence[tuple[str, Any]]) -> None:
        """Print the gradients of each loss for tensors of this stop."""
        here = self.pass_here()
        losses = self.losses_here(here)
        again = [self.tensor_of_pass(here, name, value) for name, value in found]
        for loss in losses:
            gradients = here.gradients(loss.values, again)
            if all(each is None for each in gradients) and len(losses) > 1:
                continue
            self.message(f"of the loss of {nonegrads.place(loss.line)} · {AGAIN}")
            for (name, value), gradient in zip(found, gradients, strict=True):
                self.say_gradient(name, gradient, functools.partial(self.question_of_pass, loss, name, value))

    def question_of_pass(self, loss: passgrads.Loss, name: str, value: Any) -> lostgrads.Question:
        """Why a tensor of this stop has no gradient of one of the losses."""
        written = [self.symbol_of(each) for each, _ in asked.losses(self.activations_here())] if not loss.made else []
        return lostgrads.Question(loss.made or written, [self.symbol_of(value)], [name], [0])

    def losses_here(self, here: passgrads.Pass) -> list[passgrads.Loss]:
        """The losses that the program differentiates in the graph of this stop."""
        return here.losses(asked.losses(self.activations_here()))

    def tensor_of_pass(self, here: passgrads.Pass, name: str, value: Any) -> Any:
        """A tensor of this stop as the re-run has it."""
        again = here.again(value)
        if again is None:
            raise TfdbError(
                f"{name} is no tensor of this pass: give the name of a local of the graph's innermost frame"
            )
        return again

    def backward_of(self, value: Any) -> Any:
        """`backward(tensor)` in expressions: the gradient of the one loss that depends on the tensor, or None.

        Raises:
            TfdbError: several losses do, or the pass cannot be run again.
        """
        here = self.pass_here()
        again = self.tensor_of_pass(here, "this", value)
        found = [g for loss in self.losses_here(here) if (g := here.gradients(loss.values, [again])[0]) is not None]
        if len(found) > 1:
            raise TfdbError("several losses depend on this tensor: the command `backward` shows each")
        return found[0] if found else None

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, in which `backward` is a function at a stop in a graph."""
        taken = "backward" in self.curframe_locals or "backward" in self.curframe.f_globals
        if self.graph_hit is None or taken or "backward(" not in expression:
            return super().evaluate(expression)
        names = {**self.curframe.f_globals, **self.curframe_locals, "backward": self.backward_of}
        return eval(expression, names, self.curframe_locals)

    def _getval_except(self, arg: str, frame: Any = None) -> Any:
        if frame is not None or "backward(" not in arg:
            return super()._getval_except(arg, frame)
        try:
            return self.evaluate(arg)
        except Exception as error:
            return Text(f"** {type(error).__name__}: {error} **")

    def gradients_of_pass(self, target: str, sources: str | None = None) -> tuple[list[Any], list[Any]]:
        """(sources, gradients) of an expression over this stop's names, for tensors of the pass and variables.

        Without `sources`, they are the trainable variables that the graph reads.
        """
        here = self.pass_here()
        leaves = list(here.variables()) if sources is None else list(sites.flat([self.value_of(sources)]))
        if not all(lostgrads.is_tensor(each) for each in leaves):
            raise TfdbError("a gradient is of tensors, for tensors or variables")
        for leaf in leaves:
            if not hasattr(leaf, "handle"):
                self.tensor_of_pass(here, sources or "", leaf)
        return leaves, here.of_expression(lambda: self.value_of(target), leaves)


def listed(text: str) -> list[str]:
    """The expressions of a list with commas.

    Raises:
        TfdbError: the text is something else.
    """
    try:
        tree = ast.parse(f"({text},)", mode="eval").body
    except SyntaxError as error:
        raise TfdbError(f"cannot read {text!r}") from error
    return [ast.unparse(part) for part in getattr(tree, "elts", ())]


class Text(str):
    """A text that `display` shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def none_text(question: Callable[[], lostgrads.Question]) -> str:
    """What is shown for a gradient that is None: that, and why, as far as it is known."""
    try:
        asked_for = question()
    except TfdbError:  # an expression of the prompt's, of which the graph knows nothing
        return "None"
    symbolic = any(internals.is_symbolic(target) for target in asked_for.targets)
    if not symbolic and (not tapes.log.logging or lostgrads.is_unseen(asked_for)):
        return "None (`watch none` before the tape opens tells why)"
    answer = lostgrads.answers(asked_for, tapes.log)
    if answer is None:
        return "None"
    report = nonegrads.report(asked_for, answer)
    return f"None: {report.cause}" + (f" · {nonegrads.place(report.line)}" if report.line is not None else "")


def shown(gradient: Any, name: str) -> str:
    """One line about a gradient."""
    return render.tensor_line(tensors.describe_leaf(gradient), render.terminal_width(), name=name)
