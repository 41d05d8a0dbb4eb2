"""Two arrays -> what differs: shapes and dtypes first, then the largest difference, where, and where they are close.

Integers are compared exactly. All but the test for equality is done for the elements that differ alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import blocks, render, summarize
from .records import Stored, shape_text

PIECE = 1 << 17  # elements compared at once: all that is made of them stays in the cache
MOST_DENSE = 1 << 24  # elements up to which a sparse value is filled up to be compared
# Relative and absolute; the third is numpy's own of `allclose`.
TOLERANCES = ((0.0, 0.0), (1e-7, 1e-9), (1e-5, 1e-8), (1e-3, 1e-6), (1e-2, 1e-4))

Fact = tuple[float, tuple[int, ...], Any, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two arrays are from each other; positions are of the broadcast shape.

    `absolute` and `relative` are the largest over the elements finite in both that differ, each with its place and both
    values; None where there is none. `mismatched` counts elements of which only one is NaN, or that are different
    infinities or texts, `nan` those that are NaN in both.
    """

    shapes: tuple[tuple[int | None, ...], tuple[int | None, ...]]
    dtypes: tuple[str, str]
    size: int
    unequal: int | None = None
    absolute: Fact | None = None
    relative: Fact | None = None
    mismatched: int = 0
    first_mismatch: tuple[tuple[int, ...], str, str] | None = None
    agree: tuple[float, float] | None = None
    note: str = ""
    nan: int = 0
    numbers: bool = True
    common: str = ""


def difference(a: np.ndarray, b: np.ndarray) -> Difference:
    """Compare two arrays; NaN equals NaN, and a relative difference is to the larger magnitude of the two."""
    numbers = blocks.is_numeric(a.dtype) and blocks.is_numeric(b.dtype)
    names = (summarize.dtype_name(a), summarize.dtype_name(b))
    facts = Difference((a.shape, b.shape), names, max(a.size, b.size), numbers=numbers)
    if blocks.is_numeric(a.dtype) != blocks.is_numeric(b.dtype):
        return replace(facts, note="numbers and other values are not compared")
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError:
        return replace(facts, note="the shapes cannot be broadcast")
    if not a.size:
        return replace(
            facts, size=0, unequal=0, note="both are empty" if facts.shapes[0] == facts.shapes[1] else "empty"
        )
    facts = replace(facts, size=a.size, common=common(a, b) if numbers else "")
    compare = compared if numbers else compared_texts
    found = [compare(facts, *each) for each in pieces(a, b)]
    return merged(facts, found)


def of_stored(a: Stored, b: Stored) -> Difference:
    """Compare two values: those that are stored alike by their elements, sparse ones as if they were dense."""
    if not a.layout and not b.layout:
        return difference(a.array, b.array)
    alike = a.kind == b.kind and len(a.layout) == len(b.layout)
    if (
        alike
        and a.shape == b.shape
        and all(np.array_equal(one, other) for one, other in zip(a.layout, b.layout, strict=True))
    ):
        found = difference(a.array, b.array)
        moved = [fact and (fact[0], a.at(fact[1]), *fact[2:]) for fact in (found.absolute, found.relative)]
        place = found.first_mismatch and (a.at(found.first_mismatch[0]), *found.first_mismatch[1:])
        found = replace(found, absolute=moved[0], relative=moved[1], first_mismatch=place)
        return replace(found, shapes=(a.shape or (), b.shape or ()))
    dense = [filled(each) for each in (a, b)]
    if dense[0] is not None and dense[1] is not None:
        return difference(dense[0], dense[1])
    names = (summarize.dtype_name(a.array), summarize.dtype_name(b.array))
    facts = Difference((a.shape or (), b.shape or ()), names, max(a.array.size, b.array.size))
    return replace(facts, note=apart(a, b) if alike else f"{a.kind} and {b.kind} are not compared")


def apart(a: Stored, b: Stored) -> str:
    """How two values of one kind are stored differently."""
    if a.kind != "ragged":
        return "they do not store the same places"
    for depth, (one, other) in enumerate(zip(a.layout, b.layout, strict=True)):
        lengths = np.diff(one), np.diff(other)
        if lengths[0].size == lengths[1].size and (where := first(lengths[0] != lengths[1])) is not None:
            pair = f"{lengths[0][where]} and {lengths[1][where]} elements"
            return f"row {where[0]}{f' of depth {depth + 1}' if depth else ''} has {pair}"
    return f"{a.layout[0].size - 1} and {b.layout[0].size - 1} rows"


