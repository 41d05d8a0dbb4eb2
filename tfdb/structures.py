"""A nested Python value -> its leaves with the paths to them, in the program's own order. No TensorFlow import.

Only what users build by hand is taken apart: sequences, mappings, named tuples, dataclasses, attrs classes, extension
types, per-replica values, and objects that list their variables (layers, models, optimizers, modules, metrics).
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

MAX_DEPTH = 20
NUMBERS = (bool, int, float, complex)


class Child(NamedTuple):
    """One step into a structure: how it is written after the parent's name, and whether it only counts positions."""

    step: str
    value: Any
    by_position: bool = False


def leaves(value: Any) -> Iterator[tuple[tuple[Child, ...], Any]]:
    """The leaves under a structure, each with the steps to it; a value that contains itself is cut there."""

    def walk(value: Any, path: tuple[Child, ...], above: tuple[int, ...]) -> Iterator[tuple[tuple[Child, ...], Any]]:
        found = None
        if id(value) not in above and len(path) < MAX_DEPTH:
            with contextlib.suppress(Exception):  # a value that fights being looked at is a leaf
                found = children(value)
        if found is None:
            yield path, value
            return
        for child in found:
            yield from walk(child.value, (*path, child), (*above, id(value)))

    return walk(value, (), ())


def children(value: Any) -> list[Child] | None:
    """What a structure directly holds; None for a leaf. A (nested) sequence of numbers only is a leaf, an array."""
    if isinstance(value, Mapping):
        return [Child(f"[{key!r}]", child) for key, child in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [Child(f".{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, list | tuple):
        return None if is_number_array(value) else _indexed(value)
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return _attributes(value, [field.name for field in dataclasses.fields(value)])
    if hasattr(type(value), "__attrs_attrs__"):
        return _attributes(value, [field.name for field in type(value).__attrs_attrs__])
    return _tensorflow_children(value)


def is_number_array(value: list | tuple) -> bool:
    """Whether a non-empty sequence holds Python numbers only, nested sequences of equal length included."""
    if not value:
        return False
    if all(type(child) in NUMBERS for child in value):
        return True
    return (
        all(type(child) in (list, tuple) and len(child) == len(value[0]) for child in value)
        and all(is_number_array(child) for child in value)
        and len({np.shape(child) for child in value}) == 1
    )


def _tensorflow_children(value: Any) -> list[Child] | None:
    tf = sys.modules.get("tensorflow")
    if tf is None or isinstance(value, tf.Tensor | tf.Variable):
        return None
    if isinstance(value, tf.experimental.ExtensionType):
        return _attributes(value, [name for name in type(value).__annotations__ if not name.startswith("__")])
    if isinstance(value, tf.distribute.DistributedValues):
        return [Child(f" replica {i}", child) for i, child in enumerate(value.values)]
    for name in ("weights", "variables"):  # a model's `weights` leave out its seeds and metrics
        if isinstance(getattr(type(value), name, None), property):
            found = getattr(value, name)
            if isinstance(found, list | tuple):
                return _indexed(found)
    return None


def _attributes(value: Any, names: list[str]) -> list[Child]:
    return [Child(f".{name}", getattr(value, name)) for name in names if hasattr(value, name)]


def _indexed(values: list | tuple) -> list[Child]:
    return [Child(f"[{i}]", child, True) for i, child in enumerate(values)]
