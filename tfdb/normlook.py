"""One gate of normgate.py: the gradients (or updates) of some variables -> measured, decided, kept and, perhaps, told.

Eagerly that is done at once.  In a graph it is ops; a branch that takes the gradients and the user's locals, one op,
runs only when a threshold is passed.  Under XLA a variable takes the verdict, read after the call, and a step
over the limit writes nothing.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import (
    blame,
    flows,
    forwards,
    frames,
    internals,
    internals_autograph,
    internals_callbacks,
    internals_gate,
    internals_norms,
    normexpr,
    steps,
)
from .gradhistory import Ring
from .norms import arithmetic, exactly, is_floating, is_sliced, size_of, vector, whole
from .report import Frame, UserLine
from .thresholds import COLUMNS, NUMPY, UPDATE, WEIGHT, Threshold, chosen, exceeds, far_within, measured, over_limit

XLA_NOTE = "the step was compiled by XLA; going on skips this step's update"


@dataclass(frozen=True, slots=True)
class Given:
    """What is about to be applied: `kind` gradient or update, a value per variable, the losses it comes of."""

    kind: str
    variables: Sequence[Any]
    values: Sequence[Any]
    losses: Sequence[Any]
    frame: Any
    optimizer: Any
    counted: bool = False


@dataclass(eq=False)
class Place:
    """One gate: the variables it has values for, and the thresholds that concern them."""

    kind: str
    variables: list[Any]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    thresholds: list[tuple[Threshold, list[int]]]
    columns: tuple[str, ...]
    ring: Ring | None
    optimizer: Any
    next: int = 1  # to be added to what the optimizer has counted
    traced: tuple[frames.TracedFrame, ...] = ()
    loss_line: UserLine | None = None
    spot: tuple[Any, int] | None = None  # its graph, and how many ops that had before it
    graph: Any = None  # a weak reference to the graph of the loss


@dataclass(eq=False)
class Crossing:
    """A threshold that was passed: the weights are as before the step.

    `columns` are float32 numbers per variable; `full` are all columns of the gradients, in float64, where the values
    themselves are at hand; `value` is what was compared with the limit (a vector where each variable is).
    """

    threshold: Threshold
    place: Place
    value: Any
    columns: Mapping[str, np.ndarray]
    full: Mapping[str, np.ndarray] | None
    losses: Sequence[float]
    frames: tuple[Frame, ...]
    step: int | None
    compiled: bool = False
    frame: Any = None  # of an eager step
    began: steps.Step | None = None  # in a graph, with its inputs by the id of their symbols
    values: Mapping[int, Any] = field(default_factory=dict)

    @property
    def over(self) -> tuple[str, ...]:
        """The names of the variables to blame, worst first."""
        return over_limit(self.threshold, self.value, self.place.names, self.columns)


def look(watch: Any, given: Given, scaling: Any) -> tuple[Any, Any]:
    """Measure and decide; returns what the writes must wait for, and under XLA whether they may go on."""
    live = [(v, g) for v, g in zip(given.variables, given.values, strict=True) if g is not None and is_floating(g)]
    if given.kind == "gradient":
        watch.book.given(given.variables, given.values, given.frame)
    place = place_of(watch, given, [v for v, _ in live]) if live else None
    if place is None:
        return None, None
    import tensorflow as tf

    values = [g for _, g in live]
    graph = internals.current_graph()
    place.spot = steps.spot()
    with tf.name_scope("tfdb_norms"):
        measures = measure(place, values)
        losses = [scalar(loss, scaling) for loss in given.losses if sees(graph, loss)]
    if graph is None:
        eagerly(watch, place, given, values, whole(measures), losses)
        return None, None
    if place.ring is not None:
        with tf.name_scope("tfdb_norms"):
            place.ring.write(tf.stack([measures[name] for name in place.columns]))
    made = [loss for loss in given.losses if internals.is_symbolic(loss)]
    place.loss_line = flows.line_of_op(made[0].op) if made else None
    place.graph = weakref.ref(made[0].graph if made else graph)
    if internals.is_xla(graph):
        return None, under_xla(watch, place, given, whole(measures), losses)
    return in_graph(watch, place, given, values, measures, losses), None


def place_of(watch: Any, given: Given, variables: list[Any]) -> Place | None:
    """The gate of these variables; None when nothing is to be measured or decided there."""
    names = tuple(watch.book.name(variable, given.frame) for variable in variables)
    kinds = ("update",) if given.kind == "update" else ("grad", "loss", "expression")
    concerned = [(t, chosen(t, names)) for t in watch.thresholds if t.kind in kinds]
    concerned = [(t, places) for t, places in concerned if places]
    watch.seen.update(threshold for threshold, _ in concerned)
    wanted = watch.columns(given.kind)
    if not concerned and not wanted:
        return None
    replica = internals_autograph.replica_number()  # the history is that of the first
    watch.book.replicas |= replica is not None
    ring = watch.book.ring(variables, names, wanted) if wanted and not replica else None
    sizes = tuple(size_of(variable) for variable in variables)
    return Place(given.kind, variables, names, sizes, concerned, wanted, ring, given.optimizer, int(not given.counted))


def measure(place: Place, values: Sequence[Any]) -> dict[str, Any]:
    """The place's columns as they are measured (norms.whole), vectors of one number per variable."""
    import tensorflow as tf

    if place.kind != "update":
        return {name: vector(name, values) for name in place.columns}
    weights = [tf.convert_to_tensor(internals_gate.unwrapped(variable)) for variable in place.variables]
    return {UPDATE: vector(UPDATE, values), WEIGHT: vector(WEIGHT, weights)}


