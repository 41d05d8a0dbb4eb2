"""What was measured, or gradients computed on demand -> the rows of `grads`, in the model's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import internals, sites
from .errors import TfdbError
from .gate import Trip
from .gradhistory import Book, Ring
from .gradtable import Row, row
from .normlook import Crossing, plain
from .norms import exactly, is_floating, size_of
from .thresholds import COLUMNS, SQUARES
from .varnames import name_of


def recorded(book: Book, crossing: Crossing | None) -> list[Row]:
    """The rows of the last step, or, at a threshold's stop, of the step that is about to be applied."""
    numbers: dict[str, dict[str, float]] = {}
    trends: dict[str, list[float]] = {}
    facts: dict[str, tuple[tuple[int | None, ...], int]] = {}
    for ring in book.rings.values():
        for index, name in enumerate(ring.names):
            facts[name] = ring.shapes[index], ring.sizes[index]
            looks = ring.looks()[:, :, index]
            if len(looks):
                numbers.setdefault(name, {}).update(zip(ring.columns, looks[-1], strict=True))
                if SQUARES in ring.columns:
                    trends[name] = [float(value) for value in looks[:, ring.columns.index(SQUARES)]]
    if crossing is not None and crossing.full is not None:
        for index, name in enumerate(crossing.place.names):
            numbers[name] = {column: values[index] for column, values in crossing.full.items()}
    live = [name for name in facts if name in numbers and name not in book.none]
    rows = [row(name, *facts[name], numbers[name], trends.get(name, ())) for name in live]
    rows += [Row(name, book.shapes[name], lost=True) for name in book.none]
    places = {name: place for place, name in enumerate(book.shapes)}
    return sorted(rows, key=lambda each: places.get(each.name, len(places)))


def steps_kept(rings: Sequence[Ring]) -> int:
    """How many steps the longest history holds."""
    return max((len(ring.looks()) for ring in rings), default=0)


def on_demand(loss: Callable[[], Any], sources: Callable[[], Any] | None) -> list[Row]:
    """The rows of gradients of a loss that is computed now, for the variables it reads or for `sources`.

    Raises:
        TfdbError: the loss is no tensor, or nothing that it is computed of is a variable.
    """
    import tensorflow as tf

    with internals.eager(), tf.GradientTape(persistent=False) as tape:
        wanted = list(sites.flat([sources()])) if sources is not None else []
        tensors = [value for value in wanted if not hasattr(value, "assign")]
        for tensor in tensors:
            tape.watch(tensor)
        value = loss()
        if not is_floating(value):
            raise TfdbError("the loss must be a tensor of floats")
        read = list(tape.watched_variables())
    leaves = wanted or read
    if not read and not tensors:
        raise TfdbError("nothing is computed there: give an expression that runs the model, as loss_fn(y, model(x))")
    gradients = tape.gradient(value, leaves)
    return list(rows_of(leaves, gradients))


def rows_of(leaves: Sequence[Any], gradients: Sequence[Any]) -> Iterator[Row]:
    """A row for each variable or tensor and its gradient."""
    for number, (leaf, gradient) in enumerate(zip(leaves, gradients, strict=True)):
        name = name_of(leaf) if hasattr(leaf, "assign") else f"source {number}"
        yield computed(name, tuple(leaf.shape), size_of(leaf), gradient)


def rows_named(gradients: Sequence[tuple[str, Any]]) -> list[Row]:
    """A row for each gradient, by its variable's name."""
    shapes = [tuple(getattr(gradient, "shape", None) or ()) for _, gradient in gradients]
    pairs = zip(gradients, shapes, strict=True)
    return [computed(name, shape, int(np.prod(shape)) if None not in shape else 0, g) for (name, g), shape in pairs]


def of_trip(trip: Trip) -> list[Row]:
    """The rows of what was to be applied when a gate tripped.

    Where only the step run again has them, a row is left blank that is bad there and was not in the graph, or the
    other way round: fused ops may treat NaN otherwise, and a wrong number is worse than none.
    """
    rows = rows_named(trip.gradients)
    if not trip.again:
        return rows
    known = dict(zip(trip.place.names[: trip.place.weights], map(bool, trip.bad), strict=False)) if not trip.xla else {}
    return [row if known.get(row.name, row.bad) == row.bad else Row(row.name, row.shape) for row in rows]


def computed(name: str, shape: tuple[int | None, ...], size: int, gradient: Any) -> Row:
    """The row of a gradient whose values are at hand; None is one that is lost."""
    if gradient is None:
        return Row(name, shape, lost=True)
    columns = exactly(COLUMNS, [np.asarray(plain(gradient))])
    return row(name, shape, size, {column: float(values[0]) for column, values in columns.items()})
