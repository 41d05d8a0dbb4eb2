"""An origin in a log -> the values on its way, named as the user does: inputs, the path to the loss or gradients."""

from __future__ import annotations

import linecache
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import causes, operands
from .conditions import badness
from .origin import Log, spread
from .recorder import Capture, Outcome
from .report import NamedSummary, PathStep
from .tensors import describe_leaf
from .varnames import name_of

MOST_FORWARD, MOST_AFTER = 40, 3  # ops followed from a forward op to the loss; bad ones shown after the origin


def around(log: Log, index: int, forward: int | None) -> tuple[list[int], list[int]]:
    """The events to take values of besides the origin: from its forward op on to the loss, and after the origin."""
    return to_the_end(log, forward) if forward is not None else [], spread(log, index)


def to_the_end(log: Log, index: int) -> list[int]:
    """The forward ops that the output of the event `index` goes through, up to the last, a loss."""
    found = [index]
    while len(found) < MOST_FORWARD:
        outputs = log.events[found[-1]].outputs
        later = [i for out in outputs for i in log.consumers.get(out, ()) if log.events[i].forward is None]
        following = [i for i in later if i > found[-1] and log.events[i].outputs]
        if not following:
            break
        found.append(following[0])
    return found


def path(
    first: Sequence[NamedSummary], made: Capture, captured: Mapping[int, Capture], before: list[int], after: list[int]
) -> tuple[PathStep, ...]:
    """From the first input of the op to where it was stopped: values by the user's names, else by their ops."""
    names = local_names(captured[max(captured)]) if captured else {}
    steps = [ranged(value.name, value) for value in first[:1] if value.name]
    forward = [step_of(captured[i], names) for i in before if i in captured]
    steps += [step for step, named in forward[:-1] if named] + [step for step, _ in forward[-1:]]
    steps.append(step_of(made, names)[0])
    spoiled = [step_of(captured[i], names) for i in after if i in captured]
    chosen = [step for step, named in spoiled if named][:MOST_AFTER] or [step for step, _ in spoiled[:MOST_AFTER]]
    return (*steps, *chosen)


def ranged(name: str, value: NamedSummary) -> PathStep:
    """An input as a step of the path."""
    low, high = value.summary.minimum, value.summary.maximum
    bad = "" if value.summary.finite else "nan" if value.summary.nan is not None else "inf"
    return PathStep(name, None if low is None else float(low), None if high is None else float(high), bad)


def step_of(made: Capture, names: Mapping[int, str]) -> tuple[PathStep, bool]:
    """The first output of an op as a step of the path, and whether the user has a name for it."""
    output = made.outputs[0] if made.outputs else None
    name = names.get(getattr(output, "_id", -1), "")
    array = np.asarray(output) if numeric(output) else np.zeros(0)
    finite = array[np.isfinite(array)] if array.size else array
    low, high = (float(finite.min()), float(finite.max())) if finite.size and array.dtype.kind != "c" else (None, None)
    return PathStep(name or made.op, low, high, badness(array)), bool(name)


def numeric(value: Any) -> bool:
    """Whether a tensor has numbers to look at."""
    return value is not None and name_of_dtype(value) not in ("resource", "variant", "string", "")


def name_of_dtype(value: Any) -> str:
    """The dtype's name, or '' for what has none."""
    dtype = getattr(value, "dtype", None)
    return str(getattr(dtype, "name", dtype or ""))


def local_names(here: Capture) -> dict[int, str]:
    """Tensors by their ids -> what the user's frames call them, the innermost frame's name first."""
    names: dict[int, str] = {}
    for frame in reversed(here.frames):
        for name, value in frame.locals.items():
            if hasattr(value, "_id"):
                names.setdefault(value._id, name)
    return names


def argument_name(here: Capture | None, value: Any) -> str:
    """The name of a value in the frame that used it first."""
    for frame in reversed(here.frames if here else ()):
        for name, local in frame.locals.items():
            if local is value or (isinstance(local, np.ndarray) and is_same(local, value)):
                return name
    return ""


def is_same(array: np.ndarray, value: Any) -> bool:
    """Whether a NumPy array has become this tensor: an op on an array takes it as a constant."""
    made = np.asarray(value)
    if array.shape != made.shape or array.dtype.kind != "f" or made.dtype.kind != "f" or not array.ndim:
        return False
    return bool(np.array_equal(array.astype(made.dtype), made, equal_nan=True))


def named(here: Capture, ids: Sequence[int], first: Outcome | None = None) -> list[NamedSummary]:
    """An op's inputs: by the name in the user's innermost frame, of their variable, or as the line writes them."""
    names: dict[int, str] = {}
    for frame in here.frames[-1:]:
        names = {value._id: name for name, value in frame.locals.items() if hasattr(value, "_id")}
    written = as_written(here)
    found = []
    for index, (value, key) in enumerate(zip(here.inputs, ids, strict=False)):
        name = names.get(getattr(value, "_id", -1), "")
        producer = first.log.producer.get(key) if first is not None else None
        if first is not None and producer is not None and not name:
            variable = first.log.events[producer].variable
            name = name_of(variable) if variable is not None else ""
        if not name and index < len(written):
            name = written[index]
        if name_of_dtype(value) not in ("resource", "variant"):
            found.append(NamedSummary(name, describe_leaf(value)))
    return found


def as_written(here: Capture) -> tuple[str, ...]:
    """What the user's line writes for the op's inputs, where the line itself runs the op."""
    line, detail = here.site.line, here.site.detail
    if line is None or (detail is not None and "ops" not in os.path.basename(detail.file)):
        return ()
    return operands.written("".join(linecache.getlines(line.file)), line.line, here.op)


def blamed(inputs: Sequence[NamedSummary], facts: causes.Facts) -> list[NamedSummary]:
    """The inputs, each with the element that the first bad output was computed from, where that is known."""
    found = []
    for index, each in enumerate(inputs):
        place = causes.culprit(facts, index)
        known = place is not None and bool(place[0])
        found.append(NamedSummary(each.name, each.summary, *place) if known and place is not None else each)
    return found
