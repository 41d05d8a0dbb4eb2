"""A stop in a graph -> gradients of the pass it is in: the call run again op by op from its arguments, under a tape.

Nothing is added to what the program runs.  Where an op cannot be run again (it draws numbers, or calls Python), the
value that the stop carried stands for what it gives, as long as no gradient that is asked for leads through it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import executions, internals, internals_gradients, internals_graphs, sites, tapes
from .calls import Call
from .errors import TfdbError
from .evaluation import Evaluation, Memory, effect
from .internals_gradients import is_trainable
from .report import UserLine
from .sites import flat

CLOSE = 1e-3  # of two runs of the same op, fused or not


@dataclass(eq=False)
class Study:
    """What all evaluations of one re-run share: the tape, and what the stop carried of the graph it is in."""

    tape: Any
    hook: Any
    carried: Mapping[str, Any]
    visits: list[Differentiation] = field(default_factory=list)
    roots: dict[str, tuple[Differentiation, Any]] = field(default_factory=dict)  # ops not run again, by the reason

    def watch(self, value: Any) -> Any:
        """Have the tape know a value, if it can have a gradient."""
        if hasattr(value, "_id") and is_trainable(value.dtype):
            internals_gradients.watch(self.tape, value)
        return value


class Recalled(Memory):
    """A memory whose reads the tape knows; through a write no gradient leads."""

    def __init__(self, held: Mapping[int, Any], whole: bool, study: Study) -> None:
        super().__init__(held, whole)
        self.study = study
        self.reads: dict[int, dict[int, Any]] = {}

    def read(self, handle: Any) -> Any:
        """What a variable holds, as one more source."""
        value = self.study.watch(super().read(handle))
        self.reads.setdefault(id(handle), {})[id(value)] = value
        return value

    def write(self, handle: Any, value: Any) -> None:
        """A variable is given a new value: that one is a constant to the tape."""
        import tensorflow as tf

        super().write(handle, tf.stop_gradient(value))


class Differentiation(Evaluation):
    """An evaluation whose ops the study's tape records."""

    def __init__(
        self, graph: Any, feeds: Mapping[str, Any], memory: Memory, study: Study, parent: Differentiation | None = None
    ) -> None:
        super().__init__(graph, feeds, memory)
        self.study, self.parent = study, parent
        self.last: int | None = None  # how many ops are enough
        self.stands_in: list[Any] = []
        for value in self.values.values():
            study.watch(value)
        if executions.same(graph, study.hook.graph):
            study.visits.append(self)
            for tensor in graph.inputs:
                if tensor.name not in self.values and tensor.name in study.carried:
                    self.values[tensor.name] = study.watch(study.carried[tensor.name])

    def run_to(self, end: int) -> None:
        """Compute what the first `end` ops give, as far as the stop and the losses need it."""
        if self.last is None:
            self.last = self.enough()
        super().run_to(min(end, self.last))

    def enough(self) -> int:
        """How many ops it takes to come to the stop and the losses; all, where a graph around this one goes on."""
        around = list(self.outward())
        loops = any(each.is_body_of(internals.LOOP_OPS) for each in around)
        if loops or any(tapes.log.targets_in(each.graph) for each in around[1:]):
            return len(self.operations)
        hook = self.study.hook
        ends = [self.order[name.rpartition(":")[0]] for t in tapes.log.targets_in(self.graph) for name in t.names]
        ends += [self.order[path[0][0].name] for path in executions.paths(self.graph, hook.graph, ())]
        ends += [self.order[hook.name]] if executions.same(self.graph, hook.graph) else []
        return max(ends) + 1 if ends else len(self.operations)

    def apart(self) -> AbstractContextManager[None]:
        """The tape is open all the time."""
        return internals.eager()

    def run_op(self, op: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run one op, recorded; one with a gradient of its own is recorded with that."""
        if not internals_gradients.custom_gradient(op):
            return internals_graphs.run_op(op, inputs, recorded=True)
        outputs = internals_graphs.run_op(op, inputs)
        sources = [self.memory.read(each) if each.dtype.name == "resource" else each for each in inputs]
        internals_gradients.record_by(op.type, outputs, sources, lambda *given: self.customary(op, given))
        return outputs

    def customary(self, op: Any, given: Sequence[Any]) -> list[Any]:
        """The gradients that an op's own gradient function gives, from the values of this pass."""
        graph, places, found = internals_gradients.custom_graph(op, list(given))
        feeds = {place.name: value for place, value in zip(places, given, strict=True)}
        for outside, inside in graph.captures:
            feeds[inside.name] = self.outside(outside)
        made = Evaluation(graph, feeds, self.memory)
        return [None if each is None else made.fetch(each) for each in found]

    def outside(self, tensor: Any) -> Any:
        """The value of a tensor that a custom gradient takes from around it."""
        graph = getattr(tensor, "graph", None)
        level = next((each for each in self.outward() if each.graph is graph), None)
        return level.fetch(tensor) if level is not None else tensor

    def another(self, graph: Any, feeds: Mapping[str, Any]) -> Evaluation:
        """The evaluation of a graph that an op of this one runs, on the same tape."""
        return Differentiation(graph, feeds, self.memory, self.study, self)

    def lose(self, op: Any, why: str) -> None:
        """An op could not be run: the stop may have carried what it gave."""
        super().lose(op, why)
        if why.startswith(f"{op.name} ("):
            self.study.roots.setdefault(why, (self, op))
        here = executions.same(self.graph, self.study.hook.graph) and not self.is_body_of(internals.LOOP_OPS)
        for tensor in op.outputs if here else ():
            if tensor.name in self.study.carried and tensor.name not in self.values:
                self.values[tensor.name] = self.study.watch(self.study.carried[tensor.name])
                self.stands_in.append(op)

    def is_body_of(self, types: Collection[str]) -> bool:
        """Whether the graph is a body of an op of these types, of a loop or a branch."""
        callers = self.parent.operations if self.parent is not None else ()
        return any(op.type in types and self.graph.name in internals_graphs.called(op) for op in callers)

    def outward(self) -> Iterator[Differentiation]:
        """This evaluation and those it was called from."""
        here: Differentiation | None = self
        while here is not None:
            yield here
            here = here.parent


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss that the program differentiates in the graph: its value when run again, the line that asks, its symbols.

    Of a loss that no call of a tape was seen for, `made` is empty.
    """

    values: tuple[Any, ...]
    line: UserLine | None
    made: tuple[Any, ...] = ()


class Pass:
    """The pass of a graph that a stop is in, run again under a tape.

    Raises:
        TfdbError: the call's arguments are not known, or it cannot be told which of several runs the stop is in.
    """

    def __init__(self, hook: Any, known: Sequence[tuple[Any, Any]], given: Call | None) -> None:
        graph = internals_graphs.atomic_graph(given.function) if given is not None else None
        if given is None or graph is None:
            raise TfdbError("the arguments of this graph's call are not known: it cannot be run again")
        self.names = [tensor.name for tensor, _ in known]
        self.carried = [value for _, value in known]
        with internals_gradients.native_tape() as tape:
            study = Study(tape, hook, dict(zip(self.names, self.carried, strict=True)))
            feeds = {place.name: value for place, value in zip(graph.inputs, given.args, strict=False)}
            held = {id(given.args[n]): value for n, value in given.variables.items()}
            self.memory = Recalled(held, bool(held), study)
            outer = Differentiation(graph, feeds, self.memory, study)
            outer.run_to(len(outer.operations))
        self.tape, self.study = tape, study
        self.here = self.visit(study)

    def visit(self, study: Study) -> Differentiation:
        """The run of the stop's graph that gives what the stop carried."""
        found = [each for each in study.visits if self.agrees(each)]
        if len(found) == 1:
            return found[0]
        if not study.visits:
            raise TfdbError("run again, the call does not come to the graph of this stop")
        if not found:
            raise TfdbError("run again, the call does not give the values of this stop: it is not deterministic")
        raise TfdbError("this graph ran several times with the same values: which of them this stop is in is not known")

    def agrees(self, visit: Differentiation) -> bool:
        """Whether a run gives the values that the stop carried, as far as they are numbers and can be had."""
        for name, value in zip(self.names, self.carried, strict=False):
            again = visit.values.get(name)
            if again is None or again is value or value.dtype.name in ("string", "resource", "variant"):
                continue
            one, other = np.asarray(again), np.asarray(value)
            if one.shape != other.shape or not close(one, other):
                return False
        return True

    def again(self, value: Any) -> Any:
        """What the re-run has in the place of a value that the stop carried; None for any other value."""
        for name, each in zip(self.names, self.carried, strict=False):
            if each is value:
                found = self.here.values.get(name)
                if found is None:
                    raise TfdbError(f"{name} cannot be computed again: {self.here.reasons.get(name[:-2], 'not run')}")
                return found
        return None

    def losses(self, written: Iterable[tuple[Any, UserLine]] = ()) -> list[Loss]:
        """The losses that the program differentiates in this graph and those around it; inner tapes' are left out.

        Where none was seen while tracing, those of `written`: tensors of this stop with the lines that ask for them.

        Raises:
            TfdbError: none can be computed again; the text says why.
        """
        found: list[Loss] = []
        problem = ""
        for level in self.here.outward():
            for target in tapes.log.targets_in(level.graph):
                tensors = [level.graph.get_tensor_by_name(name) for name in target.names]
                lost = [each for each in tensors if each.name not in level.values]
                if lost:
                    problem = f"the loss {lost[0].op.name}: {self.why_lost(level, lost[0].op)}"
                else:
                    values = tuple(level.values[each.name] for each in tensors)
                    found.append(Loss(values, target.line, tuple(tensors)))
        if not found and not problem:
            known = [(self.again(tensor), line) for tensor, line in written]
            found = [Loss((value,), line) for value, line in known if value is not None]
        if not found:
            raise TfdbError(problem or "no gradient is taken in this graph; name the loss: tape LOSS, TENSOR")
        return found

    def gradients(self, targets: Sequence[Any], sources: Sequence[Any], upstream: Sequence[Any] | None = None) -> Any:
        """The gradients of the targets' sum for tensors of the re-run and for variables; None where there is no path.

        Raises:
            TfdbError: a path leads through an op that cannot be run again.
        """
        groups = [self.leaves(source) for source in sources]
        leaves = [leaf for group in groups for leaf in group]
        self.refuse_gaps(targets, leaves)
        found = iter(self.compute(targets, leaves, upstream) if leaves else ())
        return [added([next(found) for _ in group]) for group in groups]

    def variables(self) -> Iterator[Any]:
        """The trainable variables that this pass reads, in the order of their first reads."""
        found = {id(v.handle): v for level in self.here.outward() for v in level.graph.variables}
        yield from (found[key] for key in self.memory.reads if key in found and found[key].trainable)

    def of_expression(self, compute: Callable[[], Any], sources: Sequence[Any]) -> list[Any]:
        """The gradients of what `compute` makes of this stop's values, for carried tensors and for variables.

        Raises:
            TfdbError: it makes no floating tensor, or a path leads through an op that cannot be run again.
        """
        values = [each for each in self.carried if hasattr(each, "_id") and is_trainable(each.dtype)]
        variables = [source for source in sources if hasattr(source, "handle")]
        with internals_gradients.native_tape() as tape:
            for each in (*values, *(variable.handle for variable in variables)):
                internals_gradients.watch(tape, each)
            made = [t for t in flat([compute()]) if hasattr(t, "_id") and is_trainable(t.dtype)]
        if not made:
            raise TfdbError("the loss must be a tensor of floats")
        slopes = internals_gradients.gradient(tape, made, [*values, *variables])
        direct = {id(v): slope for v, slope in zip(variables, slopes[len(values) :], strict=True)}
        taken = [(self.again(v), slope) for v, slope in zip(values, slopes, strict=False) if slope is not None]
        own = [source if hasattr(source, "handle") else self.again(source) for source in sources]
        behind = (
            self.gradients([v for v, _ in taken], own, [dense(s) for _, s in taken]) if taken else [None] * len(own)
        )
        return [added((direct.get(id(source)), more)) for source, more in zip(sources, behind, strict=True)]

    def compute(self, targets: Sequence[Any], leaves: Sequence[Any], upstream: Sequence[Any] | None = None) -> Any:
        """The tape's own gradients."""
        try:
            given = list(upstream) if upstream is not None else None
            return internals_gradients.gradient(self.tape, list(targets), list(leaves), given)
        except LookupError as error:
            raise TfdbError(str(error).splitlines()[0]) from error

    def leaves(self, source: Any) -> list[Any]:
        """The tape's own tensors for a source: all that was read of a variable, or the tensor itself."""
        handle = getattr(source, "handle", None)
        return list(self.memory.reads.get(id(handle), {}).values()) if handle is not None else [source]

    def refuse_gaps(self, targets: Sequence[Any], leaves: Sequence[Any]) -> None:
        """No gradient is given that stand-ins, one behind the other, may have cut short."""
        behind = list(targets)
        waiting = [(level, op) for level in self.here.outward() for op in level.stands_in]
        while waiting:
            reached = [(level, op) for level, op in waiting if self.slopes_to(level, op, behind)]
            for level, op in reached:
                known = list(frontier(level, op))
                if known and any_slope(self.compute(known, leaves)):
                    raise TfdbError(f"the gradient goes through {op.name}, and {self.why_lost(level, op)}")
                behind += known
            waiting = [each for each in waiting if each not in reached] if reached else []

    def slopes_to(self, level: Evaluation, op: Any, targets: Sequence[Any]) -> bool:
        """Whether targets have a gradient for what an op gives."""
        given = [level.values[each.name] for each in op.outputs if each.name in level.values]
        return any_slope(self.compute(targets, given))

    def why_lost(self, level: Evaluation, op: Any) -> str:
        """Why an op's value of this pass cannot be had, and at which stop it can."""
        reason = level.reasons.get(op.name, "it was not run")
        inside, root = self.study.roots.get(reason, (None, None))
        line = next(sites.lines_of_op(root), None) if root is not None else None
        if inside is None or root is None or line is None:
            return reason
        text = f"{root.type} of {line.file.rsplit('/', 1)[-1]}:{line.line} is not run again: {effect(root.type)}"
        if root in inside.stands_in:
            return f"{text}; there are gradients for what it gave, none for what was before it"
        if inside.is_body_of(internals.LOOP_OPS):
            return f"{text}, and of a loop's passes only the one of the stop is known"
        order, hook = inside.order, self.study.hook
        if executions.same(inside.graph, hook.graph) and order[root.name] > order.get(hook.name, -1):
            return f"{text}; this stop is before it: stop behind that line"
        where = "its branch of " if inside.is_body_of(internals.BRANCH_OPS) else ""
        return f"{text}; a stop behind that line, in {where}{line.function}(), has what it gave"


def frontier(level: Evaluation, op: Any) -> Iterator[Any]:
    """The known tensors before an op that was not run, by way of others that were not, to which a slope may lead."""
    waiting, seen = [op], {op.name}
    while waiting:
        lost = waiting.pop()
        for tensor in lost.inputs if may_slope(lost.type) else ():
            value = level.values.get(tensor.name)
            if value is not None and value.dtype.is_floating | value.dtype.is_complex:
                yield value
            elif (value is None or value.dtype.name == "variant") and tensor.op.name not in seen:
                seen.add(tensor.op.name)
                waiting.append(tensor.op)


def may_slope(op_type: str) -> bool:
    """Whether ops of this type may have a gradient."""
    return (
        op_type == "EagerPyFunc" or op_type in internals.CALLING_OPS or internals_gradients.registered(op_type) is True
    )


def any_slope(gradients: Sequence[Any]) -> bool:
    """Whether any of some gradients is one."""
    return any(each is not None for each in gradients)


def close(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays hold the same values but for rounding."""
    if one.dtype.kind not in "fcV":
        return bool(np.array_equal(one, other))
    first, second = (array.astype(np.complex128 if array.dtype.kind == "c" else np.float64) for array in (one, other))
    return bool(np.allclose(first, second, rtol=CLOSE, atol=1e-6, equal_nan=True))


def added(parts: Sequence[Any]) -> Any:
    """The sum of a source's gradients by all of its reads; None where there is none."""
    import tensorflow as tf

    known = [part for part in parts if part is not None]
    return tf.add_n([dense(part) for part in known]) if len(known) > 1 else next(iter(known), None)


def dense(gradient: Any) -> Any:
    """A gradient as one tensor."""
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)
