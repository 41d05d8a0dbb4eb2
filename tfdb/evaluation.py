"""A graph and what it was called with -> the value of any of its tensors, computed again op by op, effects left out.

Only ops without effects run. Variables are played: reads give what they held when the call began, writes change that
memory and no variable. Branches and loops run as the graph would run them, so tensors inside the branch taken and of a
loop's last pass are at hand.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from . import internals, internals_graphs
from .graphs import is_hook

NOT_KEPT = "what it held before is not kept"
LOOP_SECONDS = 5.0  # for one loop; a longer one is not run again
READS = frozenset(("ReadVariableOp", "ResourceGather", "ResourceGatherNd"))
WRITES = {"AssignVariableOp": None, "AssignAddVariableOp": 1, "AssignSubVariableOp": -1}
GENERATORS = ("Rng", "Stateful")  # ops that draw from a tf.random.Generator, which is a variable
HARMLESS = frozenset(
    "VariableShape VarIsInitializedOp LookupTableFindV2 LookupTableSizeV2 LookupTableExportV2 Assert NoOp".split()
)
EFFECTS = {
    "Iterator": "it would take the iterator's next element",
    "Random": "it draws new numbers at each run",
    "Truncated": "it draws new numbers at each run",
    "Multinomial": "it draws new numbers at each run",
    "PyFunc": "it calls Python",
    "EagerPyFunc": "it calls Python",
    "Assign": "it changes a variable",
    "Resource": "it changes a variable",
}


class Unavailable(Exception):
    """A tensor whose value cannot be had; the text says why."""


class Memory:
    """What variables hold in the course of an execution, by the id of their handle.

    `held` is what they held when the call began. Without it (`whole` false) a variable is read as it is now, which is
    what it was unless the execution wrote it: what it writes is not known then, save for those `unwritten` so far.
    Where the execution is `over`, what it left in a variable is what that holds now, unless it was written since.
    """

    def __init__(self, held: Mapping[int, Any], whole: bool, unwritten: Iterable[int] = ()) -> None:
        self.values: dict[int, Any] = dict(held)
        self.whole = whole
        self.unwritten = frozenset(unwritten)
        self.over = False
        self.as_now = False  # a variable was read after the execution
        self.unknown: dict[int, str] = {}

    def read(self, handle: Any) -> Any:
        """What a variable holds at this point of the execution."""
        key, name = id(handle), internals_graphs.resource_name(handle) or "a variable"
        if key in self.unknown:
            raise Unavailable(f"{name} {self.unknown[key]}")
        if key not in self.values:
            value = internals_graphs.read_variable(handle)
            if value is None:
                raise Unavailable(f"{name} cannot be read")
            self.values[key] = value
            self.as_now = self.over
        return self.values[key]

    def write(self, handle: Any, value: Any) -> None:
        """A variable is given a new value; the real one stays as it is."""
        self.values[id(handle)] = value
        self.unknown.pop(id(handle), None)

    def keeps(self, handle: Any) -> bool:
        """Whether it is known what a variable held when the call began, or that it still holds that."""
        return id(handle) in self.values or id(handle) in self.unwritten

    def settle(self, handle: Any) -> None:
        """A variable was written for the last time by an execution that is over."""
        self.values.pop(id(handle), None)
        self.unknown.pop(id(handle), None)

    def lose(self, handle: Any, why: str) -> None:
        """What a variable holds is not known from here on."""
        self.unknown.setdefault(id(handle), why)


class Evaluation:
    """The tensors of one graph in one execution; `feeds` are known values by tensor name."""

    def __init__(self, graph: Any, feeds: Mapping[str, Any], memory: Memory) -> None:
        self.graph = graph
        self.values: dict[str, Any] = dict(feeds)
        self.memory = memory
        self.reasons: dict[str, str] = {}
        self.inner: dict[str, Evaluation] = {}
        self.operations = graph.get_operations()
        self.order = {op.name: n for n, op in enumerate(self.operations)}
        self.done = 0
        self.last_writes: dict[str, list[Any]] = {}  # where known, the handles by the op that is the last to write them
        if not memory.whole:
            for tensor in (tensor for op in self.operations for tensor in written(op)):
                if tensor.name in self.values and not memory.keeps(handle := self.values[tensor.name]):
                    memory.lose(handle, f"is written by this call, and {NOT_KEPT}")

    def fetch(self, tensor: Any) -> Any:
        """The value of a tensor of this graph.

        Raises:
            Unavailable: it depends on an effect, or on something that was not recorded.
        """
        if tensor.name not in self.values:
            self.run_to(self.order[tensor.op.name] + 1)
        return self.known(tensor)

    def run_to(self, end: int) -> None:
        """Compute all that the first `end` ops give, in the order they were made: one in which they can run."""
        ops = self.operations[self.done : end]
        self.done = max(self.done, end)
        with self.apart():
            self.run(ops)

    def apart(self) -> AbstractContextManager[None]:
        """Within the block, ops run at once, for nobody but this evaluation."""
        return internals_graphs.unrecorded()

    def run_op(self, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run one op without effects."""
        return internals_graphs.run_op(op, inputs)

    def another(self, graph: Any, feeds: Mapping[str, Any]) -> Evaluation:
        """The evaluation of a graph that an op of this one runs."""
        return Evaluation(graph, feeds, self.memory)

    def known(self, tensor: Any) -> Any:
        """As `fetch`, of what was computed already."""
        if tensor.name in self.values:
            return self.values[tensor.name]
        raise Unavailable(self.reasons.get(tensor.op.name, "not computed"))

    def must_run(self, op: Any) -> bool:
        """Whether an op whose outputs are known is run all the same, for its effects and what it calls."""
        return op.type in internals.CALLING_OPS and op.name not in self.inner and op.name not in self.reasons

    def is_done(self, op: Any) -> bool:
        """Whether all that the op gives is known, or known not to be had."""
        return op.name in self.reasons or (bool(op.outputs) and all(each.name in self.values for each in op.outputs))

    def run(self, ops: Iterable[Any]) -> None:
        """Compute what these ops give."""
        for op in ops:
            if (not self.is_done(op) or self.must_run(op)) and not is_hook(op):
                try:
                    for tensor, value in zip(op.outputs, self.compute(op), strict=False):
                        self.values.setdefault(tensor.name, value)
                except Unavailable as reason:
                    self.lose(op, str(reason))
                except Exception as error:
                    self.lose(op, f"{type(error).__name__}: {first_line(error)}")
                for handle in self.last_writes.get(op.name, ()):
                    self.memory.settle(handle)

    def lose(self, op: Any, why: str) -> None:
        """An op could not be run: what it gives and what it writes is not known."""
        self.reasons[op.name] = why
        for tensor in written(op):
            if tensor.name in self.values:
                text = f"was changed by {op.name} ({op.type}), which is not run again"
                self.memory.lose(self.values[tensor.name], text)

    def compute(self, op: Any) -> Sequence[Any]:
        """What one op gives."""
        if op.type == "Placeholder":
            raise Unavailable(f"the value of {internals_graphs.argument_name(op)} was not recorded")
        if op.type == "Const":
            return [internals_graphs.constant_tensor(op)]
        if op.type in internals.CALL_OPS:
            return self.call(op)
        if op.type in internals.BRANCH_OPS:
            return self.branch(op)
        if op.type in internals.LOOP_OPS:
            return self.loop(op)
        if op.type.startswith("Iterator"):
            return self.kept(op)
        inputs = [self.input(tensor) for tensor in op.inputs]
        if op.type in READS:
            return internals_graphs.read_from(op, self.memory.read(inputs[0]), inputs[1:])
        if op.type in WRITES:
            sign = WRITES[op.type]
            self.memory.write(inputs[0], inputs[1] if sign is None else self.memory.read(inputs[0]) + sign * inputs[1])
            return []
        if (op.type.startswith("Resource") and not op.outputs) or draws_from_variable(op):
            return self.update(op, inputs)
        if internals_graphs.is_stateful(op) and op.type not in HARMLESS:
            raise Unavailable(f"{op.name} ({op.type}) is not run again: {effect(op.type)}")
        return self.run_op(op, inputs)

    def kept(self, op: Any) -> Sequence[Any]:
        """The element that an iterator gave: what was kept of it as it passed, in resources of tfdb's own."""
        found: dict[str, Any] = {}
        for each in self.operations:
            if each.type == "AssignVariableOp" and is_hook(each) and each.inputs[1].op is op:
                handle = self.values.get(each.inputs[0].name)
                if handle is not None:
                    found[each.inputs[1].name] = internals_graphs.read_store(handle, each.inputs[1].dtype)
        if len(found) < len(op.outputs):
            raise Unavailable(f"{op.name} ({op.type}) is not run again: {effect(op.type)}")
        return [found[tensor.name] for tensor in op.outputs]

    def update(self, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """A fused update (`ResourceApplyAdam`, `ResourceScatterAdd`) or a generator's draw, on copies of variables."""
        handles = [value for value in inputs if value.dtype.name == "resource"]
        copies = {id(handle): internals_graphs.copy_of(self.memory.read(handle)) for handle in handles}
        given = [copies[id(value)].handle if id(value) in copies else value for value in inputs]
        outputs = internals_graphs.run_op(op, given)
        for handle in handles:
            self.memory.write(handle, internals_graphs.read_variable(copies[id(handle)].handle))
        return outputs

    def input(self, tensor: Any) -> Any:
        """The value of an input of an op; why there is none names the first op that could not be had."""
        self.ahead(tensor.op)
        try:
            return self.known(tensor)
        except Unavailable as reason:
            text = str(reason)
            known = text.startswith("needs ") or " is not run again" in text
            raise Unavailable(text if known else f"needs {tensor.op.name}: {text}") from None

    def ahead(self, op: Any) -> None:
        """Run an op that was made after one that takes it: a gradient gave a loop more inputs than it had."""
        if not self.is_done(op):
            for tensor in op.inputs:
                self.ahead(tensor.op)
            self.run([op])

    def nested(self, op: Any, name: str, inputs: Sequence[Any], offset: int) -> Evaluation:
        """The evaluation of a function that an op calls, fed with what of the inputs can be had."""
        graph = internals_graphs.nested_graph(self.graph, name)
        if graph is None:
            raise Unavailable(f"{op.name} calls {name}, whose graph cannot be had")
        feeds, reasons = {}, {}
        for place, given in zip(graph.inputs, inputs[offset:], strict=False):
            try:
                feeds[place.name] = self.known(given) if self.owns(given) else given
            except Unavailable as reason:
                reasons[place.op.name] = str(reason)
        made = self.another(graph, feeds)
        made.reasons.update(reasons)
        return made

    def owns(self, given: Any) -> bool:
        """Whether this is a tensor of this graph, not a value."""
        return internals.is_symbolic(given) and given.graph is self.graph

    def outputs(self, op: Any, evaluation: Evaluation) -> list[Any]:
        """What a called function gives; outputs that cannot be had keep the reason of the first of them."""
        found = []
        evaluation.run_to(len(evaluation.operations))
        for own, tensor in zip(op.outputs, evaluation.graph.outputs, strict=False):
            try:
                self.values.setdefault(own.name, evaluation.fetch(tensor))
            except Unavailable as reason:
                found.append(str(reason))
        if found:
            raise Unavailable(found[0])
        return [self.values[own.name] for own in op.outputs if own.name in self.values]

    def call(self, op: Any) -> list[Any]:
        """A call of a function."""
        inner = self.nested(op, internals_graphs.called_as(op, "f")[0], list(op.inputs), 0)
        self.inner[op.name] = inner
        return self.outputs(op, inner)

    def branch(self, op: Any) -> list[Any]:
        """A branch: the one that the condition takes."""
        choice = internals_graphs.as_array(self.input(op.inputs[0]))
        if op.type.endswith("Case"):
            names = internals_graphs.called_as(op, "branches")
            index = int(choice) if 0 <= int(choice) < len(names) else len(names) - 1
            name = names[index]
        else:
            taken = bool(choice) if choice.ndim == 0 else choice.size > 0
            name = internals_graphs.called_as(op, "then_branch" if taken else "else_branch")[0]
        self.inner[op.name] = self.nested(op, name, list(op.inputs), 1)
        return self.outputs(op, self.inner[op.name])

    def loop(self, op: Any) -> list[Any]:
        """A loop, to its end; its last pass stays at hand."""
        values = [self.input(tensor) for tensor in op.inputs]
        test, body = (internals_graphs.called_as(op, name)[0] for name in ("cond", "body"))
        end = time.monotonic() + LOOP_SECONDS
        while True:
            condition = self.nested(op, test, values, 0)
            if not bool(internals_graphs.as_array(condition.fetch(condition.graph.outputs[0]))):
                return values
            if time.monotonic() > end:
                raise Unavailable(f"the loop {op.name} is too long to be run again here")
            inner = self.nested(op, body, values, 0)
            inner.run_to(len(inner.operations))
            self.inner[op.name] = inner
            values = [inner.fetch(tensor) for tensor in inner.graph.outputs]


def written(op: Any) -> list[Any]:
    """The program's resources that an op may write, as tensors of its graph."""
    if op.type in READS or op.type in HARMLESS or not internals_graphs.is_stateful(op) or is_hook(op):
        return []
    kept = internals_graphs.read_only_inputs(op)
    return [tensor for n, tensor in enumerate(op.inputs) if tensor.dtype.name == "resource" and n not in kept]


def draws_from_variable(op: Any) -> bool:
    """Whether an op draws from a generator whose state is a variable."""
    return op.type.startswith(GENERATORS) and op.type not in internals.CALLING_OPS and bool(written(op))


def first_line(error: Exception) -> str:
    """An error's message without the names of nodes and functions that TensorFlow wraps around it."""
    text = (str(error).splitlines() or [""])[0]
    return re.sub(r"\{\{[^}]*\}\}\s*|\s*\[Op:[^\]]*\].*", "", text)[:120]


def effect(op_type: str) -> str:
    """What running an op with an effect again would do."""
    found = [text for start, text in EFFECTS.items() if op_type.startswith(start) or start in op_type]
    return found[0] if found else "it has an effect"
