"""An array -> a picture of it: text for the terminal (plotext), a PNG file (matplotlib), or a TensorBoard event file.

Both libraries are the extra `plot`; without them a TfdbError says so in one line. What is drawn of a large array is
reduced first, so that its size does not matter: blocks of a matrix by their means, a line by its lowest and highest.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import render
from .blocks import measure
from .errors import TfdbError

BINS, FEWEST = 40, 6
MOST_SINGLE = 12  # distinct values up to which each has a bar of its own, in the terminal
LONGEST_BAR, WIDEST_UNIT = 40, 8  # columns
SAMPLE = 1 << 20  # elements of a histogram; more are sampled, the same ones each time
SHADES = " ░▒▓█"
PALETTE = (53, 54, 60, 24, 31, 30, 36, 35, 71, 107, 149, 185, 227)  # of 256 colours: viridis, coarsely
TOO_FAR = "its range is larger than the largest number: divide it first, for example by 2"
LINE, MAP, PICTURE, BARS = "line", "map", "picture", "bars"
MOST_CHANNELS = 4  # of a last axis that is colour


@dataclass(frozen=True, slots=True)
class Drawing:
    """What to draw: its kind, the values (for bars the counts, and `edges` of the bins), a title, and notes.

    `single` are the distinct values with their counts, where they are few.
    """

    kind: str
    values: np.ndarray
    title: str
    edges: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    single: tuple[tuple[float, int], ...] = ()


def library(name: str) -> Any:
    """A plotting library.

    Raises:
        TfdbError: it is not installed, or too old.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise TfdbError(f"plots need {package}, which is not installed: pip install 'tfdb[plot]'") from error


def histogram(array: np.ndarray, title: str) -> Drawing:
    """How often the finite values of an array occur, in equal bins: `BINS`, or twice the root of their number.

    Raises:
        TfdbError: there is no finite number in it.
    """
    flat = numbers(array).reshape(-1)
    notes = []
    if flat.size > SAMPLE:
        flat = flat[np.random.default_rng(0).integers(0, flat.size, SAMPLE)]
        notes.append(f"of {SAMPLE} sampled elements")
    finite = flat[np.isfinite(flat)]
    if finite.size < flat.size:
        notes.append(f"{flat.size - finite.size} not finite, left out")
    if not finite.size:
        raise TfdbError("no finite number to count")
    counts, edges = counted(finite.astype(np.float64))
    return Drawing(BARS, counts, title, edges, tuple(notes), distinct(finite))


def distinct(values: np.ndarray) -> tuple[tuple[float, int], ...]:
    """Each distinct value with its count, in order; () where there are more than `MOST_SINGLE`."""
    if np.unique(values[: 4 * MOST_SINGLE]).size > MOST_SINGLE:
        return ()
    found, counts = np.unique(values, return_counts=True)
    return tuple(zip(found.tolist(), counts.tolist(), strict=True)) if found.size <= MOST_SINGLE else ()


