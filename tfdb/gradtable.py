"""Columns of numbers per variable -> the rows of `grads`, and their text.  Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import render
from .errors import TfdbError
from .thresholds import LARGEST, MAGNITUDES, NONZERO, SQUARES, UPDATE, WEIGHT

TREND = 12  # steps in the sparkline
HEAD = ("variable", "shape", "norm", "mean|g|", "max|g|", "zero", "update/w", "recent norms")
SORTS = ("name", "norm", "mean", "max", "zero", "update")
GAP = 2


@dataclass(frozen=True, slots=True)
class Row:
    """A variable's gradient: NaN stands for what was not measured; `trend` are its norms, oldest first.

    `lost` says that there was no gradient at all; `zero` is a share of the elements.
    """

    name: str
    shape: tuple[int | None, ...]
    norm: float = math.nan
    mean: float = math.nan
    largest: float = math.nan
    zero: float = math.nan
    ratio: float = math.nan
    trend: tuple[float, ...] = ()
    lost: bool = False
    measured: frozenset[str] = frozenset()

    @property
    def bad(self) -> bool:
        """Whether there is none, or one that is not finite."""
        return self.lost or (SQUARES in self.measured and not math.isfinite(self.norm))


def row(
    name: str, shape: tuple[int | None, ...], size: int, numbers: Mapping[str, float], trend: Sequence[float] = ()
) -> Row:
    """A row from a variable's numbers by column."""
    have = {column: float(value) for column, value in numbers.items()}
    count = max(size, 1)
    ratio = math.sqrt(have[UPDATE] / have[WEIGHT]) if have.get(WEIGHT) else math.nan
    return Row(
        name, shape, root(have.get(SQUARES, math.nan)), have.get(MAGNITUDES, math.nan) / count,
        have.get(LARGEST, math.nan), 1 - have.get(NONZERO, math.nan) / count, ratio,
        tuple(root(value) for value in trend[-TREND:]), False, frozenset(have),
    )  # fmt: skip


def root(square: float) -> float:
    """The square root; of NaN and infinity themselves."""
    return math.sqrt(square) if math.isfinite(square) else float(square)


def in_order(rows: Sequence[Row], by: str = "") -> list[Row]:
    """The rows as they come (the model's order), or by a column: names from a to z, numbers from the greatest.

    Raises:
        TfdbError: there is no such column.
    """
    if not by:
        return list(rows)
    if by not in SORTS:
        raise TfdbError(f"cannot sort by {by!r}: it is one of {', '.join(SORTS)}")
    if by == "name":
        return sorted(rows, key=lambda row: row.name)
    field = {"max": "largest", "update": "ratio"}.get(by, by)
    return sorted(rows, key=lambda row: key(getattr(row, field), row), reverse=True)


def key(value: float, row: Row) -> float:
    """What is bad comes before all numbers, what was not measured after them."""
    if row.bad and not row.lost:
        return math.inf
    return -math.inf if math.isnan(value) or row.lost else value


def text(rows: Sequence[Row], width: int, color: bool = False) -> str:
    """The table, in the width of the terminal; columns that no row has numbers for are left out."""
    table = [list(HEAD), *[cells(row) for row in rows]]
    kept = [n for n in range(len(HEAD)) if n < 3 or any(line[n] for line in table[1:])]
    widths = [max(render.visible_width(line[n]) for line in table) for n in kept]
    while sum(widths) + GAP * (len(widths) - 1) > width and len(kept) > 3:
        leaving = next(i for i in range(len(kept)) if kept[i] == least(kept))
        del kept[leaving], widths[leaving]
    room = max(width - sum(widths[1:]) - GAP * (len(widths) - 1), 12)
    widths[0] = min(widths[0], room)
    lines = []
    for index, line in enumerate(table):
        parts = [aligned(line[n], size, n) for n, size in zip(kept, widths, strict=True)]
        made = (" " * GAP).join(parts).rstrip()
        red = color and index and rows[index - 1].bad
        lines.append(f"{render.RED}{made}{render.RESET}" if red else made)
    return "\n".join(lines)


def least(kept: Sequence[int]) -> int:
    """The column to leave out first where room is short."""
    return next(n for n in (1, 3, 5, 4, 7, 6) if n in kept)


def aligned(value: str, size: int, column: int) -> str:
    """A cell in its width: names and sparklines to the left, numbers to the right."""
    if column == 0:
        return render.pad(render.shorten(value, size, tail=True), size)
    return render.pad(value, size) if column in (1, 7) else value.rjust(size)


def cells(row: Row) -> list[str]:
    """A row's texts, '' for what was not measured."""
    shape = f"({', '.join('?' if size is None else str(size) for size in row.shape)})"
    if row.lost:
        return [row.name, shape, "None", "", "", "", "", ""]
    have = row.measured
    return [
        row.name, shape, shown(row.norm, SQUARES in have), shown(row.mean, MAGNITUDES in have),
        shown(row.largest, LARGEST in have), render.percent(row.zero) if NONZERO in have else "",
        shown(row.ratio, UPDATE in have and not math.isnan(row.ratio)), render.sparkline(row.trend),
    ]  # fmt: skip


def shown(value: Any, known: bool) -> str:
    """A number, or '' where it was not measured."""
    return render.number(value) if known else ""
