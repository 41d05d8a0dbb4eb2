"""Records -> text: the one place that knows widths, colours and number formats.

Every function returns text without a final newline; lines are at most `width` terminal columns wide. Colour is ANSI,
only when asked for, and only for what is bad (nan and the infinities).
"""

from __future__ import annotations

import math
import re
import shutil
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from .records import Scalar, TableRow, TensorSummary, shape_text

RED, RESET = "\x1b[31m", "\x1b[0m"
BARS = "▁▂▃▄▅▆▇█"
GAP = "  "
# What goes first where room is short: the highest.
RANGE, MOMENTS, NOTE, ZEROS, DEVICE, BYTES = 1, 2, 3, 4, 5, 6
VALUES_WIDTH = 44  # columns up to which a few values are shown in place of their range
SHORT_INTEGER = 7  # digits up to which integers are shown exactly
UNKNOWN_SHAPE = ("tensor", "variable", "keras tensor", "keras variable", "spec", "tensor array")
VALUES_THRESHOLD = 1000  # elements above which numpy elides the middle
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class _Cell:
    """A piece of a line. Where room is short, cells of the highest `rank` become `brief`, then go; rank 0 stays."""

    text: str
    rank: int = 0
    brief: str = ""
    bad: bool = False
    gap: str = GAP


