"""What the doors do while a step is run again: nothing is updated, and the first bad value at a door ends the pass.

The weights already are as the tripped gate saw them, so updates of them are left out; small state was put back to the
step's start, is written as usual, and is put back again afterwards.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import internals_callbacks, internals_gate, steps
from .conditions import badness
from .varnames import name_of


class Local(threading.local):
    """What is so on one thread; a name missing there would be looked up at every step, slowly."""

    current: Any = None
    inside = False


local = Local()
REREADING = 60.0  # seconds, at most, that a loop over a dataset is read again for: it may have no end


class Reached(BaseException):
    """The pass has come to a bad value at a door.  Not an Exception: the program must not catch it."""


@dataclass(eq=False)
class Pass:
    """One eager pass: the bad values met at doors, and every variable's value before this pass wrote to it.

    `targets` are tensors of the last door, `losses` those that gradients were taken of, `gradients` all that were last
    to be applied, by the names of their variables, `updates` how often finite values were written, `written` bad values
    that went into small state.  `updating` says that the gate that tripped was the update's: optimizers compute theirs.
    `differentiated` are the ranges of ops that tapes ran for their gradients.
    `rereads` lets iterators that this pass made (`begun`) read their datasets, until the time `reading_until`; what
    they give goes to `take`.
    """

    updating: bool = False
    tape: bool = False
    drawn: list[Any] = field(default_factory=list)
    targets: list[Any] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    written: list[Any] = field(default_factory=list)
    where: str = ""
    names: list[str] = field(default_factory=list)
    updates: int = 0
    watched: int = 0
    gradients: list[tuple[str, Any]] = field(default_factory=list)
    kept: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    collecting: list[tuple[Any, Any]] | None = None
    weights: set[int] = field(default_factory=set)
    scaled: bool = False
    position: Callable[[], int] = lambda: 0
    differentiated: list[tuple[int, int]] = field(default_factory=list)
    update_start: int | None = None
    update_end: int | None = None
    rereads: bool = False
    begun: list[Any] = field(default_factory=list)
    reading_until: float | None = None
    take: Callable[[Sequence[Any]], None] = lambda values: None

    def keep(self, variable: Any) -> None:
        """Remember the variable's value, once."""
        if id(variable) not in self.kept:
            self.kept[id(variable)] = (variable, variable.read_value())

    def put(self, before: Sequence[tuple[Any, Any]]) -> None:
        """Give variables these values, until `restore`."""
        for variable, value in before:
            self.keep(variable)
            variable.assign(value)

    def restore(self) -> None:
        """Put every written variable back."""
        for variable, value in self.kept.values():
            variable.assign(value)
        self.kept.clear()

    def look(self, values: Sequence[Any], names: Sequence[str], where: str) -> bool:
        """Whether any value is bad; then they become the targets."""
        kinds = [kind_of(value) for value in values]
        if not any(kinds):
            return False
        self.targets = [dense(value) for value, kind in zip(values, kinds, strict=True) if kind]
        self.names = [name for name, kind in zip(names, kinds, strict=True) if kind]
        self.watched, self.where = len(values), where
        return True


def active() -> bool:
    """Whether this thread is running a step again."""
    return local.current is not None


def beside() -> bool:
    """Whether this is a replica that has not come to its update, for which the update of another waits."""
    run = local.current
    if run is None or run.collecting is None or local.inside:
        return False
    return isinstance(threading.current_thread(), internals_gate.replica_thread_class())


def dense(value: Any) -> Any:
    """The tensor itself, or the values of IndexedSlices."""
    return value.values if type(value).__name__ == "IndexedSlices" else value


def kind_of(value: Any) -> str:
    """The `badness` of a tensor or array; '' for what has no float values."""
    value = dense(value)
    dtype = getattr(value, "dtype", None)
    if dtype is None or not (getattr(dtype, "is_floating", False) or getattr(dtype, "is_complex", False)):
        return badness(value) if isinstance(value, np.ndarray) else ""
    try:
        return badness(np.asarray(value))
    except (TypeError, ValueError, NotImplementedError):
        return ""


def given(
    optimizer: Any, method: str, grads: Any, args: Any, kwargs: Any
) -> tuple[list[tuple[Any, Any]] | None, list[Any], list[Any]]:
    """What an optimizer is to apply: its pairs, where it takes pairs; the gradients; the variable of each or None."""
    if method == "apply_gradients":
        pairs = [tuple(pair) for pair in grads]
        return pairs, [g for g, _ in pairs], [v for _, v in pairs]
    gradients = list(grads)
    variables = args[0] if args else kwargs.get("trainable_variables")
    variables = list(getattr(optimizer, "_trainable_variables", []) if variables is None else variables)
    return None, gradients, variables if len(variables) == len(gradients) else [None] * len(gradients)


