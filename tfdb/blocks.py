"""A numeric numpy array -> the Moments of its elements, read block by block while each block is in the cache.

Large arrays are shared among threads (numpy lets go of the interpreter inside its loops). Extremes, zeros, and counts
and first positions of nan and the infinities are exact. Means and deviations are summed in the element type within a
block (float32 at least) and in float64 across blocks; a block whose values lie far from zero for their spread,
or whose squares would overflow or vanish, is centred and scaled in float64 first.
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
NONE = (-1, -1, -1)


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
    blocks per thread, whatever the array's size and layout. Raises TypeError for dtypes that are not numbers.
    """
    if not is_numeric(array.dtype):
        raise TypeError(f"no statistics of {array.dtype}: not a numeric type")
    length = BLOCK_BYTES // max(array.dtype.itemsize, 4)
    if not array.flags.c_contiguous:
        return merge(_measure_run(_strided_blocks(array, length), length))
    flat = array.reshape(-1)
    workers = _default_workers(array.nbytes) if workers is None else workers
    blocks = math.ceil(flat.size / length)
    bounds = [min(round(blocks * i / workers) * length, flat.size) for i in range(workers + 1)]
    runs = [_flat_blocks(flat, bounds[i], bounds[i + 1], length) for i in range(workers)]
    if workers == 1:
        return merge(_measure_run(runs[0], length))
    try:
        with ThreadPoolExecutor(workers, thread_name_prefix="tfdb-summary") as pool:
            return merge([part for parts in pool.map(lambda run: _measure_run(run, length), runs) for part in parts])
    except RuntimeError:  # no new threads while the interpreter shuts down
        return measure(array, workers=1)


def is_numeric(dtype: np.dtype) -> bool:
    """Whether elements of this dtype are numbers; ml_dtypes types have kind V without being numpy's void."""
    return dtype.kind in "biufc" or (dtype.kind == "V" and not issubclass(dtype.type, np.void))


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


def _default_workers(nbytes: int) -> int:
    if nbytes < THREADED_BYTES:
        return 1
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MAX_WORKERS, processors)


def _flat_blocks(flat: np.ndarray, low: int, high: int, length: int) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(low, high, length):
        yield start, flat[start : min(start + length, high)]


def _strided_blocks(array: np.ndarray, length: int) -> Iterator[tuple[int, np.ndarray]]:
    """Blocks of a non-contiguous array in row-major order. Each is valid only until the next one is asked for."""
    start = 0
    flags = ["external_loop", "buffered"]
    for block in np.nditer(array, flags=flags, order="C", buffersize=length):  # type: ignore[call-overload]
        yield start, block
        start += block.size


class _Scratch:
    """Buffers that one thread reuses for all its blocks."""

    def __init__(self, length: int) -> None:
        self.mask = np.empty(length, np.bool_)
        self._length = length
        self._ones: np.ndarray | None = None

    def ones(self, dtype: np.dtype, size: int) -> np.ndarray:
        if self._ones is None:
            self._ones = np.ones(self._length, dtype)
        return self._ones[:size]


def _measure_run(blocks: Iterator[tuple[int, np.ndarray]], length: int) -> list[Moments]:
    scratch: _Scratch | None = None
    parts = []
    with np.errstate(all="ignore"):  # per thread: does not reach here from the caller's
        for start, block in blocks:
            scratch = scratch or _Scratch(min(length, block.size))
            plain = as_plain(block)
            if plain.dtype.kind == "c":
                plain = _magnitude(plain)
            parts.append(_integers(plain) if plain.dtype.kind in "iu" else _floats(plain, start, scratch))
    return parts


def _integers(block: np.ndarray) -> Moments:
    low, high = np.minimum.reduce(block).item(), np.maximum.reduce(block).item()
    return Moments(block.size, low, high, *_careful(block, low, high), block.size - int(np.count_nonzero(block)))


def _floats(block: np.ndarray, start: int, scratch: _Scratch) -> Moments:
    """One block of float32 or float64: four light passes over cached values when nothing is unusual about it."""
    size = block.size
    squares = float(np.dot(block, block))
    mean = float(np.dot(block, scratch.ones(block.dtype, size))) / size
    low, high = np.minimum.reduce(block).item(), np.maximum.reduce(block).item()
    if not (math.isfinite(low) and math.isfinite(high)):
        return _floats_with_gaps(block, start)
    zeros = 0
    if low <= 0 <= high:
        mask = scratch.mask[:size]
        np.equal(block, block.dtype.type(0), out=mask)
        zeros = int(np.count_nonzero(mask))
    smallest, largest = SAFE_PEAK[block.dtype]
    variance = squares / size - mean * mean
    if smallest < max(-low, high) < largest and variance > SAFE_SPREAD * mean * mean:
        return Moments(size, low, high, mean, math.sqrt(variance), zeros)
    return Moments(size, low, high, *_careful(block, low, high), zeros)


def _floats_with_gaps(block: np.ndarray, start: int) -> Moments:
    """A block that holds nan or infinities: counts and places them, and measures the rest."""
    isfinite = np.isfinite(block)
    finite = block[isfinite]
    masks = (np.isnan(block), block == np.inf, block == -np.inf)
    counts = tuple(int(np.count_nonzero(mask)) for mask in masks)
    firsts = tuple(start + int(mask.argmax()) if count else -1 for mask, count in zip(masks, counts, strict=True))
    if not finite.size:
        return Moments(0, math.nan, math.nan, math.nan, math.nan, 0, counts, firsts)  # type: ignore[arg-type]
    low, high = finite.min().item(), finite.max().item()
    zeros = finite.size - int(np.count_nonzero(finite))
    return Moments(finite.size, low, high, *_careful(finite, low, high), zeros, counts, firsts)  # type: ignore[arg-type]


def _careful(block: np.ndarray, low: int | float, high: int | float) -> tuple[float, float]:
    """Mean and deviation of finite values in float64, centred, scaled when their squares would overflow or vanish."""
    if low == high:
        return float(low), 0.0
    values = block.astype(np.float64)
    peak = max(abs(float(low)), abs(float(high)))
    scale = 1.0 if 1e-100 < peak < 1e100 else peak
    if scale != 1.0:
        values /= scale
    mean = float(np.add.reduce(values)) / values.size
    values -= mean
    return mean * scale, math.sqrt(float(np.dot(values, values)) / values.size) * scale


def _magnitude(block: np.ndarray) -> np.ndarray:
    """|z| in float64: nan when either part is, inf only when a part is infinite."""
    isnan, isinf = np.isnan(block), np.isinf(block)
    magnitude = np.abs(block.astype(np.complex128))
    np.minimum(magnitude, np.finfo(np.float64).max, out=magnitude)
    magnitude[isinf] = np.inf
    magnitude[isnan] = np.nan
    return magnitude
