"""Commands on whole functions: their graphs as text and files, and why they were traced."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from tfdb import (
    graphdot,
    graphrecords,
    graphs,
    graphtext,
    internals_events,
    internals_graphs,
    render,
    retracetext,
    steptraces,
    traces,
    tracingonly,
)
from tfdb.commands import options
from tfdb.commands.base import PromptBase
from tfdb.errors import TfdbError
from tfdb.report import UserLine

FILES = ("--dot", "--svg", "--pbtxt", "--tb")


class GraphCommands(PromptBase):
    """`graph` and `retraces`."""

    def do_graph(self, arg: str) -> None:
        """graph [FUNCTION | FUNCTION(ARGUMENTS)] [-a] [--dot FILE | --svg FILE | --pbtxt FILE | --tb LOGDIR]

        The graph of a tf.function as text: its signature, variables and captures, then its ops under the lines of
        yours that made them; forward, gradient and update parts apart. Branches, loops, nested functions and long
        lines are folded: -a shows all. FUNCTION is any expression: a tf.function, a trace of one, a Keras model, a
        SavedModel or a signature of it; without it, the graph of this stop. A function with several traces lists them
        and shows the last; `FUNCTION, N` chooses trace N. One that was never traced needs arguments, values or
        tf.TensorSpecs: it is traced for them, and not run. The options write a file instead: Graphviz DOT or SVG, the
        GraphDef as text, or an event file for TensorBoard.

        Example:
            (tfdb) graph train_step
            (tfdb) graph score(tf.TensorSpec([None, 3])) --svg score.svg
        """
        try:
            expression, chosen = options.parse(arg, ("-a",), FILES)
            found, number = self.sources_of(expression)
            source = found[number]
            files = {option: path for option, path in chosen.items() if option in FILES}
            for option, path in files.items():
                self.message(write(option, path, source))
            if not files:
                self.show_graph(found, number, "-a" in chosen)
        except TfdbError as error:
            self.error(str(error))

    def show_graph(self, found: list[graphs.Source], number: int, everything: bool) -> None:
        """The text of one of the graphs, after a list of all."""
        width = render.terminal_width()
        if len(found) > 1:
            heads = [graphs.read_head(each) for each in found]
            self.message(graphtext.signatures_text(heads, width))
        text = graphtext.graph_text(graphs.read(found[number]), width, everything, self.here())
        self.page(text)

    def sources_of(self, expression: str) -> tuple[list[graphs.Source], int]:
        """The graphs that an expression names, and which of them to show.

        Raises:
            TfdbError: it names none, or fails.
        """
        if not expression:
            execution = self.execution()
            return [graphs.Source(level.title, level.evaluation.graph) for level in execution.levels], len(
                execution.levels
            ) - 1
        tree = options.parsed(expression)
        if isinstance(tree, ast.Call) and (source := self.traced_for_call(tree)) is not None:
            return [source], 0
        number = 0
        if isinstance(tree, ast.Tuple) and len(tree.elts) == 2 and isinstance(tree.elts[1], ast.Constant):
            expression, number = ast.unparse(tree.elts[0]), int(str(tree.elts[1].value))
        value = self.value_of(expression)
        found = graphs.sources(value, self.twins_of)
        if not 0 <= number <= len(found):
            raise TfdbError(f"there are {len(found)} traces: choose 1 to {len(found)}")
        loaded = hasattr(value, "signatures") or (found[0].function and internals_graphs.is_restored(found[0].function))
        return found, (number or (1 if loaded else len(found))) - 1

    def traced_for_call(self, tree: ast.Call) -> graphs.Source | None:
        """The graph of `FUNCTION(ARGUMENTS)`, or None when that is an ordinary call."""
        function = self.value_of(ast.unparse(tree.func))
        if not internals_graphs.is_function(function) and "TensorSpec" not in arguments_text(tree):
            return None
        given = self.value_of(f"(lambda *args, **kwargs: (args, kwargs))({arguments_text(tree)})")
        try:
            return graphs.traced_for(function, *given)
        except TfdbError:
            raise
        except Exception as error:
            raise TfdbError(f"it cannot be traced for these arguments: {first_line(error)}") from error

    def value_of(self, expression: str) -> Any:
        """The value of an expression at this stop.

        Raises:
            TfdbError: it has none; the message is the error's.
        """
        try:
            return self.evaluate(expression)
        except Exception as error:
            raise TfdbError(f"{type(error).__name__}: {first_line(error)}") from error

    def do_retraces(self, arg: str) -> None:
        """retraces [FUNCTION]

        Why a tf.function was traced as often as it was: for each trace the argument that no earlier one could take,
        from what to what, and your line that called; then what to do about it, and the lines of the function that run
        only while it is traced. Without a function, all that were traced in this session, the most often traced first.

        Example:
            (tfdb) retraces train_step
        """
        try:
            width = render.terminal_width()
            text = self.retraces_of(arg.strip(), width) if arg.strip() else self.all_retraces(width)
            self.message(text)
        except TfdbError as error:
            self.error(str(error))

    def retraces_of(self, expression: str, width: int) -> str:
        """The traces of one function, by expression or, of functions out of sight, by name."""
        recorder = self.session.traces
        named = recorder.named(expression)
        try:
            value = self.value_of(expression)
        except TfdbError:
            if not named:
                raise
            return noted_text(expression, named, [], width)
        found = steptraces.behind(value, recorder)
        texts = [text for function in found.functions if (text := self.traces_text(function, found.python, width))]
        texts += [noted_text(name, events, found.python, width) for name, _, events in found.groups]
        if not texts:
            codes = steptraces.of_code(value, recorder)
            texts = [noted_text(name, events, [], width) for name, _, events in codes]
        if not texts and found.functions:
            raise TfdbError(graphs.never_traced(found.functions[0]))
        if not texts:
            raise TfdbError(f"{expression} is no tf.function, and none that was traced calls it")
        return "\n".join([*([graphtext.wrapped(found.note, width, 2)] if found.note else []), *texts])

    def traces_text(self, function: Any, python: list[Any], width: int) -> str:
        """The traces of one tf.function with the lines of `python` that run only while it is traced; "" of none."""
        twins = self.twins_of(function)
        running = traces.running_calls([function, *twins], [call.name for call in list(self.session.door.active)])
        made = traces.history(function, twins, self.session.traces, running)
        if not made:
            return ""
        flags = internals_graphs.reduces_retracing(function), internals_graphs.input_signature(function) is not None
        advice = traces.advice(made, *flags) if len(made) > 1 else []
        if graphs.title_of(function).startswith(traces.KERAS_STEPS):
            advice = [steptraces.MAKES_VARIABLES if text == traces.MAKES_VARIABLES else text for text in advice]
        only = tracing_only(python or [internals_graphs.python_function(function)])
        return retracetext.retraces_text(graphs.title_of(function), made, traces.explain(made), advice, only, width)

    def all_retraces(self, width: int) -> str:
        """A line for each function that was traced."""
        return retracetext.overview([steptraces.row(*group) for group in self.session.traces.groups()], width)

    def twins_of(self, function: Any) -> list[Any]:
        """The instrumented clones of a user's function."""
        twins = self.session.twins.twins.get(function, {})
        return [twin.function for twin in twins.values()]

    def here(self) -> UserLine:
        """The current line."""
        frame, line = self.stack[self.curindex]
        return UserLine(frame.f_code.co_filename, line, frame.f_code.co_name)


