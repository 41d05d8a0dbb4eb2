"""Arrays of 256M elements and less -> a table: the time of a summary against one pass of `np.min`, in one run.

Run `python tests/benchmarks/summary.py [MILLIONS OF ELEMENTS]`. Each round times `np.min` and then the summary of the
same array; the ratio is the median over rounds of the two times of a round, with the lowest and highest beside it. The
goal is a ratio of 2 for the first row. For dtypes whose own `np.min` is slow the ratio says little: see the times.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

from tfdb.summarize import summarize

ROUNDS = 9
HEADER = f"{'array':<34}{'np.min':>10}{'summary':>10}{'ratio':>8}{'lowest':>8}{'highest':>9}"


def arrays(millions: int) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays to time, made one at a time; the first is the one the goal is about."""
    size = millions << 20
    normal = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
    yield f"float32 normal, {millions}M", normal
    np.maximum(normal, 0, out=normal)
    yield f"float32 after a relu, {millions}M", normal
    normal[size // 2] = np.nan
    yield f"float32 with one nan, {millions}M", normal
    part = normal[: size // 8].copy()
    del normal
    yield f"float32 near 1000, {millions // 8}M", part * np.float32(0.01) + np.float32(1000)
    yield f"float32 transposed, {millions // 8}M", part.reshape(1024, -1).T
    yield f"float32 all nan, {millions // 8}M", np.full_like(part, np.nan)
    for dtype in (np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8, np.complex64):
        yield f"{np.dtype(dtype).name}, {millions // 8}M", np.nan_to_num(part).astype(dtype)
    yield "float32, 100 elements", part[:100].copy()


def seconds(call: Callable[[], object]) -> float:
    """The wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def row(name: str, array: np.ndarray) -> str:
    """One line of the table, from `ROUNDS` interleaved rounds after one that warms up."""
    pairs = [(seconds(lambda: np.min(array)), seconds(lambda: summarize(array))) for _ in range(ROUNDS + 1)][1:]
    ratios = [summary / least for least, summary in pairs]
    least, summary = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
    spread = f"{statistics.median(ratios):>8.2f}{min(ratios):>8.2f}{max(ratios):>9.2f}"
    return f"{name:<34}{least:>8.2f}ms{summary:>8.2f}ms{spread}"


def main() -> None:
    """Prints the table, a row at a time."""
    millions = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    sys.stdout.write(HEADER + "\n")
    for name, array in arrays(millions):
        with np.errstate(all="ignore"):
            sys.stdout.write(row(name, array) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
