"""An array -> its values as text, those in a span marked; statistics along an axis; a file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import blocks, render, summarize
from .errors import TfdbError
from .records import Stored, TableRow

FEW = 100  # elements up to which -r shows the values unasked
ELIDED = 1000  # elements that numpy shows of a longer array: its own threshold
MOST_VALUES = 100_000  # printed by -a; more are elided as numpy does
MOST_PLACES = 1 << 22  # elements above which only the first place is looked for
MOST_SLICES = 64  # lines of --axis
MOST_ROWS = 10_000  # lines of a ragged or sparse value
NAMED_AXES = 4  # axes whose colons are written out in a slice's name
MARK, UNMARK = "\x1b[7m", "\x1b[0m"

Span = tuple[float, float]


def span(text: str) -> Span:
    """`LO,HI` as numbers; `nan` stands for NaN.

    Raises:
        TfdbError: it is not two numbers, the lower first.
    """
    try:
        if text.strip() == "nan":
            return math.nan, math.nan
        low, high = (float(part) for part in text.strip("[]()").split(","))
    except ValueError:
        raise TfdbError(f"-r takes two numbers, LO,HI (or nan), not {text}") from None
    if not low <= high:
        raise TfdbError(f"-r takes the lower number first, not {text}")
    return low, high


def comparable(array: np.ndarray) -> np.ndarray:
    """The array in a type that numpy compares and prints well; complex numbers stay as they are.

    Raises:
        TfdbError: the elements are no numbers.
    """
    if not blocks.is_numeric(array.dtype):
        raise TfdbError(f"-r takes an array of numbers, not of {summarize.dtype_name(array)}")
    return blocks.as_plain(array) if blocks.is_small(array.dtype) else array


def inside(array: np.ndarray, wanted: Span) -> np.ndarray:
    """Which elements lie in the span, its ends included; of complex numbers the magnitudes.

    Raises:
        TfdbError: the elements are no numbers.
    """
    array = comparable(array)
    with np.errstate(all="ignore"):
        if math.isnan(wanted[0]):
            return np.isnan(array)
        array = np.abs(array) if array.dtype.kind == "c" else array
        return (array >= wanted[0]) & (array <= wanted[1])


def span_text(value: Stored, wanted: Span) -> str:
    """How many elements lie in a span, and where the first are."""
    array = value.array
    mask = inside(array, wanted)
    count = int(mask.sum())
    of = "magnitude " if array.dtype.kind == "c" and not math.isnan(wanted[0]) else ""
    name = "nan" if math.isnan(wanted[0]) else f"{of}in [{render.number(wanted[0])}, {render.number(wanted[1])}]"
    if not count or not array.ndim:
        return f"{name}: {count} of {array.size}"
    places = np.argwhere(mask)[:4] if array.size <= MOST_PLACES else first_places(mask)
    shown = ", ".join(str(list(value.at(tuple(place.tolist())))) for place in places[:3])
    share = render.percent(count / array.size)
    return f"{name}: {count} of {array.size} ({share}), at {shown}{' …' if count > len(places[:3]) else ''}"


def first_places(mask: np.ndarray) -> np.ndarray:
    """The place of the first true element of a huge array."""
    return np.array([np.unravel_index(int(np.argmax(mask)), mask.shape)])


def stored_text(value: Stored, width: int, marked: Span | None = None, color: bool = False) -> str:
    """The elements of a value; of one that stores a part of them, a line for each row or place."""
    if not value.layout:
        return values_text(value.array, width, marked, color)
    names = list(rows(value, MOST_ROWS + 1))
    wide = max((len(str(list(place))) for place, _ in names[:MOST_ROWS]), default=0)
    lines = []
    for place, part in names[:MOST_ROWS]:
        text = values_text(value.array[part], max(width - wide - 2, 20), marked, color)
        first, *more = text.split("\n")
        lines.append(f"{str(list(place)):<{wide}}  {first}")
        lines += [" " * (wide + 2) + line for line in more]
    if len(names) > MOST_ROWS:
        lines.append("…")
    return "\n".join(lines) or "nothing is stored"


def rows(value: Stored, most: int) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The first rows of a ragged value, or places of a sparse one, each with where its elements are stored."""
    if value.kind != "ragged":
        for number, place in enumerate(value.layout[0][:most]):
            yield tuple(int(i) for i in np.atleast_1d(place)), number
        return
    splits = value.layout[-1]
    for number in range(min(len(splits) - 1, most)):
        yield row_place(value.layout[:-1], number), slice(int(splits[number]), int(splits[number + 1]))


def row_place(outer: tuple[np.ndarray, ...], row: int) -> tuple[int, ...]:
    """Where an innermost row is, by the row splits around it."""
    place: tuple[int, ...] = ()
    for splits in reversed(outer):
        above = int(np.searchsorted(splits, row, side="right")) - 1
        place, row = (row - int(splits[above]), *place), above
    return (row, *place)


def values_text(array: np.ndarray, width: int, marked: Span | None = None, color: bool = False) -> str:
    """The elements in numpy's notation, at most `width` columns a line; those in the span marked with * or reversed."""
    threshold = array.size + 1 if array.size <= MOST_VALUES else ELIDED
    note = "" if array.size <= MOST_VALUES else f"\n{array.size} elements: take a slice, or save them with -s FILE.npy"
    layout: dict[str, Any] = {"max_line_width": width, "threshold": threshold, "separator": ", "}
    numeric = blocks.is_numeric(array.dtype)
    array = comparable(array) if numeric else array
    if marked is not None and numeric:
        layout["formatter"] = {"all": marker(array, marked, color)}
    elif array.dtype.kind in "OSUT":
        layout["formatter"] = {"all": element}
    text = np.array2string(array, **layout)
    lines = (line if MARK in line else render.shorten(line, width) for line in text.split("\n"))
    return "\n".join(lines) + note


