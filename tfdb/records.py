"""The values all parts of tfdb speak: frozen records, computed in one place and turned into text in another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Scalar = bool | int | float | complex | str


def shape_text(shape: tuple[int | None, ...] | None) -> str:
    """A shape in parentheses, as Python writes a tuple, ? for an unknown size and for an unknown rank."""
    if shape is None:
        return "(?)"
    return f"({', '.join('?' if size is None else str(size) for size in shape)}{',' if len(shape) == 1 else ''})"


@dataclass(frozen=True, slots=True)
class NonFinite:
    """How many elements are of one non-finite kind, and the index of the first one in row-major order."""

    count: int
    first: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TextFacts:
    """What can be said of string or object elements: distinct values and the longest one, in characters or bytes.

    `sampled` is true when they were taken from the leading elements only.
    """

    distinct: int
    longest: int
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """What one tensor is and what is in it.

    `minimum`, `maximum`, `mean`, `std` (population) and `histogram` (counts of equal bins from minimum to maximum) are
    over the finite elements and None or empty when there are none; `of` names what they are statistics of when that is
    not the elements themselves ("magnitude"). `size` is None when no value can be had, and `notes` then say why.
    `values` are the leading elements in row-major order, all of them when there are as many as `size`.
    """

    kind: str
    dtype: str
    shape: tuple[int | None, ...] | None
    device: str = ""
    nbytes: int | None = None
    size: int | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None
    mean: float | None = None
    std: float | None = None
    zeros: int | None = None
    nan: NonFinite | None = None
    posinf: NonFinite | None = None
    neginf: NonFinite | None = None
    histogram: tuple[int, ...] = ()
    values: tuple[Scalar, ...] = ()
    word: str = ""
    of: str = ""
    text: TextFacts | None = None
    notes: tuple[str, ...] = ()
    zeros_estimated: bool = False

    @property
    def finite(self) -> bool:
        """Whether no element is NaN or infinite (true as well when there is no value to look at)."""
        return self.nan is None and self.posinf is None and self.neginf is None

    @property
    def zero_share(self) -> float | None:
        """The share of elements equal to zero, 0 to 1; None where it means nothing."""
        return self.zeros / self.size if self.size and self.zeros is not None else None


@dataclass(frozen=True, slots=True)
class TableRow:
    """One leaf of a structure: its path in the structure or its variable's name, and its summary."""

    name: str
    summary: TensorSummary


@dataclass(frozen=True, slots=True)
class Stored:
    """The elements that a value holds as an array, and where in the value each of them is.

    `layout` says which elements are stored where the array is not the whole value: the row splits of a ragged tensor,
    outermost first; the indices of a sparse one; the row numbers of slices. `place` turns an index of the array into
    one of the value; None where they are the same.
    """

    array: np.ndarray
    kind: str = "array"
    shape: tuple[int | None, ...] | None = None
    place: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None
    layout: tuple[np.ndarray, ...] = ()

    def at(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Where in the value the element of that index is."""
        return self.place(index) if self.place is not None and index else index