def counted(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The counts and edges of the bins; they are wider than the values' range where floats cannot split that.

    Raises:
        TfdbError: the range is larger than the largest float.
    """
    low, high = float(values.min()), float(values.max())
    if not np.isfinite(high - low):
        raise TfdbError(TOO_FAR)
    narrow = 4 * BINS * float(np.spacing(max(abs(low), abs(high))))
    near = high - low < narrow if high > low else narrow > 0.5  # NumPy spreads equal values over 1
    limits = (low - narrow, high + narrow) if near else None
    return np.histogram(values, min(BINS, max(FEWEST, int(2 * np.sqrt(values.size)))), limits)


def drawing(array: np.ndarray, title: str) -> Drawing:
    """The drawing that suits an array: a line for one axis, a picture for image shapes, a heat map for two axes.

    A batch shows its first element.

    Raises:
        TfdbError: a scalar, or more axes than a batch of images has.
    """
    array = numbers(array)
    over: list[int] = []
    while array.ndim > 3 or (array.ndim == 3 and not is_picture(array)):
        over.append(array.shape[0])
        if not array.shape[0]:
            raise TfdbError("it is empty")
        array = array[0]
    notes = [f"element {'0' if len(over) == 1 else [0] * len(over)} of {' × '.join(map(str, over))}"] if over else []
    if array.ndim == 3:
        array, notes = (array[..., 0], notes) if array.shape[-1] in (1, 2) else (array[..., :3], notes)
        return Drawing(PICTURE, array, title, notes=tuple(notes))
    if array.ndim == 0 or not array.size:
        raise TfdbError("plot takes an array of one axis or more, with elements in it: pt shows this one")
    if array.ndim == 1:
        found = measure(array)
        if not found.finite:
            raise TfdbError("no finite number to draw")
        if not np.isfinite(float(found.maximum) - float(found.minimum)):
            raise TfdbError(TOO_FAR)
        notes += [f"{array.size - found.finite} not finite"] if found.finite < array.size else []
    return Drawing(LINE if array.ndim == 1 else MAP, array, title, notes=tuple(notes))


def is_picture(array: np.ndarray) -> bool:
    """Whether three axes look like height, width, channels."""
    return array.shape[-1] <= MOST_CHANNELS and min(array.shape[:2]) > MOST_CHANNELS


def numbers(array: np.ndarray) -> np.ndarray:
    """The array as real numbers.

    Raises:
        TfdbError: it holds text or objects.
    """
    if array.dtype.kind == "c":
        return np.abs(array)
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind in "SUTO":
        raise TfdbError("text cannot be drawn: numbers can")
    try:
        return array.astype(np.float32)  # bfloat16, float8
    except (TypeError, ValueError) as error:
        raise TfdbError(f"{array.dtype} cannot be drawn: numbers can") from error


def text(made: Drawing, width: int, height: int, color: bool) -> str:
    """The drawing as lines of text at most `width` columns wide.

    Raises:
        TfdbError: plotext is not installed.
    """
    head = " · ".join([made.title, *made.notes])
    if made.kind in (MAP, PICTURE):
        values = gray(made.values)
        rows, columns = max(height - 3, 4), max(width - 2, 8)
        if color and made.values.ndim == 3:
            body = in_true_colour(made.values, rows, columns)
        else:
            small = blocks(values, rows, columns, made.kind)
            body = coloured(small) if color else shaded(small)
        low, high = finite_range(values)
        scale = f"{render.number(low)} {SHADES.strip() if not color else 'to'} {render.number(high)}"
        if low == high:
            scale = f"all {render.number(low)}" if np.isfinite(values).any() else "no finite number"
        lines = [head, *body, f"{scale}   {values.shape[0]} × {values.shape[1]}, rows down"]
    elif made.single:
        lines = [head, *bars(made.single, width)]
    else:
        lines = [head, *curve(made, width, height, color)]
    return "\n".join(render.shorten(line, width) if not color else line for line in lines)


def bars(single: Sequence[tuple[float, int]], width: int) -> list[str]:
    """A line for each value: the value, a bar, its count."""
    names = names_of([value for value, _ in single])
    most, counts = max(count for _, count in single), [str(count) for _, count in single]
    wide, last = max(map(len, names)), max(map(len, counts))
    room = max(min(LONGEST_BAR, WIDEST_UNIT * most, width - wide - last - 5), 1)
    return [
        f"  {name:>{wide}} {'█' * max(round(room * count / most), 1):<{room}} {shown:>{last}}"
        for name, shown, (_, count) in zip(names, counts, single, strict=True)
    ]


def names_of(values: Sequence[float]) -> list[str]:
    """Numbers as text that tells them apart; whole ones as they are."""
    if not isinstance(values[0], float):
        return [str(value) for value in values]
    digits = next((n for n in range(3, 17) if len({f"{value:.{n}g}" for value in values}) == len(values)), 17)
    return [f"{value:.{digits}g}" if digits > 3 else render.number(value) for value in values]


def curve(made: Drawing, width: int, height: int, color: bool) -> list[str]:
    """A line or bars, by plotext."""
    plotext = library("plotext")
    figure = plotext.figure
    if not hasattr(figure, "draw"):
        raise TfdbError("plots need plotext 6 or later: pip install -U 'tfdb[plot]'")
    figure.clear()
    figure.theme("simple" if color else "colorless")
    figure.plot_size(width, height)
    if made.edges is not None:
        most = int(made.values.max())
        figure.plot_size(width, min(height, most + 5))
        centres = (made.edges[:-1] + made.edges[1:]) / 2
        whole = list(range(0, most + 1, -(-most // 4)))
        figure.ruler("y").ticks(whole, [str(count) for count in whole])
        figure.draw(figure.bar(centres.tolist(), made.values.tolist(), width=1))
        ticks = np.linspace(made.edges[0], made.edges[-1], 6)
        figure.ruler("x").ticks(ticks.tolist(), [render.number(float(tick)) for tick in ticks])
    else:
        for places, values in segments(made.values, 2 * width):
            figure.draw(figure.signal(places.tolist(), values.tolist()).lines())
    built = str(figure.build())
    figure.clear()
    return [(line if color else render.uncoloured(line)).rstrip() for line in built.rstrip("\n").split("\n")]


def segments(values: np.ndarray, most: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The finite stretches of a line as places and values, a long line by the lowest and highest of each piece."""
    places = np.arange(values.size) if values.size <= 2 * most else extremes(values, most)
    good = np.isfinite(values[places])
    runs = np.split(places, np.flatnonzero(np.diff(good.astype(int))) + 1)
    return [(run, values[run].astype(np.float64)) for run in runs if run.size and np.isfinite(values[run[0]])]


def extremes(values: np.ndarray, pieces: int) -> np.ndarray:
    """The places of the lowest and the highest finite value of each of so many pieces, in order."""
    kept: set[int] = set()
    start = 0
    for piece in np.array_split(values, pieces):
        good = None if np.isfinite(piece.min()) and np.isfinite(piece.max()) else np.isfinite(piece)
        low = piece if good is None else np.where(good, piece, np.inf)
        high = piece if good is None else np.where(good, piece, -np.inf)
        kept |= {start + int(low.argmin()), start + int(high.argmax())}
        start += piece.size
    return np.array(sorted(kept))


def gray(values: np.ndarray) -> np.ndarray:
    """A picture's brightness; a map as it is."""
    return (
        values.astype(np.float64) @ np.array([0.299, 0.587, 0.114]) if values.ndim == 3 else values.astype(np.float64)
    )


def blocks(values: np.ndarray, height: int, width: int, kind: str) -> np.ndarray:
    """The matrix reduced to at most `height` rows and `width` columns by means; NaN where any of a block is not finite.

    A picture keeps its proportions: a character is twice as high as wide.
    """
    rows, columns = values.shape
    if kind == PICTURE:
        scale = min(height / rows, width / 2 / columns, 1.0)
        height, width = max(int(rows * scale), 1), max(int(columns * scale * 2), 1)
        values = np.repeat(values, 2, axis=1) if 2 * columns <= width else values
    reduced = values
    for axis, most in ((0, height), (1, width)):
        size = reduced.shape[axis]
        if size > most:
            parts = np.array_split(np.arange(size), most)
            with np.errstate(all="ignore"):
                reduced = np.stack([np.take(reduced, part, axis).mean(axis) for part in parts], axis)
    return reduced


def finite_range(values: np.ndarray) -> tuple[float, float]:
    """The lowest and highest finite value, 0 where there is none."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def steps_of(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The step, from 0 to count - 1, that each value is at in the finite range, and which values are finite."""
    low, high = finite_range(values)
    good = np.isfinite(values)
    with np.errstate(all="ignore"):
        places = (np.where(good, values, low) - low) / ((high - low) or 1)
        return np.clip((places * count).astype(int), 0, count - 1), good


def shaded(values: np.ndarray) -> list[str]:
    """A matrix in five densities; × for what is not finite."""
    steps, good = steps_of(values, len(SHADES))
    rows = zip(steps, good, strict=True)
    return ["".join(SHADES[step] if fine else "×" for step, fine in zip(*row, strict=True)) for row in rows]


def coloured(values: np.ndarray) -> list[str]:
    """A matrix in colours from low (dark) to high (light), which read on dark and light terminals; × if not finite."""
    steps, good = steps_of(values, len(PALETTE))
    lines = []
    for row in zip(steps, good, strict=True):
        cells = (f"\x1b[38;5;{PALETTE[step]}m█" if fine else f"{render.RED}×" for step, fine in zip(*row, strict=True))
        lines.append("".join(cells) + render.RESET)
    return lines


def in_true_colour(picture: np.ndarray, height: int, width: int) -> list[str]:
    """A picture with three channels in its own colours."""
    shown = as_picture(picture)
    channels = [blocks(shown[..., n], height, width, PICTURE) for n in range(3)]
    pixels = np.clip(np.nan_to_num(np.stack(channels, axis=-1)) * 255, 0, 255).astype(int)
    return ["".join(f"\x1b[38;2;{r};{g};{b}m█" for r, g, b in row) + render.RESET for row in pixels]


def png(drawings: Sequence[Drawing], path: str) -> None:
    """Write a drawing, or several curves over each other, to a PNG file.

    Raises:
        TfdbError: matplotlib is not installed, or the file cannot be written.
    """
    figures = library("matplotlib.figure")
    figure = figures.Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    made = drawings[0]
    if len(drawings) == 1:
        axes.set_title(plain_title(" · ".join([made.title, *made.notes])))
    if made.edges is not None:
        axes.stairs(made.values, made.edges, fill=True)
    elif made.kind == LINE:
        for each in drawings:
            line(axes, each, len(drawings) > 1)
    elif made.kind == MAP:
        figure.colorbar(axes.imshow(as_map(made.values), aspect="auto", interpolation="nearest"), ax=axes)
    else:
        axes.imshow(as_picture(made.values), cmap="gray" if made.values.ndim == 2 else None)
        axes.set_axis_off()
    try:
        figure.savefig(path, format="png")
    except (OSError, ValueError) as error:
        raise TfdbError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def plain_title(text: str) -> str:
    """A title that matplotlib does not take for mathematics."""
    return render.shorten(text.replace("$", r"\$"), 90)


def line(axes: Any, made: Drawing, named: bool) -> None:
    """A curve, dots where a value stands alone, red crosses on the axis where one is not finite."""
    good = np.isfinite(made.values)
    finite = np.where(good, made.values, np.nan)
    beside = np.concatenate([[False], good[:-1]]) | np.concatenate([good[1:], [False]])
    alone = np.flatnonzero(good & ~beside).tolist()
    options = {"marker": "o", "markersize": 4, "markevery": alone} if alone else {}
    axes.plot(finite, label=plain_title(made.title) if named else None, **options)
    bad = np.flatnonzero(~good)
    if bad.size:
        axes.plot(bad, np.zeros(bad.size), "rx", transform=axes.get_xaxis_transform(), clip_on=False)
    if named:
        axes.legend()


def as_map(values: np.ndarray) -> np.ndarray:
    """A matrix as matplotlib takes it, bools as numbers; what is not finite is left blank."""
    return np.ma.masked_invalid(values.astype(np.float64))


def as_picture(values: np.ndarray) -> np.ndarray:
    """A picture's values from 0 to 1: bytes by 255, others by their range unless they lie in 0 to 1."""
    if values.dtype == np.uint8:
        return values / 255.0
    values = np.nan_to_num(values.astype(np.float64))
    low, high = finite_range(values)
    return values if low >= 0 and high <= 1 else (values - low) / ((high - low) or 1.0)