def filled(value: Stored) -> np.ndarray | None:
    """A sparse value of moderate size with zeros where nothing is stored, dense ones as they are; None for others."""
    if not value.layout:
        return value.array
    shape = value.shape or ()
    if value.kind != "sparse" or None in shape or not blocks.is_numeric(value.array.dtype):
        return None
    if np.prod([size or 0 for size in shape], dtype=object) > MOST_DENSE:
        return None
    made = np.zeros([size or 0 for size in shape], value.array.dtype)
    made[tuple(value.layout[0].T)] = value.array
    return made


def common(a: np.ndarray, b: np.ndarray) -> str:
    """The type in which two arrays of numbers are compared."""
    if blocks.are_integers(a.dtype) and blocks.are_integers(b.dtype):
        return "integers"
    return "complex128" if "c" in a.dtype.kind + b.dtype.kind else "float64"


def pieces(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Flat stretches of both of at most about `PIECE` elements, each with the flat position where it begins."""
    if a.flags.c_contiguous and b.flags.c_contiguous:
        one, other = a.reshape(-1), b.reshape(-1)
        for start in range(0, one.size, PIECE):
            yield one[start : start + PIECE], other[start : start + PIECE], start
        return
    inner = a.size // a.shape[0] if a.ndim else 1
    rows = max(PIECE // inner, 1)
    for row in range(0, a.shape[0] if a.ndim else 1, rows):
        part = slice(row, row + rows) if a.ndim else ...
        yield a[part].reshape(-1), b[part].reshape(-1), row * inner


def merged(facts: Difference, found: list[Difference]) -> Difference:
    """The comparison of the whole from those of its stretches, whose places are flat positions."""
    agreements = [each.agree for each in found]
    shape = np.broadcast_shapes(*facts.shapes)  # type: ignore[arg-type]

    def place(flat: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(flat[0], shape))

    def largest(facts: list[Fact | None]) -> Fact | None:
        fact = max((each for each in facts if each is not None), key=lambda fact: fact[0], default=None)
        return fact and (fact[0], place(fact[1]), *fact[2:])

    mismatch = next((each.first_mismatch for each in found if each.first_mismatch), None)
    return replace(
        facts,
        unequal=sum(each.unequal or 0 for each in found),
        absolute=largest([each.absolute for each in found]),
        relative=largest([each.relative for each in found]),
        mismatched=sum(each.mismatched for each in found),
        first_mismatch=mismatch and (place(mismatch[0]), *mismatch[1:]),
        agree=None if None in agreements else max(each for each in agreements if each is not None),
        nan=sum(each.nan for each in found),
        note=next((each.note for each in found if each.note), ""),
    )


def compared(facts: Difference, a: np.ndarray, b: np.ndarray, start: int) -> Difference:
    """The comparison of a stretch of numbers."""
    with np.errstate(all="ignore"):
        a, b = (blocks.as_plain(each) if blocks.is_small(each.dtype) else each for each in (a, b))
        places = np.flatnonzero(a != b)
        if places.size == a.size:
            return measured(facts, a, b, places, start)
        return measured(facts, a[places], b[places], places, start) if places.size else same(facts)


def same(facts: Difference) -> Difference:
    """The comparison of equal stretches."""
    return replace(facts, unequal=0, agree=TOLERANCES[0])


def measured(facts: Difference, a: np.ndarray, b: np.ndarray, places: np.ndarray, start: int) -> Difference:
    """How far unequal numbers are from each other; both NaN is no difference."""
    one, other = wide(a), wide(b)
    gap = gaps(a, b, one, other)
    fine: np.ndarray | None = None
    if not np.isfinite(gap.max()):
        nan = np.isnan(one) & np.isnan(other)
        if nan.any():
            facts = replace(facts, nan=int(nan.sum()))
            a, b, one, other, places, gap = (each[~nan] for each in (a, b, one, other, places, gap))
            if not places.size:
                return same(facts)
        fine = np.isfinite(one) & np.isfinite(other)
        gap = np.where(fine, gap, 0.0)
    scale = np.maximum(np.abs(one), np.abs(other))
    relative = gap / scale if fine is None else np.where(fine, gap / scale, 0.0)
    all_fine = fine is None or bool(fine.all())
    close = (pair for pair in TOLERANCES[1:] if bool((gap <= pair[1] + pair[0] * np.abs(other)).all()))
    where = None if fine is None else first(~fine)

    def largest(gap: np.ndarray) -> Fact | None:
        most = int(np.argmax(gap))
        fact = (float(gap[most]), (int(places[most]) + start,), a[most].item(), b[most].item())
        return fact if fine is None or fine.any() else None

    return replace(
        facts,
        unequal=places.size,
        absolute=largest(gap),
        relative=largest(relative),
        mismatched=0 if fine is None else int((~fine).sum()),
        first_mismatch=None if where is None else ((int(places[where]) + start,), shown(a[where]), shown(b[where])),
        agree=next(close, None) if all_fine else None,
    )


def gaps(a: np.ndarray, b: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The absolute differences of two arrays, which are also given widened."""
    exactly = blocks.are_integers(a.dtype) and blocks.are_integers(b.dtype)
    alike = (a.dtype == np.uint64) == (b.dtype == np.uint64)
    return whole_gap(a, b) if exactly and alike else np.abs(one - other)


def shown(value: np.generic) -> str:
    """One element as text."""
    return render.number(value.item())


def whole_gap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The distances of integers, all or none of them uint64, exact up to the rounding of float64."""
    kind = np.uint64 if a.dtype == np.uint64 else np.int64
    one, other = a.astype(kind), b.astype(kind)
    gap = np.maximum(one, other).view(np.uint64) - np.minimum(one, other).view(np.uint64)
    return gap.astype(np.float64)


def compared_texts(facts: Difference, a: np.ndarray, b: np.ndarray, start: int) -> Difference:
    """The comparison of a stretch of texts, dates, records or objects: equal or not."""
    try:
        unequal = np.asarray(a != b, bool) & ~(np.asarray(a != a, bool) & np.asarray(b != b, bool))
    except Exception as error:  # objects that refuse
        return replace(facts, unequal=0, note=f"they cannot be compared: {type(error).__name__}")
    where = first(unequal)
    if where is None:
        return same(facts)
    mismatch = ((where[0] + start,), quoted(a[where]), quoted(b[where]))
    count = int(unequal.sum())
    return replace(facts, unequal=count, mismatched=count, first_mismatch=mismatch)


def quoted(value: object) -> str:
    """A text in quotes, any other object as its repr."""
    text = summarize.short_text(value)
    return repr(text) if isinstance(value, str | bytes) else text


def wide(array: np.ndarray) -> np.ndarray:
    """The array as float64, complex128 for complex numbers."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def first(mask: np.ndarray) -> tuple[int, ...] | None:
    """The place of the first true element."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape)) if mask.any() else None


def difference_text(found: Difference, width: int) -> str:
    """The comparison as text, shapes and dtypes first."""
    kinds = [f"{dtype}{shape_text(shape)}" for dtype, shape in zip(found.dtypes, found.shapes, strict=True)]
    lines = [f"{kinds[0]} against {kinds[1]}" if kinds[0] != kinds[1] else f"both {kinds[0]}"]
    if found.dtypes[0] != found.dtypes[1] and found.common:
        lines.append(f"  dtypes differ: compared as {found.common}")
    if found.shapes[0] != found.shapes[1] and not found.note:
        lines.append("  shapes differ: compared broadcast")
    both = f", {found.nan} of them nan in both" if found.nan else ""
    if found.note:
        lines.append(f"  {found.note}")
    elif not found.unequal:
        lines.append(f"  all {found.size} elements equal{both}")
    else:
        share = render.percent(found.unequal / found.size)
        also = f", {found.nan} nan in both" if found.nan else ""
        lines.append(f"  {found.unequal} of {found.size} elements differ ({share}){also}")
        lines += details(found)
    return "\n".join(render.shorten(part, width) for line in lines for part in folded(line, width))


def folded(line: str, width: int) -> list[str]:
    """A line that is too wide as two: the values on a line of their own."""
    head, colon, rest = line.partition(": ")
    return [line] if render.visible_width(line) <= width or not colon else [head + ":", "    " + rest]


def details(found: Difference) -> list[str]:
    """The lines on the largest differences and the tolerances."""
    lines = []
    if not found.numbers and found.first_mismatch is not None:
        where, first_value, second_value = found.first_mismatch
        return [f"  first at {list(where)}: {first_value} and {second_value}"]
    for name, fact in (("absolute", found.absolute), ("relative", found.relative)):
        if fact is not None and fact[0] > 0:
            amount, where, one, other = fact
            values = f"{exact(one)} and {exact(other)}"
            lines.append(f"  largest {name} difference {render.number(amount)} at {list(where)}: {values}")
    if found.mismatched and found.first_mismatch is not None:
        where, first_value, second_value = found.first_mismatch
        values = f"{first_value} and {second_value}"
        lines.append(f"  {found.mismatched} nan or inf in one only, first at {list(where)}: {values}")
    if found.agree is None:
        lines.append(f"  not close even at rtol {TOLERANCES[-1][0]:g}, atol {TOLERANCES[-1][1]:g}")
    else:
        lines.append(f"  allclose at rtol {found.agree[0]:g}, atol {found.agree[1]:g}")
    return lines


def exact(value: complex) -> str:
    """A value with enough digits to see a float32 difference."""
    return f"{value:.8g}" if isinstance(value, float) else str(value)
