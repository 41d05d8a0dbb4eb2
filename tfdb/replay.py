"""A Trip -> the Origin of its bad values: the step again, eagerly, from the same state, then the report on it.

The first pass logs every op; origin.py picks the one to blame; a second pass stops there and takes the values and the
user's frames.  A clean first pass is reported as such, with what is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import blame, causes, eagerly, internals_callbacks, internals_gate, masks, recorder, steps
from .conditions import badness, worst
from .gate import RATE, Trip, is_run
from .opwise import CompiledOps
from .origin import Finding, Log, find_all, sources
from .pathways import argument_name, around, blamed, name_of_dtype, named, path
from .pipelines import Element, guilty_map
from .recorder import Capture, Outcome
from .replaying import Pass, dense, kind_of
from .report import NamedSummary, Report, UserLine
from .tensors import describe_leaf
from .tripreports import (
    Origin,
    caller_frames,
    caller_lines,
    circumstances,
    of_error,
    of_load,
    of_variable,
    step_number,
    without_replay,
)

MOST_ORIGINS = 8  # looked at in one step, when a watch leaves the first ones out: each takes one more eager pass
MOST_DRAWS, DRAWING = 20, 10.0  # passes, seconds: how long new random numbers are tried
MASKED = "the program tests for bad values itself and keeps them from the weights"
CLEAN = "the step ran clean when it was run again eagerly"


@dataclass(eq=False)
class Replay:
    """A step that can be run again: its function, real arguments, and state at its start."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    before: list[tuple[Any, Any]]
    updating: bool
    drawn: list[Any] | None = None
    tape: bool = False
    rereads: bool = False
    draws: recorder.Draws = field(default_factory=recorder.Draws)

    def again(self, wanted: Sequence[int] = (), probe: recorder.Probe | None = None) -> Outcome:
        """One eager pass."""
        return recorder.run(
            self.function,
            self.args,
            self.kwargs,
            self.before,
            updating=self.updating,
            wanted=wanted,
            probe=probe,
            drawn=self.drawn,
            tape=self.tape,
            rereads=self.rereads,
            draws=self.draws,
        )


def find_origin(trip: Trip, accept: Callable[[Report], bool] | None = None) -> Origin:
    """Run the tripped step again and say what made its bad values.  All state of the program is put back.

    Of several origins it is the first that `accept` takes, else the first of all.  Does not raise: where the search
    itself fails, the report holds what is known without it.
    """
    try:
        return search(trip, accept)
    except Exception as error:  # a fault of the debugger must not become one of the program
        said = str(error).strip().splitlines()
        message = said[0] if said else ""
        return without_replay(trip, f"the search for the origin failed: {type(error).__name__}: {message}")


def search(trip: Trip, accept: Callable[[Report], bool] | None = None) -> Origin:
    """`find_origin`, raising what goes wrong."""
    if trip.place.kind == "load":
        return of_load(trip)
    found = None
    for again in replays_of(trip):
        first = drawn_anew(trip, again, again.again())
        if first.run.reading_until is not None:
            trip.notes.append("the loop over the dataset was run again from its first element")
        origin = by_pass(trip, first, again, accept)
        if trip.place.step is not None or pick_made(first):
            return origin
        found = found or origin
    return found or without_replay(trip, "there is no source to run the eager step again from")


def drawn_anew(trip: Trip, again: Replay, first: Outcome) -> Outcome:
    """A pass in which new random numbers make the bad value again; the one given, when it has it or draws none."""
    if not again.draws.values:
        return first
    end, tries = time.monotonic() + DRAWING, 1
    while first.error is None and not pick_all(first) and tries < MOST_DRAWS and time.monotonic() < end:
        again.draws, tries = recorder.Draws(), tries + 1
        first = again.again()
    times = f" {tries} times" if tries > 1 else ""
    trip.notes.append(f"the step draws from stateful tf.random: run again{times}, with other numbers than it had")
    return first


