"""A culprit op and its values -> one sentence of cause in plain words, and the standard fix where there is one.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Facts:
    """An op, the op it is the gradient of, its inputs (names where known, arrays) and its first output.

    `owner` is the class of the Keras object it is inside of; `hidden`: its infinity was hidden in the forward pass and
    came back in the gradient; `meant`: its infinite inputs were put in on purpose.
    """

    op: str
    forward_op: str | None
    names: tuple[str, ...]
    inputs: tuple[np.ndarray, ...]
    output: np.ndarray
    owner: str = ""
    hidden: bool = False
    meant: bool = False


def data(array: np.ndarray, name: str) -> str:
    """Where a value has NaN or infinities: how many, in which columns (of the last axis), the first index."""
    bad = ~np.isfinite(array)
    first = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.any() else ()
    word = "NaN" if np.isnan(array).any() else "inf"
    text = f"{name} holds {int(bad.sum())} {word} of {array.size} values, first at {list(first)}"
    if array.ndim >= 2:
        columns = np.flatnonzero(bad.reshape(-1, array.shape[-1]).any(axis=0))
        rows = int(bad.reshape(array.shape[0], -1).any(axis=1).sum())
        if len(columns) <= 3 and array.shape[-1] > 1:
            text += f"; column {', '.join(map(str, columns))}, in {rows} of {array.shape[0]} rows"
    return text


def explain(facts: Facts) -> tuple[str, str]:
    """(cause, fix); the fix is '' where no standard one is known."""
    return (f"{facts.op} made it from finite inputs", "")
