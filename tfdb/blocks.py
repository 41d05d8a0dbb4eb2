"""A numeric numpy array -> the Moments of its elements, read block by block while each block is in the cache.

Large arrays are shared among threads (numpy lets go of the interpreter inside its loops). Extremes, and counts and
first positions of nan and the infinities are exact; so are zeros, but for floats in arrays over `EXACT_ZEROS` elements.
Means and deviations are summed in the element type within a block (float32 at least), in float64 across blocks; a block
whose values lie far from zero for their spread is centred first, one whose squares would overflow or vanish is scaled
in float64 first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

# Measured: smaller blocks lose more to threads waiting for each other than they gain by fitting the inner caches.
BLOCK_BYTES = 2 << 20
THREADED_BYTES = 16 << 20
MAX_WORKERS = 8
# The magnitudes of a block's peak between which sums of squares neither overflow nor vanish.
SAFE_PEAK = {np.dtype(np.float32): (1e-12, 1e15), np.dtype(np.float64): (1e-130, 1e145)}
# Below this variance / mean² the one-pass variance may lose the third digit in float32.
SAFE_SPREAD = 0.05
COLUMNS = 4096
PIECE = 1 << 16
BLAS_SERIAL = 10_000
# Above this many floats zeros are counted in one part of `THIN` of each block: counting them is a fourth of all work.
EXACT_ZEROS = 1 << 26
THIN = 8
NONE = (-1, -1, -1)

Block = tuple[int, np.ndarray]


@dataclass(frozen=True, slots=True)
class Moments:
    """Statistics of a run of elements.

    `minimum`, `maximum`, `mean`, `std` (population) are over the `finite` finite elements and nan when there are none;
    `counts` and `firsts` (flat row-major positions, -1 for none) are of nan, +inf and -inf, in this order.
    """

    finite: int
    minimum: int | float
    maximum: int | float
    mean: float
    std: float
    zeros: int
    counts: tuple[int, int, int] = (0, 0, 0)
    firsts: tuple[int, int, int] = NONE


def measure(array: np.ndarray, workers: int | None = None) -> Moments:
    """The moments of a non-empty array of numbers (bool, integer, float, complex, or an ml_dtypes type).

    Bool counts as 0 and 1; complex by magnitude, nan when either part is nan, +inf when one is infinite. Memory: a few
    blocks per thread, whatever the array's size and layout. `workers` is the number of threads, by default 1 for small
    arrays, else one per processor, at most `MAX_WORKERS`. Raises TypeError for dtypes that are not numbers.
    """
    if not is_numeric(array.dtype):
        raise TypeError(f"no statistics of {array.dtype}: not a numeric type")
    length = BLOCK_BYTES // max(array.dtype.itemsize, working_dtype(array.dtype).itemsize)
    if array.flags.c_contiguous:
        return _measure_flat(array.reshape(-1), length, _default_workers(array.nbytes) if workers is None else workers)
    in_memory_order = array.transpose(sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))
    if in_memory_order.flags.c_contiguous:
        moments = measure(in_memory_order, workers)
        if moments.counts == (0, 0, 0):  # else the first positions are those of another order
            return moments
    return merge(_measure_run(_strided_blocks(array, length), length))


def is_numeric(dtype: np.dtype) -> bool:
    """Whether elements of this dtype are numbers; ml_dtypes types have kind V without being numpy's void."""
    return dtype.kind in "biufc" or (dtype.kind == "V" and not issubclass(dtype.type, np.void))


def is_small(dtype: np.dtype) -> bool:
    """Whether this is a type of ml_dtypes, which numpy neither prints in columns nor mixes with its own."""
    return is_numeric(dtype) and (dtype.kind == "V" or (dtype.kind == "f" and dtype.itemsize == 1))


def merge(parts: list[Moments]) -> Moments:
    """The moments of all parts' elements together. Scaled by the largest magnitude, so that float64 never overflows."""
    some = [part for part in parts if part.finite]
    counts = tuple(sum(part.counts[kind] for part in parts) for kind in range(3))
    firsts = tuple(
        min((part.firsts[kind] for part in parts if part.firsts[kind] >= 0), default=-1) for kind in range(3)
    )
    if not some:
        return Moments(0, math.nan, math.nan, math.nan, math.nan, 0, counts, firsts)  # type: ignore[arg-type]
    low, high = min(part.minimum for part in some), max(part.maximum for part in some)
    scale = max(abs(float(low)), abs(float(high))) or 1.0
    weights = np.array([part.finite for part in some], np.float64)
    means = np.array([part.mean for part in some]) / scale
    stds = np.array([part.std for part in some]) / scale
    mean = float(np.average(means, weights=weights))
    std = math.sqrt(float(np.average(stds**2 + (means - mean) ** 2, weights=weights)))
    finite, zeros = sum(part.finite for part in some), sum(part.zeros for part in some)
    return Moments(finite, low, high, mean * scale, std * scale, zeros, counts, firsts)  # type: ignore[arg-type]


