"""An array -> its values as text, those in a span marked; statistics along an axis; a file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import render, summarize
from .errors import TfdbError
from .records import TableRow

FEW = 100  # elements up to which -r shows the values unasked
ELIDED = 1000  # elements that numpy shows of a longer array: its own threshold
MOST_VALUES = 1_000_000  # printed by -a; more are elided as numpy does
MOST_PLACES = 1 << 22  # elements above which only the first place is looked for
MOST_SLICES = 64  # lines of --axis
MARK, UNMARK = "\x1b[7m", "\x1b[0m"

Span = tuple[float, float]


def span(text: str) -> Span:
    """`LO,HI` as numbers; `nan` stands for NaN.

    Raises:
        TfdbError: it is not two numbers.
    """
    try:
        if text.strip() == "nan":
            return math.nan, math.nan
        low, high = (float(part) for part in text.strip("[]()").split(","))
    except ValueError:
        raise TfdbError(f"-r takes two numbers, LO,HI (or nan), not {text}") from None
    return low, high


def inside(array: np.ndarray, wanted: Span) -> np.ndarray:
    """Which elements lie in the span, its ends included.

    Raises:
        TfdbError: the elements are no numbers.
    """
    try:
        if math.isnan(wanted[0]):
            return np.isnan(array)
        return (array >= wanted[0]) & (array <= wanted[1])
    except TypeError as error:
        raise TfdbError(f"-r takes an array of numbers, not of {array.dtype}") from error


def span_text(array: np.ndarray, wanted: Span) -> str:
    """How many elements lie in a span, and where the first are."""
    mask = inside(array, wanted)
    count = int(mask.sum())
    name = "nan" if math.isnan(wanted[0]) else f"in [{render.number(wanted[0])}, {render.number(wanted[1])}]"
    if not count or not array.ndim:
        return f"{name}: {count} of {array.size}"
    places = np.argwhere(mask)[:4] if array.size <= MOST_PLACES else first_places(mask)
    shown = ", ".join(str(place.tolist()) for place in places[:3])
    return (
        f"{name}: {count} of {array.size} ({render.percent(count / array.size)}), at {shown}{' …' if count > 3 else ''}"
    )


def first_places(mask: np.ndarray) -> np.ndarray:
    """The place of the first true element of a huge array."""
    return np.array([np.unravel_index(int(np.argmax(mask)), mask.shape)])


def values_text(array: np.ndarray, width: int, marked: Span | None = None, color: bool = False) -> str:
    """The elements in numpy's notation, at most `width` columns a line; those in the span marked with * or reversed."""
    threshold = array.size + 1 if array.size <= MOST_VALUES else ELIDED
    note = "" if array.size <= MOST_VALUES else f"\n{array.size} elements: take a slice, or save them with -s FILE.npy"
    layout: dict[str, Any] = {"max_line_width": width, "threshold": threshold, "separator": ", "}
    if marked is not None and array.dtype.kind in "biuf":
        layout["formatter"] = {"all": marker(array, marked, color)}
    text = np.array2string(array, **layout)
    lines = text.split("\n")
    return "\n".join(line if color else render.shorten(line, width) for line in lines) + note


def marker(array: np.ndarray, marked: Span, color: bool) -> object:
    """The format of one element."""
    plain = [np.array2string(each) for each in array.reshape(-1)[:ELIDED]]
    wide = max(map(len, plain), default=1)

    def show(value: object) -> str:
        text = np.array2string(np.asarray(value)).rjust(wide)
        hit = bool(inside(np.asarray(value), marked))
        if color:
            return f"{MARK}{text}{UNMARK}" if hit else text
        return f"{text}*" if hit else f"{text} "

    return show


def axis_text(array: np.ndarray, axis: str, width: int, color: bool) -> str:
    """A line of statistics for each index of an axis.

    Raises:
        TfdbError: there is no such axis.
    """
    try:
        number = range(array.ndim)[int(axis)]
    except (ValueError, IndexError):
        raise TfdbError(f"--axis takes 0 to {array.ndim - 1} here, not {axis}") from None
    rows = tuple(axis_rows(array, number))
    text = render.tensor_table(rows, width, color)
    left = array.shape[number] - len(rows)
    return f"{text}\n… {left} more" if left else text


def axis_rows(array: np.ndarray, axis: int) -> Iterator[TableRow]:
    """The summaries of the slices along an axis."""
    for index in range(min(array.shape[axis], MOST_SLICES)):
        name = "[" + ", ".join(str(index) if n == axis else ":" for n in range(axis + 1)) + "]"
        yield TableRow(name, summarize.summarize(np.take(array, index, axis)))


def save(array: np.ndarray, path: str) -> str:
    """Write the array to a .npy file, dtypes that numpy does not know as float32; returns what was written.

    Raises:
        TfdbError: the file cannot be written.
    """
    note = ""
    if array.dtype.kind == "V":
        note, array = f" ({array.dtype.name} saved as float32)", array.astype(np.float32)
    try:
        with open(path, "wb") as file:
            np.save(file, array)
    except OSError as error:
        raise TfdbError(f"cannot write {path}: {error.strerror or error}") from error
    return f"{path}: {array.dtype.name}{array.shape} {render.size_text(array.nbytes)}{note}"
