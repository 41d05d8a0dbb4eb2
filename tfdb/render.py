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
from dataclasses import dataclass

import numpy as np

from .records import NonFinite, Scalar, TableRow, TensorSummary

RED, RESET = "\x1b[31m", "\x1b[0m"
BARS = "▁▂▃▄▅▆▇█"
GAP = "  "
SHORT_INTEGER = 7  # digits up to which integers are shown exactly
UNKNOWN_SHAPE = ("tensor", "variable", "keras tensor", "keras variable", "spec", "tensor array")
VALUES_THRESHOLD = 1000  # elements above which numpy elides the middle
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class _Cell:
    """A piece of a line. Where room is short, cells of the highest `rank` go first; rank 0 stays."""

    text: str
    rank: int = 0
    bad: bool = False


def terminal_width() -> int:
    """The columns of the terminal on standard output, 80 when there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def tensor_line(summary: TensorSummary, width: int | None = None, color: bool = False, name: str = "") -> str:
    """One line about one tensor, what is least important left out where `width` (default: the terminal's) is short.

    Example: `float32(64, 10) cpu:0 2.5KiB  [-3.1 ▂▅█▇▃▁▁▁ 4.2]  μ -0.02 σ 1.1  0: 12%  nan 3, first at [5, 2]`.
    """
    width = terminal_width() if width is None else width
    head = " ".join(cell.text for cell in _head(summary))
    cells = [_Cell(name)] if name else []
    return _fit([*cells, _Cell(head), *_body(summary, max(16, width - visible_width(head) - 24))], width, color)


def tensor_table(rows: Sequence[TableRow], width: int | None = None, color: bool = False) -> str:
    """One line a row, columns aligned; columns that do not fit are left out, least important first, for all rows."""
    width = terminal_width() if width is None else width
    if not rows:
        return "empty: no tensors"
    table = [_table_cells(row) for row in rows]
    columns = range(len(table[0]))
    widths = [max(visible_width(cells[i].text) for cells in table) for i in columns]
    ranks = [max(cells[i].rank for cells in table) for i in columns]
    kept = [i for i in columns if widths[i]]
    widths[0] = min(widths[0], max(12, width // 3))
    while sum(widths[i] for i in kept) + len(GAP) * (len(kept) - 1) > width and any(ranks[i] for i in kept):
        kept.remove(max(kept, key=lambda i: (ranks[i], i)))
    lines = []
    for cells in table:
        parts = [_Cell(shorten(cells[i].text, widths[i]), 0, cells[i].bad) for i in kept]
        lines.append(_fit([_Cell(pad(part.text, widths[i]), 0, part.bad) for part, i in zip(parts, kept, strict=True)],
                          width, color).rstrip())  # fmt: skip
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
    if isinstance(value, int | np.integer) and len(str(abs(int(value)))) <= SHORT_INTEGER:
        return str(int(value))
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 99999.5:
        digits = max(0, 2 - math.floor(math.log10(abs(value))))
        text = f"{value:.{digits}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
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
    columns = 0
    for character in _ANSI.sub("", text):
        if not unicodedata.combining(character) and unicodedata.category(character) not in ("Cf", "Cc"):
            columns += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return columns


def shorten(text: str, width: int) -> str:
    """The text, cut at the end with … when it is wider than `width` columns."""
    if visible_width(text) <= width:
        return text
    kept, columns = "", 1
    for character in _ANSI.sub("", text):
        columns += visible_width(character)
        if columns > width:
            break
        kept += character
    return (kept + "…")[: max(width, 0)]


def pad(text: str, width: int) -> str:
    """The text with spaces after it up to `width` columns."""
    return text + " " * (width - visible_width(text))


def _fit(cells: list[_Cell], width: int, color: bool) -> str:
    """Cells joined by two spaces, those of the highest rank dropped until they fit; the last resort is cutting."""
    cells = [cell for cell in cells if cell.text]
    while visible_width(GAP.join(cell.text for cell in cells)) > width and any(cell.rank for cell in cells):
        last = max(range(len(cells)), key=lambda i: (cells[i].rank, i))
        cells = cells[:last] + cells[last + 1 :]
    line, room = "", width
    for cell in cells:
        gap = GAP if line else ""
        text = shorten(cell.text, room - len(gap))
        if room <= len(gap) or not text:
            break
        room -= len(gap) + visible_width(text)
        line += gap + (f"{RED}{text}{RESET}" if cell.bad and color else text)
    return line


def _head(summary: TensorSummary) -> list[_Cell]:
    """What it is: dtype and shape, device, bytes."""
    if summary.shape is None:
        shape = "(?)" if summary.kind in UNKNOWN_SHAPE else ""
    else:
        sizes = ["?" if size is None else str(size) for size in summary.shape]
        shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    nbytes = "" if summary.nbytes is None else size_text(summary.nbytes)
    cells = [_Cell(f"{summary.dtype}{shape}"), _Cell(summary.device, 5), _Cell(nbytes, 4)]
    return [cell for cell in cells if cell.text]


def _body(summary: TensorSummary, room: int) -> list[_Cell]:
    """What is in it: values when they are few and fit, else range with histogram, moments, zeros; then what is bad."""
    bad = [_Cell(_bad_text(word, facts), 0, True) for word, facts in _bad(summary)]
    return [*_content(summary, room), *bad, *(_Cell(note, 1) for note in summary.notes)]


def _content(summary: TensorSummary, room: int) -> list[_Cell]:
    if not summary.size:
        return [_Cell(summary.word)]
    shown = _few_text(summary)
    if summary.text is not None:
        return [_Cell(shorten(shown, room), 1), *_text_cells(summary)]
    if shown and visible_width(shown) <= room:
        word = [_Cell(summary.word, 3)]
        return [_Cell(shown), *word] if summary.word or summary.size == 1 else [_Cell(shown), _moments(summary)]
    if summary.word:
        equal = f" {number(summary.minimum)}" if summary.word == "all equal" and summary.minimum is not None else ""
        return [_Cell(summary.word + equal)]
    return [_range(summary), _moments(summary), _zeros(summary)]


def _few_text(summary: TensorSummary) -> str:
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
    return [_Cell(f"{facts.distinct} distinct{among}", 2), _Cell(f"longest {facts.longest}", 3)]


def _range(summary: TensorSummary) -> _Cell:
    if summary.minimum is None or summary.maximum is None:
        return _Cell("no finite value", 1)
    bars = f" {sparkline(summary.histogram, low=0)} " if summary.histogram else " "
    of = f"{summary.of} " if summary.of else ""
    if summary.minimum == summary.maximum:
        return _Cell(f"{of}{number(summary.minimum)} where finite", 1)
    return _Cell(f"{of}[{number(summary.minimum)}{bars}{number(summary.maximum)}]", 1)


def _moments(summary: TensorSummary) -> _Cell:
    if summary.mean is None or summary.std is None:
        return _Cell("")
    return _Cell(f"μ {number(summary.mean)} σ {number(summary.std)}", 2)


def _zeros(summary: TensorSummary) -> _Cell:
    share = summary.zero_share
    if not share:
        return _Cell("")
    percent = 100 * share
    text = "<1%" if percent < 1 else ">99%" if 99 < percent < 100 else f"{percent:.0f}%"
    return _Cell(f"0: {text}", 3)


def _bad(summary: TensorSummary) -> list[tuple[str, NonFinite]]:
    found = (("nan", summary.nan), ("inf", summary.posinf), ("-inf", summary.neginf))
    return [(word, facts) for word, facts in found if facts is not None]


def _bad_text(word: str, facts: NonFinite) -> str:
    place = f", first at {list(facts.first)}" if facts.first else ""
    return f"{word} {facts.count}{place}" if place or facts.count > 1 else word


def _table_cells(row: TableRow) -> list[_Cell]:
    """The columns of a table: name, tensor, device, bytes, content, moments, zeros, what is bad and notes."""
    summary = row.summary
    head = {cell.rank: cell for cell in _head(summary)}
    content = [cell for cell in _content(summary, 34) if cell.text]
    named = {cell.rank: cell.text for cell in content[1:]}
    bad = ", ".join(_bad_text(word, facts) for word, facts in _bad(summary))
    last = bad or "; ".join(summary.notes)
    return [
        _Cell(row.name),
        head.get(0, _Cell(summary.kind)),
        _Cell(head[5].text if 5 in head else "", 6),
        _Cell(head[4].text if 4 in head else "", 4),
        _Cell(content[0].text if content else "", 1),
        _Cell(named.get(2, ""), 3),
        _Cell(named.get(3, ""), 5),
        _Cell(last, 0, bool(bad)),
    ]