def element(value: object) -> str:
    """One text or object."""
    if isinstance(value, str | bytes):
        return repr(value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value))
    return summarize.short_text(value)


def marker(array: np.ndarray, marked: Span, color: bool) -> object:
    """The format of one element."""
    wide = max((len(digits(each)) for each in array.reshape(-1)[:ELIDED]), default=1)
    nan = math.isnan(marked[0])

    def show(value: Any) -> str:
        text = digits(value).rjust(wide)
        size = abs(value) if isinstance(value, np.complexfloating) else value
        hit = bool(np.isnan(value) if nan else marked[0] <= size <= marked[1])
        if color:
            return f"{MARK}{text}{UNMARK}" if hit else text
        return f"{text}*" if hit else f"{text} "

    return show


def digits(value: Any) -> str:
    """One number as numpy prints it in an array, in the fewest digits that tell it from others, at most eight."""
    if isinstance(value, np.complexfloating):
        return np.array2string(np.asarray(value))
    text = f"{value:.8g}" if isinstance(value, float) else str(value)
    text = text.removesuffix("0") if text.endswith(".0") else text
    return f"{text}." if isinstance(value, float) and text.lstrip("-").isdigit() else text


def axis_text(value: Stored, axis: str, width: int, color: bool) -> str:
    """A line of statistics for each index of an axis; of a ragged value for each of its rows.

    Raises:
        TfdbError: there is no such axis.
    """
    array = value.array
    if value.layout:
        return row_statistics(value, axis, width, color)
    if not array.ndim:
        raise TfdbError("--axis takes a tensor with axes, this is a scalar")
    try:
        number = range(array.ndim)[int(axis)]
    except (ValueError, IndexError):
        raise TfdbError(f"--axis takes 0 to {array.ndim - 1} here, not {axis}") from None
    if not array.shape[number]:
        return f"axis {number} is empty"
    rows = tuple(axis_rows(array, number))
    text = render.tensor_table(rows, width, color)
    left = array.shape[number] - len(rows)
    return f"{text}\n… {left} more" if left else text


def axis_rows(array: np.ndarray, axis: int) -> Iterator[TableRow]:
    """The summaries of the slices along an axis."""
    for index in range(min(array.shape[axis], MOST_SLICES)):
        part = np.moveaxis(array, axis, 0)[index]
        yield TableRow(slice_name(array.ndim, axis, index), summarize.summarize(part))


def slice_name(axes: int, axis: int, index: int) -> str:
    """How Python writes the slice at an index of an axis, the shorter way."""
    if axis < NAMED_AXES:
        return f"[{', '.join([*[':'] * axis, str(index)])}]"
    if axes - axis <= NAMED_AXES:
        return f"[{', '.join(['...', str(index), *[':'] * (axes - axis - 1)])}]"
    return f"axis {axis}: {index}"


def row_statistics(value: Stored, axis: str, width: int, color: bool) -> str:
    """A line of statistics for each row of a ragged value.

    Raises:
        TfdbError: it is another kind of value, or another axis.
    """
    if value.kind != "ragged":
        raise TfdbError("--axis takes dense and ragged tensors: tf.sparse.to_dense(x), tf.convert_to_tensor(x)")
    if axis not in ("0", str(-len(value.shape or ()))):
        raise TfdbError(f"--axis takes 0 for a ragged tensor, not {axis}")
    splits = value.layout[0]
    for inner in value.layout[1:]:
        splits = inner[splits]
    parts = [value.array[splits[n] : splits[n + 1]] for n in range(min(len(splits) - 1, MOST_SLICES))]
    table = tuple(TableRow(f"[{n}]", summarize.summarize(part)) for n, part in enumerate(parts))
    left = len(splits) - 1 - len(parts)
    text = render.tensor_table(table, width, color) if table else "no rows"
    return f"{text}\n… {left} more" if left else text


def save(value: Stored, path: str) -> str:
    """Write the array to a .npy file, dtypes that numpy does not know as float32; returns what was written.

    Raises:
        TfdbError: the file cannot be written.
    """
    array, path = value.array, os.path.expanduser(path)
    notes = ["the stored values alone"] if value.layout else []
    if array.dtype.kind == "V" and blocks.is_numeric(array.dtype):
        notes.append(f"{array.dtype.name} saved as float32")
        array = array.astype(np.float32)
    elif array.dtype.kind == "O":
        array, note = plain_texts(array)
        notes.append(note)
    try:
        with open(path, "wb") as file:
            np.save(file, array)
    except OSError as error:
        raise TfdbError(f"cannot write {path}: {error.strerror or error}") from error
    except Exception as error:  # objects that cannot be pickled
        os.unlink(path)
        raise TfdbError(f"cannot write {path}: {type(error).__name__}") from error
    name = summarize.dtype_name(array)
    note = f" ({', '.join(notes)})" if notes else ""
    return f"{path}: {name}{array.shape} {render.size_text(array.nbytes)}{note}"


def plain_texts(array: np.ndarray) -> tuple[np.ndarray, str]:
    """Texts in an array that np.load reads, where they survive it; and what to say."""
    if array.size and all(isinstance(each, bytes) for each in array.flat):
        made = array.astype(np.bytes_)
        if np.array_equal(made.astype(object), array):
            return made, "as bytes"
    return array, "objects: np.load takes allow_pickle=True"