def terminal_width() -> int:
    """The columns of the terminal on standard output, 80 when there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def tensor_line(summary: TensorSummary, width: int | None = None, color: bool = False, name: str = "") -> str:
    """One line about one tensor, what is least important left out where `width` (default: the terminal's) is short.

    Example: `float32(64, 10) cpu:0 2.5KiB  [-3.1 ▂▅█▇▃▁▁▁ 4.2]  μ -0.02 σ 1.1  0: 12%  nan 3, first at [5, 2]`.
    """
    width = terminal_width() if width is None else width
    named = [_Cell(_clean(name))] if name else []
    return _line(_fit([*named, *_head(summary), *_content(summary), *_remarks(summary)], width), width, color)


def tensor_table(rows: Sequence[TableRow], width: int | None = None, color: bool = False) -> str:
    """One line a row, columns aligned; what does not fit is shortened or left out by columns, least important first."""
    width = terminal_width() if width is None else width
    if not rows:
        return "empty: no tensors"
    table = _fit_columns([_row(row) for row in rows], width)
    widths = [max(visible_width(cells[i].text) for cells in table) for i in range(len(table[0]))]
    lines = []
    for cells in table:
        last = max(i for i, cell in enumerate(cells) if cell.text)
        padded = [
            replace(cell, text=pad(cell.text, widths[i]) if i < last else cell.text) for i, cell in enumerate(cells)
        ]
        lines.append(_line(padded[: last + 1], width, color))
    return "\n".join(lines)


def number(value: Scalar) -> str:
    """A number in few characters: integers exact up to 7 digits, else three significant digits; no minus zero."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, complex):
        sign = "-" if math.copysign(1, value.imag) < 0 and value.imag != 0 else "+"
        return f"{number(value.real)}{sign}{number(abs(value.imag))}j"
    if isinstance(value, int | np.integer):
        whole = int(value)
        return str(whole) if abs(whole) < 10**SHORT_INTEGER else _scientific(Decimal(whole))
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 99999.5:
        digits = max(0, 2 - math.floor(math.log10(abs(value))))
        text = f"{value:.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return _scientific(value)


def _scientific(value: float | Decimal) -> str:
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def size_text(nbytes: int) -> str:
    """A number of bytes with a binary unit, three digits at most: 40B, 2.5KiB, 1GiB."""
    value, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 999.5 or unit == "TiB":
            break
        value /= 1024
    return f"{number(value)}{unit}"


def percent(share: float) -> str:
    """A share of 0 to 1 in whole percent, told apart from none and all: 0%, <1%, 12%, >99%, 100%."""
    if 0 < share < 0.01:
        return "<1%"
    return ">99%" if 0.99 < share < 1 else f"{100 * share:.0f}%"


def sparkline(values: Iterable[float], low: float | None = None, high: float | None = None) -> str:
    """One bar a value, from `low` to `high` (default: the finite values' own); values that are not finite show as ×."""
    values = [float(value) for value in values]
    finite = [value for value in values if math.isfinite(value)]
    low = min(finite, default=0.0) if low is None else low
    high = max(finite, default=0.0) if high is None else high
    half = high / 2 - low / 2

    def bar(value: float) -> str:
        if not math.isfinite(value):
            return "×"
        share = (value / 2 - low / 2) / half if half > 0 else 0.0
        return BARS[min(max(math.ceil(share * (len(BARS) - 1)), 0), len(BARS) - 1)]

    return "".join(map(bar, values))


def values(array: np.ndarray, width: int | None = None) -> str:
    """The elements in numpy's own notation and precision; the middle of large arrays elided, long lines cut."""
    width = terminal_width() if width is None else width
    array = np.asarray(array)
    text = np.array2string(array, max_line_width=width, threshold=VALUES_THRESHOLD, separator=", ")
    return "\n".join(shorten(line, width) for line in text.split("\n"))


def visible_width(text: str) -> int:
    """Terminal columns a text takes: ANSI sequences and combining marks none, wide East Asian characters two."""
    if text.isascii() and text.isprintable():
        return len(text)
    columns = 0
    for character in uncoloured(text):
        if not unicodedata.combining(character) and unicodedata.category(character) not in ("Cf", "Cc"):
            columns += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return columns


def uncoloured(text: str) -> str:
    """The text without ANSI sequences."""
    return _ANSI.sub("", text)


def shorten(text: str, width: int, tail: bool = False) -> str:
    """The text, cut with … at its end (with `tail`: its beginning) when it is wider than `width` columns."""
    if visible_width(text) <= width:
        return text
    if width < 1:
        return ""
    kept, columns = [], 1
    plain = uncoloured(text)
    for character in reversed(plain) if tail else plain:
        columns += visible_width(character)
        if columns > width:
            break
        kept.append(character)
    return "…" + "".join(reversed(kept)) if tail else "".join(kept) + "…"


def pad(text: str, width: int) -> str:
    """The text with spaces after it up to `width` columns."""
    return text + " " * (width - visible_width(text))


def _clean(text: str) -> str:
    """The text on one line, without control characters that a name or a repr may bring."""
    return "".join(character if character.isprintable() else " " for character in uncoloured(text))


def _fit(cells: list[_Cell], width: int) -> list[_Cell]:
    """The cells, those of the highest rank made brief and then left out until a line of them fits."""
    cells = [cell for cell in cells if cell.text]
    while _line_width(cells) > width:
        i = max(range(len(cells)), key=lambda i: (cells[i].rank, bool(cells[i].brief), i))
        if cells[i].brief:
            cells[i] = replace(cells[i], text=cells[i].brief, brief="")
        elif cells[i].rank:
            del cells[i]
        else:
            break
    return cells


def _fit_columns(table: list[list[_Cell]], width: int) -> list[list[_Cell]]:
    """As `_fit`, by whole columns; at last the names (first column) lose their beginnings, down to a third of it."""

    def columns_wide() -> list[int]:
        return [max(visible_width(cells[i].text) for cells in table) for i in range(len(table[0]))]

    wide = columns_wide()
    table = [[cells[i] for i in range(len(cells)) if wide[i]] for cells in table]
    while (excess := sum(wide := columns_wide()) + len(GAP) * (len(wide) - 1) - width) > 0:
        ranks = [min(cells[i].rank for cells in table if cells[i].text) for i in range(len(wide))]
        briefs = [any(cells[i].brief for cells in table) for i in range(len(wide))]
        i = max(range(len(wide)), key=lambda i: (ranks[i], briefs[i], i))
        if briefs[i]:
            table = [[_brief(cell) if j == i else cell for j, cell in enumerate(cells)] for cells in table]
        elif ranks[i]:
            table = [cells[:i] + cells[i + 1 :] for cells in table]
        else:
            names = max(wide[0] - excess, width // 3)
            return [[replace(cells[0], text=shorten(cells[0].text, names, tail=True)), *cells[1:]] for cells in table]
    return table


def _brief(cell: _Cell) -> _Cell:
    return replace(cell, text=cell.brief, brief="") if cell.brief else cell


def _line_width(cells: Sequence[_Cell]) -> int:
    return sum(visible_width(cell.text) + (len(cell.gap) if i else 0) for i, cell in enumerate(cells))


def _line(cells: Sequence[_Cell], width: int, color: bool) -> str:
    """Cells side by side, cut at `width`, the bad ones in red where there is colour."""
    line, room = "", width
    for i, cell in enumerate(cells):
        gap = cell.gap if i else ""
        text = shorten(cell.text, room - len(gap))
        if not text:
            break
        room -= len(gap) + visible_width(text)
        line += gap + (f"{RED}{text}{RESET}" if cell.bad and color else text)
    return line.rstrip()


def _row(row: TableRow) -> list[_Cell]:
    """The columns of a table: name, dtype and shape, device, bytes, content, moments, zeros, remarks."""
    summary = row.summary
    content = _content(summary)
    texts = [cell for cell in content[1:] if cell.text]
    by_rank = {cell.rank: cell for cell in [*_head(summary)[1:], *texts]}
    remarks = _remarks(summary)
    remark = _Cell(
        ", ".join(cell.text for cell in remarks),
        0 if any(cell.rank == 0 for cell in remarks) else NOTE,
        ", ".join(cell.brief or cell.text for cell in remarks),
        any(cell.bad for cell in remarks),
    )
    first = replace(content[0], rank=0) if content else _Cell("")
    columns = [_Cell(_clean(row.name)), _head(summary)[0], *(by_rank.get(rank, _Cell("")) for rank in (DEVICE, BYTES))]
    columns += [first, *(by_rank.get(rank, _Cell("")) for rank in (MOMENTS, ZEROS)), remark]
    return [replace(cell, gap=GAP) for cell in columns]


def _head(summary: TensorSummary) -> list[_Cell]:
    """What it is: dtype and shape, device, bytes."""
    shapeless = summary.shape is None and summary.kind not in UNKNOWN_SHAPE
    shape = "" if shapeless else shape_text(summary.shape)
    nbytes = "" if summary.nbytes is None else size_text(summary.nbytes)
    cells = [_Cell(summary.device, DEVICE, gap=" "), _Cell(nbytes, BYTES, gap=" ")]
    return [_Cell(f"{summary.dtype}{shape}"), *(cell for cell in cells if cell.text)]


def _content(summary: TensorSummary) -> list[_Cell]:
    """What is in it: a word or the values when that says it all, else range with histogram, moments and zeros."""
    if not summary.size:
        return [_Cell(summary.word)] if summary.word else []
    if summary.text is not None:
        return [_Cell(_clean(_values_text(summary))), *_text_cells(summary)]
    if summary.size == 1 and summary.values:
        return [_Cell(_values_text(summary), bad=not summary.finite)]
    if summary.word == "all nan":
        return [_Cell(summary.word, bad=True)]
    if summary.word:
        shared = {"all zeros": " zeros", "all equal": f" {number(summary.minimum or 0)}"}[summary.word]
        truth = f" {bool(summary.minimum)}" if summary.dtype == "bool" else shared
        return [_Cell(f"all{truth}")]
    spread = _range(summary)
    values = _values_text(summary)
    if values and visible_width(values) <= VALUES_WIDTH:
        return [_Cell(values, RANGE, spread.brief), _moments(summary)]
    return [spread, _moments(summary), _zeros(summary)]


def _values_text(summary: TensorSummary) -> str:
    if not summary.values:
        return ""
    shown = [number(value) for value in summary.values]
    if not summary.shape and len(shown) == 1:
        return shown[0]
    return f"[{', '.join(shown)}{', …' if len(shown) < (summary.size or 0) else ''}]"


def _text_cells(summary: TensorSummary) -> list[_Cell]:
    facts = summary.text
    if facts is None or (summary.size or 0) <= len(summary.values):
        return []
    among = " among the first" if facts.sampled else ""
    return [_Cell(f"{facts.distinct} distinct{among}", MOMENTS), _Cell(f"longest {facts.longest}", ZEROS)]


def _range(summary: TensorSummary) -> _Cell:
    """The least and the largest finite value and the histogram between them; for bool the share of True."""
    if summary.minimum is None or summary.maximum is None:
        return _Cell("no finite value", RANGE)
    if summary.dtype == "bool" and summary.zero_share is not None:
        return _Cell(f"True: {percent(1 - summary.zero_share)}", RANGE)
    of = f"{summary.of} " if summary.of else ""
    low, high = number(summary.minimum), number(summary.maximum)
    if summary.minimum == summary.maximum:
        return _Cell(f"{of}{low} where finite", RANGE)
    bars = f" {sparkline(summary.histogram, low=0)} " if summary.histogram else ", "
    return _Cell(f"{of}[{low}{bars}{high}]", RANGE, f"{of}[{low}, {high}]")


def _moments(summary: TensorSummary) -> _Cell:
    if summary.mean is None or summary.std is None or summary.dtype == "bool":
        return _Cell("")
    return _Cell(f"μ {number(summary.mean)} σ {number(summary.std)}", MOMENTS)


def _zeros(summary: TensorSummary) -> _Cell:
    share, about = summary.zero_share, "~" if summary.zeros_estimated else ""
    return _Cell(f"0: {about}{percent(share)}" if share and summary.dtype != "bool" else "", ZEROS)


def _remarks(summary: TensorSummary) -> list[_Cell]:
    """What is bad about it, and its notes; without a value the notes are all there is and stay."""
    found = [("nan", summary.nan), ("inf", summary.posinf), ("-inf", summary.neginf)]
    told = summary.size == 1 or summary.word == "all nan"
    bad = [
        _Cell(f"{word} {facts.count}, first at {list(facts.first)}", 0, f"{word} {facts.count}", bad=True)
        for word, facts in found
        if facts is not None and not told
    ]
    return [*bad, *(_Cell(_clean(note), 0 if summary.size is None else NOTE) for note in summary.notes)]
