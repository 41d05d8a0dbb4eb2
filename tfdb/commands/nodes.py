"""Commands on single ops and tensors of an execution: tfdbg's `lt`, `ni`, `li`, `lo` and `ps`."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from typing import Any

from tfdb import (
    evaluation,
    executions,
    graphrecords,
    graphtext,
    internals_graphs,
    listing,
    progress,
    render,
    tensors,
    trippedsteps,
)
from tfdb.commands import options
from tfdb.commands.base import PromptBase
from tfdb.commands.errors import failing_lines
from tfdb.errors import TfdbError

TREE_DEPTH = 4
COMPUTING = "computing the values of this execution up to here"


class NodeCommands(PromptBase):
    """`lt`, `ni`, `li`, `lo`, `ps`."""

    execution_of: tuple[Any, executions.Execution] | None = None

    def execution(self) -> executions.Execution:
        """The execution that this stop is in; in eager code that of the last graph call.

        Raises:
            TfdbError: no graph has run.
        """
        session, stop = self.session, self.graph_stop
        hook = session.planter.hook_of(self.graph_hit)
        inside = stop is not None and (hook is not None or stop.trip is not None or stop.tracing)
        last = session.door.last
        key = stop if inside else last
        if self.execution_of is None or self.execution_of[0] is not key:
            failed = self.wreck.reported.node if self.wreck is not None and not self.wreck.failure.traced else ""
            self.execution_of = (key, self.execution_at(stop, hook) if inside else executions.of_call(last, failed))
        return self.execution_of[1]

    def execution_at(self, stop: Any, hook: Any) -> executions.Execution:
        """The execution around a stop in a graph, or at the gate of a step."""
        door = self.session.door
        calls = list(reversed(list(door.active)))
        if stop.tracing:
            return trippedsteps.being_traced([value for frame in stop.live[::-1] for value in frame.locals.values()])
        if stop.trip is not None:
            with progress.told(COMPUTING, self.stdout):
                return trippedsteps.of_trip(stop.trip, [*calls, *([door.last] if door.last is not None else [])])
        return executions.of_stop(hook, stop.hit.carried(hook), executions.reaching(calls, hook))

    def graphs_in_sight(self) -> list[Any]:
        """The graphs of this stop, innermost first, without computing anything; none where no graph has run."""
        stop, last = self.graph_stop, self.session.door.last
        hook = self.session.planter.hook_of(self.graph_hit)
        if hook is not None:
            return list(trippedsteps.around(hook.graph))
        if stop is not None and stop.trip is not None and stop.trip.place.spot is not None:
            return list(trippedsteps.around(stop.trip.place.spot[0]))
        graph = internals_graphs.atomic_graph(last.function) if last is not None else None
        return [graph] if graph is not None else []

    def do_lt(self, arg: str) -> None:
        """lt [-f nan|inf|EXPR] [-n REGEX] [-t OPTYPE] [-s time|name|op|line|size|bad] [-a]

        The tensors of this execution up to here, in the order they were made, each with its op type, the line that made
        it and a summary. In eager code, those of the last graph call. What the stop did not carry is computed again
        from the call's arguments, op by op, without touching the program: no variable, iterator or random state.
        -f keeps those with a NaN (nan), an infinity (inf), either (nan|inf), or for which an expression of `t`, the
        array, is true; -n and -t choose by name and op type; -a shows constants and copies too, and more than the first
        hundred. After an error the op that failed and its inputs come first, and tensors without a value are shown with
        -a only.

        Example:
            (tfdb) lt -f nan
            (tfdb) lt -n dense -f 't.max()>10'
        """
        try:
            rest, chosen = options.parse(arg, ("-a",), ("-f", "-n", "-t", "-s"))
            order = {"-s": "bad"} if self.graph_stop is not None and self.graph_stop.trip is not None else {}
            wish = listing.wanted({**order, **chosen, **({"-n": rest} if rest else {})})
            execution = self.execution()
            names = {**self.curframe.f_globals, **self.curframe_locals}
            with progress.told(COMPUTING, self.stdout), executions.uncollected():
                found = listing.rows(execution, wish, names)
            width = render.terminal_width()
            totals = listing.totals(execution, found, self.is_xla_off())
            known = [row for row in found if row[2] is not None]
            if self.wreck is not None and not wish.everything and len(known) < len(found):
                found, totals = known, f"{totals}: -a shows those too, and why"
            if self.wreck is not None and not chosen and not rest:
                for line in failing_lines(self.wreck, width):
                    self.message(line)
            self.message(graphtext.wrapped(totals, width, 4))
            self.page(listing.table(found, wish, width, self.in_colour()) + self.kept_from_now_on(found))
        except TfdbError as error:
            self.error(str(error))

    def kept_from_now_on(self, found: list[Any]) -> str:
        """After a call that kept nothing of what it wrote: its next call will; a line that says so, or nothing."""
        last = self.session.door.last
        if (
            self.graph_stop is not None
            or last is None
            or not any(evaluation.NOT_KEPT in row[1].reason for row in found)
        ):
            return ""
        self.session.door.asked.add(last.function.name.decode())
        return "\n  the next call of this function keeps it"

    def do_ni(self, arg: str) -> None:
        """ni NODE [-a] [-t]

        Node info: an op of this execution by its name or the end of it, with its type, device, inputs, recipients, and
        the values of its outputs. -a adds its attributes, -t your frames that made it.

        Example:
            (tfdb) ni MatMul
            (tfdb) ni sequential/dense/Relu -a -t
        """
        try:
            name, chosen = options.parse(arg, ("-a", "-t"))
            found = self.node_named(name, "ni")
            record = found.level.record
            inputs = [node for each in found.node.inputs if (node := record.node(each.rpartition(":")[0])) is not None]
            op = found.level.evaluation.graph.get_operation_by_name(found.node.name)
            attributes = internals_graphs.attributes(op) if "-a" in chosen else []
            width = render.terminal_width()
            self.message(graphtext.node_text(found.node, recipients(found), inputs, attributes, width))
            for index in range(len(found.node.outputs)):
                text = self.value_text(found, index, width - 14)
                self.message(f"  {'values' if index == 0 else '':<10}  {text}")
            if "-t" in chosen:
                self.message(graphtext.stack_text(found.node, width))
        except TfdbError as error:
            self.error(str(error))

    def node_named(self, name: str, command: str) -> executions.Found:
        """The node of this name.

        Raises:
            TfdbError: there is none, or no graph has run.
        """
        if not name:
            raise TfdbError(f"{command} takes a node's name: `lt` lists them")
        return self.execution().find(name)

    def value_text(self, found: executions.Found, index: int, width: int) -> str:
        """The summary of one output, or why there is none."""
        try:
            return render.tensor_line(tensors.describe_leaf(found.value(index)), width, self.in_colour())
        except evaluation.Unavailable as reason:
            return render.shorten(f"not available: {reason}", width)

    def do_li(self, arg: str) -> None:
        """li NODE [-d DEPTH] [-t OPTYPE] [-c]

        List inputs: the tree of ops that this one's value comes from, each once. -d is how deep (4), -t shows only ops
        whose type matches, going through the others; -c follows control inputs too.

        Example:
            (tfdb) li loss/Mean -d 6
            (tfdb) li loss -t 'MatMul|Conv2D'
        """

        def sources(node: graphrecords.Node, found: executions.Found) -> list[str]:
            return [each.rpartition(":")[0] for each in node.inputs]

        self.show_tree(arg, "li", sources, lambda node: list(node.controls))

    def do_lo(self, arg: str) -> None:
        """lo NODE [-d DEPTH] [-t OPTYPE] [-c]

        List outputs: the tree of ops that take this one's value, and those that take theirs. Options as of `li`.

        Example:
            (tfdb) lo dense/MatMul -d 2
        """
        known: list[dict[str, list[str]]] = []

        def takers(node: graphrecords.Node, found: executions.Found) -> list[str]:
            if not known:
                known.append(consumers(found))
            return known[0].get(node.name, [])

        self.show_tree(arg, "lo", takers, None)

    def show_tree(self, arg: str, command: str, step: Any, controls: Any) -> None:
        """A tree below a node; `step` gives the names next to a node."""
        try:
            name, chosen = options.parse(arg, ("-c",), ("-d", "-t"))
            found = self.node_named(name, command)
            depth, pattern = whole(chosen.get("-d", TREE_DEPTH)), chosen.get("-t", "")
            by_name = {node.name: node for node in found.level.record.nodes}

            def near(at: str) -> list[str]:
                names = step(by_name[at], found) if at in by_name else []
                if "-c" in chosen and at in by_name:
                    waiting = (each.name for each in by_name.values() if at in each.controls)
                    names = [*names, *(controls(by_name[at]) if controls else waiting)]
                return list(dict.fromkeys(names))

            def shown(at: str) -> str:
                return label(by_name.get(at), at)

            step_to = filtered(near, by_name, pattern)
            text = graphtext.tree(found.node.name, step_to, shown, depth, render.terminal_width())
            self.page(text)
        except (TfdbError, re.error) as error:
            self.error(str(error))

    def do_ps(self, arg: str) -> None:
        """ps [FILE[:LINE] | LINE]

        Print source: your lines of this graph, each followed by the ops that it made and the types and shapes of their
        outputs. Without an argument the current function; LINE shows all that this line made; FILE, all its lines that
        made ops.

        Example:
            (tfdb) ps
            (tfdb) ps losses.py:24
        """
        try:
            here = self.here()
            file, line = place(arg.strip(), here.file)
            made: dict[str, dict[int, list[graphrecords.Node]]] = defaultdict(lambda: defaultdict(list))
            for level in self.execution().all_levels():
                for node in level.record.nodes:
                    if node.line is not None and not graphtext.is_plumbing(node):
                        made[node.line.file][node.line.line].append(node)
            file = next((each for each in made if each == file or os.path.basename(each) == file), "")
            if not file:
                raise TfdbError(f"no op of this graph was made in {arg.strip() or os.path.basename(here.file)}")
            lines = wanted_lines(line, made[file], self.curframe.f_code if not arg.strip() else None)
            current = here.line if file == here.file else None
            self.page(graphtext.annotated(file, lines, made[file], render.terminal_width(), current))
        except TfdbError as error:
            self.error(str(error))

    def is_xla_off(self) -> bool:
        """Whether this stop is in a function that XLA would compile without the debugger."""
        return self.graph_hit is not None and self.graph_hit.point.xla


def recipients(found: executions.Found) -> list[graphrecords.Node]:
    """The nodes that take an output of a node, or wait for it."""
    own = found.node.name
    return [
        node for node in found.level.record.nodes
        if any(each.rpartition(":")[0] == own for each in node.inputs) or own in node.controls
    ]  # fmt: skip


def consumers(found: executions.Found) -> dict[str, list[str]]:
    """The names of the nodes that take each node's outputs."""
    taken: dict[str, list[str]] = defaultdict(list)
    for node in found.level.record.nodes:
        for each in node.inputs:
            taken[each.rpartition(":")[0]].append(node.name)
    return {name: list(dict.fromkeys(names)) for name, names in taken.items()}