def scalar(loss: Any, scaling: Any) -> Any:
    """A loss as one float32 number: what the tape differentiates is the sum of its elements."""
    import tensorflow as tf

    number = tf.cast(internals_norms.apart(loss) if loss.shape.rank == 0 else tf.reduce_sum(loss), tf.float32)
    if scaling is None:
        return number
    return number / tf.cast(tf.convert_to_tensor(scaling.dynamic_scale), tf.float32)


def sees(graph: Any, tensor: Any) -> bool:
    """Whether an op added now can take the tensor."""
    return not internals.is_symbolic(tensor) or (graph is not None and internals.visible(tensor, graph))


def is_over(threshold: Threshold, places: Sequence[int], place: Place, measures: Any, losses: Any, do: Any) -> Any:
    """The numbers to compare (None without any) of a threshold that is no expression."""
    if threshold.kind == "loss":
        return None if losses is None or losses.shape[0] == 0 else losses
    return measured(threshold, places, place.sizes, measures, do)


# -- eager ------------------------------------------------------------------------------------------------------------


def eagerly(
    watch: Any, place: Place, given: Given, values: Sequence[Any], measures: Mapping[str, Any], losses: Sequence[Any]
) -> None:
    """Look now."""
    known = {name: np.asarray(vector) for name, vector in measures.items()}
    if place.ring is not None:
        place.ring.add(np.stack([known[name] for name in place.columns]))
    numbers = np.asarray([float(loss) for loss in losses], np.float32)
    for threshold, places in place.thresholds:
        if threshold.kind == "expression":
            value = normexpr.now(threshold.expression, given.frame, watch.slopes.names())
            over = value is not None and bool(np.any(value))
        else:
            value = is_over(threshold, places, place, known, numbers, NUMPY)
            over = value is not None and bool(np.any(exceeds(threshold, value)))
        if over:
            full = exactly(COLUMNS, [plain(value) for value in values]) if place.kind == "gradient" else None
            place.loss_line = forwards.loss_line(given.frame, given.losses)
            number = step_now(place) or (place.ring.total if place.ring is not None else None)
            stack = blame.live_frames(given.frame)
            crossing = Crossing(threshold, place, value, known, full, list(numbers), stack, number)
            crossing.frame = given.frame
            watch.cross(crossing)


