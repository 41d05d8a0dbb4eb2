"""An error that says a tensor holds NaN or infinities -> the Origin of that value, as a watch would have found it.

Such errors (`tf.debugging.check_numerics`, `assert_all_finite`, `enable_check_numerics`) name the place where a value
was looked at.  The step is run again eagerly, up to that look, without the program's own check of every op; where that
gives nothing, what the check itself saw of its op is reported.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np

from . import blame, causes, doors, eagerly, internals_errors, pathways, steps, tripreports
from .conditions import Watch
from .failures import Failure, traceback_of
from .frames import LiveFrame
from .gate import Place, Trip, gate
from .kept import Keeper
from .origin import Finding
from .recorder import Capture, Outcome
from .replay import Replay, facts_of, of_finding, pick, pick_made
from .replaying import kind_of
from .report import NamedSummary, Report
from .sourcemap import Activation
from .steps import Call
from .tensors import describe_leaf
from .tripreports import Origin, live_frame

SAID = ("Detected Infinity or NaN", "Tensor had NaN", "Tensor had Inf", "Tensor had -Inf", "Tensor had +Inf")
HARMLESS = (
    "run again without this check, the step ends with finite values: the value may be meant, as in a mask "
    "(`python -m tfdb -w nan` stops only for one that spoils a result)"
)
LOOKED_AT = ("tensor", "x")  # what TensorFlow's checks call the tensor they look at


WRITTEN = (
    "the failed call wrote NaN or infinities to its variables before it ended: `python -m tfdb -w nan` stops before"
)


def is_numeric(error: BaseException) -> bool:
    """Whether an error says that a tensor holds NaN or infinities."""
    return any(said in str(error) for said in SAID)


def origin_of(failure: Failure, keeper: Keeper | None) -> Origin | str:
    """Where the bad value of such an error was made; what to say instead when a run of the step cannot tell.

    Runs the failing step again; variables and random state are put back.
    """
    with lent_doors():
        trip, found = trip_of(failure), None
        within = internals_errors.in_gradient(failure.deepest)  # then the op that it is the gradient of is wanted
        if trip.call is None and not within and (seen := as_seen(trip, failure)) is not None:
            return seen
        for again in replays_of(trip, failure, keeper):
            origin, sure = search(trip, again)
            if origin is not None and trip.call is not None and is_later(failure, origin):
                return WRITTEN
            if sure and origin is not None:
                return origin
            found = found or origin
    return as_seen(trip, failure) or found or HARMLESS


def is_later(failure: Failure, origin: Origin) -> bool:
    """Whether an origin is a variable that was good when the op that failed ran: all ops before that one had passed."""
    said = str(failure.root)
    checks_all = SAID[0] in said
    return checks_all and origin.report.phase == "variable" and f'op "{origin.report.op}"' not in said


def origin_of_loss(frame: FrameType, keeper: Keeper) -> Origin:
    """Where the bad loss of the last batch of the `fit` on this stack was made, with the weights as they are now."""
    trip = Trip(Place(None, "check", ("loss",)), Watch("nan"), "nan", (np.array(np.nan),), ("nan",), frame=frame)
    fit = next((each for each in internals_errors.outward(frame) if each.f_code.co_name == "fit"), frame)
    names, parts = fit.f_locals, keeper.latest()
    with lent_doors(), contextlib.suppress(Exception):  # a batch of another shape: then only what is known is said
        data = tf_pack(names["iterator"].element_spec, parts[0])
        origin, _ = search(trip, Replay(names["self"].train_step, (data,), {}, [], False))
        if origin is not None:
            return origin
    return tripreports.without_replay(trip, "the step that made it was not watched")


def tf_pack(spec: Any, parts: list[Any]) -> Any:
    """The tensors of an element in the structure that its iterator gives."""
    import tensorflow as tf

    return tf.nest.pack_sequence_as(spec, parts, expand_composites=True)


@contextlib.contextmanager
def lent_doors() -> Iterator[None]:
    """Within the block the doors that a replay needs are there, and nothing is watched because of that."""
    lent = not doors.patches.saved
    if lent:
        doors.install((), lambda trip: None)
    try:
        with gate.quiet():
            yield
    finally:
        if lent:
            doors.uninstall()


def trip_of(failure: Failure) -> Trip:
    """The error as a gate that failed: the outermost graph call, or the eager stack."""
    reason = "nan" if "NaN" in str(failure.root).replace("Infinity or NaN", "") else "inf"
    trip = Trip(Place(None, "check", ()), Watch(reason), reason, (), ())
    trip.call, trip.frame = steps.outermost_call(failure.deepest), failure.deepest
    return trip


def replays_of(trip: Trip, failure: Failure, keeper: Keeper | None) -> list[Replay]:
    """The ways to run the failing step again, the best one first."""
    if trip.call is None:
        return [Replay(function, (), {}, [], False, tape=True) for function in eagerly.steps_of(failure.deepest)]
    call, elements = trip.call, drawn(trip.call, failure, keeper)
    return [Replay(call.function, call.args, call.kwargs, [], False, drawn=elements)]


def drawn(call: Call, failure: Failure, keeper: Keeper | None) -> list[Any]:
    """The elements that the call's iterators gave it, as far as they were kept."""
    import tensorflow as tf

    frames = internals_errors.outward(failure.deepest)
    name = getattr(getattr(call.function, "python_function", None), "__name__", "")
    graph = next((name for frame in frames if (name := internals_errors.graph_called(frame))), name)
    kept = keeper.batch(graph) if keeper is not None and graph else []
    iterators = [each for each in tf.nest.flatten((call.args, call.kwargs)) if isinstance(each, tf.data.Iterator)]
    found = []
    for iterator, parts in zip(iterators * len(kept), kept, strict=False):
        if len(tf.nest.flatten(iterator.element_spec, expand_composites=True)) == len(parts):
            found.append(tf.nest.pack_sequence_as(iterator.element_spec, parts, expand_composites=True))
    return found