def as_plain(block: np.ndarray) -> np.ndarray:
    """The block in an integer type, float32 or float64 in native byte order, exactly; complex stays as it is."""
    dtype = block.dtype
    if dtype.kind == "b":
        return block.view(np.uint8)
    if dtype.kind == "V":
        return block.astype(np.int16 if "int" in dtype.name else np.float32)
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return block.astype(np.float32 if dtype.itemsize == 2 else np.float64)
    return block if dtype.isnative else block.astype(dtype.newbyteorder("="))


def zeros_are_estimated(array: np.ndarray) -> bool:
    """Whether `measure` counts the zeros of this array in a part of it only; one that is an extreme is never missed."""
    return array.size > EXACT_ZEROS and not are_integers(array.dtype)


def are_integers(dtype: np.dtype) -> bool:
    """Whether elements of the type are integers or bools."""
    return dtype.kind in "biu" or (dtype.kind == "V" and "int" in dtype.name)


def working_dtype(dtype: np.dtype) -> np.dtype:
    """The type in which elements are summed: float32 where it holds them all exactly, else float64."""
    parts = 2 if dtype.kind == "c" else 1
    wide = dtype.itemsize > 4 * parts or (dtype.kind in "iu" and dtype.itemsize > 2)
    return np.dtype(np.float64 if wide else np.float32)


def _default_workers(nbytes: int) -> int:
    if nbytes < THREADED_BYTES:
        return 1
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MAX_WORKERS, processors)


def _measure_flat(flat: np.ndarray, length: int, workers: int) -> Moments:
    starts = iter(range(0, flat.size, length))  # shared by the threads: each takes the next block when it is free

    thin = THIN if zeros_are_estimated(flat) else 1

    def run() -> list[Moments]:
        return _measure_run(((start, flat[start : start + length]) for start in starts), min(length, flat.size), thin)

    if workers == 1:
        return merge(run())
    try:
        with ThreadPoolExecutor(workers, thread_name_prefix="tfdb-summary") as pool:
            runs = [pool.submit(run) for _ in range(workers)]
            return merge([part for parts in runs for part in parts.result()])
    except RuntimeError:  # no new threads while the interpreter shuts down
        return _measure_flat(flat, length, workers=1)


def _strided_blocks(array: np.ndarray, length: int) -> Iterator[Block]:
    """Blocks of a non-contiguous array in row-major order. Each is valid only until the next one is asked for."""
    start = 0
    flags = ["external_loop", "buffered"]
    for block in np.nditer(array, flags=flags, order="C", buffersize=length):  # type: ignore[call-overload]
        yield start, block
        start += block.size


class _Scratch:
    """Buffers that one thread reuses for all its blocks: fresh memory costs more than the arithmetic done in it."""

    def __init__(self, dtype: np.dtype, length: int) -> None:
        self.mask = np.empty(length, np.bool_)
        self._buffer = np.empty(length, dtype)

    def floats(self, block: np.ndarray) -> np.ndarray:
        """The block, or a copy in the working type where it is of another."""
        if block.dtype == self._buffer.dtype:
            return block
        values = self._buffer[: block.size]
        if block.dtype.kind == "c":
            return np.abs(block, out=values)
        np.copyto(values, block, casting="unsafe")
        return values

    def centred(self, values: np.ndarray, center: float) -> np.ndarray:
        """The values less `center`; what `floats` gave before is overwritten."""
        return np.subtract(values, values.dtype.type(center), out=self._buffer[: values.size])


def _measure_run(blocks: Iterator[Block], length: int, thin: int = 1) -> list[Moments]:
    scratch: _Scratch | None = None
    parts = []
    with np.errstate(all="ignore"):  # per thread: does not reach here from the caller's
        for start, block in blocks:
            scratch = scratch or _Scratch(working_dtype(block.dtype), length)
            integers = are_integers(block.dtype)
            parts.append(_integers(block, scratch) if integers else _floats(block, start, scratch, thin))
    return parts


def _integers(block: np.ndarray, scratch: _Scratch) -> Moments:
    block = as_plain(block)
    low, high = np.minimum.reduce(block).item(), np.maximum.reduce(block).item()
    zeros = block.size - int(np.count_nonzero(block)) if low <= 0 <= high else 0
    if low == high:
        return Moments(block.size, low, high, float(low), 0.0, zeros)
    values = scratch.floats(block)
    mean = _total(values) / values.size
    return Moments(block.size, low, high, *_centred_moments(values, mean, scratch), zeros)


