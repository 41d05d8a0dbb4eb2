"""A numpy array -> a TensorSummary: its statistics, a small histogram, and the values when they are few.

No TensorFlow here: bfloat16, float8 and int4 are numpy dtypes of ml_dtypes. Exact are minimum, maximum, mean and
deviation (to the rounding told in blocks.py), counts and first indices of nan and the infinities. Not exact: above
`SAMPLE` elements the histogram is that of a random sample, the same one each time, with both its ends exact; above 64M
floats the zeros are counted in an eighth of them, spread evenly; of text, the first `SAMPLE` elements are looked at.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .blocks import Moments, as_plain, is_numeric, measure, zeros_are_estimated
from .records import NonFinite, Scalar, TensorSummary, TextFacts

SAMPLE = 1 << 16
BINS = 8
FEW = 10  # elements, up to which the values themselves are kept (lovely-tensors' threshold)
SHORT = 3  # values kept of longer text arrays
TEXT_LIMIT = 60  # characters kept of one text value


def summarize(
    array: np.ndarray, *, kind: str = "array", dtype: str | None = None, device: str = "", workers: int | None = None
) -> TensorSummary:
    """Summarise an array of any dtype, shape and memory layout; the array is only read, never copied whole.

    `kind`, `dtype` and `device` are put into the summary as given. `workers` is the number of threads: by default 1 for
    arrays under 16 MiB, else one per processor, 8 at most. Bool statistics are those of 0 and 1, complex ones those of
    the magnitude. Word: "empty", "all zeros", "all equal" (two elements or more, all finite), "all nan" or "".
    """
    array = unquantised(np.asarray(array))
    facts = TensorSummary(kind, dtype or dtype_name(array), array.shape, device, array.nbytes, array.size)
    if array.size == 0:
        return replace(facts, word="empty")
    if not is_numeric(array.dtype):
        return replace(facts, values=few_values(array), text=_text_facts(array))
    return _with_statistics(facts, array, measure(array, workers))


def unquantised(array: np.ndarray) -> np.ndarray:
    """TensorFlow's quantised types, records of one field in numpy, as their integers; other arrays as they are."""
    return array[array.dtype.names[0]] if array.dtype.names is not None and len(array.dtype.names) == 1 else array


def dtype_name(array: np.ndarray) -> str:
    """The name to show for an array's dtype: `string` for text of any kind, numpy's own name otherwise."""
    if array.dtype.kind in "SUT":
        return "string"
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], bytes | str):
        return "string"
    return array.dtype.name


def few_values(array: np.ndarray) -> tuple[Scalar, ...]:
    """All elements in row-major order when there are at most `FEW`; else the first `SHORT` of text, none of numbers."""
    numeric = is_numeric(array.dtype)
    if array.size > FEW:
        return () if numeric else tuple(short_text(value) for value in array.flat[:SHORT])
    if not numeric:
        return tuple(short_text(value) for value in array.flat[:FEW])
    flat = array.reshape(-1)
    return tuple((flat if flat.dtype.kind == "b" else as_plain(flat)).tolist())


def _with_statistics(facts: TensorSummary, array: np.ndarray, moments: Moments) -> TensorSummary:
    nan, posinf, neginf = (
        NonFinite(count, tuple(int(i) for i in np.unravel_index(first, array.shape))) if count else None
        for count, first in zip(moments.counts, moments.firsts, strict=True)
    )
    facts = replace(facts, nan=nan, posinf=posinf, neginf=neginf, values=few_values(array), word=_word(array, moments))
    facts = replace(facts, of="magnitude" if array.dtype.kind == "c" else "")
    if not moments.finite:
        return facts
    return replace(
        facts,
        minimum=moments.minimum,
        maximum=moments.maximum,
        mean=moments.mean,
        std=moments.std,
        zeros=moments.zeros,
        zeros_estimated=zeros_are_estimated(array),
        histogram=_histogram(array, moments),
    )


def _word(array: np.ndarray, moments: Moments) -> str:
    if array.size > 1 and moments.counts[0] == array.size:
        return "all nan"
    if array.size > 1 and moments.finite == array.size and moments.minimum == moments.maximum:
        # Complex numbers of one magnitude need not be equal.
        return "all zeros" if moments.minimum == 0 else "" if array.dtype.kind == "c" else "all equal"
    return ""


def _histogram(array: np.ndarray, moments: Moments) -> tuple[int, ...]:
    """Counts of `BINS` equal bins from minimum to maximum; () when all finite values are equal."""
    low, high = float(moments.minimum), float(moments.maximum)
    half_range = high / 2 - low / 2  # halves: the difference itself may overflow
    if half_range <= 0:
        return ()
    values = _sample(array)
    with np.errstate(all="ignore"):
        values = np.abs(values.astype(np.complex128)) if values.dtype.kind == "c" else as_plain(values)
        places = (values.astype(np.float64) / 2 - low / 2) / half_range * BINS
    places = places[np.isfinite(places)]
    counts = np.bincount(np.clip(places.astype(np.int64), 0, BINS - 1), minlength=BINS)
    counts[[0, -1]] = np.maximum(counts[[0, -1]], 1)  # a sample may have missed the extremes, which do exist
    return tuple(counts.tolist())


def _sample(array: np.ndarray) -> np.ndarray:
    """All elements, or `SAMPLE` random ones: any fixed stride might keep step with the array's own columns."""
    if array.size <= SAMPLE:
        return array.reshape(-1)
    places = np.sort(np.random.default_rng(0).integers(0, array.size, SAMPLE))
    return array[np.unravel_index(places, array.shape)]


def _text_facts(array: np.ndarray) -> TextFacts:
    values = [value if isinstance(value, bytes | str) else short_text(value) for value in array.flat[:SAMPLE]]
    return TextFacts(len(set(values)), max(len(value) for value in values), array.size > SAMPLE)


def short_text(value: object) -> str:
    """Text as str, any other object as its repr, cut at `TEXT_LIMIT`. A repr that raises is named, not shown."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    if not isinstance(value, str):
        try:
            value = repr(value)
        except Exception as error:
            value = f"<{type(value).__name__}: its repr raises {type(error).__name__}>"
    value = str(value)  # of numpy's subclass
    return value if len(value) <= TEXT_LIMIT else value[: TEXT_LIMIT - 1] + "…"