def search(trip: Trip, again: Replay) -> tuple[Origin | None, bool]:
    """The origin by a pass of the step, up to the check that fails, else to its end; whether the pass shows it made."""
    with whole_tracebacks():
        outcome = again.again()
    if outcome.error is not None:
        looked_at = checked(outcome)
        if looked_at is None:
            return None, False
        outcome.run.losses, outcome.run.targets, outcome.outputs, outcome.error = [], [looked_at], None, None
    finding = pick(outcome)
    if finding is None:
        return None, False
    return of_finding(trip, outcome, finding, again), pick_made(outcome)


@contextlib.contextmanager
def whole_tracebacks() -> Iterator[None]:
    """Within the block TensorFlow leaves its own frames in tracebacks: the checks' tensors are in them."""
    import tensorflow as tf

    filtering = tf.debugging.is_traceback_filtering_enabled()
    tf.debugging.disable_traceback_filtering()
    try:
        yield
    finally:
        if filtering:
            tf.debugging.enable_traceback_filtering()


def checked(outcome: Outcome) -> Any:
    """The tensor that the check which ended a pass looked at."""
    assert outcome.error is not None
    for entry in reversed(list(traceback_of(outcome.error))):
        for name in LOOKED_AT:
            value = entry.tb_frame.f_locals.get(name)
            if hasattr(value, "_id") and kind_of(value):
                return value
    return None


def as_seen(trip: Trip, failure: Failure) -> Origin | None:
    """What `enable_check_numerics` saw of an eager op: its inputs and outputs are still in the frames of the error."""
    for frame in internals_errors.outward(failure.deepest):
        names = frame.f_locals
        if frame.f_code.co_name == "callback" and {"op_type", "inputs", "outputs"} <= set(names):
            return of_frame(trip, frame, names)
    return None


def of_frame(trip: Trip, frame: FrameType, names: dict[str, Any]) -> Origin:
    """The report of the op that a check's frame is about."""
    op = names["op_type"].decode() if isinstance(names["op_type"], bytes) else names["op_type"]
    live = blame.live_frames(frame)[-1:]
    capture = Capture(op, blame.site_of(frame), live, tuple(names["inputs"]), tuple(names["outputs"]))
    inputs = pathways.named(capture, [id(value) for value in capture.inputs])
    facts = facts_of(capture, capture, None, inputs, Finding())
    cause, fix = causes.explain(facts)
    report = Report(
        reason=kind_of(np.asarray(capture.outputs[0])) or trip.reason,
        line=capture.site.line,
        op=op,
        cause=cause,
        fix=fix,
        inputs=tuple(pathways.blamed(inputs, facts)),
        output=NamedSummary("", describe_leaf(capture.outputs[0])),
        stack=capture.site.user,
        **tripreports.circumstances(trip),
    )
    return Origin(report, ())


def joined(failure: Failure, found: Origin) -> tuple[tuple[FrameType | LiveFrame, int], ...]:
    """The frames of an origin as those of a stack: the error's own frames as far as they are the same functions."""
    lives = [live_frame(frame) for frame in found.frames]
    real = [entry for entry in failure.stack if not entry.hidden]
    same = 0
    while same < min(len(lives), len(real)) and function_of(real[same]) == function_of(lives[same]):
        same += 1
    last = failure.stack.index(real[same - 1]) + 1 if same else 0
    around = tuple((entry.base, entry.lineno) for entry in failure.stack[:last])
    return (*around, *((frame, frame.lineno) for frame in lives[same:])) if lives else ()


def function_of(entry: Activation | LiveFrame) -> tuple[str, str]:
    """The file and function of a stack entry."""
    return os.path.abspath(entry.filename), entry.function