def by_pass(trip: Trip, first: Outcome, again: Replay, accept: Callable[[Report], bool] | None) -> Origin:
    """What one pass of the step says of the origin."""
    if not trip.gradients:
        trip.gradients, trip.again = tuple(first.run.gradients), True
    if trip.place.kind in ("gradient", "update") and first.run.where == "gradient" and not again.draws.values:
        trip.notes += [said] if (said := other_gradients(trip, first.run)) else []
    if first.error is not None:
        return of_error(trip, first)
    if masks.is_masked(trip, first) and not is_run(trip.place):  # step after step, it is a fault
        trip.masked = True
        return without_replay(trip, MASKED)
    findings = pick_all(first)
    if trip.place.kind == "variable" and (not findings or findings[0].index is None):
        return of_load(trip)
    if not findings:
        return only_compiled(trip, first, again) or without_replay(trip, CLEAN)
    made = of_finding(trip, first, findings[0], again)
    if accept is None or accept(made.report):
        return made
    others = (of_finding(trip, first, finding, again) for finding in findings[1:MOST_ORIGINS])
    return next((origin for origin in others if accept(origin.report)), made)


MOST_NAMES = 3


def other_gradients(trip: Trip, run: Pass) -> str:
    """A note where the gradients that are bad when the step is run again are not those that tripped; "" if they are.

    A fused op may hide a NaN: the CPU's relu that is fused with a matrix product makes 0 of it.
    """
    looked, seen = trip.place.names[: trip.place.weights], {name for name, _ in run.gradients}
    more = [name for name in run.names if name in looked and name not in trip.variables]
    fewer = [name for name in trip.variables if name in seen and name not in run.names]
    parts = []
    for names, what in ((more, "bad too"), (fewer, "not bad")):
        if names:
            rest = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            parts.append(f"{', '.join(names[:MOST_NAMES])}{rest} {'are' if len(names) > 1 else 'is'} {what}")
    return f"run again op by op, {'; '.join(parts)}: the ops that the graph fuses give other values" if parts else ""


def of_finding(trip: Trip, first: Outcome, finding: Finding, again: Replay) -> Origin:
    """The report of one origin."""
    if finding.index is None or first.log.events[finding.index].variable is not None:
        return of_value(trip, first, finding, again)
    return of_op(trip, first, finding, again)


def pick_made(first: Outcome) -> bool:
    """Whether a pass shows where the value was made: by an op, or it was in a variable or in the data."""
    finding = pick(first) if first.error is None else None
    return finding is not None and (finding.index is not None or finding.root in first.log.data)


def replays_of(trip: Trip) -> list[Replay]:
    """The ways to run the tripped step again, the best one first; none in eager code without source."""
    step = trip.place.step
    bad = [name for name, kind in zip(trip.place.names, trip.bad, strict=False) if kind]
    updating = trip.place.kind == "update" or RATE in bad
    if step is None:
        tape = trip.place.kind == "tape"
        before = list(trip.place.before)
        return [Replay(function, (), {}, before, updating, tape=tape) for function in eagerly.steps_of(trip.frame)]
    args, kwargs = steps.arguments(step, trip.values, trip.call)
    kept = step.before.values()
    before = [(variable, trip.values[id(symbol)]) for variable, symbol in kept if id(symbol) in trip.values]
    drawn = steps.drawn(step, trip.values)
    rereads = len(drawn) < len(step.drawn)
    return [Replay(step.function, args, kwargs, before, updating, drawn, rereads=rereads)]


def only_compiled(trip: Trip, first: Outcome, again: Replay) -> Origin | None:
    """After a clean pass of a step that XLA compiles: the first op that XLA alone makes bad values of."""
    if not trip.xla:
        return None
    probed = again.again(probe=CompiledOps().run).recorder.probed
    if probed is None:
        return None
    index, outputs = probed
    trip.notes.append("under XLA only: run eagerly, the same op on the same inputs gives finite values")
    return of_op(trip, first, Finding(index), again, outputs)


def pick(outcome: Outcome) -> Finding | None:
    """The first of `pick_all`."""
    return next(iter(pick_all(outcome)), None)