def plain(value: Any) -> np.ndarray:
    """A gradient's elements that may differ from 0, as an array."""
    if not is_sliced(value):
        return np.asarray(value)
    return added_up(np.asarray(value.values), np.asarray(value.indices))


def added_up(rows: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Rows of the same index added up."""
    touched, places = np.unique(indices, return_inverse=True)
    summed = np.zeros((len(touched), *rows.shape[1:]), np.float64)
    np.add.at(summed, places, rows)
    return summed


def step_now(place: Place) -> int | None:
    """The number of the step that is about to be applied, from 1; None without an optimizer that counts."""
    iterations = internals_norms.iterations(place.optimizer)
    return int(np.asarray(iterations)) + place.next if iterations is not None else None


# -- graphs -----------------------------------------------------------------------------------------------------------


def in_graph(
    watch: Any, place: Place, given: Given, values: Sequence[Any], measures: Mapping[str, Any], losses: Sequence[Any]
) -> Any:
    """The gate as ops of the current graph; returns the tensor that the writes must wait for."""
    import tensorflow as tf

    if not place.thresholds:
        return None
    carrier, asked = around(watch, place, given)
    step = steps.current()
    symbols = step.tensors() if step is not None else []
    with internals_callbacks.without_op_callbacks(), tf.name_scope("tfdb_norms"):
        fine, known = decided(place, measures, losses, asked)
        sliced = [is_sliced(value) for value in values]
        parts = [[value.values, value.indices] if is_sliced(value) else [value] for value in values]
        carried = [*itertools.chain(*parts), *symbols]

        def fire(over: Any, matrix: Any, numbers: Any, number: Any, *rest: Any) -> None:
            arrays, carried = gathered(rest, sliced)
            values = {id(symbol): value for symbol, value in zip(symbols, carried, strict=False)}
            found = over.numpy(), matrix.numpy(), numbers.numpy()
            tell(watch, place, *found, int(number), arrays, carried[len(symbols) :], began=(step, values))

        def told() -> Any:
            columns = whole(measures)
            verdicts = [
                verdict(t, places, place, columns, losses, asked) if passed is None else passed
                for (t, places), passed in zip(place.thresholds, known, strict=True)
            ]
            numbers = tf.stack(list(losses)) if losses else tf.zeros([0])
            matrix = tf.stack(list(columns.values())) if columns else tf.zeros([0, len(place.names)])
            copies = internals_norms.Copies(internals.current_graph())
            given = [*map(internals_norms.apart, carried), *map(copies.of, carrier.tensors)]
            return internals.call_in_branch(fire, [tf.stack(verdicts), matrix, numbers, step_in_graph(place), *given])

        return internals.unless(fine, told)


def decided(
    place: Place, measures: Mapping[str, Any], losses: Sequence[Any], asked: normexpr.Asked
) -> tuple[Any, list[Any]]:
    """Whether every threshold is surely not passed, and the verdicts that are known; None for one to be had later.

    One comparison does for most: the exact verdict is for the branch that is taken when it fails.
    """
    import tensorflow as tf

    do = arithmetic()
    within = [far_within(threshold, places, measures, do) for threshold, places in place.thresholds]
    columns = whole(measures) if any(each is None for each in within) else {}
    known = [
        verdict(threshold, places, place, columns, losses, asked) if each is None else None
        for (threshold, places), each in zip(place.thresholds, within, strict=True)
    ]
    fine = [each if over is None else tf.logical_not(over) for each, over in zip(within, known, strict=True)]
    return functools.reduce(tf.logical_and, fine), known


def around(watch: Any, place: Place, given: Given) -> tuple[frames.Carrier, normexpr.Asked]:
    """Keep the user's frames for the place; the tensors that those need, and the names that expressions may use."""
    carrier, call = frames.Carrier(internals.current_graph()), watch.calls.current()
    activations = normexpr.inside(given.frame, call)
    place.traced = normexpr.carried(activations, carrier)
    return carrier, normexpr.Asked({**watch.slopes.names(), **normexpr.names_at(activations, call)})


def verdict(
    threshold: Threshold, places: list[int], place: Place, measures: Any, losses: Any, asked: normexpr.Asked
) -> Any:
    """Whether a threshold is passed, as a scalar bool tensor."""
    import tensorflow as tf

    if threshold.kind == "expression":
        return asked.verdict(threshold.expression)
    value = is_over(threshold, places, place, measures, tf.stack(list(losses)) if losses else None, arithmetic())
    return tf.constant(False) if value is None else tf.reduce_any(exceeds(threshold, value))


def step_in_graph(place: Place) -> Any:
    """The number of the step as an int64 tensor; 0 without an optimizer that counts."""
    import tensorflow as tf

    iterations = internals_norms.iterations(place.optimizer)
    if iterations is None:
        return tf.constant(0, tf.int64)
    return tf.cast(tf.convert_to_tensor(internals_gate.unwrapped(iterations)), tf.int64) + place.next


def gathered(values: Sequence[Any], sliced: Sequence[bool]) -> tuple[list[np.ndarray], list[Any]]:
    """What a branch was given: the gradients' elements, and the rest, which are the locals."""
    rest = list(values)
    arrays = []
    for is_pair in sliced:
        first = np.asarray(rest.pop(0))
        arrays.append(added_up(first, np.asarray(rest.pop(0))) if is_pair else first)
    return arrays, rest


def tell(
    watch: Any,
    place: Place,
    over: np.ndarray,
    matrix: np.ndarray,
    losses: np.ndarray,
    step: int,
    arrays: Sequence[np.ndarray] | None,
    carried: Sequence[Any],
    xla: bool = False,
    began: tuple[steps.Step | None, Mapping[int, Any]] = (None, {}),
) -> None:
    """Hand over each threshold that was passed; runs on one of TensorFlow's threads, or after a compiled call."""
    if not watch.is_on:
        return
    call = watch.calls.current()
    known = dict(zip(place.columns, matrix, strict=True))
    full = exactly(COLUMNS, arrays) if arrays and place.kind == "gradient" else None
    inside = normexpr.passed(place.traced, None if xla else carried)
    stack = (*blame.live_frames(call.frame if call else None), *inside)
    number = step or (call.number if call else None)
    for (threshold, places), passed in zip(place.thresholds, over, strict=True):
        if passed:
            is_limit = threshold.kind != "expression"
            value = is_over(threshold, places, place, known, losses, NUMPY) if is_limit else True
            watch.cross(Crossing(threshold, place, value, known, full, list(losses), stack, number, xla, None, *began))


# -- XLA --------------------------------------------------------------------------------------------------------------


def under_xla(watch: Any, place: Place, given: Given, measures: Mapping[str, Any], losses: Sequence[Any]) -> Any:
    """Whether the writes may go on, as a bool tensor; the verdict goes to a variable that `after_compiled` reads."""
    import tensorflow as tf

    if not place.thresholds:
        return None
    _, asked = around(watch, place, given)
    over = tf.stack([verdict(t, places, place, measures, losses, asked) for t, places in place.thresholds])
    parts = [
        tf.cast(over, tf.float32),
        *[measures[name] for name in place.columns],
        *[tf.reshape(x, [1]) for x in losses],
    ]
    told = tf.concat(parts, 0)
    with tf.init_scope():
        flag = internals_gate.plain_variable(tf.zeros(told.shape), "tfdb_verdict")
    tf.raw_ops.AssignVariableOp(resource=flag.handle, value=told)
    watch.fresh.append((place, flag))
    return tf.logical_not(tf.reduce_any(over))
