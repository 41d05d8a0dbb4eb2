"""The frames of an error -> what is known of the Keras layer that it came from, which shows in no value.

Its settings, the user's line that made it, and what it was given and by which layer.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from tfdb import evidence, internals_errors, internals_layers
from tfdb.blame import Lines

MOST_INPUTS = 4
LONGEST = 60  # characters of a layer's settings


def of_frames(frames: Iterable[FrameType], built: Lines) -> tuple[str, ...]:
    """The lines on the innermost layer of a stack; empty when it has none."""
    for frame in frames:
        for each in internals_errors.outward(frame):
            found = internals_layers.called_layer(each)
            if found is not None:
                layer, given = found
                return (f"in {told(layer, built)}", *inputs(given, built))
    return ()


def of_node(node: str, built: Lines) -> tuple[str, ...]:
    """The line on the layer that an op of a graph is inside of, by the scopes in the name of its node.

    A layer that is called again has a number after its name there; where that is another layer's name, none is told.
    """
    named = {getattr(value, "name", None): value for value in built.values() if hasattr(type(value), "count_params")}
    for scope in reversed(node.split("/")[:-1]):
        found = [named[name] for name in {scope, re.sub(r"_\d+$", "", scope)} if name in named]
        if found:
            return (f"in {told(found[0], built)}",) if len(found) == 1 and not hasattr(type(found[0]), "fit") else ()
    return ()


def told(layer: Any, built: Lines) -> str:
    """`layer conv2d_1: Conv2D(filters=4, kernel_size=(3, 3)), made at net.py:6`."""
    known: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # a layer that is half made
        known = internals_layers.settings(layer)
    text = ", ".join(f"{name}={value!r}" for name, value in known.items())
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return f"layer {getattr(layer, 'name', '?')}: {type(layer).__name__}({text}){made(layer, built)}"


def made(layer: Any, built: Lines) -> str:
    """`, made at net.py:6`, where that is known."""
    line = built.get(layer)
    return f", made at {line.place}" if line is not None else ""


def inputs(given: Any, built: Lines) -> Iterator[str]:
    """A line for each tensor that a layer was called with."""
    if given is None:
        return
    for tensor in list(internals_layers.leaves(given))[:MOST_INPUTS]:
        source = internals_layers.made_by(tensor)
        by = f", the output of {source.name}" if source is not None and hasattr(source, "name") else ""
        yield f"  it was given {evidence.kind_of(tensor)}{by}{made(source, built)}"
