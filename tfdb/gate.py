"""Gradients, updates and outputs of a training step -> one predicate, and a Trip when it fails.

In a graph the check is one sum of everything and one branch; the branch carries the values and the step's inputs and
takes nothing when the sum is finite, so it costs next to nothing.  NaN and infinities survive a sum, but one of finite
numbers may overflow: the branch looks at every element before anything is said.  The weights change only after the
gate.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import internals, internals_callbacks, internals_gate, internals_keras, steps, varnames
from .conditions import Watch, badness, concerns, worst
from .errors import Quit
from .steps import Call, Step
from .turns import Turns

RATE = "learning rate"  # its name at a gate of gradients, where finite ones and this decide whether updates are finite


@dataclass(eq=False)
class Place:
    """One gate: what it looks at (`kind`: gradient, update, variable, output or scaled) and under which names.

    The first `weights` names are those of variables, where a gate looks at other values too.  `optimizer` is the one
    whose update it stands before, None for writes by hand; `before` are the counters that
    eager code wrote ahead of it, with what they held.
    """

    step: Step | None
    kind: str
    names: tuple[str, ...]
    weights: int | None = None
    number: int = 0
    trips: int = 0
    skipped: int = 0
    last: float = 0.0
    spot: tuple[Any, int] | None = None  # its graph, and how many ops that had before it
    optimizer: Any = None
    before: tuple[tuple[Any, Any], ...] = ()


@dataclass(eq=False)
class Trip:
    """A gate that failed: the weights are as before the step.

    `arrays` are the values it looked at (in a graph, NaN, inf or 0 for each), `bad` their kinds ("nan", "inf", "");
    `values` are the step's inputs by the id of their symbol; `call` is the graph call that Python made, None in eager
    code, where `frame` is the stack.
    """

    place: Place
    watch: Watch
    reason: str
    arrays: tuple[np.ndarray, ...]
    bad: tuple[str, ...]
    values: dict[int, Any] = field(default_factory=dict)
    call: Call | None = None
    frame: Any = None
    tensors: tuple[Any, ...] = ()
    notes: list[str] = field(default_factory=list)
    xla: bool = False
    gradients: Sequence[tuple[str, Any]] = ()  # what is to be applied, by the names of the variables; None is kept
    again: bool = False  # `gradients` are those of the step run again
    masked: bool = False  # the program keeps the bad values from the weights itself
    began: Step | None = None  # the step that `values` are of, where the gate is a threshold's

    @property
    def step(self) -> Step | None:
        """The step whose inputs came with the trip."""
        return self.place.step or self.began

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables that bad values were on their way into (of the outputs, for an output gate)."""
        named = zip(self.place.names[: self.place.weights], self.bad, strict=False)
        return tuple(name for name, kind in named if kind)

    @property
    def watched(self) -> int:
        """How many variables' values the gate looked at."""
        return len(self.place.names[: self.place.weights])


class Local(threading.local):
    """What is so on one thread; a name missing there would be looked up at every step, slowly."""

    busy = 0
    tapes = 0
    ungated = False
    skipping: Any = None
    held: Any = None
    passed: Any = None
    deferred: Any = None


