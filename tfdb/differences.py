"""Two arrays -> what differs: shapes and dtypes first, then the largest difference, where, and where they are close."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import render

# Relative and absolute; the third is numpy's own of `allclose`.
PIECE = 1 << 22  # elements compared at once
TOLERANCES = ((0.0, 0.0), (1e-7, 1e-9), (1e-5, 1e-8), (1e-3, 1e-6), (1e-2, 1e-4))


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two arrays are from each other; positions are of the broadcast shape.

    `absolute` and `relative` are the largest over the elements finite in both, each with its place and both values;
    None where there is none. `mismatched` counts elements of which only one is NaN, or that are different infinities.
    """

    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[str, str]
    size: int
    unequal: int | None = None
    absolute: tuple[float, tuple[int, ...], float, float] | None = None
    relative: tuple[float, tuple[int, ...], float, float] | None = None
    mismatched: int = 0
    first_mismatch: tuple[tuple[int, ...], str, str] | None = None
    agree: tuple[float, float] | None = None
    note: str = ""


def difference(a: np.ndarray, b: np.ndarray) -> Difference:
    """Compare two arrays; NaN equals NaN, and a relative difference is to the larger magnitude of the two."""
    facts = Difference((a.shape, b.shape), (a.dtype.name, b.dtype.name), max(a.size, b.size))
    try:
        a, b = np.broadcast_arrays(a, b)
    except ValueError:
        return replace(facts, note="the shapes cannot be broadcast")
    if not a.size:
        return replace(facts, unequal=0, note="both are empty")
    if not (numeric(a) and numeric(b)):
        unequal = np.asarray(a != b)
        where = first(unequal)
        found = (where, repr(a[where]), repr(b[where])) if where is not None else None
        return replace(facts, unequal=int(unequal.sum()), mismatched=int(unequal.sum()), first_mismatch=found)
    return merged(facts, [compared_piece(facts, a, b, rows) for rows in pieces(a)])


def pieces(array: np.ndarray) -> list[slice]:
    """Stretches of the first axis of at most `PIECE` elements or one index: comparing takes several copies of each."""
    if not array.ndim or array.size <= PIECE:
        return [slice(0, None)]
    rows = max(PIECE * array.shape[0] // array.size, 1)
    return [slice(start, start + rows) for start in range(0, array.shape[0], rows)]


def compared_piece(facts: Difference, a: np.ndarray, b: np.ndarray, rows: slice) -> Difference:
    """The comparison of a stretch, its places counted from the array's start."""
    found = compared(facts, wide(a[rows] if a.ndim else a), wide(b[rows] if b.ndim else b))
    start = rows.start

    def moved(fact: Any, place: int) -> Any:
        where = fact[place] if fact is not None else ()
        return fact if not where else (*fact[:place], (where[0] + start, *where[1:]), *fact[place + 1 :])

    first_mismatch = moved(found.first_mismatch, 0)
    return replace(
        found, absolute=moved(found.absolute, 1), relative=moved(found.relative, 1), first_mismatch=first_mismatch
    )


def merged(facts: Difference, found: list[Difference]) -> Difference:
    """The comparison of the whole from those of its stretches."""
    agreements = [each.agree for each in found]
    return replace(
        facts,
        unequal=sum(each.unequal or 0 for each in found),
        absolute=max((each.absolute for each in found if each.absolute), key=lambda fact: fact[0], default=None),
        relative=max((each.relative for each in found if each.relative), key=lambda fact: fact[0], default=None),
        mismatched=sum(each.mismatched for each in found),
        first_mismatch=next((each.first_mismatch for each in found if each.first_mismatch), None),
        agree=None if None in agreements else max(each for each in agreements if each is not None),
    )


def compared(facts: Difference, a: np.ndarray, b: np.ndarray) -> Difference:
    """The numbers of the comparison."""
    with np.errstate(all="ignore"):
        fine = np.isfinite(a) & np.isfinite(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.where(fine, np.abs(a - b), 0.0)
        scale = np.where(fine, np.maximum(np.abs(a), np.abs(b)), 1.0)
        relative = np.divide(gap, scale, out=np.zeros_like(gap), where=scale > 0)
        bad = ~fine & ~same
        agree = next((pair for pair in TOLERANCES if bool(np.allclose(a, b, *pair, equal_nan=True))), None)
    where = first(bad)
    return replace(
        facts,
        unequal=int((~same).sum()),
        absolute=largest(gap, a, b) if fine.any() else None,
        relative=largest(relative, a, b) if fine.any() else None,
        mismatched=int(bad.sum()),
        first_mismatch=None if where is None else (where, shown(a[where]), shown(b[where])),
        agree=agree,
    )


def shown(value: np.generic) -> str:
    """One element as text."""
    return render.number(value.item())


def numeric(array: np.ndarray) -> bool:
    """Whether the elements are numbers or bools, those of ml_dtypes included."""
    return array.dtype.kind in "biufc" or (array.dtype.kind == "V" and array.dtype.names is None)


def wide(array: np.ndarray) -> np.ndarray:
    """The array as float64, complex128 for complex numbers."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def largest(gap: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[float, tuple[int, ...], float, float]:
    """The largest gap, its place, and the two values there."""
    where = tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), gap.shape))
    return float(gap[where]), where, a[where].item(), b[where].item()


def first(mask: np.ndarray) -> tuple[int, ...] | None:
    """The place of the first true element."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape)) if mask.any() else None


def difference_text(found: Difference, width: int) -> str:
    """The comparison as text, shapes and dtypes first."""
    kinds = [f"{dtype}{shape_text(shape)}" for dtype, shape in zip(found.dtypes, found.shapes, strict=True)]
    lines = [f"{kinds[0]} against {kinds[1]}" if kinds[0] != kinds[1] else f"both {kinds[0]}"]
    if found.dtypes[0] != found.dtypes[1]:
        lines.append("  dtypes differ: compared as float64")
    if found.shapes[0] != found.shapes[1] and not found.note:
        lines.append("  shapes differ: compared broadcast")
    if found.note:
        lines.append(f"  {found.note}")
    elif not found.unequal:
        lines.append(f"  all {found.size} elements equal")
    else:
        share = render.percent(found.unequal / found.size) if found.unequal is not None else ""
        lines.append(f"  {found.unequal} of {found.size} elements differ ({share})")
        lines += details(found)
    return "\n".join(render.shorten(line, width) for line in lines)


def details(found: Difference) -> list[str]:
    """The lines on the largest differences and the tolerances."""
    lines = []
    for name, fact in (("absolute", found.absolute), ("relative", found.relative)):
        if fact is not None and fact[0] > 0:
            amount, where, one, other = fact
            values = f"{exact(one)} and {exact(other)}"
            lines.append(f"  largest {name} difference {render.number(amount)} at {list(where)}: {values}")
    if found.mismatched and found.first_mismatch is not None:
        where, first_value, second_value = found.first_mismatch
        kind = "nan or inf in one only" if found.absolute is not None or found.agree is None else "unequal"
        lines.append(f"  {found.mismatched} {kind}, first at {list(where)}: {first_value} and {second_value}")
    if found.agree is None:
        lines.append(f"  not close even at rtol {TOLERANCES[-1][0]:g}, atol {TOLERANCES[-1][1]:g}")
    else:
        lines.append(f"  allclose at rtol {found.agree[0]:g}, atol {found.agree[1]:g}")
    return lines


def exact(value: complex) -> str:
    """A value with enough digits to see a float32 difference."""
    return f"{value:.8g}" if isinstance(value, float) else str(value)


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape in parentheses."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