def apply(
    optimizer: Any, method: str, scaled: bool, original: Callable[..., Any], grads: Any, args: Any, kwargs: Any
) -> Any:
    """An optimizer's door: ends the pass when a gradient or, if asked for, an update is bad; else changes nothing."""
    run: Pass = local.current
    if local.inside:
        return original(optimizer, grads, *args, **kwargs)
    pairs, gradients, variables = given(optimizer, method, grads, args, kwargs)
    names = [name_of(variable) for variable in variables]
    run.scaled = run.scaled or scaled
    run.gradients = list(zip(names, gradients, strict=False))
    if run.look(gradients, names, "gradient"):
        raise Reached
    run.updates += 1
    if run.updating:
        compute_update(run, original, optimizer, pairs if pairs is not None else gradients, variables, args, kwargs)
    return getattr(optimizer, "iterations", None)


def compute_update(
    run: Pass, original: Any, optimizer: Any, grads: Any, variables: Any, args: Any, kwargs: Any
) -> None:
    """Run the optimizer with its writes to weights collected; ends the pass when one is bad.

    Replicas meet inside of it: the first to come here may go on as the last.
    """
    if run.collecting is None:
        run.collecting, run.update_start, run.update_end = [], run.position(), None
    collected = run.collecting
    run.weights |= {id(part) for v in variables if v is not None for part in internals_gate.components(v)}
    local.inside = True
    try:
        original(optimizer, grads, *args, **kwargs)
    finally:
        local.inside, run.collecting, run.update_end = False, None, run.position()
    if run.look([value for _, value in collected], [name_of(v) for v, _ in collected], "update"):
        raise Reached


def assign(original: Callable[..., Any], method: str, variable: Any, value: Any, args: Any, kwargs: Any) -> Any:
    """A write: of weights left out after a look, of small state done and put back later."""
    run: Pass = local.current
    if run.collecting is not None and id(variable) in run.weights:
        run.collecting.append((variable, value))
        return variable
    if run.collecting is None and (variable.trainable or not steps.is_small(variable)):
        if run.look([value], [name_of(variable)], "update"):
            raise Reached
        run.updates += bool(variable.trainable)
        return variable
    if kind_of(value):
        run.written.append(dense(value))
    else:
        run.updates += 1
    run.keep(variable)
    return original(variable, value, *args, **kwargs)


def creating(original: Callable[..., None]) -> Callable[..., None]:
    """An iterator begins on a dataset: one that a pass makes is its own to read."""

    def _create_iterator(iterator: Any, dataset: Any) -> None:
        original(iterator, dataset)
        if active():
            local.current.begun.append(iterator)

    return _create_iterator


def draw(iterator: Any, original: Callable[[Any], Any]) -> Any:
    """An iterator's door: the elements of the step again, in their order; the program's iterator is left alone."""
    run: Pass = local.current
    while run.drawn:
        element = run.drawn.pop(0)
        if fits(element, iterator):
            run.begun = [each for each in run.begun if each is not iterator]
            return element
        if isinstance(element, tuple):  # a graph loops over enumerate(dataset) or zip(one, other) as over one dataset
            run.drawn[:0] = element
    if run.rereads and any(each is iterator for each in run.begun):
        return reread(run, iterator, original)
    last = last_drawn.get(id(iterator))
    if last is None or last[0] is not iterator:
        raise StopIteration
    return last[1]


def reread(run: Pass, iterator: Any, original: Callable[[Any], Any]) -> Any:
    """The next element of a dataset that the pass reads for itself."""
    import tensorflow as tf

    now = time.monotonic()
    if run.reading_until is None:
        run.reading_until = now + REREADING
    if now > run.reading_until:
        raise StopIteration
    with internals_callbacks.without_op_callbacks():
        element = original(iterator)
    run.take(tf.nest.flatten(element, expand_composites=True))
    return element


def fits(element: Any, iterator: Any) -> bool:
    """Whether an element may be one of this iterator's."""
    import tensorflow as tf

    spec = getattr(iterator, "element_spec", None)
    try:
        tf.nest.assert_same_structure(spec, element, expand_composites=True)
    except (ValueError, TypeError):
        return spec is None
    pairs = zip(tf.nest.flatten(spec, True), tf.nest.flatten(element, True), strict=True)
    return all(getattr(s, "dtype", None) == getattr(v, "dtype", None) for s, v in pairs)


last_drawn: dict[int, tuple[Any, Any]] = {}


def gradient(original: Callable[..., Any], tape: Any, target: Any, sources: Any, args: Any, kwargs: Any) -> Any:
    """The tape's door: keeps what gradients are taken of, when it is bad itself."""
    import tensorflow as tf

    run: Pass = local.current
    run.losses += [value for value in tf.nest.flatten(target) if kind_of(value)]
    start = run.position()
    gradients = original(tape, target, sources, *args, **kwargs)
    run.differentiated.append((start, run.position()))
    values, names = tf.nest.flatten(gradients), [name_of(v) for v in tf.nest.flatten(sources)]
    if len(values) == len(names):
        run.gradients = list(zip(names, values, strict=True))
    if run.tape and len(values) == len(names) and run.look(values, names, "gradient"):
        raise Reached
    return gradients