def noted_text(name: str, events: list[traces.Event], python: list[Any], width: int) -> str:
    """The traces of a function that is known by what was noted of them."""
    made = traces.distinct(events)
    advice = traces.advice(made, False, False) if len(made) > 1 else []
    return retracetext.retraces_text(name, made, traces.explain(made), advice, tracing_only(python), width)


def tracing_only(functions: list[Any]) -> list[tuple[str, list[graphrecords.TracingOnly]]]:
    """The lines of Python functions that run only while they are traced, by file."""
    return [(tracingonly.file_of(each), tracingonly.tracing_only(each)) for each in functions]


def arguments_text(tree: ast.Call) -> str:
    """The arguments of a call as they were typed."""
    parts = [ast.unparse(each) for each in tree.args]
    for each in tree.keywords:
        parts.append(f"{each.arg}={ast.unparse(each.value)}" if each.arg else f"**{ast.unparse(each.value)}")
    return ", ".join(parts)


def first_line(error: Exception) -> str:
    """The first line of an error's message, without TensorFlow's names of nodes and ops around it."""
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:  # its own __str__ may raise
        text = ""
    lines = re.sub(r"\{\{[^}]*\}\}\s*|\s*\[Op:[^\]]*\].*", "", text).strip().splitlines()
    return (lines or [type(error).__name__])[0]


def write(option: str, path: str, source: graphs.Source) -> str:
    """Write a graph to a file or a TensorBoard log; returns what was written.

    Raises:
        TfdbError: the file cannot be written, or the tool it needs is not installed.
    """
    try:
        if option == "--tb":
            internals_events.write_summary(path, source.graph, graphs.is_hook_name)
            return f"event file in {path}: tensorboard --logdir {path}"
        if option == "--pbtxt":
            Path(path).write_text(str(internals_events.definition(source.graph, graphs.is_hook_name)), "utf-8")
        else:
            text = graphdot.dot(graphs.read(source))
            Path(path).write_bytes(text.encode() if option == "--dot" else graphdot.svg(text))
    except OSError as error:
        raise TfdbError(f"cannot write {path}: {error.strerror or error}") from error
    return f"{path}: {Path(path).stat().st_size} bytes"