def pick_all(outcome: Outcome) -> list[Finding]:
    """The origins of what the pass ended with: of a bad loss and what the door saw, else of the outputs."""
    import tensorflow as tf

    run = outcome.run
    outputs = [v for v in tf.nest.flatten(outcome.outputs, expand_composites=True)]
    ends = [run.losses, run.targets, outputs, run.written]
    if run.where == "update" and not any(kind_of(gradient) for _, gradient in run.gradients):
        ends = [run.targets]
    found: dict[Finding, None] = {}
    for number, tensors in enumerate(ends):
        if found and number > 1:
            break
        bad = [value._id for value in map(dense, tensors) if kind_of(value) and hasattr(value, "_id")]
        for key in bad:
            outcome.log.kinds.setdefault(key, "nan")
        found.update(dict.fromkeys(find_all(outcome.log, bad)))
    return list(found)


def of_op(
    trip: Trip, first: Outcome, finding: Finding, again: Replay, outputs: Sequence[np.ndarray] | None = None
) -> Origin:
    """The origin is an op: run once more and take its values, and the frames of it or of its forward op."""
    log, index = first.log, finding.index
    assert index is not None
    event = log.events[index]
    forward = event.forward
    at = index if forward is None else forward
    before, after = around(log, index, forward)
    second = again.again([at, index, *before, *after])
    made, here = second.captured.get(index), second.captured.get(at)
    if made is None or here is None or made.op != event.op:
        return without_replay(trip, f"made by {event.op}; a second run took another way, the step is not deterministic")
    if outputs is not None:
        made.outputs = tuple(outputs)
    report = report_on(trip, first, finding, (made, here), path_of=(second.captured, before, after))
    return Origin(report, (*caller_frames(trip, here.frames), *here.frames))


def report_on(
    trip: Trip,
    first: Outcome,
    finding: Finding,
    captures: tuple[Capture, Capture],
    path_of: tuple[dict[int, Capture], list[int], list[int]],
) -> Report:
    """The report of an origin that is an op: of its capture, and of its own or, for a gradient, its forward op's."""
    (made, here), log, index = captures, first.log, finding.index
    assert index is not None
    forward = log.events[index].forward
    at = index if forward is None else forward
    forward_op = log.events[forward].op if forward is not None else None
    if finding.hidden is not None:
        forward_op = log.events[index].op
    reason = worst([kind_of(value) for value in made.outputs])
    inputs = named(here, log.events[at].inputs, first)
    facts = facts_of(made, here, forward_op, inputs, finding)
    facts = replace(facts, hidden=facts.hidden and not first.run.losses, reason=trip.reason)
    if finding.hidden is not None:
        facts = replace(facts, forward_op=None)
    cause, fix = causes.explain(facts)
    line = charged(here.site, log, index, forward)
    return Report(
        reason=trip.reason or reason,
        line=line,
        op=made.op,
        forward_op=forward_op,
        phase=phase_of(first, forward, finding),
        step=step_number(trip),
        cause=cause,
        fix=fix,
        inputs=tuple(blamed(inputs, facts)),
        output=NamedSummary("", describe_leaf(made.outputs[0])) if made.outputs else None,
        stack=(*(frame.line for frame in caller_frames(trip, here.frames)), *here.site.user),
        detail=here.site.detail if line != here.site.line else None,
        layers=here.site.layers,
        notes=(*trip.notes, *pass_notes(log, index)),
        path=path(inputs, made, *path_of),
        **circumstances(trip, first),
    )


def charged(site: blame.Site, log: Log, index: int, forward: int | None) -> UserLine | None:
    """The user line to blame; for a library op on variables alone, the line where the user last set one of them."""
    drivers = tuple(owner for owner, _ in internals_gate.optimizer_classes()) + tuple(internals_gate.model_classes())
    line = blame.responsible(site, drivers)
    if line == site.line:
        return line
    reads, data = sources(log, log.events[index if forward is None else forward].inputs)
    if not data:
        for read in reads:
            variable = log.events[read].variable
            if not variable.trainable and (set_at := blame.assigned.get(variable)):
                return set_at
    return line


