"""A batch with NaN that came out of a tf.data pipeline -> the `map` that made it: its function, on the guilty element.

The pipeline is read again from its source, stage by stage, for a limited time; a stage whose input is clean and whose
output is not is the one.  Sources with side effects (generators, readers) run again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import internals_gate, replaying
from .replaying import kind_of
from .steps import Call, flatten

LIMIT = 15.0  # seconds spent reading the pipeline again, at most


@dataclass(frozen=True, eq=False)
class Element:
    """What a `map` was given when it made a bad value: its dataset, its function and the arguments."""

    dataset: Any
    function: Callable[..., Any]
    args: tuple[Any, ...]


def guilty_map(call: Call | None, value: Any) -> Element | None:
    """The `map` of the pipeline that `value` came from that makes bad values of good ones; None when there is none."""
    dataset = dataset_of(call, value)
    if dataset is None or (call is not None and not has_spare_thread()):
        return None
    end = time.monotonic() + LIMIT
    for stage in stages(dataset):
        function = internals_gate.map_function(stage)
        if function is not None and (args := guilty_element(stage, function, end)) is not None:
            return Element(stage, function, args)
    return None


def dataset_of(call: Call | None, value: Any) -> Any | None:
    """The dataset that the running call iterates, or that gave `value` to eager code."""
    for leaf in (*(call.args if call else ()), *(call.kwargs.values() if call else ())):
        if dataset := internals_gate.iterated(leaf):
            return dataset
    given = flatten((call.args, call.kwargs)) if call else [value]
    for iterator, element in list(replaying.last_drawn.values()):
        if any(part is each and is_same(part, value) for part in flatten(element) for each in given):
            return internals_gate.iterated(iterator)
    return None


def is_same(given: Any, value: Any) -> bool:
    """Whether two tensors hold the same; a hook gets copies of what was passed."""
    return given is value or (
        getattr(given, "dtype", None) == getattr(value, "dtype", None)
        and given.dtype.is_floating
        and np.array_equal(np.asarray(given), np.asarray(value), equal_nan=True)
    )


def has_spare_thread() -> bool:
    """Whether a dataset can be iterated while a graph waits: with one thread between ops that would never end."""
    import tensorflow as tf

    return (tf.config.threading.get_inter_op_parallelism_threads() or os.cpu_count() or 1) > 1


def stages(dataset: Any) -> Iterator[Any]:
    """The pipeline's datasets, sources first."""
    for upstream in internals_gate.inputs_of(dataset):
        yield from stages(upstream)
    yield dataset


def guilty_element(stage: Any, function: Callable[..., Any], end: float) -> tuple[Any, ...] | None:
    """The first element of the stage's input that is good and of which `function` makes a bad one."""
    for element in internals_gate.inputs_of(stage)[0]:
        if time.monotonic() > end:
            return None
        args = element if isinstance(element, tuple) else (element,)
        if any(map(kind_of, flatten(args))):
            continue
        try:
            made = function(*args)
        except Exception:  # it is the program's: it may need what only a graph has
            return None
        if any(map(kind_of, flatten(made))):
            return args
    return None