def filtered(near: Any, by_name: dict[str, graphrecords.Node], pattern: str) -> Any:
    """`near`, going through nodes whose op type does not match."""
    if not pattern:
        return near
    compiled = re.compile(pattern)

    def step(at: str) -> list[str]:
        matching: list[str] = []
        waiting, seen = list(near(at)), {at}
        while waiting:
            each = waiting.pop(0)
            if each in seen:
                continue
            seen.add(each)
            if each in by_name and compiled.fullmatch(by_name[each].op):
                matching.append(each)
            else:
                waiting += near(each)
        return matching

    return step


def label(node: graphrecords.Node | None, name: str) -> str:
    """A node in a tree: its name, op and type."""
    if node is None:
        return name
    own = f" = {node.literal}" if node.literal and node.literal != node.name else ""
    return f"{node.name}  {node.op}  {', '.join(map(str, node.outputs))}{own}"


def whole(text: Any) -> int:
    """A depth.

    Raises:
        TfdbError: it is no number.
    """
    try:
        return max(int(text), 1)
    except ValueError:
        raise TfdbError(f"-d takes a number, not {text}") from None


def place(text: str, file: str) -> tuple[str, int | None]:
    """`FILE:LINE`, `FILE`, `LINE` or nothing -> file and line."""
    if text.isdigit():
        return file, int(text)
    name, colon, line = text.rpartition(":")
    return (name, int(line)) if colon and line.isdigit() else (text or file, None)


def wanted_lines(line: int | None, made: dict[int, list[graphrecords.Node]], code: Any) -> list[int]:
    """The lines to print: around one, of the current function, or all from the first that made ops to the last."""
    if line is not None:
        return [line]
    if code is not None:
        own = [number for number in made if (line_of := made[number][0].line) and line_of.function == code.co_name]
        if own:
            return list(range(min(own), max(own) + 1))
    return list(range(min(made), max(made) + 1))