def facts_of(
    made: Capture, here: Capture, forward_op: str | None, inputs: Sequence[NamedSummary], finding: Finding
) -> causes.Facts:
    """What causes.py needs to know: the output of the op that made it, the inputs of it or of its forward op."""
    arrays = tuple(np.asarray(v) for v in here.inputs if name_of_dtype(v) not in ("resource", "variant", "string"))
    owner = here.site.owners[0][0] if here.site.owners else ""
    output = np.asarray(made.outputs[0]) if made.outputs else np.zeros(())
    return causes.Facts(
        made.op,
        forward_op,
        tuple(item.name for item in inputs),
        arrays,
        output,
        owner,
        hidden=finding.hidden is not None,
        meant=bool(finding.meant),
    )


def phase_of(first: Outcome, forward: int | None, finding: Finding) -> str:
    """When the value was made: forward, gradient or update."""
    start = first.run.update_start
    end = first.run.update_end
    beside = finding.index is not None and first.log.events[finding.index].beside
    in_update = start is not None and finding.order >= start and (end is None or finding.order < end)
    if in_update and forward is None and not beside:
        return "update"
    custom = any(begin <= finding.order < end for begin, end in first.run.differentiated)  # tf.custom_gradient
    return "gradient" if (forward is not None or custom) and finding.hidden is None else "forward"


def of_value(trip: Trip, first: Outcome, finding: Finding, again: Replay) -> Origin:
    """The origin was there before the step: in a variable, in an argument, or in a constant the function holds."""
    log = first.log
    if finding.index is not None:
        with internals_callbacks.without_op_callbacks():  # the program's own check refuses to read it
            return of_variable(trip, log.events[finding.index].variable, circumstances(trip, first))
    root = finding.root
    assert root is not None
    value = first.recorder.roots.get(root)
    if value is None:
        return without_replay(trip, "the value came from outside of TensorFlow")
    array = np.asarray(value)
    second = again.again([log.consumers[root][0]]) if root in log.consumers else None
    here = next(iter(second.captured.values()), None) if second is not None else None
    is_data = root in log.data
    callers = caller_lines(trip)
    line = callers[-1] if is_data and callers else here.site.line if here is not None else None
    name = argument_name(here, value)
    if is_data and (element := guilty_map(trip.call, value)) is not None:
        if made := in_pipeline(trip, element, circumstances(trip, first)):
            return made
    summary = NamedSummary(name, describe_leaf(value))
    report = Report(
        reason=badness(array) or trip.reason,
        line=line,
        op="IteratorGetNext" if is_data else "Const",
        phase="data",
        step=step_number(trip),
        cause=causes.data(array, name or ("the batch" if is_data else "a constant")),
        fix="look for missing values where the data is made, and drop or fill them",
        inputs=(summary,),
        stack=callers if is_data else (*callers, *(here.site.user if here else ())),
        notes=tuple(trip.notes),
        **circumstances(trip, first),
    )
    return Origin(report, (*caller_frames(trip), *(here.frames if here else ())))


def in_pipeline(trip: Trip, element: Element, more: dict[str, Any]) -> Origin | None:
    """The batch was good until a `map` of its pipeline: the op in the user's function, on the element it spoiled."""
    again = Replay(element.function, element.args, {}, [], False)
    first = again.again()
    finding = pick(first) if first.error is None else None
    if finding is None or finding.index is None:
        return None
    made = of_op(trip, first, finding, again)
    line = made.report.line or blame.built.get(element.dataset)
    notes = (*made.report.notes, "the dataset was read again from its source to find this")
    stack = tuple(entry for entry in (*caller_lines(trip), line) if entry)
    return Origin(replace(made.report, line=line, phase="data", notes=notes, stack=stack, **more), made.frames)


def pass_notes(log: Log, index: int) -> tuple[str, ...]:
    """How often the same op ran before, when it did."""
    count = sum(event.op == log.events[index].op for event in log.events[:index])
    times = "once" if count == 1 else f"{count} times"
    return (f"{log.events[index].op} ran {times} before in this step",) if count else ()


__all__ = ["Origin", "find_origin"]