def _floats(block: np.ndarray, start: int, scratch: _Scratch, thin: int) -> Moments:
    """One block of floats or magnitudes: light passes over cached values as long as nothing is unusual about it."""
    values, size = scratch.floats(block), block.size
    squares = _squares(values)
    mean = _total(values) / size
    low, high = np.minimum.reduce(values).item(), np.maximum.reduce(values).item()
    if not (math.isfinite(low) and math.isfinite(high)):
        return _floats_with_gaps(block, start)
    zeros = 0
    if low <= 0 <= high:
        counted = -(-size // thin)
        mask = np.equal(values[:counted], values.dtype.type(0), out=scratch.mask[:counted])
        zeros = max(round(int(np.count_nonzero(mask)) * size / counted), int(low == 0 or high == 0))
    smallest, largest = SAFE_PEAK[values.dtype]
    if low == high or not smallest < max(-low, high) < largest:
        return Moments(size, low, high, *_scaled_moments(values, low, high), zeros)
    variance = squares / size - mean * mean
    if variance > SAFE_SPREAD * mean * mean:
        return Moments(size, low, high, mean, math.sqrt(variance), zeros)
    return Moments(size, low, high, *_centred_moments(values, mean, scratch), zeros)


def _floats_with_gaps(block: np.ndarray, start: int) -> Moments:
    """A block that holds nan or infinities, in pieces: what it takes to leave them out needs fresh memory."""
    return merge([_piece_with_gaps(block[i : i + PIECE], start + i) for i in range(0, block.size, PIECE)])


def _piece_with_gaps(block: np.ndarray, start: int) -> Moments:
    """Counts and places nan and the infinities, and measures the rest."""
    values = _magnitude(block) if block.dtype.kind == "c" else as_plain(block)
    isfinite = np.isfinite(values)
    finite = values[isfinite]
    masks = (np.isnan(values), values == np.inf, values == -np.inf)
    counts = tuple(int(np.count_nonzero(mask)) for mask in masks)
    firsts = tuple(start + int(mask.argmax()) if count else -1 for mask, count in zip(masks, counts, strict=True))
    if not finite.size:
        return Moments(0, math.nan, math.nan, math.nan, math.nan, 0, counts, firsts)  # type: ignore[arg-type]
    low, high = finite.min().item(), finite.max().item()
    zeros = finite.size - int(np.count_nonzero(finite))
    moments = _scaled_moments(finite, low, high)
    return Moments(finite.size, low, high, *moments, zeros, counts, firsts)  # type: ignore[arg-type]


def _centred_moments(values: np.ndarray, center: float, scratch: _Scratch) -> tuple[float, float]:
    """Mean and deviation from the differences to a value near the mean, where squares would cancel each other."""
    center = float(values.dtype.type(center))
    centred = scratch.centred(values, center)
    offset = _total(centred) / values.size
    variance = _squares(centred) / values.size - offset * offset
    return center + offset, math.sqrt(max(variance, 0.0))


def _total(values: np.ndarray) -> float:
    """The sum of the values, first by columns of a wide table: faster than numpy's own sum, and as precise."""
    rows = values.size // COLUMNS
    table, rest = values[: rows * COLUMNS].reshape(rows, COLUMNS), values[rows * COLUMNS :]
    columns = np.add.reduce(table, axis=0)
    return float(np.add.reduce(columns, dtype=np.float64) + np.add.reduce(rest, dtype=np.float64))


def _squares(values: np.ndarray) -> float:
    """The sum of squares. Of float64 in pieces too short for OpenBLAS to use threads of its own, which fight ours."""
    if values.dtype == np.float32:
        return float(np.dot(values, values))
    return sum(float(np.dot(piece, piece)) for piece in np.split(values, range(BLAS_SERIAL, values.size, BLAS_SERIAL)))


def _scaled_moments(values: np.ndarray, low: float, high: float) -> tuple[float, float]:
    """Mean and deviation of finite values of any magnitude, in float64 and scaled by the largest."""
    if low == high:
        return low, 0.0
    scale = max(-low, high)
    scaled = values.astype(np.float64) / scale
    mean = float(np.add.reduce(scaled)) / scaled.size
    scaled -= mean
    return mean * scale, math.sqrt(_squares(scaled) / scaled.size) * scale


def _magnitude(block: np.ndarray) -> np.ndarray:
    """|z| in float64: nan when either part is, inf only when a part is infinite."""
    magnitude = np.abs(block.astype(np.complex128))
    np.minimum(magnitude, np.finfo(np.float64).max, out=magnitude)
    magnitude[np.isinf(block)] = np.inf
    magnitude[np.isnan(block)] = np.nan
    return magnitude