class Gate:
    """The state of watching: what for, whom to tell, and what goes on now."""

    def __init__(self) -> None:
        self.watches: tuple[Watch, ...] = ()
        self.on_trip: Callable[[Trip], None] = lambda trip: None
        self.is_told: Callable[[Trip], bool] = lambda trip: False
        self.active = False
        self.scaling = False
        self.turns = Turns()
        self.lock = self.turns.lock
        self.local = Local()
        self.calls = steps.Calls()
        self.meant: BaseException | None = None
        self.notes: list[str] = []
        self.hits: dict[Watch, int] = {}
        self.passed_over: dict[Watch, int] = {}

    @property
    def busy(self) -> bool:
        """Whether nothing watches for bad values, or this thread is `aside`."""
        return self.aside or not self.active

    @property
    def aside(self) -> bool:
        """Whether this thread works for the debugger now, or inside an optimizer that was looked at already."""
        return self.local.busy > 0

    @property
    def judges_values(self) -> bool:
        """Whether any watch is for bad values; `watch none` and `watch near` alone need no gate."""
        return any(watch.kind in ("nan", "inf") for watch in self.watches)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """No gate is made or asked on this thread inside the block."""
        self.local.busy += 1
        try:
            yield
        finally:
            self.local.busy -= 1

    def judge(self, kind: str, bad: Sequence[str]) -> tuple[Watch, str] | None:
        """The watch that bad values of a gate of this kind fall under, and the reason; None when they are meant.

        A non-finite value on its way into weights is a fault under either watch; outputs and small state may hold an
        infinity on purpose, and then only NaN counts unless infinities are watched for.
        """
        reason = worst(bad)
        if not reason:
            return None
        for name in kinds_of(kind, reason):
            if watch := next((w for w in self.watches if w.kind == name), None):
                return watch, reason
        return None

    def count(self, watch: Watch) -> bool:
        """Count a hit of the watch; whether its `every` wants this one."""
        self.hits[watch] = self.hits.get(watch, 0) + 1
        return (self.hits[watch] - 1) % watch.every == 0

    def concerned(self, trip: Trip, names: Sequence[str]) -> Watch | None:
        """The watch that a trip whose origin has these names falls under."""
        kinds = kinds_of(trip.place.kind, trip.reason)
        names = varnames.known_as(names) if any(watch.scope or watch.allow for watch in self.watches) else names
        return next((watch for kind in kinds if (watch := concerns(self.watches, kind, names))), None)

    def falling_under(self, trip: Trip, names: Sequence[str]) -> Watch | None:
        """The watch that a trip whose origin has these names is to stop for; others are counted as passed over."""
        kinds, found = kinds_of(trip.place.kind, trip.reason), self.concerned(trip, names)
        if found is None:
            for watch in self.watches:
                if watch.kind in kinds:
                    self.passed_over[watch] = self.passed_over.get(watch, 0) + 1
        return found if found is not None and self.count(found) else None

    def trip(self, trip: Trip) -> None:
        """Hand the trip over, one at a time; what `on_trip` raises ends the program's call.

        Whether a selective watch is meant is for `on_trip` to find out: see `falling_under`.  Graphs that `on_trip`
        itself runs pass their gates: it would wait for them, and they for it.
        """
        with self.turns.take() as mine:
            if not mine:
                return
            if self.meant is not None:
                raise self.meant
            if (trip.call is not None and trip.call.undo is not None) or self.is_told(trip):
                return  # the user has skipped what this call writes, or was told of this fault before
            if not trip.watch.selective and not self.count(trip.watch):
                return
            try:
                settings = (trip.call.settings if trip.call is not None else None) or {}
                with self.quiet(), internals_gate.eager_functions(), internals_keras.settings_of(settings):
                    self.on_trip(trip)
            except Quit as meant:
                self.meant = meant
                raise


UPDATING = ("gradient", "update", "scaled")  # kinds of places on the way into weights


def kinds_of(place: str, reason: str) -> list[str]:
    """The kinds of watches that a bad value at a place of this kind concerns, the likeliest first."""
    return [reason, "nan", "inf"] if place in UPDATING else [reason]


gate = Gate()


def plant(place: Place, tensors: Sequence[Any], gradients: Sequence[Any] = ()) -> Any:
    """Add a gate over floating tensors to the current graph; returns the tensor that what it guards must wait for.

    `gradients` are (name, value) pairs that come with a trip.  They must be among what the gate looks at: one more
    reader of a tensor keeps TensorFlow's optimizer from folding it into the next op, which changes bits.
    """
    import tensorflow as tf

    step = place.step
    assert step is not None
    if not gate.judges_values:
        return tf.constant(True)
    step.gates += 1
    step.updates = step.updates or place.kind in UPDATING
    place.number = step.gates
    place.spot = steps.spot()
    with internals_callbacks.without_op_callbacks(), tf.name_scope("tfdb_gate"):
        fine = tf.math.is_finite(whole(tensors))
        carried = step.tensors()
        applied = Applied(gradients)

        def tripped() -> Any:
            def told(found: Any, *values: Any) -> None:
                fire(place, carried, found, values[: len(carried)], applied.named(values[len(carried) :]))

            found = tf.stack([worst_element(tensor) for tensor in tensors])
            return internals.call_in_branch(told, [found, *carried, *applied.tensors])

        graph = internals.current_graph()
        done = [op for op in step.written if getattr(op, "graph", None) is graph]
        with tf.control_dependencies(done):  # a replay that starts before a write is done would undo that write
            passed = internals.unless(fine, tripped)
        return passed


def whole(tensors: Sequence[Any]) -> Any:
    """A float32 scalar, not finite when an element of some tensor is not; small tensors that are alike go together."""
    import tensorflow as tf

    groups: dict[Any, list[Any]] = {}
    for number, tensor in enumerate(tensors):
        groups.setdefault(likeness(tensor) or number, []).append(tensor)
    sums = [total(tf.add_n(group) if len(group) > 1 else group[0]) for group in groups.values()]
    return tf.add_n(sums) if len(sums) > 1 else sums[0]


def likeness(tensor: Any) -> tuple[Any, ...] | None:
    """What tensors have in common that can be added up without much memory, or a copy to another device."""
    count = tensor.shape.num_elements()
    if tensor.dtype.name not in WIDE or count is None or count >= LARGE:
        return None
    return tensor.dtype, tuple(tensor.shape), tensor.device


def total(tensor: Any) -> Any:
    """A float32 scalar, not finite when an element of the tensor is not; a sum of halves would overflow too soon."""
    import tensorflow as tf

    if tensor.dtype.is_complex:
        return total(tf.math.real(tensor)) + total(tf.math.imag(tensor))
    tensor = tensor if tensor.dtype.name in WIDE else tf.cast(tensor, tf.float32)
    if tensor.shape.rank == 0:
        return tf.cast(tensor, tf.float32)
    if (width := row_width(tensor.shape.num_elements())) is not None:
        tensor = tf.matmul(tf.reshape(tensor, [-1, width]), tf.ones([width, 1], tensor.dtype))
    return tf.cast(tf.reduce_sum(tensor), tf.float32)


