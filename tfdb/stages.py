"""A dataset that failed while Python iterated it -> the stage that fails, the line that made it, what it was given.

The pipeline is read again, for a limited time; one that calls Python or is another on each pass is left alone.
"""

from __future__ import annotations

import linecache
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tfdb import internals_datasets, internals_errors, internals_gate, steps, tensors
from tfdb.blame import Lines
from tfdb.evidence import Shown

LIMIT = 5.0  # seconds spent reading the pipeline again, at most
MOST_ELEMENTS = 4
DRAWING = "IteratorGetNext"  # the op in the text of every error of a dataset


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """The innermost dataset of a pipeline that fails, and the number of its element that does, from 0."""

    dataset: Any
    number: int


def failing(dataset: Any) -> Stage | None:
    """The stage of a pipeline that fails when it is read again; None when none does in time."""
    if not internals_datasets.is_repeatable(dataset):
        return None
    return innermost(dataset, time.monotonic() + LIMIT)


def innermost(dataset: Any, end: float) -> Stage | None:
    """`failing`, until a time."""
    number = failing_element(dataset, end)
    if number is None:
        return None
    inside = (innermost(source, end) for source in internals_gate.inputs_of(dataset))
    return next((stage for stage in inside if stage is not None), None) or Stage(dataset, number)


def failing_element(dataset: Any, end: float) -> int | None:
    """The number of the first element that cannot be had, from 0; None when there is none in time."""
    number = 0
    try:
        for _ in dataset:
            number += 1
            if time.monotonic() > end:
                return None
    except internals_errors.op_error():
        return number
    return None


def told(stage: Stage, built: Lines) -> str | None:
    """`fails in element 0 of a BatchDataset, made at data.py:25  ds = ds.batch(2)`; None without a known line."""
    line = built.get(stage.dataset)
    if line is None:
        return None
    name = type(stage.dataset).__name__.strip("_")
    text = linecache.getline(line.file, line.line).strip()
    return f"fails in element {stage.number} of a {name}, made at {line.place}  {text}"


def given(stage: Stage) -> tuple[Shown, ...]:
    """The elements that a batching stage put together when it failed; of unequal ones the first two kinds."""
    size = internals_datasets.batch_size(stage.dataset)
    sources = internals_gate.inputs_of(stage.dataset)
    if size is None or len(sources) != 1:
        return ()
    first = stage.number * size
    elements = [steps.flatten(element) for element in islice(sources[0], first, first + size)]
    return tuple(rows(elements, first))[:MOST_ELEMENTS]


def rows(elements: Sequence[Sequence[Any]], first: int) -> Iterator[Shown]:
    """A line for each element, for the components that are not alike in all of them; else for all components."""
    kinds = [{(str(part.dtype), str(part.shape)) for part in parts} for parts in zip(*elements, strict=False)]
    uneven = [index for index, kind in enumerate(kinds) if len(kind) > 1] or list(range(len(kinds)))
    seen = set()
    for number, parts in enumerate(elements, first):
        kind = tuple(str(parts[index].shape) for index in uneven)
        if kind in seen and any(len(each) > 1 for each in kinds):
            continue
        seen.add(kind)
        for index in uneven:
            name = f"element {number}" + (f"[{index}]" if len(parts) > 1 else "")
            yield Shown(name, tensors.describe_leaf(parts[index]))