def worst_element(tensor: Any) -> Any:
    """A float32 scalar: NaN when an element of the tensor is NaN, else inf when one is infinite, else 0."""
    import tensorflow as tf

    if tensor.dtype.is_complex:
        return worst_element(tf.math.real(tensor)) + worst_element(tf.math.imag(tensor))
    tensor = tensor if tensor.dtype.name in WIDE else tf.cast(tensor, tf.float32)
    found = [tf.reduce_any(tf.math.is_nan(tensor)), tf.reduce_any(tf.math.is_inf(tensor))]
    return tf.where(found[0], np.float32("nan"), tf.where(found[1], np.float32("inf"), np.float32(0.0)))


WIDE = ("float32", "float64")  # dtypes that are summed as they are
LARGE = 1 << 14  # elements, from which a product with a vector of ones is several times faster than a sum


def row_width(count: int | None) -> int | None:
    """The length of the rows that a large tensor is cut into to be summed; None where a plain sum does."""
    if count is None or count < LARGE:
        return None
    return next((width for width in range(1024, 127, -1) if count % width == 0), None)


class Applied:
    """Gradients on their way to a branch of the current graph: (name, value) pairs, IndexedSlices and None among them.

    `tensors` are what the branch takes.
    """

    def __init__(self, pairs: Sequence[Any]) -> None:
        import tensorflow as tf

        self.names = [name for name, _ in pairs]
        self.values = [value for _, value in pairs]
        self.parts = tf.nest.flatten(self.values, expand_composites=True)
        self.places = [index for index, part in enumerate(self.parts) if steps.portable(part)]
        self.tensors = [self.parts[index] for index in self.places]

    def named(self, values: Sequence[Any]) -> list[tuple[str, Any]]:
        """The pairs, with what the branch was given in the place of symbols."""
        import tensorflow as tf

        real = dict(zip(self.places, values, strict=True))
        parts = [real.get(index, part) for index, part in enumerate(self.parts)]
        packed = tf.nest.pack_sequence_as(self.values, parts, expand_composites=True)
        return list(zip(self.names, packed, strict=True))


def fire(
    place: Place, carried: Sequence[Any], found: Any, values: Sequence[Any], gradients: Sequence[tuple[str, Any]]
) -> None:
    """The branch that a failed predicate takes, on one of TensorFlow's threads."""
    if not gate.active:
        return
    arrays = tuple(np.asarray(value) for value in found.numpy())
    bad = tuple(badness(array) for array in arrays)
    judged = gate.judge(place.kind, bad)
    if judged is None or (place.kind == "scaled" and not is_run(place)):
        return
    known = {id(tensor): value for tensor, value in zip(carried, values, strict=True)}
    gate.trip(Trip(place, *judged, arrays, bad, known, gate.calls.current(), gradients=gradients))


RUN = 16  # skipped steps in a row: the usual initial loss scale of 2**15 is below 1 by then


def is_run(place: Place) -> bool:
    """Whether loss scaling has now skipped so many steps in a row that it cannot be looking for its scale any more."""
    call = gate.calls.current()
    number = call.number if call else place.trips
    place.skipped = place.skipped + 1 if number <= place.last + 1 else 1
    place.last = number
    first = float(getattr(place.optimizer, "initial_scale", 1.0) or 1.0)  # each skipped step halves it
    return place.skipped >= max(RUN, int(np.log2(max(first, 1.0))) + 1)


def floating(values: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], list[str]]:
    """The dense floating or complex tensors among `values` (of IndexedSlices, their values), with their names."""
    kept, labels = [], []
    for value, name in zip(values, names, strict=True):
        value = getattr(value, "values", value) if type(value).__name__ == "IndexedSlices" else value
        dtype = getattr(value, "dtype", None)
        if dtype is not None and (getattr(dtype, "is_floating", False) or getattr(dtype, "is_complex", False)):
            kept.append(value)
            labels.append(name)
    return kept, labels


def check_eager(place: Place, tensors: Sequence[Any], frame: Any, gradients: Sequence[Any] = ()) -> None:
    """The same gate in eager code: look now, and trip now."""
    if not gate.judges_values:
        return
    arrays = tuple(np.asarray(tensor) for tensor in tensors)
    with np.errstate(all="ignore"):
        if np.isfinite(sum(np.sum(array, dtype="c16" if array.dtype.kind == "c" else "f8") for array in arrays)):
            return
    bad = tuple(badness(array) for array in arrays)
    judged = gate.judge(place.kind, bad)
    if judged is None or (place.kind == "scaled" and not is_run(place)):
        return
    gate.trip(Trip(place, *judged, arrays, bad, frame=frame, tensors=tuple(tensors), gradients=gradients))
